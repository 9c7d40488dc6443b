//! What every store owes: the six points of `nearside-store`'s contract, each as a check that any [`Store`]
//! can be put to, and a seeded run of random operations against a model.
//!
//! The checks run on made-up time: between polls it goes on to the deadline that the channel named.

use std::collections::HashMap;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory, Region, Span};
use nearside_store::{Channel, Completion, Data, Operation, Store, StoreError, Submitted, Token};

use nearside_random::Rng;

/// Bytes of host memory that a [`Host`] has.
pub const HOST_BYTES: usize = 1 << 20;
const HOST_IOVA: u64 = 0x10_0000;

/// A channel with host memory, time, and what has completed and was not asked for yet.
pub struct Host<C> {
    /// The way into the store.
    pub channel: C,
    /// What `channel` can reach.
    pub memory: Arc<Memory>,
    now: Nanos,
    done: HashMap<Token, Completion>,
    pending: HashMap<Token, ()>,
}

impl<C: Channel> Host<C> {
    /// A channel of `store`.
    pub fn new<S: Store<Channel = C>>(store: &S) -> Host<C> {
        let memory = Arc::new(Memory::new());
        memory.map(HOST_IOVA, Arc::new(Region::anonymous(HOST_BYTES).unwrap())).unwrap();
        let channel = store.channel(memory.clone()).unwrap();
        Host { channel, memory, now: Nanos(0), done: HashMap::new(), pending: HashMap::new() }
    }

    /// Host memory.
    pub fn span(&self, at: usize, len: usize) -> Span {
        self.memory.resolve(HOST_IOVA + at as u64, len).unwrap()
    }

    /// Starts an operation; true where it was taken (it may be done already).
    ///
    /// # Errors
    /// [`StoreError::Busy`] where the channel has no room; every other error is the completion's.
    pub fn start(&mut self, operation: Operation, data: Data<'_>, token: Token) -> Result<(), StoreError> {
        assert!(!self.pending.contains_key(&token) && !self.done.contains_key(&token));
        match self.channel.submit(operation, data, token, self.now) {
            Submitted::Done(Completion { result: Err(StoreError::Busy), .. }) => {
                return Err(StoreError::Busy);
            }
            Submitted::Done(completion) => {
                self.done.insert(token, completion);
            }
            Submitted::Pending => {
                self.pending.insert(token, ());
            }
        }
        assert_eq!(self.channel.in_flight(), self.pending.len(), "operations in flight");
        Ok(())
    }

    /// Polls once, going on to the time that the store names.
    pub fn poll(&mut self) {
        let (done, pending) = (&mut self.done, &mut self.pending);
        let next = self.channel.poll(self.now, &mut |token, completion| {
            assert!(pending.remove(&token).is_some(), "{token:?} was not pending");
            done.insert(token, completion);
        });
        match next {
            Some(at) => self.now = Nanos(self.now.0.max(at.0)),
            None => assert!(self.pending.is_empty(), "no deadline, and {} in flight", self.pending.len()),
        }
        // Where the kernel does the work, a poll without result costs it nothing to be let run.
        std::thread::yield_now();
    }

    /// What has completed since the last call.
    pub fn take(&mut self) -> Vec<(Token, Completion)> {
        self.done.drain().collect()
    }

    /// One operation from start to end.
    pub fn run(&mut self, operation: Operation, data: Data<'_>) -> Completion {
        const ALONE: Token = Token(u64::MAX);
        self.start(operation, data, ALONE).unwrap();
        loop {
            if let Some(completion) = self.done.remove(&ALONE) {
                return completion;
            }
            self.poll();
        }
    }

    /// Reads into a fresh buffer.
    ///
    /// # Errors
    /// The completion's: what the store says of the read.
    pub fn read(&mut self, offset: u64, len: u64) -> Result<IoBuffer, StoreError> {
        let mut buffer = IoBuffer::new(len as usize).unwrap();
        buffer.fill(0xee);
        let completion = self.run(Operation::Read { offset, len }, Data::Owned(buffer));
        let buffer = completion.buffer.expect("the buffer comes back");
        assert_eq!(buffer.len() as u64, len);
        completion.result.map(|()| buffer)
    }

