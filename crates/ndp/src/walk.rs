//! Finding lines in a run of whole lines: the loop that goes from match to match, and the context around them.
//!
//! It never looks at a line in which nothing can match: it asks the engine for the next match, then looks for the newlines on
//! both sides of it. Counting does not even look to the left.

use crate::pattern::{Answer, Cache, Engine, Search};
use crate::{Flow, Line, Position, Sink, Taken};
use memchr::{memchr, memchr_iter, memrchr};

/// A line within a run: first byte, and first byte of the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: usize,
    next: usize,
}

/// What a search remembers between runs of lines.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// First byte of the file not yet searched; a line begins there.
    pub offset: u64,
    /// That line's number, where numbers are counted.
    pub line: u64,
    /// Lines found.
    pub found: u64,
    /// Lines of context still to deliver.
    pub after_left: u32,
    /// Matches of the next line that were delivered before.
    pub skip: u32,
    /// A NUL byte was seen.
    pub nul: bool,
    /// Undelivered whole lines that end at `offset`.
    pub history: Vec<u8>,
    /// Where the sink was full.
    pub stopped: Option<Position>,
}

/// End of the line that holds the byte or newline at `at`: the first byte of the next.
#[inline]
fn next_line(hay: &[u8], at: usize) -> usize {
    hay.get(at..).and_then(|rest| memchr(b'\n', rest)).map_or(hay.len(), |i| at + i + 1)
}

/// How many lines of `hay`, at most `limit`, are found.
pub(crate) fn count(engine: &Engine, cache: &mut Cache, hay: &[u8], invert: bool, limit: u64) -> u64 {
    let cap = if invert { u64::MAX } else { limit };
    let mut matched = 0;
    let mut at = 0;
    while at < hay.len() && matched < cap {
        let Some(place) = engine.find_line(cache, hay, at) else { break };
        matched += 1;
        at = next_line(hay, place);
    }
    if invert { (lines(hay) - matched).min(limit) } else { matched }
}

/// Whether a line of `hay` is found.
pub(crate) fn any(engine: &Engine, cache: &mut Cache, hay: &[u8], invert: bool) -> bool {
    if !invert {
        return !hay.is_empty() && engine.find_line(cache, hay, 0).is_some();
    }
    Selected::new(engine, hay, true).next(cache, 0).is_some()
}

/// Lines in `hay`, a last one without its newline included.
fn lines(hay: &[u8]) -> u64 {
    memchr_iter(b'\n', hay).count() as u64 + u64::from(hay.last().is_some_and(|b| *b != b'\n'))
}

/// The lines that are found, in order.
struct Selected<'a> {
    engine: &'a Engine,
    hay: &'a [u8],
    invert: bool,
    /// The next line that matches, where it is known (invert only).
    matching: Option<Range>,
}

impl<'a> Selected<'a> {
    fn new(engine: &'a Engine, hay: &'a [u8], invert: bool) -> Self {
        Self { engine, hay, invert, matching: None }
    }

    fn matching(&self, cache: &mut Cache, from: usize) -> Option<Range> {
        if from >= self.hay.len() {
            return None;
        }
        let place = self.engine.find_line(cache, self.hay, from)?;
        let before = self.hay.get(from..place).unwrap_or_default();
        let start = memrchr(b'\n', before).map_or(from, |i| from + i + 1);
        Some(Range { start, next: next_line(self.hay, place) })
    }

    /// The first found line at or after `from`, which starts a line.
    fn next(&mut self, cache: &mut Cache, mut from: usize) -> Option<Range> {
        if !self.invert {
            return self.matching(cache, from);
        }
        let len = self.hay.len();
        while from < len {
            let matching = match self.matching.take() {
                Some(known) if known.start >= from => known,
                _ => self.matching(cache, from).unwrap_or(Range { start: len, next: len }),
            };
            if from < matching.start {
                self.matching = Some(matching);
                return Some(Range { start: from, next: next_line(self.hay, from) });
            }
            from = matching.next;
        }
        None
    }
}

