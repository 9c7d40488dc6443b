//! The driver against a controller's double:
//! initialisation, every command's form, and each way in which a controller fails.

use crate::double::{BLOCK, BLOCKS, Double, Faults};
use nearside_clock::Clock;
use nearside_driver::*;
use nearside_spec::Status;

fn config() -> DriverConfig {
    DriverConfig { pool_bytes: 8 << 20, queues: 4, timeout_ms: 1000, ..DriverConfig::default() }
}

fn start(faults: Faults) -> (Double, Driver) {
    let mut double = Double::new(faults);
    let (function, clock) = (double.function.clone(), double.clock.clone());
    let driver = Driver::start(function, config(), &mut Host::new(&clock, &mut double)).unwrap();
    (double, driver)
}

#[test]
fn comes_up_and_identifies() {
    let (mut double, driver) = start(Faults::default());
    let clock = double.clock.clone();
    assert_eq!(driver.max_transfer(), 128 << 10);
    assert_eq!(driver.queues(), 4);
    assert_eq!(driver.namespaces(&mut Host::new(&clock, &mut double)).unwrap(), [1]);
    let info = driver.namespace(Some(1), &mut Host::new(&clock, &mut double)).unwrap();
    assert_eq!((info.blocks, info.block_size), (BLOCKS as u64, BLOCK as u32));
    let error = driver.get_feature(0x7f, 0, 0, &mut Host::new(&clock, &mut double)).unwrap_err();
    assert!(matches!(&error, Error::Command { failure, .. } if is_status(failure, Status::INVALID_OPCODE)));
}

/// Transfers of every number of pages, so that PRP2 is absent, a page, and a list.
#[test]
fn moves_bytes_of_every_size() {
    for policy in [Policy::Polled, Policy::Interrupt, Policy::Hybrid] {
        let (mut double, driver) = start(Faults::default());
        let clock = double.clock.clone();
        let config = InitiatorConfig { policy, ..Default::default() };
        let mut io = Initiator::new(&driver, config, clock, &mut double, None).unwrap();
        for blocks in (1..=256u32).step_by(5) {
            let len = blocks as usize * BLOCK;
            let data: Vec<u8> = (0..len).map(|i| (i / BLOCK) as u8 ^ i as u8 ^ blocks as u8).collect();
            let mut buffer = io.buffer(len).unwrap();
            buffer.write(0, &data);
            let done = io.execute(&Command::write(1, 7, blocks), Some(buffer)).unwrap();
            assert!(done.outcome.is_ok());
            let mut buffer = done.buffer.unwrap();
            buffer.fill(0xee);
            let done = io.execute(&Command::read(1, 7, blocks), Some(buffer)).unwrap();
            assert_eq!(done.buffer.unwrap().to_vec(), data);
        }
        let done = io.execute(&Command::write_zeroes(1, 7, 8), None).unwrap();
        assert!(done.outcome.is_ok());
        assert!(io.execute(&Command::flush(1), None).unwrap().outcome.is_ok());
        let beyond =
            io.execute(&Command::read(1, BLOCKS as u64, 1), Some(io.buffer(BLOCK).unwrap())).unwrap();
        assert!(is_status(&beyond.outcome.unwrap_err(), Status::LBA_OUT_OF_RANGE));
        let large = io.submit(&Command::read(1, 0, 1), Some(io.buffer((128 << 10) + 1).unwrap()));
        assert_eq!(large.unwrap_err().reason, RejectReason::Buffer);
        io.close().unwrap();
    }
}

/// The queues wrap many times, full and not, and the completion queue
/// never overflows though its head is written late.
#[test]
fn wraps_with_any_depth() {
    for (mqes_z, depth) in [(1, 1), (2, 2), (7, 3), (7, 7), (255, 128)] {
        let (mut double, driver) = start(Faults { mqes_z, ..Default::default() });
        let clock = double.clock.clone();
        let config = QueueConfig { depth, interrupt: false };
        let mut queue = driver.queue(config, &mut Host::new(&clock, &mut double)).unwrap();
        let (mut next, mut ended) = (0u64, 0u64);
        while ended < 3000 {
            while queue.outstanding() < queue.depth() {
                let buffer = driver.pool().take(BLOCK).unwrap();
                queue.submit(&Command::read(1, next % 64, 1), Some(buffer), next, clock.now()).unwrap();
                next += 1;
            }
            assert_eq!(
                queue.submit(&Command::flush(1), None, 0, clock.now()).unwrap_err().reason,
                RejectReason::Full
            );
            queue.ring();
            double.pump(clock.now());
            queue
                .poll(clock.now(), |done| {
                    assert!(done.outcome.is_ok() && done.buffer.is_some());
                    assert_eq!(done.cookie, ended);
                    ended += 1;
                })
                .unwrap();
        }
        driver.delete(queue, &mut Host::new(&clock, &mut double), drop).unwrap();
        assert_eq!(driver.max_transfer(), 128 << 10);
    }
}

#[test]
fn a_controller_that_is_never_ready() {
    let mut double = Double::new(Faults { never_ready: true, ..Default::default() });
    let (function, clock) = (double.function.clone(), double.clock.clone());
    let error = Driver::start(function, config(), &mut Host::new(&clock, &mut double)).err().unwrap();
    assert!(matches!(error, Error::NotReady { wanted: "ready", timeout_ms: 1000 }), "{error}");
}

#[test]
fn a_controller_that_is_never_disabled() {
    let mut double = Double::new(Faults { never_disabled: true, ..Default::default() });
    let (function, clock) = (double.function.clone(), double.clock.clone());
    let error = Driver::start(function, config(), &mut Host::new(&clock, &mut double)).err().unwrap();
    assert!(matches!(error, Error::NotReady { wanted: "disabled", .. }), "{error}");
}

