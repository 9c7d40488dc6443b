#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A [`Record`] borrows its bytes where it can: from the retriever's buffers on the way out, from the reply's
//! on the way in. NVMe status covers carriage and form; what became of the files is in [`Reply::failure`] and
//! the records. [`wire`] is the codec.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

extern crate alloc;

use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;

mod fnmatch;
mod glob;
mod operations;
mod paths;
pub mod wire;

pub use fnmatch::{Reading, fnmatch};
pub use glob::{Globs, Matching};
pub use operations::{
    Aggregate, Answer, Code, ColumnType, Comparison, Digest, Element, Function, GatherOptions, KINDS, Kind,
    Language, Literal, MAX_AGGREGATES, MAX_COLUMN_NAME, MAX_COLUMNS, MAX_FIELDS, MAX_NEAREST, MAX_PARAMETERS,
    MAX_REGEX_NEST, MAX_REGEX_TEXT, MAX_REGEXES, MAX_ROW_GROUPS, MAX_TERM_TEXT, MAX_TERMS, Measure,
    NearestOptions, Operation, ParseError, Pooling, ProgramOptions, RowFormat, RuleParameters, SearchOptions,
    SelectOptions, Table, Term, Variable,
};
pub use paths::Paths;

/// Longest path, in bytes (PATH_MAX less its terminator).
pub const MAX_PATH: usize = 4095;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// Most supplementary groups in a request.
pub const MAX_GROUPS: usize = 1024;
/// Most paths in a request ([`Target::Paths`]).
pub const MAX_PATHS: usize = 4096;
/// Longest request.
pub const MAX_REQUEST: usize = 128 * 1024;
/// Largest buffer of one near-data command, for request and reply.
pub const MAX_BUFFER: usize = 1024 * 1024;

/// A near-data request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Which partition holds the volume: 0 the only one with a known file system (or the whole namespace),
    /// else its number.
    pub partition: u32,
    /// For whom permissions are checked.
    pub credentials: Credentials,
    /// Which files.
    pub target: Target,
    /// What to do with them.
    pub operation: Operation,
    /// Follow a symbolic link that is the last component (intermediate ones are always followed).
    pub follow: bool,
    /// Where an earlier reply that had more to say left off.
    pub resume: Option<Cursor>,
}

/// Who asks (DAC'23 III-B: the paper sends uid and gid; all supplementary groups count as well).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Which files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// No file: for `Nop` and `Info`.
    Volume,
    /// One absolute path, as it is: no byte of it stands for anything else.
    Path(Vec<u8>),
    /// All regular files (for `List`: all entries) below an absolute path, symbolic links not followed below
    /// it: in byte order of names, but for directories of more than 128 KiB, whose entries come in the
    /// directory's own order. Patterns ([`Globs`]) restrict which files, matched against the base name (with
    /// '/', against the path below the root of the tree); those that match `exclude` are left out,
    /// directories with all below them.
    Tree {
        /// Root of the tree; a regular file is a tree of one.
        root: Vec<u8>,
        /// Only these.
        include: Vec<Vec<u8>>,
        /// Not these.
        exclude: Vec<Vec<u8>>,
        /// Deepest level: 0 is the root itself; `u32::MAX` for no limit.
        max_depth: u32,
    },
    /// An absolute path that is a pattern ([`Globs`]), matched in the drive. Symbolic links before the first
    /// name that is a pattern are followed, and none behind it.
    Glob(Vec<u8>),
    /// The existing near-data path: the host has located the data. Ranges of the namespace in bytes, in file
    /// order; `None` offsets are holes.
    Blocks {
        /// The file's size: ranges are cut there.
        size: u64,
        /// Where its bytes lie, in file order.
        ranges: Vec<BlockRange>,
    },
    /// Many paths, each as if it were asked about alone: what is answered about it, with an empty path, and
    /// then a [`Record::Answered`], in the paths' order. For operations that answer little
    /// ([`Kind::brief`]). What is answered about a path is in one reply; a cursor's places say with
    /// which the next begins.
    Paths(Paths),
}

/// A piece of a file, found by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Byte of the namespace, a multiple of 512; [`EXTENT_ZEROS`] for a hole.
    pub offset: u64,
    /// Bytes, a multiple of 512.
    pub len: u64,
}

impl BlockRange {
    /// Where it lies; `None`: in a hole.
    pub fn place(&self) -> Option<u64> {
        (self.offset != EXTENT_ZEROS).then_some(self.offset)
    }
}

