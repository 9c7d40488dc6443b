//! Streams read again: what a host does with a drive's batches. In bounds, whatever the bytes are.

use nearside_near_data::{ColumnType, MAX_FIELDS};

use super::arrow::{Column, MAX_ROWS};
use super::merge::MergeError;
use super::value::{Cell, DAY_US, day_of};

/// A value of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'t> {
    /// None.
    Null,
    /// A truth.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// A text.
    Text(&'t str),
}

/// As people write it: days as `YYYY-MM-DD`, instants as `YYYY-MM-DD HH:MM:SS` with what there is of a
/// second; nothing for null.
impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Value::Null => Ok(()),
            Value::Bool(is) => write!(f, "{is}"),
            Value::Int(int) => write!(f, "{int}"),
            Value::Float(float) => write!(f, "{float:?}"),
            Value::Date(days) => {
                let (year, month, day) = day_of(days.into());
                write!(f, "{year:04}-{month:02}-{day:02}")
            }
            Value::Timestamp(at) => {
                let (year, month, day) = day_of(at.div_euclid(DAY_US));
                let of_day = at.rem_euclid(DAY_US);
                let (seconds, micros) = (of_day / 1_000_000, of_day % 1_000_000);
                let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")?;
                if micros > 0 {
                    write!(f, ".{}", format!("{micros:06}").trim_end_matches('0'))?;
                }
                Ok(())
            }
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// A value, and the text that it lies in.
pub(super) fn cell_of(value: Value<'_>) -> (Cell, &str) {
    let cell = match value {
        Value::Null => Cell::Null,
        Value::Bool(is) => Cell::Bool(is),
        Value::Int(n) => Cell::Int(n),
        Value::Float(n) => Cell::Float(n),
        Value::Date(n) => Cell::Date(n),
        Value::Timestamp(n) => Cell::Time(n),
        Value::Text(text) => return (Cell::text(0, text.len()), text),
    };
    (cell, "")
}

/// A column of a stream, as Arrow lays it out: enough for the batch's rows, and its texts are UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'b> {
    /// A bit for each row that is not null; nothing: none is.
    pub valid: &'b [u8],
    /// Of texts, where the first begins and where each ends: 32 bits each, in order, within `data`.
    pub ends: &'b [u8],
    /// Bits of truths, numbers, or the texts' bytes.
    pub data: &'b [u8],
}

/// A batch, as a stream of [`Record::Batch`](nearside_near_data::Record::Batch) has it: a schema and one
/// record batch.
#[derive(Clone, Debug, Default)]
pub struct Table<'b> {
    columns: Vec<(&'b str, ColumnType)>,
    stored: Vec<Stored<'b>>,
    rows: usize,
    /// The messages: of the schema, and of the batch.
    parts: (&'b [u8], &'b [u8]),
}

/// Bytes that are no such stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a stream of Arrow's that is understood: {0}")]
pub struct NotArrow(&'static str);

const SHORT: NotArrow = NotArrow("it ends too early");

fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(slice(bytes, at, 2)?.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(slice(bytes, at, 4)?.try_into().ok()?)).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(slice(bytes, at, 8)?.try_into().ok()?)).ok()
}

/// A table of a FlatBuffer.
#[derive(Clone, Copy)]
struct Flat<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Flat<'b> {
    fn root(bytes: &'b [u8]) -> Option<Flat<'b>> {
        Some(Flat { bytes, at: u32_at(bytes, 0)? })
    }

    /// Where a field lies; `None`: it is not there.
    fn field(&self, nth: usize) -> Option<usize> {
        let back = i64::try_from(u32_at(self.bytes, self.at)?).ok()?;
        let back = i64::from(u32::try_from(back).ok()?.cast_signed());
        let vtable = usize::try_from(i64::try_from(self.at).ok()?.checked_sub(back)?).ok()?;
        let place = 4 + 2 * nth;
        if place >= u16_at(self.bytes, vtable)? {
            return None;
        }
        match u16_at(self.bytes, vtable.checked_add(place)?)? {
            0 => None,
            offset => self.at.checked_add(offset),
        }
    }

    fn u8(&self, nth: usize) -> Option<u8> {
        self.bytes.get(self.field(nth)?).copied()
    }

    fn offset(&self, nth: usize) -> Option<usize> {
        let at = self.field(nth)?;
        at.checked_add(u32_at(self.bytes, at)?)
    }

    fn table(&self, nth: usize) -> Option<Flat<'b>> {
        Some(Flat { at: self.offset(nth)?, ..*self })
    }

    fn text(&self, nth: usize) -> Option<&'b str> {
        let at = self.offset(nth)?;
        std::str::from_utf8(slice(self.bytes, at.checked_add(4)?, u32_at(self.bytes, at)?)?).ok()
    }

    /// A vector: how many, and where the first lies.
    fn vector(&self, nth: usize) -> Option<(usize, usize)> {
        let at = self.offset(nth)?;
        Some((u32_at(self.bytes, at)?, at.checked_add(4)?))
    }
}

