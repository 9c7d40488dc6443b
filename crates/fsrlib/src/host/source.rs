//! Metadata blocks read by ordinary NVMe Reads, with or without a cache on the host.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use nearside_fsview as fsview;

use crate::session::Session;
use crate::{Error, Transport};

/// Blocks that the host has read, by offset and length. Emptied when it holds [`BlockCache::MOST`] bytes.
#[derive(Default)]
pub struct BlockCache {
    blocks: HashMap<(u64, u32), Arc<[u8]>>,
    bytes: usize,
}

impl BlockCache {
    /// Bytes at which it starts anew.
    pub const MOST: usize = 256 * 1024 * 1024;

    /// Forgets all.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.bytes = 0;
    }

    fn put(&mut self, at: (u64, u32), block: Arc<[u8]>) {
        if self.bytes > Self::MOST {
            self.clear();
        }
        self.bytes += block.len();
        self.blocks.insert(at, block);
    }
}

/// A [`fsview::Source`] over a session's transport.
pub struct HostSource<'s, T> {
    session: RefCell<&'s mut Session<T>>,
    cache: &'s RefCell<BlockCache>,
    base: u64,
    len: u64,
    cached: bool,
    failure: Cell<Option<Error>>,
}

impl<'s, T: Transport> HostSource<'s, T> {
    /// A source over `len` bytes of the namespace from byte `base` on.
    pub fn new(
        session: &'s mut Session<T>,
        cache: &'s RefCell<BlockCache>,
        base: u64,
        len: u64,
        cached: bool,
    ) -> Self {
        HostSource { session: RefCell::new(session), cache, base, len, cached, failure: Cell::new(None) }
    }

    /// The transport's own error, where one occurred: it is no matter of the volume.
    pub fn finish(self) -> Result<(), Error> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl<T: Transport> fsview::Source for HostSource<'_, T> {
    type Block = Arc<[u8]>;

    fn len(&self) -> u64 {
        self.len
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Arc<[u8]>, fsview::Error> {
        if let Some(block) = self.cache.borrow().blocks.get(&(offset, len)).filter(|_| self.cached) {
            return Ok(block.clone());
        }
        let failed = |reason: String| fsview::Error::Read { at: offset, len, reason };
        let end = offset.checked_add(u64::from(len)).filter(|&end| end <= self.len);
        if end.is_none() {
            return Err(failed(format!("the volume has {} bytes", self.len)));
        }
        let block = match self.session.borrow_mut().read_bytes(self.base + offset, len as usize) {
            Ok(bytes) => Arc::<[u8]>::from(bytes),
            Err(error) => {
                let reason = error.to_string();
                self.failure.set(Some(error));
                return Err(failed(reason));
            }
        };
        if self.cached {
            self.cache.borrow_mut().put((offset, len), block.clone());
        }
        Ok(block)
    }
}

impl<T: Transport> Session<T> {
    /// Reads any bytes of the namespace by ordinary Reads of whole blocks, counting them.
    pub fn read_bytes(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let block = u64::from(self.transport.block_size()).max(512);
        let start = offset / block * block;
        let skip = (offset - start) as usize;
        let whole = (skip + len).next_multiple_of(block as usize);
        let mut bytes = vec![0; whole];
        let before = self.clock.now();
        let commands = self.transport.read(start, &mut bytes)?;
        self.totals.round_trip_ns += self.clock.now().since(before);
        self.totals.read_commands += commands;
        self.totals.bytes_in += whole as u64;
        bytes.truncate(skip + len);
        bytes.drain(..skip);
        Ok(bytes)
    }
}
