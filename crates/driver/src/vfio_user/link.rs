//! The connection to a vfio-user server: calls and their answers, what the server asks, and its end.
//!
//! A thread of its own receives all that comes: it hands answers to who waits for them, serves the server's
//! own reads and writes of our memory, and sees the end of the connection, which it tells to whoever waits
//! for anything. It sleeps otherwise. One call is out at a time; a doorbell goes without an answer.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::{Memory, Vector};
use nearside_vfio_user::{
    Connection, DmaAccess, Kind, Limits, Message, ReceiveError, Reply, Request, WireError, send,
};

use crate::{Error, Failure};

/// The most data of one message that we take.
pub(super) const MAX_TRANSFER: u64 = 1 << 20;
/// More descriptors than we take.
const TOO_MANY: WireError = WireError::Value { field: "descriptors", value: 9 };
/// EINVAL, which a server's request that we do not serve is answered with.
const EINVAL: u32 = 22;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server closed it, or we did.
    Closed,
    /// What the server sent is no message.
    Broken(WireError),
    /// The server did not answer in time. It may still write to our memory.
    Silent,
}

/// What the calls and the thread share.
struct LinkShared {
    clock: Arc<dyn Clock>,
    timeout_ms: u64,
    socket: UnixStream,
    /// Held while a message is sent.
    sending: Mutex<()>,
    /// The next call's name; held while a call is out.
    calling: Mutex<u16>,
    state: Mutex<State>,
    changed: Condvar,
    memory: Arc<Memory>,
    /// How often queues have died together, which the end is one of.
    stops: Arc<AtomicU64>,
    /// Messages sent.
    sent: AtomicU64,
    /// Who may sleep on them is woken at the end.
    vectors: OnceLock<Arc<[Vector]>>,
}

#[derive(Default)]
struct State {
    answer: Option<Message>,
    end: Option<End>,
}

/// A connection. With it the socket is closed.
pub(super) struct Link {
    shared: Arc<LinkShared>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Over a connected socket. `memory` is what the server may reach, `stops` is counted up at the end.
    pub(super) fn new(
        socket: UnixStream,
        timeout_ms: u64,
        clock: Arc<dyn Clock>,
        memory: Arc<Memory>,
        stops: Arc<AtomicU64>,
    ) -> Result<Link, Error> {
        let system = |source| Error::System { what: "the connection's thread", source };
        let limits = Limits { message: MAX_TRANSFER as usize + 4096, descriptors: 8 };
        let connection = Connection::new(socket.try_clone().map_err(system)?, limits);
        let shared = Arc::new(LinkShared {
            clock,
            timeout_ms,
            socket,
            sending: Mutex::default(),
            calling: Mutex::new(1),
            state: Mutex::default(),
            changed: Condvar::new(),
            memory,
            stops,
            sent: AtomicU64::new(0),
            vectors: OnceLock::new(),
        });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("nearside-vfio".into())
            .spawn(move || of_thread.receive(connection))
            .map_err(system)?;
        Ok(Link { shared, thread: Some(thread) })
    }

    /// Who is woken at the end.
    pub(super) fn wake_at_end(&self, vectors: Arc<[Vector]>) {
        let _ = self.shared.vectors.set(vectors);
    }

