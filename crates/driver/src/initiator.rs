//! One thread's door to a drive: submit now, wait or poll later, over whichever completion path the policy chooses.
//!
//! A command passes so: [`Initiator::submit`] asks the [`History`] for a plan. On the synchronous path the caller's own queue pair takes
//! the command and rings; [`Initiator::wait`] spins on the completion queue, with a sleep before where the plan has one, and after the
//! spin budget arms the interrupt and sleeps. On the asynchronous path the request goes to the [`Service`](crate::Service) and
//! the caller sleeps until it is woken.
//!
//! Where no service is attached (drive and driver on one thread: there is no other context to hand a request to) the
//! asynchronous path's waits end by the interrupt on the caller's own queue pair.

use std::sync::Arc;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::{WaitKind, rest};

use crate::policy::{Expectation, FOREVER, History, Path, Plan, Policy, Slept};
use crate::service::{LOOK, Mailbox};
use crate::{
    Command, Completed, DmaBuffer, Driver, Error, Failure, Kind, Peer, QueueConfig, QueuePair, RejectReason,
    Rejected, ServiceHandle, Turn,
};

/// The name of a command that was submitted and not yet taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the command's buffer comes back only through its handle"]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// What a command is called on its queue.
fn cookie(handle: Handle) -> u64 {
    u64::from(handle.index) | u64::from(handle.generation) << 32
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// Dwords 0 and 1 of the completion, or the failure.
    pub outcome: Result<u64, Failure>,
    /// The buffer.
    pub buffer: Option<DmaBuffer>,
    /// From submission until the completion was seen, in nanoseconds.
    pub latency_ns: u64,
    /// Which way it went.
    pub path: Path,
}

/// What waiting cost, apart from all other work. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Commands that ended on the synchronous path.
    pub synchronous: u64,
    /// Commands that ended on the asynchronous path.
    pub asynchronous: u64,
    /// Spent spinning for completions: FAST'12's "spinning I/O wait", which the system's figures count as user time.
    pub spin_ns: u64,
    /// Spent asleep (no CPU time).
    pub sleep_ns: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Commands that outlasted their spin budget.
    pub stalls: u64,
    /// Spent running the drive, where it runs on this thread.
    pub drive_ns: u64,
}

/// Which completion model holds (FAST'12, section 4, asks for such a query).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionModel {
    /// The policy in force.
    pub policy: Policy,
    /// Whether the asynchronous path has its own contexts.
    pub service: bool,
    /// How this CPU waits while spinning.
    pub wait: WaitKind,
    /// What a wake-up from sleep costs in response time, in nanoseconds, as learned.
    pub wake_ns: u64,
}

/// What an initiator is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct InitiatorConfig {
    /// Its queue pair.
    pub queue: QueueConfig,
    /// The policy to begin with.
    pub policy: Policy,
}

/// How long to wait: until the command has ended, more commands than `ended` have, or the time has come.
#[derive(Clone, Copy)]
struct Until {
    handle: Handle,
    ended: u64,
    at: Nanos,
}

enum State {
    Free,
    Out { kind: Kind, bytes: usize, plan: Plan, served: bool, submitted: Nanos },
    Done(Finished),
}

struct Entry {
    generation: u32,
    state: State,
}

/// See the module.
pub struct Initiator<P, C> {
    driver: Driver,
    queue: QueuePair,
    service: Option<ServiceHandle>,
    peer: P,
    clock: C,
    policy: Policy,
    history: History,
    entries: Vec<Entry>,
    free: Vec<u32>,
    mailbox: Arc<Mailbox>,
    account: Account,
    wait: WaitKind,
    /// Commands that have ended, ever.
    ended: u64,
}

