#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! - [`Header`]: the 16 bytes before every message;
//! - [`Request`] and [`Reply`]: what a command and its answer say, borrowed from the message's bytes;
//! - [`Version`] and its [`Capabilities`]: what both ends agree on first;
//! - [`RegionInfo`]: a region, and the areas of it that a client may map;
//! - [`Connection`]: whole messages with their descriptors, within [`Limits`], in the caller's time.
//!
//! Nothing that a peer sends is trusted: every length, count and offset is checked where it is decoded, sums
//! do not wrap, and memory is taken for what has come, not for what was announced. What a message *means* (is
//! there such a region, may it be mapped) is the ends' to check. Numbers are in the machine's byte order, as
//! the protocol has it, which is little-endian on all that we run on.
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod bytes;
mod connection;
mod header;
mod region_info;
mod reply;
mod request;
mod version;

pub use connection::{Body, Connection, Limits, Message, ReceiveError, send};
pub use header::{HEADER, Header, Kind, command};
pub use region_info::{Area, RegionInfo, region_flags};
pub use reply::{DeviceInfo, IrqInfo, Reply, device_flags, irq_flags};
pub use request::{
    DmaAccess, DmaMap, DmaUnmap, IrqAction, IrqData, RegionAccess, Request, SetIrqs, SmallWrite, SmallWrites,
    dma_flags,
};
pub use version::{Capabilities, MAX_VERSION_DATA, Version};

/// The PCI regions by their indexes (linux/vfio.h, VFIO_PCI_*_REGION_INDEX).
pub mod region {
    /// The first base address register's.
    pub const BAR0: u32 = 0;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// How many a PCI device has.
    pub const COUNT: u32 = 9;
}

/// The PCI interrupts by their indexes (linux/vfio.h, VFIO_PCI_*_IRQ_INDEX).
pub mod irq {
    /// A pin.
    pub const INTX: u32 = 0;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// How many kinds a PCI device has.
    pub const COUNT: u32 = 5;
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The header's size is less than a header, or more than is taken.
    #[error("a message of {size} bytes, where 16 to {limit} are taken")]
    Size {
        /// As the header has it.
        size: u32,
        /// The most that is taken.
        limit: usize,
    },
    /// The header's type is neither a command nor a reply.
    #[error("a message whose flags ({0:#x}) name no type")]
    Type(u32),
    /// The message is shorter than what it says needs.
    #[error("a message that ends within its field {0}")]
    Short(&'static str),
    /// A field has a value that it must not have.
    #[error("a field {field} of {value:#x}")]
    Value {
        /// Which.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The version's capabilities are not as they must be.
    #[error("capabilities that are none: {0}")]
    Capabilities(&'static str),
    /// A command of another number.
    #[error("a command of number {0}, which is not known")]
    Command(u16),
    /// A command where a reply was to come, or the other way round.
    #[error("a message that goes the wrong way")]
    Direction,
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test that is wrong may panic")]
mod tests;
