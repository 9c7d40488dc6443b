//! How long a peer is waited for. What counts is a rate, not a byte: a peer that owes much has longer, and
//! one that does a little now and then has no longer than one that does nothing.

use nearside_clock::Nanos;

/// How long a peer is waited for: a grace, then as long as its bytes take at a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For whatever a peer has to begin or to end, however little it is.
    pub(crate) grace_ns: u64,
    /// Bytes of a second.
    pub(crate) rate: u64,
}

impl Patience {
    /// When so many bytes have to be there that are asked for now.
    pub(crate) fn due(&self, now: Nanos, bytes: u64) -> Nanos {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
        now + self.grace_ns + u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Bytes that have to move within the grace, of so many.
    fn share(&self, bytes: u64) -> u64 {
        let most = u128::from(self.rate) * u128::from(self.grace_ns) / 1_000_000_000;
        bytes.min(u64::try_from(most).unwrap_or(u64::MAX)).max(1)
    }
}

/// What a peer reads of what waits for it: so many bytes until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    until: Nanos,
    left: u64,
}

impl Pace {
    /// From now on, with so many bytes waiting.
    pub(crate) fn begin(patience: &Patience, now: Nanos, waiting: u64) -> Pace {
        Pace { until: now + patience.grace_ns, left: patience.share(waiting) }
    }

    /// It took some; more wait.
    pub(crate) fn moved(&mut self, patience: &Patience, now: Nanos, bytes: u64, waiting: u64) {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            *self = Pace::begin(patience, now, waiting);
        }
    }

    pub(crate) fn until(&self) -> Nanos {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { grace_ns: 30_000_000_000, rate: 32 << 10 };
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn more_bytes_have_longer() {
        let at = Nanos(5 * SECOND);
        assert_eq!(PATIENCE.due(at, 0), at + 30 * SECOND);
        assert_eq!(PATIENCE.due(at, 1 << 20), at + 62 * SECOND);
        assert_eq!(Patience { rate: 0, ..PATIENCE }.due(at, u64::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn a_byte_now_and_then_is_no_pace() {
        let mut pace = Pace::begin(&PATIENCE, Nanos(0), 1 << 20);
        for second in 1..30 {
            pace.moved(&PATIENCE, Nanos(second * SECOND), 1, 1 << 20);
            assert_eq!(pace.until(), Nanos(30 * SECOND));
        }
        // 30 s at 32 KiB/s, where so much waits; all of it, where less does.
        pace.moved(&PATIENCE, Nanos(29 * SECOND), ((30 * 32) << 10) - 29, 100);
        assert_eq!(pace.until(), Nanos(59 * SECOND));
        pace.moved(&PATIENCE, Nanos(40 * SECOND), 99, 1);
        assert_eq!(pace.until(), Nanos(59 * SECOND));
        pace.moved(&PATIENCE, Nanos(40 * SECOND), 1, 7);
        assert_eq!(pace.until(), Nanos(70 * SECOND));
    }
}
