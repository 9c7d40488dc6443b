//! A host that writes, reads and flushes one command after another, and knows what must be where.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nearside_clock::TscClock;
use nearside_driver::tcp::{Address, Association, Options};
use nearside_driver::{Command, Initiator, Policy, Threaded};
use nearside_random::Rng;

use crate::raw::NQN;
use crate::server::Served;
use crate::{BYTES, VOLUME};

const BLOCK: u64 = 512;
/// What a command moves; every 16th moves [`LARGE`], which a target asks for by R2T.
const SMALL: u64 = 4096;
const LARGE: u64 = 64 << 10;
/// A host's own part of the drive.
const PART: u64 = (BYTES - VOLUME) / 2;

/// Nanoseconds that commands took.
pub struct Waited(Vec<u64>);

impl Waited {
    pub fn and(mut self, other: Waited) -> Waited {
        self.0.extend(other.0);
        self
    }

    fn at(&self, share: f64) -> f64 {
        let mut all = self.0.clone();
        all.sort_unstable();
        all[((all.len() - 1) as f64 * share) as usize] as f64
    }

    pub fn p999(&self) -> f64 {
        self.at(0.999)
    }
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, all] = [0.5, 0.999, 1.0].map(|share| self.at(share) / 1e3);
        write!(f, "{} commands, p50 {half:.0} us, p99.9 {most:.0} us, max {all:.0} us", self.0.len())
    }
}

/// What the `at`th piece of a host's part holds after its `version`th write; nothing before the first.
fn content(nth: u64, at: u64, version: u64) -> Vec<u8> {
    let word = |k: u64| (nth << 56 ^ at << 24 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ k;
    match version {
        0 => vec![0; SMALL as usize],
        _ => (0..SMALL / 8).flat_map(|k| word(k).to_le_bytes()).collect(),
    }
}

/// How a host reaches the drive. What fails panics.
pub trait Reach {
    fn write(&mut self, at: u64, bytes: Vec<u8>);
    fn read(&mut self, at: u64, len: u64) -> Vec<u8>;
    fn flush(&mut self);
}

/// A queue of an association of its own.
pub struct Tcp(Initiator<Threaded, TscClock, Association>);

impl Tcp {
    pub fn connect(served: &Served, nth: u64) -> Tcp {
        let (host, port) = (served.address.ip().to_string(), served.address.port());
        let address = Address { host, port, subsystem: NQN.into(), nsid: None };
        let options = Options::for_host(&format!("nqn.2026-11.dev.nearside:honest{nth}")).unwrap();
        let controller = Association::connect(&address, options, Arc::new(TscClock::new())).unwrap();
        Tcp(controller.initiator(32, Policy::Interrupt, TscClock::new()).unwrap())
    }

    fn execute(&mut self, command: Command, buffer: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let done = self.0.execute(&command, buffer).unwrap();
        done.outcome.unwrap();
        done.buffer
    }
}

impl Reach for Tcp {
    fn write(&mut self, at: u64, bytes: Vec<u8>) {
        let blocks = (bytes.len() as u64 / BLOCK) as u32;
        self.execute(Command::write(1, at / BLOCK, blocks), Some(bytes));
    }

    fn read(&mut self, at: u64, len: u64) -> Vec<u8> {
        let command = Command::read(1, at / BLOCK, (len / BLOCK) as u32);
        self.execute(command, Some(vec![0; len as usize])).unwrap()
    }

    fn flush(&mut self) {
        self.execute(Command::flush(1), None);
    }
}

/// The namespace as a file, which `attach` shows: nothing is cached on the way.
impl Reach for File {
    fn write(&mut self, at: u64, bytes: Vec<u8>) {
        self.write_all_at(&bytes, at).unwrap();
    }

    fn read(&mut self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn flush(&mut self) {
        self.sync_all().unwrap();
    }
}

/// The `nth` host, until it is over.
pub fn run(mut drive: impl Reach, nth: u64, over: &AtomicBool) -> Waited {
    let first = VOLUME + nth * PART;
    let pieces = PART / SMALL;
    let mut random = Rng(nth);
    // Of the runs before nothing is known.
    let mut versions: Vec<Option<u64>> = vec![None; pieces as usize];
    let mut waited = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let count = if random.below(16) == 0 { LARGE / SMALL } else { 1 };
        let at = random.below(pieces - count + 1);
        let (byte, len) = (first + at * SMALL, count * SMALL);
        let span = at..at + count;
        let begun = Instant::now();
        match random.below(20) {
            0 => drive.flush(),
            1..10 => {
                let version = |at: u64| versions[at as usize].unwrap_or(0) + 1;
                drive.write(byte, span.clone().flat_map(|at| content(nth, at, version(at))).collect());
                span.for_each(|at| versions[at as usize] = Some(versions[at as usize].unwrap_or(0) + 1));
            }
            _ => {
                let read = drive.read(byte, len);
                for (at, read) in span.zip(read.chunks(SMALL as usize)) {
                    if let Some(version) = versions[at as usize] {
                        assert!(read == content(nth, at, version), "host {nth}, {at} of {pieces}");
                    }
                }
            }
        }
        waited.push(begun.elapsed().as_nanos() as u64);
    }
    Waited(waited)
}
