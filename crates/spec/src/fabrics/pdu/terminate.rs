//! Termination requests (TCP Transport 1.0, 3.6.2.3 and 3.6.2.4):
//! what a connection ends with where a PDU broke the rules.

use super::{HEAD, Head, PduType, Side, Terms};

/// Longest termination request: its header and at most 128 bytes of the offending one's.
pub const MAX_TERMINATE: usize = 24 + MAX_COPY;
const MAX_COPY: usize = 128;

/// FES: why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FatalStatus(pub u16);

impl FatalStatus {
    /// Invalid PDU Header Field.
    pub const INVALID_FIELD: FatalStatus = FatalStatus(1);
    /// PDU Sequence Error.
    pub const SEQUENCE: FatalStatus = FatalStatus(2);
    /// Header Digest Error.
    pub const HEADER_DIGEST: FatalStatus = FatalStatus(3);
    /// Data Transfer Out of Range.
    pub const OUT_OF_RANGE: FatalStatus = FatalStatus(4);
    /// From the host: R2T Limit Exceeded. From the controller: Data Transfer Limit Exceeded.
    pub const LIMIT_EXCEEDED: FatalStatus = FatalStatus(5);
    /// Unsupported Parameter.
    pub const UNSUPPORTED: FatalStatus = FatalStatus(6);

    /// The specification's name for it.
    pub const fn name(self) -> &'static str {
        match self.0 {
            1 => "Invalid PDU Header Field",
            2 => "PDU Sequence Error",
            3 => "Header Digest Error",
            4 => "Data Transfer Out of Range",
            5 => "Data Transfer or R2T Limit Exceeded",
            6 => "Unsupported Parameter",
            _ => "unknown fatal error",
        }
    }
}

/// Why a connection ends, and where in the PDU the reason stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// FES.
    pub status: FatalStatus,
    /// FEI: for [`FatalStatus::INVALID_FIELD`] and [`FatalStatus::UNSUPPORTED`] the offending field's offset
    /// in the PDU's header; for [`FatalStatus::HEADER_DIGEST`] the digest that was received; else 0.
    pub information: u32,
}

impl Fatal {
    /// A PDU that may not come now, or not to this side.
    pub const SEQUENCE: Fatal = Fatal { status: FatalStatus::SEQUENCE, information: 0 };
    /// Data beyond the command's buffer, or beyond what R2T asked for.
    pub const OUT_OF_RANGE: Fatal = Fatal { status: FatalStatus::OUT_OF_RANGE, information: 0 };
    /// More R2Ts than MAXR2T, or more data than MAXH2CDATA.
    pub const LIMIT_EXCEEDED: Fatal = Fatal { status: FatalStatus::LIMIT_EXCEEDED, information: 0 };

    /// The header's field at that offset is wrong.
    pub const fn field(offset: u32) -> Fatal {
        Fatal { status: FatalStatus::INVALID_FIELD, information: offset }
    }

    /// What the field at that offset asks for is not there.
    pub const fn unsupported(offset: u32) -> Fatal {
        Fatal { status: FatalStatus::UNSUPPORTED, information: offset }
    }

    /// The header digest that was received is wrong.
    pub const fn digest(received: u32) -> Fatal {
        Fatal { status: FatalStatus::HEADER_DIGEST, information: received }
    }
}

impl core::fmt::Display for Fatal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.status.name())?;
        match self.status {
            FatalStatus::INVALID_FIELD | FatalStatus::UNSUPPORTED => {
                write!(f, " (byte {})", self.information)
            }
            FatalStatus::HEADER_DIGEST => write!(f, " (received {:#010x})", self.information),
            _ => Ok(()),
        }
    }
}

impl core::error::Error for Fatal {}

/// A termination request on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminateRequest {
    bytes: [u8; MAX_TERMINATE],
    len: usize,
}

impl TerminateRequest {
    /// To `to`, about the PDU whose header (of which 128 bytes are copied) is `offending`.
    pub fn new(to: Side, fatal: Fatal, offending: &[u8]) -> TerminateRequest {
        let kind = if to == Side::Host { PduType::ControllerTerminate } else { PduType::HostTerminate };
        let mut head = Head::new(kind, 0, 0, &Terms::default());
        let mut len = usize::from(kind.hlen());
        let mut bytes = [0; MAX_TERMINATE];
        for (to, from) in bytes[len..].iter_mut().zip(offending) {
            *to = *from;
            len += 1;
        }
        head.plen = len as u32;
        let mut bytes = head.put(bytes);
        bytes[HEAD..HEAD + 2].copy_from_slice(&fatal.status.0.to_le_bytes());
        bytes[HEAD + 2..HEAD + 6].copy_from_slice(&fatal.information.to_le_bytes());
        TerminateRequest { bytes, len }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}
