//! A pager in a process of its own, and what a miss costs.
//!
//!     cargo run --release -p nearside-pager --example pager -- serve pager.sock model:optane-p4800x:1GiB
//!     cargo run --release -p nearside-pager --example pager -- miss model:optane-p4800x:256MiB
//!
//! `serve` gives each application that connects ([`Paged::elsewhere`]) the drive, one after the other. `miss`
//! reads pages at random from four times the budget, and shows a miss's time at the median beside that of the
//! drive's own read of a page, in the same run.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use nearside_clock::{Clock, TscClock};
use nearside_device::Config as DriveConfig;
use nearside_driver::{Command, DriverConfig, Initiator, InitiatorConfig, Policy};
use nearside_embedded::{AnyStore, Loopback, Runner};
use nearside_pager::{Config, Paged, accept};
use nearside_random::Random;
use nearside_store::{FileOptions, Store};

type Failure = Box<dyn std::error::Error>;

const PAGE: usize = 4096;

/// A drive of this thread over a store, and its bytes.
fn drive(store: AnyStore) -> Result<(Initiator<Runner<AnyStore>, TscClock>, u64), Failure> {
    let (clock, room) = (TscClock::new(), store.capacity());
    let mut drive = Loopback::inline(store, (), DriveConfig::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    Ok((Initiator::new(&driver, config, clock, drive.peer, None)?, room))
}

fn serve(socket: &str, store: &AnyStore) -> Result<(), Failure> {
    let listener = UnixListener::bind(socket)?;
    println!("{socket}: {} bytes", store.capacity());
    for stream in listener.incoming() {
        let stream = stream?;
        // Who connects says at once what for.
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let (io, room) = drive(store.clone())?;
        match accept(&stream, io, room, Config { budget: usize::MAX, ..Config::default() }) {
            Ok(counts) => println!("{counts:?}"),
            Err(e) => eprintln!("{e}"),
        }
    }
    Ok(())
}

fn percentile(times: &mut [u64], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100] as f64 / 1e3
}

fn miss(store: &AnyStore) -> Result<(), Failure> {
    const COUNT: usize = 20_000;
    let (mut io, room) = drive(store.clone())?;
    let pages = (room as usize / PAGE).min(65_536);
    let (mut random, clock) = (Random::new(1), TscClock::new());
    let config = Config { budget: pages / 4, batch: 64, ..Config::default() };
    // Written first: a model's blocks that were never written are read fast.
    let mut buffer = Some(io.buffer(PAGE)?);
    let mut own = Vec::with_capacity(COUNT);
    for page in 0..pages as u64 {
        let done = io.execute(&Command::write(1, page * 8, 8), buffer.take()).map_err(|e| e.to_string())?;
        buffer = done.buffer;
    }
    for _ in 0..COUNT {
        let (lba, from) = (random.below(pages as u64) * 8, clock.now());
        let done = io.execute(&Command::read(1, lba, 8), buffer.take()).map_err(|e| e.to_string())?;
        own.push(clock.now().since(from));
        buffer = done.buffer;
    }
    drop(buffer);
    let memory = Paged::here(pages * PAGE, io, room, config)?;
    let region = memory.region().clone();
    (0..pages).for_each(|page| region.write(page * PAGE, &[1]));
    let mut misses = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let at = random.below(pages as u64) as usize * PAGE;
        // Those that are there answer at once: below what any drive takes.
        let (from, mut byte) = (clock.now(), [0]);
        region.read(at, &mut byte);
        let took = clock.now().since(from);
        if took > 1_000 {
            misses.push(took);
        }
    }
    println!("{:?}", memory.end()?.unwrap_or_default());
    for (name, times) in [("drive's own read", &mut own), ("miss", &mut misses)] {
        let count = times.len();
        let [p50, p99] = [50, 99].map(|p| percentile(times, p));
        println!("{name:17} {count:6} times, p50 {p50:7.1} us, p99 {p99:7.1} us");
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let open = |word| AnyStore::open(word, FileOptions::serve());
    match words[..] {
        ["serve", socket, store] => serve(socket, &open(store)?),
        ["miss", store] => miss(&open(store)?),
        _ => Err("pager serve SOCKET STORE | pager miss STORE".into()),
    }
}
