//! What a run showed, and whether that passes: the share of reads above each bound, slice by slice.

use std::fmt::Write as _;

use nearside_loadgen::Outcome;
use serde::{Deserialize, Serialize};

/// Bounds and shares: of the reads of every slice, at most `percent` may take longer than `ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// (nanoseconds, percent above them that still passes), shortest first.
    pub bounds: Vec<(u64, f64)>,
}

impl Rule {
    /// ACT's (and the paper's): 95 % within 1 ms, 99 % within 8 ms, 99.9 % within 64 ms.
    pub fn standard() -> Rule {
        Rule { name: "standard".into(), bounds: vec![(1_000_000, 5.0), (8_000_000, 1.0), (64_000_000, 0.1)] }
    }

    /// The paper's tightened one as its text says it (V-B): 95 % within 128 µs; the other bounds stay.
    pub fn tightened() -> Rule {
        Rule { name: "tightened, 128 us".into(), ..Rule::with_first(128_000) }
    }

    /// The tightened rule as the caption of the paper's Fig. 11 says it: 95 % of reads within 0.1 ms.
    pub fn tightened_caption() -> Rule {
        Rule { name: "tightened, 100 us".into(), ..Rule::with_first(100_000) }
    }

    fn with_first(ns: u64) -> Rule {
        let mut rule = Rule::standard();
        rule.bounds[0].0 = ns;
        rule
    }

    /// Whether a run passes, or the first thing by which it fails.
    ///
    /// # Errors
    /// [`Failed`]: an I/O error, a load that could not be kept up, a slice without reads, or a bound that
    /// was exceeded.
    pub fn judge(&self, report: &Report) -> Result<(), Failed> {
        if let Some(error) = &report.error {
            return Err(Failed::Error(error.clone()));
        }
        if report.lag_ns > report.max_lag_ns || report.unsent > 0 {
            return Err(Failed::Behind { lag_ns: report.lag_ns, unsent: report.unsent });
        }
        if report.slices.is_empty() || report.slices.iter().any(|s| s.reads == 0) {
            return Err(Failed::NothingMeasured);
        }
        for (index, slice) in report.slices.iter().enumerate() {
            for &(ns, most) in &self.bounds {
                let percent = report.percent_above(slice, ns);
                if percent > most {
                    return Err(Failed::Above { slice: index + 1, ns, percent, most });
                }
            }
        }
        Ok(())
    }
}

/// By what a run fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Failed {
    /// A share.
    #[error("slice {slice}: {percent:.2} % of the reads took longer than {} ms, where {most} % may", *.ns as f64 / 1e6)]
    Above {
        /// From 1.
        slice: usize,
        /// The bound.
        ns: u64,
        /// What was above it.
        percent: f64,
        /// What may be.
        most: f64,
    },
    /// The drive does not keep up with the rates.
    #[error("the drive fell {:.1} s behind the load ({unsent} operations never sent)", *.lag_ns as f64 / 1e9)]
    Behind {
        /// How far, at the worst.
        lag_ns: u64,
        /// Operations given up.
        unsent: u64,
    },
    /// An operation failed.
    #[error("an operation failed: {0}")]
    Error(String),
    /// A slice without reads: the run was too short for its load.
    #[error("a slice has no reads: the run is too short")]
    NothingMeasured,
}

impl Failed {
    /// In a word or two, for a table.
    pub fn short(&self) -> String {
        match self {
            Failed::Above { ns, .. } => format!("fails: {} ms", *ns as f64 / 1e6),
            Failed::Behind { .. } => "fails: behind".to_owned(),
            Failed::Error(_) => "fails: error".to_owned(),
            Failed::NothingMeasured => "nothing measured".to_owned(),
        }
    }
}

/// One slice: how many of its reads took longer than each of the report's bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Reads that ended in it.
    pub reads: u64,
    /// Of them above the bounds, in the report's order.
    pub above: Vec<u64>,
}

/// What a run showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Nanoseconds: ACT's 1, 8 and 64 ms, and the tightened rules' two.
    pub bounds: Vec<u64>,
    /// Length of a slice in nanoseconds.
    pub slice_ns: u64,
    /// In order of time.
    pub slices: Vec<Slice>,
    /// The longest that any operation of any stream was late in starting.
    pub lag_ns: u64,
    /// What may be.
    pub max_lag_ns: u64,
    /// Operations that were never sent or never answered.
    pub unsent: u64,
    /// The first error.
    pub error: Option<String>,
}

/// Every bound that a rule here names.
const BOUNDS: [u64; 5] = [100_000, 128_000, 1_000_000, 8_000_000, 64_000_000];

