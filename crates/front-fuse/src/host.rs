//! The attached drive's host: bytes of the namespace, read and written by NVMe commands.
//!
//! Threads that serve the kernel have a queue pair each and wait for nothing ([`engine`](crate::engine)).
//! Every other caller's thread borrows an initiator (a queue pair of its own) for the time of a request, so
//! requests of several threads are in flight together. A request becomes commands of at most the drive's
//! largest transfer, all sent before the first is waited for. Where it does not cover whole blocks, a write
//! reads them first and excludes other writes meanwhile.
//!
//! The host's own I/O, other processes' reads of blocks and near-data commands have lanes of their own:
//! queues, and memory for what is in flight. Near-data work may take hours and its askers be many; nothing
//! that it holds is waited for by an I/O. Who asks first is decided in [`share`](crate::share); a command
//! whose asker has gone is aborted.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, RwLock, RwLockReadGuard, TryLockError};
use std::time::Duration;

use nearside_clock::{Clock, TscClock};
use nearside_driver::{
    Command, Controller, DmaBuffer, Driver, Error, Failure, Finished, Handle, Initiator, InitiatorConfig,
    NamespaceInfo, Policy, QueueConfig, Threaded,
};
use nearside_near_data::MAX_BUFFER;
use nearside_spec::Status;
use nearside_spec::log::NearDataLog;
use nearside_spec::opcode::LOG_NEAR_DATA;

use crate::share::{Shares, User};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The drive answered with an error.
    #[error("{operation} of {len} bytes at {offset}: {failure}")]
    Command {
        /// Which operation.
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What the drive said.
        failure: Failure,
    },
    /// The driver could not send it.
    #[error("{operation}: {error}")]
    Driver {
        /// Which operation.
        operation: &'static str,
        /// Why.
        error: String,
    },
    /// Nobody waits for the answer any more.
    #[error("whoever asked has gone")]
    Gone,
    /// Outside the namespace.
    #[error("{len} bytes at {offset} are not within a namespace of {capacity} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes there are.
        capacity: u64,
    },
}

impl HostError {
    /// The drive's status, where it gave one.
    pub fn status(&self) -> Option<Status> {
        match self {
            HostError::Command { failure: Failure::Status(status), .. } => Some(*status),
            _ => None,
        }
    }
}

/// Where near-data work is done that is not the business of the drive behind a host: that drive's bytes are
/// another's.
pub trait Elsewhere: fmt::Debug + Send + Sync {
    /// As [`Host::near_data`], once it is the asker's turn.
    ///
    /// # Errors
    /// As [`Host::near_data`].
    fn near_data(&self, request: &[u8], room: usize, gone: &dyn Fn() -> bool) -> Result<Vec<u8>, HostError>;

    /// As [`Host::statistics`], once it is the asker's turn.
    ///
    /// # Errors
    /// As [`Host::statistics`].
    fn statistics(&self, gone: &dyn Fn() -> bool) -> Result<Vec<u8>, HostError>;

    /// What waits for it to be reached fails: whoever attached the drive wants it to end.
    fn give_up(&self);
}

pub(crate) type Queue = Initiator<Threaded, TscClock>;

/// A host on a running drive. Shared by threads.
pub struct Host {
    driver: Driver,
    info: NamespaceInfo,
    /// Of the host's own reads and writes.
    io: Lane<Queue>,
    /// Of other processes' reads.
    reads: Lane<Queue>,
    /// Of near-data commands.
    near: Lane<Asker>,
    shares: Shares,
    elsewhere: Option<Arc<dyn Elsewhere>>,
    /// For threads that serve the kernel, one each: taken and given up, not lent.
    served: Mutex<Vec<Queue>>,
    /// Shared by writes of whole blocks, exclusive for those that read blocks first.
    writes: RwLock<()>,
}

/// What near-data commands are sent with, one at a time. The memory is its own: it is never short of what
/// others have in flight.
struct Asker {
    queue: Queue,
    buffer: Option<DmaBuffer>,
}

/// Things of which a request borrows one.
struct Lane<T> {
    idle: Mutex<Vec<T>>,
    back: Condvar,
}

/// One of a lane's, until it is given back.
struct Lent<'a, T> {
    lane: &'a Lane<T>,
    item: Option<T>,
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.lane.lock().push(item);
            self.lane.back.notify_one();
        }
    }
}

