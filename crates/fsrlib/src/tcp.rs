//! The way to a drive over NVMe/TCP.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_clock::{Clock, Nanos};
use nearside_driver::tcp::{Completed, Controller, Initiator};
use nearside_driver::{Command, Kind, NamespaceInfo, Policy};
use nearside_near_data::MAX_BUFFER;
use nearside_spec::log::NearDataLog;
use nearside_spec::opcode;

use crate::carrier::{self, Carrier, DEPTH, Ended, Stop, what};
use crate::queue::{ended_as, failed, path_words};
use crate::{Completion, Error, Transport};

/// Bytes of one ordinary read.
const READ: usize = 128 * 1024;
/// How often a wait looks whether it was given up, in nanoseconds.
const LOOK_NS: u64 = 50_000_000;

/// A namespace of a controller over NVMe/TCP.
pub struct TcpTransport<C> {
    initiator: Initiator<C>,
    namespace: NamespaceInfo,
    /// The buffer of the last `result`, for the next.
    spare: Vec<u8>,
    tags: RandomState,
    sent: u64,
    stop: Stop,
    /// Kept for the next wait.
    done: Vec<Completed>,
    // After the queue: the association ends last.
    controller: Controller,
}

impl<C: Clock> TcpTransport<C> {
    /// The namespace that the controller's address names, or its first, over a queue of its own.
    pub fn new(controller: Controller, policy: Policy, clock: C) -> Result<Self, Error> {
        let namespace = controller.namespace(None).map_err(failed)?;
        let initiator = Initiator::new(controller.queue(DEPTH).map_err(failed)?, policy, clock);
        let tags = RandomState::new();
        let (stop, spare, done) = (Stop::default(), Vec::new(), Vec::new());
        Ok(TcpTransport { initiator, namespace, spare, tags, sent: 0, stop, done, controller })
    }

    /// Gives up (with an error) what is under way once the flag is set: the drive is told to cancel it.
    pub fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Stop(Some(stop));
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

    /// Why nothing comes any more.
    fn lost(&mut self, otherwise: &str) -> Error {
        match self.initiator.failure() {
            Some(error) => failed(error),
            None => Error::Driver(otherwise.to_owned()),
        }
    }

    /// What the drive ended it as; a connection that was lost says why.
    fn ended(&mut self, done: Completed) -> Ended {
        let moved = match (done.outcome, self.initiator.failure()) {
            (Ok(_), _) => Ok(done.moved),
            (Err(_), Some(error)) => Err(failed(error)),
            (Err(failure), None) => Err(ended_as(what(done.cookie), failure)),
        };
        Ended { cookie: done.cookie, moved, data: done.buffer.unwrap_or_default() }
    }
}

impl<C: Clock> Carrier for TcpTransport<C> {
    fn send(&mut self, command: &Command, data: Vec<u8>, cookie: u64) -> Result<(), Error> {
        let now = self.initiator.clock().now();
        let data = Some(data).filter(|data| !data.is_empty());
        let sent = self.initiator.submit(command, data, cookie, now);
        sent.map_err(|rejected| self.lost(&rejected.to_string()))
    }

    fn wait(&mut self, mut sink: impl FnMut(Ended)) -> Result<(), Error> {
        let at = match self.stop.is_possible() {
            true => self.initiator.clock().now() + LOOK_NS,
            false => Nanos(u64::MAX),
        };
        let mut all = std::mem::take(&mut self.done);
        self.initiator.wait(at, |done, _| all.push(done));
        for done in all.drain(..) {
            sink(self.ended(done));
        }
        self.done = all;
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.initiator.queue().outstanding()
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}

impl<C: Clock> Transport for TcpTransport<C> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        carrier::fits(request, capacity, self.max_buffer())?;
        self.sent += 1;
        let tag = self.tags.hash_one(self.sent);
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.resize(capacity, 0);
        self.spare = carrier::near_data(self, self.namespace.nsid, tag, request, buffer, reply)?;
        Ok(())
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let (namespace, most) = (self.namespace, READ.min(self.controller.max_transfer()));
        carrier::read(self, &namespace, most, offset, into)
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
        let (page, len) = (opcode::LOG_NEAR_DATA, NearDataLog::SIZE);
        let page = self.controller.log_page(page, self.namespace.nsid, 0, len);
        Ok(NearDataLog::of(&page.map_err(failed)?).map(|page| page.taken()))
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
