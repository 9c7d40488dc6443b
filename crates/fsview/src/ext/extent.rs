//! Extent trees. The root is in the inode; a node holds indexes (depth above 0) or extents, sorted by file
//! block.
//!
//! A node is believed only as a whole: whoever asks for one of its blocks has all of its entries checked, as
//! the kernel does (`__ext4_ext_check`): that they are in order and apart, lie within the volume, and begin
//! where the parent says; and that they end where the parent's next begins. A walk reads one node per level,
//! at most five, each one level lower than the last: it cannot loop.

use super::Volume;
use super::bytes::{halves, le16, le32};
use super::csum::Crc;
use super::inode::Body;
use super::map::{HOLE_TO_THE_END, Span};
use crate::{Error, Source};

const MAGIC: u16 = 0xF30A;
const DEPTH_MAX: u16 = 5;
/// Header and entries are 12 bytes each.
const ENTRY: usize = 12;
/// File blocks that a tree can map: numbers have 32 bits, and the last one is never used.
pub(super) const FILE_BLOCKS: u64 = 0xFFFF_FFFF;

/// What a node's parent says of it.
#[derive(Clone, Copy, Debug)]
struct Expected {
    depth: u16,
    /// The file block at which its first entry begins.
    first: u64,
    /// The file block at which what it maps has ended.
    end: u64,
}

/// A node that another leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// The file block at which it begins.
    pub(super) first: u64,
    block: u64,
    is: Expected,
}

/// An entry of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Child(Child),
    Extent(Extent),
}

/// One node, checked.
struct Node<'a> {
    entries: &'a [[u8; ENTRY]],
    depth: u16,
}

/// What a node says about a file's block.
enum Step {
    /// Look in this block of the volume. What it maps begins with this file block and ends before that one.
    Down {
        block: u64,
        first: u64,
        end: u64,
    },
    Here(Span),
}

/// An extent, as a leaf has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The first block of the file.
    pub(super) first: u64,
    pub(super) len: u64,
    /// The volume's block that holds it.
    pub(super) start: u64,
    /// Whether its blocks are read; they are zeros otherwise.
    pub(super) written: bool,
}

impl Extent {
    fn of(entry: &[u8; ENTRY]) -> Extent {
        let raw = le16(entry, 4).unwrap_or(0);
        let (len, written) = match raw.checked_sub(0x8000) {
            Some(len) if len > 0 => (len, false),
            _ => (raw, true),
        };
        let start = halves(le32(entry, 8).unwrap_or(0), u32::from(le16(entry, 6).unwrap_or(0)));
        Extent { first: first(entry), len: u64::from(len), start, written }
    }

    /// The file block after it.
    pub(super) fn end(self) -> u64 {
        self.first.wrapping_add(self.len) // of 33 bits
    }
}

/// The volume's block to which an index leads.
fn child(entry: &[u8; ENTRY]) -> u64 {
    halves(le32(entry, 4).unwrap_or(0), u32::from(le16(entry, 8).unwrap_or(0)))
}

