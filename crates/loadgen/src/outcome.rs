//! What a run measured, as histograms and counts; [`crate::summary`] makes plain data of it.

use nearside_clock::Nanos;

use crate::Latency;
use crate::arrivals::Arrivals;
use crate::batches::Batches;
use crate::engine::Failure;
use crate::trace::TraceError;

/// Times of the operations of one stream in one direction.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// From when each was due: what a user waits.
    pub response: Latency,
    /// The same by when each was due, from the window's begin: what their percentiles are worth.
    pub batches: Batches,
    /// From when each was submitted: what the device takes.
    pub service: Latency,
    /// Bytes moved.
    pub bytes: u64,
}

impl Tally {
    /// Adds a response time of an operation that was due `at_ns` from the window's begin.
    #[inline]
    pub fn respond(&mut self, at_ns: u64, ns: u64) {
        self.response.record(ns);
        self.batches.record(at_ns, ns);
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Tally) {
        self.response.merge(&other.response);
        self.batches.merge(&other.batches);
        self.service.merge(&other.service);
        self.bytes += other.bytes;
    }
}

/// Ranges of the number of operations in flight, each twice the one before (those of fio's `iodepth_level`).
pub const DEPTH_LEVELS: usize = 7;

/// One stream's part.
///
/// Only operations that were due in the measured window count. All of them are in the response
/// times: an operation that was never sent, or not answered, is there with the time that it had
/// waited when the run gave up, a lower bound.
#[derive(Clone, Debug)]
pub struct StreamOutcome {
    /// The stream's name.
    pub name: String,
    /// How its operations arrived.
    pub arrivals: Arrivals,
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// Response times by when the operations ended, in slices of the plan's length from the window's begin.
    pub slices: Vec<Latency>,
    /// Service times in the same slices; none where the plan does not ask for them.
    pub service_slices: Vec<Latency>,
    /// Operations that were due in the window.
    pub offered: u64,
    /// Of those that were sent, how many had so many of the stream in flight then, themselves included:
    /// 1, 2 to 3, 4 to 7, ... 64 and more.
    pub depths: [u64; DEPTH_LEVELS],
    /// Operations that ended within it, whenever they were due.
    pub ended_within: u64,
    /// Of those due, started later than the plan's `late_ns`, though the engine had room:
    /// the generator was held up.
    pub late: u64,
    /// Started late because the engine was full: the device is behind.
    pub queued: u64,
    /// How late the late and the queued were.
    pub lateness: Latency,
    /// How late all but the queued were, together, in nanoseconds: what the generator itself added.
    pub held_ns: u64,
    /// Never sent.
    pub unsent: u64,
    /// Sent, and without an answer.
    pub unanswered: u64,
    /// Ended in an error; these are in no histogram.
    pub errors: u64,
    /// The first error, and the first byte of its operation.
    pub first_error: Option<(Failure, u64)>,
    /// What is wrong with the trace that it follows: what stands after that was not done.
    pub trace_error: Option<TraceError>,
}

impl StreamOutcome {
    pub(crate) fn new(name: &str, arrivals: Arrivals, runtime_ns: Option<u64>) -> Self {
        let batches = || runtime_ns.map_or_else(Batches::default, Batches::over);
        let tally = || Tally { batches: batches(), ..Tally::default() };
        Self {
            name: name.to_owned(),
            arrivals,
            reads: tally(),
            writes: tally(),
            slices: Vec::new(),
            service_slices: Vec::new(),
            offered: 0,
            depths: [0; DEPTH_LEVELS],
            ended_within: 0,
            late: 0,
            queued: 0,
            lateness: Latency::new(),
            held_ns: 0,
            unsent: 0,
            unanswered: 0,
            errors: 0,
            first_error: None,
            trace_error: None,
        }
    }

    /// Reads and writes together.
    #[must_use]
    pub fn both(&self) -> Tally {
        let mut both = self.reads.clone();
        both.merge(&self.writes);
        both
    }
}

/// A whole run's.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In the order of the plan.
    pub streams: Vec<StreamOutcome>,
    /// When the run began.
    pub began: Nanos,
    /// The measured window's begin.
    pub from: Nanos,
    /// The measured window's end.
    pub until: Nanos,
    /// Its operations were due before this: the window's end,
    /// or earlier where their number bounded the run and they were sent late.
    pub due_until: Nanos,
    /// When the last operation had ended.
    pub ended: Nanos,
    /// A slice's length in nanoseconds.
    pub slice_ns: u64,
}

impl Outcome {
    /// All streams together.
    #[must_use]
    pub fn both(&self) -> Tally {
        let mut all = Tally::default();
        self.streams.iter().for_each(|stream| all.merge(&stream.both()));
        all
    }

    /// The window's length in nanoseconds; at least 1.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.until.since(self.from).max(1)
    }

    /// Operations per second that were due.
    #[must_use]
    pub fn offered(&self) -> f64 {
        let due_ns = self.due_until.since(self.from).max(1);
        self.streams.iter().map(|stream| stream.offered).sum::<u64>() as f64 * 1e9 / due_ns as f64
    }

    /// Operations per second that ended in the window.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let ended = self.streams.iter().map(|stream| stream.ended_within).sum::<u64>();
        ended as f64 * 1e9 / self.window_ns() as f64
    }

    /// Operations that ended in an error.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.streams.iter().map(|stream| stream.errors).sum()
    }
}
