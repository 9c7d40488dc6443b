//! Members of a Linux RAID (md): where the array's bytes lie in one, as its superblock has it (`struct
//! mdp_superblock_1` of the kernel's `md_p.h`). Numbers in it are little-endian.
//!
//! Every member of a RAID 1 has all of the array's bytes. Where the superblock lies behind them (versions
//! 0.90 and 1.0), they begin where the member does, and what is in them is found without it.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::partition::{corrupt, le32, le64, read};
use crate::{Error, Source};

const MAGIC: u32 = 0xa92b_4efc;
const SECTOR: u64 = 512;
/// Bytes of a superblock at most, with the roles of its array's devices.
const BLOCK: u64 = 4096;
/// Bytes before the roles.
const FIXED: usize = 256;

const RECOVERY: u32 = 1 << 1;
const RESHAPE: u32 = 1 << 2;
const BAD_BLOCKS: u32 = 1 << 3;

/// The array's bytes in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The first one's place in the source.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
}

/// Whether `len` bytes at `offset` of a source are a member of an array, and where the array's lie in it.
///
/// # Errors
/// [`Error::Unsupported`] with the level of another array than RAID 1, and for a member that has not all of
/// the array; [`Error::Corrupt`], [`Error::Read`].
pub async fn member<S: Source>(source: &S, offset: u64, len: u64) -> Result<Option<Member>, Error> {
    // Where the superblock of versions 1.1, 1.2 and 1.0 lies.
    let last = (len / SECTOR).saturating_sub(16) & !7;
    for within in [0, BLOCK, last.saturating_mul(SECTOR)] {
        if within.saturating_add(BLOCK) > len {
            continue;
        }
        let at = offset.saturating_add(within);
        let block = read(source, at, BLOCK).await?;
        if le32(&block, 0) == Some(MAGIC) && le32(&block, 4) == Some(1) {
            return superblock(&block, within, offset, len).map(Some);
        }
    }
    // Version 0.90: in the last 64 KiB that are aligned so.
    let Some(within) = (len & !0xffff).checked_sub(0x1_0000) else { return Ok(None) };
    let at = offset.saturating_add(within);
    let block = read(source, at, BLOCK).await?;
    let word = |at| le32(&block, at).unwrap_or(0);
    if (word(0), word(4), word(8)) != (MAGIC, 0, 90) {
        return Ok(None);
    }
    if checksum(&block, 152) != word(152) {
        return Err(corrupt("RAID superblock: its checksum does not match".into(), at));
    }
    is_mirror(word(28))?;
    Ok(Some(Member { offset, len: within.min(u64::from(word(32)).saturating_mul(1024)) }))
}

fn refused<T>(what: &str) -> Result<T, Error> {
    let why = "mdadm --assemble --readonly makes a block device of the array, which can be read";
    Err(Error::Unsupported(format!("{what}: {why}")))
}

/// Refuses another level than 1, by its name.
fn is_mirror(level: u32) -> Result<(), Error> {
    match i32::from_le_bytes(level.to_le_bytes()) {
        1 => Ok(()),
        -1 => refused("a member of a linear array, which is not read"),
        -4 => refused("a path of a multipath array, which is not read"),
        level => refused(&format!("a member of a RAID {level}, of which only all together are read")),
    }
}

fn superblock(block: &[u8], within: u64, offset: u64, len: u64) -> Result<Member, Error> {
    let at = offset.saturating_add(within);
    let bad = |what: String| corrupt(format!("RAID superblock: {what}"), at);
    let word = |at| le32(block, at).unwrap_or(0);
    let long = |at| le64(block, at).unwrap_or(0);
    let devices = usize::try_from(word(220)).unwrap_or(usize::MAX);
    let end = devices.saturating_mul(2).saturating_add(FIXED);
    let Some(covered) = block.get(..end) else { return Err(bad(format!("{devices} devices"))) };
    if checksum(covered, 216) != word(216) {
        return Err(bad("its checksum does not match".into()));
    }
    if long(144).checked_mul(SECTOR) != Some(within) {
        return Err(bad("it lies elsewhere than it says".into()));
    }
    is_mirror(word(72))?;
    let features = word(8);
    if features & RECOVERY != 0 {
        return refused("a member of a RAID 1 that has not all of it: it was being rebuilt");
    }
    if features & RESHAPE != 0 {
        return refused("a member of an array that was being reshaped");
    }
    if features & BAD_BLOCKS != 0 {
        return refused("a member of a RAID 1 that has bad blocks");
    }
    let number = usize::try_from(word(160)).unwrap_or(usize::MAX);
    let role = covered.get(FIXED..).unwrap_or(&[]).as_chunks::<2>().0.get(number);
    match role.map(|role| u16::from_le_bytes(*role)) {
        Some(role) if role < 0xfffd => {}
        Some(0xfffe) => return refused("a member of a RAID 1 that has failed"),
        _ => return refused("a spare device of a RAID 1, which has nothing of it"),
    }
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
    let (first, room, size) = (bytes(long(128)), bytes(long(136)), bytes(long(80)));
    let size = if size == 0 { room } else { size.min(room) };
    if first.checked_add(size).is_none_or(|end| end > len) || size == 0 {
        return Err(bad(format!("{size} bytes of data at {first}, the member has {len}")));
    }
    Ok(Member { offset: offset.saturating_add(first), len: size })
}

