//! What near-data work may take from others: of a drive whose near-data commands never end by themselves.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nearside_clock::{Nanos, TscClock};
use nearside_device::firmware::{Job, Outcome, Progress, Seat, Turn, Worker};
use nearside_device::runner::Rest;
use nearside_device::{Config, Firmware, Namespace, Observer};
use nearside_driver::{DriverConfig, Policy, Threaded};
use nearside_embedded::Loopback;
use nearside_front_fuse::{Host, HostError, Limits, Server, User};
use nearside_near_data::wire::encode_request;
use nearside_near_data::{Credentials, Operation, Request, Target};
use nearside_spec::Status;
use nearside_spec::socket::{RequestFrame, RequestKind};
use nearside_store::{Dram, Token};

/// The first byte of each request that the drive has, and how many it was ever given.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<(Vec<u8>, usize)>>);

impl Seen {
    fn running(&self) -> Vec<u8> {
        self.0.lock().unwrap().0.clone()
    }

    fn begun(&self) -> usize {
        self.0.lock().unwrap().1
    }

    /// Waits until it is so.
    fn until(&self, what: &str, is: impl Fn(&Seen) -> bool) {
        let begun = Instant::now();
        while !is(self) {
            let (running, begun_ever) = (self.running(), self.begun());
            let late = begun.elapsed() > Duration::from_secs(120);
            assert!(!late, "{what} does not come: {running:?} run, {begun_ever} were begun");
            std::thread::yield_now();
        }
    }
}

/// Firmware whose commands run until they are cancelled.
struct Endless(Seen);

impl Observer for Endless {
    fn begin(&self, _offset: u64, _len: u64) {}
    fn end(&self, _offset: u64, _len: u64, _durable: bool) {}
}

impl Firmware<Dram> for Endless {
    type Worker = Runs;

    fn worker(namespace: &Arc<Namespace<Dram, Endless>>, _: &Seat<'_>) -> std::io::Result<Runs> {
        Ok(Runs { seen: namespace.observer().0.clone(), running: Vec::new(), ended: Vec::new() })
    }
}

struct Runs {
    seen: Seen,
    running: Vec<(Token, u8)>,
    ended: Vec<Token>,
}

impl Worker for Runs {
    fn start(&mut self, job: Job, _now: Nanos) -> Result<(), Status> {
        let mark = job.request.first().copied().unwrap_or(0);
        self.running.push((job.token, mark));
        let mut seen = self.seen.0.lock().unwrap();
        seen.0.push(mark);
        seen.1 += 1;
        Ok(())
    }

    fn step(&mut self, _: Nanos, _: &mut Turn, done: &mut impl FnMut(Token, Outcome)) -> Progress {
        let worked = !self.ended.is_empty();
        for token in self.ended.drain(..) {
            done(token, Outcome { status: Status::ABORT_REQUESTED, result: 0, reply: Vec::new() });
        }
        Progress { worked, ..Progress::default() }
    }

    fn cancel(&mut self, token: Token) {
        let Some(at) = self.running.iter().position(|(running, _)| *running == token) else { return };
        let (token, mark) = self.running.swap_remove(at);
        self.ended.push(token);
        let seen = &mut self.seen.0.lock().unwrap().0;
        let at = seen.iter().position(|seen| *seen == mark).unwrap();
        seen.swap_remove(at);
    }
}

struct CountedDrive {
    seen: Seen,
    host: Arc<Host>,
    _drive: Loopback<Dram, Endless, Threaded>,
}

impl CountedDrive {
    fn start() -> CountedDrive {
        let (seen, clock) = (Seen::default(), TscClock::new());
        let store = Dram::new(8 << 20, 512).unwrap();
        let mut drive =
            Loopback::threaded(store, Endless(seen.clone()), Config::default(), Rest::default()).unwrap();
        let config = DriverConfig { timeout_ms: 3_600_000, ..DriverConfig::default() };
        let driver = drive.driver(config, &clock).unwrap();
        let host = Arc::new(Host::new(driver, Policy::Hybrid, 2).unwrap());
        CountedDrive { seen, host, _drive: drive }
    }
}

/// Ends what waits for it, also where the test fails: a scope waits for its threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

const ROOT: User = User { uid: 0, trusted: true };

fn user(uid: u32) -> User {
    User { uid, trusted: false }
}

#[test]
fn searches_without_end_leave_the_host_and_the_others_their_part() {
    let drive = CountedDrive::start();
    let (host, seen) = (&drive.host, &drive.seen);
    let (gone, second_gone) = (&AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ends = (Ends(gone), Ends(second_gone));
        let ask = |who: User, mark: u8, gone| {
            let one =
                move || host.near_data(who, &[mark; 64], 4096, || AtomicBool::load(gone, Ordering::SeqCst));
            (0..40).map(|_| scope.spawn(one)).collect::<Vec<_>>()
        };
        let first = ask(user(1), 1, gone);
        seen.until("the first user's share", |seen| seen.running().len() == 2);
        // The host's own I/O, and reads for others.
        for n in 0..200u64 {
            host.write(n * 4096, &[n as u8; 4096], n % 7 == 0).unwrap();
            let mut back = [0; 4096];
            host.read(n * 4096, &mut back).unwrap();
            assert_eq!(back, [n as u8; 4096]);
            host.read_for_another(n * 4096, &mut back).unwrap();
        }
        host.flush().unwrap();
        host.zero(0, 1 << 20, true).unwrap();
        assert_eq!(seen.running(), [1, 1]);
        // Another user, and root, before the first one's backlog.
        let of = |mark: u8| seen.running().iter().filter(|m| **m == mark).count();
        let second = ask(user(2), 2, second_gone);
        // Root would take what nobody else has asked for yet.
        seen.until("the second user's share", |_| of(2) == 2);
        let root = ask(ROOT, 9, gone);
        seen.until("all shares", |seen| seen.running().len() == 8);
        assert_eq!((of(1), of(2), of(9)), (2, 2, 4), "{:?}", seen.running());
        host.read(0, &mut [0; 4096]).unwrap();
        // Who goes away leaves its places, also those that it waits for.
        second_gone.store(true, Ordering::SeqCst);
        for asked in second {
            let ended = asked.join().unwrap();
            assert!(matches!(&ended, Err(HostError::Gone | HostError::Command { .. })), "{ended:?}");
        }
        assert_eq!(of(2), 0);
        gone.store(true, Ordering::SeqCst);
        for asked in first.into_iter().chain(root) {
            assert!(asked.join().unwrap().is_err());
        }
    });
    assert!(seen.running().is_empty());
    // The places are all free again.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let _ends = Ends(stop);
        for mark in 1..=4 {
            for _ in 0..2 {
                let who = user(u32::from(mark));
                scope.spawn(move || host.near_data(who, &[mark], 4096, || stop.load(Ordering::SeqCst)));
            }
        }
        seen.until("what the users may have", |seen| seen.running().len() == 6);
    });
    assert!(seen.running().is_empty());
}

