//! The namespace: the store, its logical blocks, and the observer of every change.
//!
//! All fronts reach the store through an [`Access`]: it takes the stripe locks where several reactors run,
//! tells the [`Observer`] before and after each mutation, and passes the operation on. It checks no ranges:
//! the controller has done so by NVMe's rules, and the store does by its own.
//!
//! Whoever drops an [`Access`] while operations are in flight leaves them to the namespace: they hold stripes
//! and buffers, and a mutation has begun that the observer waits to see ended. The other accesses, and
//! whoever calls [`Namespace::poll_orphans`], see them to their end.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use nearside_clock::{Nanos, RateLimits, Suppressed, event_at};
use nearside_dma::{LentBytes, Memory};
use nearside_spec::Status;
use nearside_spec::identify::csi;
use nearside_store::{Channel, Completion, Data, Operation, Store, StoreError, Submitted, Token};
use slab::Slab;

use crate::fault;
use crate::firmware::Observer;
use crate::flush_order::FlushOrder;
use crate::reactor::BATCH;
use crate::reservation::{Keep, Kept, Reservations};
use crate::stripes::Stripes;
use crate::subsystem::REPORT_EVERY_NS;

/// What commands of a namespace mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandSet {
    /// Reads and writes of logical blocks.
    #[default]
    Nvm,
    /// Reads, writes, fills and copies of bytes: Subsystem Local Memory.
    Memory,
    /// Programs over such memory: Computational Programs.
    Compute,
}

impl CommandSet {
    /// Its identifier.
    pub fn csi(self) -> u8 {
        match self {
            CommandSet::Nvm => csi::NVM,
            CommandSet::Memory => csi::MEMORY,
            CommandSet::Compute => csi::COMPUTE,
        }
    }
}

/// A store with logical blocks of 512 or 4096 bytes, or of memory (4 bytes), and an observer of its changes.
pub struct Namespace<S: Store, O = ()> {
    store: S,
    observer: O,
    command_set: CommandSet,
    lba_shift: u32,
    /// Logical blocks that hosts may reach.
    blocks: AtomicU64,
    /// Held while that changes.
    pub(crate) resizing: Mutex<()>,
    uuid: [u8; 16],
    nguid: [u8; 16],
    ana_group: u32,
    protected: bool,
    reservations: Reservations,
    stripes: Option<Stripes>,
    orphans: Mutex<Vec<OpenChannel<S>>>,
    /// Operations in flight of `orphans`.
    orphans_in_flight: AtomicUsize,
    /// Operations of hosts so far that the medium did not end at once.
    host_operations: Apart,
    failures: Mutex<Failures>,
}

/// Bytes of which addresses and lengths in a memory namespace are multiples.
pub const MEMORY_GRANULARITY: u32 = 4;

/// Operations that the store failed.
#[derive(Debug)]
struct Failures {
    count: u64,
    last: Option<StoreError>,
    /// What the log was told of them, by the status.
    reports: RateLimits<Status>,
}

/// On cache lines of its own: it is written where what lies around it is only read.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// A channel of the store, and what is in flight on it.
struct OpenChannel<S: Store> {
    channel: S::Channel,
    pending: Slab<Pending>,
    order: FlushOrder,
}

impl<S: Store, O> Namespace<S, O> {
    /// What its commands mean.
    #[inline]
    pub fn command_set(&self) -> CommandSet {
        self.command_set
    }

    /// Its ANA group.
    pub fn ana_group(&self) -> u32 {
        self.ana_group
    }

    /// A channel whose owner goes, with operations in flight.
    fn keep_orphans(&self, mut open: OpenChannel<S>) {
        open.order.abandons();
        let in_flight = open.pending.len();
        let mut orphans = self.orphans.lock().unwrap_or_else(|e| e.into_inner());
        orphans.push(open);
        self.orphans_in_flight.fetch_add(in_flight, Ordering::Relaxed);
    }
}

