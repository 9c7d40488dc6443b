//! Memory Fill and Memory Copy of a memory namespace (docs/NVME.md): one piece after the other, in turns, and
//! in a step no more than comes to the longest piece, so that however many there are keep nobody waiting for
//! longer.

use std::collections::VecDeque;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::IoBuffer;
use nearside_spec::Status;
use nearside_spec::command::memory;
use nearside_spec::data::CopySource;
use nearside_store::{Operation, Store};

use super::command::{Command, CommandKind, Owner, Payload};
use super::{Reactor, Step};
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::io::{self, Request};
use crate::namespace::{CommandSet, MEMORY_GRANULARITY};
use crate::pointer::{self, Layout, Pointer};
use crate::queue::CompletionSlot;
use crate::throttle::Whom;
use crate::traffic::Kind;

/// Bytes of a piece.
const PIECE: u64 = 128 << 10;
/// Pieces that a reactor begins in a step, and that its stores work on at a time.
const MOST_PIECES: usize = 8;
/// Commands of a reactor that may have pieces left; above that it takes no new ones.
const MOST_FILLINGS: usize = 1024;

/// Those of a reactor.
pub(super) struct Fillings {
    /// Whose next piece waits for its turn: whom to answer, and when the command was taken.
    waiting: VecDeque<(CompletionSlot, Nanos, Box<Filling>)>,
    /// Held once more by each that is not answered.
    all: Arc<()>,
    /// Of the last piece, for the next.
    buffer: Option<IoBuffer>,
}

impl Fillings {
    pub(super) fn new() -> Fillings {
        Fillings { waiting: VecDeque::new(), all: Arc::new(()), buffer: None }
    }

