//! A controller in another process, as vfio-user shows it: an NVMe function of a PCI device.
//!
//! `Device::connect` agrees on a version, looks whether it is an NVMe function, maps its doorbells where
//! the server offers them, and gives it eventfds for its interrupts. Then
//! [`Driver::connect`](crate::Driver::connect) shares its memory and brings the controller up, as it does
//! with one in this process: registers are read and written by messages, queues and buffers lie in memory of
//! both, and a doorbell is a word in memory of both (shadow doorbells, or the mapped page) or, where there is
//! none, a message.

mod link;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nearside_clock::Clock;
use nearside_dma::{DOORBELLS, Memory, PAGE_SIZE, Region, Vector};
use nearside_vfio_user::{
    Capabilities, DmaMap, IrqAction, IrqData, Message, RegionAccess, RegionInfo, Reply, Request, SetIrqs,
    Version, WireError, device_flags, dma_flags, irq, irq_flags, region, region_flags,
};

use crate::{Error, Failure};
use link::{Link, MAX_TRANSFER};

/// What a name of such a controller begins with: the path of its socket follows.
pub const PREFIX: &str = "vfio-user:";

/// The socket's path, where the name is one of such a controller.
pub fn socket_of(name: &OsStr) -> Option<&Path> {
    name.as_bytes().strip_prefix(PREFIX.as_bytes()).map(|path| Path::new(OsStr::from_bytes(path)))
}

/// The version that we speak.
const VERSION: (u16, u16) = (0, 1);
/// The class code of an NVMe I/O controller (NVMe over PCIe 1.0, 3.1.1): interface, subclass, class.
const NVME: [u8; 3] = [0x02, 0x08, 0x01];
/// Where the class code and the command register lie in configuration space (PCI 3.0, 6.1).
const CLASS_CODE: u64 = 9;
const COMMAND: u64 = 4;
/// Memory space and bus master.
const COMMAND_ENABLE: [u8; 2] = [6, 0];
/// How much room we have for a region's description.
const INFO_ROOM: u32 = 4096;
/// A message is answered at once, or never. The least of this and a command's time holds.
const MESSAGE_MS: u64 = 10_000;

/// A controller in another process.
pub(crate) struct Device {
    link: Link,
    pub(crate) path: PathBuf,
    pub(crate) memory: Arc<Memory>,
    pub(crate) vectors: Arc<[Vector]>,
    /// Bytes of BAR0.
    bar0: u64,
    /// The page of doorbells, where the server lets it be mapped, from the first doorbell on.
    page: Option<Arc<Region>>,
}

impl Device {
    /// Connects to the socket's server and looks at its device. `queues`: how many interrupts besides the
    /// admin queue's are of use.
    pub(crate) fn connect(
        path: &Path,
        queues: u16,
        timeout_ms: u64,
        clock: Arc<dyn Clock>,
        stops: Arc<AtomicU64>,
    ) -> Result<Device, Error> {
        let socket = UnixStream::connect(path).map_err(|e| not_connected(&e))?;
        let memory = Arc::new(Memory::new());
        let link = Link::new(socket, timeout_ms.min(MESSAGE_MS), clock, memory.clone(), stops)?;
        let most = agree(&link)?;
        let about = link.call("device information", &Request::DeviceInfo { argsz: 16 }, &[])?;
        let Reply::DeviceInfo(info) = said(&link, &about)? else {
            return Err(link.broken(WireError::Direction));
        };
        if info.flags & device_flags::PCI == 0 || info.regions <= region::CONFIG {
            return Err(Error::Unsupported("it is no PCI device"));
        }
        let mut device =
            Device { link, path: path.to_owned(), memory, vectors: Arc::new([]), bar0: 0, page: None };
        let mut class = [0; 3];
        device.read(region::CONFIG, CLASS_CODE, &mut class)?;
        if class != NVME {
            return Err(Error::Unsupported("it is a PCI device, and no NVMe controller"));
        }
        device.write(region::CONFIG, COMMAND, &COMMAND_ENABLE)?;
        device.look_at_registers()?;
        if info.irqs > irq::MSIX {
            device.take_interrupts(queues.saturating_add(1), most)?;
        }
        Ok(device)
    }

