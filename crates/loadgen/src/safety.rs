//! Whether a target may be written: a run that would destroy something refuses unless it is told to.
//!
//! A target is **in use** where it, one of its partitions, or the disk that it is a partition of is mounted (/proc/self/mountinfo, by
//! device number and by name), is swap (/proc/swaps) or has a holder (/sys: device mapper, RAID, LVM, bcache); or where a loop device
//! lies over the file.
//!
//! A target is **not empty** where any byte is not zero in its first MiB, its last MiB, or 256 probes of 4 KiB spread evenly over the rest.
//! The first and the last MiB hold every known signature: partition tables (MBR, GPT and its copy), ext, XFS, F2FS, Btrfs (at 64 KiB),
//! LVM, LUKS, swap, RAID (0.9 and 1.0 lie near the end), ZFS (labels at both ends). A file of no bytes is empty.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nearside_dma::file::size;

/// Why a target is not written.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Somebody uses it.
    #[error("{path} is in use: {by}; writing to it would destroy that")]
    InUse {
        /// The target.
        path: PathBuf,
        /// By whom.
        by: String,
    },
    /// It holds something.
    #[error(
        "{path} is not empty (a byte at {offset} is not zero); writing to it would destroy what it holds"
    )]
    NotEmpty {
        /// The target.
        path: PathBuf,
        /// The first such byte that was found.
        offset: u64,
    },
    /// It could not be asked.
    #[error("{path}: {source}")]
    Io {
        /// The target.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

const END: u64 = 1 << 20;
const PROBES: u64 = 256;
const PROBE: u64 = 4096;

/// Whether `path` may be written. `destroy`: its content may go; a block device that is in use is then still refused when it is opened
/// (O_EXCL).
///
/// # Errors
/// Why not.
pub fn may_write(path: &Path, destroy: bool) -> Result<(), Refusal> {
    if destroy {
        return Ok(());
    }
    let fail = |source| Refusal::Io { path: path.to_owned(), source };
    // Opening anything else might wait.
    let kind = fs::metadata(path).map_err(fail)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(fail(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a regular file nor a block device",
        )));
    }
    if let Some(by) = user(path).map_err(fail)? {
        return Err(Refusal::InUse { path: path.to_owned(), by });
    }
    match content(&File::open(path).map_err(fail)?).map_err(fail)? {
        Some(offset) => Err(Refusal::NotEmpty { path: path.to_owned(), offset }),
        None => Ok(()),
    }
}

