//! Threads beside all reactors, for work of near-data commands that cannot be cut into slices: one for what
//! is done soon (compiling patterns), and two or more for what may take seconds (compiling programs, matching
//! rules).
//!
//! Each is started when there is work for it, at a low priority, and takes one job after the other. Who has
//! had least of their time is next ([`Turns`]), and no host has the last of several, so that one whose work
//! takes long delays its own. A job whose command has gone is left out. What waits is bounded by the commands
//! that hosts may have. Under a simulated clock nothing is handed here, so that time stays simulated.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use nearside_device::turns::Turns;
use nearside_dma::cpu::{self, thread_work_ns};

/// Jobs that wait before those whose commands have gone are looked for.
const MANY: usize = 64;

/// Says what it cost. Nobody wants it any more where what is beside it has gone.
type Work = (Weak<()>, Box<dyn FnOnce() -> u64 + Send>);

struct Queue {
    /// By hosts' names: an identifier is what anybody says.
    turns: Turns<Arc<str>, Work>,
    /// Whose jobs are being done.
    running: Vec<Arc<str>>,
    threads: usize,
    idle: usize,
    /// So many that wait are looked through.
    many: usize,
}

/// Threads and their jobs.
pub(crate) struct Helper {
    name: &'static str,
    /// How many threads there are at most.
    most: fn() -> usize,
    queue: Mutex<Queue>,
    more: Condvar,
}

/// For what is done soon.
pub(crate) static SOON: Helper = Helper::new("near-data helper", || 1);
/// For what may take seconds.
pub(crate) static LONG: Helper = Helper::new("near-data long", || {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
});

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

