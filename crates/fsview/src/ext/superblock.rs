//! The superblock (1024 bytes at byte 1024): geometry, features, state.
//!
//! It is checked once, when the volume is opened; everything after that relies on what [`Superblock::parse`] holds true:
//! sizes are powers of two within limits, the groups cover the inodes and the volume lies within the source.
//! Backup superblocks are not used: a damaged primary is an error.

use super::bytes::{halves, le16, le32};
use super::csum::{Crc, crc16};
use super::feature::{Features, compat, incompat, ro_compat};
use super::hash::{Seed, Version};
use crate::{Error, VolumeInfo};

/// Where it lies, and how long it is.
pub(super) const AT: u64 = 1024;
pub(super) const LEN: u32 = 1024;

/// What the superblock says, checked.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) features: Features,
    /// log2 of the bytes in a block: 10 to 16.
    pub(super) block_shift: u32,
    pub(super) blocks: u64,
    pub(super) first_data_block: u32,
    pub(super) blocks_per_group: u32,
    pub(super) inodes: u32,
    pub(super) inodes_per_group: u32,
    /// Bytes in an inode: a power of two from 128 to the block size.
    pub(super) inode_size: u16,
    /// Bytes in a group descriptor: a power of two from 32 to 1024.
    pub(super) descriptor_size: u16,
    pub(super) first_meta_bg: u32,
    pub(super) backup_groups: [u32; 2],
    pub(super) first_inode: u32,
    /// 512-byte units in the smallest allocation: a block, or a cluster with bigalloc.
    pub(super) cluster_sectors: u64,
    /// Inodes of quota and orphan files, which no directory may name.
    pub(super) hidden: [u32; 4],
    /// The seed of all metadata checksums, where the volume has them.
    pub(super) seed: Option<Crc>,
    /// CRC16 of the UUID, where group descriptors carry a CRC16.
    pub(super) descriptor_crc16: Option<u16>,
    pub(super) hash_seed: Seed,
    pub(super) hash_unsigned: bool,
    state: State,
    label: String,
    uuid: [u8; 16],
}

#[derive(Clone, Debug)]
struct State {
    clean: bool,
    errors: bool,
    error_count: u32,
    orphans: bool,
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::Corrupt { what: what.into(), at: AT }
}

/// Whether the magic is there.
pub(super) fn has_magic(raw: &[u8]) -> bool {
    le16(raw, 0x38) == Some(0xEF53)
}

impl Superblock {
    /// From its 1024 bytes, on a volume of `volume_len` bytes.
    pub(super) fn parse(raw: &[u8], volume_len: u64) -> Result<Superblock, Error> {
        if !has_magic(raw) {
            return Err(Error::NoFileSystem);
        }
        Self::fields(raw, volume_len).unwrap_or_else(|| Err(corrupt("the superblock is cut short")))
    }