    /// Writes one byte value over a range.
    ///
    /// # Errors
    /// The completion's: what the store says of the write.
    pub fn write(&mut self, offset: u64, len: u64, byte: u8, fua: bool) -> Result<(), StoreError> {
        let mut buffer = IoBuffer::new(len as usize).unwrap();
        buffer.fill(byte);
        let completion = self.run(Operation::Write { offset, len, fua }, Data::Owned(buffer));
        assert_eq!(completion.buffer.expect("the buffer comes back").len() as u64, len);
        completion.result
    }

    /// Waits for all that is in flight.
    pub fn drain(&mut self) {
        while !self.pending.is_empty() {
            self.poll();
        }
    }
}

/// All checks, on fresh stores of at least 1 MiB that `make` gives;
/// the model runs for `seeds` times `operations`.
pub fn suite<S: Store>(seeds: u64, operations: usize, make: impl Fn() -> S) {
    ranges(&make());
    tokens(&make());
    sees_completed_writes(&make());
    never_tears(&make());
    zeros(&make());
    odd_memory(&make());
    lets_memory_go(&make());
    for seed in 0..seeds {
        model(&make(), seed, operations);
    }
}

/// Point 1.
pub fn ranges<S: Store>(store: &S) {
    let (capacity, block) = (store.capacity(), u64::from(store.block_size()));
    assert!(matches!(block, 512 | 4096) && capacity.is_multiple_of(block) && capacity >= 1 << 20);
    let mut host = Host::new(store);
    host.write(0, capacity.min(1 << 20), 0x5a, false).unwrap();
    let bad = [
        (capacity, block),
        (capacity - block, 2 * block),
        (0, capacity + block),
        (u64::MAX - block + 1, block),
        (u64::MAX - 2 * block + 1, 2 * block),
        (block / 2, block),
        (0, block / 2),
        (1, block),
    ];
    for (offset, len) in bad {
        let memory = IoBuffer::new(4096).unwrap();
        let operations = [
            Operation::Read { offset, len },
            Operation::Write { offset, len, fua: false },
            Operation::WriteZeroes { offset, len, fua: true },
            Operation::Deallocate { offset, len },
        ];
        let mut memory = Some(memory);
        for operation in operations {
            let data = match operation {
                Operation::Read { .. } | Operation::Write { .. } => Data::Owned(memory.take().unwrap()),
                _ => Data::None,
            };
            let completion = host.run(operation, data);
            assert_eq!(
                completion.result,
                Err(StoreError::OutOfRange { offset, len, capacity }),
                "{operation:?}"
            );
            memory = completion.buffer.or(memory);
        }
    }
    // Memory of another length than the operation.
    let data = Data::Owned(IoBuffer::new(block as usize).unwrap());
    assert!(host.run(Operation::Write { offset: 0, len: 2 * block, fua: false }, data).result.is_err());
    let span = [host.span(0, 512)];
    assert!(host.run(Operation::Read { offset: 0, len: 4096 }, Data::Spans(&span)).result.is_err());
    // Nothing of it has changed anything, and the last block is there.
    assert!(host.read(0, 1 << 20).unwrap().iter().all(|&b| b == 0x5a));
    host.write(capacity - block, block, 1, false).unwrap();
    assert!(host.read(capacity - block, block).unwrap().iter().all(|&b| b == 1));
    assert!(host.run(Operation::Flush, Data::None).result.is_ok());
    assert!(host.run(Operation::Read { offset: capacity, len: 0 }, Data::None).result.is_ok());
}

