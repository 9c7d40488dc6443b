//! The slice executor: near-data commands as tasks that a reactor polls between its I/O.
//!
//! One boxed future per command, none per I/O. A task reads through [`StoreMedia`], which submits to the reactor's own access to
//! the store with a pooled buffer; a read that is not done at once suspends the task until the store's completion wakes it. A task
//! that computes asks [`Media::breathe`] between pieces of work, and yields when the slice is spent. Nothing here waits or sleeps.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use nearside_clock::{Clock, Nanos};
use nearside_dma::IoBuffer;
use nearside_fsr::{Batch, Media, MediaError};
use nearside_store::{Completion, Data, Operation, Store, StoreError, Submitted, Token};

use crate::firmware::{Observer, Progress};
use crate::namespace::Access;
use crate::slab::Slab;

/// Longest time that tasks run before the reactor's I/O is looked at again.
pub(crate) const SLICE_NS: u64 = 20_000;
/// Breaths in a slice, for clocks that stand still while a task runs.
const BREATHS: u32 = 256;
/// Pooled buffers are this long: the provider's chunk and a block more on both sides.
const POOLED: usize = (128 << 10) + 8192;
/// Buffers kept.
const POOL: usize = 64;

/// What a task gave in the end, by its key.
pub(crate) type Finished<T> = Vec<(u64, T)>;

/// The store as tasks share it.
struct Io<S: Store, O> {
    access: Access<S, O>,
    pool: Vec<IoBuffer>,
    reads: Slab<Read>,
    /// Reads that the store had no room for.
    refused: VecDeque<(u64, IoBuffer, Read)>,
}

struct Read {
    tag: u32,
    /// Whoever waits; gone where it does not any more.
    to: Arc<Inbox>,
}

/// Completed reads of one batch.
#[derive(Default)]
struct Inbox {
    done: Mutex<VecDeque<(u32, Completion)>>,
    /// Its task can go on.
    awake: Arc<AtomicBool>,
}

type Shared<S, O> = Arc<Mutex<Io<S, O>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl<S: Store, O: Observer> Io<S, O> {
    fn buffer(&mut self, len: usize) -> Result<IoBuffer, MediaError> {
        let capacity = len.max(POOLED);
        let pooled = if len <= POOLED { self.pool.pop() } else { None };
        let mut buffer = match pooled {
            Some(buffer) => buffer,
            None => IoBuffer::new(capacity).map_err(|e| MediaError(format!("no memory for a read: {e}")))?,
        };
        buffer.set_len(len);
        Ok(buffer)
    }

    fn give_back(&mut self, buffer: IoBuffer) {
        if self.pool.len() < POOL && buffer.capacity() == POOLED {
            self.pool.push(buffer);
        }
    }

    /// Hands a read to the store. What is done at once is returned; otherwise `to` gets it in time.
    fn submit(
        &mut self,
        (offset, buffer): (u64, IoBuffer),
        now: Nanos,
        read: impl FnOnce() -> Read,
    ) -> Option<Completion> {
        let operation = Operation::Read { offset, len: buffer.len() as u64 };
        let token = Token(self.reads.next_key() as u64);
        match self.access.submit(operation, Data::Owned(buffer), token, now) {
            Submitted::Pending => {
                self.reads.insert(read());
                None
            }
            Submitted::Done(Completion { result: Err(StoreError::Busy), buffer: Some(buffer) }) => {
                self.refused.push_back((offset, buffer, read()));
                None
            }
            Submitted::Done(completion) => Some(completion),
        }
    }
}

/// A buffer with bytes that were read; it goes back to the pool.
pub(crate) struct PooledBuffer<S: Store, O: Observer> {
    buffer: Option<IoBuffer>,
    io: Shared<S, O>,
}

impl<S: Store, O: Observer> AsRef<[u8]> for PooledBuffer<S, O> {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl<S: Store, O: Observer> Drop for PooledBuffer<S, O> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            lock(&self.io).give_back(buffer);
        }
    }
}

/// The time that is left, as tasks see it.
struct Slice {
    clock: Arc<dyn Clock>,
    end: AtomicU64,
    breaths: AtomicU32,
}

/// One task's way to the store.
pub(crate) struct StoreMedia<S: Store, O> {
    io: Shared<S, O>,
    slice: Arc<Slice>,
    awake: Arc<AtomicBool>,
    len: u64,
    block_size: u32,
}

impl<S: Store, O: Observer> Media for StoreMedia<S, O> {
    type Buffer = PooledBuffer<S, O>;
    type Batch = StoreBatch<S, O>;

