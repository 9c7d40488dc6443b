//! Checksums.

/// A checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// CRC-32C (Castagnoli), 4 bytes, big-endian.
    Crc32c,
    /// XXH3, 64 bits, 8 bytes, big-endian.
    Xxh3,
    /// SHA-256, 32 bytes.
    Sha256,
}

impl Digest {
    /// A bit for each, by its number on the wire.
    pub(crate) const BITS: u32 = 0b1110;
}
