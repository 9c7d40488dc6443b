//! What is done with a file's bytes: ndp's operations as consumers of the data provider, their results as
//! records.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use nearside_ndp as ndp;
use nearside_ndp::unordered::{CountLines, CountWords, Gather, SumCrc32c};
use nearside_ndp::{Flow, Position, Taken};
use nearside_near_data::{Answer, Cursor, Digest, Failure, Record, SearchOptions, SearchTotals};

use crate::media::Media;
use crate::model::Sink;
use crate::provider::{CHUNK, Consumer};
use crate::searches::Searches;

/// A line longer than this may be cut where the answer is full; a shorter one waits for the next answer.
const CUT: usize = 1024;

fn failure(error: ndp::Error) -> Failure {
    match error {
        ndp::Error::LineTooLong { .. } => Failure::LineTooLong(error.to_string()),
        ndp::Error::Utf16 => Failure::UnsupportedFeature(error.to_string()),
        // Blocks are handed on once each: it cannot happen.
        ndp::Error::Gap { .. } => Failure::MediumError(error.to_string()),
    }
}

/// Does ndp's work, which pauses at the end of each of its slices: there the command yields.
async fn in_slices<M: Media, T>(media: &M, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            Poll::Ready(done) => return done,
            Poll::Pending => media.yield_now().await,
        }
    }
}

/// An operation over the bytes of files, made once for a command.
pub(crate) enum Bytes {
    Search(Box<SearchFiles>, Option<Box<Gather<CountLines>>>),
    Count,
    Checksum(ndp::Checksum, Digest),
    Read { offset: u64, len: u64 },
}

/// A search over files.
pub(crate) struct SearchFiles {
    searcher: ndp::Searcher,
    pub totals: SearchTotals,
}

impl SearchFiles {
    /// Compiles the patterns, unless they are known.
    pub(crate) async fn compile<M: Media>(
        media: &M,
        searches: &Arc<Searches>,
        options: &SearchOptions,
        totals: SearchTotals,
    ) -> Result<Bytes, Failure> {
        let search = match searches.get(options) {
            Some(search) => Ok(search),
            None if ndp::Search::is_cheap(options) => ndp::Search::compile(options.clone()).map(Arc::new),
            None => {
                let (searches, options) = (Arc::clone(searches), options.clone());
                media.offload(move || searches.compile(options)).await
            }
        };
        let search = search.map_err(|e| Failure::InvalidPattern(e.to_string()))?;
        let searcher = ndp::Searcher::new(&search);
        let gather = CountLines::new(&search).map(|count| Box::new(Gather::new(count)));
        Ok(Bytes::Search(Box::new(SearchFiles { searcher, totals }), gather))
    }

    /// Whether the answer has the lines themselves.
    fn shows(&self) -> bool {
        self.searcher.search().options().answer.shows()
    }
}

/// How it ended with a file.
pub(crate) enum Ended {
    /// All of it is answered.
    Done,
    /// The sink is full: go on there (the path is the caller's).
    Full(Cursor),
}

/// One file, in the making.
pub(crate) struct Job<'a, S> {
    pub sink: &'a mut S,
    pub path: &'a [u8],
    /// Bytes that a cursor takes beside the path.
    pub above: usize,
    pub size: u64,
    pub at: Cursor,
}

impl<S: Sink> Job<'_, S> {
    fn push(&mut self, record: Record<'_>) -> bool {
        self.sink.push(record, self.path.len() + self.above).is_ok()
    }

    fn room(&self) -> usize {
        self.sink.room(self.path.len() + self.above)
    }

    fn file(&mut self) -> bool {
        let (path, size) = (self.path, self.size);
        self.push(Record::File { path: path.into(), size })
    }

    /// The file's record and one of its own, both or none.
    fn pair(&mut self, record: Record<'_>) -> Ended {
        let mark = self.sink.mark();
        if self.file() && self.push(record) {
            return Ended::Done;
        }
        self.sink.rollback(mark);
        Ended::Full(Cursor::default())
    }
}

