//! A connection's bytes: what waits to be sent, what was received and not yet understood.
//! The socket is nonblocking.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nearside_auth::Psk;
use nearside_channel::{Channel, Tls, TlsError};
use nearside_clock::Clock;
use nearside_dma::wait_readable;

/// Bytes of the inbox: many small PDUs by one call of the system.
const INBOX: usize = 128 << 10;
/// Data of at least so many bytes that have not come are read straight into the command's buffer.
const DIRECT: usize = 16 << 10;
/// Pieces that one call of the system sends.
const VECTORS: usize = 64;

/// A piece of what is to be sent.
#[derive(Debug)]
enum SendPiece {
    /// Bytes of `small`.
    Small { from: usize, to: usize },
    /// Bytes of the buffer of the command in that slot.
    Data { slot: usize, from: usize, to: usize },
}

/// The buffers of commands, by slot.
pub(super) trait Buffers {
    /// A slot's.
    fn data(&self, slot: usize) -> &[u8];
    /// So many more bytes of it were sent.
    fn sent(&mut self, slot: usize, bytes: usize);
}

/// None: for what is sent before there are commands.
impl Buffers for () {
    fn data(&self, _slot: usize) -> &[u8] {
        &[]
    }
    fn sent(&mut self, _slot: usize, _bytes: usize) {}
}

/// A connection's bytes in both directions.
#[derive(Debug)]
pub(super) struct Stream {
    channel: Channel,
    small: Vec<u8>,
    pieces: VecDeque<SendPiece>,
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    /// Calls of the system that read or wrote.
    pub(super) calls: u64,
}

/// `None` where the call has to be made again.
fn unless_would_block<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Stream {
    /// The first of the addresses that answers in time.
    pub(super) fn connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<Stream> {
        let mut failed = io::ErrorKind::AddrNotAvailable.into();
        for address in addresses {
            match TcpStream::connect_timeout(address, timeout) {
                Ok(socket) => return Stream::over(socket),
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    fn over(socket: TcpStream) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        Stream::of(socket)
    }

    /// Over a socket as it is, but that it never waits.
    pub(super) fn of(socket: TcpStream) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        Ok(Stream {
            channel: Channel::plain(socket),
            small: Vec::new(),
            pieces: VecDeque::new(),
            inbox: vec![0; INBOX].into_boxed_slice(),
            start: 0,
            end: 0,
            calls: 0,
        })
    }

    /// Encrypts it, before anything else is sent: a handshake by a PSK.
    pub(super) fn encrypt(
        &mut self,
        tls: &Tls,
        psk: Psk,
        timeout: Duration,
        clock: &dyn Clock,
    ) -> Result<(), TlsError> {
        let until = clock.now() + timeout.as_nanos() as u64;
        self.channel.connect(tls, psk)?;
        while !self.channel.handshake()? {
            let now = clock.now();
            if now >= until {
                return Err(TlsError::Io(io::ErrorKind::TimedOut.into()));
            }
            wait_readable(self.channel.socket().as_fd(), false, Some(until - now));
        }
        Ok(())
    }

    /// The socket, once more: to end the connection while somebody waits for it.
    pub(super) fn socket(&self) -> io::Result<TcpStream> {
        self.channel.socket().try_clone()
    }

    /// Queues bytes that are copied.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let from = self.small.len();
        self.small.extend_from_slice(bytes);
        let end = self.small.len();
        match self.pieces.back_mut() {
            Some(SendPiece::Small { to, .. }) if *to == from => *to = end,
            _ => self.pieces.push_back(SendPiece::Small { from, to: end }),
        }
    }

    /// Queues bytes of a command's buffer, which stays where it is until they are sent.
    pub(super) fn put_data(&mut self, slot: usize, from: usize, to: usize) {
        self.pieces.push_back(SendPiece::Data { slot, from, to });
    }

    /// Whether something waits to be sent.
    pub(super) fn is_sending(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, buffers: &mut impl Buffers) -> io::Result<()> {
        while !self.pieces.is_empty() {
            self.calls += 1;
            let wrote =
                if let (1, Some(&SendPiece::Small { from, to })) = (self.pieces.len(), self.pieces.front()) {
                    self.channel.write(self.small.get(from..to).unwrap_or(&[]))
                } else {
                    let mut slices = [IoSlice::new(&[]); VECTORS];
                    let mut used = 0;
                    for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                        let bytes = match *piece {
                            SendPiece::Small { from, to } => self.small.get(from..to),
                            SendPiece::Data { slot, from, to } => buffers.data(slot).get(from..to),
                        };
                        *slice = IoSlice::new(bytes.unwrap_or(&[]));
                        used += 1;
                    }
                    self.channel.write_vectored(&slices[..used])
                };
            let Some(mut wrote) = unless_would_block(wrote)? else { return Ok(()) };
            if wrote == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while wrote > 0
                && let Some(piece) = self.pieces.front_mut()
            {
                let (from, to) = match piece {
                    SendPiece::Small { from, to } | SendPiece::Data { from, to, .. } => (from, *to),
                };
                let part = wrote.min(to - *from);
                *from += part;
                wrote -= part;
                let whole = *from == to;
                if let SendPiece::Data { slot, .. } = *piece {
                    buffers.sent(slot, part);
                }
                if whole {
                    self.pieces.pop_front();
                }
            }
        }
        self.small.clear();
        Ok(())
    }

    /// What was received and not yet taken.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.inbox.get(self.start..self.end).unwrap_or(&[])
    }

    /// Takes that many bytes of them, at most all.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads what is there. Where nothing is left in the inbox and `wanted` is long, into that first: how
    /// many bytes of it came. The second value is whether more may be there.
    pub(super) fn receive(&mut self, wanted: &mut [u8]) -> io::Result<(usize, bool)> {
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let direct = if self.end == 0 && wanted.len() >= DIRECT { wanted.len() } else { 0 };
        let room = self.inbox.get_mut(self.end..).unwrap_or(&mut []);
        let most = direct + room.len();
        self.calls += 1;
        let got = if direct > 0 {
            self.channel.read_vectored(&mut [IoSliceMut::new(wanted), IoSliceMut::new(room)])
        } else {
            self.channel.read(room)
        };
        match unless_would_block(got)? {
            None => Ok((0, false)),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(got) => {
                let beyond = got.saturating_sub(direct);
                self.end += beyond;
                // Encrypted, a record came; the next may be there.
                Ok((got.min(direct), got == most || self.channel.is_encrypted()))
            }
        }
    }

    /// Sleeps until something came (or may be sent, where something waits to be), or the time is over.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        if !self.channel.has_more() {
            wait_readable(self.channel.socket().as_fd(), self.is_sending(), timeout);
        }
    }

    /// Says farewell: nothing more will be sent.
    pub(super) fn finish(&mut self) {
        self.pieces.clear();
        self.channel.finish();
    }
}
