//! `nearside cksum`: checksums, computed in the drive where it knows them ([`sum`]), and lists of them
//! checked ([`check`]).

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use nearside_fsrlib::FileEntry;
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{Drive, files, stored};
use crate::failure::Outcome;
use crate::out::{self, Out};

mod check;
mod sum;

use sum::Algorithm;

const EXAMPLES: &str = "\
Examples:
  nearside cksum -d disk.img /bin/ls                      # as sha256sum prints it
  nearside cksum -d disk.img -a xxh3 --tag --glob '/boot/*'
  nearside cksum -d disk.img -r /usr/lib > before         # compare with diff later
  nearside cksum -d disk.img -c before                    # ... or by the command itself
  nearside cksum -d disk.img -a md5 /bin/ls               # as md5sum prints it

crc32c, xxh3 and sha256 are computed in the drive; the others on the host, of all that the drive reads. Holes of sparse files cost
crc32c nothing; the others have to hash their zeros. crc is printed as cksum without options does: the sum, the length, the name.
Lists for -c are files of this host, as sha256sum, md5sum and the like write them, or with --tag: lines that name no algorithm
are of -a's. Names in them are paths of the volume; one that is not absolute begins at its root.";

/// Print checksums
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct CksumArgs {
    /// Absolute paths in the volume; with -c lists of this host, - for standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Which checksum [default: sha256]
    #[arg(short = 'a', long, value_enum)]
    algorithm: Option<Algorithm>,
    /// ALGORITHM (PATH) = CHECKSUM
    #[arg(long, overrides_with = "untagged")]
    tag: bool,
    /// CHECKSUM  PATH, as in any case
    #[arg(long, overrides_with = "tag")]
    untagged: bool,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Check the files of lists; exit status 1 where one is not as it is listed
    #[arg(short = 'c', long, conflicts_with_all = ["recursive", "tag", "glob", "mounted"])]
    check: bool,
    /// With -c: leave out what the volume does not have
    #[arg(long, requires = "check")]
    ignore_missing: bool,
    /// With -c: say nothing of files that are as listed
    #[arg(long, requires = "check", overrides_with_all = ["status", "warn"])]
    quiet: bool,
    /// With -c: say nothing; the exit status tells
    #[arg(long, requires = "check", overrides_with_all = ["quiet", "warn"])]
    status: bool,
    /// With -c: a line that is none of a list is an error as well
    #[arg(long, requires = "check")]
    strict: bool,
    /// With -c: say which lines are none of a list
    #[arg(short = 'w', long, requires = "check", overrides_with_all = ["quiet", "status"])]
    warn: bool,
    #[command(flatten)]
    drive: DriveArgs,
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
    if args.check {
        return check::run(&args);
    }
    let algorithm = args.algorithm.unwrap_or_default();
    let (tag, len) = algorithm.tag();
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    if algorithm.in_the_drive().is_none() {
        drive = drive.with_buffer(1 << 20);
    }
    // The others have to hash the zeros of holes.
    let passes_holes = algorithm == Algorithm::Crc32c;
    let bytes = move |entry: &FileEntry<'_>| if passes_holes { stored(entry) } else { entry.size };
    drive.expect(files(&args.paths, args.recursive), bytes)?;
    let code = algorithm.of_files(len, &mut drive, &args.paths, args.recursive, |sum| {
        let hex = out::hex(sum.value);
        if args.drive.json {
            let path = out::text(sum.name);
            out.json(&json!({ "type": "checksum", "path": path, "algorithm": tag, "value": hex }))?;
            return Ok(());
        }
        let (mark, name) = match out.terminal {
            true => ("", out.shown(sum.name)),
            false if algorithm == Algorithm::Crc => ("", sum.name.into()),
            false => in_a_line(sum.name),
        };
        write!(out, "{mark}")?;
        if algorithm == Algorithm::Crc {
            let value = sum.value.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            write!(out, "{value} {} ", sum.size)?;
            out.line(&name)?;
        } else if args.tag {
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