/// A file's consumer: what `run` feeds.
pub(crate) enum Feeding<'f, 'a, S> {
    Lines { files: &'f mut SearchFiles, job: &'f mut Job<'a, S>, named: bool, within: u64, ended: bool },
    Lined { gather: &'f mut Gather<CountLines>, piece: usize },
    Words(Gather<CountWords>),
    Crc(Gather<SumCrc32c>),
    Digest(&'f mut ndp::Checksum),
    Data { job: &'f mut Job<'a, S>, named: bool, next: u64 },
}

impl Bytes {
    /// Which of the file's bytes it wants, and where it begins.
    pub(crate) fn range(&self, size: u64, at: &Cursor) -> (u64, u64) {
        match self {
            Bytes::Read { offset, len } => {
                let from = at.offset.max(*offset).min(size);
                (from, offset.saturating_add(*len).clamp(from, size))
            }
            Bytes::Search(..) => (at.offset.min(size), size),
            Bytes::Count | Bytes::Checksum(..) => (0, size),
        }
    }

    /// Whether what compressed files hold is meant.
    pub(crate) fn decompresses(&self) -> bool {
        matches!(self, Bytes::Search(files, _) if files.searcher.search().options().decompress)
    }

    /// A consumer for one file; `zip`: of what it holds, in its order.
    pub(crate) fn begin<'f, 'a, S: Sink>(
        &'f mut self,
        job: &'f mut Job<'a, S>,
        zip: bool,
    ) -> Feeding<'f, 'a, S> {
        match self {
            Bytes::Search(files, gather) => {
                let at = &job.at;
                // From the start of a large file, counting needs no order.
                let alone = at.offset == 0 && at.found == 0 && job.size > CHUNK && !zip;
                let piece = files.searcher.suggested_piece();
                if alone && let Some(gather) = gather {
                    gather.begin();
                    return Feeding::Lined { gather, piece };
                }
                files.searcher.begin(Position {
                    offset: at.offset,
                    line: at.line,
                    found: at.found,
                    pending: at.pending,
                });
                let within = at.within;
                Feeding::Lines { files, job, named: false, within, ended: false }
            }
            Bytes::Count => Feeding::Words(Gather::new(CountWords)),
            Bytes::Checksum(_, Digest::Crc32c) => Feeding::Crc(Gather::new(SumCrc32c)),
            Bytes::Checksum(checksum, _) => {
                checksum.begin();
                Feeding::Digest(checksum)
            }
            Bytes::Read { offset, .. } => {
                let next = job.at.offset.max(*offset);
                Feeding::Data { job, named: false, next }
            }
        }
    }
}

/// What a consumer leaves when the bytes are all fed.
pub(crate) enum Left {
    /// The records are written; or the sink is full.
    Written(Ended),
    /// Lines found.
    Found(u64),
    Words(ndp::Counted),
    Crc(u32),
    Digest(Vec<u8>),
}

impl<S: Sink> Feeding<'_, '_, S> {
    /// After the last byte.
    pub(crate) async fn finish<M: Media>(
        mut self,
        media: &M,
        flow: Flow,
        size: u64,
    ) -> Result<Left, Failure> {
        if let Feeding::Lines { ended: false, .. } = &self
            && flow == Flow::More
        {
            let flow = self.end_lines(media).await?;
            return self.leave(media, flow, size).await;
        }
        self.leave(media, flow, size).await
    }

    async fn end_lines<M: Media>(&mut self, media: &M) -> Result<Flow, Failure> {
        match self {
            Feeding::Lines { files, job, named, within, ended } => {
                *ended = true;
                let mut lines = Lines { shows: files.shows(), job, named, within };
                in_slices(media, files.searcher.finish_sliced(&mut lines)).await.map_err(failure)
            }
            _ => Ok(Flow::More),
        }
    }

    async fn leave<M: Media>(self, media: &M, flow: Flow, size: u64) -> Result<Left, Failure> {
        Ok(match self {
            Feeding::Lines { files, within, .. } if flow == Flow::Full => {
                let Position { offset, line, found, pending } = files.searcher.position();
                Left::Written(Ended::Full(Cursor {
                    offset,
                    line,
                    found,
                    pending,
                    within,
                    ..Cursor::default()
                }))
            }
            Feeding::Lines { files, .. } => Left::Found(files.searcher.found()),
            Feeding::Lined { gather, .. } => {
                Left::Found(in_slices(media, gather.finish_sliced(size)).await.map_err(failure)?)
            }
            Feeding::Words(mut gather) => Left::Words(gather.finish(size).map_err(failure)?),
            Feeding::Crc(mut gather) => Left::Crc(gather.finish(size).map_err(failure)?),
            Feeding::Digest(checksum) => Left::Digest(checksum.value()),
            Feeding::Data { job, named, next } => {
                if flow == Flow::Full || !named && !job.file() {
                    Left::Written(Ended::Full(Cursor { offset: next, ..Cursor::default() }))
                } else {
                    Left::Written(Ended::Done)
                }
            }
        })
    }
}

fn digest_record(kind: Digest, value: &[u8]) -> Record<'_> {
    Record::Digest { kind, value: value.into() }
}

impl Bytes {
    /// Writes what is left to write about a file.
    pub(crate) fn conclude<S: Sink>(&mut self, left: Left, job: &mut Job<'_, S>) -> Ended {
        match (self, left) {
            (_, Left::Written(ended)) => ended,
            (Bytes::Search(files, _), Left::Found(found)) => {
                let mut ended = Ended::Done;
                let options = files.searcher.search().options();
                let shown = found > 0 || !options.only_matching_files;
                match options.answer {
                    Answer::Count | Answer::Files if shown => ended = job.pair(Record::Matches(found)),
                    // Lines bring the file's record with them.
                    Answer::Lines | Answer::Matches
                        if found == 0 && shown && job.at.offset == 0 && !job.file() =>
                    {
                        ended = Ended::Full(Cursor::default());
                    }
                    _ => {}
                }
                if let Ended::Done = ended {
                    files.totals.files += 1;
                    files.totals.files_matched += u64::from(found > 0);
                    files.totals.matches += found;
                }
                ended
            }
            (_, Left::Words(c)) => {
                job.pair(Record::Count { lines: c.lines, words: c.words, bytes: job.size })
            }
            (_, Left::Crc(crc)) => job.pair(digest_record(Digest::Crc32c, &crc.to_be_bytes())),
            (Bytes::Checksum(_, digest), Left::Digest(value)) => {
                let digest = *digest;
                job.pair(digest_record(digest, &value))
            }
            // Each operation leaves its own.
            (_, Left::Found(_) | Left::Digest(_)) => Ended::Done,
        }
    }
}

impl<S: Sink> Consumer for Feeding<'_, '_, S> {
    fn unordered(&self) -> bool {
        match self {
            Feeding::Lined { .. } | Feeding::Words(_) | Feeding::Crc(_) => true,
            Feeding::Lines { .. } | Feeding::Digest(_) | Feeding::Data { .. } => false,
        }
    }

    fn piece(&self) -> usize {
        match self {
            Feeding::Lines { files, .. } => files.searcher.suggested_piece(),
            Feeding::Lined { piece, .. } => *piece,
            Feeding::Words(_) => ndp::Counter::SUGGESTED_PIECE,
            Feeding::Crc(_) => ndp::Checksum::new(Digest::Crc32c).suggested_piece(),
            Feeding::Digest(checksum) => checksum.suggested_piece(),
            Feeding::Data { .. } => 64 << 10,
        }
    }

    async fn take<M: Media>(&mut self, media: &M, offset: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        match self {
            Feeding::Lines { files, job, named, within, .. } => {
                let mut lines = Lines { shows: files.shows(), job, named, within };
                in_slices(media, files.searcher.feed_sliced(bytes, &mut lines)).await.map_err(failure)
            }
            Feeding::Lined { gather, .. } => {
                in_slices(media, gather.feed_sliced(offset, bytes)).await.map_err(failure)
            }
            Feeding::Words(gather) => gather.feed(offset, bytes).map_err(failure),
            Feeding::Crc(gather) => gather.feed(offset, bytes).map_err(failure),
            Feeding::Digest(checksum) => {
                checksum.feed(bytes);
                Ok(Flow::More)
            }
            Feeding::Data { job, named, next } => {
                if !*named {
                    if !job.file() {
                        return Ok(Flow::Full);
                    }
                    *named = true;
                }
                let n = job.room().min(bytes.len());
                if n == 0 || !job.push(Record::Data { offset, bytes: bytes[..n].into() }) {
                    return Ok(Flow::Full);
                }
                *next = offset + n as u64;
                Ok(if n < bytes.len() { Flow::Full } else { Flow::More })
            }
        }
    }

    async fn zeros<M: Media>(&mut self, media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        let flow = match self {
            Feeding::Lines { files, .. } => return Ok((files.searcher.zeros(len), Flow::More)),
            Feeding::Lined { gather, .. } => {
                in_slices(media, gather.zeros_sliced(offset, len)).await.map_err(failure)?
            }
            Feeding::Words(gather) => gather.zeros(offset, len).map_err(failure)?,
            Feeding::Crc(gather) => gather.zeros(offset, len).map_err(failure)?,
            // Other checksums have no short way; a reader gets every byte.
            Feeding::Digest(_) | Feeding::Data { .. } => None,
        };
        Ok(flow.map_or((0, Flow::More), |flow| (len, flow)))
    }

    async fn whole<M: Media>(&mut self, media: &M, offset: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        match self {
            Feeding::Lines { files, job, named, within, ended } => {
                *ended = true;
                let mut lines = Lines { shows: files.shows(), job, named, within };
                in_slices(media, files.searcher.whole_sliced(bytes, &mut lines)).await.map_err(failure)
            }
            _ => self.take(media, offset, bytes).await,
        }
    }
}

/// Takes a search's lines into the answer.
struct Lines<'l, 'a, S> {
    job: &'l mut Job<'a, S>,
    /// Whether the file's record is written.
    named: &'l mut bool,
    /// Bytes of the next line that an earlier answer carried.
    within: &'l mut u64,
    shows: bool,
}

impl<S: Sink> Lines<'_, '_, S> {
    fn name(&mut self) -> bool {
        if !*self.named {
            *self.named = self.job.file();
        }
        *self.named
    }
}

impl<S: Sink> ndp::Sink for Lines<'_, '_, S> {
    fn line(&mut self, line: ndp::Line<'_>) -> Taken {
        if !self.shows {
            return Taken::Yes;
        }
        let mark = self.job.sink.mark();
        let new = !*self.named;
        if !self.name() {
            return Taken::Full;
        }
        let skip = usize::try_from(*self.within).unwrap_or(usize::MAX).min(line.bytes.len());
        let bytes = &line.bytes[skip..];
        let ndp::Line { number, context, .. } = line;
        let offset = line.offset + skip as u64;
        if self.job.push(Record::Line { number, offset, bytes: bytes.into(), context, continues: false }) {
            *self.within = 0;
            return Taken::Yes;
        }
        let room = self.job.room().min(bytes.len());
        let first = mark.1 == 0;
        if room >= 64 && (bytes.len() > CUT || first) {
            let part = &bytes[..room];
            if self.job.push(Record::Line { number, offset, bytes: part.into(), context, continues: true }) {
                *self.within = (skip + room) as u64;
                return Taken::Full;
            }
        }
        if new {
            // Not even a part of a line fits after the file's record: both wait.
            self.job.sink.rollback(mark);
            *self.named = false;
        }
        Taken::Full
    }

    fn binary(&mut self) -> Taken {
        if !self.shows {
            return Taken::Yes;
        }
        let mark = self.job.sink.mark();
        if self.name() && self.job.push(Record::BinaryMatches) {
            return Taken::Yes;
        }
        self.job.sink.rollback(mark);
        Taken::Full
    }
}
