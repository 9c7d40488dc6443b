//! The way to a drive over NVMe/TCP.
//!
//! A command of NVMe over Fabrics moves data one way, so that a near-data operation is two: `execute` carries the request under a
//! random tag, `result` the reply. Both are sent at once and meet in the drive: one round trip. A `result` that comes
//! back empty says that the drive is still at work, and is posted again; an operation that is given up is cancelled.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::{Clock, Nanos};
use nearside_driver::tcp::{Completed, Controller, Initiator};
use nearside_driver::{Command, Kind, NamespaceInfo, Policy};
use nearside_spec::near_data::{MAX_BUFFER, ReplyStatus, wire};
use nearside_spec::opcode::{self, io};

use crate::queue::{ended_as, failed, path_words};
use crate::{Completion, Error, Transport};

/// Bytes of one ordinary read.
const READ: usize = 128 * 1024;
/// Reads in flight.
const READS: u16 = 8;
/// Milliseconds for which a `result` may wait in the drive; less than the 5 s that it allows.
pub(crate) const WAIT_MS: u32 = 4_000;
/// How often a wait looks whether it was given up, in nanoseconds.
const LOOK_NS: u64 = 50_000_000;

const EXECUTE: u64 = 0;
const RESULT: u64 = 1;

/// A namespace of a controller over NVMe/TCP.
pub struct TcpTransport<C> {
    initiator: Initiator<C>,
    namespace: NamespaceInfo,
    /// The buffer of the last `result`, for the next.
    spare: Vec<u8>,
    tags: RandomState,
    sent: u64,
    stop: Option<Arc<AtomicBool>>,
    // After the queue: the association ends last.
    controller: Controller,
}

impl<C: Clock> TcpTransport<C> {
    /// The namespace that the controller's address names, or its first, over a queue of its own.
    pub fn new(controller: Controller, policy: Policy, clock: C) -> Result<Self, Error> {
        let namespace = controller.namespace(None).map_err(failed)?;
        let initiator = Initiator::new(controller.queue(READS).map_err(failed)?, policy, clock);
        let tags = RandomState::new();
        Ok(TcpTransport { initiator, namespace, spare: Vec::new(), tags, sent: 0, stop: None, controller })
    }

    /// Gives up (with an error) what is under way once the flag is set: the drive is told to cancel it.
    pub fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    /// The initiator, for its account and policy.
    pub fn initiator(&mut self) -> &mut Initiator<C> {
        &mut self.initiator
    }

    /// The association.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The namespace.
    pub fn namespace(&self) -> NamespaceInfo {
        self.namespace
    }

    fn command(&self, opcode: u8, tag: u64) -> Command {
        let command =
            Command::raw(opcode, self.namespace.nsid).with(12, tag as u32).with(13, (tag >> 32) as u32);
        Command { kind: Kind::NearData, ..command }
    }

    fn submit(&mut self, command: &Command, buffer: Option<Vec<u8>>, cookie: u64) -> Result<(), Error> {
        let now = self.initiator.clock().now();
        let sent = self.initiator.submit(command, buffer, cookie, now);
        sent.map_err(|rejected| self.lost(&rejected.to_string()))
    }

    fn ask(&mut self, tag: u64, buffer: Vec<u8>) -> Result<(), Error> {
        let result = self.command(io::NEAR_DATA_RESULT, tag).with(11, buffer.len() as u32).with(14, WAIT_MS);
        self.submit(&result, Some(buffer), RESULT)
    }

    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Why nothing comes any more.
    fn lost(&mut self, otherwise: &str) -> Error {
        match self.initiator.failure() {
            Some(error) => failed(error),
            None => Error::Driver(otherwise.to_owned()),
        }
    }

    /// Waits until one of those that are out has ended.
    fn wait(&mut self, mut sink: impl FnMut(Completed)) {
        let at = match self.stop {
            Some(_) => self.initiator.clock().now() + LOOK_NS,
            None => Nanos(u64::MAX),
        };
        self.initiator.wait(at, |done, _| sink(done));
    }

    /// What the drive ended it as; a connection that was lost says why.
    fn outcome(&mut self, what: &'static str, done: &Completed) -> Result<u64, Error> {
        match (done.outcome, self.initiator.failure()) {
            (Ok(result), _) => Ok(result),
            (Err(_), Some(error)) => Err(failed(error)),
            (Err(failure), None) => Err(ended_as(what, failure)),
        }
    }

    /// The drive is to forget the tag. What is out comes back first.
    fn cancel(&mut self, tag: u64) {
        let cancel = self.command(io::NEAR_DATA_CANCEL, tag);
        if self.initiator.queue().is_alive() && self.submit(&cancel, None, u64::MAX).is_ok() {
            self.stop = None;
            while self.initiator.queue().outstanding() > 0 {
                self.wait(drop);
            }
        }
    }
}

