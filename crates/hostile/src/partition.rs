//! Partition tables: sectors at the beginning and the end of a small drive are the input.
//!
//! ```text
//! 0 sectors of the drive u16   2 bit 0: leave checksums wrong
//! 3.. pieces: sector u16 (from 0x8000 on: from the end), length u16, bytes
//! ```

use nearside_fsview::partition::partitions;
use nearside_fsview::raid::{Member, behind, member};

use crate::patched::{Patched, now};
use crate::volumes::gunzip;

const SECTOR: usize = 512;
const RAID: [u8; 4] = 0xa92b_4efcu32.to_le_bytes();
/// Sectors of the largest drive.
const MOST: u16 = 4096;

/// Builds the drive, reads its table, checks that partitions lie within it.
pub fn run(input: &[u8]) {
    let Some(([low, high, how], mut rest)) = input.split_first_chunk::<3>() else { return };
    let sectors = u16::from_le_bytes([*low, *high]) % MOST + 1;
    thread_local! {
        static ZEROS: Vec<u8> = vec![0; usize::from(MOST) * SECTOR];
    }
    ZEROS.with(|zeros| {
        let mut drive = Patched::new(&zeros[..usize::from(sectors) * SECTOR]);
        while let Some(([at_low, at_high, len_low, len_high], after)) = rest.split_first_chunk::<4>() {
            let at = u16::from_le_bytes([*at_low, *at_high]);
            let sector = match at & 0x8000 {
                0 => at % sectors,
                _ => sectors - 1 - (at & 0x7fff) % sectors,
            };
            let (bytes, after) =
                after.split_at(usize::from(u16::from_le_bytes([*len_low, *len_high])).min(after.len()));
            drive.put(u64::from(sector) * SECTOR as u64, bytes);
            rest = after;
        }
        if how & 1 == 0 {
            for sector in [1, sectors - 1] {
                mend(&mut drive, u64::from(sector) * SECTOR as u64);
            }
            mend_block(&mut drive);
            mend_member(&mut drive);
        }
        let len = u64::from(sectors) * SECTOR as u64;
        if let Ok(Some(Member { offset, len: bytes, .. })) = now(member(&drive, 0, len)) {
            assert!(offset.checked_add(bytes).is_some_and(|end| end <= len), "{bytes} at {offset} of {len}");
        }
        let _ = now(behind(&drive, 0, len, len / 2));
        let Ok(all) = now(partitions(&drive)) else { return };
        for partition in all {
            let end = partition.offset.checked_add(partition.len);
            assert!(partition.offset > 0 && end.is_some_and(|end| end <= len), "{partition:?} of {len}");
            let _ = format!("{partition:?} {}", partition.kind);
        }
    });
}

/// Makes the checksums of a GPT header, and of the entries it names, right.
fn mend(drive: &mut Patched<'_>, at: u64) {
    let Some(header) = drive.get(at, SECTOR) else { return };
    if !header.starts_with(b"EFI PART") {
        return;
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let table = u64::from(word(72)).saturating_mul(SECTOR as u64);
    let len = u64::from(word(80)).saturating_mul(word(84).into());
    if let Some(entries) = usize::try_from(len).ok().and_then(|len| drive.get(table, len)) {
        drive.put(at + 88, &crc32fast::hash(&entries).to_le_bytes());
    }
    let size = word(12) as usize;
    if let (92..=SECTOR, Some(header)) = (size, drive.get(at, SECTOR)) {
        let mut covered = header[..size].to_vec();
        covered[16..20].fill(0);
        drive.put(at + 16, &crc32fast::hash(&covered).to_le_bytes());
    }
}

/// Makes the sum of the information block of a persistent-memory namespace right.
fn mend_block(drive: &mut Patched<'_>) {
    let Some(block) = drive.get(4096, 4096).filter(|block| block.starts_with(b"NVDIMM_")) else { return };
    let words =
        block[..4088].chunks(4).map(|word| word.iter().rev().fold(0, |sum, b| sum << 8 | u32::from(*b)));
    let (low, high) = words.chain([0, 0]).fold((0u32, 0u64), |(low, high), word| {
        let low = low.wrapping_add(word);
        (low, high.wrapping_add(low.into()))
    });
    drive.put(4096 + 4088, &(high << 32 | u64::from(low)).to_le_bytes());
}

/// Makes the sum of a RAID's superblock at the drive's beginning, or 4 KiB behind it, right.
fn mend_member(drive: &mut Patched<'_>) {
    for at in [0, 4096] {
        let Some(mut block) = drive.get(at, 4096).map(|block| block.to_vec()) else { continue };
        let devices = u32::from_le_bytes(*block[220..].first_chunk().unwrap()) as usize;
        if !block.starts_with(&RAID) || devices > 1920 {
            continue;
        }
        block[216..220].fill(0);
        block.resize(256 + devices * 2, 0);
        block.resize(block.len().next_multiple_of(4), 0);
        let sum: u64 = block.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
        drive.put(at + 216, &(sum as u32).wrapping_add((sum >> 32) as u32).to_le_bytes());
    }
}

/// The drives that sfdisk wrote, the sectors that are not zero; a small namespace of persistent memory, and
/// a member of a RAID 1.
pub fn seeds() -> Vec<Vec<u8>> {
    let images: [&[u8]; 2] = [
        include_bytes!("../../../fuzz/images/mbr.img.gz"),
        include_bytes!("../../../fuzz/images/gpt.img.gz"),
    ];
    let mut block = vec![0; 94];
    block[..16].copy_from_slice(b"NVDIMM_PFN_INFO\0");
    for (at, byte) in [(54, 4), (57, 0x40), (64, 4), (72, 1), (89, 0x10)] {
        block[at] = byte;
    }
    // 64 sectors; the block is in the eighth.
    let mut seeds = vec![[&[63, 0, 0, 8, 0, 94, 0][..], &block].concat()];
    // A member of a RAID 1 of 40 sectors from the sixteenth on, as role 0 of two.
    let mut member = vec![0; 260];
    member[..4].copy_from_slice(&RAID);
    for (at, byte) in [(4, 1), (72, 1), (80, 40), (92, 2), (128, 16), (136, 40), (144, 8), (220, 2)] {
        member[at] = byte;
    }
    seeds.push([&[63, 0, 0, 8, 0, 4, 1][..], &member].concat());
    for packed in images {
        let drive = gunzip(packed);
        let sectors = drive.len() / SECTOR;
        let mut seed = ((sectors - 1) as u16).to_le_bytes().to_vec();
        seed.push(0);
        for (nr, sector) in drive.chunks(SECTOR).enumerate() {
            let used = sector.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            if used > 0 {
                let place = if nr < sectors / 2 { nr } else { 0x8000 | (sectors - 1 - nr) };
                seed.extend((place as u16).to_le_bytes());
                seed.extend((used as u16).to_le_bytes());
                seed.extend_from_slice(&sector[..used]);
            }
        }
        seeds.push(seed);
    }
    seeds
}
