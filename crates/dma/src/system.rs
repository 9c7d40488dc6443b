//! What a program that stays needs of the system beyond the standard library: termination signals,
//! unmounting, and who is at the other end of a socket.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

/// SIGINT, SIGTERM and SIGHUP, taken from their handlers and waited for.
#[derive(Debug)]
pub struct Termination {
    signals: File,
}

impl Termination {
    /// Blocks the signals in this thread and those that it starts from now on: call it before any other
    /// thread is there.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Termination> {
        let set = termination();
        // SAFETY: `set` is a valid sigset.
        let fd = unsafe {
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a descriptor that nobody else owns.
        Ok(Termination { signals: unsafe { File::from_raw_fd(fd) } })
    }

    /// Sleeps until one comes; its name.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<&'static str> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.signals.read_exact(&mut info)?;
        // The first field, ssi_signo.
        Ok(match i32::from_ne_bytes([info[0], info[1], info[2], info[3]]) {
            libc::SIGINT => "SIGINT",
            libc::SIGTERM => "SIGTERM",
            _ => "SIGHUP",
        })
    }

    /// Ends the process by the signal of that name, as if nobody had listened: a shell that has started it
    /// sees so, and ends its loop.
    pub fn end_by(name: &str) -> ! {
        let signal = match name {
            "SIGINT" => libc::SIGINT,
            "SIGTERM" => libc::SIGTERM,
            _ => libc::SIGHUP,
        };
        let set = termination();
        // SAFETY: `set` is a valid sigset, and no handler of ours is replaced; the signal waits, blocked,
        // until this thread lets it through.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        }
        // Not reached, but where a debugger has taken it.
        std::process::exit(128 + signal)
    }
}

fn termination() -> libc::sigset_t {
    // SAFETY: an all-zero sigset is a valid value, and sigemptyset sets it properly before its use; the
    // signals exist.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Has a program begin with the signals of [`Termination`] let through: it would inherit that they are
/// blocked here, and could be ended by SIGKILL alone.
pub fn let_signals_through(mut command: Command) -> Command {
    let set = termination();
    let unblock = move || {
        // SAFETY: `set` is a valid sigset.
        match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    };
    // SAFETY: between fork and exec it calls pthread_sigmask alone, which takes no lock and no memory.
    unsafe { command.pre_exec(unblock) };
    command
}

/// Ends a mount: by the system call, or by fusermount3 where only that may. `lazy`: it goes out of sight now,
/// and ends when its last user has.
///
/// # Errors
/// The system's (`ResourceBusy` while somebody uses the mount), or the words of fusermount3.
pub fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let path = CString::new(mountpoint.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: a valid C string.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Err(error);
    }
    let out = std::process::Command::new("fusermount3")
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(mountpoint)
        .output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&out.stderr).trim().to_owned()))
}

/// Ends a mount whose server has failed: requests that nobody answered fail, and so do those that come. It
/// goes out of sight. For root alone (fuse_umount_begin of the kernel's fs/fuse/inode.c).
///
/// # Errors
/// The system's.
pub fn abort_mount(mountpoint: &Path) -> io::Result<()> {
    let path = CString::new(mountpoint.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | libc::MNT_FORCE | libc::MNT_DETACH;
    // SAFETY: a valid C string.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tells a child to end (SIGTERM). One that has been waited for is told nothing.
pub fn terminate(child: &mut Child) {
    if let (Ok(None), Ok(pid)) = (child.try_wait(), i32::try_from(child.id())) {
        // SAFETY: no memory is involved. The child was not waited for: its number is nobody else's.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Who connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user when it connected.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Who is at the other end, as the kernel knows it (SO_PEERCRED, SO_PEERGROUPS).
///
/// # Errors
/// The system's, of getsockopt(2).
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let fd = stream.as_raw_fd();
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let at = std::ptr::from_mut(&mut credentials).cast();
    // SAFETY: `at` has room for `len` bytes.
    if unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // 65,536 is NGROUPS_MAX.
    let mut groups = vec![0u32; 65_536];
    let mut len = (groups.len() * 4) as libc::socklen_t;
    // SAFETY: `groups` has room for `len` bytes.
    let got = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), &mut len)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(len as usize / 4);
    Ok(Peer { uid: credentials.uid, gid: credentials.gid, groups })
}

/// The effective user and group of this process.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: neither can fail nor touches memory.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Tells the kernel that this thread, and those that it starts, write out a file system's dirty pages: memory
/// that they ask for is not to be found by writing out more of them, which would wait for this thread. Needs
/// CAP_SYS_RESOURCE; false without.
pub fn serve_writeback() -> bool {
    const PR_SET_IO_FLUSHER: i32 = 57;
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0 }
}

/// Lets this thread's timed sleeps end when asked (PR_SET_TIMERSLACK): by default the kernel may add 50 us to
/// each. Asks the kernel once for each thread.
pub fn sharp_sleeps() {
    thread_local! {
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }
    if !ASKED.replace(true) {
        // SAFETY: no memory is involved. Where it is refused, sleeps are as long as they were.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    }
}

/// Keeps this process's pages in memory once they are there (mlockall: MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT):
/// none of them waits for a swap area, which may be the drive that this process is.
///
/// # Errors
/// Those of mlockall(2): without CAP_IPC_LOCK, RLIMIT_MEMLOCK is a bound.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: no memory of ours is written; what is locked stays as it is.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The machine's memory in bytes; 0 where the system does not say.
#[must_use]
pub fn memory_bytes() -> u64 {
    // SAFETY: no memory is involved.
    let [pages, page] = unsafe { [libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)] };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it reads what the kernel says")]
    fn memory_is_what_the_kernel_says() {
        let info = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kib: u64 = total.trim().trim_end_matches(" kB").parse().unwrap();
        assert_eq!(memory_bytes() / 1024, kib);
    }

    #[test]
    fn a_peer_is_known() {
        let (one, _two) = UnixStream::pair().unwrap();
        let peer = peer(&one).unwrap();
        assert_eq!((peer.uid, peer.gid), effective_ids());
        assert!(unmount(Path::new("/nonexistent"), false).is_err());
    }

    #[test]
    fn sleeps_are_sharp_where_asked_for_and_only_there() {
        // SAFETY: no memory is involved.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        let before = slack();
        std::thread::spawn(move || {
            assert_eq!(slack(), before);
            sharp_sleeps();
            assert_eq!(slack(), 1);
        })
        .join()
        .unwrap();
        assert_eq!(slack(), before);
    }
}
