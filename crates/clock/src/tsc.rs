//! Real time from the time-stamp counter.

use std::sync::OnceLock;
use std::time::Instant;

use nearside_dma::tsc;

use crate::{Clock, Nanos};

/// Nanoseconds since the process first asked. All values of this type share one origin and one calibration,
/// so times taken by different threads compare.
///
/// The counter's rate is measured once against the system's monotonic clock over [`CALIBRATION_NS`]; both
/// ends of the measurement are taken as the tightest of several brackets, which leaves it within some parts
/// per million. Where the counter is not steady the monotonic clock itself is read.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    source: Source,
}

/// How long the calibration takes, once in a process.
pub const CALIBRATION_NS: u64 = 5_000_000;

#[derive(Clone, Copy, Debug)]
enum Source {
    /// Nanoseconds are `(ticks - origin) * multiplier >> 32`.
    Counter {
        origin: u64,
        multiplier: u64,
    },
    Monotonic {
        origin: Instant,
    },
}

impl TscClock {
    /// The process's clock; the first call calibrates it.
    pub fn new() -> TscClock {
        static SOURCE: OnceLock<Source> = OnceLock::new();
        TscClock { source: *SOURCE.get_or_init(calibrate) }
    }

    /// Ticks of the counter in `ns` nanoseconds (for timed waits); 0 where the counter is not used.
    pub fn ticks(&self, ns: u64) -> u64 {
        match self.source {
            Source::Counter { multiplier, .. } => {
                (u128::from(ns) << 32).checked_div(u128::from(multiplier)).unwrap_or(0) as u64
            }
            Source::Monotonic { .. } => 0,
        }
    }
}

impl Default for TscClock {
    fn default() -> Self {
        TscClock::new()
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&self) -> Nanos {
        match self.source {
            Source::Counter { origin, multiplier } => {
                let ticks = tsc::read().saturating_sub(origin);
                Nanos(((u128::from(ticks) * u128::from(multiplier)) >> 32) as u64)
            }
            Source::Monotonic { origin } => Nanos(origin.elapsed().as_nanos() as u64),
        }
    }
}

/// The counter and the clock at one moment: the bracket with the
/// least counter time around the clock's reading.
fn sample() -> (u64, Instant) {
    (0..16)
        .map(|_| {
            let before = tsc::read();
            let at = Instant::now();
            let after = tsc::read();
            (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), at)
        })
        .min_by_key(|(width, ..)| *width)
        .map_or_else(|| (tsc::read(), Instant::now()), |(_, ticks, at)| (ticks, at))
}

fn calibrate() -> Source {
    let monotonic = Source::Monotonic { origin: Instant::now() };
    if !tsc::is_steady() {
        return monotonic;
    }
    let (first, begin) = sample();
    while begin.elapsed().as_nanos() < u128::from(CALIBRATION_NS) {
        std::hint::spin_loop();
    }
    let (last, end) = sample();
    let ns = end.duration_since(begin).as_nanos();
    let ticks = u128::from(last.saturating_sub(first));
    match ((ns << 32) + ticks / 2).checked_div(ticks) {
        Some(multiplier) => Source::Counter { origin: first, multiplier: multiplier as u64 },
        None => monotonic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_system_and_never_goes_back() {
        let clock = TscClock::new();
        // The clock's readings lie between two of the system's,
        // however long a turn of the scheduler parts them.
        let between = || {
            let before = Instant::now();
            (before, clock.now(), Instant::now())
        };
        let (first, began, system) = between();
        let mut last = began;
        while system.elapsed().as_millis() < 20 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let (before, ended, after) = between();
        let ours = ended.since(began);
        let least = before.duration_since(system).as_nanos() as u64;
        let most = after.duration_since(first).as_nanos() as u64;
        assert!((least - least / 100..=most + most / 100).contains(&ours), "{ours}, not {least} to {most}");
    }

    #[test]
    fn ticks_and_nanoseconds_agree() {
        let clock = TscClock::new();
        if let Source::Counter { multiplier, .. } = clock.source {
            let back = ((u128::from(clock.ticks(1_000_000)) * u128::from(multiplier)) >> 32) as u64;
            assert!(back.abs_diff(1_000_000) < 10);
        }
    }
}
