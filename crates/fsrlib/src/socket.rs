//! The way to a drive that another process serves (`nearside attach`): a unix socket.
//!
//! One request frame and its bytes, one reply frame and its bytes (`nearside_spec::socket` has the form).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nearside_spec::Status;
use nearside_spec::near_data::MAX_BUFFER;
use nearside_spec::socket::{Hello, Kind, REPLY_FRAME, ReplyFrame, RequestFrame};

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
    hello: Hello,
}

impl SocketTransport {
    /// Connects to the socket at `path` (without the prefix).
    pub fn connect(path: &Path) -> Result<SocketTransport, Error> {
        let name = format!("{PREFIX}{}", path.display());
        let stream = UnixStream::connect(path).map_err(Error::io(name.clone()))?;
        SocketTransport::over(stream, name)
    }

    /// A drive at the other end of a stream that is connected already; `name` is for messages.
    pub fn over(stream: UnixStream, name: String) -> Result<SocketTransport, Error> {
        let hello = Hello { capacity: 0, block_size: 512 };
        let mut transport = SocketTransport { stream, name, hello };
        let mut reply = Vec::new();
        transport.exchange("hello", Kind::Hello, &[], 64, 0, &mut reply)?;
        transport.hello = Hello::decode(&reply).ok_or_else(|| Error::Form {
            what: "reply",
            reason: "the drive's greeting is too short".into(),
        })?;
        // Reads are rounded to whole blocks: what a block is bounds what they take.
        let Hello { block_size, .. } = transport.hello;
        if !block_size.is_power_of_two() || !BLOCK_SIZES.contains(&block_size) {
            let reason = format!("the drive's greeting says blocks of {block_size} bytes");
            return Err(Error::Form { what: "reply", reason });
        }
        Ok(transport)
    }

    fn exchange(
        &mut self,
        what: &'static str,
        kind: Kind,
        request: &[u8],
        room: usize,
        offset: u64,
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let io = |error| Error::io(self.name.clone())(error);
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let frame = RequestFrame { kind, len: word(request.len()), room: word(room), offset };
        let mut bytes = frame.encode().to_vec();
        bytes.extend_from_slice(request);
        (&self.stream).write_all(&bytes).map_err(io)?;
        let mut head = [0; REPLY_FRAME];
        (&self.stream).read_exact(&mut head).map_err(io)?;
        let form = |reason: String| Error::Form { what: "reply", reason };
        let head = ReplyFrame::decode(&head).ok_or_else(|| form(format!("{} is no drive", self.name)))?;
        let len = head.len as usize;
        if len > room {
            return Err(form(format!("{len} bytes where at most {room} were asked for")));
        }
        reply.resize(len, 0);
        (&self.stream).read_exact(reply).map_err(io)?;
        let status = Status(head.status);
        if status.is_success() { Ok(()) } else { Err(Error::Nvme { what, status }) }
    }
}

impl Transport for SocketTransport {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        self.exchange("a near-data command", Kind::NearData, request, capacity.min(MAX_BUFFER), 0, reply)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let mut commands = 0;
        let mut bytes = Vec::new();
        for (i, piece) in into.chunks_mut(READ).enumerate() {
            let at = offset + (i * READ) as u64;
            self.exchange("a read", Kind::Read, &[], piece.len(), at, &mut bytes)?;
            if bytes.len() != piece.len() {
                let reason = format!("{} bytes of {} at byte {at}", bytes.len(), piece.len());
                return Err(Error::Form { what: "reply", reason });
            }
            piece.copy_from_slice(&bytes);
            commands += 1;
        }
        Ok(commands)
    }

    fn capacity(&self) -> u64 {
        self.hello.capacity
    }

    fn block_size(&self) -> u32 {
        self.hello.block_size
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
