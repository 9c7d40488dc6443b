//! Checks of truth: an engine whose times are known beforehand comes back as it is, in simulated time to the histogram's error at every
//! percentile, in real time to p99.9.

use nearside_clock::{Nanos, SimClock, TscClock};
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::run::{Pace, real, simulated};
use nearside_loadgen::{Arrivals, Outcome, PERCENTILES, Plan, Rw, Workload};

const SECOND: u64 = 1_000_000_000;
const PAUSE: u64 = 100_000_000;
const RATE: u64 = 10_000;

fn plan(ns: u64) -> Plan {
    let workload = Workload::new(Rw::RandRead, 4096, 1 << 30);
    Plan::new(workload, Arrivals::Constant { rate: RATE as f64 }, ns)
}

/// Every percentile within the histogram's error, three digits, of the sorted times.
fn same(outcome: &Outcome, mut expected: Vec<u64>) {
    expected.sort_unstable();
    let times = outcome.both().response;
    assert_eq!(times.count(), expected.len() as u64);
    for percent in PERCENTILES {
        let rank = (percent / 100.0 * expected.len() as f64).ceil() as usize;
        let truth = expected[rank.clamp(1, expected.len()) - 1];
        let found = times.percentile(percent).ns;
        assert!(found.abs_diff(truth) <= truth / 1000 + 1, "p{percent}: {found}, not {truth}");
    }
    let mean = expected.iter().sum::<u64>() as f64 / expected.len() as f64;
    assert!((times.mean_ns() - mean).abs() <= mean / 1000.0, "{} {mean}", times.mean_ns());
}

/// When operations are due: every 100 us, the first after one gap.
fn due(ns: u64) -> impl Iterator<Item = u64> {
    (1..).map(|n| n * (SECOND / RATE)).take_while(move |at| *at < ns)
}

/// A device that does nothing for the first 100 ms of every second.
fn paused(at: u64) -> u64 {
    if at % SECOND < PAUSE { at - at % SECOND + PAUSE } else { at }
}

#[test]
fn a_constant_time() {
    let mut null = Null::with_service(64, |_, now| now + 73_210);
    let outcome = simulated(&plan(5 * SECOND), &mut null, &SimClock::new()).unwrap();
    same(&outcome, due(5 * SECOND).map(|_| 73_210).collect());
}

#[test]
fn two_modes() {
    // One in 200 takes 5 ms, the others 20 us.
    let mut n = 0;
    let mut null = Null::with_service(128, move |_, now| {
        n += 1;
        now + if n % 200 == 0 { 5_000_000 } else { 20_000 }
    });
    let outcome = simulated(&plan(5 * SECOND), &mut null, &SimClock::new()).unwrap();
    same(
        &outcome,
        (1..=due(5 * SECOND).count()).map(|n| if n % 200 == 0 { 5_000_000 } else { 20_000 }).collect(),
    );
}

#[test]
fn a_pause_every_second_is_felt_by_all_that_was_due_in_it() {
    let mut null = Null::with_service(2_000, |_, now| Nanos(paused(now.0)) + 20_000);
    let outcome = simulated(&plan(5 * SECOND), &mut null, &SimClock::new()).unwrap();
    same(&outcome, due(5 * SECOND).map(|at| paused(at) + 20_000 - at).collect());
}

#[test]
fn a_pause_with_one_operation_in_flight_is_felt_by_all_that_queued_behind_it() {
    // The device takes one at a time: what a closed loop would see as one slow operation in a second is a tenth of all here.
    let mut null = Null::with_service(1, |_, now| Nanos(paused(now.0)) + 20_000);
    let outcome = simulated(&plan(5 * SECOND), &mut null, &SimClock::new()).unwrap();
    let mut free = 0;
    let expected = due(5 * SECOND).map(|at| {
        free = paused(free.max(at)) + 20_000;
        free - at
    });
    same(&outcome, expected.collect());
    assert!(outcome.both().service.percentile(99.0).ns < 20_100, "the service times alone do not show it");
    assert!(outcome.both().response.percentile(99.0).ns > 80_000_000);
}

/// In real time each percentile lies between the truth and the truth with what the machine took: its longest stall, and 50 us for
/// the steps of a busy one.
fn about(ran: &nearside_loadgen::run::Ran, mut expected: Vec<u64>) {
    expected.sort_unstable();
    let times = ran.outcome.both().response;
    for percent in [50.0, 90.0, 99.0, 99.9] {
        let rank = (percent / 100.0 * expected.len() as f64).ceil() as usize;
        let truth = expected[rank - 1];
        let found = times.percentile(percent).ns;
        let taken = if percent > 50.0 { ran.stalls.longest_ns } else { ran.stalls.longest_ns.min(1_000_000) };
        let (low, high) = (truth - truth / 50, truth + truth / 50 + 50_000 + 2 * taken);
        println!("p{percent}: {found} ns, truth {truth} ns, longest stall {} ns", ran.stalls.longest_ns);
        assert!((low..=high).contains(&found), "p{percent}: {found}, not {truth}; {:?}", ran.stalls);
    }
}

#[test]
fn known_times_in_real_time() {
    let clock = TscClock::new();
    let ns = 2 * SECOND;
    let mut constant = Null::with_service(2_000, |_, now| now + 73_000);
    let ran = real(&plan(ns), &mut constant, &clock, Pace::default()).unwrap();
    about(&ran, due(ns).map(|_| 73_000).collect());
    // The pause is reckoned from the first operation, which is due 100 us after the begin.
    let mut began = None;
    let mut pausing = Null::with_service(2_000, move |_, now: Nanos| {
        let began = *began.get_or_insert(now.0 - SECOND / RATE);
        Nanos(began + paused(now.0 - began)) + 20_000
    });
    let ran = real(&plan(ns), &mut pausing, &clock, Pace::default()).unwrap();
    about(&ran, due(ns).map(|at| paused(at) + 20_000 - at).collect());
}
