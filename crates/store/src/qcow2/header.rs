//! The header of a qcow2 file, with its extensions and its table of snapshots (docs/interop/qcow2.txt of
//! QEMU). Numbers in the file are big-endian.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::part::{Part, be16, be32, be64};
use super::unpack::Packing;

pub(super) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Bytes of the header that are looked at; the first version that has extensions says how many it has.
const FIXED: usize = 112;
/// Snapshots at most, and bytes of what each has beside its names, as in QEMU.
const MOST_SNAPSHOTS: u32 = 65_536;
const MOST_EXTRA: u32 = 1024;
/// Bytes of a disk at most: what a file can have.
const MOST_BYTES: u64 = u64::MAX >> 1;
/// Bytes of a backing file's name at most.
const MOST_NAME: u32 = 1023;
/// Snapshots that an error names.
const NAMED: usize = 16;

const DIRTY: u32 = 0;
const CORRUPT: u32 = 1;
const DATA_FILE: u32 = 2;
const COMPRESSION: u32 = 3;
const EXTENDED_L2: u32 = 4;

const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xE279_2ACA;
const FEATURE_NAMES: u32 = 0x6803_F857;

/// What of a header is needed to read the disk.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    /// Bytes of the disk, in whole sectors.
    pub(super) size: u64,
    /// Where the L1 table is.
    pub(super) table: u64,
    pub(super) packing: Packing,
    /// Whether L2 entries have two words, with a bitmap of subclusters.
    pub(super) extended: bool,
    pub(super) backing: Option<Backing>,
    snapshots: (u64, u32),
}

/// The file below, as the header names it.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) name: Vec<u8>,
    pub(super) format: Option<Vec<u8>>,
}

/// What the extensions say.
#[derive(Default)]
struct Extensions {
    format: Option<Vec<u8>>,
    /// Entries of 48 bytes: kind, bit, name.
    features: Vec<u8>,
}

impl Header {
    /// Bytes of a cluster.
    pub(super) fn cluster(&self) -> u64 {
        1u64.wrapping_shl(self.cluster_bits)
    }

    /// Entries of an L2 table, as a power of two.
    pub(super) fn l2_bits(&self) -> u32 {
        self.cluster_bits.wrapping_sub(if self.extended { 4 } else { 3 })
    }

    /// Reads and checks it.
    pub(super) fn read(part: &Part) -> io::Result<Header> {
        let mut fixed = [0; FIXED];
        part.read_padded("header", 0, &mut fixed)?;
        let word = |at| be32(&fixed, at).unwrap_or(0);
        let long = |at| be64(&fixed, at).unwrap_or(0);
        if !fixed.starts_with(&MAGIC) {
            return Err(part.wrong("it is no qcow2 image"));
        }
        let (version, cluster_bits) = (word(4), word(20));
        if !matches!(version, 2 | 3) {
            return Err(part.wrong(format_args!("qcow2 of version {version}; 2 and 3 are read")));
        }
        if !(9..=21).contains(&cluster_bits) {
            return Err(part.wrong(format_args!("header, byte 20: clusters of 2^{cluster_bits} bytes")));
        }
        let (features, header_len) = if version == 2 { (0, 72) } else { (long(72), word(100)) };
        let cluster = 1u32.wrapping_shl(cluster_bits);
        if version == 3 && !(104..=cluster).contains(&header_len) {
            return Err(part.wrong(format_args!("header, byte 100: a header of {header_len} bytes")));
        }
        let extensions = extensions(part, header_len, cluster, (long(8), word(16)))?;
        check_features(part, features, &extensions.features)?;
        match word(32) {
            0 => {}
            1 => return Err(part.wrong("it is encrypted (AES), which is not read")),
            2 => return Err(part.wrong("it is encrypted (LUKS), which is not read")),
            method => return Err(part.wrong(format_args!("header, byte 32: encryption method {method}"))),
        }
        let kind = if header_len > 104 { fixed.get(104).copied().unwrap_or(0) } else { 0 };
        let packing = match (bit(features, COMPRESSION), kind) {
            (false, 0) => Packing::Deflate,
            (true, 1) => Packing::Zstd,
            (_, kind) => return Err(part.wrong(format_args!("header, byte 104: compression {kind}"))),
        };
        let extended = bit(features, EXTENDED_L2);
        if extended && cluster_bits < 14 {
            return Err(part.wrong(format_args!("extended L2 entries of clusters of {cluster} bytes")));
        }
        let name = name(part, (long(8), word(16)), cluster)?;
        let header = Header {
            version,
            cluster_bits,
            size: whole_sectors(long(24)),
            table: long(40),
            packing,
            extended,
            backing: name.map(|name| Backing { name, format: extensions.format }),
            snapshots: (long(64), word(60)),
        };
        header.check_table(part, word(36))?;
        Ok(header)
    }

