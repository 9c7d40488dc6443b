//! Runs of zeros taken at once, against the same bytes one by one; and runs that no one could look at one by
//! one.

use std::sync::Arc;

use nearside_conformance::naive::{self, Event, Events, Matcher};
use nearside_ndp::unordered::{CountLines, CountWords, Gather, SumCrc32c};
use nearside_ndp::{Answer, Error, Flow, Position, Search, SearchOptions, Searcher, Sink};
use nearside_random::Rng;

/// A part of a file.
enum FilePart {
    Bytes(Vec<u8>),
    Zeros(u64),
}

fn feed(searcher: &mut Searcher, parts: &[FilePart], sink: &mut impl Sink) -> Result<(), Error> {
    for part in parts {
        match part {
            FilePart::Bytes(bytes) => {
                if searcher.feed(bytes, sink)? != Flow::More {
                    return Ok(());
                }
            }
            FilePart::Zeros(len) => {
                let mut left = *len;
                while left > 0 {
                    let taken = searcher.zeros(left);
                    left -= taken;
                    let piece = left.min(if taken == 0 { 8192 } else { 0 });
                    if searcher.feed(&vec![0; piece as usize], sink)? != Flow::More {
                        return Ok(());
                    }
                    left -= piece;
                }
            }
        }
    }
    searcher.finish(sink).map(drop)
}

fn parts(random: &mut Rng) -> Vec<FilePart> {
    let words = [&b"ab"[..], b"a", b"b", b"\n", b"\n\n", b"word", b"\0", b" b\n", b"xa\n"];
    (0..2 + random.below(14))
        .map(|_| match random.below(3) {
            0 => {
                let most = if random.below(3) == 0 { 60_000 } else { 40 };
                FilePart::Zeros(1 + random.below(most))
            }
            1 => FilePart::Bytes({
                let times = 1 + random.below(4) as usize;
                words[random.below(words.len() as u64) as usize].repeat(times)
            }),
            _ => FilePart::Bytes(words[random.below(words.len() as u64) as usize].to_vec()),
        })
        .collect()
}

const PATTERNS: &[&str] = &[
    "ab",
    "b",
    "word",
    r"a\x00+b",
    r"a\x00{3}b",
    "a.*b",
    "^.*$",
    r"^(?:\x00\x00)*b",
    r"\x00{2,}",
    "a[^x]{30,}b",
    "^a",
    "b$",
    "",
];

#[test]
fn taken_at_once_or_one_by_one() {
    let mut random = Rng(9);
    for turn in 0..6000 {
        let parts = parts(&mut random);
        let file: Vec<u8> = parts
            .iter()
            .flat_map(|part| match part {
                FilePart::Bytes(bytes) => bytes.clone(),
                FilePart::Zeros(len) => vec![0; *len as usize],
            })
            .collect();
        let pattern = PATTERNS[random.below(PATTERNS.len() as u64) as usize];
        let answer = [Answer::Lines, Answer::Matches, Answer::Count, Answer::Files][random.below(4) as usize];
        let options = SearchOptions {
            patterns: vec![pattern.into()],
            bytes: true,
            invert: random.below(4) == 0,
            text: random.below(3) == 0,
            numbers: random.below(2) == 0,
            word: random.below(5) == 0,
            max_count: (random.below(4) == 0).then(|| random.below(4)),
            before: if answer == Answer::Lines { random.below(3) as u32 } else { 0 },
            after: if answer == Answer::Lines { random.below(3) as u32 } else { 0 },
            answer,
            ..SearchOptions::default()
        };
        let (events, found) = naive::search(&Matcher::new(&options).unwrap(), &file);
        let search = Arc::new(Search::compile(options.clone()).unwrap());
        let mut searcher = Searcher::new(&search);
        searcher.begin(Position::default());
        let mut seen = Events::default();
        feed(&mut searcher, &parts, &mut seen).unwrap();
        let what = format!("turn {turn}, {options:?}, {} bytes", file.len());
        assert_eq!(seen.events, events, "{what}");
        assert_eq!(searcher.found(), found, "{what}");
        if let Some(count) = CountLines::new(&search) {
            let mut gather = Gather::new(count);
            assert_eq!(gathered(&mut gather, &parts, &mut random, file.len() as u64), found, "{what}");
        }
    }
}

