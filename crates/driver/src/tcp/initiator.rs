//! A queue with a completion policy: how one thread waits for its commands.
//!
//! FAST'12's two paths over a socket: the caller spins on a nonblocking socket, or it sleeps until the kernel, told by the network
//! interface's interrupt, wakes it. The hybrid chooses by what commands of that kind and size have taken ([`History`]), as over
//! shared memory; after the spin budget it sleeps as well.

use std::time::Duration;

use nearside_clock::{Clock, Nanos};

use super::queue::Queue;
use super::slot::{Completed, Rejected};
use crate::policy::{FOREVER, History, Path, Plan, Policy, Slept};
use crate::{Command, Error, Expectation, Kind};

/// What waiting has cost, apart from all other work. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Spent spinning.
    pub spin_ns: u64,
    /// Spent asleep.
    pub sleep_ns: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Commands that outlasted their spin budget.
    pub stalls: u64,
}

/// See the module.
pub struct Initiator<C> {
    queue: Queue,
    clock: C,
    policy: Policy,
    history: History,
    account: Account,
    /// What ended the connection, until it is asked for.
    failed: Option<Error>,
}

impl<C: Clock> Initiator<C> {
    /// Over a queue.
    pub fn new(queue: Queue, policy: Policy, clock: C) -> Initiator<C> {
        Initiator {
            queue,
            clock,
            policy,
            history: History::default(),
            account: Account::default(),
            failed: None,
        }
    }

    /// The queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Switches it.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What waiting has cost so far.
    pub fn account(&self) -> Account {
        self.account
    }

    /// What a wake-up from sleep costs, as learned.
    pub fn wake_ns(&self) -> u64 {
        self.history.wake_ns()
    }

    /// Why the connection ended, once.
    pub fn failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// What to expect of a command.
    pub fn expectation(&self, kind: Kind, bytes: usize) -> Expectation {
        self.history.expectation(self.policy, kind, bytes, self.clock.now())
    }

    /// Takes a command; it is sent with the next look.
    #[inline]
    pub fn submit(
        &mut self,
        command: &Command,
        buffer: Option<Vec<u8>>,
        cookie: u64,
        now: Nanos,
    ) -> Result<(), Rejected> {
        self.queue.submit(command, buffer, cookie, now)
    }

    /// Looks once: sends, receives, hands on what has ended, and when it was seen. Returns how many.
    #[inline]
    pub fn poll(&mut self, sink: impl FnMut(Completed, Nanos)) -> usize {
        self.collect(false, sink)
    }

    fn collect(&mut self, exact: bool, mut sink: impl FnMut(Completed, Nanos)) -> usize {
        let (history, clock) = (&mut self.history, &self.clock);
        let mut seen = None;
        let mut count = 0;
        let polled = self.queue.poll(clock.now(), |done| {
            count += 1;
            let now = *seen.get_or_insert_with(|| clock.now());
            if done.outcome.is_ok() {
                let bytes = done.buffer.as_ref().map_or(0, Vec::len);
                history.record(done.kind, bytes, now.since(done.submitted), exact, now);
            }
            sink(done, now);
        });
        if let Err(error) = polled {
            self.failed = Some(error);
        }
        count
    }

    /// Waits, as the oldest command's plan says, until any command has ended, until `at`, or (always allowed) less.
    pub fn wait(&mut self, at: Nanos, mut sink: impl FnMut(Completed, Nanos)) {
        let begin = self.clock.now();
        if self.collect(false, &mut sink) > 0 {
            return;
        }
        let Some((kind, bytes, plan, submitted)) = self.plan(begin) else { return };
        let mut now = begin;
        let asleep = plan.sleep_ns.saturating_sub(now.since(submitted)).min(at.since(now));
        if plan.path == Path::Synchronous && asleep > 0 && self.queue.outstanding() == 1 {
            std::thread::sleep(Duration::from_nanos(asleep));
            now = self.clock.now();
            let took_ns = now.since(begin);
            self.account.sleeps += 1;
            self.account.sleep_ns += took_ns;
            let late = self.collect(false, &mut sink) > 0;
            self.history.slept(kind, bytes, Slept { asked_ns: asleep, took_ns, late });
            if late {
                return;
            }
        }
        let spun_from = now;
        let mut stalled = plan.path == Path::Asynchronous || plan.spin_budget_ns == 0;
        while now < at && self.queue.outstanding() > 0 {
            let from = now;
            if stalled {
                let until = self.queue.deadline().map_or(at, |deadline| deadline.min(at));
                self.queue.sleep(Some(until - from));
            }
            let ended = self.collect(true, &mut sink);
            now = self.clock.now();
            let spent = now.since(from);
            if stalled {
                self.account.sleeps += 1;
                self.account.sleep_ns += spent;
            } else {
                self.account.spin_ns += spent;
            }
            if ended > 0 {
                return;
            }
            if !stalled && plan.spin_budget_ns != FOREVER && now.since(spun_from) > plan.spin_budget_ns {
                stalled = true;
                self.account.stalls += 1;
            }
        }
    }

    /// How to wait now. A policy that does not look at history need not know for what.
    fn plan(&self, now: Nanos) -> Option<(Kind, usize, Plan, Nanos)> {
        if self.queue.outstanding() == 0 {
            return None;
        }
        let (kind, bytes, submitted) = match self.policy {
            Policy::Hybrid => self.queue.oldest()?,
            Policy::Polled | Policy::Interrupt => (Kind::Other, 0, now),
        };
        Some((kind, bytes, self.history.decide(self.policy, kind, bytes, now), submitted))
    }

    /// Submits one command and waits. Nothing else may be out.
    pub fn execute(&mut self, command: &Command, buffer: Option<Vec<u8>>) -> Result<Completed, Rejected> {
        let now = self.clock.now();
        self.submit(command, buffer, 0, now)?;
        let mut ended = None;
        loop {
            self.wait(Nanos(u64::MAX), |done, _| ended = Some(done));
            if let Some(done) = ended.take() {
                return Ok(done);
            }
        }
    }
}
