//! Runners: the thin part that spins, sleeps and owns threads. [`Inline`] runs all reactors on the caller's
//! thread, between the caller's own work; [`Threaded`] gives each reactor a thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::Wakeup;
use nearside_store::Store;

use crate::controller::Controller;
use crate::firmware::{Firmware, Turn};
use crate::reactor::{Reactor, Step};

/// Drive and host on one thread.
pub struct Inline<S: Store, F: Firmware<S> = ()> {
    reactors: Vec<Reactor<S, F>>,
    wakeup: Arc<Wakeup>,
    /// The reactor whose near-data work has the first claim on the next slice.
    first: usize,
}

impl<S: Store, F: Firmware<S>> Inline<S, F> {
    /// Runs a controller's reactors.
    pub fn new(controller: Controller<S, F>) -> Inline<S, F> {
        Inline { reactors: controller.reactors, wakeup: controller.function.wakeup, first: 0 }
    }

    /// Steps every reactor once.
    #[inline]
    pub fn pump(&mut self, now: Nanos) -> Step {
        if let [reactor] = &mut self.reactors[..] {
            return reactor.step(now);
        }
        let (mut all, mut turn) = (Step::default(), Turn::new());
        let (before, from) = self.reactors.split_at_mut(self.first);
        let mut spent = None;
        for (at, reactor) in from.iter_mut().chain(before).enumerate() {
            all.merge(reactor.step_in(now, &mut turn));
            if turn.is_spent() && spent.is_none() {
                spent = Some(at);
            }
        }
        if let Some(at) = spent {
            self.first = (self.first + at + 1) % self.reactors.len();
        }
        all
    }

    /// The reactors.
    pub fn reactors(&self) -> &[Reactor<S, F>] {
        &self.reactors
    }

    /// Sleeps until the drive is rung, or until `timeout` is over: for a thread that has nothing else to do
    /// either.
    pub fn sleep(&self, timeout: Option<Duration>) {
        let reactors = &self.reactors;
        self.wakeup.sleep(timeout, || reactors.iter().all(Reactor::is_quiet));
    }
}

/// When a thread of [`Threaded`] rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Nanoseconds without work after which a reactor sleeps instead of spinning.
    pub idle_ns: u64,
    /// How long before a deadline it wakes up and spins: what a timed sleep overshoots by.
    pub early_ns: u64,
}

impl Default for Rest {
    fn default() -> Rest {
        Rest { idle_ns: 100_000, early_ns: 80_000 }
    }
}

/// A thread for each reactor. Dropped, it stops and joins them.
#[derive(Debug)]
pub struct Threaded {
    stop: Arc<AtomicBool>,
    wakeup: Arc<Wakeup>,
    threads: Vec<JoinHandle<()>>,
}

impl Threaded {
    /// Starts a controller's reactors. Commands are served until this is dropped.
    ///
    /// # Errors
    /// The system's: it gives no thread. Those already started are stopped.
    pub fn start<S: Store, F: Firmware<S>>(
        controller: Controller<S, F>,
        clock: impl Clock + Clone + 'static,
        rest: Rest,
    ) -> io::Result<Threaded> {
        let wakeup = controller.function.wakeup;
        let mut runner = Threaded { stop: Arc::default(), wakeup: wakeup.clone(), threads: Vec::new() };
        for (index, reactor) in controller.reactors.into_iter().enumerate() {
            let (stop, wakeup, clock) = (runner.stop.clone(), wakeup.clone(), clock.clone());
            let thread = std::thread::Builder::new()
                .name(format!("reactor{index}"))
                .spawn(move || run(reactor, index, &stop, &wakeup, &clock, rest))?;
            runner.threads.push(thread);
        }
        Ok(runner)
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        // A wake-up after the store: a reactor that sleeps sees `stop` when it wakes, one that is about to
        // sleep sees it before.
        self.stop.store(true, Ordering::SeqCst);
        self.wakeup.wake();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a reactor panicked");
            }
        }
    }
}

/// Nanoseconds without work after which a reactor lets others of its core go first at each look: where host
/// and drive share one, the host could not ring until the reactor sleeps. Where nobody wants the core, it is
/// a short system call.
const YIELD_AFTER_NS: u64 = 5_000;

fn run<S: Store, F: Firmware<S>>(
    mut reactor: Reactor<S, F>,
    index: usize,
    stop: &AtomicBool,
    wakeup: &Wakeup,
    clock: &impl Clock,
    rest: Rest,
) {
    let mut last_work = clock.now();
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let step = reactor.step(now);
        if step.work > 0 {
            last_work = now;
            continue;
        }
        let spare = step.next.map(|next| next.since(now).saturating_sub(rest.early_ns));
        match spare {
            Some(0) => std::hint::spin_loop(),
            _ if now.since(last_work) < YIELD_AFTER_NS => std::hint::spin_loop(),
            _ if now.since(last_work) < rest.idle_ns => std::thread::yield_now(),
            spare => {
                let nothing = || reactor.is_quiet() && !stop.load(Ordering::SeqCst);
                wakeup.sleep_as(index, spare.map(Duration::from_nanos), nothing);
                // A look at everything follows, and what it finds counts as work; if nothing, sleep again.
            }
        }
    }
}
