//! What the client has mapped for DMA: regions in the controller's IOVA table, and those that the drive
//! reaches by messages.
//!
//! Memory without a descriptor (a virtual machine's that is not shared), or with one that may not be written
//! (QEMU's of ROMs), is the client's to read and write, by DMA_READ and DMA_WRITE. From a client that takes
//! less than a page with a message it is kept as a range only: a command that names it fails with Data
//! Transfer Error.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use nearside_dma::remote::BOUNCE_IOVA;
use nearside_dma::{MAX_MAPPINGS, Memory, MemoryError, PAGE_SIZE, Region};
use nearside_vfio_user::{DmaMap, DmaUnmap, dma_flags};

use crate::function::Refusal;

/// Bytes that one client may have mapped: addresses of this process are shared by all.
const MOST: u64 = 4 << 40;
/// All mappings are meant (VFIO_DMA_UNMAP_FLAG_ALL), without address or size.
const ALL: u32 = 1 << 1;

/// A range of the client's addresses.
struct Range {
    size: u64,
    memory: Reach,
}

/// Whether the drive reaches a range.
enum Reach {
    /// It is in the table.
    Now(Weak<Region>),
    /// Once the function may reach memory.
    Later(Arc<Region>),
    /// The client is asked for it, once the function may reach memory: whether it may be read and written.
    ByMessages(bool, bool),
}

/// What there is of them, for who looks from outside.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) regions: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

pub(crate) struct Mappings {
    memory: Arc<Memory>,
    ranges: BTreeMap<u64, Range>,
    mapped: u64,
    /// Whether the function may reach memory at all.
    open: bool,
    /// That it does not share its memory was said.
    told: bool,
    shown: Arc<Mapped>,
}

impl Mappings {
    /// Of a function that may not reach memory yet.
    pub(crate) fn new(memory: Arc<Memory>) -> Mappings {
        let (ranges, shown) = (BTreeMap::new(), Arc::default());
        Mappings { memory, ranges, mapped: 0, open: false, told: false, shown }
    }

    /// What there is of them, now and later.
    pub(crate) fn mapped(&self) -> Arc<Mapped> {
        self.shown.clone()
    }

    fn show(&self) {
        self.shown.regions.store(self.ranges.len() as u64, Ordering::Relaxed);
        self.shown.bytes.store(self.mapped, Ordering::Relaxed);
    }

    /// Whether memory that the client had shared is not there any more.
    pub(crate) fn have_failed(&self) -> bool {
        self.ranges.values().any(|range| match &range.memory {
            Reach::Now(region) => region.upgrade().is_some_and(|region| region.has_failed()),
            Reach::Later(region) => region.has_failed(),
            Reach::ByMessages(..) => false,
        })
    }

    /// Whether the function may reach memory.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Lets the function reach memory, or not: all mappings stay what they are. What is returned is still
    /// used by operations in flight where more than one holds it.
    pub(crate) fn open(&mut self, open: bool) -> Result<Vec<Weak<Region>>, Refusal> {
        let mut closed = Vec::new();
        if std::mem::replace(&mut self.open, open) == open {
            return Ok(closed);
        }
        for (&address, range) in &mut self.ranges {
            if let Reach::ByMessages(readable, writable) = range.memory {
                match open {
                    true => self.memory.map_remote(address, range.size, readable, writable),
                    false => self.memory.unmap_remote(address),
                }
            }
            let now = match &range.memory {
                Reach::Now(region) if !open => region.upgrade().map(Reach::Later),
                Reach::Later(region) if open => Some(in_table(&self.memory, address, region.clone())?),
                _ => None,
            };
            let Some(now) = now else { continue };
            if !open {
                closed.extend(self.memory.unmap(address));
            }
            range.memory = now;
        }
        Ok(closed)
    }

