//! The slice executor: near-data commands as tasks, polled by a reactor between its I/O or by a thread of
//! their own.
//!
//! One boxed future per command, none per I/O. A task reads through [`StoreMedia`], which submits to the
//! reactor's own access to the store with a pooled buffer; a read that is not done at once suspends the task
//! until the store's completion wakes it. A task that computes asks [`Media::yield_now`] between pieces of
//! work, and yields when the slice is spent. Nothing here waits or sleeps. Reads that are in flight when
//! their task ends are the executor's to see to their end; where it goes itself, the namespace's.

mod window;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use nearside_clock::{Clock, Nanos};
use nearside_device::Access;
use nearside_device::firmware::{Observer, Progress, Turn};
use nearside_device::throttle::Account;
use nearside_dma::{IoBuffer, LentBytes};
use nearside_fsr::{Batch, Media, MediaError};
use nearside_store::{Completion, Data, Operation, Store, StoreError, Submitted, Token};
use slab::Slab;

use crate::helper::{self, Helper};
use crate::meters::{Meters, SLICE_NS, down, up};
use window::Window;

/// Tasks stop at the first yield after this, so that the piece that they are at ends within the slice.
const YIELD_NS: u64 = SLICE_NS * 5 / 8;
/// Yields in a slice, for clocks that stand still while a task runs.
const YIELDS: u32 = 256;
/// Until work that was handed to the helper is asked after.
const OFFLOADED_NS: u64 = 20_000;
/// Pooled buffers are this long: the provider's chunk and a block more on both sides.
const POOLED: usize = (128 << 10) + 8192;
/// Buffers kept.
const POOL: usize = 64;
/// A task whose quota owes waits so long at least: what comes in by then is used in one go.
const GRAIN_NS: u64 = 1_000_000;
/// And looks again after so long: it may have another quota by then.
const AGAIN_NS: u64 = 100_000_000;

/// What a task gave in the end, by its key.
pub(crate) type Finished<T> = Vec<(u64, T)>;

/// A reactor's way into a namespace ([`Access`]), of whatever store and observer. All else that a near-data
/// command passes is of no kind of store, so that it is compiled once.
trait Way: Send {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted;
    fn poll(&mut self, now: Nanos, sink: &mut dyn FnMut(Token, Completion)) -> Option<Nanos>;
    fn in_flight(&self) -> usize;
    fn lend(&mut self, offset: u64, len: usize) -> Option<LentBytes>;
    fn lapses(&self) -> u64;
    fn bytes(&self) -> u64;
    fn host_operations(&self) -> u64;
}

impl<S: Store, O: Observer> Way for Access<S, O> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        self.submit(operation, data, token, now)
    }

    fn poll(&mut self, now: Nanos, mut sink: &mut dyn FnMut(Token, Completion)) -> Option<Nanos> {
        self.poll(now, &mut sink)
    }

    fn in_flight(&self) -> usize {
        self.in_flight()
    }

    fn lend(&mut self, offset: u64, len: usize) -> Option<LentBytes> {
        self.lend(offset, len)
    }

    fn lapses(&self) -> u64 {
        self.lapses()
    }

    fn bytes(&self) -> u64 {
        self.namespace().bytes()
    }

    fn host_operations(&self) -> u64 {
        self.namespace().host_operations()
    }
}

/// The store as tasks share it.
struct Io {
    way: Box<dyn Way>,
    pool: Vec<IoBuffer>,
    /// Those that the store has, and since when.
    reads: Slab<(Nanos, Read)>,
    /// Reads that wait for those before them, or that the store had no room for.
    waiting: Waiting,
    window: Window,
    /// What a batch last asked for was lent: there is nothing for hosts' I/O to wait for.
    lends: bool,
    meters: Arc<Meters>,
}

impl Drop for Io {
    fn drop(&mut self) {
        down(&self.meters.reads, self.reads.len() + self.waiting.len);
    }
}

