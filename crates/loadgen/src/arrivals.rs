//! When operations are due in an open loop: known beforehand, whatever the device does.

use serde::{Deserialize, Serialize};

use nearside_random::Random;

/// How the operations of a stream arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "arrivals")]
pub enum Arrivals {
    /// Open loop, independent users: exponential gaps.
    Poisson {
        /// Operations per second.
        rate: f64,
    },
    /// Open loop, one operation every `1 / rate` seconds.
    Constant {
        /// Operations per second.
        rate: f64,
    },
    /// Closed loop: so many users, each of whom starts an operation when the one before is done.
    Closed {
        /// Operations in flight.
        depth: u32,
    },
    /// Open loop, as a trace recorded them ([`crate::trace`]).
    Recorded {
        /// Recorded times are divided by this.
        scale: f64,
    },
}

impl Arrivals {
    /// Operations per second, of an open loop.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match *self {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } => Some(rate),
            Arrivals::Closed { .. } | Arrivals::Recorded { .. } => None,
        }
    }
}

/// The due times of one open-loop stream, in nanoseconds from its start, one after another.
///
/// Kept to 2^-20 ns, so that rounding adds up to nothing: a rate is held exactly over any time. With a ramp
/// the rate rises in a straight line from 0 over its length: a process without one is stretched in time,
/// which for a Poisson process is exact.
#[derive(Clone, Debug)]
pub struct Schedule {
    random: Random,
    poisson: bool,
    /// Nanoseconds between arrivals in the mean.
    gap_ns: f64,
    /// Nanoseconds between arrivals in the mean, times 2^20.
    gap: u64,
    /// The next arrival as if there were no ramp, times 2^20.
    next: u128,
    ramp_ns: u64,
}

const FRACTION: u32 = 20;
const ONE: f64 = (1u64 << FRACTION) as f64;

impl Schedule {
    /// `rate` per second; the first is due after one gap.
    #[must_use]
    pub fn new(rate: f64, poisson: bool, ramp_ns: u64, seed: u64) -> Self {
        let gap_ns = 1e9 / rate;
        let mut schedule =
            Self { random: Random::new(seed), poisson, gap_ns, gap: (gap_ns * ONE) as u64, next: 0, ramp_ns };
        schedule.advance();
        schedule
    }

    /// All of them so much later.
    #[must_use]
    pub fn later(mut self, ns: u64) -> Self {
        self.next = self.next.saturating_add(u128::from(ns) << FRACTION);
        self
    }

    /// When the next is due.
    #[inline]
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        let plain = (self.next >> FRACTION) as u64;
        if self.ramp_ns == 0 {
            return plain;
        }
        // With the rate r*t/R before R, n = t*t/(2R) arrivals' worth of plain time have passed at t;
        // after it n = t - R/2.
        if plain < self.ramp_ns / 2 {
            (2.0 * self.ramp_ns as f64 * plain as f64).sqrt() as u64
        } else {
            plain.saturating_add(self.ramp_ns / 2)
        }
    }

    /// On to the one after.
    #[inline]
    pub fn advance(&mut self) {
        let gap =
            if self.poisson { (self.random.exponential() * self.gap_ns * ONE) as u64 } else { self.gap };
        self.next = self.next.saturating_add(u128::from(gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut schedule: Schedule, until_ns: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while schedule.due_ns() < until_ns {
            times.push(schedule.due_ns());
            schedule.advance();
        }
        times
    }

    #[test]
    fn a_constant_rate_is_held_without_rounding() {
        // A gap of 333.33 ns: rounded to whole nanoseconds it would be a thousandth too short.
        let times = times(Schedule::new(3e6, false, 0, 1), 2_000_000_000);
        assert!(times.len().abs_diff(6_000_000) <= 1, "{}", times.len());
    }

    #[test]
    fn a_schedule_may_begin_later() {
        let whole = times(Schedule::new(1e4, false, 0, 1), 1_000_000);
        let later = times(Schedule::new(1e4, false, 0, 1).later(30_000), 1_030_000);
        assert_eq!(later, whole.iter().map(|ns| ns + 30_000).collect::<Vec<_>>());
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_variance() {
        let times = times(Schedule::new(100_000.0, true, 0, 1), 10_000_000_000);
        // A million arrivals: the count's standard deviation is a thousand.
        assert!(times.len().abs_diff(1_000_000) < 5_000, "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.01, "{} {mean}", variance.sqrt());
    }

    #[test]
    fn a_ramp_rises_to_the_rate() {
        for poisson in [false, true] {
            let times = times(Schedule::new(100_000.0, poisson, 2_000_000_000, 1), 4_000_000_000);
            let within = |from: u64, to: u64| times.iter().filter(|t| (from..to).contains(*t)).count() as f64;
            let second = 1_000_000_000;
            // 25 k, 75 k, then 100 k each second.
            for (i, expected) in [25_000.0, 75_000.0, 100_000.0, 100_000.0].into_iter().enumerate() {
                let got = within(i as u64 * second, (i as u64 + 1) * second);
                assert!((got - expected).abs() < 1_500.0, "{i}: {got}");
            }
        }
    }
}
