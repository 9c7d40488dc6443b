//! `nearside ls`: directories, one List command each (and one Stat for what may be a file).

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, Failure as Refusal, FileEntry, Operation, Record, Target};

use crate::args::DriveArgs;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain_about};
use crate::format::{self, Times};
use crate::mounted::join;
use crate::out::Out;
use crate::terminal;
use crate::users::{NamesArgs, Users};

const EXAMPLES: &str = "\
Examples:
  nearside ls -d disk.img /etc
  nearside ls -d disk.img -lah /var/log
  nearside ls -d disk.img -l --names /home          # users and groups by the volume's own names
  nearside ls -d disk.img -lD /bin                  # the link itself, not what it leads to
  nearside ls -d disk.img -R / --json

Names are sorted by their bytes; on a terminal they are quoted as GNU ls does. Users and groups are numbers unless names are asked for.";

/// List directories
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
    /// With -l: numbers of users and groups (as without --names)
    #[arg(short = 'n', long, conflicts_with = "names")]
    numeric_uid_gid: bool,
    #[command(flatten)]
    names: NamesArgs,
    /// Inode numbers
    #[arg(short = 'i', long)]
    inode: bool,
    /// Directories themselves, not what they hold; links themselves, not what they lead to (ls -d elsewhere)
    #[arg(short = 'D', long)]
    directory: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

struct Listing {
    args: LsArgs,
    out: Out,
    users: Users,
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
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    let users = Users::of(&args.names, &mut drive)?;
    let mut listing =
        Listing { args, out: Out::new(), users, times: Times::new(), printed: false, trouble: 0 };
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for path in &paths {
        let (found, good) = stat(&mut drive, path, false)?;
        if !good {
            listing.trouble = 2;
        }
        let follow = !(listing.args.long || listing.args.directory);
        for entry in found {
            let is_directory = match format::letter(entry.mode) {
                'd' => !listing.args.directory,
                'l' if follow => match leads_to_a_directory(&mut drive, &entry.path)? {
                    Some(directory) => directory,
                    None => {
                        listing.trouble = 2;
                        continue;
                    }
                },
                _ => false,
            };
            if is_directory { &mut directories } else { &mut files }.push(entry);
        }
    }
    for list in [&mut files, &mut directories] {
        list.sort_by(|a: &FileEntry, b| a.path.cmp(&b.path));
    }
    listing.entries(&files, false)?;
    // As GNU ls: also before a directory that then cannot be opened.
    if listing.printed && !directories.is_empty() && !listing.args.drive.json {
        listing.out.line(b"")?;
        listing.printed = false;
    }
    let headed = paths.len() > 1 || listing.args.recursive || directories.len() + files.len() > 1;
    for directory in directories {
        listing.directory(&mut drive, &directory.path, headed)?;
    }
    drive.finish(&mut listing.out)?;
    Ok(listing.trouble)
}

