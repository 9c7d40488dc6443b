//! `nearside wc`: lines, words and bytes, counted in the drive.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use nearside_fsrlib::{Operation, Record};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::Outcome;
use crate::out::{self, Out};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  nearside wc -d disk.img /etc/passwd
  nearside wc -d disk.img -l --glob '/var/log/*.log'
  nearside wc -d disk.img -r /usr/share/doc --json

Words are as in the C locale.";

/// Count lines, words and bytes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
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
    /// Bytes
    #[arg(short = 'c', long)]
    bytes: bool,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(mut args: WcArgs) -> Outcome {
    let all = !(args.lines || args.words || args.bytes);
    let chosen = [all || args.lines, all || args.words, all || args.bytes];
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    let mut rows: Vec<([u64; 3], Vec<u8>)> = Vec::new();
    // A file's size is known without its bytes: none of them are read, which takes the same permission.
    let sizes_alone = chosen == [false, false, true];
    let operation = match sizes_alone {
        true => Operation::Read { offset: 0, len: 0 },
        false => Operation::Count,
    };
    let code = drive.each_file(&args.paths, args.recursive, &operation, |name, record| {
        match record {
            Record::File { size, .. } if sizes_alone && args.drive.json => {
                out.json(&json!({ "type": "count", "path": out::text(name), "bytes": size }))?;
            }
            Record::File { size, .. } if sizes_alone => rows.push(([0, 0, size], name.to_vec())),
            Record::Count { lines, words, bytes } if args.drive.json => out.json(&json!({
                "type": "count", "path": out::text(name), "lines": lines, "words": words, "bytes": bytes,
            }))?,
            Record::Count { lines, words, bytes } => rows.push(([lines, words, bytes], name.to_vec())),
            _ => {}
        }
        Ok(())
    })?;
    let several = rows.len() > 1 || args.paths.len() > 1;
    let mut total = [0u64; 3];
    for (row, _) in &rows {
        for (sum, value) in total.iter_mut().zip(row) {
            *sum += value;
        }
    }
    // As wc: the width of the largest number that there can be, which is that of all bytes.
    let wide = match !several && chosen.iter().filter(|c| **c).count() == 1 {
        true => 1,
        false => total[2].to_string().len(),
    };
    if several && !args.drive.json {
        rows.push((total, b"total".to_vec()));
    }
    for (row, name) in &rows {
        for (i, value) in row.iter().zip(chosen).filter(|(_, c)| *c).map(|(v, _)| v).enumerate() {
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
