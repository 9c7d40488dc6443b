//! Tables of numbers on the command line: how a file is one, and numbers in words.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};

use clap::{Args, ValueEnum};
use nearside_fsrlib::{Element, MAX_COLUMNS, Table};

use crate::failure::Failure;

/// How a file is a table.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Table")]
pub struct TableArgs {
    /// How numbers are stored, in a file of nothing but them [default: as the file's .npy header says]
    #[arg(long = "type", value_enum, value_name = "TYPE", requires = "columns")]
    element: Option<Stored>,
    /// Numbers in a row of such a file
    #[arg(long, value_name = "N", requires = "element", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COLUMNS)))]
    columns: Option<u32>,
    /// What each number is multiplied by
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, allow_negative_numbers = true)]
    scale: f32,
}

/// How a number is stored.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stored {
    /// IEEE 754, 32 bits
    F32,
    /// IEEE 754, 16 bits
    F16,
    /// The upper half of an f32
    Bf16,
    /// A signed integer
    Int8,
}

impl TableArgs {
    pub fn table(&self) -> Table {
        let element = self.element.map(|element| match element {
            Stored::F32 => Element::F32,
            Stored::F16 => Element::F16,
            Stored::Bf16 => Element::Bf16,
            Stored::Int8 => Element::I8,
        });
        Table { raw: element.zip(self.columns), scale: self.scale }
    }
}

/// Most bytes of a list of numbers.
const MOST_TEXT: usize = 256 << 20;

/// Reads to the end, or a byte more than that.
pub fn read_up_to(from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a file of this host holds, or standard input (`-`), which is no more than that.
pub fn bytes_of(path: &OsStr, most: usize) -> Result<Vec<u8>, Failure> {
    let wrong = |why: String| Failure::Message(format!("{}: {why}", path.to_string_lossy()));
    let read = match path == "-" {
        true => read_up_to(io::stdin().lock(), most),
        false => File::open(path).and_then(|file| read_up_to(file, most)),
    };
    let bytes = read.map_err(|error| wrong(error.to_string()))?;
    if bytes.len() > most {
        return Err(wrong(format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// Its text.
pub fn text_of(path: &OsStr) -> Result<String, Failure> {
    String::from_utf8(bytes_of(path, MOST_TEXT)?)
        .map_err(|error| Failure::Message(format!("{}: {error}", path.to_string_lossy())))
}

/// Words of a text, with commas or white space between them.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_ascii_whitespace() || c == ',').filter(|word| !word.is_empty())
}

pub fn number<T: std::str::FromStr>(word: &str, what: &str) -> Result<T, Failure> {
    word.parse().map_err(|_| Failure::Message(format!("{word:?} is no {what}")))
}
