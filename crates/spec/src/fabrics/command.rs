//! Fabrics commands (Base 2.0, chapter 6): opcode 7Fh on every queue; which one it is stands in FCTYPE.

use crate::layout::layout;
use crate::{SubmissionEntry, opcode};

use super::nqn;

/// Values of FCTYPE.
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// CNTLID of Connect data where any controller will do.
pub const ANY_CONTROLLER: u16 = 0xffff;

/// Connect (figures 384 and 385), without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// RECFMT: 0.
    pub recfmt: u16,
    /// QID: 0 the admin queue.
    pub qid: u16,
    /// SQSIZE: entries, zero-based.
    pub sqsize_z: u16,
    /// CATTR: bits 1:0 priority, 2 no submission queue flow control, 3 individual queue deletion.
    pub cattr: u8,
    /// KATO in milliseconds; 0 no keep alive. On the admin queue only.
    pub kato: u32,
}

/// CATTR bit 2: no flow control by SQHD.
pub const CATTR_NO_FLOW: u8 = 1 << 2;

/// A property command's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// OFST: the register's offset.
    pub offset: u32,
    /// ATTRIB bits 2:0, its size: 0 is 4 bytes, 1 is 8, others are reserved.
    pub attrib: u8,
    /// Its new value (Property Set).
    pub value: u64,
}

/// What an Authentication Send or Receive is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// SECP: security protocol.
    pub secp: u8,
    /// SPSP1 and SPSP0.
    pub spsp: u16,
    /// TL or AL: bytes of the message, or of the room for one.
    pub len: u32,
}

impl Security {
    /// A message of [`super::authentication`].
    pub const fn message(len: u32) -> Security {
        Security { secp: 0xe9, spsp: 0x0101, len }
    }

    const fn dword(self) -> u32 {
        (self.spsp as u32) << 8 | (self.secp as u32) << 24
    }
}

/// A Fabrics command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Makes a queue of a new or known controller.
    Connect(Connect),
    /// Reads a controller property; the value is in DW0 and DW1 of the completion.
    PropertyGet(Property),
    /// Writes one.
    PropertySet(Property),
    /// Authentication Send: a message of the host's is in the data.
    AuthenticationSend(Security),
    /// Authentication Receive: one of the controller's is asked for.
    AuthenticationReceive(Security),
    /// Ends an I/O queue. RECFMT: 0.
    Disconnect {
        /// Record format.
        recfmt: u16,
    },
    /// Another one, by its FCTYPE.
    Unknown(u8),
}

/// FCTYPE of an entry with opcode 7Fh.
pub const fn fctype_of(entry: &SubmissionEntry) -> u8 {
    entry.cdw[1] as u8
}

impl FabricsCommand {
    /// What an entry says; `None` where it is no Fabrics command.
    pub fn decode(entry: &SubmissionEntry) -> Option<FabricsCommand> {
        if entry.opcode() != opcode::FABRICS {
            return None;
        }
        let property =
            Property { attrib: entry.cdw[10] as u8 & 7, offset: entry.cdw[11], value: entry.quad(12) };
        let security = Security {
            secp: (entry.cdw[10] >> 24) as u8,
            spsp: (entry.cdw[10] >> 8) as u16,
            len: entry.cdw[11],
        };
        Some(match fctype_of(entry) {
            fctype::CONNECT => FabricsCommand::Connect(Connect {
                recfmt: entry.cdw[10] as u16,
                qid: (entry.cdw[10] >> 16) as u16,
                sqsize_z: entry.cdw[11] as u16,
                cattr: (entry.cdw[11] >> 16) as u8,
                kato: entry.cdw[12],
            }),
            fctype::PROPERTY_GET => FabricsCommand::PropertyGet(Property { value: 0, ..property }),
            fctype::PROPERTY_SET => FabricsCommand::PropertySet(property),
            fctype::AUTHENTICATION_SEND => FabricsCommand::AuthenticationSend(security),
            fctype::AUTHENTICATION_RECEIVE => FabricsCommand::AuthenticationReceive(security),
            fctype::DISCONNECT => FabricsCommand::Disconnect { recfmt: entry.cdw[10] as u16 },
            other => FabricsCommand::Unknown(other),
        })
    }

    /// The entry; CID, PSDT and SGL1 are still to be set.
    pub fn encode(self) -> SubmissionEntry {
        let (kind, cdw10, cdw11, quad) = match self {
            FabricsCommand::Connect(c) => (
                fctype::CONNECT,
                u32::from(c.recfmt) | u32::from(c.qid) << 16,
                u32::from(c.sqsize_z) | u32::from(c.cattr) << 16,
                u64::from(c.kato),
            ),
            FabricsCommand::PropertyGet(p) => (fctype::PROPERTY_GET, u32::from(p.attrib), p.offset, 0),
            FabricsCommand::PropertySet(p) => (fctype::PROPERTY_SET, u32::from(p.attrib), p.offset, p.value),
            FabricsCommand::AuthenticationSend(s) => (fctype::AUTHENTICATION_SEND, s.dword(), s.len, 0),
            FabricsCommand::AuthenticationReceive(s) => (fctype::AUTHENTICATION_RECEIVE, s.dword(), s.len, 0),
            FabricsCommand::Disconnect { recfmt } => (fctype::DISCONNECT, u32::from(recfmt), 0, 0),
            FabricsCommand::Unknown(other) => (other, 0, 0, 0),
        };
        let mut entry = SubmissionEntry::new(opcode::FABRICS, 0, u32::from(kind));
        entry.cdw[10] = cdw10;
        entry.cdw[11] = cdw11;
        entry.set_quad(12, quad);
        entry
    }
}

