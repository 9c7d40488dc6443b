//! Requests and answers, as the retriever knows them: the wire's form of them is the drive's business.

/// Longest path, in bytes.
pub const MAX_PATH: usize = 4095;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// Most symbolic links on the way to one file, as the kernel has it.
pub const MAX_LINKS: u32 = 40;

/// A near-data request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which partition holds the volume; 0: the whole namespace, or the only partition with a known file system.
    pub partition: u32,
    /// Who asks.
    pub credentials: Credentials,
    /// Which files.
    pub target: Target,
    /// What to do with them.
    pub operation: Operation,
    /// Follow a symbolic link that is the last component.
    pub follow: bool,
    /// Where an earlier answer left off.
    pub resume: Option<Cursor>,
}

/// Who asks.
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
#[derive(Clone, Debug)]
pub enum Target {
    /// None.
    Volume,
    /// One absolute path, as it is: no byte of it stands for anything else.
    Path(Vec<u8>),
    /// What is below a path: in byte order of names, but for directories of more than 128 KiB, which come in their own order.
    Tree {
        /// Where.
        root: Vec<u8>,
        /// Globs: only these files.
        include: Vec<Vec<u8>>,
        /// Globs: not these files and directories.
        exclude: Vec<Vec<u8>>,
        /// Deepest level.
        max_depth: u32,
    },
    /// An absolute path with wildcards.
    Glob(Vec<u8>),
    /// Data that the host has located: bytes of the namespace in file order, `None` for holes.
    Blocks {
        /// The file's size.
        size: u64,
        /// (offset, bytes).
        ranges: Vec<(Option<u64>, u64)>,
    },
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Locate, no more.
    Nop,
    /// What the volume is.
    Info,
    /// Find lines.
    Search {
        /// What ndp needs to know.
        options: nearside_ndp::SearchOptions,
        /// What is wanted of it.
        want: Want,
        /// Nothing about files without a match.
        only_matching_files: bool,
    },
    /// Lines, words, bytes.
    Count,
    /// A checksum.
    Checksum(nearside_ndp::Digest),
    /// Bytes.
    Read {
        /// First.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Entries of a directory or tree.
    List,
    /// Metadata.
    Stat,
    /// Where the bytes lie.
    Map,
}

/// What is wanted of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Lines, or matched parts.
    Lines,
    /// How many, by file.
    Count,
    /// Which files.
    Files,
    /// Totals only.
    Total,
}

/// A place in a long answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The file to go on with.
    pub path: Vec<u8>,
    /// Where in the directories of its path it is: the walker's own.
    pub places: Vec<u8>,
    /// Where in it a line begins.
    pub offset: u64,
    /// Number of that line.
    pub line: u64,
    /// Lines found so far.
    pub found: u64,
    /// Bytes of that line that were delivered.
    pub within: u64,
    /// What is still owed, as `ndp::Position::pending`.
    pub pending: u32,
    /// Totals so far.
    pub totals: Totals,
}

/// Totals of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files looked at.
    pub files: u64,
    /// Files with a match.
    pub files_matched: u64,
    /// Lines or matches.
    pub matches: u64,
}

/// How a request, or one file of it, ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names say it; the wire's type of the same names has the words
pub enum Failure {
    NotFound,
    PermissionDenied,
    NotADirectory,
    IsADirectory,
    NotARegularFile,
    SymlinkLoop,
    NameTooLong,
    NotAbsolute,
    ChangedDuringScan,
    UnsupportedFeature(String),
    CorruptVolume(String),
    MediumError(String),
    InvalidPattern(String),
    InvalidRequest(String),
    NoVolume(String),
    LineTooLong(String),
    Cancelled,
    NeedsRecovery(&'static str),
}

impl From<nearside_fsview::Error> for Failure {
    fn from(error: nearside_fsview::Error) -> Failure {
        use nearside_fsview::Error;
        match error {
            Error::NoFileSystem => Failure::NoVolume(error.to_string()),
            Error::Corrupt { .. } | Error::WrongKind => Failure::CorruptVolume(error.to_string()),
            Error::Unsupported(what) => Failure::UnsupportedFeature(what),
            Error::NotADirectory => Failure::NotADirectory,
            Error::Read { .. } => Failure::MediumError(error.to_string()),
        }
    }
}

/// What a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of file data that operations saw.
    pub bytes_scanned: u64,
    /// Blocks (of the volume's size) read from the store.
    pub blocks_read: u64,
    /// Lookups that the crawler's caches answered.
    pub cache_hits: u64,
    /// And did not.
    pub cache_misses: u64,
    /// Files located.
    pub files: u64,
    /// Time locating.
    pub locate_ns: u64,
    /// Time reading data and computing.
    pub compute_ns: u64,
}

