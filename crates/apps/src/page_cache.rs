//! The kernel's page cache over a drive, with its read-ahead or without (FAST'12 4): what reading a file's
//! pages takes that are not there yet.
//!
//! A file on a mounted volume is read a page at a time, by read(2) or by a mapping, in order or at random,
//! each time from a page cache that has forgotten it. Every page's content is checked.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use nearside_clock::{Clock, TscClock};
use nearside_dma::Region;
use nearside_loadgen::Latency;
use nearside_random::{Rng, scatter};

use crate::swap::PAGE;
use crate::volume::{drop_caches, set};
use crate::{Drive, Failure, Volume};

/// A file whose pages each begin with a word of their own, on a volume of a drive. The kernel's read-ahead
/// for that drive is as it was again once this goes.
pub struct Cached<'a> {
    drive: &'a Drive,
    path: PathBuf,
    pages: u64,
    /// The kernel's setting, and how it was.
    setting: String,
    before: String,
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Pages that are read.
    pub count: u64,
    /// By a mapping; else by read(2).
    pub mapped: bool,
    /// One page after the other from the first on, not at random.
    pub in_order: bool,
    /// KiB that the kernel may read ahead (queue/read_ahead_kb): 128 where nobody says otherwise.
    pub ahead_kib: u32,
    /// Of the order at random.
    pub seed: u64,
}

/// What reads came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Came {
    /// What reading a page took at the mean, whether it was there or not, in microseconds.
    pub mean_us: f64,
    /// 99 of 100 took this or less.
    pub p99_us: f64,
    /// Pages that the drive gave for each that was read.
    pub pages_given: f64,
}

impl<'a> Cached<'a> {
    /// Writes the file.
    ///
    /// # Errors
    /// The system's.
    pub fn write(drive: &'a Drive, volume: &Volume, pages: u64) -> Result<Cached<'a>, Failure> {
        let path = volume.path("pages");
        let file = File::create(&path)?;
        for first in (0..pages).step_by(256) {
            let piece: Vec<u8> = (first..pages.min(first + 256)).flat_map(page).collect();
            file.write_all_at(&piece, first * PAGE).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        file.sync_all()?;
        let device = drive.device().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let setting = format!("/sys/block/{device}/queue/read_ahead_kb");
        let before = std::fs::read_to_string(&setting).map_err(|e| format!("{setting}: {e}"))?;
        Ok(Cached { drive, path, pages, setting, before: before.trim().to_owned() })
    }

    /// Reads pages of the file, of which the page cache has none at the beginning.
    ///
    /// # Errors
    /// The system's; a page whose content is not what was written.
    pub fn read(&self, reads: Reads) -> Result<Came, Failure> {
        set(&self.setting, &reads.ahead_kib.to_string())?;
        drop_caches()?;
        // Opened behind the setting: the kernel takes it over for each open file.
        let file = File::open(&self.path)?;
        let mapping =
            if reads.mapped { Some(Region::view(&file, (self.pages * PAGE) as usize)?) } else { None };
        let before = self.drive.counters()?;
        let mut times = Latency::new();
        let (clock, mut rng) = (TscClock::new(), Rng(reads.seed));
        let mut buffer = vec![0; PAGE as usize];
        for nth in 0..reads.count {
            let nr = if reads.in_order { nth % self.pages } else { rng.below(self.pages) };
            let began = clock.now();
            let word = match &mapping {
                Some(mapping) => mapping.word64((nr * PAGE) as usize).load(Ordering::Relaxed),
                None => {
                    file.read_exact_at(&mut buffer, nr * PAGE)?;
                    buffer.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
                }
            };
            times.record(clock.now().since(began));
            if word != scatter(nr) {
                return Err(format!("page {nr} holds {word:#x}, and {:#x} was written", scatter(nr)).into());
            }
        }
        let after = self.drive.counters()?.since(before);
        Ok(Came {
            mean_us: times.mean_ns() / 1e3,
            p99_us: times.percentile(99.0).ns as f64 / 1e3,
            pages_given: after.read_bytes as f64 / (PAGE * reads.count.max(1)) as f64,
        })
    }
}

impl Drop for Cached<'_> {
    fn drop(&mut self) {
        let _ = set(&self.setting, &self.before);
    }
}

/// A page's bytes.
fn page(nr: u64) -> Vec<u8> {
    scatter(nr).to_ne_bytes().repeat(PAGE as usize / 8)
}
