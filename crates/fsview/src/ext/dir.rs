//! Directories: the entries of a block, linear lookup, listing.
//!
//! A directory is a file of blocks, each filled with entries of its own; index blocks look like one empty
//! entry, so that reading every block in order is right for indexed directories too. An inline directory has
//! two areas of entries in its inode, the first after its parent's number. An entry in use is only parsed
//! here, never copied, until it is listed.

use super::bytes::{index, le16, le32, wide};
use super::feature::{compat, incompat};
use super::htree::{self, Indexed};
use super::inode::Body;
use super::superblock::Superblock;
use super::{Volume, body};
use crate::name;
use crate::{DirCursor, DirEntry, Error, FileKind, Ino, Inode, Name, RunPlace, Source};

/// Bytes of an entry with a name of usual length.
const USUAL_ENTRY: usize = 32;

/// How a volume writes entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Whether the byte after an 8-bit name length is a type; without, the length has 16 bits.
    pub(super) typed: bool,
    /// Bytes in a block, which 64 KiB blocks need to read record lengths.
    pub(super) block_size: u32,
}

/// An entry as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawEntry<'a> {
    /// 0 where it is free.
    pub(super) ino: u32,
    pub(super) name: &'a [u8],
    pub(super) kind: u8,
    pub(super) record: usize,
}

/// The entries of a block or an inline area; an error ends it.
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    /// Byte of the next one.
    pub(super) at: usize,
    form: Form,
}

impl<'a> Entries<'a> {
    pub(super) fn new(bytes: &'a [u8], form: Form) -> Entries<'a> {
        Entries { bytes, at: 0, form }
    }

    fn parse(&self, rest: &'a [u8]) -> Result<RawEntry<'a>, &'static str> {
        let cut = "a directory entry is cut short";
        let (Some(ino), Some(record), Some(len), Some(&kind)) =
            (le32(rest, 0), le16(rest, 4), le16(rest, 6), rest.get(7))
        else {
            return Err(cut);
        };
        let (len, kind) = if self.form.typed { (len & 0xFF, kind) } else { (len, 0) };
        let record = index(u64::from(record_len(record, self.form.block_size)));
        if record < 12 || !record.is_multiple_of(4) {
            return Err("a directory entry's record length is impossible");
        }
        if record > rest.len() {
            return Err("a directory entry reaches past its block");
        }
        // As the kernel, whose lengths have 8 bits: a free entry's is to fit, too. (The type of one that is
        // a checksum stands in the other 8.)
        let len = if ino == 0 { len & 0xFF } else { len };
        let name = rest.get(8..record).and_then(|room| room.get(..usize::from(len)));
        let name = name.ok_or("a directory entry's name reaches past its record")?;
        let name = if ino == 0 { &[] } else { name };
        Ok(RawEntry { ino, name, kind, record })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let entry = self.parse(rest);
        self.at = match entry {
            Ok(entry) => self.at.wrapping_add(entry.record), // at most bytes.len()
            Err(_) => usize::MAX,
        };
        Some(entry)
    }
}

/// Record lengths of 64 KiB blocks hold 18 bits in 16: the lowest two of 65536 and more are where multiples
/// of 4 have none.
fn record_len(raw: u16, block_size: u32) -> u32 {
    if block_size < 0x1_0000 {
        return u32::from(raw);
    }
    if raw == 0 || raw == u16::MAX {
        return block_size;
    }
    u32::from(raw & !3) | u32::from(raw & 3).wrapping_shl(16)
}

/// A record length as entries hold it.
pub(super) fn raw_record_len(len: usize, block_size: u32) -> Option<u16> {
    let len = u32::try_from(len).ok()?;
    if block_size < 0x1_0000 {
        return u16::try_from(len).ok();
    }
    if len == block_size {
        return Some(u16::MAX);
    }
    u16::try_from((len & 0xFFFC) | (len.wrapping_shr(16) & 3)).ok()
}

/// What an entry's type byte says.
fn kind_of(kind: u8) -> Option<FileKind> {
    Some(match kind {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// Whether a leaf's last 12 bytes are a checksum that holds.
fn leaf_checksum_holds(bytes: &[u8], seed: super::csum::Crc) -> bool {
    let Some((covered, tail)) = bytes.split_last_chunk::<12>() else { return false };
    // A free entry of 12 bytes, of the type DE.
    tail.starts_with(&[0, 0, 0, 0, 12, 0, 0, 0xDE]) && le32(tail, 8) == Some(seed.over(covered).0)
}

/// Writes the checksum of a leaf, whose last 12 bytes become it.
pub(super) fn seal_leaf(bytes: &mut [u8], seed: super::csum::Crc) -> Option<()> {
    let (covered, tail) = bytes.split_last_chunk_mut::<12>()?;
    let [a, b, c, d] = seed.over(covered).0.to_le_bytes();
    *tail = [0, 0, 0, 0, 12, 0, 0, 0xDE, a, b, c, d];
    Some(())
}

/// An entry that was looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) ino: u32,
    /// Byte of the volume at which the entry lies; 0 for one that an inline directory only implies.
    pub(super) at: u64,
}

/// A directory that is being read.
pub(super) struct Directory<'a, S> {
    pub(super) volume: &'a Volume,
    pub(super) source: &'a S,
    pub(super) sb: &'a Superblock,
    pub(super) inode: &'a Inode,
    pub(super) body: &'a Body,
    /// Whole blocks.
    pub(super) blocks: u64,
}

impl Volume {
    pub(super) fn form(&self) -> Form {
        Form { typed: self.sb.features.incompat(incompat::FILETYPE), block_size: self.sb.block_size() }
    }

    pub(super) fn directory<'a, S>(
        &'a self,
        source: &'a S,
        inode: &'a Inode,
    ) -> Result<Directory<'a, S>, Error> {
        if inode.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let body = body(inode)?;
        if body.is_encrypted() {
            return Err(Error::Unsupported(format!(
                "encrypt: directory, inode {} is encrypted",
                inode.ino.0
            )));
        }
        let blocks = inode.size.wrapping_shr(self.sb.block_shift);
        if blocks > self.sb.blocks {
            let what = format!("directory, inode {}: of {blocks} blocks, more than the volume", inode.ino.0);
            return Err(Error::Corrupt { what, at: body.at });
        }
        Ok(Directory { volume: self, source, sb: &self.sb, inode, body, blocks })
    }

