//! A store that takes its time: any store below, completions at the time of a model.
//!
//! The operation itself is handed to the store below when it is submitted; what waits is its completion,
//! until the time that a [`Medium`] gives for it. The model asks no clock, so it runs on real and on made-up
//! time alike. All channels share one medium.

use std::io;
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_dma::Memory;
use nearside_media::{Medium, Parametric, Request, RequestKind};

use crate::{
    Backing, Channel, Completion, Data, Operation, Standing, Store, StoreError, Submitted, TimerQueue, Token,
};

/// A store over a medium.
#[derive(Debug)]
pub struct Modelled<S, M> {
    inner: S,
    shared: Arc<Mutex<SharedMedium<M>>>,
}

/// A store over a [`nearside_media::Delay`].
pub type Delayed<S> = Modelled<S, Parametric>;

#[derive(Debug)]
struct SharedMedium<M> {
    medium: M,
    /// The latest time that it was told: two channels' times may come in either order.
    now: Nanos,
}

impl<S: Clone, M> Clone for Modelled<S, M> {
    fn clone(&self) -> Self {
        Modelled { inner: self.inner.clone(), shared: self.shared.clone() }
    }
}

impl<S: Store, M: Medium> Modelled<S, M> {
    /// `inner`, as slow as `medium`.
    pub fn new(inner: S, medium: M) -> Modelled<S, M> {
        Modelled { inner, shared: Arc::new(Mutex::new(SharedMedium { medium, now: Nanos(0) })) }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store, M: Medium> Store for Modelled<S, M> {
    type Channel = ModelledChannel<S::Channel, M>;

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn resize(&self, bytes: Option<u64>) -> io::Result<u64> {
        self.inner.resize(bytes)
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn backing(&self) -> Option<Backing> {
        self.inner.backing()
    }

    fn standing(&self) -> &Standing {
        self.inner.standing()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Self::Channel> {
        Ok(ModelledChannel {
            inner: self.inner.channel(memory)?,
            shared: self.shared.clone(),
            slots: Vec::new(),
            free: Vec::new(),
            due: TimerQueue::default(),
            gathered: Vec::new(),
        })
    }
}

struct DelayedOperation {
    token: Token,
    due: Nanos,
    completion: Option<Completion>,
}

/// A way into a [`Modelled`].
pub struct ModelledChannel<C, M> {
    inner: C,
    shared: Arc<Mutex<SharedMedium<M>>>,
    slots: Vec<Option<DelayedOperation>>,
    free: Vec<usize>,
    /// Slots that are done below and wait for their time.
    due: TimerQueue<usize>,
    /// Of `gather`, kept for its room.
    gathered: Vec<(usize, Completion)>,
}

impl Operation {
    /// The operation as a medium sees it.
    pub fn request(&self) -> Request {
        let kind = match self {
            Operation::Read { .. } => RequestKind::Read,
            Operation::Write { .. } => RequestKind::Write,
            Operation::Flush => RequestKind::Flush,
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => RequestKind::Deallocate,
        };
        let (offset, len) = self.range().unwrap_or((0, 0));
        Request { kind, offset, len }
    }
}

impl<C: Channel, M: Medium> ModelledChannel<C, M> {
    fn finish_time(&mut self, operation: &Operation, now: Nanos) -> Nanos {
        let mut shared = self.shared.lock().unwrap_or_else(|e| e.into_inner());
        shared.now = shared.now.max(now);
        let now = shared.now.0;
        Nanos(shared.medium.finish(operation.request(), now))
    }

    fn done_below(&mut self, index: usize, completion: Completion, now: Nanos) {
        let Some(slot) = &mut self.slots[index] else {
            panic!("the store below completed operation {index}, which has ended");
        };
        assert!(slot.completion.is_none(), "the store below completed operation {index} twice");
        slot.completion = Some(completion);
        self.due.push(slot.due.max(now), index);
    }

    /// Polls below. Apart from `poll`, so that its closure does not depend on the caller's: stores nest.
    fn gather(&mut self, now: Nanos) -> Option<Nanos> {
        if self.inner.in_flight() == 0 {
            return None;
        }
        let mut done = std::mem::take(&mut self.gathered);
        let next =
            self.inner.poll(now, &mut |Token(index), completion| done.push((index as usize, completion)));
        for (index, completion) in done.drain(..) {
            self.done_below(index, completion, now);
        }
        self.gathered = done;
        next
    }
}

impl<C: Channel, M: Medium> Channel for ModelledChannel<C, M> {
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
                self.slots[index] = Some(DelayedOperation { token, due, completion: None });
                self.done_below(index, completion, now);
                Submitted::Pending
            }
            Submitted::Pending => {
                self.slots[index] = Some(DelayedOperation { token, due, completion: None });
                Submitted::Pending
            }
        }
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let below = self.gather(now);
        while let Some(index) = self.due.pop(now) {
            if let Some(DelayedOperation { token, completion: Some(completion), .. }) =
                self.slots[index].take()
            {
                self.free.push(index);
                sink(token, completion);
            }
        }
        match (self.due.next_due(), below) {
            (Some(due), Some(below)) => Some(due.min(below)),
            (due, below) => due.or(below),
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        self.inner.prefetch(offset, len, writes);
    }

    fn memory_changed(&mut self) {
        self.inner.memory_changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dram;
    use nearside_dma::IoBuffer;
    use nearside_media::Delay;

    /// Reads blocks of 4 KiB at the given block numbers, all at once; the time of each completion.
    fn times(delay: Delay, blocks: &[u64]) -> Vec<(u64, u64)> {
        let store = Modelled::new(Dram::new(1 << 20, 4096).unwrap(), delay.medium());
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