/// Point 2.
pub fn tokens<S: Store>(store: &S) {
    const COUNT: u64 = 300;
    let block = u64::from(store.block_size());
    let mut host = Host::new(store);
    let mut ended = vec![0; COUNT as usize];
    let mut take = |host: &mut Host<S::Channel>| {
        for (Token(token), completion) in host.take() {
            let token = token.wrapping_sub(u64::MAX / 2);
            ended[token as usize] += 1;
            completion.result.unwrap();
            match token % 4 {
                0 => assert!(completion.buffer.unwrap().iter().all(|&b| b == token as u8)),
                1 => assert_eq!(completion.buffer.unwrap().len() as u64, block),
                _ => assert!(completion.buffer.is_none()),
            }
        }
    };
    for token in 0..COUNT {
        let offset = token % 64 * block;
        loop {
            let mut buffer = IoBuffer::new(block as usize).unwrap();
            buffer.fill(token as u8);
            let (operation, data) = match token % 4 {
                0 => (Operation::Write { offset, len: block, fua: token % 8 == 0 }, Data::Owned(buffer)),
                1 => (Operation::Read { offset, len: block }, Data::Owned(buffer)),
                2 => (Operation::WriteZeroes { offset, len: block, fua: false }, Data::None),
                _ => (Operation::Flush, Data::None),
            };
            let name = Token(token.wrapping_add(u64::MAX / 2));
            if host.start(operation, data, name).is_ok() {
                break;
            }
            host.poll();
            take(&mut host);
        }
    }
    host.drain();
    take(&mut host);
    assert_eq!(host.channel.in_flight(), 0);
    assert!(ended.iter().all(|&n| n == 1), "{ended:?}");
}

/// Point 3, across channels.
pub fn sees_completed_writes<S: Store>(store: &S) {
    let block = u64::from(store.block_size());
    let (mut one, mut two) = (Host::new(store), Host::new(store));
    for round in 0..100u64 {
        let offset = round % 7 * block;
        let len = (1 + round % 5) * block;
        one.write(offset, len, round as u8, round % 3 == 0).unwrap();
        assert!(two.read(offset, len).unwrap().iter().all(|&b| b == round as u8), "round {round}");
        std::mem::swap(&mut one, &mut two);
    }
}

/// Point 3, within one channel: overlapping writes and reads in flight, and no block half of each.
pub fn never_tears<S: Store>(store: &S) {
    let block = u64::from(store.block_size());
    let mut host = Host::new(store);
    let mut rng = Rng(5);
    let mut next = 0;
    for _ in 0..200 {
        for _ in 0..8 {
            let len = block * (1 + rng.below(8));
            let offset = rng.below(8) * block;
            let mut buffer = IoBuffer::new(len as usize).unwrap();
            buffer.fill(next as u8);
            next += 1;
            let write = rng.below(2) == 0;
            let operation = if write {
                Operation::Write { offset, len, fua: false }
            } else {
                Operation::Read { offset, len }
            };
            let _ = host.start(operation, Data::Owned(buffer), Token(next));
        }
        host.poll();
        for (_, completion) in host.take() {
            completion.result.unwrap();
            for block in completion.buffer.unwrap().chunks(block as usize) {
                assert!(block.iter().all(|&b| b == block[0]), "a torn block");
            }
        }
    }
    host.drain();
}

/// Point 5.
pub fn zeros<S: Store>(store: &S) {
    let block = u64::from(store.block_size());
    let mut host = Host::new(store);
    let all = 1u64 << 20;
    assert!(host.read(0, all).unwrap().iter().all(|&b| b == 0), "a fresh store reads as zeros");
    let ranges = [(0, block), (3 * block, 7 * block), (4096, 65536), (block, all / 2), (0, all)];
    for (offset, len) in ranges {
        for operation in [
            Operation::WriteZeroes { offset, len, fua: false },
            Operation::WriteZeroes { offset, len, fua: true },
            Operation::Deallocate { offset, len },
        ] {
            host.write(0, all, 9, false).unwrap();
            host.run(operation, Data::None).result.unwrap();
            for (at, bytes) in (0u64..).step_by(512).zip(host.read(0, all).unwrap().chunks(512)) {
                let expected = if (offset..offset + len).contains(&at) { 0 } else { 9 };
                assert!(bytes.iter().all(|&b| b == expected), "byte {at} after {operation:?}");
            }
        }
    }
}

