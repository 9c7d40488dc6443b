//! Rows of tables, chosen by what they hold, and what is made of their groups.

use std::sync::Arc;

use nearside_ndp::Flow;
use nearside_ndp::select::parquet::{TAIL, begins};
use nearside_ndp::select::{Fault, Place, SAMPLE, Selection, Selector, Step};
use nearside_near_data::{Cursor, Failure, Record, RowFormat, SelectOptions};

use super::{ByteOperation, Ended, Job, in_slices};
use crate::media::Media;
use crate::model::Sink;

/// Selects from files.
pub(crate) struct SelectFiles {
    selection: Arc<Selection>,
    selector: Selector,
    /// What has come of the beginning of the file at hand, until its columns are known; of Parquet, of its
    /// end, from a byte on.
    head: Vec<u8>,
    from: u64,
    known: bool,
    /// Its rows have been asked for.
    asked: bool,
    at: Place,
    /// Whether its record is written.
    named: bool,
}

impl SelectFiles {
    /// Compiles the condition.
    ///
    /// # Errors
    /// A regular expression that is none, or too large.
    pub(crate) async fn new<M: Media>(media: &M, options: &SelectOptions) -> Result<SelectFiles, Failure> {
        let (options, cheap) = (options.clone(), Selection::is_cheap(options));
        let selection = match cheap {
            true => Selection::compile(options),
            false => media.offload(move || Selection::compile(options)).await,
        };
        let selection = Arc::new(selection.map_err(Failure::InvalidPattern)?);
        let selector = Selector::new(&selection);
        let (head, from, at) = (Vec::new(), 0, Place::default());
        Ok(SelectFiles { selection, selector, head, from, known: false, asked: false, at, named: false })
    }

    fn is_parquet(&self) -> bool {
        self.selection.options().format == RowFormat::Parquet
    }

    /// Learns it by the file's end, where all of the footer has come; else it has to come.
    async fn learn_of<M: Media>(&mut self, media: &M, size: u64) -> Result<(), Failure> {
        let footer = begins(&self.head, size).map_err(failure)?;
        if footer < self.from {
            self.from = footer;
            // All of it has room at once: it is up to 16 MiB.
            self.head = Vec::with_capacity(usize::try_from(size - footer).unwrap_or(0));
            return Ok(());
        }
        let (head, selection) = (std::mem::take(&mut self.head), Arc::clone(&self.selection));
        let skip = usize::try_from(footer - self.from).unwrap_or(usize::MAX);
        let plan = move || selection.plan_of(head.get(skip..).unwrap_or_default(), footer);
        self.selector.begin(Arc::new(media.offload(plan).await.map_err(failure)?), self.at);
        self.known = true;
        Ok(())
    }

    /// Learns what columns the file has by its beginning.
    async fn learn<M: Media>(&mut self, media: &M, size: u64) -> Result<(), Failure> {
        if self.is_parquet() {
            return self.learn_of(media, size).await;
        }
        let head = std::mem::take(&mut self.head);
        let (whole, light) = (head.len() as u64 >= size, self.selection.is_light(head.len() as u64));
        let selection = Arc::clone(&self.selection);
        let plan = move || selection.plan(&head, whole);
        let plan = if light { plan() } else { media.offload(plan).await };
        self.selector.begin(Arc::new(plan.map_err(failure)?), self.at);
        self.known = true;
        Ok(())
    }

    /// Writes the batch that is there. `false`: there is no room for it.
    fn write<S: Sink>(&mut self, job: &mut Job<'_, S>) -> bool {
        let mark = job.sink.mark();
        let named = self.named || job.file();
        let (rows, bad, stream) = self.selector.batch();
        if !(named && job.push(Record::Batch { rows, bad, stream: stream.into() })) {
            // The file's record has no worth alone.
            job.sink.rollback(mark);
            return false;
        }
        self.named = true;
        self.selector.taken();
        true
    }

