//! Commands of any bytes on the admin queue and on an I/O queue, near-data commands among
//! them. The drive must come to rest, answer each command once, write nothing outside the
//! host's memory, and be as new after a reset.
//!
//! ```text
//! 64 bytes a command, as on the wire, but for
//!  2 the identifier: the command's number is put there
//! 63 bit 0 the I/O queue, bit 1 ring later: with the next command
//! the whole input lies at the beginning of the data memory, too: lists, segments and requests are in it
//! ```

use std::cell::RefCell;

use nearside_spec::data::{CopySource, MemoryRange};
use nearside_spec::opcode::{admin, compute, io, memory};
use nearside_spec::registers::csts;
use nearside_spec::{SubmissionEntry, feature};

use crate::echo;
use crate::rig::{COMPUTE, DATA, DATA_LEN, MEMORY, MEMORY_LEN, QUEUES, QUEUES_LEN, Rig};
use crate::volumes::gunzip;

const STRIDE: usize = 64;
/// Commands of one input; no queue wraps.
const MOST: usize = 32;

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

/// The volume on the drive: the smallest that has directories, links, inline data and an ACL.
pub fn tiny() -> Vec<u8> {
    gunzip(include_bytes!("../../../fuzz/images/tiny.img.gz"))
}

/// Runs an input.
pub fn run(input: &[u8]) {
    echo::install();
    RIG.with_borrow_mut(|rig| commands(rig.get_or_insert_with(|| Rig::new(tiny())), input));
}

fn commands(rig: &mut Rig, input: &[u8]) {
    rig.renew();
    rig.put(0, input);
    // A host may write over its own queues; then nobody knows what it will find there.
    let queues = QUEUES..QUEUES + QUEUES_LEN as u64;
    let at_queues = input.as_chunks::<8>().0.iter().any(|b| queues.contains(&u64::from_le_bytes(*b)));
    let mut sent = [0u16; 2];
    let mut owed: Vec<(u16, u16)> = Vec::new();
    let mut queues_change = at_queues;
    for (nr, chunk) in (1u16..).zip(input.chunks(STRIDE).take(MOST)) {
        let mut bytes = [0; STRIDE];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let (queue, later) = (u16::from(bytes[63] & 1), bytes[63] & 2 != 0);
        let entry = entry(&bytes, nr, queue);
        if queue == 0 {
            let made = matches!(
                entry.opcode(),
                admin::CREATE_CQ | admin::CREATE_SQ | admin::DELETE_CQ | admin::DELETE_SQ
            );
            queues_change |= made;
        }
        if queue == 1 || entry.opcode() != admin::ASYNC_EVENT_REQUEST {
            owed.push((queue, nr));
        }
        rig.submit(queue, &entry, !later);
        sent[usize::from(queue)] += 1;
        if !later {
            rig.settle(1_000_000);
        }
    }
    rig.ring(0);
    rig.ring(1);
    rig.settle(100_000_000);
    rig.check_canary();
    let dead = rig.status() & csts::CFS != 0;
    for queue in [0, 1] {
        if at_queues || dead || (queue == 1 && queues_change) {
            continue;
        }
        let mut done: Vec<u16> =
            rig.completions(queue).iter().map(|c| c.cid()).filter(|c| *c < 0xfff0).collect();
        done.sort_unstable();
        assert!(done.windows(2).all(|w| w[0] != w[1]), "queue {queue}: answered twice: {done:?}");
        for (_, cid) in owed.iter().filter(|(q, _)| *q == queue) {
            assert!(
                done.binary_search(cid).is_ok(),
                "queue {queue}: command {cid} was not answered: {done:?}"
            );
        }
    }
    rig.stop();
}

