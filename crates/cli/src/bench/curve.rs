//! `nearside bench curve`: one target, one load after another.

use std::io::Write;

use clap::Args;
use nearside_instrument::{Ask, Bound, Curve, Event, Real, Target, measure, table, words};
use nearside_loadgen::Workload;

use super::live::{INTERRUPTED, Live, until_told};
use super::report::{self, OutputArgs};
use super::work::{self, Process, ReachArgs, WorkArgs};
use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome, complain};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside bench curve -d dram:1GiB                               about half a minute; table, and out/curve.html
  nearside bench curve -d dram:1GiB --completion interrupt
  nearside bench curve -d delayed:10us,units=8:dram:1GiB --rw randrw --rwmixread 70
  nearside bench curve -d uring:/dev/nvme0n1 --runtime 30s        reads only: nothing is destroyed
  nearside bench curve -d uring:scratch.img --rw randwrite --destroy
  nearside bench curve -d dram:1GiB --json | jq '[.throughput, .all.response.mean_ns]'

See nearside bench --help for what a TARGET is.";

/// Response time at one load after another, up to what the target can do
#[derive(Args)]
#[command(after_help = EXAMPLES)]
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
    pub runtime: u64,
    /// How many loads
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub loads: u16,
    /// Queue depths of the closed loops that go before
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128", value_name = "N,...", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub depths: Vec<u32>,
}

impl SweepArgs {
    /// What is asked for.
    pub fn ask(&self, workload: Workload, work: &WorkArgs) -> Ask {
        let mut depths = self.depths.clone();
        depths.sort_unstable();
        depths.dedup();
        Ask {
            workload,
            constant: work.rate_process == Process::Linear,
            bound: Bound::Time(self.runtime),
            depth_bound: Bound::Time((self.runtime / 4).max(1_000_000)),
            depths,
            loads: self.loads.into(),
            seed: work.seed,
        }
    }
}

/// Fills memory that was never written.
pub fn fill(real: &mut Real, workload: &Workload, reach: &ReachArgs, live: &Live) {
    if !real.open().fresh || reach.no_fill {
        return;
    }
    live.begins(0, 1, "filling the drive's memory".to_owned());
    if let Err(error) = real.fill(workload, &mut |generator| live.runs(generator)) {
        complain(&format!("the drive could not be filled: {error}"));
    }
}

pub fn run(args: CurveArgs) -> Outcome {
    let stop = until_told()?;
    let environment = work::environment();
    let (mut real, workload) =
        work::open(&args.target, &args.work, &args.reach, args.completion, &environment, &stop)?;
    let mut out = Out::new();
    let name = args.target.to_string();
    let live = Live::new();
    fill(&mut real, &workload, &args.reach, &live);
    let ask = args.sweep.ask(workload, &args.work);
    let mut failed = Ok(());
    let curve = measure(&mut real, &name, &ask, &mut |event| {
        live.event(&event, &name, 0, 1);
        if let (Event::Ended(point), true, true) = (&event, args.output.json, failed.is_ok()) {
            failed = report::json(point, &mut out);
        }
    })
    .map_err(|e| Failure::Message(format!("{name}: {e}")))?;
    drop(live);
    failed?;
    let interrupted = nearside_instrument::Runner::stopped(&real);
    let curves = [curve];
    let page = report::write_page(&args.output.out, "curve.html", "Response time against load", &curves)?;
    let [curve] = &curves;
    show(curve, &mut out, &args.output, &page)?;
    Ok(status(&curves, interrupted))
}

/// The table and where the page is.
pub fn show(
    curve: &Curve,
    out: &mut Out,
    output: &OutputArgs,
    page: &std::path::Path,
) -> Result<(), Failure> {
    for note in &curve.notes {
        complain(&format!("{}: {note}", curve.name));
    }
    if !output.json {
        write!(out, "{}", table::curve(curve))?;
        writeln!(out, "the page with the pictures: {}", page.display())?;
    }
    Ok(out.flush()?)
}

/// 1 where an operation failed, as what was measured is not what was asked.
pub fn status(curves: &[Curve], interrupted: bool) -> u8 {
    match curves.iter().flat_map(Curve::points).any(|point| point.summary.errors > 0) {
        _ if interrupted => INTERRUPTED,
        true => 1,
        false => 0,
    }
}
