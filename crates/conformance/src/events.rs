//! What the operator's log says, for a test to read.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::Level;

/// The events of a test, a line each.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(move || log.clone())
            .finish()
    }

    /// What was said since the last look.
    pub fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Runs a test whose thread has a log of its own.
pub fn logged(test: impl FnOnce(&Log)) {
    let log = Log::default();
    tracing::subscriber::with_default(log.subscriber(), || test(&log));
}

/// The log of all threads of this process, which asks for it once.
pub fn of_all_threads() -> Log {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.subscriber()).unwrap();
    log
}

/// One line was said, which has all of the words.
#[track_caller]
pub fn one(lines: &[String], words: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for word in words {
        assert!(lines[0].contains(word), "{word}: {lines:#?}");
    }
}
