//! `nearside select`: rows of CSV, JSON-lines and Parquet files, chosen and put together in the drive.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::{Args, ValueEnum};
use nearside_fsrlib::{Ask, FileEntry, Operation, ParseError, Record, RowFormat, SelectOptions, Target};
use nearside_ndp::select::{Merge, MergeError, SAMPLE, Table};

use crate::args::DriveArgs;
use crate::drive::{Drive, target};
use crate::failure::{Failure, Outcome, complain, complain_of};
use crate::out::Out;
use crate::select_out::{Form, Writer};

const EXAMPLES: &str = "\
Examples:
  nearside select -d disk.img /var/data/trips.csv --columns id,price --where \"price > 10 and city like 'B%'\" --limit 100
  nearside select -d disk.img /var/data/trips.csv --group-by city --aggregate 'count(*), avg(price)' --output csv
  nearside select -d disk.img -r /var/log/web --format jsonl --where 'status >= 500' --group-by host --aggregate 'count(*)'
  nearside select -d disk.img /var/data/trips.csv --schema 'id utf8' --where \"id in ('1', '2')\" --output jsonl
  nearside select -d disk.img /var/data/trips.parquet --columns id,price --where 'price > 10' --output arrow > trips.arrow

Conditions: = <> < <= > >=, and, or, not, in (...), between ... and ..., is null, like and ilike ('%' and '_'), ~ and !~ (a
regular expression); names that are no bare words in \"...\", texts in '...'. Null is unknown, as in SQL. Types are those that the
first rows have, or a file of Parquet says (docs/SELECT.md), or those of --schema. Exit status: 0 all was answered, 1 something could not be read, 2 an error.";

/// Choose rows of CSV, JSON-lines and Parquet files, and put them together
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct SelectArgs {
    /// Absolute paths of files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Which columns, with commas between them [default: all]
    #[arg(long, value_name = "NAMES", conflicts_with_all = ["aggregate", "group_by"])]
    columns: Option<String>,
    /// Only rows for which this is true
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Most rows of the answer
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Put rows together that are alike in these columns
    #[arg(long, value_name = "NAMES")]
    group_by: Option<String>,
    /// What to make of them: count(*), count, sum, min, max, avg of a column
    #[arg(long, value_name = "LIST")]
    aggregate: Option<String>,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    /// With -r, only files whose names match
    #[arg(long, value_name = "GLOB", requires = "recursive")]
    include: Vec<String>,
    #[command(flatten)]
    rows: RowArgs,
    /// How the answer is written [default: a table on a terminal, else csv]
    #[arg(long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    #[command(flatten)]
    drive: DriveArgs,
}

/// How a file is a table.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files")]
struct RowArgs {
    /// What files are [default: by the first path's name, else csv]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Types of columns: NAME TYPE, ...; types are bool, int64, float64, date, timestamp, utf8
    #[arg(long, value_name = "LIST")]
    schema: Option<String>,
    /// The first row has names (as it is unless --no-header says otherwise)
    #[arg(long, overrides_with = "no_header")]
    header: bool,
    /// The first row has values: columns are column_1 and so on, or the schema's
    #[arg(long)]
    no_header: bool,
    /// The character between fields
    #[arg(long, value_name = "CHAR", value_parser = character)]
    delimiter: Option<u8>,
    /// The character around fields
    #[arg(long, value_name = "CHAR", value_parser = character, default_value = "\"")]
    quote: u8,
    /// No character is around fields
    #[arg(long, conflicts_with = "quote")]
    no_quote: bool,
    /// Pass over rows that are not as the others, and say how many
    #[arg(long)]
    skip_bad: bool,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Commas between fields
    Csv,
    /// Tabs between fields
    Tsv,
    /// A JSON object on each line
    Jsonl,
    /// Apache Parquet
    Parquet,
}

fn character(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\r' | b'\n') => Ok(*byte),
        br"\t" => Ok(b'\t'),
        _ => Err("one ASCII character is wanted".to_owned()),
    }
}

impl RowArgs {
    fn format(&self, path: &OsString) -> RowFormat {
        let ends = |with: &[&str]| {
            let path = path.as_bytes().to_ascii_lowercase();
            with.iter().any(|end| path.ends_with(end.as_bytes()))
        };
        let format = self.format.unwrap_or_else(|| match path {
            _ if ends(&[".jsonl", ".ndjson", ".json"]) => Format::Jsonl,
            _ if ends(&[".tsv", ".tab"]) => Format::Tsv,
            _ if ends(&[".parquet", ".parq", ".pq"]) => Format::Parquet,
            _ => Format::Csv,
        });
        let delimiter = match format {
            Format::Jsonl => return RowFormat::JsonLines,
            Format::Parquet => return RowFormat::Parquet,
            Format::Csv => b',',
            Format::Tsv => b'\t',
        };
        RowFormat::Csv {
            delimiter: self.delimiter.unwrap_or(delimiter),
            quote: (!self.no_quote).then_some(self.quote),
            header: self.header || !self.no_header,
        }
    }
}

impl SelectArgs {
    /// The file at a path, or those below it.
    fn target(&self, path: &OsString) -> Target {
        match self.recursive {
            true => Target::Tree {
                root: path.as_bytes().to_vec(),
                include: self.include.iter().map(|glob| glob.clone().into_bytes()).collect(),
                exclude: Vec::new(),
                max_depth: u32::MAX,
            },
            false => target(path),
        }
    }
}

