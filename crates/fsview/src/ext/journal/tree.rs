//! A file's extent tree in memory, changed as the kernel's replay of fast commits changes it
//! (fs/ext4/extents.c): where blocks lie, and in how many nodes.
//!
//! The kernel counts a file's blocks anew with each inode that the log has, and the nodes of the tree among
//! them. How many these are depends on how the tree grew: where leaves were split, which extents were joined
//! and which a removal has divided. So all of this is done as it is there, with the same room in a node.

use super::super::extent::{Child, Entry, Extent, FILE_BLOCKS};
use super::super::map::{HOLE_TO_THE_END, Span};
use super::super::{Volume, body};
use super::Recovered;
use crate::{Error, Inode, Source};

/// Entries that the root has room for.
const ROOT_ROOM: usize = 4;
const ROOT: usize = 0;
/// Most blocks of an extent.
const WRITTEN_MAX: u64 = 1 << 15;
const UNWRITTEN_MAX: u64 = WRITTEN_MAX - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// Nodes one level lower, each with the file block at which it begins.
    Index(Vec<(u64, usize)>),
    Leaf(Vec<Extent>),
}

/// A node on the way from the root to a leaf, and which of its entries the way takes.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: usize,
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// The root is the first.
    nodes: Vec<Node>,
    /// Nodes that are no more.
    free: Vec<usize>,
    /// Entries that a node in a block has room for.
    room: usize,
    /// Blocks of the file that have a place.
    held: u64,
    /// The file's blocks that were changed since extents were joined: the first, and the one after the last.
    touched: Option<(u64, u64)>,
    /// From this block of the file on nothing was looked at yet.
    unseen: u64,
    /// Steps that changing it took.
    pub(super) steps: u64,
}

/// Whether two extents are one.
fn follows(a: &Extent, b: &Extent) -> bool {
    let max = if a.written { WRITTEN_MAX } else { UNWRITTEN_MAX };
    a.written == b.written
        && a.end() == b.first
        && a.start.saturating_add(a.len) == b.start
        && a.len.saturating_add(b.len) <= max
}

impl Tree {
    /// Without an extent. `block_size`: of the volume, in bytes.
    pub(super) fn new(block_size: usize) -> Tree {
        let room = block_size.saturating_sub(12).checked_div(12).unwrap_or(0);
        let nodes = vec![Node::Leaf(Vec::new())];
        Tree { nodes, free: Vec::new(), room, held: 0, touched: None, unseen: 0, steps: 0 }
    }

    /// A file's tree as it is. `read`: nodes that were read for it, counted up.
    pub(super) async fn load<S: Source>(
        volume: &Volume,
        source: &Recovered<'_, S>,
        inode: &Inode,
        nodes_max: usize,
        read: &mut u64,
    ) -> Result<Tree, Error> {
        let (ino, body) = (inode.ino.0, body(inode)?);
        let mut tree = Tree::new(super::super::bytes::index(volume.sb.block_size().into()));
        let mut due: Vec<(usize, Option<Child>)> = vec![(ROOT, None)];
        while let Some((id, child)) = due.pop() {
            *read = read.saturating_add(1);
            let entries = volume.extent_entries(source, ino, body, child).await?;
            let mut node = Node::Leaf(Vec::with_capacity(entries.len()));
            for entry in entries {
                match entry {
                    Entry::Extent(extent) => {
                        tree.held = tree.held.saturating_add(extent.len);
                        let Node::Leaf(extents) = &mut node else { continue };
                        extents.push(extent);
                    }
                    Entry::Child(child) => {
                        if let Node::Leaf(_) = node {
                            node = Node::Index(Vec::new());
                        }
                        let Node::Index(kids) = &mut node else { continue };
                        let new = tree.nodes.len();
                        if new > nodes_max {
                            let what =
                                format!("fast_commit: inode {ino} has more than {nodes_max} extent nodes");
                            return Err(Error::Unsupported(what));
                        }
                        tree.nodes.push(Node::Leaf(Vec::new()));
                        kids.push((child.first, new));
                        due.push((new, Some(child)));
                    }
                }
            }
            if let Some(place) = tree.nodes.get_mut(id) {
                *place = node;
            }
        }
        Ok(tree)
    }

