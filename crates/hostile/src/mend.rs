//! Checksums made right again, so that damage is not merely refused by them.

use crate::patched::Patched;
use crate::sites::{Site, SiteKind};

/// Seed of F2FS's checksums: its magic number.
const F2FS: u32 = 0xF2F5_2010;
const BLOCK: usize = 4096;

/// CRC-32 as F2FS takes it: no inversion at either end.
fn crc32(start: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!start);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The superblock's checksum, where it has one.
pub fn ext_superblock(source: &mut Patched<'_>) {
    let Some(block) = source.get(1024, 1024) else { return };
    // metadata_csum; CRC-32C without the last inversion.
    if block[0x65] & 4 != 0 {
        let crc = !crc32c::crc32c(&block[..1020]);
        source.put(1024 + 1020, &crc.to_le_bytes());
    }
}

/// Both superblocks' checksums, where the feature is on.
pub fn f2fs_superblocks(source: &mut Patched<'_>) {
    for at in [1024, BLOCK as u64 + 1024] {
        if source.word(at + 2180) & 0x800 == 0 {
            continue;
        }
        // Where the checksum lies is within what it covers.
        source.put(at + 32, &3068u32.to_le_bytes());
        if let Some(block) = source.get(at, 3068) {
            source.put(at + 3068, &crc32(F2FS, &block).to_le_bytes());
        }
    }
}

/// Both packs' first and last blocks.
pub fn f2fs_checkpoints(source: &mut Patched<'_>) {
    let first = u64::from(source.word(1024 + 76)) * BLOCK as u64;
    for pack in [first, first + 512 * BLOCK as u64] {
        let blocks = u64::from(source.word(pack + 136));
        for at in [pack, pack + blocks.saturating_sub(1) * BLOCK as u64] {
            let Some(block) = source.get(at, BLOCK) else { continue };
            let offset = u32::from_le_bytes([block[164], block[165], block[166], block[167]]) as usize;
            if (192..=4092).contains(&offset) {
                let crc = crc32(crc32(F2FS, &block[..offset]), &block[offset + 4..]);
                source.put(at + offset as u64, &crc.to_le_bytes());
            }
        }
    }
}

/// A node's footer as it was; an inode's checksum, where it has one and is of the volume `seed`.
pub fn f2fs_node(source: &mut Patched<'_>, seed: &[u8], site: Site) {
    const FOOTER: usize = 4072;
    const CHECKSUM: usize = 368;
    let old = &seed[site.at as usize..][..BLOCK];
    let word = |at: usize| u32::from_le_bytes([old[at], old[at + 1], old[at + 2], old[at + 3]]);
    if word(FOOTER + 4) != site.ino.0 {
        return;
    }
    source.put(site.at + FOOTER as u64, &old[FOOTER..]);
    if word(FOOTER) != site.ino.0 || seed[1024 + 2180] & 0x20 == 0 {
        return;
    }
    source.put(site.at + CHECKSUM as u64, &[0; 4]);
    let Some(block) = source.get(site.at, BLOCK) else { return };
    let mut crc = crc32(!0, &seed[1024 + 108..][..16]);
    crc = crc32(crc, &site.ino.0.to_le_bytes());
    crc = crc32(crc, &block[68..72]);
    crc = crc32(crc, &block);
    source.put(site.at + CHECKSUM as u64, &crc.to_le_bytes());
}

/// Continued as ext4 chains it: without the last inversion.
pub(crate) fn crc32c_over(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// An ext volume's seed of checksums, where it has metadata_csum.
fn ext_seed(volume: &[u8]) -> Option<u32> {
    let word = |at: usize| u32::from_le_bytes([volume[at], volume[at + 1], volume[at + 2], volume[at + 3]]);
    let has = word(1024 + 0x64) & 0x400 != 0;
    has.then(|| match word(1024 + 0x60) & 0x2000 != 0 {
        true => word(1024 + 0x270),
        false => crc32c_over(!0, &volume[1024 + 0x68..][..16]),
    })
}

/// The byte at which an inode lies on an ext volume that is as it was made.
pub fn ext_inode_at(volume: &[u8], ino: u32) -> usize {
    let word =
        |at: usize| u32::from_le_bytes([volume[at], volume[at + 1], volume[at + 2], volume[at + 3]]) as usize;
    let block = 1024 << word(1024 + 0x18);
    let (size, per_group) = (word(1024 + 0x58) & 0xFFFF, word(1024 + 0x28));
    let descriptor = if word(1024 + 0x60) & 0x80 != 0 { word(1024 + 0xFC) >> 16 } else { 32 };
    let nr = ino as usize - 1;
    let descriptors = if block == 1024 { 2048 } else { block };
    word(descriptors + nr / per_group * descriptor + 8) * block + nr % per_group * size
}

/// The checksum of whichever structure of an ext volume lies at the site: an inode, an extent node, a
/// directory's block, an index node, a block of attributes. Indirect blocks and links have none, nor has any
/// on a volume without metadata_csum. `volume` is as it was before the damage.
pub fn ext_structure(source: &mut Patched<'_>, volume: &[u8], kind: SiteKind, site: Site) {
    let Some(seed) = ext_seed(volume) else { return };
    let at = ext_inode_at(volume, site.ino.0);
    let Some(whole) = source.get(at as u64, 256) else { return };
    let own = crc32c_over(crc32c_over(seed, &site.ino.0.to_le_bytes()), &whole[0x64..0x68]);
    if site.at == at as u64 {
        let mut inode = whole.to_vec();
        inode[0x7C..0x7E].fill(0);
        let wide = u16::from_le_bytes([inode[0x80], inode[0x81]]) >= 4;
        if wide {
            inode[0x82..0x84].fill(0);
        }
        let crc = crc32c_over(own, &inode).to_le_bytes();
        source.put(site.at + 0x7C, &crc[..2]);
        if wide {
            source.put(site.at + 0x82, &crc[2..]);
        }
        return;
    }
    let len = site.len as usize;
    let Some(block) = source.get(site.at, len) else { return };
    let half = |at: usize| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
    let put = |source: &mut Patched<'_>, place: usize, crc: u32| {
        if place + 4 <= len {
            source.put(site.at + place as u64, &crc.to_le_bytes());
        }
    };
    match kind {
        SiteKind::Map if half(0) == 0xF30A => {
            let end = 12 + 12 * half(4);
            if end + 4 <= len {
                put(source, end, crc32c_over(own, &block[..end]));
            }
        }
        SiteKind::Attributes => {
            let number = site.at / u64::from(site.len);
            let crc = crc32c_over(crc32c_over(seed, &number.to_le_bytes()), &block[..0x10]);
            put(source, 0x10, crc32c_over(crc32c_over(crc, &[0; 4]), &block[0x14..]));
        }
        SiteKind::Entries => {
            // As the reader tells them apart: a leaf ends in what looks like an entry of 12 bytes;
            // a node has pairs.
            if block[len - 12..].starts_with(&[0, 0, 0, 0, 12, 0, 0, 0xDE]) {
                return put(source, len - 4, crc32c_over(own, &block[..len - 12]));
            }
            let pairs = if half(4) == len { 8 } else { 32 };
            let (limit, count) = (half(pairs), half(pairs + 2));
            let tail = pairs + limit * 8;
            if count <= limit && tail + 8 <= len {
                let crc = crc32c_over(own, &block[..pairs + count * 8]);
                put(source, tail + 4, crc32c_over(crc32c_over(crc, &block[tail..tail + 4]), &[0; 4]));
            }
        }
        _ => {}
    }
}
