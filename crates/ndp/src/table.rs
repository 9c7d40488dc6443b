//! Rows of tables: decoded, summed, and compared with a query.
//!
//! The loops are plain, over arrays of `LANES` numbers, which the compiler gives to vector registers of the
//! machine's width. What they compute does not depend on it: each lane is summed on its own, in order, and
//! then the lanes, always in the same way.

use std::collections::BinaryHeap;

use multiversion::multiversion;
use nearside_dma::prefetch;
use nearside_near_data::{Element, Measure, NearestOptions};

/// Numbers that are summed side by side.
const LANES: usize = 16;
/// Bytes of a line of the cache, and how far ahead of its use one is asked for.
const LINE: usize = 64;
const AHEAD: usize = 4096;

/// Where the rows of a file lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How numbers are stored.
    pub element: Element,
    /// Numbers in a row; at least one.
    pub columns: u32,
    /// Rows.
    pub rows: u64,
    /// The first byte of the first row.
    pub from: u64,
}

/// Why a file or a request is none that rows can be had of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The file's header; what is wrong with it.
    #[error("{0}")]
    Header(String),
    /// A file without a header is no number of rows.
    #[error("{size} bytes are not rows of {row} bytes")]
    Size {
        /// Bytes of the file.
        size: u64,
        /// Bytes of a row.
        row: u64,
    },
    /// The query is of another length than the rows.
    #[error("the query is {query} long, a row of the table {columns}")]
    Query {
        /// Numbers in the query.
        query: usize,
        /// Numbers in a row.
        columns: u32,
    },
}

const fn bytes_of(element: Element) -> usize {
    match element {
        Element::F32 => 4,
        Element::F16 | Element::Bf16 => 2,
        Element::I8 => 1,
    }
}

impl Shape {
    /// Of a file of `size` bytes without a header.
    ///
    /// # Errors
    /// [`TableError::Size`].
    pub fn raw((element, columns): (Element, u32), size: u64) -> Result<Shape, TableError> {
        let row = u64::from(columns) * bytes_of(element) as u64;
        match size.checked_rem(row) {
            Some(0) => Ok(Shape { element, columns, rows: size / row, from: 0 }),
            _ => Err(TableError::Size { size, row }),
        }
    }

    /// Bytes of a row.
    pub fn row_len(&self) -> usize {
        self.columns as usize * bytes_of(self.element)
    }

    /// Where a row, or what is behind the last, begins; `None`: beyond any file.
    pub fn row_at(&self, row: u64) -> Option<u64> {
        row.checked_mul(self.row_len() as u64)?.checked_add(self.from)
    }

    /// Where the last row ends.
    pub fn end(&self) -> Option<u64> {
        self.row_at(self.rows)
    }
}

/// Cuts bytes that come in pieces into whole rows.
#[derive(Debug, Default)]
pub struct Rows {
    begun: Vec<u8>,
}

impl Rows {
    /// Makes ready for others.
    pub fn begin(&mut self) {
        self.begun.clear();
    }

    /// Takes from a piece, and gives the next whole rows of `len` bytes: as many as there are, at most
    /// `most`; `None` once the piece is taken.
    pub fn next<'r, 'p: 'r>(&'r mut self, len: usize, most: usize, piece: &mut &'p [u8]) -> Option<&'r [u8]> {
        let len = len.max(1);
        if self.begun.len() == len {
            self.begun.clear();
        }
        let whole = match self.begun.len() {
            0 => (piece.len() / len).min(most) * len,
            _ => 0,
        };
        if whole > 0 {
            return piece.split_off(..whole);
        }
        let missing = (len - self.begun.len()).min(piece.len());
        self.begun.extend_from_slice(piece.split_off(..missing).unwrap_or_default());
        (self.begun.len() == len).then_some(&self.begun[..])
    }
}

/// Four bytes as a single.
#[inline(always)]
fn single(bytes: [u8; 4]) -> f32 {
    f32::from_le_bytes(bytes)
}

/// A half as a single: exact. Its bits are moved to where a single has them, and the exponent is then 112
/// too small.
#[inline(always)]
fn half(bytes: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(bytes);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let scaled = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let endless = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled | endless | u32::from(bits & 0x8000) << 16)
}

