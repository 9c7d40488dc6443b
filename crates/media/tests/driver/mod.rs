//! Requests for a medium in made-up time, from a closed loop at a depth or from arrivals of their own: an
//! event loop and no more (the generator that users have is `nearside-loadgen`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nearside_media::{Medium, Request};
use nearside_random::Random;

/// What came of a run.
pub struct Run {
    pub iops: f64,
    /// Response times, sorted, in nanoseconds.
    pub times: Vec<u64>,
}

impl Run {
    fn of(mut times: Vec<u64>, span_ns: u64) -> Run {
        let iops = times.len() as f64 * 1e9 / span_ns as f64;
        times.sort_unstable();
        Run { iops, times }
    }

    /// The time within which `part` (0 to 1) of the requests ended, in microseconds.
    pub fn percentile_us(&self, part: f64) -> f64 {
        let rank = (self.times.len() as f64 * part).ceil().max(1.0) as usize;
        self.times[rank.min(self.times.len()) - 1] as f64 / 1e3
    }

    pub fn mean_us(&self) -> f64 {
        self.times.iter().sum::<u64>() as f64 / self.times.len() as f64 / 1e3
    }

    pub fn within(&self, us: f64) -> f64 {
        self.times.partition_point(|&t| t as f64 <= us * 1e3) as f64 / self.times.len() as f64
    }
}

/// `depth` requests are out at any time; each is followed by the next after `host_ns` of the host's own time.
pub fn closed(
    medium: &mut impl Medium,
    depth: usize,
    host_ns: u64,
    count: usize,
    mut next: impl FnMut() -> Request,
) -> Run {
    let mut ready: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let (mut times, mut last) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        let Reverse(now) = ready.pop().unwrap();
        let end = medium.finish(next(), now);
        times.push(end - now);
        last = now;
        ready.push(Reverse(end + host_ns));
    }
    Run::of(times, last)
}

/// Poisson arrivals, `rate` per second.
pub fn open(
    medium: &mut impl Medium,
    rate: f64,
    count: usize,
    seed: u64,
    mut next: impl FnMut() -> Request,
) -> Run {
    let (mut rng, mut now, mut times) = (Random::new(seed), 0.0, Vec::with_capacity(count));
    for _ in 0..count {
        now += rng.exponential() * 1e9 / rate;
        let at = now as u64;
        times.push(medium.finish(next(), at) - at);
    }
    Run::of(times, now as u64)
}

/// Aerospike's certification tool at a multiple of PIEEE'17's 1x (Section V-B): 1,000 reads of 1.5 KB per
/// second, Poisson, at 512-byte places; 1.536 MB/s of 128 KiB reads and as much of writes, paced evenly.
/// `scale` 2 is the tool's own 1x of 2,000 reads. The small reads' times.
pub fn act(medium: &mut impl Medium, multiple: f64, scale: f64, seconds: f64, capacity: u64) -> Run {
    const LARGE: u64 = 128 << 10;
    let mut rng = Random::new(7);
    let (small_gap, large_gap) =
        (1e9 / (1000.0 * scale * multiple), LARGE as f64 * 1e9 / (1.536e6 * scale * multiple));
    let end = seconds * 1e9;
    let (mut small, mut read, mut write) = (rng.exponential() * small_gap, 0.0, large_gap / 2.0);
    let mut times = Vec::new();
    loop {
        let now = small.min(read).min(write);
        if now > end {
            return Run::of(times, now as u64);
        }
        let at = now as u64;
        let large = rng.below(capacity / LARGE) * LARGE;
        if now == small {
            let offset = rng.below((capacity - 1536) / 512) * 512;
            times.push(medium.finish(Request::read(offset, 1536), at) - at);
            small += rng.exponential() * small_gap;
        } else if now == read {
            medium.finish(Request::read(large, LARGE), at);
            read += large_gap;
        } else {
            medium.finish(Request::write(large, LARGE), at);
            write += large_gap;
        }
    }
}
