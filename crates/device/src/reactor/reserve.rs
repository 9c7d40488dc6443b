//! Reservation commands, and what those of other hosts ask of this one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::Nanos;
use nearside_spec::Status;
use nearside_spec::reservation::ReservationKeys;
use nearside_store::Store;

use super::command::{Command, Owner, Parked};
use super::{Reactor, Step};
use crate::fault::Fault;
use crate::firmware::{Firmware, Worker};
use crate::io::{Request, Reserve};
use crate::pointer::{self, Layout, Pointer};
use crate::queue::CompletionSlot;
use crate::reservation::Ticket;
use crate::traffic::Kind;

/// How often a command looks whether what it waits for has ended: what ends elsewhere wakes nobody.
const LOOK_EVERY_NS: u64 = 500_000;

/// A reservation command that is done here, and waits until it is kept and until others' commands have ended.
pub(super) struct Reserving {
    slot: CompletionSlot,
    nsid: u32,
    ticket: Arc<Ticket>,
}

/// Commands of this host that another one's wait for: those of a place that were begun until then.
pub(super) struct Ending {
    place: usize,
    until: Nanos,
    /// Held, until they have ended.
    _ticket: Arc<Ticket>,
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    /// Whether neither the state of the place's namespace on the host's port nor another host's reservation
    /// forbids a request. Those of all namespaces ask each.
    #[inline]
    pub(crate) fn admits(&mut self, place: usize, request: &Request) -> Result<(), Fault> {
        let Some(attached) = self.attached.get(place) else { return Ok(()) };
        let held = attached.access.namespace().reservations().held();
        match attached.barred {
            None if held == 0 => Ok(()),
            // The host may try another path, or the same later.
            Some(status) if !matches!(request, Request::FlushAll) => Err(Fault::transient(status)),
            _ => self.admits_held(place, request, held),
        }
    }

    fn admits_held(&mut self, place: usize, request: &Request, held: u64) -> Result<(), Fault> {
        if held == 0 || matches!(request, Request::FlushAll) {
            return Ok(());
        }
        let named = self.shared.named.load(Ordering::Acquire);
        if self.attached.at(place).standing.0 != (held, named) {
            let host = self.shared.host_id();
            let attached = self.attached.at(place);
            let (held, standing) = attached.access.namespace().reservations().standing(host);
            attached.standing = ((held, named), standing);
        }
        self.attached.at(place).standing.1.admits(request)
    }

    /// Executes a reservation command.
    #[cold]
    pub(super) fn reserve(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        (command, len, pointer): (Reserve, usize, Pointer),
        now: Nanos,
    ) -> Result<(), (CompletionSlot, Fault)> {
        let memory = self.shared.function.memory.clone();
        let reports = matches!(command, Reserve::Report { .. });
        let mut layout = Layout::default();
        if let Err(fault) = pointer::walk(&memory, &pointer, len, !reports, &mut layout) {
            return Err((slot, fault));
        }
        let nsid = self.attached.at(place).nsid;
        let namespace = self.attached.at(place).access.namespace().clone();
        if let Reserve::Report { extended } = command {
            let controllers = self.shared.subsystem.controllers_with(nsid);
            let mut report = namespace.reservations().report(extended, &controllers);
            report.resize(len, 0);
            layout.scatter(&memory, &report);
            self.note(place, (Kind::Other, 0), now);
            self.conclude(slot, 0, Status::SUCCESS, now);
            return Ok(());
        }
        let mut keys = ReservationKeys::default();
        layout.gather(&memory, keys.0.get_mut(..len).unwrap_or(&mut []));
        let (host, ticket) = (self.shared.host_id(), Arc::default());
        // Two hosts that have said no name would be one.
        if host == [0; 16] {
            return Err((slot, Fault::new(Status::COMMAND_SEQUENCE_ERROR)));
        }
        let changed = namespace.reservations().change(host, command, (keys.current(), keys.other()), &ticket);
        match changed {
            Ok(effects) => self.shared.subsystem.tell_of(nsid, &effects, &ticket),
            Err(fault) => return Err((slot, fault)),
        }
        self.note(place, (Kind::Other, 0), now);
        self.wait_for_ticket(slot, nsid, ticket);
        Ok(())
    }

    /// Answers a command once nobody else has its ticket any more.
    pub(crate) fn wait_for_ticket(&mut self, slot: CompletionSlot, nsid: u32, ticket: Arc<Ticket>) {
        self.reserving.push(Reserving { slot, nsid, ticket });
    }

    /// Another host has preempted this one and waits for what it has in flight: near-data work is cancelled,
    /// what the store works on ends when it does.
    pub(super) fn preempted(&mut self, nsid: u32, ticket: Arc<Ticket>, now: Nanos) {
        let Some(place) = self.attached.find(nsid) else { return };
        self.cancel(|_, at| at == place, true);
        self.attached.at(place).worker.leave(None);
        self.ending.push(Ending { place, until: now, _ticket: ticket });
    }

    /// Lets go of the tickets of commands that have ended, and answers those that wait for none any more.
    #[cold]
    pub(super) fn settle_reservations(&mut self, now: Nanos, step: &mut Step) -> usize {
        let (commands, parked) = (&self.commands, &self.parked);
        self.ending.retain(|ending| {
            let is_of = |c: &Command| {
                c.place == ending.place && c.begun <= ending.until && matches!(c.owner, Owner::Host(_))
            };
            commands.iter().any(|(_, c)| is_of(c))
                || parked.iter().any(|Parked { command, .. }| is_of(command))
        });
        let mut done = 0;
        for mut waits in std::mem::take(&mut self.reserving) {
            if Arc::get_mut(&mut waits.ticket).is_none() {
                self.reserving.push(waits);
                continue;
            }
            done += 1;
            let Reserving { slot, nsid, ticket } = waits;
            if ticket.has_failed() {
                self.fail(slot, nsid, &Fault::transient(Status::INTERNAL_ERROR), now);
            } else {
                self.conclude(slot, 0, Status::SUCCESS, now);
            }
        }
        if !self.reserving.is_empty() {
            step.at(Some(now + LOOK_EVERY_NS));
        }
        done
    }

    /// The commands that wait will not be answered. What others wait for goes on to its end: a reset takes
    /// nothing back that the store works on.
    pub(super) fn forget_reservations(&mut self) {
        self.reserving.drain(..).for_each(|waits| waits.slot.forget());
    }
}
