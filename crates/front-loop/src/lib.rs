//! Drive and driver in one process: a controller whose function goes straight to a driver.
//!
//! Two runners. [`inline`] keeps drive and driver on one thread: the driver gives the drive turns while it waits (the
//! default for commands, and the only way on one CPU and on simulated time). [`threaded`] gives the drive threads of its
//! own. In both the queues, data and interrupts pass through shared memory, as for any other host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_device::runner::{self, Rest};
use nearside_device::{Config, Controller, Firmware, Namespace, Reactor, Step};
use nearside_dma::Function;
use nearside_driver::{Peer, Turn};
use nearside_store::Store;

/// A drive on the driver's thread.
pub struct Inline<S: Store, F: Firmware<S> = ()> {
    /// What a driver attaches to.
    pub function: Function,
    /// The drive's namespace: its store and its firmware.
    pub namespace: Arc<Namespace<S, F>>,
    /// Runs the drive; the driver's [`Peer`].
    pub runner: Runner<S, F>,
}

/// The inline drive's turns.
pub struct Runner<S: Store, F: Firmware<S> = ()> {
    inner: runner::Inline<S, F>,
}

/// A drive on threads of its own, which end when this is dropped. A driver's [`Peer`] is [`nearside_driver::Threaded`].
pub struct Threaded<S: Store, F: Firmware<S> = ()> {
    /// What a driver attaches to.
    pub function: Function,
    /// The drive's namespace: its store and its firmware.
    pub namespace: Arc<Namespace<S, F>>,
    /// The threads.
    pub runner: runner::Threaded,
}

/// A drive over a store with its firmware (`()`: none), to be run by whoever waits for it.
pub fn inline<S: Store, F: Firmware<S>>(store: S, firmware: F, config: Config) -> io::Result<Inline<S, F>> {
    let (controller, namespace) = Controller::alone(store, firmware, config)?;
    let function = controller.function.clone();
    Ok(Inline { function, namespace, runner: Runner { inner: runner::Inline::new(controller) } })
}

/// A drive over a store with its firmware, on a thread for each reactor.
pub fn threaded<S: Store, F: Firmware<S>>(
    store: S,
    firmware: F,
    config: Config,
    clock: impl Clock + Clone + 'static,
    rest: Rest,
) -> io::Result<Threaded<S, F>> {
    let (controller, namespace) = Controller::alone(store, firmware, config)?;
    let function = controller.function.clone();
    let runner = runner::Threaded::start(controller, clock, rest)?;
    Ok(Threaded { function, namespace, runner })
}

impl<S: Store, F: Firmware<S>> Runner<S, F> {
    /// Steps the drive once.
    #[inline]
    pub fn step(&mut self, now: Nanos) -> Step {
        self.inner.pump(now)
    }

    /// The drive's reactors.
    pub fn reactors(&self) -> &[Reactor<S, F>] {
        self.inner.reactors()
    }
}

impl<S: Store, F: Firmware<S>> Peer for Runner<S, F> {
    #[inline]
    fn pump(&mut self, now: Nanos) -> Turn {
        let step = self.inner.pump(now);
        if step.work > 0 { Turn::Worked } else { Turn::Idle { until: step.next } }
    }

    /// Sleeps until shortly before the time; a store that waits for the kernel says `now`, and is asked again at once.
    fn rest(&mut self, now: Nanos, until: Option<Nanos>) {
        /// What a timed sleep overshoots by.
        const EARLY_NS: u64 = 80_000;
        /// Without a known time, the thread looks again at least that often: what wakes the drive may wait on this very thread.
        const LOOK_NS: u64 = 1_000_000;
        match until.map_or(LOOK_NS, |until| until.since(now).saturating_sub(EARLY_NS)) {
            0 => std::hint::spin_loop(),
            ns => self.inner.sleep(Some(Duration::from_nanos(ns))),
        }
    }
}
