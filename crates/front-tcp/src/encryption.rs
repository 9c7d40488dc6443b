//! How a connection becomes an encrypted one (TCP Transport 1.1, 3.6.1): a host that means to begins with a
//! handshake of TLS, all others with ICReq. Its PSK proves who it is, to which subsystem.
//!
//! A handshake takes the thread a fraction of a millisecond. From an address that has failed before, the next
//! one waits, and its bytes stay where they are meanwhile.

use std::io;

use nearside_auth::Identity;
use nearside_channel::{HANDSHAKE, TlsError};
use nearside_clock::Nanos;
use nearside_device::Firmware;
use nearside_spec::fabrics::pdu::Fatal;
use nearside_store::Store;

use crate::attempts::Begin;
use crate::connection::{Connection, Context, End};
use crate::generated::Token;
use crate::target::Target;

/// How far a connection is with TLS.
pub(crate) enum Encryption {
    /// Nothing has come.
    Unknown,
    /// Its handshake may begin then.
    Waiting(Nanos),
    /// It is under way.
    Shaking,
    /// It goes on without.
    Plain,
    /// It is encrypted: which host has proved itself, to which subsystem; by a PSK that an exchange has
    /// generated, what keeps that.
    Encrypted(String, String, Option<Token>),
}

impl Encryption {
    /// Whether its handshake may not begin yet.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Encryption::Waiting(_))
    }

    /// Whether it may begin now.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        matches!(self, Encryption::Waiting(at) if *at <= now)
    }

    /// Whether it is by a PSK that an exchange has generated.
    pub(crate) fn is_generated(&self) -> bool {
        matches!(self, Encryption::Encrypted(.., Some(_)))
    }

    /// The host that has proved itself, and to which subsystem.
    pub(crate) fn proved(&self) -> Option<(&str, &str)> {
        match self {
            Encryption::Encrypted(host, subsystem, _) => Some((host, subsystem)),
            _ => None,
        }
    }
}

impl<S: Store, F: Firmware<S>> Connection<S, F> {
    /// Whether PDUs are read: it is known whether the connection is encrypted, and where it is, its handshake
    /// is through.
    pub(crate) fn is_settled(&mut self, cx: &Context<'_, S, F>) -> Result<bool, End> {
        loop {
            match &self.encryption {
                Encryption::Plain | Encryption::Encrypted(..) => return Ok(true),
                Encryption::Unknown => match self.begins_with()? {
                    None => return Ok(false),
                    Some(HANDSHAKE) if cx.target.options.tls.is_some() => {
                        self.encryption = match cx.target.may_begin(&self.peer, cx.now) {
                            Begin::At(at) => Encryption::Waiting(at),
                            Begin::Never => return Err(self.refuse("too many handshakes wait", cx)),
                        };
                    }
                    Some(_) if cx.target.requires_tls() => {
                        // Its host hears of it in a PDU that it understands.
                        let _ = self.refuse("it is not encrypted, and TLS is required", cx);
                        self.encryption = Encryption::Plain;
                        self.terminate(Fatal::field(0), &[]);
                        return Ok(true);
                    }
                    Some(_) => self.encryption = Encryption::Plain,
                },
                Encryption::Waiting(at) if *at > cx.now => return Ok(false),
                Encryption::Waiting(_) => {
                    cx.target.generated.forget(cx.now);
                    let tls = cx.target.options.tls.as_ref();
                    let begun = tls.map(|tls| self.channel.accept(tls, &cx.target.find));
                    if let Some(Err(error)) = begun {
                        return Err(self.failed(&error, cx));
                    }
                    self.encryption = Encryption::Shaking;
                }
                Encryption::Shaking => match self.channel.handshake() {
                    Ok(false) => return Ok(false),
                    Ok(true) => self.shook_hands(cx)?,
                    Err(error) => {
                        self.give_up_handshake(cx.target, cx.now);
                        return Err(self.failed(&error, cx));
                    }
                },
            }
        }
    }

    /// The first byte of what comes, which stays there; `None`: none has come.
    fn begins_with(&self) -> Result<Option<u8>, End> {
        let mut first = [0];
        match self.channel.socket().peek(&mut first) {
            Ok(0) => Err(End::Closed),
            Ok(_) => Ok(Some(first[0])),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(End::Io(e)),
        }
    }

    fn shook_hands(&mut self, cx: &Context<'_, S, F>) -> Result<(), End> {
        let identity = self.channel.identity().and_then(Identity::parse);
        let Some(Identity { host, subsystem, .. }) = identity else {
            return Err(self.refuse("it names no host", cx));
        };
        let token = self.channel.identity().and_then(|identity| cx.target.generated.hold(identity));
        cx.target.shook_hands(&self.peer, true, cx.now);
        tracing::debug!(peer = %self.peer, host, "encrypted");
        self.encryption = Encryption::Encrypted(host.to_owned(), subsystem.to_owned(), token);
        Ok(())
    }

    fn failed(&self, error: &TlsError, cx: &Context<'_, S, F>) -> End {
        self.report("a TLS handshake failed", &error.to_string(), cx);
        End::Closed
    }

    /// It is not taken, for want of encryption.
    fn refuse(&self, why: &'static str, cx: &Context<'_, S, F>) -> End {
        cx.target.counters.not_encrypted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.report(why, why, cx);
        End::Closed
    }

    /// Each kind is said once in a while.
    fn report(&self, kind: &'static str, why: &str, cx: &Context<'_, S, F>) {
        if let Some(suppressed) = cx.target.may_report(kind, cx.now) {
            tracing::warn!(peer = %self.peer, why, suppressed, "a connection was refused");
        }
    }

    /// It ends: a handshake that was begun has failed.
    pub(crate) fn give_up_handshake(&mut self, target: &Target<S, F>, now: Nanos) {
        if matches!(self.encryption, Encryption::Shaking) {
            self.encryption = Encryption::Plain;
            target.shook_hands(&self.peer, false, now);
        }
    }
}
