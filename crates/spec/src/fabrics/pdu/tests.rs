//! Golden bytes of every PDU, as the figures of TCP Transport 1.0 have them, and what a decoder must refuse.

use super::*;
use crate::Status;
use alloc::vec::Vec;

const PLAIN: Terms = Terms { header_digest: false, data_digest: false, alignment_z: 0 };
const DIGESTS: Terms = Terms { header_digest: true, data_digest: true, alignment_z: 0 };

fn read(bytes: &[u8], to: Side, terms: &Terms) -> Result<(Head, Pdu), Fatal> {
    let head = Head::decode(bytes.first_chunk().unwrap(), to, terms)?;
    let pdu = Pdu::decode(&head, bytes)?;
    Ok((head, pdu))
}

#[test]
fn initialize() {
    let request = Initialize { version: 0, alignment_z: 3, header_digest: true, data_digest: true, limit: 7 };
    let bytes = request.request();
    assert_eq!(bytes[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 7, 0, 0, 0]);
    assert!(bytes[16..].iter().all(|&b| b == 0));
    assert_eq!(read(&bytes, Side::Controller, &PLAIN).unwrap().1, Pdu::InitializeRequest(request));
    let response =
        Initialize { version: 0, alignment_z: 0, header_digest: false, data_digest: true, limit: 131_072 };
    let bytes = response.response();
    assert_eq!(bytes[..16], [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0]);
    assert_eq!(read(&bytes, Side::Host, &PLAIN).unwrap().1, Pdu::InitializeResponse(response));
    let refused = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        read(&bytes, Side::Host, &PLAIN).unwrap_err()
    };
    assert_eq!(refused(8, 1), Fatal::unsupported(8));
    assert_eq!(refused(10, 32), Fatal::field(10));
    assert_eq!(refused(14, 0), Fatal::field(12));
    assert_eq!(refused(1, 1), Fatal::field(1));
    assert_eq!(refused(4, 132), Fatal::field(4));
}

#[test]
fn capsules() {
    let mut entry = SubmissionEntry::new(0x01, 0x0203, 1);
    entry.cdw[15] = 0xaabb_ccdd;
    let bytes = command(&entry, 0, &PLAIN);
    assert_eq!(bytes[..12], [4, 0, 72, 0, 72, 0, 0, 0, 1, 0, 3, 2]);
    assert_eq!(bytes[68..], [0xdd, 0xcc, 0xbb, 0xaa]);
    let (head, pdu) = read(&bytes, Side::Controller, &PLAIN).unwrap();
    assert_eq!((pdu, head.data().len, head.header_len()), (Pdu::Command(entry), 0, 72));
    // 4 KiB in the capsule: PDO 72, with digests 76; PLEN 4168 or 4176.
    assert_eq!(command(&entry, 4096, &PLAIN)[..8], [4, 0, 72, 72, 0x48, 0x10, 0, 0]);
    let bytes = command(&entry, 4096, &DIGESTS);
    assert_eq!(bytes[..8], [4, 3, 72, 76, 0x50, 0x10, 0, 0]);
    let (head, _) = read(&bytes, Side::Controller, &DIGESTS).unwrap();
    assert_eq!(head.data(), Span { offset: 76, len: 4096, digest: true });
    assert_eq!(head.header_len(), 76);

    let entry = CompletionEntry::new(5, 6, 0, 7, Status::INVALID_FIELD, false);
    let bytes = response(&entry, &PLAIN);
    assert_eq!(bytes, [5, 0, 24, 0, 24, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 7, 0, 4, 0]);
    assert_eq!(read(&bytes, Side::Host, &PLAIN).unwrap().1, Pdu::Response(entry));
    assert_eq!(response(&entry, &DIGESTS)[..8], [5, 1, 24, 0, 28, 0, 0, 0]);
}

