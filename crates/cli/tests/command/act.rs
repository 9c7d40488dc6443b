//! `nearside act` in simulated time, which gives the same answer each time, and what it refuses.

use std::fs;

use crate::fixture::{Ran, nearside};

fn act(out: &tempfile::TempDir, args: &[&str]) -> Ran {
    let mut command = nearside();
    command.arg("act").args(args).arg("--out").arg(out.path());
    Ran::from(command.output().unwrap())
}

const DRIVE: [&str; 5] = ["-d", "model:optane-prototype:1GiB", "--simulated", "--runtime", "50ms"];

#[test]
fn the_largest_multiple_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let ran = act(&folder, &[&DRIVE[..], &["--json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.json();
    let verdicts: Vec<_> = lines.iter().filter(|line| line["type"] == "verdict").collect();
    assert_eq!(verdicts.len(), 3);
    let largest = |i: usize| verdicts[i]["largest"]["multiple"].as_u64().unwrap();
    assert!(largest(0) > 50 && largest(0) >= largest(1) && largest(1) >= largest(2), "{verdicts:?}");
    assert_eq!(ran.out, act(&folder, &[&DRIVE[..], &["--json"]].concat()).out);
    let text = act(&folder, &DRIVE).good();
    assert!(text.contains(&format!("standard: {}x is the largest", largest(0))), "{text}");
    assert!(fs::read_to_string(folder.path().join("act.html")).unwrap().contains("<svg"));
}

#[test]
fn a_configuration_file_is_one_load() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("actconfig.txt");
    fs::write(&config, "read-reqs-per-sec: 3000\nwrite-reqs-per-sec: 1000\nservice-threads: 8\n").unwrap();
    let words = [&DRIVE[..], &["--config", config.to_str().unwrap()]].concat();
    let ran = act(&folder, &words);
    assert!(ran.err.contains("service-threads does not apply"), "{}", ran.err);
    assert!(ran.text().contains("standard: 1x passes"), "{}", ran.text());
    fs::write(&config, "speed: 1\n").unwrap();
    let ran = act(&folder, &words);
    assert!(ran.code == 2 && ran.err.contains("line 1: speed"), "{} {}", ran.code, ran.err);
}

#[test]
fn nothing_is_written_to_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    let ran = act(&folder, &["-d", image.to_str().unwrap(), "--multiple", "1", "--runtime", "10ms"]);
    assert!(ran.code == 2 && ran.err.contains("--destroy"), "{} {}", ran.code, ran.err);
    assert!(fs::read(&image).unwrap().iter().all(|b| *b == 7));
    let ran = act(&folder, &["-d", "dram:8MiB", "--simulated"]);
    assert!(ran.code == 2 && ran.err.contains("takes a model"), "{}", ran.err);
}
