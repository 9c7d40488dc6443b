//! Lines, found: in order where they are shown, in any order where a large file's are only counted.

use std::sync::Arc;

use nearside_ndp as ndp;
use nearside_ndp::unordered::{CountLines, Gather};
use nearside_ndp::{Flow, Position, Taken};
use nearside_near_data::{Answer, Cursor, Failure, Record, SearchOptions, SearchTotals};

use super::{ByteOperation, Ended, Job, failure, in_slices};
use crate::kept::Kept;
use crate::media::Media;
use crate::model::Sink;
use crate::provider::CHUNK;

/// A line longer than this may be cut where the answer is full; a shorter one waits for the next answer.
const CUT: usize = 1024;

/// A search over files.
pub(crate) struct SearchFiles {
    searcher: ndp::Searcher,
    count: Option<Gather<CountLines>>,
    totals: SearchTotals,
    file: File,
}

/// How the file at hand is searched.
#[derive(Default)]
struct File {
    /// Its lines are counted in any order.
    unordered: bool,
    /// Whether its record is written.
    named: bool,
    /// Bytes of the next line that an earlier answer carried.
    within: u64,
    /// The searcher has had the last byte.
    ended: bool,
}

impl SearchFiles {
    /// Compiles the patterns, unless they are known.
    pub(crate) async fn compile<M: Media>(
        media: &M,
        searches: &Arc<Kept<ndp::Search>>,
        options: &SearchOptions,
        totals: SearchTotals,
    ) -> Result<SearchFiles, Failure> {
        let search = match searches.get(|search| search.options() == options) {
            Some(search) => Ok(search),
            None if ndp::Search::is_cheap(options) => ndp::Search::compile(options.clone()).map(Arc::new),
            None => {
                let (searches, options) = (Arc::clone(searches), options.clone());
                media.offload(move || ndp::Search::compile(options).map(|s| searches.keep(s))).await
            }
        };
        let search = search.map_err(|e| Failure::InvalidPattern(e.to_string()))?;
        let searcher = ndp::Searcher::new(&search);
        let count = CountLines::new(&search).map(Gather::new);
        Ok(SearchFiles { searcher, count, totals, file: File::default() })
    }

    /// The searcher, and what takes its lines.
    fn lines<'s, 'a, S: Sink>(
        &'s mut self,
        job: &'s mut Job<'a, S>,
    ) -> (&'s mut ndp::Searcher, Lines<'s, 'a, S>) {
        let shows = self.searcher.search().options().answer.shows();
        let File { named, within, .. } = &mut self.file;
        (&mut self.searcher, Lines { shows, job, named, within })
    }

    /// What counts the lines of the file at hand, where that is done in any order.
    fn unordered(&mut self) -> Option<&mut Gather<CountLines>> {
        self.count.as_mut().filter(|_| self.file.unordered)
    }

    /// Writes what is left to write about a file with so many lines.
    fn conclude<S: Sink>(&mut self, found: u64, job: &mut Job<'_, S>) -> Ended {
        let options = self.searcher.search().options();
        let shown = found > 0 || !options.only_matching_files;
        let ended = match options.answer {
            Answer::Count | Answer::Files if shown => job.pair(Record::Matches(found)),
            // Lines bring the file's record with them.
            Answer::Lines | Answer::Matches if found == 0 && shown && job.at.offset == 0 && !job.file() => {
                Ended::Full(Cursor::default())
            }
            _ => Ended::Done,
        };
        if let Ended::Done = ended {
            self.totals.files += 1;
            self.totals.files_matched += u64::from(found > 0);
            self.totals.matches += found;
        }
        ended
    }
}

impl ByteOperation for SearchFiles {
    fn range(&self, size: u64, at: &Cursor) -> (u64, u64) {
        (at.offset.min(size), size)
    }

    fn decompresses(&self) -> bool {
        self.searcher.search().options().decompress
    }

    fn begin<S: Sink>(&mut self, job: &Job<'_, S>) {
        let Cursor { offset, line, found, pending, within, .. } = job.at;
        // From the start of a large file, counting needs no order.
        let alone = offset == 0 && found == 0 && job.size > CHUNK && !job.zip;
        self.file = File { unordered: alone && self.count.is_some(), within, ..File::default() };
        match self.unordered() {
            Some(count) => count.begin(),
            None => self.searcher.begin(Position { offset, line, found, pending }),
        }
    }

    fn is_unordered(&self) -> bool {
        self.file.unordered
    }

    fn piece(&self) -> usize {
        self.searcher.suggested_piece()
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        if let Some(count) = self.unordered() {
            return in_slices(media, count.feed_sliced(offset, bytes)).await.map_err(failure);
        }
        let (searcher, mut lines) = self.lines(job);
        in_slices(media, searcher.feed_sliced(bytes, &mut lines)).await.map_err(failure)
    }

    async fn zeros<M: Media>(&mut self, media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        let Some(count) = self.unordered() else { return Ok((self.searcher.zeros(len), Flow::More)) };
        let flow = in_slices(media, count.zeros_sliced(offset, len)).await.map_err(failure)?;
        Ok(flow.map_or((0, Flow::More), |flow| (len, flow)))
    }

    async fn whole<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        if self.file.unordered {
            return self.take(media, job, offset, bytes).await;
        }
        self.file.ended = true;
        let (searcher, mut lines) = self.lines(job);
        in_slices(media, searcher.whole_sliced(bytes, &mut lines)).await.map_err(failure)
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        mut flow: Flow,
    ) -> Result<Ended, Failure> {
        if let Some(count) = self.unordered() {
            let found = in_slices(media, count.finish_sliced(job.size)).await.map_err(failure)?;
            return Ok(self.conclude(found, job));
        }
        if flow == Flow::More && !self.file.ended {
            let (searcher, mut lines) = self.lines(job);
            flow = in_slices(media, searcher.finish_sliced(&mut lines)).await.map_err(failure)?;
        }
        if flow == Flow::Full {
            let Position { offset, line, found, pending } = self.searcher.position();
            let within = self.file.within;
            return Ok(Ended::Full(Cursor { offset, line, found, pending, within, ..Cursor::default() }));
        }
        let found = self.searcher.found();
        Ok(self.conclude(found, job))
    }

    fn totals(&self) -> Option<SearchTotals> {
        Some(self.totals)
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
