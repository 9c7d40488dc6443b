//! What fast commits leave in memory: blocks that were changed or added, and what was said of the ranges of
//! files, which lies over the extent trees as they are.
//!
//! Blocks that a directory grew by have numbers behind the volume's last: nothing on the volume can name
//! them, and no source is asked for them. All of it has a bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::bytes::wide;
use super::super::extent::FILE_BLOCKS;
use super::super::map::Span;
use crate::Error;

/// Most bytes of memory. A journal has 256 blocks for fast commits where nothing else is said: a MiB in which
/// each name of ten bytes in another directory would change a block.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes that a range costs.
const RANGE_COST: u64 = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Whole blocks, by number.
    pub(super) blocks: BTreeMap<u64, Arc<[u8]>>,
    /// What was said of files' blocks, by inode.
    pub(super) ranges: BTreeMap<u32, Ranges>,
    /// Ranges that were said, those that are gone among them.
    said: u64,
}

impl Changes {
    /// Whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.ranges.is_empty()
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.values().map(|block| wide(block.len())).sum();
        blocks.saturating_add(self.said.saturating_mul(RANGE_COST))
    }

    pub(super) fn put(&mut self, nr: u64, block: Vec<u8>) -> Result<(), Error> {
        let len = wide(block.len());
        self.blocks.insert(nr, block.into());
        self.check(len)
    }

    pub(super) fn range(&mut self, ino: u32, first: u64, len: u64, place: Place) -> Result<(), Error> {
        self.ranges.entry(ino).or_default().put(first, len, place);
        self.said = self.said.saturating_add(1);
        self.check(0)
    }

    /// Whether there is room; `len`: bytes of a block, if there is any.
    fn check(&self, len: u64) -> Result<(), Error> {
        let blocks = wide(self.blocks.len()).saturating_mul(len);
        let ranges = self.said.saturating_mul(RANGE_COST);
        match blocks.saturating_add(ranges) > BYTES_MAX {
            true => {
                let what = format!("fast_commit: more than {BYTES_MAX} bytes of changes");
                Err(Error::Unsupported(what))
            }
            false => Ok(()),
        }
    }
}

/// What fast commits say of a file's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext) enum Known {
    Here(Span),
    /// Nothing of it, and of so many blocks from it on.
    Until(u64),
}

/// What is at a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Hole,
    /// Blocks that are the file's, and read as zeros.
    Unwritten,
    /// The volume's block that holds the first.
    At(u64),
}

impl Place {
    /// The place so many blocks behind it.
    fn behind(self, blocks: u64) -> Place {
        match self {
            Place::At(block) => Place::At(block.saturating_add(blocks)),
            other => other,
        }
    }
}

/// Ranges of a file's blocks that lie apart: by the first block, the one after the last, and what is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, (u64, Place)>);

impl Ranges {
    /// Says something of `len` blocks from `first` on, in place of what was said before.
    fn put(&mut self, first: u64, len: u64, place: Place) {
        let end = first.saturating_add(len).min(FILE_BLOCKS);
        if first >= end {
            return;
        }
        self.split(first);
        self.split(end);
        let inside: Vec<_> = self.0.range(first..end).map(|(first, _)| *first).collect();
        for gone in inside {
            self.0.remove(&gone);
        }
        self.0.insert(first, (end, place));
    }

    /// Makes a range end before `block` and another begin with it.
    fn split(&mut self, block: u64) {
        let Some((first, range)) = self.0.range_mut(..block).next_back() else { return };
        let (end, place) = *range;
        if end <= block {
            return;
        }
        range.0 = block;
        let inside = block.wrapping_sub(*first); // of a range before it
        self.0.insert(block, (end, place.behind(inside)));
    }

    pub(super) fn at(&self, block: u64) -> Known {
        if let Some((first, (end, place))) = self.0.range(..=block).next_back()
            && *end > block
        {
            let start = match place.behind(block.wrapping_sub(*first)) {
                Place::At(start) => Some(start),
                Place::Hole | Place::Unwritten => None,
            };
            return Known::Here(Span { blocks: end.wrapping_sub(block), start });
        }
        let next = self.0.range(block..).next();
        Known::Until(next.map_or(u64::MAX, |(first, _)| first.wrapping_sub(block)))
    }

    /// Blocks of these ranges that are the file's.
    pub(super) fn held(&self) -> u64 {
        let held = self.0.iter().filter(|(_, (_, place))| *place != Place::Hole);
        held.fold(0, |sum, (first, (end, _))| sum.saturating_add(end.saturating_sub(*first)))
    }

    /// Lets those at `block` of the volume and behind it read as zeros.
    pub(super) fn blank(&mut self, block: u64) {
        for (_, place) in self.0.values_mut() {
            if matches!(place, Place::At(start) if *start >= block) {
                *place = Place::Unwritten;
            }
        }
    }
}
