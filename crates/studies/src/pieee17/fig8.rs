//! Fig. 8: response time against load, mean, 99th and 99.999th percentile, NAND beside Optane: the paper's closed loops of Fig. 5, and
//! arrivals that wait for nobody.

use nearside_loadgen::Arrivals;

use super::rig::{Bed, Drive, mean_us, percentile_us};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

/// See the module.
pub const STUDY: Study = Study { number: "Fig. 8", title: "Response time against load", section: "IV", run };

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let (x, y) = (Scale::linear("IOPS, thousands"), Scale::log("us"));
    run.chart(Chart::lines("load", "Response time against load, 70 % reads", x, y));
    let count = run.sized(40_000, 1_200_000);
    // The farthest percentile that more than ten samples lie beyond.
    let far = run.sized(99.9, 99.999);
    let depths: [&[u32]; 2] = run.sized([&[1, 6], &[1, 128]], [&[1, 2, 4, 6, 8], &[1, 8, 32, 64, 128]]);
    let mut tails = Vec::new();
    for (drive, depths) in Drive::BOTH.into_iter().zip(depths) {
        let mut bed = Bed::new(run, drive)?;
        let mut peak = 0.0;
        let mut line = Vec::new();
        for &depth in depths {
            let outcome = bed.mixed(Arrivals::Closed { depth }, count)?;
            let (response, iops) = (outcome.both().response, outcome.throughput());
            peak = f64::max(peak, iops);
            let of = [
                ("mean", mean_us(&response)),
                ("p99", percentile_us(&response, 99.0)),
                ("far", percentile_us(&response, far)),
            ];
            for (what, value) in of {
                let what = if what == "far" { format!("p{far}") } else { what.to_owned() };
                let name = format!("{}: {what} at queue depth {depth}", drive.name());
                let mut finding = Finding::new(name, "us").model(value);
                let last = depths.last() == Some(&depth);
                finding = match (drive, &*what) {
                    (Drive::Optane, "p99.999") if last => finding.paper(100.0, "IV: under"),
                    (Drive::Nand, "p99") if last => finding.paper(1_000.0, "IV: exceeds"),
                    (Drive::Nand, "p99.999") if last => finding.paper(10_000.0, "IV: approaches"),
                    _ => finding,
                };
                run.finding(finding.point("load", &format!("{}, {what}", drive.name()), iops / 1e3));
            }
            line.push(of.map(|(_, value)| value));
        }
        let open = bed.mixed(Arrivals::Poisson { rate: 0.9 * peak }, count)?.both().response;
        let name = format!("{}: p{far}, Poisson arrivals at 90 % of the most", drive.name());
        run.finding(Finding::new(name, "us").model(percentile_us(&open, far)));
        tails.push(line);
    }
    let [optane, nand] = [&tails[0], &tails[1]].map(|line| line[line.len() - 1]);
    run.claim(
        Claim::new("Under heavy load Optane's 99.999th percentile stays under 100 us", "IV")
            .model(optane[2] < 100.0)
            .because(format!("p{far}: {:.0} us", optane[2])),
    );
    run.claim(
        Claim::new("NAND's 99th percentile exceeds 1 ms", "IV")
            .model(nand[1] > 1_000.0)
            .because(format!("{:.0} us", nand[1])),
    );
    let rises = |line: &[[f64; 3]]| line[line.len() - 1][0] / line[0][0];
    run.claim(
        Claim::new("NAND's response time rises with the load, Optane's stays low", "IV")
            .model(rises(&tails[1]) > rises(&tails[0]))
            .because(format!(
                "from the lowest load to the highest the mean rises {:.1} times with Optane, {:.1} with NAND",
                rises(&tails[0]),
                rises(&tails[1])
            )),
    );
    Ok(())
}
