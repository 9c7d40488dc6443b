//! A queue of a connected host: a queue pair in memory that the controller serves, and what became of each
//! command.
//!
//! A command takes a slot. Its data, if any, get a staging buffer; once they are there it is copied into the
//! submission queue with its SGL naming that buffer. [`Queue::reap`] finds its completion and gives the
//! slot's buffer to whoever sends the answer.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use nearside_clock::Nanos;
use nearside_device::fabric::Pair;
use nearside_dma::Region;
use nearside_spec::data::{SglDescriptor, SglType};
use nearside_spec::registers::{cq_head_doorbell, sq_tail_doorbell};
use nearside_spec::{CompletionEntry, SubmissionEntry};

use crate::patience::Patience;
use crate::pool::{Buffer, Pool};

/// Entries of a host's queue at most (CAP.MQES, one-based).
pub(crate) const MAX_ENTRIES: u32 = 1024;
/// Commands beyond the queue's entries that may be outstanding: event requests leave the queue, and stay.
const BEYOND: u32 = 16;
/// Bytes of both queues of a pair.
pub(crate) const QUEUE_BYTES: usize = 128 << 10;
const CQ_AT: usize = 96 << 10;
/// Where controllers find all queue pairs of an association.
pub(crate) const QUEUES_IOVA: u64 = 1 << 52;

const _: () = assert!((MAX_ENTRIES + BEYOND + 1) as usize * 64 <= CQ_AT);
const _: () = assert!(CQ_AT + (MAX_ENTRIES + BEYOND + 1) as usize * 16 <= QUEUE_BYTES);

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStage {
    /// It has no staging buffer yet.
    Postponed,
    /// Its host was asked for data; so many bytes have come, and whether all digests were right.
    Receiving {
        /// Bytes that have come.
        received: u32,
        /// Every digest was right.
        intact: bool,
        /// When all of them have to be there.
        due: Nanos,
    },
    /// The controller has it.
    Taken,
}

/// A command that is not answered.
pub(crate) struct CommandSlot {
    pub(crate) entry: SubmissionEntry,
    /// Bytes of data that its SGL says.
    pub(crate) len: u32,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) stage: CommandStage,
}

impl CommandSlot {
    /// Whether the data come from the host.
    pub(crate) fn is_to_controller(&self) -> bool {
        self.len > 0 && self.entry.opcode() & 3 == 1
    }
}

/// What [`Queue::add`] finds wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A command of that identifier is outstanding.
    SameIdentifier,
    /// More commands than the queue has entries.
    Full,
}

/// Whether those data still have to come.
fn is_owed(slots: &[Option<CommandSlot>], (key, due): &(u16, Nanos)) -> bool {
    let slot = slots.get(usize::from(*key)).and_then(Option::as_ref);
    slot.is_some_and(|slot| matches!(slot.stage, CommandStage::Receiving { due: of, .. } if of == *due))
}

/// The queue.
pub(crate) struct Queue {
    pub(crate) id: u16,
    /// Entries of the host's queue.
    entries: u32,
    memory_entries: u32,
    sq: usize,
    cq: usize,
    tail: u32,
    head: u32,
    phase: bool,
    /// Entries were written that the doorbell does not tell of.
    dirty: bool,
    /// Whether the host counts free entries by SQHD.
    pub(crate) flow: bool,
    sq_head: u32,
    slots: Vec<Option<CommandSlot>>,
    free: Vec<u16>,
    /// For each command identifier its slot, one-based; pages of it take memory once they are used.
    by_cid: Vec<u16>,
    pub(crate) taken: usize,
    /// Bytes that the controller reads for the host.
    pub(crate) reading: usize,
    /// Slots that wait for a staging buffer, oldest first.
    pub(crate) postponed: VecDeque<u16>,
    /// Slots whose host owes data, and how many bytes.
    pub(crate) receiving: usize,
    pub(crate) owed: u64,
    /// Those slots in the order in which their data were asked for, and when they are due. Some may have got
    /// theirs; the first has not.
    asked: VecDeque<(u16, Nanos)>,
}

