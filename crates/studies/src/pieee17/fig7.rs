//! Fig. 7: latency at minimal load, mean and quality of service to the 99.999th percentile, NAND beside Optane.

use nearside_loadgen::Arrivals;

use super::rig::{Bed, Drive, mean_us, percentile_us};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

/// See the module.
pub const STUDY: Study =
    Study { number: "Fig. 7", title: "Latency and its outliers at minimal load", section: "IV", run };

const PERCENTS: [f64; 4] = [99.0, 99.9, 99.99, 99.999];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("latency", "Latency at queue depth 1, 70 % reads", Scale::log("us")));
    let count = run.sized(30_000, 2_500_000);
    // With fewer samples a percentile would rest on less than ten.
    let percents = &PERCENTS[..run.sized(2, 4)];
    let mut all = Vec::new();
    for drive in Drive::BOTH {
        let response = Bed::new(run, drive)?.mixed(Arrivals::Closed { depth: 1 }, count)?.both().response;
        let mut bars = vec![("mean".to_owned(), mean_us(&response))];
        bars.extend(percents.iter().map(|p| (format!("p{p}"), percentile_us(&response, *p))));
        for (bar, value) in &bars {
            let finding = Finding::new(format!("{}: {bar}", drive.name()), "us").model(*value);
            run.finding(finding.point("latency", drive.name(), bar.as_str()));
        }
        all.push(bars);
    }
    let ratio = all[1][0].1 / all[0][0].1;
    run.finding(Finding::new("NAND's mean over Optane's", "x").model(ratio).paper(10.0, "IV: about"));
    run.claim(
        Claim::new("NAND incurs about 10 times the latency of Optane", "IV")
            .model((5.0..=15.0).contains(&ratio))
            .because(format!("{ratio:.1} times")),
    );
    let apart = all[0].iter().zip(&all[1]).skip(1).all(|((_, optane), (_, nand))| *nand > 10.0 * optane);
    run.claim(Claim::new("Outliers lie farther apart than means", "IV").model(apart).because(format!(
        "{} of NAND: {:.0} us, of Optane: {:.0} us",
        all[0][percents.len()].0,
        all[1][percents.len()].1,
        all[0][percents.len()].1
    )));
    Ok(())
}
