//! A connection: PDUs in and out, and the queue that it is once its host has connected.
//!
//! A command's way: [`Connection::read`] parses its capsule -> [`Connection::command`] checks where its data
//! are -> a slot of the [`Queue`], a staging buffer, R2T and H2CData where the host owes data -> the
//! submission queue. Back: [`Connection::reap`] -> C2HData and the response capsule -> [`Connection::write`].
//! What breaks the rules ends the connection with a termination request, and nothing else.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use nearside_auth::{Done, Outcome};
use nearside_channel::Channel;
use nearside_clock::{Nanos, event_at};
use nearside_device::Firmware;
use nearside_dma::socket;
use nearside_spec::fabrics::ADMIN_IN_CAPSULE;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{Connect, FabricsCommand, Security};
use nearside_spec::fabrics::pdu::{
    self, DIGEST, DataHeader, Fatal, HEAD, Head, Initialize, Pdu, ReadyToTransfer, Side, TerminateRequest,
    Terms,
};
use nearside_spec::fabrics::status;
use nearside_spec::opcode::{self, admin, io as io_opcode};
use nearside_spec::{CompletionEntry, Status, SubmissionEntry};
use nearside_store::Store;

use crate::acceptor::network;
use crate::association::{Association, LocalController};
use crate::authentication::{Authentication, Job, Message};
use crate::encryption::Encryption;
use crate::fabrics::{self, Accepted, Connecting, Refusal};
use crate::hosts::Ticket;
use crate::output::{Output, digest};
use crate::patience::{Pace, Patience};
use crate::poller::Interest;
use crate::pool::Pool;
use crate::queue::{CommandSlot, CommandStage, Queue, Refused};
use crate::target::{Counters, Target};

/// MAXH2CDATA: bytes of one H2CData.
const MAX_H2C_DATA: u32 = 4 << 20;
/// Bytes that are read, or wait for a slow reader, above which no more of its commands are begun.
const MAX_BACKLOG: usize = 1 << 20;
/// Above that many bytes that a command still owes, they are received where they belong.
const DIRECT: usize = 8192;
/// Reads of one connection in a row.
const READS: usize = 8;
/// Bytes that a thread receives at once.
pub(crate) const SCRATCH: usize = 256 << 10;
/// How long a peer may take to close after a termination request.
const CLOSING_NS: u64 = 2_000_000_000;

/// Where a connection stands.
pub(crate) enum Phase<S: Store, F: Firmware<S>> {
    /// Before ICReq.
    New,
    /// Before Connect.
    Initialized,
    /// Its Connect was; the thread of its queue answers.
    Accepted(Box<Accepted<S, F>>),
    /// It is a queue.
    Serving,
    /// What is left is sent, then it is closed.
    Closing,
}

/// What a thread has to do for a connection that has taken what came.
pub(crate) enum Received {
    /// So many bytes came, or something else happened: what there is to send is sent.
    Bytes(usize),
    /// Before that, the I/O queues of the controller end, on all threads.
    QueuesEnd(usize),
    /// It is over.
    Closed,
}

/// Why a connection ends.
pub(crate) enum End {
    /// The peer is gone, or went about to go.
    Closed,
    /// It broke the rules; the offending header.
    Fatal(Fatal, Vec<u8>),
    Io(io::Error),
}

/// What comes next.
enum Expect {
    Pdu,
    /// Data of an H2CData.
    Data(Arriving),
}

struct Arriving {
    slot: u16,
    /// Byte of the staging region.
    at: usize,
    left: usize,
    len: u32,
    /// CRC-32C so far, where a digest follows.
    crc: Option<u32>,
}

/// What a connection works with: its thread's, and none of it the connection's own.
pub(crate) struct Context<'a, S: Store, F: Firmware<S>> {
    pub(crate) target: &'a Target<S, F>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) local: Option<&'a mut LocalController<S, F>>,
    pub(crate) now: Nanos,
}

pub(crate) struct Connection<S: Store, F: Firmware<S>> {
    pub(crate) channel: Channel,
    /// How far it is with TLS.
    pub(crate) encryption: Encryption,
    pub(crate) peer: SocketAddr,
    pub(crate) address: SocketAddr,
    /// The number of what listens there.
    pub(crate) port: u16,
    pub(crate) phase: Phase<S, F>,
    pub(crate) association: Option<Arc<Association<S, F>>>,
    pub(crate) queue: Option<Box<Queue>>,
    pub(crate) output: Output,
    /// Key of its association's part on this thread.
    pub(crate) local: Option<usize>,
    /// One of those of its host.
    pub(crate) ticket: Option<Ticket>,
    /// Counted among those whose hosts have not said who they are.
    pub(crate) is_unidentified: bool,
    /// How its host proves who it is, where it has to.
    pub(crate) authentication: Option<Box<Authentication>>,
    /// When it came to where it stands.
    pub(crate) begun: Nanos,
    /// Since when it is about to be closed.
    closing: Option<Nanos>,
    /// Since when the rest of a PDU is waited for.
    partial: Option<Nanos>,
    /// How the peer reads what waits for it.
    pace: Option<Pace>,
    /// What the poller tells of.
    armed: Interest,
    /// Data at hand wait for a staging buffer.
    pub(crate) stalled: bool,
    terms: Terms,
    answers: Terms,
    expect: Expect,
    /// Received, and not yet a whole PDU.
    rest: Vec<u8>,
}

