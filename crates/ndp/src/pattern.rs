//! From patterns to one expression whose matches lie inside lines.
//!
//! Each pattern is parsed by itself (so that an error names it and its flags stay its own), every way to
//! match a newline is taken out of it, `\A` and `\z` become the line's ends, and the pieces become one
//! alternation. Then a match found anywhere in a run of many lines is a match in the line around it, and no
//! line without a match need be looked at.

use nearside_near_data::{Answer, SearchOptions};
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition, literal};

use crate::engine::{Engine, LONGEST};
use crate::null_data;
use crate::zeros::Holes;

/// A pattern that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    /// Which of the patterns, from 0.
    pub index: usize,
    /// Why.
    pub message: String,
}

/// Bound on what is read before anything is compiled: a class of characters counts for about its ranges.
const CLASSES: usize = 300_000;
/// An expression that comes to so few strings is looked for as strings.
const STRINGS: usize = 32;
/// Patterns that are compiled within a slice.
const CHEAP: usize = 256;

/// A compiled search: made once per command, shared by all its files.
#[derive(Debug)]
pub struct Search {
    pub(crate) options: SearchOptions,
    pub(crate) engine: Engine,
    /// How runs of zeros are shortened; `None` where each counts.
    pub(crate) holes: Option<Holes>,
}

impl Search {
    /// Compiles patterns. Time and memory are bounded, by tenths of a second and tens of MiB; what needs more
    /// is an error. Cannot be interrupted: see [`is_cheap`](Self::is_cheap).
    ///
    /// # Errors
    /// [`PatternError`]: an expression that is not valid, or that needs more than the bounds.
    pub fn compile(mut options: SearchOptions) -> Result<Self, PatternError> {
        options.text |= options.null_data;
        let (engine, holes) = engine(&options)?;
        let holes = holes.filter(|_| !options.null_data);
        Ok(Self { options, engine, holes })
    }

    /// Whether [`compile`](Self::compile) takes no longer than a slice or so: for one short string. Whatever
    /// needs a parser and an automaton takes a tenth of a millisecond and more, and has no place on a thread
    /// that others wait for.
    #[must_use]
    pub fn is_cheap(options: &SearchOptions) -> bool {
        let plain = options.fixed && !options.ignore_case && !options.word && !options.line;
        let literal = |p: &Vec<u8>| p.iter().all(|b| !br"\.+*?()|[]{}^$".contains(b));
        match &options.patterns[..] {
            [] => true,
            [one] => {
                let bare = !options.ignore_case && !options.word && !options.line && literal(one);
                one.len() <= CHEAP && !one.contains(&b'\n') && (plain || bare)
            }
            _ => false,
        }
    }

    /// The options it was compiled from.
    #[must_use]
    pub fn options(&self) -> &SearchOptions {
        &self.options
    }

    /// Whether lines are counted, and no more is looked at: neither shown, nor judged by what is before them.
    pub(crate) fn only_counts(&self) -> bool {
        !self.options.answer.shows() && (self.options.text || !self.options.without_binary)
    }

    /// Whether lines are numbered.
    pub(crate) fn numbers(&self) -> bool {
        self.options.numbers && self.options.answer.shows()
    }

    /// Bytes to hand on at once: work on fewer is spread over more calls, work on more needs more memory.
    #[must_use]
    pub fn suggested_piece(&self) -> usize {
        self.engine.suggested_piece()
    }

    /// Bytes that it holds, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.engine.memory() + self.options.patterns.iter().map(|p| p.len() + 24).sum::<usize>()
    }
}

fn engine(options: &SearchOptions) -> Result<(Engine, Option<Holes>), PatternError> {
    let whole = |message| PatternError { index: 0, message };
    let bare = !options.word && !options.line;
    if options.fixed && bare && !options.ignore_case {
        let literals: Vec<&[u8]> = options.patterns.iter().flat_map(|p| p.split(|b| *b == b'\n')).collect();
        let nul = options.null_data && literals.iter().any(|l| l.contains(&0));
        if literals.iter().all(|l| l.len() <= LONGEST) && !nul {
            return Ok((Engine::literals(&literals).map_err(whole)?, strings_holes(&literals)));
        }
    }
    let mut hirs = Vec::with_capacity(options.patterns.len());
    let mut left = CLASSES;
    for (index, pattern) in options.patterns.iter().enumerate() {
        let fail = |message: String| PatternError { index, message };
        left = left.checked_sub(ranges(pattern, options)).ok_or_else(|| {
            fail("the patterns have too many classes of characters: search for some at a time, or for strings (-F)".to_owned())
        })?;
        if options.fixed {
            for literal in pattern.split(|b| *b == b'\n') {
                let (text, bytes) = escape(literal, options.bytes);
                let hir = parse(&text, bytes, options).map_err(fail)?;
                hirs.push(if options.null_data { inside_lines(hir, true, 0).map_err(fail)? } else { hir });
            }
            continue;
        }
        let (text, bytes) = match std::str::from_utf8(pattern) {
            Ok(text) => (text.to_owned(), options.bytes),
            Err(_) => (
                pattern
                    .iter()
                    .map(|b| if b.is_ascii() { char::from(*b).to_string() } else { byte_text(*b) })
                    .collect(),
                true,
            ),
        };
        let hir = parse(&text, bytes, options).map_err(fail)?;
        hirs.push(inside_lines(hir, options.null_data, 0).map_err(fail)?);
    }
    if hirs.is_empty() {
        return Ok((Engine::Never, strings_holes(&[])));
    }
    let hir = Hir::alternation(hirs);
    if bare && let Some(strings) = strings(&hir) {
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        return Ok((Engine::literals(&strings).map_err(whole)?, strings_holes(&strings)));
    }
    let wrap = |before, after, hir| Hir::concat(vec![Hir::look(before), hir, Hir::look(after)]);
    let hir = if options.line {
        wrap(Look::StartLF, Look::EndLF, hir)
    } else if options.word && options.bytes {
        wrap(Look::WordStartHalfAscii, Look::WordEndHalfAscii, hir)
    } else if options.word {
        wrap(Look::WordStartHalfUnicode, Look::WordEndHalfUnicode, hir)
    } else {
        hir
    };
    let engine = Engine::regex(&hir, options.answer == Answer::Matches).map_err(whole)?;
    Ok((engine, Holes::of(&hir)))
}

