//! The target by our own initiator: every size with every digest, many hosts, names and namespaces.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::raw::{HOST, NQN, PLAIN, Raw, keys, namespace, offer, serve, transfer, until};
use nearside_auth::{Group, Key, Keys};
use nearside_clock::TscClock;
use nearside_device::{AnaState, PortStates};
use nearside_driver::tcp::{Address, Association, Options as HostOptions, discover, namespaces};
use nearside_driver::{Command, Controller, Error, Failure, Host, Initiator, Policy, Threaded};
use nearside_front_tcp::{Offer, Options, Server};
use nearside_spec::fabrics::pdu::{DataHeader, Pdu};
use nearside_spec::log::lid;
use nearside_spec::opcode::io;
use nearside_spec::{Status, fabrics};
use nearside_store::Dram;

fn address(at: SocketAddr, subsystem: &str) -> Address {
    Address { host: at.ip().to_string(), port: at.port(), subsystem: subsystem.into(), nsid: None }
}

fn connect(server: &Server<Dram, ()>, options: HostOptions) -> Result<Association, Error> {
    Association::connect(&address(server.addresses()[0], NQN), options, Arc::new(TscClock::new()))
}

fn host() -> HostOptions {
    HostOptions { keep_alive_ms: 0, timeout_ms: 60_000, ..HostOptions::for_host(HOST).unwrap() }
}

type Queue = Initiator<Threaded, TscClock, Association>;

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn data_of_every_size_arrive_with_every_digest() {
    for (threads, header_digest, data_digest) in
        [(1, false, false), (1, true, false), (3, false, true), (2, true, true)]
    {
        let offer = Offer { mdts: 10, ..offer(64 << 20) };
        let server = serve(offer, Options { threads, ..Options::default() });
        let controller = connect(&server, HostOptions { header_digest, data_digest, ..host() }).unwrap();
        for queue in 0..3u64 {
            let mut initiator = controller.initiator(16, Policy::Hybrid, TscClock::new()).unwrap();
            assert_eq!(initiator.queue().digests(), (header_digest, data_digest));
            for (nr, len) in
                [512, 4096, 8192, 8704, 65_536, 262_144, 1 << 20, 4 << 20].into_iter().enumerate()
            {
                let bytes = pattern(len, nr as u64 + queue);
                let (slba, blocks) = (nr as u64 * 3 + queue * 16384, (len / 512) as u32);
                let write = initiator.execute(&Command::write(1, slba, blocks), Some(bytes.clone())).unwrap();
                assert_eq!((write.outcome, write.moved), (Ok(0), len));
                let read = initiator.execute(&Command::read(1, slba, blocks), Some(vec![0xee; len])).unwrap();
                assert_eq!((read.outcome, read.moved), (Ok(0), len));
                assert!(read.buffer.unwrap() == bytes, "{len} bytes");
                assert_eq!(initiator.execute(&Command::flush(1), None).unwrap().outcome, Ok(0));
            }
            for (command, len, status) in [
                (Command::read(1, 131_072, 1), Some(512), Status::LBA_OUT_OF_RANGE),
                (Command::read(1, u64::MAX, 1), Some(512), Status::LBA_OUT_OF_RANGE),
                (Command::write(1, 131_071, 2), Some(1024), Status::LBA_OUT_OF_RANGE),
                (Command::read(2, 0, 1), Some(512), Status::INVALID_NAMESPACE),
                // The buffer is not as long as the blocks.
                (Command::read(1, 0, 4), Some(512), Status::INVALID_SGL_LENGTH),
                (Command::write(1, 0, 1), Some(16384), Status::INVALID_SGL_LENGTH),
                (Command::raw(0x70, 1), None, Status::INVALID_OPCODE),
            ] {
                let buffer = len.map(|len| vec![0; len]);
                let done = initiator.execute(&command, buffer).unwrap();
                let Err(Failure::Status(got)) = done.outcome else { panic!("{:?}", done.outcome) };
                assert_eq!(got.code(), status);
            }
        }
        drop(controller);
        until("the host is gone", || server.target().connected().is_empty());
    }
}

#[test]
fn a_read_is_answered_by_its_data_alone() {
    const READS: u64 = 64;
    let server = serve(offer(1 << 20), Options::default());
    let controller = connect(&server, host()).unwrap();
    let mut initiator = controller.initiator(8, Policy::Polled, TscClock::new()).unwrap();
    let sent = || server.target().counters.sent.load(Ordering::Relaxed);
    let before = sent();
    for _ in 0..READS {
        let read = initiator.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap();
        assert_eq!((read.outcome, read.moved), (Ok(0), 4096));
    }
    // Headers of 24 bytes, and no response capsules, which are as long. What came before may not all have
    // been counted then.
    let least = READS * (24 + 4096);
    until("all is counted", || sent() - before >= least);
    assert!(sent() - before < least + 4 * 24, "{} bytes more", sent() - before - least);
}

