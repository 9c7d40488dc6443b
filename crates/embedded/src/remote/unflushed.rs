//! What a drive has acknowledged and need not have kept: all that changed its bytes since the last flush, in
//! order. A drive that was started anew may have lost it.

use std::collections::VecDeque;

use nearside_store::Operation;

/// A change: a write with its bytes, or zeros.
pub(super) struct Change {
    pub(super) operation: Operation,
    pub(super) data: Option<Vec<u8>>,
}

/// Beyond so many bytes it asks for a flush of its own.
const MUCH: u64 = 64 << 20;
/// What a change costs beside its bytes.
const EACH: u64 = 128;

/// The changes, numbered from the first on.
#[derive(Default)]
pub(super) struct Unflushed {
    changes: VecDeque<Change>,
    /// The number of the first that is kept.
    first: u64,
    bytes: u64,
    /// Why some of what was acknowledged may be lost: the next flush says it.
    pub(super) lost: Option<String>,
}

impl Unflushed {
    /// One more.
    pub(super) fn note(&mut self, operation: Operation, data: Option<Vec<u8>>) {
        self.bytes += cost(data.as_deref());
        self.changes.push_back(Change { operation, data });
    }

    /// Whether all is flushed.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The number of the first that is kept.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next.
    pub(super) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// One that is kept.
    pub(super) fn get(&self, number: u64) -> Option<&Change> {
        self.changes.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Those before a number are flushed.
    pub(super) fn flushed(&mut self, before: u64) {
        while self.first < before
            && let Some(change) = self.changes.pop_front()
        {
            self.first += 1;
            self.bytes -= cost(change.data.as_deref());
        }
    }

    /// Whether there is so much that it is to be flushed.
    pub(super) fn is_much(&self) -> bool {
        self.bytes >= MUCH
    }

    /// Whether there is so much that no more is taken before a flush.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= 2 * MUCH
    }
}

fn cost(data: Option<&[u8]>) -> u64 {
    EACH + data.map_or(0, <[u8]>::len) as u64
}
