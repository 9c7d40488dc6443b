//! The machine: CPUs, threads and a device as discrete events. See the module above for what it models.
//!
//! A CPU is in one piece of [`Work`] at a time, which ends by an event of its own unless something
//! comes before; the event carries the piece's number, so that one that was cut short ends nothing.
//! Time is booked whenever a piece ends or is cut.

use std::collections::VecDeque;

use nearside_clock::Nanos;
use nearside_driver::policy::{FOREVER, History, Path, Plan, Slept};
use nearside_driver::{CommandKind, Policy};
use nearside_loadgen::{Arrivals, Schedule};
use nearside_media::{Medium, Request};
use nearside_random::{Random, scatter};
use nearside_store::TimerQueue;

use super::outcome::{CpuTime, HostOutcome, ThreadOutcome};
use super::{Costs, Host, IoProgram, Program};

/// A segment that never ends.
const NEVER: u64 = u64::MAX;

enum Event {
    /// The CPU's piece of work with this number ends.
    End { cpu: usize, number: u64 },
    /// A completion that nobody spins for lies in memory.
    Finished { thread: usize },
    /// An interrupt reaches the CPU.
    Interrupt { cpu: usize },
    /// A thread's sleep is over.
    Timer { thread: usize },
    /// Look whether the running thread's slice is over.
    Slice { cpu: usize },
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Idle,
    /// Leaving an idle state.
    Waking,
    /// To this thread.
    Switch(usize),
    Handler,
    /// A segment of the thread that has the CPU.
    Thread,
}

/// What a thread's segment is, or what it waits for.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Compute,
    Think,
    Submit,
    Spin,
    Complete,
    Queue,
    /// On the thread's CPU but not in its name.
    Context,
    Back,
    /// Until the interrupt.
    Waiting,
    /// Until the next operation is due.
    Resting,
    /// Until the hybrid policy wants to look.
    Dozing,
}

struct Cpu {
    work: Work,
    began: u64,
    ends: u64,
    number: u64,
    /// Which thread has it, also while a handler runs.
    thread: Option<usize>,
    /// Whose address space is loaded.
    last: Option<usize>,
    /// Runnable, in the order of their turn.
    queue: VecDeque<usize>,
    /// An interrupt waits to be taken.
    pending: bool,
    /// The device has interrupted, and the handler has not looked yet.
    signalled: bool,
    /// Completed and not seen by the handler.
    completed: Vec<usize>,
    /// Timers that have expired.
    expired: Vec<usize>,
    /// What the running handler found.
    found: Vec<usize>,
    /// The thread has to give the CPU up: to the front or to the back of the queue.
    yields: Option<bool>,
    slice_ends: u64,
    /// A [`Event::Slice`] is under way.
    slice_due: bool,
    time: CpuTime,
}

struct Runner {
    cpu: usize,
    priority: u8,
    io: Option<IoProgram>,
    schedule: Option<Schedule>,
    random: Random,
    history: History,
    stage: Stage,
    /// Of the segment, where it was cut.
    left: u64,
    /// When the operation was meant to start; when the application asked; when the doorbell was rung;
    /// when the device is done.
    due: u64,
    called: u64,
    rung: u64,
    finish: u64,
    plan: Plan,
    /// When it began to spin, to sleep.
    spun_from: u64,
    outcome: ThreadOutcome,
}

pub(super) struct Machine<'a, M> {
    costs: &'a Costs,
    medium: M,
    interrupted: Option<usize>,
    now: u64,
    from: u64,
    until: u64,
    events: TimerQueue<Event>,
    cpus: Vec<Cpu>,
    threads: Vec<Runner>,
    switches: u64,
    interrupts: u64,
}

