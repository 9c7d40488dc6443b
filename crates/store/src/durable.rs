//! Calls that are to make a file's bytes durable, by all ways into it.
//!
//! The kernel reports a failed write-back once, to one of the calls that ran at that time, and forgets which
//! bytes they were. So a call that went well counts only when those that ran beside it went well too, and
//! none after one that failed.

use std::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
struct Calls {
    /// Calls that have begun.
    begun: u64,
    /// Those that run.
    running: Vec<u64>,
    /// One has failed.
    failed: bool,
}

/// The calls on one file.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    calls: Mutex<Calls>,
    ended: Condvar,
}

/// A call that has begun. It has to end.
#[derive(Debug)]
#[must_use = "a call that never ends holds up all others"]
pub(crate) struct Begun(u64);

/// A call that went well, if those did that ran beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled(u64);

impl Calls {
    fn settled(&self, Unsettled(before): Unsettled) -> Option<bool> {
        match self.failed {
            true => Some(false),
            false => self.running.iter().all(|&call| call >= before).then_some(true),
        }
    }
}

impl Durable {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A call begins.
    pub(crate) fn begin(&self) -> Begun {
        let mut calls = self.lock();
        let call = calls.begun;
        calls.begun += 1;
        calls.running.push(call);
        Begun(call)
    }

    /// It has ended.
    pub(crate) fn end(&self, Begun(call): Begun, failed: bool) -> Unsettled {
        let mut calls = self.lock();
        calls.running.retain(|&other| other != call);
        calls.failed |= failed;
        self.ended.notify_all();
        Unsettled(calls.begun)
    }

    /// Whether what such a call made durable is; `None`: calls that ran beside it have not ended.
    pub(crate) fn settled(&self, call: Unsettled) -> Option<bool> {
        self.lock().settled(call)
    }

    /// What [`Durable::settled`] says when the calls beside it have ended.
    pub(crate) fn settle(&self, call: Unsettled) -> bool {
        let mut calls = self.lock();
        loop {
            match calls.settled(call) {
                Some(sure) => return sure,
                None => calls = self.ended.wait(calls).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_when_those_beside_it_went_well() {
        let durable = Durable::default();
        let (a, b) = (durable.begin(), durable.begin());
        let a = durable.end(a, false);
        let later = durable.begin();
        assert_eq!(durable.settled(a), None);
        let b = durable.end(b, false);
        // What began after the end of one does not hold it up.
        assert_eq!((durable.settled(a), durable.settled(b)), (Some(true), None));
        let later = durable.end(later, false);
        assert_eq!((durable.settled(b), durable.settle(later)), (Some(true), true));
    }

    #[test]
    fn none_counts_beside_or_after_one_that_failed() {
        let durable = Durable::default();
        let (fails, beside) = (durable.begin(), durable.begin());
        let beside = durable.end(beside, false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| durable.settle(beside));
            let _ = durable.end(fails, true);
            assert!(!waits.join().unwrap());
        });
        let after = durable.begin();
        let after = durable.end(after, false);
        assert_eq!(durable.settled(after), Some(false));
    }
}
