//! One queue: a connection with its command slots, owned by one thread.
//!
//! A command's identifier is its slot with a count that changes each time, so that a late answer is known as
//! such. Data of the controller come in order and lie within the command's buffer; data of the host go in the
//! capsule where they fit, else when and as the controller asks (R2T).

use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::WaitKind;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::pdu::{self, DIGEST, DataHeader, Fatal, HEAD, Head, Pdu, Side, Terms};
use nearside_spec::{CompletionEntry, Status};

use super::host::Options;
use super::identifiers::Identifier;
use super::open::{initialize, lost, put_digest, put_header, refuse};
use super::slot::{CommandSlot, Direction, direction};
use super::stream::Stream;
use crate::timeout::CommandTimeout;
use crate::transport::{Answer, answered, not_taken};
use crate::{
    Command, CommandKind, Completed, Error, Failure, QueueCounts, RejectReason, Rejected, Transport,
};

/// Data that are being received.
#[derive(Clone, Copy)]
struct Incoming {
    slot: usize,
    /// Padding before them that is still to be skipped.
    padding: usize,
    left: usize,
    /// CRC-32C of those that came, where a digest follows.
    crc: Option<u32>,
    /// The command ends with them.
    success: bool,
}

/// A queue over NVMe/TCP: a connection with its command slots.
pub struct Queue {
    stream: Stream,
    /// Of PDUs to the host.
    down: Terms,
    /// Of PDUs to the controller.
    up: Terms,
    max_data: usize,
    in_capsule: usize,
    max_transfer: usize,
    slots: Box<[CommandSlot]>,
    free: Vec<u16>,
    incoming: Option<Incoming>,
    /// Commands that have ended, but for bytes that are still to be sent.
    held: usize,
    alive: bool,
    timeout: CommandTimeout,
    counts: QueueCounts,
    /// DW0 of the last completion that was no success: of Connect, which field was not valid.
    pub(super) refused: u32,
    /// Free again when the connection, which is dropped before it, has ended.
    identifier: Option<Identifier>,
}

/// Bits of a command identifier that name the slot; the others count.
const SLOT_BITS: u32 = 11;
/// More slots than a queue can have.
const SLOTS: u16 = 1 << SLOT_BITS;
/// Most commands that a queue can have out; no identifier becomes FFFFh.
pub(super) const MAX_DEPTH: u16 = SLOTS - 1;
/// Looks at the socket in one poll: a bound for a target that sends without end.
const LOOKS: usize = 64;

impl Queue {
    /// Connects and initialises: ICReq and ICResp (TCP Transport 1.0, 3.1). `in_capsule`: bytes of data that
    /// a capsule may have; `max_transfer`: of a command.
    pub(super) fn open(
        mut stream: Stream,
        options: &Options,
        depth: u16,
        in_capsule: usize,
        max_transfer: usize,
        clock: &dyn Clock,
    ) -> Result<Queue, Error> {
        let response = initialize(&mut stream, options, clock)?;
        let terms = |alignment_z| Terms {
            header_digest: response.header_digest,
            data_digest: response.data_digest,
            alignment_z,
        };
        Ok(Queue {
            down: terms(0),
            up: terms(response.alignment_z),
            // Whole dwords, so that each piece begins at one.
            max_data: (response.limit as usize) & !3,
            in_capsule,
            max_transfer,
            timeout: CommandTimeout::new(options.timeout_ms.saturating_mul(1_000_000)),
            ..Queue::over(stream, depth)
        })
    }

    /// Over a connection on which nothing was agreed yet: without digests, of any length.
    fn over(stream: Stream, depth: u16) -> Queue {
        let depth = depth.clamp(1, MAX_DEPTH);
        Queue {
            stream,
            down: Terms::default(),
            up: Terms::default(),
            max_data: usize::MAX & !3,
            in_capsule: 0,
            max_transfer: usize::MAX,
            slots: (0..depth).map(|_| CommandSlot::free()).collect(),
            free: (0..depth).rev().collect(),
            incoming: None,
            held: 0,
            alive: true,
            timeout: CommandTimeout::new(u64::MAX),
            counts: QueueCounts::default(),
            refused: 0,
            identifier: None,
        }
    }

