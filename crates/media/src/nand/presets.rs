//! NAND drives as data. What a data sheet or a paper says is named with it; what is assumed is called so,
//! with the figure that it was chosen to meet.

use super::{Controller, Geometry, NandDrive, Timings};

/// All presets, each at its own capacity.
pub fn presets() -> [NandDrive; 4] {
    [p3700(), p3600(), s3700(), cosmos_plus()]
}

/// A preset by its name.
pub fn preset(name: &str) -> Option<NandDrive> {
    presets().into_iter().find(|drive| drive.name == name)
}

/// Intel SSD DC P3700, 1.6 TB: the NAND drive of PIEEE'17, figures 5, 7, 8 and 11.
///
/// - Geometry: 18 channels (Intel's CH29AE41AB0 controller), 20 nm MLC with pages of 16 KiB. 8 dies of 128
///   Gbit on each channel: 144 dies. A quarter of the flash is set aside (AnandTech's review of the series):
///   4/3 = 1.333.
/// - Data sheet (Intel 330566): random read 450,000 IOPS, so 2.2 µs of the firmware for each; sequential
///   write 1,900 MB/s: 2.15 µs per 4 KiB; sequential read 2,800 MB/s: 366 ns per KiB of the link; random 4
///   KiB read 115 µs, sequential write 20 µs.
/// - A random read of 4 KiB: 10 firmware and link + 82 sensing (mean of lower and upper pages) + 20 channel =
///   112 µs.
/// - Programming, assumed: 0.6 ms and 2.0 ms for lower and upper pages of 20 nm MLC; with 16 KiB in 82 µs
///   over the channel 1.38 ms on average, 11.9 MB/s of a die, 1.71 GB/s of 144. The data sheet's 150,000
///   random writes of 4 KiB in a second would, at a write amplification of 2.1, be 1.29 GB/s; the model's
///   137,000 leave a third of the time to erasing and to the reads of garbage collection.
/// - These times decide four figures of PIEEE'17 at once: 300,000 IOPS at QD128 want reads to wait little for
///   programs, ACT's 40 x (95 % within 1 ms) wants them long, 10 ms at the 99.999th percentile wants no read
///   behind many of them. 0.6 and 2.0 ms with a patience of 3 ms (below an erase, so that what stood behind
///   one goes before reads) meet all within 15 %: 259,000, 45 x, 10.5 ms.
/// - Assumed, as PIEEE'17 has no figure for them: the split of the 112 µs, the spread of 8.6 % (which decides
///   how many reads of an upper page take longer than 128 µs, and so ACT's tightened multiplier), erasing in
///   4 ms, no suspension (MLC of 2013), 16 MiB of write buffer.
pub fn p3700() -> NandDrive {
    let base = NandDrive {
        name: "nand-p3700",
        about: "Intel SSD DC P3700, 1.6 TB: 144 dies of 20 nm MLC on 18 channels, PCIe",
        geometry: Geometry { channels: 18, ways: 8, planes: 1, blocks: 0, pages: 512, page_bytes: 16384 },
        timings: Timings {
            read_ns: [66_000, 98_000],
            retry_per_million: 0,
            program_ns: [600_000, 2_000_000],
            erase_ns: 4_000_000,
            spread_permille: 86,
            channel_ns_per_kib: 5_120,
            suspend_ns: None,
            patience_ns: 3_000_000,
        },
        controller: Controller {
            read_ns: 10_000,
            hit_ns: 10_000,
            write_ns: 18_000,
            read_busy_ns: 2_200,
            write_busy_ns: 2_150,
            move_busy_ns: 1_000,
            link_ns_per_kib: 366,
            protected: true,
            write_buffer_bytes: 16 << 20,
            read_buffer_bytes: 0,
            whole_units: false,
        },
        capacity: 0,
        physical_permille: 1333,
        seed: 1,
    };
    base.sized(1_600_000_000_000)
}

/// Intel SSD DC P3600, 1.6 TB: the NAND drive of PIEEE'17, figures 9 and 10.
///
/// The P3700's controller and flash with less set aside: 12 % of the flash instead of 25 % (AnandTech):
/// 1/0.88 = 1.136. Data sheet (Intel 330569): random read 450,000 IOPS, random write 50,000 to 56,000,
/// sequential 2,600 and 1,600 MB/s. At a write amplification of 4.4 the same dies give 1.71 GB/s / 4096 / 4.4
/// = 95,000 random writes; that the drive makes fewer is its firmware's doing, here 4.4 µs for each 4 KiB
/// moved, assumed: 2.56 + 3.4 * 4.4 = 17.5 µs, 57,000 in a second.
pub fn p3600() -> NandDrive {
    let like = p3700();
    let base = NandDrive {
        name: "nand-p3600",
        about: "Intel SSD DC P3600, 1.6 TB: the P3700's flash with half the over-provisioning",
        controller: Controller {
            write_busy_ns: 2_560,
            move_busy_ns: 4_400,
            link_ns_per_kib: 394,
            ..like.controller
        },
        geometry: Geometry { channels: 18, ways: 8, pages: 512, ..like.geometry },
        physical_permille: 1136,
        ..like
    };
    base.sized(1_600_000_000_000)
}

