//! The superblock (S: include/linux/f2fs_fs.h): two copies, 1024 bytes into the first two blocks. The first
//! that is sound counts. It says where the areas lie; the relations between them are those the kernel insists
//! on.

use super::fields::{Addr, BLOCK, MAGIC, checksum, corrupt, read, u8_at, u16_at, u32_at, u64_at};
use crate::{Error, Source};

/// Where in its block the superblock begins.
const OFFSET: usize = 1024;
/// Bytes before its checksum.
const SUMMED: usize = 3068;
/// Blocks in a segment; the kernel accepts no other.
pub(super) const SEGMENT: u32 = 512;
/// NAT entries in a block.
pub(super) const NAT_PER_BLOCK: u32 = 455;

pub(super) const EXTRA_ATTR: u32 = 0x8;
pub(super) const INODE_CHECKSUM: u32 = 0x20;
pub(super) const FLEXIBLE_INLINE_XATTR: u32 = 0x40;
pub(super) const INODE_CRTIME: u32 = 0x100;
pub(super) const SB_CHECKSUM: u32 = 0x800;
pub(super) const COMPRESSION: u32 = 0x2000;

/// The names that mkfs.f2fs gives, by bit.
const NAMES: [&str; 15] = [
    "encrypt",
    "blkzoned",
    "atomic_write",
    "extra_attr",
    "project_quota",
    "inode_checksum",
    "flexible_inline_xattr",
    "quota",
    "inode_crtime",
    "lost_found",
    "verity",
    "sb_checksum",
    "casefold",
    "compression",
    "ro",
];

/// What the superblock says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub features: u32,
    pub uuid: [u8; 16],
    pub label: String,
    pub blocks: u64,
    /// First block of the first checkpoint pack; the other lies a segment on.
    pub checkpoint: Addr,
    /// Blocks of a pack between its head and the rest.
    pub cp_payload: u32,
    pub nat: Addr,
    /// Blocks in one copy of the node address table.
    pub nat_blocks: u32,
    /// Bytes in the version bitmap of the segment information table.
    pub sit_bitmap_bytes: u32,
    /// The area of nodes and data: from here ...
    pub main: Addr,
    /// ... to before here.
    pub end: Addr,
    pub root: u32,
    /// Whether the first copy was unsound and the second is used.
    pub second_copy: bool,
}

/// Whether a block has the magic number in its place.
pub(super) fn has_magic(block: &[u8]) -> bool {
    u32_at(block, OFFSET) == MAGIC
}

/// The feature names of the bits.
pub(super) fn feature_names(bits: u32) -> Vec<String> {
    NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits.checked_shr(u32::try_from(*bit).unwrap_or(u32::MAX)).unwrap_or(0) & 1 == 1)
        .map(|(_, name)| (*name).to_owned())
        .collect()
}

/// Whether the superblock is whole, and of a volume as this view reads them.
fn check_format(sb: &[u8], features: u32, at: u64) -> Result<(), Error> {
    if features & SB_CHECKSUM != 0 {
        let (offset, found) = (u32_at(sb, 32), u32_at(sb, SUMMED));
        let computed = checksum(MAGIC, sb.get(..SUMMED).unwrap_or(&[]));
        if offset != 3068 || computed != found {
            let what = format!("superblock checksum {found:#x} at {offset}, computed {computed:#x}");
            return Err(corrupt(what, at));
        }
    }
    let (log_block, log_segment) = (u32_at(sb, 16), u32_at(sb, 20));
    if (13..=16).contains(&log_block) {
        return Err(Error::Unsupported(format!("block size {}", 1_u32.wrapping_shl(log_block))));
    }
    if log_block != 12 || log_segment != 9 {
        let what = format!("superblock: log_blocksize {log_block}, log_blocks_per_seg {log_segment}");
        return Err(corrupt(what, at));
    }
    let unknown = features.checked_shr(15).unwrap_or(0).wrapping_shl(15);
    if unknown != 0 {
        let name = match unknown.trailing_zeros() {
            15 => "device_alias".to_owned(),
            16 => "packed_ssa".to_owned(),
            bit => format!("F2FS feature bit {bit} ({unknown:#x})"),
        };
        return Err(Error::Unsupported(name));
    }
    match u8_at(sb, 2201) {
        0 => Ok(()),
        _ => Err(Error::Unsupported("multiple devices".into())),
    }
}

/// Where the areas lie, which follow one another without a gap.
struct Areas {
    blocks: u64,
    checkpoint: Addr,
    nat: Addr,
    /// Blocks in one of the table's two copies, as of the next.
    nat_blocks: u32,
    sit_blocks: u32,
    main: Addr,
    end: Addr,
}

