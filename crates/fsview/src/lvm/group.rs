//! What a group's text says of its logical volumes (`lib/format_text/import_vsn1.c` of LVM2).

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use super::text::{Section, Value, parse};
use super::{Group, LinearRun, LogicalVolume, Physical, Place};
use crate::Error;
use crate::partition::corrupt;
use crate::raid::Standing;

const SECTOR: u64 = 512;
/// Bytes of a name at most (LVM2's `NAME_LEN`, without the zero at its end).
const MOST_NAME: usize = 127;
/// Characters of an identifier, without its dashes.
const ID: usize = 32;
/// Characters of what a host called a device at most.
const MOST_DEVICE: usize = 128;
/// Logical volumes of a group at most.
const MOST_VOLUMES: usize = 4096;
/// Partitions in a message.
const LISTED: usize = 16;

/// A physical volume, as its group has it.
struct Known {
    /// Where it lies on this drive; else why that is not known.
    place: Result<Place, String>,
    /// Bytes before its first extent, and how many extents; else what is wrong.
    room: Result<(u64, u64), String>,
}

/// The group that a text describes, which lies at byte `at` of the drive.
pub(super) fn group(
    bytes: &[u8],
    at: u64,
    physical: &[Physical],
    warnings: &mut Vec<String>,
) -> Result<Option<Group>, Error> {
    let bad = |what: String| corrupt(format!("LVM metadata: {what}"), at);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is no text".into()))?;
    let root = parse(text).map_err(|(what, byte)| bad(format!("{what} (its byte {byte})")))?;
    let Some((name, vg)) = root.sections().find(|(_, section)| section.text("id").is_some()) else {
        return Ok(None);
    };
    if name.len() > MOST_NAME {
        return Err(bad(format!("a group's name of {} bytes", name.len())));
    }
    let id = undashed(vg.text("id").unwrap_or(""));
    if id.chars().count() != ID {
        return Err(bad(format!("{name} has an identifier of {} characters, not {ID}", id.chars().count())));
    }
    let extent_size = vg
        .number("extent_size")
        .ok_or_else(|| bad(format!("{name} has no extent_size")))?
        .saturating_mul(SECTOR);
    if extent_size == 0 || extent_size > 1 << 50 {
        return Err(bad(format!("{name} has extents of {extent_size} bytes")));
    }
    let (all, here) = known(vg, physical);
    let logical = || vg.section("logical_volumes").into_iter().flat_map(Section::sections);
    let snapshots = Snapshots::of(logical());
    let count = logical().count();
    if count > MOST_VOLUMES {
        let text = format!("{name} has {count} logical volumes: only the first {MOST_VOLUMES} are read");
        // Once for all copies of the text.
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
    let mut volumes = Vec::new();
    for (lv, section) in logical().take(MOST_VOLUMES) {
        let (len, mut runs) = runs(section, extent_size, &all);
        if lv.len() > MOST_NAME {
            runs = Err(format!("its metadata are damaged: a name of {} bytes", lv.len()));
        }
        volumes.push(LogicalVolume {
            name: lv.chars().take(MOST_NAME).collect(),
            len,
            visible: snapshots.is_visible(lv, section),
            runs: snapshots.of_volume(lv).map_or(runs, Err),
        });
    }
    let seqno = vg.number("seqno").unwrap_or(0);
    let Here { partitions, standings } = here;
    let partitions = partitions.into_iter().collect();
    Ok(Some(Group { name: name.to_owned(), partitions, standings, id, seqno, extent_size, volumes }))
}

/// What a group has on this drive.
#[derive(Default)]
struct Here {
    /// The partitions that are its physical volumes.
    partitions: BTreeSet<u32>,
    /// As of [`Group`].
    standings: Vec<Standing>,
}

/// The physical volumes of a group, by their names in it, and what of them is here.
fn known<'a>(vg: &Section<'a>, physical: &[Physical]) -> (BTreeMap<&'a str, Known>, Here) {
    let (mut all, mut found) = (BTreeMap::new(), Here::default());
    for (pv, section) in vg.section("physical_volumes").into_iter().flat_map(Section::sections) {
        let id = undashed(section.text("id").unwrap_or(""));
        let here: Vec<&Physical> = physical.iter().filter(|volume| volume.label.id == id).collect();
        found.partitions.extend(here.iter().map(|volume| volume.number));
        for standing in here.iter().filter_map(|volume| volume.standing.as_ref()) {
            if !found.standings.contains(standing) {
                found.standings.push(standing.clone());
            }
        }
        let name = cut(pv, MOST_NAME);
        let place = match here.as_slice() {
            [one] => Ok(one.place),
            [] => {
                let device = cut(section.text("device").unwrap_or(""), MOST_DEVICE);
                Err(format!("it lies in part on the physical volume {name} ({device:?}), which is not here"))
            }
            several => Err(format!(
                "it lies in part on {name}: several physical volumes here have its identifier: {}",
                numbers(several)
            )),
        };
        let number = |key: &str| section.number(key).ok_or_else(|| format!("{name} has no {key}"));
        let start = number("pe_start").map(|start| start.saturating_mul(SECTOR));
        let room = start.and_then(|start| Ok((start, number("pe_count")?)));
        all.insert(pv, Known { place, room });
    }
    (all, found)
}

