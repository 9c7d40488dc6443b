//! Doing what fast commits say, tag by tag and as the kernel does (`ext4_fc_replay` and below), on blocks in
//! memory.
//!
//! A directory that is damaged, or whose blocks are another's, is left as it is, for whoever reads it to
//! find; the links of what it was to name are counted.
//!
//! Each step reads the volume as the steps before have left it, with the crate's own readers, and leaves
//! blocks with right checksums. Two things that the kernel does are not done. It sets times of what it
//! changes to the time of the mount: here directories keep theirs. And it keeps the bitmaps, which no reader
//! here needs: a directory's new blocks get numbers that the volume does not have (see `changes`).

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::bytes::{halves, le16, le32, put16, put32};
use super::super::extent::Extent;
use super::super::inode::{flag, seal};
use super::super::{Volume, body};
use super::fast::Tag;
use super::linear::Linear;
use super::names::Name;
use super::tree::Tree;
use super::{Recovered, corrupt};
use crate::{Error, FileKind, Ino, Inode, Source};

/// Bytes of an inode before its map, and where what follows the map begins.
pub(super) const MAP: Range<usize> = 0x28..0x64;
/// An extent tree's root without entries, with room for four.
const EMPTY_ROOT: [u8; 12] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];

pub(super) struct Replay<'a, S> {
    pub(super) volume: &'a mut Volume,
    pub(super) source: &'a S,
    /// The number of the next block that a directory grows by.
    pub(super) next: u64,
    /// Byte of the volume where the tag's block lies.
    at: u64,
    /// Fast commits before the tag's.
    pub(super) commit: u64,
    /// Inodes that are used again and have no name yet.
    nameless: BTreeSet<u32>,
    /// What tags have seen of directories without an index.
    pub(super) linear: Linear,
}

/// An inode's bytes, and the block that they are of.
struct Raw {
    nr: u64,
    inside: usize,
    block: Vec<u8>,
    ino: u32,
}

impl Raw {
    fn bytes(&mut self, len: usize) -> Option<&mut [u8]> {
        self.block.get_mut(self.inside..)?.get_mut(..len)
    }
}

/// Lets an inode's extent tree have no entries.
pub(super) fn empty_root(raw: &mut [u8]) -> Option<()> {
    raw.get_mut(MAP)?.get_mut(..EMPTY_ROOT.len())?.copy_from_slice(&EMPTY_ROOT);
    Some(())
}

/// 512-byte units, of 48 bits.
fn set_sectors(raw: &mut [u8], sectors: u64) -> Option<()> {
    let [a, b, c, d, e, f, ..] = sectors.to_le_bytes();
    put32(raw, 0x1C, u32::from_le_bytes([a, b, c, d]))?;
    put16(raw, 0x74, u16::from_le_bytes([e, f]))
}

impl<'a, S: Source> Replay<'a, S> {
    pub(super) fn new(volume: &'a mut Volume, source: &'a S) -> Self {
        // Not beside the volume's last: an extent of a directory would go on in it.
        let next = volume.sb.blocks.saturating_add(1);
        Replay {
            volume,
            source,
            next,
            at: 0,
            commit: 0,
            nameless: BTreeSet::new(),
            linear: Linear::default(),
        }
    }

