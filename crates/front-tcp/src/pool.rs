//! Staging buffers of one thread: where a command's data lie between the socket and the store. All are in one region, which every controller
//! that the thread serves can reach; the one given back last is lent first, so that it is still in the cache.

use std::io;
use std::sync::Arc;

use nearside_dma::Region;

/// The largest buffer, and what the region is cut into.
pub(crate) const CHUNK: usize = 4 << 20;
/// Log2 of the buffers' sizes: 4 KiB, 16 KiB, 128 KiB, 1 MiB, 4 MiB.
const CLASSES: [u32; 5] = [12, 14, 17, 20, 22];

/// A lent buffer. Give it back by [`Pool::give_back`].
#[derive(Debug)]
#[must_use = "a buffer that is not given back is lost"]
pub(crate) struct Buffer {
    class: usize,
    /// Byte of the region.
    pub(crate) offset: usize,
}

/// The buffers.
pub(crate) struct Pool {
    region: Arc<Region>,
    /// Where controllers find the region.
    iova: u64,
    /// Chunks never lent, or given back whole.
    chunks: Vec<usize>,
    free: [Vec<usize>; CLASSES.len()],
    /// Bytes lent to commands that wait for data of their hosts, and the most that may be.
    awaiting: usize,
    most_awaiting: usize,
    /// Chunks that large buffers leave.
    kept: usize,
    /// Buffers lent of each chunk.
    lent: Vec<u16>,
    /// Somebody was told that all is lent.
    dry: bool,
}

impl Pool {
    /// Of so many bytes of address space, which controllers find at `iova`; memory is taken when it is used.
    pub(crate) fn new(bytes: usize, iova: u64) -> io::Result<Pool> {
        let chunks = (bytes / CHUNK).max(4);
        Ok(Pool {
            region: Arc::new(Region::anonymous(chunks * CHUNK)?),
            iova,
            chunks: (0..chunks).rev().collect(),
            free: [const { Vec::new() }; CLASSES.len()],
            awaiting: 0,
            most_awaiting: chunks / 2 * CHUNK,
            kept: chunks / 8,
            lent: vec![0; chunks],
            dry: false,
        })
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }

    /// A buffer of `len` bytes or more (at most [`CHUNK`]). `None`: all is lent. What it holds is what the last user left.
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        let buffer = self.find(len);
        match &buffer {
            Some(buffer) => self.lent[buffer.offset / CHUNK] += 1,
            None => self.dry = true,
        }
        buffer
    }

    /// Whether somebody was told that all is lent, since this was last asked.
    pub(crate) fn was_dry(&mut self) -> bool {
        std::mem::take(&mut self.dry)
    }

    pub(crate) fn is_dry(&self) -> bool {
        self.dry
    }

    fn find(&mut self, len: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&log2| len <= 1 << log2)?;
        if self.free[class].is_empty() {
            // The last chunks are for small commands, which go on however many large ones wait for slow readers.
            if CLASSES[class] > 14 && self.chunks.len() <= self.kept {
                return None;
            }
            let start = self.chunks.pop()? * CHUNK;
            self.free[class].extend((start..start + CHUNK).step_by(1 << CLASSES[class]).rev());
        }
        self.free[class].pop().map(|offset| Buffer { class, offset })
    }

    /// The same for a command whose data the host has to send: these never get all of the memory, so that other commands go on
    /// whatever hosts do.
    pub(crate) fn take_to_await(&mut self, len: usize) -> Option<Buffer> {
        if self.awaiting + len > self.most_awaiting {
            self.dry = true;
            return None;
        }
        let buffer = self.take(len)?;
        self.awaiting += 1 << CLASSES[buffer.class];
        Some(buffer)
    }

    /// A buffer of [`Pool::take_to_await`] waits no longer.
    pub(crate) fn arrived(&mut self, buffer: &Buffer) {
        self.awaiting -= 1 << CLASSES[buffer.class];
    }

    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        let free = &mut self.free[buffer.class];
        free.push(buffer.offset);
        // A chunk that is whole again can serve another size; one or two of a size stay, so that this is rare.
        let (chunk, per_chunk) = (buffer.offset / CHUNK, CHUNK >> CLASSES[buffer.class]);
        self.lent[chunk] -= 1;
        if self.lent[chunk] == 0 && (per_chunk <= 4 || free.len() > 2 * per_chunk) {
            free.retain(|&offset| offset / CHUNK != chunk);
            self.chunks.push(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_come_back() {
        let mut pool = Pool::new(16 << 20, 0).unwrap();
        for _ in 0..3 {
            let mut lent = Vec::new();
            for len in [1, 4096, 4097, 100_000, 1 << 20, 4 << 20] {
                lent.push((len, pool.take(len).unwrap_or_else(|| panic!("{len}"))));
                if len == 4097 {
                    // The smaller sizes have a chunk each; free the rest for the larger ones.
                    break;
                }
            }
            let mut spans: Vec<_> = lent.iter().map(|(len, b)| (b.offset, b.offset + len)).collect();
            spans.sort();
            assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{spans:?}");
            let big = [pool.take(4 << 20).unwrap(), pool.take(1 << 20).unwrap()];
            assert!(pool.take(4 << 20).is_none());
            big.into_iter().chain(lent.into_iter().map(|(_, b)| b)).for_each(|b| pool.give_back(b));
        }
        assert!(pool.take(CHUNK + 1).is_none());
    }

    #[test]
    fn hosts_that_owe_data_hold_half_at_most() {
        let mut pool = Pool::new(16 << 20, 0).unwrap();
        let (a, b) = (pool.take_to_await(CHUNK).unwrap(), pool.take_to_await(CHUNK).unwrap());
        assert!(pool.take_to_await(512).is_none());
        let c = pool.take(CHUNK).unwrap();
        pool.arrived(&a);
        assert!(pool.take_to_await(512).is_some());
        [a, b, c].into_iter().for_each(|buffer| pool.give_back(buffer));
    }
}
