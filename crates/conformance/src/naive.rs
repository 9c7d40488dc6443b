//! The same answers, slowly and plainly: the twin that tests and fuzzers hold the fast kernels against.
//!
//! It takes a whole file, cuts it into lines, and asks about each line alone, with an engine that was
//! compiled by another way (no rewriting of the pattern, no look at more than one line, no prefilter).

use nearside_ndp::{Answer, BINARY_PROBE, Line, SearchOptions, Sink, Taken};
use regex_automata::nfa::thompson::{self, pikevm::PikeVM};
use regex_automata::util::look::LookMatcher;
use regex_automata::util::syntax;

/// A result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A line: what [`Sink::line`] is given.
    Line {
        /// From 1; 0 without numbers.
        number: u64,
        /// In the file.
        offset: u64,
        /// Without the newline.
        bytes: Vec<u8>,
        /// Not a match itself.
        context: bool,
    },
    /// The file is binary: [`Sink::binary`].
    Binary,
}

/// Keeps what a search finds, up to so many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// In the order in which they came.
    pub events: Vec<Event>,
    /// It takes no more than that.
    pub room: usize,
}

impl Default for Events {
    fn default() -> Self {
        Self { events: Vec::new(), room: usize::MAX }
    }
}

impl Events {
    fn push(&mut self, event: Event) -> Taken {
        if self.events.len() >= self.room {
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

/// A plain matcher of one line.
#[derive(Debug)]
pub struct Matcher {
    literals: Vec<Vec<u8>>,
    regex: Option<PikeVM>,
    options: SearchOptions,
}

impl Matcher {
    /// `None` where the patterns do not compile.
    #[must_use]
    pub fn new(options: &SearchOptions) -> Option<Self> {
        let mut made = Self { literals: Vec::new(), regex: None, options: options.clone() };
        if options.fixed && !options.ignore_case && !options.word && !options.line {
            made.literals =
                options.patterns.iter().flat_map(|p| p.split(|b| *b == b'\n')).map(<[u8]>::to_vec).collect();
            return Some(made);
        }
        if options.patterns.is_empty() {
            return Some(made);
        }
        let mut texts = Vec::new();
        for pattern in &options.patterns {
            if !options.fixed {
                texts.push(format!("(?:{})", std::str::from_utf8(pattern).ok()?));
                continue;
            }
            for literal in pattern.split(|b| *b == b'\n') {
                let hex = |literal: &[u8]| literal.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
                texts.push(match std::str::from_utf8(literal) {
                    Ok(text) if !options.bytes => {
                        text.chars().map(|c| format!("\\u{{{:x}}}", u32::from(c))).collect()
                    }
                    _ => format!("(?-u:{})", hex(literal)),
                });
            }
        }
        let mut text = texts.join("|");
        if options.line {
            text = format!("^(?:{text})$");
        } else if options.word && !options.bytes {
            text = format!(r"\b{{start-half}}(?:{text})\b{{end-half}}");
        } else if options.word {
            text = format!(r"(?-u:\b{{start-half}})(?:{text})(?-u:\b{{end-half}})");
        }
        let end = if options.null_data { 0 } else { b'\n' };
        let config = syntax::Config::new()
            .line_terminator(end)
            .unicode(!options.bytes)
            .utf8(false)
            .multi_line(true)
            .case_insensitive(options.ignore_case);
        let mut looks = LookMatcher::new();
        looks.set_line_terminator(end);
        let program = thompson::Config::new().utf8(false).nfa_size_limit(Some(10 << 20)).look_matcher(looks);
        made.regex = Some(PikeVM::builder().syntax(config).thompson(program).build(&text).ok()?);
        Some(made)
    }

    /// Whether one line matches (before `invert`).
    #[must_use]
    pub fn matches(&self, line: &[u8]) -> bool {
        if let Some(regex) = &self.regex {
            return regex.is_match(&mut regex.create_cache(), line);
        }
        self.literals.iter().any(|literal| {
            let starts = 0..=line.len().saturating_sub(literal.len());
            starts.into_iter().any(|start| line.get(start..start + literal.len()) == Some(literal))
        })
    }

    /// The matched parts of a line, as (first byte, end); none that is empty.
    #[must_use]
    pub fn parts(&self, line: &[u8]) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < line.len() {
            let found = match &self.regex {
                Some(regex) => {
                    let input = regex_automata::Input::new(line).span(at..line.len());
                    regex.find(&mut regex.create_cache(), input).map(|m| (m.start(), m.end()))
                }
                None => (at..line.len()).find_map(|start| {
                    let rest = line.get(start..)?;
                    let same = |literal: &&Vec<u8>| rest.starts_with(literal);
                    self.literals.iter().find(same).map(|literal| (start, start + literal.len()))
                }),
            };
            let Some((start, end)) = found else { break };
            if end > start {
                parts.push((start, end));
                at = end;
            } else {
                at = end + 1;
            }
        }
        parts
    }
}

/// Whether a file is passed over: UTF-16 by its mark.
#[must_use]
pub fn passes_over(options: &SearchOptions, file: &[u8]) -> bool {
    let asked = options.max_count != Some(0);
    asked
        && !(options.text || options.null_data)
        && (file.starts_with(b"\xff\xfe") || file.starts_with(b"\xfe\xff"))
}

/// Searches a whole file that is not passed over: the events, and how many lines were found.
#[must_use]
pub fn search(matcher: &Matcher, file: &[u8]) -> (Vec<Event>, u64) {
    let options = &matcher.options;
    let mut lines: Vec<(usize, &[u8])> = Vec::new();
    let mut start = 0;
    let end = if options.null_data { 0 } else { b'\n' };
    for line in file.split_inclusive(|b| *b == end) {
        lines.push((start, line.strip_suffix(&[end]).unwrap_or(line)));
        start += line.len();
    }
    let limit = match options.answer {
        Answer::Files => options.max_count.map_or(1, |max| max.min(1)),
        _ => options.max_count.unwrap_or(u64::MAX),
    };
    let shows = options.answer.shows();
    let minds = !(options.text || options.null_data) && (shows || options.without_binary);
    let first_nul = file.iter().position(|b| *b == 0).filter(|_| minds);
    let early = first_nul.is_some_and(|nul| nul < BINARY_PROBE);
    let mut events = Vec::new();
    let mut found = 0;
    let mut owed = 0u32;
    let mut delivered = 0;
    for (index, (offset, bytes)) in lines.iter().enumerate() {
        let event = |index: usize, context: bool| {
            let (offset, bytes) = lines.get(index).copied().unwrap_or_default();
            let number = if options.numbers { index as u64 + 1 } else { 0 };
            Event::Line { number, offset: offset as u64, bytes: bytes.to_vec(), context }
        };
        if found < limit && matcher.matches(bytes) != options.invert {
            if early || first_nul.is_some_and(|nul| nul < offset + bytes.len()) {
                if options.without_binary {
                    return (events, if shows { found } else { 0 });
                }
                events.push(Event::Binary);
                return (events, found + 1);
            }
            found += 1;
            match options.answer {
                Answer::Count | Answer::Total | Answer::Files => {}
                Answer::Matches => {
                    let number = if options.numbers { index as u64 + 1 } else { 0 };
                    for (from, to) in matcher.parts(bytes).into_iter().filter(|_| !options.invert) {
                        let bytes = bytes.get(from..to).unwrap_or_default().to_vec();
                        let offset = (offset + from) as u64;
                        events.push(Event::Line { number, offset, bytes, context: false });
                    }
                }
                Answer::Lines => {
                    for before in index.saturating_sub(options.before as usize).max(delivered)..index {
                        events.push(event(before, true));
                    }
                    events.push(event(index, false));
                    delivered = index + 1;
                    owed = options.after;
                }
            }
        } else if owed > 0 {
            events.push(event(index, true));
            delivered = index + 1;
            owed -= 1;
        }
    }
    (events, found)
}

/// Lines, words and bytes.
#[must_use]
pub fn count(file: &[u8]) -> (u64, u64, u64) {
    let lines = file.iter().filter(|b| **b == b'\n').count();
    let words = file
        .split(|b| matches!(b, b' ' | 9..=13))
        .filter(|word| word.iter().any(|b| matches!(b, 0x21..=0x7e)))
        .count();
    (lines as u64, words as u64, file.len() as u64)
}
