//! Finding lines in a run of whole lines: the loop that goes from match to match, and the context around them.
//!
//! It never looks at a line in which nothing can match: it asks the engine for the next match, then looks for the newlines on
//! both sides of it. Counting does not even look to the left.

use std::task::Poll;

use crate::engine::{Cache, Engine};
use crate::fuel::Fuel;
use crate::hay::Hay;
use crate::history::History;
use crate::pattern::{Answer, Search};
use crate::{Flow, Line, Position, Sink, Taken};

/// Units for a line: what it takes to find its ends and to hand it over.
const LINE: u64 = 30;

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
    pub history: History,
    /// The line that was searched alone is not in the history, and should be.
    pub kept_back: bool,
    /// Where the sink was full.
    pub stopped: Option<Position>,
}

/// How many lines of `hay`, at most `limit`, are found.
pub(crate) async fn count(
    engine: &Engine,
    cache: &mut Cache,
    hay: Hay<'_>,
    invert: bool,
    limit: u64,
    fuel: &mut Fuel,
) -> u64 {
    let cap = if invert { u64::MAX } else { limit };
    let mut counting = Counting { at: 0, matched: 0 };
    while counting.go_on(engine, cache, hay, cap, fuel).is_pending() {
        fuel.pause().await;
    }
    let matched = counting.matched;
    if !invert {
        return matched;
    }
    if !hay.single {
        fuel.spend_bytes(hay.len()).await;
    }
    (lines(hay) - matched).min(limit)
}

struct Counting {
    at: usize,
    matched: u64,
}

impl Counting {
    /// Counts as far as the fuel goes: a plain loop, as it is the busiest of all.
    fn go_on(
        &mut self,
        engine: &Engine,
        cache: &mut Cache,
        hay: Hay<'_>,
        cap: u64,
        fuel: &mut Fuel,
    ) -> Poll<()> {
        while self.at < hay.len() && self.matched < cap {
            if fuel.is_spent() {
                return Poll::Pending;
            }
            match engine.find_line(cache, hay, self.at, fuel) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => break,
                Poll::Ready(Some(place)) => {
                    self.matched += 1;
                    self.at = hay.next_line(place);
                    fuel.take(LINE);
                }
            }
        }
        Poll::Ready(())
    }
}

/// The next line that matches.
async fn find(engine: &Engine, cache: &mut Cache, hay: Hay<'_>, at: usize, fuel: &mut Fuel) -> Option<usize> {
    loop {
        match engine.find_line(cache, hay, at, fuel) {
            Poll::Ready(found) => return found,
            Poll::Pending => fuel.pause().await,
        }
    }
}

/// Whether a line of `hay` is found.
pub(crate) async fn any(
    engine: &Engine,
    cache: &mut Cache,
    hay: Hay<'_>,
    invert: bool,
    fuel: &mut Fuel,
) -> bool {
    if !invert {
        return find(engine, cache, hay, 0, fuel).await.is_some();
    }
    Selected { engine, hay, invert, matching: None }.next(cache, 0, fuel).await.is_some()
}

/// Lines in `hay`, a last one without its newline included.
fn lines(hay: Hay<'_>) -> u64 {
    hay.newlines(0, hay.len()) + u64::from(hay.is_open())
}

/// The first NUL byte.
async fn nul(hay: Hay<'_>, fuel: &mut Fuel) -> Option<usize> {
    const WINDOW: usize = 64 << 10;
    for (nr, window) in hay.bytes.chunks(WINDOW).enumerate() {
        if let Some(at) = memchr::memchr(0, window) {
            return Some(nr * WINDOW + at);
        }
        fuel.spend_bytes(window.len()).await;
    }
    None
}

/// The lines that are found, in order.
struct Selected<'a> {
    engine: &'a Engine,
    hay: Hay<'a>,
    invert: bool,
    /// The next line that matches, where it is known (invert only).
    matching: Option<Range>,
}

