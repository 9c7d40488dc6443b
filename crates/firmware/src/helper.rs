//! Two threads beside all reactors, for work of near-data commands that cannot be cut into slices: one for
//! what is done soon (compiling patterns), and one for what may take seconds (compiling programs).
//!
//! Each is started with its first job, at a low priority, and takes one job after the other. A job whose
//! command has gone is left out. The queues are short: where the one is full, the command waits for a place;
//! the other, which may be full for long, refuses it. Under a simulated clock nothing is handed here, so that
//! time stays simulated.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

/// Jobs that wait.
const MOST: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: VecDeque<(Weak<()>, Work)>,
    running: bool,
}

/// A thread and its jobs.
pub(crate) struct Helper {
    name: &'static str,
    /// Who finds it full is refused, and does not wait for a place.
    pub refuses: bool,
    queue: Mutex<Queue>,
    more: Condvar,
}

/// For what is done soon.
pub(crate) static SOON: Helper = Helper::new("near-data helper", false);
/// For what may take seconds.
pub(crate) static LONG: Helper = Helper::new("near-data compiler", true);

/// A job's outcome, to wait for. Dropped, the job is not begun any more.
pub(crate) struct Job<T> {
    outcome: Arc<Mutex<Option<std::thread::Result<T>>>>,
    _alive: Arc<()>,
    waiting: Arc<AtomicUsize>,
}

impl<T> Job<T> {
    /// What it came to, once.
    pub(crate) fn take(&self) -> Option<std::thread::Result<T>> {
        self.outcome.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work that is not taken.
pub(crate) enum Refused<F> {
    /// The queue is full.
    Full(F),
    /// There is no thread to be had.
    Alone(F),
}

impl Helper {
    const fn new(name: &'static str, refuses: bool) -> Helper {
        let queue = Mutex::new(Queue { jobs: VecDeque::new(), running: false });
        Helper { name, refuses, queue, more: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Hands work over; `awake` is set when it is done, and `waiting` counts who waits.
    pub(crate) fn submit<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &'static self,
        work: F,
        awake: &Arc<AtomicBool>,
        waiting: &Arc<AtomicUsize>,
    ) -> Result<Job<T>, Refused<F>> {
        let mut queue = self.queue();
        if queue.jobs.len() >= MOST {
            return Err(Refused::Full(work));
        }
        if !queue.running {
            let started = std::thread::Builder::new().name(self.name.to_owned()).spawn(|| self.run());
            if started.is_err() {
                return Err(Refused::Alone(work));
            }
            queue.running = true;
        }
        waiting.fetch_add(1, Ordering::Relaxed);
        let job = Job { outcome: Arc::default(), _alive: Arc::new(()), waiting: waiting.clone() };
        let (outcome, awake) = (job.outcome.clone(), awake.clone());
        let work = move || {
            // A panic is the command's, not the thread's.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            *outcome.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
            awake.store(true, Ordering::Release);
        };
        queue.jobs.push_back((Arc::downgrade(&job._alive), Box::new(work)));
        self.more.notify_one();
        Ok(job)
    }

    fn run(&self) {
        // Where the system does not allow it, at the priority of all.
        let _ = rustix::process::setpriority_process(None, 10);
        let mut jobs = self.queue();
        loop {
            let Some((alive, work)) = jobs.jobs.pop_front() else {
                jobs = self.more.wait(jobs).unwrap_or_else(|e| e.into_inner());
                continue;
            };
            drop(jobs);
            if alive.strong_count() > 0 {
                work();
            }
            jobs = self.queue();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_job_is_done_elsewhere_and_one_whose_command_has_gone_is_not() {
        let (awake, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (go, gate) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let hold = Duration::from_secs(60);
        let first = SOON.submit(move || gate.recv_timeout(hold).is_ok(), &awake, &waiting);
        let second = SOON.submit(|| panic!("must not run"), &awake, &waiting);
        let here = std::thread::current().id();
        let third = SOON.submit(
            move || {
                let there = std::thread::current().id();
                say.send(there != here).unwrap();
                7
            },
            &awake,
            &waiting,
        );
        // What the other thread does waits for none of them.
        let other = LONG.submit(move || 8, &awake, &waiting);
        let Ok(other) = other else { panic!("a place") };
        let done = (0..60_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            other.take()
        });
        assert_eq!(done.unwrap().unwrap(), 8);
        drop(other);
        let (Ok(first), Ok(second), Ok(third)) = (first, second, third) else { panic!("a place for each") };
        assert_eq!(waiting.load(Ordering::Relaxed), 3);
        assert!(first.take().is_none());
        let _: &Job<()> = &second;
        drop(second);
        go.send(()).unwrap();
        assert_eq!(said.recv_timeout(hold), Ok(true));
        let mut outcome = None;
        for _ in 0..60_000 {
            outcome = third.take();
            if outcome.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(outcome.unwrap().unwrap(), 7);
        assert!(first.take().unwrap().unwrap() && awake.load(Ordering::Relaxed));
        drop((first, third));
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }
}
