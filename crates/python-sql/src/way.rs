//! A drive as `nearside.open` opens it, of which tables are made.

use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use nearside_fsrlib::{Failure, Session, Transport, describe};
use nearside_python::{How, class_of};
use nearside_sql::Way;
use pyo3::prelude::*;

/// Warnings that are known not to be said twice.
const KNOWN: usize = 1024;

/// What has been said of the drives that are asked together.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<HashSet<String>>);

/// A drive.
pub(crate) struct Named {
    pub name: String,
    pub how: How,
    /// What cannot be read is left out.
    pub leaves_out: bool,
    /// There are others.
    pub several: bool,
    pub said: Arc<Said>,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.name).finish()
    }
}

impl Named {
    fn said_of_it(&self, text: &str) -> String {
        if self.several { format!("{}: {text}", self.name) } else { text.to_owned() }
    }
}

impl Way for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self) -> Result<Session<Box<dyn Transport>>, String> {
        let (session, notes) = self.how.open().map_err(|refusal| refusal.text)?;
        notes.iter().for_each(|note| self.warn(note));
        Ok(session)
    }

    fn warn(&self, text: &str) {
        let text = self.said_of_it(text);
        let mut said = self.said.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= KNOWN || !said.insert(text.clone()) {
            return;
        }
        drop(said);
        let words = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        Python::attach(|py| {
            let warned = class_of(py, "DriveWarning").and_then(|class| PyErr::warn(py, &class, &words, 1));
            // Nobody here could raise it.
            if let Err(error) = warned {
                error.write_unraisable(py, None);
            }
        });
    }

    fn failed(&self, path: &[u8], failure: &Failure) -> Result<(), String> {
        let text = format!("{}: {}", String::from_utf8_lossy(path), describe(failure));
        if self.leaves_out {
            self.warn(&text);
            return Ok(());
        }
        Err(format!("{}: {text}", self.name))
    }
}
