//! A region, and what of it a client may map.

use crate::WireError;
use crate::bytes::{Fields, bad, index, length, put, put_quads};

/// What may be done with a region (VFIO_REGION_INFO_FLAG_*).
pub mod region_flags {
    /// It is read.
    pub const READ: u32 = 1;
    /// It is written.
    pub const WRITE: u32 = 1 << 1;
    /// It is mapped, wholly or in the areas that are named; its descriptor comes with the reply.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow.
    pub(super) const CAPS: u32 = 1 << 3;
}

/// A part of a region that a client may map: at `offset` from the region's own offset in its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// From the region's first byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// DEVICE_GET_REGION_INFO's reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// Bytes that the whole reply needs. More than what the client had room for: the areas are left out.
    pub argsz: u32,
    /// [`region_flags`]; whether capabilities follow is not among them.
    pub flags: u32,
    /// Which region.
    pub index: u32,
    /// Bytes.
    pub size: u64,
    /// Where it begins in its descriptor.
    pub offset: u64,
    /// The only parts that may be mapped; with none and [`region_flags::MMAP`], all of it may.
    pub areas: Vec<Area>,
}

/// Bytes before the capabilities.
const FIXED: usize = 32;
/// VFIO_REGION_INFO_CAP_SPARSE_MMAP, version 1.
const SPARSE: (u16, u16) = (1, 1);
/// Bytes of that capability before its areas, and of an area.
const SPARSE_HEAD: usize = 16;
const AREA: usize = 16;

impl RegionInfo {
    /// Bytes of the whole reply.
    fn needs(&self) -> usize {
        let areas = self.areas.len().saturating_mul(AREA);
        FIXED.saturating_add(if self.areas.is_empty() { 0 } else { SPARSE_HEAD.saturating_add(areas) })
    }

    /// The reply for a client that has room for `room` bytes: `argsz` says what it needs, and the areas are
    /// left out where they find none (so that no descriptor need come along).
    pub fn for_room(mut self, room: u32) -> RegionInfo {
        self.argsz = length(self.needs());
        if self.argsz > room {
            self.areas = Vec::new();
        }
        self
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<RegionInfo, WireError> {
        let mut fields = Fields(bytes);
        let (argsz, flags) = (fields.word("argsz")?, fields.word("flags")?);
        let (number, cap) = (fields.word("index")?, fields.word("cap_offset")?);
        let (size, offset) = (fields.quad("size")?, fields.quad("offset")?);
        offset.checked_add(size).ok_or(bad("size", size))?;
        let follows = flags & region_flags::CAPS != 0 && bytes.len() > FIXED;
        let areas = if follows { areas(bytes, cap, size)? } else { Vec::new() };
        Ok(RegionInfo { argsz, flags: flags & !region_flags::CAPS, index: number, size, offset, areas })
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (caps, cap_offset) = match self.areas.is_empty() {
            true => (0, 0),
            false => (region_flags::CAPS, length(FIXED)),
        };
        put(into, &[self.argsz, self.flags | caps, self.index, cap_offset]);
        put_quads(into, &[self.size, self.offset]);
        if !self.areas.is_empty() {
            put(into, &[u32::from(SPARSE.0) | u32::from(SPARSE.1) << 16, 0, length(self.areas.len()), 0]);
            for area in &self.areas {
                put_quads(into, &[area.offset, area.size]);
            }
        }
    }
}

/// The areas of the first capability that has some. Capabilities are linked by offsets, which go forward
/// only: no chain has an end that is not reached.
fn areas(bytes: &[u8], cap: u32, region: u64) -> Result<Vec<Area>, WireError> {
    let (mut at, mut before) = (cap, length(FIXED).saturating_sub(1));
    while at != 0 {
        if at <= before {
            return Err(bad("next capability", at));
        }
        let mut fields = Fields(bytes.get(index(at)..).ok_or(bad("next capability", at))?);
        let kind = (fields.half("capability id")?, fields.half("capability version")?);
        let next = fields.word("next capability")?;
        if kind == SPARSE {
            let count = fields.word("nr_areas")?;
            fields.word("reserved")?;
            let bytes = index(count).checked_mul(AREA).ok_or(bad("nr_areas", count))?;
            let mut rest = Fields(fields.take(bytes, "areas")?);
            let area = |_| {
                let area = Area { offset: rest.quad("area")?, size: rest.quad("area")? };
                let end = area.offset.checked_add(area.size).ok_or(bad("area size", area.size))?;
                if end > region { Err(bad("area size", area.size)) } else { Ok(area) }
            };
            return (0..count).map(area).collect();
        }
        (before, at) = (at, next);
    }
    Ok(Vec::new())
}
