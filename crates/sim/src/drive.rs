//! The whole drive behind the load generator, on one thread and on simulated time.
//!
//! An operation passes as in real time: the driver's [`QueuePair`] builds the entry and rings, the
//! controller's reactor takes it, parses it and hands it to the store, whose medium says when it ends; then
//! the reactor posts the completion and the driver reaps it. The drive is stepped when it is rung and when
//! its own next time has come, at no other time: nothing could happen.
//!
//! What the host's software takes is zero here. [`crate::cpu`] models that.

use nearside_clock::{Nanos, SimClock};
use nearside_device::{Config, Firmware, Reactor};
use nearside_driver::{
    Completed, Controller, DmaBuffer, Driver, DriverConfig, Host, Peer, QueueConfig, QueuePair, Transport,
    Turn,
};
use nearside_embedded::{Loopback, Runner};
use nearside_loadgen::engine::queue::{Commands, not_a_command};
use nearside_loadgen::engine::{Done, Engine, Io, Next, Submit};
use nearside_loadgen::run::{SimError, simulated};
use nearside_loadgen::{Outcome, Plan};
use nearside_store::Store;

/// The namespace that is worked on.
const NSID: u32 = 1;

/// What the drive and the driver are like.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// Operations in flight at most; what comes beyond waits in the generator.
    /// 1 to 2,047 with the controller's own queue size.
    pub depth: u16,
    /// The largest operation in bytes.
    pub largest: usize,
    /// The controller.
    pub controller: Config,
}

impl Default for DriveConfig {
    /// 1,024 in flight, up to 128 KiB each.
    fn default() -> Self {
        Self { depth: 1024, largest: 128 << 10, controller: Config::default() }
    }
}

/// Why a simulated drive could not be made or run.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The controller, or memory for it.
    #[error("the drive could not be made: {0}")]
    Drive(#[from] std::io::Error),
    /// The driver.
    #[error("the driver could not start the drive: {0}")]
    Driver(#[from] nearside_driver::Error),
    /// The run.
    #[error(transparent)]
    Run(#[from] SimError),
}

/// A drive, its driver and one queue pair: an [`Engine`] on simulated time.
pub struct Drive<S: Store, F: Firmware<S> = ()> {
    clock: SimClock,
    // Dropped in this order: the host before the drive.
    queue: QueuePair,
    driver: Driver,
    peer: Passing<Runner<S, F>>,
    commands: Commands<DmaBuffer>,
    /// When the drive has to be stepped.
    step_at: Option<Nanos>,
    /// Operations that the drive refused at once.
    refused: Vec<Done>,
}

/// Lets simulated time pass while the driver waits for an idle drive.
pub(crate) struct Passing<P>(pub P, pub SimClock);

impl<P: Peer> Peer for Passing<P> {
    fn pump(&mut self, now: Nanos) -> Turn {
        let turn = self.0.pump(now);
        if let Turn::Idle { until: Some(until) } = turn {
            self.1.advance_to(until);
        }
        turn
    }
}

impl<S: Store> Drive<S> {
    /// A drive over `store` without firmware, brought up by the driver.
    ///
    /// # Errors
    /// What the controller's settings or the machine's memory do not allow.
    pub fn new(store: S, config: &DriveConfig, clock: SimClock) -> Result<Self, DriveError> {
        Self::with_firmware(store, (), config, clock)
    }
}

impl<S: Store, F: Firmware<S>> Drive<S, F> {
    /// A drive over a store on simulated time, with firmware.
    ///
    /// # Errors
    /// Those of [`Drive::new`].
    pub fn with_firmware(
        store: S,
        firmware: F,
        config: &DriveConfig,
        clock: SimClock,
    ) -> Result<Self, DriveError> {
        let drive = Loopback::inline(store, firmware, config.controller.clone())?;
        let mut drive = drive.map(|runner| Passing(runner, clock.clone()));
        let depth = usize::from(config.depth);
        let buffers = depth * config.largest.next_power_of_two().max(4096);
        // Beside the buffers: a page of PRP list for each slot, the rings.
        let pool_bytes = buffers + depth * 8192 + (8 << 20);
        let driver_config = DriverConfig { pool_bytes, queues: 1, ..DriverConfig::default() };
        let driver = drive.driver(driver_config, &clock)?;
        let queue = QueueConfig { depth: config.depth, interrupt: false };
        let queue = driver.queue(queue, &mut drive.host(&clock))?;
        let largest = config.largest.min(driver.max_transfer()) as u32;
        let namespace = driver.namespace(Some(NSID), &mut drive.host(&clock))?;
        let commands = Commands::new(&driver, namespace, queue.depth(), largest, None)?;
        Ok(Self { queue, driver, commands, peer: drive.peer, step_at: None, refused: Vec::new(), clock })
    }

    /// The clock that it runs on.
    #[must_use]
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Runs a plan to its end.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn run(&mut self, plan: &Plan) -> Result<Outcome, DriveError> {
        let clock = self.clock.clone();
        Ok(simulated(plan, self, &clock)?)
    }

    /// Shuts the drive down as a host does: what was written becomes durable.
    ///
    /// # Errors
    /// Those of [`Driver::shut_down`].
    pub fn shut_down(mut self) -> Result<(), DriveError> {
        Ok(self.driver.shut_down(&mut Host::new(&self.clock, &mut self.peer))?)
    }

    /// Steps the drive until it has nothing more to do at this moment. After reads and writes a step's next
    /// time is exact, so that no further step is needed to find it.
    #[inline]
    fn turn(&mut self, now: Nanos) {
        loop {
            let step = self.peer.0.step(now);
            self.step_at = step.next;
            let again = step.next.is_some_and(|at| at <= now);
            if step.work == 0 || !again && self.peer.0.reactors().iter().all(Reactor::is_quiet) {
                return;
            }
        }
    }

    /// The controller failed: what is out comes back with an error.
    #[cold]
    fn give_up(&mut self, done: &mut Vec<Done>, now: Nanos) {
        let Self { queue, driver, peer, clock, commands, .. } = self;
        let mut host = Host::new(&*clock, peer);
        driver.rescue(queue, &mut host, |completed| done.push(ended(completed, commands, now)));
    }
}

/// What came of a command.
#[inline]
fn ended(completed: Completed, commands: &mut Commands<DmaBuffer>, now: Nanos) -> Done {
    let token = completed.cookie as u32;
    Done { token, at: now, result: commands.put(token, completed.buffer, completed.outcome) }
}

impl<S: Store, F: Firmware<S>> Engine for Drive<S, F> {
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
                self.turn(now);
                Submit::Taken
            }
            Err(rejected) => self.commands.rejected(io, now, rejected, &mut self.refused),
        }
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        done.append(&mut self.refused);
        if self.step_at.is_some_and(|at| at <= now) {
            self.turn(now);
        }
        let commands = &mut self.commands;
        if self.queue.poll(now, |completed| done.push(ended(completed, commands, now))).is_err() {
            self.give_up(done, now);
        }
    }

    #[inline]
    fn next(&self) -> Next {
        if !self.refused.is_empty() || self.queue.is_ready() {
            return Next::Poll;
        }
        // Without a time of the drive's own, the driver's: it finds a drive that has failed.
        match (self.queue.deadline(), self.step_at) {
            (None, _) => Next::Idle,
            (Some(deadline), at) => Next::At(at.map_or(deadline, |at| at.min(deadline))),
        }
    }
}
