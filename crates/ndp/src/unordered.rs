//! Operations whose blocks may arrive in any order: the paper's data provider (DAC'23 III-C) hands blocks on
//! as the medium delivers them, where the operation allows it.
//!
//! Each block is scanned alone and leaves a summary; summaries of neighbours join, and joining is
//! associative, so that the last summary is that of the file, whatever the order. [`Gather`] keeps those that
//! wait for a neighbour. [`CountLines`] (a search that shows no lines), [`CountWords`] and [`SumCrc32c`]
//! work this way; lines, matched parts, XXH3 and SHA-256 need their bytes in order.
//!
//! Memory: a search keeps of each stretch without a missing block its first and its last line's bytes: at
//! most twice [`MAX_LINE`] a stretch, and as many stretches as the caller lets blocks run ahead. The others
//! keep some words.

use std::collections::BTreeMap;
use std::sync::Arc;

use nearside_near_data::Answer;

use crate::engine::Cache;
use crate::fuel::{Fuel, at_once};
use crate::hay::Hay;
use crate::pattern::Search;
use crate::search::Opening;
use crate::{Counted, Error, Flow, MAX_LINE, walk, zeros};

/// An operation over blocks in any order. Its futures are pending at the end of each slice, as those of a
/// [`Searcher`](crate::Searcher).
#[allow(async_fn_in_trait, reason = "used generically, never as a trait object")]
pub trait Unordered {
    /// What a stretch of the file leaves behind.
    type Summary;
    /// The answer for a file.
    type Answer;

    /// Looks at one stretch; `offset` is its place in the file.
    ///
    /// # Errors
    /// [`Error::LineTooLong`].
    async fn scan(&mut self, offset: u64, bytes: &[u8]) -> Result<Self::Summary, Error>;

    /// What a stretch of so many zeros leaves, without a look at each; `None` where there is no way but to
    /// scan them.
    fn zeros(&mut self, len: u64) -> Option<Self::Summary>;

    /// Joins a stretch with the one that follows it; `offset` is the place of the second. Associative.
    ///
    /// # Errors
    /// [`Error::LineTooLong`].
    async fn join(
        &mut self,
        left: Self::Summary,
        right: Self::Summary,
        offset: u64,
    ) -> Result<Self::Summary, Error>;

    /// Whether no other stretch can change the answer.
    fn settled(&self, summary: &Self::Summary) -> bool {
        let _ = summary;
        false
    }

    /// The answer, once the summary is the file's (or settled). `None`: an empty file.
    async fn answer(&mut self, summary: Option<Self::Summary>) -> Self::Answer;
}

/// Where a stretch lies: its bytes, the stretch before it, and where the next one begins.
struct StretchPlace {
    offset: u64,
    end: u64,
    before: Option<(u64, u64)>,
    after: Option<u64>,
}

/// Puts stretches of one file after another together.
#[derive(Debug)]
pub struct Gather<O: Unordered> {
    operation: O,
    /// By first byte: the byte behind the stretch, and its summary.
    stretches: BTreeMap<u64, (u64, O::Summary)>,
    settled: Option<O::Summary>,
}

impl<O: Unordered> Gather<O> {
    /// At the start of a file.
    pub fn new(operation: O) -> Self {
        Self { operation, stretches: BTreeMap::new(), settled: None }
    }

    /// Makes ready for the next file.
    pub fn begin(&mut self) {
        self.stretches.clear();
        self.settled = None;
    }

    /// Takes the bytes at `offset`. [`Flow::Done`]: the answer is known already.
    ///
    /// # Errors
    /// [`Error::Gap`] where bytes come twice; [`Error::LineTooLong`], [`Error::Utf16`].
    pub fn feed(&mut self, offset: u64, bytes: &[u8]) -> Result<Flow, Error> {
        at_once(self.feed_sliced(offset, bytes))
    }

