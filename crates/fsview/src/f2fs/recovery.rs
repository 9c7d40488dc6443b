//! Roll-forward (S: fs/f2fs/recovery.c): fsync writes the nodes of a file to the warm node log and no
//! checkpoint. From where the checkpoint left that log a chain of blocks follows that repeat its version;
//! what a mount makes of them is laid over the checkpoint as [`Roll`].
//!
//! The chain is read twice, as the kernel does. First: which inodes have a node with the fsync mark, and
//! which is the last of each. Then, in order: every node of such an inode up to its last mark, marked or not.
//! Its own block gives the fields and the first addresses, the others the addresses at their place in the
//! tree; the last of its blocks with the entry mark also names the directory entry.
//!
//! A chain that the kernel gives up (and then mounts the checkpoint's state) is an error here: whoever wants
//! that state asks for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::checkpoint::{CRC_RECOVERY, Checkpoint, DISABLED, NOCRC_RECOVERY};
use super::dir::Dir;
use super::fields::{Addr, Nid, corrupt, index, read, u32_at};
use super::inode::{self, NAME, NAME_LEN, PARENT};
use super::node::{self, DENT_FLAG, Direct, FSYNC_FLAG, Footer, XATTR_PLACE};
use super::roll::{self, LogNode, Roll, Rolled};
use super::superblock::Superblock;
use super::{nat, own};
use crate::{Error, FileKind, Ino, Source, name};

/// Nodes of the chain that are looked at where it is not taken in. A chain longer than this without an fsync
/// among them counts as holding one.
const LOOKED_AT: u32 = 32;

/// Whether a node was written after this checkpoint and before the next.
fn follows(cp: &Checkpoint, footer: Footer) -> bool {
    if cp.has(NOCRC_RECOVERY) {
        return cp.version << 32 == footer.cp_version << 32;
    }
    let crc = if cp.has(CRC_RECOVERY) { u64::from(cp.crc) << 32 } else { 0 };
    cp.version | crc == footer.cp_version
}

/// A node of the chain.
struct Link<B> {
    at: Addr,
    block: B,
    footer: Footer,
    /// Which of the chain it is, from 0.
    number: u64,
}

impl<B> Link<B> {
    fn is_inode(&self) -> bool {
        self.footer.nid == self.footer.ino
    }

    fn has(&self, mark: u32) -> bool {
        self.footer.flag & mark != 0
    }

    /// Whether it names a directory entry.
    fn is_entry(&self) -> bool {
        self.is_inode() && self.has(DENT_FLAG)
    }
}

/// The chain, read on from block to block. A block leads to one other, so that a chain without an end comes
/// back to a block it has passed: one that is kept, and replaced after 1, 2, 4, ... steps, is met again
/// within some turns (Brent's algorithm).
struct Chain {
    next: Addr,
    number: u64,
    passed: Addr,
    since: u64,
    turn: u64,
}

impl Chain {
    fn new(cp: &Checkpoint) -> Chain {
        Chain { next: cp.warm_node, number: 0, passed: Addr::NULL, since: 0, turn: 1 }
    }

    /// The next node; `None` at the end.
    async fn step<S: Source>(
        &mut self,
        source: &S,
        sb: &Superblock,
        cp: &Checkpoint,
    ) -> Result<Option<Link<S::Block>>, Error> {
        let at = self.next;
        if !sb.in_main(at) {
            return Ok(None);
        }
        if at == self.passed {
            let what = format!("the log of fsync leads back to block {} after {} nodes", at.0, self.number);
            return Err(corrupt(what, at.byte()));
        }
        let block = read(source, at).await?;
        let footer = Footer::of(&block);
        if !follows(cp, footer) {
            return Ok(None);
        }
        self.since = self.since.saturating_add(1);
        if self.since == self.turn {
            (self.passed, self.since, self.turn) = (at, 0, self.turn.saturating_mul(2));
        }
        let number = self.number;
        self.number = number.saturating_add(1);
        self.next = footer.next;
        Ok(Some(Link { at, block, footer, number }))
    }
}

