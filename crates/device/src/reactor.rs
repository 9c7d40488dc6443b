//! A reactor: owns queue pairs and ways into the namespaces, and works when it is stepped.
//!
//! [`Reactor::step`] takes a batch of commands from each queue, checks each and asks the cache for the data of all,
//! then executes them in order, each answered as soon as its copy is done. What the store or the firmware
//! completes later is answered when it does. One interrupt decision per batch. Reactor 0 does registers and admin as well.
//! A step never waits, sleeps or asks a clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Span};
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::{Completion, Data, Operation, Store, StoreError, Submitted, Token};

use crate::admin::Admin;
use crate::attached::{Attached, Attachments};
use crate::fault::{self, Fault};
use crate::firmware::{Door, Firmware, Job, Outcome, Worker};
use crate::io::{self, Limits, Request};
use crate::pointer::{self, Layout, Pointer};
use crate::queue::{Cq, InvalidDoorbell, Queues, Slot, Sq};
use crate::shared::{Message, Shared, add};
use crate::slab::Slab;

/// Commands taken from a queue at once.
const BATCH: usize = 32;
/// Operations that the store refused for now, above which no new commands are taken.
const MAX_PARKED: usize = 64;

/// What a step did, and when the next has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Commands taken, completions posted, messages and registers acted on. Above zero: step again soon.
    pub work: usize,
    /// Step again at that time at the latest. `None`: when a doorbell or register is written.
    pub next: Option<Nanos>,
}

impl Step {
    /// Both together.
    pub fn merge(&mut self, other: Step) {
        self.work += other.work;
        self.at(other.next);
    }

