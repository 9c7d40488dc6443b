//! `nearside diff`: what has changed between two trees, of which one is a volume's and the other another
//! volume's, or this host's.
//!
//! How a tree passes: both list a directory ([`side`]), names are held against each other in their order,
//! what is in both is compared by what is known of it, and where that leaves it open by digests, which each
//! drive computes of its own files. Directories that are in both are gone into.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use nearside_embedded::partition::{Logical, Wanted};
use nearside_fsrlib::{FileEntry, Seen};
use serde_json::json;

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Failure, Outcome, complain_about};
use crate::format::{self, Times};
use crate::mounted::join;
use crate::out::{self, Out};
use crate::progress::Progress;

mod side;

use side::Side;

const EXAMPLES: &str = "\
Examples:
  nearside diff -d old.img --other new.img                 # what changed between two images
  nearside diff -d old.img --other new.img /etc --ignore time,owner
  nearside diff -d old.img --other new.img -q --no-content
  nearside diff -d disk.img /etc ./etc                     # a directory of the volume, and one of this host

Told is what is added, removed and changed: type, mode, owner, size, time (of modification), target (of a link), device (its
numbers) and content (by SHA-256, of files of one size). Of what is added or removed with all that is in it, the directory is
told. Extended attributes, and which names are one file's, are not compared.
Exit status: 0 nothing differs, 1 something does, 2 something could not be compared.";

/// Say what has changed between two volumes, or a volume and a directory of this host
#[derive(Args)]
#[command(
    after_long_help = crate::args::flowing(EXAMPLES),
    override_usage = "nearside diff -d DRIVE [OPTIONS] PATH OTHER_PATH\n       \
                      nearside diff -d DRIVE --other DRIVE [OPTIONS] [PATH [OTHER_PATH]]"
)]
pub struct DiffArgs {
    /// What was: an absolute path in the volume [default: its root]
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// What is: a path of this host; with --other, one in that volume [default: as PATH]
    #[arg(value_name = "OTHER_PATH", required_unless_present = "other")]
    other_path: Option<OsString>,
    /// The drive with the volume that is compared with, in any of the forms of -d
    #[arg(long, value_name = "DRIVE", conflicts_with = "mounted")]
    other: Option<OsString>,
    /// Partition that holds that volume, as --partition has it
    #[arg(long, value_name = "N|NAME", requires = "other")]
    other_partition: Option<Wanted>,
    /// Logical volume that is compared with in the place of the whole other drive, as --volume has it
    #[arg(long, value_name = "VG/LV", requires = "other")]
    other_volume: Option<Logical>,
    /// Say which paths, not what of them
    #[arg(short = 'q', long)]
    brief: bool,
    /// Compare no bytes: what is of one size and time counts as the same
    #[arg(long)]
    no_content: bool,
    /// Leave out differences of these kinds; several with commas
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<What>,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What can be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Type,
    Mode,
    Owner,
    Size,
    Time,
    Target,
    Device,
    Content,
}

struct Diff<'a> {
    args: &'a DiffArgs,
    sides: [Side; 2],
    out: Out,
    times: Times,
    /// Directories that were gone into, by the first volume's inodes: each has one path.
    entered: HashSet<u64>,
    differs: bool,
    failed: bool,
}

