//! The socket by which other processes ask the attached drive: near-data requests and block reads in frames (see `nearside_spec::socket`),
//! each passed to the drive as a command.
//!
//! One thread per connection, at most [`MAX_CONNECTIONS`]; one request of a connection at a time. Who may ask what follows from who
//! connected, as the kernel knows it: root and the drive's own user anything; everybody else near-data work by path, under their
//! own user and groups only. A frame that is none is answered with Invalid Field and ends its connection.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_dma::system::{self, Peer};
use nearside_spec::Status;
use nearside_spec::near_data::wire::decode_request;
use nearside_spec::near_data::{MAX_BUFFER, MAX_REQUEST, Target};
use nearside_spec::socket::{Hello, Kind, REQUEST_FRAME, ReplyFrame, RequestFrame};

use crate::host::{Host, HostError};

/// Whom a socket serves, with what rights.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who connected, as the kernel knows it.
    pub peer: Peer,
    /// Whether it may read blocks and ask in anybody's name: root and the drive's own user.
    pub trusted: bool,
}

/// Connections at a time; more are closed at once.
pub const MAX_CONNECTIONS: usize = 64;
/// Of these, connections of one user other than root and the drive's own: nobody keeps the others out.
pub const MAX_OF_ONE_USER: usize = 16;

/// A socket that is being served. Dropping it closes it and removes its file.
pub(crate) struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    host: Arc<Host>,
    owner: u32,
    ends: AtomicBool,
    open: Mutex<Vec<Connection>>,
}

struct Connection {
    id: usize,
    uid: u32,
    stream: UnixStream,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn trusts(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner
    }

    /// Enters a connection, where there is room for it.
    fn enter(&self, id: usize, uid: u32, stream: &UnixStream) -> io::Result<bool> {
        let mut open = self.open();
        let own = open.iter().filter(|c| c.uid == uid).count();
        if open.len() >= MAX_CONNECTIONS || (!self.trusts(uid) && own >= MAX_OF_ONE_USER) {
            return Ok(false);
        }
        open.push(Connection { id, uid, stream: stream.try_clone()? });
        Ok(true)
    }

    fn leave(&self, id: usize) {
        self.open().retain(|c| c.id != id);
    }
}

impl Server {
    /// Binds `path`, which everybody may connect to: what they may ask is decided by who they are. A socket file that nobody
    /// serves any more is replaced.
    pub(crate) fn bind(path: &Path, host: Arc<Host>) -> io::Result<Server> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("socket {}: {e}", path.display()));
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    return Err(named(io::Error::new(io::ErrorKind::AddrInUse, "another drive serves it")));
                }
                let is_socket = std::fs::symlink_metadata(path)
                    .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_socket(&m.file_type()));
                if !is_socket {
                    return Err(named(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "it exists and is no socket",
                    )));
                }
                std::fs::remove_file(path).map_err(named)?;
                UnixListener::bind(path).map_err(named)?
            }
            other => other.map_err(named)?,
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(named)?;
        let owner = system::effective_ids().0;
        let shared =
            Arc::new(Shared { host, owner, ends: AtomicBool::new(false), open: Mutex::new(Vec::new()) });
        let accepting = std::thread::Builder::new().name("socket".into()).spawn({
            let shared = shared.clone();
            move || accept(&listener, &shared)
        })?;
        Ok(Server { path: path.to_owned(), shared, accepting: Some(accepting) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. Where that fails it holds nothing but the host, which outlives its use.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            let _ = accepting.join();
        }
        for connection in self.shared.open().drain(..) {
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for (id, stream) in listener.incoming().enumerate() {
        if shared.ends.load(Ordering::SeqCst) {
            return;
        }
        let stream = match stream {
            Ok(stream) => stream,
            // Out of descriptors, say: the caller may try again.
            Err(e) => {
                eprintln!("nearside: socket: {e}");
                continue;
            }
        };
        let peer = system::peer(&stream);
        let entered = peer.and_then(|peer| Ok(shared.enter(id, peer.uid, &stream)?.then_some(peer)));
        let spawned = match entered {
            Ok(None) => continue,
            Ok(Some(peer)) => std::thread::Builder::new().name("socket-peer".into()).spawn({
                let shared = shared.clone();
                move || {
                    let caller = Caller { trusted: shared.trusts(peer.uid), peer };
                    if let Err(e) = serve(&stream, &caller, &shared.host)
                        && e.kind() != io::ErrorKind::UnexpectedEof
                    {
                        eprintln!("nearside: socket: {e}");
                    }
                    shared.leave(id);
                }
            }),
            Err(e) => Err(e),
        };
        if let Err(e) = spawned {
            eprintln!("nearside: socket: {e}");
            shared.leave(id);
        }
    }
}

/// One connection, to its end: the peer's (`UnexpectedEof`), or that of a frame that is none.
pub fn serve(mut stream: impl Read + Write, caller: &Caller, host: &Host) -> io::Result<()> {
    let mut head = [0; REQUEST_FRAME];
    let mut request = Vec::new();
    loop {
        stream.read_exact(&mut head)?;
        let frame = RequestFrame::decode(&head).filter(|f| f.len as usize <= MAX_REQUEST);
        let Some(frame) = frame else {
            return answer(&mut stream, Status::INVALID_FIELD.dnr(), &[]);
        };
        request.resize(frame.len as usize, 0);
        stream.read_exact(&mut request)?;
        match execute(host, caller, &frame, &request) {
            Ok(reply) => answer(&mut stream, Status::SUCCESS, &reply)?,
            Err(status) => answer(&mut stream, status, &[])?,
        }
    }
}

fn answer(stream: &mut impl Write, status: Status, reply: &[u8]) -> io::Result<()> {
    let head = ReplyFrame { status: status.0, len: u32::try_from(reply.len()).unwrap_or(u32::MAX) };
    stream.write_all(&head.encode())?;
    stream.write_all(reply)
}

fn execute(host: &Host, caller: &Caller, frame: &RequestFrame, request: &[u8]) -> Result<Vec<u8>, Status> {
    let refused = Status::INVALID_FIELD.dnr();
    let trusted = caller.trusted;
    let room = frame.room as usize;
    if room > MAX_BUFFER || (frame.kind != Kind::NearData && !request.is_empty()) {
        return Err(refused);
    }
    match frame.kind {
        Kind::Hello => {
            let hello = Hello { capacity: host.capacity(), block_size: host.info().block_size };
            Ok(hello.encode().to_vec())
        }
        Kind::Read => {
            let aligned =
                (frame.offset | u64::from(frame.room)).is_multiple_of(u64::from(host.info().block_size));
            if !trusted || !aligned {
                return Err(refused);
            }
            let mut bytes = vec![0; room];
            host.read(frame.offset, &mut bytes).map_err(|e| status(&e))?;
            Ok(bytes)
        }
        Kind::NearData => {
            if !trusted && !may_ask(&caller.peer, request) {
                return Err(refused);
            }
            host.near_data(request, room).map_err(|e| status(&e))
        }
    }
}

/// Whether a caller without privilege asks in its own name, by path. (A list of blocks would pass all permissions by.) A request that
/// does not decode names nobody.
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
        error => error.status().unwrap_or(Status::INTERNAL_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_spec::near_data::wire::encode_request;
    use nearside_spec::near_data::{Credentials, Operation, Request};

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
