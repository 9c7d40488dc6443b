//! Groups of many files put together: a drive answers for each file what was made of its groups, and a host
//! makes one answer of them.

use std::collections::HashMap;

use nearside_near_data::{ColumnType, Function, SelectOptions};

use super::arrow::{self, Column};
use super::table::{Table, Value, cell_of};
use super::value::{Cell, floats};

/// Most groups of all files together.
const MOST: usize = 1 << 20;
/// Most bytes that they take, about.
const MOST_BYTES: usize = 512 << 20;
/// Bytes that a group takes beside its key and its values.
const OF_GROUP: usize = 96;
/// Rows of a batch.
const TOGETHER: usize = 8192;

/// Why groups cannot be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A file's columns are others than those of the files before, or of other types; none of it was taken.
    #[error("{0}")]
    Unfit(String),
    /// No answer can be had: too many groups, or a sum that overflows.
    #[error("{0}")]
    Failed(String),
}

/// A value, and its text.
#[derive(Clone, Debug, Default)]
struct Kept {
    cell: Cell,
    /// How many times a sum has gone round int64: not at all, once all is added.
    rounds: i32,
    text: String,
}

impl Kept {
    fn bytes(&self) -> usize {
        size_of::<Kept>() + self.text.len()
    }

    fn of(value: Value<'_>) -> Kept {
        let (cell, text) = cell_of(value);
        Kept { cell, rounds: 0, text: text.to_owned() }
    }
}

/// Puts groups together.
#[derive(Debug)]
pub struct Merge {
    functions: Vec<(Function, String)>,
    keys: usize,
    /// Names and types, once a file has said them.
    columns: Vec<(String, ColumnType)>,
    /// Of each, whether a file with a value has said its type.
    known: Vec<bool>,
    bytes: usize,
    found: HashMap<Vec<u8>, usize>,
    rows: Vec<Vec<Kept>>,
}

impl Merge {
    /// For the answers to these options.
    #[must_use]
    pub fn new(options: &SelectOptions) -> Merge {
        let functions = options.aggregates.iter().map(|one| (one.function, one.to_string())).collect();
        let (found, rows) = (HashMap::new(), Vec::new());
        let (columns, known) = (Vec::new(), Vec::new());
        Merge { functions, keys: options.group_by.len(), columns, known, bytes: 0, found, rows }
    }

    /// Whether a file says the type of a column: one without a value has but a guess.
    fn says(table: &Table<'_>, column: usize) -> bool {
        (0..table.rows()).any(|row| table.value(row, column) != Value::Null)
    }

    /// The types of the columns with this table, and whether they are known.
    fn typed(&self, table: &Table<'_>) -> Result<Vec<(ColumnType, bool)>, MergeError> {
        let theirs = table.columns();
        let says = |nth: usize| Merge::says(table, nth);
        if self.columns.is_empty() {
            return Ok(theirs.iter().enumerate().map(|(nth, (_, kind))| (*kind, says(nth))).collect());
        }
        table.has_columns(self.columns.iter().map(|(name, _)| name.as_str()))?;
        let ours = self.columns.iter().zip(&self.known);
        let both = ours.zip(theirs).enumerate().map(|(nth, ((ours, known), theirs))| {
            use ColumnType::{Float64, Int64};
            match (ours.1, theirs.1) {
                (a, _) if !says(nth) => Ok((a, *known)),
                (_, b) if !known => Ok((b, true)),
                (a, b) if a == b => Ok((a, true)),
                (Int64 | Float64, Int64 | Float64) if nth >= self.keys => Ok((Float64, true)),
                (a, b) => {
                    let (name, a, b) = (&ours.0, a.name(), b.name());
                    let what = format!("{name} is {b}, and {a} in the files before (--schema says which)");
                    Err(MergeError::Unfit(what))
                }
            }
        });
        both.collect()
    }

    /// Takes a file's groups, or some of them.
    ///
    /// # Errors
    /// Columns or types other than another file's, and nothing is taken; more groups than there may be.
    pub fn add(&mut self, table: &Table<'_>) -> Result<(), MergeError> {
        let typed = self.typed(table)?;
        let columns = table.columns().iter().zip(&typed);
        self.columns = columns.map(|((name, _), (kind, _))| ((*name).to_owned(), *kind)).collect();
        self.known = typed.into_iter().map(|(_, known)| known).collect();
        for row in 0..table.rows() {
            self.row(table, row)?;
        }
        Ok(())
    }

    fn row(&mut self, table: &Table<'_>, row: usize) -> Result<(), MergeError> {
        let mut key = Vec::new();
        for column in 0..self.keys {
            let value = table.value(row, column);
            // A length keeps texts apart; what is no number is one.
            let text = match value {
                Value::Float(0.0) => "0".to_owned(),
                Value::Null => String::new(),
                value => format!("={value}"),
            };
            key.extend_from_slice(&(text.len() as u64).to_le_bytes());
            key.extend_from_slice(text.as_bytes());
        }
        let values = (0..self.columns.len()).map(|column| Kept::of(table.value(row, column)));
        let Some(at) = self.found.get(&key) else {
            if self.rows.len() == MOST {
                return Err(MergeError::Failed(format!("too many groups: more than {MOST}")));
            }
            let values: Vec<Kept> = values.collect();
            self.bytes += OF_GROUP + key.len() + values.iter().map(Kept::bytes).sum::<usize>();
            self.found.insert(key, self.rows.len());
            self.rows.push(values);
            return self.bounded();
        };
        let Some(ours) = self.rows.get_mut(*at) else { return Ok(()) };
        let mut values = values.zip(ours).skip(self.keys);
        for (function, _) in &self.functions {
            let Some((theirs, own)) = values.next() else { break };
            match function {
                Function::Count | Function::Sum => add(own, &theirs),
                Function::Min | Function::Max => {
                    self.bytes -= own.bytes();
                    better(own, theirs, *function == Function::Min);
                    self.bytes += own.bytes();
                }
                Function::Average => {
                    add(own, &theirs);
                    if let Some((theirs, own)) = values.next() {
                        add(own, &theirs);
                    }
                }
            }
        }
        self.bounded()
    }

