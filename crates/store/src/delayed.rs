//! A store that takes its time: any store below, completions at the time of a model.
//!
//! The operation itself is handed to the store below when it is submitted; what is delayed is its completion. The model
//! gives a finish time from the operation and `now` and asks no clock, so it runs on real and on made-up time alike:
//!
//! - without units every operation takes `fixed_ns` and `per_kib_ns`, however many are in flight;
//! - with `units` the store is that many devices side by side: its bytes are dealt out to them in stripes of `stripe` bytes, and each
//!   serves one stripe's part of one operation at a time, in the order of submission. All channels share the units;
//! - every `stall_every`-th operation (by a seeded draw, on average) takes `stall_ns` more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_dma::Memory;

use crate::{Channel, Completion, Data, Operation, Store, StoreError, Submitted, Token, draw};

/// How long operations take. All zero: no delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Per operation, or per stripe touched where there are units, in nanoseconds.
    pub fixed_ns: u64,
    /// Per 1024 bytes, in nanoseconds.
    pub per_kib_ns: u64,
    /// Devices side by side; 0: no operation waits for another.
    pub units: u32,
    /// Bytes that lie together on one unit.
    pub stripe: u64,
    /// One operation in so many stalls; 0: none.
    pub stall_every: u64,
    /// How long a stall is, in nanoseconds.
    pub stall_ns: u64,
    /// Of the draw that picks the operations that stall.
    pub seed: u64,
}

impl Delay {
    /// `fixed_ns` per operation.
    pub fn fixed(fixed_ns: u64) -> Delay {
        Delay { fixed_ns, per_kib_ns: 0, units: 0, stripe: 4096, stall_every: 0, stall_ns: 0, seed: 1 }
    }

    /// So many units, each busy for `fixed_ns` per stripe of 4 KiB.
    pub fn units(units: u32, fixed_ns: u64) -> Delay {
        Delay { units, ..Delay::fixed(fixed_ns) }
    }
}

/// A store with delays.
#[derive(Clone, Debug)]
pub struct Delayed<S> {
    inner: S,
    delay: Delay,
    busy: Arc<Mutex<Vec<Nanos>>>,
    channels: Arc<std::sync::atomic::AtomicU64>,
}

