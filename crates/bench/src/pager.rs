//! Memory that is larger than its budget, over a drive and without the kernel's paging: what a miss takes,
//! beside the drive's own read of a page and what the paper's way may add to it.
//!
//! The application and its pager are two threads, which have all cores, and are woken on CPUs that do not
//! sleep; beside that, what sleep adds.

use nearside_clock::{Clock, TscClock};
use nearside_device::Config as DriveConfig;
use nearside_driver::{Command, DriverConfig, Initiator, InitiatorConfig, Policy};
use nearside_embedded::{AnyStore, Loopback, Runner};
use nearside_instrument::Failure;
use nearside_loadgen::record::Figure;
use nearside_pager::{Config, Paged};
use nearside_random::Random;
use nearside_store::{FileOptions, Store};

use crate::figures::{Sink, median};

const PAGE: usize = 4096;
const STORES: [(&str, &str); 2] = [("Optane P4800X", "model:optane-p4800x:256MiB"), ("DRAM", "dram:256MiB")];
/// What a miss may add to the drive's own time: two changes of threads, a page's copy and its mapping.
const MAY_ADD_US: f64 = 8.0;

/// What pages took to come, by what had to be done.
struct Times {
    /// The drive's own reads of a page.
    own: Vec<u64>,
    /// Pages that were never written: no read.
    zeros: Vec<u64>,
    /// Misses while pages are written back for each.
    dirty: Vec<u64>,
    /// Misses while others are only taken away.
    clean: Vec<u64>,
}

/// Misses at random in four times the budget.
pub fn pager(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (rounds, count) = if fast { (3, 5_000) } else { (7, 20_000) };
    for (name, store) in STORES {
        eprintln!("paged memory: {name} ...");
        let mut figures = vec![Vec::new(); 6];
        for round in 0..rounds {
            let asleep = times(store, count, round, false)?;
            let Times { own, zeros, dirty, mut clean } = times(store, count, round, true)?;
            clean.sort_unstable();
            let p99 = clean.get(clean.len() * 99 / 100).copied().unwrap_or(0) as f64;
            let allowed = median(own) + MAY_ADD_US * 1e3;
            let values = [median(clean), p99, median(dirty), median(zeros), median(asleep.clean), allowed];
            figures.iter_mut().zip(values).for_each(|(of, value)| of.push(value / 1e3));
        }
        let figure = |what: &str, at: usize| Figure::of(what, "us", &figures[at]);
        let allowed = figure("the drive's own read of a page, and 8 us", 5);
        let named = |what: &str, at: usize| figure(&format!("paged memory, {name}: {what}"), at);
        sink(named("a miss, median", 0).beside(&allowed));
        sink(named("a miss, p99", 1).beside(&allowed));
        sink(named("a miss while pages are written back, median", 2).beside(&allowed));
        sink(named("a miss where CPUs sleep, median", 4).beside(&allowed));
        sink(named("a page that was never written, median", 3));
    }
    Ok(())
}

/// Of one drive, in nanoseconds, while CPUs are kept awake or not.
fn times(store: &str, count: usize, seed: u64, awake: bool) -> Result<Times, Failure> {
    let store = AnyStore::open(store, FileOptions::serve())?;
    let (mut random, clock) = (Random::new(seed), TscClock::new());
    let (mut io, room) = drive(store)?;
    let pages = usize::try_from(room)? / PAGE;
    let mut buffer = Some(io.buffer(PAGE)?);
    // Written first: a model's blocks that were never written are read fast.
    for page in 0..pages as u64 {
        let done = io.execute(&Command::write(1, page * 8, 8), buffer.take()).map_err(|e| e.to_string())?;
        buffer = done.buffer;
    }
    let mut own = Vec::with_capacity(count);
    for _ in 0..count {
        let (lba, from) = (random.below(pages as u64) * 8, clock.now());
        let done = io.execute(&Command::read(1, lba, 8), buffer.take()).map_err(|e| e.to_string())?;
        own.push(clock.now().since(from));
        buffer = done.buffer;
    }
    drop(buffer);
    let config = Config { budget: pages / 4, batch: 64, awake, ..Config::default() };
    let memory = Paged::here(pages * PAGE, io, room, config)?;
    let region = memory.region().clone();
    let touch = |page: usize| {
        let (from, mut byte) = (clock.now(), [0]);
        region.read(page * PAGE, &mut byte);
        clock.now().since(from)
    };
    let zeros = (0..config.budget / 2).map(touch).collect();
    (0..pages).for_each(|page| region.write(page * PAGE, &[1]));
    let mut misses = |count: usize| -> Vec<u64> {
        // A page that is there answers at once.
        let all = std::iter::repeat_with(|| touch(random.below(pages as u64) as usize));
        all.filter(|took| *took > 1_000).take(count).collect()
    };
    // Once as many have come as fit, no page is left that was written.
    let dirty = misses(config.budget);
    let clean = misses(count);
    memory.end()?;
    Ok(Times { own, zeros, dirty, clean })
}

/// A drive of this thread over a store, and its bytes.
fn drive(store: AnyStore) -> Result<(Initiator<Runner<AnyStore>, TscClock>, u64), Failure> {
    let (clock, room) = (TscClock::new(), store.capacity());
    let mut drive = Loopback::inline(store, (), DriveConfig::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    Ok((Initiator::new(&driver, config, clock, drive.peer, None)?, room))
}
