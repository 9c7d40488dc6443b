//! Memory of another process that may be hostile, and the signal that it can send by shrinking it.
//!
//! A page of a mapped file that the file does not have any more raises SIGBUS in whoever touches it, which
//! ends the process: all of a drive's hosts would pay for one. So does one of a file system without room for
//! it. Such a file is mapped under a guard: the handler that is set up here finds the mapping that the
//! address belongs to, puts zeros that are nobody's in its place, and notes that it has failed. Whoever runs
//! the host that the memory is of looks for that ([`failures`], [`crate::Region::has_failed`]) and ends it. A
//! file that is read where it lies ([`crate::CachedFile`]) is under the same guard. A SIGBUS from anywhere
//! else goes to whoever had the signal before, as if there were no handler.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::PAGE_SIZE;

/// Mappings under guard at a time, of this process.
const MOST: usize = 32 << 10;
/// `f_type` of a file in hugetlbfs, statfs(2).
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

struct Guarded {
    taken: AtomicBool,
    /// 0: not under guard.
    base: AtomicUsize,
    len: AtomicUsize,
    failed: AtomicBool,
}

static GUARDED: [Guarded; MOST] = [const {
    Guarded {
        taken: AtomicBool::new(false),
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    }
}; MOST];
/// The first that was never taken.
static USED: AtomicUsize = AtomicUsize::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// Who had the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Mappings under guard in this process that have failed so far.
#[inline]
pub fn failures() -> u64 {
    FAILURES.load(Ordering::Acquire)
}

/// A mapping's place among those under guard; given back when dropped, which has to come before the mapping
/// goes.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    pub(crate) fn new(base: NonNull<u8>, len: usize) -> io::Result<Guard> {
        install()?;
        let full = || io::Error::other(format!("{MOST} mappings of other processes' memory are the most"));
        let take = |g: &Guarded| !g.taken.load(Ordering::Relaxed) && !g.taken.swap(true, Ordering::AcqRel);
        let index = GUARDED.iter().position(take).ok_or_else(full)?;
        let guarded = &GUARDED[index];
        guarded.failed.store(false, Ordering::Relaxed);
        guarded.len.store(len, Ordering::Release);
        guarded.base.store(base.as_ptr() as usize, Ordering::Release);
        USED.fetch_max(index + 1, Ordering::AcqRel);
        Ok(Guard(index))
    }

    pub(crate) fn has_failed(&self) -> bool {
        GUARDED[self.0].failed.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        GUARDED[self.0].base.store(0, Ordering::Release);
        GUARDED[self.0].taken.store(false, Ordering::Release);
    }
}

/// Sets the handler up, once.
fn install() -> io::Result<()> {
    static SET: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = SET.get_or_init(|| {
        // SAFETY: an all-zero sigaction is a valid value, whose fields are set below.
        let (mut before, mut now): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        now.sa_sigaction = on_sigbus as *const () as usize;
        now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: both point to valid structures; the first call only asks, so that the handler never runs
        // without knowing who had the signal before.
        let asked = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) };
        let _ = BEFORE.set(before);
        // SAFETY: as above; the handler does what a handler may (see there).
        let set = unsafe { libc::sigaction(libc::SIGBUS, &now, std::ptr::null_mut()) };
        match (asked, set) {
            (0, 0) => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
        }
    });
    done.map_err(io::Error::from_raw_os_error)
}

