//! How fast the kernels are, beside the core's read bandwidth, memcpy, and ripgrep over the same bytes in the same run.
//!
//! `cargo bench -p nearside-ndp` searches 1 GiB (`SCAN_MIB` for less); without `--bench` (as a test) a few MiB. Data is copied in 128 KiB pieces into a hot buffer
//! and scanned there, as the drive does it. Each figure is the best of several rounds, taken in turns.

use nearside_ndp::{
    Answer, Checksum, Counter, Digest, Flow, Line, Position, Search, SearchOptions, Searcher, Sink, Taken,
};
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

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

fn gb_per_s(bytes: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    bytes as f64 / start.elapsed().as_secs_f64() / 1e9
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

fn ripgrep(path: &std::path::Path, bytes: usize, arguments: &[&str]) -> Option<(f64, u64)> {
    let start = Instant::now();
    let out = Command::new("rg")
        .args(["--no-config", "-a", "--no-unicode", "-j1", "--no-mmap", "-c"])
        .args(arguments)
        .arg(path)
        .output()
        .ok()?;
    let rate = bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    Some((rate, String::from_utf8_lossy(&out.stdout).trim().parse().unwrap_or(0)))
}

fn main() {
    let full = std::env::args().any(|a| a == "--bench");
    let mib = std::env::var("SCAN_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(1024usize);
    let (len, rounds) = if full { (mib << 20, 5) } else { (4 << 20, 1) };
    let data = text(len);
    let mut copy = vec![1u8; len];
    let mut hot = Hot(vec![1; CHUNK]);

    let mut floor = [0f64; 3];
    let mut floors = |data: &[u8], hot: &mut Hot| {
        let rates = [
            gb_per_s(len, || _ = black_box(memchr::memchr(0xff, black_box(data)))),
            gb_per_s(len, || copy.copy_from_slice(black_box(data))),
            gb_per_s(len, || hot.over(data, |chunk| _ = black_box(chunk.first().copied()))),
        ];
        for (best, rate) in floor.iter_mut().zip(rates) {
            *best = best.max(rate);
        }
        floor
    };

    type Case<'a> = (&'a str, Searcher, &'a [&'a str]);
    let mut cases: Vec<Case<'_>> = vec![
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
    ];
    let shared = std::path::Path::new("/dev/shm");
    let file = full.then(|| tempfile::NamedTempFile::new_in(shared).ok()).flatten();
    if let Some(file) = &file {
        std::fs::write(file.path(), &data).expect("room for the data in /dev/shm");
    }
    let mut best: Vec<(f64, f64, u64)> = vec![(0.0, 0.0, 0); cases.len()];
    for _ in 0..rounds {
        floors(&data, &mut hot);
        for ((_, searcher, arguments), best) in cases.iter_mut().zip(&mut best) {
            best.0 = best.0.max(gb_per_s(len, || best.2 = run(searcher, &mut hot, &data)));
            if let (Some(file), false) = (&file, arguments.is_empty())
                && let Some((rate, found)) = ripgrep(file.path(), len, arguments)
            {
                best.1 = best.1.max(rate);
                assert_eq!(found, best.2, "ripgrep {arguments:?}");
            }
        }
    }
    let [raw, memcpy, chunked] = floor;
    println!(
        "read {raw:.1} GB/s; memcpy {memcpy:.1} GB/s; copied in 128 KiB pieces to a hot buffer {chunked:.1} GB/s"
    );
    println!(
        "{:<36}{:>10}{:>10}{:>12}{:>10}{:>12}",
        "search", "GB/s", "of read", "ripgrep", "ratio", "lines"
    );
    for ((name, ..), (rate, rg, found)) in cases.iter().zip(&best) {
        let ratio = if *rg > 0.0 { format!("{:.2}", rate / rg) } else { "-".to_owned() };
        println!("{name:<36}{rate:>10.2}{:>10.2}{rg:>12.2}{ratio:>10}{found:>12}", rate / raw);
    }

    let mut other = |name: &str, scan: &mut dyn FnMut(&[u8])| {
        let rate = (0..rounds).map(|_| gb_per_s(len, || hot.over(&data, &mut *scan))).fold(0.0, f64::max);
        println!("{name:<36}{rate:>10.2}{:>10.2}", rate / raw);
    };
    let mut counter = Counter::default();
    other("count lines, words, bytes", &mut |chunk| counter.feed(chunk));
    for digest in [Digest::Crc32c, Digest::Xxh3, Digest::Sha256] {
        let mut sum = Checksum::new(digest);
        other(&format!("{digest:?}"), &mut |chunk| sum.feed(chunk));
    }

    // What a file costs beside its bytes: many small ones against the same bytes in one, all in cache.
    let small = &data[..(512 << 10).min(len)];
    let repeat = if full { 2000 } else { 2 };
    let mut searcher = search(&["NEEDLE_IN_HAY"], |o| o.fixed = true);
    let mut scan = |file: usize| {
        let mut best = f64::MAX;
        for _ in 0..rounds {
            let start = Instant::now();
            for _ in 0..repeat {
                for file in small.chunks(file) {
                    searcher.begin(Position::default());
                    let _ = searcher.whole(black_box(file), &mut ()).expect("short lines");
                    black_box(searcher.found());
                }
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(repeat));
        }
        best
    };
    let (files, one) = (scan(SMALL_FILE), scan(small.len()));
    let each = (files - one) / (small.len() / SMALL_FILE) as f64;
    println!(
        "a file of 16 KiB costs {each:.0} ns beside its scan of {:.0} ns",
        one / (small.len() / SMALL_FILE) as f64
    );
}
