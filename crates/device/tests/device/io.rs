//! I/O commands: data by every form of pointer, every refusal by its status, interrupts, full queues.

use std::sync::{Arc, Mutex, OnceLock};

use crate::rig::*;
use nearside_device::Observer;
use nearside_dma::Region;
use nearside_spec::data::{SglDescriptor, SglType};
use nearside_spec::feature::fid;
use nearside_spec::registers as reg;
use nearside_store::{Delay, Fault, Faulty, Kinds, Lossy, Modelled, Rule};

const DATA: u64 = FREE;
const LISTS: u64 = FREE + (8 << 20);

fn host() -> Host<Dram> {
    Host::ready(dram(8 << 20), Config::default())
}

fn io<S: Store, F: Firmware<S>>(host: &mut Host<S, F>, entry: SubmissionEntry) -> Result<u32, Status> {
    let done = host.run(1, entry);
    if done.status().is_success() { Ok(done.result()) } else { Err(done.status()) }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// Data pointers for `len` bytes that begin `offset` into a page; pages lie backwards, so that none follows
/// another.
fn prps(host: &Host<Dram>, len: usize, offset: u64, list_offset: u64) -> (u64, u64, Vec<(u64, usize)>) {
    let mut pieces = vec![(DATA + (4 << 20) + offset, len.min(4096 - offset as usize))];
    let mut left = len - pieces[0].1;
    while left > 0 {
        let n = left.min(4096);
        pieces.push((DATA + (4 << 20) - 4096 * pieces.len() as u64, n));
        left -= n;
    }
    let prp2 = match pieces.len() {
        1 => 0,
        2 => pieces[1].0,
        _ => {
            let rest = &pieces[1..];
            let (mut page, mut at, mut i) = (LISTS, list_offset, 0);
            while i < rest.len() {
                if at == 4088 && i + 1 < rest.len() {
                    host.put(page + at, &(page + 8192).to_le_bytes());
                    (page, at) = (page + 8192, 0);
                }
                host.put(page + at, &rest[i].0.to_le_bytes());
                at += 8;
                i += 1;
            }
            LISTS + list_offset
        }
    };
    (pieces[0].0, prp2, pieces)
}

#[test]
fn prps_of_every_shape() {
    for lba_size in [512u32, 4096] {
        let config = Config { lba_size, mdts: 10, ..Config::default() };
        let mut host = Host::ready(dram(8 << 20), config);
        let mut lens = vec![4096, 8192, 12288, 131_072, 1 << 20, 3 << 20];
        lens.extend((lba_size == 512).then_some(512));
        for len in lens {
            for (offset, list_offset) in [(0, 0), (4, 8), (2048, 4080), (4092, 4088)] {
                let data = pattern(len, offset as u8);
                let (prp1, prp2, pieces) = prps(&host, len, offset, list_offset);
                let mut at = 0;
                for &(iova, n) in &pieces {
                    host.put(iova, &data[at..at + n]);
                    at += n;
                }
                let blocks = len as u32 / lba_size;
                io(&mut host, transfer(io::WRITE, 3, blocks, prp1, prp2)).unwrap();
                for &(iova, n) in &pieces {
                    host.put(iova, &vec![0; n]);
                }
                io(&mut host, transfer(io::READ, 3, blocks, prp1, prp2)).unwrap();
                let got: Vec<u8> = pieces.iter().flat_map(|&(iova, n)| host.bytes(iova, n)).collect();
                assert!(got == data, "{len} bytes at page offset {offset}, list at {list_offset}");
            }
        }
    }
}

#[test]
fn prps_are_checked() {
    let mut host = host();
    let end = BASE + MEMORY as u64;
    for (blocks, prp1, prp2, status) in [
        (1, DATA + 1, 0, Status::INVALID_PRP_OFFSET),
        (1, DATA + 2, 0, Status::INVALID_PRP_OFFSET),
        (1, end, 0, Status::DATA_TRANSFER_ERROR),
        (1, 0, 0, Status::DATA_TRANSFER_ERROR),
        (1, u64::MAX - 3, 0, Status::DATA_TRANSFER_ERROR),
        (8, u64::MAX - 4095, 0, Status::DATA_TRANSFER_ERROR),
        (16, DATA, DATA + 4, Status::INVALID_PRP_OFFSET),
        (16, DATA, end, Status::DATA_TRANSFER_ERROR),
        (16, u64::MAX - 4095, 0, Status::DATA_TRANSFER_ERROR),
        (24, DATA, LISTS + 4, Status::INVALID_PRP_OFFSET),
        (24, DATA, end, Status::DATA_TRANSFER_ERROR),
    ] {
        for opcode in [io::READ, io::WRITE, io::COMPARE] {
            let got = io(&mut host, transfer(opcode, 0, blocks, prp1, prp2));
            refused(got, status.dnr());
        }
    }
    // Entries of a list, and the way from one list to the next.
    host.put(LISTS, &(DATA + 8).to_le_bytes());
    refused(io(&mut host, transfer(io::READ, 0, 24, DATA, LISTS)), Status::INVALID_PRP_OFFSET.dnr());
    host.put(LISTS, &0x1000u64.to_le_bytes());
    refused(io(&mut host, transfer(io::READ, 0, 24, DATA, LISTS)), Status::DATA_TRANSFER_ERROR.dnr());
    host.put(LISTS + 4088, &(LISTS + 8).to_le_bytes());
    refused(io(&mut host, transfer(io::READ, 0, 24, DATA, LISTS + 4088)), Status::INVALID_PRP_OFFSET.dnr());
    // A list that points to itself ends with the data.
    let entries: Vec<u8> = (0..512u64).flat_map(|_| LISTS.to_le_bytes()).collect();
    host.put(LISTS, &entries);
    io(&mut host, transfer(io::WRITE, 0, 2048, DATA, LISTS + 4088)).unwrap();
}

#[test]
fn fields_are_checked() {
    let mut host = host();
    let ok = transfer(io::READ, 0, 1, DATA, 0);
    let blocks = (8 << 20) / 512;
    for (entry, status, parameter) in [
        (transfer(io::READ, blocks, 1, DATA, 0), Status::LBA_OUT_OF_RANGE, 40),
        (transfer(io::WRITE, blocks - 1, 2, DATA, 0), Status::LBA_OUT_OF_RANGE, 40),
        (transfer(io::COMPARE, u64::MAX, 1, DATA, 0), Status::LBA_OUT_OF_RANGE, 40),
        (transfer(io::WRITE_ZEROES, u64::MAX - 3, 8, 0, 0), Status::LBA_OUT_OF_RANGE, 40),
        (transfer(io::READ, 0, 2049, DATA, 0), Status::INVALID_FIELD, 48),
        (
            SubmissionEntry { cdw: std::array::from_fn(|i| ok.cdw[i] & if i == 1 { 0 } else { !0 }) },
            Status::INVALID_NAMESPACE,
            4,
        ),
        (
            SubmissionEntry { cdw: std::array::from_fn(|i| if i == 1 { !0 } else { ok.cdw[i] }) },
            Status::INVALID_NAMESPACE,
            4,
        ),
        (
            SubmissionEntry { cdw: std::array::from_fn(|i| ok.cdw[i] | if i == 0 { 1 << 8 } else { 0 }) },
            Status::INVALID_FIELD,
            1,
        ),
        (
            SubmissionEntry { cdw: std::array::from_fn(|i| ok.cdw[i] | if i == 0 { 3 << 14 } else { 0 }) },
            Status::INVALID_FIELD,
            1 | 6 << 8,
        ),
        (SubmissionEntry::new(0x7f, 0x55, 1), Status::INVALID_OPCODE, 0),
        (SubmissionEntry::new(io::NEAR_DATA, 0x55, 1), Status::INVALID_OPCODE, 0),
        (SubmissionEntry::new(io::FLUSH, 0x55, 5), Status::INVALID_NAMESPACE, 4),
        (SubmissionEntry::new(io::DATASET_MANAGEMENT, 0x55, 0), Status::INVALID_NAMESPACE, 4),
    ] {
        let cid = entry.cid();
        refused(io(&mut host, entry), status.dnr());
        assert_eq!(host.last_error(), (1, cid, Status(status.dnr().0 | 1 << 13), parameter));
    }
    io(&mut host, SubmissionEntry::new(io::FLUSH, 1, 0xffff_ffff)).unwrap();
    io(&mut host, SubmissionEntry::new(io::FLUSH, 2, 1)).unwrap();
    io(&mut host, transfer(io::READ, blocks - 2048, 2048, DATA, LISTS)).unwrap_err();
}

#[test]
fn a_near_data_commands_lengths_are_checked() {
    let mut host = Host::with(dram(8 << 20), Present, Config::default());
    host.enable();
    host.create_pair(1, None);
    for (request, room, reply, parameter) in [
        (8192, 4096, 1, 40),
        (u32::MAX, u32::MAX, 1, 40),
        (64, u32::MAX, 1, 44),
        // Without the bit that says that the reply takes the place of the request.
        (64, 4096, 0, 48),
    ] {
        let mut entry = transfer(io::NEAR_DATA, 0, 1, DATA, 0);
        (entry.cdw[10], entry.cdw[11], entry.cdw[12]) = (request, room, reply);
        refused(io(&mut host, entry), Status::INVALID_FIELD.dnr());
        assert_eq!(host.last_error().3, parameter, "{request} and {room}");
    }
}

/// Puts descriptors at [`LISTS`] and makes a command whose SGL is that segment.
fn sgl(host: &Host<Dram>, opcode: u8, blocks: u32, kind: SglType, list: &[SglDescriptor]) -> SubmissionEntry {
    let bytes: Vec<u8> = list.iter().flat_map(|d| d.0).collect();
    host.put(LISTS, &bytes);
    with_sgl(opcode, blocks, &SglDescriptor::new(kind, LISTS, bytes.len() as u32))
}

fn with_sgl(opcode: u8, blocks: u32, first: &SglDescriptor) -> SubmissionEntry {
    let mut e = transfer(opcode, 0, blocks, first.address(), 0);
    e.cdw[0] |= 1 << 14;
    e.cdw[8] = first.length();
    e.cdw[9] = u32::from(first.id()) << 24;
    e
}

#[test]
fn sgls() {
    use SglType::{BitBucket, DataBlock, LastSegment, Segment};
    let mut host = host();
    let d = SglDescriptor::new;
    let data = pattern(4096, 1);
    host.put(DATA, &data);
    io(&mut host, with_sgl(io::WRITE, 8, &d(DataBlock, DATA, 4096))).unwrap();
    // Odd pieces, a bit bucket, a longer list than the data.
    host.put(DATA, &[0xee; 8192]);
    let list = [
        d(DataBlock, DATA + 1, 1000),
        d(DataBlock, 0, 0),
        d(BitBucket, 0, 96),
        d(DataBlock, DATA + 4096, 5000),
    ];
    let read = sgl(&host, io::READ, 8, LastSegment, &list);
    io(&mut host, read).unwrap();
    assert_eq!(host.bytes(DATA, 1002), [&[0xee], &data[..1000], &[0xee]].concat());
    assert_eq!(host.bytes(DATA + 4096, 3001), [&data[1096..], &[0xee]].concat());
    // A bucket in a write has no bytes.
    host.put(DATA, &data);
    let list = [d(BitBucket, 0, 4096), d(DataBlock, DATA, 4096)];
    let write = sgl(&host, io::WRITE, 8, LastSegment, &list);
    io(&mut host, write).unwrap();
    host.put(DATA, &[0; 4096]);
    io(&mut host, transfer(io::READ, 0, 8, DATA, 0)).unwrap();
    assert_eq!(host.bytes(DATA, 4096), data);
    // Two segments.
    host.put(LISTS + 4096, &[d(DataBlock, DATA + 512, 3584).0].concat());
    let two = sgl(&host, io::READ, 8, Segment, &[d(DataBlock, DATA, 512), d(LastSegment, LISTS + 4096, 16)]);
    io(&mut host, two).unwrap();
    let end = BASE + MEMORY as u64;
    let bad_type = {
        let mut x = d(DataBlock, DATA, 4096);
        x.set_id(4 << 4);
        x
    };
    let sub_type = {
        let mut x = d(DataBlock, DATA, 4096);
        x.set_id(1);
        x
    };
    for (entry, status) in [
        (with_sgl(io::READ, 8, &d(DataBlock, DATA, 4095)), Status::INVALID_SGL_LENGTH),
        (with_sgl(io::READ, 8, &d(DataBlock, end, 4096)), Status::DATA_TRANSFER_ERROR),
        (with_sgl(io::READ, 8, &d(DataBlock, u64::MAX, 4096)), Status::DATA_TRANSFER_ERROR),
        (with_sgl(io::WRITE, 8, &d(BitBucket, 0, 4096)), Status::INVALID_SGL_LENGTH),
        (with_sgl(io::READ, 8, &bad_type), Status::INVALID_SGL_TYPE),
        (with_sgl(io::READ, 8, &sub_type), Status::INVALID_SGL_TYPE),
        (with_sgl(io::READ, 8, &d(LastSegment, LISTS, 0)), Status::INVALID_SGL_SEGMENT),
        (with_sgl(io::READ, 8, &d(LastSegment, LISTS, 17)), Status::INVALID_SGL_SEGMENT),
        (with_sgl(io::READ, 8, &d(Segment, LISTS + 4, 16)), Status::INVALID_SGL_SEGMENT),
        (with_sgl(io::READ, 8, &d(Segment, u64::MAX - 7, 16)), Status::INVALID_SGL_SEGMENT),
        (with_sgl(io::READ, 8, &d(Segment, end, 16)), Status::DATA_TRANSFER_ERROR),
    ] {
        refused(io(&mut host, entry), status.dnr());
    }
    for (kind, list, status) in [
        (LastSegment, vec![d(DataBlock, DATA, 512)], Status::INVALID_SGL_LENGTH),
        (LastSegment, vec![d(DataBlock, DATA, 512), d(Segment, LISTS, 16)], Status::INVALID_SGL_SEGMENT),
        (Segment, vec![d(LastSegment, LISTS, 16), d(DataBlock, DATA, 4096)], Status::INVALID_SGL_COUNT),
        (Segment, vec![d(DataBlock, DATA, 512)], Status::INVALID_SGL_SEGMENT),
        // A loop.
        (Segment, vec![d(DataBlock, DATA, 0), d(Segment, LISTS, 32)], Status::INVALID_SGL_COUNT),
    ] {
        let entry = sgl(&host, io::READ, 8, kind, &list);
        refused(io(&mut host, entry), status.dnr());
    }
}

#[test]
fn compare_zeroes_and_deallocate() {
    let mut host = host();
    let data = pattern(8192, 7);
    host.put(DATA, &data);
    io(&mut host, transfer(io::WRITE, 0, 16, DATA, DATA + 4096)).unwrap();
    io(&mut host, transfer(io::COMPARE, 0, 16, DATA, DATA + 4096)).unwrap();
    host.put(DATA + 8191, &[!data[8191]]);
    refused(io(&mut host, transfer(io::COMPARE, 0, 16, DATA, DATA + 4096)), Status::COMPARE_FAILURE);
    io(&mut host, transfer(io::WRITE_ZEROES, 1, 2, 0, 0)).unwrap();
    let range = |slba: u64, blocks: u32| {
        [&0u32.to_le_bytes()[..], &blocks.to_le_bytes(), &slba.to_le_bytes()].concat()
    };
    host.put(LISTS, &[range(4, 2), range(0, 0), range(15, 1)].concat());
    let mut dsm = SubmissionEntry::new(io::DATASET_MANAGEMENT, 3, 1);
    dsm.set_quad(6, LISTS);
    dsm.cdw[10] = 2;
    io(&mut host, dsm).unwrap();
    dsm.cdw[11] = 4;
    let read = transfer(io::READ, 0, 16, DATA, DATA + 4096);
    io(&mut host, read).unwrap();
    assert_eq!(host.bytes(DATA + 2048, 1024), data[2048..3072], "hints change nothing");
    io(&mut host, dsm).unwrap();
    io(&mut host, read).unwrap();
    let mut expected = data.clone();
    for block in [1, 2, 4, 5, 15] {
        expected[block * 512..][..512].fill(0);
    }
    assert!(host.bytes(DATA, 8192) == expected);
    // One bad range: none is deallocated.
    host.put(LISTS, &[range(0, 1), range(16383, 2), range(3, 1)].concat());
    refused(io(&mut host, dsm), Status::LBA_OUT_OF_RANGE.dnr());
    io(&mut host, read).unwrap();
    assert!(host.bytes(DATA, 8192) == expected);
}

#[test]
fn the_stores_errors_become_statuses() {
    let faulty = Faulty::new(dram(1 << 20), 1, []);
    let plan = faulty.plan();
    let mut host = Host::ready(faulty, Config::default());
    let reads = transfer(io::READ, 5, 1, DATA, 0);
    let writes = transfer(io::WRITE, 5, 1, DATA, 0);
    plan.lock().unwrap().add(Rule::new(Kinds::Any, Fault::Error));
    refused(io(&mut host, reads), Status::UNRECOVERED_READ);
    refused(io(&mut host, writes), Status::WRITE_FAULT);
    refused(io(&mut host, SubmissionEntry::new(io::FLUSH, 1, 1)), Status::WRITE_FAULT);
    refused(io(&mut host, transfer(io::WRITE_ZEROES, 5, 1, 0, 0)), Status::WRITE_FAULT);
    refused(io(&mut host, transfer(io::COMPARE, 5, 1, DATA, 0)), Status::UNRECOVERED_READ);
    plan.lock().unwrap().clear();
    // No room: said so, not to be tried again at once, and nobody else's flush is worse for it.
    plan.lock().unwrap().add(Rule::new(Kinds::Mutations, Fault::Full));
    let mut dsm = SubmissionEntry::new(io::DATASET_MANAGEMENT, 3, 1);
    dsm.set_quad(6, LISTS);
    dsm.cdw[11] = 4;
    let mut range = [0; 16];
    range[4] = 1;
    host.put(LISTS, &range);
    for full in [writes, transfer(io::WRITE_ZEROES, 5, 1, 0, 0), dsm] {
        refused(io(&mut host, full), Status::CAPACITY_EXCEEDED.dnr());
        io(&mut host, SubmissionEntry::new(io::FLUSH, 1, 1)).unwrap();
    }
    plan.lock().unwrap().clear();
    // Busy is waited out.
    plan.lock().unwrap().add(Rule { times: Some(5), ..Rule::new(Kinds::Any, Fault::Busy) });
    host.submit(1, reads);
    for _ in 0..20 {
        host.step();
    }
    assert!(host.completed(1).unwrap().status().is_success());
}

/// More than a flush has to cover: also what the store had no room for yet when it came.
#[test]
fn a_flush_stays_behind_writes_that_wait_for_room() {
    for times in 1..6 {
        let lossy = Lossy::new(1 << 20, 512).unwrap();
        let busy = Rule { times: Some(times), ..Rule::new(Kinds::Mutations, Fault::Busy) };
        let mut host = Host::ready(Faulty::new(lossy.clone(), 1, [busy]), Config::default());
        host.put(DATA, &[7; 512]);
        let flush = SubmissionEntry::new(io::FLUSH, 9, 1);
        for entry in [transfer(io::WRITE, 5, 1, DATA, 0), transfer(io::WRITE, 6, 1, DATA, 0), flush] {
            host.submit(1, entry);
        }
        for _ in 0..20 {
            host.step();
        }
        let done: Vec<_> = std::iter::from_fn(|| host.completed(1)).collect();
        assert!(done.len() == 3 && done.iter().all(|done| done.status().is_success()), "{done:?}");
        assert_eq!((done[2].cid(), lossy.unflushed()), (9, 0), "busy {times} times");
    }
}

/// A drive that sleeps though a doorbell was rung hangs its host: what `is_quiet` says decides.
#[test]
fn a_rung_doorbell_is_never_quiet_whatever_its_value() {
    let mut host = host();
    let quiet = |host: &Host<Dram>| host.drive.reactors().iter().all(|r| r.is_quiet());
    // Around both rings several times: every value of the doorbells, zero too.
    for round in 0..200u16 {
        for id in [0, 1] {
            assert!(quiet(&host), "round {round}, queue {id}, before");
            let mut entry =
                SubmissionEntry::new(if id == 0 { admin::GET_FEATURES } else { io::FLUSH }, round, id.into());
            entry.cdw[10] = 1;
            host.submit(id, entry);
            assert!(!quiet(&host), "round {round}, queue {id}, rung");
            let done = host.completed(id).expect("it is done at once");
            assert_eq!((done.cid(), done.status()), (round, Status::SUCCESS));
        }
    }
    // An invalid value is looked at once; then it is quiet; then a valid one counts, and the same invalid one
    // again.
    for _ in 0..2 {
        host.ring_tail(1, 5000);
        assert!(!quiet(&host));
        host.settle(0);
        assert!(quiet(&host));
        host.submit(1, SubmissionEntry::new(io::FLUSH, 7, 1));
        assert!(!quiet(&host));
        assert!(host.completed(1).is_some());
    }
}

#[test]
fn a_full_completion_queue_stops_the_submission_queue() {
    let mut host = host();
    // 31 completions fill it; 31 commands more wait in the submission queue.
    for _ in 0..31 {
        host.submit(1, transfer(io::READ, 0, 1, DATA, 0));
    }
    host.settle(0);
    for _ in 0..31 {
        host.submit(1, transfer(io::READ, 0, 1, DATA, 0));
    }
    host.settle(0);
    let before = host.bytes(host.queues[1].cq_iova(), 512);
    host.settle(1_000_000);
    assert_eq!(host.bytes(host.queues[1].cq_iova(), 512), before);
    let mut seen = 0;
    while host.completed(1).is_some() {
        seen += 1;
    }
    assert_eq!(seen, 62);
}

#[test]
fn interrupts_are_masked_and_coalesced() {
    let mut host = Host::on(dram(1 << 20), Config::default());
    host.create_pair(1, Some(1));
    host.create_pair(2, None);
    let taken = |host: &Host<Dram>| host.function.vectors[1].event().take();
    let read = transfer(io::READ, 0, 1, DATA, 0);
    host.run(2, read);
    assert_eq!(taken(&host), 0);
    host.submit(1, read);
    host.submit(1, read);
    host.settle(0);
    assert_eq!(taken(&host), 1, "one for a batch");
    // INTMS and INTMC.
    host.set_register(reg::INTMS, 2);
    host.settle(0);
    host.run(1, read);
    assert_eq!(taken(&host), 0);
    assert_eq!(host.register(reg::INTMS), 2);
    host.set_register(reg::INTMC, 2);
    host.settle(0);
    assert_eq!((taken(&host), host.register(reg::INTMS)), (1, 0), "it was pending");
    // Four at a time (THR is zero-based), or after 300 microseconds.
    host.admin(command(admin::SET_FEATURES, 0, &[fid::INTERRUPT_COALESCING.into(), 3 << 8 | 3])).unwrap();
    for n in 1..=4 {
        host.submit(1, read);
        host.settle(0);
        assert_eq!(taken(&host), u64::from(n == 4), "{n}");
    }
    host.submit(1, read);
    host.settle(290_000);
    assert_eq!(taken(&host), 0);
    host.settle(20_000);
    assert_eq!(taken(&host), 1);
    // Not this vector.
    host.admin(command(admin::SET_FEATURES, 0, &[fid::INTERRUPT_VECTOR.into(), 1 | 1 << 16])).unwrap();
    host.run(1, read);
    assert_eq!(taken(&host), 1);
}

/// What an observer is told, in order.
#[derive(Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Observer for Log {
    fn begin(&self, offset: u64, len: u64) {
        self.0.lock().unwrap().push(format!("begin {offset} {len}"));
    }
    fn end(&self, offset: u64, len: u64, durable: bool) {
        self.0.lock().unwrap().push(format!("end {offset} {len} {durable}"));
    }
    fn flush_begins(&self) -> u64 {
        let mut log = self.0.lock().unwrap();
        log.push("flush".into());
        log.len() as u64
    }
    fn flushed(&self, ticket: u64) {
        self.0.lock().unwrap().push(format!("flushed {ticket}"));
    }
}

