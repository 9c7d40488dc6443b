//! Submission and completion queues in host memory, and the token that a taken command leaves to be answered.
//!
//! Who orders what: the host fills an entry, then stores the tail doorbell (Release); we load the doorbell
//! (Acquire), then copy the entry. We store a completion's first half, then its second with the phase tag
//! (Release); the host loads that (Acquire). The host reads a completion before it stores the head doorbell
//! (Release); we load that (Acquire) before the slot is used again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_clock::Nanos;
use nearside_dma::{Memory, Region};
use nearside_spec::registers::{cq_head_doorbell, sq_tail_doorbell};
use nearside_spec::{CompletionEntry, Status, SubmissionEntry};

use crate::config::MAX_QUEUES;
use crate::doorbell::{Doorbells, Event, Placed, ShadowPages};

/// A queue's memory, found and checked when the queue was created, and looked for again when the host's
/// mappings change.
#[derive(Clone, Debug)]
pub(crate) struct QueueMemory {
    pub(crate) placed: Placed,
    pub(crate) size: u32,
}

/// A submission queue.
#[derive(Debug)]
pub(crate) struct Sq {
    pub(crate) id: u16,
    pub(crate) cq: u16,
    queue_memory: QueueMemory,
    head: u32,
    /// The doorbell's last value that was valid.
    tail: u32,
    /// The doorbell's value that is not valid and was reported, until it changes.
    refused: Option<u32>,
    /// Commands taken and not answered.
    pub(crate) in_flight: u32,
    /// Being deleted: nothing more is taken.
    pub(crate) deleting: bool,
    /// What tells the host when to write the register.
    event: Event,
    /// Entries from the head on that the host was asked for, where its memory is reached by messages.
    fetched: VecDeque<SubmissionEntry>,
    /// The question for more of them.
    fetching: Option<u64>,
}

/// The question that a queue waits for for ever whose memory the host did not give.
const NEVER: u64 = u64::MAX;

impl Sq {
    pub(crate) fn new(id: u16, cq: u16, queue_memory: QueueMemory) -> Sq {
        Sq {
            id,
            cq,
            queue_memory,
            head: 0,
            tail: 0,
            refused: None,
            in_flight: 0,
            deleting: false,
            event: Event::new(sq_tail_doorbell(id)),
            fetched: VecDeque::new(),
            fetching: None,
        }
    }

    /// Whether its memory is reached by messages.
    pub(crate) fn is_remote(&self) -> bool {
        self.queue_memory.placed.is_remote()
    }

    /// What of it the host is to be asked for now: where, and how many bytes.
    pub(crate) fn wants(&self, most: u32) -> Option<(u64, usize)> {
        if !self.is_remote() || self.deleting || self.fetching.is_some() || !self.fetched.is_empty() {
            return None;
        }
        let end = if self.tail >= self.head { self.tail } else { self.queue_memory.size };
        let count = (end - self.head).min(most) as usize;
        (count > 0).then(|| (self.queue_memory.placed.iova() + u64::from(self.head) * 64, count * 64))
    }

    /// The host was asked; `None`: it cannot be.
    pub(crate) fn is_asked_for(&mut self, token: Option<u64>) {
        self.fetching = Some(token.unwrap_or(NEVER));
    }

