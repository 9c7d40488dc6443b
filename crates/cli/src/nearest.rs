//! `nearside nearest`: the rows of a table that are nearest to a query, found in the drive.

use std::ffi::OsString;
use std::io::Write;

use clap::{Args, ValueEnum};
use nearside_fsrlib::{Failure as Refusal, MAX_NEAREST, NearestOptions, Operation, Record};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{Drive, files};
use crate::failure::{Failure, Outcome, complain, complain_of};
use crate::out::{self, Out};
use crate::table::{self, TableArgs};

const EXAMPLES: &str = "\
Examples:
  nearside nearest -d disk.img /srv/rows.npy --query 1,0,0.5,-2 -k 2
  nearside nearest -d disk.img /srv/rows.npy --query 1,0,0.5,-2 --measure l2 --json
  nearside nearest -d disk.img /srv/rows.f16 --type f16 --columns 4 --query 1,0,0.5,-2
  printf '1 0 0.5 -2' | nearside nearest -d disk.img /srv/rows.npy --query-file -

Every row is looked at. Sums are in single precision; of rows that are as near as each other the first counts as nearer, and a
row without a number for an answer as farther than all others. With -r, files that are no such tables are passed over, and counted
at the end on standard error. Exit status: 0 there was an answer, 1 there was none or something could not be read, 2 an error.";

/// Find the rows of tables that are nearest to a query
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct NearestArgs {
    /// Absolute paths of tables in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// The query: as many numbers as a row has, with commas between them
    #[arg(long, value_name = "NUMBERS", allow_hyphen_values = true, required_unless_present = "query_file")]
    query: Option<String>,
    /// Read the query from a file of this host (-: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    query_file: Option<OsString>,
    /// How many rows of each table
    #[arg(short = 'k', long = "count", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_NEAREST)))]
    count: u32,
    /// What near means
    #[arg(long, value_enum, default_value_t, value_name = "MEASURE")]
    measure: Measure,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What near means.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Measure {
    /// A large inner product
    #[default]
    Ip,
    /// A small distance; its square is shown
    L2,
}

pub fn run(mut args: NearestArgs) -> Outcome {
    let text = match (&args.query, &args.query_file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => table::text_of(file)?,
        (None, None) => String::new(),
    };
    let query =
        table::words(&text).map(|word| table::number(word, "number")).collect::<Result<_, Failure>>()?;
    let operation = Operation::Nearest(NearestOptions {
        table: args.table.table(),
        measure: match args.measure {
            Measure::Ip => nearside_fsrlib::Measure::InnerProduct,
            Measure::L2 => nearside_fsrlib::Measure::L2,
        },
        count: args.count,
        query,
    });
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    // Which files of a tree are such tables shows when they are looked at.
    if !args.recursive {
        drive.expect(files(&args.paths, false), |entry| entry.size)?;
    }
    let several = args.recursive || args.paths.len() > 1;
    let (mut found, mut first, mut others) = (false, None, 0u64);
    let mut code = drive.each_file(&args.paths, args.recursive, &operation, |name, record| {
        let (row, score) = match record {
            Record::Near { row, score } => (row, score),
            Record::Failed { path, failure: failure @ Refusal::NotATable(_) } => {
                others += 1;
                first.get_or_insert_with(|| (path.into_owned(), failure));
                return Ok(());
            }
            _ => return Ok(()),
        };
        found = true;
        if args.drive.json {
            let (path, score) = (out::text(name), json!(score));
            return Ok(out.json(&json!({ "type": "near", "path": path, "row": row, "score": score }))?);
        }
        if several {
            out.name(name)?;
            out.write_all(b": ")?;
        }
        Ok(writeln!(out, "{row} {score}")?)
    })?;
    out.flush()?;
    if let Some((path, failure)) = first {
        code = if found { code } else { 1 };
        complain_of(&path, &failure);
        if others > 1 {
            complain(&format!("passed over {others} files that are no such tables, this one the first"));
        }
    }
    drive.finish(&mut out)?;
    Ok(code)
}
