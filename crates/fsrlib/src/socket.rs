//! The way to a drive that another process serves (`nearside attach`): a unix socket.
//!
//! One request frame and its bytes, one reply frame and its bytes (`nearside_spec::socket` has
//! the form). A server lets connections go that say nothing for long where others want to
//! come: the next request then connects anew.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nearside_near_data::{Failure, MAX_BUFFER};
use nearside_spec::Status;
use nearside_spec::log::NearDataLog;
use nearside_spec::socket::{Hello, REPLY_FRAME, ReplyFrame, RequestFrame, RequestKind};

use crate::carrier::{LOOK_NS, Stop};
use crate::{Completion, Error, Transport};

/// What a drive's name begins with when it is a socket.
pub const PREFIX: &str = "unix:";

/// Block sizes that a drive may have.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 512..=64 * 1024;

/// Bytes of one block read.
const READ: usize = 128 * 1024;

/// A connection to an attached drive.
#[derive(Debug)]
pub struct SocketTransport {
    stream: UnixStream,
    name: String,
    /// Where it is connected to anew; none for a stream that came connected.
    path: Option<PathBuf>,
    hello: Hello,
    stop: Stop,
}

/// A request and its place.
#[derive(Clone, Copy)]
struct Asked<'a> {
    what: &'static str,
    kind: RequestKind,
    request: &'a [u8],
    room: usize,
    offset: u64,
}

/// Why there is no reply.
enum Ended {
    /// The connection had gone: nothing of a reply came.
    Gone(io::Error),
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Failed(error)
    }
}

impl SocketTransport {
    /// Connects to the socket at `path` (without the prefix).
    ///
    /// # Errors
    /// [`Error`]: nobody serves that socket, or no attached drive does.
    pub fn connect(path: &Path) -> Result<SocketTransport, Error> {
        let name = format!("{PREFIX}{}", path.display());
        let stream = UnixStream::connect(path).map_err(Error::io(name.clone()))?;
        Ok(SocketTransport { path: Some(path.to_owned()), ..SocketTransport::over(stream, name)? })
    }

    /// A drive at the other end of a stream that is connected already; `name` is for messages.
    ///
    /// # Errors
    /// [`Error`]: the other end is no attached drive.
    pub fn over(stream: UnixStream, name: String) -> Result<SocketTransport, Error> {
        let hello = Hello { capacity: 0, block_size: 512 };
        let mut transport = SocketTransport { stream, name, path: None, hello, stop: Stop::default() };
        transport.hello = transport.greet()?;
        // Reads are rounded to whole blocks: what a block is bounds what they take.
        let Hello { block_size, .. } = transport.hello;
        if !block_size.is_power_of_two() || !BLOCK_SIZES.contains(&block_size) {
            let reason = format!("the drive's greeting says blocks of {block_size} bytes");
            return Err(Error::Form { what: "reply", reason });
        }
        Ok(transport)
    }

    fn greet(&self) -> Result<Hello, Error> {
        let mut reply = Vec::new();
        let hello = Asked { what: "hello", kind: RequestKind::Hello, request: &[], room: 64, offset: 0 };
        self.once(hello, &mut reply).map_err(|ended| self.error(ended))?;
        let reason = "the drive's greeting is too short";
        Hello::decode(&reply).ok_or_else(|| Error::Form { what: "reply", reason: reason.into() })
    }

    fn error(&self, ended: Ended) -> Error {
        match ended {
            Ended::Gone(error) => Error::io(self.name.clone())(error),
            Ended::Failed(error) => error,
        }
    }

    /// A request that only reads: where the connection had gone, it is sent once more by a new one.
    fn exchange(&mut self, asked: Asked<'_>, reply: &mut Vec<u8>) -> Result<(), Error> {
        let gone = match self.once(asked, reply) {
            Ok(()) => return Ok(()),
            Err(_) if self.stop.is_set() => return Err(Error::Refused(Failure::Cancelled)),
            Err(gone @ Ended::Gone(_)) => gone,
            Err(Ended::Failed(error)) => return Err(error),
        };
        let Some(stream) = self.path.as_ref().and_then(|path| UnixStream::connect(path).ok()) else {
            return Err(self.error(gone));
        };
        self.stream = stream;
        self.look_now_and_then();
        if self.greet()? != self.hello {
            let reason = format!("{} is another drive than it was", self.name);
            return Err(Error::Form { what: "reply", reason });
        }
        self.once(asked, reply).map_err(|ended| self.error(ended))
    }