impl<'a> Node<'a> {
    /// The root has no parent. `within` says whether so many blocks lie at a place of the volume.
    fn parse(
        bytes: &'a [u8],
        parent: Option<Expected>,
        within: impl Fn(u64, u64) -> bool,
    ) -> Result<Node<'a>, String> {
        let cut = || "node is cut short".to_string();
        let field = |at| le16(bytes, at).ok_or_else(cut);
        let (magic, count, max, depth) = (field(0)?, field(2)?, field(4)?, field(6)?);
        if magic != MAGIC {
            return Err(format!("node with magic {magic:04x}"));
        }
        if depth > DEPTH_MAX || parent.is_some_and(|parent| parent.depth != depth) {
            return Err(format!("node of depth {depth}"));
        }
        let (all, _) = bytes.get(ENTRY..).ok_or_else(cut)?.as_chunks::<ENTRY>();
        if max == 0 || count > max || usize::from(max) > all.len() {
            return Err(format!("node with {count} entries of {max}, room for {}", all.len()));
        }
        let entries = all.get(..usize::from(count)).ok_or_else(cut)?;
        match (entries.first(), parent) {
            (None, Some(_)) => return Err("node without entries".into()),
            (None, None) if depth > 0 => return Err("index node without entries".into()),
            (Some(entry), Some(parent)) if first(entry) != parent.first => {
                let found = first(entry);
                return Err(format!("node begins at file block {found}, by its parent at {}", parent.first));
            }
            _ => {}
        }
        let node = Node { entries, depth };
        node.check(parent.map_or(FILE_BLOCKS, |parent| parent.end), within)?;
        Ok(node)
    }

    /// Its entries: in order, apart, before `end`, and within the volume.
    fn check(&self, end: u64, within: impl Fn(u64, u64) -> bool) -> Result<(), String> {
        let mut free = 0;
        for entry in self.entries {
            let at = first(entry);
            if at < free {
                return Err(format!("at file block {at} is out of order or overlaps the one before"));
            }
            let (start, len) = match self.depth {
                0 => {
                    let extent = Extent::of(entry);
                    if extent.len == 0 {
                        return Err(format!("of no blocks at file block {at}"));
                    }
                    if extent.end() > FILE_BLOCKS {
                        return Err(format!("of {} blocks at file block {at} is past any file", extent.len));
                    }
                    free = extent.end();
                    (extent.start, extent.len)
                }
                _ => {
                    free = at.wrapping_add(1);
                    (child(entry), 1)
                }
            };
            if !within(start, len) {
                return Err(format!("at file block {at}: {len} blocks at block {start} of the volume"));
            }
        }
        // The kernel does not look, and takes what the next node maps for a hole.
        match free > end {
            true => Err(format!("reaches to file block {free} past its node, which ends at {end}")),
            false => Ok(()),
        }
    }

    /// All of its entries; nothing of this node reaches `end`.
    fn all(&self, end: u64) -> Vec<Entry> {
        let entries = self.entries.iter().enumerate().map(|(nr, entry)| {
            let depth = match self.depth.checked_sub(1) {
                None => return Entry::Extent(Extent::of(entry)),
                Some(depth) => depth,
            };
            let next = self.entries.get(nr.wrapping_add(1)).map_or(end, |next| end.min(first(next)));
            let is = Expected { depth, first: first(entry), end: next };
            Entry::Child(Child { first: is.first, block: child(entry), is })
        });
        entries.collect()
    }

    /// Follows `block`; nothing of this node reaches `end`.
    fn step(&self, block: u64, end: u64) -> Step {
        let after = self.entries.partition_point(|entry| first(entry) <= block);
        let next = self.entries.get(after).map_or(end, |next| end.min(first(next)));
        let hole = Step::Here(Span { blocks: next.saturating_sub(block).max(1), start: None });
        let before = after.checked_sub(1);
        if self.depth > 0 {
            // As the kernel: of a block before all of them, the first is to tell.
            let at = before.unwrap_or(0);
            let end = self.entries.get(at.wrapping_add(1)).map_or(end, |next| end.min(first(next)));
            let entry = self.entries.get(at);
            let down = entry.map(|entry| Step::Down { block: child(entry), first: first(entry), end });
            return down.unwrap_or(hole);
        }
        let Some(entry) = before.and_then(|at| self.entries.get(at)) else { return hole };
        let extent = Extent::of(entry);
        if block >= extent.end() {
            return hole;
        }
        let start = extent.start.wrapping_add(block.wrapping_sub(extent.first)); // of 49 bits
        let blocks = extent.end().wrapping_sub(block);
        Step::Here(Span { blocks, start: extent.written.then_some(start) })
    }
}

/// The file block at which an entry begins.
fn first(entry: &[u8; ENTRY]) -> u64 {
    u64::from(le32(entry, 0).unwrap_or(0))
}

/// Whether a node's block ends in the right checksum: it follows the last entry that there is room for.
fn checksum_holds(bytes: &[u8], seed: Crc) -> bool {
    let max = usize::from(le16(bytes, 4).unwrap_or(u16::MAX));
    let at = max.wrapping_mul(ENTRY).wrapping_add(ENTRY);
    match (bytes.get(..at), le32(bytes, at)) {
        (Some(covered), Some(stored)) => seed.over(covered).0 == stored,
        _ => false,
    }
}

