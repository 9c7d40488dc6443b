//! FAST'12's prototype: memory behind an early NVM Express interface on PCIe Gen2 x8 (Section 3.1, Table 1).
//!
//! Time at the device of one random read with polling, software excluded, at queue depth 1:
//!
//! | | 512 B | 4 KiB | per byte | the rest |
//! | --- | --- | --- | --- | --- |
//! | Gen2 | 1.5 us | 2.9 us | 1.4 us / 3584 B = 0.391 ns | 1.5 - 0.2 = 1.3 us |
//! | 8 Gb/s projection | 0.9 us | 1.5 us | 0.6 us / 3584 B = 0.167 ns | 0.9 - 0.086 = 0.814 us |
//!
//! The bytes of two requests follow each other on the bus. A command occupies the device's front for 500 ns:
//! Fig. 3's hardware limit of 2 million reads of 512 B per second. (4 KiB reads end at the bus, at 625,000
//! per second: Section 3.1 says that the prototype's throughput limits it.) The paper gives no other limit
//! for the projection, and no writes: both are taken to be the same.
//!
//! What an interrupt adds is time of the host, not of the device: [`INTERRUPT_NS`] and the rest are for a
//! model of the host's CPUs.

use serde::Deserialize;

use crate::file::bounds;
use crate::words::{WordError, time_ns};
use crate::{Medium, Request, RequestKind};

/// Table 1, interrupt less polling on Gen2: 2.6 - 1.5 us for 512 B, 4.1 - 2.9 us for 4 KiB (the projection:
/// 1.1 us for both).
pub const INTERRUPT_NS: [u64; 2] = [1_100, 1_200];

/// Table 1, what the C-state adds to the interrupt: 3.3 - 2.6 us for 512 B, 4.6 - 4.1 us for 4 KiB. To
/// compare with Table 1.
pub const C_STATE_TABLE_NS: [u64; 2] = [700, 500];

/// The prototype's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prototype {
    /// From doorbell to completion without the bytes, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub path_ns: u64,
    /// How long a command occupies the front, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub command_ns: u64,
    /// Bytes on the bus, in picoseconds each.
    #[serde(deserialize_with = "bounds::byte")]
    pub byte_ps: u64,
}

impl Prototype {
    /// The prototype as the paper measured it, on PCIe Gen2.
    pub const GEN2: Prototype = Prototype { path_ns: 1_300, command_ns: 500, byte_ps: 391 };

    /// The paper's projection to "a saturated PCIe Gen3 bus (8Gbps)".
    pub const PROJECTION: Prototype = Prototype { path_ns: 814, command_ns: 500, byte_ps: 167 };

    /// The medium with these numbers.
    pub fn medium(self) -> DramPrototype {
        DramPrototype { prototype: self, front_free_ns: 0, bus_free_ns: 0 }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), WordError> {
        let bad = || WordError::option("the DRAM prototype", &format!("{name}={value}"));
        match name {
            "path" => self.path_ns = time_ns(value).ok_or_else(bad)?,
            "command" => self.command_ns = time_ns(value).ok_or_else(bad)?,
            "byte-ps" => self.byte_ps = value.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        }
        Ok(())
    }
}

/// The medium of a [`Prototype`].
#[derive(Clone, Debug)]
pub struct DramPrototype {
    prototype: Prototype,
    front_free_ns: u64,
    bus_free_ns: u64,
}

impl Medium for DramPrototype {
    #[inline]
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let Prototype { path_ns, command_ns, byte_ps } = self.prototype;
        let start = now_ns.max(self.front_free_ns);
        self.front_free_ns = start.saturating_add(command_ns);
        let bytes =
            if matches!(request.kind, RequestKind::Read | RequestKind::Write) { request.len } else { 0 };
        self.bus_free_ns = start.max(self.bus_free_ns).saturating_add(crate::moving_ns(bytes, byte_ps));
        self.bus_free_ns.saturating_add(path_ns)
    }
}
