//! The journal's target: an input laid over one block of the journal of a volume that was not unmounted, its
//! superblock, log or fast commits. The form is that of `structure`. The volume is opened as it would be
//! recovered, and all of it asked; and opened once more as what follows the volume without the damage.

use nearside_conformance::explore::{Bounds, explore_within};
use nearside_fsview::{State, Volume};

use crate::mend;
use crate::patched::{Patched, now};
use crate::sites::{Site, SiteKind, question};
use crate::structure::{WRONG_CHECKSUMS, damage, seeds};
use crate::volumes;

const BOUNDS: Bounds = Bounds { files: 48, runs: 16, names: 4 };
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
/// Kinds of blocks of a log.
const COMMIT: u32 = 2;
const SUPERBLOCKS: [u32; 2] = [3, 4];
/// Tags of fast commits.
const TAIL: u16 = 8;
/// Bytes of a block's header; of a commit, where its checksum lies; and of a superblock.
const HEADER: usize = 12;
const COMMIT_SUM: usize = 16;
const SUPERBLOCK_SUM: usize = 0xFC;

/// Blocks of a journal.
pub fn ext_journal(input: &[u8]) {
    let Some((image, site, how, mut source)) = damage(volumes::ext_journal(), SiteKind::Journal, input)
    else {
        return;
    };
    if how & WRONG_CHECKSUMS == 0 {
        let journal = image.sites_of(SiteKind::Journal);
        mend(&mut source, journal, site);
    }
    now(explore_within(&source, BOUNDS));
    if let Ok(volume) = now(Volume::open_after(&source, State::Recovered, Some(&image.volume))) {
        let _ = now(volume.changed_since(&image.volume, &source));
        question(&volume, &source, volume.root());
    }
}

/// Its seeds.
pub fn ext_journal_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::ext_journal(), SiteKind::Journal)
}

fn big(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

/// The checksum of the block that was changed: its own, or that of the fast commits that follow one another.
fn mend(source: &mut Patched<'_>, journal: &[Site], site: Site) {
    let Some(own) = journal.first().and_then(|first| source.get(first.at, 1024)) else { return };
    let Some(block) = source.get(site.at, site.len as usize) else { return };
    if !block.starts_with(&MAGIC) {
        return mend_fast(source, journal);
    }
    let features = big(&own, 0x28);
    if features & 0x18 == 0 {
        return;
    }
    let kind = big(&block, 4);
    let is_superblock = SUPERBLOCKS.contains(&kind);
    let (len, at) = match kind {
        COMMIT => (block.len(), COMMIT_SUM),
        _ if is_superblock => (1024, SUPERBLOCK_SUM),
        _ => (block.len(), block.len() - 4),
    };
    let seed = if is_superblock { !0 } else { mend::crc32c_over(!0, &own[0x30..0x40]) };
    let mut bytes = block[..len].to_vec();
    bytes[at..at + 4].fill(0);
    source.put(site.at + at as u64, &mend::crc32c_over(seed, &bytes).to_be_bytes());
}

/// Lets each tail of fast commits have the checksum of what stands before it.
fn mend_fast(source: &mut Patched<'_>, journal: &[Site]) {
    let mut crc = 0;
    for site in journal {
        let Some(block) = source.get(site.at, site.len as usize) else { return };
        if block.starts_with(&MAGIC) {
            continue;
        }
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let mut at = 0;
        while at + 4 <= block.len() {
            let (tag, end) = (half(at), at + 4 + usize::from(half(at + 2)));
            if end > block.len() {
                break;
            }
            if tag == TAIL && end >= at + HEADER {
                let sum = mend::crc32c_over(crc, &block[at..at + 8]);
                source.put(site.at + at as u64 + 8, &sum.to_le_bytes());
                crc = 0;
            } else {
                crc = mend::crc32c_over(crc, &block[at..end]);
            }
            at = end;
        }
    }
}
