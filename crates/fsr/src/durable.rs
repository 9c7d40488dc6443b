//! Which of the host's writes a flush has covered: a log is taken in as far as a power cut would leave it.
//!
//! Each write is noted when it begins and again when it ends, by sectors, with the number of the flush that
//! will cover it; a flush that ended well covers all numbers up to its own. What nobody has noted counts as
//! durable: what was written before anybody asked, ranges too long for a log, and the oldest where more is
//! not flushed than the table holds. So what is shown may be too new there, and is never held back for good;
//! and it is known that something was forgotten.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::monitor::{mix, sectors, units};

/// Units that follow each other, under one lock.
const RUN: u64 = 16;
const GROUPS: usize = 1 << 11;
/// Slots of a unit, which it shares with those of other runs: for as many flushes as its parts may wait for.
const SLOTS: usize = 4;
/// A write of more units is not noted.
const LONG: u64 = 1 << 10;
/// The number of a write that has not ended.
const IN_FLIGHT: u64 = u64::MAX;

/// Sectors of a unit that one flush will cover.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    unit: u64,
    flush: u64,
    /// None: it is free.
    sectors: u8,
}

type Group = [[Slot; SLOTS]; RUN as usize];

/// What is not durable yet.
#[derive(Debug)]
pub(crate) struct Durability {
    /// There from when somebody first asks.
    table: OnceLock<Box<[Mutex<Group>]>>,
    /// Of the flush that begins next.
    next: AtomicU64,
    /// Up to this one they have ended well.
    covered: AtomicU64,
    /// Before this one ends, something that it covers may have been forgotten.
    forgotten: AtomicU64,
}