impl<S: Store, O: Observer> Namespace<S, O> {
    /// A namespace over a store. `lba_size` is in bytes: 512 or 4096, and a multiple of the store's block
    /// size. `shared`: more than one [`Access`] runs at the same time, so that locks must keep blocks from
    /// tearing.
    ///
    /// # Errors
    /// `InvalidInput` where `lba_size` is another, or the store holds not one block of it.
    pub fn new(store: S, observer: O, lba_size: u32, uuid: [u8; 16], shared: bool) -> io::Result<Self> {
        if !matches!(lba_size, 512 | 4096) || !lba_size.is_multiple_of(store.block_size().max(1)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "logical blocks of {lba_size} bytes on a store with blocks of {}",
                    store.block_size()
                ),
            ));
        }
        Namespace::of_blocks(store, observer, lba_size, uuid, shared)
    }

    /// A namespace of another command set than that of logical blocks. The store of one of memory has blocks
    /// of 4 bytes ([`MEMORY_GRANULARITY`]); that of one of programs is there for no command.
    ///
    /// # Errors
    /// `InvalidInput` where the store's blocks are others, or it holds not one of them.
    pub fn of_command_set(set: CommandSet, store: S, observer: O, uuid: [u8; 16]) -> io::Result<Self> {
        let block = store.block_size();
        if set == CommandSet::Memory && block != MEMORY_GRANULARITY {
            let why = format!("memory in blocks of {block} bytes: {MEMORY_GRANULARITY} are wanted");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // A host orders what it does with memory by itself.
        let namespace = Namespace::of_blocks(store, observer, block, uuid, false)?;
        Ok(Namespace { command_set: set, ..namespace })
    }

    fn of_blocks(store: S, observer: O, lba_size: u32, uuid: [u8; 16], shared: bool) -> io::Result<Self> {
        if store.capacity() < u64::from(lba_size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a store of {} bytes holds no logical block of {lba_size}", store.capacity()),
            ));
        }
        let lba_shift = lba_size.trailing_zeros();
        observer.is_told(store.standing());
        // What nobody writes has no order to keep.
        let stripes = (shared && !store.read_only()).then(Stripes::new);
        Ok(Namespace {
            blocks: AtomicU64::new(store.capacity() >> lba_shift),
            resizing: Mutex::new(()),
            store,
            observer,
            command_set: CommandSet::Nvm,
            lba_shift,
            uuid,
            nguid: [0; 16],
            ana_group: 1,
            protected: false,
            reservations: Reservations::default(),
            stripes,
            orphans: Mutex::default(),
            orphans_in_flight: AtomicUsize::new(0),
            host_operations: Apart::default(),
            failures: Mutex::new(Failures {
                count: 0,
                last: None,
                reports: RateLimits::new(REPORT_EVERY_NS),
            }),
        })
    }

    /// Logical blocks. What is left of the store after the last whole one is out of reach.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Another length, of which the reactors have to be told. What lies between the old end and the new one
    /// is not what it was.
    pub(crate) fn set_blocks(&self, blocks: u64) {
        let before = self.blocks.load(Ordering::Relaxed);
        let (from, to) = (before.min(blocks) << self.lba_shift, before.max(blocks) << self.lba_shift);
        self.observer.begin(from, to - from);
        self.blocks.store(blocks, Ordering::Relaxed);
        self.observer.end(from, to - from, false);
    }

    /// Log2 of a logical block's bytes.
    #[inline]
    pub fn lba_shift(&self) -> u32 {
        self.lba_shift
    }

    /// Bytes of all logical blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.lba_shift
    }

    /// The UUID that Identify gives.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// The namespace with an NGUID (16 bytes). Without this it has none, which hosts see as zeros.
    pub fn with_nguid(self, nguid: [u8; 16]) -> Self {
        Namespace { nguid, ..self }
    }

    /// The same in another ANA group than the first; [`crate::MAX_ANA_GROUP`] is the largest.
    pub fn in_ana_group(self, ana_group: u32) -> Self {
        Namespace { ana_group, ..self }
    }

    /// The namespace, write-protected where `protected`, whatever its store allows.
    pub fn protected(self, protected: bool) -> Self {
        Namespace { protected, ..self }
    }

    /// The namespace with the reservations that were kept of it, which are kept from now on.
    pub fn with_reservations(self, kept: Kept, keep: Keep) -> Self {
        Namespace { reservations: Reservations::kept(kept, keep), ..self }
    }

    /// Which of its hosts may do what.
    #[inline]
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The NGUID that Identify gives; zeros where it has none.
    pub fn nguid(&self) -> &[u8; 16] {
        &self.nguid
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The observer of changes: the firmware.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Whether it may not be written.
    pub fn read_only(&self) -> bool {
        self.protected || self.store.read_only()
    }

    /// A way in; `memory` holds the spans that operations name.
    ///
    /// # Errors
    /// The store's: it gives no channel.
    pub fn access(self: &Arc<Self>, memory: Arc<Memory>) -> io::Result<Access<S, O>> {
        let channel = self.store.channel(memory)?;
        let open = Some(OpenChannel { channel, pending: Slab::new(), order: FlushOrder::default() });
        Ok(Access { namespace: self.clone(), open, near_data: false })
    }

    /// Operations so far that hosts have waited for at the medium. What it ends at once is not counted: that
    /// path writes nothing that is shared.
    pub fn host_operations(&self) -> u64 {
        self.host_operations.0.load(Ordering::Relaxed)
    }

    /// Operations that the store failed so far, and the last of their errors.
    pub fn failures(&self) -> (u64, Option<StoreError>) {
        let failures = self.failures.lock().unwrap_or_else(|e| e.into_inner());
        (failures.count, failures.last.clone())
    }

    /// Notes a failure: whether it is logged now, and how many like it were not since the last.
    #[cold]
    pub(crate) fn failed(&self, status: Status, error: &StoreError, now: Nanos) -> Option<Suppressed> {
        let mut failures = self.failures.lock().unwrap_or_else(|e| e.into_inner());
        failures.count += 1;
        failures.last = Some(error.clone());
        failures.reports.admit(status, now)
    }

    /// A read for near-data work failed: no command of a host says so.
    #[cold]
    fn near_data_failed(&self, operation: &Operation, error: &StoreError, now: Nanos) {
        let (fault, level) = fault::of_store(error, operation);
        if let Some(suppressed) = self.failed(fault.status, error, now) {
            event_at!(level, operation = operation.name(), %error, suppressed, "the store failed near-data work");
        }
    }

    /// Operations in flight that the accesses left which began them.
    #[inline]
    pub fn orphans_in_flight(&self) -> usize {
        self.orphans_in_flight.load(Ordering::Relaxed)
    }

    /// Stripes of the namespace that operations in flight hold, or wait for.
    pub fn stripes_held(&self) -> usize {
        self.stripes.as_ref().map_or(0, Stripes::held)
    }

    /// Ends what the store has ended of [`Namespace::orphans_in_flight`]. Returns the time at which the next
    /// can be due, if the store knows.
    #[inline]
    pub fn poll_orphans(&self, now: Nanos) -> Option<Nanos> {
        if self.orphans_in_flight() == 0 { None } else { self.poll_orphans_locked(now) }
    }

    #[cold]
    fn poll_orphans_locked(&self, now: Nanos) -> Option<Nanos> {
        // Whoever holds the lock is at it.
        let mut orphans: MutexGuard<'_, _> = match self.orphans.try_lock() {
            Ok(orphans) => orphans,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(now),
        };
        let mut next: Option<Nanos> = None;
        orphans.retain_mut(|open| {
            let before = open.pending.len();
            let due = open.poll(self, now, false, &mut |_, _| {});
            let ended = before - open.pending.len();
            let left = self.orphans_in_flight.fetch_sub(ended, Ordering::Relaxed);
            assert!(ended <= left, "{ended} operations ended, of {left} that were left");
            if open.pending.is_empty() {
                return false;
            }
            next = match (next, due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            true
        });
        next
    }
}

