//! Block maps, the way before extents: twelve direct blocks, then one, two and three levels of indirect ones.
//!
//! A zero at any level is a hole as large as what it would have covered. Pointers have no checksum; a block
//! of them is believed only as a whole.

use super::Volume;
use super::bytes::{index, le32};
use super::inode::Body;
use super::map::{HOLE_TO_THE_END, Span};
use crate::{Error, Source};

/// Direct pointers in an inode, after which follow one per level.
const DIRECT: u64 = 12;

/// A table of pointers.
#[derive(Clone, Copy)]
struct Pointers<'a>(&'a [u8]);

impl Pointers<'_> {
    fn get(self, at: u64) -> Option<u64> {
        le32(self.0, index(at).checked_mul(4)?).map(u64::from)
    }

    /// Blocks from entry `at` on that lie one after another, or are all missing.
    fn span(self, at: u64) -> Span {
        let first = self.get(at).unwrap_or(0);
        let mut blocks = 1u64;
        while let Some(next) = self.get(at.wrapping_add(blocks)) {
            let expected = if first == 0 { 0 } else { first.wrapping_add(blocks) };
            if next != expected {
                break;
            }
            blocks = blocks.wrapping_add(1);
        }
        Span { blocks, start: (first != 0).then_some(first) }
    }
}

impl Volume {
    /// What is wrong with the direct pointers of an inode.
    pub(super) fn check_direct(&self, map: &[u8]) -> Result<(), String> {
        self.check_pointers(map.get(..48).unwrap_or(&[]))
    }

    /// All pointers of a table, as the kernel does (`ext4_check_blockref`): one that leads out of the volume,
    /// or to what is the file system's own, makes the others unworthy of belief.
    fn check_pointers(&self, table: &[u8]) -> Result<(), String> {
        let table = Pointers(table);
        let mut at = 0u64;
        while table.get(at).is_some() {
            let Span { blocks, start } = table.span(at);
            if let Some(start) = start
                && !self.holds(start, blocks)
            {
                // The first bad one of them.
                let bad = (0..blocks).map(|n| start.wrapping_add(n)).find(|block| !self.holds(*block, 1));
                let (bad, all) = (bad.unwrap_or(start), self.sb.blocks);
                return Err(match bad < all {
                    true => format!("a pointer to block {bad}, which belongs to the file system"),
                    false => format!("a pointer to block {bad}, the volume has {all} blocks"),
                });
            }
            at = at.wrapping_add(blocks);
        }
        Ok(())
    }

    pub(super) async fn mapped_span<S: Source>(
        &self,
        source: &S,
        ino: u32,
        body: &Body,
        block: u64,
    ) -> Result<Span, Error> {
        let direct = Pointers(body.map.get(..48).unwrap_or(&[]));
        let Some(mut inside) = block.checked_sub(DIRECT) else { return Ok(direct.span(block)) };

        // Level 1 covers as many blocks as a block has pointers, level 2 the square, level 3 the cube.
        let bits = self.sb.block_shift.wrapping_sub(2);
        let mut level = 1u32;
        let mut covered = loop {
            let covered = 1u64.wrapping_shl(bits.wrapping_mul(level));
            match inside.checked_sub(covered) {
                None => break covered,
                Some(_) if level == 3 => return Ok(HOLE_TO_THE_END),
                Some(rest) => inside = rest,
            }
            level = level.wrapping_add(1);
        };
        let slot = DIRECT.wrapping_add(u64::from(level)).wrapping_sub(1);
        let mut pointer = Pointers(&body.map).get(slot).unwrap_or(0);
        // `covered` is what `pointer` covers, `inside` the block's place in it.
        loop {
            if pointer == 0 {
                return Ok(Span { blocks: covered.wrapping_sub(inside).max(1), start: None });
            }

            let corrupt = |what: String, at: u64| Error::Corrupt {
                what: format!("inode {ino}: indirect block: {what}"),
                at,
            };
            if !self.holds(pointer, 1) {
                return Err(corrupt(format!("it is block {pointer} of the volume"), body.at));
            }
            let bytes = self.block(source, pointer, "indirect block").await?;
            self.check_pointers(&bytes).map_err(|what| corrupt(what, self.byte_of(pointer)))?;
            let table = Pointers(&bytes);
            covered = covered.wrapping_shr(bits);
            let at = inside.checked_div(covered).unwrap_or(0);
            inside = inside.checked_rem(covered).unwrap_or(0);
            if covered == 1 {
                return Ok(table.span(at));
            }
            pointer = table.get(at).unwrap_or(0);
            if pointer == 0 {
                let missing = table.span(at).blocks.wrapping_mul(covered);
                return Ok(Span { blocks: missing.wrapping_sub(inside).max(1), start: None });
            }
        }
    }
}
