//! Names, as fast commits give and take them: entries of directories in blocks and in inodes, and what a new
//! directory begins with.

use std::ops::Range;

use super::super::body;
use super::super::bytes::{index, le32, put16, put32};
use super::super::dir::{Form, Found, seal_leaf};
use super::super::extent::Extent;
use super::super::feature::incompat;
use super::super::inode::flag;
use super::super::xattr::grow_inline;
use super::entries::{self, NewEntry, Put};
use super::replay::{MAP, Replay, empty_root};
use crate::{Error, FileKind, Inode, Source};

/// Bytes at a leaf's end that are its checksum.
const LEAF_TAIL: usize = 12;

/// A name that a tag is about.
pub(super) struct Name<'t> {
    parent: u32,
    ino: u32,
    name: &'t [u8],
}

impl<'t> Name<'t> {
    pub(super) fn new(value: &'t [u8]) -> Option<Name<'t>> {
        Some(Name { parent: le32(value, 0)?, ino: le32(value, 4)?, name: value.get(8..)? })
    }
}

impl<S: Source> Replay<'_, S> {
    pub(super) async fn create(&mut self, to: Name<'_>) -> Result<(), Error> {
        self.check_ino(to.ino)?;
        let Some(inode) = self.inode(to.ino).await? else {
            return Err(self.bad(format!("it names inode {}, which is free", to.ino)));
        };
        if inode.kind == FileKind::Directory {
            let parent = self.inode(to.parent).await?;
            if parent.is_none() || !self.begin_directory(&inode, to.parent).await? {
                return Ok(());
            }
        }
        let ino = to.ino;
        self.link(to).await?;
        self.set_links(ino, 1).await
    }

