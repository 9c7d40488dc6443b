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
    assert!(fs::read_to_string(folder.path().join("act.html")).unwrap().contains("<figure>"));
}

#[test]
fn a_configuration_file_is_one_load() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("actconfig.txt");
    let file = "device-names: /dev/a,/dev/b\ntest-duration-sec: 86400\nread-reqs-per-sec: 6000\nwrite-reqs-per-sec: 34000\n";
    fs::write(&config, format!("{file}service-threads: 8\n")).unwrap();
    let words = [&DRIVE[..], &["--config", config.to_str().unwrap()]].concat();
    let ran = act(&folder, &words);
    assert!(ran.err.contains("service-threads does not apply"), "{}", ran.err);
    assert!(ran.err.contains("of 2 devices: this drive takes its share, 1 / 2"), "{}", ran.err);
    let text = ran.text();
    for says in ["standard: 1x passes", "as a stress test: 1x passes", "large-block-reads-per-sec: 800.00\n"]
    {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for heads in [["reads", "reads-from-due"], ["large-block-reads", "large-block-writes"]] {
        assert!(rows.iter().any(|row| *row == heads), "{heads:?}\n{text}");
    }
    let columns = ["slice", "0.1", "0.128", "1", "2", "4", "8", "16", "32", "64"];
    assert!(rows.iter().any(|row| row.starts_with(&columns)), "{text}");
    let ran = act(&folder, &[&words[..], &["--json"]].concat());
    let lines = ran.json();
    assert_eq!(lines[0]["type"], "config");
    assert_eq!(lines[0]["derived"]["large-block-reads-per-sec"], 800.0);
    assert_eq!((&lines[1]["load"]["large_reads"], &lines[1]["completes"]), (&400.0.into(), &true.into()));
    // 50 ms at 400 a second, the drive's own share; the 20th would be due when it is over.
    let tables = lines[1]["report"]["tables"].as_array().unwrap();
    let names: Vec<_> = tables.iter().map(|table| table["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["reads", "large-block-reads", "large-block-writes"]);
    assert_eq!(tables[1]["io"][0]["count"], 19);
    fs::write(&config, format!("{file}microsecond-histograms: yes\n")).unwrap();
    let ran = act(&folder, &words);
    let text = ran.text();
    assert!(text.contains("%>(us)") && text.contains("slice        1      2      4"), "{text}");
    for (wrong, says) in [("speed: 1\n", "line 5: speed"), ("max-lag-sec: x\n", "line 5: max-lag-sec")] {
        fs::write(&config, format!("{file}{wrong}")).unwrap();
        let ran = act(&folder, &words);
        assert!(ran.code == 2 && ran.err.contains(says), "{} {}", ran.code, ran.err);
        assert!(ran.err.contains("actconfig.txt"), "{}", ran.err);
    }
    let ran = act(&folder, &["-d", "model:optane-prototype:1GiB", "--simulated", "--slice", "1ms"]);
    assert!(ran.code == 2 && ran.err.contains("10000 slices; it may have 1024"), "{} {}", ran.code, ran.err);
    fs::write(&config, "device-names: /dev/a\nread-reqs-per-sec: 1\n").unwrap();
    let ran = act(&folder, &words);
    assert!(ran.code == 2 && ran.err.contains("no test-duration-sec"), "{} {}", ran.code, ran.err);
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
