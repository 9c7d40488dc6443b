//! The asynchronous path's other contexts (FAST'12, section 2): a thread that submits what callers queue, and
//! that the interrupt wakes to reap completions and to wake the callers.
//!
//! A request passes so: the caller puts it into the request queue and rings; the service thread takes it and
//! submits it on the queue pair that it owns (the submission context); the drive raises the vector; the
//! service thread wakes (the handler context), reaps, puts the completion into the caller's mailbox and wakes
//! the caller. As in the paper's driver, submission and completion run in the same context, distinct from the
//! caller's. It never spins: with nothing to do it arms the interrupt and sleeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::Wakeup;
use nearside_dma::cpu::CpuClock;

use crate::{
    Command, Completed, Controller, DmaBuffer, Driver, Error, Failure, Host, QueueConfig, QueuePair,
    Threaded, Transport,
};

/// The longest that a sleeper goes without looking whether the controller was stopped behind its back.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Where a caller's completions arrive.
pub(crate) struct Mailbox<B> {
    arrived: Mutex<VecDeque<Completed<B>>>,
    wake: Condvar,
}

impl<B> Default for Mailbox<B> {
    fn default() -> Self {
        Mailbox { arrived: Mutex::default(), wake: Condvar::new() }
    }
}

impl<B> Mailbox<B> {
    fn put(&self, done: Completed<B>) {
        lock(&self.arrived).push_back(done);
        self.wake.notify_one();
    }

    /// Takes one without waiting.
    pub(crate) fn take(&self) -> Option<Completed<B>> {
        lock(&self.arrived).pop_front()
    }

    /// Sleeps until there is one or the time is over.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Completed<B>> {
        let guard = lock(&self.arrived);
        let (mut guard, _) = self
            .wake
            .wait_timeout_while(guard, timeout, |q| q.is_empty())
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        guard.pop_front()
    }
}

struct Request<B> {
    command: Command,
    buffer: Option<B>,
    cookie: u64,
    submitted: Nanos,
    mailbox: Arc<Mailbox<B>>,
}

struct ServiceShared<B> {
    requests: Mutex<VecDeque<Request<B>>>,
    wake: Wakeup,
    stop: AtomicBool,
    /// Once set, no request will be taken any more.
    closed: AtomicBool,
    wakes: AtomicU64,
    completed: AtomicU64,
}

/// What the service did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Times that it slept and woke.
    pub wakes: u64,
    /// Completions that it handed on.
    pub completed: u64,
}

/// A running service: one thread with one queue pair.
/// Callers of any number share it by its [`ServiceHandle`]s.
pub struct Service {
    inner: Arc<ServiceShared<DmaBuffer>>,
    thread: Option<JoinHandle<()>>,
    cpu: CpuClock,
}

/// A caller's way to a service.
pub struct ServiceHandle<B = DmaBuffer> {
    inner: Arc<ServiceShared<B>>,
}

impl<B> Clone for ServiceHandle<B> {
    fn clone(&self) -> Self {
        ServiceHandle { inner: self.inner.clone() }
    }
}

impl Service {
    /// Starts the thread, with a queue pair of its own that has an interrupt. `at_start` runs first on it (to
    /// name or pin it). The drive must run on threads of its own.
    ///
    /// # Errors
    /// [`Error`]: what could not be had, or did not come up.
    pub fn start<C: Clock + Clone + 'static>(
        driver: &Driver,
        depth: u16,
        clock: C,
        at_start: impl FnOnce() + Send + 'static,
    ) -> Result<Service, Error> {
        let system = |source| Error::System { what: "the asynchronous path", source };
        let mut host = Host::threaded(clock);
        let queue = driver.queue(QueueConfig { depth, interrupt: true }, &mut host)?;
        if queue.vector().is_none() {
            driver.delete(queue, &mut host, drop)?;
            return Err(Error::Unsupported("it has too few interrupt vectors for the asynchronous path"));
        }
        let inner = Arc::new(ServiceShared {
            requests: Mutex::default(),
            wake: Wakeup::new().map_err(system)?,
            stop: false.into(),
            closed: false.into(),
            wakes: 0.into(),
            completed: 0.into(),
        });
        let context = Context { inner: inner.clone(), queue, driver: driver.clone(), host, out: Vec::new() };
        let thread = std::thread::Builder::new()
            .name("nearside-async".into())
            .spawn(move || {
                at_start();
                context.run();
            })
            .map_err(system)?;
        let cpu = CpuClock::of(&thread).map_err(system)?;
        Ok(Service { inner, thread: Some(thread), cpu })
    }

    /// A way in.
    pub fn handle(&self) -> ServiceHandle {
        ServiceHandle { inner: self.inner.clone() }
    }

    /// What it did so far.
    pub fn counts(&self) -> ServiceCounts {
        ServiceCounts {
            wakes: self.inner.wakes.load(Ordering::Relaxed),
            completed: self.inner.completed.load(Ordering::Relaxed),
        }
    }

    /// CPU time of the thread so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu.now_ns().unwrap_or(0)
    }
}