/// Byte offsets in a Connect entry and in its data, for [`super::status::INVALID_PARAMETERS`].
pub mod at {
    /// QID.
    pub const QID: u16 = 42;
    /// SQSIZE.
    pub const SQSIZE: u16 = 44;
    /// HOSTID, in the data.
    pub const HOSTID: u16 = 0;
    /// CNTLID, in the data.
    pub const CNTLID: u16 = 16;
    /// SUBNQN, in the data.
    pub const SUBNQN: u16 = 256;
    /// HOSTNQN, in the data.
    pub const HOSTNQN: u16 = 512;
}

layout! {
    /// Connect's data (figure 386).
    ConnectData, 1024 {
        /// Host identifier.
        hostid(set_hostid): [u8; 16] = 0;
        /// Controller: [`ANY_CONTROLLER`] on the admin queue of a dynamic controller;
        /// on I/O queues, that which the admin queue got.
        cntlid(set_cntlid): u16 = 16;
        /// Subsystem NQN, as a field of [`nqn`].
        subnqn(set_subnqn): [u8; 256] = 256;
        /// Host NQN.
        hostnqn(set_hostnqn): [u8; 256] = 512;
    }
}

impl ConnectData {
    /// From a host to a subsystem.
    pub fn new(hostid: [u8; 16], hostnqn: &str, subnqn: &str, cntlid: u16) -> ConnectData {
        let mut data = ConnectData::default();
        data.set_hostid(hostid).set_cntlid(cntlid);
        data.set_subnqn(nqn::to_field(subnqn)).set_hostnqn(nqn::to_field(hostnqn));
        data
    }
}

/// Bit of DW0 of Connect's completion (AUTHREQ, ATR): the host has to authenticate itself.
pub const AUTHENTICATION_REQUIRED: u32 = 1 << 17;

/// DW0 of Connect's completion: the controller, and what it asks for
/// (AUTHREQ, bits 17 and 18) before commands are taken.
pub const fn connected(dw0: u32) -> (u16, u32) {
    (dw0 as u16, dw0 & 3 << 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(entry: &SubmissionEntry) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(entry.cdw.iter().flat_map(|d| d.to_le_bytes())) {
            *to = from;
        }
        bytes
    }

    /// Offsets as figures 384, 389, 390 and 392 have them.
    #[test]
    fn golden() {
        let connect = Connect { recfmt: 0, qid: 3, sqsize_z: 127, cattr: CATTR_NO_FLOW, kato: 15_000 };
        let entry = bytes(&FabricsCommand::Connect(connect).encode());
        assert_eq!((entry[0], entry[4]), (0x7f, 1));
        assert_eq!(entry[40..52], [0, 0, 3, 0, 127, 0, 4, 0, 0x98, 0x3a, 0, 0]);
        let set = Property { attrib: 0, offset: 0x14, value: 0x0046_0001 };
        let entry = bytes(&FabricsCommand::PropertySet(set).encode());
        assert_eq!((entry[0], entry[4]), (0x7f, 0));
        assert_eq!(entry[40..56], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0]);
        let get = Property { attrib: 1, offset: 0, value: 0 };
        let entry = bytes(&FabricsCommand::PropertyGet(get).encode());
        assert_eq!((entry[4], entry[40]), (4, 1));
        assert_eq!(bytes(&FabricsCommand::Disconnect { recfmt: 0 }.encode())[4], 8);
        for command in [
            FabricsCommand::Connect(connect),
            FabricsCommand::PropertySet(set),
            FabricsCommand::PropertyGet(get),
            FabricsCommand::AuthenticationSend(Security::message(72)),
            FabricsCommand::AuthenticationReceive(Security { secp: 1, spsp: 0x0203, len: 4096 }),
            FabricsCommand::Disconnect { recfmt: 0 },
            FabricsCommand::Unknown(7),
        ] {
            assert_eq!(FabricsCommand::decode(&command.encode()), Some(command));
        }
        assert_eq!(FabricsCommand::decode(&SubmissionEntry::new(2, 0, 1)), None);
        assert_eq!(connected(0x0000_0005), (5, 0));
        assert_eq!(connected(0x0002_0005), (5, AUTHENTICATION_REQUIRED));
        let entry = bytes(&FabricsCommand::AuthenticationSend(Security::message(72)).encode());
        assert_eq!((entry[4], &entry[40..48]), (5, &[0, 1, 1, 0xe9, 72, 0, 0, 0][..]));
    }

    #[test]
    fn connect_data() {
        let data = ConnectData::new(
            [9; 16],
            "nqn.2014-08.org.example:h",
            "nqn.2014-08.org.example:s",
            ANY_CONTROLLER,
        );
        assert_eq!(data.0[..18], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0xff, 0xff]);
        assert_eq!(&data.0[256..282], b"nqn.2014-08.org.example:s\0");
        assert_eq!(&data.0[512..538], b"nqn.2014-08.org.example:h\0");
    }
}
