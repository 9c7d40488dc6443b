//! A stop of a target, where the kernel encrypts: what was given to it is sent before the connection is
//! closed, if it is in time. The kernel is one of the test's own, which encrypts nothing. Time is simulated.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::raw::{HOST, NQN, Raw, good_read, offer, serve_by, until};
use nearside_auth::{Hash, Psk, TlsKey};
use nearside_channel::{Encrypt, Encrypted, Find, HANDSHAKE, Tls, TlsError};
use nearside_clock::SimClock;
use nearside_front_tcp::{Options, Server};
use nearside_spec::Status;
use nearside_spec::fabrics::command::{Connect, ConnectData};
use nearside_spec::fabrics::pdu::{Initialize, Pdu};
use nearside_store::Dram;

const SECOND: u64 = 1_000_000_000;

/// What the kernel says of all its connections together.
struct Kernel {
    /// How often it is still to say that it is sending.
    left: AtomicU64,
    /// How often it was asked.
    asked: AtomicU64,
    /// Connections that were closed, and those of them of which it was sending something.
    closed: AtomicU64,
    cut_short: AtomicU64,
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// TLS whose handshake is one byte, and which leaves all that follows as it is.
struct Nothing(Arc<Kernel>);

struct Passed {
    socket: Arc<TcpStream>,
    identity: String,
    kernel: Arc<Kernel>,
}

impl Encrypt for Nothing {
    fn connect(&self, _: Arc<TcpStream>, _: Psk) -> Result<Box<dyn Encrypted>, TlsError> {
        Err(TlsError::NotTaken)
    }

    fn accept(&self, socket: Arc<TcpStream>, _: Find) -> Result<Box<dyn Encrypted>, TlsError> {
        let identity = TlsKey::generate(Some(Hash::Sha256), 32).unwrap().psk(HOST, NQN).identity;
        Ok(Box::new(Passed { socket, identity, kernel: self.0.clone() }))
    }
}

impl Read for Passed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&*self.socket).read(to)
    }
}

impl Write for Passed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Encrypted for Passed {
    fn handshake(&mut self) -> Result<bool, TlsError> {
        match (&*self.socket).read(&mut [0]) {
            Ok(0) => Err(TlsError::Closed),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(TlsError::Io(error)),
        }
    }

    fn identity(&self) -> Option<&str> {
        Some(&self.identity)
    }

    fn has_more(&self) -> bool {
        false
    }

    fn finish(&mut self) {}

    fn is_of_kernel(&self) -> bool {
        true
    }

    fn is_sending(&self) -> bool {
        self.kernel.asked.fetch_add(1, Ordering::Relaxed);
        let less = |left: u64| left.checked_sub(1);
        self.kernel.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        let is_sending = of(&self.kernel.left) > 0;
        self.kernel.cut_short.fetch_add(is_sending.into(), Ordering::Relaxed);
        self.kernel.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server whose kernel says so often that it is sending.
fn serves(left: u64) -> (Server<Dram, ()>, SimClock, Arc<Kernel>) {
    let [asked, closed, cut_short] = [0; 3].map(AtomicU64::new);
    let kernel = Arc::new(Kernel { left: AtomicU64::new(left), asked, closed, cut_short });
    let (clock, tls) = (SimClock::new(), Some(Tls::new(Nothing(kernel.clone()))));
    let server = serve_by(clock.clone(), offer(1 << 20), Options { idle_ns: 0, tls, ..Options::default() });
    (server, clock, kernel)
}

/// A queue of a host that comes over that TLS; its controller's identifier.
fn queue(at: SocketAddr, qid: u16, cntlid: u16) -> (Raw, u16) {
    let mut raw = Raw::open(at);
    raw.put(&[HANDSHAKE]);
    let request =
        Initialize { version: 0, alignment_z: 0, header_digest: false, data_digest: false, limit: 0 };
    raw.put(&request.request());
    assert!(matches!(raw.receive(), Some((Pdu::InitializeResponse(_), _))));
    let connect = Connect { recfmt: 0, qid, sqsize_z: 31, cattr: 0, kato: 0 };
    let done = raw.connect_as(connect, &ConnectData::new([7; 16], HOST, NQN, cntlid));
    assert_eq!(done.status(), Status::SUCCESS);
    (raw, done.result() as u16)
}

#[test]
fn a_stop_waits_until_the_kernel_has_sent_what_it_has() {
    let (server, _clock, kernel) = serves(200);
    let (at, target) = (server.addresses()[0], server.target().clone());
    let (mut admin, cntlid) = queue(at, 0, 0xffff);
    admin.enable();
    let (mut io, _) = queue(at, 1, cntlid);
    good_read(&mut io);
    assert!(target.connected()[0].encrypted);
    // No time passes: it does not give up.
    drop(server);
    assert_eq!([&kernel.left, &kernel.closed, &kernel.cut_short].map(of), [0, 2, 0]);
    assert!(of(&kernel.asked) > 200);
    assert_eq!((io.ending(), admin.ending()), (None, None));
    assert_eq!([&target.counters.unanswered, &target.counters.given_up].map(of), [0, 0]);
}

#[test]
fn a_stop_waits_for_the_kernel_five_seconds_and_no_longer() {
    let (server, clock, kernel) = serves(u64::MAX);
    let (at, target) = (server.addresses()[0], server.target().clone());
    let (mut admin, _) = queue(at, 0, 0xffff);
    admin.enable();
    let stop = thread::spawn(move || drop(server));
    let asks_on = || {
        let before = of(&kernel.asked);
        until("it asks again", || of(&kernel.asked) > before + 20);
    };
    asks_on();
    clock.advance(4 * SECOND);
    asks_on();
    assert!(of(&kernel.closed) == 0 && !stop.is_finished());
    clock.advance(2 * SECOND);
    stop.join().unwrap();
    assert_eq!([&kernel.closed, &kernel.cut_short].map(of), [1, 1]);
    assert_eq!(admin.ending(), None);
    assert_eq!([&target.counters.unanswered, &target.counters.given_up].map(of), [0, 0]);
}
