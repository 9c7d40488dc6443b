//! How fast the kernels are, beside the core's read bandwidth or ripgrep over the same bytes in the same run.
//!
//! `cargo bench -p nearside-ndp` searches 1 GiB (`FAST=1`: 256 MiB, fewer rounds; `SCAN_MIB` for another
//! size); without `--bench` (as a test) a few MiB. Data is copied in 128 KiB pieces into a hot buffer and
//! scanned there, as the drive does it. Each figure is the median of several rounds, taken in turns.
//! `NEARSIDE_RECORD_FILE` names a file to which figures are added as JSON lines.

use nearside_loadgen::record::Figure;
use nearside_ndp::{
    Answer, Checksum, Counter, Digest, Flow, Line, Position, Search, SearchOptions, Searcher, Sink, Taken,
};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHUNK: usize = 128 << 10;
const SMALL_FILE: usize = 16 << 10;

/// Text as in source and logs: words of skewed frequency in lines of skewed length.
fn text(len: usize) -> Vec<u8> {
    const WORDS: &[&str] = &[
        "the",
        "of",
        "int",
        "return",
        "struct",
        "if",
        "const",
        "static",
        "for",
        "and",
        "0x1f",
        "value",
        "unsigned",
        "request",
        "(void)",
        "buffer->len",
        "error",
        "queue",
        "controller",
        "INFO",
        "WARN",
        "connection",
        "timeout",
        "=",
        "==",
        "&&",
        "{",
        "}",
        "//",
        "size_t",
        "192.168.10.7",
        "GET",
        "/index.html",
        "completed",
        "in",
        "12ms",
        "that",
        "then",
        "there",
        "other",
    ];
    let mut text = Vec::with_capacity(len + 200);
    let mut seed = 7u64;
    let mut next = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    while text.len() < len {
        for _ in 0..next(12) {
            let (a, b) = (next(WORDS.len() as u64), next(WORDS.len() as u64));
            text.extend_from_slice(WORDS[a.min(b) as usize].as_bytes());
            text.push(b' ');
        }
        if next(200_000) == 0 {
            text.extend_from_slice(b"NEEDLE_IN_HAY");
        }
        text.push(b'\n');
    }
    text.truncate(len);
    text
}

struct Hot(Vec<u8>);

impl Hot {
    /// Copies the data in pieces, as from the store, and gives each to `scan`.
    fn over(&mut self, data: &[u8], mut scan: impl FnMut(&[u8])) {
        for chunk in data.chunks(CHUNK) {
            let hot = &mut self.0[..chunk.len()];
            hot.copy_from_slice(chunk);
            scan(hot);
        }
    }
}

/// Takes lines and forgets them, as a reply buffer with room.
struct Taking(u64);

impl Sink for Taking {
    fn line(&mut self, line: Line<'_>) -> Taken {
        self.0 += black_box(line).bytes.len() as u64;
        Taken::Yes
    }

    fn binary(&mut self) -> Taken {
        Taken::Yes
    }
}

/// Adds what `work` reaches with so many bytes, in GB/s.
fn measure(runs: &mut Vec<f64>, bytes: usize, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    runs.push(bytes as f64 / start.elapsed().as_nanos().max(1) as f64);
}

fn search(patterns: &[&str], change: impl FnOnce(&mut SearchOptions)) -> Searcher {
    let mut options = SearchOptions {
        patterns: patterns.iter().map(|p| p.as_bytes().to_vec()).collect(),
        answer: Answer::Count,
        ..SearchOptions::default()
    };
    change(&mut options);
    Searcher::new(&Arc::new(Search::compile(options).expect("compiles")))
}

fn run(searcher: &mut Searcher, hot: &mut Hot, data: &[u8]) -> u64 {
    let mut sink = Taking(0);
    searcher.begin(Position::default());
    hot.over(data, |chunk| {
        for piece in chunk.chunks(searcher.suggested_piece()) {
            assert_eq!(searcher.feed(piece, &mut sink).expect("short lines"), Flow::More);
        }
    });
    let _ = searcher.finish(&mut sink).expect("short lines");
    searcher.found()
}

