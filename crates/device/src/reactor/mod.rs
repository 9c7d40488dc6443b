//! A reactor: owns queue pairs and ways into the namespaces, and works when it is stepped.
//!
//! [`Reactor::step`] takes a batch of commands from each queue, checks each and asks the cache for the data
//! of all, then executes them in order, each answered as soon as its copy is done. What the store or the
//! firmware completes later is answered when it does (`command`). One interrupt decision per batch. Reactor 0
//! does registers and admin as well; what others ask of a reactor comes by mail (`mail`). A step never waits,
//! sleeps or asks a clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::{Nanos, event_at};
use nearside_dma::Span;
use nearside_spec::command::common;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::{Completion, Data, Operation, Store, StoreError, Submitted, Token};
use slab::Slab;

use crate::admin::{Admin, report_doorbell};
use crate::attached::{Attached, Attachments};
use crate::doorbell::Doorbells;
use crate::fault::{self, Fault};
use crate::firmware::{Firmware, Outcome, Turn, Worker};
use crate::io::{Limits, Request};
use crate::pointer::{self, Layout};
use crate::queue::{CompletionSlot, InvalidDoorbell, Queues};
use crate::shared::{ControllerShared, Message, add};
use crate::throttle::MOST_HELD;
use crate::traffic::Kind;

mod command;
mod gate;
mod mail;
mod memory;
mod remote;
mod reserve;

pub(crate) use command::Owner;
use command::{Command, CommandKind, Parked, Payload};
use memory::Fillings;
use remote::Stages;
pub(crate) use remote::Task;
use reserve::{Ending, Reserving};

/// Commands taken from a queue at once.
pub const BATCH: usize = 32;
/// Commands whose end waits for the time, where it stands still.
const MOST_ENDED: usize = 1024;
/// Operations that the store refused for now, above which no new commands are taken.
const MAX_PARKED: usize = 64;

/// What a step did, and when the next has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Commands taken, completions posted, messages and registers acted on. Above zero: step again soon.
    pub work: usize,
    /// Step again at that time at the latest. `None`: when a doorbell or register is written.
    pub next: Option<Nanos>,
    /// A command waits for what a thread beside the reactors does: it may need this very core.
    pub beside: bool,
}

impl Step {
    /// Both together.
    pub fn merge(&mut self, other: Step) {
        self.work += other.work;
        self.beside |= other.beside;
        self.at(other.next);
    }

