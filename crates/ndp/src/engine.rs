//! One matcher for all of a search's patterns, of whichever kind they are.
//!
//! Strings are looked for by the fastest means there are, in windows that fit a slice. What is not a set of
//! strings is an [`Automaton`]; where its matches must hold strings that are rare, those are looked for first
//! ([`InnerLiterals`]). A call that runs out of fuel is pending; the same call later goes on where it was, as
//! what it has come to is in the [`Cache`].

use std::ops::Range;
use std::task::Poll;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem;
use regex_syntax::hir::Hir;

use crate::automaton::{Automaton, Machine, Want};
use crate::fuel::Fuel;
use crate::hay::Hay;
use crate::inner::{InnerLiterals, Tally};
use crate::tuned::Tuned;

/// Bytes in which a string is looked for at once.
const WINDOW: usize = 16 << 10;
/// Bytes in which several strings are looked for at once.
const SEVERAL: usize = 4 << 10;
/// Longer strings are expressions.
pub(crate) const LONGEST: usize = 4 << 10;

#[derive(Debug)]
pub(crate) enum Engine {
    /// Nothing matches.
    Never,
    Literal(Box<memmem::Finder<'static>>),
    Literals(AhoCorasick),
    Regex(Box<Regex>),
}

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Regex {
    forward: Automaton,
    /// For the starts of matches, where those are wanted.
    reverse: Option<Automaton>,
    inner: Option<InnerLiterals>,
}

/// What an engine writes to while it searches; one per searcher.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    forward: Option<Box<Machine>>,
    reverse: Option<Box<Machine>>,
    tally: Tally,
    literal: Tuned,
    hunt: Hunt,
    /// A string is looked for from there on.
    seek: Option<usize>,
    part: Option<PartSearch>,
}

/// The state of [`Engine::find_line`].
#[derive(Clone, Copy, Debug, Default)]
enum Hunt {
    #[default]
    Idle,
    /// For the next candidate in this line or later.
    Candidate(usize),
    /// In the candidate's line.
    Line { from: usize, to: usize, candidate: usize },
    /// In all that is left.
    Rest(usize),
}

/// The state of [`Engine::find_part`].
#[derive(Clone, Copy, Debug)]
struct PartSearch {
    from: usize,
    /// Its start is looked for.
    end: Option<usize>,
}

impl Cache {
    pub(crate) fn begin(&mut self) {
        self.tally.begin();
        self.literal.begin();
        self.stop();
    }

    fn stop(&mut self) {
        (self.hunt, self.seek, self.part) = (Hunt::Idle, None, None);
        for machine in [&mut self.forward, &mut self.reverse].into_iter().flatten() {
            machine.stop();
        }
    }
}

/// How strings are looked for.
#[derive(Clone, Copy)]
pub(crate) struct Windows {
    /// Of the strings.
    longest: usize,
    window: usize,
    /// In quarters of a unit for a byte.
    cost: u64,
}

impl Windows {
    pub(crate) fn single(longest: usize) -> Self {
        Self { longest, window: WINDOW, cost: 1 }
    }

    pub(crate) fn several(longest: usize) -> Self {
        Self { longest, window: SEVERAL, cost: 4 }
    }
}

/// Looks for a string in windows: `find` gives the start of the first in the bytes that it is shown, and what
/// else the caller needs.
fn in_windows<T>(
    seek: &mut Option<usize>,
    hay: &[u8],
    (from, to): (usize, usize),
    Windows { longest, window, cost }: Windows,
    fuel: &mut Fuel,
    mut find: impl FnMut(&[u8]) -> Option<(usize, T)>,
) -> Poll<Option<(usize, T)>> {
    let mut at = seek.take().unwrap_or(from);
    let more = longest.saturating_sub(1);
    loop {
        if fuel.is_spent() {
            *seek = Some(at);
            return Poll::Pending;
        }
        // A string that begins in the window ends in what is shown.
        let end = (at + window).min(to);
        let shown = hay.get(at..end.saturating_add(more).min(to)).unwrap_or_default();
        let found = find(shown).filter(|(place, _)| end == to || at + *place < end);
        let looked = found.as_ref().map_or(shown.len(), |(place, _)| *place);
        fuel.take(looked as u64 * cost / 4 + 4);
        if let Some((place, what)) = found {
            return Poll::Ready(Some((at + place, what)));
        }
        if end == to {
            return Poll::Ready(None);
        }
        at = end;
    }
}

/// The dearest of the searches for several strings may look at many of them at one place: then a simpler one
/// is taken.
pub(crate) fn is_gentle(literals: &[impl AsRef<[u8]>]) -> bool {
    let long = literals.iter().filter(|l| l.as_ref().len() > 16);
    let mut heads: Vec<&[u8]> = long.filter_map(|l| l.as_ref().get(..8)).collect();
    heads.sort_unstable();
    !heads.windows(4).any(|four| four.first() == four.last())
}

