//! Hosts that come over TLS: what is carried, what is not let in, and what a line between them sees.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::raw::{HOST, NQN, Raw, keys, offer, serve, until};
use nearside_auth::{Group, Hash, Keys, TlsKey};
use nearside_channel::{Channel, Tls};
use nearside_clock::TscClock;
use nearside_driver::tcp::{Address, Association, DiscoveryEntry, Options as HostOptions, discover};
use nearside_driver::{Command, Error, Policy};
use nearside_front_tcp::{Offer, Options, Server};
use nearside_spec::fabrics::command::{Connect, ConnectData};
use nearside_store::Dram;
use nearside_tls::OpenSsl;

fn address(at: SocketAddr) -> Address {
    Address { host: at.ip().to_string(), port: at.port(), subsystem: NQN.into(), nsid: None }
}

fn connect(at: SocketAddr, options: HostOptions) -> Result<Association, Error> {
    Association::connect(&address(at), options, Arc::new(TscClock::new()))
}

fn host(tls_key: Option<&TlsKey>) -> HostOptions {
    let own = HostOptions::for_host(HOST).unwrap();
    HostOptions {
        keep_alive_ms: 0,
        timeout_ms: 60_000,
        tls: tls_key.map(|key| (key.clone(), Tls::new(OpenSsl::default()))),
        ..own
    }
}

fn key() -> TlsKey {
    TlsKey::generate(Some(Hash::Sha256), 32).unwrap()
}

fn keyed(key: &TlsKey) -> Offer<Dram, ()> {
    Offer { mdts: 10, tls_keys: vec![(HOST.to_owned(), key.clone())], ..offer(64 << 20) }
}

fn with_tls() -> Options {
    Options { tls: Some(Tls::new(OpenSsl::default())), ..Options::default() }
}

/// Without a wait after a failure.
fn at_once() -> Options {
    Options { failure_ns: 0, ..with_tls() }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i * seed + 3) as u8).collect()
}

/// Writes and reads of many sizes, on some queues.
fn works(controller: &Association) {
    for queue in 0..3 {
        let mut initiator = controller.initiator(16, Policy::Hybrid, TscClock::new()).unwrap();
        for (nr, len) in [512, 4096, 8192, 8704, 16_384, 65_536, 262_144, 4 << 20].into_iter().enumerate() {
            let bytes = pattern(len, nr + 5 * queue);
            let (slba, blocks) = ((nr * 3 + queue * 16384) as u64, (len / 512) as u32);
            let write = initiator.execute(&Command::write(1, slba, blocks), Some(bytes.clone())).unwrap();
            assert_eq!((write.outcome, write.moved), (Ok(0), len));
            let read = initiator.execute(&Command::read(1, slba, blocks), Some(vec![0xee; len])).unwrap();
            assert_eq!((read.outcome, read.moved), (Ok(0), len));
            assert!(read.buffer.unwrap() == bytes, "{len} bytes");
        }
        // Many at once.
        let read =
            |nr: u64| initiator.submit(&Command::read(1, nr * 300, 256), Some(vec![0; 131_072])).unwrap();
        let handles: Vec<_> = (0..12).map(read).collect();
        handles.into_iter().for_each(|handle| assert_eq!(initiator.wait(handle).outcome, Ok(0)));
    }
}

