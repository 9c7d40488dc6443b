//! A sweep of offered load: response time against load up to saturation, and where the knee is.
//!
//! 1. A closed loop at the engine's depth says roughly what the device can do:
//!    its throughput is the first guess of the capacity.
//! 2. Open-loop points at parts of it; if even the last one is carried, higher ones until one is not.
//! 3. The capacity is narrowed between the highest load that was carried and the lowest that was not.
//! 4. The knee is narrowed between its neighbours. What points are left go where the curve bends most:
//!    between the neighbours whose p99 differ by the greatest factor.
//!
//! A load is not carried (saturated) where operations were never sent, or more than 1 % of those due in the
//! window, and more than the engine holds, had not ended at its end. The knee is the carried point of
//! greatest power: throughput over mean response time (Kleinrock, "Power and deterministic rules of thumb for
//! probabilistic problems in computer communications", 1979).
//!
//! It runs over anything that runs a plan, in real or simulated time.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::outcome::Outcome;
use crate::plan::{Plan, Stream};
use crate::run::Ran;

/// The rule by which the knee is found, for reports.
pub const KNEE: &str = "the carried load of greatest throughput over mean response time (Kleinrock's power)";

/// How to sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// What each point runs. The rates of its open-loop streams are their shares;
    /// streams of a closed loop run beside as they are.
    pub plan: Plan,
    /// Operations in flight while the capacity is guessed; what the engine holds.
    pub depth: u32,
    /// Points of the curve at most.
    pub points: usize,
    /// A point measures enough for `beyond` samples beyond this percentile,
    pub percent: f64,
    /// this many;
    pub beyond: u64,
    /// and at least this long,
    pub least_ns: u64,
    /// and at most this long, enough or not.
    pub most_ns: u64,
}

impl Sweep {
    /// 20 samples beyond p99.999 at 12 points of at least a second and at most a minute.
    #[must_use]
    pub fn new(plan: Plan, depth: u32) -> Self {
        let (least_ns, most_ns) = (1_000_000_000, 60_000_000_000);
        Self { plan, depth, points: 12, percent: 99.999, beyond: 20, least_ns, most_ns }
    }
}

/// One point.
#[derive(Clone, Debug)]
pub struct Load<R> {
    /// Operations per second that were asked for.
    pub rate: f64,
    /// Whether the device did not carry it.
    pub saturated: bool,
    /// What was measured.
    pub ran: R,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Curve<R> {
    /// By rising rate.
    pub points: Vec<Load<R>>,
    /// The knee's index among them; `None` where not even the least load was carried.
    pub knee: Option<usize>,
    /// The highest rate that was carried; 0 where none was.
    pub carried: f64,
    /// The lowest rate that was not; `None` where all were.
    pub saturated: Option<f64>,
}

impl AsRef<Outcome> for Outcome {
    fn as_ref(&self) -> &Outcome {
        self
    }
}

impl AsRef<Outcome> for Ran {
    fn as_ref(&self) -> &Outcome {
        &self.outcome
    }
}

/// Parts of the guessed capacity at which the curve begins.
const PARTS: [f64; 7] = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0];
/// The capacity is narrowed to this part of itself.
const NARROW: f64 = 0.04;
/// The knee is narrowed to this part of the capacity.
const KNEE_WITHIN: f64 = 0.08;
/// Operations that the guess takes.
const GUESS: u64 = 20_000;
/// The longest that the guess takes.
const GUESS_NS: u64 = 2_000_000_000;

/// Sweeps; `run` runs a plan on a device in its steady state.
///
/// # Errors
/// The first of `run`'s.
pub fn sweep<R: AsRef<Outcome>, E>(
    sweep: &Sweep,
    mut run: impl FnMut(&Plan) -> Result<R, E>,
) -> Result<Curve<R>, E> {
    let guess = run(&sweep.closed())?.as_ref().throughput().max(1.0);
    let mut points: Vec<Load<R>> = Vec::new();
    let mut measure = |rate: f64, points: &mut Vec<Load<R>>| -> Result<bool, E> {
        let ran = run(&sweep.at(rate))?;
        let saturated = is_saturated(ran.as_ref(), sweep.depth);
        let place = points.partition_point(|point| point.rate < rate);
        points.insert(place, Load { rate, saturated, ran });
        Ok(saturated)
    };
    // From below, so that a device is not driven far beyond what it carries.
    let above = (1..=10).map(|n| 1.15f64.powi(n));
    for part in PARTS.into_iter().chain(above) {
        if points.len() >= sweep.points.max(1) || measure(guess * part, &mut points)? {
            break;
        }
    }
    while points.len() < sweep.points {
        let carried = carried(&points);
        let saturated = points.get(carried.len()).map(|point| point.rate);
        let rate = match (carried.last().map(|point| point.rate), saturated) {
            (None, Some(least)) => least / 2.0,
            (Some(most), Some(least)) if least - most > NARROW * least => (most + least) / 2.0,
            _ => match beside_the_knee(&points).or_else(|| bend(&points)) {
                Some(rate) => rate,
                None => break,
            },
        };
        if rate < 1.0 {
            break;
        }
        measure(rate, &mut points)?;
    }
    Ok(Curve::of(points))
}

impl<R: AsRef<Outcome>> Curve<R> {
    fn of(points: Vec<Load<R>>) -> Self {
        let carried = carried(&points);
        let saturated = points.get(carried.len()).map(|point| point.rate);
        let highest = carried.last().map_or(0.0, |point| point.rate);
        Self { knee: knee(carried), carried: highest, saturated, points }
    }
}

