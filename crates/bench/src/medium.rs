//! How punctual a modelled medium is in real time:
//! a drive on one core over an XPoint, its caller polling on the other.
//!
//! The medium notes the time that it gave. The drive's own lateness is what the clock says beyond
//! it when the store hands the operation back to the reactor; the caller's is what it says when it
//! has the completion, and holds the entry's way to the other core and the driver's work besides.
//! Beside that stands the same difference of a drive that answers at once: what the way and the
//! copy of 4 KiB cost where there is no time to meet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::Memory;
use nearside_driver::{Command, DriverConfig, Initiator, InitiatorConfig, Policy, Threaded};
use nearside_embedded::Loopback;
use nearside_instrument::Failure;
use nearside_instrument::completion::{pin, unpin};
use nearside_loadgen::record::Figure;
use nearside_media::{Delay, Medium, Request, xpoint};
use nearside_store::{Channel, Completion, Data, Dram, Modelled, Operation, Store, Submitted, Token};

use crate::figures::Sink;

const CAPACITY: u64 = 64 << 20;

/// Both figures.
pub fn punctuality(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (rounds, count) = if fast { (5, 5_000) } else { (15, 20_000) };
    // At the drive, at the caller, and at the caller without time to meet; median and p99 of each round.
    let mut late: [[Vec<f64>; 2]; 3] = Default::default();
    for _ in 0..rounds {
        let [drive, caller] = lateness_ns(xpoint::Device::p4800x().medium(), count)?;
        let [_, at_once] = lateness_ns(Delay::fixed(0).medium(), count)?;
        for (late, times) in late.iter_mut().zip([drive, caller, at_once]) {
            late[0].push(times[count / 2] as f64);
            late[1].push(times[count / 100 * 99] as f64);
        }
    }
    unpin();
    for (i, part) in ["median", "p99"].into_iter().enumerate() {
        let figure = |name: &str, at: usize| Figure::of(name, "ns", &late[at][i]);
        let late = |at| format!("modelled XPoint, read 4 KiB: later than its time at the {at}, {part}");
        sink(figure(&late("drive"), 0));
        sink(figure(&late("caller"), 1).beside(&figure("a medium without time", 2)));
    }
    Ok(())
}

/// The medium's latest time, and how much later the store handed its operation back.
#[derive(Default)]
struct Note {
    finish_ns: AtomicU64,
    late_ns: AtomicU64,
}

/// Notes what its medium says.
struct Noted<M> {
    medium: M,
    note: Arc<Note>,
}

impl<M: Medium> Medium for Noted<M> {
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let finish_ns = self.medium.finish(request, now_ns);
        self.note.finish_ns.store(finish_ns, Ordering::Relaxed);
        finish_ns
    }
}

/// A store, or a way into it, that notes when it hands an operation back.
struct Watched<S> {
    inner: S,
    note: Arc<Note>,
}

impl<S: Store> Store for Watched<S> {
    type Channel = Watched<S::Channel>;

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Self::Channel> {
        Ok(Watched { inner: self.inner.channel(memory)?, note: self.note.clone() })
    }
}

impl<C: Channel> Channel for Watched<C> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        self.inner.submit(operation, data, token, now)
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let note = &self.note;
        self.inner.poll(now, &mut |token, completion| {
            let late_ns = TscClock::new().now().0.saturating_sub(note.finish_ns.load(Ordering::Relaxed));
            note.late_ns.store(late_ns, Ordering::Relaxed);
            sink(token, completion);
        })
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

/// How long after the medium's time the drive and the caller had each of `count` reads, sorted.
fn lateness_ns(medium: impl Medium, count: usize) -> Result<[Vec<u64>; 2], Failure> {
    let clock = TscClock::new();
    let note = Arc::new(Note::default());
    pin(0);
    let inner = Modelled::new(Dram::new(CAPACITY, 512)?, Noted { medium, note: note.clone() });
    let store = Watched { inner, note: note.clone() };
    // The drive never sleeps: a wake-up is not what is measured.
    let rest = Rest { idle_ns: 1_000_000_000, early_ns: 1_000_000_000 };
    let mut drive = Loopback::threaded(store, (), Config { lba_size: 512, ..Config::default() }, rest)?;
    pin(1);
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let mut io = Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, None)?;
    io.set_policy(Policy::Polled);
    let mut buffer = Some(io.buffer(4096)?);
    let mut late = [Vec::with_capacity(count), Vec::with_capacity(count)];
    // The first ones touch the store's pages for the first time.
    for nth in 0..count + 1000 {
        let slba = nth as u64 % 1000 * 8;
        let done = io
            .execute(&Command::read(1, slba, 8), buffer.take())
            .map_err(|e| format!("a read was refused: {e}"))?;
        let now = clock.now();
        done.outcome.map_err(|e| format!("a read failed: {e}"))?;
        buffer = done.buffer;
        if nth >= 1000 {
            late[0].push(note.late_ns.load(Ordering::Relaxed));
            late[1].push(now.0.saturating_sub(note.finish_ns.load(Ordering::Relaxed)));
        }
    }
    late.iter_mut().for_each(|times| times.sort_unstable());
    Ok(late)
}
