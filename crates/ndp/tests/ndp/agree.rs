//! The fast kernels and their naive twins agree, over random files, options and cuttings.

use nearside_conformance::naive::{self, Events};
use nearside_ndp::{Answer, Error, Flow, Position, STEP, Search, SearchOptions, Searcher};
use proptest::prelude::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The same file, searched in slices of so many units; nothing takes more than a step beyond one.
fn in_slices(searcher: &mut Searcher, file: &[u8], slice: u64, cuts: &[usize], sink: &mut Events) -> usize {
    let mut pauses = 0;
    let mut run = |work: &mut dyn FnMut(&mut Context<'_>) -> Poll<Flow>| {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match work(&mut context) {
                Poll::Ready(flow) => return flow,
                Poll::Pending => pauses += 1,
            }
        }
    };
    searcher.set_slice(slice);
    searcher.begin(Position::default());
    let mut flow = Flow::More;
    let mut rest = file;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() || flow != Flow::More {
            break;
        }
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        let mut work = pin!(searcher.feed_sliced(piece, sink));
        flow = run(&mut |context| work.as_mut().poll(context).map(Result::unwrap));
        rest = after;
    }
    if flow == Flow::More {
        let mut work = pin!(searcher.finish_sliced(sink));
        flow = run(&mut |context| work.as_mut().poll(context).map(Result::unwrap));
    }
    assert_eq!(flow, Flow::Done);
    searcher.set_slice(nearside_ndp::SLICE);
    pauses
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
    check_sliced(options, file, cuts, room, 1);
}

fn check_sliced(options: &SearchOptions, file: &[u8], cuts: &[usize], room: usize, slice: u64) {
    let compiled = Search::compile(options.clone());
    // The two have other limits of size.
    let Some(twin) = naive::Matcher::new(options) else { return };
    let search = match compiled {
        Ok(search) => Arc::new(search),
        // A pattern that names a newline is refused; the twin would never match it.
        Err(_) => return,
    };
    let mut searcher = Searcher::new(&search);
    if naive::passes_over(options, file) {
        assert_eq!(searcher.whole(file, &mut ()), Err(Error::Utf16));
        searcher.begin(Position::default());
        let (first, rest) = file.split_at(1);
        assert_eq!(searcher.feed(first, &mut ()), Ok(Flow::More));
        assert_eq!(searcher.feed(rest, &mut ()), Err(Error::Utf16));
        return;
    }
    let (events, found) = naive::search(&twin, file);
    let mut sink = Events::default();
    let pauses = in_slices(&mut searcher, file, slice, cuts, &mut sink);
    assert_eq!((&sink.events, searcher.found()), (&events, found), "slices of {slice}: {options:?} {cuts:?}");
    let (most, all) = searcher.spent();
    assert!(most <= slice.max(nearside_ndp::SLICE) + STEP, "{most} units at once: {options:?}");
    assert!(slice > 1 || pauses > 0 || all == 0 || file.is_empty() || options.max_count == Some(0));
    for cuts in [cuts, &[]] {
        let mut sink = Events::default();
        let flow = drive(&mut searcher, file, Position::default(), cuts, &mut sink);
        assert_eq!(flow, Flow::Done);
        assert_eq!((&sink.events, searcher.found()), (&events, found), "{options:?} {cuts:?}");

        // The same in several commands with room for few results each.
        let mut all = Vec::new();
        let mut at = Position::default();
        loop {
            let mut sink = Events { events: Vec::new(), room };
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
        2 => prop::sample::select(b"AB_ .-\r\t1\0".to_vec()),
        1 => any::<u8>(),
    ];
    // Characters of two to four bytes, their halves, and letters that are words only for Unicode.
    let text = prop::sample::select(vec![
        "é", "É", "ß", "ſ", "K", "ж", "Ж", "漢", "😀", "a", "b", "k", "_", " ", "\n", "-", "\u{301}",
    ])
    .prop_map(|s| s.as_bytes().to_vec());
    let half = any::<u8>().prop_map(|b| vec![b | 0x80]);
    let unicode =
        prop::collection::vec(prop_oneof![9 => text, 1 => half], 0..80).prop_map(|all| all.concat());
    prop_oneof![
        unicode.clone(),
        (prop::sample::select(vec![&b"\xff\xfe"[..], b"\xfe\xff", b"\xff", b"\xef\xbb\xbf"]), unicode)
            .prop_map(|(mark, text)| [mark, &text].concat()),
        prop::collection::vec(byte.clone(), 0..200),
        prop::collection::vec(byte, 0..2000),
        prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..60),
    ]
}

