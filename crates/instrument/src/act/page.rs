//! The certification as a page: the largest multiple by each rule (the paper's Fig.
//! 11), and the shares behind it.

use std::collections::BTreeMap;

use nearside_loadgen::record::Environment;

use super::{Largest, Report, Rule};
use crate::report::{Axis, Bar, Kind, Line, Page};

/// One drive's certification.
pub struct Certified<'a> {
    /// The drive, in words.
    pub name: &'a str,
    /// What was run, in words: unit load, length, real or simulated time.
    pub about: &'a str,
    /// Where and when; absent of what ran in simulated time.
    pub environment: Option<&'a Environment>,
    /// What each multiple showed.
    pub runs: &'a BTreeMap<u32, Report>,
    /// What each rule says of it.
    pub found: &'a [(Rule, Largest)],
}

/// The whole page.
pub fn page(certified: &Certified<'_>) -> String {
    let Certified { name, about, environment, runs, found } = certified;
    let mut page = Page::new(&format!("Aerospike's certification: {name}"), about);
    let settings = [("drive", (*name).to_owned()), ("certification", (*about).to_owned())];
    match environment {
        Some(environment) => page.measured(environment, &settings),
        None => page.simulated(&settings),
    }
    let bars: Vec<Bar> = found
        .iter()
        .map(|(rule, largest)| Bar::new(rule.name.clone(), vec![f64::from(largest.multiple)]))
        .collect();
    page.stacked("The largest multiple of the unit load that passes", "multiple", &["passes".into()], &bars);
    let strictest = found.iter().flat_map(|(rule, _)| &rule.bounds);
    let mut bounds: Vec<(u64, f64)> = strictest.copied().collect();
    bounds.sort_by_key(|b| b.0);
    bounds.dedup_by_key(|b| b.0);
    let worst = |report: &Report, ns| {
        let judged = report.tables.iter().filter(|table| table.judged);
        judged.map(|table| report.worst(&table.io, ns)).fold(0.0, f64::max)
    };
    let mut lines: Vec<Line> = bounds
        .iter()
        .map(|(ns, _)| {
            let points = runs.iter().map(|(m, report)| (f64::from(*m), worst(report, *ns)));
            Line::new(format!("above {} ms", *ns as f64 / 1e6), points.collect())
        })
        .collect();
    let far = runs.keys().next_back().map_or(1.0, |m| f64::from(*m));
    let mut limits: Vec<f64> = bounds.iter().map(|b| b.1).collect();
    limits.dedup();
    lines.extend(
        limits.iter().map(|l| Line::new(format!("{l} % may"), vec![(0.0, *l), (far, *l)]).kind(Kind::Rule)),
    );
    let caption = "Share of the reads above each bound in the worst slice, by the time of the I/O alone; a share of nothing is not drawn";
    page.lines(caption, &Axis::linear("multiple of the unit load"), &Axis::log("% of reads"), &lines);
    let over = |(ns, _): &(u64, f64)| format!("% > {} ms", *ns as f64 / 1e6);
    let mut head = vec!["multiple".to_owned(), "reads".to_owned()];
    head.extend(bounds.iter().map(over));
    head.extend(found.iter().map(|(rule, _)| rule.name.clone()));
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|(multiple, report)| {
            let judged = report.tables.iter().filter(|table| table.judged);
            let reads: u64 = judged.flat_map(|table| &table.io).map(|slice| slice.count).sum();
            let mut row = vec![multiple.to_string(), reads.to_string()];
            row.extend(bounds.iter().map(|(ns, _)| format!("{:.3}", worst(report, *ns))));
            row.extend(found.iter().map(|(rule, _)| match rule.judge(report) {
                Ok(()) => "passes".to_owned(),
                Err(failed) => failed.short(),
            }));
            row
        })
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    page.table("Every multiple that was run", &head, &rows);
    let mut head = vec!["multiple".to_owned(), "histogram".to_owned()];
    head.extend(bounds.iter().map(over));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let beside = beside(runs, &bounds);
    page.table("From the due moment, and the large operations: the worst slice", &head, &beside);
    page.finish()
}

/// What no rule looks at: the judged operations from when they were due, and the others by their I/O.
fn beside(runs: &BTreeMap<u32, Report>, bounds: &[(u64, f64)]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (multiple, report) in runs {
        for table in &report.tables {
            let (name, slices) = match table.judged {
                true => (format!("{}-from-due", table.name), &table.due),
                false => (table.name.clone(), &table.io),
            };
            let mut row = vec![multiple.to_string(), name];
            row.extend(bounds.iter().map(|(ns, _)| format!("{:.3}", report.worst(slices, *ns))));
            rows.push(row);
        }
    }
    rows
}
