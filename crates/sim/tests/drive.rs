//! The whole drive on simulated time: its times are the medium's, and the same seed gives the same bytes.

use nearside_clock::SimClock;
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Arrivals, Outcome, Plan, Rw, Summary, Workload};
use nearside_media::Delay;
use nearside_sim::{Bare, Drive, DriveConfig};
use nearside_store::{Dram, Modelled, Null, Store};

const SIZE: u64 = 1 << 30;

/// Seven units, so that operations wait for each other; one in a thousand stalls.
fn medium() -> nearside_media::Parametric {
    Delay { per_kib_ns: 300, stall_every: 1000, stall_ns: 400_000, ..Delay::units(7, 6_000) }.medium()
}

fn plan(arrivals: Arrivals, seed: u64) -> Plan {
    let workload = Workload { rwmixread: 70, ..Workload::new(Rw::RandRw, 4096, SIZE) };
    let workload = Workload { bs: vec![(4096, 9), (16384, 1)], ..workload };
    Plan { seed, ..Plan::new(workload, arrivals, 50_000_000) }
}

fn whole<S: Store>(store: S, plan: &Plan) -> Outcome {
    let mut drive = Drive::new(store, &DriveConfig::default(), SimClock::new()).unwrap();
    let outcome = drive.run(plan).unwrap();
    drive.shut_down().unwrap();
    outcome
}

/// All that was measured, as text: the record, and every histogram to its last bucket.
fn text(plan: &Plan, outcome: &Outcome) -> String {
    let mut lines = Summary::simulated("a drive", "sim", plan, outcome).to_line() + "\n";
    for stream in &outcome.streams {
        for (name, tally) in [("reads", &stream.reads), ("writes", &stream.writes)] {
            let response: Vec<_> = tally.response.buckets().collect();
            let service: Vec<_> = tally.service.buckets().collect();
            lines += &format!("{name} {response:?} {service:?}\n");
        }
    }
    lines
}

/// Equal, or the place where they part: the texts are long.
fn same(a: &str, b: &str, what: &str) {
    let at = a.bytes().zip(b.bytes()).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let around =
        |s: &str| s.get(at.saturating_sub(60)..(at + 60).min(s.len())).unwrap_or_default().to_owned();
    assert!(a == b, "{what}: from byte {at}: ...{}... against ...{}...", around(a), around(b));
}

#[test]
fn its_times_are_the_mediums() {
    for arrivals in [Arrivals::Poisson { rate: 700_000.0 }, Arrivals::Closed { depth: 32 }] {
        let plan = plan(arrivals, 7);
        let drive = whole(Modelled::new(Null::new(SIZE, 512).unwrap(), medium()), &plan);
        let clock = SimClock::new();
        let bare = simulated(&plan, &mut Bare::new(medium(), 1024), &clock).unwrap();
        assert!(drive.both().response.count() > 20_000, "{}", drive.both().response.count());
        assert_eq!(drive.errors(), 0);
        same(&text(&plan, &drive), &text(&plan, &bare), &format!("{arrivals:?}"));
    }
}

#[test]
fn payload_takes_no_simulated_time() {
    let plan = plan(Arrivals::Poisson { rate: 300_000.0 }, 3);
    let without = whole(Modelled::new(Null::new(SIZE, 512).unwrap(), medium()), &plan);
    let with = whole(Modelled::new(Dram::new(SIZE, 512).unwrap(), medium()), &plan);
    same(&text(&plan, &with), &text(&plan, &without), "with and without payload");
}

#[test]
fn what_is_beyond_the_drive_is_an_error_and_no_hang() {
    let store = Modelled::new(Null::new(SIZE / 2, 512).unwrap(), medium());
    let plan = Plan { stop_on_error: false, ..plan(Arrivals::Closed { depth: 4 }, 1) };
    let outcome = whole(store, &plan);
    let all = outcome.errors() + outcome.both().response.count();
    assert!((0.45..0.55).contains(&(outcome.errors() as f64 / all as f64)), "{}", outcome.errors());
    let mut odd = plan.clone();
    odd.streams[0].workload.bs = vec![(1000, 1)];
    let outcome =
        whole(Modelled::new(Null::new(SIZE, 512).unwrap(), medium()), &Plan { count: Some(10), ..odd });
    assert_eq!(outcome.errors(), 10);
}

/// The process prints its result where it was asked to by another.
const CHILD: &str = "NEARSIDE_SIM_CHILD";

#[test]
fn the_same_seed_gives_the_same_bytes_in_two_runs_and_two_processes() {
    let run = |seed| {
        let store = Modelled::new(Null::new(SIZE, 512).unwrap(), medium());
        let plan = plan(Arrivals::Poisson { rate: 600_000.0 }, seed);
        text(&plan, &whole(store, &plan))
    };
    let here = run(11);
    if std::env::var_os(CHILD).is_some() {
        println!("<<<{here}>>>");
        return;
    }
    same(&run(11), &here, "two runs");
    assert!(run(12) != here, "another seed, another run");
    let name = "the_same_seed_gives_the_same_bytes_in_two_runs_and_two_processes";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let out = String::from_utf8(child.stdout).unwrap();
    let there = out.split_once("<<<").and_then(|(_, rest)| rest.split_once(">>>")).unwrap().0;
    same(there, &here, "two processes");
}
