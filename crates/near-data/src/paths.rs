//! A list of paths, in one piece of memory.

use alloc::vec::Vec;

use crate::MAX_PATHS;

/// Paths for one request: as they are on the wire, so that neither end allocates for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Of each path its length, in four bytes, and its bytes.
    bytes: Vec<u8>,
    count: usize,
}

/// Bytes before each path.
const LENGTH: usize = 4;

impl Paths {
    /// None yet, with memory for so many bytes on the wire ([`Paths::wire_len`]).
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Paths {
        Paths { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    /// Bytes on the wire of a path of so many.
    #[must_use]
    pub const fn wire_len(path_len: usize) -> usize {
        path_len.saturating_add(LENGTH)
    }

    /// Adds one at the end. Whether there was room: for [`MAX_PATHS`], each of 32 bits of length.
    pub fn push(&mut self, path: &[u8]) -> bool {
        let Ok(len) = u32::try_from(path.len()) else { return false };
        if self.count >= MAX_PATHS {
            return false;
        }
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(path);
        self.count = self.count.saturating_add(1);
        true
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        core::iter::from_fn(move || {
            let (path, behind) = first(rest)?;
            rest = behind;
            Some(path)
        })
    }

    pub(crate) fn wire(&self) -> &[u8] {
        &self.bytes
    }

    /// From their bytes on the wire.
    pub(crate) fn of_wire(bytes: &[u8]) -> Result<Paths, &'static str> {
        let (mut rest, mut count) = (bytes, 0usize);
        while !rest.is_empty() {
            let (_, behind) = first(rest).ok_or("paths: one is cut")?;
            rest = behind;
            count = count.saturating_add(1);
        }
        match count <= MAX_PATHS {
            true => Ok(Paths { bytes: bytes.to_vec(), count }),
            false => Err("paths: too many"),
        }
    }
}

fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

impl<P: AsRef<[u8]>> FromIterator<P> for Paths {
    /// As many as there is room for ([`Paths::push`]).
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Paths {
        let mut all = Paths::default();
        for path in paths {
            if !all.push(path.as_ref()) {
                break;
            }
        }
        all
    }
}
