//! Fields in and out of bytes.

use crate::WireError;

/// What is left of a message.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, len: usize, name: &'static str) -> Result<&'a [u8], WireError> {
        let (field, rest) = self.0.split_at_checked(len).ok_or(WireError::Short(name))?;
        self.0 = rest;
        Ok(field)
    }

    fn array<const N: usize>(&mut self, name: &'static str) -> Result<[u8; N], WireError> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Short(name))?;
        self.0 = rest;
        Ok(*field)
    }

    pub fn half(&mut self, name: &'static str) -> Result<u16, WireError> {
        self.array(name).map(u16::from_le_bytes)
    }

    pub fn word(&mut self, name: &'static str) -> Result<u32, WireError> {
        self.array(name).map(u32::from_le_bytes)
    }

    pub fn quad(&mut self, name: &'static str) -> Result<u64, WireError> {
        self.array(name).map(u64::from_le_bytes)
    }
}

/// A 32-bit count or offset as one of this machine, which has at least 32 bits.
pub(crate) fn index(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A length as a field of 32 bits; what no message reaches stays the largest.
pub(crate) fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

pub(crate) fn put(into: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        into.extend_from_slice(&word.to_le_bytes());
    }
}

pub(crate) fn put_quads(into: &mut Vec<u8>, quads: &[u64]) {
    for quad in quads {
        into.extend_from_slice(&quad.to_le_bytes());
    }
}

/// A value that must not be what it is.
pub(crate) fn bad(field: &'static str, value: impl Into<u64>) -> WireError {
    WireError::Value { field, value: value.into() }
}