/// How a request ended.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// `None`: well.
    pub failure: Option<Failure>,
    /// What it cost.
    pub counters: Counters,
    /// Where to go on; the sink was full.
    pub more: Option<Cursor>,
}

/// One result.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// What follows is about this file.
    File {
        /// Which.
        path: &'a [u8],
        /// Its bytes.
        size: u64,
    },
    /// A file failed.
    Failed {
        /// Which.
        path: &'a [u8],
        /// How.
        failure: &'a Failure,
    },
    /// A line or a part of it.
    Line {
        /// From 1; 0 where numbers were not asked for.
        number: u64,
        /// Byte in the file.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
        /// Not a match.
        context: bool,
        /// Its bytes go on in the next.
        continues: bool,
    },
    /// Lines found.
    Matches(u64),
    /// A binary file matches.
    BinaryMatches,
    /// As wc counts.
    Count {
        /// Newlines.
        lines: u64,
        /// Words.
        words: u64,
        /// Bytes.
        bytes: u64,
    },
    /// A checksum.
    Digest(nearside_ndp::Digest, &'a [u8]),
    /// Bytes of the file.
    Data {
        /// Where.
        offset: u64,
        /// Which.
        bytes: &'a [u8],
    },
    /// Metadata.
    Entry {
        /// Path or name.
        path: &'a [u8],
        /// The inode.
        inode: &'a nearside_fsview::Inode,
        /// A symbolic link's target.
        link: Option<&'a [u8]>,
    },
    /// A name in a directory that the user may read and not search: there is no more to be had of it.
    Name {
        /// Path or name.
        path: &'a [u8],
        /// What the directory says that it is, where it does.
        kind: Option<nearside_fsview::FileKind>,
    },
    /// Where bytes lie.
    Extent {
        /// First byte in the file.
        from: u64,
        /// Bytes.
        len: u64,
        /// Byte of the namespace, or one of [`EXTENT_ZEROS`] and [`EXTENT_INLINE`].
        offset: u64,
    },
    /// Totals.
    Total(Totals),
    /// The volume.
    Volume {
        /// Its partition, 0 for the whole namespace.
        partition: u32,
        /// First byte in the namespace.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What it says of itself; `None`: no known file system.
        info: Option<&'a nearside_fsview::VolumeInfo>,
    },
    /// Something to know.
    Warning(&'a str),
}

/// [`Record::Extent`]'s offset for zeros.
pub const EXTENT_ZEROS: u64 = u64::MAX;
/// [`Record::Extent`]'s offset for data inside the inode.
pub const EXTENT_INLINE: u64 = u64::MAX - 1;

/// No room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where an answer was, to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub usize, pub u32);

/// Takes results, up to some size.
pub trait Sink {
    /// Takes a record, where afterwards a cursor still fits whose path has `path_len` bytes.
    fn push(&mut self, record: Record<'_>, path_len: usize) -> Result<(), Full>;

    /// Most bytes of a `Line` or `Data` that fit now, with such a cursor.
    fn room(&self, path_len: usize) -> usize;

    /// Where it is.
    fn mark(&self) -> Mark;

    /// Forgets what came after a mark.
    fn rollback(&mut self, mark: Mark);
}
