//! The kernel's paging to a drive (PIEEE'17 III-B; FAST'12 4): what a page miss takes.
//!
//! A process whose memory is a few times what its control group may have touches pages at random. Each touch
//! that the kernel counts as a major fault is a page miss; every page's content is checked. The drive's
//! process stands outside the group and keeps its own memory (`attach --lock-memory`), so that it never waits
//! for a page that only it could bring.

use std::fs::File;
use std::process::{Command, Stdio};

use nearside_clock::{Clock, TscClock};
use nearside_dma::Region;
use nearside_dma::cpu::{self, Faults};
use nearside_dma::file::{Lock, lock};
use nearside_loadgen::Latency;
use nearside_random::{Rng, scatter};

use crate::ending::goes_on;
use crate::program::{checked, named, number_after, said, undoing};
use crate::volume::set;
use crate::wait::Patience;
use crate::{Drive, Failure, Group, in_group};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
const CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// Whoever pages to a drive of ours has this file's lock: the kernel spreads pages over all areas of one
/// priority, and has one page-cluster for all.
const TURN: &str = "/run/nearside-paging.lock";
/// How long another's turn is waited for: longer than a study takes.
const TURN_S: u32 = 3_600;

/// A drive that the kernel pages to; no more with this value.
pub struct Swap<'a> {
    drive: &'a Drive,
    /// The kernel's setting as it was.
    cluster: String,
    /// Let go last.
    _turn: File,
}

/// Waits until no other process of ours pages to a drive.
fn turn() -> Result<File, Failure> {
    let named = |e: std::io::Error| format!("{TURN}: {e}");
    let file = File::options().create(true).truncate(false).write(true).open(TURN).map_err(named)?;
    let mut patience = Patience::seconds(TURN_S);
    while !lock(&file, Lock::Exclusive).map_err(named)? {
        goes_on()?;
        if !patience.wait() {
            return Err(format!("{TURN}: another process has it since {TURN_S} seconds").into());
        }
    }
    Ok(file)
}

impl<'a> Swap<'a> {
    /// Makes the drive a swap area for `bytes` of pages, before all others. `cluster`: the kernel reads 2 to
    /// the power of it pages around a miss (vm.page-cluster; 3 where nobody says otherwise). One at a time on
    /// a machine: another process's is waited for.
    ///
    /// # Errors
    /// A drive that cannot hold them, with which the kernel would end whose they are; what mkswap and swapon
    /// said, or the system.
    pub fn on(drive: &'a Drive, cluster: u32, bytes: u64) -> Result<Swap<'a>, Failure> {
        // The area's first page is its header.
        let room = drive.capacity().saturating_sub(PAGE);
        if bytes > room {
            return Err(
                format!("{bytes} bytes of pages are to be kept, and the drive has {room} for them").into()
            );
        }
        let turn = turn()?;
        let before = std::fs::read_to_string(CLUSTER)?.trim().to_owned();
        let swap = Swap { drive, cluster: before, _turn: turn };
        said(named("mkswap")?.arg(drive.device()))?;
        said(named("swapon")?.args(["--priority", "32767"]).arg(drive.device()))?;
        swap.cluster(cluster)?;
        Ok(swap)
    }

    /// Sets how many pages are read around a miss, as a power of two.
    ///
    /// # Errors
    /// The system's.
    pub fn cluster(&self, cluster: u32) -> Result<(), Failure> {
        Ok(set(CLUSTER, &cluster.to_string())?)
    }

    /// Page misses under that load. `second` is this program with the words that make it call [`pages`].
    ///
    /// # Errors
    /// The system's; a page whose content is not what was written.
    pub fn misses(&self, load: &Load, second: &dyn Fn() -> Command) -> Result<Misses, Failure> {
        in_group(load.memory, |group| self.misses_in(group, load, second))
    }

    fn misses_in(&self, group: &Group, load: &Load, second: &dyn Fn() -> Command) -> Result<Misses, Failure> {
        let mut pages = second();
        let Load { bytes, touches, dirty, in_order, seed, .. } = *load;
        let words = [bytes / PAGE, touches, dirty.into(), in_order.into(), seed].map(|n| n.to_string());
        pages.arg("pages").args(words);
        let before = self.drive.counters()?;
        let mut command = group.command(&pages);
        goes_on()?;
        let output = command.stdin(Stdio::null()).output()?;
        checked(&pages, &output)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let after = self.drive.counters()?.since(before);
        let of = |name: &str| {
            number_after(&text, &format!("{name} ")).ok_or_else(|| format!("pages: no {name} in {text:?}"))
        };
        Ok(Misses {
            count: of("misses")?,
            touches: load.touches as f64,
            touch_us: of("touch")?,
            mean_us: of("mean")?,
            p50_us: of("p50")?,
            p99_us: of("p99")?,
            hit_ns: of("hit")?,
            minor: of("minor")?,
            waits: of("waits")?,
            pages_read: after.read_bytes as f64 / PAGE as f64,
            pages_written: after.written_bytes as f64 / PAGE as f64,
        })
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        if let Ok(mut swapoff) = undoing("swapoff") {
            let _ = swapoff.arg(self.drive.device()).stderr(Stdio::null()).status();
        }
        let _ = set(CLUSTER, &self.cluster);
    }
}

/// What a process does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of memory that its group may have.
    pub memory: u64,
    /// Bytes that it uses.
    pub bytes: u64,
    /// Pages that it touches, once all are filled.
    pub touches: u64,
    /// Whether a touch writes: what is evicted then has to be written out.
    pub dirty: bool,
    /// Whether it touches them one after the other, from the first on, instead of at random.
    pub in_order: bool,
    /// Of the order at random.
    pub seed: u64,
}

