//! `nearside cat`: a file's bytes, read by the drive, as they are.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, Operation, Record, describe};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Outcome, complain_about};
use crate::out::{self, Out};

const EXAMPLES: &str = "\
Examples:
  nearside cat -d disk.img /etc/passwd
  nearside cat -d disk.img /var/log/syslog --offset 1048576 --len 4096
  nearside cat -d disk.img --glob '/boot/vmlinuz*' > kernels

--json prints each piece as {\"type\":\"data\",\"path\":...,\"offset\":N,\"bytes\":BASE64}.";

/// Writes files to standard output
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CatArgs {
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// First byte
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Bytes at most
    #[arg(long, value_name = "BYTES", default_value_t = u64::MAX, hide_default_value = true)]
    len: u64,
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(mut args: CatArgs) -> Outcome {
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?.with_buffer(1 << 20);
    let mut code = 0;
    for path in &args.paths {
        let operation = Operation::Read { offset: args.offset, len: args.len };
        let ask = Ask { target: drive::target(path), operation, follow: true };
        let mut name = path.as_bytes().to_vec();
        let good = drive.ask_about(path.as_bytes(), &ask, |record| {
            match record {
                Record::File { path, .. } => name = path.into_owned(),
                Record::Data { offset, bytes } if args.drive.json => out.json(&json!({
                    "type": "data",
                    "path": out::text(&name),
                    "offset": offset,
                    "bytes": out::base64(&bytes),
                }))?,
                Record::Data { bytes, .. } => out.write_all(&bytes)?,
                Record::Failed { path, failure } => {
                    code = 1;
                    complain_about(&path, &describe(&failure));
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if !good {
            code = 1;
        }
    }
    drive.finish(&mut out)?;
    Ok(code)
}