impl<'a, M: Medium> Machine<'a, M> {
    pub(super) fn new(host: &'a Host, medium: M) -> Self {
        let cpu = |_| Cpu {
            work: Work::Idle,
            began: 0,
            ends: NEVER,
            number: 0,
            thread: None,
            last: None,
            queue: VecDeque::new(),
            pending: false,
            signalled: false,
            completed: Vec::new(),
            expired: Vec::new(),
            found: Vec::new(),
            yields: None,
            slice_ends: 0,
            slice_due: false,
            time: CpuTime::default(),
        };
        let thread = |(index, thread): (usize, &super::Thread)| {
            let seed = |what: u64| scatter(host.seed ^ scatter(2 * index as u64 + what + 1));
            let io = match &thread.program {
                Program::Io(io) => Some(io.clone()),
                Program::Busy => None,
            };
            let open = |io: &IoProgram| {
                let poisson = matches!(io.arrivals, Arrivals::Poisson { .. });
                Some(Schedule::new(io.arrivals.rate()?, poisson, 0, seed(0)))
            };
            Runner {
                cpu: thread.cpu,
                priority: thread.priority,
                schedule: io.as_ref().and_then(open),
                io,
                random: Random::new(seed(1)),
                history: History::new(host.costs.wake_up_ns()),
                stage: Stage::Compute,
                left: NEVER,
                due: 0,
                called: 0,
                rung: 0,
                finish: 0,
                plan: Plan { path: Path::Synchronous, sleep_ns: 0, spin_budget_ns: FOREVER },
                spun_from: 0,
                outcome: ThreadOutcome::default(),
            }
        };
        Self {
            costs: &host.costs,
            medium,
            interrupted: host.interrupted,
            now: 0,
            from: host.warm_up_ns,
            until: host.warm_up_ns.saturating_add(host.runtime_ns),
            events: TimerQueue::default(),
            cpus: (0..host.cpus).map(cpu).collect(),
            threads: host.threads.iter().enumerate().map(thread).collect(),
            switches: 0,
            interrupts: 0,
        }
    }

    pub(super) fn run(mut self) -> HostOutcome {
        for thread in 0..self.threads.len() {
            if self.threads[thread].io.is_some() {
                self.plan_next(thread);
            }
            if self.threads[thread].stage != Stage::Resting {
                let cpu = self.threads[thread].cpu;
                self.cpus[cpu].queue.push_back(thread);
            }
        }
        for cpu in 0..self.cpus.len() {
            self.next_thread(cpu);
        }
        while let Some(at) = self.events.next_due().filter(|at| at.0 < self.until) {
            self.now = at.0;
            if let Some(event) = self.events.pop(at) {
                self.handle(event);
            }
        }
        self.now = self.until;
        for cpu in 0..self.cpus.len() {
            self.book(cpu);
        }
        HostOutcome {
            window_ns: self.until - self.from,
            threads: self.threads.into_iter().map(|thread| thread.outcome).collect(),
            cpus: self.cpus.iter().map(|cpu| cpu.time).collect(),
            switches: self.switches,
            interrupts: self.interrupts,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::End { cpu, number } if self.cpus[cpu].number == number => self.end(cpu),
            Event::End { .. } => {}
            Event::Finished { thread } => {
                let cpu = self.interrupted.unwrap_or(self.threads[thread].cpu);
                self.cpus[cpu].completed.push(thread);
                if !std::mem::replace(&mut self.cpus[cpu].signalled, true) {
                    self.at(self.now + self.costs.delivery_ns, Event::Interrupt { cpu });
                }
            }
            Event::Interrupt { cpu } => self.interrupt(cpu),
            Event::Timer { thread } => {
                let cpu = self.threads[thread].cpu;
                self.cpus[cpu].expired.push(thread);
                self.interrupt(cpu);
            }
            Event::Slice { cpu } => self.slice(cpu),
        }
    }

    fn at(&mut self, when: u64, event: Event) {
        self.events.push(Nanos(when), event);
    }

    // The CPU's pieces of work.

