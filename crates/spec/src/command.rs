//! Where the fields of commands lie in their dwords, as data (Base 2.0, 5 and 7; NVM Command Set
//! 1.0, 3; docs/NVME.md for near-data commands): the host sets a field by its name and the
//! controller reads it, and a refusal names its place.

use core::marker::PhantomData;

use crate::SubmissionEntry;
use crate::opcode::admin;

/// A field of a submission queue entry: some bits of one dword, or two whole dwords.
/// Zero-based fields end in `_Z`.
#[derive(Clone, Copy, Debug)]
pub struct Field<T> {
    dword: u8,
    low: u8,
    bits: u8,
    value: PhantomData<T>,
}

impl<T> Field<T> {
    const fn new(dword: u8, low: u8, bits: u8) -> Field<T> {
        assert!(bits > 0 && (low + bits <= 32 && dword < 16 || low == 0 && bits == 64 && dword < 15));
        Field { dword, low, bits, value: PhantomData }
    }

    /// Byte and bit of the entry at which it begins, as the error log names it.
    pub const fn place(&self) -> (u8, u8) {
        (self.dword * 4 + self.low / 8, self.low % 8)
    }

    const fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }
}

/// What a field holds.
pub trait Bits: Copy {
    /// The field's value in an entry.
    fn load(entry: &SubmissionEntry, field: Field<Self>) -> Self;
    /// Puts it there; what is more than the field has is cut off.
    fn store(self, entry: &mut SubmissionEntry, field: Field<Self>);
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Bits for $t {
            #[inline]
            fn load(entry: &SubmissionEntry, field: Field<$t>) -> $t {
                (entry.cdw[usize::from(field.dword)] >> field.low & field.mask()) as $t
            }
            #[inline]
            fn store(self, entry: &mut SubmissionEntry, field: Field<$t>) {
                let dword = &mut entry.cdw[usize::from(field.dword)];
                *dword = *dword & !(field.mask() << field.low) | (u32::from(self) & field.mask()) << field.low;
            }
        }
    )*};
}
integers!(u8 u16 u32);

impl Bits for bool {
    #[inline]
    fn load(entry: &SubmissionEntry, field: Field<bool>) -> bool {
        entry.cdw[usize::from(field.dword)] >> field.low & 1 != 0
    }
    #[inline]
    fn store(self, entry: &mut SubmissionEntry, field: Field<bool>) {
        let dword = &mut entry.cdw[usize::from(field.dword)];
        *dword = *dword & !(1 << field.low) | u32::from(self) << field.low;
    }
}

impl Bits for u64 {
    #[inline]
    fn load(entry: &SubmissionEntry, field: Field<u64>) -> u64 {
        entry.quad(usize::from(field.dword))
    }
    #[inline]
    fn store(self, entry: &mut SubmissionEntry, field: Field<u64>) {
        entry.set_quad(usize::from(field.dword), self);
    }
}

impl SubmissionEntry {
    /// A field's value.
    #[inline]
    pub fn get<T: Bits>(&self, field: Field<T>) -> T {
        T::load(self, field)
    }

    /// Sets a field.
    #[inline]
    pub fn set<T: Bits>(&mut self, field: Field<T>, value: T) {
        value.store(self, field);
    }

    /// The entry with a field set.
    #[inline]
    pub fn with<T: Bits>(mut self, field: Field<T>, value: T) -> SubmissionEntry {
        self.set(field, value);
        self
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $t:ty = $dword:literal, $low:literal, $bits:literal;)*) => {$(
        $(#[$doc])*
        pub const $name: $crate::command::Field<$t> = $crate::command::Field::new($dword, $low, $bits);
    )*};
}

/// Of every command.
pub mod common {
    fields! {
        /// Fused operation.
        FUSE: u8 = 0, 8, 2;
        /// PRP or SGL: 0 PRPs, 1 SGL.
        PSDT: u8 = 0, 14, 2;
        /// Namespace.
        NSID: u32 = 1, 0, 32;
    }
}

/// Create and Delete I/O Completion and Submission Queue (Base 5.4 to 5.7).
pub mod queue {
    fields! {
        /// Queue identifier.
        QID: u16 = 10, 0, 16;
        /// Entries.
        QSIZE_Z: u16 = 10, 16, 16;
        /// Physically contiguous.
        PC: bool = 11, 0, 1;
        /// Of a completion queue: interrupts enabled.
        IEN: bool = 11, 1, 1;
        /// Of a completion queue: interrupt vector.
        IV: u16 = 11, 16, 16;
        /// Of a submission queue: its completion queue.
        CQID: u16 = 11, 16, 16;
    }
}

