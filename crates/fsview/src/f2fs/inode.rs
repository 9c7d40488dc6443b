//! The inode (S: fs/f2fs/inode.c): a node block whose first 360 bytes are attributes, then, with
//! `extra_attr`, more of them, then either addresses of blocks or, after one reserved word, the content
//! itself; at the end of that area the inline extended attributes.

use super::checkpoint::Checkpoint;
use super::fields::{Addr, BLOCK, Nid, checksum, corrupt, index, u8_at, u16_at, u32_at, u64_at};
use super::node::{self, INODE_ADDRESSES, Node, Tree};
use super::roll::inode_shown;
use super::superblock::{self, FLEXIBLE_INLINE_XATTR, INODE_CHECKSUM, INODE_CRTIME, Superblock};
use super::{nat, xattr};
use crate::{Error, FileKind, Ino, Inode, Source, Timestamp};

/// Words for addresses in an inode without extra attributes.
const WORDS: u32 = 923;
/// Words that inline extended attributes take where the volume does not let them be flexible.
const DEFAULT_XATTR_WORDS: u32 = 50;
/// Most levels of a directory's hash table.
pub(super) const MOST_LEVELS: u32 = 63;

/// Where `i_advise`, `i_pino`, `i_namelen` and `i_name` are.
pub(super) const ADVISE: usize = 2;
pub(super) const PARENT: usize = 84;
pub(super) const NAME_LEN: usize = 88;
pub(super) const NAME: usize = 92;

const INLINE_XATTR: u8 = 0x01;
const INLINE_DATA: u8 = 0x02;
const INLINE_DENTRY: u8 = 0x04;
const HAS_EXTRA: u8 = 0x20;

const ADVISE_ENCRYPT: u8 = 0x04;
const ADVISE_VERITY: u8 = 0x40;

const FLAG_COMPRESSED: u32 = 0x4;
const FLAG_CASEFOLD: u32 = 0x4000_0000;

/// The volume's own part of an inode.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(super) tree: Tree,
    /// Whether the content is in the inode: of a file, a link, or a directory.
    pub(super) inline: bool,
    /// Where in the inode's block inline content begins, in bytes, and how many there is room for.
    pub(super) inline_area: (usize, usize),
    /// Where inline extended attributes begin and their bytes; none where there are none.
    pub(super) inline_xattr: Option<(usize, usize)>,
    /// The node of further extended attributes, or 0.
    pub(super) xattr_nid: u32,
    /// Levels of a directory's hash table, and the extra level of its first.
    pub(super) levels: u32,
    pub(super) first_level: u32,
    pub(super) encrypted: bool,
    pub(super) compressed: bool,
    pub(super) casefold: bool,
}

/// Reads and checks an inode, as the log of fsync leaves it.
pub(super) async fn read<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    ino: Ino,
) -> Result<Inode, Error> {
    source.shows(inode_shown(ino.0));
    let (mut inode, node) = match cp.roll.block(ino.0) {
        Some(address) => {
            let node = node::read_at(source, address, Nid(ino.0), ino.0, 0).await?;
            (parse(&node, sb, ino)?, node)
        }
        None => stored(source, sb, cp, ino).await?,
    };
    cp.roll.lay_over(&mut inode, &node);
    Ok(inode)
}

/// Reads and checks an inode that the checkpoint has, and its block.
pub(super) async fn stored<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    ino: Ino,
) -> Result<(Inode, Node<S::Block>), Error> {
    let location = nat::locate(source, sb, cp, Nid(ino.0)).await?;
    if location.ino != ino.0 {
        return Err(corrupt(
            format!("node {} is no inode: it belongs to inode {}", ino.0, location.ino),
            location.address.byte(),
        ));
    }
    let node = node::read_at(source, location.address, Nid(ino.0), ino.0, 0).await?;
    Ok((parse(&node, sb, ino)?, node))
}

/// The block in which an inode is, all of it; `None` where it is free.
pub(super) async fn block_of<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    ino: Ino,
) -> Result<Option<Addr>, Error> {
    source.shows(inode_shown(ino.0));
    match cp.roll.block(ino.0) {
        Some(address) => Ok(Some(address)),
        None => Ok(nat::find(source, sb, cp, Nid(ino.0)).await?.map(|location| location.address)),
    }
}

/// Whether there is any attribute in the inode's own block.
pub(super) fn has_attributes(inline_xattr: Option<(usize, usize)>, block: &[u8]) -> bool {
    inline_xattr.and_then(|(from, len)| block.get(from..)?.get(..len)).is_some_and(xattr::has_entries)
}

