//! A controller's double: the least that a driver can talk to, with faults on demand. It shares no code with
//! the real controller, so that a mistake made on both sides of the wire shows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::{Nanos, SimClock};
use nearside_dma::{Function, Memory, PAGE_SIZE, REGISTERS_SIZE, Region, Vector, Wakeup};
use nearside_driver::{Peer, Turn};

pub const BLOCK: usize = 512;
pub const BLOCKS: usize = 8192;

#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    pub never_ready: bool,
    pub never_disabled: bool,
    pub fatal_at_command: Option<u64>,
    /// This many I/O commands, counted from the first, are never answered.
    pub silent_from: Option<u64>,
    /// Every completion of an I/O command is posted twice.
    pub twice: bool,
    /// Entries per queue, zero-based.
    pub mqes_z: u16,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    base: u64,
    entries: u32,
    at: u32,
    phase: bool,
    cq: usize,
    vector: Option<usize>,
}

pub struct Double {
    pub function: Function,
    pub faults: Faults,
    pub data: Vec<u8>,
    pub clock: SimClock,
    sq: Vec<Option<Queue>>,
    cq: Vec<Option<Queue>>,
    pub commands: u64,
    io: u64,
    /// Event requests not yet answered.
    pub events: Vec<u16>,
}

const CAP: usize = 0;
const CC: usize = 0x14;
const CSTS: usize = 0x1c;

impl Double {
    pub fn new(faults: Faults) -> Double {
        let function = Function {
            registers: Arc::new(Region::shared("double", REGISTERS_SIZE).unwrap()),
            memory: Arc::new(Memory::new()),
            vectors: (0..8).map(|_| Vector::new().unwrap()).collect(),
            wakeup: Arc::new(Wakeup::new().unwrap()),
        };
        let mqes = if faults.mqes_z == 0 { 255 } else { faults.mqes_z };
        // CAP: MQES, CQR, TO = 2 (one second), NVM command set.
        let cap = u64::from(mqes) | 1 << 16 | 2 << 24 | 1 << 37;
        function.registers.word64(CAP).store(cap, Ordering::Release);
        if faults.never_disabled {
            function.registers.word32(CSTS).store(1, Ordering::Release);
        }
        Double {
            function,
            faults,
            data: vec![0; BLOCK * BLOCKS],
            clock: SimClock::new(),
            sq: vec![None; 9],
            cq: vec![None; 9],
            commands: 0,
            io: 0,
            events: Vec::new(),
        }
    }

    fn reg(&self, at: usize) -> u32 {
        self.function.registers.word32(at).load(Ordering::Acquire)
    }

    fn bytes(&self, iova: u64, len: usize) -> Vec<u8> {
        let mut v = vec![0; len];
        self.function.memory.read(self.function.memory.resolve(iova, len).unwrap(), &mut v);
        v
    }

    pub fn complete(&mut self, sq: usize, cid: u16, status: u16, result: u32) {
        let sq_head = self.sq[sq].unwrap().at;
        let cq_id = self.sq[sq].unwrap().cq;
        let q = self.cq[cq_id].as_mut().unwrap();
        let at = q.base + u64::from(q.at) * 16;
        let dw3 = u32::from(cid) | u32::from(q.phase) << 16 | u32::from(status) << 17;
        q.at += 1;
        if q.at == q.entries {
            q.at = 0;
            q.phase = !q.phase;
        }
        let told = self.function.registers.word32(0x1000 + 8 * cq_id + 4).load(Ordering::Acquire);
        assert_ne!(q.at, told, "the driver let the completion queue overflow");
        let (region, offset) = {
            let span = self.function.memory.resolve(at, 16).unwrap();
            let (r, o) = self.function.memory.locate(span).unwrap();
            ((*r).clone(), o)
        };
        region.word64(offset).store(u64::from(result), Ordering::Relaxed);
        region
            .word64(offset + 8)
            .store(u64::from(sq_head) | (sq as u64) << 16 | u64::from(dw3) << 32, Ordering::Release);
        if let Some(v) = q.vector {
            self.function.vectors[v].signal();
        }
    }

    /// The transfer's pages by PRP1, PRP2 and a list.
    fn pages(&self, prp1: u64, prp2: u64, len: usize) -> Vec<(u64, usize)> {
        let mut left = len;
        let mut out = Vec::new();
        let mut push = |iova: u64, left: &mut usize| {
            let n = (PAGE_SIZE - (iova as usize) % PAGE_SIZE).min(*left);
            out.push((iova, n));
            *left -= n;
        };
        push(prp1, &mut left);
        if left == 0 {
            return out;
        }
        if left <= PAGE_SIZE {
            push(prp2, &mut left);
            return out;
        }
        let list = self.bytes(prp2, left.div_ceil(PAGE_SIZE) * 8);
        for entry in list.chunks_exact(8) {
            push(u64::from_le_bytes(entry.try_into().unwrap()), &mut left);
        }
        out
    }

    fn put(&self, pages: &[(u64, usize)], data: &[u8]) {
        let mut at = 0;
        for &(iova, n) in pages {
            self.function.memory.write(self.function.memory.resolve(iova, n).unwrap(), &data[at..at + n]);
            at += n;
        }
    }

    fn execute(&mut self, sq: usize, c: [u32; 16]) {
        let (op, cid) = (c[0] as u8, (c[0] >> 16) as u16);
        self.commands += 1;
        if self.faults.fatal_at_command.is_some_and(|n| self.commands >= n) {
            self.function.registers.word32(CSTS).store(3, Ordering::Release);
            return;
        }
        let prps = (u64::from(c[6]) | u64::from(c[7]) << 32, u64::from(c[8]) | u64::from(c[9]) << 32);
        let answer = if sq == 0 { self.admin(op, cid, prps.0, c) } else { self.io(op, prps, c) };
        let Some((status, result)) = answer else { return };
        if sq != 0 && self.faults.twice {
            self.complete(sq, cid, status, result);
        }
        self.complete(sq, cid, status, result);
    }

