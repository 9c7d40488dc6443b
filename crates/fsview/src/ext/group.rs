//! Group descriptors: where a group's part of the inode table lies, and what of it is in use.
//!
//! Descriptor blocks follow the superblock, or with meta_bg each lies in the first group that it describes.

use super::Volume;
use super::bytes::{halves, index, le16, le32, wide};
use super::csum::crc16;
use super::feature::{compat, incompat, ro_compat};
use super::superblock::Superblock;
use crate::{Error, Source};

impl Superblock {
    /// The volume's block in which descriptor block `nr` lies.
    fn descriptor_block(&self, nr: u32, per_block: u32) -> Option<u64> {
        // The superblock's own block: 1 where a block is 1 KiB, else 0, also on bigalloc with its first data
        // block 0.
        let small = self.block_shift == 10;
        if !self.features.incompat(incompat::META_BG) || nr < self.first_meta_bg {
            return u64::from(small).checked_add(1)?.checked_add(u64::from(nr));
        }
        let group = nr.checked_mul(per_block)?;
        let first = u64::from(group)
            .checked_mul(u64::from(self.blocks_per_group))?
            .checked_add(u64::from(self.first_data_block))?;
        let boot = small && nr == 0 && self.first_data_block == 0;
        first.checked_add(u64::from(self.has_super(group)))?.checked_add(u64::from(boot))
    }

    fn descriptors_per_block(&self) -> u32 {
        self.block_size().checked_div(u32::from(self.descriptor_size)).unwrap_or(1).max(1)
    }

    /// Blocks behind the superblock and each of its copies: descriptors, and room for more of them.
    fn descriptor_blocks(&self) -> u64 {
        let groups = self.inodes.checked_div(self.inodes_per_group).unwrap_or(0);
        let all = groups.div_ceil(self.descriptors_per_block());
        let meta = self.features.incompat(incompat::META_BG);
        let here = if meta { all.min(self.first_meta_bg) } else { all };
        u64::from(here).wrapping_add(u64::from(self.reserved_descriptor_blocks))
    }

    /// Blocks with which a group begins that belong to the file system itself, as the kernel counts them
    /// (`ext4_num_base_meta_blocks`). `descriptors`: of [`Superblock::descriptor_blocks`].
    fn head_blocks(&self, group: u32, descriptors: u64) -> u64 {
        let copy = u64::from(self.has_super(group));
        let per_block = self.descriptors_per_block();
        let meta_group = group.checked_div(per_block).unwrap_or(0);
        if self.features.incompat(incompat::META_BG) && meta_group >= self.first_meta_bg {
            // A block of descriptors lies in the first two groups and the last of those that it describes.
            let inside = group.checked_rem(per_block).unwrap_or(0);
            return copy.wrapping_add(u64::from(inside <= 1 || inside == per_block.wrapping_sub(1)));
        }
        // The superblock is in block 1 of a volume of 1 KiB blocks whose groups begin at block 0.
        let shifted = u64::from(group == 0 && self.block_shift == 10 && self.first_data_block == 0);
        if copy == 0 { 0 } else { copy.wrapping_add(shifted).wrapping_add(descriptors) }
    }

    /// Whether any of these blocks, which the volume has, belongs to the superblock, a copy, or the
    /// descriptors behind it.
    pub(super) fn is_reserved(&self, start: u64, blocks: u64) -> bool {
        let per_group = u64::from(self.blocks_per_group);
        let inside = start.saturating_sub(u64::from(self.first_data_block));
        let last = inside.saturating_add(blocks).saturating_sub(1);
        let group = |block: u64| block.checked_div(per_group).unwrap_or(0);
        let descriptors = self.descriptor_blocks();
        // An extent of the most blocks spans few groups of any size that mke2fs makes.
        (group(inside)..=group(last)).take(64).any(|nr| {
            let head = nr.saturating_mul(per_group);
            let from = inside.max(head).saturating_sub(head);
            // No head is longer than a superblock, one block that shifts it, one of a meta group, and these:
            // mostly no more is asked.
            from < descriptors.wrapping_add(3)
                && u32::try_from(nr).is_ok_and(|nr| from < self.head_blocks(nr, descriptors))
        })
    }

