//! Computational programs: what a host loads, makes ready and runs over memory of the drive.

#[path = "../../device/tests/device/rig/mod.rs"]
mod rig;

use std::sync::Arc;

use nearside_clock::{Clock, SimClock, TscClock};
use nearside_device::{CommandSet, Namespace, Subsystem};
use nearside_firmware::{Compute, Fsr, WEB_ASSEMBLY, Workers};
use nearside_fsr::Config as FsrConfig;
use nearside_spec::command::{compute, memory};
use nearside_spec::data::{CopySource, MemoryRange};
use nearside_spec::identify::{IdentifyCompute, cns, csi};
use nearside_spec::opcode::{FEATURE_NEAR_DATA, compute as programs, memory as local};
use rig::{Config, Dram, FREE, Host, Status, SubmissionEntry, admin, command, io, refused, same, transfer};

const MEMORY: u32 = 2;
const COMPUTE: u32 = 3;
const SIZE: u64 = 1 << 20;

type Subsystems = Arc<Subsystem<Dram, Fsr>>;

/// Blocks, memory, and programs over that memory; the programs on threads of their own where there are some.
fn subsystem(clock: Arc<dyn Clock>, workers: Option<&Workers>) -> Subsystems {
    nearside_wasm::install();
    let subsystem = Subsystem::new();
    let files = Fsr::new(clock.clone(), FsrConfig::default());
    let blocks = Namespace::new(Dram::new(1 << 20, 512).unwrap(), files, 512, [1; 16], true).unwrap();
    subsystem.add(1, Arc::new(blocks)).unwrap();
    let store = Dram::new(SIZE, 4).unwrap();
    let fsr = Fsr::of_memory(clock.clone());
    let namespace = Namespace::of_command_set(CommandSet::Memory, store.clone(), fsr, [2; 16]).unwrap();
    subsystem.add(MEMORY, Arc::new(namespace)).unwrap();
    let fsr = Fsr::of_programs(clock, Compute::over([(MEMORY, store.clone())]));
    let fsr = fsr.on(workers.map(Workers::handle));
    let namespace = Namespace::of_command_set(CommandSet::Compute, store, fsr, [3; 16]).unwrap();
    subsystem.add(COMPUTE, Arc::new(namespace)).unwrap();
    subsystem
}

fn host(subsystem: &Subsystems) -> Host<Dram, Fsr> {
    Host::of_all_sets(subsystem, Config::default())
}

fn drive() -> Host<Dram, Fsr> {
    host(&subsystem(Arc::new(SimClock::new()), None))
}

/// A program with this body of `run`.
fn program(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "nearside" "next" (func $next (param i32 i32) (result i32)))
            (import "nearside" "emit" (func $emit (param i32 i32)))
            (import "nearside" "parameters" (func $parameters (param i32 i32) (result i32)))
            (memory (export "memory") 2)
            (func (export "run") (local $n i32) {body}))"#
    );
    wat::parse_str(text).unwrap()
}

/// Emits what it reads.
fn echo() -> Vec<u8> {
    program(
        "(block $end (loop $on
            (local.set $n (call $next (i32.const 0) (i32.const 65536)))
            (br_if $end (i32.eqz (local.get $n)))
            (call $emit (i32.const 0) (local.get $n))
            (br $on)))",
    )
}

/// Runs until its fuel is spent.
fn endless() -> Vec<u8> {
    program("(loop $on (br $on))")
}

/// An admin command of the compute namespace, with its data.
fn of_programs(host: &Host<Dram, Fsr>, opcode: u8, data: &[u8]) -> SubmissionEntry {
    host.put(FREE, data);
    command(opcode, COMPUTE, &[]).with_data(data.len())
}

/// Data behind the first page of what a command of the rig names.
trait WithData {
    fn with_data(self, len: usize) -> Self;
}

impl WithData for SubmissionEntry {
    fn with_data(mut self, len: usize) -> SubmissionEntry {
        assert!(len <= 8192);
        self.set_quad(8, FREE + 4096);
        self
    }
}

fn load(host: &mut Host<Dram, Fsr>, index: u16, code: &[u8]) -> Result<u32, Status> {
    let mut at = 0;
    for part in code.chunks(100) {
        let entry = of_programs(host, admin::LOAD_PROGRAM, part)
            .with(compute::PIND, index)
            .with(compute::PTYPE, WEB_ASSEMBLY)
            .with(compute::PSIZE, code.len() as u32)
            .with(compute::NUMB, part.len() as u32)
            .with(compute::LOFF, at);
        host.admin(entry)?;
        at += part.len() as u32;
    }
    Ok(0)
}

