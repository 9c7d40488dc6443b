//! Finding lines in a run of whole lines: the loop that goes from match to match, and the context around
//! them.
//!
//! It never looks at a line in which nothing can match: it asks the engine for the next match, then looks for
//! the newlines on both sides of it. Counting does not even look to the left.

use std::task::{Poll, ready};

use nearside_near_data::Answer;

use crate::engine::{Cache, Engine};
use crate::fuel::Fuel;
use crate::hay::Hay;
use crate::history::History;
use crate::pattern::Search;
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
pub(crate) struct WalkState {
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

/// Whether a line of `hay` is found.
pub(crate) async fn any(
    engine: &Engine,
    cache: &mut Cache,
    hay: Hay<'_>,
    invert: bool,
    fuel: &mut Fuel,
) -> bool {
    Selected::new(engine, hay, invert).next(cache, fuel).await.is_some()
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
    /// Start of the first line that is not judged.
    at: usize,
    /// The next line that matches, where it is known (invert only).
    matching: Option<Range>,
}

impl<'a> Selected<'a> {
    fn new(engine: &'a Engine, hay: Hay<'a>, invert: bool) -> Self {
        Self { engine, hay, invert, at: 0, matching: None }
    }

    /// The next found line.
    #[inline]
    async fn next(&mut self, cache: &mut Cache, fuel: &mut Fuel) -> Option<Range> {
        loop {
            match self.poll_next(cache, fuel) {
                Poll::Ready(next) => return next,
                Poll::Pending => fuel.pause().await,
            }
        }
    }

    /// The next line, as far as the fuel goes. It is asked for every line: not a future, which costs more
    /// than a short line.
    #[inline]
    fn poll_next(&mut self, cache: &mut Cache, fuel: &mut Fuel) -> Poll<Option<Range>> {
        if fuel.is_spent() {
            return Poll::Pending;
        }
        if self.invert {
            return self.poll_other(cache, fuel);
        }
        let found = ready!(self.poll_matching(cache, fuel));
        self.at = found.map_or(self.at, |line| line.next);
        Poll::Ready(found)
    }

    /// The first line from `at` that matches.
    #[inline]
    fn poll_matching(&mut self, cache: &mut Cache, fuel: &mut Fuel) -> Poll<Option<Range>> {
        let place = ready!(self.engine.find_line(cache, self.hay, self.at, fuel));
        fuel.take(LINE);
        Poll::Ready(place.map(|place| Range {
            start: self.hay.line_start(self.at, place),
            next: self.hay.next_line(place),
        }))
    }

