//! What fast commits leave in memory: blocks that were changed or added, and the extent trees of files of
//! which they speak, which stand for those on the volume.
//!
//! Blocks that a directory grew by have numbers behind the volume's last: nothing on the volume can name
//! them, and no source is asked for them. All of it has a bound, and so has the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::bytes::{index, wide};
use super::super::extent::Extent;
use super::tree::Tree;
use crate::pace::Pace;
use crate::{Error, Source};

/// Most bytes of memory. A journal has 256 blocks for fast commits where nothing else is said: a MiB in which
/// each name of ten bytes in another directory would change a block.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes that an extent costs.
const EXTENT_COST: u64 = 64;
/// What a node takes in memory, in blocks: an extent has 12 bytes on the volume, and 32 here.
const NODE_BLOCKS: u64 = 3;
/// Most steps that reading and changing extent trees takes, and directories without an index.
const STEPS_MAX: u64 = 1 << 24;
/// Bytes of a directory that are looked through in a step, as a power of two: four entries or so.
const LOOK_SHIFT: u32 = 7;

#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Whole blocks, by number.
    pub(super) blocks: BTreeMap<u64, Arc<[u8]>>,
    /// The extent trees of files, by inode.
    pub(super) trees: BTreeMap<u32, Tree>,
    /// Files of which they speak whose extents cannot be read: what is wrong with each, and at which byte.
    damaged: BTreeMap<u32, (String, u64)>,
    /// Bytes that it took so far, with those that are gone.
    spent: u64,
    steps: u64,
}

/// Bytes of a block that are compared in a step.
const COMPARED: usize = 4096;

/// What is compared in steps.
trait Compare {
    async fn is_as<S: Source>(&self, other: &Self, pace: &mut Pace<'_, S>) -> bool;
}

impl Compare for Arc<[u8]> {
    async fn is_as<S: Source>(&self, other: &Self, pace: &mut Pace<'_, S>) -> bool {
        for (bytes, others) in self.chunks(COMPARED).zip(other.chunks(COMPARED)) {
            pace.step().await;
            if bytes != others {
                return false;
            }
        }
        self.len() == other.len()
    }
}

impl Compare for Tree {
    async fn is_as<S: Source>(&self, other: &Self, pace: &mut Pace<'_, S>) -> bool {
        Tree::is_as(self, other, pace).await
    }
}

impl Compare for (String, u64) {
    async fn is_as<S: Source>(&self, other: &Self, _: &mut Pace<'_, S>) -> bool {
        self == other
    }
}

/// The keys that only one of them has, or for which they have different values.
async fn keys_unlike<K: Ord + Copy, V: Compare, S: Source>(
    a: &BTreeMap<K, V>,
    b: &BTreeMap<K, V>,
    pace: &mut Pace<'_, S>,
) -> Vec<K> {
    let mut unlike = Vec::new();
    for (key, value) in a {
        pace.step().await;
        let is_alike = match b.get(key) {
            Some(other) => value.is_as(other, pace).await,
            None => false,
        };
        if !is_alike {
            unlike.push(*key);
        }
    }
    for key in b.keys() {
        pace.step().await;
        if !a.contains_key(key) {
            unlike.push(*key);
        }
    }
    unlike
}

impl Changes {
    /// What is otherwise than in `other`: blocks, and inodes whose extents are.
    pub(super) async fn unlike<S: Source>(&self, other: &Changes, source: &S) -> (Vec<u64>, Vec<u32>) {
        let pace = &mut Pace::new(source);
        let mut inodes = keys_unlike(&self.trees, &other.trees, pace).await;
        inodes.extend(keys_unlike(&self.damaged, &other.damaged, pace).await);
        (keys_unlike(&self.blocks, &other.blocks, pace).await, inodes)
    }

    /// Gives its memory back, piece by piece.
    pub(super) async fn give_back<S: Source>(mut self, source: &S) {
        let pace = &mut Pace::new(source);
        while let Some((_, tree)) = self.trees.pop_first() {
            tree.give_back(pace).await;
        }
        while self.blocks.pop_first().is_some() {
            pace.step().await;
        }
    }

    /// Lets nobody read a file that a fast commit changes and whose extents are damaged.
    pub(super) fn damage(&mut self, ino: u32, what: String, at: u64) -> Result<(), Error> {
        let cost = EXTENT_COST.saturating_add(wide(what.len()));
        match self.damaged.insert(ino, (what, at)) {
            Some(_) => Ok(()),
            None => self.spend(cost),
        }
    }

    /// What is wrong with the extents of a file that nobody can read.
    pub(super) fn is_damaged(&self, ino: u32) -> Option<Error> {
        let (what, at) = self.damaged.get(&ino)?;
        Some(Error::Corrupt { what: what.clone(), at: *at })
    }

    /// A file's extents are those of its inode again.
    pub(super) async fn forget_tree<S: Source>(&mut self, ino: u32, source: &S) {
        self.damaged.remove(&ino);
        if let Some(tree) = self.trees.remove(&ino) {
            tree.give_back(&mut Pace::new(source)).await;
        }
    }

