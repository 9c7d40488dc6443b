//! ext2, ext3 and ext4.
//!
//! A read passes: `superblock` (once) -> `group` (where a group's inodes lie) -> `inode` -> for a name
//! `htree` or `dir`, for bytes `extent` or `blockmap` (or the inode itself: inline data). `xattr` finds
//! attributes, ACLs and the rest of inline data, `csum` and `hash` are arithmetic. Of a volume that was not
//! unmounted, `journal` lays what is committed over all of that: each method is handed a source that
//! `Volume::recovered` made, and `map` asks it what fast commits say of a file's blocks.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::{Error, FileKind, Ino, Inode, Run, Source, State, VolumeInfo};

mod blockmap;
mod bytes;
mod csum;
mod deleted;
mod dir;
mod extent;
mod feature;
mod group;
mod hash;
mod htree;
mod inode;
mod journal;
mod map;
mod superblock;
mod xattr;

pub(crate) use inode::Body;
use journal::{Overlay, Recovered};
use superblock::Superblock;

/// A volume.
#[derive(Debug, Clone)]
pub struct Volume {
    sb: Superblock,
    info: VolumeInfo,
    overlay: Overlay,
}

impl Volume {
    pub(crate) async fn probe<S: Source>(source: &S) -> Result<bool, Error> {
        if source.len() < superblock::AT.wrapping_add(u64::from(superblock::LEN)) {
            return Ok(false);
        }
        let raw = source.metadata(superblock::AT, superblock::LEN).await?;
        Ok(superblock::has_magic(&raw))
    }

    /// `known`: the same volume as it was before, whose log is gone on with.
    pub(crate) async fn open<S: Source>(
        source: &S,
        state: State,
        known: Option<&Volume>,
    ) -> Result<Volume, Error> {
        let raw = source.metadata(superblock::AT, superblock::LEN).await?;
        let sb = Superblock::parse(&raw, source.len())?;
        let info = sb.info(None);
        let home = Volume { sb, info, overlay: Overlay::default() };
        if state == State::Home || !journal::needed(&home.sb) {
            return Ok(home);
        }
        let known = known
            .filter(|known| known.sb.uuid == home.sb.uuid && known.sb.block_shift == home.sb.block_shift);
        let known = known.map(|known| &known.overlay);
        let found = journal::recover(&home, source, known).await?;
        // Recovery may have another superblock.
        let raw = found.overlay.over(source).metadata(superblock::AT, superblock::LEN).await?;
        let sb = Superblock::parse(&raw, source.len())?;
        if sb.block_shift != home.sb.block_shift {
            let (was, is) = (home.sb.block_size(), sb.block_size());
            let what =
                format!("journal: a superblock of blocks of {is} bytes on a volume of blocks of {was}");
            return Err(Error::Corrupt { what, at: superblock::AT });
        }
        let mut info = sb.info(Some(found.recovery));
        info.warnings.extend(found.warning);
        let mut volume = Volume { sb, info, overlay: found.overlay };
        if let Some(fast) = found.fast {
            match journal::replay(&home, &mut volume, source, fast).await {
                Ok(commits) => volume.info.recovery.fast_commits = commits,
                Err(error) => {
                    volume.give_back(source).await;
                    return Err(error);
                }
            }
        }
        Ok(volume)
    }

    pub(crate) fn overlay_bytes(&self) -> u64 {
        self.overlay.bytes()
    }

    pub(crate) async fn changed_since<S: Source>(&self, before: &Volume, source: &S) -> Option<Vec<u64>> {
        match self.sb.is_laid_out_as(&before.sb) {
            true => self.overlay.since(&before.overlay, source).await,
            false => None,
        }
    }

    pub(crate) async fn give_back<S: Source>(self, source: &S) {
        self.overlay.give_back(source).await;
    }

    /// The source as the journal's recovery would leave it: what all other methods are to be given.
    pub(crate) fn recovered<'a, S>(&'a self, source: &'a S) -> Recovered<'a, S> {
        self.overlay.over(source)
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
        source: &Recovered<'_, S>,
        inode: &Inode,
        from: u64,
    ) -> Result<Option<Run>, Error> {
        if inode.kind != FileKind::Regular {
            return Err(Error::WrongKind);
        }
        match self.run(source, inode, body(inode)?, from).await? {
            Some(run) => source.place(run).await.map(Some),
            None => Ok(None),
        }
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
        // Blocks that fast commits added lie behind it.
        if nr >= self.sb.blocks && !self.overlay.made(nr) {
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
