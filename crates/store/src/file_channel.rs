//! One reactor's way into a [`crate::File`].
//!
//! A request is checked, becomes a [`Job`], and runs through its calls (most have one; a short transfer is
//! continued, a missing ability of the file system is made up for by another call). A warm read through the
//! page cache is tried at once, without waiting, and is then done when `submit` returns. Operations that
//! overlap one in flight, where either changes bytes, wait for it: so no block is torn.
//!
//! A durable write that finds no room (the file system is full) was not acknowledged, and nothing else is
//! lost by it, unless what failed was not the write but the write-back that came with it: a second
//! descriptor, which no call has told of a failed write-back, is asked to make the file durable. If that goes
//! well, the write alone has failed.
//!
//! O_DIRECT wants aligned memory: host memory that is not goes by way of a bounce buffer.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::file::{Call, Scratch, Transfer, is_full, is_unsupported, run};
use nearside_dma::uring::{self, Bytes, Uring};
use nearside_dma::{IoBuffer, LentBytes, Memory, Span};

use crate::check::check;
use crate::dram::UNMAPPED;
use crate::durable::{Begun, Unsettled};
use crate::file::{Backend, OpenFile};
use crate::trouble::Trouble;
use crate::{Channel, Completion, Data, Operation, StoreError, Submitted, Token};

/// Calls in flight at the kernel.
const DEPTH: u32 = 128;
/// Operations taken beyond that, waiting for their turn.
const WAITING: usize = 128;
/// Zeros written at a time where a file system knows no call for it.
const ZEROS: u64 = 1 << 20;

/// What the file system was found to lack; learnt from its first refusal.
#[derive(Clone, Copy, Default)]
struct Lacks {
    nowait: bool,
    durable_write: bool,
    punch_hole: bool,
    zero_range: bool,
}

/// Which call of a job is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallStage {
    Move,
    Punch,
    Zero,
    Fill,
    Sync,
    /// The file's second descriptor is asked, after a durable write that found no room.
    Witness,
}

struct Job {
    token: Token,
    operation: Operation,
    stage: CallStage,
    /// Bytes of the operation that are behind it.
    done: u64,
    bytes: Bytes,
    /// Host memory, where `bytes` is a bounce buffer.
    bounced: Option<Vec<Span>>,
    /// The flag of the call in flight.
    durable: bool,
    /// The call in flight, where it is to make bytes durable.
    begun: Option<Begun>,
    /// Why there was no room, while the witness is asked.
    full: Option<io::Error>,
}

enum JobStep {
    /// Another call, as it is.
    Again,
    /// Another call, because of what happened to this one.
    Retry(Trouble),
    Done(Result<(), StoreError>),
    /// Good, if the calls that ran beside it were.
    Settle(Unsettled),
}

impl Job {
    fn first_stage(operation: Operation) -> CallStage {
        match operation {
            Operation::Read { .. } | Operation::Write { .. } => CallStage::Move,
            Operation::WriteZeroes { .. } => CallStage::Zero,
            Operation::Deallocate { .. } => CallStage::Punch,
            Operation::Flush => CallStage::Sync,
        }
    }

    /// The next call, and how much of the memory is behind it. Its result has to go to [`Job::after`].
    fn begin(&mut self, lacks: &Lacks, store: &OpenFile) -> io::Result<(Call, usize)> {
        let call = self.call(lacks)?;
        if self.begun.is_none() && matches!(call.0, Call::Sync | Call::Write { durable: true, .. }) {
            self.begun = Some(store.durable.begin());
        }
        Ok(call)
    }

    fn call(&mut self, lacks: &Lacks) -> io::Result<(Call, usize)> {
        let (offset, len) = self.operation.range().unwrap_or((0, 0));
        if self.stage == CallStage::Punch && lacks.punch_hole {
            self.stage = if lacks.zero_range { CallStage::Fill } else { CallStage::Zero };
        }
        if self.stage == CallStage::Zero && lacks.zero_range {
            self.stage = if lacks.punch_hole { CallStage::Fill } else { CallStage::Punch };
        }
        let at = offset + self.done;
        Ok(match self.stage {
            CallStage::Move if matches!(self.operation, Operation::Read { .. }) => {
                (Call::Read { offset: at }, self.done as usize)
            }
            CallStage::Move => {
                self.durable =
                    matches!(self.operation, Operation::Write { fua: true, .. }) && !lacks.durable_write;
                (Call::Write { offset: at, durable: self.durable }, self.done as usize)
            }
            CallStage::Punch => (Call::PunchHole { offset, len }, 0),
            CallStage::Zero => (Call::ZeroRange { offset, len }, 0),
            CallStage::Fill => {
                let part = (len - self.done).min(ZEROS) as usize;
                match &mut self.bytes {
                    Bytes::Buffer(zeros) => zeros.set_len(part),
                    bytes => *bytes = Bytes::Buffer(IoBuffer::new(part)?),
                }
                (Call::Write { offset: at, durable: false }, 0)
            }
            CallStage::Sync | CallStage::Witness => (Call::Sync, 0),
        })
    }