/// Intel SSD DC S3700, 400 GB: the SATA drive of PIEEE'17, figures 3 and 11.
///
/// - 25 nm MLC of 64 Gbit with pages of 8 KiB on two planes, 8 channels; 528 GiB of flash for 400 GB
///   (AnandTech's review): 1.417.
/// - Data sheet (Intel 328171): random read 75,000 IOPS: 13.3 µs each; sequential write 460 MB/s: 8.9 µs per
///   4 KiB; random write 36,000: 27.8 µs each, so at a write amplification of 1.9 each 4 KiB moved takes
///   (27.8 - 8.9) / 0.9 = 21 µs; sequential read 500 MB/s: 2048 ns per KiB of the link (SATA's 6 Gb/s carry
///   600 MB/s at most).
/// - Assumed: sensing 50 and 75 µs, programming 0.5 and 2.0 ms, erasing 3 ms, 166 MB/s on a channel. The
///   host's adapter (AHCI) is not in it: it comes before the drive.
pub fn s3700() -> NandDrive {
    let base = NandDrive {
        name: "nand-s3700",
        about: "Intel SSD DC S3700, 400 GB: 64 dies of 25 nm MLC on 8 channels, SATA (without its host adapter)",
        geometry: Geometry { channels: 8, ways: 8, planes: 2, blocks: 0, pages: 256, page_bytes: 8192 },
        timings: Timings {
            read_ns: [50_000, 75_000],
            retry_per_million: 0,
            program_ns: [500_000, 2_000_000],
            erase_ns: 3_000_000,
            spread_permille: 90,
            channel_ns_per_kib: 6_160,
            suspend_ns: None,
            patience_ns: 3_000_000,
        },
        controller: Controller {
            read_ns: 15_000,
            hit_ns: 15_000,
            write_ns: 40_000,
            read_busy_ns: 13_300,
            write_busy_ns: 8_900,
            move_busy_ns: 21_000,
            link_ns_per_kib: 2_048,
            protected: true,
            write_buffer_bytes: 4 << 20,
            read_buffer_bytes: 0,
            whole_units: false,
        },
        capacity: 0,
        physical_permille: 1417,
        seed: 1,
    };
    base.sized(400_000_000_000)
}

/// Cosmos+ OpenSSD, 1 TB, as DAC'23 used it: section IV-A and tables I and II.
///
/// - 8 channels with 8 ways, 1 TB (64 dies of 16 GiB; a tenth set aside, 1.1); its firmware reads whole pages
///   of 16 KiB into a data buffer of 16 pages for each die, 16 MiB.
/// - Table II's columns less table I's are what the flash takes. "Read NAT", which goes to the flash once at
///   each depth: 246, 247 and 248 µs, so a page takes 247 µs more than a buffer hit. "Read directory data":
///   2,944, 4,921 and 8,872 µs at depth 5, 10 and 20, which are 12, 20 and 36 such pages within 1 %. So a
///   level is no single read: it has its directory's inode and its block of entries, and some share a page.
///   (At depth 5 a level's 12 / 5 reads are 590 µs.) Nor do lower and upper pages differ.
/// - Of the 247 µs, 138 are sensing, 102 the channel (16 KiB at 160 MB/s), and 7 the firmware's (a 1 GHz
///   Cortex-A9): the sum is measured, the split assumed, and so is that several requests' parts in the
///   firmware overlap.
/// - Buffer hit: 7 µs for the 12 blocks of depth 5 (an inode and a block of entries for each of 6
///   directories), 23 µs for the 42 of depth 20 (table I): 583 and 548 ns; their geometric mean is 565 ns.
/// - Writes take 610 µs (section III-D). Programming and erasing are assumed, as of 20 nm MLC. Its buffer is
///   lost in a power cut.
/// - Near-data reads do not cross PCIe (Gen2 with 8 lanes, 4 GB/s less a fifth: 1.3 µs for 4 KiB), and the
///   model does not know whose a read is: of a hit's 565 ns, 465 are "link" at 116 ns per KiB, so that the
///   sum is right within the drive.
pub fn cosmos_plus() -> NandDrive {
    let base = NandDrive {
        name: "nand-cosmos-plus",
        about: "Cosmos+ OpenSSD of DAC'23, 1 TB: 64 dies on 8 channels, 16 MiB of buffer",
        geometry: Geometry { channels: 8, ways: 8, planes: 1, blocks: 0, pages: 256, page_bytes: 16384 },
        timings: Timings {
            read_ns: [138_000, 138_000],
            retry_per_million: 0,
            program_ns: [600_000, 2_400_000],
            erase_ns: 5_000_000,
            spread_permille: 50,
            channel_ns_per_kib: 6_400,
            suspend_ns: None,
            patience_ns: 3_000_000,
        },
        controller: Controller {
            read_ns: 6_700,
            hit_ns: 100,
            write_ns: 550_000,
            read_busy_ns: 565,
            write_busy_ns: 60_000,
            move_busy_ns: 20_000,
            link_ns_per_kib: 116,
            protected: false,
            write_buffer_bytes: 16 << 20,
            read_buffer_bytes: 16 << 20,
            whole_units: true,
        },
        capacity: 0,
        physical_permille: 1100,
        seed: 1,
    };
    base.sized(1_000_000_000_000)
}
