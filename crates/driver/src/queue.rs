//! A queue pair, as its one owner drives it: entries, phase tags, doorbells, command identifiers, PRPs.
//!
//! A command passes so: [`QueuePair::submit`] takes a slot (whose number is the CID), writes the entry and,
//! where it needs one, the slot's PRP list, and keeps the buffer; [`QueuePair::ring`] writes the tail
//! doorbell once for all entries since the last ring and wakes a sleeping drive; [`QueuePair::reap`] finds
//! the completion by its phase tag and gives the buffer back.
//!
//! It takes `now` and never waits. The head doorbell is written late on a polled queue (the drive needs it
//! only before its completion queue is full), and at once on one whose interrupt is in use. It does not
//! choose how to wait; see [`crate::Initiator`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nearside_clock::Nanos;
use nearside_dma::{PAGE_SIZE, Region, Vector, WaitKind, rest};
use nearside_spec::Status;

use crate::controller::ControllerShared;
use crate::doorbells::Doorbells;
use crate::timeout::CommandTimeout;
use crate::{
    BufferPool, Command, Completed, DmaBuffer, Error, Failure, QueueCounts, RejectReason, Rejected, Transport,
};

/// Entries of a PRP list: one page of them.
const LIST_ENTRIES: usize = PAGE_SIZE / 8;
/// Most bytes of one command: what PRP1 and one list page describe.
pub(crate) const MAX_TRANSFER: usize = LIST_ENTRIES * PAGE_SIZE;

const SQE: usize = 64;
const CQE: usize = 16;

struct CommandSlot {
    buffer: Option<DmaBuffer>,
    cookie: u64,
    submitted: Nanos,
    live: bool,
}

/// One submission queue with its completion queue, owned by one thread.
pub struct QueuePair {
    id: u16,
    shared: Arc<ControllerShared>,
    born: u64,
    doorbells: Doorbells,
    memory: Arc<Region>,
    /// Both queues and the PRP lists; held so that the pool does not hand them out.
    queues: Option<DmaBuffer>,
    sq: usize,
    cq: usize,
    lists: usize,
    lists_iova: u64,
    entries: u32,
    tail: u32,
    rung: u32,
    head: u32,
    head_told: u32,
    head_lag: u32,
    phase: u64,
    free: Vec<u16>,
    slots: Box<[CommandSlot]>,
    vector: Option<u16>,
    max_transfer: usize,
    timeout: CommandTimeout,
    counts: QueueCounts,
}

/// Bytes of the pool that a queue pair needs: submission entries, completion entries, a PRP list per slot.
fn layout(entries: u32, depth: u16) -> (usize, usize, usize) {
    let cq = (entries as usize * SQE).next_multiple_of(PAGE_SIZE);
    let lists = cq + (entries as usize * CQE).next_multiple_of(PAGE_SIZE);
    (cq, lists, lists + usize::from(depth) * PAGE_SIZE)
}

impl QueuePair {
    /// A queue pair of `depth` slots in fresh memory; nothing is told to the controller yet.
    pub(crate) fn allocate(
        id: u16,
        shared: &Arc<ControllerShared>,
        entries: u32,
        depth: u16,
        vector: Option<u16>,
        timeout_ns: u64,
    ) -> Result<QueuePair, Error> {
        let (cq, lists, bytes) = layout(entries, depth);
        let queues = shared.pool.take(bytes)?;
        let (memory, base) = queues.region();
        // A completion's phase says that it is new. All else is written before the drive is told of it.
        memory.fill(base + cq, lists - cq, 0);
        if let Some(v) = vector.and_then(|v| shared.port.vectors().get(usize::from(v))) {
            v.mask();
        }
        Ok(QueuePair {
            id,
            born: shared.stops(),
            doorbells: shared.doorbells(id),
            memory: memory.clone(),
            sq: base,
            cq: base + cq,
            lists: base + lists,
            lists_iova: queues.iova() + lists as u64,
            entries,
            tail: 0,
            rung: 0,
            head: 0,
            head_told: 0,
            // A polled drive may lag as long as completions of all slots
            // still find room beyond what was not told.
            head_lag: (entries - 1).saturating_sub(u32::from(depth)).min(entries / 4),
            phase: 1,
            free: (0..depth).rev().collect(),
            slots: (0..depth)
                .map(|_| CommandSlot { buffer: None, cookie: 0, submitted: Nanos(0), live: false })
                .collect(),
            vector,
            max_transfer: shared.max_transfer(),
            timeout: CommandTimeout::new(timeout_ns),
            counts: QueueCounts::default(),
            queues: Some(queues),
            shared: shared.clone(),
        })
    }

    pub(crate) fn sq_iova(&self) -> u64 {
        self.queues.as_ref().map_or(0, DmaBuffer::iova)
    }

