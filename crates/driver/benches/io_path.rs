//! The polled I/O path beside its floor: the drive's queue pairs and a bare shared-memory ring, in
//! turns, in one process, between the same two cores, over the same kinds of memory. Prints
//! medians of rounds, their ratio and their spread.
//!
//! `cargo bench -p nearside-driver --bench io_path` for figures; run without `--bench`, as `cargo test`
//! does, it makes a small run that only has to end. `FAST=1` shortens. `NEARSIDE_RECORD_FILE` names a file
//! to which figures are added as JSON lines.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::ring::{Request, RingClient, RingServer, ring};
use common::{Figure, Random, Size, median, pin};
use nearside_clock::{Clock, Nanos, TscClock};
use nearside_device::{Config, runner::Rest};
use nearside_dma::Region;
use nearside_driver::{
    Command, Controller, DmaBuffer, DriverConfig, Host, QueueConfig, QueuePair, Transport,
};
use nearside_embedded::Loopback;
use nearside_store::{Dram, Store};

const DEPTHS: [usize; 4] = [1, 4, 32, 128];

/// The bare ring's server, on a thread that rests while it is not its turn.
struct Floor {
    client: RingClient,
    memory: Arc<Region>,
    turn: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

const REST: u32 = 0;
const SERVE: u32 = 1;
const END: u32 = 2;

impl Floor {
    fn start(bytes: usize) -> Floor {
        let (client, mut server): (RingClient, RingServer) = ring(256).unwrap();
        let memory = Arc::new(Region::shared("floor", 2 << 20).unwrap());
        memory.prefer_huge_pages();
        let turn = Arc::new(AtomicU32::new(REST));
        let (m, t) = (memory.clone(), turn.clone());
        let thread = std::thread::spawn(move || {
            let store = Region::anonymous(bytes).unwrap();
            store.prefer_huge_pages();
            store.fill(0, bytes, 1);
            loop {
                match t.load(Ordering::Acquire) {
                    REST => std::thread::park(),
                    SERVE => {
                        if server.serve(&store, &m) == 0 {
                            std::hint::spin_loop();
                        }
                    }
                    _ => return,
                }
            }
        });
        Floor { client, memory, turn, thread: Some(thread) }
    }

    fn set(&self, turn: u32) {
        self.turn.store(turn, Ordering::Release);
        if let Some(t) = &self.thread {
            t.thread().unpark();
        }
    }

