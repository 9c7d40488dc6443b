//! What a run is to do: streams, bounds, seed. Plain data, checked where a generator is made of it.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::trace::TraceError;
use crate::workload::{Think, Workload, WorkloadError};

/// One flow of operations; a run may have several (Aerospike's ACT has three).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// For people.
    pub name: String,
    /// What is done where.
    pub workload: Workload,
    /// When.
    pub arrivals: Arrivals,
}

/// A run. Times are nanoseconds. It takes `ramp_ns`, then `warm_up_ns` that are not measured,
/// then the measured window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is done; at least one.
    pub streams: Vec<Stream>,
    /// Of places and arrivals.
    pub seed: u64,
    /// The offered load rises over this time to its rate.
    pub ramp_ns: u64,
    /// Not measured after that.
    pub warm_up_ns: u64,
    /// The measured window, where time bounds it.
    pub runtime_ns: Option<u64>,
    /// Operations measured at most, where their number bounds it.
    pub count: Option<u64>,
    /// Length of the slices of response time over time.
    pub slice_ns: u64,
    /// Slices of service time too, at as much memory again.
    #[serde(default)]
    pub service_slices: bool,
    /// Streams at a constant rate begin so long one after another, so that those of one rate need not meet.
    #[serde(default)]
    pub apart_ns: u64,
    /// A start later than this is counted.
    pub late_ns: u64,
    /// How long after the window's end operations that were due in it are still sent.
    pub drain_ns: u64,
    /// How long after that answers are waited for.
    pub patience_ns: u64,
    /// Ends the run at the first error.
    pub stop_on_error: bool,
}

impl Default for Plan {
    /// No streams, no bound; slices of a second, late after 1 µs, a second to drain, a minute's patience,
    /// errors end it.
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            seed: 0,
            ramp_ns: 0,
            warm_up_ns: 0,
            runtime_ns: None,
            count: None,
            slice_ns: 1_000_000_000,
            service_slices: false,
            apart_ns: 0,
            late_ns: 1_000,
            drain_ns: 1_000_000_000,
            patience_ns: 60_000_000_000,
            stop_on_error: true,
        }
    }
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to do.
    #[error("a run needs a stream")]
    NoStream,
    /// It would never end.
    #[error("a run needs a runtime or a number of operations")]
    NoBound,
    /// Slices of no length.
    #[error("slices must have a length")]
    NoSlice,
    /// A rate that is no rate, above one operation per nanosecond, or below one in 1,000 seconds.
    #[error("{stream}: {rate} operations per second cannot be offered")]
    Rate {
        /// Which stream.
        stream: String,
        /// Per second.
        rate: f64,
    },
    /// More in flight than the engine holds, or nothing.
    #[error("{stream}: a depth of {depth}, where the engine holds {most}")]
    Depth {
        /// Which stream.
        stream: String,
        /// Asked for, by all streams up to this one.
        depth: u64,
        /// The engine's.
        most: usize,
    },
    /// Think time in an open loop, after no operation, or with more spinning than there is of it.
    #[error(
        "{stream}: think time is for a closed loop, after 1 operation or more, and spinning is a part of it"
    )]
    Think {
        /// Which stream.
        stream: String,
    },
    /// Recorded arrivals of nothing.
    #[error("{stream}: recorded arrivals need a trace")]
    NoTrace {
        /// Which stream.
        stream: String,
    },
    /// The trace.
    #[error("{stream}: {source}")]
    Trace {
        /// Which stream.
        stream: String,
        /// What is wrong.
        source: TraceError,
    },
    /// The workload.
    #[error("{stream}: {source}")]
    Workload {
        /// Which stream.
        stream: String,
        /// What is wrong.
        source: WorkloadError,
    },
}

impl Plan {
    /// What can be told of a plan without its engine.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        if self.streams.is_empty() {
            return Err(PlanError::NoStream);
        }
        if self.runtime_ns.is_none() && self.count.is_none() {
            return Err(PlanError::NoBound);
        }
        if self.slice_ns == 0 {
            return Err(PlanError::NoSlice);
        }
        for stream in &self.streams {
            let closed = matches!(stream.arrivals, Arrivals::Closed { .. });
            let wrong = |think: Think| !closed || think.blocks == 0 || think.spin_ns > think.time_ns;
            if stream.workload.think.is_some_and(wrong) {
                return Err(PlanError::Think { stream: stream.name.clone() });
            }
        }
        Ok(())
    }

    /// One stream for a time.
    #[must_use]
    pub fn new(workload: Workload, arrivals: Arrivals, runtime_ns: u64) -> Self {
        let stream = Stream { name: workload.rw.to_string(), workload, arrivals };
        Self { streams: vec![stream], runtime_ns: Some(runtime_ns), ..Self::default() }
    }
}
