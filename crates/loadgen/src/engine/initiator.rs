//! A drive through an [`Initiator`]: any completion policy of the driver, with what it costs.
//!
//! While operations are in flight the runner lets it wait ([`Engine::wait`]): by interrupt, spinning, or asleep first, as the policy plans
//! for the oldest of them.

use std::collections::VecDeque;

use nearside_clock::{Clock, Nanos};
use nearside_driver::{DmaBuffer, Error, Handle, Initiator, NamespaceInfo, Peer, RejectReason, Service};

use super::queue::Commands;
use super::{Done, Engine, EngineCost, Failure, Io, Next, Submit};
use crate::verify::Verifier;

/// See the module.
pub struct Policed<P, C> {
    initiator: Initiator<P, C>,
    /// The asynchronous path's other contexts; their CPU time counts.
    service: Option<Service>,
    commands: Commands<DmaBuffer>,
    /// In flight, the oldest first: handle, token, when it was submitted.
    out: VecDeque<(Handle, u32, Nanos)>,
    refused: Vec<Done>,
}

impl<P: Peer, C: Clock> Policed<P, C> {
    /// Over an initiator that was made with `service`'s handle, for operations of up to `bytes`.
    ///
    /// # Errors
    /// Where the driver has no memory.
    pub fn new(
        initiator: Initiator<P, C>,
        service: Option<Service>,
        namespace: NamespaceInfo,
        bytes: u32,
        verifier: Option<Verifier>,
    ) -> Result<Self, Error> {
        let pool = initiator.driver().pool();
        let commands = Commands::new(|len| pool.take(len), namespace, initiator.depth(), bytes, verifier)?;
        Ok(Self { initiator, service, commands, out: VecDeque::new(), refused: Vec::new() })
    }

    /// The initiator, for its model and its account.
    pub fn initiator(&mut self) -> &mut Initiator<P, C> {
        &mut self.initiator
    }
}

impl<P: Peer, C: Clock> Engine for Policed<P, C> {
    fn depth(&self) -> usize {
        self.initiator.depth()
    }

    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        let refuse = |failure| Done { token: io.token, at: now, result: Err(failure) };
        let Some((command, buffer)) = self.commands.take(io) else {
            self.refused.push(refuse(Failure::Errno(22)));
            return Submit::Taken;
        };
        let at = self.initiator.clock().now();
        match self.initiator.submit(&command, Some(buffer)) {
            Ok(handle) => self.out.push_back((handle, io.token, at)),
            Err(rejected) => {
                self.commands.put_back(io.token, rejected.buffer);
                if rejected.reason == RejectReason::Full {
                    return Submit::Full;
                }
                self.refused.push(refuse(Failure::Gone));
            }
        }
        Submit::Taken
    }

    fn poll(&mut self, _now: Nanos, done: &mut Vec<Done>) {
        done.append(&mut self.refused);
        let Some(&(oldest, ..)) = self.out.front() else { return };
        let mut first = self.initiator.poll(oldest);
        let (initiator, commands) = (&mut self.initiator, &mut self.commands);
        self.out.retain(|&(handle, token, submitted)| {
            let ended = if handle == oldest { first.take() } else { initiator.taken(handle) };
            let Some(ended) = ended else { return true };
            // When the policy saw it, which may be before this look.
            let at = submitted + ended.latency_ns;
            done.push(Done { token, at, result: commands.put(token, ended.buffer, ended.outcome) });
            false
        });
    }

    fn next(&self) -> Next {
        if self.out.is_empty() && self.refused.is_empty() { Next::Idle } else { Next::Poll }
    }

    fn wait(&mut self, until: Option<Nanos>) {
        let at = until.unwrap_or(Nanos(u64::MAX));
        match self.out.front() {
            Some(&(oldest, ..)) => self.initiator.wait_any(oldest, at),
            None => super::sleep(self.initiator.clock(), until),
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
            threads: self.service.as_ref().map(Service::cpu_times).unwrap_or_default(),
            spin_ns: account.spin_ns,
            device_ns: account.drive_ns,
        }
    }
}
