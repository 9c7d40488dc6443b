//! The page of a record that is committed, as a browser shows it: the claims first, the paper's numbers as
//! marks, misses in red.

use std::path::Path;

use nearside_conformance::browser::shows;
use nearside_studies::claim::Column;
use nearside_studies::{Paper, Record, page};

#[test]
fn a_browser_shows_a_committed_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("studies/record/amd-epyc-2c/2026-11-23-study-fast12.jsonl");
    let record = Record::from_lines(&std::fs::read_to_string(path).unwrap()).unwrap();
    let html = page::page(Paper::Fast12.title(), &record);
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("class=place") < at("Every claim, and whether it holds"));
    assert!(at("Every claim, and whether it holds") < at("<figure>"), "claims come before pictures");
    let claims = || record.heads().flat_map(|head| record.claims(&head.number));
    let misses = claims().flat_map(|claim| Column::BOTH.map(|column| record.verdict(claim, column)));
    let misses = misses.filter(|verdict| *verdict == Some(false)).count();
    assert_eq!(html.matches("<td class=miss").count(), misses, "each miss in red, once");
    let charts: usize = record.heads().map(|head| record.charts(&head.number).count()).sum();
    let folder = tempfile::tempdir().unwrap();
    if let Some(shown) = shows("studies::a_browser_shows_a_committed_record", &html, folder.path()) {
        assert!(shown.pictures >= charts, "{} pictures of {charts}", shown.pictures);
    }
}
