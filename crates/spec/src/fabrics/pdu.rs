//! PDUs of NVMe/TCP (TCP Transport 1.0, 3.6): what stands between two capsules on a connection.
//!
//! ```text
//! common header, 8 bytes    the type's own header     HDGST     padding      data     DDGST
//! 0 type  1 flags           up to HLEN                4 bytes   up to PDO    ...      4 bytes
//! 2 HLEN  3 PDO  4 PLEN u32                                                           up to PLEN
//! ```
//!
//! A receiver reads [`HEAD`] bytes, [`Head::decode`]s them, reads on up to [`Head::header_len`], decodes
//! the [`Pdu`], and then knows where its data are ([`Head::data`]). All lengths are checked against each
//! other and against what both sides agreed on ([`Terms`]); an error is the [`Fatal`] that the
//! termination request carries back. The digests are CRC-32C, little-endian, HDGST over HLEN bytes and
//! DDGST over the data; they are the reader's to compute.

use crate::{CompletionEntry, SubmissionEntry};

mod terminate;

pub use terminate::{Fatal, FatalStatus, MAX_TERMINATE, TerminateRequest};

/// Bytes of the common header.
pub const HEAD: usize = 8;
/// Bytes of either digest.
pub const DIGEST: usize = 4;
/// Least value of MAXH2CDATA.
pub const MIN_H2C_DATA: u32 = 4096;

/// FLAGS bit 0: a header digest follows the header.
pub const HDGSTF: u8 = 1;
/// FLAGS bit 1: a data digest follows the data.
pub const DDGSTF: u8 = 1 << 1;
/// FLAGS bit 2 of data PDUs: the last of the command (C2HData) or of the R2T (H2CData).
pub const LAST: u8 = 1 << 2;
/// FLAGS bit 3 of C2HData: no response capsule will come; the command succeeded, and its DW0 and DW1 are 0.
pub const SUCCESS: u8 = 1 << 3;

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host.
    Host,
    /// The controller.
    Controller,
}

/// PDU types (figure 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PduType {
    /// ICReq.
    InitializeRequest = 0x00,
    /// ICResp.
    InitializeResponse = 0x01,
    /// H2CTermReq.
    HostTerminate = 0x02,
    /// C2HTermReq.
    ControllerTerminate = 0x03,
    /// CapsuleCmd.
    Command = 0x04,
    /// CapsuleResp.
    Response = 0x05,
    /// H2CData.
    HostData = 0x06,
    /// C2HData.
    ControllerData = 0x07,
    /// R2T.
    ReadyToTransfer = 0x09,
}

impl PduType {
    /// All of them.
    pub const ALL: [PduType; 9] = [
        PduType::InitializeRequest,
        PduType::InitializeResponse,
        PduType::HostTerminate,
        PduType::ControllerTerminate,
        PduType::Command,
        PduType::Response,
        PduType::HostData,
        PduType::ControllerData,
        PduType::ReadyToTransfer,
    ];

    /// From the field.
    pub fn from_field(value: u8) -> Option<PduType> {
        PduType::ALL.into_iter().find(|kind| kind.to_field() == value)
    }

    /// The field.
    pub const fn to_field(self) -> u8 {
        self as u8
    }

    /// HLEN: each type has one.
    pub const fn hlen(self) -> u8 {
        match self {
            PduType::InitializeRequest | PduType::InitializeResponse => 128,
            PduType::Command => 72,
            _ => 24,
        }
    }

    /// Who receives it.
    pub const fn to(self) -> Side {
        match self {
            PduType::InitializeRequest | PduType::HostTerminate | PduType::Command | PduType::HostData => {
                Side::Controller
            }
            _ => Side::Host,
        }
    }

    /// Whether digests may stand in it.
    const fn has_digests(self) -> bool {
        !matches!(
            self,
            PduType::InitializeRequest
                | PduType::InitializeResponse
                | PduType::HostTerminate
                | PduType::ControllerTerminate
        )
    }

    /// Whether data may follow its header.
    const fn has_data(self) -> bool {
        matches!(self, PduType::Command | PduType::HostData | PduType::ControllerData)
    }
}

/// What both sides agreed on for the PDUs of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Header digests.
    pub header_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// The receiver's HPDA or CPDA: data begin at a multiple of that many dwords, zero-based (0 to 31).
    pub alignment_z: u8,
}

impl Terms {
    /// Bytes that the data's place must be a multiple of.
    const fn alignment(&self) -> u16 {
        (self.alignment_z as u16 & 31) * 4 + 4
    }

