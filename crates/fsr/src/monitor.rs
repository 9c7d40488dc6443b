//! The metadata monitor (DAC'23 III-D): sees every change that the host makes, and says what of the crawler's
//! knowledge it touches.
//!
//! The drive calls [`Monitor::begin`] before a range changes and [`Monitor::end`] after; both are wait-free
//! and take a few nanoseconds for a range that nobody watches: one look into a bit filter per 4 KiB. Where
//! the filter says "perhaps", an exact table is asked under a lock. A watched block has a version, which each
//! change raises; whoever has made something of the block keeps the version that it had *before* it was read
//! ([`Dep`]), and believes in what it made only while that is still the version. [`Monitor::changes`] counts
//! the changes of all watched blocks, so that as long as it stands still nobody need look at single versions.
//! The bytes themselves are read again from the store when they are next needed, never from the host's
//! memory.
//!
//! Watching comes before reading, and the second look of `end` after the change, so that of a reader and a
//! writer at the same time at least one sees the other: a block read before or during a write is out of date
//! when the write has ended.
//!
//! Scans register the ranges they read ([`Monitor::scan`]) and learn at their end whether one of them was
//! touched.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard};

use hashbrown::HashTable;

use crate::durable::Durability;
use crate::media::Media;
use crate::ranges::Ranges;

/// Watched units are this long, and kept by 512-byte sector.
const UNIT: u64 = 4096;
const SECTOR: u64 = 512;
/// Cells of the filter, one byte for the sectors of a unit.
const FILTER: usize = 1 << 18;
/// A change of more units than this goes through the exact table at once.
const LONG: u64 = 1 << 14;
/// Numbers of blocks as a volume shows them, which no write of the host reaches by itself.
const SHOWN: u64 = 1 << 60;
/// They are kept by so many bytes, the smallest block of a volume.
const SMALLEST: u64 = 1024;
/// The number that stands for what a flush makes durable.
const FLUSHES: u64 = u64::MAX;
/// What depends on more is looked at in pieces of so many, so that no look takes longer than a slice.
const PIECE: usize = 1 << 10;

/// That something was made of a watched unit as it was at one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dep {
    slot: u32,
    version: u32,
}

/// What something was made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deps {
    generation: u64,
    deps: Vec<Dep>,
}

impl Deps {
    /// Adds what another thing was made of.
    pub(crate) fn extend(&mut self, other: &Deps) {
        if self.deps.is_empty() {
            self.generation = other.generation;
        }
        if self.generation == other.generation {
            for dep in &other.deps {
                // What is looked at again and again was noted lately: the way to a file's next block leads
                // over the same nodes.
                let lately = self.deps.len().saturating_sub(32);
                if !self.deps[lately..].contains(dep) {
                    self.deps.push(*dep);
                }
            }
        } else if !other.deps.is_empty() {
            // Of two generations at once: never valid again.
            self.generation = u64::MAX;
        }
    }
}

impl Deps {
    /// Those of them that are not of what `other` was made of, too.
    pub(crate) fn but(&self, other: &Deps) -> Deps {
        let others: HashSet<u32> = match self.generation == other.generation {
            true => other.deps.iter().map(|dep| dep.slot).collect(),
            false => HashSet::new(),
        };
        let deps = self.deps.iter().filter(|dep| !others.contains(&dep.slot));
        Deps { generation: self.generation, deps: deps.copied().collect() }
    }
}

/// No more units can be watched: forget everything and begin anew ([`Monitor::reset`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

struct Unit {
    number: u64,
    version: u32,
    sectors: u8,
}

struct ScanEntry {
    id: u64,
    ranges: Ranges,
    touched: bool,
}

#[derive(Default)]
struct Watch {
    generation: u64,
    table: HashTable<u32>,
    units: Vec<Unit>,
    scans: Vec<ScanEntry>,
    next_scan: u64,
}

impl Watch {
    /// Where a unit is kept.
    fn find(&self, number: u64) -> Option<u32> {
        let is = |&i: &u32| self.units.get(i as usize).is_some_and(|u| u.number == number);
        self.table.find(mix(number), is).copied()
    }

