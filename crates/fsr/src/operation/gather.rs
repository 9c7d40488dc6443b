//! Rows of a table by their numbers, as they are or pooled: only these are read.

use nearside_ndp::Flow;
use nearside_ndp::table::{Rows, Shape, decode};
use nearside_near_data::{Cursor, Failure, GatherOptions, Pooling, Record};

use super::table::{HEAD, shape_of};
use super::{ByteOperation, Ended, Job};
use crate::media::Media;
use crate::model::Sink;

/// Rows that a slice adds, however narrow they are.
const ROWS: usize = 128;

/// Gathers rows of tables.
pub(crate) struct GatherRows {
    options: GatherOptions,
    /// Where the rows of the file at hand lie, once that is known.
    shape: Option<Shape>,
    /// What has come of its beginning before.
    head: Vec<u8>,
    rows: Rows,
    pool: Pool,
}

/// The bag at hand.
#[derive(Default)]
struct Pool {
    /// Whether the file's record is written.
    named: bool,
    /// The bag's number.
    bag: usize,
    /// The first index of it, and the next one.
    first: usize,
    next: usize,
    row: Vec<f32>,
    sum: Vec<f32>,
    /// Values of a bag as they are answered.
    values: Vec<u8>,
}

impl GatherRows {
    /// # Errors
    /// Bags or weights that do not add up to the indices.
    pub(crate) fn new(options: &GatherOptions) -> Result<GatherRows, Failure> {
        let mut options = options.clone();
        let count = options.indices.len();
        match options.pooling {
            Pooling::None if !options.bags.is_empty() => {
                return Err(Failure::InvalidRequest("bags, and nothing to make of them".to_owned()));
            }
            Pooling::Weighted if options.weights.len() != count => {
                let weights = options.weights.len();
                return Err(Failure::InvalidRequest(format!("{weights} weights for {count} rows")));
            }
            Pooling::None => options.bags = vec![1; count],
            _ if options.bags.is_empty() => options.bags = vec![u32::try_from(count).unwrap_or(u32::MAX)],
            _ => {}
        }
        let all = options.bags.iter().fold(0u64, |sum, bag| sum + u64::from(*bag));
        if all != count as u64 {
            return Err(Failure::InvalidRequest(format!("bags of {all} rows together for {count}")));
        }
        let (head, rows, pool) = (Vec::new(), Rows::default(), Pool::default());
        Ok(GatherRows { options, shape: None, head, rows, pool })
    }
}

/// Ranges of a file's bytes in the order of the indices; rows that follow each other in one.
fn ranges(shape: &Shape, indices: &[u64]) -> Result<Vec<(u64, u64)>, Failure> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for index in indices {
        let place = shape.row_at(*index).zip(shape.row_at(index.saturating_add(1)));
        let Some((from, to)) = place.filter(|_| *index < shape.rows) else {
            let rows = shape.rows;
            return Err(Failure::NotATable(format!("There is no row {index}: the table has {rows} rows")));
        };
        match ranges.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => ranges.push((from, to)),
        }
    }
    Ok(ranges)
}

impl Pool {
    /// At a bag's first index.
    fn begin(&mut self, bags: &[u32], bag: usize) {
        let first = bags.iter().take(bag).fold(0usize, |sum, bag| sum.saturating_add(*bag as usize));
        (self.named, self.bag, self.first, self.next) = (false, bag, first, first);
        self.sum.clear();
    }

    /// Writes the bags that have all their rows. `false`: there is no room for one.
    async fn write<M: Media, S: Sink>(
        &mut self,
        media: &M,
        options: &GatherOptions,
        columns: usize,
        job: &mut Job<'_, S>,
    ) -> bool {
        while let Some(bag) =
            options.bags.get(self.bag).filter(|bag| self.next - self.first >= **bag as usize)
        {
            self.sum.resize(columns, 0.0);
            let divisor = if options.pooling == Pooling::Mean { (*bag).max(1) as f32 } else { 1.0 };
            self.values.clear();
            self.values.extend(self.sum.iter().flat_map(|number| (number / divisor).to_le_bytes()));
            let mark = job.sink.mark();
            let named = self.named || job.file();
            let record = Record::Row { number: self.bag as u64, values: (&self.values[..]).into() };
            if !(named && job.push(record)) {
                // The file's record has no worth alone.
                job.sink.rollback(mark);
                return false;
            }
            self.named = true;
            self.bag += 1;
            self.first = self.next;
            self.sum.clear();
            media.yield_now().await;
        }
        true
    }

    /// Adds the next row.
    fn add(&mut self, options: &GatherOptions, shape: &Shape, bytes: &[u8]) {
        let columns = shape.columns as usize;
        self.row.resize(columns, 0.0);
        decode(shape.element, options.table.scale, bytes, &mut self.row);
        if let Some(weight) = options.weights.get(self.next).filter(|_| options.pooling == Pooling::Weighted)
        {
            self.row.iter_mut().for_each(|number| *number *= *weight);
        }
        if self.next == self.first {
            // A sum with zero loses the sign of zeros.
            self.sum.clone_from(&self.row);
        } else {
            self.sum.iter_mut().zip(&self.row).for_each(|(sum, number)| *sum += *number);
        }
        self.next += 1;
    }
}

impl ByteOperation for GatherRows {
    fn range(&self, size: u64, _at: &Cursor) -> (u64, u64) {
        (0, if self.options.table.raw.is_some() { 0 } else { size.min(HEAD) })
    }

    fn begin<S: Sink>(&mut self, job: &Job<'_, S>) {
        self.shape = None;
        self.head.clear();
        self.rows.begin();
        let bags = &self.options.bags;
        self.pool.begin(bags, usize::try_from(job.at.found).unwrap_or(usize::MAX).min(bags.len()));
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
        let Some(shape) = self.shape else {
            self.head.extend_from_slice(bytes);
            return Ok(Flow::More);
        };
        let Self { options, rows, pool, .. } = self;
        let (columns, len) = (shape.columns as usize, shape.row_len());
        let (mut piece, mut taken) = (bytes, 0usize);
        while let Some(row) = rows.next(len, 1, &mut piece) {
            // Bags before this row's may be empty.
            if !pool.write(media, options, columns, job).await {
                return Ok(Flow::Full);
            }
            pool.add(options, &shape, row);
            taken += 1;
            if taken.is_multiple_of(ROWS) {
                media.yield_now().await;
            }
        }
        Ok(match pool.write(media, options, columns, job).await {
            true => Flow::More,
            false => Flow::Full,
        })
    }

    fn then(&mut self, size: u64) -> Result<Vec<(u64, u64)>, Failure> {
        if self.shape.is_some() {
            return Ok(Vec::new());
        }
        let shape = shape_of(&self.options.table, &self.head, size)?;
        self.shape = Some(shape);
        ranges(&shape, self.options.indices.get(self.pool.first..).unwrap_or_default())
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        flow: Flow,
    ) -> Result<Ended, Failure> {
        let columns = self.shape.map_or(0, |shape| shape.columns as usize);
        // The last bags may be empty.
        let fits = flow != Flow::Full && self.pool.write(media, &self.options, columns, job).await;
        if fits && (self.pool.named || job.file()) {
            return Ok(Ended::Done);
        }
        Ok(Ended::Full(Cursor { found: self.pool.bag as u64, ..Cursor::default() }))
    }
}
