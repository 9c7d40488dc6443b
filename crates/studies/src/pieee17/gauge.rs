//! How many operations are at a place, in real time, in two ways that share nothing but the count: by adding
//! up how long each is there, and by looking, from another thread, at moments drawn at random.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_dma::Memory;
use nearside_instrument::completion::cores;
use nearside_loadgen::engine::{Done, Engine, Io, Next, Submit};
use nearside_random::draw;
use nearside_store::{Channel, Completion, Data, Operation, Store, Submitted, Token};

/// Counts what comes and goes.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    inside: AtomicU64,
    left: AtomicU64,
    /// The times of all that left less those of all that came, modulo 2^64:
    /// once nothing is inside, the time that all were.
    ns: AtomicU64,
}

impl Gauge {
    fn enters(&self, now: Nanos) {
        self.0.inside.fetch_add(1, Ordering::Relaxed);
        self.0.ns.fetch_sub(now.0, Ordering::Relaxed);
    }

    fn leaves(&self, now: Nanos) {
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
        self.0.left.fetch_add(1, Ordering::Relaxed);
        self.0.ns.fetch_add(now.0, Ordering::Relaxed);
    }

    fn inside(&self) -> u64 {
        self.0.inside.load(Ordering::Relaxed)
    }

    /// How long one was there in the mean, in nanoseconds. While something is inside it is not known: 0.
    pub fn mean_ns(&self) -> f64 {
        match (self.inside(), self.0.left.load(Ordering::Relaxed)) {
            (0, left) if left > 0 => self.0.ns.load(Ordering::Relaxed) as f64 / left as f64,
            _ => 0.0,
        }
    }
}

/// An engine whose operations are counted, from when they are handed over until they are seen to have ended.
pub struct GaugedEngine<E> {
    /// What carries them out.
    pub engine: E,
    /// Who counts.
    pub gauge: Gauge,
}

impl<E: Engine> Engine for GaugedEngine<E> {
    fn depth(&self) -> usize {
        self.engine.depth()
    }

    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        let submit = self.engine.submit(io, now);
        if submit == Submit::Taken {
            self.gauge.enters(now);
        }
        submit
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        let before = done.len();
        self.engine.poll(now, done);
        done[before..].iter().for_each(|done| self.gauge.leaves(done.at));
    }

    #[inline]
    fn next(&self) -> Next {
        self.engine.next()
    }
}

/// A store whose operations are counted.
pub struct GaugedStore<S> {
    /// What carries them out.
    pub store: S,
    /// Who counts.
    pub gauge: Gauge,
}

/// A way into it.
pub struct GaugedChannel<C> {
    channel: C,
    clock: TscClock,
    gauge: Gauge,
}

impl<S: Store> Store for GaugedStore<S> {
    type Channel = GaugedChannel<S::Channel>;

    fn capacity(&self) -> u64 {
        self.store.capacity()
    }

    fn block_size(&self) -> u32 {
        self.store.block_size()
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Self::Channel> {
        let channel = self.store.channel(memory)?;
        Ok(GaugedChannel { channel, clock: TscClock::new(), gauge: self.gauge.clone() })
    }
}

impl<C: Channel> Channel for GaugedChannel<C> {
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted {
        let came = self.clock.now();
        let submitted = self.channel.submit(operation, data, token, now);
        self.gauge.enters(came);
        if let Submitted::Done(_) = submitted {
            self.gauge.leaves(self.clock.now());
        }
        submitted
    }

    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        let (clock, gauge) = (self.clock, &self.gauge);
        self.channel.poll(now, &mut |token, completion| {
            gauge.leaves(clock.now());
            sink(token, completion);
        })
    }

    fn in_flight(&self) -> usize {
        self.channel.in_flight()
    }

    fn prefetch(&self, offset: u64, len: u64, writes: bool) {
        self.channel.prefetch(offset, len, writes);
    }

    fn memory_changed(&mut self) {
        self.channel.memory_changed();
    }
}

/// The least and the greatest time between two looks.
const APART_NS: [u64; 2] = [3_000, 40_000];

/// Does `work`, and looks at the gauges meanwhile from a thread of its own: how many were inside each in the
/// mean of all looks. None where there is no core for it.
pub fn sampled<const N: usize, T>(gauges: [&Gauge; N], work: impl FnOnce() -> T) -> (T, Option<[f64; N]>) {
    if cores().len() < 2 {
        return (work(), None);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| look(gauges, |_| !over.load(Ordering::Relaxed)));
        let value = work();
        over.store(true, Ordering::Relaxed);
        (value, looks.join().ok().flatten())
    })
}

/// Looks while `more` holds of the number of looks so far. None where it came to no look.
fn look<const N: usize>(gauges: [&Gauge; N], more: impl Fn(u64) -> bool) -> Option<[f64; N]> {
    let clock = TscClock::new();
    let (mut state, mut looks, mut sums) = (11, 0u64, [0; N]);
    // What went before the work began is no part of it.
    while gauges.iter().all(|gauge| gauge.inside() == 0) && more(looks) {
        std::thread::sleep(Duration::from_micros(10));
    }
    while more(looks) {
        let until = clock.now() + (APART_NS[0] + draw(&mut state) % (APART_NS[1] - APART_NS[0]));
        while clock.now() < until {
            std::hint::spin_loop();
        }
        sums.iter_mut().zip(gauges).for_each(|(sum, gauge)| *sum += gauge.inside());
        looks += 1;
    }
    (looks > 0).then(|| sums.map(|sum| sum as f64 / looks as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_once_all_have_left() {
        let gauge = Gauge::default();
        gauge.enters(Nanos(100));
        gauge.enters(Nanos(150));
        gauge.leaves(Nanos(200));
        assert_eq!((gauge.inside(), gauge.mean_ns()), (1, 0.0));
        gauge.leaves(Nanos(450));
        assert_eq!((gauge.inside(), gauge.mean_ns()), (0, 200.0));
    }

    #[test]
    fn looks_see_what_is_inside() {
        let (two, none) = (Gauge::default(), Gauge::default());
        two.enters(Nanos(0));
        two.enters(Nanos(0));
        assert_eq!(look([&two, &none], |looks| looks < 5), Some([2.0, 0.0]));
        assert_eq!(look([&two, &none], |_| false), None);
    }
}
