//! The commands of an operation, and its bytes on their way from a host's memory and back.

use nearside_dma::{IoBuffer, Reach, Span};
use nearside_driver::Command;
use nearside_spec::data::DsmRange;
use nearside_store::{Data, Operation, StoreError, Token, UNMAPPED};

use super::Shape;

/// An operation of the drive's.
pub(super) struct Work {
    pub(super) operation: Operation,
    pub(super) token: Token,
    /// Where its bytes go, or came from.
    pub(super) spans: Vec<Span>,
    pub(super) owned: Option<IoBuffer>,
    /// Commands that have not ended.
    pub(super) left: usize,
    pub(super) failed: Option<StoreError>,
}

/// For what a command is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The work of a place.
    Work(usize),
    /// A change that may be lost is made again.
    Again,
    /// Too much is not flushed.
    Room,
}

/// A command.
pub(super) struct Piece {
    pub(super) reason: Reason,
    pub(super) operation: Operation,
    pub(super) data: Option<Vec<u8>>,
    /// Of a flush: the number of the first change that it does not cover.
    pub(super) covers: u64,
    /// Connections that were lost with it.
    pub(super) losses: u32,
}

impl Piece {
    pub(super) fn new(reason: Reason, operation: Operation, data: Option<Vec<u8>>) -> Piece {
        Piece { reason, operation, data, covers: 0, losses: 0 }
    }

    /// Whether both touch the same bytes.
    pub(super) fn overlaps(&self, other: &Operation) -> bool {
        match (self.operation.range(), other.range()) {
            (Some((a, a_len)), Some((b, b_len))) => a < b + b_len && b < a + a_len,
            _ => false,
        }
    }

    /// Whether its command has a buffer that is not the piece's own.
    pub(super) fn takes_buffer(&self) -> bool {
        matches!(self.operation, Operation::Read { .. } | Operation::Deallocate { .. })
    }

    /// The command, with its data: a write's, or in `spare` what is to be read or says where.
    pub(super) fn command(&mut self, shape: &Shape, mut spare: Vec<u8>) -> (Command, Option<Vec<u8>>) {
        let (nsid, block) = (shape.namespace.nsid, u64::from(shape.namespace.block_size));
        let durable = |command: Command, fua| if fua { command.fua() } else { command };
        let blocks = |len: u64| (len / block) as u32;
        match self.operation {
            Operation::Read { offset, len } => {
                spare.resize(len as usize, 0);
                (Command::read(nsid, offset / block, blocks(len)), Some(spare))
            }
            Operation::Write { offset, len, fua } => {
                let command = Command::write(nsid, offset / block, blocks(len));
                (durable(command, fua), self.data.take())
            }
            Operation::WriteZeroes { offset, len, fua } => {
                (durable(Command::write_zeroes(nsid, offset / block, blocks(len)), fua), None)
            }
            Operation::Deallocate { offset, len } => {
                spare.resize(DsmRange::SIZE, 0);
                let command = Command::deallocate(nsid, &[(offset / block, blocks(len))], &mut spare);
                (command, Some(spare))
            }
            Operation::Flush => (Command::flush(nsid), None),
        }
    }
}

impl Shape {
    /// The commands of an operation; of a write with its bytes. Zeros that the drive has no command for are
    /// written.
    pub(super) fn cut(&self, reason: Reason, operation: Operation, mut bytes: Option<Vec<u8>>) -> Vec<Piece> {
        let block = u64::from(self.namespace.block_size);
        let Some((offset, len)) = operation.range() else {
            return vec![Piece::new(reason, operation, None)];
        };
        let operation = match operation {
            Operation::Deallocate { .. } if !self.frees => Operation::WriteZeroes { offset, len, fua: false },
            operation => operation,
        };
        let most = match operation {
            Operation::Deallocate { .. } => u64::from(u32::MAX) * block,
            Operation::WriteZeroes { .. } if self.zeroes => 65_536 * block,
            _ => self.most,
        };
        let mut part_at = |at: u64| {
            let part = most.min(offset + len - at);
            match operation {
                Operation::Read { .. } => (Operation::Read { offset: at, len: part }, None),
                Operation::Write { fua, .. } => {
                    let data = match &mut bytes {
                        Some(bytes) if part == len => std::mem::take(bytes),
                        Some(bytes) => bytes[(at - offset) as usize..][..part as usize].to_vec(),
                        None => Vec::new(),
                    };
                    (Operation::Write { offset: at, len: part, fua }, Some(data))
                }
                Operation::WriteZeroes { fua, .. } if self.zeroes => {
                    (Operation::WriteZeroes { offset: at, len: part, fua }, None)
                }
                Operation::WriteZeroes { fua, .. } => {
                    (Operation::Write { offset: at, len: part, fua }, Some(vec![0; part as usize]))
                }
                _ => (Operation::Deallocate { offset: at, len: part }, None),
            }
        };
        let step = usize::try_from(most).unwrap_or(usize::MAX);
        let pieces = (offset..offset + len).step_by(step).map(|at| {
            let (operation, data) = part_at(at);
            Piece::new(reason, operation, data)
        });
        pieces.collect()
    }
}

/// The bytes of a write.
pub(super) fn gather(
    reach: &mut Reach,
    operation: &Operation,
    len: u64,
    data: &Data<'_>,
) -> Result<Vec<u8>, StoreError> {
    // Of that length alone: it may be kept until the next flush.
    let mut bytes = vec![0; len as usize];
    match data {
        Data::None => {}
        Data::Owned(buffer) => bytes.copy_from_slice(buffer),
        Data::Spans(spans) => {
            let mut rest = &mut bytes[..];
            for span in *spans {
                let (part, after) = rest.split_at_mut(span.len());
                let Some((host, at)) = reach.locate(*span) else {
                    return Err(operation.failed(UNMAPPED));
                };
                host.read(at, part);
                if host.has_failed() {
                    return Err(operation.failed(UNMAPPED));
                }
                rest = after;
            }
        }
    }
    Ok(bytes)
}

/// Bytes that were read, which begin `from` bytes into the work's.
pub(super) fn scatter(
    reach: &mut Reach,
    work: &mut Work,
    from: usize,
    bytes: &[u8],
) -> Result<(), StoreError> {
    if let Some(owned) = &mut work.owned {
        owned[from..from + bytes.len()].copy_from_slice(bytes);
        return Ok(());
    }
    let (mut begins, to) = (0, from + bytes.len());
    for span in &work.spans {
        let (first, last) = (from.max(begins), to.min(begins + span.len()));
        if first < last {
            let Some((host, at)) = reach.locate(*span) else {
                return Err(work.operation.failed(UNMAPPED));
            };
            host.write(at + (first - begins), &bytes[first - from..last - from]);
            if host.has_failed() {
                return Err(work.operation.failed(UNMAPPED));
            }
        }
        begins += span.len();
    }
    Ok(())
}
