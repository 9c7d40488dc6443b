//! What the commands of `bench` have in common: the workload in fio's words, and opening a target for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use nearside_driver::Policy;
use nearside_instrument::{Call, Needs, Real, Target, words};
use nearside_loadgen::record::Environment;
use nearside_loadgen::run::Pace;
use nearside_loadgen::steady::PRECONDITION_BYTES;
use nearside_loadgen::{Distribution, Rw, Workload};

use super::prepare::PrepareArgs;
use crate::args::{CompletionModel, HostArgs};
use crate::failure::{Failure, complain};

/// What is done, in fio's words.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workload")]
pub struct WorkArgs {
    /// read, write, rw, randread, randwrite or randrw
    #[arg(long, default_value = "randread", value_name = "KIND")]
    pub rw: Rw,
    /// Bytes of an operation
    #[arg(long, default_value = "4k", value_name = "SIZE", value_parser = block_size)]
    pub bs: u32,
    /// Of mixed kinds, how many in a hundred are reads
    #[arg(long, default_value_t = 70, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,
    /// First byte
    #[arg(long, default_value_t = 0, value_name = "SIZE", value_parser = words::offset)]
    pub offset: u64,
    /// Bytes from there [default: all; of a drive in memory, at most 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = words::bytes)]
    pub size: Option<u64>,
    /// How random places are spread: uniform, or zipf:THETA
    #[arg(long, default_value = "uniform", value_name = "HOW", value_parser = distribution)]
    pub random_distribution: Distribution,
    /// When operations arrive in an open loop
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub rate_process: Process,
    /// Of places and arrivals
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// fio's `rate_process`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Process {
    /// Independent users: random gaps
    #[default]
    Poisson,
    /// Even gaps
    Linear,
}

/// How a target is reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Target")]
pub struct ReachArgs {
    /// What is on a file or block device may be destroyed
    #[arg(long)]
    pub destroy: bool,
    /// A file or block device through the page cache
    #[arg(long)]
    pub buffered: bool,
    /// Leave memory that was never written as it is:
    /// reads of it find one page of zeros, which stays in the CPU's cache
    #[arg(long)]
    pub no_fill: bool,
    #[command(flatten)]
    pub host: HostArgs,
    #[command(flatten)]
    pub prepare: PrepareArgs,
}

fn block_size(word: &str) -> Result<u32, String> {
    let bytes = words::bytes(word)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_multiple_of(512) && *bytes <= 1 << 20)
        .ok_or_else(|| format!("{word}: an operation has whole blocks of 512 bytes, at most 1 MiB"))
}

fn distribution(word: &str) -> Result<Distribution, String> {
    let wrong = || format!("{word:?} is neither uniform nor zipf:THETA (as zipf:1.2)");
    match word.split_once(':') {
        None if word == "uniform" => Ok(Distribution::Uniform),
        Some(("zipf", theta)) => theta.parse().map(Distribution::Zipf).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Operations in flight at most: beyond it arrivals wait in the generator, and their wait counts.
pub const DEPTH: u16 = 512;
/// The range of a drive in memory, where nothing else is said: beyond any cache, and quickly filled.
const IN_MEMORY: u64 = 1 << 30;

impl WorkArgs {
    /// The workload on a target of `capacity` bytes.
    pub fn workload(&self, capacity: u64, in_memory: bool) -> Result<Workload, Failure> {
        let room = capacity.saturating_sub(self.offset);
        if room == 0 {
            return Err(Failure::Message(format!(
                "--offset {}: the target has {capacity} bytes",
                self.offset
            )));
        }
        let usual = if in_memory { room.min(IN_MEMORY) } else { room };
        let size = self.size.unwrap_or(usual);
        if size > room {
            return Err(Failure::Message(format!(
                "--size {size} from byte {}: the target has {capacity} bytes",
                self.offset
            )));
        }
        Ok(Workload {
            offset: self.offset,
            rwmixread: self.rwmixread,
            distribution: self.random_distribution,
            ..Workload::new(self.rw, self.bs, size)
        })
    }
}

/// Today, for records.
pub fn environment() -> Environment {
    Environment::gather(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// How the run waits: as an application with this completion model does.
pub fn pace(target: &Target, completion: Option<Policy>) -> Pace {
    let sleeps = match target {
        Target::Drive(_) => completion.is_some_and(|policy| policy != Policy::Polled),
        Target::Remote(_) | Target::Process(_) => completion.is_some_and(|policy| policy != Policy::Polled),
        Target::Host(call, _) => matches!(call, Call::Uring | Call::UringHybrid),
    };
    Pace { may_sleep: sleeps, ..Pace::default() }
}

/// What a run does to its target.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The largest operation in bytes.
    pub bytes: u32,
    /// Whether it writes.
    pub write: bool,
    /// Operations in flight.
    pub depth: u16,
}

/// Opens a target; tells what a reader should know.
pub fn open(
    target: &Target,
    touch: Touch,
    reach: &ReachArgs,
    completion: Option<CompletionModel>,
    environment: &Environment,
    stop: &Arc<AtomicBool>,
) -> Result<Real, Failure> {
    let completion = completion.map(Policy::from);
    let needs = Needs {
        depth: touch.depth,
        // Memory that is empty is filled, and any target written over, in pieces of this size.
        bytes: touch.bytes.max(PRECONDITION_BYTES),
        write: touch.write || reach.prepare.precondition,
        destroy: reach.destroy,
        completion,
        buffered: reach.buffered,
    };
    let mut target = target.clone();
    target.set_options(reach.host.options()?);
    let open = target.open(needs).map_err(|e| Failure::Message(e.to_string()))?;
    for note in &open.notes {
        complain(note);
    }
    let pace = pace(&target, completion);
    Ok(Real::new(target.to_string(), open, pace, environment.clone(), stop.clone()))
}

/// Opens a target for the workload of the command line.
pub fn open_for(
    target: &Target,
    work: &WorkArgs,
    reach: &ReachArgs,
    completion: Option<CompletionModel>,
    environment: &Environment,
    stop: &Arc<AtomicBool>,
) -> Result<(Real, Workload), Failure> {
    let touch = Touch { bytes: work.bs, write: work.rw.writes(), depth: DEPTH };
    let real = open(target, touch, reach, completion, environment, stop)?;
    let workload = work.workload(real.open().capacity, real.open().fresh)?;
    Ok((real, workload))
}
