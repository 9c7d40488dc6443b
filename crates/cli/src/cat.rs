//! `nearside cat`: a file's bytes, read by the drive, as they are.
//!
//! Of an image that nobody writes the drive says where they lie, and the kernel hands them on from its page
//! cache. Where that ends, for whatever reason, the drive reads what follows.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::slice;

use clap::Args;
use nearside_fsrlib::{Ask, EXTENT_INLINE, EXTENT_ZEROS, Operation, Record};
use nearside_instrument::words;
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome};
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

/// Bytes that the kernel hands on in one call: as far as progress is behind.
const PIECE: u64 = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub fn run(mut args: CatArgs) -> Outcome {
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?.with_buffer(1 << 20);
    let end = args.offset.saturating_add(args.len);
    let mut code = 0;
    for path in &args.paths {
        let offset = match args.drive.json || out.terminal {
            true => args.offset,
            false => hand_on(&mut drive, path, args.offset, end, &mut out)?,
        };
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
    drive.finish(&mut out)?;
    Ok(code)
}

/// Has the kernel hand on a file's bytes from `offset` to `end`, as far as that goes; to where it went. What
/// is refused the drive is asked once more, and says so.
fn hand_on(drive: &mut Drive, path: &OsStr, offset: u64, end: u64, out: &mut Out) -> Result<u64, Failure> {
    let Some(image) = drive.image() else { return Ok(offset) };
    let seen = drive.seen();
    let (mut at, mut size) = (offset, 0);
    let ask = Ask { target: drive::target(path), operation: Operation::Map, follow: true };
    let _refused = drive.ask(&ask, |record| {
        let (from, to, place) = match record {
            Record::File { size: is, .. } => {
                size = is;
                return Ok(ControlFlow::Continue(()));
            }
            Record::Extent { from, len, offset } => {
                (from, from.saturating_add(len).min(size).min(end), offset)
            }
            _ => return Ok(ControlFlow::Continue(())),
        };
        while (from..to).contains(&at) {
            let left = (to - at).min(PIECE);
            let handed = match place {
                EXTENT_INLINE => 0,
                EXTENT_ZEROS => out.write(&ZEROS[..ZEROS.len().min(left as usize)])?,
                place => out.send(&image, place.saturating_add(at - from), left as usize)?,
            };
            if handed == 0 {
                return Ok(ControlFlow::Break(()));
            }
            at += handed as u64;
            seen.add(0, handed as u64);
        }
        Ok(if at < end && at >= to { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(at)
}
