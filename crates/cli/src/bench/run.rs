//! `nearside bench run`: one load.

use std::io::Write;

use clap::{ArgGroup, Args};
use nearside_instrument::{Curve, Runner, Target, plan, table, words};
use nearside_loadgen::Arrivals;

use super::curve::fill;
use super::live::{Live, until_told};
use super::report::{self, OutputArgs};
use super::work::{self, Process, ReachArgs, WorkArgs};
use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome, complain};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside bench run -d dram:1GiB --rate 50k --runtime 30s          open loop: 50,000 operations per second, come what may
  nearside bench run -d dram:1GiB --iodepth 32                      closed loop: the next when one is done
  nearside bench run -d disk.img --rate 1k --completion hybrid
  nearside bench run -d pread:disk.img --iodepth 1 --bs 128k --rw read

See nearside bench --help for what a TARGET is.";

/// One load, in fio's words
#[derive(Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("load").required(true))]
pub struct RunArgs {
    /// What is measured
    #[arg(short = 'd', long = "drive", env = "NEARSIDE_TARGET", value_name = "TARGET")]
    target: Target,
    /// Open loop: operations per second
    #[arg(long, group = "load", value_name = "RATE", value_parser = words::rate)]
    rate: Option<f64>,
    /// Closed loop: operations in flight
    #[arg(long, group = "load", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    iodepth: Option<u32>,
    /// How long it is measured
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = words::time)]
    runtime: u64,
    /// How the driver of a drive in this process learns that a command is complete [default: polled]
    #[arg(long, value_enum, value_name = "MODEL")]
    completion: Option<CompletionModel>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: RunArgs) -> Outcome {
    let stop = until_told()?;
    let environment = work::environment();
    let (mut real, workload) =
        work::open(&args.target, &args.work, &args.reach, args.completion, &environment, &stop)?;
    let mut out = Out::new();
    let live = Live::new();
    fill(&mut real, &workload, &args.reach, &live);
    let arrivals = match (args.rate, args.iodepth) {
        (Some(rate), _) if args.work.rate_process == Process::Linear => Arrivals::Constant { rate },
        (Some(rate), _) => Arrivals::Poisson { rate },
        (None, depth) => Arrivals::Closed { depth: depth.unwrap_or(1) },
    };
    let plan = plan(&workload, arrivals, args.runtime, args.work.seed);
    let name = args.target.to_string();
    live.begins(0, 1, name.clone());
    let (point, outcome) = real
        .run(&plan, &mut |generator| live.runs(generator))
        .map_err(|e| Failure::Message(format!("{name}: {e}")))?;
    drop(live);
    args.output.run(&point, &outcome, &mut out)?;
    if let Some(first) = point.summary.streams.iter().find_map(|stream| stream.first_error.as_ref()) {
        complain(&format!("{name}: {first}"));
    }
    let text = table::run(&point);
    let mut curve = Curve { name, ..Curve::default() };
    if point.depth().is_some() {
        curve.depths.push(point);
    } else {
        curve.loads.push(point);
    }
    let curves = [curve];
    let page = report::write_page(&args.output.out, "run.html", "Response time", &curves)?;
    if !args.output.json {
        writeln!(out, "{text}the page with the pictures: {}", page.display())?;
    }
    out.flush()?;
    Ok(report::status(&curves))
}
