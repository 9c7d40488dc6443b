//! Create and delete I/O queues (Base 2.0, 5.4 to 5.7) and Abort (5.1).

use std::sync::atomic::Ordering;

use nearside_dma::PAGE_SIZE;
use nearside_spec::Status;
use nearside_spec::command::{abort, queue};
use nearside_spec::registers::{self as reg, Cc};
use nearside_store::Store;

use super::{ABORT_LIMIT, AdminCommand, Answer, Waiting, queue_memory};
use crate::config::MAX_QUEUES;
use crate::doorbell::ShadowPages;
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::shared::Message;

/// Which I/O queues there are.
pub(super) struct Registry {
    /// For each submission queue its completion queue, and whether it is being deleted.
    sqs: [Option<(u16, bool)>; MAX_QUEUES],
    cqs: [bool; MAX_QUEUES],
    /// Queues of each kind that the host may create.
    pub(super) granted: (u16, u16),
}

impl Registry {
    pub(super) fn new(queues: u16) -> Registry {
        Registry { sqs: [None; MAX_QUEUES], cqs: [false; MAX_QUEUES], granted: (queues, queues) }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.cqs.iter().any(|&cq| cq) && !self.sqs.iter().any(|sq| sq.is_some())
    }

    pub(super) fn has_sq(&self, id: u16) -> bool {
        self.sqs.get(usize::from(id)).is_some_and(|sq| sq.is_some())
    }

    pub(super) fn has_cq(&self, id: u16) -> bool {
        self.cqs.get(usize::from(id)).is_some_and(|&cq| cq)
    }

    /// A queue pair that a front has made or taken away.
    pub(super) fn set_pair(&mut self, id: u16, there: bool) {
        self.sqs[usize::from(id)] = there.then_some((id, false));
        self.cqs[usize::from(id)] = there;
    }

    pub(super) fn remove_sq(&mut self, id: u16) {
        self.sqs[usize::from(id)] = None;
    }
}

const QID: Fault = Fault::new(Status::INVALID_QUEUE_ID).of(queue::QID);

/// The reactor that owns a completion queue, and with it the submission queues that complete to it.
pub(crate) fn owner(cq: u16, reactors: usize) -> usize {
    usize::from(cq - 1) % reactors
}

