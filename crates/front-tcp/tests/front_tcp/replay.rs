//! What a host has sent once, sent again by somebody who has heard it: over TLS and in the clear, all of it,
//! and what it begins with. It proves nothing, nothing is told for it, and nothing of it stays. Time is
//! simulated: it stands until a test lets some pass.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::raw::{HOST, NQN, Raw, good_read, keys, offer, serve, serve_by, until};
use nearside_auth::{Exchange, Explanation, Group, Hash, Psk, TlsKey};
use nearside_channel::{Encrypt, Encrypted, Find, HANDSHAKE, Tls, TlsError};
use nearside_clock::{SimClock, TscClock};
use nearside_driver::tcp::{Address, Association, Initiator, Options as HostOptions};
use nearside_driver::{Command, Policy};
use nearside_front_tcp::{Counters, Offer, Options, Server};
use nearside_spec::Status;
use nearside_spec::fabrics::authentication::id;
use nearside_store::Dram;
use nearside_tls::OpenSsl;
use rustix::net::{AddressFamily, SocketType};

const SECOND: u64 = 1_000_000_000;
/// A host whose bytes nobody has heard.
const OTHER: &str = "nqn.2026-11.dev.nearside:other";
/// What hosts write, and read.
const WORD: &[u8] = b"what its own host alone may read";
/// Connections of one address whose hosts have not said who they are.
const STRANGERS: usize = 64;
/// A record that is encrypted (application_data of RFC 8446, 5.1).
const ENCRYPTED: u8 = 23;

/// OpenSSL, which counts the handshakes that it begins as a controller.
struct Begun(Arc<AtomicU64>);

impl Encrypt for Begun {
    fn connect(&self, socket: Arc<TcpStream>, psk: Psk) -> Result<Box<dyn Encrypted>, TlsError> {
        OpenSsl::default().connect(socket, psk)
    }

    fn accept(&self, socket: Arc<TcpStream>, find: Find) -> Result<Box<dyn Encrypted>, TlsError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenSsl::default().accept(socket, find)
    }
}

/// A server of one thread, which sleeps whenever there is nothing to do.
struct Rig {
    server: Server<Dram, ()>,
    clock: SimClock,
    begun: Arc<AtomicU64>,
}

impl Rig {
    fn new(offer: Offer<Dram, ()>, failure_ns: u64) -> Rig {
        let (clock, begun) = (SimClock::new(), Arc::<AtomicU64>::default());
        let tls = Some(Tls::new(Begun(begun.clone())));
        let options = Options { idle_ns: 0, per_address: STRANGERS, failure_ns, tls, ..Options::default() };
        Rig { server: serve_by(clock.clone(), offer, options), clock, begun }
    }

