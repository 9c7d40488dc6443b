//! A drive through its queue pair, polled: the caller's looks at the completion queue are the completions.
//! The drive may run on this thread (its [`Peer`] is given a turn at each poll), in real or simulated time.

use nearside_clock::{Clock, Nanos};
use nearside_driver::{
    Buffer, Command, Completed, Controller, DmaBuffer, Driver, Error, Failure as Ended, Host, NamespaceInfo,
    Peer, QueueConfig, QueuePair, RejectReason, Rejected, Transport, Turn,
};

use super::{Done, Engine, Failure, Io, Next, Submit};
use crate::verify::Verifier;
use crate::workload::Direction;

/// Buffers by token, for commands on one namespace: what every engine over a driver's queue needs.
pub struct Commands<B> {
    buffers: Vec<Option<B>>,
    namespace: NamespaceInfo,
    verifier: Option<Verifier>,
}

impl<B: Buffer> Commands<B> {
    /// `depth` buffers of `bytes`, filled with what does not compress.
    ///
    /// # Errors
    /// The driver has no memory for them.
    pub fn new(
        controller: &impl Controller<Queue: Transport<Buffer = B>>,
        namespace: NamespaceInfo,
        depth: usize,
        bytes: u32,
        verifier: Option<Verifier>,
    ) -> Result<Self, Error> {
        let mut random = nearside_random::Random::new(bytes.into());
        let one = |_| {
            let mut buffer = controller.buffer(bytes as usize)?;
            (0..bytes as usize / 8).for_each(|word| buffer.write(word * 8, &random.bits().to_le_bytes()));
            Ok(Some(buffer))
        };
        let buffers = (0..depth).map(one).collect::<Result<_, Error>>()?;
        Ok(Self { buffers, namespace, verifier })
    }

    /// The command and its buffer; `None` where the operation is not
    /// made of whole blocks or longer than a buffer.
    #[inline]
    #[must_use]
    pub fn take(&mut self, io: &Io) -> Option<(Command, B)> {
        let NamespaceInfo { nsid, block_size, .. } = self.namespace;
        let (slba, blocks) = (io.offset / u64::from(block_size), io.len / block_size);
        let whole = io.offset.is_multiple_of(block_size.into()) && io.len.is_multiple_of(block_size);
        if !whole || !(1..=0x1_0000).contains(&blocks) {
            return None;
        }
        let place = self.buffers.get_mut(io.token as usize)?;
        let mut buffer = place.take_if(|buffer| buffer.capacity() >= io.len as usize)?;
        buffer.set_len(io.len as usize);
        if let Some(bytes) = self.verifier.as_mut().and_then(|verifier| verifier.before(io)) {
            buffer.write(0, bytes);
        }
        let command = match io.direction {
            Direction::Read => Command::read(nsid, slba, blocks),
            Direction::Write => Command::write(nsid, slba, blocks),
        };
        Some((command, buffer))
    }

    /// What came of a command, whose buffer goes back to its place.
    ///
    /// # Errors
    /// The drive's, or that the data are not those that were written.
    #[inline]
    pub fn put(&mut self, token: u32, buffer: Option<B>, outcome: Result<u64, Ended>) -> Result<(), Failure> {
        let result = match outcome {
            Ok(_) => Ok(()),
            Err(Ended::Status(status)) => Err(Failure::Status(status.0)),
            Err(Ended::Digest | Ended::Short) => Err(Failure::Data),
            Err(_) => Err(Failure::Gone),
        };
        let right = match (&mut self.verifier, &buffer) {
            (Some(verifier), Some(buffer)) => {
                verifier.after(token, result.is_ok(), |into| buffer.read(0, into))
            }
            _ => true,
        };
        if let Some(place) = self.buffers.get_mut(token as usize) {
            *place = buffer;
        }
        if right { result } else { Err(Failure::Data) }
    }

    /// Of an operation that was not taken: its buffer is back.
    pub fn rejected(
        &mut self,
        io: &Io,
        now: Nanos,
        rejected: Rejected<B>,
        refused: &mut Vec<Done>,
    ) -> Submit {
        self.put_back(io.token, rejected.buffer);
        match rejected.reason {
            RejectReason::Full => return Submit::Full,
            RejectReason::Buffer => refused.push(not_a_command(io, now)),
            RejectReason::Dead => {
                refused.push(Done { token: io.token, at: now, result: Err(Failure::Gone) });
            }
        }
        Submit::Taken
    }

