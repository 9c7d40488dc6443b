//! NAND flash as time: dies behind channels, each with one operation at a time.
//!
//! A [`NandDrive`] is data: geometry, times, controller. [`Nand`] is its flash array: a timeline for each die
//! and each channel. It knows nothing of logical addresses; a translation layer (`nearside-ftl`) says which
//! unit of which die is read, programmed or erased, and [`Controller`] has the times of what lies around the
//! array.
//!
//! A *unit* is what one program writes: one page of each plane of a die (multi-plane programming throughout).
//! A read senses one unit and brings the bytes asked for over the channel.

mod calendar;
mod timeline;

use serde::Deserialize;

use crate::file::{Parameters, bounds};
use crate::preset::Preset;

pub use timeline::{Nand, Ticket};

/// How the flash is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Shape")]
pub struct Geometry {
    /// Buses between the controller and the dies.
    pub channels: u32,
    /// Dies on each channel.
    pub ways: u32,
    /// Planes of a die, read, programmed and erased together.
    pub planes: u32,
    /// Erase blocks of a die (of all its planes together).
    pub blocks: u32,
    /// Pages of an erase block.
    pub pages: u32,
    /// Bytes of a page of one plane.
    pub page_bytes: u32,
}

impl Geometry {
    /// Dies.
    pub fn dies(&self) -> u32 {
        self.channels * self.ways
    }

    /// Bytes that one program writes.
    pub fn unit_bytes(&self) -> u32 {
        self.planes * self.page_bytes
    }

    /// Units of the whole array.
    pub fn units(&self) -> u64 {
        u64::from(self.dies()) * u64::from(self.blocks) * u64::from(self.pages)
    }

    /// Bytes of the whole array.
    pub fn bytes(&self) -> u64 {
        self.units().saturating_mul(u64::from(self.unit_bytes()))
    }
}

/// A [`Geometry`] as a file has it: how many blocks there are follows from the drive's capacity.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    #[serde(deserialize_with = "bounds::between::<_, u32, 1, 64>")]
    channels: u32,
    #[serde(deserialize_with = "bounds::between::<_, u32, 1, 64>")]
    ways: u32,
    #[serde(deserialize_with = "bounds::between::<_, u32, 1, 16>")]
    planes: u32,
    #[serde(deserialize_with = "bounds::between::<_, u32, { MIN_PAGES as u64 }, 8192>")]
    pages: u32,
    #[serde(deserialize_with = "bounds::between::<_, u32, 4096, 65_536>")]
    page_bytes: u32,
}

/// Bytes of a unit at most: 16 slots of a translation layer.
const MOST_UNIT_BYTES: u32 = 64 << 10;

impl TryFrom<Shape> for Geometry {
    type Error = String;

    fn try_from(shape: Shape) -> Result<Geometry, String> {
        let Shape { channels, ways, planes, pages, page_bytes } = shape;
        if !page_bytes.is_multiple_of(4096) || planes * page_bytes > MOST_UNIT_BYTES {
            return Err(format!(
                "{planes} planes of pages of {page_bytes} bytes: page_bytes is a multiple of 4096, and planes \
                 times page_bytes at most {MOST_UNIT_BYTES}"
            ));
        }
        Ok(Geometry { channels, ways, planes, blocks: 0, pages, page_bytes })
    }
}