    /// Nodes beside the root: each is a block.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len().saturating_sub(self.free.len()).saturating_sub(1)
    }

    /// Blocks of the file and of its tree.
    pub(super) fn blocks(&self) -> u64 {
        self.held.saturating_add(super::super::bytes::wide(self.nodes()))
    }

    fn kids(&self, node: usize) -> &[(u64, usize)] {
        match self.nodes.get(node) {
            Some(Node::Index(kids)) => kids,
            _ => &[],
        }
    }

    fn kids_mut(&mut self, node: usize) -> Option<&mut Vec<(u64, usize)>> {
        match self.nodes.get_mut(node) {
            Some(Node::Index(kids)) => Some(kids),
            _ => None,
        }
    }

    fn extents(&self, node: usize) -> &[Extent] {
        match self.nodes.get(node) {
            Some(Node::Leaf(extents)) => extents,
            _ => &[],
        }
    }

    fn extents_mut(&mut self, node: usize) -> Option<&mut Vec<Extent>> {
        match self.nodes.get_mut(node) {
            Some(Node::Leaf(extents)) => Some(extents),
            _ => None,
        }
    }

    fn make(&mut self, node: Node) -> usize {
        match self.free.pop() {
            Some(id) => {
                if let Some(place) = self.nodes.get_mut(id) {
                    *place = node;
                }
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len().saturating_sub(1)
            }
        }
    }

    fn is_full(&self, node: usize) -> bool {
        let room = if node == ROOT { ROOT_ROOM } else { self.room };
        self.kids(node).len().max(self.extents(node).len()) >= room
    }

    /// The way to the leaf of a block, and there to the last extent that begins at it or before, or else to
    /// the first.
    fn way(&self, block: u64) -> Vec<Step> {
        let (mut way, mut node) = (Vec::with_capacity(4), ROOT);
        loop {
            let kids = self.kids(node);
            let at = kids.partition_point(|kid| kid.0 <= block).saturating_sub(1);
            let Some(kid) = kids.get(at) else { break };
            way.push(Step { node, at });
            node = kid.1;
        }
        let at = self.extents(node).partition_point(|extent| extent.first <= block).saturating_sub(1);
        way.push(Step { node, at });
        way
    }

    /// The extent to which a way leads.
    fn extent(&self, way: &[Step]) -> Option<Extent> {
        let step = way.last()?;
        self.extents(step.node).get(step.at).copied()
    }

    /// The file block at which the leaf behind that of a way begins.
    fn next_leaf(&self, way: &[Step]) -> Option<u64> {
        let indexes = way.split_last()?.1;
        let next = |step: &Step| self.kids(step.node).get(step.at.saturating_add(1));
        indexes.iter().rev().find_map(next).map(|kid| kid.0)
    }

    /// The volume's block and whether it is written, and of how many blocks from there on that holds; and of
    /// how many there is nothing.
    fn mapped(&self, block: u64) -> (Option<(u64, bool)>, u64) {
        let way = self.way(block);
        let Some(extent) = self.extent(&way) else { return (None, u64::MAX) };
        if block < extent.first {
            return (None, extent.first.wrapping_sub(block));
        }
        if block < extent.end() {
            let inside = block.wrapping_sub(extent.first);
            let left = extent.len.saturating_sub(inside);
            return (Some((extent.start.saturating_add(inside), extent.written)), left);
        }
        let beside = way
            .last()
            .and_then(|step| self.extents(step.node).get(step.at.saturating_add(1)))
            .map(|e| e.first);
        let next = beside.or_else(|| self.next_leaf(&way));
        (None, next.map_or(u64::MAX, |next| next.saturating_sub(block).max(1)))
    }

    /// What is read at a block.
    pub(super) fn at(&self, block: u64) -> Span {
        match self.mapped(block) {
            (Some((start, written)), blocks) => Span { blocks, start: written.then_some(start) },
            (None, u64::MAX) => HOLE_TO_THE_END,
            (None, blocks) => Span { blocks, start: None },
        }
    }

    /// Says where `len` blocks from `first` on lie; how many pieces that were. `end`: the file's size in
    /// whole blocks. (`ext4_fc_replay_add_range`)
    pub(super) fn add(&mut self, new: Extent, end: u64) -> u64 {
        let (mut at, mut pieces, stop) = (new.first, 0u64, new.end().min(FILE_BLOCKS));
        while at < stop {
            pieces = pieces.saturating_add(1);
            let (place, blocks) = self.mapped(at);
            let len = blocks.min(stop.wrapping_sub(at));
            let start = new.start.saturating_add(at.wrapping_sub(new.first));
            let piece = Extent { first: at, len, start, written: new.written };
            self.touch(at, piece.end());
            match place {
                None => {
                    self.held = self.held.saturating_add(len);
                    self.insert(self.way(at), piece, true);
                }
                Some((old, _)) => {
                    self.set(piece);
                    if old == start {
                        self.join_all(new.end());
                    }
                }
            }
            at = piece.end();
        }
        self.join_all(end);
        pieces
    }

    /// Takes the blocks from `first` to before `stop` away. `end`: the file's size in whole blocks.
    /// (`ext4_fc_replay_del_range`)
    pub(super) fn remove(&mut self, first: u64, stop: u64, end: u64) {
        if first >= stop {
            return;
        }
        let way = self.way(stop.wrapping_sub(1));
        let Some(extent) = self.extent(&way) else { return };
        if extent.first < stop && stop < extent.end() {
            self.divide(way, stop);
        }
        self.cut(ROOT, first, stop);
        if self.kids(ROOT).is_empty() && self.extents(ROOT).is_empty() {
            self.nodes = vec![Node::Leaf(Vec::new())];
            self.free = Vec::new();
        }
        self.touch(first, stop);
        self.join_all(end);
    }

    /// Lets what lies at `block` of the volume and behind it read as zeros.
    pub(super) fn blank(&mut self, block: u64) {
        for node in &mut self.nodes {
            self.steps = self.steps.saturating_add(1);
            let Node::Leaf(extents) = node else { continue };
            self.steps = self.steps.saturating_add(super::super::bytes::wide(extents.len()));
            extents
                .iter_mut()
                .filter(|extent| extent.start >= block)
                .for_each(|extent| extent.written = false);
        }
    }

    fn touch(&mut self, first: u64, end: u64) {
        let (first, end) = (first.saturating_sub(1), end.saturating_add(1));
        let (from, to) = self.touched.unwrap_or((first, end));
        self.touched = Some((from.min(first), to.max(end)));
    }

    /// Puts an extent where there is none; `join`: with its neighbours, where they follow one another.
    /// (`ext4_ext_insert_extent`)
    fn insert(&mut self, mut way: Vec<Step>, new: Extent, join: bool) {
        self.steps = self.steps.saturating_add(1);
        if join && self.lengthen(&way, &new) {
            return;
        }
        let Some(leaf) = way.last().copied() else { return };
        if self.is_full(leaf.node) {
            let behind = self.extents(leaf.node).last().is_some_and(|last| new.first > last.first);
            let next = if behind { self.next_leaf(&way) } else { None };
            let next = next.map(|next| self.way(next));
            way = match next.filter(|way| way.last().is_some_and(|leaf| !self.is_full(leaf.node))) {
                Some(next) => next,
                None => self.new_leaf(way, new.first),
            };
        }
        let Some(leaf) = way.last_mut() else { return };
        let Some(extents) = self.extents_mut(leaf.node) else { return };
        leaf.at = extents.partition_point(|extent| extent.first <= new.first);
        extents.insert(leaf.at, new);
        self.correct(&way);
        if join {
            self.join(&way);
        }
    }

    /// Makes an extent beside a new one longer by it; whether one was.
    fn lengthen(&mut self, way: &[Step], new: &Extent) -> bool {
        let (Some(leaf), Some(extent)) = (way.last(), self.extent(way)) else { return false };
        let Some(extents) = self.extents_mut(leaf.node) else { return false };
        let last = extents.len().saturating_sub(1);
        let behind = leaf.at < last && extent.end() < new.first;
        let at = match () {
            () if behind => leaf.at.saturating_add(1),
            () if leaf.at > 0 && new.end() < extent.first => leaf.at.saturating_sub(1),
            () => leaf.at,
        };
        let Some(extent) = extents.get_mut(at) else { return false };
        if !behind && follows(extent, new) {
            extent.len = extent.len.saturating_add(new.len);
        } else if follows(new, extent) {
            *extent = Extent { len: extent.len.saturating_add(new.len), ..*new };
        } else {
            return false;
        }
        self.correct(way);
        let mut way = way.to_vec();
        if let Some(leaf) = way.last_mut() {
            leaf.at = at;
        }
        self.join(&way);
        true
    }

    /// Lets the nodes above a leaf say where it begins. (`ext4_ext_correct_indexes`)
    fn correct(&mut self, way: &[Step]) {
        let Some((leaf, indexes)) = way.split_last() else { return };
        let Some(first) = self.extents(leaf.node).first().map(|extent| extent.first) else { return };
        for step in indexes.iter().rev() {
            if let Some(kid) = self.kids_mut(step.node).and_then(|kids| kids.get_mut(step.at)) {
                kid.0 = first;
            }
            if step.at > 0 {
                break;
            }
        }
    }

    /// Joins an extent with those beside it, and a leaf with the root. (`ext4_ext_try_to_merge`)
    fn join(&mut self, way: &[Step]) {
        let Some(leaf) = way.last() else { return };
        let before = leaf.at.checked_sub(1);
        if !before.is_some_and(|before| self.join_behind(leaf.node, before)) {
            self.join_behind(leaf.node, leaf.at);
        }
        self.join_root();
    }

    fn join_behind(&mut self, node: usize, at: usize) -> bool {
        let Some(extents) = self.extents_mut(node) else { return false };
        let next = at.saturating_add(1);
        let mut joined = 0usize;
        let Some(mut extent) = extents.get(at).copied() else { return false };
        for behind in extents.get(next..).unwrap_or(&[]) {
            if !follows(&extent, behind) {
                break;
            }
            extent.len = extent.len.saturating_add(behind.len);
            joined = joined.saturating_add(1);
        }
        if let Some(place) = extents.get_mut(at) {
            *place = extent;
        }
        extents.drain(next..next.saturating_add(joined));
        joined > 0
    }

    /// Takes the only leaf into the root where it has room. (`ext4_ext_try_to_merge_up`)
    fn join_root(&mut self) {
        let [(_, kid)] = self.kids(ROOT) else { return };
        let kid = *kid;
        let Some(Node::Leaf(extents)) = self.nodes.get_mut(kid) else { return };
        if extents.len() > ROOT_ROOM {
            return;
        }
        let extents = std::mem::take(extents);
        if let Some(root) = self.nodes.get_mut(ROOT) {
            *root = Node::Leaf(extents);
        }
        self.free.push(kid);
    }

    /// Joins what follows one another, of extents before `end`; those that were looked at before are as they
    /// were. (`ext4_ext_replay_shrink_inode`)
    fn join_all(&mut self, end: u64) {
        let (from, to) = self.touched.take().unwrap_or((end, end));
        self.join_between(from, to.min(end).min(self.unseen));
        self.join_between(self.unseen, end);
        if end > 0 {
            self.join_root();
        }
        self.unseen = if to > end { end } else { self.unseen.max(end) };
    }

    fn join_between(&mut self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            self.steps = self.steps.saturating_add(1);
            let way = self.way(at);
            let Some(extent) = self.extent(&way) else { break };
            let (_, blocks) = self.mapped(at);
            self.join(&way);
            at = if extent.end() > at { extent.end() } else { at.saturating_add(blocks) };
        }
    }

    /// Makes room in a leaf that is full; the way to where `first` belongs then.
    /// (`ext4_ext_create_new_leaf`)
    fn new_leaf(&mut self, mut way: Vec<Step>, first: u64) -> Vec<Step> {
        loop {
            let indexes = way.split_last().map_or(&[][..], |(_, indexes)| indexes);
            if let Some(at) = indexes.iter().rposition(|step| !self.is_full(step.node)) {
                self.split(&way, at, first);
                return self.way(first);
            }
            // A level more; the new root has room.
            let entries =
                self.nodes.get_mut(ROOT).map(|root| std::mem::replace(root, Node::Index(Vec::new())));
            let begins = match &entries {
                Some(Node::Leaf(extents)) => extents.first().map_or(0, |extent| extent.first),
                Some(Node::Index(kids)) => kids.first().map_or(0, |kid| kid.0),
                None => 0,
            };
            let below = self.make(entries.unwrap_or(Node::Leaf(Vec::new())));
            if let Some(kids) = self.kids_mut(ROOT) {
                kids.push((begins, below));
            }
            way = self.way(first);
            if way.last().is_some_and(|leaf| !self.is_full(leaf.node)) {
                return way;
            }
        }
    }

    /// Splits the nodes of a way below its step `at`, each behind the entry that it takes.
    /// (`ext4_ext_split`)
    fn split(&mut self, way: &[Step], at: usize, first: u64) {
        let Some((leaf, indexes)) = way.split_last() else { return };
        let after = |step: &Step| step.at.saturating_add(1);
        let Some(extents) = self.extents_mut(leaf.node) else { return };
        let moved = extents.split_off(after(leaf).min(extents.len()));
        let border = moved.first().map_or(first, |extent| extent.first);
        let mut new = self.make(Node::Leaf(moved));
        for step in indexes.iter().skip(at.saturating_add(1)).rev() {
            let Some(kids) = self.kids_mut(step.node) else { return };
            let mut moved = kids.split_off(after(step).min(kids.len()));
            moved.insert(0, (border, new));
            new = self.make(Node::Index(moved));
        }
        let Some(step) = indexes.get(at) else { return };
        let Some(kids) = self.kids_mut(step.node) else { return };
        let before = kids.get(step.at).is_some_and(|kid| border <= kid.0);
        kids.insert(if before { step.at } else { after(step).min(kids.len()) }, (border, new));
    }

    /// Lets the extent to which a way leads end before `block`, and another begin with it.
    /// (`ext4_force_split_extent_at`)
    fn divide(&mut self, way: Vec<Step>, block: u64) {
        let Some(step) = way.last().copied() else { return };
        let Some(extent) = self.extents_mut(step.node).and_then(|extents| extents.get_mut(step.at)) else {
            return;
        };
        let inside = block.saturating_sub(extent.first);
        if inside == 0 || inside >= extent.len {
            return;
        }
        let (len, start) = (extent.len.wrapping_sub(inside), extent.start.saturating_add(inside));
        extent.len = inside;
        let new = Extent { first: block, len, start, written: extent.written };
        self.insert(way, new, false);
    }

    /// Gives blocks that are within one extent another place or state. (`ext4_ext_replay_update_ex`)
    fn set(&mut self, new: Extent) {
        self.steps = self.steps.saturating_add(1);
        self.divide(self.way(new.first), new.first);
        self.divide(self.way(new.first), new.end());
        let Some(step) = self.way(new.first).pop() else { return };
        if let Some(extent) = self.extents_mut(step.node).and_then(|extents| extents.get_mut(step.at)) {
            *extent = new;
        }
    }

    /// Takes the blocks of a node from `first` to before `stop` away, and nodes that have nothing left. No
    /// extent goes on behind `stop`. Returns where the node begins then. (`ext4_ext_remove_space`)
    fn cut(&mut self, node: usize, first: u64, stop: u64) -> Option<u64> {
        self.steps = self.steps.saturating_add(1);
        if let Some(extents) = self.extents_mut(node) {
            let mut gone = 0u64;
            extents.retain_mut(|extent| {
                let from = first.clamp(extent.first, extent.end());
                let kept = if extent.first < stop { from.wrapping_sub(extent.first) } else { extent.len };
                gone = gone.saturating_add(extent.len.wrapping_sub(kept));
                extent.len = kept;
                kept > 0
            });
            let begins = extents.first().map(|extent| extent.first);
            self.held = self.held.saturating_sub(gone);
            return begins;
        }
        let mut at = self.kids(node).partition_point(|kid| kid.0 <= first).saturating_sub(1);
        while let Some((begins, kid)) = self.kids(node).get(at).copied() {
            if begins >= stop {
                break;
            }
            match self.cut(kid, first, stop) {
                Some(begins) => {
                    if let Some(kid) = self.kids_mut(node).and_then(|kids| kids.get_mut(at)) {
                        kid.0 = begins;
                    }
                    at = at.saturating_add(1);
                }
                None => {
                    self.free.push(kid);
                    if let Some(kids) = self.kids_mut(node) {
                        kids.remove(at);
                    }
                }
            }
        }
        self.kids(node).first().map(|kid| kid.0)
    }
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "numbers of a test, and small"
)]
mod tests {
    use std::collections::BTreeMap;

