//! Partition tables: MBR with extended and logical partitions, and GPT with its backup; and the information
//! block by which a namespace of persistent memory says where its data lie (`struct nd_pfn_sb` of Linux's
//! drivers/nvdimm/pfn.h).
//!
//! Here the source is the whole drive. What is read comes in aligned blocks of 4096 bytes (the last one
//! shorter where the drive ends between). A table that contradicts itself or the drive is an error, not an
//! absent table.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::{Error, Source};

/// A part of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as Linux gives it: the place in the table from 1, logical partitions from 5.
    pub number: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Its name, which only GPT has.
    pub name: String,
    /// Its UUID, as Linux says it (PARTUUID): of a GPT the partition's own, of an MBR the table's with the
    /// number; empty where there is none.
    pub uuid: String,
    /// What the table says is in it.
    pub kind: PartitionKind,
}

/// What a table says is in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type GUID of a GPT, in the order of its bytes on the drive.
    Gpt([u8; 16]),
    /// The data of a namespace of persistent memory that the kernel has as the block device `/dev/pmemN`.
    Fsdax,
    /// The data of one that it has as the Device-DAX character device `/dev/daxN.M`.
    Devdax,
}

/// Types of a GPT that disks of today have, and what fdisk calls them.
const GPT_TYPES: [(&str, &str); 15] = [
    ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "EFI System"),
    ("21686148-6449-6E6F-744E-656564454649", "BIOS boot"),
    ("9E1A2D38-C612-4316-AA26-8B49521E5A8B", "PowerPC PReP boot"),
    ("E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "Microsoft reserved"),
    ("EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "Microsoft basic data"),
    ("DE94BBA4-06D1-4D40-A16A-BFD50179D6AC", "Windows recovery environment"),
    ("BC13C2FF-59E6-4262-A352-B275FD6F7172", "Linux extended boot"),
    ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", "Linux filesystem"),
    ("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "Linux root (x86-64)"),
    ("B921B045-1DF0-41C3-AF44-4C6F280D3FAE", "Linux root (ARM-64)"),
    ("933AC7E1-2EB4-4F13-B844-0E14E2AEF915", "Linux home"),
    ("4D21B016-B534-45C2-A9FB-5C16E091FD2D", "Linux variable data"),
    ("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "Linux swap"),
    ("A19D880F-05FC-4D3B-A006-743F0F84911E", "Linux RAID"),
    ("E6D6D379-F507-44C2-A23C-238F2A3DF928", "Linux LVM"),
];

/// The same of an MBR.
const MBR_TYPES: [(u8, &str); 9] = [
    (0x07, "HPFS/NTFS/exFAT"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x82, "Linux swap / Solaris"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xef, "EFI (FAT-12/16/32)"),
    (0xfd, "Linux raid autodetect"),
];

impl PartitionKind {
    /// What fdisk calls it, where it is a usual one.
    pub fn name(self) -> Option<&'static str> {
        match self {
            PartitionKind::Mbr(kind) => {
                MBR_TYPES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name)
            }
            PartitionKind::Gpt(_) => {
                let kind = self.to_string();
                GPT_TYPES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name)
            }
            PartitionKind::Fsdax | PartitionKind::Devdax => None,
        }
    }
}

