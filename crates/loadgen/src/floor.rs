//! Floors: what the machine itself costs, measured in the same run as the figures that stand beside them.
//!
//! Each function measures one thing several times and gives a [`Figure`]. They take the cores to use; they
//! start threads of their own and leave the caller's thread where it was. What a machine cannot show (two
//! cores on a machine of one) is `None`.

use crate::record::Figure;
use nearside_clock::{Clock, TscClock};
use nearside_dma::{EventFd, IoBuffer, Region, cpu, tsc};
use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Times that each floor is measured.
    pub runs: usize,
    /// Bytes for the bandwidths and the random places: beyond the last cache.
    pub memory: usize,
    /// Operations in one run of the small things.
    pub operations: u32,
}

impl Effort {
    /// About five seconds and 2 GiB of memory for all.
    pub const FULL: Self = Self { runs: 7, memory: 1 << 30, operations: 200_000 };
    /// About one second and 512 MiB.
    pub const FAST: Self = Self { runs: 3, memory: 256 << 20, operations: 50_000 };
    /// Enough to see that it works.
    pub const TEST: Self = Self { runs: 2, memory: 4 << 20, operations: 500 };
}

/// A wake-up that takes longer than this is lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// All floors, in the order of their names below. `core` does the work, `other` (if there is one) answers.
///
/// # Errors
/// Where memory or threads cannot be had.
pub fn all(effort: Effort, core: usize, other: Option<usize>) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if let Some(other) = other {
        figures.extend(ping_pong(effort, core, other)?);
        figures.extend(wake_up(effort, core, other)?);
    }
    figures.extend(wake_up(effort, core, core)?);
    let alone = on_core(core, move || -> io::Result<Vec<Figure>> {
        let mut alone = vec![pause(effort), clock_read(effort), counter_read(effort)];
        alone.extend(copies(effort)?);
        alone.extend(bandwidths(effort));
        Ok(alone)
    })?;
    figures.extend(alone?);
    Ok(figures)
}

/// Runs `work` on a thread that stays on `core`.
fn on_core<T: Send + 'static>(core: usize, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let thread = std::thread::Builder::new().name("floor".to_owned()).spawn(move || {
        cpu::pin_to_core(core)?;
        Ok(work())
    })?;
    thread.join().map_err(|_| io::Error::other("a measuring thread panicked"))?
}

/// Nanoseconds that `work` takes.
fn timed(clock: &TscClock, work: impl FnOnce()) -> f64 {
    let start = clock.now();
    work();
    clock.now().since(start) as f64
}

fn each(effort: Effort, name: &str, mut one: impl FnMut()) -> Figure {
    let clock = TscClock::new();
    let runs: Vec<f64> = (0..effort.runs)
        .map(|_| timed(&clock, || (0..effort.operations).for_each(|_| one())) / f64::from(effort.operations))
        .collect();
    Figure::of(name, "ns", &runs)
}

/// One pause of the CPU.
#[must_use]
pub fn pause(effort: Effort) -> Figure {
    each(effort, "pause", spin_loop)
}

/// One reading of the clock.
#[must_use]
pub fn clock_read(effort: Effort) -> Figure {
    let clock = TscClock::new();
    each(effort, "clock read", || _ = black_box(clock.now()))
}

/// One reading of the time-stamp counter.
#[must_use]
pub fn counter_read(effort: Effort) -> Figure {
    each(effort, "counter read", || _ = black_box(tsc::read()))
}

/// Offsets of the two words: each on a line of its own, and not on neighbouring lines,
/// which some CPUs fetch in pairs.
const PING: usize = 0;
const PONG: usize = 1024;

/// A cache line to another core and back: one writes, the other sees and answers, both spinning with a pause.
///
/// # Errors
/// Where memory or threads cannot be had.
pub fn ping_pong(effort: Effort, core: usize, other: usize) -> io::Result<Option<Figure>> {
    if core == other {
        return Ok(None);
    }
    let region = Arc::new(Region::anonymous(4096)?);
    let rounds = u64::from(effort.operations) * effort.runs as u64;
    let answering = Arc::clone(&region);
    let answer = std::thread::Builder::new().name("floor-pong".to_owned()).spawn(move || {
        let pinned = cpu::pin_to_core(other);
        let (ping, pong) = (answering.word64(PING), answering.word64(PONG));
        for round in 1..=rounds {
            // Acquire and Release as on a doorbell and a completion entry.
            loop {
                match ping.load(Ordering::Acquire) {
                    seen if seen == round => break,
                    u64::MAX => return pinned,
                    _ => spin_loop(),
                }
            }
            pong.store(round, Ordering::Release);
        }
        pinned
    })?;
    let asking = Arc::clone(&region);
    let runs = on_core(core, move || {
        let clock = TscClock::new();
        let (ping, pong) = (asking.word64(PING), asking.word64(PONG));
        let mut round = 0;
        let mut runs = Vec::with_capacity(effort.runs);
        for _ in 0..effort.runs {
            let ns = timed(&clock, || {
                for _ in 0..effort.operations {
                    round += 1;
                    ping.store(round, Ordering::Release);
                    while pong.load(Ordering::Acquire) != round {
                        spin_loop();
                    }
                }
            });
            runs.push(ns / f64::from(effort.operations));
        }
        runs
    });
    if runs.is_err() {
        // The other side must not wait for ever.
        region.word64(PING).store(u64::MAX, Ordering::Release);
    }
    answer.join().map_err(|_| io::Error::other("a measuring thread panicked"))??;
    Ok(Some(Figure::of("cache-line round trip", "ns", &runs?)))
}

