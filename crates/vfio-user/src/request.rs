//! What commands ask for.

use crate::bytes::{Fields, bad, index, length, put, put_quads};
use crate::{Version, WireError, command};

/// What a server may do with a DMA region.
pub mod dma_flags {
    /// Read from it.
    pub const READ: u32 = 1;
    /// Write to it.
    pub const WRITE: u32 = 1 << 1;
}

/// DMA_MAP: memory of the client that the server may reach, by the descriptor that comes with it or, without
/// one, by messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// [`dma_flags`].
    pub flags: u32,
    /// Where it begins in the descriptor.
    pub offset: u64,
    /// Its IOVA.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// DMA_UNMAP: memory that a DMA_MAP named is no longer to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// None is defined; 0.
    pub flags: u32,
    /// Its IOVA.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Where in the region.
    pub offset: u64,
    /// Which.
    pub region: u32,
    /// How many.
    pub count: u32,
}

/// Bytes of the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaAccess {
    /// IOVA.
    pub address: u64,
    /// How many.
    pub count: u64,
}

/// What becomes of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// It is masked.
    Mask,
    /// It is unmasked.
    Unmask,
    /// It is raised; with an eventfd: from now on by that.
    Trigger,
}

/// To which interrupts of a range it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// All. Together with [`IrqAction::Trigger`] and a count of 0: all of the index are switched off.
    All,
    /// Those whose byte is not 0.
    Some(&'a [u8]),
    /// Each has an eventfd among the message's descriptors, in order; with none, they lose theirs.
    EventFds,
}

/// DEVICE_SET_IRQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// What is done.
    pub action: IrqAction,
    /// To which.
    pub data: IrqData<'a>,
    /// Which kind of interrupt.
    pub index: u32,
    /// The first of the range.
    pub start: u32,
    /// How many.
    pub count: u32,
}

/// One write of REGION_WRITE_MULTI: at most eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallWrite {
    /// Where; `count` is 1 to 8.
    pub access: RegionAccess,
    /// The bytes, of which the first `count` count.
    pub data: [u8; 8],
}

impl SmallWrite {
    /// The bytes that are written.
    pub fn bytes(&self) -> &[u8] {
        self.data.get(..index(self.access.count)).unwrap_or(&self.data)
    }
}

/// Writes of REGION_WRITE_MULTI, as the message has them; all are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallWrites<'a>(&'a [[u8; SMALL_WRITE]]);

const SMALL_WRITE: usize = 24;

impl<'a> SmallWrites<'a> {
    /// How many.
    pub fn count(&self) -> u64 {
        u64::from(length(self.0.len()))
    }

    /// Each, in order.
    pub fn iter(&self) -> impl Iterator<Item = SmallWrite> + 'a {
        self.0.iter().filter_map(|bytes| small_write(bytes).ok())
    }
}

