//! Fig. 3: 99.99th percentile of response time, media excluded, against IOPS, for three interfaces:
//! SATA adapter, SAS adapter, PCIe.
//!
//! Drives without any time stand behind each interface, as many as saturate it, so that what is left is the
//! interface's. This machine has no such adapters: the real drive takes their models' time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_instrument::{Runner, Simulated, medium};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};

use super::real::{Length, Real, median};
use super::rig::percentile_us;
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

/// PIEEE'17, Fig. 3: response time without media.
pub const STUDY: Study = Study {
    number: "Fig. 3",
    title: "99.99th percentile response time, media excluded, by interface",
    section: "III-B",
    run,
};

/// Name, and the medium's word.
const INTERFACES: [(&str, &str); 3] =
    [("SATA", "ahci,drives=12/own"), ("SAS", "sas,drives=12/own"), ("PCIe", "pcie/own")];
/// Parts of what an interface carries.
const LOADS: [f64; 6] = [0.1, 0.3, 0.5, 0.7, 0.9, 0.98];
const CAPACITY: u64 = 16 << 30;
/// Bytes of the drive in real time.
const REAL: u64 = 1 << 30;

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let (x, y) = (Scale::linear("IOPS, thousands"), Scale::log("p99.99, us"));
    run.chart(Chart::lines("tails", "99.99th percentile, media excluded, 4 KiB reads", x, y));
    let count = run.sized(100_000, 2_000_000);
    let mut found = Found::default();
    let (rounds, own_count, span) = run.sized((3, 10_000, REAL / 16), (3, 110_000, REAL));
    for (name, word) in INTERFACES {
        let stop = Arc::new(AtomicBool::new(false));
        let mut bed = Simulated::bare(name, medium(word, CAPACITY, true, 1)?, stop);
        let mut at = |arrivals| -> Result<_, Failure> {
            let mut plan = Plan::new(Workload::new(Rw::RandRead, 4096, CAPACITY), arrivals, 0);
            (plan.runtime_ns, plan.count) = (None, Some(count));
            Ok(bed.run(&plan, &mut |_| ())?.1)
        };
        let peak = at(Arrivals::Closed { depth: 128 })?.throughput();
        run.say(&format!("{name} in real time ..."));
        let mut real = Real::new(medium(word, REAL, true, 1)?, REAL, span)?.reads();
        let most = real.runs(rounds, Arrivals::Closed { depth: 128 }, Length::Count(3 * own_count))?.kiops();
        let own_peak = median(&most) * 1e3;
        let mut finding = Finding::new(format!("{name}: most"), "kIOPS").model(peak / 1e3).machine(&most);
        if name == "PCIe" {
            finding = finding.paper(800.0, "III-B: near PCIe's maximum, about");
        }
        run.finding(finding);
        let alone = at(Arrivals::Closed { depth: 1 })?.both().response;
        let own_alone = real.runs(rounds, Arrivals::Closed { depth: 1 }, Length::Count(own_count / 4))?;
        let own_alone = own_alone.percentile_us(50.0);
        found.idle.push((percentile_us(&alone, 50.0), median(&own_alone)));
        let finding = Finding::new(format!("{name}: median of one read at a time"), "us");
        run.finding(finding.model(percentile_us(&alone, 50.0)).machine(&own_alone));
        let mut tails = Vec::new();
        for part in LOADS {
            let outcome = at(Arrivals::Poisson { rate: peak * part })?;
            let response = outcome.both().response;
            let tail = percentile_us(&response, 99.99);
            let measured =
                real.runs(rounds, Arrivals::Poisson { rate: own_peak * part }, Length::Count(own_count))?;
            let finding = Finding::new(format!("{name}: p99.99 at {:.0} % of it", part * 100.0), "us");
            let finding = finding.model(tail).machine(&measured.percentile_us(99.99));
            let finding = finding.point("tails", name, outcome.throughput() / 1e3);
            run.finding(finding.machine_at(median(&measured.kiops())));
            tails.push(tail);
        }
        real.away(run, name);
        found.own.push(own_peak);
        found.peaks.push(peak);
        found.lows.push(tails[0]);
        found.highs.push(tails[LOADS.len() - 2]);
    }
    claims(run, found);
    run.note("The SATA adapter's numbers are register reads and port rates (crates/media, platform.rs), not the paper's, whose figure is a picture. The host's software is in none of the model's.");
    run.note(
        "This machine has no SATA or SAS adapter: the real drive and its driver, on one thread, take the adapters' modelled time. Their own time, a \
         microsecond or so, comes on top, and the core's being taken away. Its claim is by the median of one read at a time, which that does not decide.",
    );
    Ok(())
}

/// By interface.
#[derive(Default)]
struct Found {
    /// The model's most, and this machine's, in operations a second.
    peaks: Vec<f64>,
    own: Vec<f64>,
    /// The model's tails at low load and at high, in microseconds.
    lows: Vec<f64>,
    highs: Vec<f64>,
    /// The model's median of one read at a time, and this machine's, in microseconds.
    idle: Vec<(f64, f64)>,
}

fn claims(run: &mut Run<'_>, Found { peaks, own, lows, highs, idle }: Found) {
    let added = Finding::new("SAS over PCIe, one read at a time: the adapter and its drives' ports", "us")
        .model(idle[1].0 - idle[2].0)
        .machine(&[idle[1].1 - idle[2].1]);
    run.finding(added.paper(25.0, "III-A: the adapter, about"));
    run.claim(
        Claim::new("PCIe reaches about 800,000 IOPS, more than either adapter", "III-B")
            .model(criteria::pcie_reaches(&peaks))
            .machine(criteria::pcie_reaches(&own))
            .because(format!(
                "{:.0}, {:.0} and {:.0} thousand by SATA, SAS and PCIe; this machine: {:.0}, {:.0} and {:.0}",
                peaks[0] / 1e3,
                peaks[1] / 1e3,
                peaks[2] / 1e3,
                own[0] / 1e3,
                own[1] / 1e3,
                own[2] / 1e3
            )),
    );
    run.claim(
        Claim::new("PCIe has the lowest response time, at low load and at high", "III-B")
            .model(criteria::last_is_least(&lows) && criteria::last_is_least(&highs))
            .machine(criteria::last_is_least(&[idle[0].1, idle[1].1, idle[2].1]))
            .because(format!(
                "p99.99 at 10 % of what each carries: {lows:.1?} us, at 90 %: {highs:.1?} us; this machine: medians of {:.1}, {:.1} and {:.1} us, one read at a time",
                idle[0].1, idle[1].1, idle[2].1
            )),
    );
}
