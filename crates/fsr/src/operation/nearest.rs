//! The rows of a table nearest to a query: all are looked at.

use nearside_ndp::Flow;
use nearside_ndp::table::{Nearest, Rows, Shape};
use nearside_near_data::{Cursor, Failure, NearestOptions, Record, Table};

use super::table::{HEAD, shape_of, table_failure};
use super::{ByteOperation, Ended, Job};
use crate::media::Media;
use crate::model::Sink;

/// Looks for rows in tables.
pub(crate) struct NearestRows {
    table: Table,
    nearest: Nearest,
    /// Where the rows of the file at hand lie, once that is known.
    shape: Option<Shape>,
    /// What has come of its beginning before.
    head: Vec<u8>,
    rows: Rows,
}

impl NearestRows {
    pub(crate) fn new(options: &NearestOptions) -> NearestRows {
        let nearest = Nearest::new(options.clone());
        NearestRows { table: options.table, nearest, shape: None, head: Vec::new(), rows: Rows::default() }
    }

    /// Takes bytes that may be rows: behind the last there may be others.
    async fn rows<M: Media>(
        &mut self,
        media: &M,
        shape: &Shape,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        let end = shape.end().unwrap_or(u64::MAX);
        let len = bytes.len().min(usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut piece = &bytes[..len];
        while let Some(rows) = self.rows.next(shape.row_len(), Nearest::ROWS, &mut piece) {
            self.nearest.feed(shape, rows).map_err(table_failure)?;
            media.yield_now().await;
        }
        Ok(if offset + len as u64 >= end { Flow::Done } else { Flow::More })
    }
}

impl ByteOperation for NearestRows {
    fn begin<S: Sink>(&mut self, _job: &Job<'_, S>) {
        self.nearest.begin();
        self.rows.begin();
        self.shape = None;
        self.head.clear();
    }

    fn piece(&self) -> usize {
        Nearest::SUGGESTED_PIECE
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        if let Some(shape) = self.shape {
            return self.rows(media, &shape, offset, bytes).await;
        }
        let mut head = std::mem::take(&mut self.head);
        head.extend_from_slice(bytes);
        if self.table.raw.is_none() && (head.len() as u64) < HEAD.min(job.size) {
            self.head = head;
            return Ok(Flow::More);
        }
        let shape = shape_of(&self.table, &head, job.size)?;
        self.shape = Some(shape);
        let rows = usize::try_from(shape.from).ok().and_then(|from| head.get(from..)).unwrap_or_default();
        self.rows(media, &shape, shape.from, rows).await
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        _flow: Flow,
    ) -> Result<Ended, Failure> {
        if self.shape.is_none() {
            // The file is empty.
            shape_of(&self.table, &[], job.size)?;
        }
        let mut found = Vec::new();
        while let Some(row) = self.nearest.farthest() {
            found.push(row);
            if found.len().is_multiple_of(Nearest::ROWS) {
                media.yield_now().await;
            }
        }
        let mark = job.sink.mark();
        let mut fits = job.file();
        for (nth, (row, score)) in (1usize..).zip(found.into_iter().rev()) {
            fits = fits && job.push(Record::Near { row, score });
            if nth.is_multiple_of(Nearest::ROWS) {
                media.yield_now().await;
            }
        }
        if fits {
            return Ok(Ended::Done);
        }
        job.sink.rollback(mark);
        Ok(Ended::Full(Cursor::default()))
    }
}