impl<T> Lane<T> {
    fn of<E>(count: usize, make: impl Fn() -> Result<T, E>) -> Result<Lane<T>, E> {
        let idle = (0..count).map(|_| make()).collect::<Result<_, E>>()?;
        Ok(Lane { idle: Mutex::new(idle), back: Condvar::new() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        self.idle.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One for the caller alone: an idle one, or the next that comes back.
    fn lend(&self) -> Lent<'_, T> {
        let mut idle = self.lock();
        loop {
            if let Some(item) = idle.pop() {
                return Lent { lane: self, item: Some(item) };
            }
            idle = self.back.wait(idle).unwrap_or_else(|e| e.into_inner());
        }
    }
}

/// Commands of one request in flight.
const COMMANDS_OUT: u16 = 32;
/// Commands in flight of one thread that serves the kernel.
const SERVED_OUT: u16 = 128;
/// Queues for other processes' reads of blocks.
const READS: usize = 2;
/// Near-data commands in the drive at a time.
const NEAR_DATA: usize = 8;
/// How often a wait looks whether its asker has gone.
const LOOK: Duration = Duration::from_millis(20);
/// Longest that a near-data command runs. A driver takes a command that outlasts its patience for a drive
/// that is broken, and resets it.
const LONGEST_NS: u64 = 45 * 60 * 1_000_000_000;

impl Host {
    /// Queues that a host with `queues` of its own asks its drive for, beside those of `served` threads.
    pub(crate) fn wants(queues: usize, served: usize) -> usize {
        queues + READS + NEAR_DATA + served
    }

    /// A host on namespace 1 of a drive that runs on threads of its own, with at most `queues` requests at a
    /// time beside those of other processes. A drive that grants fewer queues than all want has to grant
    /// three.
    ///
    /// # Errors
    /// The driver's: too few queues, no memory.
    pub fn new(driver: Driver, policy: Policy, queues: usize) -> Result<Host, Error> {
        Host::serving(driver, policy, queues, 0)
    }

    /// The same, with queues for up to `served` threads that serve the kernel; one at least, where any is
    /// wanted.
    pub(crate) fn serving(
        driver: Driver,
        policy: Policy,
        queues: usize,
        served: usize,
    ) -> Result<Host, Error> {
        let info = driver.namespace(Some(1), &mut nearside_driver::Host::threaded(TscClock::new()))?;
        let granted = usize::from(driver.queues());
        let least = 3 + served.min(1);
        let spare = granted.checked_sub(least).ok_or(Error::NoQueues(driver.queues()))?;
        // Each has one; those of threads that serve the kernel come first, then the host's own.
        let served = served.min(1 + spare);
        let (granted, spare) = (granted - served, spare + least - 3 - served);
        let own = 1 + spare.min(queues.max(1) - 1);
        let reads = 1 + (granted - own - 2).min(READS - 1);
        let near = (granted - own - reads).min(NEAR_DATA);
        let queue = |depth| {
            let queue = QueueConfig { depth, interrupt: true };
            Initiator::new(&driver, InitiatorConfig { queue, policy }, TscClock::new(), Threaded, None)
        };
        // All of them now: no request has to wait for the admin queue.
        let asker = || {
            let queue = queue(1)?;
            let buffer = queue.buffer(MAX_BUFFER.min(driver.max_transfer()))?;
            Ok::<_, Error>(Asker { queue, buffer: Some(buffer) })
        };
        Ok(Host {
            info,
            io: Lane::of(own, || queue(COMMANDS_OUT))?,
            reads: Lane::of(reads, || queue(COMMANDS_OUT))?,
            near: Lane::of(near, asker)?,
            shares: Shares::new(near),
            elsewhere: None,
            served: Mutex::new(Result::from_iter((0..served).map(|_| queue(SERVED_OUT)))?),
            writes: RwLock::new(()),
            driver,
        })
    }

    /// With near-data work done elsewhere, where it is.
    pub(crate) fn with_near_data(self, elsewhere: Option<Arc<dyn Elsewhere>>) -> Host {
        Host { elsewhere, ..self }
    }

    /// Size and format.
    pub fn info(&self) -> &NamespaceInfo {
        &self.info
    }

    /// Bytes of the namespace.
    pub fn capacity(&self) -> u64 {
        self.info.blocks * u64::from(self.info.block_size)
    }

    /// A queue for a thread that serves the kernel, as long as there are any.
    pub(crate) fn take_served(&self) -> Option<Queue> {
        self.served.lock().unwrap_or_else(|e| e.into_inner()).pop()
    }

    /// How many of these there are.
    pub(crate) fn served(&self) -> usize {
        self.served.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    /// Most bytes of a command of the drive's, and so of a request of the kernel's.
    pub(crate) fn max_transfer(&self) -> usize {
        self.driver.max_transfer()
    }

    /// For a write of whole blocks, until it is done. `None`: others must not write now, or wait to be alone.
    pub(crate) fn try_share_writes(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self.writes.try_read() {
            Ok(shared) => Some(shared),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Most bytes that one command sets to zero.
    pub(crate) fn most_zeroed(&self, free: bool) -> u64 {
        self.block() * if free { u64::from(u32::MAX) } else { 65_536 }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), HostError> {
        let capacity = self.capacity();
        if offset <= capacity && len <= capacity - offset {
            return Ok(());
        }
        Err(HostError::OutOfRange { offset, len, capacity })
    }

    fn block(&self) -> u64 {
        u64::from(self.info.block_size)
    }

    fn nsid(&self) -> u32 {
        self.info.nsid
    }

    /// Whole blocks of one command at most.
    fn max_piece(&self) -> u64 {
        let most = (self.driver.max_transfer() as u64).min(65_536 * self.block());
        (most - most % self.block()).max(self.block())
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// [`HostError`]: outside the namespace, refused or failed by the drive, or not sent.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        self.read_by(&self.io, offset, into)
    }

    /// Reads bytes for another process: the host's own reads and writes do not wait for it.
    ///
    /// # Errors
    /// [`HostError`]: outside the namespace, refused or failed by the drive, or not sent.
    pub fn read_for_another(&self, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        self.read_by(&self.reads, offset, into)
    }

    fn read_by(&self, lane: &Lane<Queue>, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        self.check(offset, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        let block = self.block();
        let (start, end) = (offset - offset % block, (offset + into.len() as u64).next_multiple_of(block));
        let mut rest = into;
        let mut skip = (offset - start) as usize;
        self.run_pieces(
            lane,
            "read",
            start..end,
            |queue, at, len| {
                let blocks = (len / block) as u32;
                let buffer = queue.buffer(len as usize)?;
                Ok((Command::read(self.nsid(), at / block, blocks), Some(buffer)))
            },
            |buffer| {
                let part = (buffer.len() - skip).min(rest.len());
                let (now, after) = std::mem::take(&mut rest).split_at_mut(part);
                buffer.read(skip, now);
                (rest, skip) = (after, 0);
            },
        )
    }

    /// Writes bytes; with `fua` they are durable when it returns.
    ///
    /// # Errors
    /// [`HostError`]: outside the namespace, refused or failed by the drive, or not sent.
    pub fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), HostError> {
        self.check(offset, data.len() as u64)?;
        let block = self.block();
        if (offset | data.len() as u64).is_multiple_of(block) {
            let _shared = self.writes.read().unwrap_or_else(|e| e.into_inner());
            return self.write_blocks(offset, data, fua);
        }
        let _alone = self.writes.write().unwrap_or_else(|e| e.into_inner());
        let (start, end) = (offset - offset % block, (offset + data.len() as u64).next_multiple_of(block));
        let mut whole = vec![0; (end - start) as usize];
        // Only the edges keep old bytes.
        let last = end - block;
        self.read(start, &mut whole[..block as usize])?;
        if last != start {
            self.read(last, &mut whole[(last - start) as usize..])?;
        }
        whole[(offset - start) as usize..][..data.len()].copy_from_slice(data);
        self.write_blocks(start, &whole, fua)
    }

    fn write_blocks(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), HostError> {
        let block = self.block();
        let fill = |queue: &mut Queue, at: u64, len: u64| {
            let mut buffer = queue.buffer(len as usize)?;
            buffer.write(0, &data[(at - offset) as usize..][..len as usize]);
            let command = Command::write(self.nsid(), at / block, (len / block) as u32);
            Ok((if fua { command.fua() } else { command }, Some(buffer)))
        };
        self.run_pieces(&self.io, "write", offset..offset + data.len() as u64, fill, |_| ())
    }

    /// Makes all completed writes durable.
    ///
    /// # Errors
    /// [`HostError`]: the drive failed, or could not be asked.
    pub fn flush(&self) -> Result<(), HostError> {
        let command = Command::flush(self.nsid());
        self.run_command("flush", 0, 0, |_| Ok((command, None))).map(drop)
    }

    /// Sets bytes to zero. `free`: they need no room any more.
    ///
    /// # Errors
    /// [`HostError`]: outside the namespace, refused or failed by the drive, or not sent.
    pub fn zero(&self, offset: u64, len: u64, free: bool) -> Result<(), HostError> {
        self.check(offset, len)?;
        let block = self.block();
        let (first, last) = (offset.next_multiple_of(block), (offset + len) / block * block);
        if first >= last {
            // Within one block, or over one edge.
            return self.write(offset, &vec![0; len as usize], false);
        }
        if offset < first {
            self.write(offset, &vec![0; (first - offset) as usize], false)?;
        }
        if last < offset + len {
            self.write(last, &vec![0; (offset + len - last) as usize], false)?;
        }
        let _shared = self.writes.read().unwrap_or_else(|e| e.into_inner());
        let most = self.most_zeroed(free);
        let mut at = first;
        while at < last {
            let part = (last - at).min(most);
            let (lba, blocks) = (at / block, (part / block) as u32);
            let operation = if free { "deallocate" } else { "write zeroes" };
            self.run_command(operation, at, part, |queue| {
                if !free {
                    return Ok((Command::write_zeroes(self.nsid(), lba, blocks), None));
                }
                let mut list = queue.buffer(4096)?;
                let command = Command::deallocate(self.nsid(), &[(lba, blocks)], &mut list);
                Ok((command, Some(list)))
            })?;
            at += part;
        }
        Ok(())
    }

    /// One near-data command of a user: the request's bytes in, at most `room` bytes of reply out. It waits
    /// for its turn among all that ask, and is given up ([`HostError::Gone`]) when `gone` says that nobody
    /// waits for the reply any more.
    ///
    /// # Errors
    /// [`HostError::Gone`] where nobody waits any more; otherwise the drive failed, or could not be asked.
    pub fn near_data(
        &self,
        user: User,
        request: &[u8],
        room: usize,
        gone: impl Fn() -> bool,
    ) -> Result<Vec<u8>, HostError> {
        let failed = |error: String| HostError::Driver { operation: "near-data", error };
        let len = request.len().max(room).max(1);
        let _place = self.shares.enter(user, LOOK, &gone).ok_or(HostError::Gone)?;
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.near_data(request, room, &gone);
        }
        let mut lent = self.near.lend();
        let Some(Asker { queue, buffer: kept }) = lent.item.as_mut() else {
            return Err(failed("no queue".into()));
        };
        let mut buffer = match kept.take() {
            Some(buffer) if buffer.capacity() >= len => buffer,
            _ => queue.buffer(len).map_err(|e| failed(e.to_string()))?,
        };
        buffer.set_len(len);
        buffer.write(0, request);
        let command = Command::near_data(self.nsid(), request.len() as u32, &buffer);
        let handle = match queue.submit(&command, Some(buffer)) {
            Ok(handle) => handle,
            Err(rejected) => {
                let error = failed(rejected.to_string());
                *kept = rejected.buffer;
                return Err(error);
            }
        };
        let until = queue.clock().now() + LONGEST_NS;
        let Finished { outcome, buffer, .. } = loop {
            if let Some(finished) = queue.poll(handle) {
                break finished;
            }
            queue.wait_any(queue.clock().now() + LOOK.as_nanos() as u64);
            if gone() || queue.clock().now() >= until {
                // Where that comes too early, or the drive has no room for it now, it is said again. A drive
                // that is gone ends the command.
                let _ = queue.abort(handle);
            }
        };
        *kept = buffer;
        let len = request.len() as u64;
        let moved = outcome.map_err(|failure| HostError::Command {
            operation: "near-data",
            offset: 0,
            len,
            failure,
        })?;
        let mut reply = vec![0; (moved as u32 as usize).min(room)];
        if let Some(buffer) = kept {
            buffer.read(0, &mut reply);
        }
        Ok(reply)
    }

    /// Log page D5h: what near-data work the drive can do, and its statistics.
    ///
    /// # Errors
    /// As [`Host::near_data`].
    pub fn statistics(&self, user: User, gone: impl Fn() -> bool) -> Result<Vec<u8>, HostError> {
        let failed = |error: String| HostError::Driver { operation: "get log page", error };
        let _place = self.shares.enter(user, LOOK, &gone).ok_or(HostError::Gone)?;
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.statistics(&gone);
        }
        let mut lent = self.near.lend();
        let Some(Asker { queue, .. }) = lent.item.as_mut() else { return Err(failed("no queue".into())) };
        let (controller, host) = queue.admin();
        let page = controller.log_page(LOG_NEAR_DATA, self.nsid(), 0, NearDataLog::SIZE, host);
        page.map_err(|error| failed(error.to_string()))
    }

    fn run_command(
        &self,
        operation: &'static str,
        offset: u64,
        len: u64,
        make: impl FnOnce(&mut Queue) -> Result<(Command, Option<DmaBuffer>), Error>,
    ) -> Result<(u64, Option<DmaBuffer>), HostError> {
        let failed = |error: String| HostError::Driver { operation, error };
        let mut lent = self.io.lend();
        let Some(queue) = lent.item.as_mut() else { return Err(failed("no queue".into())) };
        let (command, buffer) = make(queue).map_err(|e| failed(e.to_string()))?;
        let done = queue.execute(&command, buffer).map_err(|e| failed(e.to_string()))?;
        let Finished { outcome, buffer, .. } = done;
        let result = outcome.map_err(|failure| HostError::Command { operation, offset, len, failure })?;
        Ok((result, buffer))
    }

    /// Cuts a range into commands, sends as many as fit, and hands their buffers to `take` in order.
    fn run_pieces(
        &self,
        lane: &Lane<Queue>,
        operation: &'static str,
        Range { start, end }: Range<u64>,
        make: impl Fn(&mut Queue, u64, u64) -> Result<(Command, Option<DmaBuffer>), Error>,
        mut take: impl FnMut(DmaBuffer),
    ) -> Result<(), HostError> {
        let failed = |error: String| HostError::Driver { operation, error };
        let mut lent = lane.lend();
        let Some(queue) = lent.item.as_mut() else { return Err(failed("no queue".into())) };
        let most = self.max_piece();
        let mut out: std::collections::VecDeque<(Handle, u64, u64)> = std::collections::VecDeque::new();
        let mut at = start;
        let mut result = Ok(());
        while at < end || !out.is_empty() {
            let len = (end - at).min(most);
            if len > 0 && out.len() < usize::from(COMMANDS_OUT) && result.is_ok() {
                let sent = make(queue, at, len)
                    .map_err(|e| e.to_string())
                    .and_then(|(command, buffer)| queue.submit(&command, buffer).map_err(|e| e.to_string()));
                match sent {
                    Ok(handle) => out.push_back((handle, at, len)),
                    // Memory is short: what is out gives some back. Else it is an error.
                    Err(_) if !out.is_empty() => {
                        Self::finish(queue, &mut out, operation, &mut take, &mut result);
                        continue;
                    }
                    Err(error) => result = Err(failed(error)),
                }
                at += len;
                continue;
            }
            if out.is_empty() {
                break;
            }
            Self::finish(queue, &mut out, operation, &mut take, &mut result);
        }
        result
    }

    /// Waits for the oldest command.
    fn finish(
        queue: &mut Queue,
        out: &mut std::collections::VecDeque<(Handle, u64, u64)>,
        operation: &'static str,
        take: &mut impl FnMut(DmaBuffer),
        result: &mut Result<(), HostError>,
    ) {
        let Some((handle, offset, len)) = out.pop_front() else { return };
        let done = queue.wait(handle);
        match (done.outcome, done.buffer) {
            (Ok(_), Some(buffer)) if result.is_ok() => take(buffer),
            (Ok(_), _) => {}
            (Err(failure), _) if result.is_ok() => {
                *result = Err(HostError::Command { operation, offset, len, failure });
            }
            (Err(_), _) => {}
        }
    }
}