/// Reads by the batch that they are for: each has one read in its turn, so that one read does not wait for
/// all of somebody else's. A task has a batch or two; how many tasks a host may have is bounded by `tags.rs`.
#[derive(Default)]
struct Waiting {
    turns: VecDeque<VecDeque<Waiter>>,
    len: usize,
}

struct Waiter {
    offset: u64,
    buffer: IoBuffer,
    read: Read,
}

impl Waiting {
    fn push(&mut self, waiter: Waiter) {
        let same =
            |other: &VecDeque<Waiter>| other.front().is_some_and(|o| o.read.to.ptr_eq(&waiter.read.to));
        self.len += 1;
        match self.turns.iter_mut().find(|turn| same(turn)) {
            Some(turn) => turn.push_back(waiter),
            None => self.turns.push_back([waiter].into()),
        }
    }

    /// What was taken and could not be done is next again.
    fn push_first(&mut self, waiter: Waiter) {
        self.len += 1;
        self.turns.push_front([waiter].into());
    }

    fn pop(&mut self) -> Option<Waiter> {
        let mut turn = self.turns.pop_front()?;
        let waiter = turn.pop_front()?;
        self.len -= 1;
        if !turn.is_empty() {
            self.turns.push_back(turn);
        }
        Some(waiter)
    }
}

struct Read {
    tag: u32,
    /// Whoever waits; gone where it does not any more.
    to: Weak<Inbox>,
}

/// Completed reads of one batch.
#[derive(Default)]
struct Inbox {
    done: Mutex<VecDeque<(u32, Completion)>>,
    /// Its task can go on.
    awake: Arc<AtomicBool>,
}

type SharedIo = Arc<Mutex<Io>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Io {
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

    /// Takes a read. What is done at once is returned; otherwise whom it is for gets it in time.
    fn submit(
        &mut self,
        (offset, buffer): (u64, IoBuffer),
        now: Nanos,
        read: impl FnOnce() -> Read,
    ) -> Option<Completion> {
        if self.waiting.len == 0 {
            return self.hand_to_store((offset, buffer), now, read);
        }
        up(&self.meters.reads);
        self.waiting.push(Waiter { offset, buffer, read: read() });
        None
    }

    /// Submits a read; one that the store does not take now waits before all others.
    fn hand_to_store(
        &mut self,
        (offset, buffer): (u64, IoBuffer),
        now: Nanos,
        read: impl FnOnce() -> Read,
    ) -> Option<Completion> {
        if self.reads.is_empty() {
            self.window.begins(self.way.host_operations());
        }
        let buffer = if self.reads.len() < self.window.room(now) {
            let operation = Operation::Read { offset, len: buffer.len() as u64 };
            let token = Token(self.reads.vacant_key() as u64);
            match self.way.submit(operation, Data::Owned(buffer), token, now) {
                Submitted::Pending => {
                    up(&self.meters.reads);
                    self.reads.insert((now, read()));
                    return None;
                }
                Submitted::Done(Completion { result: Err(StoreError::Busy), buffer: Some(buffer) }) => buffer,
                Submitted::Done(completion) => return Some(completion),
            }
        } else {
            buffer
        };
        up(&self.meters.reads);
        self.waiting.push_first(Waiter { offset, buffer, read: read() });
        None
    }

    /// Hands over what waits, as long as the store takes it.
    fn hand_over_waiting(&mut self, now: Nanos) {
        while let Some(Waiter { offset, buffer, read }) = self.waiting.pop() {
            down(&self.meters.reads, 1);
            let Some(to) = read.to.upgrade() else {
                self.give_back(buffer);
                continue;
            };
            let (tag, before) = (read.tag, self.waiting.len);
            if let Some(completion) = self.hand_to_store((offset, buffer), now, || read) {
                to.give(tag, completion);
            } else if self.waiting.len > before {
                break;
            }
        }
    }
}

impl Inbox {
    fn give(&self, tag: u32, completion: Completion) {
        lock(&self.done).push_back((tag, completion));
        self.awake.store(true, Ordering::Release);
    }
}

/// Bytes that a read gave.
enum Held {
    Read(IoBuffer),
    /// Where the store has them.
    Lent(LentBytes),
}