/// How long the flash takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timings {
    /// Sensing a page (tR), in nanoseconds: of a lower page, of an upper page.
    #[serde(deserialize_with = "bounds::flash_times")]
    pub read_ns: [u64; 2],
    /// Reads that must be sensed again with shifted thresholds, per million; each takes `read_ns` three times
    /// more.
    #[serde(deserialize_with = "bounds::between::<_, u64, 0, 1_000_000>")]
    pub retry_per_million: u64,
    /// Programming a page (tPROG), in nanoseconds: a lower page, an upper page.
    #[serde(deserialize_with = "bounds::flash_times")]
    pub program_ns: [u64; 2],
    /// Erasing a block (tBERS), in nanoseconds.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub erase_ns: u64,
    /// How far sensing, programming and erasing vary to either side, evenly, in thousandths.
    #[serde(deserialize_with = "bounds::between::<_, u64, 0, 1000>")]
    pub spread_permille: u64,
    /// Moving 1024 bytes over a channel, in nanoseconds.
    #[serde(deserialize_with = "bounds::between::<_, u64, 0, 1_000_000>")]
    pub channel_ns_per_kib: u64,
    /// Stopping a program or an erase for a read, and going on with it; where the flash can.
    #[serde(default, deserialize_with = "bounds::flash_time_or_none")]
    pub suspend_ns: Option<u64>,
    /// Reads go before programs and erases that have not begun, until these have waited so long, in
    /// nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub patience_ns: u64,
}

/// What lies around the flash: the link to the host, the firmware, the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Added to every read that reaches the flash, in nanoseconds: firmware and link, both ways.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub read_ns: u64,
    /// A read served by the buffer, or of nothing written, in nanoseconds.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub hit_ns: u64,
    /// A write until it is in the buffer and completed, in nanoseconds.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub write_ns: u64,
    /// What a read takes of the firmware, which does one thing at a time, in nanoseconds.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub read_busy_ns: u64,
    /// What a write takes of the firmware for each 4 KiB of it, in nanoseconds.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub write_busy_ns: u64,
    /// What each 4 KiB that garbage collection moves takes of the firmware, in nanoseconds.
    #[serde(deserialize_with = "bounds::flash_time")]
    pub move_busy_ns: u64,
    /// Moving 1024 bytes over the link, in nanoseconds.
    #[serde(deserialize_with = "bounds::between::<_, u64, 0, 1_000_000>")]
    pub link_ns_per_kib: u64,
    /// Whether capacitors save the write buffer in a power cut, so that a flush has nothing to wait for.
    pub protected: bool,
    /// Bytes of the write buffer: accepted from the host and not yet programmed.
    #[serde(deserialize_with = "bounds::between::<_, u64, 4096, { 1 << 32 }>")]
    pub write_buffer_bytes: u64,
    /// Bytes of a buffer that reads are served from; 0: none.
    #[serde(deserialize_with = "bounds::between::<_, u64, 0, { 1 << 32 }>")]
    pub read_buffer_bytes: u64,
    /// Whether a read brings the whole unit over the channel, into the buffer.
    pub whole_units: bool,
}

/// A drive of NAND flash. The presets' are in `models/`, each number with where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NandDrive {
    /// Its flash, as large as [`NandDrive::sized`] made it.
    pub geometry: Geometry,
    /// The flash's times.
    pub timings: Timings,
    /// What lies around it.
    pub controller: Controller,
    /// Bytes that the host sees.
    #[serde(rename = "capacity_bytes", deserialize_with = "bounds::between::<_, u64, 1, { 8 << 40 }>")]
    pub capacity: u64,
    /// Physical over logical bytes, in thousandths: 1280 is 28 % over-provisioned.
    #[serde(deserialize_with = "bounds::between::<_, u64, 1010, 4000>")]
    pub physical_permille: u64,
    /// Of what is drawn at random.
    pub seed: u64,
}

/// Intel SSD DC P3700, 1.6 TB: `models/nand-p3700.toml`.
pub fn p3700() -> NandDrive {
    preset("nand-p3700")
}

/// Intel SSD DC P3600, 1.6 TB: `models/nand-p3600.toml`.
pub fn p3600() -> NandDrive {
    preset("nand-p3600")
}

/// Intel SSD DC S3700, 400 GB: `models/nand-s3700.toml`.
pub fn s3700() -> NandDrive {
    preset("nand-s3700")
}

/// Cosmos+ OpenSSD, 1 TB: `models/nand-cosmos-plus.toml`.
pub fn cosmos_plus() -> NandDrive {
    preset("nand-cosmos-plus")
}

fn preset(name: &str) -> NandDrive {
    match Preset::named(name).map(|preset| preset.file.parameters) {
        Some(Parameters::Nand(drive)) => drive.sized(drive.capacity),
        other => panic!("{name} is no NAND drive but {other:?}"),
    }
}

