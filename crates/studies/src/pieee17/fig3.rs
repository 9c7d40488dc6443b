//! Fig. 3: 99.99th percentile of response time, media excluded, against IOPS, for three interfaces: SATA adapter, SAS adapter, PCIe.
//!
//! Drives without any time stand behind each interface, as many as saturate it, so that what is left is the interface's. This machine has
//! no such adapters.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_instrument::{Runner, Simulated, medium};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};

use super::rig::{mean_us, percentile_us};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

/// See the module.
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

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let (x, y) = (Scale::linear("IOPS, thousands"), Scale::log("p99.99, us"));
    run.chart(Chart::lines("tails", "99.99th percentile, media excluded, 4 KiB reads", x, y));
    let count = run.sized(100_000, 2_000_000);
    let (mut peaks, mut lows, mut highs, mut idle) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, word) in INTERFACES {
        let stop = Arc::new(AtomicBool::new(false));
        let mut bed = Simulated::bare(name, medium(word, CAPACITY, true, 1)?, stop);
        let mut at = |arrivals| -> Result<_, Failure> {
            let mut plan = Plan::new(Workload::new(Rw::RandRead, 4096, CAPACITY), arrivals, 0);
            (plan.runtime_ns, plan.count) = (None, Some(count));
            Ok(bed.run(&plan, &mut |_| ())?.1)
        };
        let peak = at(Arrivals::Closed { depth: 128 })?.throughput();
        let mut finding = Finding::new(format!("{name}: most"), "kIOPS").model(peak / 1e3);
        if name == "PCIe" {
            finding = finding.paper(800.0, "III-B: near PCIe's maximum, about");
        }
        run.finding(finding);
        let mut tails = Vec::new();
        for part in LOADS {
            let outcome = at(Arrivals::Poisson { rate: peak * part })?;
            let response = outcome.both().response;
            let tail = percentile_us(&response, 99.99);
            let finding =
                Finding::new(format!("{name}: p99.99 at {:.0} % of it", part * 100.0), "us").model(tail);
            run.finding(finding.point("tails", name, outcome.throughput() / 1e3));
            tails.push(tail);
            if part == LOADS[0] {
                idle.push(mean_us(&response));
            }
        }
        peaks.push(peak);
        lows.push(tails[0]);
        highs.push(tails[LOADS.len() - 2]);
    }
    let added = Finding::new("SAS over PCIe at low load: the adapter and its drives' ports", "us")
        .model(idle[1] - idle[2]);
    run.finding(added.paper(25.0, "III-A: the adapter, about"));
    run.claim(
        Claim::new("PCIe reaches about 800,000 IOPS, more than either adapter", "III-B")
            .model((peaks[2] / 800e3 - 1.0).abs() < 0.05 && peaks[2] > peaks[0] && peaks[2] > peaks[1])
            .because(format!(
                "{:.0}, {:.0} and {:.0} thousand by SATA, SAS and PCIe",
                peaks[0] / 1e3,
                peaks[1] / 1e3,
                peaks[2] / 1e3
            )),
    );
    run.claim(
        Claim::new("PCIe has the lowest response time, at low load and at high", "III-B")
            .model(lows[2] < lows[0] && lows[2] < lows[1] && highs[2] < highs[0] && highs[2] < highs[1])
            .because(format!("p99.99 at 10 % of what each carries: {lows:.1?} us, at 90 %: {highs:.1?} us")),
    );
    run.note("The SATA adapter's numbers are register reads and port rates (crates/media, platform.rs), not the paper's, whose figure is a picture. The host's software is in none of them.");
    Ok(())
}
