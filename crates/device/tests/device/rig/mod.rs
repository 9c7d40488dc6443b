//! A raw host for tests: writes submission entries itself, steps the controller on simulated time, reads
//! completions.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::Nanos;
use nearside_device::firmware::{NoWorker, Seat};
pub use nearside_device::runner::Inline;
pub use nearside_device::{Config, Controller, Firmware};
use nearside_device::{Namespace, Observer, Subsystem};
use nearside_dma::{Function, Region, Wakeup};
pub use nearside_spec::opcode::{admin, io};
use nearside_spec::registers::{self as reg, Cc, csts};
pub use nearside_spec::{CompletionEntry, Status, SubmissionEntry};
pub use nearside_store::{Dram, Store};

/// Where the host's memory is mapped, and how long it is.
pub const BASE: u64 = 0x10_0000_0000;
pub const MEMORY: usize = 16 << 20;
/// Memory of the queues lies before this; tests use what is after.
pub const FREE: u64 = BASE + (1 << 20);
const ENTRIES: u32 = 32;

pub struct Queue {
    pub id: u16,
    sq: usize,
    cq: usize,
    entries: u32,
    tail: u32,
    head: u32,
    phase: bool,
    pub done: VecDeque<CompletionEntry>,
}

impl Queue {
    fn new(id: u16, entries: u32) -> Queue {
        let sq = usize::from(id) * 0x4000;
        Queue { id, sq, cq: sq + 0x2000, entries, tail: 0, head: 0, phase: true, done: VecDeque::new() }
    }
    pub fn sq_iova(&self) -> u64 {
        BASE + self.sq as u64
    }
    pub fn cq_iova(&self) -> u64 {
        BASE + self.cq as u64
    }
}

pub struct Host<S: Store, F: Firmware<S> = ()> {
    pub drive: Inline<S, F>,
    pub function: Function,
    pub memory: Arc<Region>,
    pub now: Nanos,
    pub queues: Vec<Queue>,
    /// How often it looks for a completion: where a thread works beside the drive, simulated time passes
    /// without it.
    pub looks: u32,
}

pub fn dram(bytes: u64) -> Dram {
    Dram::new(bytes, 512).unwrap()
}

impl<S: Store> Host<S, ()> {
    /// A controller with its memory mapped, not enabled.
    pub fn off(store: S, config: Config) -> Host<S, ()> {
        Host::with(store, (), config)
    }

    /// Enabled.
    pub fn on(store: S, config: Config) -> Host<S, ()> {
        let mut host = Host::off(store, config);
        host.enable();
        host
    }

    /// With one I/O queue pair, number 1, without interrupts.
    pub fn ready(store: S, config: Config) -> Host<S, ()> {
        let mut host = Host::on(store, config);
        host.create_pair(1, None);
        host
    }
}

impl<S: Store, F: Firmware<S>> Host<S, F> {
    pub fn with(store: S, firmware: F, config: Config) -> Host<S, F> {
        Host::of(Controller::alone(store, firmware, config).unwrap().0)
    }

    /// One of several controllers of a subsystem, enabled and with a queue pair.
    pub fn among(subsystem: &Arc<Subsystem<S, F>>, config: Config) -> Host<S, F> {
        let wakeup = Arc::new(Wakeup::new().unwrap());
        let mut host = Host::of(Controller::of(subsystem, config, wakeup).unwrap());
        host.enable();
        host.create_pair(1, None);
        host
    }

    pub fn of(controller: Controller<S, F>) -> Host<S, F> {
        let function = controller.function.clone();
        let memory = Arc::new(Region::shared("host", MEMORY).unwrap());
        function.memory.map(BASE, memory.clone()).unwrap();
        let drive = Inline::new(controller);
        Host { drive, function, memory, now: Nanos(1), queues: vec![Queue::new(0, ENTRIES)], looks: 100 }
    }

    pub fn register(&self, at: usize) -> u32 {
        self.function.registers.word32(at).load(Ordering::Acquire)
    }

    pub fn set_register(&self, at: usize, value: u32) {
        self.function.registers.word32(at).store(value, Ordering::Release);
    }

    pub fn step(&mut self) -> nearside_device::Step {
        let step = self.drive.pump(self.now);
        self.now = self.now + 100;
        step
    }

