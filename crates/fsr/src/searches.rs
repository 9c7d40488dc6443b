//! Compiled searches that may come again: a long answer takes several commands, each with the same patterns.

use std::sync::{Arc, Mutex, MutexGuard};

use nearside_ndp::{PatternError, Search, SearchOptions};

/// How many are kept.
const MOST: usize = 16;
/// Bytes of all of them.
const BYTES: usize = 32 << 20;

/// The most recent searches, the last used at the end.
#[derive(Default)]
pub(crate) struct Searches {
    kept: Mutex<Vec<Arc<Search>>>,
}

impl Searches {
    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Search>>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A search that was compiled before.
    pub(crate) fn get(&self, options: &SearchOptions) -> Option<Arc<Search>> {
        let mut kept = self.kept();
        let at = kept.iter().rposition(|search| search.options() == options)?;
        let search = kept.remove(at);
        kept.push(search.clone());
        Some(search)
    }

    /// Compiles, and keeps what came of it. What has to go for it is freed here: that takes its time too.
    pub(crate) fn compile(&self, options: SearchOptions) -> Result<Arc<Search>, PatternError> {
        let search = Arc::new(Search::compile(options)?);
        let mut old = Vec::new();
        {
            let mut kept = self.kept();
            kept.push(search.clone());
            let mut bytes: usize = kept.iter().map(|search| search.memory()).sum();
            while kept.len() > 1 && (kept.len() > MOST || bytes > BYTES) {
                let first = kept.remove(0);
                bytes -= first.memory();
                old.push(first);
            }
        }
        drop(old);
        Ok(search)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pattern: String) -> SearchOptions {
        SearchOptions { patterns: vec![pattern.into_bytes()], ..SearchOptions::default() }
    }

    #[test]
    fn the_last_ones_are_kept_and_those_that_are_asked_for() {
        let searches = Searches::default();
        let first = searches.compile(options("a+".into())).unwrap();
        for nr in 0..MOST - 1 {
            searches.compile(options(format!("b{nr}+"))).unwrap();
        }
        assert!(Arc::ptr_eq(&searches.get(first.options()).unwrap(), &first));
        searches.compile(options("c+".into())).unwrap();
        assert!(searches.get(first.options()).is_some());
        assert!(searches.get(&options("b0+".into())).is_none());
        assert!(searches.get(&options("b1+".into())).is_some());
        assert!(searches.compile(options("(".into())).is_err());
    }

    #[test]
    fn large_ones_are_few() {
        let searches = Searches::default();
        for nr in 0..MOST {
            let search =
                searches.compile(options(format!("(?:[a-z]{{0,90}}[0-9]?){{0,900}}[A-C]{nr}"))).unwrap();
            assert!(search.memory() * MOST > BYTES, "{} is too small for this test", search.memory());
        }
        let bytes: usize = searches.kept().iter().map(|search| search.memory()).sum();
        assert!(bytes <= BYTES, "{bytes}");
        assert!(searches.kept().len() < MOST);
    }
}
