//! The volumes that inputs change: what mke2fs made (`fuzz/images/make`)
//! and what a kernel wrote (`fixtures/f2fs`).

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::OnceLock;

use nearside_fsview::Volume;

use crate::mend;
use crate::patched::{Patched, now};
use crate::sites::{Site, SiteKind, find};

/// A volume, and where its structures lie.
pub struct Image {
    /// Its file's name.
    pub name: &'static str,
    /// All of it.
    pub bytes: Vec<u8>,
    /// Opened, unchanged.
    pub volume: Volume,
    featured: OnceLock<Volume>,
    sites: BTreeMap<SiteKind, Vec<Site>>,
    all: Vec<Site>,
}

impl Image {
    fn new(name: &'static str, bytes: Vec<u8>) -> Image {
        let volume = now(Volume::open(&Patched::new(&bytes))).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found = find(&bytes, &volume);
        let all = found.iter().map(|(_, site)| *site).collect();
        let mut sites = BTreeMap::<SiteKind, Vec<Site>>::new();
        for (kind, site) in found {
            sites.entry(kind).or_default().push(site);
        }
        Image { name, bytes, volume, featured: OnceLock::new(), sites, all }
    }

    /// The structures of a kind.
    pub fn sites_of(&self, kind: SiteKind) -> &[Site] {
        self.sites.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// All structures.
    pub fn all_sites(&self) -> &[Site] {
        &self.all
    }

    /// An F2FS volume as if compression, casefolding, encryption and flexible inline attributes were on.
    pub fn featured(&self) -> &Volume {
        self.featured.get_or_init(|| {
            let mut source = Patched::new(&self.bytes);
            // extra_attr, flexible_inline_xattr, inode_crtime; casefold, compression; encrypt.
            let on = source.word(1024 + 2180) | 0x8 | 0x40 | 0x100 | 0x1000 | 0x2000 | 0x1;
            source.put(1024 + 2180, &on.to_le_bytes());
            mend::f2fs_superblocks(&mut source);
            now(Volume::open(&source)).unwrap_or_else(|e| panic!("{} with features: {e}", self.name))
        })
    }
}

macro_rules! packed {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../../../", $name)))),*]
    };
}

/// Block maps; extents with inline data; metadata checksums;
/// blocks of 4 KiB and groups found by the other way.
pub fn ext() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let packed: [(_, &[u8]); 4] = packed!(
            "fuzz/images/ext2.img.gz",
            "fuzz/images/ext4.img.gz",
            "fuzz/images/ext4-meta-bg.img.gz",
            "fuzz/images/ext4-csum.img.gz"
        );
        packed.map(|(name, packed)| Image::new(name, gunzip(packed))).into()
    })
}

/// Not unmounted: a log and fast commits behind it, by a kernel (`fuzz/images/make-journals`). With metadata
/// checksums; without, and with inline data.
pub fn ext_journal() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let packed: [(_, &[u8]); 2] =
            packed!("fuzz/images/ext4-fast-csum.img.gz", "fuzz/images/ext4-fast.img.gz");
        packed.map(|(name, packed)| Image::new(name, gunzip(packed))).into()
    })
}

/// One of each structure, recovery needed; normal summaries; extra attributes and inode checksums;
/// everything plain.
pub fn f2fs() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let packed: [(_, &[u8]); 4] = packed!(
            "fixtures/f2fs/fuzzed.img.zst",
            "fixtures/f2fs/synced.img.zst",
            "fixtures/f2fs/extra.img.zst",
            "fixtures/f2fs/plain.img.zst"
        );
        packed.map(|(name, packed)| Image::new(name, unzstd(packed))).into()
    })
}

/// Unpacks what gzip packed.
pub fn gunzip(packed: &[u8]) -> Vec<u8> {
    sparse(flate2::read::GzDecoder::new(packed))
}

fn unzstd(packed: &[u8]) -> Vec<u8> {
    match ruzstd::decoding::StreamingDecoder::new(packed) {
        Ok(decoder) => sparse(decoder),
        Err(error) => panic!("a fixture: {error}"),
    }
}

/// Reads to the end. Zeros stay memory that nobody has touched.
fn sparse(mut from: impl Read) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 20];
    let (mut len, mut piece) = (0, vec![0; 64 << 10]);
    loop {
        let n = from.read(&mut piece).unwrap_or_else(|e| panic!("a packed volume: {e}"));
        if n == 0 {
            bytes.truncate(len);
            return bytes;
        }
        if piece[..n].iter().any(|b| *b != 0) {
            bytes[len..len + n].copy_from_slice(&piece[..n]);
        }
        len += n;
    }
}
