//! Volume groups of LVM2: which logical volumes there are, and where their bytes lie.
//!
//! The source is a whole drive, which is a physical volume or has partitions that are, also as members of a
//! RAID 1. What is read are labels
//! and the text of the groups' metadata; every number in it is checked, and a volume that is made otherwise
//! than of runs of this drive's bytes (thin, RAID, mirrors, snapshots, on another drive) is there with the
//! reason why it is not read.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod group;
mod label;
mod text;

use crate::partition::partitions;
use crate::raid::{Member, member};
use crate::{Error, Source};

/// Partitions that are looked at.
const MOST_PARTITIONS: usize = 128;

/// A volume group, as the newest of its metadata on the drive has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its identifier, without dashes.
    pub id: String,
    /// How often it was changed: of several copies of its metadata the highest counts.
    pub seqno: u64,
    /// Bytes of an extent.
    pub extent_size: u64,
    /// Its logical volumes, in its order.
    pub volumes: Vec<LogicalVolume>,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalVolume {
    /// Its name in its group.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// Whether it is its user's, and no part of another.
    pub visible: bool,
    /// Where its bytes lie, in their order and without gaps; else why it is not read.
    pub runs: Result<Vec<LinearRun>, String>,
}

/// Bytes of a logical volume that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearRun {
    /// The first one's place on the drive.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Part of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: u64,
    len: u64,
}

/// A physical volume that was found.
#[derive(Clone, Debug)]
struct Physical {
    place: Place,
    label: label::Label,
}

/// The volume groups of a drive, by name; none where it has no physical volume, or only such as are in no
/// group.
///
/// # Errors
/// [`Error::Corrupt`] where a label contradicts itself, or no copy of a group's metadata is whole;
/// [`Error::Read`].
pub async fn groups<S: Source>(source: &S) -> Result<Vec<Group>, Error> {
    let physical = physical(source).await?;
    let mut found: Vec<Group> = Vec::new();
    let mut damaged = None;
    for volume in &physical {
        for area in &volume.label.areas {
            let read = match label::text(source, volume.place, *area).await {
                Ok(Some((at, text))) => group::group(&text, at, &physical),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match read {
                Ok(Some(group)) => keep(&mut found, group),
                Ok(None) => {}
                Err(error @ Error::Corrupt { .. }) => damaged = damaged.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
    }
    if let Some(error) = damaged.filter(|_| found.is_empty()) {
        return Err(error);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Of several copies of a group's metadata the newest.
fn keep(found: &mut Vec<Group>, group: Group) {
    match found.iter_mut().find(|known| known.id == group.id) {
        Some(known) if known.seqno < group.seqno => *known = group,
        Some(_) => {}
        None => found.push(group),
    }
}

/// The physical volumes of a drive: itself, or partitions of it.
async fn physical<S: Source>(source: &S) -> Result<Vec<Physical>, Error> {
    let whole = Place { offset: 0, len: source.len() };
    if let Some(found) = physical_at(source, whole).await? {
        return Ok(vec![found]);
    }
    let mut found = Vec::new();
    for partition in partitions(source).await?.iter().take(MOST_PARTITIONS) {
        let place = Place { offset: partition.offset, len: partition.len };
        found.extend(physical_at(source, place).await?);
    }
    Ok(found)
}

/// The physical volume at a place, or in the array of which that is a member.
async fn physical_at<S: Source>(source: &S, place: Place) -> Result<Option<Physical>, Error> {
    if let Some(label) = label::label(source, place).await? {
        return Ok(Some(Physical { place, label }));
    }
    let place = match member(source, place.offset, place.len).await {
        Ok(Some(Member { offset, len })) => Place { offset, len },
        // What another array holds is not known here.
        Ok(None) | Err(Error::Unsupported(_) | Error::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(label::label(source, place).await?.map(|label| Physical { place, label }))
}
