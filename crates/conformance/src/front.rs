//! What every front owes: whoever reaches a drive by it has a disk, and near-data commands beside.
//!
//! A [`Fronts`] makes a drive over [any store](AnyStore) and a [`Front`] to it; [`suite`] puts that to
//! every obligation: bytes that were written are read; what was flushed, or written so as to be durable,
//! survives a crash of the store; the store's errors and limits become the front's own; blocks are never
//! torn; what is no command is refused; who leaves takes nobody along; and a front that is ended ends
//! whoever uses it, by an error. [`answers`] is for comparing fronts with each other.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nearside_embedded::AnyStore;
use nearside_fsrlib::{Ask, Counters, Digest, Operation, Reply, Request};
use nearside_near_data::wire;
use nearside_store::{Delay, Dram, Fault, Faulty, File, FileOptions, Kinds, Lossy, Modelled, Rule};

use nearside_random::Rng;

/// How a front says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are no such bytes.
    OutOfRange,
    /// They cannot be written.
    ReadOnly,
    /// The store failed.
    Medium,
    /// Anything else, in its words.
    Other(String),
}

/// A way to a running drive, for several threads. Dropping it ends the drive.
pub trait Front: Send + Sync {
    /// Bytes of the namespace.
    fn capacity(&self) -> u64;
    /// What offsets and lengths are multiples of.
    fn unit(&self) -> u64;
    /// Reads bytes.
    ///
    /// # Errors
    /// What the front says of it: out of range, the store failed, the drive has ended.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Refusal>;
    /// Writes bytes; `durable`: they are safe when it returns.
    ///
    /// # Errors
    /// As [`Front::read`]; and the namespace cannot be written, the store is full.
    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), Refusal>;
    /// Makes all durable that was written.
    ///
    /// # Errors
    /// The store failed, now or in a write before; the drive has ended.
    fn flush(&self) -> Result<(), Refusal>;
    /// Makes bytes zeros; `free`: they need no room any more.
    ///
    /// # Errors
    /// As [`Front::write`].
    fn zero(&self, offset: u64, len: u64, free: bool) -> Result<(), Refusal>;
    /// One near-data command: the reply's bytes.
    ///
    /// # Errors
    /// The request is not well-formed or too large, `room` has no place for a reply, the drive has ended.
    /// What a file is refused for stands in the reply.
    fn near_data(&self, request: &[u8], room: usize) -> Result<Vec<u8>, Refusal>;
    /// Sends what is no command; panics where that is not refused.
    fn nonsense(&self);
    /// Sends a near-data command and goes away before its answer.
    fn abandon(&self, request: &[u8]);
    /// Ends it for all who use it; they get errors.
    fn end(&self);
}

/// Makes drives of one kind, each with firmware that understands files.
pub trait Fronts {
    /// A drive over the store, and the way to it.
    fn start(&self, store: AnyStore) -> Box<dyn Front>;
}

const BYTES: u64 = 2 << 20;

/// All of it.
pub fn suite(fronts: &impl Fronts) {
    reads_what_was_written(fronts);
    keeps_what_was_flushed(fronts);
    refuses_what_is_not_there(fronts);
    refuses_writes_where_there_are_none(fronts);
    passes_errors_on(fronts);
    never_tears(fronts);
    survives_nonsense(fronts);
    survives_who_leaves(fronts);
    ends_under_load(fronts);
}

fn dram() -> AnyStore {
    AnyStore::Dram(Dram::new(BYTES, 512).unwrap())
}

fn delayed(delay: Delay) -> AnyStore {
    AnyStore::Delayed(Box::new(Modelled::new(dram(), delay.medium())))
}

/// A range of whole units, of a few bytes up to more than one command carries.
fn range(rng: &mut Rng, unit: u64) -> (u64, usize) {
    let longest = [100, 6_000, 300_000, 1_500_000][rng.below(4) as usize];
    let at = rng.below(BYTES / unit) * unit;
    let len = (1 + rng.below(longest)).next_multiple_of(unit).min(BYTES - at);
    (at, len as usize)
}

