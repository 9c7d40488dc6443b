//! A memory of four times its budget: every byte is what was written last, whatever the drive does, or the
//! page cannot be had.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::TscClock;
use nearside_device::Config as DriveConfig;
use nearside_dma::Region;
use nearside_driver::{DriverConfig, Initiator, InitiatorConfig, Policy};
use nearside_embedded::{Loopback, Runner};
use nearside_pager::{Config, Counts, Paged, accept};
use nearside_random::Random;
use nearside_store::{Delay, Dram, Fault, Faulty, Kinds, Modelled, Rule, Store};

const PAGE: usize = 4096;
const PAGES: usize = 256;
const BUDGET: usize = PAGES / 4;
const BYTES: usize = PAGES * PAGE;

/// A drive that runs on the thread of whoever uses it.
fn drive<S: Store>(store: S) -> Initiator<Runner<S>, TscClock> {
    let clock = TscClock::new();
    let mut drive = Loopback::inline(store, (), DriveConfig::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    Initiator::new(&driver, config, clock, drive.peer, None).unwrap()
}

fn config() -> Config {
    Config { budget: BUDGET, batch: 16, ..Config::default() }
}

/// Leaves a test out where this user may have no userfaultfd, or the kernel lacks what is needed.
fn paged<S: Store>(store: S) -> Option<Paged> {
    match Paged::here(BYTES, drive(store), BYTES as u64, config()) {
        Ok(paged) => Some(paged),
        Err(e) => {
            assert!(e.to_string().contains("userfaultfd"), "{e}");
            eprintln!("LEFT OUT: {e}");
            None
        }
    }
}

/// A word of each page, by its number.
fn stamp(region: &Region, page: usize, value: u64) {
    region.write(page * PAGE + page % 500 * 8, &value.to_le_bytes());
}

fn stamped(region: &Region, page: usize) -> u64 {
    let mut word = [0; 8];
    region.read(page * PAGE + page % 500 * 8, &mut word);
    u64::from_le_bytes(word)
}

/// Bytes of the memory that are there.
fn there(region: &Region) -> u64 {
    let file = std::fs::File::from(region.fd().unwrap().try_clone_to_owned().unwrap());
    file.metadata().unwrap().blocks() * 512
}

/// Each thread has a part of every page, so that they meet at all of them.
fn hammer(region: &Region, threads: usize, rounds: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let part = PAGE / threads / 8 * 8;
                let mut random = Random::new(thread as u64 + 1);
                let mut known = vec![0u64; PAGES];
                let mut word = [0; 8];
                for round in 0..rounds {
                    let page = random.below(PAGES as u64) as usize;
                    let at = page * PAGE + thread * part;
                    if random.below(3) == 0 {
                        known[page] = round as u64 + 1;
                        region.write(at, &known[page].to_le_bytes());
                        region.write(at + part - 8, &known[page].to_le_bytes());
                    }
                    for at in [at, at + part - 8] {
                        region.read(at, &mut word);
                        assert_eq!(u64::from_le_bytes(word), known[page], "page {page}, round {round}");
                    }
                }
                for (page, value) in known.iter().enumerate() {
                    region.read(page * PAGE + thread * part, &mut word);
                    assert_eq!(u64::from_le_bytes(word), *value, "page {page} at the end");
                }
            });
        }
    });
}

#[test]
fn every_byte_is_what_was_written_last() {
    let slow = Delay { stall_every: 9, stall_ns: 90_000, ..Delay::units(4, 9_000) };
    let Some(memory) = paged(Modelled::new(Dram::new(BYTES as u64, 512).unwrap(), slow.medium())) else {
        return;
    };
    hammer(memory.region(), 3, 4000);
    // What is being read when others leave is there as well.
    assert!(there(memory.region()) <= ((BUDGET + 1) * PAGE) as u64, "{}", there(memory.region()));
    let counts = memory.end().unwrap().unwrap();
    let Counts { zeros, read, written, dropped, poisoned, stuck } = counts;
    assert!(read > 1000 && written > 500 && dropped > 0 && zeros >= PAGES as u64, "{counts:?}");
    assert_eq!((poisoned, stuck), (0, 0));
}

#[test]
fn awake_or_refused() {
    let with = |awake| Config { awake, ..config() };
    let begin =
        |config| Paged::here(BYTES, drive(Dram::new(BYTES as u64, 512).unwrap()), BYTES as u64, config);
    if begin(with(false)).is_err() {
        eprintln!("LEFT OUT: no userfaultfd");
        return;
    }
    match begin(with(true)) {
        Ok(memory) => hammer(memory.region(), 2, 200),
        Err(e) => assert!(e.to_string().starts_with("/dev/cpu_dma_latency: "), "{e}"),
    }
}

#[test]
fn system_calls_are_served() {
    let Some(memory) = paged(Dram::new(BYTES as u64, 512).unwrap()) else { return };
    if !memory.serves_system_calls() {
        eprintln!("LEFT OUT: only faults of this program's own are told");
        return;
    }
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i / 5 + i / PAGE) as u8).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    // One call writes to four times as much as may be there.
    memory.region().read_from(file.as_file(), 0, 0, BYTES).unwrap();
    let mut all = vec![0; BYTES];
    memory.region().read(0, &mut all);
    assert!(all == bytes);
}

