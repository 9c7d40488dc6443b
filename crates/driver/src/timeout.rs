//! How long commands may take, and when to look next whether the oldest has outlasted that.

use nearside_clock::Nanos;

use crate::Error;

/// Of one queue. A look costs a walk over its slots, so that it is rare.
pub(crate) struct CommandTimeout {
    ns: u64,
    look_at: Nanos,
}

impl CommandTimeout {
    pub(crate) fn new(ns: u64) -> Self {
        CommandTimeout { ns, look_at: Nanos(u64::MAX) }
    }

    /// A command was taken.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos) {
        if self.look_at == Nanos(u64::MAX) {
            self.look_at = now + self.ns;
        }
    }

    /// When to look next.
    #[inline]
    pub(crate) fn look_at(&self) -> Nanos {
        self.look_at
    }

    /// Looks: `oldest` is when the oldest command that is out was submitted. The next look is long before its
    /// time is over, so that a controller's failure is seen meanwhile.
    ///
    /// # Errors
    /// It has outlasted its time.
    pub(crate) fn look(&mut self, oldest: Option<Nanos>, now: Nanos) -> Result<(), Error> {
        self.look_at = match oldest {
            Some(at) if now.since(at) >= self.ns => {
                return Err(Error::TimedOut { command: "a command", timeout_ms: self.ns / 1_000_000 });
            }
            Some(at) => (at + self.ns).min(now + self.ns / 8 + 1),
            None => Nanos(u64::MAX),
        };
        Ok(())
    }
}