/// The first byte found that is not zero.
fn content(file: &File) -> io::Result<Option<u64>> {
    let size = size(file)?;
    let mut buffer = vec![0; END as usize];
    let mut look = |offset: u64, len: u64| -> io::Result<Option<u64>> {
        let part = &mut buffer[..len.min(size.saturating_sub(offset)) as usize];
        file.read_exact_at(part, offset)?;
        Ok(part.iter().position(|byte| *byte != 0).map(|at| offset + at as u64))
    };
    let ends = [(0, END), (size.saturating_sub(END), END)];
    let probes = (1..PROBES).map(|n| ((u128::from(size) * u128::from(n) / u128::from(PROBES)) as u64, PROBE));
    for (offset, len) in ends.into_iter().chain(probes) {
        if let Some(found) = look(offset, len)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Who uses it, in words.
fn user(path: &Path) -> io::Result<Option<String>> {
    let path = path.canonicalize()?;
    let metadata = fs::metadata(&path)?;
    if !metadata.file_type().is_block_device() {
        return Ok(
            loop_device(&path).or_else(|| swap(&|m| (m.dev(), m.ino()) == (metadata.dev(), metadata.ino())))
        );
    }
    let number = metadata.rdev();
    let sys = PathBuf::from(format!("/sys/dev/block/{}", words(number)));
    let mut family = vec![words(number)];
    let parts = fs::read_dir(&sys).into_iter().flatten().flatten().map(|entry| entry.path());
    let parts: Vec<PathBuf> = parts.filter(|part| part.join("partition").exists()).collect();
    if sys.join("partition").exists()
        && let Some(disk) = sys.canonicalize()?.parent()
    {
        family.extend(fs::read_to_string(disk.join("dev")).map(|text| text.trim().to_owned()));
    }
    for part in &parts {
        family.extend(fs::read_to_string(part.join("dev")).map(|text| text.trim().to_owned()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    if let Some(place) = mounted(&mounts, &family, &path.to_string_lossy()) {
        return Ok(Some(format!("mounted at {place}")));
    }
    for held in std::iter::once(&sys).chain(&parts) {
        if let Some(Ok(holder)) = fs::read_dir(held.join("holders")).ok().and_then(|mut list| list.next()) {
            return Ok(Some(format!("held by {}", holder.file_name().to_string_lossy())));
        }
    }
    Ok(swap(&|m| m.file_type().is_block_device() && family.contains(&words(m.rdev()))))
}

/// "major:minor", as the kernel writes them (makedev(3) backwards).
fn words(number: u64) -> String {
    let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
    let minor = (number & 0xff) | (number >> 12 & !0xff);
    format!("{major}:{}", minor & 0xffff_ffff)
}

/// Where one of these devices, or a device of this name, is mounted (proc(5): the third field is the number, the fifth the place, the
/// second after the dash the source, which alone shows Btrfs's devices).
fn mounted(mountinfo: &str, family: &[String], name: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let dash = fields.iter().position(|field| *field == "-")?;
        let by_number = family.iter().any(|number| fields.get(2) == Some(&number.as_str()));
        let by_name = fields.get(dash + 2) == Some(&name);
        (by_number || by_name).then(|| fields.get(4).copied().unwrap_or("?").replace("\\040", " "))
    })
}

fn swap(same: &dyn Fn(&fs::Metadata) -> bool) -> Option<String> {
    let list = fs::read_to_string("/proc/swaps").ok()?;
    let paths = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let found = paths.filter_map(|path| fs::metadata(path).ok()).any(|metadata| same(&metadata));
    found.then(|| "swap".to_owned())
}

fn loop_device(file: &Path) -> Option<String> {
    fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        (Path::new(backing.trim_end_matches('\n')) == file)
            .then(|| format!("/dev/{} lies over it", entry.file_name().to_string_lossy()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_something_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target");
        let file = File::create(&path).unwrap();
        assert!(may_write(&path, false).is_ok(), "no bytes");
        let size = 64 << 20;
        file.set_len(size).unwrap();
        assert!(may_write(&path, false).is_ok());
        // A superblock, Btrfs's, a copy of a partition table, something at a probe.
        for offset in [1080, 65_600, size - 512, size / 2 + 17] {
            file.write_all_at(&[1], offset).unwrap();
            assert!(
                matches!(may_write(&path, false), Err(Refusal::NotEmpty { offset: o, .. }) if o == offset)
            );
            assert!(may_write(&path, true).is_ok());
            file.write_all_at(&[0], offset).unwrap();
        }
        assert!(may_write(&path, false).is_ok());
        assert!(matches!(may_write(&folder.path().join("none"), false), Err(Refusal::Io { .. })));
        assert!(may_write(folder.path(), false).is_err(), "a folder");
    }

    #[test]
    fn mounts_are_found_by_number_and_by_name() {
        let info = "22 1 8:17 / /mnt/a\\040b rw - ext4 /dev/sdb1 rw\n23 1 0:44 / /data rw shared:1 - btrfs /dev/sdc rw\n";
        let family = |numbers: &[&str]| numbers.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(mounted(info, &family(&["8:16", "8:17"]), "/dev/sdb").as_deref(), Some("/mnt/a b"));
        assert_eq!(mounted(info, &family(&["8:32"]), "/dev/sdc").as_deref(), Some("/data"));
        assert_eq!(mounted(info, &family(&["8:1"]), "/dev/sda1"), None);
        assert_eq!(words(0x0810), "8:16");
        assert_eq!(words(259 << 8 | 3), "259:3");
    }

    #[test]
    fn the_disk_that_this_runs_on_is_in_use() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let source = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let dash = fields.iter().position(|field| *field == "-")?;
            fields
                .get(dash + 2)
                .copied()
                .filter(|source| source.starts_with("/dev/") && Path::new(source).exists())
        });
        match source.map(|source| may_write(Path::new(source), false)) {
            Some(Err(Refusal::InUse { by, .. })) => assert!(by.starts_with("mounted at"), "{by}"),
            Some(other) => panic!("{source:?}: {other:?}"),
            None => eprintln!("LEFT OUT: the_disk_that_this_runs_on_is_in_use: no block device is mounted"),
        }
    }
}
