//! A connection that the kernel encrypts once its handshake is through (Documentation/networking/tls.rst):
//! the socket is then written and read as any other. No crate that is here wraps these calls.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSliceMut};
use std::mem::size_of;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use nearside_auth::{Hash, record_keys};
use zeroize::Zeroizing;

/// Types of records (RFC 8446, 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// An alert's second byte (RFC 8446, 6).
const CLOSE_NOTIFY: u8 = 0;
/// Types of messages after a handshake (RFC 8446, 4).
const NEW_SESSION_TICKET: u8 = 4;
/// Most bytes of a message that has not come whole.
const MOST: usize = 64 << 10;

/// The traffic secrets of a connection, as OpenSSL says them: the host's and the controller's.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<[Option<Zeroizing<Vec<u8>>>; 2]>);

impl Secrets {
    /// From a line of NSS's key log.
    pub(crate) fn hear(&self, line: &str) {
        let mut words = line.split(' ');
        let of = match words.next() {
            Some("CLIENT_TRAFFIC_SECRET_0") => 0,
            Some("SERVER_TRAFFIC_SECRET_0") => 1,
            _ => return,
        };
        let digits = words.nth(1).unwrap_or_default().as_bytes();
        let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
        let bytes = digits.chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        });
        self.lock()[of] = bytes.collect::<Option<Vec<u8>>>().map(Zeroizing::new);
    }

    /// Those of both ends, taken away.
    fn take(&self) -> Option<[Zeroizing<Vec<u8>>; 2]> {
        let [host, controller] = std::mem::take(&mut *self.lock());
        Some([host?, controller?])
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<Zeroizing<Vec<u8>>>; 2]> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A socket whose records the kernel makes and reads.
#[derive(Debug)]
pub(crate) struct Kernel {
    socket: Arc<TcpStream>,
    /// What has come of a message that is no data.
    message: Vec<u8>,
    said_farewell: bool,
}

/// What the kernel takes of a cipher: the two of this crate.
#[repr(C)]
union Info {
    aes_128: libc::tls12_crypto_info_aes_gcm_128,
    aes_256: libc::tls12_crypto_info_aes_gcm_256,
}