    /// Books the time since the last booking.
    fn book(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        let ns = self.now - c.began.clamp(self.from.min(self.now), self.now);
        c.began = self.now;
        match (c.work, c.thread) {
            (Work::Idle | Work::Waking, _) => c.time.idle_ns += ns,
            (Work::Thread, Some(thread)) => {
                let of = &mut self.threads[thread];
                match of.stage {
                    Stage::Compute | Stage::Think => {
                        c.time.user_ns += ns;
                        of.outcome.time.user_ns += ns;
                    }
                    Stage::Spin => {
                        c.time.spin_ns += ns;
                        of.outcome.time.spin_ns += ns;
                    }
                    Stage::Context => c.time.system_ns += ns,
                    _ => {
                        c.time.system_ns += ns;
                        of.outcome.time.system_ns += ns;
                    }
                }
            }
            _ => c.time.system_ns += ns,
        }
    }

    fn begin(&mut self, cpu: usize, work: Work, ns: u64) {
        self.book(cpu);
        let c = &mut self.cpus[cpu];
        c.work = work;
        c.number += 1;
        c.ends = self.now.saturating_add(ns);
        let (ends, number) = (c.ends, c.number);
        if ends < self.until {
            self.at(ends, Event::End { cpu, number });
        }
    }

    fn end(&mut self, cpu: usize) {
        self.book(cpu);
        match self.cpus[cpu].work {
            Work::Idle => {}
            Work::Waking => self.go_on(cpu),
            Work::Switch(thread) => {
                let c = &mut self.cpus[cpu];
                (c.thread, c.last) = (Some(thread), Some(thread));
                self.go_on(cpu);
            }
            Work::Handler => {
                let mut found = std::mem::take(&mut self.cpus[cpu].found);
                for thread in found.drain(..) {
                    self.wake(thread);
                }
                self.cpus[cpu].found = found;
                self.go_on(cpu);
            }
            Work::Thread => self.segment_ended(cpu),
        }
    }

    /// After a piece that took no interrupts: what has waited, then the thread.
    fn go_on(&mut self, cpu: usize) {
        if self.cpus[cpu].pending {
            return self.take_interrupt(cpu);
        }
        let c = &mut self.cpus[cpu];
        if let (Some(front), Some(thread)) = (c.yields.take(), c.thread) {
            if front {
                c.queue.push_front(thread)
            } else {
                c.queue.push_back(thread)
            }
            c.thread = None;
        }
        match c.thread {
            Some(thread) => self.run_segment(cpu, thread),
            None => self.next_thread(cpu),
        }
    }

    /// The thread of the highest priority; of equals the first.
    fn next_thread(&mut self, cpu: usize) {
        let threads = &self.threads;
        let c = &mut self.cpus[cpu];
        c.thread = None;
        let best = (0..c.queue.len()).rev().max_by_key(|&at| threads[c.queue[at]].priority);
        let Some(thread) = best.and_then(|at| c.queue.remove(at)) else {
            return self.begin(cpu, Work::Idle, NEVER);
        };
        let same = c.last.is_none_or(|last| last == thread);
        let ns = if same { self.costs.resume_ns } else { self.costs.switch_ns };
        self.switches += u64::from(!same && self.now >= self.from);
        c.slice_ends = self.now.saturating_add(ns).saturating_add(self.costs.slice_ns);
        self.watch_slice(cpu);
        self.begin(cpu, Work::Switch(thread), ns);
    }

    fn watch_slice(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        if !c.queue.is_empty() && !std::mem::replace(&mut c.slice_due, true) {
            let at = c.slice_ends.max(self.now);
            self.at(at, Event::Slice { cpu });
        }
    }

    fn slice(&mut self, cpu: usize) {
        self.cpus[cpu].slice_due = false;
        if self.now < self.cpus[cpu].slice_ends {
            return self.watch_slice(cpu);
        }
        let c = &self.cpus[cpu];
        let Some(thread) = c.thread else { return };
        let priority = self.threads[thread].priority;
        if c.queue.iter().any(|&other| self.threads[other].priority >= priority) {
            self.cpus[cpu].yields = Some(false);
            if self.cpus[cpu].work == Work::Thread {
                self.cut(cpu, thread);
                self.go_on(cpu);
            }
        }
    }