fn unload(host: &mut Host<Dram, Fsr>, index: u16) -> Result<u32, Status> {
    let entry = of_programs(host, admin::LOAD_PROGRAM, &[]);
    host.admin(entry.with(compute::PIND, index).with(compute::UNLOAD, true))
}

fn activate(host: &mut Host<Dram, Fsr>, index: u16, active: bool) -> Result<u32, Status> {
    let entry = of_programs(host, admin::PROGRAM_ACTIVATION, &[]).with(compute::PIND, index);
    host.admin(entry.with(compute::ACTIVATION, active.into()))
}

fn range(nsid: u32, start: u64, len: u32) -> MemoryRange {
    let mut range = MemoryRange::default();
    range.set_nsid(nsid).set_start(start).set_length(len);
    range
}

fn bytes(ranges: &[MemoryRange]) -> Vec<u8> {
    ranges.iter().flat_map(|range| range.0).collect()
}

fn create(host: &mut Host<Dram, Fsr>, ranges: &[MemoryRange]) -> Result<u32, Status> {
    let entry = of_programs(host, admin::MEMORY_RANGE_SET, &bytes(ranges));
    host.admin(entry.with(compute::NUMR, ranges.len() as u8))
}

fn delete(host: &mut Host<Dram, Fsr>, set: u16) -> Result<u32, Status> {
    let entry = of_programs(host, admin::MEMORY_RANGE_SET, &[]);
    host.admin(entry.with(compute::SET_ACTION, 1).with(compute::RSID, set))
}

/// Execute Program over ranges that come with it, and what it is told.
fn over(host: &Host<Dram, Fsr>, index: u16, ranges: &[MemoryRange], told: &[u8]) -> SubmissionEntry {
    let data = [&bytes(ranges)[..], told].concat();
    host.put(FREE, &data);
    let mut entry = SubmissionEntry::new(programs::EXECUTE, 0x88, COMPUTE);
    entry.set_quad(6, FREE);
    entry
        .with(compute::EXECUTE_PIND, index)
        .with(compute::EXECUTE_NUMR, ranges.len() as u32)
        .with(compute::DLEN, data.len() as u32)
}

/// The same over a set.
fn over_set(index: u16, set: u16) -> SubmissionEntry {
    let entry = SubmissionEntry::new(programs::EXECUTE, 0x88, COMPUTE);
    entry.with(compute::EXECUTE_PIND, index).with(compute::EXECUTE_RSID, set)
}

/// What a program returned.
fn execute(host: &mut Host<Dram, Fsr>, entry: SubmissionEntry) -> Result<u64, Status> {
    let done = host.run(1, entry);
    let value = u64::from(done.dw[0]) | u64::from(done.dw[1]) << 32;
    if done.status().is_success() { Ok(value) } else { Err(done.status()) }
}

fn of_memory(opcode: u8, start: u64, len: usize) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode, 0x66, MEMORY);
    entry.set_quad(6, FREE);
    entry.set_quad(8, FREE + 4096);
    entry.with(memory::START, start).with(memory::LENGTH, len as u32)
}

fn put(host: &mut Host<Dram, Fsr>, start: u64, bytes: &[u8]) {
    host.put(FREE, bytes);
    assert!(host.run(1, of_memory(local::WRITE, start, bytes.len())).status().is_success());
}

fn get(host: &mut Host<Dram, Fsr>, start: u64, len: usize) -> Vec<u8> {
    assert!(host.run(1, of_memory(local::READ, start, len)).status().is_success());
    host.bytes(FREE, len)
}

