//! Peers that break the rules, stop half-way, read nothing or fall silent: each loses its own connection, by
//! the specified termination request where there is one, and nothing else happens.

mod raw;

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nearside_front_tcp::{Options, Server};
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{Connect, ConnectData, FabricsCommand, Property, at};
use nearside_spec::fabrics::pdu::{self, DataHeader, Fatal, Initialize, Pdu, Terms};
use nearside_spec::fabrics::status;
use nearside_spec::opcode::{admin, io};
use nearside_spec::registers as reg;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Dram;
use raw::*;

fn open(server: &Server<Dram, ()>) -> u64 {
    server.target().counters.open.load(Ordering::Relaxed)
}

#[test]
fn what_breaks_the_rules_ends_its_connection_alone() {
    let server = serve(offer(16 << 20), Options::default());
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    let before = open(&server);
    // Before anything was agreed.
    for (bytes, fatal) in [
        (vec![0x55; 128], Fatal::field(0)),
        (vec![5, 0, 24, 0, 24, 0, 0, 0], Fatal::SEQUENCE),
        (vec![0, 0, 127, 0, 128, 0, 0, 0], Fatal::field(2)),
        (vec![0, 0, 128, 0, 255, 255, 255, 255], Fatal::field(4)),
        (vec![6, 4, 24, 24, 32, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0], Fatal::SEQUENCE),
        (
            [[0, 0, 128, 0, 128, 0, 0, 0, 9, 0], [0; 10]].concat().into_iter().chain([0; 108]).collect(),
            Fatal::unsupported(8),
        ),
    ] {
        let mut raw = Raw::open(address);
        raw.put(&bytes);
        assert_eq!(raw.ending(), Some(fatal), "{bytes:?}");
    }
    // A second ICReq; data that nobody asked for.
    let data = DataHeader { cccid: 1, ttag: 9, offset: 0, len: 4, last: true, success: false };
    let icreq: Vec<u8> = [0, 0, 128, 0, 128, 0, 0, 0].into_iter().chain([0; 120]).collect();
    for bytes in [icreq, [data.host(&PLAIN).to_vec(), vec![0; 4]].concat()] {
        let mut raw = Raw::io(address, cntlid, 2);
        raw.put(&bytes);
        assert_eq!(raw.ending(), Some(Fatal::SEQUENCE));
        until("the queue is free again", || server.target().connected()[0].queues == 1);
    }
    // More in the capsule than it may have.
    let mut raw = Raw::io(address, cntlid, 3);
    raw.command(transfer(io::WRITE, 0, 32, 0), &[0; 16384]);
    assert_eq!(raw.ending(), Some(Fatal::LIMIT_EXCEEDED));
    // Data of an R2T that are not what it asked for.
    for (header, fatal) in [
        (DataHeader { cccid: 7, ..data }, Fatal::field(8)),
        (DataHeader { offset: 4, ..data }, Fatal::OUT_OF_RANGE),
        (DataHeader { len: 65540, ..data }, Fatal::OUT_OF_RANGE),
        (DataHeader { last: true, ..data }, Fatal::field(1)),
    ] {
        let mut raw = Raw::io(address, cntlid, 4);
        let cid = raw.command(transfer(io::WRITE, 0, 128, 65536), &[]);
        let Some((Pdu::ReadyToTransfer(r2t), _)) = raw.receive() else { panic!() };
        assert_eq!((r2t.cccid, r2t.offset, r2t.len), (cid, 0, 65536));
        let cccid = if header.cccid == 7 { 7 } else { cid };
        raw.put(&DataHeader { cccid, ttag: r2t.ttag, ..header }.host(&PLAIN));
        assert_eq!(raw.ending(), Some(fatal));
        until("the queue is free again", || server.target().connected()[0].queues <= 1);
    }
    until("they are all gone", || open(&server) <= before);
    good_read(&mut good);
}

