//! Page faults that a program serves itself: userfaultfd(2), over memory that two processes can share.
//!
//! The memory is a memfd, mapped by whoever uses it and, apart, by whoever serves its faults ([`Served`]).
//! The latter fills and reads pages by its own mapping, shows them to the user ([`UserFault::show`]), and
//! takes them away by a hole in the memfd ([`crate::persistent::punch`]): no call into the other process is
//! needed, of which the kernel allows none that would do (process_madvise(2) drops no pages of another's).
//!
//! Faults are of three kinds: of a page that is not there, of one that is and was not shown, and of a write
//! to one that was shown to be told of writes. A page that can never be filled is poisoned: whoever touches
//! it gets SIGBUS, or EFAULT in a system call. Faults from within a system call are served where the kernel
//! lets us: as root, with CAP_SYS_PTRACE, with vm.unprivileged_userfaultfd, or by /dev/userfaultfd; else such
//! a call ends in EFAULT ([`Served::serves_system_calls`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::{PAGE_SIZE, Region};

// include/uapi/linux/userfaultfd.h
const USERFAULTFD_IOC_NEW: libc::Ioctl = 0xaa00;
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_WAKE: libc::Ioctl = 0x8010_aa02_u32 as libc::Ioctl;
const UFFDIO_WRITEPROTECT: libc::Ioctl = 0xc018_aa06_u32 as libc::Ioctl;
const UFFDIO_CONTINUE: libc::Ioctl = 0xc020_aa07_u32 as libc::Ioctl;
const UFFDIO_POISON: libc::Ioctl = 0xc020_aa08_u32 as libc::Ioctl;
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: i32 = 1;
/// UFFD_FEATURE_ PAGEFAULT_FLAG_WP, MISSING_SHMEM, MINOR_SHMEM, WP_HUGETLBFS_SHMEM, POISON (Linux 6.6).
const FEATURES: u64 = 1 | 1 << 5 | 1 << 10 | 1 << 12 | 1 << 14;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const MODE_MINOR: u64 = 4;
const CONTINUE_MODE_WP: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const PAGEFAULT_FLAG_WRITE: u64 = 1;
const PAGEFAULT_FLAG_WP: u64 = 2;
const PAGEFAULT_FLAG_MINOR: u64 = 4;

/// A message of the kernel: struct uffd_msg, as a page fault fills it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

/// A page that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// Its number in the memory.
    pub page: usize,
    /// It is there, and was to be written, of which the server is to be told first.
    pub protected: bool,
    /// It is there, and its user's mapping does not show it.
    pub hidden: bool,
    /// It is to be written.
    pub writes: bool,
}

/// Memory whose faults are served elsewhere, as its user has it.
pub struct Served {
    region: Arc<Region>,
    faults: UserFault,
}

