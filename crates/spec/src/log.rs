//! Log pages (Base 2.0, 5.16.1).

use crate::layout::layout;

/// Log page identifiers.
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Feature Identifiers Supported and Effects.
    pub const FEATURES: u8 = 0x12;
    /// Reservation Notification.
    pub const RESERVATION: u8 = 0x80;
}

layout! {
    /// An Error Information entry, figure 206.
    ErrorEntry, 64 {
        /// Its number; 0 where there is none.
        count(set_count): u64 = 0;
        /// Submission queue.
        sqid(set_sqid): u16 = 8;
        /// Command identifier.
        cid(set_cid): u16 = 10;
        /// Status field, with the phase tag as bit 0.
        status(set_status): u16 = 12;
        /// Offending field: byte of the command in 7:0, bit in 10:8; FFFFh none.
        parameter(set_parameter): u16 = 14;
        /// First block with the error.
        lba(set_lba): u64 = 16;
        /// Namespace.
        nsid(set_nsid): u32 = 24;
        /// Transport: 0 not said, 1 RDMA, 3 TCP; memory-based controllers say 0.
        trtype(set_trtype): u8 = 29;
        /// Specific to the command.
        specific(set_specific): u64 = 32;
    }
}

layout! {
    /// SMART / Health Information, figure 207.
    Smart, 512 {
        /// Critical warnings.
        critical_warning(set_critical_warning): u8 = 0;
        /// Kelvins.
        composite_temperature(set_composite_temperature): u16 = 1;
        /// Percent of spare left.
        available_spare(set_available_spare): u8 = 3;
        /// Threshold of the same.
        spare_threshold(set_spare_threshold): u8 = 4;
        /// Percent of life used.
        percentage_used(set_percentage_used): u8 = 5;
        /// Thousands of 512-byte units read, rounded up.
        data_units_read(set_data_units_read): u128 = 32;
        /// Thousands of 512-byte units written, rounded up.
        data_units_written(set_data_units_written): u128 = 48;
        /// Read commands.
        host_reads(set_host_reads): u128 = 64;
        /// Write commands.
        host_writes(set_host_writes): u128 = 80;
        /// Minutes busy.
        busy_minutes(set_busy_minutes): u128 = 96;
        /// Power cycles.
        power_cycles(set_power_cycles): u128 = 112;
        /// Hours powered.
        power_on_hours(set_power_on_hours): u128 = 128;
        /// Unsafe shutdowns.
        unsafe_shutdowns(set_unsafe_shutdowns): u128 = 144;
        /// Media errors.
        media_errors(set_media_errors): u128 = 160;
        /// Entries ever made in the error log.
        error_entries(set_error_entries): u128 = 176;
    }
}

layout! {
    /// Firmware Slot Information, figure 209.
    FirmwareSlots, 512 {
        /// Active slot in bits 2:0.
        afi(set_afi): u8 = 0;
        /// Revision in slot 1, ASCII.
        frs1(set_frs1): [u8; 8] = 8;
    }
}

/// Fields of an entry of [`lid::EFFECTS`], figure 211.
pub mod effects {
    /// CSUPP: supported.
    pub const SUPPORTED: u32 = 1;
    /// LBCC: may change logical blocks.
    pub const BLOCKS_CHANGE: u32 = 1 << 1;
}

/// LSUPP of an entry of [`lid::SUPPORTED`].
pub const LOG_SUPPORTED: u32 = 1;

/// The result of an Asynchronous Event Request, figure 146: type, information, log page.
pub const fn async_event(kind: u8, information: u8, log: u8) -> u32 {
    kind as u32 & 7 | (information as u32) << 8 | (log as u32) << 16
}

