//! What the system offers on a file beyond the standard library: its size where it is a block device, its
//! holes, locks, and calls that move bytes between it and host memory without a copy in between.
//!
//! A [`Call`] is run here at once, in the caller's thread ([`run`]); [`crate::uring`] runs the same calls by
//! io_uring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use crate::{IoBuffer, Memory, Region, Span};

/// open(2): no page cache between.
pub const O_DIRECT: i32 = libc::O_DIRECT;
/// open(2): what is written is durable when the call returns.
pub const O_DSYNC: i32 = libc::O_DSYNC;
/// open(2), of a block device: nobody else (a mount, say) may hold it so.
pub const O_EXCL: i32 = libc::O_EXCL;

/// One thing to do with a file. Offsets and lengths are bytes; how many are read or written is said by the
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// File to memory.
    Read {
        /// First byte in the file.
        offset: u64,
    },
    /// Memory to file.
    Write {
        /// First byte in the file.
        offset: u64,
        /// Durable when it returns (RWF_DSYNC).
        durable: bool,
    },
    /// Makes what was written durable (fdatasync).
    Sync,
    /// Zeros bytes and frees their space.
    PunchHole {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Zeros bytes and keeps their space.
    ZeroRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// Memory that a call reads or writes.
#[derive(Debug)]
pub enum Transfer<'a> {
    /// None.
    None,
    /// A buffer.
    Buffer(&'a mut IoBuffer),
    /// Host memory, in order.
    Spans(&'a [Span]),
}

/// The most pieces of memory that the kernel takes in one call (UIO_MAXIOV); a longer transfer ends short and
/// is continued.
const MAX_PIECES: usize = 1024;

/// The memory of a call as the kernel takes it, and the regions of host memory that it lies in: they stay
/// mapped until this is cleared, whoever ends their mapping meanwhile.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) list: Vec<libc::iovec>,
    regions: Vec<Arc<Region>>,
}

impl Pieces {
    /// The call has ended.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.regions.clear();
    }
}

/// The pieces of `transfer` after its first `skip` bytes; neighbours are joined. None where some of its host
/// memory is not mapped any more: the call moves nothing.
pub(crate) fn pieces(memory: &Memory, transfer: Transfer<'_>, mut skip: usize, pieces: &mut Pieces) {
    pieces.clear();
    let Pieces { list: into, regions } = pieces;
    let mut add = |base: *mut u8, len: usize| {
        let room = into.len() < MAX_PIECES;
        match into.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base => {
                last.iov_len += len
            }
            _ if room => into.push(libc::iovec { iov_base: base.cast(), iov_len: len }),
            _ => return false,
        }
        true
    };
    match transfer {
        Transfer::None => {}
        Transfer::Buffer(buffer) => {
            let part = buffer.get_mut(skip..).unwrap_or_default();
            add(part.as_mut_ptr(), part.len());
        }
        Transfer::Spans(spans) => {
            for span in spans {
                let before = skip.min(span.len());
                skip -= before;
                let Some(rest) = span.part(before, span.len() - before).filter(|rest| !rest.is_empty())
                else {
                    continue;
                };
                let located = memory.locate(rest).filter(|(region, _)| !region.has_failed());
                let Some((region, at)) = located else { return pieces.clear() };
                if regions.last().is_none_or(|last| !Arc::ptr_eq(last, &region)) {
                    regions.push(Arc::clone(&region));
                }
                // A piece that does not fit ends the list: nothing after the gap may follow.
                if !add(region.pointer(at, rest.len()), rest.len()) {
                    break;
                }
            }
        }
    }
}

/// Runs a call in the caller's thread. `skip` bytes of the memory are left out at its front. With `nowait` a
/// read that the page cache cannot answer ends in [`io::ErrorKind::WouldBlock`]. Answers the bytes moved,
/// which may be fewer than asked for.
///
/// # Errors
/// The system's, of the call; `WouldBlock` as said above.
pub fn run(
    file: &File,
    memory: &Memory,
    call: Call,
    transfer: Transfer<'_>,
    skip: usize,
    nowait: bool,
    scratch: &mut Scratch,
) -> io::Result<usize> {
    pieces(memory, transfer, skip, &mut scratch.0);
    let result = run_on(file, call, &scratch.0.list, nowait);
    scratch.0.clear();
    result
}

