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
    /// Bytes that it took so far, with those that are gone.
    spent: u64,
    steps: u64,
}

impl Changes {
    /// Whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.trees.is_empty()
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
