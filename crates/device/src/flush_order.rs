//! A flush comes after the mutations that came before it on the same way in, ended or not.
//!
//! NVMe asks less: a Flush covers what was completed when it was submitted (NVM Command Set 1.0, 3.2.1). But
//! F2FS of Linux 6.1 sends it now and then while the node that its `fsync` wrote is still out, and returns
//! when both have ended (seen with `block_rq_issue` beside `f2fs_sync_file_exit`): on a drive that does no
//! more than it must, that node is lost in a power cut, and the host has called it durable.

use std::collections::VecDeque;

use nearside_store::Token;

/// Mutations in flight of one way in, and flushes that wait for some of them.
#[derive(Debug, Default)]
pub(crate) struct FlushOrder {
    /// Mutations so far.
    begun: u64,
    in_flight: usize,
    /// In the order in which they came.
    held: VecDeque<Held>,
    waiting: usize,
}

/// Flushes with no mutation between them.
#[derive(Debug)]
struct Held {
    tokens: VecDeque<Token>,
    /// Mutations with smaller numbers came before them.
    after: u64,
    /// Of those, in flight.
    left: usize,
}

impl FlushOrder {
    /// A mutation is in flight; its number.
    #[inline]
    pub(crate) fn begins(&mut self) -> u64 {
        self.in_flight += 1;
        self.begun += 1;
        self.begun - 1
    }

    /// It has ended.
    #[inline]
    pub(crate) fn ends(&mut self, number: u64) {
        self.in_flight -= 1;
        for held in self.held.iter_mut().rev().take_while(|held| number < held.after) {
            held.left -= 1;
        }
    }

    /// A flush comes: whether it waits.
    #[inline]
    pub(crate) fn holds(&mut self, token: Token) -> bool {
        let waits = self.in_flight > 0;
        if waits {
            self.waiting += 1;
            match self.held.back_mut().filter(|held| held.after == self.begun) {
                Some(held) => held.tokens.push_back(token),
                None => {
                    let tokens = VecDeque::from([token]);
                    self.held.push_back(Held { tokens, after: self.begun, left: self.in_flight });
                }
            }
        }
        waits
    }

    /// The first of those that wait, if it waits for nothing any more.
    #[inline]
    pub(crate) fn first(&self) -> Option<Token> {
        let held = self.held.front().filter(|held| held.left == 0)?;
        held.tokens.front().copied()
    }

    /// That one waits no more.
    pub(crate) fn leaves(&mut self) {
        if let Some(held) = self.held.front_mut() {
            held.tokens.pop_front();
            self.waiting -= 1;
            if held.tokens.is_empty() {
                self.held.pop_front();
            }
        }
    }

    /// Nobody asks for what waits any more.
    pub(crate) fn abandons(&mut self) {
        (self.held, self.waiting) = (VecDeque::new(), 0);
    }

    /// Flushes that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use nearside_clock::Nanos;
    use nearside_dma::Memory;
    use nearside_store::{Channel, Completion, Data, Operation, Store, StoreError, Submitted};

    use super::*;
    use crate::firmware::Observer;
    use crate::{Access, Namespace};

    /// What it is asked for ends when the test says so.
    #[derive(Default)]
    struct Slow {
        asked: Vec<(Operation, Token)>,
        ends: Vec<Operation>,
        is_full: bool,
    }

    #[derive(Clone, Default)]
    struct SlowStore(Arc<Mutex<Slow>>);

    impl Store for SlowStore {
        type Channel = SlowStore;

        fn capacity(&self) -> u64 {
            1 << 20
        }

        fn block_size(&self) -> u32 {
            512
        }

        fn channel(&self, _: Arc<Memory>) -> io::Result<SlowStore> {
            Ok(self.clone())
        }
    }

    impl Channel for SlowStore {
        fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, _: Nanos) -> Submitted {
            let mut slow = self.0.lock().unwrap();
            if slow.is_full {
                return Submitted::done(Err(StoreError::Busy), data);
            }
            slow.asked.push((operation, token));
            Submitted::Pending
        }

        fn poll(&mut self, _: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
            let mut slow = self.0.lock().unwrap();
            let ends = std::mem::take(&mut slow.ends);
            let (ended, asked) = slow.asked.drain(..).partition(|(operation, _)| ends.contains(operation));
            slow.asked = asked;
            drop(slow);
            let ended: Vec<_> = ended;
            ended.into_iter().for_each(|(_, token)| sink(token, Completion { result: Ok(()), buffer: None }));
            None
        }

