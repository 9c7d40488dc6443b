//! The whole certification in simulated time, on devices of which the answer is known.

use std::convert::Infallible;

use nearside_clock::{Nanos, SimClock};
use nearside_instrument::act::config::Config;
use nearside_instrument::act::{Failed, Load, Profile, Report, Rule, Table, largest};
use nearside_loadgen::engine::{Done, Engine, Io, Next, Submit};
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Generator, Wake};

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
    let outcome = simulated(&plan, &mut server(base_ns), &SimClock::new()).unwrap();
    Report::of(&outcome, load.max_lag_ns)
}

fn server(base_ns: u64) -> Server {
    Server { busy: Nanos(0), base_ns, ns_per_kib: 100, out: Default::default() }
}

fn of_file(keys: &str, seconds: u64) -> Report {
    let text = format!("device-names: /dev/a\ntest-duration-sec: {seconds}\n{keys}");
    let load = Config::parse(&text).unwrap().load;
    let plan = load.plan(1 << 30, 512, seconds * 1_000_000_000, 1_000_000_000, 7).unwrap();
    Report::of(&simulated(&plan, &mut server(10_000), &SimClock::new()).unwrap(), load.max_lag_ns)
}

fn table<'a>(report: &'a Report, name: &str) -> &'a Table {
    report.tables.iter().find(|table| table.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn count(report: &Report, name: &str) -> u64 {
    table(report, name).io.iter().map(|slice| slice.count).sum()
}

#[test]
fn every_second_is_a_slice_and_has_its_reads() {
    let report = run(2, 3, 10_000);
    assert_eq!(report.tables[0].io.len(), 3);
    // 2,000 a second, drawn: within four standard deviations.
    let reads: u64 = report.tables[0].io.iter().map(|s| s.count).sum();
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

#[test]
fn a_file_has_the_operations_that_it_asks_for() {
    let report = of_file(
        "read-reqs-per-sec: 2000\nwrite-reqs-per-sec: 1000\ncommit-to-device: yes\n\
         tomb-raider: yes\ntomb-raider-sleep-usec: 9990\n",
        4,
    );
    // Drawn: within four standard deviations. Large ones come one every 1 / rate seconds: 23.53 and 11.76 x 4
    // s.
    assert!(count(&report, "reads").abs_diff(8000) < 4 * 90);
    assert!(count(&report, "writes").abs_diff(4000) < 4 * 64);
    assert_eq!((count(&report, "large-block-reads"), count(&report, "large-block-writes")), (94, 47));
    // Each waits 9.99 ms after the one before, which takes 22.8 us, and more behind others.
    let raided = count(&report, "tomb-raider");
    assert!((380..=400).contains(&raided), "{raided}");
    let judged = |name| table(&report, name).judged;
    assert!(judged("reads") && judged("writes") && !judged("large-block-reads") && !judged("tomb-raider"));
    assert_eq!(Rule::standard().judge(&report), Ok(()));
}

#[test]
fn large_operations_alone_are_a_stress_test() {
    let report = of_file("write-reqs-per-sec: 1000\nno-defrag-reads: yes\n", 2);
    assert_eq!(report.tables.len(), 1);
    assert_eq!(count(&report, "large-block-writes"), 47);
    assert_eq!(report.completes(), Ok(()));
    assert_eq!(Rule::standard().judge(&report), Err(Failed::NothingJudged));
}

#[test]
fn a_drive_that_cannot_keep_up_fails_unless_lag_does_not_matter() {
    // A server of 100,000 reads a second at most, offered twice that.
    let keys = "read-reqs-per-sec: 200000\n";
    let failed = of_file(keys, 1).completes();
    assert!(matches!(failed, Err(Failed::NotKept { percent }) if percent > 40.0), "{failed:?}");
    assert_eq!(of_file(&format!("{keys}max-lag-sec: 0\n"), 1).completes(), Ok(()));
    // In four seconds it is more than one behind.
    let lag = of_file(&format!("{keys}max-lag-sec: 1\n"), 4).completes();
    assert!(matches!(lag, Err(Failed::Behind { unsent: 1.., .. })), "{lag:?}");
}

#[test]
fn a_host_that_stalls_does_not_look_like_a_bad_drive() {
    // The host is away for 20 ms of each 100.
    let load = Load::times(Profile::Pieee17, 1);
    let plan = load.plan(1 << 30, 512, 2_000_000_000, 1_000_000_000, 7).unwrap();
    let (mut now, mut server) = (Nanos(0), server(10_000));
    let mut generator = Generator::new(&plan, server.depth(), now).unwrap();
    while generator.step(now, &mut server).wake != Wake::Over {
        let step = if now.0 % 100_000_000 >= 80_000_000 { 20_000_000 } else { 10_000 };
        now = now + step;
    }
    let report = Report::of(&generator.outcome(), load.max_lag_ns);
    let reads = table(&report, "reads");
    for (io, due) in reads.io.iter().zip(&reads.due) {
        assert_eq!(report.percent_above(io, 1_000_000), 0.0);
        let waited = report.percent_above(due, 1_000_000);
        assert!((14.0..24.0).contains(&waited), "of 20 ms, 19 are above 1 ms: {waited}");
    }
    assert_eq!(Rule::tightened_caption().judge(&report), Ok(()));
    assert!(report.text(&[], false).contains("reads-from-due"));
}
