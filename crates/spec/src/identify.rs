//! Identify data structures (Base 2.0, 5.17.2; NVM Command Set 1.0, 4.1.5).

use crate::layout::{Wire, layout};

/// Values of CNS.
pub mod cns {
    /// Identify Namespace, of the NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace identifiers above NSID.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// A namespace, specific to a command set.
    pub const NAMESPACE_COMMAND_SET: u8 = 0x05;
    /// The controller, specific to a command set.
    pub const CONTROLLER_COMMAND_SET: u8 = 0x06;
    /// Active namespace identifiers of a command set.
    pub const ACTIVE_NAMESPACES_COMMAND_SET: u8 = 0x07;
    /// A namespace, independent of its command set.
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
    /// Command sets that the controller can have enabled together.
    pub const COMMAND_SETS: u8 = 0x1c;
}

layout! {
    /// Identify Controller (CNS 01h), figure 275.
    IdentifyController, 4096 {
        /// PCI vendor.
        vid(set_vid): u16 = 0;
        /// PCI subsystem vendor.
        ssvid(set_ssvid): u16 = 2;
        /// Serial number, ASCII.
        sn(set_sn): [u8; 20] = 4;
        /// Model, ASCII.
        mn(set_mn): [u8; 40] = 24;
        /// Firmware revision, ASCII.
        fr(set_fr): [u8; 8] = 64;
        /// Recommended arbitration burst, log2.
        rab(set_rab): u8 = 72;
        /// IEEE OUI.
        ieee(set_ieee): [u8; 3] = 73;
        /// Multi-path and sharing.
        cmic(set_cmic): u8 = 76;
        /// Largest transfer: pages, log2; 0 none.
        mdts(set_mdts): u8 = 77;
        /// Controller identifier.
        cntlid(set_cntlid): u16 = 78;
        /// Version.
        ver(set_ver): u32 = 80;
        /// RTD3 resume latency, µs.
        rtd3r(set_rtd3r): u32 = 84;
        /// RTD3 entry latency, µs.
        rtd3e(set_rtd3e): u32 = 88;
        /// Optional asynchronous events.
        oaes(set_oaes): u32 = 92;
        /// Controller attributes.
        ctratt(set_ctratt): u32 = 96;
        /// Controller type: 1 an I/O controller.
        cntrltype(set_cntrltype): u8 = 111;
        /// FRU GUID.
        fguid(set_fguid): [u8; 16] = 112;
        /// Optional admin commands.
        oacs(set_oacs): u16 = 256;
        /// Abort limit, zero-based.
        acl_z(set_acl_z): u8 = 258;
        /// Asynchronous event request limit, zero-based.
        aerl_z(set_aerl_z): u8 = 259;
        /// Firmware updates.
        frmw(set_frmw): u8 = 260;
        /// Log page attributes.
        lpa(set_lpa): u8 = 261;
        /// Error log entries, zero-based.
        elpe_z(set_elpe_z): u8 = 262;
        /// Power states, zero-based.
        npss_z(set_npss_z): u8 = 263;
        /// Vendor admin commands have the standard form.
        avscc(set_avscc): u8 = 264;
        /// Warning temperature, kelvins.
        wctemp(set_wctemp): u16 = 266;
        /// Critical temperature, kelvins.
        cctemp(set_cctemp): u16 = 268;
        /// Capacity in bytes.
        tnvmcap(set_tnvmcap): u128 = 280;
        /// Unallocated capacity in bytes.
        unvmcap(set_unvmcap): u128 = 296;
        /// Keep alive granularity, 100 ms.
        kas(set_kas): u16 = 320;
        /// ANA transition time at most, seconds.
        anatt(set_anatt): u8 = 342;
        /// ANA capabilities: bits 4:0 the states that are reported, 6 a namespace stays in its group, 7
        /// Namespace Management takes groups.
        anacap(set_anacap): u8 = 343;
        /// The largest ANA group.
        anagrpmax(set_anagrpmax): u32 = 344;
        /// ANA groups.
        nanagrpid(set_nanagrpid): u32 = 348;
        /// Submission entry size: required in bits 3:0, largest in 7:4, log2.
        sqes(set_sqes): u8 = 512;
        /// Completion entry size.
        cqes(set_cqes): u8 = 513;
        /// Largest number of commands outstanding on one queue.
        maxcmd(set_maxcmd): u16 = 514;
        /// Number of namespaces (the largest NSID).
        nn(set_nn): u32 = 516;
        /// Optional NVM commands.
        oncs(set_oncs): u16 = 520;
        /// Fused operations.
        fuses(set_fuses): u16 = 522;
        /// Format NVM attributes.
        fna(set_fna): u8 = 524;
        /// Volatile write cache.
        vwc(set_vwc): u8 = 525;
        /// Atomic write unit, normal, zero-based blocks.
        awun_z(set_awun_z): u16 = 526;
        /// Atomic write unit, power fail, zero-based blocks.
        awupf_z(set_awupf_z): u16 = 528;
        /// Vendor I/O commands have the standard form.
        icsvscc(set_icsvscc): u8 = 530;
        /// Namespace write protection.
        nwpc(set_nwpc): u8 = 531;
        /// Atomic compare and write unit, zero-based.
        acwu_z(set_acwu_z): u16 = 532;
        /// SGL support.
        sgls(set_sgls): u32 = 536;
        /// Largest number of allowed namespaces.
        mnan(set_mnan): u32 = 540;
        /// Subsystem NQN, UTF-8, NUL-terminated.
        subnqn(set_subnqn): [u8; 256] = 768;
        /// I/O queue command capsule size, 16 bytes (fabrics).
        ioccsz(set_ioccsz): u32 = 1792;
        /// I/O queue response capsule size, 16 bytes (fabrics).
        iorcsz(set_iorcsz): u32 = 1796;
        /// In-capsule data offset, 16 bytes (fabrics).
        icdoff(set_icdoff): u16 = 1800;
        /// Fabrics controller attributes.
        fcatt(set_fcatt): u8 = 1802;
        /// SGL data block descriptors in a capsule (fabrics).
        msdbd(set_msdbd): u8 = 1803;
        /// Optional fabrics commands.
        ofcs(set_ofcs): u16 = 1804;
        /// Power state 0: most power, in centiwatts.
        psd0_mp(set_psd0_mp): u16 = 2048;
    }
}