    /// PDO of data behind a header of `hlen` bytes (at most 72).
    pub const fn data_offset(&self, hlen: u8) -> u8 {
        let end = hlen as u16 + if self.header_digest { DIGEST as u16 } else { 0 };
        end.next_multiple_of(self.alignment()) as u8
    }
}

const _: () = assert!(
    Terms { header_digest: true, data_digest: true, alignment_z: 31 }.data_offset(72) == 128
        && Terms { header_digest: true, data_digest: true, alignment_z: 18 }.data_offset(72) == 76
        && Terms { header_digest: true, data_digest: true, alignment_z: 17 }.data_offset(72) == 144
);

/// Where a PDU's data are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the PDU's beginning.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Whether DDGST follows them.
    pub digest: bool,
}

/// A PDU's common header, checked for its type and the terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The type.
    pub kind: PduType,
    /// FLAGS.
    pub flags: u8,
    /// PDO; without meaning where there are no data.
    pub pdo: u8,
    /// PLEN.
    pub plen: u32,
}

impl Head {
    /// From a PDU's first bytes, as `to` receives them. Before the connection is initialised, the terms are
    /// the default ones. A type that only the other side may receive is a sequence error.
    ///
    /// # Errors
    /// [`Fatal`]: with what the connection is to be terminated.
    pub fn decode(bytes: &[u8; HEAD], to: Side, terms: &Terms) -> Result<Head, Fatal> {
        let [kind, flags, hlen, pdo, p0, p1, p2, p3] = *bytes;
        let kind = PduType::from_field(kind).ok_or(Fatal::field(0))?;
        if kind.to() != to {
            return Err(Fatal::SEQUENCE);
        }
        if hlen != kind.hlen() {
            return Err(Fatal::field(2));
        }
        let head = Head { kind, flags, pdo, plen: u32::from_le_bytes([p0, p1, p2, p3]) };
        let digest = |agreed: bool| kind.has_digests() && agreed;
        if (flags & HDGSTF != 0) != digest(terms.header_digest) {
            return Err(Fatal::field(1));
        }
        let ends = head.header_len() as u32;
        if head.plen < ends {
            return Err(Fatal::field(4));
        }
        if matches!(kind, PduType::HostTerminate | PduType::ControllerTerminate) {
            if head.plen as usize > MAX_TERMINATE {
                return Err(Fatal::field(4));
            }
        } else if kind.has_data() && head.plen > ends {
            if (flags & DDGSTF != 0) != terms.data_digest {
                return Err(Fatal::field(1));
            }
            if u32::from(pdo) < ends || !u16::from(pdo).is_multiple_of(terms.alignment()) {
                return Err(Fatal::field(3));
            }
            let trailer = if terms.data_digest { DIGEST as u32 } else { 0 };
            if head.plen < u32::from(pdo).saturating_add(trailer) {
                return Err(Fatal::field(4));
            }
        } else if head.plen != ends {
            return Err(Fatal::field(4));
        }
        Ok(head)
    }

    /// Bytes of the header with its digest: where padding or data begin.
    pub const fn header_len(&self) -> usize {
        self.kind.hlen() as usize
            + if self.flags & HDGSTF != 0 && self.kind.has_digests() { DIGEST } else { 0 }
    }

    /// Where its data are; of a termination request, the copied header.
    pub const fn data(&self) -> Span {
        let ends = self.header_len() as u32;
        match self.kind {
            PduType::HostTerminate | PduType::ControllerTerminate => {
                Span { offset: ends, len: self.plen.saturating_sub(ends), digest: false }
            }
            _ if self.kind.has_data() && self.plen > ends => {
                let digest = self.flags & DDGSTF != 0;
                let trailer = if digest { DIGEST as u32 } else { 0 };
                let offset = self.pdo as u32;
                Span { offset, len: self.plen.saturating_sub(offset).saturating_sub(trailer), digest }
            }
            _ => Span { offset: self.plen, len: 0, digest: false },
        }
    }

