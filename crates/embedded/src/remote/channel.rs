//! One reactor's way to a drive over the network: operations become commands, and stay until these have ended
//! by whichever connection.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_clock::Nanos;
use nearside_dma::{Memory, Reach};
use nearside_driver::{Failure, Finished, Handle, RejectReason};
use nearside_fsrlib::Error;
use nearside_spec::Status;
use nearside_store::{Channel, Completion, Data, Operation, StoreError, Submitted, Token, check};

use super::link::{Link, Lost};
use super::pieces::{Piece, Reason, Work, gather, scatter};
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

    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
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
            if self.out.iter().flatten().any(|piece| piece.overlaps(&operation)) {
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
        let spare = if piece.takes_buffer() { self.spare.pop().unwrap_or_default() } else { Vec::new() };
        let (command, data) = piece.command(&self.shape, spare);
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
                    if let Err(error) = scatter(&mut self.reach, work, from as usize, bytes) {
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
            Operation::Write { len, .. } => match gather(&mut self.reach, &operation, len, &data) {
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
        let pieces = self.shape.cut(Reason::Work(place), operation, bytes);
        let left = pieces.len();
        if left == 0 {
            self.free.push(place);
            return Submitted::Done(Completion { result: Ok(()), buffer: owned });
        }
        self.backlog.extend(pieces);
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
