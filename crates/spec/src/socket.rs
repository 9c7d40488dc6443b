//! Frames on the socket of an attached drive (`unix:PATH`):
//! near-data access for processes other than the drive's.
//!
//! The caller sends a request frame and its bytes; the drive answers with one reply frame and its bytes;
//! then the next may come. Little-endian.
//!
//! ```text
//! request, 24 bytes                                reply, 16 bytes
//!  0 magic "NSRQ"                                   0 magic "NSRP"
//!  4 kind u32                                       4 NVMe status field u32 (0: success)
//!  8 bytes that follow u32                          8 bytes that follow u32
//! 12 room for the reply's bytes u32                12 reserved, zero
//! 16 offset u64 (read: byte of the namespace)
//! ```
//!
//! Who connects is known by its peer credentials: a caller other than root and the drive's own user gets
//! near-data work in its own name only, no reads of blocks and no statistics (Invalid Field in Command).

use crate::layout::Wire;

/// Bytes of a request frame.
pub const REQUEST_FRAME: usize = 24;
/// Bytes of a reply frame.
pub const REPLY_FRAME: usize = 16;
/// Bytes of a [`Hello`].
pub const HELLO: usize = 16;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Nothing follows; the reply is a [`Hello`].
    Hello = 0,
    /// A near-data request follows; the reply is a near-data reply.
    NearData = 1,
    /// Nothing follows; the reply is `room` bytes of the namespace from `offset` on,
    /// both multiples of its block size.
    Read = 2,
    /// Nothing follows; the reply is the start of log page D5h, of at most `room` bytes.
    Statistics = 3,
}

/// A request frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFrame {
    /// What is asked.
    pub kind: RequestKind,
    /// Bytes that follow.
    pub len: u32,
    /// Bytes that the reply may have.
    pub room: u32,
    /// For reads.
    pub offset: u64,
}

/// A reply frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyFrame {
    /// The NVMe status field, without the phase tag.
    pub status: u16,
    /// Bytes that follow.
    pub len: u32,
}

/// What the drive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Bytes of the namespace.
    pub capacity: u64,
    /// Bytes in its blocks.
    pub block_size: u32,
}

const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"NSRQ");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"NSRP");

impl RequestFrame {
    /// On the wire.
    pub fn encode(&self) -> [u8; REQUEST_FRAME] {
        let mut bytes = [0; REQUEST_FRAME];
        REQUEST_MAGIC.store(&mut bytes);
        (self.kind as u32).store(&mut bytes[4..]);
        self.len.store(&mut bytes[8..]);
        self.room.store(&mut bytes[12..]);
        self.offset.store(&mut bytes[16..]);
        bytes
    }

    /// From the wire; `None` where it is no request frame.
    pub fn decode(bytes: &[u8; REQUEST_FRAME]) -> Option<RequestFrame> {
        if u32::load(bytes) != REQUEST_MAGIC {
            return None;
        }
        let kind = match u32::load(&bytes[4..]) {
            0 => RequestKind::Hello,
            1 => RequestKind::NearData,
            2 => RequestKind::Read,
            3 => RequestKind::Statistics,
            _ => return None,
        };
        let (len, room) = (u32::load(&bytes[8..]), u32::load(&bytes[12..]));
        Some(RequestFrame { kind, len, room, offset: u64::load(&bytes[16..]) })
    }
}

impl ReplyFrame {
    /// On the wire.
    pub fn encode(&self) -> [u8; REPLY_FRAME] {
        let mut bytes = [0; REPLY_FRAME];
        REPLY_MAGIC.store(&mut bytes);
        u32::from(self.status).store(&mut bytes[4..]);
        self.len.store(&mut bytes[8..]);
        bytes
    }

    /// From the wire; `None` where it is no reply frame.
    pub fn decode(bytes: &[u8; REPLY_FRAME]) -> Option<ReplyFrame> {
        if u32::load(bytes) != REPLY_MAGIC {
            return None;
        }
        let status = u16::try_from(u32::load(&bytes[4..])).ok()?;
        Some(ReplyFrame { status, len: u32::load(&bytes[8..]) })
    }
}

impl Hello {
    /// On the wire.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        self.capacity.store(&mut bytes);
        self.block_size.store(&mut bytes[8..]);
        bytes
    }

    /// From the wire; `None` where it is none.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; 12] = bytes.first_chunk()?;
        Some(Hello { capacity: u64::load(bytes), block_size: u32::load(&bytes[8..]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_others_are_refused() {
        let kinds = [RequestKind::Hello, RequestKind::NearData, RequestKind::Read, RequestKind::Statistics];
        for kind in kinds {
            let frame = RequestFrame { kind, len: 7, room: 1 << 20, offset: u64::MAX - 511 };
            assert_eq!(RequestFrame::decode(&frame.encode()), Some(frame));
        }
        let reply = ReplyFrame { status: 0x4002, len: 9 };
        assert_eq!(ReplyFrame::decode(&reply.encode()), Some(reply));
        assert_eq!(ReplyFrame::decode(&[0; REPLY_FRAME]), None);
        let mut unknown = RequestFrame { kind: RequestKind::Read, len: 0, room: 0, offset: 0 }.encode();
        unknown[4] = 9;
        assert_eq!(RequestFrame::decode(&unknown), None);
        let hello = Hello { capacity: 1 << 40, block_size: 512 };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert_eq!(Hello::decode(&[1; 11]), None);
    }
}