/// The partitions of physical volumes, the first ones by number.
fn numbers(volumes: &[&Physical]) -> String {
    let first: Vec<String> = volumes.iter().take(LISTED).map(|volume| volume.number.to_string()).collect();
    match volumes.len().saturating_sub(LISTED) {
        0 => format!("partitions {}", first.join(", ")),
        more => format!("partitions {} and {more} more", first.join(", ")),
    }
}

/// So many of a text's characters at most.
fn cut(text: &str, most: usize) -> &str {
    let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
}

pub(super) fn undashed(id: &str) -> String {
    id.replace('-', "")
}

fn has_visible(volume: &Section<'_>) -> bool {
    volume.list("status").contains(&Value::Text("VISIBLE"))
}

/// Volumes that are not what their own segments say.
#[derive(Default)]
struct Snapshots<'a> {
    /// That say of others that they are snapshots, and are none themselves.
    pairs: BTreeSet<&'a str>,
    /// With what has changed since in an origin.
    stores: BTreeSet<&'a str>,
    /// Of those, what is being merged into an origin that is its user's.
    hidden: BTreeSet<&'a str>,
    /// Of origins that are being made what a snapshot was.
    merging: BTreeSet<&'a str>,
}

impl<'a> Snapshots<'a> {
    fn of<'s>(volumes: impl Iterator<Item = (&'a str, &'s Section<'a>)> + Clone) -> Snapshots<'a>
    where
        'a: 's,
    {
        let visible = volumes.clone().filter(|(_, volume)| has_visible(volume)).map(|(name, _)| name);
        let visible: BTreeSet<&str> = visible.collect();
        let mut all = Snapshots::default();
        let segments = volumes.flat_map(|(name, volume)| volume.sections().map(move |(_, of)| (name, of)));
        for (name, segment) in segments.filter(|(_, segment)| segment.text("type") == Some("snapshot")) {
            all.pairs.insert(name);
            all.stores.extend(segment.text("cow_store"));
            if let Some(store) = segment.text("merging_store") {
                all.stores.insert(store);
                let origin = segment.text("origin");
                all.merging.extend(origin);
                all.hidden.extend(origin.filter(|origin| visible.contains(origin)).map(|_| store));
            }
        }
        all
    }

    /// As `lv_is_visible` of LVM2 (`lib/metadata/lv_manip.c`): a snapshot is its user's, though its own
    /// status has it as a part of the pair, and of an origin that is nobody's, also while it is merged.
    fn is_visible(&self, name: &str, volume: &Section<'_>) -> bool {
        match self.stores.contains(name) {
            true => !self.hidden.contains(name),
            false => has_visible(volume) && !self.pairs.contains(name),
        }
    }

    fn of_volume(&self, name: &str) -> Option<String> {
        if self.stores.contains(name) {
            return Some("it is a snapshot".to_owned());
        }
        self.merging.contains(name).then(|| "a snapshot is being merged into it".to_owned())
    }
}

