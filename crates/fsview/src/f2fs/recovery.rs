//! Roll-forward (S: fs/f2fs/recovery.c): fsync writes the nodes of a file to the warm node log and no
//! checkpoint. From where the checkpoint left that log a chain of blocks follows that repeat its version;
//! what a mount makes of them is laid over the checkpoint as [`Roll`].
//!
//! The chain is read twice, as the kernel does. First: which inodes have a node with the fsync mark, and
//! which is the last of each. Then, in order: every node of such an inode up to its last mark, marked or not.
//! Its own block gives the fields and the first addresses, the others the addresses at their place in the
//! tree; the last of its blocks with the entry mark also names the directory entry. Here the second reading
//! goes inode by inode, and entries come last, in the log's order: no inode's nodes hang on another's, and so
//! a log that has gone on is read from where it ended ([`Walked`]). What was taken before is shared with the
//! state before ([`Shared`]), and what is new is said ([`Walked::since`]).
//!
//! A chain ends before a node that its host has not flushed yet, where that is known
//! ([`Source::is_durable`]). One that the kernel gives up (and then mounts the checkpoint's state) is an
//! error here: whoever wants that state asks for it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::checkpoint::{CRC_RECOVERY, Checkpoint, DISABLED, NOCRC_RECOVERY};
use super::dir::Dir;
use super::fields::{Addr, BLOCK, Nid, corrupt, index, number, read, u32_at};
use super::inode::{self, NAME, NAME_LEN, PARENT};
use super::node::{self, DENT_FLAG, Direct, FSYNC_FLAG, Footer, XATTR_PLACE};
use super::roll::{self, LogNode, Roll, Rolled, inode_shown, names_shown};
use super::superblock::Superblock;
use super::{nat, own};
use crate::pace::Pace;
use crate::shared::Shared;
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
#[derive(Clone, Debug)]
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
        if !follows(cp, footer) || !source.is_durable(at.byte(), number(BLOCK)) {
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
#[derive(Clone, Copy, Debug)]
struct Marked {
    /// Its last node with the mark.
    last: u64,
    /// Its last block that names a directory entry.
    entry: Option<u64>,
    /// Its first block, where the checkpoint does not know it.
    born: Option<Addr>,
}

/// The directory entry that a block of an inode names.
#[derive(Clone, Debug)]
struct Named {
    ino: u32,
    at: Addr,
    parent: u32,
    /// What the block says of the name's bytes, of which here are as many as a name can have.
    len: u32,
    name: Arc<[u8]>,
}

/// Readings of a log so far that began at its start.
static READINGS: AtomicU64 = AtomicU64::new(1);

/// Which reading of a log it is that has gone on, from which of its nodes the last time, and what of it is
/// shown otherwise since.
#[derive(Clone)]
struct Since {
    reading: u64,
    from: u64,
    shown: Arc<[u64]>,
}

/// How a state came to be is no part of what it is.
impl fmt::Debug for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// A log as far as it has been read, and what a mount would take from it. Who goes on behind its end comes to
/// what a reading from its start comes to: an inode's state hangs on its own nodes and the checkpoint alone,
/// entries come in their order, and what a later mark makes count is kept until then.
#[derive(Clone, Debug)]
pub(super) struct Walked {
    chain: Chain,
    marked: Shared<u32, Marked>,
    /// Nodes that are not taken in, of inodes without a mark or behind their last: where each is, by inode
    /// and number.
    waiting: Shared<(u32, u64), Addr>,
    /// By the number of the node that names it.
    named: Shared<u64, Named>,
    /// Bytes of all its names.
    name_bytes: usize,
    since: Since,
}

impl Walked {
    /// Of a log that is not read yet.
    fn at_start(cp: &Checkpoint) -> Walked {
        let reading = READINGS.fetch_add(1, Ordering::Relaxed);
        let (marked, waiting, named) = Default::default();
        let since = Since { reading, from: 0, shown: Arc::default() };
        Walked { chain: Chain::new(cp), marked, waiting, named, name_bytes: 0, since }
    }

    /// The block that was no node of it any more.
    pub(super) fn end(&self) -> Addr {
        self.chain.next
    }

    /// Where it went on from the other: what is shown otherwise, as [`Source::shows`] is told.
    pub(super) fn since(&self, other: &Walked) -> Option<&[u64]> {
        let went_on = self.since.reading == other.since.reading && self.since.from == other.chain.number;
        went_on.then_some(&*self.since.shown)
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        let each = |count: usize, bytes: usize| count.saturating_mul(bytes);
        let bytes = [
            each(self.marked.len(), size_of::<(u32, Marked)>()),
            each(self.waiting.len(), size_of::<((u32, u64), Addr)>()),
            each(self.named.len(), size_of::<(u64, Named)>()),
            self.name_bytes,
        ];
        number(bytes.into_iter().fold(0, usize::saturating_add))
    }

    /// Gives its memory back in pieces.
    pub(super) async fn give_back<S: Source>(self, pace: &mut Pace<'_, S>) {
        self.marked.give_back(pace).await;
        self.waiting.give_back(pace).await;
        self.named.give_back(pace).await;
    }

    /// A node of the log names an entry.
    fn name_is(&mut self, number: u64, named: Named) {
        self.name_bytes = self.name_bytes.saturating_add(named.name.len());
        self.named.insert(number, named);
    }

    /// That entry does not count any more; whether it was there.
    fn forget_name(&mut self, number: u64) -> bool {
        let Some(gone) = self.named.remove(&number) else { return false };
        self.name_bytes = self.name_bytes.saturating_sub(gone.name.len());
        true
    }
}

/// Reads the log and says what a mount would take from it. `known` is what was read of it before under the
/// same checkpoint: then only what stands behind that is read, and what it makes count.
pub(super) async fn roll_forward<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    known: Option<(&Walked, &Roll)>,
) -> Result<(Walked, Roll), Error> {
    let (mut walked, mut roll) = match known {
        Some((walked, roll)) => (walked.clone(), roll.clone()),
        None => (Walked::at_start(cp), Roll::default()),
    };
    (walked.since.from, walked.since.shown) = (walked.chain.number, Arc::default());
    // The kernel mounts a volume without checkpoints as the last one left it.
    if cp.has(DISABLED) {
        return Ok((walked, roll));
    }
    let in_order = walked.named.last_key().copied();
    let (touched, lost) = walked.read_on(source, sb, cp).await?;
    let mut recovering = Recovering { source, sb, cp, roll: &mut roll, shown: BTreeSet::new() };
    for ino in touched {
        recovering.take_inode(&mut walked, ino).await?;
    }
    // The order of entries decides: where one no longer counts, all are taken in anew.
    let from = if lost { None } else { in_order };
    if lost {
        recovering.forget_names();
    }
    let from = from.map_or(0, |from| from.saturating_add(1));
    for (_, named) in walked.named.from(|number| number.cmp(&from)) {
        recovering.enter(named).await?;
    }
    walked.since.shown = recovering.shown.into_iter().collect();
    Ok((walked, roll))
}