    /// Stops the thread's segment, to be gone on with.
    fn cut(&mut self, cpu: usize, thread: usize) {
        self.book(cpu);
        let left = self.cpus[cpu].ends;
        self.threads[thread].left = if left == NEVER { NEVER } else { left - self.now };
    }

    fn interrupt(&mut self, cpu: usize) {
        self.cpus[cpu].pending = true;
        match (self.cpus[cpu].work, self.cpus[cpu].thread) {
            (Work::Idle, _) => match self.leaving_ns(cpu) {
                Some(ns) => self.begin(cpu, Work::Waking, ns),
                None => self.take_interrupt(cpu),
            },
            (Work::Thread, Some(thread)) => {
                self.cut(cpu, thread);
                self.take_interrupt(cpu);
            }
            _ => {}
        }
    }

    /// What an idle CPU takes to leave its state; none where it is in none.
    fn leaving_ns(&self, cpu: usize) -> Option<u64> {
        let idle_ns = self.now - self.cpus[cpu].began;
        let state = self.costs.idle_state.as_ref().filter(|state| idle_ns >= state.after_ns)?;
        Some((state.after_ns + state.entry_ns).saturating_sub(idle_ns) + state.exit_ns)
    }

    fn take_interrupt(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        (c.pending, c.signalled) = (false, false);
        c.found.append(&mut c.completed);
        for &thread in &c.found {
            let of = &mut self.threads[thread];
            if self.now >= self.from {
                of.outcome.device.record(self.now - of.rung);
            }
        }
        c.found.append(&mut c.expired);
        let ns = self.costs.handler_ns + self.costs.wake_ns * c.found.len() as u64;
        self.interrupts += u64::from(self.now >= self.from);
        self.begin(cpu, Work::Handler, ns);
    }

    fn wake(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        match of.stage {
            Stage::Waiting => (of.stage, of.left) = (Stage::Back, self.costs.back_ns),
            Stage::Resting => self.think(thread),
            // Where it goes on is decided when it runs.
            _ => {}
        }
        let of = &self.threads[thread];
        let (cpu, priority) = (of.cpu, of.priority);
        let c = &mut self.cpus[cpu];
        c.queue.push_back(thread);
        let lower = c.thread.filter(|running| self.threads[*running].priority < priority);
        if lower.is_some() {
            c.yields = Some(true);
        }
        // A CPU that idles or runs a thread is another than the handler's.
        match (c.work, lower) {
            (Work::Idle, _) => match self.leaving_ns(cpu) {
                Some(ns) => self.begin(cpu, Work::Waking, ns),
                None => self.next_thread(cpu),
            },
            (Work::Thread, Some(running)) => {
                self.cut(cpu, running);
                self.go_on(cpu);
            }
            (_, Some(_)) => {}
            (_, None) => self.watch_slice(cpu),
        }
    }

    // A thread's way.

    /// When the next operation is meant to start, and what the thread does until then.
    fn plan_next(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        match &mut of.schedule {
            None => {
                of.due = self.now + of.io.as_ref().map_or(0, |io| io.think_ns);
                self.think(thread);
            }
            Some(schedule) => {
                of.due = schedule.due_ns();
                schedule.advance();
                if of.due > self.now {
                    of.stage = Stage::Resting;
                    let due = of.due;
                    self.at(due, Event::Timer { thread });
                } else {
                    self.think(thread);
                }
            }
        }
    }

    fn think(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        (of.stage, of.left) = (Stage::Think, of.io.as_ref().map_or(0, |io| io.think_ns));
    }

