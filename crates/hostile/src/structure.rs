//! The file systems' targets: an input laid over one structure of a volume,
//! and the inode asked that reads it.
//!
//! ```text
//! 0 volume u8   1 structure u16
//! 3 how u8: bit 0 leave checksums wrong, bit 1 the rest are edits, bit 2 features on
//! 4 from which byte u16   6.. the bytes that lie there now; or edits of three bytes: where u16, what u8
//! ```
//!
//! The targets of whole volumes take edits of six bytes instead, each anywhere in the metadata.

use nearside_conformance::explore::{Bounds, explore_within};
use nearside_fsview::{Ino, Volume};

use crate::mend;
use crate::patched::{Patched, now};
use crate::sites::{Site, SiteKind, question};
use crate::volumes::{self, Image};

const HEAD: usize = 6;
pub(crate) const WRONG_CHECKSUMS: u8 = 1;
const EDITS: u8 = 2;
const FEATURES: u8 = 4;
/// Edits of one input.
const EDITS_MAX: usize = 256;

/// An input over one structure of a kind.
pub(crate) fn damage<'a>(
    images: &'a [Image],
    kind: SiteKind,
    input: &[u8],
) -> Option<(&'a Image, Site, u8, Patched<'a>)> {
    let ([image, site_low, site_high, how, from_low, from_high], bytes) =
        input.split_first_chunk::<HEAD>()?;
    let image = images.get(usize::from(*image) % images.len())?;
    let sites = image.sites_of(kind);
    let site =
        *sites.get(usize::from(u16::from_le_bytes([*site_low, *site_high])).checked_rem(sites.len())?)?;
    let mut source = Patched::new(&image.bytes);
    let at = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high])) % site.len;
    if how & EDITS != 0 {
        let mut block = image.bytes.get(site.at as usize..)?.get(..site.len as usize)?.to_vec();
        for [low, high, byte] in bytes.as_chunks::<3>().0.iter().take(EDITS_MAX) {
            block[at(*low, *high) as usize] = *byte;
        }
        source.put(site.at, &block);
    } else {
        let from = at(*from_low, *from_high);
        let room = (site.len - from) as usize;
        source.put(site.at + u64::from(from), &bytes[..bytes.len().min(room)]);
    }
    Some((image, site, *how, source))
}

/// Inputs of both forms for the structures of a kind.
pub(crate) fn seeds(images: &[Image], kind: SiteKind) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, image) in images.iter().enumerate() {
        for (nr, site) in image.sites_of(kind).iter().enumerate() {
            let [low, high] = (nr as u16).to_le_bytes();
            let block = &image.bytes[site.at as usize..][..site.len as usize];
            let used = block.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            let mut seed = vec![number as u8, low, high, 0, 0, 0];
            seed.extend_from_slice(&block[..used]);
            seeds.push(seed);
            let first = block[0];
            seeds.push(vec![number as u8, low, high, EDITS, 0, 0, 0, 0, first]);
        }
    }
    seeds
}

/// The volume is open already: only the inode is asked.
fn one_inode(images: &[Image], kind: SiteKind, input: &[u8]) {
    if let Some((image, site, how, mut source)) = damage(images, kind, input) {
        if how & WRONG_CHECKSUMS == 0 && image.volume.info().file_system != "f2fs" {
            mend::ext_structure(&mut source, &image.bytes, kind, site);
        }
        question(&image.volume, &source, site.ino);
    }
}

/// Opens the volume anew, then asks the root and the inode of the site.
fn reopened(source: &Patched<'_>, site: Site) {
    let Ok(volume) = now(Volume::open(source)) else { return };
    let _ = format!("{:?}", volume.info());
    question(&volume, source, volume.root());
    if site.ino != volume.root() {
        question(&volume, source, site.ino);
    }
}

/// Superblock and group descriptors. The magic is kept, and the superblock's checksum made right.
pub fn ext_superblock(input: &[u8]) {
    let Some((_, site, how, mut source)) = damage(volumes::ext(), SiteKind::Superblock, input) else {
        return;
    };
    source.put(1024 + 0x38, &0xEF53u16.to_le_bytes());
    if how & WRONG_CHECKSUMS == 0 {
        mend::ext_superblock(&mut source);
    }
    let site = if site.at == 1024 { Site { ino: Ino(12), ..site } } else { site };
    reopened(&source, site);
}

/// Its seeds.
pub fn ext_superblock_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::ext(), SiteKind::Superblock)
}

/// Inodes, with inline data and the attributes in their tail.
pub fn ext_inode(input: &[u8]) {
    one_inode(volumes::ext(), SiteKind::Inode, input);
}

/// Its seeds.
pub fn ext_inode_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::ext(), SiteKind::Inode)
}

/// Blocks of directories, nodes of their indexes, inline entries, blocks of links.
pub fn ext_dir(input: &[u8]) {
    one_inode(volumes::ext(), SiteKind::Entries, input);
}

/// Its seeds.
pub fn ext_dir_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::ext(), SiteKind::Entries)
}

/// Nodes of extent trees, indirect blocks.
pub fn ext_extent(input: &[u8]) {
    one_inode(volumes::ext(), SiteKind::Map, input);
}

/// Its seeds.
pub fn ext_extent_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::ext(), SiteKind::Map)
}

/// Attributes of both file systems: `posix_acl` looks at what they hold.
pub(crate) fn attributes(input: &[u8]) {
    one_inode(volumes::ext(), SiteKind::Attributes, input);
    f2fs_inode_of(SiteKind::Attributes, input);
}

/// Their seeds.
pub(crate) fn attribute_seeds() -> Vec<Vec<u8>> {
    [seeds(volumes::ext(), SiteKind::Attributes), seeds(volumes::f2fs(), SiteKind::Attributes)].concat()
}

