//! Inodes that no directory names: those of deleted files, as long as nobody has taken them for another, and
//! those of files that were open when they lost their last name (orphans), which still have their blocks.
//!
//! The inode tables are gone through block by block. An orphan is told by its bit of the bitmap, which is
//! still set, whichever of the two lists (of inodes, or in a file) the volume keeps its orphans in.

use super::Volume;
use super::bytes::{index, le16, le32};
use super::inode::RawInode;
use crate::{Deleted, Error, Ino, Source};

impl Volume {
    /// Appends those of a block of the inode tables from an inode on, and says with which to go on; `None` at
    /// the end. What is no inode any more is passed over. Of a group of which it cannot be said where its
    /// inodes are, that is appended, and the next one follows.
    pub(crate) async fn deleted<S: Source>(
        &self,
        source: &S,
        from: Ino,
        found: &mut Vec<Result<Deleted, Error>>,
    ) -> Result<Option<Ino>, Error> {
        match self.deleted_of_block(source, from, found).await {
            Err(Error::Corrupt { what, at }) => {
                let per_group = self.sb.inodes_per_group;
                let number = from.0.saturating_sub(1).checked_div(per_group).unwrap_or(u32::MAX);
                let what = format!("deleted files of group {number} are not known: {what}");
                found.push(Err(Error::Corrupt { what, at }));
                let next = number.checked_add(1).and_then(|next| next.checked_mul(per_group));
                Ok(next.and_then(|before| before.checked_add(1)).filter(|next| *next > from.0).map(Ino))
            }
            next => next,
        }
    }

    async fn deleted_of_block<S: Source>(
        &self,
        source: &S,
        from: Ino,
        found: &mut Vec<Result<Deleted, Error>>,
    ) -> Result<Option<Ino>, Error> {
        let sb = &self.sb;
        let first = from.0.max(sb.first_inode).max(1);
        let nr = first.wrapping_sub(1);
        if nr >= sb.inodes {
            return Ok(None);
        }
        let number = nr.checked_div(sb.inodes_per_group).unwrap_or(0);
        let before = number.saturating_mul(sb.inodes_per_group);
        let group = self.group(source, number).await?;
        // The first that was never in use, counted from 0.
        let end = before.saturating_add(group.inodes).min(sb.inodes);
        if nr >= end {
            // The last group may end where numbers do.
            let next = before.checked_add(sb.inodes_per_group).and_then(|nr| nr.checked_add(1));
            return Ok(next.map(Ino));
        }
        let (block_nr, inside) = self.inode_place(source, Ino(first)).await?;
        let block = self.block(source, block_nr, "inode table").await?;
        let used = self.block(source, group.inode_bitmap, "inode bitmap").await?;
        let in_use = |nr: u32| {
            let bit = nr.wrapping_sub(before);
            let byte = used.get(index(u64::from(bit.wrapping_shr(3)))).copied().unwrap_or(0);
            byte.wrapping_shr(bit & 7) & 1 != 0
        };
        let size = usize::from(sb.inode_size).max(128);
        let places = (inside..block.len()).step_by(size);
        let mut next = None;
        for (nr, inside) in (nr..end).zip(places) {
            next = nr.checked_add(2).map(Ino);
            let ino = Ino(nr.saturating_add(1));
            let raw = RawInode::of(&*block, inside, sb.inode_size, self.byte_of(block_nr), ino);
            found.extend(self.of_deleted(raw, in_use(nr)).map(Ok));
        }
        Ok(next)
    }

    /// What is left of an inode that no directory names; `None` where it is in use or was not, or makes no
    /// sense.
    fn of_deleted(&self, raw: RawInode<&[u8]>, in_use: bool) -> Option<Deleted> {
        let bytes = raw.bytes();
        let (mode, links, when) = (le16(bytes, 0x00)?, le16(bytes, 0x1A)?, le32(bytes, 0x14)?);
        if mode == 0 || links != 0 || self.sb.hidden.contains(&raw.ino.0) {
            return None;
        }
        let raw = self.verified(raw).ok()?;
        let inode = self.fields(&raw, raw.ino, false)?.ok()?;
        // In an orphan's place for the time the next orphan's number may stand.
        Some(Deleted { inode, when: (!in_use && when != 0).then_some(i64::from(when)), orphan: in_use })
    }
}
