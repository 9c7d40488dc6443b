//! How a curve is measured: closed loops at queue depths, then a [`sweep`] of
//! offered load up to what the target carries.

use nearside_loadgen::sweep::{Sweep, sweep};
use nearside_loadgen::{Arrivals, Generator, Outcome, Plan, Workload};
use nearside_random::of_run;

use crate::curve::{Curve, Point};
use crate::run::{RunError, Runner};
use crate::words::show_rate;

/// What a curve is to be of.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What is done where.
    pub workload: Workload,
    /// Arrivals at even distances instead of at random.
    pub constant: bool,
    /// Each load is measured at least this long, in nanoseconds;
    pub least_ns: u64,
    /// until 20 samples lie beyond this percentile,
    pub percent: f64,
    /// or this long.
    pub most_ns: u64,
    /// Queue depths; each closed loop takes a quarter of `least_ns`.
    pub depths: Vec<u32>,
    /// How many loads.
    pub loads: usize,
    /// Of places and arrivals.
    pub seed: u64,
}

/// What a viewer is told.
pub enum Event<'a> {
    /// A run begins: which of how many, and its load in words.
    Begins(usize, usize, String),
    /// It goes on.
    Runs(&'a Generator),
    /// It has ended.
    Ended(&'a Point, &'a Outcome),
}

/// Slices of response time over time in one run.
const SLICES: u64 = 50;
/// Not measured at the begin of a run: this part of it.
const WARM_UP: u64 = 10;
/// Samples beyond the farthest percentile that is asked for.
const BEYOND: u64 = 20;

/// One stream for a time, its first part not measured.
#[must_use]
pub fn plan(workload: &Workload, arrivals: Arrivals, runtime_ns: u64, seed: u64) -> Plan {
    let warm_up_ns = runtime_ns / WARM_UP;
    let slice_ns = (runtime_ns / SLICES).max(1_000);
    Plan { seed, warm_up_ns, slice_ns, ..Plan::new(workload.clone(), arrivals, runtime_ns) }
}

impl Ask {
    fn sweep(&self, depth: usize) -> Sweep {
        let arrivals =
            if self.constant { Arrivals::Constant { rate: 1.0 } } else { Arrivals::Poisson { rate: 1.0 } };
        let plan = plan(&self.workload, arrivals, self.least_ns, self.seed);
        Sweep {
            points: self.loads,
            percent: self.percent,
            beyond: BEYOND,
            least_ns: self.least_ns,
            most_ns: self.most_ns.max(self.least_ns),
            ..Sweep::new(plan, depth as u32)
        }
    }
}

/// Why a sweep ends early.
enum End {
    Failed(RunError),
    /// By the user, or by an error of the target: what was measured counts.
    Stopped,
}

/// Measures a curve of that name. What was measured before an error or a stop is in it.
///
/// # Errors
/// What is wrong with the plan.
pub fn measure(
    runner: &mut dyn Runner,
    name: &str,
    ask: &Ask,
    see: &mut dyn FnMut(Event<'_>),
) -> Result<Curve, RunError> {
    let most = runner.depth();
    let depths: Vec<u32> = ask.depths.iter().copied().filter(|depth| *depth as usize <= most).collect();
    // The sweep begins with a guess of its own.
    let total = depths.len() + 1 + ask.loads;
    let mut curve = Curve { name: name.to_owned(), ..Curve::default() };
    let mut index = 0;
    let mut one = |words: String, plan: &Plan| -> Result<(Point, Outcome), RunError> {
        see(Event::Begins(index, total.max(index + 1), words));
        let plan = Plan { seed: of_run(plan.seed, index as u64), ..plan.clone() };
        index += 1;
        let (point, outcome) = runner.run(&plan, &mut |generator| see(Event::Runs(generator)))?;
        see(Event::Ended(&point, &outcome));
        Ok((point, outcome))
    };
    let ends = |point: &Point| point.stopped || point.summary.errors > 0;
    for depth in depths {
        let arrivals = Arrivals::Closed { depth };
        let plan = plan(&ask.workload, arrivals, (ask.least_ns / 4).max(1_000), ask.seed);
        let (point, _) = one(format!("queue depth {depth}"), &plan)?;
        note_errors(&mut curve, &point);
        let over = ends(&point);
        curve.depths.push(point);
        if over {
            return Ok(curve);
        }
    }
    if ask.loads == 0 {
        return Ok(curve);
    }
    let mut loads: Vec<Point> = Vec::new();
    let swept = sweep(&ask.sweep(most), |plan| {
        let rate = plan.streams.first().and_then(|stream| stream.arrivals.rate());
        let words =
            rate.map_or("all it can".to_owned(), |rate| format!("{} I/Os per second", show_rate(rate)));
        let (point, mut outcome) = one(words, plan).map_err(End::Failed)?;
        // The sweep keeps all of them, and needs no slices.
        outcome.streams.iter_mut().for_each(|stream| stream.slices.clear());
        let over = ends(&point);
        note_errors(&mut curve, &point);
        if rate.is_some() {
            loads.push(point);
        }
        if over { Err(End::Stopped) } else { Ok(outcome) }
    });
    match swept {
        Err(End::Failed(error)) => return Err(error),
        Err(End::Stopped) => {}
        Ok(swept) => {
            let rate = |point: &Point| point.summary.streams.first().and_then(|s| s.arrivals.rate());
            for point in &mut loads {
                let load = swept.points.iter().find(|load| rate(point) == Some(load.rate));
                point.saturated = load.is_some_and(|load| load.saturated);
            }
            curve.knee = swept.knee.and_then(|knee| swept.points.get(knee)).map(|load| load.rate);
        }
    }
    loads.sort_by(|a, b| a.summary.offered.total_cmp(&b.summary.offered));
    curve.loads = loads;
    Ok(curve)
}

fn note_errors(curve: &mut Curve, point: &Point) {
    if let Some(first) = point.first_error() {
        curve.notes.push(format!("at {} an error ended the measuring: {first}", point.load()));
    }
}
