//! Directory indexes (hash trees): from a name's hash to the one or few blocks that can hold it.
//!
//! The root is the directory's block 0, after its "." and ".."; inner nodes look like one free entry. Both
//! hold pairs of {hash, block}, sorted, of which the first pair's hash is where the count is kept. At most
//! three levels of nodes.

use super::bytes::{le16, le32, put32};
use super::csum::Crc;
use super::dir::{Directory, Entries, Form, Found, retain_from};
use super::feature::incompat;
use super::hash::Version;
use crate::{DirCursor, DirEntry, Error, Source};

/// What an index answered.
pub(super) enum Indexed {
    /// The name's inode, or that there is none.
    Answer(Option<Found>),
    /// There is no index, or its kind is unknown: look through all blocks.
    NoIndex,
}

/// Where in a node's block its pairs begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairsStart(pub(super) usize);

pub(super) const INNER: PairsStart = PairsStart(8);
pub(super) const ROOT: PairsStart = PairsStart(32);

impl PairsStart {
    pub(super) fn is_inner(self) -> bool {
        self == INNER
    }
}

/// Where a block has its pairs; `None` if it is no node. Only block 0 can be a root.
pub(super) fn node_place(block: &[u8], form: Form) -> Option<PairsStart> {
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

/// Writes a node's checksum where [`checksum_holds`] looks for it.
pub(super) fn seal(block: &mut [u8], PairsStart(at): PairsStart, seed: Crc) -> Option<()> {
    let limit = usize::from(le16(block, at)?);
    let count = usize::from(le16(block, at.checked_add(2)?)?);
    let tail = at.checked_add(limit.checked_mul(8)?)?;
    let used = block.get(..at.checked_add(count.checked_mul(8)?)?)?;
    let crc = seed.over(used).over(block.get(tail..)?.get(..4)?).over(&[0; 4]);
    put32(block, tail.checked_add(4)?, crc.0)
}

/// Whether a node's checksum holds: it follows the last pair that there is room for and covers the pairs in
/// use.
pub(super) fn checksum_holds(block: &[u8], PairsStart(at): PairsStart, seed: Crc) -> bool {
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
    /// The volume's block.
    nr: u64,
    place: PairsStart,
    count: usize,
    /// The pair that was followed.
    at: usize,
}

impl<B: std::ops::Deref<Target = [u8]>> Node<B> {
    fn new(block: B, nr: u64, place: PairsStart) -> Result<Node<B>, &'static str> {
        let field = |at: usize| usize::from(le16(&block, place.0.wrapping_add(at)).unwrap_or(0));
        let (limit, count) = (field(0), field(2));
        let room = block.len().saturating_sub(place.0).wrapping_shr(3);
        if count == 0 || count > limit || limit > room {
            return Err("an index node's count or limit is impossible");
        }
        let node = Node { block, nr, place, count, at: 0 };
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

/// A node on the way to a leaf, for who is to change it.
pub(super) struct Step {
    pub(super) block: Vec<u8>,
    /// The volume's block.
    pub(super) nr: u64,
    pub(super) place: PairsStart,
    /// The pair that was followed, and the directory's block that it names.
    pub(super) at: usize,
    pub(super) child: u64,
}

/// The nodes on the way to a leaf.
type Path<B> = [Option<Node<B>>; 3];

/// The block of the leaf that a way leads to.
fn leaf_of<B: std::ops::Deref<Target = [u8]>>(path: &Path<B>, depth: usize) -> Option<u64> {
    path.get(depth.checked_sub(1)?)?.as_ref().map(Node::child)
}

/// Leaves that may continue one hash: names of one hash are rare, those of a whole block rarer.
const MOST_OF_ONE_HASH: u32 = 64;

impl<S: Source> Directory<'_, S> {
    pub(super) async fn find_by_index(&self, name: &[u8]) -> Result<Indexed, Error> {
        if matches!(name, b"." | b"..") {
            let (block, at) = self.numbered_block(0).await?;
            return Ok(Indexed::Answer(self.find_in_block(&block, self.volume.byte_of(at), name)?));
        }
        let hashed = |version: Version| version.hash(name, self.sb.hash_seed);
        let Some((mut path, depth, hash)) = self.descend_by(hashed).await? else {
            return Ok(Indexed::NoIndex);
        };
        // One leaf, and the next ones while they continue the same hash; each is visited once.
        for _ in 0..self.blocks {
            let Some(child) = leaf_of(&path, depth) else { return Ok(Indexed::Answer(None)) };
            let (leaf, at) = self.numbered_block(child).await?;
            self.check_leaf(&leaf, at)?;
            let found = self.find_in_block(&leaf, self.volume.byte_of(at), name)?;
            if found.is_some() {
                return Ok(Indexed::Answer(found));
            }
            match self.next_leaf(&mut path, depth).await? {
                Some(next) if next & !1 == hash => {}
                _ => return Ok(Indexed::Answer(None)),
            }
        }
        Err(self.bad_entry(self.body.at, "its index loops"))
    }

    /// The way through the index to the leaf of a hash, which is made of the index's hash function; `None`
    /// where there is no index that is understood.
    async fn descend_by(
        &self,
        hash: impl FnOnce(Version) -> u32,
    ) -> Result<Option<(Path<S::Block>, usize, u32)>, Error> {
        let (block, nr) = self.numbered_block(0).await?;
        let at = self.volume.byte_of(nr);
        if node_place(&block, self.volume.form()) != Some(ROOT) {
            return Ok(None);
        }
        let (Some(&version), Some(&levels), Some(&flags)) = (block.get(28), block.get(30), block.get(31))
        else {
            return Ok(None);
        };
        let levels_max = if self.sb.features.incompat(incompat::LARGE_DIR) { 2 } else { 1 };
        let Some(version) = self.sb.hash_version(version).filter(|_| flags & 1 == 0) else {
            return Ok(None);
        };
        if levels > levels_max {
            return Err(self.bad_entry(at, &format!("its index has {levels} levels below the root")));
        }
        let hash = hash(version);
        let mut path: Path<S::Block> = [None, None, None];
        let mut node = Node::new(block, nr, ROOT).map_err(|what| self.bad_entry(at, what))?;
        node.seek(hash);
        let mut child = node.child();
        let depth = usize::from(levels).wrapping_add(1);
        self.put(&mut path, 0, node);
        for level in 1..depth {
            child = self.descend(&mut path, level, child, Some(hash)).await?;
        }
        Ok(Some((path, depth, hash)))
    }

    /// The nodes from the root to the leaf that a name belongs to, the name's hash, and what it is made with;
    /// `None` where there is no index that is understood.
    pub(super) async fn way(&self, name: &[u8]) -> Result<Option<(Vec<Step>, u32, Version)>, Error> {
        let mut known = None;
        let hashed = |version: Version| {
            known = Some(version);
            version.hash(name, self.sb.hash_seed)
        };
        let Some((path, _, hash)) = self.descend_by(hashed).await? else { return Ok(None) };
        let Some(version) = known else { return Ok(None) };
        let steps = path.iter().flatten().map(|node| Step {
            block: node.block.to_vec(),
            nr: node.nr,
            place: node.place,
            at: node.at,
            child: node.child(),
        });
        Ok(Some((steps.collect(), hash, version)))
    }

    fn check_leaf(&self, leaf: &[u8], at: u64) -> Result<(), Error> {
        if node_place(leaf, self.volume.form()).is_some_and(PairsStart::is_inner) && self.body.seed.is_some()
        {
            return Err(self.bad_entry(self.volume.byte_of(at), "an index node where a leaf should be"));
        }
        Ok(())
    }

    /// Goes on to the next leaf; the hash from which it is, with the bit that says that it continues the one
    /// before.
    async fn next_leaf(&self, path: &mut Path<S::Block>, depth: usize) -> Result<Option<u32>, Error> {
        // The deepest node with a pair left has the next leaf below it.
        let turn = (0..depth).rev().find(|level| {
            path.get(*level).and_then(Option::as_ref).is_some_and(|n| n.at.wrapping_add(1) < n.count)
        });
        let Some((turn, node)) = turn.and_then(|turn| Some((turn, path.get_mut(turn)?.as_mut()?))) else {
            return Ok(None);
        };
        node.at = node.at.wrapping_add(1);
        let (next, mut child) = node.pair(node.at);
        for level in turn.wrapping_add(1)..depth {
            child = self.descend(path, level, child, None).await?;
        }
        Ok(Some(next))
    }

    /// Appends the entries whose hashes are `from` or later and that lie in the leaf that this leads to,
    /// ordered by hash and name, and where to go on. Leaves that continue one hash count as one. `None` where
    /// there is no index that is understood.
    pub(super) async fn list_by_index(
        &self,
        from: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<Option<Option<DirCursor>>, Error> {
        let Ok(hash) = u32::try_from(from) else { return Ok(Some(None)) };
        let mut version = None;
        let seek = |known: Version| {
            version = Some(known);
            hash
        };
        let Some((mut path, depth, _)) = self.descend_by(seek).await? else { return Ok(None) };
        let Some(version) = version else { return Ok(None) };
        let first = entries.len();
        let start =
            path.iter().flatten().rev().find(|node| node.at > 0).map_or(0, |node| node.pair(node.at).0 & !1);
        let bad = |what: &str| self.bad_entry(self.body.at, what);
        let mut end = None;
        let mut leaves = 0;
        while let Some(child) = leaf_of(&path, depth) {
            let (leaf, at) = self.numbered_block(child).await?;
            self.check_leaf(&leaf, at)?;
            self.list_block(&leaf, self.volume.byte_of(at), false, 0, entries)?;
            leaves = u32::saturating_add(leaves, 1);
            let Some(next) = self.next_leaf(&mut path, depth).await? else { break };
            end = Some(next & !1);
            if next & 1 == 0 {
                break;
            }
            end = None;
            if leaves >= MOST_OF_ONE_HASH {
                return Err(bad("more blocks of its index continue one hash than are possible"));
            }
        }
        let listed = entries.get_mut(first..).unwrap_or_default();
        for entry in &mut *listed {
            let hash = version.hash(&entry.name, self.sb.hash_seed);
            // Nobody who looks the name up finds it there; and whoever goes on from it would come to another
            // leaf.
            if hash < start || end.is_some_and(|end| hash >= end) {
                return Err(bad("an entry lies in a block to which its index does not lead"));
            }
            entry.place = u64::from(hash);
        }
        listed.sort_unstable_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
        retain_from(entries, first, from);
        match end {
            Some(end) if end <= hash => Err(bad("its index is out of order")),
            end => Ok(Some(end.map(|end| DirCursor { place: u64::from(end) }))),
        }
    }

    /// Reads the inner node in the directory's block `nr` into the path, and says which block it leads to: by
    /// the hash, or its first.
    async fn descend(
        &self,
        path: &mut Path<S::Block>,
        level: usize,
        nr: u64,
        hash: Option<u32>,
    ) -> Result<u64, Error> {
        let (block, at) = self.numbered_block(nr).await?;
        let bad = |what: &str| self.bad_entry(self.volume.byte_of(at), what);
        if node_place(&block, self.volume.form()) != Some(INNER) {
            return Err(bad("a block of its index is no node"));
        }
        let mut node = Node::new(block, at, INNER).map_err(bad)?;
        if let Some(hash) = hash {
            node.seek(hash);
        }
        let child = node.child();
        self.put(path, level, node);
        Ok(child)
    }

    fn put<B>(&self, path: &mut Path<B>, level: usize, node: Node<B>) {
        if let Some(place) = path.get_mut(level) {
            *place = Some(node);
        }
    }
}
