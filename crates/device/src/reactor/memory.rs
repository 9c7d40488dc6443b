//! Memory Fill and Memory Copy of a memory namespace (docs/NVME.md): one piece after the other, and each in a
//! step of its own, so that a long one keeps nobody waiting for longer than a piece takes.

use nearside_clock::Nanos;
use nearside_dma::IoBuffer;
use nearside_spec::Status;
use nearside_spec::command::memory;
use nearside_spec::data::CopySource;
use nearside_store::{Operation, Store};

use super::Reactor;
use super::command::{Command, CommandKind, Owner, Parked, Payload};
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::io::{self, Request};
use crate::namespace::{CommandSet, MEMORY_GRANULARITY};
use crate::pointer::{self, Layout, Pointer};
use crate::queue::CompletionSlot;
use crate::traffic::Kind;

/// Bytes of a piece.
const PIECE: u64 = 128 << 10;

/// What is left of such a command.
pub(super) struct Filling {
    /// The memory namespace.
    nsid: u32,
    /// Its next byte.
    at: u64,
    /// Bytes so far.
    done: u64,
    /// Where the others come from, the last first.
    left: Vec<Source>,
}

#[derive(Clone, Copy)]
enum Source {
    Zeros(u64),
    Bytes { nsid: u32, offset: u64, len: u64 },
}

impl Source {
    fn len(&self) -> u64 {
        match *self {
            Source::Zeros(len) | Source::Bytes { len, .. } => len,
        }
    }

    /// Without its first bytes.
    fn behind(self, n: u64) -> Source {
        match self {
            Source::Zeros(len) => Source::Zeros(len - n),
            Source::Bytes { nsid, offset, len } => Source::Bytes { nsid, offset: offset + n, len: len - n },
        }
    }
}

impl Filling {
    /// So many bytes of the next source are there.
    fn took(&mut self, n: u64) {
        (self.at, self.done) = (self.at + n, self.done + n);
        if let Some(source) = self.left.pop()
            && source.len() > n
        {
            self.left.push(source.behind(n));
        }
    }

    /// The next piece: of which namespace, and what is done there.
    fn next(&mut self) -> Option<(u32, Operation)> {
        while self.left.last().is_some_and(|source| source.len() == 0) {
            self.left.pop();
        }
        let source = self.left.last()?;
        let len = source.len().min(PIECE);
        Some(match *source {
            Source::Zeros(_) => (self.nsid, Operation::WriteZeroes { offset: self.at, len, fua: false }),
            Source::Bytes { nsid, offset, .. } => (nsid, Operation::Read { offset, len }),
        })
    }
}

impl<S: Store, F: Firmware<S>> Reactor<S, F> {
    /// Begins with a Memory Fill or a Memory Copy.
    #[cold]
    pub(super) fn fill(
        &mut self,
        slot: CompletionSlot,
        place: usize,
        request: &Request,
        (begun, now): (Nanos, Nanos),
    ) -> Result<(), (CompletionSlot, Fault)> {
        let nsid = self.attached.at(place).nsid;
        let (at, left) = match *request {
            Request::Copy { offset, len, sources, blocks, ref pointer } => {
                match self.sources(nsid, (offset, len), sources, blocks, pointer) {
                    Ok(left) => (offset, left),
                    Err(fault) => return Err((slot, fault)),
                }
            }
            Request::Fill { offset, len } => (offset, vec![Source::Zeros(len)]),
            ref other => panic!("{other:?} fills no memory"),
        };
        self.next_piece(Owner::Host(slot), begun, Box::new(Filling { nsid, at, done: 0, left }), now);
        Ok(())
    }

    /// The sources of a copy to a range of a memory namespace, checked, the last first.
    fn sources(
        &mut self,
        to: u32,
        (offset, len): (u64, u64),
        count: usize,
        blocks: bool,
        from: &Pointer,
    ) -> Result<Vec<Source>, Fault> {
        let mut list = vec![0; count * CopySource::SIZE];
        let mut layout = Layout::default();
        pointer::walk(&self.shared.function.memory, from, list.len(), true, &mut layout)?;
        layout.gather(&self.shared.function.memory, &mut list);
        let mut left = Vec::with_capacity(count);
        for bytes in list.as_chunks::<{ CopySource::SIZE }>().0 {
            let source = CopySource(*bytes);
            if source.options() & CopySource::FAST_ONLY != 0 {
                return Err(Fault::new(Status::FAST_COPY_NOT_POSSIBLE));
            }
            let (start, bytes) = self.source(&source, blocks, to)?;
            let same = source.nsid() == to && bytes > 0 && len > 0;
            if same && start < offset + len && offset < start + bytes {
                return Err(Fault::new(Status::OVERLAPPING_IO_RANGE));
            }
            left.push(Source::Bytes { nsid: source.nsid(), offset: start, len: bytes });
        }
        if left.iter().map(Source::len).sum::<u64>() != len {
            return Err(Fault::field(memory::COPY_LENGTH));
        }
        left.reverse();
        Ok(left)
    }

