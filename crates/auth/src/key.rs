//! Keys of DH-HMAC-CHAP: `DHHC-1:HH:` and, in Base64, the secret and its CRC-32 (Base 2.0, 8.13.5.8).

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::Hash;
use crate::interchange::{Form, KeyError, Secret};

const FORM: Form = Form {
    prefix: "DHHC-1:",
    hashes: &Hash::ALL,
    lengths: &[32, 48, 64],
    says: "DHHC-1:00:BASE64: with 00, 01, 02 or 03 in the second place",
    says_lengths: "without a hash it can have 32, 48 or 64, with SHA-256 (01) only 32, with SHA-384 (02) only 48, \
                   with SHA-512 (03) only 64",
};

/// A key of a host or of a subsystem. Its memory is overwritten when it goes, and nothing shows what it
/// holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Secret);

impl Key {
    /// A new one of `len` bytes (32, 48 or 64; with a transform, as many as its hash has).
    ///
    /// # Errors
    /// [`KeyError::Length`]; the system has no random numbers.
    pub fn generate(transform: Option<Hash>, len: usize) -> Result<Key, KeyError> {
        FORM.generate(transform, len).map(Key)
    }

    /// From the only line of a file that nobody but its owner may read: this user, or root. Root's may be
    /// read by a group as well. Or from a key of type `user` in the kernel's keyrings
    /// ([`crate::in_keyring`]). From then on this process leaves no core, and others of its user cannot
    /// trace it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        FORM.read(path).map(Key)
    }

    /// In its form of interchange.
    pub fn interchange(&self) -> Zeroizing<String> {
        FORM.line(&self.0)
    }

    /// The hash function of its transform, which makes the key that is used of the secret and of its owner's
    /// name; `None`: the secret is that key.
    pub fn transform(&self) -> Option<Hash> {
        self.0.hash
    }

    /// Bits of its secret.
    pub fn bits(&self) -> usize {
        self.0.bytes.len() * 8
    }

    /// The key that a host or a subsystem of that name uses.
    pub(crate) fn transformed(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.0.hash {
            None => self.0.bytes.clone(),
            Some(hash) => hash.mac(&self.0.bytes, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Key, KeyError> {
        FORM.parse(text).map(Key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("transform", &self.0.hash).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by nvme-cli 2.3 of the bytes 0 to 31 (`nvme gen-dhchap-key -s ...`).
    const OF_NVME_CLI: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn a_key_of_nvme_cli_is_read_and_written() {
        let key: Key = OF_NVME_CLI.parse().unwrap();
        assert_eq!((key.0.bytes.to_vec(), key.0.hash), ((0..32).collect::<Vec<u8>>(), None));
        assert_eq!(*key.interchange(), OF_NVME_CLI);
        assert!(!format!("{key:?}").contains("1, 2"), "{key:?}");
        // Its own transform is the one that keys with a hash have.
        let of_host = "DHHC-1:01:1HvY5uO7ldsWiWNEUXqoWR4FruGUqlIBSSlz/tAiz7H9gb+v:".parse::<Key>().unwrap();
        let same = Key(Secret { hash: Some(Hash::Sha256), ..key.0.clone() });
        assert_eq!(same.transformed("nqn.2026-11.example:host"), of_host.0.bytes);
        assert_eq!(key.transformed("nqn.2026-11.example:host"), key.0.bytes);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for transform in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
            for len in [0, 31, 32, 48, 64, 65] {
                let made = Key::generate(transform, len);
                assert_eq!(made.is_ok(), FORM.is_length(transform, len), "{transform:?} {len}");
                let Ok(key) = made else { continue };
                assert_eq!(key.interchange().parse::<Key>().unwrap(), key);
                assert_ne!(Key::generate(transform, len).unwrap(), key);
            }
        }
        let changed = |from: &str, to: &str| OF_NVME_CLI.replacen(from, to, 1).parse::<Key>().unwrap_err();
        assert!(matches!(changed("AAEC", "AAED"), KeyError::Crc));
        assert!(matches!(changed(":00:", ":04:"), KeyError::Form(_)));
        assert!(matches!(changed(":00:", ":0:"), KeyError::Form(_)));
        assert!(matches!(changed(":00:", ":02:"), KeyError::Length(32, _)));
        assert!(matches!(changed("AAEC", ""), KeyError::Length(29, _)));
        assert!(matches!(changed("AAEC", "AA=C"), KeyError::Base64));
        assert!(matches!(changed("aR:", "aR"), KeyError::Form(_)));
        assert!(matches!("".parse::<Key>(), Err(KeyError::Form(_))));
        assert!(matches!("DHHC-1:00::".parse::<Key>(), Err(KeyError::Length(0, _))));
    }
}