/// The upper half of a single as that single.
#[inline(always)]
fn brain(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// A byte with a sign as a single.
#[inline(always)]
fn integer([byte]: [u8; 1]) -> f32 {
    f32::from(byte.cast_signed())
}

/// Numbers as singles, each times `scale`; of what `bytes` has too few for, nothing.
pub fn decode(element: Element, scale: f32, bytes: &[u8], to: &mut [f32]) {
    match element {
        Element::F32 => each_of(bytes, |bytes| single(bytes) * scale, to),
        Element::F16 => each_of(bytes, |bytes| half(bytes) * scale, to),
        Element::Bf16 => each_of(bytes, |bytes| brain(bytes) * scale, to),
        Element::I8 => each_of(bytes, |bytes| integer(bytes) * scale, to),
    }
}

fn each_of<const BYTES: usize>(bytes: &[u8], number: impl Fn([u8; BYTES]) -> f32, to: &mut [f32]) {
    to.iter_mut().zip(bytes.as_chunks().0).for_each(|(to, from)| *to = number(*from));
}

/// Sums what `each` makes of pairs of numbers: those of a row, which `number` reads, times `scale`, and those
/// of the query.
#[inline(always)]
fn sum<const BYTES: usize>(
    row: &[[u8; BYTES]],
    query: &[f32],
    scale: f32,
    number: impl Fn([u8; BYTES]) -> f32,
    each: impl Fn(f32, f32) -> f32,
) -> f32 {
    let ((row, row_rest), (query, query_rest)) = (row.as_chunks::<LANES>(), query.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in row.iter().zip(query) {
        for lane in 0..LANES {
            sums[lane] += each(number(a[lane]) * scale, b[lane]);
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(row_rest).zip(query_rest) {
        *sum += each(number(*a) * scale, *b);
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = sums.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        width /= 2;
    }
    sums[0]
}

/// A row, by how far it is: the inner product's negative, or the distance's square. What is no number is
/// farther than all that is one.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    far: f32,
    row: u64,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.far.total_cmp(&other.far).then(self.row.cmp(&other.row))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

/// The rows of a table nearest to a query: all are looked at.
#[derive(Debug)]
pub struct Nearest {
    options: NearestOptions,
    /// Rows so far.
    row: u64,
    best: BinaryHeap<Candidate>,
    far: Vec<f32>,
}

impl Nearest {
    /// Rows to take at once so that a call takes 20 µs or less, where they are not more than
    /// [`Nearest::SUGGESTED_PIECE`] together.
    pub const ROWS: usize = 128;
    /// Bytes, so too.
    pub const SUGGESTED_PIECE: usize = 32 << 10;

    /// Before the first row.
    pub fn new(options: NearestOptions) -> Self {
        Self { options, row: 0, best: BinaryHeap::new(), far: Vec::new() }
    }

    /// Makes ready for the next table.
    pub fn begin(&mut self) {
        self.row = 0;
        self.best.clear();
    }

    /// Takes the next rows, which are whole.
    ///
    /// # Errors
    /// [`TableError::Query`].
    pub fn feed(&mut self, shape: &Shape, rows: &[u8]) -> Result<(), TableError> {
        let Self { options, row, best, far } = self;
        let columns = options.query.len();
        if columns != shape.columns as usize {
            return Err(TableError::Query { query: columns, columns: shape.columns });
        }
        far.clear();
        distances(options, shape.element, rows, far);
        for far in far.iter() {
            // Of what is no number, the greatest there is.
            let candidate = Candidate { far: if far.is_nan() { f32::NAN } else { *far }, row: *row };
            *row += 1;
            if best.len() < options.count as usize {
                best.push(candidate);
            } else if let Some(mut worst) = best.peek_mut()
                && candidate < *worst
            {
                *worst = candidate;
            }
        }
        Ok(())
    }

    /// Takes the farthest of those that were nearest, with its inner product or its distance's square; of
    /// those as far, the last in the table.
    pub fn farthest(&mut self) -> Option<(u64, f32)> {
        let sign = if self.options.measure == Measure::InnerProduct { -1.0 } else { 1.0 };
        self.best.pop().map(|candidate| (candidate.row, sign * candidate.far))
    }
}

/// How far rows are, by the widest registers there are. What is made for them is in here alone, in loops
/// that are a part of it: an iterator's own functions are made for any machine, and call closures of wider
/// registers number by number.
#[multiversion(targets("x86_64+avx2"))]
fn distances(options: &NearestOptions, element: Element, rows: &[u8], far: &mut Vec<f32>) {
    match element {
        Element::F32 => far_of(options, rows, single, far),
        Element::F16 => far_of(options, rows, half, far),
        Element::Bf16 => far_of(options, rows, brain, far),
        Element::I8 => far_of(options, rows, integer, far),
    }
}

#[inline(always)]
fn far_of<const BYTES: usize>(
    NearestOptions { query, measure, table, .. }: &NearestOptions,
    rows: &[u8],
    number: impl Fn([u8; BYTES]) -> f32 + Copy,
    far: &mut Vec<f32>,
) {
    let rows = rows.as_chunks().0.chunks_exact(query.len().max(1));
    far.reserve(rows.len());
    // What lies ahead in memory is asked for early: by itself the processor stops at each page's end, and of
    // a mapped file each page is one of its own.
    let ahead = |row: &[[u8; BYTES]]| {
        for line in row.chunks(LINE / BYTES) {
            prefetch(line.as_ptr().wrapping_byte_add(AHEAD), false);
        }
    };
    match measure {
        Measure::InnerProduct => {
            for row in rows {
                ahead(row);
                far.push(-sum(row, query, table.scale, number, |a, b| a * b));
            }
        }
        Measure::L2 => {
            for row in rows {
                ahead(row);
                far.push(sum(row, query, table.scale, number, |a, b| (a - b) * (a - b)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nearside_near_data::Table;
    use nearside_random::Rng;

    use super::*;

    fn nearest_first(nearest: &mut Nearest) -> Vec<(u64, f32)> {
        let mut found: Vec<_> = std::iter::from_fn(|| nearest.farthest()).collect();
        found.reverse();
        found
    }

    /// Every half, by the definition of IEEE 754; every upper half of a single.
    #[test]
    fn numbers_of_all_kinds() {
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut halves = vec![0.0; 1 << 16];
        let mut brains = halves.clone();
        decode(Element::F16, 1.0, &bytes, &mut halves);
        decode(Element::Bf16, 1.0, &bytes, &mut brains);
        for bits in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            let value = sign
                * match exponent {
                    0 => fraction / 1024.0 * 2f64.powi(-14),
                    31 if fraction == 0.0 => f64::INFINITY,
                    31 => f64::NAN,
                    _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
                };
            let half = f64::from(halves[usize::from(bits)]);
            assert!(half == value || half.is_nan() && value.is_nan(), "{bits:#x}: {half}, not {value}");
            assert_eq!(half.is_sign_negative(), sign < 0.0, "{bits:#x}");
            let (brain, value) = (brains[usize::from(bits)], f32::from_bits(u32::from(bits) << 16));
            assert!(brain.to_bits() == value.to_bits() || brain.is_nan() && value.is_nan(), "{bits:#x}");
        }
        let mut integers = [0.0; 4];
        decode(Element::I8, 0.5, &[0x80, 0xff, 0, 0x7f], &mut integers);
        assert_eq!(integers, [-64.0, -0.5, 0.0, 63.5]);
    }

    /// Against a sum in double precision over all rows, sorted: of whole numbers, so that both are exact.
    /// Pieces of any length give the same.
    #[test]
    fn nearest_of_all() {
        let mut rng = Rng(7);
        for (measure, columns) in [
            (Measure::InnerProduct, 1u32),
            (Measure::L2, 37),
            (Measure::InnerProduct, 100),
            (Measure::L2, 64),
        ] {
            let rows = 500u64;
            let mut number = || rng.below(41) as f32 - 20.0;
            let query: Vec<f32> = (0..columns).map(|_| number()).collect();
            let table: Vec<f32> = (0..columns * rows as u32).map(|_| number()).collect();
            let bytes: Vec<u8> = table.iter().flat_map(|n| n.to_le_bytes()).collect();
            let score = |row: &[f32]| {
                row.iter().zip(&query).fold(0f64, |sum, (a, b)| {
                    let (a, b) = (f64::from(*a), f64::from(*b));
                    sum + if measure == Measure::L2 { (a - b) * (a - b) } else { a * b }
                })
            };
            let mut all: Vec<(u64, f64)> = (0..).zip(table.chunks(columns as usize).map(score)).collect();
            all.sort_by(|a, b| match measure {
                Measure::L2 => a.1.total_cmp(&b.1),
                Measure::InnerProduct => b.1.total_cmp(&a.1),
            });
            let shape = Shape::raw((Element::F32, columns), bytes.len() as u64).unwrap();
            let table = Table::default();
            let mut nearest = Nearest::new(NearestOptions { table, measure, count: 20, query });
            for len in [bytes.len(), 7, 1000] {
                nearest.begin();
                let mut cut = Rows::default();
                for mut piece in bytes.chunks(len) {
                    while let Some(rows) = cut.next(shape.row_len(), 3, &mut piece) {
                        assert!(rows.len() <= 3 * shape.row_len());
                        nearest.feed(&shape, rows).unwrap();
                    }
                }
                let found: Vec<_> =
                    nearest_first(&mut nearest).iter().map(|(row, n)| (*row, f64::from(*n))).collect();
                assert_eq!(found, all[..20], "{measure:?}, {columns} columns, pieces of {len}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_far() {
        for measure in [Measure::InnerProduct, Measure::L2] {
            let options = NearestOptions { table: Table::default(), measure, count: 9, query: vec![1.0] };
            let mut nearest = Nearest::new(options);
            let numbers = [f32::NAN, -f32::NAN, f32::INFINITY, 1.0, f32::NEG_INFINITY];
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let shape = Shape::raw((Element::F32, 1), bytes.len() as u64).unwrap();
            nearest.feed(&shape, &bytes).unwrap();
            let order: Vec<u64> = nearest_first(&mut nearest).iter().map(|(row, _)| *row).collect();
            let expected = if measure == Measure::L2 { [3, 2, 4, 0, 1] } else { [2, 3, 4, 0, 1] };
            assert_eq!(order, expected, "{measure:?}");
            assert!(nearest.feed(&Shape { columns: 2, ..shape }, &bytes).is_err());
        }
        assert!(Shape::raw((Element::F16, 3), 13).is_err());
    }
}
