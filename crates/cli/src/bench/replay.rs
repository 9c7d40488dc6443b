//! `nearside bench replay`: what a trace recorded, at the times at which it was.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use nearside_instrument::{Runner, Target, words};
use nearside_loadgen::trace::{Event, Format, Mapping, Onto, Source, Survey, Trace, survey};
use nearside_loadgen::{Rw, Workload};
use serde_json::{Value, json};

use super::live::Live;
use super::prepare::fill;
use super::report::{OutputArgs, Results};
use super::work::{self, DEPTH, ReachArgs, Touch};
use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome, complain};
use crate::interrupt::until_told;

const EXAMPLES: &str = "\
Examples:
  nearside bench replay trace.log -d dram:1GiB                      # its format by its beginning
  nearside bench replay trace.csv -d model:optane-p4800x:1GiB --scale 10 --map wrap
  nearside bench replay trace.csv -d uring:scratch.img --map scale --destroy --json

Formats:
  fio-iolog  fio's --write_iolog, versions 2 and 3
  blkparse   what blkparse prints without -f
  blktrace   what blktrace writes, of one CPU or put together by `blkparse -d`
  msr        MSR Cambridge: timestamp,hostname,disk,type,offset,size,response

The first operation is due at once, each other one as long after it as it was recorded, whatever the target does: a
response time runs from then. The file is read twice and never held in memory. Trims and flushes are passed over.
An operation grows to whole blocks of the target; one beyond 1 MiB becomes several that are due at once. What has not
been sent when as much time again has passed, 10 s at least, is counted as never sent.

See nearside bench --help for what a TARGET is.";

