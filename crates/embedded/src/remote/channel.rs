//! One reactor's way to a drive over the network: operations become commands, and stay until these have ended
//! by whichever connection.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory, Reach, Span};
use nearside_driver::{Command, Failure, Finished, Handle, RejectReason};
use nearside_fsrlib::Error;
use nearside_spec::Status;
use nearside_spec::data::DsmRange;
use nearside_store::{Channel, Completion, Data, Operation, StoreError, Submitted, Token, UNMAPPED, check};

use super::link::{Link, Lost};
use super::unflushed::Unflushed;
use super::{Shape, Way, Ways};

/// Operations at a time.
const MOST: usize = 1024;
/// Buffers kept for further reads.
const SPARE: usize = 32;
/// Connections that are lost with the same command out before it fails: the kernel's `nvme.max_retries`.
const LOSSES: u32 = 5;
/// How often it is looked whether there is a connection again.
const LOOK_NS: u64 = 5_000_000;

/// An operation of the drive's.
struct Work {
    operation: Operation,
    token: Token,
    /// Where its bytes go, or came from.
    spans: Vec<Span>,
    owned: Option<IoBuffer>,
    /// Commands that have not ended.
    left: usize,
    failed: Option<StoreError>,
}

/// For what a command is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The work of a place.
    Work(usize),
    /// A change that may be lost is made again.
    Again,
    /// Too much is not flushed.
    Room,
}

/// A command.
struct Piece {
    reason: Reason,
    operation: Operation,
    data: Option<Vec<u8>>,
    /// Of a flush: the number of the first change that it does not cover.
    covers: u64,
    /// Connections that were lost with it.
    losses: u32,
}

impl Piece {
    fn new(reason: Reason, operation: Operation, data: Option<Vec<u8>>) -> Piece {
        Piece { reason, operation, data, covers: 0, losses: 0 }
    }
}

/// A way into a [`Remote`](super::Remote).
pub struct RemoteChannel {
    shape: Shape,
    link: Link,
    way: Option<Way>,
    /// Where there is none, whether the thread looks for one.
    asked: bool,
    /// The drive has answered by this connection.
    answered: bool,
    reach: Reach,
    works: Vec<Option<Work>>,
    free: Vec<usize>,
    /// By the index of a command's handle.
    out: Vec<Option<Piece>>,
    backlog: VecDeque<Piece>,
    /// Why the connection is left once nothing is out: the drive does not serve by it.
    leaves: Option<Error>,
    /// Commands that it did not serve.
    held: Vec<Piece>,
    unflushed: Unflushed,
    /// The change that is to be made again next; `None`: there is nothing to be.
    again: Option<u64>,
    /// A flush for room is under way.
    makes_room: bool,
    done: VecDeque<(Token, Completion)>,
    spare: Vec<Vec<u8>>,
}

