//! Staging buffers of one thread: where a command's data lie between the socket and the store. All are in one
//! region, which every controller that the thread serves can reach; the one given back last is lent first, so
//! that it is still in the cache.

use std::io;
use std::sync::Arc;

use nearside_dma::Region;

/// Where controllers find a thread's staging buffers.
pub(crate) fn pool_iova(thread: usize) -> u64 {
    (thread as u64 + 1) << 40
}

/// The largest buffer, and what the region is cut into.
pub(crate) const CHUNK: usize = 4 << 20;
/// Log2 of the buffers' sizes: 4 KiB, 16 KiB, 128 KiB, 1 MiB, 4 MiB.
const CLASSES: [u32; 5] = [12, 14, 17, 20, 22];

/// A lent buffer. Give it back by [`Pool::give_back`].
#[derive(Debug)]
#[must_use = "a buffer that is not given back is lost"]
pub(crate) struct Buffer {
    class: u8,
    /// The place of the host that has it.
    holder: u32,
    /// Byte of the region.
    pub(crate) offset: usize,
}

impl Buffer {
    /// Bytes of it.
    fn len(&self) -> usize {
        1 << CLASSES[usize::from(self.class)]
    }
}

/// What a host has, in bytes of whole buffers.
#[derive(Clone, Copy, Default)]
struct Held {
    bytes: [usize; CLASSES.len()],
    /// Of commands that wait for its data.
    awaiting: usize,
}

