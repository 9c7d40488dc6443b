//! Directory indexes (hash trees): from a name's hash to the one or few blocks that can hold it.
//!
//! The root is the directory's block 0, after its "." and ".."; inner nodes look like one free entry. Both hold pairs of
//! {hash, block}, sorted, of which the first pair's hash is where the count is kept. At most three levels of nodes.

use super::Volume;
use super::bytes::{le16, le32};
use super::csum::Crc;
use super::dir::{Directory, Entries, Form};
use super::feature::incompat;
use crate::{Error, Source};

/// What an index answered.
pub(super) enum Indexed {
    /// The name's inode, or that there is none.
    Answer(Option<u32>),
    /// There is no index, or its kind is unknown: look through all blocks.
    NoIndex,
}

/// Where in a node's block its pairs begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

const INNER: Place = Place(8);
const ROOT: Place = Place(32);

impl Place {
    pub(super) fn is_inner(self) -> bool {
        self == INNER
    }
}

/// Where a block has its pairs; `None` if it is no node. Only block 0 can be a root.
pub(super) fn node_place(block: &[u8], form: Form) -> Option<Place> {
    let mut entries = Entries::new(block, form);
    let first = entries.next()?.ok()?;
    if first.record == block.len() {
        return (first.ino == 0).then_some(INNER);
    }
    if first.record != 12 {
        return None;
    }
    let second = entries.next()?.ok()?;
    let is_root = second.record == block.len().checked_sub(12)?
        && second.name == b".."
        && le32(block, 24)? == 0
        && *block.get(29)? == 8;
    is_root.then_some(ROOT)
}

/// Whether a node's checksum holds: it follows the last pair that there is room for and covers the pairs in use.
pub(super) fn checksum_holds(block: &[u8], Place(at): Place, seed: Crc) -> bool {
    let holds = || {
        let limit = usize::from(le16(block, at)?);
        let count = usize::from(le16(block, at.checked_add(2)?)?);
        let tail = block.get(at.checked_add(limit.checked_mul(8)?)?..)?.get(..8)?;
        let used = block.get(..at.checked_add(count.checked_mul(8)?)?)?;
        let crc = seed.over(used).over(tail.get(..4)?).over(&[0; 4]);
        Some(count <= limit && le32(tail, 4)? == crc.0)
    };
    holds() == Some(true)
}

/// A node on the way down.
struct Node<B> {
    block: B,
    place: Place,
    count: usize,
    /// The pair that was followed.
    at: usize,
}

impl<B: std::ops::Deref<Target = [u8]>> Node<B> {
    fn new(block: B, place: Place) -> Result<Node<B>, &'static str> {
        let field = |at: usize| usize::from(le16(&block, place.0.wrapping_add(at)).unwrap_or(0));
        let (limit, count) = (field(0), field(2));
        let room = block.len().saturating_sub(place.0).wrapping_shr(3);
        if count == 0 || count > limit || limit > room {
            return Err("an index node's count or limit is impossible");
        }
        let node = Node { block, place, count, at: 0 };
        // The first pair has no hash. Leaves that share one hash have equal ones.
        let pairs = node.block.get(place.0.wrapping_add(8)..).and_then(|rest| {
            rest.get(..count.wrapping_sub(1).wrapping_mul(8)) // count is at least 1, and fits the block
        });
        let (pairs, _) = pairs.unwrap_or(&[]).as_chunks::<8>();
        let hash = |pair: &[u8; 8]| le32(pair, 0);
        if !pairs.is_sorted_by_key(hash) {
            return Err("the hashes of an index node are out of order");
        }
        Ok(node)
    }

    fn pair(&self, nr: usize) -> (u32, u64) {
        let at = self.place.0.wrapping_add(nr.wrapping_mul(8)); // nr < count, which fits the block
        let block = le32(&self.block, at.wrapping_add(4)).unwrap_or(0);
        (le32(&self.block, at).unwrap_or(0), u64::from(block & 0x0FFF_FFFF))
    }

    /// Follows the last pair whose hash is at most `hash`; the first counts as hash 0.
    fn seek(&mut self, hash: u32) {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.pair(middle).0 > hash {
                high = middle;
            } else {
                low = middle.wrapping_add(1);
            }
        }
        self.at = low.wrapping_sub(1);
    }

    fn child(&self) -> u64 {
        self.pair(self.at).1
    }
}

