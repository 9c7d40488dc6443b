//! The peers: this machine's kernel on a loop mount of the same image, and ripgrep over it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::volume::tool;

/// A loop mount that ends with this value. Needs root.
pub struct LoopMount {
    image: PathBuf,
    at: tempfile::TempDir,
    options: &'static str,
}

/// What locating a path took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Located {
    /// The time, in nanoseconds.
    pub ns: f64,
    /// Reads that the loop device completed meanwhile.
    pub reads: u64,
}

impl LoopMount {
    /// Mounts an image, to read it.
    ///
    /// # Errors
    /// The system's, or what `mount` says: without root there is none.
    pub fn new(image: &Path) -> io::Result<LoopMount> {
        LoopMount::with(image, "ro,loop,noatime")
    }

    /// Mounts an image with these options of mount(8).
    ///
    /// # Errors
    /// As [`LoopMount::new`].
    pub fn with(image: &Path, options: &'static str) -> io::Result<LoopMount> {
        let mount = LoopMount { image: image.to_owned(), at: tempfile::tempdir()?, options };
        mount.mount()?;
        Ok(mount)
    }

    fn mount(&self) -> io::Result<()> {
        said(Command::new("mount").args(["-o", self.options]).arg(&self.image).arg(self.at.path()))
    }

    /// Mounts what `make` makes of the image meanwhile; nothing may be open in it.
    ///
    /// # Errors
    /// As [`LoopMount::new`], and those of `make`.
    pub fn anew(&self, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        said(Command::new("umount").arg(self.at.path()))?;
        make(&self.image)?;
        self.mount()
    }

    /// Where a path of the volume is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.at.path().join(path.trim_start_matches('/'))
    }

    /// What the kernel takes until it has located a path. Warm: it located it once before. Cold: the volume
    /// is mounted anew and what mounting has read is dropped, so that names, inodes and extents are read
    /// from the loop device again; what the superblock holds in memory stays. Dropping the caches alone was
    /// not always cold: a file that had been opened often before could stay known, and FIEMAP then took as
    /// long as warm.
    ///
    /// # Errors
    /// The system's; and a cold call without a read of the device, or a warm one with some.
    pub fn locate(&self, path: &str, by: Locating, warm: bool) -> io::Result<Located> {
        let path = self.path(path);
        let once = || -> io::Result<()> {
            match by {
                Locating::Stat => drop(std::hint::black_box(std::fs::symlink_metadata(&path)?)),
                Locating::Fiemap => {
                    std::hint::black_box(nearside_dma::file::extents(&std::fs::File::open(&path)?, 64)?);
                }
            }
            Ok(())
        };
        match warm {
            true => once()?,
            false => {
                said(Command::new("umount").arg(self.at.path()))?;
                self.mount()?;
                std::fs::write("/proc/sys/vm/drop_caches", "3")?;
            }
        }
        let before = self.reads()?;
        let start = Instant::now();
        once()?;
        let ns = start.elapsed().as_nanos() as f64;
        let reads = self.reads()? - before;
        if warm != (reads == 0) {
            let state = if warm { "warm" } else { "cold" };
            return Err(io::Error::other(format!("{}: {state}, with {reads} reads", path.display())));
        }
        Ok(Located { ns, reads })
    }

    /// Reads that the loop device has completed (Documentation/admin-guide/iostats.rst, the first field).
    fn reads(&self) -> io::Result<u64> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let at = self.at.path().canonicalize()?;
        let device = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let device = words.nth(2)?;
            (Path::new(words.nth(1)?) == at).then_some(device)
        });
        let gone = || io::Error::other(format!("{}: not mounted any more", at.display()));
        let stat = std::fs::read_to_string(format!("/sys/dev/block/{}/stat", device.ok_or_else(gone)?))?;
        let reads = stat.split_whitespace().next().and_then(|first| first.parse().ok());
        reads.ok_or_else(|| io::Error::other(format!("no count of reads in {stat:?}")))
    }
}

/// Runs a command; where it fails, what it said.
fn said(command: &mut Command) -> io::Result<()> {
    let out = command.output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&out.stderr).trim().to_owned()))
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
///
/// # Errors
/// The system's, of a path.
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

/// How long `rg -c` with one thread takes over a file or tree, and how many lines it counts.
/// `None` without ripgrep.
///
/// # Errors
/// That it cannot be started.
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
///
/// # Errors
/// That there is no `true` to start.
pub fn start_of_a_process() -> io::Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        Command::new("true").status()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}
