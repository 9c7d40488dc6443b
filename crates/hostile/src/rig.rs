//! A drive and a host that writes raw submission entries. One rig serves many inputs:
//! [`Rig::renew`] resets the controller and puts memory and store back to what they were, so that
//! an input meets the same drive as on its own.
//!
//! The host's memory: queues at [`QUEUES`], everything else at [`DATA`],
//! and behind it a region whose mapping was taken away.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::{Nanos, SimClock};
use nearside_device::runner::Inline;
use nearside_device::{Access, CommandSet, Config, Controller, MEMORY_GRANULARITY, Namespace, Subsystem};
use nearside_dma::{Function, IoBuffer, Memory, Region, Wakeup};
use nearside_firmware::{Compute, Fsr};
use nearside_spec::opcode::admin;
use nearside_spec::registers::{self as reg, Cc, csts};
use nearside_spec::{CompletionEntry, SubmissionEntry};
use nearside_store::{Data, Dram, Operation, Submitted, Token};

/// Where the queues are mapped: nowhere near anything else.
pub const QUEUES: u64 = 0x5eed_c0de_0000_0000;
/// Bytes of the queues: four pages.
pub const QUEUES_LEN: usize = 4 * PAGE;
/// Where data, lists and segments are mapped.
pub const DATA: u64 = 0x10_0000_0000;
/// Bytes there.
pub const DATA_LEN: usize = 32 * PAGE;
/// Bytes behind them that are not mapped any more.
pub const CANARY_LEN: usize = 4 * PAGE;
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// The memory namespace, its bytes, and the compute namespace.
pub const MEMORY: u32 = 2;
/// Bytes of it.
pub const MEMORY_LEN: u64 = 16 * PAGE as u64;
/// What runs programs over it.
pub const COMPUTE: u32 = 3;
const CANARY: u8 = 0xa5;
/// Entries of each queue. A run submits fewer, so no queue wraps.
pub const ENTRIES: u32 = 64;
const BLOCK: u32 = 512;

/// A drive and a host that writes raw submission entries.
pub struct Rig {
    subsystem: Arc<Subsystem<Dram, Fsr>>,
    drive: Inline<Dram, Fsr>,
    function: Function,
    now: Nanos,
    queues: Arc<Region>,
    data: Arc<Region>,
    canary: Arc<Region>,
    /// What the store holds at the beginning.
    image: Vec<u8>,
    access: Access<Dram, Fsr>,
    buffer: Option<IoBuffer>,
    seen: Vec<u8>,
    tails: [u32; 2],
}

/// Adds memory, and what runs programs over it.
fn add_compute(subsystem: &Subsystem<Dram, Fsr>) -> std::io::Result<()> {
    let clock = || Arc::new(SimClock::new());
    let memory = Dram::new(MEMORY_LEN, MEMORY_GRANULARITY)?;
    let programs = Fsr::of_programs(clock(), Compute::over([(MEMORY, memory.clone())]));
    for (nsid, set, firmware) in
        [(MEMORY, CommandSet::Memory, Fsr::of_memory(clock())), (COMPUTE, CommandSet::Compute, programs)]
    {
        let namespace = Namespace::of_command_set(set, memory.clone(), firmware, [nsid as u8; 16])?;
        subsystem.add(nsid, Arc::new(namespace)).map_err(std::io::Error::other)?;
    }
    Ok(())
}

impl Rig {
    /// A drive over a copy of `image`, which has whole blocks of 512 bytes.
    pub fn new(image: Vec<u8>) -> Rig {
        match Rig::build(image) {
            Ok(rig) => rig,
            Err(error) => panic!("a drive in memory: {error}"),
        }
    }

    fn build(image: Vec<u8>) -> std::io::Result<Rig> {
        let store = Dram::new(image.len() as u64, BLOCK)?;
        let firmware = Fsr::new(Arc::new(SimClock::new()), nearside_firmware::Config::default());
        let config =
            Config { queue_entries: ENTRIES, io_queues: 4, vectors: 2, mdts: 4, ..Config::default() };
        let namespace = Arc::new(Namespace::new(store, firmware, BLOCK, [1; 16], false)?);
        let subsystem = Subsystem::new();
        subsystem.add(1, namespace.clone()).map_err(std::io::Error::other)?;
        add_compute(&subsystem)?;
        let controller = Controller::of(&subsystem, config, Arc::new(Wakeup::new()?))?;
        let function = controller.function.clone();
        let region = |len| Region::anonymous(len).map(Arc::new);
        let (queues, data, canary) = (region(QUEUES_LEN)?, region(DATA_LEN)?, region(CANARY_LEN)?);
        let behind = DATA + DATA_LEN as u64;
        for (at, region) in [(QUEUES, &queues), (DATA, &data), (behind, &canary)] {
            function.memory.map(at, region.clone()).map_err(std::io::Error::other)?;
        }
        function.memory.unmap(behind).map_err(std::io::Error::other)?;
        canary.fill(0, CANARY_LEN, CANARY);
        let access = namespace.access(Arc::new(Memory::new()))?;
        let buffer = Some(IoBuffer::new(image.len())?);
        let drive = Inline::new(controller);
        let mut rig = Rig {
            subsystem,
            drive,
            function,
            now: Nanos(1),
            queues,
            data,
            canary,
            image,
            access,
            buffer,
            seen: vec![0; DATA_LEN],
            tails: [0; 2],
        };
        rig.write_store();
        Ok(rig)
    }

