//! Node blocks and the tree that they make (S: fs/f2fs/node.c): an inode holds addresses, then two direct
//! nodes, two indirect ones and a double indirect one. Every node names its inode and its place in the tree
//! in its footer; both are checked, so that a node cannot stand for another and no chain of them can loop.
//! Direct nodes of the log of fsync come before those of the tree.

use super::checkpoint::Checkpoint;
use super::fields::{Addr, BLOCK, Nid, corrupt, index, read, u32_at, u64_at};
use super::nat;
use super::roll::{Places, inode_shown};
use super::superblock::Superblock;
use crate::{Error, Source};

/// Where the footer begins.
const FOOTER: usize = 4072;
/// Where it names the inode.
pub(super) const FOOTER_INO: usize = 4076;
/// Where an inode's addresses begin.
pub(super) const INODE_ADDRESSES: usize = 360;
/// Where an inode's five node identifiers begin.
pub(super) const INODE_NIDS: usize = 4052;
/// Addresses in a direct node, node identifiers in an indirect one.
const PER_NODE: u32 = 1018;
/// [`PER_NODE`] for sums of 64 bits.
const PER_NODE_64: u64 = 1018;
/// Blocks below an indirect node.
const PER_INDIRECT: u64 = 1018 * 1018;
/// The place in the tree of a node that holds extended attributes.
pub(super) const XATTR_PLACE: u32 = 0x1FFF_FFFF;
/// The footer's flag of a node written by fsync.
pub(super) const FSYNC_FLAG: u32 = 2;
/// The footer's flag of an inode's block that names its directory entry, too.
pub(super) const DENT_FLAG: u32 = 4;

/// The end of every node block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footer {
    pub nid: u32,
    pub ino: u32,
    pub flag: u32,
    pub cp_version: u64,
    pub next: Addr,
}

impl Footer {
    /// From a node block.
    pub fn of(block: &[u8]) -> Footer {
        let field = |offset: usize| FOOTER.saturating_add(offset);
        Footer {
            nid: u32_at(block, field(0)),
            ino: u32_at(block, field(4)),
            flag: u32_at(block, field(8)),
            cp_version: u64_at(block, field(12)),
            next: Addr(u32_at(block, field(20))),
        }
    }

    /// Its place in its inode's tree: 0 the inode, then the nodes in order.
    pub fn place(self) -> u32 {
        self.flag >> 3
    }
}

/// A node block and where it lies.
pub(super) struct Node<B> {
    pub address: Addr,
    pub block: B,
}

impl<B: std::ops::Deref<Target = [u8]>> Node<B> {
    /// The byte of the volume at which it begins.
    pub fn at(&self) -> u64 {
        self.address.byte()
    }
}

/// Reads the node `nid` of inode `ino` that lies at `address` and must have its place in the tree.
pub(super) async fn read_at<S: Source>(
    source: &S,
    address: Addr,
    nid: Nid,
    ino: u32,
    place: u32,
) -> Result<Node<S::Block>, Error> {
    let block = read(source, address).await?;
    let footer = Footer::of(&block);
    if footer.nid != nid.0 || footer.ino != ino || footer.place() != place {
        return Err(corrupt(
            format!(
                "node {} of inode {ino} at place {place}: its footer says node {} of inode {} at place {}",
                nid.0,
                footer.nid,
                footer.ino,
                footer.place()
            ),
            address.byte(),
        ));
    }
    Ok(Node { address, block })
}

/// Reads a node by its identifier.
pub(super) async fn read_node<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    nid: Nid,
    ino: u32,
    place: u32,
) -> Result<Node<S::Block>, Error> {
    let location = nat::locate(source, sb, cp, nid).await?;
    if location.ino != ino {
        return Err(corrupt(
            format!("node {} belongs to inode {}, not to {ino}", nid.0, location.ino),
            location.address.byte(),
        ));
    }
    read_at(source, location.address, nid, ino, place).await
}

/// A step down the tree: which entry of the node above, the place of the node there, the blocks below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    entry: u32,
    place: u32,
    below: u64,
}

/// The way from an inode to the direct node over a block of the file, and the block's number below each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodePath {
    /// Which of the inode's five node identifiers comes first: the entry of the first step.
    steps: [Option<Step>; 3],
    /// The block, counted from the first below the first node.
    block: u64,
}