#[test]
fn what_is_written_is_read_with_every_key() {
    for (nr, (hash, len)) in
        [(None, 32), (Some(Hash::Sha256), 32), (None, 48), (Some(Hash::Sha384), 48)].into_iter().enumerate()
    {
        let key = TlsKey::generate(hash, len).unwrap();
        let (own, credentials) = keys(&[Group::Ffdhe2048], true);
        // With digests, and with a proof of the other kind as well.
        let (digests, proves) = (nr % 2 == 0, nr == 3);
        let credentials = if proves { vec![(HOST.to_owned(), credentials)] } else { vec![] };
        let server =
            serve(Offer { credentials, ..keyed(&key) }, Options { threads: 1 + nr % 3, ..at_once() });
        let keys = proves.then_some(own);
        let options = HostOptions { header_digest: digests, data_digest: digests, keys, ..host(Some(&key)) };
        let controller = connect(server.addresses()[0], options).unwrap();
        works(&controller);
        let connected = server.target().connected();
        assert!(connected[0].encrypted && connected[0].authenticated == proves);
        drop(controller);
        until("the host is gone", || server.target().connected().is_empty());
        let counters = &server.target().counters;
        assert_eq!(counters.encrypted.load(Ordering::Relaxed), 4);
        assert_eq!(counters.not_encrypted.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn who_has_not_the_key_is_not_let_in() {
    let (key, other) = (key(), key());
    let server = serve(keyed(&key), at_once());
    let at = server.addresses()[0];
    // The host may know before it is counted.
    let not_encrypted = || server.target().counters.not_encrypted.load(Ordering::Relaxed);
    let failed = |count| {
        until("it is counted", || not_encrypted() >= count);
        assert_eq!(not_encrypted(), count);
    };
    let said = |options: HostOptions| connect(at, options).map(drop).unwrap_err().to_string();
    // Without TLS: of its name it may not, of another it may.
    assert!(said(host(None)).contains("does not allow the host"));
    let stranger = HostOptions { host_nqn: "nqn.2026-11.dev.nearside:other".into(), ..host(None) };
    connect(at, stranger.clone()).unwrap();
    failed(0);
    let refused = said(host(Some(&other)));
    assert!(refused.starts_with("TLS"), "{refused}");
    failed(1);
    // A name that has no key, with a key.
    said(HostOptions { tls: host(Some(&key)).tls, ..stranger.clone() });
    failed(2);
    server.target().require_tls(true);
    connect(at, stranger).map(drop).unwrap_err();
    failed(3);
    connect(at, host(Some(&key))).unwrap();
    // The key is another from now on: for those who come, not for those who are there.
    let there = connect(at, host(Some(&key))).unwrap();
    server
        .target()
        .offer(Offer { subsystem: server.target().offers()[0].subsystem.clone(), ..keyed(&other) });
    let mut clock = nearside_driver::Host::threaded(TscClock::new());
    nearside_driver::Controller::log_page(&there, 2, 0, 0, 512, &mut clock).unwrap();
    assert!(said(host(Some(&key))).starts_with("TLS"));
    connect(at, host(Some(&other))).unwrap();
}

/// Also once nobody has its key any more: who knows its names is not it.
#[test]
fn a_queue_in_the_clear_does_not_join_who_is_encrypted() {
    let key = key();
    let server = serve(keyed(&key), at_once());
    let at = server.addresses()[0];
    let controller = connect(at, host(Some(&key))).unwrap();
    let subsystem = server.target().offers()[0].subsystem.clone();
    server.target().offer(Offer { subsystem, ..offer(64 << 20) });
    let there = server.target().connected().remove(0);
    let join = |qid| {
        let connect = Connect { recfmt: 0, qid, sqsize_z: 31, cattr: 0, kato: 0 };
        let data = ConnectData::new(there.host_id, HOST, NQN, there.cntlid);
        Raw::initialized(at).connect_as(connect, &data).status()
    };
    assert!(there.encrypted && !join(1).is_success());
    drop(controller);
    // One that came in the clear is joined so.
    let controller = connect(at, host(None)).unwrap();
    let there = server.target().connected().into_iter().find(|c| c.cntlid == controller.id()).unwrap();
    let connect = Connect { recfmt: 0, qid: 1, sqsize_z: 31, cattr: 0, kato: 0 };
    let data = ConnectData::new(there.host_id, HOST, NQN, there.cntlid);
    assert!(Raw::initialized(at).connect_as(connect, &data).status().is_success());
}

#[test]
fn keys_of_authentication_make_a_secure_channel() {
    for (group, both) in [(Group::Ffdhe2048, false), (Group::Ffdhe3072, true)] {
        let (own, credentials) = keys(&[Group::Null, group], both);
        let credentials = vec![(HOST.to_owned(), credentials)];
        let server = serve(Offer { mdts: 10, credentials, ..offer(64 << 20) }, at_once());
        let line = line(server.addresses()[0], None);
        let with = |at, keys: &Keys| {
            let (keys, concatenates) = (Some(keys.clone()), Some(Tls::new(OpenSsl::default())));
            connect(at, HostOptions { keys, concatenates, ..host(None) })
        };
        let controller = with(line.at, &own).unwrap();
        works(&controller);
        let connected = server.target().connected();
        assert!(connected.len() == 1 && connected[0].encrypted && connected[0].authenticated);
        let counters = &server.target().counters;
        // The first of its connections proved it, for all.
        assert_eq!(counters.authenticated.load(Ordering::Relaxed), 1);
        assert_eq!(counters.encrypted.load(Ordering::Relaxed), 4);
        let seen = line.seen.lock().unwrap().clone();
        assert!(!seen.windows(6).any(|window| window == b"SERIAL"));
        // Another key generates nothing; and what was generated is of one host alone.
        let (other, _) = keys(&[group], both);
        assert!(with(line.at, &other).map(drop).unwrap_err().to_string().contains("Authentication failed"));
        assert_eq!(counters.not_encrypted.load(Ordering::Relaxed), 0);
        // Where the key is gone, what it generated opens nothing any more.
        let subsystem = server.target().offers()[0].subsystem.clone();
        server.target().offer(Offer { hosts: Some(vec![HOST.into()]), subsystem, ..offer(1 << 20) });
        let late = controller.initiator(4, Policy::Hybrid, TscClock::new());
        assert!(late.map(drop).unwrap_err().to_string().starts_with("TLS"));
    }
    // A server without TLS, and a host without keys.
    let (own, credentials) = keys(&[Group::Ffdhe2048], false);
    let offered = Offer { credentials: vec![(HOST.to_owned(), credentials)], ..offer(1 << 20) };
    let server = serve(offered, Options { failure_ns: 0, ..Options::default() });
    let concatenates = Some(Tls::new(OpenSsl::default()));
    let asked = HostOptions { keys: Some(own), concatenates: concatenates.clone(), ..host(None) };
    let said = connect(server.addresses()[0], asked).map(drop).unwrap_err().to_string();
    assert!(said.contains("Secure channel concatenation mismatch"), "{said}");
    let said = connect(server.addresses()[0], HostOptions { concatenates, ..host(None) });
    assert!(said.map(drop).unwrap_err().to_string().contains("there is no key"));
}

/// What goes on between a host and a server, by hand.
struct Line {
    at: SocketAddr,
    /// What went over it.
    seen: Arc<Mutex<Vec<u8>>>,
    /// From so many bytes to the host on, one is another.
    damaged: Arc<AtomicUsize>,
}

/// A line to `to`; as `psk` says, what a host sends without TLS goes on over it.
fn line(to: SocketAddr, psk: Option<(TlsKey, &'static str)>) -> Line {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (seen, damaged) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(usize::MAX)));
    let (kept, harm) = (seen.clone(), damaged.clone());
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(host) = socket else { return };
            let (kept, harm, psk) = (kept.clone(), harm.clone(), psk.clone());
            thread::spawn(move || carry(host, to, psk, &kept, &harm));
        }
    });
    Line { at, seen, damaged }
}

fn carry(
    mut host: TcpStream,
    to: SocketAddr,
    psk: Option<(TlsKey, &'static str)>,
    seen: &Mutex<Vec<u8>>,
    damaged: &AtomicUsize,
) {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_nonblocking(true).unwrap();
    host.set_nonblocking(true).unwrap();
    let mut target = Channel::plain(socket);
    if let Some((key, of)) = psk {
        target.connect(&Tls::new(OpenSsl::default()), key.psk(of, NQN)).unwrap();
        while !target.handshake().unwrap() {}
    }
    let (mut bytes, mut came) = (vec![0; 60_000], 0);
    let over = AtomicBool::new(false);
    let got = |result: std::io::Result<usize>| match result {
        Ok(0) => {
            over.store(true, Ordering::Relaxed);
            0
        }
        Ok(len) => len,
        Err(e) => {
            over.fetch_or(e.kind() != ErrorKind::WouldBlock, Ordering::Relaxed);
            0
        }
    };
    while !over.load(Ordering::Relaxed) {
        let up = got(host.read(&mut bytes));
        seen.lock().unwrap().extend_from_slice(&bytes[..up]);
        push(&mut target, &bytes[..up]);
        let down = got(target.read(&mut bytes));
        seen.lock().unwrap().extend_from_slice(&bytes[..down]);
        let harm = damaged.load(Ordering::Relaxed);
        if (came..came + down).contains(&harm) {
            bytes[harm - came] ^= 4;
        }
        came += down;
        push(&mut host, &bytes[..down]);
        if up + down == 0 {
            thread::yield_now();
        }
    }
}

fn push(to: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[test]
fn a_line_sees_nothing_and_changes_nothing() {
    let key = key();
    let server: Server<Dram, ()> = serve(keyed(&key), at_once());
    for encrypted in [false, true] {
        server.target().offer(Offer { tls_keys: vec![], ..keyed(&key) });
        if encrypted {
            server.target().offer(keyed(&key));
        }
        let line = line(server.addresses()[0], None);
        let controller = connect(line.at, host(encrypted.then_some(&key))).unwrap();
        let mut initiator = controller.initiator(4, Policy::Hybrid, TscClock::new()).unwrap();
        let bytes = pattern(4096, 77);
        initiator.execute(&Command::write(1, 8, 8), Some(bytes.clone())).unwrap().outcome.unwrap();
        let read = || Command::read(1, 8, 8);
        let whole = initiator.execute(&read(), Some(vec![0; 4096])).unwrap();
        assert!(whole.buffer.unwrap() == bytes);
        let seen = line.seen.lock().unwrap().clone();
        let is_there = |what: &[u8]| seen.windows(what.len()).any(|window| window == what);
        assert_eq!(is_there(&bytes[..64]), !encrypted);
        assert_eq!(is_there(b"SERIAL"), !encrypted);
        // A bit of what comes next: without TLS and digests nobody notices.
        let mut initiator = controller.initiator(4, Policy::Hybrid, TscClock::new()).unwrap();
        initiator.execute(&read(), Some(vec![0; 4096])).unwrap().outcome.unwrap();
        line.damaged.store(if encrypted { 6000 } else { 6200 }, Ordering::Relaxed);
        let changed = (0..4).map(|_| initiator.execute(&read(), Some(vec![0; 4096])));
        let wrong = changed.filter(|done| match done {
            Ok(done) => done.outcome == Ok(0) && done.buffer.as_ref() != Some(&bytes),
            Err(_) => false,
        });
        assert_eq!(wrong.count() > 0, !encrypted, "wrong data, and nobody noticed");
    }
}

#[test]
fn a_key_is_of_one_host_and_of_one_subsystem() {
    let (key, web) = (key(), key());
    const WEB: &str = "nqn.2026-11.dev.nearside:web";
    let tls_keys = vec![(HOST.to_owned(), key.clone()), (WEB.to_owned(), web.clone())];
    let server = serve(Offer { tls_keys, ..offer(1 << 20) }, at_once());
    let at = server.addresses()[0];
    let by = |key: &TlsKey, of| line(at, Some((key.clone(), of))).at;
    // As itself by its own key, and in no other name.
    connect(by(&key, HOST), host(None)).unwrap();
    connect(by(&web, WEB), HostOptions { host_nqn: WEB.into(), ..host(None) }).unwrap();
    for host_nqn in [WEB, "nqn.2026-11.dev.nearside:none"] {
        let said = connect(by(&key, HOST), HostOptions { host_nqn: host_nqn.into(), ..host(None) });
        assert!(said.map(drop).unwrap_err().to_string().contains("does not allow the host"));
    }
    // Discovery is another subsystem.
    let discovery =
        Address { subsystem: nearside_driver::tcp::nqn::DISCOVERY.into(), ..address(by(&key, HOST)) };
    discover(&discovery, host(None), Arc::new(TscClock::new())).unwrap_err();
    let entries = |options: HostOptions| -> Vec<DiscoveryEntry> {
        let discovery = Address { subsystem: nearside_driver::tcp::nqn::DISCOVERY.into(), ..address(at) };
        discover(&discovery, options, Arc::new(TscClock::new())).unwrap()
    };
    for options in [host(Some(&key)), host(None)] {
        let entries = entries(options);
        // It says which need a secure channel.
        let security: Vec<_> = entries.iter().map(|e| (e.subtype(), e.sectype(), e.treq())).collect();
        assert_eq!(security, [(2, 2, 1), (3, 0, 2)]);
    }
    server.target().require_tls(true);
    let all = entries(host(Some(&key)));
    assert!(all.iter().all(|e| (e.sectype(), e.treq()) == (2, 1)));
}

#[test]
fn who_fails_waits_before_the_next_try() {
    let (key, other) = (key(), key());
    let failure_ns = 1_500_000_000;
    let server = serve(keyed(&key), Options { failure_ns, ..with_tls() });
    let at = server.addresses()[0];
    connect(at, host(Some(&other))).map(drop).unwrap_err();
    let start = Instant::now();
    connect(at, host(Some(&key))).unwrap();
    assert!(start.elapsed() > Duration::from_nanos(failure_ns / 2), "{:?}", start.elapsed());
}

#[test]
fn a_handshake_that_does_not_go_on_ends() {
    let server = serve(keyed(&key()), Options { patience_ns: 300_000_000, ..at_once() });
    let at = server.addresses()[0];
    let ends = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.write_all(bytes).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        let ended = socket.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
    };
    ends(&[22]);
    ends(&[22, 3, 1, 2, 0, 1]);
    ends(&[&[22, 3, 1, 0, 64][..], &[9; 64]].concat());
    let counters = &server.target().counters;
    until("all are counted", || counters.open.load(Ordering::Relaxed) == 0);
    assert_eq!(counters.not_encrypted.load(Ordering::Relaxed), 3);
    assert_eq!(counters.slow.load(Ordering::Relaxed), 2);
}
