//! The journal's superblock: where the log lies and begins, and how its blocks are written.

use super::super::bytes::{be16, be32};
use super::super::csum::{Crc, low_half};
use super::{corrupt, header, kind};
use crate::Error;

/// Bytes of it, and those of its checksum.
const LEN: usize = 1024;
const CHECKSUM: usize = 0xFC;

/// Incompatible features.
mod incompat {
    pub(super) const REVOKE: u32 = 0x1;
    pub(super) const BIT64: u32 = 0x2;
    pub(super) const ASYNC_COMMIT: u32 = 0x4;
    pub(super) const CSUM_V2: u32 = 0x8;
    pub(super) const CSUM_V3: u32 = 0x10;
    pub(super) const FAST_COMMIT: u32 = 0x20;
    pub(super) const UNDERSTOOD: u32 = REVOKE | BIT64 | ASYNC_COMMIT | CSUM_V2 | CSUM_V3 | FAST_COMMIT;
}

/// A log keeps at least so many blocks beside fast commits (`JBD2_MIN_JOURNAL_BLOCKS`).
const LOG_MIN: u32 = 1024;
/// Blocks for fast commits where the superblock says 0.
const FAST_BLOCKS: u32 = 256;

/// How a log is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sums {
    /// Not at all.
    #[default]
    None,
    /// Each transaction by one CRC32 in its commit block.
    V1,
    /// Each block by a CRC32c that begins so, of which tags keep the low half.
    V2(Crc),
    /// As V2, and tags keep all of it.
    V3(Crc),
}

impl Sums {
    /// What the checksums of blocks begin with, where each has one.
    pub(super) fn seed(self) -> Option<Crc> {
        match self {
            Sums::None | Sums::V1 => None,
            Sums::V2(seed) | Sums::V3(seed) => Some(seed),
        }
    }

    /// Whether a copy in the log is what its tag says. `stored`: the tag's field.
    pub(super) fn copy_holds(self, tid: u32, copy: &[u8], stored: u32) -> bool {
        let crc = |seed: Crc| seed.over(&tid.to_be_bytes()).over(copy).0;
        match self {
            Sums::None | Sums::V1 => true,
            Sums::V2(seed) => u32::from(low_half(crc(seed))) == stored,
            Sums::V3(seed) => crc(seed) == stored,
        }
    }

    /// Whether a block with its checksum at byte `at` is what it was.
    pub(super) fn block_holds(self, block: &[u8], at: usize) -> bool {
        let Some(seed) = self.seed() else { return true };
        let Some((before, rest)) = block.split_at_checked(at) else { return false };
        let Some((stored, after)) = rest.split_first_chunk::<4>() else { return false };
        seed.over(before).over(&[0; 4]).over(after).0 == u32::from_be_bytes(*stored)
    }

    /// Bytes at the end of a descriptor or revoke block that are its checksum.
    pub(super) fn tail(self) -> usize {
        if self.seed().is_some() { 4 } else { 0 }
    }
}

/// What the superblock says, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock {
    /// The log's first block.
    pub(super) first: u32,
    /// The block after its last, behind which it goes on at the first.
    pub(super) end: u32,
    /// The block of the oldest transaction that home locations may lack; 0: there is none.
    pub(super) start: u32,
    /// That transaction.
    pub(super) sequence: u32,
    pub(super) sums: Sums,
    /// Whether block numbers have 64 bits.
    pub(super) wide: bool,
    /// Whether a commit block may be durable before what it commits.
    pub(super) async_commit: bool,
    /// Blocks of fast commits: the first, and the one after the last.
    pub(super) fast: Option<(u32, u32)>,
}