    pub(crate) fn at(&mut self, time: Option<Nanos>) {
        self.next = match (self.next, time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// A command that is not answered yet, and what is left to do.
struct Command {
    owner: Owner,
    /// The place of its namespace.
    place: usize,
    kind: Kind,
}

/// Who waits for a command.
pub(crate) enum Owner {
    Host(Slot),
    /// The controller: the flush of a shutdown.
    Shutdown,
}

enum Kind {
    /// One operation; its end is the command's.
    Single(Operation),
    /// A read into a buffer, for bit buckets.
    Scatter(Operation, Layout),
    Compare(Operation, Layout),
    /// The flush of one namespace, and the places of those that are left.
    Flush(Vec<usize>),
    /// The range in flight, and those that are left.
    Deallocate(Operation, Vec<(u64, u64)>),
    /// The firmware has it; where the reply goes, and whether it was cancelled for an Abort.
    NearData {
        layout: Layout,
        aborted: bool,
    },
}

/// The memory side of an operation, owned.
enum Payload {
    None,
    Spans(Vec<Span>),
    Buffer(IoBuffer),
}

/// An operation that the store (or another reactor's lock) refused for now.
struct Parked {
    command: Command,
    operation: Operation,
    payload: Payload,
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

/// One reactor of a controller; see the module.
pub struct Reactor<S: Store, F: Firmware<S> = ()> {
    id: usize,
    pub(crate) shared: Arc<Shared<S, F>>,
    pub(crate) queues: Queues,
    admin: Option<Box<Admin>>,
    attached: Attachments<S, F>,
    commands: Slab<Command>,
    parked: VecDeque<Parked>,
    batch: Vec<Prepared>,
    strangers: Vec<SubmissionEntry>,
    finished: Vec<(Token, Completion)>,
    answered: Vec<(Token, Outcome)>,
    layout: Layout,
    /// Submission queues that wait for their commands before they go, with the key to answer; without one, their completion queue goes as well.
    deleting: Vec<(u16, Option<usize>)>,
    /// A reset that waits for the operations in flight.
    resetting: Option<usize>,
    /// The flush of a shutdown has ended.
    pub(crate) shutdown_done: bool,
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    pub(crate) fn new(id: usize, shared: Arc<Shared<S, F>>) -> Self {
        Reactor {
            id,
            queues: Queues::new(),
            admin: (id == 0).then(|| Box::new(Admin::new(&shared))),
            attached: Attachments::new(),
            commands: Slab::new(),
            parked: VecDeque::new(),
            batch: Vec::with_capacity(BATCH),
            strangers: Vec::new(),
            finished: Vec::new(),
            answered: Vec::new(),
            layout: Layout::default(),
            deleting: Vec::new(),
            resetting: None,
            shutdown_done: false,
            shared,
        }
    }

    /// Makes a way into a namespace, if there is one of that identifier that the reactor is not attached to.
    pub(crate) fn attach(&mut self, nsid: u32) -> std::io::Result<Option<usize>> {
        let Some(namespace) = self.shared.subsystem.namespace(nsid) else { return Ok(None) };
        if let Some(place) = self.attached.find(nsid) {
            return Ok(Some(place));
        }
        Ok(Some(self.attached.insert(Attached::new(nsid, &namespace, &self.shared)?)))
    }

    /// The place of a command's namespace; one that is named for the first time is attached to.
    #[cold]
    pub(crate) fn look_up(&mut self, nsid: u32) -> Result<usize, Fault> {
        match self.attach(nsid) {
            Ok(Some(place)) => Ok(place),
            Ok(None) => Err(Fault::new(Status::INVALID_NAMESPACE).at(4, 0)),
            Err(_) => Err(Fault::transient(Status::NAMESPACE_NOT_READY)),
        }
    }

    /// The subsystem has changed: lets go of a namespace that is not there any more. What waits for it is refused, near-data commands
    /// are cancelled, and what the store works on is waited for.
    fn namespace_changed(&mut self, nsid: u32, now: Nanos) {
        let Some(place) = self.attached.find(nsid) else { return };
        let there = self.shared.subsystem.namespace(nsid);
        if there.is_some_and(|there| Arc::ptr_eq(&there, self.attached.at(place).access.namespace())) {
            return;
        }
        self.attached.leave(place);
        for _ in 0..self.parked.len() {
            let Some(parked) = self.parked.pop_front() else { break };
            if parked.command.place != place {
                self.parked.push_back(parked);
                continue;
            }
            self.attached.at(place).access.abandon(&parked.operation);
            match parked.command.owner {
                Owner::Host(slot) => self.fail(slot, nsid, &Fault::new(Status::INVALID_NAMESPACE), now),
                Owner::Shutdown => self.shutdown_done = true,
            }
        }
        self.cancel(|_, at| at == place, true);
    }

    /// Does what there is to do at time `now`.
    #[inline]
    pub fn step(&mut self, now: Nanos) -> Step {
        let mut step = Step::default();
        if self.shared.mailboxes[self.id].is_full() {
            step.work += self.read_mail(now);
        }
        if let Some(mut admin) = self.admin.take() {
            step.work += admin.step(self, now, &mut step);
            self.admin = Some(admin);
        }
        if !self.parked.is_empty() {
            step.work += self.retry(now);
            // The store has room again when something completes, and another reactor's lock is gone within a step of it.
            step.at(Some(now));
        }
        let active = if self.resetting.is_none() { self.queues.active.len() } else { 0 };
        for i in 0..active {
            step.work += self.serve(self.queues.active[i], now);
        }
        let (finished, answered) = (&mut self.finished, &mut self.answered);
        for Attached { access, worker, .. } in self.attached.iter_mut() {
            if access.in_flight() > 0 {
                step.at(access.poll(now, &mut |token, completion| finished.push((token, completion))));
            }
            let progress = worker.step(now, &mut |token, outcome| answered.push((token, outcome)));
            step.work += usize::from(progress.worked);
            step.at(progress.next);
        }
        if !self.finished.is_empty() {
            step.work += self.finish(now);
        }
        if !self.answered.is_empty() {
            step.work += self.deliver(now);
        }
        if self.queues.dirty != 0 {
            self.interrupt(now, &mut step);
        }
        if self.resetting.is_some() || !self.deleting.is_empty() {
            step.work += self.drain();
        }
        if self.attached.leaving > 0 {
            let (commands, parked) = (&self.commands, &self.parked);
            step.work += self.attached.clear_out(|place| {
                commands.iter().any(|c| c.place == place) || parked.iter().any(|p| p.command.place == place)
            });
        }
        step
    }

    /// Whether a step now would find nothing that the host or another reactor has done since the last: asked once
    /// more after arming the wake-up, before sleeping.
    pub fn is_quiet(&self) -> bool {
        let registers = self.shared.registers();
        !self.shared.mailboxes[self.id].is_full()
            && self.admin.as_ref().is_none_or(|admin| admin.is_quiet(&self.queues, registers))
            && self.queues.active.iter().all(|&id| self.queues.is_quiet(id, registers))
    }

    /// Takes a batch from a submission queue, checks it, executes it.
    #[inline]
    fn serve(&mut self, id: u16, now: Nanos) -> usize {
        let shared = &*self.shared;
        let registers = shared.registers();
        let Queues { sqs, cqs, .. } = &mut self.queues;
        let Some(Some(sq)) = sqs.get_mut(usize::from(id)) else { return 0 };
        let waiting = match sq.waiting(registers) {
            Ok(0) => return 0,
            Ok(waiting) => waiting,
            Err(InvalidDoorbell) => return self.bad_doorbell(),
        };
        if sq.deleting || self.parked.len() >= MAX_PARKED {
            return 0;
        }
        let Some(Some(cq)) = cqs.get_mut(usize::from(sq.cq)) else { return 0 };
        let count = match cq.reserve(waiting.min(BATCH as u32), registers) {
            Ok(count) => count,
            Err(InvalidDoorbell) => return self.bad_doorbell(),
        };
        let write_through = shared.write_through.load(Ordering::Relaxed);
        let memory = &*shared.function.memory;
        sq.in_flight += count;
        for _ in 0..count {
            let entry = sq.take();
            let place = self.attached.find(entry.nsid());
            let Some((place, attached)) = place.and_then(|p| Some((p, self.attached.get(p)?))) else {
                self.strangers.push(entry);
                continue;
            };
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
                    attached.access.prefetch(offset, len);
                }
                prepared.count = pointer::short(memory, pointer, *len, &mut prepared.spans).unwrap_or(0);
            }
            self.batch.push(prepared);
        }
        let mut batch = std::mem::take(&mut self.batch);
        for prepared in batch.drain(..) {
            let slot = Slot { sq: id, cid: prepared.cid };
            match prepared.request {
                Ok(Request::Transfer { operation, .. }) if prepared.count > 0 => {
                    let spans = prepared.spans.get(..prepared.count).unwrap_or(&[]);
                    self.transfer(slot, prepared.place, operation, spans, now);
                }
                Ok(request) => {
                    if let Err((slot, fault)) = self.execute(slot, prepared.place, &request, now) {
                        self.fail(slot, prepared.nsid, &fault, now);
                    }
                }
                Err(fault) => self.fail(slot, prepared.nsid, &fault, now),
            }
        }
        self.batch = batch;
        if !self.strangers.is_empty() {
            self.meet_strangers(id, write_through, now);
        }
        count as usize
    }

    /// Commands of namespaces that the reactor is not attached to.
    #[cold]
    fn meet_strangers(&mut self, id: u16, write_through: bool, now: Nanos) {
        for entry in std::mem::take(&mut self.strangers) {
            let slot = Slot { sq: id, cid: entry.cid() };
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
            let done = match done {
                Ok((place, request)) => self.execute(slot, place, &request, now),
                Err(fault) => Err((slot, fault)),
            };
            if let Err((slot, fault)) = done {
                self.fail(slot, entry.nsid(), &fault, now);
            }
        }
    }

    fn bad_doorbell(&self) -> usize {
        let information = nearside_spec::log::event::INVALID_DOORBELL_VALUE;
        self.tell(0, Message::ErrorEvent { information });
        1
    }

    /// A read or write whose data are known.
    #[inline]
    fn transfer(&mut self, slot: Slot, place: usize, operation: Operation, spans: &[Span], now: Nanos) {
        let token = Token(self.commands.next_key() as u64);
        match self.attached.at(place).access.submit(operation, Data::Spans(spans), token, now) {
            Submitted::Done(Completion { result: Ok(()), .. }) => {
                self.count(&operation);
                self.queues.answer(slot, 0, Status::SUCCESS, now);
            }
            Submitted::Done(Completion { result: Err(StoreError::Busy), .. }) => {
                let command = Command { owner: Owner::Host(slot), place, kind: Kind::Single(operation) };
                self.parked.push_back(Parked { command, operation, payload: Payload::Spans(spans.to_vec()) });
            }
            Submitted::Done(Completion { result: Err(error), .. }) => {
                self.store_failed(Owner::Host(slot), place, &operation, &error, now);
            }
            Submitted::Pending => {
                let kind = Kind::Single(operation);
                self.commands.insert(Command { owner: Owner::Host(slot), place, kind });
            }
        }
    }

    /// Any other command, and transfers whose data pointer has to be walked.
    fn execute(
        &mut self,
        slot: Slot,
        place: usize,
        request: &Request,
        now: Nanos,
    ) -> Result<(), (Slot, Fault)> {
        let mut layout = Layout::default();
        let (kind, payload) = match *request {
            Request::Transfer { operation, len, pointer } => {
                let from_host = matches!(operation, Operation::Write { .. });
                let mut layout = std::mem::take(&mut self.layout);
                let walked =
                    pointer::walk(&self.shared.function.memory, &pointer, len, from_host, &mut layout);
                if let Err(fault) = walked {
                    self.layout = layout;
                    return Err((slot, fault));
                }
                if layout.buckets.is_empty() {
                    self.transfer(slot, place, operation, &layout.spans, now);
                    self.layout = layout;
                    return Ok(());
                }
                match IoBuffer::new(len) {
                    Ok(buffer) => (Kind::Scatter(operation, layout), Payload::Buffer(buffer)),
                    Err(_) => return Err((slot, Fault::transient(Status::INTERNAL_ERROR))),
                }
            }
            Request::Plain { operation } => (Kind::Single(operation), Payload::None),
            Request::FlushAll => {
                self.flush_all(Owner::Host(slot), now);
                return Ok(());
            }
            Request::Compare { offset, len, pointer } => {
                if let Err(fault) =
                    pointer::walk(&self.shared.function.memory, &pointer, len, true, &mut layout)
                {
                    return Err((slot, fault));
                }
                match IoBuffer::new(len) {
                    Ok(buffer) => {
                        let operation = Operation::Read { offset, len: len as u64 };
                        (Kind::Compare(operation, layout), Payload::Buffer(buffer))
                    }
                    Err(_) => return Err((slot, Fault::transient(Status::INTERNAL_ERROR))),
                }
            }
            Request::Deallocate { ranges, pointer } | Request::Hints { ranges, pointer } => {
                let mut list = vec![0; ranges * nearside_spec::data::DsmRange::SIZE];
                if let Err(fault) =
                    pointer::walk(&self.shared.function.memory, &pointer, list.len(), true, &mut layout)
                {
                    return Err((slot, fault));
                }
                layout.gather(&self.shared.function.memory, &mut list);
                let mut ranges = match io::dsm_ranges(&list, &self.attached.at(place).limits) {
                    Ok(ranges) => ranges,
                    Err(fault) => return Err((slot, fault)),
                };
                ranges.reverse();
                match ranges.pop() {
                    Some((offset, len)) if matches!(request, Request::Deallocate { .. }) => {
                        (Kind::Deallocate(Operation::Deallocate { offset, len }, ranges), Payload::None)
                    }
                    _ => {
                        self.queues.answer(slot, 0, Status::SUCCESS, now);
                        return Ok(());
                    }
                }
            }
            Request::NearData { door, request, room, pointer } => {
                return self.near_data(slot, place, door, request, room, &pointer, now);
            }
        };
        self.run(Command { owner: Owner::Host(slot), place, kind }, payload, now);
        Ok(())
    }

    /// Hands a near-data command to the firmware. `request`: bytes that the host gives; `room`: bytes it takes.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn near_data(
        &mut self,
        slot: Slot,
        place: usize,
        door: Door,
        request: usize,
        room: usize,
        pointer: &Pointer,
        now: Nanos,
    ) -> Result<(), (Slot, Fault)> {
        let memory = &self.shared.function.memory;
        let mut layout = Layout::default();
        let from_host = request > 0;
        if let Err(fault) = pointer::walk(memory, pointer, request.max(room), from_host, &mut layout) {
            return Err((slot, fault));
        }
        let mut bytes = vec![0; request];
        layout.gather(memory, &mut bytes);
        let token = Token(self.commands.next_key() as u64);
        match self.attached.at(place).worker.start(Job { token, door, request: bytes, room }, now) {
            Ok(()) => {
                add(&self.shared.counters[self.id].near_data, 1);
                let kind = Kind::NearData { layout, aborted: false };
                self.commands.insert(Command { owner: Owner::Host(slot), place, kind });
                Ok(())
            }
            Err(status) => Err((slot, Fault::transient(status))),
        }
    }

    /// Runs a command's operations until one is pending or the command is answered.
    fn run(&mut self, mut command: Command, mut payload: Payload, now: Nanos) {
        loop {
            let operation = match command.kind {
                Kind::Single(operation)
                | Kind::Scatter(operation, _)
                | Kind::Compare(operation, _)
                | Kind::Deallocate(operation, _) => operation,
                Kind::Flush(_) => Operation::Flush,
                Kind::NearData { .. } => panic!("near-data commands have no operation of their own"),
            };
            let token = Token(self.commands.next_key() as u64);
            let spans = match &mut payload {
                Payload::Spans(spans) => std::mem::take(spans),
                Payload::None | Payload::Buffer(_) => Vec::new(),
            };
            let data = match payload {
                Payload::None => Data::None,
                Payload::Spans(_) => Data::Spans(&spans),
                Payload::Buffer(buffer) => Data::Owned(buffer),
            };
            match self.attached.at(command.place).access.submit(operation, data, token, now) {
                Submitted::Done(Completion { result: Err(StoreError::Busy), buffer }) => {
                    let payload = match buffer {
                        Some(buffer) => Payload::Buffer(buffer),
                        None if spans.is_empty() => Payload::None,
                        None => Payload::Spans(spans),
                    };
                    self.parked.push_back(Parked { command, operation, payload });
                    return;
                }
                Submitted::Done(completion) => match self.completed(command, completion, now) {
                    Some(next) => (command, payload) = (next, Payload::None),
                    None => return,
                },
                Submitted::Pending => {
                    self.commands.insert(command);
                    return;
                }
            }
        }
    }

    /// An operation of a command has ended: answers the command, or returns it with its next operation.
    fn completed(&mut self, command: Command, completion: Completion, now: Nanos) -> Option<Command> {
        let Command { owner, place, kind } = command;
        let (operation, status) = match (kind, completion.result) {
            (
                Kind::Single(operation)
                | Kind::Scatter(operation, _)
                | Kind::Compare(operation, _)
                | Kind::Deallocate(operation, _),
                Err(error),
            ) => {
                self.store_failed(owner, place, &operation, &error, now);
                return None;
            }
            (Kind::Flush(_), Err(error)) => {
                self.store_failed(owner, place, &Operation::Flush, &error, now);
                return None;
            }
            (Kind::Flush(mut left), Ok(())) => match self.next_to_flush(&mut left) {
                Some(place) if self.resetting.is_none() => {
                    return Some(Command { owner, place, kind: Kind::Flush(left) });
                }
                _ => (Operation::Flush, Status::SUCCESS),
            },
            (Kind::Single(operation), Ok(())) => (operation, Status::SUCCESS),
            (Kind::Scatter(operation, layout), Ok(())) => {
                let buffer = completion.buffer.as_deref().unwrap_or(&[]);
                if self.resetting.is_none() {
                    layout.scatter(&self.shared.function.memory, buffer);
                }
                (operation, Status::SUCCESS)
            }
            (Kind::Compare(operation, layout), Ok(())) => {
                let buffer = completion.buffer.as_deref().unwrap_or(&[]);
                let same = io::equal(&self.shared.function.memory, &layout, buffer);
                (operation, if same { Status::SUCCESS } else { Status::COMPARE_FAILURE })
            }
            (Kind::Deallocate(operation, mut ranges), Ok(())) => match ranges.pop() {
                Some(_) if self.resetting.is_none() && self.attached.at(place).gone => {
                    (operation, Status::INVALID_NAMESPACE)
                }
                Some((offset, len)) if self.resetting.is_none() => {
                    let operation = Operation::Deallocate { offset, len };
                    return Some(Command { owner, place, kind: Kind::Deallocate(operation, ranges) });
                }
                _ => (operation, Status::SUCCESS),
            },
            (Kind::NearData { .. }, _) => panic!("the store completed a near-data command"),
        };
        self.count(&operation);
        match owner {
            Owner::Host(slot) if status == Status::SUCCESS => self.conclude(slot, 0, status, now),
            Owner::Host(slot) => {
                let nsid = self.attached.at(place).nsid;
                self.fail(slot, nsid, &Fault::transient(status), now);
            }
            Owner::Shutdown => self.shutdown_done = true,
        }
        None
    }

    /// Operations that the store has finished.
    fn finish(&mut self, now: Nanos) -> usize {
        let mut finished = std::mem::take(&mut self.finished);
        let count = finished.len();
        for (Token(key), completion) in finished.drain(..) {
            let Some(command) = self.commands.remove(key as usize) else {
                panic!("the store completed an unknown operation: {key}");
            };
            if let Some(command) = self.completed(command, completion, now) {
                self.run(command, Payload::None, now);
            }
        }
        self.finished = finished;
        count
    }

    /// Near-data commands that the firmware has finished.
    fn deliver(&mut self, now: Nanos) -> usize {
        let mut answered = std::mem::take(&mut self.answered);
        let count = answered.len();
        for (Token(key), outcome) in answered.drain(..) {
            let Some(Command { owner: Owner::Host(slot), place, kind: Kind::NearData { layout, aborted } }) =
                self.commands.remove(key as usize)
            else {
                panic!("the firmware answered an unknown command: {key}");
            };
            if self.resetting.is_some() {
                slot.forget();
            } else if aborted {
                self.conclude(slot, 0, Status::ABORT_REQUESTED, now);
            } else if outcome.status.is_success() {
                layout.scatter(&self.shared.function.memory, &outcome.reply);
                self.conclude(slot, outcome.result.into(), outcome.status, now);
            } else {
                let nsid = self.attached.at(place).nsid;
                self.fail(slot, nsid, &Fault::transient(outcome.status), now);
            }
        }
        self.answered = answered;
        count
    }

    /// Tries once more what was refused.
    fn retry(&mut self, now: Nanos) -> usize {
        let before = self.parked.len();
        for _ in 0..before {
            let Some(Parked { command, payload, .. }) = self.parked.pop_front() else { break };
            self.run(command, payload, now);
        }
        before - self.parked.len().min(before)
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
        let mut fault = fault::of_store(error, operation);
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

    /// Answers a command, unless its queues are about to go.
    pub(crate) fn conclude(&mut self, slot: Slot, result: u64, status: Status, now: Nanos) {
        if self.resetting.is_some() { slot.forget() } else { self.queues.answer(slot, result, status, now) }
    }

    /// Answers a command with an error, which the error log keeps.
    #[cold]
    pub(crate) fn fail(&mut self, slot: Slot, nsid: u32, fault: &Fault, now: Nanos) {
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

    /// Sends a message to a reactor and sees to it that it wakes up.
    pub(crate) fn tell(&self, reactor: usize, message: Message) {
        self.shared.mailboxes[reactor].send(message);
        if reactor != self.id {
            self.shared.function.wakeup.ring();
        }
    }

    fn read_mail(&mut self, now: Nanos) -> usize {
        let messages = self.shared.mailboxes[self.id].take();
        let count = messages.len();
        for message in messages {
            match message {
                Message::CreateCq { id, vector, ring, key } => {
                    self.queues.cqs[usize::from(id)] = Some(Box::new(Cq::new(id, vector, ring)));
                    self.tell(0, Message::Done { key, result: 0 });
                }
                Message::CreateSq { id, cq, ring, key } => {
                    self.queues.sqs[usize::from(id)] = Some(Box::new(Sq::new(id, cq, ring)));
                    self.queues.active.push(id);
                    self.tell(0, Message::Done { key, result: 0 });
                }
                Message::DeleteSq { id, key } => {
                    if let Some(Some(sq)) = self.queues.sqs.get_mut(usize::from(id)) {
                        sq.deleting = true;
                    }
                    self.deleting.push((id, Some(key)));
                    self.cancel(|slot, _| slot.sq == id, false);
                }
                Message::DeleteCq { id, key } => {
                    self.queues.cqs[usize::from(id)] = None;
                    self.queues.dirty &= !(1 << id);
                    self.tell(0, Message::Done { key, result: 0 });
                }
                Message::Abort { sq, cid, key } => {
                    let found = self.cancel(|slot, _| slot.sq == sq && slot.cid == cid, true);
                    self.tell(0, Message::Done { key, result: u32::from(!found) });
                }
                Message::Reset { key } => {
                    self.resetting = Some(key);
                    for Parked { command, operation, .. } in self.parked.drain(..) {
                        self.attached.at(command.place).access.abandon(&operation);
                        match command.owner {
                            Owner::Host(slot) => slot.forget(),
                            Owner::Shutdown => self.shutdown_done = true,
                        }
                    }
                    self.cancel(|_, _| true, false);
                }
                Message::Namespace { nsid } => {
                    self.namespace_changed(nsid, now);
                    if let Some(admin) = &mut self.admin {
                        admin.namespace_changed(nsid);
                    }
                }
                Message::Done { .. }
                | Message::ErrorEvent { .. }
                | Message::Pair { .. }
                | Message::Published { .. } => {
                    if let Some(mut admin) = self.admin.take() {
                        admin.hear(self, message, now);
                        self.admin = Some(admin);
                    }
                }
            }
        }
        count
    }

    /// Cancels the near-data commands that `which` names, by slot and place.
    fn cancel(&mut self, which: impl Fn(&Slot, usize) -> bool, abort: bool) -> bool {
        let mut found = false;
        for (key, command) in self.commands.iter_mut() {
            if let (Owner::Host(slot), Kind::NearData { aborted, .. }) = (&command.owner, &mut command.kind)
                && which(slot, command.place)
            {
                found = true;
                *aborted |= abort;
                self.attached.at(command.place).worker.cancel(Token(key as u64));
            }
        }
        found
    }

    /// The pair goes when what was taken from it has ended.
    pub(crate) fn stop_pair(&mut self, id: u16) {
        self.deleting.push((id, None));
        self.cancel(|slot, _| slot.sq == id, false);
    }

    /// Commands that the store or the firmware works on.
    pub fn in_flight(&self) -> usize {
        self.commands.len() + self.parked.len()
    }

    /// The host is gone: its near-data commands end soon. What the store works on ends when it does ([`Reactor::in_flight`]).
    pub fn abandon(&mut self) {
        self.cancel(|_, _| true, false);
    }

    /// Ends deletions and resets that waited for commands in flight.
    fn drain(&mut self) -> usize {
        let (mut done, mut closed) = (Vec::new(), Vec::new());
        if let Some(key) = self.resetting {
            if self.commands.len() > 0 {
                return 0;
            }
            done.extend(self.deleting.drain(..).filter_map(|(_, key)| key));
            self.queues.clear();
            self.resetting = None;
            done.push(key);
        } else {
            let queues = &mut self.queues;
            self.deleting.retain(|&(id, key)| {
                let at = usize::from(id);
                if queues.sqs[at].as_ref().is_some_and(|sq| sq.in_flight > 0) {
                    return true;
                }
                queues.sqs[at] = None;
                queues.active.retain(|&other| other != id);
                match key {
                    Some(key) => done.push(key),
                    None => {
                        queues.cqs[at] = None;
                        queues.dirty &= !(1 << id);
                        closed.push(id);
                    }
                }
                false
            });
        }
        for &key in &done {
            self.tell(0, Message::Done { key, result: 0 });
        }
        for &id in &closed {
            self.tell(0, Message::Pair { id, there: false });
        }
        done.len() + closed.len()
    }

    /// Begins the flush of a shutdown; [`Reactor::shutdown_done`] says when it has ended.
    pub(crate) fn flush_for_shutdown(&mut self, now: Nanos) {
        self.shutdown_done = false;
        self.flush_all(Owner::Shutdown, now);
    }

    /// Flushes all namespaces, one after the other. Those that the reactor never was attached to are flushed as well: others wrote.
    fn flush_all(&mut self, owner: Owner, now: Nanos) {
        for (nsid, namespace) in self.shared.subsystem.namespaces() {
            // Without a way in, the flush would be a lie.
            if !namespace.read_only()
                && let Err(fault) = self.look_up(nsid)
                && fault.status.code() != Status::INVALID_NAMESPACE
            {
                match owner {
                    Owner::Host(slot) => self.fail(slot, nsid, &fault, now),
                    Owner::Shutdown => self.shutdown_done = true,
                }
                return;
            }
        }
        let mut left: Vec<usize> = self.attached.present().collect();
        match (self.next_to_flush(&mut left), owner) {
            (Some(place), owner) => {
                self.run(Command { owner, place, kind: Kind::Flush(left) }, Payload::None, now);
            }
            (None, Owner::Host(slot)) => self.conclude(slot, 0, Status::SUCCESS, now),
            (None, Owner::Shutdown) => self.shutdown_done = true,
        }
    }

    /// The next of the places that still is a namespace's.
    fn next_to_flush(&self, left: &mut Vec<usize>) -> Option<usize> {
        while let Some(place) = left.pop() {
            if self.attached.get(place).is_some_and(|a| !a.gone) {
                return Some(place);
            }
        }
        None
    }
}

/// A drive may go while commands are out: nobody is left to answer to.
impl<S: Store, F: Firmware<S>> Drop for Reactor<S, F> {
    fn drop(&mut self) {
        if let Some(admin) = &mut self.admin {
            admin.forget();
        }
        let parked = self.parked.drain(..).map(|parked| parked.command);
        for command in parked.chain(self.commands.drain()) {
            if let Owner::Host(slot) = command.owner {
                slot.forget();
            }
        }
    }
}
