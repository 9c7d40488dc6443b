//! `nearside bench replay` and `diff`, and think time: the built command.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{Ran, nearside, record};

fn bench(folder: &Path, words: &[&str]) -> Ran {
    Ran::from(nearside().arg("bench").args(words).current_dir(folder).output().unwrap())
}

/// 200 operations, 100 us apart, a quarter of them writes; the last one of MSR's disk of 16 GiB.
fn msr(folder: &Path) {
    let line = |n: u64| {
        let kind = if n.is_multiple_of(4) { "Write" } else { "Read" };
        let offset = if n == 199 { (16 << 30) - 4096 } else { n * 8192 };
        format!("{},hm,0,{kind},{offset},4096,77\n", 128_166_372_003_061_629 + n * 1_000)
    };
    fs::write(folder.join("trace.csv"), (0..200).map(line).collect::<String>()).unwrap();
}

#[test]
fn a_trace_is_replayed_on_a_drive() {
    let folder = tempfile::tempdir().unwrap();
    msr(folder.path());
    let ran = bench(folder.path(), &["replay", "trace.csv", "-d", "dram:8MiB", "--map", "wrap", "--json"]);
    let lines = ran.json();
    assert_eq!((ran.code, lines.len(), ran.err.as_str()), (0, 2, ""));
    let found = &lines[0]["found"];
    assert_eq!(
        (&lines[0]["type"], &found["reads"], &found["writes"]),
        (&"trace".into(), &150.into(), &50.into())
    );
    assert_eq!(
        (&lines[0]["trace"]["format"], &lines[0]["trace"]["mapping"]),
        (&"msr".into(), &"wrap".into())
    );
    let run = &lines[1];
    let stream = &run["streams"][0];
    assert_eq!(
        (&stream["arrivals"], &stream["offered"], &run["errors"]),
        (&"recorded".into(), &200.into(), &0.into())
    );
    assert_eq!(
        (&stream["reads"]["response"]["count"], &stream["writes"]["bytes"]),
        (&150.into(), &(50 * 4096).into())
    );
    // 19.9 ms from the first to the last, by the trace and not by the machine.
    assert_eq!(run["window_ns"], 19_900_001);
    let ran =
        bench(folder.path(), &["replay", "trace.csv", "-d", "dram:8MiB", "--map", "scale", "--scale", "10"]);
    let text = ran.good();
    assert!(text.contains("150 reads and 50 writes of 819200 bytes in 19.9 ms, replayed 10 times"), "{text}");
    assert!(text.contains("replay.html") && folder.path().join("out/replay.html").exists());
    let half = ["replay", "trace.csv", "-d", "dram:8MiB", "--map", "wrap", "--runtime", "9950us", "--json"];
    assert_eq!(bench(folder.path(), &half).json()[1]["streams"][0]["offered"], 100);
}

#[test]
fn what_cannot_be_replayed_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    msr(folder.path());
    fs::write(folder.path().join("disk.img"), vec![7; 1 << 20]).unwrap();
    fs::write(folder.path().join("bad.log"), "fio version 3 iolog\n1 f read 0 512\n2 f read zero 512\n")
        .unwrap();
    for (words, says) in [
        (
            &["trace.csv", "-d", "dram:8MiB"][..],
            "trace.csv: line 200: it ends at byte 17179869184, and the target has 8388608",
        ),
        (&["bad.log", "-d", "dram:8MiB"], "bad.log: line 3: \"zero\" is no offset"),
        (&["bad.log", "-d", "dram:8MiB", "--format", "msr"], "bad.log: line 1: fewer than seven fields"),
        (&["disk.img", "-d", "dram:8MiB"], "disk.img: neither blktrace's"),
        (&["none.csv", "-d", "dram:8MiB"], "none.csv: No such file"),
        (&["/dev/null", "-d", "dram:8MiB"], "/dev/null: not a regular file"),
        (&["trace.csv", "-d", "dram:8MiB", "--scale", "0"], "--scale"),
        (&["trace.csv", "-d", "pread:disk.img", "--map", "wrap", "--buffered"], "--destroy"),
    ] {
        let ran = bench(folder.path(), &[&["replay"], words].concat());
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?}: {} {}", ran.code, ran.err);
    }
    assert!(fs::read(folder.path().join("disk.img")).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn fewer_operations_end_where_users_think() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let words =
            [&["run", "-d", "dram:1MiB", "--iodepth", "2", "--runtime", "200ms", "--json"], words].concat();
        let ran = bench(folder.path(), &words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.json().remove(0)
    };
    let words = ["--thinktime", "10ms", "--thinktime-blocks", "4", "--thinktime-blocks-type", "issue"];
    let thinks = run(&words);
    let think = &thinks["plan"]["streams"][0]["workload"]["think"];
    assert_eq!(
        (&think["time_ns"], &think["blocks"], &think["trigger"]),
        (&10_000_000.into(), &4.into(), &"issue".into())
    );
    // At most four in each of the twenty pauses' rounds, however fast the machine is.
    assert!(
        thinks["streams"][0]["offered"].as_u64().unwrap() <= 4 * 21,
        "{}",
        thinks["streams"][0]["offered"]
    );
    assert!(run(&[])["plan"]["streams"][0]["workload"].get("think").is_none());
    for (words, says) in [
        (&["--iodepth", "1", "--thinktime-blocks", "2"][..], "--thinktime"),
        (&["--rate", "1k", "--thinktime", "1ms"], "cannot be used with"),
        (&["--iodepth", "1", "--thinktime", "1ms", "--thinktime-spin", "2ms"], "spinning is a part of it"),
        (&["--iodepth", "1", "--thinktime", "1ms", "--thinktime-blocks", "0"], "thinktime-blocks"),
    ] {
        let ran = bench(folder.path(), &[&["run", "-d", "dram:1MiB"], words].concat());
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?}: {}", ran.err);
    }
}

