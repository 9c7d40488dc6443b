//! The data provider (DAC'23 III-C): a file's bytes for an operation, in the paper's two ways.
//!
//! *Unordered*: reads go to the medium in a batch, and each block is handed on as it arrives, so that all of
//! the medium's units work at once. *Ordered*: the operation gets the bytes one after the other; some reads
//! run ahead. Either way a file passes through [`Layout`] (where the bytes lie) -> [`Chunks`] (adjacent runs
//! joined, then cut to [`CHUNK`] bytes) -> the medium -> the operation, in pieces that it scans within a
//! slice. Holes and unwritten extents are zeros that nobody reads, and that operations take at once where
//! they can: a search, a count and CRC-32C take time by their number, not by their length.
//!
//! Memory: the reads in flight, `depth` times [`CHUNK`] bytes, whatever the file's size.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use nearside_fsview::{Inode, Run, RunPlace};
use nearside_ndp::Flow;
use nearside_near_data::{BlockRange, Failure};

use crate::crawler::Crawler;
use crate::media::{Batch, Media};
use crate::model::of_view;
use crate::monitor::Scan;
use crate::trace::TracePart;
use crate::view::{Tally, View, bump};

/// Bytes of one read, at most.
pub(crate) const CHUNK: u64 = 128 << 10;
/// Zeros to hand on for holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Takes a file's bytes.
#[allow(async_fn_in_trait, reason = "used generically, never as a trait object")]
pub(crate) trait Consumer {
    /// Whether the pieces may come in any order.
    fn unordered(&self) -> bool;

    /// Bytes that it takes at once.
    fn piece(&self) -> usize;

    /// Takes the bytes at `offset` of the file. What may take longer than a slice yields.
    async fn take<M: Media>(&mut self, media: &M, offset: u64, bytes: &[u8]) -> Result<Flow, Failure>;

    /// Takes zeros at `offset`, in time that does not grow with `len`, and says how many: none where it wants
    /// them as bytes.
    async fn zeros<M: Media>(&mut self, media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        let _ = (media, offset, len);
        Ok((0, Flow::More))
    }

    /// Takes all there is, from `offset` on, at once.
    async fn whole<M: Media>(&mut self, media: &M, offset: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        self.take(media, offset, bytes).await
    }

    /// Which bytes it wants after those that it has had, from where to where; none: it has all.
    fn then(&mut self) -> Result<Vec<(u64, u64)>, Failure>;
}

/// Where a file's bytes lie.
pub(crate) enum Layout<'a, M> {
    /// Where the inode says. The view collects what the mapping depends on.
    File {
        crawler: &'a Crawler<'a, M>,
        inode: &'a Inode,
        view: View<'a, M>,
        inline: Option<Arc<[u8]>>,
        runs: Runs,
    },
    /// Where the host found it: (byte of the namespace or a hole, bytes), in file order.
    Ranges { ranges: &'a [BlockRange], at: u64, next: usize },
}

/// Where a run's bytes are, in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Namespace(u64),
    Zeros,
    Inline,
}

