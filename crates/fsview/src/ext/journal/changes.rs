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
use crate::Error;

/// Most bytes of memory. A journal has 256 blocks for fast commits where nothing else is said: a MiB in which
/// each name of ten bytes in another directory would change a block.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes that an extent costs.
const EXTENT_COST: u64 = 64;
/// What a node takes in memory, in blocks: an extent has 12 bytes on the volume, and 32 here.
const NODE_BLOCKS: u64 = 3;
/// Most steps that reading and changing extent trees takes.
const STEPS_MAX: u64 = 1 << 24;

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

/// The keys that only one of them has, or for which they have different values.
fn keys_unlike<K: Ord + Copy, V: PartialEq>(a: &BTreeMap<K, V>, b: &BTreeMap<K, V>) -> Vec<K> {
    let unlike = a.iter().filter(|(key, value)| b.get(key) != Some(value));
    let gone = b.keys().filter(|key| !a.contains_key(key));
    unlike.map(|(key, _)| key).chain(gone).copied().collect()
}

impl Changes {
    /// What is otherwise than in `other`: blocks, and inodes whose extents are.
    pub(super) fn unlike(&self, other: &Changes) -> (Vec<u64>, Vec<u32>) {
        let mut inodes = keys_unlike(&self.trees, &other.trees);
        inodes.extend(keys_unlike(&self.damaged, &other.damaged));
        (keys_unlike(&self.blocks, &other.blocks), inodes)
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
    pub(super) fn forget_tree(&mut self, ino: u32) {
        self.trees.remove(&ino);
        self.damaged.remove(&ino);
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

    /// Takes a tree in as it is on the volume.
    pub(super) fn take(&mut self, ino: u32, tree: Tree, block_size: u32) -> Result<(), Error> {
        let blocks = wide(tree.nodes()).saturating_mul(NODE_BLOCKS.saturating_mul(block_size.into()));
        self.trees.insert(ino, tree);
        self.spend(blocks.saturating_add(EXTENT_COST))
    }

    /// Says where blocks of a file lie whose tree is there. `end`: its size in whole blocks.
    pub(super) fn add(&mut self, ino: u32, extent: Extent, end: u64) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(&ino) else { return Ok(()) };
        let pieces = tree.add(extent, end);
        self.steps = self.steps.saturating_add(std::mem::take(&mut tree.steps));
        self.spend(pieces.saturating_mul(EXTENT_COST))
    }

    /// Takes blocks of a file away, from `first` to before `stop`.
    pub(super) fn remove(&mut self, ino: u32, first: u64, stop: u64, end: u64) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(&ino) else { return Ok(()) };
        tree.remove(first, stop, end);
        self.steps = self.steps.saturating_add(std::mem::take(&mut tree.steps));
        self.spend(EXTENT_COST)
    }

    /// Lets what lies at `block` of the volume and behind it read as zeros in a file.
    pub(super) fn blank(&mut self, ino: u32, block: u64) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(&ino) else { return Ok(()) };
        tree.blank(block);
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
