//! What carries operations out: the seam between the generator and a device.

pub mod blocking;
pub mod file;
pub mod initiator;
pub mod null;
pub mod queue;
pub mod uring;

use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use serde::{Deserialize, Serialize};

use crate::workload::Direction;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The caller's name for it: below the engine's depth, and not that of another operation in flight.
    pub token: u32,
    /// Which way.
    pub direction: Direction,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Whether an engine took an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// It will be among the completions.
    Taken,
    /// Not now: offer it again after a poll.
    Full,
}

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// The kernel's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// The drive's status, as a completion has it (NVMe Base 2.0, 4.6.1, Status Field without the phase tag).
    #[error("the drive answered: {}", nearside_spec::Status(*.0))]
    Status(u16),
    /// Fewer bytes moved than asked for.
    #[error("{moved} bytes moved")]
    Short {
        /// How many.
        moved: u32,
    },
    /// The bytes read are not those written.
    #[error("the data is not what was written")]
    Data,
    /// The device is gone, or the connection to it.
    #[error("the device is gone, or the connection to it")]
    Gone,
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub token: u32,
    /// When it was seen to have ended.
    pub at: Nanos,
    /// How.
    pub result: Result<(), Failure>,
}

/// What an engine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is in flight.
    Idle,
    /// Nothing will end before this time.
    At(Nanos),
    /// Something may end at any time: poll, or [`Engine::wait`].
    Poll,
}

/// What an engine's own contexts have cost so far, apart from the thread that calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCost {
    /// CPU time of its own threads in nanoseconds.
    pub threads_ns: u64,
    /// Nanoseconds that it spun within calls (the calling thread's and its own threads').
    pub spin_ns: u64,
    /// [`Engine::device_ns`].
    pub device_ns: u64,
}

/// A device, for one thread.
///
/// Times are the caller's: an engine over real time that blocks or makes system calls
/// reads a clock of its own with the same origin for [`Done::at`], so that a completion
/// is not dated before the call that found it.
pub trait Engine {
    /// Operations that it holds at most.
    fn depth(&self) -> usize;

    /// Offers an operation.
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit;

    /// Adds what has ended to `done`; sends what was submitted. Does not wait.
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>);

    /// What it waits for, after a poll.
    fn next(&self) -> Next;

    /// Waits until something may have ended, or until `until`, or (always allowed) less; not at all where
    /// something has ended that no poll has handed on. An engine that is polled only pauses; one with
    /// interrupts sleeps.
    fn wait(&mut self, until: Option<Nanos>) {
        let _ = until;
        std::hint::spin_loop();
    }

    /// Whether [`Engine::submit`], [`Engine::poll`] or [`Engine::wait`] may block or sleep, so that a gap in
    /// the caller's readings of the clock is not the scheduler's doing.
    fn blocks(&self) -> bool {
        false
    }

    /// Nanoseconds that it has run the device itself on the calling thread.
    #[inline]
    fn device_ns(&self) -> u64 {
        0
    }

    /// What it has cost beyond the calling thread's own time.
    fn cost(&self) -> EngineCost {
        EngineCost::default()
    }
}

/// Sleeps until then, or a second, on real time: for engines with nothing in flight.
fn sleep(clock: &impl Clock, until: Option<Nanos>) {
    let ns = until.map_or(1_000_000_000, |until| until.since(clock.now()));
    std::thread::sleep(Duration::from_nanos(ns));
}

impl<E: Engine + ?Sized> Engine for Box<E> {
    fn depth(&self) -> usize {
        (**self).depth()
    }
    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        (**self).submit(io, now)
    }
    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        (**self).poll(now, done);
    }
    #[inline]
    fn next(&self) -> Next {
        (**self).next()
    }
    fn wait(&mut self, until: Option<Nanos>) {
        (**self).wait(until);
    }
    fn blocks(&self) -> bool {
        (**self).blocks()
    }
    fn device_ns(&self) -> u64 {
        (**self).device_ns()
    }
    fn cost(&self) -> EngineCost {
        (**self).cost()
    }
}
