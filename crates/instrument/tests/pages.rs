//! The pages and tables of curves whose distribution is known, in simulated time, and the page of a
//! certification; as Chromium shows them.

use std::collections::BTreeMap;

use nearside_clock::SimClock;
use nearside_conformance::browser::{Shown, shows};
use nearside_instrument::act::{self, Certified, Largest, Report, Rule, Slice, Table, largest};
use nearside_instrument::{Curve, Point, page, table};
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Arrivals, Plan, Rw, Summary, Workload};

/// A device with eight places, each busy for `service_ns`;
/// one operation in a thousand takes twenty times as long.
fn device(service_ns: u64) -> Null {
    let (mut free_at, mut count) = ([0u64; 8], 0u64);
    Null::with_service(512, move |io, now| {
        count += 1;
        let place = &mut free_at[(io.offset / 4096 % 8) as usize];
        let busy = if count.is_multiple_of(1_000) { 20 * service_ns } else { service_ns };
        *place = (*place).max(now.0) + busy;
        nearside_clock::Nanos(*place)
    })
}

fn point(service_ns: u64, arrivals: Arrivals, count: u64) -> Point {
    let workload = Workload::new(Rw::RandRead, 4096, 1 << 30);
    let mut plan = Plan { slice_ns: 10_000_000, ..Plan::new(workload, arrivals, 0) };
    (plan.runtime_ns, plan.count) = (None, Some(count));
    let outcome = simulated(&plan, &mut device(service_ns), &SimClock::new()).unwrap();
    let summary = Summary::simulated("a device that is known", "null", &plan, &outcome);
    Point::new(summary, outcome.both().response)
}

fn curve(name: &str, service_ns: u64) -> Curve {
    let most = 8e9 / service_ns as f64;
    let depths =
        [1, 2, 4, 8, 16, 32, 64, 128].map(|depth| point(service_ns, Arrivals::Closed { depth }, 20_000));
    let load = |tenths: u32| Arrivals::Poisson { rate: most * f64::from(tenths) / 10.0 };
    let loads = (1..=9).map(|tenths| point(service_ns, load(tenths), 100_000)).collect();
    let notes = vec!["a sentence that the reader should know".to_owned()];
    Curve { name: name.to_owned(), depths: depths.into(), loads, knee: Some(0.9 * most), steady: None, notes }
}

fn check(test: &str, name: &str, html: &str, pictures: usize, tables: usize) {
    if let Some(keep) = std::env::var_os("NEARSIDE_KEEP_PAGES") {
        std::fs::write(std::path::Path::new(&keep).join(name), html).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    if let Some(shown) = shows(test, html, folder.path()) {
        assert_eq!(shown, Shown { pictures, tables });
    }
}

#[test]
fn a_browser_shows_one_curve() {
    let html = page("Response time against load", &[curve("model:optane-p4800x:16GiB", 10_000)]);
    check("instrument::a_browser_shows_one_curve", "one.html", &html, 5, 2);
}

#[test]
fn a_browser_shows_two_curves() {
    let curves = [curve("model:optane-p4800x:16GiB", 10_000), curve("uring-iopoll:/dev/nvme0n1", 100_000)];
    let html = page("Two targets", &curves);
    check("instrument::a_browser_shows_two_curves", "two.html", &html, 5, 4);
}

#[test]
fn a_browser_shows_many_curves() {
    let name = |i: u64| format!("model:nand-p3700,overprovision={i}0:1TiB, interrupt completion");
    let curves: Vec<Curve> = (1..=5).map(|i| curve(&name(i), 20_000 * i)).collect();
    let html = page("Many targets", &curves);
    check("instrument::a_browser_shows_many_curves", "many.html", &html, 7, 10);
}

#[test]
fn a_page_of_what_little_was_measured() {
    let loads = vec![point(10_000, Arrivals::Constant { rate: 1_000.0 }, 3)];
    let little = Curve { name: "stopped early".to_owned(), loads, ..Curve::default() };
    assert!(page("Nothing", &[Curve::default()]).contains("</html>"));
    let html = page("Little", &[little]);
    let own = html.split("<script type=\"text/javascript\">").next().unwrap();
    assert!(!own.contains("knee"), "one load has none");
    check("instrument::a_page_of_what_little_was_measured", "little.html", &html, 3, 2);
}

#[test]
fn tables_mark_what_rests_on_few_samples() {
    let curve = curve("known", 10_000);
    let text = table::curve(&curve);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("load") && lines[0].ends_with("p99.999"), "{text}");
    assert_eq!(lines.len(), 1 + 8 + 9 + 1, "{text}");
    // 100,000 samples leave one beyond the fifth nine.
    assert!(lines[9..18].iter().all(|line| line.ends_with('?')), "{text}");
    assert!(lines[18].contains("knee at 720 k"), "{text}");
    let text = table::run(&curve.loads[0]);
    assert!(text.contains("p50") && text.contains("samples beyond"), "{text}");
    assert!(text.contains(" µs to ") && text.contains("too short a run"), "{text}");
    let mut ended = curve.loads[0].clone();
    ended.summary.window_ns = 1;
    let text = table::run(&ended);
    assert!(text.contains("ended before anything was measured") && !text.contains("over 1"), "{text}");
}

#[test]
fn a_browser_shows_a_certification() {
    let mut runs = BTreeMap::new();
    for multiple in [1, 2, 4, 8, 16, 32, 40, 48, 64] {
        let above = [60, 50, 12, 3, 1].map(|n| n * u64::from(multiple * multiple) / 17).to_vec();
        let io = vec![Slice { count: 1000 * u64::from(multiple), above }];
        let report = Report {
            bounds: vec![100_000, 128_000, 1_000_000, 8_000_000, 64_000_000],
            slice_ns: 1_000_000_000,
            tables: vec![Table { name: "reads".into(), judged: true, due: io.clone(), io }],
            offered: 0,
            ended: 0,
            queued: 0,
            lag_ns: 0,
            max_lag_ns: 10,
            unsent: 0,
            unanswered: 0,
            error: None,
            host: None,
        };
        runs.insert(multiple, report);
    }
    let found: Vec<(Rule, Largest)> = [Rule::standard(), Rule::tightened(), Rule::tightened_caption()]
        .into_iter()
        .map(|rule| {
            let found = largest::<()>(1, 64, |m| {
                let nearest = runs.range(m..).next().map(|(_, report)| report);
                Ok(nearest.map_or(Ok(()), |report| rule.judge(report)))
            });
            (rule, found.unwrap())
        })
        .collect();
    assert!(found[0].1.multiple > found[2].1.multiple);
    let name = "model:nand-p3700:16GiB";
    let certified = Certified { name, about: "a test", environment: None, runs: &runs, found: &found };
    assert!(act::page(&certified).contains("class=place"), "where it ran stands first");
    check("instrument::a_browser_shows_a_certification", "act.html", &act::page(&certified), 2, 2);
}
