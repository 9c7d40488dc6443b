//! A drive over the network as a store: it owes what every store owes, also over connections that are lost
//! and servers that are started anew without what they need not have kept.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nearside_clock::{Nanos, TscClock};
use nearside_conformance::needs;
use nearside_conformance::store::{self, Host};
use nearside_device::runner::Rest;
use nearside_device::{AnaState, Config as DeviceConfig, Identity, PortStates};
use nearside_dma::Memory;
use nearside_embedded::{Loopback, Remote};
use nearside_firmware::Fsr;
use nearside_front_tcp::{Offer, Server};
use nearside_fsrlib::driver::tcp::{Address, Options as HostOptions, Recovery};
use nearside_fsrlib::driver::{Command, DriverConfig, Initiator, InitiatorConfig, QueueConfig, Threaded};
use nearside_fsrlib::{Ask, Completion as Model, Error, Failure, Notice, Operation, Session, Transport};
use nearside_random::Rng;
use nearside_store::Operation as Change;
use nearside_store::{
    Channel, Completion, Data, Delay, Dram, File, FileOptions, Lossy, Modelled, Store, StoreError, Submitted,
    Token,
};

use super::{NQN, records, serve_at};

const SOON: Duration = Duration::from_millis(2);

fn serve<S: Store>(at: Option<&Address>, store: S) -> (Server<S, Fsr>, Address) {
    serve_at(at, [9; 16], store, |offer| Offer { identity: Identity::Trust, ..offer })
}

/// With attempts so often, and for so long.
fn connect(address: &Address, ctrl_loss_tmo: Option<Duration>) -> Remote {
    connect_with(address, ctrl_loss_tmo, |_| {})
}

fn connect_with(
    address: &Address,
    ctrl_loss_tmo: Option<Duration>,
    tell: impl Fn(&Notice) + Send + Sync + 'static,
) -> Remote {
    let recovery = Recovery { reconnect_delay: SOON, ctrl_loss_tmo };
    let options = HostOptions { recovery, ..HostOptions::default() };
    Remote::connect(&address.to_string().parse().unwrap(), options, tell).unwrap()
}

#[test]
fn what_a_store_owes() {
    let servers = RefCell::new(Vec::new());
    store::suite(4, 1_000, || {
        let (server, address) = serve(None, Dram::new(2 << 20, 512).unwrap());
        servers.borrow_mut().push(server);
        connect(&address, None)
    });
}

#[test]
fn what_a_store_owes_over_connections_that_are_lost() {
    let own = HostOptions::default().host_nqn;
    let lost = AtomicUsize::new(0);
    for seed in 0.. {
        let (server, address) = serve(None, Lossy::new(2 << 20, 512).unwrap());
        let (remote, over) = (connect(&address, None), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    lost.fetch_add(server.disconnect(NQN, &own), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let _over = Over(&over);
            store::model(&remote, seed, 4_000);
        });
        if lost.load(Ordering::Relaxed) > 20 {
            break;
        }
    }
}

/// The target says of its address that it does not serve, now and then, while much is out.
#[test]
fn a_state_that_does_not_serve_is_waited_for() {
    let waits = Arc::new(AtomicUsize::new(0));
    for seed in 0.. {
        let (server, address) = serve(None, Lossy::new(2 << 20, 512).unwrap());
        let subsystem = server.target().offers()[0].subsystem.clone();
        let set = |all| subsystem.set_ana(0, PortStates { all, ..PortStates::default() });
        let told = waits.clone();
        let tell = move |notice: &Notice| {
            if notice.to_string().contains("Asymmetric Access Inaccessible") {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (remote, over) = (connect_with(&address, None, tell), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                    set(AnaState::Inaccessible);
                    std::thread::sleep(Duration::from_millis(5));
                    set(AnaState::Optimized);
                }
            });
            let _over = Over(&over);
            store::model(&remote, seed, 4_000);
        });
        if waits.load(Ordering::Relaxed) > 10 {
            break;
        }
    }
}