impl Durability {
    pub(crate) fn new() -> Durability {
        Durability {
            table: OnceLock::new(),
            next: AtomicU64::new(1),
            covered: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    /// `len` bytes at `offset` are about to change.
    #[inline]
    pub(crate) fn begins(&self, offset: u64, len: u64) {
        if let Some(table) = self.table.get() {
            self.note(table, offset, len, IN_FLIGHT);
        }
    }

    /// They have. `durable`: without a flush.
    #[inline]
    pub(crate) fn ended(&self, offset: u64, len: u64, durable: bool) {
        if let Some(table) = self.table.get() {
            // The flush that begins next comes after this.
            let flush = if durable { 0 } else { self.next.load(Ordering::SeqCst) };
            self.note(table, offset, len, flush);
        }
    }

    /// A flush begins; its number.
    pub(crate) fn flush_begins(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// It ended well.
    pub(crate) fn flushed(&self, flush: u64) {
        self.covered.fetch_max(flush, Ordering::SeqCst);
    }

    /// The number of the flush that begins next.
    pub(crate) fn next_flush(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Whether a flush of this number or a later one has ended well.
    pub(crate) fn has_flushed(&self, flush: u64) -> bool {
        self.covered.load(Ordering::SeqCst) >= flush
    }

    /// Whether nothing that waits for a flush has been forgotten. To be asked after [`Durability::covers`].
    pub(crate) fn remembers(&self) -> bool {
        self.has_flushed(self.forgotten.load(Ordering::SeqCst))
    }

    /// Whether a flush has covered the last write of each of these bytes.
    pub(crate) fn covers(&self, offset: u64, len: u64) -> bool {
        let make = || (0..GROUPS).map(|_| Mutex::default()).collect();
        let table = self.table.get_or_init(make);
        let to = offset.saturating_add(len);
        let covered = self.covered.load(Ordering::SeqCst);
        let is_covered = |slots: &[Slot; SLOTS], unit: u64| {
            let asked = sectors(unit, offset, to);
            slots.iter().all(|slot| slot.unit != unit || slot.sectors & asked == 0 || slot.flush <= covered)
        };
        len == 0
            || runs(offset, to).all(|mut run| {
                let group = lock(table, run.start);
                run.all(|unit| is_covered(&group[(unit % RUN) as usize], unit))
            })
    }

    fn note(&self, table: &[Mutex<Group>], offset: u64, len: u64, flush: u64) {
        let to = offset.saturating_add(len);
        let all = units(offset, to);
        if len == 0 {
            return;
        }
        if all.end - all.start > LONG {
            return self.forgets();
        }
        let covered = self.covered.load(Ordering::Relaxed);
        for run in runs(offset, to) {
            let mut group = lock(table, run.start);
            for unit in run {
                let slots = &mut group[(unit % RUN) as usize];
                if !put(slots, unit, sectors(unit, offset, to), flush, covered) {
                    // Under the lock, so that who misses it knows.
                    self.forgets();
                }
            }
        }
    }

    /// Something is not noted that waits for the next flush, or for one before.
    fn forgets(&self) {
        self.forgotten.fetch_max(self.next_flush(), Ordering::SeqCst);
    }
}

/// Notes sectors of a unit in its slots. What they waited for before counts no more. Whether there was room:
/// else one that waits has lost its slot.
fn put(slots: &mut [Slot; SLOTS], unit: u64, sectors: u8, flush: u64, covered: u64) -> bool {
    let mut place = None;
    for (at, slot) in slots.iter_mut().enumerate() {
        if slot.unit == unit {
            slot.sectors &= !sectors;
            if slot.flush == flush {
                place = Some(at);
            }
        }
    }
    if flush <= covered {
        return true;
    }
    let is_free = |slot: &Slot| slot.sectors == 0 || slot.flush <= covered;
    let place = place.or_else(|| slots.iter().position(is_free));
    let oldest = || slots.iter().enumerate().min_by_key(|(_, slot)| slot.flush).map(|(at, _)| at);
    let Some(slot) = place.or_else(oldest).and_then(|at| slots.get_mut(at)) else { return false };
    let joined = if slot.unit == unit && slot.flush == flush { slot.sectors } else { 0 };
    *slot = Slot { unit, flush, sectors: joined | sectors };
    place.is_some()
}

/// The units of these bytes, by the runs that are under one lock.
fn runs(from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
    let all = units(from, to.max(from));
    (all.start / RUN..all.end.div_ceil(RUN))
        .map(move |run| (run * RUN).max(all.start)..((run + 1) * RUN).min(all.end))
}

fn lock(table: &[Mutex<Group>], unit: u64) -> MutexGuard<'_, Group> {
    let group = (mix(unit / RUN) >> 40) as usize % GROUPS;
    table[group].lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nearside_random::Rng;

    use super::*;

    /// Sectors that have been written, and which flush covers them; none: the write has not ended.
    #[derive(Default)]
    struct Naive(BTreeMap<u64, Option<u64>>);

    impl Naive {
        fn covers(&self, from: u64, to: u64, covered: u64) -> bool {
            self.0.range(from..to).all(|(_, flush)| flush.is_some_and(|flush| flush <= covered))
        }
    }

    #[test]
    fn what_a_flush_has_not_covered_is_known_by_sector() {
        for seed in 0..20 {
            let (mut rng, durability, mut naive) = (Rng(seed), Durability::new(), Naive::default());
            assert!(durability.covers(0, 1 << 30));
            let (mut begun, mut covered, mut open, mut compared) = (1, 0, Vec::new(), 0);
            for _ in 0..4000 {
                let from = rng.below(96);
                let to = from + rng.below(24);
                let (offset, len) = (from * 512, (to - from) * 512);
                match rng.below(8) {
                    0..=3 => {
                        durability.begins(offset, len);
                        let in_flight = rng.below(4) == 0;
                        assert_eq!(durability.covers(offset, len), from == to, "it is in flight");
                        let durable = rng.below(4) == 0;
                        if !in_flight {
                            durability.ended(offset, len, durable);
                        }
                        let flush = if durable { Some(0) } else { Some(begun) };
                        naive.0.extend((from..to).map(|at| (at, flush.filter(|_| !in_flight))));
                    }
                    4 if open.len() < 3 => {
                        open.push(durability.flush_begins());
                        assert_eq!(open.last(), Some(&begun));
                        begun += 1;
                    }
                    4 | 5 if !open.is_empty() => {
                        let flush = open.swap_remove(rng.below(open.len() as u64) as usize);
                        // One that fails is not told.
                        if rng.below(5) > 0 {
                            durability.flushed(flush);
                            covered = covered.max(flush);
                        }
                    }
                    _ => {
                        let is_covered = naive.covers(from, to, covered);
                        let said = durability.covers(offset, len);
                        // A unit has slots for three flushes, and for what has not ended.
                        assert!(said == is_covered || said && begun - covered > 3, "seed {seed}");
                        compared += u64::from(!is_covered && begun - covered <= 3);
                    }
                }
            }
            assert!(compared > 50, "{compared}");
        }
    }

    /// What the table has no room for counts as durable, the oldest first; and so does what is no log.
    #[test]
    fn more_than_there_is_room_for_is_forgotten() {
        let durability = Durability::new();
        assert!(durability.covers(0, 1));
        durability.ended(0, 4096, false);
        assert!(durability.remembers());
        let first = durability.flush_begins();
        durability.flushed(first);
        durability.ended(0, LONG * 4096 + 1, false);
        assert!(durability.covers(0, 4096) && !durability.remembers());
        let second = durability.flush_begins();
        durability.flushed(second);
        assert!(durability.remembers());
        durability.ended(0, 4096, false);
        let mut flush = 0;
        for at in 1..1u64 << 18 {
            flush = durability.flush_begins();
            durability.ended(at * 4096, 4096, false);
        }
        assert!(durability.covers(0, 4096) && !durability.remembers());
        let last = ((1 << 18) - 1) * 4096;
        assert!(!durability.covers(last, 4096));
        durability.flushed(flush);
        assert!(!durability.covers(last, 4096));
        durability.flushed(flush + 1);
        assert!(durability.covers(last, 4096) && durability.remembers());
    }
}
