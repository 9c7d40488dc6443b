//! The way to a drive that the host's own kernel drives: near-data commands as its ioctls pass them through, beside whatever file
//! system the host has mounted there.
//!
//! An ioctl waits for its command, so that `execute` and `result` go one after the other: two round trips. A `result` waits in the
//! drive for less than the kernel's own patience, and is posted again. Only a drive that says that it is Nearside's is asked.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearside_dma::passthrough::{Passed, Passthrough, Queue, namespace_of, pass};
use nearside_driver::NamespaceInfo;
use nearside_spec::identify::cns;
use nearside_spec::near_data::wire;
use nearside_spec::opcode::{self, admin, io as op};
use nearside_spec::{Status, identify::IdentifyController, layout};

use crate::queue::failed;
use crate::tcp::{WAIT_MS, take_reply};
use crate::{Completion, Error, Transport};

/// Largest buffer that the kernel passes through for any device: 32 segments of a page.
const MOST: usize = 128 * 1024;
/// How long the kernel waits for a command.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the drive's page of near-data capabilities begins with.
const CAPABLE: &[u8] = b"NDCP";
/// What its model begins with.
const MODEL: &str = "Nearside";

/// A namespace behind the kernel's driver.
#[derive(Debug)]
pub struct KernelTransport {
    device: File,
    path: PathBuf,
    namespace: NamespaceInfo,
    tags: RandomState,
    sent: u64,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A Nearside drive.
    Drive(Box<KernelTransport>),
    /// An NVMe drive of somebody else; its model.
    Other(String),
    /// No NVMe namespace, or one of which this user may not know more.
    Unknown,
}

/// The model as sysfs has it, which anyone may read.
fn model_in_sysfs(path: &Path) -> Option<String> {
    let name = path.canonicalize().ok()?.file_name()?.to_str()?.to_owned();
    let model = |class: &str| std::fs::read_to_string(format!("/sys/class/{class}/{name}/device/model")).ok();
    let model = model("block").or_else(|| model("nvme-generic"))?;
    Some(model.trim().to_owned())
}

impl KernelTransport {
    /// Looks what a device is. An error is one that a user should know of: the drive is Nearside's, and cannot be asked.
    pub fn find(path: &Path) -> Result<Found, Error> {
        let what = path.display().to_string();
        let ours_by_name = || model_in_sysfs(path).is_some_and(|model| model.starts_with(MODEL));
        let denied = || {
            let why = "near-data commands through the kernel's driver need root (CAP_SYS_ADMIN)";
            Err(Error::Unsupported(format!("{what}: {why}")))
        };
        let device = match File::open(path) {
            Ok(device) => device,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && ours_by_name() => return denied(),
            Err(_) => return Ok(Found::Unknown),
        };
        let Ok(nsid) = namespace_of(&device) else { return Ok(Found::Unknown) };
        let mut bytes = [0; 4096];
        match identify(&device, cns::CONTROLLER, 0, &mut bytes) {
            Ok(()) => {}
            Err(Error::Io { .. }) if ours_by_name() => return denied(),
            Err(_) => return Ok(Found::Unknown),
        }
        let model = layout::text(&IdentifyController::from_bytes(&bytes).mn());
        let page = log_page(&device, nsid, 0, 64);
        let capable = page.is_ok_and(|page| page.starts_with(CAPABLE));
        if !model.starts_with(MODEL) || !capable {
            return Ok(Found::Other(model));
        }
        identify(&device, cns::NAMESPACE, nsid, &mut bytes)?;
        let namespace = NamespaceInfo::of(nsid, &bytes).map_err(failed)?;
        let path = path.to_owned();
        let tags = RandomState::new();
        Ok(Found::Drive(Box::new(KernelTransport { device, path, namespace, tags, sent: 0 })))
    }

    fn near_data_command(
        &self,
        what: &'static str,
        opcode: u8,
        cdw: [u32; 6],
        data: &mut [u8],
    ) -> Result<u64, Error> {
        let nsid = self.namespace.nsid;
        let command = Passthrough { opcode, nsid, cdw, timeout: PATIENCE };
        let passed = pass(&self.device, Queue::Io, &command, data);
        ended(what, passed.map_err(|e| self.io(what, e))?)
    }

    fn io(&self, what: &str, source: io::Error) -> Error {
        let hint = match source.kind() {
            io::ErrorKind::PermissionDenied => " (it needs root)",
            io::ErrorKind::InvalidInput => " (the kernel takes no buffer of that size)",
            _ => "",
        };
        Error::Io { what: format!("{}: {what} through the kernel{hint}", self.path.display()), source }
    }
}

