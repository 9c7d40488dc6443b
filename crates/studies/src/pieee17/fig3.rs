//! Fig. 3: 99.99th percentile of response time, media excluded, against IOPS, for three interfaces:
//! SATA adapter, SAS adapter, PCIe.
//!
//! Drives without any time stand behind each interface, as many as saturate it, so that what is left is the
//! interface's. This machine has no such adapters: the real drive takes their models' time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_instrument::{Runner, Simulated, medium};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};
use nearside_media::{Medium, Request};

use super::parameters::INTERFACES as MODELS;
use super::real::{Length, Real, median};
use super::rig::percentile_us;
use super::stated::{ADAPTER, PCIE};
use crate::Relation;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

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
    let (rounds, own_count, span) = run.sized((3, 10_000, REAL / 16), (3, 110_000, REAL));
    for ((name, word), model) in INTERFACES.into_iter().zip(MODELS) {
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
        finding = finding.from(Relation::Simulated, &[model]);
        if name == "PCIe" {
            finding = finding.paper(&PCIE);
        }
        run.finding(finding);
        let alone = at(Arrivals::Closed { depth: 1 })?.both().response;
        let own_alone = real.runs(rounds, Arrivals::Closed { depth: 1 }, Length::Count(own_count / 4))?;
        let own_alone = own_alone.percentile_us(50.0);
        let finding = Finding::new(format!("{name}: median of one read at a time"), "us");
        let finding = finding.model(percentile_us(&alone, 50.0)).from(Relation::Arithmetic, &[model]);
        run.finding(finding.machine(&own_alone));
        for part in LOADS {
            let outcome = at(Arrivals::Poisson { rate: peak * part })?;
            let response = outcome.both().response;
            let tail = percentile_us(&response, 99.99);
            let measured =
                real.runs(rounds, Arrivals::Poisson { rate: own_peak * part }, Length::Count(own_count))?;
            let finding = Finding::new(tail_of(name, part), "us");
            let finding = finding
                .model(tail)
                .from(Relation::Simulated, &[model])
                .machine(&measured.percentile_us(99.99));
            let finding = finding.point("tails", name, outcome.throughput() / 1e3);
            run.finding(finding.machine_at(median(&measured.kiops())));
        }
        real.away(run, name);
    }
    adapter(run)?;
    claims(run);
    run.note("The SATA adapter's numbers are register reads and port rates (crates/media, platform.rs), not the paper's, whose figure is a picture. The host's software is in none of the model's.");
    run.note(
        "This machine has no SATA or SAS adapter: the real drive and its driver, on one thread, take the adapters' modelled time. Their own time, a \
         microsecond or so, comes on top, and the core's being taken away. What it shows is that the drive keeps a model's time, and nothing of the paper's \
         claims, which it is not asked for.",
    );
    Ok(())
}

/// A finding's name.
fn tail_of(name: &str, part: f64) -> String {
    format!("{name}: p99.99 at {:.0} % of it", part * 100.0)
}

/// What the SAS adapter adds without its drives' ports: the paper's number is of the adapter.
fn adapter(run: &mut Run<'_>) -> Result<(), Failure> {
    let alone = |word: &str| -> Result<f64, Failure> {
        let mut medium = medium(word, CAPACITY, true, 1)?;
        Ok(medium.finish(Request::read(0, 4096), 0) as f64 / 1e3)
    };
    let added = alone("sas,port-byte-ps=0/own")? - alone("pcie/own")?;
    let finding = Finding::new("the SAS adapter adds, without its drives' ports", "us").model(added);
    run.finding(finding.from(Relation::Arithmetic, &[MODELS[1], MODELS[2]]).paper(&ADAPTER));
    Ok(())
}

/// Of the models alone: what the machine's column has is the same models' time, kept in real time.
fn claims(run: &mut Run<'_>) {
    let most = |name: &str| Quantity::named(format!("{name}: most"));
    run.claim(
        Claim::new("PCIe reaches about 800,000 IOPS, more than either adapter", "III-B")
            .model(most("PCIe"), Bound::stated(&PCIE))
            .model(most("PCIe").over(most("SATA")), Bound::Above(1.0))
            .model(most("PCIe").over(most("SAS")), Bound::Above(1.0)),
    );
    let mut claim = Claim::new("PCIe has the lowest response time, at low load and at high", "III-B");
    for part in [LOADS[0], LOADS[4]] {
        for name in ["SATA", "SAS"] {
            let other = Quantity::named(tail_of(name, part));
            claim = claim.model(other.over(Quantity::named(tail_of("PCIe", part))), Bound::Above(1.0));
        }
    }
    run.claim(claim);
}
