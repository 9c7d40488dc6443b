//! Every engine carries out what it is asked, in real time, with the data checked.

use std::path::Path;

use nearside_clock::{Clock, SimClock, TscClock};
use nearside_conformance::needs::left_out;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::uring::{Completion, available};
use nearside_driver::{
    Controller, DriverConfig, Host, Initiator, InitiatorConfig, Policy, QueueConfig, Service, Threaded,
};
use nearside_embedded::Loopback;
use nearside_loadgen::engine::blocking::Blocking;
use nearside_loadgen::engine::file::{OpenMode, Target, TargetError};
use nearside_loadgen::engine::initiator::Policed;
use nearside_loadgen::engine::queue::Queue;
use nearside_loadgen::engine::uring::Uring;
use nearside_loadgen::engine::{Engine, Failure, Io, Submit};
use nearside_loadgen::run::{Pace, real, simulated};
use nearside_loadgen::verify::Verifier;
use nearside_loadgen::{Arrivals, Direction, Plan, Rw, Workload};
use nearside_store::{Delay, Dram, Modelled};

const SIZE: u64 = 1 << 20;
const DEPTH: usize = 8;

fn plan(depth: u32) -> Plan {
    let workload = Workload { bs: vec![(4096, 3), (16_384, 1)], ..Workload::new(Rw::RandRw, 4096, SIZE) };
    let mut plan = Plan::new(workload, Arrivals::Closed { depth }, 0);
    (plan.runtime_ns, plan.count) = (None, Some(4_000));
    plan
}

/// Mixed reads and writes, each checked; then the same at a rate.
fn works(engine: &mut impl Engine, pace: Pace) {
    let clock = TscClock::new();
    let depth = engine.depth().min(DEPTH) as u32;
    for arrivals in [Arrivals::Closed { depth }, Arrivals::Poisson { rate: 20_000.0 }] {
        let mut plan = plan(depth);
        plan.streams[0].arrivals = arrivals;
        let ran = real(&plan, engine, &clock, pace).unwrap();
        let stream = &ran.outcome.streams[0];
        assert_eq!((stream.errors, stream.first_error), (0, None), "{arrivals:?}");
        assert_eq!((stream.offered, ran.outcome.both().response.count()), (4_000, 4_000));
        assert!(stream.reads.response.count() > 1_500 && stream.writes.response.count() > 1_500);
        assert!(stream.reads.service.min_ns() > 0);
    }
}

fn verifier() -> Option<Verifier> {
    Some(Verifier::new(SIZE, 128))
}

fn file(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("target");
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    path
}

fn open(path: &Path, direct: bool, write: bool) -> Result<Target, TargetError> {
    Target::open(path, OpenMode { direct, write })
}

const SLEEPING: Pace = Pace { may_sleep: true, early_ns: 20_000, stall_ns: 5_000 };

#[test]
fn files_by_system_calls_and_by_mapping() {
    // Not in memory: a file system there has no O_DIRECT.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(folder.path());
    let clock = TscClock::new();
    for direct in [false, true] {
        let target = match open(&path, direct, true) {
            Err(TargetError::NoDirect { .. }) => continue,
            other => other.unwrap(),
        };
        works(&mut Blocking::positioned(&target, 16_384, verifier(), clock).unwrap(), Pace::default());
    }
    let target = open(&path, false, true).unwrap();
    works(&mut Blocking::mapped(&target, 16_384, verifier(), clock).unwrap(), Pace::default());
}