    /// The descriptor that the next call is for, where it is not the store's.
    fn other<'a>(&self, store: &'a OpenFile) -> Option<&'a Arc<File>> {
        store.witness.as_ref().filter(|_| self.stage == CallStage::Witness)
    }

    /// Gives the next call up, before it has begun or with no way to hear how it ends.
    fn give_up(&mut self, store: &OpenFile) {
        if let Some(begun) = self.begun.take() {
            let _ = store.durable.end(begun, self.stage == CallStage::Witness);
        }
    }

    /// What the witness says, after a durable write that found no room.
    fn judged(&mut self, result: io::Result<usize>, store: &OpenFile) -> JobStep {
        let full = match (result, self.full.take()) {
            (Ok(_), Some(full)) => self.operation.full(full),
            (Ok(_), None) => self.operation.full("no room"),
            (Err(e), _) => self.operation.failed(format_args!("what was written before is not durable: {e}")),
        };
        if let Some(begun) = self.begun.take() {
            let _ = store.durable.end(begun, !matches!(full, StoreError::Full { .. }));
        }
        JobStep::Done(Err(full))
    }

    /// Takes a call's result.
    fn after(&mut self, result: io::Result<usize>, lacks: &mut Lacks, store: &OpenFile) -> JobStep {
        let granule = u64::from(store.block_size);
        let len = self.operation.range().map_or(0, |(_, len)| len);
        let result = match result {
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                if self.stage != CallStage::Witness {
                    self.give_up(store);
                }
                return JobStep::Retry(Trouble::Interrupted);
            }
            result if self.stage == CallStage::Witness => return self.judged(result, store),
            Err(e) if self.durable && self.stage == CallStage::Move && is_full(&e) => {
                // Who ran beside it waits for the answer.
                (self.full, self.stage) = (Some(e), CallStage::Witness);
                return JobStep::Again;
            }
            Err(e) => Err(e),
            Ok(n) => Ok(n as u64),
        };
        let lacking = matches!(&result, Err(e) if self.stage == CallStage::Move && is_unsupported(e));
        let unsettled = self.begun.take().map(|begun| store.durable.end(begun, result.is_err() && !lacking));
        match (self.stage, result) {
            (CallStage::Punch, Err(e)) if is_unsupported(&e) => {
                lacks.punch_hole = true;
                return JobStep::Again;
            }
            (CallStage::Zero, Err(e)) if is_unsupported(&e) => {
                lacks.zero_range = true;
                return JobStep::Again;
            }
            (CallStage::Move, Err(e)) if self.durable && is_unsupported(&e) => {
                lacks.durable_write = true;
                return JobStep::Again;
            }
            (CallStage::Move | CallStage::Fill | CallStage::Punch | CallStage::Zero, Err(e))
                if is_full(&e) =>
            {
                return JobStep::Done(Err(self.operation.full(e)));
            }
            (_, Err(e)) => return JobStep::Done(Err(self.operation.failed(e))),
            (CallStage::Move | CallStage::Fill, Ok(n)) => {
                // Whole blocks only, so that a transfer cut short goes on aligned.
                let n = if self.done + n >= len { len - self.done } else { n - n % granule };
                if n == 0 {
                    let reason = match self.operation {
                        Operation::Read { .. } => "the file has become shorter",
                        _ => "nothing was written",
                    };
                    return JobStep::Done(Err(self.operation.failed(reason)));
                }
                self.done += n;
                if self.done < len {
                    let whole = self.stage == CallStage::Fill;
                    return if whole { JobStep::Again } else { JobStep::Retry(Trouble::CutShort) };
                }
            }
            (CallStage::Punch | CallStage::Zero | CallStage::Sync | CallStage::Witness, Ok(_)) => {}
        }
        let sync = match self.operation {
            Operation::Write { fua, .. } => fua && !self.durable,
            Operation::WriteZeroes { fua, .. } => fua,
            _ => false,
        };
        if sync && self.stage != CallStage::Sync {
            self.stage = CallStage::Sync;
            return JobStep::Again;
        }
        unsettled.map_or(JobStep::Done(Ok(())), JobStep::Settle)
    }

    fn settled(&self, sure: bool) -> Result<(), StoreError> {
        let reason =
            "an earlier call to make bytes durable failed, or one beside it: what was lost is not known";
        if sure { Ok(()) } else { Err(self.operation.failed(reason)) }
    }
}

