//! Response time against load of a medium by name, in simulated time: the same configuration, the same result to the last byte.

use std::fmt;

use nearside_clock::SimClock;
use nearside_ftl::Flash;
use nearside_loadgen::run::simulated;
use nearside_loadgen::sweep::{Curve, KNEE, Sweep, sweep};
use nearside_loadgen::{Arrivals, Engine, Outcome, Plan, Rw, Summary, Workload};
use nearside_media::words::WordError;
use nearside_media::{AnyMedium, Medium, nand};
use nearside_store::{Modelled, Null};
use serde::{Deserialize, Serialize};

use crate::{Bare, Drive, DriveConfig, DriveError};

/// What an operation passes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Through {
    /// Driver, controller, store at the medium's time.
    #[default]
    Drive,
    /// The medium alone; faster.
    Medium,
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Through::Drive { "simulated drive" } else { "simulated medium only" })
    }
}

/// What is to be drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveConfig {
    /// The medium: a NAND preset by its name, or a word of [`AnyMedium::parse`].
    pub media: String,
    /// Of places, arrivals and, for NAND, its first state and its own draws.
    pub seed: u64,
    /// What is done. Its range is the drive's size.
    pub workload: Workload,
    /// What an operation passes through.
    pub through: Through,
    /// Operations in flight at most. 1 to 2,047.
    pub depth: u16,
    /// Points at most.
    pub points: usize,
    /// Samples beyond p99.999 at each point.
    pub beyond: u64,
    /// For NAND: it is written once in order, then so many times its size at random, before anything is measured.
    pub precondition: f64,
}

impl CurveConfig {
    /// 4 KiB, 70 % random reads and 30 % random writes over 16 GiB; 12 points, 20 samples beyond p99.999 each; NAND rewritten twice.
    #[must_use]
    pub fn new(media: &str, seed: u64) -> Self {
        let workload = Workload { rwmixread: 70, ..Workload::new(Rw::RandRw, 4096, 16 << 30) };
        let through = Through::default();
        let media = media.to_owned();
        Self { media, seed, workload, through, depth: 1024, points: 12, beyond: 20, precondition: 2.0 }
    }
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Operations per second that were asked for.
    pub rate: f64,
    /// Whether the device did not carry it.
    pub saturated: bool,
    /// What was measured.
    pub summary: Summary,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveResult {
    /// What was asked.
    pub config: CurveConfig,
    /// By rising rate.
    pub points: Vec<CurvePoint>,
    /// The knee's index among the points.
    pub knee: Option<usize>,
    /// The rule by which it was found.
    pub rule: String,
    /// The highest rate that was carried.
    pub carried: f64,
    /// The lowest rate that was not.
    pub saturated: Option<f64>,
}

/// Why there is no curve.
#[derive(Debug, thiserror::Error)]
pub enum CurveError {
    /// The medium's name.
    #[error(transparent)]
    Media(#[from] WordError),
    /// The drive's size or the machine's memory.
    #[error("{0}")]
    Size(#[from] std::io::Error),
    /// The run.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Sweeps the load up to where the device saturates.
///
/// # Errors
/// What is wrong with the configuration.
pub fn curve(config: &CurveConfig) -> Result<CurveResult, CurveError> {
    let size = (config.workload.offset.saturating_add(config.workload.size)).next_multiple_of(4096);
    match nand::preset(&config.media) {
        Some(preset) => {
            let preset = nand::Drive { seed: config.seed, ..preset.sized(size) };
            let mut flash = Flash::<()>::new(preset, nearside_ftl::Config::default())?;
            flash.precondition(config.precondition, config.seed);
            over(config, flash, size)
        }
        None => over(config, AnyMedium::parse(&config.media)?, size),
    }
}

fn over(config: &CurveConfig, medium: impl Medium, size: u64) -> Result<CurveResult, CurveError> {
    let clock = SimClock::new();
    match config.through {
        Through::Drive => {
            let largest = config.workload.largest() as usize;
            let drive_config = DriveConfig { depth: config.depth, largest, ..DriveConfig::default() };
            let store = Modelled::new(Null::new(size, 512)?, medium);
            let mut drive = Drive::new(store, &drive_config, clock.clone())?;
            swept(config, &mut drive, &clock)
        }
        Through::Medium => swept(config, &mut Bare::new(medium, config.depth.into()), &clock),
    }
}

fn swept(
    config: &CurveConfig,
    engine: &mut impl Engine,
    clock: &SimClock,
) -> Result<CurveResult, CurveError> {
    let mut plan = Plan::new(config.workload.clone(), Arrivals::Poisson { rate: 1.0 }, 0);
    plan.seed = config.seed;
    let how = Sweep {
        points: config.points,
        // Half as many more: arrivals are drawn, and the samples of the percentile's own bucket are not beyond it.
        beyond: config.beyond * 3 / 2,
        // Simulated time is cheap where little happens in it.
        most_ns: 3_600_000_000_000,
        ..Sweep::new(plan, config.depth.into())
    };
    let curve: Curve<Run> = sweep(&how, |plan| {
        let outcome = simulated(plan, engine, clock).map_err(DriveError::Run)?;
        Ok::<_, CurveError>(Run { plan: plan.clone(), outcome })
    })?;
    let through = config.through.to_string();
    let points = curve.points.iter().map(|point| CurvePoint {
        rate: point.rate,
        saturated: point.saturated,
        summary: Summary::simulated(&config.media, &through, &point.ran.plan, &point.ran.outcome),
    });
    Ok(CurveResult {
        config: config.clone(),
        points: points.collect(),
        knee: curve.knee,
        rule: KNEE.to_owned(),
        carried: curve.carried,
        saturated: curve.saturated,
    })
}

struct Run {
    plan: Plan,
    outcome: Outcome,
}

impl AsRef<Outcome> for Run {
    fn as_ref(&self) -> &Outcome {
        &self.outcome
    }
}
