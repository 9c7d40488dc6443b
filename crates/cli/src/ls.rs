//! `nearside ls`: directories, one List command each (and one Stat for what may be a file).

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, Entry, Operation, Record, Target};

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain_about};
use crate::format::{self, Names, Times};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside ls -d disk.img /etc
  nearside ls -d disk.img -lah /var/log
  nearside ls -d disk.img -R / --json

Names are sorted by their bytes. Users and groups are named as this host knows them.";

/// Lists directories
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct LsArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// One entry per line, with mode, links, owner, group, size and time
    #[arg(short = 'l')]
    long: bool,
    /// Entries that begin with a dot as well
    #[arg(short = 'a', long)]
    all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Directories below directories as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// With -l: sizes in K, M, G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// With -l: numbers of users and groups
    #[arg(short = 'n', long)]
    numeric_uid_gid: bool,
    /// Inode numbers
    #[arg(short = 'i', long)]
    inode: bool,
    /// Directories themselves, not what they hold
    #[arg(short = 'D', long)]
    directory: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

struct Listing {
    args: LsArgs,
    out: Out,
    names: Names,
    times: Times,
    printed: bool,
    trouble: u8,
}

/// Directories in a recursive listing: no path that fits goes deeper.
const MOST_LEVELS: usize = nearside_fsrlib::MAX_PATH / 2 + 1;

pub fn run(mut args: LsArgs) -> Outcome {
    let mut paths = std::mem::take(&mut args.paths);
    if paths.is_empty() {
        paths.push("/".into());
    }
    let mut drive = Drive::open_for(&args.drive, &paths)?;
    let mut listing = Listing {
        args,
        out: Out::new(),
        names: Names::new(),
        times: Times::new(),
        printed: false,
        trouble: 0,
    };
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for path in &paths {
        let (found, good) = stat(&mut drive, path, !listing.args.long)?;
        if !good {
            listing.trouble = 2;
        }
        for entry in found {
            let is_directory = format::is_directory(entry.mode) && !listing.args.directory;
            if is_directory { &mut directories } else { &mut files }.push(entry);
        }
    }
    for list in [&mut files, &mut directories] {
        list.sort_by(|a: &Entry, b| a.path.cmp(&b.path));
    }
    listing.entries(&files, false)?;
    let headed = paths.len() > 1 || listing.args.recursive || directories.len() + files.len() > 1;
    for directory in directories {
        listing.directory(&mut drive, &directory.path, headed)?;
    }
    drive.finish(&mut listing.out)?;
    Ok(listing.trouble)
}