impl<P: Peer, C: Clock> Initiator<P, C> {
    /// With a queue pair of its own. `peer` runs the drive where it runs on this thread ([`crate::Threaded`] otherwise);
    /// `service` is the asynchronous path.
    pub fn new(
        driver: &Driver,
        config: InitiatorConfig,
        clock: C,
        mut peer: P,
        service: Option<ServiceHandle>,
    ) -> Result<Self, Error> {
        let queue = driver.queue(config.queue, &clock, &mut peer)?;
        let depth = queue.depth() as u32;
        Ok(Initiator {
            driver: driver.clone(),
            queue,
            service,
            peer,
            clock,
            policy: config.policy,
            history: History::default(),
            entries: (0..depth).map(|_| Entry { generation: 0, state: State::Free }).collect(),
            free: (0..depth).rev().collect(),
            mailbox: Arc::default(),
            account: Account::default(),
            wait: WaitKind::detect(),
            ended: 0,
        })
    }

    /// The controller.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The peer.
    pub fn peer(&mut self) -> &mut P {
        &mut self.peer
    }

    /// A buffer of the driver's pool.
    pub fn buffer(&self, len: usize) -> Result<DmaBuffer, Error> {
        self.driver.pool().take(len)
    }

    /// Commands that can be out at a time.
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Switches the policy. Commands that are out end as they were planned.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What waiting has cost so far.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Which completion model holds.
    pub fn completion_model(&self) -> CompletionModel {
        CompletionModel {
            policy: self.policy,
            service: self.service.is_some(),
            wait: self.wait,
            wake_ns: self.history.wake_ns(),
        }
    }

    /// What to expect of a command.
    pub fn expectation(&self, kind: Kind, bytes: usize) -> Expectation {
        self.history.expectation(self.policy, kind, bytes, self.clock.now())
    }

    /// Sends a command and returns at once. The buffer comes back through the handle.
    pub fn submit(&mut self, command: &Command, buffer: Option<DmaBuffer>) -> Result<Handle, Rejected> {
        let Some(&index) = self.free.last() else {
            return Err(Rejected { buffer, reason: RejectReason::Full });
        };
        let now = self.clock.now();
        let bytes = buffer.as_ref().map_or(0, DmaBuffer::len);
        let plan = self.history.decide(self.policy, command.kind, bytes, now);
        let entry = &self.entries[index as usize];
        let handle = Handle { index, generation: entry.generation };
        let cookie = cookie(handle);
        let served = match &self.service {
            Some(service) if plan.path == Path::Asynchronous => {
                if buffer.as_ref().is_some_and(|b| b.len() > self.driver.max_transfer()) {
                    return Err(Rejected { buffer, reason: RejectReason::Buffer });
                }
                service
                    .send(command, buffer, cookie, now, &self.mailbox)
                    .map_err(|buffer| Rejected { buffer, reason: RejectReason::Dead })?;
                true
            }
            _ => {
                self.queue.submit(command, buffer, cookie, now)?;
                self.queue.ring();
                false
            }
        };
        self.free.pop();
        self.entries[index as usize].state =
            State::Out { kind: command.kind, bytes, plan, served, submitted: now };
        Ok(handle)
    }

    /// Submits and waits.
    pub fn execute(&mut self, command: &Command, buffer: Option<DmaBuffer>) -> Result<Finished, Rejected> {
        let handle = self.submit(command, buffer)?;
        Ok(self.wait(handle))
    }

    /// Takes the command back if it has ended; looks at the queues once, without waiting.
    pub fn poll(&mut self, handle: Handle) -> Option<Finished> {
        if let Some(done) = self.take(handle) {
            return Some(done);
        }
        let now = self.clock.now();
        self.pump(now);
        self.collect(false);
        self.take(handle)
    }

    /// Takes the command back if it is known to have ended; looks nowhere.
    pub fn taken(&mut self, handle: Handle) -> Option<Finished> {
        self.take(handle)
    }

    /// Waits for a command and takes it back. Panics on a handle of another initiator, or one taken already.
    pub fn wait(&mut self, handle: Handle) -> Finished {
        loop {
            if let Some(done) = self.take(handle) {
                return done;
            }
            self.wait_for(handle, Until { handle, ended: u64::MAX, at: Nanos(u64::MAX) });
        }
    }

