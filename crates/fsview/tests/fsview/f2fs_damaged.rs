//! Seeded damage to volumes that a kernel wrote: every question still ends, with an answer or an error.

use crate::f2fs_support::damage::{Damaged, crc32, exercise};
use crate::f2fs_support::*;
use nearside_random::Rng;

/// The blocks that a walk of the whole volume reads.
fn metadata(image: &Memory) -> Vec<u64> {
    let whole = Damaged::new(image, 200_000);
    exercise(&whole);
    assert!(whole.left.get() > 0);
    whole.seen.into_inner().into_iter().collect()
}

fn rounds(name: &str, seed: u64, count: usize) {
    let image = Memory::new(decompressed(&format!("f2fs/{name}.img.zst")));
    let blocks = metadata(&image);
    assert!(blocks.len() > 30, "{}", blocks.len());
    // The first are the superblock, the checkpoints and the tables, on which everything hangs.
    let tables = blocks.iter().take_while(|b| **b < 4096 * 512 * 5).count();
    let mut random = Rng(seed);
    for round in 0..count {
        let mut damaged = Damaged::new(&image, 3000);
        for _ in 0..1 + random.below(8) {
            let among = if random.below(3) == 0 { tables.max(1) } else { blocks.len() };
            let block = blocks[random.below(among as u64) as usize];
            // Half of it in the first bytes of a block, where the fields are.
            let within = if random.below(2) == 0 { random.below(512) } else { random.below(4096) };
            let at = block + within;
            let byte = match random.below(4) {
                0 => 0xFF,
                1 => 0,
                2 => random.below(256) as u8,
                _ => image.0[at as usize] ^ 1 << random.below(8),
            };
            damaged.changes.push((at, byte));
        }
        if round % 2 == 0 {
            damaged.mend_checkpoints();
        }
        exercise(&damaged);
    }
}

#[test]
fn damaged_plain_volume() {
    rounds("plain", 1, 600);
}

#[test]
fn damaged_volume_with_the_table_in_the_journal() {
    rounds("fsynced", 2, 2000);
}

#[test]
fn damaged_volume_with_normal_summaries() {
    rounds("synced", 3, 600);
}

#[test]
fn a_mended_volume_without_damage_opens() {
    let image = Memory::new(decompressed("f2fs/fsynced.img.zst"));
    let mut same = Damaged::new(&image, 100_000);
    same.mend_checkpoints();
    for (at, byte) in &same.changes {
        assert_eq!(image.0[*at as usize], *byte, "the checksum at {at}");
    }
    exercise(&same);
    assert_eq!(crc32(!0, b"123456789"), 0x340B_C6D9);
}

/// A node that names itself as the next, a directory that contains itself, NAT entries that all lead to one
/// block.
#[test]
fn loops_end() {
    let image = Memory::new(decompressed("f2fs/fsynced.img.zst"));
    let nat = u64::from(u32::from_le_bytes(image.0[1024 + 84..][..4].try_into().unwrap())) * 4096;
    let mut damaged = Damaged::new(&image, 100_000);
    for copy in [nat, nat + 512 * 4096] {
        let root = image.0[(copy + 3 * 9) as usize..][..9].to_vec();
        for nid in 4..455 {
            damaged.changes.extend(root.iter().enumerate().map(|(i, b)| (copy + nid * 9 + i as u64, *b)));
        }
    }
    exercise(&damaged);
    assert!(damaged.left.get() > 0, "a walk without end");
}
