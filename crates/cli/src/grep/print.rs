//! What a search found, as GNU grep prints it.

use std::io::Write;
use std::sync::Arc;

use nearside_fsrlib::{Answer, Record};
use nearside_ndp as ndp;

use super::{Style, Tally};
use crate::failure::{Failure, complain_about};
use crate::out::Out;

/// The printer. Records of one file come together;
/// each file is ended by the next or by [`Print::end_of_file`].
pub struct Print {
    style: Style,
    file: Option<Current>,
    /// Some line was printed before, of whichever file: a group that follows is set apart.
    any_line: bool,
    highlight: Option<Highlight>,
    /// A line of which only parts are printed, until its end has come.
    partial: Vec<u8>,
    /// Matches, where they are counted.
    matches: u64,
}

/// A line, or the next part of one, as the drive gave it.
struct Found<'a> {
    number: u64,
    offset: u64,
    bytes: &'a [u8],
    context: bool,
    continues: bool,
}

struct Current {
    path: Vec<u8>,
    matches: u64,
    named: bool,
    /// Number of the line printed last.
    last: Option<u64>,
    /// That line goes on in the next record.
    continues: bool,
}

impl Print {
    /// A printer of that style.
    pub fn new(style: Style) -> Result<Print, Failure> {
        let finds = style.color || style.only_parts() || style.whole_lines();
        let highlight = if finds { Highlight::new(&style)? } else { None };
        Ok(Print { style, file: None, any_line: false, highlight, partial: Vec::new(), matches: 0 })
    }

    /// How many matches there were; `None` where they were not seen.
    pub fn matches(&self) -> Option<u64> {
        (self.style.search.answer == Answer::Lines).then_some(self.matches)
    }