/// Operations of all sizes at all places, against a vector.
pub fn reads_what_was_written(fronts: &impl Fronts) {
    let front = fronts.start(dram());
    assert_eq!(front.capacity(), BYTES);
    let (mut model, mut rng) = (vec![0; BYTES as usize], Rng(7));
    for round in 0..400u64 {
        let (at, len) = range(&mut rng, front.unit());
        let place = at as usize..at as usize + len;
        match rng.below(10) {
            0..5 => {
                let bytes: Vec<u8> = (0..len).map(|i| (i as u64 ^ round.wrapping_mul(0x9d)) as u8).collect();
                front.write(at, &bytes, rng.below(4) == 0).unwrap();
                model[place].copy_from_slice(&bytes);
            }
            n @ 5..7 => {
                front.zero(at, len as u64, n == 5).unwrap();
                model[place].fill(0);
            }
            7 => front.flush().unwrap(),
            _ => {
                let mut bytes = vec![0xee; len];
                front.read(at, &mut bytes).unwrap();
                assert!(bytes == model[place], "round {round}: {len} bytes at {at}");
            }
        }
    }
    let mut all = vec![0; BYTES as usize];
    front.read(0, &mut all).unwrap();
    assert!(all == model);
}

/// A crash takes nothing that was flushed or written durably;
/// and it takes something, or the test says nothing.
pub fn keeps_what_was_flushed(fronts: &impl Fronts) {
    let mut lost = 0;
    for seed in 0..6 {
        let store = Lossy::new(BYTES, 512).unwrap();
        let front = fronts.start(AnyStore::Lossy(store.clone()));
        let (mut model, mut rng) = (vec![0; BYTES as usize], Rng(seed));
        let change = |model: &mut [u8], rng: &mut Rng, durable: bool| {
            let (at, len) = range(rng, front.unit().max(512));
            let byte = 1 + rng.below(255) as u8;
            match rng.below(4) {
                0 if !durable => {
                    front.zero(at, len as u64, rng.below(2) == 0).unwrap();
                    model[at as usize..][..len].fill(0);
                }
                _ => {
                    front.write(at, &vec![byte; len], durable).unwrap();
                    model[at as usize..][..len].fill(byte);
                }
            }
        };
        (0..20).for_each(|_| change(&mut model, &mut rng, false));
        assert!(store.unflushed() > 0, "a write is durable before it is flushed: the test says nothing");
        front.flush().unwrap();
        (0..5).for_each(|_| change(&mut model, &mut rng, true));
        assert_eq!(store.unflushed(), 0, "seed {seed}");
        store.crash(seed);
        let mut all = vec![0; BYTES as usize];
        front.read(0, &mut all).unwrap();
        assert!(all == model, "seed {seed}: a crash took what was durable");
        (0..20).for_each(|_| change(&mut model, &mut rng, false));
        lost += store.crash(seed);
    }
    assert!(lost > 100, "{lost} blocks lost");
}

/// Past the end there is nothing, and a refusal changes nothing.
pub fn refuses_what_is_not_there(fronts: &impl Fronts) {
    let front = fronts.start(dram());
    front.write(0, &vec![5; BYTES as usize], false).unwrap();
    for at in [BYTES, BYTES + 512, BYTES * 1000] {
        let mut bytes = vec![0; 512];
        assert_eq!(front.read(at, &mut bytes), Err(Refusal::OutOfRange), "at {at}");
        assert_eq!(front.write(at, &bytes, false), Err(Refusal::OutOfRange), "at {at}");
        assert_eq!(front.zero(at, 512, true), Err(Refusal::OutOfRange), "at {at}");
        assert_eq!(front.zero(at, 512, false), Err(Refusal::OutOfRange), "at {at}");
    }
    let beyond = u64::MAX - 511;
    assert!(front.read(beyond, &mut [0; 512]).is_err() && front.write(beyond, &[0; 512], true).is_err());
    assert_eq!(front.zero(BYTES - 4096, 8192, false), Err(Refusal::OutOfRange));
    let mut all = vec![0; BYTES as usize];
    front.read(0, &mut all).unwrap();
    assert!(all.iter().all(|b| *b == 5));
}