/// Expressions, some of which are wrong or too large.
#[rustfmt::skip]
const EXPRESSIONS: &[&str] = &[
    "a+", "a*", "^a", "b$", "^$", "", "a.b", "[^a]b", r"\w+", r"\s", r"\bab", r"\Bb", "(a|b){2,3}",
    "a|ab|b", "(?i)aB", r"\Aa", r"a\z", r"^\s*b", r"[^b]*$", r"a\W", r"\d", "(?s).", "(?-m)^a", "(?s-m)b.$",
    "x", "(?u)é|a", r"(?u:\w)b", r"\xff", r"[\x80-\xff]", r"(?-u)\xc3", r"(?-u:[\x80-\xff])+", r"(?-u:\w)+",
    "é", "(?i)É", "[éß]", "h?.k", r"^.$", r"\b.\b", r"\B", r"\b", r"\b{start}\w+", r"\w+\b{end}",
    r"(?:ж|漢)+\b", r"\pL+", r"\P{L}", r"[^a]+", r".*é.*ß?", r"(?i)straſse|k+", r"\w{2}$",
    r"(?:a{0,40}b?){0,40}[c-e]", r"(?:[a-z]{0,9}[0-9]?){0,60}[A-C]", r"(?:\w{0,9}[0-9]?){0,20}\b[A-C]", "(",
    "a{1000}{1000}", "a\\n", "(?:a|b|ab)*1", "ab|ba|AB", "(|a)", "b*?", r"(?u)\bb", r"\w+bab",
    r"[ab ]*aab$", r"(?i)\waba", r"^.(aaa|bbb|aba)", r"a.*abb.*a", r"\w(bbaa|aabb)?bab",
];

/// Pieces of expressions that go together.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "a", "b", "é", ".", r"\w", r"\b", r"\B", "^", "$", "(a|é)", "(ab|a)", "[^b]", "?", "*", "+", "*?", "|",
    "{2}", r"\s", "(?i)", r"(?-u:\b)",
];

fn patterns() -> impl Strategy<Value = (bool, Vec<Vec<u8>>)> {
    let literal = prop_oneof![
        3 => prop::collection::vec(prop::sample::select(b"abAB_\n.1".to_vec()), 0..5),
        1 => prop::sample::select(vec!["é", "É", "k", "ſ", "жж", "漢", " é"]).prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..3),
    ];
    let regex = prop_oneof![
        prop::sample::select(EXPRESSIONS).prop_map(|s| s.as_bytes().to_vec()),
        "[ab.^$*+?|()\\[\\]_ é]{0,6}".prop_map(String::into_bytes),
        prop::collection::vec(prop::sample::select(PIECES), 1..7)
            .prop_map(|parts| parts.concat().into_bytes()),
    ];
    prop_oneof![
        prop::collection::vec(literal, 1..4).prop_map(|p| (true, p)),
        prop::collection::vec(regex, 1..3).prop_map(|p| (false, p)),
    ]
}

prop_compose! {
    fn options()(
        (fixed, patterns) in patterns(),
        bytes in prop::bool::weighted(0.3),
        ignore_case in any::<bool>(),
        invert in prop::bool::weighted(0.3),
        word in prop::bool::weighted(0.2),
        line in prop::bool::weighted(0.1),
        answer in prop::sample::select(vec![Answer::Lines, Answer::Lines, Answer::Matches, Answer::Count, Answer::Files]),
        max_count in prop::option::weighted(0.3, 0u64..5),
        before in prop_oneof![Just(0u32), 0u32..4],
        after in prop_oneof![Just(0u32), 0u32..4],
        text in prop::bool::weighted(0.7),
        numbers in any::<bool>(),
        without_binary in prop::bool::weighted(0.3),
        null_data in prop::bool::weighted(0.2),
    ) -> SearchOptions {
        SearchOptions {
            patterns, fixed, bytes, ignore_case, invert, word, line, answer, max_count, before, after, text, numbers,
            without_binary, null_data,
            ..SearchOptions::default()
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
        slice in prop_oneof![1u64..4, 4u64..2000],
    ) {
        check_sliced(&options, &file, &cuts, room, slice);
    }
}

/// A file that shows text first and a NUL later: grep's rule, whatever the cutting.
#[test]
fn binary_is_found_alike_however_the_file_is_cut() {
    let mut file = Vec::new();
    while file.len() < 100_000 {
        file.extend_from_slice(b"one line of text\n");
    }
    for nul in [0, 5, 32_767, 32_768, 32_769, 70_000, 99_999] {
        let mut file = file.clone();
        file[nul] = 0;
        for cuts in [&[1000usize, 7][..], &[40_000], &[32_768], &[131_072], &[33, 50_000]] {
            for without_binary in [false, true] {
                let patterns = vec![b"line".to_vec()];
                let options =
                    SearchOptions { patterns, numbers: true, without_binary, ..SearchOptions::default() };
                check(&options, &file, cuts, 700);
                check(&SearchOptions { answer: Answer::Count, ..options }, &file, cuts, 700);
            }
        }
    }
}
