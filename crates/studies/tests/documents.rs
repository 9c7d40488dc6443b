//! The documents say what the records and the code say, and the records that are kept can be read.

use std::path::{Path, PathBuf};

use nearside_studies::documents::{Kept, fill, newest, prose};
use nearside_studies::{Column, Failure, Paper, Record, page, table};

const DOCUMENTS: [&str; 3] = ["docs/STUDIES.md", "docs/PAPERS.md", "README.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kept(paper: Paper) -> Result<Kept, Failure> {
    let found = newest(&root().join("studies/record"), paper)?;
    found.ok_or_else(|| format!("no record of {} is kept", paper.name()).into())
}

/// `NEARSIDE_BLESS=1` writes them anew, as `make documents` does.
#[test]
fn the_documents_are_filled_from_the_newest_records() {
    for name in DOCUMENTS {
        let path = root().join(name);
        let document = std::fs::read_to_string(&path).unwrap();
        let filled = fill(&document, &kept).unwrap_or_else(|e| panic!("{name}: {e}"));
        if std::env::var_os("NEARSIDE_BLESS").is_some() {
            std::fs::write(&path, filled).unwrap();
            continue;
        }
        for (number, (there, due)) in document.lines().zip(filled.lines()).enumerate() {
            assert_eq!(there, due, "{name}:{}: `make documents` writes it anew", number + 1);
        }
        assert_eq!(document, filled, "{name}: `make documents` writes it anew");
    }
}

#[test]
fn every_paper_and_every_study_has_its_place() {
    let [studies, papers] = [0, 1].map(|at| std::fs::read_to_string(root().join(DOCUMENTS[at])).unwrap());
    for paper in Paper::ALL {
        for what in ["record", "values", "claims", "parameters"] {
            let place = format!("<!-- filled: {what} {} -->", paper.name());
            assert!(studies.contains(&place), "docs/STUDIES.md has no {place}");
        }
        for study in paper.studies() {
            let place = format!("<!-- filled: result {} {} -->", paper.name(), study.number);
            assert!(papers.contains(&place), "docs/PAPERS.md has no {place}");
        }
    }
}

#[test]
fn the_documents_records_are_whole_and_of_clean_commits() {
    for paper in Paper::ALL {
        let whole = kept(paper).unwrap();
        let has = |number| std::iter::once(&whole).chain(&whole.parts).any(|kept| kept.record.has(number));
        for study in paper.studies() {
            assert!(has(study.number), "{} {} has no record", paper.name(), study.number);
        }
        for Kept { file, record, .. } in std::iter::once(&whole).chain(&whole.parts) {
            for head in record.heads() {
                assert!(!head.small, "{file}: {} had seconds only", head.number);
            }
            let e = &record.environment;
            assert!(e.is_clean(), "{file}: its commit is {:?}", e.commit);
        }
    }
}

/// Units of what a run measures.
const UNITS: [&str; 15] = [
    "ns",
    "µs",
    "us",
    "ms",
    "MB/s",
    "GB/s",
    "IOPS",
    "kIOPS",
    "%",
    "percent",
    "times",
    "x",
    "reads",
    "interrupts",
    "steps",
];

/// Figures that are no run's: the papers' own statements, and limits that are set.
const STATED: [(&str, &str); 0] = [];

/// The figures of a text: numbers with the unit behind them; of a range or a list each, and a number that its
/// unit is written to.
fn figures(text: &str) -> Vec<(String, String)> {
    let words: Vec<&str> =
        text.split_whitespace().map(|w| w.trim_matches(|c| "(),.;:|\"*".contains(c))).collect();
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let digits = word.find(|c: char| !(c.is_ascii_digit() || ".,".contains(c))).unwrap_or(word.len());
        let (number, unit) = word.split_at(digits);
        if !number.is_empty() && UNITS.contains(&unit) {
            found.push((number.to_owned(), unit.to_owned()));
        }
        if UNITS.contains(word) {
            let before = words[..at].iter().rev();
            let list = before.take_while(|word| is_number(word) || ["to", "and", "or"].contains(*word));
            found.extend(
                list.filter(|w| is_number(w)).map(|number| ((*number).to_owned(), (*word).to_owned())),
            );
        }
    }
    found
}

#[test]
fn the_prose_has_no_figure_of_a_run() {
    for name in &DOCUMENTS[..2] {
        let document = std::fs::read_to_string(root().join(name)).unwrap();
        for (number, line) in prose(&document).unwrap().lines().enumerate() {
            for (value, unit) in figures(line) {
                let stated = STATED.contains(&(&*value, &*unit));
                assert!(
                    stated,
                    "{name}, line {} of its prose: {value} {unit} is filled in by nothing: {line}",
                    number + 1
                );
            }
        }
    }
}

#[test]
fn figures_are_found_however_written() {
    let found = |text: &str| figures(text).into_iter().map(|(n, u)| format!("{n} {u}")).collect::<Vec<_>>();
    assert_eq!(found("it takes 5.2 µs, or (801,000 IOPS)."), ["5.2 µs", "801,000 IOPS"]);
    assert_eq!(found("| 0.29 to 0.61 times |"), ["0.61 times", "0.29 times"]);
    assert_eq!(found("passes 150x and **137x**"), ["150 x", "137 x"]);
    assert_eq!(found("685, 119 and 20 ms"), ["20 ms", "119 ms", "685 ms"]);
    assert_eq!(found("Fig. 3 at depth 20, section 3.4, 4 KiB, `a_ns` 5"), Vec::<String>::new());
}

#[test]
fn every_record_that_is_kept_can_be_read() {
    let mut read = 0;
    for machine in std::fs::read_dir(root().join("studies/record")).unwrap() {
        for file in std::fs::read_dir(machine.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if !path.file_name().is_some_and(|name| name.to_string_lossy().contains("-study-")) {
                continue;
            }
            let record = Record::from_lines(&std::fs::read_to_string(&path).unwrap());
            let record = record.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(!table::table(&record).is_empty());
            assert!(page::page("", &record).contains("What the paper claims"));
            let judged = record.heads().flat_map(|head| record.claims(&head.number));
            let judged = judged.filter(|c| Column::BOTH.iter().any(|of| record.verdict(c, *of).is_some()));
            assert!(judged.count() > 0, "{}: nothing is judged", path.display());
            read += 1;
        }
    }
    assert!(read > 0, "no study's record is kept");
}