    /// Takes the bytes at `offset`, in slices: the future is pending after each.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub async fn feed_sliced(&mut self, offset: u64, bytes: &[u8]) -> Result<Flow, Error> {
        if self.settled.is_some() {
            return Ok(Flow::Done);
        }
        if bytes.is_empty() {
            return Ok(Flow::More);
        }
        let place = self.place(offset, bytes.len() as u64)?;
        let summary = self.operation.scan(offset, bytes).await?;
        self.add(place, summary).await
    }

    /// Takes `len` zeros at `offset`, in time that does not grow with them. `None`: they are wanted as bytes,
    /// and none was taken.
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub async fn zeros_sliced(&mut self, offset: u64, len: u64) -> Result<Option<Flow>, Error> {
        if self.settled.is_some() {
            return Ok(Some(Flow::Done));
        }
        if len == 0 {
            return Ok(Some(Flow::More));
        }
        let place = self.place(offset, len)?;
        match self.operation.zeros(len) {
            Some(summary) => self.add(place, summary).await.map(Some),
            None => Ok(None),
        }
    }

    /// Takes a hole of `len` bytes at `offset`, at once. The answer is that of
    /// [`zeros_sliced`](Self::zeros_sliced).
    ///
    /// # Errors
    /// Those of [`feed`](Self::feed).
    pub fn zeros(&mut self, offset: u64, len: u64) -> Result<Option<Flow>, Error> {
        at_once(self.zeros_sliced(offset, len))
    }

    /// A new stretch between its neighbours, where it overlaps none.
    fn place(&self, offset: u64, len: u64) -> Result<StretchPlace, Error> {
        let end = offset.checked_add(len).ok_or(Error::Gap { offset })?;
        let before = self.stretches.range(..=offset).next_back().map(|(at, (end, _))| (*at, *end));
        let after = self.stretches.range(offset..).next().map(|(at, _)| *at);
        if before.is_some_and(|(_, end)| end > offset) || after.is_some_and(|at| at < end) {
            return Err(Error::Gap { offset });
        }
        Ok(StretchPlace { offset, end, before, after })
    }

    async fn add(&mut self, place: StretchPlace, mut summary: O::Summary) -> Result<Flow, Error> {
        let StretchPlace { offset, mut end, before, after } = place;
        let mut start = offset;
        if let Some((at, _)) = before.filter(|(_, end)| *end == offset)
            && let Some((_, left)) = self.stretches.remove(&at)
        {
            summary = self.operation.join(left, summary, offset).await?;
            start = at;
        }
        if after == Some(end)
            && let Some((right_end, right)) = self.stretches.remove(&end)
        {
            summary = self.operation.join(summary, right, end).await?;
            end = right_end;
        }
        if self.operation.settled(&summary) {
            self.settled = Some(summary);
            return Ok(Flow::Done);
        }
        self.stretches.insert(start, (end, summary));
        Ok(Flow::More)
    }

    /// The answer for a file of `size` bytes.
    ///
    /// # Errors
    /// [`Error::Gap`] where not all of them came.
    pub fn finish(&mut self, size: u64) -> Result<O::Answer, Error> {
        at_once(self.finish_sliced(size))
    }

    /// Ends a file of `size` bytes, in slices: the future is pending after each.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub async fn finish_sliced(&mut self, size: u64) -> Result<O::Answer, Error> {
        if let Some(summary) = self.settled.take() {
            return Ok(self.operation.answer(Some(summary)).await);
        }
        let all = self.stretches.pop_first();
        match all {
            None if size == 0 => Ok(self.operation.answer(None).await),
            Some((0, (end, summary))) if end == size => Ok(self.operation.answer(Some(summary)).await),
            Some((0, (end, _))) => Err(Error::Gap { offset: end.min(size) }),
            None | Some(_) => Err(Error::Gap { offset: 0 }),
        }
    }

    /// Stretches that wait for a neighbour.
    #[must_use]
    pub fn stretches(&self) -> usize {
        self.stretches.len()
    }
}

/// A search that answers how many lines are found ([`Answer::Count`]), or whether any is ([`Answer::Files`]:
/// 0 or 1).
#[derive(Debug)]
pub struct CountLines {
    search: Arc<Search>,
    cache: Cache,
    fuel: Fuel,
}

/// What a stretch leaves of a search: all but its first and last line is counted.
#[derive(Debug)]
pub struct LinesFound {
    /// Up to the first newline, or all.
    head: Vec<u8>,
    /// What is behind the last newline; `None` where there is no newline.
    tail: Option<Vec<u8>>,
    /// Found between the two.
    middle: u64,
}

impl CountLines {
    /// `None` where the search must see the file in order: it shows lines, or passes over what is binary.
    #[must_use]
    pub fn new(search: &Arc<Search>) -> Option<Self> {
        let counts = search.only_counts() && !search.options.null_data;
        counts.then(|| Self {
            search: Arc::clone(search),
            cache: search.engine.cache(),
            fuel: Fuel::default(),
        })
    }

    async fn count(&mut self, lines: Hay<'_>) -> u64 {
        let limit = self.limit();
        let Self { search, cache, fuel } = self;
        walk::count(&search.engine, cache, lines, search.options.invert, limit, fuel).await
    }

    fn limit(&self) -> u64 {
        let max = self.search.options.max_count.unwrap_or(u64::MAX);
        if self.search.options.answer == Answer::Files { max.min(1) } else { max }
    }

