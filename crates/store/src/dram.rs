//! A store in memory: private, thin, gone with the process.
//!
//! Every operation is done when `submit` returns: a copy between the store and host memory, without a lock.
//! Pages take room once they are written and give it back when they are deallocated or zeroed in whole. Where
//! the machine has memory for several such stores they are huge pages, if it has these; a store beyond that
//! stays thin to 4 KiB. A flush has nothing to do: there is no power cut that this process survives (see
//! [`crate::Lossy`] for one that does).

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::system::memory_bytes;
use nearside_dma::{Memory, PAGE_SIZE, Reach, Region};

use crate::check::check;
use crate::{Backing, Channel, Completion, Data, Operation, Store, StoreError, Submitted, Token};

/// Zeroing this much or more gives the pages back instead of writing them.
pub(crate) const DISCARD_FROM: u64 = 256 * 1024;

/// A store takes huge pages where so many of its size fit into the machine's memory: of one that is written
/// here and there each of them takes 512 times as much as the page that was written.
const HUGE_WITHIN: u64 = 4;

fn takes_huge_pages(capacity: u64, memory: u64) -> bool {
    capacity.saturating_mul(HUGE_WITHIN) <= memory
}

/// A store in memory. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Dram {
    region: Arc<Region>,
    capacity: u64,
    block_size: u32,
}

impl Dram {
    /// A store of `capacity` zero bytes: a multiple of `block_size`, which is 512 or 4096, or 4 where it is a
    /// drive's local memory.
    ///
    /// # Errors
    /// `InvalidInput` where the sizes are others; else the system's: no memory.
    pub fn new(capacity: u64, block_size: u32) -> io::Result<Dram> {
        let invalid = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        if ![4, 512, 4096].contains(&block_size) {
            return invalid(format!("a block has 512 or 4096 bytes, or 4, not {block_size}"));
        }
        if capacity == 0 || !capacity.is_multiple_of(u64::from(block_size)) {
            return invalid(format!("{capacity} bytes are not whole blocks of {block_size}"));
        }
        let Ok(len) = usize::try_from(capacity) else {
            return invalid(format!("{capacity} bytes of memory cannot be mapped here"));
        };
        let region = Region::anonymous(len)?;
        if takes_huge_pages(capacity, memory_bytes()) {
            region.prefer_huge_pages();
        }
        Ok(Dram { region: Arc::new(region), capacity, block_size })
    }

    /// A store with the contents of a file or block device; its holes take no memory. What is left of the
    /// file after its last whole block is not taken.
    ///
    /// # Errors
    /// Those of [`Dram::new`], and those of opening and reading the file. All name it.
    pub fn from_file(path: impl AsRef<Path>, block_size: u32) -> io::Result<Dram> {
        let path = path.as_ref();
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        let len = nearside_dma::file::size(&file).map_err(named)?;
        let capacity = len - len % u64::from(block_size.max(1));
        let dram = Dram::new(capacity, block_size).map_err(named)?;
        let mut at = 0;
        while let Some((start, end)) = nearside_dma::file::next_data(&file, at).map_err(named)? {
            let (start, end) = (start.min(capacity), end.min(capacity));
            dram.region.read_from(&file, start, start as usize, (end - start) as usize).map_err(named)?;
            at = end;
            if at == capacity {
                break;
            }
        }
        Ok(dram)
    }

    /// Copies bytes out, for who works beside the channels. Others may be writing them.
    ///
    /// # Panics
    /// They do not lie in the store.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) {
        self.region.read(self.place(offset, into.len()), into);
    }

    /// Copies bytes in, likewise.
    ///
    /// # Panics
    /// They do not lie in the store.
    pub fn copy_in(&self, offset: u64, from: &[u8]) {
        self.region.write(self.place(offset, from.len()), from);
    }

    fn place(&self, offset: u64, len: usize) -> usize {
        let end = offset.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.capacity), "{len} bytes at {offset} of {}", self.capacity);
        offset as usize
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    fn zero(&self, offset: u64, len: u64, thin: bool) {
        let (mut start, mut end) = (offset as usize, (offset + len) as usize);
        if thin || len >= DISCARD_FROM {
            // Whole pages go back to the system; the edges share theirs with blocks that stay.
            let first = start.next_multiple_of(PAGE_SIZE).min(end);
            let last = (end / PAGE_SIZE * PAGE_SIZE).max(first);
            self.region.discard(first, last - first);
            self.region.fill(start, first - start, 0);
            (start, end) = (last, end);
        }
        self.region.fill(start, end - start, 0);
    }
}

impl Store for Dram {
    type Channel = DramChannel;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing::Memory)
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<DramChannel> {
        Ok(DramChannel { store: self.clone(), reach: Reach::new(memory) })
    }
}

/// Why an operation failed whose host took its memory away.
pub const UNMAPPED: &str = "the host's memory is not mapped any more";

