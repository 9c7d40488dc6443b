//! This machine's side of section IV: the real drive with its driver, on one thread,
//! over memory that takes a modelled drive's time.
//!
//! What comes on top of the model's time is this machine's own software, not the paper's 3.9 us;
//! what one core cannot do is not reached. A virtual machine takes the core away some hundred times
//! a second, which the far percentiles show.

use nearside_clock::TscClock;
use nearside_dma::IoBuffer;
use nearside_instrument::{Needs, Open, Target};
use nearside_loadgen::engine::Engine;
use nearside_loadgen::run::{Pace, Ran, real};
use nearside_loadgen::{Arrivals, Latency, Outcome, Plan, Rw, Workload};
use nearside_media::Medium;
use nearside_random::of_run;
use nearside_store::{Channel, Data, Dram, Modelled, Operation, Store, Submitted, Token};

use super::rig::{mean_us, percentile_us};
use crate::{Failure, Finding, Run};

/// A drive that runs in real time, and what it is asked.
pub struct Real {
    engine: Box<dyn Engine>,
    clock: TscClock,
    workload: Workload,
    /// So far: each has a seed of its own.
    runs: u64,
    /// Nanoseconds that the core was away, of so many.
    away_ns: u64,
    ran_ns: u64,
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// Nanoseconds.
    Time(u64),
    /// Operations.
    Count(u64),
}

/// What a reader of this machine's column has to know.
pub const ITS_OWN: &str = "This machine: the real drive and its driver on one thread, over memory that takes the model's time (2 GiB). Its \
                           host's software is its own, a microsecond or so, and not the model's 3.9 us.";

/// The farthest percentile of the paper's.
pub const FAR: f64 = 99.999;

/// Operations in flight at most.
const DEPTH: u16 = 256;

impl Real {
    /// A drive over `medium`, of `capacity` bytes; section IV's load on its first `span` bytes.
    pub fn new(medium: impl Medium, capacity: u64, span: u64) -> Result<Real, Failure> {
        let workload = Workload { rwmixread: 70, ..Workload::new(Rw::RandRw, 4096, span) };
        let medium: Box<dyn Medium> = Box::new(medium);
        let dram = Dram::new(capacity, 512)?;
        fill(&dram, span)?;
        Real::over(Modelled::new(dram, medium), workload, |engine| engine)
    }

    /// A drive over a store, with a load of its own; `wrap` is what stands between generator and driver.
    pub fn over(
        store: impl Store,
        workload: Workload,
        wrap: impl FnOnce(Box<dyn Engine>) -> Box<dyn Engine>,
    ) -> Result<Real, Failure> {
        let needs = Needs {
            depth: DEPTH,
            bytes: 4096,
            write: true,
            destroy: false,
            completion: None,
            buffered: false,
        };
        let open = Open::drive("", store, needs)?;
        Ok(Real::of(wrap(open.engine), workload))
    }

    /// A target by its word, of which a load of its own reads 4 KiB at a time.
    pub fn open(word: &str, workload: Workload) -> Result<Real, Failure> {
        let needs =
            Needs { depth: 1, bytes: 4096, write: false, destroy: false, completion: None, buffered: false };
        let open = word.parse::<Target>()?.open(needs)?;
        Ok(Real::of(open.engine, workload))
    }

    fn of(engine: Box<dyn Engine>, workload: Workload) -> Real {
        Real { engine, clock: TscClock::new(), workload, runs: 0, away_ns: 0, ran_ns: 0 }
    }

    /// Only reads.
    pub fn reads(mut self) -> Real {
        self.workload = Workload::new(Rw::RandRead, 4096, self.workload.size);
        self
    }

