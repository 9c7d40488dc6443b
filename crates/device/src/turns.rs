//! Whose turn it is where work of several waits for one place: who has had least of it.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), by what work was found to have cost:
//! somebody's work begins where his last ended, or where the work that began last did, whichever is later,
//! and the earliest is next. Who comes anew so waits for one piece of work of each of the others at most, and
//! who has used much waits until the others have had as much.

use std::collections::VecDeque;

/// Those who are remembered though nothing of theirs waits.
const MOST: usize = 1024;

/// Work that waits, by whom it is for.
#[derive(Debug)]
pub struct Turns<K, T> {
    lines: Vec<Line<K, T>>,
    /// Where the work that began last did.
    now: u64,
    len: usize,
}

#[derive(Debug)]
struct Line<K, T> {
    whose: K,
    /// Where the next of it begins, or the last did that has not ended.
    due: u64,
    waiting: VecDeque<T>,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Turns::new()
    }
}

impl<K, T> Turns<K, T> {
    /// Nothing waits.
    pub const fn new() -> Turns<K, T> {
        Turns { lines: Vec::new(), now: 0, len: 0 }
    }

    /// How much waits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing does.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<K: PartialEq + Clone, T> Turns<K, T> {
    fn line(&mut self, whose: &K) -> Option<&mut Line<K, T>> {
        let at = self.lines.iter().position(|line| line.whose == *whose).unwrap_or_else(|| {
            self.lines.push(Line { whose: whose.clone(), due: self.now, waiting: VecDeque::new() });
            self.lines.len() - 1
        });
        self.lines.get_mut(at)
    }

    /// Work, behind what waits of the same.
    pub fn push(&mut self, whose: &K, work: T) {
        if let Some(line) = self.line(whose) {
            line.waiting.push_back(work);
            self.len += 1;
        }
    }

    /// What is next, of those who may have it; and whose it is. What it cost is to be [said](Turns::cost).
    pub fn pop(&mut self, may: impl Fn(&K) -> bool) -> Option<(K, T)> {
        let can = |line: &&mut Line<K, T>| !line.waiting.is_empty() && may(&line.whose);
        let line = self.lines.iter_mut().filter(can).min_by_key(|line| line.due)?;
        let work = line.waiting.pop_front()?;
        line.due = line.due.max(self.now);
        self.now = line.due;
        let whose = line.whose.clone();
        self.len -= 1;
        self.forget();
        Some((whose, work))
    }

    /// What work of somebody's cost, in any unit.
    pub fn cost(&mut self, whose: &K, cost: u64) {
        let now = self.now;
        if let Some(line) = self.line(whose) {
            line.due = line.due.max(now).saturating_add(cost);
        }
    }

    /// Keeps what is still wanted.
    pub fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        self.lines.iter_mut().for_each(|line| line.waiting.retain(&mut wanted));
        self.len = self.lines.iter().map(|line| line.waiting.len()).sum();
        self.forget();
    }

    /// Those of whom nothing waits, and who are owed as much as who comes anew.
    fn forget(&mut self) {
        let (now, many) = (self.now, self.lines.len() > MOST);
        self.lines.retain(|line| !line.waiting.is_empty() || line.due > now && !many);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next so many, where work costs what it says.
    fn order(turns: &mut Turns<u8, (u32, u64)>, count: usize) -> Vec<u32> {
        let mut next = || {
            let (whose, (number, cost)) = turns.pop(|_| true)?;
            turns.cost(&whose, cost);
            Some(number)
        };
        (0..count).map_while(|_| next()).collect()
    }

    #[test]
    fn who_has_had_least_is_next() {
        let mut turns = Turns::default();
        (0..3).for_each(|n| turns.push(&1, (n, 60)));
        (10..14).for_each(|n| turns.push(&2, (n, 25)));
        assert_eq!((turns.len(), order(&mut turns, 9)), (7, vec![0, 10, 11, 12, 1, 13, 2]));
        assert!(turns.is_empty());
    }

    #[test]
    fn who_comes_anew_is_owed_nothing_and_owes_nothing() {
        let mut turns = Turns::default();
        (0..100).for_each(|n| turns.push(&1, (n, 10)));
        assert_eq!(order(&mut turns, 50), (0..50).collect::<Vec<_>>());
        // As if it had waited for all the time before, it would have fifty turns now.
        (200..203).for_each(|n| turns.push(&2, (n, 10)));
        assert_eq!(order(&mut turns, 5), [200, 50, 201, 51, 202]);
    }

    /// One who asks only when his last has ended is no new one each time.
    #[test]
    fn who_has_used_much_is_remembered() {
        let mut turns = Turns::default();
        turns.push(&1, (0, 1_000));
        assert_eq!(order(&mut turns, 1), [0]);
        (10..15).for_each(|n| turns.push(&2, (n, 100)));
        assert_eq!(order(&mut turns, 1), [10]);
        turns.push(&1, (1, 1_000));
        assert_eq!(order(&mut turns, 9), [11, 12, 13, 14, 1]);
    }

    #[test]
    fn who_may_not_is_passed_over_and_what_nobody_wants_goes() {
        let mut turns = Turns::default();
        for (whose, work) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
            turns.push(&whose, (work, 1));
        }
        assert_eq!(turns.pop(|whose| *whose == 2), Some((2, (3, 1))));
        turns.retain(|(work, _)| *work != 1);
        assert_eq!((turns.len(), order(&mut turns, 9)), (2, vec![2, 4]));
    }

    #[test]
    fn memory_is_bounded_whoever_comes() {
        let mut turns = Turns::default();
        for whose in 0..10_000 {
            turns.push(&whose, (0, 1));
            let (whose, (_, cost)) = turns.pop(|_| true).unwrap();
            turns.cost(&whose, cost);
        }
        assert!(turns.lines.len() <= MOST + 1, "{}", turns.lines.len());
    }
}
