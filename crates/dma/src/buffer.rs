//! Page-aligned memory with one owner, fit for O_DIRECT.

use std::ops::{Deref, DerefMut};

use crate::{PAGE_SIZE, Region};

/// A zeroed, page-aligned buffer. It moves into an operation and comes back when the operation has completed,
/// so whoever holds it may read it as a plain slice.
pub struct IoBuffer {
    region: Region,
    len: usize,
}

impl IoBuffer {
    /// A buffer of `len` bytes (at least one).
    ///
    /// # Errors
    /// `OutOfMemory` or `InvalidInput`, from mmap.
    pub fn new(len: usize) -> std::io::Result<IoBuffer> {
        Ok(IoBuffer { region: Region::anonymous(len.max(1).next_multiple_of(PAGE_SIZE))?, len })
    }

    /// Shortens or lengthens the visible part, up to [`IoBuffer::capacity`].
    ///
    /// # Panics
    /// Beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.region.len());
        self.len = len;
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.region.len()
    }
}

impl Deref for IoBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: a private mapping that `self` alone owns; nobody writes it while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.region.pointer(0, self.len), self.len) }
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region.pointer(0, self.len), self.len) }
    }
}

impl AsRef<[u8]> for IoBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for IoBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl std::fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuffer({} of {} bytes)", self.len, self.region.len())
    }
}