    /// Whether a group begins with a superblock or a copy.
    fn has_super(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.compat(compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group);
        }
        if group == 1 || !self.features.ro_compat(ro_compat::SPARSE_SUPER) {
            return true;
        }
        [3u32, 5, 7].iter().any(|base| is_power(group, *base))
    }
}

fn is_power(value: u32, base: u32) -> bool {
    let mut power = base;
    while power < value {
        match power.checked_mul(base) {
            Some(next) => power = next,
            None => return false,
        }
    }
    power == value
}

/// What a descriptor says of its group's inodes.
pub(super) struct Group {
    /// The first block of its inode table.
    pub(super) inode_table: u64,
    /// The block whose bits say which inodes are in use.
    pub(super) inode_bitmap: u64,
    /// How many inodes, from its first on, have ever been in use.
    pub(super) inodes: u32,
}

/// `bg_flags`: no inode of the group has ever been in use.
const INODES_UNINIT: u16 = 1;

impl Volume {
    /// A group's descriptor, its checksum verified.
    pub(super) async fn group<S: Source>(&self, source: &S, group: u32) -> Result<Group, Error> {
        let sb = &self.sb;
        let size = u32::from(sb.descriptor_size);
        let per_block = sb.block_size().checked_div(size).unwrap_or(1);
        let nr = group.checked_div(per_block).unwrap_or(0);
        let inside =
            index(u64::from(group.checked_rem(per_block).unwrap_or(0)).wrapping_mul(u64::from(size)));
        let overflow =
            || Error::Corrupt { what: format!("group {group} lies nowhere"), at: super::superblock::AT };
        let block_nr = sb.descriptor_block(nr, per_block).ok_or_else(overflow)?;
        let block = self.block(source, block_nr, "group descriptors").await?;
        let at = self.byte_of(block_nr).wrapping_add(wide(inside));
        let corrupt = |what: String| Error::Corrupt { what, at };
        let raw = block
            .get(inside..)
            .and_then(|rest| rest.get(..usize::from(sb.descriptor_size)))
            .ok_or_else(|| corrupt(format!("descriptor of group {group} is cut short")))?;
        let (Some(table), Some(bitmap), Some(flags), Some(unused), Some(stored)) =
            (le32(raw, 0x08), le32(raw, 0x04), le16(raw, 0x12), le16(raw, 0x1C), le16(raw, 0x1E))
        else {
            return Err(corrupt(format!("descriptor of group {group} is cut short")));
        };
        let high = |at: usize| if raw.len() >= 64 { le32(raw, at).unwrap_or(0) } else { 0 };
        let unused_high = if raw.len() >= 64 { le16(raw, 0x32).unwrap_or(0) } else { 0 };

        let before = raw.get(..0x1E).unwrap_or(&[]);
        let after = raw.get(0x20..).unwrap_or(&[]);
        let computed = if let Some(seed) = sb.seed {
            Some(seed.over_u32(group).over(before).over(&[0, 0]).over(after).low())
        } else {
            sb.descriptor_crc16.map(|crc| crc16(crc16(crc16(crc, &group.to_le_bytes()), before), after))
        };
        if let Some(computed) = computed.filter(|c| *c != stored) {
            let what =
                format!("checksum {stored:04x} of group {group}'s descriptor, computed {computed:04x}");
            return Err(corrupt(what));
        }
        // Without checksums nobody keeps count.
        let unused = match (computed, flags & INODES_UNINIT != 0) {
            (None, _) => 0,
            (Some(_), true) => u32::MAX,
            (Some(_), false) => u32::from(unused) | u32::from(unused_high).wrapping_shl(16),
        };
        Ok(Group {
            inode_table: halves(table, high(0x28)),
            inode_bitmap: halves(bitmap, high(0x24)),
            inodes: sb.inodes_per_group.saturating_sub(unused),
        })
    }
}
