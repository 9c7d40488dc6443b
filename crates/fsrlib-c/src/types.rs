//! What crosses into C.

use std::ffi::{c_char, c_int, c_void};

/// Bits of `nearside_grep`'s flags: the pattern is a literal, not a regular expression.
pub const NEARSIDE_FIXED: u32 = 1;
/// Case is ignored.
pub const NEARSIDE_IGNORE_CASE: u32 = 2;
/// Lines that do not match.
pub const NEARSIDE_INVERT: u32 = 4;
/// Whole words only.
pub const NEARSIDE_WORD: u32 = 8;
/// Whole lines only.
pub const NEARSIDE_LINE: u32 = 16;
/// Binary files are text.
pub const NEARSIDE_TEXT: u32 = 32;
/// Every file below the path, which may be a directory.
pub const NEARSIDE_RECURSIVE: u32 = 64;
/// The pattern is over bytes, not characters: Unicode is off.
pub const NEARSIDE_NO_UNICODE: u32 = 128;

/// What a name may be: a regular file.
pub const NEARSIDE_REGULAR: u32 = 1;
/// A directory.
pub const NEARSIDE_DIRECTORY: u32 = 2;
/// A symbolic link.
pub const NEARSIDE_SYMLINK: u32 = 4;
/// A device, a pipe or a socket.
pub const NEARSIDE_SPECIAL: u32 = 8;

/// Which checksum: CRC-32C, 4 bytes, big-endian.
pub const NEARSIDE_CRC32C: u32 = 0;
/// XXH3, 8 bytes, big-endian.
pub const NEARSIDE_XXH3: u32 = 1;
/// SHA-256, 32 bytes.
pub const NEARSIDE_SHA256: u32 = 2;

/// How numbers of a table are stored: as the file's .npy header says.
pub const NEARSIDE_NPY: u32 = 0;
/// IEEE 754, 32 bits, little-endian as all that follow.
pub const NEARSIDE_F32: u32 = 1;
/// IEEE 754, 16 bits.
pub const NEARSIDE_F16: u32 = 2;
/// The upper half of 32 bits.
pub const NEARSIDE_BF16: u32 = 3;
/// A signed integer of 8 bits.
pub const NEARSIDE_INT8: u32 = 4;

/// What is made of rows: nothing.
pub const NEARSIDE_POOL_NONE: u32 = 0;
/// Their sum.
pub const NEARSIDE_POOL_SUM: u32 = 1;
/// Their mean.
pub const NEARSIDE_POOL_MEAN: u32 = 2;
/// The sum of each times its weight.
pub const NEARSIDE_POOL_WEIGHTED: u32 = 3;

/// What near means: a large inner product.
pub const NEARSIDE_INNER_PRODUCT: u32 = 0;
/// A small square of the distance.
pub const NEARSIDE_L2: u32 = 1;

/// How a file is a table of numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_table {
    /// How they are stored: NEARSIDE_NPY, NEARSIDE_F32 and so on.
    pub element: u32,
    /// Numbers in a row; with NEARSIDE_NPY the header says it.
    pub columns: u32,
    /// What each number is multiplied by: 1, where they are meant as they are.
    pub scale: f32,
}

/// How a session is opened. Zeroed, it means the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_options {
    /// Which partition holds the volume; 0: the only one with a known file system.
    pub partition: u32,
    /// How completions are awaited: 0 polled, 1 interrupt, 2 hybrid.
    pub completion: u32,
    /// Whether `uid`, `gid` and `groups` say for whom permissions are checked; 0:
    /// for the calling process, by its effective ids and its groups.
    pub has_credentials: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of supplementary groups.
    pub groups_len: u32,
    /// Supplementary groups; may be null where there are none.
    pub groups: *const u32,
    /// To a target over the network: this host's NQN, by which it is allowed; null: one that is made of this
    /// machine and user.
    pub host_nqn: *const c_char,
    /// To such a target: a file with this host's key, where it asks for a proof (DH-HMAC-CHAP), or
    /// `keyring:NAME`, a key that the kernel keeps, as of each key here; may be null.
    pub host_key_file: *const c_char,
    /// A file with the subsystem's key, which then has to prove who it is as well; may be null.
    pub controller_key_file: *const c_char,
    /// Whether headers on the network are protected by digests.
    pub header_digest: u32,
    /// Whether data on the network are.
    pub data_digest: u32,
    /// A file with a TLS key: connections are encrypted, and both ends prove by it who they are; may be null.
    pub tls_key_file: *const c_char,
    /// Whether connections are encrypted by what the keys of `host_key_file` agree on.
    pub concatenates: u32,
    /// Milliseconds from the loss of a connection to the first attempt to make it again, and from each to the
    /// next; 0: 10,000.
    pub reconnect_delay_ms: u32,
    /// Milliseconds after which there are no more attempts; 0: 600,000; or NEARSIDE_NO_ATTEMPT,
    /// NEARSIDE_FOR_EVER.
    pub ctrl_loss_tmo_ms: u32,
}

/// A lost connection is not made again.
pub const NEARSIDE_NO_ATTEMPT: u32 = u32::MAX - 1;
/// A lost connection is tried until it is there again.
pub const NEARSIDE_FOR_EVER: u32 = u32::MAX;

