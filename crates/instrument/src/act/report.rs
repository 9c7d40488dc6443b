//! What a run showed: for each of ACT's histograms, how much of each slice of time was above each bound.
//!
//! Twice: of the I/O alone, as ACT takes it, from when an operation was sent; and from when it was due, which
//! is what a user waits. Beside both stands what the host took from the generator ([`Host`]): where the two
//! differ and the host stalled, the drive is not to blame.

use nearside_loadgen::summary::Machine;
use nearside_loadgen::{Arrivals, Latency, Outcome};
use serde::{Deserialize, Serialize};

use super::judge::Failed;
use super::load::names;

/// One slice: how many of its operations took as long as each of the report's bounds or longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Operations that ended in it.
    pub count: u64,
    /// Of them not below the bounds, in the report's order.
    pub above: Vec<u64>,
}

/// One of ACT's histograms, slice by slice in order of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// ACT's name of it.
    pub name: String,
    /// Whether rules look at it: the reads of records, and their committed writes.
    pub judged: bool,
    /// By the time of the I/O alone.
    pub io: Vec<Slice>,
    /// By the time since the operation was due.
    pub due: Vec<Slice>,
}

/// Stalls within one slice, of those that were kept one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// How many began in it.
    pub count: u64,
    /// All of them together, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
}

/// What the host took from the generator in a run in real time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Gaps above this are stalls, in nanoseconds.
    pub threshold_ns: u64,
    /// The whole run's.
    pub all: Stalled,
    /// Of them while the generator only spun: certainly the host's.
    pub spinning: u64,
    /// In each slice.
    pub slices: Vec<Stalled>,
    /// There were more stalls than were kept: the slices' are too few.
    pub overflowed: bool,
    /// The generator's wait for a core as the scheduler counts it, in nanoseconds; none where it does not.
    pub scheduler_wait_ns: Option<u64>,
    /// Time that the hypervisor gave to others, in nanoseconds; none where it does not say.
    pub stolen_ns: Option<u64>,
}

/// What a run showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Nanoseconds: powers of two of a microsecond and of a millisecond, up to 64, and the tightened rules'
    /// two.
    pub bounds: Vec<u64>,
    /// Length of a slice in nanoseconds.
    pub slice_ns: u64,
    /// In ACT's order.
    pub tables: Vec<Table>,
    /// Operations at given rates that were due.
    pub offered: u64,
    /// Those that ended within the run's time.
    pub ended: u64,
    /// Started late since the drive was full.
    pub queued: u64,
    /// The longest that any operation at a given rate was late in starting.
    pub lag_ns: u64,
    /// What may be; 0: anything.
    pub max_lag_ns: u64,
    /// Operations that were never sent.
    pub unsent: u64,
    /// Operations that were never answered.
    pub unanswered: u64,
    /// The first error.
    pub error: Option<String>,
    /// The host's part; none in simulated time.
    pub host: Option<Host>,
}

/// Columns of ACT's tables.
const COLUMNS: u32 = 7;

/// Every bound that a rule or a table names, in rising order.
fn bounds() -> Vec<u64> {
    let powers = |unit: u64| (0..COLUMNS).map(move |n| unit << n);
    let mut all: Vec<u64> = powers(1_000).chain([100_000, 128_000]).chain(powers(1_000_000)).collect();
    all.sort_unstable();
    all
}

/// The columns of ACT's table: seven powers of two of a microsecond or a millisecond, in nanoseconds.
#[must_use]
pub fn columns(microseconds: bool) -> Vec<u64> {
    let unit = if microseconds { 1_000 } else { 1_000_000 };
    (0..COLUMNS).map(|n| unit << n).collect()
}

impl Slice {
    /// Bounds are exact to the histogram's three digits.
    fn of(times: &Latency, bounds: &[u64]) -> Slice {
        // ACT counts what takes a millisecond to the nanosecond as above it.
        let above = bounds.iter().map(|ns| times.above(ns - 1)).collect();
        Slice { count: times.count(), above }
    }