    fn bounded(&self) -> Result<(), MergeError> {
        match self.bytes > MOST_BYTES {
            true => Err(MergeError::Failed(format!("too many groups: more than {} MiB", MOST_BYTES >> 20))),
            false => Ok(()),
        }
    }

    /// The answer, as streams of Arrow's: of at most `limit` rows. None: no file has answered.
    ///
    /// # Errors
    /// A sum of theirs that overflows.
    pub fn streams(&self, limit: u64) -> Result<Vec<Vec<u8>>, MergeError> {
        if self.columns.is_empty() {
            return Ok(Vec::new());
        }
        let mut kinds = self.columns.iter().take(self.keys).cloned().collect::<Vec<_>>();
        let mut at = self.keys;
        for (function, name) in &self.functions {
            let kind = self.columns.get(at).map_or(ColumnType::Int64, |(_, kind)| *kind);
            let average = *function == Function::Average;
            kinds.push((name.clone(), if average { ColumnType::Float64 } else { kind }));
            at += 1 + usize::from(average);
        }
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(self.rows.len());
        let rows = self.rows.get(..most).unwrap_or_default();
        let names = self.columns.iter().map(|(name, _)| name);
        for (kept, name) in rows.iter().flat_map(|row| row.iter().zip(names.clone())) {
            if kept.rounds != 0 {
                return Err(MergeError::Failed(format!("{name} overflows int64")));
            }
        }
        let batches: Vec<&[Vec<Kept>]> =
            if rows.is_empty() { vec![rows] } else { rows.chunks(TOGETHER).collect() };
        let stream = |rows: &[Vec<Kept>]| {
            let mut columns: Vec<Column> = kinds.iter().map(|(_, kind)| Column::new(*kind)).collect();
            for row in rows {
                for ((kept, column), (_, kind)) in self.finished(row).zip(&mut columns).zip(&kinds) {
                    let cell = match (kept.cell, kind) {
                        (Cell::Int(n), ColumnType::Float64) => Cell::Float(n as f64),
                        (cell, _) => cell,
                    };
                    column.push(cell, kept.text.as_bytes());
                }
            }
            let mut out = Vec::new();
            arrow::schema(kinds.iter().map(|(name, kind)| (name.as_str(), *kind)), &mut out);
            arrow::batch(&columns, rows.len(), &mut out);
            out
        };
        Ok(batches.into_iter().map(stream).collect())
    }

    /// A row as it is answered.
    fn finished<'r>(&self, row: &'r [Kept]) -> impl Iterator<Item = Kept> + use<'r> {
        let mut out: Vec<Kept> = row.iter().take(self.keys).cloned().collect();
        let mut values = row.iter().skip(self.keys);
        for (function, _) in &self.functions {
            let value = values.next().cloned().unwrap_or_default();
            out.push(match (function, value.cell) {
                (Function::Average, sum) => {
                    let count = values.next().map(|kept| kept.cell);
                    let cell = match (sum, count) {
                        (Cell::Float(sum), Some(Cell::Int(count))) if count > 0 => {
                            Cell::Float(sum / count as f64)
                        }
                        _ => Cell::Null,
                    };
                    Kept { cell, ..Kept::default() }
                }
                _ => value,
            });
        }
        out.into_iter()
    }
}

fn add(own: &mut Kept, theirs: &Kept) {
    own.cell = match (own.cell, theirs.cell) {
        (cell, Cell::Null) | (Cell::Null, cell) => cell,
        (Cell::Int(a), Cell::Int(b)) => {
            let (sum, round) = a.overflowing_add(b);
            own.rounds += if round { b.signum() as i32 } else { 0 };
            Cell::Int(sum)
        }
        (Cell::Float(a), Cell::Float(b)) => Cell::Float(a + b),
        (Cell::Int(a), Cell::Float(b)) => {
            let rounds = f64::from(std::mem::take(&mut own.rounds)) * 2f64.powi(64);
            Cell::Float(a as f64 + rounds + b)
        }
        (Cell::Float(a), Cell::Int(b)) => Cell::Float(a + b as f64),
        (cell, _) => cell,
    };
}

fn better(own: &mut Kept, theirs: Kept, less: bool) {
    let order = match (theirs.cell, own.cell) {
        (Cell::Null, _) => return,
        (_, Cell::Null) => None,
        (Cell::Bool(a), Cell::Bool(b)) => Some(a.cmp(&b)),
        (Cell::Int(a), Cell::Int(b)) | (Cell::Time(a), Cell::Time(b)) => Some(a.cmp(&b)),
        (Cell::Float(a), Cell::Float(b)) => Some(floats(a, b)),
        (Cell::Int(a), Cell::Float(b)) => Some(floats(a as f64, b)),
        (Cell::Float(a), Cell::Int(b)) => Some(floats(a, b as f64)),
        (Cell::Date(a), Cell::Date(b)) => Some(a.cmp(&b)),
        (Cell::Text(..), Cell::Text(..)) => Some(theirs.text.cmp(&own.text)),
        _ => return,
    };
    if order.is_none_or(|order| if less { order.is_lt() } else { order.is_gt() }) {
        *own = theirs;
    }
}