/// An eventfd that wakes a thread that sleeps on it: from before the write until the sleeper reads the clock.
///
/// # Errors
/// Where memory, threads or eventfds cannot be had, or a wake-up is lost.
pub fn wake_up(effort: Effort, core: usize, other: usize) -> io::Result<Option<Figure>> {
    let rounds = (effort.operations / 100).max(10) as usize;
    let (wake, done) = (Arc::new(EventFd::new()?), Arc::new(EventFd::new()?));
    let sent = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let (wake, done, sent) = (Arc::clone(&wake), Arc::clone(&done), Arc::clone(&sent));
        std::thread::Builder::new().name("floor-sleeper".to_owned()).spawn(move || {
            let clock = TscClock::new();
            let pinned = cpu::pin_to_core(other);
            let mut times = Vec::with_capacity(rounds);
            for _ in 0..rounds * effort.runs {
                if wake.wait(Some(PATIENCE)) == 0 {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "a wake-up was lost"));
                }
                let now = clock.now().0;
                times.push(now.saturating_sub(sent.load(Ordering::Acquire)) as f64);
                done.signal();
            }
            pinned.map(|()| times)
        })?
    };
    let asked = on_core(core, move || {
        let clock = TscClock::new();
        for _ in 0..rounds * effort.runs {
            sent.store(clock.now().0, Ordering::Release);
            wake.signal();
            // Blocks: on the same core the sleeper needs it.
            if done.wait(Some(PATIENCE)) == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a wake-up was lost"));
            }
        }
        Ok(())
    });
    let times = sleeper.join().map_err(|_| io::Error::other("a measuring thread panicked"))??;
    asked??;
    // A run's value is its median.
    let runs: Vec<f64> = times.chunks(rounds).map(|run| Figure::of("", "", run).value).collect();
    let name = if core == other { "eventfd wake-up, same core" } else { "eventfd wake-up, other core" };
    Ok(Some(Figure::of(name, "ns", &runs)))
}

/// What a thread pays to wake another and to be woken, on one core, by eventfds: raising one that nobody
/// waits on; waiting for one that is raised already; and what a wake-up with the switch to the woken thread
/// takes beside these two, as half a round trip between two threads less both calls. In this order.
///
/// # Errors
/// Where threads or eventfds cannot be had, or a wake-up is lost.
pub fn switch(effort: Effort, core: usize) -> io::Result<[Figure; 3]> {
    let (ping, pong) = (Arc::new(EventFd::new()?), Arc::new(EventFd::new()?));
    let rounds = (effort.operations / 100).max(10);
    let turns = u64::from(rounds) * effort.runs as u64;
    let answer = {
        let (ping, pong) = (Arc::clone(&ping), Arc::clone(&pong));
        std::thread::Builder::new().name("floor-switch".to_owned()).spawn(move || {
            let pinned = cpu::pin_to_core(core);
            for _ in 0..turns {
                if ping.wait(Some(PATIENCE)) == 0 {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "a wake-up was lost"));
                }
                pong.signal();
            }
            pinned
        })?
    };
    let asked = on_core(core, move || {
        let raised = EventFd::new()?;
        let clock = TscClock::new();
        // Medians throughout: others may take the core meanwhile.
        let median = |work: &mut dyn FnMut()| {
            let times: Vec<f64> = (0..rounds).map(|_| timed(&clock, &mut *work)).collect();
            Figure::of("", "", &times).value
        };
        let (mut signals, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..effort.runs {
            signals.push(median(&mut || raised.signal()));
            let both = median(&mut || {
                raised.signal();
                black_box(raised.wait(None));
            });
            waits.push((both - signals.last().copied().unwrap_or(0.0)).max(0.0));
        }
        let signal = Figure::of("eventfd signal", "ns", &signals);
        let wait = Figure::of("eventfd wait, raised", "ns", &waits);
        let mut runs = Vec::with_capacity(effort.runs);
        for _ in 0..effort.runs {
            let mut trips = Vec::with_capacity(rounds as usize);
            for _ in 0..rounds {
                let begin = clock.now();
                ping.signal();
                if pong.wait(Some(PATIENCE)) == 0 {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "a wake-up was lost"));
                }
                trips.push(clock.now().since(begin) as f64);
            }
            let trip = Figure::of("", "", &trips).value;
            runs.push((trip / 2.0 - signal.value - wait.value).max(0.0));
        }
        Ok([signal, wait, Figure::of("wake-up and switch, same core", "ns", &runs)])
    });
    answer.join().map_err(|_| io::Error::other("a measuring thread panicked"))??;
    asked?
}

