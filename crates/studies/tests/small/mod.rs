//! A study's small form, as a test runs it.

use std::path::Path;
use std::process::Command;

use nearside_studies::claim::{Check, Figures};
use nearside_studies::record::Row;
use nearside_studies::source::kind;
use nearside_studies::{Bound, Claim, Column, Finding, Paper, Quantity, Record, Setting, Size, page, table};

/// Runs it; panics where it stops. What it finds is read back from the record's lines, as the page reads it,
/// and the page is looked at. Of an application's study this machine's column is left out: those are run by
/// crates/cli/tests/root_apps.rs, which has a program that attaches drives.
#[allow(dead_code, reason = "who has that program says so")]
pub fn small(paper: Paper, number: &str) -> Record {
    let helper = option_env!("CARGO_BIN_EXE_nearside-second").unwrap_or_default();
    small_with(paper, number, &|| Command::new(helper), None)
}

/// The same, with the program for the second process, and the one that attaches drives.
pub fn small_with(
    paper: Paper,
    number: &str,
    helper: &dyn Fn() -> Command,
    program: Option<&Path>,
) -> Record {
    let study = paper.study(number).unwrap_or_else(|| panic!("{} has no {number}", paper.name()));
    let setting = Setting { size: Size::Small, helper, program, say: &|text| eprintln!("{text}") };
    let record = nearside_studies::run(&[study], &setting, 0).unwrap();
    let lines = record.to_lines().unwrap();
    let record = Record::from_lines(&lines).unwrap();
    // A test that fails shows it.
    eprintln!("{}", table::table(&record));
    let figures = nearside_loadgen::record::Record::from_lines(&lines).unwrap().figures;
    assert_eq!(figures.len(), record.findings(study.number).count(), "a record of figures like any other");
    let page = page::page(paper.title(), &record);
    for finding in record.findings(study.number) {
        let name = escape(&finding.figure.name);
        assert!(page.contains(&format!(">{name}</td>")), "{name} has no row");
    }
    rests_on_named_numbers(&record, study.number);
    every_claim_flips(&record, study.number);
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
    // The library has such words; what stands before it has not.
    let own = html.split("<script type=\"text/javascript\">").next().unwrap_or_default();
    assert!(!own.contains("NaN"), "{name}");
    if let Some(keep) = std::env::var_os("NEARSIDE_KEEP_PAGES") {
        std::fs::write(std::path::Path::new(&keep).join(format!("{name}.html")), html).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    nearside_conformance::browser::shows(&format!("studies::{name}"), html, folder.path());
}

/// Whatever the model says names what it was computed from, and the record says what that is worth.
fn rests_on_named_numbers(record: &Record, number: &str) {
    let table = record.table();
    for finding in record.findings(number).filter(|f| f.model.is_some()) {
        assert!(kind(finding, &table).is_some(), "{}: nobody knows what it rests on", finding.figure.name);
    }
    let names: Vec<&str> = record.findings(number).map(|f| &*f.figure.name).collect();
    assert_eq!(names.len(), record.figures(number).len(), "a name is there twice: {names:?}");
}

/// Every claim is fed figures by which it holds, and then for each of its checks figures that miss: its
/// verdict and its row on the page say so, whatever this run has found.
fn every_claim_flips(record: &Record, number: &str) {
    let claims: Vec<Claim> = record.claims(number).cloned().collect();
    for claim in &claims {
        assert!(!claim.checks.is_empty(), "{}: nothing decides it", claim.text);
        for column in Column::BOTH.into_iter().filter(|column| claim.of(*column).next().is_some()) {
            let mut good = record.clone();
            // Checks may share a figure: what one is fed may undo another.
            for _ in 0..3 {
                claim.of(column).for_each(|check| feed(&mut good, number, check, inside(check.must)));
            }
            says(&good, claim, column, Some(true));
            for check in claim.of(column) {
                for value in outside(check.must) {
                    let mut bad = good.clone();
                    feed(&mut bad, number, check, value);
                    assert!(!check.must.holds(get(&bad, number, column, &check.of)), "{check:?}");
                    says(&bad, claim, column, Some(false));
                }
                let mut none = good.clone();
                forget(&mut none, number, check.of.names()[0]);
                says(&none, claim, column, None);
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Verdict and page.
fn says(record: &Record, claim: &Claim, column: Column, expected: Option<bool>) {
    let Claim { text, study, .. } = claim;
    let why = || claim.decided(&record.figures(study));
    assert_eq!(record.verdict(claim, column), expected, "{text}, {column:?}: {}", why());
    let page = page::page("", &one_study(record, study));
    let row = page.split("<tr>").find(|row| row.starts_with(&format!("<td>{}<", escape(text))));
    let cells: Vec<&str> = row.unwrap_or_else(|| panic!("{text} has no row")).split("</td>").collect();
    let cell = match column {
        Column::Model => cells[3],
        Column::Machine => cells[5],
    };
    let (start, red) = match expected {
        Some(true) => (">holds", false),
        Some(false) => (">does not hold", true),
        None => (">–", false),
    };
    assert!(cell.contains(start) && cell.contains("class=miss") == red, "{text}, {column:?}: {cell}");
}

/// The claims, figures and parameters of one study: pictures would take their time.
fn one_study(record: &Record, number: &str) -> Record {
    let mut record = record.clone();
    record.rows.retain(|row| match row {
        Row::Study(head) => head.number == number,
        Row::Figure(finding) => finding.study == number,
        Row::Claim(claim) => claim.study == number,
        Row::Parameter(_) | Row::Environment(_) => true,
        Row::Chart(_) | Row::Note(_) => false,
    });
    record
}

fn apart(bound: f64) -> f64 {
    0.1 * bound.abs().max(1.0)
}

/// A value that is what it has to be.
fn inside(must: Bound) -> f64 {
    match must {
        Bound::Below(bound) | Bound::AtMost(bound) => bound - apart(bound),
        Bound::Above(bound) | Bound::AtLeast(bound) => bound + apart(bound),
        Bound::Between([low, high]) => f64::midpoint(low, high),
    }
}

/// Values that are not, on each side that there is.
fn outside(must: Bound) -> Vec<f64> {
    match must {
        Bound::Below(bound) => vec![bound + apart(bound)],
        Bound::AtMost(bound) => vec![bound + apart(bound)],
        Bound::Above(bound) => vec![bound - apart(bound)],
        Bound::AtLeast(bound) => vec![bound - apart(bound)],
        Bound::Between([low, high]) => vec![low - (high - low), high + (high - low)],
    }
}

/// Gives what a check compares that value.
fn feed(record: &mut Record, number: &str, check: &Check, value: f64) {
    set(record, number, check.column, &check.of, value);
    let fed = get(record, number, check.column, &check.of);
    assert!((fed - value).abs() <= 1e-6 * value.abs().max(1.0), "{check:?} takes nothing: {fed} for {value}");
}

fn get(record: &Record, number: &str, column: Column, of: &Quantity) -> f64 {
    let figures: Figures<'_> = record.figures(number);
    of.value(&figures, column).unwrap_or_else(|| panic!("{} has no value", of.text()))
}

/// Changes the first figure that a quantity is made of, so that it has a value; a second one that is missing
/// becomes 1.
fn set(record: &mut Record, number: &str, column: Column, of: &Quantity, value: f64) {
    match of {
        Quantity::Value(name) => {
            let finding = figure(record, number, name);
            *finding = match column {
                Column::Model => finding.clone().model(value),
                Column::Machine => {
                    let beside = finding.figure.beside.clone();
                    let mut measured = finding.clone().machine(&[value]);
                    measured.figure.beside = beside;
                    measured
                }
            };
        }
        Quantity::Over(both) | Quantity::Less(both) => {
            let there = both[1].value(&record.figures(number), column).filter(|v| v.is_finite() && *v > 0.0);
            let other = there.unwrap_or_else(|| {
                set(record, number, column, &both[1], 1.0);
                1.0
            });
            let first = if matches!(of, Quantity::Over(_)) { value * other } else { value + other };
            set(record, number, column, &both[0], first);
        }
    }
}

fn forget(record: &mut Record, number: &str, name: &str) {
    let finding = figure(record, number, name);
    finding.model = None;
    *finding = finding.clone().machine(&[]);
}

fn figure<'a>(record: &'a mut Record, number: &str, name: &str) -> &'a mut Finding {
    let figures = record.rows.iter_mut().filter_map(|row| match row {
        Row::Figure(finding) if finding.study == number && finding.figure.name == name => {
            Some(&mut **finding)
        }
        _ => None,
    });
    figures.last().unwrap_or_else(|| panic!("{number} has no finding {name:?}"))
}

/// All claims that the model says something about hold; those that do not are asserted one by one where they
/// are known.
#[allow(dead_code, reason = "not by every paper's tests")]
pub fn holds_on_the_model(record: &Record, number: &str, except: &[&str]) {
    for claim in record.claims(number) {
        if let Some(holds) = record.verdict(claim, Column::Model) {
            let expected = !except.contains(&&*claim.text);
            assert_eq!(holds, expected, "{}: {}", claim.text, claim.decided(&record.figures(number)));
        }
    }
}
