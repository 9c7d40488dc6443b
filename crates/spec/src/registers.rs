//! Controller registers (Base 2.0, 3.1.3): byte offsets, fields and their values.

/// Controller Capabilities, 64 bits.
pub const CAP: usize = 0x00;
/// Version, 32 bits.
pub const VS: usize = 0x08;
/// Interrupt Mask Set, 32 bits. In shared memory nothing traps a write, so the controller takes it at its
/// next step: set bits with an atomic OR and never by a plain store of fewer bits.
pub const INTMS: usize = 0x0c;
/// Interrupt Mask Clear, 32 bits: write ones by an atomic OR. Reads as what the controller has yet to take
/// (the specification lets it read as the mask; [`INTMS`] does).
pub const INTMC: usize = 0x10;
/// Controller Configuration, 32 bits.
pub const CC: usize = 0x14;
/// Controller Status, 32 bits.
pub const CSTS: usize = 0x1c;
/// NVM Subsystem Reset, 32 bits.
pub const NSSR: usize = 0x20;
/// Admin Queue Attributes, 32 bits.
pub const AQA: usize = 0x24;
/// Admin Submission Queue base address, 64 bits.
pub const ASQ: usize = 0x28;
/// Admin Completion Queue base address, 64 bits.
pub const ACQ: usize = 0x30;
/// Controller Ready Timeouts, 32 bits.
pub const CRTO: usize = 0x68;
/// The first doorbell.
pub const DOORBELLS: usize = 0x1000;

/// NVMe 2.0.0 as VS and Identify's VER have it.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Offset of a submission queue's tail doorbell, stride 4 bytes (`CAP.DSTRD` = 0).
pub const fn sq_tail_doorbell(qid: u16) -> usize {
    DOORBELLS + 8 * qid as usize
}

/// Offset of a completion queue's head doorbell.
pub const fn cq_head_doorbell(qid: u16) -> usize {
    DOORBELLS + 8 * qid as usize + 4
}

/// CAP's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// A memory-based controller with contiguous queues, round robin, NVM commands, 4 KiB pages,
    /// and ready with media (CQR, CSS.NVM, CRMS.CRWMS set). `mqes_z`: entries per queue,
    /// zero-based; `to`: the ready timeout in 500 ms.
    pub const fn new(mqes_z: u16, to: u8) -> Cap {
        Cap(mqes_z as u64 | 1 << 16 | (to as u64) << 24 | 1 << 37 | 1 << 59)
    }

    /// The same with namespaces of other command sets as well (CSS.IOCSS).
    pub const fn with_command_sets(self) -> Cap {
        Cap(self.0 | 1 << 43)
    }

    /// Whether it has them.
    pub const fn command_sets(self) -> bool {
        self.0 >> 43 & 1 != 0
    }

    /// MQES, zero-based.
    pub const fn mqes_z(self) -> u16 {
        self.0 as u16
    }

    /// TO in milliseconds.
    pub const fn timeout_ms(self) -> u64 {
        (self.0 >> 24 & 0xff) * 500
    }

    /// Bytes from one doorbell to the next.
    pub const fn doorbell_stride(self) -> usize {
        4 << (self.0 >> 32 & 0xf)
    }

    /// The smallest page size: `4096 << MPSMIN`.
    pub const fn page_size_min(self) -> usize {
        4096 << (self.0 >> 48 & 0xf)
    }
}

/// CC's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc(pub u32);

impl Cc {
    /// EN.
    pub const EN: u32 = 1;
    /// IOSQES for 64-byte entries and IOCQES for 16-byte entries, 4 KiB pages, the NVM command set,
    /// round robin; not enabled.
    pub const DEFAULTS: Cc = Cc(6 << 16 | 4 << 20);

    /// EN.
    pub const fn enabled(self) -> bool {
        self.0 & Self::EN != 0
    }
    /// CSS: the NVM command set alone.
    pub const CSS_NVM: u8 = 0;
    /// CSS: all command sets that the controller has.
    pub const CSS_ALL: u8 = 6;

    /// The same with all command sets that the controller has.
    pub const fn with_command_sets(self) -> Cc {
        Cc(self.0 | (Self::CSS_ALL as u32) << 4)
    }

    /// CSS.
    pub const fn css(self) -> u8 {
        (self.0 >> 4) as u8 & 7
    }
    /// MPS.
    pub const fn mps(self) -> u8 {
        (self.0 >> 7) as u8 & 0xf
    }
    /// AMS.
    pub const fn ams(self) -> u8 {
        (self.0 >> 11) as u8 & 7
    }
    /// SHN: 1 normal, 2 abrupt.
    pub const fn shn(self) -> u8 {
        (self.0 >> 14) as u8 & 3
    }
    /// IOSQES, log2.
    pub const fn iosqes(self) -> u8 {
        (self.0 >> 16) as u8 & 0xf
    }
    /// IOCQES, log2.
    pub const fn iocqes(self) -> u8 {
        (self.0 >> 20) as u8 & 0xf
    }
    /// CC with SHN set.
    pub const fn with_shn(self, shn: u8) -> Cc {
        Cc(self.0 & !(3 << 14) | (shn as u32 & 3) << 14)
    }
}

/// CSTS's fields.
pub mod csts {
    /// RDY.
    pub const RDY: u32 = 1;
    /// CFS, controller fatal status.
    pub const CFS: u32 = 1 << 1;
    /// SHST, both bits.
    pub const SHST: u32 = 3 << 2;
    /// SHST: shutdown processing occurring.
    pub const SHST_OCCURRING: u32 = 1 << 2;
    /// SHST: shutdown processing complete.
    pub const SHST_COMPLETE: u32 = 2 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        assert_eq!(sq_tail_doorbell(0), 0x1000);
        assert_eq!(cq_head_doorbell(3), 0x101c);
        let cap = Cap::new(1023, 20);
        assert_eq!(cap.0, 0x0800_0020_1401_03ff);
        assert_eq!((cap.mqes_z(), cap.timeout_ms(), cap.doorbell_stride()), (1023, 10_000, 4));
        assert_eq!(Cc::DEFAULTS.0 | Cc::EN, 0x0046_0001);
        assert_eq!(Cc(0x0046_8001).shn(), 2);
    }
}
