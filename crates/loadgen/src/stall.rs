//! The stall log: when the core was taken away, seen from the generator's own readings of the clock.
//!
//! A spinning generator reads the clock every fraction of a microsecond. A gap between two readings in which
//! it did nothing is time that the scheduler, an interrupt or the hypervisor took; a gap in which it worked
//! is the engine's (a system call, say) or that.

use nearside_clock::Nanos;
use serde::{Deserialize, Serialize};

/// A gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When it began, in nanoseconds from the run's begin.
    pub at_ns: u64,
    /// How long it was.
    pub ns: u64,
    /// The generator or the engine had work in it; else it only spun.
    pub working: bool,
}

/// Stalls of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallLog {
    /// Gaps above this count, in nanoseconds.
    pub threshold_ns: u64,
    /// The first of them, at most [`StallLog::KEPT`].
    pub stalls: Vec<Stall>,
    /// How many there were.
    pub count: u64,
    /// How many of them while it only spun.
    pub spinning: u64,
    /// All of them together, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
}

impl StallLog {
    /// Stalls kept one by one.
    pub const KEPT: usize = 10_000;

    /// Room for its entries is taken now.
    #[must_use]
    pub fn new(threshold_ns: u64) -> Self {
        Self { threshold_ns, stalls: Vec::with_capacity(Self::KEPT), ..Self::default() }
    }

    /// A gap from `last` to `now` in a run that began at `began`.
    #[inline]
    pub fn look(&mut self, began: Nanos, last: Nanos, now: Nanos, working: bool) {
        let ns = now.since(last);
        if ns > self.threshold_ns {
            self.note(Stall { at_ns: last.since(began), ns, working });
        }
    }

    #[cold]
    fn note(&mut self, stall: Stall) {
        self.count += 1;
        self.spinning += u64::from(!stall.working);
        self.total_ns += stall.ns;
        self.longest_ns = self.longest_ns.max(stall.ns);
        if self.stalls.len() < Self::KEPT {
            self.stalls.push(stall);
        }
    }
}

/// Whom the system says the core was given to, so far. Each `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The calling thread's wait in the run queue (/proc/thread-self/schedstat, second field).
    pub(crate) scheduler_wait_ns: Option<u64>,
    /// Stolen time of all cores (/proc/stat, eighth field, in ticks of 10 ms).
    pub(crate) stolen_ns: Option<u64>,
}

impl Taken {
    pub(crate) fn now() -> Self {
        let field = |path: &str, index: usize| -> Option<u64> {
            let text = std::fs::read_to_string(path).ok()?;
            text.lines().next()?.split_whitespace().nth(index)?.parse().ok()
        };
        Self {
            scheduler_wait_ns: field("/proc/thread-self/schedstat", 1),
            stolen_ns: field("/proc/stat", 8).map(|ticks| ticks * 10_000_000),
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            scheduler_wait_ns: less(self.scheduler_wait_ns, earlier.scheduler_wait_ns),
            stolen_ns: less(self.stolen_ns, earlier.stolen_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_above_the_threshold_are_kept() {
        let mut log = StallLog::new(5_000);
        log.look(Nanos(100), Nanos(200), Nanos(5_200), false);
        assert_eq!(log.count, 0);
        log.look(Nanos(100), Nanos(200), Nanos(5_201), false);
        log.look(Nanos(100), Nanos(6_000), Nanos(16_000), true);
        assert_eq!((log.count, log.spinning, log.total_ns, log.longest_ns), (2, 1, 15_001, 10_000));
        assert_eq!(log.stalls[0], Stall { at_ns: 100, ns: 5_001, working: false });
        for _ in 0..StallLog::KEPT {
            log.look(Nanos(0), Nanos(0), Nanos(9_000), false);
        }
        assert_eq!((log.stalls.len(), log.count), (StallLog::KEPT, StallLog::KEPT as u64 + 2));
    }
}
