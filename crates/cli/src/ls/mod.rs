//! `nearside ls`: directories, one List command each (and one Stat for what may be a file).

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, Failure as Refusal, FileEntry, Operation, Record, Target};

use crate::args::{Color, DriveArgs};
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain_of};
use crate::format::{self, TimeStyle, Times};
use crate::mounted::join;
use crate::out::Out;
use crate::terminal;
use crate::users::{NamesArgs, Users};

mod colors;
mod lines;

use colors::Colors;
use lines::Beside;

const EXAMPLES: &str = "\
Examples:
  nearside ls -d disk.img /etc
  nearside ls -d disk.img -lah /var/log
  nearside ls -d disk.img -lt --time-style=full-iso /var/log
  nearside ls -d disk.img -l --names /home          # users and groups by the volume's own names
  nearside ls -d disk.img -lD /bin                  # the link itself, not what it leads to
  nearside ls -d disk.img -RF --color=always /usr
  nearside ls -d disk.img -R / --json

Flags mean what they mean in GNU ls, but -d, which names the drive: -D is its -d. One entry stands in a line, also on a terminal,
where names are quoted as GNU ls does. Names are sorted by their bytes, and times are in the C locale's form. Users and groups
are numbers unless names are asked for. With -U, entries come as the drive gives them: in byte order of names, but for those
of directories of more than 128 KiB, which come in the directory's own order.";

/// List directories
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct LsArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// One entry per line, with mode, links, owner, group, size and time
    #[arg(short = 'l', long)]
    long: bool,
    /// One entry per line, as in any case
    #[arg(short = '1')]
    one: bool,
    /// Entries that begin with a dot as well
    #[arg(short = 'a', long, overrides_with = "almost_all")]
    all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    almost_all: bool,
    /// Directories below directories as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Sort by time of modification, the newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted"])]
    by_time: bool,
    /// Sort by size, the largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "unsorted"])]
    by_size: bool,
    /// Do not sort
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size"])]
    unsorted: bool,
    /// The other way round
    #[arg(short = 'r', long)]
    reverse: bool,
    /// Mark directories (/), executables (*), links (@), pipes (|) and sockets (=)
    #[arg(short = 'F', long, overrides_with = "slash")]
    classify: bool,
    /// Mark directories (/)
    #[arg(short = 'p', overrides_with = "classify")]
    slash: bool,
    /// Print what each takes of the volume, in KiB
    #[arg(short = 's', long)]
    size: bool,
    /// With -l or -s: sizes in K, M, G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// -l with numbers of users and groups (as without --names)
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
    /// Names in colours: dircolors' in LS_COLORS (its two letters and endings), or GNU ls's own
    #[arg(long, visible_alias = "colour", value_enum, default_value = "never", value_name = "WHEN",
          num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    color: Color,
    /// With -l: full-iso, long-iso, iso, locale (as without it), or +FORMAT as of date; with a line end in
    /// it, one for times of more than half a year ago, and one for later ones
    #[arg(long, env = "TIME_STYLE", value_name = "STYLE")]
    time_style: Option<TimeStyle>,
    #[command(flatten)]
    drive: DriveArgs,
}

struct Listing {
    args: LsArgs,
    out: Out,
    users: Users,
    times: Times,
    style: TimeStyle,
    /// Nanoseconds since 1970.
    now: i128,
    colors: Option<Colors>,
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
    args.long |= args.numeric_uid_gid;
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    let users = Users::of(&args.names, &mut drive)?;
    if args.recursive && !args.directory {
        drive.expect_entries(&paths)?;
    }
    let mut listing = Listing {
        out: Out::new(),
        users,
        times: Times::new(),
        style: args.time_style.take().unwrap_or_default(),
        now: format::now(),
        colors: args.color.on().then(Colors::of_environment).flatten(),
        args,
        printed: false,
        trouble: 0,
    };
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for path in &paths {
        let (found, good) = stat(&mut drive, path, false)?;
        if !good {
            listing.trouble = 2;
        }
        for entry in found {
            match listing.named(&mut drive, entry)? {
                Some((true, directory)) => directories.push(directory),
                Some((false, file)) => files.push(file),
                None => listing.trouble = 2,
            }
        }
    }
    for list in [&mut files, &mut directories] {
        listing.sort(list);
    }
    let targets = listing.targets(&mut drive, b"", &files)?;
    listing.entries(&files, &targets, Beside::Directories(&directories))?;
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
                complain_of(&path, &failure);
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((found, good))
}