/// Metadata of one path; whether all went well.
pub fn stat(
    drive: &mut Drive,
    path: &OsString,
    follow: bool,
) -> Result<(Vec<FileEntry<'static>>, bool), Failure> {
    let ask = Ask { target: drive::target(path), operation: Operation::Stat, follow };
    let mut found = Vec::new();
    let mut good = true;
    good &= drive.ask_about(path.as_bytes(), &ask, |record| {
        match record {
            Record::Entry(entry) => found.push(entry.into_owned()),
            Record::Name { path, kind } => found.push(FileEntry::of_name(path, kind).into_owned()),
            Record::Failed { path, failure } => {
                good = false;
                complain_about(&path, &nearside_fsrlib::describe(&failure));
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((found, good))
}

/// Whether a link leads to a directory, which is then listed in its place. One that leads nowhere is shown
/// itself; what else is wrong with it is said (`None`).
fn leads_to_a_directory(drive: &mut Drive, path: &[u8]) -> Result<Option<bool>, Failure> {
    let ask = Ask { target: Target::Path(path.to_vec()), operation: Operation::Stat, follow: true };
    let mut directory = false;
    let answer = drive.ask(&ask, |record| {
        if let Record::Entry(entry) = record {
            directory = format::is_directory(entry.mode);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(match answer {
        Ok(()) => Some(directory),
        Err(Refusal::NotFound) => Some(false),
        Err(refusal) => {
            complain_about(path, &nearside_fsrlib::describe(&refusal));
            None
        }
    })
}

impl Listing {
    fn directory(&mut self, drive: &mut Drive, top: &[u8], headed: bool) -> Result<(), Failure> {
        let mut stack = vec![top.to_vec()];
        while let Some(path) = stack.pop() {
            let mut entries = Vec::new();
            let mut failed = false;
            let ask = Ask { target: Target::Path(path.clone()), operation: self.listing(), follow: true };
            let good = drive.ask_about(&path, &ask, |record| {
                match record {
                    Record::Entry(entry) => entries.push(entry.into_owned()),
                    Record::Name { path, kind } => entries.push(FileEntry::of_name(path, kind).into_owned()),
                    Record::Failed { path: name, failure } => {
                        failed = true;
                        complain_about(&join(&path, &name), &nearside_fsrlib::describe(&failure));
                    }
                    _ => {}
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if failed {
                self.trouble = self.trouble.max(1);
            }
            if !good {
                // What the command line names counts for more than what was found below it.
                self.trouble = self.trouble.max(if path == top { 2 } else { 1 });
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
                for name in ["..", "."] {
                    let ask = Ask::path(join(&path, name.as_bytes()), Operation::Stat);
                    let mut entry = FileEntry::of_name(name.as_bytes().into(), 0o040_000);
                    // Where it may not be looked up, its name is all there is of it.
                    let _refused = drive.ask(&ask, |record| {
                        if let Record::Entry(found) = record {
                            entry = FileEntry { path: name.as_bytes().into(), ..found.into_owned() };
                        }
                        Ok(ControlFlow::Continue(()))
                    })?;
                    entries.insert(0, entry);
                }
            }
            entries.retain(|e| self.shown(&e.path));
            if self.args.long || self.args.inode {
                for entry in entries.iter().filter(|e| e.is_name_alone()) {
                    self.trouble = self.trouble.max(1);
                    let denied = nearside_fsrlib::describe(&Refusal::PermissionDenied);
                    complain_about(&join(&path, &entry.path), &denied);
                }
            }
            if self.args.drive.json {
                for entry in &entries {
                    self.out.json(&json(&join(&path, &entry.path), entry))?;
                }
                continue;
            }
            if headed {
                if self.printed {
                    self.out.line(b"")?;
                }
                let shown = match self.out.terminal {
                    true => terminal::quoted_before_colon(&path),
                    false => (&path).into(),
                };
                self.out.write_all(&shown)?;
                self.out.line(b":")?;
            }
            self.entries(&entries, true)?;
            self.printed = true;
        }
        Ok(())
    }

    /// Names alone are what directories say.
    fn listing(&self) -> Operation {
        let names = !(self.args.long || self.args.inode || self.args.drive.json);
        if names { Operation::Names } else { Operation::List }
    }

    fn shown(&self, name: &[u8]) -> bool {
        self.args.all || self.args.almost_all || !name.starts_with(b".")
    }

    /// Inode number, mode, links, user, group, size and time, as far as they are asked for.
    fn row(&self, e: &FileEntry) -> [String; 7] {
        let unknown = e.is_name_alone();
        let inode = match self.args.inode {
            true if unknown => "?".into(),
            true => e.ino.to_string(),
            false => String::new(),
        };
        if !self.args.long {
            let mut row = <[String; 7]>::default();
            row[0] = inode;
            return row;
        }
        if unknown {
            let [links, user, group, size, time] = ["?"; 5].map(String::from);
            let mode = format!("{}?????????", format::letter(e.mode));
            return [inode, mode, links, user, group, size, time];
        }
        let size = match format::is_device(e.mode) {
            true => format!("{}, {}", e.rdev.0, e.rdev.1),
            false if self.args.human_readable => format::human(e.size),
            false => e.size.to_string(),
        };
        let (user, group) = (self.users.user(e.uid), self.users.group(e.gid));
        [inode, format::mode(e.mode), e.links.to_string(), user, group, size, self.times.short(e.times[1])]
    }

    fn entries(&mut self, entries: &[FileEntry], total: bool) -> Result<(), Failure> {
        if self.args.drive.json {
            for entry in entries {
                self.out.json(&json(&entry.path, entry))?;
            }
            return Ok(());
        }
        self.printed |= !entries.is_empty();
        if self.args.long && total {
            let sectors: u64 = entries.iter().map(|e| e.sectors).sum();
            let shown = if self.args.human_readable {
                format::human(sectors * 512)
            } else {
                sectors.div_ceil(2).to_string()
            };
            writeln!(self.out, "total {shown}")?;
        }
        let rows: Vec<[String; 7]> = entries.iter().map(|e| self.row(e)).collect();
        let mut wide = [0; 7];
        for row in &rows {
            for (wide, cell) in wide.iter_mut().zip(row) {
                *wide = cell.chars().count().max(*wide);
            }
        }
        // As ls aligns long lines on a terminal: a name without quotes begins where those within quotes do.
        let quotes = |e: &FileEntry| *self.out.shown(&e.path) != e.path[..];
        let some_quoted = self.args.long && entries.iter().any(quotes);
        for (entry, row) in entries.iter().zip(&rows) {
            for (column, cell) in row.iter().enumerate().filter(|(c, _)| wide[*c] > 0) {
                let wide = wide[column];
                // Users and groups stand to the left, numbers to the right.
                match column {
                    3 | 4 => self.out.text(&format!("{cell:<wide$} "))?,
                    _ => write!(self.out, "{cell:>wide$} ")?,
                }
            }
            if some_quoted && *self.out.shown(&entry.path) == entry.path[..] {
                self.out.write_all(b" ")?;
            }
            self.out.name(&entry.path)?;
            if self.args.long
                && let Some(link) = &entry.link
            {
                self.out.write_all(b" -> ")?;
                self.out.name(link)?;
            }
            self.out.line(b"")?;
        }
        Ok(())
    }
}

/// What is known of an entry, as JSON.
pub fn json(path: &[u8], entry: &FileEntry) -> serde_json::Value {
    if entry.is_name_alone() { format::name_json(path, entry.mode) } else { format::entry_json(path, entry) }
}
