//! How fast simulated time passes: I/Os of a simulation per second of CPU time, through the whole drive and
//! over the medium alone, without payload.
//!
//! `cargo bench -p nearside-sim --bench speed` for figures; run without `--bench`, as
//! `cargo test` does, it makes a small run. `FAST=1` shortens. `NEARSIDE_RECORD_FILE` names a
//! file to which figures are added as JSON lines.

use std::io::Write;

use nearside_clock::SimClock;
use nearside_dma::cpu::thread_cpu_ns;
use nearside_ftl::{Config, Flash};
use nearside_loadgen::record::Figure;
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Arrivals, Outcome, Plan, Rw, Workload};
use nearside_media::nand::p3700;
use nearside_media::{AnyMedium, Medium};
use nearside_sim::{Bare, Drive, DriveConfig};
use nearside_store::{Modelled, Null};

const SIZE: u64 = 4 << 30;

/// Million I/Os per second of this thread's CPU time: other programs may share the core.
fn rate(run: impl FnOnce() -> Outcome) -> f64 {
    let begin = thread_cpu_ns().unwrap_or(0);
    let outcome = run();
    let took = (thread_cpu_ns().unwrap_or(0) - begin) as f64 / 1e9;
    outcome.both().response.count() as f64 / took / 1e6
}

/// 70 % reads and 30 % writes of 4 KiB, Poisson arrivals.
fn plan(rate: f64, count: u64) -> Plan {
    let workload = Workload { rwmixread: 70, ..Workload::new(Rw::RandRw, 4096, SIZE) };
    let mut plan = Plan::new(workload, Arrivals::Poisson { rate }, 0);
    (plan.runtime_ns, plan.count, plan.seed) = (None, Some(count), 7);
    plan
}

fn figures(name: &str, medium: impl Medium + Clone, offered: f64, count: u64, rounds: usize) -> [Figure; 2] {
    let plan = plan(offered, count);
    let (mut whole, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let store = Modelled::new(Null::new(SIZE, 512).expect("a size"), medium.clone());
        let config = DriveConfig { largest: 4096, ..DriveConfig::default() };
        let mut drive = Drive::new(store, &config, SimClock::new()).expect("a drive");
        whole.push(rate(|| drive.run(&plan).expect("a plan")));
        let mut alone = Bare::new(medium.clone(), 1024);
        bare.push(rate(|| simulated(&plan, &mut alone, &SimClock::new()).expect("a plan")));
    }
    let bare = Figure::of(&format!("simulated time, {name}: the medium alone"), "M/s", &bare);
    let whole = Figure::of(&format!("simulated time, {name}: drive, driver and generator"), "M/s", &whole);
    [whole.beside(&bare), bare]
}

fn main() {
    let full = std::env::args().any(|a| a == "--bench");
    let fast = std::env::var_os("FAST").is_some_and(|v| !v.is_empty());
    let (count, rounds) = match (full, fast) {
        (false, _) => (2_000, 1),
        (true, true) => (1_000_000, 3),
        (true, false) => (4_000_000, 7),
    };
    let xpoint = AnyMedium::parse("optane-p4800x").expect("a preset");
    let mut flash: Flash<()> = Flash::new(p3700().sized(SIZE), Config::default()).expect("a preset");
    if full {
        // Garbage collection then goes on under the load.
        flash.precondition(1.0, 1);
    }
    let mut all = Vec::from(figures("XPoint", xpoint, 440_000.0, count, rounds));
    all.extend(figures("NAND with FTL", flash, 150_000.0, count, rounds));
    for figure in &all {
        let [low, high] = figure.spread;
        println!("{:<60} {:>8.3} {} ({low:.3} to {high:.3})", figure.name, figure.value, figure.unit);
    }
    if let Some(path) = std::env::var_os("NEARSIDE_RECORD_FILE") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("the record");
        for figure in all {
            writeln!(file, "{}", serde_json::to_string(&figure).expect("plain data")).expect("the record");
        }
    }
}
