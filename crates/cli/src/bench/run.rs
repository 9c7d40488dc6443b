//! `nearside bench run`: one load.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use nearside_instrument::{Call, Curve, Runner, Target, plan, table, words};
use nearside_loadgen::fio_job::{self, FioEngine, FioJob};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};

use super::live::Live;
use super::prepare::fill;
use super::report::{self, OutputArgs};
use super::work::{self, DEPTH, Process, ReachArgs, Touch, WorkArgs};
use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome, complain};
use crate::interrupt::until_told;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside bench run -d dram:1GiB --rate 50k --runtime 30s          # open loop: 50,000 operations per second, come what may
  nearside bench run -d dram:1GiB --iodepth 32                      # closed loop: the next when one is done
  nearside bench run -d disk.img --rate 1k --completion hybrid
  nearside bench run --fio-job job.fio                              # filename and ioengine from the file
  nearside bench run -d dram:1GiB --fio-job job.fio                 # the same on another target
  nearside bench run -d pread:disk.img --iodepth 1 --bs 128k --rw read

See nearside bench --help for what a TARGET is.";

/// One load, in fio's words
#[derive(Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("load").required(true))]
pub struct RunArgs {
    /// What is measured [with --fio-job: what its filename and ioengine say]
    #[arg(
        short = 'd',
        long = "drive",
        env = "NEARSIDE_TARGET",
        value_name = "TARGET",
        required_unless_present = "fio_job"
    )]
    target: Option<Target>,
    /// Open loop: operations per second
    #[arg(long, group = "load", value_name = "RATE", value_parser = words::rate)]
    rate: Option<f64>,
    /// Closed loop: operations in flight
    #[arg(long, group = "load", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    iodepth: Option<u32>,
    /// What fio would do with this job file, in place of the workload's words
    #[arg(long, group = "load", value_name = "FILE", conflicts_with_all = ["rw", "bs", "rwmixread", "offset", "size", "random_distribution", "rate_process", "seed", "runtime", "steady_state"])]
    fio_job: Option<PathBuf>,
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
    let job = args.fio_job.as_deref().map(Job::read).transpose()?;
    let target = match (&args.target, &job) {
        (Some(target), _) => target.clone(),
        (None, Some(job)) => job.target()?,
        (None, None) => return Err(Failure::Message("no target (-d TARGET)".to_owned())),
    };
    let mut out = Out::new();
    let live = Live::new();
    let (mut real, plan, range) = match &job {
        Some(job) => {
            let buffered = args.reach.buffered || !job.asks.direct;
            let reach = ReachArgs { buffered, ..args.reach.clone() };
            let touch = job.touch()?;
            let real = work::open(&target, touch, &reach, args.completion, &environment, &stop)?;
            let plan = job.plan(real.open().capacity)?;
            let whole = whole(&plan);
            (real, plan, whole)
        }
        None => {
            let (real, workload) =
                work::open_for(&target, &args.work, &args.reach, args.completion, &environment, &stop)?;
            (real, plan(&workload, arrivals(&args), args.runtime, args.work.seed), workload)
        }
    };
    let name = target.to_string();
    if real.open().fresh && !args.reach.no_fill {
        fill(&mut real, &range, &live);
    }
    let prepare = &args.reach.prepare;
    let steady =
        prepare.prepare(&mut real, &name, &range, args.work.seed, &args.output, (&mut out, &live))?;
    live.begins(0, 1, name.clone());
    let (point, outcome) = real
        .run(&plan, &mut |generator| live.runs(generator))
        .map_err(|e| Failure::Message(format!("{name}: {e}")))?;
    drop(live);
    args.output.run(&point, &outcome, &mut out)?;
    if let Some(first) = point.first_error() {
        complain(&format!("{name}: {first}"));
    }
    let mut text = table::run(&point);
    if let Some(steady) = &steady {
        text.push_str(&format!("{}\n", steady.words()));
    }
    let mut curve = Curve { name, steady, ..Curve::default() };
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

fn arrivals(args: &RunArgs) -> Arrivals {
    match (args.rate, args.iodepth) {
        (Some(rate), _) if args.work.rate_process == Process::Linear => Arrivals::Constant { rate },
        (Some(rate), _) => Arrivals::Poisson { rate },
        (None, depth) => Arrivals::Closed { depth: depth.unwrap_or(1) },
    }
}

/// All that the streams of a plan touch.
fn whole(plan: &Plan) -> Workload {
    let ranges = || plan.streams.iter().map(|s| (s.workload.offset, s.workload.offset + s.workload.size));
    let (begin, end) = ranges().fold((u64::MAX, 0), |(b, e), (begin, end)| (b.min(begin), e.max(end)));
    Workload { offset: begin, ..Workload::new(Rw::Write, 4096, end.saturating_sub(begin)) }
}

/// fio's job file.
struct Job {
    path: PathBuf,
    text: String,
    /// As of a target beyond any size.
    asks: FioJob,
}

impl Job {
    fn read(path: &Path) -> Result<Job, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Message(format!("{}: {e}", path.display())))?;
        let asks = Job::parse(path, &text, 1 << 62)?;
        for warning in &asks.warnings {
            complain(&format!("{}: {warning}", path.display()));
        }
        if asks.verify {
            complain(&format!("{}: verify: this command checks no data", path.display()));
        }
        Ok(Job { path: path.to_owned(), text, asks })
    }

    fn parse(path: &Path, text: &str, capacity: u64) -> Result<FioJob, Failure> {
        fio_job::parse(text, capacity).map_err(|e| Failure::Message(format!("{}: {e}", path.display())))
    }

    /// What `filename` and `ioengine` say.
    fn target(&self) -> Result<Target, Failure> {
        let name = self.asks.filename.as_ref();
        let name = name.ok_or_else(|| format!("{}: no filename, and no -d TARGET", self.path.display()))?;
        let call = match self.asks.engine {
            FioEngine::IoUring if self.asks.polled => Call::UringPolled,
            FioEngine::IoUring => Call::Uring,
            FioEngine::Positioned => Call::Positioned,
            FioEngine::Mapped => Call::Mapped,
        };
        Ok(Target::Host(call, PathBuf::from(name)))
    }

    fn touch(&self) -> Result<Touch, Failure> {
        let streams = || self.asks.plan.streams.iter().map(|stream| &stream.workload);
        let depth = u16::try_from(self.asks.depth.max(DEPTH.into()));
        let depth = depth.map_err(|_| format!("{}: iodepth {}", self.path.display(), self.asks.depth))?;
        Ok(Touch {
            bytes: streams().map(Workload::largest).max().unwrap_or(0),
            write: streams().any(|workload| workload.rw.writes()),
            depth,
        })
    }

    fn plan(&self, capacity: u64) -> Result<Plan, Failure> {
        let mut plan = Job::parse(&self.path, &self.text, capacity)?.plan;
        if let Some(ns) = plan.runtime_ns {
            plan.slice_ns = (ns / 50).max(1_000);
        }
        Ok(plan)
    }
}
