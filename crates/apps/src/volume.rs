//! A file system on a drive, mounted, and as full as it is to be.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nearside_random::Rng;
use tempfile::TempDir;

use crate::program::{named, said, undoing};
use crate::{Drive, Failure};

/// Which file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As RocksDB's figures of PIEEE'17 have it.
    Xfs,
    /// One that the drive's firmware understands.
    Ext4,
}

impl Kind {
    /// The program that makes one.
    pub fn maker(self) -> &'static str {
        match self {
            Kind::Xfs => "mkfs.xfs",
            Kind::Ext4 => "mkfs.ext4",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Kind::Xfs => &["-q", "-f"],
            // Nothing is left to be written later, beside what is measured.
            Kind::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        }
    }
}

/// A mounted file system; it is unmounted with this value. It must go before its drive.
pub struct Volume {
    at: TempDir,
}

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

impl Volume {
    /// Makes a file system over the whole drive and mounts it, with TRIM on.
    ///
    /// # Errors
    /// What mkfs or mount said.
    pub fn make(drive: &Drive, kind: Kind) -> Result<Volume, Failure> {
        said(named(kind.maker())?.args(kind.options()).arg(drive.device()))?;
        Volume::mount(drive)
    }

    /// Mounts the file system that is there.
    ///
    /// # Errors
    /// What mount said.
    pub fn mount(drive: &Drive) -> Result<Volume, Failure> {
        let at = TempDir::with_prefix("nearside-volume-")?;
        said(named("mount")?.args(["-o", "noatime,discard"]).arg(drive.device()).arg(at.path()))?;
        Ok(Volume { at })
    }

    /// Where a path of the volume is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.at.path().join(path.trim_start_matches('/'))
    }

    /// Writes a file that fills `part` of the drive, with bytes that no drive could make smaller.
    ///
    /// # Errors
    /// The system's.
    pub fn fill(&self, drive: &Drive, part: f64) -> Result<(), Failure> {
        let bytes = (drive.capacity() as f64 * part) as u64;
        let path = self.path("ballast");
        let mut file = std::fs::File::create(&path)?;
        let mut rng = Rng(1);
        let mut left = bytes;
        while left > 0 {
            let piece = rng.bytes(PIECE.min(left as usize));
            file.write_all(&piece).map_err(|e| format!("{}: {e}", path.display()))?;
            left -= piece.len() as u64;
        }
        file.sync_all()?;
        drop_caches()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let unmount = |words: &[&str]| {
            let umount = undoing("umount")
                .map(|mut u| u.args(words).arg(self.at.path()).stderr(Stdio::null()).status());
            umount.is_ok_and(|done| done.is_ok_and(|status| status.success()))
        };
        if !unmount(&[]) {
            let _ = unmount(&["--lazy"]);
        }
    }
}

/// Lets the kernel forget what it holds of files.
///
/// # Errors
/// The system's: without root.
pub(crate) fn drop_caches() -> Result<(), Failure> {
    Ok(set("/proc/sys/vm/drop_caches", "1")?)
}

/// Writes a setting of the kernel's.
pub(crate) fn set(path: impl AsRef<Path>, value: &str) -> std::io::Result<()> {
    let path = path.as_ref();
    let named = |e: std::io::Error| std::io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    std::fs::write(path, value).map_err(named)
}