layout! {
    /// Identify Namespace of the NVM command set (CNS 00h), NVM Command Set 1.0, figure 97.
    IdentifyNamespace, 4096 {
        /// Size in blocks.
        nsze(set_nsze): u64 = 0;
        /// Capacity in blocks.
        ncap(set_ncap): u64 = 8;
        /// Use in blocks.
        nuse(set_nuse): u64 = 16;
        /// Features: bit 0 thin provisioning, 2 deallocated-block error, 4 optimal sizes.
        nsfeat(set_nsfeat): u8 = 24;
        /// Formats, zero-based.
        nlbaf_z(set_nlbaf_z): u8 = 25;
        /// The format in use.
        flbas(set_flbas): u8 = 26;
        /// Metadata capabilities.
        mc(set_mc): u8 = 27;
        /// Protection capabilities.
        dpc(set_dpc): u8 = 28;
        /// Protection settings.
        dps(set_dps): u8 = 29;
        /// Sharing.
        nmic(set_nmic): u8 = 30;
        /// Reservations: [`crate::reservation::capability`].
        rescap(set_rescap): u8 = 31;
        /// What a deallocated block reads as: bits 2:0 001b zeros; bit 3 write zeroes may deallocate.
        dlfeat(set_dlfeat): u8 = 33;
        /// Atomic write unit, normal, zero-based.
        nawun_z(set_nawun_z): u16 = 34;
        /// Atomic write unit, power fail, zero-based.
        nawupf_z(set_nawupf_z): u16 = 36;
        /// Capacity in bytes.
        nvmcap(set_nvmcap): u128 = 48;
        /// Preferred write granularity, zero-based blocks.
        npwg_z(set_npwg_z): u16 = 64;
        /// Preferred write alignment, zero-based.
        npwa_z(set_npwa_z): u16 = 66;
        /// Preferred deallocate granularity, zero-based.
        npdg_z(set_npdg_z): u16 = 68;
        /// Preferred deallocate alignment, zero-based.
        npda_z(set_npda_z): u16 = 70;
        /// Optimal write size, zero-based.
        nows_z(set_nows_z): u16 = 72;
        /// ANA group.
        anagrpid(set_anagrpid): u32 = 92;
        /// Attributes: bit 0 write-protected.
        nsattr(set_nsattr): u8 = 99;
        /// Globally unique identifier.
        nguid(set_nguid): [u8; 16] = 104;
        /// IEEE EUI-64.
        eui64(set_eui64): [u8; 8] = 120;
    }
}