impl Where {
    /// Where what follows `len` bytes later is, if it goes on.
    fn after(self, len: u64) -> Where {
        match self {
            Where::Namespace(at) => Where::Namespace(at.saturating_add(len)),
            other => other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LayoutPiece {
    at: u64,
    len: u64,
    place: Where,
}

impl<'a, M: Media> Layout<'a, M> {
    /// Of a file on a volume.
    pub(crate) fn file(crawler: &'a Crawler<'a, M>, inode: &'a Inode) -> Layout<'a, M> {
        Layout::File { crawler, inode, view: crawler.view(), inline: None, runs: Runs::default() }
    }

    /// Of ranges that the host sent.
    pub(crate) fn ranges(ranges: &'a [BlockRange]) -> Layout<'a, M> {
        Layout::Ranges { ranges, at: 0, next: 0 }
    }

    /// The run that begins at `from`.
    async fn run(&mut self, from: u64, media_len: u64) -> Result<Option<LayoutPiece>, Failure> {
        match self {
            Layout::File { crawler, inode, view, inline, runs } => {
                if let Some(known) = runs.from(from) {
                    return Ok(Some(known));
                }
                let volume = &crawler.volume.volume;
                let Some(Run { len, place, .. }) = volume.map(view, inode, from).await.map_err(of_view)?
                else {
                    return Ok(None);
                };
                let place = match place {
                    RunPlace::Zeros => Where::Zeros,
                    RunPlace::Volume(at) => Where::Namespace(crawler.volume.place_of(at, len, from)?),
                    RunPlace::Inline => {
                        if inline.is_none() {
                            *inline = Some(volume.inline_data(view, inode).await.map_err(of_view)?.into());
                        }
                        Where::Inline
                    }
                };
                let piece = LayoutPiece { at: from, len: len.max(1), place };
                runs.add(piece);
                Ok(Some(piece))
            }
            Layout::Ranges { ranges, at, next } => {
                if from < *at {
                    (*at, *next) = (0, 0);
                }
                while let Some(range) = ranges.get(*next) {
                    let (offset, len) = (range.place(), range.len);
                    let end = at.saturating_add(len);
                    if from < end {
                        let skip = from.saturating_sub(*at);
                        let place = match offset {
                            None => Where::Zeros,
                            Some(offset) if offset.checked_add(len).is_none_or(|e| e > media_len) => {
                                let what = format!("{len} bytes at {offset} are not in the namespace");
                                return Err(Failure::InvalidRequest(what));
                            }
                            Some(offset) => Where::Namespace(offset + skip),
                        };
                        return Ok(Some(LayoutPiece { at: from, len: len - skip, place }));
                    }
                    *at = end;
                    *next += 1;
                }
                Ok(None)
            }
        }
    }

    fn inline(&self) -> Option<Arc<[u8]>> {
        match self {
            Layout::File { inline, .. } => inline.clone(),
            Layout::Ranges { .. } => None,
        }
    }

    /// Whether a file is mapped as this one was, as far as this one was looked at: the same bytes of the
    /// namespace, or of the inode.
    pub(crate) async fn is_mapped_by(&self, now: &mut Layout<'_, M>, media: &M) -> Result<bool, Failure> {
        let Layout::File { runs, inline, .. } = self else { return Ok(true) };
        if runs.too_many {
            return Ok(false);
        }
        for was in runs.pieces.values() {
            let (mut at, to) = (was.at, was.at.saturating_add(was.len));
            while at < to {
                match now.run(at, media.len()).await? {
                    Some(run) if run.place == was.place.after(at - was.at) => {
                        at = run.at.saturating_add(run.len);
                    }
                    _ => return Ok(false),
                }
                media.yield_now().await;
            }
        }
        let Layout::File { inline: inline_now, .. } = now else { return Ok(false) };
        Ok(inline == inline_now)
    }

    /// What the mapping depended on.
    pub(crate) fn view(&self) -> Option<&View<'a, M>> {
        match self {
            Layout::File { view, .. } => Some(view),
            Layout::Ranges { .. } => None,
        }
    }
}

/// Runs kept of one file; one with more is read again where its volume changed.
const MOST_RUNS: usize = 1 << 16;

/// What a file's mapping was, in file order, joined where it joins.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By where in the file they begin.
    pieces: BTreeMap<u64, LayoutPiece>,
    too_many: bool,
}

impl Runs {
    fn add(&mut self, piece: LayoutPiece) {
        if let Some(mut last) = self.pieces.last_entry()
            && last.get().at.saturating_add(last.get().len) == piece.at
            && last.get().place.after(last.get().len) == piece.place
        {
            let last = last.get_mut();
            last.len = last.len.saturating_add(piece.len);
        } else if self.pieces.len() < MOST_RUNS {
            self.pieces.insert(piece.at, piece);
        } else {
            self.too_many = true;
        }
    }

    /// What is known to begin at a byte, or to go on there: rows of a table come in any order, and most lie
    /// where one was before.
    fn from(&self, at: u64) -> Option<LayoutPiece> {
        let (_, run) = self.pieces.range(..=at).next_back()?;
        let passed = at.checked_sub(run.at).filter(|passed| *passed < run.len)?;
        Some(LayoutPiece { at, len: run.len - passed, place: run.place.after(passed) })
    }
}

/// A file's bytes from one place to another, and then those of other places, as reads.
struct Chunks<'l, 'a, M> {
    layout: &'l mut Layout<'a, M>,
    media: &'l M,
    media_len: u64,
    at: u64,
    to: u64,
    others: std::slice::Iter<'l, (u64, u64)>,
    /// The next run, where it was looked up to see whether it joins the one before.
    ahead: Option<LayoutPiece>,
}

impl<M: Media> Chunks<'_, '_, M> {
    async fn next(&mut self) -> Result<Option<LayoutPiece>, Failure> {
        while self.at >= self.to {
            let Some((from, to)) = self.others.next() else { return Ok(None) };
            (self.at, self.to, self.ahead) = (*from, *to, None);
        }
        let mut chunk = match self.ahead.take() {
            Some(run) => run,
            None => match self.layout.run(self.at, self.media_len).await? {
                Some(run) => run,
                None => {
                    let what = format!("the file's blocks end at byte {} of {}", self.at, self.to);
                    return Err(Failure::CorruptVolume(what));
                }
            },
        };
        // Holes are not joined: they may be as many as a file has extents, and each is cheap.
        let most = if chunk.place == Where::Zeros { chunk.len } else { CHUNK.min(self.media.longest_read()) };
        let left = self.to - self.at;
        while chunk.len < most.min(left) && chunk.place != Where::Inline {
            let Some(run) = self.layout.run(self.at + chunk.len, self.media_len).await? else {
                break;
            };
            let joins = match (chunk.place, run.place) {
                (Where::Namespace(a), Where::Namespace(b)) => a.checked_add(chunk.len) == Some(b),
                _ => false,
            };
            if !joins {
                self.ahead = Some(run);
                break;
            }
            chunk.len += run.len;
            self.media.yield_now().await;
        }
        chunk.len = chunk.len.min(left);
        if chunk.len > most {
            let rest = chunk.len - most;
            chunk.len = most;
            if let Where::Namespace(at) = chunk.place {
                self.ahead =
                    Some(LayoutPiece { at: chunk.at + most, len: rest, place: Where::Namespace(at + most) });
            }
        }
        self.at += chunk.len;
        Ok(Some(chunk))
    }
}

/// A read that is queued or in flight: the bytes of the chunk lie `skip` bytes into its buffer.
struct Reading<B> {
    chunk: LayoutPiece,
    skip: usize,
    buffer: Option<B>,
}

impl<B: AsRef<[u8]>> Reading<B> {
    /// The chunk's bytes; `None` for zeros. `inline`: the content of the inode.
    fn bytes<'s>(&'s self, inline: Option<&'s [u8]>) -> Result<Option<&'s [u8]>, Failure> {
        let len = self.chunk.len as usize;
        match self.chunk.place {
            Where::Zeros => Ok(None),
            Where::Namespace(_) => {
                let buffer = self.buffer.as_ref().map(AsRef::as_ref);
                let bytes = buffer.and_then(|b| b.get(self.skip..self.skip.saturating_add(len)));
                bytes.map(Some).ok_or_else(|| Failure::MediumError("the store returned fewer bytes".into()))
            }
            Where::Inline => {
                let start = self.chunk.at as usize;
                let bytes = inline.and_then(|b| b.get(start..start.saturating_add(len)));
                bytes.map(Some).ok_or_else(|| Failure::CorruptVolume("inline data is too short".into()))
            }
        }
    }
}

/// What of a file is in flight or waits for its turn, in the order of the file.
struct Queue<'f, 'l, 'a, M: Media> {
    chunks: Chunks<'l, 'a, M>,
    scan: Option<&'f Scan<'f>>,
    tally: &'f Tally,
    batch: M::Batch,
    /// `None`: handed on already, out of order.
    readings: VecDeque<Option<Reading<M::Buffer>>>,
    /// Tag of the first; tags are places in the queue, modulo 2^32.
    front: u32,
    /// No chunk follows.
    ended: bool,
    /// Where reads are done at once, one at a time keeps its buffer in the nearest cache.
    instant: bool,
}

impl<M: Media> Queue<'_, '_, '_, M> {
    /// Starts reads until there are `depth`. They are registered with the scan before they begin.
    async fn fill(&mut self, depth: usize) -> Result<(), Failure> {
        let media = self.chunks.media;
        let unit = u64::from(media.block_size().max(1));
        while !self.ended && self.readings.len() < if self.instant { 1 } else { depth } {
            let Some(chunk) = self.chunks.next().await? else {
                self.ended = true;
                break;
            };
            let Where::Namespace(at) = chunk.place else {
                self.readings.push_back(Some(Reading { chunk, skip: 0, buffer: None }));
                break;
            };
            let start = at / unit * unit;
            let end = at.saturating_add(chunk.len).next_multiple_of(unit);
            if end > self.chunks.media_len {
                let what = format!("bytes {} on lie at {at}, beyond the end of the namespace", chunk.at);
                return Err(Failure::CorruptVolume(what));
            }
            if let Some(scan) = self.scan {
                scan.add(start, end - start);
            }
            if let Layout::File { crawler, .. } = &*self.chunks.layout {
                crawler.volume.reads(&crawler.retriever.monitor, start, end - start);
            }
            bump(&self.tally.blocks_read, chunk.len.div_ceil(4096));
            let tag = self.front.wrapping_add(self.readings.len() as u32);
            self.readings.push_back(Some(Reading { chunk, skip: (at - start) as usize, buffer: None }));
            self.instant = self.batch.start(start, (end - start) as usize, tag);
            // The store may have copied all of it just now.
            media.yield_now().await;
        }
        Ok(())
    }

    /// Takes one that can be handed on: the first, or any where the order does not matter. Zeros and inline
    /// bytes need no read.
    fn take(&mut self, unordered: bool) -> Option<Reading<M::Buffer>> {
        let is_here = |r: &Option<Reading<M::Buffer>>| {
            r.as_ref().is_some_and(|r| r.buffer.is_some() || !matches!(r.chunk.place, Where::Namespace(_)))
        };
        let among = if unordered { self.readings.len() } else { 1 };
        let at = self.readings.iter().take(among).position(is_here)?;
        let taken = self.readings.get_mut(at).and_then(Option::take);
        while let Some(None) = self.readings.front() {
            self.readings.pop_front();
            self.front = self.front.wrapping_add(1);
        }
        taken
    }

    /// Waits for one of the reads; `false` at the end of the file.
    async fn arrive(&mut self) -> Result<bool, Failure> {
        let waits = self.tally.span(TracePart::Supply, 0);
        let arrived = self.batch.next().await;
        drop(waits);
        let Some((tag, result)) = arrived else {
            return match self.readings.is_empty() {
                true => Ok(false),
                false => Err(Failure::MediumError("a read was lost".into())),
            };
        };
        let buffer = result.map_err(|e| Failure::MediumError(e.0))?;
        if let Some(Some(reading)) = self.readings.get_mut(tag.wrapping_sub(self.front) as usize) {
            reading.buffer = Some(buffer);
        }
        Ok(true)
    }
}

/// How many reads may be in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    pub unordered: usize,
    pub ordered: usize,
}

