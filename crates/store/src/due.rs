//! What waits for its time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use nearside_clock::Nanos;

/// Things, each with the time at which it is due; of those due at the same time the first in comes first out.
#[derive(Debug)]
pub struct TimerQueue<T> {
    heap: BinaryHeap<Reverse<DueEntry<T>>>,
    order: u64,
}

#[derive(Debug)]
struct DueEntry<T> {
    key: (Nanos, u64),
    what: T,
}

impl<T> PartialEq for DueEntry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for DueEntry<T> {}

impl<T> PartialOrd for DueEntry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for DueEntry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T> Default for TimerQueue<T> {
    fn default() -> TimerQueue<T> {
        TimerQueue { heap: BinaryHeap::new(), order: 0 }
    }
}

impl<T> TimerQueue<T> {
    /// `what` is due at `when`.
    pub fn push(&mut self, when: Nanos, what: T) {
        self.order += 1;
        self.heap.push(Reverse(DueEntry { key: (when, self.order), what }));
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(entry)| entry.key.0)
    }

    /// The next one, where its time has come.
    pub fn pop(&mut self, now: Nanos) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry.what)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_by_order_of_coming() {
        let mut due = TimerQueue::default();
        for (when, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            due.push(Nanos(when), what);
        }
        assert_eq!((due.next_due(), due.pop(Nanos(2)), due.len()), (Some(Nanos(3)), None, 5));
        let out: Vec<char> = std::iter::from_fn(|| due.pop(Nanos(5))).collect();
        assert_eq!(out, ['a', 'b', 'c', 'd']);
        assert_eq!((due.next_due(), due.pop(Nanos(9)), due.is_empty()), (Some(Nanos(9)), Some('e'), true));
    }
}