    pub(crate) fn cq_iova(&self) -> u64 {
        self.sq_iova() + (self.cq - self.sq) as u64
    }

    /// The queue's identifier; 0 is the admin queue.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The pool that its buffers come from.
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// The interrupt of its completion queue, where it was created with one.
    /// Masked unless the owner unmasks it.
    pub fn vector(&self) -> Option<&Vector> {
        self.shared.port.vectors().get(usize::from(self.vector?))
    }

    /// PRP2 (Base 2.0, 4.1.1): nothing, the second page, or the slot's list of all pages from the second on.
    #[inline]
    fn second_pointer(&self, slot: u16, iova: u64, len: usize) -> u64 {
        match len.div_ceil(PAGE_SIZE) {
            0 | 1 => 0,
            2 => iova + PAGE_SIZE as u64,
            pages => {
                let list = self.lists + usize::from(slot) * PAGE_SIZE;
                for page in 1..pages {
                    let at = iova + (page * PAGE_SIZE) as u64;
                    self.memory.word64(list + 8 * (page - 1)).store(at, Ordering::Relaxed);
                }
                self.lists_iova + u64::from(slot) * PAGE_SIZE as u64
            }
        }
    }

    /// Whether a completion waits to be reaped. One load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // Acquire: the entry's other words, and the data, were written before its phase tag.
        let word = self.memory.word64(self.cq + self.head as usize * CQE + 8).load(Ordering::Acquire);
        word >> 48 & 1 == self.phase
    }

    /// Takes one completion, if there is one. Does not ring, and looks at no timeout.
    #[inline]
    pub fn reap(&mut self) -> Option<Completed<DmaBuffer>> {
        loop {
            let at = self.cq + self.head as usize * CQE;
            // Acquire: as in `is_ready`. One load of dwords 2 and 3,
            // so that the phase tag and the rest agree.
            let word = self.memory.word64(at + 8).load(Ordering::Acquire);
            if word >> 48 & 1 != self.phase {
                return None;
            }
            let result = self.memory.word64(at).load(Ordering::Relaxed);
            self.head += 1;
            if self.head == self.entries {
                self.head = 0;
                self.phase ^= 1;
            }
            self.tell_head(self.head_lag);
            let cid = (word >> 32) as u16;
            let status = Status((word >> 49) as u16);
            let Some(slot) = self.slots.get_mut(usize::from(cid)).filter(|s| s.live) else {
                self.counts.spurious += 1;
                continue;
            };
            slot.live = false;
            let outcome = if status.is_success() { Ok(result) } else { Err(Failure::Status(status)) };
            let buffer = slot.buffer.take();
            let moved = if outcome.is_ok() { buffer.as_ref().map_or(0, DmaBuffer::len) } else { 0 };
            let done = Completed { cookie: slot.cookie, outcome, buffer, moved, submitted: slot.submitted };
            self.free.push(cid);
            self.counts.completed += 1;
            return Some(done);
        }
    }

    /// Writes the head doorbell where more than `lag` completions were not told.
    #[inline]
    fn tell_head(&mut self, lag: u32) {
        let untold = (self.head + self.entries - self.head_told) % self.entries;
        if untold > lag && self.born == self.shared.stops() {
            self.doorbells.head(self.head_told, self.head);
            self.head_told = self.head;
        }
    }

    /// Tells the drive of all reaped completions: before sleeping, and always where interrupts are in use.
    pub fn settle(&mut self) {
        self.tell_head(0);
    }

    /// The rare look: fatal status, and the oldest command's age.
    #[cold]
    fn look(&mut self, now: Nanos) -> Result<(), Error> {
        self.shared.check()?;
        let oldest = self.slots.iter().filter(|s| s.live).map(|s| s.submitted).min();
        self.timeout.look(oldest, now)
    }

    /// Ends every outstanding command: the drive will not touch their buffers
    /// any more (or `failure` says that it may).
    pub(crate) fn give_up(&mut self, failure: Failure, mut sink: impl FnMut(Completed<DmaBuffer>)) -> usize {
        let mut count = 0;
        for (cid, slot) in self.slots.iter_mut().enumerate().filter(|(_, s)| s.live) {
            slot.live = false;
            self.free.push(cid as u16);
            let mut buffer = slot.buffer.take();
            if may_still_write(failure) {
                self.shared.quarantine(buffer.take());
            }
            count += 1;
            sink(Completed {
                cookie: slot.cookie,
                outcome: Err(failure),
                buffer,
                moved: 0,
                submitted: slot.submitted,
            });
        }
        count
    }

    /// After a creation that failed: where the controller refused or is disabled,
    /// it knows nothing of the memory, which goes back.
    pub(crate) fn abandon(&mut self, error: &Error) {
        if matches!(error, Error::Command { .. } | Error::Stopped) {
            self.queues = None;
        }
    }

    /// After its deletion: no more commands, and the memory goes back.
    pub(crate) fn close(&mut self) {
        self.queues = None;
        if self.id != 0 {
            self.shared.release_queue(self.id);
        }
    }
}

