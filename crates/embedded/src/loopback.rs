//! Drive and driver in one process: a controller whose function goes straight to a driver.
//!
//! Two runners. [`Loopback::inline`] keeps drive and driver on one thread: the driver gives the drive turns
//! while it waits (the default for commands, and the only way on one CPU and on simulated time).
//! [`Loopback::threaded`] gives the drive threads of its own. In both the queues, data and interrupts pass
//! through shared memory, as for any other host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_device::runner::{self, Rest};
use nearside_device::{Config, Controller, Firmware, Namespace, Reactor, Step, Subsystem};
use nearside_dma::{Function, Wakeup};
use nearside_driver::{Driver, DriverConfig, Error, Host, Peer, Threaded, Turn};
use nearside_store::Store;

/// A drive in this process, with who runs it while a driver waits: a [`Runner`], or [`Threaded`] where it has
/// threads of its own, which end when this is dropped.
pub struct Loopback<S: Store, F: Firmware<S>, P> {
    /// What a driver attaches to.
    pub function: Function,
    /// The drive's namespace: its store and its firmware.
    pub namespace: Arc<Namespace<S, F>>,
    /// The driver's peer.
    pub peer: P,
    pub(crate) _threads: Option<runner::Threaded>,
}

impl<S: Store, F: Firmware<S>> Loopback<S, F, Runner<S, F>> {
    /// A drive over a store with its firmware (`()`: none), to be run by whoever waits for it.
    ///
    /// # Errors
    /// A setting that cannot be, or what the system or the store does not give.
    pub fn inline(store: S, firmware: F, config: Config) -> io::Result<Self> {
        let (controller, namespace) = Controller::alone(store, firmware, config)?;
        Ok(Self::turned(controller, namespace))
    }

    /// One more controller of a subsystem, for one of its namespaces: to be run by whoever waits for it.
    ///
    /// # Errors
    /// As [`Loopback::inline`].
    pub fn of(
        subsystem: &Arc<Subsystem<S, F>>,
        namespace: Arc<Namespace<S, F>>,
        config: Config,
    ) -> io::Result<Self> {
        let wakeup = Arc::new(Wakeup::for_sleepers(config.reactors)?);
        Ok(Self::turned(Controller::of(subsystem, config, wakeup)?, namespace))
    }

    fn turned(controller: Controller<S, F>, namespace: Arc<Namespace<S, F>>) -> Self {
        let function = controller.function.clone();
        let peer = Runner { inner: runner::Inline::new(controller) };
        Loopback { function, namespace, peer, _threads: None }
    }
}

impl<S: Store, F: Firmware<S>> Loopback<S, F, Threaded> {
    /// A drive over a store with its firmware, on a thread for each reactor.
    ///
    /// # Errors
    /// As [`Loopback::inline`], and threads that the system does not give.
    pub fn threaded(store: S, firmware: F, config: Config, rest: Rest) -> io::Result<Self> {
        let (controller, namespace) = Controller::alone(store, firmware, config)?;
        let function = controller.function.clone();
        let threads = runner::Threaded::start(controller, TscClock::new(), rest)?;
        Ok(Loopback { function, namespace, peer: Threaded, _threads: Some(threads) })
    }
}

impl<S: Store, F: Firmware<S>, P> Loopback<S, F, P> {
    /// Puts something around the peer.
    pub fn map<Q>(self, around: impl FnOnce(P) -> Q) -> Loopback<S, F, Q> {
        let Loopback { function, namespace, peer, _threads } = self;
        Loopback { function, namespace, peer: around(peer), _threads }
    }
}

impl<S: Store, F: Firmware<S>, P: Peer> Loopback<S, F, P> {
    pub(crate) fn boxed(self) -> Loopback<S, F, Box<dyn Peer>>
    where
        P: 'static,
    {
        self.map(|peer| Box::new(peer) as Box<dyn Peer>)
    }

    /// Brings the drive up, as its host.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn driver(&mut self, config: DriverConfig, clock: &impl Clock) -> Result<Driver, Error> {
        Driver::start(self.function.clone(), config, &mut Host::new(clock, &mut self.peer))
    }

    /// What a driver's waits need.
    pub fn host<C>(&mut self, clock: C) -> Host<C, &mut P> {
        Host::new(clock, &mut self.peer)
    }
}

/// The inline drive's turns.
pub struct Runner<S: Store, F: Firmware<S> = ()> {
    inner: runner::Inline<S, F>,
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
        if step.work > 0 {
            return Turn::Worked;
        }
        if step.beside {
            // The caller's own command waits for a thread of a low priority: where all cores are busy, it
            // would get a tenth of one beside a caller that spins.
            std::thread::yield_now();
        }
        Turn::Idle { until: step.next }
    }

    /// Sleeps until shortly before the time; a store that waits for the kernel says `now`, and is asked again
    /// at once.
    fn rest(&mut self, now: Nanos, until: Option<Nanos>) {
        /// What a timed sleep overshoots by.
        const EARLY_NS: u64 = 80_000;
        /// Without a known time, the thread looks again at least that often: what wakes the drive may wait on
        /// this very thread.
        const LOOK_NS: u64 = 1_000_000;
        match until.map_or(LOOK_NS, |until| until.since(now).saturating_sub(EARLY_NS)) {
            0 => std::hint::spin_loop(),
            ns => self.inner.sleep(Some(Duration::from_nanos(ns))),
        }
    }
}