#[test]
fn silence_and_fatal_status_give_buffers_back() {
    for faults in [
        Faults { silent_from: Some(3), ..Default::default() },
        Faults { fatal_at_command: Some(8), ..Default::default() },
    ] {
        let (mut double, mut driver) = start(faults);
        let clock = double.clock.clone();
        let config = InitiatorConfig { policy: Policy::Hybrid, ..Default::default() };
        let mut io = Initiator::new(&driver, config, clock.clone(), &mut double, None).unwrap();
        let free = driver.pool().available();
        let handles: Vec<Handle> = (0..6)
            .map(|i| io.submit(&Command::read(1, i, 1), Some(io.buffer(BLOCK).unwrap())).unwrap())
            .collect();
        let ended: Vec<Finished> = handles.into_iter().map(|h| io.wait(h)).collect();
        assert!(ended.iter().all(|f| f.buffer.is_some()));
        assert!(ended[5].outcome == Err(Failure::Reset), "{:?}", ended[5].outcome);
        assert!(ended[0].outcome.is_ok() || faults.fatal_at_command.is_some());
        drop(ended);
        // The admin queue's memory came back as well.
        assert!(driver.pool().available() >= free);
        let dead = io.submit(&Command::flush(1), None).unwrap_err();
        assert_eq!(dead.reason, RejectReason::Dead);
        drop(io);

        double.faults = Faults::default();
        driver.restart(&mut Host::new(&clock, &mut double)).unwrap();
        let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, &mut double, None).unwrap();
        assert!(io.execute(&Command::flush(1), None).unwrap().outcome.is_ok());
    }
}

/// The controller may still write: its buffers never return to the pool.
#[test]
fn a_controller_that_does_not_stop_keeps_the_buffers() {
    let (mut double, driver) = start(Faults { silent_from: Some(1), ..Default::default() });
    let clock = double.clock.clone();
    double.faults.never_disabled = true;
    let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, &mut double, None).unwrap();
    let free = driver.pool().available();
    let done = io.execute(&Command::read(1, 0, 1), Some(io.buffer(BLOCK).unwrap())).unwrap();
    assert_eq!(done.outcome, Err(Failure::Unresponsive));
    assert!(done.buffer.is_none());
    assert!(driver.pool().available() < free);
}

#[test]
fn completions_for_nothing_are_counted_and_harmless() {
    let (mut double, driver) = start(Faults { twice: true, ..Default::default() });
    let clock = double.clock.clone();
    let mut queue = driver
        .queue(QueueConfig { depth: 4, interrupt: false }, &mut Host::new(&clock, &mut double))
        .unwrap();
    for i in 0..100u64 {
        queue.submit(&Command::flush(1), None, i, clock.now()).unwrap();
        queue.ring();
        double.pump(clock.now());
        let mut seen = Vec::new();
        queue.poll(clock.now(), |d| seen.push(d.cookie)).unwrap();
        assert_eq!(seen, [i]);
    }
    assert_eq!(queue.counts().spurious, 100);
}

#[test]
fn deletion_ends_what_is_out() {
    let (mut double, driver) = start(Faults { silent_from: Some(3), ..Default::default() });
    let clock = double.clock.clone();
    let before = driver.pool().available();
    let mut queue = driver.queue(QueueConfig::default(), &mut Host::new(&clock, &mut double)).unwrap();
    for i in 0..5 {
        let buffer = driver.pool().take(BLOCK).unwrap();
        queue.submit(&Command::read(1, i, 1), Some(buffer), i, clock.now()).unwrap();
    }
    queue.ring();
    double.pump(clock.now());
    let mut ended = Vec::new();
    driver.delete(queue, &mut Host::new(&clock, &mut double), |done| ended.push(done)).unwrap();
    assert_eq!(ended.iter().filter(|d| d.outcome.is_ok()).count(), 2);
    assert_eq!(ended.iter().filter(|d| d.outcome == Err(Failure::QueueDeleted)).count(), 3);
    drop(ended);
    assert_eq!(driver.pool().available(), before);
    for _ in 0..20 {
        let queue = driver.queue(QueueConfig::default(), &mut Host::new(&clock, &mut double)).unwrap();
        driver.delete(queue, &mut Host::new(&clock, &mut double), drop).unwrap();
    }
}

#[test]
fn a_dropped_queue_keeps_its_memory_until_the_controller_stops() {
    let (mut double, driver) = start(Faults { silent_from: Some(1), ..Default::default() });
    let clock = double.clock.clone();
    let before = driver.pool().available();
    let mut queue = driver.queue(QueueConfig::default(), &mut Host::new(&clock, &mut double)).unwrap();
    let buffer = driver.pool().take(BLOCK).unwrap();
    queue.submit(&Command::read(1, 0, 1), Some(buffer), 0, clock.now()).unwrap();
    queue.ring();
    drop(queue);
    assert!(driver.pool().available() < before);
    driver.stop(&mut Host::new(&clock, &mut double)).unwrap();
    assert!(driver.pool().available() >= before);
}

#[test]
fn events_arrive_between_admin_commands() {
    let (mut double, driver) = start(Faults::default());
    let clock = double.clock.clone();
    driver.request_event().unwrap();
    driver.request_event().unwrap();
    assert!(driver.request_event().is_err());
    driver.namespaces(&mut Host::new(&clock, &mut double)).unwrap();
    assert!(driver.take_events(clock.now()).is_empty());
    let cid = double.events.pop().unwrap();
    double.complete(0, cid, 0, 0x0002_0100);
    driver.namespaces(&mut Host::new(&clock, &mut double)).unwrap();
    assert_eq!(driver.take_events(clock.now()), [0x0002_0100]);
    driver.request_event().unwrap();
}