    /// The answer to that question, where the queue waits for it still. Whether it is one.
    pub(crate) fn fetched(&mut self, token: u64, bytes: Option<&[u8]>) -> bool {
        if self.fetching != Some(token) {
            return true;
        }
        let Some(bytes) = bytes else {
            self.fetching = Some(NEVER);
            return false;
        };
        self.fetching = None;
        for entry in bytes.as_chunks::<64>().0 {
            let mut taken = SubmissionEntry::default();
            for (word, bytes) in taken.cdw.iter_mut().zip(entry.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            self.fetched.push_back(taken);
        }
        true
    }

    /// The host's mappings have changed.
    pub(crate) fn find_again(&mut self, memory: &Memory) {
        let was_remote = self.is_remote();
        self.queue_memory.placed.find(memory);
        if self.is_remote() != was_remote {
            self.fetched.clear();
            self.fetching = None;
        }
        self.event.forget();
    }

    /// Entries that wait, by the doorbell; an error where its value is new and invalid.
    #[inline]
    pub(crate) fn waiting(&mut self, doorbells: &Doorbells<'_>) -> Result<u32, InvalidDoorbell> {
        let Some(tail) = doorbells.value(sq_tail_doorbell(self.id)) else { return Ok(0) };
        if tail != self.tail {
            if tail >= self.queue_memory.size {
                if self.refused != Some(tail) {
                    self.refused = Some(tail);
                    return Err(InvalidDoorbell);
                }
            } else {
                (self.tail, self.refused) = (tail, None);
                self.event.put_off(doorbells, tail, self.queue_memory.size);
            }
        }
        if self.queue_memory.placed.region().is_none() {
            return Ok(self.fetched.len() as u32);
        }
        let n = self.tail.wrapping_sub(self.head);
        Ok(if self.tail >= self.head { n } else { n.wrapping_add(self.queue_memory.size) })
    }

    /// Whether the doorbell says something that [`Sq::waiting`] has not seen.
    pub(crate) fn doorbell_changed(&self, doorbells: &Doorbells<'_>) -> bool {
        let tail = doorbells.value(sq_tail_doorbell(self.id));
        tail.is_some_and(|tail| tail != self.tail && self.refused != Some(tail))
    }

    /// Before the drive sleeps: the host's next command is to wake it.
    pub(crate) fn await_event(&self, doorbells: &Doorbells<'_>) {
        self.event.set(doorbells, self.tail);
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.tail != self.head
    }

    fn is_reachable_and_waits(&self) -> bool {
        self.has_waiting() && (self.queue_memory.placed.region().is_some() || !self.fetched.is_empty())
    }

    /// Copies the entry at the head and goes on.
    #[inline]
    pub(crate) fn take(&mut self) -> SubmissionEntry {
        let entry = match self.queue_memory.placed.region() {
            Some((region, base)) => {
                SubmissionEntry { cdw: region.read_words(base + self.head as usize * 64) }
            }
            None => match self.fetched.pop_front() {
                Some(entry) => entry,
                None => {
                    panic!("submission queue {}: a command is taken from memory that is not there", self.id)
                }
            },
        };
        self.head += 1;
        if self.head == self.queue_memory.size {
            self.head = 0;
        }
        entry
    }
}

/// A doorbell holds a value beyond its queue.
#[derive(Debug)]
pub(crate) struct InvalidDoorbell;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) id: u16,
    /// The interrupt vector, where interrupts are enabled.
    pub(crate) vector: Option<u16>,
    queue_memory: QueueMemory,
    tail: u32,
    /// The doorbell's last valid value.
    head: u32,
    /// The doorbell's value that is not valid and was reported, until it changes.
    refused: Option<u32>,
    phase: bool,
    /// Slots kept for commands that were taken.
    reserved: u32,
    /// Completions posted since the last interrupt, and when the first was.
    pub(crate) unsignalled: u32,
    pub(crate) since: Nanos,
    /// Completions whose memory was not there, or is reached by messages, by where they go.
    held: Vec<(usize, [u64; 2])>,
    /// What is being written of them.
    writing: Option<Writing>,
    event: Event,
}

/// Completions that the host writes into its memory, in two goes: first with the phase tag that the place had
/// before, then with the right one. In whatever order it stores the bytes, it sees none before all of it
/// is there.
#[derive(Debug)]
struct Writing {
    /// The question, and how many of those that are held it is about.
    token: u64,
    count: usize,
    second: bool,
}

/// The phase tag, in a completion's second half.
const PHASE: u64 = 1 << 48;

impl Cq {
    pub(crate) fn new(id: u16, vector: Option<u16>, queue_memory: QueueMemory) -> Cq {
        Cq {
            id,
            vector,
            queue_memory,
            tail: 0,
            head: 0,
            refused: None,
            phase: true,
            reserved: 0,
            unsignalled: 0,
            since: Nanos(0),
            held: Vec::new(),
            writing: None,
            event: Event::new(cq_head_doorbell(id)),
        }
    }

