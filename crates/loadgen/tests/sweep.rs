//! The sweep over a device whose curve is known: one server, constant service time, Poisson arrivals (M/D/1).

use nearside_clock::{Nanos, SimClock};
use nearside_loadgen::engine::null::Null;
use nearside_loadgen::run::simulated;
use nearside_loadgen::sweep::{Curve, Sweep, sweep};
use nearside_loadgen::{Arrivals, Outcome, Plan, Rw, Stream, Workload};

const SERVICE: u64 = 100_000;
const CAPACITY: f64 = 10_000.0;

/// Takes operations one after another, each for 100 us.
fn server() -> Null {
    let mut free = Nanos(0);
    Null::with_service(256, move |_, now| {
        free = free.max(now) + SERVICE;
        free
    })
}

fn reads(rate: f64) -> Plan {
    let workload = Workload::new(Rw::RandRead, 4096, 1 << 30);
    Plan::new(workload, Arrivals::Poisson { rate }, 0)
}

fn curve(sweep_plan: &Sweep) -> Curve<Outcome> {
    sweep(sweep_plan, |plan| simulated(plan, &mut server(), &SimClock::new())).unwrap()
}

fn md1() -> Sweep {
    let mut asked = Sweep::new(reads(1.0), 256);
    // 100,000 samples at least: 100 beyond p99.9.
    (asked.percent, asked.beyond, asked.points) = (99.9, 100, 14);
    asked.most_ns = u64::MAX;
    asked
}

#[test]
fn as_many_loads_as_were_asked_for() {
    for points in 1..=4 {
        let asked = Sweep { points, percent: 50.0, beyond: 100, ..md1() };
        assert_eq!(curve(&asked).points.len(), points);
    }
}

#[test]
fn a_longer_run_has_longer_slices_not_more() {
    let mut asked = md1();
    // A plan of a fiftieth of a second in slices of a millisecond; at a tenth of the capacity it takes 100 s.
    (asked.plan.runtime_ns, asked.plan.slice_ns) = (Some(20_000_000), 1_000_000);
    (asked.points, asked.least_ns) = (3, 20_000_000);
    let mut lengths = Vec::new();
    let curve = sweep(&asked, |plan| {
        lengths.push((plan.runtime_ns.unwrap(), plan.slice_ns));
        simulated(plan, &mut server(), &SimClock::new())
    });
    let curve = curve.unwrap();
    assert!(lengths[1].0 > 90_000_000_000, "{lengths:?}");
    for (runtime_ns, slice_ns) in lengths {
        assert!((19..=20).contains(&(runtime_ns / slice_ns)), "{runtime_ns} in slices of {slice_ns}");
    }
    // 20, and the one after the window: 230 KB each.
    for point in &curve.points {
        assert!(point.ran.streams[0].slices.len() <= 21, "{}", point.ran.streams[0].slices.len());
    }
}

#[test]
fn it_finds_capacity_and_knee_of_a_known_server() {
    let curve = curve(&md1());
    assert!(curve.points.len() <= 14);
    // Right at the capacity a queue only diffuses: it may be carried within the measured time.
    assert!((0.93 * CAPACITY..1.05 * CAPACITY).contains(&curve.carried), "{}", curve.carried);
    let saturated = curve.saturated.unwrap();
    assert!(saturated > 0.97 * CAPACITY && saturated <= 1.16 * CAPACITY, "{saturated}");
    assert!(saturated - curve.carried <= 0.041 * saturated);
    // Power is greatest at 2 - sqrt(2) of the capacity; points lie within 8 % of each other there.
    let knee = &curve.points[curve.knee.unwrap()];
    assert!((knee.rate / CAPACITY - 0.586).abs() < 0.08, "{}", knee.rate);
    for point in &curve.points {
        let outcome = &point.ran;
        let load = point.rate / CAPACITY;
        if load < 0.85 {
            // Pollaczek-Khinchine.
            let mean = SERVICE as f64 * (1.0 + load / (2.0 * (1.0 - load)));
            let found = outcome.both().response.mean_ns();
            assert!((found / mean - 1.0).abs() < 0.05, "{load}: {found} {mean}");
            // 100 in the mean; ties in a bucket of the histogram and the draw take some.
            let beyond = outcome.both().response.percentile(99.9).beyond;
            assert!(!point.saturated && beyond >= 60, "{load}: {beyond}");
        }
        assert!(point.saturated || load < 1.05);
    }
    assert!(curve.points.windows(2).all(|pair| pair[0].rate < pair[1].rate));
}

#[test]
fn the_mix_of_streams_is_kept() {
    let mut asked = md1();
    let workload = Workload::new(Rw::RandWrite, 4096, 1 << 30);
    asked.plan.streams.push(Stream { name: "w".into(), workload, arrivals: Arrivals::Poisson { rate: 3.0 } });
    let plan = asked.at(8_000.0);
    let rates: Vec<f64> = plan.streams.iter().filter_map(|s| s.arrivals.rate()).collect();
    assert_eq!(rates, [2_000.0, 6_000.0]);
    let curve = curve(&asked);
    assert!((0.93 * CAPACITY..1.05 * CAPACITY).contains(&curve.carried), "{}", curve.carried);
    let streams = &curve.points[0].ran.streams;
    let ratio = streams[1].offered as f64 / streams[0].offered as f64;
    assert!((ratio - 3.0).abs() < 0.2, "{ratio}");
}

#[test]
fn a_device_that_carries_everything_and_one_that_is_gone() {
    let mut asked = md1();
    (asked.points, asked.percent, asked.beyond, asked.least_ns) = (5, 99.0, 10, 1_000_000);
    let curve = sweep(&asked, |plan| {
        simulated(plan, &mut Null::with_service(256, |_, now| now + 100_000), &SimClock::new())
    })
    .unwrap();
    assert!(curve.saturated.is_none() && curve.knee.is_some() && curve.points.len() == 5);
    let failed = sweep::<Outcome, _>(&asked, |_| Err("gone"));
    assert_eq!(failed.err(), Some("gone"));
}

#[test]
fn the_same_seed_gives_the_same_curve() {
    let rates = |c: &Curve<Outcome>| {
        c.points.iter().map(|p| (p.rate, p.ran.both().response.percentile(99.9).ns)).collect::<Vec<_>>()
    };
    assert_eq!(rates(&curve(&md1())), rates(&curve(&md1())));
}
