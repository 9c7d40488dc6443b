//! The page as Chromium shows it.

use std::collections::BTreeMap;

use nearside_act::{Certified, Largest, Report, Rule, Slice, page};
use nearside_conformance::browser::{Shown, shows};

#[test]
fn the_page_shows_a_search() {
    let mut runs = BTreeMap::new();
    for multiple in [1, 2, 4, 8, 16, 32, 40, 48, 64] {
        let above = [60, 50, 12, 3, 1].map(|n| n * u64::from(multiple * multiple) / 16).to_vec();
        let report = Report {
            bounds: vec![100_000, 128_000, 1_000_000, 8_000_000, 64_000_000],
            slice_ns: 1_000_000_000,
            slices: vec![Slice { reads: 1000 * u64::from(multiple), above }],
            lag_ns: 0,
            max_lag_ns: 10,
            unsent: 0,
            error: None,
        };
        runs.insert(multiple, report);
    }
    let found: Vec<(Rule, Largest)> = [Rule::standard(), Rule::tightened(), Rule::tightened_caption()]
        .into_iter()
        .map(|rule| {
            let found = nearside_act::largest::<()>(1, 64, |m| {
                let nearest = runs.range(m..).next().map(|(_, report)| report);
                Ok(nearest.map_or(Ok(()), |report| rule.judge(report)))
            });
            (rule, found.unwrap())
        })
        .collect();
    assert!(found[0].1.multiple > found[2].1.multiple);
    let html =
        page(&Certified { name: "model:nand-p3700:16GiB", about: "a test", runs: &runs, found: &found });
    let folder = tempfile::tempdir().unwrap();
    if let Some(shown) = shows("act::the_page_shows_a_search", &html, folder.path()) {
        assert_eq!(shown, Shown { pictures: 2, tables: 1 });
    }
}
