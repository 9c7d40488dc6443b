//! Keys in their form of interchange: `DHHC-1:HH:` and, in Base64, the secret and its CRC-32 (Base 2.0,
//! 8.13.5.8).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::DumpableBehavior;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::Hash;

const PREFIX: &str = "DHHC-1:";
/// More than any key has.
const MOST: u64 = 1024;

/// A key of a host or of a subsystem. Its memory is overwritten when it goes, and nothing shows what it
/// holds.
#[derive(Clone)]
pub struct Key {
    /// What makes the key that is used of the secret and of its owner's name; `None`: the secret is that key.
    transform: Option<Hash>,
    secret: Zeroizing<Vec<u8>>,
}

/// Why something is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It does not look like one.
    #[error("a key is DHHC-1:00:BASE64: with 00, 01, 02 or 03 in the second place")]
    Form,
    /// Its Base64 is none.
    #[error("its Base64 is damaged")]
    Base64,
    /// It is too long or too short.
    #[error(
        "its secret has {0} bytes: without a hash it can have 32, 48 or 64, with SHA-256 (01) only 32, with \
         SHA-384 (02) only 48, with SHA-512 (03) only 64"
    )]
    Length(usize),
    /// The CRC differs.
    #[error("its CRC-32 does not match: a character of it is wrong")]
    Crc,
    /// Others may read the file.
    #[error("others than its owner may read it (mode {0:04o}): chmod 600")]
    Mode(u32),
    /// Somebody else may change the file.
    #[error("it belongs to user {0}, neither to this user nor to root")]
    Owner(u32),
    /// The system's.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Key {
    /// A new one of `len` bytes (32, 48 or 64; with a transform, as many as its hash has).
    ///
    /// # Errors
    /// [`KeyError::Length`]; the system has no random numbers.
    pub fn generate(transform: Option<Hash>, len: usize) -> Result<Key, KeyError> {
        if !is_length(transform, len) {
            return Err(KeyError::Length(len));
        }
        let mut secret = Zeroizing::new(vec![0; len]);
        getrandom::fill(&mut secret).map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Key { transform, secret })
    }

    /// From the only line of a file that nobody but its owner may read: this user, or root. Root's may be
    /// read by a group as well. From then on this process leaves no core, and others of its user cannot trace
    /// it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
        // Not one that somebody else has to open first.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file").into());
        }
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(KeyError::Owner(owner));
        }
        let allowed = if owner == 0 { 0o740 } else { 0o700 };
        if mode & !allowed != 0 {
            return Err(KeyError::Mode(mode));
        }
        let mut text = Zeroizing::new(Vec::with_capacity(MOST as usize));
        file.by_ref().take(MOST).read_to_end(&mut text)?;
        std::str::from_utf8(&text).map_err(|_| KeyError::Form)?.trim_end().parse()
    }

    /// In its form of interchange.
    pub fn interchange(&self) -> Zeroizing<String> {
        let crc = crc32fast::hash(&self.secret).to_le_bytes();
        let bytes = Zeroizing::new([&self.secret[..], &crc].concat());
        let base64 = Zeroizing::new(STANDARD.encode(&bytes));
        let id = self.transform.map_or(0, Hash::id);
        Zeroizing::new(format!("{PREFIX}{id:02}:{}:", *base64))
    }

    /// The hash function of its transform; `None`: it is used as it is.
    pub fn transform(&self) -> Option<Hash> {
        self.transform
    }

    /// Bytes of its secret.
    pub fn bits(&self) -> usize {
        self.secret.len() * 8
    }

    /// The key that a host or a subsystem of that name uses.
    pub(crate) fn transformed(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.secret.clone(),
            Some(hash) => hash.mac(&self.secret, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

fn is_length(transform: Option<Hash>, len: usize) -> bool {
    transform.map_or(matches!(len, 32 | 48 | 64), |hash| hash.bytes() == len)
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Key, KeyError> {
        let rest = text.strip_prefix(PREFIX).ok_or(KeyError::Form)?;
        let (id, rest) = rest.split_once(':').ok_or(KeyError::Form)?;
        let base64 = rest.strip_suffix(':').ok_or(KeyError::Form)?;
        let transform = match id {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(KeyError::Form),
        };
        let mut secret = Zeroizing::new(STANDARD.decode(base64).map_err(|_| KeyError::Base64)?);
        let len = secret.len().saturating_sub(4);
        if !is_length(transform, len) {
            return Err(KeyError::Length(len));
        }
        let crc = secret.split_off(len);
        if crc != crc32fast::hash(&secret).to_le_bytes() {
            return Err(KeyError::Crc);
        }
        Ok(Key { transform, secret })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("transform", &self.transform).finish_non_exhaustive()
    }
}

/// In constant time.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.transform == other.transform && bool::from(self.secret.ct_eq(&other.secret))
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by nvme-cli 2.3 of the bytes 0 to 31 (`nvme gen-dhchap-key -s ...`).
    const OF_NVME_CLI: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn a_key_of_nvme_cli_is_read_and_written() {
        let key: Key = OF_NVME_CLI.parse().unwrap();
        assert_eq!((key.secret.to_vec(), key.transform), ((0..32).collect::<Vec<u8>>(), None));
        assert_eq!(*key.interchange(), OF_NVME_CLI);
        assert!(!format!("{key:?}").contains("1, 2"), "{key:?}");
        // Its own transform is the one that keys with a hash have.
        let of_host = "DHHC-1:01:1HvY5uO7ldsWiWNEUXqoWR4FruGUqlIBSSlz/tAiz7H9gb+v:".parse::<Key>().unwrap();
        let same = Key { transform: Some(Hash::Sha256), ..key.clone() };
        assert_eq!(same.transformed("nqn.2026-11.example:host"), of_host.secret);
        assert_eq!(key.transformed("nqn.2026-11.example:host"), key.secret);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for transform in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
            for len in [0, 31, 32, 48, 64, 65] {
                let made = Key::generate(transform, len);
                assert_eq!(made.is_ok(), is_length(transform, len), "{transform:?} {len}");
                let Ok(key) = made else { continue };
                assert_eq!(key.interchange().parse::<Key>().unwrap(), key);
                assert_ne!(Key::generate(transform, len).unwrap(), key);
            }
        }
        let changed = |from: &str, to: &str| OF_NVME_CLI.replacen(from, to, 1).parse::<Key>().unwrap_err();
        assert!(matches!(changed("AAEC", "AAED"), KeyError::Crc));
        assert!(matches!(changed(":00:", ":04:"), KeyError::Form));
        assert!(matches!(changed(":00:", ":0:"), KeyError::Form));
        assert!(matches!(changed(":00:", ":02:"), KeyError::Length(32)));
        assert!(matches!(changed("AAEC", ""), KeyError::Length(29)));
        assert!(matches!(changed("AAEC", "AA=C"), KeyError::Base64));
        assert!(matches!(changed("aR:", "aR"), KeyError::Form));
        assert!(matches!("".parse::<Key>(), Err(KeyError::Form)));
        assert!(matches!("DHHC-1:00::".parse::<Key>(), Err(KeyError::Length(0))));
    }
}