/// Copies of 4 KiB and 512 B from random places to a hot buffer: one after another as fast as they go, and
/// each only when the one before is done.
///
/// # Errors
/// Where memory cannot be had.
pub fn copies(effort: Effort) -> io::Result<Vec<Figure>> {
    let clock = TscClock::new();
    let region = Region::anonymous(effort.memory)?;
    // As a drive's store has them.
    region.prefer_huge_pages();
    // Touched, or every page reads as the one page of zeros.
    region.fill(0, effort.memory, 1);
    let mut hot = IoBuffer::new(4096)?;
    let mut figures = Vec::new();
    for (size, name) in [(4096, "copy of 4 KiB from memory"), (512, "copy of 512 B from memory")] {
        let places = (effort.memory / size) as u64;
        for dependent in [false, true] {
            let mut seed = 88_172_645_463_325_252u64;
            let mut run = || {
                for _ in 0..effort.operations {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let offset = (seed % places) as usize * size;
                    let Some(into) = hot.get_mut(..size) else { return };
                    region.read(offset, into);
                    if dependent {
                        // The next place is known only when the last byte is here (every byte is 1).
                        seed ^= u64::from(black_box(into).last().copied().unwrap_or(0) ^ 1);
                    }
                }
            };
            let runs: Vec<f64> =
                (0..effort.runs).map(|_| timed(&clock, &mut run) / f64::from(effort.operations)).collect();
            let how = if dependent { ", one by one" } else { "" };
            figures.push(Figure::of(&format!("{name}{how}"), "ns", &runs));
        }
    }
    Ok(figures)
}

/// Reading and copying memory beyond the caches, in GB/s of bytes read: a scan, memcpy from memory to memory,
/// and pieces of 128 KiB copied to a hot buffer (how near-data work gets its bytes).
#[must_use]
pub fn bandwidths(effort: Effort) -> Vec<Figure> {
    let clock = TscClock::new();
    let from = vec![1u8; effort.memory];
    let mut to = vec![2u8; effort.memory];
    let mut hot = vec![3u8; 128 << 10];
    let measure = |name: &str, work: &mut dyn FnMut()| {
        let runs: Vec<f64> =
            (0..effort.runs).map(|_| effort.memory as f64 / timed(&clock, &mut *work)).collect();
        Figure::of(name, "GB/s", &runs)
    };
    vec![
        // The byte is not there: all are looked at, by the widest loads that the CPU has.
        measure("read bandwidth", &mut || _ = black_box(memchr::memchr(0, black_box(&from)))),
        measure("memcpy", &mut || black_box(&mut to).copy_from_slice(black_box(&from))),
        measure("copy to a hot 128 KiB", &mut || {
            for piece in black_box(&from).chunks(hot.len()) {
                if let Some(into) = hot.get_mut(..piece.len()) {
                    into.copy_from_slice(piece);
                }
                black_box(&mut hot);
            }
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_floor_is_measured_and_positive() {
        let cores = cpu::allowed_cores().unwrap();
        let (core, other) = (cores[0], cores.get(1).copied());
        let figures = all(Effort::TEST, core, other).unwrap();
        assert_eq!(figures.len(), if other.is_some() { 13 } else { 11 });
        for figure in &figures {
            assert!(figure.value > 0.0 && figure.runs == Effort::TEST.runs, "{figure:?}");
        }
        let switch = switch(Effort::TEST, core).unwrap();
        assert!(switch.iter().all(|figure| figure.value > 0.0), "{switch:?}");
        assert!(ping_pong(Effort::TEST, core, core).unwrap().is_none());
        // The caller's thread is where it was.
        assert_eq!(cpu::allowed_cores().unwrap(), cores);
    }
}
