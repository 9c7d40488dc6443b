//! The PSK of a connection, as OpenSSL asks for it: a session that there never was. No crate wraps these
//! calls (SSL_CTX_set_psk_find_session_callback(3), SSL_CTX_set_psk_use_session_callback(3)).

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, OnceLock};

use foreign_types::{ForeignType, ForeignTypeRef};
use nearside_auth::{Hash, Psk};
use nearside_channel::Find;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef, SslSession};
use openssl_sys as ffi;

use crate::kernel::Secret;

type FindSession = unsafe extern "C" fn(*mut ffi::SSL, *const u8, usize, *mut *mut ffi::SSL_SESSION) -> c_int;
type UseSession = unsafe extern "C" fn(
    *mut ffi::SSL,
    *const ffi::EVP_MD,
    *mut *const u8,
    *mut usize,
    *mut *mut ffi::SSL_SESSION,
) -> c_int;

// SAFETY: as OpenSSL 1.1.1 and 3 declare them in `openssl/ssl.h`.
unsafe extern "C" {
    fn SSL_CTX_set_psk_find_session_callback(context: *mut ffi::SSL_CTX, callback: Option<FindSession>);
    fn SSL_CTX_set_psk_use_session_callback(context: *mut ffi::SSL_CTX, callback: Option<UseSession>);
    fn SSL_SESSION_new() -> *mut ffi::SSL_SESSION;
    fn SSL_SESSION_set1_master_key(session: *mut ffi::SSL_SESSION, key: *const u8, len: usize) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut ffi::SSL_SESSION, cipher: *const ffi::SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut ffi::SSL_SESSION, version: c_int) -> c_int;
    fn SSL_CIPHER_find(ssl: *mut ffi::SSL, number: *const u8) -> *const ffi::SSL_CIPHER;
}

/// TLSEXT_TYPE_psk: pre_shared_key (RFC 8446, 4.2.11).
const PRE_SHARED_KEY: c_uint = 41;
/// Identities of a ClientHello that are looked at.
const MOST: usize = 8;

/// What a connection knows of its keys.
#[derive(Default)]
pub(crate) struct Held {
    /// What the host named first.
    pub(crate) named: Option<String>,
    /// What both ends take.
    pub(crate) psk: Option<Psk>,
    /// What finds that, until the host has named it.
    pub(crate) find: Option<Find>,
    /// What the kernel is given, where it goes on after the handshake.
    pub(crate) secret: Option<Arc<Secret>>,
}

fn index() -> Result<Index<Ssl, Held>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Held>> = OnceLock::new();
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let made = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| made))
}

/// What a connection holds from now on.
pub(crate) fn hold(ssl: &mut SslRef, held: Held) -> Result<(), ErrorStack> {
    ssl.set_ex_data(index()?, held);
    Ok(())
}

/// What a connection holds.
pub(crate) fn held(ssl: &SslRef) -> Option<&Held> {
    ssl.ex_data(index().ok()?)
}

/// The identities that a ClientHello offers, while it is looked at.
pub(crate) fn offered(ssl: &SslRef) -> Vec<String> {
    let (mut at, mut len) = (std::ptr::null(), 0);
    // SAFETY: the connection is there; it is asked within its ClientHello callback, which alone calls this.
    let found =
        unsafe { ffi::SSL_client_hello_get0_ext(ssl.as_ptr(), PRE_SHARED_KEY, &raw mut at, &raw mut len) };
    if found != 1 || at.is_null() {
        return Vec::new();
    }
    // SAFETY: OpenSSL says that so many bytes are there; they are until the callback returns.
    identities(unsafe { std::slice::from_raw_parts(at, len) })
}

/// Those of an OfferedPsks.
fn identities(extension: &[u8]) -> Vec<String> {
    let prefixed = |bytes: &mut &[u8]| {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let (one, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        *bytes = rest;
        Some(one.to_vec())
    };
    let Some(list) = prefixed(&mut &*extension) else { return Vec::new() };
    let mut rest = &list[..];
    let next = || {
        let identity = prefixed(&mut rest)?;
        // Its obfuscated age.
        rest = rest.get(4..)?;
        Some(String::from_utf8_lossy(&identity).into_owned())
    };
    std::iter::from_fn(next).take(MOST).collect()
}

/// Hosts are asked for PSKs: each connection takes the one that it holds.
pub(crate) fn find_by(context: &mut SslContextBuilder) {
    // SAFETY: the context is there; the callback is a function that stays.
    unsafe { SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(find)) };
}

