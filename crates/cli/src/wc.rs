//! `nearside wc`: lines, words and bytes, counted in the drive; characters and the longest line of what it
//! reads, on the host.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use nearside_fsrlib::{Failure as Refusal, FileEntry, Operation, Record};
use nearside_ndp::Counter;
use serde_json::{Map, Value, json};
use unicode_width::UnicodeWidthChar;

use crate::args::DriveArgs;
use crate::drive::{Drive, files, stored};
use crate::failure::{Failure, Outcome};
use crate::out::{self, Out};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  nearside wc -d disk.img /etc/passwd
  nearside wc -d disk.img -l --glob '/var/log/*.log'
  nearside wc -d disk.img -r /usr/share/doc --json
  nearside wc -d disk.img -mL /etc/passwd

Words are as in the C locale. Characters (-m) and the columns of a terminal (-L) are those of UTF-8 where the locale says so
(LC_ALL, LC_CTYPE, LANG), else of single bytes, which ASCII alone is printed of. What -L counts, and -m in UTF-8, is read by the
host; else the drive counts.";

/// Count lines, words, characters and bytes
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct WcArgs {
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Lines
    #[arg(short = 'l', long)]
    lines: bool,
    /// Words
    #[arg(short = 'w', long)]
    words: bool,
    /// Characters
    #[arg(short = 'm', long)]
    chars: bool,
    /// Bytes
    #[arg(short = 'c', long)]
    bytes: bool,
    /// The longest line, in columns of a terminal
    #[arg(short = 'L', long)]
    max_line_length: bool,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

/// Lines, words, characters, bytes, and the longest line.
type Counts = [u64; 5];

const NAMES: [&str; 5] = ["lines", "words", "chars", "bytes", "max_line_length"];

/// Which of them are printed.
fn chosen(args: &WcArgs) -> [bool; 5] {
    let WcArgs { lines, words, chars, bytes, max_line_length, .. } = *args;
    let all = !(lines || words || chars || bytes || max_line_length);
    [all || lines, all || words, chars, all || bytes, max_line_length]
}

/// Counts of a file of which the host has the bytes.
#[derive(Default)]
struct Text {
    counter: Counter,
    /// The beginning of a character whose end has not come.
    begun: Vec<u8>,
    chars: u64,
    column: u64,
    longest: u64,
}

impl Text {
    fn feed(&mut self, bytes: &[u8], utf8: bool) {
        self.counter.feed(bytes);
        if !utf8 {
            self.chars += bytes.len() as u64;
            bytes.iter().for_each(|byte| self.see(byte.is_ascii().then_some(char::from(*byte))));
            return;
        }
        let joined;
        let mut rest = bytes;
        if !self.begun.is_empty() {
            joined = [&self.begun[..], bytes].concat();
            rest = &joined;
            self.begun.clear();
        }
        while !rest.is_empty() {
            let (valid, wrong) = match std::str::from_utf8(rest) {
                Ok(_) => (rest.len(), Some(0)),
                Err(error) => (error.valid_up_to(), error.error_len()),
            };
            let (text, after) = rest.split_at(valid);
            for c in std::str::from_utf8(text).unwrap_or_default().chars() {
                self.chars += 1;
                self.see(Some(c));
            }
            // Bytes that are of no character are passed over.
            let Some(wrong) = wrong else {
                self.begun = after.to_vec();
                break;
            };
            rest = &after[wrong..];
        }
    }

    /// Moves on by a character.
    fn see(&mut self, c: Option<char>) {
        match c {
            Some('\n' | '\r' | '\x0c') => self.column = 0,
            Some('\t') => self.column += 8 - self.column % 8,
            Some(c) if terminal::printable(c) => self.column += c.width().unwrap_or(0) as u64,
            _ => {}
        }
        self.longest = self.longest.max(self.column);
    }

    fn counts(&self) -> Counts {
        let counted = self.counter.counted();
        [counted.lines, counted.words, self.chars, counted.bytes, self.longest]
    }
}

/// A file's name and what was counted of it.
type Row = (Vec<u8>, Counts);

/// What a row is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// Whether the host has to read the files.
fn reads(args: &WcArgs) -> bool {
    args.max_line_length || args.chars && terminal::utf8()
}

/// Counts of each file, and of each directory that is named, of which wc says that it is one, and has a row
/// nonetheless; with the exit status.
fn count(
    args: &WcArgs,
    drive: &mut Drive,
    mut each: impl FnMut(Row, Kind) -> Result<(), Failure>,
) -> Outcome {
    let utf8 = terminal::utf8();
    let [lines, words, ..] = chosen(args);
    if lines || words || reads(args) {
        let passes_holes = !reads(args);
        let bytes = move |entry: &FileEntry<'_>| if passes_holes { stored(entry) } else { entry.size };
        drive.expect(files(&args.paths, args.recursive), bytes)?;
    }
    if reads(args) {
        let operation = Operation::Read { offset: 0, len: u64::MAX };
        let mut file: Option<(Vec<u8>, Text)> = None;
        let goes_on = |file: &Option<(Vec<u8>, Text)>, name: &[u8], size: u64| {
            file.as_ref().is_some_and(|(of, text)| of == name && text.counter.counted().bytes < size)
        };
        let code = drive.each_file(&args.paths, args.recursive, &operation, |name, record| {
            match record {
                // A long file comes in several answers.
                Record::File { size, .. } if goes_on(&file, name, size) => {}
                Record::File { .. } => {
                    if let Some((name, text)) = file.replace((name.to_vec(), Text::default())) {
                        each((name, text.counts()), Kind::File)?;
                    }
                }
                Record::Data { bytes, .. } => {
                    if let Some((_, text)) = &mut file {
                        text.feed(&bytes, utf8);
                    }
                }
                Record::Failed { failure: Refusal::IsADirectory, .. } if !args.recursive => {
                    if let Some((name, text)) = file.take() {
                        each((name, text.counts()), Kind::File)?;
                    }
                    each((name.to_vec(), Counts::default()), Kind::Directory)?;
                }
                _ => {}
            }
            Ok(())
        })?;
        if let Some((name, text)) = file {
            each((name, text.counts()), Kind::File)?;
        }
        return Ok(code);
    }
    // A file's size is known without its bytes: none of them are read, which takes the same permission.
    let sizes_alone = !(lines || words);
    let operation = match sizes_alone {
        true => Operation::Read { offset: 0, len: 0 },
        false => Operation::Count,
    };
    drive.each_file(&args.paths, args.recursive, &operation, |name, record| {
        let (counts, kind) = match record {
            Record::File { size, .. } if sizes_alone => ([0, 0, size, size, 0], Kind::File),
            Record::Count { lines, words, bytes } => ([lines, words, bytes, bytes, 0], Kind::File),
            Record::Failed { failure: Refusal::IsADirectory, .. } if !args.recursive => {
                (Counts::default(), Kind::Directory)
            }
            _ => return Ok(()),
        };
        each((name.to_vec(), counts), kind)
    })
}

pub fn run(mut args: WcArgs) -> Outcome {
    let chosen = chosen(&args);
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    if reads(&args) {
        drive = drive.with_buffer(1 << 20);
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut directories = false;
    let code = count(&args, &mut drive, |(name, counts), kind| {
        directories |= kind == Kind::Directory;
        if !args.drive.json {
            rows.push((name, counts));
            return Ok(());
        }
        if kind == Kind::Directory {
            return Ok(());
        }
        let mut object = Map::new();
        object.insert("type".into(), "count".into());
        object.insert("path".into(), out::text(&name));
        let shown = NAMES.iter().zip(counts).zip(told(&args));
        object.extend(shown.filter(|(_, told)| *told).map(|((name, n), _)| ((*name).into(), json!(n))));
        Ok(out.json(&Value::Object(object))?)
    })?;
    let several = rows.len() > 1 || args.paths.len() > 1;
    let mut total = Counts::default();
    for (_, [lines, words, chars, bytes, longest]) in &rows {
        for (sum, value) in total.iter_mut().zip([lines, words, chars, bytes]) {
            *sum += value;
        }
        total[4] = total[4].max(*longest);
    }
    // As wc: the width of the largest number that there can be, which is that of all bytes. Of what is no
    // regular file it does not know them.
    let wide = match !several && chosen.iter().filter(|c| **c).count() == 1 {
        true => 1,
        false => total[3].to_string().len().max(if directories { 7 } else { 1 }),
    };
    if several && !args.drive.json {
        rows.push((b"total".to_vec(), total));
    }
    for (name, row) in &rows {
        for (i, (value, _)) in row.iter().zip(chosen).filter(|(_, chosen)| *chosen).enumerate() {
            write!(out, "{}{value:wide$}", if i > 0 { " " } else { "" })?;
        }
        out.write_all(b" ")?;
        // As wc: a count is one line, whatever the name.
        let name = if name.contains(&b'\n') { terminal::quoted(name) } else { out.shown(name) };
        out.line(&name)?;
    }
    drive.finish(&mut out)?;
    Ok(code)
}

/// What JSON tells: all that was counted.
fn told(args: &WcArgs) -> [bool; 5] {
    let [lines, words, chars, _, longest] = chosen(args);
    let counted = lines || words || reads(args);
    [counted, counted, chars, true, longest]
}
