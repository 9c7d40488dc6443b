//! The state of a search in one file: cuts pieces into whole lines and keeps what is left over.

use std::sync::Arc;

use memchr::{memchr, memrchr};
use nearside_near_data::Answer;

use crate::engine::Cache;
use crate::fuel::{Fuel, at_once};
use crate::hay::Hay;
use crate::null_data::{self, Back};
use crate::pattern::Search;
use crate::walk::{self, WalkState};
use crate::{BINARY_PROBE, Error, Flow, MAX_LINE, Position, Sink};

/// An unfinished line that grows beyond this gets all the room that a line can need, so that it is never
/// moved again.
const LONG: usize = 128 << 10;

/// Searches one file after another.
///
/// For each file: [`begin`](Self::begin), then [`feed`](Self::feed) for its pieces in order, then
/// [`finish`](Self::finish); or `begin` and [`whole`](Self::whole), which copies nothing. Each has a form in
/// slices (`feed_sliced` and so on): a future that is pending, and wants no waker, whenever it has worked for
/// [`SLICE`](crate::SLICE) units; whoever polls it decides when it goes on.
#[derive(Debug)]
pub struct Searcher {
    search: Arc<Search>,
    cache: Cache,
    /// The unfinished line's bytes, or the file's first bytes while they are probed.
    carry: Vec<u8>,
    state: WalkState,
    /// The file's first [`BINARY_PROBE`] bytes are being collected.
    probing: bool,
    opening: Opening,
    /// Zeros of the unfinished line for which fewer stand in `carry`.
    hidden: u64,
    /// The unfinished line, where its bytes need not be kept.
    long: LongLine,
    /// Which of the two it is.
    in_parts: bool,
    done: bool,
    fuel: Fuel,
    /// A piece with newlines for NULs.
    swapped: Vec<u8>,
}

impl Searcher {
    /// A searcher at the start of a file.
    #[must_use]
    pub fn new(search: &Arc<Search>) -> Self {
        let mut searcher = Self {
            search: Arc::clone(search),
            cache: search.engine.cache(),
            carry: Vec::new(),
            state: WalkState::default(),
            probing: false,
            opening: Opening::Seen,
            hidden: 0,
            long: LongLine::default(),
            in_parts: search.only_counts() && search.engine.literal_len().is_some(),
            done: false,
            fuel: Fuel::default(),
            swapped: Vec::new(),
        };
        searcher.begin(Position::default());
        searcher
    }

    /// Makes ready for a file, from its start (`Position::default()`) or from where an earlier search left
    /// off. Allocates nothing.
    pub fn begin(&mut self, at: Position) {
        let options = &self.search.options;
        self.cache.begin();
        self.carry.clear();
        if self.carry.capacity() > 1 << 20 {
            self.carry = Vec::new();
        }
        let state = &mut self.state;
        state.history.clear();
        state.offset = at.offset;
        state.line = if self.search.numbers() { at.line.max(1) } else { 0 };
        state.found = at.found;
        let parts = options.answer == Answer::Matches;
        (state.skip, state.after_left) = if parts { (at.pending, 0) } else { (0, at.pending) };
        state.nul = false;
        state.stopped = None;
        self.probing = !self.search.only_counts() && !options.text && at.offset == 0;
        self.opening = if at.offset == 0 && !options.text { Opening::Start } else { Opening::Seen };
        self.long.clear();
        self.hidden = 0;
        self.done = options.max_count.is_some_and(|max| at.found >= max) && state.after_left == 0;
    }

    /// Takes the next piece of the file. After [`Flow::Done`] and [`Flow::Full`] the file needs no more.
    ///
    /// # Errors
    /// [`Error::LineTooLong`], [`Error::Utf16`].
    pub fn feed(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<Flow, Error> {
        at_once(self.feed_sliced(piece, sink))
    }

    /// Takes the next piece of the file, in slices: the future is pending after each.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub async fn feed_sliced(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<Flow, Error> {
        if !self.search.options.null_data {
            return self.take(piece, sink).await;
        }
        let mut swapped = std::mem::take(&mut self.swapped);
        swapped.clear();
        swapped.extend_from_slice(piece);
        null_data::swap(&mut swapped);
        let flow = self.take(&swapped, &mut Back { sink, line: Vec::new() }).await;
        self.swapped = swapped;
        flow
    }

