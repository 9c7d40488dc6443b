//! PSKs that exchanges have generated for secure channels (Base 2.1, 8.3.4.5.9). A host that asked for one in
//! the clear comes back over TLS with it, each of its queues anew.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use nearside_auth::Psk;
use nearside_clock::Nanos;

/// As many as are kept: the oldest go first.
const MOST: usize = 4096;
/// How long a host may take to come back.
const KEPT_NS: u64 = 60_000_000_000;

/// Kept by a connection, and with it the PSK that encrypts it.
pub(crate) type Token = Arc<()>;

struct Entry {
    made: Nanos,
    psk: Psk,
    token: Token,
}

/// All of them, the oldest first.
#[derive(Default)]
pub(crate) struct Generated(Mutex<VecDeque<Entry>>);

impl Generated {
    fn with<T>(&self, look: impl FnOnce(&mut VecDeque<Entry>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets those that nobody wants any more: their hosts neither got them just now nor are there.
    pub(crate) fn forget(&self, now: Nanos) {
        self.with(|all| {
            all.retain(|entry| now.since(entry.made) < KEPT_NS || Arc::strong_count(&entry.token) > 1);
        });
    }

    /// Another one.
    pub(crate) fn keep(&self, psk: Psk, now: Nanos) {
        self.forget(now);
        self.with(|all| {
            if all.len() >= MOST {
                all.pop_front();
            }
            all.push_back(Entry { made: now, psk, token: Token::default() });
        });
    }

    /// By its identity, for a handshake.
    pub(crate) fn find(&self, identity: &str) -> Option<Psk> {
        self.with(|all| {
            all.iter().find(|entry| entry.psk.identity == identity).map(|entry| entry.psk.clone())
        })
    }

    /// For as long as a connection is encrypted by it.
    pub(crate) fn hold(&self, identity: &str) -> Option<Token> {
        self.with(|all| {
            all.iter().find(|entry| entry.psk.identity == identity).map(|entry| entry.token.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_auth::TlsKey;

    #[test]
    fn a_psk_is_kept_while_it_is_new_or_used() {
        let (generated, start) = (Generated::default(), Nanos(5));
        let psk = |host: &str| TlsKey::generate(None, 32).unwrap().psk(host, "s");
        let (one, two) = (psk("one"), psk("two"));
        generated.keep(one.clone(), start);
        generated.keep(two.clone(), start);
        let held = generated.hold(&two.identity).unwrap();
        generated.forget(start + (KEPT_NS - 1));
        assert!(generated.find(&one.identity).is_some() && generated.find("none").is_none());
        generated.forget(start + KEPT_NS);
        assert!(generated.find(&one.identity).is_none());
        assert_eq!(generated.find(&two.identity).unwrap().secret, two.secret);
        drop(held);
        generated.forget(start + KEPT_NS);
        assert!(generated.find(&two.identity).is_none());
        (0..MOST + 9).for_each(|nr| generated.keep(psk(&nr.to_string()), start));
        assert_eq!(generated.with(|all| all.len()), MOST);
    }
}
