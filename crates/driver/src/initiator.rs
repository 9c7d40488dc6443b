//! One thread's access to a drive: submit now, wait or poll later,
//! over whichever completion path the policy chooses.
//!
//! A command passes so: [`Initiator::submit`] asks the [`History`] for a plan. On the synchronous
//! path the caller's own queue pair takes the command and rings; [`Initiator::wait`] spins on the
//! completion queue, with a sleep before where the plan has one, and after the spin budget arms the
//! interrupt and sleeps. On the asynchronous path the request goes to the
//! [`Service`](crate::Service) and the caller sleeps until it is woken.
//!
//! Where no service is attached (drive and driver on one thread: there is no other context to hand a request
//! to) the asynchronous path's waits end by the interrupt on the caller's own queue pair.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::cpu::thread_cpu_ns;
use nearside_dma::system::sharp_sleeps;
use nearside_dma::{EventFd, Vector, WaitKind};

use crate::policy::{Expectation, FOREVER, History, Path, Plan, Policy, Slept};
use crate::service::{LOOK, Mailbox};
use crate::{
    Buffer, BufferOf, Command, CommandKind, Completed, Controller, DmaBuffer, Driver, Error, Failure, Host,
    Peer, QueueConfig, RejectReason, Rejected, ServiceHandle, Transport, Turn,
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

impl Handle {
    /// Which of the initiator's places it has: below its depth, and of no other command that is out.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished<B = DmaBuffer> {
    /// Dwords 0 and 1 of the completion, or the failure.
    pub outcome: Result<u64, Failure>,
    /// The buffer.
    pub buffer: Option<B>,
    /// Bytes of the buffer that were moved, in either direction.
    pub moved: usize,
    /// When the completion was seen.
    pub at: Nanos,
    /// From submission until then, in nanoseconds.
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
    /// Spent spinning for completions: FAST'12's "spinning I/O wait",
    /// which the system's figures count as user time.
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

enum CommandState<B> {
    Free,
    Out { kind: CommandKind, bytes: usize, plan: Plan, served: bool, submitted: Nanos },
    Done(Finished<B>),
}

struct CommandEntry<B> {
    generation: u32,
    place: CommandState<B>,
}

/// The commands of one initiator, and what is learned from how they end.
struct Commands<B> {
    entries: Vec<CommandEntry<B>>,
    free: Vec<u32>,
    /// Handles as they were submitted; those that are not out any more go when they come first,
    /// or are too many.
    order: VecDeque<Handle>,
    /// Handles as they ended; those that were taken back go in the same way.
    done: VecDeque<Handle>,
    /// Commands that have ended, ever.
    ended: u64,
    history: History,
    account: Account,
}

impl<B: Buffer> Commands<B> {
    fn new(depth: usize) -> Self {
        Commands {
            entries: (0..depth).map(|_| CommandEntry { generation: 0, place: CommandState::Free }).collect(),
            free: (0..depth as u32).rev().collect(),
            order: VecDeque::with_capacity(2 * depth),
            done: VecDeque::with_capacity(2 * depth),
            ended: 0,
            history: History::default(),
            account: Account::default(),
        }
    }

    fn is_out(&self, handle: Handle) -> bool {
        let entry = &self.entries[handle.index()];
        entry.generation == handle.generation && matches!(entry.place, CommandState::Out { .. })
    }

    /// A command was sent.
    fn begin(&mut self, handle: Handle, place: CommandState<B>) {
        self.free.pop();
        self.entries[handle.index()].place = place;
        if self.order.len() == self.order.capacity() {
            let entries = &self.entries;
            self.order.retain(|earlier| entries[earlier.index()].generation == earlier.generation);
        }
        self.order.push_back(handle);
    }

    /// The oldest that is out.
    fn oldest(&mut self) -> Option<Handle> {
        while let Some(&first) = self.order.front() {
            if self.is_out(first) {
                return Some(first);
            }
            self.order.pop_front();
        }
        None
    }

    /// A completion was seen at `now`. `exact`:
    /// the caller has been looking all the time, so that this is when it came.
    fn end(&mut self, done: Completed<B>, now: Nanos, exact: bool) {
        let handle = Handle { index: done.cookie as u32, generation: (done.cookie >> 32) as u32 };
        let Some(entry) = self.entries.get_mut(handle.index()) else { return };
        let CommandState::Out { kind, bytes, plan, .. } = &entry.place else { return };
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
        let Completed { outcome, buffer, moved, .. } = done;
        entry.place = CommandState::Done(Finished { outcome, buffer, moved, at: now, latency_ns, path });
        if self.done.len() == self.done.capacity() {
            let entries = &self.entries;
            self.done.retain(|earlier| entries[earlier.index()].generation == earlier.generation);
        }
        self.done.push_back(handle);
    }

    fn take(&mut self, handle: Handle) -> Option<Finished<B>> {
        let entry = &mut self.entries[handle.index()];
        assert_eq!(entry.generation, handle.generation, "a handle that was taken already");
        match std::mem::replace(&mut entry.place, CommandState::Free) {
            CommandState::Done(finished) => {
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(handle.index);
                if self.done.front() == Some(&handle) {
                    self.done.pop_front();
                }
                Some(finished)
            }
            CommandState::Free => panic!("a handle of another initiator"),
            out => {
                entry.place = out;
                None
            }
        }
    }

    /// One that has ended and was not taken back, the earliest first.
    fn take_any(&mut self) -> Option<(Handle, Finished<B>)> {
        while let Some(handle) = self.done.pop_front() {
            if self.entries[handle.index()].generation == handle.generation {
                return self.take(handle).map(|finished| (handle, finished));
            }
        }
        None
    }
}

/// One thread's access to a controller `K`: a queue of its own with a completion policy.
pub struct Initiator<P, C, K: Controller = Driver> {
    // The queue before the controller: an association ends last.
    queue: K::Queue,
    controller: K,
    service: Option<ServiceHandle<BufferOf<K>>>,
    mailbox: Arc<Mailbox<BufferOf<K>>>,
    host: Host<C, P>,
    policy: Policy,
    commands: Commands<BufferOf<K>>,
    wait: WaitKind,
    /// What ended the queue, until it is asked for.
    failed: Option<Error>,
}

impl<P: Peer, C: Clock> Initiator<P, C, Driver> {
    /// What is raised when a command ends, once it was asked for ([`Initiator::arm`]): for a thread that
    /// waits for other things as well. `None`: the queue has no interrupt.
    pub fn event(&self) -> Option<&EventFd> {
        self.queue.vector().map(Vector::event)
    }

    /// Asks for the interrupt. False where a completion is there already: look, and do not sleep.
    pub fn arm(&mut self) -> bool {
        self.queue.settle();
        if let Some(vector) = self.queue.vector() {
            vector.unmask();
        }
        !self.queue.is_ready()
    }

    /// Asks for no interrupt any more.
    pub fn disarm(&mut self) {
        if let Some(vector) = self.queue.vector() {
            vector.mask();
        }
    }
}

impl<P: Peer, C: Clock, K: Controller> Initiator<P, C, K> {
    /// With a queue of its own. `peer` runs the drive where it runs on this thread ([`crate::Threaded`]
    /// otherwise); `service` is the asynchronous path.
    ///
    /// # Errors
    /// As [`Controller::queue`].
    pub fn new(
        controller: &K,
        config: InitiatorConfig,
        clock: C,
        peer: P,
        service: Option<ServiceHandle<BufferOf<K>>>,
    ) -> Result<Self, Error> {
        let mut host = Host { clock, peer };
        let queue = controller.queue(config.queue, &mut host)?;
        Ok(Initiator {
            commands: Commands::new(queue.depth()),
            queue,
            controller: controller.clone(),
            service,
            mailbox: Arc::default(),
            host,
            policy: config.policy,
            wait: WaitKind::detect(),
            failed: None,
        })
    }

    /// The controller.
    pub fn controller(&self) -> &K {
        &self.controller
    }

    /// The controller, and what its admin commands wait with.
    pub fn admin(&mut self) -> (&K, &mut Host<C, P>) {
        (&self.controller, &mut self.host)
    }

    /// The queue.
    pub fn queue(&self) -> &K::Queue {
        &self.queue
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.host.clock
    }

    /// The peer.
    pub fn peer(&mut self) -> &mut P {
        &mut self.host.peer
    }

    /// A buffer for a command.
    ///
    /// # Errors
    /// There is no memory.
    pub fn buffer(&self, len: usize) -> Result<BufferOf<K>, Error> {
        self.controller.buffer(len)
    }

    /// Commands that can be out at a time.
    pub fn depth(&self) -> usize {
        self.commands.entries.len()
    }

    /// Commands that are out.
    pub fn outstanding(&self) -> usize {
        self.commands.entries.len() - self.commands.free.len()
    }

    /// Switches the policy. Commands that are out end as they were planned.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What waiting has cost so far.
    pub fn account(&self) -> Account {
        self.commands.account
    }

    /// Why the queue is dead, once.
    pub fn failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// Which completion model holds.
    pub fn completion_model(&self) -> CompletionModel {
        CompletionModel {
            policy: self.policy,
            service: self.service.is_some(),
            wait: self.wait,
            wake_ns: self.commands.history.wake_ns(),
        }
    }

    /// What to expect of a command.
    pub fn expectation(&self, kind: CommandKind, bytes: usize) -> Expectation {
        self.commands.history.expectation(self.policy, kind, bytes, self.host.clock.now())
    }

    /// Sends a command and returns at once; over a network it goes with the next look.
    /// The buffer comes back through the handle.
    ///
    /// # Errors
    /// As many are out as can be; the queue is dead; the buffer does not fit.
    pub fn submit(
        &mut self,
        command: &Command,
        buffer: Option<BufferOf<K>>,
    ) -> Result<Handle, Rejected<BufferOf<K>>> {
        let Some(&index) = self.commands.free.last() else {
            return Err(Rejected { buffer, reason: RejectReason::Full });
        };
        let now = self.host.clock.now();
        let bytes = buffer.as_ref().map_or(0, Buffer::len);
        let plan = self.commands.history.decide(self.policy, command.kind, bytes, now);
        let handle = Handle { index, generation: self.commands.entries[index as usize].generation };
        let cookie = cookie(handle);
        let served = match &self.service {
            Some(service) if plan.path == Path::Asynchronous => {
                if bytes > self.controller.max_transfer() {
                    return Err(Rejected { buffer, reason: RejectReason::Buffer });
                }
                service
                    .send(command, buffer, cookie, now, &self.mailbox)
                    .map_err(|buffer| Rejected { buffer, reason: RejectReason::Dead })?;
                true
            }
            _ => {
                self.queue.submit(command, buffer, cookie, now)?;
                if K::Queue::RINGS_AT_ONCE {
                    self.queue.ring();
                }
                false
            }
        };
        let place = CommandState::Out { kind: command.kind, bytes, plan, served, submitted: now };
        self.commands.begin(handle, place);
        Ok(handle)
    }

    /// Submits and waits.
    ///
    /// # Errors
    /// As [`Initiator::submit`].
    pub fn execute(
        &mut self,
        command: &Command,
        buffer: Option<BufferOf<K>>,
    ) -> Result<Finished<BufferOf<K>>, Rejected<BufferOf<K>>> {
        let handle = self.submit(command, buffer)?;
        Ok(self.wait(handle))
    }

    /// Takes the command back if it has ended; looks at the queues once, without waiting.
    pub fn poll(&mut self, handle: Handle) -> Option<Finished<BufferOf<K>>> {
        if let Some(done) = self.commands.take(handle) {
            return Some(done);
        }
        self.look();
        self.commands.take(handle)
    }

    /// Looks at the queues once, without waiting, where any command is out.
    pub fn look(&mut self) {
        let now = self.host.clock.now();
        self.pump(now);
        self.collect(false);
    }

    /// Takes back any command that is known to have ended, the earliest first; looks nowhere.
    pub fn take_any(&mut self) -> Option<(Handle, Finished<BufferOf<K>>)> {
        self.commands.take_any()
    }

    /// Waits for a command and takes it back. Panics on a handle of another initiator, or one taken already.
    pub fn wait(&mut self, handle: Handle) -> Finished<BufferOf<K>> {
        loop {
            if let Some(done) = self.commands.take(handle) {
                return done;
            }
            self.wait_for(Until { handle, ended: u64::MAX, at: Nanos(u64::MAX) });
        }
    }

    /// Waits, as the oldest command's plan says, until any has ended, or until `at`, or (always allowed)
    /// less; not at all where none is out. For a caller who has more to do than to wait:
    /// [`Initiator::take_any`] then tells what has ended.
    pub fn wait_any(&mut self, at: Nanos) {
        if let Some(handle) = self.commands.oldest() {
            self.wait_for(Until { handle, ended: self.commands.ended, at });
        }
    }

    fn wait_for(&mut self, until: Until) {
        match &self.commands.entries[until.handle.index()].place {
            CommandState::Out { served: true, .. } => self.wait_served(until),
            CommandState::Out { plan, submitted, .. } => {
                let (plan, submitted) = (*plan, *submitted);
                self.wait_own(until, plan, submitted);
            }
            _ => {}
        }
    }

    /// Asks the controller to end a command that is out (Abort). It is answered by its own
    /// completion, and soon where this says true; where not, the controller has not fetched it yet,
    /// has answered it already, or does not abort such: ask again if it does not end. Commands of the
    /// asynchronous path's service are not aborted.
    ///
    /// # Errors
    /// As [`Controller::admin`].
    pub fn abort(&mut self, handle: Handle) -> Result<bool, Error> {
        if !self.commands.is_out(handle) {
            return Ok(false);
        }
        match self.queue.identifier(cookie(handle)) {
            Some((queue, cid)) => self.controller.abort(queue, cid, &mut self.host),
            None => Ok(false),
        }
    }

    /// Ends the queue. Commands that are out are ended.
    ///
    /// # Errors
    /// As [`Controller::delete`].
    pub fn close(mut self) -> Result<(), Error> {
        self.controller.delete(self.queue, &mut self.host, drop)
    }

    /// One turn for the drive, booked.
    fn pump(&mut self, now: Nanos) -> Turn {
        let turn = self.host.peer.pump(now);
        if turn == Turn::Worked {
            self.commands.account.drive_ns += self.host.clock.now().since(now);
        }
        turn
    }

    /// Files all completions that are there. Whether there were any.
    fn collect(&mut self, exact: bool) -> bool {
        let before = self.commands.ended;
        let (commands, clock) = (&mut self.commands, &self.host.clock);
        let mut seen = None;
        let polled = self.queue.poll(clock.now(), |done| {
            let now = *seen.get_or_insert_with(|| clock.now());
            commands.end(done, now, exact);
        });
        if let Err(error) = polled {
            let now = self.host.clock.now();
            self.controller.rescue(&mut self.queue, &mut self.host, |done| commands.end(done, now, false));
            self.failed = Some(error);
        }
        if self.service.is_some() {
            while let Some(done) = self.mailbox.take() {
                let now = self.host.clock.now();
                self.commands.end(done, now, false);
            }
        }
        self.commands.ended > before
    }

    /// Whether to wait on at `now`.
    #[inline]
    fn waits(&self, until: Until, now: Nanos) -> bool {
        self.commands.is_out(until.handle) && self.commands.ended <= until.ended && now < until.at
    }

    /// The caller's end of the asynchronous path.
    fn wait_served(&mut self, until: Until) {
        let before = self.host.clock.now();
        let arrived = self.mailbox.wait((until.at - before).min(LOOK));
        let now = self.host.clock.now();
        self.commands.account.sleeps += 1;
        self.commands.account.sleep_ns += now.since(before);
        if let Some(done) = arrived {
            self.commands.end(done, now, true);
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
        let begin = self.host.clock.now();
        if !self.waits(until, begin) {
            return;
        }
        let mut now = begin;
        if self.queue.outstanding() == 1 {
            now = self.doze(until, plan.sleep_ns.saturating_sub(begin.since(submitted)), begin);
        }
        let spun_from = now;
        let mut stalled = plan.spin_budget_ns == 0;
        while self.waits(until, now) {
            let from = now;
            let turn = self.host.peer.pump(now);
            if stalled && turn != Turn::Worked {
                self.sleep(turn, now, until.at);
                now = self.host.clock.now();
                self.commands.account.sleeps += 1;
                self.commands.account.sleep_ns += now.since(from);
                self.collect(false);
                continue;
            }
            if turn == Turn::Elsewhere {
                self.queue.watch(self.wait);
            }
            now = self.host.clock.now();
            let spent = now.since(from);
            if turn == Turn::Worked {
                self.commands.account.drive_ns += spent;
            } else {
                self.commands.account.spin_ns += spent;
            }
            self.collect(true);
            if plan.spin_budget_ns != FOREVER && now.since(spun_from) > plan.spin_budget_ns && !stalled {
                stalled = true;
                if self.commands.is_out(handle) {
                    self.commands.account.stalls += 1;
                }
            }
        }
    }

    /// The sleep before the spin, where the drive is elsewhere. Returns when it ended.
    fn doze(&mut self, until: Until, asked_ns: u64, begin: Nanos) -> Nanos {
        let asleep_ns = asked_ns.min(until.at.since(begin));
        if asleep_ns == 0 || self.host.peer.pump(begin) != Turn::Elsewhere {
            return begin;
        }
        let place = &self.commands.entries[until.handle.index()].place;
        let CommandState::Out { kind, bytes, .. } = *place else { return begin };
        // With the slack that a thread has by default, no sleep of tens of microseconds pays.
        sharp_sleeps();
        let used_ns = || thread_cpu_ns().ok();
        let measures = self.commands.history.measures_cpu(kind, bytes);
        let before_ns = if measures { used_ns() } else { None };
        std::thread::sleep(Duration::from_nanos(asleep_ns));
        let woken = self.host.clock.now();
        let took_ns = woken.since(begin);
        let late = self.collect(false);
        let cpu_ns = before_ns.and_then(|before_ns| Some(used_ns()?.saturating_sub(before_ns)));
        self.commands.account.sleeps += 1;
        self.commands.account.sleep_ns += took_ns;
        // One that the caller's own time cut short, before the completion, says nothing of the next.
        if late || asleep_ns == asked_ns {
            self.commands.history.slept(kind, bytes, Slept { asked_ns: asleep_ns, took_ns, cpu_ns, late });
        }
        woken
    }

    /// Arms the interrupt and sleeps.
    fn sleep(&mut self, turn: Turn, now: Nanos, latest: Nanos) {
        match turn {
            Turn::Idle { until } if latest == Nanos(u64::MAX) => self.host.peer.rest(now, until),
            Turn::Idle { until } => {
                self.host.peer.rest(now, Some(until.map_or(latest, |at| at.min(latest))));
            }
            _ => {
                let latest = self.queue.deadline().map_or(latest, |at| at.min(latest));
                self.queue.sleep((latest - now).min(LOOK));
            }
        }
    }
}
