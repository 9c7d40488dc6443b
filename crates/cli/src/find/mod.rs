//! `nearside find`: a tree listed by the drive in one command,
//! and an expression ([`expression`]) on each entry.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, Failure as Refusal, FileEntry, Operation, Record, Target, describe};

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome, complain_about};
use crate::format;
use crate::out::Out;

pub mod expression;

use expression::{Candidate, Expression};

const EXAMPLES: &str = "\
Examples:
  nearside find -d disk.img /etc -name '*.conf'
  nearside find -d disk.img / -type f -size +10M -maxdepth 4
  nearside find -d disk.img / -perm -4000 -print0
  nearside find -d disk.img /var '(' -empty -o -name '*.log' ')' ! -path '*/old/*'

Tests (with one dash or two):
  -name GLOB, -iname GLOB       the base name matches, case ignored
  -path GLOB, -ipath GLOB       the whole path
  -type C                       f file, d directory, l symbolic link, p fifo, s socket, b and c devices; several with commas
  -size N[cwbkMG]               units, rounded up; +N more, -N fewer
  -perm MODE                    bits in octal: MODE exactly, -MODE all of them, /MODE any
  -uid N, -gid N, -inum N, -links N      numbers; +N more, -N fewer
  -empty                        files without a byte, directories without an entry
  -true, -false
  -maxdepth N, -mindepth N      levels below the paths
Operators: ! TEST or -not TEST, TEST [-a] TEST, TEST -o TEST, ( TESTS ). Actions: -print (what is done without one), -print0 (a zero byte after
each path). Other words of find's are refused. Entries come in byte order of names, but for those of directories of more
than 128 KiB, which come in the directory's own order.";

/// Find files in a tree
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = "nearside find -d DRIVE [OPTIONS] [PATH]... [TEST]...")]
pub struct FindArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// find's words, as [`crate::words`] sets them apart
    #[arg(long, hide = true, require_equals = true)]
    expression: Vec<OsString>,
    #[command(flatten)]
    drive: DriveArgs,
}

/// A tree's entries on their way through the expression.
/// Whether a directory is empty shows in what comes after it.
struct Walk<'a> {
    expression: &'a Expression,
    json: bool,
    /// Levels of the path that was asked for.
    top: usize,
    held: Option<FileEntry<'static>>,
    /// The path that could not be read, said last: such a directory is not known to be empty.
    failed: Vec<u8>,
}

/// A type, as a directory may know it: of all that is asked of it, only that it is known.
const FIFO: u16 = 0o010_000;

fn levels(path: &[u8]) -> usize {
    path.split(|&b| b == b'/').filter(|c| !c.is_empty()).count()
}

/// Whether a path is a directory's own or lies below it.
fn within(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

impl Walk<'_> {
    fn entry(&mut self, entry: FileEntry<'_>, out: &mut Out) -> Result<(), Failure> {
        self.release(Some(&entry.path), out)?;
        if self.expression.asks_empty && format::is_directory(entry.mode) {
            self.held = Some(entry.into_owned());
            return Ok(());
        }
        self.test(&entry, false, out)
    }

    fn failed(&mut self, path: &[u8], out: &mut Out) -> Result<(), Failure> {
        self.release(Some(path), out)?;
        self.failed = path.to_vec();
        Ok(())
    }

    /// Tests the directory that was held back, now that `next` comes.
    fn release(&mut self, next: Option<&[u8]>, out: &mut Out) -> Result<(), Failure> {
        let Some(entry) = self.held.take() else { return Ok(()) };
        let filled = next.is_some_and(|next| within(next, &entry.path)) || self.failed[..] == *entry.path;
        self.test(&entry, !filled, out)
    }

    fn test(&self, entry: &FileEntry, empty_directory: bool, out: &mut Out) -> Result<(), Failure> {
        // To see what is in the last directories, the drive was asked for a level more.
        let Expression { mindepth, maxdepth, .. } = *self.expression;
        if mindepth > 0 || maxdepth.is_some() {
            let depth = levels(&entry.path).saturating_sub(self.top) as u32;
            if depth < mindepth || maxdepth.is_some_and(|most| depth > most) {
                return Ok(());
            }
        }
        self.expression.apply(&Candidate { entry, empty_directory }, &mut |end| {
            if self.json {
                out.json(&crate::ls::json(&entry.path, entry))?;
            } else {
                out.name(&entry.path)?;
                out.write_all(&[end])?;
            }
            Ok(())
        })
    }
}

pub fn run(mut args: FindArgs) -> Outcome {
    let mut paths = std::mem::take(&mut args.paths);
    if paths.is_empty() {
        paths.push("/".into());
    }
    let expression = Expression::of(std::mem::take(&mut args.expression))?;
    let deeper = u32::from(expression.asks_empty);
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    let mut code = 0;
    for path in &paths {
        let root = path.as_bytes();
        let target = Target::Tree {
            root: root.to_vec(),
            include: vec![],
            exclude: vec![],
            max_depth: expression.maxdepth.map_or(u32::MAX, |most| most.saturating_add(deeper)),
        };
        let json = args.drive.json;
        // What directories say of their entries is enough where no test asks for more.
        let names = !json && !expression.needs_attributes(FIFO);
        let operation = if names { Operation::Names } else { Operation::List };
        let ask = Ask { target, operation, follow: false };
        let mut walk =
            Walk { expression: &expression, json, top: levels(root), held: None, failed: Vec::new() };
        let good = drive.ask_about(root, &ask, |record| {
            match record {
                Record::Entry(entry) => walk.entry(entry, &mut out)?,
                Record::Name { path, kind } if names && kind != 0 => {
                    walk.entry(FileEntry::of_name(path, kind), &mut out)?;
                }
                // In a directory that may be read and not searched there are names alone,
                // into which find does not come.
                Record::Name { path, kind } => {
                    let depth = levels(&path).saturating_sub(walk.top) as u32;
                    let inside = kind == 0o040_000 && expression.maxdepth.is_none_or(|most| depth < most);
                    let unknown = expression.needs_attributes(kind);
                    if inside || unknown {
                        code = 1;
                        complain_about(&path, &describe(&Refusal::PermissionDenied));
                    }
                    if !unknown {
                        walk.entry(FileEntry::of_name(path, kind), &mut out)?;
                    }
                }
                Record::Failed { path, failure } => {
                    walk.failed(&path, &mut out)?;
                    // Deeper than was asked for, it is of no concern.
                    let depth = levels(&path).saturating_sub(walk.top) as u32;
                    if expression.maxdepth.is_none_or(|most| depth <= most) {
                        code = 1;
                        complain_about(&path, &describe(&failure));
                    }
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        walk.release(None, &mut out)?;
        if !good {
            code = 1;
        }
    }
    drive.finish(&mut out)?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn below_or_not() {
        for (path, directory, is) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/", true),
            ("/b", "/a/", false),
        ] {
            assert_eq!(within(path.as_bytes(), directory.as_bytes()), is, "{path} {directory}");
        }
    }
}