impl Walked {
    /// The first reading, from where it is to the log's end: which inodes have marks that they had not, and
    /// whether an entry that was taken no longer counts.
    async fn read_on<S: Source>(
        &mut self,
        source: &S,
        sb: &Superblock,
        cp: &Checkpoint,
    ) -> Result<(BTreeSet<u32>, bool), Error> {
        let (mut touched, mut lost) = (BTreeSet::new(), false);
        while let Some(link) = self.chain.step(source, sb, cp).await? {
            let ino = link.footer.ino;
            self.waiting.insert((ino, link.number), link.at);
            if !link.has(FSYNC_FLAG) {
                continue;
            }
            let mut found = match self.marked.get(&ino) {
                Some(found) => *found,
                None => {
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
                    Marked { last: link.number, entry: None, born }
                }
            };
            found.last = link.number;
            touched.insert(ino);
            if link.is_entry()
                && let Some(before) = found.entry.replace(link.number)
            {
                lost |= self.forget_name(before);
            }
            self.marked.insert(ino, found);
        }
        Ok((touched, lost))
    }
}

/// The entry that a block of an inode names.
fn named<B: std::ops::Deref<Target = [u8]>>(link: &Link<B>) -> Named {
    let (parent, len) = (u32_at(&link.block, PARENT), u32_at(&link.block, NAME_LEN));
    let name = link.block.get(NAME..).and_then(|b| b.get(..index(len).min(name::NAME_MAX)));
    let name = name.unwrap_or_default().into();
    Named { ino: link.footer.ino, at: link.at, parent, len, name }
}

