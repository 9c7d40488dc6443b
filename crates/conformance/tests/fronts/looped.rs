//! The front without a wire: drive and driver in one process, on one thread or on threads of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::{Nanos, TscClock};
use nearside_conformance::front::{Front, Fronts, Refusal};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::{
    Command, Controller, DmaBuffer, Driver, DriverConfig, Failure, Host, Initiator, InitiatorConfig, Peer,
    Policy, QueueConfig, Turn,
};
use nearside_embedded::{AnyStore, Loopback, Runner, firmware};
use nearside_firmware::Fsr;
use nearside_spec::Status;
use nearside_spec::command::near_data;

/// Drives of this front.
pub struct Looped {
    /// Bytes of a logical block.
    pub lba_size: u32,
    /// How many reactors; 0: the drive runs on the threads that wait for it.
    pub reactors: usize,
}

/// An inline drive that several threads run by turns.
#[derive(Clone)]
struct SharedRunner(Arc<Mutex<Runner<AnyStore, Fsr>>>);

impl Peer for SharedRunner {
    fn pump(&mut self, now: Nanos) -> Turn {
        self.0.lock().unwrap().pump(now)
    }
}

/// Queue pairs of one driver: a thread uses the first that is free.
pub struct Queues<P, K> {
    driver: Driver,
    config: InitiatorConfig,
    queues: Vec<Mutex<Initiator<P, TscClock>>>,
    turn: AtomicU64,
    block: u64,
    capacity: u64,
    peer: P,
    /// What the drive lives in.
    _drive: K,
}

impl Fronts for Looped {
    fn start(&self, store: AnyStore) -> Box<dyn Front> {
        let config = Config { lba_size: self.lba_size, reactors: self.reactors.max(1), ..Config::default() };
        if self.reactors == 0 {
            let drive = Loopback::inline(store, firmware(), config).unwrap();
            let drive = drive.map(|runner| SharedRunner(Arc::new(Mutex::new(runner))));
            return Box::new(Queues::of(drive, Policy::Polled));
        }
        let drive = Loopback::threaded(store, firmware(), config, Rest::default()).unwrap();
        Box::new(Queues::of(drive, Policy::Hybrid))
    }
}

impl<P: Peer + Clone> Queues<P, Loopback<AnyStore, Fsr, P>> {
    fn of(mut drive: Loopback<AnyStore, Fsr, P>, policy: Policy) -> Self {
        let driver = drive.driver(DriverConfig::default(), &TscClock::new()).unwrap();
        Queues::new(driver, drive.peer.clone(), policy, drive)
    }
}

impl<P: Peer + Clone, K> Queues<P, K> {
    /// Of a driver whose drive is up; it lives in `drive`, and `peer` runs it.
    pub fn new(driver: Driver, mut peer: P, policy: Policy, drive: K) -> Self {
        let clock = TscClock::new();
        let info = driver.namespace(Some(1), &mut Host::new(&clock, &mut peer)).unwrap();
        let queue = QueueConfig { depth: 8, interrupt: policy != Policy::Polled };
        let config = InitiatorConfig { queue, policy };
        let queues = (0..4)
            .map(|_| Mutex::new(Initiator::new(&driver, config, clock, peer.clone(), None).unwrap()))
            .collect();
        let block = u64::from(info.block_size);
        let (capacity, turn) = (info.blocks * block, AtomicU64::new(0));
        Queues { driver, config, queues, turn, block, capacity, peer, _drive: drive }
    }

    fn queue(&self) -> MutexGuard<'_, Initiator<P, TscClock>> {
        let free = self.queues.iter().find_map(|queue| queue.try_lock().ok());
        let next = self.turn.fetch_add(1, Ordering::Relaxed) as usize % self.queues.len();
        free.unwrap_or_else(|| self.queues[next].lock().unwrap())
    }

    fn run(&self, command: &Command, buffer: Option<DmaBuffer>) -> Result<(u64, Option<DmaBuffer>), Refusal> {
        let done = self.queue().execute(command, buffer).map_err(|e| Refusal::Other(e.to_string()))?;
        match done.outcome {
            Ok(result) => Ok((result, done.buffer)),
            Err(Failure::Status(status)) => Err(match status.code() {
                Status::LBA_OUT_OF_RANGE | Status::CAPACITY_EXCEEDED => Refusal::OutOfRange,
                Status::READ_ONLY_NAMESPACE | Status::WRITE_TO_READ_ONLY_RANGE => Refusal::ReadOnly,
                Status::UNRECOVERED_READ | Status::WRITE_FAULT | Status::INTERNAL_ERROR => Refusal::Medium,
                status => Refusal::Other(status.to_string()),
            }),
            Err(failure) => Err(Refusal::Other(failure.to_string())),
        }
    }

    fn buffer(&self, len: usize) -> DmaBuffer {
        self.driver.pool().take(len).unwrap()
    }

    /// Each command's first block and bytes.
    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let most = self.driver.max_transfer() as u64;
        (0..len.div_ceil(most))
            .map(move |n| (offset / self.block + n * most / self.block, most.min(len - n * most)))
    }
}

