//! What goes before measuring: memory filled, flash written over, rounds until the target is steady.

use clap::Args;
use nearside_instrument::{Real, Runner, Steady, precondition, settle, words};
use nearside_loadgen::Workload;
use serde_json::json;

use super::live::Live;
use super::report::Results;
use crate::failure::{Failure, complain};

/// Before the measuring.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Preparation")]
pub struct PrepareArgs {
    /// Write the range twice over in blocks of 128 KiB first (SNIA PTS, workload-independent preconditioning)
    #[arg(long)]
    pub precondition: bool,
    /// Then work in rounds of this length, until five in a row are steady or 25
    /// have been (SNIA PTS) [without a value: 1m]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = words::time)]
    steady_state: Option<u64>,
    /// Operations in flight in these rounds
    #[arg(long, default_value_t = 32, value_name = "N", requires = "steady_state", value_parser = clap::value_parser!(u32).range(1..=512))]
    steady_depth: u32,
}

/// Fills memory that was never written: reads of it would find one page of zeros.
pub fn fill(real: &mut Real, workload: &Workload, live: &Live) {
    live.begins(0, 1, "filling the drive's memory".to_owned());
    if let Err(error) = real.fill(workload, &mut |generator| live.runs(generator)) {
        complain(&format!("the drive could not be filled: {error}"));
    }
}

impl PrepareArgs {
    /// Does what was asked for; how the target came to its steady state.
    pub fn prepare(
        &self,
        runner: &mut dyn Runner,
        name: &str,
        workload: &Workload,
        seed: u64,
        (results, live): (&mut Results<'_>, &Live),
    ) -> Result<Option<Steady>, Failure> {
        if self.precondition {
            live.begins(0, 1, format!("{name}: writing it twice over"));
            precondition(runner, workload, &mut |generator| live.runs(generator))
                .map_err(|e| Failure::Message(format!("{name}: --precondition: {e}")))?;
        }
        let Some(round_ns) = self.steady_state else { return Ok(None) };
        let begins = &mut |round, most| {
            live.begins(round, most, format!("{name}: until it is steady, round {}", round + 1))
        };
        let watch = &mut |generator: &_| live.runs(generator);
        let steady = settle(runner, workload, self.steady_depth, round_ns, seed, begins, watch)
            .map_err(|e| Failure::Message(format!("{name}: --steady-state: {e}")))?;
        results.json(
            &json!({"type": "steady", "target": name, "rounds": steady.rounds, "verdict": steady.verdict}),
        )?;
        Ok(Some(steady))
    }
}
