//! Asynchronous Event Request (Base 2.0, 5.2): requests wait for events, events for requests. After one of a
//! type, others of the type are held back until the host has read the log page that goes with it.

use std::collections::VecDeque;

use nearside_clock::Nanos;
use nearside_spec::Status;
use nearside_spec::log::{self, event, lid};
use nearside_store::Store;

use super::Answer;
use crate::doorbell::Doorbells;
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::queue::CompletionSlot;
use crate::reactor::Reactor;

/// Requests outstanding at most (AERL, zero-based in Identify).
pub(crate) const REQUESTS: usize = 8;
/// Events of one type kept while nobody asks.
const QUEUED: usize = 16;

/// Requests and events.
#[derive(Default)]
pub(super) struct Events {
    requests: VecDeque<CompletionSlot>,
    queued: VecDeque<(u8, u8, u8)>,
    /// Types whose log page has to be read first.
    held_back: u8,
}

impl Events {
    /// An event of type Error.
    pub(super) fn error(&mut self, information: u8) {
        self.add(event::ERROR, information, lid::ERROR);
    }

    pub(super) fn add(&mut self, kind: u8, information: u8, log: u8) {
        let e = (kind, information, log);
        if !self.queued.contains(&e) && self.queued.len() < QUEUED {
            self.queued.push_back(e);
        }
    }

    /// The host has read a log page: its events are free again.
    pub(super) fn log_read(&mut self, log: u8) {
        let kind = match log {
            lid::ERROR => event::ERROR,
            lid::SMART => event::SMART,
            lid::RESERVATION => event::IO_COMMAND_SET,
            lid::CHANGED_NAMESPACES | lid::ANA | nearside_spec::fabrics::discovery::LID => event::NOTICE,
            _ => return,
        };
        self.held_back &= !(1 << kind);
    }

    /// A request: kept, with its place in the completion queue given back so that it does not block others.
    pub(super) fn request<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        slot: &mut Option<CompletionSlot>,
    ) -> Result<Answer, Fault> {
        if self.requests.len() >= REQUESTS {
            return Err(Fault::new(Status::AER_LIMIT_EXCEEDED));
        }
        if let Some(cq) = &mut reactor.queues.cqs[0] {
            cq.release(1);
        }
        self.requests.extend(slot.take());
        Ok(Answer::Later)
    }

    /// Answers requests with the events that may be told.
    #[inline]
    pub(super) fn post<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        now: Nanos,
    ) -> usize {
        if self.queued.is_empty() || self.requests.is_empty() {
            return 0;
        }
        let mut posted = 0;
        while let Some(at) = self.queued.iter().position(|(kind, ..)| self.held_back & 1 << kind == 0)
            && let Some(slot) = self.requests.pop_front()
        {
            let registers = reactor.shared.function.registers.clone();
            let room = match &mut reactor.queues.cqs[0] {
                Some(cq) => cq.reserve(1, &Doorbells { registers: &registers, shadow: None }).unwrap_or(0),
                None => 0,
            };
            let (1, Some((kind, information, log))) = (room, self.queued.remove(at)) else {
                self.requests.push_front(slot);
                break;
            };
            self.held_back |= 1 << kind;
            let result = log::async_event(kind, information, log);
            reactor.queues.answer(slot, result.into(), Status::SUCCESS, now);
            posted += 1;
        }
        posted
    }

    /// Aborts the request of that command identifier.
    pub(super) fn abort<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        cid: u16,
        now: Nanos,
    ) -> bool {
        let registers = reactor.shared.function.registers.clone();
        let Some(at) = self.requests.iter().position(|slot| slot.cid == cid) else { return false };
        let Some(cq) = &mut reactor.queues.cqs[0] else { return false };
        if cq.reserve(1, &Doorbells { registers: &registers, shadow: None }).unwrap_or(0) == 0 {
            return false;
        }
        if let Some(slot) = self.requests.remove(at) {
            reactor.queues.answer(slot, 0, Status::ABORT_REQUESTED, now);
        }
        true
    }

    /// A reset: the requests' queue is gone.
    pub(super) fn reset(&mut self) {
        self.requests.drain(..).for_each(CompletionSlot::forget);
        self.queued.clear();
        self.held_back = 0;
    }
}