layout! {
    /// A format of a namespace's blocks (NVM Command Set 1.0, figure 98).
    LbaFormat, 4 {
        /// Metadata bytes of a block.
        ms(set_ms): u16 = 0;
        /// log2 of a block's data bytes.
        lbads(set_lbads): u8 = 2;
        /// Relative performance: 0 best.
        rp(set_rp): u8 = 3;
    }
}

impl IdentifyNamespace {
    /// Where the formats begin; there are 64.
    const LBAF: usize = 128;

    fn lbaf_at(index: u8) -> usize {
        Self::LBAF + LbaFormat::SIZE * usize::from(index & 63)
    }

    /// A format, by its number.
    pub fn lbaf(&self, index: u8) -> LbaFormat {
        LbaFormat::from_bytes(self.0.get(Self::lbaf_at(index)..).unwrap_or(&[]))
    }

    /// Sets a format.
    pub fn set_lbaf(&mut self, index: u8, format: LbaFormat) -> &mut Self {
        format.0.store(self.0.get_mut(Self::lbaf_at(index)..).unwrap_or(&mut []));
        self
    }

    /// The format in use, of the first sixteen.
    pub fn format(&self) -> LbaFormat {
        self.lbaf(self.flbas() & 0xf)
    }

    /// Makes format 0 blocks of that many bytes (their log2) without metadata.
    pub fn set_block_shift(&mut self, shift: u8) -> &mut Self {
        let mut format = LbaFormat::default();
        format.set_lbads(shift);
        self.set_lbaf(0, format)
    }
}

layout! {
    /// Identify Namespace, independent of its command set (CNS 08h), figure 280.
    IdentifyNamespaceIndependent, 4096 {
        /// Features.
        nsfeat(set_nsfeat): u8 = 0;
        /// Sharing.
        nmic(set_nmic): u8 = 1;
        /// Reservations.
        rescap(set_rescap): u8 = 2;
        /// Format progress.
        fpi(set_fpi): u8 = 3;
        /// ANA group.
        anagrpid(set_anagrpid): u32 = 4;
        /// Attributes: bit 0 write-protected.
        nsattr(set_nsattr): u8 = 8;
        /// Status: bit 0 ready.
        nstat(set_nstat): u8 = 14;
    }
}

layout! {
    /// Identify Controller of the NVM command set (CNS 06h, CSI 00h), NVM Command Set 1.0, figure 101.
    IdentifyControllerNvm, 4096 {
        /// Verify size limit.
        vsl(set_vsl): u8 = 0;
        /// Write zeroes size limit: pages, log2; 0 none.
        wzsl(set_wzsl): u8 = 1;
        /// Write uncorrectable size limit.
        wusl(set_wusl): u8 = 2;
        /// Dataset management: most ranges; 0 none said.
        dmrl(set_dmrl): u8 = 3;
        /// Most blocks in a range.
        dmrsl(set_dmrsl): u32 = 4;
        /// Most blocks in all ranges.
        dmsl(set_dmsl): u64 = 8;
    }
}

/// Command set identifiers (Base 2.1, figure 311).
pub mod csi {
    /// NVM: logical blocks.
    pub const NVM: u8 = 0;
    /// Subsystem Local Memory.
    pub const MEMORY: u8 = 3;
    /// Computational Programs.
    pub const COMPUTE: u8 = 4;
}

layout! {
    /// Identify Namespace of a memory namespace (CNS 05h, CSI 03h).
    IdentifyMemory, 4096 {
        /// Bytes.
        size(set_size): u64 = 0;
    }
}