/// A place in a long answer at which the next command goes on. Stateless: the drive keeps nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Path of the file (or directory entry) to go on with.
    pub path: Vec<u8>,
    /// Where in the directories of the path it is. The drive's own: sent back as it came.
    pub places: Vec<u8>,
    /// Byte in that file at which a line begins.
    pub offset: u64,
    /// Number of that line, from 1 (0: from the start of the file).
    pub line: u64,
    /// Lines found in that file so far, for `max_count` and counts.
    pub found: u64,
    /// Bytes of the line at `offset` that were delivered already (a line may be longer than a buffer).
    pub within: u64,
    /// Lines of context still owed after the last match; of matched parts, those of the line at `offset` that
    /// were delivered.
    pub pending: u32,
    /// For [`Record::Total`], which the last reply carries.
    pub totals: SearchTotals,
}

/// Totals of a search over all its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchTotals {
    /// Files looked at.
    pub files: u64,
    /// Files with a match.
    pub files_matched: u64,
    /// Lines or matches.
    pub matches: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply<'a> {
    /// Why the request as a whole failed; `None`: it was done.
    pub failure: Option<Failure>,
    /// What it cost.
    pub counters: Counters,
    /// The results.
    pub records: Vec<Record<'a>>,
    /// Set where the buffer was full: send the same request with this to get the rest.
    pub more: Option<Cursor>,
}

/// Why a request, or one file of it, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No such file or directory.
    NotFound,
    /// Permission denied.
    PermissionDenied,
    /// A component is not a directory.
    NotADirectory,
    /// The operation needs a regular file and this is a directory.
    IsADirectory,
    /// The operation cannot read a file of that kind (device, pipe, socket).
    NotARegularFile,
    /// Too many symbolic links (40, as the kernel), or a cycle.
    SymlinkLoop,
    /// A name longer than 255 bytes, or a path longer than 4095.
    NameTooLong,
    /// The path is not absolute.
    NotAbsolute,
    /// The file changed while it was read, more often than the drive tries again.
    ChangedDuringScan,
    /// The volume or the file uses a feature that the drive does not understand; its name.
    UnsupportedFeature(String),
    /// The volume contradicts itself; what and where.
    CorruptVolume(String),
    /// The store failed; what and where.
    MediumError(String),
    /// The pattern does not compile; why.
    InvalidPattern(String),
    /// The request makes no sense; why.
    InvalidRequest(String),
    /// No known file system, or several partitions; what there is.
    NoVolume(String),
    /// A line is longer than 64 MiB; where it starts.
    LineTooLong(String),
    /// Cancelled.
    Cancelled,
    /// Permission denied to the user that the drive takes the caller for; which, and why.
    DeniedAs(String),
    /// Permission denied, since what the volume says of its files may be out of date, and their blocks
    /// another file's; why.
    NeedsRecovery(String),
    /// The file is not such a table, or has no such row; which, in a sentence.
    NotATable(String),
    /// What a file holds is not what its form says: compressed data that are not whole; of which form, and
    /// why.
    CorruptFile(String),
    /// The program that was to be run over a file did not come to its end; why.
    ProgramFailed(String),
}

/// What a request cost in the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of file data that the operation saw.
    pub bytes_scanned: u64,
    /// Metadata and data blocks read from the store, in volume blocks.
    pub blocks_read: u64,
    /// Lookups of inodes and names that the crawler's cache answered.
    pub cache_hits: u64,
    /// Lookups that the crawler's cache did not answer.
    pub cache_misses: u64,
    /// Files that were located.
    pub files: u64,
    /// Nanoseconds spent locating (path crawler: names, inodes, permission, mapping).
    pub locate_ns: u64,
    /// Nanoseconds spent reading data and computing.
    pub compute_ns: u64,
}

