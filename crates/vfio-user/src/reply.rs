//! What commands are answered with.

use crate::bytes::{Fields, put, put_quads};
use crate::request::{data, dma_access, put_region_access, region_access};
use crate::{DmaAccess, DmaUnmap, RegionAccess, RegionInfo, Version, WireError, command};

/// What a device is (VFIO_DEVICE_FLAGS_*).
pub mod device_flags {
    /// It knows DEVICE_RESET.
    pub const RESET: u32 = 1;
    /// It is a PCI device.
    pub const PCI: u32 = 1 << 1;
}

/// What a kind of interrupt is (VFIO_IRQ_INFO_*).
pub mod irq_flags {
    /// An eventfd may be raised for it.
    pub const EVENTFD: u32 = 1;
    /// They are set up together, and none is added later.
    pub const NORESIZE: u32 = 1 << 3;
}

/// DEVICE_GET_INFO's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// [`device_flags`].
    pub flags: u32,
    /// How many regions it has.
    pub regions: u32,
    /// How many kinds of interrupts.
    pub irqs: u32,
}

/// DEVICE_GET_IRQ_INFO's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqInfo {
    /// [`irq_flags`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// How many of it.
    pub count: u32,
}

/// A command's success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// What is left of the client's proposal.
    Version(Version),
    /// It is reached.
    DmaMap,
    /// It is left alone: nothing of the server touches it any more.
    DmaUnmap(DmaUnmap),
    /// What device it is.
    DeviceInfo(DeviceInfo),
    /// What region it is.
    RegionInfo(RegionInfo),
    /// What kind of interrupt it is.
    IrqInfo(IrqInfo),
    /// It is done.
    SetIrqs,
    /// Bytes of a region.
    RegionRead(RegionAccess, &'a [u8]),
    /// They are written.
    RegionWrite(RegionAccess),
    /// How many of the writes are done.
    RegionWriteMulti(u64),
    /// Bytes of the client's memory.
    DmaRead(DmaAccess, &'a [u8]),
    /// They are written.
    DmaWrite(DmaAccess),
    /// It is reset.
    DeviceReset,
}

impl<'a> Reply<'a> {
    /// Decodes what follows the header of a reply that says success. What comes after it is passed over.
    ///
    /// # Errors
    /// The command is not known, or the reply is not as it must be.
    pub fn decode(number: u16, payload: &'a [u8]) -> Result<Reply<'a>, WireError> {
        let mut fields = Fields(payload);
        let fields = &mut fields;
        Ok(match number {
            command::VERSION => Reply::Version(Version::decode(payload)?),
            command::DMA_MAP => Reply::DmaMap,
            command::DMA_UNMAP => Reply::DmaUnmap(DmaUnmap::decode(fields)?),
            command::DEVICE_GET_INFO => {
                let (_, flags) = (fields.word("argsz")?, fields.word("flags")?);
                let (regions, irqs) = (fields.word("num_regions")?, fields.word("num_irqs")?);
                Reply::DeviceInfo(DeviceInfo { flags, regions, irqs })
            }
            command::DEVICE_GET_REGION_INFO => Reply::RegionInfo(RegionInfo::decode(payload)?),
            command::DEVICE_GET_IRQ_INFO => {
                let (_, flags) = (fields.word("argsz")?, fields.word("flags")?);
                Reply::IrqInfo(IrqInfo { flags, index: fields.word("index")?, count: fields.word("count")? })
            }
            command::DEVICE_SET_IRQS => Reply::SetIrqs,
            command::REGION_READ => {
                let access = region_access(fields)?;
                Reply::RegionRead(access, data(fields, access.count.into())?)
            }
            command::REGION_WRITE => Reply::RegionWrite(region_access(fields)?),
            command::REGION_WRITE_MULTI => Reply::RegionWriteMulti(fields.quad("wr_cnt")?),
            command::DMA_READ => {
                let access = dma_access(fields)?;
                Reply::DmaRead(access, data(fields, access.count)?)
            }
            command::DMA_WRITE => {
                // Its count has 32 bits in the protocol's text, and 64 in libvfio-user.
                let (address, count) = (fields.quad("address")?, fields.word("count")?);
                Reply::DmaWrite(DmaAccess { address, count: count.into() })
            }
            command::DEVICE_RESET => Reply::DeviceReset,
            other => return Err(WireError::Command(other)),
        })
    }

    /// Its command's number.
    pub fn command(&self) -> u16 {
        match self {
            Reply::Version(_) => command::VERSION,
            Reply::DmaMap => command::DMA_MAP,
            Reply::DmaUnmap(_) => command::DMA_UNMAP,
            Reply::DeviceInfo(_) => command::DEVICE_GET_INFO,
            Reply::RegionInfo(_) => command::DEVICE_GET_REGION_INFO,
            Reply::IrqInfo(_) => command::DEVICE_GET_IRQ_INFO,
            Reply::SetIrqs => command::DEVICE_SET_IRQS,
            Reply::RegionRead(..) => command::REGION_READ,
            Reply::RegionWrite(_) => command::REGION_WRITE,
            Reply::RegionWriteMulti(_) => command::REGION_WRITE_MULTI,
            Reply::DmaRead(..) => command::DMA_READ,
            Reply::DmaWrite(_) => command::DMA_WRITE,
            Reply::DeviceReset => command::DEVICE_RESET,
        }
    }

    /// Appends what follows the header.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Reply::Version(version) => version.encode(into),
            Reply::DmaUnmap(unmap) => unmap.encode(into),
            Reply::DeviceInfo(info) => put(into, &[16, info.flags, info.regions, info.irqs]),
            Reply::RegionInfo(info) => info.encode(into),
            Reply::IrqInfo(info) => put(into, &[16, info.flags, info.index, info.count]),
            Reply::RegionRead(access, data) => {
                put_region_access(into, access);
                into.extend_from_slice(data);
            }
            Reply::RegionWrite(access) => put_region_access(into, access),
            Reply::RegionWriteMulti(count) => put_quads(into, &[*count]),
            Reply::DmaRead(access, data) => {
                put_quads(into, &[access.address, access.count]);
                into.extend_from_slice(data);
            }
            Reply::DmaWrite(access) => put_quads(into, &[access.address, access.count]),
            Reply::DmaMap | Reply::SetIrqs | Reply::DeviceReset => {}
        }
    }
}