/// A way into a [`crate::File`].
pub struct FileChannel {
    store: Arc<OpenFile>,
    memory: Arc<Memory>,
    /// Made for the first call that needs one, where the store's backend is not yet known.
    uring: Option<Uring>,
    /// Every call is a positioned one.
    positioned: bool,
    lacks: Lacks,
    scratch: Scratch,
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// At the kernel.
    running: Vec<usize>,
    /// Waiting for room or for an operation that they overlap, oldest first.
    waiting: VecDeque<usize>,
    /// How many of both change bytes.
    mutating: usize,
    /// Bounce buffers and span lists to use again.
    buffers: Vec<IoBuffer>,
    lists: Vec<Vec<Span>>,
    /// Ended without io_uring.
    failed: Vec<(usize, Result<(), StoreError>)>,
    /// Went well, if the calls that ran beside them did.
    unsettled: Vec<(usize, Unsettled)>,
}

impl FileChannel {
    pub(crate) fn new(store: Arc<OpenFile>, memory: Arc<Memory>) -> io::Result<FileChannel> {
        let uring = match store.backend {
            Some(Backend::Uring) => Some(Uring::new(store.file.clone(), memory.clone(), DEPTH)?),
            Some(Backend::Positioned) | None => None,
        };
        let positioned = store.backend == Some(Backend::Positioned);
        Ok(FileChannel {
            store,
            memory,
            uring,
            positioned,
            lacks: Lacks::default(),
            scratch: Scratch::default(),
            jobs: Vec::new(),
            free: Vec::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            mutating: 0,
            buffers: Vec::new(),
            lists: Vec::new(),
            failed: Vec::new(),
            unsettled: Vec::new(),
        })
    }

    fn aligned(&self, spans: &[Span]) -> bool {
        let align = self.store.block_size as usize;
        let whole = |at: usize, len: usize| at.is_multiple_of(align) && len.is_multiple_of(align);
        spans.iter().all(|&s| self.memory.locate(s).is_none_or(|(_, at)| whole(at, s.len())))
    }

    /// Makes the job; its memory is bounced where O_DIRECT needs it. Gives the data back where there is no
    /// room for it.
    fn job(&mut self, operation: Operation, data: Data<'_>, token: Token) -> io::Result<Job> {
        let mut bounced = None;
        let bytes = match data {
            Data::None => Bytes::None,
            Data::Owned(buffer) => Bytes::Buffer(buffer),
            Data::Spans(spans) => {
                let mut list = self.lists.pop().unwrap_or_default();
                list.clear();
                list.extend_from_slice(spans);
                if self.store.direct && !self.aligned(spans) {
                    let mut buffer = self.bounce(operation.range().map_or(0, |(_, len)| len as usize))?;
                    if operation.mutates() && !copy(&self.memory, &list, &mut buffer, Memory::read) {
                        return Err(io::Error::other(UNMAPPED));
                    }
                    bounced = Some(list);
                    Bytes::Buffer(buffer)
                } else {
                    Bytes::Spans(list)
                }
            }
        };
        let stage = Job::first_stage(operation);
        Ok(Job { token, operation, stage, done: 0, bytes, bounced, durable: false, begun: None, full: None })
    }

    fn bounce(&mut self, len: usize) -> io::Result<IoBuffer> {
        let fits = self.buffers.iter().position(|b| b.capacity() >= len);
        let mut buffer = match fits {
            Some(at) => self.buffers.swap_remove(at),
            None => IoBuffer::new(len)?,
        };
        buffer.set_len(len);
        Ok(buffer)
    }