impl Report {
    /// Of a run of [`super::Load::plan`]. What was left of the run after its last whole slice counts with
    /// that slice where it is less than half of one.
    pub fn of(outcome: &Outcome, max_lag_ns: u64) -> Report {
        let whole = (outcome.window_ns() / outcome.slice_ns.max(1)) as usize;
        let reads = outcome.streams.first();
        let mut slices: Vec<Slice> = Vec::new();
        for (index, slice) in reads.iter().flat_map(|r| &r.slices).enumerate() {
            let counts = BOUNDS.map(|ns| slice.above(ns));
            match slices.last_mut() {
                // What ended after the window's end was due in its last slice.
                Some(last) if index >= whole => {
                    last.reads += slice.count();
                    last.above.iter_mut().zip(counts).for_each(|(a, b)| *a += b);
                }
                _ => slices.push(Slice { reads: slice.count(), above: counts.to_vec() }),
            }
        }
        let streams = &outcome.streams;
        let error = streams
            .iter()
            .find_map(|s| s.first_error.map(|(error, at)| format!("{} at byte {at}: {error}", s.name)));
        Report {
            bounds: BOUNDS.to_vec(),
            slice_ns: outcome.slice_ns,
            slices,
            lag_ns: streams.iter().map(|s| s.lateness.max_ns()).max().unwrap_or(0),
            max_lag_ns,
            unsent: streams.iter().map(|s| s.unsent + s.unanswered).sum(),
            error,
        }
    }

    /// Of a slice's reads, how many per cent took longer than one of the bounds.
    pub fn percent_above(&self, slice: &Slice, ns: u64) -> f64 {
        let at = self.bounds.iter().position(|b| *b == ns);
        let above = at.and_then(|at| slice.above.get(at)).copied().unwrap_or(slice.reads);
        100.0 * above as f64 / slice.reads.max(1) as f64
    }

    /// ACT's table: the share above each of a rule's bounds by slice, then their average and the worst.
    pub fn table(&self, rule: &Rule) -> String {
        let mut out = String::from("       reads %>(ms)\nslice ");
        for (ns, _) in &rule.bounds {
            let _ = write!(out, "{:>8}", *ns as f64 / 1e6);
        }
        let line = "-".repeat(6 + 8 * rule.bounds.len());
        let _ = writeln!(out, "\n{line}");
        let mut row = |name: &str, of: &dyn Fn(u64) -> f64| {
            let _ = write!(out, "{name:>5} ");
            for (ns, _) in &rule.bounds {
                let _ = write!(out, "{:>8.2}", of(*ns));
            }
            out.push('\n');
        };
        for (index, slice) in self.slices.iter().enumerate() {
            row(&(index + 1).to_string(), &|ns| self.percent_above(slice, ns));
        }
        let all = |ns| self.slices.iter().map(move |s| self.percent_above(s, ns));
        row("avg", &|ns| all(ns).sum::<f64>() / self.slices.len().max(1) as f64);
        row("max", &|ns| all(ns).fold(0.0, f64::max));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(slices: &[[u64; 6]]) -> Report {
        let slices = slices.iter().map(|s| Slice { reads: s[0], above: s[1..].to_vec() }).collect();
        Report {
            bounds: BOUNDS.to_vec(),
            slice_ns: 1,
            slices,
            lag_ns: 0,
            max_lag_ns: 10,
            unsent: 0,
            error: None,
        }
    }

    #[test]
    fn each_bound_of_each_slice_counts() {
        let good = [10_000, 600, 500, 400, 100, 10];
        let rule = Rule::standard();
        assert_eq!(rule.judge(&report(&[good, good])), Ok(()));
        assert_eq!(Rule::tightened().judge(&report(&[good])), Ok(()));
        assert!(matches!(
            Rule::tightened_caption().judge(&report(&[good])),
            Err(Failed::Above { slice: 1, ns: 100_000, .. })
        ));
        for (bound, ns) in [(3, 1_000_000), (4, 8_000_000), (5, 64_000_000)] {
            let mut bad = good;
            bad[bound] = 501;
            let failed = rule.judge(&report(&[good, bad])).unwrap_err();
            assert!(matches!(failed, Failed::Above { slice: 2, ns: n, .. } if n == ns), "{failed}");
        }
        assert_eq!(rule.judge(&report(&[])), Err(Failed::NothingMeasured));
        let behind = Report { lag_ns: 11, ..report(&[good]) };
        assert!(rule.judge(&behind).unwrap_err().to_string().contains("behind"));
        let broken = Report { error: Some("reads at byte 7: x".into()), ..report(&[good]) };
        assert!(rule.judge(&broken).unwrap_err().to_string().contains("byte 7"));
    }

    #[test]
    fn the_table_is_acts() {
        let table =
            report(&[[10_000, 600, 500, 400, 100, 10], [1_000, 0, 0, 0, 0, 0]]).table(&Rule::standard());
        let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["slice", "1", "8", "64"]);
        assert_eq!(rows[3], ["1", "4.00", "1.00", "0.10"]);
        assert_eq!(rows[5], ["avg", "2.00", "0.50", "0.05"]);
        assert_eq!(rows[6], ["max", "4.00", "1.00", "0.10"]);
    }
}
