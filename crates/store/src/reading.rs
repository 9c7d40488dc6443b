//! The channel of a disk that is only read: every operation is done when `submit` returns.

use std::io;

use nearside_clock::Nanos;
use nearside_dma::{Memory, Reach, Span};
use std::sync::Arc;

use crate::check::check;
use crate::dram::UNMAPPED;
use crate::{Channel, Completion, Data, Operation, StoreError, Submitted, Token};

/// Bytes on the way to a host's memory at a time.
const CHUNK: usize = 64 << 10;

/// What gives a disk's bytes, in calls that wait.
pub trait ReadAt: Send + 'static {
    /// Fills `into` with the disk's bytes from `at` on, which are within the disk.
    ///
    /// # Errors
    /// What the file said, or what in it contradicts itself; with the file's name.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

/// A way into a disk that is only read.
pub struct ReadingChannel {
    reader: Box<dyn ReadAt>,
    capacity: u64,
    block_size: u32,
    reach: Reach,
    /// What is on its way to a host's memory.
    chunk: Vec<u8>,
}

impl ReadingChannel {
    pub(crate) fn new(
        reader: Box<dyn ReadAt>,
        capacity: u64,
        block_size: u32,
        memory: Arc<Memory>,
    ) -> ReadingChannel {
        ReadingChannel { reader, capacity, block_size, reach: Reach::new(memory), chunk: Vec::new() }
    }

    fn read(&mut self, operation: &Operation, at: u64, data: &mut Data<'_>) -> Result<(), StoreError> {
        match data {
            Data::None => Ok(()),
            Data::Owned(buffer) => self.reader.read_at(at, buffer).map_err(|e| operation.failed(e)),
            Data::Spans(spans) => {
                let mut at = at;
                for span in *spans {
                    self.read_span(operation, at, *span)?;
                    at += span.len() as u64;
                }
                Ok(())
            }
        }
    }

    fn read_span(&mut self, operation: &Operation, at: u64, span: Span) -> Result<(), StoreError> {
        for from in (0..span.len()).step_by(CHUNK) {
            self.chunk.resize(CHUNK.min(span.len() - from), 0);
            self.reader.read_at(at + from as u64, &mut self.chunk).map_err(|e| operation.failed(e))?;
            let Some((host, host_at)) = self.reach.locate(span) else {
                return Err(operation.failed(UNMAPPED));
            };
            host.write(host_at + from, &self.chunk);
            if host.has_failed() {
                return Err(operation.failed(UNMAPPED));
            }
        }
        Ok(())
    }
}

impl Channel for ReadingChannel {
    fn submit(&mut self, operation: Operation, mut data: Data<'_>, _token: Token, _now: Nanos) -> Submitted {
        let result = check(&operation, &data, self.capacity, self.block_size, true);
        let result = result.and_then(|()| match operation {
            Operation::Read { offset, .. } => self.read(&operation, offset, &mut data),
            // What changes bytes was refused; nothing waits to be durable.
            _ => Ok(()),
        });
        Submitted::done(result, data)
    }

    fn poll(&mut self, _now: Nanos, _sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        None
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn memory_changed(&mut self) {
        self.reach.let_go();
    }
}
