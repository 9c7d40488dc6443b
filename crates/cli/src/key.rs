//! `nearside key`: keys of DH-HMAC-CHAP and of TLS, as nvme-cli's `gen-dhchap-key`, `gen-tls-key` and the
//! commands that check them make and check them.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use nearside_auth::{Hash, Key, KeyError, TlsKey, add_to_keyring, in_keyring};

use crate::failure::{Failure, Outcome};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  nearside key generate --out host.key        # a new file that only this user may read
  nearside key generate --hmac 2 > both.key   # used in a form that is made of it and of its owner's name
  nearside key generate --tls --out tls.key   # by which connections are encrypted
  nearside key generate --out keyring:web     # kept by the kernel, in this user's keyring
  nearside key check host.key
  nearside key check tls.key --host nqn.2026-11.example:web --subsystem nqn.2026-11.example:disks   # with its identity";

/// Make and check the keys by which hosts prove who they are (DH-HMAC-CHAP, TLS)
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
        /// A TLS key: a configured PSK
        #[arg(long)]
        tls: bool,
        /// The hash function by which the key that is used is made of this one: 0 none, 1 SHA-256, 2 SHA-384,
        /// 3 SHA-512 (not of TLS) [default: 0; with --tls 1]
        #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=3))]
        hmac: Option<u8>,
        /// Bytes: 32, 48 or 64 (not of TLS); with --hmac 1, 2 and 3 those in this order [default: 32, or the
        /// only ones]
        #[arg(short = 'l', long, value_name = "BYTES")]
        key_length: Option<usize>,
        /// A new file, which only this user may read, or `keyring:NAME`, a new key in the user's keyring;
        /// otherwise standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Say whether a file's key, or one in the kernel's keyring, is one
    Check {
        /// The file, or `keyring:NAME`; `-`: standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Say by which identity this host names a TLS key
        #[arg(long, value_name = "NQN", requires = "subsystem")]
        host: Option<String>,
        /// To this subsystem
        #[arg(long, value_name = "NQN", requires = "host")]
        subsystem: Option<String>,
    },
}

pub fn run(args: KeyArgs) -> Outcome {
    match args.command {
        KeyCommand::Generate { tls, hmac, key_length, out } => {
            let hash = Hash::of_id(hmac.unwrap_or(tls.into()));
            let len = key_length.unwrap_or(hash.map_or(32, Hash::bytes));
            let line = match tls {
                true => TlsKey::generate(hash, len).map(|key| key.interchange()),
                false => Key::generate(hash, len).map(|key| key.interchange()),
            };
            keep(&line.map_err(|e| Failure::Message(e.to_string()))?, out.as_deref())
        }
        KeyCommand::Check { file, host, subsystem } => {
            check(&file, host.as_deref().zip(subsystem.as_deref()))
        }
    }
}

fn keep(line: &str, out: Option<&Path>) -> Outcome {
    let Some(path) = out else {
        out::announce(&[line.to_owned()])?;
        return Ok(0);
    };
    if let Some(name) = in_keyring(path) {
        return add_to_keyring(name, line).map(|()| 0).map_err(|e| refused(path, &e));
    }
    let failed = |e: std::io::Error| Failure::Message(format!("{}: {e}", path.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(0)
}

fn refused(path: &Path, why: &KeyError) -> Failure {
    Failure::Message(format!("{}: {why}", path.display()))
}

fn check(path: &Path, names: Option<(&str, &str)>) -> Outcome {
    let failed = |e: KeyError| refused(path, &e);
    let mut text = String::new();
    let is_input = path == Path::new("-");
    if is_input {
        std::io::stdin().take(1024).read_to_string(&mut text).map_err(|e| Failure::Message(e.to_string()))?;
    }
    let text = text.trim_end();
    let said = |what: &str, bits: usize, hash: Option<Hash>| {
        format!("{what} of {bits} bits, with {}", hash.map_or("no hash", Hash::name))
    };
    // Of TLS, or else of DH-HMAC-CHAP.
    let tls = if is_input { text.parse::<TlsKey>() } else { TlsKey::read(path) };
    let key = match (&tls, is_input) {
        (Err(KeyError::Form(_)), true) => Some(text.parse::<Key>()),
        (Err(KeyError::Form(_)), false) => Some(Key::read(path)),
        _ => None,
    };
    let lines = match key {
        Some(key) => {
            let key = key.map_err(failed)?;
            if names.is_some() {
                return Err(Failure::Message(format!("{}: it is no TLS key", path.display())));
            }
            vec![said("a key", key.bits(), key.transform())]
        }
        None => {
            let tls = tls.map_err(failed)?;
            let identity = names.map(|(host, subsystem)| tls.psk(host, subsystem).identity);
            let first = said("a TLS key", tls.bits(), tls.transform());
            std::iter::once(first).chain(identity).collect()
        }
    };
    out::announce(&lines)?;
    Ok(0)
}