impl Superblock {
    /// From the journal's block 0, which lies at byte `at`; the journal's file has `blocks` blocks.
    pub(super) fn parse(raw: &[u8], at: u64, block_size: u32, blocks: u64) -> Result<Superblock, Error> {
        let bad = |what: String| corrupt(format!("superblock: {what}"), at);
        let field = |offset| be32(raw, offset).ok_or_else(|| bad("it is cut short".into()));
        let Some((kind, _)) = header(raw) else { return Err(bad("no magic".into())) };
        if !matches!(kind, kind::SUPERBLOCK_V1 | kind::SUPERBLOCK_V2) {
            return Err(bad(format!("a block of kind {kind}")));
        }
        // The first form has no features.
        let feature = |offset| if kind == kind::SUPERBLOCK_V1 { Ok(0) } else { field(offset) };
        let (compat, features, ro_compat) = (feature(0x24)?, feature(0x28)?, feature(0x2C)?);
        let unknown = features & !incompat::UNDERSTOOD;
        if unknown != 0 || ro_compat != 0 {
            let what = format!("journal features {unknown:#x} (incompatible), {ro_compat:#x} (to write)");
            return Err(Error::Unsupported(what));
        }
        let sums = sums(raw, compat & 1 != 0, features).map_err(bad)?;
        let size = field(0x0C)?;
        if size != block_size {
            return Err(bad(format!("blocks of {size} bytes on a volume of blocks of {block_size}")));
        }
        let (len, first) = (field(0x10)?, field(0x14)?);
        if u64::from(len) > blocks {
            return Err(bad(format!("{len} blocks in a file of {blocks}")));
        }
        let has_fast = features & incompat::FAST_COMMIT != 0;
        let (end, fast) = if has_fast { divide(len, field(0x54)?) } else { (len, None) };
        if first == 0 || first >= end {
            return Err(bad(format!("the log's first block is {first} of {end}")));
        }
        let start = field(0x1C)?;
        if start != 0 && !(first..end).contains(&start) {
            return Err(bad(format!("the log begins in block {start}, and lies in {first} to {end}")));
        }
        Ok(Superblock {
            first,
            end,
            start,
            sequence: field(0x18)?,
            sums,
            wide: features & incompat::BIT64 != 0,
            async_commit: features & incompat::ASYNC_COMMIT != 0,
            fast,
        })
    }

    /// The block of the log that follows one of it.
    pub(super) fn after(&self, nr: u32) -> u32 {
        let next = nr.wrapping_add(1); // below `end`
        if next >= self.end { self.first } else { next }
    }

    /// Bytes of a tag, without a UUID behind it.
    pub(super) fn tag_len(&self) -> usize {
        match (self.sums, self.wide) {
            (Sums::V3(_), _) => 16,
            (Sums::V2(_), true) => 14,
            (Sums::V2(_), false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// The checksum that a tag keeps, 0 where it keeps none.
    pub(super) fn tag_sum(&self, tag: &[u8]) -> Option<u32> {
        match self.sums {
            Sums::None | Sums::V1 => Some(0),
            Sums::V2(_) => be16(tag, 4).map(u32::from),
            Sums::V3(_) => be32(tag, 12),
        }
    }
}

/// Where the log ends and fast commits lie, in a journal of `len` blocks of which `count` are theirs.
fn divide(len: u32, count: u32) -> (u32, Option<(u32, u32)>) {
    let count = if count == 0 { FAST_BLOCKS } else { count };
    match len.checked_sub(count).filter(|end| *end >= LOG_MIN) {
        // The kernel leaves one block between them.
        Some(end) => (end, Some((end.wrapping_add(1), len))),
        None => (len, None),
    }
}

/// The kind of checksums; the superblock's own is then right.
fn sums(raw: &[u8], v1: bool, features: u32) -> Result<Sums, String> {
    let (v2, v3) = (features & incompat::CSUM_V2 != 0, features & incompat::CSUM_V3 != 0);
    match (v1, v2, v3) {
        (false, false, false) => return Ok(Sums::None),
        (true, false, false) => return Ok(Sums::V1),
        (false, true, false) | (false, false, true) => {}
        _ => return Err("several kinds of checksums at once".into()),
    }
    let cut = || "it is cut short".to_string();
    let kind = *raw.get(0x50).ok_or_else(cut)?;
    if kind != 4 {
        return Err(format!("checksums of type {kind}"));
    }
    let own = raw.get(..LEN).ok_or_else(cut)?;
    let uuid = own.get(0x30..0x40).ok_or_else(cut)?;
    if !Sums::V3(Crc::START).block_holds(own, CHECKSUM) {
        return Err("its checksum does not match".into());
    }
    let seed = Crc::START.over(uuid);
    Ok(if v2 { Sums::V2(seed) } else { Sums::V3(seed) })
}