/// One reactor's way into a namespace, with the contract of [`Channel`] (`submit`, `poll`, `in_flight`), and
/// one thing more: while another reactor works on the same blocks, `submit` answers [`StoreError::Busy`]. It
/// may be dropped at any time.
pub struct Access<S: Store, O> {
    namespace: Arc<Namespace<S, O>>,
    /// There until it is dropped.
    open: Option<OpenChannel<S>>,
    /// Its operations are the firmware's own.
    near_data: bool,
}

impl<S: Store, O> Drop for Access<S, O> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take()
            && !open.pending.is_empty()
        {
            self.namespace.keep_orphans(open);
        }
    }
}

impl<S: Store> OpenChannel<S> {
    #[inline]
    fn poll<O: Observer>(
        &mut self,
        namespace: &Namespace<S, O>,
        now: Nanos,
        near_data: bool,
        sink: &mut impl FnMut(Token, Completion),
    ) -> Option<Nanos> {
        let OpenChannel { channel, pending, order } = self;
        let next = channel.poll(now, &mut |Token(key), completion| {
            let Some(Pending { token, operation, number, buffer }) = pending.try_remove(key as usize) else {
                panic!("the store completed an operation twice, or one that was never submitted: {key}");
            };
            if near_data && let Err(error) = &completion.result {
                namespace.near_data_failed(&operation, error, now);
            }
            check_returned(&operation, buffer, &completion);
            ended(namespace, &operation, number, &completion);
            if mutation(&operation).is_some() {
                order.ends(number);
            }
            sink(token, completion);
        });
        let in_flight = channel.in_flight();
        assert!(in_flight >= pending.len(), "the store lost operations: {in_flight} of {}", pending.len());
        if self.order.first().is_some() { self.release(namespace, now, near_data, sink) } else { next }
    }

