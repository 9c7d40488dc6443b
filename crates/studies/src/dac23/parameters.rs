//! The numbers of DAC'23's model, and where each comes from.
//!
//! What the firmware's core takes is fitted to depths of Table I that are named beforehand ([`FITTED`]); the
//! other depth is predicted. So that each depth is predicted once, the fit is done with each pair.

use nearside_media::nand::cosmos_plus;
use nearside_sim::near_data::{Core, NearDataConfig};

use super::stated::{CHANNELS, COMPUTING, DEPTHS, ENTRY, NAT, Row, SAVES, TABLES, TOTAL, WRITE};
use crate::finding::Stated;
use crate::flash::{self, Entry};
use crate::source::{Parameter, Parameters, Source};

/// The flash and the firmware around it.
pub const FLASH: &str = "nand-cosmos-plus";
/// The firmware's core, fitted to [`FITTED`].
pub const CORE: &str = "cosmos-core";
/// What a command of the host costs.
pub const HOST: &str = "cosmos-host";
/// What the host's own processor computes.
pub const HOST_CORE: &str = "cosmos-host-core";
/// A host that asks many drives.
pub const FLEET: &str = "fleet";
/// All of them, but for a host that computes.
pub const ALL: [&str; 3] = [CORE, HOST, FLASH];
/// The depths that the model of all studies is fitted to.
pub const FITTED: [usize; 2] = [5, 20];
/// For each depth of the tables the core fitted to the other two, and those.
pub const HELD_OUT: [(&str, [usize; 2]); 3] = [
    ("cosmos-core-without-5", [10, 20]),
    ("cosmos-core-without-10", [5, 20]),
    ("cosmos-core-without-20", [5, 10]),
];

/// All.
pub fn all() -> Vec<Parameter> {
    let host = Parameters::of(HOST)
        .fitted("host_ns", cosmos().host_ns, &[SAVES[0][0]], "taken as what FSR saves at depth 5")
        .list();
    let held_out = HELD_OUT.into_iter().flat_map(|(model, depths)| core(model, depths));
    let flash = flash::parameters(FLASH, &cosmos_plus(), &of_flash());
    let computes = Parameters::of(HOST_CORE)
        .assumed("compute_ns_per_kib", HOST_NS_PER_KIB, "the drive's loop over bytes at four times its clock")
        .list();
    let fleet = Fleet::default().parameters();
    let rest = held_out.chain(fleet);
    core(CORE, FITTED).into_iter().chain(host).chain(computes).chain(flash).chain(rest).collect()
}

/// A host that asks many drives, and what there is between them.
pub struct Fleet {
    /// Its processors.
    pub cores: u64,
    /// Its link: bytes in a nanosecond.
    pub link_bytes_per_ns: f64,
    /// Drives that it has under way for each processor.
    pub each: u64,
    /// Which part of the drives is slow.
    pub slow_part: f64,
    /// How many times as long those take.
    pub slow_times: u64,
}

impl Default for Fleet {
    fn default() -> Fleet {
        Fleet { cores: 64, link_bytes_per_ns: 12.5, each: 16, slow_part: 0.01, slow_times: 3 }
    }
}

impl Fleet {
    fn parameters(&self) -> Vec<Parameter> {
        let Fleet { cores, link_bytes_per_ns, each, slow_part, slow_times } = *self;
        Parameters::of(FLEET)
            .assumed("cores", cores, "a server of one socket")
            .assumed("link_bytes_per_ns", link_bytes_per_ns, "100 Gbit/s")
            .assumed("each", each, "threads that mostly wait")
            .assumed("slow_part", slow_part, "one drive of a hundred is busy with something else")
            .assumed("slow_times", slow_times, "it then takes three times as long")
            .list()
    }
}

const HOST_NS_PER_KIB: u64 = 1_024;

/// What a host takes that computes over so many bytes itself, in nanoseconds: those that it was sent.
pub fn host_computes(bytes: u64) -> u64 {
    bytes * HOST_NS_PER_KIB / 1024
}

fn row(depth: usize) -> Row {
    TABLES[0][DEPTHS.iter().position(|d| *d == depth).unwrap_or(0)]
}

