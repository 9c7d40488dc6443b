//! A client of our vfio-user front that takes memory away under load. Between our driver and the front stands
//! a relay that passes on what both say, and puts messages of its own in between.
//!
//! `NEARSIDE_SEED` and `NEARSIDE_COMMANDS` as in verify.rs.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearside_clock::TscClock;
use nearside_device::{Namespace, Subsystem};
use nearside_dma::Region;
use nearside_driver::*;
use nearside_front_vfio::{Offer, Server};
use nearside_store::{Delay, Dram, Modelled};
use nearside_vfio_user::{
    Connection, DmaMap, DmaUnmap, Kind, Limits, Message, RegionAccess, Request, dma_flags, region, send,
};

use crate::model::{Model, number, seeded, sweep, work};

/// The relay's own messages; the driver's begin at 0 and are few.
const OWN: u16 = 0xf000;

fn patience() -> Duration {
    Duration::from_secs(20)
}

/// A front over 24 MiB that take 50 us an operation.
fn front(folder: &Path) -> Server {
    let store = Modelled::new(Dram::new(24 << 20, 512).unwrap(), Delay::fixed(50_000).medium());
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(store, (), 512, [7; 16], true).unwrap())).unwrap();
    let offer = Offer::new("nqn.2026-11.com.example:test", "TEST", subsystem);
    Server::start(offer, &folder.join("front"), TscClock::new()).unwrap()
}

/// What stands between.
struct Relay {
    server: Arc<Mutex<UnixStream>>,
    answers: Receiver<Message>,
    next: u16,
    /// The driver's memory.
    pool: Receiver<(DmaMap, OwnedFd)>,
}

impl Relay {
    /// Where the driver is to connect to, and the relay once it has.
    fn new(folder: &Path, server: &Path) -> (PathBuf, Relay) {
        let path = folder.join("relay");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let server = UnixStream::connect(server).unwrap();
        let (answer, answers) = channel();
        let (shared, pool) = channel();
        let to_server = Arc::new(Mutex::new(server.try_clone().unwrap()));
        let relay = Relay { server: to_server.clone(), answers, next: OWN, pool };
        std::thread::spawn(move || {
            let client = listener.accept().unwrap().0;
            let to_client = client.try_clone().unwrap();
            std::thread::spawn(move || back(server, &to_client, &answer));
            forth(client, &to_server, &shared);
        });
        (path, relay)
    }

    /// Asks the front. The errno, where it refuses.
    fn ask(&mut self, request: &Request<'_>, descriptor: Option<&OwnedFd>) -> Result<(), u32> {
        let descriptors: Vec<_> = descriptor.iter().map(|fd| fd.as_fd()).collect();
        let kind = Kind::Command { no_reply: false };
        send(&self.server.lock().unwrap(), self.next, kind, request, &descriptors, patience).unwrap();
        let answer = self.answers.recv_timeout(patience()).unwrap();
        assert_eq!(answer.header.id, self.next);
        self.next = OWN + (self.next + 1) % 0x0fff;
        match answer.header.kind {
            Kind::Reply { error: Some(errno) } => Err(errno),
            _ => Ok(()),
        }
    }
}

fn limits() -> Limits {
    Limits { descriptors: 64, ..Limits::default() }
}

fn forth(client: UnixStream, server: &Mutex<UnixStream>, shared: &Sender<(DmaMap, OwnedFd)>) {
    let mut from = Connection::new(client, limits());
    while let Ok(Some(message)) = from.receive(|| Duration::from_secs(3600)) {
        let request = message.request().unwrap();
        if let (Request::DmaMap(map), Some(fd)) = (&request, message.descriptors.first()) {
            let _ = shared.send((*map, fd.try_clone().unwrap()));
        }
        let descriptors: Vec<_> = message.descriptors.iter().map(AsFd::as_fd).collect();
        let to = server.lock().unwrap();
        let (id, kind) = (message.header.id, message.header.kind);
        if send(&to, id, kind, &request, &descriptors, patience).is_err() {
            return;
        }
    }
    let _ = server.lock().unwrap().shutdown(std::net::Shutdown::Both);
}

