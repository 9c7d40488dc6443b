//! The whole certification in simulated time, on devices of which the answer is known.

use std::convert::Infallible;

use nearside_clock::{Nanos, SimClock};
use nearside_instrument::act::{Failed, Load, Profile, Report, Rule, largest};
use nearside_loadgen::engine::{Done, Engine, Io, Next, Submit};
use nearside_loadgen::run::simulated;

/// One server: each operation takes `base_ns` and `ns_per_kib`, one after another.
struct Server {
    busy: Nanos,
    base_ns: u64,
    ns_per_kib: u64,
    out: std::collections::VecDeque<(Nanos, u32)>,
}

impl Engine for Server {
    fn depth(&self) -> usize {
        4096
    }
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        self.busy = self.busy.max(now) + self.base_ns + u64::from(io.len) * self.ns_per_kib / 1024;
        self.out.push_back((self.busy, io.token));
        Submit::Taken
    }
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(&(at, token)) = self.out.front()
            && at <= now
        {
            self.out.pop_front();
            done.push(Done { token, at, result: Ok(()) });
        }
    }
    fn next(&self) -> Next {
        self.out.front().map_or(Next::Idle, |(at, _)| Next::At(*at))
    }
}

fn run(multiple: u32, seconds: u64, base_ns: u64) -> Report {
    let load = Load::times(Profile::Pieee17, multiple);
    let plan = load.plan(1 << 30, 512, seconds * 1_000_000_000, 1_000_000_000, 7).unwrap();
    let mut server = Server { busy: Nanos(0), base_ns, ns_per_kib: 100, out: Default::default() };
    let outcome = simulated(&plan, &mut server, &SimClock::new()).unwrap();
    Report::of(&outcome, load.max_lag_ns)
}

#[test]
fn every_second_is_a_slice_and_has_its_reads() {
    let report = run(2, 3, 10_000);
    assert_eq!(report.slices.len(), 3);
    // 2,000 a second, drawn: within four standard deviations.
    let reads: u64 = report.slices.iter().map(|s| s.reads).sum();
    assert!(reads.abs_diff(6000) < 4 * 78, "{reads}");
    assert_eq!(Rule::standard().judge(&report), Ok(()));
}

#[test]
fn a_server_passes_until_it_is_full() {
    // A multiple costs 1,000 reads of 10.15 us and 23.4 large ones of 22.8 us a second: 10.7 ms.
    // 93 of them fill the second.
    let find = |rule: &Rule| largest::<Infallible>(1, 400, |m| Ok(rule.judge(&run(m, 4, 10_000)))).unwrap();
    let standard = find(&Rule::standard());
    assert!((88..=94).contains(&standard.multiple), "{standard:?}");
    assert!(!standard.at_least);
    assert!(find(&Rule::tightened()).multiple <= standard.multiple);
    // Reads of 130 us pass the standard rule, never the tightened one.
    assert!(matches!(Rule::tightened().judge(&run(1, 1, 130_000)), Err(Failed::Above { ns: 128_000, .. })));
    assert_eq!(Rule::standard().judge(&run(1, 1, 130_000)), Ok(()));
}

#[test]
fn a_drive_that_falls_behind_fails() {
    let report = run(400, 4, 10_000);
    assert!(Rule::standard().judge(&report).is_err());
    let again = run(400, 4, 10_000);
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&again).unwrap());
}
