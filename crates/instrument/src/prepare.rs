//! What goes before measuring, as the SNIA Performance Test Specification has it: the target is written twice
//! over, then works in rounds until it is steady. Nothing of it is measured.

use nearside_loadgen::steady::{MOST_ROUNDS, Verdict, until_steady};
use nearside_loadgen::{Arrivals, Plan, Workload, steady};
use nearside_random::of_run;
use serde::Serialize;

use crate::measure::plan;
use crate::run::{RunError, Runner, Watch};
use crate::words::show_rate;

/// How a target came to its steady state, or did not.
#[derive(Clone, Debug, Serialize)]
pub struct Steady {
    /// Operations per second of each round.
    pub rounds: Vec<f64>,
    /// Of the last five; `None` where there were not so many.
    pub verdict: Option<Verdict>,
}

impl Steady {
    /// In a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let rounds = self.rounds.len();
        let Some(Verdict { steady, average, range, slope }) = self.verdict else {
            return format!("ended after {rounds} rounds, before a verdict on its steady state");
        };
        let how = if steady { "steady" } else { "not steady" };
        format!(
            "{how} after {rounds} rounds: {} I/Os per second over the last five, which differ by {:.1} % (20 at most) and rise by {:.1} % (10 at most)",
            show_rate(average),
            range * 100.0,
            slope * 100.0
        )
    }
}

/// Operations in flight while the target is written over.
const WRITING: u32 = 8;

/// Writes the workload's range twice over.
///
/// # Errors
/// What is wrong with the plan, or the target's first error.
pub fn precondition(runner: &mut dyn Runner, workload: &Workload, watch: Watch<'_>) -> Result<(), String> {
    let depth = (runner.depth() as u32).min(WRITING);
    let plan = steady::precondition(workload.offset, workload.size, depth);
    let (point, _) = runner.run(&plan, watch).map_err(|e| e.to_string())?;
    point.first_error().map_or(Ok(()), Err)
}

/// Rounds of the workload in a closed loop at a queue depth, each so long, until they are steady,
/// fail or are stopped.
///
/// # Errors
/// What is wrong with the plan.
pub fn settle(
    runner: &mut dyn Runner,
    workload: &Workload,
    depth: u32,
    round_ns: u64,
    seed: u64,
    begins: &mut dyn FnMut(usize, usize),
    watch: Watch<'_>,
) -> Result<Steady, RunError> {
    enum End {
        Failed(RunError),
        Early,
    }
    let depth = (runner.depth() as u32).min(depth);
    let mut seen = Vec::new();
    let ended = until_steady(|round| {
        begins(round, MOST_ROUNDS);
        // The runs that are measured take their seeds from zero up.
        let seed = of_run(!seed, round as u64);
        let round = Plan { warm_up_ns: 0, ..plan(workload, Arrivals::Closed { depth }, round_ns, seed) };
        let (point, _) = runner.run(&round, watch).map_err(End::Failed)?;
        if point.stopped || point.summary.errors > 0 {
            return Err(End::Early);
        }
        seen.push(point.summary.throughput);
        Ok(point.summary.throughput)
    });
    match ended {
        Ok((rounds, verdict)) => Ok(Steady { rounds, verdict }),
        Err(End::Early) => Ok(Steady { rounds: seen, verdict: None }),
        Err(End::Failed(error)) => Err(error),
    }
}
