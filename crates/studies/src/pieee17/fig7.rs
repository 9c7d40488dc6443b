//! Fig. 7: latency at minimal load, mean and quality of service to the 99.999th percentile,
//! NAND beside Optane.

use nearside_loadgen::Arrivals;

use super::parameters::SOFTWARE;
use super::real::{ITS_OWN, Length, median};
use super::rig::{Bed, Drive, mean_us, percentile_us, real};
use super::stated::MEANS;
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// PIEEE'17, Fig. 7: latency at minimal load.
pub const STUDY: Study =
    Study { number: "Fig. 7", title: "Latency and its outliers at minimal load", section: "IV", run };

const PERCENTS: [f64; 4] = [99.0, 99.9, 99.99, 99.999];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("latency", "Latency at queue depth 1, 70 % reads", Scale::log("us")));
    let count = run.sized(30_000, 2_500_000);
    // With fewer samples a percentile would rest on less than ten.
    let percents = &PERCENTS[..run.sized(2, 4)];
    let (rounds, length) = (run.sized(3, 5), run.sized([50, 100], [2_500, 4_000]));
    let (mut means, mut own) = (Vec::new(), Vec::new());
    for (drive, millis) in Drive::BOTH.into_iter().zip(length) {
        let response = Bed::new(run, drive)?.mixed(Arrivals::Closed { depth: 1 }, count)?.both().response;
        let mut real = real(run, drive)?;
        let measured = real.runs(rounds, Arrivals::Closed { depth: 1 }, Length::Time(millis * 1_000_000))?;
        let mut bars = vec![("mean".to_owned(), mean_us(&response), measured.mean_us())];
        bars.extend(
            percents
                .iter()
                .map(|p| (format!("p{p}"), percentile_us(&response, *p), measured.percentile_us(*p))),
        );
        for (bar, value, measured) in &bars {
            let finding = Finding::new(format!("{}: {bar}", drive.name()), "us").model(*value);
            let finding = finding.from(Simulated, &[drive.word(), SOFTWARE]);
            run.finding(finding.machine(measured).point("latency", drive.name(), bar.as_str()));
        }
        real.away(run, drive.name());
        means.push(bars[0].1);
        own.push(median(&bars[0].2));
    }
    let finding = Finding::new("NAND's mean over Optane's", "x").model(means[1] / means[0]).paper(&MEANS);
    let finding = finding.from(Simulated, &[Drive::Optane.word(), Drive::Nand.word(), SOFTWARE]);
    let ratio = run.finding(finding.machine(&[own[1] / own[0]]));
    run.claim(
        Claim::new("NAND incurs about 10 times the latency of Optane", "IV")
            .both(&ratio, Bound::stated(&MEANS))
            .in_models_time(),
    );
    let apart =
        |bar: &str| Quantity::named(format!("NAND: {bar}")).over(Quantity::named(format!("Optane: {bar}")));
    let claim = Claim::new("Outliers lie farther apart than means", "IV");
    run.claim(percents.iter().fold(claim, |claim, percent| {
        claim.model(apart(&format!("p{percent}")).over(apart("mean")), Bound::Above(1.0))
    }));
    run.note(ITS_OWN);
    run.note(
        "A percentile of this machine rests on ten samples beyond it, or is left out. Its outliers are the core's being taken away as much as \
         the drive's own.",
    );
    Ok(())
}