/// Asynchronous event types.
pub mod event {
    /// Error status.
    pub const ERROR: u8 = 0;
    /// SMART / health status.
    pub const SMART: u8 = 1;
    /// Notice.
    pub const NOTICE: u8 = 2;
    /// Of an I/O command set.
    pub const IO_COMMAND_SET: u8 = 6;
    /// Error: a doorbell of a queue that does not exist was written.
    pub const INVALID_DOORBELL_REGISTER: u8 = 0;
    /// Error: an invalid value was written to a doorbell.
    pub const INVALID_DOORBELL_VALUE: u8 = 1;
    /// SMART: a temperature threshold was crossed.
    pub const TEMPERATURE_THRESHOLD: u8 = 1;
    /// I/O command set: there is something to read in [`super::lid::RESERVATION`].
    pub const RESERVATION_LOG: u8 = 0;
    /// Notice: namespaces were added, removed or changed; which is in [`super::lid::CHANGED_NAMESPACES`].
    pub const NAMESPACE_ATTRIBUTE_CHANGED: u8 = 0x00;
    /// Notice: groups of namespaces are accessible otherwise; how is in [`super::lid::ANA`].
    pub const ANA_CHANGE: u8 = 0x03;
    /// Notice: the discovery log page changed.
    pub const DISCOVERY_LOG_CHANGED: u8 = 0xf0;
    /// Bit of OAES and of the feature that turns events on: namespace attribute notices.
    pub const NAMESPACE_NOTICES: u32 = 1 << 8;
    /// Bit of OAES and of the feature that turns events on: ANA change notices.
    pub const ANA_NOTICES: u32 = 1 << 11;
    /// Bit of OAES and of the feature that turns events on: discovery log page change notices.
    pub const DISCOVERY_NOTICES: u32 = 1 << 31;
}

/// Most namespaces that [`lid::CHANGED_NAMESPACES`] names.
pub const MAX_CHANGED: usize = 1024;

/// The Changed Namespace List, 5.16.1.5: identifiers in ascending order;
/// where there are more than [`MAX_CHANGED`], FFFFFFFFh alone.
pub fn changed_namespaces(nsids: &[u32]) -> [u8; 4096] {
    let mut list = [0; 4096];
    let all = [u32::MAX];
    let nsids = if nsids.len() > MAX_CHANGED { &all } else { nsids };
    for (to, nsid) in list.chunks_exact_mut(4).zip(nsids) {
        to.copy_from_slice(&nsid.to_le_bytes());
    }
    list
}

layout! {
    /// What the Asymmetric Namespace Access page begins with, 5.16.1.13.
    AnaHeader, 16 {
        /// Goes on with every change.
        chgcnt(set_chgcnt): u64 = 0;
        /// Descriptors of groups behind it.
        ngrps(set_ngrps): u16 = 8;
    }
}

layout! {
    /// A group in that page; the identifiers of its namespaces are behind it, 4 bytes each.
    AnaGroup, 32 {
        /// ANA group.
        agid(set_agid): u32 = 0;
        /// Identifiers behind it.
        nnv(set_nnv): u32 = 4;
        /// Goes on with every change of the group's state.
        chgcnt(set_chgcnt): u64 = 8;
        /// Its state: 1 optimized, 2 non-optimized, 3 inaccessible, 4 persistent loss, Fh change.
        state(set_state): u8 = 16;
    }
}

layout! {
    /// Page D5h ([`crate::opcode::LOG_NEAR_DATA`]):
    /// what near-data work a drive can do, and how much it has done.
    NearDataLog, 312 {
        /// [`NearDataLog::MAGIC`].
        magic(set_magic): [u8; 4] = 0;
        /// 1.
        version(set_version): u16 = 4;
        /// Bytes that say what it can do: 64.
        length(set_length): u16 = 6;
        /// The longest request, in bytes.
        max_request(set_max_request): u32 = 8;
        /// The largest buffer, in bytes.
        max_buffer(set_max_buffer): u32 = 12;
        /// The longest path, in bytes.
        max_path(set_max_path): u32 = 16;
        /// The most groups of a user.
        max_groups(set_max_groups): u32 = 20;
        /// Operations, as bits by their numbers on the wire.
        operations(set_operations): u32 = 24;
        /// Targets, so too.
        targets(set_targets): u32 = 28;
        /// Checksums, so too.
        checksums(set_checksums): u32 = 32;
        /// The commands that near-data work may come by: [`encoding`].
        encodings(set_encodings): u32 = 36;
        /// The longest wait of a `result`, in milliseconds.
        max_wait_ms(set_max_wait_ms): u32 = 40;
        /// Bytes of statistics from byte 64 on: [`NearDataLog::STATISTICS`]; 0 where there is `taken` alone.
        statistics(set_statistics): u32 = 44;
        /// What the named namespace's bytes lie in; 0: it is not said.
        backing(set_backing): u32 = 48;
        /// Near-data commands that the controller has taken.
        taken(set_taken): u64 = 64;
        /// Looks at hosts' writes that the monitor's filter let through.
        suspected(set_suspected): u64 = 72;
        /// Watched blocks that changed.
        invalidated(set_invalidated): u64 = 80;
        /// States of a volume that followed one by what its log had committed.
        published(set_published): u64 = 88;
        /// Scans that a change touched.
        scans_touched(set_scans_touched): u64 = 96;
        /// Files whose metadata was looked at again when they had been read.
        looked_again(set_looked_again): u64 = 104;
        /// Files that were read again, because they had changed.
        repeated(set_repeated): u64 = 112;
        /// Blocks watched now, in units of 4 KiB.
        watched(set_watched): u64 = 120;
        /// Bytes of memory, about, of what logs have committed and home locations have not.
        overlay_bytes(set_overlay_bytes): u64 = 128;
        /// The monitor's looks at writes of what nobody watches that were timed: a sample. A write has two.
        passed_looks(set_passed_looks): u64 = 136;
        /// Nanoseconds of these.
        passed_ns(set_passed_ns): u64 = 144;
        /// Nanoseconds of the longest of these.
        passed_worst_ns(set_passed_worst_ns): u64 = 152;
        /// The same of the other writes: a journal's, a watched block's.
        watched_looks(set_watched_looks): u64 = 160;
        /// Nanoseconds of these.
        watched_ns(set_watched_ns): u64 = 168;
        /// Nanoseconds of the longest of these.
        watched_worst_ns(set_watched_worst_ns): u64 = 176;
        /// Which options each operation takes: 4 bytes of bits for each, by the operation's number.
        options(set_options): [u8; 128] = 184;
    }
}