    fn add(&mut self, other: &Slice) {
        self.count += other.count;
        self.above.iter_mut().zip(&other.above).for_each(|(a, b)| *a += b);
    }
}

/// The whole slices of a window. What was due in the window and ended after it counts in the last slice,
/// unless the window ends with a part of a slice: that is left out, as act_latency.py leaves it out.
fn whole(times: &[Latency], bounds: &[u64], window_ns: u64, slice_ns: u64) -> Vec<Slice> {
    let count = (window_ns / slice_ns) as usize;
    let mut slices = vec![Slice { count: 0, above: vec![0; bounds.len()] }; count];
    for (index, times) in times.iter().enumerate() {
        let of = Slice::of(times, bounds);
        match slices.get_mut(index) {
            Some(slice) => *slice = of,
            None if window_ns.is_multiple_of(slice_ns) => {
                if let Some(last) = slices.last_mut() {
                    last.add(&of);
                }
            }
            None => {}
        }
    }
    slices
}

impl Report {
    /// Of a run of [`super::Load::plan`].
    pub fn of(outcome: &Outcome, max_lag_ns: u64) -> Report {
        let (bounds, slice_ns) = (bounds(), outcome.slice_ns.max(1));
        let slices = |times: &[Latency]| whole(times, &bounds, outcome.window_ns(), slice_ns);
        let tables = outcome.streams.iter().map(|stream| Table {
            name: stream.name.clone(),
            judged: [names::READS, names::WRITES].contains(&stream.name.as_str()),
            io: slices(&stream.service_slices),
            due: slices(&stream.slices),
        });
        let mut tables: Vec<Table> = tables.collect();
        tables.sort_by_key(|table| names::ALL.iter().position(|name| *name == table.name));
        let streams = &outcome.streams;
        // The tomb raider has no rate, so nothing to fall behind of.
        let rated = || streams.iter().filter(|s| !matches!(s.arrivals, Arrivals::Closed { .. }));
        let error = streams
            .iter()
            .find_map(|s| s.first_error.map(|(error, at)| format!("{} at byte {at}: {error}", s.name)));
        Report {
            slice_ns: outcome.slice_ns,
            tables,
            offered: rated().map(|s| s.offered).sum(),
            ended: rated().map(|s| s.ended_within).sum(),
            queued: rated().map(|s| s.queued).sum(),
            lag_ns: rated().map(|s| s.lateness.max_ns()).max().unwrap_or(0),
            max_lag_ns,
            unsent: rated().map(|s| s.unsent).sum(),
            unanswered: streams.iter().map(|s| s.unanswered).sum(),
            error,
            host: None,
            bounds,
        }
    }

    /// With what the host took meanwhile.
    #[must_use]
    pub fn with_host(self, machine: &Machine) -> Report {
        let log = &machine.stalls;
        let mut slices = vec![Stalled::default(); self.tables.first().map_or(0, |table| table.io.len())];
        for stall in &log.stalls {
            let index = (stall.at_ns / self.slice_ns.max(1)) as usize;
            if let Some(slice) = slices.get_mut(index) {
                slice.count += 1;
                slice.total_ns += stall.ns;
                slice.longest_ns = slice.longest_ns.max(stall.ns);
            }
        }
        let host = Host {
            threshold_ns: log.threshold_ns,
            all: Stalled { count: log.count, total_ns: log.total_ns, longest_ns: log.longest_ns },
            spinning: log.spinning,
            slices,
            overflowed: log.count > log.stalls.len() as u64,
            scheduler_wait_ns: machine.scheduler_wait_ns,
            stolen_ns: machine.stolen_ns,
        };
        Report { host: Some(host), ..self }
    }