/// The directory that a link leads to, which is then listed in its place. A link that leads elsewhere, or
/// nowhere, is shown itself (`Ok(None)`); what else is wrong with it is said (`Err`).
fn directory_behind(
    drive: &mut Drive,
    link: &FileEntry,
) -> Result<Result<Option<FileEntry<'static>>, ()>, Failure> {
    let ask = Ask { target: Target::Path(link.path.to_vec()), operation: Operation::Stat, follow: true };
    let mut directory = None;
    let answer = drive.ask(&ask, |record| {
        if let Record::Entry(entry) = record {
            directory = format::is_directory(entry.mode).then(|| entry.into_owned());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(match answer {
        Ok(()) => Ok(directory.map(|entry| FileEntry { path: link.path.to_vec().into(), ..entry })),
        Err(Refusal::NotFound) => Ok(None),
        Err(refusal) => {
            complain_of(&link.path, &refusal);
            Err(())
        }
    })
}

impl Listing {
    /// What the command line names, and whether it is a directory that is to be listed. `None`: it is not
    /// to be had, which was said.
    fn named(
        &self,
        drive: &mut Drive,
        entry: FileEntry<'static>,
    ) -> Result<Option<(bool, FileEntry<'static>)>, Failure> {
        let follow = !(self.args.long || self.args.classify || self.args.directory);
        match format::letter(entry.mode) {
            'l' if follow => Ok(match directory_behind(drive, &entry)? {
                Ok(Some(directory)) => Some((true, directory)),
                Ok(None) => Some((false, entry)),
                Err(()) => None,
            }),
            letter => Ok(Some((letter == 'd' && !self.args.directory, entry))),
        }
    }

    fn directory(&mut self, drive: &mut Drive, top: &[u8], headed: bool) -> Result<(), Failure> {
        let mut stack = vec![top.to_vec()];
        while let Some(path) = stack.pop() {
            let Some(entries) = self.read(drive, &path, path == top)? else { continue };
            if self.args.recursive {
                let level = path.iter().filter(|&&b| b == b'/').count();
                let goes_in = |e: &&FileEntry| {
                    format::is_directory(e.mode) && !matches!(&*e.path, b"." | b"..") && level < MOST_LEVELS
                };
                stack.extend(entries.iter().rev().filter(goes_in).map(|e| join(&path, &e.path)));
            }
            for entry in &entries {
                if entry.is_name_alone() && self.misses(entry.mode) {
                    self.trouble = self.trouble.max(1);
                    complain_of(&join(&path, &entry.path), &Refusal::PermissionDenied);
                }
            }
            if self.args.drive.json {
                for entry in &entries {
                    self.out.json(&json(&join(&path, &entry.path), entry))?;
                }
                continue;
            }
            if headed {
                self.head(&path)?;
            }
            let targets = self.targets(drive, &path, &entries)?;
            self.entries(&entries, &targets, Beside::Total)?;
            self.printed = true;
        }
        Ok(())
    }

    /// A directory's entries that are shown, in their order. `None`: there is nothing to show, not even
    /// that it is empty.
    fn read(
        &mut self,
        drive: &mut Drive,
        path: &[u8],
        top: bool,
    ) -> Result<Option<Vec<FileEntry<'static>>>, Failure> {
        let mut entries = Vec::new();
        let mut failed = false;
        let operation = if self.needs_attributes() { Operation::List } else { Operation::Names };
        let ask = Ask { target: Target::Path(path.to_vec()), operation, follow: true };
        let good = drive.ask_about(path, &ask, |record| {
            match record {
                Record::Entry(entry) => entries.push(entry.into_owned()),
                Record::Name { path, kind } => entries.push(FileEntry::of_name(path, kind).into_owned()),
                Record::Failed { path: name, failure } => {
                    failed = true;
                    complain_of(&join(path, &name), &failure);
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
            self.trouble = self.trouble.max(if top { 2 } else { 1 });
            if entries.is_empty() {
                return Ok(None);
            }
        }
        let hidden = self.args.all || self.args.almost_all;
        entries.retain(|e| hidden || !e.path.starts_with(b"."));
        for name in [".", ".."].iter().filter(|_| self.args.all) {
            let ask = Ask::path(join(path, name.as_bytes()), Operation::Stat);
            let mut entry = FileEntry::of_name(name.as_bytes().into(), 0o040_000);
            // Where it may not be looked up, its name is all there is of it.
            let _refused = drive.ask(&ask, |record| {
                if let Record::Entry(found) = record {
                    entry = FileEntry { path: name.as_bytes().into(), ..found.into_owned() };
                }
                Ok(ControlFlow::Continue(()))
            })?;
            entries.push(entry);
        }
        self.sort(&mut entries);
        Ok(Some(entries))
    }

    fn sort(&self, entries: &mut [FileEntry]) {
        if self.args.unsorted {
            return;
        }
        entries.sort_by(|a, b| {
            let first = match (self.args.by_time, self.args.by_size) {
                (true, _) => b.times[1].cmp(&a.times[1]),
                (_, true) => b.size.cmp(&a.size),
                _ => std::cmp::Ordering::Equal,
            };
            first.then_with(|| a.path.cmp(&b.path))
        });
        if self.args.reverse {
            entries.reverse();
        }
    }

    /// Whether more is shown of entries, or sorted by, than their names; in colours, of some.
    fn needs_columns(&self) -> bool {
        let LsArgs { long, inode, size, by_time, by_size, .. } = self.args;
        long || inode || size || by_time || by_size
    }

    /// Whether names and types, as directories say them, are not enough.
    fn needs_attributes(&self) -> bool {
        let LsArgs { classify, slash, .. } = self.args;
        self.needs_columns() || classify || slash || self.colors.is_some() || self.args.drive.json
    }

    /// Whether of a file of this type, of which there is no more than a name, more was needed.
    fn misses(&self, mode: u16) -> bool {
        match format::letter(mode) {
            '-' => self.needs_columns() || self.args.classify || self.colors.is_some(),
            'd' => self.needs_columns() || self.colors.is_some(),
            _ => self.needs_columns(),
        }
    }

    /// The modes of what links lead to, where colours or marks follow from them.
    fn targets(
        &self,
        drive: &mut Drive,
        directory: &[u8],
        entries: &[FileEntry],
    ) -> Result<Vec<Option<u16>>, Failure> {
        let mut modes = vec![None; entries.len()];
        let LsArgs { long, classify, .. } = self.args;
        let colored = self.colors.as_ref().is_some_and(|colors| colors.follow_links(long));
        if self.args.drive.json || !(long && classify || colored) {
            return Ok(modes);
        }
        let is_link = |at: &usize| format::letter(entries[*at].mode) == 'l';
        let links: Vec<usize> = (0..entries.len()).filter(is_link).collect();
        let path = |at: &usize| match directory {
            b"" => entries[*at].path.to_vec(),
            directory => join(directory, &entries[*at].path),
        };
        let ask = |at| Ask { target: Target::Path(path(at)), operation: Operation::Stat, follow: true };
        let asks: Vec<Ask> = links.iter().map(ask).collect();
        drive.ask_each(&asks, |nth, answer| {
            if let Ok(Record::Entry(entry)) = answer {
                modes[links[nth]] = Some(entry.mode);
            }
            Ok(())
        })?;
        Ok(modes)
    }

    /// The line above a directory's entries.
    fn head(&mut self, path: &[u8]) -> Result<(), Failure> {
        if self.printed {
            self.out.line(b"")?;
        }
        let shown = match self.out.terminal {
            true => terminal::quoted_before_colon(path),
            false => path.into(),
        };
        self.out.write_all(&shown)?;
        Ok(self.out.line(b":")?)
    }
}

/// What is known of an entry, as JSON.
pub fn json(path: &[u8], entry: &FileEntry) -> serde_json::Value {
    if entry.is_name_alone() { format::name_json(path, entry.mode) } else { format::entry_json(path, entry) }
}
