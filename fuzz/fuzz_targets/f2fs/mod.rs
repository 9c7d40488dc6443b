//! What the F2FS targets share: a volume that a kernel wrote, its metadata blocks by kind, and damage to them.

#[allow(dead_code)]
#[path = "../../../crates/fsview/tests/f2fs_support/mod.rs"]
mod support;

use std::sync::OnceLock;

use support::damage::{Damaged, exercise};
use support::{Memory, decompressed};

/// What a block is for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // each target takes one
pub enum Kind {
    /// Superblock, checkpoints, summaries, node address table.
    Table,
    /// Inodes, direct and indirect nodes, nodes of attributes.
    Node,
    /// Blocks of directories and links.
    Entries,
}

struct Seed {
    image: Memory,
    blocks: Vec<u64>,
}

fn seed() -> &'static Seed {
    static SEED: OnceLock<Seed> = OnceLock::new();
    SEED.get_or_init(|| {
        let image = Memory::new(decompressed("f2fs/fuzzed.img.zst"));
        let whole = Damaged::new(&image, 100_000);
        exercise(&whole);
        let blocks = whole.seen.into_inner().into_iter().collect();
        Seed { image, blocks }
    })
}

fn kind(image: &[u8], at: u64) -> Kind {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let (main, at) = (word(1024 + 92) as usize * 4096, at as usize);
    // A node's footer: its inode exists and the checkpoint's version is not zero; names do not look so.
    let (nid, ino) = (word(at + 4072), word(at + 4076));
    match at {
        _ if at < main => Kind::Table,
        _ if (3..10_000).contains(&nid) && (3..10_000).contains(&ino) => Kind::Node,
        _ => Kind::Entries,
    }
}

/// Applies the input to blocks of one kind (each change: which block, offset, length below 16, the bytes) and asks
/// everything of what results. The first byte says whether checkpoints get right checksums.
pub fn fuzz(of: Kind, data: &[u8]) {
    let seed = seed();
    let blocks: Vec<u64> = seed.blocks.iter().copied().filter(|b| kind(&seed.image.0, *b) == of).collect();
    let Some((mend, mut rest)) = data.split_first() else { return };
    let mut damaged = Damaged::new(&seed.image, 2000);
    while let Some(([block, block_high, low, high], after)) = rest.split_first_chunk::<4>() {
        let len = usize::from(high >> 4).min(after.len());
        let at = blocks[usize::from(u16::from_le_bytes([*block, *block_high])) % blocks.len()]
            + u64::from(u16::from_le_bytes([*low, high & 0xF]));
        damaged.changes.extend(after[..len].iter().zip(at..).map(|(byte, at)| (at, *byte)));
        rest = &after[len..];
        if damaged.changes.len() > 512 {
            break;
        }
    }
    if mend & 1 == 0 {
        damaged.mend_checkpoints();
    }
    exercise(&damaged);
}

/// Puts any bytes at the front of one metadata block; a node keeps its footer, so that it is looked at.
#[allow(dead_code)]
pub fn replace(which: u8, bytes: &[u8]) {
    let seed = seed();
    let block = seed.blocks[usize::from(which) % seed.blocks.len()];
    let room = if kind(&seed.image.0, block) == Kind::Node { 4072 } else { 4096 };
    let mut damaged = Damaged::new(&seed.image, 2000);
    damaged.changes = bytes.iter().take(room).zip(block..).map(|(byte, at)| (at, *byte)).collect();
    damaged.mend_checkpoints();
    exercise(&damaged);
}