    /// Ends a job: bytes of a bounced read go to the host, memory to its owner.
    fn complete(&mut self, mut job: Job, mut result: Result<(), StoreError>, now: Nanos) -> Completion {
        if let Err(error) = &result {
            self.store.log.report_error(error, &job.operation, now);
        }
        let mut buffer = None;
        match (job.bytes, job.bounced.take(), job.operation) {
            (Bytes::Buffer(mut bounce), Some(list), operation) => {
                let put = |memory: &Memory, span, bytes: &mut [u8]| memory.write(span, bytes);
                let reads = result.is_ok() && !operation.mutates();
                if reads && !copy(&self.memory, &list, &mut bounce, put) {
                    result = Err(operation.failed(UNMAPPED));
                }
                self.keep(bounce);
                self.lists.push(list);
            }
            (Bytes::Buffer(owned), None, Operation::Read { .. } | Operation::Write { .. }) => {
                buffer = Some(owned)
            }
            (Bytes::Spans(list), ..) => self.lists.push(list),
            // The zeros of a fill.
            (Bytes::Buffer(_), None, _) | (Bytes::None, ..) => {}
        }
        Completion { result, buffer }
    }

    fn keep(&mut self, buffer: IoBuffer) {
        const KEPT: usize = 32;
        if self.buffers.len() < KEPT {
            self.buffers.push(buffer);
        }
    }

    /// Whether `operation` must wait for one of `others`.
    fn conflicts<'a>(&self, operation: &Operation, mut others: impl Iterator<Item = &'a usize>) -> bool {
        let Some((offset, len)) = operation.range() else { return false };
        if self.mutating == 0 && !operation.mutates() {
            return false;
        }
        others.any(|&other| {
            let Some(other) = self.jobs[other].as_ref().map(|job| job.operation) else { return false };
            other.range().is_some_and(|(o, l)| {
                offset < o + l && o < offset + len && (operation.mutates() || other.mutates())
            })
        })
    }

    /// Runs a job to its end in this thread.
    fn run_now(&mut self, job: &mut Job, now: Nanos) -> Result<(), StoreError> {
        loop {
            let (call, skip) = job.begin(&self.lacks, &self.store).map_err(|e| job.operation.failed(e))?;
            let file = job.other(&self.store).unwrap_or(&self.store.file);
            let transfer =
                if job.stage == CallStage::Witness { Transfer::None } else { job.bytes.transfer() };
            let result = run(file, &self.memory, call, transfer, skip, false, &mut self.scratch);
            match job.after(result, &mut self.lacks, &self.store) {
                JobStep::Again => {}
                JobStep::Retry(why) => self.store.log.report(why, &job.operation, "", now),
                JobStep::Done(result) => return result,
                JobStep::Settle(call) => return job.settled(self.store.durable.settle(call)),
            }
        }
    }

    /// Makes the ring, where there may be one and is none yet.
    fn make_ring(&mut self) {
        if self.uring.is_none() && !self.positioned {
            let ring = uring::available()
                .and_then(|()| Uring::new(self.store.file.clone(), self.memory.clone(), DEPTH));
            self.positioned = ring.is_err();
            self.uring = ring.ok();
        }
    }

    /// Gives the next call of a job to io_uring; runs it to its end where there is none.
    fn push(&mut self, index: usize, now: Nanos) {
        self.make_ring();
        if self.uring.is_none()
            && let Some(mut job) = self.jobs[index].take()
        {
            let result = self.run_now(&mut job, now);
            self.jobs[index] = Some(job);
            self.failed.push((index, result));
            return;
        }
        let (Some(uring), Some(job)) = (&mut self.uring, &mut self.jobs[index]) else { return };
        match job.begin(&self.lacks, &self.store) {
            Ok((call, skip)) => {
                let bytes = std::mem::take(&mut job.bytes);
                if let Err(bytes) = uring.push_on(job.other(&self.store), call, bytes, skip, index as u64) {
                    // Cannot be: no more jobs run than io_uring holds.
                    job.bytes = bytes;
                    job.give_up(&self.store);
                    let error = job.operation.failed("the ring is full");
                    self.failed.push((index, Err(error)));
                }
            }
            Err(e) => {
                let error = job.operation.failed(e);
                self.failed.push((index, Err(error)));
            }
        }
    }

    /// Starts what waits and may run, oldest first.
    fn start_waiting(&mut self, now: Nanos) {
        let mut at = 0;
        while at < self.waiting.len() && self.running.len() < DEPTH as usize {
            let index = self.waiting[at];
            let Some(operation) = self.jobs[index].as_ref().map(|job| job.operation) else {
                self.waiting.remove(at);
                continue;
            };
            if self.conflicts(&operation, self.running.iter().chain(self.waiting.iter().take(at))) {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.running.push(index);
            self.push(index, now);
        }
    }

    /// A job that went well, and now that those beside it have ended is known to or not.
    fn settle(&mut self) -> Option<(usize, Result<(), StoreError>)> {
        let durable = &self.store.durable;
        let mut held = self.unsettled.iter().enumerate();
        let (at, sure) = held.find_map(|(at, &(_, call))| Some((at, durable.settled(call)?)))?;
        let (index, _) = self.unsettled.swap_remove(at);
        Some((index, self.jobs[index].as_ref().map_or(Ok(()), |job| job.settled(sure))))
    }

    fn finish(
        &mut self,
        index: usize,
        result: Result<(), StoreError>,
        now: Nanos,
    ) -> Option<(Token, Completion)> {
        let job = self.jobs[index].take()?;
        self.running.retain(|&other| other != index);
        self.free.push(index);
        let mutates = usize::from(job.operation.mutates());
        // Below zero, operations on the same blocks would run beside each other.
        assert!(mutates <= self.mutating, "more mutations ended than began");
        self.mutating -= mutates;
        Some((job.token, self.complete(job, result, now)))
    }
}

