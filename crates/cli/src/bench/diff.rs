//! `nearside bench diff`: two records side by side.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use nearside_instrument::diff::{Diff, Side};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside bench diff before.jsonl after.jsonl                      # what `nearside bench run --json` printed, then and now
  nearside bench diff before.jsonl after.jsonl --within 5 --json    # 5 % more or less are the same

A record is what `nearside bench` prints with --json, or one of studies/record. Runs are found in the other record by their
load and their target; where each record has one target only, that may be another one, and of another size. Several runs of one load count as
one: the median, with the interval that holds those of all. Loads that a curve chose for itself are seldom in both.

Response times are compared by their percentiles with ten samples or more beyond them, closed loops by their throughput
too. B is better or worse where the intervals do not touch; those of a single run say nothing of how much one run differs
from the next, so repeat them. Where a run is too short for an interval, nobody can say. The exit status is 0 where nothing is worse, 1 where something is, 2 at an error.";

/// Two records side by side: better, worse or the same
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct DiffArgs {
    /// The record before
    a: PathBuf,
    /// The record after
    b: PathBuf,
    /// Values that differ by so many per cent of A's, or less, are the same
    #[arg(long, default_value = "0", value_name = "PERCENT", value_parser = percent)]
    within: f64,
    /// Print one JSON object per figure and line
    #[arg(long)]
    json: bool,
}

fn percent(word: &str) -> Result<f64, String> {
    let number = word.parse::<f64>().ok().filter(|percent| (0.0..=1000.0).contains(percent));
    number.ok_or_else(|| format!("{word:?} is no percentage from 0 to 1000"))
}

fn read(path: &Path) -> Result<Side, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", path.display()));
    let text = fs::read_to_string(path).map_err(|e| failed(&e))?;
    Side::parse(&text).map_err(|e| failed(&e))
}

pub fn run(args: &DiffArgs) -> Outcome {
    let diff = Diff::of(&read(&args.a)?, &read(&args.b)?, args.within);
    if diff.rows.is_empty() {
        let (a, b) = (args.a.display(), args.b.display());
        return Err(Failure::Message(format!("{a} and {b} have no figure in common")));
    }
    let mut out = Out::new();
    if args.json {
        let wrong = |e: serde_json::Error| Failure::Message(format!("--json: {e}"));
        for row in &diff.rows {
            let mut row = serde_json::to_value(row).map_err(wrong)?;
            row["type"] = "difference".into();
            out.json(&row)?;
        }
        for (side, figures) in [("a", &diff.only_a), ("b", &diff.only_b)] {
            for figure in figures {
                out.json(&json!({"type": "alone", "side": side, "figure": figure}))?;
            }
        }
    } else {
        out.lines(&diff.table())?;
    }
    out.flush()?;
    Ok(u8::from(diff.worse()))
}
