//! Polled loads of a queue pair and of the bare ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_dma::Region;
use nearside_driver::{Command, DmaBuffer, QueuePair, Transport};

use super::Random;
use super::ring::{Request, RingClient, RingServer, ring};

/// The bare ring's server, on a thread that rests while it is not its turn.
pub struct Floor {
    client: RingClient,
    memory: Arc<Region>,
    turn: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

const REST: u32 = 0;
const SERVE: u32 = 1;
const END: u32 = 2;

impl Floor {
    pub fn start(bytes: usize) -> Floor {
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

    pub fn run(
        &mut self,
        load: &Load,
        random: &mut Random,
        clock: &TscClock,
        latencies: &mut Vec<u64>,
    ) -> f64 {
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

pub struct Load {
    pub write: bool,
    pub bytes: usize,
    pub depth: usize,
    pub count: usize,
    pub blocks: u64,
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
pub fn drive(
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
