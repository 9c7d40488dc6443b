//! The program `nearside-sql`, which `nearside sql` starts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::{CommandFactory, FromArgMatches, Parser};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use nearside_cli::program::{
    DriveArgs, Failure, Form, Outcome, Progress, complain, complain_of, exit, flowing, session, to_cancel,
};
use nearside_fsrlib::{Failure as Refusal, Seen, Session, Transport};
use nearside_sql::{Drives, Options, Way, context, images, only_asked};

mod written;

use written::Written;

const EXAMPLES: &str = "\
Examples:
  nearside sql -d disk.img \"select kind, count(*), sum(size) from files where path like '/usr/%' group by kind\"
  nearside sql -d disk.img \"select path, line, text from lines('/var/log/**') where text ~ 'ERROR|FATAL' limit 20\"
  nearside sql -d disk.img \"select city, avg(price) from csv('/var/data/trips.csv') where price > 10 group by city\"
  nearside sql -d disk.img -d other.img \"select drive, sum(size) from files group by drive\"
  nearside sql -d images/ \"select drive, count(*) from lines('/var/log/**') where text like '%ERROR%' group by drive\"
  nearside sql -d disk.img \"explain select count(*) from parquet('/var/data/trips.parquet') where price >= 99\"
  nearside sql -d disk.img --file report.sql --output csv > report.csv

Tables: files; lines('/path'), csv('/path'), tsv('/path'), json('/path') (an object on each line) and parquet('/path'), of one file, of \
those that a pattern matches ('/data/*.csv'), or of all below a directory ('/data/**'). With several drives each table has a part of \
each, and a column drive; a folder is all images in it. docs/SQL.md has the columns, the options of tables ('no-header', 'delimiter=;', 'schema=id utf8'), and what \
is worked out in the drives; explain shows it of a query. Exit status: 0 all was answered, 1 something could not be read, 2 an error.";

/// Warnings that are said.
const MOST_WARNINGS: usize = 1024;
/// A condition of many parts is walked down part by part.
const STACK: usize = 64 << 20;
/// More than any query has scans, of any number of drives.
const MOST_THREADS: usize = 1 << 16;

/// Ask drives in SQL: files, lines, and rows of CSV, JSON lines and Parquet
///
/// What a drive can do exactly (columns, conditions, limits, groups) it does, and the rest is done here, by
/// DataFusion.
#[derive(Parser)]
#[command(name = "nearside sql", version, max_term_width = 100, args_override_self = true, after_long_help = flowing(EXAMPLES))]
struct Cli {
    /// A query: SELECT, or EXPLAIN and a query
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    query: Option<String>,
    /// The query is in this file; -: on standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<String>,
    /// How the answer is written [default: a table on a terminal, else csv]
    #[arg(long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    /// Most memory for what is done here, in MiB: what is sorted or put into groups beyond that goes to
    /// temporary files
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..))]
    memory: u32,
    /// Have drives answer all rows, and do all else here: to compare
    #[arg(long)]
    no_push_down: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What is said of all drives.
#[derive(Debug, Default)]
struct Said {
    /// Once each.
    warnings: Mutex<BTreeSet<String>>,
    failed: AtomicBool,
    /// How far each session has come.
    seen: Mutex<Vec<Arc<Seen>>>,
}

/// A drive by its name on the command line.
#[derive(Debug)]
struct Named {
    name: String,
    /// There are others: what is said of it begins with its name.
    several: bool,
    args: DriveArgs,
    said: Arc<Said>,
}

/// Whatever panicked held it for a moment, and left it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Said {
    /// Files and bytes.
    fn so_far(&self) -> (u64, u64) {
        let seen = lock(&self.seen);
        seen.iter().map(|seen| seen.get()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

impl Way for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self) -> Result<Session<Box<dyn Transport>>, String> {
        let session = session(&self.args).map_err(|failure| failure.to_string())?;
        lock(&self.said.seen).push(session.seen());
        Ok(session)
    }

    fn warn(&self, text: &str) {
        let warning = match self.several {
            true => format!("warning: {}: {text}", self.name),
            false => format!("warning: {text}"),
        };
        let mut said = lock(&self.said.warnings);
        if said.len() < MOST_WARNINGS && said.insert(warning.clone()) {
            complain(&warning);
        }
    }

    fn failed(&self, path: &[u8], failure: &Refusal) -> Result<(), String> {
        self.said.failed.store(true, Ordering::Relaxed);
        let path = match self.several {
            true => [self.name.as_bytes(), b": ", path].concat(),
            false => path.to_vec(),
        };
        complain_of(&path, failure);
        Ok(())
    }
}

