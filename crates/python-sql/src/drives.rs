//! Drives that are asked together, and answers to queries.

use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ffi_stream::FFI_ArrowArrayStream;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use futures::StreamExt;
use futures::channel::oneshot;
use futures::future::{Either, select};
use nearside_python::{heard, how, of_drive, of_word};
use nearside_sql::{Options, Way, context, files, functions, only_asked, table};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tokio::runtime::Handle;

use crate::running::{Threads, apart, of_query, of_tables};
use crate::table::{Function, Table};
use crate::way::Named;

/// Batches that wait for who takes them.
const AHEAD: usize = 1;

/// Drives, each of which has a part of every table.
#[pyclass(frozen, module = "nearside_sql")]
pub(crate) struct Drives {
    drives: nearside_sql::Drives,
    options: Options,
}

#[pymethods]
impl Drives {
    /// Of each its name, and what `nearside.open` is called with.
    #[new]
    fn new(drives: Vec<(String, Bound<'_, PyAny>)>, leaves_out: bool, push_down: bool) -> PyResult<Drives> {
        let several = drives.len() > 1;
        let named = drives.into_iter().map(|(name, arguments)| {
            let how = how(&arguments)?;
            Ok(Arc::new(Named { name, how, leaves_out, several }) as Arc<dyn Way>)
        });
        let drives = named.collect::<PyResult<_>>()?;
        Ok(Drives { drives, options: Options { push_down, ..Options::default() } })
    }

    /// The table of files.
    fn files(&self) -> Table {
        Table(files(&self.drives, self.options))
    }

    /// A function's table of a path, with its options.
    fn table(&self, py: Python<'_>, function: String, words: Vec<String>) -> PyResult<Table> {
        let (drives, options) = (self.drives.clone(), self.options);
        apart(py, &of_tables()?, move || table(&drives, options, &function, words)).map(Table)
    }

    /// Functions by their names.
    fn functions(&self) -> Vec<(&'static str, Function)> {
        let all = functions(&self.drives, self.options);
        all.into_iter().map(|(name, function)| (name, Function(function))).collect()
    }

    /// What a query answers; what is done here takes so many bytes, and goes to temporary files beyond them.
    fn sql(&self, py: Python<'_>, query: String, memory: usize) -> PyResult<Answer> {
        let pool = Arc::new(FairSpillPool::new(memory));
        let env = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
        let env = env.map_err(|error| of_query(py, &error))?;
        let context = context(self.drives.clone(), env, self.options);
        let context = context.map_err(|error| of_query(py, &error))?;
        let threads = Threads::start()?;
        let planned = apart(py, &threads, move || {
            let asked =
                async { context.sql_with_options(&query, only_asked()).await?.execute_stream().await };
            Handle::current().block_on(asked)
        });
        Ok(Answer { made: Mutex::new(Some((planned?, threads))), failure: Arc::default() })
    }
}

/// Why an answer ended.
type Failed = Arc<Mutex<Option<PyErr>>>;

/// What comes of a query, once.
#[pyclass(frozen, module = "nearside_sql")]
pub(crate) struct Answer {
    made: Mutex<Option<(SendableRecordBatchStream, Threads)>>,
    failure: Failed,
}

#[pymethods]
impl Answer {
    /// A stream of Arrow's (the Arrow PyCapsule interface).
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Types of its own: who wants others casts them, as the interface lets it.
        let _best_effort = requested_schema;
        let answer = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (stream, threads) = answer.ok_or_else(|| of_word(py, "the answer has been taken"))?;
        let batches = Batches::of(stream, threads, self.failure.clone());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// What a reader of it failed by, which has words of its own for it alone.
    fn failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map(|error| error.into_value(py).into_any())
    }
}

/// Batches, by whatever thread asks for the next. They are made by others: a step of a plan may take long.
struct Batches {
    schema: SchemaRef,
    /// `None` is their end: where there was none, who made them has panicked.
    batches: Receiver<Option<datafusion::common::Result<RecordBatch>>>,
    is_over: bool,
    failure: Failed,
    /// The process that they are in: a fork has none of its threads.
    process: u32,
    /// Whose end says that nobody waits.
    _waits: oneshot::Sender<()>,
    _threads: Threads,
}

impl Batches {
    fn of(mut stream: SendableRecordBatchStream, threads: Threads, failure: Failed) -> Batches {
        let (schema, (made, batches)) = (stream.schema(), sync_channel(AHEAD));
        let (waits, mut over) = oneshot::channel();
        threads.spawn_blocking(move || {
            let here = Handle::current();
            loop {
                let next = match here.block_on(select(stream.next(), &mut over)) {
                    Either::Left((next, _)) => next,
                    Either::Right(_nobody_waits) => return,
                };
                let ends = next.as_ref().is_none_or(Result::is_err);
                if made.send(next).is_err() || ends {
                    return;
                }
            }
        });
        let process = std::process::id();
        Batches { schema, batches, is_over: false, failure, process, _waits: waits, _threads: threads }
    }

    /// The next, for which the interpreter is free.
    fn heard(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        if std::process::id() != self.process {
            let text = "the query was asked before a fork: ask it anew";
            return Err(of_drive(py, ErrorKind::Other, text));
        }
        // Where there is one at once each time, nobody else may look.
        py.check_signals()?;
        let batches = &mut self.batches;
        match py.detach(move || heard(batches))? {
            Some(Some(Ok(batch))) => Ok(Some(batch)),
            Some(Some(Err(error))) => Err(of_query(py, &error)),
            Some(None) => Ok(None),
            None => Err(of_drive(py, ErrorKind::Other, "the query ended in the middle, by a panic")),
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        Python::attach(|py| match self.heard(py) {
            Ok(batch) => {
                self.is_over = batch.is_none();
                batch.map(Ok)
            }
            Err(error) => {
                self.is_over = true;
                let text = error.value(py).to_string();
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Some(Err(ArrowError::ComputeError(text)))
            }
        })
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