impl Engine {
    /// The matcher of strings.
    pub(crate) fn literals(literals: &[&[u8]]) -> Result<Self, String> {
        match literals {
            [] => Ok(Self::Never),
            [one] => Ok(Self::Literal(Box::new(memmem::Finder::new(one).into_owned()))),
            many => AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind((many.len() > 500).then_some(AhoCorasickKind::ContiguousNFA))
                .prefilter(is_gentle(many))
                .build(many)
                .map(Self::Literals)
                .map_err(|e| e.to_string()),
        }
    }

    /// The matcher of an expression; `parts`: its matches' starts are wanted.
    pub(crate) fn regex(hir: &Hir, parts: bool) -> Result<Self, String> {
        let forward = Automaton::new(hir, false)?;
        let reverse = if parts { Some(Automaton::new(hir, true)?) } else { None };
        Ok(Self::Regex(Box::new(Regex { forward, reverse, inner: InnerLiterals::of(hir) })))
    }

    /// Longest match, where the matcher is a plain set of strings.
    pub(crate) fn literal_len(&self) -> Option<usize> {
        match self {
            Self::Literal(finder) => Some(finder.needle().len()),
            Self::Literals(set) => Some(set.max_pattern_len()),
            Self::Never => Some(0),
            Self::Regex(_) => None,
        }
    }

    pub(crate) fn suggested_piece(&self) -> usize {
        match self {
            Self::Never | Self::Literal(_) => 64 << 10,
            Self::Literals(_) | Self::Regex(_) => 32 << 10,
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Never => 0,
            Self::Literal(finder) => finder.needle().len(),
            Self::Literals(set) => set.memory_usage(),
            Self::Regex(regex) => {
                regex.forward.memory() + regex.reverse.as_ref().map_or(0, Automaton::memory)
            }
        }
    }

    pub(crate) fn cache(&self) -> Cache {
        let Self::Regex(regex) = self else { return Cache::default() };
        Cache {
            forward: Some(Box::new(regex.forward.machine())),
            reverse: regex.reverse.as_ref().map(|r| Box::new(r.machine())),
            ..Cache::default()
        }
    }

    /// A place inside the first line at or after `at` that matches: between its first byte and its newline,
    /// both included. `at` is the start of a line.
    #[inline]
    pub(crate) fn find_line(
        &self,
        cache: &mut Cache,
        hay: Hay<'_>,
        at: usize,
        fuel: &mut Fuel,
    ) -> Poll<Option<usize>> {
        let bytes = hay.bytes;
        if at >= bytes.len() {
            return Poll::Ready(None);
        }
        let whole = (at, bytes.len());
        let found = match self {
            Self::Never => return Poll::Ready(None),
            Self::Literal(finder) => {
                let Cache { literal, seek, .. } = cache;
                in_windows(seek, bytes, whole, Windows::single(finder.needle().len()), fuel, |shown| {
                    literal.find(finder, shown).map(|i| (i, ()))
                })
            }
            Self::Literals(set) => in_windows(
                &mut cache.seek,
                bytes,
                whole,
                Windows::several(set.max_pattern_len()),
                fuel,
                |shown| set.find(shown).map(|m| (m.start(), ())),
            ),
            Self::Regex(regex) => regex.find_line(cache, hay, at, fuel).map(|found| found.map(|at| (at, ()))),
        };
        // An empty match behind the last newline is in no line.
        found.map(|found| {
            found
                .map(|(place, ())| place)
                .filter(|place| *place < bytes.len() || (*place > at && hay.is_open()))
        })
    }

    /// The first match, leftmost first, within `span` of `hay`, which lies in one line; never an empty one.
    pub(crate) fn find_part(
        &self,
        cache: &mut Cache,
        hay: &[u8],
        span: Range<usize>,
        fuel: &mut Fuel,
    ) -> Poll<Option<Range<usize>>> {
        let Range { start, end: to } = span;
        loop {
            let from = cache.part.map_or(start, |part| part.from);
            let found = match self {
                _ if from > to => return self.part(cache, None),
                Self::Never => None,
                Self::Literal(finder) => {
                    let len = finder.needle().len();
                    let found =
                        in_windows(&mut cache.seek, hay, (from, to), Windows::single(len), fuel, |shown| {
                            finder.find(shown).map(|i| (i, ()))
                        });
                    let Poll::Ready(found) = found else { return self.wait(cache, from) };
                    found.map(|(at, ())| at..at + len)
                }
                Self::Literals(set) => {
                    let longest = set.max_pattern_len();
                    let found = in_windows(
                        &mut cache.seek,
                        hay,
                        (from, to),
                        Windows::several(longest),
                        fuel,
                        |shown| set.find(shown).map(|m| (m.start(), m.len())),
                    );
                    let Poll::Ready(found) = found else { return self.wait(cache, from) };
                    found.map(|(at, len)| at..at + len)
                }
                Self::Regex(regex) => match regex.find_part(cache, hay, from..to, fuel) {
                    Poll::Ready(found) => found,
                    Poll::Pending => return Poll::Pending,
                },
            };
            match found {
                Some(part) if part.is_empty() => {
                    cache.part = Some(PartSearch { from: part.end + 1, end: None })
                }
                found => return self.part(cache, found),
            }
        }
    }

