//! Checking that what is read is what was written: each block carries its offset and a sequence number.
//!
//! A read must find a block no older than the last write of it that had ended when the read began. Of
//! writes of one block that were in flight together either may have won, so both are right. What a read
//! finds while a write of the same block is in flight may be torn, and a block that this run has not
//! written may hold anything: neither is checked.

use crate::engine::Io;
use crate::workload::Direction;
use nearside_random::scatter;

/// Bytes that carry their own offset and sequence.
pub const BLOCK: usize = 512;
const MAGIC: u64 = 0x6e65_6172_7369_6465;

#[derive(Clone, Copy, Default)]
struct Block {
    /// A read finds this sequence or a later one; 0: anything.
    floor: u32,
    /// The last write that began.
    begun: u32,
    /// Writes in flight.
    out: u16,
    /// Several were, and some still are.
    shared: bool,
}

#[derive(Clone)]
struct Flight {
    io: Io,
    /// A write's own; a read's is that of the last write that began before it.
    sequence: u32,
    /// Of a read: the blocks' floors when it began, 0 where a write was in flight.
    floors: Vec<u32>,
}

/// What this run has written, block by block: 12 bytes for each 512 of the range.
pub struct Verifier {
    blocks: Vec<Block>,
    flights: Vec<Option<Flight>>,
    sequence: u32,
    scratch: Vec<u8>,
}

impl Verifier {
    /// For a device of `size` bytes and `depth` operations in flight.
    #[must_use]
    pub fn new(size: u64, depth: usize) -> Self {
        let blocks = usize::try_from(size / BLOCK as u64).unwrap_or(usize::MAX / 64);
        Self {
            blocks: vec![Block::default(); blocks],
            flights: vec![None; depth],
            sequence: 0,
            scratch: Vec::new(),
        }
    }

    fn range(&self, io: &Io) -> std::ops::Range<usize> {
        let first = (io.offset / BLOCK as u64) as usize;
        let end = first + io.len as usize / BLOCK;
        first.min(self.blocks.len())..end.min(self.blocks.len())
    }

    /// Before an operation is sent: the bytes to write, where it is a write.
    pub fn before(&mut self, io: &Io) -> Option<&[u8]> {
        let range = self.range(io);
        let mut flight = Flight { io: *io, sequence: 0, floors: Vec::new() };
        let write = io.direction == Direction::Write;
        if write {
            self.sequence += 1;
            flight.sequence = self.sequence;
            for block in &mut self.blocks[range] {
                block.shared |= block.out > 0;
                block.out += 1;
                block.begun = self.sequence;
            }
            self.scratch.resize(io.len as usize, 0);
            for (index, bytes) in self.scratch.chunks_mut(BLOCK).enumerate() {
                stamp(bytes, io.offset + (index * BLOCK) as u64, self.sequence);
            }
        } else {
            flight.sequence = self.sequence;
            let floor = |block: &Block| if block.out > 0 { 0 } else { block.floor };
            flight.floors.extend(self.blocks[range].iter().map(floor));
        }
        if let Some(place) = self.flights.get_mut(io.token as usize) {
            *place = Some(flight);
        }
        write.then_some(&self.scratch[..])
    }

    /// After an operation has ended: whether it is right. `data` copies out what was read.
    pub fn after(&mut self, token: u32, ok: bool, data: impl FnOnce(&mut [u8])) -> bool {
        let Some(flight) = self.flights.get_mut(token as usize).and_then(Option::take) else { return true };
        let range = self.range(&flight.io);
        if flight.io.direction == Direction::Write {
            for block in &mut self.blocks[range] {
                block.out -= 1;
                if !ok {
                    block.floor = 0;
                } else if !block.shared {
                    block.floor = flight.sequence;
                }
                block.shared &= block.out > 0;
            }
            return true;
        }
        if !ok {
            return true;
        }
        self.scratch.resize(flight.io.len as usize, 0);
        data(&mut self.scratch);
        let mut offset = flight.io.offset;
        let known = flight.floors.iter().zip(&self.blocks[range]);
        self.scratch.chunks(BLOCK).zip(known).all(|(bytes, (&floor, block))| {
            let quiet = floor > 0 && block.begun <= flight.sequence;
            let right = !quiet || found(bytes, offset).is_some_and(|s| s >= floor && s <= flight.sequence);
            offset += BLOCK as u64;
            right
        })
    }

