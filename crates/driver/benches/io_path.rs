//! The polled I/O path beside its floor: the drive's queue pairs and a bare shared-memory ring, in
//! turns, in one process, between the same two cores, over the same kinds of memory. Prints
//! medians of rounds, their ratio and their spread.
//!
//! `cargo bench -p nearside-driver --bench io_path` for figures; run without `--bench`, as `cargo test`
//! does, it makes a small run that only has to end. `FAST=1` shortens. `NEARSIDE_RECORD_FILE` names a file
//! to which figures are added as JSON lines.

mod common;

use common::polled::{Floor, Load, drive};
use common::{Figure, Random, Size, median, pin};
use nearside_clock::TscClock;
use nearside_device::{Config, runner::Rest};
use nearside_driver::{Controller, DmaBuffer, DriverConfig, Host, QueueConfig};
use nearside_embedded::Loopback;
use nearside_store::{Dram, Store};

const DEPTHS: [usize; 4] = [1, 4, 32, 128];

fn main() {
    let size = Size::from_environment();
    if common::is_alone() {
        eprintln!("LEFT OUT: two threads that spin for each other need two cores");
        return;
    }
    let bytes: u64 = size.pick(64 << 20, 1 << 30, 1 << 30);
    let rounds = size.pick(2, 5, 15);
    let clock = TscClock::new();

    pin(0);
    let store = Dram::new(bytes, 512).unwrap();
    let config = Config { lba_size: 512, ..Config::default() };
    let rest = Rest { idle_ns: 50_000, ..Rest::default() };
    let mut loop_drive = Loopback::threaded(store.clone(), (), config, rest).unwrap();
    let mut floor = Floor::start(bytes as usize);
    pin(1);

    let driver = loop_drive.driver(DriverConfig::default(), &clock).unwrap();
    let queue = QueueConfig { depth: 128, interrupt: false };
    let mut queue = driver.queue(queue, &mut Host::threaded(&clock)).unwrap();
    let mut buffers: Vec<DmaBuffer> = (0..128).map(|_| driver.pool().zeroed(4096).unwrap()).collect();
    assert_eq!(store.capacity(), bytes);
    common::fill(&mut queue, &driver, bytes, &clock);

    let mut random = Random::new(7);
    println!(
        "{:<28} {:>12} {:>12} {:>7} {:>7} {:>16}",
        "polled, random, DRAM store", "drive", "bare ring", "ratio", "target", "spread of ratios"
    );
    let mut figures = Vec::new();
    for (bytes_each, write) in [(4096, false), (4096, true), (512, false), (512, true)] {
        for depth in DEPTHS {
            let count = size.pick(500, 60_000, 200_000) * if depth == 1 { 1 } else { 2 };
            let load = Load { write, bytes: bytes_each, depth, count, blocks: bytes / bytes_each as u64 };
            let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let mut x = drive(&mut queue, &load, &mut random, &clock, &mut a, &mut buffers);
                let mut y = floor.run(&load, &mut random, &clock, &mut b);
                if depth == 1 {
                    // Response time: nanoseconds, less is better.
                    (x, y) = (common::median_of(&mut a), common::median_of(&mut b));
                }
                ours.push(x);
                theirs.push(y);
                ratios.push(x / y);
            }
            let name = format!("{} {bytes_each} QD{depth}", if write { "write" } else { "read" });
            let target = match (bytes_each, depth) {
                (4096, 1) => "<=1.25",
                (4096, 32) => ">=0.70",
                (512, 32) if !write => ">=0.50",
                _ => "",
            };
            let unit = if depth == 1 { "ns" } else { "M/s" };
            ratios.sort_by(f64::total_cmp);
            let spread = (ratios[0], ratios[ratios.len() - 1]);
            let (x, y, ratio) = (median(&mut ours), median(&mut theirs), median(&mut ratios));
            println!(
                "{name:<28} {x:>9.2} {unit:<3} {y:>8.2} {unit:<3} {ratio:>7.2} {target:>7} {:>7.2} .. {:<7.2}",
                spread.0, spread.1
            );
            figures.push(Figure {
                name,
                value: x,
                unit,
                beside: "bare ring",
                beside_value: y,
                ratio,
                runs: rounds,
                spread,
            });
        }
    }
    common::record(&figures);
    driver.delete(queue, &mut Host::threaded(&clock), drop).unwrap();
}