/// Parses what an option says.
fn parsed<T: Default>(
    option: &str,
    text: Option<&String>,
    parse: fn(&str) -> Result<T, ParseError>,
) -> Result<T, Failure> {
    let Some(text) = text else { return Ok(T::default()) };
    parse(text).map_err(|error| Failure::Message(format!("{option}: {error}")))
}

fn options(args: &SelectArgs) -> Result<SelectOptions, Failure> {
    let format = args.rows.format(&args.paths[0]);
    if let RowFormat::Csv { delimiter, quote, .. } = format
        && quote == Some(delimiter)
    {
        return Err(Failure::Message("the delimiter and the quote are the same".to_owned()));
    }
    let grouped = args.group_by.is_some() || args.aggregate.is_some();
    Ok(SelectOptions {
        format,
        schema: parsed("--schema", args.rows.schema.as_ref(), SelectOptions::schema)?,
        columns: parsed("--columns", args.columns.as_ref(), SelectOptions::names)?,
        filter: parsed("--where", args.condition.as_ref(), SelectOptions::condition)?,
        limit: args.limit.filter(|_| !grouped),
        group_by: parsed("--group-by", args.group_by.as_ref(), SelectOptions::names)?,
        aggregates: parsed("--aggregate", args.aggregate.as_ref(), SelectOptions::aggregates)?,
        skip_bad: args.rows.skip_bad,
    })
}

/// What has come of the files so far.
struct Answer {
    writer: Writer,
    /// Groups are put together, and written at the end.
    merge: Option<Merge>,
    left: u64,
    bad: u64,
    code: u8,
    name: Vec<u8>,
    /// The file at hand is of other columns than those before: that was said.
    unfit: bool,
}

impl Answer {
    fn take(&mut self, out: &mut Out, record: Record<'_>) -> Result<ControlFlow<()>, Failure> {
        let mut batch = false;
        match record {
            Record::File { path, .. } => {
                self.unfit &= self.name == *path;
                path.as_ref().clone_into(&mut self.name);
            }
            Record::Failed { path, failure } => {
                self.code = 1;
                complain_of(&path, &failure);
            }
            Record::Batch { bad, stream, .. } => {
                let of = |what: String| {
                    Failure::Message(format!("{}: {what}", String::from_utf8_lossy(&self.name)))
                };
                let table = Table::read(&stream).map_err(|error| of(error.to_string()))?;
                let unfit = match &mut self.merge {
                    Some(merge) => match merge.add(&table) {
                        Err(MergeError::Unfit(what)) => Some(what),
                        added => added.map(|()| None).map_err(|error| of(error.to_string()))?,
                    },
                    None => self.writer.fits(&table).err(),
                };
                if let Some(what) = unfit {
                    if !std::mem::replace(&mut self.unfit, true) {
                        complain(&format!("{}: {what}", String::from_utf8_lossy(&self.name)));
                    }
                    self.code = 1;
                    return Ok(ControlFlow::Continue(()));
                }
                self.bad = self.bad.saturating_add(bad);
                batch = true;
                if self.merge.is_none() {
                    let rows = self.left.min(table.rows() as u64);
                    self.left -= rows;
                    self.writer.table(out, &table, rows as usize).map_err(|error| match error {
                        Failure::Message(what) => of(what),
                        other => other,
                    })?;
                }
            }
            _ => {}
        }
        // An answer without groups is whole with its last row; of none, with what columns there are.
        Ok(if batch && self.left == 0 && self.merge.is_none() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}

pub fn run(mut args: SelectArgs) -> Outcome {
    let options = options(&args)?;
    let grouped = !options.aggregates.is_empty() || !options.group_by.is_empty();
    let mut out = Out::new();
    let form = match args.output {
        _ if args.drive.json => Form::Jsonl,
        Some(form) => form,
        None if out.terminal => Form::Table,
        None => Form::Csv,
    };
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?.with_buffer(1 << 20);
    // Of Parquet it depends on what is asked for, and with a limit it may end anywhere.
    if options.format != RowFormat::Parquet && options.limit.is_none() {
        // What columns there are is said by a file's beginning, which is looked at first.
        let bytes = |entry: &FileEntry<'_>| entry.size.saturating_add(entry.size.min(SAMPLE as u64));
        drive.expect(args.paths.iter().map(|path| args.target(path)), bytes)?;
    }
    let mut answer = Answer {
        writer: Writer::new(form, args.drive.json),
        merge: grouped.then(|| Merge::new(&options)),
        left: args.limit.unwrap_or(u64::MAX),
        bad: 0,
        code: 0,
        name: Vec::new(),
        unfit: false,
    };
    let operation = Operation::Select(Box::new(options));
    for path in &args.paths {
        let ask = Ask { target: args.target(path), operation: operation.clone(), follow: true };
        path.as_bytes().clone_into(&mut answer.name);
        answer.unfit = false;
        if !drive.ask_about(path.as_bytes(), &ask, |record| answer.take(&mut out, record))? {
            answer.code = 1;
        }
        if answer.left == 0 && answer.merge.is_none() {
            break;
        }
    }
    if let Some(merge) = answer.merge.take() {
        let streams = merge.streams(answer.left).map_err(|error| Failure::Message(error.to_string()))?;
        for stream in streams {
            let table = Table::read(&stream).map_err(|error| Failure::Message(error.to_string()))?;
            answer.writer.table(&mut out, &table, table.rows())?;
        }
    }
    answer.writer.end(&mut out)?;
    out.flush()?;
    if answer.bad > 0 {
        complain(&format!("passed over {} rows that are not as the others", answer.bad));
    }
    drive.finish(&mut out)?;
    Ok(answer.code)
}