    /// An operation that was not taken after all.
    pub fn withdraw(&mut self, token: u32) {
        let Some(flight) = self.flights.get_mut(token as usize).and_then(Option::take) else { return };
        if flight.io.direction == Direction::Write {
            let range = self.range(&flight.io);
            for block in &mut self.blocks[range] {
                block.out -= 1;
                block.shared &= block.out > 0;
            }
        }
    }
}

/// Magic, offset, sequence, then words that follow from them.
fn words(offset: u64, sequence: u32) -> impl Iterator<Item = u64> {
    let seed = scatter(offset ^ u64::from(sequence).rotate_left(32));
    [MAGIC, offset, u64::from(sequence)].into_iter().chain((1..).map(move |n| seed.wrapping_mul(2 * n + 1)))
}

fn stamp(bytes: &mut [u8], offset: u64, sequence: u32) {
    for (into, word) in bytes.chunks_mut(8).zip(words(offset, sequence)) {
        let len = into.len();
        into.copy_from_slice(&word.to_le_bytes()[..len]);
    }
}

/// The sequence of an intact block.
fn found(bytes: &[u8], offset: u64) -> Option<u32> {
    let sequence = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
    let sequence = u32::try_from(sequence).ok()?;
    let same = bytes.chunks(8).zip(words(offset, sequence)).all(|(a, b)| a == &b.to_le_bytes()[..a.len()]);
    same.then_some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(token: u32, direction: Direction, offset: u64, len: u32) -> Io {
        Io { token, direction, offset, len }
    }

    #[test]
    fn stale_foreign_and_torn_blocks_are_found() {
        let mut verifier = Verifier::new(1 << 20, 4);
        let mut device = vec![0u8; 1 << 20];
        let write = |v: &mut Verifier, device: &mut [u8], offset: usize| {
            let bytes = v.before(&io(0, Direction::Write, offset as u64, 1024)).unwrap();
            device[offset..offset + 1024].copy_from_slice(bytes);
            assert!(v.after(0, true, |_| ()));
        };
        let read = |v: &mut Verifier, device: &[u8], offset: usize| {
            assert!(v.before(&io(1, Direction::Read, offset as u64, 1024)).is_none());
            v.after(1, true, |into| into.copy_from_slice(&device[offset..offset + 1024]))
        };
        assert!(read(&mut verifier, &device, 4096), "never written");
        write(&mut verifier, &mut device, 4096);
        assert!(read(&mut verifier, &device, 4096));
        let old = device.clone();
        write(&mut verifier, &mut device, 4096);
        assert!(read(&mut verifier, &device, 4096));
        assert!(!read(&mut verifier, &old, 4096), "the write before");
        let mut torn = device.clone();
        torn[5000] ^= 1;
        assert!(!read(&mut verifier, &torn, 4096));
        let mut misplaced = device.clone();
        misplaced.copy_within(4096..4608, 4608);
        assert!(!read(&mut verifier, &misplaced, 4096));
    }

    #[test]
    fn of_writes_together_either_may_have_won() {
        let mut verifier = Verifier::new(4096, 4);
        let first = verifier.before(&io(0, Direction::Write, 0, 512)).unwrap().to_vec();
        let second = verifier.before(&io(1, Direction::Write, 0, 512)).unwrap().to_vec();
        verifier.after(1, true, |_| ());
        verifier.after(0, true, |_| ());
        for bytes in [&first, &second] {
            verifier.before(&io(2, Direction::Read, 0, 512));
            assert!(verifier.after(2, true, |into| into.copy_from_slice(bytes)));
        }
        verifier.before(&io(0, Direction::Write, 0, 512));
        // A read that began before the write had ended may find the one before, or part of each.
        verifier.before(&io(2, Direction::Read, 0, 512));
        verifier.after(0, true, |_| ());
        assert!(verifier.after(2, true, |into| into.copy_from_slice(&second)));
        // As may one that a write began beside.
        verifier.before(&io(2, Direction::Read, 0, 512));
        let third = verifier.before(&io(0, Direction::Write, 0, 512)).unwrap().to_vec();
        assert!(verifier.after(2, true, |into| into.fill(3)));
        verifier.after(0, true, |_| ());
        verifier.before(&io(2, Direction::Read, 0, 512));
        assert!(!verifier.after(2, true, |into| into.copy_from_slice(&second)));
        verifier.before(&io(2, Direction::Read, 0, 512));
        assert!(verifier.after(2, true, |into| into.copy_from_slice(&third)));
    }
}
