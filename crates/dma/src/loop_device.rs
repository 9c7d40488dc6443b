//! Loop devices: a block device over a file (loop(4)).
//!
//! One that is made here passes requests on without a cache of its own (LO_FLAGS_DIRECT_IO), and goes when
//! the last who has it open closes it (LO_FLAGS_AUTOCLEAR): whoever made it has it open, so it is there until
//! that process has ended, however it ends, and everybody else has let go of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// How often another free device is asked for, where somebody else was faster.
const TRIES: usize = 64;

/// A loop device of this process.
#[derive(Debug)]
pub struct LoopDevice {
    device: File,
    path: PathBuf,
}

/// A number of a descriptor, to be the loop device's later. Descriptors of a process that was killed are
/// closed from the highest down; where that process serves the file below, its way to the kernel has to be
/// closed before the loop device is, which otherwise waits for what nobody writes out any more. So this is
/// taken first.
#[derive(Debug)]
pub struct LoopPlace(OwnedFd);

impl LoopPlace {
    /// Takes a number.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<LoopPlace> {
        File::open("/dev/null").map(|null| LoopPlace(null.into()))
    }

    /// Lays a loop device over the file at `path`, with blocks of so many bytes (512 to 4096).
    ///
    /// # Errors
    /// The system's: no loop devices, or not for this process.
    pub fn attach(self, path: &Path, block_size: u32, read_only: bool) -> io::Result<LoopDevice> {
        let named = |what: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", what.display()));
        let control_path = Path::new("/dev/loop-control");
        let control =
            File::options().read(true).write(true).open(control_path).map_err(|e| named(control_path, e))?;
        let file = File::options().read(true).write(!read_only).open(path).map_err(|e| named(path, e))?;
        let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
        for _ in 0..TRIES {
            // SAFETY: no memory is involved.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(named(control_path, io::Error::last_os_error()));
            }
            let at = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::options().read(true).write(!read_only).open(&at).map_err(|e| named(&at, e))?;
            match configure(&device, &file, path, block_size, read_only) {
                Ok(()) => return Ok(LoopDevice { device: self.hold(&device)?, path: at }),
                // Somebody else had it first.
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => last = e,
                Err(e) => return Err(named(&at, e)),
            }
        }
        Err(named(control_path, last))
    }

    fn hold(self, device: &File) -> io::Result<File> {
        let mut place = self.0;
        rustix::io::dup3(device, &mut place, rustix::io::DupFlags::CLOEXEC)?;
        Ok(File::from(place))
    }
}

fn configure(device: &File, file: &File, path: &Path, block_size: u32, read_only: bool) -> io::Result<()> {
    const { assert!(size_of::<LoopConfig>() == 304) };
    // SAFETY: an all-zero configuration is a valid value: numbers only.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = file.as_raw_fd() as u32;
    config.block_size = block_size;
    config.info.flags = AUTOCLEAR | DIRECT_IO | if read_only { READ_ONLY } else { 0 };
    // The last byte stays the end of the string.
    let name = path.as_os_str().as_bytes().iter().take(63);
    config.info.file_name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: one loop_config of the kernel's layout, which it only reads.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, std::ptr::from_ref(&config)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl LoopDevice {
    /// The block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it off its file; where somebody else has it open, when the last of them has closed it.
    ///
    /// # Errors
    /// The system's: what was written to it could not be written out.
    pub fn detach(self) -> io::Result<()> {
        let synced = self.device.sync_all();
        // SAFETY: no memory is involved.
        let cleared = unsafe { libc::ioctl(self.device.as_raw_fd(), LOOP_CLR_FD) };
        synced?;
        if cleared < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_while_it_is_held() {
        let Ok(place) = LoopPlace::new() else { return };
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let device = match place.attach(file.path(), 512, false) {
            Ok(device) => device,
            Err(e) => return eprintln!("LEFT OUT: it_is_there_while_it_is_held: {e}"),
        };
        let backing = device.path().file_name().unwrap().to_str().unwrap().to_owned();
        let backing = PathBuf::from(format!("/sys/block/{backing}/loop/backing_file"));
        let over = || std::fs::read_to_string(&backing).unwrap_or_default();
        assert_eq!(over().trim(), file.path().to_str().unwrap());
        device.detach().unwrap();
        assert_ne!(over().trim(), file.path().to_str().unwrap());
    }
}
