//! What is sent after a handshake, encrypted by the kernel (Documentation/networking/tls.rst): the socket is
//! then written as any other. What is received stays OpenSSL's: of records without data, which may come
//! without an end, `recvmsg` would return from none, and before Linux 6.5 half a record wakes who polls. No
//! crate that is here wraps these calls.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use nearside_auth::{Hash, record_keys};
use zeroize::Zeroizing;

/// An alert (RFC 8446, 5.1 and 6).
const ALERT: u8 = 21;
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// The traffic secret of what a controller sends, as OpenSSL says it.
#[derive(Default)]
pub(crate) struct Secret(Mutex<Option<Zeroizing<Vec<u8>>>>);

impl Secret {
    /// From a line of NSS's key log.
    pub(crate) fn hear(&self, line: &str) {
        let mut words = line.split(' ');
        if words.next() != Some("SERVER_TRAFFIC_SECRET_0") {
            return;
        }
        let digits = words.nth(1).unwrap_or_default().as_bytes();
        let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
        // Its memory is its last from the beginning.
        let mut secret = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        let whole = digits.chunks(2).all(|pair| match pair {
            [high, low] => {
                digit(*high).zip(digit(*low)).map(|(high, low)| secret.push(high << 4 | low)).is_some()
            }
            _ => false,
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = whole.then_some(secret);
    }

    fn take(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn set(socket: &TcpStream, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and so many bytes are there.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn begin(socket: &TcpStream) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls\0")
}

/// Whether the kernel has TLS (CONFIG_TLS); as root it loads its module.
pub fn kernel_has_tls() -> bool {
    let tried = || {
        // Of a connection that stands, which it does while somebody listens.
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        begin(&TcpStream::connect(listener.local_addr()?)?)
    };
    tried().is_ok()
}

/// Has the kernel encrypt what a controller sends from now on, of a connection whose handshake is through, to
/// which nothing else was written. Where it does not, the socket is as it was.
pub(crate) fn take_over(socket: &TcpStream, hash: Hash, secret: &Secret) -> io::Result<()> {
    let secret = secret.take().ok_or(io::ErrorKind::InvalidData)?;
    let info = info(hash, &secret)?;
    begin(socket)?;
    set(socket, libc::SOL_TLS, libc::TLS_TX, &info)
}

/// What the kernel takes of a cipher (`tls12_crypto_info_aes_gcm_128` and `_256` of linux/tls.h): the version
/// and the cipher, then IV, key, salt and the first record's number, with nothing between them.
fn info(hash: Hash, secret: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    let [key, nonce] = record_keys(hash, secret);
    let (salt, iv) = nonce.split_at_checked(4).ok_or(io::ErrorKind::InvalidData)?;
    let is_long = hash == Hash::Sha384;
    let cipher: u16 = if is_long { libc::TLS_CIPHER_AES_GCM_256 } else { libc::TLS_CIPHER_AES_GCM_128 };
    let head = [libc::TLS_1_3_VERSION.to_ne_bytes(), cipher.to_ne_bytes()].concat();
    // Its memory is its last from the beginning.
    let mut info = Zeroizing::new(Vec::with_capacity(size_of::<libc::tls12_crypto_info_aes_gcm_256>()));
    for part in [&head[..], iv, &key[..], salt, &[0; 8]] {
        info.extend_from_slice(part);
    }
    Ok(info)
}

/// Whether a socket has sent what was not acknowledged yet, or has still to send it.
pub(crate) fn is_sending(socket: &Arc<TcpStream>) -> bool {
    let mut bytes: c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes one number.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    asked == 0 && bytes > 0
}

/// Room for one control message of a byte.
#[repr(C, align(8))]
struct Control([u8; 32]);

/// Says farewell, where the kernel takes it.
pub(crate) fn finish(socket: &TcpStream) -> io::Result<()> {
    let mut control = Control([0; 32]);
    let bytes = CLOSE_NOTIFY;
    let mut piece =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
    // SAFETY: all fields of the header may be zero; it leads to memory that is there; the control message
    // fits into `control`, of which it says how much it has; the bytes are only read.
    let sent = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast::<c_void>();
        header.msg_controllen = libc::CMSG_SPACE(1) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_TLS;
        (*message).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*message).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(message) = ALERT;
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_key_log() {
        let secret = Secret::default();
        for line in ["CLIENT_TRAFFIC_SECRET_0 00112233 0aFF", "EXPORTER_SECRET 00112233 bb", ""] {
            secret.hear(line);
        }
        assert!(secret.take().is_none());
        secret.hear("SERVER_TRAFFIC_SECRET_0 00112233 0aFF01");
        assert_eq!(&secret.take().unwrap()[..], [0x0a, 0xff, 1]);
        assert!(secret.take().is_none());
        for line in ["SERVER_TRAFFIC_SECRET_0 00 0", "SERVER_TRAFFIC_SECRET_0 00 zz"] {
            secret.hear(line);
            assert!(secret.take().is_none(), "{line}");
        }
    }

    /// Where the kernel has no TLS, the socket goes on as it was.
    #[test]
    fn a_socket_without_is_as_it_was() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (target, _) = listener.accept().unwrap();
        let secret = Secret::default();
        // No key of this length is known.
        assert!(take_over(&target, Hash::Sha256, &secret).is_err());
        (&target).write_all(b"plain").unwrap();
        drop(target);
        let mut got = String::new();
        (&host).read_to_string(&mut got).unwrap();
        assert_eq!(got, "plain");
    }

    /// As the kernel's header has it, in each of the two.
    #[test]
    fn what_the_kernel_takes_lies_where_it_looks() {
        use libc::{tls12_crypto_info_aes_gcm_128 as Short, tls12_crypto_info_aes_gcm_256 as Long};
        use std::mem::offset_of;
        let short = [offset_of!(Short, iv), offset_of!(Short, key), offset_of!(Short, salt)];
        let long = [offset_of!(Long, iv), offset_of!(Long, key), offset_of!(Long, salt)];
        for (hash, cipher, len, places, rec_seq) in [
            (Hash::Sha256, 51_u16, size_of::<Short>(), short, offset_of!(Short, rec_seq)),
            (Hash::Sha384, 52, size_of::<Long>(), long, offset_of!(Long, rec_seq)),
        ] {
            let secret = vec![7; hash.bytes()];
            let info = info(hash, &secret).unwrap();
            assert_eq!(info.len(), len);
            let [key, nonce] = record_keys(hash, &secret);
            assert_eq!(info[..4], [0x0304_u16.to_ne_bytes(), cipher.to_ne_bytes()].concat());
            for (at, part) in places.into_iter().zip([&nonce[4..], &key[..], &nonce[..4]]) {
                assert_eq!(&info[at..][..part.len()], part, "{hash:?}, {at}");
            }
            assert_eq!(info[rec_seq..], [0; 8]);
        }
    }

    /// Until the peer has read it, and its system has said so.
    #[test]
    fn what_a_peer_has_not_taken_is_still_being_sent() {
        use std::io::{ErrorKind, Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let target = Arc::new(listener.accept().unwrap().0);
        assert!(!is_sending(&target));
        target.set_nonblocking(true).unwrap();
        let (piece, mut sent) = (vec![0x5a; 64 << 10], 0);
        while !is_sending(&target) {
            // As much as both ends have room for.
            let stopped = loop {
                match (&*target).write(&piece) {
                    Ok(len) => sent += len,
                    Err(error) => break error.kind(),
                }
            };
            assert_eq!(stopped, ErrorKind::WouldBlock);
        }
        host.read_exact(&mut vec![0; sent]).unwrap();
        while is_sending(&target) {
            std::thread::yield_now();
        }
    }
}
