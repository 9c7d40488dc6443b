//! Batches of rows as text: a table, CSV, JSON lines; or as they came, as one stream of Arrow's.

use std::io::{self, Write};

use clap::ValueEnum;
use nearside_ndp::select::{Table, Value};
use serde_json::json;

use crate::failure::Failure;
use crate::out::Out;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Columns beneath each other
    Table,
    /// Commas between fields; null is nothing
    Csv,
    /// A JSON array of objects
    Json,
    /// A JSON object on each line
    Jsonl,
    /// A stream of Arrow's (IPC)
    Arrow,
}

/// Rows of which a table's widths are made.
const WIDTH_ROWS: usize = 1000;
/// Widest column of a table, in characters; longer values are cut.
const WIDEST: usize = 60;

/// Writes batches.
pub struct Writer {
    form: Form,
    /// A JSON object says of itself that it is a row.
    typed: bool,
    /// Names of the columns, once a batch with rows has come.
    names: Option<Vec<String>>,
    /// The first batch, where it has no rows: what columns there are is said with it if none with rows comes.
    fallback: Option<Vec<u8>>,
    widths: Vec<usize>,
    /// The schema's message.
    schema: Vec<u8>,
    rows: u64,
}

impl Writer {
    /// `typed`: objects of JSON say of themselves that they are rows.
    pub fn new(form: Form, typed: bool) -> Writer {
        let (widths, schema) = (Vec::new(), Vec::new());
        Writer { form, typed, names: None, fallback: None, widths, schema, rows: 0 }
    }

    /// Whether a batch has the columns of those before, and as a stream of Arrow's their types.
    ///
    /// # Errors
    /// Its columns are others, or as a stream of Arrow's their types; for the user.
    pub fn fits(&self, table: &Table<'_>) -> Result<(), String> {
        let Some(known) = self.names.as_ref().filter(|_| table.rows() > 0) else { return Ok(()) };
        table.has_columns(known.iter().map(String::as_str)).map_err(|error| error.to_string())?;
        if self.form == Form::Arrow && self.schema != table.parts().0 {
            return Err(
                "its columns have other types than those of the files before (--schema says which)".into()
            );
        }
        Ok(())
    }

