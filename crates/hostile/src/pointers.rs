//! Data pointers: one command, right but for where it says that its data lie. A plain reading
//! of the specification says which bytes it names (`named`); the drive must agree, move
//! exactly these, and nothing else may change.
//!
//! ```text
//! 0 command u8: read, write, compare, deallocate   1 PSDT u8
//! 2 blocks less one u8 (deallocate: ranges)   3 first block u8
//! 4.. zeros   8 PRP 1, or the descriptor's address u64   16 PRP 2, or its length and identifier u64
//! 24.. data memory from its beginning: lists, segments, ranges
//! ```

use std::cell::RefCell;

use nearside_spec::SubmissionEntry;
use nearside_spec::data::{SglDescriptor, SglType};
use nearside_spec::opcode::io;

use crate::rig::{DATA, DATA_LEN, PAGE, QUEUES, QUEUES_LEN, Rig};

const HEAD: usize = 24;
const BLOCK: usize = 512;
/// Blocks of the namespace.
const BLOCKS: usize = 128;

/// The drive; what its memory and store hold at the beginning; what they are expected to hold.
struct PointersRig {
    rig: Rig,
    fresh: (Vec<u8>, Vec<u8>),
    memory: Vec<u8>,
    store: Vec<u8>,
}

thread_local! {
    static STATE: RefCell<Option<PointersRig>> = const { RefCell::new(None) };
}

/// Bytes of which few neighbours are alike.
fn pattern(len: usize, salt: u32) -> Vec<u8> {
    (0..len as u32).map(|i| ((i ^ salt).wrapping_mul(0x9E37_79B1) >> 24) as u8).collect()
}

/// Runs an input.
pub fn run(input: &[u8]) {
    let Some((head, lists)) = input.split_first_chunk::<HEAD>() else { return };
    let queues = QUEUES..QUEUES + QUEUES_LEN as u64;
    if input.as_chunks::<8>().0.iter().any(|b| queues.contains(&u64::from_le_bytes(*b))) {
        return;
    }
    STATE.with_borrow_mut(|state| {
        let state = state.get_or_insert_with(|| {
            let (memory, store) = (pattern(DATA_LEN, 2), pattern(BLOCKS * BLOCK, 1));
            let fresh = (memory.clone(), store.clone());
            PointersRig { rig: Rig::new(store.clone()), fresh, memory, store }
        });
        run_command(state, head, lists);
    });
}

fn run_command(PointersRig { rig, fresh, memory, store }: &mut PointersRig, head: &[u8; HEAD], lists: &[u8]) {
    rig.renew();
    memory.copy_from_slice(&fresh.0);
    store.copy_from_slice(&fresh.1);
    let lists = &lists[..lists.len().min(DATA_LEN)];
    memory[..lists.len()].copy_from_slice(lists);
    rig.put(0, memory);

    let opcode = [io::READ, io::WRITE, io::COMPARE, io::DATASET_MANAGEMENT][usize::from(head[0] & 3)];
    let (count, slba) = (usize::from(head[2]) + 1, usize::from(head[3]));
    let mut entry = SubmissionEntry::new(opcode, 1, 1);
    entry.cdw[0] |= u32::from(head[1] % 3) << 14;
    let quad = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| head[at + i]));
    entry.set_quad(6, quad(8));
    entry.set_quad(8, quad(16));
    let len = if opcode == io::DATASET_MANAGEMENT {
        entry.cdw[10] = count as u32 - 1;
        entry.cdw[11] = 4;
        count * 16
    } else {
        entry.cdw[10] = slba as u32;
        entry.cdw[12] = count as u32 - 1;
        count * BLOCK
    };
    let fine = named(memory, &entry, len, opcode != io::READ)
        .is_some_and(|pieces| apply(memory, store, opcode, &pieces, slba, count));

    rig.submit(1, &entry, true);
    rig.settle(1_000_000);
    rig.check_canary();
    let done = rig.completions(1);
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(done[0].status().is_success(), fine, "{:?}; {entry:?}", done[0].status());
    assert!(rig.memory() == memory, "memory is not as it should be: {entry:?}");
    assert!(rig.store() == store, "the store is not as it should be: {entry:?}");
}

