//! No slice is longer than promised, whatever the pattern and the line: counted in units of work, not in
//! time.

use nearside_conformance::naive::{self, Events};
use nearside_ndp::unordered::{CountLines, Gather};
use nearside_ndp::{Answer, Flow, Line, Position, SLICE, STEP, Search, SearchOptions, Searcher, Sink, Taken};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Patterns of the kind that held a drive for a second each, for one line. None has strings that each match
/// must hold: those are looked for first, and what does not hold them costs little.
const HOSTILE: [&str; 4] = [
    "(?:a{0,200}b?){0,200}[c-h]",
    "(?:[a-z]{0,90}[0-9]?){0,600}[A-Z]",
    r"(?:\w{0,8}\b.?){0,12}\b[^a]$",
    "(?i)(?:x|a|ab|abc|k){0,900}[0-9]{0,900}[!-%]",
];

fn compile(pattern: &str, change: impl FnOnce(&mut SearchOptions)) -> Searcher {
    let mut options =
        SearchOptions { patterns: vec![pattern.into()], answer: Answer::Count, ..SearchOptions::default() };
    change(&mut options);
    Searcher::new(&Arc::new(Search::compile(options).unwrap()))
}

/// Polls work at most so often. `None`: it is not done yet.
fn poll<T>(work: impl Future<Output = T>, polls: &mut u64, most: u64) -> Option<T> {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    while *polls < most {
        *polls += 1;
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return Some(done);
        }
    }
    None
}

/// Searches a file in suggested pieces; how often it was polled, and whether that was enough.
fn search(searcher: &mut Searcher, file: &[u8], sink: &mut impl Sink, most: u64) -> (u64, bool) {
    let mut polls = 0;
    searcher.begin(Position::default());
    for piece in file.chunks(searcher.suggested_piece()) {
        match poll(searcher.feed_sliced(piece, sink), &mut polls, most) {
            None => return (polls, false),
            Some(Ok(Flow::More)) => {}
            Some(flow) => {
                assert_eq!(flow, Ok(Flow::Done));
                return (polls, true);
            }
        }
    }
    let done = poll(searcher.finish_sliced(sink), &mut polls, most);
    assert!(matches!(done, None | Some(Ok(Flow::Done))));
    (polls, done.is_some())
}

#[test]
fn hostile_patterns_are_cut_within_a_line_and_within_a_byte() {
    const MOST: u64 = 1500;
    for pattern in HOSTILE {
        for len in [1 << 10, 1 << 20] {
            for answer in [Answer::Count, Answer::Lines, Answer::Matches] {
                let mut searcher = compile(pattern, |o| o.answer = answer);
                let line: Vec<u8> = b"abcdefgz".iter().copied().cycle().take(len).collect();
                let (polls, _) = search(&mut searcher, &line, &mut (), MOST);
                let (most, all) = searcher.spent();
                assert!(most <= SLICE + STEP, "{pattern}: {most} units in one poll");
                // Neither is work left out of the count: the pattern does cost that much.
                assert!(polls > 10 || all < 10 * SLICE, "{pattern}: {all} units in {polls} polls");
            }
        }
    }
    // Some hundred bytes alone take thousands of slices: a byte takes several.
    let mut searcher = compile(HOSTILE[0], |_| ());
    let (polls, done) = search(&mut searcher, &[b'a'; 100], &mut (), MOST);
    assert!(polls == MOST && !done, "{polls}");
}

#[test]
fn a_search_that_was_cut_often_is_right_in_the_end() {
    let line = b"zzzaaaabaabbbabaaabbaaaaaaaabaabab aaabcab".repeat(3);
    for (pattern, found) in
        [(HOSTILE[0], true), (HOSTILE[3], false), ("(?:[a-z]{0,9}[0-9]?){0,60}[A-C]", false)]
    {
        let mut searcher = compile(pattern, |_| ());
        searcher.set_slice(50);
        let (_, done) = search(&mut searcher, &line, &mut (), u64::MAX);
        assert_eq!((done, searcher.found()), (true, u64::from(found)), "{pattern}");
    }
}

/// Takes lines and checks that they are in order.
#[derive(Default)]
struct Ordered {
    lines: u64,
    next: u64,
}

impl Sink for Ordered {
    fn line(&mut self, line: Line<'_>) -> Taken {
        assert!(line.offset >= self.next, "{} after {}", line.offset, self.next);
        self.next = line.offset + line.bytes.len() as u64;
        self.lines += 1;
        Taken::Yes
    }

    fn binary(&mut self) -> Taken {
        panic!("text");
    }
}

#[test]
fn what_is_not_matching_is_cut_too() {
    let short = vec![b'\n'; 1 << 19];
    let mut long = vec![b'-'; 3 << 20];
    long.extend_from_slice(b"needle\nafter\n");
    let both = [&short[..], &long, &short, b"needle"].concat();
    type Change = fn(&mut SearchOptions);
    let kinds: [(&str, Change); 9] = [
        ("needle", |_| ()),
        ("needle|haystack|straw", |_| ()),
        ("needle", |o| o.word = true),
        (r"n\w+e", |o| o.numbers = true),
        ("^$", |o| o.max_count = Some(100_000)),
        ("needle", |o| (o.before, o.after, o.numbers) = (1_000_000, 1_000_000, true)),
        ("needle", |o| (o.before, o.text) = (3, true)),
        ("-*needle", |o| o.before = 70_000),
        ("needle", |o| o.invert = true),
    ];
    for (pattern, change) in kinds {
        for answer in [Answer::Count, Answer::Files, Answer::Lines, Answer::Matches] {
            let mut searcher = compile(pattern, |o| {
                o.answer = answer;
                change(o);
            });
            let mut sink = Ordered::default();
            let (polls, done) = search(&mut searcher, &both, &mut sink, u64::MAX);
            let (most, all) = searcher.spent();
            assert!(done && searcher.found() > 0, "{pattern} {answer:?}");
            assert!(most <= SLICE + STEP, "{pattern} {answer:?}: {most} units in one poll");
            assert!(
                answer == Answer::Files || polls > 20,
                "{pattern} {answer:?}: {all} units in {polls} polls"
            );
            if pattern == "^$" {
                assert_eq!(searcher.found(), if answer == Answer::Files { 1 } else { 100_000 });
            }
        }
    }
}