    /// The volume's content up to here.
    pub(super) fn now(&self) -> Recovered<'_, S> {
        self.volume.recovered(self.source)
    }

    pub(super) fn bad(&self, what: impl std::fmt::Display) -> Error {
        corrupt(format!("fast commit: {what}"), self.at)
    }

    /// Does what a tag says. `at`: byte of the volume where the tag's block lies.
    pub(super) async fn apply(&mut self, at: u64, tag: Tag, value: &[u8]) -> Result<(), Error> {
        self.at = at;
        let cut = || corrupt("fast commit: a tag is cut short", at);
        match tag {
            Tag::Inode => self.set_inode(value).await,
            Tag::AddRange => self.add_range(value).await,
            Tag::DelRange => self.del_range(value).await,
            Tag::Create => self.create(Name::new(value).ok_or_else(cut)?).await,
            Tag::Link => self.link(Name::new(value).ok_or_else(cut)?).await,
            Tag::Unlink => self.unlink(Name::new(value).ok_or_else(cut)?).await,
            Tag::Tail => {
                self.commit = self.commit.saturating_add(1);
                Ok(())
            }
            Tag::Pad | Tag::Head => Ok(()),
        }
    }

    /// An inode in use; `None` where it is not, or not one that a name can have.
    pub(super) async fn inode(&self, ino: u32) -> Result<Option<Inode>, Error> {
        match self.volume.inode(&self.now(), Ino(ino)).await {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// An inode's bytes, be it free or not.
    async fn raw(&self, ino: u32) -> Result<Raw, Error> {
        let (nr, inside) = self.volume.inode_place(&self.now(), Ino(ino)).await?;
        let block = self.volume.block(&self.now(), nr, "inode table").await?.to_vec();
        Ok(Raw { nr, inside, block, ino })
    }

    /// Changes an inode's bytes and their checksum.
    pub(super) async fn edit(
        &mut self,
        ino: u32,
        change: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Result<(), Error> {
        let (mut raw, len) = (self.raw(ino).await?, usize::from(self.volume.sb.inode_size));
        let seed = self.volume.sb.seed;
        let done = raw.bytes(len).and_then(|bytes| {
            change(bytes)?;
            seed.map_or(Some(()), |seed| seal(bytes, ino, seed))
        });
        done.ok_or_else(|| self.bad(format!("inode {} is cut short", raw.ino)))?;
        self.put(raw.nr, raw.block)
    }

    pub(super) fn put(&mut self, nr: u64, block: Vec<u8>) -> Result<(), Error> {
        self.volume.overlay.changes().put(nr, block)
    }

    pub(super) async fn forget_tree(&mut self, ino: u32) {
        let source = self.source;
        self.volume.overlay.changes().forget_tree(ino, source).await;
    }

    /// Takes an inode's extent tree into memory, where it is not there yet.
    pub(super) async fn take_tree(&mut self, inode: &Inode) -> Result<&mut Tree, Error> {
        let (ino, block_size) = (inode.ino.0, self.volume.sb.block_size());
        if !self.volume.overlay.has_tree(ino) {
            let nodes_max = self.volume.overlay.changes().nodes_max(block_size);
            let mut read = 0;
            let tree = Tree::load(self.volume, &self.now(), inode, nodes_max, &mut read).await;
            self.volume.overlay.changes().read(read, block_size)?;
            self.volume.overlay.changes().take(ino, tree?, block_size)?;
        }
        let gone = corrupt(format!("fast commit: the extents of inode {ino} are gone"), self.at);
        self.volume.overlay.changes().trees.get_mut(&ino).ok_or(gone)
    }

    /// Takes the extent tree in of a file whose range a tag is about; whether it is there. Of a tree with a
    /// damaged node the kernel leaves the range out and goes on (`ext4_fc_replay_add_range` and `_del_range`
    /// return 0 whatever came of it). Then nobody can say any more what the file holds.
    async fn take_tree_of_range(&mut self, inode: &Inode) -> Result<bool, Error> {
        let ino = inode.ino.0;
        if self.volume.overlay.changes().is_damaged(ino).is_some() {
            return Ok(false);
        }
        match self.take_tree(inode).await {
            Ok(_) => Ok(true),
            Err(Error::Corrupt { what, at }) => {
                self.volume.overlay.changes().damage(ino, what, at)?;
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    /// Whether an inode may be changed: the file system's own are not.
    pub(super) fn check_ino(&self, ino: u32) -> Result<(), Error> {
        let sb = &self.volume.sb;
        match (sb.first_inode..=sb.inodes).contains(&ino) && !sb.hidden.contains(&ino) {
            true => Ok(()),
            false => Err(self.bad(format!("it changes inode {ino}"))),
        }
    }

    /// All of an inode but where its blocks lie.
    async fn set_inode(&mut self, value: &[u8]) -> Result<(), Error> {
        let (Some(ino), Some(new)) = (le32(value, 0), value.get(4..)) else {
            return Err(self.bad("a tag is cut short"));
        };
        self.check_ino(ino)?;
        self.linear.forget(ino);
        self.look_at_blocks(ino).await?;
        let flags = le32(new, 0x20).unwrap_or(0);
        let extents = flags & flag::EXTENTS != 0;
        let (mut kept, mut other, mut reused) = (false, false, false);
        let kind = |raw: &[u8]| le16(raw, 0).and_then(FileKind::from_mode);
        // Without metadata checksums a file can be given another generation (`EXT4_IOC_SETVERSION`).
        let fixed = self.volume.sb.seed.is_some();
        self.edit(ino, |raw| {
            let gone = fixed || kind(raw) != kind(new) || le16(raw, 0x1A) == Some(0);
            other = le32(raw, 0x64) != le32(new, 0x64);
            reused = gone && other || kind(raw) == Some(FileKind::Directory) && kind(new) != kind(raw);
            raw.get_mut(..MAP.start)?.copy_from_slice(new.get(..MAP.start)?);
            raw.get_mut(MAP.end..new.len())?.copy_from_slice(new.get(MAP.end..)?);
            if extents {
                kept = raw.get(MAP)?.starts_with(&EMPTY_ROOT[..2]);
                if !kept {
                    empty_root(raw)?;
                    set_sectors(raw, 0)?;
                }
            } else if flags & flag::INLINE_DATA != 0 {
                raw.get_mut(MAP)?.copy_from_slice(new.get(MAP)?);
            }
            Some(())
        })
        .await?;
        match kept {
            true => self.count_blocks(ino, other).await?,
            false => self.forget_tree(ino).await,
        }
        // A file that is open without a name has no links, and is no error.
        let links = le16(new, 0x1A).unwrap_or(0);
        let is_directory = kind(new) == Some(FileKind::Directory);
        self.tell_apart(ino, reused && kept, is_directory, links == 0).await?;
        match links > 0 && self.inode(ino).await?.is_none() {
            true => Err(self.bad(format!("it makes inode {ino} one that cannot be"))),
            false => Ok(()),
        }
    }

    /// The kernel walks the extent tree of the inode that is there before it puts another into its place
    /// (`ext4_ext_clear_bb`). So the other finds the nodes in the buffer cache, where they count as verified,
    /// and goes on with a tree whose checksums are of the generation before. Here it is in memory then.
    async fn look_at_blocks(&mut self, ino: u32) -> Result<(), Error> {
        let Some(inode) = self.inode(ino).await? else { return Ok(()) };
        if inode.links == 0 || !body(&inode)?.has_extents() {
            return Ok(());
        }
        match self.take_tree(&inode).await {
            // It ends at a damaged node, and says nothing.
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Of an inode that is used again the kernel keeps the blocks of the file before, until a tag says what
    /// lies there: where none does, a mount shows that file's bytes, which the host has not written to this
    /// one. Here they are read as zeros. A directory's are as the kernel has them, for it goes on with them.
    async fn tell_apart(
        &mut self,
        ino: u32,
        reused: bool,
        is_directory: bool,
        nameless: bool,
    ) -> Result<(), Error> {
        let (commit, reused) = (self.commit, self.nameless.remove(&ino) || reused);
        let (changes, source) = (self.volume.overlay.changes(), self.source);
        match changes.trees.get_mut(&ino) {
            Some(tree) if is_directory => tree.own_all(),
            Some(_) if reused => changes.begin_anew(ino, commit, source).await?,
            // Its extents are read when it has a name, and an inode that says so.
            None if reused && nameless => drop(self.nameless.insert(ino)),
            _ => {}
        }
        Ok(())
    }

    /// Counts an inode's blocks anew, with those of its extent tree and without those of its attributes, as
    /// the kernel does (`ext4_ext_replay_set_iblocks`). `other`: it kept the tree of another file.
    async fn count_blocks(&mut self, ino: u32, other: bool) -> Result<(), Error> {
        let Some(inode) = self.inode(ino).await? else { return Ok(()) };
        let blocks = match self.take_tree(&inode).await {
            Ok(tree) => tree.blocks(),
            // Nodes with the checksums of the other file: they go. The count of the log stands.
            Err(Error::Corrupt { .. }) if other => {
                self.forget_tree(ino).await;
                return self.edit(ino, empty_root).await;
            }
            Err(Error::Corrupt { .. }) => return Ok(()),
            Err(other) => return Err(other),
        };
        let sectors = blocks.saturating_mul(1u64.wrapping_shl(self.volume.sb.block_shift.wrapping_sub(9)));
        self.edit(ino, |raw| {
            put32(raw, 0x20, le32(raw, 0x20)? & !flag::HUGE_FILE)?;
            set_sectors(raw, sectors)
        })
        .await
    }

    async fn add_range(&mut self, value: &[u8]) -> Result<(), Error> {
        let (Some(ino), Some(first), Some(len)) = (le32(value, 0), le32(value, 4), le16(value, 8)) else {
            return Err(self.bad("a tag is cut short"));
        };
        let start = halves(le32(value, 12).unwrap_or(0), u32::from(le16(value, 10).unwrap_or(0)));
        let (len, written) = match len.checked_sub(0x8000).filter(|len| *len > 0) {
            Some(len) => (u64::from(len), false),
            None => (u64::from(len), true),
        };
        let Some(inode) = self.inode(ino).await?.filter(|_| len > 0) else { return Ok(()) };
        if !body(&inode)?.has_extents() {
            return Ok(());
        }
        if !self.volume.holds(start, len) {
            let blocks = self.volume.sb.blocks;
            let what = format!("inode {ino}: {len} blocks at block {start}, the volume has {blocks}");
            return Err(self.bad(what));
        }
        self.linear.forget(ino);
        if !self.take_tree_of_range(&inode).await? {
            return Ok(());
        }
        let (extent, end) = (Extent { first: first.into(), len, start, written }, self.whole_blocks(&inode));
        let (commit, source) = (self.commit, self.source);
        self.volume.overlay.changes().add(ino, extent, (end, commit), source).await
    }

    async fn del_range(&mut self, value: &[u8]) -> Result<(), Error> {
        let (Some(ino), Some(first), Some(len)) = (le32(value, 0), le32(value, 4), le32(value, 8)) else {
            return Err(self.bad("a tag is cut short"));
        };
        let Some(inode) = self.inode(ino).await? else { return Ok(()) };
        if !body(&inode)?.has_extents() {
            return Ok(());
        }
        self.linear.forget(ino);
        if !self.take_tree_of_range(&inode).await? {
            return Ok(());
        }
        let (first, end) = (u64::from(first), self.whole_blocks(&inode));
        let (stop, source) = (first.saturating_add(len.into()), self.source);
        self.volume.overlay.changes().remove(ino, (first, stop), end, source).await
    }

    fn whole_blocks(&self, inode: &Inode) -> u64 {
        inode.size.wrapping_shr(self.volume.sb.block_shift)
    }

    pub(super) async fn set_links(&mut self, ino: u32, links: u32) -> Result<(), Error> {
        // The kernel refuses more than 65000; what is read has 16 bits.
        let links = u16::try_from(links).unwrap_or(u16::MAX);
        self.edit(ino, |raw| put16(raw, 0x1A, links)).await
    }
}