/// Copies between a store's bytes and the memory of a read or write that was checked.
#[inline]
pub(crate) fn transfer(
    region: &Region,
    operation: &Operation,
    data: &mut Data<'_>,
    reach: &mut Reach,
) -> Result<(), StoreError> {
    let (Operation::Read { offset, .. } | Operation::Write { offset, .. }) = *operation else {
        return Ok(());
    };
    let reads = matches!(operation, Operation::Read { .. });
    let mut at = offset as usize;
    let mut gone = false;
    match data {
        Data::Spans(spans) => {
            for &span in *spans {
                let Some((host, host_at)) = reach.locate(span) else {
                    return Err(operation.failed(UNMAPPED));
                };
                if reads {
                    Region::copy(region, at, host, host_at, span.len());
                } else {
                    Region::copy(host, host_at, region, at, span.len());
                }
                gone |= host.has_failed();
                at += span.len();
            }
        }
        Data::Owned(buffer) if reads => region.read(at, buffer),
        Data::Owned(buffer) => region.write(at, buffer),
        // Zero bytes without memory: `check` has seen that the lengths agree.
        Data::None => {}
    }
    if gone { Err(operation.failed(UNMAPPED)) } else { Ok(()) }
}

/// A way into a [`Dram`].
pub struct DramChannel {
    store: Dram,
    reach: Reach,
}

impl Channel for DramChannel {
    #[inline]
    fn submit(&mut self, operation: Operation, mut data: Data<'_>, _token: Token, _now: Nanos) -> Submitted {
        let store = &self.store;
        if let Err(error) = check(&operation, &data, store.capacity, store.block_size, false) {
            return Submitted::done(Err(error), data);
        }
        let region = &store.region;
        let result = match operation {
            Operation::Read { .. } | Operation::Write { .. } => {
                transfer(region, &operation, &mut data, &mut self.reach)
            }
            Operation::WriteZeroes { offset, len, .. } => {
                store.zero(offset, len, false);
                Ok(())
            }
            Operation::Deallocate { offset, len } => {
                store.zero(offset, len, true);
                Ok(())
            }
            Operation::Flush => Ok(()),
        };
        Submitted::done(result, data)
    }

    #[inline]
    fn poll(&mut self, _now: Nanos, _sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        None
    }

    #[inline]
    fn in_flight(&self) -> usize {
        0
    }

    fn memory_changed(&mut self) {
        self.reach.let_go();
    }

    #[inline]
    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        /// Lines asked for at most: the hardware's own prefetcher follows once a copy has begun.
        const LINES: u64 = 16;
        for line in 0..(len / 64).min(LINES) {
            self.store.region.prefetch((offset + line * 64) as usize, writes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn run(channel: &mut DramChannel, operation: Operation, data: Data<'_>) -> Completion {
        match channel.submit(operation, data, Token(0), Nanos(0)) {
            Submitted::Done(completion) => completion,
            Submitted::Pending => panic!("memory is never pending"),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel")]
    fn a_store_that_the_machine_holds_several_times_takes_huge_pages() {
        assert!(takes_huge_pages(1 << 30, 4 << 30) && !takes_huge_pages((1 << 30) + 512, 4 << 30));
        assert!(!takes_huge_pages(u64::MAX, 4 << 30));
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("LEFT OUT: this kernel has no transparent huge pages");
            return;
        }
        // Bytes that the kernel will back with them; other tests' stores are smaller.
        let advised = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let (mut size, mut sum) = (0, 0);
            for line in maps.lines() {
                if let Some(kib) = line.strip_prefix("Size:") {
                    size = kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
                } else if line.starts_with("VmFlags:") && line.split_whitespace().any(|flag| flag == "hg") {
                    sum += size;
                }
            }
            sum
        };
        let bytes = (memory_bytes() / 8) & !4095;
        let small = Dram::new(bytes, 512).unwrap();
        assert!(advised() >= bytes);
        drop(small);
        let large = Dram::new(memory_bytes() & !4095, 512).unwrap();
        assert!(advised() < bytes, "{large:?}");
    }

    #[test]
    fn an_image_loads_with_its_holes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"middle", 512 << 20).unwrap();
        file.flush().unwrap();
        let dram = Dram::from_file(file.path(), 512).unwrap();
        assert_eq!(dram.capacity(), 1 << 30);
        let mut channel = dram.channel(Arc::new(Memory::new())).unwrap();
        let buffer = nearside_dma::IoBuffer::new(512).unwrap();
        let read = Operation::Read { offset: 512 << 20, len: 512 };
        let got = run(&mut channel, read, Data::Owned(buffer)).buffer.unwrap();
        assert_eq!(&got[..6], b"middle");
        assert!(Dram::from_file("/nonexistent", 512).unwrap_err().to_string().contains("/nonexistent"));
    }

    #[test]
    fn zeroing_keeps_the_neighbours() {
        let dram = Dram::new(1 << 20, 512).unwrap();
        let mut channel = dram.channel(Arc::new(Memory::new())).unwrap();
        for (offset, len) in [(512, 512), (4096, 4096), (1536, 8192), (512, 300 * 1024), (4096, 512 * 1024)] {
            for operation in
                [Operation::Deallocate { offset, len }, Operation::WriteZeroes { offset, len, fua: false }]
            {
                let mut all = nearside_dma::IoBuffer::new(1 << 20).unwrap();
                all.fill(7);
                let write = Operation::Write { offset: 0, len: 1 << 20, fua: false };
                let all = run(&mut channel, write, Data::Owned(all)).buffer.unwrap();
                run(&mut channel, operation, Data::None).result.unwrap();
                let read = Operation::Read { offset: 0, len: 1 << 20 };
                let all = run(&mut channel, read, Data::Owned(all)).buffer.unwrap();
                for (at, &byte) in all.iter().enumerate() {
                    let inside = (offset..offset + len).contains(&(at as u64));
                    assert_eq!(byte, if inside { 0 } else { 7 }, "byte {at} after {operation:?}");
                }
            }
        }
    }
}
