//! Extended attributes, in the inode's tail and in a block of their own: only as far as ACLs and inline data
//! need them.

use super::bytes::{index, le16, le32, wide};
use super::inode::{Body, RawInode};
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

/// Bytes of an entry whose name has `len`.
fn entry_len(len: u8) -> usize {
    usize::from(len).wrapping_add(16).next_multiple_of(4)
}

/// What is wrong with an area, as the kernel checks it (`check_xattrs`): its entries end, their values lie
/// behind them and within the area.
fn check(area: &[u8], first: usize) -> Result<(), &'static str> {
    let mut end = first;
    loop {
        match le32(area, end) {
            None => return Err("the attribute entries do not end"),
            Some(0) => break,
            Some(_) => {
                let len = area.get(end).copied().unwrap_or(0);
                end = end.wrapping_add(entry_len(len)); // at most 272 more, and end < area.len()
            }
        }
    }
    let values = end.wrapping_add(4);
    let mut at = first;
    while at < end {
        let entry = area.get(at..end).unwrap_or(&[]);
        let cut = "an attribute entry is cut short";
        let (Some(&len), Some(offset), Some(inode), Some(size)) =
            (entry.first(), le16(entry, 2), le32(entry, 4), le32(entry, 8))
        else {
            return Err(cut);
        };
        let name = entry.get(16..usize::from(len).wrapping_add(16)).ok_or(cut)?;
        if name.contains(&0) {
            return Err("an attribute's name has a NUL in it");
        }
        if inode == 0 && size != 0 {
            let (offset, size) = (usize::from(offset), index(u64::from(size)));
            let padded = size.checked_next_multiple_of(4).and_then(|size| offset.checked_add(size));
            if padded.is_none_or(|end| end > area.len()) {
                return Err("an attribute's value lies outside its area");
            }
            if offset < values {
                return Err("an attribute's value lies in the attribute entries");
            }
        }
        at = at.wrapping_add(entry_len(len));
    }
    Ok(())
}

/// Looks for an attribute in an area of entries that begin at byte `first` of `area`; value offsets count
/// from the area's start. The error says what is wrong with the area.
pub(super) fn find<'a>(
    area: &'a [u8],
    first: usize,
    (name_index, name): (u8, &[u8]),
) -> Result<Option<Value<'a>>, &'static str> {
    check(area, first)?;
    let mut at = first;
    loop {
        // Four zero bytes end the list.
        let Some(entry) = area.get(at..).filter(|_| le32(area, at).is_some_and(|word| word != 0)) else {
            return Ok(None);
        };
        let cut = "an attribute entry is cut short";
        let (Some(&len), Some(&entry_index)) = (entry.first(), entry.get(1)) else { return Err(cut) };
        let end = usize::from(len).wrapping_add(16);
        let entry_name = entry.get(16..end).ok_or(cut)?;
        if entry_index == name_index && entry_name == name {
            let (Some(offset), Some(inode), Some(size)) = (le16(entry, 2), le32(entry, 4), le32(entry, 8))
            else {
                return Err(cut);
            };
            if inode != 0 {
                return Ok(Some(Value::Inode(inode)));
            }
            if size == 0 {
                return Ok(Some(Value::Bytes(&[])));
            }
            let value = area.get(usize::from(offset)..).and_then(|v| v.get(..index(u64::from(size))));
            return value.map(Value::Bytes).map(Some).ok_or("an attribute's value lies outside its area");
        }
        at = at.wrapping_add(entry_len(len));
    }
}

/// The attribute area of an inode's tail, which follows the fields that `extra` counts; `None` where there is
/// none.
pub(super) fn inode_area(raw: &[u8], extra: u16) -> Option<&[u8]> {
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
            let found =
                find(area, 0, ACL_ACCESS).map_err(|what| raw.corrupt(format!("inode {ino}: {what}")))?;
            if let Some(value) = found {
                return parse_acl(value, ino, raw.at).map(Some);
            }
        }
        if body.attribute_block == 0 {
            return Ok(None);
        }
        let block = self.attribute_block(source, body, ino).await?;
        let at = self.byte_of(body.attribute_block);
        let found = find(&block, 32, ACL_ACCESS)
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
        match raw.attributes().map_or(Ok(None), |area| find(area, 0, INLINE_DATA)) {
            // Also content that the first area holds alone has the attribute, with an empty value.
            Ok(None) => Err(corrupt("inline data without the attribute system.data")),
            Ok(Some(Value::Bytes(rest))) => Ok((head, rest)),
            Ok(Some(Value::Inode(_))) => Err(corrupt("inline data in another inode")),
            Err(what) => Err(corrupt(what)),
        }
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