impl<S: Store> Firmware<S> for Log {
    type Worker = nearside_device::firmware::NoWorker;
    fn worker(
        _: &Arc<nearside_device::Namespace<S, Self>>,
        _: &nearside_device::firmware::Seat<'_>,
    ) -> std::io::Result<Self::Worker> {
        Ok(nearside_device::firmware::NoWorker)
    }
}

#[test]
fn the_observer_is_told_of_every_mutation_before_and_after() {
    let log = Log::default();
    let said = log.0.clone();
    let mut host =
        Host::with(Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium()), log, Config::default());
    host.enable();
    host.create_pair(1, None);
    let mut fua = transfer(io::WRITE, 1, 1, DATA, 0);
    fua.cdw[12] |= 1 << 30;
    host.submit(1, fua);
    host.settle(0);
    assert_eq!(*said.lock().unwrap(), ["begin 512 512"]);
    host.settle(2_000_000);
    host.completed(1).unwrap();
    for entry in [
        transfer(io::READ, 0, 1, DATA, 0),
        transfer(io::WRITE, 2, 1, DATA, 0),
        SubmissionEntry::new(io::FLUSH, 1, 1),
        transfer(io::WRITE_ZEROES, 0, 4, 0, 0),
    ] {
        io(&mut host, entry).unwrap();
    }
    assert_eq!(
        *said.lock().unwrap(),
        [
            "begin 512 512",
            "end 512 512 true",
            "begin 1024 512",
            "end 1024 512 false",
            "flush",
            "flushed 5",
            "begin 0 2048",
            "end 0 2048 false",
        ]
    );
    let mut fua = transfer(io::WRITE_ZEROES, 4, 1, 0, 0);
    fua.cdw[12] |= 1 << 30;
    io(&mut host, fua).unwrap();
    assert_eq!(said.lock().unwrap().last().unwrap(), "end 2048 512 true");
    // Without the write cache every write is durable.
    host.admin(command(admin::SET_FEATURES, 0, &[fid::VOLATILE_WRITE_CACHE.into(), 0])).unwrap();
    io(&mut host, transfer(io::WRITE, 2, 1, DATA, 0)).unwrap();
    assert_eq!(said.lock().unwrap().last().unwrap(), "end 1024 512 true");
}