/// Host memory in pieces, at addresses of no alignment: every byte to its place, and not one beside it.
pub fn odd_memory<S: Store>(store: &S) {
    let mut host = Host::new(store);
    let mut rng = Rng(11);
    for round in 0..50 {
        let len = 4096 * (1 + rng.below(16)) as usize;
        let (mut spans, mut at, mut rest) = (Vec::new(), 1 + rng.below(5000) as usize, len);
        let mut gaps = Vec::new();
        while rest > 0 {
            let part = rest.min(1 + rng.below(if round % 2 == 0 { 9000 } else { 700 }) as usize);
            spans.push(host.span(at, part));
            gaps.push(host.span(at + part, 1));
            at += part + 1 + rng.below(3) as usize;
            rest -= part;
        }
        let bytes: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
        let mut from = 0;
        for span in &spans {
            host.memory.write(*span, &bytes[from..from + span.len()]);
            from += span.len();
        }
        let offset = 4096 * rng.below(100);
        let write = Operation::Write { offset, len: len as u64, fua: false };
        host.run(write, Data::Spans(&spans)).result.unwrap();
        assert_eq!(&host.read(offset, len as u64).unwrap()[..], &bytes[..], "round {round}");
        for span in spans.iter().chain(&gaps) {
            host.memory.write(*span, &vec![0xcc; span.len()]);
        }
        host.run(Operation::Read { offset, len: len as u64 }, Data::Spans(&spans)).result.unwrap();
        let mut back = Vec::new();
        for span in &spans {
            let mut part = vec![0; span.len()];
            host.memory.read(*span, &mut part);
            back.extend(part);
        }
        assert_eq!(back, bytes, "round {round}");
        for gap in gaps {
            let mut byte = [0];
            host.memory.read(gap, &mut byte);
            assert_eq!(byte, [0xcc], "round {round}: a byte beside the memory was written");
        }
    }
}

/// Memory that the host takes away is nobody's as soon as its last operation has ended and the channel was
/// told.
pub fn lets_memory_go<S: Store>(store: &S) {
    let mut host = Host::new(store);
    let span = host.span(4096, 4096);
    host.run(Operation::Write { offset: 0, len: 4096, fua: false }, Data::Spans(&[span])).result.unwrap();
    host.run(Operation::Read { offset: 0, len: 4096 }, Data::Spans(&[span])).result.unwrap();
    // One that a store with O_DIRECT copies.
    let odd = host.span(9001, 4096);
    let region = host.memory.unmap(HOST_IOVA).unwrap();
    host.channel.memory_changed();
    assert_eq!(region.strong_count(), 0, "the channel keeps memory that its host took away");
    for span in [span, odd] {
        for operation in
            [Operation::Write { offset: 0, len: 4096, fua: false }, Operation::Read { offset: 0, len: 4096 }]
        {
            let result = host.run(operation, Data::Spans(&[span])).result;
            assert!(result.is_err(), "{operation:?} of memory that is not there");
        }
    }
}

/// What a block of the model may hold: the stamps of [`stamp`]; 0 is zeros.
#[derive(Clone, Default)]
struct Block {
    /// Before the mutations in flight.
    settled: Vec<u64>,
    /// Of the mutations since the block was last without any in flight.
    group: Vec<u64>,
    in_flight: usize,
}

impl Block {
    fn allowed(&self) -> impl Iterator<Item = u64> {
        self.settled.iter().chain(&self.group).copied()
    }
}

struct Running {
    operation: Operation,
    /// For a read: what each block may show.
    allowed: Vec<Vec<u64>>,
}

