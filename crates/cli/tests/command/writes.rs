//! A write log by the command: listed, counted, made into images; and who writes it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::IoBuffer;
use nearside_embedded::AnyStore;
use nearside_store::{Channel, Data, FileOptions, Operation, Store, Submitted, Token};

use crate::fixture::{Ran, nearside};

fn writes(folder: &Path, words: &[&str]) -> Ran {
    Ran::from(nearside().current_dir(folder).arg("writes").args(words).output().unwrap())
}

/// Two flush periods: 4 KiB of 1 at 0, flush; a mark; 1 KiB of 2 at 2048, a discard at 0, 512 of 3 at 8192
/// with FUA, 1 KiB of 4 at 0.
fn log(path: &Path) {
    let store = AnyStore::open("dram:1MiB", FileOptions::serve()).unwrap().logged(path).unwrap();
    let mut channel = store.channel(Arc::default()).unwrap();
    let mut submit = |operation: Operation, fill: u8| {
        let data = match operation {
            Operation::Write { len, .. } => {
                let mut buffer = IoBuffer::new(len as usize).unwrap();
                buffer.fill(fill);
                Data::Owned(buffer)
            }
            _ => Data::None,
        };
        let done = channel.submit(operation, data, Token(1), Nanos(0));
        assert!(matches!(done, Submitted::Done(done) if done.result.is_ok()));
    };
    submit(Operation::Write { offset: 0, len: 4096, fua: false }, 1);
    submit(Operation::Flush, 0);
    store.write_log().unwrap().mark("grün\n".as_bytes());
    submit(Operation::Write { offset: 2048, len: 1024, fua: false }, 2);
    submit(Operation::Deallocate { offset: 0, len: 512 }, 0);
    submit(Operation::Write { offset: 8192, len: 512, fua: true }, 3);
    submit(Operation::Write { offset: 0, len: 1024, fua: false }, 4);
}

#[test]
fn a_log_is_listed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    log(&folder.path().join("log"));
    let listed = writes(folder.path(), &["log"]).good();
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["0", "mark", "nearside", "capacity=1048576"]);
    assert_eq!(lines[1], ["1", "write", "4096", "bytes", "at", "0"]);
    assert_eq!(lines[2], ["2", "flush"]);
    assert_eq!(lines[3], ["3", "mark", "grün"], "{listed}");
    let last = &lines[lines.len() - 4..];
    assert_eq!(last[1], ["5", "discard", "512", "bytes", "at", "0"]);
    assert_eq!(last[2], ["6", "write+fua", "512", "bytes", "at", "8192"]);
    let json = writes(folder.path(), &["log", "--json"]).json();
    assert_eq!((json.len(), &json[3]["mark"]["text"]), (8, &"grün\n".into()));
    assert_eq!(
        (&json[6]["flags"][0], &json[6]["offset"], &json[6]["bytes"]),
        (&"fua".into(), &8192.into(), &512.into())
    );
    let sum = &writes(folder.path(), &["log", "--summary", "--json"]).json()[0];
    for (field, value) in [
        ("entries", 8),
        ("writes", 4),
        ("bytes_written", 6656),
        ("discards", 1),
        ("bytes_discarded", 512),
        ("fua", 1),
        ("flushes", 1),
        ("flush_periods", 1),
        ("marks", 2),
        ("not_flushed", 4),
        ("sector_bytes", 512),
    ] {
        assert_eq!(sum[field], value, "{field}");
    }
    assert!(
        writes(folder.path(), &["log", "--summary"]).good().contains("1 flushes, 1 of them of something")
    );
}