    /// Where it is kept from now on, as one of at most `most`.
    fn keep(&mut self, number: u64, most: usize) -> Result<u32, Overflow> {
        if let Some(slot) = self.find(number) {
            return Ok(slot);
        }
        if self.units.len() >= most {
            return Err(Overflow);
        }
        let slot = self.units.len() as u32;
        self.units.push(Unit { number, version: 0, sectors: 0 });
        let Watch { table, units, .. } = self;
        table.insert_unique(mix(number), slot, |&i| mix(units[i as usize].number));
        Ok(slot)
    }

    /// Watches what stands by a number that no write reaches.
    fn note(&mut self, number: u64, most: usize) -> Result<Deps, Overflow> {
        let slot = self.keep(number, most)?;
        let version = self.units[slot as usize].version;
        Ok(Deps { generation: self.generation, deps: vec![Dep { slot, version }] })
    }

    /// Whether a unit is as it was.
    fn holds(&self, dep: &Dep) -> bool {
        self.units.get(dep.slot as usize).is_some_and(|u| u.version == dep.version)
    }
}

/// What the monitor has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounters {
    /// Changes that the filter could not rule out (each `begin` and each `end` counts).
    pub suspected: u64,
    /// Watched blocks that changed.
    pub invalidated: u64,
    /// States of a volume that followed one by what its log had committed.
    pub published: u64,
    /// Scans that a change touched.
    pub scans_touched: u64,
    /// Files whose metadata was looked at again when they had been read, since some of it had changed.
    pub looked_again: u64,
    /// Files that were read again, because they had changed.
    pub repeated: u64,
    /// Blocks watched now, in units of 4 KiB.
    pub watched: u64,
}

impl MonitorCounters {
    /// Both together.
    pub fn merge(&mut self, other: MonitorCounters) {
        self.suspected += other.suspected;
        self.invalidated += other.invalidated;
        self.published += other.published;
        self.scans_touched += other.scans_touched;
        self.looked_again += other.looked_again;
        self.repeated += other.repeated;
        self.watched += other.watched;
    }
}

/// The monitor.
pub struct Monitor {
    enabled: AtomicBool,
    filter: Box<[AtomicU8]>,
    changes: AtomicU64,
    scanning: AtomicUsize,
    most: usize,
    suspected: AtomicU64,
    invalidated: AtomicU64,
    published: AtomicU64,
    scans_touched: AtomicU64,
    /// Files looked at again after they were read.
    pub(crate) looked_again: AtomicU64,
    /// And read again.
    pub(crate) repeated: AtomicU64,
    durability: Durability,
    /// Somebody watches for the end of a flush.
    flush_is_watched: AtomicBool,
    watch: Mutex<Watch>,
}