/// Feeds a file's bytes of each of the ranges, from where to where, to the consumer.
/// Gives what the consumer said last, and counts in `scanned` the bytes that it saw.
#[allow(clippy::too_many_arguments, reason = "where from, what to, and what is counted")]
pub(crate) async fn feed<M: Media, C: Consumer>(
    media: &M,
    layout: &mut Layout<'_, M>,
    ranges: &[(u64, u64)],
    depth: Depth,
    scan: Option<&Scan<'_>>,
    consumer: &mut C,
    scanned: &mut u64,
    tally: &Tally,
) -> Result<Flow, Failure> {
    let unordered = consumer.unordered();
    let depth = if unordered { depth.unordered } else { depth.ordered }.max(1);
    let mut queue = Queue {
        chunks: Chunks {
            layout,
            media,
            media_len: media.len(),
            at: 0,
            to: 0,
            others: ranges.iter(),
            ahead: None,
        },
        scan,
        tally,
        batch: media.batch(),
        readings: VecDeque::new(),
        front: 0,
        ended: false,
        instant: false,
    };
    loop {
        queue.fill(depth).await?;
        let Some(reading) = queue.take(unordered) else {
            match queue.arrive().await? {
                true => continue,
                false => return Ok(Flow::More),
            }
        };
        let chunk = reading.chunk;
        let inline = if chunk.place == Where::Inline { queue.chunks.layout.inline() } else { None };
        let bytes = reading.bytes(inline.as_deref())?;
        if let Some(bytes) = bytes
            && ranges == [(chunk.at, chunk.at + chunk.len)]
            && bytes.len() <= consumer.piece()
        {
            *scanned += chunk.len;
            tally.saw(chunk.len);
            let _span = tally.span(TracePart::Compute, chunk.len);
            return consumer.whole(media, chunk.at, bytes).await;
        }
        let flow = hand_on(media, chunk, bytes, consumer, scanned, tally).await?;
        if flow != Flow::More {
            return Ok(flow);
        }
    }
}

