//! Extended attributes, in the inode's tail and in a block of their own; large values in inodes of their own
//! (feature ea_inode).

use std::borrow::Cow;
use std::ops::Range;

use super::bytes::{index, le16, le32, put16, put32, wide};
use super::csum::Crc;
use super::feature::incompat;
use super::inode::{Body, RawInode};
use super::superblock::Superblock;
use super::{Volume, body};
use crate::acl::Acl;
use crate::attribute::{self, full_name};
use crate::{Attribute, Error, FileKind, Ino, Inode, RunPlace, Source};

/// Begins an attribute area.
const MAGIC: u32 = 0xEA02_0000;
/// `system.posix_acl_access`: the whole name is in its index.
pub(super) const ACL_ACCESS: (u8, &[u8]) = (attribute::ACL_ACCESS, b"");
/// `system.data`: what inline content the inode's 60 bytes do not hold.
pub(super) const INLINE_DATA: (u8, &[u8]) = (7, b"data");

/// Where an attribute's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Here.
    Bytes(&'a [u8]),
    /// In an inode of its own (feature ea_inode), so many bytes.
    Inode(u32, u32),
}

/// Most bytes of a value (`EXT4_XATTR_SIZE_MAX`).
const VALUE_MAX: u32 = 1 << 24;
/// Most bytes of a value that a system call takes (`XATTR_SIZE_MAX`).
const CALL_MAX: u32 = 1 << 16;
/// Most bytes of an inode's values in inodes of their own, all together.
const ALL_MAX: u64 = 4 << 20;

/// An entry of an area.
struct XattrEntry<'a> {
    name: (u8, &'a [u8]),
    offset: usize,
    /// The inode that holds the value; 0 where the area does.
    inode: u32,
    size: u32,
}

impl<'a> XattrEntry<'a> {
    /// Its value, in its area or elsewhere.
    fn value(&self, area: &'a [u8]) -> Result<Value<'a>, &'static str> {
        if self.inode != 0 {
            return Ok(Value::Inode(self.inode, self.size));
        }
        area.get(self.place()).map(Value::Bytes).ok_or("an attribute's value lies outside its area")
    }

    /// Where in its area the value lies that is no inode's.
    fn place(&self) -> Range<usize> {
        match self.size {
            0 => 0..0,
            size => self.offset..self.offset.saturating_add(index(u64::from(size))),
        }
    }
}

/// An attribute that the kernel shows: its name's number, the rest of its name, and its value.
type Shown<'a> = (u8, &'a [u8], Value<'a>);

/// The entries of an area from byte `at` on; an error ends it.
struct Entries<'a> {
    area: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    fn parse(&self) -> Option<XattrEntry<'a>> {
        let entry = self.area.get(self.at..)?;
        let (len, name_index) = (*entry.first()?, *entry.get(1)?);
        let name = entry.get(16..usize::from(len).wrapping_add(16))?;
        let offset = usize::from(le16(entry, 2)?);
        Some(XattrEntry { name: (name_index, name), offset, inode: le32(entry, 4)?, size: le32(entry, 8)? })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<XattrEntry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        match le32(self.area, self.at) {
            // Four zero bytes end the list.
            Some(0) => return None,
            None if self.at == usize::MAX => return None,
            None => {
                self.at = usize::MAX;
                return Some(Err("the attribute entries do not end"));
            }
            Some(_) => {}
        }
        let Some(entry) = self.parse() else {
            self.at = usize::MAX;
            return Some(Err("an attribute entry is cut short"));
        };
        let len = entry.name.1.len().wrapping_add(16).next_multiple_of(4);
        self.at = self.at.wrapping_add(len); // at most 272 more
        Some(Ok(entry))
    }
}