/// A connection offers the PSK that it holds.
pub(crate) fn offer_by(context: &mut SslContextBuilder) {
    // SAFETY: as above.
    unsafe { SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(offer)) };
}

/// A session that stands for a PSK.
///
/// # Safety
/// The connection is there.
unsafe fn session(ssl: *mut ffi::SSL, psk: &Psk) -> Option<SslSession> {
    let cipher: [u8; 2] = if psk.hash == Hash::Sha384 { [0x13, 0x02] } else { [0x13, 0x01] };
    // SAFETY: each pointer comes from OpenSSL and is looked at for null; the session is dropped where a step
    // fails.
    unsafe {
        let made = SSL_SESSION_new();
        if made.is_null() {
            return None;
        }
        let session = SslSession::from_ptr(made);
        let cipher = SSL_CIPHER_find(ssl, cipher.as_ptr());
        let is_done = !cipher.is_null()
            && SSL_SESSION_set1_master_key(made, psk.secret.as_ptr(), psk.secret.len()) == 1
            && SSL_SESSION_set_cipher(made, cipher) == 1
            && SSL_SESSION_set_protocol_version(made, ffi::TLS1_3_VERSION) == 1;
        is_done.then_some(session)
    }
}

/// A session as OpenSSL's own.
fn given(session: SslSession) -> *mut ffi::SSL_SESSION {
    std::mem::ManuallyDrop::new(session).as_ptr()
}

/// A host offers an identity. 1 without a session: not this one.
unsafe extern "C" fn find(
    ssl: *mut ffi::SSL,
    identity: *const u8,
    len: usize,
    found: *mut *mut ffi::SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL calls this with its own connection, so many bytes, and room for a pointer.
    unsafe {
        *found = std::ptr::null_mut();
        let named = std::slice::from_raw_parts(identity, len);
        let psk = held(SslRef::from_ptr(ssl)).and_then(|held| held.psk.as_ref());
        let Some(psk) = psk.filter(|psk| psk.identity.as_bytes() == named) else { return 1 };
        let Some(session) = session(ssl, psk) else { return 0 };
        *found = given(session);
    }
    1
}

/// What this host offers.
unsafe extern "C" fn offer(
    ssl: *mut ffi::SSL,
    _hash: *const ffi::EVP_MD,
    identity: *mut *const u8,
    len: *mut usize,
    used: *mut *mut ffi::SSL_SESSION,
) -> c_int {
    // SAFETY: as above; the identity stays where it is for as long as the connection is there.
    unsafe {
        *used = std::ptr::null_mut();
        let Some(psk) = held(SslRef::from_ptr(ssl)).and_then(|held| held.psk.as_ref()) else { return 1 };
        let Some(session) = session(ssl, psk) else { return 0 };
        (*identity, *len) = (psk.identity.as_ptr(), psk.identity.len());
        *used = given(session);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_of_any_extension() {
        let one = |name: &[u8]| [&(name.len() as u16).to_be_bytes(), name, &[0; 4]].concat();
        let all = |list: &[u8]| [&(list.len() as u16).to_be_bytes(), list, &[0, 33, 32]].concat();
        assert_eq!(identities(&all(&[one(b"a"), one(b"bc")].concat())), ["a", "bc"]);
        assert_eq!(identities(&all(&one(b"x").repeat(20))).len(), MOST);
        let whole = all(&[one(b"a"), one(b"bc")].concat());
        for len in 0..whole.len() - 3 {
            assert!(identities(&whole[..len]).is_empty());
        }
        // A length that leads beyond the list.
        assert_eq!(identities(&all(&[one(b"a"), vec![0xff, 0xff, 1]].concat())), ["a"]);
        assert_eq!(identities(&all(&[0, 1, b'a', 0, 0])), Vec::<String>::new());
    }
}
