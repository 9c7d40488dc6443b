//! Fig. 11: the largest multiples of ACT's load that three SSDs pass,
//! by the standard rule and by tightened ones. In simulated time.
//!
//! The paper ran each multiple for two hours;
//! here it is seconds, and the drives are smaller, with as many dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_instrument::act::{Load, Profile, Report, Rule, largest};
use nearside_instrument::{Runner, Simulated, medium};
use nearside_random::of_run;

use super::rig::SOFTWARE_NS;
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

/// PIEEE'17, Fig. 11: ACT's load.
pub const STUDY: Study =
    Study { number: "Fig. 11", title: "ACT's largest multiples for three SSDs", section: "V-B", run };

/// Name, model, and the paper's multiples by the standard and the tightened rule.
const DRIVES: [(&str, &str, [Option<f64>; 2]); 3] = [
    ("Optane", "optane-prototype", [Some(150.0), Some(125.0)]),
    ("NAND, PCIe", "nand-p3700", [Some(40.0), Some(8.0)]),
    ("NAND, SATA", "ahci/nand-s3700", [None, None]),
];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("multiples", "ACT: the largest multiple that passes", Scale::log("multiple")));
    let rules = [Rule::standard(), Rule::tightened(), Rule::tightened_caption()];
    let mut found = Vec::new();
    for (name, word, paper) in DRIVES {
        run.say(&format!("{name} ..."));
        let mut drive = Prepared::new(word, run.sized(2 << 30, 16 << 30), run.sized(1, 10) * 1_000_000_000)?;
        let mut multiples = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            let largest = largest(8, 400, |multiple| Ok::<_, Failure>(rule.judge(&drive.report(multiple)?)))?;
            let multiple = f64::from(largest.multiple);
            let mut finding = Finding::new(format!("{name}: {}", rule.name), "x").model(multiple);
            if let Some(value) = paper.get(i.min(1)).copied().flatten() {
                let section = ["V-B, Fig. 11", "V-B: 128 us", "V-B, Fig. 11's caption: 0.1 ms"][i];
                finding = finding.paper(value, section);
            }
            run.finding(finding.point("multiples", &rule.name, name));
            multiples.push(multiple);
        }
        found.push(multiples);
    }
    let [standard, tightened] = [0, 1].map(|rule| found[0][rule] / found[1][rule].max(1.0));
    run.finding(Finding::new("Optane over NAND: standard", "x").model(standard).paper(3.75, "V-B"));
    run.finding(Finding::new("Optane over NAND: tightened", "x").model(tightened).paper(15.0, "V-B"));
    run.claim(
        Claim::new("Optane passes several times NAND's multiple, and far more by the tightened rule", "V-B")
            .model(standard > 1.5 && tightened > 1.5 * standard)
            .because(format!("{standard:.1} and {tightened:.1} times (paper: 3.75 and 15)")),
    );
    run.claim(
        Claim::new("The tightened rule costs NAND most of its multiple, Optane little", "V-B")
            .model(found[0][1] > 0.6 * found[0][0] && found[1][1] < 0.5 * found[1][0])
            .because(format!(
                "Optane {:.0}x and {:.0}x, NAND {:.0}x and {:.0}x",
                found[0][0], found[0][1], found[1][0], found[1][1]
            )),
    );
    run.note("The Optane prototype's model has one number fitted to the standard rule's 150 x (crates/media, xpoint.rs). The SATA drive's multiples are not in the paper's text.");
    Ok(())
}

/// A drive that was prepared as ACT prepares it, and what each multiple gave.
struct Prepared {
    runner: Simulated,
    capacity: u64,
    runtime_ns: u64,
    reports: BTreeMap<u32, Report>,
}

impl Prepared {
    fn new(word: &str, capacity: u64, runtime_ns: u64) -> Result<Prepared, Failure> {
        let medium = medium(word, capacity, true, 1)?;
        let bytes = Load::times(Profile::Pieee17, 1).large_bytes;
        let stop = Arc::new(AtomicBool::new(false));
        let mut runner = Simulated::drive(word, medium, capacity, bytes, SOFTWARE_NS, stop)?;
        runner.prepare(capacity, bytes, 1)?;
        Ok(Prepared { runner, capacity, runtime_ns, reports: BTreeMap::new() })
    }

    fn report(&mut self, multiple: u32) -> Result<Report, Failure> {
        if let Some(report) = self.reports.get(&multiple) {
            return Ok(report.clone());
        }
        let load = Load::times(Profile::Pieee17, multiple);
        let seed = of_run(1, Simulated::PREPARING + self.reports.len() as u64);
        let plan = load.plan(self.capacity, 512, self.runtime_ns, self.runtime_ns, seed)?;
        let (_, outcome) = self.runner.run(&plan, &mut |_| ())?;
        let report = Report::of(&outcome, load.max_lag_ns);
        self.reports.insert(multiple, report.clone());
        Ok(report)
    }
}
