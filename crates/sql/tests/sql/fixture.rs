//! A volume, the program run on it, and queries within this process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::SessionContext;
use nearside_cli::program::{DriveArgs, session};
use nearside_conformance::volume;
use nearside_fsrlib::{Failure, Session, Transport};
use nearside_sql::{Drives, Options, Way, context};
use tempfile::TempDir;

/// A tree, and the volume that mke2fs makes of it.
pub struct Volume {
    pub folder: TempDir,
    pub image: PathBuf,
}

/// A volume of the tree that `fill` makes.
pub fn ext4(fill: impl FnOnce(&Path)) -> Volume {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    let image = folder.path().join("disk.img");
    volume::ext(&image, 32, Some(&tree), &["-t", "ext4"]);
    Volume { folder, image }
}

/// What a run of the program gave: its exit status, standard output and standard error.
pub fn run<A: AsRef<std::ffi::OsStr>>(args: &[A]) -> (i32, String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_nearside-sql"));
    program.env_remove("NEARSIDE_DRIVE").env("LC_ALL", "C").stdin(Stdio::null()).args(args);
    let Output { status, stdout, stderr } = program.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A drive in this process, and what it said.
#[derive(Debug)]
pub struct Embedded {
    name: String,
    image: PathBuf,
    user: &'static str,
    pub failed: Mutex<BTreeSet<String>>,
}

/// The drive's options, as the command has them.
#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    drive: DriveArgs,
}

impl Embedded {
    pub fn new(name: &str, image: &Path) -> Arc<Embedded> {
        Embedded::of_user(name, image, "0:0")
    }

    /// Asked in a user's name.
    pub fn of_user(name: &str, image: &Path, user: &'static str) -> Arc<Embedded> {
        Arc::new(Embedded { name: name.into(), image: image.into(), user, failed: Mutex::default() })
    }
}

impl Way for Embedded {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self) -> Result<Session<Box<dyn Transport>>, String> {
        let image = self.image.to_str().unwrap();
        let args = <Args as clap::Parser>::parse_from(["", "-d", image, "--as", self.user]);
        session(&args.drive).map_err(|failure| failure.to_string())
    }

    fn warn(&self, text: &str) {
        panic!("{}: {text}", self.name);
    }

    fn failed(&self, path: &[u8], failure: &Failure) -> Result<(), String> {
        let said = format!("{}: {failure:?}", String::from_utf8_lossy(path));
        self.failed.lock().unwrap().insert(said);
        Ok(())
    }
}

/// A session over drives; what is worked out in them or not.
pub fn over(drives: &[Arc<Embedded>], push_down: bool) -> SessionContext {
    let drives: Drives = drives.iter().map(|drive| drive.clone() as Arc<dyn Way>).collect();
    context(drives, Arc::new(RuntimeEnv::default()), Options { push_down, partitions: 2 }).unwrap()
}

/// Runs a query.
pub fn batches(context: &SessionContext, query: &str) -> Result<Vec<RecordBatch>, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let answer = runtime.block_on(async { context.sql(query).await?.collect().await });
    answer.map_err(|error| error.strip_backtrace())
}

/// A value as text. Sums of floating-point numbers have as many digits as any order of adding gives.
fn shown(value: String) -> String {
    match value.parse::<f64>() {
        Ok(number) if value.contains(['.', 'e']) && number.abs() > 1000.0 => format!("{number:.10e}"),
        _ => value,
    }
}

/// The rows of an answer as texts, in the order of these.
pub fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = as_they_come(batches);
    rows.sort();
    rows
}

/// The same in the order in which they come.
pub fn as_they_come(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::new().with_null("null");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            rows.push(
                columns
                    .iter()
                    .map(|c| format!("{:?}", shown(c.value(row).to_string())))
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
    }
    rows
}

/// A text as it stands in a query.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The answer's rows.
#[track_caller]
pub fn asked(context: &SessionContext, query: &str) -> Vec<String> {
    rows(&batches(context, query).unwrap_or_else(|error| panic!("{query}: {error}")))
}

/// The steps of a query's plan.
#[track_caller]
pub fn plan(context: &SessionContext, query: &str) -> String {
    let explained = asked(context, &format!("explain {query}"));
    let physical = explained.into_iter().find(|row| row.starts_with("\"physical_plan\"")).unwrap();
    physical.replace("\\n", "\n")
}
