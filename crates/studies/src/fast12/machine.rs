//! This machine's side of the studies: the real drive on one core, the paths on another,
//! the second process beside them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nearside_clock::{Clock, TscClock};
use nearside_driver::{
    Command, Controller, DmaBuffer, Driver, Finished, Host, Initiator, InitiatorConfig, Policy, QueueConfig,
    Service, Threaded, Transport,
};
use nearside_instrument::completion::{Bench, cores};
use nearside_media::{Medium, Request};

use super::second::Second;
use crate::{Failure, Run};

/// What the drive saw of a request: when it had it, and when its medium was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// First byte.
    pub offset: u64,
    /// By the machine's clock.
    pub arrived_ns: u64,
    /// When its medium said that it ends.
    pub finish_ns: u64,
}

/// The drive's log, in the order in which requests reached its medium.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Arrival>>>);

impl Log {
    /// What is in it; it is empty afterwards.
    pub fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A medium whose requests are logged.
pub struct Logged<M> {
    medium: M,
    log: Log,
}

impl<M: Medium> Logged<M> {
    /// Logs `medium`'s.
    pub fn new(medium: M) -> (Logged<M>, Log) {
        let log = Log::default();
        (Logged { medium, log: log.clone() }, log)
    }
}

impl<M: Medium> Medium for Logged<M> {
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let finish_ns = self.medium.finish(request, now_ns);
        let arrival = Arrival { offset: request.offset, arrived_ns: now_ns, finish_ns };
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        finish_ns
    }
}

/// A caller with both paths, on the calling thread's core.
pub struct Caller {
    /// What it asks.
    pub io: Initiator<Threaded, TscClock>,
    service: Service,
    buffer: Option<DmaBuffer>,
}

impl Caller {
    /// With a queue pair and an asynchronous context of its own, and a buffer of so many bytes.
    pub fn new(driver: &Driver, bytes: usize) -> Result<Caller, Failure> {
        let clock = TscClock::new();
        let service = Service::start(driver, 32, clock, || ())?;
        let io = initiator(driver, &service)?;
        let buffer = Some(io.buffer(bytes)?);
        Ok(Caller { io, service, buffer })
    }

    /// One command with the buffer, awaited.
    pub fn execute(&mut self, command: &Command) -> Result<Finished, Failure> {
        let buffer = self.buffer.take();
        let mut done =
            self.io.execute(command, buffer).map_err(|e| format!("a command was refused: {:?}", e.reason))?;
        self.buffer = done.buffer.take();
        done.outcome.map_err(|e| format!("a command failed: {e}"))?;
        Ok(done)
    }

    /// One command with the buffer by the non-blocking calls: submitted, and asked for until it is done.
    pub fn call(&mut self, command: &Command) -> Result<(), Failure> {
        let buffer = self.buffer.take();
        let handle =
            self.io.submit(command, buffer).map_err(|e| format!("a command was refused: {:?}", e.reason))?;
        let done = loop {
            if let Some(done) = self.io.poll(handle) {
                break done;
            }
        };
        self.buffer = done.buffer;
        done.outcome.map_err(|e| format!("a command failed: {e}"))?;
        Ok(())
    }

    /// CPU time of the asynchronous context, in nanoseconds.
    pub fn served_ns(&self) -> u64 {
        self.service.cpu_ns()
    }

    /// Gives its queue pairs back.
    pub fn close(self) -> Result<(), Failure> {
        Ok(self.io.close()?)
    }
}

/// An initiator with a queue pair of its own and the asynchronous path of `service`.
pub fn initiator(driver: &Driver, service: &Service) -> Result<Initiator<Threaded, TscClock>, Failure> {
    let config = InitiatorConfig::default();
    Ok(Initiator::new(driver, config, TscClock::new(), Threaded, Some(service.handle()))?)
}

/// The core of the paths, where there is one beside the drive's.
pub fn path_core() -> Option<usize> {
    cores().get(1).copied()
}

/// A read of the `nth` place of a bench's first mebibytes.
pub fn read(nth: u64, bytes: u32) -> Command {
    let blocks = bytes / 512;
    Command::read(1, nth % 1000 * u64::from(blocks), blocks)
}

/// Where the time of one read by the asynchronous path goes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// From the call to its return.
    pub total_ns: u64,
    /// From the doorbell until a thread that the interrupt wakes runs, software excluded.
    pub device_ns: u64,
    /// What the second process got of it.
    pub useful_ns: u64,
}

/// `count` reads by the asynchronous path while the second process runs on the same core; the median of each
/// part. None where the machine has one core.
pub fn beside_second(
    run: &Run<'_>,
    bench: &Bench,
    bytes: u32,
    count: usize,
) -> Result<Option<Parts>, Failure> {
    let Some(core) = path_core() else { return Ok(None) };
    let clock = TscClock::new();
    let mut caller = Caller::new(bench.driver(), bytes as usize)?;
    caller.io.set_policy(Policy::Interrupt);
    let second = Second::slots(run.helper(), core)?;
    let mut times = Vec::with_capacity(count);
    for nth in 0..(count + WARM) as u64 {
        let from = clock.now().0;
        caller.execute(&read(nth, bytes))?;
        times.push((from, clock.now().0));
    }
    let device_ns = device_time(bench.driver(), bytes, true, count)?;
    caller.close()?;
    let slots = second.stop()?;
    let times = &times[WARM..];
    let total_ns = median(times.iter().map(|(from, to)| to - from));
    let useful_ns = median(times.iter().map(|(from, to)| super::second::within(&slots, *from, *to)));
    Ok(Some(Parts { total_ns, device_ns, useful_ns }))
}

/// Commands before those that count.
const WARM: usize = 50;

/// The time of one read, software excluded, as Table 1 has it: from the doorbell until the
/// completion is seen by a thread that spins, or by one that the interrupt wakes. The median of
/// `count` reads, one at a time, in nanoseconds.
pub fn device_time(driver: &Driver, bytes: u32, interrupt: bool, count: usize) -> Result<u64, Failure> {
    let clock = TscClock::new();
    let mut queue = driver.queue(QueueConfig { depth: 4, interrupt: true }, &mut Host::threaded(&clock))?;
    let mut buffer = Some(driver.pool().take(bytes as usize)?);
    let mut times = Vec::with_capacity(count);
    for nth in 0..(count + WARM) as u64 {
        let sent = queue.submit(&read(nth, bytes), buffer.take(), 0, clock.now());
        sent.map_err(|e| format!("a read was refused: {:?}", e.reason))?;
        let rung = clock.now();
        queue.ring();
        while !queue.is_ready() {
            match queue.vector().filter(|_| interrupt) {
                Some(vector) => drop(vector.sleep(Some(LOOK), || !queue.is_ready())),
                None => std::hint::spin_loop(),
            }
        }
        times.push(clock.now().since(rung));
        let done = queue.reap().ok_or("a completion was lost")?;
        done.outcome.map_err(|e| format!("a read failed: {e}"))?;
        queue.settle();
        buffer = done.buffer;
    }
    driver.delete(queue, &mut Host::threaded(&clock), drop)?;
    Ok(median(times[WARM..].iter().copied()))
}

/// The longest sleep for an interrupt: none is lost, but a study does not hang where one were.
pub const LOOK: Duration = Duration::from_millis(50);

/// The median; 0 of nothing.
pub fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut sorted: Vec<u64> = values.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}
