//! `nearside bench` on drives in memory and on files:
//! its tables, records and pages, what it refuses, and its end by a signal.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nearside_conformance::browser::shows;

use crate::fixture::{Ran, nearside};

/// Short runs of few loads.
const SHORT: [&str; 6] = ["--runtime", "40ms", "--loads", "3", "--depths", "1,4"];

fn bench(out: &tempfile::TempDir, args: &[&str]) -> Ran {
    let mut command = nearside();
    command.arg("bench").args(args).arg("--out").arg(out.path());
    Ran::from(command.output().unwrap())
}

#[test]
fn a_curve_has_a_table_a_page_and_records() {
    let folder = tempfile::tempdir().unwrap();
    let words = [&["curve", "-d", "dram:8MiB"], &SHORT[..]].concat();
    let text = bench(&folder, &words).good();
    for word in ["QD 1", "QD 4", "p99.999", "knee at", "curve.html"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let page = fs::read_to_string(folder.path().join("curve.html")).unwrap();
    if let Some(shown) = shows("command::a_curve_has_a_table_a_page_and_records", &page, folder.path()) {
        // Parts of the CPU time that are too small for their bar have a picture more.
        assert!((6..=7).contains(&shown.pictures) && shown.tables == 3, "{shown:?}");
    }
    let ran = bench(&folder, &[&words[..], &["--json"]].concat());
    let lines = ran.json();
    // Two queue depths, the guess of what it can do, loads.
    assert!(ran.code == 0 && (5..=6).contains(&lines.len()), "{} {}", lines.len(), ran.err);
    for line in &lines {
        assert_eq!((&line["type"], &line["target"]), (&"run".into(), &"dram:8MiB".into()));
        assert!(line["environment"]["kernel"].is_string() && line["machine"]["cpu"].is_object());
        assert!(line["all"]["response"]["percentiles"][0]["beyond"].is_u64(), "{line}");
        assert_eq!(line["errors"], 0);
    }
    let arrivals: Vec<&str> =
        lines.iter().map(|line| line["streams"][0]["arrivals"].as_str().unwrap()).collect();
    assert!(arrivals[..3] == ["closed"; 3] && arrivals[3..].iter().all(|a| *a == "poisson"), "{arrivals:?}");
}

#[test]
fn targets_and_completion_models_stand_on_one_picture() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    let (pread, mmap) = (format!("pread:{}", image.display()), format!("mmap:{}", image.display()));
    let words = [
        &["compare", "dram:8MiB", &pread, &mmap, "--completion", "polled,interrupt", "--buffered"],
        &SHORT[..],
    ]
    .concat();
    let text = bench(&folder, &words).good();
    for word in ["dram:8MiB, polled", "dram:8MiB, interrupt", &pread, &mmap] {
        assert!(text.lines().any(|line| line == word), "{word}: {text}");
    }
    let page = fs::read_to_string(folder.path().join("compare.html")).unwrap();
    let test = "command::targets_and_completion_models_stand_on_one_picture";
    if let Some(shown) = shows(test, &page, folder.path()) {
        assert!((8..=9).contains(&shown.pictures), "{shown:?}");
    }
}

