//! What the operator's log says of a file that is a store, and at which level.

use std::path::PathBuf;
use std::sync::Mutex;

use nearside_clock::{Nanos, RateLimits, event_at};
use tracing::Level;

use crate::{Operation, StoreError};

/// How often the log says the same of one file.
const REPORT_EVERY_NS: u64 = 10_000_000_000;

/// What can happen to an operation at the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It failed.
    Failed,
    /// There was no room for it.
    NoRoom,
    /// It was refused before it was begun: the caller's doing, and its error says so.
    Refused,
    /// A call was interrupted, or would have waited: it is made again.
    Interrupted,
    /// A call moved only some of the bytes: the rest is moved by another.
    CutShort,
}

impl Trouble {
    fn of(error: &StoreError) -> Trouble {
        match error {
            StoreError::Medium { .. } => Trouble::Failed,
            StoreError::Full { .. } => Trouble::NoRoom,
            StoreError::OutOfRange { .. } | StoreError::ReadOnly | StoreError::Busy => Trouble::Refused,
        }
    }

    /// How loud it is, and what it is called.
    fn told(self) -> (Level, &'static str) {
        match self {
            Trouble::Failed => (Level::ERROR, "an operation of the file failed"),
            Trouble::NoRoom => (Level::WARN, "the file's storage is full"),
            Trouble::Refused => (Level::DEBUG, "an operation was refused"),
            Trouble::Interrupted => (Level::DEBUG, "an operation of the file is tried again"),
            Trouble::CutShort => (Level::INFO, "an operation of the file was cut short, and goes on"),
        }
    }
}

/// What is told of one file.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    /// What was told, by operation and by what happened.
    told: Mutex<RateLimits<(&'static str, Trouble)>>,
}

impl Log {
    pub(crate) fn of(path: PathBuf) -> Log {
        Log { path, told: Mutex::new(RateLimits::new(REPORT_EVERY_NS)) }
    }

    /// Tells the log of an operation, unless it was told of one like it just before.
    #[cold]
    pub(crate) fn report(&self, trouble: Trouble, operation: &Operation, why: &str, now: Nanos) {
        let name = operation.name();
        let admitted = self.told.lock().unwrap_or_else(|e| e.into_inner()).admit((name, trouble), now);
        if let Some(suppressed) = admitted {
            let ((level, what), (offset, len)) = (trouble.told(), operation.range().unwrap_or((0, 0)));
            let path = self.path.display();
            event_at!(level, %path, operation = name, offset, len, why, suppressed, "{what}");
        }
    }

    /// Tells the log of an operation that ended with an error.
    #[cold]
    pub(crate) fn report_error(&self, error: &StoreError, operation: &Operation, now: Nanos) {
        self.report(Trouble::of(error), operation, &error.to_string(), now);
    }
}
