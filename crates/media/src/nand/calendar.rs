//! When a channel is taken: intervals of time, some of them in the future.
//!
//! A die that is busy until late reserves its transfer for late; a transfer of another die that is ready
//! earlier goes into the gap before it. A plain "free from" would let the first block the second.

use std::collections::VecDeque;

/// Intervals that are remembered at most. Dies that are ordered far ahead of the present, as when writes come
/// faster than the flash takes them, leave more; the earliest are then forgotten.
const REMEMBERED: usize = 64;

/// The taken intervals (start, end), in order and apart from each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar {
    taken: VecDeque<(u64, u64)>,
}

impl Calendar {
    /// Takes the first `len` nanoseconds that are free at or after `earliest`; answers their start. Nothing
    /// before `now` will be asked for again.
    pub fn reserve(&mut self, earliest: u64, len: u64, now: u64) -> u64 {
        while self.taken.len() > REMEMBERED || self.taken.front().is_some_and(|&(_, end)| end <= now) {
            self.taken.pop_front();
        }
        let (mut start, mut at) = (earliest, self.taken.len());
        for (index, &(from, until)) in self.taken.iter().enumerate() {
            if start + len <= from {
                at = index;
                break;
            }
            start = start.max(until);
        }
        let end = start + len;
        // What touches becomes one, so that a busy channel's calendar stays short.
        let before = at.checked_sub(1).filter(|&i| self.taken[i].1 == start);
        let after = self.taken.get(at).is_some_and(|&(from, _)| from == end);
        match (before, after) {
            (Some(i), true) => {
                self.taken[i].1 = self.taken[at].1;
                self.taken.remove(at);
            }
            (Some(i), false) => self.taken[i].1 = end,
            (None, true) => self.taken[at].0 = start,
            (None, false) => self.taken.insert(at, (start, end)),
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use nearside_random::draw;

    use super::*;

    #[test]
    fn gaps_are_used_and_nothing_overlaps() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.reserve(100, 10, 0), 100);
        assert_eq!(calendar.reserve(0, 50, 0), 0);
        assert_eq!(calendar.reserve(0, 50, 0), 50);
        assert_eq!(calendar.reserve(0, 1, 0), 110);
        assert_eq!(calendar.taken.len(), 1, "{calendar:?}");
        assert_eq!(calendar.reserve(200, 10, 0), 200);
        assert_eq!(calendar.reserve(0, 100, 0), 210);
        assert_eq!(calendar.reserve(0, 89, 0), 111);
        assert_eq!(calendar.taken.len(), 1, "{calendar:?}");
        assert_eq!(calendar.reserve(5000, 1, 4000), 5000);
        assert_eq!(calendar.taken.len(), 1);

        // Against a plain bitmap of nanoseconds.
        let (mut calendar, mut bitmap, mut seed) = (Calendar::default(), vec![false; 4000], 1);
        for now in 0..300u64 {
            let earliest = now + draw(&mut seed) % 300;
            let len = 1 + draw(&mut seed) % 9;
            let free = |at: u64| (at..at + len).all(|t| !bitmap[t as usize]);
            let expected = (earliest..).find(|&at| free(at)).unwrap();
            assert_eq!(calendar.reserve(earliest, len, now), expected);
            bitmap[expected as usize..(expected + len) as usize].fill(true);
        }
    }
}
