//! Memory namespaces (Subsystem Local Memory): reads, writes, fills and copies of bytes, and who sees them.

use std::sync::Arc;

use crate::rig::*;
use nearside_device::throttle::{Quota, Whom};
use nearside_device::{CommandSet, Kept, Namespace, Subsystem};
use nearside_spec::command::memory;
use nearside_spec::data::CopySource;
use nearside_spec::feature::fid;
use nearside_spec::identify::{cns, csi, namespace_identifiers, nidt};
use nearside_spec::log::{AnaGroup, AnaHeader, lid};
use nearside_spec::opcode::memory as opcode;
use nearside_spec::registers::{self as reg, Cap, csts};
use nearside_store::{Delay, Modelled, Parametric};

const MEMORY_NSID: u32 = 2;
const COMPUTE_NSID: u32 = 3;
const SIZE: u64 = 1 << 20;

/// A subsystem with a namespace of blocks, one of memory, and one of programs.
fn subsystem() -> Arc<Subsystem<Dram>> {
    let subsystem = Subsystem::new();
    let blocks = Namespace::new(dram(1 << 20), (), 512, [1; 16], false).unwrap();
    subsystem.add(1, Arc::new(blocks)).unwrap();
    let local = Dram::new(SIZE, 4).unwrap();
    for (nsid, set) in [(MEMORY_NSID, CommandSet::Memory), (COMPUTE_NSID, CommandSet::Compute)] {
        let namespace = Namespace::of_command_set(set, local.clone(), (), [nsid as u8; 16]).unwrap();
        subsystem.add(nsid, Arc::new(namespace)).unwrap();
    }
    subsystem
}

/// A command of a memory namespace: its first byte, and its length.
fn of_memory(opcode: u8, start: u64, len: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode, 0x66, MEMORY_NSID);
    entry.set_quad(6, FREE);
    entry.set_quad(8, FREE + 4096);
    entry.with(memory::START, start).with(memory::LENGTH, len)
}

fn copy(to: u64, len: u64, format: u8, sources: &[CopySource], host: &Host<impl Store>) -> SubmissionEntry {
    let list: Vec<u8> = sources.iter().flat_map(|source| source.0).collect();
    host.put(FREE, &list);
    let mut entry = SubmissionEntry::new(opcode::COPY, 0x67, MEMORY_NSID);
    entry.set_quad(6, FREE);
    let many = sources.len() as u8 - 1;
    let entry = entry.with(memory::START, to).with(memory::NR_Z, many);
    entry.with(memory::FORMAT, format).with(memory::COPY_LENGTH, len)
}

fn source(nsid: u32, start: u64, count: u32) -> CopySource {
    let mut source = CopySource::default();
    source.set_nsid(nsid).set_start(start).set_count(count);
    source
}

fn identify(which: u8, nsid: u32, set: u8) -> SubmissionEntry {
    command(admin::IDENTIFY, nsid, &[which.into(), u32::from(set) << 24])
}

