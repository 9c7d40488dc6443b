//! What near-data work takes: how long its slices were, and what it holds at this moment, for each place
//! where tasks run; and what the view of a live host's volume costs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nearside_fsr::MonitorCounters;

/// The longest that a slice may take: between two looks at a host's I/O there is at most one.
pub const SLICE_NS: u64 = 20_000;

/// Slices of near-data work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// How many.
    pub count: u64,
    /// Of them longer than [`SLICE_NS`].
    pub over: u64,
    /// Nanoseconds of the longest.
    pub worst_ns: u64,
    /// Nanoseconds of all.
    pub total_ns: u64,
}

impl Slices {
    /// Both together.
    pub fn merge(&mut self, other: Slices) {
        self.count += other.count;
        self.over += other.over;
        self.worst_ns = self.worst_ns.max(other.worst_ns);
        self.total_ns += other.total_ns;
    }
}

/// What near-data work holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Commands that run.
    pub tasks: usize,
    /// Their reads that the store has not ended, or not taken yet.
    pub reads: usize,
    /// Buffers of reads that have ended.
    pub buffers: usize,
}

impl Held {
    /// Both together.
    pub fn merge(&mut self, other: Held) {
        self.tasks += other.tasks;
        self.reads += other.reads;
        self.buffers += other.buffers;
    }
}

/// How long the monitor's looks at hosts' writes took. Each write has two: before its bytes change and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Looks that were timed: one of [`LOOKS_PER_SAMPLE`].
    pub timed: u64,
    /// Nanoseconds of them all, with one reading of the clock in each.
    pub total_ns: u64,
    /// Nanoseconds of the longest of them.
    pub worst_ns: u64,
}

impl Looks {
    /// Both together.
    pub fn merge(&mut self, other: Looks) {
        self.timed += other.timed;
        self.total_ns += other.total_ns;
        self.worst_ns = self.worst_ns.max(other.worst_ns);
    }

    /// Nanoseconds of one in the mean; `None` where none was timed.
    pub fn mean_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.timed)
    }
}

/// Of how many looks of a thread one is timed: odd, so that looks before and after a change take turns.
pub const LOOKS_PER_SAMPLE: u32 = 61;

/// What keeping a live host's view costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewCost {
    /// What the monitor has seen.
    pub seen: MonitorCounters,
    /// Bytes of memory, about, of what logs have committed and home locations have not.
    pub overlay_bytes: u64,
    /// Looks at writes of what nobody watches.
    pub passed: Looks,
    /// Looks at writes that the monitor's exact table was asked about: a journal's, a watched block's.
    pub watched: Looks,
}

impl ViewCost {
    /// Both together.
    pub fn merge(&mut self, other: ViewCost) {
        self.seen.merge(other.seen);
        self.overlay_bytes += other.overlay_bytes;
        self.passed.merge(other.passed);
        self.watched.merge(other.watched);
    }
}

/// Written by whoever times a look, seldom.
#[derive(Debug, Default)]
pub(crate) struct LookMeter {
    timed: AtomicU64,
    total_ns: AtomicU64,
    worst_ns: AtomicU64,
}

impl LookMeter {
    pub(crate) fn add(&self, ns: u64) {
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.worst_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn looks(&self) -> Looks {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Looks { timed: read(&self.timed), total_ns: read(&self.total_ns), worst_ns: read(&self.worst_ns) }
    }
}

/// Commands of one operation: what runs, and what it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Those that run.
    pub running: u64,
    /// Those that have ended, some by being cancelled.
    pub ended: u64,
    /// Nanoseconds from their beginning to their end, of all that have ended.
    pub total_ns: u64,
}

impl Use {
    /// Both together.
    pub fn merge(&mut self, other: Use) {
        self.running += other.running;
        self.ended += other.ended;
        self.total_ns += other.total_ns;
    }
}

/// Written by whoever begins and ends commands of one operation.
#[derive(Debug, Default)]
pub(crate) struct UseMeter {
    running: AtomicU64,
    ended: AtomicU64,
    total_ns: AtomicU64,
}

impl UseMeter {
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, ns: u64) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.answered(ns);
    }

    /// One has begun and ended, which took so long.
    pub(crate) fn answered(&self, ns: u64) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Use {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Use { running: read(&self.running), ended: read(&self.ended), total_ns: read(&self.total_ns) }
    }
}

/// Written by whoever runs tasks, read by anybody.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Meters {
    count: AtomicU64,
    over: AtomicU64,
    worst_ns: AtomicU64,
    total_ns: AtomicU64,
    pub(crate) tasks: AtomicUsize,
    pub(crate) reads: AtomicUsize,
    pub(crate) buffers: AtomicUsize,
}

impl Meters {
    /// A slice of that length has ended.
    pub(crate) fn slice(&self, ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.worst_ns.fetch_max(ns, Ordering::Relaxed);
        if ns > SLICE_NS {
            self.over.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn slices(&self) -> Slices {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Slices {
            count: read(&self.count),
            over: read(&self.over),
            worst_ns: read(&self.worst_ns),
            total_ns: read(&self.total_ns),
        }
    }

    pub(crate) fn held(&self) -> Held {
        let read = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed);
        Held { tasks: read(&self.tasks), reads: read(&self.reads), buffers: read(&self.buffers) }
    }
}

pub(crate) fn up(gauge: &AtomicUsize) {
    gauge.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn down(gauge: &AtomicUsize, by: usize) {
    gauge.fetch_sub(by, Ordering::Relaxed);
}
