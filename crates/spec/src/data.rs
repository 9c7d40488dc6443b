//! Where a command's data lie: SGL descriptors (Base 2.0, 4.1.2), dataset management ranges (NVM Command
//! Set 1.0, 3.2.3, figure 36), ranges of subsystem local memory, and what is copied there (docs/NVME.md). A
//! PRP entry (4.1.1) is a plain 64-bit address.

use crate::layout::layout;

layout! {
    /// An SGL descriptor, 16 bytes.
    SglDescriptor, 16 {
        /// Address, or an offset.
        address(set_address): u64 = 0;
        /// Bytes.
        length(set_length): u32 = 8;
        /// Type in bits 7:4, sub-type in 3:0.
        id(set_id): u8 = 15;
    }
}

impl SglDescriptor {
    /// Of a type (sub-type 0: an address).
    pub fn new(kind: SglType, address: u64, length: u32) -> SglDescriptor {
        let mut d = SglDescriptor::default();
        d.set_address(address).set_length(length).set_id(kind.to_field() << 4);
        d
    }

    /// Type, where it is known here.
    pub fn kind(&self) -> Option<SglType> {
        SglType::from_field(self.id() >> 4)
    }

    /// Sub-type.
    pub fn sub_type(&self) -> u8 {
        self.id() & 0xf
    }
}

/// SGL descriptor types that memory-based controllers know, figure 93.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglType {
    /// Bytes of memory.
    DataBlock,
    /// Bytes to throw away.
    BitBucket,
    /// More descriptors, the last of which points on.
    Segment,
    /// More descriptors, none of which points on.
    LastSegment,
}

impl SglType {
    /// From bits 7:4 of the identifier.
    pub const fn from_field(value: u8) -> Option<SglType> {
        match value {
            0 => Some(SglType::DataBlock),
            1 => Some(SglType::BitBucket),
            2 => Some(SglType::Segment),
            3 => Some(SglType::LastSegment),
            _ => None,
        }
    }

    /// Bits 7:4 of the identifier.
    pub const fn to_field(self) -> u8 {
        match self {
            SglType::DataBlock => 0,
            SglType::BitBucket => 1,
            SglType::Segment => 2,
            SglType::LastSegment => 3,
        }
    }
}

layout! {
    /// A range of Dataset Management.
    DsmRange, 16 {
        /// Hints.
        attributes(set_attributes): u32 = 0;
        /// Blocks (not zero-based).
        blocks(set_blocks): u32 = 4;
        /// First block.
        slba(set_slba): u64 = 8;
    }
}

layout! {
    /// A range of a memory namespace, as a program may reach it.
    MemoryRange, 32 {
        /// The memory namespace.
        nsid(set_nsid): u32 = 0;
        /// Bytes.
        length(set_length): u32 = 4;
        /// First byte.
        start(set_start): u64 = 8;
    }
}

layout! {
    /// What Memory Copy copies: formats 2h and 3h, logical blocks, and 4h, bytes of a memory namespace.
    CopySource, 32 {
        /// The namespace.
        nsid(set_nsid): u32 = 0;
        /// First block, or first byte.
        start(set_start): u64 = 8;
        /// Of blocks: how many, zero-based, in the lower half. Of memory: bytes.
        count(set_count): u32 = 16;
        /// Options: bit 15, a fast copy or none.
        options(set_options): u16 = 26;
    }
}

impl CopySource {
    /// The option for a fast copy or none.
    pub const FAST_ONLY: u16 = 1 << 15;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let d = SglDescriptor::new(SglType::LastSegment, 0x1000, 32);
        assert_eq!(d.0, [0, 0x10, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0x30]);
        assert_eq!(d.kind(), Some(SglType::LastSegment));
        let mut r = DsmRange::default();
        r.set_blocks(8).set_slba(1);
        assert_eq!(r.0, [0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let mut m = MemoryRange::default();
        m.set_nsid(2).set_length(0x300).set_start(0x4000);
        assert_eq!(m.0[..16], [2, 0, 0, 0, 0, 3, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0]);
        let mut c = CopySource::default();
        c.set_nsid(1).set_start(5).set_count(7).set_options(CopySource::FAST_ONLY);
        assert_eq!((c.0[0], c.0[8], c.0[16], c.0[27]), (1, 5, 7, 0x80));
    }
}