#[test]
fn only_a_host_that_enables_all_command_sets_sees_them() {
    let subsystem = subsystem();
    let mut plain = Host::among(&subsystem, Config::default());
    assert!(
        Cap(plain.function.registers.word64(reg::CAP).load(std::sync::atomic::Ordering::Relaxed))
            .command_sets()
    );
    plain.admin(identify(cns::ACTIVE_NAMESPACES, 0, 0)).unwrap();
    assert_eq!(plain.bytes(FREE, 8), [1, 0, 0, 0, 0, 0, 0, 0]);
    let read = of_memory(opcode::READ, 0, 4);
    assert!(same(plain.run(1, read).status(), Status::INVALID_NAMESPACE.dnr()));
    refused(plain.admin(identify(cns::NAMESPACE_COMMAND_SET, 2, csi::MEMORY)), Status::INVALID_FIELD.dnr());
    refused(plain.admin(command(admin::LOAD_PROGRAM, 3, &[])), Status::INVALID_OPCODE.dnr());
    // A drive without such namespaces has no other command set either.
    let alone = Host::on(dram(1 << 20), Config::default());
    assert!(
        !Cap(alone.function.registers.word64(reg::CAP).load(std::sync::atomic::Ordering::Relaxed))
            .command_sets()
    );

    let mut host = Host::of_all_sets(&subsystem, Config::default());
    host.admin(identify(cns::ACTIVE_NAMESPACES, 0, 0)).unwrap();
    assert_eq!(host.bytes(FREE, 16), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    for (set, nsid) in [(csi::NVM, 1), (csi::MEMORY, 2), (csi::COMPUTE, 3)] {
        host.admin(identify(cns::ACTIVE_NAMESPACES_COMMAND_SET, 0, set)).unwrap();
        assert_eq!(host.bytes(FREE, 8), [nsid, 0, 0, 0, 0, 0, 0, 0]);
        host.admin(identify(cns::NAMESPACE_DESCRIPTORS, nsid.into(), 0)).unwrap();
        let list = host.bytes(FREE, 4096);
        assert!(namespace_identifiers(&list).any(|id| id == (nidt::CSI, &[set][..])));
        host.admin(identify(cns::NAMESPACE_COMMAND_SET, nsid.into(), set)).unwrap();
        host.admin(identify(cns::NAMESPACE_INDEPENDENT, nsid.into(), 0)).unwrap();
        assert_eq!(host.bytes(FREE + 14, 1), [1]);
    }
    host.admin(identify(cns::NAMESPACE_COMMAND_SET, 2, csi::MEMORY)).unwrap();
    assert_eq!(host.bytes(FREE, 8), SIZE.to_le_bytes());
    host.admin(identify(cns::COMMAND_SETS, 0, 0)).unwrap();
    assert_eq!(host.bytes(FREE, 8), [0b1_1001, 0, 0, 0, 0, 0, 0, 0]);
    // Commands and effects of each set.
    for (set, there, not) in [(csi::NVM, 8, 4), (csi::MEMORY, 4, 8), (csi::COMPUTE, 1, 2)] {
        let effects = command(admin::GET_LOG_PAGE, 0, &[5 | 1023 << 16, 0, 0, 0, u32::from(set) << 24]);
        host.admin(effects).unwrap();
        let page = host.bytes(FREE, 4096);
        assert_eq!([page[0x85 * 4], page[1024 + there * 4] & 1, page[1024 + not * 4]], [1, 1, 0], "{set}");
    }
    // What is said of blocks is said of no other namespace, and the other way round.
    refused(host.admin(identify(cns::NAMESPACE, 2, 0)), Status::INVALID_NAMESPACE.dnr());
    refused(
        host.admin(identify(cns::NAMESPACE_COMMAND_SET, 1, csi::MEMORY)),
        Status::INVALID_NAMESPACE.dnr(),
    );
    // It enables one again, and neither sees them any more nor reaches what it has used before.
    assert!(host.run(1, of_memory(opcode::READ, 0, 4)).status().is_success());
    host.disable();
    host.enable();
    host.create_pair(1, None);
    host.admin(identify(cns::ACTIVE_NAMESPACES, 0, 0)).unwrap();
    assert_eq!(host.bytes(FREE, 8), [1, 0, 0, 0, 0, 0, 0, 0]);
    for entry in [of_memory(opcode::READ, 0, 4), command(io::FLUSH, MEMORY_NSID, &[])] {
        assert!(same(host.run(1, entry).status(), Status::INVALID_NAMESPACE.dnr()), "{entry:?}");
    }
}

#[test]
fn a_value_of_css_that_is_none_stops_the_controller() {
    let subsystem = subsystem();
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    host.disable();
    host.set_register(reg::CC, nearside_spec::registers::Cc::DEFAULTS.0 | 7 << 4 | 1);
    host.settle(0);
    assert_eq!(host.register(reg::CSTS) & csts::CFS, csts::CFS);
}

#[test]
fn bytes_are_written_read_and_zeroed() {
    let mut host = Host::of_all_sets(&subsystem(), Config::default());
    let bytes: Vec<u8> = (0..4096u32).map(|i| (i * 7 + i / 256) as u8).collect();
    host.put(FREE, &bytes);
    assert!(host.run(1, of_memory(opcode::WRITE, 1020, 4096)).status().is_success());
    host.put(FREE, &[0xee; 4200]);
    assert!(host.run(1, of_memory(opcode::READ, 1016, 4100)).status().is_success());
    assert_eq!(host.bytes(FREE, 4), [0; 4]);
    assert_eq!(host.bytes(FREE + 4, 4096), bytes);
    assert_eq!(host.bytes(FREE + 4100, 4), [0xee; 4]);
    assert!(host.run(1, of_memory(opcode::FILL, 1024, 8)).status().is_success());
    assert!(host.run(1, of_memory(opcode::READ, 1020, 16)).status().is_success());
    assert_eq!(host.bytes(FREE, 16), [&bytes[..4], &[0; 8], &bytes[12..16]].concat());
    // All of it, by pieces.
    assert!(host.run(1, of_memory(opcode::FILL, 0, SIZE as u32)).status().is_success());
    assert!(host.run(1, of_memory(opcode::READ, 1020, 4096)).status().is_success());
    assert_eq!(host.bytes(FREE, 4096), [0; 4096]);

    let at = |field: (u8, u8)| u16::from(field.0) | u16::from(field.1) << 8;
    for (opcode, start, len, field) in [
        (opcode::READ, 2, 4, memory::START.place()),
        (opcode::WRITE, 0, 6, memory::LENGTH.place()),
        (opcode::READ, 0, 0, memory::LENGTH.place()),
        (opcode::READ, SIZE - 4, 8, memory::START.place()),
        (opcode::WRITE, u64::MAX - 3, 8, memory::START.place()),
        (opcode::FILL, SIZE, 4, memory::START.place()),
        (opcode::READ, 0, (1 << 20) + 4, memory::START.place()),
    ] {
        let status = host.run(1, of_memory(opcode, start, len)).status();
        assert!(same(status, Status::INVALID_FIELD.dnr()), "{opcode} {start} {len}: {status:?}");
        assert_eq!(host.last_error().3, at(field), "{opcode} {start} {len}");
    }
    // What is a command of blocks is none of memory.
    for opcode in [io::FLUSH, io::WRITE_ZEROES, io::DATASET_MANAGEMENT, io::RESERVATION_REPORT, io::NEAR_DATA]
    {
        let status = host.run(1, of_memory(opcode, 0, 4)).status();
        assert!(same(status, Status::INVALID_OPCODE.dnr()), "{opcode}: {status:?}");
    }
}

#[test]
fn blocks_and_bytes_are_copied_in_order() {
    let subsystem = subsystem();
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    let bytes: Vec<u8> = (0..256 * 1024u32).map(|i| (i * 5 + i / 512) as u8).collect();
    for part in 0..64 {
        host.put(FREE, &bytes[part * 4096..][..4096]);
        let write = transfer(io::WRITE, part as u64 * 8, 8, FREE, 0);
        assert!(host.run(1, write).status().is_success());
    }
    // Longer than a piece, from two places, and from memory itself.
    let sources = [source(1, 8, 399), source(1, 0, 0)];
    let len = 401 * 512;
    let entry = copy(4, len, 2, &sources, &host);
    assert!(host.run(1, entry).status().is_success());
    let entry = copy(512 << 10, 1024, 4, &[source(2, 4, 512), source(2, 4 + 400 * 512, 512)], &host);
    assert!(host.run(1, entry).status().is_success());
    let mut wanted = bytes[8 * 512..][..400 * 512].to_vec();
    wanted.extend(&bytes[..512]);
    let mut found = Vec::new();
    for part in 0..401 {
        assert!(host.run(1, of_memory(opcode::READ, 4 + part * 512, 512)).status().is_success());
        found.extend(host.bytes(FREE, 512));
    }
    assert!(found == wanted);
    assert!(host.run(1, of_memory(opcode::READ, 512 << 10, 1024)).status().is_success());
    assert_eq!(host.bytes(FREE, 1024), [&bytes[8 * 512..][..512], &bytes[..512]].concat());
}

#[test]
fn a_copy_that_cannot_be_is_refused() {
    let mut host = Host::of_all_sets(&subsystem(), Config::default());
    let fast = {
        let mut fast = source(1, 0, 0);
        fast.set_options(CopySource::FAST_ONLY);
        fast
    };
    for (what, to, len, format, from, status) in [
        ("a format that is none", 0, 512, 1, source(1, 0, 0), Status::INVALID_FIELD),
        ("another length", 0, 516, 2, source(1, 0, 0), Status::INVALID_FIELD),
        ("no room", SIZE - 256, 512, 2, source(1, 0, 0), Status::INVALID_FIELD),
        ("no namespace", 0, 512, 2, source(9, 0, 0), Status::INVALID_NAMESPACE),
        ("all namespaces", 0, 512, 2, source(u32::MAX, 0, 0), Status::INVALID_NAMESPACE),
        ("blocks of the same", 0, 512, 3, source(2, 0, 0), Status::INCOMPATIBLE_NAMESPACE),
        ("bytes of blocks", 0, 512, 4, source(1, 0, 512), Status::INVALID_NAMESPACE),
        ("blocks of programs", 0, 512, 2, source(3, 0, 0), Status::INVALID_NAMESPACE),
        ("behind the last block", 0, 1024, 2, source(1, 2047, 1), Status::LBA_OUT_OF_RANGE),
        ("behind the last byte", 0, 512, 4, source(2, SIZE - 4, 512), Status::INVALID_FIELD),
        ("half a dword", 0, 512, 4, source(2, 1026, 512), Status::INVALID_FIELD),
        ("onto itself", 0, 512, 4, source(2, 508, 512), Status::OVERLAPPING_IO_RANGE),
        ("fast or not at all", 0, 512, 2, fast, Status::FAST_COPY_NOT_POSSIBLE),
    ] {
        let entry = copy(to, len, format, &[from], &host);
        let found = host.run(1, entry).status();
        assert!(same(found, status.dnr()), "{what}: {found:?}");
    }
    // Beside what it copies from itself nothing is wrong.
    let entry = copy(0, 512, 4, &[source(2, 512, 512)], &host);
    assert!(host.run(1, entry).status().is_success());
}

#[test]
fn however_many_copies_keep_no_other_waiting() {
    let subsystem = Subsystem::new();
    let blocks = Namespace::new(dram(1 << 20), (), 512, [1; 16], false).unwrap();
    subsystem.add(1, Arc::new(blocks)).unwrap();
    let local = Dram::new(SIZE, 4).unwrap();
    let namespace = Namespace::of_command_set(CommandSet::Memory, local.clone(), (), [2; 16]).unwrap();
    subsystem.add(MEMORY_NSID, Arc::new(namespace)).unwrap();
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    host.put(FREE, &[7; 4096]);
    for part in 0..16 {
        assert!(host.run(1, transfer(io::WRITE, part * 8, 8, FREE, 0)).status().is_success());
    }
    // To each 64 KiB of the memory the same.
    for part in 0..16 {
        let entry = copy(part << 16, 64 << 10, 2, &[source(1, 0, 127)], &host);
        host.submit(1, entry);
    }
    host.submit(1, transfer(io::READ, 0, 1, FREE + 8192, 0));
    let filled = || {
        let ends = (0..16).filter(|part| {
            let mut end = [0; 4];
            local.copy_out((part << 16) + (60 << 10), &mut end);
            end != [0; 4]
        });
        ends.count()
    };
    // All are taken at once, and the read answered; what they copy comes to a piece of 128 KiB in a step.
    host.step();
    host.reap(1);
    assert_eq!(host.queues[1].done.pop_front().map(|done| done.cid()), Some(0x55));
    let mut before = filled();
    assert_eq!(before, 0);
    while before < 16 {
        host.step();
        let after = filled();
        assert!((before..=before + 2).contains(&after), "{before} {after}");
        // And others go on.
        host.submit(1, transfer(io::READ, 0, 1, FREE + 8192, 0));
        host.step();
        host.reap(1);
        assert!(host.queues[1].done.drain(..).any(|done| done.cid() == 0x55));
        before = filled();
    }
    host.settle(0);
    assert_eq!(host.drive.reactors()[0].in_flight(), 0);
}

/// Blocks that take a millisecond for each read, and memory.
fn slow() -> Arc<Subsystem<Modelled<Dram, Parametric>>> {
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(slow_blocks(), (), 512, [1; 16], false).unwrap())).unwrap();
    let local = Modelled::new(Dram::new(SIZE, 4).unwrap(), Delay::fixed(0).medium());
    let local = Namespace::of_command_set(CommandSet::Memory, local, (), [2; 16]).unwrap();
    subsystem.add(2, Arc::new(local)).unwrap();
    subsystem
}