/// A volume's bytes, and where they lie or why they are not read.
fn runs(
    volume: &Section<'_>,
    extent_size: u64,
    all: &BTreeMap<&str, Known>,
) -> (u64, Result<Vec<LinearRun>, String>) {
    let counts = volume.sections().filter_map(|(_, segment)| segment.number("extent_count"));
    let extents = counts.fold(0u64, u64::saturating_add);
    let runs = match segments(volume) {
        Ok(segments) if segments.is_empty() || extents == 0 => Err("it has no extents".to_owned()),
        Ok(_) if extents.checked_mul(extent_size).is_none() => Err("too many extents".to_owned()),
        Ok(segments) => joined(segments, extent_size, all),
        Err(what) => Err(format!("its metadata are damaged: {what}")),
    };
    (extents.saturating_mul(extent_size), runs)
}

/// A volume's segments in their order, each with its extents; else in what they contradict themselves.
fn segments<'s, 'a>(volume: &'s Section<'a>) -> Result<Vec<(u64, &'s Section<'a>)>, String> {
    let mut segments = Vec::new();
    for (name, segment) in volume.sections() {
        let name = cut(name, MOST_NAME);
        let number = |key: &str| segment.number(key).ok_or_else(|| format!("{name} has no {key}"));
        segments.push((number("start_extent")?, number("extent_count")?, segment));
    }
    segments.sort_by_key(|(start, ..)| *start);
    if volume.number("segment_count") != u64::try_from(segments.len()).ok() {
        return Err(format!("{} segments, and segment_count says otherwise", segments.len()));
    }
    let mut end = 0u64;
    for (start, count, _) in &segments {
        if *start != end {
            return Err(format!("a segment begins at extent {start}, the one before ends at {end}"));
        }
        end = end.checked_add(*count).ok_or("too many extents")?;
    }
    Ok(segments.into_iter().map(|(_, count, segment)| (count, segment)).collect())
}

/// Where segments lie, adjacent ones as one.
fn joined(
    segments: Vec<(u64, &Section<'_>)>,
    extent_size: u64,
    all: &BTreeMap<&str, Known>,
) -> Result<Vec<LinearRun>, String> {
    let mut found = Vec::<LinearRun>::new();
    for (count, segment) in segments {
        let run = run(segment, count, extent_size, all)?;
        match found.last_mut() {
            Some(last) if last.offset.saturating_add(last.len) == run.offset => {
                last.len = last.len.saturating_add(run.len);
            }
            _ => found.push(run),
        }
    }
    Ok(found)
}

/// Where a segment of so many extents lies; else why it is not read.
fn run(
    segment: &Section<'_>,
    count: u64,
    extent_size: u64,
    all: &BTreeMap<&str, Known>,
) -> Result<LinearRun, String> {
    let kind = segment.text("type").unwrap_or("");
    match (kind, segment.number("stripe_count")) {
        ("striped" | "linear", Some(1)) => {}
        ("striped", Some(stripes)) => return Err(format!("it is striped over {stripes}")),
        _ => return Err(format!("it is of type {:?}", cut(kind, MOST_NAME))),
    }
    let [Value::Text(on), Value::Number(Some(first))] = segment.list("stripes") else {
        return Err("a segment says not where it lies".to_owned());
    };
    let Some(known) = all.get(on) else {
        let on = cut(on, MOST_NAME);
        return Err(format!("it lies in part on {on:?}, which is no physical volume"));
    };
    let on = cut(on, MOST_NAME);
    let place = known.place.clone()?;
    let (pe_start, extents) = known.room.clone()?;
    let within = first.checked_add(count).is_some_and(|end| end <= extents);
    let offset = first.checked_mul(extent_size).and_then(|bytes| bytes.checked_add(pe_start));
    let len = count.checked_mul(extent_size);
    let (Some(offset), Some(len), true) = (offset, len, within) else {
        return Err(format!("{count} extents from {first} on are not within the {extents} of {on}"));
    };
    if offset.checked_add(len).is_none_or(|end| end > place.len) {
        let has = place.len;
        return Err(format!(
            "{len} bytes at {offset} of {on} are not within its {has}: the image is cut short"
        ));
    }
    Ok(LinearRun { offset: place.offset.saturating_add(offset), len })
}