/// Blocks that a file may have, of whose addresses the inode holds `in_inode`.
pub(super) fn most_blocks(in_inode: u32) -> u64 {
    let per_node = PER_NODE_64;
    [per_node.saturating_mul(2), PER_INDIRECT.saturating_mul(2), PER_INDIRECT.saturating_mul(per_node)]
        .iter()
        .fold(u64::from(in_inode), |sum, blocks| sum.saturating_add(*blocks))
}

/// The way to a block beyond those in the inode: `block` counts from the first of these. `None` past the
/// largest file.
fn node_path(block: u64) -> Option<NodePath> {
    let per_node = PER_NODE_64;
    let direct = |entry, place| Step { entry, place, below: 1 };
    let child = |block: u64| u32::try_from(block / PER_NODE_64 % PER_NODE_64).ok();
    let mut rest = block;
    for (entry, place) in [(0, 1), (1, 2)] {
        if rest < per_node {
            return Some(NodePath { steps: [Some(direct(entry, place)), None, None], block: rest });
        }
        rest = rest.checked_sub(per_node)?;
    }
    for (entry, place) in [(2, 3_u32), (3, PER_NODE.checked_add(4)?)] {
        if rest < PER_INDIRECT {
            let entry_below = child(rest)?;
            let place_below = place.checked_add(1)?.checked_add(entry_below)?;
            let top = Step { entry, place, below: per_node };
            return Some(NodePath {
                steps: [Some(top), Some(direct(entry_below, place_below)), None],
                block: rest,
            });
        }
        rest = rest.checked_sub(PER_INDIRECT)?;
    }
    if rest >= PER_INDIRECT.checked_mul(per_node)? {
        return None;
    }
    let place = PER_NODE.checked_mul(2)?.checked_add(5)?;
    let middle = u32::try_from(rest / PER_INDIRECT).ok()?;
    let middle_place = place.checked_add(1)?.checked_add(middle.checked_mul(PER_NODE.checked_add(1)?)?)?;
    let last = child(rest)?;
    let last_place = middle_place.checked_add(1)?.checked_add(last)?;
    Some(NodePath {
        steps: [
            Some(Step { entry: 4, place, below: PER_INDIRECT }),
            Some(Step { entry: middle, place: middle_place, below: per_node }),
            Some(direct(last, last_place)),
        ],
        block: rest,
    })
}

/// What an inode's tree needs of the inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub ino: u32,
    /// The inode's own block.
    pub inode: Addr,
    /// Where in it the addresses of the first blocks begin, in bytes.
    pub addresses: usize,
    /// How many there are.
    pub count: u32,
    pub nids: [u32; 5],
    /// Whether these addresses count for nothing: recovery has given content in the inode up.
    pub emptied: bool,
    /// The file's first run, where it was looked at when the inode was parsed: most files have no other, and
    /// their inode's block is then read once.
    pub head: Option<Blocks>,
}

/// What is at the end of the way to a block of a file.
pub(super) enum Direct<B> {
    /// A direct node, and which of its addresses.
    Node(Node<B>, u32),
    /// Nothing, for so many blocks.
    Hole(u64),
}

/// The addresses of a direct node.
pub(super) fn addresses(block: &[u8]) -> &[u8] {
    block.get(..index(PER_NODE.saturating_mul(4))).unwrap_or(&[])
}

/// The first block of a file below the direct node at a place, counted from the first block that is not the
/// inode's own: the inverse of [`node_path`]. `None` where no direct node has this place.
pub(super) fn first_block(place: u32) -> Option<u64> {
    let per_node = PER_NODE_64;
    let nodes = match place {
        1 | 2 => u64::from(place.checked_sub(1)?),
        _ => {
            // Below the two indirect nodes, then the double one's: each with its nodes right behind it.
            let rest = u64::from(place.checked_sub(3)?);
            let family = per_node.checked_add(1)?;
            let double = family.checked_mul(2)?;
            let (families, within) = match rest.checked_sub(double) {
                None => (rest.checked_div(family)?, rest.checked_rem(family)?),
                // One more for the double indirect node itself.
                Some(deep) => {
                    let deep = deep.checked_sub(1)?;
                    (deep.checked_div(family)?.checked_add(2)?, deep.checked_rem(family)?)
                }
            };
            if families >= per_node.checked_add(2)? {
                return None;
            }
            families.checked_mul(per_node)?.checked_add(within.checked_sub(1)?)?.checked_add(2)?
        }
    };
    nodes.checked_mul(per_node)
}

