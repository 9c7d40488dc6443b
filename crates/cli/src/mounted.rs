//! `--mounted`: paths of this host instead of paths of a volume. From the mount that a path lies on follow
//! the drive below it, the partition, and the path within the volume. What the drive says of its paths is
//! said of this host's again ([`Places`]).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nearside_embedded::partition::Wanted;
use nearside_fsrlib::{Globs, Record, Target};

use crate::args::DriveArgs;
use crate::failure::Failure;

/// A line of `/proc/self/mountinfo` (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Major and minor number of the device, as `8:1`.
    device: String,
    /// Which directory of the volume is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

/// Space, tab, newline and backslash stand there as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits =
            after.first_chunk::<3>().filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..b'8').contains(b)));
        match digits {
            Some([a, b, c]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

fn mounts(table: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?.to_owned();
        let root = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        Some(Mount { device, root, point })
    };
    table.lines().filter_map(mount).collect()
}

/// The mount that holds an absolute path without links, and the path within the volume.
/// Of several at one place, the last.
fn place<'a>(mounts: &'a [Mount], path: &Path) -> Option<(&'a Mount, PathBuf)> {
    let holds = |mount: &&Mount| path.starts_with(&mount.point);
    let depth = |mount: &&Mount| mount.point.components().count();
    let mount = mounts.iter().filter(holds).max_by_key(depth)?;
    let within = path.strip_prefix(&mount.point).ok()?;
    let mut path = mount.root.clone();
    path.extend(within.components());
    Some((mount, path))
}

/// The drive of a block device by its numbers, and its partition.
fn drive(device: &str) -> Result<(OsString, Option<u32>), String> {
    let sys = PathBuf::from("/sys/dev/block").join(device);
    let sys = sys.canonicalize().map_err(|_| "it is on no block device".to_owned())?;
    let number = std::fs::read_to_string(sys.join("partition")).ok();
    let partition = number.and_then(|n| n.trim().parse().ok());
    let whole = match partition {
        Some(_) => sys.parent().unwrap_or(&sys),
        None => &sys,
    };
    if let Ok(file) = std::fs::read(whole.join("loop/backing_file")) {
        let file = PathBuf::from(OsString::from_vec(file.strip_suffix(b"\n").unwrap_or(&file).to_vec()));
        return Ok((behind(&file), partition));
    }
    let name = whole.file_name().unwrap_or_default();
    Ok((Path::new("/dev").join(name).into_os_string(), partition))
}

/// The drive of a loop device's file: that which `nearside attach` serves it from (its socket lies beside the
/// mount point), or the file as an image.
fn behind(file: &Path) -> OsString {
    let socket = file.parent().map(|folder| {
        let mut socket = folder.as_os_str().to_owned();
        socket.push(".sock");
        socket
    });
    match socket {
        Some(socket) if file.ends_with("namespace") && Path::new(&socket).exists() => {
            let mut name = OsString::from("unix:");
            name.push(socket);
            name
        }
        _ => file.as_os_str().to_owned(),
    }
}

/// A path as the user named it, and where that is in the volume.
#[derive(Debug, PartialEq, Eq)]
struct MountedPath {
    shown: Vec<u8>,
    volume: Vec<u8>,
}

/// Where the paths of a command line are; none without `--mounted`.
#[derive(Debug, Default)]
pub struct Places(Vec<MountedPath>);

/// What of a path lies below a root; `None`: it does not. An empty root holds what is relative.
fn below<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    if root.is_empty() {
        return (path.first() != Some(&b'/')).then_some(path);
    }
    let end = root.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let rest = path.strip_prefix(&root[..end])?;
    let begin = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
    (rest.is_empty() || begin > 0).then(|| &rest[begin..])
}

fn joined(root: &[u8], rest: &[u8]) -> Vec<u8> {
    match (root, rest) {
        (root, []) => root.to_vec(),
        ([], rest) => rest.to_vec(),
        (root, rest) => join(root, rest),
    }
}

