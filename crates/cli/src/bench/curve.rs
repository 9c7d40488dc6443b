//! `nearside bench curve`: one target, one load after another.

use clap::Args;
use nearside_instrument::{Ask, Curve, Real, Target, words};
use nearside_loadgen::Workload;

use super::live::Live;
use super::prepare::fill;
use super::report::{self, OutputArgs, Results};
use super::work::{self, Process, ReachArgs, WorkArgs};
use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome};
use crate::interrupt::until_told;

const EXAMPLES: &str = "\
Examples:
  nearside bench curve -d model:optane-p4800x:16GiB               # about half a minute; table, and out/curve.html
  nearside bench curve -d model:optane-p4800x:16GiB --percentile 99.999   # 20 samples beyond it at each load
  nearside bench curve -d dram:1GiB --completion interrupt
  nearside bench curve -d vfio-user:/run/nearside/vm1.sock         # a drive in another process, ours or SPDK's
  nearside bench curve -d delayed:10us,units=8:dram:1GiB --rw randrw --rwmixread 70
  nearside bench curve -d uring:/dev/nvme0n1 --runtime 30s        # reads only: nothing is destroyed
  nearside bench curve -d uring:scratch.img --rw randwrite --destroy
  nearside bench curve -d model:nand-p3700:4GiB --rw randwrite --precondition --steady-state=10s
  nearside bench curve -d dram:1GiB --json | jq '[.throughput, .all.response.mean_ns]'

See nearside bench --help for what a TARGET is.";

/// Response time at one load after another, up to what the target can do
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct CurveArgs {
    /// What is measured
    #[arg(short = 'd', long = "drive", env = "NEARSIDE_TARGET", value_name = "TARGET")]
    target: Target,
    /// How the driver of a drive in this process learns that a command is complete [default: polled]
    #[arg(long, value_enum, value_name = "MODEL")]
    completion: Option<CompletionModel>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    sweep: SweepArgs,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How many loads, and how long each.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Curve")]
pub struct SweepArgs {
    /// How long each load is measured
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = words::time)]
    runtime: u64,
    /// Measure each load on, for a minute at most, until 20 samples lie beyond this percentile
    #[arg(long, value_name = "PERCENT", value_parser = words::percent)]
    percentile: Option<f64>,
    /// How many loads
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    loads: u16,
    /// Queue depths of the closed loops that go before
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128", value_name = "N,...", value_parser = clap::value_parser!(u32).range(1..=512))]
    depths: Vec<u32>,
}

/// Longest time that a load is measured for the sake of a percentile.
const MOST_NS: u64 = 60_000_000_000;

impl SweepArgs {
    /// What is asked for.
    pub fn ask(&self, workload: Workload, work: &WorkArgs) -> Ask {
        Ask {
            workload,
            constant: work.rate_process == Process::Linear,
            least_ns: self.runtime,
            percent: self.percentile.unwrap_or(50.0),
            most_ns: if self.percentile.is_some() { MOST_NS.max(self.runtime) } else { self.runtime },
            depths: in_order(&self.depths),
            loads: self.loads.into(),
            seed: work.seed,
        }
    }
}

/// Each once, rising.
pub fn in_order(depths: &[u32]) -> Vec<u32> {
    let mut depths = depths.to_vec();
    depths.sort_unstable();
    depths.dedup();
    depths
}

pub fn run(args: CurveArgs) -> Outcome {
    let stop = until_told()?;
    let environment = work::environment();
    let (mut real, workload) =
        work::open_for(&args.target, &args.work, &args.reach, args.completion, &environment, &stop)?;
    let mut results = Results::new(&args.output);
    let name = args.target.to_string();
    let live = Live::new();
    let curve = one(
        &mut real,
        &name,
        (workload, &args.work, &args.sweep, &args.reach),
        (&mut results, &live),
        (0, 1),
    )?;
    drop(live);
    report::show(&[curve], "curve.html", "Response time against load", results)
}

/// Prepares a target and measures its curve, the `nth` of so many.
pub fn one(
    real: &mut Real,
    name: &str,
    (workload, work, sweep, reach): (Workload, &WorkArgs, &SweepArgs, &ReachArgs),
    (results, live): (&mut Results<'_>, &Live),
    nth: (usize, usize),
) -> Result<Curve, Failure> {
    if real.open().fresh && !reach.no_fill {
        fill(real, &workload, live);
    }
    let steady = reach.prepare.prepare(real, name, &workload, work.seed, (&mut *results, live))?;
    let curve = report::curve(real, name, &sweep.ask(workload, work), results, live, nth)?;
    Ok(Curve { steady, ..curve })
}