fn run_on(file: &File, call: Call, list: &[libc::iovec], nowait: bool) -> io::Result<usize> {
    let fd = file.as_raw_fd();
    let flags = if nowait { libc::RWF_NOWAIT } else { 0 };
    loop {
        let n = match call {
            // SAFETY: the pieces point into a buffer that the caller lends exclusively, or into regions that
            // stand beside them and so stay mapped; both outlive this call, and the kernel keeps nothing
            // after it.
            Call::Read { offset } => unsafe {
                libc::preadv2(fd, list.as_ptr(), list.len() as i32, offset as libc::off_t, flags)
            },
            Call::Write { offset, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: as for the read.
                unsafe { libc::pwritev2(fd, list.as_ptr(), list.len() as i32, offset as libc::off_t, flags) }
            }
            // SAFETY: no memory is involved.
            Call::Sync => unsafe { libc::fdatasync(fd) as isize },
            Call::PunchHole { offset, len } | Call::ZeroRange { offset, len } => {
                // SAFETY: no memory is involved.
                unsafe {
                    libc::fallocate(fd, allocate_mode(call), offset as libc::off_t, len as libc::off_t)
                        as isize
                }
            }
        };
        match usize::try_from(n) {
            Ok(n) => return Ok(n),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
}

/// Room that [`run`] uses again and again.
#[derive(Default)]
pub struct Scratch(Pieces);

// SAFETY: the pointers in it mean nothing between calls: each call fills it again.
unsafe impl Send for Scratch {}

pub(crate) fn allocate_mode(call: Call) -> i32 {
    match call {
        Call::PunchHole { .. } => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        _ => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    }
}

/// Whether an error says that the file (system) does not know this call.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV))
}

/// Whether an error says that there is no room for what was to be written: on the file system, by a quota, or
/// in so long a file.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

/// Bytes of a regular file or block device.
///
/// # Errors
/// `InvalidInput` for what is neither a regular file nor a block device; else the system's.
pub fn size(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // SAFETY: no memory is involved. (The offset is not used: all access here is positioned.)
        let end = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
        return u64::try_from(end).map_err(|_| io::Error::last_os_error());
    }
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"))
}

/// The next stretch of data at or after `from`, as its first byte and the byte after its last; `None` where
/// only a hole is left. A file system that knows no holes has one stretch to the end.
///
/// # Errors
/// The system's, of lseek(2).
pub fn next_data(file: &File, from: u64) -> io::Result<Option<(u64, u64)>> {
    let end = size(file)?;
    if from >= end {
        return Ok(None);
    }
    let seek = |at: u64, whence| {
        // SAFETY: no memory is involved.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    match seek(from, libc::SEEK_DATA) {
        Ok(start) => Ok(Some((start, seek(start, libc::SEEK_HOLE)?.min(end)))),
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(Some((from, end))),
        Err(e) => Err(e),
    }
}

/// FIEMAP: how many extents a file has, at most `most`, as the kernel's file system finds them
/// (include/uapi/linux/fiemap.h). Only to know what asking costs; where they lie is not given out.
///
/// # Errors
/// The system's, of the ioctl: a file system may not have it.
pub fn extents(file: &File, most: u32) -> io::Result<u32> {
    /// _IOWR('f', 11, struct fiemap) of 32 bytes.
    const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
    /// Bytes of the head, and of one extent.
    const HEAD: usize = 32;
    const EXTENT: usize = 56;
    let mut map = vec![0u64; (HEAD + EXTENT * most as usize) / 8];
    // fm_start 0, fm_length all, fm_flags 0; fm_mapped_extents comes back, then fm_extent_count.
    map[1] = u64::MAX;
    map[3] = u64::from(most);
    // SAFETY: the kernel writes at most the head and `most` extents, which is how long `map` is; it is
    // aligned for both.
    if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, map.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((map[2] >> 32) as u32)
}

/// What a lock keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Nobody but exclusive ones.
    Shared,
    /// All others.
    Exclusive,
}

/// Takes an advisory lock on the whole file (an "open file description lock", F_OFD_SETLK: the kind that QEMU
/// takes of an image) without waiting; false where another's keeps it out. It ends with the last descriptor
/// of this open file. A shared one needs a file that was opened to be read, an exclusive one a file that may
/// be written.
///
/// # Errors
/// The system's, but for the lock of another, which is `false`.
pub fn lock(file: &File, lock: Lock) -> io::Result<bool> {
    // SAFETY: plain integers, for which zeros are valid.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = match lock {
        Lock::Shared => libc::F_RDLCK as libc::c_short,
        Lock::Exclusive => libc::F_WRLCK as libc::c_short,
    };
    flock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the structure lives through the call, which only reads it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        e => Err(e),
    }
}

/// Where the lock begins that would keep an exclusive one of that byte out; `None`: there is none. Of several
/// locks it is one.
///
/// # Errors
/// The system's.
pub fn lock_over(file: &File, byte: u32) -> io::Result<Option<u64>> {
    // SAFETY: plain integers, for which zeros are valid.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = libc::F_WRLCK as libc::c_short;
    flock.l_whence = libc::SEEK_SET as libc::c_short;
    (flock.l_start, flock.l_len) = (byte.into(), 1);
    // SAFETY: the structure lives through the call, which fills it in.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut flock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((flock.l_type != libc::F_UNLCK as libc::c_short).then_some(flock.l_start as u64))
}

impl Region {
    /// Fills `len` bytes at `at` from the file's bytes at `offset`; an error where it ends before. Panics
    /// outside the region.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends before; else the system's.
    pub fn read_from(&self, file: &File, mut offset: u64, mut at: usize, mut len: usize) -> io::Result<()> {
        while len > 0 {
            let into = self.pointer(at, len);
            // SAFETY: `pointer` has checked that the range lies in the region.
            let n = unsafe { libc::pread(file.as_raw_fd(), into.cast(), len, offset as libc::off_t) };
            match n {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                1.. => (offset, at, len) = (offset + n as u64, at + n as usize, len - n as usize),
                _ => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e => return Err(e),
                },
            }
        }
        Ok(())
    }
}
