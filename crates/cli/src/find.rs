//! `nearside find`: a tree listed by the drive in one command, and tests on each entry.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use clap::Args;
use nearside_fsrlib::{Ask, Entry, Operation, Record, Target, describe};

use crate::args::DriveArgs;
use crate::drive::Drive;
use crate::failure::{Outcome, complain_about};
use crate::fnmatch::fnmatch;
use crate::format;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside find -d disk.img /etc -name '*.conf'
  nearside find -d disk.img / -type f -size +10M -maxdepth 4
  nearside find -d disk.img / -perm -4000 -print0

Tests may be written with one dash, as find has them. Entries come in byte order of names.";

/// Finds files in a tree
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct FindArgs {
    /// Absolute paths in the volume; the root without any
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Base name matches
    #[arg(long, value_name = "GLOB")]
    name: Vec<OsString>,
    /// Base name matches, case ignored
    #[arg(long, value_name = "GLOB")]
    iname: Vec<OsString>,
    /// Whole path matches
    #[arg(long, value_name = "GLOB")]
    path: Vec<OsString>,
    /// f file, d directory, l symbolic link, p fifo, s socket, b and c devices; several with commas
    #[arg(long = "type", value_name = "C", value_delimiter = ',')]
    kinds: Vec<char>,
    /// N[cwbkMG] units, rounded up; +N more, -N fewer
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    size: Vec<Size>,
    /// Permission bits in octal: MODE exactly, -MODE all of them, /MODE any
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    perm: Option<Perm>,
    /// Owned by this user number
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// Of this group number
    #[arg(long, value_name = "N")]
    gid: Option<u32>,
    /// Empty files
    #[arg(long)]
    empty: bool,
    /// Levels below the paths at most
    #[arg(long, value_name = "N")]
    maxdepth: Option<u32>,
    /// And at least
    #[arg(long, value_name = "N", default_value_t = 0)]
    mindepth: u32,
    /// A zero byte after each path
    #[arg(long)]
    print0: bool,
    #[command(flatten)]
    drive: DriveArgs,
}

/// find's tests as it writes them.
const LONG: [&str; 12] = [
    "name", "iname", "path", "type", "size", "perm", "uid", "gid", "empty", "maxdepth", "mindepth", "print0",
];

/// The command line with find's tests, which have one dash, in the form of the other commands.
pub fn with_long_names(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|command| command == "find") {
        for arg in &mut args {
            if let Some(name) = arg.to_str().and_then(|a| a.strip_prefix('-'))
                && LONG.contains(&name)
            {
                *arg = format!("--{name}").into();
            }
        }
        args.retain(|arg| arg != "-print");
    }
    args
}

/// A test of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    order: std::cmp::Ordering,
    count: u64,
    unit: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let (order, rest) = match text.as_bytes().first() {
            Some(b'+') => (Greater, &text[1..]),
            Some(b'-') => (Less, &text[1..]),
            _ => (Equal, text),
        };
        let (number, unit) = match rest.char_indices().next_back() {
            Some((at, 'c')) => (&rest[..at], 1),
            Some((at, 'w')) => (&rest[..at], 2),
            Some((at, 'b')) => (&rest[..at], 512),
            Some((at, 'k')) => (&rest[..at], 1 << 10),
            Some((at, 'M')) => (&rest[..at], 1 << 20),
            Some((at, 'G')) => (&rest[..at], 1 << 30),
            _ => (rest, 512),
        };
        let count = number.parse().map_err(|_| format!("{text:?} is no size ([+-]N[cwbkMG])"))?;
        Ok(Size { order, count, unit })
    }
}

impl Size {
    fn holds(&self, bytes: u64) -> bool {
        bytes.div_ceil(self.unit).cmp(&self.count) == self.order
    }
}

/// A test of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Perm {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl FromStr for Perm {
    type Err = String;

    fn from_str(text: &str) -> Result<Perm, String> {
        let (form, digits): (fn(u16) -> Perm, _) = match text.as_bytes().first() {
            Some(b'-') => (Perm::All, &text[1..]),
            Some(b'/') => (Perm::Any, &text[1..]),
            _ => (Perm::Exactly, text),
        };
        let bits = u16::from_str_radix(digits, 8).ok().filter(|b| *b <= 0o7777);
        bits.map(form).ok_or_else(|| format!("{text:?} is no mode ([-/]OCTAL)"))
    }
}

