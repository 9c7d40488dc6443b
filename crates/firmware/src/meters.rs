//! What near-data work takes: how long its slices were, and what it holds at this moment. One for each place
//! where tasks run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
