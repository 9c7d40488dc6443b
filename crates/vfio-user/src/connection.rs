//! Whole messages with their descriptors over a Unix socket.
//!
//! A message is received in two steps, its header and what follows, each by as many calls as it takes. So
//! descriptors belong to the message in whose bytes they came: the kernel never joins bytes beyond those that
//! were asked for.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nearside_dma::socket::{wait_for_bytes, wait_for_room};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::bytes::{index, length};
use crate::{HEADER, Header, Kind, Reply, Request, WireError};

/// Most descriptors that Linux passes with one message (SCM_MAX_FD).
const SCM_MAX_FD: usize = 253;
/// Room for them, and for what the kernel puts before them.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(SCM_MAX_FD));
/// How much memory a message takes before that much has come.
const STEP: usize = 64 << 10;

/// What one message of a peer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, header included.
    pub message: usize,
    /// Descriptors.
    pub descriptors: usize,
}

impl Default for Limits {
    /// Data of 1 MiB, which is the protocol's own default, with what stands before them; eight descriptors.
    fn default() -> Limits {
        Limits { message: (1 << 20) + 4096, descriptors: 8 }
    }
}

/// A message as it came.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// The descriptors that came with it; they are closed with it, where nobody takes them.
    pub descriptors: Vec<OwnedFd>,
}

impl Message {
    /// What the command asks for.
    ///
    /// # Errors
    /// It is a reply; as [`Request::decode`].
    pub fn request(&self) -> Result<Request<'_>, WireError> {
        match self.header.kind {
            Kind::Command { .. } => Request::decode(self.header.command, &self.payload),
            Kind::Reply { .. } => Err(WireError::Direction),
        }
    }

    /// What the reply says, which is no failure.
    ///
    /// # Errors
    /// It is a command, or says a failure; as [`Reply::decode`].
    pub fn reply(&self) -> Result<Reply<'_>, WireError> {
        match self.header.kind {
            Kind::Reply { error: None } => Reply::decode(self.header.command, &self.payload),
            _ => Err(WireError::Direction),
        }
    }
}

/// What follows a header.
pub trait Body {
    /// Its command's number.
    fn number(&self) -> u16;
    /// Appends its bytes.
    fn append(&self, into: &mut Vec<u8>);
}

impl Body for Request<'_> {
    fn number(&self) -> u16 {
        self.command()
    }
    fn append(&self, into: &mut Vec<u8>) {
        self.encode(into);
    }
}

impl Body for Reply<'_> {
    fn number(&self) -> u16 {
        self.command()
    }
    fn append(&self, into: &mut Vec<u8>) {
        self.encode(into);
    }
}

/// A command's number alone: the body of a reply that says a failure.
impl Body for u16 {
    fn number(&self) -> u16 {
        *self
    }
    fn append(&self, _: &mut Vec<u8>) {}
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The peer has ended the connection between two messages.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer has ended the connection within a message.
    #[error("the peer has closed the connection within a message")]
    Torn,
    /// What came is no message. The connection is of no use any more: nobody knows where the next one begins.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// More descriptors came than are taken, or some were lost since this process had no room for them.
    #[error("more descriptors than are taken")]
    Descriptors,
    /// The system's.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// One end of a connection. What has come of a message stays until the rest is there, so that a receiver may
/// come back to it. Who sends from another thread than receives has the socket twice, and [`send`].
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    limits: Limits,
    header: Option<Header>,
    /// Bytes of the header, then of what follows it, `have` of which have come.
    bytes: Vec<u8>,
    have: usize,
    descriptors: Vec<OwnedFd>,
}

impl Connection {
    /// Over a connected socket. It never waits but in the time that a caller gives.
    pub fn new(socket: UnixStream, limits: Limits) -> Connection {
        Connection { socket, limits, header: None, bytes: Vec::new(), have: 0, descriptors: Vec::new() }
    }

    /// What messages of the peer may have from now on: after both have agreed.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The socket itself: to wait on it, to shut it down, to send from another thread.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Whether a part of a message has come, and not all of it.
    pub fn is_within_a_message(&self) -> bool {
        self.header.is_some() || self.have > 0
    }