/// What the touches came to. A page that came with another's miss (page-cluster) is no miss of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misses {
    /// Touches that waited for the drive.
    pub count: f64,
    /// All touches.
    pub touches: f64,
    /// What a touch took at the mean, with a miss or without, in microseconds.
    pub touch_us: f64,
    /// What a miss took at the mean, in microseconds.
    pub mean_us: f64,
    /// At the median.
    pub p50_us: f64,
    /// 99 of 100 took this or less.
    pub p99_us: f64,
    /// What a touch without a fault took at the mean, in nanoseconds.
    pub hit_ns: f64,
    /// Touches with a fault that waited for no drive: of a page that another's miss had brought.
    pub minor: f64,
    /// Waits for the drive from the first page to the last, filling and the last look at each page included.
    pub waits: f64,
    /// Pages that the drive gave meanwhile.
    pub pages_read: f64,
    /// Pages that it took.
    pub pages_written: f64,
}

/// What the second process does, and says: `COUNT TOUCHES DIRTY IN_ORDER SEED`.
///
/// # Errors
/// What cannot be read of its words; the system's; a page whose content is another.
pub fn pages(words: &[String]) -> Result<String, Failure> {
    let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
    let Some([pages, touches, dirty, in_order, seed]) = numbers.as_deref() else {
        return Err(format!("pages COUNT TOUCHES DIRTY IN_ORDER SEED, not {words:?}").into());
    };
    let first = cpu::thread_faults()?;
    let memory = Memory::filled(*pages)?;
    let mut misses = Latency::new();
    let (mut minor, mut hits, mut hit_ns, mut all_ns) = (0u64, 0u64, 0u64, 0u64);
    let mut rng = Rng(*seed);
    let clock = TscClock::new();
    let mut before = cpu::thread_faults()?;
    for nth in 0..*touches {
        let page = if *in_order == 0 { rng.below(*pages) } else { nth % (*pages).max(1) };
        let began = clock.now();
        let word = memory.touch(page, *dirty != 0);
        let took = clock.now().since(began);
        memory.check(page, word)?;
        all_ns += took;
        let after = cpu::thread_faults()?;
        match after.since(before) {
            Faults { major: 1.., .. } => misses.record(took),
            Faults { minor: 1.., .. } => minor += 1,
            Faults { .. } => (hits, hit_ns) = (hits + 1, hit_ns + took),
        }
        before = after;
    }
    for page in 0..*pages {
        memory.check(page, memory.touch(page, false))?;
    }
    let waits = cpu::thread_faults()?.since(first).major;
    let us = |percent: f64| misses.percentile(percent).ns as f64 / 1e3;
    Ok(format!(
        "misses {}\ntouch {:.4}\nmean {:.3}\np50 {:.3}\np99 {:.3}\nhit {:.1}\nminor {minor}\nwaits {waits}",
        misses.count(),
        all_ns as f64 / 1e3 / (*touches).max(1) as f64,
        misses.mean_ns() / 1e3,
        us(50.0),
        us(99.0),
        hit_ns as f64 / hits.max(1) as f64,
    ))
}

/// Memory whose pages each begin with a word of their own.
struct Memory {
    region: Region,
    pages: u64,
}

impl Memory {
    fn filled(pages: u64) -> Result<Memory, Failure> {
        let bytes =
            pages.checked_mul(PAGE).and_then(|bytes| usize::try_from(bytes).ok()).ok_or("too many pages")?;
        let memory = Memory { region: Region::anonymous(bytes)?, pages };
        for page in 0..pages {
            // All of a page, so that none can be taken for one of zeros.
            for word in 0..PAGE / 8 {
                let at = (page * PAGE + word * 8) as usize;
                memory.region.word64(at).store(scatter(page), std::sync::atomic::Ordering::Relaxed);
            }
        }
        Ok(memory)
    }

    /// Reads a page's word, or writes it as well.
    fn touch(&self, page: u64, write: bool) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        // A word within the page, not always its first.
        let word = self.region.word64((page * PAGE + scatter(page) % (PAGE / 8) * 8) as usize);
        if write { word.swap(scatter(page), Relaxed) } else { word.load(Relaxed) }
    }

    fn check(&self, page: u64, word: u64) -> Result<(), Failure> {
        if word == scatter(page) {
            return Ok(());
        }
        let pages = self.pages;
        Err(format!("page {page} of {pages} holds {word:#x}, and {:#x} was written", scatter(page)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_process_counts_its_touches_and_knows_its_pages() {
        for in_order in ["0", "1"] {
            let words = ["64", "1000", "1", in_order, "7"].map(str::to_owned);
            assert!(pages(&words).unwrap().contains("minor 0"));
            assert!(pages(&words[..4]).is_err());
        }
        let memory = Memory::filled(3).unwrap();
        memory.check(2, memory.touch(2, true)).unwrap();
        let another = memory.check(1, memory.touch(2, false)).unwrap_err().to_string();
        assert!(another.starts_with("page 1 of 3 holds"), "{another}");
    }
}
