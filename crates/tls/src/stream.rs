//! Both ends of a handshake, and the connection after it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use foreign_types::ForeignTypeRef;
use nearside_auth::{Hash, Psk};
use nearside_channel::{Encrypt, Encrypted, Find, RECORD, TlsError};
use openssl::error::ErrorStack;
use openssl::ssl::{
    ClientHelloResponse, Error, ErrorCode, ShutdownState, Ssl, SslContext, SslContextBuilder, SslMethod,
    SslMode, SslOptions, SslRef, SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};

use crate::kernel;
use crate::psk::{Held, find_by, held, hold, offer_by, offered};

/// TLS by OpenSSL.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenSsl {
    /// What a controller sends after a handshake the kernel encrypts, where it has TLS.
    pub kernel: bool,
}

/// A connection of either end.
#[derive(Debug)]
struct Stream {
    inner: SslStream<Socket>,
    is_host: bool,
    /// Pieces that go into one record.
    record: Vec<u8>,
}

/// The connection's own.
#[derive(Debug)]
struct Socket {
    socket: Arc<TcpStream>,
    /// The kernel encrypts what is written: OpenSSL's records would be encrypted once more.
    of_kernel: bool,
}

impl Read for Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&*self.socket).read(to)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.of_kernel {
            return Err(io::ErrorKind::Unsupported.into());
        }
        (&*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(errors: ErrorStack) -> TlsError {
    TlsError::Failed(said(&errors))
}

fn said(errors: &ErrorStack) -> String {
    let mut reasons = errors.errors().iter().filter_map(|error| error.reason());
    reasons.next_back().unwrap_or("OpenSSL does not say why").to_owned()
}

fn suite(hash: Hash) -> &'static str {
    if hash == Hash::Sha384 { "TLS_AES_256_GCM_SHA384" } else { "TLS_AES_128_GCM_SHA256" }
}

// SAFETY: as OpenSSL 1.1.1 and 3 declare it in `openssl/ssl.h`.
unsafe extern "C" {
    fn SSL_get_key_update_type(ssl: *const openssl_sys::SSL) -> std::ffi::c_int;
}

/// SSL_CTRL_CLEAR_MODE, which no crate has.
const CLEAR_MODE: std::ffi::c_int = 78;

fn context(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(method)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_ciphersuites("TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256")?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(SslOptions::NO_TICKET);
    // What costs a peer little must not cost much here: the long groups take tens of milliseconds.
    context.set_groups_list("X25519:P-256:P-384")?;
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    // A read returns after each record, also after one without data (KeyUpdate): a peer that sends these
    // without an end has no more of the thread than others.
    let auto_retry = SslMode::AUTO_RETRY.bits() as std::ffi::c_long;
    // SAFETY: the context is there, and the call clears bits of its mode.
    unsafe { openssl_sys::SSL_CTX_ctrl(context.as_ptr(), CLEAR_MODE, auto_retry, std::ptr::null_mut()) };
    context.set_keylog_callback(|ssl, line| {
        if let Some(secret) = held(ssl).and_then(|held| held.secret.as_ref()) {
            secret.hear(line);
        }
    });
    Ok(context)
}

impl Encrypt for OpenSsl {
    fn connect(&self, socket: Arc<TcpStream>, psk: Psk) -> Result<Box<dyn Encrypted>, TlsError> {
        crate::load().map_err(TlsError::Failed)?;
        Ok(Box::new(Stream::of_host(socket, psk).map_err(failed)?))
    }

    fn accept(&self, socket: Arc<TcpStream>, find: Find) -> Result<Box<dyn Encrypted>, TlsError> {
        crate::load().map_err(TlsError::Failed)?;
        Ok(Box::new(Stream::of_controller(socket, find, self.kernel).map_err(failed)?))
    }
}

/// The controller's, of all connections: it takes PSKs that they find.
fn of_controller() -> Result<&'static SslContext, ErrorStack> {
    static CONTEXT: OnceLock<SslContext> = OnceLock::new();
    if let Some(context) = CONTEXT.get() {
        return Ok(context);
    }
    let mut context = context(SslMethod::tls_server())?;
    context.set_num_tickets(0)?;
    context.set_client_hello_callback(|ssl, _alert| {
        // A second hello, which was asked for (RFC 8446, 4.1.4): the first has said whose.
        if held(ssl).is_some_and(|held| held.find.is_none()) {
            return Ok(ClientHelloResponse::SUCCESS);
        }
        let named = offered(ssl);
        let find = held(ssl).and_then(|held| held.find.clone());
        let psk = find.and_then(|find| named.iter().find_map(|identity| find(identity)));
        // The suite has to be the PSK's, and is chosen before it.
        if let Some(psk) = &psk {
            ssl.set_ciphersuites(suite(psk.hash))?;
        }
        let secret = held(ssl).and_then(|held| held.secret.clone());
        hold(ssl, Held { named: named.into_iter().next(), psk, find: None, secret })?;
        Ok(ClientHelloResponse::SUCCESS)
    });
    find_by(&mut context);
    Ok(CONTEXT.get_or_init(|| context.build()))
}

