//! Peers that break the rules, stop half-way, read nothing or fall silent: each loses its own connection, by
//! the specified termination request where there is one, and nothing else happens.

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::raw::*;
use nearside_auth::{Exchange, Explanation, Group, Key, Keys};
use nearside_front_tcp::{Offer, Options, Server};
use nearside_spec::fabrics::authentication::id;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{Connect, ConnectData, FabricsCommand, Property, Security, at};
use nearside_spec::fabrics::pdu::{self, DataHeader, Fatal, Initialize, Pdu, Terms};
use nearside_spec::fabrics::status;
use nearside_spec::opcode::{admin, io};
use nearside_spec::registers as reg;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Dram;

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

/// A server to which [`HOST`] proves itself, and anybody else need not.
fn asking(options: Options, both: bool) -> (Server<Dram, ()>, Keys) {
    let (keys, credentials) = keys(&[Group::Null], both);
    let offer = Offer { credentials: vec![(HOST.to_owned(), credentials)], ..offer(1 << 20) };
    (serve(offer, options), keys)
}

fn failures(server: &Server<Dram, ()>) -> u64 {
    server.target().counters.not_authenticated.load(Ordering::Relaxed)
}

#[test]
fn nothing_is_taken_of_a_queue_before_its_host_has_proved_who_it_is() {
    let (server, keys) = asking(Options::default(), true);
    let address = server.addresses()[0];
    let refused = status::AUTHENTICATION_REQUIRED.dnr();
    let (mut admin, cntlid) = Raw::asked(address, 0, 0xffff);
    let get = FabricsCommand::PropertyGet(Property { attrib: 1, offset: 0, value: 0 }).encode();
    let set = FabricsCommand::PropertySet(Property { attrib: 0, offset: 0x14, value: 0x0046_0001 }).encode();
    let disconnect = FabricsCommand::Disconnect { recfmt: 0 }.encode();
    let mut identify = SubmissionEntry::new(admin::IDENTIFY, 0, 0);
    identify.cdw[10] = 1;
    CapsuleData::Transport { len: 4096 }.put(&mut identify);
    for entry in [get, set, disconnect, identify, SubmissionEntry::new(admin::KEEP_ALIVE, 0, 0)] {
        assert_eq!(admin.run(entry, &[]).status(), refused, "{entry:?}");
    }
    assert_eq!(admin.prove(&keys, |_| ()), None);
    assert!(server.target().connected()[0].authenticated);
    admin.enable();
    // Each queue by itself.
    let (mut queue, _) = Raw::asked(address, 1, cntlid);
    for opcode in [io::READ, io::WRITE] {
        assert_eq!(queue.run(transfer(opcode, 0, 8, 4096), &[]).status(), refused);
    }
    assert_eq!(queue.prove(&keys, |_| ()), None);
    good_read(&mut queue);
    // Again, at any time; who then fails loses the queue.
    assert_eq!(queue.prove(&keys, |_| ()), None);
    good_read(&mut queue);
    let other = Keys { host: Key::generate(None, 32).unwrap(), ..keys.clone() };
    assert_eq!(queue.prove(&other, |_| ()), Some(Explanation::FAILED));
    assert_eq!((queue.ending(), failures(&server)), (None, 1));
    assert_eq!(server.target().counters.authenticated.load(Ordering::Relaxed), 3);
    // Others need not, and cannot.
    let (mut free, _) = Raw::admin_of("nqn.2026-11.dev.nearside:other", address, 0);
    assert_eq!(free.auth_send(&[0; 72]), Status::INVALID_FIELD.dnr());
}