impl Places {
    /// A target with the volume's path in the place of this host's, and what gives that back in records.
    pub fn enter(&self, target: &Target) -> (Target, Option<Back<'_>>) {
        let mut target = target.clone();
        let path = match &mut target {
            Target::Path(path) | Target::Glob(path) | Target::Tree { root: path, .. } => path,
            Target::Volume | Target::Blocks { .. } | Target::Paths(_) => return (target, None),
        };
        let holding = self.0.iter().filter_map(|place| Some((place, below(path, &place.shown)?)));
        let Some((place, rest)) = holding.min_by_key(|(_, rest)| rest.len()) else { return (target, None) };
        *path = joined(&place.volume, rest);
        (target, Some(Back(place)))
    }
}

/// The way back from the volume's paths to this host's.
pub struct Back<'a>(&'a MountedPath);

impl Back<'_> {
    /// Names the file of a record as the user would. Names without a path stay.
    pub fn rename(&self, record: &mut Record<'_>) {
        let path = match record {
            Record::File { path, .. } | Record::Failed { path, .. } | Record::Name { path, .. } => path,
            Record::Entry(entry) => &mut entry.path,
            _ => return,
        };
        if let Some(rest) = below(path, &self.0.volume) {
            *path = joined(&self.0.shown, rest).into();
        }
    }
}

/// A path, or of a pattern the folder before its first name that is one, and where that is without links and
/// dots. A last link stays as it is, as the commands have their own word on it.
fn real(path: &Path, glob: bool) -> (&Path, io::Result<PathBuf>) {
    let here = |folder: &Path| match folder.as_os_str().is_empty() {
        true => Path::new(".").canonicalize(),
        false => folder.canonicalize(),
    };
    let Some(name) = path.file_name() else { return (path, path.canonicalize()) };
    let fixed = |folder: &&Path| !glob || !Globs::is_pattern(folder.as_os_str().as_bytes());
    let folder = path.ancestors().skip(1).find(fixed).unwrap_or(Path::new(""));
    match glob {
        true => (folder, here(folder)),
        false => (path, here(folder).map(|folder| folder.join(name))),
    }
}