    /// The header that stands before data of `len` bytes (none: no data).
    const fn new(kind: PduType, flags: u8, len: u32, terms: &Terms) -> Head {
        let header_digest = terms.header_digest && kind.has_digests();
        let ends = kind.hlen() as u32 + if header_digest { DIGEST as u32 } else { 0 };
        let mut head =
            Head { kind, flags: flags | if header_digest { HDGSTF } else { 0 }, pdo: 0, plen: ends };
        if len > 0 && kind.has_data() {
            head.pdo = terms.data_offset(kind.hlen());
            head.plen = (head.pdo as u32).saturating_add(len);
            if terms.data_digest {
                head.flags |= DDGSTF;
                head.plen = head.plen.saturating_add(DIGEST as u32);
            }
        }
        head
    }

    const fn put<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        let [p0, p1, p2, p3] = self.plen.to_le_bytes();
        let head = [self.kind.to_field(), self.flags, self.kind.hlen(), self.pdo, p0, p1, p2, p3];
        let mut at = 0;
        while at < HEAD && at < N {
            bytes[at] = head[at];
            at += 1;
        }
        bytes
    }
}

/// ICReq and ICResp, which have the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialize {
    /// PFV: 0.
    pub version: u16,
    /// HPDA or CPDA: what the sender wants data that it receives to be aligned to;
    /// see [`Terms::alignment_z`].
    pub alignment_z: u8,
    /// Header digests asked for, or granted.
    pub header_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// MAXR2T (zero-based) of a request; MAXH2CDATA (bytes) of a response.
    pub limit: u32,
}

/// H2CData and C2HData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// CCCID: the command.
    pub cccid: u16,
    /// TTAG: the R2T that it answers; 0 in C2HData.
    pub ttag: u16,
    /// DATAO: place of the data in the command's buffer, a multiple of 4.
    pub offset: u32,
    /// DATAL.
    pub len: u32,
    /// The last of the command or of the R2T.
    pub last: bool,
    /// C2HData: it is the response as well.
    pub success: bool,
}

/// R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// CCCID: the command.
    pub cccid: u16,
    /// TTAG: the controller's name for it.
    pub ttag: u16,
    /// R2TO: place in the command's buffer, a multiple of 4.
    pub offset: u32,
    /// R2TL.
    pub len: u32,
}

/// A PDU without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// ICReq.
    InitializeRequest(Initialize),
    /// ICResp.
    InitializeResponse(Initialize),
    /// H2CTermReq and C2HTermReq.
    Terminate(Fatal),
    /// CapsuleCmd.
    Command(SubmissionEntry),
    /// CapsuleResp; the phase tag is 0.
    Response(CompletionEntry),
    /// H2CData and C2HData.
    Data(DataHeader),
    /// R2T.
    ReadyToTransfer(ReadyToTransfer),
}

fn half(bytes: &[u8], at: usize) -> u16 {
    crate::layout::Wire::load(bytes.get(at..).unwrap_or(&[]))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    crate::layout::Wire::load(bytes.get(at..).unwrap_or(&[]))
}

impl Pdu {
    /// From a header whose common part was decoded;
    /// `bytes` are at least its HLEN bytes (missing ones count as zero).
    ///
    /// # Errors
    /// [`Fatal`]: with what the connection is to be terminated.
    pub fn decode(head: &Head, bytes: &[u8]) -> Result<Pdu, Fatal> {
        Ok(match head.kind {
            PduType::InitializeRequest => Pdu::InitializeRequest(Initialize::decode(bytes)?),
            PduType::InitializeResponse => {
                let response = Initialize::decode(bytes)?;
                if response.limit < MIN_H2C_DATA {
                    return Err(Fatal::field(12));
                }
                Pdu::InitializeResponse(response)
            }
            PduType::HostTerminate | PduType::ControllerTerminate => {
                Pdu::Terminate(Fatal { status: FatalStatus(half(bytes, 8)), information: word(bytes, 10) })
            }
            PduType::Command => {
                let mut entry = SubmissionEntry::default();
                for (to, at) in entry.cdw.iter_mut().zip((HEAD..).step_by(4)) {
                    *to = word(bytes, at);
                }
                Pdu::Command(entry)
            }
            PduType::Response => {
                let mut entry = CompletionEntry::default();
                for (to, at) in entry.dw.iter_mut().zip((HEAD..).step_by(4)) {
                    *to = word(bytes, at);
                }
                Pdu::Response(entry)
            }
            PduType::HostData | PduType::ControllerData => Pdu::Data(DataHeader::decode(head, bytes)?),
            PduType::ReadyToTransfer => {
                let r2t = ReadyToTransfer {
                    cccid: half(bytes, 8),
                    ttag: half(bytes, 10),
                    offset: word(bytes, 12),
                    len: word(bytes, 16),
                };
                if !r2t.offset.is_multiple_of(4) {
                    return Err(Fatal::field(12));
                }
                if r2t.len == 0 {
                    return Err(Fatal::field(16));
                }
                Pdu::ReadyToTransfer(r2t)
            }
        })
    }
}

