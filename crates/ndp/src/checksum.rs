//! Checksums over a file's bytes.

use nearside_near_data::Digest;
use sha2::Digest as _;
use xxhash_rust::xxh3::Xxh3Default;

/// A checksum of a file fed in order.
#[derive(Debug)]
pub struct Checksum {
    state: Hasher,
}

enum Hasher {
    Crc32c(u32),
    Xxh3(Box<Xxh3Default>),
    Sha256(Box<sha2::Sha256>),
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Crc32c(_) => "Crc32c",
            Self::Xxh3(_) => "Xxh3",
            Self::Sha256(_) => "Sha256",
        })
    }
}

impl Checksum {
    /// Over no bytes yet.
    #[must_use]
    pub fn new(digest: Digest) -> Self {
        let state = match digest {
            Digest::Crc32c => Hasher::Crc32c(0),
            Digest::Xxh3 => Hasher::Xxh3(Box::default()),
            Digest::Sha256 => Hasher::Sha256(Box::default()),
        };
        Self { state }
    }

    /// Makes ready for the next file.
    pub fn begin(&mut self) {
        match &mut self.state {
            Hasher::Crc32c(crc) => *crc = 0,
            Hasher::Xxh3(hash) => hash.reset(),
            Hasher::Sha256(hash) => hash.reset(),
        }
    }

    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        match &mut self.state {
            Hasher::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, piece),
            Hasher::Xxh3(hash) => hash.update(piece),
            Hasher::Sha256(hash) => hash.update(piece),
        }
    }

    /// Bytes to feed at once so that a call takes 20 µs or less, also on a core without instructions for it.
    #[must_use]
    pub fn suggested_piece(&self) -> usize {
        match &self.state {
            Hasher::Crc32c(_) => 32 << 10,
            Hasher::Xxh3(_) => 64 << 10,
            Hasher::Sha256(_) => 4 << 10,
        }
    }

    /// The checksum of all bytes fed.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        match &self.state {
            Hasher::Crc32c(crc) => crc.to_be_bytes().to_vec(),
            Hasher::Xxh3(hash) => hash.digest().to_be_bytes().to_vec(),
            Hasher::Sha256(hash) => hash.as_ref().clone().finalize().to_vec(),
        }
    }
}
