//! How many reads the store has, and how long one is.
//!
//! While hosts' I/O comes to the medium, each of its operations may wait there for all that it has to read
//! for tasks. So reads are short then, and as few as hardly wait for each other: there are more only while
//! most take no more than half as long again as the shortest lately, as TCP Vegas has its window. A medium
//! of one unit (3D XPoint, of which a block has all channels) so has two or three; one of many (NAND) has
//! eight.

use nearside_clock::Nanos;

/// Reads that the store has at a time, of all tasks together: what one operation keeps in flight, however
/// many search.
pub(super) const READS: usize = 8;
/// The fewest that it has beside hosts' I/O.
const READS_BESIDE: usize = 1;
/// Bytes of a read beside it.
const BYTES_BESIDE: u64 = 16 << 10;
/// How long after a host's operation that is.
const BESIDE_NS: u64 = 10_000_000;
/// The shortest is of so many reads at least, and of twice as many at most.
const LATELY: u32 = 4096;
/// After so many reads it is looked at how many took no longer than that: most, or less than half.
const LOOKED_AT: u32 = 16;
const MOST: u32 = LOOKED_AT * 3 / 4;
const HALF: u32 = LOOKED_AT / 2;

pub(super) struct Window {
    /// What was seen of the hosts' own operations: how many so far, and when the store last had reads while
    /// one came.
    hosts: (u64, Option<Nanos>),
    room: usize,
    /// The shortest read, in nanoseconds, before the last so many, and of them.
    least_before: u64,
    least: (u64, u32),
    /// How many took no longer than that, and of how many, since it was last looked at.
    short: (u32, u32),
}

impl Window {
    pub(super) fn new(host_operations: u64) -> Window {
        Window {
            hosts: (host_operations, None),
            room: READS_BESIDE,
            least_before: u64::MAX,
            least: (u64::MAX, 0),
            short: (0, 0),
        }
    }

    /// The store has none of the reads, and is about to: what hosts have had so far waited for none.
    pub(super) fn begins(&mut self, host_operations: u64) {
        self.hosts.0 = host_operations;
    }

    /// Reads have ended.
    pub(super) fn end(&mut self, host_operations: u64, now: Nanos) {
        if host_operations != self.hosts.0 {
            self.hosts = (host_operations, Some(now));
        }
    }

    fn is_beside(&self, now: Nanos) -> bool {
        self.hosts.1.is_some_and(|seen| now.since(seen) < BESIDE_NS)
    }

    /// Reads that the store may have now.
    pub(super) fn room(&self, now: Nanos) -> usize {
        if self.is_beside(now) { self.room } else { READS }
    }

    /// Bytes of a read that begins now, at most.
    pub(super) fn bytes(&self, now: Nanos) -> u64 {
        if self.is_beside(now) { BYTES_BESIDE } else { u64::MAX }
    }

    /// A read of so many bytes has taken so long. Of others than short ones nothing is learned.
    pub(super) fn took(&mut self, bytes: u64, ns: u64) {
        if !(BYTES_BESIDE / 2..=BYTES_BESIDE * 2).contains(&bytes) {
            return;
        }
        if self.least.1 == LATELY {
            self.least_before = self.least.0;
            self.least = (u64::MAX, 0);
        }
        self.least = (self.least.0.min(ns), self.least.1 + 1);
        let least = self.least.0.min(self.least_before);
        let (short, of) = (self.short.0 + u32::from(ns <= least.saturating_add(least / 2)), self.short.1 + 1);
        self.short = (short, of);
        if of == LOOKED_AT {
            self.short = (0, 0);
            match short {
                0..HALF => self.room = (self.room - 1).max(READS_BESIDE),
                MOST.. => self.room = (self.room + 1).min(READS),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_did_before_the_first_read_is_not_beside_it() {
        let mut window = Window::new(0);
        window.begins(7);
        window.end(7, Nanos(1_000));
        assert_eq!((window.room(Nanos(1_000)), window.bytes(Nanos(1_000))), (READS, u64::MAX));
        window.end(8, Nanos(2_000));
        let last = Nanos(2_000 + BESIDE_NS - 1);
        assert_eq!((window.room(last), window.bytes(last)), (READS_BESIDE, BYTES_BESIDE));
        assert_eq!(window.room(last + 1), READS);
    }
}
