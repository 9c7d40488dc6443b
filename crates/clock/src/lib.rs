#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! Logic takes `now` as a parameter; only thin runners ask a [`Clock`].

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod rate;
mod sim;
mod tsc;

pub use rate::{RateLimits, Suppressed};
pub use sim::SimClock;
pub use tsc::{CALIBRATION_NS, TscClock};

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the clock's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Nanoseconds from `earlier` to here; 0 where it is later.
    #[inline]
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, ns: u64) -> Nanos {
        Nanos(self.0.saturating_add(ns))
    }
}

impl Sub<Nanos> for Nanos {
    type Output = Duration;
    fn sub(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.since(earlier))
    }
}

/// Where `now` comes from.
pub trait Clock: Send + Sync {
    /// The time, never going back.
    fn now(&self) -> Nanos;

    /// Whether time passes only when told: then nothing may be waited for that happens elsewhere.
    fn is_simulated(&self) -> bool {
        false
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    #[inline]
    fn now(&self) -> Nanos {
        (**self).now()
    }

    fn is_simulated(&self) -> bool {
        (**self).is_simulated()
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    #[inline]
    fn now(&self) -> Nanos {
        (**self).now()
    }

    fn is_simulated(&self) -> bool {
        (**self).is_simulated()
    }
}