    /// Starts the flushes that wait for nothing any more.
    #[cold]
    fn release<O: Observer>(
        &mut self,
        namespace: &Namespace<S, O>,
        now: Nanos,
        near_data: bool,
        sink: &mut impl FnMut(Token, Completion),
    ) -> Option<Nanos> {
        // So many at a time, as of what a host submits.
        for _ in 0..BATCH {
            let Some(token) = self.order.first() else { break };
            match self.start(namespace, near_data, Operation::Flush, Data::None, token, now) {
                // It is tried again.
                Submitted::Done(Completion { result: Err(StoreError::Busy), .. }) => break,
                Submitted::Done(completion) => sink(token, completion),
                Submitted::Pending => {}
            }
            self.order.leaves();
        }
        Some(now)
    }

    /// Hands an operation to the store.
    #[inline]
    fn start<O: Observer>(
        &mut self,
        namespace: &Namespace<S, O>,
        near_data: bool,
        operation: Operation,
        data: Data<'_>,
        token: Token,
        now: Nanos,
    ) -> Submitted {
        let buffer = match &data {
            Data::Owned(buffer) => Some(buffer.len()),
            Data::None | Data::Spans(_) => None,
        };
        let (mut number, changes) = (0, mutation(&operation));
        if let Some((offset, len, _)) = changes {
            namespace.observer.begin(offset, len);
        } else if operation == Operation::Flush {
            number = namespace.observer.flush_begins();
        }
        match self.channel.submit(operation, data, Token(self.pending.vacant_key() as u64), now) {
            Submitted::Done(completion) => {
                if near_data && let Err(error) = &completion.result {
                    namespace.near_data_failed(&operation, error, now);
                }
                check_returned(&operation, buffer, &completion);
                ended(namespace, &operation, number, &completion);
                Submitted::Done(completion)
            }
            Submitted::Pending => {
                if changes.is_some() {
                    number = self.order.begins();
                }
                self.pending.insert(Pending { token, operation, number, buffer });
                Submitted::Pending
            }
        }
    }
}

/// A submitted operation that is not done.
struct Pending {
    token: Token,
    operation: Operation,
    /// Of a flush its ticket, of a mutation that of its order.
    number: u64,
    /// Bytes of the caller's buffer, where it gave one.
    buffer: Option<usize>,
}

/// The caller's buffer comes back with the operation: without it, or with another, its reader would take what
/// it never read for data.
#[inline]
fn check_returned(operation: &Operation, given: Option<usize>, completion: &Completion) {
    let back = completion.buffer.as_ref().map(|buffer| buffer.len());
    assert!(given == back, "a {} came back with a buffer of {back:?} bytes, not {given:?}", operation.name());
}

