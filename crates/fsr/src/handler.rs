//! The handler: one entry for all near-data requests.
//!
//! [`Retriever::run`] makes the operation ready, finds the files that the target means, and gives each to the
//! operation. A file's bytes count only if neither the file nor a block of it changed from before it was
//! located until after the last byte was read; otherwise what was answered about it is taken back and it is
//! read again, at most `Config::tries` times.

use std::sync::atomic::Ordering::Relaxed;

use nearside_fsview::FileKind;
use nearside_ndp::Flow;
use nearside_near_data::{
    BlockRange, Counters, Cursor, EXTENT_INLINE, EXTENT_ZEROS, Failure, MAX_PATH, Operation, Record, Request,
    SearchTotals, Target,
};

use crate::Retriever;
use crate::crawler::{Crawler, Found, OpenVolume};
use crate::media::Media;
use crate::model::{Full, Mark, Outcome, Sink, entry, of_view, volume, warnings};
use crate::monitor::Scan;
use crate::operation::{Bytes, Ended, Feeding, Job, Work, stored};
use crate::provider::{Consumer, Depth, Layout, feed};
use crate::trace::TracePart;
use crate::tree::Filter;
use crate::unzip::{First, Kind, Unzipping};
use crate::view::Tally;
use crate::walker::{Visit, Walker};

mod attributes;
mod paths;

/// Bytes by which a cursor's path may be longer than the path ([`Walker::stopped`]).
const BEYOND: usize = 2;

/// A cursor of which only the totals are left to say.
const AT_THE_END: u64 = u64::MAX;
/// Continuation than any number that an answer gives: so adding to a cursor's numbers never overflows.
const CURSOR_MOST: u64 = 1 << 62;

/// Names that are answered between two yields: a microsecond or two's work.
const TOGETHER: usize = 16;

/// One request, while it runs.
struct Run<'a, M> {
    retriever: &'a Retriever,
    media: &'a M,
    request: &'a Request,
    tally: &'a Tally,
}

/// The mutable part of it.
struct Out<'a, S> {
    sink: &'a mut S,
    work: Work,
    counters: Counters,
    /// Bytes that a cursor takes beside the path as it is shown: the path above the name where entries are
    /// shown by their names, and the places on the way.
    above: usize,
    /// For a cursor: the places on the way.
    places: Vec<u8>,
}

impl Retriever {
    /// Executes a request; the results go to the sink as they arise.
    pub async fn run<M: Media, S: Sink>(&self, media: &M, request: &Request, sink: &mut S) -> Outcome {
        let code = match stored(request) {
            None => Ok(Vec::new()),
            Some((read, work, mut code)) => {
                let Outcome { failure, .. } = self.run_work(media, &read, Ok(work), &mut code).await;
                code.code(&read, failure)
            }
        };
        let work = match code {
            Ok(code) => Work::new(self, media, request, code).await,
            Err(failure) => Err(failure),
        };
        self.run_work(media, request, work, sink).await
    }

    /// Does work that was made ready; the results go to the sink.
    pub(crate) async fn run_work<M: Media, S: Sink>(
        &self,
        media: &M,
        request: &Request,
        work: Result<Work, Failure>,
        sink: &mut S,
    ) -> Outcome {
        let (trace, scanned) = (self.trace.clone(), self.scanned.get().cloned());
        let tally = Tally { trace, scanned, ..Tally::default() };
        let run = Run { retriever: self, media, request, tally: &tally };
        let mut counters = Counters::default();
        let result = match work {
            Ok(work) => {
                let mut out = Out { sink, work, counters, above: 0, places: Vec::new() };
                let result = run.target(&mut out).await;
                counters = out.counters;
                result
            }
            Err(failure) => Err(failure),
        };
        counters.blocks_read = tally.blocks_read.load(Relaxed);
        counters.cache_hits = tally.hits.load(Relaxed);
        counters.cache_misses = tally.misses.load(Relaxed);
        let (failure, more) = match result {
            Ok(more) => (None, more),
            Err(failure) => (Some(failure), None),
        };
        Outcome { failure, counters, more }
    }
}