        fn in_flight(&self) -> usize {
            self.0.lock().unwrap().asked.len()
        }
    }

    /// What the firmware saw.
    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl Observer for Seen {
        fn begin(&self, _: u64, _: u64) {}

        fn end(&self, offset: u64, _: u64, _: bool) {
            self.0.lock().unwrap().push(format!("end {offset}"));
        }

        fn flush_begins(&self) -> u64 {
            self.0.lock().unwrap().push("flush".into());
            7
        }

        fn flushed(&self, ticket: u64) {
            self.0.lock().unwrap().push(format!("flushed {ticket}"));
        }
    }

    struct Rig {
        store: SlowStore,
        access: Access<SlowStore, Seen>,
        done: Vec<u64>,
    }

    const fn write(block: u64) -> Operation {
        Operation::Write { offset: block * 512, len: 512, fua: false }
    }

    impl Rig {
        fn new() -> Rig {
            let store = SlowStore::default();
            let namespace = Namespace::new(store.clone(), Seen::default(), 512, [0; 16], false).unwrap();
            let access = Arc::new(namespace).access(Arc::default()).unwrap();
            Rig { store, access, done: Vec::new() }
        }

        fn submit(&mut self, operation: Operation, token: u64) {
            let submitted = self.access.submit(operation, Data::None, Token(token), Nanos(0));
            assert!(matches!(submitted, Submitted::Pending));
        }

        fn poll(&mut self, ends: &[Operation]) {
            self.store.0.lock().unwrap().ends = ends.to_vec();
            self.access.poll(Nanos(0), &mut |token, _| self.done.push(token.0));
        }

        fn asked(&self) -> Vec<Operation> {
            self.store.0.lock().unwrap().asked.iter().map(|(operation, _)| *operation).collect()
        }

        fn seen(&self) -> Vec<String> {
            self.access.namespace().observer().0.lock().unwrap().clone()
        }
    }

    #[test]
    fn a_flush_covers_what_came_before_it_and_waits_for_nothing_else() {
        let mut rig = Rig::new();
        let read = Operation::Read { offset: 0, len: 512 };
        rig.submit(read, 0);
        rig.submit(write(1), 1);
        rig.submit(write(2), 2);
        rig.submit(Operation::Flush, 3);
        rig.submit(write(4), 4);
        rig.poll(&[write(2)]);
        rig.submit(Operation::Flush, 5);
        rig.submit(Operation::Flush, 6);
        assert_eq!((rig.asked(), rig.access.in_flight()), (vec![read, write(1), write(4)], 6));
        // What came after the first flush, and the read, hold it back no more than each other.
        rig.poll(&[write(1)]);
        assert_eq!(rig.asked(), [read, write(4), Operation::Flush]);
        rig.poll(&[write(4), Operation::Flush]);
        rig.poll(&[Operation::Flush]);
        assert_eq!((rig.done.clone(), rig.access.in_flight()), (vec![2, 1, 4, 3, 5, 6], 1));
        let seen = ["end 1024", "end 512", "flush", "end 2048", "flushed 7", "flush", "flush"];
        assert_eq!(rig.seen()[..7], seen);
        // Nothing is in flight that changes anything: at once.
        rig.submit(Operation::Flush, 7);
        assert_eq!(rig.asked(), [read, Operation::Flush]);
    }

    #[test]
    fn one_that_finds_no_room_is_tried_again() {
        let mut rig = Rig::new();
        rig.submit(write(1), 1);
        rig.submit(Operation::Flush, 2);
        rig.store.0.lock().unwrap().is_full = true;
        rig.poll(&[write(1)]);
        assert_eq!((rig.asked(), rig.access.in_flight()), (vec![], 1));
        rig.store.0.lock().unwrap().is_full = false;
        rig.poll(&[]);
        rig.poll(&[Operation::Flush]);
        assert_eq!((rig.done.clone(), rig.access.in_flight()), (vec![1, 2], 0));
    }

    #[test]
    fn one_whose_host_has_gone_is_none() {
        let mut rig = Rig::new();
        rig.submit(write(1), 1);
        rig.submit(Operation::Flush, 2);
        let namespace = rig.access.namespace().clone();
        drop(rig.access);
        rig.store.0.lock().unwrap().ends = vec![write(1)];
        namespace.poll_orphans(Nanos(0));
        assert_eq!((namespace.orphans_in_flight(), rig.store.in_flight()), (0, 0));
    }
}
