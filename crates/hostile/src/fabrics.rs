//! What a connection carries, before either end looks at its state.
//!
//! `tcp_pdu`: first byte: bit 0 the host receives, bit 1 header digests, bit 2 data digests; second: the
//! alignment agreed. Then PDUs after one another, decoded as a receiver does.
//!
//! `tcp_capsule`: first byte: what the rest is:
//! an entry with its data pointer, Connect data, a discovery entry, a name.

use nearside_driver::tcp::Address;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{ANY_CONTROLLER, Connect, ConnectData, FabricsCommand, Property};
use nearside_spec::fabrics::discovery::{DiscoveryEntry, subtype};
use nearside_spec::fabrics::nqn;
use nearside_spec::fabrics::pdu::{self, *};
use nearside_spec::{CompletionEntry, Status, SubmissionEntry};

fn terms(how: u8, alignment_z: u8) -> Terms {
    Terms { header_digest: how & 2 != 0, data_digest: how & 4 != 0, alignment_z: alignment_z & 31 }
}

/// Runs an input of `tcp_pdu`: what decodes lies within itself, says the same when it is encoded again,
/// and moves on.
pub fn pdu(input: &[u8]) {
    let Some((&[how, alignment_z], mut rest)) = input.split_first_chunk::<2>() else { return };
    let (to, terms) = (if how & 1 == 0 { Side::Controller } else { Side::Host }, terms(how, alignment_z));
    while let Some(first) = rest.first_chunk::<HEAD>() {
        let head = match Head::decode(first, to, &terms) {
            Ok(head) => head,
            Err(fatal) => return refuse(to, fatal, rest),
        };
        let span = head.data();
        assert!(head.plen as usize >= head.header_len() && head.header_len() <= 128 + DIGEST);
        let end = u64::from(span.offset) + u64::from(span.len) + if span.digest { DIGEST as u64 } else { 0 };
        assert_eq!(end, u64::from(head.plen), "{head:?}");
        let Some(header) = rest.get(..head.header_len()) else { return };
        match Pdu::decode(&head, header) {
            Ok(said) => check_reencoding(&head, &said, &terms),
            Err(fatal) => return refuse(to, fatal, rest),
        }
        let Some(after) = rest.get(head.plen as usize..) else { return };
        rest = after;
    }
}

/// A PDU that was decoded says the same once it is written again.
fn check_reencoding(head: &Head, said: &Pdu, terms: &Terms) {
    let bytes: Vec<u8> = match said {
        Pdu::InitializeRequest(i) => i.request().to_vec(),
        Pdu::InitializeResponse(i) => i.response().to_vec(),
        Pdu::Terminate(_) => return,
        Pdu::Command(entry) => pdu::command(entry, head.data().len, terms).to_vec(),
        Pdu::Response(entry) => pdu::response(entry, terms).to_vec(),
        Pdu::Data(d) if head.kind == PduType::HostData => d.host(terms).to_vec(),
        Pdu::Data(d) => d.controller(terms).to_vec(),
        Pdu::ReadyToTransfer(r2t) => r2t.encode(terms).to_vec(),
    };
    let first = bytes.first_chunk().unwrap_or_else(|| panic!("{said:?} became {bytes:?}"));
    // More padding than needed is allowed; with what we write,
    // a PDU could pass 4 GiB only by claiming nearly as much.
    if head.plen > u32::MAX - 256 {
        return;
    }
    let second = Head::decode(first, head.kind.to(), terms).and_then(|h| Ok((h, Pdu::decode(&h, &bytes)?)));
    let Ok((second, said_again)) = second else { panic!("{said:?} became {second:?}") };
    assert_eq!((&said_again, second.data().len), (said, head.data().len));
}

fn refuse(to: Side, fatal: Fatal, offending: &[u8]) {
    let other = if to == Side::Host { Side::Controller } else { Side::Host };
    let request = TerminateRequest::new(other, fatal, offending);
    let bytes = request.bytes();
    let first = bytes.first_chunk().unwrap_or_else(|| panic!("{bytes:?}"));
    let head = Head::decode(first, other, &Terms::default()).unwrap_or_else(|e| panic!("{fatal:?}: {e}"));
    assert_eq!(Pdu::decode(&head, bytes), Ok(Pdu::Terminate(fatal)));
    assert_eq!(head.plen as usize, bytes.len());
}

fn entry(bytes: &[u8]) -> SubmissionEntry {
    let mut entry = SubmissionEntry::default();
    for (to, from) in entry.cdw.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *to = u32::from_le_bytes(*from);
    }
    entry
}

