//! Peers that are slow, or take more than their share: what they owe is waited for at a rate, what hosts
//! share is shared out by host, and nobody else notices. Time is simulated: it stands until a test lets some
//! pass.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::raw::*;
use nearside_clock::SimClock;
use nearside_front_tcp::{Counters, Options, Server};
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{Connect, ConnectData, FabricsCommand};
use nearside_spec::fabrics::pdu::{self, DataHeader, Initialize, Pdu};
use nearside_spec::fabrics::status;
use nearside_spec::opcode::io;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Dram;

const SECOND: u64 = 1_000_000_000;
const SLOW: &str = "nqn.2026-11.dev.nearside:slow";

/// A server that sleeps whenever there is nothing to do, as its clock may never say that it has waited long
/// enough.
fn simulated(options: Options) -> (Server<Dram, ()>, SimClock) {
    let clock = SimClock::new();
    (serve_by(clock.clone(), offer(64 << 20), Options { idle_ns: 0, ..options }), clock)
}

fn count(server: &Server<Dram, ()>, counter: fn(&Counters) -> &AtomicU64) -> u64 {
    counter(&server.target().counters).load(Ordering::Relaxed)
}

const MIB: u32 = 1 << 20;

/// Writes of 1 MiB that a host has begun; the R2Ts that it gets for them before a flush is answered.
fn begin_writes(queue: &mut Raw, writes: u32) -> Vec<pdu::ReadyToTransfer> {
    for _ in 0..writes {
        queue.command(transfer(io::WRITE, 0, 2048, MIB), &[]);
    }
    queue.command(SubmissionEntry::new(io::FLUSH, 0, 1), &[]);
    let mut asked = Vec::new();
    loop {
        match queue.receive() {
            Some((Pdu::ReadyToTransfer(r2t), _)) => asked.push(r2t),
            Some((Pdu::Response(entry), _)) if entry.status().is_success() => return asked,
            other => panic!("{other:?}"),
        }
    }
}

fn data_of(r2t: &pdu::ReadyToTransfer) -> DataHeader {
    DataHeader { cccid: r2t.cccid, ttag: r2t.ttag, offset: 0, len: r2t.len, last: true, success: false }
}

/// A write of 1 MiB, by R2T.
fn good_write(good: &mut Raw) {
    let cid = good.command(transfer(io::WRITE, 0, 2048, MIB), &[]);
    let Some((Pdu::ReadyToTransfer(r2t), _)) = good.receive() else { panic!("no R2T") };
    good.put(&[&data_of(&r2t).host(&PLAIN)[..], &vec![0x77; MIB as usize]].concat());
    let done = good.response();
    assert_eq!((done.cid(), done.status()), (cid, Status::SUCCESS));
}

#[test]
fn a_slow_writer_leaves_others_their_buffers_and_is_let_go_of() {
    let (server, clock) = simulated(Options { staging: 64 << 20, ..Options::default() });
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    let (_slow_admin, slow_cntlid) = Raw::admin_of(SLOW, address, 0);
    let mut slow = Raw::io_of(SLOW, address, slow_cntlid, 1);
    // More than the memory of all that wait for their hosts' data.
    let asked = begin_writes(&mut slow, 100);
    assert_eq!(asked.len(), 16, "half of the half that waits for hosts' data");
    for _ in 0..20 {
        good_write(&mut good);
        good_read(&mut good);
    }
    // A byte every five seconds, of 1 MiB that has 62 s.
    slow.put(&data_of(&asked[0]).host(&PLAIN));
    let received = || count(&server, |c| &c.received);
    let mut expected = {
        good_read(&mut good);
        received()
    };
    for step in 1..=12 {
        slow.put(&[1]);
        expected += 1;
        until("the byte is there", || received() >= expected);
        clock.advance(5 * SECOND);
        good_read(&mut good);
        expected += 72;
        assert_eq!(count(&server, |c| &c.slow), 0, "{} s", 5 * step);
    }
    clock.advance(3 * SECOND);
    until("it is let go of", || count(&server, |c| &c.slow) == 1);
    assert_eq!(slow.ending(), None);
    // What it held is others' again.
    assert_eq!(begin_writes(&mut good, 30).len(), 16);
}

#[test]
fn bytes_that_trickle_in_do_not_keep_a_connection() {
    let (server, clock) = simulated(Options::default());
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    // One that broke the rules, and goes on sending.
    let mut wrong = Raw::open(address);
    wrong.put(&[0x55; 128]);
    assert!(wrong.receive().is_some());
    // ICReq, Connect and a command, byte by byte.
    let initialize =
        Initialize { version: 0, alignment_z: 0, header_digest: false, data_digest: false, limit: 0 };
    let mut connect =
        FabricsCommand::Connect(Connect { recfmt: 0, qid: 0, sqsize_z: 31, cattr: 0, kato: 0 }).encode();
    CapsuleData::InCapsule { offset: 0, len: ConnectData::SIZE as u32 }.put(&mut connect);
    let read = transfer(io::READ, 0, 8, 4096);
    let capsules = [
        initialize.request().to_vec(),
        pdu::command(&connect, ConnectData::SIZE as u32, &PLAIN).to_vec(),
        pdu::command(&read, 0, &PLAIN).to_vec(),
    ];
    let mut slow = [Raw::open(address), Raw::initialized(address), Raw::io(address, cntlid, 2)];
    let received = || count(&server, |c| &c.received);
    good_read(&mut good);
    let mut expected = received();
    for second in 0..30 {
        for (raw, bytes) in slow.iter_mut().zip(&capsules) {
            raw.put(&bytes[second..second + 1]);
            expected += 1;
        }
        if second < 2 {
            wrong.put(&[0]);
            expected += 1;
        }
        until("they are there", || received() >= expected);
        if second > 2 {
            until("who broke the rules had two seconds", || count(&server, |c| &c.slow) == 1);
        }
        clock.advance(if second == 29 { SECOND / 2 } else { SECOND });
        good_read(&mut good);
        expected = received();
    }
    assert_eq!(count(&server, |c| &c.slow), 1, "29.5 s");
    clock.advance(SECOND);
    until("they are let go of", || count(&server, |c| &c.slow) == 4);
    for raw in &mut slow {
        assert!(matches!(raw.socket.read(&mut [0; 1]), Ok(0) | Err(_)), "it was closed");
    }
    good_read(&mut good);
}

