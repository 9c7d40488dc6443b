//! PSKs that exchanges have generated for secure channels (Base 2.1, 8.3.4.5.9). A host that asked for one in
//! the clear comes back over TLS with it, each of its queues anew.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use nearside_auth::{Credentials, Psk};
use nearside_clock::Nanos;

/// As many as are kept: the oldest go first, those that nobody uses before all others.
const MOST: usize = 4096;
/// And of one host with one subsystem.
const MOST_OF_ONE: usize = 16;
/// How long a host may take to come back.
const KEPT_NS: u64 = 60_000_000_000;

/// Kept by a connection, and with it the PSK that encrypts it.
pub(crate) type Token = Arc<()>;

struct Entry {
    made: Nanos,
    psk: Psk,
    /// What its host had proved.
    credentials: Arc<Credentials>,
    token: Token,
}

impl Entry {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.token) > 1
    }
}

/// Of which host it is with which subsystem: its identity, less the digest at its end.
fn whose(psk: &Psk) -> &str {
    psk.identity.rsplit_once(' ').map_or("", |(whose, _)| whose)
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
            all.retain(|entry| now.since(entry.made) < KEPT_NS || entry.is_used());
        });
    }

    /// Another one, of a host that has proved these.
    pub(crate) fn keep(&self, psk: Psk, credentials: Arc<Credentials>, now: Nanos) {
        self.forget(now);
        self.with(|all| {
            let is_own = |entry: &Entry| whose(&entry.psk) == whose(&psk);
            let many = all.iter().filter(|entry| is_own(entry)).count() >= MOST_OF_ONE;
            if many || all.len() >= MOST {
                let mut of = all.iter().enumerate().filter(|(_, entry)| !many || is_own(entry));
                let first = of.clone().next();
                if let Some((oldest, _)) = of.find(|(_, entry)| !entry.is_used()).or(first) {
                    all.remove(oldest);
                }
            }
            all.push_back(Entry { made: now, psk, credentials, token: Token::default() });
        });
    }

    /// By its identity, for a handshake: of a host that could prove the same now.
    pub(crate) fn find(&self, identity: &str, credentials: &Credentials) -> Option<Psk> {
        self.with(|all| {
            let found = all.iter().find(|entry| entry.psk.identity == identity);
            found.filter(|entry| *entry.credentials == *credentials).map(|entry| entry.psk.clone())
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
    use nearside_auth::{Group, Hash, Key, TlsKey};

    fn psk(host: &str) -> Psk {
        TlsKey::generate(None, 32).unwrap().psk(host, "s")
    }

    fn credentials() -> Arc<Credentials> {
        let host = Key::generate(None, 32).unwrap();
        Arc::new(Credentials {
            host,
            controller: None,
            hashes: Hash::ALL.to_vec(),
            groups: vec![Group::Null],
        })
    }

    #[test]
    fn a_host_has_its_own_places_and_loses_what_it_does_not_use_first() {
        let (generated, proved) = (Generated::default(), credentials());
        let (other, used) = (psk("other"), psk("one"));
        generated.keep(other.clone(), proved.clone(), Nanos(0));
        generated.keep(used.clone(), proved.clone(), Nanos(0));
        let _token = generated.hold(&used.identity).unwrap();
        let own: Vec<Psk> = (0..9 * MOST_OF_ONE).map(|_| psk("one")).collect();
        own.iter().for_each(|psk| generated.keep(psk.clone(), proved.clone(), Nanos(0)));
        let is_there = |psk: &Psk| generated.find(&psk.identity, &proved).is_some();
        assert_eq!(generated.with(|all| all.len()), 1 + MOST_OF_ONE);
        assert!(is_there(&other) && is_there(&used) && own.last().is_some_and(is_there));
        // Another key of the same host's is not what it had proved.
        assert!(generated.find(&used.identity, &credentials()).is_none());
    }

    #[test]
    fn a_psk_is_kept_while_it_is_new_or_used() {
        let (generated, start, proved) = (Generated::default(), Nanos(5), credentials());
        let (one, two) = (psk("one"), psk("two"));
        generated.keep(one.clone(), proved.clone(), start);
        generated.keep(two.clone(), proved.clone(), start);
        let held = generated.hold(&two.identity).unwrap();
        generated.forget(start + (KEPT_NS - 1));
        assert!(
            generated.find(&one.identity, &proved).is_some() && generated.find("none", &proved).is_none()
        );
        generated.forget(start + KEPT_NS);
        assert!(generated.find(&one.identity, &proved).is_none());
        assert_eq!(generated.find(&two.identity, &proved).unwrap().secret, two.secret);
        drop(held);
        generated.forget(start + KEPT_NS);
        assert!(generated.find(&two.identity, &proved).is_none());
        (0..MOST + 9).for_each(|nr| generated.keep(psk(&nr.to_string()), proved.clone(), start));
        assert_eq!(generated.with(|all| all.len()), MOST);
    }
}
