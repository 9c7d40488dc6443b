//! Logical volumes in an image or on a block device: which there are, and one of them as a store.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use nearside_fsview::lvm::{self, Group, Groups, groups};
use nearside_fsview::magic::what_is;
use nearside_fsview::{Error, Source, State, Volume, VolumeInfo};
use nearside_store::{Disk, Mapped, ReadAt, Standing, Store};

use crate::AnyStore;
use crate::partition::Logical;

/// Volumes of which it is seen what lies in them.
const MOST_LOOKED_INTO: usize = 1024;
/// Names in a message.
const NAMED: usize = 16;

/// A logical volume, and what lies in it.
#[derive(Clone, Debug)]
pub struct LogicalVolume {
    /// Its group's name, which another group may have as well.
    pub group: String,
    /// Its group's UUID, as LVM writes it.
    pub group_uuid: String,
    /// Its own name.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// Whether [`AnyStore::logical_volume`] opens it.
    pub readable: bool,
    /// The file system; else what there is in its place, or why the volume is not read, in words.
    pub content: Result<VolumeInfo, String>,
}

impl AnyStore {
    /// The logical volumes of a file, a block device or a disk image, by group, and what a user should know
    /// beside them, as of damaged metadata; none of another store, and none that are parts of others.
    ///
    /// # Errors
    /// `InvalidData` where the table of partitions contradicts itself; else the file's. All name it.
    pub fn logical_volumes(&self) -> io::Result<(Vec<LogicalVolume>, Vec<String>)> {
        let Some(disk) = self.disk() else { return Ok(Default::default()) };
        let (groups, mut warnings) = groups_of(&disk, None)?;
        let mut found = Vec::new();
        for group in &groups {
            warnings.extend(unsure(&disk, group));
            for volume in group.volumes.iter().filter(|volume| volume.visible) {
                let runs = volume.runs.as_ref().map_err(String::clone);
                let runs = runs.and_then(|runs| mapped(&disk, runs).map_err(|e| e.to_string()));
                let readable = runs.is_ok();
                let content = match runs {
                    Ok(_) if found.len() >= MOST_LOOKED_INTO => Err("not looked into".to_owned()),
                    runs => runs.and_then(content),
                };
                found.push(LogicalVolume {
                    group: group.name.clone(),
                    group_uuid: group.uuid(),
                    name: volume.name.clone(),
                    len: volume.len,
                    readable,
                    content,
                });
            }
        }
        Ok((found, warnings))
    }