impl<S: Store, F: Firmware<S>> AdminCommand<'_, S, F> {
    /// QID, QSIZE and PC of a create command: the identifier and the number of entries.
    fn checked_queue(&self, granted: u16, exists: bool, entry_size_log2: u8) -> Result<(u16, u32), Fault> {
        let id = self.entry.get(queue::QID);
        let entries = u32::from(self.entry.get(queue::QSIZE_Z)) + 1;
        if id == 0 || id > granted || exists {
            return Err(QID);
        }
        let expected = if self.entry.opcode() == nearside_spec::opcode::admin::CREATE_SQ { 6 } else { 4 };
        if entries < 2 || entries > self.reactor.shared.config.queue_entries || entry_size_log2 != expected {
            return Err(Fault::new(Status::INVALID_QUEUE_SIZE).of(queue::QSIZE_Z));
        }
        // CAP.CQR: queues are contiguous.
        if !self.entry.get(queue::PC) {
            return Err(Fault::field(queue::PC));
        }
        Ok((id, entries))
    }

    fn wait_for(
        &mut self,
        owner: usize,
        waiting: Waiting,
        message: impl FnOnce(usize) -> Message,
    ) -> Result<Answer, Fault> {
        let key = self.admin.waiting.insert(waiting);
        self.reactor.tell(owner, message(key));
        Ok(Answer::Later)
    }

    fn cc(&self) -> Cc {
        Cc(self.reactor.shared.registers().word32(reg::CC).load(Ordering::Relaxed))
    }

    pub(super) fn create_cq(&mut self) -> Result<Answer, Fault> {
        let exists = self.admin.registry.has_cq(self.entry.get(queue::QID));
        let iocqes = self.cc().iocqes();
        let (id, entries) = self.checked_queue(self.admin.registry.granted.1, exists, iocqes)?;
        let vector = self.entry.get(queue::IV);
        let interrupts = self.entry.get(queue::IEN);
        if interrupts && usize::from(vector) >= self.reactor.shared.function.vectors.len() {
            return Err(Fault::new(Status::INVALID_INTERRUPT_VECTOR).of(queue::IV));
        }
        let queue_memory = queue_memory(&self.reactor.shared, self.entry.prp1(), entries, 16)?;
        let Some(slot) = self.slot.take() else { return Ok(Answer::Later) };
        self.admin.registry.cqs[usize::from(id)] = true;
        self.reactor.shared.begin_doorbell(reg::cq_head_doorbell(id));
        let vector = interrupts.then_some(vector);
        let owner = owner(id, self.reactor.shared.mailboxes.len());
        self.wait_for(owner, Waiting::Command(slot), |key| Message::CreateCq {
            id,
            vector,
            queue_memory,
            key,
        })
    }

    pub(super) fn create_sq(&mut self) -> Result<Answer, Fault> {
        let exists = self.admin.registry.has_sq(self.entry.get(queue::QID));
        let iosqes = self.cc().iosqes();
        let (id, entries) = self.checked_queue(self.admin.registry.granted.0, exists, iosqes)?;
        let cq = self.entry.get(queue::CQID);
        if cq == 0 || cq > self.admin.registry.granted.1 {
            return Err(Fault::new(Status::INVALID_QUEUE_ID).of(queue::CQID));
        }
        if !self.admin.registry.has_cq(cq) {
            return Err(Fault::new(Status::INVALID_CQ).of(queue::CQID));
        }
        let queue_memory = queue_memory(&self.reactor.shared, self.entry.prp1(), entries, 64)?;
        let Some(slot) = self.slot.take() else { return Ok(Answer::Later) };
        self.admin.registry.sqs[usize::from(id)] = Some((cq, false));
        self.reactor.shared.begin_doorbell(reg::sq_tail_doorbell(id));
        let owner = owner(cq, self.reactor.shared.mailboxes.len());
        self.wait_for(owner, Waiting::Command(slot), |key| Message::CreateSq { id, cq, queue_memory, key })
    }

    pub(super) fn delete_sq(&mut self) -> Result<Answer, Fault> {
        let id = self.entry.get(queue::QID);
        let Some(Some((cq, deleting @ false))) = self.admin.registry.sqs.get_mut(usize::from(id)) else {
            return Err(QID);
        };
        let Some(slot) = self.slot.take() else { return Ok(Answer::Later) };
        *deleting = true;
        let owner = owner(*cq, self.reactor.shared.mailboxes.len());
        self.wait_for(owner, Waiting::DeleteSq(slot, id), |key| Message::DeleteSq { id, key })
    }

    pub(super) fn delete_cq(&mut self) -> Result<Answer, Fault> {
        let id = self.entry.get(queue::QID);
        if !self.admin.registry.has_cq(id) {
            return Err(QID);
        }
        if self.admin.registry.sqs.iter().flatten().any(|(cq, _)| *cq == id) {
            return Err(Fault::new(Status::INVALID_QUEUE_DELETION).of(queue::QID));
        }
        let Some(slot) = self.slot.take() else { return Ok(Answer::Later) };
        self.admin.registry.cqs[usize::from(id)] = false;
        self.reactor.shared.registers().word32(reg::cq_head_doorbell(id)).store(0, Ordering::Relaxed);
        let owner = owner(id, self.reactor.shared.mailboxes.len());
        self.wait_for(owner, Waiting::Command(slot), |key| Message::DeleteCq { id, key })
    }

    /// Doorbell Buffer Config (5.8): the host keeps the doorbells of its I/O queues in memory from now on.
    pub(super) fn doorbell_buffers(&mut self) -> Result<Answer, Fault> {
        let shared = &self.reactor.shared;
        let (values, events) = (self.entry.prp1(), self.entry.prp2());
        for (page, at) in [(values, 24), (events, 32)] {
            if !page.is_multiple_of(PAGE_SIZE as u64) {
                return Err(Fault::new(Status::INVALID_FIELD).at(at, 0));
            }
        }
        let pages = ShadowPages::new(&shared.function.memory, values, events);
        if !pages.is_reachable() {
            return Err(Fault::new(Status::DATA_TRANSFER_ERROR).at(24, 0));
        }
        // What the registers say of queues that there are holds until the host says otherwise.
        for id in 1..MAX_QUEUES as u16 {
            let doorbells = [
                (self.admin.registry.has_sq(id), reg::sq_tail_doorbell(id)),
                (self.admin.registry.has_cq(id), reg::cq_head_doorbell(id)),
            ];
            for (_, at) in doorbells.into_iter().filter(|(there, _)| *there) {
                pages.begin(at, shared.registers().word32(at).load(Ordering::Acquire));
            }
        }
        shared.set_shadow_doorbells(Some((values, events)));
        Ok(Answer::Now(0))
    }

    /// DW0 bit 0 says 1 where nothing was aborted. What can be: near-data commands and event requests; all
    /// else is done before an Abort could reach it.
    pub(super) fn abort(&mut self) -> Result<Answer, Fault> {
        let (sq, cid) = (self.entry.get(abort::SQID), self.entry.get(abort::CID));
        let aborts = self.admin.waiting.iter_mut().filter(|(_, w)| matches!(w, Waiting::Abort(_))).count();
        if aborts >= ABORT_LIMIT {
            return Err(Fault::transient(Status::ABORT_LIMIT_EXCEEDED));
        }
        if sq == 0 && self.admin.events.abort(self.reactor, cid, self.now) {
            return Ok(Answer::Now(0));
        }
        let owner = match self.admin.registry.sqs.get(usize::from(sq)) {
            _ if sq == 0 => 0,
            Some(Some((cq, _))) => owner(*cq, self.reactor.shared.mailboxes.len()),
            _ => return Ok(Answer::Now(1)),
        };
        let Some(slot) = self.slot.take() else { return Ok(Answer::Later) };
        self.wait_for(owner, Waiting::Abort(slot), |key| Message::Abort { sq, cid, key })
    }
}
