//! Fig. 8: response time against load, mean, 99th and 99.999th percentile, NAND beside Optane: the paper's
//! closed loops of Fig. 5, and arrivals that wait for nobody.

use nearside_loadgen::Arrivals;

use super::real::{ITS_OWN, Length, median};
use super::rig::{Bed, Drive, mean_us, percentile_us, real};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

/// PIEEE'17, Fig. 8: response time against load.
pub const STUDY: Study = Study { number: "Fig. 8", title: "Response time against load", section: "IV", run };

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let (x, y) = (Scale::linear("IOPS, thousands"), Scale::log("us"));
    run.chart(Chart::lines("load", "Response time against load, 70 % reads", x, y));
    let count = run.sized(40_000, 1_200_000);
    // The farthest percentile that more than ten samples lie beyond.
    let far = run.sized(99.9, 99.999);
    let depths: [&[u32]; 2] = run.sized([&[1, 6], &[1, 128]], [&[1, 2, 4, 6, 8], &[1, 8, 32, 64, 128]]);
    // The last load long enough for the farthest percentile.
    let (rounds, short, long) = run.sized((3, 50, 50), (4, 300, 1_100));
    let (mut tails, mut machine) = (Vec::new(), Vec::new());
    for (drive, depths) in Drive::BOTH.into_iter().zip(depths) {
        let mut bed = Bed::new(run, drive)?;
        let mut real = real(run, drive)?;
        let (mut peak, mut own_peak) = (0.0, 0.0);
        let (mut line, mut own) = (Vec::new(), Vec::new());
        for &depth in depths {
            let last = depths.last() == Some(&depth);
            let outcome = bed.mixed(Arrivals::Closed { depth }, count)?;
            let millis = if last { long } else { short };
            let length = Length::Time(millis * 1_000_000);
            let measured = real.runs(rounds, Arrivals::Closed { depth }, length)?;
            let own_kiops = median(&measured.kiops());
            let (response, iops) = (outcome.both().response, outcome.throughput());
            peak = f64::max(peak, iops);
            own_peak = f64::max(own_peak, own_kiops * 1e3);
            let of = [
                ("mean", mean_us(&response), measured.mean_us()),
                ("p99", percentile_us(&response, 99.0), measured.percentile_us(99.0)),
                ("far", percentile_us(&response, far), measured.percentile_us(far)),
            ];
            for (what, value, measured) in &of {
                let what = if *what == "far" { format!("p{far}") } else { (*what).to_owned() };
                let name = format!("{}: {what} at queue depth {depth}", drive.name());
                let mut finding = Finding::new(name, "us").model(*value).machine(measured);
                finding = match (drive, &*what) {
                    (Drive::Optane, "p99.999") if last => finding.paper(100.0, "IV: under"),
                    (Drive::Nand, "p99") if last => finding.paper(1_000.0, "IV: exceeds"),
                    (Drive::Nand, "p99.999") if last => finding.paper(10_000.0, "IV: approaches"),
                    _ => finding,
                };
                let finding = finding.point("load", &format!("{}, {what}", drive.name()), iops / 1e3);
                run.finding(finding.machine_at(own_kiops));
            }
            own.push(median(&of[0].2));
            line.push(of.map(|(_, value, _)| value));
        }
        let open = bed.mixed(Arrivals::Poisson { rate: 0.9 * peak }, count)?.both().response;
        let name = format!("{}: p{far}, Poisson arrivals at 90 % of the most", drive.name());
        let arrivals = Arrivals::Poisson { rate: 0.9 * own_peak };
        let own_open = real.runs(rounds, arrivals, Length::Time(long * 1_000_000))?.percentile_us(far);
        run.finding(Finding::new(name, "us").model(percentile_us(&open, far)).machine(&own_open));
        real.away(run, drive.name());
        tails.push(line);
        machine.push(own);
    }
    claims(run, far, &tails, &machine);
    run.note(ITS_OWN);
    run.note(
        "A percentile of this machine rests on ten samples beyond it, or is left out. Its outliers are the core's being taken away as much as \
         the drive's own. Poisson arrivals are at 90 % of its own most.",
    );
    Ok(())
}

/// By drive and queue depth: the model's mean, 99th and farthest percentile, and this machine's mean.
fn claims(run: &mut Run<'_>, far: f64, tails: &[Vec<[f64; 3]>], machine: &[Vec<f64>]) {
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
    let rises = |line: &[f64]| line[line.len() - 1] / line[0];
    let means = |line: &[[f64; 3]]| line.iter().map(|[mean, ..]| *mean).collect::<Vec<_>>();
    let [model, own] = [[means(&tails[0]), means(&tails[1])], [machine[0].clone(), machine[1].clone()]]
        .map(|both| both.map(|line| rises(&line)));
    run.claim(
        Claim::new("NAND's response time rises with the load, Optane's stays low", "IV")
            .model(criteria::rise(&model))
            .machine(criteria::rise(&own))
            .because(format!(
                "from the lowest load to the highest the mean rises {:.1} times with Optane, {:.1} with NAND; this machine: {:.1} and {:.1}",
                model[0], model[1], own[0], own[1]
            )),
    );
}
