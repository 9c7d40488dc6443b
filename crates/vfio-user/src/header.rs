//! The header of every message.

use crate::WireError;
use crate::bytes::{Fields, index};

/// Bytes of a header.
pub const HEADER: usize = 16;

/// The commands' numbers.
#[expect(missing_docs, reason = "the names are the protocol's own, VFIO_USER_*")]
pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DMA_READ: u16 = 11;
    pub const DMA_WRITE: u16 = 12;
    pub const DEVICE_RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something is asked for.
    Command {
        /// No reply is wanted, not even of a failure.
        no_reply: bool,
    },
    /// An answer.
    Reply {
        /// The errno of a failure (0: the peer does not say which). Nothing follows the header then.
        error: Option<u32>,
    },
}

/// What stands before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's name for it, which a reply repeats.
    pub id: u16,
    /// Which command is meant.
    pub command: u16,
    /// Bytes of the message, header included.
    pub size: u32,
    /// Which way it goes.
    pub kind: Kind,
}

const REPLY: u32 = 1;
const TYPE: u32 = 0xf;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

impl Header {
    /// Decodes a header of a message of at most `limit` bytes.
    ///
    /// # Errors
    /// The size is none, or larger; the type is none.
    pub fn decode(bytes: &[u8; HEADER], limit: usize) -> Result<Header, WireError> {
        let mut fields = Fields(bytes);
        let (id, command) = (fields.half("message id")?, fields.half("command")?);
        let (size, flags) = (fields.word("message size")?, fields.word("flags")?);
        let error = fields.word("error")?;
        if index(size) < HEADER || index(size) > limit {
            return Err(WireError::Size { size, limit });
        }
        let kind = match flags & TYPE {
            0 => Kind::Command { no_reply: flags & NO_REPLY != 0 },
            REPLY => Kind::Reply { error: (flags & ERROR != 0).then_some(error) },
            _ => return Err(WireError::Type(flags)),
        };
        Ok(Header { id, command, size, kind })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let (flags, error) = match self.kind {
            Kind::Command { no_reply } => (if no_reply { NO_REPLY } else { 0 }, 0),
            Kind::Reply { error: None } => (REPLY, 0),
            Kind::Reply { error: Some(error) } => (REPLY | ERROR, error),
        };
        let first = u32::from(self.id) | u32::from(self.command) << 16;
        let mut bytes = [0; HEADER];
        for (to, from) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([first, self.size, flags, error]) {
            *to = from.to_le_bytes();
        }
        bytes
    }
}
