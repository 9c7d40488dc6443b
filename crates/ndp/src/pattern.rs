//! From patterns to one matcher whose matches lie inside lines.
//!
//! Each pattern is parsed by itself (so that an error names it and its flags stay its own), every way to match a newline is
//! taken out of it, `\A` and `\z` become the line's ends, and the pieces become one alternation. Then a match found
//! anywhere in a run of many lines is a match in the line around it, and no line without a match need be looked at.

use crate::inner::{Inner, Tally};
use crate::tuned::Tuned;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem;
use regex_automata::{Input, meta};
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// What a search answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// The lines, with context.
    #[default]
    Lines,
    /// The matched parts of lines; empty ones are left out.
    Matches,
    /// Only how many lines.
    Count,
    /// Only whether there is one: the file is done at the first.
    First,
}

/// A search, with grep's meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOptions {
    /// Patterns: a line that matches any is found; without any, no line is. The regex crate's syntax over bytes, Unicode off
    /// (`(?u)` turns it on), `^` and `$` at a line's ends.
    pub patterns: Vec<Vec<u8>>,
    /// Patterns are literals. One that holds newlines is several, as in grep.
    pub fixed: bool,
    /// ASCII case is ignored (all case, under `(?u)`).
    pub ignore_case: bool,
    /// Lines that do not match.
    pub invert: bool,
    /// Only matches with no word byte before and after them.
    pub word: bool,
    /// Only matches of whole lines.
    pub line: bool,
    /// What to answer.
    pub answer: Answer,
    /// The file is done after that many lines.
    pub max_count: Option<u64>,
    /// Lines before a match that are also wanted ([`Answer::Lines`]).
    pub before: u32,
    /// Lines after.
    pub after: u32,
    /// Do not look for NUL bytes. Without it, a file with a NUL in its first [`BINARY_PROBE`](crate::BINARY_PROBE) bytes, or before the end of
    /// a found line, answers [`Sink::binary`](crate::Sink::binary) in place of that line. Counts are counts of lines either way.
    pub text: bool,
    /// Count line numbers ([`Answer::Lines`] and [`Answer::Matches`]); it costs a second look at every byte.
    pub numbers: bool,
}

/// A pattern that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    /// Which of the patterns, from 0.
    pub index: usize,
    /// Why.
    pub message: String,
}

/// Bound on the size of a compiled pattern, in bytes.
const PROGRAM_LIMIT: usize = 10 << 20;
/// Bound on the lazy DFA's transition table, in bytes; it has two.
const LAZY_LIMIT: usize = 2 << 20;

/// A compiled search: made once per command, shared by all its files.
#[derive(Debug)]
pub struct Search {
    pub(crate) options: SearchOptions,
    pub(crate) engine: Engine,
}

#[derive(Debug)]
pub(crate) enum Engine {
    /// Nothing matches.
    Never,
    Literal(Box<memmem::Finder<'static>>),
    Literals(AhoCorasick),
    Regex {
        regex: meta::Regex,
        inner: Option<Inner>,
    },
}

/// What an engine writes to while it searches; one per searcher.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    regex: Option<Box<meta::Cache>>,
    tally: Tally,
    literal: Tuned,
}

impl Cache {
    pub(crate) fn begin(&mut self) {
        self.tally.begin();
        self.literal.begin();
    }
}

impl Search {
    /// Compiles patterns. Time and memory are bounded (10 MiB a program); a pattern that needs more is an error.
    pub fn compile(options: SearchOptions) -> Result<Self, PatternError> {
        let engine = Engine::new(&options)?;
        Ok(Self { options, engine })
    }

    /// The options it was compiled from.
    #[must_use]
    pub fn options(&self) -> &SearchOptions {
        &self.options
    }

    /// Bytes whose scan takes about 20 µs or less on one core: long for literals, short for regular expressions.
    #[must_use]
    pub fn suggested_piece(&self) -> usize {
        match &self.engine {
            Engine::Never | Engine::Literal(_) => 64 << 10,
            Engine::Literals(_) => 32 << 10,
            Engine::Regex { regex, inner } if inner.is_some() || regex.is_accelerated() => 32 << 10,
            Engine::Regex { .. } => 8 << 10,
        }
    }

    /// Longest match, where the matcher is a plain set of literals.
    pub(crate) fn literal_len(&self) -> Option<usize> {
        match &self.engine {
            Engine::Literal(finder) => Some(finder.needle().len()),
            Engine::Literals(set) => Some(set.max_pattern_len()),
            Engine::Never => Some(0),
            Engine::Regex { .. } => None,
        }
    }
}

