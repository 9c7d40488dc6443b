//! The polled I/O path to a drive in another process, over vfio-user, beside the same drive in this process
//! and a bare shared-memory ring, in turns, between the same two cores. And what an idle client costs.
//!
//! `cargo bench -p nearside-driver --bench vfio_user` for figures; run without `--bench`, as `cargo test`
//! does, it makes a small run that only has to end. `FAST=1`, `NEARSIDE_RECORD_FILE`: as in io_path.rs.
//! `MAPPED=1` maps the doorbells instead of keeping shadow ones.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::polled::{Floor, Load, drive};
use common::{Figure, Random, Size, median, pin};
use nearside_clock::{Clock, TscClock};
use nearside_device::{Config, Namespace, Subsystem, runner::Rest};
use nearside_dma::cpu::CpuClock;
use nearside_driver::{Controller, DmaBuffer, Driver, DriverConfig, Host, QueueConfig, QueuePair};
use nearside_embedded::Loopback;
use nearside_front_vfio::{Offer, Server};
use nearside_store::Dram;

/// Where the other process serves, and how many bytes.
const SERVE: &str = "NEARSIDE_BENCH_SERVE";

/// The other process: serves until its input ends, and says what it has used whenever it is asked.
fn serve(words: &str) {
    let (bytes, path) = words.split_once(' ').unwrap();
    pin(0);
    let dram = Dram::new(bytes.parse().unwrap(), 512).unwrap();
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(dram, (), 512, [7; 16], true).unwrap())).unwrap();
    let offer = Offer::new("nqn.2026-11.com.example:bench", "BENCH", subsystem);
    let mapped_doorbells = std::env::var_os("MAPPED").is_some();
    let server = Server::start(Offer { mapped_doorbells, ..offer }, Path::new(path), TscClock::new());
    let _server = server.unwrap();
    println!("ready");
    for line in std::io::stdin().lines() {
        line.unwrap();
        println!("{}", CpuClock::process().now_ns().unwrap());
    }
}

struct Other {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(bytes: u64, socket: &Path) -> Other {
        let mut process = Process::new(std::env::current_exe().unwrap());
        process.env(SERVE, format!("{bytes} {}", socket.display()));
        let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut other = Other { said: BufReader::new(child.stdout.take().unwrap()), child };
        assert_eq!(other.line(), "ready");
        other
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Its CPU time so far, in nanoseconds.
    fn cpu_ns(&mut self) -> u64 {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
        self.line().parse().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A driver with a polled queue and buffers for it, over a drive that was written once.
struct Way {
    driver: Driver,
    queue: QueuePair,
    buffers: Vec<DmaBuffer>,
}

impl Way {
    fn new(driver: Driver, bytes: u64, clock: &TscClock) -> Way {
        let config = QueueConfig { depth: 128, interrupt: false };
        let mut queue = driver.queue(config, &mut Host::threaded(clock)).unwrap();
        let buffers = (0..128).map(|_| driver.pool().zeroed(4096).unwrap()).collect();
        common::fill(&mut queue, &driver, bytes, clock);
        Way { driver, queue, buffers }
    }

    /// Response time of one at a time in nanoseconds, else millions a second.
    fn run(&mut self, load: &Load, random: &mut Random, clock: &TscClock) -> f64 {
        let mut latencies = Vec::new();
        let rate = drive(&mut self.queue, load, random, clock, &mut latencies, &mut self.buffers);
        if load.depth == 1 { common::median_of(&mut latencies) } else { rate }
    }
}

/// One figure beside another, by the rounds of both.
fn figure(name: &str, unit: &'static str, ours: &[f64], beside: &'static str, theirs: &[f64]) -> Figure {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    let ratio = median(&mut ratios);
    Figure {
        name: name.to_owned(),
        value: median(&mut ours.to_vec()),
        unit,
        beside,
        beside_value: median(&mut theirs.to_vec()),
        ratio,
        runs: ours.len(),
        spread: (ratios[0], ratios[ratios.len() - 1]),
    }
}

/// What part of a core both processes use while nobody asks for anything, in percent.
fn idle(other: &mut Other, clock: &TscClock, size: Size) -> f64 {
    let used = |other: &mut Other| other.cpu_ns() + CpuClock::process().now_ns().unwrap();
    let (before, begun) = (used(other), clock.now());
    std::thread::sleep(size.pick(Duration::from_millis(200), Duration::from_secs(2), Duration::from_secs(5)));
    let spent = used(other) - before;
    100.0 * spent as f64 / clock.now().since(begun) as f64
}

fn main() {
    if let Ok(words) = std::env::var(SERVE) {
        return serve(&words);
    }
    let size = Size::from_environment();
    if common::is_alone() {
        eprintln!("LEFT OUT: two processes that spin for each other need two cores");
        return;
    }
    let bytes: u64 = size.pick(64 << 20, 1 << 30, 1 << 30);
    let (rounds, clock) = (size.pick(2, 7, 15), TscClock::new());
    let folder = tempfile::tempdir().unwrap();
    let mut other = Other::start(bytes, &folder.path().join("socket"));
    pin(0);
    let store = Dram::new(bytes, 512).unwrap();
    let config = Config { lba_size: 512, ..Config::default() };
    let mut here = Loopback::threaded(store, (), config, Rest::default()).unwrap();
    let mut floor = Floor::start(bytes as usize);
    pin(1);
    let within = here.driver(DriverConfig::default(), &clock).unwrap();
    let mut within = Way::new(within, bytes, &clock);
    let socket = folder.path().join("socket");
    let driver = Driver::connect(&socket, DriverConfig::default(), clock).unwrap();
    let mut there = Way::new(driver, bytes, &clock);

    let (mut random, mut figures) = (Random::new(7), Vec::new());
    for (write, depth) in [(false, 1), (true, 1), (false, 32), (true, 32)] {
        let count = size.pick(500, 60_000, 200_000) * if depth == 1 { 1 } else { 2 };
        let load = Load { write, bytes: 4096, depth, count, blocks: bytes / 4096 };
        let (mut ours, mut same, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        let told = there.driver.messages();
        for _ in 0..rounds {
            ours.push(there.run(&load, &mut random, &clock));
            same.push(within.run(&load, &mut random, &clock));
            let mut latencies = Vec::new();
            let rate = floor.run(&load, &mut random, &clock, &mut latencies);
            bare.push(if depth == 1 { common::median_of(&mut latencies) } else { rate });
        }
        let told = there.driver.messages() - told;
        let (name, unit) = (if write { "write" } else { "read" }, if depth == 1 { "ns" } else { "M/s" });
        let name = format!("vfio-user: {name} 4096 QD{depth}");
        figures.push(figure(&name, unit, &ours, "the same in one process", &same));
        figures.push(figure(&format!("{name} / bare ring"), unit, &ours, "bare ring", &bare));
        eprintln!("{name}: {told} messages for {} commands", rounds * count);
    }
    let quiet: Vec<f64> = (0..3).map(|_| idle(&mut other, &clock, size)).collect();
    figures.push(figure(
        "vfio-user: idle client and drive",
        "% of a core",
        &quiet,
        "a hundredth of a core",
        &[1.0; 3],
    ));
    for f in &figures {
        let (from, to) = f.spread;
        println!(
            "{:<44} {:>9.3} {:<12} {:>9.3} {:<24} ratio {:.3} ({from:.3} .. {to:.3})",
            f.name, f.value, f.unit, f.beside_value, f.beside, f.ratio
        );
    }
    common::record(&figures);
}