    /// Whether the L1 table, of so many entries, lies in the file and has the whole disk.
    fn check_table(&self, part: &Part, entries: u32) -> io::Result<()> {
        let cluster = self.cluster();
        if self.table & cluster.wrapping_sub(1) != 0 {
            return Err(part.wrong(format_args!("L1 table at {}, where no cluster begins", self.table)));
        }
        let len = u64::from(entries).saturating_mul(8);
        if self.table.checked_add(len).is_none_or(|end| end > part.len()) {
            return Err(part.outside("L1 table", self.table, len));
        }
        let (each, size) = (cluster.wrapping_shl(self.l2_bits()), self.size);
        if size > MOST_BYTES {
            return Err(part.wrong(format_args!("header, byte 24: a disk of {size} bytes")));
        }
        if u64::from(entries).saturating_mul(each) < size {
            return Err(part.wrong(format_args!("L1 table: {entries} entries, too few for {size} bytes")));
        }
        Ok(())
    }

    /// The disk as it was at the snapshot of that name, or else of that number.
    pub(super) fn at_snapshot(self, part: &Part, wanted: &OsStr) -> io::Result<Header> {
        let (mut at, count) = self.snapshots;
        if count > MOST_SNAPSHOTS {
            return Err(part.wrong(format_args!("header, byte 60: {count} snapshots")));
        }
        let (mut names, mut numbered) = (Vec::new(), None);
        for _ in 0..count {
            let mut fixed = [0; 40];
            part.read("snapshot table", at, &mut fixed)?;
            let half = |at| u32::from(be16(&fixed, at).unwrap_or(0));
            let (id, name, extra) = (half(12), half(14), be32(&fixed, 36).unwrap_or(0));
            if extra > MOST_EXTRA {
                return Err(part.wrong(format_args!("snapshot table at {at}: {extra} bytes of extra data")));
            }
            let name_at = [40, extra, id].into_iter().fold(at, |at, len| at.saturating_add(len.into()));
            let mut bytes = vec![0; usize::try_from(name).unwrap_or(0)];
            part.read("snapshot table", name_at, &mut bytes)?;
            if bytes == wanted.as_bytes() {
                return self.shown_by(part, at, &fixed, extra);
            }
            let mut number = vec![0; usize::try_from(id).unwrap_or(0)];
            part.read("snapshot table", name_at.saturating_sub(id.into()), &mut number)?;
            if number == wanted.as_bytes() && numbered.is_none() {
                numbered = Some((at, fixed, extra));
            }
            if names.len() < NAMED {
                names.push(format!("{:?}", OsStr::from_bytes(&bytes)));
            }
            at = name_at.saturating_add(name.into()).checked_next_multiple_of(8).unwrap_or(u64::MAX);
        }
        if let Some((at, fixed, extra)) = numbered {
            return self.shown_by(part, at, &fixed, extra);
        }
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(part.wrong(format_args!("no snapshot {wanted:?}; of {count} there are {there}")))
    }