impl Engine {
    fn new(options: &SearchOptions) -> Result<Self, PatternError> {
        let bare = !options.word && !options.line;
        if options.fixed && bare && !options.ignore_case {
            let literals: Vec<&[u8]> =
                options.patterns.iter().flat_map(|p| p.split(|b| *b == b'\n')).collect();
            return Self::literals(&literals);
        }
        let mut hirs = Vec::with_capacity(options.patterns.len());
        for (index, pattern) in options.patterns.iter().enumerate() {
            let fail = |message: String| PatternError { index, message };
            if options.fixed {
                for literal in pattern.split(|b| *b == b'\n') {
                    let text = escape(literal);
                    hirs.push(parse(&text, options.ignore_case).map_err(fail)?);
                }
                continue;
            }
            let text = match std::str::from_utf8(pattern) {
                Ok(text) => text.to_owned(),
                Err(_) => pattern
                    .iter()
                    .map(|b| if b.is_ascii() { char::from(*b).to_string() } else { byte_text(*b) })
                    .collect(),
            };
            let hir = parse(&text, options.ignore_case).map_err(fail)?;
            hirs.push(inside_lines(hir, 0).map_err(fail)?);
        }
        if hirs.is_empty() {
            return Ok(Self::Never);
        }
        let hir = Hir::alternation(hirs);
        if bare && let HirKind::Literal(literal) = hir.kind() {
            return Self::literals(&[&literal.0]);
        }
        let wrap = |before, after, hir| Hir::concat(vec![Hir::look(before), hir, Hir::look(after)]);
        let hir = if options.line {
            wrap(Look::StartLF, Look::EndLF, hir)
        } else if options.word {
            wrap(Look::WordStartHalfAscii, Look::WordEndHalfAscii, hir)
        } else {
            hir
        };
        meta::Builder::new()
            .configure(
                meta::Config::new()
                    .utf8_empty(false)
                    .nfa_size_limit(Some(PROGRAM_LIMIT))
                    .onepass_size_limit(Some(PROGRAM_LIMIT))
                    .hybrid_cache_capacity(LAZY_LIMIT),
            )
            .build_from_hir(&hir)
            .map(|regex| Self::Regex { inner: Inner::of(&hir), regex })
            .map_err(|e| PatternError {
                index: 0,
                message: match e.size_limit() {
                    Some(limit) => format!("the compiled patterns need more than {limit} bytes"),
                    None => e.to_string(),
                },
            })
    }

    fn literals(literals: &[&[u8]]) -> Result<Self, PatternError> {
        match literals {
            [] => Ok(Self::Never),
            [one] => Ok(Self::Literal(Box::new(memmem::Finder::new(one).into_owned()))),
            many => AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind((many.len() > 500).then_some(AhoCorasickKind::ContiguousNFA))
                .build(many)
                .map(Self::Literals)
                .map_err(|e| PatternError { index: 0, message: e.to_string() }),
        }
    }

    pub(crate) fn cache(&self) -> Cache {
        match self {
            Self::Regex { regex, .. } => {
                Cache { regex: Some(Box::new(regex.create_cache())), ..Cache::default() }
            }
            _ => Cache::default(),
        }
    }

    /// A place inside the first line at or after `at` that matches: between its first byte and its newline, both
    /// included. `hay` is a run of whole lines, `at` the start of one.
    #[inline]
    pub(crate) fn find_line(&self, cache: &mut Cache, hay: &[u8], at: usize) -> Option<usize> {
        let rest = hay.get(at..)?;
        let place = match self {
            Self::Never => None,
            Self::Literal(finder) => cache.literal.find(finder, rest).map(|i| at + i),
            Self::Literals(set) => set.find(rest).map(|m| at + m.start()),
            Self::Regex { regex, inner: Some(inner) } if cache.tally.pays() => {
                return Self::find_candidate(regex, inner, cache, hay, at);
            }
            Self::Regex { regex, .. } => half(regex, cache, hay, at..hay.len()),
        }?;
        // An empty match behind the last newline is in no line.
        (place < hay.len() || (place > at && hay.last() != Some(&b'\n'))).then_some(place)
    }