#[test]
fn files_by_io_uring() {
    if let Err(e) = available() {
        return left_out("files_by_io_uring", &e.to_string());
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(folder.path());
    let clock = TscClock::new();
    let new = |target: &Target, completion| Uring::new(target, completion, DEPTH, 16_384, verifier(), clock);
    for direct in [false, true] {
        let target = match open(&path, direct, true) {
            Err(TargetError::NoDirect { .. }) => continue,
            other => other.unwrap(),
        };
        for pace in [Pace::default(), SLEEPING] {
            works(&mut new(&target, Completion::Interrupt).unwrap(), pace);
        }
        for completion in [Completion::Polled, Completion::Hybrid] {
            match new(&target, completion) {
                Ok(mut engine) if direct => works(&mut engine, Pace::default()),
                Ok(_) => panic!("polling a buffered file"),
                Err(e @ (TargetError::NoPolling { .. } | TargetError::Ring(_))) => {
                    eprintln!("{completion:?}, direct {direct}: {e}");
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn a_target_that_is_read_only_is_not_written() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(folder.path());
    let clock = TscClock::new();
    let target = open(&path, false, false).unwrap();
    let mut positioned = Blocking::positioned(&target, 4096, None, clock).unwrap();
    let mut mapped = Blocking::mapped(&target, 4096, None, clock).unwrap();
    let one = |engine: &mut dyn Engine, direction, offset| {
        let io = Io { token: 0, direction, offset, len: 4096 };
        assert_eq!(engine.submit(&io, clock.now()), Submit::Taken);
        assert_eq!(engine.submit(&io, clock.now()), Submit::Full);
        let mut done = Vec::new();
        engine.poll(clock.now(), &mut done);
        done[0].result
    };
    // EBADF; EACCES.
    assert_eq!(one(&mut positioned, Direction::Write, 0), Err(Failure::Errno(9)));
    assert_eq!(one(&mut mapped, Direction::Write, 0), Err(Failure::Errno(13)));
    for engine in [&mut positioned as &mut dyn Engine, &mut mapped] {
        assert_eq!(one(engine, Direction::Read, 0), Ok(()));
        assert!(one(engine, Direction::Read, SIZE).is_err(), "beyond the end");
    }
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    assert!(matches!(open(Path::new("/nonexistent"), false, false), Err(TargetError::Io { .. })));
    assert!(open(folder.path(), false, false).is_err(), "a folder");
}

#[test]
fn wrong_data_is_found() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(folder.path());
    let clock = TscClock::new();
    let target = open(&path, false, true).unwrap();
    let mut engine = Blocking::positioned(&target, 16_384, verifier(), clock).unwrap();
    let ran = real(&plan(1), &mut engine, &clock, Pace::default()).unwrap();
    assert_eq!(ran.outcome.errors(), 0);
    // Behind its back.
    std::fs::write(&path, vec![7; SIZE as usize]).unwrap();
    let mut reads = plan(1);
    reads.streams[0].workload.rw = Rw::RandRead;
    let ran = real(&reads, &mut engine, &clock, Pace::default()).unwrap();
    assert_eq!(ran.outcome.streams[0].first_error.unwrap().0, Failure::Data);
}

fn store() -> Dram {
    Dram::new(SIZE, 512).unwrap()
}

#[test]
fn a_drive_on_this_thread() {
    let clock = TscClock::new();
    let mut drive = Loopback::inline(store(), (), Config::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).unwrap();
    let mut engine =
        Queue::new(&driver, namespace, DEPTH as u16, 16_384, verifier(), drive.peer, clock).unwrap();
    works(&mut engine, Pace::default());
    assert!(engine.cost().device_ns > 0);
    let io = Io { token: 0, direction: Direction::Read, offset: 100, len: 512 };
    assert_eq!(engine.submit(&io, clock.now()), Submit::Taken);
    let mut done = Vec::new();
    engine.poll(clock.now(), &mut done);
    assert_eq!(done[0].result, Err(Failure::Errno(22)), "half a block");
    engine.close().unwrap();
}

#[test]
fn a_drive_in_simulated_time() {
    let run = || {
        let clock = SimClock::new();
        let store = Modelled::new(store(), Delay::fixed(10_000).medium());
        let mut drive = Loopback::inline(store, (), Config::default()).unwrap();
        let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
        let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).unwrap();
        let mut engine =
            Queue::new(&driver, namespace, 128, 16_384, verifier(), drive.peer, clock.clone()).unwrap();
        let mut plan = plan(1);
        plan.streams[0].arrivals = Arrivals::Poisson { rate: 50_000.0 };
        simulated(&plan, &mut engine, &clock).unwrap()
    };
    let (one, two) = (run(), run());
    assert_eq!(one.errors(), 0);
    assert!(one.both().service.min_ns() >= 9_990, "the store's delay: {}", one.both().service.min_ns());
    let buckets = |outcome: &nearside_loadgen::Outcome| outcome.both().response.buckets().collect::<Vec<_>>();
    assert_eq!(buckets(&one), buckets(&two));
}

#[test]
fn a_drive_by_every_policy() {
    let clock = TscClock::new();
    let mut drive = Loopback::threaded(store(), (), Config::default(), Rest::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).unwrap();
    for policy in [Policy::Polled, Policy::Interrupt, Policy::Hybrid] {
        for served in [false, true] {
            let service = served.then(|| Service::start(&driver, DEPTH as u16, clock, || ()).unwrap());
            let queue = QueueConfig { depth: DEPTH as u16, interrupt: true };
            let config = InitiatorConfig { queue, policy };
            let handle = service.as_ref().map(Service::handle);
            let initiator = Initiator::new(&driver, config, clock, Threaded, handle).unwrap();
            let mut engine = Policed::new(initiator, service, namespace, 16_384, verifier()).unwrap();
            works(&mut engine, SLEEPING);
            let account = engine.initiator().account();
            assert_eq!(account.synchronous + account.asynchronous, 8_000, "{policy:?}");
        }
    }
}

/// Of one operation. `until`: a wait that lasts so long has missed the answer.
fn does_not_wait_for_an_answer_that_is_there(engine: &mut impl Engine, len: u32) {
    let clock = TscClock::new();
    let io = Io { token: 0, direction: Direction::Read, offset: 0, len };
    assert_eq!(engine.submit(&io, clock.now()), Submit::Taken);
    let until = clock.now() + 20_000_000_000;
    // Of a ring, the first wait is for the answer.
    (0..2).for_each(|_| engine.wait(Some(until)));
    assert!(clock.now() < until);
    let mut done = Vec::new();
    engine.poll(clock.now(), &mut done);
    assert_eq!(done.len(), 1);
}

#[test]
fn an_answer_that_is_there_is_not_waited_for() {
    let clock = TscClock::new();
    let mut drive = Loopback::threaded(store(), (), Config::default(), Rest::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).unwrap();
    let queue = QueueConfig { depth: DEPTH as u16, interrupt: true };
    let config = InitiatorConfig { queue, policy: Policy::Hybrid };
    let initiator = Initiator::new(&driver, config, clock, Threaded, None).unwrap();
    let mut engine = Policed::new(initiator, None, namespace, 16_384, None).unwrap();
    // Longer than its buffers: refused before it is sent.
    does_not_wait_for_an_answer_that_is_there(&mut engine, 32_768);

    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = open(&file(folder.path()), false, false).unwrap();
    let mut engine = Blocking::positioned(&target, 16_384, None, clock).unwrap();
    does_not_wait_for_an_answer_that_is_there(&mut engine, 16_384);
    if available().is_ok() {
        let mut engine = Uring::new(&target, Completion::Interrupt, 1, 16_384, None, clock).unwrap();
        does_not_wait_for_an_answer_that_is_there(&mut engine, 16_384);
    }
}

#[test]
fn a_device_that_is_gone_ends_the_run() {
    let clock = TscClock::new();
    let mut drive = Loopback::inline(store(), (), Config::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).unwrap();
    let mut engine = Queue::new(&driver, namespace, 8, 16_384, None, drive.peer, clock).unwrap();
    driver.stop(&mut Host::new(&clock, engine.peer())).unwrap();
    let ran = real(&plan(4), &mut engine, &clock, Pace::default()).unwrap();
    assert_eq!(ran.outcome.streams[0].first_error.unwrap().0, Failure::Gone);
}