/// The outcome of calls in flight is lost: those beside them cannot count on them.
impl Drop for FileChannel {
    fn drop(&mut self) {
        for begun in self.jobs.iter_mut().flatten().filter_map(|job| job.begun.take()) {
            let _ = self.store.durable.end(begun, true);
        }
    }
}

/// Copies between a bounce buffer and host memory, span by span.
/// Whether all of it was the host's.
fn copy(
    memory: &Memory,
    spans: &[Span],
    bytes: &mut [u8],
    each: impl Fn(&Memory, Span, &mut [u8]) -> bool,
) -> bool {
    let (mut rest, mut whole) = (bytes, true);
    for &span in spans {
        let (part, after) = rest.split_at_mut(span.len());
        whole &= each(memory, span, part);
        rest = after;
    }
    whole
}

impl Channel for FileChannel {
    fn submit(&mut self, operation: Operation, mut data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        let store = &self.store;
        if let Err(error) = check(&operation, &data, store.capacity(), store.block_size, store.read_only) {
            return Submitted::done(Err(error), data);
        }
        if operation.range().is_some_and(|(_, len)| len == 0) {
            return Submitted::done(Ok(()), data);
        }
        if self.positioned {
            return match self.job(operation, data, token) {
                Ok(mut job) => {
                    let result = self.run_now(&mut job, now);
                    Submitted::Done(self.complete(job, result, now))
                }
                Err(e) => Submitted::Done(Completion { result: Err(operation.failed(e)), buffer: None }),
            };
        }
        let waits = self.conflicts(&operation, self.running.iter().chain(&self.waiting));
        let mut done = 0;
        if let Operation::Read { offset, len } = operation
            && !waits
            && !self.store.direct
            && !self.lacks.nowait
        {
            // What the page cache holds costs one plain call; what it lacks goes by io_uring.
            let transfer = match &mut data {
                Data::None => Transfer::None,
                Data::Spans(spans) => Transfer::Spans(spans),
                Data::Owned(buffer) => Transfer::Buffer(buffer),
            };
            let call = Call::Read { offset };
            match run(&self.store.file, &self.memory, call, transfer, 0, true, &mut self.scratch) {
                Ok(n) if n as u64 >= len => return Submitted::done(Ok(()), data),
                Ok(n) => done = n as u64 - n as u64 % u64::from(self.store.block_size),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Refused by this file system, or failed: io_uring's answer counts.
                Err(e) => self.lacks.nowait = is_unsupported(&e),
            }
        }
        let must_wait = waits || self.running.len() >= DEPTH as usize;
        if must_wait && self.waiting.len() >= WAITING {
            return Submitted::done(Err(StoreError::Busy), data);
        }
        let mut job = match self.job(operation, data, token) {
            Ok(job) => job,
            Err(e) => return Submitted::Done(Completion { result: Err(operation.failed(e)), buffer: None }),
        };
        job.done = done;
        let index = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.jobs[index] = Some(job);
        self.mutating += usize::from(operation.mutates());
        if must_wait {
            self.waiting.push_back(index);
        } else {
            self.running.push(index);
            self.push(index, now);
        }
        Submitted::Pending
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        loop {
            let polled = match &mut self.uring {
                Some(uring) if !self.running.is_empty() => uring.poll(),
                _ => None,
            };
            let (index, result) = match (polled, self.failed.pop()) {
                (None, None) => match self.settle() {
                    Some(settled) => settled,
                    None => break,
                },
                (Some((user, result, bytes)), failed) => {
                    self.failed.extend(failed);
                    let index = user as usize;
                    let Some(job) = &mut self.jobs[index] else {
                        panic!("the kernel completed a call of operation {index}, which has ended");
                    };
                    job.bytes = bytes;
                    match job.after(result, &mut self.lacks, &self.store) {
                        JobStep::Again => {
                            self.push(index, now);
                            continue;
                        }
                        JobStep::Retry(why) => {
                            self.store.log.report(why, &job.operation, "", now);
                            self.push(index, now);
                            continue;
                        }
                        JobStep::Done(result) => (index, result),
                        JobStep::Settle(call) => {
                            self.unsettled.push((index, call));
                            continue;
                        }
                    }
                }
                (None, Some(failed)) => failed,
            };
            if let Some((token, completion)) = self.finish(index, result, now) {
                sink(token, completion);
            }
            if !self.waiting.is_empty() {
                self.start_waiting(now);
            }
        }
        (self.in_flight() > 0).then_some(now)
    }