/// One run of whole lines, and how far its lines are numbered and delivered.
struct Run<'a, 's, S> {
    hay: &'a [u8],
    numbers: bool,
    state: &'s mut State,
    sink: &'s mut S,
    counted: usize,
    /// End of the last line that was delivered in this run.
    delivered: usize,
}

impl<S: Sink> Run<'_, '_, S> {
    fn number(&mut self, at: usize) -> u64 {
        if self.numbers {
            let part = self.hay.get(self.counted..at).unwrap_or_default();
            self.state.line += memchr_iter(b'\n', part).count() as u64;
            self.counted = self.counted.max(at);
        }
        self.state.line
    }

    /// Says where to go on, when the sink did not take the line at `at`.
    fn stop(&mut self, at: usize, pending: u32) -> Flow {
        let line = self.number(at);
        let offset = self.state.offset + at as u64;
        self.state.stopped = Some(Position { offset, line, found: self.state.found, pending });
        Flow::Full
    }

    fn line(&mut self, range: Range, context: bool) -> Taken {
        let number = self.number(range.start);
        let bytes = self.hay.get(range.start..range.next).unwrap_or_default();
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let offset = self.state.offset + range.start as u64;
        self.sink.line(Line { number, offset, bytes, context })
    }

    /// Context still owed to an earlier match, in the lines from `from` to `until`.
    fn after(&mut self, mut from: usize, until: usize) -> Flow {
        while self.state.after_left > 0 && from < until {
            let range = Range { start: from, next: next_line(self.hay, from) };
            if self.line(range, true) == Taken::Full {
                return self.stop(from, self.state.after_left);
            }
            self.state.after_left -= 1;
            from = range.next;
            self.delivered = from;
            self.state.history.clear();
        }
        Flow::More
    }

    /// Context before the match at `at`.
    fn before(&mut self, at: usize, wanted: u32) -> Flow {
        let mut from = at;
        let mut left = wanted;
        while left > 0 && from > self.delivered {
            from = previous_line(self.hay, from).max(self.delivered);
            left -= 1;
        }
        if self.delivered == 0 && left > 0 && self.history(left) == Flow::Full {
            return Flow::Full;
        }
        while from < at {
            let range = Range { start: from, next: next_line(self.hay, from) };
            if self.line(range, true) == Taken::Full {
                return self.stop(from, 0);
            }
            from = range.next;
            self.delivered = from;
        }
        Flow::More
    }

    /// Context that lies before this run: the last `wanted` lines of the history.
    fn history(&mut self, wanted: u32) -> Flow {
        let history = std::mem::take(&mut self.state.history);
        let mut from = history.len();
        let mut count = 0;
        while count < wanted && from > 0 {
            from = previous_line(&history, from);
            count += 1;
        }
        // Nothing before this run is counted in it yet: `line` is still the run's first.
        let mut number = self.state.line.saturating_sub(u64::from(count));
        while from < history.len() {
            let next = next_line(&history, from);
            let bytes = history.get(from..next).unwrap_or_default();
            let offset = self.state.offset - (history.len() - from) as u64;
            let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            if self.sink.line(Line { number, offset, bytes, context: true }) == Taken::Full {
                self.state.stopped =
                    Some(Position { offset, line: number, found: self.state.found, pending: 0 });
                return Flow::Full;
            }
            number += u64::from(self.numbers);
            from = next;
        }
        Flow::More
    }
}

/// Start of the line that ends just before `at`.
fn previous_line(hay: &[u8], at: usize) -> usize {
    hay.get(..at.saturating_sub(1)).and_then(|before| memrchr(b'\n', before)).map_or(0, |i| i + 1)
}