/// The host's, of all connections: whoever proves itself by a certificate is not taken.
fn of_host() -> Result<&'static SslContext, ErrorStack> {
    static CONTEXT: OnceLock<SslContext> = OnceLock::new();
    if let Some(context) = CONTEXT.get() {
        return Ok(context);
    }
    let mut context = context(SslMethod::tls_client())?;
    context.set_verify(SslVerifyMode::PEER);
    offer_by(&mut context);
    Ok(CONTEXT.get_or_init(|| context.build()))
}

impl Stream {
    fn of_host(socket: Arc<TcpStream>, psk: Psk) -> Result<Stream, ErrorStack> {
        let mut ssl = Ssl::new(of_host()?)?;
        ssl.set_ciphersuites(suite(psk.hash))?;
        hold(&mut ssl, Held { psk: Some(psk), ..Held::default() })?;
        ssl.set_connect_state();
        Stream::over(ssl, socket, true)
    }

    fn of_controller(socket: Arc<TcpStream>, find: Find, kernel: bool) -> Result<Stream, ErrorStack> {
        let mut ssl = Ssl::new(of_controller()?)?;
        let secret = kernel.then(Arc::default);
        hold(&mut ssl, Held { find: Some(find), secret, ..Held::default() })?;
        ssl.set_accept_state();
        Stream::over(ssl, socket, false)
    }

    fn over(ssl: Ssl, socket: Arc<TcpStream>, is_host: bool) -> Result<Stream, ErrorStack> {
        let inner = SslStream::new(ssl, Socket { socket, of_kernel: false })?;
        Ok(Stream { inner, is_host, record: Vec::new() })
    }

    /// Leaves what is sent from now on to the kernel, where that is wanted and it takes it.
    fn hand_over(&mut self) {
        let held = held(self.inner.ssl());
        if let Some(Held { psk: Some(psk), secret: Some(secret), .. }) = held {
            let taken = kernel::take_over(&self.inner.get_ref().socket, psk.hash, secret);
            self.inner.get_mut().of_kernel = taken.is_ok();
        }
    }

    /// A record's bytes, or the word that none is there.
    fn received(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = plain(self.inner.ssl_read(to));
        if self.is_of_kernel() && wants_other_keys(self.inner.ssl()) {
            let why = "TLS: the peer wants other keys (KeyUpdate), and the kernel has these";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        got
    }

    fn failed(&self, error: Error) -> TlsError {
        let held = held(self.inner.ssl());
        if let (true, Some(Held { psk: Some(psk), .. })) = (self.is_host, held)
            && error.ssl_error().is_some_and(is_about_the_key)
        {
            return TlsError::NotKnown(psk.identity.clone());
        }
        match (held.filter(|_| !self.is_host), error.ssl_error()) {
            (Some(Held { named: Some(named), psk: None, .. }), Some(_)) => TlsError::Unknown(named.clone()),
            (Some(Held { named: None, .. }), Some(_)) => TlsError::NotOffered,
            (_, Some(errors)) if !errors.errors().is_empty() => TlsError::Failed(said(errors)),
            _ => match error.into_io_error() {
                Ok(error) if error.kind() != io::ErrorKind::UnexpectedEof => TlsError::Io(error),
                _ => TlsError::Closed,
            },
        }
    }
}

impl Encrypted for Stream {
    fn handshake(&mut self) -> Result<bool, TlsError> {
        match self.inner.do_handshake() {
            // Each end has proved that it has the PSK, and nothing else did.
            Ok(()) if self.inner.ssl().session_reused() => {
                self.hand_over();
                Ok(true)
            }
            Ok(()) => Err(TlsError::NotTaken),
            Err(error) if is_waiting(&error) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn identity(&self) -> Option<&str> {
        held(self.inner.ssl())?.psk.as_ref().map(|psk| psk.identity.as_str())
    }

    fn has_more(&self) -> bool {
        self.inner.ssl().pending() > 0
    }

    fn is_of_kernel(&self) -> bool {
        self.inner.get_ref().of_kernel
    }

    fn is_sending(&self) -> bool {
        self.is_of_kernel() && kernel::is_sending(&self.inner.get_ref().socket)
    }

    fn finish(&mut self) {
        if self.is_of_kernel() {
            if !self.inner.get_shutdown().contains(ShutdownState::SENT)
                && kernel::finish(&self.inner.get_ref().socket).is_ok()
            {
                let state = self.inner.get_shutdown() | ShutdownState::SENT;
                self.inner.set_shutdown(state);
            }
            return;
        }
        // Said once: a second call would wait for the peer's own farewell, and read what comes before it.
        if !self.inner.get_shutdown().contains(ShutdownState::SENT) {
            let _ = self.inner.shutdown();
        }
    }
}

/// Whether a peer's KeyUpdate is to be answered by one (RFC 8446, 4.6.3).
fn wants_other_keys(ssl: &SslRef) -> bool {
    const SSL_KEY_UPDATE_NONE: std::ffi::c_int = -1;
    // SAFETY: the connection is there, and is only looked at.
    unsafe { SSL_get_key_update_type(ssl.as_ptr()) != SSL_KEY_UPDATE_NONE }
}

/// Whether an alert says that the PSK was not taken (RFC 8446, 6.2).
fn is_about_the_key(errors: &ErrorStack) -> bool {
    const SSL_AD_REASON_OFFSET: i32 = 1000;
    // handshake_failure, illegal_parameter, decrypt_error, unknown_psk_identity.
    const ALERTS: [i32; 4] = [40, 47, 51, 115];
    errors.errors().iter().any(|error| ALERTS.contains(&(error.reason_code() - SSL_AD_REASON_OFFSET)))
}

fn is_waiting(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)
}

/// As a socket that never waits says it.
fn plain(result: Result<usize, Error>) -> io::Result<usize> {
    let error = match result {
        Ok(moved) => return Ok(moved),
        Err(error) if is_waiting(&error) => return Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => error,
    };
    match (error.code(), error.ssl_error()) {
        (ErrorCode::ZERO_RETURN, _) => Ok(0),
        (_, Some(errors)) if !errors.errors().is_empty() => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {}", said(errors))))
        }
        // The peer closed its socket without a farewell.
        _ => error.into_io_error().map_or(Ok(0), |error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Ok(0),
            _ => Err(error),
        }),
    }
}