impl Initialize {
    fn decode(bytes: &[u8]) -> Result<Initialize, Fatal> {
        let version = half(bytes, 8);
        let [alignment_z, digests] = half(bytes, 10).to_le_bytes();
        if version != 0 {
            return Err(Fatal::unsupported(8));
        }
        if alignment_z > 31 {
            return Err(Fatal::field(10));
        }
        Ok(Initialize {
            version,
            alignment_z,
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
            limit: word(bytes, 12),
        })
    }

    fn encode(&self, kind: PduType) -> [u8; 128] {
        let mut bytes = Head::new(kind, 0, 0, &Terms::default()).put([0; 128]);
        let [v0, v1] = self.version.to_le_bytes();
        let digests = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
        let [l0, l1, l2, l3] = self.limit.to_le_bytes();
        bytes[8..16].copy_from_slice(&[v0, v1, self.alignment_z, digests, l0, l1, l2, l3]);
        bytes
    }

    /// The bytes of an ICReq.
    pub fn request(&self) -> [u8; 128] {
        self.encode(PduType::InitializeRequest)
    }

    /// The bytes of an ICResp.
    pub fn response(&self) -> [u8; 128] {
        self.encode(PduType::InitializeResponse)
    }
}

impl DataHeader {
    fn decode(head: &Head, bytes: &[u8]) -> Result<DataHeader, Fatal> {
        let (offset, len) = (word(bytes, 12), word(bytes, 16));
        if !offset.is_multiple_of(4) {
            return Err(Fatal::field(12));
        }
        if len != head.data().len {
            return Err(Fatal::field(16));
        }
        let controller = head.kind == PduType::ControllerData;
        let (last, success) = (head.flags & LAST != 0, controller && head.flags & SUCCESS != 0);
        if success && !last {
            return Err(Fatal::field(1));
        }
        let ttag = if controller { 0 } else { half(bytes, 10) };
        Ok(DataHeader { cccid: half(bytes, 8), ttag, offset, len, last, success })
    }

    fn encode(&self, kind: PduType, terms: &Terms) -> [u8; 24] {
        let flags = if self.last { LAST } else { 0 } | if self.success { SUCCESS } else { 0 };
        let head = Head::new(kind, flags, self.len, terms);
        transfer(&head, [self.cccid, self.ttag], self.offset, self.len)
    }

    /// The header of an H2CData.
    pub fn host(&self, terms: &Terms) -> [u8; 24] {
        self.encode(PduType::HostData, terms)
    }

    /// The header of a C2HData.
    pub fn controller(&self, terms: &Terms) -> [u8; 24] {
        self.encode(PduType::ControllerData, terms)
    }
}

impl ReadyToTransfer {
    /// On the wire.
    pub fn encode(&self, terms: &Terms) -> [u8; 24] {
        let head = Head::new(PduType::ReadyToTransfer, 0, 0, terms);
        transfer(&head, [self.cccid, self.ttag], self.offset, self.len)
    }
}

/// The form that both data PDUs and R2T have.
fn transfer(head: &Head, [cccid, ttag]: [u16; 2], offset: u32, len: u32) -> [u8; 24] {
    let mut bytes = head.put([0; 24]);
    bytes[8..10].copy_from_slice(&cccid.to_le_bytes());
    bytes[10..12].copy_from_slice(&ttag.to_le_bytes());
    bytes[12..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..20].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// CapsuleCmd with `data` bytes in the capsule.
pub fn command(entry: &SubmissionEntry, data: u32, terms: &Terms) -> [u8; 72] {
    let mut bytes = Head::new(PduType::Command, 0, data, terms).put([0; 72]);
    for (to, dword) in bytes[HEAD..].chunks_exact_mut(4).zip(entry.cdw) {
        to.copy_from_slice(&dword.to_le_bytes());
    }
    bytes
}

/// CapsuleResp.
pub fn response(entry: &CompletionEntry, terms: &Terms) -> [u8; 24] {
    let mut bytes = Head::new(PduType::Response, 0, 0, terms).put([0; 24]);
    for (to, dword) in bytes[HEAD..].chunks_exact_mut(4).zip(entry.dw) {
        to.copy_from_slice(&dword.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
