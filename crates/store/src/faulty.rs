//! A store that fails where told: any store below, and a list of rules that can change while it runs.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory};

use crate::{Backing, Channel, Completion, Data, Operation, Standing, Store, StoreError, Submitted, Token};
use nearside_random::draw;

/// Which kinds of operation a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All.
    Any,
    /// Reads.
    Reads,
    /// Writes, write zeroes, deallocations.
    Mutations,
    /// Flushes.
    Flushes,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was done.
    Error,
    /// Some of its blocks (a seeded run of them) were written, the others not; other kinds fail as by
    /// [`Fault::Error`].
    Torn,
    /// Nothing was done: there is no room for what was to be written. Other kinds fail as by
    /// [`Fault::Error`].
    Full,
    /// The channel says that it is busy.
    Busy,
}

/// When to fail. An operation fails by the first rule that it meets and that is not used up.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Kinds.
    pub kinds: Kinds,
    /// Bytes; operations that touch one of them. `None`: all. A flush touches none.
    pub range: Option<Range<u64>>,
    /// So many operations that meet the rule pass first.
    pub after: u64,
    /// So many fail, then none; `None`: all.
    pub times: Option<u64>,
    /// Of a million operations that meet it, so many fail, by a seeded draw.
    pub per_million: u64,
    /// How.
    pub fault: Fault,
}

impl Rule {
    /// All operations of these kinds fail.
    pub fn new(kinds: Kinds, fault: Fault) -> Rule {
        Rule { kinds, range: None, after: 0, times: None, per_million: 1_000_000, fault }
    }

    fn meets(&self, operation: &Operation) -> bool {
        let kind = match self.kinds {
            Kinds::Any => true,
            Kinds::Reads => matches!(operation, Operation::Read { .. }),
            Kinds::Mutations => operation.mutates(),
            Kinds::Flushes => matches!(operation, Operation::Flush),
        };
        let place = match (&self.range, operation.range()) {
            (None, _) => true,
            (Some(range), Some((offset, len))) => offset < range.end && range.start < offset + len,
            (Some(_), None) => false,
        };
        kind && place
    }
}

/// The rules, shared by the store's channels and whoever changes them.
#[derive(Debug, Default)]
pub struct Plan {
    rules: Vec<Rule>,
    random: u64,
    failed: u64,
}

impl Plan {
    /// How many operations have failed by it.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Adds a rule, after those there are.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Ends all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    fn judge(&mut self, operation: &Operation) -> Option<(Fault, u64)> {
        for rule in &mut self.rules {
            if !rule.meets(operation) || rule.times == Some(0) {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            if draw(&mut self.random) % 1_000_000 >= rule.per_million {
                continue;
            }
            rule.times = rule.times.map(|n| n - 1);
            self.failed += 1;
            return Some((rule.fault, draw(&mut self.random)));
        }
        None
    }
}

/// A store with faults.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    plan: Arc<Mutex<Plan>>,
}

impl<S: Store> Faulty<S> {
    /// `inner`, failing by `rules`.
    pub fn new(inner: S, seed: u64, rules: impl IntoIterator<Item = Rule>) -> Faulty<S> {
        let plan = Plan { rules: rules.into_iter().collect(), random: seed, failed: 0 };
        Faulty { inner, plan: Arc::new(Mutex::new(plan)) }
    }

