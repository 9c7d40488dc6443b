//! `nearside yara`: rules of YARA over files, in the drive.

mod includes;

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write};
use std::os::unix::ffi::OsStringExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use nearside_fsrlib::{Code, Language, Operation, ProgramOptions, RuleParameters, Variable};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome};
use crate::out::Out;
use crate::run::{MOST_SENT, each_emitted};
use crate::table::bytes_of;
use includes::Expanded;

const EXAMPLES: &str = "\
Examples:
  nearside yara -d disk.img rules.yar -r /
  nearside yara -d disk.img -s rules.yar /bin/ls
  cat rules/*.yar | nearside yara -d disk.img -r - /home --json
  nearside yara -d disk.img --stored /etc/rules.yar -r /srv
  nearside yara -d disk.img --define level=3 --define owner=ops rules.yar -r /srv

Each line is a rule and the file that it matches, as yara's. Files that rules include are read on this host, and looked for where the
file is that includes them; rules in the volume include none. The modules are pe, elf, macho, dotnet, dex, hash, math and string; there
is no clock. Matched are files of at most 128 MiB. A rule stops at a thousand matches of a string. Exit status: 0, 1 where a file could
not be read or matched, 2 an error.";

/// Match rules of YARA against files, in the drive
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct YaraArgs {
    /// The rules: a file of this host (-: standard input)
    #[arg(value_name = "RULES")]
    rules: OsString,
    /// Absolute paths in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// The rules are a file of the volume, by its absolute path: text of at most 4 MiB, or a gzip of it
    #[arg(long)]
    stored: bool,
    /// An external variable of the rules (may be repeated): an integer, a number, true, false, or else a text
    #[arg(long = "define", value_name = "NAME=VALUE", value_parser = defined)]
    defined: Vec<(String, Variable)>,
    /// Every file below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Say where strings of the rules were found, and what was there
    #[arg(short = 's', long)]
    print_strings: bool,
    /// Say where they were found, and how long what was there is
    #[arg(short = 'L', long)]
    print_string_length: bool,
    /// Say the rules' tags
    #[arg(short = 'g', long)]
    print_tags: bool,
    /// Say the rules' metadata
    #[arg(short = 'm', long)]
    print_meta: bool,
    /// Say the rules' namespace
    #[arg(short = 'e', long)]
    print_namespace: bool,
    /// Say of each file how many rules match
    #[arg(short = 'c', long)]
    count: bool,
    /// Only the rule of this name
    #[arg(short = 'i', long, value_name = "NAME")]
    identifier: Option<String>,
    /// Only rules with this tag
    #[arg(short = 't', long, value_name = "TAG")]
    tag: Option<String>,
    /// Give up on a file after so many seconds, 60 at most [default: 1, and 1 more for each MB of the file]
    #[arg(short = 'a', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: Option<u64>,
    #[command(flatten)]
    drive: DriveArgs,
}

/// A record: a rule that matches, or a place where one of its strings was found.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Rule { rule: String, namespace: String, tags: Vec<String>, meta: Vec<(String, Value)> },
    String { string: String, offset: u64, length: u64, data: String },
}

impl YaraArgs {
    fn strings(&self) -> bool {
        self.print_strings || self.print_string_length
    }

    /// The rules, where this host has them.
    fn given(&self) -> Result<Option<Expanded>, Failure> {
        if self.stored {
            return Ok(None);
        }
        Ok(Some(Expanded::of(&self.rules, &unpacked(&self.rules, bytes_of(&self.rules, includes::MOST)?)?)?))
    }

    /// What it takes to match the rules.
    fn options(&self, given: Option<&Expanded>) -> Result<ProgramOptions, Failure> {
        let code = match given {
            None => Code::Stored(self.rules.clone().into_vec()),
            Some(given) => Code::Given(packed(&given.text)?),
        };
        let parameters = RuleParameters { strings: self.strings(), variables: self.defined.clone() }.put()?;
        if let Code::Given(packed) = &code
            && packed.len() + parameters.len() > MOST_SENT
        {
            let (file, n) = (self.rules.to_string_lossy(), packed.len() + parameters.len());
            return Err(Failure::Message(format!(
                "{file}: {n} bytes, compressed and with what is defined, do not go with a command, which takes \
                 {MOST_SENT}: copy it into the volume and say --stored, or match parts of it"
            )));
        }
        Ok(ProgramOptions {
            language: Language::Yara,
            code,
            parameters,
            fuel: self.timeout.map_or(0, |seconds| seconds * 1_000_000_000),
        })
    }

    fn wants(&self, rule: &str, tags: &[String]) -> bool {
        self.identifier.as_ref().is_none_or(|name| name == rule)
            && self.tag.as_ref().is_none_or(|tag| tags.contains(tag))
    }

    /// A line of what a rule, or a string of it, is said to match.
    fn line(&self, out: &mut Out, name: &[u8], said: &Said) -> Result<(), Failure> {
        match said {
            Said::Rule { rule, namespace, tags, meta } => {
                // What a drive says may be anything.
                if self.print_namespace {
                    out.text(namespace)?;
                    out.write_all(b":")?;
                }
                out.text(rule)?;
                out.write_all(b" ")?;
                if self.print_tags {
                    out.write_all(b"[")?;
                    out.text(&tags.join(","))?;
                    out.write_all(b"] ")?;
                }
                if self.print_meta {
                    let meta: Vec<String> =
                        meta.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
                    out.write_all(b"[")?;
                    out.text(&meta.join(","))?;
                    out.write_all(b"] ")?;
                }
                out.name(name)?;
                out.write_all(b"\n")?;
            }
            Said::String { string, offset, length, data } => {
                write!(out, "{offset:#x}:")?;
                if self.print_string_length {
                    write!(out, "{length}:")?;
                }
                out.text(string)?;
                if self.print_strings {
                    out.write_all(b": ")?;
                    for byte in STANDARD.decode(data).unwrap_or_default() {
                        match byte {
                            b' '..=b'~' => out.write_all(&[byte])?,
                            _ => write!(out, "\\x{byte:02X}")?,
                        }
                    }
                }
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

/// Rules as they are sent: a gzip, since they are text and may be long.
fn packed(text: &[u8]) -> Result<Vec<u8>, Failure> {
    if text.len() < 4096 {
        return Ok(text.to_vec());
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(text)?;
    Ok(gzip.finish()?)
}

/// Rules' text, of which they may be a gzip.
fn unpacked(name: &OsStr, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    let unpacked = MultiGzDecoder::new(&*bytes).take(includes::MOST as u64 + 1).read_to_end(&mut text);
    let failed = |error| Failure::Message(format!("{}: its gzip: {error}", name.to_string_lossy()));
    unpacked.map(|_| text).map_err(failed)
}

/// An external variable as it is written.
fn defined(text: &str) -> Result<(String, Variable), String> {
    let (name, value) = text.split_once('=').ok_or("it is NAME=VALUE")?;
    Ok((name.to_owned(), Variable::of(value.as_bytes())?))
}

/// A value of metadata, as yara shows it.
fn escaped(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let mut shown = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\'' | b'\\' => shown.extend(['\\', char::from(byte)]),
            b' '..=b'~' => shown.push(char::from(byte)),
            b'\t' => shown.push_str("\\t"),
            b'\n' => shown.push_str("\\n"),
            b'\r' => shown.push_str("\\r"),
            _ => shown.push_str(&format!("\\{byte:03o}")),
        }
    }
    shown + "\""
}

pub fn run(mut args: YaraArgs) -> Outcome {
    let given = args.given()?;
    let operation = Operation::Program(Box::new(args.options(given.as_ref())?));
    match (matched(&mut args, &operation), given) {
        (Err(Failure::Message(said)), Some(given)) => {
            Err(Failure::Message(given.placed(&said).unwrap_or(said)))
        }
        (outcome, _) => outcome,
    }
}

fn matched(args: &mut YaraArgs, operation: &Operation) -> Outcome {
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut args.paths)?;
    // A file's rules; the file may be named again, where its answer comes in parts.
    let mut count: Option<(Vec<u8>, u64)> = None;
    let several = args.recursive || args.paths.len() > 1;
    let counted = |out: &mut Out, count: Option<(Vec<u8>, u64)>| -> Result<(), Failure> {
        let Some((name, n)) = count.filter(|_| args.count) else { return Ok(()) };
        if args.drive.json {
            return Ok(out.json(&json!({ "type": "count", "path": crate::out::text(&name), "rules": n }))?);
        }
        if several {
            out.name(&name)?;
            out.write_all(b": ")?;
        }
        Ok(writeln!(out, "{n}")?)
    };
    // The strings of a rule that is not wanted are not either.
    let mut wanted = false;
    let code = each_emitted(&mut drive, &args.paths, args.recursive, operation, |name, record| {
        let Some(record) = record else {
            if count.as_ref().is_none_or(|(last, _)| last != name) {
                counted(&mut out, count.replace((name.to_vec(), 0)))?;
            }
            return Ok(());
        };
        let said: Said = serde_json::from_slice(record).map_err(|error| {
            Failure::Message(format!("the drive said of a file what is no match: {error}"))
        })?;
        if let Said::Rule { rule, tags, .. } = &said {
            wanted = args.wants(rule, tags);
            if let Some((_, n)) = &mut count {
                *n += u64::from(wanted);
            }
        }
        match (wanted && !args.count, args.drive.json) {
            (false, _) => Ok(()),
            (true, true) => {
                let mut line: Value = serde_json::from_slice(record).unwrap_or_default();
                line["type"] = if matches!(said, Said::Rule { .. }) { "rule" } else { "string" }.into();
                line["path"] = crate::out::text(name);
                Ok(out.json(&line)?)
            }
            (true, false) => args.line(&mut out, name, &said),
        }
    })?;
    counted(&mut out, count)?;
    drive.finish(&mut out)?;
    Ok(code)
}

/// Has drives of this process match rules. `false`: this build cannot.
pub fn install() -> bool {
    #[cfg(feature = "yara")]
    nearside_yara::install();
    cfg!(feature = "yara")
}
