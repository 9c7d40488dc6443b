//! The records of an answer, one command after the other, whenever there are no more.

use std::collections::VecDeque;
use std::sync::Arc;

use nearside_fsrlib::{Ask, Error, Failure, Record, Request, on_from};
use pyo3::prelude::*;

use crate::failure;
use crate::lanes::Lanes;

/// An answer of any length: no more of it is here than one reply.
pub(crate) struct Answer {
    lanes: Arc<Lanes>,
    /// The next command; none behind the last.
    request: Option<Request>,
    /// The path that was asked about.
    pub path: Vec<u8>,
    ready: VecDeque<Record<'static>>,
    failure: Option<Failure>,
    /// Hears of files that fail; without it the answer raises, and goes on where it is asked once more.
    onerror: Option<Py<PyAny>>,
}

impl Answer {
    /// Nothing is sent before the first record is asked for.
    pub fn new(lanes: &Arc<Lanes>, path: &[u8], ask: Ask, onerror: Option<Py<PyAny>>) -> Answer {
        let request = Some(lanes.request(ask));
        let (path, ready) = (path.to_vec(), VecDeque::new());
        Answer { lanes: lanes.clone(), request, path, ready, failure: None, onerror }
    }

    /// The next record that is neither a warning nor a failure.
    pub fn next(&mut self, py: Python<'_>) -> PyResult<Option<Record<'static>>> {
        loop {
            match self.ready.pop_front() {
                Some(Record::Warning { text, unstable }) => self.lanes.warn(py, &text, unstable)?,
                Some(Record::Failed { path, failure }) => self.failed(py, &path, &failure)?,
                Some(record) => return Ok(Some(record)),
                None => match (self.failure.take(), self.request.take()) {
                    (Some(failure), _) => {
                        let path = std::mem::take(&mut self.path);
                        self.failed(py, &path, &failure)?;
                    }
                    (None, Some(request)) => self.command(py, request)?,
                    (None, None) => return Ok(None),
                },
            }
        }
    }

    /// Raises, or has the program's own function told.
    pub fn failed(&self, py: Python<'_>, path: &[u8], failure: &Failure) -> PyResult<()> {
        self.tell(py, failure::of_failure(py, path, failure))
    }

    /// The same of any error.
    pub fn tell(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        match &self.onerror {
            None => Err(error),
            Some(onerror) => onerror.call1(py, (error,)).map(drop),
        }
    }

    fn command(&mut self, py: Python<'_>, mut request: Request) -> PyResult<()> {
        let reply = self.lanes.call(py, &self.path, request.clone())?;
        let any = !reply.records.is_empty();
        self.ready = reply.records.into();
        match on_from(any, reply.failure, reply.more) {
            Ok(Some(more)) => {
                request.resume = Some(more);
                self.request = Some(request);
            }
            Ok(None) => {}
            // What came before the refusal is handed on first.
            Err(Error::Refused(failure)) => self.failure = Some(failure),
            Err(error) => return Err(failure::of_error(py, &self.path, &error)),
        }
        Ok(())
    }
}