type Continuation = Option<Cursor>;

/// What came of a path.
enum Came {
    Ended(Ended),
    /// The operation is about the entries of this one.
    Directory(Found),
}

impl<M: Media> Run<'_, M> {
    async fn target<S: Sink>(&self, out: &mut Out<'_, S>) -> Result<Continuation, Failure> {
        let request = self.request;
        if let Operation::Info = request.operation {
            return self.info(out).await;
        }
        if request.resume.is_none() && !matches!(request.target, Target::Volume | Target::Blocks { .. }) {
            self.warn(out).await;
        }
        let at_the_end = request.resume.as_ref().is_some_and(|c| c.offset == AT_THE_END);
        if let Some(Cursor { offset, line, found, within, totals, .. }) = &request.resume {
            let SearchTotals { files, files_matched, matches } = totals;
            let offset = if at_the_end { &0 } else { offset };
            if [offset, line, found, within, files, files_matched, matches].iter().any(|n| **n > CURSOR_MOST)
            {
                return Err(Failure::InvalidRequest("a cursor that no reply gives".to_owned()));
            }
        }
        let more = match &request.target {
            _ if at_the_end => None,
            Target::Volume => match out.work {
                Work::Nop => None,
                _ => return Err(Failure::InvalidRequest("the operation needs a path".to_owned())),
            },
            Target::Path(path) => self.path(out, path).await?,
            Target::Tree { root, include, exclude, max_depth } => {
                let filter = Filter::tree(self.media, include, exclude, *max_depth).await?;
                self.tree(out, root, filter).await?
            }
            Target::Glob(glob) => match Filter::glob(self.media, glob).await? {
                Some((root, filter)) => self.tree(out, &root, filter).await?,
                None => self.path(out, glob).await?,
            },
            Target::Blocks { size, ranges } => self.blocks(out, *size, ranges).await?,
            Target::Paths(paths) => self.paths(out, paths).await?,
        };
        if more.is_some() {
            return Ok(more);
        }
        if let Some(totals) = out.work.totals()
            && out.sink.push(Record::Total(totals), 0).is_err()
        {
            return match out.sink.mark().1 {
                0 => Err(too_small()),
                _ => Ok(Some(Cursor { offset: AT_THE_END, totals, ..Cursor::default() })),
            };
        }
        Ok(None)
    }

    async fn info<S: Sink>(&self, out: &mut Out<'_, S>) -> Result<Continuation, Failure> {
        let start = self.media.now_ns();
        let beneath = self.retriever.beneath();
        let opened = match self.volume().await {
            Ok(opened) => opened,
            Err(failure) => {
                for record in beneath.all() {
                    // Where there is no room for it, the answer matters more.
                    let _ = out.sink.push(record, MAX_PATH);
                }
                return Err(failure);
            }
        };
        out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
        let OpenVolume { partition, offset, len, .. } = *opened;
        let (info, standing) = (opened.volume.info(), opened.standing.as_ref());
        let record = volume(partition, (offset, len), info, standing, beneath);
        match out.sink.push(record, 0) {
            Ok(()) => Ok(None),
            Err(Full) => Err(too_small()),
        }
    }

    /// What a user should know of the volume, at the beginning of an answer.
    async fn warn<S: Sink>(&self, out: &mut Out<'_, S>) {
        let start = self.media.now_ns();
        // The path's own way opens the volume again, and tries again where it was changing.
        if let Ok(volume) = self.volume().await {
            let (info, standing) = (volume.volume.info(), volume.standing.as_ref());
            for (text, unstable) in warnings(info, standing, self.retriever.beneath()) {
                // Where there is no room for it, the answer matters more.
                let _ = out.sink.push(Record::Warning { text, unstable }, MAX_PATH);
            }
        }
        out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
    }

    async fn volume(&self) -> Result<std::sync::Arc<OpenVolume>, Failure> {
        self.retriever.volume(self.media, self.tally, self.request.partition).await
    }

    fn crawler<'v>(&'v self, volume: &'v OpenVolume) -> Crawler<'v, M> {
        Crawler {
            retriever: self.retriever,
            media: self.media,
            tally: self.tally,
            volume,
            who: &self.request.credentials,
        }
    }

    /// One path.
    async fn path<S: Sink>(&self, out: &mut Out<'_, S>, path: &[u8]) -> Result<Continuation, Failure> {
        let at = self.request.resume.clone().unwrap_or_default();
        match self.located(out, path, path, &at).await? {
            Came::Directory(found) => self.directory(out, path, found).await,
            Came::Ended(Ended::Done) => Ok(None),
            Came::Ended(Ended::Full(cursor)) => self.cursor_at(out, path, cursor).map(Some),
        }
    }

    /// Locates a path and gives it to the operation, which is about `shown`; or, where that is about a
    /// directory's entries, gives the directory.
    async fn located<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        path: &[u8],
        shown: &[u8],
        at: &Cursor,
    ) -> Result<Came, Failure> {
        let mut tries = 0;
        loop {
            let start = self.media.now_ns();
            let since = self.retriever.monitor.changes();
            let span = self.tally.span(TracePart::Locate, 1);
            let volume = self.volume().await?;
            let crawler = self.crawler(&volume);
            let found = crawler.locate(path, self.request.follow).await;
            drop(span);
            out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
            let result = match found {
                Ok(found)
                    if matches!(out.work, Work::List | Work::Names)
                        && found.inode.kind == FileKind::Directory =>
                {
                    return Ok(Came::Directory(found));
                }
                Ok(found) => {
                    out.counters.files += 1;
                    self.run_file(out, &crawler, shown, found, since, at).await
                }
                Err(failure) => Err(failure),
            };
            match result {
                Ok(ended) => return Ok(Came::Ended(ended)),
                Err(Failure::ChangedDuringScan) if tries < self.retriever.config.tries => tries += 1,
                Err(failure) => return Err(failure),
            }
            self.media.yield_now().await;
        }
    }

    /// The entries of one directory, by name.
    async fn directory<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        path: &[u8],
        dir: Found,
    ) -> Result<Continuation, Failure> {
        {
            let volume = self.volume().await?;
            self.crawler(&volume).may_read(&dir).await?;
        }
        let filter = Filter::tree(self.media, &[], &[], 1).await?;
        self.walk(out, path, dir, filter, true).await
    }

    /// A tree, or what lies below a glob's fixed part: a link there is on the way, not what is meant.
    async fn tree<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        root: &[u8],
        filter: Filter,
    ) -> Result<Continuation, Failure> {
        let mut tries = 0;
        let follow = self.request.follow || filter.is_glob();
        let found = loop {
            let start = self.media.now_ns();
            let volume = self.volume().await?;
            let crawler = self.crawler(&volume);
            let found = crawler.locate(root, follow).await;
            out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
            match found {
                Err(Failure::ChangedDuringScan) if tries < self.retriever.config.tries => tries += 1,
                found => break found?,
            }
        };
        self.walk(out, root, found, filter, false).await
    }

    async fn walk<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        root: &[u8],
        found: Found,
        filter: Filter,
        names_only: bool,
    ) -> Result<Continuation, Failure> {
        let entries = matches!(out.work, Work::List | Work::Stat | Work::Names | Work::Attributes);
        let kinds = matches!(out.work, Work::Names);
        let resume = self.request.resume.as_ref();
        let mut at = resume.cloned();
        let glob = matches!(self.request.target, Target::Glob(_));
        let places = resume.map(|c| (&c.path[..], &c.places[..]));
        let mut walker = Walker::new(root.to_vec(), found, filter, entries, kinds, places);
        if names_only {
            walker.skip_root();
        }
        let mut any = resume.is_some();
        let mut seen = self.retriever.monitor.changes();
        let mut volume = self.volume().await?;
        loop {
            let start = self.media.now_ns();
            let since = self.retriever.monitor.changes();
            // A state that is followed changes nothing where nobody has looked at what it shows otherwise.
            if since != seen || !volume.is_newest() {
                (volume, seen) = (self.volume().await?, since);
            }
            let crawler = self.crawler(&volume);
            let visit = walker.next(&crawler).await;
            out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
            walker.places(&mut out.places);
            let path = walker.shown();
            let shown = if names_only { base(path) } else { path };
            let (mark, mut began) = (out.sink.mark(), Cursor::default());
            let result = match visit {
                None if glob && !any => return Err(Failure::NotFound),
                None => return Ok(None),
                Some(Visit::Again) => continue,
                // The directory itself: none of its entries' names says that.
                Some(Visit::Failed(failure)) if names_only && walker.at_root() => return Err(failure),
                Some(Visit::Failed(failure)) => Err(failure),
                // As the kernel: who may read a directory and not search it has the names.
                Some(Visit::Name { kind, barred }) if entries => {
                    out.counters.files += u64::from(kinds);
                    Ok(name(out, shown, path.len(), kind, kinds && barred))
                }
                Some(Visit::Name { .. }) => Err(Failure::PermissionDenied),
                // Without a name of its own, what is not a regular file is no business of an operation on
                // bytes.
                Some(Visit::Entry(found)) if !entries && found.inode.kind != FileKind::Regular => continue,
                Some(Visit::Entry(found)) => {
                    out.counters.files += 1;
                    out.above = path.len() - shown.len() + out.places.len() + BEYOND;
                    // The cursor is about one file; the others begin at their start.
                    let here = match at.take() {
                        Some(cursor) if cursor.path == path => cursor,
                        _ => Cursor::default(),
                    };
                    let result = self.run_file_retrying(out, &crawler, shown, found, since, &here).await;
                    began = here;
                    result
                }
            };
            any = true;
            match result {
                Ok(Ended::Done) => {}
                Ok(Ended::Full(cursor)) => return self.cursor_at(out, path, cursor).map(Some),
                Err(failure) => {
                    if !says_failed(out, (shown, path.len()), &failure, mark) {
                        return self.cursor_at(out, &walker.stopped(), began).map(Some);
                    }
                }
            }
            self.media.yield_now().await;
            if let Some(cursor) = self.names(out, &mut walker, names_only).await? {
                return Ok(Some(cursor));
            }
        }
    }

    /// Answers the names that follow, as far as they are all that is to be had.
    async fn names<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        walker: &mut Walker,
        names_only: bool,
    ) -> Result<Continuation, Failure> {
        let start = self.media.now_ns();
        let mut answered = 0;
        while let Some(kind) = walker.next_name() {
            if walker.has_places() {
                walker.places(&mut out.places);
            }
            let path = walker.shown();
            let shown = if names_only { base(path) } else { path };
            out.counters.files += 1;
            if let Ended::Full(cursor) = name(out, shown, path.len(), Some(kind), false) {
                return self.cursor_at(out, path, cursor).map(Some);
            }
            answered += 1;
            if answered % TOGETHER == 0 {
                self.media.yield_now().await;
            }
        }
        if answered > 0 {
            out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
        }
        Ok(None)
    }

    /// A cursor at that file.
    fn cursor_at<S: Sink>(&self, out: &Out<'_, S>, path: &[u8], cursor: Cursor) -> Result<Cursor, Failure> {
        if out.sink.mark().1 == 0 {
            // Nothing fitted at all: the next answer would be no longer.
            return Err(too_small());
        }
        let (path, places) = (path.to_vec(), out.places.clone());
        Ok(Cursor { path, places, totals: out.work.totals().unwrap_or_default(), ..cursor })
    }

    /// Runs one target; where the volume changed under it, once more with a fresh look at the volume.
    async fn run_file_retrying<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        crawler: &Crawler<'_, M>,
        path: &[u8],
        found: Found,
        since: u64,
        at: &Cursor,
    ) -> Result<Ended, Failure> {
        let ino = found.inode.ino;
        let generation = found.inode.generation;
        let mut result = self.run_file(out, crawler, path, found, since, at).await;
        for _ in 0..self.retriever.config.tries {
            if !matches!(result, Err(Failure::ChangedDuringScan)) {
                break;
            }
            self.media.yield_now().await;
            let since = self.retriever.monitor.changes();
            let volume = self.volume().await?;
            let crawler = self.crawler(&volume);
            result = match crawler.inode(ino).await {
                // Another file has its number now.
                Ok(found) if found.inode.generation != generation => Err(Failure::ChangedDuringScan),
                Ok(found) => self.run_file(out, &crawler, path, found, since, at).await,
                Err(failure) => Err(failure),
            };
        }
        result
    }

    /// One file that was located at the monitor's count `since` or later.
    async fn run_file<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        crawler: &Crawler<'_, M>,
        path: &[u8],
        found: Found,
        since: u64,
        at: &Cursor,
    ) -> Result<Ended, Failure> {
        let Out { sink, work, counters, above, .. } = out;
        let above = *above;
        match work {
            Work::Nop => crawler.may_read(&found).await.map(|()| Ended::Done),
            Work::Names => {
                let name = Record::Name { path: path.into(), kind: found.inode.kind.mode() };
                Ok(match sink.push(name, above + path.len()) {
                    Ok(()) => Ended::Done,
                    Err(Full) => Ended::Full(Cursor::default()),
                })
            }
            Work::Stat | Work::List => {
                let link = match found.inode.kind {
                    FileKind::Symlink if crawler.may_have_link(&found) => Some(crawler.link(&found).await?),
                    // A link whose target is withheld is there all the same.
                    _ => None,
                };
                let record = entry(path, &found.inode, link.as_deref());
                Ok(match sink.push(record, above + path.len()) {
                    Ok(()) => Ended::Done,
                    Err(Full) => Ended::Full(Cursor::default()),
                })
            }
            Work::Map => {
                // As the kernel: who may not open it is not told what it is.
                crawler.may_read(&found).await?;
                regular(&found)?;
                crawler.may_have_content()?;
                let start = self.media.now_ns();
                let result = self.map(*sink, crawler, (path, above), &found, at).await;
                counters.locate_ns += self.media.now_ns().saturating_sub(start);
                result
            }
            Work::Attributes => {
                let start = self.media.now_ns();
                let result = self.attributes(*sink, crawler, (path, above), &found, at).await;
                counters.locate_ns += self.media.now_ns().saturating_sub(start);
                result
            }
            Work::Bytes(bytes) => {
                // As the kernel: who may not open it is not told what it is.
                crawler.may_read(&found).await?;
                regular(&found)?;
                crawler.may_have_content()?;
                let start = self.media.now_ns();
                let result =
                    self.bytes(*sink, bytes, counters, crawler, (path, above), found, since, at).await;
                counters.compute_ns += self.media.now_ns().saturating_sub(start);
                result
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a file, what to do with it, and what is counted")]
    async fn bytes<S: Sink>(
        &self,
        sink: &mut S,
        bytes: &mut Bytes,
        counters: &mut Counters,
        crawler: &Crawler<'_, M>,
        (path, above): (&[u8], usize),
        mut found: Found,
        mut since: u64,
        at: &Cursor,
    ) -> Result<Ended, Failure> {
        let _span = self.tally.span(TracePart::Operate, 1);
        let monitor = &self.retriever.monitor;
        for _ in 0..self.retriever.config.tries.max(1) {
            let mark = sink.mark();
            let size = found.inode.size;
            let mut layout = Layout::file(crawler, &found.inode);
            let scan = monitor.scan();
            let lapses = self.media.lapses();
            let kind = self.kind(bytes, || Layout::file(crawler, &found.inode), size, Some(&scan)).await;
            let zip = kind.as_ref().ok().copied().flatten();
            let job = Job { sink: &mut *sink, path, above, size, at: at.clone(), zip: zip.is_some() };
            let (mut feeding, first) = Feeding::begin(bytes, job);
            let scanned = &mut counters.bytes_scanned;
            let result = match kind {
                Ok(_) => self.feed(zip, &mut layout, first, Some(&scan), &mut feeding, scanned).await,
                Err(failure) => Err(failure),
            };
            let unchanged = monitor.changes() == since
                || match &result {
                    Ok(_) => self.is_as_it_was(crawler, &found, &layout).await,
                    // It may come of a block that was gone when it was read.
                    Err(_) => self.holds(crawler, &found, &layout).await,
                };
            // After the metadata: what was given another place was written there later.
            if unchanged && !scan.touched() && self.media.lapses() == lapses {
                return self.finish(feeding, result).await;
            }
            drop(feeding);
            sink.rollback(mark);
            monitor.repeated.fetch_add(1, Relaxed);
            self.media.yield_now().await;
            // Before the look at the volume: what changes from now on counts as later than this.
            since = monitor.changes();
            if !crawler.volume.holds(monitor, self.media).await {
                return Err(Failure::ChangedDuringScan);
            }
            let again = crawler.inode(found.inode.ino).await?;
            if again.inode.generation != found.inode.generation || again.inode.kind != FileKind::Regular {
                return Err(Failure::ChangedDuringScan);
            }
            found = again;
        }
        Err(Failure::ChangedDuringScan)
    }

    /// In which form a file is compressed, by its first bytes, for an operation on what such files hold; no
    /// other reads them.
    async fn kind<'l>(
        &self,
        bytes: &Bytes,
        layout: impl FnOnce() -> Layout<'l, M>,
        size: u64,
        scan: Option<&Scan<'_>>,
    ) -> Result<Option<Kind>, Failure>
    where
        M: 'l,
    {
        if size == 0 || !bytes.decompresses() {
            return Ok(None);
        }
        let (mut layout, mut first) = (layout(), First::default());
        let range = [(0, size.min(Kind::MAGIC))];
        let (media, depth) = (self.media, self.depth());
        let _ = feed(media, &mut layout, &range, depth, scan, &mut first, &mut 0, self.tally).await?;
        Ok(Kind::of(&first.0))
    }

    /// Whether a file that was read is still what it was, after some metadata changed: the same file, of the
    /// same length, with its bytes where they were. If not by what it was made of, then by looking again,
    /// at the volume as it is now.
    async fn is_as_it_was(&self, crawler: &Crawler<'_, M>, found: &Found, layout: &Layout<'_, M>) -> bool {
        if self.holds(crawler, found, layout).await {
            return true;
        }
        self.retriever.monitor.looked_again.fetch_add(1, Relaxed);
        let was = &found.inode;
        for _ in 0..=self.retriever.config.tries {
            let Ok(volume) = self.volume().await else { return false };
            let crawler = self.crawler(&volume);
            let now = match crawler.inode(was.ino).await {
                Ok(now) => now,
                Err(Failure::ChangedDuringScan) => continue,
                Err(_) => return false,
            };
            let is = &now.inode;
            if (is.generation, is.kind, is.size) != (was.generation, was.kind, was.size) {
                return false;
            }
            let mut again = Layout::file(&crawler, &now.inode);
            let mapped = layout.is_mapped_by(&mut again, self.media).await;
            if self.holds(&crawler, &now, &again).await {
                return mapped.unwrap_or(false);
            }
            self.media.yield_now().await;
        }
        false
    }

    /// Whether nothing has changed of the metadata that a file was read by.
    async fn holds(&self, crawler: &Crawler<'_, M>, found: &Found, layout: &Layout<'_, M>) -> bool {
        let monitor = &self.retriever.monitor;
        crawler.volume.holds(monitor, self.media).await
            && monitor.still_holds(&found.deps, self.media).await
            && match layout.view() {
                Some(view) => monitor.still_holds(&view.deps(), self.media).await,
                None => true,
            }
    }

    fn depth(&self) -> Depth {
        let config = &self.retriever.config;
        Depth { unordered: config.depth, ordered: config.ahead }
    }

    /// Feeds an operation what it wants of a file: the first range, and then what it asks for; or of one that
    /// is compressed what all of it holds, from a byte of that on.
    async fn feed<S: Sink>(
        &self,
        zip: Option<Kind>,
        layout: &mut Layout<'_, M>,
        first: (u64, u64),
        scan: Option<&Scan<'_>>,
        feeding: &mut Feeding<'_, '_, S>,
        scanned: &mut u64,
    ) -> Result<Flow, Failure> {
        let (media, depth, tally) = (self.media, self.depth(), self.tally);
        if let Some(kind) = zip {
            let (from, size) = first;
            let mut unzipping = Unzipping::new(kind, from, feeding);
            let all = [(0, size)];
            return match feed(media, layout, &all, depth, scan, &mut unzipping, scanned, tally).await? {
                Flow::More => unzipping.end(media).await,
                flow => Ok(flow),
            };
        }
        let mut flow = Flow::More;
        if first.0 < first.1 {
            flow = feed(media, layout, &[first], depth, scan, feeding, scanned, tally).await?;
        }
        while flow == Flow::More || flow == Flow::Done && feeding.is_elsewhere() {
            let then = feeding.then()?;
            if then.is_empty() {
                flow = Flow::More;
                break;
            }
            flow = feed(media, layout, &then, depth, scan, feeding, scanned, tally).await?;
        }
        Ok(flow)
    }

    /// Ends with a file that was fed, or could not be.
    async fn finish<S: Sink>(
        &self,
        mut feeding: Feeding<'_, '_, S>,
        result: Result<Flow, Failure>,
    ) -> Result<Ended, Failure> {
        match result {
            // Where that has no room behind what was good, it begins the next answer.
            Err(failure @ Failure::CorruptFile(_)) if !feeding.has_room_for(&failure) => {
                feeding.finish(self.media, Flow::Full).await
            }
            // What was good of compressed data counts, as with the tools that decompress.
            Err(failure @ Failure::CorruptFile(_)) => match feeding.finish(self.media, Flow::More).await? {
                Ended::Done => Err(failure),
                full @ Ended::Full(_) => Ok(full),
            },
            result => feeding.finish(self.media, result?).await,
        }
    }

    async fn map<S: Sink>(
        &self,
        sink: &mut S,
        crawler: &Crawler<'_, M>,
        (path, above): (&[u8], usize),
        found: &Found,
        at: &Cursor,
    ) -> Result<Ended, Failure> {
        use nearside_fsview::RunPlace;
        let mark = sink.mark();
        let size = found.inode.size;
        if sink.push(Record::File { path: path.into(), size }, path.len() + above).is_err() {
            return Ok(Ended::Full(Cursor::default()));
        }
        let view = crawler.view();
        let mut from = at.offset;
        let mut run: Option<(u64, u64, u64)> = None;
        let full = |offset| Ok(Ended::Full(Cursor { offset, ..Cursor::default() }));
        while let Some(next) = crawler.volume.volume.map(&view, &found.inode, from).await.map_err(of_view)? {
            let offset = match next.place {
                RunPlace::Zeros => EXTENT_ZEROS,
                RunPlace::Inline => EXTENT_INLINE,
                RunPlace::Volume(at) => crawler.volume.place_of(at, next.len, from)?,
            };
            let len = next.len.max(1);
            match &mut run {
                Some((_, total, EXTENT_ZEROS)) if offset == EXTENT_ZEROS => *total += len,
                Some((_, total, start)) if *start < EXTENT_INLINE && *start + *total == offset => {
                    *total += len
                }
                _ => {
                    if let Some((from, len, offset)) = run
                        && sink.push(Record::Extent { from, len, offset }, path.len() + above).is_err()
                    {
                        return full(from);
                    }
                    run = Some((from, len, offset));
                }
            }
            from = from.saturating_add(len);
            self.media.yield_now().await;
        }
        if let Some((from, len, offset)) = run
            && sink.push(Record::Extent { from, len, offset }, path.len() + above).is_err()
        {
            return full(from);
        }
        let monitor = &self.retriever.monitor;
        let mut holds = crawler.volume.holds(monitor, self.media).await;
        for deps in [&view.deps(), &*found.deps] {
            holds = holds && monitor.still_holds(deps, self.media).await;
        }
        if !holds {
            sink.rollback(mark);
            return Err(Failure::ChangedDuringScan);
        }
        Ok(Ended::Done)
    }

    /// The existing near-data path: the host located the data.
    async fn blocks<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        size: u64,
        ranges: &[BlockRange],
    ) -> Result<Continuation, Failure> {
        let Out { sink, work, counters, .. } = out;
        let Work::Bytes(bytes) = work else {
            return Err(Failure::InvalidRequest("the operation needs a path".to_owned()));
        };
        let at = self.request.resume.clone().unwrap_or_default();
        counters.files += 1;
        let start = self.media.now_ns();
        let _span = self.tally.span(TracePart::Operate, 1);
        let size = size.min(ranges.iter().fold(0, |n: u64, r| n.saturating_add(r.len)));
        let lapses = self.media.lapses();
        let zip = self.kind(bytes, || Layout::ranges(ranges), size, None).await?;
        let job = Job { sink: &mut **sink, path: b"", above: 0, size, at, zip: zip.is_some() };
        let (mut feeding, first) = Feeding::begin(bytes, job);
        let mut layout = Layout::ranges(ranges);
        let scanned = &mut counters.bytes_scanned;
        let result = self.feed(zip, &mut layout, first, None, &mut feeding, scanned).await;
        if self.media.lapses() != lapses {
            return Err(Failure::MediumError("bytes were taken away while they were read".to_owned()));
        }
        let ended = self.finish(feeding, result).await?;
        counters.compute_ns += self.media.now_ns().saturating_sub(start);
        match ended {
            Ended::Done => Ok(None),
            Ended::Full(cursor) => self.cursor_at(out, b"", cursor).map(Some),
        }
    }
}

