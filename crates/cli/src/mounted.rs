//! `--mounted`: paths of this host instead of paths of a volume. From the mount that a path lies on follow the drive below it, the
//! partition, and the path within the volume.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

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

/// The mount that holds an absolute path without links, and the path within the volume. Of several at one place, the last.
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

/// The drive of a loop device's file: that which `nearside attach` serves it from (its socket lies beside the mount point), or the
/// file as an image.
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

/// With `--mounted`: turns the host's paths into the volume's, and fills in their drive.
pub fn resolve(args: &mut DriveArgs, paths: &mut [OsString]) -> Result<(), Failure> {
    if !args.mounted {
        return Ok(());
    }
    if paths.is_empty() {
        return Err(Failure::Message("--mounted needs a path on a mount".into()));
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| Failure::Message(format!("/proc/self/mountinfo: {e}")))?;
    let mounts = mounts(&table);
    let mut found: Option<(OsString, Option<u32>)> = None;
    for path in paths {
        let wrong = |why: &str| Failure::Message(format!("{}: {why}", path.to_string_lossy()));
        // A last link stays as it is, as the commands have their own word on it.
        let whole = Path::new(path);
        let folder = whole.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let real = match whole.file_name() {
            Some(name) => folder.canonicalize().map(|folder| folder.join(name)),
            None => whole.canonicalize(),
        };
        let real = real.map_err(|e| wrong(&e.to_string()))?;
        let (mount, within) = place(&mounts, &real).ok_or_else(|| wrong("it is on no mount"))?;
        let here = drive(&mount.device).map_err(|why| wrong(&why))?;
        if found.as_ref().is_some_and(|other| *other != here) {
            return Err(wrong("it is on another drive than the paths before it"));
        }
        found = Some(here);
        *path = within.into_os_string();
    }
    if let Some((drive, partition)) = found {
        args.drive = drive;
        args.partition = args.partition.or(partition);
    }
    Ok(())
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
    fn a_loop_devices_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drive").join("namespace");
        assert_eq!(behind(&file), file.as_os_str());
        let socket = folder.path().join("drive.sock");
        std::fs::write(&socket, "").unwrap();
        assert_eq!(behind(&file).to_str().unwrap(), format!("unix:{}", socket.display()));
    }
}