#[test]
fn side_by_side_regions_serve_one_command() {
    let mut host = host();
    let next = BASE + MEMORY as u64;
    let region = Arc::new(Region::anonymous(1 << 20).unwrap());
    host.function.memory.map(next, region.clone()).unwrap();
    host.put(LISTS, &(next).to_le_bytes());
    host.put(LISTS + 8, &(next + 4096).to_le_bytes());
    host.put(next - 4096, &[5; 4096]);
    region.fill(0, 8192, 6);
    io(&mut host, transfer(io::WRITE, 0, 24, next - 4096, LISTS)).unwrap();
    io(&mut host, transfer(io::WRITE, 32, 16, next - 4096, next)).unwrap();
    io(&mut host, transfer(io::READ, 32, 8, DATA, 0)).unwrap();
    assert_eq!(host.bytes(DATA, 4096), [5; 4096]);
    io(&mut host, transfer(io::READ, 16, 8, DATA, 0)).unwrap();
    assert_eq!(host.bytes(DATA, 4096), [6; 4096]);
}

/// Looks at a completion queue when it is told of an answer.
struct Answers {
    /// The host's memory, and where in it the queue is.
    queue: Arc<OnceLock<(Arc<Region>, usize)>>,
    /// Completions that were there already, each time.
    told: Arc<Mutex<Vec<usize>>>,
}

