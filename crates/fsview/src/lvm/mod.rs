//! Volume groups of LVM2: which logical volumes there are, and where their bytes lie.
//!
//! The source is a whole drive, which is a physical volume or has partitions that are, also as members of a
//! RAID 1. What is read are labels and the text of the groups' metadata; every number in it is checked. What
//! is damaged is said and hides nothing else; a volume that is made otherwise than of runs of this drive's
//! bytes (thin, RAID, mirrors, snapshots, on another drive) is there with the reason why it is not read.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod group;
mod label;
mod text;

use crate::partition::{Partition, partitions};
use crate::raid::{Member, Standing, at_beginning, behind, member};
use crate::{Error, Source};

/// Partitions that are looked at.
const MOST_PARTITIONS: usize = 128;

/// What LVM has on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The volume groups that could be read, by name. Two may have the same one.
    pub groups: Vec<Group>,
    /// What a user should know beside them: which labels and copies of groups' metadata are damaged.
    pub warnings: Vec<String>,
}

/// A volume group, as the newest of its metadata on the drive has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Numbers of the partitions that are physical volumes of it; 0: the whole drive is.
    pub partitions: Vec<u32>,
    /// What is known of the members of arrays in which its physical volumes lie here, each thing once.
    pub standings: Vec<Standing>,
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
    /// Whether it is its user's, and no part of another, as lvs has it.
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

impl Group {
    /// Its identifier, as LVM's programs write it.
    pub fn uuid(&self) -> String {
        let mut uuid = String::new();
        for (nr, char) in self.id.chars().enumerate() {
            if matches!(nr, 6 | 10 | 14 | 18 | 22 | 26) {
                uuid.push('-');
            }
            uuid.push(char);
        }
        uuid
    }

    /// Whether this is meant by a word: its name, or its identifier with dashes or without.
    pub fn is_called(&self, word: &str) -> bool {
        self.name == word || self.id == group::undashed(word)
    }
}

/// A physical volume that was found.
#[derive(Clone, Debug)]
struct Physical {
    /// Of the partition; 0: the whole drive.
    number: u32,
    place: Place,
    label: label::Label,
    /// What is known of the member of an array in which it lies.
    standing: Option<Standing>,
}

/// The volume groups of a drive; none where it has no physical volume, or only such as are in no group. With
/// a partition's number, of physical volumes with one identifier that in it counts alone: others are clones.
///
/// # Errors
/// [`Error::Corrupt`] where the drive's table of partitions contradicts itself; [`Error::Read`].
pub async fn groups<S: Source>(source: &S, partition: Option<u32>) -> Result<Groups, Error> {
    let mut found = Groups::default();
    let mut physical = physical(source, &mut found.warnings).await?;
    if let Some(wanted) = physical.iter().find(|volume| Some(volume.number) == partition).cloned() {
        physical.retain(|volume| volume.number == wanted.number || volume.label.id != wanted.label.id);
    }
    for volume in &physical {
        for area in &volume.label.areas {
            let read = match label::text(source, volume.place, *area).await {
                Ok(Some((at, text))) => group::group(&text, at, &physical, &mut found.warnings),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            if let Some(group) = undamaged(read, &mut found.warnings)? {
                keep(&mut found.groups, group);
            }
        }
    }
    found.groups.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(found)
}

/// What is damaged is noted, and nothing for the rest.
fn undamaged<T>(read: Result<Option<T>, Error>, warnings: &mut Vec<String>) -> Result<Option<T>, Error> {
    match read {
        Err(error @ Error::Corrupt { .. }) => {
            warnings.push(error.to_string());
            Ok(None)
        }
        read => read,
    }
}

/// Of several copies of a group's metadata the newest.
fn keep(found: &mut Vec<Group>, group: Group) {
    match found.iter_mut().find(|known| known.id == group.id) {
        Some(known) if known.seqno < group.seqno => *known = group,
        Some(_) => {}
        None => found.push(group),
    }
}

/// The physical volumes of a drive: itself, or partitions of it. As LVM's own filter has it, the label of a
/// drive with partitions is from before it had them.
async fn physical<S: Source>(source: &S, warnings: &mut Vec<String>) -> Result<Vec<Physical>, Error> {
    let table = partitions(source).await;
    let mut found = Vec::new();
    if !table.as_ref().is_ok_and(|table| !table.is_empty()) {
        let whole = Place { offset: 0, len: source.len() };
        found.extend(undamaged(physical_at(source, 0, whole).await, warnings)?);
        match table {
            Err(error @ Error::Corrupt { .. }) if !found.is_empty() => warnings.push(error.to_string()),
            table => drop(table?),
        }
        return Ok(found);
    }
    let table = table?;
    for partition in table.iter().take(MOST_PARTITIONS) {
        let place = Place { offset: partition.offset, len: partition.len };
        found.extend(undamaged(physical_at(source, partition.number, place).await, warnings)?);
    }
    of_whole(source, &table, &mut found).await;
    Ok(found)
}

/// The whole drive may be the member, and the partitions the array's. Where its end cannot be read, it is no
/// matter of theirs.
async fn of_whole<S: Source>(source: &S, table: &[Partition], found: &mut [Physical]) {
    if found.iter().all(|volume| volume.standing.is_some()) {
        return;
    }
    let ends = table.iter().map(|partition| partition.offset.saturating_add(partition.len));
    let standing = behind(source, 0, source.len(), ends.max().unwrap_or(0)).await.ok().flatten();
    for volume in found.iter_mut().filter(|volume| volume.standing.is_none()) {
        volume.standing.clone_from(&standing);
    }
}

/// The physical volume at a place, or in the array of which that is a member.
async fn physical_at<S: Source>(source: &S, number: u32, place: Place) -> Result<Option<Physical>, Error> {
    let Place { offset, len } = place;
    match at_beginning(source, offset, len).await {
        // The array's bytes lie behind its superblock: a label before them is from before the array.
        Ok(Some(member)) => return in_array(source, number, member).await,
        // What another array holds is not known here.
        Err(Error::Unsupported(_)) => return Ok(None),
        Ok(None) | Err(Error::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    if let Some(label) = label::label(source, place).await? {
        let standing = behind(source, offset, len, label.size).await?;
        return Ok(Some(Physical { number, place, label, standing }));
    }
    match member(source, offset, len).await {
        Ok(Some(member)) => in_array(source, number, member).await,
        Ok(None) | Err(Error::Unsupported(_) | Error::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The physical volume that an array is, of which this is a member.
async fn in_array<S: Source>(source: &S, number: u32, member: Member) -> Result<Option<Physical>, Error> {
    let Member { offset, len, standing } = member;
    let place = Place { offset, len };
    let label = label::label(source, place).await?;
    Ok(label.map(|label| Physical { number, place, label, standing: Some(standing) }))
}
