//! How a request ends, and where its results go. Requests, records and failures are [`nearside_near_data`]'s.

use std::borrow::Cow;

use nearside_fsview::Recovery;
use nearside_fsview::raid::Standing;
use nearside_near_data::{Counters, Cursor, Failure, FileEntry, Inodes, Record, Recovered, VolumeRecord};

/// Most symbolic links on the way to one file, as the kernel has it.
pub const MAX_LINKS: u32 = 40;

/// How a request ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// `None`: well.
    pub failure: Option<Failure>,
    /// What it cost.
    pub counters: Counters,
    /// Where to go on; the sink was full.
    pub more: Option<Cursor>,
}

/// No room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where an answer was, to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub usize, pub u32);

/// What is known of a namespace's bytes by what they lie in, one sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beneath {
    /// In what they may be other than they should be: a warning of each answer.
    pub unsure: Vec<String>,
    /// As of when they are: for who asks what the volume is.
    pub known: Vec<String>,
}

impl Beneath {
    /// All of it, where there is no record of a volume to hold it.
    pub(crate) fn all(&self) -> impl Iterator<Item = Record<'_>> {
        let all = self.unsure.iter().chain(&self.known);
        all.map(|text| Record::Warning { text: text.as_str().into(), unstable: false })
    }
}

/// Takes results, up to some size.
pub trait Sink {
    /// Takes a record, where afterwards a cursor still fits whose path has `path_len` bytes.
    ///
    /// # Errors
    /// [`Full`]: it does not fit. The record is not taken; the command ends with a cursor.
    fn push(&mut self, record: Record<'_>, path_len: usize) -> Result<(), Full>;

    /// Most bytes of a `Line` or `Data` that fit now, with such a cursor.
    fn room(&self, path_len: usize) -> usize;

    /// Where it is.
    fn mark(&self) -> Mark;

    /// Forgets what came after a mark.
    fn rollback(&mut self, mark: Mark);
}

/// What the view of a volume says, in the words of near-data work.
pub(crate) fn of_view(error: nearside_fsview::Error) -> Failure {
    use nearside_fsview::Error;
    match error {
        Error::NoFileSystem => Failure::NoVolume(error.to_string()),
        Error::Corrupt { .. } | Error::WrongKind => Failure::CorruptVolume(error.to_string()),
        Error::Unsupported(what) => Failure::UnsupportedFeature(what),
        Error::NotADirectory => Failure::NotADirectory,
        Error::Read { .. } => Failure::MediumError(error.to_string()),
    }
}

/// A file's metadata, as a record.
pub(crate) fn entry<'a>(
    path: &'a [u8],
    inode: &nearside_fsview::Inode,
    link: Option<&'a [u8]>,
) -> Record<'a> {
    Record::Entry(file_entry(path, inode, link))
}

/// A file's metadata.
pub(crate) fn file_entry<'a>(
    path: &'a [u8],
    inode: &nearside_fsview::Inode,
    link: Option<&'a [u8]>,
) -> FileEntry<'a> {
    let time = |t: nearside_fsview::Timestamp| (t.seconds, t.nanoseconds);
    FileEntry {
        path: path.into(),
        ino: inode.ino.0.into(),
        mode: inode.mode,
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        sectors: inode.sectors,
        rdev: inode.rdev,
        times: [time(inode.atime), time(inode.mtime), time(inode.ctime)],
        birth: inode.crtime.map(time),
        link: link.map(Into::into),
        attributes: inode.may_have_attributes,
    }
}

/// What a volume says of itself.
pub(crate) fn volume<'v>(
    partition: u32,
    (offset, len): (u64, u64),
    info: &'v nearside_fsview::VolumeInfo,
    standing: Option<&'v Standing>,
    beneath: &'v Beneath,
) -> Record<'v> {
    let known = standing.map(|standing| &standing.known).filter(|known| !known.is_empty());
    let known = known.into_iter().chain(&beneath.known).map(|text| Cow::from(text.as_str()));
    Record::Volume(VolumeRecord {
        partition,
        offset,
        len,
        file_system: info.file_system.into(),
        label: info.label.as_str().into(),
        uuid: info.uuid,
        block_size: info.block_size,
        blocks: info.blocks,
        features: info.features.iter().map(|text| text.as_str().into()).collect(),
        needs_recovery: info.needs_recovery,
        unstable: info.stale.is_some(),
        recovered: (info.recovery != Recovery::default()).then_some(Recovered {
            transactions: info.recovery.transactions,
            fast_commits: info.recovery.fast_commits,
            nodes: info.recovery.nodes,
            up_to: info.recovery.up_to,
        }),
        inodes: Some(Inodes { all: info.inodes, used: info.inodes_used }),
        warnings: warnings(info, standing, beneath).map(|(text, _)| text).chain(known).collect(),
    })
}

/// What a user should know of the volume, maybe an array's member's; true with what says that it is unstable.
pub(crate) fn warnings<'v>(
    info: &'v nearside_fsview::VolumeInfo,
    standing: Option<&'v Standing>,
    beneath: &'v Beneath,
) -> impl Iterator<Item = (Cow<'v, str>, bool)> {
    let unsure = standing.and_then(|standing| standing.unsure.as_ref());
    let known = info.warnings.iter().chain(unsure).chain(&beneath.unsure);
    let known = known.map(|text| (text.as_str().into(), false));
    known.chain(info.unstable().map(|text| (text.into(), true)))
}
