//! Extended attributes, in the inode's tail and in a block of their own: only as far as ACLs and inline data
//! need them.

use std::ops::Range;

use super::bytes::{index, le16, le32, put16, put32, wide};
use super::feature::incompat;
use super::inode::{Body, RawInode};
use super::superblock::Superblock;
use super::{Volume, body};
use crate::acl::Acl;
use crate::{Error, Inode, Source};

/// Begins an attribute area.
const MAGIC: u32 = 0xEA02_0000;
/// `system.posix_acl_access`: the whole name is in its index.
pub(super) const ACL_ACCESS: (u8, &[u8]) = (2, b"");
/// `system.data`: what inline content the inode's 60 bytes do not hold.
pub(super) const INLINE_DATA: (u8, &[u8]) = (7, b"data");

/// Where an attribute's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Here.
    Bytes(&'a [u8]),
    /// In an inode of its own (feature ea_inode).
    Inode(u32),
}

/// Most bytes of a value (`EXT4_XATTR_SIZE_MAX`).
const VALUE_MAX: u32 = 1 << 24;

/// An entry of an area.
struct XattrEntry<'a> {
    name: (u8, &'a [u8]),
    offset: usize,
    /// The inode that holds the value; 0 where the area does.
    inode: u32,
    size: u32,
}

impl XattrEntry<'_> {
    /// Where in its area the value lies that is no inode's.
    fn place(&self) -> Range<usize> {
        match self.size {
            0 => 0..0,
            size => self.offset..self.offset.saturating_add(index(u64::from(size))),
        }
    }
}

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
        let Some(entry) = self.attribute_entry(area, first, name)? else { return Ok(None) };
        if entry.inode != 0 {
            return Ok(Some(Value::Inode(entry.inode)));
        }
        let value = area.get(entry.place()).ok_or("an attribute's value lies outside its area")?;
        Ok(Some(Value::Bytes(value)))
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

impl Volume {
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
                return parse_acl(value, ino, raw.at).map(Some);
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
        found.map(|value| parse_acl(value, ino, at)).transpose()
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
            Ok(Some(Value::Inode(_))) => Err(corrupt("inline data in another inode")),
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

fn parse_acl(value: Value<'_>, ino: u32, at: u64) -> Result<Acl, Error> {
    match value {
        Value::Inode(other) => {
            Err(Error::Unsupported(format!("ea_inode: the ACL of inode {ino} is in inode {other}")))
        }
        Value::Bytes(bytes) => Acl::parse(bytes).ok_or_else(|| Error::Corrupt {
            what: format!("the access ACL of inode {ino} is malformed"),
            at,
        }),
    }
}