impl Volume {
    /// What is wrong with the root of an extent tree.
    pub(super) fn check_extent_root(&self, map: &[u8]) -> Result<(), String> {
        self.extent_root(map).map(drop)
    }

    fn extent_root<'a>(&self, map: &'a [u8]) -> Result<Node<'a>, String> {
        Node::parse(map, None, |start, len| self.holds(start, len)).map_err(|what| format!("extent {what}"))
    }

    pub(super) async fn extent_span<S: Source>(
        &self,
        source: &S,
        ino: u32,
        body: &Body,
        block: u64,
    ) -> Result<Span, Error> {
        if block >= FILE_BLOCKS {
            return Ok(HOLE_TO_THE_END);
        }
        let root = self.extent_root(&body.map).map_err(|what| corrupt(ino, what, body.at))?;
        let mut depth = root.depth;
        let mut step = root.step(block, FILE_BLOCKS);
        loop {
            match step {
                Step::Here(span)
                    if span.start.is_none() && span.blocks == FILE_BLOCKS.wrapping_sub(block) =>
                {
                    return Ok(HOLE_TO_THE_END);
                }
                Step::Here(span) => return Ok(span),
                Step::Down { block: child, first, end } => {
                    depth = depth.saturating_sub(1);
                    let child = Child { first, block: child, is: Expected { depth, first, end } };
                    let bytes = self.extent_node(source, ino, body, child).await?;
                    step = self.parse_extent_node(&bytes, ino, child)?.step(block, end);
                }
            }
        }
    }

    /// The entries of a tree's root, or of a node below it.
    pub(super) async fn extent_entries<S: Source>(
        &self,
        source: &S,
        ino: u32,
        body: &Body,
        child: Option<Child>,
    ) -> Result<Vec<Entry>, Error> {
        let Some(child) = child else {
            let root = self.extent_root(&body.map).map_err(|what| corrupt(ino, what, body.at))?;
            return Ok(root.all(FILE_BLOCKS));
        };
        let bytes = self.extent_node(source, ino, body, child).await?;
        Ok(self.parse_extent_node(&bytes, ino, child)?.all(child.is.end))
    }

    /// A node's block, its checksum verified.
    async fn extent_node<S: Source>(
        &self,
        source: &S,
        ino: u32,
        body: &Body,
        child: Child,
    ) -> Result<S::Block, Error> {
        let bytes = self.block(source, child.block, "extent node").await?;
        if body.seed.is_some_and(|seed| !checksum_holds(&bytes, seed)) {
            return Err(corrupt(
                ino,
                "extent node's checksum does not match".into(),
                self.byte_of(child.block),
            ));
        }
        Ok(bytes)
    }

    fn parse_extent_node<'a>(&self, bytes: &'a [u8], ino: u32, child: Child) -> Result<Node<'a>, Error> {
        Node::parse(bytes, Some(child.is), |start, len| self.holds(start, len))
            .map_err(|what| corrupt(ino, format!("extent {what}"), self.byte_of(child.block)))
    }
}

