//! What PIEEE'17's studies share: its drives as models behind its host, and runs on them in simulated time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_ftl::{Config, Flash};
use nearside_instrument::{ROUNDS, Runner, Simulated, medium};
use nearside_loadgen::{Arrivals, Latency, Outcome, Plan, Rw, Workload};
use nearside_media::Medium;
use nearside_media::nand::NandDrive;
use nearside_random::of_run;

use super::real::Real;
use crate::{Failure, Run};

/// A drive of the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// Intel Optane SSD DC P4800X.
    Optane,
    /// Intel SSD DC P3700, NAND.
    Nand,
}

impl Drive {
    /// Both.
    pub const BOTH: [Drive; 2] = [Drive::Optane, Drive::Nand];

    /// For names of findings.
    pub fn name(self) -> &'static str {
        match self {
            Drive::Optane => "Optane",
            Drive::Nand => "NAND",
        }
    }

    /// Its model's.
    pub fn word(self) -> &'static str {
        match self {
            Drive::Optane => "optane-p4800x",
            Drive::Nand => "nand-p3700",
        }
    }
}

/// What the host's software adds to each operation, and nobody waits for:
/// the paper's "less than 4 us" (III-B).
pub const SOFTWARE_NS: u64 = 3_900;

/// A model of a drive behind the paper's host; the paper's mixed load.
pub struct Bed {
    runner: Simulated,
    capacity: u64,
    /// Bytes of an operation.
    bytes: u32,
    /// So far: each has a seed of its own.
    runs: u64,
}

impl Bed {
    /// The drive near its steady state.
    pub fn new(run: &Run<'_>, drive: Drive) -> Result<Bed, Failure> {
        run.say(&format!("{} ...", drive.word()));
        Bed::named(drive.word(), run.sized(2 << 30, 16 << 30))
    }

    /// The same of a model by its name, and of so many bytes.
    pub fn named(word: &str, capacity: u64) -> Result<Bed, Failure> {
        Bed::over(word, medium(word, capacity, false, 1)?, capacity)
    }

    /// A NAND drive of one's own numbers near its steady state.
    pub fn of(drive: NandDrive, capacity: u64) -> Result<Bed, Failure> {
        Bed::over("NAND", flash(drive, capacity, false)?, capacity)
    }

    /// The drive of that model behind a host whose software takes so long, for operations of so many bytes.
    pub fn behind(word: &str, capacity: u64, bytes: u32, software_ns: u64) -> Result<Bed, Failure> {
        Bed::whole(word, medium(word, capacity, false, 1)?, capacity, bytes, software_ns)
    }

    fn over(name: &str, medium: impl Medium, capacity: u64) -> Result<Bed, Failure> {
        Bed::whole(name, medium, capacity, 4096, SOFTWARE_NS)
    }

    fn whole(name: &str, medium: impl Medium, capacity: u64, bytes: u32, ns: u64) -> Result<Bed, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let runner = Simulated::drive(name, medium, capacity, bytes, ns, stop)?;
        Ok(Bed { runner, capacity, bytes, runs: 0 })
    }

    /// Section IV's load: 4 KiB at random, 70 % reads; so many operations.
    pub fn mixed(&mut self, arrivals: Arrivals, count: u64) -> Result<Outcome, Failure> {
        self.load(Rw::RandRw, 70, arrivals, count)
    }

    /// 4 KiB each, so many percent reads where both are mixed.
    pub fn load(&mut self, rw: Rw, reads: u8, arrivals: Arrivals, count: u64) -> Result<Outcome, Failure> {
        let workload = Workload { rwmixread: reads, ..Workload::new(rw, self.bytes, self.capacity) };
        let mut plan = Plan::new(workload, arrivals, 0);
        (plan.runtime_ns, plan.count) = (None, Some(count));
        plan.warm_up_ns = 20_000_000;
        plan.seed = of_run(1, self.runs);
        self.runs += 1;
        Ok(self.runner.run(&plan, &mut |_| ())?.1)
    }
}

/// A NAND drive's flash with its translation layer: never written, or near its steady state.
pub fn flash(drive: NandDrive, capacity: u64, fresh: bool) -> Result<impl Medium, Failure> {
    let mut flash = Flash::<()>::new(drive.sized(capacity), Config::default()).map_err(|e| e.to_string())?;
    if !fresh {
        flash.precondition(ROUNDS, 1);
    }
    Ok(flash)
}

/// A drive's model in real time on this machine;
/// the load stays within a part of it where there are seconds only.
pub fn real(run: &Run<'_>, drive: Drive) -> Result<Real, Failure> {
    run.say(&format!("{} in real time ...", drive.word()));
    const CAPACITY: u64 = 2 << 30;
    Real::new(medium(drive.word(), CAPACITY, false, 1)?, CAPACITY, run.sized(CAPACITY / 16, CAPACITY))
}

/// A percentile in microseconds.
pub fn percentile_us(latency: &Latency, percent: f64) -> f64 {
    latency.percentile(percent).ns as f64 / 1e3
}

/// The mean in microseconds.
pub fn mean_us(latency: &Latency) -> f64 {
    latency.mean_ns() / 1e3
}
