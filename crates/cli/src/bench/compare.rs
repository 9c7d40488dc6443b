//! `nearside bench compare`: several targets, or completion models, on the same pictures.

use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use nearside_instrument::Target;

use super::curve::{self, SweepArgs};
use super::live::Live;
use super::report::{self, OutputArgs, Results};
use super::work::{self, ReachArgs, WorkArgs};
use crate::args::CompletionModel;
use crate::failure::Outcome;
use crate::interrupt::until_told;

const EXAMPLES: &str = "\
Examples:
  nearside bench compare dram:1GiB delayed:10us,units=8:dram:1GiB
  nearside bench compare dram:1GiB --completion polled,interrupt,hybrid
  nearside bench compare dram:1GiB vfio-user:/run/nearside/vm1.sock    # what another process costs
  nearside bench compare uring:disk.img pread:disk.img mmap:disk.img disk.img
  nearside bench compare uring:/dev/nvme0n1 uring-iopoll:/dev/nvme0n1 --runtime 30s

See nearside bench --help for what a TARGET is.";

/// Several targets, or completion models, on one picture
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct CompareArgs {
    /// What is measured
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<Target>,
    /// How the drivers of drives in this process learn that a command is complete; several:
    /// each target with each
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODEL,...")]
    completion: Vec<CompletionModel>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    sweep: SweepArgs,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl CompareArgs {
    /// Each target with each model that it can have.
    fn pairs(&self) -> Vec<(String, &Target, Option<CompletionModel>)> {
        let mut pairs = Vec::new();
        for target in &self.targets {
            if self.completion.is_empty() || matches!(target, Target::Host(..)) {
                pairs.push((target.to_string(), target, None));
                continue;
            }
            for model in &self.completion {
                let word = model.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
                let name = if self.completion.len() == 1 {
                    target.to_string()
                } else if self.targets.len() == 1 {
                    word
                } else {
                    format!("{target}, {word}")
                };
                pairs.push((name, target, Some(*model)));
            }
        }
        pairs
    }
}

pub fn run(args: CompareArgs) -> Outcome {
    let stop = until_told()?;
    let environment = work::environment();
    let mut results = Results::new(&args.output);
    let pairs = args.pairs();
    let live = Live::new();
    let mut curves = Vec::new();
    for (index, (name, target, model)) in pairs.iter().enumerate() {
        let (mut real, workload) =
            work::open_for(target, &args.work, &args.reach, *model, &environment, &stop)?;
        let what = (workload, &args.work, &args.sweep, &args.reach);
        let nth = (index, pairs.len());
        curves.push(curve::one(&mut real, name, what, (&mut results, &live), nth)?);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    drop(live);
    report::show(&curves, "compare.html", "Response time against load", results)
}
