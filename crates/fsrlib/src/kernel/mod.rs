//! The way to a drive that the host's own kernel drives: near-data commands passed through it, beside
//! whatever file system the host has mounted there.
//!
//! On a character device (`/dev/ngXnY`; `/dev/nvmeX` with its first namespace) the commands go by io_uring,
//! several at once: `execute` and `result` are one round trip, and a wait can be given up. On a block device,
//! and where there is no io_uring, an ioctl waits for each (`device`). A `result` waits in the drive for less
//! than the kernel's own patience. Only a drive that says that it is Nearside's is asked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_dma::passthrough::Queue;
use nearside_driver::{Command, NamespaceInfo};
use nearside_near_data::MAX_BUFFER;
use nearside_spec::command;
use nearside_spec::identify::cns;
use nearside_spec::log::NearDataLog;
use nearside_spec::opcode::{self, io as op};
use nearside_spec::{identify::IdentifyController, layout};

use crate::carrier::{self, Stop, Tags};
use crate::queue::failed;
use crate::{Completion, Error, Transport};

mod device;

use device::Device;

/// Bytes that the kernel passes through for any device: 32 segments of a page.
const LEAST: usize = 128 * 1024;
/// Bytes of one ordinary read.
const READ: usize = 128 * 1024;
const PAGE: usize = 4096;
/// What its model begins with.
const MODEL: &str = "Nearside";

/// A namespace behind the kernel's driver.
#[derive(Debug)]
pub struct KernelTransport {
    io: Device,
    admin: Device,
    namespace: NamespaceInfo,
    /// Most bytes of a command.
    most: usize,
    /// The buffer of the last `result`, for the next.
    spare: Vec<u8>,
    tags: Tags,
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

/// A device's name in sysfs.
fn name_of(path: &Path) -> Option<String> {
    Some(path.canonicalize().ok()?.file_name()?.to_str()?.to_owned())
}

/// The model as sysfs has it, which anyone may read.
fn model_in_sysfs(path: &Path) -> Option<String> {
    let name = name_of(path)?;
    let places =
        [format!("block/{name}/device"), format!("nvme-generic/{name}/device"), format!("nvme/{name}")];
    let model = |place: String| std::fs::read_to_string(format!("/sys/class/{place}/model")).ok();
    Some(places.into_iter().find_map(model)?.trim().to_owned())
}

/// The character device of a controller's first namespace.
/// With several paths to a namespace it is its subsystem's.
fn first_namespace(controller: &Path) -> Option<PathBuf> {
    let name = name_of(controller)?;
    let subsystems = std::fs::read_dir("/sys/class/nvme-subsystem").into_iter().flatten().flatten();
    let subsystems = subsystems.map(|entry| entry.path()).filter(|folder| folder.join(&name).exists());
    let folders = subsystems.chain([Path::new("/sys/class/nvme").join(&name)]);
    let devices = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let generic = devices.filter_map(|entry| entry.file_name().into_string().ok());
    let first =
        generic.filter(|name| name.starts_with("ng")).min_by_key(|name| (name.len(), name.clone()))?;
    Some(Path::new("/dev").join(first))
}

/// Most bytes that the kernel takes for one command of a namespace's device: its block device has the limits.
/// Each page may be a segment, and a buffer that begins within a page has one more.
fn most_of(device: &Path) -> usize {
    let name = name_of(device).unwrap_or_default();
    let block = name.strip_prefix("ng").map_or(name.clone(), |rest| format!("nvme{rest}"));
    let limit = |file: &str| -> Option<usize> {
        let text = std::fs::read_to_string(format!("/sys/class/block/{block}/queue/{file}")).ok()?;
        text.trim().parse().ok()
    };
    let segments = limit("max_segments").map(|segments| segments.saturating_sub(1).saturating_mul(PAGE));
    let sectors = limit("max_hw_sectors_kb").map(|kib| kib.saturating_mul(1024));
    segments.zip(sectors).map_or(LEAST, |(a, b)| (a.min(b) / PAGE * PAGE).clamp(PAGE, MAX_BUFFER))
}

fn denied(path: &Path) -> Error {
    let why = "near-data commands through the kernel's driver need root (CAP_SYS_ADMIN)";
    Error::Unsupported(format!("{}: {why}", path.display()))
}

impl KernelTransport {
    /// Looks what a device is.
    ///
    /// # Errors
    /// [`Error`], which a user should know of: the drive is Nearside's, and cannot be asked.
    pub fn find(path: &Path) -> Result<Found, Error> {
        let ours_by_name = || model_in_sysfs(path).is_some_and(|model| model.starts_with(MODEL));
        let opened = |path: &Path, queue| match Device::open(path, queue) {
            Ok(device) => Ok(Some(device)),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && ours_by_name() => Err(denied(path)),
            Err(_) => Ok(None),
        };
        let Some(mut admin) = opened(path, Queue::Admin)? else { return Ok(Found::Unknown) };
        let mut named = path.to_owned();
        if admin.namespace().is_none() {
            let Some(first) = first_namespace(path) else { return Ok(Found::Unknown) };
            admin.prefer_uring(&identify(cns::CONTROLLER, 0), vec![0; 4096]);
            named = first;
        }
        let Some(mut io) = opened(&named, Queue::Io)? else { return Ok(Found::Unknown) };
        let Some(nsid) = io.namespace() else { return Ok(Found::Unknown) };
        let controller = match admin.execute("identify", &identify(cns::CONTROLLER, 0), vec![0; 4096]) {
            Ok(controller) => controller,
            Err(Error::Io { .. }) if ours_by_name() => return Err(denied(path)),
            Err(_) => return Ok(Found::Unknown),
        };
        let model = controller.first_chunk::<4096>().map(|bytes| IdentifyController::from_bytes(bytes).mn());
        let model = model.map(|name| layout::text(&name)).unwrap_or_default();
        let capable = near_data_log(&mut admin, nsid).is_ok_and(|page| page.is_some());
        if !model.starts_with(MODEL) || !capable {
            return Ok(Found::Other(model));
        }
        let bytes = admin.execute("identify", &identify(cns::NAMESPACE, nsid), vec![0; 4096])?;
        let bytes = bytes.first_chunk().ok_or_else(|| Error::Driver("identify: too short".into()))?;
        let namespace = NamespaceInfo::of(nsid, bytes).map_err(failed)?;
        let (mut tags, most) = (Tags::default(), most_of(&named));
        // Nobody has used that tag.
        io.prefer_uring(&carrier::half(op::NEAR_DATA_CANCEL, nsid, tags.next()), Vec::new());
        Ok(Found::Drive(Box::new(KernelTransport { io, admin, namespace, most, spare: Vec::new(), tags })))
    }

