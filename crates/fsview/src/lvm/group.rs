//! What a group's text says of its logical volumes (`lib/format_text/import_vsn1.c` of LVM2).

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use super::text::{Section, Value, parse};
use super::{Group, LinearRun, LogicalVolume, Physical, Place};
use crate::Error;
use crate::partition::corrupt;

const SECTOR: u64 = 512;

/// A physical volume, as its group has it.
struct Known<'a> {
    /// Where it lies on this drive; `None`: on another.
    place: Option<Place>,
    /// Bytes before its first extent.
    start: u64,
    extents: u64,
    /// What its host called it.
    device: &'a str,
}

/// The group that a text describes, which lies at byte `at` of the drive.
pub(super) fn group(bytes: &[u8], at: u64, physical: &[Physical]) -> Result<Option<Group>, Error> {
    let bad = |what: String| corrupt(format!("LVM metadata: {what}"), at);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is no text".into()))?;
    let root = parse(text).map_err(|(what, byte)| bad(format!("{what} (its byte {byte})")))?;
    let Some((name, vg)) = root.sections().find(|(_, section)| section.text("id").is_some()) else {
        return Ok(None);
    };
    let number = |section: &Section<'_>, of: &str, key: &str| {
        section.number(key).ok_or_else(|| bad(format!("{of} has no {key}")))
    };
    let extent_size = number(vg, name, "extent_size")?.saturating_mul(SECTOR);
    if extent_size == 0 || extent_size > 1 << 50 {
        return Err(bad(format!("{name} has extents of {extent_size} bytes")));
    }
    let mut all = BTreeMap::new();
    for (pv, section) in vg.section("physical_volumes").into_iter().flat_map(Section::sections) {
        let id = undashed(section.text("id").unwrap_or(""));
        let known = Known {
            place: physical.iter().find(|volume| volume.label.id == id).map(|volume| volume.place),
            start: number(section, pv, "pe_start")?.saturating_mul(SECTOR),
            extents: number(section, pv, "pe_count")?,
            device: section.text("device").unwrap_or(""),
        };
        all.insert(pv, known);
    }
    let logical = || vg.section("logical_volumes").into_iter().flat_map(Section::sections);
    let snapshots = Snapshots::of(logical().map(|(_, section)| section));
    let mut volumes = Vec::new();
    for (lv, section) in logical() {
        let (extents, runs) =
            runs(section, extent_size, &all).map_err(|what| bad(format!("{lv}: {what}")))?;
        volumes.push(LogicalVolume {
            name: lv.to_owned(),
            len: extents.saturating_mul(extent_size),
            // A snapshot is its user's, though its own status has it as a part of the pair.
            visible: section.list("status").contains(&Value::Text("VISIBLE"))
                || snapshots.stores.contains(lv),
            runs: snapshots.of_volume(lv).map_or(runs, Err),
        });
    }
    let id = undashed(vg.text("id").unwrap_or(""));
    let seqno = vg.number("seqno").unwrap_or(0);
    Ok(Some(Group { name: name.to_owned(), id, seqno, extent_size, volumes }))
}

fn undashed(id: &str) -> String {
    id.replace('-', "")
}

/// Volumes that are not what their own segments say.
struct Snapshots<'a> {
    /// With what has changed since in an origin.
    stores: BTreeSet<&'a str>,
    /// Of origins that are being made what a snapshot was.
    merging: BTreeSet<&'a str>,
}

impl<'a> Snapshots<'a> {
    fn of<'s>(volumes: impl Iterator<Item = &'s Section<'a>>) -> Snapshots<'a>
    where
        'a: 's,
    {
        let (mut stores, mut merging) = (BTreeSet::new(), BTreeSet::new());
        let segments = volumes.flat_map(Section::sections).map(|(_, segment)| segment);
        for segment in segments.filter(|segment| segment.text("type") == Some("snapshot")) {
            stores.extend(segment.text("cow_store"));
            if let Some(store) = segment.text("merging_store") {
                stores.insert(store);
                merging.extend(segment.text("origin"));
            }
        }
        Snapshots { stores, merging }
    }

    fn of_volume(&self, name: &str) -> Option<String> {
        if self.stores.contains(name) {
            return Some("it is a snapshot".to_owned());
        }
        self.merging.contains(name).then(|| "a snapshot is being merged into it".to_owned())
    }
}

/// A volume's extents, and where its bytes lie or why they are not read. An error is of metadata that
/// contradicts itself.
fn runs(
    volume: &Section<'_>,
    extent_size: u64,
    all: &BTreeMap<&str, Known<'_>>,
) -> Result<(u64, Result<Vec<LinearRun>, String>), String> {
    let mut segments = Vec::new();
    for (name, segment) in volume.sections() {
        let number = |key: &str| segment.number(key).ok_or_else(|| format!("{name} has no {key}"));
        segments.push((number("start_extent")?, number("extent_count")?, segment));
    }
    segments.sort_by_key(|(start, ..)| *start);
    if volume.number("segment_count") != u64::try_from(segments.len()).ok() {
        return Err(format!("{} segments, and segment_count says otherwise", segments.len()));
    }
    let mut extents = 0u64;
    let mut runs = Ok(Vec::<LinearRun>::new());
    for (start, count, segment) in segments {
        if start != extents {
            return Err(format!("a segment begins at extent {start}, the one before ends at {extents}"));
        }
        extents = extents
            .checked_add(count)
            .filter(|extents| extents.checked_mul(extent_size).is_some())
            .ok_or("too many extents")?;
        let Ok(found) = &mut runs else { continue };
        match run(segment, count, extent_size, all) {
            Ok(run) => match found.last_mut() {
                Some(last) if last.offset.saturating_add(last.len) == run.offset => {
                    last.len = last.len.saturating_add(run.len);
                }
                _ => found.push(run),
            },
            Err(why) => runs = Err(why),
        }
    }
    Ok((extents, runs))
}

/// Where a segment of so many extents lies; else why it is not read.
fn run(
    segment: &Section<'_>,
    count: u64,
    extent_size: u64,
    all: &BTreeMap<&str, Known<'_>>,
) -> Result<LinearRun, String> {
    let kind = segment.text("type").unwrap_or("");
    match (kind, segment.number("stripe_count")) {
        ("striped" | "linear", Some(1)) => {}
        ("striped", Some(stripes)) => return Err(format!("it is striped over {stripes}")),
        _ => return Err(format!("it is of type {kind:?}")),
    }
    let [Value::Text(on), Value::Number(Some(first))] = segment.list("stripes") else {
        return Err("a segment says not where it lies".to_owned());
    };
    let Some(known) = all.get(on) else {
        return Err(format!("it lies in part on {on:?}, which is no physical volume"));
    };
    let Some(place) = known.place else {
        return Err(format!(
            "it lies in part on the physical volume {on} ({:?}), which is not here",
            known.device
        ));
    };
    let within = first.checked_add(count).is_some_and(|end| end <= known.extents);
    let offset = first.checked_mul(extent_size).and_then(|bytes| bytes.checked_add(known.start));
    let len = count.checked_mul(extent_size);
    let (Some(offset), Some(len), true) = (offset, len, within) else {
        return Err(format!("{count} extents from {first} on are not within the {} of {on}", known.extents));
    };
    if offset.checked_add(len).is_none_or(|end| end > place.len) {
        let has = place.len;
        return Err(format!(
            "{len} bytes at {offset} of {on} are not within its {has}: the image is cut short"
        ));
    }
    Ok(LinearRun { offset: place.offset.saturating_add(offset), len })
}