    /// Whether its memory is reached by messages.
    pub(crate) fn is_remote(&self) -> bool {
        self.queue_memory.placed.is_remote()
    }

    /// Whether completions are on their way to the host still.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_remote() && !self.held.is_empty() && self.writing.as_ref().is_none_or(|w| w.token != NEVER)
    }

    /// What the host is to be asked to write now, and where: of completions that lie one after the other.
    pub(crate) fn wants(&self) -> Option<(u64, Vec<u8>)> {
        let idle = self.writing.is_none() && self.is_remote();
        let &(first, _) = self.held.first().filter(|_| idle)?;
        Some((self.queue_memory.placed.iova() + first as u64, self.bytes(PHASE)))
    }

    /// The completions from the first that is held on, as far as they lie one after the other, with the bits
    /// of their second halves changed.
    fn bytes(&self, change: u64) -> Vec<u8> {
        let first = self.held.first().map_or(0, |(at, _)| *at);
        let row = self.held.iter().enumerate().take_while(|(i, (at, _))| *at == first + i * 16);
        row.flat_map(|(_, (_, [a, b]))| [a.to_le_bytes(), (b ^ change).to_le_bytes()]).flatten().collect()
    }

    /// The host was asked for what [`Cq::wants`] said; `None`: it cannot be.
    pub(crate) fn is_asked_for(&mut self, token: Option<u64>) {
        let count = self.bytes(0).len() / 16;
        self.writing = Some(Writing { token: token.unwrap_or(NEVER), count, second: false });
    }

    /// The answer to that question, where the queue waits for it still: what to ask for next is an error
    /// where it did not do it.
    pub(crate) fn written(
        &mut self,
        token: u64,
        done: bool,
        now: Nanos,
    ) -> Result<Option<(u64, Vec<u8>)>, ()> {
        let Some(writing) = self.writing.as_mut().filter(|w| w.token == token) else { return Ok(None) };
        if !done {
            writing.token = NEVER;
            return Err(());
        }
        let count = writing.count;
        if !std::mem::replace(&mut writing.second, true) {
            let mut bytes = self.bytes(0);
            bytes.truncate(count * 16);
            let first = self.held.first().map_or(0, |(at, _)| *at);
            return Ok(Some((self.queue_memory.placed.iova() + first as u64, bytes)));
        }
        self.writing = None;
        self.held.drain(..count.min(self.held.len()));
        if self.unsignalled == 0 {
            self.since = now;
        }
        self.unsignalled += count as u32;
        Ok(None)
    }

    /// The second of the two questions was asked under that name.
    pub(crate) fn is_asked_again(&mut self, token: Option<u64>) {
        if let Some(writing) = &mut self.writing {
            writing.token = token.unwrap_or(NEVER);
        }
    }

    /// The host's mappings have changed. Completions that had nowhere to go are posted; returns how many.
    pub(crate) fn find_again(&mut self, memory: &Memory) -> usize {
        let was_remote = self.is_remote();
        self.queue_memory.placed.find(memory);
        if self.is_remote() != was_remote {
            self.writing = None;
        }
        self.event.forget();
        let Some((region, base)) = self.queue_memory.placed.region() else { return 0 };
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|(at, entry)| put(region, base + at, *entry));
        held.len()
    }

    /// Before the drive sleeps with commands that wait for room: the host's next look is to wake it.
    pub(crate) fn await_event(&self, doorbells: &Doorbells<'_>) {
        self.event.set(doorbells, self.head);
    }

    #[inline]
    fn free(&self) -> u32 {
        let used = self.tail.wrapping_sub(self.head);
        let used = if self.tail >= self.head { used } else { used.wrapping_add(self.queue_memory.size) };
        (self.queue_memory.size - 1 - used).saturating_sub(self.reserved)
    }

    /// Reserves up to `wanted` slots; returns how many. The doorbell is read only when the slots that were
    /// known to be free do not do.
    #[inline]
    pub(crate) fn reserve(&mut self, wanted: u32, doorbells: &Doorbells<'_>) -> Result<u32, InvalidDoorbell> {
        let mut free = self.free();
        // With shadow doorbells earlier, so that the host's head never comes to where it would have to tell.
        let least = if doorbells.has_shadow() { wanted.max(self.queue_memory.size / 2) } else { wanted };
        if free < least {
            let head = doorbells.value(cq_head_doorbell(self.id)).unwrap_or(self.head);
            if head != self.head {
                // A head beyond the queue, or beyond what has been posted, is no head.
                let used = (self.tail + self.queue_memory.size - self.head) % self.queue_memory.size;
                let step = (head.wrapping_add(self.queue_memory.size).wrapping_sub(self.head))
                    % self.queue_memory.size;
                if head < self.queue_memory.size && step <= used {
                    (self.head, self.refused) = (head, None);
                    self.event.put_off(doorbells, head, self.queue_memory.size);
                    free = self.free();
                } else if self.refused != Some(head) {
                    self.refused = Some(head);
                    return Err(InvalidDoorbell);
                }
            }
        }
        let n = wanted.min(free);
        self.reserved += n;
        Ok(n)
    }

    /// Gives reserved slots back.
    pub(crate) fn release(&mut self, n: u32) {
        assert!(n <= self.reserved, "completion queue {}: {n} slots released of {}", self.id, self.reserved);
        self.reserved -= n;
    }

    /// Whether there is a free slot, by the doorbell as it is now.
    pub(crate) fn has_room(&self, doorbells: &Doorbells<'_>) -> bool {
        let head = doorbells.value(cq_head_doorbell(self.id)).unwrap_or(self.head);
        self.free() > 0 || (head != self.head && self.refused != Some(head))
    }

    /// Posts a completion into a reserved slot.
    #[inline]
    fn post(&mut self, result: u64, sq_head: u16, sq: u16, cid: u16, status: Status) {
        // Without one it would overwrite a completion that the host has not read.
        assert!(self.reserved > 0, "completion queue {}: command {cid} has no reserved slot", self.id);
        let entry = CompletionEntry::new(result, sq_head, sq, cid, status, self.phase);
        let at = self.tail as usize * 16;
        let [a, b, c, d] = entry.dw.map(u64::from);
        let entry = [a | b << 32, c | d << 32];
        match self.queue_memory.placed.region() {
            Some((region, base)) => put(region, base + at, entry),
            // At most as many as slots are reserved.
            None => self.held.push((at, entry)),
        }
        // The host hears of what it writes itself once it has.
        self.unsignalled += u32::from(!self.is_remote());
        self.tail += 1;
        if self.tail == self.queue_memory.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
        self.reserved -= 1;
    }
}

