//! The superblock (1024 bytes at byte 1024): geometry, features, state.
//!
//! It is checked once, when the volume is opened; everything after that relies on what [`Superblock::parse`]
//! holds true: sizes are powers of two within limits, the groups cover the inodes and the volume lies within
//! the source. Backup superblocks are not used: a damaged primary is an error.

use super::bytes::{halves, le16, le32};
use super::csum::{Crc, crc16};
use super::feature::{Features, compat, incompat, ro_compat};
use super::hash::{Seed, Version};
use crate::{Error, Recovery, VolumeInfo};

/// Where it lies, and how long it is.
pub(super) const AT: u64 = 1024;
pub(super) const LEN: u32 = 1024;

/// What the superblock says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Room behind the descriptors, for those of a larger volume.
    pub(super) reserved_descriptor_blocks: u16,
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
    /// What new indexes are made with, as the version byte in their roots.
    pub(super) hash_default: u8,
    pub(super) journal: JournalPlace,
    state: VolumeState,
    label: String,
    pub(super) uuid: [u8; 16],
}

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalPlace {
    /// Its inode; 0: on a device of its own.
    pub(super) inode: u32,
    /// That device's number, as the kernel wrote it; 0: on this volume.
    pub(super) device: u32,
    /// That device's UUID.
    pub(super) uuid: [u8; 16],
}

/// What says nothing of where anything lies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VolumeState {
    free_inodes: u32,
    clean: bool,
    errors: bool,
    error_count: u32,
    orphans: bool,
    /// Mounts write data without regard to the journal (data=writeback) unless they are told otherwise.
    writeback: bool,
}

/// `EXT4_DEFM_JMODE` of the default mount options; all of it: writeback.
const JOURNAL_MODE: u32 = 0x60;

fn corrupt(what: impl Into<String>) -> Error {
    Error::Corrupt { what: what.into(), at: AT }
}

fn cut_short() -> Error {
    corrupt("the superblock is cut short")
}

fn u16_at(raw: &[u8], at: usize) -> Result<u16, Error> {
    le16(raw, at).ok_or_else(cut_short)
}

fn u32_at(raw: &[u8], at: usize) -> Result<u32, Error> {
    le32(raw, at).ok_or_else(cut_short)
}

/// The features, all of which this view knows.
fn features(raw: &[u8], dynamic: bool) -> Result<Features, Error> {
    if !dynamic {
        return Ok(Features { compat: 0, incompat: 0, ro_compat: 0 });
    }
    let features =
        Features { compat: u32_at(raw, 0x5C)?, incompat: u32_at(raw, 0x60)?, ro_compat: u32_at(raw, 0x64)? };
    let refused = features.refused();
    if refused.is_empty() { Ok(features) } else { Err(Error::Unsupported(refused.join(", "))) }
}

/// The seed of metadata checksums, where there are any; the superblock's own is then right.
fn seed(raw: &[u8], features: Features, uuid: &[u8; 16]) -> Result<Option<Crc>, Error> {
    if !features.ro_compat(ro_compat::METADATA_CSUM) {
        return Ok(None);
    }
    let kind = *raw.get(0x175).ok_or_else(cut_short)?;
    if kind != 1 {
        return Err(Error::Unsupported(format!("metadata checksums of type {kind}")));
    }
    let covered = raw.get(..0x3FC).ok_or_else(cut_short)?;
    let (stored, computed) = (u32_at(raw, 0x3FC)?, Crc::START.over(covered).0);
    if stored != computed {
        return Err(corrupt(format!("superblock checksum {stored:08x}, computed {computed:08x}")));
    }
    Ok(Some(match features.incompat(incompat::CSUM_SEED) {
        true => Crc(u32_at(raw, 0x270)?),
        false => Crc::START.over(uuid),
    }))
}

/// log2 of the bytes in a block, and the 512-byte units in a cluster.
fn units(raw: &[u8], features: Features) -> Result<(u32, u64), Error> {
    let log_block = u32_at(raw, 0x18)?;
    if log_block > 6 {
        return Err(corrupt(format!("block size of 2^{log_block} KiB")));
    }
    let log_cluster = match features.ro_compat(ro_compat::BIGALLOC) {
        true => u32_at(raw, 0x1C)?,
        false => log_block,
    };
    if !(log_block..=20).contains(&log_cluster) {
        return Err(corrupt(format!("cluster size of 2^{log_cluster} KiB")));
    }
    Ok((log_block.wrapping_add(10), 2u64.wrapping_shl(log_cluster)))
}

