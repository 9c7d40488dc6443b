//! Simulated time: it passes when told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Clock, Nanos};

/// A clock that stands until someone moves it. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct SimClock {
    now: Arc<AtomicU64>,
}

impl SimClock {
    /// At zero.
    pub fn new() -> SimClock {
        SimClock::default()
    }

    /// Lets `ns` nanoseconds pass; returns the new time.
    pub fn advance(&self, ns: u64) -> Nanos {
        Nanos(self.now.fetch_add(ns, Ordering::AcqRel).saturating_add(ns))
    }

    /// Moves on to `at`; does nothing where that is past.
    pub fn advance_to(&self, at: Nanos) {
        self.now.fetch_max(at.0, Ordering::AcqRel);
    }
}

impl Clock for SimClock {
    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Acquire))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_only_when_told() {
        let clock = SimClock::new();
        let other = clock.clone();
        assert_eq!(clock.now(), Nanos(0));
        assert_eq!(clock.advance(5), Nanos(5));
        other.advance_to(Nanos(3));
        assert_eq!(clock.now(), Nanos(5));
        other.advance_to(Nanos(9));
        assert_eq!(clock.now(), Nanos(9));
    }
}
