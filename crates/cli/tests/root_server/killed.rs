//! `nearside serve` killed under load, a hundred times, on a file that then loses what was not synchronised:
//! every write that was flushed, or had FUA, and was acknowledged is there.

use std::process::Command as Process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nearside_clock::TscClock;
use nearside_conformance::volume;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::{Command, Policy};
use nearside_embedded::Loopback;
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_random::Random;
use nearside_spec::command::transfer;
use nearside_store::{File, FileOptions, Lossy};

use crate::{Server, can_attach, connect};

const KILLS: u64 = 100;
/// Blocks of 4 KiB; few, so that each is written often.
const BLOCKS: u64 = 256;
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Writes out at once.
const WINDOW: u64 = 8;

/// What is known of each block: the newest version that was sent, that was acknowledged,
/// and that has to survive.
#[derive(Clone, Copy, Default)]
struct Known {
    sent: u64,
    acknowledged: u64,
    durable: u64,
}

/// A block's bytes: in each sector its number and its version.
fn bytes(block: u64, version: u64) -> Vec<u8> {
    let words = [block.to_le_bytes(), version.to_le_bytes()].concat();
    words.repeat(BLOCK / words.len())
}

/// Writes and flushes until the connection is lost; counts what it has done in `windows`.
fn work(port: u16, known: &mut [Known], random: &mut Random, flushes: &mut u64, windows: &AtomicU64) {
    // It may be killed before it has answered.
    let Ok(controller) = connect(port) else { return };
    let initiator = controller.initiator(WINDOW as u16 * 2, Policy::Interrupt, TscClock::new());
    let Ok(mut initiator) = initiator else { return };
    let mut out = Vec::new();
    loop {
        let first = random.below(BLOCKS - WINDOW);
        for block in first..first + WINDOW {
            let it = &mut known[block as usize];
            it.sent += 1;
            let mut command = Command::write(1, block * 8, 8);
            if random.below(8) == 0 {
                command = command.fua();
            }
            let Ok(handle) = initiator.submit(&command, Some(bytes(block, it.sent))) else { return };
            out.push((handle, block, command.entry.get(transfer::FUA)));
        }
        let mut lost = false;
        for (handle, block, fua) in out.drain(..) {
            let it = &mut known[block as usize];
            match initiator.wait(handle).outcome {
                Ok(_) => {
                    it.acknowledged = it.sent;
                    if fua {
                        it.durable = it.sent;
                    }
                }
                Err(_) => lost = true,
            }
        }
        if lost {
            return;
        }
        if random.below(2) == 0 {
            match initiator.execute(&Command::flush(1), None) {
                Ok(done) if done.outcome.is_ok() => {
                    known.iter_mut().for_each(|it| it.durable = it.acknowledged);
                    *flushes += 1;
                }
                _ => return,
            }
        }
        windows.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a test knows of the blocks, over kills.
struct State {
    known: Vec<Known>,
    random: Random,
    flushes: u64,
}

impl State {
    fn new() -> State {
        State { known: vec![Known::default(); BLOCKS as usize], random: Random::new(11), flushes: 0 }
    }

    /// A server on that store works, and is killed after some work, however long that takes here, and
    /// somewhere within what comes next.
    fn work_until_killed(&mut self, store: &str) {
        let State { known, random, flushes } = self;
        let server = Server::of(store, &[]);
        let (port, id) = (server.port, server.child.id().to_string());
        let (after, within) = (random.below(12), Duration::from_micros(random.below(2_000)));
        let windows = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                while windows.load(Ordering::Relaxed) < after {
                    std::thread::sleep(Duration::from_micros(50));
                }
                std::thread::sleep(within);
                assert!(Process::new("kill").args(["-KILL", &id]).status().unwrap().success());
            });
            work(port, known, random, flushes, &windows);
            // Where it ended before.
            windows.store(u64::MAX, Ordering::Relaxed);
            killer.join().unwrap();
        });
    }

    /// What has to survive is there; what was acknowledged and not flushed may be gone.
    fn check(&mut self, kill: u64, contents: &[u8]) {
        for (block, it) in self.known.iter_mut().enumerate() {
            for sector in contents[block * BLOCK..(block + 1) * BLOCK].chunks_exact(SECTOR) {
                let word = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
                let (of, version) = (word(0), word(8));
                assert!(version == 0 || of == block as u64, "kill {kill}: block {block} has bytes of {of}");
                assert!(
                    (it.durable..=it.sent).contains(&version),
                    "kill {kill}: block {block} has version {version}; {} was durable, {} was sent",
                    it.durable,
                    it.sent
                );
            }
            it.acknowledged = it.durable;
        }
    }
}

/// A mapped file has what the server stored when it was killed, flushed or not: all that was acknowledged.
#[test]
fn a_mapped_file_keeps_all_that_was_acknowledged() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = folder.path().join("pmem.img");
    std::fs::write(&image, vec![0; BLOCKS as usize * BLOCK]).unwrap();
    let mut state = State::new();
    for kill in 0..KILLS / 4 {
        state.work_until_killed(&format!("pmem:{}", image.display()));
        state.known.iter_mut().for_each(|it| it.durable = it.acknowledged);
        state.check(kill, &std::fs::read(&image).unwrap());
    }
    assert!(state.flushes > KILLS / 4, "{} flushes: the test tests nothing", state.flushes);
}

#[test]
fn nothing_that_was_acknowledged_as_durable_is_lost() {
    let test = "root_server::killed::nothing_that_was_acknowledged_as_durable_is_lost";
    if !can_attach(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Lossy::new(BLOCKS * BLOCK as u64, SECTOR as u32).unwrap();
    let drive = Loopback::threaded(store.clone(), (), Config::default(), Rest::default()).unwrap();
    let attached = attach(drive.function.clone(), &AttachOptions::new(folder.path())).unwrap();
    let file = attached.file();
    let (mut state, mut lost) = (State::new(), 0);
    for kill in 0..KILLS {
        state.work_until_killed(&format!("file:{}", file.display()));
        lost += store.crash(kill);
        state.check(kill, &store.contents().unwrap());
    }
    let flushes = state.flushes;
    assert!(
        lost > 100 && flushes > KILLS,
        "{lost} blocks lost something, {flushes} flushes: the test tests nothing"
    );
    // The kernel ends a killed server's io_uring after the server:
    // until then its lock is held, and the mount is busy.
    drop(File::open(&file, FileOptions::serve()).unwrap());
    volume::detach(attached, Attached::detach).unwrap();
}