impl RemoteChannel {
    pub(super) fn new(
        ways: Ways,
        shape: Shape,
        stop: &Arc<AtomicBool>,
        memory: Arc<Memory>,
    ) -> io::Result<RemoteChannel> {
        let link = Link::start(ways, stop.clone())?;
        link.ask(None);
        Ok(RemoteChannel {
            shape,
            link,
            way: None,
            asked: true,
            answered: false,
            reach: Reach::new(memory),
            works: Vec::new(),
            free: Vec::new(),
            out: Vec::new(),
            backlog: VecDeque::new(),
            leaves: None,
            held: Vec::new(),
            unflushed: Unflushed::default(),
            again: None,
            makes_room: false,
            done: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// The commands of an operation; of a write with its bytes.
    fn cut(&mut self, place: usize, operation: Operation, mut bytes: Option<Vec<u8>>) -> usize {
        let block = u64::from(self.shape.namespace.block_size);
        let by_write = self.shape.most;
        let reason = Reason::Work(place);
        let Some((offset, len)) = operation.range() else {
            self.backlog.push_back(Piece::new(reason, operation, None));
            return 1;
        };
        let operation = match operation {
            Operation::Deallocate { .. } if !self.shape.frees => {
                Operation::WriteZeroes { offset, len, fua: false }
            }
            operation => operation,
        };
        let most = match operation {
            Operation::Deallocate { .. } => u64::from(u32::MAX) * block,
            Operation::WriteZeroes { .. } if self.shape.zeroes => 65_536 * block,
            _ => by_write,
        };
        let end = offset + len;
        let mut count = 0;
        for at in (offset..end).step_by(usize::try_from(most).unwrap_or(usize::MAX)) {
            let part = most.min(end - at);
            let (operation, data) = match operation {
                Operation::Read { .. } => (Operation::Read { offset: at, len: part }, None),
                Operation::Write { fua, .. } => {
                    let data = match &mut bytes {
                        Some(bytes) if part == len => std::mem::take(bytes),
                        Some(bytes) => bytes[(at - offset) as usize..][..part as usize].to_vec(),
                        None => Vec::new(),
                    };
                    (Operation::Write { offset: at, len: part, fua }, Some(data))
                }
                Operation::WriteZeroes { fua, .. } if self.shape.zeroes => {
                    (Operation::WriteZeroes { offset: at, len: part, fua }, None)
                }
                Operation::WriteZeroes { fua, .. } => {
                    (Operation::Write { offset: at, len: part, fua }, Some(vec![0; part as usize]))
                }
                _ => (Operation::Deallocate { offset: at, len: part }, None),
            };
            self.backlog.push_back(Piece::new(reason, operation, data));
            count += 1;
        }
        count
    }

    /// A buffer of so many bytes; what it holds is arbitrary.
    fn buffer(&mut self, len: u64) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(len as usize, 0);
        buffer
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
    }

    /// The bytes of a write.
    fn gather(&mut self, operation: &Operation, len: u64, data: &Data<'_>) -> Result<Vec<u8>, StoreError> {
        // Of that length alone: it may be kept until the next flush.
        let mut bytes = vec![0; len as usize];
        match data {
            Data::None => {}
            Data::Owned(buffer) => bytes.copy_from_slice(buffer),
            Data::Spans(spans) => {
                let mut rest = &mut bytes[..];
                for span in *spans {
                    let (part, after) = rest.split_at_mut(span.len());
                    let Some((host, at)) = self.reach.locate(*span) else {
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
    fn scatter(reach: &mut Reach, work: &mut Work, from: usize, bytes: &[u8]) -> Result<(), StoreError> {
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

    /// Goes on with all that there is.
    fn work(&mut self) {
        self.find();
        self.send();
        self.look();
    }

    /// Takes what the thread has found.
    fn find(&mut self) {
        if !self.asked {
            return;
        }
        let Some(found) = self.link.found() else { return };
        self.asked = false;
        let found = found.and_then(|mut way| {
            let bytes = way.namespace().bytes();
            let capacity = self.shape.namespace.bytes();
            if bytes < capacity {
                return Err(format!("the namespace has {bytes} bytes now, not {capacity}"));
            }
            self.out = std::iter::repeat_with(|| None).take(way.initiator().depth()).collect();
            Ok(way)
        });
        match found {
            Ok(way) => {
                self.way = Some(way);
                self.answered = false;
                self.again = (!self.unflushed.is_empty()).then(|| self.unflushed.first());
            }
            Err(why) => self.fail_all(&why),
        }
    }

    /// There is a connection, or will be one unless attempts end.
    fn may_send(&self) -> bool {
        self.way.is_some() || self.asked
    }

    /// There is no connection, and none is made.
    fn fail_all(&mut self, why: &str) {
        self.backlog.clear();
        self.makes_room = false;
        for place in 0..self.works.len() {
            if let Some(work) = &mut self.works[place] {
                work.failed = Some(work.operation.failed(why));
                self.end(place);
            }
        }
    }

    /// A work has ended.
    fn end(&mut self, place: usize) {
        if let Some(work) = self.works[place].take() {
            self.free.push(place);
            let result = work.failed.map_or(Ok(()), Err);
            self.done.push_back((work.token, Completion { result, buffer: work.owned }));
        }
    }

    /// Sends what there is room for.
    fn send(&mut self) {
        if self.way.is_none() || self.leaves.is_some() || !self.repeat() {
            return;
        }
        if self.unflushed.is_much() && !self.makes_room {
            self.makes_room = true;
            self.backlog.push_front(Piece::new(Reason::Room, Operation::Flush, None));
        }
        while let Some(piece) = self.backlog.pop_front() {
            if let Err(piece) = self.submit_piece(piece) {
                return self.backlog.push_front(piece);
            }
        }
    }

    /// Makes changes again that may be lost, none beside one that it overlaps; whether all are made.
    fn repeat(&mut self) -> bool {
        while let Some(number) = self.again {
            let Some(change) = self.unflushed.get(number) else {
                if self.out.iter().any(Option::is_some) {
                    return false;
                }
                self.again = None;
                break;
            };
            let operation = change.operation;
            if self.out.iter().flatten().any(|piece| overlap(&piece.operation, &operation)) {
                return false;
            }
            let again = Piece::new(Reason::Again, operation, change.data.clone());
            if self.submit_piece(again).is_err() {
                return false;
            }
            self.again = Some(number + 1);
        }
        true
    }

    /// Sends one; it comes back where there is no room for it, or no connection.
    fn submit_piece(&mut self, mut piece: Piece) -> Result<(), Piece> {
        if self.way.is_none() {
            return Err(piece);
        }
        let (command, data) = self.command(&mut piece);
        let Some(way) = &mut self.way else { return Err(piece) };
        match way.initiator().submit(&command, data) {
            Ok(handle) => {
                piece.covers = self.unflushed.next();
                self.out[handle.index()] = Some(piece);
                Ok(())
            }
            Err(rejected) => {
                if matches!(piece.operation, Operation::Write { .. }) {
                    piece.data = rejected.buffer;
                } else {
                    rejected.buffer.into_iter().for_each(|buffer| self.give_back(buffer));
                }
                if rejected.reason == RejectReason::Buffer {
                    let why = rejected.reason.to_string();
                    self.ended(piece, Err(why));
                    return Ok(());
                }
                if rejected.reason == RejectReason::Dead {
                    let why = format!("driver: {}", rejected.reason);
                    self.leaves.get_or_insert(Error::Lost(why));
                }
                Err(piece)
            }
        }
    }

    fn command(&mut self, piece: &mut Piece) -> (Command, Option<Vec<u8>>) {
        let (nsid, block) = (self.shape.namespace.nsid, u64::from(self.shape.namespace.block_size));
        let durable = |command: Command, fua| if fua { command.fua() } else { command };
        let blocks = |len: u64| (len / block) as u32;
        match piece.operation {
            Operation::Read { offset, len } => {
                (Command::read(nsid, offset / block, blocks(len)), Some(self.buffer(len)))
            }
            Operation::Write { offset, len, fua } => {
                let command = Command::write(nsid, offset / block, blocks(len));
                (durable(command, fua), piece.data.take())
            }
            Operation::WriteZeroes { offset, len, fua } => {
                (durable(Command::write_zeroes(nsid, offset / block, blocks(len)), fua), None)
            }
            Operation::Deallocate { offset, len } => {
                let mut list = self.buffer(DsmRange::SIZE as u64);
                let command = Command::deallocate(nsid, &[(offset / block, blocks(len))], &mut list);
                (command, Some(list))
            }
            Operation::Flush => (Command::flush(nsid), None),
        }
    }

    /// Looks what has ended.
    fn look(&mut self) {
        let Some(way) = &mut self.way else { return };
        if way.initiator().outstanding() == 0 && self.leaves.is_none() {
            return;
        }
        way.initiator().look();
        let lost = way.initiator().failure().map(|error| Error::Lost(format!("driver: {error}")));
        while let Some((handle, finished)) = self.way.as_mut().and_then(|way| way.initiator().take_any()) {
            if let Some((piece, why)) = self.finished(handle, finished) {
                self.held.push(piece);
                self.leaves.get_or_insert(why);
            }
        }
        let is_over = self.way.as_mut().is_some_and(|way| way.initiator().outstanding() == 0);
        let Some(why) = lost.or_else(|| self.leaves.take_if(|_| is_over)) else { return };
        let Some(way) = self.way.take() else { return };
        let is_lost = matches!(why, Error::Lost(_));
        self.leaves = None;
        self.again = None;
        self.makes_room = false;
        self.asked = true;
        self.link.ask(Some(Lost { way, why, answered: self.answered }));
        // What was out comes first again. Changes that are made again begin anew.
        for mut piece in std::mem::take(&mut self.held).into_iter().rev() {
            piece.losses += u32::from(is_lost);
            match piece.reason {
                Reason::Work(_) if piece.losses <= LOSSES => self.backlog.push_front(piece),
                Reason::Work(_) => {
                    let why =
                        format!("with this command out, {} connections in turn were lost", piece.losses);
                    self.ended(piece, Err(why));
                }
                Reason::Again | Reason::Room => {}
            }
        }
        // The driver gives all back; what it did not has no bytes any more that could be sent.
        for place in 0..self.out.len() {
            if let Some(piece) = self.out[place].take()
                && matches!(piece.reason, Reason::Work(_))
            {
                self.ended(piece, Err("its command was lost with the connection".into()));
            }
        }
    }

    /// A command has ended. It is given back, with why, where the drive has not done it for want of a way.
    fn finished(&mut self, handle: Handle, finished: Finished<Vec<u8>>) -> Option<(Piece, Error)> {
        let mut piece = self.out[handle.index()].take()?;
        let Finished { outcome, buffer, moved, .. } = finished;
        let outcome = match outcome {
            Ok(_) => Ok(()),
            Err(Failure::Status(status)) => {
                let said = Error::Nvme { what: piece.operation.name(), status };
                if said.is_of_the_way() {
                    piece.data = buffer.filter(|_| matches!(piece.operation, Operation::Write { .. }));
                    return Some((piece, said));
                }
                Err(status)
            }
            Err(failure) => {
                piece.data = buffer.filter(|_| matches!(piece.operation, Operation::Write { .. }));
                return Some((piece, Error::Lost(format!("driver: {failure}"))));
            }
        };
        self.answered = true;
        match (outcome, piece.operation) {
            (Err(status), _) => self.refused(piece, status),
            (Ok(()), Operation::Read { len, .. }) if moved as u64 != len => {
                self.ended(piece, Err(format!("{moved} of {len} bytes came")));
            }
            (Ok(()), Operation::Read { offset, .. }) => {
                if let (Reason::Work(place), Some(bytes)) = (piece.reason, &buffer)
                    && let Some(work) = &mut self.works[place]
                {
                    let from = offset - work.operation.range().map_or(offset, |(first, _)| first);
                    if let Err(error) = Self::scatter(&mut self.reach, work, from as usize, bytes) {
                        work.failed = Some(error);
                    }
                }
                buffer.into_iter().for_each(|buffer| self.give_back(buffer));
                self.ended(piece, Ok(()));
            }
            (Ok(()), operation) => {
                self.changed(&piece, operation, buffer);
                self.ended(piece, Ok(()));
            }
        }
        None
    }

    /// A change or a flush has ended well.
    fn changed(&mut self, piece: &Piece, operation: Operation, buffer: Option<Vec<u8>>) {
        let durable = match operation {
            Operation::Write { fua, .. } | Operation::WriteZeroes { fua, .. } => fua,
            _ => false,
        };
        match operation {
            Operation::Flush => self.unflushed.flushed(piece.covers),
            // What is durable is kept behind what is not: made again by itself that would be the last.
            _ if piece.reason == Reason::Again
                || !self.shape.is_volatile
                || (durable && self.unflushed.is_empty()) =>
            {
                buffer.into_iter().for_each(|buffer| self.give_back(buffer));
            }
            Operation::Write { .. } => self.unflushed.note(operation, buffer),
            _ => self.unflushed.note(operation, None),
        }
    }

    /// The drive has refused a command.
    fn refused(&mut self, piece: Piece, status: Status) {
        let error = match status.code() {
            Status::CAPACITY_EXCEEDED => piece.operation.full(status.name()),
            Status::READ_ONLY_NAMESPACE | Status::WRITE_TO_READ_ONLY_RANGE => StoreError::ReadOnly,
            _ => piece.operation.failed(status.name()),
        };
        match piece.reason {
            Reason::Work(place) => {
                if let Some(work) = &mut self.works[place] {
                    work.failed = Some(error);
                }
                self.ended(piece, Ok(()));
            }
            _ => self.ended(piece, Err(error.to_string())),
        }
    }

    /// A command has ended, well or for that reason.
    fn ended(&mut self, piece: Piece, outcome: Result<(), String>) {
        match piece.reason {
            Reason::Work(place) => {
                let Some(work) = &mut self.works[place] else { return };
                let lost = match work.operation {
                    Operation::Flush => self.unflushed.lost.take(),
                    _ => None,
                };
                if let Some(why) = outcome.err().or(lost) {
                    work.failed.get_or_insert(work.operation.failed(why));
                }
                work.left -= 1;
                if work.left == 0 {
                    self.end(place);
                }
            }
            Reason::Again => {
                if let Err(why) = outcome {
                    self.unflushed.lost.get_or_insert(format!("made again after a lost connection: {why}"));
                }
            }
            Reason::Room => {
                self.makes_room = false;
                if let Err(why) = outcome {
                    self.unflushed.flushed(piece.covers);
                    self.unflushed.lost.get_or_insert(why);
                }
            }
        }
    }
}

fn overlap(one: &Operation, other: &Operation) -> bool {
    match (one.range(), other.range()) {
        (Some((a, a_len)), Some((b, b_len))) => a < b + b_len && b < a + a_len,
        _ => false,
    }
}

impl Channel for RemoteChannel {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, _now: Nanos) -> Submitted {
        let Shape { namespace, .. } = self.shape;
        let result = check(&operation, &data, namespace.bytes(), namespace.block_size, namespace.read_only);
        if let Err(error) = result {
            return Submitted::done(Err(error), data);
        }
        let live = self.works.len() - self.free.len() + self.done.len();
        // Where none is made any more it fails instead.
        let is_full = self.unflushed.is_full() && self.may_send();
        if live >= MOST || (operation.mutates() && is_full) {
            // Who waits for room has nothing in flight, and does not poll.
            self.work();
            return Submitted::done(Err(StoreError::Busy), data);
        }
        let bytes = match operation {
            Operation::Write { len, .. } => match self.gather(&operation, len, &data) {
                Ok(bytes) => Some(bytes),
                Err(error) => return Submitted::done(Err(error), data),
            },
            _ => None,
        };
        let (spans, owned) = match data {
            Data::None => (Vec::new(), None),
            Data::Spans(spans) => (spans.to_vec(), None),
            Data::Owned(buffer) => (Vec::new(), Some(buffer)),
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.works.push(None);
            self.works.len() - 1
        });
        let left = self.cut(place, operation, bytes);
        if left == 0 {
            self.free.push(place);
            return Submitted::Done(Completion { result: Ok(()), buffer: owned });
        }
        self.works[place] = Some(Work { operation, token, spans, owned, left, failed: None });
        if self.way.is_none() && !self.asked {
            self.asked = true;
            self.link.ask(None);
        }
        Submitted::Pending
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        self.work();
        while let Some((token, completion)) = self.done.pop_front() {
            sink(token, completion);
        }
        let works = self.free.len() < self.works.len();
        match self.way.as_mut().map(|way| way.initiator().outstanding()) {
            Some(out) if works || out > 0 => Some(now),
            // Soon enough for what waits, and seldom enough to cost nothing.
            None if works => Some(now + LOOK_NS),
            _ => None,
        }
    }

    fn in_flight(&self) -> usize {
        self.works.len() - self.free.len() + self.done.len()
    }

    fn memory_changed(&mut self) {
        self.reach.let_go();
    }
}