fn corrupt(ino: u32, what: String, at: u64) -> Error {
    Error::Corrupt { what: format!("inode {ino}: {what}"), at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(depth: u16, entries: &[[u8; ENTRY]]) -> Vec<u8> {
        let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
        let mut bytes = [&MAGIC.to_le_bytes()[..], &count, &count, &depth.to_le_bytes(), &[0; 4]].concat();
        bytes.extend(entries.concat());
        bytes
    }

    fn extent(block: u32, len: u16, start: u32) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&block.to_le_bytes());
        entry[4..6].copy_from_slice(&len.to_le_bytes());
        entry[8..].copy_from_slice(&start.to_le_bytes());
        entry
    }

    fn index(block: u32, child: u32) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&block.to_le_bytes());
        entry[4..8].copy_from_slice(&child.to_le_bytes());
        entry
    }

    /// With room, and nothing in it.
    fn empty(depth: u16) -> Vec<u8> {
        let mut bytes = node(depth, &[]);
        bytes.splice(4..5, [4]);
        bytes.extend([0; 48]);
        bytes
    }

    /// On a volume of 100,000 blocks.
    fn parse(bytes: &[u8], parent: Option<Expected>) -> Result<Node<'_>, String> {
        Node::parse(bytes, parent, |start, len| start > 0 && start.saturating_add(len) <= 100_000)
    }

    fn span(bytes: &[u8], block: u64) -> Result<Span, String> {
        match parse(bytes, None)?.step(block, FILE_BLOCKS) {
            Step::Here(span) => Ok(span),
            Step::Down { block, .. } => Err(format!("down to {block}")),
        }
    }

    #[test]
    fn written_unwritten_and_holes() {
        let bytes = node(0, &[extent(2, 32768, 100), extent(32770, 32769, 900), extent(40000, 1, 7)]);
        assert_eq!(span(&bytes, 0), Ok(Span { blocks: 2, start: None }));
        assert_eq!(span(&bytes, 3), Ok(Span { blocks: 32767, start: Some(101) }));
        assert_eq!(span(&bytes, 32770), Ok(Span { blocks: 1, start: None }));
        assert_eq!(span(&bytes, 32771), Ok(Span { blocks: 40000 - 32771, start: None }));
        assert_eq!(span(&bytes, 40000), Ok(Span { blocks: 1, start: Some(7) }));
    }

    #[test]
    fn contradictions() {
        let said = |bytes: &[u8], what: &str| {
            let found = span(bytes, 1).unwrap_err();
            assert!(found.contains(what), "{found}");
        };
        said(&node(0, &[extent(0, 5, 10), extent(4, 1, 50)]), "overlaps");
        said(&node(0, &[extent(7, 5, 10), extent(0, 2, 50)]), "out of order");
        said(&node(0, &[extent(0, 2, 10), extent(0, 2, 50)]), "overlaps");
        said(&node(1, &[index(9, 10), index(0, 50)]), "out of order");
        said(&node(1, &[index(0, 10), index(0, 50)]), "overlaps");
        said(&node(1, &[index(0, 10), index(9, 100_000)]), "block 100000");
        said(&node(0, &[extent(0, 0, 10)]), "no blocks");
        // Not the one that is asked for: the node is not believed at all.
        said(&node(0, &[extent(0, 2, 10), extent(9, 2, 99_999)]), "file block 9: 2 blocks at block 99999");
        said(&node(0, &[extent(0, 2, 10), extent(9, 2, 0)]), "at block 0");
        said(&node(0, &[extent(0, 2, 10), extent(u32::MAX - 1, 2, 20)]), "past any file");
        said(&node(6, &[extent(0, 1, 10)]), "depth 6");
        said(&node(0, &[]), "room for 0");
        said(&empty(1), "without entries");
        assert_eq!(span(&empty(0), 1), Ok(Span { blocks: FILE_BLOCKS - 1, start: None }));
        let mut short = node(0, &[extent(0, 1, 10)]);
        short.truncate(20);
        said(&short, "room for 0");
    }

    #[test]
    fn a_node_contradicts_its_parent() {
        let leaf = node(0, &[extent(8, 2, 10), extent(12, 4, 20)]);
        let ends = |depth, first, end| parse(&leaf, Some(Expected { depth, first, end }));
        let at = |depth, first| ends(depth, first, FILE_BLOCKS);
        assert!(at(0, 8).is_ok());
        for (depth, first, what) in
            [(1, 8, "depth 0"), (0, 0, "by its parent at 0"), (0, 9, "by its parent at 9")]
        {
            let found = at(depth, first).err().unwrap();
            assert!(found.contains(what), "{found}");
        }
        // The last extent reaches into what the parent's next index names.
        assert!(ends(0, 8, 16).is_ok());
        assert!(ends(0, 8, 15).err().unwrap().contains("past its node"));
        assert!(parse(&empty(0), Some(Expected { depth: 0, first: 0, end: 1 })).is_err());
    }
}
