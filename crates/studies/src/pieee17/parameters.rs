//! The numbers of PIEEE'17's models, and where each comes from. The structures are taken apart whole: a
//! number that is new in one of them has to be accounted for here.

use nearside_media::nand::{p3600, p3700, s3700};
use nearside_media::platform::Interface;
use nearside_media::xpoint::Device;

use super::fit::Half;
use super::paging;
use super::rig::SOFTWARE_NS;
use super::rocksdb;
use super::stated::{
    ADAPTER, DELAYS, DEVICE, EVERY, NAND, NAND_FAR, OPTANE, OVER_NAND, PAGING, PCIE, ROCKSDB, SYSTEM,
};
use crate::flash::{self, Entry};
use crate::source::{Parameter, Parameters, Source};

/// Optane.
pub const P4800X: &str = "optane-p4800x";
/// Its precursor.
pub const PROTOTYPE: &str = "optane-prototype";
/// The NAND drive.
pub const P3700: &str = "nand-p3700";
/// The SATA drive.
pub const S3700: &str = "nand-s3700";
/// The NAND drive of Figs. 9 and 10.
pub const P3600: &str = "nand-p3600";
/// What RocksDB computes.
pub const ROCKSDB_HOST: &str = "pieee17-rocksdb";
/// What the host adds to each I/O.
pub const SOFTWARE: &str = "pieee17-host";
/// Adapters: SATA, SAS, PCIe.
pub const INTERFACES: [&str; 3] = ["ahci", "sas", "pcie"];
/// Fig. 6's arithmetic.
pub const FIG_6: &str = "pieee17-fig-6";
/// Fig. 2's read of NAND.
pub const NAND_READ: &str = "pieee17-nand-read";
/// The kernel's paging.
pub const PAGING_CODE: &str = "pieee17-paging";

/// All.
pub fn all() -> Vec<Parameter> {
    let software = Parameters::of(SOFTWARE)
        .assumed_from("software_ns", SOFTWARE_NS, &[SYSTEM], "just less than 4 us; nobody waits for it")
        .list();
    let case = Parameters::of(FIG_6)
        .paper("system_us", DELAYS[0].value, &DELAYS[..1], "stated")
        .paper("slow_us", DELAYS[1].value, &DELAYS[1..2], "stated")
        .paper("fast_us", DELAYS[2].value, &DELAYS[2..], "stated")
        .paper("every_us", EVERY[0].value, &EVERY[..1], "stated")
        .paper("sooner_us", EVERY[1].value, &EVERY[1..], "stated")
        .list();
    let read = Parameters::of(NAND_READ)
        .assumed("read_us", 101.0, "a NAND drive's single read; the figure has no numbers")
        .list();
    let paging = Parameters::of(PAGING_CODE)
        .paper("code_ns", paging::CODE_NS, &[PAGING], "stated")
        .assumed("pages", paging::AROUND, "read at once around a miss with page-cluster 3: two to its power")
        .list();
    let rocksdb = Parameters::of(ROCKSDB_HOST)
        .fitted("compute_ns", rocksdb::COMPUTE_NS, &[ROCKSDB], "what makes it three times with one thread")
        .list();
    let flash = [
        flash::parameters(P3700, &p3700(), &of_p3700()),
        flash::parameters(P3600, &p3600(), &of_p3600()),
        flash::parameters(S3700, &s3700(), &of_s3700()),
    ];
    let halves =
        Half::BOTH.map(|half| flash::parameters(half.model(), &half.fitted().drive(), &of_half(half)));
    let all = [
        software,
        case,
        read,
        paging,
        rocksdb,
        optane(P4800X, Device::p4800x()),
        optane(PROTOTYPE, Device::prototype()),
    ];
    all.into_iter().chain(flash).chain(halves).chain(interfaces()).flatten().collect()
}

fn optane(model: &'static str, device: Device) -> Vec<Parameter> {
    let Device {
        channels,
        spread,
        command_ns,
        read_ns,
        write_ns,
        turn_ns,
        partial_ns,
        byte_ps,
        path_ns,
        vary_ns,
        retry_every,
        retry_ns,
        seed: _,
    } = device;
    let all = Parameters::of(model)
        .data_sheet("channels", channels, "public teardowns of the 375 GB card: seven rows of packages")
        .assumed("spread", spread, "all of them; the paper says \"multiple\"")
        .data_sheet("read_ns", read_ns, "P4800X: 2,400 MB/s of sequential reads")
        .data_sheet("write_ns", write_ns, "P4800X: 2,000 MB/s of sequential writes")
        .paper("byte_ps", byte_ps, &[PCIE], "1.25 us for 4 KiB")
        .fitted("path_ns", path_ns, &[DEVICE], "what is left of less than 8 us")
        .assumed("vary_ns", vary_ns, "some spread")
        .assumed("retry_every", retry_every, "so that the 99.999th percentile has retries in it")
        .data_sheet("retry_ns", retry_ns, "AnandTech's review (2017): p99.999 of 37 us at queue depth 1");
    let all = match command_ns + turn_ns {
        0 => all.assumed("command_ns", command_ns, "of the controller's limit nothing is known").assumed(
            "turn_ns",
            turn_ns,
            "of turning between reads and writes nothing is known",
        ),
        _ => all
            .data_sheet("command_ns", command_ns, "Intel's product brief: 550,000 random reads in a second")
            .data_sheet("turn_ns", turn_ns, "Intel's product brief: 500,000 in a second with 70 % reads"),
    };
    let all = match partial_ns {
        0 => all.assumed("partial_ns", partial_ns, "nothing"),
        _ => all.fitted("partial_ns", partial_ns, &OPTANE[..1], "what makes 150x the most"),
    };
    all.list()
}

