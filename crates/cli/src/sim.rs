//! `nearside sim`: the same curves in simulated time, for models of media.
//! The same seed gives the same bytes.

use clap::{Args, Subcommand};
use nearside_instrument::{Ask, Curve, Simulated, medium, words};

use nearside_loadgen::steady::PRECONDITION_BYTES;

use crate::bench::curve::in_order;
use crate::bench::live::Live;
use crate::bench::prepare::PrepareArgs;
use crate::bench::report::{self, OutputArgs, Results};
use crate::bench::work::{Process, WorkArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::until_told;

const EXAMPLES: &str = "\
Examples:
  nearside sim curve --media optane-p4800x --seed 7
  nearside sim curve --media nand-p3700 --rw randrw --rwmixread 70
  nearside sim curve --media sas,drives=4/optane-p4800x --rw randrw --rwmixread 70
  nearside sim curve --media own,80us,units=64 --percentile 99.999      # 20 samples beyond it at each load
  nearside sim curve --media dram-gen2 --json > one; nearside sim curve --media dram-gen2 --json | cmp - one";

/// Measure models of media in simulated time
#[derive(Args)]
pub struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Response time at one load after another, up to what the model can do
    Curve(CurveArgs),
}

/// Response time at one load after another, up to what the model can do
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(&help()))]
struct CurveArgs {
    /// The model, with options (see below)
    #[arg(long, value_name = "MEDIUM")]
    media: String,
    /// Bytes of the drive
    #[arg(long, default_value = "16GiB", value_name = "SIZE", value_parser = words::bytes)]
    capacity: u64,
    /// Flash that was never written, instead of flash near its steady state
    #[arg(long)]
    fresh: bool,
    /// The medium alone, without drive and driver: the same times, sooner
    #[arg(long)]
    bare: bool,
    /// What the host's software adds to each response (PIEEE'17: less than 4us) [default: nothing]
    #[arg(long, value_name = "TIME", value_parser = words::time, conflicts_with = "bare")]
    software: Option<u64>,
    /// Measure each load until 20 samples lie beyond this percentile
    #[arg(long, default_value = "99.99", value_name = "PERCENT", value_parser = words::percent)]
    percentile: f64,
    /// How many loads
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    loads: u16,
    /// Queue depths of the closed loops that go before
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128", value_name = "N,...", value_parser = clap::value_parser!(u32).range(1..=512))]
    depths: Vec<u32>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    prepare: PrepareArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The models by name, and examples.
fn help() -> String {
    format!("{}\n{EXAMPLES}", nearside_embedded::models_help())
}

pub fn run(args: SimArgs) -> Outcome {
    match args.what {
        What::Curve(args) => curve(&args),
    }
}

/// Simulated time that one load may take: the slowest model needs so long for its far percentiles.
const MOST_NS: u64 = 3_600_000_000_000;
/// Simulated time that one load takes at least.
const LEAST_NS: u64 = 50_000_000;

fn curve(args: &CurveArgs) -> Outcome {
    let stop = until_told()?;
    let name = &args.media;
    let medium = medium(name, args.capacity, args.fresh, args.work.seed)
        .map_err(|e| Failure::Message(format!("--media {name}: {e}")))?;
    let workload = args.work.workload(args.capacity, false)?;
    let largest = if args.prepare.precondition { args.work.bs.max(PRECONDITION_BYTES) } else { args.work.bs };
    let mut runner = if args.bare {
        Simulated::bare(name, medium, stop)
    } else {
        Simulated::drive(name, medium, args.capacity, largest, args.software.unwrap_or(0), stop)
            .map_err(|e| Failure::Message(format!("--capacity {}: {e}", args.capacity)))?
    };
    let ask = Ask {
        workload,
        constant: args.work.rate_process == Process::Linear,
        least_ns: LEAST_NS,
        percent: args.percentile,
        most_ns: MOST_NS,
        depths: in_order(&args.depths),
        loads: args.loads.into(),
        seed: args.work.seed,
    };
    let mut results = Results::new(&args.output);
    let live = Live::new();
    let steady = args.prepare.prepare(&mut runner, name, &ask.workload, ask.seed, (&mut results, &live))?;
    let curve = report::curve(&mut runner, name, &ask, &mut results, &live, (0, 1))?;
    drop(live);
    let curve = Curve { steady, ..curve };
    report::show(&[curve], "sim.html", &format!("{name} in simulated time"), results)
}