    /// BAR0: its size, and its doorbells where they may be mapped.
    fn look_at_registers(&mut self) -> Result<(), Error> {
        let ask = Request::RegionInfo { argsz: INFO_ROOM, index: region::BAR0 };
        let mut message = self.link.call("region information", &ask, &[])?;
        let Reply::RegionInfo(info) = said(&self.link, &message)? else {
            return Err(self.link.broken(WireError::Direction));
        };
        let both = region_flags::READ | region_flags::WRITE;
        let least = (DOORBELLS + 16) as u64;
        if info.index != region::BAR0 || info.flags & both != both || info.size < least {
            return Err(Error::Unsupported("its registers are too few, or cannot be read and written"));
        }
        self.bar0 = info.size;
        // What cannot be mapped is written by messages.
        self.page = doorbells(&info, &mut message).map(Arc::new);
        Ok(())
    }

    /// Eventfds for the MSI-X vectors: at most `wanted`, by messages of `most` descriptors each.
    fn take_interrupts(&mut self, wanted: u16, most: usize) -> Result<(), Error> {
        let ask = Request::IrqInfo { argsz: 16, index: irq::MSIX };
        let message = self.link.call("interrupt information", &ask, &[])?;
        let Reply::IrqInfo(info) = said(&self.link, &message)? else {
            return Err(self.link.broken(WireError::Direction));
        };
        if info.index != irq::MSIX || info.flags & irq_flags::EVENTFD == 0 {
            return Ok(());
        }
        let system = |source| Error::System { what: "an interrupt", source };
        let count = info.count.min(wanted.into());
        let vectors = (0..count).map(|_| Vector::new()).collect::<std::io::Result<Vec<_>>>();
        let vectors: Arc<[Vector]> = vectors.map_err(system)?.into();
        let mut start = 0;
        for some in vectors.chunks(most.max(1)) {
            let descriptors: Vec<_> = some.iter().map(|vector| vector.event().as_fd()).collect();
            let set = SetIrqs {
                action: IrqAction::Trigger,
                data: IrqData::EventFds,
                index: irq::MSIX,
                start,
                count: some.len() as u32,
            };
            self.link.call("interrupts", &Request::SetIrqs(set), &descriptors)?;
            start += some.len() as u32;
        }
        self.link.wake_at_end(vectors.clone());
        self.vectors = vectors;
        Ok(())
    }

    /// Lets the server reach a region, which `memory` has at `iova`; `by_messages`: it gets no descriptor.
    pub(crate) fn share(&self, region: &Region, iova: u64, by_messages: bool) -> Result<(), Error> {
        let map = DmaMap {
            flags: dma_flags::READ | dma_flags::WRITE,
            offset: 0,
            address: iova,
            size: region.len() as u64,
        };
        let descriptor = region.fd().filter(|_| !by_messages);
        self.link.call("shared memory", &Request::DmaMap(map), descriptor.as_slice())?;
        Ok(())
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let access = RegionAccess { offset, region, count: into.len() as u32 };
        let message = self.link.call("a register", &Request::RegionRead(access), &[])?;
        match said(&self.link, &message)? {
            Reply::RegionRead(_, bytes) if bytes.len() == into.len() => into.copy_from_slice(bytes),
            _ => return Err(self.link.broken(WireError::Short("data"))),
        }
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let access = RegionAccess { offset, region, count: bytes.len() as u32 };
        self.link.call("a register", &Request::RegionWrite(access, bytes), &[]).map(drop)
    }