/// All of it: loaded by parts, made ready, run over ranges and over a set of them, and let go.
fn runs_a_program(host: &mut Host<Dram, Fsr>) {
    load(host, 5, &echo()).unwrap();
    activate(host, 5, true).unwrap();
    put(host, 0, b"Near the data.  and more");
    put(host, 4096, b"It stays there.\0");
    let ranges = [range(MEMORY, 0, 16), range(MEMORY, 4096, 16), range(MEMORY, 65536, 4096)];
    let entry = over(host, 5, &ranges, &[]);
    assert_eq!(execute(host, entry), Ok(32));
    assert_eq!(get(host, 65536, 40), b"Near the data.  It stays there.\0\0\0\0\0\0\0\0\0");
    // Some of the bytes, over a set, which is held while it runs and no longer.
    let set = create(host, &ranges).unwrap() as u16;
    assert!(host.run(1, of_memory(local::FILL, 65536, 4096)).status().is_success());
    assert_eq!(execute(host, over_set(5, set).with(compute::CPARAM1, 24)), Ok(24));
    assert_eq!(get(host, 65536, 28), b"Near the data.  It stays\0\0\0\0");
    delete(host, set).unwrap();
    refused(execute(host, over_set(5, set)), Status::INVALID_MEMORY_RANGE_SET_ID.dnr());
    refused(unload(host, 5), Status::PROGRAM_IN_USE.dnr());
    activate(host, 5, false).unwrap();
    let entry = over(host, 5, &ranges, &[]);
    refused(execute(host, entry), Status::PROGRAM_NOT_ACTIVATED.dnr());
    unload(host, 5).unwrap();
    refused(activate(host, 5, true), Status::NO_PROGRAM.dnr());
}

#[test]
fn a_program_runs_over_memory() {
    let mut host = drive();
    host.admin(command(
        admin::IDENTIFY,
        COMPUTE,
        &[cns::NAMESPACE_COMMAND_SET.into(), u32::from(csi::COMPUTE) << 24],
    ))
    .unwrap();
    let id = IdentifyCompute::from_bytes(&host.bytes(FREE, 4096));
    assert_eq!((id.maxact(), id.maxmemrs(), id.maxmemr(), id.mrsg()), (16, 64, 16, 2));
    assert_eq!((id.maxpb(), id.lpg()), (16, 0));
    runs_a_program(&mut host);
}

/// On threads beside the reactors, by the time that passes.
#[test]
fn a_program_runs_on_a_thread_of_its_own() {
    let clock = TscClock::new();
    let workers = Workers::start(1, clock).unwrap().unwrap();
    let mut host = host(&subsystem(Arc::new(clock), Some(&workers)));
    host.looks = 10_000_000;
    runs_a_program(&mut host);
}

#[test]
fn what_does_not_fit_is_counted_and_left_out() {
    let mut host = drive();
    load(&mut host, 0, &echo()).unwrap();
    activate(&mut host, 0, true).unwrap();
    put(&mut host, 0, &[7; 4096]);
    put(&mut host, 8192, &[9; 16]);
    let ranges = [range(MEMORY, 0, 4096), range(MEMORY, 8192, 8)];
    let entry = over(&host, 0, &ranges, &[]);
    assert_eq!(execute(&mut host, entry), Ok(4096));
    assert_eq!(get(&mut host, 8192, 16), [[7; 8], [9; 8]].concat());
    // Of one range all is read, and nothing written.
    let entry = over(&host, 0, &ranges[..1], &[]);
    assert_eq!(execute(&mut host, entry), Ok(4096));
    let entry = over(&host, 0, &[], &[]);
    assert_eq!(execute(&mut host, entry), Ok(0));
}

/// Blocks go to memory inside the drive, and a program sees them; what it is told comes with the command.
#[test]
fn blocks_meet_a_program_inside_the_drive() {
    let mut host = drive();
    let block: Vec<u8> = (0..512u32).map(|i| (i * 11) as u8).collect();
    host.put(FREE, &block);
    assert!(host.run(1, transfer(io::WRITE, 77, 1, FREE, 0)).status().is_success());
    let mut source = CopySource::default();
    source.set_nsid(1).set_start(77);
    host.put(FREE, &source.0);
    let copy = of_memory(local::COPY, 0, 0).with(memory::FORMAT, 2).with(memory::COPY_LENGTH, 512);
    assert!(host.run(1, copy).status().is_success());
    // Emits what it is told, then what it reads.
    let code = program(
        "(local.set $n (call $parameters (i32.const 0) (i32.const 64)))
         (call $emit (i32.const 0) (local.get $n))
         (local.set $n (call $next (i32.const 0) (i32.const 4096)))
         (call $emit (i32.const 0) (local.get $n))",
    );
    load(&mut host, 1, &code).unwrap();
    activate(&mut host, 1, true).unwrap();
    let entry = over(&host, 1, &[range(MEMORY, 0, 512), range(MEMORY, 4096, 1024)], b"told");
    assert_eq!(execute(&mut host, entry), Ok(516));
    assert_eq!(get(&mut host, 4096, 516), [b"told", &block[..]].concat());
}