/// Metadata of one path or of what a glob names; whether all went well.
pub fn stat(drive: &mut Drive, path: &OsString, follow: bool) -> Result<(Vec<Entry>, bool), Failure> {
    let ask = Ask { target: drive::target(path), operation: Operation::Stat, follow };
    let mut found = Vec::new();
    let mut good = true;
    good &= drive.ask_about(path.as_bytes(), &ask, |record| {
        match record {
            Record::Entry(entry) => found.push(entry),
            Record::Failed { path, status } => {
                good = false;
                complain_about(&path, &nearside_fsrlib::describe(&status));
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((found, good))
}

impl Listing {
    fn directory(&mut self, drive: &mut Drive, path: &[u8], headed: bool) -> Result<(), Failure> {
        let mut stack = vec![path.to_vec()];
        while let Some(path) = stack.pop() {
            let mut entries = Vec::new();
            let ask = Ask { target: Target::Path(path.clone()), operation: Operation::List, follow: true };
            let good = drive.ask_about(&path, &ask, |record| {
                if let Record::Entry(entry) = record {
                    entries.push(entry);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if !good {
                self.trouble = self.trouble.max(1);
                if entries.is_empty() {
                    continue;
                }
            }
            entries.sort_by(|a, b| a.path.cmp(&b.path));
            if self.args.recursive {
                let level = path.iter().filter(|&&b| b == b'/').count();
                let below =
                    entries.iter().rev().filter(|e| format::is_directory(e.mode) && self.shown(&e.path));
                stack.extend(below.filter(|_| level < MOST_LEVELS).map(|e| join(&path, &e.path)));
            }
            if self.args.all {
                for (name, at) in [("..", parent(&path)), (".", path.clone())] {
                    let at = OsString::from(std::ffi::OsStr::from_bytes(&at));
                    let ask = Ask::path(at.as_bytes(), Operation::Stat);
                    drive.ask_about(at.as_bytes(), &ask, |record| {
                        if let Record::Entry(mut entry) = record {
                            entry.path = name.into();
                            entries.insert(0, entry);
                        }
                        Ok(ControlFlow::Continue(()))
                    })?;
                }
            }
            entries.retain(|e| self.shown(&e.path));
            if self.args.drive.json {
                for entry in &entries {
                    let value = format::entry_json(&join(&path, &entry.path), entry);
                    self.out.json(&value)?;
                }
                continue;
            }
            if headed {
                if self.printed {
                    self.out.line(b"")?;
                }
                self.out.write_all(&path)?;
                self.out.line(b":")?;
            }
            self.entries(&entries, true)?;
            self.printed = true;
        }
        Ok(())
    }

    fn shown(&self, name: &[u8]) -> bool {
        self.args.all || self.args.almost_all || !name.starts_with(b".")
    }

    fn entries(&mut self, entries: &[Entry], total: bool) -> Result<(), Failure> {
        if self.args.drive.json {
            for entry in entries {
                let value = format::entry_json(&entry.path, entry);
                self.out.json(&value)?;
            }
            return Ok(());
        }
        self.printed |= !entries.is_empty();
        let size =
            |bytes: u64| if self.args.human_readable { format::human(bytes) } else { bytes.to_string() };
        if self.args.long && total {
            let sectors: u64 = entries.iter().map(|e| e.sectors).sum();
            let shown = if self.args.human_readable {
                format::human(sectors * 512)
            } else {
                sectors.div_ceil(2).to_string()
            };
            writeln!(self.out, "total {shown}")?;
        }
        let rows: Vec<[String; 7]> = entries
            .iter()
            .map(|e| {
                let inode = if self.args.inode { e.ino.to_string() } else { String::new() };
                if !self.args.long {
                    return [
                        inode,
                        String::new(),
                        String::new(),
                        String::new(),
                        String::new(),
                        String::new(),
                        String::new(),
                    ];
                }
                let numeric = self.args.numeric_uid_gid;
                let (user, group) = (e.uid.to_string(), e.gid.to_string());
                [
                    inode,
                    format::mode(e.mode),
                    e.links.to_string(),
                    if numeric { user } else { self.names.user(e.uid) },
                    if numeric { group } else { self.names.group(e.gid) },
                    if format::is_device(e.mode) {
                        format!("{}, {}", e.rdev.0, e.rdev.1)
                    } else {
                        size(e.size)
                    },
                    self.times.short(e.times[1]),
                ]
            })
            .collect();
        let mut wide = [0; 7];
        for row in &rows {
            for (wide, cell) in wide.iter_mut().zip(row) {
                *wide = cell.len().max(*wide);
            }
        }
        for (entry, row) in entries.iter().zip(&rows) {
            for (column, cell) in row.iter().enumerate().filter(|(c, _)| wide[*c] > 0) {
                let wide = wide[column];
                // Users and groups stand to the left, numbers to the right.
                match column {
                    3 | 4 => write!(self.out, "{cell:<wide$} ")?,
                    _ => write!(self.out, "{cell:>wide$} ")?,
                }
            }
            self.out.write_all(&entry.path)?;
            if self.args.long
                && let Some(link) = &entry.link
            {
                self.out.write_all(b" -> ")?;
                self.out.write_all(link)?;
            }
            self.out.line(b"")?;
        }
        Ok(())
    }
}

fn parent(path: &[u8]) -> Vec<u8> {
    join(path, b"..")
}

/// `dir/name`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
