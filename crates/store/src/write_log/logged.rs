//! A store that writes down what is done to it: any store below, and a log.

use std::io;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory};

use super::format::Flags;
use super::writer::{Payload, Reserved, WriteLog};
use crate::dram::UNMAPPED;
use crate::{Backing, Channel, Completion, Data, Operation, Standing, Store, StoreError, Submitted, Token};

/// A store with a write log.
#[derive(Clone, Debug)]
pub struct Logged<S> {
    inner: S,
    log: WriteLog,
}

impl<S: Store> Logged<S> {
    /// `inner`, whose mutations and flushes `log` takes from now on.
    ///
    /// # Errors
    /// `InvalidInput` where the log's sectors are not the store's blocks.
    pub fn new(inner: S, log: WriteLog) -> io::Result<Logged<S>> {
        if log.sector_bytes() != inner.block_size() {
            let (sector, block) = (log.sector_bytes(), inner.block_size());
            let reason = format!("a log with sectors of {sector} bytes, and a store with blocks of {block}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Ok(Logged { inner, log })
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The log.
    pub fn log(&self) -> &WriteLog {
        &self.log
    }
}

impl<S: Store> Store for Logged<S> {
    type Channel = LoggedChannel<S::Channel>;

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn backing(&self) -> Option<Backing> {
        self.inner.backing()
    }

    fn standing(&self) -> &Standing {
        self.inner.standing()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Self::Channel> {
        Ok(LoggedChannel {
            inner: self.inner.channel(memory.clone())?,
            memory,
            log: self.log.clone(),
            slots: Vec::new(),
            free: Vec::new(),
            gathered: Vec::new(),
        })
    }
}

/// A way into a [`Logged`].
pub struct LoggedChannel<C> {
    inner: C,
    memory: Arc<Memory>,
    log: WriteLog,
    /// What is in flight below, under its index.
    slots: Vec<Option<LoggedOperation>>,
    free: Vec<usize>,
    gathered: Vec<(usize, Completion)>,
}

struct LoggedOperation {
    token: Token,
    operation: Operation,
    /// The written bytes are a copy of host memory; else the caller's buffer, which it wants back.
    copied: bool,
    flush: Option<Reserved>,
}

impl LoggedOperation {
    /// Writes down how it ended.
    fn ended(self, log: &WriteLog, mut completion: Completion) -> Completion {
        let copied = self.copied;
        match &completion.result {
            Ok(()) => self.done(log, completion.buffer.as_deref()),
            Err(error @ (StoreError::Medium { .. } | StoreError::Full { .. }))
                if self.operation.mutates() =>
            {
                log.mark(format!("nearside: each block old or new: {error}").as_bytes());
            }
            Err(_) => {
                if let Some(reserved) = self.flush {
                    log.cancel(reserved);
                }
            }
        }
        if copied {
            completion.buffer = None;
        }
        completion
    }

    fn done(self, log: &WriteLog, bytes: Option<&[u8]>) {
        let flags = |fua| if fua { Flags::FUA } else { Flags::NONE };
        match self.operation {
            Operation::Read { .. } => {}
            Operation::Write { offset, len, fua } => {
                log.take(offset, len, flags(fua), Payload::Data(bytes.unwrap_or_default()));
            }
            Operation::WriteZeroes { offset, len, fua } => {
                log.take(offset, len, flags(fua), Payload::Zeros(len));
            }
            Operation::Deallocate { offset, len } => {
                log.take(offset, len, Flags::DISCARD, Payload::None);
            }
            Operation::Flush => {
                if let Some(reserved) = self.flush {
                    log.flushed(reserved);
                }
            }
        }
    }
}

impl<C: Channel> LoggedChannel<C> {
    /// Host memory may change while the store reads it: store and log are given one copy of it.
    fn copy(&self, operation: &Operation, data: &Data<'_>) -> io::Result<Option<IoBuffer>> {
        let (Data::Spans(spans), Operation::Write { .. }) = (data, operation) else { return Ok(None) };
        let mut copy = IoBuffer::new(spans.iter().map(|span| span.len()).sum())?;
        let mut at = 0;
        for &span in *spans {
            if !self.memory.read(span, &mut copy[at..at + span.len()]) {
                return Err(io::Error::other(UNMAPPED));
            }
            at += span.len();
        }
        Ok(Some(copy))
    }

    /// Polls below; apart from `poll`, so that stores nest.
    fn gather(&mut self, now: Nanos) -> Option<Nanos> {
        let gathered = &mut self.gathered;
        self.inner.poll(now, &mut |Token(index), completion| gathered.push((index as usize, completion)))
    }
}

impl<C: Channel> Channel for LoggedChannel<C> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        let copy = match self.copy(&operation, &data) {
            Ok(copy) => copy,
            Err(e) => return Submitted::done(Err(operation.failed(e)), data),
        };
        let copied = copy.is_some();
        let data = copy.map_or(data, Data::Owned);
        let flush = (operation == Operation::Flush).then(|| self.log.reserve());
        let logged = LoggedOperation { token, operation, copied, flush };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        match self.inner.submit(operation, data, Token(index as u64), now) {
            Submitted::Done(completion) => {
                self.free.push(index);
                Submitted::Done(logged.ended(&self.log, completion))
            }
            Submitted::Pending => {
                self.slots[index] = Some(logged);
                Submitted::Pending
            }
        }
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let next = self.gather(now);
        for (index, completion) in self.gathered.drain(..) {
            let Some(logged) = self.slots[index].take() else {
                panic!("the store below completed operation {index}, which has ended");
            };
            self.free.push(index);
            sink(logged.token, logged.ended(&self.log, completion));
        }
        next
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        self.inner.prefetch(offset, len, writes);
    }

    fn memory_changed(&mut self) {
        self.inner.memory_changed();
    }
}
