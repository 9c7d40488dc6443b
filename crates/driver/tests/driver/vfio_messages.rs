//! Our driver against our vfio-user front, which is given no descriptor of its memory: queues, lists and data
//! pass by messages. Between the two stands a relay that spoils what the driver answers, and another host of
//! the same namespace never waits for that.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_device::{Namespace, Subsystem};
use nearside_driver::*;
use nearside_front_vfio::{Offer, Server};
use nearside_spec::Status;
use nearside_spec::registers::{CSTS, csts};
use nearside_store::Dram;
use nearside_vfio_user::{Connection, Kind, Limits, Message, RegionAccess, Reply, Request, region, send};

use crate::model::{Model, number, queues_deleted_under_load, reset_under_load, seeded, sweep, work};

/// So many times as fast as the time is: a host that is silent for long is so for a moment.
#[derive(Clone, Copy)]
struct Fast(TscClock);

impl Clock for Fast {
    fn now(&self) -> Nanos {
        Nanos(self.0.now().0.wrapping_mul(8))
    }
}

type Drive = Arc<Subsystem<Dram, ()>>;

fn drive() -> Drive {
    let namespace = Namespace::new(Dram::new(24 << 20, 512).unwrap(), (), 512, [7; 16], true).unwrap();
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(namespace)).unwrap();
    subsystem
}

fn front(drive: &Drive, path: &Path, cntlid: u16, clock: impl Clock + Clone + 'static) -> Server {
    let offer = Offer::new("nqn.2026-11.com.example:test", "TEST", drive.clone());
    Server::start(Offer { cntlid, threads: usize::from(cntlid), ..offer }, path, clock).unwrap()
}

fn driver(path: &Path, by_messages: bool, timeout_ms: u64) -> Driver {
    let config = DriverConfig { by_messages, timeout_ms, ..DriverConfig::default() };
    Driver::connect(path, config, TscClock::new()).unwrap()
}

/// One reactor, then two.
#[test]
fn every_command_has_its_own_data() {
    for reactors in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let clock = TscClock::new();
        let server = front(&drive(), &folder.path().join("front"), reactors, clock);
        let driver = driver(server.path(), true, 30_000);
        let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
        let info = driver.namespace(None, &mut Host::threaded(&clock)).unwrap();
        let mut model = Model::new(0, info.blocks as usize, 512);
        work(&mut io, &mut model, &mut seeded(31), number("NEARSIDE_COMMANDS", 3_000), false);
        sweep(&mut io, &model);
        io.close().unwrap();
    }
}

#[test]
fn queues_go_and_controllers_are_reset_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let server = front(&drive(), &folder.path().join("front"), 2, TscClock::new());
    queues_deleted_under_load(&driver(server.path(), true, 30_000), 40);
    reset_under_load(&mut driver(server.path(), true, 30_000));
}

/// What the relay does with an answer of the driver's to a question about data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoils {
    /// Passes it on.
    Nothing,
    Never,
    /// Once more than asked for.
    Twice,
    /// A moment after the drive has given it up.
    Late,
    Refused,
    Fewer,
    More,
    Elsewhere,
    AnotherCommand,
    AnotherName,
}

const ALL: [Spoils; 10] = [
    Spoils::Nothing,
    Spoils::Never,
    Spoils::Twice,
    Spoils::Late,
    Spoils::Refused,
    Spoils::Fewer,
    Spoils::More,
    Spoils::Elsewhere,
    Spoils::AnotherCommand,
    Spoils::AnotherName,
];

/// Data of the commands here, at which the relay knows them: no queue is asked for in such pieces.
const LEN: usize = 4096;

/// What a question of the drive's is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Data,
    Submissions,
    Completions,
}

impl Asks {
    fn of(answer: &Message) -> Option<Asks> {
        match answer.reply() {
            Ok(Reply::DmaRead(access, _) | Reply::DmaWrite(access)) if access.count == LEN as u64 => {
                Some(Asks::Data)
            }
            Ok(Reply::DmaRead(..)) => Some(Asks::Submissions),
            Ok(Reply::DmaWrite(..)) => Some(Asks::Completions),
            _ => None,
        }
    }
}

