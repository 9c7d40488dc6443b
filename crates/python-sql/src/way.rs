//! A drive as `nearside.open` opens it, of which tables are made.

use std::ffi::CString;
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::thread::sleep;
use std::time::Duration;

use nearside_fsrlib::{Failure, Session, Transport, describe};
use nearside_python::{How, class_of};
use nearside_sql::Way;
use pyo3::prelude::*;

/// A drive.
pub(crate) struct Named {
    pub name: String,
    pub how: How,
    /// What cannot be read is left out.
    pub leaves_out: bool,
    /// There are others.
    pub several: bool,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.name).finish()
    }
}

/// Whether the interpreter has begun to end: who asks for it then is ended with the process, in the middle.
static ENDS: RwLock<bool> = RwLock::new(false);

/// The interpreter is about to end: nobody asks for it any more, and who has asked is waited for.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    py.detach(|| {
        // In a fork it may be held by a thread that is not there.
        for _ in 0..1000 {
            match ENDS.try_write() {
                Ok(mut ends) => return *ends = true,
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
    });
}

/// Warns as Python does, from a thread of the query's.
fn warn(text: &str) {
    let ends = ENDS.read().unwrap_or_else(PoisonError::into_inner);
    if *ends {
        return;
    }
    let words = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    Python::attach(|py| {
        let warned = class_of(py, "DriveWarning").and_then(|class| PyErr::warn(py, &class, &words, 1));
        // Nobody here could raise it.
        if let Err(error) = warned {
            error.write_unraisable(py, None);
        }
    });
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
        // Each time that it is so: which are shown again, Python's filters say.
        warn(&if self.several { format!("{}: {text}", self.name) } else { text.to_owned() });
    }

    fn failed(&self, path: &[u8], failure: &Failure) -> Result<(), String> {
        let text = format!("{}: {}: {}", self.name, String::from_utf8_lossy(path), describe(failure));
        if self.leaves_out {
            warn(&text);
            return Ok(());
        }
        Err(text)
    }
}