/// The buffers.
///
/// A host gets no more of a size than what is left of it: one host alone half, each of two a third, and so
/// on. So whoever comes next always finds some, whatever the others do with theirs. Each size has chunks of
/// its own, which others do not cut.
pub(crate) struct Pool {
    region: Arc<Region>,
    /// Where controllers find the region.
    iova: u64,
    /// Chunks never lent, or given back whole.
    chunks: Vec<usize>,
    free: [Vec<usize>; CLASSES.len()],
    /// Chunks cut for each size, and how many each may always cut.
    cut: [usize; CLASSES.len()],
    reserve: usize,
    /// Bytes lent to commands that wait for data of their hosts, and the most that may be.
    awaiting: usize,
    most_awaiting: usize,
    /// Buffers lent of each chunk.
    lent: Vec<u16>,
    /// What each host has, by its place.
    held: Vec<Held>,
    /// Somebody was told that there is none for it; since then something came back.
    dry: bool,
    freed: bool,
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
            cut: [0; CLASSES.len()],
            reserve: chunks / 16,
            awaiting: 0,
            most_awaiting: chunks / 2 * CHUNK,
            lent: vec![0; chunks],
            held: Vec::new(),
            dry: false,
            freed: false,
        })
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }

    /// A buffer of `len` bytes or more (at most [`CHUNK`]) for the host at a place. `None`: it has its share,
    /// or all is lent. What it holds is what the last user left.
    pub(crate) fn take(&mut self, holder: u32, len: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&log2| len <= 1 << log2)?;
        let buffer = self.find(holder, class);
        match &buffer {
            Some(buffer) => {
                self.lent[buffer.offset / CHUNK] += 1;
                self.held(holder).bytes[class] += 1 << CLASSES[class];
            }
            None => self.note_refused(),
        }
        buffer
    }

    /// Whether those who were told that there is none may be luckier now; they are then asked to try.
    pub(crate) fn has_returned(&self) -> bool {
        self.dry && self.freed
    }

    /// They try.
    pub(crate) fn clear_returned(&mut self) {
        (self.dry, self.freed) = (false, false);
    }

    fn note_refused(&mut self) {
        if !self.dry {
            (self.dry, self.freed) = (true, false);
        }
    }

    fn held(&mut self, holder: u32) -> &mut Held {
        let at = holder as usize;
        if self.held.len() <= at {
            self.held.resize(at + 1, Held::default());
        }
        &mut self.held[at]
    }

    /// Chunks that a size may still cut: those that the others' reserves leave.
    fn cuttable(&self, class: usize) -> usize {
        let others = self.cut.iter().enumerate().filter(|(other, _)| *other != class);
        let reserved: usize = others.map(|(_, cut)| self.reserve.saturating_sub(*cut)).sum();
        self.chunks.len().saturating_sub(reserved)
    }

    fn find(&mut self, holder: u32, class: usize) -> Option<Buffer> {
        let size = 1 << CLASSES[class];
        let wanted = self.held(holder).bytes[class] + size;
        let free = self.free[class].len() * size;
        if wanted > free && wanted > free + self.cuttable(class) * CHUNK {
            return None;
        }
        if free == 0 {
            let start = self.chunks.pop()? * CHUNK;
            self.cut[class] += 1;
            self.free[class].extend((start..start + CHUNK).step_by(size).rev());
        }
        self.free[class].pop().map(|offset| Buffer { class: class as u8, holder, offset })
    }

    /// A buffer for a command whose data the host has to send: these never get all of the memory, so that
    /// other commands go on whatever hosts do; and a host no more of that than is left of it.
    pub(crate) fn take_for_receive(&mut self, holder: u32, len: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&log2| len <= 1 << log2)?;
        let size = 1 << CLASSES[class];
        if self.held(holder).awaiting + size > self.most_awaiting - self.awaiting {
            self.note_refused();
            return None;
        }
        let buffer = self.take(holder, len)?;
        self.awaiting += size;
        self.held(holder).awaiting += size;
        Some(buffer)
    }

    /// A buffer of [`Pool::take_for_receive`] waits no longer.
    pub(crate) fn received(&mut self, buffer: &Buffer) {
        let size = buffer.len();
        assert!(size <= self.held(buffer.holder).awaiting, "a buffer that awaits no data has got them");
        self.awaiting -= size;
        self.held(buffer.holder).awaiting -= size;
        self.freed = true;
    }

    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        let class = usize::from(buffer.class);
        let (chunk, per_chunk) = (buffer.offset / CHUNK, CHUNK / buffer.len());
        let held = &mut self.held(buffer.holder).bytes[class];
        // Two hosts would have it.
        assert!(*held >= buffer.len(), "a buffer at {:#x} was given back twice", buffer.offset);
        *held -= buffer.len();
        self.freed = true;
        let free = &mut self.free[class];
        free.push(buffer.offset);
        // A chunk that is whole again can serve another size; one or two of a size stay, so that this is
        // rare.
        assert!(self.lent[chunk] > 0, "a buffer at {:#x} was given back twice", buffer.offset);
        self.lent[chunk] -= 1;
        if self.lent[chunk] == 0 && (per_chunk <= 4 || free.len() > 2 * per_chunk) {
            free.retain(|&offset| offset / CHUNK != chunk);
            self.chunks.push(chunk);
            self.cut[class] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_come_back() {
        let mut pool = Pool::new(32 << 20, 0).unwrap();
        for round in 0..3 {
            let mut lent = Vec::new();
            for (holder, len) in [1, 4096, 4097, 16385, 100_000, 1 << 20, 4 << 20].into_iter().enumerate() {
                lent.push((len, pool.take(holder as u32, len).unwrap_or_else(|| panic!("{round}: {len}"))));
            }
            let mut spans: Vec<_> = lent.iter().map(|(len, b)| (b.offset, b.offset + len)).collect();
            spans.sort();
            assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{spans:?}");
            lent.into_iter().for_each(|(_, b)| pool.give_back(b));
            assert!(pool.held.iter().all(|held| held.bytes == [0; CLASSES.len()] && held.awaiting == 0));
        }
        assert!(pool.take(0, CHUNK + 1).is_none());
    }

    /// All that a host gets of a length, one buffer after the other.
    fn take_all(pool: &mut Pool, holder: u32, len: usize, await_data: bool) -> Vec<Buffer> {
        let take = |pool: &mut Pool| match await_data {
            true => pool.take_for_receive(holder, len),
            false => pool.take(holder, len),
        };
        std::iter::from_fn(|| take(pool)).collect()
    }

    #[test]
    fn a_host_gets_no_more_than_is_left_and_the_next_finds_some() {
        for await_data in [false, true] {
            for len in [4096, 16384, 128 << 10, 1 << 20, 4 << 20] {
                let mut pool = Pool::new(256 << 20, 0).unwrap();
                let mut lent = Vec::new();
                let mut counts = Vec::new();
                for holder in 0..5 {
                    let got = take_all(&mut pool, holder, len, await_data);
                    counts.push(got.len());
                    lent.extend(got);
                }
                // A half, a half of what is left, and so on, where all ask for as much as they get.
                assert!(counts.iter().all(|&count| count > 0), "{len}: {counts:?}");
                assert!(counts[0] * len <= 128 << 20, "{len}: {counts:?}");
                // Whatever was asked for in one size, every other one goes on.
                for other in [4096, 16384, 128 << 10, 1 << 20, 4 << 20] {
                    let buffer = pool.take(9, other);
                    assert!(buffer.is_some(), "{other} where all of {len} is lent");
                    lent.extend(buffer);
                }
                // Who gives back may have it again, as may others.
                assert!(!pool.has_returned());
                lent.into_iter().for_each(|buffer| {
                    if await_data && buffer.holder < 5 {
                        pool.received(&buffer);
                    }
                    pool.give_back(buffer);
                });
                assert!(pool.has_returned());
                pool.clear_returned();
                assert_eq!(take_all(&mut pool, 7, len, await_data).len(), counts[0], "{len}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "was given back twice")]
    fn a_buffer_comes_back_once() {
        let mut pool = Pool::new(32 << 20, 0).unwrap();
        let buffer = pool.take(0, 4096).unwrap();
        pool.give_back(Buffer { ..buffer });
        pool.give_back(buffer);
    }

    #[test]
    #[should_panic(expected = "a buffer that awaits no data has got them")]
    fn data_that_nobody_awaits_do_not_come() {
        let mut pool = Pool::new(32 << 20, 0).unwrap();
        let buffer = pool.take(0, 4096).unwrap();
        pool.received(&buffer);
    }

    /// One buffer of each chunk kept, the others given back, size after size: no size is left without chunks.
    #[test]
    fn chunks_that_are_held_open_do_not_end_the_others() {
        let mut pool = Pool::new(256 << 20, 0).unwrap();
        let mut pinned = Vec::new();
        for len in [4096, 16384, 128 << 10, 1 << 20] {
            let mut seen = std::collections::HashSet::new();
            for buffer in take_all(&mut pool, 0, len, false) {
                if seen.insert(buffer.offset / CHUNK) { pinned.push(buffer) } else { pool.give_back(buffer) }
            }
        }
        for len in [4096, 16384, 128 << 10, 1 << 20, 4 << 20] {
            assert!(!take_all(&mut pool, 1, len, false).is_empty(), "{len}");
        }
    }

    #[test]
    fn hosts_that_owe_data_hold_half_at_most() {
        let mut pool = Pool::new(64 << 20, 0).unwrap();
        let mut owed = Vec::new();
        for holder in 0..64 {
            owed.extend(take_all(&mut pool, holder, 1 << 20, true));
        }
        assert_eq!(owed.len(), 32);
        assert!(pool.take_for_receive(99, 512).is_none() && pool.take(99, 512).is_some());
        pool.received(&owed[0]);
        assert!(pool.take_for_receive(99, 512).is_some());
    }
}