/// The parts in any order.
fn gathered<O: nearside_ndp::unordered::Unordered>(
    gather: &mut Gather<O>,
    parts: &[FilePart],
    random: &mut Rng,
    size: u64,
) -> O::Answer {
    let mut at = 0;
    let mut placed: Vec<(u64, &FilePart)> = Vec::new();
    for part in parts {
        placed.push((at, part));
        at += match part {
            FilePart::Bytes(bytes) => bytes.len() as u64,
            FilePart::Zeros(len) => *len,
        };
    }
    while !placed.is_empty() {
        let flow = match placed.swap_remove(random.below(placed.len() as u64) as usize) {
            (at, FilePart::Bytes(bytes)) => gather.feed(at, bytes).unwrap(),
            (at, FilePart::Zeros(len)) => match gather.zeros(at, *len).unwrap() {
                Some(flow) => flow,
                None => gather.feed(at, &vec![0; *len as usize]).unwrap(),
            },
        };
        if flow == Flow::Done {
            break;
        }
    }
    gather.finish(size).unwrap()
}

#[test]
fn words_and_checksums() {
    let mut random = Rng(3);
    for _ in 0..300 {
        let parts = parts(&mut random);
        let mut file = Vec::new();
        for part in &parts {
            match part {
                FilePart::Bytes(bytes) => file.extend_from_slice(bytes),
                FilePart::Zeros(len) => file.resize(file.len() + *len as usize, 0),
            }
        }
        let size = file.len() as u64;
        let counted = gathered(&mut Gather::new(CountWords), &parts, &mut random, size);
        assert_eq!((counted.lines, counted.words, counted.bytes), naive::count(&file));
        let crc = gathered(&mut Gather::new(SumCrc32c), &parts, &mut random, size);
        let mut plain = nearside_ndp::Checksum::new(nearside_ndp::Digest::Crc32c);
        plain.feed(&file);
        assert_eq!(crc.to_be_bytes().to_vec(), plain.value());
    }
}

const HUGE: u64 = 16 << 40;

fn searched(
    pattern: &str,
    text: bool,
    answer: Answer,
    parts: &[FilePart],
) -> (Vec<Event>, Result<u64, Error>) {
    let options = SearchOptions {
        patterns: vec![pattern.into()],
        text,
        answer,
        numbers: true,
        ..SearchOptions::default()
    };
    let search = Arc::new(Search::compile(options).unwrap());
    let mut searcher = Searcher::new(&search);
    let mut seen = Events::default();
    let result = feed(&mut searcher, parts, &mut seen);
    (seen.events, result.map(|()| searcher.found()))
}

/// 16 TiB of zeros within a line: counted, told to be binary, passed over; an error only where the line would
/// have to be shown.
#[test]
fn a_line_of_16_tib() {
    let parts = [&b"first\nopen"[..], b"closed\nthird end\n"].map(|bytes| FilePart::Bytes(bytes.to_vec()));
    let [before, after] = parts;
    let parts = [before, FilePart::Zeros(HUGE), after];
    for (pattern, lines) in
        [("first", 1), ("open.*closed", 1), ("n\\x00{20}c", 0), ("e", 2), ("nothing", 0), ("^third", 1)]
    {
        assert_eq!(searched(pattern, false, Answer::Count, &parts).1, Ok(lines), "{pattern}");
        assert_eq!(searched(pattern, true, Answer::Count, &parts).1, Ok(lines), "{pattern}");
    }
    // The NUL comes within the first 32 KiB.
    assert_eq!(searched("third", false, Answer::Lines, &parts), (vec![Event::Binary], Ok(1)));
    let shown = |offset: u64, number: u64, bytes: &[u8]| Event::Line {
        number,
        offset,
        bytes: bytes.to_vec(),
        context: false,
    };
    assert_eq!(searched("first", true, Answer::Lines, &parts), (vec![shown(0, 1, b"first")], Ok(1)));
    // Behind the hole: number and offset are the file's.
    let third = 6 + 4 + HUGE + 7;
    assert_eq!(searched("third", true, Answer::Lines, &parts), (vec![shown(third, 3, b"third end")], Ok(1)));
    assert_eq!(searched("third", true, Answer::Matches, &parts), (vec![shown(third, 3, b"third")], Ok(1)));
    assert_eq!(searched("closed", true, Answer::Lines, &parts).1, Err(Error::LineTooLong { offset: 6 }));
}