#[test]
fn a_program_that_fails_fails_alone() {
    let mut host = drive();
    for (index, code) in [(0, program("(unreachable)")), (1, endless()), (2, echo())] {
        load(&mut host, index, &code).unwrap();
        activate(&mut host, index, true).unwrap();
    }
    let ranges = [range(MEMORY, 0, 4), range(MEMORY, 4, 4)];
    let entry = over(&host, 0, &ranges, &[]);
    refused(execute(&mut host, entry), Status::INTERNAL_ERROR.dnr());
    let entry = over(&host, 1, &ranges, &[]).with(compute::CPARAM2, 1_000_000);
    refused(execute(&mut host, entry), Status::INTERNAL_ERROR.dnr());
    let entry = over(&host, 2, &ranges, &[]);
    assert_eq!(execute(&mut host, entry), Ok(4));
}

/// A host whose controller has the programs and not their memory reaches none of it, by a set of another
/// host's neither.
#[test]
fn programs_reach_the_memory_that_their_host_has() {
    let subsystem = subsystem(Arc::new(SimClock::new()), None);
    let mut all = host(&subsystem);
    load(&mut all, 0, &echo()).unwrap();
    activate(&mut all, 0, true).unwrap();
    let ranges = [range(MEMORY, 0, 16), range(MEMORY, 16, 16)];
    let set = create(&mut all, &ranges).unwrap() as u16;
    let config = Config { namespaces: Some([1, COMPUTE].into()), cntlid: 2, ..Config::default() };
    let mut some = Host::of_all_sets(&subsystem, config);
    let denied = Status::INVALID_MEMORY_NAMESPACE.dnr();
    refused(create(&mut some, &ranges), denied);
    let entry = over(&some, 0, &ranges, &[]);
    refused(execute(&mut some, entry), denied);
    refused(execute(&mut some, over_set(0, set)), denied);
    let entry = over(&some, 0, &[], &[]);
    assert_eq!(execute(&mut some, entry), Ok(0));
    assert_eq!(execute(&mut all, over_set(0, set)), Ok(16));
}

/// What lies in memory is nobody's volume.
#[test]
fn no_near_data_command_is_for_memory_or_programs() {
    let mut host = drive();
    for nsid in [MEMORY, COMPUTE] {
        for opcode in [admin::GET_FEATURES, admin::SET_FEATURES] {
            let entry = command(opcode, nsid, &[FEATURE_NEAR_DATA.into(), 1]);
            refused(host.admin(entry), Status::INVALID_NAMESPACE.dnr());
        }
    }
}

/// What runs keeps its program and its set; other I/O goes on, an abort ends it, and so does a reset.
#[test]
fn what_runs_can_be_ended() {
    let mut host = drive();
    load(&mut host, 9, &endless()).unwrap();
    activate(&mut host, 9, true).unwrap();
    let set = create(&mut host, &[range(MEMORY, 0, 4)]).unwrap() as u16;
    let long = over_set(9, set).with(compute::CPARAM2, u64::MAX);
    host.submit(1, long);
    for _ in 0..100 {
        host.step();
    }
    // Other commands are answered beside it.
    host.submit(1, transfer(io::READ, 0, 1, FREE, 0));
    for _ in 0..4 {
        host.step();
    }
    host.reap(1);
    assert_eq!(host.queues[1].done.pop_front().map(|done| done.cid()), Some(0x55));
    let beside = |host: &mut Host<Dram, Fsr>, entry: SubmissionEntry| {
        host.submit(0, entry);
        for _ in 0..4 {
            host.step();
        }
        host.reap(0);
        host.queues[0].done.pop_front().unwrap()
    };
    let entry = of_programs(&host, admin::PROGRAM_ACTIVATION, &[]).with(compute::PIND, 9);
    assert!(same(beside(&mut host, entry).status(), Status::PROGRAM_IN_USE));
    let entry = of_programs(&host, admin::MEMORY_RANGE_SET, &[]);
    let entry = entry.with(compute::SET_ACTION, 1).with(compute::RSID, set);
    assert!(same(beside(&mut host, entry).status(), Status::MEMORY_RANGE_SET_IN_USE));
    let abort = command(admin::ABORT, 0, &[1 | 0x88 << 16]);
    assert_eq!(beside(&mut host, abort).result(), 0);
    let done = host.completed(1).unwrap();
    assert!(same(done.status(), Status::ABORT_REQUESTED), "{:?}", done.status());
    delete(&mut host, set).unwrap();

    let entry = over(&host, 9, &[range(MEMORY, 0, 4)], &[]).with(compute::CPARAM2, u64::MAX);
    host.submit(1, entry);
    for _ in 0..100 {
        host.step();
    }
    host.disable();
    host.enable_with(nearside_spec::registers::Cc::DEFAULTS.with_command_sets());
    // What was loaded is there still, and is nobody's any more.
    activate(&mut host, 9, false).unwrap();
    unload(&mut host, 9).unwrap();
    assert_eq!(nearside_device::lost_commands(), 0);
}