struct Relay {
    spoils: Arc<Mutex<Spoils>>,
    /// The drive's questions that have been spoilt.
    spoilt: Arc<AtomicU64>,
    /// Those that the driver was passed, less its answers that were passed on.
    out: Arc<AtomicU64>,
    /// What the registers hold that the relay has asked for.
    registers: Receiver<u32>,
    seen: Receiver<()>,
    /// Answers that are late.
    late: Arc<Mutex<Vec<Message>>>,
    server: Arc<UnixStream>,
}

impl Relay {
    /// One that spoils answers to such questions.
    fn new(folder: &Path, server: &Path, asks: Asks) -> (PathBuf, Relay) {
        let path = folder.join("relay");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let server = UnixStream::connect(server).unwrap();
        let ((tell, seen), (tell_register, registers)) = (channel(), channel());
        let relay = Relay {
            spoils: Arc::new(Mutex::new(Spoils::Nothing)),
            spoilt: Arc::default(),
            out: Arc::default(),
            registers,
            seen,
            late: Arc::default(),
            server: Arc::new(server.try_clone().unwrap()),
        };
        let (spoils, spoilt, late) = (relay.spoils.clone(), relay.spoilt.clone(), relay.late.clone());
        let (asked, answered) = (relay.out.clone(), relay.out.clone());
        std::thread::spawn(move || {
            let client = listener.accept().unwrap().0;
            let (to_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                pass(server, &to_client, |message| {
                    if matches!(message.request(), Ok(Request::DmaRead(..) | Request::DmaWrite(..))) {
                        asked.fetch_add(1, Ordering::SeqCst);
                    }
                    let Ok(Reply::RegionRead(_, bytes)) = message.reply() else { return None };
                    if message.header.id != RELAY {
                        return None;
                    }
                    let _ = tell_register.send(u32::from_le_bytes(bytes.try_into().unwrap()));
                    Some(Vec::new())
                })
            });
            pass(client, &to_server, |message| {
                let about = Asks::of(message);
                let spoils = *spoils.lock().unwrap();
                if about.is_some() {
                    answered.fetch_sub(1, Ordering::SeqCst);
                }
                if spoils == Spoils::Nothing || about != Some(asks) {
                    return None;
                }
                spoilt.fetch_add(1, Ordering::SeqCst);
                let _ = tell.send(());
                Some(spoil(spoils, message, &late))
            });
        });
        (path, relay)
    }

    /// From the next question on its answers are spoilt. (A completion is seen before the answer that it was
    /// written has passed.)
    fn begin(&self, how: Spoils) {
        let clock = TscClock::new();
        let began = clock.now();
        loop {
            let mut spoils = self.spoils.lock().unwrap();
            if self.out.load(Ordering::SeqCst) == 0 {
                *spoils = how;
                return;
            }
            drop(spoils);
            assert!(clock.now().since(began) < 20_000_000_000, "{how:?}: an answer does not come");
            std::thread::yield_now();
        }
    }

    /// The controller's status register (CSTS), which the driver does not read meanwhile.
    fn status(&self) -> u32 {
        let access = RegionAccess { region: region::BAR0, offset: CSTS as u64, count: 4 };
        send(
            &self.server,
            RELAY,
            Kind::Command { no_reply: false },
            &Request::RegionRead(access),
            &[],
            patience,
        )
        .unwrap();
        self.registers.recv_timeout(patience()).unwrap()
    }
}

/// The name of the relay's own request: the driver counts from 1.
const RELAY: u16 = 0xfffe;

fn limits() -> Limits {
    Limits { descriptors: 64, ..Limits::default() }
}

fn patience() -> Duration {
    Duration::from_secs(20)
}

