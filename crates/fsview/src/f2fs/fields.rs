//! Reading little-endian fields and blocks, and F2FS's checksum. It knows no structure.

use crate::{Error, Source};

/// Bytes in a block; F2FS of other block sizes is refused at the superblock.
pub(super) const BLOCK: usize = 4096;
/// Bytes in a block, as `Source::metadata` wants them.
pub(super) const BLOCK_U32: u32 = 4096;
/// Initial value of the superblock's and the checkpoint's checksum (the file system's magic number).
pub(super) const MAGIC: u32 = 0xF2F5_2010;

/// A block address of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Addr(pub u32);

impl Addr {
    /// Never written: a hole.
    pub const NULL: Addr = Addr(0);
    /// Reserved, not written yet.
    pub const NEW: Addr = Addr(u32::MAX);

    /// The byte of the volume at which the block begins.
    pub fn byte(self) -> u64 {
        u64::from(self.0) << 12
    }
}

/// A node identifier; an inode's is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nid(pub u32);

/// `Error::Corrupt`.
pub(super) fn corrupt(what: impl Into<String>, at: u64) -> Error {
    Error::Corrupt { what: what.into(), at }
}

/// The byte at `offset`. Zero past the end, which a block of checked length and a constant offset do not
/// reach.
pub(super) fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|b| b.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// The little-endian number of 16 bits at `offset`; 0 past the end.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

/// The little-endian number of 32 bits at `offset`; 0 past the end.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

/// The little-endian number of 64 bits at `offset`; 0 past the end.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

/// A 32-bit number as an index: lossless wherever this builds.
pub(super) fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A length as a number of the volume.
pub(super) fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// CRC-32 with polynomial EDB88320, started at `initial`, without the final inversion.
pub(super) fn checksum(initial: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!initial);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The block at `address`, of which every byte exists.
pub(super) async fn read<S: Source>(source: &S, address: Addr) -> Result<S::Block, Error> {
    let at = address.byte();
    if at.checked_add(number(BLOCK)).is_none_or(|end| end > source.len()) {
        return Err(corrupt(
            format!("block {} lies beyond the volume's {} bytes", address.0, source.len()),
            at,
        ));
    }
    let block = source.metadata(at, BLOCK_U32).await?;
    if block.len() < BLOCK {
        return Err(Error::Read { at, len: BLOCK_U32, reason: format!("{} bytes came", block.len()) });
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_a_plain_crc_without_inversions() {
        // The check value of CRC-32/JAMCRC, which differs from CRC-32 by the final inversion only.
        assert_eq!(checksum(!0, b"123456789"), 0x340B_C6D9);
        assert_eq!(checksum(checksum(MAGIC, b"1234"), b"56789"), checksum(MAGIC, b"123456789"));
    }

    #[test]
    fn fields_past_the_end_are_zero() {
        assert_eq!(u32_at(&[1, 2, 3], 0), 0);
        assert_eq!(u16_at(&[1, 2, 3], 1), 0x0302);
        assert_eq!(u64_at(&[], usize::MAX), 0);
    }
}