/// The command line: `-d` may stand several times.
fn command() -> clap::Command {
    let only_of_others = ["mounted", "glob", "locate", "compute", "host_cache", "timing", "threads"];
    let command = Cli::command().mut_arg("drive", |drive| drive.action(clap::ArgAction::Append));
    only_of_others
        .into_iter()
        .fold(command, |command, name| command.mut_arg(name, |option| option.hide(true)))
}

fn query_of(cli: &Cli) -> Result<String, Failure> {
    let mut text = String::new();
    match (&cli.query, cli.file.as_deref()) {
        (Some(query), _) => query.clone_into(&mut text),
        (None, Some("-") | None) => {
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::Message(format!("standard input: {error}")))?;
        }
        (None, Some(file)) => {
            text = std::fs::read_to_string(file)
                .map_err(|error| Failure::Message(format!("{file}: {error}")))?;
        }
    }
    Ok(text)
}

fn drives(cli: &Cli, names: Vec<OsString>, said: &Arc<Said>) -> Result<Drives, Failure> {
    let args = &cli.drive;
    let default = <DriveDefaults as Parser>::parse_from(["", "-d", "x"]).drive;
    let others = args.mounted || args.glob || args.timing || args.host_cache || args.threads.is_some();
    if others || (args.locate, args.compute) != (default.locate, default.compute) {
        let what = "--mounted, --glob, --timing, --threads, --locate, --compute and --host-cache are not of this command";
        return Err(Failure::Message(what.to_owned()));
    }
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        match images(Path::new(&name)) {
            None => all.push(name),
            Some(Ok(images)) if images.is_empty() => {
                let why = "no image in this folder (.img, .raw, .qcow2, .gz, .zst)";
                return Err(Failure::Message(format!("{}: {why}", name.display())));
            }
            Some(Ok(images)) => all.extend(images.into_iter().map(OsString::from)),
            Some(Err(error)) => return Err(Failure::Message(format!("{}: {error}", name.display()))),
        }
    }
    let names = all;
    let several = names.len() > 1;
    let mut known = BTreeSet::new();
    let named = names.into_iter().map(|drive| {
        if !known.insert(drive.clone()) {
            return Err(Failure::Message(format!("{}: named twice", drive.to_string_lossy())));
        }
        let name = drive.to_string_lossy().into_owned();
        let args = DriveArgs { drive, ..args.clone() };
        Ok(Arc::new(Named { name, several, args, said: said.clone() }) as Arc<dyn Way>)
    });
    named.collect()
}

/// The drive's options by themselves.
#[derive(Parser)]
struct DriveDefaults {
    #[command(flatten)]
    drive: DriveArgs,
}

async fn answer(cli: &Cli, drives: Drives, mut progress: Progress) -> Result<(), Failure> {
    let failed = |error: datafusion::error::DataFusionError| Failure::Message(error.strip_backtrace());
    let query = query_of(cli)?;
    let options = Options { push_down: !cli.no_push_down, ..Options::default() };
    let pool = Arc::new(FairSpillPool::new((cli.memory as usize) << 20));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().map_err(failed)?;
    let context = context(drives, runtime, options).map_err(failed)?;
    let frame = context.sql_with_options(&query, only_asked()).await.map_err(failed)?;
    let form = match cli.output {
        _ if cli.drive.json => Form::Jsonl,
        Some(form) => form,
        None if std::io::stdout().is_terminal() => Form::Table,
        None => Form::Csv,
    };
    let explains = matches!(frame.logical_plan(), LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    let mut batches = frame.execute_stream().await.map_err(failed)?;
    let mut written = match form {
        Form::Table if explains => Written::plan(),
        form => Written::new(form, cli.drive.json, &batches.schema())?,
    };
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(failed)?;
        progress.record();
        written.write(&batch)?;
    }
    progress.end();
    written.end()
}

fn run() -> Outcome {
    let matches = command().get_matches();
    let names = matches.get_many("drive").map(|names| names.cloned().collect()).unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let said = Arc::new(Said::default());
    let drives = drives(&cli, names, &said)?;
    // Before there is another thread: a drive of this host's kernel has to be told that nobody waits.
    if drives.iter().any(|drive| drive.name().starts_with("/dev/")) {
        to_cancel()?;
    }
    // A scan has a thread for each drive, and one that waits for another's must not keep that from starting.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(MOST_THREADS)
        .thread_stack_size(STACK)
        .build()?;
    let so_far = said.clone();
    let progress = Progress::new("in the drives", move || so_far.so_far());
    let answered = runtime.block_on(answer(&cli, drives, progress));
    // A drive that hangs is not waited for where the answer has ended.
    runtime.shutdown_background();
    answered?;
    Ok(u8::from(said.failed.load(Ordering::Relaxed)))
}

fn main() -> ExitCode {
    exit(run())
}