    /// As `find_line`, by looking only at the lines around literals that a match must hold.
    fn find_candidate(
        regex: &meta::Regex,
        inner: &Inner,
        cache: &mut Cache,
        hay: &[u8],
        mut at: usize,
    ) -> Option<usize> {
        while at < hay.len() && cache.tally.pays() {
            let candidate = inner.find(hay, at)?;
            cache.tally.note(candidate - at);
            let before = hay.get(at..candidate).unwrap_or_default();
            let start = memchr::memrchr(b'\n', before).map_or(at, |i| at + i + 1);
            let end = hay.get(candidate..).and_then(|rest| memchr::memchr(b'\n', rest));
            let end = end.map_or(hay.len(), |i| candidate + i);
            if half(regex, cache, hay, start..end).is_some() {
                return Some(candidate);
            }
            at = end + 1;
        }
        // The candidates are too many.
        let rest = (at < hay.len()).then_some(at..hay.len())?;
        half(regex, cache, hay, rest)
    }

    /// The first match, leftmost first, within `span` of `hay`, which lies in one line; never an empty one.
    pub(crate) fn find_part(
        &self,
        cache: &mut Cache,
        hay: &[u8],
        mut span: std::ops::Range<usize>,
    ) -> Option<std::ops::Range<usize>> {
        loop {
            let part = hay.get(span.clone())?;
            let found = match self {
                Self::Never => None,
                Self::Literal(finder) => {
                    finder.find(part).map(|i| span.start + i..span.start + i + finder.needle().len())
                }
                Self::Literals(set) => set.find(part).map(|m| span.start + m.start()..span.start + m.end()),
                Self::Regex { regex, .. } => {
                    let input = Input::new(hay).span(span.clone());
                    match &mut cache.regex {
                        Some(cache) => regex.search_with(cache, &input).map(|m| m.range()),
                        None => regex.find(input).map(|m| m.range()),
                    }
                }
            }?;
            if !found.is_empty() {
                return Some(found);
            }
            span.start = found.end + 1;
        }
    }
}

/// Some place in the first match within `span`.
fn half(regex: &meta::Regex, cache: &mut Cache, hay: &[u8], span: std::ops::Range<usize>) -> Option<usize> {
    let input = Input::new(hay).span(span).earliest(true);
    match &mut cache.regex {
        Some(cache) => regex.search_half_with(cache, &input).map(|m| m.offset()),
        None => regex.search_half(&input).map(|m| m.offset()),
    }
}

fn escape(literal: &[u8]) -> String {
    literal.iter().map(|b| byte_text(*b)).collect()
}

fn byte_text(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || byte == b' ' {
        char::from(byte).to_string()
    } else {
        format!("\\x{byte:02x}")
    }
}

fn parse(text: &str, ignore_case: bool) -> Result<Hir, String> {
    regex_syntax::ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .multi_line(true)
        .case_insensitive(ignore_case)
        .nest_limit(200)
        .build()
        .parse(text)
        .map_err(|e| e.to_string())
}

/// Takes every way to match a newline out of an expression. The parser has bounded the depth.
fn inside_lines(hir: Hir, depth: u32) -> Result<Hir, String> {
    const TOO_DEEP: u32 = 1000;
    if depth > TOO_DEEP {
        return Err("the pattern is nested too deeply".to_owned());
    }
    let each =
        |list: Vec<Hir>| list.into_iter().map(|h| inside_lines(h, depth + 1)).collect::<Result<Vec<_>, _>>();
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => {
            return Err("a newline (\"\\n\") cannot match: a search is by line".to_owned());
        }
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(Class::Unicode(mut class)) => {
            let newline = regex_syntax::hir::ClassUnicodeRange::new('\n', '\n');
            class.difference(&regex_syntax::hir::ClassUnicode::new([newline]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(mut class)) => {
            let newline = regex_syntax::hir::ClassBytesRange::new(b'\n', b'\n');
            class.difference(&regex_syntax::hir::ClassBytes::new([newline]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(Look::Start) => Hir::look(Look::StartLF),
        HirKind::Look(Look::End) => Hir::look(Look::EndLF),
        HirKind::Look(Look::StartCRLF | Look::EndCRLF) => {
            return Err("the flag R is not supported with ^ and $".to_owned());
        }
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(rep) => {
            let sub = Box::new(inside_lines(*rep.sub, depth + 1)?);
            Hir::repetition(Repetition { min: rep.min, max: rep.max, greedy: rep.greedy, sub })
        }
        HirKind::Capture(capture) => inside_lines(*capture.sub, depth + 1)?,
        HirKind::Concat(list) => Hir::concat(each(list)?),
        HirKind::Alternation(list) => Hir::alternation(each(list)?),
    })
}