fn slow_blocks() -> Modelled<Dram, Parametric> {
    Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium())
}

/// A copy of all blocks, by its own number.
fn long_copy(cid: u16, host: &Host<impl Store>) -> SubmissionEntry {
    let mut entry = copy(0, 1 << 20, 2, &[source(1, 0, 2047)], host);
    entry.cdw[0] = entry.cdw[0] & 0xffff | u32::from(cid) << 16;
    entry
}

#[test]
fn a_long_copy_ends_when_it_is_to() {
    let mut host = Host::of_all_sets(&slow(), Config::default());
    // More than are worked on at a time: some wait for their turn.
    for cid in 0..20 {
        let entry = long_copy(cid, &host);
        host.submit(1, entry);
    }
    host.settle(2_500_000);
    assert!(host.completed(1).is_none());
    // Their turns come round: each number is that of one at work, or of one that waits.
    for cid in [19, 0, 12] {
        assert_eq!(host.admin(command(admin::ABORT, 0, &[1 | cid << 16])), Ok(0));
    }
    host.settle(2_000_000);
    host.reap(1);
    let mut ended: Vec<_> = host.queues[1].done.drain(..).map(|done| (done.cid(), done.status())).collect();
    ended.sort_by_key(|(cid, _)| *cid);
    assert_eq!(ended.iter().map(|(cid, _)| *cid).collect::<Vec<_>>(), [0, 12, 19]);
    assert!(ended.iter().all(|(_, status)| same(*status, Status::ABORT_REQUESTED)), "{ended:?}");
    // With its queue all of them go, and the queue does not wait for what they had left.
    host.submit(0, command(admin::DELETE_SQ, 0, &[1]));
    host.settle(2_000_000);
    assert!(host.completed(0).unwrap().status().is_success());
    host.reap(1);
    let deleted = |status| same(status, Status::ABORTED_SQ_DELETION);
    let ended: Vec<_> = host.queues[1].done.drain(..).map(|done| done.status()).collect();
    assert!(ended.len() == 17 && ended.iter().all(|status| deleted(*status)), "{ended:?}");
    assert_eq!(host.drive.reactors()[0].in_flight(), 0);
}