fn ended(what: &'static str, passed: Passed) -> Result<u64, Error> {
    let status = Status(passed.status);
    if status.is_success() { Ok(passed.result) } else { Err(Error::Nvme { what, status }) }
}

fn admin_command(
    what: &'static str,
    device: &File,
    command: &Passthrough,
    data: &mut [u8],
) -> Result<(), Error> {
    let passed = pass(device, Queue::Admin, command, data).map_err(Error::io(what))?;
    ended(what, passed).map(drop)
}

fn identify(device: &File, cns: u8, nsid: u32, into: &mut [u8; 4096]) -> Result<(), Error> {
    let cdw = [u32::from(cns), 0, 0, 0, 0, 0];
    let command = Passthrough { opcode: admin::IDENTIFY, nsid, cdw, timeout: PATIENCE };
    admin_command("identify", device, &command, into)
}

/// `len` bytes, a multiple of four, of the page of near-data capabilities.
fn log_page(device: &File, nsid: u32, offset: u32, len: usize) -> Result<Vec<u8>, Error> {
    let dwords_z = (len / 4).saturating_sub(1) as u32;
    let cdw = [u32::from(opcode::LOG_NEAR_DATA) | dwords_z << 16, 0, offset, 0, 0, 0];
    let command = Passthrough { opcode: admin::GET_LOG_PAGE, nsid, cdw, timeout: PATIENCE };
    let mut page = vec![0; len];
    admin_command("get log page", device, &command, &mut page)?;
    Ok(page)
}

impl Transport for KernelTransport {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        if request.len() > MOST || !(wire::REPLY_HEADER..=MOST).contains(&capacity) {
            let reason = format!("{} bytes, and a buffer of {capacity}; the most is {MOST}", request.len());
            return Err(Error::Form { what: "request", reason });
        }
        self.sent += 1;
        let tag = self.tags.hash_one(self.sent);
        let (low, high) = (tag as u32, (tag >> 32) as u32);
        // Whole dwords: what the kernel passes is no shorter.
        let mut sent = request.to_vec();
        sent.resize(request.len().next_multiple_of(4), 0);
        let execute = [request.len() as u32, 0, low, high, 0, 0];
        self.near_data_command("a near-data command", op::NEAR_DATA_EXECUTE, execute, &mut sent)?;
        let mut buffer = vec![0; capacity];
        let result = [0, capacity as u32, low, high, WAIT_MS, 0];
        loop {
            let what = "the result of a near-data command";
            match self.near_data_command(what, op::NEAR_DATA_RESULT, result, &mut buffer) {
                Ok(0) => {}
                Ok(len) => return take_reply(&buffer, usize::try_from(len).unwrap_or(usize::MAX), reply),
                Err(error) => {
                    // Whatever is left of it is not wanted.
                    let cancel = [0, 0, low, high, 0, 0];
                    let _ = self.near_data_command("cancel", op::NEAR_DATA_CANCEL, cancel, &mut []);
                    return Err(error);
                }
            }
        }
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let block = self.namespace.block_size as usize;
        let mut commands = 0;
        for piece in into.chunks_mut((MOST / block * block).max(block)) {
            let slba = (offset + commands * MOST as u64) / block as u64;
            let blocks_z = (piece.len() / block).saturating_sub(1) as u32;
            let cdw = [slba as u32, (slba >> 32) as u32, blocks_z, 0, 0, 0];
            self.near_data_command("a read", op::READ, cdw, piece)?;
            commands += 1;
        }
        Ok(commands)
    }

    fn capacity(&self) -> u64 {
        self.namespace.blocks.saturating_mul(u64::from(self.namespace.block_size))
    }

    fn block_size(&self) -> u32 {
        self.namespace.block_size
    }

    fn max_buffer(&self) -> usize {
        MOST
    }

    fn taken(&mut self) -> Result<Option<u64>, Error> {
        let page = log_page(&self.device, self.namespace.nsid, 64, 8)?;
        Ok(page.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
    }

    fn completion(&self) -> Completion {
        Completion {
            model: "kernel".into(),
            read_4k_ns: None,
            detail: "the kernel's driver completes the commands; this process sleeps in an ioctl".into(),
            spinning_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_nvme_drive_is_unknown() {
        for path in ["/proc/self/exe", "/dev/null", "/nonexistent"] {
            assert!(matches!(KernelTransport::find(Path::new(path)), Ok(Found::Unknown)), "{path}");
        }
    }
}