    fn run(&mut self, load: &Load, random: &mut Random, clock: &TscClock, latencies: &mut Vec<u64>) -> f64 {
        self.set(SERVE);
        // A first request, so that the server is awake.
        let first = Request { write: false, len: 512, store: 0, memory: 0 };
        self.client.submit(&first);
        while !self.client.complete() {
            std::hint::spin_loop();
        }
        let (mut sent, mut ended) = (0, 0);
        let begin = clock.now();
        if load.depth == 1 {
            for _ in 0..load.count {
                let request = load.request(0, random);
                let from = clock.now();
                self.client.submit(&request);
                while !self.client.complete() {
                    std::hint::spin_loop();
                }
                latencies.push(clock.now().since(from));
            }
        } else {
            while ended < load.count {
                while sent < load.count && sent - ended < load.depth {
                    self.client.submit(&load.request(sent % load.depth, random));
                    sent += 1;
                }
                let before = ended;
                while self.client.complete() {
                    ended += 1;
                }
                if ended == before {
                    std::hint::spin_loop();
                }
            }
        }
        let rate = load.count as f64 / clock.now().since(begin).max(1) as f64 * 1e3;
        self.set(REST);
        let _ = &self.memory;
        rate
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.set(END);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

struct Load {
    write: bool,
    bytes: usize,
    depth: usize,
    count: usize,
    blocks: u64,
}

impl Load {
    fn offset(&self, random: &mut Random) -> u64 {
        random.below(self.blocks) * self.bytes as u64
    }

    fn request(&self, slot: usize, random: &mut Random) -> Request {
        Request {
            write: self.write,
            len: self.bytes as u32,
            store: self.offset(random),
            memory: (slot * self.bytes) as u64,
        }
    }

    fn command(&self, random: &mut Random) -> Command {
        let (slba, blocks) = (self.offset(random) / 512, (self.bytes / 512) as u32);
        if self.write { Command::write(1, slba, blocks) } else { Command::read(1, slba, blocks) }
    }
}

/// The drive's queue pair under the same load.
fn drive(
    queue: &mut QueuePair,
    load: &Load,
    random: &mut Random,
    clock: &TscClock,
    latencies: &mut Vec<u64>,
    buffers: &mut Vec<DmaBuffer>,
) -> f64 {
    let mut submit = |queue: &mut QueuePair, mut buffer: DmaBuffer, now: Nanos| {
        buffer.set_len(load.bytes);
        queue.submit(&load.command(random), Some(buffer), 0, now).unwrap();
    };
    // A first command, so that the drive is awake.
    let mut wake = |queue: &mut QueuePair, buffer: DmaBuffer| {
        submit(queue, buffer, clock.now());
        queue.ring();
        loop {
            match queue.reap() {
                Some(done) => break done.buffer.unwrap(),
                None => std::hint::spin_loop(),
            }
        }
    };
    let buffer = buffers.pop().unwrap();
    let buffer = wake(queue, buffer);
    buffers.push(buffer);
    let begin = clock.now();
    if load.depth == 1 {
        let mut buffer = buffers.pop().unwrap();
        for _ in 0..load.count {
            let from = clock.now();
            submit(queue, buffer, from);
            queue.ring();
            buffer = loop {
                match queue.reap() {
                    Some(done) => {
                        assert!(done.outcome.is_ok());
                        break done.buffer.unwrap();
                    }
                    None => std::hint::spin_loop(),
                }
            };
            latencies.push(clock.now().since(from));
        }
        buffers.push(buffer);
    } else {
        let (mut sent, mut ended) = (0, 0);
        let mut now = clock.now();
        while sent < load.depth.min(load.count) {
            submit(queue, buffers.pop().unwrap(), now);
            sent += 1;
        }
        while ended < load.count {
            queue.ring();
            let before = ended;
            while let Some(done) = queue.reap() {
                assert!(done.outcome.is_ok());
                ended += 1;
                let buffer = done.buffer.unwrap();
                if sent < load.count {
                    submit(queue, buffer, now);
                    sent += 1;
                } else {
                    buffers.push(buffer);
                }
            }
            if ended == before {
                std::hint::spin_loop();
            } else {
                now = clock.now();
            }
        }
    }
    load.count as f64 / clock.now().since(begin).max(1) as f64 * 1e3
}

fn main() {
    let size = Size::from_environment();
    if common::is_alone() {
        eprintln!("LEFT OUT: two threads that spin for each other need two cores");
        return;
    }
    let bytes: u64 = size.pick(64 << 20, 1 << 30, 1 << 30);
    let rounds = size.pick(2, 5, 15);
    let clock = TscClock::new();

    pin(0);
    let store = Dram::new(bytes, 512).unwrap();
    let config = Config { lba_size: 512, ..Config::default() };
    let rest = Rest { idle_ns: 50_000, ..Rest::default() };
    let mut loop_drive = Loopback::threaded(store.clone(), (), config, rest).unwrap();
    let mut floor = Floor::start(bytes as usize);
    pin(1);

    let driver = loop_drive.driver(DriverConfig::default(), &clock).unwrap();
    let queue = QueueConfig { depth: 128, interrupt: false };
    let mut queue = driver.queue(queue, &mut Host::threaded(&clock)).unwrap();
    let mut buffers: Vec<DmaBuffer> = (0..128).map(|_| driver.pool().zeroed(4096).unwrap()).collect();
    assert_eq!(store.capacity(), bytes);
    common::fill(&mut queue, &driver, bytes, &clock);

    let mut random = Random::new(7);
    println!(
        "{:<28} {:>12} {:>12} {:>7} {:>7} {:>16}",
        "polled, random, DRAM store", "drive", "bare ring", "ratio", "target", "spread of ratios"
    );
    let mut figures = Vec::new();
    for (bytes_each, write) in [(4096, false), (4096, true), (512, false), (512, true)] {
        for depth in DEPTHS {
            let count = size.pick(500, 60_000, 200_000) * if depth == 1 { 1 } else { 2 };
            let load = Load { write, bytes: bytes_each, depth, count, blocks: bytes / bytes_each as u64 };
            let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let mut x = drive(&mut queue, &load, &mut random, &clock, &mut a, &mut buffers);
                let mut y = floor.run(&load, &mut random, &clock, &mut b);
                if depth == 1 {
                    // Response time: nanoseconds, less is better.
                    (x, y) = (common::median_of(&mut a), common::median_of(&mut b));
                }
                ours.push(x);
                theirs.push(y);
                ratios.push(x / y);
            }
            let name = format!("{} {bytes_each} QD{depth}", if write { "write" } else { "read" });
            let target = match (bytes_each, depth) {
                (4096, 1) => "<=1.25",
                (4096, 32) => ">=0.70",
                (512, 32) if !write => ">=0.50",
                _ => "",
            };
            let unit = if depth == 1 { "ns" } else { "M/s" };
            ratios.sort_by(f64::total_cmp);
            let spread = (ratios[0], ratios[ratios.len() - 1]);
            let (x, y, ratio) = (median(&mut ours), median(&mut theirs), median(&mut ratios));
            println!(
                "{name:<28} {x:>9.2} {unit:<3} {y:>8.2} {unit:<3} {ratio:>7.2} {target:>7} {:>7.2} .. {:<7.2}",
                spread.0, spread.1
            );
            figures.push(Figure {
                name,
                value: x,
                unit,
                beside: "bare ring",
                beside_value: y,
                ratio,
                runs: rounds,
                spread,
            });
        }
    }
    common::record(&figures);
    driver.delete(queue, &mut Host::threaded(&clock), drop).unwrap();
}