/// Blocks of a file that follow each other on the volume, or that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Where the first is; `None` for a hole.
    pub first: Option<Addr>,
    /// How many: at least one.
    pub count: u64,
}

impl Blocks {
    /// What is left of them from their `skip`th on.
    fn from(self, skip: u64) -> Option<Blocks> {
        let count = self.count.checked_sub(skip).filter(|left| *left > 0)?;
        let first = match self.first {
            None => None,
            Some(first) => Some(Addr(first.0.checked_add(u32::try_from(skip).ok()?)?)),
        };
        Some(Blocks { first, count })
    }
}

/// The first run of a file of `size` bytes whose inode's block is `block`. `None`: there is none, or it is
/// damaged, which is said where it is asked for.
pub(super) fn head(sb: &Superblock, block: &[u8], tree: &Tree, size: u64) -> Option<Blocks> {
    let words = size.div_ceil(super::fields::number(BLOCK)).min(u64::from(tree.count));
    let bytes = usize::try_from(words.checked_mul(4)?).ok().filter(|bytes| *bytes > 0)?;
    run(sb, block.get(tree.addresses..)?.get(..bytes)?, 0, tree.inode.byte()).ok()
}

impl Tree {
    /// Where block `block` of the file is, and how many from it on are like it, as far as one node shows.
    pub async fn map<S: Source>(
        &self,
        source: &S,
        sb: &Superblock,
        cp: &Checkpoint,
        block: u64,
    ) -> Result<Blocks, Error> {
        let count = u64::from(self.count);
        if block < count {
            if self.emptied {
                return Ok(Blocks { first: None, count: count.saturating_sub(block) });
            }
            if let Some(run) = self.head.and_then(|head| head.from(block)) {
                return Ok(run);
            }
            let node = read_at(source, self.inode, Nid(self.ino), self.ino, 0).await?;
            let words = self.count.saturating_mul(4);
            let table = node.block.get(self.addresses..).and_then(|b| b.get(..index(words))).unwrap_or(&[]);
            return run(sb, table, u32::try_from(block).unwrap_or(u32::MAX), node.at());
        }
        source.shows(inode_shown(self.ino));
        match self.direct(source, sb, cp, cp.roll.places(self.ino), block).await? {
            Direct::Hole(count) => Ok(Blocks { first: None, count }),
            Direct::Node(node, first) => run(sb, addresses(&node.block), first, node.at()),
        }
    }

    /// The direct node over a block beyond those whose addresses are in the inode.
    pub async fn direct<S: Source>(
        &self,
        source: &S,
        sb: &Superblock,
        cp: &Checkpoint,
        places: Option<&Places>,
        block: u64,
    ) -> Result<Direct<S::Block>, Error> {
        let beyond = block.saturating_sub(u64::from(self.count));
        let Some(path) = node_path(beyond) else {
            return Err(corrupt(format!("inode {}: block {block} of a file", self.ino), self.inode.byte()));
        };
        let first = u32::try_from(path.block % PER_NODE_64).unwrap_or(u32::MAX);
        let place = path.steps.iter().flatten().last().map_or(0, |step| step.place);
        if let Some(node) = places.and_then(|places| places.get(&place)) {
            let node = read_at(source, node.address, node.nid, self.ino, place).await?;
            return Ok(Direct::Node(node, first));
        }
        let mut above: Option<Node<S::Block>> = None;
        for step in path.steps.into_iter().flatten() {
            let nid = match &above {
                None => self.nids.get(index(step.entry)).copied().unwrap_or(0),
                Some(node) => u32_at(&node.block, index(step.entry.saturating_mul(4))),
            };
            if nid == 0 {
                // Nothing below: a hole to the end of what this node would cover, or to the log's next node.
                let covered = step.below.saturating_mul(PER_NODE_64).max(1);
                let inside = path.block.checked_rem(covered).unwrap_or(0);
                let next = places.and_then(|places| places.from(|here| here.cmp(&place)).next());
                let next = next.and_then(|(place, _)| first_block(*place)?.checked_sub(beyond));
                return Ok(Direct::Hole(covered.saturating_sub(inside).min(next.unwrap_or(u64::MAX))));
            }
            above = Some(read_node(source, sb, cp, Nid(nid), self.ino, step.place).await?);
        }
        let Some(node) = above else {
            return Err(corrupt(format!("inode {}: block {block} of a file", self.ino), self.inode.byte()));
        };
        Ok(Direct::Node(node, first))
    }

