//! `nearside timeline`: when the files of trees were read, changed and made, as The Sleuth Kit's body file,
//! which mactime sorts. One list of each tree, which the drive walks.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use nearside_fsrlib::{Ask, Deleted, Failure as Refusal, FileEntry, Operation, Record, Target};

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome, complain_of};
use crate::find::Gone;
use crate::format;
use crate::out::Out;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  nearside timeline -d disk.img > body
  nearside timeline -d disk.img -m /mnt/disk /etc /home > body
  nearside timeline -d disk.img --as 0:0 --deleted | sort -t '|' -k 9n | tail -n 20    # what was modified last

A line of each file, MD5|NAME|INODE|MODE|UID|GID|SIZE|ATIME|MTIME|CTIME|CRTIME, as fls -r -m / writes them: no digest (0), seconds since
1970, birth 0 where the volume does not keep it, what a symbolic link leads to behind ->, control characters as ^. Unlike there,
paths that are named have lines of their own, the root too; times before 1970 and after 2106 are what they are; and what would
break a line is written as mactime reads it: | as %7C, and % as %25 where two hexadecimal digits follow. Deleted files (--deleted, of ext volumes, for root) have no names
here: they are called as files without names are there, by their inodes; `nearside find --help` says what is known of them.";

/// Say when files were read, changed and made, in a form that mactime reads
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct TimelineArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Put this before each path: where the volume is, or was, mounted
    #[arg(short = 'm', long, value_name = "PATH", default_value = "", hide_default_value = true)]
    mount_point: OsString,
    /// Deleted files of the volume as well, behind the others
    #[arg(long, conflicts_with = "mounted")]
    deleted: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

pub fn run(mut args: TimelineArgs) -> Outcome {
    let mut paths = std::mem::take(&mut args.paths);
    if paths.is_empty() {
        paths.push("/".into());
    }
    let before = args.mount_point.into_vec();
    let before = before.strip_suffix(b"/").unwrap_or(&before);
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    if args.deleted {
        drive.may_list_deleted()?;
    } else {
        drive.expect_entries(&paths)?;
    }
    let mut code = 0;
    for path in &paths {
        let root = path.as_bytes().to_vec();
        let target = Target::Tree { root, include: vec![], exclude: vec![], max_depth: u32::MAX };
        let ask = Ask { target, operation: Operation::List, follow: false };
        let mut failed = |path: &[u8], failure: &Refusal| {
            code = 1;
            complain_of(path, failure);
        };
        let good = drive.ask_about(path.as_bytes(), &ask, |record| {
            match record {
                Record::Entry(entry) if args.drive.json => {
                    out.json(&format::entry_json(&entry.path, &entry))?;
                }
                Record::Entry(entry) => print(&line(&entry, letters(entry.mode), before), &mut out)?,
                Record::Failed { path, failure } => failed(&path, &failure),
                // In a directory that may be read and not searched there are names alone.
                Record::Name { path, .. } => failed(&path, &Refusal::PermissionDenied),
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        code = if good { code } else { 1 };
    }
    if args.deleted {
        let all = drive.deleted(|Deleted { mut entry, when, orphan }| {
            if args.drive.json {
                let mut value = format::entry_json(&entry.path, &entry);
                Gone { when, orphan }.add_to(&mut value);
                out.json(&value)?;
            } else {
                entry.path = format!("/$OrphanFiles/OrphanFile-{} (deleted)", entry.ino).into_bytes().into();
                let (_, kind) = letters(entry.mode);
                print(&line(&entry, ('-', kind), before), &mut out)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        code = if all { code } else { 1 };
    }
    out.flush()?;
    drive.finish(&mut out)?;
    Ok(code)
}

fn print(line: &[u8], out: &mut Out) -> Result<(), Failure> {
    Ok(out.line(&if out.terminal { terminal::escaped(line) } else { line.into() })?)
}

/// The letters of a type: as a directory says it, and as an inode does.
fn letters(mode: u16) -> (char, char) {
    match format::letter(mode) {
        '-' => ('r', 'r'),
        's' => ('s', 'h'),
        '?' => ('-', '-'),
        other => (other, other),
    }
}

/// A file's line, without its end.
fn line(entry: &FileEntry<'_>, (named, kind): (char, char), before: &[u8]) -> Vec<u8> {
    let FileEntry { ino, mode, uid, gid, size, times: [atime, mtime, ctime], .. } = *entry;
    let mut line = b"0|".to_vec();
    let path: &[u8] = if !before.is_empty() && &*entry.path == b"/" { b"" } else { &entry.path };
    put(&mut line, before);
    put(&mut line, path);
    if let Some(link) = &entry.link {
        line.extend(b" -> ");
        put(&mut line, link);
    }
    let size = if format::is_device(mode) { 0 } else { size };
    let birth = entry.birth.unwrap_or_default().0;
    let bits = &format::mode(mode)[1..];
    let times = format!("{}|{}|{}|{birth}", atime.0, mtime.0, ctime.0);
    line.extend(format!("|{ino}|{named}/{kind}{bits}|{uid}|{gid}|{size}|{times}").bytes());
    line
}

/// A name in a line.
fn put(line: &mut Vec<u8>, name: &[u8]) {
    for (at, &byte) in name.iter().enumerate() {
        let digits = || name[at + 1..].iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
        match byte {
            0..b' ' => line.push(b'^'),
            b'|' => line.extend(b"%7C"),
            b'%' if digits() == 2 => line.extend(b"%25"),
            byte => line.push(byte),
        }
    }
}