/// What has one path below the roots, in one of them or in both.
struct Pair {
    below: Vec<u8>,
    entries: [Option<FileEntry<'static>>; 2],
    changes: Vec<What>,
    /// Their bytes are to be compared.
    open: bool,
}

/// Files whose digests are asked for together.
const TOGETHER: usize = 1024;

pub fn run(args: DiffArgs) -> Outcome {
    let root: OsString = args.path.clone().unwrap_or_else(|| "/".into());
    let other_root = args.other_path.clone().unwrap_or_else(|| root.clone());
    let first = open(&args.drive, root)?;
    let second = match &args.other {
        Some(other) => {
            let args = DriveArgs {
                drive: other.clone(),
                partition: args.other_partition.clone(),
                volume: args.other_volume.clone(),
                ..args.drive.clone()
            };
            open(&args, other_root)?
        }
        None => Side::Host { root: other_root.as_bytes().to_vec() },
    };
    let seen: Vec<Arc<Seen>> = [&first, &second].into_iter().filter_map(Side::seen).collect();
    let sum = |(files, bytes): (u64, u64), (more, longer): (u64, u64)| (files + more, bytes + longer);
    let so_far = move || seen.iter().map(|seen| seen.get()).fold((0, 0), sum);
    let progress = Progress::new("in the drives", so_far);
    let mut diff = Diff {
        args: &args,
        sides: [first, second],
        out: Out::new(),
        times: Times::new(),
        entered: HashSet::new(),
        differs: false,
        failed: false,
    };
    diff.all()?;
    drop(progress);
    let Diff { sides, mut out, differs, failed, .. } = diff;
    for side in sides {
        if let Side::Drive { drive, .. } = side {
            drive.finish(&mut out)?;
        }
    }
    out.flush()?;
    Ok(if failed { 2 } else { u8::from(differs) })
}

fn open(args: &DriveArgs, root: OsString) -> Result<Side, Failure> {
    let mut paths = vec![root];
    // Progress is that of both drives.
    let drive = Box::new(Drive::open_for(args, &mut paths)?.with_progress(Progress::default()));
    match &paths[..] {
        [root] => Ok(Side::Drive { drive, root: root.as_bytes().to_vec() }),
        _ => Err("diff: the pattern matches several paths".to_owned().into()),
    }
}

impl Diff<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        let mut entries = [None, None];
        for (side, entry) in self.sides.iter_mut().zip(&mut entries) {
            *entry = side.root()?;
        }
        if entries.iter().any(Option::is_none) {
            self.failed = true;
            return Ok(());
        }
        let mut stack = vec![];
        let root = self.pair(Vec::new(), entries);
        self.pairs(vec![root], &mut stack)?;
        while let Some(below) = stack.pop() {
            let mut pairs = self.directory(&below)?;
            let mut directories = Vec::new();
            while !pairs.is_empty() {
                let rest = pairs.split_off(pairs.len().min(TOGETHER));
                self.pairs(pairs, &mut directories)?;
                pairs = rest;
            }
            // Of those that wait, the first comes next.
            stack.extend(directories.into_iter().rev());
        }
        Ok(())
    }

    /// What is in a directory of both roots, by name.
    fn directory(&mut self, below: &[u8]) -> Result<Vec<Pair>, Failure> {
        let [mut first, mut second] = [Vec::new().into_iter().peekable(), Vec::new().into_iter().peekable()];
        for (side, entries) in self.sides.iter_mut().zip([&mut first, &mut second]) {
            let (list, whole) = side.list(below)?;
            self.failed |= !whole;
            *entries = list.into_iter().peekable();
        }
        let mut pairs = Vec::new();
        loop {
            let (order, name) = match (first.peek(), second.peek()) {
                (Some(a), Some(b)) => (a.path.cmp(&b.path), (&a.path).min(&b.path)),
                (Some(a), None) => (Ordering::Less, &a.path),
                (None, Some(b)) => (Ordering::Greater, &b.path),
                (None, None) => return Ok(pairs),
            };
            let below = if below.is_empty() { name.to_vec() } else { join(below, name) };
            let before = if order.is_le() { first.next() } else { None };
            let after = if order.is_ge() { second.next() } else { None };
            pairs.push(self.pair(below, [before, after]));
        }
    }

    /// Compares by what is known of both.
    fn pair(&self, below: Vec<u8>, entries: [Option<FileEntry<'static>>; 2]) -> Pair {
        let mut pair = Pair { below, entries, changes: Vec::new(), open: false };
        let [Some(a), Some(b)] = &pair.entries else { return pair };
        let letter = format::letter(a.mode);
        let same_type = letter == format::letter(b.mode);
        let file = same_type && letter == '-';
        let device = same_type && format::is_device(a.mode);
        for (what, differs) in [
            (What::Type, !same_type),
            (What::Mode, letter != 'l' && same_type && (a.mode ^ b.mode) & 0o7777 != 0),
            (What::Owner, (a.uid, a.gid) != (b.uid, b.gid)),
            (What::Size, file && a.size != b.size),
            (What::Time, a.times[1] != b.times[1]),
            (What::Target, same_type && a.link != b.link),
            (What::Device, device && a.rdev != b.rdev),
        ] {
            if differs && !self.args.ignore.contains(&what) {
                pair.changes.push(what);
            }
        }
        let content = !(self.args.no_content || self.args.ignore.contains(&What::Content));
        pair.open = content && file && a.size == b.size && a.size > 0;
        pair
    }

    /// Tells what differs; directories of both are to be gone into.
    fn pairs(&mut self, mut pairs: Vec<Pair>, directories: &mut Vec<Vec<u8>>) -> Result<(), Failure> {
        let open: Vec<usize> = (0..pairs.len()).filter(|at| pairs[*at].open).collect();
        let files: Vec<Vec<u8>> = open.iter().map(|at| pairs[*at].below.clone()).collect();
        let [first, second] = &mut self.sides;
        let (before, after) = (first.digests(&files)?, second.digests(&files)?);
        for ((at, before), after) in open.into_iter().zip(before).zip(after) {
            match before.zip(after) {
                Some((before, after)) if before != after => pairs[at].changes.push(What::Content),
                Some(_) => {}
                None => self.failed = true,
            }
        }
        for pair in pairs {
            self.tell(&pair)?;
            let [Some(a), Some(b)] = &pair.entries else { continue };
            if !(format::is_directory(a.mode) && format::is_directory(b.mode)) {
                continue;
            }
            if self.entered.insert(a.ino) {
                directories.push(pair.below);
            } else {
                self.failed = true;
                complain_about(&self.sides[0].path(&pair.below), "A directory that has another path already");
            }
        }
        Ok(())
    }

    fn tell(&mut self, pair: &Pair) -> Result<(), Failure> {
        let what = match &pair.entries {
            [Some(_), None] => "removed",
            [None, Some(_)] => "added",
            _ if pair.changes.is_empty() => return Ok(()),
            _ => "changed",
        };
        self.differs = true;
        let path = self.sides[0].path(&pair.below);
        if self.args.drive.json {
            let known =
                |entry: &Option<FileEntry>| entry.as_ref().map(|entry| format::entry_json(&path, entry));
            let [before, after] = pair.entries.each_ref().map(known);
            let changes: Vec<&str> = pair.changes.iter().map(|what| name(*what)).collect();
            return Ok(self.out.json(&json!({
                "type": "difference", "path": out::text(&path), "what": what, "changes": changes,
                "before": before, "after": after,
            }))?);
        }
        write!(self.out, "{what:<8} ")?;
        self.out.name(&path)?;
        match &pair.entries {
            [Some(before), Some(after)] if !self.args.brief => {
                self.changes(&pair.changes, [before, after])?
            }
            [Some(only), None] | [None, Some(only)] if format::is_directory(only.mode) => {
                self.out.write_all(b"/")?;
            }
            _ => {}
        }
        Ok(self.out.line(b"")?)
    }

    /// What of it has changed, from what to what.
    fn changes(&mut self, changes: &[What], entries: [&FileEntry; 2]) -> Result<(), Failure> {
        for (nth, what) in changes.iter().enumerate() {
            self.out.write_all(if nth == 0 { b": " } else { b", " })?;
            self.out.write_all(name(*what).as_bytes())?;
            match what {
                What::Content => {}
                What::Target => {
                    let [before, after] = entries.map(|entry| entry.link.as_deref().unwrap_or_default());
                    self.out.write_all(b" ")?;
                    self.out.name(before)?;
                    self.out.write_all(b" -> ")?;
                    self.out.name(after)?;
                }
                what => {
                    let [before, after] = entries.map(|entry| self.value(*what, entry));
                    write!(self.out, " {before} -> {after}")?;
                }
            }
        }
        Ok(())
    }

    fn value(&self, what: What, entry: &FileEntry) -> String {
        match what {
            What::Type => format::kind_name(entry).to_owned(),
            What::Mode => format!("{:04o}", entry.mode & 0o7777),
            What::Owner => format!("{}:{}", entry.uid, entry.gid),
            What::Size => entry.size.to_string(),
            What::Time => self.times.full(entry.times[1]),
            What::Device => format!("{},{}", entry.rdev.0, entry.rdev.1),
            What::Target | What::Content => String::new(),
        }
    }
}

fn name(what: What) -> &'static str {
    match what {
        What::Type => "type",
        What::Mode => "mode",
        What::Owner => "owner",
        What::Size => "size",
        What::Time => "time",
        What::Target => "target",
        What::Device => "device",
        What::Content => "content",
    }
}
