//! The checkpoint (S: fs/f2fs/checkpoint.c): two packs, a segment apart. A pack is valid when its first and
//! its last block are sound and carry the same version; of two valid packs the higher version counts. So a
//! pack that is being written while we look does not count before its last block is there.

use std::sync::Arc;

use super::fields::{Addr, BLOCK, MAGIC, checksum, corrupt, index, number, read, u16_at, u32_at, u64_at};
use super::roll::Roll;
use super::summary;
use super::superblock::{SEGMENT, Superblock};
use crate::{Error, Source};

pub(super) const UMOUNT: u32 = 0x1;
pub(super) const COMPACT_SUMMARY: u32 = 0x4;
pub(super) const ERROR: u32 = 0x8;
pub(super) const FSCK: u32 = 0x10;
pub(super) const FASTBOOT: u32 = 0x20;
pub(super) const CRC_RECOVERY: u32 = 0x40;
pub(super) const NOCRC_RECOVERY: u32 = 0x200;
pub(super) const LARGE_NAT_BITMAP: u32 = 0x400;
pub(super) const QUOTA_NEED_FSCK: u32 = 0x800;
pub(super) const DISABLED: u32 = 0x1000;
pub(super) const RESIZE: u32 = 0x4000;

/// Where the version bitmaps begin.
const BITMAPS: u32 = 192;

/// The checkpoint that counts.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub version: u64,
    pub flags: u32,
    /// Its first block's checksum, which the nodes written after it repeat.
    pub crc: u32,
    /// Inodes in use.
    pub inodes: u32,
    /// Which copy of each NAT block counts: one bit each, most significant first.
    pub nat_bitmap: Arc<[u8]>,
    /// What is newer than the NAT's blocks: sorted by node.
    pub nat_journal: Arc<[summary::NatEntry]>,
    /// The next free block of the warm node log, where the roll-forward chain begins.
    pub warm_node: Addr,
    /// What is taken from that chain.
    pub roll: Arc<Roll>,
}

/// The fields of one checkpoint block whose checksum holds.
struct Head {
    version: u64,
    crc: u32,
    flags: u32,
    pack_blocks: u32,
    start_sum: u32,
    checksum_offset: u32,
}

impl Head {
    fn parse(block: &[u8], at: u64) -> Result<Head, Error> {
        let checksum_offset = u32_at(block, 164);
        let offset = index(checksum_offset);
        if !(BITMAPS..=4092).contains(&checksum_offset) {
            return Err(corrupt(format!("checkpoint: checksum offset {checksum_offset}"), at));
        }
        let mut computed = checksum(MAGIC, block.get(..offset).unwrap_or(&[]));
        if checksum_offset < 4092 {
            computed = checksum(computed, block.get(offset.saturating_add(4)..BLOCK).unwrap_or(&[]));
        }
        let crc = u32_at(block, offset);
        if crc != computed {
            return Err(corrupt(format!("checkpoint checksum {crc:#x}, computed {computed:#x}"), at));
        }
        Ok(Head {
            version: u64_at(block, 0),
            crc,
            flags: u32_at(block, 132),
            pack_blocks: u32_at(block, 136),
            start_sum: u32_at(block, 140),
            checksum_offset,
        })
    }
}

/// A valid pack.
struct Pack<B> {
    start: Addr,
    head: Head,
    block: B,
}

impl Checkpoint {
    /// Whether it is the same one, whatever is taken from the log behind it.
    pub fn is_as(&self, other: &Checkpoint) -> bool {
        let Checkpoint { version, flags, crc, inodes, nat_bitmap, nat_journal, warm_node, roll: _ } = self;
        let head = (other.version, other.flags, other.crc, other.inodes, other.warm_node);
        (*version, *flags, *crc, *inodes, *warm_node) == head
            && *nat_bitmap == other.nat_bitmap
            && *nat_journal == other.nat_journal
    }

    /// Reads both packs and takes the newer valid one that a power cut would leave.
    pub async fn read<S: Source>(source: &S, sb: &Superblock) -> Result<Checkpoint, Error> {
        let second_start = Addr(sb.checkpoint.0.saturating_add(SEGMENT));
        let first = pack(source, sb, sb.checkpoint).await;
        let second = pack(source, sb, second_start).await;
        let newest = match (first, second) {
            // The pack that cannot be read may be the newer one: the other's files are then of the past.
            (Err(error @ Error::Read { .. }), _) | (_, Err(error @ Error::Read { .. })) => return Err(error),
            (Ok(a), Ok(b)) if newer(b.head.version, a.head.version) => b,
            (Ok(a), _) => a,
            (Err(_), Ok(b)) => b,
            (Err(error), Err(_)) => return Err(error),
        };
        Checkpoint::of_pack(source, sb, newest).await
    }

