//! A store that breaks its contract in a way that would lose a completion or give a host bytes that nobody
//! read is stopped.

use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_device::{Access, Namespace};
use nearside_dma::{IoBuffer, Memory};
use nearside_store::{Channel, Completion, Data, Operation, Store, Submitted, Token};

#[derive(Clone, Copy, PartialEq)]
enum Breach {
    None,
    /// An operation is completed twice.
    Twice,
    /// An operation that nobody submitted is completed.
    Unknown,
    /// An operation never completes, and the channel knows it no more.
    Lost,
    /// The caller's buffer stays behind, at once or later.
    KeepsBuffer,
    KeepsBufferAtOnce,
    /// Another buffer comes back.
    OtherBuffer,
}

struct Broken(Breach);

struct BrokenChannel(Breach, Vec<(Token, Option<IoBuffer>)>);

impl Store for Broken {
    type Channel = BrokenChannel;

    fn capacity(&self) -> u64 {
        1 << 20
    }

    fn block_size(&self) -> u32 {
        512
    }

    fn channel(&self, _: Arc<Memory>) -> std::io::Result<BrokenChannel> {
        Ok(BrokenChannel(self.0, Vec::new()))
    }
}

impl Channel for BrokenChannel {
    fn submit(&mut self, _: Operation, data: Data<'_>, token: Token, _: Nanos) -> Submitted {
        if self.0 == Breach::KeepsBufferAtOnce {
            return Submitted::Done(Completion { result: Ok(()), buffer: None });
        }
        self.1.push((token, data.into_buffer()));
        Submitted::Pending
    }

    fn poll(&mut self, _: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        for (token, buffer) in self.1.drain(..) {
            let mut complete = |token, buffer| sink(token, Completion { result: Ok(()), buffer });
            match self.0 {
                Breach::None | Breach::KeepsBufferAtOnce => complete(token, buffer),
                Breach::Twice => {
                    complete(token, buffer);
                    complete(token, None);
                }
                Breach::Unknown => complete(Token(token.0 + 1), buffer),
                Breach::Lost => {}
                Breach::KeepsBuffer => complete(token, None),
                Breach::OtherBuffer => complete(token, IoBuffer::new(512).ok()),
            }
        }
        None
    }

    fn in_flight(&self) -> usize {
        self.1.len()
    }
}

fn read(breach: Breach) {
    let namespace = Arc::new(Namespace::new(Broken(breach), (), 512, [0; 16], false).unwrap());
    let mut access: Access<_, _> = namespace.access(Arc::default()).unwrap();
    let data = Data::Owned(IoBuffer::new(4096).unwrap());
    let read = Operation::Read { offset: 0, len: 4096 };
    assert!(matches!(access.submit(read, data, Token(7), Nanos(0)), Submitted::Pending));
    let mut done = Vec::new();
    access.poll(Nanos(0), &mut |token, completion| done.push((token, completion.buffer.map(|b| b.len()))));
    assert_eq!(done, [(Token(7), Some(4096))]);
}

#[test]
fn a_store_that_keeps_the_contract_passes() {
    read(Breach::None);
}

#[test]
#[should_panic(expected = "the store completed an operation twice")]
fn an_operation_completed_twice() {
    read(Breach::Twice);
}

#[test]
#[should_panic(expected = "or one that was never submitted")]
fn an_operation_that_was_never_submitted() {
    read(Breach::Unknown);
}

#[test]
#[should_panic(expected = "the store lost operations: 0 of 1")]
fn an_operation_that_never_completes() {
    read(Breach::Lost);
}

#[test]
#[should_panic(expected = "a read came back with a buffer of None bytes, not Some(4096)")]
fn a_buffer_that_stays_behind() {
    read(Breach::KeepsBuffer);
}

#[test]
#[should_panic(expected = "a read came back with a buffer of None bytes, not Some(4096)")]
fn a_buffer_that_stays_behind_at_once() {
    read(Breach::KeepsBufferAtOnce);
}

#[test]
#[should_panic(expected = "a read came back with a buffer of Some(512) bytes, not Some(4096)")]
fn another_buffer() {
    read(Breach::OtherBuffer);
}