/// Says that a file has failed, about which records may have been written since `mark`. False: there is no
/// room, and nothing is said of it. What it answered before it failed does not come twice: it begins the next
/// answer, or in one of its own only fails.
fn says_failed<S: Sink>(
    out: &mut Out<'_, S>,
    (shown, path_len): (&[u8], usize),
    failure: &Failure,
    mark: Mark,
) -> bool {
    let reserve = path_len + out.places.len() + BEYOND;
    let says = |out: &mut Out<'_, S>| {
        let record = Record::Failed { path: shown.into(), failure: failure.clone() };
        out.sink.push(record, reserve).is_ok()
    };
    if says(out) {
        return true;
    }
    out.sink.rollback(mark);
    mark.1 == 0 && says(out)
}

/// A path's last component.
fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// Writes a name; of a directory that is barred, that it is.
fn name<S: Sink>(
    out: &mut Out<'_, S>,
    shown: &[u8],
    path_len: usize,
    kind: Option<FileKind>,
    barred: bool,
) -> Ended {
    let reserve = path_len + out.places.len() + BEYOND;
    let mark = out.sink.mark();
    let name = Record::Name { path: shown.into(), kind: kind.map_or(0, FileKind::mode) };
    let mut pushed = out.sink.push(name, reserve);
    if barred && pushed.is_ok() {
        let failure = Failure::PermissionDenied;
        pushed = out.sink.push(Record::Failed { path: shown.into(), failure }, reserve);
    }
    if pushed.is_err() {
        out.sink.rollback(mark);
        return Ended::Full(Cursor::default());
    }
    Ended::Done
}

fn regular(found: &Found) -> Result<(), Failure> {
    match found.inode.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Failure::IsADirectory),
        _ => Err(Failure::NotARegularFile),
    }
}

fn too_small() -> Failure {
    Failure::InvalidRequest("the buffer is too small for one result".to_owned())
}
