//! Fig. 5: IOPS at queue depths, NAND beside Optane, 4 KiB at random with 70 % reads. In simulated time.

use nearside_loadgen::Arrivals;

use super::rig::{Bed, Drive};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

/// See the module.
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
    let mut found: Vec<Vec<(u32, f64)>> = Vec::new();
    for drive in Drive::BOTH {
        let mut bed = Bed::new(run, drive)?;
        let mut line = Vec::new();
        for &depth in depths {
            let iops = bed.mixed(Arrivals::Closed { depth }, count)?.throughput() / 1e3;
            let mut finding =
                Finding::new(format!("{}, queue depth {depth}", drive.name()), "kIOPS").model(iops);
            if (drive, depth) == (Drive::Optane, 4) || (drive, depth) == (Drive::Nand, 128) {
                finding = finding.paper(300.0, "IV: about");
            }
            run.finding(finding.point("iops", drive.name(), f64::from(depth)));
            line.push((depth, iops));
        }
        found.push(line);
    }
    let at =
        |line: &[(u32, f64)], depth| line.iter().find(|(d, _)| *d == depth).map_or(0.0, |(_, iops)| *iops);
    let most = |line: &[(u32, f64)]| line.iter().map(|(_, iops)| *iops).fold(0.0, f64::max);
    let (optane, nand) = (&found[0], &found[1]);
    run.claim(
        Claim::new("Optane reaches at a queue depth of 4 what NAND reaches at 128", "IV")
            .model(at(optane, 4) > 0.9 * at(nand, 128))
            .because(format!("{:.0} and {:.0} thousand", at(optane, 4), at(nand, 128))),
    );
    run.claim(
        Claim::new("Optane is at its most at a queue depth of only 8", "IV")
            .model(at(optane, 8) > 0.95 * most(optane))
            .because(format!("{:.0} of {:.0} thousand", at(optane, 8), most(optane))),
    );
    run.claim(
        Claim::new("NAND needs high queue depths", "IV")
            .model(at(nand, 8) < 0.5 * at(nand, 128))
            .because(format!("{:.0} thousand at 8, {:.0} at 128", at(nand, 8), at(nand, 128))),
    );
    Ok(())
}
