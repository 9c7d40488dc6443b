//! How a curve is measured: closed loops at queue depths, which show what the target can do, then open loops at shares of that.

use nearside_loadgen::{Arrivals, Generator, Plan, Workload};

use crate::curve::{Curve, Point};
use crate::run::{RunError, Runner};

/// What bounds one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nanoseconds.
    Time(u64),
    /// Operations.
    Count(u64),
}

/// What a curve is to be of.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What is done where.
    pub workload: Workload,
    /// Arrivals at even distances instead of at random.
    pub constant: bool,
    /// Bound of each open loop.
    pub bound: Bound,
    /// Bound of each closed loop.
    pub depth_bound: Bound,
    /// Queue depths.
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
    Ended(&'a Point),
}

/// Slices of response time over time in one run.
const SLICES: u64 = 50;
/// Not measured at the begin of a run: this part of it.
const WARM_UP: u64 = 10;

impl Ask {
    /// One run of it. `rate` is what is expected of a closed loop.
    #[must_use]
    pub fn plan(&self, arrivals: Arrivals, bound: Bound, rate: f64) -> Plan {
        let mut plan = Plan::new(self.workload.clone(), arrivals, 0);
        plan.seed = self.seed;
        let length_ns = match bound {
            Bound::Time(ns) => ns,
            Bound::Count(count) => (count as f64 / rate.max(1.0) * 1e9) as u64,
        };
        match bound {
            Bound::Time(ns) => plan.runtime_ns = Some(ns),
            Bound::Count(count) => (plan.runtime_ns, plan.count) = (None, Some(count)),
        }
        plan.warm_up_ns = length_ns / WARM_UP;
        plan.slice_ns = (length_ns / SLICES).max(1_000);
        plan
    }

    fn arrivals(&self, rate: f64) -> Arrivals {
        if self.constant { Arrivals::Constant { rate } } else { Arrivals::Poisson { rate } }
    }
}

/// Shares of what the target can do: close together where the curve bends.
fn shares(loads: usize) -> impl Iterator<Item = f64> {
    let last = loads.max(1) as f64;
    (1..=loads).map(move |i| {
        let share = i as f64 / last;
        // Half the points lie above 70 %.
        0.98 * (1.0 - (1.0 - share).powf(1.4) * (1.0 - 0.04))
    })
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
    let most = runner.depth() as u64;
    let depths: Vec<u32> = ask.depths.iter().copied().filter(|depth| u64::from(*depth) <= most).collect();
    let total = depths.len() + ask.loads;
    let mut curve = Curve { name: name.to_owned(), ..Curve::default() };
    let mut one = |index: usize, words: String, plan: &Plan| -> Result<(Point, bool), RunError> {
        see(Event::Begins(index, total, words));
        let point = runner.run(plan, &mut |generator| see(Event::Runs(generator)))?;
        see(Event::Ended(&point));
        let ends = runner.stopped() || point.summary.errors > 0;
        Ok((point, ends))
    };
    let mut best = 0.0f64;
    for (index, depth) in depths.iter().enumerate() {
        // A first guess, for the slices only.
        let plan = ask.plan(Arrivals::Closed { depth: *depth }, ask.depth_bound, best.max(10_000.0));
        let (point, ends) = one(index, format!("queue depth {depth}"), &plan)?;
        best = best.max(point.summary.throughput);
        note_errors(&mut curve, &point);
        curve.depths.push(point);
        if ends {
            return Ok(curve);
        }
    }
    for (index, share) in shares(ask.loads).enumerate() {
        let rate = best * share;
        if rate <= 0.0 {
            break;
        }
        let plan = ask.plan(ask.arrivals(rate), ask.bound, rate);
        let words = format!("{} I/Os per second", crate::words::show_rate(rate));
        let (point, ends) = one(depths.len() + index, words, &plan)?;
        note_errors(&mut curve, &point);
        curve.loads.push(point);
        if ends {
            break;
        }
    }
    Ok(curve)
}

fn note_errors(curve: &mut Curve, point: &Point) {
    let first = point.summary.streams.iter().find_map(|stream| stream.first_error.as_ref());
    if let Some(first) = first {
        curve.notes.push(format!("at {} an error ended the measuring: {first}", point.load()));
    }
}
