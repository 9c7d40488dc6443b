//! The generator's own cost with the engine that does nothing, the rate that an open loop holds on one core,
//! and its times of a file beside fio's.
//!
//! `cargo bench -p nearside-loadgen --bench generator` for figures; run without `--bench`, as
//! `cargo test` does, it makes a small run. `FAST=1` shortens. `NEARSIDE_RECORD_FILE` names a file
//! to which figures are added as JSON lines.

#[path = "../tests/beside_fio/mod.rs"]
mod beside_fio;

use std::hint::black_box;
use std::io::Write;

use nearside_clock::{Clock, SimClock, TscClock};
use nearside_dma::cpu::{allowed_cores, pin_to_core, thread_cpu_ns};
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::record::Figure;
use nearside_loadgen::run::{Pace, real, simulated};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload, cost};

fn plan(arrivals: Arrivals, ns: u64) -> Plan {
    Plan::new(Workload::new(Rw::RandRead, 4096, 1 << 30), arrivals, ns)
}

fn main() {
    let full = std::env::args().any(|a| a == "--bench");
    let fast = std::env::var_os("FAST").is_some();
    let (rounds, ns) = match (full, fast) {
        (false, _) => (2, 5_000_000),
        (true, true) => (3, 300_000_000),
        (true, false) => (7, 1_000_000_000),
    };
    if let Some(&last) = allowed_cores().unwrap_or_default().last() {
        let _ = pin_to_core(last);
    }
    let clock = TscClock::new();
    let mut figures = Vec::new();

    let reads = 1_000_000;
    let read_ns = |_| {
        let begin = clock.now();
        (0..reads).for_each(|_| _ = black_box(clock.now()));
        clock.now().since(begin) as f64 / f64::from(reads)
    };
    let floor = Figure::of("clock read", "ns", &(0..rounds).map(read_ns).collect::<Vec<_>>());

    let costs: Vec<f64> = (0..rounds).map(|_| cost::measure(&clock).ns_per_io).collect();
    figures.push(floor.clone());
    figures.push(Figure::of("generator: cost of an operation, null engine", "ns", &costs).beside(&floor));

    open_loop(&mut figures, rounds, ns, &clock);

    let simulated_ns: Vec<f64> = (0..rounds)
        .map(|_| {
            let plan = plan(Arrivals::Poisson { rate: 100_000.0 }, 5 * ns);
            let mut null = Null::with_service(128, |_, now| now + 8_000);
            // By the thread's own time: nothing here waits for a clock.
            let begin = thread_cpu_ns().unwrap();
            let outcome = simulated(&plan, &mut null, &SimClock::new()).unwrap();
            (thread_cpu_ns().unwrap() - begin) as f64 / outcome.streams[0].offered as f64
        })
        .collect();
    figures.push(Figure::of("generator: cost of an operation, simulated time", "ns", &simulated_ns));

    let fio =
        std::process::Command::new("fio").arg("--version").output().is_ok_and(|out| out.status.success());
    if full && fio {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (path, direct) = beside_fio::target(folder.path());
        let pairs: Vec<(f64, f64)> =
            (0..rounds).map(|_| beside_fio::round(&path, direct, if fast { 1_000 } else { 3_000 })).collect();
        let figure = |name: &str, of: fn(&(f64, f64)) -> f64| {
            let kind = if direct { "O_DIRECT" } else { "buffered" };
            let name = format!("{name}: reads of 4 KiB at 2 k/s, positioned, {kind}: median");
            Figure::of(&name, "ns", &pairs.iter().map(of).collect::<Vec<_>>())
        };
        let theirs = figure("fio", |pair| pair.1);
        figures.push(figure("generator", |pair| pair.0).beside(&theirs));
        figures.push(theirs);
    }

    report(&figures);
}

fn open_loop(figures: &mut Vec<Figure>, rounds: usize, ns: u64, clock: &TscClock) {
    for (arrivals, name) in [
        (Arrivals::Constant { rate: 1e6 }, "constant arrivals"),
        (Arrivals::Poisson { rate: 1e6 }, "Poisson arrivals"),
        (Arrivals::Constant { rate: 2e6 }, "constant arrivals"),
        (Arrivals::Poisson { rate: 2e6 }, "Poisson arrivals"),
    ] {
        let rate = arrivals.rate().unwrap_or(0.0);
        let (mut reached, mut medians) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let ran = real(&plan(arrivals, ns), &mut Null::new(128), clock, Pace::default()).unwrap();
            let stream = &ran.outcome.streams[0];
            // What was due is drawn; what ended in the window must be that,
            // less what is in flight at its end.
            reached.push(stream.ended_within as f64 / stream.offered as f64 * 100.0);
            medians.push(ran.outcome.both().response.percentile(50.0).ns as f64);
        }
        let million = rate / 1e6;
        figures.push(Figure::of(&format!("open loop at {million} M/s, {name}: sent in time"), "%", &reached));
        figures.push(Figure::of(
            &format!("open loop at {million} M/s, {name}: median response"),
            "ns",
            &medians,
        ));
    }
}

fn report(figures: &[Figure]) {
    for figure in figures {
        let [low, high] = figure.spread;
        println!("{:<70} {:>10.3} {:<3} ({low:.3} to {high:.3})", figure.name, figure.value, figure.unit);
    }
    if let Some(path) = std::env::var_os("NEARSIDE_RECORD_FILE") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        for figure in figures {
            writeln!(file, "{}", serde_json::to_string(figure).unwrap()).unwrap();
        }
    }
}