/// Puts a completion where the host looks for it.
#[inline]
fn put(region: &Region, at: usize, [first, second]: [u64; 2]) {
    // The phase tag is in the second half: the Release makes the first half visible before it.
    region.word64(at).store(first, Ordering::Relaxed);
    region.word64(at + 8).store(second, Ordering::Release);
}

/// A command that was taken from its queue and has to be answered, once. Its completion slot is reserved.
#[must_use = "a command that is not answered hangs its host"]
#[derive(Debug)]
pub(crate) struct CompletionSlot {
    pub(crate) sq: u16,
    pub(crate) cid: u16,
    /// Its data went by the drive's own memory, and may have to go to the host's before it is answered: what
    /// knows of it, from 1 on.
    pub(crate) stage: u16,
}

/// Commands of this process that were lost: see [`lost_commands`].
static LOST: AtomicU64 = AtomicU64::new(0);

/// Commands of all controllers in this process so far that were dropped without an answer, by a fault of
/// ours: their hosts wait until they time out. Where assertions for debugging are on, such a fault panics
/// instead.
pub fn lost_commands() -> u64 {
    LOST.load(Ordering::Relaxed)
}

impl Drop for CompletionSlot {
    #[cold]
    fn drop(&mut self) {
        LOST.fetch_add(1, Ordering::Relaxed);
        if cfg!(debug_assertions) && !std::thread::panicking() {
            panic!("command {} of submission queue {} was dropped unanswered", self.cid, self.sq);
        }
    }
}

