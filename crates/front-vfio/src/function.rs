//! A PCIe function for one client: what its messages mean.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_device::runner::{Rest, Threaded};
use nearside_device::{Config, Controller, Firmware, Host};
use nearside_dma::{DOORBELLS, EventFd, Function, PAGE_SIZE, Region, Vector, Wakeup};
use nearside_spec::registers as reg;
use nearside_store::Store;
use nearside_vfio_user::{
    Area, DeviceInfo, IrqAction, IrqData, IrqInfo, RegionAccess, RegionInfo, Reply, Request, SetIrqs,
    device_flags, irq, irq_flags, region, region_flags,
};

use crate::bar::{self, Bar};
use crate::mappings::Mappings;
use crate::space::{self, Space};
use crate::{Device, Offer};

/// How long a client's operations may take to end after it wanted its memory back, or a reset: less than QEMU
/// waits for an answer.
const PATIENCE_NS: u64 = 4_000_000_000;
/// How often is looked whether they have.
const LOOK: Duration = Duration::from_micros(50);

/// Why a message is answered with an error, or ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it is not as it must be")]
    Invalid,
    #[error("there is no such thing")]
    NotThere,
    #[error("something is mapped there")]
    Exists,
    #[error("there is no room for more")]
    NoRoom,
    #[error("it is not supported")]
    Unsupported,
    #[error("operations in flight did not end")]
    Late,
}

impl Refusal {
    /// The errno of the reply.
    pub(crate) const fn errno(self) -> u32 {
        match self {
            Refusal::Invalid => 22,
            Refusal::NotThere => 2,
            Refusal::Exists => 17,
            Refusal::NoRoom => 28,
            Refusal::Unsupported => 95,
            Refusal::Late => 110,
        }
    }
}

/// A controller, with what makes it a PCIe function.
pub(crate) struct PciFunction<C> {
    function: Function,
    space: Space,
    bar: Bar,
    mappings: Mappings,
    mapped_doorbells: bool,
    clock: C,
    /// The controller's; they end with this, after what was taken.
    _threads: Threaded,
}

