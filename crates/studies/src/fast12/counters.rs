//! The processor's event counters (perf_event_open(2)):
//! what the calling thread does in user mode, and nobody else.
//!
//! A counter that cannot be had says why, and so does one that counts nothing where it must
//! ([`Counter::open`] tries it): virtual machines show counters that read 0.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware};
use perf_event::{Builder, CountAndTime};

use super::second::{ring, steps};

/// What a counter counts. Which cache the kernel means by some of them is the
/// processor's affair (man perf-list): with AMD's Zen references are what the first
/// level asks of the second, misses what the second has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Instructions that retired.
    Instructions,
    /// Loads that the first-level data cache has not.
    FirstLevelMisses,
    /// References to a cache behind the first level.
    CacheReferences,
    /// Those that it has not.
    CacheMisses,
    /// Loads whose translation the data TLB has not.
    TlbMisses,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 5] = [
        Event::Instructions,
        Event::FirstLevelMisses,
        Event::CacheReferences,
        Event::CacheMisses,
        Event::TlbMisses,
    ];

    /// Perf's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Event::Instructions => "instructions",
            Event::FirstLevelMisses => "L1-dcache-load-misses",
            Event::CacheReferences => "cache-references",
            Event::CacheMisses => "cache-misses",
            Event::TlbMisses => "dTLB-load-misses",
        }
    }

    /// The event of that name.
    pub fn named(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name)
    }

    fn builder(self) -> Builder<'static> {
        let misses = |which| Cache { which, operation: CacheOp::READ, result: CacheResult::MISS };
        match self {
            Event::Instructions => Builder::new(Hardware::INSTRUCTIONS),
            Event::CacheReferences => Builder::new(Hardware::CACHE_REFERENCES),
            Event::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
            Event::FirstLevelMisses => Builder::new(misses(CacheId::L1D)),
            Event::TlbMisses => Builder::new(misses(CacheId::DTLB)),
        }
    }
}

/// A counter of the thread that opened it; the kernel's own work and other processes are not in it.
#[derive(Debug)]
pub struct Counter(perf_event::Counter);

impl Counter {
    /// One that counts, tried on a walk that must move it.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn open(event: Event) -> Result<Counter, String> {
        let mut counter = Counter(event.builder().build().map_err(|e| refused(&e))?);
        let (count, ()) = counter.count(try_out)?;
        if count == 0.0 {
            return Err(format!("reads 0 over a walk through {} MiB of new memory", TRIED >> 20));
        }
        Ok(counter)
    }

    /// What happened during `work`. Where the kernel gave the counter a part of the time, it is scaled up.
    ///
    /// # Errors
    /// The system's, in words.
    pub fn count<T>(&mut self, work: impl FnOnce() -> T) -> Result<(f64, T), String> {
        let said = |e: std::io::Error| e.to_string();
        let before = self.0.read_count_and_time().map_err(said)?;
        self.0.enable().map_err(said)?;
        let value = work();
        self.0.disable().map_err(said)?;
        let after = self.0.read_count_and_time().map_err(said)?;
        Ok((scaled(&before, &after)?, value))
    }
}

fn scaled(before: &CountAndTime, after: &CountAndTime) -> Result<f64, String> {
    let (enabled, running) =
        (after.time_enabled - before.time_enabled, after.time_running - before.time_running);
    match running {
        0 => Err("the kernel gave it no time on the processor".to_owned()),
        _ => Ok((after.count - before.count) as f64 * enabled as f64 / running as f64),
    }
}

/// Why the kernel refused.
fn refused(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!("may not be opened (kernel.perf_event_paranoid is {})", level.trim())
        }
        std::io::ErrorKind::NotFound | std::io::ErrorKind::Unsupported => {
            "this machine's kernel has no such counter".to_owned()
        }
        _ => format!("cannot be opened: {error}"),
    }
}

/// Bytes of the walk that a counter is tried on: more than a second-level cache and the data TLB reach.
const TRIED: usize = 16 << 20;

fn try_out() {
    let lines = ring(TRIED);
    std::hint::black_box(steps(&lines, 0, lines.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_the_kernel_gave_to_others_is_made_up_for() {
        let at = |count, time_enabled, time_running| CountAndTime { count, time_enabled, time_running };
        assert_eq!(scaled(&at(10, 100, 50), &at(40, 400, 150)), Ok(90.0));
        assert_eq!(scaled(&at(0, 0, 0), &at(7, 10, 10)), Ok(7.0));
        assert!(scaled(&at(5, 100, 50), &at(5, 400, 50)).unwrap_err().contains("no time"));
    }

    #[test]
    fn a_refusal_is_told_in_words() {
        let said = |errno| refused(&std::io::Error::from_raw_os_error(errno));
        let [eperm, enoent, eacces, emfile, eopnotsupp] = [1, 2, 13, 24, 95];
        for errno in [eperm, eacces] {
            assert!(said(errno).contains("perf_event_paranoid is"), "{}", said(errno));
        }
        for errno in [enoent, eopnotsupp] {
            assert!(said(errno).contains("no such counter"), "{}", said(errno));
        }
        assert!(said(emfile).starts_with("cannot be opened: "), "{}", said(emfile));
    }

    #[test]
    fn events_are_found_by_perfs_names() {
        for event in Event::ALL {
            assert_eq!(Event::named(event.name()), Some(event));
        }
        assert_eq!(Event::named("cycles"), None);
    }
}
