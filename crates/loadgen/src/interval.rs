//! Confidence intervals of percentiles, free of any assumption on the distribution.
//!
//! Of `n` independent samples the number beyond the true percentile `p` is binomial with `n` and `1 - p`,
//! whatever is measured. The interval between two order statistics therefore covers the true percentile
//! with a chance that the binomial gives (e.g. Hahn and Meeker, "Statistical Intervals", 5.2). Response
//! times under load are not independent: [`batches`](crate::batches) finds how many independent ones say as
//! much as those that there are.

use crate::Latency;

/// The level of every interval here, in per cent.
pub const LEVEL: f64 = 95.0;
/// Chance left out at each end.
const TAIL: f64 = 0.025;
/// Above this variance the normal distribution stands in for the binomial.
const EXACT: f64 = 4_000.0;
/// The normal distribution's quantile at 97.5 per cent.
pub const Z: f64 = 1.959_964;

/// From where to where the true percentile may lie, in nanoseconds, if the samples say as much as
/// `independent` ones; `None` where these do not bound it.
#[must_use]
pub fn of(latency: &Latency, percent: f64, independent: u64) -> Option<(u64, u64)> {
    let (least, most) = beyond(independent, percent);
    let count = latency.count();
    // By parts of the samples: there are more of them than independent ones.
    let rank = |beyond: u64| (1.0 - beyond as f64 / independent as f64) * count as f64;
    // The histogram tells a bucket's highest value; the interval takes its buckets whole.
    let low = latency.histogram().lowest_equivalent(latency.rank((rank(most).floor() as u64).max(1)));
    let high = latency.rank((rank(least) + 1.0).ceil() as u64);
    (least > 0 && most < independent).then_some((low, high))
}

/// The least and the greatest number of samples beyond the true percentile that the level allows;
/// `percent` from 0 to 100.
#[must_use]
fn beyond(samples: u64, percent: f64) -> (u64, u64) {
    let q = (1.0 - percent / 100.0).clamp(0.0, 1.0);
    let (n, mean) = (samples as f64, samples as f64 * q);
    let variance = mean * (1.0 - q);
    if variance > EXACT {
        let half = Z * variance.sqrt();
        return ((mean - half).floor().max(0.0) as u64, ((mean + half).ceil() as u64).min(samples));
    }
    // Chances relative to the mode's, outwards until nothing is left;
    // then from both ends inwards up to the tails.
    let ratio = |k: f64| (n - k) / (k + 1.0) * (q / (1.0 - q));
    let mode = ((n + 1.0) * q).floor().min(n);
    let (mut down, mut up) = (vec![1.0], Vec::new());
    let (mut k, mut chance) = (mode, 1.0);
    while k > 0.0 && chance > 1e-12 {
        k -= 1.0;
        chance /= ratio(k);
        down.push(chance);
    }
    let first = k as u64;
    (k, chance) = (mode, 1.0);
    while k < n && chance > 1e-12 {
        chance *= ratio(k);
        k += 1.0;
        up.push(chance);
    }
    let chances: Vec<f64> = down.into_iter().rev().chain(up).collect();
    let tail = TAIL * chances.iter().sum::<f64>();
    let within = |chances: &mut dyn Iterator<Item = &f64>| {
        let mut sum = 0.0;
        chances
            .take_while(|chance| {
                sum += **chance;
                sum <= tail
            })
            .count() as u64
    };
    let low = first + within(&mut chances.iter());
    let high = first + chances.len() as u64 - 1 - within(&mut chances.iter().rev());
    (low, high.max(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_random::Random;

    #[test]
    fn the_binomials_quantiles() {
        // From tables of the binomial at 2.5 and 97.5 per cent.
        assert_eq!(beyond(100, 50.0), (40, 60));
        assert_eq!(beyond(20, 50.0), (6, 14));
        assert_eq!(beyond(10_000, 99.9), (4, 17));
        assert_eq!((beyond(0, 99.0), beyond(5, 100.0), beyond(5, 0.0)), ((0, 0), (0, 0), (5, 5)));
        // Where one way of computing gives way to the other they agree.
        let (exact, normal) = (beyond(15_900, 50.0), beyond(16_100, 50.0));
        assert!(normal.0 - exact.0 < 103 && normal.1 - exact.1 < 103, "{exact:?} {normal:?}");
        let (low, high) = beyond(2_000_000_000, 99.999);
        assert!((19_700..19_760).contains(&low) && (20_240..20_300).contains(&high), "{low} {high}");
    }

    #[test]
    fn the_interval_covers_as_often_as_it_says() {
        let mut random = Random::new(3);
        for percent in [50.0, 99.0] {
            let (low, high) = beyond(1_000, percent);
            let covered = (0..2_000)
                .filter(|_| {
                    let beyond = (0..1_000).filter(|_| random.unit() > percent / 100.0).count() as u64;
                    (low..=high).contains(&beyond)
                })
                .count();
            // 95 % of 2,000 is 1,900 with a standard deviation of 10; discrete steps may cover some more.
            assert!((1_865..=1_970).contains(&covered), "{percent}: {covered}");
        }
    }
}