    /// Waits, as a command's plan says, until that or any other has ended, or until `at`, or (always allowed) less. For a caller who has
    /// more to do than to wait.
    pub fn wait_any(&mut self, handle: Handle, at: Nanos) {
        self.wait_for(handle, Until { handle, ended: self.ended, at });
    }

    fn wait_for(&mut self, handle: Handle, until: Until) {
        match &self.entries[handle.index as usize].state {
            State::Out { served: true, .. } => self.wait_served(until),
            State::Out { plan, submitted, .. } => {
                let (plan, submitted) = (*plan, *submitted);
                self.wait_own(until, plan, submitted);
            }
            _ => {}
        }
    }

    /// Asks the controller to end a command that is out (Abort). It is answered by its own completion, and soon where this says true; where
    /// not, the controller has not fetched it yet, has answered it already, or does not abort such: ask again if it does not end.
    /// Commands of the asynchronous path's service are not aborted.
    pub fn abort(&mut self, handle: Handle) -> Result<bool, Error> {
        let entry = &self.entries[handle.index as usize];
        let (true, State::Out { served: false, .. }) = (entry.generation == handle.generation, &entry.state)
        else {
            return Ok(false);
        };
        match self.queue.cid(cookie(handle)) {
            Some(cid) => self.driver.abort(self.queue.id(), cid, &self.clock, &mut self.peer),
            None => Ok(false),
        }
    }

    /// Ends the queue pair. Commands that are out are ended; their buffers go back to the pool.
    pub fn close(mut self) -> Result<(), Error> {
        self.driver.delete(self.queue, &self.clock, &mut self.peer, drop)
    }