#[test]
fn images_of_instants() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    log(&at("log"));
    let image = |words: &[&str]| {
        let _ = fs::remove_file(at("image"));
        writes(folder.path(), &[&["log", "-o", "image"], words].concat()).good();
        fs::read(at("image")).unwrap()
    };
    let mut want = vec![0; 1 << 20];
    assert!(image(&["--at", "1"]) == want);
    want[..4096].fill(1);
    assert!(image(&["--at", "2"]) == want && image(&["--at-mark", "grün\n"]) == want);
    assert_eq!(fs::metadata(at("image")).unwrap().blocks(), 8, "sparse");
    assert_eq!(fs::metadata(at("image")).unwrap().mode() & 0o777, 0o600, "it holds what the disk did");
    let flushed = want.clone();
    want[2048..3072].fill(2);
    want[..512].fill(0);
    want[8192..8704].fill(3);
    want[..1024].fill(4);
    assert!(image(&["--at", "8"]) == want);
    // On what the disk held, whose size it has.
    fs::write(at("base"), vec![9; 64 << 10]).unwrap();
    let based = image(&["--base", "base", "--at", "8"]);
    assert!(based[..4096] == want[..4096] && based[4096..8192] == [9; 4096] && based.len() == 64 << 10);
    // Whatever is lost: what was flushed is there, and the write with FUA. The same seed, the same image.
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..24 {
        let cut = ["--at", "8", "--seed", &seed.to_string()];
        let made = image(&cut);
        assert!(
            made == image(&cut) && made[1024..2048] == flushed[1024..2048] && made[8192..8704] == [3; 512]
        );
        kinds.insert((made[0], made[600], made[2048]));
    }
    assert!(kinds.len() > 4 && kinds.contains(&(1, 1, 1)), "{kinds:?}");
    for (words, says) in [
        (&["log", "-o", "image", "--at", "1"][..], "image: File exists"),
        (&["log", "-o", "new", "--at", "9"], "log: the log has 8 entries, not 9"),
        (&["log", "-o", "new", "--at", "9", "--seed", "1"], "log: the log has 8 entries, not 9"),
        (&["log", "-o", "new", "--at-mark", "none"], "log: there is no mark \"none\""),
        (&["log", "-o", "new", "--at", "8", "--base", "none"], "none: No such file"),
        (&["log", "-o", "new"], "--at"),
        (&["log", "--at", "2"], "--output"),
        (&["none"], "none: No such file"),
        (&["base"], "base: no write log: it begins with 0x909090909090909"),
    ] {
        let ran = writes(folder.path(), words);
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?}: {}", ran.err);
        assert!(!at("new").exists(), "{words:?}");
    }
    fs::write(at("small"), vec![9; 4096]).unwrap();
    let small = writes(folder.path(), &["log", "-o", "new", "--at", "8", "--base", "small"]);
    assert!(small.err.contains("log: entry 6, at byte 8192 of the image"), "{}", small.err);
    assert!(!at("new").exists(), "half an image is none");
}

/// `serve --log-writes`, a host that writes, and a mark between; then the log makes what the disk holds.
#[test]
fn a_server_logs_what_its_hosts_write() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk"), vec![0; 4 << 20]).unwrap();
    let mut server = nearside();
    server.current_dir(folder.path()).args(["serve", "--listen", "127.0.0.1:0", "--control", "control"]);
    server.args(["--store", "file:disk", "--log-writes", "log"]).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let drive = lines.find_map(|line| {
        let line = line.unwrap();
        line.starts_with("nvme+tcp://").then(|| line.split(": ").next().unwrap().to_owned())
    });
    let drive = drive.unwrap();
    let run = |words: &[&str]| Ran::from(nearside().current_dir(folder.path()).args(words).output().unwrap());
    // On a busy machine a load may end before it has written; and the same seed writes the same once more.
    let load = |seed: &str| {
        let before = fs::read(at("disk")).unwrap();
        let how = ["--rw", "randwrite", "--iodepth", "4", "--runtime", "50ms", "--destroy", "--out", "pages"];
        while fs::read(at("disk")).unwrap() == before {
            let words = [&["bench", "run", "-d", &drive, "--seed", seed], &how[..]].concat();
            assert_eq!(run(&words).code, 0);
        }
    };
    load("1");
    assert_eq!(run(&["namespace", "--control", "control", "mark", "1", "half"]).good(), "");
    let long = run(&["namespace", "--control", "control", "mark", "1", &"x".repeat(481)]);
    assert!(long.code == 2 && long.err.contains("a mark of 481 bytes: it can have 480"), "{}", long.err);
    load("2");
    let status = run(&["status", "--control", "control", "--json"]).json();
    let log = &status[0]["subsystems"][0]["namespaces"][0]["write_log"];
    assert!(log["entries"].as_u64().unwrap() > 3 && log["trouble"].is_null(), "{log}");
    assert!(run(&["status", "--control", "control"]).good().contains("write log log: "));
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));

    let sum = &run(&["writes", "log", "--summary", "--json"]).json()[0];
    assert!(
        sum["writes"].as_u64().unwrap() > 1
            && sum["flushes"].as_u64().unwrap() > 0
            && sum["not_flushed"] == 0,
        "{sum}"
    );
    let all = sum["entries"].to_string();
    run(&["writes", "log", "--at", &all, "-o", "all"]).good();
    assert!(fs::read(at("all")).unwrap() == fs::read(at("disk")).unwrap());
    run(&["writes", "log", "--at-mark", "half", "-o", "half"]).good();
    assert!(fs::read(at("half")).unwrap() != fs::read(at("disk")).unwrap());

    for (words, says) in [
        (&["--store", "file:disk", "--log-writes", "log"][..], "write log log: File exists"),
        (
            &["--store", "file:disk", "--log-writes", "a", "--log-writes", "b"],
            "2 times --log-writes and 1 times --store",
        ),
        (
            &["--store", "file:disk", "--log-writes", "a", "--read-only"],
            "log-writes is for a namespace that is written",
        ),
    ] {
        let refused = run(&[&["serve", "--listen", "127.0.0.1:0"], words].concat());
        assert!(refused.code == 2 && refused.err.contains(says), "{words:?}: {}", refused.err);
    }
}