fn entry(bytes: &[u8; STRIDE], nr: u16, queue: u16) -> SubmissionEntry {
    let mut entry = SubmissionEntry::default();
    for (to, from) in entry.cdw.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *to = u32::from_le_bytes(*from);
    }
    entry.set_cid(nr);
    // Most addresses that are drawn at random lie nowhere: bend some of them to where something is.
    for low in [6, 8] {
        let value = entry.quad(low);
        match value >> 61 {
            0 | 1 if value < DATA => entry.set_quad(low, DATA + value % DATA_LEN as u64),
            2 => entry.set_quad(low, (DATA + value % DATA_LEN as u64) & !4095),
            3 => entry.set_quad(low, DATA + DATA_LEN as u64 - 4096 + value % 8192),
            _ => {}
        }
    }
    // What waits, waits milliseconds and not the drive's most; a host that wants to be kept alive is not.
    if queue == 1 && entry.opcode() == io::NEAR_DATA_RESULT {
        entry.cdw[14] %= 4;
    }
    if queue == 0 && entry.opcode() == admin::SET_FEATURES && entry.cdw[10] as u8 == feature::fid::KEEP_ALIVE
    {
        entry.cdw[11] |= 0x10_0000;
    }
    entry
}

/// Commands as a driver sends them, each by itself, then in pairs; near-data requests among them.
pub fn seeds() -> Vec<Vec<u8>> {
    let admin = |opcode: u8, dwords: &[u32]| chunk(opcode, 0, 0, dwords);
    let io = |opcode: u8, dwords: &[u32]| chunk(opcode, 1, 1, dwords);
    let pages = |page: u64, dwords: &[u32], opcode: u8| {
        let mut bytes = chunk(opcode, 0, 0, dwords);
        bytes[24..32].copy_from_slice(&(DATA + page * 4096).to_le_bytes());
        bytes
    };
    let mut all = vec![
        admin(admin::IDENTIFY, &[0]),
        admin(admin::IDENTIFY, &[1]),
        admin(admin::IDENTIFY, &[2]),
        admin(admin::IDENTIFY, &[3]),
        admin(admin::KEEP_ALIVE, &[]),
        admin(admin::ABORT, &[2 << 16 | 1]),
        admin(admin::ASYNC_EVENT_REQUEST, &[]),
        [admin(admin::ASYNC_EVENT_REQUEST, &[]), admin(admin::ABORT, &[1 << 16])].concat(),
        [
            pages(8, &[63 << 16 | 2, 1], admin::CREATE_CQ),
            pages(9, &[63 << 16 | 2, 2 << 16 | 1], admin::CREATE_SQ),
        ]
        .concat(),
        [admin(admin::DELETE_SQ, &[1]), admin(admin::DELETE_CQ, &[1])].concat(),
        io(io::FLUSH, &[]),
        io(io::READ, &[3, 0, 15]),
        io(io::WRITE, &[40, 0, 7]),
        io(io::COMPARE, &[0, 0, 0]),
        io(io::WRITE_ZEROES, &[200, 0, 3]),
        io(io::DATASET_MANAGEMENT, &[1, 4]),
    ];
    all.extend(programs());
    for log in [1u32, 2, 3, 5, 0xd5] {
        all.push(admin(admin::GET_LOG_PAGE, &[log | 127 << 16]));
    }
    for id in [1u32, 2, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xe, 0xf, 0x16, 0x81] {
        all.push([admin(admin::GET_FEATURES, &[id]), admin(admin::SET_FEATURES, &[id, 1])].concat());
    }
    for request in crate::near_data::requests() {
        let len = request.len() as u32;
        let mut with = |command: &mut Vec<u8>, then: &[u8]| {
            // The request follows the commands, in memory as in the input.
            let at = DATA + (command.len() + then.len()) as u64;
            command[24..32].copy_from_slice(&at.to_le_bytes());
            command[32..40].copy_from_slice(&((at & !4095) + 4096).to_le_bytes());
            command.extend_from_slice(then);
            command.extend_from_slice(&request);
            all.push(std::mem::take(command));
        };
        with(&mut io(io::NEAR_DATA, &[len, 4096, 1]), &[]);
        with(&mut io(io::NEAR_DATA_EXECUTE, &[len, 0, 7]), &io(io::NEAR_DATA_RESULT, &[0, 4096, 7, 0, 2]));
        with(&mut io(io::NEAR_DATA_EXECUTE, &[len, 0, 7]), &io(io::NEAR_DATA_CANCEL, &[0, 0, 7]));
        with(
            &mut admin(admin::SET_FEATURES, &[0xd5, 1, 0, 0, 0, len]),
            &admin(admin::GET_FEATURES, &[0xd5, 1]),
        );
    }
    all
}