#[test]
fn nothing_is_destroyed_that_was_not_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    let image = image.to_str().unwrap();
    for call in ["", "file:", "uring:", "pread:", "mmap:", "delayed:1us:file:"] {
        let target = format!("{call}{image}");
        for rw in ["write", "randwrite", "rw", "randrw"] {
            let words =
                ["run", "-d", &target, "--rw", rw, "--iodepth", "1", "--runtime", "20ms", "--buffered"];
            let ran = bench(&folder, &words);
            assert_eq!(ran.code, 2, "{target} {rw}");
            assert!(ran.err.contains("--destroy") && ran.err.contains(image), "{}", ran.err);
        }
    }
    assert!(fs::read(image).unwrap().iter().all(|byte| *byte == 7));
    // Writing it over first is writing too.
    let target = format!("pread:{image}");
    let ran = bench(&folder, &["run", "-d", &target, "--iodepth", "1", "--buffered", "--precondition"]);
    assert!(ran.code == 2 && ran.err.contains("--destroy"), "{}", ran.err);
    assert!(fs::read(image).unwrap().iter().all(|byte| *byte == 7));
    // What is empty is nobody's.
    fs::write(image, vec![0; 1 << 20]).unwrap();
    let target = format!("pread:{image}");
    bench(
        &folder,
        &["run", "-d", &target, "--rw", "write", "--iodepth", "1", "--runtime", "20ms", "--buffered"],
    )
    .good();
    for call in ["", "pread:", "mmap:"] {
        fs::write(image, vec![7; 1 << 20]).unwrap();
        let target = format!("{call}{image}");
        let words = ["run", "-d", &target, "--rw", "randwrite", "--iodepth", "1", "--runtime", "20ms"];
        bench(&folder, &[&words[..], &["--buffered", "--destroy"]].concat()).good();
        assert!(fs::read(image).unwrap().iter().any(|byte| *byte != 7), "{target}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (words, says) in [
        (&["run", "-d", "dram:1MiB"][..], "--rate"),
        (&["run", "-d", "dram:1MiB", "--rate", "10k", "--iodepth", "2"], "cannot be used with"),
        (&["run", "-d", "dram:1MiB", "--rate", "fast"], "\"fast\" is no rate"),
        (&["run", "-d", "dram:1MiB", "--iodepth", "1", "--bs", "1000"], "whole blocks of 512 bytes"),
        (&["run", "-d", "dram:1MiB", "--iodepth", "1", "--rw", "trim"], "trim"),
        (&["run", "-d", "dram:1MiB", "--iodepth", "1", "--size", "2m"], "the target has 1048576 bytes"),
        (
            &["run", "-d", "dram:1MiB", "--iodepth", "1", "--bs", "8k", "--size", "4k"],
            "hold no block of 8192",
        ),
        (&["run", "-d", "dram:1XB", "--iodepth", "1"], "dram:1XB"),
        (&["run", "-d", "/nonexistent", "--iodepth", "1"], "/nonexistent: No such file"),
        (&["run", "-d", "uring:/nonexistent", "--iodepth", "1"], "/nonexistent: No such file"),
        (&["run", "-d", "mmap:", "--iodepth", "1"], "names no file"),
        (&["run", "-d", "pread:/x", "--iodepth", "1", "--completion", "polled"], "uring-iopoll"),
        (&["curve", "-d", "dram:1MiB", "--loads", "0"], "--loads"),
        (&["compare"], "TARGET"),
    ] {
        let ran = bench(&folder, words);
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{words:?}: {}", ran.err);
    }
    // A device that fails is no reason to fall over.
    let ran = bench(&folder, &["run", "-d", "faulty:after=50,times=1000000:dram:1MiB", "--iodepth", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("the drive answered: Unrecovered Read Error (SCT 2, SC 0x81)"), "{}", ran.err);
}

#[test]
fn a_signal_ends_it_with_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    // Half a second for each of two queue depths, then 24 s of loads.
    let words =
        ["bench", "curve", "-d", "dram:8MiB", "--runtime", "2s", "--depths", "1,2", "--json", "--out"];
    let mut child = nearside().args(words).arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.len() < 12, "{}", rest.len());
    assert!(fs::read_to_string(folder.path().join("curve.html")).unwrap().ends_with("</html>\n"));
}

#[test]
fn logs_of_histograms_are_written_for_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let words =
        ["run", "-d", "dram:1MiB", "--iodepth", "2", "--runtime", "500ms", "--hlog", logs.to_str().unwrap()];
    bench(&folder, &words).good();
    let log = fs::read_to_string(logs.join("dram-1MiB-QD2.hlog")).unwrap();
    assert!(log.starts_with('#') && log.lines().any(|line| line.contains(",HISTF")), "{log}");
}

