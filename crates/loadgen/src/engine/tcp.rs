//! A drive over NVMe/TCP: one connection, any completion policy. Operations that were submitted between two polls go out together.

use nearside_clock::{Clock, Nanos};
use nearside_driver::tcp::{Controller, Initiator};
use nearside_driver::{Error, NamespaceInfo, Policy, RejectReason};

use super::queue::{Commands, EINVAL};
use super::{Done, Engine, EngineCost, Failure, Io, Next, Submit};
use crate::verify::Verifier;

/// See the module. An operation that is no command (blocks cut in two, longer than the buffers) ends in an error.
pub struct Tcp<C> {
    initiator: Initiator<C>,
    commands: Commands<Vec<u8>>,
    /// Ended without having been sent, or found while waiting.
    ended: Vec<Done>,
    // After the queue: the association ends last.
    controller: Controller,
}

impl<C: Clock> Tcp<C> {
    /// A queue of `depth` for operations of up to `bytes`.
    ///
    /// # Errors
    /// The driver's: no queue.
    pub fn new(
        controller: Controller,
        namespace: NamespaceInfo,
        depth: u16,
        bytes: u32,
        verifier: Option<Verifier>,
        policy: Policy,
        clock: C,
    ) -> Result<Self, Error> {
        let initiator = Initiator::new(controller.queue(depth)?, policy, clock);
        let take = |len| Ok::<_, Error>(vec![0; len]);
        let commands = Commands::new(take, namespace, initiator.queue().depth(), bytes, verifier)?;
        Ok(Self { initiator, commands, ended: Vec::new(), controller })
    }

    /// The association.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The initiator, for its account and its failure.
    pub fn initiator(&mut self) -> &mut Initiator<C> {
        &mut self.initiator
    }
}

impl<C: Clock> Engine for Tcp<C> {
    fn depth(&self) -> usize {
        self.initiator.queue().depth()
    }

    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        let mut refuse = |failure| {
            self.ended.push(Done { token: io.token, at: now, result: Err(failure) });
            Submit::Taken
        };
        let Some((command, buffer)) = self.commands.take(io) else { return refuse(Failure::Errno(EINVAL)) };
        let Err(rejected) = self.initiator.submit(&command, Some(buffer), io.token.into(), now) else {
            return Submit::Taken;
        };
        self.commands.put_back(io.token, rejected.buffer);
        match rejected.reason {
            RejectReason::Full => Submit::Full,
            RejectReason::Buffer => refuse(Failure::Errno(EINVAL)),
            RejectReason::Dead => refuse(Failure::Gone),
        }
    }

    fn poll(&mut self, _now: Nanos, done: &mut Vec<Done>) {
        done.append(&mut self.ended);
        let commands = &mut self.commands;
        self.initiator.poll(|ended, at| {
            let token = ended.cookie as u32;
            done.push(Done { token, at, result: commands.put(token, ended.buffer, ended.outcome) });
        });
    }

    fn next(&self) -> Next {
        match self.ended.is_empty() && self.initiator.queue().outstanding() == 0 {
            true => Next::Idle,
            false => Next::Poll,
        }
    }

    fn wait(&mut self, until: Option<Nanos>) {
        if !self.ended.is_empty() {
            return;
        }
        if self.initiator.queue().outstanding() == 0 {
            return super::sleep(self.initiator.clock(), until);
        }
        let (commands, found) = (&mut self.commands, &mut self.ended);
        self.initiator.wait(until.unwrap_or(Nanos(u64::MAX)), |ended, at| {
            let token = ended.cookie as u32;
            found.push(Done { token, at, result: commands.put(token, ended.buffer, ended.outcome) });
        });
    }

    fn blocks(&self) -> bool {
        true
    }

    fn cost(&self) -> EngineCost {
        EngineCost { spin_ns: self.initiator.account().spin_ns, ..EngineCost::default() }
    }
}
