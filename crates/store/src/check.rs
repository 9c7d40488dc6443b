//! Point 1 of the contract, in one place: whole blocks, within the store, with data of the operation's
//! length.

use crate::{Completion, Data, Operation, StoreError, Submitted};

impl Operation {
    /// The bytes it touches, as first byte and length; none for a flush.
    pub fn range(&self) -> Option<(u64, u64)> {
        match *self {
            Operation::Read { offset, len }
            | Operation::Write { offset, len, .. }
            | Operation::WriteZeroes { offset, len, .. }
            | Operation::Deallocate { offset, len } => Some((offset, len)),
            Operation::Flush => None,
        }
    }

    /// Whether it touches bytes from `end` on.
    #[inline]
    pub fn ends_beyond(&self, end: u64) -> bool {
        self.range().is_some_and(|(offset, len)| offset.saturating_add(len) > end)
    }

    /// Whether it changes bytes.
    pub fn mutates(&self) -> bool {
        matches!(self, Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Deallocate { .. })
    }

    /// Its name in errors.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Flush => "flush",
            Operation::WriteZeroes { .. } => "write zeroes",
            Operation::Deallocate { .. } => "deallocate",
        }
    }

    /// The error of a medium that failed at this operation.
    pub fn failed(&self, reason: impl ToString) -> StoreError {
        let (offset, len) = self.range().unwrap_or((0, 0));
        StoreError::Medium { operation: self.name(), offset, len, reason: reason.to_string() }
    }

    /// The error of a medium that has no room for what this was to write.
    pub fn full(&self, reason: impl ToString) -> StoreError {
        let (offset, len) = self.range().unwrap_or((0, 0));
        StoreError::Full { operation: self.name(), offset, len, reason: reason.to_string() }
    }
}

impl Data<'_> {
    /// Bytes of memory that it names.
    pub fn len(&self) -> u64 {
        match self {
            Data::None => 0,
            Data::Spans(spans) => spans.iter().map(|s| s.len() as u64).sum(),
            Data::Owned(buffer) => buffer.len() as u64,
        }
    }

    /// Whether it names no memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The caller's buffer, for the completion of an operation that is refused.
    pub fn into_buffer(self) -> Option<nearside_dma::IoBuffer> {
        match self {
            Data::Owned(buffer) => Some(buffer),
            Data::None | Data::Spans(_) => None,
        }
    }
}

impl Submitted {
    /// An operation that ended at once.
    pub fn done(result: Result<(), StoreError>, data: Data<'_>) -> Submitted {
        Submitted::Done(Completion { result, buffer: data.into_buffer() })
    }
}

/// What every channel asks before it does anything.
///
/// Errors: [`StoreError::OutOfRange`], [`StoreError::ReadOnly`], or a failed operation where its memory has
/// another length.
///
/// # Errors
/// [`StoreError::OutOfRange`], [`StoreError::ReadOnly`], or [`StoreError::Medium`] where its memory has
/// another length.
#[inline]
pub fn check(
    operation: &Operation,
    data: &Data<'_>,
    capacity: u64,
    block_size: u32,
    read_only: bool,
) -> Result<(), StoreError> {
    if let Some((offset, len)) = operation.range() {
        let block = u64::from(block_size);
        let within = offset <= capacity && len <= capacity - offset;
        if !within || !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(StoreError::OutOfRange { offset, len, capacity });
        }
        if read_only && operation.mutates() {
            return Err(StoreError::ReadOnly);
        }
        if matches!(operation, Operation::Read { .. } | Operation::Write { .. }) && data.len() != len {
            return Err(operation.failed(format_args!("its memory has {} bytes", data.len())));
        }
    }
    Ok(())
}
