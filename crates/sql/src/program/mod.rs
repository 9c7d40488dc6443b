//! What programs for queries are made of: the command line, drives by their names on it, and an answer as it
//! is written.

mod named;
mod written;

use std::io::{IsTerminal, Read};
use std::sync::Arc;

use clap::Args;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use nearside_cli::program::{DriveArgs, Failure, Form, Progress};

pub use named::{Named, Said, drives, of_several};
use written::Written;

use crate::{Options, only_asked};

/// A condition of many parts is walked down part by part.
const STACK: usize = 64 << 20;
/// More than any query has scans, of any number of drives.
const MOST_THREADS: usize = 1 << 16;

/// A query, and how it is answered.
#[derive(Args, Debug)]
pub struct QueryArgs {
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
    /// Which drives.
    #[command(flatten)]
    pub drive: DriveArgs,
}

/// DataFusion's error for who reads it.
pub fn failed(error: DataFusionError) -> Failure {
    Failure::Message(error.strip_backtrace())
}

/// Threads for queries.
///
/// # Errors
/// The system has none.
pub fn threads() -> std::io::Result<tokio::runtime::Runtime> {
    // A scan has a thread for each drive, and one that waits for another's must not keep that from starting.
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(MOST_THREADS)
        .thread_stack_size(STACK)
        .build()
}

impl QueryArgs {
    /// How queries are planned.
    pub fn options(&self) -> Options {
        Options { push_down: !self.no_push_down, ..Options::default() }
    }

    /// Memory and temporary files for what is done here.
    ///
    /// # Errors
    /// There is no place for files.
    pub fn runtime(&self) -> Result<Arc<RuntimeEnv>, Failure> {
        let pool = Arc::new(FairSpillPool::new((self.memory as usize) << 20));
        RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().map_err(failed)
    }

    fn query(&self) -> Result<String, Failure> {
        let mut text = String::new();
        match (&self.query, self.file.as_deref()) {
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

    /// Asks, and writes the answer. `begun` is told the plan before its first step.
    ///
    /// # Errors
    /// Why there is none; it cannot be written.
    pub async fn answer(
        &self,
        context: &SessionContext,
        mut progress: Progress,
        begun: impl FnOnce(&Arc<dyn ExecutionPlan>),
    ) -> Result<(), Failure> {
        let frame = context.sql_with_options(&self.query()?, only_asked()).await.map_err(failed)?;
        let form = match self.output {
            _ if self.drive.json => Form::Jsonl,
            Some(form) => form,
            None if std::io::stdout().is_terminal() => Form::Table,
            None => Form::Csv,
        };
        let explains = matches!(frame.logical_plan(), LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let (steps, task) = (frame.clone().create_physical_plan().await.map_err(failed)?, frame.task_ctx());
        begun(&steps);
        let mut batches = execute_stream(steps, task.into()).map_err(failed)?;
        let mut written = match form {
            Form::Table if explains => Written::plan(),
            form => Written::new(form, self.drive.json, &batches.schema())?,
        };
        while let Some(batch) = batches.next().await {
            written.write(&batch.map_err(failed)?)?;
        }
        progress.end();
        written.end()
    }
}