    /// One run; the first part of it is not measured.
    pub fn run(&mut self, arrivals: Arrivals, length: Length) -> Result<Outcome, Failure> {
        let mut plan = Plan::new(self.workload.clone(), arrivals, 0);
        (plan.runtime_ns, plan.count) = match length {
            Length::Time(ns) => (Some(ns), None),
            Length::Count(count) => (None, Some(count)),
        };
        plan.warm_up_ns = 5_000_000;
        plan.seed = of_run(1, self.runs);
        self.runs += 1;
        let Ran { outcome, stalls, .. } = real(&plan, &mut self.engine, &self.clock, Pace::default())?;
        self.away_ns += stalls.total_ns;
        self.ran_ns += outcome.ended.since(outcome.began);
        match outcome.streams.iter().find_map(|stream| stream.first_error) {
            Some((error, offset)) => Err(format!("an operation at {offset} failed: {error}").into()),
            None => Ok(outcome),
        }
    }

    /// So many runs.
    pub fn runs(&mut self, rounds: usize, arrivals: Arrivals, length: Length) -> Result<Measured, Failure> {
        let outcomes = (0..rounds).map(|_| self.run(arrivals, length)).collect::<Result<Vec<_>, _>>()?;
        Ok(Measured {
            throughput: outcomes.iter().map(Outcome::throughput).collect(),
            response: outcomes.iter().map(|outcome| outcome.both().response).collect(),
        })
    }

    /// The part of the time so far in which the core was away: what no drive did.
    pub fn away(&self, run: &mut Run<'_>, name: &str) {
        let percent = 100.0 * self.away_ns as f64 / self.ran_ns.max(1) as f64;
        run.finding(
            Finding::new(format!("{name}: the core was taken away, of the time"), "%").machine(&[percent]),
        );
    }
}

/// What runs of one load measured.
pub struct Measured {
    throughput: Vec<f64>,
    response: Vec<Latency>,
}

impl Measured {
    /// Thousands of operations per second.
    pub fn kiops(&self) -> Vec<f64> {
        self.throughput.iter().map(|per_second| per_second / 1e3).collect()
    }

    /// Mean response times in microseconds.
    pub fn mean_us(&self) -> Vec<f64> {
        self.response.iter().map(mean_us).collect()
    }

    /// A percentile in microseconds: of each run where ten samples lie beyond it,
    /// of all runs together where they do only there, else none.
    pub fn percentile_us(&self, percent: f64) -> Vec<f64> {
        let enough = |latency: &Latency| latency.count() as f64 * (1.0 - percent / 100.0) >= 9.99;
        if self.response.iter().all(enough) {
            return self.response.iter().map(|latency| percentile_us(latency, percent)).collect();
        }
        let mut all = Latency::new();
        self.response.iter().for_each(|latency| all.merge(latency));
        if enough(&all) { vec![percentile_us(&all, percent)] } else { Vec::new() }
    }
}

/// The middle of several.
pub fn median(values: &[f64]) -> f64 {
    Finding::new("", "").machine(values).figure.value
}

/// Writes the first bytes of memory: what was never written is one page of zeros, which is read faster.
pub fn fill(dram: &Dram, bytes: u64) -> Result<(), Failure> {
    const PIECE: u64 = 1 << 20;
    let mut channel = dram.channel(Default::default())?;
    for offset in (0..bytes).step_by(PIECE as usize) {
        let mut buffer = IoBuffer::new(PIECE as usize)?;
        buffer.fill(0x5a);
        let write = Operation::Write { offset, len: PIECE, fua: false };
        match channel.submit(write, Data::Owned(buffer), Token(0), nearside_clock::Nanos(0)) {
            Submitted::Done(done) => done.result?,
            Submitted::Pending => return Err("memory does not wait".into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_rests_on_ten_samples_or_is_none() {
        let run = |count: u64| {
            let mut latency = Latency::new();
            (1..=count).for_each(|nth| latency.record(nth * 1_000));
            latency
        };
        let measured = |runs: &[u64]| Measured {
            throughput: Vec::new(),
            response: runs.iter().map(|count| run(*count)).collect(),
        };
        assert_eq!(measured(&[1_000, 1_000]).percentile_us(99.0).len(), 2);
        assert_eq!(measured(&[1_000, 500, 500]).percentile_us(99.0).len(), 1);
        assert!(measured(&[500, 400]).percentile_us(99.0).is_empty());
    }
}
