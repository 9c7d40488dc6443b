//! What a fabric's front does with a controller beside what any host does: it makes queue pairs when
//! connections come, and takes them away when they go. Commands for that are not a fabrics host's to send.

use nearside_spec::Status;
use nearside_spec::registers::{cq_head_doorbell, sq_tail_doorbell};
use nearside_store::Store;
use std::sync::atomic::Ordering;

use crate::admin::{owner, queue_memory};
use crate::config::MAX_QUEUES;
use crate::firmware::Firmware;
use crate::queue::{Cq, Sq};
use crate::reactor::Reactor;
use crate::shared::Message;

/// The reactor of a controller with so many that serves I/O queue `id` (from 1 on).
pub fn reactor_of(id: u16, reactors: usize) -> usize {
    owner(id, reactors)
}

/// A queue pair in memory that the controller can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its number, 1 to 63.
    pub id: u16,
    /// Entries of either queue.
    pub entries: u32,
    /// IOVA of the submission queue.
    pub sq: u64,
    /// IOVA of the completion queue.
    pub cq: u64,
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    /// Begins to serve an I/O queue pair; completions raise no interrupts. Only on the reactor that
    /// [`reactor_of`] says. Refused where there is one of that number, or where its memory cannot be.
    ///
    /// # Errors
    /// The NVMe status: Invalid Queue Identifier where the number is 0, too large or taken; that of the
    /// queue where its memory is not mapped or its size is wrong.
    pub fn open_pair(&mut self, pair: &Pair) -> Result<(), Status> {
        let Pair { id, entries, .. } = *pair;
        if id == 0 || usize::from(id) >= MAX_QUEUES || self.has_pair(id) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        let shared = self.shared.clone();
        let sq = queue_memory(&shared, pair.sq, entries, 64).map_err(|fault| fault.status)?;
        let cq = queue_memory(&shared, pair.cq, entries, 16).map_err(|fault| fault.status)?;
        let registers = shared.registers();
        registers.word32(sq_tail_doorbell(id)).store(0, Ordering::Relaxed);
        registers.word32(cq_head_doorbell(id)).store(0, Ordering::Relaxed);
        self.queues.cqs[usize::from(id)] = Some(Box::new(Cq::new(id, None, cq)));
        self.queues.sqs[usize::from(id)] = Some(Box::new(Sq::new(id, id, sq)));
        self.queues.active.push(id);
        self.tell(0, Message::Pair { id, there: true });
        Ok(())
    }

    /// Takes nothing more from a queue pair, and cancels its near-data commands. It is gone
    /// ([`Reactor::has_pair`]) once all that was taken has ended: until then the store may move bytes of its
    /// commands.
    pub fn close_pair(&mut self, id: u16) {
        if let Some(Some(sq)) = self.queues.sqs.get_mut(usize::from(id))
            && !sq.deleting
        {
            sq.deleting = true;
            self.stop_pair(id);
        }
    }

    /// Whether there is a queue pair of that number.
    pub fn has_pair(&self, id: u16) -> bool {
        self.queues.sqs.get(usize::from(id)).is_some_and(Option::is_some)
    }
}