/// Commands of memory and of programs: each by itself, and all of a program's life.
fn programs() -> Vec<Vec<u8>> {
    let memory_io = |opcode: u8, dwords: &[u32]| chunk(opcode, 1, MEMORY, dwords);
    let of_programs = |opcode: u8, dwords: &[u32]| chunk(opcode, 0, COMPUTE, dwords);
    // What the lists that follow name: their data are behind the commands.
    let with = |commands: &[Vec<u8>], at: usize, data: &[u8]| {
        let mut all = commands.concat();
        let place = DATA + all.len() as u64;
        all[at * STRIDE + 24..][..8].copy_from_slice(&place.to_le_bytes());
        all.extend_from_slice(data);
        all
    };
    let mut source = CopySource::default();
    source.set_nsid(1).set_start(3).set_count(7);
    let mut copy = memory_io(memory::COPY, &[0, 0, 2 << 8]);
    copy[8..12].copy_from_slice(&4096u32.to_le_bytes());
    let mut range = [MemoryRange::default(), MemoryRange::default()];
    range[0].set_nsid(MEMORY).set_length(4096);
    range[1].set_nsid(MEMORY).set_length(4096).set_start(8192);
    let ranges = [range[0].0, range[1].0].concat();
    let load = of_programs(admin::LOAD_PROGRAM, &[0xc0 << 16, 8, 0, 0, 8]);
    let activate = of_programs(admin::PROGRAM_ACTIVATION, &[1 << 16]);
    let set = of_programs(admin::MEMORY_RANGE_SET, &[0, 2]);
    let mut over_set = chunk(compute::EXECUTE, 1, COMPUTE, &[]);
    over_set[8..12].copy_from_slice(&(1u32 << 16).to_le_bytes());
    let mut over_ranges = chunk(compute::EXECUTE, 1, COMPUTE, &[100]);
    over_ranges[12..16].copy_from_slice(&2u32.to_le_bytes());
    over_ranges[16..20].copy_from_slice(&64u32.to_le_bytes());
    let end = [
        of_programs(admin::PROGRAM_ACTIVATION, &[0]),
        of_programs(admin::LOAD_PROGRAM, &[1 << 24]),
        of_programs(admin::MEMORY_RANGE_SET, &[1 | 1 << 16]),
    ];
    let mut life = vec![load.clone(), activate.clone(), set.clone(), over_set];
    life.extend(end);
    vec![
        memory_io(memory::READ, &[0, 0, 4096]),
        memory_io(memory::WRITE, &[512, 0, 8192]),
        memory_io(memory::FILL, &[0, 0, MEMORY_LEN as u32]),
        with(&[copy], 0, &source.0),
        with(&[set], 0, &ranges),
        with(&life, 2, &ranges),
        with(&[load, activate, over_ranges], 2, &ranges),
        chunk(admin::IDENTIFY, 0, COMPUTE, &[5, 4 << 24]),
        chunk(admin::IDENTIFY, 0, MEMORY, &[5, 3 << 24]),
    ]
}

/// A command of a namespace with its data in page 16 of the data memory, and in page 17.
fn chunk(opcode: u8, queue: u8, nsid: u32, dwords: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; STRIDE];
    bytes[0] = opcode;
    bytes[4..8].copy_from_slice(&nsid.to_le_bytes());
    bytes[24..32].copy_from_slice(&(DATA + 16 * 4096).to_le_bytes());
    bytes[32..40].copy_from_slice(&(DATA + 17 * 4096).to_le_bytes());
    for (nr, dword) in dwords.iter().enumerate() {
        bytes[40 + nr * 4..][..4].copy_from_slice(&dword.to_le_bytes());
    }
    bytes[63] = bytes[63] & !3 | queue;
    bytes
}