    use nearside_random::Rng;

    use super::*;

    const END: u64 = 1 << 20;

    fn extent(first: u64, len: u64, start: u64) -> Extent {
        Extent { first, len, start, written: true }
    }

    /// A tree whose nodes have room for six entries, with single blocks at every other place.
    fn apart(blocks: u64) -> Tree {
        let mut tree = Tree::new(12 + 6 * 12);
        for nr in 0..blocks {
            tree.add(extent(nr * 2, 1, 1000 + nr * 7), END);
        }
        tree
    }

    #[test]
    fn nodes_as_it_grows_at_its_end() {
        // The root has room for four; a full leaf stays full, and the next begins behind it.
        let nodes: Vec<_> = [0, 1, 4, 5, 6, 7, 12, 13, 24, 25].map(|blocks| apart(blocks).nodes()).into();
        assert_eq!(nodes, [0, 0, 0, 1, 1, 2, 2, 3, 4, 6]);
        assert_eq!(apart(25).blocks(), 25 + 6);
    }

    #[test]
    fn a_removal_from_within_divides_and_a_level_goes_again() {
        let mut tree = Tree::new(12 + 6 * 12);
        for nr in 0..4 {
            tree.add(extent(nr * 20, 10, 1000 + nr * 70), END);
        }
        assert_eq!((tree.nodes(), tree.blocks()), (0, 40));
        // Five for a moment, then four: all in the root again, where the file's size says where to look.
        let mut head = tree.clone();
        head.remove(20, 25, END);
        assert_eq!((head.nodes(), head.blocks()), (0, 35));
        let mut head = tree.clone();
        head.remove(20, 25, 0);
        assert_eq!((head.nodes(), head.blocks()), (1, 36));
        // Its end alone goes without.
        let mut end = tree.clone();
        end.remove(25, 30, 0);
        assert_eq!((end.nodes(), end.blocks()), (0, 35));
        // What goes and comes is one extent again.
        tree.remove(23, 24, END);
        assert_eq!((tree.nodes(), tree.blocks()), (1, 40));
        tree.add(extent(23, 1, 1073), END);
        assert_eq!((tree.nodes(), tree.blocks()), (0, 40));
        tree.remove(0, FILE_BLOCKS, END);
        assert_eq!((tree.nodes(), tree.blocks()), (0, 0));
    }

