//! Whether an interval at 95 % covers the true percentile as often as it says: response times of a queue
//! before one server of fixed service time (M/D/1), whose distribution is known, over 200 seeds and loads
//! from 10 to 90 %.

use nearside_loadgen::Tally;
use nearside_loadgen::summary::Measured;
use nearside_random::Random;

const SERVICE_NS: f64 = 10_000.0;
const SEEDS: u64 = 200;
/// As many as `nearside sim curve` takes at each load by default.
const SAMPLES: u64 = 200_000;
const WARM_UP: u64 = 20_000;

/// The part of response times up to `ns` (Franx, "A simple solution for the M/D/c waiting time distribution",
/// Operations Research Letters 29, 2001; all its terms are positive).
fn part_within(load: f64, in_system: &[f64], ns: f64) -> f64 {
    let waited = ns / SERVICE_NS - 1.0;
    if waited < 0.0 {
        return 0.0;
    }
    let whole = waited.floor() as usize + 1;
    let to_next = load * (whole as f64 - waited);
    let mut term = (-to_next).exp();
    let mut sum = 0.0;
    for j in 0..whole {
        let queue_at_most: f64 = in_system[..=whole - j].iter().sum();
        sum += term * queue_at_most;
        term *= to_next / (j + 1) as f64;
    }
    sum
}

/// How likely how many are in the system, as a departure leaves it (Pollaczek and Khinchin's chain).
fn in_system(load: f64) -> Vec<f64> {
    let mut arrive = vec![(-load).exp()];
    for j in 1..200 {
        arrive.push(arrive[j - 1] * load / j as f64);
    }
    let mut p = vec![1.0 - load];
    for j in 0..60 {
        let others: f64 = (1..=j).map(|i| p[i] * arrive[j - i + 1]).sum();
        p.push((p[j] - p[0] * arrive[j] - others) / arrive[0]);
    }
    p
}

fn percentile(load: f64, percent: f64) -> f64 {
    let p = in_system(load);
    let (mut low, mut high) = (SERVICE_NS, SERVICE_NS * 50.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let within = part_within(load, &p, middle) >= percent / 100.0;
        *(if within { &mut high } else { &mut low }) = middle;
    }
    high
}

/// Response times of the queue (Lindley's recursion).
fn run(load: f64, seed: u64) -> Measured {
    let (mut random, mut tally) = (Random::new(seed), Tally::default());
    let (mut at, mut wait) = (0.0, 0.0);
    for n in 0..WARM_UP + SAMPLES {
        let gap = -(1.0 - random.unit()).ln() * SERVICE_NS / load;
        at = if n == WARM_UP { 0.0 } else { at + gap };
        wait = f64::max(wait + SERVICE_NS - gap, 0.0);
        if n >= WARM_UP {
            tally.respond(at as u64, (wait + SERVICE_NS) as u64);
        }
    }
    Measured::of(&tally)
}

/// How the runs' intervals of a percentile did.
#[derive(Default)]
struct Said {
    /// Runs that gave one.
    said: usize,
    /// Of these, those that cover the true value.
    covers: usize,
    /// Their mean width over the true value.
    width: f64,
}

fn covered(load: f64, runs: &[Measured], percent: f64) -> Said {
    let truth = percentile(load, percent);
    let mut all = Said::default();
    for run in runs {
        let point = run.response.at(percent).unwrap();
        if let (Some(low), Some(high)) = (point.low_ns, point.high_ns) {
            // The truth is found to a millionth.
            let covers = low as f64 <= truth * 1.000_001 && truth <= high as f64 * 1.000_001;
            all.covers += usize::from(covers);
            all.said += 1;
            all.width += (high - low) as f64 / truth;
        }
    }
    all.width /= all.said.max(1) as f64;
    all
}

fn check(load: f64) {
    let half = SEEDS / 2;
    let runs: Vec<Measured> = std::thread::scope(|scope| {
        let other = scope.spawn(move || (0..half).map(|seed| run(load, seed)).collect::<Vec<_>>());
        let own: Vec<_> = (half..SEEDS).map(|seed| run(load, seed)).collect();
        own.into_iter().chain(other.join().unwrap()).collect()
    });
    for percent in [50.0, 90.0, 99.0] {
        let Said { said, covers, width } = covered(load, &runs, percent);
        let part = covers as f64 / said.max(1) as f64;
        println!(
            "load {load}, p{percent}: {covers} of {said}, {:.1} %, {:.1} % wide",
            part * 100.0,
            width * 100.0
        );
        assert!(said as u64 > SEEDS * 3 / 4, "load {load}, p{percent}: {said} runs say something");
        assert!(part >= 0.90, "load {load}, p{percent}: {covers} of {said} cover");
        // Response times without a wait are all alike: where the percentile lies at that one value, or at its
        // edge, an interval covers it always. And an interval takes the histogram's buckets whole, of up to a
        // thousandth: a narrow one is wider by that.
        let at_edge = percentile(load, percent - 0.1) <= SERVICE_NS * 1.000_001;
        assert!(part <= 0.98 || at_edge || width < 0.01, "load {load}, p{percent}: {covers} of {said} cover");
    }
    // What a run is too short for it does not say, or says right.
    let Said { said, covers, .. } = covered(load, &runs, 99.9);
    println!("load {load}, p99.9: {covers} of {said}");
    assert!(said - covers <= said / 8 + 2, "load {load}, p99.9: {covers} of {said} cover");
}

#[test]
fn at_a_tenth() {
    check(0.1);
}

#[test]
fn at_a_third() {
    check(0.3);
}

#[test]
fn at_half() {
    check(0.5);
}

#[test]
fn at_seven_tenths() {
    check(0.7);
}

#[test]
fn at_nine_tenths() {
    check(0.9);
}

#[test]
fn the_theory_is_what_the_queue_does() {
    let all = (0..20).fold(Tally::default(), |mut all, seed| {
        let (mut random, mut tally, mut wait) = (Random::new(seed), Tally::default(), 0.0);
        for n in 0..200_000 {
            let gap = -(1.0 - random.unit()).ln() * SERVICE_NS / 0.7;
            wait = f64::max(wait + SERVICE_NS - gap, 0.0);
            tally.respond(n, (wait + SERVICE_NS) as u64);
        }
        all.merge(&tally);
        all
    });
    for percent in [50.0, 90.0, 99.0, 99.9] {
        let (found, truth) = (all.response.percentile(percent).ns as f64, percentile(0.7, percent));
        assert!((found / truth - 1.0).abs() < 0.02, "p{percent}: {found}, by theory {truth}");
    }
    // Light load: most wait for nobody.
    assert!((percentile(0.1, 50.0) / SERVICE_NS - 1.0).abs() < 1e-6);
}