/// Hands a chunk on in pieces. `bytes`: `None` for a hole, which most operations need not look at; it counts
/// for nothing that was scanned.
async fn hand_on<M: Media, C: Consumer>(
    media: &M,
    chunk: LayoutPiece,
    bytes: Option<&[u8]>,
    consumer: &mut C,
    scanned: &mut u64,
    tally: &Tally,
) -> Result<Flow, Failure> {
    let piece = consumer.piece().clamp(512, ZEROS.len());
    let mut done = 0usize;
    while (done as u64) < chunk.len {
        if bytes.is_none() {
            let (taken, flow) =
                consumer.zeros(media, chunk.at + done as u64, chunk.len - done as u64).await?;
            if flow != Flow::More {
                return Ok(flow);
            }
            if taken > 0 {
                done += taken as usize;
                media.yield_now().await;
                continue;
            }
        }
        let n = piece.min((chunk.len - done as u64) as usize);
        let part = match bytes {
            Some(bytes) => &bytes[done..done + n],
            None => &ZEROS[..n],
        };
        *scanned += n as u64;
        tally.saw(n as u64);
        let span = tally.span(TracePart::Compute, n as u64);
        let flow = consumer.take(media, chunk.at + done as u64, part).await?;
        drop(span);
        if flow != Flow::More {
            return Ok(flow);
        }
        done += n;
        media.yield_now().await;
    }
    Ok(Flow::More)
}