impl Drop for Service {
    /// Waits for the commands that are out, and deletes the queue pair.
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<B> ServiceHandle<B> {
    /// Queues a request; the completion arrives in `mailbox`.
    /// Gives the buffer back where the service has ended.
    pub(crate) fn send(
        &self,
        command: &Command,
        buffer: Option<B>,
        cookie: u64,
        submitted: Nanos,
        mailbox: &Arc<Mailbox<B>>,
    ) -> Result<(), Option<B>> {
        let mut requests = lock(&self.inner.requests);
        if self.inner.closed.load(Ordering::Relaxed) {
            return Err(buffer);
        }
        requests.push_back(Request {
            command: *command,
            buffer,
            cookie,
            submitted,
            mailbox: mailbox.clone(),
        });
        drop(requests);
        self.inner.wake.wake();
        Ok(())
    }
}

struct Context<C> {
    inner: Arc<ServiceShared<DmaBuffer>>,
    queue: QueuePair,
    driver: Driver,
    host: Host<C, Threaded>,
    /// By the queue pair's cookie: whose it is.
    out: Vec<Option<(Arc<Mailbox<DmaBuffer>>, u64)>>,
}

impl<C: Clock> Context<C> {
    fn run(mut self) {
        let mut backlog: VecDeque<Request<DmaBuffer>> = VecDeque::new();
        loop {
            backlog.append(&mut lock(&self.inner.requests));
            let mut worked = self.submit(&mut backlog);
            worked |= self.reap();
            if worked {
                continue;
            }
            if self.inner.stop.load(Ordering::Acquire) && self.queue.outstanding() == 0 && backlog.is_empty()
            {
                let requests = lock(&self.inner.requests);
                if requests.is_empty() {
                    // Under the lock that `send` takes: nothing can be queued after this.
                    self.inner.closed.store(true, Ordering::Relaxed);
                    break;
                }
                continue;
            }
            self.sleep();
        }
        let _ = self.driver.delete(self.queue, &mut self.host, drop);
    }

    /// The submission context.
    fn submit(&mut self, backlog: &mut VecDeque<Request<DmaBuffer>>) -> bool {
        let mut any = false;
        while self.queue.outstanding() < self.queue.depth() || !self.queue.is_alive() {
            let Some(request) = backlog.pop_front() else { break };
            any = true;
            let at = self.out.iter().position(Option::is_none).unwrap_or(self.out.len());
            let sent = self.queue.submit(&request.command, request.buffer, at as u64, request.submitted);
            match sent {
                Ok(()) => {
                    let whose = Some((request.mailbox, request.cookie));
                    match self.out.get_mut(at) {
                        Some(place) => *place = whose,
                        None => self.out.push(whose),
                    }
                }
                Err(rejected) => request.mailbox.put(Completed {
                    cookie: request.cookie,
                    outcome: Err(Failure::Reset),
                    buffer: rejected.buffer,
                    moved: 0,
                    submitted: request.submitted,
                }),
            }
        }
        self.queue.ring();
        any
    }

    /// The handler context.
    fn reap(&mut self) -> bool {
        let (out, inner) = (&mut self.out, &self.inner);
        let mut hand_on = |done: Completed<DmaBuffer>| {
            if let Some((mailbox, cookie)) = out.get_mut(done.cookie as usize).and_then(Option::take) {
                inner.completed.fetch_add(1, Ordering::Relaxed);
                mailbox.put(Completed { cookie, ..done });
            }
        };
        match self.queue.poll(self.host.clock.now(), &mut hand_on) {
            Ok(0) => false,
            Ok(_) => {
                self.queue.settle();
                true
            }
            Err(_) => {
                self.driver.rescue(&mut self.queue, &mut self.host, &mut hand_on);
                true
            }
        }
    }

    fn sleep(&mut self) {
        let timeout = match self.queue.deadline() {
            Some(at) => (at - self.host.clock.now()).min(LOOK),
            None => Duration::from_secs(3600),
        };
        let Some(vector) = self.queue.vector() else { return std::thread::sleep(LOOK) };
        vector.unmask();
        self.inner.wake.arm();
        let idle = !self.queue.is_ready()
            && lock(&self.inner.requests).is_empty()
            && !(self.inner.stop.load(Ordering::Acquire) && self.queue.outstanding() == 0);
        if idle {
            vector.event().wait_either(self.inner.wake.event(), Some(timeout));
            self.inner.wakes.fetch_add(1, Ordering::Relaxed);
        }
        vector.mask();
        self.inner.wake.disarm();
        vector.event().take();
        self.inner.wake.event().take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
