//! A run as plain data: one JSON object, with all that is needed to draw it and to judge it.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::batches::Batches;
use crate::cost::GeneratorCost;
use crate::engine::Failure;
use crate::interval;
use crate::outcome::{Outcome, StreamOutcome, Tally};
use crate::plan::Plan;
use crate::record::Environment;
use crate::run::Ran;
use crate::stall::StallLog;
use crate::{Latency, hist};

/// A percentile with what it rests on. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// That many per cent of the samples took `ns` or less.
    pub percent: f64,
    /// The percentile.
    pub ns: u64,
    /// Samples beyond it.
    pub beyond: u64,
    /// Fewer than ten lie beyond: an anecdote.
    pub few: bool,
    /// The interval that covers the true percentile at [`interval::LEVEL`], from here
    #[serde(default)]
    pub low_ns: Option<u64>,
    /// to here; both `None` where the run is too short to say ([`Batches::independent`]).
    #[serde(default)]
    pub high_ns: Option<u64>,
    /// Independent samples that would say as much: what the interval rests on.
    #[serde(default)]
    pub independent: Option<u64>,
}

/// A histogram's figures. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Least.
    pub min_ns: u64,
    /// Greatest.
    pub max_ns: u64,
    /// p50 to p99.999.
    pub percentiles: Vec<Point>,
}

impl Times {
    /// Of a histogram, without intervals: what it holds says nothing of how samples depend on each other.
    #[must_use]
    pub fn of(latency: &Latency) -> Self {
        Self::with(latency, None)
    }

    /// Of a histogram and the same times in batches.
    fn with(latency: &Latency, batches: Option<&Batches>) -> Self {
        let percents = hist::PERCENTILES.into_iter().filter(|percent| *percent < 100.0);
        Self {
            count: latency.count(),
            mean_ns: latency.mean_ns(),
            min_ns: latency.min_ns(),
            max_ns: latency.max_ns(),
            percentiles: percents.map(|percent| Point::of(latency, batches, percent)).collect(),
        }
    }

    /// The percentile of that name, where it is one of those kept.
    #[must_use]
    pub fn at(&self, percent: f64) -> Option<&Point> {
        self.percentiles.iter().find(|point| point.percent == percent)
    }
}

impl Point {
    fn of(latency: &Latency, batches: Option<&Batches>, percent: f64) -> Self {
        let hist::Percentile { ns, beyond, .. } = latency.percentile(percent);
        let independent = batches.and_then(|batches| batches.independent(percent, ns));
        let interval = independent.and_then(|n| interval::of(latency, percent, n));
        Self {
            percent,
            ns,
            beyond,
            few: beyond < 10,
            low_ns: interval.map(|(low, _)| low),
            high_ns: interval.map(|(_, high)| high),
            independent: interval.and(independent),
        }
    }
}

/// Reads or writes, or both. Response times run from when operations were due,
/// service times from when they were submitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Response times.
    pub response: Times,
    /// Service times.
    pub service: Times,
    /// Bytes moved.
    pub bytes: u64,
}

impl Measured {
    /// Of a tally.
    #[must_use]
    pub fn of(tally: &Tally) -> Self {
        Self {
            response: Times::with(&tally.response, Some(&tally.batches)),
            service: Times::of(&tally.service),
            bytes: tally.bytes,
        }
    }
}

/// Response times of the operations that ended in a slice of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// From the window's begin, in nanoseconds.
    pub at_ns: u64,
    /// Operations.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Greatest.
    pub max_ns: u64,
}

/// One stream. The counts are those of [`StreamOutcome`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// How its operations arrived.
    #[serde(flatten)]
    pub arrivals: Arrivals,
    /// Due in the window.
    pub offered: u64,
    /// Ended within it.
    pub ended_within: u64,
    /// Started late by the generator.
    pub late: u64,
    /// Started late because the engine was full.
    pub queued: u64,
    /// How late those were.
    pub lateness: Times,
    /// Never sent.
    pub unsent: u64,
    /// Without an answer.
    pub unanswered: u64,
    /// Ended in an error.
    pub errors: u64,
    /// The first error in words.
    pub first_error: Option<String>,
    /// Reads; absent where there were none.
    pub reads: Option<Measured>,
    /// Writes; absent where there were none.
    pub writes: Option<Measured>,
    /// Response times over time.
    pub slices: Vec<Slice>,
}