/// The core by two depths of Table I: each number is the geometric mean of what the two depths say. A path of
/// depth d has d directories above the file: d + 1 names, d + 2 inodes.
///
/// - Finding a name: Table I's column over the names.
/// - The table of inodes' places: its column over the inodes.
/// - An inode: what the total has beyond the three columns, over the inodes.
/// - Computing: Fig. 2's 700 us once for each search, and 4 cycles of the 1 GHz core for each byte,
///   assumed of a loop over bytes on an in-order core.
pub fn fit(depths: [usize; 2]) -> Core {
    let mean = |of: &dyn Fn(Row, f64) -> f64| {
        let product: f64 = depths.iter().map(|depth| of(row(*depth), *depth as f64)).product();
        // To ten nanoseconds.
        (product.sqrt() * 100.0).round() as u64 * 10
    };
    Core {
        locate_ns: 0,
        table_ns: mean(&|row, depth| row[NAT].value / (depth + 2.0)),
        entry_ns: mean(&|row, depth| row[ENTRY].value / (depth + 1.0)),
        inode_ns: mean(&|row, depth| {
            let parts: f64 = row[..TOTAL].iter().map(|cell| cell.value).sum();
            (row[TOTAL].value - parts) / (depth + 2.0)
        }),
        compute_ns: (COMPUTING.value * 1e3) as u64,
        compute_ns_per_kib: 4_096,
    }
}

/// Cosmos+ OpenSSD behind the paper's host, beside its flash ([`cosmos_plus`]).
pub fn cosmos() -> NearDataConfig {
    NearDataConfig { core: fit(FITTED), host_ns: 25_500, ..NearDataConfig::default() }
}

fn core(model: &'static str, depths: [usize; 2]) -> Vec<Parameter> {
    let Core { locate_ns, table_ns, entry_ns, inode_ns, compute_ns, compute_ns_per_kib } = fit(depths);
    let cells = |column: usize| depths.map(|depth| row(depth)[column]);
    let totals: Vec<Stated> = depths.iter().flat_map(|depth| row(*depth)).collect();
    let mean = "geometric mean of the two depths, for each";
    Parameters::of(model)
        .assumed("locate_ns", locate_ns, "nothing that is not in the other parts")
        .fitted("table_ns", table_ns, &cells(NAT), &format!("{mean} inode"))
        .fitted("entry_ns", entry_ns, &cells(ENTRY), &format!("{mean} name"))
        .fitted("inode_ns", inode_ns, &totals, &format!("{mean} inode: what the total has beyond its parts"))
        .paper("compute_ns", compute_ns, &[COMPUTING], "once for each search")
        .assumed("compute_ns_per_kib", compute_ns_per_kib, "4 cycles a byte: a loop on an in-order core")
        .list()
}

/// A page of the flash is what Table II's NAT column has beyond Table I's; a buffer hit is Table I's
/// directory data. Only sums are in the tables: how they are split is assumed.
const PAGE: [Stated; 6] = [
    TABLES[1][0][NAT],
    TABLES[1][1][NAT],
    TABLES[1][2][NAT],
    TABLES[0][0][NAT],
    TABLES[0][1][NAT],
    TABLES[0][2][NAT],
];

fn of_flash() -> [Entry<'static>; 6] {
    const HIT: &[Stated] = &[TABLES[0][0][0], TABLES[0][2][0]];
    [
        (&["channels", "ways"], Source::Paper, &[CHANNELS], "stated"),
        (
            &["lower_read_ns", "upper_read_ns", "channel_ns_per_kib", "firmware_read_ns"],
            Source::Fitted,
            &PAGE,
            "together 247 us, what Table II's NAT has beyond Table I's; the split is assumed",
        ),
        (
            &["read_busy_ns", "firmware_hit_ns", "link_ns_per_kib"],
            Source::Fitted,
            HIT,
            "together 565 ns a block: geometric mean of 7 us for 12 blocks and 23 us for 42",
        ),
        (&["firmware_write_ns", "write_busy_ns"], Source::Paper, &[WRITE], "together 610 us"),
        (
            &[
                "planes",
                "pages",
                "page_bytes",
                "physical_permille",
                "write_buffer_bytes",
                "read_buffer_bytes",
                "whole_units",
            ],
            Source::DataSheet,
            &[],
            "the Cosmos+ OpenSSD's own description; its firmware reads whole pages into its buffer",
        ),
        (
            &[
                "retry_per_million",
                "lower_program_ns",
                "upper_program_ns",
                "erase_ns",
                "spread_permille",
                "suspend_ns",
                "patience_ns",
                "move_busy_ns",
                "protected",
            ],
            Source::Assumed,
            &[],
            "20 nm MLC; no study of this paper writes",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_what_its_depths_say() {
        let core = fit(FITTED);
        assert_eq!((core.table_ns, core.entry_ns, core.inode_ns), (1_510, 6_220, 10_630));
        assert_eq!(core.compute_ns, 700_000);
        // Each pair gives another core: nothing of the third depth is in it.
        for (model, depths) in HELD_OUT {
            let without = DEPTHS.iter().find(|depth| !depths.contains(depth)).unwrap();
            assert_eq!(model, format!("cosmos-core-without-{without}"));
            let cell = format!("depth {without}");
            let parameters = super::core(model, depths);
            assert!(parameters.iter().flat_map(|p| &p.cells).all(|named| !named.ends_with(&cell)));
        }
        assert_ne!(fit([5, 10]), fit([10, 20]));
    }
}
