//! A curve of a device that is known: its knee, what it carries, and what it does not.

use nearside_instrument::{Ask, Curve, Event, Simulated, measure};
use nearside_loadgen::{Rw, Workload};
use nearside_media::Delay;

/// Eight units, each busy for 10 µs: 800,000 operations per second and no more.
fn curve(seed: u64, stop_after: usize) -> Curve {
    let stop = std::sync::Arc::default();
    let mut runner =
        Simulated::bare("eight units", Delay::units(8, 10_000).medium(), std::sync::Arc::clone(&stop));
    let ask = Ask {
        workload: Workload::new(Rw::RandRead, 4096, 1 << 30),
        constant: false,
        least_ns: 50_000_000,
        percent: 99.9,
        most_ns: 1_000_000_000,
        depths: vec![1, 8, 64],
        loads: 12,
        seed,
    };
    let mut ended = 0;
    let mut see = |event: Event<'_>| {
        if let Event::Begins(..) = event {
            ended += 1;
            stop.store(ended > stop_after, std::sync::atomic::Ordering::Relaxed);
        }
    };
    measure(&mut runner, "eight units", &ask, &mut see).unwrap()
}

#[test]
fn the_knee_and_the_limit_are_found() {
    let curve = curve(3, usize::MAX);
    let one = &curve.depths[0].summary;
    assert!((one.throughput - 100_000.0).abs() < 500.0, "{}", one.throughput);
    assert!(one.all.response.mean_ns < 10_100.0, "{}", one.all.response.mean_ns);
    assert_eq!(curve.loads.len(), 12);
    // Random arrivals at one of eight units: power is greatest at half of what it can do (M/D/1:
    // a little above).
    let knee = curve.knee.unwrap();
    assert!((350_000.0..650_000.0).contains(&knee), "{knee}");
    assert!(curve.carried().all(|point| point.summary.offered < 810_000.0));
    let least = curve.loads.iter().find(|point| point.saturated).unwrap();
    assert!((700_000.0..900_000.0).contains(&least.summary.offered), "{}", least.summary.offered);
    assert!(curve.loads.is_sorted_by(|a, b| a.summary.offered <= b.summary.offered));
    let near = curve.near(0.7).unwrap();
    assert!((near.summary.offered - 0.7 * knee).abs() < 0.25 * knee, "{}", near.summary.offered);
}

#[test]
fn what_was_measured_before_a_stop_counts() {
    for runs in [0, 2, 5] {
        let curve = curve(3, runs);
        assert!(curve.points().any(|point| point.stopped));
        // The run that was under way ends as well; the sweep's guess is no point.
        assert_eq!(curve.depths.len(), (runs + 1).min(3));
        assert_eq!(curve.loads.len(), (runs + 1).saturating_sub(4));
    }
}
