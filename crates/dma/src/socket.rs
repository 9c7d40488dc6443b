//! Sending and receiving on a connected socket straight from and into a [`Region`], several pieces by one
//! call, which never waits; and for plain bytes with a bound for all waits together ([`Timed`]).

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::Region;

/// Bytes to send.
#[derive(Clone, Copy, Debug)]
pub enum SendPiece<'a> {
    /// Of ours.
    Bytes(&'a [u8]),
    /// Of a region: where, and how many.
    Region(&'a Region, usize, usize),
}

/// Most pieces that one call sends.
pub const MAX_PIECES: usize = 128;

/// Sends pieces in order ([`MAX_PIECES`] of them at most; what is more is not looked at). Returns the bytes
/// that the socket took, and those that it was given. Panics
/// where a piece lies outside its region.
///
/// # Errors
/// `WouldBlock` where the socket has no room; else the system's.
pub fn send<'a>(
    socket: impl AsFd,
    pieces: impl Iterator<Item = SendPiece<'a>>,
) -> io::Result<(usize, usize)> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_PIECES];
    let (mut count, mut given) = (0, 0);
    for (vector, piece) in vectors.iter_mut().zip(pieces) {
        let piece = match piece {
            SendPiece::Bytes(bytes) => {
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            }
            SendPiece::Region(region, offset, len) => {
                libc::iovec { iov_base: region.pointer(offset, len).cast(), iov_len: len }
            }
        };
        given += piece.iov_len;
        count += 1;
        vector.write(piece);
    }
    // SAFETY: an all-zero msghdr is a valid value: no address, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr().cast();
    message.msg_iovlen = count as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `count` vectors that were written and name memory which lives through the call; the kernel only
    // reads it, and bytes of a region that change meanwhile are sent old or new.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok((sent as usize, given)) }
}

/// Receives into `len` bytes of a region at `offset`, and what is more into `rest`. Returns the bytes
/// received; 0: the other side has ended. Panics outside the
/// region.
///
/// # Errors
/// `WouldBlock` where there is nothing; else the system's.
pub fn receive(
    socket: impl AsFd,
    region: &Region,
    offset: usize,
    len: usize,
    rest: &mut [u8],
) -> io::Result<usize> {
    let mut vectors = [
        libc::iovec { iov_base: region.pointer(offset, len).cast(), iov_len: len },
        libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
    ];
    // SAFETY: as in `send`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = 2;
    // SAFETY: both vectors name writable memory that lives through the call: the region's, to which no
    // reference exists, and `rest`, which is borrowed for us alone.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}

/// Sleeps until one of `flags`, an error or the other side's end shows, or the time is over. What shows.
fn shows(socket: &impl AsFd, flags: PollFlags, timeout: Duration) -> io::Result<PollFlags> {
    let mut fds = [PollFd::new(socket, flags)];
    // A time that no timespec holds is over when all is over.
    let time = Timespec::try_from(timeout).ok();
    match poll(&mut fds, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents()),
        Err(e) => Err(e.into()),
    }
}

/// Sleeps until there is something to receive, or the other side has ended, or the time is over; whether it
/// is not. May come back earlier.
///
/// # Errors
/// The system's, of poll(2).
pub fn wait_for_bytes(socket: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    Ok(!shows(socket, PollFlags::IN, timeout)?.is_empty())
}

/// Sleeps until there is room to send, or the other side has ended, or the time is over; as
/// [`wait_for_bytes`].
///
/// # Errors
/// The system's, of poll(2).
pub fn wait_for_room(socket: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    Ok(!shows(socket, PollFlags::OUT, timeout)?.is_empty())
}

/// Whether the other side has gone: it neither sends nor receives any more. One that has only ended its own
/// sending still waits for an answer.
pub fn has_gone(socket: &impl AsFd) -> bool {
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    shows(socket, PollFlags::empty(), Duration::ZERO).is_ok_and(|shows| shows.intersects(gone))
}

/// A connected socket whose reads and writes wait for the other side only while there is time: `left` says
/// how much. Then [`io::ErrorKind::TimedOut`]. So who sends or takes a byte now and then does not hold its
/// server for ever.
#[derive(Debug)]
pub struct Timed<'a, S, L> {
    /// The socket.
    pub socket: &'a S,
    /// What time is left.
    pub left: L,
}

impl<S: AsFd, L: FnMut() -> Duration> Timed<'_, S, L> {
    fn wait(&mut self, flags: PollFlags) -> io::Result<()> {
        let left = (self.left)();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        shows(self.socket, flags, left).map(drop)
    }
}

impl<S: AsFd, L: FnMut() -> Duration> Read for Timed<'_, S, L> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(self.socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((got, _)) => return Ok(got),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl<S: AsFd, L: FnMut() -> Duration> Write for Timed<'_, S, L> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pieces_arrive_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let region = Region::anonymous(8192).unwrap();
        region.write(100, b"region");
        let pieces = [SendPiece::Bytes(b"ab"), SendPiece::Region(&region, 100, 6), SendPiece::Bytes(b"c")];
        assert_eq!(send(&a, pieces.into_iter()).unwrap(), (9, 9));
        let mut rest = [0; 16];
        assert_eq!(receive(&b, &region, 4000, 5, &mut rest).unwrap(), 9);
        let mut first = [0; 5];
        region.read(4000, &mut first);
        assert_eq!((&first, &rest[..4]), (b"abreg", &b"ionc"[..]));
        assert_eq!(receive(&b, &region, 0, 5, &mut rest).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(receive(&b, &region, 0, 5, &mut rest).unwrap(), 0);
    }

    /// Time as a count of looks: each takes one of what is left.
    fn looks(mut left: u32) -> impl FnMut() -> Duration {
        move || {
            left = left.saturating_sub(1);
            Duration::from_millis(left.into())
        }
    }

    #[test]
    fn a_peer_that_neither_sends_nor_takes_has_its_time() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut timed = Timed { socket: &b, left: looks(3) };
        a.write_all(b"half").unwrap();
        let mut whole = [0; 8];
        let error = timed.read_exact(&mut whole).unwrap_err();
        assert_eq!((error.kind(), &whole[..4]), (io::ErrorKind::TimedOut, &b"half"[..]));
        // Never read.
        timed.left = looks(3);
        let error = timed.write_all(&vec![7; 16 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn who_has_gone_is_told_from_who_only_listens() {
        let (a, b) = UnixStream::pair().unwrap();
        assert!(!has_gone(&b) && !wait_for_bytes(&b, Duration::ZERO).unwrap());
        a.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!has_gone(&b) && wait_for_bytes(&b, Duration::ZERO).unwrap());
        drop(a);
        assert!(has_gone(&b));
    }
}
