//! What both file systems have in common.

use smallvec::SmallVec;

/// An inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u32);

/// What an inode is (`S_IFMT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

impl FileKind {
    /// From the type bits of a mode.
    pub fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode & 0o170_000 {
            0o100_000 => FileKind::Regular,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            0o020_000 => FileKind::CharDevice,
            0o060_000 => FileKind::BlockDevice,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode (S_IFMT).
    pub fn mode(self) -> u16 {
        match self {
            FileKind::Regular => 0o100_000,
            FileKind::Directory => 0o040_000,
            FileKind::Symlink => 0o120_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::Fifo => 0o010_000,
            FileKind::Socket => 0o140_000,
        }
    }
}

/// A point in time on the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

/// An inode, parsed and checked.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Type and permission bits, as `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Names it has.
    pub links: u32,
    /// 512-byte units allocated, as `st_blocks`.
    pub sectors: u64,
    /// Major and minor number of a device, as `st_rdev` holds them.
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, where the volume keeps it.
    pub crtime: Option<Timestamp>,
    /// `i_generation`: a reused number has another.
    pub generation: u32,
    /// Whether it carries an access ACL or may (a hint that saves a read: `false` means none for certain).
    pub may_have_acl: bool,
    /// Whether it carries extended attributes, ACLs among them, or may (a hint as the one before).
    pub may_have_attributes: bool,
    /// Whether the content has a verity tree, which this view does not verify.
    pub verity: bool,
    /// The rest, which only the volume's own code reads.
    pub(crate) body: Body,
}

/// An inode that no directory names.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// What is left of it. What its map named may be another file's by now, but of an orphan.
    pub inode: Inode,
    /// When its last name was taken away and nobody had it open any more, in seconds since 1970; `None`:
    /// that has not come, or is not noted.
    pub when: Option<i64>,
    /// Whether it is still in use: it was open when its last name was taken away, and the volume has not been
    /// mounted for writing since.
    pub orphan: bool,
}

/// The part of an inode that differs by file system.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Ext(crate::ext::Body),
    F2fs(crate::f2fs::Body),
}

/// Where to go on in a directory: at the entries of this [`DirEntry::place`] and later. The default is the
/// start.
///
/// A place stays what it is while other entries come and go: in ext's indexed directories it is the name's
/// hash, as in the kernel, in others where the entry lies. So whoever keeps the place and the name of the
/// last entry that it has seen goes on after it, also much later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirCursor {
    /// The place.
    pub place: u64,
}

/// A name's bytes; short ones, as most are, without an allocation.
pub type Name = SmallVec<[u8; 24]>;

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name's bytes.
    pub name: Name,
    /// Its inode.
    pub ino: Ino,
    /// What the entry says that it is, where the volume notes it there.
    pub kind: Option<FileKind>,
    /// Where in the directory's own order it is; entries of one place are ordered by their names.
    pub place: u64,
}

/// One run of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file: the `from` that was asked for.
    pub from: u64,
    /// Bytes, cut at the end of the file; at least one.
    pub len: u64,
    /// Where they are.
    pub place: RunPlace,
}

/// Where a run's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPlace {
    /// At this byte of the volume, contiguous.
    Volume(u64),
    /// Nowhere: a hole or an unwritten extent, which reads as zeros.
    Zeros,
    /// In the inode: see `Volume::inline_data`.
    Inline,
}

/// What a volume is.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// "ext2", "ext3", "ext4" or "f2fs".
    pub file_system: &'static str,
    /// Volume name, where it has one.
    pub label: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in the volume.
    pub blocks: u64,
    /// Inodes there can be; of F2FS, nodes of any kind.
    pub inodes: u64,
    /// Inodes in use. Of ext as the superblock counts them, to which the kernel brings the count up when it
    /// unmounts and seldom before; of F2FS as the checkpoint does, without what fsync has added since.
    pub inodes_used: u64,
    /// The names of its features, as mke2fs and mkfs.f2fs call them.
    pub features: Vec<String>,
    /// Whether a journal or log holds what has not reached home locations and the view does not show: it is
    /// then older than the last durable state.
    pub needs_recovery: bool,
    /// What the view shows beyond the home locations.
    pub recovery: crate::Recovery,
    /// Why blocks that an inode names here may be another file's by now: the volume was not unmounted, and
    /// what has happened since is not all in home locations. `None`: they are its own.
    pub stale: Option<&'static str>,
    /// What a user should know: recovery, errors recorded by the kernel, checkpoints disabled and the like.
    pub warnings: Vec<String>,
}

impl VolumeInfo {
    /// What is said of a volume whose blocks may be another file's ([`VolumeInfo::stale`]).
    pub fn unstable(&self) -> Option<String> {
        self.stale.map(|why| format!("unstable: {why}; what lies in a file's blocks may be another's"))
    }
}

/// Why a volume could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither ext nor F2FS.
    #[error("no file system that is known (ext2, ext3, ext4, F2FS)")]
    NoFileSystem,
    /// The volume's structures contradict themselves.
    #[error("corrupt volume: {what} at byte {at}")]
    Corrupt {
        /// What is wrong, with the numbers.
        what: String,
        /// The byte of the volume at which the structure lies.
        at: u64,
    },
    /// A feature that is not understood, for the volume or one inode.
    #[error("unsupported feature: {0}")]
    Unsupported(String),
    /// Not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// Not a symbolic link, or not a file with inline data.
    #[error("the inode is of another kind")]
    WrongKind,
    /// A block could not be read.
    #[error("reading {len} bytes at byte {at} failed: {reason}")]
    Read {
        /// Byte of the volume.
        at: u64,
        /// Bytes.
        len: u32,
        /// What the source said.
        reason: String,
    },
}
