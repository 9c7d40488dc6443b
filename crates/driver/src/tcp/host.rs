//! What a host says of itself, and how it wants its connections.

use std::path::Path;
use std::time::Duration;

use nearside_auth::{Key, Keys, TlsKey};
use nearside_channel::Tls;
use nearside_spec::fabrics::nqn;
use sha2::{Digest, Sha256};

use crate::Error;

/// What a host says of itself, and how it wants its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The host's NQN, by which targets allow it.
    pub host_nqn: String,
    /// The host's identifier.
    pub host_id: [u8; 16],
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// The association ends where nothing reaches the target for so long; 0: never.
    pub keep_alive_ms: u32,
    /// How long a command may take before the connection counts as lost.
    pub timeout_ms: u64,
    /// How long a connection may take.
    pub connect_ms: u64,
    /// How a lost connection is made again, by those who do ([`Association`](super::Association) does not).
    pub recovery: Recovery,
    /// What it proves itself by to a target that asks for that; with a key of the subsystem's, only one that
    /// proves itself is taken.
    pub keys: Option<Keys>,
    /// With it each connection is encrypted by TLS, and both ends prove by it who they are.
    pub tls: Option<(TlsKey, Tls)>,
    /// With it the keys of `keys` generate what encrypts each connection: the first one begins in the clear,
    /// and is made again over TLS (secure channel concatenation).
    pub concatenates: Option<Tls>,
}

/// How a lost connection is made again: the kernel's `reconnect_delay` and `ctrl_loss_tmo`, with its
/// defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// From the loss to the first attempt, and from each attempt to the next.
    pub reconnect_delay: Duration,
    /// After so long there are no more attempts, at zero there are none; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
}

impl Default for Recovery {
    /// Every 10 s, for 600 s.
    fn default() -> Recovery {
        let ctrl_loss_tmo = Some(Duration::from_secs(600));
        Recovery { reconnect_delay: Duration::from_secs(10), ctrl_loss_tmo }
    }
}

impl Recovery {
    /// Attempts after a loss, as the kernel counts them: the time divided by the delay, rounded up.
    pub fn attempts(&self) -> Option<u64> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.ctrl_loss_tmo.map(|time| ns(time).div_ceil(ns(self.reconnect_delay).max(1)))
    }
}

impl Default for Options {
    /// The NQN of this user on this machine; no digests, no keys; keep alive 15 s, commands 30 s, connections
    /// 5 s; lost ones are made again as the kernel does.
    fn default() -> Options {
        let host_id = own_uuid();
        Options {
            host_nqn: nqn::of_uuid(&host_id),
            host_id,
            header_digest: false,
            data_digest: false,
            keep_alive_ms: 15_000,
            timeout_ms: 30_000,
            connect_ms: 5_000,
            recovery: Recovery::default(),
            keys: None,
            tls: None,
            concatenates: None,
        }
    }
}

impl Options {
    /// With the keys that two files hold: this host's, and the subsystem's, which then has to prove who it is
    /// as well.
    ///
    /// # Errors
    /// Which file holds none, and why.
    pub fn with_keys_of(self, host: &Path, controller: Option<&Path>) -> Result<Options, String> {
        let read = |path: &Path| Key::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let keys = Keys { host: read(host)?, controller: controller.map(read).transpose()? };
        Ok(Options { keys: Some(keys), ..self })
    }

    /// Over `tls`, with the key that a file holds.
    ///
    /// # Errors
    /// Why it holds none.
    pub fn with_tls_key_of(self, path: &Path, tls: Tls) -> Result<Options, String> {
        let key = TlsKey::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Options { tls: Some((key, tls)), ..self })
    }

    /// In the name of another host. One named by a UUID has that as its identifier.
    ///
    /// # Errors
    /// [`Error`]: it is not an NQN.
    pub fn for_host(host_nqn: &str) -> Result<Options, Error> {
        nqn::check(host_nqn).map_err(|e| Error::Address(format!("{host_nqn}: {e}")))?;
        let own = Options::default();
        let host_id = uuid_in(host_nqn).unwrap_or(own.host_id);
        Ok(Options { host_nqn: host_nqn.to_owned(), host_id, ..own })
    }
}

/// The UUID in a name that is made of one.
fn uuid_in(name: &str) -> Option<[u8; 16]> {
    let text = name.strip_prefix(nqn::UUID_PREFIX)?.replace('-', "");
    let number = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32)?;
    Some(number.to_be_bytes())
}

/// A host identifier that is the same for a user on a machine each time, and another for each: a UUID
/// (version 8) of a hash, so that the machine's own identifier stays unknown to targets.
fn own_uuid() -> [u8; 16] {
    let machine = std::fs::read("/etc/machine-id").or_else(|_| std::fs::read("/proc/sys/kernel/hostname"));
    let (uid, _) = nearside_dma::system::effective_ids();
    let hash = Sha256::new()
        .chain_update("nearside host\n")
        .chain_update(machine.unwrap_or_default())
        .chain_update(uid.to_le_bytes())
        .finalize();
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_as_the_kernel_does() {
        let attempts = |delay, time: Option<u64>| {
            let ctrl_loss_tmo = time.map(Duration::from_secs);
            Recovery { reconnect_delay: Duration::from_secs(delay), ctrl_loss_tmo }.attempts()
        };
        assert_eq!(Recovery::default().attempts(), Some(60));
        assert_eq!(attempts(10, Some(0)), Some(0));
        assert_eq!(attempts(10, Some(1)), Some(1));
        assert_eq!(attempts(7, Some(15)), Some(3));
        assert_eq!(attempts(10, None), None);
    }

    #[test]
    fn a_host_is_the_same_each_time() {
        let (one, two) = (Options::default(), Options::default());
        assert_eq!(one, two);
        assert_eq!(Options::for_host(&one.host_nqn).unwrap(), one);
        let other = Options::for_host(&nqn::of_uuid(&[7; 16])).unwrap();
        assert_eq!(other.host_id, [7; 16]);
        assert!(Options::for_host("host").is_err());
    }
}