/// Sets it where a test ends, however.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Of blocks that were written and not flushed a server that is started anew has any version. The store has
/// the last, and once they are flushed they stay.
#[test]
fn what_was_acknowledged_outlives_a_server_that_forgets_it() {
    const BLOCK: u64 = 512;
    const BLOCKS: u64 = 64;
    let target = Lossy::new(1 << 20, BLOCK as u32).unwrap();
    let (server, address) = serve(None, target.clone());
    let remote = connect(&address, None);
    let mut host = Host::new(&remote);
    let mut random = Rng(7);
    let mut model = [0u8; BLOCKS as usize];
    let mut server = Some(server);
    let mut forgotten = 0;
    for round in 0..12 {
        for _ in 0..200 {
            let (at, byte) = (random.below(BLOCKS), random.below(256) as u8);
            let len = (1 + random.below(4)).min(BLOCKS - at);
            let (offset, bytes) = (at * BLOCK, len * BLOCK);
            let byte = match random.below(8) {
                0 => {
                    let zeroes = Change::WriteZeroes { offset, len: bytes, fua: false };
                    host.run(zeroes, Data::None).result.unwrap();
                    0
                }
                1 => {
                    let free = Change::Deallocate { offset, len: bytes };
                    host.run(free, Data::None).result.unwrap();
                    0
                }
                kind => {
                    host.write(offset, bytes, byte, kind == 2).unwrap();
                    byte
                }
            };
            model[at as usize..][..len as usize].fill(byte);
        }
        if round % 3 == 1 {
            host.run(Change::Flush, Data::None).result.unwrap();
        }
        // A command that was out goes by the next.
        let out = (round % 2 == 0).then(|| {
            host.start(Change::Flush, Data::None, Token(round)).unwrap();
        });
        drop(server.take());
        forgotten += target.crash(round);
        server = Some(serve(Some(&address), target.clone()).0);
        for at in 0..BLOCKS {
            let bytes = host.read(at * BLOCK, BLOCK).unwrap();
            assert!(bytes.iter().all(|byte| *byte == model[at as usize]), "block {at} in round {round}");
        }
        if out.is_some() {
            host.drain();
            assert!(host.take().iter().all(|(_, completion)| completion.result.is_ok()));
        }
    }
    assert!(forgotten > 100, "{forgotten} blocks");
    host.run(Change::Flush, Data::None).result.unwrap();
    drop(server);
    assert_eq!(target.crash(99), 0);
    let all = target.contents().unwrap();
    for (at, byte) in model.iter().enumerate() {
        assert!(all[at * BLOCK as usize..][..BLOCK as usize].iter().all(|found| found == byte), "block {at}");
    }
}

/// Memory whose flushes take their time.
struct SlowFlush(Dram);

struct SlowChannel {
    memory: <Dram as Store>::Channel,
    flushes: Vec<(Token, Nanos)>,
}

impl Store for SlowFlush {
    type Channel = SlowChannel;

    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn block_size(&self) -> u32 {
        self.0.block_size()
    }

    fn channel(&self, memory: Arc<Memory>) -> std::io::Result<SlowChannel> {
        Ok(SlowChannel { memory: self.0.channel(memory)?, flushes: Vec::new() })
    }
}

impl Channel for SlowChannel {
    fn submit(&mut self, operation: Change, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        if operation != Change::Flush {
            return self.memory.submit(operation, data, token, now);
        }
        self.flushes.push((token, now + 500_000_000));
        Submitted::Pending
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        self.flushes.retain(|(token, at)| {
            let ended = *at <= now;
            if ended {
                sink(*token, Completion { result: Ok(()), buffer: None });
            }
            !ended
        });
        self.flushes.iter().map(|(_, at)| *at).min()
    }

    fn in_flight(&self) -> usize {
        self.flushes.len()
    }

    fn memory_changed(&mut self) {
        self.memory.memory_changed();
    }
}

/// More than is kept at a time is written at once, to a drive that is slow to flush, which goes away in
/// the middle: the writes wait for room, and then there is some.
#[test]
fn what_is_not_flushed_is_bounded_and_nobody_waits_for_ever() {
    const PIECE: usize = 256 << 10;
    let own = HostOptions::default().host_nqn;
    let (server, address) = serve(None, SlowFlush(Dram::new(1 << 20, 512).unwrap()));
    let remote = connect(&address, None);
    let mut drive = Loopback::threaded(remote, (), DeviceConfig::default(), Rest::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &TscClock::new()).unwrap();
    let config = InitiatorConfig { queue: QueueConfig::of_depth(16), ..InitiatorConfig::default() };
    let mut queue = Initiator::new(&driver, config, TscClock::new(), Threaded, None).unwrap();
    let mut out = VecDeque::new();
    for nth in 0..1_400u64 {
        if nth == 700 {
            server.disconnect(NQN, &own);
        }
        if out.len() == 16 {
            let written = queue.wait(out.pop_front().unwrap());
            assert_eq!(written.outcome, Ok(0), "{nth}");
        }
        let buffer = queue.buffer(PIECE).unwrap();
        let blocks = (PIECE / 512) as u32;
        let write = Command::write(1, nth % 4 * u64::from(blocks), blocks);
        out.push_back(queue.submit(&write, Some(buffer)).unwrap());
    }
    for written in out {
        assert_eq!(queue.wait(written).outcome, Ok(0));
    }
}