impl<P: Peer + Clone + Send + Sync, K: Send + Sync> Front for Queues<P, K> {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn unit(&self) -> u64 {
        self.block
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Refusal> {
        let mut done = 0;
        for (lba, len) in self.pieces(offset, into.len() as u64) {
            let command = Command::read(1, lba, len.div_ceil(self.block) as u32);
            let whole = len.next_multiple_of(self.block) as usize;
            let (_, buffer) = self.run(&command, Some(self.buffer(whole)))?;
            buffer.unwrap().read(0, &mut into[done..done + len as usize]);
            done += len as usize;
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), Refusal> {
        let mut done = 0;
        for (lba, len) in self.pieces(offset, bytes.len() as u64) {
            let mut buffer = self.buffer(len.next_multiple_of(self.block) as usize);
            buffer.write(0, &bytes[done..done + len as usize]);
            let command = Command::write(1, lba, len.div_ceil(self.block) as u32);
            self.run(&if durable { command.fua() } else { command }, Some(buffer))?;
            done += len as usize;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.run(&Command::flush(1), None).map(drop)
    }

    fn zero(&self, offset: u64, len: u64, free: bool) -> Result<(), Refusal> {
        let (lba, blocks) = (offset / self.block, len.div_ceil(self.block) as u32);
        if !free {
            return self.run(&Command::write_zeroes(1, lba, blocks), None).map(drop);
        }
        let mut list = self.buffer(4096);
        let command = Command::deallocate(1, &[(lba, blocks)], &mut list);
        self.run(&command, Some(list)).map(drop)
    }

    fn near_data(&self, request: &[u8], room: usize) -> Result<Vec<u8>, Refusal> {
        let mut buffer = self.buffer(room.max(request.len()));
        buffer.write(0, request);
        let command = Command::near_data(1, request.len() as u32, &buffer);
        let (len, buffer) = self.run(&command, Some(buffer))?;
        let mut reply = vec![0; len as u32 as usize];
        buffer.unwrap().read(0, &mut reply);
        Ok(reply)
    }

    fn nonsense(&self) {
        let near_data = |request, room| {
            let command = Command::raw(nearside_spec::opcode::io::NEAR_DATA, 1);
            command
                .with(near_data::REQUEST, request)
                .with(near_data::BUFFER, room)
                .with(near_data::OVER, true)
        };
        let cases = [
            Command::raw(0x7f, 1),
            Command::raw(0xff, 1),
            Command::read(7, 0, 1),
            Command::read(0, 0, 1),
            Command::read(u32::MAX, 0, 1),
            Command::write_zeroes(1, u64::MAX, 1),
            Command::write_zeroes(1, u64::MAX - 1, 65_536),
            // No buffer where one is needed.
            Command::read(1, 0, 1),
            Command::write(1, 0, 8),
            near_data(u32::MAX, u32::MAX),
            near_data(u32::MAX, 4096),
            // More of a request than there is room for, and a room that no reply needs.
            near_data(8192, 4096),
            near_data(24, u32::MAX),
        ];
        for (n, command) in cases.iter().enumerate() {
            let refused = self.run(command, None);
            assert!(matches!(refused, Err(Refusal::Other(_) | Refusal::OutOfRange)), "case {n}: {refused:?}");
        }
    }

    fn abandon(&self, request: &[u8]) {
        let peer = self.peer.clone();
        let mut leaver = Initiator::new(&self.driver, self.config, TscClock::new(), peer, None).unwrap();
        let mut buffer = self.buffer(4096);
        buffer.write(0, request);
        let command = Command::near_data(1, request.len() as u32, &buffer);
        let _gone = leaver.submit(&command, Some(buffer)).unwrap();
        leaver.close().unwrap();
    }

    fn end(&self) {
        self.driver.stop(&mut Host::new(&TscClock::new(), &mut self.peer.clone())).unwrap();
    }
}
