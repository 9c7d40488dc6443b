//! The near-data request and reply as bytes.
//!
//! Both begin with a header and go on with items padded to 8 bytes; all numbers are little-endian.
//!
//! ```text
//! request header, 64 bytes                      reply header, 96 bytes
//!  0 magic "NDRQ"                                0 magic "NDRP"
//!  4 version u16 (1)                             4 version u16 (1)
//!  6 header length u16 (64)                      6 header length u16 (96)
//!  8 length of all u32                           8 length of all u32
//! 12 items u32                                  12 records u32
//! 16 operation u16                              16 status u32
//! 18 target u16                                 20 flags u32: bit 0: a cursor follows
//! 20 partition u32                              24 length of the status text u32
//! 24 required flags u32: bit 0: follow          28 length of the cursor u32
//! 28 optional flags u32                         32 counters, 7 of u64
//! 32 reserved, zero                             88 reserved, zero
//!
//! item, record: type u16 (an item's bit 15: optional), flags u16, length u32, value, zeros up to 8
//! ```
//!
//! A reply's records come first, then the status text, then the cursor, so that records can be written as
//! they arise. An item that the drive does not know is refused by its number, or skipped where it is marked
//! optional; required flags that it does not know are refused, optional ones are not looked at.
//!
//! Nothing here panics on any bytes, and nothing is allocated beyond what the bytes at hand hold.
#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use alloc::vec::Vec;
use core::ops::RangeInclusive;

mod reply;
mod request;

pub use reply::{Full, REPLY_HEADER, ReplyWriter, decode_reply, each_record, encode_reply, reply_len};
pub use request::{OPERATIONS, REQUEST_HEADER, TARGETS, decode_request, encode_request};

/// The version that this codec speaks.
pub const VERSION: u16 = 1;

/// Why bytes are not a request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError {
    /// The byte at which it shows, from the start of the request or reply.
    pub at: usize,
    /// What is wrong.
    pub what: Fault,
}

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They end too early.
    Short,
    /// The magic is another.
    Magic,
    /// The version is not known.
    Version(u16),
    /// A required item that is not known; its number.
    UnknownItem(u16),
    /// Required flags that are not known.
    UnknownFlags(u32),
    /// A number that names nothing: an operation, a target, a kind.
    Unknown(&'static str, u32),
    /// A value is outside its limits, or what must be zero is not; which.
    Invalid(&'static str),
    /// An item that the operation or target needs is missing, or is there twice.
    Items(&'static str),
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.what {
            Fault::Short => write!(f, "the bytes end too early")?,
            Fault::Magic => write!(f, "not a near-data message")?,
            Fault::Version(v) => write!(f, "version {v} is not known")?,
            Fault::UnknownItem(n) => write!(f, "required item {n} is not known")?,
            Fault::UnknownFlags(n) => write!(f, "required flags {n:#x} are not known")?,
            Fault::Unknown(what, n) => write!(f, "{what} {n} is not known")?,
            Fault::Invalid(what) => write!(f, "invalid {what}")?,
            Fault::Items(what) => write!(f, "the item {what} is missing or is there twice")?,
        }
        write!(f, " (byte {})", self.at)
    }
}

impl core::error::Error for WireError {}

/// Reads numbers and bytes off the front, checked.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Reader { rest: bytes, at }
    }

    fn fault<T>(&self, what: Fault) -> Result<T, WireError> {
        Err(WireError { at: self.at, what })
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            return self.fault(Fault::Short);
        };
        self.rest = rest;
        self.at = self.at.saturating_add(n);
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let at = self.at;
        <[u8; N]>::try_from(self.bytes(N)?).map_err(|_| WireError { at, what: Fault::Short })
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn len(&mut self) -> Result<usize, WireError> {
        let at = self.at;
        usize::try_from(self.u32()?).map_err(|_| WireError { at, what: Fault::Short })
    }

    fn zeros(&mut self, n: usize) -> Result<(), WireError> {
        let at = self.at;
        match self.bytes(n)?.iter().all(|b| *b == 0) {
            true => Ok(()),
            false => Err(WireError { at, what: Fault::Invalid("reserved bytes: not zero") }),
        }
    }

    fn padding(&mut self, len: usize) -> Result<(), WireError> {
        self.zeros(padding(len))
    }

    pub(crate) fn tail(&mut self) -> &'a [u8] {
        let tail = core::mem::take(&mut self.rest);
        self.at = self.at.saturating_add(tail.len());
        tail
    }

    pub(crate) fn text(&mut self, n: usize) -> Result<&'a str, WireError> {
        let at = self.at;
        match core::str::from_utf8(self.bytes(n)?) {
            Ok(s) => Ok(s),
            Err(_) => Err(WireError { at, what: Fault::Invalid("text: not UTF-8") }),
        }
    }

    fn end(&self) -> Result<(), WireError> {
        match self.rest {
            [] => Ok(()),
            _ => self.fault(Fault::Invalid("length: bytes left over")),
        }
    }
}

/// What a request's and a reply's first 16 bytes say: the length of all, and how many items or records.
fn header(
    r: &mut Reader<'_>,
    magic: [u8; 4],
    header_len: u16,
    lengths: RangeInclusive<usize>,
) -> Result<(usize, u32), WireError> {
    if r.array()? != magic {
        return Err(WireError { at: 0, what: Fault::Magic });
    }
    let version = r.u16()?;
    if version != VERSION {
        return Err(WireError { at: 4, what: Fault::Version(version) });
    }
    if r.u16()? != header_len {
        return Err(WireError { at: 6, what: Fault::Invalid("header length") });
    }
    let len = r.len()?;
    if !lengths.contains(&len) {
        return Err(WireError { at: 8, what: Fault::Invalid("length") });
    }
    Ok((len, r.u32()?))
}

/// Writes them over bytes that are there.
fn put_header(out: &mut [u8], magic: [u8; 4], header_len: u16, count: u32) {
    let len = small(out.len());
    put(out, 0, &magic);
    put(out, 4, &VERSION.to_le_bytes());
    put(out, 6, &header_len.to_le_bytes());
    put(out, 8, &len.to_le_bytes());
    put(out, 12, &count.to_le_bytes());
}

fn padding(len: usize) -> usize {
    len.wrapping_neg() & 7
}

fn padded(len: usize) -> usize {
    len.saturating_add(padding(len))
}

pub(crate) fn small(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Writes a header's numbers over bytes that are there.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = at.checked_add(bytes.len()).and_then(|end| out.get_mut(at..end)) {
        place.copy_from_slice(bytes);
    }
}

fn pad(out: &mut Vec<u8>) {
    let n = padding(out.len());
    out.extend(core::iter::repeat_n(0u8, n));
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]
mod tests;