#[test]
fn a_host_and_its_subsystem_prove_who_they_are() {
    for (threads, group, both) in
        [(1, Group::Null, false), (2, Group::Ffdhe2048, true), (1, Group::Ffdhe8192, true)]
    {
        let (keys, credentials) = keys(&[group], both);
        let offer = Offer { credentials: vec![(HOST.to_owned(), credentials)], ..offer(1 << 20) };
        let server = serve(offer, Options { threads, failure_ns: 0, ..Options::default() });
        // Our own digests as well.
        let with = |keys: Option<Keys>| {
            connect(&server, HostOptions { keys, data_digest: true, header_digest: both, ..host() })
        };
        let controller = with(Some(keys.clone())).unwrap();
        for _ in 0..2 {
            let mut initiator = controller.initiator(4, Policy::Polled, TscClock::new()).unwrap();
            let read = initiator.execute(&Command::read(1, 0, 8), Some(vec![1; 4096])).unwrap();
            assert_eq!((read.outcome, read.moved), (Ok(0), 4096));
        }
        let other = || Key::generate(None, 48).unwrap();
        let failed = "Authentication failed";
        for (keys, said) in [
            (None, "there is no key"),
            (Some(Keys { host: other(), ..keys.clone() }), failed),
            (Some(Keys { controller: Some(other()), ..keys.clone() }), failed),
        ] {
            let error = with(keys).unwrap_err();
            assert!(matches!(&error, Error::Refused { why, .. } if why.contains(said)), "{error}");
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &server.target().counters;
        assert_eq!(count(&counters.authenticated), 3);
        until("both count", || count(&counters.not_authenticated) == 2);
        // A host that wants a proof does not go on without one, where none is asked of itself.
        let wary = HostOptions { keys: Some(Keys { controller: Some(other()), ..keys }), ..host() };
        let stranger = HostOptions { host_nqn: "nqn.2026-11.dev.nearside:stranger".into(), ..wary };
        assert!(connect(&server, stranger).is_err());
        assert!(
            discover(
                &address(server.addresses()[0], fabrics::nqn::DISCOVERY),
                host(),
                Arc::new(TscClock::new())
            )
            .is_ok()
        );
    }
}

/// A server follows what it is offered to prove: new exchanges are by the new key, who is there stays.
#[test]
fn another_key_holds_for_the_next_queue() {
    let ((old, credentials), (new, others)) = (keys(&[Group::Null], false), keys(&[Group::Null], false));
    let first = Offer { credentials: vec![(HOST.to_owned(), credentials)], ..offer(1 << 20) };
    let second = Offer {
        credentials: vec![(HOST.to_owned(), others)],
        ..Offer::new(NQN, "SERIAL", first.subsystem.clone())
    };
    let none = Offer::new(NQN, "SERIAL", first.subsystem.clone());
    let server = serve(first, Options { failure_ns: 0, ..Options::default() });
    let with = |keys: &Keys| connect(&server, HostOptions { keys: Some(keys.clone()), ..host() });
    let controller = with(&old).unwrap();
    let mut initiator = controller.initiator(4, Policy::Polled, TscClock::new()).unwrap();
    server.target().offer(second);
    assert!(controller.initiator(4, Policy::Polled, TscClock::new()).is_err());
    assert!(with(&old).is_err() && with(&new).is_ok());
    // Where there is no key any more, no queue of this controller begins without proof either.
    server.target().offer(none);
    assert!(controller.initiator(4, Policy::Polled, TscClock::new()).is_err());
    let read = initiator.execute(&Command::read(1, 0, 8), Some(vec![1; 4096])).unwrap();
    assert_eq!((read.outcome, read.moved), (Ok(0), 4096));
}

#[test]
fn a_refused_connect_says_what_was_wrong() {
    let server = serve(offer(1 << 20), Options::default());
    let said = |options: HostOptions, subsystem: &str| {
        let at = address(server.addresses()[0], subsystem);
        Association::connect(&at, options, Arc::new(TscClock::new())).unwrap_err().to_string()
    };
    let nameless = said(HostOptions { host_nqn: String::new(), ..host() }, NQN);
    assert!(nameless.contains("Connect Invalid Parameters: the host's name (HOSTNQN)"), "{nameless}");
    let other = said(host(), "nqn.2026-11.dev.nearside:other");
    assert!(other.contains("Connect Invalid Parameters: the subsystem's name (SUBNQN)"), "{other}");
    assert!(other.contains("nearside:other") && other.contains(HOST), "{other}");
}

#[test]
fn a_stop_waits_for_what_was_taken_and_for_nobody_else() {
    for threads in [1, 2] {
        let subsystem = offer(16 << 20).subsystem;
        let offer = || Offer::new(NQN, "SERIAL", subsystem.clone());
        let server = serve(offer(), Options { threads, ..Options::default() });
        let controller = connect(&server, host()).unwrap();
        // Hosts that never stop: each block's newest version that was acknowledged, by block.
        let begun = Arc::new(AtomicU64::new(0));
        let loads: Vec<_> = (0..3u64)
            .map(|nr| {
                let mut initiator = controller.initiator(16, Policy::Interrupt, TscClock::new()).unwrap();
                let begun = begun.clone();
                std::thread::spawn(move || {
                    let mut acknowledged = vec![0u64; 16];
                    let (mut version, mut lost) = (0u64, false);
                    while !lost {
                        version += 1;
                        let mut out = Vec::new();
                        for block in 0..16 {
                            // In the capsule, and by R2T.
                            let len = if block % 2 == 0 { 4096 } else { 32_768 };
                            let bytes = version.to_le_bytes().repeat(len / 8);
                            let write = Command::write(1, (nr * 16 + block) * 64, (len / 512) as u32);
                            match initiator.submit(&write, Some(bytes)) {
                                Ok(handle) => out.push((handle, block)),
                                Err(_) => lost = true,
                            }
                        }
                        for (handle, block) in out {
                            match initiator.wait(handle).outcome {
                                Ok(_) => acknowledged[block as usize] = version,
                                Err(_) => lost = true,
                            }
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                    (acknowledged, version)
                })
            })
            .collect();
        until("they write", || begun.load(Ordering::Relaxed) > 30);
        let stopped = Instant::now();
        let target = server.target().clone();
        drop(server);
        // It would be five seconds, if it waited until a host has nothing more to say.
        assert!(stopped.elapsed() < Duration::from_secs(4), "{:?}", stopped.elapsed());
        assert_eq!(target.counters.unanswered.load(Ordering::Relaxed), 0);
        let again = serve(offer(), Options::default());
        let controller = connect(&again, host()).unwrap();
        let mut initiator = controller.initiator(2, Policy::Interrupt, TscClock::new()).unwrap();
        for (nr, load) in loads.into_iter().enumerate() {
            let (acknowledged, last) = load.join().unwrap();
            for (block, acknowledged) in acknowledged.into_iter().enumerate() {
                let read = Command::read(1, (nr * 16 + block) as u64 * 64, 8);
                let bytes = initiator.execute(&read, Some(vec![0; 4096])).unwrap().buffer.unwrap();
                let there = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                assert!((acknowledged..=last).contains(&there), "{there} of {acknowledged}, {last}");
            }
        }
    }
}

#[test]
fn a_stop_waits_for_data_that_a_host_owes_and_says_if_they_never_come() {
    for (threads, sends) in [(1, true), (3, true), (1, false)] {
        let server = serve(offer(1 << 20), Options { threads, ..Options::default() });
        let address = server.addresses()[0];
        let (mut admin, cntlid) = Raw::admin(address, 0);
        let mut queues: Vec<Raw> = (1..4).map(|qid| Raw::io(address, cntlid, qid)).collect();
        let queue = &mut queues[1];
        let cid = queue.command(transfer(io::WRITE, 0, 128, 65536), &[]);
        let Some((Pdu::ReadyToTransfer(r2t), _)) = queue.receive() else { panic!("no R2T") };
        let target = server.target().clone();
        let stop = std::thread::spawn(move || drop(server));
        until("it stops", || std::net::TcpStream::connect(address).is_err());
        // Nothing new is taken.
        queue.command(transfer(io::READ, 0, 8, 4096), &[]);
        if sends {
            let header =
                DataHeader { cccid: cid, ttag: r2t.ttag, offset: 0, len: 65536, last: true, success: false };
            queue.put(&[header.host(&PLAIN).to_vec(), vec![1; 65536]].concat());
            let done = queue.response();
            assert_eq!((done.cid(), done.status()), (cid, Status::SUCCESS));
        }
        for queue in &mut queues {
            assert_eq!(queue.ending(), None);
        }
        assert_eq!(admin.ending(), None);
        stop.join().unwrap();
        assert_eq!(target.counters.unanswered.load(Ordering::Relaxed), u64::from(!sends));
    }
}

#[test]
fn hosts_come_and_go_by_the_thousand() {
    let server = serve(offer(1 << 20), Options::default());
    for round in 0..4000u32 {
        let controller = connect(&server, host()).unwrap();
        // Some leave with a queue, some with a command out, some at once.
        if round % 3 > 0 {
            let mut initiator = controller.initiator(4, Policy::Interrupt, TscClock::new()).unwrap();
            assert_eq!(
                initiator.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap().outcome,
                Ok(0)
            );
            if round % 3 == 2 {
                let _ = initiator.submit(&Command::read(1, 0, 8), Some(vec![0; 4096]));
            }
        }
    }
    until("all are gone", || server.target().connected().is_empty());
    assert!(server.target().counters.controllers.load(Ordering::Relaxed) >= 4000);
}

#[test]
fn a_quarter_of_a_thousand_queues_work_at_once() {
    let server = serve(offer(16 << 20), Options { threads: 2, ..Options::default() });
    let controllers: Vec<Association> = (0..5).map(|_| connect(&server, host()).unwrap()).collect();
    let mut queues = Vec::new();
    for controller in &controllers {
        for _ in 0..52 {
            queues.push(controller.initiator(8, Policy::Interrupt, TscClock::new()).unwrap());
        }
    }
    assert_eq!(queues.len(), 260);
    for round in 0..3u64 {
        let mut out = Vec::new();
        for (nr, queue) in queues.iter_mut().enumerate() {
            let at = nr as u64 * 64;
            let bytes = pattern(16384, at + round);
            out.push(queue.submit(&Command::write(1, at, 32), Some(bytes)).unwrap());
        }
        for (queue, handle) in queues.iter_mut().zip(out) {
            assert_eq!(queue.wait(handle).outcome, Ok(0));
        }
        for (nr, queue) in queues.iter_mut().enumerate() {
            let at = nr as u64 * 64;
            let read = queue.execute(&Command::read(1, at, 32), Some(vec![0; 16384])).unwrap();
            assert!(read.buffer.unwrap() == pattern(16384, at + round));
        }
    }
}

#[test]
fn namespaces_come_and_go_under_hosts() {
    let offer = offer(1 << 20);
    let subsystem = offer.subsystem.clone();
    let server = serve(offer, Options::default());
    let controller = connect(&server, host()).unwrap();
    assert_eq!(controller.namespaces(&mut Host::threaded(TscClock::new())).unwrap(), [1]);
    subsystem.add(3, namespace(3, 2 << 20)).unwrap();
    assert_eq!(controller.namespaces(&mut Host::threaded(TscClock::new())).unwrap(), [1, 3]);
    assert_eq!(controller.namespace(Some(3), &mut Host::threaded(TscClock::new())).unwrap().blocks, 4096);
    let changed = controller
        .log_page(lid::CHANGED_NAMESPACES, 0xffff_ffff, 0, 8, &mut Host::threaded(TscClock::new()))
        .unwrap();
    assert_eq!(changed, [3, 0, 0, 0, 0, 0, 0, 0]);
    let mut initiator = controller.initiator(4, Policy::Polled, TscClock::new()).unwrap();
    assert_eq!(initiator.execute(&Command::read(3, 0, 8), Some(vec![0; 4096])).unwrap().outcome, Ok(0));
    let weak = Arc::downgrade(&subsystem.remove(3).unwrap());
    let done = initiator.execute(&Command::read(3, 0, 8), Some(vec![0; 4096])).unwrap();
    assert_eq!(
        done.outcome.unwrap_err(),
        Failure::Status(Status(Status::INVALID_NAMESPACE.dnr().0 | 1 << 13))
    );
    until("the namespace is let go of", || weak.upgrade().is_none());
}

/// As many as an answer to Identify has room for, which may go on.
#[test]
fn all_namespaces_of_a_subsystem_are_listed() {
    let offer = Offer { hosts: Some(vec![HOST.to_owned()]), ..offer(1 << 20) };
    let subsystem = offer.subsystem.clone();
    let server = serve(offer, Options::default());
    let listed = |options: HostOptions| {
        namespaces(&address(server.addresses()[0], NQN), options, Arc::new(TscClock::new()))
    };
    assert_eq!(listed(host()).unwrap(), [1]);
    for nsid in (2..=1024).rev() {
        subsystem.add(nsid, namespace(2, 4096)).unwrap();
    }
    assert_eq!(listed(host()).unwrap(), (1..=1024).collect::<Vec<u32>>());
    let refused = listed(HostOptions::for_host("nqn.2026-11.dev.nearside:stranger").unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
}

#[test]
fn subsystems_are_found_by_those_who_may() {
    let offer = Offer { hosts: Some(vec![HOST.to_owned()]), ..offer(1 << 20) };
    let server = serve(offer, Options::default());
    let at = server.addresses()[0];
    let find = |options: HostOptions| {
        let found =
            discover(&address(at, fabrics::nqn::DISCOVERY), options, Arc::new(TscClock::new())).unwrap();
        let all = found.iter().map(|e| (e.subtype(), e.address(), e.port()));
        all.filter(|(subtype, ..)| *subtype == fabrics::discovery::subtype::NVM).collect::<Vec<_>>()
    };
    assert_eq!(find(host()), [(2, "127.0.0.1".to_owned(), at.port().to_string())]);
    let stranger = || HostOptions::for_host("nqn.2026-11.dev.nearside:stranger").unwrap();
    assert_eq!(find(stranger()), []);
    assert!(connect(&server, host()).is_ok());
    assert!(connect(&server, stranger()).is_err());
}

#[test]
fn hosts_are_told_of_the_address_that_they_reach() {
    let server = serve(offer(1 << 20), Options::default());
    let at = server.addresses()[0];
    let find = || {
        let clock = Arc::new(TscClock::new());
        let found = discover(&address(at, fabrics::nqn::DISCOVERY), host(), clock).unwrap();
        found.iter().map(|e| (e.subtype(), e.adrfam(), e.address(), e.port())).collect::<Vec<_>>()
    };
    let told = |adrfam, ip: &str, port: u16| {
        [2, 3].map(|subtype| (subtype, adrfam, ip.to_owned(), port.to_string()))
    };
    assert_eq!(find(), told(1, "127.0.0.1", at.port()));
    for (word, adrfam, ip, port) in
        [("192.0.2.7:4444", 1, "192.0.2.7", 4444), ("[2001:db8::7]:4420", 2, "2001:db8::7", 4420)]
    {
        server.target().advertise(0, word.parse().unwrap());
        assert_eq!(find(), told(adrfam, ip, port));
    }
    // Of an address that nobody listens at, nobody hears.
    server.target().advertise(1, "192.0.2.8:1".parse().unwrap());
    assert_eq!(find().len(), 2);
}

#[test]
fn a_host_has_the_states_of_the_address_that_it_came_by() {
    let offer = offer(1 << 20);
    let subsystem = offer.subsystem.clone();
    let server = serve(offer, Options { threads: 2, ..Options::default() });
    let more = || TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(server.listen(more()).unwrap(), 1);
    let by = |nth: usize| {
        let at = address(server.addresses()[nth], NQN);
        let controller = Association::connect(&at, host(), Arc::new(TscClock::new())).unwrap();
        // A queue on each thread.
        let queues = [(); 2].map(|()| controller.initiator(4, Policy::Polled, TscClock::new()).unwrap());
        (controller, queues)
    };
    let (_first, mut good) = by(0);
    let (controller, mut barred) = by(1);
    let inaccessible = PortStates { all: AnaState::Inaccessible, ..PortStates::default() };
    subsystem.set_ana(1, inaccessible);
    let status = |queue: &mut Queue| {
        let done = queue.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap();
        match done.outcome {
            Ok(_) => Status::SUCCESS,
            Err(Failure::Status(status)) => status.code(),
            Err(failure) => panic!("{failure}"),
        }
    };
    for (good, barred) in good.iter_mut().zip(&mut barred) {
        // Each thread is told by itself.
        until("the state holds", || status(barred) == Status::ANA_INACCESSIBLE);
        assert_eq!(status(good), Status::SUCCESS);
    }
    // The address goes; whoever came by it stays as he came, and no other takes its number.
    server.stop_listening(1);
    assert_eq!(server.listen(more()).unwrap(), 2);
    subsystem.set_ana(2, PortStates::default());
    assert!(barred.iter_mut().all(|queue| status(queue) == Status::ANA_INACCESSIBLE));
    drop((barred, controller));
    until("the host has gone", || server.target().connected().len() == 1);
    assert_eq!(server.listen(more()).unwrap(), 1);
}
