//! The wake-up protocol, alone: one side publishes work, the other looks once more and sleeps.
//!
//! Both sides store, then load what the other stores, and x86 (like every other machine) may let a load
//! overtake an earlier store. So each side has a full fence between the two: whichever fence comes second
//! sees the other's store. Either the sleeper finds the work, or the publisher finds it armed.
//! `tests/loom.rs` compiles this very file against loom's atomics and proves it, and that it fails without
//! either fence.

use super::sync::{AtomicBool, Ordering, fence};

/// Whether the other side sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Arming {
    armed: AtomicBool,
}

impl Arming {
    pub(crate) fn new(armed: bool) -> Arming {
        Arming { armed: AtomicBool::new(armed) }
    }

    /// Publisher, after the store that is the work: whether the sleeper is armed. Leaves it armed.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed)
    }

    /// Publisher, after the store that is the work: whether this caller is the one to wake the sleeper.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        self.is_armed() && self.armed.swap(false, Ordering::Relaxed)
    }

    /// Sleeper, before its last look for work.
    #[inline]
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeper, once awake.
    #[inline]
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }
}