    /// Reads wake up for [`Stop`], where there may be one.
    fn look_now_and_then(&self) {
        let look = self.stop.is_possible().then_some(Duration::from_nanos(LOOK_NS));
        // Of a time that is not none the system refuses nothing.
        let _set = self.stream.set_read_timeout(look);
    }

    /// As `read_exact`. Where it is given up the connection ends: the server sees that, and ends the work.
    fn fill(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match (&self.stream).read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => into = &mut into[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.stop.is_possible() => {
                    if self.stop.is_set() {
                        let _ended = self.stream.shutdown(Shutdown::Both);
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn once(&self, asked: Asked<'_>, reply: &mut Vec<u8>) -> Result<(), Ended> {
        let Asked { what, kind, request, room, offset } = asked;
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let frame = RequestFrame { kind, len: word(request.len()), room: word(room), offset };
        let mut bytes = frame.encode().to_vec();
        bytes.extend_from_slice(request);
        let ended = |error: io::Error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                Ended::Gone(error)
            }
            _ => Ended::Failed(Error::io(self.name.clone())(error)),
        };
        (&self.stream).write_all(&bytes).map_err(ended)?;
        let mut head = [0; REPLY_FRAME];
        self.fill(&mut head[..1]).map_err(ended)?;
        let io = |error| Error::io(self.name.clone())(error);
        self.fill(&mut head[1..]).map_err(io)?;
        let form = |reason: String| Error::Form { what: "reply", reason };
        let head = ReplyFrame::decode(&head).ok_or_else(|| form(format!("{} is no drive", self.name)))?;
        let len = head.len as usize;
        if len > room {
            return Err(form(format!("{len} bytes where at most {room} were asked for")).into());
        }
        reply.resize(len, 0);
        self.fill(reply).map_err(io)?;
        let status = Status(head.status);
        if status.is_success() { Ok(()) } else { Err(Error::Nvme { what, status }.into()) }
    }
}

impl Transport for SocketTransport {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        let (what, room) = ("a near-data command", capacity.min(MAX_BUFFER));
        self.exchange(Asked { what, kind: RequestKind::NearData, request, room, offset: 0 }, reply)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let mut commands = 0;
        let mut bytes = Vec::new();
        for (i, piece) in into.chunks_mut(READ).enumerate() {
            let at = offset + (i * READ) as u64;
            let what = "a read";
            let asked = Asked { what, kind: RequestKind::Read, request: &[], room: piece.len(), offset: at };
            self.exchange(asked, &mut bytes)?;
            if bytes.len() != piece.len() {
                let reason = format!("{} bytes of {} at byte {at}", bytes.len(), piece.len());
                return Err(Error::Form { what: "reply", reason });
            }
            piece.copy_from_slice(&bytes);
            commands += 1;
        }
        Ok(commands)
    }

    fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Stop(Some(stop));
        self.look_now_and_then();
    }

    fn capacity(&self) -> u64 {
        self.hello.capacity
    }

    fn block_size(&self) -> u32 {
        self.hello.block_size
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        let (what, kind, room) = ("get log page", RequestKind::Statistics, NearDataLog::SIZE);
        let mut page = Vec::new();
        match self.exchange(Asked { what, kind, request: &[], room, offset: 0 }, &mut page) {
            Ok(()) => Ok(NearDataLog::of(&page)),
            // Of those who may not ask, and by servers that know no such request.
            Err(Error::Nvme { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn completion(&self) -> Completion {
        Completion {
            model: "socket".into(),
            read_4k_ns: None,
            detail: "the process that serves the drive completes the commands; this one sleeps on the socket"
                .into(),
            spinning_ns: 0,
        }
    }
}
