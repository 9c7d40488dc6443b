//! What fsync wrote after the checkpoint, as the kernel's roll-forward would leave it: laid over the
//! checkpoint wherever nodes and entries are read. It holds addresses and names, no blocks; `recovery` makes
//! it from the log. Whoever reads by it says so ([`Source::shows`]), by inode and by directory, so that what
//! was made of another inode's state outlives an fsync.

use std::cmp::Ordering;
use std::sync::Arc;

use super::fields::{Addr, Nid, corrupt, index, number, u8_at, u32_at};
use super::inode;
use super::node::{self, Node, Tree};
use super::superblock::Superblock;
use crate::pace::Pace;
use crate::recovery::behind_all;
use crate::shared::Shared;
use crate::{Body, Error, FileKind, Ino, Inode, Source};

/// `FADVISE_KEEP_SIZE_BIT` of `i_advise`: blocks behind the size do not make a file longer.
const ADVISE_KEEP_SIZE: u8 = 0x10;

/// Bytes that a name costs beside its own.
const NAME_COST: usize = 32;

/// A node of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogNode {
    pub address: Addr,
    /// What the node calls itself: recovery gives it another identifier, so nothing is found by it.
    pub nid: Nid,
}

/// Direct nodes of the log by their place in the inode's tree: the nodes above them are not in it.
pub(super) type Places = Shared<u32, LogNode>;

/// What the log says of an inode, as [`Source::shows`] is told.
pub(super) fn inode_shown(ino: u32) -> u64 {
    behind_all(u64::from(ino).wrapping_shl(1)) // of 33 bits
}

/// What it says of a directory's names.
pub(super) fn names_shown(dir: u32) -> u64 {
    behind_all(u64::from(dir).wrapping_shl(1) | 1) // of 33 bits
}

/// An inode of which the log holds nodes.
#[derive(Clone, Debug)]
pub(super) struct Rolled {
    /// Its own block: the log's, or the checkpoint's where the log has only other nodes of it.
    pub block: Addr,
    pub size: u64,
    keep_size: bool,
    links: u32,
    /// Whether its content is in its block.
    inline: bool,
    /// Whether the addresses in its block count for nothing.
    emptied: bool,
    /// Where in its block the addresses begin, and how many there are.
    addresses: usize,
    count: u32,
    /// The nodes that the checkpoint knows, as far as they still belong to it.
    nids: [u32; 5],
    pub places: Places,
    /// The node of further extended attributes that the checkpoint knows, or 0.
    xattr_nid: u32,
    xattr: Option<LogNode>,
}

impl Rolled {
    /// An inode as the checkpoint has it, of which nothing is taken from the log yet.
    pub fn of(stored: &Inode, block: &[u8], at: u64) -> Result<Rolled, Error> {
        let body = regular(stored, at)?;
        Ok(Rolled {
            block: body.tree.inode,
            size: stored.size,
            keep_size: keeps_size(block),
            links: stored.links,
            inline: body.inline,
            emptied: false,
            addresses: body.tree.addresses,
            count: body.tree.count,
            nids: body.tree.nids,
            places: Places::default(),
            xattr_nid: body.xattr_nid,
            xattr: None,
        })
    }

    /// An inode that the checkpoint does not know, from its first block in the log: one link and no content.
    pub fn born(inode: &Inode, at: u64) -> Result<Rolled, Error> {
        let body = regular(inode, at)?;
        Ok(Rolled {
            block: body.tree.inode,
            size: 0,
            keep_size: false,
            links: 1,
            inline: false,
            emptied: true,
            addresses: body.tree.addresses,
            count: body.tree.count,
            nids: [0; 5],
            places: Places::default(),
            xattr_nid: 0,
            xattr: None,
        })
    }

    /// Its tree so far.
    pub fn tree(&self, ino: u32) -> Tree {
        Tree {
            ino,
            inode: self.block,
            addresses: self.addresses,
            count: self.count,
            nids: self.nids,
            emptied: self.emptied || self.inline,
            head: None,
        }
    }

    /// The first block of the file below the direct node at a place; `None` where there is no direct node.
    pub fn first_block(&self, place: u32) -> Option<u64> {
        node::first_block(place)?.checked_add(u64::from(self.count))
    }

    /// Which addresses of a node make the file longer where they are new: from here on; `None` where none do.
    pub fn growing(&self, table: &[u8], first_block: u64) -> Option<usize> {
        let from = usize::try_from(self.size.div_ceil(4096).saturating_sub(first_block)).ok()?;
        let named = |word: &[u8]| Addr(u32_at(word, 0)) != Addr::NULL;
        (!self.keep_size && table.chunks_exact(4).skip(from).any(named)).then_some(from)
    }

