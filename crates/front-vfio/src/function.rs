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
use nearside_dma::remote::Remote;
use nearside_dma::{DOORBELLS, EventFd, Function, Memory, PAGE_SIZE, Region, Vector, Wakeup};
use nearside_spec::registers as reg;
use nearside_store::Store;
use nearside_vfio_user::{
    Area, DeviceInfo, IrqAction, IrqData, IrqInfo, Kind, Message, RegionAccess, RegionInfo, Reply, Request,
    SetIrqs, command, device_flags, irq, irq_flags, region, region_flags,
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

    /// The client's memory, as the drive reaches it.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        self.function.memory.clone()
    }

    /// What of it is reached by messages.
    pub(crate) fn remote(&self) -> &Remote {
        self.function.memory.remote()
    }

    /// The client's answer to something that the drive asked.
    pub(crate) fn answered(&self, message: &Message) {
        let is_write = message.header.command == command::DMA_WRITE;
        let said = match message.reply() {
            Ok(Reply::DmaRead(access, bytes)) => Some((Some((access.address, access.count)), bytes.to_vec())),
            Ok(Reply::DmaWrite(access)) => Some((Some((access.address, access.count)), Vec::new())),
            // QEMU's answer to a write (hw/vfio-user/pci.c) is a header.
            Err(_) if is_write && message.payload.is_empty() => {
                let done = message.header.kind == (Kind::Reply { error: None });
                done.then(|| (None, Vec::new()))
            }
            _ => None,
        };
        if self.remote().answered(message.header.id, is_write, said) {
            self.function.wakeup.wake();
        }
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
        self.until(|| {
            // The answers of the client's that a reset would wait for come by this thread.
            self.remote().give_up_all();
            status.load(Ordering::Acquire) == 0
        })?;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use nearside_clock::TscClock;
    use nearside_device::{Namespace, Subsystem};
    use nearside_store::Dram;
    use nearside_vfio_user::{DmaMap, DmaUnmap};

    use super::*;

    const MAP: DmaMap = DmaMap { flags: 3, offset: 0, address: 0x1000, size: 0x1000 };

    fn function() -> PciFunction<TscClock> {
        let namespace = Namespace::new(Dram::new(1 << 20, 512).unwrap(), (), 512, [7; 16], true).unwrap();
        let subsystem = Subsystem::new();
        subsystem.add(1, Arc::new(namespace)).unwrap();
        let offer = Offer::new("nqn.2026-11.com.example:test", "TEST", subsystem);
        let mut function = PciFunction::new(&offer, Path::new("/x.sock"), TscClock::new()).unwrap();
        let master = RegionAccess { offset: 4, region: region::CONFIG, count: 2 };
        function.answer(Request::RegionWrite(master, &[6, 0]), Vec::new(), &mut Vec::new()).unwrap();
        let memory = Region::shared("test", 0x1000).unwrap();
        let descriptor = vec![memory.fd().unwrap().try_clone_to_owned().unwrap()];
        function.answer(Request::DmaMap(MAP), descriptor, &mut Vec::new()).unwrap();
        function
    }

    /// An operation has memory in use while it is unmapped, or closed by bus mastering, or of a function that
    /// is reset: the answer comes after its end. (That none begins to use it meanwhile is
    /// `what_is_unmapped_goes_with_its_last_user` of dma's.)
    #[test]
    fn what_takes_memory_away_is_answered_after_its_last_user() {
        let unmap = DmaUnmap { flags: 0, address: MAP.address, size: MAP.size };
        let closes = RegionAccess { offset: 4, region: region::CONFIG, count: 2 };
        for request in [Request::DmaUnmap(unmap), Request::RegionWrite(closes, &[2, 0]), Request::DeviceReset]
        {
            let mut function = function();
            let memory = function.memory();
            let span = memory.resolve(MAP.address, 64).unwrap();
            let pinned = memory.locate(span).unwrap();
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let answered = scope.spawn(|| {
                    function.answer(request, Vec::new(), &mut Vec::new()).unwrap();
                    ended.load(Ordering::SeqCst)
                });
                while memory.resolve(MAP.address, 64).is_ok() {
                    std::thread::yield_now();
                }
                // What answers too soon does so within these.
                for _ in 0..2000 {
                    std::thread::yield_now();
                }
                ended.store(true, Ordering::SeqCst);
                drop(pinned);
                assert!(answered.join().unwrap(), "{request:?} was answered while its memory was in use");
            });
        }
    }
}