    fn len(&self) -> u64 {
        self.len
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Self::Buffer, MediaError> {
        let mut batch = self.batch();
        batch.start(offset, len, 0);
        match batch.next().await {
            Some((_, result)) => result,
            None => Err(MediaError("the read was lost".to_owned())),
        }
    }

    fn batch(&self) -> StoreBatch<S, O> {
        StoreBatch {
            io: self.io.clone(),
            slice: self.slice.clone(),
            inbox: None,
            awake: self.awake.clone(),
            ready: VecDeque::new(),
            pending: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        self.slice.clock.now().0
    }

    async fn breathe(&self) {
        let slice = &self.slice;
        // One thread at a time works on a slice: its counters need no order.
        let left = slice.breaths.load(Ordering::Relaxed);
        slice.breaths.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 || slice.clock.now().0 >= slice.end.load(Ordering::Relaxed) {
            let mut yielded = false;
            poll_fn(|_| {
                if yielded {
                    return Poll::Ready(());
                }
                yielded = true;
                self.awake.store(true, Ordering::Relaxed);
                Poll::Pending
            })
            .await;
        }
    }
}

/// Reads in flight for one task. Dropped, it leaves them to the store; their buffers go back to the pool.
pub(crate) struct StoreBatch<S: Store, O: Observer> {
    io: Shared<S, O>,
    slice: Arc<Slice>,
    /// Made for the first read that is not done at once.
    inbox: Option<Arc<Inbox>>,
    awake: Arc<AtomicBool>,
    ready: VecDeque<(u32, Completion)>,
    pending: usize,
}

impl<S: Store, O: Observer> StoreBatch<S, O> {
    fn wrap(&self, completion: Completion) -> Result<PooledBuffer<S, O>, MediaError> {
        let buffer = PooledBuffer { buffer: completion.buffer, io: self.io.clone() };
        completion.result.map(|()| buffer).map_err(|e| MediaError(e.to_string()))
    }
}

impl<S: Store, O: Observer> Batch for StoreBatch<S, O> {
    type Buffer = PooledBuffer<S, O>;

    fn start(&mut self, offset: u64, len: usize, tag: u32) -> bool {
        let mut io = lock(&self.io);
        let buffer = match io.buffer(len) {
            Ok(buffer) => buffer,
            Err(error) => {
                let result =
                    Err(StoreError::Medium { operation: "read", offset, len: len as u64, reason: error.0 });
                self.ready.push_back((tag, Completion { result, buffer: None }));
                return true;
            }
        };
        let (awake, inbox) = (&self.awake, &mut self.inbox);
        let read = || {
            let new = || Arc::new(Inbox { done: Mutex::default(), awake: awake.clone() });
            Read { tag, to: inbox.get_or_insert_with(new).clone() }
        };
        match io.submit((offset, buffer), self.slice.clock.now(), read) {
            Some(completion) => {
                self.ready.push_back((tag, completion));
                true
            }
            None => {
                self.pending += 1;
                false
            }
        }
    }

    async fn next(&mut self) -> Option<(u32, Result<Self::Buffer, MediaError>)> {
        if self.ready.is_empty() && self.pending > 0 {
            let inbox = self.inbox.clone()?;
            let ready = &mut self.ready;
            poll_fn(|_| {
                ready.append(&mut lock(&inbox.done));
                if ready.is_empty() { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            self.pending -= self.ready.len();
        }
        let (tag, completion) = self.ready.pop_front()?;
        let result = self.wrap(completion);
        Some((tag, result))
    }

    fn in_flight(&self) -> usize {
        self.ready.len() + self.pending
    }
}

impl<S: Store, O: Observer> Drop for StoreBatch<S, O> {
    fn drop(&mut self) {
        let mut io = lock(&self.io);
        for (_, completion) in self.ready.drain(..) {
            if let Some(buffer) = completion.buffer {
                io.give_back(buffer);
            }
        }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Task<T> {
    key: u64,
    future: Boxed<T>,
    awake: Arc<AtomicBool>,
}

/// Tasks of one reactor, and their way to the store.
pub(crate) struct Executor<S: Store, O: Observer, T> {
    io: Shared<S, O>,
    slice: Arc<Slice>,
    tasks: VecDeque<Task<T>>,
    len: u64,
    block_size: u32,
}

impl<S: Store, O: Observer, T> Executor<S, O, T> {
    pub(crate) fn new(access: Access<S, O>, clock: Arc<dyn Clock>) -> Self {
        let namespace = access.namespace();
        let (len, block_size) = (namespace.bytes(), namespace.store().block_size());
        let io = Io { access, pool: Vec::new(), reads: Slab::new(), refused: VecDeque::new() };
        Executor {
            io: Arc::new(Mutex::new(io)),
            slice: Arc::new(Slice { clock, end: AtomicU64::new(0), breaths: AtomicU32::new(0) }),
            tasks: VecDeque::new(),
            len,
            block_size,
        }
    }

    /// Starts a task under a key of the caller's; `make` gets its way to the store.
    pub(crate) fn spawn<F>(&mut self, key: u64, make: impl FnOnce(StoreMedia<S, O>) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let awake = Arc::new(AtomicBool::new(true));
        let media = StoreMedia {
            io: self.io.clone(),
            slice: self.slice.clone(),
            awake: awake.clone(),
            len: self.len,
            block_size: self.block_size,
        };
        self.tasks.push_back(Task { key, future: Box::pin(make(media)), awake });
    }

    /// Ends a task where it is. Whether there was one.
    pub(crate) fn cancel(&mut self, key: u64) -> bool {
        let before = self.tasks.len();
        self.tasks.retain(|t| t.key != key);
        before > self.tasks.len()
    }

    /// Takes what the store has finished, and runs tasks until they all wait or the slice is spent.
    pub(crate) fn step(&mut self, now: Nanos, finished: &mut Finished<T>) -> Progress {
        let mut progress = Progress::default();
        if self.tasks.is_empty() && lock(&self.io).access.in_flight() == 0 {
            return progress;
        }
        progress.worked |= self.collect(now);
        self.slice.end.store(now.0.saturating_add(SLICE_NS), Ordering::Relaxed);
        self.slice.breaths.store(BREATHS, Ordering::Relaxed);
        let mut context = Context::from_waker(Waker::noop());
        let mut runnable = false;
        for _ in 0..self.tasks.len() {
            let Some(mut task) = self.tasks.pop_front() else { break };
            if !task.awake.swap(false, Ordering::AcqRel) {
                self.tasks.push_back(task);
                continue;
            }
            let spent = self.slice.breaths.load(Ordering::Relaxed) == 0
                || self.slice.clock.now().0 >= self.slice.end.load(Ordering::Relaxed);
            if spent {
                // Its turn comes first in the next step.
                task.awake.store(true, Ordering::Relaxed);
                self.tasks.push_front(task);
                runnable = true;
                break;
            }
            progress.worked = true;
            match task.future.as_mut().poll(&mut context) {
                Poll::Ready(value) => finished.push((task.key, value)),
                Poll::Pending => {
                    runnable |= task.awake.load(Ordering::Acquire);
                    self.tasks.push_back(task);
                }
            }
        }
        // A read that a task has just begun may be done soon.
        let mut io = lock(&self.io);
        progress.next = if runnable || !io.refused.is_empty() {
            Some(now)
        } else if io.access.in_flight() > 0 {
            let mut early = Vec::new();
            let next = io.access.poll(now, &mut |token, completion| early.push((token, completion)));
            let any = !early.is_empty();
            Self::hand_over(&mut io, early);
            if any { Some(now) } else { next }
        } else {
            None
        };
        progress
    }

    fn collect(&mut self, now: Nanos) -> bool {
        let mut io = lock(&self.io);
        let mut done = Vec::new();
        if io.access.in_flight() > 0 {
            io.access.poll(now, &mut |token, completion| done.push((token, completion)));
        }
        for _ in 0..io.refused.len() {
            let Some((offset, buffer, Read { tag, to })) = io.refused.pop_front() else { break };
            let again = to.clone();
            if let Some(completion) = io.submit((offset, buffer), now, || Read { tag, to: again }) {
                lock(&to.done).push_back((tag, completion));
                to.awake.store(true, Ordering::Release);
            }
        }
        let any = !done.is_empty();
        Self::hand_over(&mut io, done);
        any
    }

    fn hand_over(io: &mut Io<S, O>, done: Vec<(Token, Completion)>) {
        for (Token(key), completion) in done {
            let Some(Read { tag, to, .. }) = io.reads.remove(key as usize) else { continue };
            if Arc::strong_count(&to) == 1 {
                // Nobody waits any more.
                if let Some(buffer) = completion.buffer {
                    io.give_back(buffer);
                }
                continue;
            }
            lock(&to.done).push_back((tag, completion));
            to.awake.store(true, Ordering::Release);
        }
    }
}
