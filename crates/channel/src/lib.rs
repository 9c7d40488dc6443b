#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use nearside_auth::Psk;

/// The first byte of a connection that begins with a handshake: a record of that type (RFC 8446, 5.1). No
/// PDU of NVMe/TCP begins so.
pub const HANDSHAKE: u8 = 22;
/// Bytes of one record.
pub const RECORD: usize = 16 << 10;

/// What finds a PSK by its identity.
pub type Find = Arc<dyn Fn(&str) -> Option<Psk> + Send + Sync>;

/// Who encrypts connections. Its sockets never wait.
pub trait Encrypt: Send + Sync {
    /// The host's end of one, which offers a PSK.
    ///
    /// # Errors
    /// [`TlsError`].
    fn connect(&self, socket: Arc<TcpStream>, psk: Psk) -> Result<Box<dyn Encrypted>, TlsError>;

    /// The controller's end of one.
    ///
    /// # Errors
    /// [`TlsError`].
    fn accept(&self, socket: Arc<TcpStream>, find: Find) -> Result<Box<dyn Encrypted>, TlsError>;
}

/// An encrypted connection: at most a record (16 KiB) is read at once, or written where the kernel does not
/// encrypt. Until its handshake is through, nothing else is asked of it.
pub trait Encrypted: Read + Write + Send {
    /// Goes on with the handshake as far as what came leads; whether it is through.
    ///
    /// # Errors
    /// It will not be: [`TlsError`].
    fn handshake(&mut self) -> Result<bool, TlsError>;

    /// The identity of the PSK.
    fn identity(&self) -> Option<&str>;

    /// Whether bytes are here that the socket has no more of.
    fn has_more(&self) -> bool;

    /// Says farewell, where the socket takes it.
    fn finish(&mut self);

    /// Whether the kernel encrypts what is written to the socket.
    fn is_of_kernel(&self) -> bool {
        false
    }

    /// Whether the kernel has still to send, or to send again, what it has taken: a close may lose it.
    fn is_sending(&self) -> bool {
        false
    }
}

/// One that encrypts, to hand on.
#[derive(Clone)]
pub struct Tls(Arc<dyn Encrypt>);

impl Tls {
    /// By `encrypt`.
    pub fn new(encrypt: impl Encrypt + 'static) -> Tls {
        Tls(Arc::new(encrypt))
    }
}

/// Clones are equal.
impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Why there is no encrypted connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer is gone.
    #[error("the other end closed the connection during the TLS handshake")]
    Closed,
    /// A host that has no PSK.
    #[error("it offers no pre-shared key")]
    NotOffered,
    /// A host whose PSK is unknown.
    #[error("there is no key of its pre-shared key's identity {0:?}")]
    Unknown(String),
    /// A controller that has another key for this host, or none.
    #[error("the other end does not take the key: it has another, or none, for {0:?}")]
    NotKnown(String),
    /// The peer took something else for the proof.
    #[error("the pre-shared key was not taken for the proof")]
    NotTaken,
    /// OpenSSL's words.
    #[error("the TLS handshake failed: {0}")]
    Failed(String),
    /// The system's.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connection: as it goes over the network, or encrypted. Its socket never waits.
pub struct Channel {
    socket: Arc<TcpStream>,
    tls: Option<Box<dyn Encrypted>>,
}

impl Channel {
    /// One that is not encrypted.
    pub fn plain(socket: TcpStream) -> Channel {
        Channel { socket: Arc::new(socket), tls: None }
    }

    /// Begins a handshake as the host, with a PSK.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn connect(&mut self, tls: &Tls, psk: Psk) -> Result<(), TlsError> {
        self.tls = Some(tls.0.connect(self.socket.clone(), psk)?);
        Ok(())
    }

    /// Begins a handshake as the controller, which finds PSKs by their identities.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn accept(&mut self, tls: &Tls, find: &Find) -> Result<(), TlsError> {
        self.tls = Some(tls.0.accept(self.socket.clone(), find.clone())?);
        Ok(())
    }

    /// Goes on with the handshake as far as what came leads; whether it is through. Until then nothing is
    /// read and nothing written.
    ///
    /// # Errors
    /// It will not be: [`TlsError`].
    pub fn handshake(&mut self) -> Result<bool, TlsError> {
        self.tls.as_mut().map_or(Ok(true), |tls| tls.handshake())
    }

    /// The identity of the PSK, where it is encrypted.
    pub fn identity(&self) -> Option<&str> {
        self.tls.as_ref()?.identity()
    }

    /// Its socket: to wait for, and to end it.
    #[inline]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether it is encrypted.
    #[inline]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether what is written to the socket itself goes over the network as it should: it is not encrypted,
    /// or the kernel does that.
    #[inline]
    pub fn is_socket(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_of_kernel())
    }

    /// Whether a close may lose what was written.
    pub fn is_sending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_sending())
    }

    /// Whether bytes are here that the socket has no more of.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_more())
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.finish();
            // What the kernel has taken and not encrypted yet would be lost: the farewell is the end.
            if tls.is_of_kernel() {
                return;
            }
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl Read for Channel {
    #[inline]
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&*self.socket).read(to),
            Some(tls) => tls.read(to),
        }
    }

    #[inline]
    fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&*self.socket).read_vectored(to),
            Some(tls) => tls.read_vectored(to),
        }
    }
}

impl Write for Channel {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&*self.socket).write(bytes),
            Some(tls) => tls.write(bytes),
        }
    }

    #[inline]
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&*self.socket).write_vectored(pieces),
            Some(tls) => tls.write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("socket", &self.socket)
            .field("encrypted", &self.is_encrypted())
            .finish()
    }
}