    async fn take(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<Flow, Error> {
        if self.done {
            return Ok(self.ended());
        }
        self.opening.observe(piece)?;
        if self.probing {
            if self.carry.is_empty() && piece.len() >= BINARY_PROBE {
                self.probe(piece);
                return self.pieces(piece, sink).await;
            }
            self.carry.extend_from_slice(piece);
            if self.carry.len() < BINARY_PROBE {
                return Ok(Flow::More);
            }
            let first = std::mem::take(&mut self.carry);
            self.probe(&first);
            return self.pieces(&first, sink).await;
        }
        self.pieces(piece, sink).await
    }

    /// Says that the file has no more bytes: its last line may lack a newline.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub fn finish(&mut self, sink: &mut impl Sink) -> Result<Flow, Error> {
        at_once(self.finish_sliced(sink))
    }

    /// Ends the file, in slices: the future is pending after each.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub async fn finish_sliced(&mut self, sink: &mut impl Sink) -> Result<Flow, Error> {
        match self.search.options.null_data {
            true => self.end(&mut Back { sink, line: Vec::new() }).await,
            false => self.end(sink).await,
        }
    }

    async fn end(&mut self, sink: &mut impl Sink) -> Result<Flow, Error> {
        if self.done {
            return Ok(self.ended());
        }
        if self.probing {
            let first = std::mem::take(&mut self.carry);
            self.probe(&first);
            if self.pieces(&first, sink).await? != Flow::More {
                return Ok(self.ended());
            }
        }
        if (self.in_parts || !self.carry.is_empty()) && self.end_line(sink).await? == Flow::Full {
            return Ok(Flow::Full);
        }
        self.done = true;
        Ok(Flow::Done)
    }

    /// A whole file (or all of it from where the search began) in one piece: `feed` and `finish` without
    /// keeping anything.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub fn whole(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<Flow, Error> {
        at_once(self.whole_sliced(bytes, sink))
    }

    /// Searches a file that is at hand as a whole, in slices: the future is pending after each.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub async fn whole_sliced(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<Flow, Error> {
        let fresh = self.carry.is_empty() && self.long.len == 0;
        if self.done || !fresh || bytes.len() > MAX_LINE || self.search.options.null_data {
            return match self.feed_sliced(bytes, sink).await? {
                Flow::More => self.finish_sliced(sink).await,
                flow => Ok(flow),
            };
        }
        self.opening.observe(bytes)?;
        if self.probing {
            self.probe(bytes);
        }
        Ok(match self.run(Hay::lines(bytes), sink).await {
            Flow::Full => Flow::Full,
            Flow::More | Flow::Done => {
                self.done = true;
                Flow::Done
            }
        })
    }

    /// Lines found so far.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.state.found
    }

    /// Where a search can go on: after [`Flow::Full`] at the first line that was not delivered; else at the
    /// first line that is not finished (at the first that may still become context, where context before is
    /// wanted).
    #[must_use]
    pub fn position(&self) -> Position {
        if let Some(stopped) = self.state.stopped {
            return stopped;
        }
        let state = &self.state;
        let (bytes, lines) = (state.history.bytes() as u64, state.history.lines());
        let parts = self.search.options.answer == Answer::Matches;
        Position {
            offset: state.offset.saturating_sub(bytes),
            line: state.line.saturating_sub(if self.search.numbers() { lines } else { 0 }),
            found: state.found,
            pending: if parts { state.skip } else { state.after_left },
        }
    }

    /// Bytes to feed at once: see [`Search::suggested_piece`].
    #[must_use]
    pub fn suggested_piece(&self) -> usize {
        self.search.suggested_piece()
    }

    /// The search it runs.
    #[must_use]
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// Makes slices of so many units, in place of [`SLICE`](crate::SLICE).
    pub fn set_slice(&mut self, units: u64) {
        self.fuel.set_slice(units);
    }

    /// The most units of work between two pauses so far, and all units.
    #[must_use]
    pub fn spent(&self) -> (u64, u64) {
        self.fuel.spent()
    }

    fn ended(&self) -> Flow {
        if self.state.stopped.is_some() { Flow::Full } else { Flow::Done }
    }

    fn probe(&mut self, first: &[u8]) {
        self.probing = false;
        let first = first.get(..BINARY_PROBE).unwrap_or(first);
        self.state.nul = memchr(0, first).is_some();
    }

    async fn pieces(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<Flow, Error> {
        let mut rest = piece;
        self.fuel.spend_bytes(piece.len()).await;
        if !self.carry.is_empty() || self.long.len > 0 {
            let Some(newline) = memchr(b'\n', rest) else { return self.keep(rest).await };
            let (end, after) = rest.split_at(newline + 1);
            let _ = self.keep(end).await?;
            let newline_len = u64::from(self.in_parts);
            let flow = self.end_line(sink).await?;
            self.state.offset += newline_len;
            if flow != Flow::More {
                return Ok(flow);
            }
            rest = after;
        }
        let Some(last) = memrchr(b'\n', rest) else { return self.keep(rest).await };
        let (lines, left) = rest.split_at(last + 1);
        let flow = self.run(Hay::lines(lines), sink).await;
        if flow != Flow::More {
            return Ok(flow);
        }
        self.keep(left).await
    }

    /// Adds to the unfinished line.
    async fn keep(&mut self, part: &[u8]) -> Result<Flow, Error> {
        let body = part.strip_suffix(b"\n").unwrap_or(part);
        if self.in_parts {
            self.long.add(&self.search, &mut self.cache, body, &mut self.fuel).await;
            return Ok(Flow::More);
        }
        let len = self.carry.len() + body.len();
        if len > MAX_LINE {
            return Err(Error::LineTooLong { offset: self.state.offset });
        }
        if len > LONG && self.carry.capacity() < MAX_LINE {
            self.carry.reserve_exact(MAX_LINE + 1 - self.carry.len());
        }
        self.carry.extend_from_slice(part);
        Ok(Flow::More)
    }

    /// The unfinished line has ended: searches it.
    async fn end_line(&mut self, sink: &mut impl Sink) -> Result<Flow, Error> {
        if self.in_parts {
            let Some((len, matched)) = self.long.end() else { return Ok(Flow::More) };
            self.state.offset += len;
            return Ok(self.count(u64::from(matched != self.search.options.invert)));
        }
        let line = std::mem::take(&mut self.carry);
        let hidden = std::mem::take(&mut self.hidden);
        if hidden > 0 {
            let flow = self.end_shortened(&line, hidden, sink).await;
            self.carry = line;
            self.carry.clear();
            return flow;
        }
        let flow = self.run(Hay::line(&line), sink).await;
        if std::mem::take(&mut self.state.kept_back) {
            self.state.history.add_line(line, self.search.options.before);
        } else {
            self.carry = line;
            self.carry.clear();
        }
        Ok(flow)
    }

    /// Searches a line with `hidden` zeros more than are there. It can be counted, or found to be binary; it
    /// cannot be shown.
    async fn end_shortened(&mut self, line: &[u8], hidden: u64, sink: &mut impl Sink) -> Result<Flow, Error> {
        let Self { search, cache, state, fuel, .. } = &mut *self;
        let options = &search.options;
        let shows = options.answer.shows();
        let mut flow = Flow::More;
        if shows && (options.text || state.after_left > 0) {
            let found = walk::any(&search.engine, cache, Hay::line(line), options.invert, fuel).await;
            if found || state.after_left > 0 {
                return Err(Error::LineTooLong { offset: state.offset });
            }
            state.offset += line.len() as u64;
            state.line += u64::from(options.numbers);
        } else {
            flow = self.run(Hay::line(line), sink).await;
            // Behind a NUL no line is shown any more.
            self.state.kept_back = false;
        }
        self.state.offset += hidden;
        Ok(flow)
    }

    /// Takes `len` zeros of the file, in time that does not grow with them, and says how many: all, or none
    /// where they are wanted as bytes (a line that may have to be shown; the first bytes of a file; a pattern
    /// that counts NULs).
    pub fn zeros(&mut self, len: u64) -> u64 {
        if self.done {
            return len;
        }
        let Some(holes) = self.search.holes.filter(|_| !self.probing && len > 0) else { return 0 };
        let options = &self.search.options;
        let shows = options.answer.shows();
        if shows && (options.text || self.state.after_left > 0) {
            // Up to the longest line that is taken it may be shown; beyond, only an error.
            let line = self.carry.len() as u64 + self.hidden;
            if line.saturating_add(len) <= MAX_LINE as u64 || options.text && options.before > 0 {
                return 0;
            }
        }
        let short = holes.stand_in(len);
        let Ok(stand_in) = usize::try_from(short) else { return 0 };
        if !self.in_parts && self.carry.len() + stand_in > MAX_LINE {
            return 0;
        }
        if self.opening.observe(&[0, 0][..stand_in.min(2)]).is_err() {
            return 0;
        }
        if self.in_parts {
            let Self { search, cache, long, fuel, .. } = self;
            at_once(long.add(search, cache, &vec![0; stand_in], fuel));
            long.len += len - short;
        } else {
            self.carry.resize(self.carry.len() + stand_in, 0);
            self.hidden += len - short;
        }
        self.state.nul |= !self.search.only_counts() && !self.search.options.text;
        len
    }

    /// Searches whole lines.
    async fn run(&mut self, hay: Hay<'_>, sink: &mut impl Sink) -> Flow {
        let Self { search, cache, state, fuel, .. } = self;
        let options = &search.options;
        let found = match options.answer {
            Answer::Count | Answer::Total | Answer::Files if !search.only_counts() => {
                let flow = walk::deliver(search, cache, hay, state, &mut (), fuel).await;
                self.done = flow != Flow::More;
                return flow;
            }
            Answer::Count | Answer::Total => {
                let left = options.max_count.unwrap_or(u64::MAX).saturating_sub(state.found);
                walk::count(&search.engine, cache, hay, options.invert, left, fuel).await
            }
            Answer::Files => u64::from(walk::any(&search.engine, cache, hay, options.invert, fuel).await),
            Answer::Lines | Answer::Matches => {
                let flow = walk::deliver(search, cache, hay, state, sink, fuel).await;
                self.done = flow != Flow::More;
                return flow;
            }
        };
        state.offset += hay.len() as u64;
        self.count(found)
    }

    /// Adds to the count, and ends the file where that is enough.
    fn count(&mut self, found: u64) -> Flow {
        self.state.found += found;
        let options = &self.search.options;
        let limit = match options.answer {
            Answer::Files => 1,
            _ => options.max_count.unwrap_or(u64::MAX),
        };
        self.done = self.state.found >= limit;
        if self.done { Flow::Done } else { Flow::More }
    }
}

