//! The namespace as one file in a directory: what is there, who may see it, and what a failure means.
//!
//! The kernel's cache is bypassed (direct I/O): what a host writes reaches the drive with the call that
//! writes it, fsync becomes Flush, O_SYNC becomes FUA, punched holes become Deallocate. Like a block device
//! the file has a fixed size; truncation does nothing. There is nothing else in the directory, and nothing
//! can be made there.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use nearside_clock::{Clock, RateLimits, TscClock, event_at};
use nearside_spec::Status;
use tracing::Level;

use crate::host::{Host, HostError};
use crate::wire::{Attr, Body, InHeader, Operation, ROOT};

/// The file's name.
pub const FILE_NAME: &str = "namespace";

const FILE: u64 = 2;

/// FOPEN_DIRECT_IO, FOPEN_PARALLEL_DIRECT_WRITES.
const DIRECT: u32 = 1 << 0 | 1 << 6;
/// FATTR_MODE, FATTR_UID, FATTR_GID.
const OWNERSHIP: u32 = 7;

/// The mount's contents.
pub(crate) struct Files {
    pub(crate) host: Arc<Host>,
    owner: (u32, u32),
    /// Whether the kernel lets anybody in, of whom only root and the owner may.
    open_to_all: bool,
    since: (u64, u32),
    clock: TscClock,
    /// What the log was told of failures, by their level.
    reports: Mutex<RateLimits<Level>>,
}

impl Files {
    pub(crate) fn new(host: Arc<Host>, owner: (u32, u32), open_to_all: bool, since: SystemTime) -> Files {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Files {
            host,
            owner,
            open_to_all,
            since: (since.as_secs(), since.subsec_nanos()),
            clock: TscClock::new(),
            reports: Mutex::new(RateLimits::new(crate::REPORT_EVERY_NS)),
        }
    }

    /// What the caller is told of a failure; the log is, too.
    pub(crate) fn errno(&self, error: &HostError) -> i32 {
        let (errno, level) = told(error);
        let mut reports = self.reports.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(suppressed) = reports.admit(level, self.clock.now()) {
            event_at!(level, %error, suppressed, "a request of the kernel's failed");
        }
        errno
    }

    fn attr(&self, node: u64) -> Result<Attr, i32> {
        let read_only = self.host.info().read_only;
        let (mode, size) = match node {
            ROOT => (libc::S_IFDIR | 0o755, 0),
            FILE => (libc::S_IFREG | if read_only { 0o400 } else { 0o600 }, self.host.capacity()),
            _ => return Err(libc::ENOENT),
        };
        let ((uid, gid), (since_s, since_ns)) = (self.owner, self.since);
        Ok(Attr { node, size, mode, uid, gid, since_s, since_ns })
    }

    /// Whether a request is one that whoever sends it may make of a node that there is.
    pub(crate) fn admits(&self, header: &InHeader, operation: Operation) -> Result<(), i32> {
        let stranger = self.open_to_all && header.uid != 0 && header.uid != self.owner.0;
        if stranger && !operation.is_of_open_file() {
            return Err(libc::EACCES);
        }
        let of_file = matches!(
            operation,
            Operation::Read { .. } | Operation::Write { .. } | Operation::Fallocate { .. } | Operation::Fsync
        );
        if of_file && header.node != FILE {
            return Err(if header.node == ROOT { libc::EISDIR } else { libc::ENOENT });
        }
        Ok(())
    }

    /// The reply to what needs no drive; a name only where one is looked up. `Err(0)`: there is none.
    pub(crate) fn answer(&self, header: &InHeader, operation: Operation, name: &[u8]) -> Result<Body, i32> {
        match operation {
            Operation::Lookup => {
                let name = name.strip_suffix(&[0]).unwrap_or(name);
                let found = header.node == ROOT && name == FILE_NAME.as_bytes();
                if !found {
                    return Err(libc::ENOENT);
                }
                self.attr(FILE).map(|attr| Body::entry(&attr))
            }
            Operation::GetAttr => self.attr(header.node).map(|attr| Body::attributes(&attr)),
            Operation::SetAttr { valid } if valid & OWNERSHIP != 0 => Err(libc::EPERM),
            Operation::SetAttr { .. } => self.attr(header.node).map(|attr| Body::attributes(&attr)),
            Operation::Open { flags } => self.open(header.node, flags),
            Operation::OpenDir => match header.node {
                ROOT => Ok(Body::opened(0)),
                FILE => Err(libc::ENOTDIR),
                _ => Err(libc::ENOENT),
            },
            Operation::ReadDir { offset, size } => list(header.node, offset, size),
            Operation::StatFs => Ok(Body::statfs()),
            // A close makes nothing durable.
            Operation::Flush | Operation::Release | Operation::Destroy => Ok(Body::EMPTY),
            Operation::Forget => Err(0),
            // INIT comes once, and first.
            Operation::Init => Err(libc::EIO),
            _ => Err(libc::ENOSYS),
        }
    }

    fn open(&self, node: u64, flags: u32) -> Result<Body, i32> {
        let writes = flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
        match node {
            FILE if writes && self.host.info().read_only => Err(libc::EROFS),
            FILE => Ok(Body::opened(DIRECT)),
            ROOT => Err(libc::EISDIR),
            _ => Err(libc::ENOENT),
        }
    }
}

fn list(node: u64, offset: u64, size: u32) -> Result<Body, i32> {
    if node != ROOT {
        return Err(libc::ENOTDIR);
    }
    let (directory, file) = (libc::S_IFDIR >> 12, libc::S_IFREG >> 12);
    let entries = [(ROOT, directory, "."), (ROOT, directory, ".."), (FILE, file, FILE_NAME)];
    let mut body = Body::EMPTY;
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    for (next, (node, kind, name)) in (1u64..).zip(entries).skip(from) {
        let Some(longer) = body.dirent(node, next, kind, name, size as usize) else { break };
        body = longer;
    }
    Ok(body)
}

/// What a failure means: the caller's errno, and the level of the operator's log.
fn told(error: &HostError) -> (i32, Level) {
    let status = match error {
        HostError::OutOfRange { .. } => return (libc::ENOSPC, Level::WARN),
        HostError::Gone => return (libc::EIO, Level::DEBUG),
        HostError::Driver { .. } | HostError::Command { .. } => error.status().map(Status::code),
    };
    match status {
        Some(Status::CAPACITY_EXCEEDED | Status::LBA_OUT_OF_RANGE) => (libc::ENOSPC, Level::WARN),
        Some(Status::READ_ONLY_NAMESPACE | Status::WRITE_TO_READ_ONLY_RANGE) => (libc::EROFS, Level::WARN),
        _ => (libc::EIO, Level::ERROR),
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
            let files = Files::new(host.clone(), (0, 0), false, UNIX_EPOCH);
            let lost = host.read(0, &mut [0; 4096]).unwrap_err();
            assert_eq!(files.errno(&lost), libc::EIO);
            one(&log.lines(), &["ERROR", "a request of the kernel's failed", "nrecovered Read Error"]);
            let outside = host.write(1 << 20, &[0; 512], false).unwrap_err();
            assert_eq!(files.errno(&outside), libc::ENOSPC);
            one(&log.lines(), &[" WARN", "a request of the kernel's failed"]);
            assert_eq!(files.errno(&HostError::Gone), libc::EIO);
            one(&log.lines(), &["DEBUG", "a request of the kernel's failed"]);
        });
    }
}