impl<S: Store, F: Firmware<S>> Connection<S, F> {
    pub(crate) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        (port, address): (u16, SocketAddr),
        now: Nanos,
    ) -> Self {
        Connection {
            channel: Channel::plain(stream),
            encryption: Encryption::Unknown,
            peer,
            address,
            port,
            phase: Phase::New,
            association: None,
            queue: None,
            output: Output::default(),
            local: None,
            ticket: None,
            is_unidentified: true,
            authentication: None,
            begun: now,
            closing: None,
            partial: None,
            pace: None,
            armed: Interest::READ,
            stalled: false,
            terms: Terms::default(),
            answers: Terms::default(),
            expect: Expect::Pdu,
            rest: Vec::new(),
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether the peer has something to do before long.
    pub(crate) fn is_owed(&self) -> bool {
        !self.is_serving()
            || !self.output.is_empty()
            || self.partial.is_some()
            || self.authentication.as_ref().is_some_and(|of| of.since().is_some())
            || self.queue.as_ref().is_some_and(|queue| queue.receiving > 0)
    }

    /// When the peer loses its connection unless it goes on; `None`: it owes nothing.
    pub(crate) fn due(&self, patience: &Patience) -> Option<Nanos> {
        if let Some(since) = self.closing {
            return Some(since + CLOSING_NS);
        }
        if !self.is_serving() {
            return Some(self.begun + patience.grace_ns);
        }
        let partial = self.partial.map(|since| since + patience.grace_ns);
        let data = self.queue.as_ref().and_then(|queue| queue.due());
        let pace = self.pace.map(|pace| pace.until());
        let proof = self.authentication.as_ref().and_then(|of| Some(of.since()? + patience.grace_ns));
        partial.into_iter().chain(data).chain(pace).chain(proof).min()
    }

    /// More wait for a slow reader than commands of its are begun for.
    fn is_backlogged(&self) -> bool {
        self.output.cost() > MAX_BACKLOG
    }

    /// Whether what comes is taken now.
    pub(crate) fn takes(&self) -> bool {
        !self.stalled && !self.is_backlogged() && !self.is_accepted() && !self.encryption.is_waiting()
    }

    /// Whether its Connect was accepted, so that the thread of its queue takes it.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.phase, Phase::Accepted(_))
    }

    /// Whether it is the admin queue of a controller.
    pub(crate) fn is_admin(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.id == 0)
    }

    /// What the poller should tell of, where it does not: what came, while it would be taken; room, while
    /// something could not be sent. It tells of what is there again and again.
    pub(crate) fn new_interest(&mut self) -> Option<Interest> {
        let wanted = Interest { read: self.takes(), write: !self.output.is_empty() };
        (wanted != self.armed).then(|| {
            self.armed = wanted;
            wanted
        })
    }

    /// As a new socket of a poller.
    pub(crate) fn added_to_poller(&mut self) {
        self.armed = Interest::READ;
    }

    /// What is left of what came, after some of it was used.
    fn keep_partial(&mut self, used: usize, now: Nanos) {
        if self.rest.is_empty() || self.stalled {
            self.partial = None;
        } else if used > 0 || self.partial.is_none() {
            self.partial = Some(now);
        }
    }

    /// Takes what has come. A peer that breaks the rules gets a termination request.
    pub(crate) fn receive(&mut self, scratch: &mut [u8], cx: &mut Context<'_, S, F>) -> Received {
        let got = match self.read(scratch, cx) {
            Ok(got) => got,
            Err(End::Fatal(fatal, header)) => {
                if let Some(suppressed) = cx.target.may_report("a PDU broke the rules", cx.now) {
                    tracing::info!(peer = %self.peer, %fatal, suppressed, "a PDU broke the rules");
                }
                cx.target.counters.refused.fetch_add(1, Ordering::Relaxed);
                self.terminate(fatal, &header);
                1
            }
            Err(End::Closed) => return Received::Closed,
            Err(End::Io(error)) => {
                tracing::info!(peer = %self.peer, %error, "a connection broke");
                return Received::Closed;
            }
        };
        if got > 0 {
            cx.target.counters.received.fetch_add(got as u64, Ordering::Relaxed);
        }
        let ended = cx.local.as_mut().is_some_and(|local| std::mem::take(&mut local.queues_end));
        if ended { Received::QueuesEnd(got) } else { Received::Bytes(got) }
    }

    /// Sends what there is to send, and begins commands that waited for it.
    pub(crate) fn send(&mut self, cx: &mut Context<'_, S, F>) -> Result<usize, End> {
        let sent = self.write(cx);
        self.resume_postponed(cx);
        if let (Some(queue), Some(association), Some(local)) =
            (&mut self.queue, &self.association, &mut cx.local)
            && queue.ring_doorbell(association.registers())
        {
            local.due = Some(cx.now);
        }
        sent
    }

    /// Takes what the socket has. Returns the bytes.
    fn read(&mut self, scratch: &mut [u8], cx: &mut Context<'_, S, F>) -> Result<usize, End> {
        let mut total = 0;
        if !self.is_settled(cx)? {
            return Ok(0);
        }
        let encrypted = self.channel.is_encrypted();
        if self.stalled {
            self.stalled = false;
            let bytes = &mut scratch[..self.rest.len()];
            bytes.copy_from_slice(&self.rest);
            let used = self.parse(bytes, cx)?;
            self.rest.drain(..used);
            self.keep_partial(used, cx.now);
        }
        for _ in 0..READS {
            if !self.takes() {
                break;
            }
            let kept = self.rest.len();
            scratch[..kept].copy_from_slice(&self.rest);
            let room = scratch.len() - kept;
            let (got, wanted, direct) = match &self.expect {
                Expect::Data(Arriving { at, left, .. }) if kept == 0 && *left > DIRECT && !encrypted => {
                    let region = cx.pool.region().clone();
                    (socket::receive(self.channel.socket(), &region, *at, *left, scratch), left + room, *left)
                }
                // A record at a time; the next may be there.
                _ if encrypted => (self.channel.read(&mut scratch[kept..]), 0, 0),
                _ => (self.channel.read(&mut scratch[kept..]), room, 0),
            };
            let got = match got {
                Ok(0) => return Err(End::Closed),
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(End::Io(e)),
            };
            total += got;
            if matches!(self.phase, Phase::Closing) {
                self.rest.clear();
                continue;
            }
            let there = direct.min(got);
            if there > 0
                && let Some(done) = self.data_arrived(there, cx)
            {
                self.data_complete(done, cx);
            }
            let bytes = &scratch[..kept + got - there];
            let used = self.parse(bytes, cx)?;
            self.rest.clear();
            self.rest.extend_from_slice(&bytes[used..]);
            self.keep_partial(used + there, cx.now);
            if got < wanted {
                break;
            }
        }
        Ok(total)
    }

    /// Takes whole PDUs, and data as they come. Returns the bytes used.
    fn parse(&mut self, bytes: &[u8], cx: &mut Context<'_, S, F>) -> Result<usize, End> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let n = match &self.expect {
                Expect::Data(data) if data.left > 0 => {
                    let n = rest.len().min(data.left);
                    cx.pool.region().write(data.at, &rest[..n]);
                    match n {
                        0 => None,
                        _ => {
                            if let Some(done) = self.data_arrived(n, cx) {
                                self.data_complete(done, cx);
                            }
                            Some(n)
                        }
                    }
                }
                Expect::Data(Arriving { slot, len, crc: Some(crc), .. }) => {
                    match rest.first_chunk::<DIGEST>() {
                        Some(received) => {
                            let done = (*slot, *len, u32::from_le_bytes(*received) == *crc);
                            self.expect = Expect::Pdu;
                            self.data_complete(done, cx);
                            Some(DIGEST)
                        }
                        None => None,
                    }
                }
                Expect::Data(_) | Expect::Pdu => self.pdu(rest, cx).map_err(|fatal| match fatal {
                    Some(fatal) => End::Fatal(fatal, rest[..rest.len().min(128)].to_vec()),
                    None => End::Closed,
                })?,
            };
            match n {
                Some(n) => used += n,
                None => return Ok(used),
            }
            if matches!(self.phase, Phase::Accepted(_) | Phase::Closing) {
                return Ok(used);
            }
        }
    }

    /// One PDU, but for the data of an H2CData. The bytes used; `None`: they are not all there, or have to
    /// wait.
    fn pdu(&mut self, bytes: &[u8], cx: &mut Context<'_, S, F>) -> Result<Option<usize>, Option<Fatal>> {
        let Some(first) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
        let head = Head::decode(first, Side::Controller, &self.terms)?;
        let header_len = head.header_len();
        let Some(header) = bytes.get(..header_len) else { return Ok(None) };
        let hlen = usize::from(head.kind.hlen());
        if let Some(received) = header[hlen..].first_chunk::<DIGEST>() {
            let received = u32::from_le_bytes(*received);
            if crc32c::crc32c(&header[..hlen]) != received {
                return Err(Some(Fatal::digest(received)));
            }
        }
        let span = head.data();
        match (Pdu::decode(&head, header)?, &self.phase) {
            (Pdu::Terminate(fatal), _) => {
                tracing::info!(peer = %self.peer, %fatal, "the host ended the connection");
                Err(None)
            }
            (Pdu::InitializeRequest(request), Phase::New) => {
                self.initialize(&request);
                Ok(Some(head.plen as usize))
            }
            (Pdu::Command(entry), Phase::Initialized | Phase::Serving) => {
                if span.len > ADMIN_IN_CAPSULE {
                    return Err(Some(Fatal::LIMIT_EXCEEDED));
                }
                let plen = head.plen as usize;
                let Some(pdu) = bytes.get(..plen) else { return Ok(None) };
                let (from, to) = (span.offset as usize, (span.offset + span.len) as usize);
                let data = pdu.get(from..to).unwrap_or(&[]);
                let trailer = pdu.get(to..).and_then(<[u8]>::first_chunk::<DIGEST>);
                let intact = match trailer {
                    Some(received) if span.digest => crc32c::crc32c(data) == u32::from_le_bytes(*received),
                    _ => true,
                };
                if cx.target.stopping.load(Ordering::Relaxed) {
                    // Not taken: its host learns of it by the end of the connection.
                    return Ok(Some(plen));
                }
                Ok(self.command(entry, data, intact, cx)?.then_some(plen))
            }
            (Pdu::Data(data), Phase::Serving) => {
                if bytes.len() < span.offset as usize {
                    return Ok(None);
                }
                self.host_data(&data, span.digest)?;
                Ok(Some(span.offset as usize))
            }
            _ => Err(Some(Fatal::SEQUENCE)),
        }
    }

    fn initialize(&mut self, request: &Initialize) {
        let (header_digest, data_digest) = (request.header_digest, request.data_digest);
        let response =
            Initialize { version: 0, alignment_z: 0, header_digest, data_digest, limit: MAX_H2C_DATA };
        self.output.bytes(&response.response());
        self.terms = Terms { header_digest, data_digest, alignment_z: 0 };
        self.answers = Terms { alignment_z: request.alignment_z, ..self.terms };
        self.phase = Phase::Initialized;
    }

    /// Answers a command.
    pub(crate) fn answer(&mut self, cid: u16, result: u64, status: Status, counters: &Counters) {
        counters.commands.fetch_add(1, Ordering::Relaxed);
        if !status.is_success() {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        let sq_head = self.queue.as_ref().map_or(0, |queue| queue.sq_head());
        let entry = CompletionEntry::new(result, sq_head, 0, cid, status, false);
        self.output.header(&pdu::response(&entry, &self.answers), self.answers.header_digest, 0);
    }

    /// A command capsule. False: its data have to wait for a staging buffer.
    fn command(
        &mut self,
        entry: SubmissionEntry,
        data: &[u8],
        intact: bool,
        cx: &mut Context<'_, S, F>,
    ) -> Result<bool, Fatal> {
        let counters = &cx.target.counters;
        let refuse = |connection: &mut Self, status: Status| {
            connection.answer(entry.cid(), 0, status, counters);
            Ok(true)
        };
        let inside = match self.place(&entry, data, intact, cx) {
            Ok(inside) => inside,
            Err(None) => return Ok(true),
            Err(Some(status)) => {
                if let Some(queue) = &mut self.queue {
                    queue.advance();
                }
                return refuse(self, status);
            }
        };
        let Some(queue) = &mut self.queue else { return refuse(self, Status::COMMAND_SEQUENCE_ERROR.dnr()) };
        let len = inside.as_ref().map_or(0, |inside| inside.len());
        let place = self.association.as_ref().map_or(0, |association| association.place);
        let buffer = match &inside {
            Some(CapsuleData::InCapsule { offset, len }) => {
                let Some(buffer) = cx.pool.take(place, *len as usize) else {
                    self.stalled = true;
                    return Ok(false);
                };
                let from = *offset as usize;
                let data = data.get(from..from + *len as usize).unwrap_or(&[]);
                cx.pool.region().write(buffer.offset, data);
                Some(buffer)
            }
            _ => None,
        };
        let ready = len == 0 || buffer.is_some();
        let queue_memory = self.association.as_ref().map(|a| a.queue_memory.clone());
        match queue.add(CommandSlot { entry, len, buffer, stage: CommandStage::Postponed }) {
            Ok(key) => {
                queue.advance();
                match queue_memory {
                    Some(queue_memory) if ready => queue.submit(key, &queue_memory, cx.pool.iova()),
                    _ => {
                        queue.postponed.push_back(key);
                        self.resume_postponed(cx);
                    }
                }
                Ok(true)
            }
            Err((Refused::SameIdentifier, slot)) => {
                if let Some(buffer) = slot.buffer {
                    cx.pool.give_back(buffer);
                }
                queue.advance();
                refuse(self, Status::COMMAND_ID_CONFLICT.dnr())
            }
            // More commands than the queue has entries: the host has lost count.
            Err((Refused::Full, slot)) => {
                if let Some(buffer) = slot.buffer {
                    cx.pool.give_back(buffer);
                }
                Err(Fatal::SEQUENCE)
            }
        }
    }

    /// Where a command's data are; `None` where it has none. An error is its answer; without a status, it was
    /// answered.
    fn place(
        &mut self,
        entry: &SubmissionEntry,
        data: &[u8],
        intact: bool,
        cx: &mut Context<'_, S, F>,
    ) -> Result<Option<CapsuleData>, Option<Status>> {
        if !intact {
            return Err(Some(Status::TRANSIENT_TRANSPORT_ERROR));
        }
        let place = CapsuleData::of(entry)?;
        if let CapsuleData::InCapsule { offset, len } = place
            && offset.checked_add(len.into()).is_none_or(|end| end > data.len() as u64)
        {
            return Err(Some(Status::INVALID_SGL_OFFSET.dnr()));
        }
        if entry.opcode() == opcode::FABRICS {
            let data = match place {
                CapsuleData::InCapsule { offset, len } => {
                    data.get(offset as usize..).and_then(|data| data.get(..len as usize)).unwrap_or(&[])
                }
                CapsuleData::Transport { .. } => &[],
            };
            self.fabrics(entry, data, cx);
            return Err(None);
        }
        let (Some(association), Some(queue)) = (&self.association, &self.queue) else {
            return Err(Some(Status::COMMAND_SEQUENCE_ERROR.dnr()));
        };
        if self.must_authenticate() {
            return Err(Some(status::AUTHENTICATION_REQUIRED.dnr()));
        }
        if !association.is_enabled() {
            return Err(Some(Status::COMMAND_SEQUENCE_ERROR));
        }
        let queues = [admin::CREATE_SQ, admin::CREATE_CQ, admin::DELETE_SQ, admin::DELETE_CQ];
        if queue.id == 0 && queues.contains(&entry.opcode()) {
            return Err(Some(Status::INVALID_OPCODE.dnr()));
        }
        match (entry.opcode() & 3, place) {
            (0, _) => Ok(None),
            (3, _) => Err(Some(Status::INVALID_OPCODE.dnr())),
            _ if place.is_empty() => Ok(None),
            _ if place.len() > association.max_transfer => Err(Some(Status::INVALID_FIELD.dnr())),
            (2, CapsuleData::InCapsule { .. }) => Err(Some(Status::INVALID_SGL_TYPE.dnr())),
            _ => Ok(Some(place)),
        }
    }

    /// Executes a Fabrics command; `data` came in its capsule.
    fn fabrics(&mut self, entry: &SubmissionEntry, data: &[u8], cx: &mut Context<'_, S, F>) {
        if let Some(queue) = &mut self.queue {
            queue.advance();
        }
        let must_authenticate = self.must_authenticate();
        let queue = self.queue.as_mut().filter(|queue| queue.id == 0);
        let admin = self.association.as_ref().zip(queue);
        let (status, result) = match (FabricsCommand::decode(entry), admin) {
            (Some(FabricsCommand::Connect(connect)), _) => {
                match self.connect(entry.cid(), &connect, data, cx.target) {
                    Ok(accepted) => {
                        self.phase = Phase::Accepted(Box::new(accepted));
                        return;
                    }
                    Err(refusal) => {
                        let (status, dw0, level) = refusal.told();
                        let name = status::name(status);
                        let field = status::parameter(dw0).filter(|_| name == INVALID);
                        if let Some(suppressed) = cx.target.may_report(field.unwrap_or(name), cx.now) {
                            let peer = self.peer;
                            event_at!(level, %peer, status = name, %refusal, suppressed, "Connect was refused");
                        }
                        (status, dw0.into())
                    }
                }
            }
            _ if !matches!(self.phase, Phase::Serving) => (Status::COMMAND_SEQUENCE_ERROR.dnr(), 0),
            (Some(FabricsCommand::AuthenticationSend(security)), _) => {
                return self.authentication_send(entry.cid(), security, data, cx);
            }
            (Some(FabricsCommand::AuthenticationReceive(security)), _) => {
                return self.authentication_receive(entry, security, cx);
            }
            _ if must_authenticate => (status::AUTHENTICATION_REQUIRED.dnr(), 0),
            (Some(FabricsCommand::PropertyGet(property)), Some((association, _))) => {
                answer(fabrics::property_get(association, &property))
            }
            (Some(FabricsCommand::PropertySet(property)), Some((_, queue))) => match &mut cx.local {
                Some(local) => answer(fabrics::property_set(queue, local, cx.pool, &property, cx.now)),
                None => (Status::INVALID_FIELD.dnr(), 0),
            },
            (Some(FabricsCommand::Disconnect { recfmt: 1.. }), _) => (status::INCOMPATIBLE_FORMAT.dnr(), 0),
            (Some(FabricsCommand::Disconnect { .. }), Some(_)) => (status::INVALID_QUEUE_TYPE.dnr(), 0),
            (Some(FabricsCommand::Disconnect { .. }), None) => {
                self.phase = Phase::Closing;
                (Status::SUCCESS, 0)
            }
            (
                Some(
                    FabricsCommand::PropertyGet(_)
                    | FabricsCommand::PropertySet(_)
                    | FabricsCommand::Unknown(_),
                )
                | None,
                _,
            ) => (Status::INVALID_FIELD.dnr(), 0),
        };
        self.answer(entry.cid(), result, status, &cx.target.counters);
    }

    /// Whether its host has to prove who it is before anything else is taken.
    fn must_authenticate(&self) -> bool {
        self.authentication.as_ref().is_some_and(|of| of.is_required)
    }

    fn authentication_send(&mut self, cid: u16, security: Security, data: &[u8], cx: &mut Context<'_, S, F>) {
        let (target, now, peer) = (cx.target, cx.now, self.peer);
        let both = self.authentication.as_mut().zip(self.association.as_ref());
        let said = both.ok_or(Status::INVALID_FIELD.dnr()).and_then(|(of, association)| {
            let credentials = || target.credentials(&association.nqn, &association.host_nqn);
            of.send(security, data, credentials, || target.may_begin(&peer, now), now)
        });
        self.answer(cid, 0, said.err().unwrap_or(Status::SUCCESS), &target.counters);
        self.tell(cx);
        if let Ok(Some(outcome)) = said {
            self.conclude(outcome, cx);
        }
    }

    fn authentication_receive(
        &mut self,
        entry: &SubmissionEntry,
        security: Security,
        cx: &mut Context<'_, S, F>,
    ) {
        let of = self.authentication.as_mut().ok_or(Status::INVALID_FIELD.dnr());
        match of.and_then(|of| of.receive(entry.cid(), security, CapsuleData::of(entry))) {
            Ok(()) => self.tell(cx),
            Err(status) => self.answer(entry.cid(), 0, status, &cx.target.counters),
        }
    }

    /// Tells the host what it waits for, where that is there.
    fn tell(&mut self, cx: &mut Context<'_, S, F>) {
        let Some(Message { cid, bytes, outcome }) = self.authentication.as_mut().and_then(|of| of.message())
        else {
            return;
        };
        let Some(bytes) = bytes else {
            return self.answer(cid, 0, Status::INVALID_FIELD.dnr(), &cx.target.counters);
        };
        let len = bytes.len() as u32;
        let header = DataHeader { cccid: cid, ttag: 0, offset: 0, len, last: true, success: false };
        let header = header.controller(&self.answers);
        let until = self.answers.data_offset(header.len() as u8).into();
        self.output.header(&header, self.answers.header_digest, until);
        self.output.bytes(&bytes);
        if self.answers.data_digest {
            self.output.bytes(&crc32c::crc32c(&bytes).to_le_bytes());
        }
        self.answer(cid, 0, Status::SUCCESS, &cx.target.counters);
        if let Some(outcome) = outcome {
            self.conclude(outcome, cx);
        }
    }

    /// An exchange has ended: its host may go on, or it loses the queue.
    fn conclude(&mut self, outcome: Outcome, cx: &mut Context<'_, S, F>) {
        let (Some(of), Some(association)) = (&mut self.authentication, &self.association) else { return };
        cx.target.tried(&self.peer, Some(outcome), cx.now);
        of.is_required = outcome != Outcome::Authenticated;
        let (host, peer) = (&association.host_nqn, self.peer);
        match outcome {
            Outcome::Authenticated => {
                association.authenticated.store(true, Ordering::Relaxed);
                let proved = cx.target.credentials(&association.nqn, host);
                if let Some((psk, proved)) = of.generated().zip(proved) {
                    cx.target.generated.keep(psk, proved, cx.now);
                }
                tracing::debug!(cntlid = association.cntlid, host, "authenticated");
            }
            Outcome::Failed(why) => {
                if let Some(suppressed) = cx.target.may_report(why.name(), cx.now) {
                    tracing::warn!(%peer, host, why = why.name(), suppressed, "a host was not authenticated");
                }
                self.phase = Phase::Closing;
            }
        }
    }

    /// Gives work of its authentication to whoever does it, once it may be begun.
    pub(crate) fn give_work(&mut self, to: &Sender<Job>, thread: usize, key: usize, cx: &Context<'_, S, F>) {
        let work = self.authentication.as_mut().and_then(|of| of.due_work(cx.target, cx.now));
        if let Some((number, wanted, work)) = work {
            let from = network(&self.peer);
            // Who does it is there for as long as threads are.
            let _ = to.send(Job { thread, key, number, from, wanted, work });
        }
    }

    /// Whether its host has just proved who it is, for the first time.
    pub(crate) fn has_proved(&mut self) -> bool {
        let is_known = self.authentication.as_ref().is_some_and(|of| !of.is_required);
        is_known && std::mem::take(&mut self.is_unidentified)
    }

    /// Such work was done. False: it is not this connection's any more.
    pub(crate) fn worked(&mut self, number: u64, done: Done, cx: &mut Context<'_, S, F>) -> bool {
        let is_wanted = self.authentication.as_mut().is_some_and(|of| of.worked(number, done));
        if is_wanted {
            self.tell(cx);
        }
        is_wanted
    }

    /// The connection ends: an exchange that was begun has failed.
    pub(crate) fn give_up(&mut self, target: &Target<S, F>, now: Nanos) {
        if self.authentication.take().is_some_and(|of| of.is_underway()) {
            target.tried(&self.peer, None, now);
        }
        self.give_up_handshake(target, now);
    }

    fn connect(
        &mut self,
        cid: u16,
        connect: &Connect,
        data: &[u8],
        target: &Target<S, F>,
    ) -> Result<Accepted<S, F>, Refusal> {
        if !matches!(self.phase, Phase::Initialized) {
            return Err(Refusal::Sequence);
        }
        let Self { peer, address, port, .. } = *self;
        let proved = self.encryption.proved();
        let from = Connecting { peer, address, port, proved, ticket: &mut self.ticket };
        fabrics::connect(from, cid, connect, data, target)
    }

    /// Gives staging buffers to commands that wait for them.
    pub(crate) fn resume_postponed(&mut self, cx: &mut Context<'_, S, F>) {
        let (Some(queue), Some(association)) = (&mut self.queue, &self.association) else { return };
        while let Some(&key) = queue.postponed.front() {
            let io = queue.id != 0;
            let backlog = self.output.waiting() + queue.reading;
            let Some(slot) = queue.slot(key) else {
                queue.postponed.pop_front();
                continue;
            };
            let len = slot.len as usize;
            if slot.is_to_controller() {
                let cccid = slot.entry.cid();
                let Some(buffer) = cx.pool.take_for_receive(association.place, len) else { return };
                queue.request_data(key, buffer, &cx.target.patience(), cx.now);
                let r2t = ReadyToTransfer { cccid, ttag: key, offset: 0, len: len as u32 };
                self.output.header(&r2t.encode(&self.answers), self.answers.header_digest, 0);
            } else {
                if backlog > MAX_BACKLOG {
                    return;
                }
                let Some(buffer) = cx.pool.take(association.place, len) else { return };
                // Another host's data may be in it: a read overwrites all of it, other commands perhaps less
                // than the host asked for.
                if !(io && slot.entry.opcode() == io_opcode::READ) {
                    cx.pool.region().fill(buffer.offset, len, 0);
                }
                slot.buffer = Some(buffer);
                queue.submit(key, &association.queue_memory, cx.pool.iova());
            }
            queue.postponed.pop_front();
        }
    }

    /// The header of an H2CData.
    fn host_data(&mut self, data: &DataHeader, has_digest: bool) -> Result<(), Fatal> {
        let Some(slot) = self.queue.as_mut().and_then(|queue| queue.slot(data.ttag)) else {
            return Err(Fatal::SEQUENCE);
        };
        let (CommandStage::Receiving { received, .. }, Some(buffer)) = (slot.stage, &slot.buffer) else {
            return Err(Fatal::SEQUENCE);
        };
        if slot.entry.cid() != data.cccid {
            return Err(Fatal::field(8));
        }
        if data.len > MAX_H2C_DATA {
            return Err(Fatal::LIMIT_EXCEEDED);
        }
        // In order, within what was asked for, and the last when it is.
        if data.offset != received || data.len == 0 || data.len > slot.len - received {
            return Err(Fatal::OUT_OF_RANGE);
        }
        if data.last != (received + data.len == slot.len) {
            return Err(Fatal::field(1));
        }
        self.expect = Expect::Data(Arriving {
            slot: data.ttag,
            at: buffer.offset + received as usize,
            left: data.len as usize,
            len: data.len,
            crc: has_digest.then_some(0),
        });
        Ok(())
    }

    /// So many bytes of an H2CData are at their place. All of them, and no digest to come: its slot, bytes
    /// and that they are intact.
    fn data_arrived(&mut self, n: usize, cx: &Context<'_, S, F>) -> Option<(u16, u32, bool)> {
        let Expect::Data(data) = &mut self.expect else { return None };
        if let Some(crc) = data.crc {
            let region = cx.pool.region();
            // Appended piece by piece, while the piece is in the cache.
            data.crc = Some(digest(region, data.at, n, crc));
        }
        data.at += n;
        data.left -= n;
        if data.left > 0 || data.crc.is_some() {
            return None;
        }
        let done = (data.slot, data.len, true);
        self.expect = Expect::Pdu;
        Some(done)
    }

    /// An H2CData is complete.
    fn data_complete(&mut self, (key, len, right): (u16, u32, bool), cx: &mut Context<'_, S, F>) {
        let (Some(queue), Some(association)) = (&mut self.queue, &self.association) else { return };
        let Some(slot) = queue.slot(key) else { return };
        let CommandStage::Receiving { received, intact, .. } = &mut slot.stage else { return };
        *received += len;
        *intact &= right;
        if *received < slot.len {
            return;
        }
        let intact = *intact;
        if let Some(buffer) = &slot.buffer {
            cx.pool.received(buffer);
        }
        queue.data_complete(key);
        if intact {
            queue.submit(key, &association.queue_memory, cx.pool.iova());
        } else if let Some(slot) = queue.remove(key) {
            if let Some(buffer) = slot.buffer {
                cx.pool.give_back(buffer);
            }
            let status = Status::TRANSIENT_TRANSPORT_ERROR;
            self.answer(slot.entry.cid(), 0, status, &cx.target.counters);
        }
    }

    /// Answers what the controller has completed. Returns how many commands.
    pub(crate) fn reap(&mut self, cx: &mut Context<'_, S, F>) -> usize {
        let Some(association) = self.association.clone() else { return 0 };
        let mut done = 0;
        while let Some((entry, slot)) =
            self.queue.as_mut().and_then(|queue| queue.reap(&association.queue_memory))
        {
            done += 1;
            self.complete(&entry, slot, cx);
        }
        if done > 0 {
            if let Some(queue) = &self.queue {
                queue.release(association.registers());
            }
            self.resume_postponed(cx);
        }
        done
    }

    fn complete(&mut self, entry: &CompletionEntry, slot: CommandSlot, cx: &mut Context<'_, S, F>) {
        let (cid, status) = (slot.entry.cid(), entry.status());
        let result = u64::from(entry.dw[0]) | u64::from(entry.dw[1]) << 32;
        let to_controller = slot.is_to_controller();
        let CommandSlot { entry: command, len, buffer, .. } = slot;
        let Some(buffer) = buffer else { return self.answer(cid, result, status, &cx.target.counters) };
        // A near-data reply is as long as the result says; all else as long as the host asked for.
        let io = self.queue.as_ref().is_some_and(|queue| queue.id != 0);
        let len = match command.opcode() {
            io_opcode::NEAR_DATA_RESULT if io => len.min(entry.dw[0]),
            _ => len,
        };
        if to_controller || !status.is_success() || len == 0 {
            cx.pool.give_back(buffer);
            return self.answer(cid, result, status, &cx.target.counters);
        }
        // No response capsule where the host counts nothing by it.
        let flow = self.queue.as_ref().is_none_or(|queue| queue.flow);
        let success = !flow && result == 0 && status.0 == 0;
        let header = DataHeader { cccid: cid, ttag: 0, offset: 0, len, last: true, success };
        let bytes = header.controller(&self.answers);
        let until = self.answers.data_offset(bytes.len() as u8).into();
        self.output.header(&bytes, self.answers.header_digest, until);
        let crc = self.answers.data_digest.then(|| digest(cx.pool.region(), buffer.offset, len as usize, 0));
        self.output.staged(buffer, len as usize);
        if let Some(crc) = crc {
            self.output.bytes(&crc.to_le_bytes());
        }
        if success {
            cx.target.counters.commands.fetch_add(1, Ordering::Relaxed);
        } else {
            self.answer(cid, result, status, &cx.target.counters);
        }
    }

    /// Sends what there is to send.
    fn write(&mut self, cx: &mut Context<'_, S, F>) -> Result<usize, End> {
        let sent = self.output.send(&mut self.channel, cx.pool).map_err(End::Io)?;
        let (patience, waiting) = (cx.target.patience(), self.output.waiting() as u64);
        match &mut self.pace {
            _ if waiting == 0 => self.pace = None,
            None => self.pace = Some(Pace::begin(&patience, cx.now, waiting)),
            Some(pace) => pace.moved(&patience, cx.now, sent as u64, waiting),
        }
        if sent > 0 {
            cx.target.counters.sent.fetch_add(sent as u64, Ordering::Relaxed);
        }
        if matches!(self.phase, Phase::Closing) {
            self.closing.get_or_insert(cx.now);
        }
        if matches!(self.phase, Phase::Closing) && self.output.is_empty() {
            // The peer hears the last of it, then that it is the end. A close at once could overtake what it
            // has not read.
            self.channel.finish();
        }
        Ok(sent)
    }

    /// Ends the connection with a termination request, after what is on its way.
    pub(crate) fn terminate(&mut self, fatal: Fatal, offending: &[u8]) {
        self.output.bytes(TerminateRequest::new(Side::Host, fatal, offending).bytes());
        self.phase = Phase::Closing;
    }
}

/// The status of a Connect with a field that is not valid; the log is told once in a while of each field.
const INVALID: &str = status::name(status::INVALID_PARAMETERS);

/// What a Fabrics command is answered: its status and DW0 and 1.
fn answer(result: Result<u64, Status>) -> (Status, u64) {
    match result {
        Ok(result) => (Status::SUCCESS, result),
        Err(status) => (status, 0),
    }
}
