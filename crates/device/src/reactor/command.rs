//! A command from its execution to its answer: operations of the store one after the other, or a job of the
//! firmware's.

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Span};
use nearside_spec::Status;
use nearside_store::{Completion, Data, Operation, Store, StoreError, Submitted, Token};

use super::Reactor;
use super::memory::Filling;
use crate::fault::Fault;
use crate::firmware::{Firmware, Job, NearDataCommand, Worker};
use crate::io::{self, Request};
use crate::namespace::mutation;
use crate::pointer::{self, Layout, Pointer};
use crate::queue::CompletionSlot;
use crate::shared::add;
use crate::traffic::Kind;

/// A command that is not answered yet, and what is left to do.
pub(super) struct Command {
    pub(super) owner: Owner,
    /// The place of its namespace.
    pub(super) place: usize,
    pub(super) kind: CommandKind,
    /// When it was taken.
    pub(super) begun: Nanos,
}

/// Who waits for a command.
pub(crate) enum Owner {
    Host(CompletionSlot),
    /// The controller: the flush of a shutdown.
    Shutdown,
}

pub(super) enum CommandKind {
    /// One operation; its end is the command's.
    Single(Operation),
    /// A read into a buffer, for bit buckets.
    Scatter(Operation, Layout),
    Compare(Operation, Layout),
    /// The flush of one namespace, and the places of those that are left.
    Flush(Vec<usize>),
    /// The range in flight, and those that are left.
    Deallocate(Operation, Vec<(u64, u64)>),
    /// The piece in flight of what fills memory, and what is left.
    Fill(Operation, Box<Filling>),
    /// The firmware has it; where the reply goes and how long it may be, and whether it was cancelled for an
    /// Abort.
    NearData {
        layout: Layout,
        room: usize,
        aborted: bool,
    },
}

/// The memory side of an operation, owned.
pub(super) enum Payload {
    None,
    Spans(Vec<Span>),
    Buffer(IoBuffer),
}

/// An operation that the store (or another reactor's lock) refused for now.
pub(super) struct Parked {
    pub(super) command: Command,
    pub(super) operation: Operation,
    pub(super) payload: Payload,
}

