//! Runs in simulated time: a medium behind a whole drive with its driver, or alone.
//! The same seed, the same bytes.
//!
//! `stop` ends a curve between two runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::SimClock;
use nearside_loadgen::engine::Engine;
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Arrivals, Outcome, Plan, Rw, Summary, Workload};
use nearside_media::Medium;
use nearside_random::of_run;
use nearside_sim::{Bare, Drive, DriveConfig, DriveError, Software};
use nearside_store::{Modelled, Null};

use crate::curve::Point;
use crate::run::{RunError, Runner, Watch};

/// A target on simulated time: a whole drive over a model of its medium, and the load beside it.
pub struct Simulated {
    name: String,
    engine: Box<dyn Engine>,
    how: String,
    clock: SimClock,
    stop: Arc<AtomicBool>,
}

/// Operations in flight at most.
const DEPTH: u16 = 1024;

impl Simulated {
    /// A drive of `capacity` bytes over `medium`, without payload, with its driver; operations of up to
    /// `bytes`. The application has each completion `software_ns` after the driver.
    ///
    /// # Errors
    /// Why there can be no such drive.
    pub fn drive(
        name: &str,
        medium: impl Medium,
        capacity: u64,
        bytes: u32,
        software_ns: u64,
        stop: Arc<AtomicBool>,
    ) -> Result<Simulated, DriveError> {
        let medium: Box<dyn Medium> = Box::new(medium);
        let clock = SimClock::new();
        let config = DriveConfig { depth: DEPTH, largest: bytes as usize, ..DriveConfig::default() };
        let store = Modelled::new(Null::new(capacity, config.controller.lba_size)?, medium);
        let drive = Drive::new(store, &config, clock.clone())?;
        let (engine, how): (Box<dyn Engine>, _) = match software_ns {
            0 => (Box::new(drive), "simulated drive and driver".to_owned()),
            ns => {
                let how = format!("simulated drive and driver, {ns} ns of the host's software");
                (Box::new(Software::new(drive, ns)), how)
            }
        };
        Ok(Simulated { name: name.to_owned(), engine, how, clock, stop })
    }

    /// Runs of [`Simulated::prepare`]: those after it take seeds from this number on.
    pub const PREPARING: u64 = 2;

    /// Prepares the drive as ACT does: all of it written in large blocks;
    /// and on, until a flash drive collects as it will.
    ///
    /// # Errors
    /// Those of [`Runner::run`].
    pub fn prepare(&mut self, capacity: u64, bytes: u32, seed: u64) -> Result<(), RunError> {
        for (nth, rw, times) in [(0, Rw::Write, 1.0), (1, Rw::RandWrite, 1.5)] {
            let mut plan = Plan::new(Workload::new(rw, bytes, capacity), Arrivals::Closed { depth: 8 }, 0);
            let blocks = (capacity / u64::from(bytes)) as f64;
            (plan.runtime_ns, plan.count, plan.seed) =
                (None, Some((blocks * times) as u64), of_run(seed, nth));
            self.run(&plan, &mut |_| ())?;
        }
        Ok(())
    }

    /// `medium` alone.
    #[must_use]
    pub fn bare(name: &str, medium: impl Medium, stop: Arc<AtomicBool>) -> Simulated {
        let engine = Box::new(Bare::new(medium, DEPTH.into()));
        Simulated {
            name: name.to_owned(),
            engine,
            how: "simulated medium".to_owned(),
            clock: SimClock::new(),
            stop,
        }
    }
}

impl Runner for Simulated {
    fn depth(&self) -> usize {
        self.engine.depth()
    }

    fn run(&mut self, plan: &Plan, _watch: Watch<'_>) -> Result<(Point, Outcome), RunError> {
        let outcome = simulated(plan, &mut self.engine, &self.clock)?;
        let summary = Summary::simulated(&self.name, &self.how, plan, &outcome);
        let stopped = self.stop.load(Ordering::Relaxed);
        let point = Point { stopped, ..Point::new(summary, outcome.both().response) };
        Ok((point, outcome))
    }
}