fn small_write(bytes: &[u8; SMALL_WRITE]) -> Result<SmallWrite, WireError> {
    let mut fields = Fields(bytes);
    let access = region_access(&mut fields)?;
    if !(1..=8).contains(&access.count) {
        return Err(bad("count", access.count));
    }
    Ok(SmallWrite { access, data: fields.quad("data")?.to_le_bytes() })
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// What the client proposes.
    Version(Version),
    /// Memory to reach.
    DmaMap(DmaMap),
    /// Memory to leave alone.
    DmaUnmap(DmaUnmap),
    /// What device it is.
    DeviceInfo {
        /// Room for the reply.
        argsz: u32,
    },
    /// What region it is.
    RegionInfo {
        /// Room for the reply.
        argsz: u32,
        /// Which.
        index: u32,
    },
    /// What kind of interrupt it is.
    IrqInfo {
        /// Room for the reply.
        argsz: u32,
        /// Which.
        index: u32,
    },
    /// What becomes of interrupts.
    SetIrqs(SetIrqs<'a>),
    /// Bytes of a region are asked for.
    RegionRead(RegionAccess),
    /// Bytes of a region are written.
    RegionWrite(RegionAccess, &'a [u8]),
    /// Several small writes.
    RegionWriteMulti(SmallWrites<'a>),
    /// The server asks for bytes of the client's memory.
    DmaRead(DmaAccess),
    /// The server writes bytes of the client's memory.
    DmaWrite(DmaAccess, &'a [u8]),
    /// The device is reset.
    DeviceReset,
}

pub(crate) fn region_access(fields: &mut Fields) -> Result<RegionAccess, WireError> {
    let access = RegionAccess {
        offset: fields.quad("offset")?,
        region: fields.word("region")?,
        count: fields.word("count")?,
    };
    access.offset.checked_add(access.count.into()).ok_or(bad("offset", access.offset))?;
    Ok(access)
}

pub(crate) fn dma_access(fields: &mut Fields) -> Result<DmaAccess, WireError> {
    let access = DmaAccess { address: fields.quad("address")?, count: fields.quad("count")? };
    access.address.checked_add(access.count).ok_or(bad("address", access.address))?;
    Ok(access)
}

/// The data that come with an access: exactly as many bytes as it says.
pub(crate) fn data<'a>(fields: &mut Fields<'a>, count: u64) -> Result<&'a [u8], WireError> {
    let count = usize::try_from(count).map_err(|_| bad("count", count))?;
    fields.take(count, "data")
}

pub(crate) fn put_region_access(into: &mut Vec<u8>, access: &RegionAccess) {
    put_quads(into, &[access.offset]);
    put(into, &[access.region, access.count]);
}

impl DmaUnmap {
    pub(crate) fn decode(fields: &mut Fields) -> Result<DmaUnmap, WireError> {
        fields.word("argsz")?;
        let flags = fields.word("flags")?;
        let (address, size) = (fields.quad("address")?, fields.quad("size")?);
        address.checked_add(size).ok_or(bad("size", size))?;
        Ok(DmaUnmap { flags, address, size })
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        put(into, &[24, self.flags]);
        put_quads(into, &[self.address, self.size]);
    }
}

impl<'a> SetIrqs<'a> {
    fn decode(fields: &mut Fields<'a>) -> Result<SetIrqs<'a>, WireError> {
        fields.word("argsz")?;
        let flags = fields.word("flags")?;
        let (number, start, count) = (fields.word("index")?, fields.word("start")?, fields.word("count")?);
        start.checked_add(count).ok_or(bad("count", count))?;
        let action = match flags & !7 {
            0x08 => IrqAction::Mask,
            0x10 => IrqAction::Unmask,
            0x20 => IrqAction::Trigger,
            _ => return Err(bad("flags", flags)),
        };
        let data = match flags & 7 {
            1 => IrqData::All,
            2 => IrqData::Some(fields.take(index(count), "data")?),
            4 => IrqData::EventFds,
            _ => return Err(bad("flags", flags)),
        };
        Ok(SetIrqs { action, data, index: number, start, count })
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let action = match self.action {
            IrqAction::Mask => 0x08,
            IrqAction::Unmask => 0x10,
            IrqAction::Trigger => 0x20,
        };
        let (kind, bytes): (u32, &[u8]) = match self.data {
            IrqData::All => (1, &[]),
            IrqData::Some(bytes) => (2, bytes),
            IrqData::EventFds => (4, &[]),
        };
        let argsz = 20u32.saturating_add(length(bytes.len()));
        put(into, &[argsz, action | kind, self.index, self.start, self.count]);
        into.extend_from_slice(bytes);
    }
}

impl<'a> Request<'a> {
    /// Decodes what follows the header of a command. What comes after it is passed over.
    ///
    /// # Errors
    /// The command is not known, or is not as it must be.
    pub fn decode(number: u16, payload: &'a [u8]) -> Result<Request<'a>, WireError> {
        let mut fields = Fields(payload);
        let fields = &mut fields;
        Ok(match number {
            command::VERSION => Request::Version(Version::decode(payload)?),
            command::DMA_MAP => {
                fields.word("argsz")?;
                let (flags, offset) = (fields.word("flags")?, fields.quad("offset")?);
                let (address, size) = (fields.quad("address")?, fields.quad("size")?);
                address.checked_add(size).and(offset.checked_add(size)).ok_or(bad("size", size))?;
                Request::DmaMap(DmaMap { flags, offset, address, size })
            }
            command::DMA_UNMAP => Request::DmaUnmap(DmaUnmap::decode(fields)?),
            command::DEVICE_GET_INFO => Request::DeviceInfo { argsz: fields.word("argsz")? },
            command::DEVICE_GET_REGION_INFO => {
                let (argsz, _) = (fields.word("argsz")?, fields.word("flags")?);
                Request::RegionInfo { argsz, index: fields.word("index")? }
            }
            command::DEVICE_GET_IRQ_INFO => {
                let (argsz, _) = (fields.word("argsz")?, fields.word("flags")?);
                Request::IrqInfo { argsz, index: fields.word("index")? }
            }
            command::DEVICE_SET_IRQS => Request::SetIrqs(SetIrqs::decode(fields)?),
            command::REGION_READ => Request::RegionRead(region_access(fields)?),
            command::REGION_WRITE => {
                let access = region_access(fields)?;
                Request::RegionWrite(access, data(fields, access.count.into())?)
            }
            command::REGION_WRITE_MULTI => {
                let count = fields.quad("wr_cnt")?;
                let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(SMALL_WRITE));
                let writes = fields.take(bytes.ok_or(bad("wr_cnt", count))?, "wrs")?.as_chunks().0;
                writes.iter().try_for_each(|bytes| small_write(bytes).map(drop))?;
                Request::RegionWriteMulti(SmallWrites(writes))
            }
            command::DMA_READ => Request::DmaRead(dma_access(fields)?),
            command::DMA_WRITE => {
                let access = dma_access(fields)?;
                Request::DmaWrite(access, data(fields, access.count)?)
            }
            command::DEVICE_RESET => Request::DeviceReset,
            other => return Err(WireError::Command(other)),
        })
    }

    /// Its command's number.
    pub fn command(&self) -> u16 {
        match self {
            Request::Version(_) => command::VERSION,
            Request::DmaMap(_) => command::DMA_MAP,
            Request::DmaUnmap(_) => command::DMA_UNMAP,
            Request::DeviceInfo { .. } => command::DEVICE_GET_INFO,
            Request::RegionInfo { .. } => command::DEVICE_GET_REGION_INFO,
            Request::IrqInfo { .. } => command::DEVICE_GET_IRQ_INFO,
            Request::SetIrqs(_) => command::DEVICE_SET_IRQS,
            Request::RegionRead(_) => command::REGION_READ,
            Request::RegionWrite(..) => command::REGION_WRITE,
            Request::RegionWriteMulti(_) => command::REGION_WRITE_MULTI,
            Request::DmaRead(_) => command::DMA_READ,
            Request::DmaWrite(..) => command::DMA_WRITE,
            Request::DeviceReset => command::DEVICE_RESET,
        }
    }

    /// Appends what follows the header.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Request::Version(version) => version.encode(into),
            Request::DmaMap(map) => {
                put(into, &[32, map.flags]);
                put_quads(into, &[map.offset, map.address, map.size]);
            }
            Request::DmaUnmap(unmap) => unmap.encode(into),
            Request::DeviceInfo { argsz } => put(into, &[*argsz, 0, 0, 0]),
            Request::RegionInfo { argsz, index } => put(into, &[*argsz, 0, *index, 0, 0, 0, 0, 0]),
            Request::IrqInfo { argsz, index } => put(into, &[*argsz, 0, *index, 0]),
            Request::SetIrqs(set) => set.encode(into),
            Request::RegionRead(access) => put_region_access(into, access),
            Request::RegionWrite(access, data) => {
                put_region_access(into, access);
                into.extend_from_slice(data);
            }
            Request::RegionWriteMulti(writes) => {
                put_quads(into, &[writes.count()]);
                into.extend_from_slice(writes.0.as_flattened());
            }
            Request::DmaRead(access) => put_quads(into, &[access.address, access.count]),
            Request::DmaWrite(access, data) => {
                put_quads(into, &[access.address, access.count]);
                into.extend_from_slice(data);
            }
            Request::DeviceReset => {}
        }
    }
}