    /// The bytes of a source: from which on, and how many.
    fn source(&mut self, source: &CopySource, blocks: bool, to: u32) -> Result<(u64, u64), Fault> {
        let place = self.look_up(source.nsid()).map_err(|fault| Fault { at: None, ..fault })?;
        let limits = self.attached.at(place).limits;
        let wanted = if blocks { CommandSet::Nvm } else { CommandSet::Memory };
        if limits.command_set != wanted {
            let same = source.nsid() == to;
            let status = if same { Status::INCOMPATIBLE_NAMESPACE } else { Status::INVALID_NAMESPACE };
            return Err(Fault::new(status));
        }
        let (start, count) = (source.start(), source.count());
        let (offset, len) = if blocks {
            let blocks = u64::from(count as u16) + 1;
            io::range(start, blocks, &limits).ok_or(Fault::new(Status::LBA_OUT_OF_RANGE).lba(start))?
        } else {
            let (step, end) = (u64::from(MEMORY_GRANULARITY), limits.blocks << limits.lba_shift);
            let within = start.checked_add(count.into()).is_some_and(|last| last <= end);
            if !within || !start.is_multiple_of(step) || !u64::from(count).is_multiple_of(step) {
                return Err(Fault::new(Status::INVALID_FIELD));
            }
            (start, count.into())
        };
        self.admits_read(place, offset, len)?;
        Ok((offset, len))
    }

    /// Whether the host may read there now.
    fn admits_read(&mut self, place: usize, offset: u64, len: u64) -> Result<(), Fault> {
        let operation = Operation::Read { offset, len };
        // What is asked is whether it reads.
        let request = Request::Transfer { operation, len: len as usize, pointer: Pointer::Prp(0, 0) };
        self.admits(place, &request)
    }

    /// Has the next piece done in the next step, or answers the command.
    fn next_piece(&mut self, owner: Owner, begun: Nanos, mut filling: Box<Filling>, now: Nanos) {
        let Owner::Host(slot) = owner else { panic!("no shutdown fills memory") };
        let next = if self.resetting.is_some() { None } else { filling.next() };
        let Some((nsid, operation)) = next else {
            if let Some(place) = self.attached.find(filling.nsid) {
                self.note(place, (Kind::Other, filling.done), begun);
            }
            return self.conclude(slot, 0, Status::SUCCESS, now);
        };
        let ready = self.look_up(nsid).and_then(|place| {
            let Operation::Read { offset, len } = operation else { return Ok((place, Payload::None)) };
            // What was allowed when it began may not be any more.
            self.admits_read(place, offset, len)?;
            let buffer = IoBuffer::new(len as usize);
            buffer
                .map(|buffer| (place, Payload::Buffer(buffer)))
                .map_err(|_| Fault::transient(Status::INTERNAL_ERROR))
        });
        match ready {
            Ok((place, payload)) => {
                let kind = CommandKind::Fill(operation, filling);
                let command = Command { owner: Owner::Host(slot), place, kind, begun };
                self.parked.push_back(Parked { command, operation, payload });
            }
            Err(fault) => self.fail(slot, filling.nsid, &fault, now),
        }
    }

    /// A piece was read, and is to be written; or it is there, and the next follows.
    pub(super) fn piece_done(
        &mut self,
        (owner, begun): (Owner, Nanos),
        (operation, mut filling): (Operation, Box<Filling>),
        buffer: Option<IoBuffer>,
        now: Nanos,
    ) -> Option<(Command, Payload)> {
        let Some((_, len)) = operation.range() else { panic!("a piece without bytes") };
        let Operation::Read { .. } = operation else {
            filling.took(len);
            self.next_piece(owner, begun, filling, now);
            return None;
        };
        let Some(buffer) = buffer else { panic!("a read ended without its buffer") };
        let Some(place) = self.attached.find(filling.nsid) else {
            if let Owner::Host(slot) = owner {
                self.fail(slot, filling.nsid, &Fault::new(Status::INVALID_NAMESPACE), now);
            }
            return None;
        };
        let operation = Operation::Write { offset: filling.at, len, fua: false };
        let kind = CommandKind::Fill(operation, filling);
        Some((Command { owner, place, kind, begun }, Payload::Buffer(buffer)))
    }
}