    fn run_segment(&mut self, cpu: usize, thread: usize) {
        let of = &mut self.threads[thread];
        if of.stage == Stage::Dozing {
            let asked_ns = of.plan.sleep_ns;
            let took_ns = self.now - of.spun_from;
            let late = of.finish <= self.now;
            let bytes = of.io.as_ref().map_or(0, |io| io.bytes as usize);
            let Costs { handler_ns, wake_ns, resume_ns, .. } = self.costs;
            let cpu_ns = Some(handler_ns + wake_ns + resume_ns);
            of.history.slept(CommandKind::Read, bytes, Slept { asked_ns, took_ns, cpu_ns, late });
            (of.stage, of.spun_from) = (Stage::Spin, self.now);
        }
        if of.stage == Stage::Spin {
            let gives_up = of.spun_from.saturating_add(of.plan.spin_budget_ns);
            of.left = of.finish.min(gives_up).saturating_sub(self.now);
        }
        let left = of.left;
        self.begin(cpu, Work::Thread, left);
    }

    fn segment_ended(&mut self, cpu: usize) {
        let Some(thread) = self.cpus[cpu].thread else { return };
        match self.threads[thread].stage {
            Stage::Think => self.call(thread),
            Stage::Submit => {
                self.ring(thread);
                let of = &mut self.threads[thread];
                of.spun_from = self.now;
                if of.plan.sleep_ns > 0 {
                    of.stage = Stage::Dozing;
                    let until = self.now + of.plan.sleep_ns;
                    self.at(until, Event::Timer { thread });
                    return self.next_thread(cpu);
                }
                of.stage = Stage::Spin;
            }
            Stage::Spin => {
                let of = &mut self.threads[thread];
                if of.finish > self.now {
                    of.outcome.stalls += u64::from(self.now >= self.from);
                    return self.wait(cpu, thread);
                }
                (of.stage, of.left) = (Stage::Complete, self.costs.complete_ns);
                if self.now >= self.from {
                    of.outcome.synchronous += 1;
                    of.outcome.device.record(self.now - of.rung);
                }
            }
            Stage::Queue => {
                let of = &mut self.threads[thread];
                (of.stage, of.left) = (Stage::Context, self.costs.context_ns);
            }
            Stage::Context => {
                self.ring(thread);
                return self.wait(cpu, thread);
            }
            Stage::Complete | Stage::Back => self.ended(thread),
            Stage::Compute | Stage::Waiting | Stage::Resting | Stage::Dozing => return,
        }
        if self.threads[thread].stage == Stage::Resting {
            return self.next_thread(cpu);
        }
        self.run_segment(cpu, thread);
    }

    /// The application asks.
    fn call(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        let Some(io) = &of.io else { return };
        of.called = self.now;
        of.plan = of.history.decide(io.policy, CommandKind::Read, io.bytes as usize, Nanos(self.now));
        (of.stage, of.left) = match of.plan.path {
            Path::Synchronous => (Stage::Submit, self.costs.submit_ns),
            Path::Asynchronous => (Stage::Queue, self.costs.queue_ns),
        };
    }

    /// The doorbell.
    fn ring(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        let Some(io) = &of.io else { return };
        let places = io.span / u64::from(io.bytes);
        let offset = of.random.below(places) * u64::from(io.bytes);
        of.rung = self.now;
        of.finish = self.medium.finish(Request::read(offset, io.bytes.into()), self.now).max(self.now);
    }

    /// Blocks until the interrupt.
    fn wait(&mut self, cpu: usize, thread: usize) {
        self.threads[thread].stage = Stage::Waiting;
        let finish = self.threads[thread].finish;
        self.at(finish, Event::Finished { thread });
        self.next_thread(cpu);
    }

    /// The application has its bytes.
    fn ended(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        let Some(io) = &of.io else { return };
        if io.policy == Policy::Hybrid {
            let latency_ns = self.now - of.called;
            // Exact where the thread was looking or the asynchronous path was meant; a stall was seen late.
            let exact = of.stage == Stage::Complete || of.plan.path == Path::Asynchronous;
            of.history.record(CommandKind::Read, io.bytes as usize, latency_ns, exact, Nanos(self.now));
        }
        if self.now >= self.from {
            of.outcome.ended += 1;
            of.outcome.call.record(self.now - of.called);
            if of.due >= self.from {
                of.outcome.response.record(self.now - of.due);
            }
        }
        self.plan_next(thread);
    }
}