impl Transport for QueuePair {
    type Buffer = DmaBuffer;

    /// A doorbell is a store.
    const RINGS_AT_ONCE: bool = true;

    fn depth(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn counts(&self) -> QueueCounts {
        self.counts
    }

    #[inline]
    fn submit(
        &mut self,
        command: &Command,
        buffer: Option<DmaBuffer>,
        cookie: u64,
        now: Nanos,
    ) -> Result<(), Rejected<DmaBuffer>> {
        let reject = |buffer, reason| Err(Rejected { buffer, reason });
        let Some(&slot) = self.free.last() else {
            let reason = if self.queues.is_none() { RejectReason::Dead } else { RejectReason::Full };
            return reject(buffer, reason);
        };
        if self.born != self.shared.stops() || self.queues.is_none() {
            return reject(buffer, RejectReason::Dead);
        }
        let mut entry = command.entry;
        entry.set_cid(slot);
        if let Some(b) = &buffer {
            if b.len() > self.max_transfer || !self.shared.pool.owns(b) {
                return reject(buffer, RejectReason::Buffer);
            }
            let (iova, len) = (b.iova(), b.len());
            entry.set_quad(6, iova);
            entry.set_quad(8, self.second_pointer(slot, iova, len));
        }
        self.free.pop();
        let s = &mut self.slots[usize::from(slot)];
        s.buffer = buffer;
        s.cookie = cookie;
        s.submitted = now;
        s.live = true;
        self.memory.write_words(self.sq + self.tail as usize * SQE, &entry.cdw);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        self.counts.submitted += 1;
        self.timeout.begin(now);
        Ok(())
    }

    #[inline]
    fn ring(&mut self) {
        // Of a dead queue, its successor has the doorbells.
        if self.tail != self.rung && self.born == self.shared.stops() {
            self.counts.calls += 1;
            self.doorbells.tail(self.rung, self.tail);
            self.rung = self.tail;
        }
    }

    fn poll(&mut self, now: Nanos, mut sink: impl FnMut(Completed<DmaBuffer>)) -> Result<usize, Error> {
        self.ring();
        let mut count = 0;
        // A bound for a drive that completes without end.
        while count < self.entries as usize
            && let Some(done) = self.reap()
        {
            count += 1;
            sink(done);
        }
        if count == 0 && self.outstanding() > 0 {
            if self.born != self.shared.stops() {
                return Ok(self.give_up(self.shared.failure(), sink));
            }
            if now >= self.timeout.look_at() {
                self.look(now)?;
            }
        }
        Ok(count)
    }

    fn is_alive(&self) -> bool {
        self.queues.is_some() && self.born == self.shared.stops()
    }

    fn deadline(&self) -> Option<Nanos> {
        (self.outstanding() > 0).then_some(self.timeout.look_at())
    }

    /// Some looks at the phase tag, with the CPU's own wait between them.
    #[inline]
    fn watch(&mut self, wait: WaitKind) {
        for _ in 0..8 {
            if self.is_ready() {
                return;
            }
            let at = self.cq + self.head as usize * CQE + 12;
            rest(wait, &self.memory, at, self.memory.word32(at).load(Ordering::Relaxed), 2_000);
        }
    }

    /// Arms the interrupt, where it has one.
    fn sleep(&mut self, timeout: Duration) {
        self.settle();
        match self.vector() {
            Some(vector) => {
                vector.sleep(Some(timeout), || !self.is_ready());
            }
            None => std::thread::sleep(timeout.min(Duration::from_micros(20))),
        }
    }

    fn identifier(&self, cookie: u64) -> Option<(u16, u16)> {
        let slot = self.slots.iter().position(|slot| slot.live && slot.cookie == cookie)?;
        Some((self.id, slot as u16))
    }
}

/// Whether a drive may write to buffers of commands that so ended: one in another process, of which no more
/// is known than that its connection is over, may live.
fn may_still_write(failure: Failure) -> bool {
    matches!(failure, Failure::Unresponsive | Failure::Lost)
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let stopped = self.born != self.shared.stops() && !may_still_write(self.shared.failure());
        if !stopped && self.queues.is_some() {
            // The drive may still use the queues and the buffers: they stay taken until it is stopped.
            for slot in &mut self.slots {
                self.shared.quarantine(slot.buffer.take());
            }
            self.shared.quarantine(self.queues.take());
        }
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueuePair({}, {} of {} out)", self.id, self.outstanding(), self.depth())
    }
}
