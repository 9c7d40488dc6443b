//! Secrets in their form of interchange: a prefix, the number of a hash function and, in Base64, the secret
//! and its CRC-32.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::DumpableBehavior;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::Hash;

/// More than any key has.
pub(crate) const MOST: u64 = 1024;

/// A form.
pub(crate) struct Form {
    /// What its lines begin with.
    pub(crate) prefix: &'static str,
    /// The hash functions that it names.
    pub(crate) hashes: &'static [Hash],
    /// Bytes of a secret without one; with one, as many as that makes.
    pub(crate) lengths: &'static [usize],
    /// What it looks like.
    pub(crate) says: &'static str,
    /// What lengths there are.
    pub(crate) says_lengths: &'static str,
}

/// A secret, and the hash function beside it. Its memory is overwritten when it goes.
#[derive(Clone)]
pub(crate) struct Secret {
    pub(crate) hash: Option<Hash>,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

/// Why something is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It does not look like one.
    #[error("a key is {0}")]
    Form(&'static str),
    /// Its Base64 is none.
    #[error("its Base64 is damaged")]
    Base64,
    /// It is too long or too short.
    #[error("its secret has {0} bytes: {1}")]
    Length(usize, &'static str),
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

impl Form {
    pub(crate) fn is_length(&self, hash: Option<Hash>, len: usize) -> bool {
        hash.map_or(self.lengths.contains(&len), |hash| self.hashes.contains(&hash) && hash.bytes() == len)
    }

    /// A new secret of `len` bytes.
    pub(crate) fn generate(&self, hash: Option<Hash>, len: usize) -> Result<Secret, KeyError> {
        if !self.is_length(hash, len) {
            return Err(KeyError::Length(len, self.says_lengths));
        }
        let mut bytes = Zeroizing::new(vec![0; len]);
        getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Secret { hash, bytes })
    }

    /// From the only line of a file, or of a key in the kernel's keyrings ([`crate::in_keyring`]). From then
    /// on this process leaves no core, and others of its user cannot trace it.
    pub(crate) fn read(&self, path: &Path) -> Result<Secret, KeyError> {
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
        let text = match crate::in_keyring(path) {
            Some(name) => crate::keyring::read(name)?,
            None => contents(path)?,
        };
        self.parse(std::str::from_utf8(&text).map_err(|_| KeyError::Form(self.says))?.trim_end())
    }

    pub(crate) fn parse(&self, text: &str) -> Result<Secret, KeyError> {
        let form = || KeyError::Form(self.says);
        let rest = text.strip_prefix(self.prefix).ok_or_else(form)?;
        let (id, rest) = rest.split_once(':').ok_or_else(form)?;
        let base64 = rest.strip_suffix(':').ok_or_else(form)?;
        let hash = match id {
            "00" => None,
            id => Some(*self.hashes.iter().find(|hash| format!("{:02}", hash.id()) == id).ok_or_else(form)?),
        };
        let mut bytes = Zeroizing::new(STANDARD.decode(base64).map_err(|_| KeyError::Base64)?);
        let len = bytes.len().saturating_sub(4);
        if !self.is_length(hash, len) {
            return Err(KeyError::Length(len, self.says_lengths));
        }
        let crc = bytes.split_off(len);
        if crc != crc32fast::hash(&bytes).to_le_bytes() {
            return Err(KeyError::Crc);
        }
        Ok(Secret { hash, bytes })
    }

    /// A secret as its line.
    pub(crate) fn line(&self, secret: &Secret) -> Zeroizing<String> {
        let crc = crc32fast::hash(&secret.bytes).to_le_bytes();
        let bytes = Zeroizing::new([&secret.bytes[..], &crc].concat());
        let base64 = Zeroizing::new(STANDARD.encode(&bytes));
        let id = secret.hash.map_or(0, Hash::id);
        Zeroizing::new(format!("{}{id:02}:{}:", self.prefix, *base64))
    }
}

/// In constant time.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.hash == other.hash && bool::from(self.bytes.ct_eq(&other.bytes))
    }
}

impl Eq for Secret {}

/// Of a file that nobody but its owner may read: this user, or root. Root's may be read by a group as well.
fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
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
    Ok(text)
}
