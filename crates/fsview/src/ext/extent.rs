//! Extent trees. The root is in the inode; a node holds indexes (depth above 0) or extents, sorted by file block.
//!
//! A walk reads one node per level, at most five, each one level lower than the last: it cannot loop.

use super::Volume;
use super::bytes::{halves, le16, le32};
use super::csum::Crc;
use super::inode::Body;
use super::map::{HOLE_TO_THE_END, Span};
use crate::{Error, Inode, Source};

const MAGIC: u16 = 0xF30A;
const DEPTH_MAX: u16 = 5;
/// Header and entries are 12 bytes each.
const ENTRY: usize = 12;
/// File blocks that a tree can map: their numbers have 32 bits.
const FILE_BLOCKS: u64 = 1 << 32;

/// One node, its header checked.
struct Node<'a> {
    entries: &'a [[u8; ENTRY]],
    depth: u16,
}

/// What a node says about a file's block.
enum Step {
    /// Look in this block of the volume; what it maps ends before this file block.
    Down { block: u64, end: u64 },
    /// Found.
    Here(Span),
}

impl<'a> Node<'a> {
    /// `depth` is what the parent expects; the root has no parent.
    fn parse(bytes: &'a [u8], depth: Option<u16>) -> Result<Node<'a>, String> {
        let cut = || "node is cut short".to_string();
        let field = |at| le16(bytes, at).ok_or_else(cut);
        let (magic, count, max, found) = (field(0)?, field(2)?, field(4)?, field(6)?);
        if magic != MAGIC {
            return Err(format!("node with magic {magic:04x}"));
        }
        if found > DEPTH_MAX || depth.is_some_and(|depth| depth != found) {
            return Err(format!("node of depth {found}"));
        }
        let (all, _) = bytes.get(ENTRY..).ok_or_else(cut)?.as_chunks::<ENTRY>();
        if count > max || usize::from(max) > all.len() {
            return Err(format!("node with {count} entries of {max}, room for {}", all.len()));
        }
        if count == 0 && found > 0 {
            return Err("index node without entries".into());
        }
        Ok(Node { entries: all.get(..usize::from(count)).ok_or_else(cut)?, depth: found })
    }

    /// Follows `block`; nothing of this node reaches `end`.
    fn step(&self, block: u64, end: u64) -> Result<Step, String> {
        let after = self.entries.partition_point(|entry| first(entry) <= block);
        let end = match self.entries.get(after) {
            Some(next) => end.min(first(next)),
            None => end,
        };
        let hole = Step::Here(Span { blocks: end.saturating_sub(block).max(1), start: None });
        let Some(entry) = after.checked_sub(1).and_then(|at| self.entries.get(at)) else { return Ok(hole) };
        let field16 = |at| le16(entry, at).unwrap_or(0);
        let low = |at| le32(entry, at).unwrap_or(0);
        if self.depth > 0 {
            return Ok(Step::Down { block: halves(low(4), u32::from(field16(8))), end });
        }
        let raw = field16(4);
        let (len, written) = match raw.checked_sub(0x8000) {
            Some(len) if len > 0 => (len, false),
            _ => (raw, true),
        };
        if len == 0 {
            return Err(format!("extent of no blocks at file block {}", first(entry)));
        }
        let extent_end = first(entry).wrapping_add(u64::from(len)); // of 33 bits
        if extent_end > end {
            return Err(format!(
                "extent of {len} blocks at file block {} overlaps what follows",
                first(entry)
            ));
        }
        let inside = block.wrapping_sub(first(entry));
        if block >= extent_end {
            return Ok(hole);
        }
        let start = halves(low(8), u32::from(field16(6))).wrapping_add(inside); // of 49 bits
        Ok(Step::Here(Span { blocks: extent_end.wrapping_sub(block), start: written.then_some(start) }))
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
    pub(super) async fn extent_span<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        body: &Body,
        block: u64,
    ) -> Result<Span, Error> {
        if block >= FILE_BLOCKS {
            return Ok(HOLE_TO_THE_END);
        }
        let ino = inode.ino.0;
        let corrupt =
            |what: String, at: u64| Error::Corrupt { what: format!("inode {ino}: extent {what}"), at };
        let root = Node::parse(&body.map, None).map_err(|what| corrupt(what, body.at))?;
        let mut depth = root.depth;
        let mut step = root.step(block, FILE_BLOCKS).map_err(|what| corrupt(what, body.at))?;
        loop {
            match step {
                Step::Here(span)
                    if span.start.is_none() && span.blocks == FILE_BLOCKS.wrapping_sub(block) =>
                {
                    return Ok(HOLE_TO_THE_END);
                }
                Step::Here(span) => return Ok(span),
                Step::Down { block: child, end } => {
                    depth = depth.saturating_sub(1);
                    let bytes = self.block(source, child, "extent node").await?;
                    let at = self.byte_of(child);
                    if body.seed.is_some_and(|seed| !checksum_holds(&bytes, seed)) {
                        return Err(corrupt("node's checksum does not match".into(), at));
                    }
                    let node = Node::parse(&bytes, Some(depth)).map_err(|what| corrupt(what, at))?;
                    // A node that begins after the block it was entered for contradicts its parent.
                    step = node.step(block, end).map_err(|what| corrupt(what, at))?;
                }
            }
        }
    }
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

    fn span(bytes: &[u8], block: u64) -> Result<Span, String> {
        match Node::parse(bytes, None)?.step(block, FILE_BLOCKS)? {
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
        assert!(span(&node(0, &[extent(0, 5, 10), extent(4, 1, 50)]), 1).unwrap_err().contains("overlaps"));
        assert!(span(&node(0, &[extent(0, 0, 10)]), 0).unwrap_err().contains("no blocks"));
        assert!(span(&node(6, &[extent(0, 1, 10)]), 0).unwrap_err().contains("depth 6"));
        assert!(span(&node(1, &[]), 0).unwrap_err().contains("without entries"));
        let mut short = node(0, &[extent(0, 1, 10)]);
        short.truncate(20);
        assert!(span(&short, 0).unwrap_err().contains("room for 0"));
    }
}