    /// Whether the run came to its end without an error and without falling behind: all that ACT asks of a
    /// stress test (README, "Passing a Stress Test").
    ///
    /// # Errors
    /// [`Failed::Error`], [`Failed::Behind`] or [`Failed::NotKept`].
    pub fn completes(&self) -> Result<(), Failed> {
        if let Some(error) = &self.error {
            return Err(Failed::Error { error: error.clone() });
        }
        let limited = self.max_lag_ns != 0;
        let undone = self.unanswered + if limited { self.unsent } else { 0 };
        if undone > 0 || (limited && self.lag_ns > self.max_lag_ns) {
            return Err(Failed::Behind { lag_ns: self.lag_ns, unsent: undone });
        }
        let left = self.offered.saturating_sub(self.ended);
        if limited && self.queued > 0 && left * 100 > self.offered {
            return Err(Failed::NotKept { percent: 100.0 * left as f64 / self.offered as f64 });
        }
        Ok(())
    }

    /// Of a slice's operations, how many per cent took one of the bounds or longer; all of them for a time
    /// that is none of the bounds.
    pub fn percent_above(&self, slice: &Slice, ns: u64) -> f64 {
        let at = self.bounds.iter().position(|b| *b == ns);
        let above = at.and_then(|at| slice.above.get(at)).copied().unwrap_or(slice.count);
        100.0 * above as f64 / slice.count.max(1) as f64
    }

    /// The worst slice's share of a bound in per cent.
    pub fn worst(&self, slices: &[Slice], ns: u64) -> f64 {
        slices.iter().map(|slice| self.percent_above(slice, ns)).fold(0.0, f64::max)
    }
}

/// A report of one table, for tests: each slice's operations, and how many were not below which bounds.
#[cfg(test)]
pub(super) fn known(name: &str, slices: &[(u64, &[(u64, u64)])]) -> Report {
    let bounds = bounds();
    let io = slices.iter().map(|(count, above)| {
        // As of any histogram: what is above a bound is above those before it.
        let of = |ns: &u64| above.iter().filter(|(b, _)| b >= ns).map(|(_, n)| *n).max().unwrap_or(0);
        Slice { count: *count, above: bounds.iter().map(of).collect() }
    });
    let io: Vec<Slice> = io.collect();
    let judged = ["reads", "writes"].contains(&name);
    Report {
        slice_ns: 1_000_000_000,
        tables: vec![Table { name: name.to_owned(), judged, due: io.clone(), io }],
        offered: 1000,
        ended: 1000,
        queued: 0,
        lag_ns: 0,
        max_lag_ns: 10_000_000_000,
        unsent: 0,
        unanswered: 0,
        error: None,
        host: None,
        bounds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_as_long_as_a_bound_is_not_below_it() {
        let mut times = Latency::new();
        [500, 999, 1_000, 2_000, 900_000, 1_001_000].iter().for_each(|ns| times.record(*ns));
        let slice = Slice::of(&times, &[1_000, 2_000, 1_000_000]);
        assert_eq!((slice.count, &slice.above[..]), (6, &[4, 3, 1][..]));
        assert_eq!(bounds().len(), 16);
        assert_eq!(columns(false), [1, 2, 4, 8, 16, 32, 64].map(|ms| ms * 1_000_000));
    }

    #[test]
    fn a_part_of_a_slice_at_the_end_is_left_out_and_what_ends_late_is_not() {
        let times = |counts: &[u64]| -> Vec<Latency> {
            let of = |n: &u64| {
                let mut times = Latency::new();
                (0..*n).for_each(|_| times.record(2_000_000));
                times
            };
            counts.iter().map(of).collect()
        };
        let counts = |slices: Vec<Slice>| slices.iter().map(|s| (s.count, s.above[0])).collect::<Vec<_>>();
        let bounds = [1_000_000];
        assert_eq!(counts(whole(&times(&[5, 4, 3]), &bounds, 20, 10)), [(5, 5), (7, 7)]);
        assert_eq!(counts(whole(&times(&[5, 4, 3]), &bounds, 25, 10)), [(5, 5), (4, 4)]);
        assert_eq!(counts(whole(&times(&[5]), &bounds, 20, 10)), [(5, 5), (0, 0)]);
        assert_eq!(counts(whole(&times(&[5]), &bounds, 9, 10)), []);
    }
}