impl<C: Clock> Transport for TcpTransport<C> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        let most = self.max_buffer();
        if request.len() > most || capacity > most || capacity < wire::REPLY_HEADER {
            let reason =
                format!("{} bytes, and a buffer of {capacity}; the drive takes {most}", request.len());
            return Err(Error::Form { what: "request", reason });
        }
        self.sent += 1;
        let tag = self.tags.hash_one(self.sent);
        let execute = self.command(io::NEAR_DATA_EXECUTE, tag).with(10, request.len() as u32);
        self.submit(&execute, Some(request.to_vec()), EXECUTE)?;
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.resize(capacity, 0);
        self.ask(tag, buffer)?;
        let (mut executed, mut answered) = (None, None);
        loop {
            if let Some(refused) = executed.take_if(|done: &mut Completed| done.outcome.is_err()) {
                let said = self.outcome("a near-data command", &refused);
                self.cancel(tag);
                said?;
            }
            if executed.is_some()
                && let Some(done) = answered.take()
            {
                let done: Completed = done;
                self.outcome("the result of a near-data command", &done)?;
                let buffer = done.buffer.unwrap_or_default();
                if done.moved > 0 {
                    take_reply(&buffer, done.moved, reply)?;
                    self.spare = buffer;
                    return Ok(());
                }
                self.ask(tag, buffer)?;
            }
            if self.is_stopped() {
                self.cancel(tag);
                return Err(Error::Refused(ReplyStatus::Cancelled));
            }
            self.wait(|done| match done.cookie {
                EXECUTE => executed = Some(done),
                _ => answered = Some(done),
            });
        }
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let block = self.namespace.block_size as usize;
        let piece = (READ.min(self.controller.max_transfer()) / block * block).max(block);
        let commands = into.len().div_ceil(piece);
        let (mut sent, mut done) = (0, 0);
        let mut failure = None;
        while done < commands {
            while sent < commands && failure.is_none() && sent - done < usize::from(READS) {
                let at = sent * piece;
                let len = piece.min(into.len() - at);
                let slba = (offset + at as u64) / block as u64;
                let read = Command::read(self.namespace.nsid, slba, (len / block) as u32);
                self.submit(&read, Some(vec![0; len]), at as u64)?;
                sent += 1;
            }
            if failure.is_some() && sent == done {
                break;
            }
            let mut ended = Vec::new();
            self.wait(|done| ended.push(done));
            for ended in ended {
                done += 1;
                let said = self.outcome("a read", &ended);
                let at = ended.cookie as usize;
                match (said, ended.buffer) {
                    (Ok(_), Some(bytes)) => into[at..at + bytes.len()].copy_from_slice(&bytes),
                    (Err(error), _) => failure = Some(failure.unwrap_or(error)),
                    (Ok(_), None) => {}
                }
            }
        }
        failure.map_or(Ok(commands as u64), Err)
    }

    fn capacity(&self) -> u64 {
        self.namespace.blocks.saturating_mul(u64::from(self.namespace.block_size))
    }

    fn block_size(&self) -> u32 {
        self.namespace.block_size
    }

    fn max_buffer(&self) -> usize {
        MAX_BUFFER.min(self.controller.max_transfer())
    }

    fn taken(&mut self) -> Result<Option<u64>, Error> {
        let page = self.controller.log_page(opcode::LOG_NEAR_DATA, self.namespace.nsid, 64, 8);
        Ok(page.map_err(failed)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
    }

    fn completion(&self) -> Completion {
        let expected = self.initiator.expectation(Kind::Read, 4096);
        let wake = self.initiator.wake_ns() as f64 / 1e3;
        Completion {
            model: self.initiator.policy().name().into(),
            read_4k_ns: expected.latency_ns,
            detail: format!(
                "{}; over {}; a wake-up costs {wake:.1} µs",
                path_words(expected.plan.path),
                self.controller.address()
            ),
            spinning_ns: self.initiator.account().spin_ns,
        }
    }
}

/// The reply in a `result`'s bytes.
pub(crate) fn take_reply(buffer: &[u8], moved: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
    let form = |reason: String| Error::Form { what: "reply", reason };
    let bytes = buffer.get(..moved).unwrap_or(buffer);
    let header = bytes.first_chunk::<{ wire::REPLY_HEADER }>();
    let header = header.ok_or_else(|| form(format!("{} bytes hold none", bytes.len())))?;
    let len = wire::reply_len(header).map_err(|e| form(e.to_string()))?;
    let whole = bytes.get(..len);
    let whole = whole.ok_or_else(|| form(format!("it claims {len} bytes of {}", bytes.len())))?;
    reply.clear();
    reply.extend_from_slice(whole);
    Ok(())
}