/// Abort (Base 5.1).
pub mod abort {
    fields! {
        /// The submission queue of the command.
        SQID: u16 = 10, 0, 16;
        /// The command identifier of the command.
        CID: u16 = 10, 16, 16;
    }
}

/// Identify (Base 5.17).
pub mod identify {
    fields! {
        /// Which structure: [`crate::identify::cns`].
        CNS: u8 = 10, 0, 8;
        /// Command set identifier.
        CSI: u8 = 11, 24, 8;
    }
}

/// Get Log Page (Base 5.16).
pub mod log_page {
    fields! {
        /// Which page: [`crate::log::lid`].
        LID: u8 = 10, 0, 8;
        /// Of the ANA page: groups without their namespaces.
        RGO: bool = 10, 8, 1;
        /// Retain the asynchronous event.
        RAE: bool = 10, 15, 1;
        /// Dwords to return, lower half.
        NUMDL_Z: u16 = 10, 16, 16;
        /// Dwords to return, upper half.
        NUMDU: u16 = 11, 0, 16;
        /// The offset.
        LPO: u64 = 12, 0, 64;
        /// The offset is an index.
        OT: bool = 14, 23, 1;
        /// Command set identifier.
        CSI: u8 = 14, 24, 8;
    }
}

/// Get and Set Features (Base 5.15, 5.27).
pub mod features {
    fields! {
        /// Which feature: [`crate::feature::fid`].
        FID: u8 = 10, 0, 8;
        /// Get: which of its values.
        SEL: u8 = 10, 8, 3;
        /// Set: keep it over resets.
        SV: bool = 10, 31, 1;
        /// What it is set to.
        VALUE: u32 = 11, 0, 32;
        /// Power Management: power state.
        PS: u8 = 11, 0, 5;
        /// Temperature Threshold: which sensor and which of its two thresholds.
        TMPSEL_THSEL: u8 = 11, 16, 6;
        /// Temperature Threshold: the sensor alone.
        TMPSEL: u8 = 11, 16, 4;
        /// Temperature Threshold: the threshold alone, over or under.
        THSEL: u8 = 11, 20, 2;
        /// Temperature Threshold, in Kelvins.
        TMPTH: u16 = 11, 0, 16;
        /// Error Recovery: an error for reads of deallocated blocks.
        DULBE: bool = 11, 16, 1;
        /// Volatile Write Cache: on.
        WCE: bool = 11, 0, 1;
        /// Interrupt Vector Configuration: the vector.
        IV: u16 = 11, 0, 16;
        /// Interrupt Vector Configuration: interrupts of the vector are not coalesced.
        CD: bool = 11, 16, 1;
        /// Host Identifier: the extended form of 16 bytes.
        EXHID: bool = 11, 0, 1;
        /// Reservation Persistence: PTPL.
        PTPL: bool = 11, 0, 1;
        /// Number of Queues: submission queues.
        NSQR_Z: u16 = 11, 0, 16;
        /// Number of Queues: completion queues.
        NCQR_Z: u16 = 11, 16, 16;
    }
}

/// Read, Write, Compare and Write Zeroes (NVM 3.2).
pub mod transfer {
    fields! {
        /// The first block.
        SLBA: u64 = 10, 0, 64;
        /// Blocks.
        NLB_Z: u16 = 12, 0, 16;
        /// Force unit access.
        FUA: bool = 12, 30, 1;
    }
}

/// Dataset Management (NVM 3.2.3).
pub mod dataset {
    fields! {
        /// Ranges.
        NR_Z: u8 = 10, 0, 8;
        /// Deallocate.
        AD: bool = 11, 2, 1;
    }
}

/// Reservation commands (Base 7.2 to 7.5).
pub mod reservation {
    fields! {
        /// What is done: [`crate::reservation::register`], [`crate::reservation::acquire`] or
        /// [`crate::reservation::release`].
        ACTION: u8 = 10, 0, 3;
        /// Register: whatever the host's key is now.
        IEKEY: bool = 10, 3, 1;
        /// Acquire and Release: [`crate::reservation::Kind`].
        RTYPE: u8 = 10, 8, 8;
        /// Register: a change of PTPL. 0 none, 2 to 0, 3 to 1.
        CPTPL: u8 = 10, 30, 2;
        /// Report: dwords to return.
        NUMD_Z: u32 = 10, 0, 32;
        /// Report: host identifiers of 16 bytes.
        EDS: bool = 11, 0, 1;
    }
}