    /// A register; all ones where it cannot be read, as of a device that was pulled out.
    pub(crate) fn register<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0xff; N];
        match self.read(region::BAR0, offset as u64, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => [0xff; N],
        }
    }

    /// Writes a register. Where it cannot be, what is read of it next says so.
    pub(crate) fn set_register(&self, offset: usize, bytes: &[u8]) {
        let _ = self.write(region::BAR0, offset as u64, bytes);
    }

    /// Writes a doorbell by a message, which nobody answers.
    pub(crate) fn ring(&self, offset: usize, value: u32) {
        let access = RegionAccess { offset: offset as u64, region: region::BAR0, count: 4 };
        self.link.tell(&Request::RegionWrite(access, &value.to_le_bytes()));
    }

    /// Messages sent so far.
    pub(crate) fn messages(&self) -> u64 {
        self.link.sent()
    }

    /// The mapped page of doorbells.
    pub(crate) fn page(&self) -> Option<&Arc<Region>> {
        self.page.as_ref()
    }

    /// Bytes of BAR0.
    pub(crate) fn registers_len(&self) -> u64 {
        self.bar0
    }

    /// Why nothing is answered any more, where that is so.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.link.check()
    }

    /// How commands that are out end, where the connection is over.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.link.failure()
    }
}

fn not_connected(error: &std::io::Error) -> Error {
    let why = match error.kind() {
        ErrorKind::NotFound => "there is no such socket".to_owned(),
        ErrorKind::ConnectionRefused => "nobody serves this socket".to_owned(),
        ErrorKind::PermissionDenied => "this user may not open the socket".to_owned(),
        _ => error.to_string(),
    };
    Error::Refused { what: "connecting", why, again: true }
}

/// The version. Returns how many descriptors the server takes with one message.
fn agree(link: &Link) -> Result<usize, Error> {
    let capabilities = Capabilities {
        max_msg_fds: Some(8),
        max_data_xfer_size: Some(MAX_TRANSFER),
        ..Capabilities::default()
    };
    let ours = Version { major: VERSION.0, minor: VERSION.1, capabilities };
    let message = link.call("the version", &Request::Version(ours), &[]).map_err(|e| match e {
        // It has been connected to, and is not asked yet.
        Error::TimedOut { timeout_ms, .. } => {
            let why = format!("no answer within {timeout_ms} ms: another client may have the function");
            Error::Refused { what: "connecting", why, again: true }
        }
        e => e,
    })?;
    let Reply::Version(theirs) = said(link, &message)? else { return Err(link.broken(WireError::Direction)) };
    if theirs.major != ours.major || theirs.minor > ours.minor {
        return Err(Error::Unsupported("it speaks another version of vfio-user"));
    }
    Ok(theirs.capabilities.descriptors().clamp(1, 8) as usize)
}

fn said<'a>(link: &Link, message: &'a Message) -> Result<Reply<'a>, Error> {
    message.reply().map_err(|why| link.broken(why))
}

/// Maps the doorbells: of an area that begins with or before them, as far as it goes.
fn doorbells(info: &RegionInfo, message: &mut Message) -> Option<Region> {
    if info.flags & region_flags::MMAP == 0 {
        return None;
    }
    let first = DOORBELLS as u64;
    let (at, end) = match info.areas.iter().position(|a| a.offset <= first && first < a.offset + a.size) {
        Some(at) => (at, info.areas[at].offset + info.areas[at].size),
        // Without areas, all of it may be mapped.
        None if info.areas.is_empty() => (0, info.size),
        None => return None,
    };
    // One descriptor for each area, or one for all.
    let one = message.descriptors.len() == 1;
    let descriptor = (if one { 0 } else { at } < message.descriptors.len())
        .then(|| message.descriptors.swap_remove(if one { 0 } else { at }))?;
    // What 64 Ki queues need, and no more.
    let len = (end - first).min(8 << 16) as usize / PAGE_SIZE * PAGE_SIZE;
    Region::foreign(descriptor, info.offset.checked_add(first)?, len).ok()
}