#[test]
fn a_simulated_curve_is_the_same_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let run = |media: &str, seed: &str| {
        let mut command = nearside();
        command.args(["sim", "curve", "--media", media, "--seed", seed, "--json", "--capacity", "1GiB"]);
        command.args(["--percentile", "99", "--loads", "5", "--depths", "1,8"]);
        command.args(["--rw", "randrw", "--bs", "4k", "--out"]).arg(folder.path());
        let ran = Ran::from(command.output().unwrap());
        let page = fs::read(folder.path().join("sim.html")).unwrap();
        (ran.good(), page)
    };
    for media in ["optane-p4800x", "nand-p3700"] {
        let one = run(media, "7");
        assert!(one.0.lines().count() >= 6, "{}", one.0);
        assert_eq!(one, run(media, "7"), "{media}");
        assert_ne!(one.0, run(media, "8").0, "{media}");
    }
    let ran = Ran::from(nearside().args(["sim", "curve", "--media", "optane"]).output().unwrap());
    assert!(
        ran.code == 2 && ran.err.contains("optane-p4800x") && ran.err.contains("nand-p3700"),
        "{}",
        ran.err
    );
}

#[test]
fn flash_is_written_over_and_worked_until_it_is_steady() {
    let folder = tempfile::tempdir().unwrap();
    let words =
        [
            &[
                "sim",
                "curve",
                "--media",
                "nand-p3700",
                "--capacity",
                "256MiB",
                "--fresh",
                "--rw",
                "randwrite",
            ][..],
            &["--loads", "2", "--depths", "32", "--percentile", "90", "--json", "--out"],
        ]
        .concat();
    let run =
        |more: &[&str]| Ran::from(nearside().args(&words).arg(folder.path()).args(more).output().unwrap());
    let ran = run(&["--precondition", "--steady-state=200ms"]);
    let lines = ran.json();
    let steady = lines.iter().find(|line| line["type"] == "steady").expect("a verdict");
    let rounds = steady["rounds"].as_array().unwrap().len();
    assert!((5..=25).contains(&rounds), "{steady}");
    assert_eq!(steady["verdict"]["steady"], rounds < 25, "{steady}");
    // Flash that was never written has no garbage to collect, and so is faster.
    let rate = |lines: &[serde_json::Value]| {
        let at_depth = lines.iter().find(|line| line["streams"][0]["arrivals"] == "closed").unwrap();
        at_depth["throughput"].as_f64().unwrap()
    };
    let (fresh, worn) = (rate(&run(&[]).json()), rate(&lines));
    assert!(fresh > 1.3 * worn, "{fresh} fresh, {worn} written over");
}

#[test]
fn fios_job_files_are_run_and_their_foreign_words_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    let job = folder.path().join("job.fio");
    let file = job.to_str().unwrap();
    let write = |words: &str| fs::write(&job, words.replace("IMAGE", image.to_str().unwrap())).unwrap();
    write(
        "[global]\nfilename=IMAGE\nruntime=100ms\neta=never\n[reads]\nrw=randread\nbs=4k\nrate_iops=1000\n[big]\nrw=read\nbs=64k\n",
    );
    let ran = bench(&folder, &["run", "--fio-job", file, "--json"]);
    assert!(ran.code == 0 && ran.err.contains("line 4: eta"), "{}", ran.err);
    // Two jobs at a time, where positioned calls go one by one: as fio's, they need another engine.
    let lines = ran.json();
    assert_eq!(lines[0]["streams"].as_array().unwrap().len(), 2);
    assert_eq!(lines[0]["target"], format!("pread:{}", image.display()).as_str());
    let other = bench(&folder, &["run", "-d", "dram:2MiB", "--fio-job", file, "--json"]);
    assert_eq!((other.code, &other.json()[0]["target"]), (0, &"dram:2MiB".into()), "{}", other.err);
    for (words, says) in [
        ("[a]\nfilename=IMAGE\nruntime=1\nrw=randwrite\n", "--destroy"),
        ("[a]\nruntime=1\n", "no filename"),
        ("[a]\nfilename=IMAGE\nzonemode=zbd\n", "line 3: zonemode"),
        ("[a]\nfilename=IMAGE\nsize=2m\nruntime=1\n", "beyond the target"),
    ] {
        write(words);
        let ran = bench(&folder, &["run", "--fio-job", file]);
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?}: {}", ran.err);
    }
    let ran = bench(&folder, &["run", "--fio-job", file, "--bs", "4k"]);
    assert!(ran.code == 2 && ran.err.contains("cannot be used with"), "{}", ran.err);
}