    /// The file ends no earlier than the last address from entry `from` on that is there and was not before.
    pub fn grow(&mut self, table: &[u8], before: &[u8], from: usize, first_block: u64) {
        let is_new = |at: usize| {
            let offset = at.saturating_mul(4);
            let address = u32_at(table, offset);
            Addr(address) != Addr::NULL && address != u32_at(before, offset)
        };
        if let Some(last) = (from..table.len() / 4).rev().find(|at| is_new(*at)) {
            let blocks = first_block.saturating_add(number(last)).saturating_add(1);
            self.size = blocks.saturating_mul(4096);
        }
    }

    /// The addresses in a block of the inode.
    pub fn table<'b>(&self, block: &'b [u8]) -> &'b [u8] {
        let bytes = index(self.count.saturating_mul(4));
        block.get(self.addresses..).and_then(|b| b.get(..bytes)).unwrap_or(&[])
    }

    /// Takes the fields of a block of the inode from the log, but not its content. Whether the content is in
    /// the block.
    pub fn fields(&mut self, inode: &Inode, block: &[u8], at: u64) -> Result<bool, Error> {
        let body = regular(inode, at)?;
        if (body.tree.addresses, body.tree.count) != (self.addresses, self.count) {
            let what = format!(
                "inode {}: {} addresses from byte {} in the log, {} from byte {} before",
                inode.ino.0, body.tree.count, body.tree.addresses, self.count, self.addresses
            );
            return Err(corrupt(what, at));
        }
        self.size = inode.size;
        self.keep_size = keeps_size(block);
        Ok(body.inline)
    }

    /// Takes the content of a block of the inode from the log.
    pub fn content(&mut self, block: Addr, inline: bool) {
        if inline && !self.inline {
            // Its blocks are given back first.
            self.places = Places::default();
            self.nids = [0; 5];
        }
        (self.block, self.inline, self.emptied) = (block, inline, false);
    }

    /// Takes a direct node from the log.
    pub fn node(&mut self, place: u32, node: LogNode) {
        self.no_longer_inline();
        self.places.insert(place, node);
    }

    /// Content in the inode gives way to blocks.
    pub fn no_longer_inline(&mut self) {
        self.emptied |= self.inline;
        self.inline = false;
    }

    /// Takes the node of extended attributes from the log.
    pub fn attributes(&mut self, node: LogNode) {
        self.xattr = Some(node);
    }

    /// What recovery changes in an inode parsed from [`Rolled::block`].
    fn lay_over(&self, inode: &mut Inode, block: &[u8]) {
        inode.size = self.size;
        inode.links = self.links;
        if let Body::F2fs(body) = &mut inode.body {
            body.tree = self.tree(inode.ino.0);
            body.inline = self.inline;
            body.xattr_nid = self.xattr_nid;
            inode.may_have_acl = self.xattr.is_some()
                || self.xattr_nid != 0
                || inode::has_attributes(body.inline_xattr, block);
            inode.may_have_attributes = inode.may_have_acl;
        }
    }
}

fn keeps_size(block: &[u8]) -> bool {
    u8_at(block, inode::ADVISE) & ADVISE_KEEP_SIZE != 0
}

/// The body of a regular file's inode: an fsync of anything else writes a checkpoint.
fn regular(inode: &Inode, at: u64) -> Result<&super::Body, Error> {
    match (&inode.body, inode.kind) {
        (Body::F2fs(body), FileKind::Regular) => Ok(body),
        _ => Err(corrupt(format!("inode {}, no regular file, in the log of fsync", inode.ino.0), at)),
    }
}

/// An entry that the log names: of which directory, and how it is called.
pub(super) type Entry = (u32, Arc<[u8]>);

/// Everything that the log adds to the checkpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Roll {
    pub inodes: Shared<u32, Rolled>,
    /// The inodes of entries: in place of one of the same name.
    pub names: Shared<Entry, u32>,
    /// Links that inodes have lost to these entries.
    pub lost_links: Shared<u32, u32>,
    /// Nodes of the log that were taken in.
    pub nodes: u64,
    /// Places of all its inodes.
    places: usize,
    /// Bytes of all its names.
    name_bytes: usize,
}