#[test]
fn data() {
    let header = DataHeader { cccid: 0x0102, ttag: 0x0304, offset: 4096, len: 8, last: true, success: false };
    let bytes = header.host(&PLAIN);
    assert_eq!(bytes, [6, 4, 24, 24, 32, 0, 0, 0, 2, 1, 4, 3, 0, 16, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&bytes, Side::Controller, &PLAIN).unwrap().1, Pdu::Data(header));
    let header = DataHeader { ttag: 0, success: true, ..header };
    let bytes = header.controller(&PLAIN);
    assert_eq!(bytes, [7, 12, 24, 24, 32, 0, 0, 0, 2, 1, 0, 0, 0, 16, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&bytes, Side::Host, &PLAIN).unwrap().1, Pdu::Data(header));
    // A receiver that wants data at multiples of 32 bytes, with digests: PDO 32, PLEN 32 + 8 + 4.
    let terms = Terms { alignment_z: 7, ..DIGESTS };
    let bytes = header.controller(&terms);
    assert_eq!(bytes[..8], [7, 15, 24, 32, 44, 0, 0, 0]);
    assert_eq!(read(&bytes, Side::Host, &terms).unwrap().0.data(), Span { offset: 32, len: 8, digest: true });
    let refused = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        read(&bytes, Side::Host, &terms).unwrap_err()
    };
    assert_eq!(refused(0, 8), Fatal::field(0));
    assert_eq!(refused(0, 6), Fatal::SEQUENCE);
    assert_eq!(refused(1, 12), Fatal::field(1));
    assert_eq!(refused(1, 13), Fatal::field(1));
    assert_eq!(refused(1, 11), Fatal::field(1));
    assert_eq!(refused(2, 28), Fatal::field(2));
    assert_eq!(refused(3, 28), Fatal::field(3));
    assert_eq!(refused(3, 0), Fatal::field(3));
    assert_eq!(refused(3, 64), Fatal::field(4));
    assert_eq!(refused(4, 27), Fatal::field(4));
    assert_eq!(refused(4, 45), Fatal::field(16));
    assert_eq!(refused(12, 2), Fatal::field(12));
    assert_eq!(refused(16, 9), Fatal::field(16));
}

#[test]
fn ready_to_transfer() {
    let r2t = ReadyToTransfer { cccid: 1, ttag: 2, offset: 8192, len: 131_072 };
    let bytes = r2t.encode(&PLAIN);
    assert_eq!(bytes, [9, 0, 24, 0, 24, 0, 0, 0, 1, 0, 2, 0, 0, 32, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
    assert_eq!(read(&bytes, Side::Host, &PLAIN).unwrap().1, Pdu::ReadyToTransfer(r2t));
    assert_eq!(
        read(&ReadyToTransfer { len: 0, ..r2t }.encode(&PLAIN), Side::Host, &PLAIN),
        Err(Fatal::field(16))
    );
    assert_eq!(
        read(&ReadyToTransfer { offset: 2, ..r2t }.encode(&PLAIN), Side::Host, &PLAIN),
        Err(Fatal::field(12))
    );
}

#[test]
fn terminate() {
    let offending = [4u8; 200];
    let request = TerminateRequest::new(Side::Host, Fatal::digest(0x0102_0304), &offending);
    let bytes = request.bytes();
    assert_eq!(bytes.len(), 152);
    assert_eq!(bytes[..16], [3, 0, 24, 0, 152, 0, 0, 0, 3, 0, 4, 3, 2, 1, 0, 0]);
    assert_eq!(bytes[24..], [4; 128]);
    let (head, pdu) = read(bytes, Side::Host, &DIGESTS).unwrap();
    assert_eq!(pdu, Pdu::Terminate(Fatal::digest(0x0102_0304)));
    assert_eq!(head.data(), Span { offset: 24, len: 128, digest: false });
    let mut long: Vec<u8> = bytes.to_vec();
    long[4] = 153;
    assert_eq!(read(&long, Side::Host, &DIGESTS), Err(Fatal::field(4)));
    assert_eq!(
        TerminateRequest::new(Side::Controller, Fatal::SEQUENCE, &[]).bytes()[..10],
        [2, 0, 24, 0, 24, 0, 0, 0, 2, 0]
    );
}
