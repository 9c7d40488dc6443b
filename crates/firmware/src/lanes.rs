//! A namespace's tasks on one of the [`Workers`](crate::Workers)' threads: what reactors order, and the
//! executor that runs it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::Nanos;
use nearside_device::firmware::{Progress, Turn};

use crate::executor::{Executor, Finished};
use crate::mailbox::Mailbox;
use crate::worker::Work;
use crate::workers::{Lane, WorkerPool};

/// What a reactor orders.
enum LaneCommand {
    Start { key: u64, work: Box<Work>, to: Arc<Mailbox> },
    Cancel { key: u64 },
}

#[derive(Default)]
struct LaneQueue {
    list: Vec<LaneCommand>,
    /// The lane has come to its end: nothing is taken any more.
    closed: bool,
}

/// The reactors' end of a lane. It ends when no reactor has it any more.
pub(crate) struct LaneHandle {
    pool: Arc<WorkerPool>,
    full: AtomicBool,
    orders: Mutex<LaneQueue>,
    /// Tasks that it has.
    load: AtomicUsize,
}

impl LaneHandle {
    pub(crate) fn new(pool: Arc<WorkerPool>) -> LaneHandle {
        LaneHandle { pool, full: AtomicBool::new(false), orders: Mutex::default(), load: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, LaneQueue> {
        self.orders.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed || self.pool.is_stopped()
    }

    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    fn order(&self, order: LaneCommand) -> Result<(), LaneCommand> {
        {
            let mut orders = self.lock();
            if orders.closed {
                return Err(order);
            }
            orders.list.push(order);
            self.full.store(true, Ordering::Release);
        }
        self.pool.wake();
        Ok(())
    }

    /// Runs the task on the lane. Its reply, or the word that there is none, goes to the mailbox under the
    /// key.
    pub(crate) fn start(&self, key: u64, work: Box<Work>, to: Arc<Mailbox>) {
        self.load.fetch_add(1, Ordering::Relaxed);
        if let Err(LaneCommand::Start { key, to, .. }) = self.order(LaneCommand::Start { key, work, to }) {
            self.load.fetch_sub(1, Ordering::Relaxed);
            to.reply(key, None);
        }
    }

    /// Ends it there; no reply comes, or one that was on its way.
    pub(crate) fn cancel(&self, key: u64) {
        let _ = self.order(LaneCommand::Cancel { key });
    }

    /// Lets go of lanes, which may so come to their end.
    pub(crate) fn release(handles: Vec<Arc<LaneHandle>>) {
        let pool = handles.first().map(|handle| handle.pool.clone());
        drop(handles);
        if let Some(pool) = pool {
            pool.wake();
        }
    }
}

/// The thread's end.
pub(crate) struct FsrLane {
    pub(crate) handle: Arc<LaneHandle>,
    pub(crate) executor: Executor<Vec<u8>>,
    pub(crate) running: Vec<(u64, Arc<Mailbox>)>,
    pub(crate) finished: Finished<Vec<u8>>,
}

impl FsrLane {
    fn ended(&mut self, key: u64) -> Option<Arc<Mailbox>> {
        let at = self.running.iter().position(|(other, _)| *other == key)?;
        self.handle.load.fetch_sub(1, Ordering::Relaxed);
        Some(self.running.swap_remove(at).1)
    }

    fn take_orders(&mut self) {
        let orders = {
            let mut orders = self.handle.lock();
            self.handle.full.store(false, Ordering::Relaxed);
            std::mem::take(&mut orders.list)
        };
        for order in orders {
            match order {
                LaneCommand::Start { key, work, to } => {
                    self.running.push((key, to));
                    work.spawn(key, &mut self.executor);
                }
                LaneCommand::Cancel { key } => {
                    self.executor.cancel(key);
                    self.ended(key);
                }
            }
        }
    }

    /// Whether nobody can order any more, and all that was ordered has ended; then nothing more is taken.
    fn is_over(&self) -> bool {
        if !self.running.is_empty() || self.executor.in_flight() > 0 || Arc::strong_count(&self.handle) > 1 {
            return false;
        }
        let mut orders = self.handle.lock();
        orders.closed = orders.list.is_empty() && Arc::strong_count(&self.handle) == 1;
        orders.closed
    }
}

impl Lane for FsrLane {
    fn step(&mut self, now: Nanos) -> Option<Progress> {
        let ordered = self.handle.full.load(Ordering::Acquire);
        if ordered {
            self.take_orders();
        }
        let mut finished = std::mem::take(&mut self.finished);
        let mut progress = self.executor.step(now, &mut Turn::new(), &mut finished);
        progress.worked |= ordered;
        for (key, reply) in finished.drain(..) {
            if let Some(to) = self.ended(key) {
                to.reply(key, Some(reply));
            }
        }
        self.finished = finished;
        (!self.is_over()).then_some(progress)
    }

    fn is_quiet(&self) -> bool {
        !self.handle.full.load(Ordering::Acquire)
    }
}

/// The thread stops: whoever waits for a task learns that it will not end.
impl Drop for FsrLane {
    fn drop(&mut self) {
        let orders = {
            let mut orders = self.handle.lock();
            orders.closed = true;
            std::mem::take(&mut orders.list)
        };
        for order in orders {
            if let LaneCommand::Start { key, to, .. } = order {
                to.reply(key, None);
            }
        }
        for (key, to) in self.running.drain(..) {
            to.reply(key, None);
        }
    }
}
