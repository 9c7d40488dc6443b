//! The peers: this machine's kernel on a loop mount of the same image, and ripgrep over it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::volume::tool;

/// A read-only loop mount that ends with this value. Needs root.
pub struct LoopMount {
    at: tempfile::TempDir,
}

impl LoopMount {
    /// Mounts an image.
    pub fn new(image: &Path) -> io::Result<LoopMount> {
        let at = tempfile::tempdir()?;
        let out = Command::new("mount").args(["-o", "ro,loop,noatime"]).arg(image).arg(at.path()).output()?;
        if !out.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).trim().to_owned()));
        }
        Ok(LoopMount { at })
    }

    /// Where a path of the volume is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.at.path().join(path.trim_start_matches('/'))
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // A mount that is still busy for a moment is detached and goes when its last user does.
        let done = Command::new("umount").arg(self.at.path()).stderr(Stdio::null()).status();
        if !done.is_ok_and(|s| s.success()) {
            let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
        }
    }
}

/// Time per stat of these paths, in nanoseconds, all of them stat once before.
pub fn warm_stat_ns(paths: &[PathBuf]) -> io::Result<f64> {
    for path in paths {
        std::fs::symlink_metadata(path)?;
    }
    let start = Instant::now();
    for path in paths {
        std::hint::black_box(std::fs::symlink_metadata(path)?);
    }
    Ok(start.elapsed().as_nanos() as f64 / paths.len() as f64)
}

/// How the kernel locates a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locating {
    /// `stat`: the inode.
    Stat,
    /// `open` and FIEMAP: the inode and its extents, as an existing near-data library asks for them.
    Fiemap,
}

/// Time per path until the kernel has located it, in nanoseconds, each asked once. Warm:
/// all of them asked once before. Cold: the kernel's caches dropped before (needs root),
/// so that it reads the mount's blocks again.
pub fn locate_ns(paths: &[PathBuf], by: Locating, warm: bool) -> io::Result<f64> {
    let each = || -> io::Result<()> {
        for path in paths {
            match by {
                Locating::Stat => drop(std::hint::black_box(std::fs::symlink_metadata(path)?)),
                Locating::Fiemap => {
                    std::hint::black_box(nearside_dma::file::extents(&std::fs::File::open(path)?, 64)?);
                }
            }
        }
        Ok(())
    };
    match warm {
        true => each()?,
        false => std::fs::write("/proc/sys/vm/drop_caches", "3")?,
    }
    let start = Instant::now();
    each()?;
    Ok(start.elapsed().as_nanos() as f64 / paths.len().max(1) as f64)
}

/// How long `rg -c` with one thread takes over a file or tree, and how many lines it counts.
/// `None` without ripgrep.
pub fn ripgrep(pattern: &str, at: &Path) -> io::Result<Option<(Duration, u64)>> {
    let Some(rg) = tool("rg") else { return Ok(None) };
    let start = Instant::now();
    let out = Command::new(rg)
        .args([
            "--no-config",
            "-a",
            "--no-ignore",
            "--hidden",
            "--no-unicode",
            "-j1",
            "--no-mmap",
            "-c",
            "--no-filename",
            "-F",
        ])
        .arg(pattern)
        .arg(at)
        .stderr(Stdio::inherit())
        .output()?;
    let took = start.elapsed();
    let counts = String::from_utf8_lossy(&out.stdout);
    Ok(Some((took, counts.lines().filter_map(|l| l.parse::<u64>().ok()).sum())))
}

/// How long starting a process takes that does nothing else: what is taken off a short run of another tool.
pub fn start_of_a_process() -> io::Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        Command::new("true").status()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}