/// The second reading: the volume and what has been taken from the log so far.
struct Recovering<'a, S> {
    source: &'a S,
    sb: &'a Superblock,
    cp: &'a Checkpoint,
    roll: &'a mut Roll,
    /// What it shows otherwise than before, as [`Source::shows`] is told.
    shown: BTreeSet<u64>,
}

impl<S: Source> Recovering<'_, S> {
    /// Takes in what waits of an inode up to its last mark.
    async fn take_inode(&mut self, walked: &mut Walked, ino: u32) -> Result<(), Error> {
        let Some(marked) = walked.marked.get(&ino).copied() else { return Ok(()) };
        let waiting = walked.waiting.from(|key| key.cmp(&(ino, 0)));
        let counted = waiting.take_while(|((of, number), _)| *of == ino && *number <= marked.last);
        let counted: Vec<(u64, Addr)> = counted.map(|((_, number), at)| (*number, *at)).collect();
        let mut rolled = match self.roll.inodes.get(&ino) {
            Some(rolled) => rolled.clone(),
            None => self.begin(ino, marked.born).await?,
        };
        for (number, at) in counted {
            walked.waiting.remove(&(ino, number));
            let block = read(self.source, at).await?;
            let footer = Footer::of(&block);
            if !follows(self.cp, footer) || footer.ino != ino {
                return Err(corrupt("the log of fsync changed while it was read", at.byte()));
            }
            let link = Link { at, block, footer, number };
            if marked.entry == Some(number) {
                walked.name_is(number, named(&link));
            }
            self.take(link, &mut rolled).await?;
        }
        self.shown.insert(inode_shown(ino));
        self.roll.put(ino, rolled);
        Ok(())
    }

    /// No entry counts, and no link is lost to one.
    fn forget_names(&mut self) {
        self.shown.extend(self.roll.names.iter().map(|((dir, _), _)| names_shown(*dir)));
        self.shown.extend(self.roll.lost_links.iter().map(|(ino, _)| inode_shown(*ino)));
        self.roll.forget_names();
    }

    /// Takes a node in.
    async fn take(&mut self, link: Link<S::Block>, rolled: &mut Rolled) -> Result<(), Error> {
        let (ino, at) = (link.footer.ino, link.at);
        if link.is_inode() != (link.footer.place() == 0) {
            let what = format!("node {} of inode {ino} at place {}", link.footer.nid, link.footer.place());
            return Err(corrupt(what, at.byte()));
        }
        if link.is_inode() {
            let (inode, node) = roll::parse(link.block, at, self.sb, ino)?;
            let inline = rolled.fields(&inode, &node.block, at.byte())?;
            if !inline {
                self.grow_by_inode(rolled, &node.block).await?;
            }
            rolled.content(at, inline);
        } else {
            let log_node = LogNode { address: at, nid: Nid(link.footer.nid) };
            match link.footer.place() {
                XATTR_PLACE => rolled.attributes(log_node),
                place => {
                    self.grow_by_node(rolled, &link, place).await?;
                    rolled.node(place, log_node);
                }
            }
        }
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

    /// Takes in a directory entry.
    async fn enter(&mut self, named: &Named) -> Result<(), Error> {
        let Named { ino, at, parent, len, ref name } = *named;
        let bad = |what: String| corrupt(format!("inode {ino} in the log of fsync: {what}"), at.byte());
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
        if index(len) != name.len() {
            return Err(bad(format!("a name of {len} bytes")));
        }
        name::check(name).map_err(|what| bad(what.to_owned()))?;
        let there = match self.roll.name(dir.ino, name) {
            Some(other) => Some(other),
            None => match Dir::new(source, sb, cp, &dir, body)?.lookup(name).await {
                Ok(found) => found.map(|ino| ino.0),
                // The kernel, too, looks only for exactly this name.
                Err(Error::Unsupported(_)) => None,
                Err(error) => return Err(error),
            },
        };
        match there {
            Some(other) if other == ino => return Ok(()),
            Some(other) => {
                let kind = match self.roll.inodes.get(&other) {
                    Some(_) => FileKind::Regular,
                    None => inode::stored(source, sb, cp, Ino(other)).await?.0.kind,
                };
                self.roll.lose_link(other, kind, parent);
                self.shown.extend([other, parent].map(inode_shown));
            }
            None => {}
        }
        self.shown.insert(names_shown(parent));
        self.roll.name_is(parent, name, ino);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state in which so many inodes have a node of the log, every other a name.
    fn state(inodes: u32) -> (Walked, Roll) {
        let reading = Since { reading: 0, from: 0, shown: Arc::default() };
        let chain = Chain { next: Addr(1), number: 0, passed: Addr::NULL, since: 0, turn: 1 };
        let (marked, waiting, named) = Default::default();
        let walked = Walked { chain, marked, waiting, named, name_bytes: 0, since: reading };
        let mut state = (walked, Roll::default());
        (0..inodes).for_each(|ino| fsync(&mut state, ino));
        state
    }

    /// What an fsync of a file does to it.
    fn fsync((walked, roll): &mut (Walked, Roll), ino: u32) {
        let number = walked.chain.number;
        walked.chain.number += 1;
        walked.waiting.insert((ino, number), Addr(7));
        walked.marked.insert(ino, Marked { last: number, entry: None, born: None });
        walked.waiting.remove(&(ino, number));
        let mut rolled = roll.inodes.get(&ino).cloned().unwrap_or_else(|| Rolled::with_places(300));
        rolled.node(5, LogNode { address: Addr(7), nid: Nid(ino) });
        roll.put(ino, rolled);
        if ino.is_multiple_of(2) {
            let name: Arc<[u8]> = format!("name-{ino}").as_bytes().into();
            roll.name_is(3, &name, ino);
            roll.lose_link(ino, FileKind::Regular, 3);
            walked.name_is(number, Named { ino, at: Addr(7), parent: 3, len: 9, name });
        }
    }

    /// Entries that a state has and the one before had not as they are: what an fsync has copied or made.
    fn copied(now: &(Walked, Roll), then: &(Walked, Roll)) -> usize {
        let of_log = now.0.marked.own(&then.0.marked)
            + now.0.waiting.own(&then.0.waiting)
            + now.0.named.own(&then.0.named);
        let of_roll = now.1.inodes.own(&then.1.inodes)
            + now.1.names.own(&then.1.names)
            + now.1.lost_links.own(&then.1.lost_links);
        let places = now.1.inodes.iter().map(|(ino, rolled)| match then.1.inodes.get(ino) {
            Some(before) => rolled.places.own(&before.places),
            None => rolled.places.len(),
        });
        of_log + of_roll + places.sum::<usize>()
    }

    /// However many inodes, names and nodes a log has.
    #[test]
    fn a_state_that_follows_another_copies_what_is_new() {
        let of = |inodes: u32| {
            let then = state(inodes);
            assert_eq!(copied(&then.clone(), &then), 0);
            let mut now = then.clone();
            fsync(&mut now, 2);
            copied(&now, &then)
        };
        let (few, many) = (of(100), of(3000));
        assert!(few > 0 && many < few + 60 && many < 120, "{few} of few, {many} of many");
    }
}
