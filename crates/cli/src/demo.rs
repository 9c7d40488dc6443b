//! `nearside demo`: the papers' system in three acts.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  nearside demo                   # about a minute; volumes of 20,000 files are made in ./out
  nearside demo --small           # some seconds, with less data
  nearside demo --out /tmp/acts   # elsewhere

It prints tables and writes OUT/demo.html, one page with the pictures. As root on a machine with FUSE and loop devices the
third act runs under this machine's own kernel; otherwise it replays a recorded kernel's writes.";

/// The papers' system in three acts, with tables and a page of pictures
#[derive(Args, Debug)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct DemoArgs {
    /// Where the page and the volumes go.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Less data and fewer rounds.
    #[arg(long)]
    small: bool,
}

/// Runs it.
pub fn run(args: DemoArgs) -> Outcome {
    nearside_demo::run(&args.out, args.small)
        .map_err(|e| Failure::Message(format!("the demo stopped: {e}")))?;
    Ok(0)
}
