//! Fig. 5: IOPS at queue depths, NAND beside Optane, 4 KiB at random with 70 % reads.

use nearside_loadgen::Arrivals;

use super::parameters::SOFTWARE;
use super::real::{ITS_OWN, Length, median};
use super::rig::{Bed, Drive, real};
use super::stated::{NAND_128, OPTANE_4};
use crate::Relation::Simulated;
use crate::claim::WITHIN;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// PIEEE'17, Fig. 5: IOPS at queue depths.
pub const STUDY: Study =
    Study { number: "Fig. 5", title: "IOPS at queue depths, NAND beside Optane", section: "IV", run };

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::lines(
        "iops",
        "IOPS at queue depths, 70 % reads",
        Scale::log("queue depth"),
        Scale::linear("IOPS, thousands"),
    ));
    let count = run.sized(60_000, 400_000);
    let depths: &[u32] = run.sized(&[1, 4, 8, 32, 128], &[1, 2, 3, 4, 6, 7, 8, 16, 32, 64, 128, 256]);
    let (rounds, length) = (3, Length::Time(run.sized(50_000_000, 300_000_000)));
    for drive in Drive::BOTH {
        let mut bed = Bed::new(run, drive)?;
        let mut real = real(run, drive)?;
        let (mut line, mut own): (Vec<f64>, Vec<f64>) = Default::default();
        let numbers = [drive.word(), SOFTWARE];
        for &depth in depths {
            let iops = bed.mixed(Arrivals::Closed { depth }, count)?.throughput() / 1e3;
            let measured = real.runs(rounds, Arrivals::Closed { depth }, length)?.kiops();
            let finding = Finding::new(at(drive, depth), "kIOPS").model(iops).from(Simulated, &numbers);
            let finding = finding.machine(&measured);
            let finding = match (drive, depth) {
                (Drive::Optane, 4) => finding.paper(&OPTANE_4),
                (Drive::Nand, 128) => finding.paper(&NAND_128),
                _ => finding,
            };
            run.finding(finding.point("iops", drive.name(), f64::from(depth)));
            line.push(iops);
            own.push(median(&measured));
        }
        real.away(run, drive.name());
        let [most, own] = [line, own].map(|line| line.into_iter().fold(0.0, f64::max));
        let finding = Finding::new(format!("{}: most", drive.name()), "kIOPS").model(most).machine(&[own]);
        run.finding(finding.from(Simulated, &numbers));
    }
    claims(run);
    run.note(ITS_OWN);
    Ok(())
}

/// A finding's name.
fn at(drive: Drive, depth: u32) -> String {
    format!("{}, queue depth {depth}", drive.name())
}

fn claims(run: &mut Run<'_>) {
    let of = |drive, depth| Quantity::named(at(drive, depth));
    let (optane, nand) = (of(Drive::Optane, 4), of(Drive::Nand, 128));
    run.claim(
        Claim::new("NAND reaches about 300,000 at a queue depth of 128, Optane a similar number at 4", "IV")
            .model(nand.clone(), Bound::stated(&NAND_128))
            .model(optane.clone(), Bound::stated(&OPTANE_4)),
    );
    run.claim(
        Claim::new("Optane reaches at a queue depth of 4 what NAND reaches at 128", "IV")
            .both(optane.over(nand.clone()), Bound::AtLeast(1.0 - WITHIN))
            .in_models_time(),
    );
    run.claim(
        Claim::new("Optane is at its most at a queue depth of only 8", "IV")
            .both(of(Drive::Optane, 8).over(Quantity::named("Optane: most")), Bound::AtLeast(0.95))
            .in_models_time(),
    );
    run.claim(
        Claim::new("NAND needs high queue depths", "IV")
            .both(of(Drive::Nand, 8).over(nand), Bound::Below(0.5))
            .in_models_time(),
    );
}
