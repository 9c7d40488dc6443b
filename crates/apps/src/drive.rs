//! A drive in a process of its own, and the loop device over its namespace.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nearside_dma::system::{terminate, unmount};
use tempfile::TempDir;

use crate::Failure;
use crate::ending::{UnderWay, apart, goes_on};
use crate::wait::Patience;

/// An attached drive below a loop device; it ends with this value.
pub struct Drive {
    child: Child,
    place: TempDir,
    device: Option<PathBuf>,
    capacity: u64,
    _under_way: UnderWay,
}

/// What the kernel counted of a block device (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads that are done.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Milliseconds that reads took, from their beginning in the block layer, together.
    pub read_ms: u64,
    /// Writes that are done.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Milliseconds that writes took, together.
    pub write_ms: u64,
}

impl Counters {
    /// What came since.
    #[must_use]
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            read_ms: self.read_ms.saturating_sub(before.read_ms),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            write_ms: self.write_ms.saturating_sub(before.write_ms),
        }
    }

    /// From the words of a `stat` file of sysfs.
    fn of(text: &str) -> Option<Counters> {
        let words: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, ..] = words[..] else {
            return None;
        };
        let (read_bytes, written_bytes) =
            (read_sectors.saturating_mul(512), write_sectors.saturating_mul(512));
        Some(Counters { reads, read_bytes, read_ms, writes, written_bytes, write_ms })
    }
}

impl Drive {
    /// Attaches a store by the `nearside` program at `program`, with more of its options in `options`, below
    /// a loop device that passes requests on without a cache of its own.
    ///
    /// # Errors
    /// What `nearside attach` said where it did not come up.
    pub fn attach(program: &Path, store: &str, options: &[&str]) -> Result<Drive, Failure> {
        let place = TempDir::with_prefix("nearside-app-")?;
        let at = place.path().join("drive");
        std::fs::create_dir(&at)?;
        let log = std::fs::File::create(place.path().join("log"))?;
        goes_on()?;
        let under_way = UnderWay::begin();
        let mut command = apart(Command::new(program));
        command.args(["attach", "--loop", "--store", store]).args(options).arg(&at);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines);
        let announced = lines.next().and_then(Result::ok).unwrap_or_default();
        // "DIR/namespace: N bytes", the socket, the loop device.
        let bytes = announced.rsplit_once(": ").and_then(|(_, words)| words.strip_suffix(" bytes"));
        let capacity: Option<u64> = bytes.and_then(|bytes| bytes.parse().ok());
        let is_announced = capacity.is_some();
        let (device, capacity) =
            (lines.nth(1).and_then(Result::ok).map(PathBuf::from), capacity.unwrap_or(0));
        let drive = Drive { child, place, device, capacity, _under_way: under_way };
        if !is_announced || drive.device.is_none() {
            let words = std::fs::read_to_string(drive.place.path().join("log")).unwrap_or_default();
            return Err(format!("{store} was not attached: {}", words.trim()).into());
        }
        Ok(drive)
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        self.device.as_deref().unwrap_or(Path::new(""))
    }

    /// What the drive holds, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Where near-data commands are asked: the words for `-d`.
    pub fn near_data(&self) -> String {
        format!("unix:{}", self.place.path().join("drive.sock").display())
    }

    /// The drive's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// What the kernel has counted of the block device so far.
    ///
    /// # Errors
    /// The system's: the device has gone.
    pub fn counters(&self) -> Result<Counters, Failure> {
        let name = self.device().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = format!("/sys/block/{name}/stat");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        Counters::of(&text).ok_or_else(|| format!("{path}: {text:?}").into())
    }

    /// Takes the drive away at once, as a host sees one that is pulled (SIGKILL). What lies on it gets
    /// errors.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // It takes away what it has made, the loop device first; where that is in use, only when told again.
        for _ in 0..2 {
            terminate(&mut self.child);
            let mut patience = Patience::seconds(10);
            while let Ok(None) = self.child.try_wait() {
                if !patience.wait() {
                    break;
                }
            }
        }
        // Something holds it for good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // One that was killed leaves its mount behind.
        let _ = unmount(&self.place.path().join("drive"), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_kernels_words() {
        let text = "     100        0      800       20      30        5      480       12        0       32       32 0 0 0 0 7 1\n";
        let counters = Counters::of(text).unwrap();
        assert_eq!((counters.reads, counters.read_bytes, counters.read_ms), (100, 409_600, 20));
        assert_eq!((counters.writes, counters.written_bytes, counters.write_ms), (30, 245_760, 12));
        assert_eq!(counters.since(counters), Counters::default());
        assert_eq!(Counters::of("1 2 3"), None);
    }
}
