//! Memory that is larger than its budget, over a drive and without the kernel's paging: what a miss takes,
//! beside the drive's own read of a page and what the paper's way may add to it.
//!
//! The application and its pager are two threads, which have all cores.

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

/// Misses at random in four times the budget.
pub fn pager(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (rounds, count) = if fast { (3, 5_000) } else { (7, 20_000) };
    for (name, store) in STORES {
        eprintln!("paged memory: {name} ...");
        let (mut misses, mut allowed) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let (own, miss) = medians_us(store, count, round)?;
            misses.push(miss);
            allowed.push(own + MAY_ADD_US);
        }
        let miss = Figure::of(&format!("paged memory, {name}: a miss, median"), "us", &misses);
        sink(miss.beside(&Figure::of("the drive's own read of a page, and 8 us", "us", &allowed)));
    }
    Ok(())
}

/// The medians of the drive's own reads of a page and of misses, in microseconds.
fn medians_us(store: &str, count: usize, seed: u64) -> Result<(f64, f64), Failure> {
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
    let config = Config { budget: pages / 4, batch: 64, ..Config::default() };
    let memory = Paged::here(pages * PAGE, io, room, config)?;
    let region = memory.region().clone();
    (0..pages).for_each(|page| region.write(page * PAGE, &[1]));
    let mut misses = Vec::with_capacity(count);
    for _ in 0..count {
        let (at, mut byte) = (random.below(pages as u64) as usize * PAGE, [0]);
        let from = clock.now();
        region.read(at, &mut byte);
        let took = clock.now().since(from);
        // A page that is there answers at once.
        if took > 1_000 {
            misses.push(took);
        }
    }
    memory.end()?;
    Ok((median(own) / 1e3, median(misses) / 1e3))
}

/// A drive of this thread over a store, and its bytes.
fn drive(store: AnyStore) -> Result<(Initiator<Runner<AnyStore>, TscClock>, u64), Failure> {
    let (clock, room) = (TscClock::new(), store.capacity());
    let mut drive = Loopback::inline(store, (), DriveConfig::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    Ok((Initiator::new(&driver, config, clock, drive.peer, None)?, room))
}
