//! Memory that the drive can reach: one shared region in the IOVA table, handed out in pieces.
//!
//! One mapping holds every queue, PRP list and buffer of a driver, so that the drive's lookups stay short.
//! Pieces are powers of two of pages (a buddy allocator). A [`DmaBuffer`] moves into a command and comes back
//! with its completion, so whoever holds one may be sure that no command of this driver is writing to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use nearside_dma::{Memory, PAGE_SIZE, Region};

use crate::{Buffer, Error};

/// Where a driver's pool begins in the drive's address space.
pub(crate) const POOL_IOVA: u64 = 0x1_0000_0000;

/// The memory of one driver. Clones share it.
#[derive(Clone)]
pub struct BufferPool {
    inner: Arc<PoolMemory>,
}

struct PoolMemory {
    region: Arc<Region>,
    memory: Arc<Memory>,
    iova: u64,
    /// Free pieces by class: class `c` holds offsets of pieces of `PAGE_SIZE << c` bytes.
    free: Mutex<Vec<BTreeSet<usize>>>,
}

impl Drop for PoolMemory {
    fn drop(&mut self) {
        let _ = self.memory.unmap(self.iova);
    }
}

impl BufferPool {
    /// A pool of `bytes`, rounded up to a power of two of pages (at most 2^31), mapped into `memory` where
    /// first is room. Pages, of 2 MiB where the machine has such, take memory only once they are touched.
    pub(crate) fn new(memory: &Arc<Memory>, bytes: usize) -> Result<BufferPool, Error> {
        let bytes = bytes.clamp(PAGE_SIZE, PAGE_SIZE << 31).next_power_of_two();
        let system = |source| Error::System { what: "shared memory for buffers", source };
        let region = Arc::new(Region::shared("nearside-driver", bytes).map_err(system)?);
        region.prefer_huge_pages();
        let mut iova = POOL_IOVA;
        while let Err(e) = memory.map(iova, region.clone()) {
            let next = iova.checked_add((bytes as u64).max(1 << 32));
            iova = match (e, next) {
                (nearside_dma::MemoryError::Overlap { .. }, Some(next)) => next,
                (e, _) => return Err(system(std::io::Error::other(e))),
            };
        }
        let classes = (bytes / PAGE_SIZE).trailing_zeros() as usize + 1;
        let mut free = vec![BTreeSet::new(); classes];
        free[classes - 1].insert(0);
        Ok(BufferPool {
            inner: Arc::new(PoolMemory { region, memory: memory.clone(), iova, free: Mutex::new(free) }),
        })
    }

    /// A buffer of `len` bytes (at least one), page-aligned. What it holds is arbitrary.
    ///
    /// # Errors
    /// [`Error`]: the pool has no room, or `len` is more than it has.
    pub fn take(&self, len: usize) -> Result<DmaBuffer, Error> {
        let none = || Error::NoMemory { len, pool: self.inner.region.len() };
        let size = len.max(1).checked_next_power_of_two().ok_or_else(none)?.max(PAGE_SIZE);
        let class = (size / PAGE_SIZE).trailing_zeros() as usize;
        let mut free = self.inner.free.lock().unwrap_or_else(|e| e.into_inner());
        let found = (class..free.len()).find(|&c| !free[c].is_empty()).ok_or_else(none)?;
        let offset = free[found].pop_first().ok_or_else(none)?;
        for lower in (class..found).rev() {
            free[lower].insert(offset + (PAGE_SIZE << lower));
        }
        drop(free);
        let page = (offset / PAGE_SIZE) as u32; // of a pool of at most 2^32 pages
        Ok(DmaBuffer { pool: self.inner.clone(), len, page, class: class as u8 })
    }

    /// A buffer of `len` bytes (at least one), page-aligned, of zeros.
    ///
    /// # Errors
    /// [`Error`]: the pool has no room, or `len` is more than it has.
    pub fn zeroed(&self, len: usize) -> Result<DmaBuffer, Error> {
        let mut buffer = self.take(len)?;
        buffer.fill(0);
        Ok(buffer)
    }

    /// Bytes in the pool.
    pub fn capacity(&self) -> usize {
        self.inner.region.len()
    }