    /// Bytes that a batch may have now.
    fn room<S: Sink>(&self, job: &Job<'_, S>) -> usize {
        // The file's record comes before the first.
        job.room().saturating_sub(if self.named { 0 } else { job.path.len() + 64 })
    }
}

/// Said of a file: of others of a tree it may not hold.
fn failure(fault: Fault) -> Failure {
    match fault {
        Fault::Table(what) => Failure::NotATable(format!("Not such a table: {what}")),
        Fault::Row(what) => Failure::CorruptFile(what),
        Fault::Limit(what) => Failure::InvalidRequest(what),
    }
}

impl ByteOperation for SelectFiles {
    fn range(&self, size: u64, _at: &Cursor) -> (u64, u64) {
        if self.is_parquet() { (size.saturating_sub(TAIL), size) } else { (0, size.min(SAMPLE as u64)) }
    }

    fn begin<S: Sink>(&mut self, job: &Job<'_, S>) {
        let Cursor { offset, line, found, .. } = job.at;
        self.at = Place { offset, row: line, found };
        (self.known, self.asked, self.named) = (false, false, false);
        self.head.clear();
        self.from = self.range(job.size, &job.at).0;
    }

    fn piece(&self) -> usize {
        16 << 10
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        _offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        let mut piece = bytes;
        if !self.known {
            self.head.extend_from_slice(bytes);
            let wanted = if self.is_parquet() { job.size - self.from } else { job.size.min(SAMPLE as u64) };
            if self.head.len() as u64 >= wanted {
                self.learn(media, job.size).await?;
            }
            if !(self.known && self.is_parquet()) {
                return Ok(Flow::More);
            }
            // Which bytes are wanted is said by the rows.
            piece = &[];
        }
        loop {
            let room = self.room(job);
            match in_slices(media, self.selector.feed(&mut piece, room)).await.map_err(failure)? {
                Step::More => return Ok(Flow::More),
                Step::Done => return Ok(Flow::Done),
                Step::Batch if self.write(job) => {}
                Step::Batch => return Ok(Flow::Full),
                Step::Long => self.long(media).await?,
            }
        }
    }

    fn then(&mut self, size: u64) -> Result<Vec<(u64, u64)>, Failure> {
        if self.is_parquet() {
            let footer = if self.from < size { vec![(self.from, size)] } else { Vec::new() };
            return Ok(if self.known { self.selector.wants() } else { footer });
        }
        let from = self.selector.offset();
        let wants = self.known && !std::mem::replace(&mut self.asked, true) && from < size;
        Ok(if wants { vec![(from, size)] } else { Vec::new() })
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        flow: Flow,
    ) -> Result<Ended, Failure> {
        if !self.known {
            // The file is empty.
            self.learn(media, 0).await?;
        }
        let mut full = flow == Flow::Full;
        while !full {
            let room = self.room(job);
            match in_slices(media, self.selector.end(room)).await.map_err(failure)? {
                Step::Long => self.long(media).await?,
                Step::Batch => full = !self.write(job),
                Step::More | Step::Done => break,
            }
        }
        // Of a file without a row, what columns it has.
        let left = self.selector.has_batch() || !self.named && !self.selector.has_failed();
        let done = !full && (!left || self.write(job));
        if let Some(held) = self.selector.leave() {
            media.offload(move || drop(held)).await;
        }
        if done {
            return Ok(Ended::Done);
        }
        let Place { offset, row, found } = self.selector.stopped();
        Ok(Ended::Full(Cursor { offset, line: row, found, ..Cursor::default() }))
    }
}

impl SelectFiles {
    /// Has what takes long be done where nobody waits.
    async fn long<M: Media>(&mut self, media: &M) -> Result<(), Failure> {
        if let Some(long) = self.selector.long() {
            let read = media.offload(move || long.read()).await;
            self.selector.take_long(read).map_err(failure)?;
        }
        Ok(())
    }
}
