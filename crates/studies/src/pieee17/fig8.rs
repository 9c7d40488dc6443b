//! Fig. 8: response time against load, mean, 99th and 99.999th percentile, NAND beside Optane: the paper's
//! closed loops of Fig. 5, and arrivals that wait for nobody.

use nearside_loadgen::Arrivals;

use super::fit::{self, Half};
use super::parameters::SOFTWARE;
use super::real::{FAR, ITS_OWN, Length, median};
use super::rig::{Bed, Drive, mean_us, percentile_us, real};
use super::stated::{NAND_FAR, NAND_P99, OPTANE_FAR};
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

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
    for (drive, depths) in Drive::BOTH.into_iter().zip(depths) {
        let mut bed = Bed::new(run, drive)?;
        let mut real = real(run, drive)?;
        let (mut peak, mut own_peak) = (0.0, 0.0);
        let numbers = [drive.word(), SOFTWARE];
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
            let mut of = vec![
                ("mean".to_owned(), Some(mean_us(&response)), measured.mean_us()),
                ("p99".to_owned(), Some(percentile_us(&response, 99.0)), measured.percentile_us(99.0)),
                (format!("p{far}"), Some(percentile_us(&response, far)), measured.percentile_us(far)),
            ];
            if far < FAR {
                // What the paper's text is of has no value here, and no verdict.
                of.push((format!("p{FAR}"), None, Vec::new()));
            }
            for (what, value, measured) in of {
                let mut finding =
                    Finding::new(name(drive, &what, if last { None } else { Some(depth) }), "us");
                finding = Finding { model: value, ..finding }.from(Simulated, &numbers).machine(&measured);
                finding = match (drive, &*what) {
                    (Drive::Optane, "p99.999") if last => finding.paper(&OPTANE_FAR),
                    (Drive::Nand, "p99") if last => finding.paper(&NAND_P99),
                    (Drive::Nand, "p99.999") if last => finding.paper(&NAND_FAR),
                    _ => finding,
                };
                let finding = finding.point("load", &format!("{}, {what}", drive.name()), iops / 1e3);
                run.finding(finding.machine_at(own_kiops));
            }
        }
        let open = bed.mixed(Arrivals::Poisson { rate: 0.9 * peak }, count)?.both().response;
        let name = format!("{}: p{far}, Poisson arrivals at 90 % of the most", drive.name());
        let arrivals = Arrivals::Poisson { rate: 0.9 * own_peak };
        let own_open = real.runs(rounds, arrivals, Length::Time(long * 1_000_000))?.percentile_us(far);
        let finding = Finding::new(name, "us").model(percentile_us(&open, far)).from(Simulated, &numbers);
        run.finding(finding.machine(&own_open));
        real.away(run, drive.name());
    }
    claims(run);
    fit::beside(run, Half::Iv)?;
    run.note(ITS_OWN);
    run.note(
        "A percentile of this machine rests on ten samples beyond it, or is left out. Its outliers are the core's being taken away as much as \
         the drive's own. Poisson arrivals are at 90 % of its own most.",
    );
    Ok(())
}

/// A finding's: at a queue depth, or at the last of its drive's.
fn name(drive: Drive, what: &str, depth: Option<u32>) -> String {
    let at = depth.map_or("the highest load".to_owned(), |depth| format!("queue depth {depth}"));
    format!("{}: {what} at {at}", drive.name())
}

fn claims(run: &mut Run<'_>) {
    let most = |drive, what| Quantity::named(name(drive, what, None));
    let least = |drive| Quantity::named(name(drive, "mean", Some(1)));
    run.claim(
        Claim::new("Under heavy load Optane's 99.999th percentile stays under 100 us", "IV")
            .model(most(Drive::Optane, "p99.999"), Bound::stated(&OPTANE_FAR)),
    );
    run.claim(
        Claim::new("NAND's 99th percentile exceeds 1 ms", "IV")
            .model(most(Drive::Nand, "p99"), Bound::stated(&NAND_P99)),
    );
    run.claim(
        Claim::new("and its 99.999th approaches 10 ms", "IV")
            .model(most(Drive::Nand, "p99.999"), Bound::stated(&NAND_FAR)),
    );
    let rise = |drive| most(drive, "mean").over(least(drive));
    run.claim(
        Claim::new("NAND's response time rises with the load, Optane's stays low", "IV")
            .both(rise(Drive::Nand).over(rise(Drive::Optane)), Bound::Above(1.0))
            .both(most(Drive::Optane, "mean").over(least(Drive::Nand)), Bound::Below(1.0))
            .in_models_time(),
    );
}