impl<C: Clock + Clone + 'static> PciFunction<C> {
    pub(crate) fn new<S: Store, F: Firmware<S>>(
        offer: &Offer<S, F>,
        path: &Path,
        clock: C,
    ) -> io::Result<PciFunction<C>> {
        let vectors = offer.io_queues + 1;
        let config = Config {
            reactors: offer.threads,
            io_queues: offer.io_queues,
            vectors,
            mdts: offer.mdts,
            write_cache: offer.write_cache,
            serial: offer.serial.clone(),
            subsystem: offer.nqn.clone(),
            cntlid: offer.cntlid,
            shared: true,
            namespaces: offer.namespaces.clone(),
            shadow_doorbells: !offer.mapped_doorbells,
            host: Host {
                nqn: format!("vfio-user:{}", path.display()),
                identity: offer.identity,
                ..Host::default()
            },
            ..Config::default()
        };
        let wakeup = Arc::new(Wakeup::for_sleepers(config.reactors)?);
        let controller = Controller::of(&offer.subsystem, config, wakeup)?;
        let function = controller.function.clone();
        // The client has the eventfds, and gives them.
        function.vectors.iter().for_each(|vector| vector.deliver_to(None));
        let rest = match offer.mapped_doorbells {
            // Nothing tells of a doorbell that is written.
            true => Rest { idle_ns: u64::MAX, ..Rest::default() },
            false => Rest::default(),
        };
        let threads = Threaded::start(controller, clock.clone(), rest)?;
        Ok(PciFunction {
            space: Space::new(vectors),
            bar: Bar::new(function.vectors.len()),
            mappings: Mappings::new(function.memory.clone()),
            mapped_doorbells: offer.mapped_doorbells,
            function,
            clock,
            _threads: threads,
        })
    }

    /// Whether memory that the client had shared is not there any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.mappings.have_failed()
    }

    /// Its interrupts.
    pub(crate) fn vectors(&self) -> Arc<[Vector]> {
        self.function.vectors.clone()
    }

    /// What shows how it stands.
    pub(crate) fn device(&self) -> Device {
        Device { registers: self.function.registers.clone(), mapped: self.mappings.mapped() }
    }

    /// The descriptor of BAR 0's doorbells, where they may be mapped.
    pub(crate) fn doorbells(&self) -> Option<BorrowedFd<'_>> {
        self.function.registers.fd().filter(|_| self.mapped_doorbells)
    }

    /// Does what a message asks. `data` is room for what a region's read gives.
    pub(crate) fn answer<'a>(
        &mut self,
        request: Request<'_>,
        descriptors: Vec<OwnedFd>,
        data: &'a mut Vec<u8>,
    ) -> Result<Reply<'a>, Refusal> {
        Ok(match request {
            Request::DmaMap(map) => {
                self.mappings.map(&map, descriptors)?;
                self.function.wakeup.wake();
                Reply::DmaMap
            }
            Request::DmaUnmap(unmap) => {
                let regions = self.mappings.unmap(&unmap)?;
                self.wait_for(&regions)?;
                Reply::DmaUnmap(unmap)
            }
            Request::DeviceInfo { .. } => Reply::DeviceInfo(DeviceInfo {
                flags: device_flags::RESET | device_flags::PCI,
                regions: region::COUNT,
                irqs: irq::COUNT,
            }),
            Request::RegionInfo { argsz, index } => Reply::RegionInfo(self.region_info(argsz, index)?),
            Request::IrqInfo { index, .. } => Reply::IrqInfo(self.irq_info(index)?),
            Request::SetIrqs(set) => {
                self.set_irqs(&set, descriptors)?;
                Reply::SetIrqs
            }
            Request::RegionRead(access) => {
                let at = within(&access)?;
                data.resize(access.count as usize, 0);
                match access.region {
                    region::CONFIG => self.space.read(at, data),
                    _ => self.bar.read(&self.function, at, data),
                }
                Reply::RegionRead(access, data)
            }
            Request::RegionWrite(access, bytes) => {
                self.write(&access, bytes)?;
                Reply::RegionWrite(access)
            }
            Request::RegionWriteMulti(writes) => {
                for write in writes.iter() {
                    self.write(&write.access, write.bytes())?;
                }
                Reply::RegionWriteMulti(writes.count())
            }
            Request::DeviceReset => {
                self.reset()?;
                Reply::DeviceReset
            }
            Request::Version(_) => return Err(Refusal::Invalid),
            Request::DmaRead(_) | Request::DmaWrite(..) => return Err(Refusal::Unsupported),
        })
    }

    fn region_info(&self, argsz: u32, index: u32) -> Result<RegionInfo, Refusal> {
        let (size, mapped) = match index {
            region::BAR0 => (bar::SIZE as u64, self.mapped_doorbells),
            region::CONFIG => (space::SIZE as u64, false),
            region::COUNT.. => return Err(Refusal::Invalid),
            _ => (0, false),
        };
        let mut flags = if size > 0 { region_flags::READ | region_flags::WRITE } else { 0 };
        let mut areas = Vec::new();
        if mapped {
            flags |= region_flags::MMAP;
            areas.push(Area { offset: DOORBELLS as u64, size: PAGE_SIZE as u64 });
        }
        Ok(RegionInfo { flags, index, size, areas, ..RegionInfo::default() }.for_room(argsz))
    }

    fn irq_info(&self, index: u32) -> Result<IrqInfo, Refusal> {
        let count = match index {
            irq::MSIX => self.function.vectors.len() as u32,
            irq::COUNT.. => return Err(Refusal::Invalid),
            _ => 0,
        };
        let flags = if count > 0 { irq_flags::EVENTFD | irq_flags::NORESIZE } else { 0 };
        Ok(IrqInfo { flags, index, count })
    }

    fn set_irqs(&mut self, set: &SetIrqs<'_>, descriptors: Vec<OwnedFd>) -> Result<(), Refusal> {
        let count = self.irq_info(set.index)?.count;
        let (start, end) = (set.start as usize, set.start as usize + set.count as usize);
        if end > count as usize || set.action != IrqAction::Trigger {
            return Err(Refusal::Invalid);
        }
        let all = &self.function.vectors[..];
        let vectors = if set.index == irq::MSIX { all.get(start..end).ok_or(Refusal::Invalid)? } else { &[] };
        match set.data {
            IrqData::All if set.count == 0 => {
                let off = if set.index == irq::MSIX { all } else { &[] };
                off.iter().for_each(|vector| vector.deliver_to(None));
            }
            IrqData::All => vectors.iter().for_each(|vector| vector.signal()),
            IrqData::Some(which) => {
                vectors.iter().zip(which).filter(|(_, which)| **which != 0).for_each(|(v, _)| v.signal());
            }
            IrqData::EventFds if descriptors.is_empty() => {
                vectors.iter().for_each(|vector| vector.deliver_to(None));
            }
            IrqData::EventFds if descriptors.len() == vectors.len() => {
                let events = descriptors.into_iter().map(EventFd::foreign).collect::<io::Result<Vec<_>>>();
                let events = events.map_err(|_| Refusal::Invalid)?;
                vectors.iter().zip(events).for_each(|(vector, event)| vector.deliver_to(Some(event)));
            }
            IrqData::EventFds => return Err(Refusal::Invalid),
        }
        Ok(())
    }

    fn write(&mut self, access: &RegionAccess, bytes: &[u8]) -> Result<(), Refusal> {
        let at = within(access)?;
        match access.region {
            region::CONFIG => {
                if self.space.write(at, bytes) {
                    self.reset()?;
                }
                self.open_memory()?;
            }
            _ => self.bar.write(&self.function, at, bytes),
        }
        Ok(())
    }

    /// The controller as after power on; what is mapped stays, and so do eventfds.
    fn reset(&mut self) -> Result<(), Refusal> {
        let registers = &self.function.registers;
        registers.word32(reg::CC).store(0, Ordering::Release);
        self.function.wakeup.wake();
        let status = registers.word32(reg::CSTS);
        self.until(|| status.load(Ordering::Acquire) == 0)?;
        for register in [reg::AQA, reg::ASQ, reg::ASQ + 4, reg::ACQ, reg::ACQ + 4] {
            registers.word32(register).store(0, Ordering::Release);
        }
        let vectors = self.function.vectors.len();
        self.space = Space::new(vectors as u16);
        self.bar = Bar::new(vectors);
        self.open_memory()
    }

    /// Lets the drive reach the client's memory, or not, as configuration space says. Once it is answered, an
    /// operation in flight reaches no more of it either.
    fn open_memory(&mut self) -> Result<(), Refusal> {
        let open = self.space.masters_the_bus();
        if self.mappings.is_open() == open {
            return Ok(());
        }
        let closed = self.mappings.open(open)?;
        // Queues look for their memory again.
        self.function.wakeup.wake();
        // The mappings themselves keep one.
        self.until(|| closed.iter().all(|region| region.strong_count() <= 1))
    }

    /// Waits until no operation uses any of the regions.
    fn wait_for(&self, regions: &[Weak<Region>]) -> Result<(), Refusal> {
        // Queues in them are let go of by the reactors, at their next step.
        self.function.wakeup.wake();
        self.until(|| regions.iter().all(|region| region.strong_count() == 0))
    }

    fn until(&self, done: impl Fn() -> bool) -> Result<(), Refusal> {
        let end: Nanos = self.clock.now() + PATIENCE_NS;
        while !done() {
            if self.clock.now() > end {
                return Err(Refusal::Late);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Where an access begins, which lies within its region.
fn within(access: &RegionAccess) -> Result<usize, Refusal> {
    let size = match access.region {
        region::BAR0 => bar::SIZE as u64,
        region::CONFIG => space::SIZE as u64,
        _ => return Err(Refusal::Invalid),
    };
    let end = access.offset.checked_add(access.count.into());
    match end.filter(|end| *end <= size && access.count > 0) {
        Some(_) => Ok(access.offset as usize),
        None => Err(Refusal::Invalid),
    }
}
