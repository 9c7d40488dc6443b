//! A study's small form, as a test runs it.

use std::process::Command;

use nearside_studies::{Paper, Record, Setting, Size, page, table};

/// Runs it; panics where it stops. What it finds is read back from the record's lines, as the page reads it,
/// and the page is looked at.
pub fn small(paper: Paper, number: &str) -> Record {
    let study = paper.study(number).unwrap_or_else(|| panic!("{} has no {number}", paper.name()));
    let setting = Setting {
        size: Size::Small,
        helper: &|| Command::new(env!("CARGO_BIN_EXE_nearside-second")),
        say: &|text| eprintln!("{text}"),
    };
    let record = nearside_studies::run(&[study], &setting, 0).unwrap();
    let lines = record.to_lines().unwrap();
    let record = Record::from_lines(&lines).unwrap();
    // A test that fails shows it.
    eprintln!("{}", table::table(&record));
    let figures = nearside_loadgen::record::Record::from_lines(&lines).unwrap().figures;
    assert_eq!(figures.len(), record.findings(study.number).count(), "a record of figures like any other");
    let page = page::page(paper.title(), &record);
    // Everything has its row, below a head for findings and one for claims.
    let rows = |page: &str| page.matches("<tr>").count();
    let empty = rows(&page::page(paper.title(), &Record::new(record.environment.clone())));
    let told = [record.findings(study.number).count(), record.claims(study.number).count()];
    let expected: usize = told.iter().filter(|n| **n > 0).map(|n| n + 1).sum();
    assert_eq!(rows(&page) - empty, expected, "{told:?}");
    shows(&format!("{}-{}", paper.name(), nearside_studies::plain(number)), &page);
    record
}

/// This machine's value: there is one, and it is a number above zero. Which one is not a test's business.
#[allow(dead_code, reason = "not by every paper's tests")]
pub fn measured(record: &Record, name: &str) -> f64 {
    let finding = record.get(name).unwrap_or_else(|| panic!("no finding {name:?}"));
    let value = finding.measured().unwrap_or_else(|| panic!("{name:?} has no value of this machine"));
    assert!(value.is_finite() && value > 0.0, "{name}: {value}");
    value
}

fn shows(name: &str, html: &str) {
    assert!(!html.contains("could not be drawn") && !html.contains("NaN"), "{name}");
    if let Some(keep) = std::env::var_os("NEARSIDE_KEEP_PAGES") {
        std::fs::write(std::path::Path::new(&keep).join(format!("{name}.html")), html).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    nearside_conformance::browser::shows(&format!("studies::{name}"), html, folder.path());
}

/// All claims hold on the model; those that do not are asserted one by one where they are known.
#[allow(dead_code, reason = "not by every paper's tests")]
pub fn holds_on_the_model(record: &Record, number: &str, except: &[&str]) {
    for claim in record.claims(number).filter(|c| c.model.is_some()) {
        let expected = !except.contains(&&*claim.text);
        assert_eq!(claim.model, Some(expected), "{}: {}", claim.text, claim.because);
    }
}