/// The bytes that an operation changes, and whether they are durable once it is done.
#[inline]
pub(crate) fn mutation(operation: &Operation) -> Option<(u64, u64, bool)> {
    match *operation {
        Operation::Write { offset, len, fua } | Operation::WriteZeroes { offset, len, fua } => {
            Some((offset, len, fua))
        }
        Operation::Deallocate { offset, len } => Some((offset, len, false)),
        Operation::Read { .. } | Operation::Flush => None,
    }
}

impl<S: Store, O: Observer> Access<S, O> {
    /// An access whose operations are the firmware's own: they do not count as a host's.
    pub fn for_near_data(self) -> Self {
        let mut access = self;
        access.near_data = true;
        access
    }

    /// The namespace.
    #[inline]
    pub fn namespace(&self) -> &Arc<Namespace<S, O>> {
        &self.namespace
    }

    /// Starts an operation; see [`Channel::submit`].
    #[inline]
    pub fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        if let Some(stripes) = &self.namespace.stripes
            && !stripes.try_lock(&operation)
        {
            // What holds the stripe may be nobody's any more; the next try finds it free.
            self.namespace.poll_orphans(now);
            return Submitted::done(Err(StoreError::Busy), data);
        }
        let Access { namespace, open, near_data } = self;
        let open = opened(open);
        let submitted = if operation == Operation::Flush && open.order.holds(token) {
            Submitted::Pending
        } else {
            open.start(namespace, *near_data, operation, data, token, now)
        };
        if matches!(submitted, Submitted::Pending) && !*near_data {
            namespace.host_operations.0.fetch_add(1, Ordering::Relaxed);
        }
        submitted
    }

    /// Hands over what is finished; see [`Channel::poll`].
    #[inline]
    pub fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let Access { namespace, open, near_data } = self;
        open.as_mut()?.poll(namespace, now, *near_data, sink)
    }

    /// Operations in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.pending.len() + open.order.waiting())
    }

    /// Whether an operation in flight reaches beyond a byte.
    pub(crate) fn reaches_beyond(&self, end: u64) -> bool {
        let beyond = |pending: &Pending| pending.operation.ends_beyond(end);
        self.open.as_ref().is_some_and(|open| open.pending.iter().any(|(_, pending)| beyond(pending)))
    }

    /// See [`Channel::prefetch`].
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        if let Some(stripes) = &self.namespace.stripes {
            stripes.prefetch(offset);
        }
        if let Some(open) = &self.open {
            open.channel.prefetch(offset, len, writes);
        }
    }

    /// See [`Channel::lend`]. Nothing is lent of a namespace that hosts can write.
    pub fn lend(&mut self, offset: u64, len: usize) -> Option<LentBytes> {
        if self.namespace.store.read_only() { opened(&mut self.open).channel.lend(offset, len) } else { None }
    }

    /// See [`Channel::lapses`].
    pub fn lapses(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.channel.lapses())
    }

    /// See [`Channel::memory_changed`].
    pub(crate) fn memory_changed(&mut self) {
        if let Some(open) = &mut self.open {
            open.channel.memory_changed();
        }
    }

    /// An operation that was answered [`StoreError::Busy`] will not be submitted again.
    pub fn abandon(&self, operation: &Operation) {
        if let Some(stripes) = &self.namespace.stripes {
            stripes.abandon(operation);
        }
    }
}

#[inline]
fn opened<S: Store>(open: &mut Option<OpenChannel<S>>) -> &mut OpenChannel<S> {
    match open {
        Some(open) => open,
        None => panic!("an access is used after its end"),
    }
}

#[inline]
fn ended<S: Store, O: Observer>(
    namespace: &Namespace<S, O>,
    operation: &Operation,
    number: u64,
    completion: &Completion,
) {
    if let Some((offset, len, fua)) = mutation(operation) {
        namespace.observer.end(offset, len, fua && completion.result.is_ok());
    } else if *operation == Operation::Flush && completion.result.is_ok() {
        namespace.observer.flushed(number);
    }
    if let Some(stripes) = &namespace.stripes {
        stripes.unlock(operation);
    }
}