impl Areas {
    fn parse(sb: &[u8], len: u64) -> Result<Areas, String> {
        let blocks = u64_at(sb, 36);
        let count = u32_at(sb, 48);
        let [ckpt_segs, sit_segs, nat_segs, ssa_segs, main_segs] =
            [52, 56, 60, 64, 68].map(|o| u32_at(sb, o));
        let [segment0, cp, sit, nat, ssa, main] = [72, 76, 80, 84, 88, 92].map(|o| u32_at(sb, o));
        let mut next = u64::from(segment0);
        for (name, start, segments) in [
            ("checkpoint", cp, ckpt_segs),
            ("SIT", sit, sit_segs),
            ("NAT", nat, nat_segs),
            ("SSA", ssa, ssa_segs),
            ("main", main, main_segs),
        ] {
            if next != u64::from(start) {
                return Err(format!("superblock: the {name} area begins at block {start}, not {next}"));
            }
            next = next.saturating_add(u64::from(segments).saturating_mul(u64::from(SEGMENT)));
        }
        let segments_end =
            u64::from(segment0).saturating_add(u64::from(count).saturating_mul(u64::from(SEGMENT)));
        if next > segments_end || next > blocks {
            return Err(format!("superblock: the main area ends at block {next} of {blocks}"));
        }
        let end =
            u32::try_from(next).map_err(|_| format!("superblock: the main area ends at block {next}"))?;
        if next.saturating_mul(4096) > len {
            return Err(format!("superblock: {blocks} blocks, but the volume has {len} bytes"));
        }
        let is_pairs = |segments: u32| segments >= 2 && segments.is_multiple_of(2);
        if ckpt_segs != 2 || !is_pairs(sit_segs) || !is_pairs(nat_segs) || main_segs == 0 {
            return Err(format!(
                "superblock: segments: checkpoint {ckpt_segs}, SIT {sit_segs}, NAT {nat_segs}, main {main_segs}"
            ));
        }
        let half_blocks = |segments: u32| (segments / 2).saturating_mul(SEGMENT);
        Ok(Areas {
            blocks,
            checkpoint: Addr(cp),
            nat: Addr(nat),
            nat_blocks: half_blocks(nat_segs),
            sit_blocks: half_blocks(sit_segs),
            main: Addr(main),
            end: Addr(end),
        })
    }
}

impl Superblock {
    /// Reads the first sound copy.
    pub async fn read<S: Source>(source: &S) -> Result<Superblock, Error> {
        let first = match read(source, Addr(0)).await {
            Ok(block) => Superblock::parse(&block, source.len(), 0),
            Err(error) => Err(error),
        };
        let why = match first {
            Ok(superblock) => return Ok(superblock),
            // What both copies will say alike: the other cannot help.
            Err(error @ Error::Unsupported(_)) => return Err(error),
            Err(error) => error,
        };
        let block = read(source, Addr(1)).await?;
        match Superblock::parse(&block, source.len(), 4096) {
            Ok(superblock) => Ok(Superblock { second_copy: true, ..superblock }),
            Err(error @ Error::Unsupported(_)) => Err(error),
            Err(_) => Err(why),
        }
    }

    /// Parses the copy in `block`, which lies at byte `block_at` of a volume of `len` bytes.
    pub fn parse(block: &[u8], len: u64, block_at: u64) -> Result<Superblock, Error> {
        let at = block_at.saturating_add(1024);
        let bad = |what: String| Err(corrupt(what, at));
        let sb = match block.get(OFFSET..BLOCK) {
            Some(sb) if u32_at(sb, 0) == MAGIC => sb,
            _ => return bad("no F2FS superblock".into()),
        };
        let features = u32_at(sb, 2180);
        check_format(sb, features, at)?;
        let areas = Areas::parse(sb, len).map_err(|what| corrupt(what, at))?;
        let (root, node_ino, meta_ino) = (u32_at(sb, 96), u32_at(sb, 100), u32_at(sb, 104));
        if (root, node_ino, meta_ino) != (3, 1, 2) {
            return bad(format!("superblock: root, node and meta inode {root}, {node_ino}, {meta_ino}"));
        }
        let cp_payload = u32_at(sb, 1664);
        if cp_payload >= SEGMENT.saturating_sub(8) {
            return bad(format!("superblock: cp_payload {cp_payload}"));
        }
        let label: Vec<u16> = (0..512_usize)
            .map(|i| u16_at(sb, i.saturating_mul(2).saturating_add(124)))
            .take_while(|c| *c != 0)
            .collect();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(sb.get(108..124).unwrap_or(&[0; 16]));
        Ok(Superblock {
            features,
            uuid,
            label: String::from_utf16_lossy(&label),
            blocks: areas.blocks,
            checkpoint: areas.checkpoint,
            cp_payload,
            nat: areas.nat,
            nat_blocks: areas.nat_blocks,
            sit_bitmap_bytes: areas.sit_blocks / 8,
            main: areas.main,
            end: areas.end,
            root,
            second_copy: false,
        })
    }

    /// Whether a feature is on.
    pub fn has(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// One past the largest node identifier.
    pub fn max_nid(&self) -> u32 {
        self.nat_blocks.saturating_mul(NAT_PER_BLOCK)
    }

    /// Whether a block may hold a node or data.
    pub fn in_main(&self, address: Addr) -> bool {
        self.main <= address && address < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_their_names() {
        assert_eq!(feature_names(0x21), ["encrypt", "inode_checksum"]);
        assert_eq!(feature_names(1 | SB_CHECKSUM | COMPRESSION), ["encrypt", "sb_checksum", "compression"]);
    }

    #[test]
    fn a_short_or_foreign_block_is_no_superblock() {
        assert!(Superblock::parse(&[], 1 << 30, 0).is_err());
        assert!(Superblock::parse(&[0xFF; BLOCK], 1 << 30, 0).is_err());
    }
}