#[test]
fn connect_fails_as_specified() {
    let server = serve(offer(1 << 20), Options::default());
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let good = Connect { recfmt: 0, qid: 0, sqsize_z: 31, cattr: 0, kato: 0 };
    let data = |subsystem: &str, cntlid| ConnectData::new([7; 16], HOST, subsystem, cntlid);
    let invalid = |offset, in_data| (status::INVALID_PARAMETERS, status::invalid_parameter(offset, in_data));
    let io = Connect { qid: 1, ..good };
    for (connect, data, (wanted, dw0)) in [
        (Connect { recfmt: 1, ..good }, data(NQN, 0xffff), (status::INCOMPATIBLE_FORMAT, 0)),
        (Connect { sqsize_z: 0, ..good }, data(NQN, 0xffff), invalid(at::SQSIZE, false)),
        (Connect { sqsize_z: 1024, ..good }, data(NQN, 0xffff), invalid(at::SQSIZE, false)),
        (good, data("nqn.2026-11.dev.nearside:other", 0xffff), invalid(at::SUBNQN, true)),
        (good, data("nonsense", 0xffff), invalid(at::SUBNQN, true)),
        (good, ConnectData::new([7; 16], "nonsense", NQN, 0xffff), invalid(at::HOSTNQN, true)),
        (good, ConnectData::new([7; 16], "", NQN, 0xffff), invalid(at::HOSTNQN, true)),
        (good, data(NQN, 5), invalid(at::CNTLID, true)),
        (io, data(NQN, cntlid + 1), invalid(at::CNTLID, true)),
        (Connect { qid: 64, ..good }, data(NQN, cntlid), invalid(at::QID, false)),
        (io, ConnectData::new([8; 16], HOST, NQN, cntlid), invalid(at::HOSTID, true)),
        (good, ConnectData::new([0; 16], HOST, NQN, 0xffff), invalid(at::HOSTID, true)),
        (io, ConnectData::new([0; 16], HOST, NQN, cntlid), invalid(at::HOSTID, true)),
        (
            io,
            ConnectData::new([7; 16], "nqn.2026-11.dev.nearside:b", NQN, cntlid),
            invalid(at::HOSTNQN, true),
        ),
    ] {
        let mut raw = Raw::initialized(address);
        let done = raw.connect_as(connect, &data);
        assert_eq!((done.status(), done.result()), (wanted.dnr(), dw0), "{connect:?}");
        // It may try again on the same connection.
        let again = raw.connect_as(good, &ConnectData::new([7; 16], HOST, NQN, 0xffff));
        assert_eq!(again.status(), Status::SUCCESS);
    }
    // A queue that is there; commands before Connect; a second Connect; an I/O queue of a controller that is
    // not enabled.
    let mut first = Raw::io(address, cntlid, 1);
    let mut raw = Raw::initialized(address);
    let sequence = Status::COMMAND_SEQUENCE_ERROR;
    assert_eq!(raw.run(SubmissionEntry::new(admin::KEEP_ALIVE, 0, 0), &[]).status(), sequence.dnr());
    assert_eq!(raw.connect_as(io, &data(NQN, cntlid)).status().code(), sequence);
    assert_eq!(first.connect_as(io, &data(NQN, cntlid)).status(), sequence.dnr());
    let mut off = Raw::initialized(address);
    let other = off.connect_as(good, &data(NQN, 0xffff)).result() as u16;
    assert_eq!(off.run(SubmissionEntry::new(admin::KEEP_ALIVE, 0, 0), &[]).status().code(), sequence);
    assert_eq!(raw.connect_as(io, &data(NQN, other)).status(), sequence.dnr());
}