    /// Bytes of memory, about: as many as it took, with those that are gone.
    pub(super) fn bytes(&self) -> u64 {
        self.spent
    }

    pub(super) fn put(&mut self, nr: u64, block: Vec<u8>) -> Result<(), Error> {
        let len = wide(block.len());
        match self.blocks.insert(nr, block.into()) {
            Some(_) => Ok(()),
            None => self.spend(len),
        }
    }

    /// Nodes that a tree may have for which there is room.
    pub(super) fn nodes_max(&self, block_size: u32) -> usize {
        let left = BYTES_MAX.saturating_sub(self.spent);
        index(left.checked_div(NODE_BLOCKS.saturating_mul(block_size.into())).unwrap_or(0))
    }

    /// That nodes of a tree were read, whatever came of it.
    pub(super) fn read(&mut self, nodes: u64, block_size: u32) -> Result<(), Error> {
        let entries = u64::from(block_size).checked_div(12).unwrap_or(0);
        self.steps = self.steps.saturating_add(nodes.saturating_mul(entries));
        self.spend(0)
    }

    /// That so many bytes of a directory were looked through.
    pub(super) fn looked_through(&mut self, bytes: u64) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(bytes.wrapping_shr(LOOK_SHIFT));
        self.spend(0)
    }

    /// Takes a tree in as it is on the volume.
    pub(super) fn take(&mut self, ino: u32, tree: Tree, block_size: u32) -> Result<(), Error> {
        let blocks = wide(tree.nodes()).saturating_mul(NODE_BLOCKS.saturating_mul(block_size.into()));
        self.trees.insert(ino, tree);
        self.spend(blocks.saturating_add(EXTENT_COST))
    }

    /// Says where blocks of a file lie whose tree is there, as fast commit `commit` does. `end`: its size in
    /// whole blocks.
    pub(super) async fn add<S: Source>(
        &mut self,
        ino: u32,
        extent: Extent,
        (end, commit): (u64, u64),
        source: &S,
    ) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(&ino) else { return Ok(()) };
        let pieces = tree.add(extent, end, commit, &mut Pace::new(source)).await;
        self.steps = self.steps.saturating_add(std::mem::take(&mut tree.steps));
        self.spend(pieces.saturating_mul(EXTENT_COST))
    }

    /// Takes blocks of a file away, from `first` to before `stop`.
    pub(super) async fn remove<S: Source>(
        &mut self,
        ino: u32,
        (first, stop): (u64, u64),
        end: u64,
        source: &S,
    ) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(&ino) else { return Ok(()) };
        tree.remove(first, stop, end, &mut Pace::new(source)).await;
        self.steps = self.steps.saturating_add(std::mem::take(&mut tree.steps));
        self.spend(EXTENT_COST)
    }

    /// Lets an inode be another file's, of which only is there what a tag has named or will.
    pub(super) async fn begin_anew<S: Source>(
        &mut self,
        ino: u32,
        commit: u64,
        source: &S,
    ) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(&ino) else { return Ok(()) };
        tree.begin_anew(commit, &mut Pace::new(source)).await;
        self.steps = self.steps.saturating_add(std::mem::take(&mut tree.steps));
        self.spend(0)
    }

    fn spend(&mut self, bytes: u64) -> Result<(), Error> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > BYTES_MAX || self.steps > STEPS_MAX {
            let what = format!("fast_commit: more than {BYTES_MAX} bytes of changes or {STEPS_MAX} steps");
            return Err(Error::Unsupported(what));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "numbers of a test, and small")]
mod tests {
    use super::*;
    use crate::pace::SLICE;
    use crate::pace::still::{Still, now};

    /// So many blocks, all alike, and as many files without an extent.
    fn many(count: u32) -> Changes {
        let mut changes = Changes::default();
        for nr in 0..count {
            changes.put(nr.into(), vec![7; 2 * COMPARED]).unwrap();
            changes.take(nr, Tree::new(1024), 1024).unwrap();
        }
        changes
    }

    #[test]
    fn states_are_compared_and_given_up_in_slices() {
        let (changes, source) = (many(1000), Still::default());
        let mut other = changes.clone();
        assert_eq!(now(changes.unlike(&other, &source)), (Vec::new(), Vec::new()));
        // Each key of both, and each block in two parts.
        assert!(source.pauses.get() >= 6000 / SLICE, "{} pauses", source.pauses.get());
        let mut block = vec![7; 2 * COMPARED];
        block[COMPARED + 1] = 8;
        other.put(5, block).unwrap();
        other.put(6, vec![7; 5]).unwrap();
        other.put(5000, vec![7; 5]).unwrap();
        other.damage(9, "gone".into(), 7).unwrap();
        now(other.forget_tree(4, &source));
        assert_eq!(now(changes.unlike(&other, &source)), (vec![5, 6, 5000], vec![4, 9]));
        assert_eq!(now(other.unlike(&changes, &source)), (vec![5, 6, 5000], vec![4, 9]));
        source.pauses.set(0);
        now(changes.give_back(&source));
        assert!(source.pauses.get() >= 2000 / SLICE, "{} pauses", source.pauses.get());
    }
}