    fn put_back(&mut self, token: u32, buffer: Option<B>) {
        if let Some(verifier) = &mut self.verifier {
            verifier.withdraw(token);
        }
        if let Some(place) = self.buffers.get_mut(token as usize) {
            *place = buffer;
        }
    }
}

/// What an operation ends in that is no command: the system's word for an invalid argument.
#[must_use]
pub fn not_a_command(io: &Io, now: Nanos) -> Done {
    const EINVAL: i32 = 22;
    Done { token: io.token, at: now, result: Err(Failure::Errno(EINVAL)) }
}

/// An engine over a queue of a drive. An operation that is no command (blocks cut in two,
/// longer than the buffers) ends in an error.
pub struct Queue<P, C> {
    queue: QueuePair,
    driver: Driver,
    commands: Commands<DmaBuffer>,
    /// Ended without having been sent.
    refused: Vec<Done>,
    turn: Turn,
    device_ns: u64,
    host: Host<C, P>,
}

impl<P: Peer, C: Clock> Queue<P, C> {
    /// A queue pair of `depth` for operations of up to `bytes`.
    ///
    /// # Errors
    /// The driver's: no queue, no memory.
    pub fn new(
        driver: &Driver,
        namespace: NamespaceInfo,
        depth: u16,
        bytes: u32,
        verifier: Option<Verifier>,
        peer: P,
        clock: C,
    ) -> Result<Self, Error> {
        let mut host = Host { clock, peer };
        let queue = driver.queue(QueueConfig { depth, interrupt: false }, &mut host)?;
        let commands = Commands::new(driver, namespace, queue.depth(), bytes, verifier)?;
        let (refused, turn, device_ns) = (Vec::new(), Turn::Worked, 0);
        Ok(Self { queue, driver: driver.clone(), commands, refused, turn, device_ns, host })
    }

    /// Who runs the drive.
    pub fn peer(&mut self) -> &mut P {
        &mut self.host.peer
    }

    /// Ends the queue pair.
    ///
    /// # Errors
    /// The driver's.
    pub fn close(mut self) -> Result<(), Error> {
        self.driver.delete(self.queue, &mut self.host, drop)
    }
}

impl<P: Peer, C: Clock> Engine for Queue<P, C> {
    fn depth(&self) -> usize {
        self.queue.depth()
    }

    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        let Some((command, buffer)) = self.commands.take(io) else {
            self.refused.push(not_a_command(io, now));
            return Submit::Taken;
        };
        match self.queue.submit(&command, Some(buffer), io.token.into(), now) {
            Ok(()) => {
                self.queue.ring();
                self.turn = Turn::Worked;
                Submit::Taken
            }
            Err(rejected) => self.commands.rejected(io, now, rejected, &mut self.refused),
        }
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        done.append(&mut self.refused);
        self.turn = self.host.peer.pump(now);
        let mut at = now;
        if self.turn == Turn::Worked {
            at = self.host.clock.now();
            self.device_ns += at.since(now);
        }
        let commands = &mut self.commands;
        let mut sink = |ended: Completed| {
            let token = ended.cookie as u32;
            done.push(Done { token, at, result: commands.put(token, ended.buffer, ended.outcome) });
        };
        if self.queue.poll(now, &mut sink).is_err() {
            self.driver.rescue(&mut self.queue, &mut self.host, sink);
        }
    }

    #[inline]
    fn next(&self) -> Next {
        match (self.turn, self.queue.outstanding()) {
            _ if !self.refused.is_empty() => Next::Poll,
            (Turn::Idle { until: Some(at) }, _) => Next::At(at),
            (_, 0) => Next::Idle,
            _ => Next::Poll,
        }
    }

    fn device_ns(&self) -> u64 {
        self.device_ns
    }

    fn cost(&self) -> super::EngineCost {
        super::EngineCost { device_ns: self.device_ns, ..Default::default() }
    }
}