impl std::fmt::Display for PartitionKind {
    /// As fdisk shows it: `0x83`, `0FC63DAF-8483-4772-8E79-3D69D8477DE4`; as ndctl does: `fsdax`, `devdax`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PartitionKind::Mbr(kind) => write!(f, "0x{kind:02x}"),
            PartitionKind::Fsdax => f.write_str("fsdax"),
            PartitionKind::Devdax => f.write_str("devdax"),
            PartitionKind::Gpt([a, b, c, d, e, g, h, i, rest @ ..]) => {
                let first = u32::from_le_bytes([*a, *b, *c, *d]);
                let (second, third) = (u16::from_le_bytes([*e, *g]), u16::from_le_bytes([*h, *i]));
                write!(f, "{first:08X}-{second:04X}-{third:04X}-")?;
                for (nr, byte) in rest.iter().enumerate() {
                    write!(f, "{}{byte:02X}", if nr == 2 { "-" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
/// Where an MBR has the number by which it is told from others.
const SIGNATURE: u64 = 440;
/// More logical partitions than Linux gives numbers to are taken for a loop.
const LOGICAL_MAX: u32 = 252;
/// Bytes of a GPT's entries at most: 4096 entries of 1 KiB.
const GPT_TABLE_MAX: u64 = 4 << 20;

/// The partitions of a drive, by number; none where it has no table. A drive without partitions that is a
/// namespace of persistent memory has its data as partition 1.
///
/// An information block may be left from what the drive was before, and so may a table. Of a GPT's first copy
/// and a block, which lie over each other, the one that is whole is the newer. An MBR that has partitions
/// counts before a block: it is all that the hosts of a drive that is no nvdimm look at.
///
/// # Errors
/// [`Error::Corrupt`] where the table or the block contradicts itself or the drive, [`Error::Read`].
pub async fn partitions<S: Source>(source: &S) -> Result<Vec<Partition>, Error> {
    let all = table(source).await?;
    if !all.is_empty() {
        return Ok(all);
    }
    Ok(namespace(source).await?.into_iter().collect())
}

/// What the table at the drive's beginning says.
async fn table<S: Source>(source: &S) -> Result<Vec<Partition>, Error> {
    if source.len() < SECTOR {
        return Ok(Vec::new());
    }
    let Some(table) = read_mbr(source, 0).await? else { return Ok(Vec::new()) };
    if table.iter().any(|slot| slot.kind == 0xEE) {
        return gpt(source).await;
    }
    // A boot sector of a file system ends in the same mark; its bytes make no table.
    if table.iter().any(|slot| slot.status & 0x7F != 0) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for (number, slot) in (1u32..).zip(&table) {
        if slot.kind == 0 || slot.sectors == 0 {
            continue;
        }
        if is_extended(slot.kind) {
            logical(source, u64::from(slot.start), &mut all).await?;
        } else {
            all.push(slot.partition(number, 0, source.len(), 0)?);
        }
    }
    all.sort_by_key(|partition| partition.number);
    let signature = le32(&read(source, SIGNATURE, 4).await?, 0).unwrap_or(0);
    for partition in all.iter_mut().filter(|_| signature != 0) {
        partition.uuid = format!("{signature:08x}-{:02x}", partition.number);
    }
    Ok(all)
}

pub(crate) fn corrupt(what: String, at: u64) -> Error {
    Error::Corrupt { what, at }
}

/// `len` bytes from anywhere, read in aligned blocks.
pub(crate) async fn read<S: Source>(source: &S, at: u64, len: u64) -> Result<Vec<u8>, Error> {
    let end = at.checked_add(len).filter(|end| *end <= source.len());
    let Some(end) = end else {
        return Err(corrupt(format!("a partition table beyond the drive's {} bytes", source.len()), at));
    };
    let mut bytes = Vec::new();
    let mut next = at;
    while next < end {
        let start = next.wrapping_sub(next.checked_rem(BLOCK).unwrap_or(0));
        let here = BLOCK.min(source.len().saturating_sub(start));
        let block_len = u32::try_from(here).unwrap_or(u32::MAX);
        let block = source.metadata(start, block_len).await?;
        let from = usize::try_from(next.wrapping_sub(start)).unwrap_or(usize::MAX);
        let until =
            usize::try_from(end.min(start.saturating_add(here)).wrapping_sub(start)).unwrap_or(usize::MAX);
        let part = block.get(from..until).ok_or_else(|| Error::Read {
            at: start,
            len: block_len,
            reason: format!("{} bytes came", block.len()),
        })?;
        bytes.extend_from_slice(part);
        next = start.saturating_add(here);
    }
    Ok(bytes)
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
}

/// Where a namespace has its information block, of 4096 bytes.
const INFORMATION: u64 = 4096;

/// The data of a namespace of persistent memory that begins where the drive does; `None` where there is no
/// information block that the kernel would take for one. Whose block it is, and where other namespaces begin,
/// the labels at an nvdimm's end say, which are not read.
async fn namespace<S: Source>(source: &S) -> Result<Option<Partition>, Error> {
    if source.len() < INFORMATION.saturating_add(BLOCK) {
        return Ok(None);
    }
    let block = read(source, INFORMATION, BLOCK).await?;
    let kind = match block.get(..16) {
        Some(b"NVDIMM_PFN_INFO\0") => PartitionKind::Fsdax,
        Some(b"NVDIMM_DAX_INFO\0") => PartitionKind::Devdax,
        _ => return Ok(None),
    };
    let word = |at| le32(&block, at).unwrap_or(0);
    let long = |at| le64(&block, at).unwrap_or(0);
    // Where the structures of its pages are: 1, in memory; 2, before the data.
    if long(4088) != fletcher64(block.get(..4088).unwrap_or(&[])) || !matches!(word(72), 1 | 2) {
        return Ok(None);
    }
    let minor_version = word(52).wrapping_shr(16);
    // Older kernels made them to align the data: block I/O counts from there, and so does what it wrote.
    let pad = if minor_version < 1 { 0 } else { word(76) };
    let page = if minor_version < 4 { 4096 } else { word(88) };
    let offset = long(56).saturating_add(u64::from(pad));
    let len = long(64).saturating_mul(u64::from(page));
    checked(1, offset, len, source.len(), INFORMATION)?;
    Ok(Some(Partition { number: 1, offset, len, name: String::new(), uuid: String::new(), kind }))
}

/// `nd_fletcher64` of drivers/nvdimm/core.c over a block that ends in a sum of 8 bytes, taken for zeros.
fn fletcher64(before_sum: &[u8]) -> u64 {
    let (words, _) = before_sum.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_le_bytes(*word)).chain([0, 0]);
    let (low, high) = words.fold((0u32, 0u64), |(low, high), word| {
        let low = low.wrapping_add(word);
        (low, high.wrapping_add(u64::from(low)))
    });
    high.wrapping_shl(32) | u64::from(low)
}

/// One of the four entries of an MBR, its place in sectors of 512 bytes.
#[derive(Clone, Copy, Debug)]
struct MbrEntry {
    status: u8,
    kind: u8,
    start: u32,
    sectors: u32,
}

fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0F | 0x85)
}

impl MbrEntry {
    fn parse(bytes: &[u8; 16]) -> MbrEntry {
        let [status, _, _, _, kind, _, _, _, a, b, c, d, e, f, g, h] = *bytes;
        let (start, sectors) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        MbrEntry { status, kind, start, sectors }
    }

    /// `base` is the sector that the entry counts from, `at` the byte at which its table lies.
    fn partition(&self, number: u32, base: u64, drive_len: u64, at: u64) -> Result<Partition, Error> {
        let offset = base.saturating_add(u64::from(self.start)).saturating_mul(SECTOR);
        let len = u64::from(self.sectors).saturating_mul(SECTOR);
        checked(number, offset, len, drive_len, at)?;
        let kind = PartitionKind::Mbr(self.kind);
        Ok(Partition { number, offset, len, name: String::new(), uuid: String::new(), kind })
    }
}

fn checked(number: u32, offset: u64, len: u64, drive_len: u64, at: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= drive_len && offset > 0 => Ok(()),
        _ => {
            let what = format!("partition {number}: {len} bytes at byte {offset}, the drive has {drive_len}");
            Err(corrupt(what, at))
        }
    }
}

/// The four entries of the MBR at a sector; `None` without its mark.
async fn read_mbr<S: Source>(source: &S, sector: u64) -> Result<Option<[MbrEntry; 4]>, Error> {
    let raw = read(source, sector.saturating_mul(SECTOR), SECTOR).await?;
    if raw.get(510..512) != Some(&[0x55, 0xAA]) {
        return Ok(None);
    }
    let (entries, _) = raw.get(446..510).unwrap_or(&[]).as_chunks::<16>();
    Ok(<&[[u8; 16]; 4]>::try_from(entries).ok().map(|entries| entries.each_ref().map(MbrEntry::parse)))
}

/// The chain of tables in an extended partition: each has one logical partition and leads to the next table.
async fn logical<S: Source>(source: &S, extended: u64, all: &mut Vec<Partition>) -> Result<(), Error> {
    let mut table = extended;
    let mut number = 4u32;
    for _ in 0..LOGICAL_MAX {
        let at = table.saturating_mul(SECTOR);
        let Some([first, second, ..]) = read_mbr(source, table).await? else {
            return Err(corrupt("an extended partition's table has no mark".into(), at));
        };
        if first.kind != 0 && first.sectors != 0 && !is_extended(first.kind) {
            number = number.saturating_add(1);
            all.push(first.partition(number, table, source.len(), at)?);
        }
        if !is_extended(second.kind) || second.sectors == 0 {
            return Ok(());
        }
        table = extended.saturating_add(u64::from(second.start));
    }
    Err(corrupt("the tables of an extended partition loop".into(), table.saturating_mul(SECTOR)))
}

/// The partitions of the first copy of a GPT that holds together.
async fn gpt<S: Source>(source: &S) -> Result<Vec<Partition>, Error> {
    let mut first_error = None;
    let last = |sector| source.len().checked_div(sector).and_then(|n| n.checked_sub(1)).unwrap_or(0);
    for is_backup in [false, true] {
        // What was written over the first copy is newer than the backup.
        if is_backup && let Some(data) = namespace(source).await? {
            return Ok(vec![data]);
        }
        for sector in [SECTOR, BLOCK] {
            let lba = if is_backup { last(sector) } else { 1 };
            match gpt_copy(source, sector, lba).await {
                Ok(Some(all)) => return Ok(all),
                Ok(None) => {}
                Err(error @ Error::Corrupt { .. }) => {
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(first_error.unwrap_or_else(|| corrupt("a protective MBR, and no GPT header".into(), SECTOR)))
}

/// The partitions by the header at one place; `None` where there is no header.
async fn gpt_copy<S: Source>(source: &S, sector: u64, lba: u64) -> Result<Option<Vec<Partition>>, Error> {
    let at = lba.saturating_mul(sector);
    if at.checked_add(SECTOR).is_none_or(|end| end > source.len()) {
        return Ok(None);
    }
    let header = read(source, at, SECTOR).await?;
    if !header.starts_with(b"EFI PART") {
        return Ok(None);
    }
    let bad = |what: &str| corrupt(format!("GPT header: {what}"), at);
    let cut = || bad("cut short");
    let size = le32(&header, 12).and_then(|size| usize::try_from(size).ok()).ok_or_else(cut)?;
    let covered = header.get(..size).filter(|_| size >= 92).ok_or_else(|| bad("impossible size"))?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(covered.get(..16).unwrap_or(&[]));
    crc.update(&[0; 4]);
    crc.update(covered.get(20..).unwrap_or(&[]));
    if le32(&header, 16) != Some(crc.finalize()) {
        return Err(bad("its checksum does not match"));
    }
    if le64(&header, 24) != Some(lba) {
        return Err(bad("it lies elsewhere than it says"));
    }
    let (Some(table), Some(count), Some(entry_len), Some(table_crc)) =
        (le64(&header, 72), le32(&header, 80), le32(&header, 84), le32(&header, 88))
    else {
        return Err(cut());
    };
    let table_len = u64::from(count).saturating_mul(u64::from(entry_len));
    if entry_len < 128 || !entry_len.is_multiple_of(8) || table_len > GPT_TABLE_MAX {
        return Err(bad(&format!("{count} entries of {entry_len} bytes")));
    }
    let table_at = table.saturating_mul(sector);
    let entries = read(source, table_at, table_len).await?;
    if crc32fast::hash(&entries) != table_crc {
        return Err(corrupt("GPT entries: their checksum does not match".into(), table_at));
    }
    let entry_len = usize::try_from(entry_len).unwrap_or(usize::MAX);
    let mut all = Vec::new();
    for (number, entry) in (1u32..).zip(entries.chunks_exact(entry_len)) {
        let Some((kind, _)) = entry.split_first_chunk::<16>() else { break };
        if *kind == [0; 16] {
            continue;
        }
        let (first, last) = (le64(entry, 32).unwrap_or(0), le64(entry, 40).unwrap_or(0));
        let sectors = last.checked_sub(first).and_then(|n| n.checked_add(1)).unwrap_or(u64::MAX);
        let (offset, len) = (first.saturating_mul(sector), sectors.saturating_mul(sector));
        checked(number, offset, len, source.len(), table_at)?;
        let (units, _) = entry.get(56..128).unwrap_or(&[]).as_chunks::<2>();
        let units: Vec<u16> = units.iter().map(|u| u16::from_le_bytes(*u)).take_while(|u| *u != 0).collect();
        let name = String::from_utf16_lossy(&units);
        // A GUID, in capitals.
        let unique = entry.get(16..).and_then(|rest| rest.first_chunk::<16>()).copied().unwrap_or_default();
        let uuid = PartitionKind::Gpt(unique).to_string().to_lowercase();
        all.push(Partition { number, offset, len, name, uuid, kind: PartitionKind::Gpt(*kind) });
    }
    Ok(Some(all))
}