    /// Steps until nothing happens any more; time goes on to whatever the drive waits for, up to `limit`.
    pub fn settle(&mut self, limit_ns: u64) {
        let end = self.now + limit_ns;
        for _ in 0..1_000_000 {
            let step = self.step();
            if step.work == 0 {
                match step.next {
                    Some(next) if next <= end => self.now = self.now.max(next),
                    _ => {
                        self.now = self.now.max(end);
                        return;
                    }
                }
            }
        }
        panic!("the drive does not come to rest");
    }

    /// One that has all command sets enabled, and a queue pair.
    pub fn of_all_sets(subsystem: &Arc<Subsystem<S, F>>, config: Config) -> Host<S, F> {
        let wakeup = Arc::new(Wakeup::new().unwrap());
        let mut host = Host::of(Controller::of(subsystem, config, wakeup).unwrap());
        host.enable_with(Cc::DEFAULTS.with_command_sets());
        host.create_pair(1, None);
        host
    }

    pub fn enable(&mut self) {
        self.enable_with(Cc::DEFAULTS);
    }

    pub fn enable_with(&mut self, cc: Cc) {
        self.queues = vec![Queue::new(0, ENTRIES)];
        self.memory.fill(0, 1 << 20, 0);
        self.set_register(reg::AQA, (ENTRIES - 1) << 16 | (ENTRIES - 1));
        let registers = &self.function.registers;
        registers.word64(reg::ASQ).store(self.queues[0].sq_iova(), Ordering::Relaxed);
        registers.word64(reg::ACQ).store(self.queues[0].cq_iova(), Ordering::Relaxed);
        self.set_register(reg::CC, cc.0 | Cc::EN);
        self.settle(0);
        assert_eq!(self.register(reg::CSTS), csts::RDY);
    }

    pub fn disable(&mut self) {
        self.set_register(reg::CC, Cc::DEFAULTS.0);
        self.settle(10_000_000_000);
        assert_eq!(self.register(reg::CSTS), 0);
    }

    fn at(&mut self, id: u16) -> &mut Queue {
        self.queues.iter_mut().find(|q| q.id == id).unwrap()
    }

    pub fn ring_tail(&self, id: u16, value: u32) {
        self.set_register(reg::sq_tail_doorbell(id), value);
    }

    /// Writes an entry and rings.
    pub fn submit(&mut self, id: u16, entry: SubmissionEntry) {
        let memory = self.memory.clone();
        let queue = self.at(id);
        memory.write_words(queue.sq + queue.tail as usize * 64, &entry.cdw);
        queue.tail = (queue.tail + 1) % queue.entries;
        let tail = queue.tail;
        self.ring_tail(id, tail);
    }

    /// Takes what the completion queue has; rings its head.
    pub fn reap(&mut self, id: u16) {
        let memory = self.memory.clone();
        let queue = self.at(id);
        loop {
            let dw: [u32; 4] = memory.read_words(queue.cq + queue.head as usize * 16);
            let entry = CompletionEntry { dw };
            if entry.phase() != queue.phase {
                break;
            }
            queue.head += 1;
            if queue.head == queue.entries {
                queue.head = 0;
                queue.phase = !queue.phase;
            }
            queue.done.push_back(entry);
        }
        let head = queue.head;
        self.set_register(reg::cq_head_doorbell(id), head);
    }

    /// What has completed by now, without waiting for the store.
    pub fn completed(&mut self, id: u16) -> Option<CompletionEntry> {
        self.settle(0);
        self.reap(id);
        self.at(id).done.pop_front()
    }

    /// One command, from submission to completion, within ten simulated seconds.
    pub fn run(&mut self, id: u16, entry: SubmissionEntry) -> CompletionEntry {
        self.submit(id, entry);
        for _ in 0..self.looks {
            if let Some(done) = self.completed(id) {
                assert_eq!(done.cid(), entry.cid());
                return done;
            }
            self.settle(100_000_000);
            std::thread::yield_now();
        }
        panic!("no completion of {entry:?}");
    }

    pub fn admin(&mut self, entry: SubmissionEntry) -> Result<u32, Status> {
        let done = self.run(0, entry);
        if done.status().is_success() { Ok(done.result()) } else { Err(done.status()) }
    }