/// With `--mounted`: where the host's paths are, and fills in their drive.
pub fn resolve(args: &mut DriveArgs, paths: &[OsString]) -> Result<Places, Failure> {
    if !args.mounted {
        return Ok(Places::default());
    }
    if paths.is_empty() {
        return Err(Failure::Message("--mounted needs a path on a mount".into()));
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| Failure::Message(format!("/proc/self/mountinfo: {e}")))?;
    let mounts = mounts(&table);
    let mut found: Option<(OsString, Option<u32>)> = None;
    let mut places = Vec::new();
    for path in paths {
        let wrong = |why: &str| Failure::Message(format!("{}: {why}", path.to_string_lossy()));
        let (shown, real) = real(Path::new(path), args.glob);
        let real = real.map_err(|e| wrong(&e.to_string()))?;
        let (mount, within) = place(&mounts, &real).ok_or_else(|| wrong("it is on no mount"))?;
        let here = drive(&mount.device).map_err(|why| wrong(&why))?;
        if found.as_ref().is_some_and(|other| *other != here) {
            return Err(wrong("it is on another drive than the paths before it"));
        }
        found = Some(here);
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        places.push(MountedPath { shown: bytes(shown), volume: bytes(&within) });
    }
    if let Some((drive, partition)) = found {
        args.drive = drive;
        args.partition = args.partition.take().or(partition.map(Wanted::Number));
    }
    Ok(Places(places))
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

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 259:3 / /mnt/data rw - ext4 /dev/nvme1n1 rw
31 22 259:3 /logs /srv/my\\040logs rw - ext4 /dev/nvme1n1 rw
32 22 0:40 / /proc rw - proc proc rw
";

    #[test]
    fn paths_on_mounts() {
        let mounts = mounts(TABLE);
        let at = |path: &str| {
            place(&mounts, Path::new(path)).map(|(m, p)| (m.device.as_str(), p.to_str().unwrap().to_owned()))
        };
        assert_eq!(at("/mnt/data/var/log"), Some(("259:3", "/var/log".into())));
        assert_eq!(at("/mnt/data"), Some(("259:3", "/".into())));
        assert_eq!(at("/mnt/database"), Some(("259:1", "/mnt/database".into())));
        assert_eq!(at("/srv/my logs/a"), Some(("259:3", "/logs/a".into())));
        assert_eq!(at("/proc/1"), Some(("0:40", "/1".into())));
        assert!(drive("0:0").is_err());
    }

    #[test]
    fn what_the_drive_says_is_named_as_it_was_asked_for() {
        let places = |pairs: &[(&str, &str)]| {
            let place = |(shown, volume): &(&str, &str)| MountedPath {
                shown: (*shown).into(),
                volume: (*volume).into(),
            };
            Places(pairs.iter().map(place).collect())
        };
        let through = |places: &Places, asked: &str, said: &str| {
            let (target, back) = places.enter(&Target::Path(asked.into()));
            let Target::Path(path) = target else { panic!("{target:?}") };
            let mut record = Record::File { path: said.as_bytes().into(), size: 0 };
            back.unwrap().rename(&mut record);
            let Record::File { path: named, .. } = record else { panic!("{record:?}") };
            (String::from_utf8(path).unwrap(), String::from_utf8(named.into_owned()).unwrap())
        };
        let two = places(&[("/mnt/data/var", "/var"), ("/mnt/data/var/log", "/var/log"), ("/link", "/a/b")]);
        for (asked, volume, said, named) in [
            ("/mnt/data/var", "/var", "/var/x", "/mnt/data/var/x"),
            ("/mnt/data/var/log", "/var/log", "/var/log/x/y", "/mnt/data/var/log/x/y"),
            ("/mnt/data/var/log/z", "/var/log/z", "/var/log/z", "/mnt/data/var/log/z"),
            ("/link", "/a/b", "/a/b/c", "/link/c"),
            // A directory's own entries have names alone; what is elsewhere stays.
            ("/link", "/a/b", "c", "c"),
            ("/link", "/a/b", "/a/bc", "/a/bc"),
        ] {
            assert_eq!(through(&two, asked, said), (volume.to_owned(), named.to_owned()), "{asked} {said}");
        }
        assert!(two.enter(&Target::Path("/mnt/data/variable".into())).1.is_none());
        // The mount point itself, with a slash or without; the current folder; a glob there.
        for (shown, volume, said, named) in [
            ("/mnt/data", "/", "/x", "/mnt/data/x"),
            ("/mnt/data/", "/", "/x/y", "/mnt/data/x/y"),
            ("/", "/", "/x", "/x"),
            (".", "/here", "/here/x", "./x"),
            ("", "/here", "/here/x", "x"),
        ] {
            assert_eq!(
                through(&places(&[(shown, volume)]), shown, said),
                (volume.to_owned(), named.to_owned())
            );
        }
        assert_eq!(
            through(&places(&[("", "/here")]), "*.log", "/here/a.log"),
            ("/here/*.log".into(), "a.log".into())
        );
        assert!(places(&[]).enter(&Target::Path("/x".into())).1.is_none());
    }

    #[test]
    fn a_pattern_is_of_what_lies_below_the_names_before_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("logs/app")).unwrap();
        std::os::unix::fs::symlink("logs", root.join("link")).unwrap();
        let at = |path: &str, glob| {
            let whole = root.join(path);
            let (shown, real) = real(&whole, glob);
            let below = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            (below(shown), real.ok().map(|real| below(&real)))
        };
        let (link, logs) = ("link".to_owned(), "logs".to_owned());
        for pattern in ["link/*.log", "link/*/x.log", "link/**/a[bc]/x", "link/app"] {
            assert_eq!(at(pattern, true), (link.clone(), Some(logs.clone())), "{pattern}");
        }
        assert_eq!(at("link", false), (link.clone(), Some(link)));
        assert_eq!(at("link/*/x", false), ("link/*/x".into(), None));
        assert_eq!(real(Path::new("*.log"), true).0, Path::new(""));
    }

    #[test]
    fn a_loop_devices_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drive").join("namespace");
        assert_eq!(behind(&file), file.as_os_str());
        let socket = folder.path().join("drive.sock");
        std::fs::write(&socket, "").unwrap();
        assert_eq!(behind(&file).to_str().unwrap(), format!("unix:{}", socket.display()));
    }
}
