//! `nearside study`: what there is, a study by its number with record and page, and what it refuses.

use std::fs;

use crate::fixture::{Ran, nearside};

fn study(out: &tempfile::TempDir, args: &[&str]) -> Ran {
    let mut command = nearside();
    command.arg("study").args(args).arg("--out").arg(out.path());
    Ran::from(command.output().unwrap())
}

#[test]
fn a_study_leaves_a_record_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let list = study(&folder, &["--list"]).good();
    assert!(list.contains("Table 1") && list.contains("FAST 2012"), "{list}");
    let ran = study(&folder, &["fast12", "--figure", "2", "--fast", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.json();
    assert_eq!((&lines[0]["kind"], &lines[1]["number"]), (&"environment".into(), &"Fig. 2".into()));
    // The second process is the command itself: it was found where a machine has a core for it.
    let useful = lines.iter().find(|line| line["name"] == "T_u").unwrap();
    assert_eq!(useful["paper"]["value"], 2.7);
    let cores = lines[0]["cores"].as_u64().unwrap();
    assert!(cores < 2 || useful["runs"].as_u64().unwrap() > 0, "{useful}");
    let record = fs::read_dir(folder.path().join("record")).unwrap().next().unwrap().unwrap().path();
    let record = fs::read_dir(record).unwrap().next().unwrap().unwrap().path();
    assert!(record.to_str().unwrap().ends_with("study-fast12-2.jsonl"), "{record:?}");
    assert_eq!(fs::read(&record).unwrap(), ran.out);
    let page = fs::read_to_string(folder.path().join("fast12.html")).unwrap();
    assert!(page.contains("<figure>"));
    // The same page comes of the record alone, without a run.
    let again = tempfile::tempdir().unwrap();
    let record = record.to_str().unwrap();
    let shown = study(&again, &["fast12", "--from", record]);
    assert!(shown.code == 0 && shown.text().contains("T_u"), "{}", shown.err);
    assert_eq!(fs::read_to_string(again.path().join("fast12.html")).unwrap(), page);
    assert_eq!(study(&again, &["fast12", "--from", record, "--json"]).out, ran.out);
    for (args, says) in [
        (["pieee17", "--from", "missing-line.jsonl"], "missing-line.jsonl"),
        (["all", "--from", record], "say which"),
        (["fast12", "--from", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
    ] {
        let refused = study(&again, &args);
        assert!(refused.code == 2 && refused.err.contains(says), "{args:?}: {}", refused.err);
    }
}

#[test]
fn what_no_paper_has_is_refused_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let ran = study(&folder, &["fast12", "--figure", "9"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("has no 9") && ran.err.contains("Fig. 3"), "{}", ran.err);
    assert_eq!(study(&folder, &[]).code, 2);
}
