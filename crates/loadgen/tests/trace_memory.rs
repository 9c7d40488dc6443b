//! A trace is streamed: a program of its own, since memory is counted of a whole process.

use std::fmt::Write as _;
use std::fs;

use nearside_loadgen::trace::{Event, Feed, Mapping, Onto, Source, Trace, survey};

/// The most memory that this process has had, in bytes.
fn most() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn memory_does_not_grow_with_a_trace() {
    const LINES: u64 = 1_000_000;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("long.csv");
    let mut file = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    let mut line = String::new();
    for n in 0..LINES {
        line.clear();
        writeln!(line, "{},host,0,Read,{},4096,100", 128_166_372_003_061_629 + n, n % 1_000 * 4096).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
    drop(file);
    let before = most();
    let source = Source::find(&path, None, Event::Queue, None).unwrap();
    let found = survey(&source, |_| true).unwrap();
    let onto =
        Onto { scale: 1.0, mapping: Mapping::Fail, capacity: 1 << 30, block_size: 512, largest: 1 << 20 };
    let mut feed = Feed::open(&Trace::new(source, &found, onto).unwrap()).unwrap();
    // The reader is far ahead of whoever takes little, if it may.
    let mut taken = 0;
    while feed.take().is_some() {
        taken += 1;
        if taken == 1_000 {
            std::thread::yield_now();
        }
    }
    assert_eq!((found.reads, taken), (LINES, LINES));
    // The file has 46 MB and its operations have 32; what is held at once has less than 2.
    let grown = most() - before;
    assert!(grown < 12 << 20, "{grown}");
}