    async fn of_pack<S: Source>(
        source: &S,
        sb: &Superblock,
        pack: Pack<S::Block>,
    ) -> Result<Checkpoint, Error> {
        let Pack { start, head, block } = pack;
        let at = start.byte();
        let (sit_bytes, nat_bytes) = (u32_at(&block, 156), u32_at(&block, 160));
        if sit_bytes != sb.sit_bitmap_bytes || nat_bytes != sb.nat_blocks / 8 {
            return Err(corrupt(format!("checkpoint: bitmaps of {sit_bytes} and {nat_bytes} bytes"), at));
        }
        let large = head.flags & LARGE_NAT_BITMAP != 0;
        if large && head.checksum_offset != BITMAPS {
            return Err(corrupt(format!("checkpoint: checksum offset {}", head.checksum_offset), at));
        }
        let begin = match (large, sb.cp_payload) {
            (true, _) => BITMAPS.saturating_add(4),
            (false, 0) => BITMAPS.saturating_add(sit_bytes),
            (false, _) => BITMAPS,
        };
        let end = begin.saturating_add(nat_bytes);
        let room = match large {
            true => sb.cp_payload.saturating_add(1).saturating_mul(4096),
            false => head.checksum_offset,
        };
        if end > room {
            return Err(corrupt(format!("checkpoint: NAT bitmap to byte {end} of {room}"), at));
        }
        let mut bytes = block.get(..BLOCK).unwrap_or(&[]).to_vec();
        for further in 1..end.div_ceil(4096) {
            let block = read(source, Addr(start.0.saturating_add(further))).await?;
            bytes.extend_from_slice(block.get(..BLOCK).unwrap_or(&[]));
        }
        let nat_bitmap: Arc<[u8]> = Arc::from(bytes.get(index(begin)..index(end)).unwrap_or(&[]));

        let last_start_sum = SEGMENT.saturating_sub(7);
        if head.start_sum <= sb.cp_payload || head.start_sum > last_start_sum {
            return Err(corrupt(format!("checkpoint: summaries begin at block {}", head.start_sum), at));
        }
        let (segment, offset) = (u32_at(&block, 40), u32::from(u16_at(&block, 70)));
        let warm_node = segment
            .checked_mul(SEGMENT)
            .and_then(|b| b.checked_add(sb.main.0))
            .and_then(|b| b.checked_add(offset))
            .map(Addr)
            .filter(|a| offset <= SEGMENT && *a <= sb.end)
            .ok_or_else(|| {
                corrupt(format!("checkpoint: warm node log at segment {segment}, block {offset}"), at)
            })?;

        let within = match (head.flags & COMPACT_SUMMARY != 0, head.flags & (UMOUNT | FASTBOOT) != 0) {
            (true, _) => Some(head.start_sum),
            (false, true) => head.pack_blocks.checked_sub(7),
            (false, false) => head.pack_blocks.checked_sub(4),
        };
        let journal_block = within
            .filter(|b| *b > sb.cp_payload && *b < head.pack_blocks)
            .map(|b| Addr(start.0.saturating_add(b)))
            .ok_or_else(|| {
                corrupt(format!("checkpoint: no room for summaries in {} blocks", head.pack_blocks), at)
            })?;
        let journal_bytes = read(source, journal_block).await?;
        let nat_journal = match head.flags & COMPACT_SUMMARY != 0 {
            true => summary::compact(&journal_bytes, journal_block, sb)?,
            false => summary::normal(&journal_bytes, journal_block, sb)?,
        };
        Ok(Checkpoint {
            version: head.version,
            flags: head.flags,
            crc: head.crc,
            inodes: u32_at(&block, 148),
            nat_bitmap,
            nat_journal: nat_journal.into(),
            warm_node,
            roll: Arc::default(),
        })
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Whether version `a` is later than `b`, as the kernel compares them: across a wrap.
fn newer(a: u64, b: u64) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 1 << 63
}

async fn pack<S: Source>(source: &S, sb: &Superblock, start: Addr) -> Result<Pack<S::Block>, Error> {
    let block = read(source, start).await?;
    let at = start.byte();
    let head = Head::parse(&block, at)?;
    if head.pack_blocks > SEGMENT || head.pack_blocks <= sb.cp_payload.saturating_add(2) {
        return Err(corrupt(format!("checkpoint: a pack of {} blocks", head.pack_blocks), at));
    }
    let last = Addr(start.0.saturating_add(head.pack_blocks).saturating_sub(1));
    let tail = Head::parse(&read(source, last).await?, last.byte())?;
    if tail.version != head.version {
        return Err(corrupt(
            format!("checkpoint pack of versions {} and {}", head.version, tail.version),
            at,
        ));
    }
    let bytes = u64::from(head.pack_blocks).saturating_mul(number(BLOCK));
    if !source.is_durable(at, bytes) {
        return Err(corrupt("checkpoint pack that is not flushed yet", at));
    }
    Ok(Pack { start, head, block })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_across_a_wrap() {
        assert!(newer(2, 1));
        assert!(!newer(1, 2));
        assert!(!newer(7, 7));
        assert!(newer(0, u64::MAX));
    }
}