/// The buffer that a read went to.
fn read_into(buffer: &Option<IoBuffer>) -> &[u8] {
    match buffer {
        Some(buffer) => buffer,
        None => panic!("a read ended without its buffer"),
    }
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    /// Any other command, and transfers whose data pointer has to be walked; when it was taken from its
    /// queue, and the time now.
    pub(super) fn execute(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        request: &Request,
        (begun, now): (Nanos, Nanos),
    ) -> Result<(), (CompletionSlot, Fault)> {
        if let Err(fault) = self.admits(place, request) {
            return Err((slot, fault));
        }
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
                    self.transfer(slot, place, operation, &layout.spans, (begun, now));
                    self.layout = layout;
                    return Ok(());
                }
                match IoBuffer::new(len) {
                    Ok(buffer) => (CommandKind::Scatter(operation, layout), Payload::Buffer(buffer)),
                    Err(_) => return Err((slot, Fault::transient(Status::INTERNAL_ERROR))),
                }
            }
            Request::Plain { operation } => (CommandKind::Single(operation), Payload::None),
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
                        (CommandKind::Compare(operation, layout), Payload::Buffer(buffer))
                    }
                    Err(_) => return Err((slot, Fault::transient(Status::INTERNAL_ERROR))),
                }
            }
            Request::Deallocate { ranges, pointer } | Request::Hints { ranges, pointer } => {
                let mut ranges = match self.ranges(place, ranges, &pointer) {
                    Ok(ranges) => ranges,
                    Err(fault) => return Err((slot, fault)),
                };
                match ranges.pop() {
                    Some((offset, len)) if matches!(request, Request::Deallocate { .. }) => (
                        CommandKind::Deallocate(Operation::Deallocate { offset, len }, ranges),
                        Payload::None,
                    ),
                    _ => {
                        self.note(place, (Kind::Other, 0), begun);
                        self.trace_answer(place);
                        self.queues.answer(slot, 0, Status::SUCCESS, now);
                        return Ok(());
                    }
                }
            }
            _ => return self.execute_other(slot, place, request, (begun, now)),
        };
        self.run(Command { owner: Owner::Host(slot), place, kind, begun }, payload, now);
        Ok(())
    }

    /// Commands that are not one operation after the other of their namespace's store.
    fn execute_other(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        request: &Request,
        (begun, now): (Nanos, Nanos),
    ) -> Result<(), (CompletionSlot, Fault)> {
        match *request {
            Request::NearData { command, request, room, pointer } => {
                self.near_data(slot, place, command, request, room, &pointer, now)
            }
            Request::Reservation { command, len, pointer } => {
                self.reserve(slot, place, (command, len, pointer), now)
            }
            _ => self.fill(slot, place, request, (begun, now)),
        }
    }

    /// The ranges of a Dataset Management command, the last first.
    fn ranges(&mut self, place: usize, count: usize, from: &Pointer) -> Result<Vec<(u64, u64)>, Fault> {
        let mut list = vec![0; count * nearside_spec::data::DsmRange::SIZE];
        let mut layout = Layout::default();
        pointer::walk(&self.shared.function.memory, from, list.len(), true, &mut layout)?;
        layout.gather(&self.shared.function.memory, &mut list);
        let mut ranges = io::dsm_ranges(&list, &self.attached.at(place).limits)?;
        ranges.reverse();
        Ok(ranges)
    }

    /// Hands a near-data command to the firmware. `request`: bytes that the host gives; `room`: bytes it
    /// takes.
    #[allow(clippy::too_many_arguments, reason = "a command, and where its bytes are")]
    pub(crate) fn near_data(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        command: NearDataCommand,
        request: usize,
        room: usize,
        pointer: &Pointer,
        now: Nanos,
    ) -> Result<(), (CompletionSlot, Fault)> {
        let memory = &self.shared.function.memory;
        let mut layout = Layout::default();
        let from_host = request > 0;
        if let Err(fault) = pointer::walk(memory, pointer, request.max(room), from_host, &mut layout) {
            return Err((slot, fault));
        }
        let mut bytes = vec![0; request];
        layout.gather(memory, &mut bytes);
        let token = Token(self.commands.vacant_key() as u64);
        let attached = self.attached.at(place);
        let account = attached.account.clone();
        let job = Job { token, queue: slot.sq, command, request: bytes, room, account };
        match attached.worker.start(job, now) {
            Ok(()) => {
                add(&self.shared.counters[self.id].near_data, 1);
                let kind = CommandKind::NearData { layout, room, aborted: false };
                self.keep(token, Command { owner: Owner::Host(slot), place, kind, begun: now });
                Ok(())
            }
            Err(status) => Err((slot, Fault::transient(status))),
        }
    }

    /// Runs a command's operations until one is pending or the command is answered.
    pub(super) fn run(&mut self, mut command: Command, mut payload: Payload, now: Nanos) {
        loop {
            let operation = match command.kind {
                CommandKind::Single(operation)
                | CommandKind::Scatter(operation, _)
                | CommandKind::Compare(operation, _)
                | CommandKind::Fill(operation, _)
                | CommandKind::Deallocate(operation, _) => operation,
                CommandKind::Flush(_) => Operation::Flush,
                CommandKind::NearData { .. } => panic!("near-data commands have no operation of their own"),
            };
            if operation == Operation::Flush && self.overtakes(command.place) {
                self.parked.push_back(Parked { command, operation, payload });
                return;
            }
            if !self.attached.at(command.place).limits.allow(&operation) {
                return self.beyond_the_end(command, &operation, now);
            }
            let token = Token(self.commands.vacant_key() as u64);
            let spans = match &mut payload {
                Payload::Spans(spans) => std::mem::take(spans),
                Payload::None | Payload::Buffer(_) => Vec::new(),
            };
            let data = match payload {
                Payload::None => Data::None,
                Payload::Spans(_) => Data::Spans(&spans),
                Payload::Buffer(buffer) => Data::Owned(buffer),
            };
            match self.attached.at(command.place).submit(operation, data, token, now) {
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
                    Some(next) => (command, payload) = next,
                    None => return,
                },
                Submitted::Pending => {
                    self.keep(token, command);
                    return;
                }
            }
        }
    }

    /// The namespace has become shorter since the command was taken.
    #[cold]
    fn beyond_the_end(&mut self, command: Command, operation: &Operation, now: Nanos) {
        let attached = self.attached.at(command.place);
        // It may have waited for another reactor's lock.
        attached.access.abandon(operation);
        let (nsid, shift) = (attached.nsid, attached.limits.lba_shift);
        let mut fault = Fault::new(Status::LBA_OUT_OF_RANGE);
        if let Some((offset, _)) = operation.range() {
            fault = fault.lba(offset >> shift);
        }
        match command.owner {
            Owner::Host(slot) => self.fail(slot, nsid, &fault, now),
            Owner::Shutdown => self.shutdown_done = true,
        }
    }

    /// Whether a flush that went on now would come before a mutation that was refused for now, and was taken
    /// before it ([`crate::flush_order`]).
    fn overtakes(&self, place: usize) -> bool {
        let before = self.parked.iter().skip(self.untried);
        before.into_iter().any(|p| p.command.place == place && mutation(&p.operation).is_some())
    }

    /// An operation of a command has ended: answers the command, or returns it with its next operation.
    fn completed(
        &mut self,
        command: Command,
        completion: Completion,
        now: Nanos,
    ) -> Option<(Command, Payload)> {
        let Command { owner, place, kind, begun } = command;
        let (operation, status) = match (kind, completion.result) {
            (
                CommandKind::Single(operation)
                | CommandKind::Scatter(operation, _)
                | CommandKind::Compare(operation, _)
                | CommandKind::Fill(operation, _)
                | CommandKind::Deallocate(operation, _),
                Err(error),
            ) => {
                self.store_failed(owner, place, &operation, &error, now);
                return None;
            }
            (CommandKind::Flush(_), Err(error)) => {
                self.store_failed(owner, place, &Operation::Flush, &error, now);
                return None;
            }
            (CommandKind::Flush(mut left), Ok(())) => match self.next_to_flush(&mut left) {
                Some(place) if self.resetting.is_none() => {
                    let kind = CommandKind::Flush(left);
                    return Some((Command { owner, place, kind, begun }, Payload::None));
                }
                _ => (Operation::Flush, Status::SUCCESS),
            },
            (CommandKind::Single(operation), Ok(())) => (operation, Status::SUCCESS),
            (CommandKind::Scatter(operation, layout), Ok(())) => {
                let buffer = read_into(&completion.buffer);
                if self.resetting.is_none() {
                    layout.scatter(&self.shared.function.memory, buffer);
                }
                (operation, Status::SUCCESS)
            }
            (CommandKind::Compare(operation, layout), Ok(())) => {
                let buffer = read_into(&completion.buffer);
                let same = io::equal(&self.shared.function.memory, &layout, buffer);
                (operation, if same { Status::SUCCESS } else { Status::COMPARE_FAILURE })
            }
            (CommandKind::Deallocate(operation, mut ranges), Ok(())) => match ranges.pop() {
                Some(_) if self.resetting.is_none() && self.attached.at(place).removed => {
                    (operation, Status::INVALID_NAMESPACE)
                }
                Some((offset, len)) if self.resetting.is_none() => {
                    let operation = Operation::Deallocate { offset, len };
                    let kind = CommandKind::Deallocate(operation, ranges);
                    return Some((Command { owner, place, kind, begun }, Payload::None));
                }
                _ => (operation, Status::SUCCESS),
            },
            (CommandKind::Fill(operation, filling), Ok(())) => {
                return self.piece_done((owner, begun), (operation, filling), completion.buffer, now);
            }
            (CommandKind::NearData { .. }, _) => panic!("the store completed a near-data command"),
        };
        self.count(&operation);
        match owner {
            Owner::Host(slot) if status == Status::SUCCESS => {
                self.note(place, Kind::of(&operation), begun);
                self.trace_answer(place);
                self.conclude(slot, 0, status, now);
            }
            Owner::Host(slot) => {
                let nsid = self.attached.at(place).nsid;
                self.fail(slot, nsid, &Fault::transient(status), now);
            }
            Owner::Shutdown => self.shutdown_done = true,
        }
        None
    }

    /// Operations that the store has finished.
    pub(super) fn finish(&mut self, now: Nanos) -> usize {
        let mut finished = std::mem::take(&mut self.finished);
        let count = finished.len();
        for (Token(key), completion) in finished.drain(..) {
            let Some(command) = self.commands.try_remove(key as usize) else {
                panic!("the store completed an unknown operation: {key}");
            };
            if let Some((command, payload)) = self.completed(command, completion, now) {
                self.run(command, payload, now);
            }
        }
        self.finished = finished;
        count
    }

    /// Near-data commands that the firmware has finished.
    pub(super) fn deliver(&mut self, now: Nanos) -> usize {
        let mut answered = std::mem::take(&mut self.answered);
        let count = answered.len();
        for (Token(key), outcome) in answered.drain(..) {
            let Some(Command {
                owner: Owner::Host(slot),
                place,
                kind: CommandKind::NearData { layout, room, aborted },
                begun,
            }) = self.commands.try_remove(key as usize)
            else {
                panic!("the firmware answered an unknown command: {key}");
            };
            if self.resetting.is_some() {
                slot.forget();
            } else if aborted {
                self.conclude(slot, 0, Status::ABORT_REQUESTED, now);
            } else if outcome.status.is_success() {
                // What the host gave is not overwritten by what it did not ask for.
                let reply = &outcome.reply[..outcome.reply.len().min(room)];
                layout.scatter(&self.shared.function.memory, reply);
                self.note(place, (Kind::NearData, reply.len() as u64), begun);
                self.trace_answer(place);
                self.conclude(slot, outcome.result, outcome.status, now);
            } else {
                let nsid = self.attached.at(place).nsid;
                self.fail(slot, nsid, &Fault::transient(outcome.status), now);
            }
        }
        self.answered = answered;
        count
    }

    /// Tries once more what was refused.
    pub(super) fn retry(&mut self, now: Nanos) -> usize {
        let before = self.parked.len();
        for tried in 1..=before {
            let Some(Parked { command, payload, .. }) = self.parked.pop_front() else { break };
            self.untried = before - tried;
            self.run(command, payload, now);
        }
        before - self.parked.len().min(before)
    }

    /// Begins the flush of a shutdown; [`Reactor::shutdown_done`] says when it has ended.
    pub(crate) fn flush_for_shutdown(&mut self, now: Nanos) {
        self.shutdown_done = false;
        self.flush_all(Owner::Shutdown, now);
    }

    /// Flushes all namespaces, one after the other. Those that the reactor never was attached to are flushed
    /// as well: others wrote.
    fn flush_all(&mut self, owner: Owner, now: Nanos) {
        let denied = self.shared.namespaces().into_iter().find_map(|(nsid, namespace)| {
            if let Some(status) = self.shared.bars(nsid) {
                return Some((nsid, Fault::transient(status)));
            }
            if namespace.reservations().held() == 0 {
                return None;
            }
            let (_, standing) = namespace.reservations().standing(self.shared.host_id());
            Some((nsid, standing.admits(&Request::FlushAll).err()?))
        });
        let owner = match (owner, denied) {
            (Owner::Host(slot), Some((nsid, fault))) => return self.fail(slot, nsid, &fault, now),
            (owner, _) => owner,
        };
        for (nsid, namespace) in self.shared.namespaces() {
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
                let kind = CommandKind::Flush(left);
                self.run(Command { owner, place, kind, begun: now }, Payload::None, now);
            }
            (None, Owner::Host(slot)) => self.conclude(slot, 0, Status::SUCCESS, now),
            (None, Owner::Shutdown) => self.shutdown_done = true,
        }
    }

    /// The next of the places that still is a namespace's.
    fn next_to_flush(&self, left: &mut Vec<usize>) -> Option<usize> {
        while let Some(place) = left.pop() {
            if self.attached.get(place).is_some_and(|a| !a.removed) {
                return Some(place);
            }
        }
        None
    }
}