#[test]
fn what_takes_a_number_in_the_middle_of_a_copy_is_no_source_of_it() {
    let subsystem = slow();
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    let entry = long_copy(1, &host);
    host.submit(1, entry);
    host.settle(2_500_000);
    drop(subsystem.remove(1));
    let others = Namespace::new(slow_blocks(), (), 512, [9; 16], false).unwrap();
    subsystem.add(1, Arc::new(others)).unwrap();
    host.settle(1_000_000_000);
    let done = host.completed(1).unwrap();
    assert!(same(done.status(), Status::INVALID_NAMESPACE.dnr()), "{:?}", done.status());
    let entry = long_copy(1, &host);
    assert!(host.run(1, entry).status().is_success());
}

#[test]
fn what_is_copied_counts_as_read_where_it_comes_from() {
    let subsystem = subsystem();
    let second = |bytes| Quota { bytes: Some(bytes), ..Quota::default() };
    // A mebibyte of which a tenth is there at once.
    subsystem.limit([(Whom::Namespace(1), second(1 << 20))]);
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    let before = host.now;
    let entry = long_copy(1, &host);
    host.submit(1, entry);
    host.settle(500_000_000);
    assert!(host.completed(1).is_none());
    // Nobody else waits for it.
    assert!(host.run(1, of_memory(opcode::READ, 0, 4)).status().is_success());
    host.settle(1_000_000_000);
    assert!(host.completed(1).unwrap().status().is_success());
    assert!(host.now.since(before) > 800_000_000);
}

