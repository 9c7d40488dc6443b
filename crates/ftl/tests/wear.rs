//! Write amplification against the closed form, wear, memory, and reads that spread over the dies.

mod common;

use std::sync::Arc;

use common::drive;
use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory};
use nearside_ftl::{Config, Flash, FlashStore, Policy};
use nearside_media::nand::p3700;
use nearside_media::{Medium, Request};
use nearside_random::draw;
use nearside_store::{Channel, Data, Operation, Store, Submitted, Token};

/// Uniform random writes, blocks cleaned in the order of filling, many pages in a block: A = a / (a + W(-a
/// e^-a)) with a the physical over the logical size (Desnoyers, "Analytic modeling of SSD write performance",
/// SYSTOR 2012; greedy cleaning comes close to it from below). W by iterating x = a e^-a e^x, where x = -W.
fn closed_form(a: f64) -> f64 {
    let mut x = 0.1f64;
    for _ in 0..2000 {
        x = a * (-a).exp() * x.exp();
    }
    a / (a - x)
}

fn amplification(permille: u64, policy: Policy) -> f64 {
    let slots = 200_000;
    let mut flash: Flash<()> =
        Flash::new(drive(slots, 2, 64, permille), Config { policy, ..Config::default() }).unwrap();
    flash.precondition(4.0, 1);
    let mut random = 9;
    for _ in 0..3 * slots {
        flash.finish(Request::write(draw(&mut random) % slots * 4096, 4096), 0);
    }
    flash.stats().write_amplification()
}

/// Within 5 %: the spare blocks that are open or free are not exactly as many as come on top, and blocks are
/// not endlessly large.
#[test]
fn write_amplification_is_the_closed_form() {
    for permille in [1100, 1150, 1250, 1400, 1700] {
        let (found, expected) =
            (amplification(permille, Policy::Greedy), closed_form(permille as f64 / 1000.0));
        println!(
            "{permille}: {found:.3}, closed form {expected:.3}, {:+.1} %",
            (found / expected - 1.0) * 100.0
        );
        assert!((found / expected - 1.0).abs() < 0.05, "{permille}: {found:.3}, not {expected:.3}");
    }
}

/// A tenth of the drive is written all the time, the rest never: the blocks wear alike all the same.
#[test]
fn wear_is_level() {
    let config = Config { wear_spread: 8, ..Config::default() };
    let mut flash: Flash<()> = Flash::new(drive(20_000, 2, 16, 1200), config).unwrap();
    flash.precondition(0.0, 1);
    let mut random = 3;
    for _ in 0..3_000_000 {
        flash.finish(Request::write(draw(&mut random) % 2_000 * 4096, 4096), 0);
    }
    let (least, most) = flash.wear();
    println!("erased {least} to {most} times");
    assert!(most > 100 && most - least <= 8 + 8, "{least} to {most}");
}

/// Reads all at once over many dies end sooner than one after the other.
#[test]
fn marked_reads_keep_many_dies_busy() {
    let store = FlashStore::new(p3700().sized(1 << 30), Config::default(), 4096).unwrap();
    let mut channel = store.channel(Arc::new(Memory::new())).unwrap();
    let mut now = Nanos(0);
    for n in 0..64u64 {
        let buffer = IoBuffer::new(16384).unwrap();
        let write = Operation::Write { offset: n * 16384, len: 16384, fua: false };
        channel.submit(write, Data::Owned(buffer), Token(n), now);
    }
    let drain = |channel: &mut nearside_ftl::FlashChannel, now: &mut Nanos| {
        while let Some(next) = channel.poll(*now, &mut |_, _| {}) {
            *now = next;
        }
    };
    drain(&mut channel, &mut now);
    now = now + 1_000_000_000;
    let read = |channel: &mut nearside_ftl::FlashChannel, n: u64, now: Nanos| {
        let read = Operation::Read { offset: n * 16384, len: 16384 };
        let submitted = channel.submit(read, Data::Owned(IoBuffer::new(16384).unwrap()), Token(n), now);
        assert!(matches!(submitted, Submitted::Pending));
    };
    let begun = now;
    for n in 0..64 {
        read(&mut channel, n, now);
    }
    let busy = store.busy_dies(now + 1000);
    drain(&mut channel, &mut now);
    let unordered = now.since(begun);
    let begun = now;
    for n in 0..64 {
        read(&mut channel, n, now);
        drain(&mut channel, &mut now);
    }
    let ordered = now.since(begun);
    println!("{busy} dies busy; {} us at once, {} us one by one", unordered / 1000, ordered / 1000);
    assert!(busy >= 16 && unordered * 8 < ordered, "{busy} dies, {unordered} ns, {ordered} ns");
}

/// A full drive goes on: everything written over and over.
#[test]
fn a_full_drive_still_works() {
    let mut flash: Flash<u64> = Flash::new(drive(5_000, 3, 8, 1010), Config::default()).unwrap();
    let mut random = 1;
    for round in 0..100_000u64 {
        let slot = draw(&mut random) % 5_000;
        flash.write(slot * 4096, 4096, false, 0, |_, _, _| round).unwrap();
        assert_eq!(flash.peek(slot as u32), Some(&round));
    }
}

/// 16 GiB that nobody has written to take a few MiB: what the process has resident grows by no more.
#[test]
fn an_empty_drive_is_thin() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let store = FlashStore::new(p3700().sized(16 << 30), Config::default(), 512).unwrap();
    let grown = resident().saturating_sub(before);
    println!("{} KiB", grown >> 10);
    assert!(store.capacity() == 16 << 30);
    assert!(grown < 64 << 20, "{grown} bytes; other tests run beside this one");
}