impl CompletionSlot {
    /// Of a command that was taken.
    #[inline]
    pub(crate) fn new(sq: u16, cid: u16) -> CompletionSlot {
        CompletionSlot { sq, cid, stage: 0 }
    }

    /// The queues are gone, and with them the answer.
    pub(crate) fn forget(self) {
        std::mem::forget(self);
    }
}

/// The queues of one reactor.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) sqs: [Option<Box<Sq>>; MAX_QUEUES],
    pub(crate) cqs: [Option<Box<Cq>>; MAX_QUEUES],
    /// Submission queues there are, the admin queue not among them.
    pub(crate) active: Vec<u16>,
    /// Completion queues with completions that no interrupt has told of, as bits.
    pub(crate) dirty: u64,
    /// Where the host keeps its doorbells, where it does so itself.
    pub(crate) shadow: Option<ShadowPages>,
    /// The memory of one of them is reached by messages.
    pub(crate) remote: bool,
    /// Commands that ended, and whose data went by the drive's own memory.
    pub(crate) staged: Vec<(CompletionSlot, u64, Status)>,
}

impl Queues {
    pub(crate) fn new() -> Queues {
        Queues {
            sqs: [const { None }; MAX_QUEUES],
            cqs: [const { None }; MAX_QUEUES],
            active: Vec::new(),
            dirty: 0,
            shadow: None,
            remote: false,
            staged: Vec::new(),
        }
    }

    /// Posts the answer to a command.
    #[inline]
    pub(crate) fn answer(&mut self, slot: CompletionSlot, result: u64, status: Status, now: Nanos) {
        if slot.stage != 0 {
            return self.staged.push((slot, result, status));
        }
        let Some(Some(sq)) = self.sqs.get_mut(usize::from(slot.sq)) else {
            panic!("submission queue {} is gone before its command was answered", slot.sq)
        };
        let Some(Some(cq)) = self.cqs.get_mut(usize::from(sq.cq)) else {
            panic!("completion queue {} is gone before its submission queue", sq.cq)
        };
        cq.post(result, sq.head as u16, sq.id, slot.cid, status);
        assert!(sq.in_flight > 0, "submission queue {}: command {} was answered twice", sq.id, slot.cid);
        sq.in_flight -= 1;
        if cq.vector.is_some() && cq.unsignalled > 0 {
            if cq.unsignalled == 1 {
                cq.since = now;
            }
            self.dirty |= 1 << cq.id;
        }
        slot.forget();
    }

    /// Whether a submission queue's doorbell says nothing new, and what waits cannot be taken. From here on
    /// the host tells of what comes after, until the queue is served again.
    pub(crate) fn is_quiet(&self, id: u16, registers: &Region) -> bool {
        let Some(Some(sq)) = self.sqs.get(usize::from(id)) else { return true };
        let Some(Some(cq)) = self.cqs.get(usize::from(sq.cq)) else { return true };
        if sq.deleting {
            return true;
        }
        let doorbells = Doorbells { registers, shadow: self.shadow.as_ref() };
        if doorbells.has_shadow() {
            sq.await_event(&doorbells);
            if sq.has_waiting() {
                cq.await_event(&doorbells);
            }
            doorbells.fence();
        }
        !(sq.doorbell_changed(&doorbells) || (sq.is_reachable_and_waits() && cq.has_room(&doorbells)))
    }

    /// The host's mappings have changed, or where it keeps its doorbells. Returns how many completions found
    /// their place.
    pub(crate) fn find_again(&mut self, memory: &Memory, shadow: Option<(u64, u64)>) -> usize {
        self.shadow = shadow.map(|(values, events)| ShadowPages::new(memory, values, events));
        self.sqs.iter_mut().flatten().for_each(|sq| sq.find_again(memory));
        let Queues { cqs, dirty, .. } = self;
        let find = |cq: &mut Box<Cq>| {
            let posted = cq.find_again(memory);
            if posted > 0 && cq.vector.is_some() {
                // Their interrupt was raised when there was nothing to see.
                cq.unsignalled += posted as u32;
                *dirty |= 1 << cq.id;
            }
            posted
        };
        let posted = cqs.iter_mut().flatten().map(find).sum();
        self.remote = self.sqs.iter().flatten().any(|sq| sq.is_remote())
            || self.cqs.iter().flatten().any(|cq| cq.is_remote());
        posted
    }