/// Whether the log holds what fsync wrote, as far as its first nodes show: what lies at home is then older
/// than the last durable state.
pub(super) async fn needed<S: Source>(source: &S, sb: &Superblock, cp: &Checkpoint) -> Result<bool, Error> {
    if cp.has(DISABLED) {
        return Ok(false);
    }
    let mut chain = Chain::new(cp);
    for _ in 0..LOOKED_AT {
        match chain.step(source, sb, cp).await {
            Ok(Some(link)) if link.has(FSYNC_FLAG) => return Ok(true),
            Ok(Some(_)) => {}
            // A chain without an end holds nothing that could be recovered.
            Ok(None) | Err(Error::Corrupt { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// What the first reading says of an inode with an fsync mark.
struct Marked {
    /// Its last node with the mark.
    last: u64,
    /// Its last block that names a directory entry.
    entry: Option<u64>,
    /// Its first block, where the checkpoint does not know it.
    born: Option<Addr>,
}

/// Reads the log and says what a mount would take from it.
pub(super) async fn roll_forward<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
) -> Result<Roll, Error> {
    let mut roll = Roll::default();
    // The kernel mounts a volume without checkpoints as the last one left it.
    if cp.has(DISABLED) {
        return Ok(roll);
    }
    let marked = marked(source, sb, cp).await?;
    let Some(last) = marked.values().map(|m| m.last).max() else { return Ok(roll) };
    let mut chain = Chain::new(cp);
    loop {
        let Some(link) = chain.step(source, sb, cp).await? else {
            return Err(corrupt("the log of fsync changed while it was read", chain.next.byte()));
        };
        let number = link.number;
        if let Some(marked) = marked.get(&link.footer.ino).filter(|m| number <= m.last) {
            Recovering { source, sb, cp, roll: &mut roll }.take(link, marked).await?;
        }
        if number >= last {
            return Ok(roll);
        }
    }
}

/// The first reading.
async fn marked<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
) -> Result<BTreeMap<u32, Marked>, Error> {
    let mut marked = BTreeMap::new();
    let mut chain = Chain::new(cp);
    while let Some(link) = chain.step(source, sb, cp).await? {
        if !link.has(FSYNC_FLAG) {
            continue;
        }
        let ino = link.footer.ino;
        let found = match marked.entry(ino) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => {
                let known = nat::find(source, sb, cp, Nid(ino)).await?;
                let born = match (known, link.is_entry()) {
                    (Some(_), true) => {
                        let what =
                            format!("the log of fsync makes inode {ino} anew, which the checkpoint has");
                        return Err(corrupt(what, link.at.byte()));
                    }
                    // What has lost its last name is given back before.
                    (Some(_), false) if inode::stored(source, sb, cp, Ino(ino)).await?.0.links == 0 => {
                        continue;
                    }
                    (Some(_), false) => None,
                    (None, true) => Some(link.at),
                    // No name leads to it, unless a later block says one.
                    (None, false) => continue,
                };
                free.insert(Marked { last: link.number, entry: None, born })
            }
        };
        found.last = link.number;
        if link.is_entry() {
            found.entry = Some(link.number);
        }
    }
    Ok(marked)
}

/// The second reading: the volume and what has been taken from the log so far.
struct Recovering<'a, S> {
    source: &'a S,
    sb: &'a Superblock,
    cp: &'a Checkpoint,
    roll: &'a mut Roll,
}

impl<S: Source> Recovering<'_, S> {
    /// Takes a node in.
    async fn take(&mut self, link: Link<S::Block>, marked: &Marked) -> Result<(), Error> {
        let (ino, at, number) = (link.footer.ino, link.at, link.number);
        let mut rolled = match self.roll.inodes.remove(&ino) {
            Some(rolled) => rolled,
            None => self.begin(ino, marked.born).await?,
        };
        if link.is_inode() != (link.footer.place() == 0) {
            let what = format!("node {} of inode {ino} at place {}", link.footer.nid, link.footer.place());
            return Err(corrupt(what, at.byte()));
        }
        if link.is_inode() {
            let (inode, node) = roll::parse(link.block, at, self.sb, ino)?;
            let inline = rolled.fields(&inode, &node.block, at.byte())?;
            if marked.entry == Some(number) {
                self.enter(ino, &node.block, at).await?;
            }
            if !inline {
                self.grow_by_inode(&mut rolled, &node.block).await?;
            }
            rolled.content(at, inline);
        } else {
            let log_node = LogNode { address: at, nid: Nid(link.footer.nid) };
            match link.footer.place() {
                XATTR_PLACE => rolled.attributes(log_node),
                place => {
                    self.grow_by_node(&mut rolled, &link, place).await?;
                    rolled.node(place, log_node);
                }
            }
        }
        self.roll.inodes.insert(ino, rolled);
        self.roll.nodes = self.roll.nodes.saturating_add(1);
        Ok(())
    }

    /// The inode as it was before the log: by the checkpoint, or made anew from its first block.
    async fn begin(&self, ino: u32, born: Option<Addr>) -> Result<Rolled, Error> {
        match born {
            Some(at) => {
                let node = node::read_at(self.source, at, Nid(ino), ino, 0).await?;
                Rolled::born(&inode::parse(&node, self.sb, Ino(ino))?, at.byte())
            }
            None => {
                let (inode, node) = inode::stored(self.source, self.sb, self.cp, Ino(ino)).await?;
                Rolled::of(&inode, &node.block, node.at())
            }
        }
    }

    /// Addresses behind the size make the file longer, where they are new.
    async fn grow_by_inode(&self, rolled: &mut Rolled, block: &[u8]) -> Result<(), Error> {
        let table = rolled.table(block);
        let Some(from) = rolled.growing(table, 0) else { return Ok(()) };
        let tree = rolled.tree(u32_at(block, node::FOOTER_INO));
        let before = match tree.emptied {
            true => None,
            false => Some(node::read_at(self.source, tree.inode, Nid(tree.ino), tree.ino, 0).await?),
        };
        let before = before.as_ref().map_or(&[][..], |node| rolled.table(&node.block));
        rolled.grow(table, before, from, 0);
        Ok(())
    }

    /// The same for a direct node.
    async fn grow_by_node(
        &self,
        rolled: &mut Rolled,
        link: &Link<S::Block>,
        place: u32,
    ) -> Result<(), Error> {
        let ino = link.footer.ino;
        let Some(first) = rolled.first_block(place) else {
            let what = format!("node {} of inode {ino} at place {place}, of no direct node", link.footer.nid);
            return Err(corrupt(what, link.at.byte()));
        };
        rolled.no_longer_inline();
        let table = node::addresses(&link.block);
        let Some(from) = rolled.growing(table, first) else { return Ok(()) };
        let (tree, places) = (rolled.tree(ino), Some(&rolled.places));
        let before = match tree.direct(self.source, self.sb, self.cp, places, first).await? {
            Direct::Node(node, _) => Some(node),
            Direct::Hole(_) => None,
        };
        let before = before.as_ref().map_or(&[][..], |node| node::addresses(&node.block));
        rolled.grow(table, before, from, first);
        Ok(())
    }

    /// Takes in the directory entry that a block of an inode names.
    async fn enter(&mut self, ino: u32, block: &[u8], at: Addr) -> Result<(), Error> {
        let bad = |what: String| corrupt(format!("inode {ino} in the log of fsync: {what}"), at.byte());
        let (parent, len) = (u32_at(block, PARENT), u32_at(block, NAME_LEN));
        let (source, sb, cp) = (self.source, self.sb, self.cp);
        if nat::find(source, sb, cp, Nid(parent)).await?.is_none() {
            return Err(bad(format!("its directory, inode {parent}, is not there")));
        }
        let (dir, _) = inode::stored(source, sb, cp, Ino(parent)).await?;
        let body = own(&dir)?;
        if dir.kind != FileKind::Directory || dir.links == 0 {
            return Err(bad(format!("its directory, inode {parent}, is none")));
        }
        // Its names are ciphertext, and never shown.
        if body.encrypted {
            return Ok(());
        }
        let entry = block.get(NAME..).and_then(|b| b.get(..index(len)));
        let entry = entry.filter(|_| index(len) <= name::NAME_MAX);
        let entry = entry.ok_or_else(|| bad(format!("a name of {len} bytes")))?;
        name::check(entry).map_err(|what| bad(what.to_owned()))?;
        let there = match self.roll.name(dir.ino, entry) {
            Some(other) => Some(other),
            None => match Dir::new(source, sb, cp, &dir, body)?.lookup(entry).await {
                Ok(found) => found.map(|ino| ino.0),
                // The kernel, too, looks only for exactly this name.
                Err(Error::Unsupported(_)) => None,
                Err(error) => return Err(error),
            },
        };
        match there {
            Some(other) if other == ino => return Ok(()),
            Some(other) => {
                let kind = match self.roll.inodes.contains_key(&other) {
                    true => FileKind::Regular,
                    false => inode::stored(source, sb, cp, Ino(other)).await?.0.kind,
                };
                self.roll.lose_link(other, kind, parent);
            }
            None => {}
        }
        self.roll.names.entry(parent).or_default().insert(entry.to_vec(), ino);
        Ok(())
    }
}
