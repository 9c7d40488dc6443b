//! Drive and driver together, over both runners: what is written is read, by every way a command can go.

use nearside_clock::TscClock;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::{Command, Driver, DriverConfig, Initiator, InitiatorConfig, Peer, Threaded};
use nearside_store::Dram;

const SIZE: u64 = 64 << 20;

fn config(lba_size: u32, reactors: usize) -> Config {
    Config { lba_size, reactors, ..Config::default() }
}

/// Writes and reads pages that say where they are.
fn exercise<P: Peer>(driver: &Driver, mut peer: P, clock: TscClock, lba_size: u32, rounds: u64) {
    let info = driver.namespace(1, &clock, &mut peer).expect("identify namespace");
    assert_eq!((info.block_size, info.blocks), (lba_size, SIZE / u64::from(lba_size)));
    let mut initiator =
        Initiator::new(driver, InitiatorConfig::default(), clock, peer, None).expect("a queue pair");
    let per_page = u64::from(4096 / lba_size);
    let pages = SIZE / 4096;
    let mut seed = 1u64;
    for round in 0..rounds {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let page = (seed >> 33) % pages;
        let mut buffer = initiator.buffer(4096).unwrap();
        buffer.write(0, &[round.to_le_bytes(), page.to_le_bytes()].concat());
        let write = Command::write(1, page * per_page, per_page as u32);
        let done = initiator.execute(&write, Some(buffer)).expect("room");
        done.outcome.expect("write");
        let read = Command::read(1, page * per_page, per_page as u32);
        let buffer = initiator.buffer(4096).unwrap();
        let done = initiator.execute(&read, Some(buffer)).expect("room");
        done.outcome.expect("read");
        let mut bytes = [0; 16];
        done.buffer.unwrap().read(0, &mut bytes);
        assert_eq!(bytes[..8], round.to_le_bytes());
        assert_eq!(bytes[8..], page.to_le_bytes());
    }
    initiator.close().expect("the queue pair goes");
}

#[test]
fn inline() {
    for lba_size in [512, 4096] {
        let clock = TscClock::new();
        let store = Dram::new(SIZE, 512).unwrap();
        let mut drive = nearside_front_loop::inline(store, (), config(lba_size, 2)).unwrap();
        let driver =
            Driver::start(drive.function.clone(), DriverConfig::default(), &clock, &mut drive.runner)
                .unwrap();
        exercise(&driver, &mut drive.runner, clock, lba_size, 2000);
        driver.shut_down(&clock, &mut drive.runner).unwrap();
    }
}

#[test]
fn threaded() {
    for reactors in [1, 2] {
        let clock = TscClock::new();
        let store = Dram::new(SIZE, 512).unwrap();
        let drive =
            nearside_front_loop::threaded(store, (), config(512, reactors), clock, Rest::default()).unwrap();
        let driver =
            Driver::start(drive.function.clone(), DriverConfig::default(), &clock, &mut Threaded).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| exercise(&driver, Threaded, clock, 512, 500));
            }
        });
        driver.shut_down(&clock, &mut Threaded).unwrap();
    }
}