#[test]
fn what_is_no_program_is_refused() {
    let mut host = drive();
    refused(load(&mut host, 64, &echo()), Status::INVALID_PROGRAM_INDEX.dnr());
    refused(activate(&mut host, 64, true), Status::INVALID_PROGRAM_INDEX.dnr());
    refused(unload(&mut host, 0), Status::NO_PROGRAM.dnr());
    refused(activate(&mut host, 0, true), Status::NO_PROGRAM.dnr());
    load(&mut host, 0, b"no program at all").unwrap();
    refused(activate(&mut host, 0, true), Status::INVALID_PROGRAM_DATA.dnr());
    // It is there all the same, and so another is not taken in its place.
    refused(load(&mut host, 0, &echo()), Status::PROGRAM_IN_USE.dnr());
    unload(&mut host, 0).unwrap();
    let part = |host: &Host<Dram, Fsr>, at: u32, size: u32, kind: u8| {
        of_programs(host, admin::LOAD_PROGRAM, &[0; 100])
            .with(compute::PTYPE, kind)
            .with(compute::PSIZE, size)
            .with(compute::NUMB, 100)
            .with(compute::LOFF, at)
    };
    for (what, at, size, kind, status) in [
        ("another type", 0, 200, 1, Status::INVALID_PROGRAM_TYPE),
        ("too long", 0, (256 << 10) + 1, WEB_ASSEMBLY, Status::PROGRAM_TOO_BIG),
        ("more than it has", 150, 200, WEB_ASSEMBLY, Status::PROGRAM_TOO_BIG),
        ("less than comes", 0, 99, WEB_ASSEMBLY, Status::PROGRAM_TOO_BIG),
        ("its second part first", 100, 200, WEB_ASSEMBLY, Status::NO_PROGRAM),
        ("its place wraps", u32::MAX - 50, u32::MAX, WEB_ASSEMBLY, Status::PROGRAM_TOO_BIG),
    ] {
        let entry = part(&host, at, size, kind);
        let found = host.admin(entry).unwrap_err();
        assert!(same(found, status.dnr()), "{what}: {found:?}");
    }
    // A part is left out, or said to be of another program.
    host.admin(part(&host, 0, 300, WEB_ASSEMBLY)).unwrap();
    refused(host.admin(part(&host, 200, 300, WEB_ASSEMBLY)), Status::INVALID_PROGRAM_DATA.dnr());
    refused(host.admin(part(&host, 100, 400, WEB_ASSEMBLY)), Status::INVALID_PROGRAM_DATA.dnr());
    refused(activate(&mut host, 0, true), Status::INVALID_PROGRAM_DATA.dnr());
    // What was not finished is begun anew.
    load(&mut host, 0, &echo()).unwrap();
    activate(&mut host, 0, true).unwrap();
    activate(&mut host, 0, true).unwrap();
    // So many are active, and no more; and all of them are of so many bytes.
    for index in 1..16 {
        load(&mut host, index, &echo()).unwrap();
        activate(&mut host, index, true).unwrap();
    }
    load(&mut host, 16, &echo()).unwrap();
    refused(activate(&mut host, 16, true), Status::PROGRAMS_ACTIVATED.dnr());
    let whole = |host: &mut Host<Dram, Fsr>, index: u16| {
        let entry = part(host, 0, 256 << 10, WEB_ASSEMBLY).with(compute::PIND, index);
        host.admin(entry)
    };
    let many = (17..64).take_while(|index| whole(&mut host, *index).is_ok()).count();
    assert_eq!((many, whole(&mut host, 63)), (47, Ok(0)));
    for nsid in [1, 2, 9, u32::MAX] {
        let entry = command(admin::PROGRAM_ACTIVATION, nsid, &[]);
        refused(host.admin(entry), Status::INVALID_NAMESPACE.dnr());
    }
    for (opcode, place, value) in [
        (admin::PROGRAM_ACTIVATION, compute::ACTIVATION, 2),
        (admin::MEMORY_RANGE_SET, compute::SET_ACTION, 2),
        (admin::MEMORY_RANGE_SET, compute::NUMR, 0),
    ] {
        let entry = command(opcode, COMPUTE, &[]).with(place, value);
        refused(host.admin(entry), Status::INVALID_FIELD.dnr());
    }
}