/// Parses an inode's node block.
pub(super) fn parse<B: std::ops::Deref<Target = [u8]>>(
    node: &Node<B>,
    sb: &Superblock,
    ino: Ino,
) -> Result<Inode, Error> {
    let block: &[u8] = node.block.get(..BLOCK).unwrap_or(&[]);
    let bad = |what: String| corrupt(format!("inode {}: {what}", ino.0), node.at());

    let mode = u16_at(block, 0);
    let kind = FileKind::from_mode(mode).ok_or_else(|| bad(format!("mode {mode:#o}")))?;
    let (advise, inline, flags) = (u8_at(block, ADVISE), u8_at(block, 3), u32_at(block, 80));
    let blocks = u64_at(block, 24);
    if blocks == 0 {
        return Err(bad("no blocks at all".into()));
    }

    let extra = extra_attributes(block, sb, ino, inline).map_err(bad)?;
    let Words { extra: extra_words, xattr: xattr_words, addresses: count } =
        words(block, sb, inline, extra).map_err(bad)?;
    let byte_of = |word: u32| INODE_ADDRESSES.saturating_add(index(word.saturating_mul(4)));

    let size = u64_at(block, 16);
    let is_inline = is_inline(kind, inline).map_err(bad)?;
    let room = index(count.saturating_sub(1).saturating_mul(4));
    check_size(size, count, (is_inline && kind != FileKind::Directory).then_some(room)).map_err(bad)?;
    let with_blocks = kind == FileKind::Regular && !is_inline;
    let tree = tree(sb, node, ino, (byte_of(extra_words), count), with_blocks.then_some(size));
    let inline_xattr = (inline & INLINE_XATTR != 0 && xattr_words > 0)
        .then(|| (byte_of(WORDS.saturating_sub(xattr_words)), index(xattr_words.saturating_mul(4))));
    let xattr_nid = u32_at(block, 76);
    let levels = if kind == FileKind::Directory { u32_at(block, 72) } else { 0 };
    if levels > MOST_LEVELS {
        return Err(bad(format!("{levels} levels of hash table")));
    }

    let inline_sectors = match (is_inline, kind) {
        (true, FileKind::Regular | FileKind::Directory) => size.div_ceil(512),
        _ => 0,
    };
    let may_have_acl = xattr_nid != 0 || has_attributes(inline_xattr, block);
    Ok(Inode {
        ino,
        kind,
        mode,
        uid: u32_at(block, 4),
        gid: u32_at(block, 8),
        size,
        links: u32_at(block, 12),
        sectors: blocks.saturating_sub(1).saturating_mul(8).saturating_add(inline_sectors),
        rdev: device(kind, u32_at(block, tree.addresses), u32_at(block, tree.addresses.saturating_add(4))),
        atime: time(block, 32, 56),
        mtime: time(block, 48, 64),
        ctime: time(block, 40, 60),
        crtime: (sb.has(INODE_CRTIME) && extra.is_some_and(|bytes| bytes >= 24))
            .then(|| time(block, 372, 380)),
        generation: u32_at(block, 68),
        may_have_acl,
        may_have_attributes: may_have_acl,
        verity: advise & ADVISE_VERITY != 0,
        body: crate::Body::F2fs(Body {
            tree,
            inline: is_inline,
            inline_area: (byte_of(extra_words.saturating_add(1)), room),
            inline_xattr,
            xattr_nid,
            levels,
            first_level: u32::from(u8_at(block, 347)),
            encrypted: advise & ADVISE_ENCRYPT != 0,
            compressed: kind == FileKind::Regular
                && flags & FLAG_COMPRESSED != 0
                && sb.has(superblock::COMPRESSION),
            casefold: kind == FileKind::Directory && flags & FLAG_CASEFOLD != 0,
        }),
    })
}

/// The tree of an inode with so many addresses from a byte of its block on; `size`: of a regular file whose
/// content lies in blocks.
fn tree<B: std::ops::Deref<Target = [u8]>>(
    sb: &Superblock,
    node: &Node<B>,
    ino: Ino,
    (addresses, count): (usize, u32),
    size: Option<u64>,
) -> Tree {
    let (inode, nids) = (node.address, node::inode_nids(&node.block));
    let tree = Tree { ino: ino.0, inode, addresses, count, nids, emptied: false, head: None };
    let head = size.and_then(|size| node::head(sb, &node.block, &tree, size));
    Tree { head, ..tree }
}

