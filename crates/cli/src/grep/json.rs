//! What a search found, as ripgrep's JSON lines: begin, match, context, end for each file; a summary.

use nearside_fsrlib::{Failure as Refusal, Record, describe, errno_name};
use serde_json::{Value, json};

use super::print::Highlight;
use super::{Style, Tally};
use crate::drive::Drive;
use crate::failure::Failure;
use crate::out::{Out, text};

/// The printer.
pub struct Json {
    highlight: Option<Highlight>,
    end: u8,
    invert: bool,
    file: Option<File>,
    /// A line whose end has not come yet.
    partial: Option<(u64, u64, bool, Vec<u8>)>,
    files: u64,
    files_matched: u64,
    lines: u64,
}

struct File {
    path: Vec<u8>,
    begun: bool,
    binary: bool,
    lines: u64,
    counted: Option<u64>,
}

impl Json {
    /// A printer.
    pub fn new(style: &Style) -> Result<Json, Failure> {
        Ok(Json {
            highlight: Highlight::new(style)?,
            end: style.end,
            invert: style.search.invert,
            file: None,
            partial: None,
            files: 0,
            files_matched: 0,
            lines: 0,
        })
    }

    /// Takes a record.
    pub fn record(&mut self, record: Record<'_>, out: &mut Out, tally: &mut Tally) -> Result<(), Failure> {
        match record {
            Record::File { path, .. } => {
                if self.file.as_ref().is_some_and(|f| f.path[..] == *path) {
                    return Ok(());
                }
                self.end_of_file(out)?;
                self.files += 1;
                let path = path.into_owned();
                self.file = Some(File { path, begun: false, binary: false, lines: 0, counted: None });
            }
            Record::Line { number, offset, bytes, context, continues } => {
                tally.found |= !context;
                let (number, offset, context, line) = match self.partial.take() {
                    Some((n, at, was_context, mut line)) if n == number => {
                        line.extend_from_slice(&bytes);
                        (n, at, was_context, line.into())
                    }
                    _ => (number, offset, context, bytes),
                };
                if continues {
                    self.partial = Some((number, offset, context, line.into_owned()));
                    return Ok(());
                }
                self.line(number, offset, context, line.into_owned(), out)?;
            }
            Record::Matches(n) => {
                tally.found |= n > 0;
                if let Some(file) = &mut self.file {
                    file.counted = Some(n);
                }
                self.begin(out)?;
            }
            Record::BinaryMatches => {
                tally.found = true;
                self.begin(out)?;
                if let Some(file) = &mut self.file {
                    file.binary = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, out: &mut Out) -> Result<(), Failure> {
        if let Some(file) = self.file.as_mut().filter(|f| !f.begun) {
            file.begun = true;
            out.json(&json!({ "type": "begin", "data": { "path": text(&file.path) } }))?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        number: u64,
        offset: u64,
        context: bool,
        mut line: Vec<u8>,
        out: &mut Out,
    ) -> Result<(), Failure> {
        self.begin(out)?;
        let Some(file) = &mut self.file else { return Ok(()) };
        file.lines += u64::from(!context);
        let ranges = match &mut self.highlight {
            Some(highlight) if context == self.invert => highlight.ranges(&line),
            _ => Vec::new(),
        };
        let parts: Vec<Value> = ranges
            .into_iter()
            .map(|(start, end)| json!({ "match": text(&line[start..end]), "start": start, "end": end }))
            .collect();
        line.push(self.end);
        out.json(&json!({
            "type": if context { "context" } else { "match" },
            "data": {
                "path": text(&file.path),
                "lines": text(&line),
                "line_number": number,
                "absolute_offset": offset,
                "submatches": parts,
            },
        }))?;
        Ok(())
    }

    /// The current file has no more records.
    pub fn end_of_file(&mut self, out: &mut Out) -> Result<(), Failure> {
        self.partial = None;
        let Some(file) = self.file.take() else { return Ok(()) };
        let matched = file.counted.unwrap_or(file.lines);
        self.lines += matched;
        self.files_matched += u64::from(matched > 0 || file.binary);
        if file.begun {
            out.json(&json!({
                "type": "end",
                "data": {
                    "path": text(&file.path),
                    "binary": file.binary,
                    "stats": { "matched_lines": matched },
                },
            }))?;
        }
        Ok(())
    }

    /// A file that could not be searched.
    pub fn failed(&mut self, path: &[u8], refusal: &Refusal, out: &mut Out) -> Result<(), Failure> {
        out.json(&json!({
            "type": "error",
            "data": { "path": text(path), "code": errno_name(refusal), "message": describe(refusal) },
        }))?;
        Ok(())
    }

    /// The end of all.
    pub fn end(&self, out: &mut Out, drive: &Drive) -> Result<(), Failure> {
        let totals = drive.totals();
        out.json(&json!({
            "type": "summary",
            "data": { "stats": {
                "searches": self.files,
                "searches_with_match": self.files_matched,
                "matched_lines": self.lines,
                "commands": totals.commands(),
                "bytes_to_drive": totals.bytes_out,
                "bytes_from_drive": totals.bytes_in,
            } },
        }))?;
        Ok(())
    }
}