struct Served {
    drive: CountedDrive,
    server: Option<Server>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(limits: Limits) -> Served {
        let (drive, folder) = (CountedDrive::start(), tempfile::tempdir().unwrap());
        let server = Server::bind(&folder.path().join("socket"), drive.host.clone(), limits).unwrap();
        Served { drive, server: Some(server), _folder: folder }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.server.as_ref().unwrap().path()).unwrap()
    }

    /// A connection with a search that never ends.
    fn search(&self) -> UnixStream {
        let credentials = Credentials { uid: 0, gid: 0, groups: Vec::new() };
        let target = Target::Path(b"/x".to_vec());
        let operation = Operation::Stat;
        let request = Request { partition: 0, credentials, target, operation, follow: true, resume: None };
        let bytes = encode_request(&request);
        let frame =
            RequestFrame { kind: RequestKind::NearData, len: bytes.len() as u32, room: 4096, offset: 0 };
        let mut stream = self.connect();
        stream.write_all(&[&frame.encode()[..], &bytes].concat()).unwrap();
        stream
    }

    /// The drive is as if nobody had asked, and there is room for who comes.
    fn is_free(&self) {
        self.drive.seen.until("the end of the work", |seen| seen.running().is_empty());
        let begun = self.drive.seen.begun();
        let again = self.search();
        self.drive.seen.until("another's turn", |seen| seen.begun() > begun);
        drop(again);
        self.drive.seen.until("the end of that", |seen| seen.running().is_empty());
    }
}

#[test]
fn work_ends_with_whoever_asked() {
    let served = Served::start(Limits::default());
    let seen = &served.drive.seen;
    for _ in 0..20 {
        let searches: Vec<_> = (0..20).map(|_| served.search()).collect();
        seen.until("as many as may", |seen| seen.running().len() == 6);
        drop(searches);
        served.is_free();
    }
    // Who only ends its own sending still waits.
    let listening = served.search();
    listening.shutdown(std::net::Shutdown::Write).unwrap();
    let another = served.search();
    seen.until("both", |seen| seen.running().len() == 2);
    drop(another);
    seen.until("the other's end", |seen| seen.running().len() == 1);
    drop(listening);
    served.is_free();
}

#[test]
fn work_ends_with_the_server() {
    let mut served = Served::start(Limits::default());
    let searches: Vec<_> = (0..10).map(|_| served.search()).collect();
    served.drive.seen.until("some of them", |seen| seen.running().len() == 6);
    let path = served.server.as_ref().unwrap().path();
    served.server = None;
    assert!(!path.exists());
    served.drive.seen.until("the end of the work", |seen| seen.running().is_empty());
    for mut search in searches {
        assert_eq!(search.read(&mut [0; 16]).unwrap_or(0), 0);
    }
}

/// Waits until the server has closed a connection.
fn closed(mut stream: UnixStream) {
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("it is still open: {e}"),
    }
}

#[test]
fn who_says_nothing_or_half_of_it_or_never_listens_is_let_go() {
    let short = Duration::from_millis(50);
    let served = Served::start(Limits { greeting: short, ..Limits::default() });
    closed(served.connect());
    // Long enough that a loaded machine's server reads in time what is there.
    let transfer = Duration::from_secs(1);
    let served = Served::start(Limits { transfer, greeting: Duration::from_secs(3600), ..Limits::default() });
    let hello = RequestFrame { kind: RequestKind::Hello, len: 0, room: 64, offset: 0 }.encode();
    let mut half = served.connect();
    half.write_all(&hello[..10]).unwrap();
    closed(half);
    let long = RequestFrame { kind: RequestKind::NearData, len: 100_000, room: 64, offset: 0 }.encode();
    let mut half = served.connect();
    half.write_all(&long).unwrap();
    closed(half);
    // It asks again and again and takes no answer: the server stops, and its answers are left where they are.
    let mut deaf = served.connect();
    let read = RequestFrame { kind: RequestKind::Read, len: 0, room: 1 << 20, offset: 0 }.encode();
    while deaf.write_all(&read).is_ok() {}
    // One that greets may rest.
    let mut rests = served.connect();
    rests.write_all(&hello).unwrap();
    rests.read_exact(&mut [0; 32]).unwrap();
    let mut half = served.connect();
    half.write_all(&hello[..10]).unwrap();
    closed(half);
    rests.write_all(&hello).unwrap();
    rests.read_exact(&mut [0; 32]).unwrap();
}