impl Queue {
    /// A queue of so many entries (2 to [`MAX_ENTRIES`]). Its memory lies at its number's place among the
    /// association's.
    pub(crate) fn new(id: u16, entries: u32, flow: bool, queue_memory: &Region) -> Queue {
        let base = usize::from(id) * QUEUE_BYTES;
        let slots = entries + BEYOND;
        let mut queue = Queue {
            id,
            entries,
            memory_entries: slots + 1,
            sq: base,
            cq: base + CQ_AT,
            tail: 0,
            head: 0,
            phase: true,
            dirty: false,
            flow,
            sq_head: 0,
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots as u16).rev().collect(),
            by_cid: vec![0; 1 << 16],
            taken: 0,
            reading: 0,
            postponed: VecDeque::new(),
            receiving: 0,
            owed: 0,
            asked: VecDeque::new(),
        };
        queue.rewind(queue_memory);
        queue
    }

    /// The controller starts over with its queue memory.
    pub(crate) fn rewind(&mut self, queue_memory: &Region) {
        queue_memory.fill(self.cq, self.memory_entries as usize * 16, 0);
        (self.tail, self.head, self.phase, self.dirty) = (0, 0, true, false);
    }

    /// The queue pair as the controller gets it.
    pub(crate) fn pair(&self) -> Pair {
        let (sq, cq) = (QUEUES_IOVA + self.sq as u64, QUEUES_IOVA + self.cq as u64);
        Pair { id: self.id, entries: self.memory_entries, sq, cq }
    }

    /// Keeps a command, or gives it back.
    pub(crate) fn add(&mut self, slot: CommandSlot) -> Result<u16, (Refused, CommandSlot)> {
        let cid = usize::from(slot.entry.cid());
        if self.by_cid[cid] != 0 {
            return Err((Refused::SameIdentifier, slot));
        }
        let Some(key) = self.free.pop() else { return Err((Refused::Full, slot)) };
        self.by_cid[cid] = key + 1;
        self.slots[usize::from(key)] = Some(slot);
        Ok(key)
    }

    /// A slot's host is asked for all of its data.
    pub(crate) fn request_data(&mut self, key: u16, buffer: Buffer, patience: &Patience, now: Nanos) {
        let Some(Some(slot)) = self.slots.get_mut(usize::from(key)) else { return };
        self.receiving += 1;
        self.owed += u64::from(slot.len);
        let due = patience.due(now, self.owed);
        slot.buffer = Some(buffer);
        slot.stage = CommandStage::Receiving { received: 0, intact: true, due };
        if self.asked.len() >= 2 * self.slots.len() {
            let slots = &self.slots;
            self.asked.retain(|asked| is_owed(slots, asked));
        }
        self.asked.push_back((key, due));
    }

    /// All data of a slot are there.
    pub(crate) fn data_complete(&mut self, key: u16) {
        let Some(Some(slot)) = self.slots.get_mut(usize::from(key)) else { return };
        self.receiving -= 1;
        self.owed -= u64::from(slot.len);
        slot.stage = CommandStage::Postponed;
        while let Some(first) = self.asked.front()
            && !is_owed(&self.slots, first)
        {
            self.asked.pop_front();
        }
    }

    /// When the data that were asked for first are due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.asked.front().map(|(_, due)| *due)
    }

    pub(crate) fn slot(&mut self, key: u16) -> Option<&mut CommandSlot> {
        self.slots.get_mut(usize::from(key))?.as_mut()
    }

    /// Forgets a command.
    pub(crate) fn remove(&mut self, key: u16) -> Option<CommandSlot> {
        let slot = self.slots.get_mut(usize::from(key))?.take()?;
        self.by_cid[usize::from(slot.entry.cid())] = 0;
        self.free.push(key);
        Some(slot)
    }

    /// Hands a command to the controller, its data at `pool_iova` and on.
    pub(crate) fn submit(&mut self, key: u16, queue_memory: &Region, pool_iova: u64) {
        let Some(Some(slot)) = self.slots.get_mut(usize::from(key)) else { return };
        let mut entry = slot.entry;
        let address = slot.buffer.as_ref().map_or(0, |buffer| pool_iova + buffer.offset as u64);
        // An SGL of one data block, also where there are no data.
        entry.set_sgl1(&SglDescriptor::new(SglType::DataBlock, address, slot.len));
        slot.stage = CommandStage::Taken;
        if !slot.is_to_controller() {
            self.reading += slot.len as usize;
        }
        queue_memory.write_words(self.sq + self.tail as usize * 64, &entry.cdw);
        self.tail = (self.tail + 1) % self.memory_entries;
        self.taken += 1;
        self.dirty = true;
    }

    /// Rings the doorbell if there is something new.
    pub(crate) fn ring_doorbell(&mut self, registers: &Region) -> bool {
        if std::mem::take(&mut self.dirty) {
            // Release: the controller that sees the doorbell sees the entries.
            registers.word32(sq_tail_doorbell(self.id)).store(self.tail, Ordering::Release);
            return true;
        }
        false
    }

    /// The next command that the controller has answered.
    pub(crate) fn reap(&mut self, queue_memory: &Region) -> Option<(CompletionEntry, CommandSlot)> {
        if self.taken == 0 {
            return None;
        }
        let at = self.cq + self.head as usize * 16;
        let phase = queue_memory.word64(at + 8).load(Ordering::Acquire) >> 48 & 1 != 0;
        if phase != self.phase {
            return None;
        }
        let entry = CompletionEntry { dw: queue_memory.read_words(at) };
        self.head += 1;
        if self.head == self.memory_entries {
            (self.head, self.phase) = (0, !self.phase);
        }
        self.taken -= 1;
        let key = self.by_cid[usize::from(entry.cid())].checked_sub(1);
        let Some(slot) = key.and_then(|key| self.remove(key)) else {
            panic!(
                "the controller completed command {} of queue {}, which is not there",
                entry.cid(),
                self.id
            )
        };
        // Its buffer is the controller's until it completes, and its host's after.
        assert!(
            slot.stage == CommandStage::Taken,
            "the controller completed command {} before it had it",
            entry.cid()
        );
        if !slot.is_to_controller() {
            self.reading -= slot.len as usize;
        }
        Some((entry, slot))
    }

    /// Tells the controller which completions were taken.
    pub(crate) fn release(&self, registers: &Region) {
        registers.word32(cq_head_doorbell(self.id)).store(self.head, Ordering::Release);
    }

    /// A command has left the host's queue: SQHD as the host counts it.
    pub(crate) fn advance(&mut self) {
        self.sq_head = (self.sq_head + 1) % self.entries;
    }

    /// SQHD of an answer.
    pub(crate) fn sq_head(&self) -> u16 {
        if self.flow { self.sq_head as u16 } else { 0xffff }
    }

    /// Commands that are outstanding and not waiting for an event of their controller.
    pub(crate) fn busy(&self) -> usize {
        let waits = |slot: &CommandSlot| {
            self.id == 0 && slot.entry.opcode() == nearside_spec::opcode::admin::ASYNC_EVENT_REQUEST
        };
        self.slots.iter().flatten().filter(|slot| !waits(slot)).count()
    }

    /// All commands, with what they hold: the host is gone.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        for slot in self.slots.iter_mut().filter_map(Option::take) {
            if let Some(buffer) = slot.buffer {
                if matches!(slot.stage, CommandStage::Receiving { .. }) {
                    pool.received(&buffer);
                }
                pool.give_back(buffer);
            }
        }
        self.taken = 0;
    }

    /// All commands: the controller starts over. Buffers that it may still know go to `orphans`.
    pub(crate) fn forget(&mut self, pool: &mut Pool, orphans: &mut Vec<Buffer>) {
        self.clear_waiting(pool);
        for key in 0..self.slots.len() as u16 {
            orphans.extend(self.remove(key).and_then(|slot| slot.buffer));
        }
        (self.taken, self.reading) = (0, 0);
    }

    /// Commands that wait for their host, whose buffers the controller does not know.
    pub(crate) fn clear_waiting(&mut self, pool: &mut Pool) {
        self.postponed.clear();
        self.asked.clear();
        (self.receiving, self.owed) = (0, 0);
        for key in 0..self.slots.len() as u16 {
            if self.slot(key).is_some_and(|slot| slot.stage != CommandStage::Taken)
                && let Some(CommandSlot { buffer: Some(buffer), .. }) = self.remove(key)
            {
                pool.received(&buffer);
                pool.give_back(buffer);
            }
        }
    }
}
