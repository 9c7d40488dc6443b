//! Small drives for tests.
#![allow(dead_code, reason = "each test uses a part")]

use nearside_media::nand::{Geometry, NandDrive, SPARE_BLOCKS, cosmos_plus};

/// A drive of so many slots of 4 KiB and dies, with blocks of so many pages, over-provisioned so far. Its
/// buffer is lost in a power cut.
pub fn drive(slots: u64, dies: u32, pages: u32, physical_permille: u64) -> NandDrive {
    let like = cosmos_plus();
    let units = (slots * physical_permille / 1000).div_ceil(4);
    let blocks = units.div_ceil(u64::from(dies * pages)) as u32 + SPARE_BLOCKS;
    NandDrive {
        geometry: Geometry { channels: dies, ways: 1, blocks, pages, ..like.geometry },
        capacity: slots * 4096,
        physical_permille,
        ..like
    }
}

/// The same with capacitors.
pub fn protected(mut drive: NandDrive) -> NandDrive {
    drive.controller.protected = true;
    drive
}
