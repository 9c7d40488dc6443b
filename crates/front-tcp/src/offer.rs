//! What hosts are offered: a subsystem, for whom, and how.

use std::sync::Arc;

use nearside_auth::{Credentials, TlsKey};
use nearside_device::{Firmware, Identity, Subsystem};
use nearside_store::Store;

/// A subsystem as hosts are offered it.
pub struct Offer<S: Store, F: Firmware<S>> {
    /// Its name.
    pub nqn: String,
    /// Serial number, at most 20 ASCII characters; the same for all its controllers.
    pub serial: String,
    /// Its namespaces.
    pub subsystem: Arc<Subsystem<S, F>>,
    /// Hosts that may connect, by NQN; `None`: all.
    pub hosts: Option<Vec<String>>,
    /// What named hosts have to prove before anything of theirs is taken.
    pub credentials: Vec<(String, Arc<Credentials>)>,
    /// The TLS keys of named hosts: they come over TLS, each with its own, or not at all.
    pub tls_keys: Vec<(String, TlsKey)>,
    /// What the word of named hosts on who asks is worth.
    pub identities: Vec<(String, Identity)>,
    /// And that of all others.
    pub identity: Identity,
    /// I/O queues of a controller, at most 63.
    pub io_queues: u16,
    /// Log2 of the largest transfer in 4 KiB pages, at most 10 (4 MiB).
    pub mdts: u8,
    /// Whether a volatile write cache is reported.
    pub write_cache: bool,
}

impl<S: Store, F: Firmware<S>> Offer<S, F> {
    /// For all hosts, whose root is squashed to nobody; transfers up to 1 MiB.
    pub fn new(nqn: &str, serial: &str, subsystem: Arc<Subsystem<S, F>>) -> Offer<S, F> {
        Offer {
            nqn: nqn.to_owned(),
            serial: serial.to_owned(),
            subsystem,
            hosts: None,
            credentials: Vec::new(),
            tls_keys: Vec::new(),
            identities: Vec::new(),
            identity: Identity::SquashRoot { uid: 65534, gid: 65534 },
            io_queues: 63,
            mdts: 8,
            write_cache: true,
        }
    }

    pub(crate) fn allows(&self, host: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|h| h == host))
    }

    pub(crate) fn credentials_of(&self, host: &str) -> Option<Arc<Credentials>> {
        self.credentials.iter().find(|(nqn, _)| nqn == host).map(|(_, credentials)| credentials.clone())
    }

    pub(crate) fn tls_key_of(&self, host: &str) -> Option<&TlsKey> {
        self.tls_keys.iter().find(|(nqn, _)| nqn == host).map(|(_, key)| key)
    }

    pub(crate) fn identity_of(&self, host: &str) -> Identity {
        let named = self.identities.iter().find(|(nqn, _)| nqn == host);
        named.map_or(self.identity, |(_, identity)| *identity)
    }
}