/// [`Record::Extent`]'s offset for zeros.
pub const EXTENT_ZEROS: u64 = u64::MAX;
/// [`Record::Extent`]'s offset for data inside the inode.
pub const EXTENT_INLINE: u64 = u64::MAX - 1;

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// The records that follow are about this file.
    File {
        /// Its path.
        path: Cow<'a, [u8]>,
        /// Bytes.
        size: u64,
    },
    /// One file failed; the request goes on.
    Failed {
        /// Its path.
        path: Cow<'a, [u8]>,
        /// Why.
        failure: Failure,
    },
    /// A line that matched, or a part of it.
    Line {
        /// Line number, from 1; 0 where numbers were not asked for.
        number: u64,
        /// Byte offset in the file of the first byte of `bytes`.
        offset: u64,
        /// Without the line's end.
        bytes: Cow<'a, [u8]>,
        /// A line of context, not a match.
        context: bool,
        /// The line was longer than the room left: its bytes go on in the next `Line` of the file.
        continues: bool,
    },
    /// How many lines of the file matched.
    Matches(u64),
    /// The file has a NUL byte and matched.
    BinaryMatches,
    /// Lines, words, bytes.
    Count {
        /// Newlines.
        lines: u64,
        /// Words: runs of bytes other than ASCII white space.
        words: u64,
        /// Bytes.
        bytes: u64,
    },
    /// A checksum.
    Digest {
        /// Which.
        kind: Digest,
        /// Its bytes.
        value: Cow<'a, [u8]>,
    },
    /// Bytes of a range.
    Data {
        /// Where in the file.
        offset: u64,
        /// The bytes.
        bytes: Cow<'a, [u8]>,
    },
    /// A file's metadata.
    Entry(FileEntry<'a>),
    /// A name: all that was asked for ([`Operation::Names`]), or in a directory that the user may read but
    /// not search: of what it names there is no more to be had.
    Name {
        /// Path (Stat, Tree) or name (List of a directory).
        path: Cow<'a, [u8]>,
        /// The type bits of a mode, as the directory has them; 0: it does not say.
        kind: u16,
    },
    /// A run of the file's bytes.
    Extent {
        /// First byte in the file.
        from: u64,
        /// Bytes.
        len: u64,
        /// Byte of the namespace, or [`EXTENT_ZEROS`], or [`EXTENT_INLINE`].
        offset: u64,
    },
    /// Totals over all files.
    Total(SearchTotals),
    /// The volume.
    Volume(VolumeRecord<'a>),
    /// Something that the user should know.
    Warning {
        /// What.
        text: Cow<'a, str>,
        /// That what lies in a file's blocks may be another's: the volume's medium promises no more.
        unstable: bool,
    },
    /// All has been said about one of [`Target::Paths`], or why it failed. The records that follow are about
    /// the next.
    Answered(Option<Failure>),
    /// A row of a table, or what was made of a bag of rows.
    Row {
        /// Which of the indices that were asked about; with pooling, which bag.
        number: u64,
        /// Its numbers: single precision, little-endian.
        values: Cow<'a, [u8]>,
    },
    /// A row that is near.
    Near {
        /// Its number, from 0.
        row: u64,
        /// The inner product, or the distance's square.
        score: f32,
    },
    /// An extended attribute, or a part of one.
    Attribute {
        /// Its name, with the namespace: `user.comment`.
        name: Cow<'a, [u8]>,
        /// Bytes of its value.
        len: u64,
        /// Where in it `value` begins.
        offset: u64,
        /// All of it, or as much as had room. ACLs are as system calls have them.
        value: Cow<'a, [u8]>,
    },
    /// Rows of a text table, or of groups.
    Batch {
        /// How many.
        rows: u64,
        /// Rows of the file that were passed over since the batch before.
        bad: u64,
        /// A stream of Arrow's, whole: a schema and one record batch.
        stream: Cow<'a, [u8]>,
    },
    /// What a program emitted, or a part of it.
    Emitted {
        /// The bytes.
        bytes: Cow<'a, [u8]>,
        /// There was no room for all of it: it goes on in the next `Emitted` of the file.
        continues: bool,
    },
}

/// Metadata, as `stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry<'a> {
    /// Path (Stat, Tree) or name (List of a directory).
    pub path: Cow<'a, [u8]>,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u16,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte units.
    pub sectors: u64,
    /// Device numbers.
    pub rdev: (u32, u32),
    /// Seconds and nanoseconds of atime, mtime, ctime.
    pub times: [(i64, u32); 3],
    /// Seconds and nanoseconds of birth, where the volume keeps it.
    pub birth: Option<(i64, u32)>,
    /// Target of a symbolic link.
    pub link: Option<Cow<'a, [u8]>>,
    /// Whether it has extended attributes, or may.
    pub attributes: bool,
}

impl<'a> FileEntry<'a> {
    /// What is known of a name in a directory that may be read and not searched ([`Record::Name`]): its type,
    /// and nothing more.
    pub fn of_name(path: Cow<'a, [u8]>, kind: u16) -> Self {
        Self {
            path,
            ino: 0,
            mode: kind,
            links: 0,
            uid: 0,
            gid: 0,
            size: 0,
            sectors: 0,
            rdev: (0, 0),
            times: [(0, 0); 3],
            birth: None,
            link: None,
            attributes: false,
        }
    }

    /// Whether a name and a type are all: no inode has the number 0.
    pub fn is_name_alone(&self) -> bool {
        self.ino == 0
    }
}

/// What recovery has added to what lies in home locations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Committed transactions of ext4's journal.
    pub transactions: u64,
    /// Fast commits behind them.
    pub fast_commits: u64,
    /// Nodes of F2FS's roll-forward.
    pub nodes: u64,
    /// The last transaction (ext4) or checkpoint version (F2FS) that is shown.
    pub up_to: u64,
}

