//! Extended attributes (S: fs/f2fs/xattr.c): one area, of which the first part may be at the end of the inode
//! and the rest in a node of its own; a header, then entries to a zero word.

use super::checkpoint::Checkpoint;
use super::fields::{Nid, corrupt, u8_at, u16_at, u32_at};
use super::inode::Body;
use super::node;
use super::roll::inode_shown;
use super::superblock::Superblock;
use crate::acl::Acl;
use crate::attribute::ACL_ACCESS;
use crate::{Attribute, Error, Ino, Source};

const MAGIC: u32 = 0xF2F5_2011;
const HEADER: usize = 24;
/// Bytes of attributes in a node: all but the footer.
const IN_NODE: usize = 4072;

/// Whether an inline area holds any attribute.
pub(super) fn has_entries(area: &[u8]) -> bool {
    u32_at(area, 0) == MAGIC && u32_at(area, HEADER) != 0
}

/// The whole area of an inode.
async fn area_of<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    ino: Ino,
    body: &Body,
) -> Result<Vec<u8>, Error> {
    let mut area = Vec::new();
    if let Some((from, len)) = body.inline_xattr {
        let inode = node::read_at(source, body.tree.inode, Nid(ino.0), ino.0, 0).await?;
        area.extend_from_slice(inode.block.get(from..).and_then(|b| b.get(..len)).unwrap_or(&[]));
    }
    source.shows(inode_shown(ino.0));
    let node = match cp.roll.attributes(ino.0) {
        Some(log) => Some(node::read_at(source, log.address, log.nid, ino.0, node::XATTR_PLACE).await?),
        None if body.xattr_nid == 0 => None,
        None => Some(node::read_node(source, sb, cp, Nid(body.xattr_nid), ino.0, node::XATTR_PLACE).await?),
    };
    if let Some(node) = node {
        area.extend_from_slice(node.block.get(..IN_NODE).unwrap_or(&[]));
    }
    Ok(area)
}

/// The access ACL of an inode.
pub(super) async fn acl<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    ino: Ino,
    body: &Body,
) -> Result<Option<Acl>, Error> {
    let at = body.tree.inode.byte();
    let area = area_of(source, sb, cp, ino, body).await?;
    let value =
        find(&area, ACL_ACCESS, b"").map_err(|what| corrupt(format!("inode {}: {what}", ino.0), at))?;
    value
        .map(|bytes| {
            Acl::parse(bytes).ok_or_else(|| corrupt(format!("inode {}: a malformed access ACL", ino.0), at))
        })
        .transpose()
}

/// What the kernel would show of an inode's attributes.
pub(super) async fn attributes<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    ino: Ino,
    body: &Body,
) -> Result<Vec<Attribute>, Error> {
    let bad = |what: String| corrupt(format!("inode {}: {what}", ino.0), body.tree.inode.byte());
    let area = area_of(source, sb, cp, ino, body).await?;
    let mut all = Vec::new();
    for entry in entries(&area) {
        let (index, name, value) = entry.map_err(bad)?;
        all.extend(Attribute::of(index, name, value).map_err(|what| bad(what.into()))?);
    }
    Ok(all)
}

/// The value of an attribute in a whole area.
pub(super) fn find<'a>(area: &'a [u8], index: u8, name: &[u8]) -> Result<Option<&'a [u8]>, String> {
    for entry in entries(area) {
        let (at, found, value) = entry?;
        if at == index && found == name {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// A name's number, the rest of the name, and the value.
type Entry<'a> = (u8, &'a [u8], &'a [u8]);

/// The entries of a whole area; an error ends them.
fn entries(area: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, String>> {
    let mut rest = match u32_at(area, 0) {
        MAGIC => area.get(HEADER..).unwrap_or(&[]),
        _ => &[],
    };
    // Each entry takes at least four bytes, so this ends.
    std::iter::from_fn(move || {
        if u32_at(rest, 0) == 0 {
            return None;
        }
        let (name_len, value_len) = (usize::from(u8_at(rest, 1)), usize::from(u16_at(rest, 2)));
        let name_end = name_len.saturating_add(4);
        let end = name_end.saturating_add(value_len);
        let (Some(found), Some(value)) = (rest.get(4..name_end), rest.get(name_end..end)) else {
            rest = &[];
            return Some(Err(format!(
                "an extended attribute of {name_len} and {value_len} bytes past the area's end"
            )));
        };
        let index = u8_at(rest, 0);
        rest = rest.get(end.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok((index, found, value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(entries: &[u8]) -> Vec<u8> {
        let mut area = vec![0; HEADER];
        area[..4].copy_from_slice(&MAGIC.to_le_bytes());
        area.extend_from_slice(entries);
        area
    }

    #[test]
    fn entries_are_found_by_index_and_name() {
        let bytes = area(&[1, 1, 3, 0, b'a', 7, 8, 9, 2, 0, 4, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(find(&bytes, 1, b"a").unwrap(), Some(&[7, 8, 9][..]));
        assert_eq!(find(&bytes, 2, b"").unwrap(), Some(&[1, 2, 3, 4][..]));
        assert_eq!(find(&bytes, 2, b"a").unwrap(), None);
    }

    #[test]
    fn an_entry_past_the_end_is_said() {
        assert!(find(&area(&[2, 0, 200, 0, 1]), 2, b"").is_err());
        assert_eq!(find(&area(&[]), 2, b"").unwrap(), None);
        assert_eq!(find(&[], 2, b"").unwrap(), None);
    }
}