layout! {
    /// Identify Namespace of a compute namespace (CNS 05h, CSI 04h).
    IdentifyCompute, 4096 {
        /// Programs that may be activated.
        maxact(set_maxact): u16 = 0;
        /// Sets of memory ranges.
        maxmemrs(set_maxmemrs): u16 = 2;
        /// Granularity of memory ranges: bytes, log2.
        mrsg(set_mrsg): u16 = 4;
        /// Ranges of a set.
        maxmemr(set_maxmemr): u8 = 6;
        /// MiB of all programs that were loaded.
        maxpb(set_maxpb): u64 = 8;
        /// Granularity of loading: bytes, log2.
        lpg(set_lpg): u8 = 16;
    }
}

/// Namespace identifier types of [`cns::NAMESPACE_DESCRIPTORS`], figure 277.
pub mod nidt {
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command set identifier, 1 byte.
    pub const CSI: u8 = 4;
}

/// The descriptor list of one namespace: UUID, NGUID where it is set, and the command set ([`csi`]).
pub fn namespace_descriptors(uuid: &[u8; 16], nguid: &[u8; 16], csi: u8) -> [u8; 4096] {
    let mut list = [0; 4096];
    let mut rest = list.iter_mut();
    let mut put = |kind: u8, id: &[u8]| {
        if id.iter().all(|&b| b == 0) && kind != nidt::CSI {
            return;
        }
        let len = u8::try_from(id.len()).unwrap_or(0);
        let header = [kind, len, 0, 0];
        for (byte, to) in header.iter().chain(id).zip(&mut rest) {
            *to = *byte;
        }
    };
    put(nidt::UUID, uuid);
    put(nidt::NGUID, nguid);
    put(nidt::CSI, &[csi]);
    list
}

/// The descriptors of such a list, in order: type ([`nidt`]) and identifier. A list that breaks off ends
/// there.
pub fn namespace_identifiers(mut list: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    core::iter::from_fn(move || {
        let (&[kind, len, _, _], rest) = list.split_first_chunk()?;
        let (id, rest) = rest.split_at_checked(usize::from(len))?;
        list = rest;
        (kind != 0 && len != 0).then_some((kind, id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_golden() {
        let mut id = IdentifyController::default();
        id.set_vid(0x1d1d).set_mdts(8).set_nn(1).set_sqes(0x66).set_subnqn([b'n'; 256]).set_sgls(0x0001_0001);
        assert_eq!(&id.0[..2], &[0x1d, 0x1d]);
        assert_eq!(id.0[77], 8);
        assert_eq!(&id.0[512..520], &[0x66, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(&id.0[536..540], &[1, 0, 1, 0]);
        assert_eq!((id.0[767], id.0[768], id.0[1023], id.0[1024]), (0, b'n', b'n', 0));
        assert_eq!(IdentifyController::from_bytes(&id.0), id);
    }

    #[test]
    fn namespace_golden() {
        let mut id = IdentifyNamespace::default();
        id.set_nsze(0x1122_3344_5566).set_block_shift(12).set_nguid([7; 16]);
        let mut format = LbaFormat::default();
        format.set_ms(0x0108).set_lbads(9).set_rp(2);
        id.set_lbaf(3, format).set_flbas(3);
        assert_eq!((id.format(), id.lbaf(0).lbads()), (format, 12));
        assert_eq!(&id.0[140..144], &[8, 1, 9, 2]);
        assert_eq!(&id.0[..8], &[0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0]);
        assert_eq!(&id.0[128..132], &[0, 0, 12, 0]);
        assert_eq!(&id.0[103..121], &[0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    }

    #[test]
    fn descriptors_golden() {
        let list = namespace_descriptors(&[1; 16], &[0; 16], csi::NVM);
        assert_eq!(&list[..4], &[3, 16, 0, 0]);
        assert_eq!(&list[4..20], &[1; 16]);
        assert_eq!(&list[20..26], &[4, 1, 0, 0, 0, 0]);
        let list = namespace_descriptors(&[1; 16], &[2; 16], csi::NVM);
        let all: [(u8, &[u8]); 3] = [(nidt::UUID, &[1; 16]), (nidt::NGUID, &[2; 16]), (nidt::CSI, &[0])];
        assert!(namespace_identifiers(&list).eq(all));
        assert_eq!(namespace_identifiers(&list[..30]).count(), 1);
        assert_eq!(namespace_identifiers(&[]).count(), 0);
        assert_eq!(&list[20..25], &[2, 16, 0, 0, 2]);
        assert_eq!(&list[40..46], &[4, 1, 0, 0, 0, 0]);
    }
}
