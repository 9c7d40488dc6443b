//! The IOVA table: which memory a drive may reach, and under which addresses.
//!
//! Whoever looks an address up takes no lock: the addresses stand sorted in words that a writer changes under
//! an odd version, and a reader who saw the version move looks again. What a lookup gives ([`Span`]) names a
//! place and its generation; the region behind it is pinned while it is used, so that a mapping which is
//! taken away is unmapped by the last of its users, and a span of it finds nothing any more.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use crate::Region;
use crate::remote::Remote;

/// How many mappings one table can have at a time.
pub const MAX_MAPPINGS: usize = 4096;
/// Places that are made at once.
const CHUNK: usize = 64;

/// A checked range of a mapped region: what an IOVA and a length became. Meaningful only with the [`Memory`]
/// that made it; used with another it can name other bytes, never bytes outside a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    place: u16,
    generation: u16,
    len: u32,
    offset: u64,
}

impl Span {
    /// No bytes of any table.
    pub const EMPTY: Span = Span { place: 0, generation: 0, len: 0, offset: 0 };

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of its mapping, and which of those that had the place.
    #[inline]
    pub(crate) fn place(&self) -> (u16, u16) {
        (self.place, self.generation)
    }

    /// Where it begins in its mapping's region, where it lies within.
    #[inline]
    pub(crate) fn offset_in(&self, region: &Region) -> Option<usize> {
        let end = self.offset.checked_add(u64::from(self.len))?;
        (end <= region.len() as u64).then_some(self.offset as usize)
    }

    /// The part from `start` of `len` bytes, where it lies within.
    #[inline]
    pub fn part(&self, start: usize, len: usize) -> Option<Span> {
        let end = start.checked_add(len)?;
        (end <= self.len as usize).then(|| Span {
            len: len as u32,
            offset: self.offset + start as u64,
            ..*self
        })
    }
}

/// Why an address was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum MemoryError {
    /// No region is mapped over the whole range.
    #[error("no memory is mapped for {len} bytes at IOVA {iova:#x}")]
    Unmapped {
        /// Where.
        iova: u64,
        /// How much.
        len: usize,
    },
    /// A new mapping collides with one that stands.
    #[error("IOVA {iova:#x} is mapped already")]
    Overlap {
        /// Where.
        iova: u64,
    },
    /// The table is full.
    #[error("the IOVA table is full ({MAX_MAPPINGS} mappings)")]
    Full,
}

/// Users of a place's region.
const PINS: u64 = u32::MAX as u64;
/// The mapping stands.
const LIVE: u64 = 1 << 32;
/// There is a region: of a mapping that stands, or of one that is still used.
const HELD: u64 = 1 << 33;

const fn generation(state: u64) -> u16 {
    (state >> 48) as u16
}

/// Where a region is kept. The cell is written only by whoever sets HELD (the table's writer, at a free
/// place) and by whoever clears it (one of all, by compare-and-swap, once LIVE is gone and nobody has a pin),
/// and read only under a pin that was taken while LIVE was set.
#[derive(Default)]
struct Place {
    state: AtomicU64,
    region: UnsafeCell<Option<Arc<Region>>>,
}

// SAFETY: see the rule above; what is shared, an `Arc<Region>`, may be.
unsafe impl Sync for Place {}

/// A mapping's addresses, sorted by `start`; `end` is the first behind it.
#[derive(Default)]
struct Addresses {
    start: AtomicU64,
    end: AtomicU64,
    /// The place, and from bit 16 on its generation.
    place: AtomicU32,
}

/// Places that are free.
#[derive(Default)]
struct Places {
    made: usize,
    free: Vec<u16>,
}

/// The table from IOVAs to regions. Lookups take no lock and cost O(log n). A removed mapping no longer
/// resolves; its memory is unmapped once the last operation in flight has let go of it.
pub struct Memory {
    chunks: [OnceLock<Box<[Place; CHUNK]>>; MAX_MAPPINGS / CHUNK],
    addresses: OnceLock<Box<[Addresses]>>,
    count: AtomicUsize,
    /// Odd while the addresses change.
    version: AtomicU32,
    /// Of the one who changes them.
    change: Mutex<()>,
    places: Mutex<Places>,
    remote: Remote,
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

/// A region that stays mapped while this is there.
pub struct Pinned<'a> {
    memory: &'a Memory,
    place: u16,
    region: &'a Arc<Region>,
}

