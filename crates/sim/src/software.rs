//! The host's software as a constant: what the application waits for beyond the device.
//!
//! For media whose paper states that sum and no more (PIEEE'17, section III: less than 4 µs).
//! [`crate::cpu`] models what it is made of.

use std::collections::VecDeque;

use nearside_clock::Nanos;
use nearside_loadgen::engine::{Done, Engine, Io, Next, Submit};

/// An [`Engine`] whose completions reach the application `ns` after the driver has them.
pub struct Software<E> {
    engine: E,
    ns: u64,
    /// In the order in which they came, and so of their times.
    waiting: VecDeque<Done>,
    come: Vec<Done>,
}

impl<E: Engine> Software<E> {
    /// Over an engine; in nanoseconds.
    pub fn new(engine: E, ns: u64) -> Self {
        Self { engine, ns, waiting: VecDeque::new(), come: Vec::new() }
    }
}

impl<E: Engine> Engine for Software<E> {
    fn depth(&self) -> usize {
        self.engine.depth()
    }

    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        self.engine.submit(io, now)
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.engine.poll(now, &mut self.come);
        let ns = self.ns;
        self.waiting.extend(self.come.drain(..).map(|it| Done { at: it.at + ns, ..it }));
        while self.waiting.front().is_some_and(|it| it.at <= now) {
            done.extend(self.waiting.pop_front());
        }
    }

    #[inline]
    fn next(&self) -> Next {
        match (self.engine.next(), self.waiting.front()) {
            (Next::Poll, _) => Next::Poll,
            (next, None) => next,
            (Next::At(at), Some(it)) => Next::At(at.min(it.at)),
            (_, Some(it)) => Next::At(it.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use nearside_clock::SimClock;
    use nearside_loadgen::run::simulated;
    use nearside_loadgen::{Arrivals, Plan, Rw, Workload};
    use nearside_media::Delay;

    use super::*;
    use crate::Bare;

    #[test]
    fn it_is_added_to_each_and_takes_no_turn_of_the_device() {
        // One unit of 10 us. Alone an I/O takes 14 us; four in flight still end every 10 us.
        for (depth, each_ns, all_ns) in [(1, 14_000, 1_400_000), (4, 40_000, 1_000_000)] {
            let workload = Workload::new(Rw::RandRead, 4096, 1 << 30);
            let mut plan = Plan::new(workload, Arrivals::Closed { depth }, 0);
            (plan.runtime_ns, plan.count) = (None, Some(100));
            let clock = SimClock::new();
            let mut engine = Software::new(Bare::new(Delay::units(1, 10_000).medium(), 64), 4_000);
            let outcome = simulated(&plan, &mut engine, &clock).unwrap();
            let median = outcome.both().response.percentile(50.0).ns;
            assert!(median.abs_diff(each_ns) * 500 <= each_ns, "depth {depth}: {median} ns");
            let end = nearside_clock::Clock::now(&clock).0;
            assert!(end.abs_diff(all_ns) <= 10_000, "depth {depth}: {end} ns");
        }
    }
}
