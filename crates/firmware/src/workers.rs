//! Threads of near-data work's own, off the I/O reactors: a host's I/O then never waits for it, and the
//! system gives them the cores that hosts leave.
//!
//! A thread runs lanes: an executor of a namespace each, with what was ordered of it. It steps them in turn,
//! spins shortly when there is nothing to do, then sleeps until somebody orders.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_device::firmware::Progress;
use nearside_dma::{Wakeup, cpu};

/// Threads at most, unless told otherwise.
const MOST: usize = 8;
/// How long a thread spins before it sleeps.
const SPIN_NS: u64 = 50_000;
/// How long it sleeps while the kernel works for it, which wakes nobody.
const LOOK_NS: u64 = 50_000;

/// What a thread steps.
pub(crate) trait Lane: Send {
    /// Runs a slice; `None`: it has come to its end.
    fn step(&mut self, now: Nanos) -> Option<Progress>;
    /// Whether nothing was ordered since the last step.
    fn is_quiet(&self) -> bool;
}

type Lanes = Vec<Box<dyn Lane>>;

/// Where lanes are given to threads.
pub(crate) struct WorkerPool {
    stop: AtomicBool,
    wakeup: Wakeup,
    /// For each thread those that it has not begun.
    given: Box<[Mutex<Lanes>]>,
}

impl WorkerPool {
    pub(crate) fn threads(&self) -> usize {
        self.given.len()
    }

    /// Whether the threads are about to go: they take nothing more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn wake(&self) {
        self.wakeup.wake();
    }

    fn given(&self, thread: usize) -> MutexGuard<'_, Lanes> {
        self.given[thread].lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn give(&self, thread: usize, lane: Box<dyn Lane>) {
        self.given(thread).push(lane);
        self.wakeup.wake();
    }
}

/// The threads, as a firmware gets them ([`crate::Fsr::on`]).
#[derive(Clone)]
pub struct WorkerHandle(pub(crate) Arc<WorkerPool>);

/// The threads. Dropped, it stops and joins them; commands that they run are then answered as aborted.
pub struct Workers {
    pool: Arc<WorkerPool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// How many threads near-data work gets on this machine unless told otherwise, beside `busy` threads that
    /// may take a core each: half of the cores, where those leave as many.
    pub fn usual(busy: usize) -> usize {
        of_cores(std::thread::available_parallelism().map_or(1, |n| n.get()), busy)
    }

    /// Starts so many threads. `None`: without any, near-data work runs on the reactors, between their I/O.
    ///
    /// # Errors
    /// The system's: it gives no thread.
    pub fn start(threads: usize, clock: impl Clock + Clone + 'static) -> io::Result<Option<Workers>> {
        Workers::start_as(threads, false, clock)
    }

    /// As [`Workers::start`], of a drive that has other hosts than who waits for that work: where there are
    /// fewer cores than threads that want one, a host's go first.
    ///
    /// # Errors
    /// Those of [`Workers::start`].
    pub fn behind_hosts(threads: usize, clock: impl Clock + Clone + 'static) -> io::Result<Option<Workers>> {
        Workers::start_as(threads, true, clock)
    }

    fn start_as(
        threads: usize,
        behind: bool,
        clock: impl Clock + Clone + 'static,
    ) -> io::Result<Option<Workers>> {
        if threads == 0 {
            return Ok(None);
        }
        let pool = Arc::new(WorkerPool {
            stop: AtomicBool::new(false),
            wakeup: Wakeup::for_sleepers(threads)?,
            given: (0..threads).map(|_| Mutex::default()).collect(),
        });
        let mut workers = Workers { pool: pool.clone(), threads: Vec::new() };
        for index in 0..threads {
            let (pool, clock) = (pool.clone(), clock.clone());
            let builder = std::thread::Builder::new().name(format!("near-data{index}"));
            workers.threads.push(builder.spawn(move || {
                if behind {
                    cpu::be_behind();
                }
                run(index, &pool, &clock, behind);
            })?);
        }
        Ok(Some(workers))
    }

    /// For the firmware of the namespaces whose work they do.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle(self.pool.clone())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool.stop.store(true, Ordering::SeqCst);
        self.pool.wakeup.wake();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread of near-data work panicked");
            }
        }
        // What was given to a thread that had stopped.
        (0..self.pool.threads()).for_each(|thread| self.pool.given(thread).clear());
    }
}

fn of_cores(cores: usize, busy: usize) -> usize {
    let half = cores / 2;
    if half < busy { 0 } else { half.min(MOST) }
}

fn run(index: usize, pool: &WorkerPool, clock: &impl Clock, behind: bool) {
    let mut lanes = Lanes::new();
    let mut last_work = clock.now();
    let look_again = if behind { std::thread::yield_now } else { std::hint::spin_loop };
    while !pool.is_stopped() {
        lanes.append(&mut pool.given(index));
        let now = clock.now();
        let (mut worked, mut next) = (false, None);
        lanes.retain_mut(|lane| {
            let Some(progress) = lane.step(clock.now()) else { return false };
            worked |= progress.worked;
            next = match (next, progress.next) {
                (Some(a), Some(b)) => Some(Nanos::min(a, b)),
                (a, b) => a.or(b),
            };
            true
        });
        if worked {
            last_work = now;
            if behind {
                // Who waits for this core has it now, and not when the scheduler's slice is over.
                std::thread::yield_now();
            }
            continue;
        }
        if now.since(last_work) < SPIN_NS {
            look_again();
            continue;
        }
        // A store that waits for the kernel says `now`: the kernel's interrupt wakes nobody here.
        let timeout = next.map(|next| Duration::from_nanos(next.since(now).max(LOOK_NS)));
        let quiet =
            || !pool.is_stopped() && pool.given(index).is_empty() && lanes.iter().all(|l| l.is_quiet());
        pool.wakeup.sleep_as(index, timeout, quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_data_work_has_half_of_the_cores_where_others_leave_as_many() {
        let of = |busy| [1, 2, 3, 4, 8, 64].map(|cores| of_cores(cores, busy));
        assert_eq!(of(1), [0, 1, 1, 2, 4, MOST]);
        assert_eq!(of(2), [0, 0, 0, 2, 4, MOST]);
    }
}
