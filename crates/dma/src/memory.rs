//! The IOVA table: which memory a drive may reach, and under which addresses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::Region;

/// How many mappings one table can have over its life. Removing one does not free its place.
const MAX_MAPPINGS: usize = 256;

/// A checked range of a mapped region: what an IOVA and a length became. Meaningful only with the [`Memory`]
/// that made it; used with another it can name other bytes, never bytes outside a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    mapping: u16,
    len: u32,
    offset: u64,
}

impl Span {
    /// No bytes of any table.
    pub const EMPTY: Span = Span { mapping: 0, len: 0, offset: 0 };

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part from `start` of `len` bytes, where it lies within.
    #[inline]
    pub fn part(&self, start: usize, len: usize) -> Option<Span> {
        let end = start.checked_add(len)?;
        (end <= self.len as usize).then(|| Span {
            mapping: self.mapping,
            len: len as u32,
            offset: self.offset + start as u64,
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
    #[error("the IOVA table is full ({MAX_MAPPINGS} mappings over its life)")]
    Full,
}

struct Mapping {
    iova: u64,
    region: Arc<Region>,
    removed: std::sync::atomic::AtomicBool,
}

/// The table from IOVAs to regions. Lookups take no lock. A removed mapping no longer resolves, but its
/// memory stays mapped while the table lives, so that an operation in flight never writes to memory that is
/// gone.
pub struct Memory {
    mappings: [OnceLock<Mapping>; MAX_MAPPINGS],
    count: AtomicUsize,
    change: Mutex<()>,
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

impl Memory {
    /// An empty table.
    pub fn new() -> Memory {
        Memory {
            mappings: [const { OnceLock::new() }; MAX_MAPPINGS],
            count: AtomicUsize::new(0),
            change: Mutex::new(()),
        }
    }

    /// Makes all of `region` reachable from `iova` on.
    ///
    /// # Errors
    /// [`MemoryError`]: the range overlaps a mapping or wraps, or the table is full.
    pub fn map(&self, iova: u64, region: Arc<Region>) -> Result<(), MemoryError> {
        let _guard = self.change.lock().unwrap_or_else(|e| e.into_inner());
        let end = iova.checked_add(region.len() as u64).ok_or(MemoryError::Overlap { iova })?;
        if self.live().any(|(_, m)| iova < m.iova + m.region.len() as u64 && m.iova < end) {
            return Err(MemoryError::Overlap { iova });
        }
        let at = self.count.load(Ordering::Relaxed);
        let slot = self.mappings.get(at).ok_or(MemoryError::Full)?;
        let _ = slot.set(Mapping { iova, region, removed: false.into() });
        // Release: a lookup that sees the new count sees the mapping (OnceLock orders its own contents as
        // well).
        self.count.store(at + 1, Ordering::Release);
        Ok(())
    }

    /// Ends the mapping that begins at `iova`; its spans stay safe to use.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`]: no mapping begins there.
    pub fn unmap(&self, iova: u64) -> Result<(), MemoryError> {
        let _guard = self.change.lock().unwrap_or_else(|e| e.into_inner());
        let (_, mapping) =
            self.live().find(|(_, m)| m.iova == iova).ok_or(MemoryError::Unmapped { iova, len: 0 })?;
        mapping.removed.store(true, Ordering::Release);
        Ok(())
    }

    /// Resolves a range that must lie within one mapping.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`]: the range is not, or not wholly, within one mapping.
    #[inline]
    pub fn resolve(&self, iova: u64, len: usize) -> Result<Span, MemoryError> {
        for (index, m) in self.live() {
            if let Some(offset) = iova.checked_sub(m.iova)
                && offset <= m.region.len() as u64
                && len as u64 <= m.region.len() as u64 - offset
                && len <= u32::MAX as usize
            {
                return Ok(Span { mapping: index as u16, len: len as u32, offset });
            }
        }
        Err(MemoryError::Unmapped { iova, len })
    }

    /// Copies a span's bytes out.
    ///
    /// # Panics
    /// `into` has another length than the span, or the span is of another table.
    #[inline]
    pub fn read(&self, span: Span, into: &mut [u8]) {
        assert_eq!(span.len(), into.len());
        self.region(span).read(span.offset as usize, into);
    }

    /// Copies bytes into a span.
    ///
    /// # Panics
    /// `from` has another length than the span, or the span is of another table.
    #[inline]
    pub fn write(&self, span: Span, from: &[u8]) {
        assert_eq!(span.len(), from.len());
        self.region(span).write(span.offset as usize, from);
    }

    /// The region that a span lies in, and where: for copies between regions and for atomics.
    #[inline]
    pub fn locate(&self, span: Span) -> (&Arc<Region>, usize) {
        (self.region(span), span.offset as usize)
    }

    #[inline]
    fn region(&self, span: Span) -> &Arc<Region> {
        match self.mappings[span.mapping as usize].get() {
            Some(m) => &m.region,
            None => panic!("a span of another table"),
        }
    }

    #[inline]
    fn live(&self) -> impl Iterator<Item = (usize, &Mapping)> {
        let count = self.count.load(Ordering::Acquire);
        self.mappings[..count]
            .iter()
            .enumerate()
            .filter_map(|(i, m)| m.get().map(|m| (i, m)))
            .filter(|(_, m)| !m.removed.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_only_what_is_mapped() {
        let memory = Memory::new();
        memory.map(0x10_0000, Arc::new(Region::anonymous(8192).unwrap())).unwrap();
        assert!(memory.resolve(0x10_0000, 8192).is_ok());
        assert!(memory.resolve(0x10_0001, 8192).is_err());
        assert!(memory.resolve(u64::MAX, 2).is_err());
        assert_eq!(
            memory.map(0x10_1000, Arc::new(Region::anonymous(1).unwrap())),
            Err(MemoryError::Overlap { iova: 0x10_1000 })
        );
        let span = memory.resolve(0x10_0ffe, 4).unwrap();
        memory.write(span, b"abcd");
        memory.unmap(0x10_0000).unwrap();
        assert!(memory.resolve(0x10_0000, 1).is_err());
        let mut back = [0; 4];
        memory.read(span, &mut back);
        assert_eq!(&back, b"abcd");
    }
}