    pub(crate) fn at(&mut self, time: Option<Nanos>) {
        self.next = match (self.next, time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// A command that stage one has checked; `spans` holds the data of the short case.
struct Prepared {
    cid: u16,
    nsid: u32,
    place: usize,
    count: usize,
    spans: [Span; 2],
    request: Result<Request, Fault>,
}

/// A command that has ended well. How long it took is known when the next step begins: what a step does at
/// once, it does at one time.
struct Ended {
    place: usize,
    of: (Kind, u64),
    begun: Nanos,
}

/// One reactor of a controller: takes commands from the queues that are its own, and posts their completions.
pub struct Reactor<S: Store, F: Firmware<S> = ()> {
    id: usize,
    pub(crate) shared: Arc<ControllerShared<S, F>>,
    pub(crate) queues: Queues,
    /// By which state of the host's mappings and doorbells the queues' memory was found.
    found_by: (u32, u32),
    admin: Option<Box<Admin>>,
    pub(crate) attached: Attachments<S, F>,
    /// The place whose near-data work has the first claim on the next slice.
    next_slice: usize,
    commands: Slab<Command>,
    parked: VecDeque<Parked>,
    /// While they are tried again: those at the front that have not been yet. The others came before them.
    untried: usize,
    /// Copies and fills of memory.
    fillings: Fillings,
    batch: Vec<Prepared>,
    detached: Vec<SubmissionEntry>,
    finished: Vec<(Token, Completion)>,
    answered: Vec<(Token, Outcome)>,
    layout: Layout,
    /// Commands that ended in the last step, and its time.
    ended: Vec<Ended>,
    stepped: Nanos,
    /// Commands whose data go by the drive's own memory.
    stages: Stages,
    /// Reservation commands that wait, and what others' wait for.
    reserving: Vec<Reserving>,
    ending: Vec<Ending>,
    /// Submission queues that wait for their commands before they go, with the key to answer; without one,
    /// their completion queue goes as well.
    deleting: Vec<(u16, Option<usize>)>,
    /// A reset that waits for the operations in flight.
    resetting: Option<usize>,
    /// The flush of a shutdown has ended.
    pub(crate) shutdown_done: bool,
    /// A namespace has another length, and something may be in flight beyond its end.
    settling: bool,
    /// Commands that wait for their quota.
    held: usize,
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    pub(crate) fn new(id: usize, shared: Arc<ControllerShared<S, F>>) -> Self {
        Reactor {
            id,
            queues: Queues::new(),
            found_by: (0, 0),
            admin: (id == 0).then(|| Box::new(Admin::new(&shared))),
            attached: Attachments::new(),
            next_slice: 0,
            commands: Slab::new(),
            parked: VecDeque::new(),
            fillings: Fillings::new(),
            untried: 0,
            batch: Vec::with_capacity(BATCH),
            detached: Vec::new(),
            finished: Vec::new(),
            answered: Vec::new(),
            layout: Layout::default(),
            ended: Vec::with_capacity(BATCH),
            stepped: Nanos(0),
            stages: Stages::default(),
            reserving: Vec::new(),
            ending: Vec::new(),
            deleting: Vec::new(),
            resetting: None,
            shutdown_done: false,
            settling: false,
            held: 0,
            shared,
        }
    }

    /// Makes a way into a namespace, if there is one of that identifier that the reactor is not attached to.
    pub(crate) fn attach(&mut self, nsid: u32) -> std::io::Result<Option<usize>> {
        let Some(namespace) = self.shared.namespace(nsid) else { return Ok(None) };
        if let Some(place) = self.attached.find(nsid) {
            return Ok(Some(place));
        }
        Ok(Some(self.attached.insert(Attached::new(nsid, &namespace, &self.shared, self.id)?)))
    }

    /// The place of a command's namespace; one that is named for the first time is attached to.
    #[cold]
    pub(crate) fn look_up(&mut self, nsid: u32) -> Result<usize, Fault> {
        match self.attach(nsid) {
            Ok(Some(place)) => Ok(place),
            Ok(None) => Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID)),
            Err(_) => Err(Fault::transient(Status::NAMESPACE_NOT_READY)),
        }
    }

    /// Does what there is to do at time `now`: alone on its thread.
    #[inline]
    pub fn step(&mut self, now: Nanos) -> Step {
        self.step_in(now, &mut Turn::new())
    }

    /// One step of a reactor beside others on its thread, which share the turn.
    #[inline]
    pub fn step_in(&mut self, now: Nanos, turn: &mut Turn) -> Step {
        let mut step = Step::default();
        self.settle_last(now);
        if self.shared.host_memory() != self.found_by {
            step.work += self.find_queues();
        }
        if self.shared.mailboxes[self.id].is_full() {
            step.work += self.read_mail(now);
        }
        if let Some(mut admin) = self.admin.take() {
            step.work += admin.step(self, now, &mut step);
            self.admin = Some(admin);
        }
        if !self.parked.is_empty() {
            step.work += self.retry(now);
            // The store has room again when something completes, and another reactor's lock is gone within a
            // step of it.
            step.at(Some(now));
        }
        if self.fillings.waiting() > 0 {
            step.work += self.fill_on(now, &mut step);
        }
        if self.held > 0 {
            step.work += self.release(now, &mut step);
        }
        let active = if self.resetting.is_none() { self.queues.active.len() } else { 0 };
        for i in 0..active {
            step.work += self.serve(self.queues.active[i], now);
        }
        let (finished, answered) = (&mut self.finished, &mut self.answered);
        let places = self.attached.places();
        let mut place = self.next_slice;
        for _ in 0..places {
            place = if place < places { place } else { 0 };
            if let Some(Attached { access, worker, .. }) = self.attached.get_mut(place) {
                if access.in_flight() > 0 {
                    step.at(access.poll(now, &mut |token, completion| finished.push((token, completion))));
                }
                step.at(access.namespace().poll_orphans(now));
                let had_slice = !turn.is_spent();
                let progress = worker.step(now, turn, &mut |token, outcome| answered.push((token, outcome)));
                step.work += usize::from(progress.worked);
                step.at(progress.next);
                step.beside |= progress.beside;
                if had_slice && turn.is_spent() {
                    self.next_slice = place + 1;
                }
            }
            place += 1;
        }
        if !self.finished.is_empty() {
            step.work += self.finish(now);
        }
        if !self.answered.is_empty() {
            step.work += self.deliver(now);
        }
        if self.queues.remote
            || !self.stages.is_empty()
            || self.shared.function.memory.remote().has_news(self.id)
        {
            step.work += self.ask(now, &mut step);
        }
        if !self.reserving.is_empty() || !self.ending.is_empty() {
            step.work += self.settle_reservations(now, &mut step);
        }
        if self.queues.dirty != 0 {
            self.interrupt(now, &mut step);
        }
        if self.resetting.is_some() || !self.deleting.is_empty() {
            step.work += self.drain(now);
        }
        if self.settling || self.attached.leaving > 0 {
            step.work += self.clear_out(now, &mut step);
        }
        if step.work > 0 {
            let in_flight = self.in_flight() as u64;
            self.shared.counters[self.id].in_flight.store(in_flight, Ordering::Relaxed);
        }
        step
    }

    /// Namespaces that go, or have another length: those that nothing is left of leave their places.
    #[cold]
    fn clear_out(&mut self, now: Nanos, step: &mut Step) -> usize {
        if self.settling {
            self.settle_lengths();
        }
        if self.attached.leaving == 0 {
            return 0;
        }
        let (commands, parked, stages, ended) = (&self.commands, &self.parked, &self.stages, &self.ended);
        if !ended.is_empty() {
            step.at(Some(now));
        }
        self.attached.remove_drained(|place| {
            stages.are_of(place)
                || ended.iter().any(|e| e.place == place)
                || commands.iter().any(|(_, c)| c.place == place)
                || parked.iter().any(|p| p.command.place == place)
        })
    }

    /// Whether a step now would find nothing that the host or another reactor has done since the last: asked
    /// once more after arming the wake-up, before sleeping.
    pub fn is_quiet(&self) -> bool {
        let registers = self.shared.registers();
        !self.shared.mailboxes[self.id].is_full()
            && self.shared.host_memory() == self.found_by
            && self.admin.as_ref().is_none_or(|admin| admin.is_quiet(&self.queues, registers))
            && !self.shared.function.memory.remote().has_news(self.id)
            && (self.stages.are_full()
                || self.held >= MOST_HELD
                || self.fillings.are_full()
                || self.queues.active.iter().all(|&id| self.queues.is_quiet(id, registers)))
            && self.attached.iter().all(|attached| attached.worker.is_quiet())
    }

    /// The host's mappings have changed, or where it keeps its doorbells: the queues look for their memory
    /// again. One whose memory is not there is not served until it is.
    #[cold]
    fn find_queues(&mut self) -> usize {
        self.found_by = self.shared.host_memory();
        self.attached.iter_mut().for_each(|attached| attached.access.memory_changed());
        1 + self.queues.find_again(&self.shared.function.memory, self.shared.shadow_doorbells())
    }

    /// Takes a batch from a submission queue, checks it, executes it.
    #[inline]
    fn serve(&mut self, id: u16, now: Nanos) -> usize {
        let shared = &*self.shared;
        let registers = shared.registers();
        let Queues { sqs, cqs, shadow, .. } = &mut self.queues;
        let doorbells = Doorbells { registers, shadow: shadow.as_ref() };
        let Some(Some(sq)) = sqs.get_mut(usize::from(id)) else { return 0 };
        let waiting = match sq.waiting(&doorbells) {
            Ok(0) => return 0,
            Ok(waiting) => waiting,
            Err(InvalidDoorbell) => return self.bad_doorbell(id, now),
        };
        let full = self.parked.len() >= MAX_PARKED || self.held >= MOST_HELD || self.fillings.are_full();
        if sq.deleting || full || self.stages.are_full() {
            return 0;
        }
        let Some(Some(cq)) = cqs.get_mut(usize::from(sq.cq)) else { return 0 };
        let count = match cq.reserve(waiting.min(BATCH as u32), &doorbells) {
            Ok(count) => count,
            Err(InvalidDoorbell) => return self.bad_doorbell(id, now),
        };
        let write_through = shared.write_through.load(Ordering::Relaxed);
        let memory = &*shared.function.memory;
        sq.in_flight += count;
        let mut gated = false;
        for _ in 0..count {
            let entry = sq.take();
            let place = self.attached.find(entry.nsid());
            let Some((place, attached)) = place.and_then(|p| Some((p, self.attached.get(p)?))) else {
                self.detached.push(entry);
                continue;
            };
            gated |= attached.gate.is_some();
            let mut prepared = Prepared {
                cid: entry.cid(),
                nsid: entry.nsid(),
                place,
                count: 0,
                spans: [Span::EMPTY; 2],
                request: Request::parse(&entry, &attached.limits, write_through),
            };
            if let Ok(Request::Transfer { operation, len, pointer }) = &prepared.request {
                // The store's lines: a read's source, a write's destination.
                if let Operation::Read { offset, len } | Operation::Write { offset, len, .. } = *operation {
                    attached.access.prefetch(offset, len, matches!(operation, Operation::Write { .. }));
                }
                prepared.count = pointer::short(memory, pointer, *len, &mut prepared.spans).unwrap_or(0);
            }
            self.batch.push(prepared);
        }
        let mut batch = std::mem::take(&mut self.batch);
        for prepared in batch.drain(..) {
            let mut slot = CompletionSlot::new(id, prepared.cid);
            if gated && let Ok(request) = &prepared.request {
                let Some(passed) = self.pass(slot, prepared.place, request, now) else { continue };
                slot = passed;
            }
            match prepared.request {
                Ok(request @ Request::Transfer { operation, .. }) if prepared.count > 0 => {
                    let spans = prepared.spans.get(..prepared.count).unwrap_or(&[]);
                    match self.admits(prepared.place, &request) {
                        Ok(()) => self.transfer(slot, prepared.place, operation, spans, (now, now)),
                        Err(fault) => self.fail(slot, prepared.nsid, &fault, now),
                    }
                }
                Ok(request) => {
                    if let Err((slot, fault)) = self.execute(slot, prepared.place, &request, (now, now)) {
                        self.refuse(slot, prepared.place, prepared.nsid, &request, &fault, now);
                    }
                }
                Err(fault) => self.fail(slot, prepared.nsid, &fault, now),
            }
        }
        self.batch = batch;
        if !self.detached.is_empty() {
            self.execute_detached(id, write_through, now);
        }
        count as usize
    }

    /// Commands of namespaces that the reactor is not attached to.
    #[cold]
    fn execute_detached(&mut self, id: u16, write_through: bool, now: Nanos) {
        for entry in std::mem::take(&mut self.detached) {
            let slot = CompletionSlot::new(id, entry.cid());
            let done = match self.look_up(entry.nsid()) {
                Ok(place) => {
                    let request = Request::parse(&entry, &self.attached.at(place).limits, write_through);
                    request.map(|request| (place, request))
                }
                Err(fault) if fault.status.code() == Status::INVALID_NAMESPACE => {
                    Request::without_namespace(&entry).map(|request| (0, request))
                }
                Err(fault) => Err(fault),
            };
            match done {
                Ok((place, request)) => {
                    let Some(slot) = self.pass(slot, place, &request, now) else { continue };
                    if let Err((slot, fault)) = self.execute(slot, place, &request, (now, now)) {
                        self.refuse(slot, place, entry.nsid(), &request, &fault, now);
                    }
                }
                Err(fault) => self.fail(slot, entry.nsid(), &fault, now),
            }
        }
    }

    fn bad_doorbell(&self, id: u16, now: Nanos) -> usize {
        report_doorbell(&self.shared, id, now);
        let information = nearside_spec::log::event::INVALID_DOORBELL_VALUE;
        self.tell(0, Message::ErrorEvent { information });
        1
    }

    /// A read or write whose data are known; when it was taken from its queue, and the time now.
    #[inline]
    fn transfer(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        operation: Operation,
        spans: &[Span],
        (begun, now): (Nanos, Nanos),
    ) {
        let token = Token(self.commands.vacant_key() as u64);
        match self.attached.at(place).submit(operation, Data::Spans(spans), token, now) {
            Submitted::Done(Completion { result: Ok(()), .. }) => {
                self.count(&operation);
                self.note(place, Kind::of(&operation), begun);
                self.trace_answer(place);
                self.queues.answer(slot, 0, Status::SUCCESS, now);
            }
            Submitted::Done(Completion { result: Err(StoreError::Busy), .. }) => {
                let kind = CommandKind::Single(operation);
                let command = Command { owner: Owner::Host(slot), place, kind, begun };
                self.parked.push_back(Parked { command, operation, payload: Payload::Spans(spans.to_vec()) });
            }
            Submitted::Done(Completion { result: Err(error), .. }) => {
                self.store_failed(Owner::Host(slot), place, &operation, &error, now);
            }
            Submitted::Pending => {
                let kind = CommandKind::Single(operation);
                self.keep(token, Command { owner: Owner::Host(slot), place, kind, begun });
            }
        }
    }

    /// Keeps a command that is answered later, under the token that the store or the firmware was given for
    /// it.
    #[inline]
    fn keep(&mut self, token: Token, command: Command) {
        let key = self.commands.insert(command);
        assert!(token.0 == key as u64, "a command is kept as {key}, its operation as {}", token.0);
    }

    #[inline]
    fn count(&self, operation: &Operation) {
        let counters = &self.shared.counters[self.id];
        match *operation {
            Operation::Read { len, .. } => {
                add(&counters.reads, 1);
                add(&counters.bytes_read, len);
            }
            Operation::Write { len, .. } => {
                add(&counters.writes, 1);
                add(&counters.bytes_written, len);
            }
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => {}
        }
    }

    /// Notes a command's end, and the bytes that it moved.
    #[inline]
    fn note(&mut self, place: usize, of: (Kind, u64), begun: Nanos) {
        self.ended.push(Ended { place, of, begun });
    }

    /// Counts what has ended in the last step, if this one is of a later time: another of the same says
    /// nothing of how long they took.
    #[inline]
    fn settle_last(&mut self, now: Nanos) {
        if !self.ended.is_empty() && (now > self.stepped || self.ended.len() >= MOST_ENDED) {
            self.settle(now);
        }
        self.stepped = now;
    }

    /// Counts what has ended.
    #[inline]
    fn settle(&mut self, now: Nanos) {
        for Ended { place, of: (kind, bytes), begun } in self.ended.drain(..) {
            if let Some(attached) = self.attached.get(place) {
                attached.meter.ended(kind, bytes, now.since(begun));
            }
        }
    }

    #[cold]
    fn store_failed(
        &mut self,
        owner: Owner,
        place: usize,
        operation: &Operation,
        error: &StoreError,
        now: Nanos,
    ) {
        let Attached { nsid, limits: Limits { lba_shift, .. }, .. } = *self.attached.at(place);
        if matches!(error, StoreError::Medium { .. }) {
            add(&self.shared.counters[self.id].media_errors, 1);
        }
        let (mut fault, level) = fault::of_store(error, operation);
        if let Some(suppressed) = self.attached.at(place).access.namespace().failed(fault.status, error, now)
        {
            let (operation, status) = (operation.name(), fault.status);
            match owner {
                Owner::Host(_) => {
                    event_at!(level, nsid, operation, %error, ?status, suppressed, "the store failed a command");
                }
                // No status of a shutdown tells the host of it (Base 2.0, 3.6).
                Owner::Shutdown => event_at!(
                    level, nsid, %error, suppressed,
                    "the store failed the flush of a shutdown: what its host wrote and did not flush may be lost"
                ),
            }
        }
        if let Operation::Read { offset, .. }
        | Operation::Write { offset, .. }
        | Operation::WriteZeroes { offset, .. }
        | Operation::Deallocate { offset, .. } = *operation
        {
            fault = fault.lba(offset >> lba_shift);
        }
        match owner {
            Owner::Host(slot) => self.fail(slot, nsid, &fault, now),
            // The host is told by the status of its own flushes; a shutdown ends in any case.
            Owner::Shutdown => self.shutdown_done = true,
        }
    }

    /// The firmware's trace point: [`Observer::answers`](crate::Observer::answers).
    #[inline(always)]
    fn trace_answer(&self, place: usize) {
        if let Some(attached) = self.attached.get(place) {
            attached.access.namespace().observer().answers();
        }
    }

    /// Answers a command, unless its queues are about to go.
    pub(crate) fn conclude(&mut self, slot: CompletionSlot, result: u64, status: Status, now: Nanos) {
        if self.resetting.is_some() { slot.forget() } else { self.queues.answer(slot, result, status, now) }
    }

    /// Answers a command with an error, which the error log keeps.
    #[cold]
    pub(crate) fn fail(&mut self, slot: CompletionSlot, nsid: u32, fault: &Fault, now: Nanos) {
        let attached = self.attached.find(nsid).and_then(|place| self.attached.get(place));
        if let Some(attached) = attached.filter(|_| slot.sq > 0) {
            attached.meter.failed();
        }
        let status = self.shared.log_error(slot.sq, slot.cid, nsid, fault);
        self.conclude(slot, 0, status, now);
    }

    /// Raises the interrupts that are due.
    fn interrupt(&mut self, now: Nanos, step: &mut Step) {
        let mut dirty = self.queues.dirty;
        while dirty != 0 {
            let id = dirty.trailing_zeros();
            dirty &= dirty - 1;
            let Some(Some(cq)) = self.queues.cqs.get_mut(id as usize) else { continue };
            let Some(vector) = cq.vector else { continue };
            let due = match id {
                0 => None,
                _ => self.shared.interrupts.due(vector, cq.unsignalled, cq.since),
            };
            match due.filter(|due| *due > now) {
                Some(due) => step.at(Some(due)),
                None => {
                    cq.unsignalled = 0;
                    self.queues.dirty &= !(1 << id);
                    self.shared.interrupts.raise(&self.shared.function, vector);
                }
            }
        }
    }
}

/// A drive may go while commands are out: nobody is left to answer to.
impl<S: Store, F: Firmware<S>> Drop for Reactor<S, F> {
    fn drop(&mut self) {
        // There is no next step to time them by.
        if let Some(last) = self.ended.last().map(|ended| ended.begun) {
            self.settle(last);
        }
        if let Some(admin) = &mut self.admin {
            admin.forget();
        }
        self.forget_reservations();
        self.stages.forget();
        self.fillings.forget();
        self.queues.forget_staged();
        let mut owners: Vec<Owner> = self.commands.drain().map(|command| command.owner).collect();
        self.forget_held();
        for Parked { command, operation, .. } in self.parked.drain(..) {
            // A mutation that waits keeps readers out until it had its turn, which never comes.
            self.attached.at(command.place).access.abandon(&operation);
            owners.push(command.owner);
        }
        for owner in owners {
            if let Owner::Host(slot) = owner {
                slot.forget();
            }
        }
    }
}