/// Many copies of one host owe no more than the piece whose turn it is: another host, which shares the rate,
/// waits for that and not for all of them.
#[test]
fn copies_that_wait_for_a_rate_take_turns_with_other_hosts() {
    let subsystem = subsystem();
    let second = Quota { bytes: Some(1 << 20), ..Quota::default() };
    subsystem.limit([(Whom::Namespace(1), second)]);
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    let mut other = Host::among(&subsystem, Config { cntlid: 2, ..Config::default() });
    for cid in 0..20 {
        let entry = long_copy(cid, &host);
        host.submit(1, entry);
    }
    host.settle(300_000_000);
    other.now = host.now;
    other.submit(1, transfer(io::READ, 0, 8, FREE, 0));
    // What is there in a quarter of a second is more than two pieces and the read.
    other.settle(300_000_000);
    assert!(other.completed(1).is_some_and(|done| done.status().is_success()));
}

#[test]
fn what_is_protected_is_not_written() {
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(dram(1 << 20), (), 512, [1; 16], false).unwrap())).unwrap();
    let local = Dram::new(SIZE, 4).unwrap();
    let namespace = Namespace::of_command_set(CommandSet::Memory, local, (), [2; 16]).unwrap();
    subsystem.add(MEMORY_NSID, Arc::new(namespace.protected(true))).unwrap();
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    let copied = copy(0, 512, 2, &[source(1, 0, 0)], &host);
    for entry in [of_memory(opcode::WRITE, 0, 4), of_memory(opcode::FILL, 0, 4), copied] {
        let status = host.run(1, entry).status();
        assert!(same(status, Status::READ_ONLY_NAMESPACE.dnr()), "{entry:?}: {status:?}");
    }
    assert!(host.run(1, of_memory(opcode::READ, 0, 4)).status().is_success());
}

