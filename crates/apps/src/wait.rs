//! Waiting for what tells nobody when it has happened: another program that starts, or ends.

use std::time::Duration;

/// Asks again every few milliseconds, for so long.
pub(crate) struct Patience {
    left: u32,
}

const EVERY_MS: u32 = 5;

impl Patience {
    /// For about so many seconds.
    pub(crate) fn seconds(seconds: u32) -> Patience {
        Patience { left: seconds.saturating_mul(1_000 / EVERY_MS) }
    }

    /// Waits a moment; false once it is over.
    pub(crate) fn wait(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        std::thread::sleep(Duration::from_millis(EVERY_MS.into()));
        true
    }
}