impl StreamSummary {
    fn of(stream: &StreamOutcome, slice_ns: u64) -> Self {
        let some = |tally: &Tally| (tally.response.count() > 0).then(|| Measured::of(tally));
        let error = |(failure, offset): (Failure, u64)| format!("at byte {offset}: {failure}");
        let slice = |(index, latency): (usize, &Latency)| Slice {
            at_ns: index as u64 * slice_ns,
            count: latency.count(),
            p50_ns: latency.percentile(50.0).ns,
            p99_ns: latency.percentile(99.0).ns,
            max_ns: latency.max_ns(),
        };
        Self {
            name: stream.name.clone(),
            arrivals: stream.arrivals,
            offered: stream.offered,
            ended_within: stream.ended_within,
            late: stream.late,
            queued: stream.queued,
            lateness: Times::of(&stream.lateness),
            unsent: stream.unsent,
            unanswered: stream.unanswered,
            errors: stream.errors,
            first_error: stream.first_error.map(error),
            reads: some(&stream.reads),
            writes: some(&stream.writes),
            slices: stream.slices.iter().enumerate().map(slice).collect(),
        }
    }
}

/// CPU time per operation in nanoseconds, of the generator's thread and the engine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPerIo {
    /// Software, the kernel's part included: all that is none of the others.
    pub software_ns: f64,
    /// Spinning for completions.
    pub spin_ns: f64,
    /// The generator's own spinning until the next operation was due.
    pub idle_ns: f64,
    /// Running the device on the generator's thread.
    pub device_ns: f64,
    /// What the scheduler's clock tells apart over the whole run, for each operation.
    pub resolution_ns: f64,
    /// Operations per second of one core's time: what software, spinning and device together leave of it.
    #[serde(default)]
    pub per_core: f64,
}

impl CpuPerIo {
    /// Of a run.
    fn of(ran: &Ran) -> Self {
        let per = |ns: u64| ns as f64 / ran.operations.max(1) as f64;
        let spent_ns = ran.cpu.software_ns + ran.cpu.spin_ns + ran.cpu.device_ns;
        Self {
            software_ns: per(ran.cpu.software_ns),
            spin_ns: per(ran.cpu.spin_ns),
            idle_ns: per(ran.cpu.idle_ns),
            device_ns: per(ran.cpu.device_ns),
            resolution_ns: per(ran.cpu.resolution_ns),
            per_core: if spent_ns > 0 { ran.operations as f64 * 1e9 / spent_ns as f64 } else { 0.0 },
        }
    }
}

/// How far it was the generator's thread, with the engine that it calls, that the run measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instrument {
    /// Part of the time (0 to 1) in which the thread had something to do: it neither waited nor ran a device.
    pub busy: f64,
    /// Part of the operations (0 to 1) that it started late though the target had room.
    pub late: f64,
    /// How late it started them in the mean, in nanoseconds, without those that waited for room.
    pub delay_ns: f64,
    /// It was the bottleneck: busy for [`Instrument::BUSY`] of the time, and late with [`Instrument::LATE`]
    /// of the operations. The target may carry more.
    pub bottleneck: bool,
}

impl Instrument {
    /// Part of the time from which on it counts as busy all the time.
    pub const BUSY: f64 = 0.95;
    /// Part of the operations from which on late starts are the rule. (An engine that blocks is busy as well;
    /// but nothing is due meanwhile in a closed loop.)
    pub const LATE: f64 = 0.1;

    /// Of a run.
    fn of(ran: &Ran) -> Self {
        let sum = |of: fn(&StreamOutcome) -> u64| ran.outcome.streams.iter().map(of).sum::<u64>();
        let started = sum(|stream| stream.offered - stream.unsent);
        let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        let (busy, late) = (part(ran.busy_ns, ran.elapsed_ns), part(sum(|stream| stream.late), started));
        let delay_ns =
            part(sum(|stream| stream.held_ns), started.saturating_sub(sum(|stream| stream.queued)));
        Self { busy, late, delay_ns, bottleneck: busy >= Self::BUSY && late >= Self::LATE }
    }
}

