//! A file's bytes cut into rows, and rows into fields, in pieces of any length; of Parquet `parquet` does so.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use nearside_near_data::{MAX_FIELDS, RowFormat};

use super::parquet::File;
use super::{Fault, MAX_ROW};
use crate::fuel::Fuel;

/// Most bytes that are looked at in one step.
const STEP: usize = 1920;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// All of the piece is taken.
    More,
    /// A part of it is: there is more to do.
    Going,
    /// A row is there.
    Row,
    /// One has ended that is longer than a row may be.
    Bad,
    /// There are no more.
    End,
    /// Something takes long, and has to be done first.
    Long,
}

/// Cuts bytes into rows.
pub(super) enum Rows {
    Csv(Box<CsvRows>),
    Json(Lines),
    Parquet(Box<File>),
}

/// Rows of CSV.
pub(super) struct CsvRows {
    reader: Reader,
    text: Vec<u8>,
    len: usize,
    ends: Vec<usize>,
    fields: usize,
    /// The row that is there has been seen.
    done: bool,
    /// Rows that are too long are gone through to their end.
    skips: bool,
    /// This one is.
    over: bool,
}

/// Lines.
#[derive(Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    done: bool,
    skips: bool,
    over: bool,
}

impl Rows {
    /// From the start of a file, or from the start of a row in it.
    pub(super) fn new(format: RowFormat, start: bool) -> Rows {
        let RowFormat::Csv { delimiter, quote, .. } = format else { return Rows::Json(Lines::default()) };
        let mut builder = ReaderBuilder::new();
        builder.delimiter(delimiter).quoting(quote.is_some()).quote(quote.unwrap_or(b'"'));
        let mut reader = builder.build();
        if !start {
            at_a_row(&mut reader);
        }
        let (text, ends) = (vec![0; 512], vec![0; 16]);
        Rows::Csv(Box::new(CsvRows {
            reader,
            text,
            len: 0,
            ends,
            fields: 0,
            done: false,
            skips: false,
            over: false,
        }))
    }

    /// Whether rows that are too long are gone through ([`Cut::Bad`]), and are no fault.
    pub(super) fn set_skips(&mut self, is: bool) {
        match self {
            Rows::Csv(csv) => csv.skips = is,
            Rows::Json(lines) => lines.skips = is,
            Rows::Parquet(_) => {}
        }
    }

    /// Takes bytes off the front of a piece, a few KiB at most, up to the end of a row. `end`: no piece
    /// follows. Of Parquet, up to the end of the slice.
    pub(super) fn cut(&mut self, piece: &mut &[u8], end: bool, fuel: &mut Fuel) -> Result<Cut, Fault> {
        match self {
            Rows::Csv(csv) => csv.cut(piece, end),
            Rows::Json(lines) => lines.cut(piece, end),
            Rows::Parquet(file) => file.next(piece, fuel),
        }
    }

    /// A field of the row that is there.
    pub(super) fn field(&self, nth: usize) -> (usize, usize) {
        let Rows::Csv(csv) = self else { return (0, 0) };
        let end = |nth: usize| csv.ends.get(nth).copied().unwrap_or(csv.len);
        (if nth == 0 { 0 } else { end(nth - 1) }, end(nth))
    }

    /// How many fields it has.
    pub(super) fn fields(&self) -> usize {
        match self {
            Rows::Csv(csv) => csv.fields,
            Rows::Json(_) => 1,
            Rows::Parquet(_) => 0,
        }
    }

    /// What they lie in; of JSON, the line; of Parquet, nothing.
    pub(super) fn text(&self) -> &[u8] {
        match self {
            Rows::Csv(csv) => csv.text.get(..csv.len).unwrap_or_default(),
            Rows::Json(lines) => &lines.line,
            Rows::Parquet(_) => &[],
        }
    }
}

/// Begins anew where a row does, which is not where the file does: what begins there like a mark of byte
/// order is none.
fn at_a_row(reader: &mut Reader) {
    reader.reset();
    let _ = reader.read_record(b"\n", &mut [0; 8], &mut [0; 8]);
}