/// The next message: its header's number, its header, and what follows it.
fn message(bytes: &[u8]) -> Option<(u8, Flat<'_>, usize, &[u8])> {
    let len = match u32_at(bytes, 0)? {
        0xffff_ffff => u32_at(bytes, 4)?,
        _ => return None,
    };
    let root = Flat::root(slice(bytes, 8, len)?)?;
    let body = root.field(3).map_or(Some(0), |at| u64_at(root.bytes, at))?;
    Some((root.u8(1)?, root.table(2)?, body, bytes.get(8 + len..)?))
}

fn kind_of(field: Flat<'_>) -> Option<ColumnType> {
    let of = field.table(3)?;
    let short = |nth: usize| of.field(nth).map_or(Some(0), |at| u16_at(of.bytes, at));
    Some(match field.u8(2)? {
        2 if of.field(0).and_then(|at| u32_at(of.bytes, at)) == Some(64) && of.u8(1) == Some(1) => {
            ColumnType::Int64
        }
        3 if short(0) == Some(2) => ColumnType::Float64,
        5 => ColumnType::Utf8,
        6 => ColumnType::Bool,
        8 if of.field(0).is_some() && short(0) == Some(0) => ColumnType::Date,
        10 if short(0) == Some(2) && of.field(1).is_none() => ColumnType::Timestamp,
        _ => return None,
    })
}

impl<'b> Table<'b> {
    /// Reads a stream.
    ///
    /// # Errors
    /// [`NotArrow`]: bytes that are none, or one of other types than a drive's.
    pub fn read(bytes: &'b [u8]) -> Result<Table<'b>, NotArrow> {
        let (header, schema, _, rest) = message(bytes).ok_or(SHORT)?;
        let fields = schema.vector(1).filter(|_| header == 1).ok_or(NotArrow("no schema"))?;
        if fields.0 > MAX_FIELDS * 2 {
            return Err(NotArrow("too many columns"));
        }
        let mut table = Table::default();
        for nth in 0..fields.0 {
            let at = fields.1 + 4 * nth;
            let field = u32_at(schema.bytes, at).and_then(|offset| at.checked_add(offset)).ok_or(SHORT)?;
            let field = Flat { at: field, ..schema };
            let name = field.text(0).ok_or(NotArrow("a column without a name"))?;
            table.columns.push((name, kind_of(field).ok_or(NotArrow("a column of another type"))?));
        }
        let messages = rest;
        let (header, batch, len, rest) = message(rest).ok_or(SHORT)?;
        let rows = batch.field(0).map_or(Some(0), |at| u64_at(batch.bytes, at));
        table.rows = rows.filter(|rows| header == 3 && *rows <= MAX_ROWS).ok_or(NotArrow("no batch"))?;
        let body = rest.get(..len).ok_or(SHORT)?;
        table.store(batch, body)?;
        let of_schema = bytes.get(..bytes.len() - messages.len()).unwrap_or_default();
        let of_batch = messages.get(..messages.len() - rest.len() + len).unwrap_or_default();
        table.parts = (of_schema, of_batch);
        Ok(table)
    }

    fn store(&mut self, batch: Flat<'b>, body: &'b [u8]) -> Result<(), NotArrow> {
        let buffers = batch.vector(2).ok_or(SHORT)?;
        let mut next = 0;
        let mut buffer = || {
            let at = buffers.1 + 16 * next;
            next += 1;
            let (at, len) = (u64_at(batch.bytes, at)?, u64_at(batch.bytes, at + 8)?);
            slice(body, at, len).filter(|_| next <= buffers.0)
        };
        let bits = self.rows.div_ceil(8);
        for (_, kind) in &self.columns {
            let valid = buffer().ok_or(SHORT)?;
            let ends = if *kind == ColumnType::Utf8 { buffer().ok_or(SHORT)? } else { &[] };
            let data = buffer().ok_or(SHORT)?;
            let width = match kind {
                ColumnType::Bool => bits,
                ColumnType::Date => 4 * self.rows,
                ColumnType::Utf8 => 0,
                _ => 8 * self.rows,
            };
            let enough = (valid.is_empty() || valid.len() >= bits)
                && data.len() >= width
                && (*kind != ColumnType::Utf8 || ends.len() >= 4 * (self.rows + 1));
            if !enough {
                return Err(SHORT);
            }
            let texts = || (0..=self.rows).map(|row| u32_at(ends, 4 * row).unwrap_or(usize::MAX));
            if *kind == ColumnType::Utf8 {
                let whole = texts().is_sorted() && texts().all(|end| end <= data.len());
                let texts_are =
                    |(from, to)| std::str::from_utf8(data.get(from..to).unwrap_or_default()).is_ok();
                if !whole || !texts().zip(texts().skip(1)).all(texts_are) {
                    return Err(NotArrow("texts that are none"));
                }
            }
            self.stored.push(Stored { valid, ends, data });
        }
        Ok(())
    }

    /// A stream without a column: what there is of no answer at all.
    #[must_use]
    pub fn nothing() -> Vec<u8> {
        let mut out = Vec::new();
        super::arrow::schema(std::iter::empty::<(&str, ColumnType)>(), &mut out);
        super::arrow::batch(&[], 0, &mut out);
        out
    }

    /// Whether its columns are those of files before, by their names.
    ///
    /// # Errors
    /// That they are others.
    pub fn has_columns<'n>(&self, known: impl Iterator<Item = &'n str>) -> Result<(), MergeError> {
        match known.eq(self.columns.iter().map(|(name, _)| *name)) {
            true => Ok(()),
            false => {
                Err(MergeError::Unfit("its columns are others than those of the files before".to_owned()))
            }
        }
    }