    /// Resets the controller, restores memory and store, and brings one I/O queue pair up.
    pub fn renew(&mut self) {
        self.stop();
        // Programs and memory outlive a reset.
        for nsid in [MEMORY, COMPUTE] {
            self.subsystem.remove(nsid);
        }
        self.settle(0);
        if let Err(error) = add_compute(&self.subsystem) {
            panic!("memory: {error}");
        }
        self.queues.fill(0, QUEUES_LEN, 0);
        self.data.fill(0, DATA_LEN, 0);
        // The firmware's monitor sees the write: what it knew of the volume does not outlive it.
        self.read_store();
        if self.buffer.as_deref() != Some(&self.image[..]) {
            self.write_store();
        }
        self.tails = [0; 2];
        let registers = &self.function.registers;
        registers.word32(reg::AQA).store((ENTRIES - 1) << 16 | (ENTRIES - 1), Ordering::Relaxed);
        registers.word64(reg::ASQ).store(QUEUES, Ordering::Relaxed);
        registers.word64(reg::ACQ).store(QUEUES + PAGE as u64, Ordering::Relaxed);
        let cc = Cc::DEFAULTS.with_command_sets();
        registers.word32(reg::CC).store(cc.0 | Cc::EN, Ordering::Release);
        self.settle(0);
        assert_eq!(self.status(), csts::RDY, "a reset controller comes up");
        for (opcode, page, flags) in [(admin::CREATE_CQ, 3, 1), (admin::CREATE_SQ, 2, 1 | 1 << 16)] {
            let mut entry = SubmissionEntry::new(opcode, 0xfff0, 0);
            entry.set_quad(6, QUEUES + page * PAGE as u64);
            entry.cdw[10] = (ENTRIES - 1) << 16 | 1;
            entry.cdw[11] = flags;
            self.submit(0, &entry, true);
        }
        self.settle(0);
        let made = self.completions(0);
        assert!(made.len() == 2 && made.iter().all(|c| c.status().is_success()), "{made:?}");
    }

    /// Clears CC.EN and waits: a reset always ends.
    pub fn stop(&mut self) {
        self.function.registers.word32(reg::CC).store(0, Ordering::Release);
        self.settle(1_000_000_000);
        assert_eq!(self.status(), 0, "a reset ends");
    }

    /// CSTS.
    pub fn status(&self) -> u32 {
        self.function.registers.word32(reg::CSTS).load(Ordering::Acquire)
    }

    /// Writes an entry to the admin queue (0) or the I/O queue (1), and rings where `ring` says so.
    pub fn submit(&mut self, queue: u16, entry: &SubmissionEntry, ring: bool) {
        let tail = &mut self.tails[usize::from(queue)];
        self.queues.write_words(usize::from(queue) * 2 * PAGE + *tail as usize * 64, &entry.cdw);
        *tail += 1;
        assert!(*tail < ENTRIES, "more commands than a queue has room for");
        if ring {
            self.ring(queue);
        }
    }

    /// Rings a queue's doorbell.
    pub fn ring(&mut self, queue: u16) {
        let doorbell = self.function.registers.word32(reg::sq_tail_doorbell(queue));
        doorbell.store(self.tails[usize::from(queue)], Ordering::Release);
    }

    /// Steps until nothing happens any more;
    /// time goes on to whatever the drive waits for, up to `limit_ns` from now.
    pub fn settle(&mut self, limit_ns: u64) {
        let end = self.now + limit_ns;
        for _ in 0..1_000_000 {
            let step = self.drive.pump(self.now);
            self.now = self.now + 100;
            match step.next {
                _ if step.work > 0 => {}
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    self.now = self.now.max(end);
                    return;
                }
            }
        }
        panic!("the drive does not come to rest");
    }

    /// The completions of a queue since the beginning.
    pub fn completions(&self, queue: u16) -> Vec<CompletionEntry> {
        let base = (usize::from(queue) * 2 + 1) * PAGE;
        (0..ENTRIES as usize)
            .map(|nr| CompletionEntry { dw: self.queues.read_words(base + nr * 16) })
            .take_while(CompletionEntry::phase)
            .collect()
    }

    /// Writes data memory.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        let len = bytes.len().min(DATA_LEN.saturating_sub(at));
        self.data.write(at, &bytes[..len]);
    }

    /// All data memory.
    pub fn memory(&mut self) -> &[u8] {
        self.data.read(0, &mut self.seen);
        &self.seen
    }

    /// All of the store.
    pub fn store(&mut self) -> &[u8] {
        self.read_store();
        self.buffer.as_deref().unwrap_or_default()
    }

    fn read_store(&mut self) {
        self.whole(Operation::Read { offset: 0, len: self.image.len() as u64 });
    }

    fn write_store(&mut self) {
        if let Some(buffer) = &mut self.buffer {
            buffer.copy_from_slice(&self.image);
        }
        self.whole(Operation::Write { offset: 0, len: self.image.len() as u64, fua: false });
    }

    /// One operation on the whole store, past the controller.
    fn whole(&mut self, operation: Operation) {
        let Some(buffer) = self.buffer.take() else { panic!("the buffer is away") };
        match self.access.submit(operation, Data::Owned(buffer), Token(0), self.now) {
            Submitted::Done(done) => {
                assert!(done.result.is_ok(), "{:?}", done.result);
                self.buffer = done.buffer;
            }
            Submitted::Pending => panic!("memory made someone wait"),
        }
    }

    /// Memory whose mapping was taken away is as it was.
    pub fn check_canary(&self) {
        let mut after = [0; CANARY_LEN];
        self.canary.read(0, &mut after);
        assert!(after.iter().all(|b| *b == CANARY), "memory that is not mapped was written");
    }
}