impl Read for Stream {
    /// At most a record.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        self.received(to)
    }

    /// What a record has, across the pieces.
    fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for piece in to.iter_mut().filter(|piece| !piece.is_empty()) {
            if total > 0 && !self.has_more() {
                break;
            }
            let got = self.read(piece)?;
            total += got;
            if got < piece.len() {
                break;
            }
        }
        Ok(total)
    }
}

impl Write for Stream {
    /// At most a record.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.is_of_kernel() {
            return (&*self.inner.get_ref().socket).write(bytes);
        }
        plain(self.inner.ssl_write(&bytes[..bytes.len().min(RECORD)]))
    }

    /// As many as go into one record.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [only] = pieces {
            return self.write(only);
        }
        if self.is_of_kernel() {
            return (&*self.inner.get_ref().socket).write_vectored(pieces);
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        for piece in pieces {
            let room = RECORD - record.len();
            record.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let wrote = self.write(&record);
        self.record = record;
        wrote
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::net::TcpListener;

    use super::*;

    // SAFETY: as OpenSSL 1.1.1 and 3 declare it in `openssl/ssl.h`.
    unsafe extern "C" {
        fn SSL_key_update(ssl: *mut openssl_sys::SSL, kind: c_int) -> c_int;
    }

    const NOT_REQUESTED: c_int = 0;
    const REQUESTED: c_int = 1;

    /// A host and a controller after their handshake.
    fn ends() -> (Stream, Stream) {
        crate::load().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (controller, _) = listener.accept().unwrap();
        for socket in [&host, &controller] {
            socket.set_nonblocking(true).unwrap();
        }
        let psk = Psk { identity: "one".into(), hash: Hash::Sha256, secret: vec![7; 32].into() };
        let mut host = Stream::of_host(Arc::new(host), psk.clone()).unwrap();
        let find: Find = Arc::new(move |_: &str| Some(psk.clone()));
        let mut controller = Stream::of_controller(Arc::new(controller), find, false).unwrap();
        let (mut one, mut other) = (false, false);
        while !(one && other) {
            one = one || host.handshake().unwrap();
            other = other || controller.handshake().unwrap();
        }
        (host, controller)
    }

    /// What a controller reads after its host has other keys; `of_kernel`: the kernel encrypts its answers.
    fn after_other_keys(kind: c_int, of_kernel: bool) -> io::Result<Vec<u8>> {
        let (mut host, mut controller) = ends();
        controller.inner.get_mut().of_kernel = of_kernel;
        // SAFETY: the connection is there, and its handshake is done.
        assert_eq!(unsafe { SSL_key_update(host.inner.ssl().as_ptr(), kind) }, 1);
        host.write_all(b"by others").unwrap();
        let mut got = vec![0; 100];
        loop {
            match controller.read(&mut got) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                read => break read.map(|len| got[..len].to_vec()),
            }
        }
    }

    #[test]
    fn who_wants_other_keys_of_the_kernel_is_let_go() {
        assert_eq!(after_other_keys(REQUESTED, false).unwrap(), b"by others");
        assert_eq!(after_other_keys(NOT_REQUESTED, true).unwrap(), b"by others");
        let gone = after_other_keys(REQUESTED, true).unwrap_err();
        assert!(
            gone.kind() == io::ErrorKind::InvalidData && gone.to_string().contains("KeyUpdate"),
            "{gone}"
        );
    }
}