impl Helper {
    const fn new(name: &'static str, most: fn() -> usize) -> Helper {
        Helper { name, most, queue: Mutex::new(Queue::new()), more: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Hands a host's work over; `bill` is told what it cost, `awake` is set when it is done, and `waiting`
    /// counts who waits. Where there is no thread to be had it is given back.
    pub(crate) fn submit<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &'static self,
        host: &Arc<str>,
        work: F,
        bill: impl FnOnce(u64) + Send + 'static,
        (awake, waiting): (&Arc<AtomicBool>, &Arc<AtomicUsize>),
    ) -> Result<Job<T>, F> {
        let mut queue = self.lock();
        // Those that are idle still may be about to begin with what waits.
        if queue.idle <= queue.turns.len() && queue.threads < (self.most)() {
            let started = std::thread::Builder::new().name(self.name.to_owned()).spawn(|| self.run());
            if started.is_err() && queue.threads == 0 {
                return Err(work);
            }
            queue.threads += usize::from(started.is_ok());
        }
        waiting.fetch_add(1, Ordering::Relaxed);
        let job = Job { outcome: Arc::default(), _alive: Arc::new(()), waiting: waiting.clone() };
        let (outcome, awake) = (job.outcome.clone(), awake.clone());
        let work = move || {
            let before = thread_work_ns();
            // A panic is the command's, not the thread's.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let cost = thread_work_ns().saturating_sub(before);
            bill(cost);
            *outcome.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
            awake.store(true, Ordering::Release);
            cost
        };
        let unwanted = queue.push(host, (Arc::downgrade(&job._alive), Box::new(work)));
        self.more.notify_one();
        drop(queue);
        drop(unwanted);
        Ok(job)
    }

    fn run(&self) {
        cpu::be_behind();
        let share = (self.most)().saturating_sub(1).max(1);
        let mut queue = self.lock();
        loop {
            let Some((host, (alive, work))) = queue.next(share) else {
                queue.idle += 1;
                queue = self.more.wait(queue).unwrap_or_else(|e| e.into_inner());
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            let cost = if alive.strong_count() > 0 {
                work()
            } else {
                // Its memory is given back while nobody waits for the lock.
                drop(work);
                0
            };
            queue = self.lock();
            queue.ended(&host, cost);
        }
    }
}

impl Queue {
    const fn new() -> Queue {
        Queue { turns: Turns::new(), running: Vec::new(), threads: 0, idle: 0, many: MANY }
    }

    /// What is not wanted any more, where there was much of it, is given back without the lock.
    fn push(&mut self, host: &Arc<str>, work: Work) -> Vec<Work> {
        let mut unwanted = Vec::new();
        if self.turns.len() >= self.many {
            unwanted = self.turns.take_unwanted(|(alive, _)| alive.strong_count() > 0);
            self.many = MANY.max(2 * self.turns.len());
        }
        self.turns.push(host, work);
        unwanted
    }

    /// The next job, of a host of which fewer than its share are being done.
    fn next(&mut self, share: usize) -> Option<(Arc<str>, Work)> {
        let running = &self.running;
        let may = |host: &Arc<str>| running.iter().filter(|other| *other == host).count() < share;
        let (host, work) = self.turns.pop(may)?;
        self.running.push(host.clone());
        Some((host, work))
    }

    fn ended(&mut self, host: &Arc<str>, cost: u64) {
        if let Some(at) = self.running.iter().position(|other| other == host) {
            self.running.swap_remove(at);
        }
        self.turns.cost(host, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// What a job comes to, once it is done.
    fn end<T>(job: &Job<T>) -> T {
        let done = (0..60_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            job.take()
        });
        done.expect("it ends").unwrap()
    }

    /// A job of a host's.
    fn hand<T: Send + 'static>(
        helper: &'static Helper,
        host: &Arc<str>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Job<T> {
        let Ok(job) = helper.submit(host, work, drop, (&Arc::default(), &Arc::default())) else {
            panic!("a thread")
        };
        job
    }

    /// As long as the other end of it is there.
    fn hold() -> (mpsc::Sender<()>, impl FnOnce() + Send) {
        let (go, gate) = mpsc::channel::<()>();
        (go, move || _ = gate.recv_timeout(Duration::from_secs(60)))
    }

    #[test]
    fn a_host_whose_work_takes_long_delays_its_own() {
        let helper: &'static Helper = Box::leak(Box::new(Helper::new("test", || 3)));
        let (one, other) = (Arc::<str>::from("one"), Arc::<str>::from("other"));
        // Two of its jobs are done at a time, the third waits; the other's is done.
        let (holds, works): (Vec<_>, Vec<_>) = (0..3).map(|_| hold()).unzip();
        let jobs: Vec<Job<()>> = works.into_iter().map(|work| hand(helper, &one, work)).collect();
        assert_eq!(end(&hand(helper, &other, || 7)), 7);
        let queue = helper.lock();
        assert_eq!((queue.running.iter().filter(|host| **host == one).count(), queue.turns.len()), (2, 1));
        drop(queue);
        assert!(jobs.iter().all(|job| job.take().is_none()));
        drop(holds);
        jobs.iter().for_each(end);
    }

    #[test]
    fn who_has_had_least_time_is_next_and_what_is_not_wanted_is_forgotten() {
        let helper: &'static Helper = Box::leak(Box::new(Helper::new("test", || 1)));
        let (one, other) = (Arc::<str>::from("one"), Arc::<str>::from("other"));
        let (said, order) = mpsc::channel();
        let (go, wait) = hold();
        let said_by = |number: u32| {
            let said = said.clone();
            move || said.send(number).unwrap()
        };
        let until = Duration::from_millis(50).as_nanos() as u64;
        let burn = move || {
            wait();
            let begin = thread_work_ns();
            while thread_work_ns() < begin + until {}
        };
        let mut jobs = vec![hand(helper, &one, burn)];
        while helper.lock().running.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        jobs.extend((0..3).map(|number| hand(helper, &one, said_by(number))));
        jobs.extend((10..13).map(|number| hand(helper, &other, said_by(number))));
        // So much comes and goes without having been begun that it is looked through.
        (0..10 * MANY).for_each(|_| drop(hand(helper, &other, || panic!("must not run"))));
        assert!(helper.lock().turns.len() <= MANY);
        drop(go);
        jobs.iter().for_each(end);
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [10, 11, 12, 0, 1, 2]);
    }

    #[test]
    fn a_job_is_done_elsewhere_and_one_whose_command_has_gone_is_not() {
        let (awake, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (host, (go, wait)) = (Arc::<str>::from("host"), hold());
        let first = SOON.submit(&host, wait, drop, (&awake, &waiting));
        let second = SOON.submit(&host, || panic!("must not run"), drop, (&awake, &waiting));
        let here = std::thread::current().id();
        let third = SOON.submit(&host, move || std::thread::current().id() != here, drop, (&awake, &waiting));
        // What the other threads do waits for none of them.
        assert_eq!(end(&hand(&LONG, &host, || 8)), 8);
        let (Ok(first), Ok(second), Ok(third)) = (first, second, third) else { panic!("a thread") };
        assert_eq!(waiting.load(Ordering::Relaxed), 3);
        assert!(first.take().is_none());
        let _: &Job<()> = &second;
        drop(second);
        drop(go);
        assert!(end(&third));
        end(&first);
        assert!(awake.load(Ordering::Relaxed));
        drop((first, third));
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }
}