/// Does to memory and store what the command is to do. Whether it succeeds; else nothing has changed.
fn apply(
    memory: &mut [u8],
    store: &mut [u8],
    opcode: u8,
    pieces: &[DataPiece],
    slba: usize,
    count: usize,
) -> bool {
    let gathered: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| match piece {
            DataPiece::Memory(at, len) => &memory[*at..*at + len],
            DataPiece::Thrown(_) => &[],
        })
        .copied()
        .collect();
    if opcode == io::DATASET_MANAGEMENT {
        let number = |b: &[u8]| b.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let ranges = || gathered.as_chunks::<16>().0.iter().map(|r| (number(&r[8..]), number(&r[4..8])));
        let within = |(from, n): (u64, u64)| from.checked_add(n).is_some_and(|end| end <= BLOCKS as u64);
        let fine = ranges().all(within);
        for (from, n) in ranges().filter(|_| fine) {
            store[from as usize * BLOCK..(from + n) as usize * BLOCK].fill(0);
        }
        return fine;
    }
    let Some(blocks) = store.get_mut(slba * BLOCK..(slba + count) * BLOCK) else { return false };
    match opcode {
        io::READ => {
            let mut from = 0;
            for piece in pieces {
                match *piece {
                    DataPiece::Memory(at, len) => {
                        memory[at..at + len].copy_from_slice(&blocks[from..from + len]);
                        from += len;
                    }
                    DataPiece::Thrown(len) => from += len,
                }
            }
            true
        }
        io::WRITE => {
            blocks.copy_from_slice(&gathered);
            true
        }
        _ => blocks == gathered,
    }
}

/// A part of a command's data.
#[derive(Clone, Copy, Debug)]
enum DataPiece {
    /// Bytes of data memory: from where, how many.
    Memory(usize, usize),
    /// A bit bucket.
    Thrown(usize),
}

/// Where an address lies in data memory, with `len` bytes behind it.
fn place(iova: u64, len: usize) -> Option<usize> {
    let at = usize::try_from(iova.checked_sub(DATA)?).ok()?;
    (at <= DATA_LEN && len <= DATA_LEN - at).then_some(at)
}

/// The bytes that a data pointer names, one after the other; `None` where it is not a right one.
fn named(memory: &[u8], entry: &SubmissionEntry, len: usize, from_host: bool) -> Option<Vec<DataPiece>> {
    match entry.psdt() {
        0 => prp(memory, entry.prp1(), entry.prp2(), len),
        _ => {
            let mut first = [0; 16];
            first[..8].copy_from_slice(&entry.prp1().to_le_bytes());
            first[8..].copy_from_slice(&entry.prp2().to_le_bytes());
            sgl(memory, SglDescriptor(first), len, from_host)
        }
    }
}

/// Base 2.0, 4.1.1: the first entry may begin within a page, the second is a page or a list,
/// a full list's last entry leads to the next.
fn prp(memory: &[u8], prp1: u64, prp2: u64, len: usize) -> Option<Vec<DataPiece>> {
    let page = |iova: u64, len: usize| place(iova, len).map(|at| DataPiece::Memory(at, len));
    let aligned = |iova: u64| iova.is_multiple_of(PAGE as u64);
    if !prp1.is_multiple_of(4) {
        return None;
    }
    let first = len.min(PAGE - prp1 as usize % PAGE);
    let mut pieces = vec![page(prp1, first)?];
    let mut left = len - first;
    if left == 0 {
        return Some(pieces);
    }
    if left <= PAGE {
        pieces.push(page(prp2, left).filter(|_| aligned(prp2))?);
        return Some(pieces);
    }
    let mut at = prp2;
    if !at.is_multiple_of(8) {
        return None;
    }
    while left > 0 {
        let from = place(at, 8)?;
        let entry = u64::from_le_bytes(*memory[from..].first_chunk()?);
        if !aligned(entry) {
            return None;
        }
        if at as usize % PAGE == PAGE - 8 && left > PAGE {
            at = entry;
            continue;
        }
        let n = left.min(PAGE);
        pieces.push(page(entry, n)?);
        left -= n;
        at += 8;
    }
    Some(pieces)
}