    /// A logical volume of a file, a block device or a disk image, by its group's name or UUID and its own
    /// name; what is damaged beside it is in [`AnyStore::notes`], and in [`Store::standing`] what is known of
    /// its bytes where the group lies in members of arrays. With a partition's number: of a group of which
    /// that is a physical volume.
    ///
    /// # Errors
    /// `NotFound` where there is none of that name, with those there are and what is damaged; `InvalidInput`
    /// where two groups have that name; `Unsupported` where it is not read, with the reason; else as
    /// [`AnyStore::logical_volumes`].
    pub fn logical_volume(&self, partition: Option<u32>, wanted: &Logical) -> io::Result<AnyStore> {
        let Logical { group, name } = wanted;
        let Some(disk) = self.disk() else {
            let why = "logical volumes are read from files, block devices and disk images";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let named = |kind, why: String| io::Error::new(kind, format!("{}: {why}", disk.path().display()));
        let (mut all, damaged) = groups_of(&disk, partition)?;
        all.retain(|known| partition.is_none_or(|number| known.partitions.contains(&number)));
        let missing = |what: String, there: Vec<&str>| {
            let beside = damaged.first().map(|first| format!("; {first}")).unwrap_or_default();
            Err(named(io::ErrorKind::NotFound, format!("no {what}; there are {}{beside}", listed(&there))))
        };
        let called: Vec<&Group> = all.iter().filter(|known| known.is_called(group)).collect();
        let found = match &called[..] {
            [one] => *one,
            [] => {
                let of = partition.map(|number| format!(" in partition {number}")).unwrap_or_default();
                let names = all.iter().map(|known| &*known.name).collect();
                return missing(format!("volume group {group:?}{of}"), names);
            }
            several => {
                let uuids: Vec<String> = several.iter().map(|known| known.uuid()).collect();
                let uuids = listed(&uuids.iter().map(String::as_str).collect::<Vec<_>>());
                let why = format!("{group:?} is more than one volume group; its UUID says which: {uuids}");
                return Err(named(io::ErrorKind::InvalidInput, why));
            }
        };
        let Some(volume) = found.volumes.iter().find(|known| known.name == *name) else {
            let names =
                found.volumes.iter().filter(|known| known.visible).map(|known| &*known.name).collect();
            return missing(format!("logical volume {name:?} in {group:?}"), names);
        };
        match &volume.runs {
            Ok(runs) => {
                let volume = mapped(&disk, runs)?.with_notes(damaged);
                Ok(AnyStore::Mapped(volume.with_standing(standing(found))))
            }
            Err(why) => Err(named(io::ErrorKind::Unsupported, format!("{group}/{name} is not read: {why}"))),
        }
    }

    fn disk(&self) -> Option<Disk> {
        match self {
            AnyStore::File(file) => Some(Disk::File(file.clone())),
            AnyStore::Qcow2(image) => Some(Disk::Qcow2(image.clone())),
            _ => None,
        }
    }
}

fn mapped(disk: &Disk, runs: &[lvm::LinearRun]) -> io::Result<Mapped> {
    Mapped::new(disk.clone(), runs.iter().map(|run| run.offset..run.offset.saturating_add(run.len)))
}

/// The first names, and how many more there are.
fn listed(names: &[&str]) -> String {
    match names.split_at_checked(NAMED) {
        _ if names.is_empty() => "none".to_owned(),
        Some((first, rest)) if !rest.is_empty() => format!("{first:?} and {} more", rest.len()),
        _ => format!("{names:?}"),
    }
}

/// In what a group's bytes may be other than those of the arrays in whose members they lie.
fn unsure(disk: &Disk, group: &Group) -> impl Iterator<Item = String> {
    let path = disk.path().display();
    let unsure = group.standings.iter().filter_map(|standing| standing.unsure.as_ref());
    unsure.map(move |text| format!("{path}: {text}"))
}

/// The same, and as of when they are.
fn standing(group: &Group) -> Standing {
    let unsure = group.standings.iter().filter_map(|standing| standing.unsure.clone());
    let known = group.standings.iter().map(|standing| standing.known.clone());
    Standing { unsure: once(unsure), known: once(known.filter(|known| !known.is_empty())) }
}

/// Each text once.
fn once(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// The groups of a disk, and what is damaged beside them. With a partition's number, that in it counts among
/// clones.
fn groups_of(disk: &Disk, partition: Option<u32>) -> io::Result<(Vec<Group>, Vec<String>)> {
    let path = disk.path().display();
    let found = now(groups(&Bytes::of(disk.reader(), disk.capacity()), partition));
    let Groups { groups, warnings } = found.map_err(|error| {
        let kind = match error {
            Error::Read { .. } => io::ErrorKind::Other,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, format!("{path}: {error}"))
    })?;
    Ok((groups, warnings.iter().map(|text| format!("{path}: {text}")).collect()))
}

fn content(volume: Mapped) -> Result<VolumeInfo, String> {
    let source = Bytes::of(volume.reader(), volume.capacity());
    // What is said of it does not hang on its log, which may be long.
    match now(Volume::open_as(&source, State::Home)) {
        Ok(volume) => Ok(volume.info().clone()),
        Err(Error::NoFileSystem) => Err(match now(what_is(&source)) {
            Ok(other) => other.map_or("not known", |other| other.name).to_owned(),
            Err(error) => error.to_string(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// Bytes that are read in calls that wait.
struct Bytes {
    reader: RefCell<Box<dyn ReadAt>>,
    len: u64,
}

impl Bytes {
    fn of(reader: Box<dyn ReadAt>, len: u64) -> Bytes {
        Bytes { reader: RefCell::new(reader), len }
    }
}

impl Source for Bytes {
    type Block = Rc<[u8]>;

    fn len(&self) -> u64 {
        self.len
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Rc<[u8]>, Error> {
        let failed = |reason: String| Error::Read { at: offset, len, reason };
        if offset.checked_add(len.into()).is_none_or(|end| end > self.len) {
            return Err(failed("it lies outside the volume".into()));
        }
        let mut bytes = vec![0; len as usize];
        self.reader.borrow_mut().read_at(offset, &mut bytes).map_err(|e| failed(e.to_string()))?;
        Ok(bytes.into())
    }
}

/// Runs a future that never waits to its end.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}