    /// The inode that `name` has in a directory.
    pub(crate) async fn lookup<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<Ino>, Error> {
        self.directory(source, inode)?.lookup(name).await
    }

    /// Appends the entries from `cursor` on: those of an index's leaf, or of the first block that is there.
    pub(crate) async fn read_dir<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        cursor: DirCursor,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<DirCursor>, Error> {
        self.directory(source, inode)?.list(cursor, entries).await
    }
}

impl<S: Source> Directory<'_, S> {
    async fn lookup(&self, name: &[u8]) -> Result<Option<Ino>, Error> {
        if name.is_empty() || name.len() > name::NAME_MAX {
            return Ok(None);
        }
        match self.find(name).await?.map(|found| found.ino) {
            // Another name may be the same when folded, and this reader does not fold.
            None if self.body.is_casefolded() => Err(Error::Unsupported("casefold".into())),
            Some(ino) if ino == 0 || ino > self.sb.inodes => {
                Err(self.bad_entry(self.body.at, "an entry names an inode that is none"))
            }
            Some(ino) if ino == self.inode.ino.0 && !matches!(name, b"." | b"..") => {
                Err(self.bad_entry(self.body.at, "an entry names the directory itself"))
            }
            found => Ok(found.map(Ino)),
        }
    }

    /// The entry of a name.
    pub(super) async fn find(&self, name: &[u8]) -> Result<Option<Found>, Error> {
        if self.body.is_inline() {
            return self.find_inline(name).await;
        }
        if self.has_index()
            && let Indexed::Answer(found) = self.find_by_index(name).await?
        {
            return Ok(found);
        }
        self.find_in_blocks(name).await
    }

    /// Whether it has an index that this reader can follow.
    pub(super) fn has_index(&self) -> bool {
        self.body.is_indexed() && self.sb.features.compat(compat::DIR_INDEX) && !self.body.is_casefolded()
    }

    async fn find_in_blocks(&self, name: &[u8]) -> Result<Option<Found>, Error> {
        let mut next = 0;
        while let Some((nr, here)) = self.next_block(next).await? {
            for ahead in 0..here.blocks {
                let at = here.start.wrapping_add(ahead);
                let block = self.directory_block(nr.wrapping_add(ahead), at).await?;
                let found = self.find_in_block(&block, self.volume.byte_of(at), name)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            next = nr.wrapping_add(here.blocks);
        }
        Ok(None)
    }

    /// Looks for a name in one block, which lies at byte `at`.
    pub(super) fn find_in_block(&self, block: &[u8], at: u64, name: &[u8]) -> Result<Option<Found>, Error> {
        let mut entries = Entries::new(block, self.volume.form());
        loop {
            let inside = wide(entries.at);
            let Some(entry) = entries.next() else { return Ok(None) };
            let entry = entry.map_err(|what| self.bad_entry(at, what))?;
            if entry.name == name {
                return Ok(Some(Found { ino: entry.ino, at: at.wrapping_add(inside) }));
            }
        }
    }

    pub(super) fn bad_entry(&self, at: u64, what: &str) -> Error {
        Error::Corrupt { what: format!("directory, inode {}: {what}", self.inode.ino.0), at }
    }

    /// The first mapped blocks from `next` on: the directory's block and what maps it. Holes are passed over,
    /// but for the first block: it holds the directory's own entry, so that there is no directory without.
    async fn next_block(&self, mut next: u64) -> Result<Option<(u64, Mapped)>, Error> {
        while next < self.blocks {
            let Some(run) = self
                .volume
                .run(self.source, self.inode, self.body, next.wrapping_shl(self.sb.block_shift))
                .await?
            else {
                break;
            };
            let blocks = run.len.wrapping_shr(self.sb.block_shift).min(self.blocks.wrapping_sub(next));
            if blocks == 0 {
                break;
            }
            if let RunPlace::Volume(at) = run.place {
                return Ok(Some((next, Mapped { start: at.wrapping_shr(self.sb.block_shift), blocks })));
            }
            if next == 0 {
                return Err(self.bad_entry(self.body.at, "its first block is missing"));
            }
            next = next.saturating_add(blocks);
        }
        Ok(None)
    }

    /// The first block from `from` on that is there: the directory's number of it, and the volume's.
    pub(super) async fn block_from(&self, from: u64) -> Result<Option<(u64, S::Block, u64)>, Error> {
        let Some((nr, here)) = self.next_block(from).await? else { return Ok(None) };
        Ok(Some((nr, self.directory_block(nr, here.start).await?, here.start)))
    }

    /// Block `nr` of a directory, wherever it lies; a hole is an error.
    pub(super) async fn numbered_block(&self, nr: u64) -> Result<(S::Block, u64), Error> {
        match self.next_block(nr).await? {
            Some((found, here)) if found == nr => {
                Ok((self.directory_block(nr, here.start).await?, here.start))
            }
            _ => Err(self.bad_entry(self.body.at, &format!("its index names block {nr}, which is missing"))),
        }
    }

    /// A directory's block, its checksum verified.
    async fn directory_block(&self, nr: u64, at: u64) -> Result<S::Block, Error> {
        let block = self.volume.block(self.source, at, "directory block").await?;
        let holds = |seed| match htree::node_place(&block, self.volume.form()) {
            Some(place) if nr == 0 || place.is_inner() => htree::checksum_holds(&block, place, seed),
            _ => leaf_checksum_holds(&block, seed),
        };
        if !self.body.seed.is_none_or(holds) {
            let what = format!("the checksum of its block {nr} does not match");
            return Err(self.bad_entry(self.volume.byte_of(at), &what));
        }
        if nr == 0 && !self.begins_with_dots(&block) {
            return Err(
                self.bad_entry(self.volume.byte_of(at), "it does not begin with itself and its parent")
            );
        }
        Ok(block)
    }

    /// Whether the first two entries of a directory's first block are "." and "..".
    fn begins_with_dots(&self, block: &[u8]) -> bool {
        let mut entries = Entries::new(block, self.volume.form());
        let (first, second) = (entries.next(), entries.next());
        matches!((first, second), (Some(Ok(own)), Some(Ok(parent)))
            if own.name == b"." && own.record == 12 && own.ino == self.inode.ino.0 && parent.name == b"..")
    }

    async fn find_inline(&self, name: &[u8]) -> Result<Option<Found>, Error> {
        let raw = self.volume.raw_inode(self.source, self.inode.ino).await?;
        let (head, rest) = self.volume.inline_areas(&raw)?;
        match name {
            b"." => return Ok(Some(Found { ino: self.inode.ino.0, at: 0 })),
            b".." => return Ok(le32(head, 0).map(|ino| Found { ino, at: 0 })),
            _ => {}
        }
        let places = self.volume.inline_places(&raw)?;
        for (area, place) in [head.get(4..).unwrap_or(&[]), rest].into_iter().zip(places) {
            let found = self.find_in_block(area, raw.at.wrapping_add(wide(place.start)), name)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    async fn list(&self, cursor: DirCursor, entries: &mut Vec<DirEntry>) -> Result<Option<DirCursor>, Error> {
        let from = entries.len();
        if self.body.is_inline() {
            let raw = self.volume.raw_inode(self.source, self.inode.ino).await?;
            let (head, rest) = self.volume.inline_areas(&raw)?;
            let head = head.get(4..).unwrap_or(&[]);
            self.list_block(head, raw.at, false, 0, entries)?;
            self.list_block(rest, raw.at, false, wide(head.len()), entries)?;
            retain_from(entries, from, cursor.place);
            return Ok(None);
        }
        if self.has_index()
            && let Some(next) = self.list_by_index(cursor.place, entries).await?
        {
            return Ok(next);
        }
        let first = cursor.place.wrapping_shr(self.sb.block_shift);
        let Some((nr, here)) = self.next_block(first).await? else { return Ok(None) };
        let block = self.directory_block(nr, here.start).await?;
        let base = nr.wrapping_shl(self.sb.block_shift);
        self.list_block(&block, self.volume.byte_of(here.start), nr == 0, base, entries)?;
        retain_from(entries, from, cursor.place);
        let next = nr.saturating_add(1);
        Ok((next < self.blocks).then_some(DirCursor { place: next.wrapping_shl(self.sb.block_shift) }))
    }

    /// Appends the entries of a block (or of an inline area), whose first byte is byte `base` of the
    /// directory. `dots`: it begins with "." and "..".
    pub(super) fn list_block(
        &self,
        block: &[u8],
        at: u64,
        dots: bool,
        base: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<(), Error> {
        let mut all = Entries::new(block, self.volume.form());
        entries.reserve(block.len() / USUAL_ENTRY);
        loop {
            let inside = wide(all.at);
            let Some(entry) = all.next() else { return Ok(()) };
            let bad = |what: &str| self.bad_entry(at.wrapping_add(inside), what);
            let entry = entry.map_err(bad)?;
            // The first two entries of a directory are itself and its parent.
            let dot = match inside {
                0 if dots && entry.name == b"." => entry.ino == self.inode.ino.0,
                12 if dots && entry.name == b".." => true,
                _ => false,
            };
            // As the kernel: also of the parent, which is not listed.
            if entry.ino > self.sb.inodes {
                return Err(bad(&format!("an entry names inode {} of {}", entry.ino, self.sb.inodes)));
            }
            if entry.ino == 0 || dot {
                continue;
            }
            name::check(entry.name).map_err(|what| bad(&format!("an entry has {what}")))?;
            if entry.ino == self.inode.ino.0 {
                return Err(bad("an entry names the directory itself"));
            }
            entries.push(DirEntry {
                name: Name::from_slice(entry.name),
                ino: Ino(entry.ino),
                kind: kind_of(entry.kind),
                place: base.saturating_add(inside),
            });
        }
    }
}

/// Takes those of the entries from `from` on away that are before a place.
pub(super) fn retain_from(entries: &mut Vec<DirEntry>, from: usize, place: u64) {
    if place > 0 {
        let mut at = 0usize;
        entries.retain(|entry| {
            let new = at >= from;
            at = at.wrapping_add(1);
            !new || entry.place >= place
        });
    }
}

/// Blocks of a directory that lie one after another.
struct Mapped {
    /// The volume's block.
    start: u64,
    blocks: u64,
}
