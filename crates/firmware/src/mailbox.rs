//! What reaches a worker from elsewhere: the replies of tasks that run on threads of their own, and what
//! other reactors do with tags that concern it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_dma::Wakeup;

/// A worker's.
pub(crate) struct Mailbox {
    full: AtomicBool,
    mail: Mutex<Mail>,
    wakeup: Arc<Wakeup>,
}

/// What came.
#[derive(Default)]
pub(crate) struct Mail {
    /// Tasks that have ended, by key; `None`: their thread is gone.
    pub(crate) replies: Vec<(u64, Option<Vec<u8>>)>,
    /// Tasks that shall end.
    pub(crate) cancelled: Vec<u64>,
}

impl Mailbox {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Mailbox {
        Mailbox { full: AtomicBool::new(false), mail: Mutex::default(), wakeup }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The receiver that is about to sleep sees either `full` or the wake.
    fn arrived(&self) {
        self.full.store(true, Ordering::Release);
        self.wakeup.wake();
    }

    /// A task has ended.
    pub(crate) fn reply(&self, key: u64, reply: Option<Vec<u8>>) {
        self.lock().replies.push((key, reply));
        self.arrived();
    }

    /// The worker's task shall end.
    pub(crate) fn cancel(&self, key: u64) {
        self.lock().cancelled.push(key);
        self.arrived();
    }

    /// A tag that the worker waits for is no more what it was.
    pub(crate) fn look(&self) {
        self.arrived();
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Mail {
        let mut mail = self.lock();
        self.full.store(false, Ordering::Relaxed);
        std::mem::take(&mut mail)
    }
}