    pub(super) async fn link(&mut self, to: Name<'_>) -> Result<(), Error> {
        let Some(inode) = self.inode(to.ino).await? else { return Ok(()) };
        let Some(dir) = self.inode(to.parent).await? else { return Ok(()) };
        if !self.takes_names(&dir)? || dir.ino == inode.ino {
            return Ok(());
        }
        let entry = NewEntry { name: to.name, ino: to.ino, kind: inode.kind };
        match self.add(&dir, &entry).await {
            Ok(Put::Done) | Err(Error::Corrupt { .. }) => {
                self.set_links(to.ino, inode.links.saturating_add(1)).await
            }
            Ok(_) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Whether names of a directory can be changed; those of an encrypted one cannot be read either.
    fn takes_names(&self, dir: &Inode) -> Result<bool, Error> {
        let body = body(dir)?;
        if body.is_casefolded() {
            let what = format!("casefold: a fast commit changes directory, inode {}", dir.ino.0);
            return Err(Error::Unsupported(what));
        }
        Ok(dir.kind == FileKind::Directory && !body.is_encrypted())
    }

    pub(super) async fn unlink(&mut self, from: Name<'_>) -> Result<(), Error> {
        let Some(inode) = self.inode(from.ino).await? else { return Ok(()) };
        let Some(dir) = self.inode(from.parent).await? else { return Ok(()) };
        if !self.takes_names(&dir)? {
            return Ok(());
        }
        let found = if self.is_linear(&dir)? {
            self.find_in_blocks(&dir, from.name).await.map(|found| found.map(|(found, nr)| (found, Some(nr))))
        } else {
            let now = self.now();
            let found = self.volume.directory(&now, &dir)?.find(from.name).await;
            found.map(|found| found.map(|found| (found, None)))
        };
        match found {
            Ok(None) => return Ok(()),
            // The name may have been given to another inode since; the kernel takes a link away all the same.
            Ok(Some((found, nr))) if found.ino == from.ino => {
                self.take_out(&dir, from.name, found, nr).await?;
            }
            Ok(Some(_)) | Err(Error::Corrupt { .. }) => {}
            Err(other) => return Err(other),
        }
        match inode.links.saturating_sub(1) {
            0 => self.free(&inode).await,
            links => self.set_links(from.ino, links).await,
        }
    }

    /// The last name of an inode is gone, and with it what it held. Of what counts no blocks, as do
    /// directories that came with the log, the kernel frees none.
    async fn free(&mut self, inode: &Inode) -> Result<(), Error> {
        self.linear.forget(inode.ino.0);
        let extents = body(inode)?.has_extents() && inode.sectors > 0;
        self.edit(inode.ino.0, |raw| {
            put16(raw, 0x1A, 0)?;
            put32(raw, 0x04, 0)?;
            put32(raw, 0x6C, 0)?;
            if extents { empty_root(raw) } else { Some(()) }
        })
        .await?;
        if extents {
            self.forget_tree(inode.ino.0).await;
        }
        Ok(())
    }

    fn tail(&self) -> usize {
        if self.volume.sb.seed.is_some() { LEAF_TAIL } else { 0 }
    }

    /// Puts a name into a directory.
    async fn add(&mut self, dir: &Inode, entry: &NewEntry<'_>) -> Result<Put, Error> {
        if body(dir)?.is_inline() {
            match self.add_inline(dir, entry).await? {
                Put::Full => self.leave_inode(dir).await?,
                done => return Ok(done),
            }
            let Some(dir) = self.inode(dir.ino.0).await? else { return Err(self.bad("a directory is gone")) };
            return self.add_in_blocks(&dir, entry).await;
        }
        let indexed = {
            let now = self.now();
            self.volume.directory(&now, dir)?.has_index()
        };
        if indexed && let Some(put) = self.add_by_index(dir, entry).await? {
            return Ok(put);
        }
        if indexed {
            // Said to have an index by what it became later, before its first name is there. Only without
            // metadata checksums does the kernel go on.
            self.edit(dir.ino.0, |raw| put32(raw, 0x20, le32(raw, 0x20)? & !flag::INDEX)).await?;
        }
        self.add_in_blocks(dir, entry).await
    }

    /// A leaf of one free entry.
    pub(super) fn empty_leaf(&self) -> Result<Vec<u8>, Error> {
        let mut block = vec![0; index(u64::from(self.volume.sb.block_size()))];
        let len = block.len().saturating_sub(self.tail());
        let done = entries::set_record(&mut block, 0, len, self.volume.form());
        done.map(|()| block).ok_or_else(|| self.bad("a directory block is cut short"))
    }

    /// A directory's block by its number in it, and the volume's block that holds it.
    pub(super) async fn directory_block(&self, dir: &Inode, nr: u64) -> Result<(Vec<u8>, u64), Error> {
        let now = self.now();
        let (block, at) = self.volume.directory(&now, dir)?.numbered_block(nr).await?;
        Ok((block.to_vec(), at))
    }

    /// Puts an entry into a leaf, with the leaf's checksum.
    pub(super) fn insert(&self, dir: &Inode, block: &mut [u8], entry: &NewEntry<'_>) -> Result<Put, Error> {
        let end = block.len().saturating_sub(self.tail());
        let put = entries::insert(block.get_mut(..end).unwrap_or(&mut []), self.volume.form(), entry);
        let put = put.map_err(|what| self.bad_directory(dir, what))?;
        self.seal_leaf(dir, block)?;
        Ok(put)
    }

    pub(super) fn bad_directory(&self, dir: &Inode, what: &str) -> Error {
        self.bad(format!("directory, inode {}: {what}", dir.ino.0))
    }

    pub(super) fn seal_leaf(&self, dir: &Inode, block: &mut [u8]) -> Result<(), Error> {
        let Some(seed) = body(dir)?.seed else { return Ok(()) };
        seal_leaf(block, seed).ok_or_else(|| self.bad_directory(dir, "a block is cut short"))
    }

    /// A block more at a directory's end; the directory's number of it.
    pub(super) async fn append(&mut self, ino: u32, block: Vec<u8>) -> Result<u64, Error> {
        let Some(dir) = self.inode(ino).await? else { return Err(self.bad("a directory is gone")) };
        let (shift, place) = (self.volume.sb.block_shift, self.next);
        let nr = dir.size.wrapping_shr(shift);
        self.take_tree(&dir).await?;
        self.next = place.wrapping_add(1); // far from 64 bits: each has its bytes in memory
        self.put(place, block)?;
        let extent = Extent { first: nr, len: 1, start: place, written: true };
        let (commit, source) = (self.commit, self.source);
        self.volume.overlay.changes().add(ino, extent, (0, commit), source).await?;
        self.set_size(ino, dir.size.saturating_add(1u64.wrapping_shl(shift))).await?;
        Ok(nr)
    }

    async fn set_size(&mut self, ino: u32, size: u64) -> Result<(), Error> {
        let wide = self.volume.sb.features.incompat(incompat::LARGE_DIR);
        let [a, b, c, d, e, f, g, h] = size.to_le_bytes();
        self.edit(ino, |raw| {
            put32(raw, 0x04, u32::from_le_bytes([a, b, c, d]))?;
            if wide { put32(raw, 0x6C, u32::from_le_bytes([e, f, g, h])) } else { Some(()) }
        })
        .await
    }

    pub(super) async fn set_indexed(&mut self, ino: u32) -> Result<(), Error> {
        self.edit(ino, |raw| put32(raw, 0x20, le32(raw, 0x20)? | flag::INDEX)).await
    }

    /// "." and ".." of a new directory; whether it is one now.
    async fn begin_directory(&mut self, dir: &Inode, parent: u32) -> Result<bool, Error> {
        let own = dir.ino.0;
        self.linear.forget(own);
        if body(dir)?.is_inline() {
            self.edit(own, |raw| {
                let map = raw.get_mut(MAP)?;
                map.fill(0);
                put32(map, 0, parent)?;
                put16(map, 8, 56)?;
                put16(raw, 0x1A, 2)?;
                put32(raw, 0x04, 60)
            })
            .await?;
            return Ok(true);
        }
        let span = {
            let now = self.now();
            self.volume.span(&now, dir, body(dir)?, 0).await?
        };
        if span.start.is_some() {
            // Blocks that the inode had as another file's: the kernel leaves the name out.
            return Ok(false);
        }
        self.set_size(own, 0).await?;
        let block = self.first_block(dir, parent).ok_or_else(|| self.bad("a block is cut short"))?;
        self.append(own, block).await?;
        self.set_links(own, 2).await?;
        Ok(true)
    }

    /// A directory's first block.
    fn first_block(&self, dir: &Inode, parent: u32) -> Option<Vec<u8>> {
        let form = self.volume.form();
        let mut block = vec![0; index(u64::from(self.volume.sb.block_size()))];
        let rest = block.len().checked_sub(12)?.checked_sub(self.tail())?;
        let kind = FileKind::Directory;
        entries::write(&mut block, 0, 12, form, &NewEntry { name: b".", ino: dir.ino.0, kind })?;
        entries::write(&mut block, 12, rest, form, &NewEntry { name: b"..", ino: parent, kind })?;
        let seed = body(dir).ok()?.seed;
        seed.map_or(Some(()), |seed| seal_leaf(&mut block, seed))?;
        Some(block)
    }

    /// Takes an entry out of a directory. `linear`: in which of its blocks it is, where it has no index.
    async fn take_out(
        &mut self,
        dir: &Inode,
        name: &[u8],
        found: Found,
        linear: Option<u64>,
    ) -> Result<(), Error> {
        let form = self.volume.form();
        if body(dir)?.is_inline() {
            let at = body(dir)?.at;
            let places = self.inline_places(dir).await?;
            let inside = index(found.at.saturating_sub(at));
            let Some(place) = places.into_iter().find(|place| place.contains(&inside)) else {
                return Err(self.bad_directory(dir, "an entry is not where it was"));
            };
            let gone = inside.saturating_sub(place.start);
            return self.edit(dir.ino.0, |raw| entries::remove(raw.get_mut(place)?, form, gone).ok()).await;
        }
        let shift = self.volume.sb.block_shift;
        let nr = found.at.wrapping_shr(shift);
        let inside = index(found.at & u64::from(self.volume.sb.block_size().wrapping_sub(1)));
        let mut block = self.volume.block(&self.now(), nr, "directory block").await?.to_vec();
        let end = block.len().saturating_sub(self.tail());
        let area = block.get_mut(..end).unwrap_or(&mut []);
        entries::remove(area, form, inside).map_err(|what| self.bad_directory(dir, what))?;
        self.seal_leaf(dir, &mut block)?;
        if let Some(linear) = linear {
            self.note(dir, (linear, linear), &block, name)?;
        }
        self.put(nr, block)
    }

    /// Where in an inode an inline directory's entries lie.
    async fn inline_places(&self, dir: &Inode) -> Result<[Range<usize>; 2], Error> {
        let now = self.now();
        let raw = self.volume.raw_inode(&now, dir.ino).await?;
        self.volume.inline_places(&raw)
    }

    async fn add_inline(&mut self, dir: &Inode, entry: &NewEntry<'_>) -> Result<Put, Error> {
        let put = self.put_inline(dir, entry).await?;
        let [_, rest] = self.inline_places(dir).await?;
        if put != Put::Full || !rest.is_empty() {
            return Ok(put);
        }
        let mut grown = false;
        self.edit(dir.ino.0, |raw| {
            if let Some(room) = grow_inline(raw) {
                grown = true;
                put32(raw, 0x04, room.checked_add(60)?)?;
            }
            Some(())
        })
        .await?;
        if grown { self.put_inline(dir, entry).await } else { Ok(put) }
    }

    async fn put_inline(&mut self, dir: &Inode, entry: &NewEntry<'_>) -> Result<Put, Error> {
        let (places, form) = (self.inline_places(dir).await?, self.volume.form());
        let mut put = Ok(Put::Full);
        self.edit(dir.ino.0, |raw| {
            for place in places {
                put = entries::insert(raw.get_mut(place)?, form, entry);
                if put != Ok(Put::Full) {
                    break;
                }
            }
            Some(())
        })
        .await?;
        put.map_err(|what| self.bad_directory(dir, what))
    }

    /// Gives an inline directory a block.
    async fn leave_inode(&mut self, dir: &Inode) -> Result<(), Error> {
        let (parent, names) = {
            let now = self.now();
            let raw = self.volume.raw_inode(&now, dir.ino).await?;
            let (head, rest) = self.volume.inline_areas(&raw)?;
            (le32(head, 0).unwrap_or(0), [head.get(4..).unwrap_or(&[]), rest].concat())
        };
        let cut = || self.bad_directory(dir, "a block is cut short");
        let mut block = self.first_block(dir, parent).ok_or_else(cut)?;
        // As they lie, behind ".."; the last takes what is left of the block.
        let (end, form) = (self.leaf_end(&block), self.form());
        entries::set_record(&mut block, 12, 12, form).ok_or_else(cut)?;
        let room = block.get_mut(24..end).and_then(|room| room.get_mut(..names.len()));
        room.ok_or_else(cut)?.copy_from_slice(&names);
        let last = entries::last(&names, form).map_err(|what| self.bad_directory(dir, what))?;
        let last = last.map_or(12, |last| last.saturating_add(24));
        entries::set_record(&mut block, last, end.saturating_sub(last), form).ok_or_else(cut)?;
        self.seal_leaf(dir, &mut block)?;
        self.edit(dir.ino.0, |raw| {
            let flags = (le32(raw, 0x20)? & !flag::INLINE_DATA) | flag::EXTENTS;
            put32(raw, 0x20, flags)?;
            raw.get_mut(MAP)?.fill(0);
            empty_root(raw)
        })
        .await?;
        self.set_size(dir.ino.0, 0).await?;
        self.append(dir.ino.0, block).await.map(drop)
    }

    /// A directory's entries' form, for who splits its blocks.
    pub(super) fn form(&self) -> Form {
        self.volume.form()
    }

    pub(super) fn leaf_end(&self, block: &[u8]) -> usize {
        block.len().saturating_sub(self.tail())
    }
}