#[test]
fn admin_queues_by_hand() {
    let server = serve(offer(1 << 20), Options::default());
    let address = server.addresses()[0];
    let (mut raw, cntlid) = Raw::admin(address, 0);
    let invalid = Status::INVALID_FIELD.dnr();
    for (attrib, offset) in [(1, reg::VS), (0, reg::CAP), (0, reg::NSSR), (0, 0x1000)] {
        let get = Property { attrib, offset: offset as u32, value: 0 };
        assert_eq!(raw.run(FabricsCommand::PropertyGet(get).encode(), &[]).status(), invalid);
    }
    let set = Property { attrib: 0, offset: reg::CSTS as u32, value: 0 };
    assert_eq!(raw.run(FabricsCommand::PropertySet(set).encode(), &[]).status(), invalid);
    assert_eq!(raw.run(FabricsCommand::Unknown(0x77).encode(), &[]).status(), invalid);
    let disconnect = FabricsCommand::Disconnect { recfmt: 0 }.encode();
    assert_eq!(raw.run(disconnect, &[]).status(), status::INVALID_QUEUE_TYPE.dnr());
    for opcode in [admin::CREATE_CQ, admin::CREATE_SQ, admin::DELETE_CQ, admin::DELETE_SQ] {
        assert_eq!(raw.run(SubmissionEntry::new(opcode, 0, 0), &[]).status(), Status::INVALID_OPCODE.dnr());
    }
    // An event request is kept, and aborted; a command identifier is used once at a time.
    let event = raw.command(SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, 0, 0), &[]);
    let mut abort = SubmissionEntry::new(admin::ABORT, 0, 0);
    abort.cdw[10] = u32::from(event) << 16;
    raw.command(abort, &[]);
    let both = [raw.response(), raw.response()];
    assert_eq!(both.map(|e| e.status()), [Status::ABORT_REQUESTED, Status::SUCCESS]);
    assert_eq!((both[0].cid(), both[1].result()), (event, 0));
    // SGLs that are none of ours.
    let mut prp = SubmissionEntry::new(admin::IDENTIFY, 1, 0);
    CapsuleData::InCapsule { offset: 0, len: 4096 }.put(&mut prp);
    assert_eq!(raw.run(prp, &[]).status(), Status::INVALID_SGL_OFFSET.dnr());
    // Disconnect ends an I/O queue alone.
    let mut io = Raw::io(address, cntlid, 1);
    assert_eq!(io.run(disconnect, &[]).status(), Status::SUCCESS);
    assert_eq!(io.ending(), None);
    until("the queue is gone", || server.target().connected()[0].queues == 0);
    good_read(&mut Raw::io(address, cntlid, 1));
    // A reset, a look, and enabled anew.
    let cc = Property { attrib: 0, offset: reg::CC as u32, value: reg::Cc::DEFAULTS.0.into() };
    assert_eq!(raw.run(FabricsCommand::PropertySet(cc).encode(), &[]).status(), Status::SUCCESS);
    let begun = Instant::now();
    while raw.property(reg::CSTS) & 1 != 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    raw.enable();
    assert_eq!(raw.run(SubmissionEntry::new(admin::KEEP_ALIVE, 0, 0), &[]).status(), Status::SUCCESS);
    // A shutdown.
    let shn = Property { value: u64::from(reg::Cc::DEFAULTS.with_shn(1).0 | 1), ..cc };
    assert_eq!(raw.run(FabricsCommand::PropertySet(shn).encode(), &[]).status(), Status::SUCCESS);
    while raw.property(reg::CSTS) & reg::csts::SHST != reg::csts::SHST_COMPLETE {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn peers_that_stop_half_way_are_let_go() {
    let server = serve(offer(16 << 20), Options { patience_ns: 2_000_000_000, ..Options::default() });
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    let before = open(&server);
    let mut silent = vec![Raw::open(address), Raw::initialized(address)];
    let mut half = Raw::open(address);
    half.put(&[0, 0, 128, 0, 128]);
    silent.push(half);
    for qid in 2..5 {
        let mut raw = Raw::io(address, cntlid, qid);
        let cid = raw.command(transfer(io::WRITE, 0, 128, 65536), &[]);
        let Some((Pdu::ReadyToTransfer(r2t), _)) = raw.receive() else { panic!() };
        let header =
            DataHeader { cccid: cid, ttag: r2t.ttag, offset: 0, len: 65536, last: true, success: false };
        match qid {
            // Owes all of it, the end of a header, the end of the data.
            2 => {}
            3 => raw.put(&header.host(&PLAIN)[..11]),
            _ => raw.put(&[header.host(&PLAIN).to_vec(), vec![1; 30_000]].concat()),
        }
        silent.push(raw);
    }
    good_read(&mut good);
    for mut raw in silent {
        assert_eq!(raw.socket.read(&mut [0; 1]).ok(), Some(0), "it was closed");
    }
    until("they are gone", || open(&server) <= before);
    good_read(&mut good);
}

#[test]
fn a_slow_reader_stops_itself() {
    let server = serve(
        offer(64 << 20),
        Options { staging: 64 << 20, patience_ns: 600_000_000_000, ..Options::default() },
    );
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    let mut slow: Vec<Raw> = (2..10).map(|qid| Raw::io(address, cntlid, qid)).collect();
    for raw in &mut slow {
        for _ in 0..30 {
            raw.command(transfer(io::READ, 0, 2048, 1 << 20), &[]);
        }
    }
    for _ in 0..100 {
        good_read(&mut good);
    }
    // Late, but all of it.
    for raw in &mut slow {
        let (mut bytes, mut answers) = (0, 0);
        while answers < 30 {
            match raw.receive().unwrap() {
                (Pdu::Data(_), data) => bytes += data.len(),
                (Pdu::Response(entry), _) => {
                    assert_eq!(entry.status(), Status::SUCCESS);
                    answers += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bytes, 30 << 20);
    }
}

#[test]
fn a_host_that_falls_silent_loses_its_controller() {
    let server = serve(offer(1 << 20), Options::default());
    let address = server.addresses()[0];
    let (mut raw, cntlid) = Raw::admin(address, 300);
    let mut io = Raw::io(address, cntlid, 1);
    good_read(&mut io);
    assert_eq!(raw.run(SubmissionEntry::new(admin::KEEP_ALIVE, 0, 0), &[]).status(), Status::SUCCESS);
    assert_eq!((raw.ending(), io.ending()), (None, None));
    assert_eq!(server.target().counters.silent.load(Ordering::Relaxed), 1);
    until("it is gone", || server.target().connected().is_empty());
}

#[test]
fn what_a_host_reads_is_nobody_elses() {
    let server = serve(offer(16 << 20), Options::default());
    let address = server.addresses()[0];
    let (mut raw, cntlid) = Raw::admin(address, 0);
    let mut io = Raw::io(address, cntlid, 1);
    // Secrets in a staging buffer; then a feature of 8 bytes is asked for with room for a page.
    io.command(transfer(io::WRITE, 0, 8, 0), &[0x5a; 4096]);
    io.response();
    let mut get = SubmissionEntry::new(admin::GET_FEATURES, 0, 0);
    get.cdw[10] = 0x0e;
    CapsuleData::Transport { len: 4096 }.put(&mut get);
    raw.command(get, &[]);
    let (_, data) = raw.receive().unwrap();
    assert!(data.len() == 4096 && data[8..].iter().all(|&b| b == 0));
    let _ = pdu::LAST;
}

/// A connection with digests: ICReq and ICResp.
fn with_digests(address: std::net::SocketAddr, header_digest: bool, data_digest: bool) -> (Raw, Terms) {
    let mut raw = Raw::open(address);
    raw.put(&Initialize { version: 0, alignment_z: 0, header_digest, data_digest, limit: 0 }.request());
    assert!(matches!(raw.receive(), Some((Pdu::InitializeResponse(_), _))));
    (raw, Terms { header_digest, data_digest, alignment_z: 0 })
}

#[test]
fn a_wrong_digest_is_the_header_s_end_and_the_data_s_error() {
    let server = serve(offer(16 << 20), Options::default());
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let connect = Connect { recfmt: 0, qid: 1, sqsize_z: 127, cattr: 0, kato: 0 };
    let data = ConnectData::new([7; 16], HOST, NQN, cntlid);
    let capsule = |terms: &Terms| {
        let mut entry = FabricsCommand::Connect(connect).encode();
        CapsuleData::InCapsule { offset: 0, len: data.0.len() as u32 }.put(&mut entry);
        pdu::command(&entry, data.0.len() as u32, terms).to_vec()
    };
    // The header's: the connection ends.
    let (mut raw, terms) = with_digests(address, true, false);
    let mut bytes = capsule(&terms);
    let wrong = crc32c::crc32c(&bytes[..72]) ^ 1;
    bytes.truncate(72);
    bytes.extend_from_slice(&wrong.to_le_bytes());
    bytes.extend_from_slice(&data.0);
    raw.put(&bytes);
    assert_eq!(raw.ending(), Some(Fatal::digest(wrong)));
    // The data's: the command fails, and the connection goes on.
    let (mut raw, terms) = with_digests(address, false, true);
    for (flip, status) in [(1, Status::TRANSIENT_TRANSPORT_ERROR), (0, Status::SUCCESS)] {
        raw.put(&[&capsule(&terms)[..], &data.0, &(crc32c::crc32c(&data.0) ^ flip).to_le_bytes()].concat());
        assert_eq!(raw.response().status(), status);
    }
    for (flip, status) in [(1, Status::TRANSIENT_TRANSPORT_ERROR), (0, Status::SUCCESS)] {
        let mut entry = transfer(io::WRITE, 0, 32, 16384);
        entry.set_cid(9);
        raw.put(&pdu::command(&entry, 0, &terms));
        let Some((Pdu::ReadyToTransfer(r2t), _)) = raw.receive() else { panic!() };
        let header =
            DataHeader { cccid: 9, ttag: r2t.ttag, offset: 0, len: 16384, last: true, success: false };
        let bytes = vec![0x77; 16384];
        raw.put(&[&header.host(&terms)[..], &bytes, &(crc32c::crc32c(&bytes) ^ flip).to_le_bytes()].concat());
        assert_eq!(raw.response().status(), status);
    }
}

#[test]
fn what_no_transfer_can_be_is_refused_at_once() {
    let server = serve(offer(16 << 20), Options::default());
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut raw = Raw::io(address, cntlid, 1);
    // Longer than MDTS, by far: no staging buffer will ever be that long.
    for opcode in [io::READ, io::WRITE] {
        let done = raw.run(transfer(opcode, 0, 8, 1 << 30), &[]);
        assert_eq!(done.status(), Status::INVALID_FIELD.dnr());
    }
    // Both directions at once.
    let done = raw.run(transfer(io::NEAR_DATA, 0, 8, 4096), &[]);
    assert_eq!(done.status(), Status::INVALID_OPCODE.dnr());
    good_read(&mut raw);
}
