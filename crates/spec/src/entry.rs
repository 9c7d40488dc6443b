//! Submission and completion queue entries (Base 2.0, 3.3.3.1 and 3.3.3.2).

use crate::Status;
use crate::command::common;
use crate::data::SglDescriptor;

/// A submission queue entry: 64 bytes as sixteen dwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SubmissionEntry {
    /// CDW0 to CDW15.
    pub cdw: [u32; 16],
}

const _: () = assert!(size_of::<SubmissionEntry>() == 64);

impl SubmissionEntry {
    /// An entry with its opcode, command identifier and namespace; PRPs, no fusing.
    pub const fn new(opcode: u8, cid: u16, nsid: u32) -> SubmissionEntry {
        let mut cdw = [0; 16];
        cdw[0] = opcode as u32 | (cid as u32) << 16;
        cdw[1] = nsid;
        SubmissionEntry { cdw }
    }

    /// OPC, CDW0 bits 7:0.
    #[inline]
    pub const fn opcode(&self) -> u8 {
        self.cdw[0] as u8
    }

    /// Whether FUSE, PSDT or what is reserved between them is set: one comparison for the common case.
    #[inline]
    pub const fn has_flags(&self) -> bool {
        self.cdw[0] & 0xff00 != 0
    }

    /// PSDT, CDW0 bits 15:14: 0 PRPs, 1 SGL with a metadata buffer, 2 SGL with a metadata SGL.
    #[inline]
    pub const fn psdt(&self) -> u8 {
        (self.cdw[0] >> 14) as u8 & 3
    }

    /// CID, CDW0 bits 31:16.
    #[inline]
    pub const fn cid(&self) -> u16 {
        (self.cdw[0] >> 16) as u16
    }

    /// Sets CID.
    #[inline]
    pub const fn set_cid(&mut self, cid: u16) {
        self.cdw[0] = self.cdw[0] & 0xffff | (cid as u32) << 16;
    }

    /// NSID.
    #[inline]
    pub const fn nsid(&self) -> u32 {
        self.cdw[1]
    }

    /// A 64-bit field at dword `low`.
    #[inline]
    pub const fn quad(&self, low: usize) -> u64 {
        self.cdw[low] as u64 | (self.cdw[low + 1] as u64) << 32
    }

    /// Sets a 64-bit field at dword `low`.
    #[inline]
    pub const fn set_quad(&mut self, low: usize, value: u64) {
        self.cdw[low] = value as u32;
        self.cdw[low + 1] = (value >> 32) as u32;
    }

    /// DPTR's first half: PRP1.
    #[inline]
    pub const fn prp1(&self) -> u64 {
        self.quad(6)
    }

    /// DPTR's second half: PRP2.
    #[inline]
    pub const fn prp2(&self) -> u64 {
        self.quad(8)
    }

    /// DPTR as an SGL descriptor.
    #[inline]
    pub fn sgl1(&self) -> SglDescriptor {
        let mut descriptor = SglDescriptor::default();
        let id = (self.cdw[9] >> 24) as u8;
        descriptor.set_address(self.prp1()).set_length(self.cdw[8]).set_id(id);
        descriptor
    }

    /// Sets DPTR to an SGL descriptor, and PSDT to say so.
    #[inline]
    pub fn set_sgl1(&mut self, descriptor: &SglDescriptor) {
        self.set(common::PSDT, 1);
        self.set_quad(6, descriptor.address());
        self.set_quad(8, u64::from(descriptor.length()) | u64::from(descriptor.id()) << 56);
    }
}

/// A completion queue entry: 16 bytes as four dwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompletionEntry {
    /// DW0 to DW3.
    pub dw: [u32; 4],
}

const _: () = assert!(size_of::<CompletionEntry>() == 16);

impl CompletionEntry {
    /// An entry; `phase` is the phase tag.
    #[inline]
    pub const fn new(result: u64, sq_head: u16, sq_id: u16, cid: u16, status: Status, phase: bool) -> Self {
        CompletionEntry {
            dw: [
                result as u32,
                (result >> 32) as u32,
                sq_head as u32 | (sq_id as u32) << 16,
                cid as u32 | (phase as u32) << 16 | (status.0 as u32) << 17,
            ],
        }
    }

    /// The command-specific result, DW0.
    #[inline]
    pub const fn result(&self) -> u32 {
        self.dw[0]
    }

    /// SQHD.
    #[inline]
    pub const fn sq_head(&self) -> u16 {
        self.dw[2] as u16
    }

    /// SQID.
    #[inline]
    pub const fn sq_id(&self) -> u16 {
        (self.dw[2] >> 16) as u16
    }

    /// CID.
    #[inline]
    pub const fn cid(&self) -> u16 {
        self.dw[3] as u16
    }

    /// The phase tag.
    #[inline]
    pub const fn phase(&self) -> bool {
        self.dw[3] >> 16 & 1 != 0
    }

    /// The status field.
    #[inline]
    pub const fn status(&self) -> Status {
        Status((self.dw[3] >> 17) as u16)
    }
}
