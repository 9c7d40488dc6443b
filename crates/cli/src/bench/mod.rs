//! `nearside bench`: response time against load, on a drive in this process, one over the network,
//! a file or a block device.
//!
//! A run passes so: the words here become a [`Target`] and a workload -> [`work::Work::start`]
//! opens it -> [`nearside_instrument`] measures, [`live`] shows how far it is -> [`report`]
//! writes the table, JSON lines, and the page.

mod compare;
pub mod curve;
mod diff;
pub mod live;
pub mod prepare;
mod replay;
pub mod report;
mod run;
pub mod work;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

const TARGETS: &str = "\
Targets:
  dram:1GiB  delayed:10us:dram:1GiB   a drive in this process over a store (any store word)
  model:nand-p3700:16GiB              ... over a device with its own response times (`nearside attach --help` lists them)
  nvme+tcp://HOST:PORT/NQN/NSID       a namespace of an NVMe/TCP target, by this program's own initiator
  vfio-user:PATH                      an NVMe function in another process (a vfio-user server's socket), by this program's own driver
  disk.img  file:/dev/sdb             a drive in this process over an image file or a block device
  uring:PATH                          a file or block device by io_uring, completions by interrupt
  uring-iopoll:PATH                   ... polled (a device with polled queues)
  uring-hybrid:PATH                   ... polled after a sleep (Linux 6.13)
  pread:PATH  mmap:PATH               by positioned reads and writes, or by a mapping

Files and devices are opened read-only unless the workload writes; what is in use or not empty is then refused without --destroy. Ctrl-C ends a run; what was measured so far is
shown. Percentiles with fewer than ten samples beyond them are marked (?).";

/// Measure response time against load
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(TARGETS))]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Response time at one load after another, up to what the target can do
    Curve(curve::CurveArgs),
    /// One load, in fio's words
    Run(run::RunArgs),
    /// A trace at the times at which it was recorded
    Replay(replay::ReplayArgs),
    /// Two records side by side: better, worse or the same
    Diff(diff::DiffArgs),
    /// Several targets, or completion models, on one picture
    Compare(compare::CompareArgs),
}

pub fn run(args: BenchArgs) -> Outcome {
    match args.what {
        What::Curve(a) => curve::run(a),
        What::Run(a) => run::run(a),
        What::Replay(a) => replay::run(a),
        What::Diff(a) => diff::run(&a),
        What::Compare(a) => compare::run(a),
    }
}