/// Bits of [`NearDataLog::encodings`].
pub mod encoding {
    /// The bidirectional command; not over fabrics, where a command carries data one way.
    pub const COMMAND: u32 = 1 << 0;
    /// `execute` and `result` of a tag.
    pub const TAG: u32 = 1 << 1;
    /// Get Features D5h.
    pub const GET_FEATURE: u32 = 1 << 2;
    /// Set Features D5h.
    pub const SET_FEATURE: u32 = 1 << 3;
}

impl NearDataLog {
    /// What the page begins with.
    pub const MAGIC: [u8; 4] = *b"NDCP";
    /// Bytes of statistics from byte 64 on.
    pub const STATISTICS: u32 = 120;

    /// The page, if these bytes are one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_bytes(bytes.first_chunk::<{ Self::SIZE }>()?))
            .filter(|page| page.magic() == Self::MAGIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut e = ErrorEntry::default();
        e.set_count(1).set_sqid(2).set_cid(3).set_status(0x4005).set_parameter(0x0128).set_lba(9).set_nsid(1);
        assert_eq!(
            &e.0[..28],
            &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 5, 0x40, 0x28, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
        );
        let mut s = Smart::default();
        s.set_composite_temperature(313).set_host_reads(5);
        assert_eq!((&s.0[1..3], s.0[64]), (&[0x39, 1][..], 5));
        assert_eq!(async_event(event::SMART, 1, lid::SMART), 0x0002_0101);
        assert_eq!(async_event(event::NOTICE, event::NAMESPACE_ATTRIBUTE_CHANGED, 4), 0x0004_0002);
        assert_eq!(changed_namespaces(&[1, 0x0102])[..12], [1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        let mut page = NearDataLog::default();
        page.set_magic(NearDataLog::MAGIC)
            .set_version(1)
            .set_length(64)
            .set_encodings(encoding::TAG)
            .set_backing(4)
            .set_taken(5)
            .set_repeated(6)
            .set_watched_worst_ns(7);
        assert_eq!((&page.0[..8], page.0[36], page.0[64]), (&b"NDCP\x01\0\x40\0"[..], 2, 5));
        assert_eq!((page.0[48], page.0[112], page.0[176]), (4, 6, 7));
        assert_eq!(NearDataLog::of(&page.0), Some(page));
        assert!(NearDataLog::of(&page.0[..311]).is_none() && NearDataLog::of(&[0; 312]).is_none());
        assert_eq!(changed_namespaces(&[7; MAX_CHANGED])[4092..], [7, 0, 0, 0]);
        assert_eq!(changed_namespaces(&[7; MAX_CHANGED + 1])[..8], [255, 255, 255, 255, 0, 0, 0, 0]);
    }
}