impl Served {
    /// `len` bytes (rounded up to pages), none of which is there. Children of a fork do not inherit them:
    /// their faults would come to nobody.
    ///
    /// # Errors
    /// The system's: no userfaultfd for this user, or a kernel before 6.6 without a feature that is needed.
    pub fn new(len: usize) -> io::Result<Served> {
        let region = Arc::new(Region::shared("nearside-paged", len)?);
        let base = region.pointer(0, region.len());
        // SAFETY: our own mapping, whole; the advice changes no byte.
        if unsafe { libc::madvise(base.cast(), region.len(), libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (fd, kernel) = open()?;
        let faults = UserFault { fd, base: base as u64, len: region.len(), kernel };
        faults.register()?;
        Ok(Served { region, faults })
    }

    /// The memory. Whoever touches a page waits for the server.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Whether faults from within system calls are told as well.
    pub fn serves_system_calls(&self) -> bool {
        self.faults.kernel
    }

    /// What a server needs, in this process or another.
    ///
    /// # Errors
    /// The system's: no descriptors.
    pub fn hand_over(&self) -> io::Result<(UserFault, OwnedFd)> {
        let memory = self.region.fd().ok_or(io::ErrorKind::Unsupported)?.try_clone_to_owned()?;
        Ok((self.faults.again()?, memory))
    }

    /// After the server's end: what is there can be read and written, every other page is poisoned, and
    /// nobody waits. Pages are told apart one by one.
    pub fn give_up(&self) {
        self.faults.give_up();
    }
}

/// The faults of some memory, for who serves them. Closed by its last owner, it leaves pages that are not
/// there to be zeros: [`UserFault::give_up`] comes before.
pub struct UserFault {
    fd: OwnedFd,
    /// Where the user has the memory: another process's address, maybe.
    base: u64,
    len: usize,
    kernel: bool,
}

impl UserFault {
    /// From what another process handed over ([`UserFault::place`]), which is not believed: calls on
    /// addresses that are not its own memory fail.
    ///
    /// # Errors
    /// `InvalidInput` where it is no userfaultfd; else the system's.
    pub fn foreign(fd: OwnedFd, base: u64, len: usize) -> io::Result<UserFault> {
        let kind = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if kind.as_os_str() != "anon_inode:[userfaultfd]" {
            let why = format!("{} is no userfaultfd", kind.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | rustix::fs::OFlags::NONBLOCK)?;
        Ok(UserFault { fd, base, len, kernel: true })
    }

    /// Where the memory lies in its user's addresses, and how long it is.
    pub fn place(&self) -> (u64, usize) {
        (self.base, self.len)
    }

    fn again(&self) -> io::Result<UserFault> {
        Ok(UserFault { fd: self.fd.try_clone()?, ..*self })
    }

    fn call<const N: usize>(&self, request: libc::Ioctl, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: each request above has its structure's size in it (bits 16 to 29), of as many words as its
        // callers here give; the kernel reads and writes only that.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), request, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn register(&self) -> io::Result<()> {
        let mode = MODE_MISSING | MODE_WP | MODE_MINOR;
        self.call(UFFDIO_REGISTER, &mut [self.base, self.len as u64, mode, 0])
    }

    fn at(&self, page: usize) -> u64 {
        self.base.wrapping_add((page * PAGE_SIZE) as u64)
    }

    /// Tries a call again while the kernel says that the other's addresses are just changing.
    fn persist(&self, mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        loop {
            match call() {
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
                done => return done,
            }
        }
    }

    /// Takes faults that nobody has taken, without waiting; how many there are.
    ///
    /// # Errors
    /// The system's.
    pub fn take(&self, into: &mut [PageFault]) -> io::Result<usize> {
        const MOST: usize = 32;
        let mut messages = [Message::default(); MOST];
        let wanted = into.len().min(MOST);
        let bytes = wanted * size_of::<Message>();
        // SAFETY: room for as many bytes; a message is plain integers, of which every value is one.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), bytes) };
        let got = match usize::try_from(got) {
            Ok(got) => got / size_of::<Message>(),
            Err(_) => match io::Error::last_os_error() {
                e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => 0,
                e => return Err(e),
            },
        };
        let mut count = 0;
        for message in &messages[..got] {
            let page = message.address.wrapping_sub(self.base) as usize / PAGE_SIZE;
            if message.event == EVENT_PAGEFAULT && page < self.len / PAGE_SIZE {
                into[count] = PageFault {
                    page,
                    protected: message.flags & PAGEFAULT_FLAG_WP != 0,
                    hidden: message.flags & PAGEFAULT_FLAG_MINOR != 0,
                    writes: message.flags & (PAGEFAULT_FLAG_WRITE | PAGEFAULT_FLAG_WP) != 0,
                };
                count += 1;
            }
        }
        Ok(count)
    }

    /// Shows its user a page that is there, and wakes who waits for it; `told`: of the first write to it the
    /// server is told.
    ///
    /// # Errors
    /// `AlreadyExists`: it is shown. Else the system's: it is not there, the user is gone.
    pub fn show(&self, page: usize, told: bool) -> io::Result<()> {
        let mode = if told { CONTINUE_MODE_WP } else { 0 };
        self.persist(|| self.call(UFFDIO_CONTINUE, &mut [self.at(page), PAGE_SIZE as u64, mode, 0]))
    }

    /// Has the server told of the next write to pages, or lets writes pass and wakes who waits with one.
    ///
    /// # Errors
    /// The system's.
    pub fn protect(&self, page: usize, pages: usize, protected: bool) -> io::Result<()> {
        let len = (pages * PAGE_SIZE) as u64;
        self.persist(|| self.call(UFFDIO_WRITEPROTECT, &mut [self.at(page), len, u64::from(protected)]))
    }

    /// Poisons a page that is not shown, and wakes who waits for it: it gets SIGBUS.
    ///
    /// # Errors
    /// As [`UserFault::show`].
    pub fn poison(&self, page: usize) -> io::Result<()> {
        self.persist(|| self.call(UFFDIO_POISON, &mut [self.at(page), PAGE_SIZE as u64, 0, 0]))
    }

    /// Wakes who waits for a page: it looks again.
    ///
    /// # Errors
    /// The system's.
    pub fn wake(&self, page: usize) -> io::Result<()> {
        self.call(UFFDIO_WAKE, &mut [self.at(page), PAGE_SIZE as u64])
    }

    /// See [`Served::give_up`].
    pub fn give_up(&self) {
        let pages = self.len / PAGE_SIZE;
        // Whatever fails here, there is nothing better to do for the page.
        let _ = self.protect(0, pages, false);
        let mut page = 0;
        while page < pages {
            // As many as are missing: it ends at one that is there.
            let mut words = [self.at(page), ((pages - page) * PAGE_SIZE) as u64, 0, 0];
            let done = self.call(UFFDIO_POISON, &mut words).is_ok();
            let poisoned = i64::from_ne_bytes(words[3].to_ne_bytes()) / PAGE_SIZE as i64;
            page += if done { pages } else { usize::try_from(poisoned).unwrap_or(0).max(1) };
        }
        let _ = self.call(UFFDIO_WAKE, &mut [self.base, self.len as u64]);
    }
}

impl AsFd for UserFault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A userfaultfd, and whether it hears of faults in system calls.
fn open() -> io::Result<(OwnedFd, bool)> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let call = |flags: i32| {
        // SAFETY: no memory is involved.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(raw as i32) })
    };
    let device = || {
        let device = File::options().read(true).write(true).open("/dev/userfaultfd")?;
        // SAFETY: the argument is flags, no memory.
        let raw = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    };
    let opened = call(flags).or_else(|_| device()).map(|fd| (fd, true));
    let (fd, kernel) = opened.or_else(|_| call(flags | UFFD_USER_MODE_ONLY).map(|fd| (fd, false)))?;
    let mut api = [UFFD_API, FEATURES, 0];
    // SAFETY: struct uffdio_api has three words, which the kernel reads and writes.
    if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } != 0 {
        let e = io::Error::last_os_error();
        return Err(io::Error::new(e.kind(), format!("userfaultfd without what is needed (Linux 6.6): {e}")));
    }
    Ok((fd, kernel))
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use super::*;

    fn next(faults: &UserFault) -> PageFault {
        let mut one = [PageFault { page: 0, protected: false, hidden: false, writes: false }];
        while faults.take(&mut one).unwrap() == 0 {
            std::thread::yield_now();
        }
        one[0]
    }

    #[test]
    fn a_page_is_shown_once_it_is_there_and_again_when_it_was_hidden() {
        let Ok(served) = Served::new(PAGE_SIZE) else {
            eprintln!("LEFT OUT: no userfaultfd for this user, or a kernel before 6.6");
            return;
        };
        let (faults, memory) = served.hand_over().unwrap();
        let own = Region::foreign(memory, 0, PAGE_SIZE).unwrap();
        let looks = || -> JoinHandle<u8> {
            let region = served.region().clone();
            std::thread::spawn(move || {
                let mut byte = [0];
                region.read(7, &mut byte);
                byte[0]
            })
        };
        let looking = looks();
        assert_eq!(next(&faults), PageFault { page: 0, protected: false, hidden: false, writes: false });
        own.write(7, &[5]);
        faults.show(0, true).unwrap();
        assert_eq!(looking.join().unwrap(), 5);
        assert_eq!(faults.show(0, true).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let base = served.region().pointer(0, PAGE_SIZE);
        // SAFETY: shared memory keeps its bytes; the advice takes it out of this mapping alone.
        assert_eq!(unsafe { libc::madvise(base.cast(), PAGE_SIZE, libc::MADV_DONTNEED) }, 0);
        let looking = looks();
        assert_eq!(next(&faults), PageFault { page: 0, protected: false, hidden: true, writes: false });
        faults.show(0, true).unwrap();
        assert_eq!(looking.join().unwrap(), 5);
        let region = served.region().clone();
        let writing = std::thread::spawn(move || region.write(7, &[6]));
        assert_eq!(next(&faults), PageFault { page: 0, protected: true, hidden: false, writes: true });
        faults.protect(0, 1, false).unwrap();
        writing.join().unwrap();
        let mut byte = [0];
        own.read(7, &mut byte);
        assert_eq!(byte, [6]);
    }
}
