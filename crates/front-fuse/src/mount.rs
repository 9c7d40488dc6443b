//! The namespace as one file in a FUSE mount.
//!
//! The kernel's cache is bypassed (direct I/O): what a host writes reaches the drive with the call that
//! writes it, fsync becomes Flush, O_SYNC becomes FUA, punched holes become Deallocate. Like a block device
//! the file has a fixed size; truncation does nothing. There is nothing else in the directory, and nothing
//! can be made there.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nearside_clock::{Clock, RateLimits, TscClock, event_at};
use nearside_spec::Status;
use tracing::Level;

use crate::host::{Host, HostError};

/// The file's name.
pub const FILE_NAME: &str = "namespace";

const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);

/// The mount's contents.
pub(crate) struct Namespace {
    pub(crate) host: Arc<Host>,
    pub(crate) owner: (u32, u32),
    pub(crate) since: SystemTime,
    pub(crate) clock: TscClock,
    /// What the log was told of failures, by their level.
    pub(crate) reports: Mutex<RateLimits<Level>>,
}

impl Namespace {
    fn errno(&self, error: &HostError) -> Errno {
        let (errno, level) = told(error);
        let mut reports = self.reports.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(suppressed) = reports.admit(level, self.clock.now()) {
            event_at!(level, %error, suppressed, "a request of the kernel's failed");
        }
        errno
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let read_only = self.host.info().read_only;
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            FILE => (FileType::RegularFile, if read_only { 0o400 } else { 0o600 }, self.host.capacity()),
            _ => return None,
        };
        let (uid, gid) = self.owner;
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// What a failure means: the caller's errno, and the level of the operator's log.
fn told(error: &HostError) -> (Errno, Level) {
    let status = match error {
        HostError::OutOfRange { .. } => return (Errno::ENOSPC, Level::WARN),
        HostError::Gone => return (Errno::EIO, Level::DEBUG),
        HostError::Driver { .. } | HostError::Command { .. } => error.status().map(Status::code),
    };
    match status {
        Some(Status::CAPACITY_EXCEEDED | Status::LBA_OUT_OF_RANGE) => (Errno::ENOSPC, Level::WARN),
        Some(Status::READ_ONLY_NAMESPACE | Status::WRITE_TO_READ_ONLY_RANGE) => (Errno::EROFS, Level::WARN),
        _ => (Errno::EIO, Level::ERROR),
    }
}

impl Filesystem for Namespace {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Both are wishes: an older kernel lacks them.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry(&TTL, &attr, Generation(0))
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.host.info().read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.host.capacity().saturating_sub(offset);
        let mut bytes = vec![0; u64::from(size).min(left) as usize];
        if bytes.is_empty() {
            // Past the end there is nothing to read.
            return reply.data(&[]);
        }
        match self.host.read(offset, &mut bytes) {
            Ok(()) => reply.data(&bytes),
            Err(e) => reply.error(self.errno(&e)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let left = self.host.capacity().saturating_sub(offset);
        let part = (data.len() as u64).min(left) as usize;
        if part == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let fua = flags.0 & (libc::O_SYNC | libc::O_DSYNC) != 0;
        match self.host.write(offset, &data[..part], fua) {
            Ok(()) => reply.written(part as u32),
            Err(e) => reply.error(self.errno(&e)),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A close makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.host.flush() {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(self.errno(&e)),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let capacity = self.host.capacity();
        let inside = offset <= capacity && length <= capacity - offset;
        let result = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            _ if !inside => return reply.error(Errno::ENOSPC),
            // All of it is allocated, as far as a host can see.
            0 => Ok(()),
            libc::FALLOC_FL_PUNCH_HOLE => self.host.zero(offset, length, true),
            libc::FALLOC_FL_ZERO_RANGE => self.host.zero(offset, length, false),
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(self.errno(&e)),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (ino, kind, name)) in (1u64..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_conformance::events::{logged, one};
    use nearside_device::Config;
    use nearside_device::runner::Rest;
    use nearside_driver::{DriverConfig, Policy};
    use nearside_embedded::Loopback;
    use nearside_store::{Dram, Fault, Faulty, Kinds, Rule};

    /// The first of each level; what comes soon after is the rate limit's.
    #[test]
    fn a_failure_has_its_errno_and_its_level() {
        logged(|log| {
            let store = Dram::new(1 << 20, 512).unwrap();
            let faulty = Faulty::new(store, 1, [Rule::new(Kinds::Reads, Fault::Error)]);
            let mut drive = Loopback::threaded(faulty, (), Config::default(), Rest::default()).unwrap();
            let driver = drive.driver(DriverConfig::default(), &TscClock::new()).unwrap();
            let host = Arc::new(Host::new(driver, Policy::Hybrid, 2).unwrap());
            let mount = Namespace {
                host: host.clone(),
                owner: (0, 0),
                since: SystemTime::UNIX_EPOCH,
                clock: TscClock::new(),
                reports: Mutex::new(RateLimits::new(crate::REPORT_EVERY_NS)),
            };
            let lost = host.read(0, &mut [0; 4096]).unwrap_err();
            assert_eq!(mount.errno(&lost).code(), libc::EIO);
            one(&log.lines(), &["ERROR", "a request of the kernel's failed", "nrecovered Read Error"]);
            let outside = host.write(1 << 20, &[0; 512], false).unwrap_err();
            assert_eq!(mount.errno(&outside).code(), libc::ENOSPC);
            one(&log.lines(), &[" WARN", "a request of the kernel's failed"]);
            assert_eq!(mount.errno(&HostError::Gone).code(), libc::EIO);
            one(&log.lines(), &["DEBUG", "a request of the kernel's failed"]);
        });
    }
}