impl Superblock {
    /// What is wrong with an area, as the kernel checks it (`check_xattrs`): its entries end, their values
    /// lie behind them and within the area, or in inodes that can be.
    fn check_attributes(&self, area: &[u8], first: usize) -> Result<(), &'static str> {
        let mut entries = Entries { area, at: first };
        for entry in &mut entries {
            if entry?.name.1.contains(&0) {
                return Err("an attribute's name has a NUL in it");
            }
        }
        let values = entries.at.wrapping_add(4);
        for entry in (Entries { area, at: first }) {
            let XattrEntry { offset, inode, size, .. } = entry?;
            if inode != 0 && !self.features.incompat(incompat::EA_INODE) {
                return Err("an attribute's value is in an inode, on a volume without that feature");
            }
            if inode != 0 && (inode < self.first_inode || inode > self.inodes) {
                return Err("an attribute's value is in an inode that is none");
            }
            if size > VALUE_MAX {
                return Err("an attribute's value is longer than any");
            }
            if inode == 0 && size != 0 {
                let padded = index(u64::from(size)).next_multiple_of(4); // of at most 2^24
                if offset.wrapping_add(padded) > area.len() {
                    return Err("an attribute's value lies outside its area");
                }
                if offset < values {
                    return Err("an attribute's value lies in the attribute entries");
                }
            }
        }
        Ok(())
    }

    /// Looks for an attribute in an area of entries that begin at byte `first` of `area`; value offsets count
    /// from the area's start. The error says what is wrong with the area.
    pub(super) fn attribute<'a>(
        &self,
        area: &'a [u8],
        first: usize,
        name: (u8, &[u8]),
    ) -> Result<Option<Value<'a>>, &'static str> {
        self.attribute_entry(area, first, name)?.map(|entry| entry.value(area)).transpose()
    }

    /// All attributes of an area that the kernel shows.
    fn shown<'a>(&self, area: &'a [u8], first: usize) -> Result<Vec<Shown<'a>>, &'static str> {
        self.check_attributes(area, first)?;
        let (mut all, mut bytes) = (Vec::new(), 4usize); // four zero bytes end the entries
        let mut entries = Entries { area, at: first };
        for entry in &mut entries {
            let entry = entry?;
            bytes = bytes.saturating_add(if entry.inode == 0 { entry.place().len() } else { 0 });
            let (index, name) = entry.name;
            if full_name(index, name).is_some() {
                all.push((index, name, entry.value(area)?));
            }
        }
        // Each has bytes of its own, so that little takes little memory.
        if bytes.saturating_add(entries.at) > area.len() {
            return Err("the attributes' values overlap");
        }
        Ok(all)
    }

    fn attribute_entry<'a>(
        &self,
        area: &'a [u8],
        first: usize,
        name: (u8, &[u8]),
    ) -> Result<Option<XattrEntry<'a>>, &'static str> {
        self.check_attributes(area, first)?;
        for entry in (Entries { area, at: first }) {
            let entry = entry?;
            if entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Gives an inline directory whose inode holds no entries in its tail all the room that is left there, as one
/// free entry; how many bytes that is. `None` where it is too little for an entry.
pub(super) fn grow_inline(raw: &mut [u8]) -> Option<u32> {
    let first = usize::from(le16(raw, 0x80)?).checked_add(132)?;
    let (mut at, mut lowest, mut own) = (first, raw.len().checked_sub(first)?, None);
    while le32(raw, at)? != 0 {
        let (len, kind) = (usize::from(*raw.get(at)?), *raw.get(at.checked_add(1)?)?);
        let name = raw.get(at.checked_add(16)?..)?.get(..len)?;
        if (kind, name) == INLINE_DATA {
            own = Some(at);
        }
        if le32(raw, at.checked_add(4)?)? == 0 && le32(raw, at.checked_add(8)?)? != 0 {
            lowest = lowest.min(usize::from(le16(raw, at.checked_add(2)?)?));
        }
        at = at.checked_add(len.checked_add(16)?.next_multiple_of(4))?;
    }
    let room = lowest.checked_sub(at.checked_sub(first)?)?.checked_sub(4)?;
    let offset = lowest.checked_sub(room)?;
    let place = raw.get_mut(first.checked_add(offset)?..)?.get_mut(..room)?;
    if room <= 12 {
        return None;
    }
    place.fill(0);
    put16(place, 4, u16::try_from(room).ok()?)?;
    let (own, room) = (own?, u32::try_from(room).ok()?);
    put16(raw, own.checked_add(2)?, u16::try_from(offset).ok()?)?;
    put32(raw, own.checked_add(8)?, room)?;
    Some(room)
}

/// The attribute area of an inode's tail, which follows the fields that `extra` counts; `None` where there is
/// none.
pub(super) fn inode_area(raw: &[u8], extra: u16) -> Option<&[u8]> {
    if extra == 0 {
        return None;
    }
    let at = usize::from(extra).checked_add(128)?;
    if le32(raw, at)? != MAGIC {
        return None;
    }
    raw.get(at.checked_add(4)?..)
}

/// Whether an area holds more than inline content.
pub(super) fn has_attributes(area: &[u8]) -> bool {
    (Entries { area, at: 0 }).any(|entry| entry.is_ok_and(|entry| entry.name != INLINE_DATA))
}

impl Volume {
    /// All attributes that the kernel shows: those in the inode's tail, then those in its attribute block.
    pub(crate) async fn attributes<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
    ) -> Result<Vec<Attribute>, Error> {
        let (body, ino) = (body(inode)?, inode.ino.0);
        let raw = self.raw_inode(source, inode.ino).await?;
        let (block, at);
        let (mut all, mut in_tail, mut in_block) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(area) = raw.attributes() {
            in_tail = self.sb.shown(area, 0).map_err(|what| raw.corrupt(format!("inode {ino}: {what}")))?;
        }
        if body.attribute_block != 0 {
            block = self.attribute_block(source, body, ino).await?;
            at = self.byte_of(body.attribute_block);
            in_block = self.sb.shown(&block, 32).map_err(|what| Error::Corrupt {
                what: format!("attribute block of inode {ino}: {what}"),
                at,
            })?;
        } else {
            at = raw.at;
        }
        if has_twice(in_tail.iter().chain(&in_block)) {
            return Err(raw.corrupt(format!("inode {ino}: two attributes of one name")));
        }
        if in_inodes(in_tail.iter().chain(&in_block)) > ALL_MAX {
            let what = format!("ea_inode: the attributes of inode {ino}: more than {} MiB", ALL_MAX >> 20);
            return Err(Error::Unsupported(what));
        }
        self.take_shown(source, inode, raw.at, in_tail, &mut all).await?;
        self.take_shown(source, inode, at, in_block, &mut all).await?;
        Ok(all)
    }

    async fn take_shown<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        at: u64,
        shown: Vec<Shown<'_>>,
        all: &mut Vec<Attribute>,
    ) -> Result<(), Error> {
        for (index, name, value) in shown {
            if let Value::Inode(number, len) = value
                && !is_acl(index)
            {
                let name = full_name(index, name).unwrap_or_default();
                all.push(Attribute { name, len, value: attribute::Value::Inode(number) });
                continue;
            }
            let bytes = self.value(source, inode, value).await?;
            all.extend(Attribute::of(index, name, &bytes).map_err(|what| Error::Corrupt {
                what: format!("an attribute of inode {}: {what}", inode.ino.0),
                at,
            })?);
        }
        Ok(())
    }

    /// A value's bytes, wherever they are.
    async fn value<'a, S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        value: Value<'a>,
    ) -> Result<Cow<'a, [u8]>, Error> {
        Ok(match value {
            Value::Bytes(bytes) => bytes.into(),
            Value::Inode(number, len) => self.value_of_inode(source, inode, number, len).await?.into(),
        })
    }

    /// A value that lies in an inode of its own, looked at as the kernel does (`ext4_xattr_inode_get`).
    pub(crate) async fn value_of_inode<S: Source>(
        &self,
        source: &S,
        owner: &Inode,
        number: u32,
        len: u32,
    ) -> Result<Vec<u8>, Error> {
        let whose = format!("ea_inode: an attribute of inode {}, in inode {number}", owner.ino.0);
        if len > CALL_MAX {
            return Err(Error::Unsupported(format!("{whose}: a value of {len} bytes")));
        }
        let inode = self.inode_of(source, Ino(number), true).await.map_err(|error| match error {
            Error::Corrupt { what, at } => Error::Corrupt { what: format!("{whose}: {what}"), at },
            other => other,
        })?;
        let inner = body(&inode)?;
        let corrupt = |what: &str| Error::Corrupt { what: format!("{whose}: {what}"), at: inner.at };
        if inode.kind != FileKind::Regular {
            return Err(corrupt("which is no regular file"));
        }
        if inode.size != u64::from(len) {
            return Err(corrupt("another length"));
        }
        let (mut value, most) = (Vec::new(), u64::from(self.sb.block_size()));
        while let Some(run) = self.run(source, &inode, inner, wide(value.len())).await? {
            let RunPlace::Volume(at) = run.place else { return Err(corrupt("a hole in it")) };
            let block = self.block(source, at.wrapping_shr(self.sb.block_shift), "attribute value").await?;
            value.extend_from_slice(block.get(..index(run.len.min(most))).unwrap_or(&[]));
        }
        let seed = self.sb.seed.unwrap_or_else(|| Crc::START.over(&self.sb.uuid));
        // Lustre's have no checksum in the place of the time of access, but their owner in that of content.
        let low = |seconds: i64| u32::try_from(seconds & i64::from(u32::MAX)).unwrap_or(0);
        let lustre = low(inode.mtime.seconds) == owner.ino.0 && inode.generation == owner.generation;
        if low(inode.atime.seconds) != seed.over(&value).0 && !lustre {
            return Err(corrupt("its checksum does not match"));
        }
        Ok(value)
    }

    /// The access ACL: in the inode's tail, else in its attribute block.
    pub(crate) async fn acl<S: Source>(&self, source: &S, inode: &Inode) -> Result<Option<Acl>, Error> {
        if !inode.may_have_acl {
            return Ok(None);
        }
        let body = body(inode)?;
        let ino = inode.ino.0;
        let raw = self.raw_inode(source, inode.ino).await?;
        if let Some(area) = raw.attributes() {
            let found = self
                .sb
                .attribute(area, 0, ACL_ACCESS)
                .map_err(|what| raw.corrupt(format!("inode {ino}: {what}")))?;
            if let Some(value) = found {
                let bytes = self.value(source, inode, value).await?;
                return parse_acl(&bytes, ino, raw.at).map(Some);
            }
        }
        if body.attribute_block == 0 {
            return Ok(None);
        }
        let block = self.attribute_block(source, body, ino).await?;
        let at = self.byte_of(body.attribute_block);
        let found = self
            .sb
            .attribute(&block, 32, ACL_ACCESS)
            .map_err(|what| Error::Corrupt { what: format!("attribute block of inode {ino}: {what}"), at })?;
        match found {
            Some(value) => parse_acl(&self.value(source, inode, value).await?, ino, at).map(Some),
            None => Ok(None),
        }
    }

    async fn attribute_block<S: Source>(&self, source: &S, body: &Body, ino: u32) -> Result<S::Block, Error> {
        let nr = body.attribute_block;
        let block = self.block(source, nr, "attribute block").await?;
        let corrupt = |what: &str| Error::Corrupt {
            what: format!("attribute block of inode {ino}: {what}"),
            at: self.byte_of(nr),
        };
        if le32(&block, 0) != Some(MAGIC) {
            return Err(corrupt("no magic"));
        }
        if le32(&block, 8) != Some(1) {
            return Err(corrupt("not one block long"));
        }
        if let Some(seed) = self.sb.seed {
            let (before, after) = (block.get(..0x10).unwrap_or(&[]), block.get(0x14..).unwrap_or(&[]));
            let computed = seed.over(&nr.to_le_bytes()).over(before).over(&[0; 4]).over(after).0;
            if le32(&block, 0x10) != Some(computed) {
                return Err(corrupt("its checksum does not match"));
            }
        }
        Ok(block)
    }

    /// The first bytes of inline content, 60 in the inode and the rest in its tail: two areas, the second
    /// possibly empty.
    pub(super) fn inline_areas<'a, B: std::ops::Deref<Target = [u8]>>(
        &self,
        raw: &'a RawInode<B>,
    ) -> Result<(&'a [u8], &'a [u8]), Error> {
        let head = raw.bytes().get(0x28..0x64).unwrap_or(&[]);
        let corrupt = |what: &str| raw.corrupt(format!("inode {}: {what}", raw.ino.0));
        match raw.attributes().map_or(Ok(None), |area| self.sb.attribute(area, 0, INLINE_DATA)) {
            // Also content that the first area holds alone has the attribute, with an empty value.
            Ok(None) => Err(corrupt("inline data without the attribute system.data")),
            Ok(Some(Value::Bytes(rest))) => Ok((head, rest)),
            Ok(Some(Value::Inode(..))) => Err(corrupt("inline data in another inode")),
            Err(what) => Err(corrupt(what)),
        }
    }

    /// Where in an inode an inline directory's two areas of entries lie, the second possibly empty.
    pub(super) fn inline_places<B: std::ops::Deref<Target = [u8]>>(
        &self,
        raw: &RawInode<B>,
    ) -> Result<[Range<usize>; 2], Error> {
        let bytes = raw.bytes();
        // Behind its parent's number; and the attributes' area is the inode's last bytes.
        let head = 0x2C..0x64;
        let Some(area) = raw.attributes() else { return Ok([head, 0..0]) };
        let from = bytes.len().saturating_sub(area.len());
        let entry = self.sb.attribute_entry(area, 0, INLINE_DATA);
        let entry = entry.map_err(|what| raw.corrupt(format!("inode {}: {what}", raw.ino.0)))?;
        Ok([
            head,
            entry.map_or(0..0, |entry| {
                let place = entry.place();
                match place.is_empty() {
                    true => 0..0,
                    false => from.saturating_add(place.start)..from.saturating_add(place.end),
                }
            }),
        ])
    }

    /// What an inline file holds, at most its size; the tail of a file that was lengthened is not in it.
    pub(super) async fn inline_bytes<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        body: &Body,
    ) -> Result<Vec<u8>, Error> {
        if !body.is_inline() {
            return Err(Error::WrongKind);
        }
        let raw = self.raw_inode(source, inode.ino).await?;
        let (head, rest) = self.inline_areas(&raw)?;
        let mut bytes = [head, rest].concat();
        bytes.truncate(index(inode.size.min(wide(bytes.len()))));
        Ok(bytes)
    }
}

/// Whether two have one name.
fn has_twice<'a>(shown: impl Iterator<Item = &'a Shown<'a>>) -> bool {
    let mut names: Vec<(u8, &[u8])> = shown.map(|(index, name, _)| (*index, *name)).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
}

/// Bytes of those values that lie in inodes of their own.
fn in_inodes<'a>(shown: impl Iterator<Item = &'a Shown<'a>>) -> u64 {
    let len = |(.., value): &Shown<'_>| match value {
        Value::Inode(_, len) => u64::from(*len),
        Value::Bytes(_) => 0,
    };
    shown.map(len).fold(0, u64::saturating_add)
}

/// Whether a name's number is an ACL's.
fn is_acl(index: u8) -> bool {
    matches!(index, attribute::ACL_ACCESS | attribute::ACL_DEFAULT)
}

fn parse_acl(bytes: &[u8], ino: u32, at: u64) -> Result<Acl, Error> {
    let what = || format!("the access ACL of inode {ino} is malformed");
    Acl::parse(bytes).ok_or_else(|| Error::Corrupt { what: what(), at })
}
