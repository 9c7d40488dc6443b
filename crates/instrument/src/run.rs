//! One run on a target, in real time: a plan in, a point out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::TscClock;
use nearside_loadgen::cost::{self, GeneratorCost};
use nearside_loadgen::record::Environment;
use nearside_loadgen::run::{Pace, SimError, watched};
use nearside_loadgen::{Arrivals, Generator, Outcome, Plan, PlanError, Rw, Summary, Workload};

use crate::curve::Point;
use crate::target::Open;

/// Why a run cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Simulated time.
    #[error(transparent)]
    Simulated(#[from] SimError),
}

/// Sees a run about ten times a second, where it has a real second.
pub type Watch<'a> = &'a mut dyn FnMut(&Generator);

/// Runs plans on one target.
pub trait Runner {
    /// Operations that the target holds at most.
    fn depth(&self) -> usize;

    /// Runs one to its end.
    ///
    /// # Errors
    /// What is wrong with the plan.
    fn run(&mut self, plan: &Plan, watch: Watch<'_>) -> Result<(Point, Outcome), RunError>;
}

/// Runs in real time.
pub struct Real {
    target: String,
    open: Open,
    clock: TscClock,
    pace: Pace,
    cost: GeneratorCost,
    environment: Environment,
    stop: Arc<AtomicBool>,
}

impl Real {
    /// On an open target of that name. Measures the generator's own cost first. `stop` ends the run that is
    /// under way, whose measurements so far count.
    #[must_use]
    pub fn new(
        target: String,
        open: Open,
        pace: Pace,
        environment: Environment,
        stop: Arc<AtomicBool>,
    ) -> Real {
        let clock = TscClock::new();
        let cost = cost::measure(&clock);
        Real { target, open, clock, pace, cost, environment, stop }
    }

    /// The target.
    #[must_use]
    pub fn open(&self) -> &Open {
        &self.open
    }

    /// Writes the range of a workload once from begin to end,
    /// so that no read finds a page that was never written.
    ///
    /// # Errors
    /// What is wrong with the plan, or the first error of the target.
    pub fn fill(&mut self, workload: &Workload, watch: Watch<'_>) -> Result<(), String> {
        const PIECE: u64 = 128 << 10;
        let (offset, size) = (workload.offset, workload.size - workload.size % PIECE);
        if size == 0 {
            return Ok(());
        }
        let whole = Workload { offset, ..Workload::new(Rw::Write, PIECE as u32, size) };
        let depth = self.depth().min(8) as u32;
        let mut plan = Plan::new(whole, Arrivals::Closed { depth }, 0);
        (plan.runtime_ns, plan.count) = (None, Some(size / PIECE));
        let (point, _) = self.run(&plan, watch).map_err(|e| e.to_string())?;
        point.first_error().map_or(Ok(()), Err)
    }
}

impl Runner for Real {
    fn depth(&self) -> usize {
        self.open.engine.depth()
    }

    fn run(&mut self, plan: &Plan, watch: Watch<'_>) -> Result<(Point, Outcome), RunError> {
        let stop = self.stop.clone();
        let ran = watched(plan, &mut self.open.engine, &self.clock, self.pace, |generator| {
            watch(generator);
            !stop.load(Ordering::Relaxed)
        })?;
        let name = &self.open.name;
        let summary = Summary::real(&self.target, name, plan, &ran, self.cost, &self.environment);
        let stopped = self.stop.load(Ordering::Relaxed);
        let point = Point { stopped, ..Point::new(summary, ran.outcome.both().response) };
        Ok((point, ran.outcome))
    }
}