    fn lend(&mut self, offset: u64, len: usize) -> Option<LentBytes> {
        self.store.lend(offset, len)
    }

    fn lapses(&self) -> u64 {
        self.store.has_lapsed().into()
    }

    fn in_flight(&self) -> usize {
        self.running.len() + self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, FileOptions, Store};

    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    const EIO: i32 = 5;

    fn job(operation: Operation) -> Job {
        let stage = Job::first_stage(operation);
        let bytes = Bytes::Buffer(IoBuffer::new(4096).unwrap());
        Job {
            token: Token(1),
            operation,
            stage,
            done: 0,
            bytes,
            bounced: None,
            durable: false,
            begun: None,
            full: None,
        }
    }

    /// A job whose calls end as said; what it ends in, and how many calls it took.
    fn scripted(
        store: &OpenFile,
        operation: Operation,
        calls: &[Result<usize, i32>],
    ) -> Result<(), StoreError> {
        let (mut job, mut lacks) = (job(operation), Lacks::default());
        for (at, &call) in calls.iter().enumerate() {
            job.begin(&lacks, store).unwrap();
            match job.after(call.map_err(io::Error::from_raw_os_error), &mut lacks, store) {
                JobStep::Again | JobStep::Retry(_) => {}
                end => {
                    assert_eq!(at + 1, calls.len(), "it ended before the last call");
                    return match end {
                        JobStep::Done(result) => result,
                        JobStep::Settle(call) => job.settled(store.durable.settle(call)),
                        JobStep::Again | JobStep::Retry(_) => unreachable!(),
                    };
                }
            }
        }
        panic!("more calls than {}", calls.len());
    }

