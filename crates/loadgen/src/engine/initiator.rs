//! A drive through an [`Initiator`]: any completion policy of the driver over any transport,
//! with what it costs.
//!
//! While operations are in flight the runner lets it wait ([`Engine::wait`]): by interrupt, spinning, or
//! asleep first, as the policy plans for the oldest of them.

use nearside_clock::{Clock, Nanos};
use nearside_driver::{BufferOf, Controller, Driver, Error, Initiator, NamespaceInfo, Peer, Service};

use super::queue::{Commands, not_a_command};
use super::{Done, Engine, EngineCost, Io, Next, Submit};
use crate::verify::Verifier;

/// An engine with a completion policy. An operation that is no command (blocks cut in two,
/// longer than the buffers) ends in an error.
pub struct Policed<P, C, K: Controller = Driver> {
    initiator: Initiator<P, C, K>,
    /// The asynchronous path's other contexts; their CPU time counts.
    service: Option<Service>,
    commands: Commands<BufferOf<K>>,
    /// By the handle's index: whose operation it is.
    tokens: Vec<u32>,
    refused: Vec<Done>,
}

impl<P: Peer, C: Clock, K: Controller> Policed<P, C, K> {
    /// Over an initiator that was made with `service`'s handle, for operations of up to `bytes`.
    ///
    /// # Errors
    /// Where the driver has no memory.
    pub fn new(
        initiator: Initiator<P, C, K>,
        service: Option<Service>,
        namespace: NamespaceInfo,
        bytes: u32,
        verifier: Option<Verifier>,
    ) -> Result<Self, Error> {
        let depth = initiator.depth();
        let commands = Commands::new(initiator.controller(), namespace, depth, bytes, verifier)?;
        Ok(Self { initiator, service, commands, tokens: vec![0; depth], refused: Vec::new() })
    }

    /// The initiator, for its model, its account and its failure.
    pub fn initiator(&mut self) -> &mut Initiator<P, C, K> {
        &mut self.initiator
    }
}

impl<P: Peer, C: Clock, K: Controller> Engine for Policed<P, C, K> {
    fn depth(&self) -> usize {
        self.initiator.depth()
    }

    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        let Some((command, buffer)) = self.commands.take(io) else {
            self.refused.push(not_a_command(io, now));
            return Submit::Taken;
        };
        match self.initiator.submit(&command, Some(buffer)) {
            Ok(handle) => {
                self.tokens[handle.index()] = io.token;
                Submit::Taken
            }
            Err(rejected) => self.commands.rejected(io, now, rejected, &mut self.refused),
        }
    }

    fn poll(&mut self, _now: Nanos, done: &mut Vec<Done>) {
        done.append(&mut self.refused);
        if self.initiator.outstanding() == 0 {
            return;
        }
        self.initiator.look();
        while let Some((handle, ended)) = self.initiator.take_any() {
            let token = self.tokens[handle.index()];
            // When the policy saw it, which may be before this look.
            let result = self.commands.put(token, ended.buffer, ended.outcome);
            done.push(Done { token, at: ended.at, result });
        }
    }

    fn next(&self) -> Next {
        if self.initiator.outstanding() == 0 && self.refused.is_empty() { Next::Idle } else { Next::Poll }
    }

    fn wait(&mut self, until: Option<Nanos>) {
        match self.initiator.outstanding() {
            // What a dead queue refused is an answer, and nothing else would end the sleep.
            _ if !self.refused.is_empty() => {}
            0 => super::sleep(self.initiator.clock(), until),
            _ => self.initiator.wait_any(until.unwrap_or(Nanos(u64::MAX))),
        }
    }

    fn blocks(&self) -> bool {
        true
    }

    fn device_ns(&self) -> u64 {
        self.initiator.account().drive_ns
    }

    fn cost(&self) -> EngineCost {
        let account = self.initiator.account();
        EngineCost {
            threads_ns: self.service.as_ref().map_or(0, Service::cpu_ns),
            spin_ns: account.spin_ns,
            device_ns: account.drive_ns,
        }
    }
}