/// Sends as long as the peer takes it.
fn flood(raw: &mut Raw, bytes: &[u8]) -> usize {
    raw.socket.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while sent < bytes.len() {
        match raw.socket.write(&bytes[sent..]) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(e) => panic!("{e}"),
        }
    }
    raw.socket.set_nonblocking(false).unwrap();
    sent
}

#[test]
fn who_sends_and_never_reads_wakes_nobody_and_is_let_go_of() {
    let (server, clock) = simulated(Options::default());
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    let (_deaf_admin, deaf_cntlid) = Raw::admin_of(SLOW, address, 0);
    let mut deaf = Raw::io_of(SLOW, address, deaf_cntlid, 1);
    for _ in 0..120 {
        deaf.command(transfer(io::READ, 0, 2048, MIB), &[]);
    }
    // Until nothing more of it is taken, and nothing more of it goes out.
    let others = |good: &mut Raw| {
        let before = (count(&server, |c| &c.sent), count(&server, |c| &c.commands));
        (0..50).for_each(|_| good_read(good));
        let after = (count(&server, |c| &c.sent), count(&server, |c| &c.commands));
        // What was just sent may not be counted yet.
        let sent = (after.0 - before.0).abs_diff(50 * (24 + 4096 + 24));
        sent > 8192 || after.1 - before.1 > 50
    };
    let mut quiet = 0;
    while quiet < 5 {
        quiet = if others(&mut good) { 0 } else { quiet + 1 };
    }
    // What it still sends stays where it is: far more than would be read of it, if it were read.
    flood(&mut deaf, &vec![0; 64 << 20]);
    (0..50).for_each(|_| good_read(&mut good));
    let before = count(&server, |c| &c.fruitless);
    (0..500).for_each(|_| good_read(&mut good));
    let wakes = count(&server, |c| &c.fruitless) - before;
    assert!(wakes <= 50, "{wakes} times the thread was told of what it would not take");
    assert_eq!((count(&server, |c| &c.slow), count(&server, |c| &c.refused)), (0, 0));
    clock.advance(31 * SECOND);
    until("it is let go of", || count(&server, |c| &c.slow) == 1);
    good_read(&mut good);
}

/// Whether a Connect of a host on a new connection is accepted, and that connection.
fn try_connect(address: std::net::SocketAddr, host: &str, qid: u16, cntlid: u16) -> (Raw, Status) {
    let mut raw = Raw::initialized(address);
    let connect = Connect { recfmt: 0, qid, sqsize_z: 31, cattr: 0, kato: 0 };
    let done = raw.connect_as(connect, &ConnectData::new([7; 16], host, NQN, cntlid));
    (raw, done.status())
}

#[test]
fn a_host_has_so_many_connections_and_an_address_so_many_strangers() {
    let options = Options { connections: 64, per_host: 4, per_address: 6, ..Options::default() };
    let server = serve(offer(1 << 20), options);
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut queues: Vec<Raw> = (1..4).map(|qid| Raw::io(address, cntlid, qid)).collect();
    let (refused, busy) = try_connect(address, HOST, 4, cntlid);
    assert_eq!(busy, status::CONTROLLER_BUSY);
    assert_eq!(try_connect(address, HOST, 0, 0xffff).1, status::CONTROLLER_BUSY);
    assert_eq!(count(&server, |c| &c.over_quota), 2);
    // Another host, be it of the same identifier, has its own.
    let (_other, good) = try_connect(address, SLOW, 0, 0xffff);
    assert_eq!(good, Status::SUCCESS);
    queues.pop();
    until("one has gone", || server.target().connected().iter().all(|host| host.queues <= 2));
    until("there is room", || try_connect(address, HOST, 4, cntlid).1 == Status::SUCCESS);
    drop(refused);
    // Who does not say who he is: six from one address.
    let open = |server: &Server<Dram, ()>| count(server, |c| &c.open);
    let known = 4;
    until("the strangers have gone", || open(&server) == known);
    let mut strangers: Vec<Raw> = (0..6).map(|_| Raw::initialized(address)).collect();
    assert_eq!(open(&server), known + 6);
    let before = count(&server, |c| &c.turned_away);
    let mut seventh = Raw::open(address);
    assert!(matches!(seventh.socket.read(&mut [0; 1]), Ok(0) | Err(_)), "it is closed at once");
    assert_eq!(count(&server, |c| &c.turned_away), before + 1);
    strangers.pop();
    until("there is room for one", || open(&server) == known + 5);
    strangers.push(Raw::initialized(address));
}