/// Base 2.0, 4.1.2: data blocks and bit buckets; a segment's last descriptor may lead to
/// the next. More than is wanted may be described, less not; of descriptors a command may
/// have 4096, as they are fetched: by pages.
fn sgl(memory: &[u8], first: SglDescriptor, len: usize, from_host: bool) -> Option<Vec<DataPiece>> {
    let mut pieces = Vec::new();
    let mut left = len;
    let mut take = |d: &SglDescriptor, left: &mut usize| {
        let n = (d.length() as usize).min(*left);
        match d.kind()? {
            SglType::BitBucket if from_host => return Some(()),
            SglType::BitBucket => pieces.push(DataPiece::Thrown(n)),
            _ if n == 0 => return Some(()),
            _ => pieces.push(DataPiece::Memory(place(d.address(), n)?, n)),
        }
        *left -= n;
        Some(())
    };
    let leads = |d: &SglDescriptor| matches!(d.kind(), Some(SglType::Segment | SglType::LastSegment));
    let known = |d: &SglDescriptor| d.kind().is_some() && d.sub_type() == 0;
    if !known(&first) {
        return None;
    }
    if !leads(&first) {
        take(&first, &mut left)?;
        return (left == 0).then_some(pieces);
    }
    let mut segment = first;
    let mut seen = 1;
    'segments: loop {
        let (address, bytes) = (segment.address(), segment.length() as usize);
        if bytes == 0 || bytes % 16 != 0 || address % 8 != 0 || address.checked_add(bytes as u64).is_none() {
            return None;
        }
        let count = bytes / 16;
        for nr in 0..count {
            if nr % (PAGE / 16) == 0 {
                let batch = (count - nr).min(PAGE / 16);
                seen += batch;
                place(address + nr as u64 * 16, batch * 16).filter(|_| seen <= 4096)?;
            }
            let at = place(address + nr as u64 * 16, 16)?;
            let descriptor = SglDescriptor(*memory[at..].first_chunk()?);
            if !known(&descriptor) {
                return None;
            }
            if !leads(&descriptor) {
                take(&descriptor, &mut left)?;
                continue;
            }
            if segment.kind() == Some(SglType::LastSegment) || nr + 1 != count {
                return None;
            }
            if left == 0 {
                return Some(pieces);
            }
            segment = descriptor;
            continue 'segments;
        }
        let last = segment.kind() == Some(SglType::LastSegment);
        return (last && left == 0).then_some(pieces);
    }
}

/// Right pointers of every form: one page, two, lists, chained lists;
/// data blocks, buckets, segments that lead on.
pub fn seeds() -> Vec<Vec<u8>> {
    let page = |nr: u64| DATA + nr * PAGE as u64;
    let seed = |command: u8, psdt: u8, blocks: u8, first: u64, second: u64, memory: &[(usize, Vec<u8>)]| {
        let mut bytes = vec![command, psdt, blocks - 1, 2, 0, 0, 0, 0];
        bytes.extend(first.to_le_bytes());
        bytes.extend(second.to_le_bytes());
        for (at, part) in memory {
            bytes.resize(bytes.len().max(HEAD + at + part.len()), 0);
            bytes[HEAD + at..][..part.len()].copy_from_slice(part);
        }
        bytes
    };
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let descriptors = |all: &[(SglType, u64, u32)]| {
        all.iter().flat_map(|(kind, at, len)| SglDescriptor::new(*kind, *at, *len).0).collect::<Vec<u8>>()
    };
    let tail = |kind: SglType, len: u64| u64::from(kind.to_field()) << 60 | len;
    let mut all = Vec::new();
    for command in 0..4 {
        let ranges = (0, words(&[8 << 32, 16, 1 << 32, 200]));
        all.push(seed(command, 0, 2, page(0), 0, &[ranges]));
        all.push(seed(command, 0, 16, page(20) + 512, page(30), &[]));
        all.push(seed(command, 0, 64, page(20), DATA, &[(0, words(&[21, 22, 23, 9, 10, 11, 12].map(page)))]));
        // A list that ends with its page; one that leads to the next from there.
        let full = [(4080, words(&[31, 25].map(page)))];
        all.push(seed(command, 0, 22, page(20) + 1024, DATA + 4080, &full));
        let chained = [(4080, words(&[page(31), page(1)])), (4096, words(&[25, 26, 28, 5].map(page)))];
        all.push(seed(command, 0, 48, page(20) + 1024, DATA + 4080, &chained));
        all.push(seed(command, 1, 8, page(9), tail(SglType::DataBlock, 4096), &[]));
        let last =
            descriptors(&[(SglType::DataBlock, page(9) + 3, 1000), (SglType::DataBlock, page(12), 3096)]);
        all.push(seed(command, 1, 8, DATA, tail(SglType::LastSegment, 32), &[(0, last.clone())]));
        let leading = descriptors(&[
            (SglType::DataBlock, page(30), 512),
            (SglType::BitBucket, 0, 512),
            (SglType::LastSegment, DATA + 256, 32),
        ]);
        all.push(seed(command, 2, 10, DATA, tail(SglType::Segment, 48), &[(0, leading), (256, last)]));
    }
    all
}
