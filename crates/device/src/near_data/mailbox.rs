//! What reaches a worker from elsewhere: the replies of tasks that run on threads of their own, and what other reactors do with tags
//! that concern it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_dma::Wakeup;

/// A worker's.
pub(super) struct Mailbox {
    full: AtomicBool,
    mail: Mutex<Mail>,
    wakeup: Arc<Wakeup>,
}

/// What came.
#[derive(Default)]
pub(super) struct Mail {
    /// Tasks that have ended, by key; `None`: their thread is gone.
    pub(super) replies: Vec<(u64, Option<Vec<u8>>)>,
    /// Tasks that shall end.
    pub(super) cancelled: Vec<u64>,
}

impl Mailbox {
    pub(super) fn new(wakeup: Arc<Wakeup>) -> Mailbox {
        Mailbox { full: AtomicBool::new(false), mail: Mutex::default(), wakeup }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The receiver that is about to sleep sees either `full` or the ring.
    fn arrived(&self) {
        self.full.store(true, Ordering::Release);
        self.wakeup.ring();
    }

    /// A task has ended.
    pub(super) fn reply(&self, key: u64, reply: Option<Vec<u8>>) {
        self.lock().replies.push((key, reply));
        self.arrived();
    }

    /// The worker's task shall end.
    pub(super) fn cancel(&self, key: u64) {
        self.lock().cancelled.push(key);
        self.arrived();
    }

    /// A tag that the worker waits for is no more what it was.
    pub(super) fn look(&self) {
        self.arrived();
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Mail {
        let mut mail = self.lock();
        self.full.store(false, Ordering::Relaxed);
        std::mem::take(&mut mail)
    }
}