    #[test]
    fn a_leaf_is_split_behind_the_extent_before_the_new_one() {
        let mut tree = apart(6);
        tree.add(extent(3, 1, 5000), END);
        assert_eq!(tree.nodes(), 2);
        let leaves: Vec<_> = tree.kids(ROOT).iter().map(|kid| (kid.0, tree.extents(kid.1).len())).collect();
        assert_eq!(leaves, [(0, 3), (4, 4)]);
        // A full leaf's last goes to the next, where that has room.
        let mut tree = apart(8);
        tree.add(extent(11, 1, 5000), END);
        let leaves: Vec<_> = tree.kids(ROOT).iter().map(|kid| (kid.0, tree.extents(kid.1).len())).collect();
        assert_eq!(leaves, [(0, 6), (11, 3)]);
    }

    #[test]
    fn another_place_or_state_divides_and_joins() {
        let mut tree = Tree::new(12 + 6 * 12);
        tree.add(extent(0, 30, 1000), END);
        tree.add(Extent { written: false, ..extent(10, 5, 1010) }, END);
        assert_eq!(tree.extents(ROOT).len(), 3);
        assert_eq!(tree.at(12), Span { blocks: 3, start: None });
        tree.add(extent(10, 5, 1010), END);
        assert_eq!(tree.extents(ROOT).len(), 1);
        tree.add(extent(4, 2, 7000), END);
        assert_eq!(
            (tree.at(3).start, tree.at(5).start, tree.at(6).start),
            (Some(1003), Some(7001), Some(1006))
        );
        assert_eq!(tree.blocks(), 30);
        tree.blank(7000);
        assert_eq!((tree.at(5).start, tree.blocks()), (None, 30));
    }

