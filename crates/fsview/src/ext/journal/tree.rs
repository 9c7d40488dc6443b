//! A file's extent tree in memory, changed as the kernel's replay of fast commits changes it
//! (fs/ext4/extents.c): where blocks lie, and in how many nodes.
//!
//! The kernel counts a file's blocks anew with each inode that the log has, and the nodes of the tree among
//! them. How many these are depends on how the tree grew: where leaves were split, which extents were joined
//! and which a removal has divided. So all of this is done as it is there, with the same room in a node.

use std::collections::BTreeMap;

use super::super::extent::{Child, Entry, Extent, FILE_BLOCKS};
use super::super::map::{HOLE_TO_THE_END, Span};
use super::super::{Volume, body};
use super::Recovered;
use crate::pace::Pace;
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

#[derive(Clone, Debug)]
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
    /// The file's blocks, first and the one behind the last, that lie where the content of another file of
    /// this inode lay, and are not this file's: nothing of them can be read.
    foreign: BTreeMap<u64, u64>,
    /// The fast commit that said last where blocks lie, and which.
    said: (u64, Vec<(u64, u64)>),
    /// Steps that changing it took.
    pub(super) steps: u64,
}

/// Entries that are compared in a step.
const COMPARED: u64 = 32;

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
        let (foreign, said) = Default::default();
        Tree { nodes, free: Vec::new(), room, held: 0, touched: None, unseen: 0, foreign, said, steps: 0 }
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

    /// Whether it shows what the other does, by nodes that are alike.
    pub(super) async fn is_as<S: Source>(&self, other: &Tree, pace: &mut Pace<'_, S>) -> bool {
        if (self.nodes.len(), self.foreign.len()) != (other.nodes.len(), other.foreign.len()) {
            return false;
        }
        for (node, other) in self.nodes.iter().zip(&other.nodes) {
            let entries = match node {
                Node::Index(kids) => kids.len(),
                Node::Leaf(extents) => extents.len(),
            };
            let compared = super::super::bytes::wide(entries).checked_div(COMPARED).unwrap_or(0);
            pace.steps(compared.saturating_add(1)).await;
            if node != other {
                return false;
            }
        }
        for (range, other) in self.foreign.iter().zip(&other.foreign) {
            pace.step().await;
            if range != other {
                return false;
            }
        }
        true
    }

    /// Gives its memory back, node by node.
    pub(super) async fn give_back<S: Source>(mut self, pace: &mut Pace<'_, S>) {
        self.clear(pace).await;
        while self.foreign.pop_first().is_some() {
            pace.step().await;
        }
    }

    /// Lets it have no extents.
    async fn clear<S: Source>(&mut self, pace: &mut Pace<'_, S>) {
        while self.nodes.pop().is_some() {
            pace.step().await;
        }
        self.nodes.push(Node::Leaf(Vec::new()));
        self.free.clear();
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
        let (place, mut blocks) = self.mapped(block);
        let mut start = place.and_then(|(start, written)| written.then_some(start));
        if let Some((_, end)) = self.foreign.range(..=block).next_back().filter(|(_, end)| **end > block) {
            (start, blocks) = (None, blocks.min(end.wrapping_sub(block)));
        } else if let Some((next, _)) = self.foreign.range(block..).next().filter(|_| start.is_some()) {
            blocks = blocks.min(next.wrapping_sub(block));
        }
        match blocks {
            u64::MAX => HOLE_TO_THE_END,
            blocks => Span { blocks, start },
        }
    }

    /// The inode is another file's from now on, which has only the blocks that are said from now on, or that
    /// `commit` has said before its inode.
    pub(super) async fn begin_anew<S: Source>(&mut self, commit: u64, pace: &mut Pace<'_, S>) {
        self.foreign = BTreeMap::from([(0, FILE_BLOCKS)]);
        let said = if self.said.0 == commit { std::mem::take(&mut self.said.1) } else { Vec::new() };
        for (first, stop) in &said {
            pace.step().await;
            self.own(*first, *stop, pace).await;
        }
        self.said = (commit, said);
    }

    /// All that is there is this file's.
    pub(super) fn own_all(&mut self) {
        self.foreign.clear();
    }

    /// Blocks of the file are its own.
    async fn own<S: Source>(&mut self, first: u64, stop: u64, pace: &mut Pace<'_, S>) {
        if let Some((from, end)) = self.foreign.range(..first).next_back().map(|(from, end)| (*from, *end)) {
            if end > first {
                self.foreign.insert(from, first);
            }
            if end > stop {
                self.foreign.insert(stop, end);
            }
        }
        while let Some((from, end)) = self.foreign.range(first..stop).next().map(|(from, end)| (*from, *end))
        {
            self.steps = self.steps.saturating_add(1);
            pace.step().await;
            self.foreign.remove(&from);
            if end > stop {
                self.foreign.insert(stop, end);
            }
        }
    }

    /// Says where `len` blocks from `first` on lie, as the fast commit `commit` does; how many pieces that
    /// were. `end`: the file's size in whole blocks. (`ext4_fc_replay_add_range`)
    pub(super) async fn add<S: Source>(
        &mut self,
        new: Extent,
        end: u64,
        commit: u64,
        pace: &mut Pace<'_, S>,
    ) -> u64 {
        let (mut at, mut pieces, stop) = (new.first, 0u64, new.end().min(FILE_BLOCKS));
        self.own(new.first, stop, pace).await;
        if self.said.0 != commit {
            self.said = (commit, Vec::new());
        }
        self.said.1.push((new.first, stop));
        while at < stop {
            pieces = pieces.saturating_add(1);
            pace.step().await;
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
                        self.join_all(new.end(), pace).await;
                    }
                }
            }
            at = piece.end();
        }
        self.join_all(end, pace).await;
        pieces
    }

    /// Takes the blocks from `first` to before `stop` away. `end`: the file's size in whole blocks.
    /// (`ext4_fc_replay_del_range`)
    pub(super) async fn remove<S: Source>(
        &mut self,
        first: u64,
        stop: u64,
        end: u64,
        pace: &mut Pace<'_, S>,
    ) {
        if first >= stop {
            return;
        }
        let way = self.way(stop.wrapping_sub(1));
        let Some(extent) = self.extent(&way) else { return };
        if extent.first < stop && stop < extent.end() {
            self.divide(way, stop);
        }
        self.cut(ROOT, (first, stop), pace).await;
        if self.kids(ROOT).is_empty() && self.extents(ROOT).is_empty() {
            self.clear(pace).await;
        }
        self.touch(first, stop);
        self.join_all(end, pace).await;
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
    async fn join_all<S: Source>(&mut self, end: u64, pace: &mut Pace<'_, S>) {
        let (from, to) = self.touched.take().unwrap_or((end, end));
        self.join_between(from, to.min(end).min(self.unseen), pace).await;
        self.join_between(self.unseen, end, pace).await;
        if end > 0 {
            self.join_root();
        }
        self.unseen = if to > end { end } else { self.unseen.max(end) };
    }

    async fn join_between<S: Source>(&mut self, from: u64, to: u64, pace: &mut Pace<'_, S>) {
        let mut at = from;
        while at < to {
            self.steps = self.steps.saturating_add(1);
            pace.step().await;
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
    async fn cut<S: Source>(
        &mut self,
        node: usize,
        (first, stop): (u64, u64),
        pace: &mut Pace<'_, S>,
    ) -> Option<u64> {
        self.steps = self.steps.saturating_add(1);
        pace.step().await;
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
            match Box::pin(self.cut(kid, (first, stop), pace)).await {
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
    use crate::pace::SLICE;
    use crate::pace::still::{Still, now};

    const END: u64 = 1 << 20;

    /// Whatever one tag has to walk, there is a look at whether other work waits every so many steps.
    #[test]
    fn one_range_over_many_extents_is_many_slices() {
        let spread = apart(6000);
        let slices = |what: &dyn Fn(&mut Tree, &Still)| {
            let (mut tree, source) = (spread.clone(), Still::default());
            // As one that was just read.
            (tree.unseen, tree.steps) = (0, 0);
            what(&mut tree, &source);
            (tree.steps, source.pauses.get())
        };
        let looked = slices(&|tree, source| {
            now(tree.add(extent(0, 1, 1000), END, 0, &mut Pace::new(source)));
        });
        let gone = slices(&|tree, source| now(tree.remove(1, END, END, &mut Pace::new(source))));
        let over = slices(&|tree, source| {
            now(tree.add(extent(0, 12_000, 50_000), END, 0, &mut Pace::new(source)));
        });
        for (steps, pauses) in [looked, gone, over] {
            assert!(steps > 1000 && pauses >= steps / (2 * SLICE), "{steps} steps, {pauses} pauses");
        }
        // Half of what goes is the walk; the other half gives the nodes back.
        let nodes = spread.nodes() as u64;
        let all = slices(&|tree, source| now(tree.remove(0, END, 0, &mut Pace::new(source))));
        assert!(all.1 >= 2 * nodes / SLICE, "{} pauses for {nodes} nodes", all.1);
    }

    /// Whatever a file has of extents, two states of it are compared, and one is given up, in many slices.
    #[test]
    fn trees_are_compared_and_given_up_in_slices() {
        let (tree, source) = (apart(6000), Still::default());
        let nodes = tree.nodes() as u64;
        assert!(nodes > 1000);
        let mut other = tree.clone();
        assert!(now(tree.is_as(&other, &mut Pace::new(&source))));
        assert!(source.pauses.get() >= nodes / SLICE, "{} pauses", source.pauses.get());
        now(other.add(extent(11_000, 1, 70_000), END, 0, &mut Pace::new(&source)));
        assert!(!now(tree.is_as(&other, &mut Pace::new(&source))));
        let mut other = tree.clone();
        other.foreign.insert(3, 5);
        assert!(!now(tree.is_as(&other, &mut Pace::new(&source))));
        source.pauses.set(0);
        now(tree.give_back(&mut Pace::new(&source)));
        assert!(source.pauses.get() >= nodes / SLICE, "{} pauses", source.pauses.get());
    }

    fn extent(first: u64, len: u64, start: u64) -> Extent {
        Extent { first, len, start, written: true }
    }

    /// A tree whose nodes have room for six entries, with single blocks at every other place.
    fn apart(blocks: u64) -> Tree {
        let mut tree = Tree::new(12 + 6 * 12);
        for nr in 0..blocks {
            now(tree.add(extent(nr * 2, 1, 1000 + nr * 7), END, 0, &mut Pace::new(&Still::default())));
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
            now(tree.add(extent(nr * 20, 10, 1000 + nr * 70), END, 0, &mut Pace::new(&Still::default())));
        }
        assert_eq!((tree.nodes(), tree.blocks()), (0, 40));
        // Five for a moment, then four: all in the root again, where the file's size says where to look.
        let mut head = tree.clone();
        now(head.remove(20, 25, END, &mut Pace::new(&Still::default())));
        assert_eq!((head.nodes(), head.blocks()), (0, 35));
        let mut head = tree.clone();
        now(head.remove(20, 25, 0, &mut Pace::new(&Still::default())));
        assert_eq!((head.nodes(), head.blocks()), (1, 36));
        // Its end alone goes without.
        let mut end = tree.clone();
        now(end.remove(25, 30, 0, &mut Pace::new(&Still::default())));
        assert_eq!((end.nodes(), end.blocks()), (0, 35));
        // What goes and comes is one extent again.
        now(tree.remove(23, 24, END, &mut Pace::new(&Still::default())));
        assert_eq!((tree.nodes(), tree.blocks()), (1, 40));
        now(tree.add(extent(23, 1, 1073), END, 0, &mut Pace::new(&Still::default())));
        assert_eq!((tree.nodes(), tree.blocks()), (0, 40));
        now(tree.remove(0, FILE_BLOCKS, END, &mut Pace::new(&Still::default())));
        assert_eq!((tree.nodes(), tree.blocks()), (0, 0));
    }

    #[test]
    fn a_leaf_is_split_behind_the_extent_before_the_new_one() {
        let mut tree = apart(6);
        now(tree.add(extent(3, 1, 5000), END, 0, &mut Pace::new(&Still::default())));
        assert_eq!(tree.nodes(), 2);
        let leaves: Vec<_> = tree.kids(ROOT).iter().map(|kid| (kid.0, tree.extents(kid.1).len())).collect();
        assert_eq!(leaves, [(0, 3), (4, 4)]);
        // A full leaf's last goes to the next, where that has room.
        let mut tree = apart(8);
        now(tree.add(extent(11, 1, 5000), END, 0, &mut Pace::new(&Still::default())));
        let leaves: Vec<_> = tree.kids(ROOT).iter().map(|kid| (kid.0, tree.extents(kid.1).len())).collect();
        assert_eq!(leaves, [(0, 6), (11, 3)]);
    }

    #[test]
    fn another_place_or_state_divides_and_joins() {
        let mut tree = Tree::new(12 + 6 * 12);
        now(tree.add(extent(0, 30, 1000), END, 0, &mut Pace::new(&Still::default())));
        now(tree.add(
            Extent { written: false, ..extent(10, 5, 1010) },
            END,
            0,
            &mut Pace::new(&Still::default()),
        ));
        assert_eq!(tree.extents(ROOT).len(), 3);
        assert_eq!(tree.at(12), Span { blocks: 3, start: None });
        now(tree.add(extent(10, 5, 1010), END, 0, &mut Pace::new(&Still::default())));
        assert_eq!(tree.extents(ROOT).len(), 1);
        now(tree.add(extent(4, 2, 7000), END, 0, &mut Pace::new(&Still::default())));
        assert_eq!(
            (tree.at(3).start, tree.at(5).start, tree.at(6).start),
            (Some(1003), Some(7001), Some(1006))
        );
        assert_eq!(tree.blocks(), 30);
    }

    #[test]
    fn another_files_blocks_cannot_be_read_until_they_are_said_anew() {
        let mut tree = Tree::new(12 + 6 * 12);
        now(tree.add(extent(0, 30, 1000), END, 1, &mut Pace::new(&Still::default())));
        // Before its inode, and in the same fast commit: the new file's.
        now(tree.add(extent(20, 2, 1020), END, 2, &mut Pace::new(&Still::default())));
        now(tree.begin_anew(2, &mut Pace::new(&Still::default())));
        assert_eq!((tree.at(3), tree.blocks()), (Span { blocks: 17, start: None }, 30));
        assert_eq!(tree.at(20), Span { blocks: 2, start: Some(1020) });
        now(tree.add(extent(5, 10, 1005), END, 2, &mut Pace::new(&Still::default())));
        now(tree.add(extent(0, 1, 7000), END, 3, &mut Pace::new(&Still::default())));
        let spans: Vec<_> = [0, 1, 5, 14, 15, 29].map(|at| (tree.at(at).start, tree.at(at).blocks)).into();
        let some = |start, blocks| (Some(start), blocks);
        assert_eq!(spans[..4], [some(7000, 1), (None, 4), some(1005, 10), some(1014, 1)]);
        assert_eq!(spans[4..], [(None, 5), (None, 1)]);
        // What was said in an earlier fast commit was the other file's.
        now(tree.begin_anew(4, &mut Pace::new(&Still::default())));
        assert_eq!((0..30).filter(|at| tree.at(*at).start.is_some()).count(), 0);
        tree.own_all();
        assert_eq!(tree.at(1).start, Some(1001));
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
                        now(tree.remove(first, first + len, end, &mut Pace::new(&Still::default())));
                        plain.retain(|block, _| !(first..first + len).contains(block));
                    }
                    kind => {
                        // Often at the place that follows from the file's block, so that extents join.
                        let start = if kind == 1 { 10_000 + first } else { 1000 + random.below(5000) };
                        let written = random.below(4) > 0;
                        now(tree.add(
                            Extent { first, len, start, written },
                            end,
                            0,
                            &mut Pace::new(&Still::default()),
                        ));
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