    /// Where one block of a directory or a link is; `None` for a hole.
    pub async fn block<S: Source>(
        &self,
        source: &S,
        sb: &Superblock,
        cp: &Checkpoint,
        block: u64,
    ) -> Result<Option<S::Block>, Error> {
        match self.map(source, sb, cp, block).await?.first {
            None => Ok(None),
            Some(address) => Ok(Some(read(source, address).await?)),
        }
    }
}

/// The run that begins at entry `first` of a table of addresses.
fn run(sb: &Superblock, table: &[u8], first: u32, at: u64) -> Result<Blocks, Error> {
    let mut addresses = table.chunks_exact(4).skip(index(first)).map(|word| Addr(u32_at(word, 0)));
    let Some(start) = addresses.next() else {
        return Err(corrupt(format!("entry {first} of {} bytes of addresses", table.len()), at));
    };
    let hole = |a: Addr| a == Addr::NULL || a == Addr::NEW;
    if hole(start) {
        let more = addresses.take_while(|a| hole(*a)).count();
        return Ok(Blocks { first: None, count: super::fields::number(more).saturating_add(1) });
    }
    let mut count = 1_u32;
    for next in addresses {
        if start.0.checked_add(count) != Some(next.0) || !sb.in_main(next) {
            break;
        }
        count = count.saturating_add(1);
    }
    if !sb.in_main(start) {
        return Err(corrupt(format!("a block of a file at block {}, outside the main area", start.0), at));
    }
    Ok(Blocks { first: Some(start), count: u64::from(count) })
}

/// The node identifiers of an inode's block.
pub(super) fn inode_nids(block: &[u8]) -> [u32; 5] {
    let mut nids = [0; 5];
    for (nid, word) in nids.iter_mut().zip(block.get(INODE_NIDS..BLOCK).unwrap_or(&[]).chunks_exact(4)) {
        *nid = u32_at(word, 0);
    }
    nids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(block: u64) -> Vec<(u32, u32)> {
        node_path(block).unwrap().steps.iter().flatten().map(|s| (s.entry, s.place)).collect()
    }

    #[test]
    fn the_tree_is_the_kernels() {
        let n = u64::from(PER_NODE);
        assert_eq!(places(0), [(0, 1)]);
        assert_eq!(places(n - 1), [(0, 1)]);
        assert_eq!(places(n), [(1, 2)]);
        assert_eq!(places(2 * n), [(2, 3), (0, 4)]);
        assert_eq!(places(2 * n + n * n - 1), [(2, 3), (1017, 1021)]);
        assert_eq!(places(2 * n + n * n), [(3, 1022), (0, 1023)]);
        let double = 2 * n + 2 * n * n;
        assert_eq!(places(double), [(4, 2041), (0, 2042), (0, 2043)]);
        assert_eq!(places(double + n * n + n), [(4, 2041), (1, 2042 + 1019), (1, 2042 + 1019 + 2)]);
        assert!(node_path(double + n * n * n - 1).is_some());
        assert!(node_path(double + n * n * n).is_none());
        assert_eq!(most_blocks(923), 923 + double + n * n * n);
    }

    /// Every direct node's first block leads back to its place, and the indirect nodes' places to none.
    #[test]
    fn places_and_first_blocks_are_inverse() {
        let n = u64::from(PER_NODE);
        for node in (0..3 * n).chain([2 + 2 * n + 700 * n + 5, 2 + 2 * n + n * n - 1]) {
            let (_, place) = *places(node * n).last().unwrap();
            assert_eq!(first_block(place), Some(node * n), "{place}");
        }
        let indirect = [0, 3, 1022, 2041, 2042, 2042 + 1019];
        for place in indirect.into_iter().chain([2042 + 1018 * 1019, XATTR_PLACE, u32::MAX]) {
            assert_eq!(first_block(place), None, "{place}");
        }
        assert_eq!(first_block(2042 + 1018 * 1019 - 1), Some((2 + 2 * n + n * n - 1) * n));
    }
}