#[inline]
pub(crate) fn mix(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Neighbours share a cache line of the filter.
#[inline]
fn cell(unit: u64) -> usize {
    ((mix(unit >> 6) >> 40) as usize & (FILTER / 64 - 1)) << 6 | (unit & 63) as usize
}

/// The sectors of `unit` that lie in `from..to`.
#[inline]
pub(crate) fn sectors(unit: u64, from: u64, to: u64) -> u8 {
    let start = unit * UNIT;
    let first = from.saturating_sub(start) / SECTOR;
    let last = (to - start).min(UNIT).div_ceil(SECTOR);
    (0xffu16 >> (8 - last) & 0xffu16 << first) as u8
}

#[inline]
pub(crate) fn units(from: u64, to: u64) -> Range<u64> {
    from / UNIT..to.div_ceil(UNIT)
}

impl Monitor {
    /// Watches at most `most` units of 4 KiB.
    pub(crate) fn new(most: usize) -> Monitor {
        Monitor {
            enabled: AtomicBool::new(true),
            filter: (0..FILTER).map(|_| AtomicU8::new(0)).collect(),
            changes: AtomicU64::new(1),
            scanning: AtomicUsize::new(0),
            most,
            suspected: AtomicU64::new(0),
            invalidated: AtomicU64::new(0),
            published: AtomicU64::new(0),
            scans_touched: AtomicU64::new(0),
            looked_again: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            durability: Durability::new(),
            flush_is_watched: AtomicBool::new(false),
            watch: Mutex::default(),
        }
    }

    /// `len` bytes at `offset` are about to change. Whether the exact table had to be asked.
    #[inline]
    pub fn begin(&self, offset: u64, len: u64) -> bool {
        self.durability.begins(offset, len);
        self.look(offset, len)
    }

    /// They have changed, or the change has failed: they are old or new. `durable`: they survive a power cut
    /// without a flush. As [`Monitor::begin`].
    #[inline]
    pub fn end(&self, offset: u64, len: u64, durable: bool) -> bool {
        self.durability.ended(offset, len, durable);
        // Before this look at the filter every reader must see the change: pairs with the fence in `watch`.
        fence(Ordering::SeqCst);
        self.look(offset, len)
    }

    /// A flush begins, of everything that ended before; its number.
    #[inline]
    pub fn flush_begins(&self) -> u64 {
        self.durability.flush_begins()
    }

    /// The flush of that number ended well.
    #[inline]
    pub fn flushed(&self, flush: u64) {
        self.durability.flushed(flush);
        if self.flush_is_watched.load(Ordering::SeqCst) {
            let mut watch = self.lock();
            self.raise(&mut watch, [FLUSHES]);
            // Under the lock, as it is set: to another flush that finds it cleared nobody waits any more.
            self.flush_is_watched.store(false, Ordering::SeqCst);
        }
    }

    /// Whether a flush has covered the last write of each of these bytes: of those that came after this was
    /// first asked.
    pub fn is_durable(&self, offset: u64, len: u64) -> bool {
        self.durability.covers(offset, len)
    }

    /// Whether that is known of all that was written since it was first asked.
    pub(crate) fn knows_what_is_durable(&self) -> bool {
        self.durability.remembers()
    }

    /// The number of the flush that begins next.
    pub(crate) fn next_flush(&self) -> u64 {
        self.durability.next_flush()
    }

    /// Whether a flush of this number or a later one has ended well.
    pub(crate) fn has_flushed(&self, flush: u64) -> bool {
        self.durability.has_flushed(flush)
    }

    /// Notes in `deps` that something is made of what is durable by now: asked for *after* this.
    pub(crate) fn watch_flushes(&self, deps: &mut Deps) -> Result<(), Overflow> {
        let mut watch = self.lock();
        let new = watch.note(FLUSHES, self.most)?;
        self.flush_is_watched.store(true, Ordering::SeqCst);
        drop(watch);
        deps.extend(&new);
        Ok(())
    }

    #[inline]
    fn look(&self, offset: u64, len: u64) -> bool {
        let to = offset.saturating_add(len);
        let asks = self.suspects(offset, to) || self.scanning.load(Ordering::SeqCst) > 0;
        if asks {
            self.changed(offset, to);
        }
        asks
    }

    /// Whether a watched sector may lie in `from..to`.
    #[inline]
    fn suspects(&self, from: u64, to: u64) -> bool {
        let range = units(from, to);
        if range.end - range.start > LONG {
            return true;
        }
        range.into_iter().any(|unit| {
            let cell = self.filter[cell(unit)].load(Ordering::Relaxed);
            cell != 0 && cell & sectors(unit, from, to) != 0
        })
    }

    #[cold]
    fn changed(&self, from: u64, to: u64) {
        if from >= to || !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        self.suspected.fetch_add(1, Ordering::Relaxed);
        let mut watch = self.lock();
        let range = units(from, to);
        let mut hits = 0u64;
        let mut raise = |unit: &mut Unit| {
            if unit.sectors & sectors(unit.number, from, to) != 0 {
                unit.version = unit.version.wrapping_add(1);
                hits += 1;
            }
        };
        if range.end - range.start > watch.units.len() as u64 {
            watch.units.iter_mut().filter(|u| range.contains(&u.number)).for_each(&mut raise);
        } else {
            for number in range {
                if let Some(slot) = watch.find(number) {
                    raise(&mut watch.units[slot as usize]);
                }
            }
        }
        if hits > 0 {
            self.invalidated.fetch_add(hits, Ordering::Relaxed);
            // Release, under the lock: who sees the new count sees the new versions.
            self.changes.fetch_add(1, Ordering::Release);
        }
        for scan in watch.scans.iter_mut().filter(|s| !s.touched) {
            if scan.ranges.overlap(from, to) {
                scan.touched = true;
                self.scans_touched.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// As if a watched block had changed: who has read anything since looks at what it was read by.
    pub(crate) fn stir(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often a watched block changed.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Watches `len` bytes at `offset`, which the caller reads *after* this, and notes in `deps` the versions
    /// they have now.
    pub(crate) fn watch(&self, offset: u64, len: u64, deps: &mut Deps) -> Result<(), Overflow> {
        let (from, to) = (offset, offset.saturating_add(len));
        let mut watch = self.lock();
        let mut new = Deps { generation: watch.generation, deps: Vec::new() };
        for number in units(from, to) {
            let mask = sectors(number, from, to);
            let slot = watch.keep(number, self.most)?;
            let unit = &mut watch.units[slot as usize];
            if unit.sectors & mask != mask {
                unit.sectors |= mask;
                self.filter[cell(number)].fetch_or(mask, Ordering::SeqCst);
            }
            new.deps.push(Dep { slot, version: unit.version });
        }
        drop(watch);
        // The bits are seen by every writer before the caller reads a byte: pairs with the fence in `end`.
        fence(Ordering::SeqCst);
        deps.extend(&new);
        Ok(())
    }

    /// Notes in `deps` that something is made of the block at `offset` as its volume shows it, which changes
    /// by [`Monitor::publish`].
    pub(crate) fn watch_shown(&self, offset: u64, deps: &mut Deps) -> Result<(), Overflow> {
        let new = self.lock().note(SHOWN | (offset / SMALLEST), self.most)?;
        deps.extend(&new);
        Ok(())
    }

    /// A volume shows other blocks from now on at these bytes of the namespace; yielding between pieces. No
    /// command uses the state that shows them before this has ended, and none keeps what it reads of the one
    /// before any more.
    pub(crate) async fn publish(&self, offsets: &[u64], media: &impl Media) {
        self.published.fetch_add(1, Ordering::Relaxed);
        let mut pieces = offsets.chunks(PIECE).peekable();
        while let Some(piece) = pieces.next() {
            self.raise(&mut self.lock(), piece.iter().map(|offset| SHOWN | (offset / SMALLEST)));
            if pieces.peek().is_some() {
                media.yield_now().await;
            }
        }
    }

    /// What stands by these numbers is otherwise from now on.
    fn raise(&self, watch: &mut Watch, numbers: impl IntoIterator<Item = u64>) {
        let mut hits = 0u64;
        for number in numbers {
            if let Some(slot) = watch.find(number) {
                let unit = &mut watch.units[slot as usize];
                unit.version = unit.version.wrapping_add(1);
                hits += 1;
            }
        }
        self.invalidated.fetch_add(hits, Ordering::Relaxed);
        if hits > 0 {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether nothing of it has changed since.
    pub(crate) fn holds(&self, deps: &Deps) -> bool {
        let watch = self.lock();
        deps.deps.is_empty()
            || deps.generation == watch.generation && deps.deps.iter().all(|dep| watch.holds(dep))
    }

    /// Whether much still holds, yielding between the pieces: whether nothing had changed when this began.
    pub(crate) async fn still_holds(&self, deps: &Deps, media: &impl Media) -> bool {
        let mut pieces = deps.deps.chunks(PIECE).peekable();
        while let Some(piece) = pieces.next() {
            {
                let watch = self.lock();
                if deps.generation != watch.generation || !piece.iter().all(|dep| watch.holds(dep)) {
                    return false;
                }
            }
            if pieces.peek().is_some() {
                media.yield_now().await;
            }
        }
        true
    }

    /// Those of them that are not of a unit which lies in one of these ranges of the namespace, nor of what
    /// is durable.
    pub(crate) fn outside(&self, deps: &Deps, ranges: &[Range<u64>]) -> Deps {
        let within = |unit: &Unit| {
            if unit.number == FLUSHES {
                return true;
            }
            let from = unit.number.checked_mul(UNIT);
            let to = from.and_then(|from| from.checked_add(UNIT));
            ranges.iter().any(|range| from >= Some(range.start) && to.is_some_and(|to| to <= range.end))
        };
        let mut left = Deps { generation: deps.generation, deps: Vec::new() };
        for piece in deps.deps.chunks(PIECE) {
            let watch = self.lock();
            if deps.generation != watch.generation {
                // None of them holds.
                return deps.clone();
            }
            let unit = |dep: &Dep| watch.units.get(dep.slot as usize);
            left.deps.extend(piece.iter().filter(|dep| !unit(dep).is_some_and(within)));
        }
        left
    }

    /// Watches nothing any more. What was made before is out of date for ever.
    pub(crate) fn reset(&self) {
        let mut watch = self.lock();
        watch.generation += 1;
        watch.table.clear();
        watch.units.clear();
        // Seen late by a writer, a bit is an alarm too many; one set from now on comes after these stores.
        self.filter.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        fence(Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Begins a scan, which watches the ranges that it adds.
    pub(crate) fn scan(&self) -> Scan<'_> {
        let mut watch = self.lock();
        self.scanning.fetch_add(1, Ordering::SeqCst);
        let id = watch.next_scan;
        watch.next_scan += 1;
        watch.scans.push(ScanEntry { id, ranges: Ranges::default(), touched: false });
        Scan { monitor: self, id }
    }

    /// What it has seen.
    pub fn counters(&self) -> MonitorCounters {
        MonitorCounters {
            suspected: self.suspected.load(Ordering::Relaxed),
            invalidated: self.invalidated.load(Ordering::Relaxed),
            published: self.published.load(Ordering::Relaxed),
            scans_touched: self.scans_touched.load(Ordering::Relaxed),
            looked_again: self.looked_again.load(Ordering::Relaxed),
            repeated: self.repeated.load(Ordering::Relaxed),
            watched: self.lock().units.len() as u64,
        }
    }

    /// Switches it off, for a test that must fail without it: the drive then believes what it once read.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A scan in progress.
pub(crate) struct Scan<'a> {
    monitor: &'a Monitor,
    id: u64,
}

impl Scan<'_> {
    /// Adds a range, before it is read.
    pub(crate) fn add(&self, offset: u64, len: u64) {
        let to = offset.saturating_add(len);
        let mut watch = self.monitor.lock();
        let scan = watch.scans.iter_mut().find(|s| s.id == self.id);
        let _given_back = scan.and_then(|scan| scan.ranges.add(offset, to));
        drop(watch);
        // As in `watch`: a writer sees the range before the caller reads it.
        fence(Ordering::SeqCst);
    }

    /// Whether a change touched it so far.
    pub(crate) fn touched(&self) -> bool {
        fence(Ordering::SeqCst);
        let watch = self.monitor.lock();
        watch.scans.iter().any(|s| s.id == self.id && s.touched)
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        let mut watch = self.monitor.lock();
        let at = watch.scans.iter().position(|s| s.id == self.id);
        // Dropped once the lock is free, for which hosts' writes wait.
        let _ended = at.map(|at| watch.scans.swap_remove(at));
        self.monitor.scanning.fetch_sub(1, Ordering::SeqCst);
        drop(watch);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    fn watched(monitor: &Monitor, offset: u64, len: u64) -> Deps {
        let mut deps = Deps::default();
        monitor.watch(offset, len, &mut deps).unwrap();
        deps
    }

    /// Nothing here waits.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn what_a_state_shows_otherwise_is_told_in_pieces() {
        let (monitor, media) = (Monitor::new(1 << 16), crate::MemoryMedia::new(Vec::new()));
        let shown: Vec<u64> = (0..10_000).map(|nr| nr * 4096).collect();
        let mut last = Deps::default();
        monitor.watch_shown(9_999 * 4096, &mut last).unwrap();
        now(monitor.publish(&shown[..9_999], &media));
        assert!(monitor.holds(&last));
        assert_eq!(media.yields().0, 9_999u64.div_ceil(PIECE as u64) - 1);
        now(monitor.publish(&shown, &media));
        assert!(!monitor.holds(&last));
        assert_eq!(monitor.counters().published, 2);
    }

    #[test]
    fn a_change_is_seen_by_sector_and_no_other_thing_is() {
        let monitor = Monitor::new(100);
        let block = watched(&monitor, 10 * 4096 + 1024, 1024);
        let before = monitor.changes();
        for (offset, len) in [
            (0, 10 * 4096 + 1024),
            (10 * 4096 + 2048, 4096),
            (10 * 4096 + 2048, 1 << 40),
            (11 * 4096, 512),
            (0, 0),
            (10 * 4096 + 1024, 0),
        ] {
            monitor.begin(offset, len);
            monitor.end(offset, len, true);
            assert!(monitor.holds(&block), "{len} bytes at {offset}");
            assert_eq!(monitor.changes(), before);
            assert_eq!(monitor.counters().invalidated, 0);
        }
        for (offset, len) in [
            (10 * 4096 + 1024, 512),
            (10 * 4096 + 1536, 512),
            (0, 10 * 4096 + 1025),
            (10 * 4096 + 2047, 10),
            (0, u64::MAX),
        ] {
            let block = watched(&monitor, 10 * 4096 + 1024, 1024);
            assert!(monitor.holds(&block));
            monitor.end(offset, len, true);
            assert!(!monitor.holds(&block), "{len} bytes at {offset}");
        }
    }

    #[test]
    fn a_block_over_two_units_is_watched_in_both() {
        let monitor = Monitor::new(100);
        for offset in [8192 - 512, 8192] {
            let block = watched(&monitor, 8192 - 512, 4096);
            monitor.begin(offset, 512);
            assert!(!monitor.holds(&block));
        }
    }

    #[test]
    fn what_is_noted_again_and_again_is_noted_once_and_much_is_looked_at_in_pieces() {
        let monitor = Monitor::new(1 << 16);
        let (root, inner) = (watched(&monitor, 0, 4096), watched(&monitor, 4096, 4096));
        let mut way = Deps::default();
        for leaf in 2..10_000u64 {
            for part in [&root, &inner, &watched(&monitor, leaf * 4096, 4096)] {
                way.extend(part);
            }
        }
        // The two are noted again where they were not noted lately.
        assert!((10_000..11_000).contains(&way.deps.len()), "{}", way.deps.len());
        let media = crate::MemoryMedia::new(Vec::new());
        let holds = |way: &Deps| now(monitor.still_holds(way, &media));
        assert!(holds(&way) && holds(&Deps::default()));
        assert_eq!(media.yields().0, way.deps.len().div_ceil(PIECE) as u64 - 1);
        monitor.begin(9_999 * 4096, 512);
        assert!(!holds(&way));
    }

    #[test]
    fn what_lies_in_a_range_is_left_out() {
        let monitor = Monitor::new(100);
        let mut all = watched(&monitor, 4096, 3 * 4096);
        monitor.watch_shown(8192, &mut all).unwrap();
        let left = monitor.outside(&all, &[8192..12288, 12288..16383]);
        assert_eq!(left.deps, [all.deps[0], all.deps[2], all.deps[3]]);
        monitor.end(8192, 1, true);
        assert!(monitor.holds(&left) && !monitor.holds(&all));
        monitor.end(12288, 1, true);
        assert!(!monitor.holds(&left));
        monitor.reset();
        assert!(!monitor.holds(&monitor.outside(&all, &[0..1 << 40, 0..1])));
    }

    #[test]
    fn too_many_are_an_overflow_and_a_reset_ends_all() {
        let monitor = Monitor::new(2);
        let first = watched(&monitor, 0, 4096);
        watched(&monitor, 4096, 4096);
        assert_eq!(monitor.watch(8192, 1, &mut Deps::default()), Err(Overflow));
        monitor.reset();
        assert!(!monitor.holds(&first));
        let again = watched(&monitor, 0, 4096);
        assert!(monitor.holds(&again) && !monitor.holds(&first));
        let mut both = first;
        both.extend(&again);
        assert!(!monitor.holds(&both));
    }

    #[test]
    fn a_scan_learns_of_changes_in_its_ranges_only() {
        let monitor = Monitor::new(2);
        let scan = monitor.scan();
        scan.add(4096, 4096);
        scan.add(8192, 4096);
        scan.add(40960, 512);
        for (offset, len) in [(0, 4096), (12288, 40960 - 12288), (41472, 1 << 30)] {
            monitor.begin(offset, len);
            assert!(!scan.touched(), "{len} at {offset}");
        }
        monitor.begin(41471, 1);
        assert!(scan.touched());
        drop(scan);
        assert_eq!(monitor.scanning.load(Ordering::SeqCst), 0);
    }
}