/// Bytes that a read gave; a buffer goes back to the pool.
pub(crate) struct PooledBuffer {
    held: Option<Held>,
    io: SharedIo,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        match &self.held {
            Some(Held::Read(buffer)) => buffer,
            Some(Held::Lent(bytes)) => bytes.as_ref(),
            None => &[],
        }
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let held = self.held.take();
        if matches!(held, Some(Held::Lent(_))) {
            return;
        }
        let mut io = lock(&self.io);
        down(&io.meters.buffers, 1);
        if let Some(Held::Read(buffer)) = held {
            io.give_back(buffer);
        }
    }
}

/// The time that is left, as tasks see it.
struct Slice {
    clock: Arc<dyn Clock>,
    end: AtomicU64,
    yields: AtomicU32,
}

/// Whose time a task takes.
#[derive(Clone, Default)]
pub(crate) struct Payer {
    /// Its name.
    pub(crate) host: Arc<str>,
    /// What it is taken from.
    pub(crate) account: Arc<Account>,
}

/// One task's way to the store.
pub(crate) struct StoreMedia {
    io: SharedIo,
    slice: Arc<Slice>,
    awake: Arc<AtomicBool>,
    /// Tasks that wait for a helper.
    offloaded: Arc<AtomicUsize>,
    /// What a helper does soon is done here.
    in_place: bool,
    payer: Payer,
    len: u64,
    block_size: u32,
}

