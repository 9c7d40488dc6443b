//! How often the same is said: an operator needs to see that something happens, not each time that it does.

use std::num::NonZeroU64;

use crate::Nanos;

/// How many events like one were suppressed since the last, where any were:
/// as a field of an event, it is there only then.
pub type Suppressed = Option<NonZeroU64>;

/// At most one of each kind in an interval. What comes too soon is
/// counted and told with the next that is said.
#[derive(Debug)]
pub struct RateLimits<K> {
    interval_ns: u64,
    kinds: Vec<RateLimit<K>>,
}

#[derive(Debug)]
struct RateLimit<K> {
    kind: K,
    said: Nanos,
    suppressed: u64,
}

impl<K: PartialEq> RateLimits<K> {
    /// One of each kind in so many nanoseconds. There should be few kinds: each is kept.
    pub const fn new(interval_ns: u64) -> RateLimits<K> {
        RateLimits { interval_ns, kinds: Vec::new() }
    }

    /// Whether one of a kind may be said now: then, how many like it were suppressed since the last.
    pub fn admit(&mut self, kind: K, now: Nanos) -> Option<Suppressed> {
        let Some(known) = self.kinds.iter_mut().find(|known| known.kind == kind) else {
            self.kinds.push(RateLimit { kind, said: now, suppressed: 0 });
            return Some(None);
        };
        if now.since(known.said) < self.interval_ns {
            known.suppressed += 1;
            return None;
        }
        known.said = now;
        Some(NonZeroU64::new(std::mem::take(&mut known.suppressed)))
    }
}

/// A `tracing` event at a level that is chosen while the program runs.
/// The crate that uses it depends on `tracing`.
#[macro_export]
macro_rules! event_at {
    ($level:expr, $($event:tt)*) => {
        match $level {
            tracing::Level::ERROR => tracing::error!($($event)*),
            tracing::Level::WARN => tracing::warn!($($event)*),
            tracing::Level::INFO => tracing::info!($($event)*),
            tracing::Level::DEBUG => tracing::debug!($($event)*),
            tracing::Level::TRACE => tracing::trace!($($event)*),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_an_interval_and_counts_what_it_suppressed() {
        let mut limits = RateLimits::new(100);
        assert_eq!(limits.admit('a', Nanos(5)), Some(None));
        assert_eq!(limits.admit('a', Nanos(6)), None);
        assert_eq!(limits.admit('b', Nanos(6)), Some(None));
        assert_eq!(limits.admit('a', Nanos(104)), None);
        assert_eq!(limits.admit('a', Nanos(105)), Some(NonZeroU64::new(2)));
        assert_eq!(limits.admit('a', Nanos(204)), None);
        // Another thread's time may be a little earlier.
        assert_eq!(limits.admit('a', Nanos(3)), None);
        assert_eq!(limits.admit('a', Nanos(1000)), Some(NonZeroU64::new(2)));
    }
}