#[test]
fn ranges_are_of_memory_that_is_there() {
    let mut host = drive();
    load(&mut host, 0, &echo()).unwrap();
    activate(&mut host, 0, true).unwrap();
    let (some, many) = (range(MEMORY, 0, 4), vec![range(MEMORY, 0, 4); 17]);
    let behind = range(MEMORY, SIZE - 4, 8);
    for (what, ranges, status) in [
        ("blocks", vec![range(1, 0, 512)], Status::INVALID_MEMORY_NAMESPACE),
        ("nothing", vec![range(9, 0, 4)], Status::INVALID_MEMORY_NAMESPACE),
        ("no byte", vec![range(MEMORY, 0, 0)], Status::INVALID_MEMORY_RANGE_SET),
        ("half a dword", vec![range(MEMORY, 2, 4)], Status::INVALID_MEMORY_RANGE_SET),
        ("behind the end", vec![some, behind], Status::INVALID_MEMORY_RANGE_SET),
        ("it wraps", vec![range(MEMORY, u64::MAX - 3, 8)], Status::INVALID_MEMORY_RANGE_SET),
        ("twice", vec![range(MEMORY, 64, 8), some, range(MEMORY, 68, 8)], Status::OVERLAPPING_MEMORY_RANGES),
        ("too many", many, Status::MEMORY_RANGES_EXCEEDED),
    ] {
        let found = create(&mut host, &ranges).unwrap_err();
        assert!(same(found, status.dnr()), "{what}: {found:?}");
        let entry = over(&host, 0, &ranges, &[]);
        let found = execute(&mut host, entry).unwrap_err();
        assert!(same(found, status.dnr()), "{what}: {found:?}");
    }
    let sets: Vec<u32> = (0..64).map(|_| create(&mut host, &[some]).unwrap()).collect();
    assert_eq!(sets, (1..=64).collect::<Vec<u32>>());
    refused(create(&mut host, &[some]), Status::MEMORY_RANGE_SETS_EXCEEDED.dnr());
    refused(delete(&mut host, 65), Status::INVALID_MEMORY_RANGE_SET_ID.dnr());
    delete(&mut host, 7).unwrap();
    assert_eq!(create(&mut host, &[some]), Ok(7));
    // A set and ranges as well; ranges that did not come; more bytes than there are.
    let entry = over(&host, 0, &[some], &[]).with(compute::EXECUTE_RSID, 7);
    refused(execute(&mut host, entry), Status::INVALID_FIELD.dnr());
    let entry = over(&host, 0, &[some], &[]).with(compute::EXECUTE_NUMR, 2);
    refused(execute(&mut host, entry), Status::INVALID_FIELD.dnr());
    let entry = over(&host, 0, &[some], &[]).with(compute::CPARAM1, 5);
    refused(execute(&mut host, entry), Status::INVALID_FIELD.dnr());
    let entry = over(&host, 0, &[some], &[]).with(compute::DLEN, 2 << 20);
    refused(execute(&mut host, entry), Status::INVALID_FIELD.dnr());
    let entry = over(&host, 63, &[some], &[]);
    refused(execute(&mut host, entry), Status::NO_PROGRAM.dnr());
    let mut entry = over(&host, 0, &[some], &[]);
    entry.cdw[0] = entry.cdw[0] & !0xff | 2;
    refused(execute(&mut host, entry), Status::INVALID_OPCODE.dnr());
}