/// What is searched for, and where (`nearside_search`). Zeroed but for the paths and the patterns, it means
/// the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_query {
    /// Files, or with NEARSIDE_RECURSIVE directories.
    pub paths: *const *const c_char,
    /// How many.
    pub paths_len: usize,
    /// What is found is a line that any of them matches.
    pub patterns: *const *const c_char,
    /// How many.
    pub patterns_len: usize,
    /// With NEARSIDE_RECURSIVE: only files whose names one of these globs matches; null: all.
    pub include: *const *const c_char,
    /// How many.
    pub include_len: usize,
    /// With NEARSIDE_RECURSIVE: no files, and no directories with all below them, that one of these globs
    /// matches.
    pub exclude: *const *const c_char,
    /// How many.
    pub exclude_len: usize,
    /// NEARSIDE_FIXED and so on.
    pub flags: u32,
    /// With NEARSIDE_RECURSIVE: the deepest level, 1 being what is in the directory itself; 0: no limit.
    pub max_depth: u32,
    /// Lines of context before each that is found.
    pub before: u32,
    /// Lines of context behind it.
    pub after: u32,
    /// Most lines of each file; 0: all.
    pub max_count: u64,
    /// Takes what cannot be searched; may be null.
    pub failed: nearside_failed_fn,
}

/// Which names are listed (`nearside_find`). Zeroed, it means all.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_names {
    /// Only names that one of these globs matches; null: all.
    pub include: *const *const c_char,
    /// How many.
    pub include_len: usize,
    /// No names, and nothing below them, that one of these globs matches.
    pub exclude: *const *const c_char,
    /// How many.
    pub exclude_len: usize,
    /// Only these kinds: NEARSIDE_REGULAR and so on, added up; 0: all.
    pub kinds: u32,
    /// The deepest level, 1 being what is in the directory itself; 0: no limit.
    pub max_depth: u32,
    /// Takes what cannot be listed; may be null.
    pub failed: nearside_failed_fn,
}

/// Something that failed while the rest goes on. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_failure {
    /// Its path; not terminated by a zero byte.
    pub path: *const c_char,
    /// The path's length.
    pub path_len: usize,
    /// Why, as an `errno`.
    pub code: c_int,
    /// Why, in words; terminated.
    pub words: *const c_char,
}

/// Takes what failed; anything but 0 ends the call.
pub type nearside_failed_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, failure: *const nearside_failure) -> c_int>;

/// A line that was found. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_line {
    /// The file's path; not terminated by a zero byte.
    pub path: *const c_char,
    /// Its length.
    pub path_len: usize,
    /// Number of the line, from 1.
    pub number: u64,
    /// Byte in the file at which `bytes` begins.
    pub offset: u64,
    /// The line without its end; not terminated by a zero byte.
    pub bytes: *const c_char,
    /// Its length.
    pub len: usize,
    /// Not 0: it is a line of context, and was not found itself.
    pub context: c_int,
}

/// Takes a line; anything but 0 ends the search.
pub type nearside_line_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, line: *const nearside_line) -> c_int>;

/// Lines, words and bytes, as wc counts them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nearside_counts {
    /// Newlines.
    pub lines: u64,
    /// Words.
    pub words: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Metadata of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_entry {
    /// Its name (`nearside_list`) or path (`nearside_find`); not terminated by a zero byte; valid during the
    /// callback only, and null from `nearside_stat`.
    pub name: *const c_char,
    /// The name's length.
    pub name_len: usize,
    /// Inode number; 0 in a directory that may be read but not searched: there is only the type in `mode`.
    pub ino: u64,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte units allocated.
    pub sectors: u64,
    /// Last access, content change and inode change: seconds since 1970.
    pub seconds: [i64; 3],
    /// Their nanoseconds.
    pub nanoseconds: [u32; 3],
    /// Where a symbolic link leads; as `name`, and null of what is none.
    pub link: *const c_char,
    /// Its length.
    pub link_len: usize,
}

/// Takes an entry; anything but 0 ends the list.
pub type nearside_entry_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, entry: *const nearside_entry) -> c_int>;

/// Takes bytes of a file, in order; anything but 0 ends the read.
pub type nearside_data_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, offset: u64, bytes: *const c_char, len: usize) -> c_int>;

/// What a session has moved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nearside_traffic {
    /// Near-data commands sent.
    pub near_data_commands: u64,
    /// The drive's own count of the near-data commands that it has taken, from whomever;
    /// `UINT64_MAX` behind a socket.
    pub drive_commands: u64,
    /// Ordinary reads sent.
    pub read_commands: u64,
    /// Bytes sent to the drive.
    pub bytes_out: u64,
    /// Bytes received from it.
    pub bytes_in: u64,
    /// Nanoseconds between sending commands and having their answers.
    pub round_trip_ns: u64,
}

/// Which completion model holds, and what it expects (FAST'12, section 4).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearside_completion {
    /// "polled", "interrupt", "hybrid", or "socket"; terminated.
    pub model: [c_char; 16],
    /// What a read of 4 KiB is expected to take, in nanoseconds; 0 where nothing is known yet.
    pub read_4k_ns: u64,
    /// Nanoseconds that the driver has spent spinning.
    pub spinning_ns: u64,
}