fn set<T>(socket: &TcpStream, level: c_int, name: c_int, value: &T, len: usize) -> io::Result<()> {
    debug_assert!(len <= size_of::<T>());
    // SAFETY: the descriptor is open, and `len` bytes of `value` are there.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            len as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the kernel the keys of a direction, whose first record has the number 0.
fn give(socket: &TcpStream, direction: c_int, hash: Hash, secret: &[u8]) -> io::Result<()> {
    let [key, nonce] = record_keys(hash, secret);
    let info = |cipher_type| libc::tls_crypto_info { version: libc::TLS_1_3_VERSION, cipher_type };
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    let salt = nonce[..4].try_into().map_err(|_| short())?;
    let iv = nonce[4..].try_into().map_err(|_| short())?;
    let (mut info, len) = match hash {
        Hash::Sha384 => {
            let key = key[..].try_into().map_err(|_| short())?;
            let info = info(libc::TLS_CIPHER_AES_GCM_256);
            let aes_256 = libc::tls12_crypto_info_aes_gcm_256 { info, iv, key, salt, rec_seq: [0; 8] };
            (Info { aes_256 }, size_of::<libc::tls12_crypto_info_aes_gcm_256>())
        }
        _ => {
            let key = key[..].try_into().map_err(|_| short())?;
            let info = info(libc::TLS_CIPHER_AES_GCM_128);
            let aes_128 = libc::tls12_crypto_info_aes_gcm_128 { info, iv, key, salt, rec_seq: [0; 8] };
            (Info { aes_128 }, size_of::<libc::tls12_crypto_info_aes_gcm_128>())
        }
    };
    let given = set(socket, libc::SOL_TLS, direction, &info, len);
    // SAFETY: the key's copy here is overwritten; any bytes are an `Info`.
    unsafe { std::ptr::write_volatile(&raw mut info, std::mem::zeroed()) };
    given
}

impl Kernel {
    /// Has the kernel go on with a controller's connection whose handshake is through, of which no more was read
    /// or written than that. `Ok(None)`: it has no TLS, or not this one, and OpenSSL goes on.
    ///
    /// # Errors
    /// The kernel has taken one direction and not the other.
    pub(crate) fn take_over(
        socket: &Arc<TcpStream>,
        hash: Hash,
        secrets: &Secrets,
    ) -> io::Result<Option<Kernel>> {
        let Some([theirs, ours]) = secrets.take() else { return Ok(None) };
        const NAME: [u8; 4] = *b"tls\0";
        if set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, &NAME, NAME.len()).is_err()
            || give(socket, libc::TLS_RX, hash, &theirs).is_err()
        {
            return Ok(None);
        }
        give(socket, libc::TLS_TX, hash, &ours)?;
        Ok(Some(Kernel { socket: socket.clone(), message: Vec::new(), said_farewell: false }))
    }

    /// What came, across the pieces.
    pub(crate) fn read(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let (count, kind) = receive(&self.socket, to)?;
        if count == 0 || kind == DATA {
            return Ok(count);
        }
        let mut left = count;
        for piece in to.iter() {
            let some = left.min(piece.len());
            self.message.extend_from_slice(&piece[..some]);
            left -= some;
        }
        match kind {
            ALERT if self.message.len() < 2 => {}
            ALERT if self.message[1] == CLOSE_NOTIFY => return Ok(0),
            ALERT => return Err(invalid(&format!("the peer's alert {}", self.message[1]))),
            HANDSHAKE => self.hear()?,
            kind => return Err(invalid(&format!("a record of type {kind}"))),
        }
        // No data yet: whoever sends these without an end has no more of the thread than others.
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// What peers say after a handshake: sessions that one may go on with, which nobody does here.
    fn hear(&mut self) -> io::Result<()> {
        while let [kind, a, b, c, rest @ ..] = &self.message[..] {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            match *kind {
                NEW_SESSION_TICKET if len <= MOST => {}
                kind => {
                    return Err(invalid(&format!(
                        "a message of type {kind}, which this kernel's TLS has not"
                    )));
                }
            }
            if rest.len() < len {
                break;
            }
            self.message.drain(..4 + len);
        }
        Ok(())
    }

    /// Says farewell, once.
    pub(crate) fn finish(&mut self) {
        if !std::mem::replace(&mut self.said_farewell, true) {
            const WARNING: u8 = 1;
            let _ = send(&self.socket, ALERT, &[WARNING, CLOSE_NOTIFY]);
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {what}"))
}

/// Room for one control message of a byte.
#[repr(C, align(8))]
struct Control([u8; 32]);

/// Reads what a record has, or what several have that follow each other, and their type.
fn receive(socket: &TcpStream, to: &mut [IoSliceMut<'_>]) -> io::Result<(usize, u8)> {
    let mut control = Control([0; 32]);
    // SAFETY: all fields of the header may be zero.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    // The standard library says that these are as the system's.
    header.msg_iov = to.as_mut_ptr().cast::<libc::iovec>();
    header.msg_iovlen = to.len() as _;
    header.msg_control = (&raw mut control).cast::<c_void>();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the header leads to memory that is there, and that nobody else has.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has said in the header how much of `control` it has filled; the message is looked at
    // within that.
    let kind = unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        match message.as_ref() {
            Some(one) if (one.cmsg_level, one.cmsg_type) == (libc::SOL_TLS, libc::TLS_GET_RECORD_TYPE) => {
                *libc::CMSG_DATA(message)
            }
            _ => DATA,
        }
    };
    Ok((count as usize, kind))
}

/// Sends a record of a type.
fn send(socket: &TcpStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut control = Control([0; 32]);
    let mut piece =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
    // SAFETY: as above; the control message fits into `control`, of which it says how much it has; the bytes are
    // only read.
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
        *libc::CMSG_DATA(message) = kind;
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_key_log() {
        let secrets = Secrets::default();
        for line in [
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET 00 aa",
            "CLIENT_TRAFFIC_SECRET_0 00112233 0aFF",
            "EXPORTER_SECRET 00112233 bb",
        ] {
            secrets.hear(line);
        }
        assert!(secrets.take().is_none());
        secrets.hear("CLIENT_TRAFFIC_SECRET_0 00112233 0aFF");
        secrets.hear("SERVER_TRAFFIC_SECRET_0 00112233 01");
        let [host, controller] = secrets.take().unwrap();
        assert_eq!((&host[..], &controller[..]), (&[0x0a, 0xff][..], &[1][..]));
        assert!(secrets.take().is_none());
        for line in ["CLIENT_TRAFFIC_SECRET_0 00 0", "SERVER_TRAFFIC_SECRET_0 00 zz"] {
            secrets.hear(line);
        }
        assert!(secrets.take().is_none());
    }

    #[test]
    fn messages_after_a_handshake() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let heard = |parts: &[&[u8]]| {
            let mut kernel = Kernel { socket: socket.clone(), message: Vec::new(), said_farewell: true };
            for part in parts {
                kernel.message.extend_from_slice(part);
                if let Err(error) = kernel.hear() {
                    return Err(error.to_string());
                }
            }
            Ok(kernel.message.len())
        };
        // Tickets, whole, several at a time, in parts.
        assert_eq!(heard(&[&[4, 0, 0, 2, 1, 1]]), Ok(0));
        assert_eq!(heard(&[&[4, 0, 0, 1, 9, 4, 0, 0, 1, 9, 4]]), Ok(1));
        assert_eq!(heard(&[&[4, 0], &[0, 2, 1], &[1]]), Ok(0));
        // KeyUpdate; a ticket without an end.
        assert!(heard(&[&[24, 0, 0, 1, 0]]).unwrap_err().contains("type 24"));
        assert!(heard(&[&[4, 1, 0, 1]]).is_err());
    }
}
