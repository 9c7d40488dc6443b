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
mod presets;
mod timeline;

pub use presets::{cosmos_plus, p3600, p3700, preset, presets, s3700};
pub use timeline::{Nand, Ticket};

/// How the flash is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        self.units() * u64::from(self.unit_bytes())
    }
}

/// How long the flash takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Sensing a page (tR), in nanoseconds: of a lower page, of an upper page.
    pub read_ns: [u64; 2],
    /// Reads that must be sensed again with shifted thresholds, per million; each takes `read_ns` three times
    /// more.
    pub retry_per_million: u64,
    /// Programming a page (tPROG), in nanoseconds: a lower page, an upper page.
    pub program_ns: [u64; 2],
    /// Erasing a block (tBERS), in nanoseconds.
    pub erase_ns: u64,
    /// How far sensing, programming and erasing vary to either side, evenly, in thousandths.
    pub spread_permille: u64,
    /// Moving 1024 bytes over a channel, in nanoseconds.
    pub channel_ns_per_kib: u64,
    /// Stopping a program or an erase for a read, and going on with it; where the flash can.
    pub suspend_ns: Option<u64>,
    /// Reads go before programs and erases that have not begun, until these have waited so long, in
    /// nanoseconds.
    pub patience_ns: u64,
}

/// What lies around the flash: the link to the host, the firmware, the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Added to every read that reaches the flash, in nanoseconds: firmware and link, both ways.
    pub read_ns: u64,
    /// A read served by the buffer, or of nothing written, in nanoseconds.
    pub hit_ns: u64,
    /// A write until it is in the buffer and completed, in nanoseconds.
    pub write_ns: u64,
    /// What a read takes of the firmware, which does one thing at a time, in nanoseconds.
    pub read_busy_ns: u64,
    /// What a write takes of the firmware for each 4 KiB of it, in nanoseconds.
    pub write_busy_ns: u64,
    /// What each 4 KiB that garbage collection moves takes of the firmware, in nanoseconds.
    pub move_busy_ns: u64,
    /// Moving 1024 bytes over the link, in nanoseconds.
    pub link_ns_per_kib: u64,
    /// Whether capacitors save the write buffer in a power cut, so that a flush has nothing to wait for.
    pub protected: bool,
    /// Bytes of the write buffer: accepted from the host and not yet programmed.
    pub write_buffer_bytes: u64,
    /// Bytes of a buffer that reads are served from; 0: none.
    pub read_buffer_bytes: u64,
    /// Whether a read brings the whole unit over the channel, into the buffer.
    pub whole_units: bool,
}

/// A drive of NAND flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NandDrive {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Its flash, as large as [`NandDrive::sized`] made it.
    pub geometry: Geometry,
    /// The flash's times.
    pub timings: Timings,
    /// What lies around it.
    pub controller: Controller,
    /// Bytes that the host sees.
    pub capacity: u64,
    /// Physical over logical bytes, in thousandths: 1280 is 28 % over-provisioned.
    pub physical_permille: u64,
    /// Of what is drawn at random.
    pub seed: u64,
}

/// Erase blocks of a die that hold no data at any time: being filled, being collected, or kept free so that
/// collecting can go on. They come on top of the over-provisioning.
pub const SPARE_BLOCKS: u32 = 6;

/// With fewer blocks on a die, the choice between them would be coarser than on any real one.
const MIN_BLOCKS: u64 = 32;
const MIN_PAGES: u32 = 16;

impl NandDrive {
    /// This drive with another capacity (in bytes), and flash for it: as many dies as before, blocks of as
    /// many pages, and as many blocks as it takes. Where that would leave a die fewer than 32 blocks, blocks
    /// get fewer pages (down to 16), and then the drive gets fewer dies.
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
        g.blocks = units.div_ceil(u64::from(g.dies()) * u64::from(g.pages)) as u32 + SPARE_BLOCKS;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_of_any_size_has_its_spare_space() {
        for drive in presets() {
            for capacity in [1 << 20, (5 << 20) + 512, 64 << 20, 1 << 30, 16 << 30, 400 << 30, drive.capacity]
            {
                let sized = drive.sized(capacity);
                let g = sized.geometry;
                let data = g.bytes() / u64::from(g.blocks) * u64::from(g.blocks - SPARE_BLOCKS);
                assert!(
                    data >= capacity / 1000 * sized.physical_permille,
                    "{} of {capacity}: {g:?}",
                    drive.name
                );
                assert!(data <= capacity * 3 / 2 + (2 << 20), "{} of {capacity}: {g:?}", drive.name);
                assert!(g.dies() <= drive.geometry.dies() && g.pages <= drive.geometry.pages);
            }
            assert_eq!(drive.sized(drive.capacity), drive, "{} has its own size", drive.name);
        }
    }
}
