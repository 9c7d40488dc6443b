//! Groups of many files put together: a drive answers for each file what was made of its groups, and a host
//! makes one answer of them.

use std::collections::HashMap;

use nearside_near_data::{ColumnType, Function, SelectOptions};

use super::arrow::{self, Column};
use super::table::{Table, Value, cell_of};
use super::value::{Cell, floats};

/// Most groups of all files together.
const MOST: usize = 1 << 20;
/// Rows of a batch.
const TOGETHER: usize = 8192;

/// Why groups cannot be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MergeError(String);

/// A value, and its text.
#[derive(Clone, Debug, Default)]
struct Kept {
    cell: Cell,
    text: String,
}

impl Kept {
    fn of(value: Value<'_>) -> Kept {
        let (cell, text) = cell_of(value);
        Kept { cell, text: text.to_owned() }
    }
}

/// Puts groups together.
#[derive(Debug)]
pub struct Merge {
    functions: Vec<(Function, String)>,
    keys: usize,
    /// Names and types, once a file has said them.
    columns: Vec<(String, ColumnType)>,
    found: HashMap<Vec<u8>, usize>,
    rows: Vec<Vec<Kept>>,
}

impl Merge {
    /// For the answers to these options.
    #[must_use]
    pub fn new(options: &SelectOptions) -> Merge {
        let functions = options.aggregates.iter().map(|one| (one.function, one.to_string())).collect();
        let (found, rows) = (HashMap::new(), Vec::new());
        Merge { functions, keys: options.group_by.len(), columns: Vec::new(), found, rows }
    }

    /// Takes a file's groups, or some of them.
    ///
    /// # Errors
    /// Columns of other types than another file's; more groups than there may be; a sum that overflows.
    pub fn add(&mut self, table: &Table<'_>) -> Result<(), MergeError> {
        if self.columns.is_empty() {
            self.columns = table.columns().iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        }
        let same = self.columns.len() == table.columns().len()
            && self.columns.iter().zip(table.columns()).all(|(ours, theirs)| ours.0 == theirs.0);
        if !same {
            return Err(MergeError("files answer with other columns".to_owned()));
        }
        for (nth, (ours, theirs)) in self.columns.iter_mut().zip(table.columns()).enumerate() {
            use ColumnType::{Float64, Int64};
            match (ours.1, theirs.1) {
                (a, b) if a == b => {}
                (Int64 | Float64, Int64 | Float64) if nth >= self.keys => ours.1 = Float64,
                (a, b) => {
                    let (name, a, b) = (&ours.0, a.name(), b.name());
                    return Err(MergeError(format!(
                        "{name} is {a} in one file and {b} in another (--schema says which)"
                    )));
                }
            }
        }
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
                return Err(MergeError(format!("too many groups: more than {MOST}")));
            }
            self.found.insert(key, self.rows.len());
            self.rows.push(values.collect());
            return Ok(());
        };
        let Some(ours) = self.rows.get_mut(*at) else { return Ok(()) };
        let mut values = values.zip(ours).skip(self.keys);
        for (function, name) in &self.functions {
            let Some((theirs, own)) = values.next() else { break };
            match function {
                Function::Count | Function::Sum => add(own, &theirs, name)?,
                Function::Min => better(own, theirs, true),
                Function::Max => better(own, theirs, false),
                Function::Average => {
                    add(own, &theirs, name)?;
                    if let Some((theirs, own)) = values.next() {
                        add(own, &theirs, name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The answer, as streams of Arrow's: of at most `limit` rows.
    #[must_use]
    pub fn streams(&self, limit: u64) -> Vec<Vec<u8>> {
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
        batches.into_iter().map(stream).collect()
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
                    Kept { cell, text: String::new() }
                }
                _ => value,
            });
        }
        out.into_iter()
    }
}

fn add(own: &mut Kept, theirs: &Kept, name: &str) -> Result<(), MergeError> {
    own.cell = match (own.cell, theirs.cell) {
        (cell, Cell::Null) | (Cell::Null, cell) => cell,
        (Cell::Int(a), Cell::Int(b)) => match a.checked_add(b) {
            Some(sum) => Cell::Int(sum),
            None => return Err(MergeError(format!("{name} overflows int64"))),
        },
        (Cell::Float(a), Cell::Float(b)) => Cell::Float(a + b),
        (Cell::Int(a), Cell::Float(b)) | (Cell::Float(b), Cell::Int(a)) => Cell::Float(a as f64 + b),
        (cell, _) => cell,
    };
    Ok(())
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
