//! `nearside run`: a program of the user's over files, in the drive.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

use clap::Args;
use nearside_fsrlib::{Code, Language, MAX_PARAMETERS, Operation, ProgramOptions, Record};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{Drive, files};
use crate::failure::{Failure, Outcome};
use crate::out::{self, Out};
use crate::table::bytes_of;

/// Most of a program that is sent with a command, which has more to say.
pub const MOST_SENT: usize = 112 << 10;
/// Most bytes of a program that are read to be told how large it is.
const MOST_PROGRAM: usize = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  nearside run -d disk.img words.wasm /etc/passwd
  nearside run -d disk.img words.wasm -r /usr/share/doc --json
  nearside run -d disk.img thumbnail.wasm /srv/photo.bmp -p 64 > small.bmp
  nearside run -d disk.img --stored /usr/lib/words.wasm /etc/passwd

A program is a WebAssembly module that exports \"memory\" and \"run\", and imports what docs/PROGRAMS.md lists. It is run once over
each file, gets that file's bytes and nothing else, and what it emits goes to standard output as it is; of several files each
record is a line behind the file's name. It has 16 MiB of memory. Exit status: 0, 1 where a program failed or a file could not be
read, 2 an error.";

/// Run a program over files, in the drive
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct RunArgs {
    /// The program: a file of this host (-: standard input), of at most 112 KiB
    #[arg(value_name = "PROGRAM")]
    program: OsString,
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// The program is a file of the volume, of at most 256 KiB, by its absolute path
    #[arg(long)]
    stored: bool,
    /// What the program is told
    #[arg(short = 'p', long, value_name = "TEXT", allow_hyphen_values = true)]
    parameters: Option<OsString>,
    /// What the program is told is in a file of this host (-: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "parameters")]
    parameters_file: Option<OsString>,
    /// Instructions, about, that it may take for a file [default: 10^9, and 1000 for each byte of the file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    fuel: Option<u64>,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What it takes to run the program.
fn options(args: &RunArgs) -> Result<ProgramOptions, Failure> {
    let parameters = match (&args.parameters, &args.parameters_file) {
        (Some(text), _) => text.clone().into_vec(),
        (None, Some(file)) => bytes_of(file, MAX_PARAMETERS)?,
        (None, None) => Vec::new(),
    };
    if parameters.len() > MAX_PARAMETERS {
        let n = parameters.len();
        return Err(Failure::Message(format!("{n} bytes of parameters: at most {MAX_PARAMETERS}")));
    }
    let code = match args.stored {
        true => Code::Stored(args.program.clone().into_vec()),
        false => Code::Given(bytes_of(&args.program, MOST_PROGRAM)?),
    };
    match &code {
        Code::Given(bytes) if bytes.len() + parameters.len() > MOST_SENT => Err(Failure::Message(format!(
            "{}: {} bytes, with what it is told, do not go with a command, which takes {MOST_SENT}: strip it \
             (rustc -C strip=debuginfo), or copy it into the volume and say --stored",
            args.program.to_string_lossy(),
            bytes.len() + parameters.len()
        ))),
        _ => Ok(ProgramOptions {
            language: Language::WebAssembly,
            code,
            parameters,
            fuel: args.fuel.unwrap_or(0),
        }),
    }
}

pub fn run(mut args: RunArgs) -> Outcome {
    let operation = Operation::Program(Box::new(options(&args)?));
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    let several = args.recursive || args.paths.len() > 1;
    let code = each_emitted(&mut drive, &args.paths, args.recursive, &operation, |name, whole| {
        let Some(whole) = whole else { return Ok(()) };
        if args.drive.json {
            return Ok(out.json(&emitted(name, whole))?);
        }
        if !several {
            return Ok(out.write_all(whole)?);
        }
        out.name(name)?;
        out.write_all(b": ")?;
        out.write_all(whole)?;
        if !whole.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
        Ok(())
    })?;
    drive.finish(&mut out)?;
    Ok(code)
}

/// Hands over each record that a program emits, whole, with its file's name; before those of a file, none.
pub fn each_emitted(
    drive: &mut Drive,
    paths: &[OsString],
    recursive: bool,
    operation: &Operation,
    mut sink: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), Failure>,
) -> Outcome {
    // What has come of a record that is not whole, and of which file: what failed within one does not begin
    // the next file's.
    let (mut of, mut begun): (Vec<u8>, Vec<u8>) = Default::default();
    drive.expect(files(paths, recursive), |entry| entry.size)?;
    drive.each_file(paths, recursive, operation, |name, record| match record {
        Record::File { .. } => {
            if of != name {
                begun.clear();
                name.clone_into(&mut of);
            }
            sink(name, None)
        }
        Record::Emitted { bytes, continues } => {
            begun.extend_from_slice(&bytes);
            match continues {
                true => Ok(()),
                false => sink(name, Some(&std::mem::take(&mut begun))),
            }
        }
        _ => Ok(()),
    })
}

/// A record as JSON: as text where it is UTF-8.
fn emitted(name: &[u8], bytes: &[u8]) -> serde_json::Value {
    let path = out::text(name);
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "type": "emitted", "path": path, "text": text }),
        Err(_) => json!({ "type": "emitted", "path": path, "bytes": out::base64(bytes) }),
    }
}

/// Has drives of this process run programs. `false`: this build cannot.
pub fn install() -> bool {
    #[cfg(feature = "wasm")]
    nearside_wasm::install();
    cfg!(feature = "wasm")
}
