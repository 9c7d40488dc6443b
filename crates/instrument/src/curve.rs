//! A curve: a target measured at one load after another, as data for the table and the page.

use nearside_loadgen::{Arrivals, Latency, Summary};

use crate::prepare::Steady;
use crate::words::show_rate;

/// One run, with the histogram that its picture needs.
#[derive(Clone, Debug)]
pub struct Point {
    /// What came out, as plain data.
    pub summary: Summary,
    /// Response times of all its operations.
    pub response: Latency,
    /// An open loop offered more than the target carries: its response times grow for as long as it runs.
    pub saturated: bool,
    /// The user ended it before its time.
    pub stopped: bool,
}

impl Point {
    /// Of a run that took its time.
    #[must_use]
    pub fn new(summary: Summary, response: Latency) -> Point {
        Point { summary, response, saturated: false, stopped: false }
    }

    /// The first error of the target, where there was any.
    #[must_use]
    pub fn first_error(&self) -> Option<String> {
        self.summary.streams.iter().find_map(|stream| stream.first_error.clone())
    }

    /// The load in words: `50.0 k` operations per second, or `QD 8`.
    #[must_use]
    pub fn load(&self) -> String {
        match self.summary.streams.first().map(|stream| stream.arrivals) {
            Some(Arrivals::Closed { depth }) => format!("QD {depth}"),
            _ => show_rate(self.summary.offered),
        }
    }

    /// The load in words, with a mark where the target did not carry it.
    #[must_use]
    pub fn marked_load(&self) -> String {
        format!("{}{}", self.load(), if self.saturated { "*" } else { "" })
    }

    /// Operations in flight, of a closed loop.
    #[must_use]
    pub fn depth(&self) -> Option<u32> {
        match self.summary.streams.first()?.arrivals {
            Arrivals::Closed { depth } => Some(depth),
            _ => None,
        }
    }
}

/// What was measured of one target.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// The target in the user's words, and what sets it apart from others on the same picture.
    pub name: String,
    /// Closed loops by queue depth, in rising order.
    pub depths: Vec<Point>,
    /// Open loops by offered load, in rising order.
    pub loads: Vec<Point>,
    /// Operations per second at the knee, where it was found.
    pub knee: Option<f64>,
    /// How the target came to its steady state before, where that was asked for.
    pub steady: Option<Steady>,
    /// What a reader should know, a sentence each.
    pub notes: Vec<String>,
}

impl Curve {
    /// Loads that the target carries.
    pub fn carried(&self) -> impl Iterator<Item = &Point> {
        self.loads.iter().filter(|point| !point.saturated)
    }

    /// All runs, as they were measured.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.depths.iter().chain(&self.loads)
    }

    /// The lowest load.
    #[must_use]
    pub fn lowest(&self) -> Option<&Point> {
        self.carried().next().or(self.depths.first())
    }

    /// The load next to `fraction` of the knee, or of the highest throughput where there is no knee.
    #[must_use]
    pub fn near(&self, fraction: f64) -> Option<&Point> {
        let most = self.points().map(|p| p.summary.throughput).fold(0.0, f64::max);
        let wanted = fraction * self.knee.unwrap_or(most);
        let away = |p: &&Point| (p.summary.offered - wanted).abs();
        self.carried().min_by(|a, b| away(a).total_cmp(&away(b))).or(self.depths.last())
    }
}
