//! Our driver against our own vfio-user front, in another process: data verification over every way to ring,
//! deletion of queues, resets and unmaps under load, and the death of either side.
//!
//! `NEARSIDE_SEED`, `NEARSIDE_COMMANDS` and `NEARSIDE_ROUNDS` as in verify.rs; `NEARSIDE_KILLS` says how
//! often either side is killed (a dozen; 100 for the long form).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nearside_clock::{Clock, TscClock};
use nearside_device::{Namespace, Subsystem};
use nearside_driver::*;
use nearside_front_vfio::{Offer, Server};
use nearside_random::Random;
use nearside_store::write_log::{Cut, ImageFile, LogReader, Logged, WriteLog, survivors};
use nearside_store::{Delay, Dram, File, FileOptions, Modelled, Store};
use tempfile::TempDir;

use crate::model::{
    Model, POLICIES, number, queues_deleted_under_load, reset_under_load, seeded, sweep, threads_on, work,
};

/// What a process that the tests start is to be, and the words for it.
const ROLE: &str = "NEARSIDE_TEST_ROLE";

/// This test again, as another process with a role.
fn another(role: &str) -> Child {
    let mut process = Process::new(std::env::current_exe().unwrap());
    process
        .args(["--exact", "vfio_user::another_process", "--nocapture", "--test-threads", "1"])
        .env(ROLE, role);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Not a test by itself: what [`another`] runs.
#[test]
fn another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["serve", kind, socket, file] => {
            let server = start(kind, Path::new(socket), Path::new(file));
            println!("ready");
            // Until whoever started it ends, or kills it.
            let _ = std::io::stdin().read(&mut [0]);
            drop(server);
        }
        ["write", socket, known, seed] => write(Path::new(socket), Path::new(known), seed.parse().unwrap()),
        _ => panic!("{role}"),
    }
}

/// A front over a store of its own. `kind`: how doorbells are rung, and how slow the store is.
fn start(kind: &str, socket: &Path, file: &Path) -> Server {
    let dram = || Dram::new(24 << 20, 512).unwrap();
    let stalls = Delay { stall_every: 50, stall_ns: 200_000, ..Delay::fixed(2_000) };
    match kind {
        "shadow" => serve(dram(), false, socket),
        "mapped" => serve(dram(), true, socket),
        "stalls" => serve(Modelled::new(dram(), stalls.medium()), false, socket),
        "slow" => serve(Modelled::new(dram(), Delay::fixed(50_000).medium()), false, socket),
        "file" => serve(File::open(file, FileOptions::serve()).unwrap(), false, socket),
        "logged" => {
            let store = File::open(file, FileOptions::serve()).unwrap();
            let log = WriteLog::create(log_of(file), 512, store.capacity()).unwrap();
            serve(Logged::new(store, log).unwrap(), false, socket)
        }
        _ => panic!("{kind}"),
    }
}

fn serve(store: impl Store, mapped_doorbells: bool, socket: &Path) -> Server {
    let namespace = Namespace::new(store, (), 512, [7; 16], true).unwrap();
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(namespace)).unwrap();
    let offer = Offer::new("nqn.2026-11.com.example:test", "TEST", subsystem);
    Server::start(Offer { mapped_doorbells, ..offer }, socket, TscClock::new()).unwrap()
}

/// A front in another process.
struct Served {
    child: Child,
    socket: PathBuf,
    _folder: TempDir,
}

impl Served {
    fn new(kind: &str) -> Served {
        Served::over(kind, Path::new("none"))
    }

    fn over(kind: &str, file: &Path) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut child = another(&format!("serve {kind} {} {}", socket.display(), file.display()));
        let (mut said, mut out) = (Vec::new(), child.stdout.take().unwrap());
        // It says nothing more.
        while !said.ends_with(b"ready\n") {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        Served { child, socket, _folder: folder }
    }