/// Erase blocks of a die that hold no data at any time: being filled, being collected, or kept free so that
/// collecting can go on. They come on top of the over-provisioning.
pub const SPARE_BLOCKS: u32 = 6;

/// With fewer blocks on a die, the choice between them would be coarser than on any real one.
const MIN_BLOCKS: u64 = 32;
const MIN_PAGES: u32 = 16;

impl NandDrive {
    /// This drive with another capacity (in bytes), and flash for it: as many dies as before, and as many
    /// blocks of as many pages as it takes. Where that would leave a die fewer than 32 blocks, blocks get
    /// fewer pages (down to 16), and then the drive gets fewer dies.
    ///
    /// The over-provisioning is the drive's own at any size. Of the blocks that are spare, two are open and
    /// half full on average and four are free or about to be, so that a die keeps half a block more than its
    /// blocks without the spare ones; where blocks are few, pages are taken off so that half a block and the
    /// rounding to whole ones count for nothing.
    pub fn sized(mut self, capacity: u64) -> NandDrive {
        self.capacity = capacity;
        let g = &mut self.geometry;
        let unit = u64::from(g.unit_bytes()).max(1);
        let units = (u128::from(capacity) * u128::from(self.physical_permille.max(1000)) / 1000)
            .div_ceil(u128::from(unit)) as u64;
        let fits = |dies: u32, pages: u32| u64::from(dies) * u64::from(pages) * MIN_BLOCKS <= units;
        while !fits(g.dies(), g.pages) && g.pages > MIN_PAGES {
            g.pages = (g.pages / 2).max(MIN_PAGES);
        }
        while !fits(g.dies(), g.pages) && g.ways > 1 {
            g.ways = g.ways.div_ceil(2);
        }
        while !fits(g.dies(), g.pages) && g.channels > 1 {
            g.channels = g.channels.div_ceil(2);
        }
        let of_die = units.div_ceil(u64::from(g.dies()).max(1));
        // In half blocks: so many and a half hold what the die holds.
        let halves = (2 * of_die).div_ceil(u64::from(g.pages.max(1)));
        let blocks = halves.saturating_sub(1).div_ceil(2).max(1);
        // Even, since lower and upper pages come in pairs.
        let pages = (2 * of_die).div_ceil(2 * blocks + 1).next_multiple_of(2);
        g.pages = g.pages.min(u32::try_from(pages).unwrap_or(u32::MAX)).max(MIN_PAGES);
        g.blocks = u32::try_from(blocks).unwrap_or(u32::MAX).saturating_add(SPARE_BLOCKS);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_of_any_size_has_its_spare_space() {
        for drive in [p3700(), p3600(), s3700(), cosmos_plus()] {
            for capacity in [1 << 20, (5 << 20) + 512, 64 << 20, 1 << 30, 16 << 30, 400 << 30, drive.capacity]
            {
                let sized = drive.sized(capacity);
                let g = sized.geometry;
                // Of the spare blocks two are half full and four are free or about to be: what holds data is
                // half a block more than the others.
                let halves = u64::from(2 * (g.blocks - SPARE_BLOCKS) + 1);
                let data = g.bytes() / u64::from(g.blocks) * halves / 2;
                let due = capacity / 1000 * sized.physical_permille;
                assert!(data >= due, "{capacity}: {g:?}");
                assert!(capacity < 1 << 30 || data <= due / 100 * 102, "{capacity}: {g:?}, {data} of {due}");
                assert!(data <= capacity * 3 / 2 + (2 << 20), "{capacity}: {g:?}");
                assert!(g.dies() <= drive.geometry.dies() && g.pages <= drive.geometry.pages);
            }
            assert_eq!(drive.sized(drive.capacity), drive, "each has its own size");
        }
        // Sizes that no drive has: no panic.
        for capacity in [0, 1, u64::MAX] {
            p3700().sized(capacity).geometry.bytes();
        }
    }
}
