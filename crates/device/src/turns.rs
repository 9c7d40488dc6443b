//! Whose turn it is where work of several waits for one place: who has had least of it.
//!
//! Fair queueing by what work was found to have cost, in virtual time (Parekh and Gallager, IEEE/ACM ToN
//! 1993): it passes by what work cost, divided by those who waited. Somebody's work is due where his last
//! ended, or, where nothing of his waited, not before the time it is; the earliest is next. So who has used
//! much while others waited waits until they have had as much, and no longer, whoever else comes; what was
//! used of an idle place is owed to nobody.

use std::collections::VecDeque;

/// Those who are remembered though nothing of theirs waits.
const MOST: usize = 1024;

/// Work that waits, by whom it is for.
#[derive(Debug)]
pub struct Turns<K, T> {
    lines: Vec<Line<K, T>>,
    /// The virtual time.
    now: u64,
    len: usize,
}

#[derive(Debug)]
struct Line<K, T> {
    whose: K,
    /// When the next of it is due.
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
        let now = self.now;
        if let Some(line) = self.line(whose) {
            if line.waiting.is_empty() {
                line.due = line.due.max(now);
            }
            line.waiting.push_back(work);
            self.len += 1;
        }
    }

    /// What is next, of those who may have it; and whose it is. What it cost is to be [said](Turns::cost).
    pub fn pop(&mut self, may: impl Fn(&K) -> bool) -> Option<(K, T)> {
        let can = |line: &&mut Line<K, T>| !line.waiting.is_empty() && may(&line.whose);
        let line = self.lines.iter_mut().filter(can).min_by_key(|line| line.due)?;
        let work = line.waiting.pop_front()?;
        self.now = self.now.max(line.due);
        let whose = line.whose.clone();
        self.len -= 1;
        self.forget();
        Some((whose, work))
    }

    /// What work of somebody's cost, in any unit that is much smaller than what work costs.
    pub fn cost(&mut self, whose: &K, cost: u64) {
        let others = |line: &&Line<K, T>| !line.waiting.is_empty() && line.whose != *whose;
        let active = 1 + self.lines.iter().filter(others).count() as u64;
        if let Some(line) = self.line(whose) {
            line.due = line.due.saturating_add(cost);
        }
        self.now = self.now.saturating_add(cost / active);
    }

    /// Takes out what is not wanted any more.
    pub fn take_unwanted(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut unwanted = Vec::new();
        for line in &mut self.lines {
            for work in std::mem::take(&mut line.waiting) {
                if wanted(&work) { line.waiting.push_back(work) } else { unwanted.push(work) }
            }
        }
        self.len -= unwanted.len();
        self.forget();
        unwanted
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
        assert_eq!(order(&mut turns, 5), [50, 200, 51, 201, 52]);
    }

    /// One who asks only when his last has ended is no new one each time.
    #[test]
    fn who_has_used_much_is_remembered() {
        let mut turns = Turns::default();
        turns.push(&1, (0, 1_000));
        assert_eq!(turns.pop(|_| true), Some((1, (0, 1_000))));
        (10..15).for_each(|n| turns.push(&2, (n, 100)));
        turns.cost(&1, 1_000);
        assert_eq!(order(&mut turns, 1), [10]);
        turns.push(&1, (1, 1_000));
        assert_eq!(order(&mut turns, 9), [11, 12, 13, 14, 1]);
    }

    /// Nor is who has used much kept waiting for ever by those who have never used anything.
    #[test]
    fn who_comes_anew_each_time_has_no_more_than_others() {
        let mut turns = Turns::default();
        turns.push(&0, 1_000);
        turns.pop(|_| true).unwrap();
        turns.push(&1, 10);
        turns.cost(&0, 1_000);
        turns.push(&0, 1_000);
        let served = (2..10_000).find(|fresh| {
            turns.push(fresh, 10);
            let (whose, cost) = turns.pop(|_| true).unwrap();
            turns.cost(&whose, cost);
            whose == 0
        });
        // It had 1,000 beside one who waited; all those have had about as much since.
        assert!((50..200).contains(&served.unwrap()), "{served:?}");
    }

    #[test]
    fn who_may_not_is_passed_over_and_what_nobody_wants_goes() {
        let mut turns = Turns::default();
        for (whose, work) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
            turns.push(&whose, (work, 1));
        }
        assert_eq!(turns.pop(|whose| *whose == 2), Some((2, (3, 1))));
        assert_eq!(turns.take_unwanted(|(work, _)| *work != 1), [(1, 1)]);
        assert_eq!((turns.len(), order(&mut turns, 9)), (2, vec![2, 4]));
    }

    #[test]
    fn memory_is_bounded_whoever_comes() {
        let mut turns = Turns::default();
        // One waits all the time, so that all others owe.
        turns.push(&0, 1_000);
        for fresh in 1..10_000 {
            turns.push(&fresh, 1_000);
            let (whose, cost) = turns.pop(|whose| *whose > 0).unwrap();
            turns.cost(&whose, cost);
        }
        assert!(turns.lines.len() <= MOST + 1, "{}", turns.lines.len());
    }
}