    /// Bytes that are not handed out.
    pub fn available(&self) -> usize {
        let free = self.inner.free.lock().unwrap_or_else(|e| e.into_inner());
        free.iter().enumerate().map(|(class, pieces)| pieces.len() * (PAGE_SIZE << class)).sum()
    }

    /// All of it, and where a drive finds it.
    pub(crate) fn region(&self) -> (&Region, u64) {
        (&self.inner.region, self.inner.iova)
    }

    pub(crate) fn owns(&self, buffer: &DmaBuffer) -> bool {
        Arc::ptr_eq(&self.inner, &buffer.pool)
    }
}

/// A piece of the pool with one owner. Dropping it gives it back.
pub struct DmaBuffer {
    pool: Arc<PoolMemory>,
    len: usize,
    /// Where it begins in the pool. 32 bits hold it, with which a completion fits a cache line.
    page: u32,
    class: u8,
}

impl DmaBuffer {
    #[inline]
    fn offset(&self) -> usize {
        self.page as usize * PAGE_SIZE
    }

    /// Bytes that a command transfers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether a command would transfer nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        PAGE_SIZE << self.class
    }

    /// Sets how much a command transfers.
    ///
    /// # Panics
    /// Beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes of a buffer of {}", self.capacity());
        self.len = len;
    }

    /// Where the drive finds it. Page-aligned, contiguous.
    pub fn iova(&self) -> u64 {
        self.pool.iova + self.offset() as u64
    }

    /// Copies bytes out. Panics outside the buffer's length.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.check(at, into.len());
        self.pool.region.read(self.offset() + at, into);
    }

    /// Copies bytes in. Panics outside the buffer's length.
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) {
        self.check(at, from.len());
        self.pool.region.write(self.offset() + at, from);
    }

    /// Sets all bytes.
    pub fn fill(&mut self, byte: u8) {
        self.pool.region.fill(self.offset(), self.len, byte);
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }

    /// The memory behind it and where it begins there:
    /// for queues, for copies between regions and for atomics.
    pub fn region(&self) -> (&Arc<Region>, usize) {
        (&self.pool.region, self.offset())
    }

    fn check(&self, at: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of a buffer of {}", self.len);
    }
}

impl Buffer for DmaBuffer {
    fn len(&self) -> usize {
        self.len()
    }
    fn capacity(&self) -> usize {
        self.capacity()
    }
    fn set_len(&mut self, len: usize) {
        self.set_len(len);
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        self.read(at, into);
    }
    fn write(&mut self, at: usize, from: &[u8]) {
        self.write(at, from);
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().unwrap_or_else(|e| e.into_inner());
        let (mut offset, mut class) = (self.offset(), usize::from(self.class));
        while class + 1 < free.len() && free[class].remove(&(offset ^ (PAGE_SIZE << class))) {
            offset &= !(PAGE_SIZE << class);
            class += 1;
        }
        free[class].insert(offset);
    }
}

impl std::fmt::Debug for DmaBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DmaBuffer({} bytes at IOVA {:#x})", self.len, self.iova())
    }
}

#[cfg(test)]
mod tests {
    use nearside_random::Rng;

    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_all_come_back() {
        let memory = Arc::new(Memory::new());
        let pool = BufferPool::new(&memory, 1 << 20).unwrap();
        let mut held: Vec<DmaBuffer> = Vec::new();
        let mut random = Rng(7);
        for _ in 0..20_000 {
            if random.below(2) == 0 && !held.is_empty() {
                held.swap_remove(random.index(held.len()));
            } else if let Ok(buffer) = pool.take(random.index(70_000)) {
                let (a, b) = (buffer.iova(), buffer.iova() + buffer.capacity() as u64);
                assert!(held.iter().all(|h| h.iova() >= b || h.iova() + h.capacity() as u64 <= a));
                assert!(memory.resolve(a, buffer.capacity()).is_ok());
                held.push(buffer);
            }
        }
        held.clear();
        assert_eq!(pool.available(), 1 << 20);
        assert_eq!(pool.take(1 << 20).unwrap().capacity(), 1 << 20);
        assert!(matches!(pool.take((1 << 20) + 1), Err(Error::NoMemory { .. })));
        drop(pool);
        assert!(memory.resolve(POOL_IOVA, 1).is_err());
    }
}
