//! Near-data commands on simulated time: the real drive with its firmware and FSRLib on one thread, over a
//! medium's time, with what the drive's processor and the host's software take as numbers.
//!
//! A search passes as in real time: FSRLib packs the command, the driver rings, the reactor hands it to the
//! firmware, whose task crawls, reads and searches. Three things take time: the medium, as for every
//! simulated drive; each piece of the firmware's work, by [`Core`], told by the trace points of
//! `nearside-fsr`; each command of the host, by `host_ns`. The firmware's processor is one core: while it
//! works, nothing else does but the medium.

use std::io::{self, Read};
use std::sync::Arc;

use nearside_clock::{Clock, Nanos, SimClock};
use nearside_device::{Config, Namespace};
use nearside_dma::{IoBuffer, Memory};
use nearside_driver::{DriverConfig, Initiator, InitiatorConfig, Policy, QueueConfig};
use nearside_embedded::{Loopback, Runner};
use nearside_firmware::Fsr;
use nearside_firmware::{Breakdown, Config as FsrConfig, Trace, TracePart};
use nearside_fsrlib::{Completion, Error, NearDataLog, QueueTransport, Session, Transport};
use nearside_store::{Channel, Data, Operation, Store, Submitted, Token};

use crate::drive::{DriveError, Passing};

/// What the drive's processor takes for the firmware's work, in nanoseconds. The medium's own time (which has
/// the copy of a block out of the drive's buffer in it) comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// To locate a path, once.
    pub locate_ns: u64,
    /// For each look into the table of inodes' places.
    pub table_ns: u64,
    /// For each name that is looked for among a directory's entries.
    pub entry_ns: u64,
    /// For each inode.
    pub inode_ns: u64,
    /// For each operation on a file's bytes, once.
    pub compute_ns: u64,
    /// For 1024 of its bytes.
    pub compute_ns_per_kib: u64,
}

impl Core {
    fn takes(&self, part: TracePart, units: u64) -> u64 {
        match part {
            TracePart::Locate => self.locate_ns * units,
            TracePart::ReadTable => self.table_ns * units,
            TracePart::FindEntry => self.entry_ns * units,
            TracePart::ParseInode => self.inode_ns * units,
            TracePart::Operate => self.compute_ns * units,
            TracePart::Compute => self.compute_ns_per_kib * units / 1024,
            TracePart::ReadDirectory | TracePart::ReadInode | TracePart::Supply => 0,
        }
    }
}

/// What the model needs to know beside the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct NearDataConfig {
    /// The drive's processor.
    pub core: Core,
    /// What a command costs beside the medium and the firmware's own work:
    /// the host's software, and the drive taking and answering it.
    pub host_ns: u64,
    /// The firmware's bounds.
    pub firmware: FsrConfig,
}

/// A near-data drive on simulated time.
pub struct NearData<S: Store> {
    session: Session<SimTransport<S>>,
    clock: SimClock,
    trace: Arc<Trace>,
}

/// The host's way to it: each command costs what the host's software takes.
pub struct SimTransport<S: Store> {
    inner: QueueTransport<Passing<Runner<S, Fsr>>, SimClock>,
    namespace: Arc<Namespace<S, Fsr>>,
    clock: SimClock,
    host_ns: u64,
}

/// Bytes of one read that fills the buffer.
const PIECE: usize = 128 << 10;
/// Bytes of one write that loads an image.
const SLOT: usize = 4096;

impl<S: Store> NearData<S> {
    /// A drive over `store`, brought up by the driver.
    ///
    /// # Errors
    /// What the machine's memory does not allow.
    pub fn new(store: S, config: &NearDataConfig, clock: SimClock) -> Result<Self, DriveError> {
        let (now, passing, core) = (clock.clone(), clock.clone(), config.core);
        let trace = Arc::new(Trace::new(
            move || now.now().0,
            move |part, units| {
                passing.advance(core.takes(part, units));
            },
        ));
        let firmware = Fsr::traced(Arc::new(clock.clone()), config.firmware, trace.clone());
        let drive = Loopback::inline(store, firmware, Config::default())?;
        let mut drive = drive.map(|runner| Passing(runner, clock.clone()));
        // An hour: simulated work may take its time.
        let settings = DriverConfig { timeout_ms: 3_600_000, ..DriverConfig::default() };
        let driver = drive.driver(settings, &clock)?;
        let queue = QueueConfig { depth: 32, interrupt: false };
        let initiator = InitiatorConfig { queue, policy: Policy::Polled };
        let initiator = Initiator::new(&driver, initiator, clock.clone(), drive.peer, None)?;
        let inner = QueueTransport::new(initiator, None).map_err(std::io::Error::other)?;
        let (namespace, host_ns) = (drive.namespace, config.host_ns);
        let way = SimTransport { inner, namespace, clock: clock.clone(), host_ns };
        Ok(NearData { session: Session::new(way, Arc::new(clock.clone())), clock, trace })
    }

    /// The host's session with it.
    pub fn session(&mut self) -> &mut Session<SimTransport<S>> {
        &mut self.session
    }

    /// The clock that it runs on.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Where the firmware's time went since the last call.
    pub fn parts(&self) -> Breakdown {
        self.trace.take()
    }

    /// The firmware forgets names, inodes and blocks:
    /// what it wants it reads again, from the drive's buffer or the medium.
    pub fn forget(&self) {
        self.session.transport().namespace.observer().retriever().forget_files();
    }

    /// Reads those bytes of the namespace, so that the drive's buffer holds them and little else.
    /// DAC'23 (IV-B) empties it so.
    ///
    /// # Errors
    /// What the store says.
    pub fn fill_buffer(&mut self, from: u64, bytes: u64) -> Result<(), Error> {
        let mut piece = vec![0; PIECE];
        for at in (from..from + bytes).step_by(PIECE) {
            self.session.transport_mut().inner.read(at, &mut piece)?;
        }
        Ok(())
    }
}

impl<S: Store> Transport for SimTransport<S> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        self.clock.advance(self.host_ns);
        self.inner.near_data(request, capacity, reply)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let commands = self.inner.read(offset, into)?;
        self.clock.advance(self.host_ns * commands);
        Ok(commands)
    }

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn max_buffer(&self) -> usize {
        self.inner.max_buffer()
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        self.inner.statistics()
    }

    fn completion(&self) -> Completion {
        self.inner.completion()
    }
}

/// Writes an image into a store before a drive has it, blocks of zeros left out.
/// Returns when the last write ended.
///
/// # Errors
/// What the image or the store says.
pub fn load<S: Store>(store: &S, image: &mut impl Read, from: Nanos) -> io::Result<Nanos> {
    let mut channel = store.channel(Arc::new(Memory::new()))?;
    let (mut now, mut offset) = (from, 0);
    loop {
        let mut buffer = IoBuffer::new(SLOT)?;
        let mut filled = 0;
        while filled < SLOT {
            match image.read(&mut buffer[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        if filled == 0 {
            return Ok(now);
        }
        if buffer.iter().any(|byte| *byte != 0) {
            let operation = Operation::Write { offset, len: SLOT as u64, fua: false };
            let mut ended = match channel.submit(operation, Data::Owned(buffer), Token(0), now) {
                Submitted::Done(completion) => Some(completion),
                Submitted::Pending => None,
            };
            while ended.is_none() {
                let next = channel.poll(now, &mut |_, completion| ended = Some(completion));
                now = next.map_or(now, |next| next.max(now));
            }
            if let Some(Err(error)) = ended.map(|completion| completion.result) {
                return Err(io::Error::other(error.to_string()));
            }
        }
        offset += SLOT as u64;
    }
}