    fn ask(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        let tag = self.tags.next();
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.resize(capacity, 0);
        self.spare = carrier::near_data(&mut self.io, self.namespace.nsid, tag, request, buffer, reply)?;
        Ok(())
    }
}

fn identify(cns: u8, nsid: u32) -> Command {
    Command::of(command::identify_command(cns, nsid))
}

/// The page of near-data capabilities, if the drive has one.
fn near_data_log(device: &mut Device, nsid: u32) -> Result<Option<NearDataLog>, Error> {
    let page = command::get_log_page(opcode::LOG_NEAR_DATA, nsid, 0, NearDataLog::SIZE);
    let command = Command::of(page);
    Ok(NearDataLog::of(&device.execute("get log page", &command, vec![0; NearDataLog::SIZE])?))
}

impl Transport for KernelTransport {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        carrier::fits(request, capacity, self.most)?;
        match self.ask(request, capacity, reply) {
            // How many segments a buffer has hangs on where its pages lie, and what the kernel takes on
            // more than it says. A reply that has less room goes on in the next.
            Err(Error::Io { source, .. })
                if source.kind() == io::ErrorKind::InvalidInput && capacity.max(request.len()) > LEAST =>
            {
                self.most = LEAST;
                carrier::fits(request, LEAST, self.most)?;
                self.ask(request, LEAST, reply)
            }
            answer => answer,
        }
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        carrier::read(&mut self.io, &self.namespace, READ.min(self.most), offset, into)
    }

    fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.io.stop = Stop(Some(stop));
    }

    fn capacity(&self) -> u64 {
        self.namespace.bytes()
    }

    fn block_size(&self) -> u32 {
        self.namespace.block_size
    }

    fn max_buffer(&self) -> usize {
        self.most
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        near_data_log(&mut self.admin, self.namespace.nsid)
    }

    fn completion(&self) -> Completion {
        let words = self.io.words();
        Completion {
            model: "kernel".into(),
            read_4k_ns: None,
            detail: format!("the kernel's driver completes the commands; this process {words}"),
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