impl CsvRows {
    fn cut(&mut self, piece: &mut &[u8], end: bool) -> Result<Cut, Fault> {
        if self.over {
            return Ok(self.pass_over(piece, end));
        }
        if std::mem::take(&mut self.done) {
            (self.len, self.fields) = (0, 0);
        }
        if piece.is_empty() && !end {
            return Ok(Cut::More);
        }
        let part = piece.get(..STEP).unwrap_or(piece);
        let text = self.text.get_mut(self.len..).unwrap_or_default();
        let ends = self.ends.get_mut(self.fields..).unwrap_or_default();
        let (result, taken, wrote, fields) = self.reader.read_record(part, text, ends);
        *piece = piece.get(taken..).unwrap_or_default();
        self.len += wrote;
        self.fields += fields;
        Ok(match result {
            ReadRecordResult::InputEmpty if piece.is_empty() => Cut::More,
            ReadRecordResult::InputEmpty => Cut::Going,
            ReadRecordResult::OutputFull if self.text.len() >= MAX_ROW => self.too_much(Fault::wide)?,
            ReadRecordResult::OutputFull => {
                let len = (self.text.len() * 2).min(MAX_ROW);
                self.text.resize(len, 0);
                Cut::Going
            }
            ReadRecordResult::OutputEndsFull if self.ends.len() > MAX_FIELDS => {
                self.too_much(|| Fault::Row(format!("more than {MAX_FIELDS} fields")))?
            }
            ReadRecordResult::OutputEndsFull => {
                let len = (self.ends.len() * 2).min(MAX_FIELDS + 1);
                self.ends.resize(len, 0);
                Cut::Going
            }
            ReadRecordResult::Record => {
                self.done = true;
                Cut::Row
            }
            ReadRecordResult::End => Cut::End,
        })
    }

    /// Passes over what is left of a row that is too long, up to the end of the line: it may be one of which
    /// a quote does not end, and then is all of the file.
    fn pass_over(&mut self, piece: &mut &[u8], end: bool) -> Cut {
        let part = piece.get(..STEP).unwrap_or(piece);
        let at = memchr::memchr2(b'\n', b'\r', part);
        *piece = piece.get(at.map_or(part.len(), |at| at + 1)..).unwrap_or_default();
        if at.is_some() || end && piece.is_empty() {
            at_a_row(&mut self.reader);
            self.over = false;
            return Cut::Bad;
        }
        if piece.is_empty() { Cut::More } else { Cut::Going }
    }

    /// The row at hand has more than there is room for.
    fn too_much(&mut self, fault: impl FnOnce() -> Fault) -> Result<Cut, Fault> {
        if !self.skips {
            return Err(fault());
        }
        (self.over, self.len, self.fields) = (true, 0, 0);
        Ok(Cut::Going)
    }
}

impl Lines {
    fn cut(&mut self, piece: &mut &[u8], end: bool) -> Result<Cut, Fault> {
        if std::mem::take(&mut self.done) {
            self.line.clear();
        }
        let part = piece.get(..STEP).unwrap_or(piece);
        let at = memchr::memchr(b'\n', part);
        let (line, taken) = at.map_or((part, part.len()), |at| (&part[..at], at + 1));
        if self.line.len() + line.len() > MAX_ROW {
            if !self.skips {
                return Err(Fault::wide());
            }
            self.over = true;
        }
        if self.over {
            self.line.clear();
        } else {
            self.line.extend_from_slice(line);
        }
        *piece = piece.get(taken..).unwrap_or_default();
        let ended = at.is_some() || end && piece.is_empty();
        if !ended {
            return Ok(if piece.is_empty() { Cut::More } else { Cut::Going });
        }
        if std::mem::take(&mut self.over) {
            return Ok(Cut::Bad);
        }
        if self.line.iter().all(u8::is_ascii_whitespace) {
            self.line.clear();
            return Ok(match (at, piece.is_empty(), end) {
                (None, true, true) => Cut::End,
                (_, true, false) => Cut::More,
                _ => Cut::Going,
            });
        }
        self.done = true;
        Ok(Cut::Row)
    }
}