    /// Status and result; `None`: it is not answered now.
    fn admin(&mut self, op: u8, cid: u16, prp1: u64, c: [u32; 16]) -> Option<(u16, u32)> {
        let (mut status, mut result) = (0, 0);
        match op {
            0x06 => {
                let mut id = vec![0u8; 4096];
                match c[10] as u8 {
                    0 => {
                        id[..8].copy_from_slice(&(BLOCKS as u64).to_le_bytes());
                        id[128..132].copy_from_slice(&(9u32 << 16).to_le_bytes());
                    }
                    1 => {
                        id[77] = 5; // 128 KiB
                        id[259] = 1;
                    }
                    2 => id[..4].copy_from_slice(&1u32.to_le_bytes()),
                    _ => status = 0x02,
                }
                self.put(&[(prp1, 4096)], &id);
            }
            0x09 if c[10] as u8 == 7 => result = c[11].min(6 << 16 | 6) & 0xffff | 6 << 16,
            0x05 => {
                let vector = (c[11] & 2 != 0).then_some((c[11] >> 16) as usize);
                let entries = (c[10] >> 16) + 1;
                self.cq[c[10] as u16 as usize] =
                    Some(Queue { base: prp1, entries, at: 0, phase: true, cq: 0, vector });
                self.function
                    .registers
                    .word32(0x1000 + 8 * (c[10] as u16 as usize) + 4)
                    .store(0, Ordering::Release);
            }
            0x01 => {
                let entries = (c[10] >> 16) + 1;
                let cq = (c[11] >> 16) as usize;
                self.sq[c[10] as u16 as usize] =
                    Some(Queue { base: prp1, entries, at: 0, phase: true, cq, vector: None });
                self.function
                    .registers
                    .word32(0x1000 + 8 * (c[10] as u16 as usize))
                    .store(0, Ordering::Release);
            }
            0x00 => self.sq[c[10] as u16 as usize] = None,
            0x04 => self.cq[c[10] as u16 as usize] = None,
            0x0c => {
                self.events.push(cid);
                return None;
            }
            _ => status = 0x01,
        }
        Some((status, result))
    }

    /// As [`Self::admin`].
    fn io(&mut self, op: u8, (prp1, prp2): (u64, u64), c: [u32; 16]) -> Option<(u16, u32)> {
        let mut status = 0;
        self.io += 1;
        if self.faults.silent_from.is_some_and(|n| self.io >= n) {
            return None;
        }
        let first = (u64::from(c[10]) | u64::from(c[11]) << 32) as usize * BLOCK;
        let len = ((c[12] & 0xffff) as usize + 1) * BLOCK;
        match op {
            _ if op != 0 && first + len > self.data.len() => status = 0x80,
            0x00 => {}
            0x01 => {
                let mut at = first;
                for (iova, n) in self.pages(prp1, prp2, len) {
                    let b = self.bytes(iova, n);
                    self.data[at..at + n].copy_from_slice(&b);
                    at += n;
                }
            }
            0x02 => {
                let pages = self.pages(prp1, prp2, len);
                self.put(&pages, &self.data[first..first + len]);
            }
            0x08 => self.data[first..first + len].fill(0),
            _ => status = 0x01,
        }
        Some((status, 0))
    }
}

impl Peer for Double {
    fn pump(&mut self, _now: Nanos) -> Turn {
        // Time passes for whoever waits.
        self.clock.advance(1_000_000);
        let (cc, csts) = (self.reg(CC), self.reg(CSTS));
        if cc & 1 == 0 {
            if csts & 1 != 0 && !self.faults.never_disabled {
                self.function.registers.word32(CSTS).store(0, Ordering::Release);
                self.sq.fill(None);
                self.cq.fill(None);
                self.events.clear();
                for word in 0..18 {
                    self.function.registers.word32(0x1000 + 4 * word).store(0, Ordering::Release);
                }
            }
            return Turn::Idle { until: None };
        }
        if csts & 1 == 0 {
            if self.faults.never_ready {
                return Turn::Idle { until: None };
            }
            let aqa = self.reg(0x24);
            let asq = self.function.registers.word64(0x28).load(Ordering::Acquire);
            let acq = self.function.registers.word64(0x30).load(Ordering::Acquire);
            let queue = |base, entries| Queue { base, entries, at: 0, phase: true, cq: 0, vector: None };
            self.sq[0] = Some(queue(asq, (aqa & 0xfff) + 1));
            self.cq[0] = Some(queue(acq, (aqa >> 16) + 1));
            self.function.registers.word32(CSTS).store(1, Ordering::Release);
            return Turn::Worked;
        }
        let mut worked = false;
        for id in 0..self.sq.len() {
            while let Some(q) = self.sq[id] {
                if self.reg(CSTS) & 2 != 0 || self.reg(0x1000 + 8 * id) == q.at {
                    break;
                }
                worked = true;
                let entry = self.bytes(q.base + u64::from(q.at) * 64, 64);
                self.sq[id].as_mut().unwrap().at = (q.at + 1) % q.entries;
                let mut c = [0u32; 16];
                for (word, bytes) in c.iter_mut().zip(entry.chunks_exact(4)) {
                    *word = u32::from_le_bytes(bytes.try_into().unwrap());
                }
                self.execute(id, c);
            }
        }
        if worked { Turn::Worked } else { Turn::Idle { until: None } }
    }
}