/// The superblocks of F2FS, their checksums right.
pub fn f2fs_superblock(input: &[u8]) {
    let Some((_, site, how, mut source)) = damage(volumes::f2fs(), SiteKind::Superblock, input) else {
        return;
    };
    if how & FEATURES != 0 {
        // The other copy is damaged: this one counts.
        source.put(if site.at == 1024 { 4096 + 1024 } else { 1024 }, &[0; 4]);
    }
    if how & WRONG_CHECKSUMS == 0 {
        mend::f2fs_superblocks(&mut source);
    }
    reopened(&source, site);
}

/// Its seeds.
pub fn f2fs_superblock_seeds() -> Vec<Vec<u8>> {
    both_ways(seeds(volumes::f2fs(), SiteKind::Superblock))
}

/// Checkpoint packs (which of them counts, too), summaries of both forms with their journals,
/// the node address table.
pub fn f2fs_checkpoint(input: &[u8]) {
    let Some((_, site, how, mut source)) = damage(volumes::f2fs(), SiteKind::Checkpoint, input) else {
        return;
    };
    if how & WRONG_CHECKSUMS == 0 {
        mend::f2fs_checkpoints(&mut source);
    }
    reopened(&source, site);
}

/// Its seeds.
pub fn f2fs_checkpoint_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::f2fs(), SiteKind::Checkpoint)
}

/// Inodes: extra attributes, inline attributes, content and entries; the flags of what is refused.
pub fn f2fs_inode(input: &[u8]) {
    f2fs_inode_of(SiteKind::Inode, input);
}

/// Its seeds.
pub fn f2fs_inode_seeds() -> Vec<Vec<u8>> {
    both_ways(seeds(volumes::f2fs(), SiteKind::Inode))
}

/// Blocks of entries and of links, inline entries.
pub fn f2fs_dentry(input: &[u8]) {
    f2fs_inode_of(SiteKind::Entries, input);
}

/// Its seeds.
pub fn f2fs_dentry_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::f2fs(), SiteKind::Entries)
}

/// Direct and indirect nodes.
pub fn f2fs_node(input: &[u8]) {
    f2fs_inode_of(SiteKind::Map, input);
}

/// Its seeds.
pub fn f2fs_node_seeds() -> Vec<Vec<u8>> {
    seeds(volumes::f2fs(), SiteKind::Map)
}

/// A block of one inode. Its footer is kept and its checksum made right, so that it is looked at; with the
/// features of the volume that change how an inode is read all on, where the input says so.
fn f2fs_inode_of(kind: SiteKind, input: &[u8]) {
    let Some((image, site, how, mut source)) = damage(volumes::f2fs(), kind, input) else { return };
    if how & WRONG_CHECKSUMS == 0 {
        mend::f2fs_node(&mut source, &image.bytes, site);
    }
    let volume = if how & FEATURES != 0 { image.featured() } else { &image.volume };
    question(volume, &source, site.ino);
}

fn both_ways(mut seeds: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for nr in 0..seeds.len() {
        let mut other = seeds[nr].clone();
        other[3] |= FEATURES;
        seeds.push(other);
    }
    seeds
}

const WHOLE: Bounds = Bounds { files: 64, runs: 24, names: 4 };

/// Edits anywhere in the metadata, six bytes each: structure u16, place u16, operation, value.
/// Then the whole tree.
fn whole<'a>(images: &'a [Image], input: &[u8]) -> Option<(&'a Image, u8, Patched<'a>)> {
    let ([image, how], records) = input.split_first_chunk::<2>()?;
    let image = images.get(usize::from(*image) % images.len())?;
    let sites = image.all_sites();
    let mut source = Patched::new(&image.bytes);
    for [low, high, at_low, at_high, operation, value] in records.as_chunks::<6>().0.iter().take(32) {
        let site = sites.get(usize::from(u16::from_le_bytes([*low, *high])) % sites.len())?;
        let at = site.at + u64::from(u16::from_le_bytes([*at_low, *at_high])) % u64::from(site.len);
        let old = source.get(at, 1)?[0];
        let new = match operation % 4 {
            0 => *value,
            1 => old ^ (1 << (value % 8)),
            2 => old.wrapping_add(*value),
            _ => 0xFF,
        };
        source.put(at, &[new]);
    }
    Some((image, *how, source))
}

fn whole_seeds(images: &[Image]) -> Vec<Vec<u8>> {
    (0..images.len() as u8)
        .flat_map(|image| (0..16).map(move |site| vec![image, 0, site * 3, 0, site * 16, 0, 1, site]))
        .collect()
}

/// A few bytes anywhere in the metadata of an ext volume.
pub fn ext_volume(input: &[u8]) {
    if let Some((_, how, mut source)) = whole(volumes::ext(), input) {
        if how & WRONG_CHECKSUMS == 0 {
            mend::ext_superblock(&mut source);
        }
        now(explore_within(&source, WHOLE));
    }
}

/// Its seeds.
pub fn ext_volume_seeds() -> Vec<Vec<u8>> {
    whole_seeds(volumes::ext())
}

/// A few bytes anywhere in the metadata of an F2FS volume.
pub fn f2fs_volume(input: &[u8]) {
    if let Some((_, how, mut source)) = whole(volumes::f2fs(), input) {
        if how & WRONG_CHECKSUMS == 0 {
            mend::f2fs_superblocks(&mut source);
            mend::f2fs_checkpoints(&mut source);
        }
        now(explore_within(&source, WHOLE));
    }
}

/// Its seeds.
pub fn f2fs_volume_seeds() -> Vec<Vec<u8>> {
    whole_seeds(volumes::f2fs())
}