    /// Writes the first rows of a batch that [fits](Writer::fits).
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn table(&mut self, out: &mut Out, table: &Table<'_>, rows: usize) -> Result<(), Failure> {
        if table.rows() == 0 {
            if self.fallback.is_none() {
                self.fallback = Some(table.first(0));
            }
            return Ok(());
        }
        if self.names.is_none() {
            self.begin(out, table)?;
        }
        if self.form == Form::Arrow {
            if rows == table.rows() {
                out.write_all(table.parts().1)?;
                return Ok(());
            }
            let first = table.first(rows);
            let first = Table::read(&first).map_err(|error| Failure::Message(error.to_string()))?;
            out.write_all(first.parts().1)?;
            return Ok(());
        }
        for row in 0..rows {
            self.row(out, table, row)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn begin(&mut self, out: &mut Out, table: &Table<'_>) -> io::Result<()> {
        let names = table.columns().iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
        let names = &*self.names.insert(names).clone();
        match self.form {
            Form::Csv => line(out, names.iter().map(|name| Value::Text(name))),
            Form::Json => out.write_all(b"["),
            Form::Jsonl => Ok(()),
            Form::Arrow => {
                self.schema = table.parts().0.to_vec();
                out.write_all(&self.schema)
            }
            Form::Table => {
                self.widths = names.iter().map(|name| name.chars().count()).collect();
                for row in 0..table.rows().min(WIDTH_ROWS) {
                    for (column, width) in self.widths.iter_mut().enumerate() {
                        let value = table.value(row, column);
                        *width = (*width).max(shown(value).chars().count()).min(WIDEST);
                    }
                }
                let names: Vec<_> = names.iter().map(|name| (name.clone(), false)).collect();
                self.aligned(out, &names)?;
                let rule: Vec<_> = self.widths.iter().map(|width| ("-".repeat(*width), false)).collect();
                self.aligned(out, &rule)
            }
        }
    }

    fn row(&self, out: &mut Out, table: &Table<'_>, row: usize) -> io::Result<()> {
        let columns = table.columns();
        let value = |column| table.value(row, column);
        match self.form {
            Form::Csv => line(out, (0..columns.len()).map(value)),
            Form::Json | Form::Jsonl => {
                if self.form == Form::Json && self.rows > 0 {
                    out.write_all(b",\n ")?;
                }
                if self.typed {
                    out.write_all(b"{\"type\":\"row\",\"values\":")?;
                }
                // In the columns' order.
                for (column, (name, _)) in columns.iter().enumerate() {
                    out.write_all(if column == 0 { b"{" } else { b"," })?;
                    serde_json::to_writer(&mut *out, name).map_err(io::Error::from)?;
                    out.write_all(b":")?;
                    serde_json::to_writer(&mut *out, &json_of(value(column))).map_err(io::Error::from)?;
                }
                out.write_all(if columns.is_empty() { b"{}" } else { b"}" })?;
                match self.form {
                    Form::Jsonl => out.line(if self.typed { b"}" } else { b"" }),
                    _ => Ok(()),
                }
            }
            Form::Arrow => Ok(()),
            Form::Table => {
                let right = |value| matches!(value, Value::Int(_) | Value::Float(_));
                let cells: Vec<_> =
                    (0..columns.len()).map(|column| (shown(value(column)), right(value(column)))).collect();
                self.aligned(out, &cells)
            }
        }
    }

    /// Cells beneath those before; true: at the right.
    fn aligned(&self, out: &mut Out, cells: &[(String, bool)]) -> io::Result<()> {
        let mut text = String::new();
        for ((cell, right), width) in cells.iter().zip(&self.widths) {
            let len = cell.chars().count();
            let cell: String = if len > WIDEST {
                cell.chars().take(WIDEST - 1).chain(['…']).collect()
            } else {
                cell.clone()
            };
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, behind) = if *right { (gap.as_str(), "") } else { ("", gap.as_str()) };
            text += &format!("{before}{cell}{behind}  ");
        }
        out.text(text.trim_end())?;
        out.line(b"")
    }

    /// The end of the answer.
    ///
    /// # Errors
    /// Those of writing to standard output.
    pub fn end(&mut self, out: &mut Out) -> Result<(), Failure> {
        let fallback = self.fallback.take().filter(|_| self.names.is_none());
        // Of no answer at all, a stream has no columns, and other forms nothing.
        let nothing = self.names.is_none() && self.form == Form::Arrow;
        if let Some(stream) = fallback.or_else(|| nothing.then(Table::nothing)) {
            let table = Table::read(&stream).map_err(|error| Failure::Message(error.to_string()))?;
            self.begin(out, &table)?;
        }
        match (self.form, &self.names) {
            (Form::Json, Some(_)) => out.write_all(b"]\n")?,
            (Form::Json, None) => out.write_all(b"[]\n")?,
            (Form::Arrow, _) => out.write_all(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0])?,
            _ => {}
        }
        Ok(())
    }
}

/// A value in a line of a table: one line.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Text(text) if text.contains(char::is_control) => text.escape_debug().to_string(),
        value => value.to_string(),
    }
}

fn json_of(value: Value<'_>) -> serde_json::Value {
    match value {
        Value::Null => json!(null),
        Value::Bool(is) => json!(is),
        Value::Int(int) => json!(int),
        // JSON has no numbers that are none.
        Value::Float(float) => json!(float),
        Value::Text(text) => json!(text),
        value => json!(value.to_string()),
    }
}

/// A line of CSV. A text that is empty is quoted, which null is not; alone in its line it is: an empty line
/// would be no row.
fn line<'t>(out: &mut Out, values: impl Iterator<Item = Value<'t>>) -> io::Result<()> {
    let (mut text, mut fields) = (String::new(), 0);
    for (nth, value) in values.enumerate() {
        fields = nth + 1;
        if nth > 0 {
            text.push(',');
        }
        let field = value.to_string();
        let quotes = matches!(value, Value::Text("")) || field.contains([',', '"', '\n', '\r']);
        match quotes {
            true => text.extend(["\"", &field.replace('"', "\"\""), "\""]),
            false => text.push_str(&field),
        }
    }
    out.line(if fields == 1 && text.is_empty() { b"\"\"" } else { text.as_bytes() })
}