fn stamp(block: &mut [u8], value: u64) {
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The one stamp in a block, or a panic: points 3 and 6.
fn stamp_of(block: &[u8], what: &str) -> u64 {
    let value = u64::from_le_bytes(block[..8].try_into().unwrap());
    assert!(block.chunks_exact(8).all(|w| w == value.to_le_bytes()), "{what}: a torn block");
    value
}

/// Which values each block may hold, and the operations in flight.
struct Model {
    seed: u64,
    block_size: u64,
    blocks: Vec<Block>,
    running: HashMap<Token, Running>,
    failed: usize,
}

impl Model {
    /// An operation begins. `new`: the stamp that its blocks have after it.
    fn begin(&mut self, token: Token, operation: Operation, new: Option<u64>) {
        let range = operation.range().map_or(0..0, |(offset, len)| self.places(offset, len));
        let mut allowed = Vec::new();
        if let Some(new) = new {
            for at in range {
                self.blocks[at].group.push(new);
                self.blocks[at].in_flight += 1;
                for other in self.running.values_mut() {
                    if let Operation::Read { offset, .. } = other.operation
                        && let Some(index) = at.checked_sub((offset / self.block_size) as usize)
                        && let Some(allowed) = other.allowed.get_mut(index)
                    {
                        allowed.push(new);
                    }
                }
            }
        } else if matches!(operation, Operation::Read { .. }) {
            allowed = self.blocks[range].iter().map(|b| b.allowed().collect()).collect();
        }
        self.running.insert(token, Running { operation, allowed });
    }

    /// An operation has ended; a read may show what was allowed while it ran.
    fn end(&mut self, token: Token, completion: Completion) {
        let Running { operation, allowed } = self.running.remove(&token).expect("a token of ours");
        self.failed += usize::from(completion.result.is_err());
        let Some((offset, len)) = operation.range() else { return };
        let places = self.places(offset, len);
        if operation.mutates() {
            for block in &mut self.blocks[places] {
                block.in_flight -= 1;
                if completion.result.is_err() {
                    block.group.extend(block.settled.clone());
                }
                if block.in_flight == 0 {
                    block.settled = std::mem::take(&mut block.group);
                    block.settled.sort_unstable();
                    block.settled.dedup();
                }
            }
        } else if completion.result.is_ok() {
            let bytes = completion.buffer.expect("a read's buffer");
            for (index, bytes) in bytes.chunks(self.block_size as usize).enumerate() {
                let what = format!("seed {}, block {}", self.seed, places.start + index);
                let value = stamp_of(bytes, &what);
                assert!(allowed[index].contains(&value), "{what}: {value}, not of {:?}", allowed[index]);
            }
        }
    }

    fn places(&self, offset: u64, len: u64) -> std::ops::Range<usize> {
        let first = (offset / self.block_size) as usize;
        first..first + (len / self.block_size) as usize
    }
}

/// Random operations, several in flight, against a model that knows which values each block
/// may hold. Failures (of a [`nearside_store::Faulty`] below, say) may leave each block old
/// or new. Answers how many operations failed.
pub fn model<S: Store>(store: &S, seed: u64, operations: usize) -> usize {
    let block_size = u64::from(store.block_size());
    let blocks = (1 << 18) / block_size;
    let mut host = Host::new(store);
    let mut rng = Rng(seed);
    let mut model = Model {
        seed,
        block_size,
        blocks: vec![Block { settled: vec![0], ..Block::default() }; blocks as usize],
        running: HashMap::new(),
        failed: 0,
    };
    for step in 0..operations as u64 {
        let first = rng.below(blocks);
        let longest = if rng.below(8) == 0 { 64 } else { 4 };
        let count = (1 + rng.below(longest)).min(blocks - first);
        let (offset, len) = (first * block_size, count * block_size);
        let value = step + 1;
        let fua = rng.below(4) == 0;
        let (operation, new) = match rng.below(10) {
            0..4 => (Operation::Write { offset, len, fua }, Some(value)),
            4..7 => (Operation::Read { offset, len }, None),
            7 => (Operation::WriteZeroes { offset, len, fua }, Some(0)),
            8 => (Operation::Deallocate { offset, len }, Some(0)),
            _ => (Operation::Flush, None),
        };
        let mut buffer = IoBuffer::new(len as usize).unwrap();
        stamp(&mut buffer, value);
        let data = match operation {
            Operation::Read { .. } | Operation::Write { .. } => Data::Owned(buffer),
            _ => Data::None,
        };
        model.begin(Token(step), operation, new);
        if host.start(operation, data, Token(step)).is_err() {
            // Full: nothing was done. The value stays in `group` as one that a block may (not must) hold.
            host.done.insert(Token(step), Completion { result: Err(StoreError::Busy), buffer: None });
        }
        let is_last = step + 1 == operations as u64;
        while model.running.len() > 12 || (is_last && !model.running.is_empty()) || rng.below(3) == 0 {
            if host.done.is_empty() {
                host.poll();
            }
            for (token, completion) in host.take() {
                model.end(token, completion);
            }
            if model.running.is_empty() {
                break;
            }
        }
    }
    model.failed
}
