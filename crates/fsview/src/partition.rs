//! Partition tables: MBR with extended and logical partitions, and GPT with its backup.
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
}

impl std::fmt::Display for PartitionKind {
    /// As fdisk shows it: `0x83`, `0FC63DAF-8483-4772-8E79-3D69D8477DE4`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PartitionKind::Mbr(kind) => write!(f, "0x{kind:02x}"),
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
/// More logical partitions than Linux gives numbers to are taken for a loop.
const LOGICAL_MAX: u32 = 252;
/// Bytes of a GPT's entries at most: 4096 entries of 1 KiB.
const GPT_TABLE_MAX: u64 = 4 << 20;

/// The partitions of a drive, by number; none where it has no table.
///
/// # Errors
/// [`Error::Corrupt`] where the table contradicts itself, [`Error::Read`].
pub async fn partitions<S: Source>(source: &S) -> Result<Vec<Partition>, Error> {
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
    Ok(all)
}

fn corrupt(what: String, at: u64) -> Error {
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

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
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
        Ok(Partition { number, offset, len, name: String::new(), kind })
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
    for sector in [SECTOR, BLOCK] {
        let last = source.len().checked_div(sector).and_then(|n| n.checked_sub(1)).unwrap_or(0);
        for lba in [1, last] {
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
        all.push(Partition { number, offset, len, name, kind: PartitionKind::Gpt(*kind) });
    }
    Ok(Some(all))
}
