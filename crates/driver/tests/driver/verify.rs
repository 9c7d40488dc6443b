//! Random reads and writes with verification, over the real controller: every block carries its own address
//! and the version that was last written to it. All policies, both block formats, both runners, several
//! queues, policy switches and queue deletion under load.
//!
//! The seed is printed; `NEARSIDE_SEED` sets it, `NEARSIDE_COMMANDS` how many commands each test makes.

use nearside_clock::TscClock;
use nearside_device::{Config, runner::Rest};
use nearside_driver::*;
use nearside_embedded::Loopback;
use nearside_store::{Delay, Dram, Modelled, Store};

use crate::model::{
    Model, POLICIES, number, queues_deleted_under_load, reset_under_load, seeded, sweep, threads_on, work,
};

fn config(lba_size: u32, reactors: usize) -> Config {
    Config { lba_size, reactors, ..Config::default() }
}

#[test]
fn inline_all_policies_both_formats() {
    let commands = number("NEARSIDE_COMMANDS", 250_000);
    for lba_size in [512u32, 4096] {
        for policy in POLICIES {
            let clock = TscClock::new();
            let store = Dram::new(16 << 20, lba_size).unwrap();
            let mut drive = Loopback::inline(store, (), config(lba_size, 1)).unwrap();
            let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
            let info = driver.namespace(Some(1), &mut drive.host(&clock)).unwrap();
            assert_eq!(info.block_size, lba_size);
            let config = InitiatorConfig { policy, ..Default::default() };
            let mut io = Initiator::new(&driver, config, clock, &mut drive.peer, None).unwrap();
            let mut model = Model::new(0, info.blocks as usize, lba_size as usize);
            work(&mut io, &mut model, &mut seeded(u64::from(lba_size)), commands, false);
            sweep(&mut io, &model);
            io.close().unwrap();
        }
    }
}

/// Over one or two reactors.
fn threads_over<S: Store>(store: S, lba_size: u32, reactors: usize, commands: u64) {
    let clock = TscClock::new();
    let rest = Rest { idle_ns: 20_000, ..Rest::default() };
    let mut drive = Loopback::threaded(store, (), config(lba_size, reactors), rest).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    threads_on(&driver, commands);
}

#[test]
fn threads_with_policy_switches_512() {
    threads_over(Dram::new(24 << 20, 512).unwrap(), 512, 1, number("NEARSIDE_COMMANDS", 120_000));
}

#[test]
fn threads_with_policy_switches_4096_two_reactors() {
    threads_over(Dram::new(24 << 20, 4096).unwrap(), 4096, 2, number("NEARSIDE_COMMANDS", 120_000));
}

/// A device with stalls: budgets run out, sleeps and interrupts are used in earnest.
#[test]
fn threads_over_a_device_that_stalls() {
    let delay = Delay { stall_every: 200, stall_ns: 2_000_000, ..Delay::fixed(3_000) };
    let store = Modelled::new(Dram::new(24 << 20, 512).unwrap(), delay.medium());
    threads_over(store, 512, 1, number("NEARSIDE_COMMANDS", 30_000));
}

#[test]
fn queues_are_deleted_under_load() {
    let clock = TscClock::new();
    let delay = Delay { stall_every: 50, stall_ns: 200_000, ..Delay::fixed(2_000) };
    let store = Modelled::new(Dram::new(16 << 20, 512).unwrap(), delay.medium());
    let rest = Rest { idle_ns: 20_000, ..Rest::default() };
    let mut drive = Loopback::threaded(store, (), config(512, 1), rest).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    queues_deleted_under_load(&driver, 300);
}

#[test]
fn a_reset_under_load_gives_everything_back() {
    let clock = TscClock::new();
    let store = Modelled::new(Dram::new(16 << 20, 512).unwrap(), Delay::fixed(50_000).medium());
    let mut drive = Loopback::threaded(store, (), config(512, 1), Rest::default()).unwrap();
    let mut driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    reset_under_load(&mut driver);
}
