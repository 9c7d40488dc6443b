//! Real time from the time-stamp counter.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nearside_dma::tsc;

use crate::{Clock, Nanos};

/// Nanoseconds since the process first asked. All values of this type share one origin and one calibration,
/// so times taken by different threads compare (but for some nanoseconds by which a processor reads ahead).
///
/// The counter's rate is measured once against the system's monotonic clock, over at least [`CALIBRATION_NS`]
/// from the origin on, while the process does its work: nobody waits for it. Until then the monotonic clock
/// itself is read; the first reading after that time measures the rate, and time goes on from there without a
/// step back. Both ends of the measurement are taken as the tightest of several brackets, which leaves it
/// within some parts per million. Where the counter is not steady the monotonic clock stays.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    /// [`TscClock::new`] alone makes one: so the origin is set.
    _made: (),
}

/// The least time over which the rate is measured, once in a process.
pub const CALIBRATION_NS: u64 = 5_000_000;

/// The process's first reading, of both clocks.
static ORIGIN: OnceLock<Origin> = OnceLock::new();
/// Set once it is measured.
static RATE: OnceLock<Rate> = OnceLock::new();

#[derive(Clone, Copy, Debug)]
struct Origin {
    at: Instant,
    /// The counter then; `None` where it is not steady.
    ticks: Option<u64>,
}

/// Nanoseconds are `base_ns + ((ticks - base) * multiplier >> 32)`.
#[derive(Clone, Copy, Debug)]
struct Rate {
    base: u64,
    base_ns: u64,
    multiplier: u64,
}

impl TscClock {
    /// The process's clock; the first call sets the origin.
    pub fn new() -> TscClock {
        ORIGIN.get_or_init(Origin::here);
        TscClock { _made: () }
    }

    /// Ticks of the counter in `ns` nanoseconds (for timed waits); 0 where the counter is not used. Waits for
    /// the calibration where it is not yet done.
    pub fn ticks(&self, ns: u64) -> u64 {
        let origin = ORIGIN.get_or_init(Origin::here);
        if origin.ticks.is_some() && RATE.get().is_none() {
            std::thread::sleep(Duration::from_nanos(CALIBRATION_NS).saturating_sub(origin.at.elapsed()));
            origin.now(&RATE);
        }
        RATE.get().map_or(0, |rate| {
            (u128::from(ns) << 32).checked_div(u128::from(rate.multiplier)).unwrap_or(0) as u64
        })
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
        match RATE.get() {
            Some(rate) => rate.at(tsc::read()),
            None => ORIGIN.get_or_init(Origin::here).now(&RATE),
        }
    }
}

impl Origin {
    fn here() -> Origin {
        let (ticks, at) = sample();
        Origin { at, ticks: tsc::is_steady().then_some(ticks) }
    }

    /// By the monotonic clock; measures the rate where it is time to.
    #[cold]
    fn now(&self, rate: &OnceLock<Rate>) -> Nanos {
        let ns = self.at.elapsed().as_nanos() as u64;
        if ns >= CALIBRATION_NS
            && let Some(first) = self.ticks
        {
            let (ticks, at) = sample();
            if let Some(measured) = Rate::of((first, self.at), (ticks, at)) {
                // Of several threads the first one's counts.
                return rate.get_or_init(|| measured).at(tsc::read());
            }
        }
        Nanos(ns)
    }
}

impl Rate {
    /// From two samples. A sample's count is of a moment no later than its time, so that the counter's times
    /// are never behind the monotonic clock's that were given out before.
    fn of((first, begin): (u64, Instant), (last, end): (u64, Instant)) -> Option<Rate> {
        let ns = end.duration_since(begin).as_nanos();
        let ticks = u128::from(last.saturating_sub(first));
        let multiplier = ((ns << 32) + ticks / 2).checked_div(ticks)? as u64;
        Some(Rate { base: last, base_ns: ns as u64, multiplier })
    }

    #[inline]
    fn at(&self, ticks: u64) -> Nanos {
        let ticks = ticks.saturating_sub(self.base);
        Nanos(self.base_ns + ((u128::from(ticks) * u128::from(self.multiplier)) >> 32) as u64)
    }
}

/// The counter before the clock, and the clock: of several readings the one whose bracket is the tightest.
/// A processor may read the counter later than it is told to, but not beyond the bracket: the count is taken
/// back by the bracket's width, so that it is of a moment no later than the clock's.
fn sample() -> (u64, Instant) {
    (0..16)
        .map(|_| {
            let before = tsc::read();
            let at = Instant::now();
            let after = tsc::read();
            (after.wrapping_sub(before), before, at)
        })
        .min_by_key(|(width, ..)| *width)
        .map_or_else(|| (tsc::read(), Instant::now()), |(width, ticks, at)| (ticks.saturating_sub(width), at))
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
        let ticks = clock.ticks(1_000_000);
        assert_eq!(ticks > 0, tsc::is_steady());
        if let Some(Rate { multiplier, .. }) = RATE.get() {
            let back = ((u128::from(ticks) * u128::from(*multiplier)) >> 32) as u64;
            assert!(back.abs_diff(1_000_000) < 10);
        }
    }

    /// From the first reading on, over the moment at which the rate is measured: no thread's time goes back,
    /// whichever of them measures it. Between threads nothing is held: a processor may read the counter some
    /// nanoseconds before it has the lock.
    #[test]
    fn time_goes_on_over_the_calibration_without_a_step_back() {
        for _ in 0..50 {
            let (origin, rate) = (Origin::here(), OnceLock::new());
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let (mut counted, mut last) = (0, Nanos(0));
                        while counted < 100 && origin.at.elapsed().as_millis() < 1000 {
                            let by_counter = rate.get();
                            let now = by_counter.map_or_else(|| origin.now(&rate), |r| r.at(tsc::read()));
                            assert!(now >= last, "{now:?} after {last:?}");
                            last = now;
                            counted += u32::from(by_counter.is_some());
                        }
                    });
                }
            });
        }
    }

    /// A process's first command does not wait for the calibration: what it does meanwhile is timed by the
    /// monotonic clock.
    #[test]
    fn the_first_readings_need_no_rate() {
        let origin = Origin { at: Instant::now(), ticks: Some(tsc::read()) };
        let before = origin.at.elapsed().as_nanos() as u64;
        let Nanos(now) = origin.now(&OnceLock::new());
        assert!(now >= before);
        // A rate is measured over no less than its time: two samples at one moment have none.
        assert!(Rate::of((5, origin.at), (5, origin.at)).is_none());
    }
}