#[test]
fn what_is_said_to_all_namespaces_is_said_to_blocks() {
    // To those of memory and programs nothing can be reserved, nor kept.
    let subsystem = Subsystem::new();
    let blocks = Namespace::new(dram(1 << 20), (), 512, [1; 16], false).unwrap();
    subsystem.add(1, Arc::new(blocks.with_reservations(Kept::default(), Box::new(|_, _| ())))).unwrap();
    let local = Dram::new(SIZE, 4).unwrap();
    let namespace = Namespace::of_command_set(CommandSet::Memory, local, (), [2; 16]).unwrap();
    subsystem.add(MEMORY_NSID, Arc::new(namespace)).unwrap();
    let shared = Config { shared: true, ..Config::default() };
    let mut host = Host::of_all_sets(&subsystem, shared.clone());
    let persists = |nsid| command(admin::SET_FEATURES, nsid, &[fid::RESERVATION_PERSISTENCE.into(), 1]);
    host.admin(persists(u32::MAX)).unwrap();
    refused(host.admin(persists(MEMORY_NSID)), Status::INVALID_FIELD.dnr());
    // A host that has not enabled them finds them in no list, the one of paths among them.
    for (all, wanted) in [(true, vec![1, 2]), (false, vec![1])] {
        if !all {
            host.disable();
            host.enable();
        }
        host.admin(command(admin::GET_LOG_PAGE, 0, &[u32::from(lid::ANA) | 1023 << 16])).unwrap();
        let page = host.bytes(FREE, 4096);
        let group = AnaGroup::from_bytes(&page[AnaHeader::SIZE..]);
        let ids = page[AnaHeader::SIZE + AnaGroup::SIZE..].chunks(4).take(group.nnv() as usize);
        assert_eq!(ids.map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn a_source_that_goes_ends_its_copy() {
    let subsystem = slow();
    let mut host = Host::of_all_sets(&subsystem, Config::default());
    let entry = long_copy(1, &host);
    host.submit(1, entry);
    host.settle(2_500_000);
    assert!(host.completed(1).is_none());
    drop(subsystem.remove(1));
    host.settle(1_000_000_000);
    let done = host.completed(1).unwrap();
    assert!(same(done.status(), Status::INVALID_NAMESPACE.dnr()), "{:?}", done.status());
    // Reset in the middle of some: they are forgotten.
    let blocks = Namespace::new(slow_blocks(), (), 512, [1; 16], false).unwrap();
    subsystem.add(1, Arc::new(blocks)).unwrap();
    for cid in 0..20 {
        let entry = long_copy(cid, &host);
        host.submit(1, entry);
    }
    host.settle(2_500_000);
    host.disable();
    host.enable();
    assert_eq!(host.drive.reactors()[0].in_flight(), 0);
    assert_eq!(nearside_device::lost_commands(), 0);
}