    pub(crate) fn map(&mut self, map: &DmaMap, descriptors: Vec<OwnedFd>) -> Result<(), Refusal> {
        let DmaMap { flags, offset, address, size } = *map;
        let end = address.checked_add(size).filter(|_| size > 0).ok_or(Refusal::Invalid)?;
        if !(address | size | offset).is_multiple_of(PAGE_SIZE as u64) {
            return Err(Refusal::Invalid);
        }
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(at, range)| at + range.size > address) {
            return Err(Refusal::Exists);
        }
        if end > BOUNCE_IOVA {
            return Err(Refusal::Invalid);
        }
        if self.ranges.len() >= MAX_MAPPINGS || size > MOST - self.mapped {
            return Err(Refusal::NoRoom);
        }
        let mut descriptors = descriptors.into_iter();
        let memory = match (descriptors.next(), descriptors.next()) {
            (_, Some(_)) => return Err(Refusal::Invalid),
            (Some(fd), None) if flags & dma_flags::WRITE != 0 && flags & dma_flags::READ != 0 => {
                let len = usize::try_from(size).map_err(|_| Refusal::Invalid)?;
                let region = Region::foreign(fd, offset, len).map_err(refusal)?;
                let region = Arc::new(region);
                if self.open { in_table(&self.memory, address, region)? } else { Reach::Later(region) }
            }
            _ => {
                // A PC's RAM begins there. Once for each client: it could map and unmap for ever.
                if address == 0 && !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(
                        "the client keeps its memory to itself: the drive has to ask for it by messages, \
                         which is slow (QEMU: -object memory-backend-memfd,share=on)"
                    );
                }
                let takes = self.memory.remote().most() > 0;
                let allowed = |flag| takes && flags & flag != 0;
                let (readable, writable) = (allowed(dma_flags::READ), allowed(dma_flags::WRITE));
                if self.open {
                    self.memory.map_remote(address, size, readable, writable);
                }
                Reach::ByMessages(readable, writable)
            }
        };
        self.mapped += size;
        self.ranges.insert(address, Range { size, memory });
        self.show();
        Ok(())
    }

    /// Takes mappings away. What is returned is still used by operations in flight where it can be upgraded:
    /// no answer goes out before.
    pub(crate) fn unmap(&mut self, unmap: &DmaUnmap) -> Result<Vec<Weak<Region>>, Refusal> {
        let addresses: Vec<u64> = match unmap.flags {
            ALL if unmap.address == 0 && unmap.size == 0 => self.ranges.keys().copied().collect(),
            0 => match self.ranges.get(&unmap.address) {
                Some(range) if range.size == unmap.size => vec![unmap.address],
                _ => return Err(Refusal::NotThere),
            },
            _ => return Err(Refusal::Invalid),
        };
        let mut regions = Vec::new();
        for address in addresses {
            let Some(range) = self.ranges.remove(&address) else { continue };
            self.mapped -= range.size;
            match range.memory {
                Reach::Now(_) => regions.extend(self.memory.unmap(address)),
                Reach::ByMessages(..) => self.memory.unmap_remote(address),
                Reach::Later(_) => {}
            }
        }
        self.show();
        Ok(regions)
    }
}

fn in_table(memory: &Memory, address: u64, region: Arc<Region>) -> Result<Reach, Refusal> {
    let known = Arc::downgrade(&region);
    memory.map(address, region).map_err(|error| match error {
        MemoryError::Overlap { .. } => Refusal::Exists,
        MemoryError::Full => Refusal::NoRoom,
        MemoryError::Unmapped { .. } => Refusal::Invalid,
    })?;
    Ok(Reach::Now(known))
}

