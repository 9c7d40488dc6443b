//! Fig. 7: latency at minimal load, mean and quality of service to the 99.999th percentile,
//! NAND beside Optane.

use nearside_loadgen::Arrivals;

use super::real::{ITS_OWN, Length, median};
use super::rig::{Bed, Drive, mean_us, percentile_us, real};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

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
    let (mut all, mut machine) = (Vec::new(), Vec::new());
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
            run.finding(finding.machine(measured).point("latency", drive.name(), bar.as_str()));
        }
        real.away(run, drive.name());
        machine.push(median(&bars[0].2));
        all.push(bars);
    }
    let (ratio, own) = (all[1][0].1 / all[0][0].1, machine[1] / machine[0]);
    let finding = Finding::new("NAND's mean over Optane's", "x").model(ratio).machine(&[own]);
    run.finding(finding.paper(10.0, "IV: about"));
    run.claim(
        Claim::new("NAND incurs about 10 times the latency of Optane", "IV")
            .model(criteria::about_ten(ratio))
            .machine(criteria::about_ten(own))
            .because(format!("{ratio:.1} times; this machine: {own:.1}")),
    );
    let apart =
        all[0].iter().zip(&all[1]).skip(1).all(|((_, optane, _), (_, nand, _))| *nand > 10.0 * optane);
    run.claim(Claim::new("Outliers lie farther apart than means", "IV").model(apart).because(format!(
        "{} of NAND: {:.0} us, of Optane: {:.0} us",
        all[0][percents.len()].0,
        all[1][percents.len()].1,
        all[0][percents.len()].1
    )));
    run.note(ITS_OWN);
    run.note(
        "A percentile of this machine rests on ten samples beyond it, or is left out. Its outliers are the core's being taken away as much as \
         the drive's own.",
    );
    Ok(())
}
