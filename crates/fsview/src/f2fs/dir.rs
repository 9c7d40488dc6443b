//! Looking a name up and listing a directory (S: fs/f2fs/dir.c). A directory's blocks are a hash table of
//! levels: each has twice the buckets of the one above, a bucket has two blocks (four far down), and a name
//! is in the bucket of its hash on one of them. So a look-up reads a few blocks per level; a listing reads
//! all blocks in order. Entries that only the log of fsync names come first in a look-up, in place of others
//! of the same name, and last in a listing.

use super::checkpoint::Checkpoint;
use super::dentry::Entries;
use super::fields::{Nid, corrupt, number};
use super::hash::name_hash;
use super::inode::Body;
use super::node;
use super::roll::names_shown;
use super::superblock::Superblock;
use crate::name;
use crate::{DirCursor, DirEntry, Error, FileKind, Ino, Inode, Name, Source};

/// The level from which the table stops growing.
const HALF: u32 = 31;

/// A directory being read.
pub(super) struct Dir<'a, S> {
    source: &'a S,
    sb: &'a Superblock,
    cp: &'a Checkpoint,
    ino: Ino,
    body: &'a Body,
    blocks: u64,
}

impl<'a, S: Source> Dir<'a, S> {
    /// Of an inode; refuses what is not a directory or cannot be read.
    pub fn new(
        source: &'a S,
        sb: &'a Superblock,
        cp: &'a Checkpoint,
        inode: &Inode,
        body: &'a Body,
    ) -> Result<Dir<'a, S>, Error> {
        if inode.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        if body.encrypted {
            return Err(Error::Unsupported("encryption".into()));
        }
        source.shows(names_shown(inode.ino.0));
        Ok(Dir { source, sb, cp, ino: inode.ino, body, blocks: inode.size.div_ceil(4096) })
    }

    fn bad(&self, what: impl std::fmt::Display) -> Error {
        corrupt(format!("directory {}: {what}", self.ino.0), self.body.tree.inode.byte())
    }

    /// An inode number that an entry names, checked.
    fn named(&self, ino: u32) -> Result<Ino, Error> {
        if ino < self.sb.root || ino >= self.sb.max_nid() {
            return Err(self.bad(format!("an entry names inode {ino} of {}", self.sb.max_nid())));
        }
        Ok(Ino(ino))
    }

    /// The inode that `name` has here.
    pub async fn lookup(&self, name: &[u8]) -> Result<Option<Ino>, Error> {
        if name.is_empty() || name.len() > name::NAME_MAX {
            return Ok(None);
        }
        if let Some(ino) = self.cp.roll.name(self.ino, name) {
            return self.named(ino).map(Some);
        }
        let dots = name == b"." || name == b"..";
        let found = if self.body.inline {
            let node = self.inode().await?;
            let entries = self.inline_entries(&node.block)?;
            let found =
                if self.body.casefold { entries.scan(name) } else { entries.find(name_hash(name), name) };
            found.map_err(|what| self.bad(what))?
        } else if self.body.casefold && !dots {
            self.scan(name).await?
        } else {
            self.search(name).await?
        };
        match found {
            Some(ino) if ino == self.ino.0 && !dots => Err(self.bad("an entry names the directory itself")),
            Some(ino) => self.named(ino).map(Some),
            // Another spelling may be there, which only the fold would tell.
            None if self.body.casefold => Err(Error::Unsupported("casefold".into())),
            None => Ok(None),
        }
    }

    /// Level by level, in the bucket of the name's hash.
    async fn search(&self, name: &[u8]) -> Result<Option<u32>, Error> {
        let hash = name_hash(name);
        let mut level_start = 0_u64;
        for level in 0..self.body.levels {
            let buckets = buckets(level, self.body.first_level);
            let in_bucket = if level < HALF { 2 } else { 4 };
            let bucket = u64::from(hash).checked_rem(buckets).unwrap_or(0);
            let first = level_start.saturating_add(bucket.saturating_mul(in_bucket));
            for block in first..first.saturating_add(in_bucket) {
                if block >= self.blocks {
                    break;
                }
                let Some(bytes) = self.body.tree.block(self.source, self.sb, self.cp, block).await? else {
                    continue;
                };
                let entries = Entries::of_block(&bytes).ok_or_else(|| self.bad("a block that is none"))?;
                let found = entries.find(hash, name).map_err(|w| self.bad(format!("block {block}, {w}")))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            level_start = level_start.saturating_add(buckets.saturating_mul(in_bucket));
            if level_start >= self.blocks {
                break;
            }
        }
        Ok(None)
    }

    /// Block by block: for directories whose hash is of the folded name.
    async fn scan(&self, name: &[u8]) -> Result<Option<u32>, Error> {
        let mut block = 0;
        let mut left = self.sb.end.0;
        while let Some((at, bytes)) = self.next_block(block).await? {
            let entries = Entries::of_block(&bytes).ok_or_else(|| self.bad("a block that is none"))?;
            if let Some(ino) = entries.scan(name).map_err(|w| self.bad(format!("block {at}, {w}")))? {
                return Ok(Some(ino));
            }
            block = at.saturating_add(1);
            left = left.checked_sub(1).ok_or_else(|| self.bad("more blocks than the volume has"))?;
        }
        Ok(None)
    }

    /// The first block from `block` on that is there.
    async fn next_block(&self, mut block: u64) -> Result<Option<(u64, S::Block)>, Error> {
        while block < self.blocks {
            let run = self.body.tree.map(self.source, self.sb, self.cp, block).await?;
            if let Some(address) = run.first {
                return Ok(Some((block, super::fields::read(self.source, address).await?)));
            }
            block = block.saturating_add(run.count);
        }
        Ok(None)
    }

    /// Appends the entries of the next block from `cursor` on.
    pub async fn list(
        &self,
        cursor: DirCursor,
        into: &mut Vec<DirEntry>,
    ) -> Result<Option<DirCursor>, Error> {
        if self.body.inline {
            let node = self.inode().await?;
            self.append(self.inline_entries(&node.block)?, 0, cursor, into)?;
            self.append_rolled(cursor, into)?;
            return Ok(None);
        }
        let from = cursor.place.wrapping_shr(IN_PLACE);
        if let Some((block, bytes)) = self.next_block(from).await? {
            let entries = Entries::of_block(&bytes).ok_or_else(|| self.bad("a block that is none"))?;
            self.append(entries, block, cursor, into)?;
            let block = block.saturating_add(1);
            if block < self.blocks {
                return Ok(Some(DirCursor { place: place(block, 0) }));
            }
        }
        self.append_rolled(cursor, into)?;
        Ok(None)
    }

    /// The entries that only the log names: all at one place behind the others, in the order of their names.
    fn append_rolled(&self, from: DirCursor, into: &mut Vec<DirEntry>) -> Result<(), Error> {
        let entries = self.cp.roll.entries(self.ino).filter(|_| from.place <= ROLLED_PLACE);
        for (name, ino) in entries {
            into.push(DirEntry {
                name: Name::from_slice(name),
                ino: self.named(ino)?,
                kind: Some(FileKind::Regular),
                place: ROLLED_PLACE,
            });
        }
        Ok(())
    }

    fn append(
        &self,
        entries: Entries<'_>,
        block: u64,
        from: DirCursor,
        into: &mut Vec<DirEntry>,
    ) -> Result<(), Error> {
        let mut slot = 0;
        while let Some((entry, after)) =
            entries.next(slot).map_err(|what| self.bad(format!("block {block}, {what}")))?
        {
            let here = after.saturating_sub(entry.slots());
            let bad = |what: &str| self.bad(format!("block {block}, slot {here}: {what}"));
            // The root is its own parent; of others, only the kind of the parent is sure.
            let dot = match entry.name {
                b"." => entry.ino == self.ino.0,
                b".." => entry.kind.is_none_or(|kind| kind == FileKind::Directory),
                _ => false,
            };
            let place = place(block, after);
            let replaced = self.cp.roll.name(self.ino, entry.name).is_some();
            if !dot && !replaced && place >= from.place {
                name::check(entry.name).map_err(bad)?;
                if entry.ino == self.ino.0 {
                    return Err(bad("it names the directory itself"));
                }
                into.push(DirEntry {
                    name: Name::from_slice(entry.name),
                    ino: self.named(entry.ino)?,
                    kind: entry.kind,
                    place,
                });
            }
            slot = after;
        }
        Ok(())
    }

    async fn inode(&self) -> Result<node::Node<S::Block>, Error> {
        node::read_at(self.source, self.body.tree.inode, Nid(self.ino.0), self.ino.0, 0).await
    }

    fn inline_entries<'b>(&self, block: &'b [u8]) -> Result<Entries<'b>, Error> {
        let (from, room) = self.body.inline_area;
        block
            .get(from..)
            .and_then(|b| b.get(..room))
            .and_then(Entries::of_inline)
            .ok_or_else(|| self.bad(format!("{} bytes of inline entries at {from}", number(room))))
    }
}

/// Bits of a place that say where in its block an entry ends: an inode has up to 182 slots, a block 214.
const IN_PLACE: u32 = 8;
/// The place of all entries that only the log names: behind every block's.
const ROLLED_PLACE: u64 = 1 << 62;

/// An entry's place: it stays in its slot until it is removed.
fn place(block: u64, after: usize) -> u64 {
    block.wrapping_shl(IN_PLACE) | u64::try_from(after).unwrap_or(0) & 0xFF
}

/// Buckets of a level.
fn buckets(level: u32, first_level: u32) -> u64 {
    let power = level.saturating_add(first_level);
    1_u64.wrapping_shl(if power < HALF { power } else { HALF.saturating_sub(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_then_stop() {
        assert_eq!(buckets(0, 0), 1);
        assert_eq!(buckets(3, 2), 32);
        assert_eq!(buckets(30, 0), 1 << 30);
        assert_eq!(buckets(62, 255), 1 << 30);
    }
}