/// What only a run in real time has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU time per operation.
    pub cpu: CpuPerIo,
    /// When the core was taken away.
    pub stalls: StallLog,
    /// The thread's wait for a core while it could run, in nanoseconds, as the scheduler counts it;
    /// `None` where it does not.
    pub scheduler_wait_ns: Option<u64>,
    /// Time that the hypervisor gave to others on any of the machine's cores, in nanoseconds (to a tick,
    /// 10 ms).
    pub stolen_ns: Option<u64>,
    /// What the generator itself costs.
    pub generator: GeneratorCost,
    /// How far the run measured the instrument; `None` of a run that did not look.
    #[serde(default)]
    pub instrument: Option<Instrument>,
}

/// A run: what was asked, where, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What was measured, in the user's words.
    pub target: String,
    /// The engine's name.
    pub engine: String,
    /// Where and when; absent of a run in simulated time.
    pub environment: Option<Environment>,
    /// What was asked.
    pub plan: Plan,
    /// The measured window in nanoseconds.
    pub window_ns: u64,
    /// Operations per second that were due in it.
    pub offered: f64,
    /// Operations per second that ended in it.
    pub throughput: f64,
    /// Operations that ended in an error.
    pub errors: u64,
    /// All streams together.
    pub all: Measured,
    /// Each by itself.
    pub streams: Vec<StreamSummary>,
    /// The level of the intervals, in per cent.
    pub level: f64,
    /// The machine's part; absent of a run in simulated time.
    pub machine: Option<Machine>,
}

impl Summary {
    /// Of a run in simulated time: the same for the same seed, byte for byte.
    #[must_use]
    pub fn simulated(target: &str, engine: &str, plan: &Plan, outcome: &Outcome) -> Self {
        Self {
            target: target.to_owned(),
            engine: engine.to_owned(),
            environment: None,
            plan: plan.clone(),
            window_ns: outcome.window_ns(),
            offered: outcome.offered(),
            throughput: outcome.throughput(),
            errors: outcome.errors(),
            all: Measured::of(&outcome.both()),
            streams: outcome.streams.iter().map(|s| StreamSummary::of(s, outcome.slice_ns)).collect(),
            level: interval::LEVEL,
            machine: None,
        }
    }

    /// Of a run in real time.
    #[must_use]
    pub fn real(
        target: &str,
        engine: &str,
        plan: &Plan,
        ran: &Ran,
        generator: GeneratorCost,
        environment: &Environment,
    ) -> Self {
        let machine = Machine {
            cpu: CpuPerIo::of(ran),
            stalls: ran.stalls.clone(),
            scheduler_wait_ns: ran.scheduler_wait_ns,
            stolen_ns: ran.stolen_ns,
            generator,
            instrument: Some(Instrument::of(ran)),
        };
        Self {
            environment: Some(environment.clone()),
            machine: Some(machine),
            ..Self::simulated(target, engine, plan, &ran.outcome)
        }
    }

    /// The summary as one line of JSON.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_random::scatter;

    #[test]
    fn percentiles_carry_their_intervals() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|ns| latency.record(ns));
        let times = Times::of(&latency);
        // A histogram alone gives none.
        assert_eq!(times.at(50.0).map(|p| (p.ns, p.beyond, p.low_ns)), Some((500, 500, None)));
        let mut tally = Tally::default();
        (1..=1000u64).for_each(|n| tally.respond(n * 1000, scatter(n) % 1000 + 1));
        let response = Measured::of(&tally).response;
        let median = response.at(50.0).unwrap();
        let (low, high, n) = (median.low_ns.unwrap(), median.high_ns.unwrap(), median.independent.unwrap());
        assert!(low < 480 && low > 430 && high > 520 && high < 570 && n <= 1000, "{median:?}");
        let far = response.at(99.9).unwrap();
        assert!(far.few && far.low_ns.is_none() && far.high_ns.is_none(), "{far:?}");
        let empty = Times::of(&Latency::new());
        assert!(
            empty.count == 0
                && empty.percentiles.iter().all(|p| p.few && p.high_ns.is_none() && p.low_ns.is_none())
        );
    }
}
