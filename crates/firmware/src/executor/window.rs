//! How many reads the store has, and how long one is.
//!
//! While hosts' I/O comes to the medium, each of its operations may wait there for all that it has to read for
//! tasks. So reads are short then, and as few as do not wait for each other: there are more only while one takes
//! little longer than the shortest lately, as TCP Vegas has its window. A medium of one unit (3D XPoint, of which
//! a block has all channels) so has few; one of many (NAND) has more.

use nearside_clock::Nanos;

/// Reads that the store has at a time, of all tasks together: what one operation keeps in flight, however
/// many search.
pub(super) const READS: usize = 8;
/// The fewest that it has beside hosts' I/O.
pub(super) const READS_BESIDE: usize = 1;
/// Bytes of a read beside it.
pub(super) const BYTES_BESIDE: u64 = 16 << 10;
/// How long after a host's operation that is.
pub(super) const BESIDE_NS: u64 = 10_000_000;
/// The shortest is of so many reads at least, and of twice as many at most.
const LATELY: u32 = 4096;

pub(super) struct Window {
    /// What was seen of the hosts' own operations: how many so far, and when there was a new one.
    hosts: (u64, Option<Nanos>),
    room: usize,
    /// The shortest read, in nanoseconds, before the last so many, and of them.
    least_before: u64,
    least: (u64, u32),
    /// Reads in a row that took little longer.
    short: usize,
}

impl Window {
    pub(super) fn new(host_operations: u64) -> Window {
        Window {
            hosts: (host_operations, None),
            room: READS_BESIDE,
            least_before: u64::MAX,
            least: (u64::MAX, 0),
            short: 0,
        }
    }

    /// Hosts have had so many operations so far. Whether there is any of late.
    fn is_beside(&mut self, host_operations: u64, now: Nanos) -> bool {
        if host_operations != self.hosts.0 {
            self.hosts = (host_operations, Some(now));
        }
        self.hosts.1.is_some_and(|seen| now.since(seen) < BESIDE_NS)
    }

    /// Reads that the store may have now.
    pub(super) fn room(&mut self, host_operations: u64, now: Nanos) -> usize {
        if self.is_beside(host_operations, now) { self.room } else { READS }
    }

    /// Bytes of a read that begins now, at most.
    pub(super) fn bytes(&mut self, host_operations: u64, now: Nanos) -> u64 {
        if self.is_beside(host_operations, now) { BYTES_BESIDE } else { u64::MAX }
    }

    /// A read has taken so long.
    pub(super) fn took(&mut self, ns: u64) {
        if self.least.1 == LATELY {
            self.least_before = self.least.0;
            self.least = (u64::MAX, 0);
        }
        self.least = (self.least.0.min(ns), self.least.1 + 1);
        let least = self.least.0.min(self.least_before);
        if ns > least.saturating_add(least / 8) {
            self.room = (self.room - 1).max(READS_BESIDE);
            self.short = 0;
            return;
        }
        self.short += 1;
        if self.short >= self.room {
            self.room = (self.room + 1).min(READS);
            self.short = 0;
        }
    }
}