impl Selected<'_> {
    async fn matching(&self, cache: &mut Cache, from: usize, fuel: &mut Fuel) -> Option<Range> {
        let place = find(self.engine, cache, self.hay, from, fuel).await?;
        fuel.spend(LINE).await;
        Some(Range { start: self.hay.line_start(from, place), next: self.hay.next_line(place) })
    }

    /// The first found line at or after `from`, which starts a line.
    async fn next(&mut self, cache: &mut Cache, mut from: usize, fuel: &mut Fuel) -> Option<Range> {
        if !self.invert {
            return self.matching(cache, from, fuel).await;
        }
        let len = self.hay.len();
        while from < len {
            let matching = match self.matching.take() {
                Some(known) if known.start >= from => known,
                _ => self.matching(cache, from, fuel).await.unwrap_or(Range { start: len, next: len }),
            };
            if from < matching.start {
                self.matching = Some(matching);
                fuel.spend(LINE).await;
                return Some(Range { start: from, next: self.hay.next_line(from) });
            }
            from = matching.next;
        }
        None
    }
}

/// One run of whole lines, and how far its lines are numbered and delivered.
struct Run<'a, 's, S> {
    hay: Hay<'a>,
    numbers: bool,
    state: &'s mut State,
    sink: &'s mut S,
    fuel: &'s mut Fuel,
    counted: usize,
    /// End of the last line that was delivered in this run.
    delivered: usize,
}

impl<S: Sink> Run<'_, '_, S> {
    async fn number(&mut self, at: usize) -> u64 {
        if self.numbers && at > self.counted {
            self.state.line += self.hay.newlines(self.counted, at);
            if !self.hay.single {
                self.fuel.spend_bytes(at - self.counted).await;
            }
            self.counted = at;
        }
        self.state.line
    }

    /// Says where to go on, when the sink did not take the line at `at`.
    async fn stop(&mut self, at: usize, pending: u32) -> Flow {
        let line = self.number(at).await;
        let offset = self.state.offset + at as u64;
        self.state.stopped = Some(Position { offset, line, found: self.state.found, pending });
        Flow::Full
    }

    async fn line(&mut self, range: Range, context: bool) -> Taken {
        let number = self.number(range.start).await;
        let bytes = self.hay.get(range.start, range.next);
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let offset = self.state.offset + range.start as u64;
        self.fuel.spend(LINE + (bytes.len() as u64 / 8).min(crate::fuel::STEP)).await;
        self.sink.line(Line { number, offset, bytes, context })
    }

    /// Context still owed to an earlier match, in the lines from `from` to `until`.
    async fn after(&mut self, mut from: usize, until: usize) -> Flow {
        while self.state.after_left > 0 && from < until {
            let range = Range { start: from, next: self.hay.next_line(from) };
            if self.line(range, true).await == Taken::Full {
                return self.stop(from, self.state.after_left).await;
            }
            self.state.after_left -= 1;
            from = range.next;
            self.delivered = from;
            self.state.history.clear();
        }
        Flow::More
    }

    /// Context before the match at `at`.
    async fn before(&mut self, at: usize, wanted: u32) -> Flow {
        let mut from = at;
        let mut left = wanted;
        while left > 0 && from > self.delivered {
            from = self.hay.previous_line(from).max(self.delivered);
            left -= 1;
            self.fuel.spend(LINE).await;
        }
        if self.delivered == 0 && left > 0 && self.history(left).await == Flow::Full {
            return Flow::Full;
        }
        while from < at {
            let range = Range { start: from, next: self.hay.next_line(from) };
            if self.line(range, true).await == Taken::Full {
                return self.stop(from, 0).await;
            }
            from = range.next;
            self.delivered = from;
        }
        Flow::More
    }

    /// Context that lies before this run: the last `wanted` lines of the history.
    async fn history(&mut self, wanted: u32) -> Flow {
        let history = std::mem::take(&mut self.state.history);
        let (mut skip, stretches) = history.last(u64::from(wanted));
        // Nothing before this run is counted in it yet: `line` is still the run's first.
        let mut number = self.state.line.saturating_sub(history.lines() - skip);
        let mut offset = self.state.offset - history.bytes() as u64;
        for (bytes, lines) in stretches {
            if skip >= lines {
                skip -= lines;
                offset += bytes.len() as u64;
                continue;
            }
            let stretch = Hay { bytes, single: lines == 1 };
            let mut from = 0;
            while from < bytes.len() {
                let next = stretch.next_line(from);
                if skip > 0 {
                    skip -= 1;
                    self.fuel.spend(LINE).await;
                } else {
                    let line = stretch.get(from, next);
                    let line = line.strip_suffix(b"\n").unwrap_or(line);
                    let at = offset + from as u64;
                    self.fuel.spend(LINE + (line.len() as u64 / 8).min(crate::fuel::STEP)).await;
                    if self.sink.line(Line { number, offset: at, bytes: line, context: true }) == Taken::Full
                    {
                        let found = self.state.found;
                        self.state.stopped = Some(Position { offset: at, line: number, found, pending: 0 });
                        return Flow::Full;
                    }
                    number += u64::from(self.numbers);
                }
                from = next;
            }
            offset += bytes.len() as u64;
        }
        Flow::More
    }

