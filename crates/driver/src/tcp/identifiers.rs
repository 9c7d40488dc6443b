//! Identifiers of a controller's I/O queues:
//! each is in use as long as its connection, or the attempt to make one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those from 1 to `most`.
#[derive(Debug)]
pub(super) struct Identifiers {
    most: u16,
    free: Arc<Mutex<Free>>,
}

#[derive(Debug, Default)]
struct Free {
    /// How many were ever in use.
    used: u16,
    /// Those that are not any more, the longest first.
    returned: VecDeque<u16>,
}

/// One that is in use; dropped, it is free again.
#[derive(Debug)]
pub(super) struct Identifier {
    pub(super) number: u16,
    free: Arc<Mutex<Free>>,
}

fn lock(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Identifiers {
    pub(super) fn up_to(most: u16) -> Identifiers {
        Identifiers { most, free: Arc::default() }
    }

    /// A free one; `None`: all are in use. Those that never were come first, since a connection that has
    /// ended may not be over for the target yet.
    pub(super) fn take(&self) -> Option<Identifier> {
        let mut free = lock(&self.free);
        let number = if free.used < self.most {
            free.used += 1;
            free.used
        } else {
            free.returned.pop_front()?
        };
        Some(Identifier { number, free: self.free.clone() })
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        lock(&self.free).returned.push_back(self.number);
    }
}
