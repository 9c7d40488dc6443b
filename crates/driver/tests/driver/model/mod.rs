//! What should be on a drive while threads write, read, delete queues and reset the controller: for a drive
//! in this process and for one in another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_clock::{Clock, TscClock};
use nearside_driver::*;
use nearside_random::{Rng, scatter};

pub const POLICIES: [Policy; 3] = [Policy::Polled, Policy::Interrupt, Policy::Hybrid];

pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

pub fn seeded(salt: u64) -> Rng {
    let seed = number("NEARSIDE_SEED", 0x5eed);
    println!("seed {seed:#x}, salt {salt}");
    Rng(scatter(seed ^ scatter(salt)))
}

/// What should be in a range of blocks that one thread alone uses.
pub struct Model {
    pub first: u64,
    pub block: usize,
    pub versions: Vec<u32>,
}

/// What a command that is out will do, and what a read must find.
struct Out {
    at: usize,
    blocks: usize,
    what: What,
}

enum What {
    /// Versions to find.
    Read(Vec<u32>),
    Write,
    Other,
}

impl Model {
    pub fn new(first: u64, blocks: usize, block: usize) -> Model {
        Model { first, block, versions: vec![0; blocks] }
    }

    /// Version 0 is zeros; every other fills the block with words of (address, version, position).
    fn stamp(&self, at: usize, version: u32, into: &mut [u8]) {
        let lba = self.first + at as u64;
        for (i, word) in into.chunks_exact_mut(8).enumerate() {
            let value = match version {
                0 => 0,
                v => lba << 40 | u64::from(v) << 8 | (i as u64 & 0xff),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    fn check(&self, out: &Out, versions: &[u32], buffer: &DmaBuffer) {
        let (mut got, mut want) = (vec![0; self.block], vec![0; self.block]);
        for (i, &version) in versions.iter().enumerate() {
            buffer.read(i * self.block, &mut got);
            self.stamp(out.at + i, version, &mut want);
            if got != want {
                let word = u64::from_le_bytes(got[..8].try_into().unwrap());
                panic!(
                    "block {} should have version {version}; its first word says block {} version {}",
                    self.first + (out.at + i) as u64,
                    word >> 40,
                    word >> 8 & 0xffff_ffff
                );
            }
        }
    }

    /// A random command on blocks that no command in `busy` touches.
    fn draw(
        &mut self,
        random: &mut Rng,
        busy: &[Option<Out>],
        pool: &BufferPool,
        max_blocks: usize,
    ) -> Option<(Command, Option<DmaBuffer>, Out)> {
        let most = if random.below(16) == 0 { max_blocks } else { max_blocks.min(4096 / self.block * 2) };
        let blocks = 1 + random.below(most.min(self.versions.len()) as u64) as usize;
        let at = random.below((self.versions.len() - blocks + 1) as u64) as usize;
        if busy.iter().flatten().any(|o| at < o.at + o.blocks && o.at < at + blocks) {
            return None;
        }
        let (slba, count) = (self.first + at as u64, blocks as u32);
        let range = at..at + blocks;
        let len = blocks * self.block;
        let written = |model: &mut Model, random: &mut Rng| {
            let mut buffer = pool.take(len).ok()?;
            let mut bytes = vec![0; model.block];
            for i in 0..blocks {
                // Versions rise; which one is random, so that a stale block shows.
                let version = model.versions[at + i] % 0xff_ffff + 1 + random.below(3) as u32;
                model.versions[at + i] = version;
                model.stamp(at + i, version, &mut bytes);
                buffer.write(i * model.block, &bytes);
            }
            Some(buffer)
        };
        Some(match random.below(100) {
            0..50 => {
                let mut buffer = pool.take(len).ok()?;
                buffer.fill(0xa5);
                let versions = self.versions[range].to_vec();
                (Command::read(1, slba, count), Some(buffer), Out { at, blocks, what: What::Read(versions) })
            }
            50..95 => {
                let buffer = written(self, random)?;
                let command = Command::write(1, slba, count);
                let command = if random.below(8) == 0 { command.fua() } else { command };
                (command, Some(buffer), Out { at, blocks, what: What::Write })
            }
            95..97 => {
                self.versions[range].fill(0);
                (Command::write_zeroes(1, slba, count), None, Out { at, blocks, what: What::Other })
            }
            97 => {
                let mut buffer = pool.take(16).ok()?;
                self.versions[range].fill(0);
                let command = Command::deallocate(1, &[(slba, count)], &mut buffer);
                (command, Some(buffer), Out { at, blocks, what: What::Other })
            }
            98 => {
                let mut buffer = pool.take(len).ok()?;
                let mut bytes = vec![0; self.block];
                for i in 0..blocks {
                    self.stamp(at + i, self.versions[at + i], &mut bytes);
                    buffer.write(i * self.block, &bytes);
                }
                (Command::compare(1, slba, count), Some(buffer), Out { at, blocks, what: What::Other })
            }
            _ => (Command::flush(1), None, Out { at, blocks: 0, what: What::Other }),
        })
    }

    fn ended(&self, out: &Out, finished: &Finished) {
        assert!(finished.outcome.is_ok(), "blocks {}+{}: {:?}", out.at, out.blocks, finished.outcome);
        if let What::Read(versions) = &out.what {
            self.check(out, versions, finished.buffer.as_ref().unwrap());
        }
    }
}

/// Runs `commands` commands of one thread through an initiator, at random depths, with waits,
/// polls and policy switches.
pub fn work<P: Peer, C: Clock>(
    io: &mut Initiator<P, C>,
    model: &mut Model,
    random: &mut Rng,
    commands: u64,
    switch: bool,
) {
    let pool = io.controller().pool().clone();
    let max_blocks = io.controller().max_transfer().min(256 << 10) / model.block;
    let mut handles: Vec<Option<Handle>> = (0..24).map(|_| None).collect();
    let mut outs: Vec<Option<Out>> = (0..24).map(|_| None).collect();
    let (mut sent, mut ended, mut depth) = (0, 0, 1);
    while ended < commands {
        if sent % 512 == 0 {
            depth = [1, 1, 3, 8, 24][random.below(5) as usize];
            if switch {
                io.set_policy(POLICIES[random.below(3) as usize]);
            }
        }
        let at = random.below(depth) as usize;
        match handles[at] {
            None if sent < commands => {
                if let Some((command, buffer, out)) = model.draw(random, &outs, &pool, max_blocks) {
                    handles[at] = Some(io.submit(&command, buffer).unwrap());
                    outs[at] = Some(out);
                    sent += 1;
                }
            }
            None => {
                let Some(next) = handles.iter().position(Option::is_some) else { break };
                let finished = io.wait(handles[next].take().unwrap());
                model.ended(&outs[next].take().unwrap(), &finished);
                ended += 1;
            }
            Some(handle) => {
                let finished = if random.below(2) == 0 { Some(io.wait(handle)) } else { io.poll(handle) };
                if let Some(finished) = finished {
                    handles[at] = None;
                    model.ended(&outs[at].take().unwrap(), &finished);
                    ended += 1;
                }
            }
        }
        if depth < 24 && sent % 512 == 0 {
            // Slots beyond the new depth are waited for.
            for slot in depth as usize..24 {
                if let Some(handle) = handles[slot].take() {
                    let finished = io.wait(handle);
                    model.ended(&outs[slot].take().unwrap(), &finished);
                    ended += 1;
                }
            }
        }
    }
    assert_eq!(sent, ended);
}

/// Reads everything back.
pub fn sweep<P: Peer, C: Clock>(io: &mut Initiator<P, C>, model: &Model) {
    let each = (64 << 10) / model.block;
    let mut buffer = Some(io.buffer(64 << 10).unwrap());
    for at in (0..model.versions.len()).step_by(each) {
        let blocks = each.min(model.versions.len() - at);
        let mut b = buffer.take().unwrap();
        b.set_len(blocks * model.block);
        let command = Command::read(1, model.first + at as u64, blocks as u32);
        let finished = io.execute(&command, Some(b)).unwrap();
        let out = Out { at, blocks, what: What::Read(model.versions[at..at + blocks].to_vec()) };
        model.ended(&out, &finished);
        buffer = finished.buffer;
    }
}

/// Several threads, each with a queue pair, with a shared asynchronous path and policy switches.
pub fn threads_on(driver: &Driver, commands: u64) {
    let clock = TscClock::new();
    let info = driver.namespace(Some(1), &mut Host::threaded(&clock)).unwrap();
    let service = Service::start(driver, 64, clock, || ()).unwrap();
    let threads = 3;
    let each = info.blocks / threads;
    std::thread::scope(|scope| {
        for t in 0..threads {
            let service = service.handle();
            scope.spawn(move || {
                let config = InitiatorConfig { policy: POLICIES[t as usize], ..Default::default() };
                let mut io = Initiator::new(driver, config, clock, Threaded, Some(service)).unwrap();
                let mut model = Model::new(t * each, each as usize, info.block_size as usize);
                work(&mut io, &mut model, &mut seeded(100 + t), commands / threads, true);
                sweep(&mut io, &model);
                io.close().unwrap();
            });
        }
    });
}

/// Queues come and go while commands are out on them and on others.
/// A write whose fate is unknown leaves the old or the new version.
pub fn queues_deleted_under_load(driver: &Driver, rounds: u64) {
    let clock = TscClock::new();
    let rounds = number("NEARSIDE_ROUNDS", rounds);
    let deleted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let deleted = &deleted;
        scope.spawn(move || {
            let mut random = seeded(7);
            // Of each block, the versions that it may have.
            let mut may: HashMap<u64, Vec<u32>> = HashMap::new();
            let mut version = 0u32;
            for _ in 0..rounds {
                let depth = 1 + random.below(64) as u16;
                let config = QueueConfig { depth, interrupt: random.below(2) == 0 };
                let mut queue = driver.queue(config, &mut Host::threaded(&clock)).unwrap();
                let mut out: HashMap<u64, (u64, u32)> = HashMap::new();
                let mut ended = |done: Completed, out: &mut HashMap<u64, (u64, u32)>| {
                    let (lba, v) = out.remove(&done.cookie).unwrap();
                    assert!(done.buffer.is_some());
                    match done.outcome {
                        Ok(_) => drop(may.insert(lba, vec![v])),
                        Err(Failure::QueueDeleted | Failure::Status(_)) => {
                            deleted.fetch_add(1, Ordering::Relaxed);
                            may.entry(lba).or_insert_with(|| vec![0]).push(v);
                        }
                        Err(e) => panic!("{e}"),
                    }
                };
                for cookie in 0..random.below(200) {
                    let lba = random.below(8192);
                    if out.values().any(|(l, _)| *l == lba) {
                        continue;
                    }
                    if queue.outstanding() == queue.depth() {
                        queue.poll(clock.now(), |d| ended(d, &mut out)).unwrap();
                        if queue.outstanding() == queue.depth() {
                            std::thread::yield_now();
                            continue;
                        }
                    }
                    version += 1;
                    let mut buffer = driver.pool().take(512).unwrap();
                    let bytes = [lba.to_le_bytes(), u64::from(version).to_le_bytes()].concat().repeat(32);
                    buffer.write(0, &bytes);
                    queue.submit(&Command::write(1, lba, 1), Some(buffer), cookie, clock.now()).unwrap();
                    out.insert(cookie, (lba, version));
                    if random.below(4) == 0 {
                        queue.ring();
                    }
                }
                driver.delete(queue, &mut Host::threaded(&clock), |d| ended(d, &mut out)).unwrap();
                assert!(out.is_empty(), "{} commands never came back", out.len());
            }
            let mut io = Initiator::new(driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
            for (lba, versions) in may {
                let done = io.execute(&Command::read(1, lba, 1), Some(io.buffer(512).unwrap())).unwrap();
                let bytes = done.buffer.unwrap().to_vec();
                let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
                assert!(versions.contains(&(word(1) as u32)), "block {lba}: {} of {versions:?}", word(1));
                assert!(word(1) == 0 || (0..32).all(|i| word(2 * i) == lba && word(2 * i + 1) == word(1)));
            }
        });
        // Beside it, a thread whose queue stays and whose commands must not notice.
        scope.spawn(move || {
            let mut io = Initiator::new(driver, InitiatorConfig::default(), clock, Threaded, None).unwrap();
            let mut model = Model::new(8192, 8192, 512);
            work(&mut io, &mut model, &mut seeded(8), 5_000, true);
            sweep(&mut io, &model);
        });
    });
    println!("{} commands ended by the deletion of their queue", deleted.load(Ordering::Relaxed));
    assert_eq!(driver.pool().capacity(), 64 << 20);
}

/// The controller is stopped by another thread while commands are out everywhere:
/// all buffers come back, nobody hangs.
pub fn reset_under_load(driver: &mut Driver) {
    let clock = TscClock::new();
    let free = driver.pool().available();
    for round in 0..10u64 {
        let service = Service::start(driver, 16, clock, || ()).unwrap();
        std::thread::scope(|scope| {
            for policy in POLICIES {
                let (driver, service) = (&*driver, service.handle());
                scope.spawn(move || {
                    let config = InitiatorConfig { policy, ..Default::default() };
                    // The stop may come before the queue is made.
                    let Ok(mut io) = Initiator::new(driver, config, clock, Threaded, Some(service)) else {
                        return;
                    };
                    loop {
                        let handles: Vec<_> = (0..8)
                            .map_while(|i| io.submit(&Command::read(1, i, 1), io.buffer(512).ok()).ok())
                            .collect();
                        let mut failed = handles.len() < 8;
                        for handle in handles {
                            let finished = io.wait(handle);
                            assert!(finished.buffer.is_some());
                            failed |= finished.outcome.is_err();
                        }
                        if failed {
                            break;
                        }
                    }
                });
            }
            let begin = clock.now();
            while clock.now().since(begin) < 2_000_000 * (round + 1) {
                std::thread::yield_now();
            }
            driver.stop(&mut Host::threaded(&clock)).unwrap();
        });
        drop(service);
        driver.restart(&mut Host::threaded(&clock)).unwrap();
        assert_eq!(driver.pool().available(), free);
    }
}
