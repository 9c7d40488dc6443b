//! Section III-C: the data provider's two ways over the flash's channels:
//! unordered (blocks are handed on as they arrive) and ordered.
//!
//! One file, fragmented by its order on the flash or not, read by an operation that needs no order (CRC-32C)
//! and by one that does (SHA-256), with more and more reads in flight. The model's processor takes no time
//! for either, so that only the supply differs.

use nearside_fsrlib::{Digest, Operation, Route};
use nearside_instrument::dataset::Chain;
use nearside_instrument::volume::Kind;
use nearside_media::nand::cosmos_plus;
use nearside_sim::near_data::{Core, NearDataConfig};

use super::parameters::FLASH;
use super::rig::{Bed, Buffer, Model, dataset};
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// DAC'23, Section III-C: the data provider's two ways.
pub const STUDY: Study =
    Study { number: "Section III-C", title: "Unordered against ordered data supply", section: "III-C", run };

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let bytes: usize = run.sized(2 << 20, 8 << 20);
    let data = dataset(run, Kind::F2fs, Chain { depth: 3, files: vec![(3, bytes)] })?;
    let path = Chain::path(3, bytes);
    let (x, y) = (Scale::linear("reads of 128 KiB in flight"), Scale::linear("MB/s"));
    run.chart(Chart::lines("supply", "A file from the flash, in order and in any order", x, y));
    let ways = [
        ("unordered", Operation::Checksum(Digest::Crc32c)),
        ("ordered", Operation::Checksum(Digest::Sha256)),
    ];
    let mut rates = [Vec::new(), Vec::new()];
    for depth in [1, 2, 4, 8] {
        let firmware = nearside_fsr::Config { depth, ahead: depth, ..nearside_fsr::Config::default() };
        let config = NearDataConfig { core: Core::default(), host_ns: 0, firmware };
        let mut model = Model::with(&data, &config)?;
        model.session().set_route(Route::Drive);
        for ((name, operation), rates) in ways.iter().zip(&mut rates) {
            let took = model.once(&path, operation, Buffer::Miss)?;
            let rate = bytes as f64 * 1e3 / took.total.saturating_sub(took.locating).max(1) as f64;
            let finding = Finding::new(format!("{name}, {depth} in flight"), "MB/s").model(rate);
            let finding = finding.from(Simulated, &[FLASH]).point("supply", name, depth as f64);
            rates.push(run.finding(finding));
        }
    }
    let [unordered, ordered] = &rates;
    let drive = cosmos_plus();
    let channels = f64::from(drive.geometry.channels) * 1024e3 / drive.timings.channel_ns_per_kib as f64;
    run.claim(
        Claim::new("Blocks that are processed as they arrive use the flash's whole bandwidth", "III-C")
            .model(&unordered[unordered.len() - 1], Bound::AtLeast(0.9 * channels))
            .because(format!("All channels together move {channels:.0} MB/s")),
    );
    let claim = Claim::new("Data in any order come no slower than in order", "III-C");
    run.claim(unordered.iter().zip(ordered).fold(claim, |claim, (any, order)| {
        claim.model(Quantity::from(any).over(order), Bound::AtLeast(0.99))
    }));
    run.note("The paper gives no number here. Its ordered way reads a piece into a contiguous buffer, one after the other: that is one read in flight; here some reads run ahead of an ordered operation as well.");
    Ok(())
}