    /// Receives a message; `None` where none has come whole when `left` says that no time is left. What has
    /// come is kept. (With no time at all it is one look.)
    ///
    /// # Errors
    /// The connection is over or of no use any more, and what had come of a message is gone.
    pub fn receive(&mut self, mut left: impl FnMut() -> Duration) -> Result<Option<Message>, ReceiveError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                if !self.fill(HEADER, &mut left)? {
                    return Ok(None);
                }
                let bytes = self.bytes.first_chunk().ok_or(ReceiveError::Torn)?;
                let header = Header::decode(bytes, self.limits.message)?;
                self.bytes.clear();
                self.have = 0;
                *self.header.insert(header)
            }
        };
        if !self.fill(index(header.size).saturating_sub(HEADER), &mut left)? {
            return Ok(None);
        }
        self.header = None;
        self.have = 0;
        Ok(Some(Message {
            header,
            payload: std::mem::take(&mut self.bytes),
            descriptors: std::mem::take(&mut self.descriptors),
        }))
    }

    /// Receives until `wanted` bytes are there; whether they are.
    fn fill(&mut self, wanted: usize, left: &mut impl FnMut() -> Duration) -> Result<bool, ReceiveError> {
        while self.have < wanted {
            self.bytes.resize(wanted.min(self.have.saturating_add(STEP)), 0);
            match self.take() {
                Ok(0) if self.is_within_a_message() => return Err(ReceiveError::Torn),
                Ok(0) => return Err(ReceiveError::Closed),
                Ok(got) => self.have = self.have.saturating_add(got),
                Err(ReceiveError::System(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    let left = left();
                    if left.is_zero() {
                        return Ok(false);
                    }
                    wait_for_bytes(&self.socket, left)?;
                }
                Err(ReceiveError::System(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// One call: bytes after those that are there, and the descriptors that come with them.
    fn take(&mut self) -> Result<usize, ReceiveError> {
        let mut room = [MaybeUninit::uninit(); CONTROL];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let into = self.bytes.get_mut(self.have..).unwrap_or_default();
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(into)], &mut control, flags)
            .map_err(io::Error::from)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > self.limits.descriptors {
            self.descriptors.clear();
            return Err(ReceiveError::Descriptors);
        }
        Ok(got.bytes)
    }

    /// Sends a message. `body` is what is asked, or answered; of a failure, the command's number.
    ///
    /// # Errors
    /// As [`send`].
    pub fn send(
        &self,
        id: u16,
        kind: Kind,
        body: &impl Body,
        descriptors: &[BorrowedFd<'_>],
        left: impl FnMut() -> Duration,
    ) -> io::Result<()> {
        send(&self.socket, id, kind, body, descriptors, left)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a message over a socket, its descriptors with the first byte. One sender at a time: what two send
/// at once mixes.
///
/// # Errors
/// `TimedOut` where no time is left, `InvalidInput` for what no message holds; else the system's. After one
/// of them the peer may have a part of the message: the connection is of no use any more.
pub fn send(
    socket: &UnixStream,
    id: u16,
    kind: Kind,
    body: &impl Body,
    descriptors: &[BorrowedFd<'_>],
    mut left: impl FnMut() -> Duration,
) -> io::Result<()> {
    let mut bytes = vec![0; HEADER];
    body.append(&mut bytes);
    let size = length(bytes.len());
    if size == u32::MAX || descriptors.len() > SCM_MAX_FD {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let header = Header { id, command: body.number(), size, kind };
    if let Some(place) = bytes.first_chunk_mut() {
        *place = header.encode();
    }
    let mut rest = bytes.as_slice();
    let mut descriptors = descriptors;
    while !rest.is_empty() {
        let mut room = [MaybeUninit::uninit(); CONTROL];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(socket, &[IoSlice::new(rest)], &mut control, flags) {
            Ok(sent) => {
                rest = rest.get(sent..).unwrap_or_default();
                descriptors = &[];
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = left();
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                wait_for_room(socket, left)?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