/// Memory Read, Write, Fill and Copy (docs/NVME.md).
pub mod memory {
    fields! {
        /// The first byte.
        START: u64 = 10, 0, 64;
        /// Read, Write and Fill: bytes.
        LENGTH: u32 = 12, 0, 32;
        /// Copy: bytes of all sources.
        COPY_LENGTH: u64 = 2, 0, 64;
        /// Copy: sources.
        NR_Z: u8 = 12, 0, 8;
        /// Copy: the format of sources.
        FORMAT: u8 = 12, 8, 4;
    }

    /// Sources are logical blocks.
    pub const BLOCKS: [u8; 2] = [2, 3];
    /// Sources are bytes of memory namespaces.
    pub const BYTES: u8 = 4;
}

/// Load Program, Program Activation Management, Memory Range Set Management and Execute Program
/// (docs/NVME.md).
pub mod compute {
    fields! {
        /// Of admin commands: the program's index.
        PIND: u16 = 10, 0, 16;
        /// Load: its type.
        PTYPE: u8 = 10, 16, 8;
        /// Load: unload.
        UNLOAD: bool = 10, 24, 1;
        /// Load: what kind of identifier PID is.
        PIT: u8 = 10, 25, 3;
        /// Load: bytes of the program.
        PSIZE: u32 = 11, 0, 32;
        /// Load: its identifier.
        PID: u64 = 12, 0, 64;
        /// Load: bytes that come with this command.
        NUMB: u32 = 14, 0, 32;
        /// Load: their place in the program.
        LOFF: u32 = 15, 0, 32;
        /// Activation: 0 deactivate, 1 activate.
        ACTIVATION: u8 = 10, 16, 4;
        /// Sets: 0 create, 1 delete.
        SET_ACTION: u8 = 10, 0, 4;
        /// Sets, delete: which.
        RSID: u16 = 10, 16, 16;
        /// Sets, create: ranges.
        NUMR: u8 = 11, 0, 8;
        /// Execute: the program's index.
        EXECUTE_PIND: u16 = 2, 0, 16;
        /// Execute: a set of memory ranges; 0 none.
        EXECUTE_RSID: u16 = 2, 16, 16;
        /// Execute: ranges that come with the command.
        EXECUTE_NUMR: u32 = 3, 0, 32;
        /// Execute: bytes of data.
        DLEN: u32 = 4, 0, 32;
        /// Execute: a parameter.
        CPARAM1: u64 = 10, 0, 64;
        /// Execute: another.
        CPARAM2: u64 = 12, 0, 64;
    }
}

/// The vendor's near-data commands (docs/NVME.md).
pub mod near_data {
    fields! {
        /// Of `execute`, `result` and `cancel`: the tag.
        TAG: u64 = 12, 0, 64;
        /// Bytes of the request.
        REQUEST: u32 = 10, 0, 32;
        /// Bytes of the buffer.
        BUFFER: u32 = 11, 0, 32;
        /// Of the bidirectional command: the reply takes the place of the request.
        OVER: bool = 12, 0, 1;
        /// Of `result`: how long it waits, in milliseconds.
        WAIT_MS: u32 = 14, 0, 32;
        /// By way of a feature: the tag.
        FEATURE_TAG: u32 = 11, 0, 32;
        /// By way of Get Features: byte of the reply to begin with.
        FEATURE_OFFSET: u32 = 12, 0, 32;
        /// By way of a feature: bytes of the buffer; 0 for 4,096.
        FEATURE_BYTES: u32 = 13, 0, 32;
    }
}

/// Get Log Page: `len` bytes, a multiple of four and at least four, from `offset`.
pub fn get_log_page(lid: u8, nsid: u32, offset: u64, len: usize) -> SubmissionEntry {
    let dwords_z = (len / 4).saturating_sub(1);
    SubmissionEntry::new(admin::GET_LOG_PAGE, 0, nsid)
        .with(log_page::LID, lid)
        .with(log_page::NUMDL_Z, dwords_z as u16)
        .with(log_page::NUMDU, (dwords_z >> 16) as u16)
        .with(log_page::LPO, offset)
}