    /// `None` only where `raw` is shorter than a superblock.
    fn fields(raw: &[u8], volume_len: u64) -> Option<Result<Superblock, Error>> {
        let revision = le32(raw, 0x4C)?;
        let dynamic = revision >= 1;
        let mut features =
            Features { compat: le32(raw, 0x5C)?, incompat: le32(raw, 0x60)?, ro_compat: le32(raw, 0x64)? };
        if !dynamic {
            features = Features { compat: 0, incompat: 0, ro_compat: 0 };
        }
        let refused = features.refused();
        if !refused.is_empty() {
            return Some(Err(Error::Unsupported(refused.join(", "))));
        }
        let (uuid, _) = raw.get(0x68..)?.split_first_chunk::<16>()?;
        let mut seed = None;
        if features.ro_compat(ro_compat::METADATA_CSUM) {
            let kind = *raw.get(0x175)?;
            if kind != 1 {
                return Some(Err(Error::Unsupported(format!("metadata checksums of type {kind}"))));
            }
            let (stored, computed) = (le32(raw, 0x3FC)?, Crc::START.over(raw.get(..0x3FC)?).0);
            if stored != computed {
                let what = format!("superblock checksum {stored:08x}, computed {computed:08x}");
                return Some(Err(corrupt(what)));
            }
            seed = Some(match features.incompat(incompat::CSUM_SEED) {
                true => Crc(le32(raw, 0x270)?),
                false => Crc::START.over(uuid),
            });
        }
        let gdt_csum = seed.is_none() && features.ro_compat(ro_compat::GDT_CSUM);
        if features.incompat(incompat::RECOVER) && le32(raw, 0xE4)? != 0 {
            return Some(Err(Error::Unsupported("an external journal that needs recovery".into())));
        }

        let log_block = le32(raw, 0x18)?;
        if log_block > 6 {
            return Some(Err(corrupt(format!("block size of 2^{log_block} KiB"))));
        }
        let block_shift = log_block.wrapping_add(10);
        let block_size = 1u32.wrapping_shl(block_shift);
        let log_cluster = match features.ro_compat(ro_compat::BIGALLOC) {
            true => le32(raw, 0x1C)?,
            false => log_block,
        };
        if !(log_block..=20).contains(&log_cluster) {
            return Some(Err(corrupt(format!("cluster size of 2^{log_cluster} KiB"))));
        }
        let cluster_sectors = 2u64.wrapping_shl(log_cluster);
        let high = features.incompat(incompat::BIT64);
        let blocks = halves(le32(raw, 0x04)?, if high { le32(raw, 0x150)? } else { 0 });
        let first_data_block = le32(raw, 0x14)?;
        let blocks_per_group = le32(raw, 0x20)?;
        let inodes = le32(raw, 0x00)?;
        let inodes_per_group = le32(raw, 0x28)?;
        let inode_size = if dynamic { le16(raw, 0x58)? } else { 128 };
        let descriptor_size = if high { le16(raw, 0xFE)? } else { 32 };

        if blocks
            .checked_shl(block_shift)
            .is_none_or(|len| len.wrapping_shr(block_shift) != blocks || len > volume_len)
        {
            let what = format!(
                "the superblock counts {blocks} blocks of {block_size} bytes, the volume has {volume_len} bytes"
            );
            return Some(Err(corrupt(what)));
        }
        if !inode_size.is_power_of_two() || inode_size < 128 || u32::from(inode_size) > block_size {
            return Some(Err(corrupt(format!("inode size of {inode_size} bytes"))));
        }
        if !descriptor_size.is_power_of_two() || !(32..=1024).contains(&descriptor_size) {
            return Some(Err(corrupt(format!("group descriptor size of {descriptor_size} bytes"))));
        }
        // A group's bitmaps are one block each: of inodes always, of clusters (at most 2^30 bytes each) else.
        if inodes_per_group == 0 || inodes_per_group > block_size.wrapping_mul(8) {
            return Some(Err(corrupt(format!("{inodes_per_group} inodes per group"))));
        }
        let Some(data_blocks) = blocks.checked_sub(u64::from(first_data_block)).filter(|n| *n > 0) else {
            return Some(Err(corrupt(format!("first data block {first_data_block} of {blocks}"))));
        };
        if blocks_per_group == 0 {
            return Some(Err(corrupt("no blocks per group")));
        }
        let groups = data_blocks.div_ceil(u64::from(blocks_per_group));
        if groups.checked_mul(u64::from(inodes_per_group)) != Some(u64::from(inodes)) {
            let what = format!("{inodes} inodes in {groups} groups of {inodes_per_group}");
            return Some(Err(corrupt(what)));
        }

        let mut hash_seed = [0; 4];
        for (word, at) in hash_seed.iter_mut().zip([0xEC, 0xF0, 0xF4, 0xF8]) {
            *word = le32(raw, at)?;
        }
        let state = le16(raw, 0x3A)?;
        let orphans = le32(raw, 0xE8)? != 0 || features.ro_compat(ro_compat::ORPHAN_PRESENT);
        let label = raw.get(0x78..0x88)?.split(|b| *b == 0).next()?;
        Some(Ok(Superblock {
            features,
            block_shift,
            blocks,
            first_data_block,
            blocks_per_group,
            inodes,
            inodes_per_group,
            inode_size,
            descriptor_size,
            cluster_sectors,
            first_meta_bg: le32(raw, 0x104)?,
            backup_groups: [le32(raw, 0x24C)?, le32(raw, 0x250)?],
            first_inode: if dynamic { le32(raw, 0x54)? } else { 11 },
            hidden: [le32(raw, 0x240)?, le32(raw, 0x244)?, le32(raw, 0x26C)?, le32(raw, 0x280)?],
            seed,
            descriptor_crc16: gdt_csum.then(|| crc16(u16::MAX, uuid)),
            hash_seed: Seed::new(hash_seed),
            hash_unsigned: le32(raw, 0x160)? & 2 != 0,
            state: State {
                clean: state & 1 != 0,
                errors: state & 2 != 0,
                error_count: le32(raw, 0x194)?,
                orphans: orphans || state & 4 != 0,
            },
            label: String::from_utf8_lossy(label).into_owned(),
            uuid: *uuid,
        }))
    }

    /// Bytes in a block.
    pub(super) fn block_size(&self) -> u32 {
        1u32.wrapping_shl(self.block_shift)
    }

    /// The hash that an index root's version byte means on this volume.
    pub(super) fn hash_version(&self, version: u8) -> Option<Version> {
        Version::new(version, self.hash_unsigned)
    }

    /// For [`crate::Volume::info`].
    pub(super) fn info(&self) -> VolumeInfo {
        let needs_recovery = self.features.incompat(incompat::RECOVER);
        let mut warnings = Vec::new();
        if needs_recovery {
            warnings.push(
                "the journal needs recovery: this view shows what has reached home locations, which may be older \
                 than what was last made durable"
                    .to_string(),
            );
            if self.features.compat(compat::FAST_COMMIT) {
                warnings.push("the journal may hold fast commits".to_string());
            }
        }
        if self.state.errors || self.state.error_count > 0 {
            let n = self.state.error_count;
            warnings.push(format!("the kernel recorded errors on this volume ({n} counted); run e2fsck"));
        }
        if self.state.orphans {
            warnings
                .push("files that were unlinked while open, or half truncated, await clean-up".to_string());
        }
        if !self.state.clean && !self.features.compat(compat::HAS_JOURNAL) {
            warnings.push("not cleanly unmounted, and without a journal".to_string());
        }
        VolumeInfo {
            file_system: self.features.file_system(),
            label: self.label.clone(),
            uuid: self.uuid,
            block_size: self.block_size(),
            blocks: self.blocks,
            inodes: Some(u64::from(self.inodes)),
            features: self.features.names(),
            needs_recovery,
            stale: match self.state.clean {
                _ if needs_recovery => Some("its journal holds what has not reached home locations"),
                // Without a journal, the home locations of metadata may be older than those of data.
                false if !self.features.compat(compat::HAS_JOURNAL) => {
                    Some("it is mounted or was not unmounted cleanly, and has no journal")
                }
                _ => None,
            },
            warnings,
        }
    }
}