    fn take(&mut self, handle: Handle) -> Option<Finished> {
        let entry = &mut self.entries[handle.index as usize];
        assert_eq!(entry.generation, handle.generation, "a handle that was taken already");
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Done(finished) => {
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(handle.index);
                Some(finished)
            }
            State::Free => panic!("a handle of another initiator"),
            out => {
                entry.state = out;
                None
            }
        }
    }

    /// One turn for the drive, booked.
    fn pump(&mut self, now: Nanos) -> Turn {
        let turn = self.peer.pump(now);
        if turn == Turn::Worked {
            self.account.drive_ns += self.clock.now().since(now);
        }
        turn
    }

    /// Files all completions that are there. `exact`: the caller has been looking all the time, so that their times are exact.
    fn collect(&mut self, exact: bool) -> bool {
        let now = self.clock.now();
        let mut any = false;
        while let Some(done) = self.queue.reap() {
            any = true;
            self.file(done, now, exact);
        }
        if !any {
            let mut ended = Vec::new();
            if self.queue.poll(now, |done| ended.push(done)).is_err() {
                self.driver.rescue(&mut self.queue, &self.clock, &mut self.peer, |done| ended.push(done));
            }
            for done in ended {
                any = true;
                self.file(done, now, false);
            }
        }
        if self.service.is_some() {
            while let Some(done) = self.mailbox.take() {
                any = true;
                self.file(done, now, false);
            }
        }
        any
    }

    fn file(&mut self, done: Completed, now: Nanos, exact: bool) {
        let Some(entry) = self.entries.get_mut(done.cookie as u32 as usize) else { return };
        let State::Out { kind, bytes, plan, .. } = &entry.state else { return };
        let latency_ns = now.since(done.submitted);
        self.ended += 1;
        if done.outcome.is_ok() {
            self.history.record(*kind, *bytes, latency_ns, exact, now);
        }
        let path = plan.path;
        match path {
            Path::Synchronous => self.account.synchronous += 1,
            Path::Asynchronous => self.account.asynchronous += 1,
        }
        entry.state = State::Done(Finished { outcome: done.outcome, buffer: done.buffer, latency_ns, path });
    }

    /// Whether to wait on at `now`.
    #[inline]
    fn waits(&self, until: Until, now: Nanos) -> bool {
        self.is_out(until.handle) && self.ended <= until.ended && now < until.at
    }

    fn is_out(&self, handle: Handle) -> bool {
        matches!(self.entries[handle.index as usize].state, State::Out { .. })
    }

    /// The caller's end of the asynchronous path.
    fn wait_served(&mut self, until: Until) {
        let before = self.clock.now();
        let arrived = self.mailbox.wait((until.at - before).min(LOOK));
        let now = self.clock.now();
        self.account.sleeps += 1;
        self.account.sleep_ns += now.since(before);
        if let Some(done) = arrived {
            self.file(done, now, true);
        }
        // Commands of the synchronous path that are out as well.
        if self.queue.outstanding() > 0 {
            self.collect(false);
        }
    }

    /// The synchronous path, and the interrupt on the caller's own queue.
    fn wait_own(&mut self, until: Until, plan: Plan, submitted: Nanos) {
        let handle = until.handle;
        self.collect(false);
        let begin = self.clock.now();
        if !self.waits(until, begin) {
            return;
        }
        let mut now = begin;
        let asleep = plan.sleep_ns.saturating_sub(now.since(submitted)).min(until.at.since(now));
        if asleep > 0 && self.queue.outstanding() == 1 && self.peer.pump(now) == Turn::Elsewhere {
            std::thread::sleep(Duration::from_nanos(asleep));
            now = self.clock.now();
            let took_ns = now.since(begin);
            self.account.sleeps += 1;
            self.account.sleep_ns += took_ns;
            if let State::Out { kind, bytes, .. } = self.entries[handle.index as usize].state {
                let late = self.queue.is_ready();
                self.history.slept(kind, bytes, Slept { asked_ns: asleep, took_ns, late });
            }
        }
        let spun_from = now;
        let mut stalled = plan.spin_budget_ns == 0;
        while self.waits(until, now) {
            let from = now;
            let turn = self.peer.pump(now);
            if stalled && turn != Turn::Worked {
                self.sleep(turn, now, until.at);
                now = self.clock.now();
                self.account.sleeps += 1;
                self.account.sleep_ns += now.since(from);
                self.collect(false);
                continue;
            }
            if turn == Turn::Elsewhere {
                self.look_closely();
            }
            now = self.clock.now();
            let spent = now.since(from);
            if turn == Turn::Worked {
                self.account.drive_ns += spent;
            } else {
                self.account.spin_ns += spent;
            }
            self.collect(true);
            if plan.spin_budget_ns != FOREVER && now.since(spun_from) > plan.spin_budget_ns && !stalled {
                stalled = true;
                if self.is_out(handle) {
                    self.account.stalls += 1;
                }
            }
        }
    }

    /// Some looks at the phase tag with the CPU's own wait between them.
    #[inline]
    fn look_closely(&mut self) {
        for _ in 0..8 {
            if self.queue.is_ready() {
                return;
            }
            let (memory, at, seen) = self.queue.watch();
            rest(self.wait, memory, at, seen, 2_000);
        }
    }

    /// Arms the interrupt and sleeps.
    fn sleep(&mut self, turn: Turn, now: Nanos, latest: Nanos) {
        self.queue.settle();
        match (turn, self.queue.vector()) {
            (Turn::Idle { until }, _) if latest == Nanos(u64::MAX) => self.peer.rest(now, until),
            (Turn::Idle { until }, _) => self.peer.rest(now, Some(until.map_or(latest, |at| at.min(latest)))),
            (_, Some(vector)) => {
                let latest = self.queue.deadline().map_or(latest, |at| at.min(latest));
                let timeout = (latest - now).min(LOOK);
                vector.sleep(Some(timeout), || !self.queue.is_ready());
            }
            // No interrupt to sleep for.
            (_, None) => std::thread::sleep(Duration::from_micros(20)),
        }
    }
}