/// What ripgrep needs for a file of `bytes` beside what it needs to start at all, in GB/s, and the lines it
/// counts.
fn ripgrep(path: &Path, bytes: usize, startup: Duration, arguments: &[&str]) -> Option<(f64, u64)> {
    let start = Instant::now();
    let out = Command::new("rg")
        .args(["--no-config", "-a", "--no-unicode", "-j1", "--no-mmap", "-c"])
        .args(arguments)
        .arg(path)
        .output()
        .ok()?;
    let rate = bytes as f64 / start.elapsed().saturating_sub(startup).as_nanos().max(1) as f64;
    Some((rate, String::from_utf8_lossy(&out.stdout).trim().parse().unwrap_or(0)))
}

/// Ripgrep's time to start.
fn startup() -> Duration {
    let once = |_| {
        let start = Instant::now();
        let _ = Command::new("rg").arg("--version").output();
        start.elapsed()
    };
    (0..5).map(once).min().unwrap_or_default()
}

/// Prints figures as a table and adds them to the file that `NEARSIDE_RECORD_FILE` names, if it does.
fn report(figures: &[Figure]) {
    for f in figures {
        let [least, most] = f.spread;
        let ratio = match (&f.beside, f.ratio) {
            (Some(beside), Some(ratio)) => format!("{ratio:.2} of {beside}"),
            _ => String::new(),
        };
        println!(
            "{:<46}{:>8.2} {:<5}{:>16}  {ratio}",
            f.name,
            f.value,
            f.unit,
            format!("{least:.2} to {most:.2}")
        );
    }
    let Some(path) = std::env::var_os("NEARSIDE_RECORD_FILE") else { return };
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file for figures");
    for figure in figures {
        let line = serde_json::to_string(figure).expect("plain data");
        writeln!(file, "{line}").expect("room for figures");
    }
}

