//! What the threads of a target tell each other.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nearside_auth::Done;
use nearside_device::{Firmware, Reactor};
use nearside_dma::Wakeup;
use nearside_store::Store;

use crate::association::Association;
use crate::connection::Connection;

/// A message to a thread.
pub(crate) enum Mail<S: Store, F: Firmware<S>> {
    /// A reactor of a new controller.
    Reactor(Arc<Association<S, F>>, Box<Reactor<S, F>>),
    /// A connection whose Connect was accepted.
    Serve(Box<Connection<S, F>>),
    /// Work of a connection's authentication was done: which connection, the work's number, what came of it.
    Worked(usize, u64, Box<Done>),
    /// A host that was accepted on the first thread has proved who it is, or has gone.
    Identified(SocketAddr),
    /// An association ends.
    End(u16),
    /// A controller was reset or shut down: its I/O queues end.
    QueuesEnd(u16),
    /// To the first thread: another listener, by its number.
    Listen(usize, TcpListener),
    /// To the first thread: that one takes no more connections.
    StopListening(usize),
}

type Mailbox<S, F> = Mutex<VecDeque<Mail<S, F>>>;

/// A mailbox for each thread. What one thread posts, another reads in the same order.
pub(crate) struct Mailboxes<S: Store, F: Firmware<S>> {
    boxes: Box<[Mailbox<S, F>]>,
    wakeup: Arc<Wakeup>,
}

impl<S: Store, F: Firmware<S>> Mailboxes<S, F> {
    /// For so many threads, which `wakeup` wakes.
    pub(crate) fn new(threads: usize, wakeup: Arc<Wakeup>) -> Self {
        Mailboxes { boxes: (0..threads).map(|_| Mutex::default()).collect(), wakeup }
    }

    fn lock(&self, thread: usize) -> MutexGuard<'_, VecDeque<Mail<S, F>>> {
        self.boxes[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn post(&self, thread: usize, mail: Mail<S, F>) {
        self.lock(thread).push_back(mail);
        self.wakeup.wake();
    }

    /// Posts to every thread.
    pub(crate) fn post_all(&self, mail: impl Fn() -> Mail<S, F>) {
        (0..self.boxes.len()).for_each(|thread| self.post(thread, mail()));
    }

    pub(crate) fn take(&self, thread: usize) -> VecDeque<Mail<S, F>> {
        std::mem::take(&mut self.lock(thread))
    }

    pub(crate) fn is_empty(&self, thread: usize) -> bool {
        self.lock(thread).is_empty()
    }
}