    /// How many wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn unanswered(&self) -> usize {
        Arc::strong_count(&self.all) - 1
    }

    pub(super) fn are_full(&self) -> bool {
        self.unanswered() >= MOST_FILLINGS
    }

    /// Nobody is left to answer to.
    pub(super) fn forget(&mut self) {
        self.waiting.drain(..).for_each(|(slot, ..)| slot.forget());
    }

    fn buffer(&mut self, len: usize) -> std::io::Result<IoBuffer> {
        let mut buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => IoBuffer::new(PIECE as usize)?,
        };
        buffer.set_len(len);
        Ok(buffer)
    }
}

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
    /// When the next piece may begin; `None`: nothing was taken from the rate of its source yet.
    due: Option<Nanos>,
    /// How it is to end before it is done.
    ended: Option<Fault>,
    _unanswered: Arc<()>,
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
    /// Whether it still has to do with a namespace.
    pub(super) fn is_of(&self, of: u32) -> bool {
        let reads = |source: &Source| matches!(*source, Source::Bytes { nsid, .. } if nsid == of);
        self.nsid == of || self.left.iter().any(reads)
    }

    /// The namespace whose rate the next piece takes from: the one that it is read from. What goes to the
    /// command's own, and what its host may have, the command has paid for.
    fn pays(&self) -> Option<u32> {
        match self.left.last() {
            Some(Source::Bytes { nsid, .. }) if *nsid != self.nsid => Some(*nsid),
            _ => None,
        }
    }

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
        let _unanswered = self.fillings.all.clone();
        let filling = Filling { nsid, at, done: 0, left, due: None, ended: None, _unanswered };
        self.wait_for_turn(slot, begun, Box::new(filling), now);
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

    /// The next piece has its turn in a later step; without one, the command is answered.
    fn wait_for_turn(&mut self, slot: CompletionSlot, begun: Nanos, mut filling: Box<Filling>, now: Nanos) {
        if filling.next().is_some() {
            return self.fillings.waiting.push_back((slot, begun, filling));
        }
        if let Some(place) = self.attached.find(filling.nsid) {
            self.note(place, (Kind::Other, filling.done), begun);
        }
        self.conclude(slot, 0, Status::SUCCESS, now);
    }

    /// Begins with the pieces whose turn it is.
    pub(super) fn fill_on(&mut self, now: Nanos, step: &mut Step) -> usize {
        // Of each rate one piece at a time has taken, so that hosts that share it take turns.
        let waiting = self.fillings.waiting.iter();
        let mut owing: Vec<u32> =
            waiting.filter(|(.., filling)| filling.due.is_some()).filter_map(|(.., f)| f.pays()).collect();
        let (mut pieces, mut bytes) = (0, 0);
        while pieces < MOST_PIECES
            && bytes < PIECE
            && self.fillings.unanswered() - self.fillings.waiting() < MOST_PIECES
        {
            let Some(len) = self.fill_one(&mut owing, now, step) else { break };
            (pieces, bytes) = (pieces + 1, bytes + len);
        }
        pieces
    }

    /// Begins with one piece, of the first that need not wait for a rate, nor for another that is `owing` to
    /// the same; how long it is.
    fn fill_one(&mut self, owing: &mut Vec<u32>, now: Nanos, step: &mut Step) -> Option<u64> {
        for _ in 0..self.fillings.waiting() {
            let Some((slot, begun, mut filling)) = self.fillings.waiting.pop_front() else { break };
            let Some((nsid, operation)) = filling.next() else { panic!("a filled range waits for its turn") };
            let len = operation.range().map_or(0, |(_, len)| len);
            match filling.pays().filter(|_| filling.due.is_none()) {
                Some(of) if owing.contains(&of) => {
                    self.fillings.waiting.push_back((slot, begun, filling));
                    continue;
                }
                Some(of) => {
                    let buckets = self.shared.subsystem.buckets_of(&Whom::Namespace(of));
                    filling.due = buckets.map(|buckets| buckets.take(1, len, now));
                    owing.extend(filling.due.filter(|due| *due > now).map(|_| of));
                }
                None => {}
            }
            if let Some(due) = filling.due.filter(|due| *due > now) {
                step.at(Some(due));
                self.fillings.waiting.push_back((slot, begun, filling));
                continue;
            }
            filling.due = None;
            match self.ready(nsid, &operation) {
                Ok((place, payload)) => {
                    let kind = CommandKind::Fill(operation, filling);
                    self.run(Command { owner: Owner::Host(slot), place, kind, begun }, payload, now);
                }
                Err(fault) => self.fail(slot, filling.nsid, &fault, now),
            }
            return Some(len);
        }
        None
    }

    /// What a piece needs.
    fn ready(&mut self, nsid: u32, operation: &Operation) -> Result<(usize, Payload), Fault> {
        let place = self.look_up(nsid)?;
        let Operation::Read { offset, len } = *operation else { return Ok((place, Payload::None)) };
        // What was allowed when it began may not be any more.
        self.admits_read(place, offset, len)?;
        let buffer = self.fillings.buffer(len as usize);
        Ok((place, Payload::Buffer(buffer.map_err(|_| Fault::transient(Status::INTERNAL_ERROR))?)))
    }

    /// A piece was read, and is to be written; or it is there, and the next follows.
    pub(super) fn piece_done(
        &mut self,
        (owner, begun): (Owner, Nanos),
        (operation, mut filling): (Operation, Box<Filling>),
        buffer: Option<IoBuffer>,
        now: Nanos,
    ) -> Option<(Command, Payload)> {
        let Owner::Host(slot) = owner else { panic!("no shutdown fills memory") };
        let Some((_, len)) = operation.range() else { panic!("a piece without bytes") };
        if self.resetting.is_some() {
            slot.forget();
            return None;
        }
        if let Some(fault) = filling.ended {
            self.fail(slot, filling.nsid, &fault, now);
            return None;
        }
        let Operation::Read { .. } = operation else {
            self.fillings.buffer = buffer.or(self.fillings.buffer.take());
            filling.took(len);
            self.wait_for_turn(slot, begun, filling, now);
            return None;
        };
        let Some(buffer) = buffer else { panic!("a read ended without its buffer") };
        let Some(place) = self.attached.find(filling.nsid) else {
            self.fail(slot, filling.nsid, &Fault::new(Status::INVALID_NAMESPACE), now);
            return None;
        };
        let operation = Operation::Write { offset: filling.at, len, fua: false };
        let kind = CommandKind::Fill(operation, filling);
        Some((Command { owner: Owner::Host(slot), place, kind, begun }, Payload::Buffer(buffer)))
    }

    /// Ends those that `which` names, after the piece that they are at; how many there are.
    pub(super) fn end_fillings(
        &mut self,
        fault: &Fault,
        now: Nanos,
        which: impl Fn(&CompletionSlot, &Filling) -> bool,
    ) -> usize {
        if self.fillings.unanswered() == 0 {
            return 0;
        }
        let mut count = 0;
        for _ in 0..self.fillings.waiting() {
            let Some((slot, begun, filling)) = self.fillings.waiting.pop_front() else { break };
            if which(&slot, &filling) {
                count += 1;
                self.fail(slot, filling.nsid, fault, now);
            } else {
                self.fillings.waiting.push_back((slot, begun, filling));
            }
        }
        let parked = self.parked.iter_mut().map(|parked| &mut parked.command);
        for command in self.commands.iter_mut().map(|(_, command)| command).chain(parked) {
            if let Command { owner: Owner::Host(slot), kind: CommandKind::Fill(_, filling), .. } = command
                && which(slot, filling)
            {
                count += 1;
                filling.ended = Some(*fault);
            }
        }
        count
    }
}
