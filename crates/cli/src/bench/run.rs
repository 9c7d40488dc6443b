//! `nearside bench run`: one load.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use nearside_instrument::{Call, Runner, Target, plan, words};
use nearside_loadgen::fio_job::{self, FioEngine, FioJob};
use nearside_loadgen::{Arrivals, Plan, Rw, Think, Trigger, Workload};

use super::live::Live;
use super::prepare::fill;
use super::report::{OutputArgs, Results};
use super::work::{self, DEPTH, Process, ReachArgs, Touch, WorkArgs};
use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome, complain};
use crate::interrupt::until_told;

const EXAMPLES: &str = "\
Examples:
  nearside bench run -d dram:1GiB --rate 50k --runtime 30s          # open loop: 50,000 operations per second, come what may
  nearside bench run -d dram:1GiB --iodepth 32                      # closed loop: the next when one is done
  nearside bench run -d vfio-user:/run/nearside/vm1.sock --iodepth 1   # a drive in another process
  nearside bench run -d disk.img --rate 1k --completion hybrid
  nearside bench run -d dram:1GiB --iodepth 1 --thinktime 1ms       # one user who thinks between two operations
  nearside bench run -d dram:1GiB --iodepth 32 --output-format fio-json | jq '.jobs[0].read.clat_ns.percentile'
  nearside bench run --fio-job job.fio                              # filename and ioengine from the file
  nearside bench run -d dram:1GiB --fio-job job.fio                 # the same on another target
  nearside bench run -d pread:disk.img --iodepth 1 --bs 128k --rw read

See nearside bench --help for what a TARGET is.";

/// One load, in fio's words
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES), group = ArgGroup::new("load").required(true))]
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
    #[arg(long, group = "load", value_name = "FILE", conflicts_with_all = ["rw", "bs", "rwmixread", "offset", "size", "random_distribution", "rate_process", "seed", "runtime", "steady_state", "thinktime"])]
    fio_job: Option<PathBuf>,
    #[command(flatten)]
    think: ThinkArgs,
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

/// fio's think time.
#[derive(Args)]
struct ThinkArgs {
    /// Pause so long after an operation has ended; the next is due when the pause is over
    #[arg(long, requires = "iodepth", conflicts_with = "rate", value_name = "TIME", value_parser = words::time)]
    thinktime: Option<u64>,
    /// Of the pause, burn CPU time first for so long (where the target is polled, the whole pause is)
    #[arg(long, requires = "thinktime", value_name = "TIME", value_parser = words::time)]
    thinktime_spin: Option<u64>,
    /// Pause after so many operations, when all in flight have ended [default: 1]
    #[arg(long, requires = "thinktime", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    thinktime_blocks: Option<u32>,
    /// Which operations count for that [default: complete]
    #[arg(long, requires = "thinktime", value_enum, value_name = "WHICH")]
    thinktime_blocks_type: Option<BlocksType>,
}

/// fio's `thinktime_blocks_type`.
#[derive(Clone, Copy, ValueEnum)]
enum BlocksType {
    /// Those that have ended
    Complete,
    /// Those that were started
    Issue,
}

impl ThinkArgs {
    fn think(&self) -> Option<Think> {
        let trigger = match self.thinktime_blocks_type {
            Some(BlocksType::Issue) => Trigger::Issue,
            Some(BlocksType::Complete) | None => Trigger::Complete,
        };
        let (spin_ns, blocks) = (self.thinktime_spin.unwrap_or(0), self.thinktime_blocks.unwrap_or(1));
        self.thinktime.map(|time_ns| Think { time_ns, spin_ns, blocks, trigger })
    }
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
    let mut results = Results::new(&args.output);
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
            let workload = Workload { think: args.think.think(), ..workload };
            (real, plan(&workload, arrivals(&args), args.runtime, args.work.seed), workload)
        }
    };
    let name = target.to_string();
    if real.open().fresh && !args.reach.no_fill {
        fill(&mut real, &range, &live);
    }
    let prepare = &args.reach.prepare;
    let steady = prepare.prepare(&mut real, &name, &range, args.work.seed, (&mut results, &live))?;
    live.begins(0, 1, name.clone());
    let (point, outcome) = real
        .run(&plan, &mut |generator| live.runs(generator))
        .map_err(|e| Failure::Message(format!("{name}: {e}")))?;
    drop(live);
    results.one((point, outcome), steady, "", "run.html")
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