    /// The matches in a line. `Err`: the sink was full after so many.
    async fn matches(
        &mut self,
        engine: &Engine,
        cache: &mut Cache,
        line: Range,
        skip: u32,
    ) -> Result<(), u32> {
        let number = self.number(line.start).await;
        let newline = self.hay.bytes.get(line.next - 1) == Some(&b'\n');
        let end = if newline { line.next - 1 } else { line.next };
        let mut from = line.start;
        let mut done = 0u32;
        loop {
            let part = match engine.find_part(cache, self.hay.bytes, from..end, self.fuel) {
                Poll::Pending => {
                    self.fuel.pause().await;
                    continue;
                }
                Poll::Ready(None) => return Ok(()),
                Poll::Ready(Some(part)) => part,
            };
            from = part.end;
            if done >= skip {
                let offset = self.state.offset + part.start as u64;
                let bytes = self.hay.get(part.start, part.end);
                if self.sink.line(Line { number, offset, bytes, context: false }) == Taken::Full {
                    return Err(done);
                }
            }
            done = done.saturating_add(1);
            self.fuel.spend(LINE + ((part.end - part.start) as u64 / 8).min(crate::fuel::STEP)).await;
        }
    }
}

/// Searches a run of whole lines for lines or matches and moves `state` behind it.
pub(crate) async fn deliver<S: Sink>(
    search: &Search,
    cache: &mut Cache,
    hay: Hay<'_>,
    state: &mut State,
    sink: &mut S,
    fuel: &mut Fuel,
) -> Flow {
    let options = &search.options;
    let parts = options.answer == Answer::Matches;
    let (before, after) = if parts { (0, 0) } else { (options.before, options.after) };
    let limit = options.max_count.unwrap_or(u64::MAX);
    // Byte of this run from which a line's end makes the file binary.
    let nul = match options.text {
        true => None,
        false if state.nul => Some(0),
        false => nul(hay, fuel).await,
    };
    let mut selected = Selected { engine: &search.engine, hay, invert: options.invert, matching: None };
    let mut at = 0;
    // The history belongs to this run only until a line is delivered.
    let mut run = Run { hay, numbers: options.numbers, state, sink, fuel, counted: 0, delivered: 0 };
    while at < hay.len() {
        let next = if run.state.found < limit { selected.next(cache, at, run.fuel).await } else { None };
        let until = next.map_or(hay.len(), |range| range.start);
        if run.after(at, until).await == Flow::Full {
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
                return run.stop(range.start, 0).await;
            }
            run.state.found += 1;
            return Flow::Done;
        }
        if before > 0 && run.before(range.start, before).await == Flow::Full {
            return Flow::Full;
        }
        let skip = std::mem::take(&mut run.state.skip);
        if parts {
            if !options.invert
                && let Err(done) = run.matches(&search.engine, cache, range, skip).await
            {
                return run.stop(range.start, done).await;
            }
        } else if run.line(range, false).await == Taken::Full {
            return run.stop(range.start, 0).await;
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
    run.number(hay.len()).await;
    if hay.is_open() && options.numbers {
        run.state.line += 1;
    }
    state.offset += hay.len() as u64;
    state.nul |= nul.is_some();
    state.kept_back = before > 0 && delivered == 0 && hay.single;
    if before > 0 && delivered < hay.len() && !hay.single {
        fuel.spend_bytes(hay.len()).await;
        state.history.add(hay, delivered, before);
    }
    Flow::More
}
