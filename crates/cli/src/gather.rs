//! `nearside gather`: rows of a table by their numbers, read and pooled in the drive.

use std::ffi::OsString;
use std::io::Write;

use clap::{Args, ValueEnum};
use nearside_fsrlib::{GatherOptions, InAll, Operation, Pooling, Record};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Out};
use crate::table::{self, TableArgs};

const EXAMPLES: &str = "\
Examples:
  nearside gather -d disk.img /srv/rows.npy 2 0 1
  nearside gather -d disk.img /srv/rows.npy --pool mean 0 1 2 --json
  nearside gather -d disk.img /srv/rows.npy --pool weighted 0:0.25 2:0.75
  nearside gather -d disk.img /srv/rows.f16 --type f16 --columns 4 --pool sum 0 1
  printf '0 1\\n2\\n' | nearside gather -d disk.img /srv/rows.npy --pool sum --bags -

The drive reads the rows that are named, and no others; sums are in single precision, in the order of the numbers. With
--bags each line of the file is a bag of its own, answered by a row. --raw writes numbers of four bytes, little-endian, as
numpy.fromfile(..., '<f4') reads them.";

/// Most rows that one command asks for, and most bags: so many have room in a request.
const ROWS: usize = 8192;
const BAGS: usize = 4096;

/// Read rows of a table by their numbers, as they are or pooled
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct GatherArgs {
    /// Absolute path of a table in the volume
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Rows, from 0; each with its weight where they are weighted
    #[arg(value_name = "ROW[:WEIGHT]", required_unless_present = "bags")]
    rows: Vec<String>,
    /// What is made of the rows of a bag
    #[arg(long, value_enum, default_value_t, value_name = "POOLING")]
    pool: Pool,
    /// Read rows from a file of this host (-: standard input), a bag on each line
    #[arg(long, value_name = "FILE", conflicts_with = "rows")]
    bags: Option<OsString>,
    /// Write the numbers as bytes
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What is made of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Pool {
    /// Nothing: each is written
    #[default]
    None,
    /// Their sum
    Sum,
    /// Their mean
    Mean,
    /// The sum of each times its weight
    Weighted,
}

/// Rows and weights of a bag.
type Bag = (Vec<u64>, Vec<f32>);

fn bag<'w>(words: impl Iterator<Item = &'w str>, pool: Pool) -> Result<Bag, Failure> {
    let (mut rows, mut weights) = (Vec::new(), Vec::new());
    for word in words {
        let (row, weight) = match (word.split_once(':'), pool) {
            (Some((row, weight)), Pool::Weighted) => (row, table::number(weight, "weight")?),
            (None, Pool::Weighted) => {
                return Err(Failure::Message(format!("row {word} has no weight (ROW:WEIGHT)")));
            }
            _ => (word, 1.0),
        };
        rows.push(table::number(row, "row's number")?);
        weights.push(weight);
    }
    Ok((rows, weights))
}

/// The bags, or without pooling each row alone.
fn bags(args: &GatherArgs) -> Result<Vec<Bag>, Failure> {
    let bags = match &args.bags {
        Some(file) => {
            let text = table::text_of(file)?;
            text.lines().map(|line| bag(table::words(line), args.pool)).collect::<Result<_, _>>()?
        }
        None => vec![bag(args.rows.iter().map(String::as_str), args.pool)?],
    };
    if args.pool != Pool::None {
        return Ok(bags);
    }
    Ok(bags.into_iter().flat_map(|(rows, _)| rows).map(|row| (vec![row], Vec::new())).collect())
}

/// How many of the bags have room in one request.
fn fit(bags: &[Bag]) -> Result<usize, Failure> {
    let mut rows = 0;
    let fit = bags.iter().take(BAGS).take_while(|(bag, _)| {
        rows += bag.len();
        rows <= ROWS
    });
    match fit.count() {
        0 => Err(Failure::Message(format!("a bag has more than {ROWS} rows"))),
        fit => Ok(fit),
    }
}

fn asked(args: &GatherArgs, bags: &[Bag]) -> Operation {
    let mut options = GatherOptions {
        table: args.table.table(),
        pooling: match args.pool {
            Pool::None => Pooling::None,
            Pool::Sum => Pooling::Sum,
            Pool::Mean => Pooling::Mean,
            Pool::Weighted => Pooling::Weighted,
        },
        ..GatherOptions::default()
    };
    for (rows, weights) in bags {
        options.indices.extend_from_slice(rows);
        if args.pool == Pool::Weighted {
            options.weights.extend_from_slice(weights);
        }
        if args.pool != Pool::None {
            options.bags.push(rows.len() as u32);
        }
    }
    Operation::Gather(options)
}

pub fn run(args: GatherArgs) -> Outcome {
    let all = bags(&args)?;
    let mut paths = vec![args.path.clone()];
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut paths)?.with_buffer(1 << 20);
    let of_all = all.iter().map(|(rows, _)| rows.len()).sum::<usize>();
    let (mut code, mut first, mut rows) = (0, 0, 0);
    while first < all.len() {
        let bags = &all[first..];
        let bags = &bags[..fit(bags)?];
        let ended = drive.each_file(&paths, false, &asked(&args, bags), |name, record| {
            let Record::Row { number, values } = record else { return Ok(()) };
            if args.raw {
                return Ok(out.write_all(&values)?);
            }
            let values: Vec<f32> = values.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n)).collect();
            if args.drive.json {
                let mut object = json!({ "type": "row", "path": out::text(name), "values": values });
                match args.pool {
                    Pool::None => object["row"] = json!(bags.get(number as usize).map(|(rows, _)| &rows[0])),
                    _ => object["bag"] = json!(first as u64 + number),
                }
                return Ok(out.json(&object)?);
            }
            let line: Vec<String> = values.iter().map(f32::to_string).collect();
            Ok(out.line(line.join(" ").as_bytes())?)
        })?;
        code = code.max(ended);
        first += bags.len();
        rows += bags.iter().map(|(rows, _)| rows.len()).sum::<usize>();
        // Each row has as many bytes as the others.
        let seen = drive.seen();
        seen.expect(InAll::Bytes((seen.get().1 as f64 / rows as f64 * of_all as f64) as u64));
    }
    drive.finish(&mut out)?;
    Ok(code)
}
