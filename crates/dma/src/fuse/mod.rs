//! What a FUSE server asks of the kernel: the mount, requests and replies on `/dev/fuse`, and the same by
//! io_uring ([`ring`]).
//!
//! Which requests there are, and what they mean, is whoever serves them to know; here they are bytes. The
//! part of a request or reply that is a file's data lies in a [`Region`], so that it goes between the kernel
//! and the memory of a drive's driver without a copy on the way.

pub mod ring;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::{Region, system};

/// The name of the file system's kind after `fuse.`, and of what is mounted.
const NAME: &str = "nearside";

/// How a mount is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing can be opened for writing.
    pub read_only: bool,
    /// Others than who mounts get in, as far as modes let them.
    pub allow_other: bool,
}

/// A mounted file system's way to its server; unmounting is for [`system::unmount`].
#[derive(Debug)]
pub struct FuseDevice {
    file: File,
}

/// A piece of a region: it, where, and how many bytes.
pub type RegionPiece<'a> = (&'a Region, usize, usize);

impl FuseDevice {
    /// Mounts on the directory `at`: by the system call, or by fusermount3 where only that may.
    ///
    /// # Errors
    /// The system's, or the words of fusermount3.
    pub fn mount(at: &Path, options: MountOptions) -> io::Result<FuseDevice> {
        let opened = File::options().read(true).write(true).open("/dev/fuse");
        match opened.and_then(|file| mount(at, &file, options).map(|()| file)) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                by_fusermount(at, options).map(FuseDevice::of)
            }
            mounted => mounted.map(|file| FuseDevice { file }),
        }
    }

    /// A device that is open already.
    pub fn of(device: OwnedFd) -> FuseDevice {
        FuseDevice { file: File::from(device) }
    }

    /// From now on [`FuseDevice::receive`] never waits.
    ///
    /// # Errors
    /// The system's.
    pub fn never_wait(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        Ok(rustix::fs::fcntl_setfl(&self.file, flags | rustix::fs::OFlags::NONBLOCK)?)
    }

    /// Takes a request: its first bytes into `head`, what is more into `rest`. Returns how many there were.
    ///
    /// # Panics
    /// Where `rest` lies outside its region.
    ///
    /// # Errors
    /// `WouldBlock`: there is none; `ENODEV`: the file system is unmounted; `ECONNABORTED`: its connection
    /// was aborted; else the system's.
    pub fn receive(&self, head: &mut [u8], rest: RegionPiece<'_>) -> io::Result<usize> {
        let (region, offset, len) = rest;
        let vectors = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: region.pointer(offset, len).cast(), iov_len: len },
        ];
        // SAFETY: both vectors name writable memory that lives through the call: `head`, which is borrowed
        // for us alone, and the region's, to which no reference exists.
        let got = unsafe { libc::readv(self.file.as_raw_fd(), vectors.as_ptr(), 2) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }

    /// Sends a reply: `head`, then a file's bytes.
    ///
    /// # Panics
    /// Where these lie outside their region.
    ///
    /// # Errors
    /// `ENOENT`: nobody waits for it any more; else the system's.
    pub fn reply(&self, head: &[u8], rest: Option<RegionPiece<'_>>) -> io::Result<()> {
        let (base, len) = match rest {
            Some((region, offset, len)) => (region.pointer(offset, len).cast(), len),
            None => (std::ptr::null_mut(), 0),
        };
        let vectors = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: base, iov_len: len },
        ];
        let count = if len == 0 { 1 } else { 2 };
        // SAFETY: `count` vectors name memory that lives through the call; the kernel only reads it, and
        // bytes of a region that change meanwhile are sent old or new.
        let sent = unsafe { libc::writev(self.file.as_raw_fd(), vectors.as_ptr(), count) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for FuseDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn mount(at: &Path, device: &File, options: MountOptions) -> io::Result<()> {
    let (uid, gid) = system::effective_ids();
    let others = if options.allow_other { ",allow_other" } else { "" };
    let fd = device.as_raw_fd();
    let words = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions{others}");
    let (source, kind, data) =
        (CString::new(NAME)?, CString::new(format!("fuse.{NAME}"))?, CString::new(words)?);
    let at = CString::new(at.as_os_str().as_bytes())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | if options.read_only { libc::MS_RDONLY } else { 0 };
    // SAFETY: four valid C strings.
    let done =
        unsafe { libc::mount(source.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// fusermount3 hands the device over by the socket that it has as its standard input.
fn by_fusermount(at: &Path, options: MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut words = format!("nosuid,nodev,default_permissions,fsname={NAME},subtype={NAME}");
    words.push_str(if options.read_only { ",ro" } else { ",rw" });
    words.push_str(if options.allow_other { ",allow_other" } else { "" });
    let mut child = Command::new("fusermount3")
        .args(["-o", &words, "--"])
        .arg(at)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // A helper that ends closes its end: nothing is waited for in vain.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&ours, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC);
    let handed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let mut said = String::new();
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    let status = child.wait()?;
    match (got, handed) {
        (Ok(_), Some(device)) if status.success() => Ok(device),
        (Err(e), _) if status.success() => Err(e.into()),
        _ => Err(io::Error::other(format!("fusermount3: {}", said.trim()))),
    }
}
