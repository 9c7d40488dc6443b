//! Trace points: one time for each layer that a read passes, on its way there and back.
//!
//! Off, they cost nothing: the drive's are types of their own, a store ([`Traced`]) that stands before the
//! medium and a firmware ([`Answers`]) that is told when a completion is posted, both only where layers are
//! measured; the driver's are taken by the caller between the driver's own calls. On, each costs one reading
//! of the time-stamp counter; Fig. 2 measures what they add.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_device::firmware::{NoWorker, Seat};
use nearside_device::runner::Rest;
use nearside_device::{Config, Firmware, Namespace, Observer};
use nearside_dma::Memory;
use nearside_driver::{
    Command, Controller, DmaBuffer, Driver, DriverConfig, QueueConfig, QueuePair, Transport,
};
use nearside_embedded::Loopback;
use nearside_instrument::completion::{pin, unpin};
use nearside_media::Medium;
use nearside_random::Rng;
use nearside_store::{Channel, Completion, Data, Dram, Modelled, Operation, Store, Submitted, Token};

use super::real::fill;
use crate::Failure;

/// Of the one command that is under way.
#[derive(Debug, Default)]
struct Stamps {
    fetched: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    answered: AtomicU64,
}

/// A store that notes when the drive has fetched a read, when the
/// medium begins with it and when it has ended.
#[derive(Clone)]
pub struct Traced<S> {
    inner: S,
    clock: TscClock,
    stamps: Arc<Stamps>,
}

/// A way into it.
pub struct TracedChannel<C> {
    inner: C,
    clock: TscClock,
    stamps: Arc<Stamps>,
}

impl<S: Store> Store for Traced<S> {
    type Channel = TracedChannel<S::Channel>;

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Self::Channel> {
        let inner = self.inner.channel(memory)?;
        Ok(TracedChannel { inner, clock: self.clock, stamps: self.stamps.clone() })
    }
}

impl<C: Channel> Channel for TracedChannel<C> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        self.stamps.begun.store(self.clock.now().0, Ordering::Release);
        let submitted = self.inner.submit(operation, data, token, now);
        if let Submitted::Done(_) = submitted {
            self.stamps.ended.store(self.clock.now().0, Ordering::Release);
        }
        submitted
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let (clock, stamps) = (self.clock, &self.stamps);
        self.inner.poll(now, &mut |token, completion| {
            stamps.ended.store(clock.now().0, Ordering::Release);
            sink(token, completion);
        })
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    /// The drive asks for the data as soon as it has taken the command and checked it.
    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        self.stamps.fetched.store(self.clock.now().0, Ordering::Release);
        self.inner.prefetch(offset, len, writes);
    }

    fn memory_changed(&mut self) {
        self.inner.memory_changed();
    }
}

/// A firmware that notes when the drive answers, and does nothing else.
pub struct Answers {
    clock: TscClock,
    stamps: Arc<Stamps>,
}

impl Observer for Answers {
    #[inline(always)]
    fn begin(&self, _offset: u64, _len: u64) {}
    #[inline(always)]
    fn end(&self, _offset: u64, _len: u64, _durable: bool) {}
    fn answers(&self) {
        self.stamps.answered.store(self.clock.now().0, Ordering::Release);
    }
}

impl<S: Store> Firmware<S> for Answers {
    type Worker = NoWorker;

    fn worker(_: &Arc<Namespace<S, Answers>>, _: &Seat<'_>) -> io::Result<NoWorker> {
        Ok(NoWorker)
    }

    fn is_present(&self) -> bool {
        false
    }
}

/// The layers, outermost first.
pub const LAYERS: [&str; 5] = ["application", "driver", "queue", "device", "medium"];

/// One read's time by layer, in nanoseconds: on the way there, and on the way back. The medium has one way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    there: [u64; LAYERS.len()],
    back: [u64; LAYERS.len()],
}

impl Read {
    /// A layer's, both ways.
    pub fn layer(&self, nth: usize) -> u64 {
        self.there[nth] + self.back[nth]
    }

    /// A layer's on the way back.
    pub fn back(&self, nth: usize) -> u64 {
        self.back[nth]
    }

    /// The medium's.
    pub fn medium(&self) -> u64 {
        self.layer(LAYERS.len() - 1)
    }

    /// All layers'.
    pub fn total(&self) -> u64 {
        self.there.iter().chain(&self.back).sum()
    }
}

/// A drive on a thread of its own over a medium, traced or not, and the driver's queue pair.
pub struct Rig {
    queue: QueuePair,
    buffer: Option<DmaBuffer>,
    clock: TscClock,
    stamps: Arc<Stamps>,
    random: Rng,
    _driver: Driver,
    _drive: Box<dyn Any>,
}