/// The sum of its words, but for that at its own place, with what goes over added below.
fn checksum(covered: &[u8], own: usize) -> u32 {
    let (words, rest) = covered.as_chunks::<4>();
    let words = words.iter().enumerate().filter(|(nr, _)| nr.checked_mul(4) != Some(own));
    let mut sum = words.fold(0u64, |sum, (_, word)| sum.wrapping_add(u32::from_le_bytes(*word).into()));
    if let Some(half) = rest.first_chunk::<2>() {
        sum = sum.wrapping_add(u16::from_le_bytes(*half).into());
    }
    let [a, b, c, d, e, f, g, h] = sum.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).wrapping_add(u32::from_le_bytes([e, f, g, h]))
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a test's own bytes"
)]
mod tests {
    use super::*;

    /// The superblock of a member: of 1 MiB of data behind the first 64 KiB.
    fn block(within: u64, change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut block = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_le_bytes());
        put(4, &1u32.to_le_bytes());
        put(72, &1u32.to_le_bytes());
        put(80, &2048u64.to_le_bytes());
        put(92, &2u32.to_le_bytes());
        put(128, &128u64.to_le_bytes());
        put(136, &4096u64.to_le_bytes());
        put(144, &(within / 512).to_le_bytes());
        put(160, &1u32.to_le_bytes());
        put(220, &3u32.to_le_bytes());
        put(256, &[1, 0, 0, 0, 0xff, 0xff]);
        change(&mut block);
        let sum = checksum(&block[..262], 216);
        block[216..220].copy_from_slice(&sum.to_le_bytes());
        block
    }

    #[test]
    fn what_a_superblock_says() {
        let of = |change: fn(&mut [u8])| superblock(&block(4096, change), 4096, 1 << 20, 4 << 20);
        let data = Member { offset: (1 << 20) + (64 << 10), len: 1 << 20 };
        assert_eq!(of(|_| ()).unwrap(), data);
        // Never more than the member has room for.
        assert_eq!(of(|block| block[80..88].fill(0xff)).unwrap().len, 2 << 20);
        for (change, says) in [
            ((|block| block[72] = 5) as fn(&mut [u8]), "a member of a RAID 5, "),
            (|block| block[72..76].fill(0xff), "a member of a linear array"),
            (|block| block[8] = 2, "it was being rebuilt"),
            (|block| block[8] = 4, "was being reshaped"),
            (|block| block[8] = 8, "has bad blocks"),
            (|block| block[160] = 2, "a spare device"),
            (|block| block[258..260].copy_from_slice(&[0xfe, 0xff]), "that has failed"),
            (|block| block[160] = 9, "a spare device"),
            (|block| block[144] = 0, "it lies elsewhere than it says at byte 1052672"),
            (|block| block[133] = 1, "1048576 bytes of data at 562949953486848, the member has 4194304"),
            (|block| block[221] = 0xff, "65283 devices"),
        ] {
            let refused = of(change).map(|_| ()).map_err(|error| error.to_string());
            assert!(refused.as_ref().is_err_and(|error| error.contains(says)), "{says}: {refused:?}");
        }
        let mut other = block(4096, |_| ());
        other[130] ^= 1;
        let refused = superblock(&other, 4096, 0, 4 << 20).unwrap_err().to_string();
        assert!(refused.contains("its checksum does not match"), "{refused}");
    }
}