    /// The rules, to change or count while the store runs.
    pub fn plan(&self) -> Arc<Mutex<Plan>> {
        self.plan.clone()
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> Store for Faulty<S> {
    type Channel = FaultyChannel<S::Channel>;

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
        Ok(FaultyChannel {
            inner: self.inner.channel(memory.clone())?,
            memory,
            block_size: u64::from(self.inner.block_size()),
            plan: self.plan.clone(),
            slots: Vec::new(),
            free: Vec::new(),
            ended: VecDeque::new(),
        })
    }
}

/// A way into a [`Faulty`].
pub struct FaultyChannel<C> {
    inner: C,
    memory: Arc<Memory>,
    block_size: u64,
    plan: Arc<Mutex<Plan>>,
    /// What is in flight below, under its index: the caller's token, and the failure of a torn write whose
    /// part it is.
    slots: Vec<Option<(Token, Option<Completion>)>>,
    free: Vec<usize>,
    ended: VecDeque<(Token, Completion)>,
}

impl<C: Channel> FaultyChannel<C> {
    /// Writes a run of the operation's blocks, then fails.
    fn tear(
        &mut self,
        operation: Operation,
        data: Data<'_>,
        token: Token,
        now: Nanos,
        chance: u64,
    ) -> Submitted {
        let error = Err(operation.failed("injected: torn"));
        let (offset, len) = operation.range().unwrap_or((0, 0));
        let blocks = len / self.block_size;
        if blocks == 0 {
            return Submitted::done(error, data);
        }
        let start = chance % blocks * self.block_size;
        let part = (1 + (chance >> 32) % blocks).min(blocks - start / self.block_size) * self.block_size;
        let Ok(mut copy) = IoBuffer::new(len as usize) else { return Submitted::done(error, data) };
        match &data {
            Data::None => {}
            Data::Owned(buffer) => copy.copy_from_slice(buffer),
            Data::Spans(spans) => {
                let mut at = 0;
                for &span in *spans {
                    self.memory.read(span, &mut copy[at..at + span.len()]);
                    at += span.len();
                }
            }
        }
        copy.copy_within(start as usize..(start + part) as usize, 0);
        copy.set_len(part as usize);
        let (part, payload) = match operation {
            Operation::Write { fua, .. } => {
                (Operation::Write { offset: offset + start, len: part, fua }, Data::Owned(copy))
            }
            Operation::WriteZeroes { fua, .. } => {
                (Operation::WriteZeroes { offset: offset + start, len: part, fua }, Data::None)
            }
            _ => (Operation::Deallocate { offset: offset + start, len: part }, Data::None),
        };
        let index = self.slot();
        match self.inner.submit(part, payload, Token(index as u64), now) {
            Submitted::Done(_) => {
                self.free.push(index);
                Submitted::done(error, data)
            }
            Submitted::Pending => {
                let failed = Completion { result: error, buffer: data.into_buffer() };
                self.slots[index] = Some((token, Some(failed)));
                Submitted::Pending
            }
        }
    }

    fn slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// Polls below; apart from `poll`, so that stores nest.
    fn gather(&mut self, now: Nanos) -> Option<Nanos> {
        let FaultyChannel { inner, slots, free, ended, .. } = self;
        inner.poll(now, &mut |Token(index), completion| {
            let index = index as usize;
            if let Some((token, failed)) = slots[index].take() {
                free.push(index);
                ended.push_back((token, failed.unwrap_or(completion)));
            }
        })
    }
}

impl<C: Channel> Channel for FaultyChannel<C> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        let fault = self.plan.lock().unwrap_or_else(|e| e.into_inner()).judge(&operation);
        match fault {
            None => {
                let index = self.slot();
                let submitted = self.inner.submit(operation, data, Token(index as u64), now);
                match submitted {
                    Submitted::Done(_) => self.free.push(index),
                    Submitted::Pending => self.slots[index] = Some((token, None)),
                }
                submitted
            }
            Some((Fault::Busy, _)) => Submitted::done(Err(StoreError::Busy), data),
            Some((Fault::Torn, chance)) if operation.mutates() => {
                self.tear(operation, data, token, now, chance)
            }
            Some((Fault::Full, _)) if operation.mutates() => {
                Submitted::done(Err(operation.full("injected")), data)
            }
            Some(_) => Submitted::done(Err(operation.failed("injected")), data),
        }
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let next = self.gather(now);
        for (token, completion) in self.ended.drain(..) {
            sink(token, completion);
        }
        next
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        self.inner.prefetch(offset, len, writes);
    }

    fn memory_changed(&mut self) {
        self.inner.memory_changed();
    }
}