/// Runs an input of `tcp_capsule`: what is decoded says the same when it is encoded again.
pub fn capsule(input: &[u8]) {
    let Some((&what, rest)) = input.split_first() else { return };
    match what % 4 {
        0 => {
            let entry = entry(rest);
            if let Ok(data) = CapsuleData::of(&entry) {
                let mut again = entry;
                data.put(&mut again);
                assert_eq!(CapsuleData::of(&again), Ok(data));
            }
            if let Some(command) = FabricsCommand::decode(&entry) {
                assert_eq!(FabricsCommand::decode(&command.encode()), Some(command));
            }
        }
        1 => {
            let data = ConnectData::from_bytes(rest);
            if let (Ok(subsystem), Ok(host)) =
                (nqn::from_field(&data.subnqn()), nqn::from_field(&data.hostnqn()))
            {
                let again = ConnectData::new(data.hostid(), host, subsystem, data.cntlid());
                assert_eq!(nqn::from_field(&again.subnqn()), Ok(subsystem));
                assert_eq!(nqn::from_field(&again.hostnqn()), Ok(host));
            }
        }
        2 => {
            let entry = DiscoveryEntry::from_bytes(rest);
            let (address, port) = (entry.address(), entry.port());
            // Three bytes for each that is no UTF-8.
            assert!(address.len() <= 3 * 256 && port.len() <= 3 * 32);
            let _ = nqn::from_field(&entry.subnqn());
            // What is named by it, and a namespace there, is that and nothing else.
            if let Ok(address) = Address::of_entry(&entry) {
                for named in [Address { nsid: Some(7), ..address.clone() }, address] {
                    assert_eq!(named.to_string().parse::<Address>().ok(), Some(named));
                }
            }
        }
        _ => {
            if let Ok(name) = std::str::from_utf8(rest)
                && nqn::check(name).is_ok()
            {
                assert_eq!(nqn::from_field(&nqn::to_field(name)), Ok(name));
            }
        }
    }
}

fn read(cid: u16) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(2, cid, 1);
    CapsuleData::Transport { len: 4096 }.put(&mut entry);
    entry
}

/// Every PDU, alone and after one another, under several terms.
pub fn pdu_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (how, alignment_z) in [(0, 0), (6, 0), (2, 31), (4, 7)] {
        let terms = terms(how, alignment_z);
        let init = Initialize {
            version: 0,
            alignment_z,
            header_digest: terms.header_digest,
            data_digest: terms.data_digest,
            limit: 131_072,
        };
        let whole = |header: &[u8]| {
            let plen = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            let mut bytes = header.to_vec();
            bytes.resize(plen as usize, 7);
            bytes
        };
        let data = DataHeader { cccid: 1, ttag: 2, offset: 0, len: 64, last: true, success: false };
        let done = CompletionEntry::new(0, 1, 0, 1, Status::SUCCESS, false);
        let up = [
            whole(&pdu::command(&read(1), 0, &terms)),
            whole(&pdu::command(&read(2), 512, &terms)),
            whole(&data.host(&terms)),
            TerminateRequest::new(Side::Controller, Fatal::SEQUENCE, &[9; 24]).bytes().to_vec(),
        ];
        let down = [
            whole(&pdu::response(&done, &terms)),
            whole(&DataHeader { success: true, ..data }.controller(&terms)),
            whole(&ReadyToTransfer { cccid: 1, ttag: 2, offset: 4096, len: 8192 }.encode(&terms)),
            TerminateRequest::new(Side::Host, Fatal::digest(7), &[4; 128]).bytes().to_vec(),
        ];
        for (side, pdus) in [(0, up), (1, down)] {
            seeds.push([&[how | side, alignment_z][..], &pdus.concat()].concat());
            seeds.extend(pdus.iter().map(|pdu| [&[how | side, alignment_z][..], pdu].concat()));
        }
        seeds.push([&[0, 0][..], &init.request()].concat());
        seeds.push([&[1, 0][..], &init.response()].concat());
    }
    seeds
}

/// What a host sends, and what it learns of subsystems.
pub fn capsule_seeds() -> Vec<Vec<u8>> {
    let name = "nqn.2014-08.org.example:subsystem";
    let connect = Connect { recfmt: 0, qid: 1, sqsize_z: 127, cattr: 0, kato: 0 };
    let property = Property { attrib: 1, offset: 0, value: 0 };
    let commands = [
        FabricsCommand::Connect(connect).encode(),
        FabricsCommand::PropertyGet(property).encode(),
        FabricsCommand::PropertySet(Property { offset: 0x14, attrib: 0, value: 1 }).encode(),
        FabricsCommand::Disconnect { recfmt: 0 }.encode(),
        read(1),
    ];
    let entries = commands.iter().map(|c| {
        let dwords = c.cdw.iter().flat_map(|d| d.to_le_bytes());
        std::iter::once(0).chain(dwords).collect()
    });
    let data = ConnectData::new([1; 16], &nqn::of_uuid(&[2; 16]), name, ANY_CONTROLLER);
    let entry = DiscoveryEntry::tcp(subtype::NVM, name, true, "::1", "4420");
    let others =
        [[&[1][..], &data.0].concat(), [&[2][..], &entry.0].concat(), [&[3][..], name.as_bytes()].concat()];
    entries.chain(others).collect()
}
