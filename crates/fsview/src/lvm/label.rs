//! A physical volume's own structures: its label, its header, and its metadata areas (`lib/label/label.h` and
//! `lib/format_text/layout.h` of LVM2). Numbers in them are little-endian.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use super::Place;
use crate::partition::{corrupt, le32, le64, read};
use crate::{Error, Source};

const SECTOR: u64 = 512;
/// Sectors of a volume's beginning, one of which may have the label.
const LABEL_SECTORS: u64 = 4;
/// Bytes of a group's metadata at most: so many volumes nobody has.
const MOST_TEXT: u64 = 4 << 20;
/// Bytes of a metadata area's header.
const AREA_HEADER: u64 = 512;
/// Metadata areas that are looked at: LVM makes no more.
const MOST_AREAS: usize = 2;

/// A physical volume.
#[derive(Clone, Debug)]
pub(super) struct Label {
    /// Its identifier, without dashes.
    pub(super) id: String,
    /// Bytes of the volume.
    pub(super) size: u64,
    /// Metadata areas: the first byte in the volume, and bytes.
    pub(super) areas: Vec<(u64, u64)>,
}

/// LVM's checksum: CRC-32 of its own beginning, not inverted.
fn checksum(parts: &[&[u8]]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(!0xf597_a6cf);
    parts.iter().for_each(|part| crc.update(part));
    !crc.finalize()
}

/// The label of a physical volume; `None` where it is none. As LVM, it passes over a damaged one where there
/// is another.
pub(super) async fn label<S: Source>(source: &S, place: Place) -> Result<Option<Label>, Error> {
    let mut damaged = Ok(None);
    for nr in 0..LABEL_SECTORS {
        let within = nr.saturating_mul(SECTOR);
        if within.saturating_add(SECTOR) > place.len {
            break;
        }
        let at = place.offset.saturating_add(within);
        let sector = read(source, at, SECTOR).await?;
        if sector.get(..8) != Some(b"LABELONE") || sector.get(24..32) != Some(b"LVM2 001") {
            continue;
        }
        match label_of(&sector, nr) {
            Ok(label) => return Ok(Some(label)),
            Err(what) => damaged = damaged.and(Err(corrupt(format!("LVM label: {what}"), at))),
        }
    }
    damaged
}

/// What the label in a sector says; else what is wrong.
fn label_of(sector: &[u8], nr: u64) -> Result<Label, &'static str> {
    if le64(sector, 8) != Some(nr) {
        return Err("it lies elsewhere than it says");
    }
    if le32(sector, 16) != Some(checksum(&[sector.get(20..).unwrap_or(&[])])) {
        return Err("its checksum does not match");
    }
    let header = le32(sector, 20).and_then(|from| sector.get(usize::try_from(from).ok()?..));
    header.and_then(header_of).ok_or("a header that is cut short")
}

/// The header within its sector: identifier, size, then data areas and metadata areas, each list ended by
/// zeros.
fn header_of(bytes: &[u8]) -> Option<Label> {
    let id = std::str::from_utf8(bytes.get(..32)?).ok()?.to_owned();
    let size = le64(bytes, 32)?;
    let (words, _) = bytes.get(40..)?.as_chunks::<16>();
    let mut words = words.iter().map(|words| (le64(words, 0).unwrap_or(0), le64(words, 8).unwrap_or(0)));
    words.by_ref().find(|(offset, _)| *offset == 0)?;
    let mut areas = Vec::new();
    loop {
        match words.next()? {
            (0, _) => break,
            area => areas.push(area),
        }
    }
    areas.truncate(MOST_AREAS);
    Some(Label { id, size, areas })
}

/// The text of a metadata area: where it lies and what it is; `None` where the area has none, or is marked as
/// not to be read.
pub(super) async fn text<S: Source>(
    source: &S,
    place: Place,
    area: (u64, u64),
) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let (from, len) = area;
    let at = place.offset.saturating_add(from);
    let bad = |what: String| corrupt(format!("LVM metadata area of {len} bytes: {what}"), at);
    if from.checked_add(len).is_none_or(|end| end > place.len) || len < AREA_HEADER {
        return Err(bad(format!("it is not within the volume's {}", place.len)));
    }
    let header = read(source, at, AREA_HEADER).await?;
    if header.get(4..20) != Some(b" LVM2 x[5A%r0N*>") {
        return Err(bad("its header has no mark".into()));
    }
    if le32(&header, 0) != Some(checksum(&[header.get(4..).unwrap_or(&[])])) {
        return Err(bad("its header's checksum does not match".into()));
    }
    if le32(&header, 20) != Some(1) {
        return Err(bad(format!("version {}; 1 is read", le32(&header, 20).unwrap_or(0))));
    }
    if (le64(&header, 24), le64(&header, 32)) != (Some(from), Some(len)) {
        return Err(bad("it lies elsewhere than it says".into()));
    }
    // The first of the places is the text that counts; the second one is being written.
    let (begin, size) = (le64(&header, 40).unwrap_or(0), le64(&header, 48).unwrap_or(0));
    let (sum, flags) = (le32(&header, 56).unwrap_or(0), le32(&header, 60).unwrap_or(0));
    if begin == 0 || size == 0 || flags & 1 != 0 {
        return Ok(None);
    }
    let ring = len.saturating_sub(AREA_HEADER);
    if begin < AREA_HEADER || begin >= len || size > ring {
        return Err(bad(format!("a text of {size} bytes at {begin}")));
    }
    if size > MOST_TEXT {
        return Err(bad(format!("a text of {size} bytes; at most {MOST_TEXT} are read")));
    }
    // What does not fit before the area's end goes on behind its header.
    let straight = size.min(len.saturating_sub(begin));
    let text_at = at.saturating_add(begin);
    let mut bytes = read(source, text_at, straight).await?;
    bytes.extend(read(source, at.saturating_add(AREA_HEADER), size.saturating_sub(straight)).await?);
    if checksum(&[&bytes]) != sum {
        return Err(corrupt(format!("LVM metadata of {size} bytes: its checksum does not match"), text_at));
    }
    Ok(Some((text_at, bytes)))
}
