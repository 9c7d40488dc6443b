//! Sending and receiving on a connected socket straight from and into a [`Region`], several pieces by one call. Never waits.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use crate::Region;

/// Bytes to send.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Of ours.
    Bytes(&'a [u8]),
    /// Of a region: where, and how many.
    Region(&'a Region, usize, usize),
}

/// Most pieces that one call sends.
pub const MAX_PIECES: usize = 128;

/// Sends pieces in order ([`MAX_PIECES`] of them at most; what is more is not looked at). Returns the bytes that the socket took, and
/// those that it was given. [`io::ErrorKind::WouldBlock`]: it has no room. Panics where a piece lies outside its region.
pub fn send<'a>(socket: impl AsFd, pieces: impl Iterator<Item = Piece<'a>>) -> io::Result<(usize, usize)> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_PIECES];
    let (mut count, mut given) = (0, 0);
    for (vector, piece) in vectors.iter_mut().zip(pieces) {
        let piece = match piece {
            Piece::Bytes(bytes) => {
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            }
            Piece::Region(region, offset, len) => {
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
    // SAFETY: `count` vectors that were written and name memory which lives through the call; the kernel only reads it, and bytes of a region that change
    // meanwhile are sent old or new.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok((sent as usize, given)) }
}

/// Receives into `len` bytes of a region at `offset`, and what is more into `rest`. Returns the bytes received; 0: the other side
/// has ended. [`io::ErrorKind::WouldBlock`]: there is nothing. Panics outside the region.
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
    // SAFETY: both vectors name writable memory that lives through the call: the region's, to which no reference exists, and `rest`, which
    // is borrowed for us alone.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
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
        let pieces = [Piece::Bytes(b"ab"), Piece::Region(&region, 100, 6), Piece::Bytes(b"c")];
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
}