/// Bytes that reads are spread over.
const CAPACITY: u64 = 64 << 20;

/// Over a medium, with all of the drive's trace points.
pub fn traced<M: Medium>(medium: M) -> Result<Rig, Failure> {
    let stamps = Arc::new(Stamps::default());
    let answers = Answers { clock: TscClock::new(), stamps: stamps.clone() };
    rig(observed(medium, &stamps)?, answers, stamps)
}

/// With those before the medium, and none where it answers.
pub fn half_traced<M: Medium>(medium: M) -> Result<Rig, Failure> {
    let stamps = Arc::new(Stamps::default());
    rig(observed(medium, &stamps)?, (), stamps)
}

/// Without.
pub fn plain<M: Medium>(medium: M) -> Result<Rig, Failure> {
    rig(store(medium)?, (), Arc::default())
}

fn observed<M: Medium>(medium: M, stamps: &Arc<Stamps>) -> Result<Traced<Modelled<Dram, M>>, Failure> {
    Ok(Traced { inner: store(medium)?, clock: TscClock::new(), stamps: stamps.clone() })
}

fn store<M: Medium>(medium: M) -> Result<Modelled<Dram, M>, Failure> {
    let dram = Dram::new(CAPACITY, 512)?;
    // A page's first touch is no layer.
    fill(&dram, CAPACITY)?;
    Ok(Modelled::new(dram, medium))
}

fn rig<S: Store>(store: S, firmware: impl Firmware<S>, stamps: Arc<Stamps>) -> Result<Rig, Failure> {
    let clock = TscClock::new();
    pin(0);
    // The drive never sleeps: its wake-up is no layer.
    let rest = Rest { idle_ns: 1_000_000_000, early_ns: 1_000_000_000 };
    let mut drive = Loopback::threaded(store, firmware, Config { lba_size: 512, ..Config::default() }, rest)?;
    pin(1);
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let queue = driver.queue(QueueConfig { depth: 32, interrupt: false }, &mut drive.host(&clock))?;
    let buffer = Some(driver.pool().take(4096)?);
    Ok(Rig { queue, buffer, clock, stamps, random: Rng(7), _driver: driver, _drive: Box::new(drive) })
}

impl Rig {
    /// So many reads of 4 KiB, one after the other.
    pub fn reads(&mut self, count: usize) -> Result<Vec<Read>, Failure> {
        (0..count).map(|_| self.read()).collect()
    }

    fn read(&mut self) -> Result<Read, Failure> {
        let clock = self.clock;
        let called = clock.now().0;
        let slba = self.random.below(CAPACITY / 4096) * 8;
        let command = Command::read(1, slba, 8);
        let buffer = self.buffer.take().ok_or("the buffer was lost")?;
        let asked = clock.now().0;
        self.queue
            .submit(&command, Some(buffer), 0, Nanos(asked))
            .map_err(|e| format!("a read was refused: {e}"))?;
        self.queue.ring();
        let rung = clock.now().0;
        while !self.queue.is_ready() {
            std::hint::spin_loop();
        }
        let ready = clock.now().0;
        let done = self.queue.reap().ok_or("a completion was there and is not")?;
        let reaped = clock.now().0;
        done.outcome.map_err(|e| format!("a read failed: {e}"))?;
        let mut word = [0; 8];
        if let Some(buffer) = &done.buffer {
            buffer.read(0, &mut word);
        }
        std::hint::black_box(word);
        self.buffer = done.buffer;
        let returned = clock.now().0;
        let [fetched, begun, ended, answered] =
            [&self.stamps.fetched, &self.stamps.begun, &self.stamps.ended, &self.stamps.answered]
                .map(|at| at.load(Ordering::Acquire));
        // The drive may have fetched before the caller's own clock was read:
        // a layer ends where the next begins.
        let fetched = fetched.clamp(asked, ready);
        let rung = rung.min(fetched);
        let begun = begun.clamp(fetched, ready);
        let ended = ended.clamp(begun, ready);
        let answered = answered.clamp(ended, ready);
        Ok(Read {
            there: [asked - called, rung - asked, fetched - rung, begun - fetched, ended - begun],
            back: [returned - reaped, reaped - ready, ready - answered, answered - ended, 0],
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        unpin();
    }
}

/// Medians of a layer by batches of reads, in microseconds.
pub fn medians_us(batches: &[Vec<Read>], of: impl Fn(&Read) -> u64) -> Vec<f64> {
    batches
        .iter()
        .map(|batch| {
            let mut all: Vec<u64> = batch.iter().map(&of).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0) as f64 / 1e3
        })
        .collect()
}
