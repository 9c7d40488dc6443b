//! NVMe commands through the kernel's driver (`linux/nvme_ioctl.h`): ioctls on a controller (`/dev/nvmeX`), a
//! namespace's block device (`/dev/nvmeXnY`) or its character device (`/dev/ngXnY`), one at a time; or
//! io_uring commands on either character device, many in flight ([`CommandRing`]). They need CAP_SYS_ADMIN,
//! but for some that only read.

mod ring;

pub use ring::{CommandRing, Ended};

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// `struct nvme_uring_cmd`, which lies in the second half of an io_uring entry of 128 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct NvmeUringCmd {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    rsvd2: u32,
}

/// `struct nvme_passthru_cmd64`.
#[repr(C)]
struct PassthruCmd64 {
    command: NvmeUringCmd,
    result: u64,
}

const _: () = assert!(size_of::<NvmeUringCmd>() == 72 && size_of::<PassthruCmd64>() == 80);

impl NvmeUringCmd {
    /// For as long as `data` stays where it is. `InvalidInput`: more than 4 GiB.
    fn new(command: &Passthrough, data: &mut [u8]) -> io::Result<NvmeUringCmd> {
        Ok(NvmeUringCmd {
            opcode: command.opcode,
            nsid: command.nsid,
            addr: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
            data_len: u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            cdw10: command.cdw,
            timeout_ms: u32::try_from(command.timeout.as_millis()).unwrap_or(u32::MAX),
            ..NvmeUringCmd::default()
        })
    }
}

/// `_IOWR('N', nr, size)`.
const fn iowr(nr: u32, size: usize) -> libc::Ioctl {
    ((3u32 << 30) | ((size as u32) << 16) | ((b'N' as u32) << 8) | nr) as libc::Ioctl
}

/// NVME_IOCTL_ID, which takes no argument: the namespace of the file.
const ID: libc::Ioctl = ((b'N' as u32) << 8 | 0x40) as libc::Ioctl;
const ADMIN64: libc::Ioctl = iowr(0x47, size_of::<PassthruCmd64>());
const IO64: libc::Ioctl = iowr(0x48, size_of::<PassthruCmd64>());

/// Which queue takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The controller's admin queue.
    Admin,
    /// One of the kernel's I/O queues.
    Io,
}

/// A command without its identifier and data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// Opcode.
    pub opcode: u8,
    /// NSID.
    pub nsid: u32,
    /// CDW10 to CDW15.
    pub cdw: [u32; 6],
    /// After which the kernel gives it up; zero for its own default.
    pub timeout: Duration,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The status field, without the phase tag; 0 is success.
    pub status: u16,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
}

/// The namespace's identifier.
///
/// # Errors
/// The system's; ENOTTY on a controller's own device and on what is no NVMe device.
pub fn namespace_of(device: &File) -> io::Result<u32> {
    // SAFETY: this request takes no argument.
    let nsid = unsafe { libc::ioctl(device.as_raw_fd(), ID) };
    u32::try_from(nsid).ok().filter(|&n| n > 0).ok_or_else(io::Error::last_os_error)
}

/// Sends a command and waits for it; `data` are its data, in the direction that the opcode says.
///
/// # Errors
/// The system's: the command did not reach the drive, or its fate is unknown. A status of the drive's is no
/// error here.
pub fn pass(device: &File, queue: Queue, command: &Passthrough, data: &mut [u8]) -> io::Result<Passed> {
    let mut cmd = PassthruCmd64 { command: NvmeUringCmd::new(command, data)?, result: 0 };
    let request = if queue == Queue::Admin { ADMIN64 } else { IO64 };
    // SAFETY: `cmd` has the layout that the request names; `addr` has `data_len` bytes, borrowed for as long
    // as the call, which returns after the command has ended or was aborted.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), request, &mut cmd) };
    match u16::try_from(status) {
        Ok(status) => Ok(Passed { status, result: cmd.result }),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// As `linux/nvme_ioctl.h` has them.
    #[test]
    fn layout() {
        let at = |field: usize, want: usize| assert_eq!(field, want);
        at(offset_of!(NvmeUringCmd, nsid), 4);
        at(offset_of!(NvmeUringCmd, cdw2), 8);
        at(offset_of!(NvmeUringCmd, metadata), 16);
        at(offset_of!(NvmeUringCmd, addr), 24);
        at(offset_of!(NvmeUringCmd, metadata_len), 32);
        at(offset_of!(NvmeUringCmd, data_len), 36);
        at(offset_of!(NvmeUringCmd, cdw10), 40);
        at(offset_of!(NvmeUringCmd, timeout_ms), 64);
        at(offset_of!(PassthruCmd64, result), 72);
        assert_eq!((ID, ADMIN64, IO64), (0x4e40, 0xc050_4e47, 0xc050_4e48));
    }

    #[test]
    fn a_file_is_no_drive() {
        let file = File::open("/proc/self/exe").unwrap();
        let command = Passthrough { opcode: 6, nsid: 0, cdw: [1, 0, 0, 0, 0, 0], timeout: Duration::ZERO };
        let error = pass(&file, Queue::Admin, &command, &mut [0; 4096]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(namespace_of(&file).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