    /// The stream's messages, of the schema and of the batch: a stream of many batches is a schema, and then
    /// the batches of streams with the same one.
    #[must_use]
    pub fn parts(&self) -> (&'b [u8], &'b [u8]) {
        self.parts
    }

    /// A stream of the first so many rows.
    #[must_use]
    pub fn first(&self, rows: usize) -> Vec<u8> {
        let rows = rows.min(self.rows);
        let column = |(nth, (_, kind)): (usize, &(&str, ColumnType))| {
            let mut column = Column::new(*kind);
            for row in 0..rows {
                let (cell, text) = cell_of(self.value(row, nth));
                column.push(cell, text.as_bytes());
            }
            column
        };
        let columns: Vec<Column> = self.columns.iter().enumerate().map(column).collect();
        let mut out = Vec::new();
        super::arrow::schema(self.columns.iter().copied(), &mut out);
        super::arrow::batch(&columns, rows, &mut out);
        out
    }

    /// Its columns: names and types.
    #[must_use]
    pub fn columns(&self) -> &[(&'b str, ColumnType)] {
        &self.columns
    }

    /// What is stored of each column.
    #[must_use]
    pub fn stored(&self) -> &[Stored<'b>] {
        &self.stored
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A value; null where there is no such row or column.
    #[must_use]
    pub fn value(&self, row: usize, column: usize) -> Value<'b> {
        let (Some((_, kind)), Some(stored)) = (self.columns.get(column), self.stored.get(column)) else {
            return Value::Null;
        };
        let bit = |bits: &[u8], at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        if row >= self.rows || !stored.valid.is_empty() && !bit(stored.valid, row) {
            return Value::Null;
        }
        let long = || slice(stored.data, 8 * row, 8).and_then(|bytes| bytes.try_into().ok());
        let value = match kind {
            ColumnType::Bool => Some(Value::Bool(bit(stored.data, row))),
            ColumnType::Int64 => long().map(|bytes| Value::Int(i64::from_le_bytes(bytes))),
            ColumnType::Timestamp => long().map(|bytes| Value::Timestamp(i64::from_le_bytes(bytes))),
            ColumnType::Float64 => long().map(|bytes| Value::Float(f64::from_le_bytes(bytes))),
            ColumnType::Date => {
                u32_at(stored.data, 4 * row).map(|days| Value::Date((days as u32).cast_signed()))
            }
            ColumnType::Utf8 => {
                let (from, to) = (u32_at(stored.ends, 4 * row), u32_at(stored.ends, 4 * row + 4));
                let text = from.zip(to).and_then(|(from, to)| stored.data.get(from..to));
                text.and_then(|text| std::str::from_utf8(text).ok()).map(Value::Text)
            }
        };
        value.unwrap_or(Value::Null)
    }
}
