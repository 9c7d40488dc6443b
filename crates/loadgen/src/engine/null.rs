//! The engine that does nothing: what remains is the generator's own cost. It may take its time, so that what
//! is measured can be known beforehand.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use nearside_clock::Nanos;

use super::{Done, Engine, Io, Next, Submit};

/// When an operation ends: a function of the operation and of now, which answers no time before now.
pub type Service = Box<dyn FnMut(&Io, Nanos) -> Nanos>;

/// Ends every operation after a told time, by default at once.
pub struct Null {
    depth: usize,
    /// Ended at their submission.
    ready: VecDeque<u32>,
    service: Option<Service>,
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Null {
    /// At once; up to `depth` in flight.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self { depth, ready: VecDeque::with_capacity(depth), service: None, due: BinaryHeap::new() }
    }

    /// After a time.
    #[must_use]
    pub fn with_service(depth: usize, service: impl FnMut(&Io, Nanos) -> Nanos + 'static) -> Self {
        Self { service: Some(Box::new(service)), due: BinaryHeap::with_capacity(depth), ..Self::new(depth) }
    }
}

impl Engine for Null {
    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        if self.ready.len() + self.due.len() >= self.depth {
            return Submit::Full;
        }
        match &mut self.service {
            None => self.ready.push_back(io.token),
            Some(service) => {
                let at = service(io, now).max(now);
                self.due.push(Reverse((at, io.token)));
            }
        }
        Submit::Taken
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        done.extend(self.ready.drain(..).map(|token| Done { token, at: now, result: Ok(()) }));
        while self.due.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            let Some(Reverse((_, token))) = self.due.pop() else { break };
            done.push(Done { token, at: now, result: Ok(()) });
        }
    }

    #[inline]
    fn next(&self) -> Next {
        match (self.ready.is_empty(), self.due.peek()) {
            (false, _) => Next::Poll,
            (true, Some(Reverse((due, _)))) => Next::At(*due),
            (true, None) => Next::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Direction;

    fn io(token: u32) -> Io {
        Io { token, direction: Direction::Read, offset: 0, len: 512 }
    }

    #[test]
    fn operations_end_when_told() {
        let mut null = Null::new(2);
        let mut done = Vec::new();
        assert_eq!(null.next(), Next::Idle);
        assert_eq!([null.submit(&io(0), Nanos(5)), null.submit(&io(1), Nanos(5))], [Submit::Taken; 2]);
        assert_eq!(null.submit(&io(2), Nanos(5)), Submit::Full);
        null.poll(Nanos(6), &mut done);
        assert_eq!(done.iter().map(|d| (d.token, d.at)).collect::<Vec<_>>(), [(0, Nanos(6)), (1, Nanos(6))]);
        done.clear();
        let mut later = Null::with_service(4, |io, now| now + (100 - u64::from(io.token)));
        for token in [0, 50] {
            assert_eq!(later.submit(&io(token), Nanos(10)), Submit::Taken);
        }
        assert_eq!(later.next(), Next::At(Nanos(60)));
        later.poll(Nanos(109), &mut done);
        assert_eq!((done.len(), done[0].token, done[0].at), (1, 50, Nanos(109)));
        assert_eq!(later.next(), Next::At(Nanos(110)));
    }
}
