//! A store in memory that forgets what was not flushed: for crash tests.
//!
//! It keeps what is durable apart from what has only been written, and of the latter every version of every
//! block since the last flush. [`Lossy::crash`] ends it the way a power cut may: each block that was written
//! and not flushed comes back, by a seeded draw of its own, as its durable version or as any one written
//! since.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory, Region};

use crate::dram::DramChannel;
use crate::{Channel, Completion, Data, Dram, Operation, Store, Submitted, Token};
use nearside_random::draw;

/// A store that a crash takes back. Clones share it.
#[derive(Clone, Debug)]
pub struct Lossy {
    current: Dram,
    durable: Arc<Mutex<Durable>>,
}

#[derive(Debug)]
struct Durable {
    bytes: Region,
    /// Of each block (by its first byte), the versions since the last flush.
    pending: BTreeMap<u64, Vec<Box<[u8]>>>,
}

impl Lossy {
    /// A store of `capacity` durable zero bytes: a multiple of `block_size`, which is 512 or 4096.
    ///
    /// # Errors
    /// Those of [`Dram::new`].
    pub fn new(capacity: u64, block_size: u32) -> io::Result<Lossy> {
        let current = Dram::new(capacity, block_size)?;
        let bytes = Region::anonymous(capacity as usize)?;
        Ok(Lossy { current, durable: Arc::new(Mutex::new(Durable { bytes, pending: BTreeMap::new() })) })
    }

    /// Cuts the power and gives it back. Nothing may be in flight. Answers how many blocks lost something.
    pub fn crash(&self, seed: u64) -> usize {
        let mut durable = self.durable.lock().unwrap_or_else(|e| e.into_inner());
        let mut random = seed;
        let mut lost = 0;
        for (at, versions) in std::mem::take(&mut durable.pending) {
            let survivor = draw(&mut random) as usize % (versions.len() + 1);
            lost += usize::from(survivor < versions.len());
            if let Some(version) = survivor.checked_sub(1).and_then(|n| versions.get(n)) {
                durable.bytes.write(at as usize, version);
            }
            let block = self.current.block_size() as usize;
            Region::copy(&durable.bytes, at as usize, self.current.region(), at as usize, block);
        }
        lost
    }

    /// The bytes that a reader sees now.
    ///
    /// # Errors
    /// `OutOfMemory` and the like.
    pub fn contents(&self) -> io::Result<IoBuffer> {
        let mut all = IoBuffer::new(self.capacity() as usize)?;
        self.current.region().read(0, &mut all);
        Ok(all)
    }

    /// Blocks written and not flushed.
    pub fn unflushed(&self) -> usize {
        self.durable.lock().unwrap_or_else(|e| e.into_inner()).pending.len()
    }
}

impl Store for Lossy {
    type Channel = LossyChannel;

    fn capacity(&self) -> u64 {
        self.current.capacity()
    }

    fn block_size(&self) -> u32 {
        self.current.block_size()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<LossyChannel> {
        Ok(LossyChannel { current: self.current.channel(memory)?, store: self.clone() })
    }
}

/// A way into a [`Lossy`].
pub struct LossyChannel {
    current: DramChannel,
    store: Lossy,
}

impl Channel for LossyChannel {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        // Held over both: a version recorded is the version written, whichever channel was first.
        let mut durable = self.store.durable.lock().unwrap_or_else(|e| e.into_inner());
        let submitted = self.current.submit(operation, data, token, now);
        if let Submitted::Done(Completion { result: Ok(()), .. }) = &submitted {
            durable.note(self.store.current.region(), u64::from(self.store.block_size()), operation);
        }
        submitted
    }

    fn poll(&mut self, _now: Nanos, _sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        None
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        self.current.prefetch(offset, len, writes);
    }

    fn memory_changed(&mut self) {
        self.current.memory_changed();
    }
}

impl Durable {
    fn note(&mut self, current: &Region, block: u64, operation: Operation) {
        let fua = match operation {
            Operation::Read { .. } => return,
            Operation::Flush => {
                for (at, versions) in std::mem::take(&mut self.pending) {
                    if let Some(last) = versions.last() {
                        self.bytes.write(at as usize, last);
                    }
                }
                return;
            }
            Operation::Write { fua, .. } | Operation::WriteZeroes { fua, .. } => fua,
            Operation::Deallocate { .. } => false,
        };
        let Some((offset, len)) = operation.range() else { return };
        for at in (offset..offset + len).step_by(block as usize) {
            if fua {
                self.pending.remove(&at);
                Region::copy(current, at as usize, &self.bytes, at as usize, block as usize);
            } else {
                let mut version = vec![0; block as usize].into_boxed_slice();
                current.read(at as usize, &mut version);
                self.pending.entry(at).or_default().push(version);
            }
        }
    }
}
