//! The transport to a drive over NVMe/TCP: an operation is two commands. And the ways to one namespace that
//! the addresses of its subsystem are ([`TcpPaths`]).

use std::sync::Arc;

use nearside_clock::{Clock, Nanos};
use nearside_driver::tcp::{Address, Addresses, Association, Options};
use nearside_driver::{
    Command, Controller, Error as DriverError, Failure, Finished, Host, Peer, Policy, Threaded,
};
use nearside_spec::identify::{cns, namespace_identifiers, nidt};

use crate::carrier::{self, Carrier, DEPTH, Ended, LOOK_NS, what};
use crate::queue::{Carrying, QueueTransport, ended_as, failed, not_sent};
use crate::reconnecting::{Paths, Then, Unopened};
use crate::{Error, Transport};

/// A namespace of a controller over NVMe/TCP.
pub type TcpTransport<C> = QueueTransport<Threaded, C, Association>;

impl<C: Clock> TcpTransport<C> {
    /// The namespace that the controller's address names, or its first, over a queue of its own.
    ///
    /// # Errors
    /// There is no queue or no namespace for this host.
    pub fn over(controller: &Association, policy: Policy, clock: C) -> Result<Self, Error> {
        Self::new(controller.initiator(DEPTH, policy, clock).map_err(failed)?, None)
    }
}

impl Carrying for Association {
    fn near_data<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C, Self>,
        request: &[u8],
        capacity: usize,
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        carrier::fits(request, capacity, transport.max_buffer())?;
        let (tag, nsid) = (transport.tags.next(), transport.namespace.nsid);
        let buffer = transport.buffer(capacity)?;
        transport.spare = Some(carrier::near_data(transport, nsid, tag, request, buffer, reply)?);
        Ok(())
    }

    fn read<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C, Self>,
        most: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<u64, Error> {
        let namespace = transport.namespace;
        carrier::read(transport, &namespace, most, offset, into)
    }

    fn place(&self) -> String {
        self.address().to_string()
    }
}

impl<P: Peer, C: Clock> QueueTransport<P, C, Association> {
    /// What the drive ended it as; where the connection was lost, `lost` says why.
    fn ended(cookie: u64, done: Finished<Vec<u8>>, lost: Option<&str>) -> Ended {
        let moved = match (done.outcome, lost) {
            (Ok(_), _) => Ok(done.moved),
            (Err(failure), Some(why)) if failure.is_loss() => Err(Error::Lost(format!("driver: {why}"))),
            (Err(failure), _) => Err(ended_as(what(cookie), failure)),
        };
        Ended { cookie, moved, data: done.buffer.unwrap_or_default() }
    }
}

impl<P: Peer, C: Clock> Carrier for QueueTransport<P, C, Association> {
    fn send(&mut self, command: &Command, data: Vec<u8>, cookie: u64) -> Result<(), Error> {
        let data = Some(data).filter(|data| !data.is_empty());
        match self.initiator.submit(command, data) {
            Ok(handle) => {
                self.cookies.push((handle, cookie));
                Ok(())
            }
            // Why nothing comes any more.
            Err(rejected) => Err(match self.initiator.failure() {
                Some(error) => failed(error),
                None => not_sent(what(cookie), &rejected),
            }),
        }
    }