impl Volume {
    pub(super) async fn find_by_index<S: Source>(
        &self,
        source: &S,
        dir: &Directory<'_>,
        name: &[u8],
    ) -> Result<Indexed, Error> {
        let (block, at) = self.numbered_block(source, dir, 0).await?;
        let at = self.byte_of(at);
        if matches!(name, b"." | b"..") {
            return Ok(Indexed::Answer(self.find_in_block(dir, &block, at, name)?));
        }
        if node_place(&block, self.form()) != Some(ROOT) {
            return Ok(Indexed::NoIndex);
        }
        let (Some(&version), Some(&levels), Some(&flags)) = (block.get(28), block.get(30), block.get(31))
        else {
            return Ok(Indexed::NoIndex);
        };
        let levels_max = if self.sb.features.incompat(incompat::LARGE_DIR) { 2 } else { 1 };
        let Some(version) = self.sb.hash_version(version).filter(|_| flags & 1 == 0) else {
            return Ok(Indexed::NoIndex);
        };
        if levels > levels_max {
            return Err(self.bad_entry(dir, at, &format!("its index has {levels} levels below the root")));
        }
        let hash = version.hash(name, self.sb.hash_seed);

        let mut path: [Option<Node<S::Block>>; 3] = [None, None, None];
        let mut node = Node::new(block, ROOT).map_err(|what| self.bad_entry(dir, at, what))?;
        node.seek(hash);
        let mut child = node.child();
        let depth = usize::from(levels).wrapping_add(1);
        self.put(&mut path, 0, node);
        for level in 1..depth {
            child = self.descend(source, dir, &mut path, level, child, Some(hash)).await?;
        }
        // One leaf, and the next ones while they continue the same hash; each is visited once.
        for _ in 0..dir.blocks {
            let (leaf, at) = self.numbered_block(source, dir, child).await?;
            if node_place(&leaf, self.form()).is_some_and(Place::is_inner) && dir.body.seed.is_some() {
                return Err(self.bad_entry(dir, self.byte_of(at), "an index node where a leaf should be"));
            }
            if let Some(ino) = self.find_in_block(dir, &leaf, self.byte_of(at), name)? {
                return Ok(Indexed::Answer(Some(ino)));
            }
            // The deepest node with a pair left has the next leaf below it.
            let Some(turn) = (0..depth).rev().find(|level| {
                path.get(*level).and_then(Option::as_ref).is_some_and(|n| n.at.wrapping_add(1) < n.count)
            }) else {
                return Ok(Indexed::Answer(None));
            };
            let Some(node) = path.get_mut(turn).and_then(Option::as_mut) else {
                return Ok(Indexed::Answer(None));
            };
            node.at = node.at.wrapping_add(1);
            let (next, block) = node.pair(node.at);
            if next & !1 != hash {
                return Ok(Indexed::Answer(None));
            }
            child = block;
            for level in turn.wrapping_add(1)..depth {
                child = self.descend(source, dir, &mut path, level, child, None).await?;
            }
        }
        Err(self.bad_entry(dir, dir.body.at, "its index loops"))
    }

    /// Reads the inner node in the directory's block `nr` into the path, and says which block it leads to: by the hash,
    /// or its first.
    async fn descend<S: Source>(
        &self,
        source: &S,
        dir: &Directory<'_>,
        path: &mut [Option<Node<S::Block>>; 3],
        level: usize,
        nr: u64,
        hash: Option<u32>,
    ) -> Result<u64, Error> {
        let (block, at) = self.numbered_block(source, dir, nr).await?;
        let bad = |what: &str| self.bad_entry(dir, self.byte_of(at), what);
        if node_place(&block, self.form()) != Some(INNER) {
            return Err(bad("a block of its index is no node"));
        }
        let mut node = Node::new(block, INNER).map_err(bad)?;
        if let Some(hash) = hash {
            node.seek(hash);
        }
        let child = node.child();
        self.put(path, level, node);
        Ok(child)
    }

    fn put<B>(&self, path: &mut [Option<Node<B>>; 3], level: usize, node: Node<B>) {
        if let Some(place) = path.get_mut(level) {
            *place = Some(node);
        }
    }
}
