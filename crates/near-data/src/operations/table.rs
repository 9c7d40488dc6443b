//! Tables of numbers: files whose bytes are rows of equal length, and what can be asked of them.

use alloc::vec::Vec;

use crate::wire::{Fault, Reader, WireError, small};

/// Most numbers in a row.
pub const MAX_COLUMNS: u32 = 16_384;
/// Most rows that [`NearestOptions`] asks for.
pub const MAX_NEAREST: u32 = 4096;

/// How a number is stored, in little-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 16 bits.
    F16,
    /// The upper half of an [`F32`](Element::F32).
    Bf16,
    /// A signed integer of 8 bits.
    I8,
}

/// How a file is a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table {
    /// How its numbers are stored and how many are in a row; `None`: as its header says, which is NumPy's
    /// (`.npy`: two axes, rows one after the other, one of the [`Element`]s; `<V2` is bfloat16).
    pub raw: Option<(Element, u32)>,
    /// What each number is multiplied by.
    pub scale: f32,
}

impl Default for Table {
    fn default() -> Self {
        Self { raw: None, scale: 1.0 }
    }
}

/// What is made of the rows of a bag. Sums are in single precision, in the order of the indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// Nothing: each row is answered.
    #[default]
    None,
    /// Their sum; of no rows, zeros.
    Sum,
    /// Their mean; of no rows, zeros.
    Mean,
    /// The sum of each times its weight.
    Weighted,
}

/// Which rows, and what to make of them: the look-up of an embedding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatherOptions {
    /// The table.
    pub table: Table,
    /// What is made of the rows of a bag.
    pub pooling: Pooling,
    /// The rows, from 0.
    pub indices: Vec<u64>,
    /// How many of the indices are in each bag, one after the other; their sum is the number of indices.
    /// Empty: all are in one bag. Without pooling there are no bags.
    pub bags: Vec<u32>,
    /// One for each index ([`Pooling::Weighted`]).
    pub weights: Vec<f32>,
}

/// What near means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// The inner product with the query is large.
    #[default]
    InnerProduct,
    /// The square of the Euclidean distance from the query is small.
    L2,
}

/// Which rows of a table are nearest to a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NearestOptions {
    /// The table.
    pub table: Table,
    /// What near means.
    pub measure: Measure,
    /// How many rows, at most [`MAX_NEAREST`].
    pub count: u32,
    /// As many numbers as a row has.
    pub query: Vec<f32>,
}

fn element_number(table: &Table) -> u32 {
    match table.raw {
        None => 0,
        Some((Element::F32, _)) => 1,
        Some((Element::F16, _)) => 2,
        Some((Element::Bf16, _)) => 3,
        Some((Element::I8, _)) => 4,
    }
}

/// Bits of the elements' numbers, 0 for NumPy's header: what both operations take.
const ELEMENTS: u32 = 0b1_1111;

impl Table {
    fn put(&self, out: &mut Vec<u8>) {
        let columns = self.raw.map_or(0, |(_, columns)| columns);
        put_u32(out, [element_number(self), columns, self.scale.to_bits()]);
    }

    fn take(r: &mut Reader<'_>) -> Result<Table, WireError> {
        let at = r.at;
        let (number, columns) = (r.u32()?, r.u32()?);
        let element = match number {
            0 => None,
            1 => Some(Element::F32),
            2 => Some(Element::F16),
            3 => Some(Element::Bf16),
            4 => Some(Element::I8),
            n => return Err(WireError { at, what: Fault::Unknown("element", n) }),
        };
        if columns > MAX_COLUMNS || (columns == 0) != element.is_none() {
            return Err(WireError { at, what: Fault::Invalid("number of columns") });
        }
        Ok(Table { raw: element.map(|element| (element, columns)), scale: f32::from_bits(r.u32()?) })
    }
}

impl GatherOptions {
    /// Bits 0 to 4: elements; from bit 8 on: poolings.
    pub(crate) const BITS: u32 = ELEMENTS | 0b1111 << 8;

    /// Table, pooling, numbers of bags and indices; bags, indices, weights.
    pub(crate) fn put(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.table.put(&mut out);
        let pooling = match self.pooling {
            Pooling::None => 0,
            Pooling::Sum => 1,
            Pooling::Mean => 2,
            Pooling::Weighted => 3,
        };
        put_u32(&mut out, [pooling, small(self.bags.len()), small(self.indices.len())]);
        put_u32(&mut out, self.bags.iter().copied());
        self.indices.iter().for_each(|index| out.extend_from_slice(&index.to_le_bytes()));
        put_u32(&mut out, self.weights.iter().map(|weight| weight.to_bits()));
        out
    }

    pub(crate) fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let table = Table::take(r)?;
        let at = r.at;
        let pooling = match r.u32()? {
            0 => Pooling::None,
            1 => Pooling::Sum,
            2 => Pooling::Mean,
            3 => Pooling::Weighted,
            n => return Err(WireError { at, what: Fault::Unknown("pooling", n) }),
        };
        let (bags, indices) = (r.len()?, r.len()?);
        let mut bags = Reader::new(r.bytes(bags.saturating_mul(4))?, at);
        let mut indices = Reader::new(r.bytes(indices.saturating_mul(8))?, at);
        let mut options = GatherOptions { table, pooling, ..GatherOptions::default() };
        while !bags.rest.is_empty() {
            options.bags.push(bags.u32()?);
        }
        while !indices.rest.is_empty() {
            options.indices.push(indices.u64()?);
        }
        options.weights = take_numbers(r)?;
        Ok(options)
    }
}

impl NearestOptions {
    /// Bits 0 to 4: elements; from bit 8 on: measures.
    pub(crate) const BITS: u32 = ELEMENTS | 0b11 << 8;

    /// Table, measure, number of rows; the query.
    pub(crate) fn put(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.table.put(&mut out);
        let measure = match self.measure {
            Measure::InnerProduct => 0,
            Measure::L2 => 1,
        };
        put_u32(&mut out, [measure, self.count]);
        put_u32(&mut out, self.query.iter().map(|number| number.to_bits()));
        out
    }

    pub(crate) fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let table = Table::take(r)?;
        let at = r.at;
        let measure = match r.u32()? {
            0 => Measure::InnerProduct,
            1 => Measure::L2,
            n => return Err(WireError { at, what: Fault::Unknown("measure", n) }),
        };
        let count = r.u32()?;
        if count > MAX_NEAREST {
            return Err(WireError { at, what: Fault::Invalid("number of rows") });
        }
        Ok(NearestOptions { table, measure, count, query: take_numbers(r)? })
    }
}

fn put_u32(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    numbers.into_iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

/// All that is left, as numbers.
fn take_numbers(r: &mut Reader<'_>) -> Result<Vec<f32>, WireError> {
    let mut numbers = Vec::new();
    while !r.rest.is_empty() {
        numbers.push(f32::from_bits(r.u32()?));
    }
    Ok(numbers)
}