    fn driver(&self) -> Driver {
        Driver::connect(&self.socket, DriverConfig::default(), TscClock::new()).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every policy over every way to ring, one thread and several.
fn verify(kind: &str) {
    let served = Served::new(kind);
    let driver = served.driver();
    let clock = TscClock::new();
    let info = driver.namespace(None, &mut Host::threaded(&clock)).unwrap();
    assert_eq!((info.nsid, info.block_size, info.bytes()), (1, 512, 24 << 20));
    let commands = number("NEARSIDE_COMMANDS", 12_000);
    for policy in POLICIES {
        let config = InitiatorConfig { policy, ..Default::default() };
        let mut io = Initiator::new(&driver, config, clock, Threaded, None).unwrap();
        let mut model = Model::new(0, info.blocks as usize, 512);
        // What the last policy left, so that the model knows it.
        io.execute(&Command::write_zeroes(1, 0, info.blocks as u32), None).unwrap().outcome.unwrap();
        work(&mut io, &mut model, &mut seeded(300), commands / 3, false);
        sweep(&mut io, &model);
        io.close().unwrap();
    }
    let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
    io.execute(&Command::write_zeroes(1, 0, info.blocks as u32), None).unwrap().outcome.unwrap();
    threads_on(&driver, commands);
}

#[test]
fn all_policies_over_shadow_doorbells() {
    verify("shadow");
}

#[test]
fn all_policies_over_mapped_doorbells() {
    verify("mapped");
}

#[test]
fn queues_are_deleted_under_load() {
    queues_deleted_under_load(&Served::new("stalls").driver(), 300);
}

#[test]
fn a_reset_under_load_gives_everything_back() {
    reset_under_load(&mut Served::new("slow").driver());
}

/// A drive that looks for commands is told of none by a message. It sleeps where another takes its core, so
/// that not every thousand commands show it.
#[test]
fn a_busy_queue_needs_no_messages() {
    let folder = tempfile::tempdir().unwrap();
    let server = start("shadow", &folder.path().join("socket"), Path::new("none"));
    let driver = Driver::connect(server.path(), DriverConfig::default(), TscClock::new()).unwrap();
    let mut io =
        Initiator::new(&driver, InitiatorConfig::default(), TscClock::new(), Threaded, None).unwrap();
    let mut buffer = io.buffer(512).ok();
    let mut told_of_thousand = || {
        let before = driver.messages();
        for lba in 0..1_000 {
            let done = io.execute(&Command::read(1, lba, 1), buffer.take()).unwrap();
            done.outcome.unwrap();
            buffer = done.buffer;
        }
        driver.messages() - before
    };
    let least = (0..500).map(|_| told_of_thousand()).find(|told| *told < 50);
    assert!(least.is_some(), "messages for each of 1,000 commands, 500 times");
}

/// What is known of each block: the newest version that was sent, that was acknowledged, and that has to
/// survive.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    sent: u64,
    acknowledged: u64,
    durable: u64,
}

const BLOCKS: u64 = 256;
const BLOCK: usize = 4096;
const WINDOW: u64 = 8;

/// A block's bytes: in each sector its number and its version.
fn bytes(block: u64, version: u64) -> Vec<u8> {
    [block.to_le_bytes(), version.to_le_bytes()].concat().repeat(BLOCK / 16)
}

/// Writes and flushes until the connection is lost. `keep` is told of each block whose state changes, before
/// anything depends on it. Counts in `windows`.
fn write_on(
    driver: &Driver,
    known: &mut [Known],
    random: &mut Random,
    windows: &AtomicU64,
    mut keep: impl FnMut(usize, Known),
) -> u64 {
    let config = InitiatorConfig { policy: POLICIES[random.below(3) as usize], ..Default::default() };
    let mut flushes = 0;
    let Ok(mut io) = Initiator::new(driver, config, TscClock::new(), Threaded, None) else { return 0 };
    loop {
        let first = random.below(BLOCKS - WINDOW);
        let (mut out, mut lost) = (Vec::new(), false);
        for block in first..first + WINDOW {
            let it = &mut known[block as usize];
            it.sent += 1;
            keep(block as usize, *it);
            let fua = random.below(8) == 0;
            let command = Command::write(1, block * 8, 8);
            let Ok(mut buffer) = io.buffer(BLOCK) else { return flushes };
            buffer.write(0, &bytes(block, it.sent));
            match io.submit(&if fua { command.fua() } else { command }, Some(buffer)) {
                Ok(handle) => out.push((handle, block as usize, fua)),
                Err(_) => lost = true,
            }
        }
        for (handle, block, fua) in out {
            let finished = io.wait(handle);
            match finished.outcome {
                Ok(_) => {
                    let it = &mut known[block];
                    it.acknowledged = it.sent;
                    if fua {
                        it.durable = it.sent;
                    }
                    keep(block, *it);
                }
                Err(failure) => {
                    assert_eq!(failure, Failure::Lost);
                    // Nobody has said that the server is dead: it may still write there.
                    assert!(finished.buffer.is_none());
                    lost = true;
                }
            }
        }
        if !lost && random.below(2) == 0 {
            match io.execute(&Command::flush(1), None) {
                Ok(done) if done.outcome.is_ok() => {
                    flushes += 1;
                    for (block, it) in known.iter_mut().enumerate() {
                        it.durable = it.acknowledged;
                        keep(block, *it);
                    }
                }
                _ => lost = true,
            }
        }
        if lost {
            return flushes;
        }
        windows.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each block has a version that it may have, and nothing of another.
fn check(driver: &Driver, known: &mut [Known], kill: u64) {
    let mut io = Initiator::new(driver, InitiatorConfig::default(), TscClock::new(), Threaded, None).unwrap();
    for (block, it) in known.iter_mut().enumerate() {
        let read = Command::read(1, block as u64 * 8, 8);
        let done = io.execute(&read, Some(io.buffer(BLOCK).unwrap())).unwrap();
        done.outcome.unwrap();
        let mut newest = 0;
        for sector in done.buffer.unwrap().to_vec().chunks_exact(512) {
            let word = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
            let (of, version) = (word(0), word(8));
            assert!(version == 0 || of == block as u64, "kill {kill}: block {block} has bytes of {of}");
            assert!(
                (it.durable..=it.sent).contains(&version),
                "kill {kill}: block {block} has version {version}: {it:?}"
            );
            newest = version.max(newest);
        }
        it.acknowledged = it.durable;
    }
}

fn disk(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(BLOCKS * BLOCK as u64).unwrap();
    path
}

fn log_of(disk: &Path) -> PathBuf {
    disk.with_extension("log")
}

/// Makes the disk what a power cut at the log's end leaves of it: of what was not flushed, a part.
/// How many writes were lost.
fn cut(disk: &Path, before: &[u8], seed: u64) -> u64 {
    let log = LogReader::open(log_of(disk)).unwrap();
    let left = survivors(log.entries(), log.count(), Some(Cut { seed, torn: true })).unwrap();
    std::fs::write(disk, before).unwrap();
    let mut image =
        ImageFile::new(std::fs::File::options().read(true).write(true).open(disk).unwrap()).unwrap();
    log.replay(0, left.first, &mut image).unwrap();
    for part in &left.then {
        log.apply(part, &mut image).unwrap();
    }
    std::fs::remove_file(log_of(disk)).unwrap();
    left.lost
}

/// The server dies at random: every command that is out ends with an error, at once, nothing hangs, and what
/// was durable is there when it is back.
#[test]
fn the_server_is_killed() {
    killed("file");
}

/// The same, and the power is cut with it: the disk loses what was not flushed, or a part of it.
#[test]
fn the_server_is_killed_and_the_power_is_cut() {
    killed("logged");
}

fn killed(kind: &str) {
    let folder = tempfile::tempdir().unwrap();
    let disk = disk(&folder);
    let mut lost = 0;
    let (mut known, mut random) = (vec![Known::default(); BLOCKS as usize], Random::new(11));
    let (mut flushes, mut longest_ns) = (0, 0);
    let kills = number("NEARSIDE_KILLS", 12);
    for kill in 0..kills {
        let before = std::fs::read(&disk).unwrap();
        let mut served = Served::over(kind, &disk);
        let driver = served.driver();
        check(&driver, &mut known, kill);
        let (after, within) = (random.below(12), Duration::from_micros(random.below(2_000)));
        let (windows, clock) = (AtomicU64::new(0), TscClock::new());
        std::thread::scope(|scope| {
            let child = &mut served.child;
            let killer = scope.spawn(|| {
                while windows.load(Ordering::Relaxed) < after {
                    std::thread::yield_now();
                }
                let begin = clock.now();
                while clock.now() - begin < within {
                    std::thread::yield_now();
                }
                child.kill().unwrap();
                child.wait().unwrap();
                clock.now()
            });
            flushes += write_on(&driver, &mut known, &mut random, &windows, |_, _| ());
            let ended = clock.now();
            longest_ns = longest_ns.max(ended.since(killer.join().unwrap()));
        });
        // A dead driver says so, and at once.
        let mut host = Host::threaded(clock);
        assert!(matches!(driver.namespaces(&mut host), Err(Error::Stopped | Error::Closed)));
        assert!(driver.queue(QueueConfig::default(), &mut host).is_err());
        let _ = driver.stop(&mut host);
        if kind == "logged" {
            lost += cut(&disk, &before, kill);
        }
    }
    assert!(kind != "logged" || lost > 0, "no write was ever lost: the test tests nothing");
    println!(
        "{kind}: {kills} kills, {flushes} flushes, {lost} writes lost with the power; at most {} us from a death to its last command's end",
        longest_ns / 1000
    );
    assert!(flushes > kills, "{flushes} flushes: the test tests nothing");
    // Never a hang; the machine may have been busy.
    assert!(longest_ns < 2_000_000_000, "{longest_ns} ns");
}

/// The client's own process: keeps what it knows in a file, which outlives it.
fn write(socket: &Path, known_path: &Path, seed: u64) {
    use std::os::unix::fs::FileExt;
    let mut known = read_known(known_path);
    let file = std::fs::File::options().write(true).open(known_path).unwrap();
    let driver = Driver::connect(socket, DriverConfig::default(), TscClock::new()).unwrap();
    check(&driver, &mut known, seed);
    println!("ready");
    let mut random = Random::new(seed);
    let mut out = std::io::stdout();
    write_on(&driver, &mut known, &mut random, &AtomicU64::new(0), |block, it| {
        let words = [it.sent, it.acknowledged, it.durable].map(u64::to_le_bytes).concat();
        file.write_all_at(&words, block as u64 * 24).unwrap();
        out.write_all(b".").and_then(|()| out.flush()).unwrap();
    });
}

fn read_known(path: &Path) -> Vec<Known> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: &[u8]| u64::from_le_bytes(at.try_into().unwrap());
    let known =
        |b: &[u8]| Known { sent: word(&b[..8]), acknowledged: word(&b[8..16]), durable: word(&b[16..]) };
    bytes.chunks_exact(24).map(known).collect()
}

/// The client dies at random: the server is there for the next one, with what was durable.
#[test]
fn the_client_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, known, socket) = (disk(&folder), folder.path().join("known"), folder.path().join("socket"));
    std::fs::write(&known, vec![0; BLOCKS as usize * 24]).unwrap();
    let server = start("file", &socket, &disk);
    let (mut random, clock) = (Random::new(12), TscClock::new());
    let kills = number("NEARSIDE_KILLS", 12);
    for kill in 0..kills {
        let role = format!("write {} {} {kill}", socket.display(), known.display());
        let mut child = another(&role);
        let (mut said, mut out) = (Vec::new(), child.stdout.take().unwrap());
        while !said.ends_with(b"ready\n") {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        // After some work, however long that takes here, and somewhere within what comes next.
        for _ in 0..random.below(200) {
            assert_eq!(out.read(&mut [0]).unwrap(), 1);
        }
        let (begin, within) = (clock.now(), Duration::from_micros(random.below(2_000)));
        while clock.now() - begin < within {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut known = read_known(&known);
    let driver = Driver::connect(server.path(), DriverConfig::default(), clock).unwrap();
    check(&driver, &mut known, kills);
    let sent: u64 = known.iter().map(|it| it.sent).sum();
    println!("{kills} kills, {sent} writes");
    assert!(sent > kills * 2 * WINDOW, "{sent} writes: the test tests nothing");
}

/// What a user may do wrong is said.
#[test]
fn what_cannot_be_connected_to_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &Path| {
        Driver::connect(path, DriverConfig::default(), TscClock::new()).err().unwrap().to_string()
    };
    assert_eq!(said(&folder.path().join("none")), "connecting: there is no such socket");
    let path = folder.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(said(&path), "connecting: nobody serves this socket");
    // Another's connection is not disturbed by what is no client.
    let server = start("shadow", &folder.path().join("other"), Path::new("none"));
    let mut nonsense = UnixStream::connect(server.path()).unwrap();
    nonsense.write_all(&[0xff; 64]).unwrap();
    drop(nonsense);
    Driver::connect(server.path(), DriverConfig::default(), TscClock::new()).unwrap();
}

/// A namespace is added and removed while a host works, whichever way it rings and its memory is reached: an
/// asynchronous event each time, the list of what changed, and the namespace with the data of its own.
#[test]
fn namespaces_come_and_go_under_a_working_host() {
    use nearside_spec::feature::fid;
    use nearside_spec::log::{async_event, event, lid};
    let clock = TscClock::new();
    let told = async_event(event::NOTICE, event::NAMESPACE_ATTRIBUTE_CHANGED, lid::CHANGED_NAMESPACES);
    for (mapped_doorbells, by_messages) in [(true, false), (false, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let namespace =
            || Arc::new(Namespace::new(Dram::new(1 << 20, 512).unwrap(), (), 512, [7; 16], true).unwrap());
        let subsystem = Subsystem::new();
        subsystem.add(1, namespace()).unwrap();
        let offer = Offer::new("nqn.2026-11.com.example:test", "TEST", subsystem.clone());
        let offer = Offer { mapped_doorbells, ..offer };
        let server = Server::start(offer, &folder.path().join("socket"), clock).unwrap();
        let config = DriverConfig { by_messages, ..DriverConfig::default() };
        let driver = Driver::connect(server.path(), config, clock).unwrap();
        let mut host = Host::threaded(clock);
        driver.set_feature(fid::ASYNC_EVENT, event::NAMESPACE_NOTICES, 0, &mut host).unwrap();
        let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
        let write = |io: &mut Initiator<Threaded, TscClock>, nsid: u32, byte: u8| {
            let mut buffer = io.buffer(4096).unwrap();
            buffer.write(0, &[byte; 4096]);
            io.execute(&Command::write(nsid, 0, 8), Some(buffer)).unwrap().outcome.map(drop)
        };
        for round in 0..5u8 {
            for there in [true, false] {
                match there {
                    true => subsystem.add(7, namespace()).unwrap(),
                    false => drop(subsystem.remove(7).unwrap()),
                }
                let ask = Command::raw(nearside_spec::opcode::admin::ASYNC_EVENT_REQUEST, 0);
                let answer = driver.admin("an event", &ask, None, &mut host).unwrap();
                assert_eq!(answer.result as u32, told);
                let changed = driver.log_page(lid::CHANGED_NAMESPACES, 0, 0, 4096, &mut host).unwrap();
                assert_eq!(changed[..8], [7, 0, 0, 0, 0, 0, 0, 0]);
                let list = driver.namespaces(&mut host).unwrap();
                assert_eq!(list, if there { vec![1, 7] } else { vec![1] });
                write(&mut io, 1, round).unwrap();
                assert_eq!(write(&mut io, 7, 100 + round).is_ok(), there);
            }
            let done = io.execute(&Command::read(1, 0, 8), Some(io.buffer(4096).unwrap())).unwrap();
            done.outcome.unwrap();
            assert_eq!(done.buffer.unwrap().to_vec(), [round; 4096]);
        }
    }
}