    /// The blocks; every node's entries are in order, none too many, and begin where its parent says.
    fn blocks(tree: &Tree) -> BTreeMap<u64, (u64, bool)> {
        let (mut found, mut nodes, mut due) = (BTreeMap::new(), 0, vec![(ROOT, None)]);
        while let Some((node, first)) = due.pop() {
            let (kids, extents) = (tree.kids(node), tree.extents(node));
            let begins: Vec<_> =
                kids.iter().map(|kid| kid.0).chain(extents.iter().map(|e| e.first)).collect();
            assert!(begins.is_sorted_by(|a, b| a < b), "{begins:?}");
            assert!(begins.len() <= if node == ROOT { ROOT_ROOM } else { tree.room });
            assert!(first.is_none_or(|first| begins.first() == Some(&first)), "{first:?} {begins:?}");
            due.extend(kids.iter().map(|kid| (kid.1, Some(kid.0))));
            nodes += 1;
            for extent in extents {
                for inside in 0..extent.len {
                    let before = found.insert(extent.first + inside, (extent.start + inside, extent.written));
                    assert_eq!(before, None);
                }
            }
        }
        assert_eq!((tree.nodes(), tree.held), (nodes - 1, found.len() as u64));
        found
    }

    #[test]
    fn what_it_maps_is_what_was_said() {
        for seed in 0..40 {
            let (mut random, mut tree) = (Rng(seed), Tree::new(12 + 6 * 12));
            let mut plain: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
            for _ in 0..250 {
                let (first, len) = (random.below(400), 1 + random.below(12));
                let end = random.below(500);
                match random.below(3) {
                    0 => {
                        tree.remove(first, first + len, end);
                        plain.retain(|block, _| !(first..first + len).contains(block));
                    }
                    kind => {
                        // Often at the place that follows from the file's block, so that extents join.
                        let start = if kind == 1 { 10_000 + first } else { 1000 + random.below(5000) };
                        let written = random.below(4) > 0;
                        tree.add(Extent { first, len, start, written }, end);
                        plain.extend((0..len).map(|inside| (first + inside, (start + inside, written))));
                    }
                }
                assert_eq!(blocks(&tree), plain, "seed {seed}");
                let at = random.below(420);
                let span = tree.at(at);
                let is = plain.get(&at).and_then(|(start, written)| written.then_some(*start));
                assert_eq!(span.start, is);
            }
        }
    }
}