/// The handler: looks into atomics and makes system calls, nothing else. The instruction that faulted runs
/// again after it.
extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid siginfo with SA_SIGINFO; for SIGBUS it has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    let used = USED.load(Ordering::Acquire).min(MOST);
    for guarded in &GUARDED[..used] {
        let base = guarded.base.load(Ordering::Acquire);
        let len = guarded.len.load(Ordering::Acquire);
        // The length is that base's: the place may have become another's in between.
        let same = guarded.base.load(Ordering::Acquire) == base;
        if base == 0 || !same || at.wrapping_sub(base) >= len {
            continue;
        }
        // First: another thread that reads the zeros finds that they are nobody's.
        guarded.failed.store(true, Ordering::Release);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: errno is this thread's, and what interrupted code had in it is put back.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the range is a mapping of ours, whole, that lives while its guard does; what is put in its
        // place can be read and written as well. mmap(2) is a bare system call here.
        let mapped =
            unsafe { libc::mmap(base as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if mapped == libc::MAP_FAILED {
            break;
        }
        FAILURES.fetch_add(1, Ordering::Release);
        return;
    }
    // Nobody's of ours: the fault comes again, to whom it would have come.
    if let Some(before) = BEFORE.get() {
        // SAFETY: what sigaction(2) gave is given back.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}

/// A mapping of another's file.
pub(crate) struct Mapping {
    /// Where the bytes asked for begin.
    pub(crate) base: NonNull<u8>,
    /// What is mapped: a huge page's file knows whole huge pages only.
    pub(crate) whole: (NonNull<u8>, usize),
    pub(crate) guard: Guard,
}

/// Maps `len` bytes of a file that another process handed over, from `offset` on, for reading and writing.
pub(crate) fn map(fd: &OwnedFd, offset: u64, len: usize) -> io::Result<Mapping> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    // First: it asks no file system. Behind another's (FUSE) a page may be one that its owner never gives.
    if seals(fd).is_none() {
        return Err(invalid("memory is shared as a memfd, or a file of tmpfs or hugetlbfs".into()));
    }
    // SAFETY: an all-zero stat is a valid value, which the call fills.
    let mut is: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above, for statfs.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, and structures that live through the calls.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut is) | libc::fstatfs(fd.as_raw_fd(), &mut system) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if is.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(invalid("memory is shared as a file".into()));
    }
    let page = match system.f_type as i64 {
        HUGETLBFS_MAGIC => usize::try_from(is.st_blksize).unwrap_or(PAGE_SIZE).max(PAGE_SIZE),
        _ => PAGE_SIZE,
    };
    let end = offset.checked_add(len as u64).filter(|end| *end <= is.st_size as u64 && len > 0);
    if end.is_none() || !offset.is_multiple_of(PAGE_SIZE as u64) || !len.is_multiple_of(PAGE_SIZE) {
        return Err(invalid(format!("{len} bytes at {offset} of a file of {}", is.st_size)));
    }
    let before = (offset % page as u64) as usize;
    let whole = (before + len).checked_next_multiple_of(page).ok_or_else(|| invalid("too long".into()))?;
    let (protection, from) = (libc::PROT_READ | libc::PROT_WRITE, (offset - before as u64) as libc::off_t);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), whole, protection, libc::MAP_SHARED, fd.as_raw_fd(), from)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned the null page"))?;
    // SAFETY: `before` lies within what was mapped.
    let base = unsafe { at.add(before) };
    let guard = Guard::new(at, whole).inspect_err(|_| {
        // SAFETY: the mapping just made, which nobody else knows.
        unsafe { libc::munmap(at.as_ptr().cast(), whole) };
    })?;
    Ok(Mapping { base, whole: (at, whole), guard })
}

/// A file's seals; `None` where it is none of memory.
fn seals(fd: &OwnedFd) -> Option<i32> {
    // SAFETY: no memory is involved.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    (seals >= 0).then_some(seals)
}

/// Makes a memfd's length final: whoever else has it cannot change it either.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::Region;

    fn file(len: u64) -> File {
        let file = tempfile();
        file.set_len(len).unwrap();
        file
    }

    fn tempfile() -> File {
        let path = std::path::Path::new("/dev/shm").join(format!(
            "nearside-guest-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn foreign(file: &File, offset: u64, len: usize) -> io::Result<Region> {
        Region::foreign(file.try_clone().unwrap().into(), offset, len)
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn memory_that_shrinks_fails_alone() {
        let (one, other) = (file(1 << 20), file(8192));
        let (shrinks, stays) = (foreign(&one, 4096, 8192).unwrap(), foreign(&other, 0, 8192).unwrap());
        shrinks.write(0, b"abcd");
        let before = failures();
        one.set_len(0).unwrap();
        let mut bytes = [9; 4];
        shrinks.read(0, &mut bytes);
        assert_eq!(bytes, [0; 4]);
        assert!(shrinks.has_failed() && failures() > before);
        // All of it can be used on; the other is as it was.
        shrinks.fill(0, 8192, 3);
        stays.write(8000, b"efgh");
        assert!(!stays.has_failed());
        drop(shrinks);
        // A place that was failed is another's, which is not.
        assert!(!foreign(&other, 4096, 4096).unwrap().has_failed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn nothing_beyond_a_file_is_mapped() {
        let file = file(8192);
        for (offset, len) in
            [(0, 12288), (8192, 4096), (4096, 8192), (u64::MAX - 4095, 4096), (0, 0), (1, 4096), (0, 100)]
        {
            assert!(foreign(&file, offset, len).is_err(), "{len} bytes at {offset}");
        }
        // What another process could let wait: a page of a file system that is its own.
        let elsewhere = File::open("/proc/self/exe").unwrap();
        assert!(Region::foreign(elsewhere.into(), 0, 4096).is_err());
        let directory = File::open(std::env::temp_dir()).unwrap();
        assert!(Region::foreign(directory.into(), 0, 4096).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes a memfd")]
    fn what_is_sealed_keeps_its_length() {
        let shared = Region::shared("sealed", 8192).unwrap();
        let fd = shared.fd().unwrap().try_clone_to_owned().unwrap();
        let file = File::from(fd.as_fd().try_clone_to_owned().unwrap());
        assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
        let again = Region::foreign(fd, 0, 8192).unwrap();
        shared.write(0, b"abcd");
        let mut bytes = [0; 4];
        again.read(0, &mut bytes);
        assert_eq!(&bytes, b"abcd");
    }
}