impl Observer for Answers {
    fn begin(&self, _: u64, _: u64) {}
    fn end(&self, _: u64, _: u64, _: bool) {}
    fn answers(&self) {
        let (memory, at) = self.queue.get().unwrap();
        self.told.lock().unwrap().push(posted(memory, *at));
    }
}

impl<S: Store> Firmware<S> for Answers {
    type Worker = nearside_device::firmware::NoWorker;
    fn worker(
        _: &Arc<nearside_device::Namespace<S, Self>>,
        _: &nearside_device::firmware::Seat<'_>,
    ) -> std::io::Result<Self::Worker> {
        Ok(nearside_device::firmware::NoWorker)
    }
}

/// Completions of a queue in its first round, as its host sees them.
fn posted(memory: &Region, at: usize) -> usize {
    let entry = |n: usize| CompletionEntry { dw: memory.read_words(at + n * 16) };
    (0..16).take_while(|&n| entry(n).phase()).count()
}

#[test]
fn whoever_traces_answers_is_told_before_the_host_sees_them() {
    for delay_ns in [0, 1_000_000] {
        let (queue, told) = (Arc::new(OnceLock::new()), Arc::new(Mutex::new(Vec::new())));
        let answers = Answers { queue: queue.clone(), told: told.clone() };
        let store = Modelled::new(dram(1 << 20), Delay::fixed(delay_ns).medium());
        let mut host = Host::with(store, answers, Config::default());
        host.enable();
        host.create_pair(1, None);
        assert!(told.lock().unwrap().is_empty(), "administration is none of it");
        let at = (host.queues[1].cq_iova() - BASE) as usize;
        queue.set((host.memory.clone(), at)).unwrap();
        for entry in [
            transfer(io::READ, 0, 1, DATA, 0),
            transfer(io::WRITE, 2, 1, DATA, 0),
            SubmissionEntry::new(io::FLUSH, 1, 1),
            transfer(io::WRITE_ZEROES, 0, 4, 0, 0),
        ] {
            io(&mut host, entry).unwrap();
        }
        // One that fails is not told of, the next one is.
        io(&mut host, transfer(io::READ, 1 << 40, 1, DATA, 0)).unwrap_err();
        io(&mut host, transfer(io::READ, 1, 1, DATA, 0)).unwrap();
        assert_eq!(*told.lock().unwrap(), [0, 1, 2, 3, 5], "{delay_ns} ns");
        assert_eq!(posted(&host.memory, at), 6);
    }
}
