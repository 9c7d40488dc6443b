//! The documents say of the models' numbers what the code says, and the records that are kept can be read.

use std::path::Path;

use nearside_studies::{Column, Paper, Record, page, source, table};

/// With `NEARSIDE_BLESS` set the document is written instead.
#[test]
fn the_document_has_every_parameter() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/STUDIES.md");
    let mut document = std::fs::read_to_string(&path).unwrap();
    for paper in Paper::ALL {
        let table = source::markdown(&paper.parameters());
        let begin = format!("<!-- parameters of {} -->\n", paper.name());
        let end = format!("<!-- end of {} -->", paper.name());
        let from = document.find(&begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
        let to = document.find(&end).unwrap_or_else(|| panic!("no {end}"));
        if std::env::var_os("NEARSIDE_BLESS").is_some() {
            document.replace_range(from..to, &table);
            std::fs::write(&path, &document).unwrap();
        } else {
            assert_eq!(&document[from..to], table, "the table of {} is not the code's", paper.name());
        }
    }
}

#[test]
fn every_record_that_is_kept_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/record");
    let mut read = 0;
    for machine in std::fs::read_dir(root).unwrap() {
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
