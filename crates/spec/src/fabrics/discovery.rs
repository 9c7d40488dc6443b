//! The Discovery log page, 70h (Base 2.0, 5.16.1.23):
//! a header of 1,024 bytes, then an entry of 1,024 for each way to a subsystem.

use alloc::string::String;

use crate::layout::{layout, text};

use super::nqn;

layout! {
    /// The header, figure 264.
    DiscoveryHeader, 1024 {
        /// GENCTR: changes whenever the page does. Read it before and after the entries.
        genctr(set_genctr): u64 = 0;
        /// NUMREC: entries.
        numrec(set_numrec): u64 = 8;
        /// RECFMT: 0.
        recfmt(set_recfmt): u16 = 16;
    }
}

layout! {
    /// An entry, figure 265.
    DiscoveryEntry, 1024 {
        /// Transport: 3 TCP.
        trtype(set_trtype): u8 = 0;
        /// Address family: 1 IPv4, 2 IPv6.
        adrfam(set_adrfam): u8 = 1;
        /// What it leads to; see [`subtype`].
        subtype(set_subtype): u8 = 2;
        /// Transport requirements: bits 1:0 secure channel (1 required, 2 not required), 2 flow control may
        /// be off.
        treq(set_treq): u8 = 3;
        /// Port of the subsystem.
        portid(set_portid): u16 = 4;
        /// Controller; FFFFh for a dynamic one.
        cntlid(set_cntlid): u16 = 6;
        /// Largest admin submission queue.
        asqsz(set_asqsz): u16 = 8;
        /// Flags.
        eflags(set_eflags): u16 = 10;
        /// Transport service: the port as ASCII, padded.
        trsvcid(set_trsvcid): [u8; 32] = 32;
        /// Subsystem NQN.
        subnqn(set_subnqn): [u8; 256] = 256;
        /// Transport address, ASCII, padded.
        traddr(set_traddr): [u8; 256] = 512;
        /// TSAS of TCP, byte 0: 0 no security, 1 TLS 1.2, 2 TLS 1.3.
        sectype(set_sectype): u8 = 768;
    }
}

/// TREQ: a secure channel is required.
pub const SECURE_CHANNEL_REQUIRED: u8 = 1;
/// SECTYPE: TLS 1.3.
pub const TLS_1_3: u8 = 2;
/// TRTYPE of TCP.
pub const TCP: u8 = 3;
/// The log page's identifier.
pub const LID: u8 = 0x70;

/// Values of ADRFAM.
pub mod family {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
}

/// Values of SUBTYPE.
pub mod subtype {
    /// Another discovery subsystem.
    pub const REFERRAL: u8 = 1;
    /// An NVM subsystem with I/O controllers.
    pub const NVM: u8 = 2;
    /// The discovery subsystem that answers.
    pub const CURRENT: u8 = 3;
}

impl DiscoveryEntry {
    /// A TCP way to a subsystem: `address` in text, without brackets.
    pub fn tcp(subtype: u8, subnqn: &str, ipv6: bool, address: &str, port: &str) -> DiscoveryEntry {
        let mut entry = DiscoveryEntry::default();
        entry
            .set_trtype(TCP)
            .set_adrfam(if ipv6 { family::IPV6 } else { family::IPV4 })
            .set_subtype(subtype)
            .set_treq(2)
            .set_cntlid(super::command::ANY_CONTROLLER)
            .set_asqsz(128)
            .set_trsvcid(crate::layout::ascii(port))
            .set_subnqn(nqn::to_field(subnqn))
            .set_traddr(crate::layout::ascii(address));
        entry
    }

    /// The address as text.
    pub fn address(&self) -> String {
        text(&self.traddr())
    }

    /// The port as text.
    pub fn port(&self) -> String {
        text(&self.trsvcid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut header = DiscoveryHeader::default();
        header.set_genctr(0x0102).set_numrec(2);
        assert_eq!(header.0[..18], [2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut entry =
            DiscoveryEntry::tcp(subtype::NVM, "nqn.2014-08.org.example:s", false, "127.0.0.1", "4420");
        entry.set_portid(1);
        assert_eq!(entry.0[..12], [3, 1, 2, 2, 1, 0, 0xff, 0xff, 128, 0, 0, 0]);
        assert_eq!(&entry.0[32..38], b"4420  ");
        assert_eq!(&entry.0[256..282], b"nqn.2014-08.org.example:s\0");
        assert_eq!(&entry.0[512..523], b"127.0.0.1  ");
        assert_eq!((entry.address().as_str(), entry.port().as_str()), ("127.0.0.1", "4420"));
    }
}
