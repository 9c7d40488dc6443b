//! Commands whose namespace or host has had its quota: they wait before they are executed, in order and each
//! namespace's for themselves, and keep no other command waiting ([`crate::throttle`]).

use nearside_clock::Nanos;
use nearside_spec::Status;
use nearside_store::Store;

use super::{BATCH, Reactor, Step};
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::io::Request;
use crate::queue::CompletionSlot;
use crate::throttle::{Gate, Held};

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    /// Whether a command may go on; one that may not waits. A flush of all namespaces waits where something
    /// does that came before it.
    pub(super) fn pass(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        request: &Request,
        now: Nanos,
    ) -> Option<CompletionSlot> {
        let held = Held { slot, request: *request, begun: now };
        if matches!(request, Request::FlushAll) {
            return self.pass_all(held, 0).map(|held| held.slot);
        }
        let Some(gate) = self.attached.get_mut(place).and_then(|attached| attached.gate.as_deref_mut())
        else {
            return Some(held.slot);
        };
        let passed = gate.pass(held);
        self.held += usize::from(passed.is_none());
        passed.map(|held| held.slot)
    }

    /// A flush of all namespaces waits behind what waits in any place from `first` on.
    fn pass_all(&mut self, held: Held, first: usize) -> Option<Held> {
        let next = self.attached.gated().find(|place| *place >= first);
        let Some(gate) = next.and_then(|place| self.attached.at(place).gate.as_deref_mut()) else {
            return Some(held);
        };
        gate.push(held);
        self.held += 1;
        None
    }

    /// Lets those go on that have waited long enough.
    pub(super) fn release(&mut self, now: Nanos, step: &mut Step) -> usize {
        let mut work = 0;
        for place in self.attached.gated().collect::<Vec<_>>() {
            for _ in 0..BATCH {
                let Some(held) = self.gate(place).and_then(|gate| gate.pop(now)) else { break };
                self.held -= 1;
                work += 1;
                self.go_on_with(held, place, now);
            }
            let Some(gate) = self.gate(place) else { continue };
            step.at(if gate.held() > 0 { Some(gate.due().unwrap_or(now)) } else { None });
            if gate.is_open() {
                self.attached.at(place).gate = None;
            }
        }
        work
    }

    fn gate(&mut self, place: usize) -> Option<&mut Gate> {
        self.attached.get_mut(place)?.gate.as_deref_mut()
    }

    fn go_on_with(&mut self, held: Held, place: usize, now: Nanos) {
        let held = match held.request {
            Request::FlushAll => match self.pass_all(held, place + 1) {
                Some(held) => held,
                None => return,
            },
            _ => held,
        };
        let Held { slot, request, begun } = held;
        let attached = self.attached.at(place);
        attached.meter.throttled(now.since(begun));
        let (nsid, end) = (attached.nsid, attached.end());
        if request.ends_beyond(end) {
            return self.fail(slot, nsid, &Fault::new(Status::LBA_OUT_OF_RANGE), now);
        }
        if let Err((slot, fault)) = self.execute(slot, place, &request, (begun, now)) {
            self.refuse(slot, place, nsid, &request, &fault, now);
        }
    }

    /// Flushes of all namespaces that wait in a place that goes wait elsewhere, if there is need.
    pub(super) fn move_flushes(&mut self, place: usize, now: Nanos) {
        let Some(gate) = self.gate(place) else { return };
        let flushes = gate.take_out(now, |held| matches!(held.request, Request::FlushAll));
        self.held -= flushes.len();
        flushes.into_iter().for_each(|held| self.go_on_with(held, place, now));
    }

    /// Answers those that wait and that `which` names by place and slot; how many there were.
    pub(super) fn refuse_held(
        &mut self,
        fault: &Fault,
        now: Nanos,
        which: impl Fn(usize, &CompletionSlot) -> bool,
    ) -> usize {
        let mut count = 0;
        if self.held == 0 {
            return count;
        }
        for place in self.attached.gated().collect::<Vec<_>>() {
            let Some(gate) = self.gate(place) else { continue };
            let out = gate.take_out(now, |held| which(place, &held.slot));
            let nsid = self.attached.at(place).nsid;
            count += out.len();
            self.held -= out.len();
            out.into_iter().for_each(|held| self.fail(held.slot, nsid, fault, now));
        }
        count
    }

    /// Nobody is left to answer to.
    pub(super) fn forget_held(&mut self) {
        for attached in self.attached.iter_mut() {
            if let Some(gate) = &mut attached.gate {
                gate.take_out(self.stepped, |_| true).into_iter().for_each(|held| held.slot.forget());
            }
        }
        self.held = 0;
    }

    /// Namespaces or hosts have another quota: what waits, waits for that, near-data work that runs too.
    pub(super) fn quotas_changed(&mut self) {
        let shared = self.shared.clone();
        for attached in self.attached.iter_mut() {
            let of = shared.subsystem.buckets(attached.nsid, &shared.config.host.nqn);
            attached.account.change(&of);
            match &mut attached.gate {
                Some(gate) => {
                    if !gate.change(of, self.stepped) {
                        attached.gate = None;
                    }
                }
                None if of.is_empty() => {}
                None => attached.gate = Some(Box::new(Gate::new(of))),
            }
        }
    }
}