fn back(server: UnixStream, client: &UnixStream, own: &Sender<Message>) {
    let mut from = Connection::new(server, limits());
    while let Ok(Some(message)) = from.receive(|| Duration::from_secs(3600)) {
        let (id, kind) = (message.header.id, message.header.kind);
        if id >= OWN {
            let _ = own.send(message);
            continue;
        }
        let descriptors: Vec<_> = message.descriptors.iter().map(AsFd::as_fd).collect();
        let sent = match kind {
            Kind::Reply { error: Some(_) } => {
                send(client, id, kind, &message.header.command, &descriptors, patience)
            }
            _ => send(client, id, kind, &message.reply().unwrap(), &descriptors, patience),
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
}

/// Memory that no command names comes and goes, thousands of times, also in thousands of pieces, and every
/// command has its own data.
#[test]
fn memory_beside_comes_and_goes_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let server = front(folder.path());
    let (path, mut relay) = Relay::new(folder.path(), server.path());
    let clock = TscClock::new();
    let driver = Driver::connect(&path, DriverConfig::default(), clock).unwrap();
    let info = driver.namespace(None, &mut Host::threaded(&clock)).unwrap();
    let done = AtomicBool::new(false);
    let (mut maps, commands) = (0u64, number("NEARSIDE_COMMANDS", 12_000));
    std::thread::scope(|scope| {
        let comes_and_goes = scope.spawn(|| {
            let memory = Region::shared("beside", 1 << 20).unwrap();
            let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
            let mut random = seeded(17);
            while !done.load(Ordering::Relaxed) {
                // Far above what the driver has, one page each.
                let some: Vec<u64> = (0..random.below(100)).map(|nr| (1 << 40) + nr * 8192).collect();
                for &address in &some {
                    let (flags, size) = (dma_flags::READ | dma_flags::WRITE, 4096);
                    let map = DmaMap { flags, offset: random.below(256) * 4096, address, size };
                    relay.ask(&Request::DmaMap(map), Some(&fd)).unwrap();
                    maps += 1;
                }
                for &address in &some {
                    let unmap = DmaUnmap { flags: 0, address, size: 4096 };
                    relay.ask(&Request::DmaUnmap(unmap), None).unwrap();
                    assert!(relay.ask(&Request::DmaUnmap(unmap), None).is_err(), "it was gone");
                }
            }
        });
        // Joined first, so that whatever came of it the other hears of its end.
        let worked = scope.spawn(|| {
            let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
            let mut model = Model::new(0, info.blocks as usize, 512);
            work(&mut io, &mut model, &mut seeded(18), commands, false);
            sweep(&mut io, &model);
            io.close().unwrap();
        });
        let worked = worked.join();
        done.store(true, Ordering::Relaxed);
        worked.unwrap();
        comes_and_goes.join().unwrap();
    });
    println!("{maps} pieces of memory mapped and unmapped");
    assert!(maps > 100, "{maps}: the test tests nothing");
}

/// The memory that queues and buffers lie in is unmapped while commands are out. Once the front has said that
/// it is done, it touches none of it; it takes the next client, and what was durable is there.
#[test]
fn memory_in_use_is_left_alone_once_it_is_unmapped() {
    const BLOCKS: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let server = front(folder.path());
    let clock = TscClock::new();
    let mut random = seeded(19);
    for round in 0..8u8 {
        let (path, mut relay) = Relay::new(folder.path(), server.path());
        let config = DriverConfig { timeout_ms: 200, pool_bytes: 4 << 20, ..DriverConfig::default() };
        let driver = Driver::connect(&path, config, clock).unwrap();
        let (map, fd) = relay.pool.recv_timeout(patience()).unwrap();
        let ours = Region::map(fd, map.size as usize).unwrap();
        let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
        // What the last round made durable, and what this one does.
        for block in 0..BLOCKS {
            let read = Command::read(1, block, 1);
            let done = io.execute(&read, Some(io.buffer(512).unwrap())).unwrap();
            done.outcome.unwrap();
            assert_eq!(done.buffer.unwrap().to_vec(), [round; 512], "round {round}, block {block}");
            let mut buffer = io.buffer(512).unwrap();
            buffer.write(0, &[round + 1; 512]);
            io.execute(&Command::write(1, block, 1), Some(buffer)).unwrap().outcome.unwrap();
        }
        io.execute(&Command::flush(1), None).unwrap().outcome.unwrap();
        let mut out = Vec::new();
        for _ in 0..32 {
            // Beyond what is compared.
            let block = BLOCKS + random.below(1000);
            let write = Command::write(1, block, 1);
            let command = if random.below(2) == 0 { Command::read(1, block, 1) } else { write };
            out.push(io.submit(&command, Some(io.buffer(512).unwrap())).unwrap());
        }
        let unmap = DmaUnmap { flags: 0, address: map.address, size: map.size };
        relay.ask(&Request::DmaUnmap(unmap), None).unwrap();
        let mut then = vec![0; ours.len()];
        ours.read(0, &mut then);
        // The front's reactor has had many turns after these, and the store's operations have ended.
        for _ in 0..200 {
            relay.ask(&Request::DeviceInfo { argsz: 32 }, None).unwrap();
        }
        let mut now = vec![0; ours.len()];
        ours.read(0, &mut now);
        let changed = then.iter().zip(&now).position(|(a, b)| a != b);
        assert_eq!(changed, None, "round {round}: memory was written after it was unmapped");
        // Some were answered before, the others never are: the driver says so and does not hang.
        let lost = out.into_iter().map(|handle| io.wait(handle)).filter(|end| end.outcome.is_err()).count();
        println!("round {round}: {lost} of 32 commands lost");
        drop(io);
        let _ = driver.stop(&mut Host::threaded(clock));
    }
}

/// Bus mastering is switched off and on while commands are out. Once the front has said that it is off,
/// memory is left alone; once it is on again, commands are done as before, those that were not begun among
/// them.
#[test]
fn a_function_that_masters_no_bus_leaves_memory_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = front(folder.path());
    let clock = TscClock::new();
    let (path, mut relay) = Relay::new(folder.path(), server.path());
    let config = DriverConfig { pool_bytes: 4 << 20, ..DriverConfig::default() };
    let driver = Driver::connect(&path, config, clock).unwrap();
    let (map, fd) = relay.pool.recv_timeout(patience()).unwrap();
    let ours = Region::map(fd, map.size as usize).unwrap();
    let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
    let (mut random, mut written, mut refused) = (seeded(20), 0, 0);
    // Memory space, with and without bus master; power states D3hot and D0.
    for (at, off, on) in [(4, 2, 6), (0x44, 3, 0)].repeat(20) {
        let mut out = Vec::new();
        for _ in 0..32 {
            let block = random.below(1000);
            let mut buffer = io.buffer(512).unwrap();
            buffer.write(0, &[7; 512]);
            out.push(io.submit(&Command::write(1, block, 1), Some(buffer)).unwrap());
        }
        let mut set = |byte: u8| {
            let access = RegionAccess { offset: at, region: region::CONFIG, count: 1 };
            relay.ask(&Request::RegionWrite(access, &[byte]), None).unwrap();
        };
        set(off);
        let mut then = vec![0; ours.len()];
        ours.read(0, &mut then);
        for _ in 0..20 {
            set(off);
        }
        let mut now = vec![0; ours.len()];
        ours.read(0, &mut now);
        assert_eq!(then.iter().zip(&now).position(|(a, b)| a != b), None, "memory was written");
        set(on);
        for handle in out {
            // What was under way when its memory went has failed.
            match io.wait(handle).outcome {
                Ok(_) => written += 1,
                Err(_) => refused += 1,
            }
        }
        let block = 2000 + random.below(1000);
        let mut buffer = io.buffer(512).unwrap();
        buffer.write(0, &[9; 512]);
        io.execute(&Command::write(1, block, 1), Some(buffer)).unwrap().outcome.unwrap();
        let done = io.execute(&Command::read(1, block, 1), Some(io.buffer(512).unwrap())).unwrap();
        done.outcome.unwrap();
        assert_eq!(done.buffer.unwrap().to_vec(), [9; 512]);
    }
    println!("{written} commands written, {refused} refused");
    assert!(written > 0);
}