    /// The first that does not.
    fn poll_other(&mut self, cache: &mut Cache, fuel: &mut Fuel) -> Poll<Option<Range>> {
        let len = self.hay.len();
        while self.at < len {
            let matching = match self.matching.take() {
                Some(known) => known,
                None => ready!(self.poll_matching(cache, fuel)).unwrap_or(Range { start: len, next: len }),
            };
            if self.at < matching.start {
                self.matching = Some(matching);
                fuel.take(LINE);
                let line = Range { start: self.at, next: self.hay.next_line(self.at) };
                self.at = line.next;
                return Poll::Ready(Some(line));
            }
            self.at = matching.next;
            if fuel.is_spent() {
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }
}

/// One run of whole lines, and how far its lines are numbered and delivered.
struct Run<'a, 's, S> {
    hay: Hay<'a>,
    numbers: bool,
    state: &'s mut WalkState,
    sink: &'s mut S,
    fuel: &'s mut Fuel,
    counted: usize,
    /// End of the last line that was delivered in this run.
    delivered: usize,
}

/// Bytes in which newlines are counted at once.
const COUNTED: usize = 16 << 10;
/// Units for handing over a line of any length: a reply takes no more of it at once.
const HANDED: u64 = crate::fuel::STEP - COUNTED as u64 / 32 - 2 * LINE;

impl<S: Sink> Run<'_, '_, S> {
    /// Numbers the lines before `at`, up to the last [`COUNTED`] bytes.
    async fn number_far(&mut self, at: usize) {
        while self.numbers && !self.hay.single && at - self.counted.min(at) > COUNTED {
            self.number(self.counted + COUNTED);
            self.rest().await;
        }
    }

    /// The number of the line at `at`, which is near what is counted.
    #[inline]
    fn number(&mut self, at: usize) -> u64 {
        if self.numbers && at > self.counted {
            self.state.line += self.hay.newlines(self.counted, at);
            self.fuel.take((at - self.counted).min(COUNTED) as u64 / 32 + 1);
            self.counted = at;
        }
        self.state.line
    }

    /// Says where to go on, when the sink did not take the line at `at`.
    async fn stop(&mut self, at: usize, pending: u32) -> Flow {
        self.number_far(at).await;
        let line = self.number(at);
        let offset = self.state.offset + at as u64;
        self.state.stopped = Some(Position { offset, line, found: self.state.found, pending });
        Flow::Full
    }

    /// Delivers a line. The caller has numbered what is far before it, and pauses.
    #[inline]
    fn line(&mut self, range: Range, context: bool) -> Taken {
        let number = self.number(range.start);
        let bytes = self.hay.get(range.start, range.next);
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let offset = self.state.offset + range.start as u64;
        self.fuel.take(LINE + (bytes.len() as u64 / 8).min(HANDED));
        let taken = self.sink.line(Line { number, offset, bytes, context });
        if taken == Taken::Yes && self.numbers && range.start + bytes.len() < range.next {
            // Its newline need not be looked for again.
            self.state.line += 1;
            self.counted = range.next;
        }
        taken
    }

    /// Pauses where the slice is spent.
    async fn rest(&mut self) {
        if self.fuel.is_spent() {
            self.fuel.pause().await;
        }
    }

    /// Context still owed to an earlier match, in the lines from `from` to `until`.
    async fn after(&mut self, mut from: usize, until: usize) -> Flow {
        while self.state.after_left > 0 && from < until {
            let range = Range { start: from, next: self.hay.next_line(from) };
            if self.line(range, true) == Taken::Full {
                return self.stop(from, self.state.after_left).await;
            }
            self.rest().await;
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
        self.number_far(from).await;
        while from < at {
            let range = Range { start: from, next: self.hay.next_line(from) };
            if self.line(range, true) == Taken::Full {
                return self.stop(from, 0).await;
            }
            self.rest().await;
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
        let number = self.number(line.start);
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

    /// Delivers a selected line, or the matches in it.
    async fn hit(&mut self, search: &Search, cache: &mut Cache, range: Range) -> Flow {
        let skip = std::mem::take(&mut self.state.skip);
        if search.options.answer == Answer::Matches {
            if !search.options.invert
                && let Err(done) = self.matches(&search.engine, cache, range, skip).await
            {
                return self.stop(range.start, done).await;
            }
        } else if self.line(range, false) == Taken::Full {
            return self.stop(range.start, 0).await;
        }
        self.state.history.clear();
        self.state.found += 1;
        self.delivered = range.next;
        Flow::More
    }

    /// A selected line of a binary file: that it matches is all that is said, or not even that.
    async fn binary(&mut self, search: &Search, range: Range) -> Flow {
        if search.options.without_binary {
            if !search.options.answer.shows() {
                self.state.found = 0;
            }
            return Flow::Done;
        }
        if self.sink.binary() == Taken::Full {
            return self.stop(range.start, 0).await;
        }
        self.state.found += 1;
        Flow::Done
    }
}

/// Searches a run of whole lines for lines or matches and moves `state` behind it.
pub(crate) async fn deliver<S: Sink>(
    search: &Search,
    cache: &mut Cache,
    hay: Hay<'_>,
    state: &mut WalkState,
    sink: &mut S,
    fuel: &mut Fuel,
) -> Flow {
    let options = &search.options;
    let context = options.answer == Answer::Lines;
    let (before, after) = if context { (options.before, options.after) } else { (0, 0) };
    let most = options.max_count.unwrap_or(u64::MAX);
    let limit = if options.answer == Answer::Files { most.min(1) } else { most };
    // Byte of this run from which a line's end makes the file binary.
    let nul = match options.text {
        true => None,
        false if state.nul => Some(0),
        false => nul(hay, fuel).await,
    };
    let mut selected = Selected::new(&search.engine, hay, options.invert);
    // The history belongs to this run only until a line is delivered.
    let mut run = Run { hay, numbers: options.numbers, state, sink, fuel, counted: 0, delivered: 0 };
    while selected.at < hay.len() {
        let at = selected.at;
        let next = loop {
            if run.state.found >= limit {
                break None;
            }
            match selected.poll_next(cache, run.fuel) {
                Poll::Ready(next) => break next,
                Poll::Pending => run.fuel.pause().await,
            }
        };
        let until = next.map_or(hay.len(), |range| range.start);
        if run.state.after_left > 0 && run.after(at, until).await == Flow::Full {
            return Flow::Full;
        }
        let Some(range) = next else {
            if run.state.found >= limit && run.state.after_left == 0 {
                return Flow::Done;
            }
            break;
        };
        if before == 0 && range.start - run.counted.min(range.start) > COUNTED {
            run.number_far(range.start).await;
        }
        if nul.is_some_and(|nul| nul < range.next) {
            return run.binary(search, range).await;
        }
        if before > 0 && run.before(range.start, before).await == Flow::Full {
            return Flow::Full;
        }
        if run.fuel.is_spent() {
            run.fuel.pause().await;
        }
        if run.hit(search, cache, range).await == Flow::Full {
            return Flow::Full;
        }
        run.state.after_left = after;
        if run.state.found >= limit && after == 0 {
            return Flow::Done;
        }
    }
    let delivered = run.delivered;
    run.number_far(hay.len()).await;
    run.number(hay.len());
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