    /// Takes a record.
    pub fn record(&mut self, record: Record<'_>, out: &mut Out, tally: &mut Tally) -> Result<(), Failure> {
        match record {
            Record::File { path, .. } => {
                if self.file.as_ref().is_some_and(|f| f.path[..] == *path) {
                    return Ok(());
                }
                self.end_of_file(out, tally)?;
                let path = path.into_owned();
                self.file = Some(Current { path, matches: 0, named: false, last: None, continues: false });
            }
            Record::Line { number, offset, bytes, context, continues } => {
                if !context {
                    tally.found = true;
                }
                let found = Found { number, offset, bytes: &bytes, context, continues };
                if self.style.only_parts() {
                    self.only_parts(&found, out)?;
                } else if self.style.whole_lines() {
                    self.whole_line(&found, out)?;
                } else {
                    self.line(&found, out)?;
                }
            }
            Record::Matches(n) => {
                tally.found |= n > 0;
                if let Some(file) = &mut self.file {
                    file.matches = n;
                }
            }
            Record::BinaryMatches => {
                tally.found = true;
                let Some(file) = &self.file else { return Ok(()) };
                if self.style.search.answer == Answer::Files {
                    self.matched();
                } else if !self.style.count {
                    out.flush()?;
                    complain_about(&file.path, "binary file matches");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn matched(&mut self) {
        if let Some(file) = &mut self.file {
            file.matches = file.matches.max(1);
        }
    }

    /// The current file has no more records.
    pub fn end_of_file(&mut self, out: &mut Out, _: &mut Tally) -> Result<(), Failure> {
        self.partial.clear();
        let Some(file) = self.file.take() else { return Ok(()) };
        let style = &self.style;
        if style.search.answer == Answer::Files {
            if (file.matches > 0) != style.without_match {
                self.name(&file.path, out)?;
                out.write_all(if self.style.null { b"\0" } else { b"\n" })?;
            }
        } else if style.count {
            if style.names_of(&file.path) {
                self.name(&file.path, out)?;
                self.after_name(b':', out)?;
            }
            out.line(file.matches.to_string().as_bytes())?;
        }
        Ok(())
    }

    /// A line that is looked at before it is printed.
    fn whole_line(&mut self, found: &Found<'_>, out: &mut Out) -> Result<(), Failure> {
        let offset = found.offset.saturating_sub(self.partial.len() as u64);
        self.partial.extend_from_slice(found.bytes);
        if found.continues {
            return Ok(());
        }
        let line = std::mem::take(&mut self.partial);
        self.line(&Found { offset, bytes: &line, ..*found }, out)
    }

    fn line(&mut self, found: &Found<'_>, out: &mut Out) -> Result<(), Failure> {
        let &Found { number, bytes, context, continues, .. } = found;
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let goes_on = file.continues && file.last == Some(number);
        if !goes_on {
            self.group(&file, number, out)?;
            let mut column = None;
            if self.style.whole_lines()
                && !context
                && !self.style.search.invert
                && let Some(highlight) = &mut self.highlight
            {
                let ranges = highlight.ranges(bytes);
                self.matches += ranges.len() as u64;
                column = Some(ranges.first().map_or(0, |(from, _)| *from));
            }
            self.head(&file.path, found, (found.offset, column), out)?;
        }
        file.named = true;
        file.last = Some(number);
        file.continues = continues;
        self.any_line = true;
        match &mut self.highlight {
            Some(highlight)
                if self.style.color && !continues && !goes_on && context == self.style.search.invert =>
            {
                if self.style.search.answer == Answer::Matches {
                    highlight.whole(bytes, out)?;
                } else {
                    highlight.parts(bytes, out)?;
                }
            }
            _ => out.write_all(bytes)?,
        }
        if !continues {
            out.write_all(&[self.style.end])?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// The parts of a line that match, each on a line of its own.
    /// Found lines have some, or with `-v` those of the context, as in GNU grep.
    fn only_parts(&mut self, found: &Found<'_>, out: &mut Out) -> Result<(), Failure> {
        let &Found { number, offset, bytes, context, continues } = found;
        let Some(mut file) = self.file.take() else { return Ok(()) };
        if !(file.continues && file.last == Some(number)) {
            self.group(&file, number, out)?;
            self.partial.clear();
        }
        let start = offset.saturating_sub(self.partial.len() as u64);
        self.partial.extend_from_slice(bytes);
        (file.last, file.continues) = (Some(number), continues);
        self.any_line = true;
        let line = std::mem::take(&mut self.partial);
        if continues {
            self.partial = line;
        } else if context == self.style.search.invert
            && let Some(mut highlight) = self.highlight.take()
        {
            for (from, to) in highlight.ranges(&line) {
                self.matches += 1;
                self.head(&file.path, found, (start + from as u64, Some(from)), out)?;
                let part = line.get(from..to).unwrap_or_default();
                if self.style.color {
                    highlight.whole(part, out)?;
                } else {
                    out.write_all(part)?;
                }
                out.write_all(&[self.style.end])?;
            }
            self.highlight = Some(highlight);
        }
        self.file = Some(file);
        Ok(())
    }

    /// What stands between groups of lines.
    fn group(&self, file: &Current, number: u64, out: &mut Out) -> Result<(), Failure> {
        let adjacent = file.last.is_some_and(|last| number <= last + 1);
        if self.style.groups && self.any_line && !adjacent {
            self.paint("36", b"--", out)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// What stands before a line, or a part of one from `offset` on; its first match, where that is shown,
    /// is so many bytes into the line.
    fn head(
        &self,
        path: &[u8],
        found: &Found<'_>,
        (offset, column): (u64, Option<usize>),
        out: &mut Out,
    ) -> Result<(), Failure> {
        let separator = if found.context { b'-' } else { b':' };
        if self.style.names_of(path) {
            self.name(path, out)?;
            self.after_name(separator, out)?;
        }
        if self.style.numbers {
            self.paint("32", found.number.to_string().as_bytes(), out)?;
            self.separator(separator, out)?;
        }
        if let Some(column) = column.filter(|_| self.style.column) {
            self.paint("32", (column + 1).to_string().as_bytes(), out)?;
            self.separator(separator, out)?;
        }
        if self.style.offsets {
            self.paint("32", offset.to_string().as_bytes(), out)?;
            self.separator(separator, out)?;
        }
        Ok(())
    }

    fn name(&self, path: &[u8], out: &mut Out) -> Result<(), Failure> {
        let path = out.shown(path);
        self.paint("35", &path, out)
    }

    fn after_name(&self, separator: u8, out: &mut Out) -> Result<(), Failure> {
        if self.style.null {
            out.write_all(b"\0")?;
            return Ok(());
        }
        self.separator(separator, out)
    }

    fn separator(&self, separator: u8, out: &mut Out) -> Result<(), Failure> {
        self.paint("36", &[separator], out)
    }

    fn paint(&self, color: &str, bytes: &[u8], out: &mut Out) -> Result<(), Failure> {
        if self.style.color {
            write!(out, "\x1b[{color}m\x1b[K")?;
            out.write_all(bytes)?;
            out.write_all(b"\x1b[m\x1b[K")?;
        } else {
            out.write_all(bytes)?;
        }
        Ok(())
    }
}

impl Style {
    /// Whether the name of a file of this path is shown.
    fn names_of(&self, path: &[u8]) -> bool {
        self.names && self.unnamed.as_deref() != Some(path)
    }

    /// Whole lines come, and only what matches in them is printed: with `-v`, nothing.
    fn only_parts(&self) -> bool {
        self.parts && self.search.answer == Answer::Lines
    }

    /// Lines are looked at as a whole before they are printed.
    fn whole_lines(&self) -> bool {
        (self.column || self.stats) && self.search.answer == Answer::Lines
    }
}

/// Finds again, in a line that the drive has found, which parts of it match.
pub struct Highlight {
    searcher: ndp::Searcher,
}

#[derive(Default)]
struct Parts(Vec<(u64, u64)>);

impl ndp::Sink for Parts {
    fn line(&mut self, line: ndp::Line<'_>) -> ndp::Taken {
        self.0.push((line.offset, line.offset + line.bytes.len() as u64));
        ndp::Taken::Yes
    }

    fn binary(&mut self) -> ndp::Taken {
        ndp::Taken::Yes
    }
}

impl Highlight {
    /// For the patterns of a search.
    pub fn new(style: &Style) -> Result<Option<Highlight>, Failure> {
        let s = &style.search;
        let options = ndp::SearchOptions {
            patterns: s.patterns.clone(),
            fixed: s.fixed,
            bytes: s.bytes,
            ignore_case: s.ignore_case,
            word: s.word,
            line: s.line,
            null_data: s.null_data,
            answer: ndp::Answer::Matches,
            text: true,
            ..ndp::SearchOptions::default()
        };
        // The drive says what is wrong with a pattern; without a drive's word nothing is shown anyway.
        Ok(ndp::Search::compile(options)
            .ok()
            .map(|s| Highlight { searcher: ndp::Searcher::new(&Arc::new(s)) }))
    }

    /// The parts of a line that match, as ranges.
    pub fn ranges(&mut self, line: &[u8]) -> Vec<(usize, usize)> {
        let mut parts = Parts::default();
        self.searcher.begin(ndp::Position::default());
        if self.searcher.whole(line, &mut parts).is_err() {
            return Vec::new();
        }
        parts.0.into_iter().map(|(from, to)| (from as usize, to as usize)).collect()
    }

    fn parts(&mut self, line: &[u8], out: &mut Out) -> Result<(), Failure> {
        let mut at = 0;
        for (from, to) in self.ranges(line) {
            out.write_all(&line[at..from])?;
            self.whole(&line[from..to], out)?;
            at = to;
        }
        out.write_all(&line[at..])?;
        Ok(())
    }

    fn whole(&mut self, bytes: &[u8], out: &mut Out) -> Result<(), Failure> {
        out.write_all(b"\x1b[01;31m\x1b[K")?;
        out.write_all(bytes)?;
        out.write_all(b"\x1b[m\x1b[K")?;
        Ok(())
    }
}
