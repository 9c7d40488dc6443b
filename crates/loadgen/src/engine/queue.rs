//! A drive through its queue pair, polled: the caller's looks at the completion queue are the completions. The drive may run on this
//! thread (its [`Peer`] is given a turn at each poll), in real or simulated time.

use nearside_clock::{Clock, Nanos};
use nearside_driver::{
    Command, Completed, DmaBuffer, Driver, Error, Failure as Ended, NamespaceInfo, Peer, QueueConfig,
    QueuePair, Turn,
};

use super::{Done, Engine, Failure, Io, Next, Submit};
use crate::verify::Verifier;
use crate::workload::Direction;

/// A command's buffer.
pub(super) trait Buffer {
    fn capacity(&self) -> usize;
    fn set_len(&mut self, len: usize);
    fn write(&mut self, at: usize, from: &[u8]);
    fn read(&self, at: usize, into: &mut [u8]);
}

impl Buffer for DmaBuffer {
    fn capacity(&self) -> usize {
        self.capacity()
    }
    fn set_len(&mut self, len: usize) {
        self.set_len(len);
    }
    fn write(&mut self, at: usize, from: &[u8]) {
        self.write(at, from);
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        self.read(at, into);
    }
}

impl Buffer for Vec<u8> {
    fn capacity(&self) -> usize {
        self.capacity()
    }
    fn set_len(&mut self, len: usize) {
        self.resize(len, 0);
    }
    fn write(&mut self, at: usize, from: &[u8]) {
        self[at..at + from.len()].copy_from_slice(from);
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[at..at + into.len()]);
    }
}

/// Buffers by token, for commands on one namespace.
pub(super) struct Commands<B> {
    buffers: Vec<Option<B>>,
    namespace: NamespaceInfo,
    verifier: Option<Verifier>,
}

impl<B: Buffer> Commands<B> {
    /// `depth` buffers of `bytes`, filled with what does not compress.
    pub(super) fn new<E>(
        mut take: impl FnMut(usize) -> Result<B, E>,
        namespace: NamespaceInfo,
        depth: usize,
        bytes: u32,
        verifier: Option<Verifier>,
    ) -> Result<Self, E> {
        let mut random = crate::random::Random::new(bytes.into());
        let one = |_| {
            let mut buffer = take(bytes as usize)?;
            (0..bytes as usize / 8).for_each(|word| buffer.write(word * 8, &random.bits().to_le_bytes()));
            Ok(Some(buffer))
        };
        let buffers = (0..depth).map(one).collect::<Result<_, _>>()?;
        Ok(Self { buffers, namespace, verifier })
    }

    /// The command and its buffer; `None` where the operation is not made of whole blocks or longer than a buffer.
    #[inline]
    pub(super) fn take(&mut self, io: &Io) -> Option<(Command, B)> {
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

    #[inline]
    pub(super) fn put(
        &mut self,
        token: u32,
        buffer: Option<B>,
        outcome: Result<u64, Ended>,
    ) -> Result<(), Failure> {
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

    pub(super) fn put_back(&mut self, token: u32, buffer: Option<B>) {
        if let Some(verifier) = &mut self.verifier {
            verifier.withdraw(token);
        }
        if let Some(place) = self.buffers.get_mut(token as usize) {
            *place = buffer;
        }
    }
}

/// See the module. An operation that is no command (blocks cut in two, longer than the buffers) ends in an error.
pub struct Queue<P, C> {
    driver: Driver,
    queue: QueuePair,
    commands: Commands<DmaBuffer>,
    /// Ended without having been sent.
    refused: Vec<Done>,
    turn: Turn,
    device_ns: u64,
    peer: P,
    clock: C,
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
        mut peer: P,
        clock: C,
    ) -> Result<Self, Error> {
        let queue = driver.queue(QueueConfig { depth, interrupt: false }, &clock, &mut peer)?;
        let commands =
            Commands::new(|len| driver.pool().take(len), namespace, queue.depth(), bytes, verifier)?;
        let turn = Turn::Worked;
        Ok(Self {
            driver: driver.clone(),
            queue,
            commands,
            refused: Vec::new(),
            turn,
            device_ns: 0,
            peer,
            clock,
        })
    }

    /// Who runs the drive.
    pub fn peer(&mut self) -> &mut P {
        &mut self.peer
    }

    /// Ends the queue pair.
    ///
    /// # Errors
    /// The driver's.
    pub fn close(mut self) -> Result<(), Error> {
        self.driver.delete(self.queue, &self.clock, &mut self.peer, drop)
    }
}

/// What an operation ends in that is no command: the system's word for an invalid argument.
pub(super) const EINVAL: i32 = 22;

impl<P: Peer, C: Clock> Engine for Queue<P, C> {
    fn depth(&self) -> usize {
        self.queue.depth()
    }

    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        let Some((command, buffer)) = self.commands.take(io) else {
            self.refused.push(Done { token: io.token, at: now, result: Err(Failure::Errno(EINVAL)) });
            return Submit::Taken;
        };
        match self.queue.submit(&command, Some(buffer), io.token.into(), now) {
            Ok(()) => {
                self.queue.ring();
                self.turn = Turn::Worked;
                Submit::Taken
            }
            Err(rejected) => {
                self.commands.put_back(io.token, rejected.buffer);
                if rejected.reason == nearside_driver::RejectReason::Full {
                    return Submit::Full;
                }
                self.refused.push(Done { token: io.token, at: now, result: Err(Failure::Gone) });
                Submit::Taken
            }
        }
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        done.append(&mut self.refused);
        self.turn = self.peer.pump(now);
        let mut at = now;
        if self.turn == Turn::Worked {
            at = self.clock.now();
            self.device_ns += at.since(now);
        }
        let commands = &mut self.commands;
        let mut sink = |ended: Completed| {
            let token = ended.cookie as u32;
            done.push(Done { token, at, result: commands.put(token, ended.buffer, ended.outcome) });
        };
        if self.queue.poll(now, &mut sink).is_err() {
            self.driver.rescue(&mut self.queue, &self.clock, &mut self.peer, sink);
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
