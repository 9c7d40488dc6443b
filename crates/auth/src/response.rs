//! What both ends make of a challenge.

use zeroize::Zeroizing;

use crate::{Hash, Key};

/// The two ends of an exchange, by their names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) host: String,
    pub(crate) subsystem: String,
}

/// What one end answers to the challenge of the other.
pub(crate) struct Asked<'a> {
    pub(crate) hash: Hash,
    /// The secret of the exchange; empty without one.
    pub(crate) shared: &'a [u8],
    pub(crate) challenge: &'a [u8],
    pub(crate) seqnum: u32,
    pub(crate) t_id: u16,
    /// The secure channel that is to be made afterwards.
    pub(crate) sc_c: u8,
}

impl Asked<'_> {
    /// Of the host.
    pub(crate) fn of_host(&self, key: &Key, names: &Names) -> Zeroizing<Vec<u8>> {
        self.response(&key.transformed(&names.host), "HostHost", &names.host, &names.subsystem)
    }

    /// Of the controller.
    pub(crate) fn of_controller(&self, key: &Key, names: &Names) -> Zeroizing<Vec<u8>> {
        self.response(&key.transformed(&names.subsystem), "Controller", &names.subsystem, &names.host)
    }

    fn response(&self, key: &[u8], who: &str, own: &str, other: &str) -> Zeroizing<Vec<u8>> {
        let augmented = match self.shared {
            [] => Zeroizing::new(self.challenge.to_vec()),
            // The session key is the hash of the secret that both have.
            shared => self.hash.mac(&self.hash.digest(shared), &[self.challenge]),
        };
        let (seqnum, t_id, sc_c) = (self.seqnum.to_le_bytes(), self.t_id.to_le_bytes(), [self.sc_c]);
        let names: [&[u8]; 4] = [who.as_bytes(), own.as_bytes(), &[0], other.as_bytes()];
        let parts: [&[u8]; 4] = [&augmented, &seqnum, &t_id, &sc_c];
        self.hash.mac(key, &[&parts[..], &names].concat())
    }
}
