//! The ranges that a scan has read: each write that comes beside it is held against them.

use std::collections::BTreeMap;

/// Ranges that are kept apart; beyond, they become one.
const MOST: usize = 1 << 14;

/// Ranges, each by where it begins, with where it ends; none touches the next. They come in any order, as
/// rows of a table do.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds one. Too many become one: what was kept of them is given back, which takes its time to drop, and
    /// is for where nobody waits.
    #[must_use]
    pub(crate) fn add(&mut self, from: u64, to: u64) -> Option<Ranges> {
        let Ranges(all) = self;
        if to <= from {
            return None;
        }
        let before = all.range(..=from).next_back().filter(|(_, end)| **end >= from);
        let (from, mut to) = (before.map_or(from, |(begin, _)| *begin), to);
        while let Some((&begin, &end)) = all.range(from..=to).next() {
            all.remove(&begin);
            to = to.max(end);
        }
        all.insert(from, to);
        if all.len() <= MOST {
            return None;
        }
        let (first, last) =
            (all.first_key_value().map_or(from, |r| *r.0), all.last_key_value().map_or(to, |r| *r.1));
        Some(Ranges(std::mem::replace(all, BTreeMap::from([(first, last)]))))
    }

    /// Whether one of them has a byte of that one.
    pub(crate) fn overlap(&self, from: u64, to: u64) -> bool {
        self.0.range(..to).next_back().is_some_and(|(_, end)| *end > from)
    }
}

#[cfg(test)]
mod tests {
    use nearside_random::Rng;

    use super::*;

    /// Against the bytes one by one.
    #[test]
    fn a_range_overlaps_what_was_added() {
        const BYTES: u64 = 4000;
        for seed in 0..20 {
            let (mut rng, mut ranges) = (Rng(seed), Ranges::default());
            let mut added = [false; BYTES as usize];
            for _ in 0..400 {
                let from = rng.below(BYTES - 99);
                let to = from + 1 + if rng.below(8) == 0 { rng.below(98) } else { rng.below(8) };
                assert!(ranges.add(from, to).is_none());
                added[from as usize..to as usize].fill(true);
                let from = rng.below(BYTES - 9);
                let to = from + 1 + rng.below(8);
                let is = added[from as usize..to as usize].contains(&true);
                assert_eq!(ranges.overlap(from, to), is, "seed {seed}: {from} to {to}");
            }
            let all: Vec<_> = ranges.0.into_iter().collect();
            assert!(all.windows(2).all(|two| two[0].1 < two[1].0), "seed {seed}");
        }
    }

    #[test]
    fn too_many_become_one() {
        let mut ranges = Ranges::default();
        let count = MOST as u64 + 9;
        let given_back = |at: u64| ranges.add(at * 10, at * 10 + 1).is_some();
        assert_eq!((0..count).rev().map(given_back).filter(|is| *is).count(), 1);
        assert!(ranges.0.len() <= MOST && ranges.overlap(count * 10 - 15, count * 10 - 14));
        assert!(!ranges.overlap(count * 10, u64::MAX));
    }
}