fn refusal(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::OutOfMemory => Refusal::NoRoom,
        _ => Refusal::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn rig() -> (Mappings, File) {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(64 * PAGE).unwrap();
        let mut mappings = Mappings::new(Arc::new(Memory::new()));
        mappings.open(true).unwrap();
        (mappings, file)
    }

    fn map(address: u64, size: u64) -> DmaMap {
        DmaMap { flags: 3, offset: 0, address, size }
    }

    fn fd(file: &File) -> Vec<OwnedFd> {
        vec![file.try_clone().unwrap().into()]
    }

    #[test]
    fn ranges_never_overlap_reachable_or_not() {
        let (mut mappings, file) = rig();
        mappings.map(&map(8 * PAGE, 8 * PAGE), fd(&file)).unwrap();
        // Without a descriptor, and one that is only read.
        mappings.map(&map(32 * PAGE, 8 * PAGE), Vec::new()).unwrap();
        mappings.map(&DmaMap { flags: 1, ..map(48 * PAGE, PAGE) }, fd(&file)).unwrap();
        for (address, size) in [(0, 9), (8, 8), (9, 1), (15, 3), (0, 60), (31, 2), (39, 1), (48, 1)] {
            for descriptors in [fd(&file), Vec::new()] {
                let refused = mappings.map(&map(address * PAGE, size * PAGE), descriptors);
                assert_eq!(refused, Err(Refusal::Exists), "{size} pages at {address}");
            }
        }
        mappings.map(&map(0, 8 * PAGE), fd(&file)).unwrap();
        mappings.map(&map(16 * PAGE, 16 * PAGE), fd(&file)).unwrap();
        assert!(mappings.memory.resolve(8 * PAGE, 100).is_ok());
        assert!(
            mappings.memory.resolve(32 * PAGE, 1).is_err() && mappings.memory.resolve(48 * PAGE, 1).is_err()
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (mut mappings, file) = rig();
        for (wrong, why) in [
            (map(0, 0), Refusal::Invalid),
            (map(1, PAGE), Refusal::Invalid),
            (map(0, PAGE + 1), Refusal::Invalid),
            (map(u64::MAX - PAGE + 1, PAGE), Refusal::Invalid),
            (map(0, 65 * PAGE), Refusal::Invalid),
            (DmaMap { offset: 64 * PAGE, ..map(0, PAGE) }, Refusal::Invalid),
            (DmaMap { offset: 5, ..map(0, PAGE) }, Refusal::Invalid),
            (map(0, MOST + PAGE), Refusal::NoRoom),
        ] {
            assert_eq!(mappings.map(&wrong, fd(&file)), Err(why), "{wrong:?}");
        }
        let two = [fd(&file), fd(&file)].concat_owned();
        assert_eq!(mappings.map(&map(0, PAGE), two), Err(Refusal::Invalid));
        assert_eq!((mappings.ranges.len(), mappings.mapped, mappings.memory.mappings()), (0, 0, 0));
        mappings.map(&map(0, 2 * PAGE), fd(&file)).unwrap();
        for (address, size, flags) in [(0, PAGE, 0), (PAGE, PAGE, 0), (0, 2 * PAGE, 1), (0, 2 * PAGE, ALL)] {
            let unmap = DmaUnmap { flags, address, size };
            assert!(mappings.unmap(&unmap).is_err(), "{unmap:?}");
        }
    }

    #[test]
    fn a_function_that_may_not_reach_memory_does_not() {
        let (mut mappings, file) = rig();
        mappings.map(&map(0, PAGE), fd(&file)).unwrap();
        for _ in 0..2 {
            let closed = mappings.open(false).unwrap();
            assert_eq!(closed.iter().map(Weak::strong_count).collect::<Vec<_>>(), [1]);
            assert!(mappings.open(false).unwrap().is_empty());
            // Mapped and unmapped meanwhile.
            mappings.map(&map(PAGE, PAGE), fd(&file)).unwrap();
            mappings.map(&map(2 * PAGE, PAGE), fd(&file)).unwrap();
            assert_eq!(mappings.map(&map(0, PAGE), fd(&file)), Err(Refusal::Exists));
            let unmap = DmaUnmap { flags: 0, address: 2 * PAGE, size: PAGE };
            assert!(mappings.unmap(&unmap).unwrap().is_empty());
            assert!((0..3).all(|page| mappings.memory.resolve(page * PAGE, 1).is_err()));
            mappings.open(true).unwrap();
            let reached: Vec<_> =
                (0..3).map(|page| mappings.memory.resolve(page * PAGE, 1).is_ok()).collect();
            assert_eq!(reached, [true, true, false]);
            let unmap = DmaUnmap { flags: 0, address: PAGE, size: PAGE };
            assert_eq!(mappings.unmap(&unmap).unwrap().len(), 1);
        }
    }

    trait ConcatOwned {
        fn concat_owned(self) -> Vec<OwnedFd>;
    }

    impl ConcatOwned for [Vec<OwnedFd>; 2] {
        fn concat_owned(self) -> Vec<OwnedFd> {
            self.into_iter().flatten().collect()
        }
    }

    #[test]
    fn thousands_are_mapped_and_all_go() {
        let (mut mappings, file) = rig();
        for n in 0..MAX_MAPPINGS as u64 {
            mappings.map(&map(n * 2 * PAGE, PAGE), fd(&file)).unwrap();
        }
        assert_eq!(mappings.map(&map(1 << 40, PAGE), fd(&file)), Err(Refusal::NoRoom));
        let gone = mappings.unmap(&DmaUnmap { flags: ALL, address: 0, size: 0 }).unwrap();
        assert_eq!((gone.len(), mappings.mapped, mappings.memory.mappings()), (MAX_MAPPINGS, 0, 0));
        assert!(gone.iter().all(|region| region.upgrade().is_none()));
    }

    #[test]
    fn a_file_that_shrinks_shows() {
        let (mut mappings, file) = rig();
        mappings.map(&map(0, 4 * PAGE), fd(&file)).unwrap();
        assert!(!mappings.have_failed());
        file.set_len(0).unwrap();
        let span = mappings.memory.resolve(0, 8).unwrap();
        mappings.memory.read(span, &mut [0; 8]);
        assert!(mappings.have_failed());
    }
}