impl std::ops::Deref for Pinned<'_> {
    type Target = Arc<Region>;

    #[inline]
    fn deref(&self) -> &Arc<Region> {
        self.region
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        self.memory.unpin(self.place);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Memory {
    /// An empty table.
    pub fn new() -> Memory {
        Memory {
            chunks: [const { OnceLock::new() }; MAX_MAPPINGS / CHUNK],
            addresses: OnceLock::new(),
            count: AtomicUsize::new(0),
            version: AtomicU32::new(0),
            change: Mutex::default(),
            places: Mutex::default(),
            remote: Remote::default(),
        }
    }

    /// Makes all of `region` reachable from `iova` on.
    ///
    /// # Errors
    /// [`MemoryError`]: the range overlaps a mapping or wraps, or the table is full.
    pub fn map(&self, iova: u64, region: Arc<Region>) -> Result<(), MemoryError> {
        let _changing = lock(&self.change);
        let end = iova.checked_add(region.len() as u64).ok_or(MemoryError::Overlap { iova })?;
        let addresses =
            self.addresses.get_or_init(|| (0..MAX_MAPPINGS).map(|_| Addresses::default()).collect());
        let count = self.count.load(Ordering::Relaxed);
        // The first that begins behind the new one's begin.
        let at = addresses[..count].partition_point(|a| a.start.load(Ordering::Relaxed) <= iova);
        let collides =
            |a: &Addresses| a.start.load(Ordering::Relaxed) < end && iova < a.end.load(Ordering::Relaxed);
        if at > 0 && collides(&addresses[at - 1]) || at < count && collides(&addresses[at]) {
            return Err(MemoryError::Overlap { iova });
        }
        let index = self.free_place().filter(|_| count < MAX_MAPPINGS).ok_or(MemoryError::Full)?;
        let place = self.place(index);
        // SAFETY: a free place has no HELD, so that nobody but the table's one writer touches its cell.
        unsafe { *place.region.get() = Some(region) };
        // Others' pins, taken by spans of an earlier mapping and about to be given back, stay counted.
        let before = place.state.fetch_or(LIVE | HELD, Ordering::AcqRel);
        self.change_addresses(|| {
            for to in (at..count).rev() {
                addresses[to + 1].copy(&addresses[to]);
            }
            let new = &addresses[at];
            new.start.store(iova, Ordering::Relaxed);
            new.end.store(end, Ordering::Relaxed);
            let named = u32::from(index) | u32::from(generation(before)) << 16;
            new.place.store(named, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Ends the mapping that begins at `iova`. Spans of it find nothing from here on; the region goes with
    /// the last operation that uses it, which whoever keeps the answer can wait for.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`]: no mapping begins there.
    pub fn unmap(&self, iova: u64) -> Result<Weak<Region>, MemoryError> {
        let _changing = lock(&self.change);
        let count = self.count.load(Ordering::Relaxed);
        let addresses = self.addresses.get().map_or(&[][..], |all| &all[..count]);
        let at = addresses
            .binary_search_by_key(&iova, |a| a.start.load(Ordering::Relaxed))
            .map_err(|_| MemoryError::Unmapped { iova, len: 0 })?;
        let index = addresses[at].place.load(Ordering::Relaxed) as u16;
        let place = self.place(index);
        // SAFETY: the mapping stands, and only this writer ends it: the cell is not written before LIVE goes.
        let region = unsafe { &*place.region.get() }.as_ref().map_or(Weak::new(), Arc::downgrade);
        // First: who sees the new version and then asks for the region (`Reach`) does not get it any more.
        let state = place.state.fetch_and(!LIVE, Ordering::AcqRel) & !LIVE;
        self.change_addresses(|| {
            for to in at + 1..count {
                addresses[to - 1].copy(&addresses[to]);
            }
            self.count.store(count - 1, Ordering::Relaxed);
        });
        self.reclaim(index, state);
        Ok(region)
    }

    /// The host's memory that is reached by messages: no address of it resolves.
    #[inline]
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Makes `len` bytes from `iova` on reachable by messages. They overlap nothing: who maps sees to that.
    pub fn map_remote(&self, iova: u64, len: u64, readable: bool, writable: bool) {
        let _changing = lock(&self.change);
        self.remote.map(iova, len, readable, writable);
        self.change_addresses(|| {});
    }

    /// Ends what [`Memory::map_remote`] began; what is asked of it comes to nothing.
    pub fn unmap_remote(&self, iova: u64) {
        let _changing = lock(&self.change);
        self.remote.unmap(iova);
        self.change_addresses(|| {});
    }

    /// How often the table was changed, in a way: it differs after every change. A queue whose memory was
    /// found is looked for again then.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Mappings that stand.
    pub fn mappings(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Resolves a range that must lie within one mapping.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`]: the range is not, or not wholly, within one mapping.
    #[inline]
    pub fn resolve(&self, iova: u64, len: usize) -> Result<Span, MemoryError> {
        let unmapped = MemoryError::Unmapped { iova, len };
        let Some(addresses) = self.addresses.get() else { return Err(unmapped) };
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 != 0 {
                std::hint::spin_loop();
                continue;
            }
            let count = self.count.load(Ordering::Relaxed).min(addresses.len());
            let at = addresses[..count].partition_point(|a| a.start.load(Ordering::Relaxed) <= iova);
            let found = at.checked_sub(1).map(|at| {
                let a = &addresses[at];
                (
                    a.start.load(Ordering::Relaxed),
                    a.end.load(Ordering::Relaxed),
                    a.place.load(Ordering::Relaxed),
                )
            });
            // Acquire: the words above were read before the version is read again.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) != version {
                continue;
            }
            return match found {
                Some((start, end, place))
                    if iova < end && len as u64 <= end - iova && len <= u32::MAX as usize =>
                {
                    Ok(Span {
                        place: place as u16,
                        generation: (place >> 16) as u16,
                        len: len as u32,
                        offset: iova - start,
                    })
                }
                _ => Err(unmapped),
            };
        }
    }

    /// Copies a span's bytes out; whether they are the host's. Memory that is not mapped any more, or that
    /// another process has taken away, reads as zeros.
    ///
    /// # Panics
    /// `into` has another length than the span.
    #[inline]
    pub fn read(&self, span: Span, into: &mut [u8]) -> bool {
        assert_eq!(span.len(), into.len());
        let Some((region, at)) = self.locate(span) else {
            into.fill(0);
            return false;
        };
        region.read(at, into);
        !region.has_failed()
    }

    /// Copies bytes into a span; whether the host has them. What is not mapped any more keeps nothing.
    ///
    /// # Panics
    /// `from` has another length than the span.
    #[inline]
    pub fn write(&self, span: Span, from: &[u8]) -> bool {
        assert_eq!(span.len(), from.len());
        let Some((region, at)) = self.locate(span) else { return false };
        region.write(at, from);
        !region.has_failed()
    }

    /// The region that a span lies in, and where: for copies between regions and for atomics. `None`: it is
    /// not mapped any more.
    #[inline]
    pub fn locate(&self, span: Span) -> Option<(Pinned<'_>, usize)> {
        let chunk = self.chunks.get(usize::from(span.place) / CHUNK)?.get()?;
        let place = &chunk[usize::from(span.place) % CHUNK];
        // Acquire: whoever set LIVE wrote the cell before.
        let state = place.state.fetch_add(1, Ordering::Acquire);
        if state & LIVE == 0 || generation(state) != span.generation {
            self.unpin(span.place);
            return None;
        }
        // SAFETY: LIVE was set when this pin was counted, and the cell is not written while a pin is.
        let region = unsafe { &*place.region.get() }.as_ref();
        // A mapping that stands has one.
        let Some(region) = region else {
            self.unpin(span.place);
            return None;
        };
        let pinned = Pinned { memory: self, place: span.place, region };
        let at = span.offset_in(region)?;
        Some((pinned, at))
    }

    fn place(&self, index: u16) -> &Place {
        let chunk = self.chunks[usize::from(index) / CHUNK]
            .get_or_init(|| Box::new(std::array::from_fn(|_| Place::default())));
        &chunk[usize::from(index) % CHUNK]
    }

    fn free_place(&self) -> Option<u16> {
        let mut places = lock(&self.places);
        places.free.pop().or_else(|| {
            let next = (places.made < MAX_MAPPINGS).then_some(places.made as u16)?;
            places.made += 1;
            Some(next)
        })
    }

    /// Changes the addresses so that no reader takes half of it.
    fn change_addresses(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release: whoever reads one of the new words sees the odd version (its Acquire fence comes between).
        fence(Ordering::Release);
        change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    #[inline]
    fn unpin(&self, index: u16) {
        // Release: what was done under the pin comes before the region goes; Acquire for who makes it go.
        let state = self.place(index).state.fetch_sub(1, Ordering::AcqRel) - 1;
        if state & LIVE == 0 {
            self.reclaim(index, state);
        }
    }

    /// Lets go of a region whose mapping has ended and that nobody uses: one of all who come here does.
    #[cold]
    fn reclaim(&self, index: u16, state: u64) {
        if state & (LIVE | PINS) != 0 || state & HELD == 0 {
            return;
        }
        let next = u64::from(generation(state).wrapping_add(1)) << 48;
        let place = self.place(index);
        if place.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Somebody looked at it meanwhile, and comes here after.
            return;
        }
        // SAFETY: this call cleared HELD, with no pin and no LIVE: nobody reads the cell, and nobody writes
        // it before the place is free again.
        drop(unsafe { (*place.region.get()).take() });
        lock(&self.places).free.push(index);
    }
}

impl Addresses {
    fn copy(&self, from: &Addresses) {
        self.start.store(from.start.load(Ordering::Relaxed), Ordering::Relaxed);
        self.end.store(from.end.load(Ordering::Relaxed), Ordering::Relaxed);
        self.place.store(from.place.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(len: usize) -> Arc<Region> {
        Arc::new(Region::anonymous(len).unwrap())
    }

    #[test]
    fn resolves_only_what_is_mapped() {
        let memory = Memory::new();
        memory.map(0x10_0000, region(8192)).unwrap();
        assert!(memory.resolve(0x10_0000, 8192).is_ok());
        assert!(memory.resolve(0x10_0001, 8192).is_err());
        assert!(memory.resolve(0xf_ffff, 1).is_err() && memory.resolve(0x10_2000, 1).is_err());
        assert!(memory.resolve(u64::MAX, 2).is_err());
        assert_eq!(memory.map(0x10_1000, region(1)), Err(MemoryError::Overlap { iova: 0x10_1000 }));
        assert_eq!(memory.map(0xf_f000, region(8192)), Err(MemoryError::Overlap { iova: 0xf_f000 }));
        assert_eq!(
            memory.map(u64::MAX - 4095, region(4096)),
            Err(MemoryError::Overlap { iova: u64::MAX - 4095 })
        );
        let span = memory.resolve(0x10_0ffe, 4).unwrap();
        memory.write(span, b"abcd");
        let mut back = [0; 4];
        memory.read(span, &mut back);
        assert_eq!(&back, b"abcd");
    }

    #[test]
    fn what_is_unmapped_goes_with_its_last_user() {
        let memory = Memory::new();
        memory.map(0x1000, region(4096)).unwrap();
        let span = memory.resolve(0x1000, 4).unwrap();
        memory.write(span, b"abcd");
        let pinned = memory.locate(span).unwrap();
        let before = memory.version();
        let gone = memory.unmap(0x1000).unwrap();
        assert_ne!(memory.version(), before);
        assert!(memory.resolve(0x1000, 1).is_err() && memory.unmap(0x1000).is_err());
        // Who has it keeps it; nobody gets it any more.
        assert!(gone.upgrade().is_some() && memory.locate(span).is_none());
        // The same address again, while the old region is used, and after: the old span is not of the new
        // one.
        memory.map(0x1000, region(4096)).unwrap();
        let mut back = [1; 4];
        pinned.0.read(pinned.1, &mut back);
        assert_eq!(&back, b"abcd");
        drop(pinned);
        assert!(gone.upgrade().is_none(), "nobody uses it and it is still mapped");
        memory.unmap(0x1000).unwrap();
        memory.map(0x1000, region(4096)).unwrap();
        memory.read(span, &mut back);
        memory.write(span, b"efgh");
        assert_eq!(back, [0; 4]);
        memory.read(memory.resolve(0x1000, 4).unwrap(), &mut back);
        assert_eq!(back, [0; 4], "a span of a mapping that is gone reached another's memory");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too long there")]
    fn thousands_come_and_go() {
        let memory = Memory::new();
        let one = region(4096);
        for n in 0..MAX_MAPPINGS as u64 {
            // Out of order.
            memory.map((n * 1237 % MAX_MAPPINGS as u64) * 8192, one.clone()).unwrap();
        }
        assert_eq!(memory.map(1 << 40, one.clone()), Err(MemoryError::Full));
        for n in 0..MAX_MAPPINGS as u64 {
            assert!(memory.resolve(n * 8192 + 5, 100).is_ok() && memory.resolve(n * 8192 + 4096, 1).is_err());
        }
        for _ in 0..20_000u32 {
            memory.unmap(8192).unwrap();
            memory.map(8192, one.clone()).unwrap();
        }
        assert_eq!((memory.mappings(), Arc::strong_count(&one)), (MAX_MAPPINGS, MAX_MAPPINGS + 1));
    }

    /// Lookups and copies, while another changes the table: each finds a mapping whole, or none.
    #[test]
    fn who_looks_while_it_changes_sees_one_or_the_other() {
        let memory = Memory::new();
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let of = |byte| {
            let region = region(4096);
            region.fill(0, 4096, byte);
            region
        };
        let (a, b) = (of(1), of(2));
        memory.map(0x8000, a.clone()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..rounds {
                    let _ = memory.unmap(0x8000).unwrap();
                    // Below it, so that what is sorted moves.
                    memory.map(0x1000, b.clone()).unwrap();
                    memory.map(0x8000, if n % 2 == 0 { b.clone() } else { a.clone() }).unwrap();
                    let _ = memory.unmap(0x1000).unwrap();
                }
            });
            for _ in 0..rounds {
                if let Ok(span) = memory.resolve(0x8000, 8) {
                    let mut bytes = [9; 8];
                    memory.read(span, &mut bytes);
                    assert!(bytes.iter().all(|x| *x == bytes[0]) && bytes[0] <= 2, "{bytes:?}");
                }
            }
        });
        drop(memory);
        assert_eq!((Arc::strong_count(&a), Arc::strong_count(&b)), (1, 1));
    }
}
