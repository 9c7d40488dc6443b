//! `nearside cksum`: checksums, computed in the drive.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;

use clap::{Args, ValueEnum};
use nearside_fsrlib::{Digest, Operation, Record};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::Outcome;
use crate::out::{self, Out};

const EXAMPLES: &str = "\
Examples:
  nearside cksum -d disk.img /bin/ls                      # as sha256sum prints it
  nearside cksum -d disk.img -a xxh3 --tag --glob '/boot/*'
  nearside cksum -d disk.img -r /usr/lib > before         # compare with diff later

Holes of sparse files cost crc32c nothing; sha256 and xxh3 have to hash their zeros.";

/// Print checksums
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CksumArgs {
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Which checksum
    #[arg(short = 'a', long, value_enum, default_value_t)]
    algorithm: Algorithm,
    /// ALGORITHM (PATH) = CHECKSUM
    #[arg(long)]
    tag: bool,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

/// A checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Algorithm {
    /// CRC-32C (Castagnoli)
    Crc32c,
    /// XXH3, 64 bits
    Xxh3,
    /// SHA-256
    #[default]
    Sha256,
}

/// A name as the tools that check such lists have it: where line ends or backslashes are in it, they stand
/// escaped, and a backslash at the beginning of the line says so.
fn in_a_line(name: &[u8]) -> (&'static str, Cow<'_, [u8]>) {
    let escape = |byte: &u8| match byte {
        b'\\' => vec![b'\\', b'\\'],
        b'\n' => vec![b'\\', b'n'],
        b'\r' => vec![b'\\', b'r'],
        byte => vec![*byte],
    };
    match name.iter().any(|b| b"\\\n\r".contains(b)) {
        true => ("\\", name.iter().flat_map(escape).collect()),
        false => ("", name.into()),
    }
}

pub fn run(mut args: CksumArgs) -> Outcome {
    let (digest, tag) = match args.algorithm {
        Algorithm::Crc32c => (Digest::Crc32c, "CRC32C"),
        Algorithm::Xxh3 => (Digest::Xxh3, "XXH3"),
        Algorithm::Sha256 => (Digest::Sha256, "SHA256"),
    };
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    let operation = Operation::Checksum(digest);
    let code = drive.each_file(&args.paths, args.recursive, &operation, |name, record| {
        let Record::Digest { value, .. } = record else { return Ok(()) };
        let hex = out::hex(&value);
        if args.drive.json {
            let path = out::text(name);
            out.json(&json!({ "type": "checksum", "path": path, "algorithm": tag, "value": hex }))?;
            return Ok(());
        }
        let (mark, name) = match out.terminal {
            true => ("", out.shown(name)),
            false => in_a_line(name),
        };
        write!(out, "{mark}")?;
        if args.tag {
            write!(out, "{tag} (")?;
            out.write_all(&name)?;
            writeln!(out, ") = {hex}")?;
        } else {
            write!(out, "{hex}  ")?;
            out.line(&name)?;
        }
        Ok(())
    })?;
    drive.finish(&mut out)?;
    Ok(code)
}