/// A store that can only be read.
pub fn refuses_writes_where_there_are_none(fronts: &impl Fronts) {
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), vec![3; BYTES as usize]).unwrap();
    let front = fronts.start(AnyStore::File(File::open(image.path(), FileOptions::read()).unwrap()));
    assert_eq!(front.write(0, &[1; 512], false), Err(Refusal::ReadOnly));
    assert_eq!(front.zero(0, 4096, true), Err(Refusal::ReadOnly));
    let mut bytes = vec![0; 100 << 10];
    front.read(4096, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 3));
    drop(front);
    assert!(std::fs::read(image.path()).unwrap().iter().all(|b| *b == 3));
}

/// What fails below fails above, there only, and no longer than it does.
pub fn passes_errors_on(fronts: &impl Fronts) {
    const AT: u64 = 1 << 20;
    let rules = [Kinds::Reads, Kinds::Mutations]
        .map(|kinds| Rule { range: Some(AT..AT + 4096), ..Rule::new(kinds, Fault::Error) });
    let store = Faulty::new(dram(), 1, rules);
    let plan = store.plan();
    let front = fronts.start(AnyStore::Faulty(Box::new(store)));
    let mut bytes = vec![1; 4096];
    assert_eq!(front.write(AT, &bytes, false), Err(Refusal::Medium));
    assert_eq!(front.zero(AT, 4096, false), Err(Refusal::Medium));
    assert_eq!(front.read(AT, &mut bytes), Err(Refusal::Medium));
    // In the middle of a request of several commands.
    assert_eq!(front.write(0, &vec![2; BYTES as usize], true), Err(Refusal::Medium));
    assert_eq!(front.read(0, &mut vec![0; BYTES as usize]), Err(Refusal::Medium));
    front.write(AT + 4096, &[7; 4096], false).unwrap();
    front.read(AT + 4096, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    plan.lock().unwrap().add(Rule::new(Kinds::Flushes, Fault::Error));
    assert_eq!(front.flush(), Err(Refusal::Medium));
    plan.lock().unwrap().clear();
    front.flush().unwrap();
    front.write(AT, &[9; 4096], true).unwrap();
    front.read(AT, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4096]);
}

/// Says so when it is dropped, also where that is by a panic: whoever looks then ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers and readers of the same blocks: each block is of one write.
pub fn never_tears(fronts: &impl Fronts) {
    const LEN: usize = 16 << 10;
    let front = fronts.start(delayed(Delay::units(4, 500)));
    front.write(0, &[0; LEN], false).unwrap();
    let block = front.unit().max(512) as usize;
    let whole = |bytes: &[u8]| bytes.chunks(block).all(|block| block.iter().all(|b| *b == block[0]));
    std::thread::scope(|scope| {
        for writer in 0..3u8 {
            let front = &front;
            scope.spawn(move || {
                for n in 0..150u8 {
                    front.write(0, &[writer * 80 + n % 80; LEN], false).unwrap();
                    let mut bytes = [0; LEN];
                    front.read(0, &mut bytes).unwrap();
                    assert!(whole(&bytes), "a torn block");
                }
            });
        }
    });
    if front.unit() < 512 {
        // Parts of the same block, side by side: none takes another's bytes back.
        std::thread::scope(|scope| {
            for lane in 0..4usize {
                let front = &front;
                scope.spawn(move || {
                    for n in 0..150 {
                        front.write((n * 400 + lane * 100) as u64, &[lane as u8 + 100; 100], false).unwrap();
                    }
                });
            }
        });
        let mut lanes = vec![0; 150 * 400];
        front.read(0, &mut lanes).unwrap();
        assert!(lanes.iter().enumerate().all(|(at, &b)| b == (at / 100 % 4) as u8 + 100));
    }
}

fn works(front: &dyn Front) {
    front.write(4096, &[0x5a; 8192], true).unwrap();
    let mut bytes = [0; 8192];
    front.read(4096, &mut bytes).unwrap();
    assert_eq!(bytes, [0x5a; 8192]);
    let reply = front.near_data(&nop(), 4096).unwrap();
    let reply = wire::decode_reply(&reply).unwrap();
    assert_eq!(reply.failure, None);
}

