//! The namespace: the store, its logical blocks, and who is told of every change.
//!
//! All fronts reach the store through an [`Access`]: it takes the stripe locks where several reactors run, tells the
//! [`Observer`] before and after each mutation, and passes the operation on. It checks no ranges: the
//! controller has done so by NVMe's rules, and the store does by its own.

use std::io;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::Memory;
use nearside_store::{Channel, Completion, Data, Operation, Store, StoreError, Submitted, Token};

use crate::firmware::Observer;
use crate::slab::Slab;
use crate::stripes::Stripes;

/// A store with logical blocks of 512 or 4096 bytes, and an observer of its changes.
pub struct Namespace<S, O = ()> {
    store: S,
    observer: O,
    lba_shift: u32,
    uuid: [u8; 16],
    nguid: [u8; 16],
    protected: bool,
    stripes: Option<Stripes>,
}

impl<S: Store, O: Observer> Namespace<S, O> {
    /// `lba_size` is 512 or 4096 and a multiple of the store's block size. `shared`: more than one [`Access`]
    /// runs at the same time, so that locks must keep blocks from tearing.
    pub fn new(store: S, observer: O, lba_size: u32, uuid: [u8; 16], shared: bool) -> io::Result<Self> {
        if !matches!(lba_size, 512 | 4096) || !lba_size.is_multiple_of(store.block_size().max(1)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "logical blocks of {lba_size} bytes on a store with blocks of {}",
                    store.block_size()
                ),
            ));
        }
        if store.capacity() < u64::from(lba_size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a store of {} bytes holds no logical block of {lba_size}", store.capacity()),
            ));
        }
        let lba_shift = lba_size.trailing_zeros();
        Ok(Namespace {
            store,
            observer,
            lba_shift,
            uuid,
            nguid: [0; 16],
            protected: false,
            stripes: shared.then(Stripes::new),
        })
    }

    /// Logical blocks. What is left of the store after the last whole one is out of reach.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.store.capacity() >> self.lba_shift
    }

    /// Log2 of a logical block's bytes.
    #[inline]
    pub fn lba_shift(&self) -> u32 {
        self.lba_shift
    }

    /// Bytes of all logical blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.lba_shift
    }

    /// Its UUID.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// The same with an NGUID, which it else has none of (zeros).
    pub fn with_nguid(self, nguid: [u8; 16]) -> Self {
        Namespace { nguid, ..self }
    }

    /// The same, where `protected` never written, whatever its store allows.
    pub fn protected(self, protected: bool) -> Self {
        Namespace { protected, ..self }
    }

    /// Its NGUID.
    pub fn nguid(&self) -> &[u8; 16] {
        &self.nguid
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Who is told of changes: the firmware.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Whether it may not be written.
    pub fn read_only(&self) -> bool {
        self.protected || self.store.read_only()
    }

    /// A way in; `memory` holds the spans that operations name.
    pub fn access(self: &Arc<Self>, memory: Arc<Memory>) -> io::Result<Access<S, O>> {
        let channel = self.store.channel(memory)?;
        Ok(Access { namespace: self.clone(), channel, pending: Slab::new() })
    }
}

/// One reactor's way into a namespace, with the contract of [`Channel`] (`submit`, `poll`, `in_flight`), and one thing more:
/// while another reactor works on the same blocks, `submit` answers [`StoreError::Busy`].
pub struct Access<S: Store, O> {
    namespace: Arc<Namespace<S, O>>,
    channel: S::Channel,
    pending: Slab<Pending>,
}

/// A submitted operation that is not done.
struct Pending {
    token: Token,
    operation: Operation,
    ticket: u64,
}

/// The bytes that an operation changes, and whether they are durable once it is done.
#[inline]
fn mutation(operation: &Operation) -> Option<(u64, u64, bool)> {
    match *operation {
        Operation::Write { offset, len, fua } | Operation::WriteZeroes { offset, len, fua } => {
            Some((offset, len, fua))
        }
        Operation::Deallocate { offset, len } => Some((offset, len, false)),
        Operation::Read { .. } | Operation::Flush => None,
    }
}

impl<S: Store, O: Observer> Access<S, O> {
    /// The namespace.
    #[inline]
    pub fn namespace(&self) -> &Arc<Namespace<S, O>> {
        &self.namespace
    }

    /// Starts an operation; see [`Channel::submit`].
    #[inline]
    pub fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        if let Some(stripes) = &self.namespace.stripes
            && !stripes.try_lock(&operation)
        {
            let buffer = match data {
                Data::Owned(buffer) => Some(buffer),
                Data::None | Data::Spans(_) => None,
            };
            return Submitted::Done(Completion { result: Err(StoreError::Busy), buffer });
        }
        let mut ticket = 0;
        if let Some((offset, len, _)) = mutation(&operation) {
            self.namespace.observer.begin(offset, len);
        } else if operation == Operation::Flush {
            ticket = self.namespace.observer.flush_begins();
        }
        match self.channel.submit(operation, data, Token(self.pending.next_key() as u64), now) {
            Submitted::Done(completion) => {
                ended(&self.namespace, &operation, ticket, &completion);
                Submitted::Done(completion)
            }
            Submitted::Pending => {
                self.pending.insert(Pending { token, operation, ticket });
                Submitted::Pending
            }
        }
    }

    /// Hands over what is finished; see [`Channel::poll`].
    #[inline]
    pub fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let Access { namespace, channel, pending } = self;
        channel.poll(now, &mut |Token(key), completion| {
            let Some(Pending { token, operation, ticket }) = pending.remove(key as usize) else {
                panic!("the store completed an operation twice, or one that was never submitted: {key}");
            };
            ended(namespace, &operation, ticket, &completion);
            sink(token, completion);
        })
    }

    /// Operations in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// See [`Channel::prefetch`].
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        self.channel.prefetch(offset, len);
    }

    /// An operation that was answered [`StoreError::Busy`] will not be submitted again.
    pub fn abandon(&self, operation: &Operation) {
        if let Some(stripes) = &self.namespace.stripes {
            stripes.abandon(operation);
        }
    }
}

#[inline]
fn ended<S: Store, O: Observer>(
    namespace: &Namespace<S, O>,
    operation: &Operation,
    ticket: u64,
    completion: &Completion,
) {
    if let Some((offset, len, fua)) = mutation(operation) {
        namespace.observer.end(offset, len, fua && completion.result.is_ok());
    } else if *operation == Operation::Flush && completion.result.is_ok() {
        namespace.observer.flushed(ticket);
    }
    if let Some(stripes) = &namespace.stripes {
        stripes.unlock(operation);
    }
}