/// Searches a run of whole lines for lines or matches and moves `state` behind it.
pub(crate) fn deliver<S: Sink>(
    search: &Search,
    cache: &mut Cache,
    hay: &[u8],
    state: &mut State,
    sink: &mut S,
) -> Flow {
    let options = &search.options;
    let parts = options.answer == Answer::Matches;
    let (before, after) = if parts { (0, 0) } else { (options.before, options.after) };
    let limit = options.max_count.unwrap_or(u64::MAX);
    // Byte of this run from which a line's end makes the file binary.
    let nul = match options.text {
        true => None,
        false if state.nul => Some(0),
        false => memchr(0, hay),
    };
    let mut selected = Selected::new(&search.engine, hay, options.invert);
    let mut at = 0;
    // The history belongs to this run only until a line is delivered.
    let mut run = Run { hay, numbers: options.numbers, state, sink, counted: 0, delivered: 0 };
    while at < hay.len() {
        let next = if run.state.found < limit { selected.next(cache, at) } else { None };
        let until = next.map_or(hay.len(), |range| range.start);
        if run.after(at, until) == Flow::Full {
            return Flow::Full;
        }
        let Some(range) = next else {
            if run.state.found >= limit && run.state.after_left == 0 {
                return Flow::Done;
            }
            break;
        };
        if nul.is_some_and(|nul| nul < range.next) {
            if run.sink.binary() == Taken::Full {
                return run.stop(range.start, 0);
            }
            run.state.found += 1;
            return Flow::Done;
        }
        if before > 0 && run.before(range.start, before) == Flow::Full {
            return Flow::Full;
        }
        let skip = std::mem::take(&mut run.state.skip);
        if parts {
            if !options.invert
                && let Err(done) = matches(search, cache, &mut run, range, skip)
            {
                return run.stop(range.start, done);
            }
        } else if run.line(range, false) == Taken::Full {
            return run.stop(range.start, 0);
        }
        run.state.history.clear();
        run.state.found += 1;
        run.state.after_left = after;
        at = range.next;
        run.delivered = at;
        if run.state.found >= limit && after == 0 {
            return Flow::Done;
        }
    }
    let delivered = run.delivered;
    run.number(hay.len());
    if hay.last().is_some_and(|b| *b != b'\n') && options.numbers {
        run.state.line += 1;
    }
    state.offset += hay.len() as u64;
    state.nul |= nul.is_some();
    if before > 0 {
        remember(&mut state.history, hay.get(delivered..).unwrap_or_default(), delivered == 0, before);
    }
    Flow::More
}

/// The matches in a line. `Err`: the sink was full after so many.
fn matches<S: Sink>(
    search: &Search,
    cache: &mut Cache,
    run: &mut Run<'_, '_, S>,
    line: Range,
    skip: u32,
) -> Result<(), u32> {
    let number = run.number(line.start);
    let end = if run.hay.get(line.next - 1) == Some(&b'\n') { line.next - 1 } else { line.next };
    let mut from = line.start;
    let mut done = 0u32;
    while let Some(part) = search.engine.find_part(cache, run.hay, from..end) {
        from = part.end;
        if done >= skip {
            let offset = run.state.offset + part.start as u64;
            let bytes = run.hay.get(part).unwrap_or_default();
            if run.sink.line(Line { number, offset, bytes, context: false }) == Taken::Full {
                return Err(done);
            }
        }
        done = done.saturating_add(1);
    }
    Ok(())
}

/// Keeps the last `wanted` lines of what was not delivered.
fn remember(history: &mut Vec<u8>, rest: &[u8], joins: bool, wanted: u32) {
    if !joins {
        history.clear();
    }
    let mut from = rest.len();
    let mut left = wanted;
    while left > 0 && from > 0 && rest.len() - from < crate::MAX_HISTORY {
        from = previous_line(rest, from);
        left -= 1;
    }
    let mut keep = history.len();
    while left > 0 && keep > 0 {
        keep = previous_line(history, keep);
        left -= 1;
    }
    history.drain(..keep);
    history.extend_from_slice(rest.get(from..).unwrap_or_default());
    while history.len() > crate::MAX_HISTORY {
        let first = next_line(history, 0);
        history.drain(..first);
    }
}