    fn wait(&mut self, mut sink: impl FnMut(Ended)) -> Result<(), Error> {
        let at = match self.stop.is_possible() {
            true => self.initiator.clock().now() + LOOK_NS,
            false => Nanos(u64::MAX),
        };
        self.initiator.wait_any(at);
        let lost = self.initiator.failure().map(|error| error.to_string());
        while let Some((handle, done)) = self.initiator.take_any() {
            if let Some(at) = self.cookies.iter().position(|(out, _)| *out == handle) {
                let (_, cookie) = self.cookies.swap_remove(at);
                sink(Self::ended(cookie, done, lost.as_deref()));
            }
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.initiator.outstanding()
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}

/// What tells a namespace from every other.
#[derive(Clone, Debug)]
struct Known {
    nsid: u32,
    block_size: u32,
    /// UUID, NGUID and EUI-64, as far as it has them.
    identifiers: Vec<(u8, Vec<u8>)>,
    /// Its subsystem's serial number.
    serial: [u8; 20],
}

impl Known {
    /// Whether it may be the same: nothing that both have differs. Without any identifier it is the serial
    /// number that counts.
    fn is_same(&self, other: &Known) -> bool {
        let of = |kind| other.identifiers.iter().find(|(other, _)| *other == kind);
        let mut both = self.identifiers.iter().filter_map(|one| Some((one, of(one.0)?))).peekable();
        let none = both.peek().is_none();
        let alike = both.all(|(one, other)| one == other);
        self.block_size == other.block_size && alike && (!none || self.serial == other.serial)
    }
}

/// The addresses of a subsystem, as ways to one of its namespaces: that which the first that is opened shows.
#[derive(Clone, Debug)]
pub struct TcpPaths<C> {
    addresses: Addresses,
    options: Options,
    policy: Policy,
    depth: u16,
    clock: C,
    known: Option<Known>,
}

impl<C: Clock + Clone + 'static> TcpPaths<C> {
    /// None is open yet.
    pub fn new(addresses: Addresses, options: Options, policy: Policy, clock: C) -> Self {
        TcpPaths { addresses, options, policy, depth: DEPTH, clock, known: None }
    }

    /// With queues for so many commands, where the target has as many.
    pub fn with_depth(self, depth: u16) -> Self {
        TcpPaths { depth: depth.max(DEPTH), ..self }
    }

    fn connect(&self, address: &Address) -> Result<(TcpTransport<C>, Known), DriverError> {
        let clock = self.clock.clone();
        let controller = Association::connect(address, self.options.clone(), Arc::new(clock.clone()))?;
        let mut host = Host::threaded(clock.clone());
        let namespace = controller.namespace(self.known.as_ref().map(|known| known.nsid), &mut host)?;
        let identifiers = match controller.identify(cns::NAMESPACE_DESCRIPTORS, namespace.nsid, &mut host) {
            Ok(list) => namespace_identifiers(&list)
                .filter(|(kind, _)| *kind != nidt::CSI)
                .map(|(kind, id)| (kind, id.to_vec()))
                .collect(),
            // A controller of before NVMe 1.3 has no such list.
            Err(DriverError::Command { failure: Failure::Status(_), .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let initiator = controller.initiator(self.depth, self.policy, clock)?;
        let known = Known {
            nsid: namespace.nsid,
            block_size: namespace.block_size,
            identifiers,
            serial: controller.identity().sn(),
        };
        Ok((QueueTransport::with(initiator, namespace), known))
    }
}

impl<C: Clock + Clone + 'static> Paths for TcpPaths<C> {
    type Way = TcpTransport<C>;

    fn names(&self) -> Vec<String> {
        self.addresses.each().iter().map(Address::authority).collect()
    }

    fn open(&mut self, nth: usize) -> Result<TcpTransport<C>, Unopened> {
        let (transport, found) = self.connect(&self.addresses.each()[nth]).map_err(|error| Unopened {
            then: if error.may_pass() { Then::Again } else { Then::NotThere },
            why: error.to_string(),
        })?;
        match &self.known {
            Some(known) if !known.is_same(&found) => {
                // Answers of two drives are never made one.
                let why = format!("namespace {} there is another than it was", found.nsid);
                return Err(Unopened { then: Then::Nowhere, why });
            }
            Some(_) => {}
            None => self.known = Some(found),
        }
        Ok(transport)
    }

    fn leave(&mut self, way: TcpTransport<C>) {
        way.initiator.controller().abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_known_again() {
        let known = |uuid: &[u8], nguid: &[u8], serial: u8| {
            let all = [(nidt::UUID, uuid), (nidt::NGUID, nguid)];
            let identifiers =
                all.into_iter().filter(|(_, id)| !id.is_empty()).map(|(k, id)| (k, id.to_vec()));
            Known { nsid: 1, block_size: 512, identifiers: identifiers.collect(), serial: [serial; 20] }
        };
        let one = known(b"u", b"n", 1);
        for (other, is_same) in [
            (one.clone(), true),
            // One that has learned more, or says less.
            (known(b"u", b"", 1), true),
            (known(b"", b"n", 2), true),
            (known(b"v", b"n", 1), false),
            (known(b"u", b"m", 1), false),
            // Nothing that both have: the serial number.
            (known(b"", b"", 1), true),
            (known(b"", b"", 2), false),
            (Known { block_size: 4096, ..one.clone() }, false),
        ] {
            assert_eq!((one.is_same(&other), other.is_same(&one)), (is_same, is_same), "{other:?}");
        }
    }
}
