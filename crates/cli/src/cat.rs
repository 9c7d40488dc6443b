//! `nearside cat`: a file's bytes, read by the drive, as they are.

use std::ffi::OsString;
use std::io::Write;
use std::slice;

use clap::Args;
use nearside_fsrlib::{FileEntry, Operation, Record};
use nearside_instrument::words;
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome};
use crate::hand_on::{Piece, hand_on, is_cut};
use crate::out::{self, Out};

const EXAMPLES: &str = "\
Examples:
  nearside cat -d disk.img /etc/passwd
  nearside cat -d disk.img /var/log/syslog --offset 1MiB --len 4k
  nearside cat -d disk.img --glob '/boot/vmlinuz*' > kernels

--json prints each piece as {\"type\":\"data\",\"path\":...,\"offset\":N,\"bytes\":BASE64}.";

/// Write files to standard output
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct CatArgs {
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// First byte
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = words::offset)]
    offset: u64,
    /// Bytes at most
    #[arg(long, value_name = "SIZE", default_value_t = u64::MAX, hide_default_value = true, value_parser = words::offset)]
    len: u64,
    #[command(flatten)]
    drive: DriveArgs,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub fn run(mut args: CatArgs) -> Outcome {
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?.with_buffer(1 << 20);
    let end = args.offset.saturating_add(args.len);
    let from = args.offset;
    let bytes = move |entry: &FileEntry<'_>| entry.size.min(end).saturating_sub(from);
    drive.expect(drive::files(&args.paths, false), bytes)?;
    let (mut code, mut sent) = (0, false);
    let range = (from, end, out.unsent());
    for path in &args.paths {
        let offset = match args.drive.json || out.terminal {
            true => args.offset,
            false => hand_on(&mut drive, drive::target(path), true, range, |_, len, piece| {
                Ok(match piece {
                    Piece::Image(image, at) => out.send(image, at, len)?,
                    Piece::Zeros => out.write(&ZEROS[..ZEROS.len().min(len)])?,
                })
            })?,
        };
        sent |= offset > from;
        let operation = Operation::Read { offset, len: end - offset };
        let failed = drive.each_file(slice::from_ref(path), false, &operation, |name, record| {
            match record {
                Record::Data { offset, bytes } if args.drive.json => out.json(&json!({
                    "type": "data",
                    "path": out::text(name),
                    "offset": offset,
                    "bytes": out::base64(&bytes),
                }))?,
                Record::Data { bytes, .. } => out.write_all(&bytes)?,
                _ => {}
            }
            Ok(())
        })?;
        code = code.max(failed);
    }
    out.flush()?;
    if let Some(image) = drive.image().filter(|image| sent && code == 0 && is_cut(image)) {
        return Err(Failure::Message(format!("{}: the file has become shorter", image.path().display())));
    }
    drive.finish(&mut out)?;
    Ok(code)
}