/// Writes all pages, of which most leave; then the drive fails.
fn with_a_failing_drive(rule: Rule) -> Option<Paged> {
    let store = Faulty::new(Dram::new(BYTES as u64, 512).unwrap(), 1, []);
    let plan = store.plan().clone();
    let memory = paged(store)?;
    (0..PAGES).for_each(|page| stamp(memory.region(), page, page as u64 + 1));
    plan.lock().unwrap().add(rule);
    Some(memory)
}

fn empty_file() -> std::fs::File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE as u64).unwrap();
    file
}

#[test]
fn a_page_that_cannot_be_read_is_nobodys() {
    let Some(memory) = with_a_failing_drive(Rule::new(Kinds::Reads, Fault::Error)) else { return };
    if !memory.serves_system_calls() {
        eprintln!("LEFT OUT: only faults of this program's own are told");
        return;
    }
    // A system call says so; a load would end this process (see below).
    for page in (0..BUDGET).chain(0..2) {
        let refused = memory.region().read_from(&empty_file(), 0, page * PAGE, 8).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(14), "EFAULT: {refused}");
    }
    assert!(there(memory.region()) <= ((BUDGET + 1) * PAGE) as u64, "nothing of them stays");
    // What came last is there.
    assert_eq!(stamped(memory.region(), PAGES - 1), PAGES as u64);
    let counts = memory.end().unwrap().unwrap();
    assert_eq!(counts.poisoned, BUDGET as u64);
}

#[test]
fn pages_that_cannot_be_written_stay() {
    let Some(memory) = with_a_failing_drive(Rule::new(Kinds::Mutations, Fault::Error)) else { return };
    for round in 1..3 {
        for page in 0..PAGES {
            assert_eq!(stamped(memory.region(), page), (page + 1) as u64 * round);
            stamp(memory.region(), page, (page + 1) as u64 * (round + 1));
        }
    }
    let counts = memory.end().unwrap().unwrap();
    assert!(counts.stuck > 0 && counts.poisoned == 0, "{counts:?}");
}

const PART: &str = "NEARSIDE_PAGER_TEST";

/// This program again, as something else.
fn again(part: &str, with: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "parts_that_are_processes", "--nocapture"]).env(PART, part).env("WITH", with);
    command
}

/// What [`again`] starts; no test by itself.
#[test]
fn parts_that_are_processes() {
    let Some(part) = std::env::var_os(PART) else { return };
    if part == "load" {
        let Some(memory) = with_a_failing_drive(Rule::new(Kinds::Reads, Fault::Error)) else { return };
        println!("loaded {}", stamped(memory.region(), 0));
        return;
    }
    let listener = UnixListener::bind(std::env::var_os("WITH").unwrap()).unwrap();
    println!("ready");
    let (stream, _) = listener.accept().unwrap();
    let counts = accept(&stream, drive(Dram::new(BYTES as u64, 512).unwrap()), BYTES as u64, config());
    println!("{:?}", counts.unwrap());
}

#[test]
fn who_loads_from_a_page_that_cannot_be_read_gets_sigbus() {
    if paged(Dram::new(BYTES as u64, 512).unwrap()).is_none() {
        return;
    }
    let out = again("load", "").output().unwrap();
    assert_eq!(out.status.signal(), Some(7), "{out:?}");
}

#[test]
fn the_end_of_a_pager_lets_nobody_wait() {
    let Some(memory) = paged(Dram::new(BYTES as u64, 512).unwrap()) else { return };
    if !memory.serves_system_calls() {
        return;
    }
    let region = memory.region().clone();
    (0..PAGES).for_each(|page| stamp(&region, page, page as u64));
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (region, begun) = (&region, &begun);
            scope.spawn(move || {
                let (file, mut random) = (empty_file(), Random::new(seed));
                // Each is served, or refused: not one waits.
                while region.read_from(&file, 0, random.below(PAGES as u64) as usize * PAGE, 8).is_ok() {
                    begun.store(true, Ordering::Relaxed);
                }
            });
        }
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        memory.end().unwrap();
    });
}

/// Ended, whatever becomes of the test; with its output, to which it goes on to write.
struct Pager {
    child: Child,
    _out: BufReader<ChildStdout>,
}

impl Drop for Pager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pager(socket: &std::path::Path) -> Pager {
    let mut child = again("pager", socket.to_str().unwrap()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended");
    }
    Pager { child, _out: out }
}

#[test]
fn another_process_serves_and_its_end_lets_nobody_wait() {
    if paged(Dram::new(BYTES as u64, 512).unwrap()).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for kills in [false, true] {
        let socket = folder.path().join(kills.to_string());
        let mut pager = pager(&socket);
        let memory = Paged::elsewhere(BYTES, BUDGET, &socket).unwrap();
        hammer(memory.region(), 2, 1500);
        assert!(there(memory.region()) <= ((BUDGET + 1) * PAGE) as u64);
        if !kills {
            drop(memory);
            assert!(pager.child.wait().unwrap().success());
            continue;
        }
        (0..PAGES).for_each(|page| stamp(memory.region(), page, page as u64 + 1));
        pager.child.kill().unwrap();
        pager.child.wait().unwrap();
        if memory.serves_system_calls() {
            let refused = (0..PAGES)
                .filter(|page| memory.region().read_from(&empty_file(), 0, page * PAGE, 8).is_err());
            assert!(refused.count() >= PAGES - BUDGET);
        }
        assert_eq!(stamped(memory.region(), PAGES - 1), PAGES as u64, "what is there stays");
    }
}