#[test]
fn an_exchange_that_breaks_the_rules_fails_as_specified() {
    let (server, keys) = asking(Options { failure_ns: 0, ..Options::default() }, false);
    let address = server.addresses()[0];
    let asked = || Raw::asked(address, 0, 0xffff).0;
    // Commands that are none: the exchange can still be begun.
    let mut raw = asked();
    let invalid = Status::INVALID_FIELD.dnr();
    let good = Security::message(4096);
    for security in [Security { secp: 0, ..good }, Security { spsp: 1, ..good }, Security { len: 0, ..good }]
    {
        let mut receive = FabricsCommand::AuthenticationReceive(security).encode();
        CapsuleData::Transport { len: security.len }.put(&mut receive);
        assert_eq!(raw.run(receive, &[]).status(), invalid);
        let send = FabricsCommand::AuthenticationSend(security).encode();
        assert_eq!(raw.run(send, &vec![0; security.len as usize]).status(), invalid);
    }
    let huge = FabricsCommand::AuthenticationReceive(Security::message(u32::MAX)).encode();
    assert_eq!(raw.run(huge, &[]).status(), invalid);
    let longer = FabricsCommand::AuthenticationSend(Security::message(73)).encode();
    assert_eq!(raw.run(longer, &[0; 72]).status(), Status::INVALID_SGL_LENGTH.dnr());
    let receive = FabricsCommand::AuthenticationReceive(good).encode();
    assert_eq!(raw.run(receive, &[]).status(), Status::INVALID_SGL_LENGTH.dnr());
    assert_eq!(raw.prove(&keys, |_| ()), None);
    // Messages that are none, each told by a failure, and the connection ends.
    let fails = |raw: &mut Raw, why: Explanation| {
        let message = raw.auth_receive(64);
        assert_eq!((message[1], message[7]), (id::FAILURE1, why.0));
        assert_eq!(raw.ending(), None);
    };
    fails(&mut asked(), Explanation::INCORRECT_MESSAGE);
    let negotiate = Exchange::new(&keys, HOST, NQN).unwrap().negotiate();
    for (message, why) in [
        (&[0][..], Explanation::INCORRECT_PAYLOAD),
        (&[0xff; 8192], Explanation::INCORRECT_MESSAGE),
        (&negotiate[..70], Explanation::INCORRECT_PAYLOAD),
        (&[1, id::REPLY, 0, 0, 1, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0], Explanation::INCORRECT_MESSAGE),
        (&[1, id::SUCCESS2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Explanation::INCORRECT_MESSAGE),
    ] {
        let mut raw = asked();
        assert_eq!(raw.auth_send(message), Status::SUCCESS);
        fails(&mut raw, why);
    }
    // Of another transaction; damaged; again, once it has succeeded.
    for (at, why) in [(4, Explanation::INCORRECT_PAYLOAD), (20, Explanation::FAILED)] {
        let mut raw = asked();
        assert_eq!(raw.prove(&keys, |reply| reply[at] ^= 1), Some(why));
        assert_eq!(raw.ending(), None);
    }
    let (mut raw, mut reply) = (asked(), Vec::new());
    assert_eq!(raw.prove(&keys, |sent| reply.clone_from(sent)), None);
    assert_eq!(raw.auth_send(&reply), Status::SUCCESS);
    fails(&mut raw, Explanation::INCORRECT_MESSAGE);
    // Less room than the message needs.
    let mut raw = asked();
    assert_eq!(raw.auth_send(&negotiate), Status::SUCCESS);
    let mut small = FabricsCommand::AuthenticationReceive(Security::message(16)).encode();
    CapsuleData::Transport { len: 16 }.put(&mut small);
    assert_eq!(raw.run(small, &[]).status(), invalid);
    fails(&mut raw, Explanation::FAILED);
    // The host says that it has failed; it goes in the middle.
    let mut raw = asked();
    assert_eq!(raw.auth_send(&negotiate), Status::SUCCESS);
    let t_id = raw.auth_receive(4096)[4..6].to_vec();
    assert_eq!(raw.auth_send(&[&[0, id::FAILURE2, 0, 0], &t_id[..], &[1, 1]].concat()), Status::SUCCESS);
    assert_eq!(raw.ending(), None);
    let before = failures(&server);
    let mut raw = asked();
    assert_eq!(raw.auth_send(&negotiate), Status::SUCCESS);
    drop(raw);
    until("it counts", || failures(&server) == before + 1);
}

/// Whoever has failed waits, and holds nobody; so does one that says nothing, but not without end.
#[test]
fn a_host_that_has_failed_waits() {
    let options = Options { failure_ns: 3_600_000_000_000, patience_ns: 2_000_000_000, ..Options::default() };
    let (server, keys) = asking(options, false);
    let address = server.addresses()[0];
    let (mut silent, _) = Raw::asked(address, 0, 0xffff);
    let (mut raw, _) = Raw::asked(address, 0, 0xffff);
    let other = Keys { host: Key::generate(None, 32).unwrap(), controller: None };
    assert_eq!(raw.prove(&other, |_| ()), Some(Explanation::FAILED));
    // The right key comes too early now: its challenge is not there before its patience has ended.
    let (mut raw, _) = Raw::asked(address, 0, 0xffff);
    assert_eq!(raw.auth_send(&Exchange::new(&keys, HOST, NQN).unwrap().negotiate()), Status::SUCCESS);
    let mut receive = FabricsCommand::AuthenticationReceive(Security::message(4096)).encode();
    CapsuleData::Transport { len: 4096 }.put(&mut receive);
    raw.command(receive, &[]);
    let (_admin, cntlid) = Raw::admin_of("nqn.2026-11.dev.nearside:other", address, 0);
    good_read(&mut Raw::io_of("nqn.2026-11.dev.nearside:other", address, cntlid, 1));
    assert!(raw.receive().is_none());
    assert_eq!(silent.ending(), None);
    until("it counts", || failures(&server) == 2);
    assert!(server.target().counters.slow.load(Ordering::Relaxed) >= 2);
}