impl StoreMedia {
    /// Has a helper do work, and waits for it; its time is the task's. What nobody takes is given back.
    async fn hand<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        helper: &'static Helper,
        work: F,
    ) -> Result<T, F> {
        if self.slice.clock.is_simulated() {
            return Ok(work());
        }
        let (payer, clock) = (self.payer.clone(), self.slice.clock.clone());
        // Also where nobody waits for its end.
        let bill = move |cost| {
            let now = clock.now();
            _ = payer.account.take(cost, now);
        };
        let job = helper.submit(&self.payer.host, work, bill, (&self.awake, &self.offloaded))?;
        let done = poll_fn(|_| job.take().map_or(Poll::Pending, Poll::Ready)).await;
        Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Media for StoreMedia {
    type Buffer = PooledBuffer;
    type Batch = StoreBatch;

    fn len(&self) -> u64 {
        self.len
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Self::Buffer, MediaError> {
        let mut batch = self.batch();
        // Copied: what is parsed has to be the same at every look.
        batch.read(offset, len, 0);
        match batch.next().await {
            Some((_, result)) => result,
            None => Err(MediaError("the read was lost".to_owned())),
        }
    }

    fn batch(&self) -> StoreBatch {
        StoreBatch {
            io: self.io.clone(),
            slice: self.slice.clone(),
            inbox: None,
            awake: self.awake.clone(),
            ready: VecDeque::new(),
            pending: 0,
        }
    }

    fn longest_read(&self) -> u64 {
        let io = lock(&self.io);
        if io.lends { u64::MAX } else { io.window.bytes(self.slice.clock.now()) }
    }

    fn lapses(&self) -> u64 {
        lock(&self.io).way.lapses()
    }

    fn now_ns(&self) -> u64 {
        self.slice.clock.now().0
    }

    async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.in_place {
            return work();
        }
        self.hand(&helper::SOON, work).await.unwrap_or_else(|work| work())
    }

    async fn offload_long<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.hand(&helper::LONG, work).await.ok()
    }

    async fn yield_now(&self) {
        let slice = &self.slice;
        // One thread at a time works on a slice: its counters need no order.
        let left = slice.yields.load(Ordering::Relaxed);
        slice.yields.store(left.saturating_sub(1), Ordering::Relaxed);
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
pub(crate) struct StoreBatch {
    io: SharedIo,
    slice: Arc<Slice>,
    /// Made for the first read that is not done at once.
    inbox: Option<Arc<Inbox>>,
    awake: Arc<AtomicBool>,
    ready: VecDeque<(u32, Ready)>,
    pending: usize,
}

/// What is done of a batch.
enum Ready {
    Read(Completion),
    Lent(LentBytes),
}

impl StoreBatch {
    fn wrap(&self, ready: Ready) -> Result<PooledBuffer, MediaError> {
        let completion = match ready {
            Ready::Read(completion) => completion,
            Ready::Lent(bytes) => {
                return Ok(PooledBuffer { held: Some(Held::Lent(bytes)), io: self.io.clone() });
            }
        };
        up(&lock(&self.io).meters.buffers);
        let buffer = PooledBuffer { held: completion.buffer.map(Held::Read), io: self.io.clone() };
        completion.result.map(|()| buffer).map_err(|e| MediaError(e.to_string()))
    }

    /// Starts a read into a buffer. Whether it is done.
    fn read(&mut self, offset: u64, len: usize, tag: u32) -> bool {
        let mut io = lock(&self.io);
        let buffer = match io.buffer(len) {
            Ok(buffer) => buffer,
            Err(error) => {
                let result =
                    Err(StoreError::Medium { operation: "read", offset, len: len as u64, reason: error.0 });
                self.ready.push_back((tag, Ready::Read(Completion { result, buffer: None })));
                return true;
            }
        };
        let (awake, inbox) = (&self.awake, &mut self.inbox);
        let read = || {
            let new = || Arc::new(Inbox { done: Mutex::default(), awake: awake.clone() });
            Read { tag, to: Arc::downgrade(inbox.get_or_insert_with(new)) }
        };
        match io.submit((offset, buffer), self.slice.clock.now(), read) {
            Some(completion) => {
                self.ready.push_back((tag, Ready::Read(completion)));
                true
            }
            None => {
                self.pending += 1;
                false
            }
        }
    }
}

impl Batch for StoreBatch {
    type Buffer = PooledBuffer;

    fn start(&mut self, offset: u64, len: usize, tag: u32) -> bool {
        let lent = {
            let mut io = lock(&self.io);
            let lent = io.way.lend(offset, len);
            io.lends = lent.is_some();
            lent
        };
        match lent {
            Some(bytes) => {
                self.ready.push_back((tag, Ready::Lent(bytes)));
                true
            }
            None => self.read(offset, len, tag),
        }
    }

    async fn next(&mut self) -> Option<(u32, Result<Self::Buffer, MediaError>)> {
        if self.ready.is_empty() && self.pending > 0 {
            let inbox = self.inbox.clone()?;
            let ready = &mut self.ready;
            poll_fn(|_| {
                ready.extend(lock(&inbox.done).drain(..).map(|(tag, done)| (tag, Ready::Read(done))));
                if ready.is_empty() { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            self.pending -= self.ready.len();
        }
        let (tag, ready) = self.ready.pop_front()?;
        let result = self.wrap(ready);
        Some((tag, result))
    }

    fn in_flight(&self) -> usize {
        self.ready.len() + self.pending
    }
}

impl Drop for StoreBatch {
    fn drop(&mut self) {
        let here = self.ready.drain(..).filter_map(|(_, ready)| match ready {
            Ready::Read(completion) => completion.buffer,
            Ready::Lent(_) => None,
        });
        let inbox = self.inbox.as_ref().map(|inbox| std::mem::take(&mut *lock(&inbox.done)));
        let come = inbox.unwrap_or_default().into_iter().filter_map(|(_, completion)| completion.buffer);
        let mut io = lock(&self.io);
        here.chain(come).for_each(|buffer| io.give_back(buffer));
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Task<T> {
    key: u64,
    future: Boxed<T>,
    awake: Arc<AtomicBool>,
    /// What its time is taken from.
    account: Arc<Account>,
    /// It looks again then whether that still owes.
    until: Nanos,
    /// Since when it has waited for that, where it does, and when it last looked; how long it had before.
    held: Option<(Nanos, Nanos)>,
    waited: u64,
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        let waits = self.held.map_or(0, |(since, looked)| looked.since(since));
        if self.waited > 0 || self.held.is_some() {
            self.account.waited(self.waited + waits);
        }
    }
}

impl<T> Task<T> {
    fn can_go_on(&self, now: Nanos) -> bool {
        self.awake.load(Ordering::Acquire) && self.until <= now
    }

    /// Whether it has to wait for its quota, and until when.
    fn is_held(&mut self, now: Nanos) -> bool {
        let due = self.account.take(0, now);
        if due > now {
            self.held.get_or_insert((now, now)).1 = now;
            self.until = due.clamp(now + GRAIN_NS, now + AGAIN_NS);
        } else if let Some((since, _)) = self.held.take() {
            self.waited += now.since(since);
        }
        due > now
    }
}

/// Tasks of one reactor, and their way to the store.
pub(crate) struct Executor<T> {
    io: SharedIo,
    slice: Arc<Slice>,
    tasks: VecDeque<Task<T>>,
    offloaded: Arc<AtomicUsize>,
    in_place: bool,
    block_size: u32,
    meters: Arc<Meters>,
}

impl<T> Drop for Executor<T> {
    fn drop(&mut self) {
        down(&self.meters.tasks, self.tasks.len());
    }
}

impl<T> Executor<T> {
    pub(crate) fn new<S: Store, O: Observer>(
        access: Access<S, O>,
        clock: Arc<dyn Clock>,
        meters: Arc<Meters>,
    ) -> Self {
        let namespace = access.namespace();
        let block_size = namespace.store().block_size();
        let io = Io {
            pool: Vec::new(),
            reads: Slab::new(),
            waiting: Waiting::default(),
            window: Window::new(namespace.host_operations()),
            lends: false,
            way: Box::new(access.for_near_data()),
            meters: meters.clone(),
        };
        Executor {
            io: Arc::new(Mutex::new(io)),
            slice: Arc::new(Slice { clock, end: AtomicU64::new(0), yields: AtomicU32::new(0) }),
            tasks: VecDeque::new(),
            offloaded: Arc::default(),
            in_place: false,
            block_size,
            meters,
        }
    }

    /// This executor with what a helper would soon have done in its own place.
    pub(crate) fn in_place(mut self, in_place: bool) -> Self {
        self.in_place = in_place;
        self
    }

    /// Reads that the store has not ended, also of tasks that have.
    pub(crate) fn in_flight(&self) -> usize {
        let io = lock(&self.io);
        io.reads.len() + io.waiting.len
    }

    /// Starts a task under a key of the caller's; `make` gets its way to the store.
    #[cfg(test)]
    pub(crate) fn spawn<F>(&mut self, key: u64, make: impl FnOnce(StoreMedia) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.spawn_for(key, Payer::default(), make);
    }

    /// Starts a task under a key of the caller's.
    pub(crate) fn spawn_for<F>(&mut self, key: u64, payer: Payer, make: impl FnOnce(StoreMedia) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (awake, account) = (Arc::new(AtomicBool::new(true)), payer.account.clone());
        let media = StoreMedia {
            io: self.io.clone(),
            slice: self.slice.clone(),
            awake: awake.clone(),
            offloaded: self.offloaded.clone(),
            in_place: self.in_place,
            payer,
            // It may have become longer or shorter since the last.
            len: lock(&self.io).way.bytes(),
            block_size: self.block_size,
        };
        up(&self.meters.tasks);
        let (future, until) = (Box::pin(make(media)), Nanos(0));
        self.tasks.push_back(Task { key, future, awake, account, until, held: None, waited: 0 });
    }

    /// Ends a task where it is. Whether there was one.
    pub(crate) fn cancel(&mut self, key: u64) -> bool {
        let before = self.tasks.len();
        self.tasks.retain(|t| t.key != key);
        let ended = before - self.tasks.len();
        down(&self.meters.tasks, ended);
        ended > 0
    }

    /// Takes what the store has finished, and runs tasks until they all wait or the slice is spent; where the
    /// turn has no slice left, they wait for the next.
    pub(crate) fn step(&mut self, now: Nanos, turn: &mut Turn, finished: &mut Finished<T>) -> Progress {
        let mut progress = Progress::default();
        if self.tasks.is_empty() && self.in_flight() == 0 {
            return progress;
        }
        progress.worked |= self.collect(now);
        let runnable = self.tasks.iter().any(|task| task.can_go_on(now));
        let runnable = runnable
            && (!turn.take() || {
                progress.worked = true;
                self.run(finished)
            });
        // A read that a task has just begun may be done soon.
        let mut io = lock(&self.io);
        // Where reads wait for others of the executor's own, those end.
        progress.next = if runnable || io.reads.is_empty() && io.waiting.len > 0 {
            Some(now)
        } else if io.way.in_flight() > 0 {
            let mut early = Vec::new();
            let next = io.way.poll(now, &mut |token, completion| early.push((token, completion)));
            let any = !early.is_empty();
            Self::hand_over(&mut io, early, self.slice.clock.now());
            if any { Some(now) } else { next }
        } else {
            None
        };
        let held = self.tasks.iter().filter(|task| task.until > now && task.awake.load(Ordering::Acquire));
        progress.at(held.map(|task| task.until).min());
        if self.offloaded.load(Ordering::Acquire) > 0 {
            let soon = now + OFFLOADED_NS;
            progress.beside = true;
            progress.next = Some(progress.next.map_or(soon, |next| next.min(soon)));
        }
        progress
    }

    /// One slice: the tasks that can go on, each in its turn. Whether there are more.
    fn run(&mut self, finished: &mut Finished<T>) -> bool {
        let slice = self.slice.clone();
        // By the clock, not by when the step began: I/O has run since, and the slice is the tasks' all the
        // same.
        let begin = slice.clock.now();
        let end = begin + YIELD_NS;
        slice.end.store(end.0, Ordering::Relaxed);
        slice.yields.store(YIELDS, Ordering::Relaxed);
        let mut context = Context::from_waker(Waker::noop());
        let (mut time, mut polled, mut runnable) = (begin, false, false);
        for _ in 0..self.tasks.len() {
            let Some(mut task) = self.tasks.pop_front() else { break };
            if !task.can_go_on(time) || task.is_held(time) {
                self.tasks.push_back(task);
                continue;
            }
            if polled && (slice.yields.load(Ordering::Relaxed) == 0 || time >= end) {
                // Its turn comes first in the next slice.
                self.tasks.push_front(task);
                runnable = true;
                break;
            }
            task.awake.store(false, Ordering::Relaxed);
            polled = true;
            let since = time;
            let ended = task.future.as_mut().poll(&mut context);
            time = slice.clock.now();
            task.account.take(time.since(since), time);
            match ended {
                Poll::Ready(value) => {
                    down(&self.meters.tasks, 1);
                    finished.push((task.key, value));
                }
                Poll::Pending => {
                    runnable |= task.awake.load(Ordering::Acquire);
                    self.tasks.push_back(task);
                }
            }
        }
        self.meters.slice(time.since(begin));
        runnable
    }

    fn collect(&mut self, now: Nanos) -> bool {
        let mut io = lock(&self.io);
        let mut done = Vec::new();
        if io.way.in_flight() > 0 {
            io.way.poll(now, &mut |token, completion| done.push((token, completion)));
        }
        let any = !done.is_empty();
        Self::hand_over(&mut io, done, self.slice.clock.now());
        io.hand_over_waiting(now);
        any
    }

    /// `now` is when they are handed over: some were begun since the step was.
    fn hand_over(io: &mut Io, done: Vec<(Token, Completion)>, now: Nanos) {
        if !done.is_empty() {
            io.window.end(io.way.host_operations(), now);
        }
        for (Token(key), completion) in done {
            let Some((since, Read { tag, to })) = io.reads.try_remove(key as usize) else { continue };
            let bytes = completion.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
            io.window.took(bytes, now.since(since));
            down(&io.meters.reads, 1);
            let Some(to) = to.upgrade() else {
                if let Some(buffer) = completion.buffer {
                    io.give_back(buffer);
                }
                continue;
            };
            to.give(tag, completion);
        }
    }
}

#[cfg(test)]
mod tests;
