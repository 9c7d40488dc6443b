//! Work counted in units, so that it can be interrupted anywhere without a look at a clock.
//!
//! Whatever could take long takes units before or while it works, and pauses where the slice's are spent: its
//! future is then pending, and goes on when it is polled again. One unit stands for about a nanosecond of the
//! worst case, so that a slice stays well below 20 µs on a current core, whatever the pattern and the bytes.
//! The count depends on the input alone: tests hold it without measuring time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Units of a slice.
pub const SLICE: u64 = 6_000;

/// Most units that one step takes beyond what is left of a slice.
pub const STEP: u64 = 8_000;

/// What is left of a slice.
#[derive(Debug)]
pub(crate) struct Fuel {
    slice: u64,
    left: u64,
    /// Taken since the last pause.
    taken: u64,
    most: u64,
    total: u64,
}

impl Default for Fuel {
    fn default() -> Self {
        Self { slice: SLICE, left: SLICE, taken: 0, most: 0, total: 0 }
    }
}

impl Fuel {
    /// Slices of so many units from now on; at least one.
    pub(crate) fn set_slice(&mut self, units: u64) {
        self.slice = units.max(1);
        self.left = self.slice;
    }

    /// Takes units for work that is done or at once will be. `false`: the slice is spent.
    #[inline]
    pub(crate) fn take(&mut self, units: u64) -> bool {
        self.taken += units;
        self.left = self.left.saturating_sub(units);
        self.left > 0
    }

    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Units left in this slice.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The most units between two pauses, and all of them.
    pub(crate) fn spent(&self) -> (u64, u64) {
        (self.most.max(self.taken), self.total + self.taken)
    }

    /// Ends the slice: pending once.
    #[cold]
    pub(crate) async fn pause(&mut self) {
        self.most = self.most.max(self.taken);
        self.total += self.taken;
        self.taken = 0;
        let mut paused = false;
        poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
        self.left = self.slice;
    }

    /// Takes units, and pauses where the slice is spent.
    #[inline]
    pub(crate) async fn spend(&mut self, units: u64) {
        if self.is_spent() {
            self.pause().await;
        }
        if !self.take(units) {
            self.pause().await;
        }
    }

    /// Takes what moving or looking at so many bytes costs.
    #[inline]
    pub(crate) async fn spend_bytes(&mut self, bytes: usize) {
        self.spend(bytes as u64 / 32 + 1).await;
    }
}

/// Runs work without pauses.
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
    }
}
