//! What took long to compile and may come again: a long answer takes several commands, each with the same
//! patterns or the same program.

use std::sync::{Arc, Mutex, MutexGuard};

use nearside_ndp::Search;

/// How many are kept.
const MOST: usize = 16;
/// Bytes of all of them.
const BYTES: usize = 32 << 20;

/// What says how much it holds.
pub(crate) trait Weight {
    /// Bytes, about.
    fn memory(&self) -> usize;
}

impl Weight for Search {
    fn memory(&self) -> usize {
        Search::memory(self)
    }
}

/// The most recent, the last used at the end.
pub(crate) struct Kept<T> {
    kept: Mutex<Vec<Arc<T>>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { kept: Mutex::default() }
    }
}

impl<T: Weight> Kept<T> {
    fn kept(&self) -> MutexGuard<'_, Vec<Arc<T>>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One that was compiled before.
    pub(crate) fn get(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let mut kept = self.kept();
        let at = kept.iter().rposition(|one| is_it(one))?;
        let one = kept.remove(at);
        kept.push(one.clone());
        Some(one)
    }

    /// Keeps one. What has to go for it is freed here: that takes its time too.
    pub(crate) fn keep(&self, one: T) -> Arc<T> {
        let one = Arc::new(one);
        let mut old = Vec::new();
        {
            let mut kept = self.kept();
            kept.push(one.clone());
            let mut bytes: usize = kept.iter().map(|one| one.memory()).sum();
            while kept.len() > 1 && (kept.len() > MOST || bytes > BYTES) {
                let first = kept.remove(0);
                bytes -= first.memory();
                old.push(first);
            }
        }
        drop(old);
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, and a weight.
    struct One(&'static str, usize);

    impl Weight for One {
        fn memory(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_those_that_are_asked_for() {
        let kept = Kept::default();
        let first = kept.keep(One("first", 1));
        for name in ["second"].into_iter().chain(std::iter::repeat_n("other", MOST - 2)) {
            kept.keep(One(name, 1));
        }
        let get = |name: &str| kept.get(|one: &One| one.0 == name);
        assert!(Arc::ptr_eq(&get("first").unwrap(), &first));
        kept.keep(One("last", 1));
        assert!(get("first").is_some() && get("last").is_some());
        assert!(get("second").is_none());
    }

    #[test]
    fn large_ones_are_few() {
        let kept = Kept::default();
        for _ in 0..MOST {
            kept.keep(One("large", BYTES / 4 + 1));
        }
        assert_eq!(kept.kept().len(), 3);
        // One that is too large for all is kept as long as it is the last.
        kept.keep(One("huge", 2 * BYTES));
        assert_eq!(kept.kept().len(), 1);
        kept.keep(One("small", 1));
        assert_eq!(kept.kept().len(), 1);
        assert!(kept.get(|one| one.0 == "small").is_some());
    }
}