/// A trace at the times at which it was recorded
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct ReplayArgs {
    /// The trace
    trace: PathBuf,
    /// What it is replayed on
    #[arg(short = 'd', long = "drive", env = "NEARSIDE_TARGET", value_name = "TARGET")]
    target: Target,
    /// The trace's format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: FormatWord,
    /// Divide recorded times by this: 2 is twice as fast
    #[arg(long, default_value = "1", value_name = "X", value_parser = scale)]
    scale: f64,
    /// How its offsets become the target's
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    map: MapWord,
    /// Which of blktrace's events is an operation
    #[arg(long, value_enum, default_value_t, value_name = "EVENT")]
    event: EventWord,
    /// Of a trace with several devices the one that counts, as the trace names it: 8,0, hm.1, /dev/sdb
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Replay no more than this [default: all of it]
    #[arg(long, value_name = "TIME", value_parser = words::time)]
    runtime: Option<u64>,
    /// How the driver of a drive in this process learns that a command is complete [default: polled]
    #[arg(long, value_enum, value_name = "MODEL")]
    completion: Option<CompletionModel>,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FormatWord {
    /// By how the file begins
    #[default]
    Auto,
    FioIolog,
    Blkparse,
    Blktrace,
    Msr,
}

impl From<FormatWord> for Option<Format> {
    fn from(word: FormatWord) -> Option<Format> {
        match word {
            FormatWord::Auto => None,
            FormatWord::FioIolog => Some(Format::FioIolog),
            FormatWord::Blkparse => Some(Format::Blkparse),
            FormatWord::Blktrace => Some(Format::Blktrace),
            FormatWord::Msr => Some(Format::Msr),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum MapWord {
    /// As they are; one that ends beyond the target is an error
    #[default]
    Fail,
    /// Modulo the target's size; what would pass its end lies before it
    Wrap,
    /// By the ratio of the target's size to where the trace's farthest operation ends
    Scale,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum EventWord {
    /// Q: as the application asked
    #[default]
    Queue,
    /// D: as the driver got it, after merging
    Issue,
}

fn scale(word: &str) -> Result<f64, String> {
    let number = word.parse::<f64>().ok().filter(|scale| (1e-6..=1e6).contains(scale));
    number.ok_or_else(|| format!("{word:?} is no number from 0.000001 to 1000000"))
}

/// Bytes of an operation at most.
const LARGEST: u64 = 1 << 20;
/// What a trace's first and last block may add to an operation, on any target.
const EDGES: u64 = 8192;

pub fn run(args: ReplayArgs) -> Outcome {
    let stop = until_told()?;
    let environment = work::environment();
    let mut results = Results::new(&args.output);
    let live = Live::new();
    let event = if args.event == EventWord::Queue { Event::Queue } else { Event::Issue };
    let failed = |e: nearside_loadgen::trace::TraceError| Failure::Message(e.to_string());
    let source = Source::find(&args.trace, args.format.into(), event, args.device.clone()).map_err(failed)?;
    live.begins(0, 2, format!("reading {}", args.trace.display()));
    let found = survey(&source, |operations| {
        live.counts(operations);
        !stop.load(Ordering::Relaxed)
    });
    let found = found.map_err(failed)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let largest = (found.largest + EDGES).next_multiple_of(4096).min(LARGEST) as u32;
    let touch = Touch { bytes: largest, write: found.writes > 0, depth: DEPTH };
    let mut real = work::open(&args.target, touch, &args.reach, args.completion, &environment, &stop)?;
    let (capacity, block_size) = (real.open().capacity, real.open().block_size);
    let mapping = match args.map {
        MapWord::Fail => Mapping::Fail,
        MapWord::Wrap => Mapping::Wrap,
        MapWord::Scale => Mapping::Scale,
    };
    let onto = Onto { scale: args.scale, mapping, capacity, block_size, largest };
    let trace = Trace::new(source, &found, onto).map_err(failed)?;
    let plan = trace.plan(&found, args.runtime);
    let name = args.target.to_string();
    let range = Workload::new(Rw::Write, block_size, touched(&trace, &found));
    if real.open().fresh && !args.reach.no_fill {
        fill(&mut real, &range, &live);
    }
    let steady = args.reach.prepare.prepare(&mut real, &name, &range, plan.seed, (&mut results, &live))?;
    results.json(&described(&trace, &found)?)?;
    live.begins(1, 2, name.clone());
    let (point, outcome) = real
        .run(&plan, &mut |generator| live.runs(generator))
        .map_err(|e| Failure::Message(format!("{name}: {e}")))?;
    drop(live);
    let broken = outcome.streams.iter().find_map(|stream| stream.trace_error.clone());
    let status = results.one((point, outcome), steady, &in_words(&trace, &found), "replay.html")?;
    broken.map_or(Ok(status), |error| Err(failed(error)))
}

/// Bytes from the target's begin that a replay can touch.
fn touched(trace: &Trace, found: &Survey) -> u64 {
    match trace.mapping {
        Mapping::Fail => found.span.next_multiple_of(trace.block_size.into()).min(trace.capacity),
        Mapping::Wrap | Mapping::Scale => trace.capacity,
    }
}

/// What a trace has, as a line of JSON.
fn described(trace: &Trace, found: &Survey) -> Result<Value, Failure> {
    let wrong = |e: serde_json::Error| Failure::Message(format!("--json: {e}"));
    let trace = serde_json::to_value(trace).map_err(wrong)?;
    let found = serde_json::to_value(found).map_err(wrong)?;
    Ok(json!({"type": "trace", "trace": trace, "found": found}))
}

/// The same for people.
fn in_words(trace: &Trace, found: &Survey) -> String {
    let recorded = (found.last_ns - found.first_ns) as f64;
    if recorded == 0.0 && found.reads + found.writes > 1 {
        complain(&format!("{}: it has no times: all is due at once", trace.source.path.display()));
    }
    format!(
        "{} ({}): {} reads and {} writes of {} bytes in {}, replayed {} times as fast; {} trims, flushes and empty \
         operations passed over, {} put in order\n",
        trace.source.path.display(),
        trace.source.format.name(),
        found.reads,
        found.writes,
        found.bytes,
        words::show_time(recorded),
        trace.scale,
        found.others,
        found.out_of_order
    )
}
