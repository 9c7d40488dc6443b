//! Where a near-data command's time goes, part by part (DAC'23, tables I and II).
//!
//! Off by default. Without a trace, one `Option` is asked for each metadata block that is looked up, each
//! name or inode that the crawler's caches do not know, and each piece of data; a warm path meets none of
//! them.
//!
//! Time is exclusive: while a block is read for a name, the time is the read's. Parts add up to the command's
//! time in the firmware. One command at a time: those of two at once would mix.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// A part of a near-data command's work in the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TracePart {
    /// Locating, apart from what is below: the walk along the path, opening the volume, permissions. One unit
    /// per path.
    Locate,
    /// Directory blocks: from the cache, the drive's buffer or the medium. One unit per block.
    ReadDirectory,
    /// Blocks of inodes, and of what maps a file's bytes.
    ReadInode,
    /// Blocks of the table that says where inodes are: F2FS's node address table, ext4's group descriptors.
    ReadTable,
    /// Finding a name among a directory's entries: hash and comparison. One unit per name.
    FindEntry,
    /// Checking and decoding an inode. One unit each.
    ParseInode,
    /// An operation on a file's bytes, apart from what is below: getting ready, finding out where they lie.
    /// One unit per file.
    Operate,
    /// Waiting for a file's bytes.
    Supply,
    /// Working on them. One unit per byte.
    Compute,
}

impl TracePart {
    /// All of them.
    pub const ALL: [TracePart; 9] = [
        TracePart::Locate,
        TracePart::ReadDirectory,
        TracePart::ReadInode,
        TracePart::ReadTable,
        TracePart::FindEntry,
        TracePart::ParseInode,
        TracePart::Operate,
        TracePart::Supply,
        TracePart::Compute,
    ];

    fn index(self) -> usize {
        TracePart::ALL.iter().position(|part| *part == self).unwrap_or(0)
    }
}

/// What a part took, and how much of it there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Nanoseconds.
    pub ns: u64,
    /// Units, as [`TracePart`] has them.
    pub units: u64,
}

/// The parts of the commands since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown([Spent; TracePart::ALL.len()]);

impl Breakdown {
    /// One part.
    pub fn of(&self, part: TracePart) -> Spent {
        self.0.get(part.index()).copied().unwrap_or_default()
    }

    /// Several parts, in nanoseconds.
    pub fn ns(&self, parts: &[TracePart]) -> u64 {
        parts.iter().map(|part| self.of(*part).ns).sum()
    }
}

#[derive(Default)]
struct TraceState {
    spent: Breakdown,
    /// The parts that have begun, the innermost last.
    open: Vec<TracePart>,
    /// Up to when time is accounted for.
    since_ns: u64,
}

/// Takes the times of parts.
pub struct Trace {
    now_ns: Box<dyn Fn() -> u64 + Send + Sync>,
    work: Box<dyn Fn(TracePart, u64) + Send + Sync>,
    state: Mutex<TraceState>,
}

impl Trace {
    /// With the drive's clock in nanoseconds. `work` is told of each piece of work before its end is taken,
    /// with its units: on a simulated clock it lets the time pass that the modelled processor takes;
    /// otherwise it does nothing.
    pub fn new(
        now_ns: impl Fn() -> u64 + Send + Sync + 'static,
        work: impl Fn(TracePart, u64) + Send + Sync + 'static,
    ) -> Trace {
        Trace { now_ns: Box::new(now_ns), work: Box::new(work), state: Mutex::default() }
    }

    /// What was spent since the last call.
    pub fn take(&self) -> Breakdown {
        std::mem::take(&mut self.state().spent)
    }

    /// A part begins; it ends when the span is dropped.
    pub(crate) fn begin(&self, part: TracePart, units: u64) -> Span<'_> {
        let now = (self.now_ns)();
        let mut state = self.state();
        state.book(now, 0);
        state.open.push(part);
        Span { trace: self, part, units }
    }

    fn state(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl TraceState {
    /// The time up to now is the innermost part's, with so many units of it.
    fn book(&mut self, now_ns: u64, units: u64) {
        let ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        if let Some(part) = self.open.last()
            && let Some(spent) = self.spent.0.get_mut(part.index())
        {
            spent.ns += ns;
            spent.units += units;
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

/// A part that has begun.
pub(crate) struct Span<'t> {
    trace: &'t Trace,
    part: TracePart,
    units: u64,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        (self.trace.work)(self.part, self.units);
        let now = (self.trace.now_ns)();
        let mut state = self.trace.state();
        state.book(now, self.units);
        // The innermost of its kind: a command that was given up may leave others behind.
        if let Some(at) = state.open.iter().rposition(|part| *part == self.part) {
            state.open.truncate(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_part_within_another_has_its_own_time() {
        let clock = Arc::new(AtomicU64::new(5));
        let (now, work) = (clock.clone(), clock.clone());
        let trace = Trace::new(
            move || now.load(Ordering::Relaxed),
            move |part, units| {
                if part == TracePart::ReadDirectory {
                    work.fetch_add(100 * units, Ordering::Relaxed);
                }
            },
        );
        {
            let _find = trace.begin(TracePart::FindEntry, 1);
            clock.fetch_add(7, Ordering::Relaxed);
            {
                let _read = trace.begin(TracePart::ReadDirectory, 2);
                clock.fetch_add(30, Ordering::Relaxed);
            }
            clock.fetch_add(4, Ordering::Relaxed);
        }
        clock.fetch_add(1000, Ordering::Relaxed);
        let spent = trace.take();
        assert_eq!(spent.of(TracePart::FindEntry), Spent { ns: 11, units: 1 });
        assert_eq!(spent.of(TracePart::ReadDirectory), Spent { ns: 230, units: 2 });
        assert_eq!(spent.ns(&TracePart::ALL), 241);
        assert_eq!(trace.take(), Breakdown::default());
    }
}