const P3700_SHEET: &str = "Intel 330566, CH29AE41AB0, AnandTech's review";

fn of_p3700() -> [Entry<'static>; 6] {
    // Together they decide these.
    const DECIDE: &[crate::finding::Stated] = &[NAND_FAR, OVER_NAND[0], OPTANE[0]];
    [
        (
            &[
                "channels",
                "ways",
                "planes",
                "pages",
                "page_bytes",
                "physical_permille",
                "firmware_write_ns",
                "read_busy_ns",
                "write_busy_ns",
                "link_ns_per_kib",
                "protected",
            ],
            Source::DataSheet,
            &[],
            P3700_SHEET,
        ),
        (
            &["lower_read_ns", "upper_read_ns", "firmware_read_ns", "firmware_hit_ns", "channel_ns_per_kib"],
            Source::DataSheet,
            &[],
            "Intel 330566: a random read takes 115 us; its parts are assumed",
        ),
        (
            &["lower_program_ns", "upper_program_ns", "patience_ns", "erase_ns"],
            Source::Fitted,
            DECIDE,
            "one choice between the data sheet's writes, the 99.999th percentile and ACT's 40x (150 / 3.75)",
        ),
        (
            &["spread_permille"],
            Source::Fitted,
            // The second is the first once more: 125x over 8x.
            &[NAND, OVER_NAND[1]],
            "how many reads of an upper page take longer than 128 us, which decides the tightened multiple",
        ),
        (&["suspend_ns", "move_busy_ns", "retry_per_million"], Source::Assumed, &[], "20 nm MLC of 2013"),
        (
            &["write_buffer_bytes", "read_buffer_bytes", "whole_units"],
            Source::Assumed,
            &[],
            "16 MiB of write buffer, none for reads",
        ),
    ]
}

/// The P3700 with its free numbers fitted to one half of the paper's cells.
fn of_half(half: Half) -> [Entry<'static>; 6] {
    let [sheet, reads, programs, spread, assumed, buffers] = of_p3700();
    let (free, cells) = (Source::Fitted, half.rests_on());
    let how = "this half of the cells and the data sheet's random writes; where they decide nothing, as assumed of nand-cosmos-plus";
    [sheet, reads, (programs.0, free, cells, how), (spread.0, free, cells, how), assumed, buffers]
}

/// The P3700 but for what its own data sheet says.
fn of_p3600() -> [Entry<'static>; 7] {
    let [sheet, reads, programs, spread, _, buffers] = of_p3700();
    let sheet = (sheet.0, sheet.1, sheet.2, "Intel 330569, CH29AE41AB0, AnandTech's review of the series");
    [
        sheet,
        reads,
        programs,
        spread,
        (&["suspend_ns", "retry_per_million"], Source::Assumed, &[], "20 nm MLC of 2013"),
        (&["move_busy_ns"], Source::DataSheet, &[], "Intel 330569: 56,000 random writes in a second"),
        buffers,
    ]
}

fn of_s3700() -> [Entry<'static>; 2] {
    [
        (
            &[
                "channels",
                "ways",
                "planes",
                "pages",
                "page_bytes",
                "physical_permille",
                "read_busy_ns",
                "write_busy_ns",
                "move_busy_ns",
                "link_ns_per_kib",
                "protected",
            ],
            Source::DataSheet,
            &[],
            "Intel 328171, AnandTech's review",
        ),
        (
            &[
                "lower_read_ns",
                "upper_read_ns",
                "retry_per_million",
                "lower_program_ns",
                "upper_program_ns",
                "erase_ns",
                "spread_permille",
                "channel_ns_per_kib",
                "suspend_ns",
                "patience_ns",
                "firmware_read_ns",
                "firmware_hit_ns",
                "firmware_write_ns",
                "write_buffer_bytes",
                "read_buffer_bytes",
                "whole_units",
            ],
            Source::Assumed,
            &[],
            "25 nm MLC; the paper's text has no number of this drive",
        ),
    ]
}

fn interfaces() -> [Vec<Parameter>; 3] {
    let [ahci, sas, pcie] = [Interface::AHCI, Interface::SAS, Interface::PCIE];
    let rest = |all: Parameters, interface: Interface| {
        let Interface { command_ns: _, added_ns: _, port_byte_ps, host_byte_ps, stripe } = interface;
        let all = match port_byte_ps {
            0 => all.assumed("port_byte_ps", port_byte_ps, "no port of a drive's own"),
            _ => all.data_sheet("port_byte_ps", port_byte_ps, "6 Gb/s at 10 bits a byte"),
        };
        all.paper("host_byte_ps", host_byte_ps, &[PCIE], "1.25 us for 4 KiB")
            .assumed("stripe", stripe, "bytes that lie together on one drive")
            .list()
    };
    let registers = "four reads of registers of 2,000 cycles each (the NVM Express overview's comparison)";
    let of_ahci = Parameters::of(INTERFACES[0]).data_sheet("command_ns", ahci.command_ns, registers).assumed(
        "added_ns",
        ahci.added_ns,
        "nothing",
    );
    let of_sas = Parameters::of(INTERFACES[1])
        .data_sheet("command_ns", sas.command_ns, "Broadcom SAS 9207-8i: 700,000 requests a second")
        .paper("added_ns", sas.added_ns, &[ADAPTER], "25 us less the command's own");
    let of_pcie = Parameters::of(INTERFACES[2]).assumed("command_ns", pcie.command_ns, "nothing").assumed(
        "added_ns",
        pcie.added_ns,
        "no adapter",
    );
    [rest(of_ahci, ahci), rest(of_sas, sas), rest(of_pcie, pcie)]
}
