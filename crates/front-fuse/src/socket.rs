//! The socket by which other processes ask the attached drive: near-data requests and block reads in frames
//! (see `nearside_spec::socket`), each passed to the drive as a command.
//!
//! One thread per connection, so many as [`peers`](crate::peers) lets in; one request of a connection at a
//! time. Who may ask what follows from who connected, as the kernel knows it: root and the drive's own user
//! anything; everybody else near-data work by path, under their own user and groups only. A frame that is
//! none is answered with Invalid Field and ends its connection; so does a peer that takes longer than its
//! [`Limits`](crate::Limits) say. A peer that has gone waits for nothing: what the drive does for it is
//! aborted.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nearside_clock::{Clock, RateLimits, Suppressed, TscClock};
use nearside_dma::accept;
use nearside_dma::local::{self, Access};
use nearside_dma::system::{self, Peer};
use nearside_near_data::wire::decode_request;
use nearside_near_data::{MAX_BUFFER, MAX_REQUEST, Target};
use nearside_spec::Status;
use nearside_spec::socket::{Hello, REQUEST_FRAME, ReplyFrame, RequestFrame, RequestKind};

use crate::REPORT_EVERY_NS;
use crate::host::{Host, HostError};
use crate::line::{Connection, Limits, Line};
use crate::peers::Peers;
use crate::share::User;

/// Whom a socket serves, with what rights.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who connected, as the kernel knows it.
    pub peer: Peer,
    /// Whether it may read blocks and ask in anybody's name: root and the drive's own user.
    pub trusted: bool,
}

impl Caller {
    fn user(&self) -> User {
        User { uid: self.peer.uid, trusted: self.trusted }
    }
}

/// A socket that is being served. Dropping it closes it and removes its file.
pub struct Server {
    shared: Arc<ServerShared>,
    listener: Arc<UnixListener>,
    accepting: Option<std::thread::JoinHandle<()>>,
    name: local::Name,
}

struct ServerShared {
    host: Arc<Host>,
    owner: u32,
    limits: Limits,
    clock: TscClock,
    ends: AtomicBool,
    peers: Peers,
    /// What the log was told.
    reports: Mutex<RateLimits<Trouble>>,
}

/// What can be the matter with a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Refused,
    Failed,
    Broke,
}

impl ServerShared {
    /// Tells the log by `say`, with how many like it were not told since the last; not if that was just
    /// before.
    fn report(&self, trouble: Trouble, say: impl FnOnce(Suppressed)) {
        let mut reports = self.reports.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(suppressed) = reports.admit(trouble, self.clock.now()) {
            say(suppressed);
        }
    }
}

impl Server {
    /// Binds `path`, which everybody may connect to: what they may ask is decided by who they are. A socket
    /// file that nobody serves any more is replaced.
    ///
    /// # Errors
    /// Those of [`nearside_dma::local::bind`].
    pub fn bind(path: &Path, host: Arc<Host>, limits: Limits) -> io::Result<Server> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("socket {e}"));
        let (listener, name) = local::bind(path, Access::Everybody).map_err(named)?;
        let listener = Arc::new(listener);
        let owner = system::effective_ids().0;
        let (clock, ends, peers) = (TscClock::new(), AtomicBool::new(false), Peers::new());
        let reports = Mutex::new(RateLimits::new(REPORT_EVERY_NS));
        let shared = Arc::new(ServerShared { host, owner, limits, clock, ends, peers, reports });
        let accepting = std::thread::Builder::new().name("socket".into()).spawn({
            let (shared, listener) = (shared.clone(), listener.clone());
            move || accept(&listener, &shared)
        })?;
        Ok(Server { shared, listener, accepting: Some(accepting), name })
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.name.path().to_owned()
    }
}

/// Ends a connection, whoever is at work for it.
fn close(stream: UnixStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        accept::stop(&*self.listener);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.shared.peers.end(close);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<ServerShared>) {
    let mut id = 0;
    accept::accept_each(
        listener,
        || shared.ends.load(Ordering::SeqCst),
        |error| tracing::warn!(%error, "socket: those who connect have to wait"),
        std::thread::sleep,
        |stream| {
            id += 1;
            if let Err(error) = begin(id, stream, shared) {
                shared.report(Trouble::Failed, |suppressed| {
                    tracing::warn!(%error, suppressed, "socket: a connection cannot be served");
                });
                shared.peers.leave(id);
            }
        },
    );
}

/// Someone has connected.
fn begin(id: usize, stream: UnixStream, shared: &Arc<ServerShared>) -> io::Result<()> {
    let peer = system::peer(&stream)?;
    let trusted = peer.uid == 0 || peer.uid == shared.owner;
    let caller = Caller { peer, trusted };
    let Some(busy) = shared.peers.enter(id, caller.user(), stream.try_clone()?, close) else {
        shared.report(Trouble::Refused, |suppressed| {
            tracing::warn!(
                uid = caller.peer.uid,
                suppressed,
                "socket: a connection was refused: there are too many"
            );
        });
        return Ok(());
    };
    let shared = shared.clone();
    std::thread::Builder::new().name("socket-peer".into()).spawn(move || {
        let mut line = Connection {
            stream: &stream,
            clock: shared.clock,
            limits: shared.limits,
            trusted,
            busy: &busy,
            greeted: false,
            until: shared.clock.now(),
        };
        if let Err(error) = serve(&mut line, &caller, &shared.host)
            && !is_usual(&error)
        {
            shared.report(Trouble::Broke, |suppressed| {
                tracing::warn!(%error, suppressed, "socket: a connection broke");
            });
        }
        shared.peers.leave(id);
    })?;
    Ok(())
}