    /// As the snapshot has it whose entry, with so much extra data, is at a place of the file.
    fn shown_by(self, part: &Part, at: u64, fixed: &[u8; 40], extra: u32) -> io::Result<Header> {
        let table = be64(fixed, 0).unwrap_or(0);
        let mut size = [0; 8];
        if extra >= 16 {
            part.read("snapshot table", at.saturating_add(48), &mut size)?;
        }
        let size = if extra >= 16 { whole_sectors(u64::from_be_bytes(size)) } else { self.size };
        let header = Header { table, size, ..self };
        header.check_table(part, be32(fixed, 8).unwrap_or(0))?;
        Ok(header)
    }
}

fn whole_sectors(bytes: u64) -> u64 {
    bytes & !511
}

fn bit(features: u64, nr: u32) -> bool {
    features.wrapping_shr(nr) & 1 == 1
}

/// Refuses features without which the disk cannot be read, or should not be.
fn check_features(part: &Part, features: u64, names: &[u8]) -> io::Result<()> {
    for nr in (0..64).filter(|nr| bit(features, *nr)) {
        let why = match nr {
            COMPRESSION | EXTENDED_L2 => continue,
            DIRTY => "it was not closed (dirty bit): qemu-img check -r all makes it whole".to_owned(),
            CORRUPT => "it is marked as corrupt: qemu-img check -r all may mend it".to_owned(),
            DATA_FILE => "its data lie in another file (external data file), which is not read".to_owned(),
            nr => {
                let (entries, _) = names.as_chunks::<48>();
                let named = entries.iter().find(|[kind, of, ..]| *kind == 0 && u32::from(*of) == nr);
                let name = named.and_then(|entry| entry.get(2..)?.split(|byte| *byte == 0).next());
                match name {
                    Some(name) => format!("it needs {:?}, which is not known here", OsStr::from_bytes(name)),
                    None => format!("it needs feature {nr}, which is not known here"),
                }
            }
        };
        return Err(part.wrong(why));
    }
    Ok(())
}

/// What follows the header in its cluster, up to the name of the backing file (its place and length).
fn extensions(part: &Part, from: u32, cluster: u32, (name, name_len): (u64, u32)) -> io::Result<Extensions> {
    let end = if name == 0 || name_len == 0 { u64::from(cluster) } else { name.min(cluster.into()) };
    let mut found = Extensions::default();
    let mut at = u64::from(from);
    while at.saturating_add(8) <= end.min(part.len()) {
        let mut head = [0; 8];
        part.read("header extension", at, &mut head)?;
        let (kind, len) = (be32(&head, 0).unwrap_or(0), be32(&head, 4).unwrap_or(0));
        if kind == END {
            break;
        }
        let body = at.saturating_add(8);
        if u64::from(len) > end.saturating_sub(body) {
            return Err(part.wrong(format_args!("header extension {kind:#x} at {at}: {len} bytes")));
        }
        if matches!(kind, BACKING_FORMAT | FEATURE_NAMES) {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            part.read("header extension", body, &mut bytes)?;
            match kind {
                BACKING_FORMAT => found.format = Some(bytes),
                _ => found.features = bytes,
            }
        }
        at = body.saturating_add(u64::from(len).next_multiple_of(8));
    }
    Ok(found)
}

/// The name of the file below; none where the header has none.
fn name(part: &Part, (at, len): (u64, u32), cluster: u32) -> io::Result<Option<Vec<u8>>> {
    if at == 0 || len == 0 {
        return Ok(None);
    }
    if len > MOST_NAME || at.saturating_add(len.into()) > u64::from(cluster) {
        return Err(part.wrong(format_args!("header, byte 8: a backing file's name of {len} bytes at {at}")));
    }
    let mut name = vec![0; usize::try_from(len).unwrap_or(0)];
    part.read("name of the backing file", at, &mut name)?;
    Ok(Some(name))
}
