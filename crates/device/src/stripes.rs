//! Striped block locks: with several reactors, what keeps a logical block from tearing.
//!
//! A stripe is a run of 16 KiB, hashed into a table of reader-writer words. An operation takes all its
//! stripes or none: a reactor never waits on a lock, it tries again at its next step. A mutation that found
//! readers marks the stripe, so that new readers stay out until it had its turn.

use std::sync::atomic::{AtomicU32, Ordering};

use nearside_store::Operation;

const STRIPE_SHIFT: u32 = 14;
const STRIPES: usize = 4096;

/// A mutation holds the stripe.
const HELD: u32 = 1 << 31;
/// A mutation waits for the readers to go.
const WAITED_FOR: u32 = 1 << 30;

pub(crate) struct Stripes {
    words: Box<[Word]>,
}

/// A word on a cache line of its own: cores that work on other stripes do not take it from each other.
#[derive(Default)]
#[repr(align(64))]
struct Word(AtomicU32);

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Shared,
    Exclusive,
}

/// The stripes of an operation: the first, how many, and how they are held. More than the table has means all
/// of it.
fn extent(operation: &Operation) -> Option<(u64, usize, Mode)> {
    let (offset, len, mode) = match *operation {
        Operation::Read { offset, len } => (offset, len, Mode::Shared),
        Operation::Write { offset, len, .. }
        | Operation::WriteZeroes { offset, len, .. }
        | Operation::Deallocate { offset, len } => (offset, len, Mode::Exclusive),
        Operation::Flush => return None,
    };
    let first = offset >> STRIPE_SHIFT;
    let last = offset.saturating_add(len.max(1) - 1) >> STRIPE_SHIFT;
    Some((first, usize::try_from(last - first).unwrap_or(STRIPES).saturating_add(1).min(STRIPES), mode))
}

impl Stripes {
    pub(crate) fn new() -> Stripes {
        Stripes { words: (0..STRIPES).map(|_| Word::default()).collect() }
    }

    /// Takes every stripe of the operation, or none. Consecutive stripes have different words, so none is
    /// taken twice.
    #[inline]
    pub(crate) fn try_lock(&self, operation: &Operation) -> bool {
        let Some((first, count, mode)) = extent(operation) else { return true };
        for i in 0..count {
            if !lock(self.word(first, i), mode) {
                for j in 0..i {
                    unlock(self.word(first, j), mode);
                }
                return false;
            }
        }
        true
    }

    #[inline]
    pub(crate) fn unlock(&self, operation: &Operation) {
        let Some((first, count, mode)) = extent(operation) else { return };
        for i in 0..count {
            unlock(self.word(first, i), mode);
        }
    }

    /// Asks for the first stripe of an operation at `offset`: another core may have held it last.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        nearside_dma::prefetch(self.word(offset >> STRIPE_SHIFT, 0), true);
    }

    /// An operation that waited will not try again: takes its mark off. Another that waits will set it again.
    pub(crate) fn abandon(&self, operation: &Operation) {
        let Some((first, count, _)) = extent(operation) else { return };
        for i in 0..count {
            self.word(first, i).fetch_and(!WAITED_FOR, Ordering::Relaxed);
        }
    }

    /// Stripes that somebody holds or waits for.
    pub(crate) fn held(&self) -> usize {
        self.words.iter().filter(|word| word.0.load(Ordering::Relaxed) != 0).count()
    }

    #[inline]
    fn word(&self, first: u64, i: usize) -> &AtomicU32 {
        &self.words[(first.wrapping_add(i as u64) % STRIPES as u64) as usize].0
    }
}

/// Acquire: the bytes that the last holder wrote are seen after it. Pairs with `unlock`.
#[inline]
fn lock(word: &AtomicU32, mode: Mode) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    loop {
        let then = match mode {
            Mode::Shared if now & (HELD | WAITED_FOR) == 0 => now + 1,
            Mode::Exclusive if now & !WAITED_FOR == 0 => HELD,
            Mode::Exclusive if now & WAITED_FOR == 0 => now | WAITED_FOR,
            _ => return false,
        };
        match word.compare_exchange_weak(now, then, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return mode == Mode::Shared || then == HELD,
            Err(other) => now = other,
        }
    }
}

/// Release: the next holder sees what was written under the lock.
#[inline]
fn unlock(word: &AtomicU32, mode: Mode) {
    match mode {
        Mode::Shared => {
            let before = word.fetch_sub(1, Ordering::Release);
            // Below zero it would look as if a mutation held it.
            assert!(before & HELD == 0 && before & !WAITED_FOR > 0, "a stripe without readers was unlocked");
        }
        Mode::Exclusive => {
            let before = word.fetch_and(!HELD, Ordering::Release);
            assert!(before & HELD != 0, "a stripe that no mutation held was unlocked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Operation = Operation::Read { offset: 8192, len: 65536 };
    const WRITE: Operation = Operation::Write { offset: 20000, len: 100, fua: false };

    #[test]
    fn readers_share_and_a_waiting_mutation_comes_next() {
        let stripes = Stripes::new();
        assert!(stripes.try_lock(&READ) && stripes.try_lock(&READ));
        assert!(!stripes.try_lock(&WRITE));
        assert!(!stripes.try_lock(&READ), "the write waits: no new readers");
        stripes.unlock(&READ);
        assert!(!stripes.try_lock(&WRITE));
        stripes.unlock(&READ);
        assert!(stripes.try_lock(&WRITE));
        assert!(!stripes.try_lock(&READ));
        stripes.unlock(&WRITE);
        assert!(stripes.try_lock(&READ));
        assert!(!stripes.try_lock(&WRITE));
        stripes.abandon(&WRITE);
        assert!(stripes.try_lock(&READ));
        stripes.unlock(&READ);
        stripes.unlock(&READ);
        assert_eq!(stripes.held(), 0);
    }

    #[test]
    #[should_panic(expected = "a stripe without readers was unlocked")]
    fn a_reader_unlocks_what_it_locked() {
        Stripes::new().unlock(&READ);
    }

    #[test]
    #[should_panic(expected = "a stripe that no mutation held was unlocked")]
    fn a_mutation_unlocks_what_it_locked() {
        Stripes::new().unlock(&WRITE);
    }

    #[test]
    fn a_range_longer_than_the_table_takes_all_of_it() {
        let stripes = Stripes::new();
        let all = Operation::Deallocate { offset: 0, len: u64::MAX };
        assert!(stripes.try_lock(&all));
        assert!(!stripes.try_lock(&READ));
        stripes.unlock(&all);
        assert!(stripes.try_lock(&READ));
    }
}
