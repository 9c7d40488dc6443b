//! Threads that run queries, and waiting for them without the interpreter.

use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use datafusion::error::DataFusionError;
use nearside_python::{heard, of_drive, of_word};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

/// More than any query has scans, of any number of drives: each has a thread.
const MOST_THREADS: usize = 1 << 16;

/// A condition of many parts is walked down part by part.
const STACK: usize = 64 << 20;

/// Threads of one query, so that one which nobody waits for any more takes no others.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    pub fn start() -> io::Result<Threads> {
        let mut builder = Builder::new_multi_thread();
        builder.max_blocking_threads(MOST_THREADS).thread_stack_size(STACK);
        builder.build().map(Some).map(Threads)
    }
}

impl Deref for Threads {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        self.0.as_ref().expect("there until it is dropped").handle()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A step of a plan that takes long, or a drive that hangs, is not waited for.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// This process' threads for tables that others' queries ask. A fork has none of its parent's, and gets its
/// own.
pub(crate) fn of_tables() -> io::Result<Handle> {
    static THREADS: Mutex<Option<(u32, Threads)>> = Mutex::new(None);
    let own = std::process::id();
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    match &*threads {
        Some((process, threads)) if *process == own => Ok(Handle::clone(threads)),
        _ => {
            let made = Threads::start()?;
            let handle = Handle::clone(&made);
            // A parent's threads are not here, and cannot be ended.
            std::mem::forget(threads.replace((own, made)));
            Ok(handle)
        }
    }
}

/// On a thread of its own, since it may wait for a drive.
///
/// # Errors
/// A signal's handler raised; the work's.
pub(crate) fn apart<T: Send + 'static>(
    py: Python<'_>,
    threads: &Handle,
    work: impl FnOnce() -> Result<T, DataFusionError> + Send + 'static,
) -> PyResult<T> {
    let (tell, mut told) = channel();
    threads.spawn_blocking(move || {
        // Nobody may be waiting any more.
        let _heard = tell.send(work());
    });
    let told = &mut told;
    match py.detach(move || heard(told))? {
        Some(done) => done.map_err(|error| of_query(py, &error)),
        None => Err(of_drive(py, ErrorKind::Other, "the thread that plans the query has ended")),
    }
}

/// What is wrong with a query, or became of it.
pub(crate) fn of_query(py: Python<'_>, error: &DataFusionError) -> PyErr {
    let text = error.strip_backtrace();
    match error.find_root() {
        DataFusionError::Plan(_)
        | DataFusionError::SQL(..)
        | DataFusionError::SchemaError(..)
        | DataFusionError::NotImplemented(_)
        | DataFusionError::Diagnostic(..) => of_word(py, &text),
        _ => of_drive(py, ErrorKind::Other, &text),
    }
}