/// Bytes of extra attributes, where there are any; the checksum among them is then right.
fn extra_attributes(block: &[u8], sb: &Superblock, ino: Ino, inline: u8) -> Result<Option<u32>, String> {
    if inline & HAS_EXTRA == 0 {
        return Ok(None);
    }
    let bytes = u32::from(u16_at(block, 360));
    if !sb.has(superblock::EXTRA_ATTR) {
        return Err("extra attributes on a volume without them".into());
    }
    if bytes % 4 != 0 || bytes > WORDS.saturating_mul(4) {
        return Err(format!("{bytes} bytes of extra attributes"));
    }
    if sb.has(INODE_CHECKSUM) && bytes >= 12 {
        check(block, sb, ino)?;
    }
    Ok(Some(bytes))
}

/// How the inode's words are shared out.
struct Words {
    extra: u32,
    /// At the end, for extended attributes.
    xattr: u32,
    /// Between the two: addresses of blocks, or content.
    addresses: u32,
}

fn words(block: &[u8], sb: &Superblock, inline: u8, extra: Option<u32>) -> Result<Words, String> {
    let xattr = if extra.is_some() && sb.has(FLEXIBLE_INLINE_XATTR) {
        u32::from(u16_at(block, 362))
    } else if inline & (INLINE_XATTR | INLINE_DENTRY) != 0 {
        DEFAULT_XATTR_WORDS
    } else {
        0
    };
    let extra = extra.unwrap_or(0) / 4;
    let addresses = WORDS.checked_sub(extra).and_then(|w| w.checked_sub(xattr)).filter(|w| *w > 0);
    let addresses = addresses.ok_or_else(|| format!("{extra} and {xattr} words of attributes"))?;
    Ok(Words { extra, xattr, addresses })
}

/// Whether the content stands in the inode, as it may for this kind.
fn is_inline(kind: FileKind, inline: u8) -> Result<bool, String> {
    let may_hold = match kind {
        FileKind::Directory => INLINE_DENTRY,
        FileKind::Regular | FileKind::Symlink => INLINE_DATA,
        _ => 0,
    };
    let held = inline & (INLINE_DATA | INLINE_DENTRY);
    if held & !may_hold != 0 {
        return Err(format!("flags {inline:#x} of inline content, which it cannot have"));
    }
    Ok(held != 0)
}

/// Whether so many bytes are within what `count` addresses reach, or within the inode's own room where they
/// are there.
fn check_size(size: u64, count: u32, room: Option<usize>) -> Result<(), String> {
    if size.div_ceil(4096) > node::most_blocks(count) {
        return Err(format!("{size} bytes"));
    }
    match room {
        Some(room) if size > super::fields::number(room) => {
            Err(format!("{size} bytes inline where {room} fit"))
        }
        _ => Ok(()),
    }
}

/// Verifies the inode's checksum, which covers the volume's UUID, the number, the generation and the whole
/// block.
fn check(block: &[u8], sb: &Superblock, ino: Ino) -> Result<(), String> {
    const FIELD: usize = INODE_ADDRESSES + 8;
    let found = u32_at(block, FIELD);
    let mut computed = checksum(!0, &sb.uuid);
    computed = checksum(computed, &ino.0.to_le_bytes());
    computed = checksum(computed, &u32_at(block, 68).to_le_bytes());
    computed = checksum(computed, block.get(..FIELD).unwrap_or(&[]));
    computed = checksum(computed, &[0; 4]);
    computed = checksum(computed, block.get(FIELD + 4..).unwrap_or(&[]));
    if found == computed { Ok(()) } else { Err(format!("checksum {found:#x}, computed {computed:#x}")) }
}

fn time(block: &[u8], seconds: usize, nanoseconds: usize) -> Timestamp {
    Timestamp {
        seconds: u64_at(block, seconds).cast_signed(),
        nanoseconds: u32_at(block, nanoseconds).min(999_999_999),
    }
}

/// A device's numbers: in the first word the old 16-bit form, else in the second the new one.
fn device(kind: FileKind, old: u32, new: u32) -> (u32, u32) {
    match kind {
        FileKind::CharDevice | FileKind::BlockDevice if old != 0 => (old >> 8 & 0xFF, old & 0xFF),
        FileKind::CharDevice | FileKind::BlockDevice => (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xF_FF00),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_both_forms() {
        assert_eq!(device(FileKind::CharDevice, 0x0103, 0), (1, 3));
        // Major 259, minor 0x12307: the minor's low byte, the major, the minor's rest.
        assert_eq!(device(FileKind::BlockDevice, 0, 0x07 | 259 << 8 | 0x123 << 20), (259, 0x1_2307));
        assert_eq!(device(FileKind::Regular, 5, 5), (0, 0));
    }
}