    async fn append(&mut self, mut line: Vec<u8>, more: &[u8], offset: u64) -> Result<Vec<u8>, Error> {
        let len = line.len() + more.len();
        if len > MAX_LINE + 1 {
            return Err(Error::LineTooLong { offset: offset.saturating_sub(line.len() as u64) });
        }
        if len > LONG && line.capacity() <= MAX_LINE {
            // It may become a very long line: it gets its room now, and is never moved again.
            line.reserve_exact(MAX_LINE + 1 - line.len());
        }
        for part in more.chunks(LONG) {
            line.extend_from_slice(part);
            self.fuel.spend_bytes(part.len()).await;
        }
        Ok(line)
    }
}

/// A line beyond this is likely to become much longer.
const LONG: usize = 128 << 10;

impl Unordered for CountLines {
    type Summary = LinesFound;
    type Answer = u64;

    async fn scan(&mut self, offset: u64, bytes: &[u8]) -> Result<LinesFound, Error> {
        if offset == 0 && !self.search.options.text {
            Opening::Start.observe(bytes)?;
        }
        self.fuel.spend_bytes(bytes.len()).await;
        let (Some(first), Some(last)) = (memchr::memchr(b'\n', bytes), memchr::memrchr(b'\n', bytes)) else {
            return Ok(LinesFound { head: bytes.to_vec(), tail: None, middle: 0 });
        };
        let part = |from, to| bytes.get(from..to).unwrap_or_default();
        Ok(LinesFound {
            head: part(0, first + 1).to_vec(),
            tail: Some(part(last + 1, bytes.len()).to_vec()),
            middle: self.count(Hay::lines(part(first + 1, last + 1))).await,
        })
    }

    /// Only whether a line matches is asked, so that fewer zeros stand for them.
    fn zeros(&mut self, len: u64) -> Option<LinesFound> {
        let stand_in = usize::try_from(self.search.holes?.stand_in(len)).ok()?;
        Some(LinesFound { head: vec![0; stand_in], tail: None, middle: 0 })
    }

    async fn join(&mut self, left: LinesFound, right: LinesFound, offset: u64) -> Result<LinesFound, Error> {
        let Some(open) = left.tail else {
            let head = self.append(left.head, &right.head, offset).await?;
            return Ok(LinesFound { head, ..right });
        };
        let line = self.append(open, &right.head, offset).await?;
        Ok(match right.tail {
            None => LinesFound { tail: Some(line), ..left },
            Some(tail) => LinesFound {
                head: left.head,
                tail: Some(tail),
                middle: left
                    .middle
                    .saturating_add(right.middle)
                    .saturating_add(self.count(Hay::line(&line)).await),
            },
        })
    }

    fn settled(&self, summary: &LinesFound) -> bool {
        summary.middle >= self.limit()
    }

    async fn answer(&mut self, summary: Option<LinesFound>) -> u64 {
        let Some(summary) = summary else { return 0 };
        let mut found = summary.middle;
        for end in [Some(summary.head), summary.tail].into_iter().flatten() {
            found = found.saturating_add(self.count(Hay::line(&end)).await);
        }
        found.min(self.limit())
    }
}

/// Lines, words and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountWords;

impl Unordered for CountWords {
    type Summary = Counted;
    type Answer = Counted;

    async fn scan(&mut self, _: u64, bytes: &[u8]) -> Result<Counted, Error> {
        Ok(Counted::of(bytes))
    }

    fn zeros(&mut self, len: u64) -> Option<Counted> {
        Some(Counted::zeros(len))
    }

    async fn join(&mut self, left: Counted, right: Counted, _: u64) -> Result<Counted, Error> {
        Ok(left.join(right))
    }

    async fn answer(&mut self, summary: Option<Counted>) -> Counted {
        summary.unwrap_or_default()
    }
}

/// CRC-32C.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumCrc32c;

impl Unordered for SumCrc32c {
    /// The stretch's own CRC, and its length.
    type Summary = (u32, usize);
    type Answer = u32;

    async fn scan(&mut self, _: u64, bytes: &[u8]) -> Result<(u32, usize), Error> {
        Ok((crc32c::crc32c(bytes), bytes.len()))
    }

    fn zeros(&mut self, len: u64) -> Option<(u32, usize)> {
        Some((zeros::crc32c(len), usize::try_from(len).ok()?))
    }

    async fn join(&mut self, left: (u32, usize), right: (u32, usize), _: u64) -> Result<(u32, usize), Error> {
        Ok((crc32c::crc32c_combine(left.0, right.0, right.1), left.1 + right.1))
    }

    async fn answer(&mut self, summary: Option<(u32, usize)>) -> u32 {
        summary.unwrap_or_default().0
    }
}
