//! An eventfd: an interrupt vector, or a wake-up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A counter that one side raises and the other waits on.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A fresh one, at zero.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: no memory is involved.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a descriptor that nobody else owns.
        Ok(EventFd { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Another process's, by which it is signalled; made such that nobody waits for one that is full.
    ///
    /// # Errors
    /// `InvalidInput` where it is no eventfd; else the system's.
    pub fn foreign(fd: OwnedFd) -> io::Result<EventFd> {
        let kind = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if kind.as_os_str() != "anon_inode:[eventfd]" {
            let why = format!("{} is no eventfd", kind.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | rustix::fs::OFlags::NONBLOCK)?;
        Ok(EventFd { fd })
    }

    /// Raises it by one and wakes a waiter.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight valid bytes. A full counter (EAGAIN) means that the waiter has a wake-up pending
        // already.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// Whether its counter is not full. One that is has a wake-up pending.
    pub(crate) fn has_room(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one valid pollfd, and no wait.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLOUT != 0
    }

    /// Whether it was raised and nobody has taken the count yet.
    pub fn is_raised(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: as above.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLIN != 0
    }

    /// Takes the count without waiting: how often it was raised since the last take.
    pub fn take(&self) -> u64 {
        let mut count = [0u8; 8];
        let into = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: 8 };
        // SAFETY: one vector of eight writable bytes. The flag: another process that has it too may have
        // taken O_NONBLOCK away.
        let n = unsafe { libc::preadv2(self.fd.as_raw_fd(), &into, 1, -1, libc::RWF_NOWAIT) };
        if n == 8 { u64::from_ne_bytes(count) } else { 0 }
    }

    /// Sleeps until it is raised or the time is over (`None`: for ever), then takes the count.
    pub fn wait(&self, timeout: Option<Duration>) -> u64 {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time =
            timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one valid pollfd, and a timespec that lives through the call or null.
        unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) };
        self.take()
    }

    /// Sleeps until one of two is raised or the time is over (`None`: for ever). Takes neither count.
    pub fn wait_either(&self, other: &EventFd, timeout: Option<Duration>) {
        let mut polls =
            [self, other].map(|e| libc::pollfd { fd: e.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let time =
            timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: two valid pollfds, and a timespec that lives through the call or null.
        unsafe { libc::ppoll(polls.as_mut_ptr(), 2, time, std::ptr::null()) };
    }
}

/// Sleeps until there is something to read from a descriptor (`writable`: or room to write), it fails, or the
/// time is over (`None`: for ever).
pub fn wait_readable(fd: BorrowedFd<'_>, writable: bool, timeout: Option<Duration>) {
    let events = if writable { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let time = timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one valid pollfd, and a timespec that lives through the call or null.
    unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) };
}

/// Sleeps until there is something to read from one of the descriptors, it fails, or the time is over
/// (`None`: for ever). Whether so, for each.
pub fn wait_any_readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> [bool; N] {
    let mut polls = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let time = timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid pollfds, as many as said, and a timespec that lives through the call or null.
    unsafe { libc::ppoll(polls.as_mut_ptr(), N as _, time, std::ptr::null()) };
    polls.map(|poll| poll.revents != 0)
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