    #[test]
    fn no_room_for_a_write_is_no_loss() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let store = File::open(file.path(), FileOptions::serve()).unwrap();
        let store = &store.inner;
        let (offset, len) = (4096, 4096);
        let write = |fua| Operation::Write { offset, len, fua };
        let zeroes = Operation::WriteZeroes { offset, len, fua: true };
        let deallocate = Operation::Deallocate { offset, len };
        let unsupported = Err(95);
        for errno in [ENOSPC, EDQUOT, 27] {
            for (operation, calls) in [
                (write(false), vec![Err(errno)]),
                // Some blocks found room, the others not; then the witness, which is interrupted once, says
                // that all is well.
                (write(true), vec![Ok(512), Err(errno), Err(4), Ok(0)]),
                (zeroes, vec![Err(errno)]),
                (zeroes, vec![unsupported, Err(errno)]),
                (zeroes, vec![unsupported, unsupported, Err(errno)]),
                (deallocate, vec![Err(errno)]),
            ] {
                let ended = scripted(store, operation, &calls);
                assert!(matches!(ended, Err(StoreError::Full { .. })), "{operation:?}: {ended:?}");
                assert_eq!(scripted(store, Operation::Flush, &[Ok(0)]), Ok(()), "{operation:?}");
            }
        }
    }

    #[test]
    fn no_room_for_what_was_acknowledged_is_a_loss() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let write = Operation::Write { offset: 0, len: 4096, fua: true };
        for (operation, calls) in [
            (write, vec![Err(ENOSPC), Err(ENOSPC)]),
            (write, vec![Err(ENOSPC), Err(EIO)]),
            (write, vec![Err(EIO)]),
            (Operation::Flush, vec![Err(ENOSPC)]),
            (Operation::WriteZeroes { offset: 0, len: 4096, fua: true }, vec![Ok(0), Err(ENOSPC)]),
        ] {
            let store = File::open(file.path(), FileOptions::serve()).unwrap();
            let ended = scripted(&store.inner, operation, &calls);
            assert!(matches!(ended, Err(StoreError::Medium { .. })), "{operation:?}: {ended:?}");
            for later in [Operation::Flush, write] {
                let later = scripted(&store.inner, later, &[Ok(4096)]);
                assert!(later.is_err(), "{operation:?}, then {later:?}");
            }
        }
    }

    #[test]
    fn who_ran_beside_waits_for_the_witness() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for (says, good) in [(Ok(0), true), (Err(EIO), false)] {
            let store = File::open(file.path(), FileOptions::serve()).unwrap();
            let store = &store.inner;
            let (mut full, mut lacks) =
                (job(Operation::Write { offset: 0, len: 4096, fua: true }), Lacks::default());
            full.begin(&lacks, store).unwrap();
            let beside = store.durable.begin();
            let beside = store.durable.end(beside, false);
            let no_room = Err(io::Error::from_raw_os_error(ENOSPC));
            assert!(matches!(full.after(no_room, &mut lacks, store), JobStep::Again));
            assert_eq!(store.durable.settled(beside), None);
            assert!(full.other(store).is_some(), "the next call is the witness's");
            full.begin(&lacks, store).unwrap();
            assert_eq!(store.durable.settled(beside), None);
            full.after(says.map_err(io::Error::from_raw_os_error), &mut lacks, store);
            assert_eq!(store.durable.settled(beside), Some(good));
        }
    }

    #[test]
    fn after_a_failed_sync_no_flush_is_good() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let store = File::open(file.path(), FileOptions::serve()).unwrap();
        let mut channels = [store.channel(Arc::default()).unwrap(), store.channel(Arc::default()).unwrap()];
        let flush = |channel: &mut FileChannel| {
            let mut done = match channel.submit(Operation::Flush, Data::None, Token(1), Nanos(0)) {
                Submitted::Done(completion) => Some(completion.result),
                Submitted::Pending => None,
            };
            while done.is_none() {
                channel.poll(Nanos(0), &mut |_, completion| done = Some(completion.result));
            }
            done.unwrap()
        };
        assert_eq!(flush(&mut channels[0]), Ok(()));
        // What a call of another channel would have said.
        let _ = store.inner.durable.end(store.inner.durable.begin(), true);
        for channel in &mut channels {
            assert!(flush(channel).unwrap_err().to_string().contains("earlier"));
        }
    }

    #[test]
    fn a_flush_waits_for_what_the_one_beside_it_says() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for failed in [false, true] {
            let store = File::open(file.path(), FileOptions::serve()).unwrap();
            if store.backend() == Backend::Positioned {
                eprintln!("LEFT OUT: a_flush_waits_for_what_the_one_beside_it_says: no io_uring");
                return;
            }
            let mut channel = store.channel(Arc::default()).unwrap();
            let beside = store.inner.durable.begin();
            let submitted = channel.submit(Operation::Flush, Data::None, Token(1), Nanos(0));
            assert!(matches!(submitted, Submitted::Pending));
            let mut done = None;
            while channel.unsettled.is_empty() {
                channel.poll(Nanos(0), &mut |_, completion| done = Some(completion.result));
                assert!(done.is_none(), "{done:?} while the other ran");
            }
            let _ = store.inner.durable.end(beside, failed);
            channel.poll(Nanos(0), &mut |_, completion| done = Some(completion.result));
            assert_eq!(done.map(|result| result.is_err()), Some(failed));
            assert_eq!(channel.in_flight(), 0);
        }
    }
}
