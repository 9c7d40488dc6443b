//! What others ask of a reactor: queues that come and go, aborts, a reset, namespaces that change.

use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_spec::Status;
use nearside_store::{Store, Token};

use super::Reactor;
use super::command::{CommandKind, Owner, Parked};
use crate::fault::Fault;
use crate::firmware::{Firmware, Worker};
use crate::namespace::CommandSet;
use crate::queue::{CompletionSlot, Cq, Sq};
use crate::shared::Message;

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    /// The subsystem has changed: lets go of a namespace that is not there any more. What waits for it is
    /// refused, near-data commands are cancelled, and what the store works on is waited for.
    pub(super) fn namespace_changed(&mut self, nsid: u32, now: Nanos) {
        let Some(place) = self.attached.find(nsid) else { return };
        let there = self.shared.namespace(nsid);
        if there.is_some_and(|there| Arc::ptr_eq(&there, self.attached.at(place).access.namespace())) {
            return self.namespace_resized(place, now);
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
        self.unstage(nsid, &Fault::new(Status::INVALID_NAMESPACE), now, |at, _| at == place);
        self.move_flushes(place, now);
        self.refuse_held(&Fault::new(Status::INVALID_NAMESPACE), now, |at, _| at == place);
        self.cancel(|_, at| at == place, true);
        self.end_fillings(&Fault::new(Status::INVALID_NAMESPACE), now, |_, filling| filling.is_of(nsid));
        self.attached.at(place).worker.leave(None);
    }

    /// It may be longer or shorter than it was: what is not begun beyond its end is refused, here or when its
    /// turn comes.
    fn namespace_resized(&mut self, place: usize, now: Nanos) {
        let attached = self.attached.at(place);
        attached.limits.blocks = attached.access.namespace().blocks();
        let (nsid, end) = (attached.nsid, attached.end());
        self.unstage(nsid, &Fault::new(Status::LBA_OUT_OF_RANGE), now, |at, request| {
            at == place && request.ends_beyond(end)
        });
        self.settling = true;
    }

    /// Says of each namespace whose length has changed once nothing is in flight beyond its end.
    pub(super) fn settle_lengths(&mut self) {
        self.settling = false;
        let parked = &self.parked;
        for place in self.attached.present().collect::<Vec<_>>() {
            let Some(attached) = self.attached.get(place) else { continue };
            let (blocks, end) = (attached.limits.blocks, attached.end());
            let beyond = |p: &Parked| p.command.place == place && p.operation.ends_beyond(end);
            if attached.meter.is_known_within(blocks) {
                continue;
            } else if attached.access.reaches_beyond(end) || parked.iter().any(beyond) {
                self.settling = true;
            } else {
                attached.meter.is_within(blocks);
            }
        }
    }

    /// Sends a message to a reactor and sees to it that it wakes up.
    pub(crate) fn tell(&self, reactor: usize, message: Message) {
        self.shared.mailboxes[reactor].send(message);
        if reactor != self.id {
            self.shared.function.wakeup.wake();
        }
    }

    pub(super) fn read_mail(&mut self, now: Nanos) -> usize {
        let messages = self.shared.mailboxes[self.id].take();
        let count = messages.len();
        for message in messages {
            match message {
                Message::CreateCq { id, vector, mut queue_memory, key } => {
                    // The host may have mapped other memory there since it was found.
                    queue_memory.placed.find(&self.shared.function.memory);
                    self.queues.remote |= queue_memory.placed.is_remote();
                    let there = self.queues.cqs[usize::from(id)].is_some();
                    assert!(!there, "completion queue {id} was created twice");
                    self.queues.cqs[usize::from(id)] = Some(Box::new(Cq::new(id, vector, queue_memory)));
                    self.tell(0, Message::Done { key, result: 0 });
                }
                Message::CreateSq { id, cq, mut queue_memory, key } => {
                    queue_memory.placed.find(&self.shared.function.memory);
                    self.queues.remote |= queue_memory.placed.is_remote();
                    let there = self.queues.sqs[usize::from(id)].is_some();
                    assert!(!there, "submission queue {id} was created twice");
                    self.queues.sqs[usize::from(id)] = Some(Box::new(Sq::new(id, cq, queue_memory)));
                    self.queues.active.push(id);
                    self.tell(0, Message::Done { key, result: 0 });
                }
                Message::DeleteSq { id, key } => {
                    if let Some(Some(sq)) = self.queues.sqs.get_mut(usize::from(id)) {
                        sq.deleting = true;
                    }
                    self.deleting.push((id, Some(key)));
                    self.end_queue(id, now);
                }
                Message::DeleteCq { id, key } => {
                    let used = self.queues.sqs.iter().flatten().any(|sq| sq.cq == id);
                    assert!(!used, "completion queue {id} is deleted before its submission queue");
                    self.queues.cqs[usize::from(id)] = None;
                    self.queues.dirty &= !(1 << id);
                    self.tell(0, Message::Done { key, result: 0 });
                }
                Message::Abort { sq, cid, key } => {
                    let is = |slot: &CompletionSlot| slot.sq == sq && slot.cid == cid;
                    let requested = Fault::transient(Status::ABORT_REQUESTED);
                    let held = self.refuse_held(&requested, now, |_, slot| is(slot)) > 0;
                    let filled = self.end_fillings(&requested, now, |slot, _| is(slot)) > 0;
                    let found = held || filled || self.cancel(|slot, _| is(slot), true);
                    self.tell(0, Message::Done { key, result: u32::from(!found) });
                }
                Message::Reset { key } => self.reset(key, now),
                // Of one that its host does not have, it hears nothing.
                Message::Namespace { nsid } if !self.shared.config.has(nsid) => {}
                Message::Namespace { nsid } => {
                    self.namespace_changed(nsid, now);
                    if let Some(admin) = &mut self.admin {
                        admin.namespace_changed(nsid);
                    }
                }
                Message::Preempted { nsid, ticket } => self.preempted(nsid, ticket, now),
                Message::Quotas => self.quotas_changed(),
                Message::Ana { port } => self.ana_changed(port),
                Message::Done { .. }
                | Message::ErrorEvent { .. }
                | Message::Reservation { .. }
                | Message::Fatal
                | Message::Pair { .. }
                | Message::Published { .. } => {
                    if let Some(mut admin) = self.admin.take() {
                        admin.on_message(self, message, now);
                        self.admin = Some(admin);
                    }
                }
            }
        }
        count
    }

    /// By a port, namespaces are found in other states; another port is no way of the host's.
    fn ana_changed(&mut self, port: u16) {
        let shared = self.shared.clone();
        if shared.config.port != Some(port) {
            return;
        }
        self.attached.iter_mut().for_each(|attached| attached.barred = shared.bars(attached.nsid));
        if let Some(admin) = &mut self.admin {
            admin.ana_changed();
        }
    }

    /// All queues go, once what runs has ended.
    fn reset(&mut self, key: usize, now: Nanos) {
        self.resetting = Some(key);
        self.forget_held();
        for Parked { command, operation, .. } in self.parked.drain(..) {
            self.attached.at(command.place).access.abandon(&operation);
            match command.owner {
                Owner::Host(slot) => slot.forget(),
                Owner::Shutdown => self.shutdown_done = true,
            }
        }
        self.fillings.forget();
        self.forget_reservations();
        self.reset_stages(now);
        self.abandon();
    }

    /// Cancels the near-data commands that `which` names, by slot and place.
    pub(super) fn cancel(&mut self, which: impl Fn(&CompletionSlot, usize) -> bool, abort: bool) -> bool {
        let mut found = false;
        for (key, command) in self.commands.iter_mut() {
            if let (Owner::Host(slot), CommandKind::NearData { aborted, .. }) =
                (&command.owner, &mut command.kind)
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
        self.end_queue(id, self.stepped);
    }

    /// What waits of a submission queue that is going is refused, and what can be ended ends.
    fn end_queue(&mut self, id: u16, now: Nanos) {
        let deleted = Fault::transient(Status::ABORTED_SQ_DELETION);
        self.refuse_held(&deleted, now, |_, slot| slot.sq == id);
        self.end_fillings(&deleted, now, |slot, _| slot.sq == id);
        self.cancel(|slot, _| slot.sq == id, false);
        self.leave(Some(id));
    }

    /// Commands that the store or the firmware works on.
    pub fn in_flight(&self) -> usize {
        let waiting = self.parked.len() + self.stages.waiting() + self.fillings.waiting() + self.held;
        self.commands.len() + waiting
    }

    /// Whether the store works on nothing of this reactor's any more, for the host or for the firmware.
    pub fn is_drained(&self) -> bool {
        self.in_flight() == 0 && self.attached.iter().all(|attached| attached.worker.in_flight() == 0)
    }

    /// The host is gone: its near-data work ends soon, also what runs for no command just now, and what fills
    /// memory. What the store works on ends when it does ([`Reactor::is_drained`]).
    pub fn abandon(&mut self) {
        self.cancel(|_, _| true, false);
        let gone = Fault::transient(Status::ABORTED_SQ_DELETION);
        self.end_fillings(&gone, self.stepped, |_, _| true);
        self.leave(None);
    }

    fn leave(&mut self, queue: Option<u16>) {
        self.attached.iter_mut().for_each(|attached| attached.worker.leave(queue));
    }

    /// The host may enable other command sets than before: what those have is attached to anew.
    fn leave_command_sets(&mut self) {
        let present: Vec<usize> = self.attached.present().collect();
        for place in present {
            if self.attached.at(place).limits.command_set != CommandSet::Nvm {
                self.attached.leave(place);
            }
        }
    }

    /// Ends deletions and resets that waited for commands in flight.
    pub(super) fn drain(&mut self, now: Nanos) -> usize {
        let (mut done, mut closed) = (Vec::new(), Vec::new());
        if let Some(key) = self.resetting {
            if !self.commands.is_empty() || !self.stages_have_settled(now) {
                return 0;
            }
            done.extend(self.deleting.drain(..).filter_map(|(_, key)| key));
            self.queues.clear();
            self.leave_command_sets();
            self.resetting = None;
            done.push(key);
        } else {
            let queues = &mut self.queues;
            self.deleting.retain(|&(id, key)| {
                let at = usize::from(id);
                let busy = |sq: &Sq| sq.in_flight > 0 || queues.is_writing_for(sq);
                if queues.sqs[at].as_ref().is_some_and(|sq| busy(sq)) {
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
}
