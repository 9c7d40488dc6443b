//! Checksums made right again, so that damage is not merely refused by them.

use crate::patched::Patched;
use crate::sites::Site;

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