    fn at(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    fn count(&self, counter: fn(&Counters) -> &AtomicU64) -> u64 {
        counter(&self.server.target().counters).load(Ordering::Relaxed)
    }

    fn open(&self) -> u64 {
        self.count(|c| &c.open)
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Hosts that are here, and how often one has proved itself.
    fn let_in(&self) -> [u64; 4] {
        let here = self.server.target().connected().len() as u64;
        [here, self.count(|c| &c.controllers), self.count(|c| &c.encrypted), self.count(|c| &c.authenticated)]
    }

    /// What a host sent over TLS, each beginning of it over a connection of its own. Those that have a proof
    /// are refused at once; the others are waited for, and no longer than anybody.
    fn refuses_each_beginning_of(&self, sent: &[u8]) {
        let ends = ends(sent);
        let proof = proof(sent, &ends);
        let failed = || self.count(|c| &c.not_encrypted);
        let (open, slow, before, begun) = (self.open(), self.count(|c| &c.slow), failed(), self.begun());
        let (mut refused, mut held) = (0, Vec::new());
        for cut in cuts(&ends) {
            let again = replay(self.at(), &sent[..cut]);
            if cut < proof {
                held.push(again);
                continue;
            }
            refused += 1;
            no_more_than_a_handshake(&rest(again));
            until("it is counted", || failed() == before + refused);
        }
        // All but the one that sends nothing.
        let shaking = held.len() as u64 - 1;
        until("their handshakes have begun", || self.begun() == begun + refused + shaking);
        until("all are here", || self.open() == open + shaking + 1);
        assert_eq!((self.count(|c| &c.slow), failed()), (slow, before + refused));
        self.clock.advance(31 * SECOND);
        until("they are let go of", || self.count(|c| &c.slow) == slow + shaking + 1);
        held.into_iter().for_each(|again| no_more_than_a_handshake(&rest(again)));
        until("they are counted", || failed() == before + refused + shaking);
        assert_eq!((self.open(), self.count(|c| &c.refused)), (open, 0));
    }

    /// As many strangers as may come are taken: of those who were here nobody has kept a place.
    fn has_all_its_places(&self) {
        let open = self.open();
        let strangers: Vec<_> = (0..STRANGERS).map(|_| TcpStream::connect(self.at()).unwrap()).collect();
        until("all are taken", || self.open() == open + STRANGERS as u64);
        drop(strangers);
        until("they have gone", || self.open() == open);
        assert_eq!((self.count(|c| &c.turned_away), self.count(|c| &c.over_quota)), (0, 0));
    }
}

type Queue = Initiator<TscClock>;

fn connect(at: SocketAddr, options: HostOptions) -> Association {
    let address = Address { host: at.ip().to_string(), port: at.port(), subsystem: NQN.into(), nsid: None };
    Association::connect(&address, options, Arc::new(TscClock::new())).unwrap()
}

fn queue(of: &Association) -> Queue {
    of.initiator(4, Policy::Hybrid, TscClock::new()).unwrap()
}

/// In the clear, without keys.
fn host(name: &str) -> HostOptions {
    let own = HostOptions::for_host(name).unwrap();
    HostOptions { keep_alive_ms: 0, timeout_ms: 60_000, connect_ms: 60_000, ..own }
}

fn keyed_host(name: &str, key: &TlsKey) -> HostOptions {
    HostOptions { tls: Some((key.clone(), Tls::new(OpenSsl::default()))), ..host(name) }
}

fn tls_key() -> TlsKey {
    TlsKey::generate(Some(Hash::Sha256), 32).unwrap()
}

/// A write, and a read of the same.
fn works(queue: &mut Queue, slba: u64) {
    let bytes: Vec<u8> = WORD.iter().copied().cycle().take(4096).collect();
    let write = queue.execute(&Command::write(1, slba, 8), Some(bytes.clone())).unwrap();
    assert_eq!((write.outcome, write.moved), (Ok(0), 4096));
    let read = queue.execute(&Command::read(1, slba, 8), Some(vec![0; 4096])).unwrap();
    assert_eq!((read.outcome, read.moved), (Ok(0), 4096));
    assert!(read.buffer.unwrap() == bytes);
}

/// A line that keeps what hosts send over it, by connection.
struct Line {
    at: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Line {
    fn to(server: SocketAddr) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
        let kept = heard.clone();
        thread::spawn(move || {
            for (nth, host) in listener.incoming().map_while(Result::ok).enumerate() {
                let Ok(target) = TcpStream::connect(server) else { return };
                let (host_in, target_in) = (host.try_clone().unwrap(), target.try_clone().unwrap());
                kept.lock().unwrap().push(Vec::new());
                let kept = kept.clone();
                let keep = move |bytes: &[u8]| kept.lock().unwrap()[nth].extend_from_slice(bytes);
                thread::spawn(move || pass(host_in, target, keep));
                thread::spawn(move || pass(target_in, host, |_| ()));
            }
        });
        Line { at, heard }
    }

    fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let _ = to.set_nodelay(true);
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        keep(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Sends that over a connection, which stays.
fn send(mut over: TcpStream, bytes: &[u8]) -> TcpStream {
    over.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Who is refused half-way sends no more than that.
    let _ = over.write_all(bytes);
    over
}

fn replay(at: SocketAddr, bytes: &[u8]) -> TcpStream {
    send(TcpStream::connect(at).unwrap(), bytes)
}

/// All that comes before the server ends the connection.
fn rest(mut of: TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    let ended = of.read_to_end(&mut came);
    assert!(ended.is_ok() || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
    came
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// No data, and no word of the drive.
fn nothing_told(came: &[u8]) {
    assert!(!has(came, &WORD[..8]) && !has(came, b"SERIAL"), "{} bytes", came.len());
}

/// Of TLS a ServerHello to Finished at most, and an alert: a block's records would be longer.
fn no_more_than_a_handshake(came: &[u8]) {
    nothing_told(came);
    assert!(came.len() < 1024, "{} bytes", came.len());
}

/// Where the pieces of what a host has sent end: records of TLS (RFC 8446, 5.1), or PDUs.
fn ends(sent: &[u8]) -> Vec<usize> {
    let is_encrypted = sent[0] == HANDSHAKE;
    let (mut ends, mut at) = (Vec::new(), 0);
    while let Some(head) = sent.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        at += if is_encrypted {
            5 + usize::from(u16::from_be_bytes([head[3], head[4]]))
        } else {
            u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize
        };
        if at > sent.len() {
            break;
        }
        ends.push(at);
    }
    assert!(ends.len() > 4, "{ends:?}");
    ends
}

/// Where the first encrypted record ends: the host's Finished, by which it proves that it has the key.
fn proof(sent: &[u8], ends: &[usize]) -> usize {
    let begins = [0].into_iter().chain(ends.iter().copied());
    let (_, end) = begins.zip(ends).find(|(begin, _)| sent[*begin] == ENCRYPTED).unwrap();
    *end
}

/// Where a replay may end: before all, with each piece, and within each of the first.
fn cuts(ends: &[usize]) -> Vec<usize> {
    let begins = [0].into_iter().chain(ends.iter().copied());
    let within = begins.zip(ends).take(4).flat_map(|(begin, &end)| [begin + 1, (begin + end) / 2, end - 1]);
    let mut all: Vec<usize> = [0].into_iter().chain(within).chain(ends.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() < STRANGERS, "{} are more than one address may have", all.len());
    all
}

/// A server to which [`HOST`] comes over TLS, by a key or by what an exchange has generated, and [`OTHER`] by
/// a key of its own; how each does.
fn over_tls(is_generated: bool) -> (Rig, HostOptions, HostOptions) {
    let (own, credentials) = keys(&[Group::Ffdhe2048], true);
    let (key, others) = (tls_key(), tls_key());
    let mut offered = Offer { tls_keys: vec![(OTHER.to_owned(), others.clone())], ..offer(1 << 20) };
    let options = if is_generated {
        offered.credentials.push((HOST.to_owned(), credentials));
        HostOptions { keys: Some(own), concatenates: Some(Tls::new(OpenSsl::default())), ..host(HOST) }
    } else {
        offered.tls_keys.push((HOST.to_owned(), key.clone()));
        keyed_host(HOST, &key)
    };
    (Rig::new(offered, 0), options, keyed_host(OTHER, &others))
}

#[test]
fn a_session_over_tls_is_refused_the_second_time() {
    for is_generated in [false, true] {
        let (rig, options, others) = over_tls(is_generated);
        let bystander = connect(rig.at(), others);
        let mut untouched = queue(&bystander);
        let line = Line::to(rig.at());
        let owner = connect(line.at, options);
        let mut own = queue(&owner);
        works(&mut own, 0);
        // The exchange that generates a key is in the clear, and over.
        until("two queues each", || rig.open() == 4 && rig.server.target().connected().len() == 2);
        let sent: Vec<Vec<u8>> = line.heard().into_iter().filter(|sent| sent[0] == HANDSHAKE).collect();
        assert_eq!(sent.len(), 2);
        let let_in = rig.let_in();
        for sent in &sent {
            rig.refuses_each_beginning_of(sent);
            works(&mut own, 0);
            works(&mut untouched, 8);
        }
        rig.has_all_its_places();
        assert_eq!(rig.let_in(), let_in);
        // Nor is it taken where its host has gone.
        drop((own, owner));
        until("its host has gone", || rig.server.target().connected().len() == 1 && rig.open() == 2);
        let failed = || rig.count(|c| &c.not_encrypted);
        let before = failed();
        for (nth, sent) in (1..).zip(&sent) {
            no_more_than_a_handshake(&rest(replay(rig.at(), sent)));
            until("it is counted", || failed() == before + nth);
        }
        works(&mut untouched, 8);
        assert_eq!(rig.let_in()[1..], let_in[1..]);
    }
}

/// Where nothing has to be proved, a replay is a host as any other: what is sent here is a session.
#[test]
fn without_keys_a_session_is_as_good_the_second_time() {
    let rig = Rig::new(offer(1 << 20), 0);
    let line = Line::to(rig.at());
    let _owner = connect(line.at, host(HOST));
    let mut again = replay(rig.at(), &line.heard()[0]);
    let (mut came, mut bytes) = (Vec::new(), [0; 4096]);
    while !has(&came, b"SERIAL") {
        let count = again.read(&mut bytes).unwrap();
        assert!(count > 0, "it was refused");
        came.extend_from_slice(&bytes[..count]);
    }
}

#[test]
fn a_session_in_the_clear_proves_nothing_the_second_time() {
    let (own, credentials) = keys(&[Group::Ffdhe2048], true);
    let rig = Rig::new(Offer { credentials: vec![(HOST.to_owned(), credentials)], ..offer(1 << 20) }, 0);
    let bystander = connect(rig.at(), host(OTHER));
    let mut untouched = queue(&bystander);
    let line = Line::to(rig.at());
    let owner = connect(line.at, HostOptions { keys: Some(own), ..host(HOST) });
    let mut first = queue(&owner);
    works(&mut first, 0);
    let sent = line.heard();
    assert_eq!(sent.len(), 2);
    // Its controller stays, and the number of its queue is free.
    drop(first);
    let queues = || rig.server.target().connected().iter().filter(|host| host.queues > 0).count();
    until("the queue is gone", || rig.open() == 3 && queues() == 1);
    let failed = || rig.count(|c| &c.not_authenticated);
    for sent in &sent {
        // All at once, whatever it is answered.
        let before = failed();
        nothing_told(&rest(replay(rig.at(), sent)));
        until("it has failed, and is gone", || failed() == before + 1 && rig.open() == 3);
        works(&mut untouched, 8);
        let accepted = rig.count(|c| &c.connections);
        let held: Vec<TcpStream> =
            cuts(&ends(sent)).into_iter().map(|cut| replay(rig.at(), &sent[..cut])).collect();
        let many = held.len() as u64;
        until("all have come", || rig.count(|c| &c.connections) == accepted + many);
        // Some end by themselves, some by the server's patience, from whenever they were looked at.
        until("they are let go of", || {
            rig.clock.advance(SECOND);
            rig.open() == 3
        });
        held.into_iter().for_each(|again| nothing_told(&rest(again)));
        assert!((before + 1..=before + 1 + many).contains(&failed()));
        works(&mut untouched, 8);
    }
    until("their controllers are gone", || rig.server.target().connected().len() == 2);
    rig.has_all_its_places();
    assert_eq!(rig.count(|c| &c.authenticated), 2);
    let mut next = queue(&owner);
    works(&mut next, 0);
    assert_eq!(rig.count(|c| &c.authenticated), 3);
}

/// What a controller says to a message that proves nothing.
fn fails(raw: &mut Raw, why: Explanation) {
    let message = raw.auth_receive(64);
    assert_eq!((message[1], message[7]), (id::FAILURE1, why.0));
    assert_eq!(raw.ending(), None);
}

/// Message by message, each once the last is answered.
#[test]
fn a_proof_that_is_sent_again_is_none() {
    for (group, both) in [(Group::Null, false), (Group::Null, true), (Group::Ffdhe2048, true)] {
        let (keys, credentials) = keys(&[group], both);
        let offer = Offer { credentials: vec![(HOST.to_owned(), credentials)], ..offer(1 << 20) };
        let server = serve(offer, Options { failure_ns: 0, ..Options::default() });
        let at = server.addresses()[0];
        let mut exchange = Exchange::new(&keys, HOST, NQN).unwrap();
        let negotiate = exchange.negotiate();
        let (mut admin, cntlid) = Raw::asked(at, 0, 0xffff);
        assert_eq!(admin.auth_send(&negotiate), Status::SUCCESS);
        let reply = exchange.reply(&admin.auth_receive(4096)).unwrap();
        assert_eq!(admin.auth_send(&reply), Status::SUCCESS);
        let last = exchange.finish(&admin.auth_receive(4096)).unwrap();
        assert_eq!(last.is_some(), both);
        if let Some(last) = &last {
            assert_eq!(admin.auth_send(last), Status::SUCCESS);
        }
        admin.enable();
        let (mut good, _) = Raw::asked(at, 1, cntlid);
        assert_eq!(good.prove(&keys, |_| ()), None);
        // To a challenge that is another.
        for (qid, controller) in [(0, 0xffff), (2, cntlid)] {
            let (mut again, _) = Raw::asked(at, qid, controller);
            assert_eq!(again.auth_send(&negotiate), Status::SUCCESS);
            assert_eq!(again.auth_receive(4096)[1], id::CHALLENGE);
            assert_eq!(again.auth_send(&reply), Status::SUCCESS);
            fails(&mut again, Explanation::FAILED);
            good_read(&mut good);
        }
        // To none; and the last word in its place.
        let (mut again, _) = Raw::asked(at, 0, 0xffff);
        assert_eq!(again.auth_send(&reply), Status::SUCCESS);
        fails(&mut again, Explanation::INCORRECT_MESSAGE);
        if let Some(last) = &last {
            let (mut again, _) = Raw::asked(at, 0, 0xffff);
            assert_eq!(again.auth_send(&negotiate), Status::SUCCESS);
            assert_eq!(again.auth_receive(4096)[1], id::CHALLENGE);
            assert_eq!(again.auth_send(last), Status::SUCCESS);
            fails(&mut again, Explanation::INCORRECT_MESSAGE);
        }
        let counters = &server.target().counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(count(&counters.not_authenticated), 3 + u64::from(both));
        assert_eq!(count(&counters.authenticated), 2);
        drop(again);
        until("their controllers are gone", || server.target().connected().len() == 1);
        good_read(&mut good);
    }
}

/// From another address of this machine.
fn replay_from_elsewhere(at: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    rustix::net::connect(&socket, &at).unwrap();
    send(TcpStream::from(socket), bytes)
}

#[test]
fn who_replays_waits_and_its_host_does_not() {
    let (key, others) = (tls_key(), tls_key());
    let tls_keys = vec![(HOST.to_owned(), key.clone()), (OTHER.to_owned(), others.clone())];
    let rig = Rig::new(Offer { tls_keys, ..offer(1 << 20) }, 3_600 * SECOND);
    let line = Line::to(rig.at());
    let owner = connect(line.at, keyed_host(HOST, &key));
    works(&mut queue(&owner), 0);
    let sent = line.heard().swap_remove(0);
    until("its admin queue is left", || rig.open() == 1);
    no_more_than_a_handshake(&rest(replay_from_elsewhere(rig.at(), &sent)));
    until("it is counted", || rig.count(|c| &c.not_encrypted) == 1 && rig.open() == 1);
    // The next is not even answered.
    let begun = rig.begun();
    let second = replay_from_elsewhere(rig.at(), &sent);
    until("it has come", || rig.open() == 2);
    for options in [keyed_host(HOST, &key), keyed_host(OTHER, &others)] {
        let controller = connect(rig.at(), options);
        works(&mut queue(&controller), 8);
    }
    works(&mut queue(&owner), 0);
    assert_eq!(rig.begun(), begun + 5);
    rig.clock.advance(31 * SECOND);
    until("it is let go of", || rig.count(|c| &c.slow) == 1);
    assert!(rest(second).is_empty());
    assert_eq!((rig.begun(), rig.count(|c| &c.not_encrypted)), (begun + 5, 1));
}
