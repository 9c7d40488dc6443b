//! The fast kernels and their naive twins agree, over random files, options and cuttings.

use nearside_ndp::{
    Answer, Flow, Line, Position, Search, SearchOptions, Searcher, Sink, Taken,
    naive::{self, Event},
};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Default)]
struct Events {
    events: Vec<Event>,
    /// Takes no more than that.
    room: Option<usize>,
}

impl Events {
    fn push(&mut self, event: Event) -> Taken {
        if self.room.is_some_and(|room| self.events.len() >= room) {
            return Taken::Full;
        }
        self.events.push(event);
        Taken::Yes
    }
}

impl Sink for Events {
    fn line(&mut self, line: Line<'_>) -> Taken {
        let Line { number, offset, bytes, context } = line;
        self.push(Event::Line { number, offset, bytes: bytes.to_vec(), context })
    }

    fn binary(&mut self) -> Taken {
        self.push(Event::Binary)
    }
}

/// Feeds a file from `at` in pieces whose lengths repeat `cuts`; no cuts: whole.
fn drive(searcher: &mut Searcher, file: &[u8], at: Position, cuts: &[usize], sink: &mut Events) -> Flow {
    searcher.begin(at);
    let mut rest = file.get(at.offset as usize..).unwrap();
    if cuts.is_empty() {
        return searcher.whole(rest, sink).unwrap();
    }
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        let flow = searcher.feed(piece, sink).unwrap();
        if flow != Flow::More {
            return flow;
        }
        rest = after;
    }
    searcher.finish(sink).unwrap()
}

fn check(options: &SearchOptions, file: &[u8], cuts: &[usize], room: usize) {
    let compiled = Search::compile(options.clone());
    // The two have other limits of size.
    let Some(twin) = naive::Matcher::new(options) else { return };
    let search = match compiled {
        Ok(search) => Arc::new(search),
        // A pattern that names a newline is refused; the twin would never match it.
        Err(_) => return,
    };
    let (events, found) = naive::search(&twin, file);
    let mut searcher = Searcher::new(&search);
    for cuts in [cuts, &[]] {
        let mut sink = Events::default();
        let flow = drive(&mut searcher, file, Position::default(), cuts, &mut sink);
        assert_eq!(flow, Flow::Done);
        assert_eq!((&sink.events, searcher.found()), (&events, found), "{options:?} {cuts:?}");

        // The same in several commands with room for few results each.
        let mut all = Vec::new();
        let mut at = Position::default();
        loop {
            let mut sink = Events { events: Vec::new(), room: Some(room) };
            let flow = drive(&mut searcher, file, at, cuts, &mut sink);
            all.append(&mut sink.events);
            if flow == Flow::Done {
                break;
            }
            assert_eq!(flow, Flow::Full);
            assert!(searcher.position() != at, "no progress at {at:?}");
            at = searcher.position();
        }
        assert_eq!((&all, searcher.found()), (&events, found), "resumed: {options:?} {cuts:?} {room}");
    }
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        8 => prop::sample::select(b"ab".to_vec()),
        3 => Just(b'\n'),
        2 => prop::sample::select(b"AB_ .-\r\t1".to_vec()),
        1 => any::<u8>(),
    ];
    prop_oneof![
        prop::collection::vec(byte.clone(), 0..200),
        prop::collection::vec(byte, 0..2000),
        prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..60),
    ]
}

fn patterns() -> impl Strategy<Value = (bool, Vec<Vec<u8>>)> {
    let literal = prop::collection::vec(prop::sample::select(b"abAB_\n.1".to_vec()), 0..5);
    let regex = prop_oneof![
        prop::sample::select(vec![
            "a+",
            "a*",
            "^a",
            "b$",
            "^$",
            "",
            "a.b",
            "[^a]b",
            r"\w+",
            r"\s",
            r"\bab",
            r"\Bb",
            "(a|b){2,3}",
            "a|ab|b",
            "(?i)aB",
            r"\Aa",
            r"a\z",
            r"^\s*b",
            r"[^b]*$",
            r"a\W",
            r"\d",
            "(?s).",
            "(?-m)^a",
            "(?s-m)b.$",
            "x",
            "(?u)é|a",
            r"(?u:\w)b",
            r"\xff",
            r"[\x80-\xff]",
            "(",
            "a{1000}{1000}",
            "a\\n",
            "(?:a|b|ab)*1",
            "ab|ba|AB",
            "(|a)",
            "b*?",
            r"(?u)\bb",
            r"\w+bab",
            r"[ab ]*aab$",
            r"(?i)\waba",
            r"^.(aaa|bbb|aba)",
            r"a.*abb.*a",
            r"\w(bbaa|aabb)?bab",
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
        "[ab.^$*+?|()\\[\\]_ ]{0,6}".prop_map(String::into_bytes),
    ];
    prop_oneof![
        prop::collection::vec(literal, 1..4).prop_map(|p| (true, p)),
        prop::collection::vec(regex, 1..3).prop_map(|p| (false, p)),
    ]
}

prop_compose! {
    fn options()(
        (fixed, patterns) in patterns(),
        ignore_case in any::<bool>(),
        invert in prop::bool::weighted(0.3),
        word in prop::bool::weighted(0.2),
        line in prop::bool::weighted(0.1),
        answer in prop::sample::select(vec![Answer::Lines, Answer::Lines, Answer::Matches, Answer::Count, Answer::First]),
        max_count in prop::option::weighted(0.3, 0u64..5),
        before in prop_oneof![Just(0u32), 0u32..4],
        after in prop_oneof![Just(0u32), 0u32..4],
        text in prop::bool::weighted(0.7),
        numbers in any::<bool>(),
    ) -> SearchOptions {
        // The twin finds parts of literals by comparing, without looking at their surroundings.
        let parts = fixed && answer == Answer::Matches;
        SearchOptions {
            patterns, fixed, ignore_case, invert, answer, max_count, before, after, text, numbers,
            word: word && !parts,
            line: line && !parts,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn search_agrees_with_its_twin(
        options in options(),
        file in file(),
        cuts in prop::collection::vec(prop_oneof![1usize..8, 1usize..300], 1..4),
        room in 1usize..6,
    ) {
        check(&options, &file, &cuts, room);
    }
}

/// A file that shows text first and a NUL later: grep's rule, whatever the cutting.
#[test]
fn binary_is_found_alike_however_the_file_is_cut() {
    let mut file = Vec::new();
    while file.len() < 100_000 {
        file.extend_from_slice(b"one line of text\n");
    }
    let options =
        SearchOptions { patterns: vec![b"line".to_vec()], numbers: true, ..SearchOptions::default() };
    for nul in [0, 5, 32_767, 32_768, 32_769, 70_000, 99_999] {
        let mut file = file.clone();
        file[nul] = 0;
        for cuts in [&[1000usize, 7][..], &[40_000], &[32_768], &[131_072], &[33, 50_000]] {
            check(&options, &file, cuts, 700);
        }
    }
}
