//! The program `nearside-ballista`: SQL over many drives on a cluster of Ballista's.
//!
//! How a query passes: `sql` plans it over tables of drives, as `nearside sql` does, and hands the plan to a
//! scheduler -> the scheduler (`cluster`) cuts it into tasks, one for each drive where drives are asked ->
//! executors take them, open their drives by the words that stand in them, and ask.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use nearside_cli::program::{Outcome, exit, explain, flowing};
use nearside_sql::program::of_several;

mod address;
mod cluster;
mod engine;
mod executor;
mod launcher;
mod scheduler;
mod sql;

const EXAMPLES: &str = "\
Examples:
  nearside-ballista scheduler --listen 10.0.0.1:50050
  nearside-ballista executor --scheduler 10.0.0.1:50050 --listen 10.0.0.2:50051
  nearside-ballista sql --scheduler 10.0.0.1:50050 -d nvme+tcp://10.0.1.1:4420/NQN/1 -d nvme+tcp://10.0.1.2:4420/NQN/1 \
\"select drive, count(*) from lines('/var/log/**') where text like '%ERROR%' group by drive\"
  nearside-ballista sql --scheduler 10.0.0.1:50050 -d discover:10.0.1.1 \"select drive, count(*) from files group by drive\"

Whoever reaches a scheduler or an executor has it read what its user may read, drives and files: they listen on \
loopback unless told otherwise, and elsewhere belong into a network of which all is trusted. docs/SQL.md says more.";

/// SQL over many drives, on a cluster: a scheduler, executors that ask the drives, and queries
#[derive(Parser)]
#[command(name = "nearside-ballista", version, max_term_width = 100, args_override_self = true, after_long_help = flowing(EXAMPLES))]
struct Cli {
    /// Say on standard error what the cluster does
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take queries, and give their tasks to executors; ends by a signal
    Scheduler(scheduler::SchedulerArgs),
    /// Do tasks: ask drives, and make groups, joins and orders of their answers; ends by a signal
    Executor(executor::ExecutorArgs),
    /// Ask drives in SQL, as `nearside sql` does, by a cluster
    Sql(Box<sql::SqlArgs>),
}

fn run() -> Outcome {
    let read = Cli::command().mut_subcommand("sql", of_several).try_get_matches();
    let read = read.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(said) => return explain(&said),
    };
    if cli.verbose {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    }
    match (cli.command, matches.subcommand()) {
        (Command::Scheduler(args), _) => scheduler::run(&args),
        (Command::Executor(args), _) => executor::run(&args),
        (Command::Sql(args), Some((_, matches))) => sql::run(&args, matches),
        (Command::Sql(_), None) => unreachable!("a command has its words"),
    }
}

fn main() -> ExitCode {
    exit(run())
}