/// What is known of a file's first two bytes, where a byte-order mark of UTF-16 may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Start,
    After(u8),
    Seen,
}

impl Opening {
    /// Looks at the next piece.
    pub(crate) fn observe(&mut self, piece: &[u8]) -> Result<(), Error> {
        let two = match (*self, piece) {
            (Self::Seen, _) | (_, []) => return Ok(()),
            (Self::Start, [one]) => {
                *self = Self::After(*one);
                return Ok(());
            }
            (Self::Start, [first, second, ..]) => [*first, *second],
            (Self::After(first), [second, ..]) => [first, *second],
        };
        *self = Self::Seen;
        if matches!(two, [0xff, 0xfe] | [0xfe, 0xff]) { Err(Error::Utf16) } else { Ok(()) }
    }
}

/// An unfinished line of a search that only counts literals: it is searched part by part, and no more of it
/// is kept than a literal across the border of two parts needs.
#[derive(Debug, Default)]
struct LongLine {
    len: u64,
    matched: bool,
    tail: Vec<u8>,
}

impl LongLine {
    async fn add(&mut self, search: &Search, cache: &mut Cache, part: &[u8], fuel: &mut Fuel) {
        self.len += part.len() as u64;
        if self.matched {
            return;
        }
        let keep = search.engine.literal_len().unwrap_or(0).saturating_sub(1);
        let border = part.get(..keep).unwrap_or(part);
        self.tail.extend_from_slice(border);
        self.matched = walk::any(&search.engine, cache, Hay::line(part), false, fuel).await
            || walk::any(&search.engine, cache, Hay::line(&self.tail), false, fuel).await;
        if part.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(part.get(part.len() - keep..).unwrap_or_default());
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(keep));
        }
    }

    /// Its length and whether it matched; `None` where there was none.
    fn end(&mut self) -> Option<(u64, bool)> {
        let ended = (self.len > 0).then_some((self.len, self.matched));
        self.clear();
        ended
    }

    fn clear(&mut self) {
        self.len = 0;
        self.matched = false;
        self.tail.clear();
    }
}