/// A simulated curve on a model, as lines of JSON.
fn curve(media: &str, seed: &str, folder: &Path) -> String {
    let mut command = nearside();
    command.args(["sim", "curve", "--media", media, "--capacity", "64MiB", "--seed", seed, "--json"]);
    command.args(["--percentile", "99.9", "--loads", "2", "--depths", "1,8", "--out"]);
    Ran::from(command.arg(folder).output().unwrap()).good()
}

#[test]
fn two_records_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (name, media, seed) in
        [("a", "optane-p4800x", "1"), ("again", "optane-p4800x", "2"), ("slow", "nand-p3700", "1")]
    {
        fs::write(at.join(name), curve(media, seed, at)).unwrap();
    }
    let diff = |a: &str, b: &str, words: &[&str]| bench(at, &[&["diff", a, b], words].concat());
    let text = diff("a", "a", &[]).good();
    assert!(text.contains("randread 4096 QD 8: p99") && text.contains("the same"), "{text}");
    assert!(!text.contains("WORSE") && !text.contains("better"), "{text}");
    // Another seed of the same model: by what was asked for the same.
    let ran = diff("a", "again", &["--within", "20"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    // Flash is slower; another target is no other load.
    let ran = diff("a", "slow", &["--json"]);
    let rows = ran.json();
    assert_eq!(ran.code, 1, "{}", ran.text());
    let find =
        |figure: &str| rows.iter().find(|row| row["figure"] == figure).unwrap_or_else(|| panic!("{figure}"));
    let median = find("randread 4096 QD 1: p50");
    assert_eq!(
        (&median["verdict"], &median["overlap"], &median["better"]),
        (&"worse".into(), &false.into(), &"lower".into())
    );
    assert!(median["ratio"].as_f64().unwrap() > 5.0, "{median}");
    assert_eq!(find("randread 4096 QD 1: throughput")["verdict"], "worse");
    assert_eq!(find("randread 4096 QD 1: errors")["verdict"], "same");
    assert!(rows.iter().any(|row| row["type"] == "alone"), "loads that each curve chose for itself");
    let ran = diff("slow", "a", &["--json"]);
    assert_eq!(ran.code, 0);
    assert!(ran.json().iter().any(|row| row["verdict"] == "better"));
    // Errors are worse.
    let mut run: Value =
        serde_json::from_str(fs::read_to_string(at.join("a")).unwrap().lines().next().unwrap()).unwrap();
    run["errors"] = 3.into();
    fs::write(at.join("errors"), format!("{run}\n")).unwrap();
    let ran = diff("a", "errors", &[]);
    assert!(
        ran.code == 1 && ran.text().lines().any(|line| line.contains("errors") && line.contains("WORSE"))
    );
    // Records of figures, with spreads of one to each side.
    for (name, value) in [("then", 100.0), ("now", 101.5), ("later", 103.0)] {
        fs::write(at.join(name), record(value)).unwrap();
    }
    assert!(diff("then", "now", &[]).good().contains("the same"));
    let ran = diff("then", "later", &[]);
    assert!(ran.code == 1 && ran.text().contains("WORSE"), "{}", ran.text());
    assert!(diff("later", "then", &[]).good().contains("better"));
    assert!(diff("then", "later", &["--within", "5"]).good().contains("the same"));
    fs::write(at.join("words"), "hello\n").unwrap();
    for (a, b, says) in [
        ("a", "none", "none: No such file"),
        ("a", "words", "words: line 1"),
        ("a", "then", "no figure in common"),
    ] {
        let ran = diff(a, b, &[]);
        assert!(ran.code == 2 && ran.err.contains(says), "{}", ran.err);
    }
}
