//! Fields at byte offsets, little-endian and (a journal's) big-endian, and conversions that cannot wrap.

/// The `u16` at byte `at`.
pub(super) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<2>()?;
    Some(u16::from_le_bytes(*field))
}

/// The `u32` at byte `at`.
pub(super) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

/// Writes a `u16` at byte `at`; `None` where there is no room.
pub(super) fn put16(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut::<2>()? = value.to_le_bytes();
    Some(())
}

/// Writes a `u32` at byte `at`; `None` where there is no room.
pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut::<4>()? = value.to_le_bytes();
    Some(())
}

/// The big-endian `u16` at byte `at`.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<2>()?;
    Some(u16::from_be_bytes(*field))
}

/// The big-endian `u32` at byte `at`.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_be_bytes(*field))
}

/// The big-endian `u64` at byte `at`.
pub(super) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(*field))
}

/// Two fields, low and high half of one number.
pub(super) fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high).wrapping_shl(32)
}

/// A number as an index; one that no memory holds becomes one that no slice has.
pub(super) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length or an index as a number on the volume.
pub(super) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