    /// Sends a request and waits for its answer, which is no failure. `what` is for errors.
    pub(super) fn call(
        &self,
        what: &'static str,
        request: &Request<'_>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message, Error> {
        let shared = &self.shared;
        let mut next = lock(&shared.calling);
        let id = *next;
        *next = next.wrapping_add(1).max(1);
        let until = shared.clock.now() + shared.timeout_ms * 1_000_000;
        shared.send(id, Kind::Command { no_reply: false }, request, descriptors, until, what)?;
        let mut state = lock(&shared.state);
        loop {
            if let Some(answer) = state.answer.take() {
                let asked = answer.header.command == request.command() && answer.header.id == id;
                if !asked {
                    drop(state);
                    return Err(shared.fail(End::Broken(WireError::Direction), what));
                }
                return match answer.header.kind {
                    Kind::Reply { error: Some(errno) } => {
                        let why = std::io::Error::from_raw_os_error(errno.try_into().unwrap_or(0));
                        Err(Error::Refused { what, why: why.to_string(), again: false })
                    }
                    _ => Ok(answer),
                };
            }
            if let Some(end) = state.end {
                return Err(shared.error(end, what));
            }
            let left = until - shared.clock.now();
            if left.is_zero() {
                drop(state);
                return Err(shared.fail(End::Silent, what));
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a request that nobody answers. Where it cannot be sent, the connection is over.
    pub(super) fn tell(&self, request: &Request<'_>) {
        let shared = &self.shared;
        let until = shared.clock.now() + shared.timeout_ms * 1_000_000;
        let _ = shared.send(0, Kind::Command { no_reply: true }, request, &[], until, "a doorbell");
    }

    /// Messages sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// The server broke the protocol: the connection is over.
    pub(super) fn broken(&self, why: WireError) -> Error {
        self.shared.fail(End::Broken(why), "")
    }

    /// Why nothing is answered any more, where that is so.
    pub(super) fn check(&self) -> Result<(), Error> {
        lock(&self.shared.state).end.map_or(Ok(()), |end| Err(self.shared.error(end, "a message")))
    }

    /// How commands that are out end, where the connection is over.
    pub(super) fn failure(&self) -> Option<Failure> {
        lock(&self.shared.state).end.map(|end| match end {
            End::Silent => Failure::Unresponsive,
            End::Closed | End::Broken(_) => Failure::Lost,
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // What is closed already needs no end.
        let _ = self.shared.socket.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LinkShared {
    fn send(
        &self,
        id: u16,
        kind: Kind,
        body: &impl nearside_vfio_user::Body,
        descriptors: &[BorrowedFd<'_>],
        until: Nanos,
        what: &'static str,
    ) -> Result<(), Error> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let sent = {
            let _one = lock(&self.sending);
            send(&self.socket, id, kind, body, descriptors, || until - self.clock.now())
        };
        sent.map_err(|e| match e.kind() {
            std::io::ErrorKind::TimedOut => self.fail(End::Silent, what),
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
                self.fail(End::Closed, what)
            }
            _ => {
                self.fail(End::Closed, what);
                Error::Connection { what, source: e }
            }
        })
    }

    /// The end, unless there was one before; as an error.
    fn fail(&self, end: End, what: &'static str) -> Error {
        let mut state = lock(&self.state);
        let first = state.end.is_none();
        let end = *state.end.get_or_insert(end);
        drop(state);
        if first {
            // Release: whoever sees the count sees why.
            self.stops.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
            // The thread ends as well, and the server hears of it.
            let _ = self.socket.shutdown(std::net::Shutdown::Both);
            // The server has the eventfds too: one that it has raised wakes its sleeper by itself, and if
            // it is full nobody is to wait for it.
            for vector in self.vectors.get().into_iter().flat_map(|vectors| vectors.iter()) {
                if !vector.event().is_raised() {
                    vector.event().signal();
                }
            }
        }
        self.error(end, what)
    }

    fn error(&self, end: End, what: &'static str) -> Error {
        match end {
            End::Closed => Error::Closed,
            End::Broken(why) => Error::Wire(why),
            End::Silent => Error::TimedOut { command: what, timeout_ms: self.timeout_ms },
        }
    }

    fn receive(&self, mut connection: Connection) {
        let end = loop {
            // The end of the socket ends the wait.
            match connection.receive(|| Duration::from_secs(3600)) {
                Ok(None) => {}
                Ok(Some(message)) => match message.header.kind {
                    Kind::Reply { .. } => {
                        let mut state = lock(&self.state);
                        // Nobody has asked for a second one.
                        if state.answer.replace(message).is_some() {
                            break End::Broken(WireError::Direction);
                        }
                        self.changed.notify_all();
                    }
                    Kind::Command { no_reply } => self.serve(&message, no_reply),
                },
                Err(ReceiveError::Wire(why)) => break End::Broken(why),
                Err(ReceiveError::Descriptors) => break End::Broken(TOO_MANY),
                Err(ReceiveError::Closed | ReceiveError::Torn | ReceiveError::System(_)) => {
                    break End::Closed;
                }
            }
        };
        self.fail(end, "");
    }

    /// The server's own request: bytes of our memory. Others are refused.
    fn serve(&self, message: &Message, no_reply: bool) {
        let span = |access: DmaAccess| {
            let len = usize::try_from(access.count).ok().filter(|_| access.count <= MAX_TRANSFER)?;
            self.memory.resolve(access.address, len).ok()
        };
        let mut bytes = Vec::new();
        let reply = match message.request() {
            Ok(Request::DmaRead(access)) => span(access).map(|span| {
                bytes.resize(span.len(), 0);
                self.memory.read(span, &mut bytes);
                Reply::DmaRead(access, &bytes)
            }),
            Ok(Request::DmaWrite(access, data)) => span(access).map(|span| {
                self.memory.write(span, data);
                Reply::DmaWrite(access)
            }),
            _ => None,
        };
        if no_reply {
            return;
        }
        let until = self.clock.now() + self.timeout_ms * 1_000_000;
        let id = message.header.id;
        // Where it cannot be sent, the connection is over.
        let _ = match &reply {
            Some(reply) => self.send(id, Kind::Reply { error: None }, reply, &[], until, "an answer"),
            None => {
                let kind = Kind::Reply { error: Some(EINVAL) };
                self.send(id, kind, &message.header.command, &[], until, "an answer")
            }
        };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