fn strings_holes(strings: &[&[u8]]) -> Option<Holes> {
    Some(Holes::of_strings(strings.iter().map(|string| string.len()).max().unwrap_or(0)))
}

/// The strings that an expression means, best first, where they are few and all.
fn strings(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    let fits = |all: &[Vec<u8>]| !all.is_empty() && all.iter().all(|l| l.len() <= LONGEST);
    let literal = |hir: &Hir| match hir.kind() {
        HirKind::Literal(literal) => Some(literal.0.to_vec()),
        _ => None,
    };
    if let Some(one) = literal(hir) {
        return Some(vec![one]).filter(|all| fits(all));
    }
    if let HirKind::Alternation(some) = hir.kind()
        && let Some(all) = some.iter().map(literal).collect::<Option<Vec<_>>>()
    {
        return Some(all).filter(|all| fits(all));
    }
    if !hir.properties().look_set().is_empty() || hir.properties().maximum_len().is_none_or(|n| n > LONGEST) {
        return None;
    }
    let mut extractor = literal::Extractor::new();
    extractor.limit_class(4).limit_repeat(16).limit_literal_len(LONGEST).limit_total(STRINGS);
    let found = extractor.extract(hir);
    let literals = found.literals().filter(|_| found.is_exact())?;
    let all: Vec<Vec<u8>> = literals.iter().map(|l| l.as_bytes().to_vec()).collect();
    Some(all).filter(|all| fits(all) && all.iter().all(|l| !l.is_empty()))
}

/// How much a pattern's classes come to when it is read, at most.
fn ranges(pattern: &[u8], options: &SearchOptions) -> usize {
    if options.fixed {
        return 0;
    }
    let mut escaped = false;
    let cost = |byte: &u8| {
        let class = escaped;
        escaped = !escaped && *byte == b'\\';
        match byte {
            b'p' | b'P' if class => 800,
            b'w' | b'W' | b'd' | b'D' | b's' | b'S' if class && !options.bytes => 800,
            b'[' if options.ignore_case => 40,
            _ => 1,
        }
    };
    pattern.iter().map(cost).sum()
}

/// A pattern for a string, and whether it is one over bytes.
fn escape(literal: &[u8], bytes: bool) -> (String, bool) {
    match std::str::from_utf8(literal) {
        Ok(text) if !bytes => (regex_syntax::escape(text), false),
        _ => (literal.iter().map(|b| byte_text(*b)).collect(), true),
    }
}

fn byte_text(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || byte == b' ' {
        char::from(byte).to_string()
    } else {
        format!("\\x{byte:02x}")
    }
}

fn parse(text: &str, bytes: bool, options: &SearchOptions) -> Result<Hir, String> {
    regex_syntax::ParserBuilder::new()
        .unicode(!bytes)
        .utf8(false)
        .multi_line(true)
        .case_insensitive(options.ignore_case)
        .line_terminator(if options.null_data { 0 } else { b'\n' })
        .nest_limit(200)
        .build()
        .parse(text)
        .map_err(|e| e.to_string())
}

/// Takes every way to match a newline out of an expression. The parser has bounded the depth. `null_data`:
/// every way to match a NUL, after the two have changed places ([`crate::null_data`]).
fn inside_lines(hir: Hir, null_data: bool, depth: u32) -> Result<Hir, String> {
    const TOO_DEEP: u32 = 1000;
    if depth > TOO_DEEP {
        return Err("the pattern is nested too deeply".to_owned());
    }
    let each = |list: Vec<Hir>| {
        list.into_iter().map(|h| inside_lines(h, null_data, depth + 1)).collect::<Result<Vec<_>, _>>()
    };
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if null_data && literal.0.contains(&0) => {
            return Err("a NUL cannot match: lines end in it".to_owned());
        }
        HirKind::Literal(mut literal) if null_data => {
            null_data::swap(&mut literal.0);
            Hir::literal(literal.0)
        }
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => {
            return Err("a newline (\"\\n\") cannot match: a search is by line".to_owned());
        }
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(Class::Unicode(mut class)) => {
            if null_data {
                null_data::swap_characters(&mut class);
            }
            let newline = regex_syntax::hir::ClassUnicodeRange::new('\n', '\n');
            class.difference(&regex_syntax::hir::ClassUnicode::new([newline]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(mut class)) => {
            if null_data {
                null_data::swap_bytes(&mut class);
            }
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
            let sub = Box::new(inside_lines(*rep.sub, null_data, depth + 1)?);
            Hir::repetition(Repetition { min: rep.min, max: rep.max, greedy: rep.greedy, sub })
        }
        HirKind::Capture(capture) => inside_lines(*capture.sub, null_data, depth + 1)?,
        HirKind::Concat(list) => Hir::concat(each(list)?),
        HirKind::Alternation(list) => Hir::alternation(each(list)?),
    })
}
