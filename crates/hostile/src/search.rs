//! Patterns, options, a file and its cutting, all of any bytes: the search agrees with its naive twin, and a
//! search that is interrupted by a full sink goes on where it was.

use nearside_conformance::naive::{self, Events};
use nearside_ndp::{Answer, Flow, Position, Search, SearchOptions, Searcher};
use std::sync::Arc;

/// Runs an input.
pub fn run(data: &[u8]) {
    let Some(([flags, how, max, context, cut, room, length], rest)) = data.split_first_chunk::<7>() else {
        return;
    };
    let Some((pattern, file)) = rest.split_at_checked(usize::from(length % 48)) else { return };
    // The twin is slow where an expression repeats itself often.
    if pattern.iter().filter(|b| b.is_ascii_digit()).count() > 3 {
        return;
    }
    let file = &file[..file.len().min(4096)];
    let flag = |bit: u8| flags >> bit & 1 == 1;
    let answer = [Answer::Lines, Answer::Matches, Answer::Count, Answer::Files][usize::from(how % 4)];
    let options = SearchOptions {
        patterns: pattern.split(|b| *b == 0xfe).map(<[u8]>::to_vec).collect(),
        fixed: flag(0),
        ignore_case: flag(1),
        invert: flag(2),
        word: flag(3),
        line: flag(4),
        bytes: how & 4 != 0,
        text: flag(5),
        numbers: flag(6),
        answer,
        max_count: flag(7).then_some(u64::from(max % 8)),
        before: u32::from(context % 4),
        after: u32::from(context / 4 % 4),
        only_matching_files: false,
        without_binary: how & 8 != 0,
        null_data: how & 16 != 0,
        decompress: false,
    };
    let Ok(search) = Search::compile(options.clone()) else { return };
    let Some(twin) = naive::Matcher::new(&options) else { return };
    if naive::passes_over(&options, file) {
        return;
    }
    let (expected, found) = naive::search(&twin, file);
    let search = Arc::new(search);
    let mut searcher = Searcher::new(&search);
    for room in [usize::MAX, usize::from(room % 8) + 1] {
        let mut events = Vec::new();
        let mut at = Position::default();
        loop {
            let mut sink = Events { events: Vec::new(), room };
            searcher.begin(at);
            let rest = &file[at.offset as usize..];
            let mut flow = Flow::More;
            for piece in rest.chunks(usize::from(*cut).max(1)) {
                flow = searcher.feed(piece, &mut sink).unwrap();
                if flow != Flow::More {
                    break;
                }
            }
            if flow == Flow::More {
                flow = searcher.finish(&mut sink).unwrap();
            }
            events.append(&mut sink.events);
            if flow == Flow::Done {
                break;
            }
            assert_eq!(flow, Flow::Full);
            assert_ne!(searcher.position(), at, "no progress");
            at = searcher.position();
        }
        assert_eq!((&events, searcher.found()), (&expected, found), "{options:?}");
    }
}

/// Files and patterns of every kind of search.
pub fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 4] = [
        b"one line\nanother line with words\n\nthe last one",
        b"aaa\naab\nb\n\xc3\xa4 umlaut\nAaB\r\n",
        b"binary\0 here\nmatch after\n",
        b"2026-11-21T05:44:54 GET /index.html 200\n2026-11-21T05:45:01 GET /missing 404\n",
    ];
    let patterns: [&[u8]; 7] =
        [b"line", b"a+b?", b"^$", b"(GET|POST) /[a-z]+", b"one\xfelast", b"\\w+\\s", b"[^a]$"];
    let mut seeds = Vec::new();
    for (nr, pattern) in patterns.iter().enumerate() {
        for (other, file) in files.iter().enumerate() {
            let flags = (1u8 << ((nr + other) % 8)) & if nr % 2 == 0 { 0xff } else { 0xfe };
            let head = [flags, (nr + other) as u8 % 4, 2, other as u8 * 5, 7, 2, pattern.len() as u8];
            seeds.push([&head[..], pattern, file].concat());
        }
    }
    seeds
}
