//! Fig. 5: IOPS at queue depths, NAND beside Optane, 4 KiB at random with 70 % reads.

use nearside_loadgen::Arrivals;

use super::real::{ITS_OWN, Length, median};
use super::rig::{Bed, Drive, real};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

/// PIEEE'17, Fig. 5: IOPS at queue depths.
pub const STUDY: Study =
    Study { number: "Fig. 5", title: "IOPS at queue depths, NAND beside Optane", section: "IV", run };

/// Thousands of operations per second by queue depth.
use crate::criteria::Line;

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
    let (mut found, mut machine) = (Vec::new(), Vec::new());
    for drive in Drive::BOTH {
        let mut bed = Bed::new(run, drive)?;
        let mut real = real(run, drive)?;
        let (mut line, mut own) = (Vec::new(), Vec::new());
        for &depth in depths {
            let iops = bed.mixed(Arrivals::Closed { depth }, count)?.throughput() / 1e3;
            let measured = real.runs(rounds, Arrivals::Closed { depth }, length)?.kiops();
            let name = format!("{}, queue depth {depth}", drive.name());
            let mut finding = Finding::new(name, "kIOPS").model(iops).machine(&measured);
            if (drive, depth) == (Drive::Optane, 4) || (drive, depth) == (Drive::Nand, 128) {
                finding = finding.paper(300.0, "IV: about");
            }
            run.finding(finding.point("iops", drive.name(), f64::from(depth)));
            line.push((depth, iops));
            own.push((depth, median(&measured)));
        }
        real.away(run, drive.name());
        found.push(line);
        machine.push(own);
    }
    let at = |line: &Line, depth| line.iter().find(|(d, _)| *d == depth).map_or(0.0, |(_, iops)| *iops);
    let most = |line: &Line| line.iter().map(|(_, iops)| *iops).fold(0.0, f64::max);
    let both = [[&found[0], &found[1]], [&machine[0], &machine[1]]];
    let holds = |claim: Claim, holds: &dyn Fn(&Line, &Line) -> bool| {
        let [model, machine] = both.map(|[optane, nand]| holds(optane, nand));
        claim.model(model).machine(machine)
    };
    let said = |of: &dyn Fn(&Line, &Line) -> String| {
        let [model, machine] = both.map(|[optane, nand]| of(optane, nand));
        format!("{model}; this machine: {machine}")
    };
    let claim = Claim::new("Optane reaches at a queue depth of 4 what NAND reaches at 128", "IV");
    run.claim(
        holds(claim, &criteria::four_is_as_good)
            .because(said(&|optane, nand| format!("{:.0} and {:.0} thousand", at(optane, 4), at(nand, 128)))),
    );
    let claim = Claim::new("Optane is at its most at a queue depth of only 8", "IV");
    run.claim(
        holds(claim, &|optane, _| criteria::most_at_eight(optane))
            .because(said(&|optane, _| format!("{:.0} of {:.0} thousand", at(optane, 8), most(optane)))),
    );
    let claim = Claim::new("NAND needs high queue depths", "IV");
    run.claim(
        holds(claim, &|_, nand| criteria::needs_depth(nand)).because(said(&|_, nand| {
            format!("{:.0} thousand at 8, {:.0} at 128", at(nand, 8), at(nand, 128))
        })),
    );
    run.note(ITS_OWN);
    Ok(())
}
