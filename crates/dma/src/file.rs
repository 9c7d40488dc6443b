//! What the system offers on a file beyond the standard library: its size where it is a block device, its holes, locks, positioned
//! reads that do not wait, and space that is given back.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;

use crate::Region;

/// Bytes of a regular file or block device.
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

/// The next stretch of data at or after `from`, as its first byte and the byte after its last; `None` where only a hole
/// is left. A file system that knows no holes has one stretch to the end.
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

/// Takes the exclusive advisory lock (flock) without waiting; false where another has it. It ends with the last descriptor
/// of this open file.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: no memory is involved.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        e => Err(e),
    }
}

impl Region {
    /// Fills `len` bytes at `at` from the file's bytes at `offset`; an error where it ends before. Panics outside the region.
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
