//! The transport to a drive over NVMe/TCP: an operation is two commands.

use nearside_clock::{Clock, Nanos};
use nearside_driver::tcp::Association;
use nearside_driver::{Command, Finished, Peer, Policy, Threaded};

use crate::carrier::{self, Carrier, DEPTH, Ended, LOOK_NS, what};
use crate::queue::{Carrying, QueueTransport, ended_as, failed};
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
    /// Why nothing comes any more.
    fn lost(&mut self, otherwise: &str) -> Error {
        match self.initiator.failure() {
            Some(error) => failed(error),
            None => Error::Driver(otherwise.to_owned()),
        }
    }

    /// What the drive ended it as; a connection that was lost says why.
    fn ended(&mut self, cookie: u64, done: Finished<Vec<u8>>) -> Ended {
        let moved = match (done.outcome, self.initiator.failure()) {
            (Ok(_), _) => Ok(done.moved),
            (Err(_), Some(error)) => Err(failed(error)),
            (Err(failure), None) => Err(ended_as(what(cookie), failure)),
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
            Err(rejected) => Err(self.lost(&rejected.to_string())),
        }
    }

    fn wait(&mut self, mut sink: impl FnMut(Ended)) -> Result<(), Error> {
        let at = match self.stop.is_possible() {
            true => self.initiator.clock().now() + LOOK_NS,
            false => Nanos(u64::MAX),
        };
        self.initiator.wait_any(at);
        while let Some((handle, done)) = self.initiator.take_any() {
            if let Some(at) = self.cookies.iter().position(|(out, _)| *out == handle) {
                let (_, cookie) = self.cookies.swap_remove(at);
                sink(self.ended(cookie, done));
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