    fn wait<T>(&self, cache: &mut Cache, from: usize) -> Poll<T> {
        cache.part = Some(PartSearch { from, end: None });
        Poll::Pending
    }

    fn part(&self, cache: &mut Cache, found: Option<Range<usize>>) -> Poll<Option<Range<usize>>> {
        cache.part = None;
        Poll::Ready(found)
    }
}

impl Regex {
    /// Some place in the first match of a part.
    fn first(
        &self,
        cache: &mut Cache,
        hay: &[u8],
        part: Range<usize>,
        fuel: &mut Fuel,
    ) -> Poll<Option<usize>> {
        let Some(machine) = &mut cache.forward else { return Poll::Ready(None) };
        self.forward.find(machine, hay, part, Want::First, fuel)
    }

    fn find_line(&self, cache: &mut Cache, hay: Hay<'_>, at: usize, fuel: &mut Fuel) -> Poll<Option<usize>> {
        let len = hay.len();
        loop {
            match cache.hunt {
                Hunt::Idle => {
                    let helps = self.inner.is_some() && cache.tally.pays();
                    cache.hunt = if helps { Hunt::Candidate(at) } else { Hunt::Rest(at) };
                }
                Hunt::Rest(from) => {
                    let found = self.first(cache, hay.bytes, from..len, fuel);
                    if let Poll::Ready(place) = found {
                        cache.tally.note_alone(place.unwrap_or(len) - from);
                        cache.hunt = Hunt::Idle;
                    }
                    return found;
                }
                Hunt::Candidate(line) if line >= len => {
                    cache.hunt = Hunt::Idle;
                    return Poll::Ready(None);
                }
                Hunt::Candidate(line) => {
                    let Some(inner) = self.inner.as_ref().filter(|_| cache.tally.pays()) else {
                        // The candidates are too many.
                        cache.hunt = Hunt::Rest(line);
                        continue;
                    };
                    let found =
                        in_windows(&mut cache.seek, hay.bytes, (line, len), inner.windows(), fuel, |shown| {
                            inner.find(shown).map(|i| (i, ()))
                        });
                    let Poll::Ready(found) = found else { return Poll::Pending };
                    let Some((candidate, ())) = found else {
                        cache.hunt = Hunt::Idle;
                        return Poll::Ready(None);
                    };
                    // What is before the first that could begin a match is in none.
                    let from = if inner.prefix { candidate } else { hay.line_start(line, candidate) };
                    let next = hay.next_line(candidate);
                    let newline = hay.bytes.get(next.wrapping_sub(1)) == Some(&b'\n');
                    let to = if newline { next - 1 } else { next };
                    cache.tally.note(next - line, next - from);
                    cache.hunt = Hunt::Line { from, to, candidate };
                }
                Hunt::Line { from, to, candidate } => {
                    let found = self.first(cache, hay.bytes, from..to, fuel);
                    match found {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Some(_)) => {
                            cache.hunt = Hunt::Idle;
                            return Poll::Ready(Some(candidate));
                        }
                        Poll::Ready(None) => cache.hunt = Hunt::Candidate(to + 1),
                    }
                }
            }
        }
    }

    fn find_part(
        &self,
        cache: &mut Cache,
        hay: &[u8],
        span: Range<usize>,
        fuel: &mut Fuel,
    ) -> Poll<Option<Range<usize>>> {
        let Range { start: from, end: to } = span;
        let end = match cache.part.and_then(|part| part.end) {
            Some(end) => end,
            None => {
                let Some(machine) = &mut cache.forward else { return Poll::Ready(None) };
                // A search that is pending has its place in the machine.
                cache.part = Some(PartSearch { from, end: None });
                match self.forward.find(machine, hay, from..to, Want::Best, fuel) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(Some(end)) => end,
                }
            }
        };
        let (Some(reverse), Some(machine)) = (&self.reverse, &mut cache.reverse) else {
            return Poll::Ready(None);
        };
        cache.part = Some(PartSearch { from, end: Some(end) });
        reverse.find(machine, hay, from..end, Want::Best, fuel).map(|start| Some(start.unwrap_or(end)..end))
    }
}
