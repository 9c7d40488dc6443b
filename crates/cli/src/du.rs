//! `nearside du`: what trees take of the volume, by one list of each, which the drive walks.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside_fsrlib::{Ask, Failure as Refusal, FileEntry, Operation, Record};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::{Drive, tree};
use crate::failure::{Failure, Outcome, complain_of};
use crate::format;
use crate::out::{self, Out};

const EXAMPLES: &str = "\
Examples:
  nearside du -d disk.img -sh /home
  nearside du -d disk.img -hd1 /
  nearside du -d disk.img -ab /etc                  # bytes that files have, not what they take
  nearside du -d disk.img --inodes -s /usr /var
  nearside du -d disk.img -s / --json

Flags mean what they mean in GNU du, but -d, which names the drive, where it stands alone: levels are -d N in one word (-d1) or
--max-depth. Sizes are in KiB unless -b, -m or -h is given. A file with several names counts once. With --apparent-size, files and
links count by their bytes, and what is neither by none, as in coreutils from 9.2 on. Entries come in byte order of their names.";

/// Say what trees take of the volume
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct DuArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print files as well as directories
    #[arg(short = 'a', long, conflicts_with = "summarize")]
    all: bool,
    /// Print each path's total alone
    #[arg(short = 's', long)]
    summarize: bool,
    /// Print no more levels than this below each path
    #[arg(long, value_name = "N", conflicts_with = "summarize")]
    max_depth: Option<u32>,
    /// Print a total of all
    #[arg(short = 'c', long)]
    total: bool,
    /// Without what directories below take
    #[arg(short = 'S', long)]
    separate_dirs: bool,
    /// Sizes in K, M, G
    #[arg(short = 'h', long, overrides_with_all = ["kibibytes", "mebibytes"])]
    human_readable: bool,
    /// Sizes in KiB, as without it
    #[arg(short = 'k', overrides_with_all = ["mebibytes", "human_readable"])]
    kibibytes: bool,
    /// Sizes in MiB
    #[arg(short = 'm', overrides_with_all = ["kibibytes", "human_readable"])]
    mebibytes: bool,
    /// What files hold, not what they take
    #[arg(long)]
    apparent_size: bool,
    /// --apparent-size, in bytes
    #[arg(short = 'b', long, overrides_with = "human_readable")]
    bytes: bool,
    /// Count inodes instead
    #[arg(long)]
    inodes: bool,
    /// Count a file again for each of its names
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Follow links that the command line names
    #[arg(short = 'D', visible_short_alias = 'H', long)]
    dereference_args: bool,
    /// Stay on one file system, as in any case
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// A zero byte after each line in place of its end
    #[arg(short = '0', long)]
    null: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

/// A directory whose entries are being counted.
struct Level {
    path: Vec<u8>,
    /// What it and its files take, and what directories below it do.
    own: u64,
    below: u64,
}

struct Usage<'a> {
    args: &'a DuArgs,
    out: Out,
    /// Files that count once.
    seen: HashSet<u64>,
    /// All are looked for there: they may be met by several paths.
    several: bool,
    levels: Vec<Level>,
    /// A directory that was met before.
    skipped: Option<Vec<u8>>,
    total: u64,
    code: u8,
}

pub fn run(mut args: DuArgs) -> Outcome {
    let mut paths = std::mem::take(&mut args.paths);
    if paths.is_empty() {
        paths.push("/".into());
    }
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    drive.expect_entries(&paths)?;
    let several = paths.len() > 1;
    let mut usage = Usage {
        args: &args,
        out: Out::new(),
        seen: HashSet::new(),
        several,
        levels: Vec::new(),
        skipped: None,
        total: 0,
        code: 0,
    };
    for path in &paths {
        let ask = Ask { target: tree(path), operation: Operation::List, follow: args.dereference_args };
        let good = drive.ask_about(path.as_bytes(), &ask, |record| {
            usage.record(record)?;
            Ok(ControlFlow::Continue(()))
        })?;
        usage.leave(|_| false)?;
        usage.skipped = None;
        if !good {
            usage.code = 1;
        }
    }
    if args.total {
        usage.print(b"total", usage.total)?;
    }
    let Usage { mut out, code, .. } = usage;
    drive.finish(&mut out)?;
    Ok(code)
}