/// Nothing waits for ever.
#[test]
fn a_drive_that_does_not_come_back_fails_what_waits() {
    let medium = |result: Result<_, StoreError>| match result {
        Err(StoreError::Medium { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let (server, address) = serve(None, Dram::new(1 << 20, 512).unwrap());
    let remote = connect(&address, Some(Duration::from_millis(20)));
    let mut host = Host::new(&remote);
    host.write(0, 4096, 1, false).unwrap();
    drop(server);
    let why = medium(host.write(0, 4096, 2, false));
    assert!(why.contains("no other could be made in 0.02 seconds, 10 attempts"), "{why}");
    medium(host.read(0, 4096).map(drop));

    // For ever, until it is given up.
    let (server, address) = serve(None, Dram::new(1 << 20, 512).unwrap());
    let remote = connect(&address, None);
    let mut host = Host::new(&remote);
    host.write(0, 4096, 1, false).unwrap();
    drop(server);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            remote.give_up();
        });
        medium(host.write(0, 4096, 2, false));
    });
    medium(host.run(Change::Flush, Data::None).result);
}

/// A drive of another size, and one that is another, are not taken for it.
#[test]
fn another_namespace_is_not_taken_for_it() {
    let (server, address) = serve(None, Dram::new(1 << 20, 512).unwrap());
    let remote = connect(&address, None);
    let mut host = Host::new(&remote);
    host.write(0, 512, 1, false).unwrap();
    drop(server);
    let (server, _) = serve(Some(&address), Dram::new(1 << 19, 512).unwrap());
    let failed = host.read(0, 512).unwrap_err().to_string();
    assert!(failed.contains("the namespace has 524288 bytes now, not 1048576"), "{failed}");
    drop(server);
    let store = Dram::new(1 << 20, 512).unwrap();
    let _server = serve_at(Some(&address), [8; 16], store, |offer| offer);
    let failed = host.read(0, 512).unwrap_err().to_string();
    assert!(failed.contains("is another than it was"), "{failed}");
    // Nor is it asked near-data work, or served by another channel.
    let asked = remote.statistics(&|| false).map(drop).unwrap_err().to_string();
    assert!(asked.contains("is another than it was"), "{asked}");
    assert!(remote.channel(Arc::default()).is_err());
}

#[test]
fn near_data_work_is_the_remote_drives() {
    let Some(folder) = needs::folder("near_data_work_is_the_remote_drives", &["mke2fs"]) else { return };
    let image = super::image(folder.path());
    let store = File::open(&image, FileOptions::read()).unwrap();
    let (server, address) = serve(None, store);
    let remote = connect(&address, None);
    assert!(remote.read_only());
    let drive = nearside_embedded::image(&image, &nearside_embedded::Options::default()).unwrap();
    let mut here = Session::new(drive, Arc::new(TscClock::new()));
    let mut there = Session::new(Passed(&remote, false), Arc::new(TscClock::new()));
    for ask in super::asks() {
        assert!(records(&mut there, &ask) == records(&mut here, &ask), "{ask:?}");
    }
    assert!(remote.statistics(&|| false).unwrap().unwrap().taken() > 5);
    drop((there, server));

    // Nobody waits for an answer that takes a minute.
    let store =
        Modelled::new(File::open(&image, FileOptions::read()).unwrap(), Delay::parse("1s").unwrap().medium());
    let (_server, address) = serve(None, store);
    let remote = connect(&address, None);
    let mut gone = Session::new(Passed(&remote, true), Arc::new(TscClock::new()));
    let all = Ask::tree("/", Operation::List);
    let answer = gone.stream(&all, |_| ControlFlow::Continue(()));
    assert!(matches!(answer, Err(Error::Refused(Failure::Cancelled))), "{answer:?}");
}

/// What asks a remote drive; whether it has gone.
struct Passed<'r>(&'r Remote, bool);

impl Transport for Passed<'_> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        *reply = self.0.near_data(request, capacity, &|| self.1)?;
        Ok(())
    }

    fn read(&mut self, _offset: u64, _into: &mut [u8]) -> Result<u64, Error> {
        Err(Error::Unsupported("only near-data work".into()))
    }

    fn capacity(&self) -> u64 {
        0
    }

    fn block_size(&self) -> u32 {
        512
    }

    fn completion(&self) -> Model {
        Model::default()
    }
}