impl Perm {
    fn holds(&self, mode: u16) -> bool {
        let mode = mode & 0o7777;
        match *self {
            Perm::Exactly(bits) => mode == bits,
            Perm::All(bits) => mode & bits == bits,
            Perm::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

impl FindArgs {
    fn holds(&self, entry: &Entry, depth: u32) -> bool {
        let path = &entry.path[..];
        let base = path.strip_suffix(b"/").unwrap_or(path).rsplit(|&b| b == b'/').next().unwrap_or(path);
        let base = if path == b"/" { path } else { base };
        let letter = match format::letter(entry.mode) {
            '-' => 'f',
            other => other,
        };
        depth >= self.mindepth
            && self.name.iter().all(|glob| fnmatch(glob.as_bytes(), base, false))
            && self.iname.iter().all(|glob| fnmatch(glob.as_bytes(), base, true))
            && self.path.iter().all(|glob| fnmatch(glob.as_bytes(), path, false))
            && (self.kinds.is_empty() || self.kinds.contains(&letter))
            && self.size.iter().all(|size| size.holds(entry.size))
            && self.perm.is_none_or(|perm| perm.holds(entry.mode))
            && self.uid.is_none_or(|uid| uid == entry.uid)
            && self.gid.is_none_or(|gid| gid == entry.gid)
            && (!self.empty || letter == 'f' && entry.size == 0)
    }
}

pub fn run(mut args: FindArgs) -> Outcome {
    let mut paths = std::mem::take(&mut args.paths);
    if paths.is_empty() {
        paths.push("/".into());
    }
    if let Some(unknown) = args.kinds.iter().find(|c| !"fdlpsbc".contains(**c)) {
        return Err(format!("-type {unknown}: not one of f, d, l, p, s, b, c").into());
    }
    let mut out = Out::new();
    let mut drive = Drive::open_for(&args.drive, &paths)?;
    let mut code = 0;
    for path in &paths {
        let root = path.as_bytes();
        let target = Target::Tree {
            root: root.to_vec(),
            include: vec![],
            exclude: vec![],
            max_depth: args.maxdepth.unwrap_or(u32::MAX),
        };
        let ask = Ask { target, operation: Operation::List, follow: false };
        let levels = |path: &[u8]| path.split(|&b| b == b'/').filter(|c| !c.is_empty()).count();
        let top = levels(root);
        let good = drive.ask_about(root, &ask, |record| {
            match record {
                Record::Entry(entry) => {
                    let depth = levels(&entry.path).saturating_sub(top) as u32;
                    if args.holds(&entry, depth) {
                        if args.drive.json {
                            out.json(&format::entry_json(&entry.path, &entry))?;
                        } else {
                            out.write_all(&entry.path)?;
                            out.write_all(if args.print0 { b"\0" } else { b"\n" })?;
                        }
                    }
                }
                Record::Failed { path, status } => {
                    code = 1;
                    complain_about(&path, &describe(&status));
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if !good {
            code = 1;
        }
    }
    drive.finish(&mut out)?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_find_has_them() {
        let size = |text: &str| text.parse::<Size>().unwrap();
        assert!(size("1").holds(1) && size("1").holds(512) && !size("1").holds(513));
        assert!(size("+1k").holds(1025) && !size("+1k").holds(1024));
        assert!(size("-1M").holds(0) && !size("-1M").holds(1));
        assert!(size("5c").holds(5));
        assert!(
            "x".parse::<Size>().is_err() && "+".parse::<Size>().is_err() && "5é".parse::<Size>().is_err()
        );
    }

    #[test]
    fn modes_as_find_has_them() {
        assert!("644".parse::<Perm>().unwrap().holds(0o100_644));
        assert!("-4000".parse::<Perm>().unwrap().holds(0o104_755));
        assert!("/22".parse::<Perm>().unwrap().holds(0o100_620));
        assert!("9".parse::<Perm>().is_err());
    }

    #[test]
    fn single_dashes_become_double() {
        let args = ["nearside", "find", "/", "-name", "-x", "-print"].map(OsString::from);
        assert_eq!(with_long_names(args.into_iter()), ["nearside", "find", "/", "--name", "-x"]);
        let args = ["nearside", "grep", "-name"].map(OsString::from);
        assert_eq!(with_long_names(args.into_iter()), ["nearside", "grep", "-name"]);
    }
}