impl<S: Store> Delayed<S> {
    /// `inner`, delayed. A stripe of 0 bytes counts as one block.
    pub fn new(inner: S, mut delay: Delay) -> Delayed<S> {
        delay.stripe = delay.stripe.max(u64::from(inner.block_size()));
        let busy = vec![Nanos(0); delay.units as usize];
        Delayed { inner, delay, busy: Arc::new(Mutex::new(busy)), channels: Arc::default() }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> Store for Delayed<S> {
    type Channel = DelayedChannel<S::Channel>;

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Self::Channel> {
        let nth = self.channels.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(DelayedChannel {
            inner: self.inner.channel(memory)?,
            delay: self.delay,
            busy: self.busy.clone(),
            random: self.delay.seed.wrapping_add(nth.wrapping_mul(0x1234_5678_9abc)),
            slots: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            order: 0,
        })
    }
}

struct Slot {
    token: Token,
    due: Nanos,
    completion: Option<Completion>,
}

/// A way into a [`Delayed`].
pub struct DelayedChannel<C> {
    inner: C,
    delay: Delay,
    busy: Arc<Mutex<Vec<Nanos>>>,
    random: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Done below and waiting for their time: (when, order of becoming so, slot).
    due: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    order: u64,
}

impl<C: Channel> DelayedChannel<C> {
    fn finish_time(&mut self, operation: &Operation, now: Nanos) -> Nanos {
        let delay = self.delay;
        let cost = |len: u64| delay.fixed_ns.saturating_add(len.saturating_mul(delay.per_kib_ns) / 1024);
        let mut finish = match operation.range() {
            None | Some((_, 0)) => now + delay.fixed_ns,
            Some((_, len)) if delay.units == 0 => now + cost(len),
            Some((offset, len)) => {
                let mut busy = self.busy.lock().unwrap_or_else(|e| e.into_inner());
                let (mut at, end, mut finish) = (offset, offset + len, now);
                while at < end {
                    let next = ((at / delay.stripe + 1) * delay.stripe).min(end);
                    let unit = &mut busy[(at / delay.stripe % u64::from(delay.units)) as usize];
                    *unit = (*unit).max(now) + cost(next - at);
                    finish = finish.max(*unit);
                    at = next;
                }
                finish
            }
        };
        if delay.stall_every > 0 && draw(&mut self.random).is_multiple_of(delay.stall_every) {
            finish = finish + delay.stall_ns;
        }
        finish
    }

    fn done_below(&mut self, index: usize, completion: Completion, now: Nanos) {
        if let Some(slot) = &mut self.slots[index] {
            slot.completion = Some(completion);
            self.order += 1;
            self.due.push(Reverse((slot.due.max(now), self.order, index)));
        }
    }

    /// Polls below. Apart from `poll`, so that its closure does not depend on the caller's: stores nest.
    fn gather(&mut self, now: Nanos) -> Option<Nanos> {
        if self.inner.in_flight() == 0 {
            return None;
        }
        let mut done = Vec::new();
        let next =
            self.inner.poll(now, &mut |Token(index), completion| done.push((index as usize, completion)));
        for (index, completion) in done {
            self.done_below(index, completion, now);
        }
        next
    }
}

impl<C: Channel> Channel for DelayedChannel<C> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let submitted = self.inner.submit(operation, data, Token(index as u64), now);
        // What was refused took no time.
        if let Submitted::Done(Completion { result: Err(error), .. }) = &submitted
            && !matches!(error, StoreError::Medium { .. })
        {
            self.free.push(index);
            return submitted;
        }
        let due = self.finish_time(&operation, now);
        match submitted {
            Submitted::Done(completion) if due <= now => {
                self.free.push(index);
                Submitted::Done(completion)
            }
            Submitted::Done(completion) => {
                self.slots[index] = Some(Slot { token, due, completion: None });
                self.done_below(index, completion, now);
                Submitted::Pending
            }
            Submitted::Pending => {
                self.slots[index] = Some(Slot { token, due, completion: None });
                Submitted::Pending
            }
        }
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let below = self.gather(now);
        while let Some(&Reverse((due, _, index))) = self.due.peek() {
            if due > now {
                return Some(below.map_or(due, |below| below.min(due)));
            }
            self.due.pop();
            if let Some(Slot { token, completion: Some(completion), .. }) = self.slots[index].take() {
                self.free.push(index);
                sink(token, completion);
            }
        }
        below
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.inner.prefetch(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dram;
    use nearside_dma::IoBuffer;

    /// Reads blocks of 4 KiB at the given block numbers, all at once; the time of each completion.
    fn times(delay: Delay, blocks: &[u64]) -> Vec<(u64, u64)> {
        let store = Delayed::new(Dram::new(1 << 20, 4096).unwrap(), delay);
        let mut channel = store.channel(Arc::new(Memory::new())).unwrap();
        for (token, block) in (0..).zip(blocks) {
            let read = Operation::Read { offset: block * 4096, len: 4096 };
            let data = Data::Owned(IoBuffer::new(4096).unwrap());
            assert!(matches!(channel.submit(read, data, Token(token), Nanos(100)), Submitted::Pending));
        }
        let (mut now, mut seen) = (Nanos(100), Vec::new());
        while let Some(next) = channel.poll(now, &mut |Token(token), _| seen.push((token, now.0 - 100))) {
            assert!(next > now);
            now = next;
        }
        assert_eq!(channel.in_flight(), 0);
        seen
    }

    #[test]
    fn units_work_side_by_side_and_one_after_the_other() {
        assert_eq!(times(Delay::fixed(50), &[0, 8, 8]), [(0, 50), (1, 50), (2, 50)]);
        let eight = Delay::units(8, 50);
        assert_eq!(times(eight, &[0, 1, 2, 3, 4, 5, 6, 7]), Vec::from_iter((0..8).map(|n| (n, 50))));
        assert_eq!(times(eight, &[0, 8, 1, 16]), [(0, 50), (2, 50), (1, 100), (3, 150)]);
        let by_size = Delay { per_kib_ns: 10, ..Delay::fixed(0) };
        assert_eq!(times(by_size, &[0]), [(0, 40)]);
    }

    #[test]
    fn stalls_come_as_often_as_told_and_the_same_by_seed() {
        let delay = Delay { stall_every: 4, stall_ns: 1000, seed: 3, ..Delay::fixed(10) };
        let blocks: Vec<u64> = (0..200).collect();
        let seen = times(delay, &blocks);
        let stalled = seen.iter().filter(|(_, at)| *at == 1010).count();
        assert!((20..80).contains(&stalled), "{stalled} of 200");
        assert_eq!(seen, times(delay, &blocks));
    }
}