/// Whether a connection ended as connections do: the peer went, or had its time.
fn is_usual(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset | TimedOut)
}

/// Serves one connection to its end.
///
/// # Errors
/// `UnexpectedEof` where the peer ended it, else the line's own. A frame that is none is answered, and ends
/// it well.
pub fn serve(line: &mut impl Line, caller: &Caller, host: &Host) -> io::Result<()> {
    let mut head = [0; REQUEST_FRAME];
    let mut request = Vec::new();
    loop {
        line.await_request()?;
        line.read_exact(&mut head)?;
        let frame = RequestFrame::decode(&head).filter(|f| f.len as usize <= MAX_REQUEST);
        let Some(frame) = frame else {
            return answer(line, Status::INVALID_FIELD.dnr(), &[]);
        };
        request.resize(frame.len as usize, 0);
        line.read_exact(&mut request)?;
        match execute(host, caller, &frame, &request, || line.has_gone()) {
            Ok(reply) => answer(line, Status::SUCCESS, &reply)?,
            Err(status) => answer(line, status, &[])?,
        }
    }
}

fn answer(line: &mut impl Line, status: Status, reply: &[u8]) -> io::Result<()> {
    let head = ReplyFrame { status: status.0, len: u32::try_from(reply.len()).unwrap_or(u32::MAX) };
    line.begin_reply();
    line.write_all(&head.encode())?;
    line.write_all(reply)
}

fn execute(
    host: &Host,
    caller: &Caller,
    frame: &RequestFrame,
    request: &[u8],
    gone: impl Fn() -> bool,
) -> Result<Vec<u8>, Status> {
    let refused = Status::INVALID_FIELD.dnr();
    let trusted = caller.trusted;
    let room = frame.room as usize;
    if room > MAX_BUFFER || (frame.kind != RequestKind::NearData && !request.is_empty()) {
        return Err(refused);
    }
    match frame.kind {
        RequestKind::Hello => {
            let hello = Hello { capacity: host.capacity(), block_size: host.info().block_size };
            Ok(hello.encode().to_vec())
        }
        RequestKind::Read => {
            let aligned =
                (frame.offset | u64::from(frame.room)).is_multiple_of(u64::from(host.info().block_size));
            if !trusted || !aligned {
                return Err(refused);
            }
            let mut bytes = vec![0; room];
            host.read_for_another(frame.offset, &mut bytes).map_err(|e| status(&e))?;
            Ok(bytes)
        }
        RequestKind::Statistics => {
            if !trusted {
                return Err(refused);
            }
            let mut page = host.statistics(caller.user(), gone).map_err(|e| status(&e))?;
            page.truncate(room);
            Ok(page)
        }
        RequestKind::NearData => {
            if !trusted && !may_ask(&caller.peer, request) {
                return Err(refused);
            }
            host.near_data(caller.user(), request, room, gone).map_err(|e| status(&e))
        }
    }
}

/// Whether a caller without privilege asks in its own name, by path. (A list of blocks would pass all
/// permissions by.) A request that does not decode names nobody.
fn may_ask(peer: &Peer, request: &[u8]) -> bool {
    let Ok(request) = decode_request(request) else { return false };
    let Target::Blocks { .. } = request.target else {
        let asks = &request.credentials;
        let groups = |gid: &u32| *gid == peer.gid || peer.groups.contains(gid);
        return asks.uid == peer.uid && groups(&asks.gid) && asks.groups.iter().all(groups);
    };
    false
}

fn status(error: &HostError) -> Status {
    match error {
        HostError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE.dnr(),
        HostError::Gone => Status::ABORT_REQUESTED,
        error => error.status().unwrap_or(Status::INTERNAL_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_near_data::wire::encode_request;
    use nearside_near_data::{Credentials, Operation, Request};

    #[test]
    fn a_caller_without_privilege_asks_in_its_own_name() {
        let peer = Peer { uid: 1000, gid: 100, groups: vec![100, 27] };
        let asks = |uid, gid, groups: &[u32], target| {
            let credentials = Credentials { uid, gid, groups: groups.to_vec() };
            let operation = Operation::Stat;
            let request =
                Request { partition: 0, credentials, target, operation, follow: true, resume: None };
            may_ask(&peer, &encode_request(&request))
        };
        let path = || Target::Path(b"/etc/shadow".to_vec());
        assert!(asks(1000, 100, &[27, 100], path()));
        assert!(asks(1000, 27, &[], path()));
        assert!(!asks(0, 100, &[], path()));
        assert!(!asks(1001, 100, &[], path()));
        assert!(!asks(1000, 0, &[], path()));
        assert!(!asks(1000, 100, &[27, 0], path()));
        assert!(!asks(1000, 100, &[], Target::Blocks { size: 0, ranges: Vec::new() }));
        assert!(!may_ask(&peer, b"no request"));
    }
}