fn journal(raw: &[u8]) -> Result<JournalPlace, Error> {
    let uuid = raw.get(0xD0..).and_then(<[u8]>::first_chunk::<16>).ok_or_else(cut_short)?;
    Ok(JournalPlace { inode: u32_at(raw, 0xE0)?, device: u32_at(raw, 0xE4)?, uuid: *uuid })
}

fn state(raw: &[u8], features: Features) -> Result<VolumeState, Error> {
    let state = u16_at(raw, 0x3A)?;
    // The superblock's own options for mounts, of at most 64 bytes.
    let options = raw.get(0x200..0x240).ok_or_else(cut_short)?.split(|b| *b == 0).next().unwrap_or_default();
    let mut options = options.split(|b| *b == b',');
    let orphans = u32_at(raw, 0xE8)? != 0 || features.ro_compat(ro_compat::ORPHAN_PRESENT);
    Ok(VolumeState {
        free_inodes: u32_at(raw, 0x10)?,
        clean: state & 1 != 0,
        errors: state & 2 != 0,
        error_count: u32_at(raw, 0x194)?,
        orphans: orphans || state & 4 != 0,
        writeback: u32_at(raw, 0x100)? & JOURNAL_MODE == JOURNAL_MODE
            || options.any(|o| o == b"data=writeback"),
    })
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
        let dynamic = u32_at(raw, 0x4C)? >= 1;
        let features = features(raw, dynamic)?;
        let uuid = raw.get(0x68..).and_then(<[u8]>::first_chunk::<16>).ok_or_else(cut_short)?;
        let seed = seed(raw, features, uuid)?;
        let gdt_csum = seed.is_none() && features.ro_compat(ro_compat::GDT_CSUM);
        let (block_shift, cluster_sectors) = units(raw, features)?;
        let high = features.incompat(incompat::BIT64);
        let mut hash_seed = [0; 4];
        for (word, at) in hash_seed.iter_mut().zip([0xEC, 0xF0, 0xF4, 0xF8]) {
            *word = u32_at(raw, at)?;
        }
        let label = raw.get(0x78..0x88).ok_or_else(cut_short)?.split(|b| *b == 0).next().unwrap_or_default();
        let superblock = Superblock {
            features,
            block_shift,
            blocks: halves(u32_at(raw, 0x04)?, if high { u32_at(raw, 0x150)? } else { 0 }),
            first_data_block: u32_at(raw, 0x14)?,
            blocks_per_group: u32_at(raw, 0x20)?,
            inodes: u32_at(raw, 0x00)?,
            inodes_per_group: u32_at(raw, 0x28)?,
            inode_size: if dynamic { u16_at(raw, 0x58)? } else { 128 },
            descriptor_size: if high { u16_at(raw, 0xFE)? } else { 32 },
            cluster_sectors,
            first_meta_bg: u32_at(raw, 0x104)?,
            reserved_descriptor_blocks: if dynamic { u16_at(raw, 0xCE)? } else { 0 },
            backup_groups: [u32_at(raw, 0x24C)?, u32_at(raw, 0x250)?],
            first_inode: if dynamic { u32_at(raw, 0x54)? } else { 11 },
            hidden: [u32_at(raw, 0x240)?, u32_at(raw, 0x244)?, u32_at(raw, 0x26C)?, u32_at(raw, 0x280)?],
            seed,
            descriptor_crc16: gdt_csum.then(|| crc16(u16::MAX, uuid)),
            hash_seed: Seed::new(hash_seed),
            hash_unsigned: u32_at(raw, 0x160)? & 2 != 0,
            hash_default: *raw.get(0xFC).ok_or_else(cut_short)?,
            journal: journal(raw)?,
            state: state(raw, features)?,
            label: String::from_utf8_lossy(label).into_owned(),
            uuid: *uuid,
        };
        superblock.check(volume_len)?;
        Ok(superblock)
    }

    /// Whether the sizes are possible, the groups cover the inodes, and all lies on the volume.
    fn check(&self, volume_len: u64) -> Result<(), Error> {
        let (blocks, block_size) = (self.blocks, self.block_size());
        let len = blocks.wrapping_shl(self.block_shift);
        if len.wrapping_shr(self.block_shift) != blocks || len > volume_len {
            return Err(corrupt(format!(
                "the superblock counts {blocks} blocks of {block_size} bytes, the volume has {volume_len} bytes"
            )));
        }
        let size = self.inode_size;
        if !size.is_power_of_two() || size < 128 || u32::from(size) > block_size {
            return Err(corrupt(format!("inode size of {size} bytes")));
        }
        let size = self.descriptor_size;
        if !size.is_power_of_two() || !(32..=1024).contains(&size) {
            return Err(corrupt(format!("group descriptor size of {size} bytes")));
        }
        let reserved = u32::from(self.reserved_descriptor_blocks);
        if reserved > block_size.wrapping_shr(2) {
            return Err(corrupt(format!("{reserved} blocks are kept for group descriptors")));
        }
        // A group's bitmaps are one block each: of inodes always, of clusters (at most 2^30 bytes each) else.
        let (inodes, per_group) = (self.inodes, self.inodes_per_group);
        if per_group == 0 || per_group > block_size.wrapping_mul(8) {
            return Err(corrupt(format!("{per_group} inodes per group")));
        }
        let first = self.first_data_block;
        let Some(data_blocks) = blocks.checked_sub(u64::from(first)).filter(|n| *n > 0) else {
            return Err(corrupt(format!("first data block {first} of {blocks}")));
        };
        if self.blocks_per_group == 0 {
            return Err(corrupt("no blocks per group"));
        }
        let groups = data_blocks.div_ceil(u64::from(self.blocks_per_group));
        if groups.checked_mul(u64::from(per_group)) != Some(u64::from(inodes)) {
            return Err(corrupt(format!("{inodes} inodes in {groups} groups of {per_group}")));
        }
        Ok(())
    }

    /// Whether everything that inodes and blocks are found and checked by is the same.
    pub(super) fn is_laid_out_as(&self, other: &Superblock) -> bool {
        let told = Superblock { state: other.state.clone(), label: other.label.clone(), ..self.clone() };
        told == *other
    }

    /// Bytes in a block.
    pub(super) fn block_size(&self) -> u32 {
        1u32.wrapping_shl(self.block_shift)
    }

    /// The hash that an index root's version byte means on this volume.
    pub(super) fn hash_version(&self, version: u8) -> Option<Version> {
        Version::new(version, self.hash_unsigned)
    }

    /// For [`crate::Volume::info`]. `recovery`: what of the journal is shown; `None`: only what lies at home.
    pub(super) fn info(&self, recovery: Option<Recovery>) -> VolumeInfo {
        let needs_recovery = self.features.incompat(incompat::RECOVER) && recovery.is_none();
        let mut warnings = Vec::new();
        if self.state.errors || self.state.error_count > 0 {
            let n = self.state.error_count;
            warnings.push(format!("the kernel recorded errors on this volume ({n} counted); run e2fsck"));
        }
        if self.state.orphans {
            warnings
                .push("files that were unlinked while open, or half truncated, await clean-up".to_string());
        }
        let stale = match self.state.clean {
            _ if needs_recovery => Some(
                "its journal needs recovery, and home locations alone are shown, which may be older than what \
                 was last made durable",
            ),
            // Without a journal, the home locations of metadata may be older than those of data.
            false if !self.features.compat(compat::HAS_JOURNAL) => {
                Some("it is mounted or was not unmounted cleanly, and has no journal")
            }
            // What was freed is used again before the journal says so.
            _ if self.state.writeback && self.features.incompat(incompat::RECOVER) => {
                Some("it is mounted or was not unmounted cleanly, with data=writeback")
            }
            _ => None,
        };
        VolumeInfo {
            file_system: self.features.file_system(),
            label: self.label.clone(),
            uuid: self.uuid,
            block_size: self.block_size(),
            blocks: self.blocks,
            inodes: u64::from(self.inodes),
            inodes_used: u64::from(self.inodes.saturating_sub(self.state.free_inodes)),
            features: self.features.names(),
            needs_recovery,
            recovery: recovery.unwrap_or_default(),
            stale,
            warnings,
        }
    }
}
