//! `nearside key`: DH-HMAC-CHAP keys, as nvme-cli's `gen-dhchap-key` and `check-dhchap-key` make and check
//! them.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use nearside_auth::{Hash, Key};

use crate::failure::{Failure, Outcome};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  nearside key generate --out host.key        # a new file that only this user may read
  nearside key generate --hmac 2 > both.key   # used in a form that is made of it and of its owner's name
  nearside key check host.key";

/// Make and check the keys by which hosts prove who they are (DH-HMAC-CHAP)
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make a key
    Generate {
        /// The hash function by which the key that is used is made of this one: 0 none, 1 SHA-256, 2 SHA-384,
        /// 3 SHA-512
        #[arg(short = 'm', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
        hmac: u8,
        /// Bytes: 32, 48 or 64; with --hmac 1, 2 and 3 those in this order [default: 32, or the only ones]
        #[arg(short = 'l', long, value_name = "BYTES")]
        key_length: Option<usize>,
        /// A new file, which only this user may read; otherwise standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Say whether a file's key is one
    Check {
        /// The file; `-`: standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub fn run(args: KeyArgs) -> Outcome {
    match args.command {
        KeyCommand::Generate { hmac, key_length, out } => generate(hmac, key_length, out.as_deref()),
        KeyCommand::Check { file } => check(&file),
    }
}

fn generate(hmac: u8, len: Option<usize>, out: Option<&Path>) -> Outcome {
    let transform = Hash::of_id(hmac);
    let len = len.unwrap_or(transform.map_or(32, Hash::bytes));
    let key = Key::generate(transform, len).map_err(|e| Failure::Message(e.to_string()))?.interchange();
    let Some(path) = out else {
        out::announce(&[key.to_string()])?;
        return Ok(0);
    };
    let failed = |e: std::io::Error| Failure::Message(format!("{}: {e}", path.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{}", *key).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(0)
}

fn check(path: &Path) -> Outcome {
    let key = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().take(1024).read_to_string(&mut text).map_err(|e| Failure::Message(e.to_string()))?;
        text.trim_end().parse()
    } else {
        Key::read(path)
    };
    let key = key.map_err(|e| Failure::Message(format!("{}: {e}", path.display())))?;
    let hmac = key.transform().map_or("no hash", Hash::name);
    out::announce(&[format!("a key of {} bits, with {hmac}", key.bits())])?;
    Ok(0)
}
