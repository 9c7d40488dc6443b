//! ext2, ext3 and ext4.
//!
//! A read passes: `superblock` (once) -> `group` (where a group's inodes lie) -> `inode` -> for a name
//! `htree` or `dir`, for bytes `extent` or `blockmap` (or the inode itself: inline data). `xattr` finds ACLs
//! and the rest of inline data, `csum` and `hash` are arithmetic. Journals are not read: the view is that of
//! home locations.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::{Error, FileKind, Ino, Inode, Run, Source, State, VolumeInfo};

mod blockmap;
mod bytes;
mod csum;
mod dir;
mod extent;
mod feature;
mod group;
mod hash;
mod htree;
mod inode;
mod map;
mod superblock;
mod xattr;

pub(crate) use inode::Body;
use superblock::Superblock;

/// A volume.
#[derive(Debug, Clone)]
pub struct Volume {
    sb: Superblock,
    info: VolumeInfo,
}

impl Volume {
    pub(crate) async fn probe<S: Source>(source: &S) -> Result<bool, Error> {
        if source.len() < superblock::AT.wrapping_add(u64::from(superblock::LEN)) {
            return Ok(false);
        }
        let raw = source.metadata(superblock::AT, superblock::LEN).await?;
        Ok(superblock::has_magic(&raw))
    }

    pub(crate) async fn open<S: Source>(source: &S, _state: State) -> Result<Volume, Error> {
        let raw = source.metadata(superblock::AT, superblock::LEN).await?;
        let sb = Superblock::parse(&raw, source.len())?;
        let info = sb.info();
        Ok(Volume { sb, info })
    }

    pub(crate) fn info(&self) -> &VolumeInfo {
        &self.info
    }

    pub(crate) fn root(&self) -> Ino {
        Ino(2)
    }

    /// The blocks of group descriptors after the first superblock.
    pub(crate) fn table(&self) -> std::ops::Range<u64> {
        let groups = u64::from(self.sb.inodes.checked_div(self.sb.inodes_per_group).unwrap_or(0));
        let bytes = groups.saturating_mul(u64::from(self.sb.descriptor_size));
        let from = self.byte_of(u64::from(self.sb.first_data_block).saturating_add(1));
        from..from.saturating_add(bytes.next_multiple_of(u64::from(self.sb.block_size())))
    }

    pub(crate) async fn map<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        from: u64,
    ) -> Result<Option<Run>, Error> {
        if inode.kind != FileKind::Regular {
            return Err(Error::WrongKind);
        }
        self.run(source, inode, body(inode)?, from).await
    }

    pub(crate) async fn inline_data<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>, Error> {
        if inode.kind != FileKind::Regular {
            return Err(Error::WrongKind);
        }
        self.inline_bytes(source, inode, body(inode)?).await
    }

    pub(crate) fn link_in_inode(&self, inode: &Inode) -> bool {
        body(inode).is_ok_and(|body| self.link_in_inode_of(inode, body))
    }

    pub(crate) fn tells_directories(&self) -> bool {
        self.sb.features.ro_compat(feature::ro_compat::METADATA_CSUM)
    }

    /// A block of the volume, checked to lie within it. `what` names the structure in errors.
    async fn block<S: Source>(&self, source: &S, nr: u64, what: &str) -> Result<S::Block, Error> {
        if nr >= self.sb.blocks {
            let what = format!("{what}: block {nr} of a volume of {} blocks", self.sb.blocks);
            return Err(Error::Corrupt { what, at: self.byte_of(nr) });
        }
        let (at, len) = (self.byte_of(nr), self.sb.block_size());
        let block = source.metadata(at, len).await?;
        if block.len() != bytes::index(u64::from(len)) {
            let reason = format!("{} bytes came", block.len());
            return Err(Error::Read { at, len, reason });
        }
        Ok(block)
    }

    /// Where a block begins; blocks that the volume does not have wrap, and are only for messages.
    fn byte_of(&self, nr: u64) -> u64 {
        nr.wrapping_shl(self.sb.block_shift)
    }
}

/// This file system's part of an inode.
fn body(inode: &Inode) -> Result<&Body, Error> {
    match &inode.body {
        crate::Body::Ext(body) => Ok(body),
        crate::Body::F2fs(_) => Err(Error::WrongKind),
    }
}
