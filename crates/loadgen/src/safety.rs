//! Whether a target may be written: a run that would destroy something refuses unless it is told to.
//!
//! A target is **in use** where this machine has it mounted or otherwise in use ([`nearside_dma::in_use`]).
//!
//! A target is **not empty** where any byte is not zero in its first MiB, its last MiB, or 256 probes of 4
//! KiB spread evenly over the rest. The first and the last MiB hold every known signature: partition tables
//! (MBR, GPT and its copy), ext, XFS, F2FS, Btrfs (at 64 KiB), LVM, LUKS, swap, RAID (0.9 and 1.0 lie near
//! the end), ZFS (labels at both ends). A file of no bytes is empty.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use nearside_dma::file::size;
use nearside_dma::in_use;

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

/// Whether `path` may be written. `destroy`: its content may go;
/// a block device that is in use is then still refused when it is opened (O_EXCL).
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
    if let Some(user) = in_use::user(path).map_err(fail)? {
        return Err(Refusal::InUse { path: path.to_owned(), by: user.by });
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
            Some(Err(Refusal::InUse { by, .. })) => assert!(by.contains("mounted at"), "{by}"),
            Some(other) => panic!("{source:?}: {other:?}"),
            None => eprintln!("LEFT OUT: the_disk_that_this_runs_on_is_in_use: no block device is mounted"),
        }
    }
}
