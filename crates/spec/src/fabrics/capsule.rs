//! Where the data of a command capsule are: its one SGL descriptor (Base 2.0, 4.1.2; TCP Transport 1.0, 3.4).
//!
//! Host data either come in the capsule (a data block whose address is an offset) or are asked
//! for by R2T; controller data go out in C2HData (the transport data block, which names no
//! place: the host knows it by the command).

use crate::data::SglDescriptor;
use crate::{Status, SubmissionEntry};

/// Identifier of a data block whose address is an offset into the capsule: type 0h, sub-type 1h.
pub const IN_CAPSULE: u8 = 0x01;
/// Identifier of the transport data block of NVMe/TCP: type 5h, sub-type Ah.
pub const TRANSPORT: u8 = 0x5a;
/// PSDT of every command in a capsule: SGL, a metadata buffer where there is any.
pub const PSDT: u8 = 1;

/// Where the data of a capsule are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsuleData {
    /// In the capsule, from an offset in bytes on (beyond ICDOFF).
    InCapsule {
        /// Bytes after the place that ICDOFF says.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// They are moved by the transport, in either direction. A command without data has no bytes here.
    Transport {
        /// Bytes.
        len: u32,
    },
}

impl CapsuleData {
    /// What a command says of its data.
    ///
    /// # Errors
    /// The status for a host that names its data by PRPs (Invalid Field), by lists or by keys (SGL
    /// Descriptor Type Invalid).
    pub fn of(entry: &SubmissionEntry) -> Result<CapsuleData, Status> {
        if entry.psdt() != PSDT {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let descriptor = entry.sgl1();
        let len = descriptor.length();
        match descriptor.id() {
            IN_CAPSULE => Ok(CapsuleData::InCapsule { offset: descriptor.address(), len }),
            TRANSPORT => Ok(CapsuleData::Transport { len }),
            _ => Err(Status::INVALID_SGL_TYPE.dnr()),
        }
    }

    /// Bytes.
    pub const fn len(self) -> u32 {
        match self {
            CapsuleData::InCapsule { len, .. } | CapsuleData::Transport { len } => len,
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Puts it into a command: PSDT and SGL1.
    pub fn put(self, entry: &mut SubmissionEntry) {
        let (address, id) = match self {
            CapsuleData::InCapsule { offset, .. } => (offset, IN_CAPSULE),
            CapsuleData::Transport { .. } => (0, TRANSPORT),
        };
        let mut descriptor = SglDescriptor::default();
        descriptor.set_address(address).set_length(self.len()).set_id(id);
        entry.set_sgl1(&descriptor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut entry = SubmissionEntry::new(1, 7, 1);
        CapsuleData::InCapsule { offset: 0, len: 4096 }.put(&mut entry);
        assert_eq!(entry.cdw[0], 0x0007_4001);
        assert_eq!(entry.cdw[6..10], [0, 0, 4096, 0x0100_0000]);
        assert_eq!(CapsuleData::of(&entry), Ok(CapsuleData::InCapsule { offset: 0, len: 4096 }));
        CapsuleData::Transport { len: 512 }.put(&mut entry);
        assert_eq!(entry.cdw[6..10], [0, 0, 512, 0x5a00_0000]);
        assert_eq!(CapsuleData::of(&entry), Ok(CapsuleData::Transport { len: 512 }));
        entry.cdw[9] = 0x4000_0000;
        assert_eq!(CapsuleData::of(&entry), Err(Status::INVALID_SGL_TYPE.dnr()));
        assert_eq!(CapsuleData::of(&SubmissionEntry::new(2, 0, 1)), Err(Status::INVALID_FIELD.dnr()));
    }
}