    /// Header and data digests: which are in use.
    pub fn digests(&self) -> (bool, bool) {
        (self.down.header_digest, self.down.data_digest)
    }

    /// Keeps the identifier that it goes by in use for as long as it is there.
    pub(super) fn keep(&mut self, identifier: Identifier) {
        self.identifier = Some(identifier);
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = CommandTimeout::new(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn set_limits(&mut self, in_capsule: usize, max_transfer: usize) {
        (self.in_capsule, self.max_transfer) = (in_capsule, max_transfer);
    }

    fn send(&mut self) -> Result<(), Error> {
        self.stream.send(&mut self.slots).map_err(lost)
    }

    fn work(&mut self, now: Nanos, sink: &mut impl FnMut(Completed<Vec<u8>>)) -> Result<usize, Error> {
        if self.stream.is_sending() {
            self.send()?;
        }
        let mut count = self.reap_sent(sink);
        for _ in 0..LOOKS {
            let more = self.receive()?;
            count += self.understand(sink)?;
            // Whoever has answers sends new commands before the next look, so that the target has something
            // to do while the rest is read: both would else work in turns.
            if !more || count > 0 {
                break;
            }
        }
        if count == 0 && self.outstanding() > 0 && now >= self.timeout.look_at() {
            self.look(now)?;
        }
        Ok(count)
    }

    /// Commands that ended while bytes of theirs were still to be sent.
    fn reap_sent(&mut self, sink: &mut impl FnMut(Completed<Vec<u8>>)) -> usize {
        if self.held == 0 {
            return 0;
        }
        let mut count = 0;
        for index in 0..self.slots.len() {
            if self.slots[index].sending == 0
                && let Some(outcome) = self.slots[index].ended.take()
            {
                self.held -= 1;
                self.end(index, outcome, sink);
                count += 1;
            }
        }
        count
    }

    /// Reads once. Whether more may be there.
    fn receive(&mut self) -> Result<bool, Error> {
        let mut none: [u8; 0] = [];
        let wanted = match &self.incoming {
            Some(Incoming { slot, padding: 0, left, .. }) => {
                let slot = &mut self.slots[*slot];
                let at = slot.moved;
                slot.buffer.as_mut().and_then(|b| b.get_mut(at..at + left)).unwrap_or(&mut none)
            }
            _ => &mut none,
        };
        let (direct, more) = self.stream.receive(wanted).map_err(lost)?;
        if direct > 0 {
            let crc = |crc, bytes: &[u8]| crc32c::crc32c_append(crc, bytes);
            if let Some(incoming) = &mut self.incoming {
                incoming.crc = incoming.crc.map(|c| crc(c, &wanted[..direct]));
                incoming.left -= direct;
                self.slots[incoming.slot].moved += direct;
            }
        }
        Ok(more)
    }

    /// Goes through what was received.
    fn understand(&mut self, sink: &mut impl FnMut(Completed<Vec<u8>>)) -> Result<usize, Error> {
        let mut count = 0;
        loop {
            if let Some(incoming) = self.incoming {
                match self.data(incoming, sink) {
                    Some(ended) => count += ended,
                    None => return Ok(count),
                }
                continue;
            }
            let bytes = self.stream.bytes();
            let Some(first) = bytes.first_chunk::<HEAD>() else { return Ok(count) };
            let head = match Head::decode(first, Side::Host, &self.down) {
                Ok(head) => head,
                Err(fatal) => return Err(self.protocol(fatal)),
            };
            let Some(header) = bytes.get(..head.header_len()) else { return Ok(count) };
            if self.down.header_digest && !matches!(head.kind, pdu::PduType::ControllerTerminate) {
                let (header, digest) = header.split_at(usize::from(head.kind.hlen()));
                let received = digest.first_chunk().map_or(0, |d| u32::from_le_bytes(*d));
                if crc32c::crc32c(header) != received {
                    return Err(self.protocol(Fatal::digest(received)));
                }
            }
            let said = Pdu::decode(&head, header).map_err(Refusal::from).and_then(|pdu| self.pdu(&head, pdu));
            match said {
                Ok(ended) => {
                    self.stream.take(head.header_len());
                    if let Some((index, outcome)) = ended {
                        count += self.finish(index, outcome, sink);
                    }
                }
                Err(Refusal::Protocol(fatal)) => return Err(self.protocol(fatal)),
                Err(Refusal::Over(error)) => return Err(error),
            }
        }
    }

    /// The slot of a command that is out.
    fn slot(&mut self, cid: u16) -> Option<(usize, &mut CommandSlot)> {
        let index = usize::from(cid & (SLOTS - 1));
        self.slots.get_mut(index).filter(|s| s.live && s.cid == cid && s.ended.is_none()).map(|s| (index, s))
    }

    /// What a PDU means. The command that ends with it, if one does.
    fn pdu(&mut self, head: &Head, pdu: Pdu) -> Result<Option<Ended>, Refusal> {
        match pdu {
            Pdu::Response(entry) => {
                let (index, _) = self.slot(entry.cid()).ok_or(Fatal::field(HEAD as u32 + 12))?;
                let outcome = outcome(&entry);
                if outcome.is_err() {
                    self.refused = entry.dw[0];
                }
                Ok(Some((index, outcome)))
            }
            Pdu::Data(data) => self.begin_data(head, &data).map(|()| None),
            Pdu::ReadyToTransfer(r2t) => {
                let (max_data, up) = (self.max_data, self.up);
                let (index, slot) = self.slot(r2t.cccid).ok_or(Fatal::field(8))?;
                let (from, len) = (r2t.offset as usize, r2t.len as usize);
                let all = slot.buffer.as_ref().map_or(0, Vec::len);
                if slot.direction != Direction::ToController || slot.in_capsule {
                    return Err(Fatal::SEQUENCE.into());
                }
                // One at a time is what was agreed on, and each asks for what follows.
                if slot.sending > 0 {
                    return Err(Fatal::LIMIT_EXCEEDED.into());
                }
                if from != slot.moved || len > all - from {
                    return Err(Fatal::OUT_OF_RANGE.into());
                }
                slot.moved += len;
                slot.sending = len;
                let mut at = from;
                while at < from + len {
                    let part = max_data.min(from + len - at);
                    let last = at + part == from + len;
                    let header = DataHeader {
                        cccid: r2t.cccid,
                        ttag: r2t.ttag,
                        offset: at as u32,
                        len: part as u32,
                        last,
                        success: false,
                    };
                    put_header(&mut self.stream, &up, &header.host(&up), part);
                    self.stream.put_data(index, at, at + part);
                    if let Some(bytes) = self.slots[index].buffer.as_ref().and_then(|b| b.get(at..at + part))
                    {
                        put_digest(&mut self.stream, &up, bytes);
                    }
                    at += part;
                }
                self.send().map_err(Refusal::Over)?;
                Ok(None)
            }
            Pdu::Terminate(fatal) => Err(Refusal::Over(Error::Terminated(fatal))),
            Pdu::InitializeResponse(_) | Pdu::InitializeRequest(_) | Pdu::Command(_) => {
                Err(Fatal::SEQUENCE.into())
            }
        }
    }

    fn begin_data(&mut self, head: &Head, data: &DataHeader) -> Result<(), Refusal> {
        let (index, slot) = self.slot(data.cccid).ok_or(Fatal::field(8))?;
        let all = slot.buffer.as_ref().map_or(0, Vec::len);
        let (from, len) = (data.offset as usize, data.len as usize);
        if slot.direction != Direction::ToHost {
            return Err(Fatal::SEQUENCE.into());
        }
        // In order, so that what was not sent is known.
        if from != slot.moved || len > all - from {
            return Err(Fatal::OUT_OF_RANGE.into());
        }
        let span = head.data();
        let padding = (span.offset as usize).saturating_sub(head.header_len());
        let crc = span.digest.then_some(0);
        // Even without data: it may be the command's end.
        let padding = if len == 0 { 0 } else { padding };
        self.incoming = Some(Incoming { slot: index, padding, left: len, crc, success: data.success });
        Ok(())
    }

    /// Takes data from the inbox. `None`: more have to come; otherwise how many commands ended with them.
    fn data(&mut self, mut incoming: Incoming, sink: &mut impl FnMut(Completed<Vec<u8>>)) -> Option<usize> {
        let skip = incoming.padding.min(self.stream.bytes().len());
        self.stream.take(skip);
        incoming.padding -= skip;
        let slot = &mut self.slots[incoming.slot];
        if incoming.padding == 0 && incoming.left > 0 {
            let bytes = self.stream.bytes();
            let part = incoming.left.min(bytes.len());
            let place = slot.buffer.as_mut().and_then(|b| b.get_mut(slot.moved..slot.moved + part));
            if let (Some(place), Some(bytes)) = (place, bytes.get(..part)) {
                place.copy_from_slice(bytes);
                incoming.crc = incoming.crc.map(|crc| crc32c::crc32c_append(crc, bytes));
            }
            slot.moved += part;
            incoming.left -= part;
            self.stream.take(part);
        }
        self.incoming = Some(incoming);
        if incoming.padding > 0 || incoming.left > 0 {
            return None;
        }
        if let Some(crc) = incoming.crc {
            let digest = self.stream.bytes().first_chunk::<DIGEST>()?;
            slot.damaged |= u32::from_le_bytes(*digest) != crc;
            self.stream.take(DIGEST);
        }
        self.incoming = None;
        Some(if incoming.success { self.finish(incoming.slot, Ok(0), sink) } else { 0 })
    }

    /// A command has its answer. It ends now, or when its buffer is free.
    fn finish(
        &mut self,
        index: usize,
        outcome: Result<u64, Failure>,
        sink: &mut impl FnMut(Completed<Vec<u8>>),
    ) -> usize {
        let slot = &mut self.slots[index];
        let wanted = slot.buffer.as_ref().map_or(0, Vec::len);
        let outcome = match outcome {
            Ok(_) if slot.damaged => Err(Failure::Digest),
            // Near-data replies and admin commands may say less than there is room for.
            Ok(_) if slot.moved < wanted && matches!(slot.kind, CommandKind::Read | CommandKind::Write) => {
                Err(Failure::Short)
            }
            outcome => outcome,
        };
        if slot.sending > 0 {
            slot.ended = Some(outcome);
            self.held += 1;
            return 0;
        }
        self.end(index, outcome, sink);
        1
    }

    fn end(
        &mut self,
        index: usize,
        outcome: Result<u64, Failure>,
        sink: &mut impl FnMut(Completed<Vec<u8>>),
    ) {
        let slot = &mut self.slots[index];
        slot.live = false;
        self.free.push(index as u16);
        self.counts.completed += 1;
        sink(Completed {
            cookie: slot.cookie,
            outcome,
            buffer: slot.buffer.take(),
            moved: slot.moved,
            submitted: slot.submitted,
        });
    }

    /// The target broke the rules: sends it a termination request.
    fn protocol(&mut self, fatal: Fatal) -> Error {
        let offending: Vec<u8> = self.stream.bytes().iter().take(128).copied().collect();
        // A PDU that is half sent cannot be followed by another.
        if self.stream.is_sending() {
            self.stream.finish();
            return Error::Protocol(fatal);
        }
        refuse(&mut self.stream, fatal, &offending)
    }

    /// The rare look at the oldest command's age.
    #[cold]
    fn look(&mut self, now: Nanos) -> Result<(), Error> {
        let oldest = self.slots.iter().filter(|s| s.live).map(|s| s.submitted).min();
        self.timeout.look(oldest, now)
    }

    /// Ends the connection, and every command that is out.
    pub(super) fn give_up(&mut self, mut sink: impl FnMut(Completed<Vec<u8>>)) {
        self.alive = false;
        self.stream.finish();
        self.incoming = None;
        for index in 0..self.slots.len() {
            if self.slots[index].live {
                let ended = self.slots[index].ended.take();
                self.end(index, ended.unwrap_or(Err(Failure::Lost)), &mut sink);
            }
        }
    }

    /// Submits a command and sleeps until it has ended: for what is rare. Nothing else may be out.
    pub(super) fn run(
        &mut self,
        what: &'static str,
        command: &Command,
        buffer: Option<Vec<u8>>,
        clock: &dyn Clock,
    ) -> Result<Answer<Vec<u8>>, Error> {
        self.submit(command, buffer, 0, clock.now()).map_err(|r| not_taken(&r))?;
        let mut ended = None;
        loop {
            let polled = self.poll(clock.now(), |done| ended = Some(done));
            match (ended.take(), polled) {
                (_, Err(Error::TimedOut { timeout_ms, .. })) => {
                    return Err(Error::TimedOut { command: what, timeout_ms });
                }
                (_, Err(error)) => return Err(error),
                (Some(done), _) => return answered(what, done),
                (None, Ok(_)) => {}
            }
            let until = self.deadline().unwrap_or(Nanos(0));
            self.sleep(until - clock.now());
        }
    }
}

impl Transport for Queue {
    type Buffer = Vec<u8>;

    /// It takes a call of the system.
    const RINGS_AT_ONCE: bool = false;

    fn depth(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn is_alive(&self) -> bool {
        self.alive
    }

    fn counts(&self) -> QueueCounts {
        QueueCounts { calls: self.stream.calls, ..self.counts }
    }

    /// The whole of the buffer is the data, in the direction that the opcode says.
    fn submit(
        &mut self,
        command: &Command,
        buffer: Option<Vec<u8>>,
        cookie: u64,
        now: Nanos,
    ) -> Result<(), Rejected<Vec<u8>>> {
        let reject = |buffer, reason| Err(Rejected { buffer, reason });
        if !self.alive {
            return reject(buffer, RejectReason::Dead);
        }
        let len = buffer.as_ref().map_or(0, Vec::len);
        let direction = match direction(&command.entry) {
            Some(direction) if len <= self.max_transfer && (direction != Direction::None || len == 0) => {
                direction
            }
            _ => return reject(buffer, RejectReason::Buffer),
        };
        let Some(index) = self.free.pop() else { return reject(buffer, RejectReason::Full) };
        let slot = &mut self.slots[usize::from(index)];
        let in_capsule = direction == Direction::ToController && len > 0 && len <= self.in_capsule;
        *slot = CommandSlot {
            live: true,
            cid: index | (slot.cid & !(SLOTS - 1)).wrapping_add(SLOTS),
            cookie,
            submitted: now,
            kind: command.kind,
            direction,
            moved: if in_capsule { len } else { 0 },
            sending: 0,
            in_capsule,
            ended: None,
            damaged: false,
            buffer,
        };
        let mut entry = command.entry;
        entry.set_cid(slot.cid);
        // A buffer of no more than max_transfer bytes, which a u32 holds.
        let data = match in_capsule {
            true => CapsuleData::InCapsule { offset: 0, len: len as u32 },
            false => CapsuleData::Transport { len: len as u32 },
        };
        data.put(&mut entry);
        let inside = if in_capsule { len } else { 0 };
        put_header(&mut self.stream, &self.up, &pdu::command(&entry, inside as u32, &self.up), inside);
        if in_capsule && let Some(bytes) = &slot.buffer {
            self.stream.put(bytes);
            put_digest(&mut self.stream, &self.up, bytes);
        }
        self.counts.submitted += 1;
        self.timeout.begin(now);
        Ok(())
    }

    #[inline]
    fn ring(&mut self) {
        if self.stream.is_sending() && self.alive {
            let _ = self.send();
        }
    }

    /// Sends what waits, receives what is there. With an error the connection is over:
    /// every command that was out has been handed on.
    fn poll(&mut self, now: Nanos, mut sink: impl FnMut(Completed<Vec<u8>>)) -> Result<usize, Error> {
        if !self.alive {
            return Ok(0);
        }
        match self.work(now, &mut sink) {
            Ok(count) => Ok(count),
            Err(error) => {
                self.give_up(sink);
                Err(error)
            }
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        (self.outstanding() > 0 && self.alive).then_some(self.timeout.look_at())
    }

    /// Each poll looks at the socket itself.
    fn watch(&mut self, _wait: WaitKind) {}

    fn sleep(&mut self, timeout: Duration) {
        self.stream.wait(Some(timeout));
    }

    fn identifier(&self, cookie: u64) -> Option<(u16, u16)> {
        let slot = self.slots.iter().find(|slot| slot.live && slot.cookie == cookie)?;
        Some((self.identifier.as_ref().map_or(0, |identifier| identifier.number), slot.cid))
    }
}

/// A slot whose command has its answer.
type Ended = (usize, Result<u64, Failure>);

/// Why a PDU was not taken.
enum Refusal {
    /// It broke the rules.
    Protocol(Fatal),
    /// The connection is over.
    Over(Error),
}

impl From<Fatal> for Refusal {
    fn from(fatal: Fatal) -> Refusal {
        Refusal::Protocol(fatal)
    }
}

fn outcome(entry: &CompletionEntry) -> Result<u64, Failure> {
    let status: Status = entry.status();
    match status.is_success() {
        true => Ok(u64::from(entry.dw[0]) | u64::from(entry.dw[1]) << 32),
        false => Err(Failure::Status(status)),
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tcp::Queue({} of {} out)", self.outstanding(), self.depth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const BLOCK: usize = 4096;
    /// So many answers are more than one look takes, and less than a socket's buffer.
    const COUNT: usize = 40;

    fn command(peer: &mut UnixStream) -> u16 {
        let mut bytes = [0; 72];
        peer.read_exact(&mut bytes).unwrap();
        let head = Head::decode(bytes.first_chunk().unwrap(), Side::Controller, &Terms::default()).unwrap();
        match Pdu::decode(&head, &bytes) {
            Ok(Pdu::Command(entry)) => entry.cid(),
            other => panic!("{other:?}"),
        }
    }

    /// A host that read all answers before it sends what comes next would keep its target waiting meanwhile.
    #[test]
    fn a_poll_hands_on_what_one_look_found() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let mut queue =
            Queue::over(Stream::of(std::os::fd::OwnedFd::from(ours).into()).unwrap(), COUNT as u16);
        let read = |queue: &mut Queue, cookie: usize| {
            let command = Command::read(1, 0, (BLOCK / 512) as u32);
            queue.submit(&command, Some(vec![0; BLOCK]), cookie as u64, Nanos(0)).unwrap();
        };
        (0..COUNT).for_each(|cookie| read(&mut queue, cookie));
        queue.ring();
        let mut answers = Vec::new();
        for _ in 0..COUNT {
            let cccid = command(&mut peer);
            let header =
                DataHeader { cccid, ttag: 0, offset: 0, len: BLOCK as u32, last: true, success: true };
            answers.extend(header.controller(&Terms::default()));
            answers.extend([cccid as u8; BLOCK]);
        }
        peer.set_nonblocking(true).unwrap();
        let mut rest = &answers[..];
        let (mut ended, mut polls, mut most) = (0, 0, 0);
        while ended < COUNT {
            // As much as the socket holds is there before each look.
            while let Some(wrote) = unless_full(peer.write(rest)) {
                rest = &rest[wrote..];
            }
            let calls = queue.counts().calls;
            let count = queue.poll(Nanos(0), |done| assert_eq!(done.outcome, Ok(0))).unwrap();
            assert_eq!(queue.counts().calls - calls, 1, "one look after {ended} of {COUNT}");
            (ended, polls, most) = (ended + count, polls + 1, most.max(count));
        }
        assert!(polls > 1 && most < COUNT, "{polls} polls, {most} at most");
    }

    fn unless_full(wrote: std::io::Result<usize>) -> Option<usize> {
        match wrote {
            Ok(0) => None,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => None,
            other => Some(other.unwrap()),
        }
    }
}