/// Identify.
pub fn identify_command(cns: u8, nsid: u32) -> SubmissionEntry {
    SubmissionEntry::new(admin::IDENTIFY, 0, nsid).with(identify::CNS, cns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_where_the_specification_has_it() {
        let mut entry = SubmissionEntry::new(2, 0x1234, 1);
        entry.cdw[12] = u32::MAX;
        entry.set(transfer::FUA, false);
        entry.set(transfer::NLB_Z, 7);
        assert_eq!(entry.cdw[12], 0xbfff_0007);
        assert_eq!((entry.get(transfer::FUA), entry.get(transfer::NLB_Z)), (false, 7));
        assert_eq!(
            (transfer::FUA.place(), transfer::NLB_Z.place(), transfer::SLBA.place()),
            ((51, 6), (48, 0), (40, 0))
        );
        entry.set(transfer::SLBA, 0x1_0000_0002);
        assert_eq!((entry.cdw[10], entry.cdw[11], entry.get(transfer::SLBA)), (2, 1, 0x1_0000_0002));
        let entry = entry.with(common::PSDT, 1).with(common::FUSE, 2).with(common::NSID, u32::MAX);
        assert_eq!((entry.cdw[0], entry.nsid(), entry.psdt()), (0x1234_4202, u32::MAX, 1));
    }

    /// The dwords of an entry in which a field has all its bits set.
    fn bits<T: Bits>(field: Field<T>, ones: T) -> [u32; 16] {
        SubmissionEntry::default().with(field, ones).cdw
    }

    const ALL: u32 = u32::MAX;

    /// That just those bits of a dword are set.
    fn is_at(name: &str, found: [u32; 16], (dword, high, low): (usize, u32, u32)) {
        let mut right = [0; 16];
        right[dword] = ALL >> (31 - high) & ALL << low;
        assert_eq!(found, right, "{name}");
    }

    /// That just two dwords are set.
    fn is_whole(name: &str, found: [u32; 16], dword: usize) {
        let mut right = [0; 16];
        right[dword..dword + 2].fill(ALL);
        assert_eq!(found, right, "{name}");
    }

    #[test]
    fn every_field_is_where_the_specification_has_it() {
        const BYTE: u8 = u8::MAX;
        const WORD: u16 = u16::MAX;
        for (name, found, dword, high, low) in [
            // Base 2.0, figure 86.
            ("FUSE", bits(common::FUSE, BYTE), 0, 9, 8),
            ("PSDT", bits(common::PSDT, BYTE), 0, 15, 14),
            ("NSID", bits(common::NSID, ALL), 1, 31, 0),
            // Create I/O Completion Queue and Submission Queue; Delete has QID.
            ("QID", bits(queue::QID, WORD), 10, 15, 0),
            ("QSIZE", bits(queue::QSIZE_Z, WORD), 10, 31, 16),
            ("PC", bits(queue::PC, true), 11, 0, 0),
            ("IEN", bits(queue::IEN, true), 11, 1, 1),
            ("IV", bits(queue::IV, WORD), 11, 31, 16),
            ("CQID", bits(queue::CQID, WORD), 11, 31, 16),
            // Abort.
            ("SQID", bits(abort::SQID, WORD), 10, 15, 0),
            ("CID", bits(abort::CID, WORD), 10, 31, 16),
            // Identify.
            ("CNS", bits(identify::CNS, BYTE), 10, 7, 0),
            ("CSI", bits(identify::CSI, BYTE), 11, 31, 24),
            // Get Log Page.
            ("LID", bits(log_page::LID, BYTE), 10, 7, 0),
            ("RAE", bits(log_page::RAE, true), 10, 15, 15),
            ("NUMDL", bits(log_page::NUMDL_Z, WORD), 10, 31, 16),
            ("NUMDU", bits(log_page::NUMDU, WORD), 11, 15, 0),
            ("OT", bits(log_page::OT, true), 14, 23, 23),
            ("CSI", bits(log_page::CSI, BYTE), 14, 31, 24),
            // Get and Set Features.
            ("FID", bits(features::FID, BYTE), 10, 7, 0),
            ("SEL", bits(features::SEL, BYTE), 10, 10, 8),
            ("SV", bits(features::SV, true), 10, 31, 31),
            ("VALUE", bits(features::VALUE, ALL), 11, 31, 0),
            ("PS", bits(features::PS, BYTE), 11, 4, 0),
            ("TMPTH", bits(features::TMPTH, WORD), 11, 15, 0),
            ("TMPSEL", bits(features::TMPSEL, BYTE), 11, 19, 16),
            ("THSEL", bits(features::THSEL, BYTE), 11, 21, 20),
            ("TMPSEL and THSEL", bits(features::TMPSEL_THSEL, BYTE), 11, 21, 16),
            ("DULBE", bits(features::DULBE, true), 11, 16, 16),
            ("WCE", bits(features::WCE, true), 11, 0, 0),
            ("IV", bits(features::IV, WORD), 11, 15, 0),
            ("CD", bits(features::CD, true), 11, 16, 16),
            ("EXHID", bits(features::EXHID, true), 11, 0, 0),
            ("NSQR", bits(features::NSQR_Z, WORD), 11, 15, 0),
            ("NCQR", bits(features::NCQR_Z, WORD), 11, 31, 16),
            // NVM Command Set 1.0: reads and writes; Dataset Management.
            ("NLB", bits(transfer::NLB_Z, WORD), 12, 15, 0),
            ("FUA", bits(transfer::FUA, true), 12, 30, 30),
            ("NR", bits(dataset::NR_Z, BYTE), 10, 7, 0),
            ("AD", bits(dataset::AD, true), 11, 2, 2),
            // docs/NVME.md.
            ("REQUEST", bits(near_data::REQUEST, ALL), 10, 31, 0),
            ("BUFFER", bits(near_data::BUFFER, ALL), 11, 31, 0),
            ("OVER", bits(near_data::OVER, true), 12, 0, 0),
            ("WAIT_MS", bits(near_data::WAIT_MS, ALL), 14, 31, 0),
            ("FEATURE_TAG", bits(near_data::FEATURE_TAG, ALL), 11, 31, 0),
            ("FEATURE_OFFSET", bits(near_data::FEATURE_OFFSET, ALL), 12, 31, 0),
            ("FEATURE_BYTES", bits(near_data::FEATURE_BYTES, ALL), 13, 31, 0),
        ] {
            is_at(name, found, (dword, high, low));
        }
        for (name, found, dword) in [
            ("LPO", bits(log_page::LPO, u64::MAX), 12),
            ("SLBA", bits(transfer::SLBA, u64::MAX), 10),
            ("TAG", bits(near_data::TAG, u64::MAX), 12),
        ] {
            is_whole(name, found, dword);
        }
    }

    #[test]
    fn every_field_of_programs_and_memory_is_where_docs_nvme_has_it() {
        const BYTE: u8 = u8::MAX;
        const WORD: u16 = u16::MAX;
        for (name, found, dword, high, low) in [
            ("LENGTH", bits(memory::LENGTH, ALL), 12, 31, 0),
            ("NR", bits(memory::NR_Z, BYTE), 12, 7, 0),
            ("FORMAT", bits(memory::FORMAT, BYTE), 12, 11, 8),
            ("PIND", bits(compute::PIND, WORD), 10, 15, 0),
            ("PTYPE", bits(compute::PTYPE, BYTE), 10, 23, 16),
            ("UNLOAD", bits(compute::UNLOAD, true), 10, 24, 24),
            ("PIT", bits(compute::PIT, BYTE), 10, 27, 25),
            ("PSIZE", bits(compute::PSIZE, ALL), 11, 31, 0),
            ("NUMB", bits(compute::NUMB, ALL), 14, 31, 0),
            ("LOFF", bits(compute::LOFF, ALL), 15, 31, 0),
            ("SEL", bits(compute::ACTIVATION, BYTE), 10, 19, 16),
            ("SEL", bits(compute::SET_ACTION, BYTE), 10, 3, 0),
            ("RSID", bits(compute::RSID, WORD), 10, 31, 16),
            ("NUMR", bits(compute::NUMR, BYTE), 11, 7, 0),
            ("PIND", bits(compute::EXECUTE_PIND, WORD), 2, 15, 0),
            ("RSID", bits(compute::EXECUTE_RSID, WORD), 2, 31, 16),
            ("NUMR", bits(compute::EXECUTE_NUMR, ALL), 3, 31, 0),
            ("DLEN", bits(compute::DLEN, ALL), 4, 31, 0),
        ] {
            is_at(name, found, (dword, high, low));
        }
        for (name, found, dword) in [
            ("SB", bits(memory::START, u64::MAX), 10),
            ("LEN", bits(memory::COPY_LENGTH, u64::MAX), 2),
            ("PID", bits(compute::PID, u64::MAX), 12),
            ("CPARAM1", bits(compute::CPARAM1, u64::MAX), 10),
            ("CPARAM2", bits(compute::CPARAM2, u64::MAX), 12),
        ] {
            is_whole(name, found, dword);
        }
    }

    #[test]
    fn golden() {
        assert_eq!(get_log_page(2, 9, 0x1_0000_0004, 0x5_0000).cdw[10..], [0x3fff_0002, 1, 4, 1, 0, 0]);
        assert_eq!(identify_command(1, 0).cdw[10], 1);
    }
}