/// Whether a path lies below a directory.
fn below(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl Usage<'_> {
    fn record(&mut self, record: Record<'_>) -> Result<(), Failure> {
        match record {
            Record::Entry(entry) => self.entry(entry),
            Record::Failed { path, failure } => self.failed(&path, &failure),
            // In a directory that may be read and not searched there are names alone.
            Record::Name { path, .. } => self.failed(&path, &Refusal::PermissionDenied),
            _ => Ok(()),
        }
    }

    fn failed(&mut self, path: &[u8], failure: &Refusal) -> Result<(), Failure> {
        if self.skipped.as_ref().is_some_and(|directory| path == directory || below(path, directory)) {
            return Ok(());
        }
        self.code = 1;
        self.out.flush()?;
        complain_of(path, failure);
        Ok(())
    }

    fn entry(&mut self, entry: FileEntry<'_>) -> Result<(), Failure> {
        if self.skipped.as_ref().is_some_and(|directory| below(&entry.path, directory)) {
            return Ok(());
        }
        self.leave(|directory| below(&entry.path, directory))?;
        let directory = format::is_directory(entry.mode);
        let may_come_again = self.several || !directory && entry.links > 1;
        if !self.args.count_links && may_come_again && !self.seen.insert(entry.ino) {
            self.skipped = directory.then(|| entry.path.to_vec());
            return Ok(());
        }
        let size = self.size(&entry);
        self.total = self.total.saturating_add(size);
        if directory {
            self.levels.push(Level { path: entry.path.to_vec(), own: size, below: 0 });
            return Ok(());
        }
        if let Some(level) = self.levels.last_mut() {
            level.own = level.own.saturating_add(size);
        }
        let depth = self.levels.len() as u32;
        if depth == 0 || self.args.all && depth <= self.depth() {
            self.print(&entry.path, size)?;
        }
        Ok(())
    }

    /// Ends the directories that are not gone on with.
    fn leave(&mut self, goes_on: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
        while let Some(level) = self.levels.pop_if(|level| !goes_on(&level.path)) {
            let all = level.own.saturating_add(level.below);
            if let Some(above) = self.levels.last_mut() {
                above.below = above.below.saturating_add(all);
            }
            if self.levels.len() as u32 <= self.depth() {
                self.print(&level.path, if self.args.separate_dirs { level.own } else { all })?;
            }
        }
        Ok(())
    }

    /// How deep is printed.
    fn depth(&self) -> u32 {
        if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(u32::MAX) }
    }

    fn size(&self, entry: &FileEntry<'_>) -> u64 {
        match format::letter(entry.mode) {
            _ if self.args.inodes => 1,
            _ if !(self.args.bytes || self.args.apparent_size) => entry.sectors.saturating_mul(512),
            '-' | 'l' => entry.size,
            _ => 0,
        }
    }

    fn print(&mut self, path: &[u8], size: u64) -> Result<(), Failure> {
        let DuArgs { human_readable, mebibytes, bytes, inodes, null, .. } = *self.args;
        if self.args.drive.json {
            let what = if inodes { "inodes" } else { "bytes" };
            self.out.json(&json!({ "type": "usage", "path": out::text(path), what: size }))?;
            return Ok(());
        }
        match () {
            () if human_readable => write!(self.out, "{}", format::human(size))?,
            () if bytes || inodes => write!(self.out, "{size}")?,
            () => write!(self.out, "{}", size.div_ceil(if mebibytes { 1 << 20 } else { 1 << 10 }))?,
        }
        self.out.write_all(b"\t")?;
        self.out.name(path)?;
        self.out.write_all(if null { b"\0" } else { b"\n" })?;
        Ok(())
    }
}
