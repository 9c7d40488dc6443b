//! Members of a Linux RAID (md): where the array's bytes lie in one, as its superblock has it (`struct
//! mdp_superblock_1` and, of version 0.90, `mdp_superblock_s` of the kernel's `md_p.h`). Numbers in it are
//! little-endian.
//!
//! Every member of a RAID 1 has all of the array's bytes. Where the superblock lies behind them (versions
//! 0.90 and 1.0), they begin where the member does, and what is in them is found without it: [`behind`] says
//! what the superblock then says of them. That another member has changes which this one missed, no
//! superblock says but the other's.

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The first one's place in the source.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
    /// What is known of them.
    pub standing: Standing,
}

/// What is known of a member's bytes by its own superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// As of when they are, in words.
    pub known: String,
    /// In what they may be other than the array's.
    pub unsure: Option<String>,
}

impl Standing {
    /// As of an event, with all alike up to a sector; `None`: throughout.
    fn of(events: u64, alike: Option<u64>) -> Standing {
        let known = format!(
            "a member of a RAID 1 as of event {events}: whether another has later ones is not seen in it \
             (mdadm --examine)"
        );
        let unsure = alike.map(|sectors| match sectors {
            0 => "a member of a RAID 1 that was not stopped: what was written last may differ in another".into(),
            sectors => format!(
                "a member of a RAID 1 that was being resynchronized, at byte {}: what lies behind may differ in \
                 another",
                sectors.saturating_mul(SECTOR)
            ),
        });
        Standing { known, unsure }
    }
}

/// Whether `len` bytes at `offset` of a source are a member of an array, and where the array's lie in it.
///
/// # Errors
/// [`Error::Unsupported`] with the level of another array than RAID 1, and for a member that has not all of
/// the array; [`Error::Corrupt`], [`Error::Read`].
pub async fn member<S: Source>(source: &S, offset: u64, len: u64) -> Result<Option<Member>, Error> {
    match at_beginning(source, offset, len).await? {
        None => at_end(source, offset, len, 0).await,
        found => Ok(found),
    }
}

/// The same by a superblock before the array's bytes alone (versions 1.1 and 1.2).
pub(crate) async fn at_beginning<S: Source>(
    source: &S,
    offset: u64,
    len: u64,
) -> Result<Option<Member>, Error> {
    for within in [0, BLOCK] {
        if let Some(found) = current(source, within, offset, len).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What is known of the first `used` of `len` bytes at `offset` of a source, by the superblock of a member
/// (versions 0.90 and 1.0) that lies behind them; `None` where there is none.
///
/// # Errors
/// [`Error::Read`].
pub async fn behind<S: Source>(
    source: &S,
    offset: u64,
    len: u64,
    used: u64,
) -> Result<Option<Standing>, Error> {
    match at_end(source, offset, len, used).await {
        Ok(found) => Ok(found.map(|member| member.standing)),
        // As of a table that is left from before, no more is said of a volume that can be read.
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(Error::Unsupported(why)) => {
            let unsure = format!("what is read may be old or in part another's: it lies in {why}");
            Ok(Some(Standing { known: String::new(), unsure: Some(unsure) }))
        }
        Err(error) => Err(error),
    }
}

/// The member by a superblock of versions 1.0 to 1.2 at a place in it.
async fn current<S: Source>(source: &S, within: u64, offset: u64, len: u64) -> Result<Option<Member>, Error> {
    if within.saturating_add(BLOCK) > len {
        return Ok(None);
    }
    let block = read(source, offset.saturating_add(within), BLOCK).await?;
    match (le32(&block, 0), le32(&block, 4)) {
        (Some(MAGIC), Some(1)) => superblock(&block, within, offset, len).map(Some),
        _ => Ok(None),
    }
}

/// The member by a superblock at its end, behind `used` bytes.
async fn at_end<S: Source>(source: &S, offset: u64, len: u64, used: u64) -> Result<Option<Member>, Error> {
    let last = ((len / SECTOR).saturating_sub(16) & !7).saturating_mul(SECTOR);
    if last >= used
        && let Some(found) = current(source, last, offset, len).await?
    {
        return Ok(Some(found));
    }
    // Version 0.90: in the last 64 KiB that are aligned so.
    let within = (len & !0xffff).checked_sub(0x1_0000).filter(|within| *within >= used);
    let Some(within) = within else { return Ok(None) };
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
    // Its own entry of the array's devices, the last: 1, faulty; 2, active; 4, in sync.
    match (word(3984) & 7, word(3980) < word(40)) {
        (6, true) => {}
        (state, _) if state & 1 != 0 => return failed(),
        _ => return spare(),
    }
    // As the kernel: how far a resync came counts only as of the last event.
    let (events, checkpoint) = (le64(&block, 156).unwrap_or(0), le64(&block, 164).unwrap_or(0));
    let synced = if events == checkpoint { u64::from(word(172)) } else { 0 };
    let alike = (word(132) & 1 == 0).then_some(synced);
    let standing = Standing::of(events, alike);
    Ok(Some(Member { offset, len: within.min(u64::from(word(32)).saturating_mul(1024)), standing }))
}

fn failed<T>() -> Result<T, Error> {
    refused("a member of a RAID 1 that has failed")
}

fn spare<T>() -> Result<T, Error> {
    refused("a spare device of a RAID 1, which has nothing of it")
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
        Some(0xfffe) => return failed(),
        _ => return spare(),
    }
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
    let (first, room, size) = (bytes(long(128)), bytes(long(136)), bytes(long(80)));
    let size = if size == 0 { room } else { size.min(room) };
    if first.checked_add(size).is_none_or(|end| end > len) || size == 0 {
        return Err(bad(format!("{size} bytes of data at {first}, the member has {len}")));
    }
    let alike = Some(long(208)).filter(|sectors| *sectors != u64::MAX);
    let standing = Standing::of(long(200), alike);
    Ok(Member { offset: offset.saturating_add(first), len: size, standing })
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
        put(200, &17u64.to_le_bytes());
        put(208, &u64::MAX.to_le_bytes());
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
        let standing = Standing::of(17, None);
        let data = Member { offset: (1 << 20) + (64 << 10), len: 1 << 20, standing };
        assert_eq!(of(|_| ()).unwrap(), data);
        let unsure = |change| of(change).unwrap().standing.unsure.unwrap();
        assert!(unsure(|block| block[208..216].fill(0)).contains("was not stopped"));
        assert!(unsure(|block| block[210..216].fill(0)).contains("at byte 33553920: "));
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