/// A name, our search, and ripgrep's arguments for the same; none: it has no such.
type Case = (&'static str, Searcher, &'static [&'static str]);

fn cases() -> Vec<Case> {
    vec![
        ("rare literal, -c -F", search(&["NEEDLE_IN_HAY"], |o| o.fixed = true), &["-F", "NEEDLE_IN_HAY"]),
        ("absent literal, -c -F", search(&["ERROR"], |o| o.fixed = true), &["-F", "ERROR"]),
        (
            "absent literal of common letters",
            search(&["the theorem"], |o| o.fixed = true),
            &["-F", "the theorem"],
        ),
        ("frequent word, -c -F the", search(&["the"], |o| o.fixed = true), &["-F", "the"]),
        (
            "three literals",
            search(&["ERROR", "FATAL", "PANIC"], |o| o.fixed = true),
            &["-F", "-e", "ERROR", "-e", "FATAL", "-e", "PANIC"],
        ),
        ("literal, -i", search(&["fatal error"], |o| o.ignore_case = true), &["-i", "fatal error"]),
        ("word, -w", search(&["queues"], |o| o.word = true), &["-w", "queues"]),
        ("regex with a literal", search(&[r"\w+NEEDLE\w+"], |_| ()), &[r"\w+NEEDLE\w+"]),
        ("regex without", search(&[r"[A-Z]{6,}_[0-9]+"], |_| ()), &[r"[A-Z]{6,}_[0-9]+"]),
        ("regex of frequent lines", search(&[r"timeout.*queue"], |_| ()), &[r"timeout.*queue"]),
        ("lines, rare", search(&["NEEDLE_IN_HAY"], |o| (o.answer, o.text) = (Answer::Lines, true)), &[]),
        (
            "lines, rare, numbers, NUL check",
            search(&["NEEDLE_IN_HAY"], |o| (o.answer, o.numbers) = (Answer::Lines, true)),
            &[],
        ),
        (
            "lines, frequent, numbers",
            search(&["the"], |o| (o.answer, o.numbers) = (Answer::Lines, true)),
            &[],
        ),
        ("invert, -c -v the", search(&["the"], |o| o.invert = true), &["-v", "the"]),
    ]
}

fn main() {
    let full = std::env::args().any(|a| a == "--bench");
    let fast = std::env::var_os("FAST").is_some_and(|v| !v.is_empty());
    let (mib, rounds) = if fast { (256, 3) } else { (1024, 5) };
    let mib = std::env::var("SCAN_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(mib);
    let (len, rounds) = if full { (mib << 20, rounds) } else { (4 << 20, 1) };
    let data = text(len);
    let mut hot = Hot(vec![1; CHUNK]);
    let mut cases = cases();
    let shared = std::path::Path::new("/dev/shm");
    let file = full.then(|| tempfile::NamedTempFile::new_in(shared).ok()).flatten();
    if let Some(file) = &file {
        std::fs::write(file.path(), &data).expect("room for the data in /dev/shm");
    }
    let startup = startup();
    let mut read = Vec::new();
    let mut runs: Vec<[Vec<f64>; 2]> = vec![Default::default(); cases.len()];
    for _ in 0..rounds {
        measure(&mut read, len, || _ = black_box(memchr::memchr(0xff, black_box(&data))));
        for ((_, searcher, arguments), [ours, theirs]) in cases.iter_mut().zip(&mut runs) {
            let mut found = 0;
            measure(ours, len, || found = run(searcher, &mut hot, &data));
            if let (Some(file), false) = (&file, arguments.is_empty())
                && let Some((rate, lines)) = ripgrep(file.path(), len, startup, arguments)
            {
                theirs.push(rate);
                assert_eq!(lines, found, "ripgrep {arguments:?}");
            }
        }
    }
    let read = Figure::of("read bandwidth", "GB/s", &read);
    let mut figures = Vec::new();
    for ((name, ..), [ours, theirs]) in cases.iter().zip(&runs) {
        let ours = Figure::of(&format!("scan: {name}"), "GB/s", ours);
        figures.push(match theirs.is_empty() {
            true => ours.beside(&read),
            false => ours.beside(&Figure::of("ripgrep -j1 on the same bytes", "GB/s", theirs)),
        });
    }
    let mut other = |name: &str, scan: &mut dyn FnMut(&[u8])| {
        let mut runs = Vec::new();
        (0..rounds).for_each(|_| measure(&mut runs, len, || hot.over(&data, &mut *scan)));
        figures.push(Figure::of(&format!("scan: {name}"), "GB/s", &runs).beside(&read));
    };
    let mut counter = Counter::default();
    other("count lines, words, bytes", &mut |chunk| counter.feed(chunk));
    for digest in [Digest::Crc32c, Digest::Xxh3, Digest::Sha256] {
        let mut sum = Checksum::new(digest);
        other(&format!("{digest:?}"), &mut |chunk| sum.feed(chunk));
    }
    figures.push(small_files(&data[..(512 << 10).min(len)], if full { 2000 } else { 2 }, rounds));
    report(&figures);
}

/// What a file of 16 KiB costs beside its bytes: many small ones against the same bytes in one, all in cache.
fn small_files(data: &[u8], repeat: u32, rounds: usize) -> Figure {
    let mut searcher = search(&["NEEDLE_IN_HAY"], |o| o.fixed = true);
    let mut scan = |file: usize| {
        let start = Instant::now();
        for _ in 0..repeat {
            for file in data.chunks(file) {
                searcher.begin(Position::default());
                let _ = searcher.whole(black_box(file), &mut ()).expect("short lines");
                black_box(searcher.found());
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(repeat) / (data.len() / SMALL_FILE) as f64
    };
    let (mut each, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (files, one) = (scan(SMALL_FILE), scan(data.len()));
        each.push(files);
        bytes.push(one);
    }
    let beside = Figure::of("its bytes in one long scan", "ns", &bytes);
    Figure::of("scan: a file of 16 KiB", "ns", &each).beside(&beside)
}