fn encoded(ask: Ask) -> Vec<u8> {
    let Ask { target, operation, follow } = ask;
    let credentials = Default::default();
    wire::encode_request(&Request { partition: 0, credentials, target, operation, follow, resume: None })
}

fn nop() -> Vec<u8> {
    let target = nearside_fsrlib::Target::Volume;
    encoded(Ask { target, operation: Operation::Nop, follow: true })
}

/// A search that takes its time: the store answers late.
fn slow() -> Vec<u8> {
    encoded(Ask::path("/nothing here", Operation::Count))
}

/// What is no command is refused, while others work.
pub fn survives_nonsense(fronts: &impl Fronts) {
    let front = fronts.start(dram());
    // Whatever way in it has is made before others are refused theirs.
    works(&*front);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                works(&*front);
            }
        });
        let end = Ends(&ends);
        front.nonsense();
        drop(end);
        other.join().unwrap();
    });
    // Bytes that are no request, through the whole way.
    for bytes in [&b""[..], b"abc", &[0xff; 4096], &nop()[..20]] {
        assert!(front.near_data(bytes, 4096).is_err(), "{bytes:?}");
    }
    works(&*front);
}

/// Commands whose askers are gone disturb nobody.
pub fn survives_who_leaves(fronts: &impl Fronts) {
    let front = fronts.start(delayed(Delay::fixed(3_000_000)));
    for _ in 0..20 {
        front.abandon(&slow());
    }
    works(&*front);
}

/// The end comes while all are busy: each gets an error and none waits for ever.
pub fn ends_under_load(fronts: &impl Fronts) {
    let front = fronts.start(delayed(Delay::fixed(20_000)));
    let (ended, ends) = mpsc::channel();
    let done = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        for (user, done) in done.iter().enumerate() {
            let (front, ended) = (&front, ended.clone());
            scope.spawn(move || {
                let mut bytes = vec![user as u8; 64 << 10];
                let refusal = loop {
                    let result = match user {
                        0 => front.write(0, &bytes, false),
                        1 => front.read(0, &mut bytes),
                        _ => front.near_data(&slow(), 4096).map(drop),
                    };
                    match result {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(refusal) => break refusal,
                    };
                };
                ended.send((user, refusal)).unwrap();
            });
        }
        while done.iter().any(|n| n.load(Ordering::Relaxed) < 20) {
            assert!(ends.try_recv().is_err(), "an error before the end");
            std::thread::yield_now();
        }
        front.end();
        for _ in 0..done.len() {
            ends.recv_timeout(Duration::from_secs(60)).expect("someone waits for ever");
        }
    });
    assert!(front.read(0, &mut [0; 512]).is_err() && front.flush().is_err());
}

/// What a drive over an image says by this front to a handful of requests: equal by every front.
pub fn answers(fronts: &impl Fronts, image: &Path) -> Vec<Reply<'static>> {
    let front = fronts.start(AnyStore::Dram(Dram::from_file(image, 512).unwrap()));
    let asks = [
        Ask::tree("/", Operation::List),
        Ask::tree("/", Operation::Names),
        Ask::tree("/", Operation::Checksum(Digest::Sha256)),
        Ask::tree("/", Operation::Count),
        // Files without a byte have no row.
        Ask::tree("/", crate::drive::gather(1)),
        Ask::tree("/", crate::drive::nearest()),
        Ask::tree("/", crate::drive::select()),
        Ask::path("/", Operation::Stat),
        Ask::path("/", Operation::Info),
        Ask::path("/no such name", Operation::Stat),
        Ask::path("not absolute", Operation::Stat),
    ];
    asks.map(|ask| {
        let reply = front.near_data(&encoded(ask), 512 << 10).unwrap();
        let reply = wire::decode_reply(&reply).unwrap().into_owned();
        assert_eq!(reply.more, None);
        Reply { counters: Counters::default(), ..reply }
    })
    .into()
}