    pub(crate) fn clear(&mut self) {
        self.forget_staged();
        *self = Queues::new();
    }

    /// Nobody is left to answer to.
    pub(crate) fn forget_staged(&mut self) {
        self.staged.drain(..).for_each(|(slot, ..)| slot.forget());
    }

    /// Whether completions of that submission queue's are on their way to the host still.
    pub(crate) fn is_writing_for(&self, sq: &Sq) -> bool {
        self.cqs.get(usize::from(sq.cq)).and_then(Option::as_ref).is_some_and(|cq| cq.is_writing())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const ENTRIES: u32 = 4;

    fn queues() -> (Queues, Region) {
        let memory = Memory::new();
        memory.map(0, Arc::new(Region::anonymous(1 << 16).unwrap())).unwrap();
        let queue_memory = |base| QueueMemory { placed: Placed::at(&memory, base, 256), size: ENTRIES };
        let mut queues = Queues::new();
        queues.sqs[1] = Some(Box::new(Sq::new(1, 1, queue_memory(0))));
        queues.cqs[1] = Some(Box::new(Cq::new(1, None, queue_memory(4096))));
        (queues, Region::anonymous(nearside_dma::REGISTERS_SIZE).unwrap())
    }

    /// Takes one command and reserves its slot.
    fn take(queues: &mut Queues, registers: &Region) -> CompletionSlot {
        let (Some(sq), Some(cq)) = (&mut queues.sqs[1], &mut queues.cqs[1]) else { panic!("no queues") };
        let doorbells = Doorbells { registers, shadow: None };
        assert_eq!(cq.reserve(1, &doorbells).unwrap(), 1);
        sq.in_flight += 1;
        CompletionSlot::new(1, sq.take().cid())
    }

    fn answer(queues: &mut Queues, slot: CompletionSlot) {
        queues.answer(slot, 0, Status::SUCCESS, Nanos(0));
    }

    #[test]
    fn an_answer_uses_what_was_reserved_for_it() {
        let (mut queues, registers) = queues();
        let slot = take(&mut queues, &registers);
        answer(&mut queues, slot);
        assert_eq!(queues.sqs[1].as_ref().map(|sq| sq.in_flight), Some(0));
        assert_eq!(queues.cqs[1].as_ref().map(|cq| cq.reserved), Some(0));
    }

    #[test]
    #[should_panic(expected = "command 7 has no reserved slot")]
    fn a_completion_without_a_reserved_slot_is_not_posted() {
        answer(&mut queues().0, CompletionSlot::new(1, 7));
    }

    #[test]
    #[should_panic(expected = "command 7 was answered twice")]
    fn a_command_is_answered_once() {
        let (mut queues, registers) = queues();
        if let Some(cq) = &mut queues.cqs[1] {
            cq.reserve(1, &Doorbells { registers: &registers, shadow: None }).unwrap();
        }
        answer(&mut queues, CompletionSlot::new(1, 7));
    }

    #[test]
    #[should_panic(expected = "1 slots released of 0")]
    fn no_more_is_released_than_was_reserved() {
        if let Some(cq) = &mut queues().0.cqs[1] {
            cq.release(1);
        }
    }

    #[test]
    #[should_panic(expected = "command 7 of submission queue 1 was dropped unanswered")]
    fn a_slot_that_is_dropped_unanswered_panics_in_tests() {
        drop(CompletionSlot::new(1, 7));
    }

    #[test]
    fn a_slot_that_is_dropped_unanswered_is_counted() {
        let before = lost_commands();
        assert!(
            std::panic::catch_unwind(|| drop(CompletionSlot::new(1, 7))).is_err() || !cfg!(debug_assertions)
        );
        assert!(lost_commands() > before);
    }
}