/// Passes on what one side says, or what `instead` says.
fn pass(from: UnixStream, to: &UnixStream, mut instead: impl FnMut(&Message) -> Option<Vec<Message>>) {
    let mut from = Connection::new(from, limits());
    while let Ok(Some(message)) = from.receive(|| Duration::from_secs(3600)) {
        let messages = instead(&message).unwrap_or_else(|| vec![message]);
        if messages.iter().any(|message| put(to, message).is_err()) {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Any message's bytes, as they are.
struct Raw<'a>(&'a Message);

impl nearside_vfio_user::Body for Raw<'_> {
    fn number(&self) -> u16 {
        self.0.header.command
    }
    fn append(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0.payload);
    }
}

fn put(to: &UnixStream, message: &Message) -> std::io::Result<()> {
    use std::os::fd::AsFd;
    let descriptors: Vec<_> = message.descriptors.iter().map(AsFd::as_fd).collect();
    send(to, message.header.id, message.header.kind, &Raw(message), &descriptors, patience)
}

fn copy(of: &Message) -> Message {
    Message { header: of.header, payload: of.payload.clone(), descriptors: Vec::new() }
}

fn spoil(how: Spoils, message: &Message, late: &Mutex<Vec<Message>>) -> Vec<Message> {
    let mut other = copy(message);
    match how {
        Spoils::Nothing => {}
        Spoils::Never => return Vec::new(),
        Spoils::Twice => return vec![copy(message), other],
        Spoils::Late => {
            late.lock().unwrap().push(other);
            return Vec::new();
        }
        Spoils::Refused => {
            other.header.kind = Kind::Reply { error: Some(14) };
            other.payload.clear();
        }
        // The count lies in bytes 8 to 15; data follow.
        Spoils::Fewer => {
            other.payload[8..16].copy_from_slice(&(LEN as u64 - 1).to_le_bytes());
            other.payload.truncate(16 + if message.payload.len() > 16 { LEN - 1 } else { 0 });
        }
        Spoils::More => {
            other.payload[8..16].copy_from_slice(&(LEN as u64 + 1).to_le_bytes());
            other.payload.resize(16 + LEN + 1, 7);
        }
        Spoils::Elsewhere => other.payload[0] ^= 8,
        Spoils::AnotherCommand => other.header.command ^= 7,
        Spoils::AnotherName => other.header.id ^= 0x4000,
    }
    vec![other]
}

/// For each kind: a write and a read of the spoilt host's fail, or are done, and nothing else is. Meanwhile
/// another host has the blocks that they are about, in a function of the same drive.
#[test]
fn answers_that_are_late_or_wrong_are_their_own_command_s_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let drive = drive();
    let clock = TscClock::new();
    let spoilt = front(&drive, &folder.path().join("one"), 1, Fast(clock));
    let other = front(&drive, &folder.path().join("two"), 2, clock);
    let (path, relay) = Relay::new(folder.path(), spoilt.path(), Asks::Data);
    let (spoilt, other) = (driver(&path, true, 30_000), driver(other.path(), false, 30_000));
    let host =
        |driver: &Driver| Initiator::new(driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
    let (mut io, mut others) = (host(&spoilt), host(&other));
    let of = |io: &Initiator<Threaded, TscClock>, byte: u8| {
        let mut buffer = io.buffer(LEN).unwrap();
        buffer.write(0, &[byte; LEN]);
        buffer
    };
    let (read, write) = (Command::read(1, 0, 8), Command::write(1, 0, 8));
    for (nr, how) in ALL.into_iter().enumerate() {
        let (theirs, ours) = (nr as u8 + 1, nr as u8 + 101);
        for command in [&write, &read] {
            relay.begin(how);
            let buffer = of(&io, ours);
            let out = io.submit(command, Some(buffer)).unwrap();
            if how != Spoils::Nothing {
                relay.seen.recv_timeout(patience()).unwrap();
            }
            // Of the same blocks, while the other's command waits for its host.
            let buffer = of(&others, theirs);
            others.execute(&write, Some(buffer)).unwrap().outcome.unwrap();
            let buffer = of(&others, 0);
            let done = others.execute(&read, Some(buffer)).unwrap();
            done.outcome.unwrap();
            let found = done.buffer.unwrap().to_vec();
            let unspoilt = matches!(how, Spoils::Nothing | Spoils::Twice);
            let may_be = |byte: u8| byte == theirs || (unspoilt && byte == ours);
            assert!(found.iter().all(|&byte| byte == found[0] && may_be(byte)), "{how:?}: {}", found[0]);
            let done = io.wait(out);
            match (how, done.outcome) {
                (Spoils::Nothing | Spoils::Twice, Ok(_)) => {}
                (_, Err(Failure::Status(status))) if !unspoilt => {
                    assert_eq!(status.code(), Status::DATA_TRANSFER_ERROR, "{how:?}");
                }
                (how, end) => panic!("{how:?}: {end:?}"),
            }
            *relay.spoils.lock().unwrap() = Spoils::Nothing;
            for late in relay.late.lock().unwrap().drain(..) {
                put(&relay.server, &late).unwrap();
            }
        }
        // The function goes on.
        let buffer = of(&io, 250);
        io.execute(&write, Some(buffer)).unwrap().outcome.unwrap();
        let buffer = of(&io, 0);
        let done = io.execute(&read, Some(buffer)).unwrap();
        done.outcome.unwrap();
        assert_eq!(done.buffer.unwrap().to_vec(), [250; LEN], "{how:?}");
    }
    assert!(relay.spoilt.load(Ordering::SeqCst) >= 2 * (ALL.len() as u64 - 1));
}