/// The carried ones up to the first that was not: beyond it one may be carried by luck.
fn carried<R>(points: &[Load<R>]) -> &[Load<R>] {
    let first = points.iter().position(|point| point.saturated);
    points.get(..first.unwrap_or(points.len())).unwrap_or_default()
}

fn knee<R: AsRef<Outcome>>(carried: &[Load<R>]) -> Option<usize> {
    let power = |load: &Load<R>| {
        let outcome = load.ran.as_ref();
        outcome.throughput() / outcome.both().response.mean_ns().max(1.0)
    };
    let powers: Vec<f64> = carried.iter().map(power).collect();
    (0..powers.len()).max_by(|&a, &b| powers[a].total_cmp(&powers[b]))
}

/// The middle of the wider gap beside the knee, while that is wide.
fn beside_the_knee<R: AsRef<Outcome>>(points: &[Load<R>]) -> Option<f64> {
    let carried = carried(points);
    let knee = knee(carried)?;
    let highest = carried.last()?.rate;
    let gap = |pair: &&[Load<R>]| pair[1].rate - pair[0].rate;
    let beside = carried.get(knee.saturating_sub(1)..(knee + 2).min(carried.len()))?;
    let wider = beside.windows(2).max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    (gap(&wider) > KNEE_WITHIN * highest).then(|| (wider[0].rate + wider[1].rate) / 2.0)
}

impl Sweep {
    fn open(stream: &Stream) -> Option<f64> {
        stream.arrivals.rate()
    }

    /// The plan at a total rate.
    #[must_use]
    pub fn at(&self, rate: f64) -> Plan {
        let mut plan = self.plan.clone();
        let total: f64 = plan.streams.iter().filter_map(Self::open).sum();
        for stream in &mut plan.streams {
            match &mut stream.arrivals {
                Arrivals::Poisson { rate: own } | Arrivals::Constant { rate: own } => *own *= rate / total,
                Arrivals::Closed { .. } | Arrivals::Recorded { .. } => {}
            }
        }
        let enough = self.beyond as f64 / (1.0 - self.percent / 100.0).max(1e-9);
        let ns = (enough / rate * 1e9) as u64;
        plan.count = None;
        last(&mut plan, ns.max(self.least_ns).min(self.most_ns));
        plan
    }

    /// The open-loop streams as one closed loop, to guess the capacity. The depth is shared by their rates.
    fn closed(&self) -> Plan {
        let mut plan = self.plan.clone();
        let total: f64 = plan.streams.iter().filter_map(Self::open).sum();
        let taken: u32 = plan
            .streams
            .iter()
            .map(|s| if let Arrivals::Closed { depth } = s.arrivals { depth } else { 0 })
            .sum();
        let mut left = self.depth.saturating_sub(taken).max(1);
        for stream in &mut plan.streams {
            if let Some(rate) = Self::open(stream) {
                let share = f64::from(self.depth.saturating_sub(taken)) * rate / total;
                let depth = (share as u32).clamp(1, left.max(1));
                left = left.saturating_sub(depth);
                stream.arrivals = Arrivals::Closed { depth };
            }
        }
        plan.count = Some(GUESS);
        last(&mut plan, GUESS_NS.min(self.most_ns));
        plan.ramp_ns = 0;
        plan
    }
}

/// Gives a plan another length. It keeps its number of slices: a run of an hour in the slices of one of a
/// twentieth of a second would hold a histogram for each of 65,536, 15 GB. Where a slice was longer than the
/// whole, it stays as it is.
fn last(plan: &mut Plan, runtime_ns: u64) {
    let was_ns = plan.runtime_ns.replace(runtime_ns).unwrap_or(0);
    if was_ns >= plan.slice_ns.max(1) {
        let slice_ns = u128::from(plan.slice_ns) * u128::from(runtime_ns) / u128::from(was_ns);
        plan.slice_ns = plan.slice_ns.max(u64::try_from(slice_ns).unwrap_or(u64::MAX));
    }
}

fn is_saturated(outcome: &Outcome, depth: u32) -> bool {
    let sum = |of: fn(&crate::StreamOutcome) -> u64| outcome.streams.iter().map(of).sum::<u64>();
    let offered = sum(|stream| stream.offered);
    let behind = offered.saturating_sub(sum(|stream| stream.ended_within));
    sum(|stream| stream.unsent + stream.unanswered) > 0 || behind > (offered / 100).max(u64::from(depth))
}

/// Between which neighbours the curve bends most:
/// the middle of the two whose p99 differ by the greatest factor.
fn bend<R: AsRef<Outcome>>(points: &[Load<R>]) -> Option<f64> {
    let carried: Vec<(f64, f64)> = carried(points)
        .iter()
        .map(|point| (point.rate, point.ran.as_ref().both().response.percentile(99.0).ns.max(1) as f64))
        .collect();
    let apart = |pair: &&[(f64, f64)]| pair[1].0 - pair[0].0 > 0.01 * pair[1].0;
    let steep = |pair: &[(f64, f64)]| (pair[1].1 / pair[0].1).ln().abs();
    let most = carried.windows(2).filter(apart).max_by(|a, b| steep(a).total_cmp(&steep(b)))?;
    Some((most[0].0 + most[1].0) / 2.0)
}