    /// Create a completion queue; `vector`: with interrupts.
    pub fn create_cq(&self, id: u16, vector: Option<u16>) -> SubmissionEntry {
        let mut e = SubmissionEntry::new(admin::CREATE_CQ, 0x100, 0);
        e.set_quad(6, Queue::new(id, ENTRIES).cq_iova());
        e.cdw[10] = (ENTRIES - 1) << 16 | u32::from(id);
        e.cdw[11] = 1 | vector.map_or(0, |v| 2 | u32::from(v) << 16);
        e
    }

    pub fn create_sq(&self, id: u16, cq: u16) -> SubmissionEntry {
        let mut e = SubmissionEntry::new(admin::CREATE_SQ, 0x101, 0);
        e.set_quad(6, Queue::new(id, ENTRIES).sq_iova());
        e.cdw[10] = (ENTRIES - 1) << 16 | u32::from(id);
        e.cdw[11] = 1 | u32::from(cq) << 16;
        e
    }

    pub fn create_pair(&mut self, id: u16, vector: Option<u16>) {
        let (cq, sq) = (self.create_cq(id, vector), self.create_sq(id, id));
        self.admin(cq).unwrap();
        self.admin(sq).unwrap();
        self.queues.push(Queue::new(id, ENTRIES));
    }

    pub fn bytes(&self, iova: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read((iova - BASE) as usize, &mut bytes);
        bytes
    }

    pub fn put(&self, iova: u64, bytes: &[u8]) {
        self.memory.write((iova - BASE) as usize, bytes);
    }

    /// The newest entry of the error log: (sqid, cid, status without phase, parameter).
    pub fn last_error(&mut self) -> (u16, u16, Status, u16) {
        let mut e = SubmissionEntry::new(admin::GET_LOG_PAGE, 0x3ff, 0xffff_ffff);
        e.set_quad(6, FREE + 0xf0_000);
        e.cdw[10] = 1 | 15 << 16 | 1 << 15;
        self.admin(e).unwrap();
        let entry = nearside_spec::log::ErrorEntry::from_bytes(&self.bytes(FREE + 0xf0_000, 64));
        (entry.sqid(), entry.cid(), Status(entry.status() >> 1), entry.parameter())
    }
}

/// An admin command with a data pointer at [`FREE`] and its command dwords from 10 on.
pub fn command(opcode: u8, nsid: u32, dwords: &[u32]) -> SubmissionEntry {
    let mut e = SubmissionEntry::new(opcode, 0x77, nsid);
    e.set_quad(6, FREE);
    for (at, &dword) in dwords.iter().enumerate() {
        e.cdw[10 + at] = dword;
    }
    e
}

/// A read or write of blocks, by PRPs.
pub fn transfer(opcode: u8, slba: u64, blocks: u32, prp1: u64, prp2: u64) -> SubmissionEntry {
    let mut e = SubmissionEntry::new(opcode, 0x55, 1);
    e.set_quad(6, prp1);
    e.set_quad(8, prp2);
    e.set_quad(10, slba);
    e.cdw[12] = blocks - 1;
    e
}

/// The status with Do Not Retry, without More.
pub fn same(got: Status, wanted: Status) -> bool {
    got.0 & !(1 << 13) == wanted.0
}

/// Asserts a failure's exact status: code and Do Not Retry.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(got: Result<T, Status>, wanted: Status) {
    match got {
        Err(status) => assert!(same(status, wanted), "{status:?} ({:#x}), wanted {wanted:?}", status.0),
        Ok(v) => panic!("succeeded with {v:?}, wanted {wanted:?}"),
    }
}

/// Firmware that knows near-data commands, and none of them.
pub struct Present;

impl Observer for Present {
    fn begin(&self, _offset: u64, _len: u64) {}
    fn end(&self, _offset: u64, _len: u64, _durable: bool) {}
}

impl<S: Store> Firmware<S> for Present {
    type Worker = NoWorker;

    fn worker(_: &Arc<Namespace<S, Present>>, _: &Seat<'_>) -> std::io::Result<NoWorker> {
        Ok(NoWorker)
    }
}
