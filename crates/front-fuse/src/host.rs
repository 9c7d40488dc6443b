//! The attached drive's host: bytes of the namespace, read and written by NVMe commands.
//!
//! Each caller's thread borrows an initiator (a queue pair of its own) for the time of a request, so requests of several threads are in flight
//! together. A request becomes commands of at most the drive's largest transfer, all sent before the first is waited for.
//! Where it does not cover whole blocks, a write reads them first and excludes other writes meanwhile.

use std::sync::{Condvar, Mutex, RwLock};

use nearside_clock::TscClock;
use nearside_driver::{
    Command, DmaBuffer, Driver, Error, Failure, Finished, Handle, Initiator, InitiatorConfig, NamespaceInfo,
    Policy, QueueConfig, Rejected, Threaded,
};
use nearside_spec::Status;

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

type Queue = Initiator<Threaded, TscClock>;

/// A host on a running drive. Shared by threads.
pub struct Host {
    driver: Driver,
    info: NamespaceInfo,
    policy: Policy,
    idle: Mutex<Pool>,
    back: Condvar,
    /// Shared by writes of whole blocks, exclusive for those that read blocks first.
    writes: RwLock<()>,
}

struct Pool {
    queues: Vec<Queue>,
    may_make: usize,
}

/// A queue, until it is given back.
struct Lent<'a> {
    host: &'a Host,
    queue: Option<Queue>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.host.lock().queues.push(queue);
            self.host.back.notify_one();
        }
    }
}

const COMMANDS_OUT: u16 = 32;

impl Host {
    /// A host on namespace 1 of a drive that runs on threads of its own, with at most `queues` requests at a time.
    pub fn new(driver: Driver, policy: Policy, queues: usize) -> Result<Host, Error> {
        let info = driver.namespace(1, &TscClock::new(), &mut Threaded)?;
        let host = Host {
            driver,
            info,
            policy,
            idle: Mutex::new(Pool { queues: Vec::new(), may_make: queues.max(1) }),
            back: Condvar::new(),
            writes: RwLock::new(()),
        };
        // The first one now: a drive that grants none is an error here and not later.
        let queue = host.make()?;
        let mut pool = host.lock();
        pool.queues.push(queue);
        pool.may_make -= 1;
        drop(pool);
        Ok(host)
    }

    /// Size and format.
    pub fn info(&self) -> &NamespaceInfo {
        &self.info
    }

    /// Bytes of the namespace.
    pub fn capacity(&self) -> u64 {
        self.info.blocks * u64::from(self.info.block_size)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        self.idle.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn make(&self) -> Result<Queue, Error> {
        let queue = QueueConfig { depth: COMMANDS_OUT, interrupt: true };
        let config = InitiatorConfig { queue, policy: self.policy };
        Initiator::new(&self.driver, config, TscClock::new(), Threaded, None)
    }

    /// A queue for the caller alone: an idle one, a new one, or the next that comes back.
    fn lend(&self) -> Lent<'_> {
        let mut pool = self.lock();
        loop {
            if let Some(queue) = pool.queues.pop() {
                return Lent { host: self, queue: Some(queue) };
            }
            if pool.may_make > 0 {
                pool.may_make -= 1;
                drop(pool);
                match self.make() {
                    Ok(queue) => return Lent { host: self, queue: Some(queue) },
                    // The drive grants no more: those that there are have to do (there is one since `new`).
                    Err(_) => pool = self.lock(),
                }
                pool.may_make = 0;
                continue;
            }
            pool = self.back.wait(pool).unwrap_or_else(|e| e.into_inner());
        }
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
    fn most(&self) -> u64 {
        let most = (self.driver.max_transfer() as u64).min(65_536 * self.block());
        (most - most % self.block()).max(self.block())
    }

    /// Reads bytes.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        self.check(offset, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        let block = self.block();
        let (start, end) = (offset - offset % block, (offset + into.len() as u64).next_multiple_of(block));
        let mut rest = into;
        let mut skip = (offset - start) as usize;
        self.each(
            "read",
            start,
            end,
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
        self.each("write", offset, offset + data.len() as u64, fill, |_| ())
    }

    /// Makes all completed writes durable.
    pub fn flush(&self) -> Result<(), HostError> {
        let command = Command::flush(self.nsid());
        self.one("flush", 0, 0, |_| Ok((command, None))).map(drop)
    }

    /// Sets bytes to zero. `free`: they need no room any more.
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
        let most = block * if free { u64::from(u32::MAX) } else { 65_536 };
        let mut at = first;
        while at < last {
            let part = (last - at).min(most);
            let (lba, blocks) = (at / block, (part / block) as u32);
            let operation = if free { "deallocate" } else { "write zeroes" };
            self.one(operation, at, part, |queue| {
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

    /// One near-data command: the request's bytes in, at most `room` bytes of reply out.
    pub fn near_data(&self, request: &[u8], room: usize) -> Result<Vec<u8>, HostError> {
        let len = request.len().max(room).max(1);
        let done = self.one("near-data", 0, request.len() as u64, |queue| {
            let mut buffer = queue.buffer(len)?;
            buffer.write(0, request);
            Ok((Command::near_data(self.nsid(), request.len() as u32, &buffer), Some(buffer)))
        })?;
        let mut reply = vec![0; (done.0 as u32 as usize).min(room)];
        if let Some(buffer) = done.1 {
            buffer.read(0, &mut reply);
        }
        Ok(reply)
    }

    fn one(
        &self,
        operation: &'static str,
        offset: u64,
        len: u64,
        make: impl FnOnce(&mut Queue) -> Result<(Command, Option<DmaBuffer>), Error>,
    ) -> Result<(u64, Option<DmaBuffer>), HostError> {
        let failed = |error: String| HostError::Driver { operation, error };
        let mut lent = self.lend();
        let Some(queue) = lent.queue.as_mut() else { return Err(failed("no queue".into())) };
        let (command, buffer) = make(queue).map_err(|e| failed(e.to_string()))?;
        let done = queue.execute(&command, buffer).map_err(|e| failed(e.to_string()))?;
        let Finished { outcome, buffer, .. } = done;
        let result = outcome.map_err(|failure| HostError::Command { operation, offset, len, failure })?;
        Ok((result, buffer))
    }

    /// Cuts `start..end` into commands, sends as many as fit, and hands their buffers to `take` in order.
    fn each(
        &self,
        operation: &'static str,
        start: u64,
        end: u64,
        make: impl Fn(&mut Queue, u64, u64) -> Result<(Command, Option<DmaBuffer>), Error>,
        mut take: impl FnMut(DmaBuffer),
    ) -> Result<(), HostError> {
        let failed = |error: String| HostError::Driver { operation, error };
        let mut lent = self.lend();
        let Some(queue) = lent.queue.as_mut() else { return Err(failed("no queue".into())) };
        let most = self.most();
        let mut out: std::collections::VecDeque<(Handle, u64, u64)> = std::collections::VecDeque::new();
        let mut at = start;
        let mut result = Ok(());
        while at < end || !out.is_empty() {
            let len = (end - at).min(most);
            if len > 0 && out.len() < usize::from(COMMANDS_OUT) && result.is_ok() {
                let sent = make(queue, at, len).map_err(|e| e.to_string()).and_then(|(command, buffer)| {
                    queue.submit(&command, buffer).map_err(|e: Rejected| e.to_string())
                });
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