impl Roll {
    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        let each = |count: usize, bytes: usize| number(count).saturating_mul(number(bytes));
        let inodes = each(self.inodes.len(), size_of::<(u32, Rolled)>());
        let names = each(self.names.len(), NAME_COST).saturating_add(number(self.name_bytes));
        let lost = each(self.lost_links.len(), size_of::<(u32, u32)>());
        let places = each(self.places, size_of::<(u32, LogNode)>());
        [places, names, lost].into_iter().fold(inodes, u64::saturating_add)
    }

    /// Gives its memory back in pieces.
    pub async fn give_back<S: Source>(self, pace: &mut Pace<'_, S>) {
        self.inodes.give_back(pace).await;
        self.names.give_back(pace).await;
        self.lost_links.give_back(pace).await;
    }

    /// An inode is so from now on.
    pub fn put(&mut self, ino: u32, rolled: Rolled) {
        self.places = self.places.saturating_add(rolled.places.len());
        if let Some(before) = self.inodes.insert(ino, rolled) {
            self.places = self.places.saturating_sub(before.places.len());
        }
    }

    /// A directory names an inode so.
    pub fn name_is(&mut self, dir: u32, name: &[u8], ino: u32) {
        if self.names.insert((dir, name.into()), ino).is_none() {
            self.name_bytes = self.name_bytes.saturating_add(name.len());
        }
    }

    /// No entry of it counts.
    pub fn forget_names(&mut self) {
        (self.names, self.lost_links, self.name_bytes) = Default::default();
    }

    /// The block in which an inode of the log is.
    pub fn block(&self, ino: u32) -> Option<Addr> {
        self.inodes.get(&ino).map(|rolled| rolled.block)
    }

    /// The direct nodes of an inode.
    pub fn places(&self, ino: u32) -> Option<&Places> {
        self.inodes.get(&ino).map(|rolled| &rolled.places)
    }

    /// The node of an inode's further extended attributes.
    pub fn attributes(&self, ino: u32) -> Option<LogNode> {
        self.inodes.get(&ino)?.xattr
    }

    /// What the log says of a name.
    pub fn name(&self, dir: Ino, name: &[u8]) -> Option<u32> {
        self.names.find(|(here, known)| (*here, &**known).cmp(&(dir.0, name))).copied()
    }

    /// A directory's entries in the log, by name.
    pub fn entries(&self, dir: Ino) -> impl Iterator<Item = (&[u8], u32)> {
        let from =
            self.names.from(|(here, _)| if *here < dir.0 { Ordering::Less } else { Ordering::Greater });
        from.take_while(move |((here, _), _)| *here == dir.0).map(|((_, name), ino)| (&**name, *ino))
    }

    /// Changes a parsed inode to what it is after recovery.
    pub fn lay_over<B: std::ops::Deref<Target = [u8]>>(&self, inode: &mut Inode, node: &Node<B>) {
        if let Some(rolled) = self.inodes.get(&inode.ino.0) {
            rolled.lay_over(inode, &node.block);
        }
        let lost = self.lost_links.get(&inode.ino.0).copied().unwrap_or(0);
        inode.links = inode.links.saturating_sub(lost);
    }

    /// Counts an entry's removal: of a name, and of a directory's own ".." and "." with it.
    pub fn lose_link(&mut self, ino: u32, kind: FileKind, dir: u32) {
        let mut lose = |ino: u32| {
            let lost = self.lost_links.get(&ino).copied().unwrap_or(0);
            self.lost_links.insert(ino, lost.saturating_add(1));
        };
        lose(ino);
        if kind == FileKind::Directory {
            lose(ino);
            lose(dir);
        }
    }
}

/// Parses a block of an inode that the log holds.
pub(super) fn parse<B: std::ops::Deref<Target = [u8]>>(
    block: B,
    address: Addr,
    sb: &Superblock,
    ino: u32,
) -> Result<(Inode, Node<B>), Error> {
    let node = Node { address, block };
    let inode = inode::parse(&node, sb, Ino(ino))?;
    Ok((inode, node))
}

#[cfg(test)]
impl Rolled {
    /// One of which so many direct nodes are in the log.
    pub(super) fn with_places(count: u32) -> Rolled {
        let node = LogNode { address: Addr(9), nid: Nid(9) };
        let mut places = Places::default();
        for place in 1..=count {
            places.insert(place, node);
        }
        Rolled {
            block: Addr(9),
            size: 0,
            keep_size: false,
            links: 1,
            inline: false,
            emptied: false,
            addresses: 0,
            count: 0,
            nids: [0; 5],
            places,
            xattr_nid: 0,
            xattr: None,
        }
    }
}