/// The inodes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inodes {
    /// How many there can be.
    pub all: u64,
    /// How many are in use, as the volume last noted it: that may be some time ago where it is mounted.
    pub used: u64,
}

/// What a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeRecord<'a> {
    /// Partition number, 0 for the whole namespace.
    pub partition: u32,
    /// First byte in the namespace.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// "ext4", "f2fs", ...; empty: unknown.
    pub file_system: Cow<'a, str>,
    /// Label.
    pub label: Cow<'a, str>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Feature names.
    pub features: Vec<Cow<'a, str>>,
    /// Whether a journal or log needs recovery, which this view has not done.
    pub needs_recovery: bool,
    /// Whether what lies in a file's blocks may be another's: the volume's medium promises no more.
    pub unstable: bool,
    /// What this view shows of a journal or log beyond home locations; `None`: nothing.
    pub recovered: Option<Recovered>,
    /// Its inodes; `None`: the drive does not say, as older ones do not.
    pub inodes: Option<Inodes>,
    /// What a user should know.
    pub warnings: Vec<Cow<'a, str>>,
}

fn owned<'b, T: ToOwned + ?Sized>(bytes: Cow<'_, T>) -> Cow<'b, T> {
    Cow::Owned(bytes.into_owned())
}

impl Record<'_> {
    /// The record with bytes of its own, to be kept.
    pub fn into_owned<'b>(self) -> Record<'b> {
        match self {
            Record::File { path, size } => Record::File { path: owned(path), size },
            Record::Failed { path, failure } => Record::Failed { path: owned(path), failure },
            Record::Line { number, offset, bytes, context, continues } => {
                Record::Line { number, offset, bytes: owned(bytes), context, continues }
            }
            Record::Matches(lines) => Record::Matches(lines),
            Record::BinaryMatches => Record::BinaryMatches,
            Record::Count { lines, words, bytes } => Record::Count { lines, words, bytes },
            Record::Digest { kind, value } => Record::Digest { kind, value: owned(value) },
            Record::Data { offset, bytes } => Record::Data { offset, bytes: owned(bytes) },
            Record::Entry(entry) => Record::Entry(entry.into_owned()),
            Record::Name { path, kind } => Record::Name { path: owned(path), kind },
            Record::Extent { from, len, offset } => Record::Extent { from, len, offset },
            Record::Total(totals) => Record::Total(totals),
            Record::Volume(volume) => Record::Volume(volume.into_owned()),
            Record::Warning { text, unstable } => Record::Warning { text: owned(text), unstable },
            Record::Answered(failure) => Record::Answered(failure),
            Record::Row { number, values } => Record::Row { number, values: owned(values) },
            Record::Near { row, score } => Record::Near { row, score },
            Record::Attribute { name, len, offset, value } => {
                Record::Attribute { name: owned(name), len, offset, value: owned(value) }
            }
            Record::Batch { rows, bad, stream } => Record::Batch { rows, bad, stream: owned(stream) },
            Record::Emitted { bytes, continues } => Record::Emitted { bytes: owned(bytes), continues },
        }
    }
}

impl Reply<'_> {
    /// The reply with bytes of its own.
    pub fn into_owned<'b>(self) -> Reply<'b> {
        let Reply { failure, counters, records, more } = self;
        Reply { failure, counters, records: records.into_iter().map(Record::into_owned).collect(), more }
    }
}

impl FileEntry<'_> {
    /// The entry with a path and a link of its own.
    pub fn into_owned<'b>(self) -> FileEntry<'b> {
        let FileEntry {
            path,
            link,
            ino,
            mode,
            links,
            uid,
            gid,
            size,
            sectors,
            rdev,
            times,
            birth,
            attributes,
        } = self;
        let (path, link) = (owned(path), link.map(owned));
        FileEntry { path, link, ino, mode, links, uid, gid, size, sectors, rdev, times, birth, attributes }
    }
}

impl VolumeRecord<'_> {
    /// The record with texts of its own.
    pub fn into_owned<'b>(self) -> VolumeRecord<'b> {
        let VolumeRecord {
            partition,
            offset,
            len,
            uuid,
            block_size,
            blocks,
            needs_recovery,
            unstable,
            recovered,
            inodes,
            ..
        } = self;
        VolumeRecord {
            partition,
            offset,
            len,
            file_system: owned(self.file_system),
            label: owned(self.label),
            uuid,
            block_size,
            blocks,
            features: self.features.into_iter().map(owned).collect(),
            needs_recovery,
            unstable,
            recovered,
            inodes,
            warnings: self.warnings.into_iter().map(owned).collect(),
        }
    }
}