#[test]
fn context_that_is_kept_is_what_grep_shows() {
    // Lines of every length, and more of them than are kept in one stretch.
    let mut file = Vec::new();
    for nr in 0..30_000u32 {
        file.extend_from_slice(&b"some text of a line, some more text of it\n"[(nr % 42) as usize..]);
        if nr % 9_999 == 5_000 {
            file.extend_from_slice(&vec![b'.'; 100_000]);
            file.extend_from_slice(b"\nneedle\n");
        }
    }
    for before in [1, 2, 31, 33, 4_000, 20_000] {
        let mut options = SearchOptions { patterns: vec![b"needle".to_vec()], ..SearchOptions::default() };
        (options.before, options.numbers) = (before, true);
        let (events, _) = naive::search(&naive::Matcher::new(&options).unwrap(), &file);
        let mut searcher = Searcher::new(&Arc::new(Search::compile(options).unwrap()));
        for piece in [700, 5_000, 64 << 10] {
            let mut sink = Events::default();
            searcher.begin(Position::default());
            for piece in file.chunks(piece) {
                assert_eq!(searcher.feed(piece, &mut sink), Ok(Flow::More));
            }
            assert_eq!(searcher.finish(&mut sink), Ok(Flow::Done));
            assert!(sink.events == events, "{before} lines before, pieces of {piece}");
        }
    }
}

#[test]
fn blocks_in_any_order_are_cut_too() {
    for pattern in [HOSTILE[1], "needle", r"\bneedle\b"] {
        let options = SearchOptions {
            patterns: vec![pattern.into()],
            answer: Answer::Count,
            ..SearchOptions::default()
        };
        let search = Arc::new(Search::compile(options).unwrap());
        let mut gather = Gather::new(CountLines::new(&search).unwrap());
        let line = [&[b'a'; 64 << 10][..], b" needle\n"].concat();
        let mut polls = 0;
        let done = poll(gather.feed_sliced(64 << 10, b" needle\n"), &mut polls, 10).is_some()
            && poll(gather.feed_sliced(0, &line[..64 << 10]), &mut polls, 500).is_some()
            && poll(gather.finish_sliced(line.len() as u64), &mut polls, 500).is_some();
        assert_eq!(done, pattern != HOSTILE[1], "{pattern}: {polls} polls");
    }
}

#[test]
fn what_is_dear_to_compile_is_known_before_and_what_is_too_dear_is_refused_with_what_to_do() {
    let options =
        |pattern: &str| SearchOptions { patterns: vec![pattern.into()], ..SearchOptions::default() };
    assert!(Search::is_cheap(&options("error")) && Search::is_cheap(&options("é")));
    assert!(Search::is_cheap(&SearchOptions { fixed: true, ..options("a.b*") }));
    for dear in ["a.b", "(", "x+", r"\w", "[é]", "a{2}", "^a", &"a".repeat(10_000), "a\nb"] {
        assert!(!Search::is_cheap(&options(dear)), "{dear}");
    }
    for change in [
        (|o| o.ignore_case = true) as fn(&mut SearchOptions),
        |o| o.word = true,
        |o| o.line = true,
        |o| o.patterns.push(b"b".to_vec()),
        |o| (o.fixed, o.patterns) = (true, vec![b"b\nc".to_vec()]),
    ] {
        let mut options = options("a");
        change(&mut options);
        assert!(!Search::is_cheap(&options), "{options:?}");
    }
    let refused = |pattern: &str| Search::compile(options(pattern)).unwrap_err().to_string();
    assert!(refused(r"\w{900}{900}").contains("10 MiB"));
    assert!(refused(r"\w{900}{900}").contains("-F"));
    assert!(refused(&r"\w\W\pL".repeat(1000)).contains("too many classes"));
    // Long lists are none of that.
    let list: Vec<Vec<u8>> = (0..5_000).map(|nr| format!("host-{nr}.example.org").into_bytes()).collect();
    assert!(Search::compile(SearchOptions { patterns: list, ..SearchOptions::default() }).is_ok());
}

/// The automaton answers for strings as the dedicated engines do, and prefers the same of several.
#[test]
fn strings_and_expressions_of_strings_agree() {
    let file =
        "straw needle haystack\nhay stack needles\nStraße STRASSE\nhaystackneedle\n".repeat(50).into_bytes();
    let find = |pattern: &str, change: fn(&mut SearchOptions)| {
        let mut searcher = compile(pattern, |o| {
            o.answer = Answer::Matches;
            change(o);
        });
        let mut sink = Events::default();
        assert_eq!(searcher.whole(&file, &mut sink), Ok(Flow::Done));
        sink.events
    };
    for (strings, expression) in [
        ("hay|haystack|needle", "(?:ha[y]|h[a]ystack|need[l]e)|x{900}"),
        ("haystack|hay", "h(?:aystack|ay)(?-u:[^a]{0}){0,3}|x{900}"),
        ("n(ee|ee)dles?", "nee(?:dles|dle)|x{900}"),
        ("(?i)straße", "(?i)stra[ßẞ]e|x{900}"),
    ] {
        assert_eq!(find(strings, |_| ()), find(expression, |_| ()), "{strings}");
    }
}