/// The submissions of a host that does not give them, or the completions of one that does not take them, are
/// the end of its controller (CSTS.CFS) until it is reset, and no other host's trouble.
#[test]
fn a_queue_that_cannot_be_reached_ends_its_controller() {
    let folder = tempfile::tempdir().unwrap();
    let drive = drive();
    let clock = TscClock::new();
    let front_of = |name: &str, cntlid| front(&drive, &folder.path().join(name), cntlid, Fast(clock));
    let (spoilt, other) = (front_of("one", 1), front_of("two", 2));
    let other = driver(other.path(), false, 30_000);
    let host =
        |driver: &Driver| Initiator::new(driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
    let mut others = host(&other);
    let zeroes = Command::write_zeroes(1, 0, 1);
    for (asks, how) in [Asks::Submissions, Asks::Completions]
        .into_iter()
        .flat_map(|asks| ALL.into_iter().map(move |how| (asks, how)))
        .filter(|(_, how)| !matches!(how, Spoils::Nothing | Spoils::Twice))
    {
        let (path, relay) = Relay::new(folder.path(), spoilt.path(), asks);
        let mut driver = driver(&path, true, 30_000);
        let mut io = host(&driver);
        assert_eq!(relay.status() & csts::CFS, 0, "{asks:?} {how:?}");
        relay.begin(how);
        let out = io.submit(&zeroes, None).unwrap();
        relay.seen.recv_timeout(patience()).unwrap();
        others.execute(&zeroes, None).unwrap().outcome.unwrap();
        let began = clock.now();
        while relay.status() & csts::CFS == 0 {
            assert!(clock.now().since(began) < 60_000_000_000, "{asks:?} {how:?}: it goes on");
        }
        others.execute(&zeroes, None).unwrap().outcome.unwrap();
        *relay.spoils.lock().unwrap() = Spoils::Nothing;
        for late in relay.late.lock().unwrap().drain(..) {
            put(&relay.server, &late).unwrap();
        }
        driver.stop(&mut Host::threaded(&clock)).unwrap();
        let end = io.wait(out).outcome;
        assert!(matches!(end, Err(Failure::Reset)), "{asks:?} {how:?}: {end:?}");
        drop(io);
        driver.restart(&mut Host::threaded(&clock)).unwrap();
        host(&driver).execute(&zeroes, None).unwrap().outcome.unwrap();
        assert_eq!(relay.status() & csts::CFS, 0, "{asks:?} {how:?}");
    }
}
