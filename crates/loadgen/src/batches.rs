//! Samples in batches of time: how far response times that follow each other depend on each other.
//!
//! What waits behind one burst is slow together: of 200,000 response times of a queue at 90 % load the
//! 2,000 beyond the 99th percentile say no more of it than some 13 independent samples would, and an
//! interval that takes all for independent is too narrow by a factor of twelve. The method is that of batch
//! means (e.g. Law, "Simulation Modeling and Analysis", 9.5.3), applied to the number of samples beyond a
//! percentile:
//!
//! 1. The run is cut into 64 to 128 batches of time. The variance between the batches' numbers, over the
//!    variance that independent samples would have, is the **design effect** (Kish, "Survey Sampling", 8.2).
//! 2. Where neighbouring batches are still alike, pairs of them become one, down to eight; where those are
//!    alike as well, the run is too short to say anything.
//! 3. The samples over the design effect are the number of independent ones that say as much. The interval is
//!    the binomial's ([`interval`](crate::interval)) with that many.
//!
//! A percentile that is beyond what few bursts reach cannot be bounded by them, and few bursts by luck look
//! steady. So samples beyond it have to lie in 20 batches at least, and be worth five independent ones.

use hdrhistogram::Histogram;

use crate::hist::LONGEST_NS;

/// Batches at most; with more, pairs become one.
const MOST: usize = 128;
/// Fewer batches than this say nothing of each other.
const LEAST: usize = 8;
/// Batches that hold samples beyond a percentile, at least, of 64 to 128.
const LEAST_HIT: usize = 20;
/// Independent samples beyond a percentile, and within it, at least.
const LEAST_BEYOND: f64 = 5.0;
/// A batch's length at first is two to this power, in nanoseconds.
const FIRST: u32 = 10;

/// Response times in batches by when the operations were due, to 1 %.
#[derive(Clone, Debug)]
pub struct Batches {
    /// A batch's length is two to this power, in nanoseconds: finding one costs no division.
    power: u32,
    batches: Vec<Histogram<u32>>,
}

impl Default for Batches {
    fn default() -> Self {
        Self { power: FIRST, batches: Vec::new() }
    }
}

impl Batches {
    /// For a run of that length: no batches become one meanwhile, which takes time that the run would see.
    #[must_use]
    pub fn over(runtime_ns: u64) -> Self {
        let longest = runtime_ns.saturating_sub(1).max(1).ilog2() + 1;
        Self { power: longest.saturating_sub(MOST.ilog2()).max(FIRST), batches: Vec::new() }
    }

    /// Adds a time in nanoseconds, of an operation that was due `at_ns` from the begin.
    ///
    /// # Panics
    /// Never: the histograms' bounds are constants that they take.
    #[inline]
    pub fn record(&mut self, at_ns: u64, ns: u64) {
        while at_ns >> self.power >= MOST as u64 {
            self.pair();
        }
        let at = (at_ns >> self.power) as usize;
        if self.batches.len() <= at {
            let empty = || Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("bounds are valid");
            self.batches.resize_with(at + 1, empty);
        }
        self.batches[at].saturating_record(ns);
    }

    /// Two neighbours become one.
    #[cold]
    fn pair(&mut self) {
        self.power += 1;
        let mut batches = std::mem::take(&mut self.batches).into_iter();
        while let Some(mut first) = batches.next() {
            if let Some(second) = batches.next() {
                add(&mut first, &second);
            }
            self.batches.push(first);
        }
    }

    /// Adds another's samples, with the same begin.
    pub fn merge(&mut self, other: &Batches) {
        let mut other = other.clone();
        while self.power < other.power {
            self.pair();
        }
        while other.power < self.power {
            other.pair();
        }
        for (at, batch) in other.batches.into_iter().enumerate() {
            match self.batches.get_mut(at) {
                Some(own) => add(own, &batch),
                None => self.batches.push(batch),
            }
        }
    }

    /// How many independent samples would say as much of the percentile at `ns`; `None` where that cannot be
    /// told.
    #[must_use]
    pub fn independent(&self, percent: f64, ns: u64) -> Option<u64> {
        let q = 1.0 - percent / 100.0;
        let samples: u64 = self.batches.iter().map(Histogram::len).sum();
        // What is within 1 % of `ns` is one to these histograms: the percentile lies between the numbers
        // beyond its bucket and those beyond the one before, and the nearer of the two stands for it.
        let bucket = self.batches.first()?;
        let ends = [bucket.highest_equivalent(ns), bucket.lowest_equivalent(ns).saturating_sub(1)];
        let counts = ends.map(|end| {
            let of = |batch| Counts::of(batch, end);
            self.batches.iter().map(of).collect::<Vec<_>>()
        });
        let part = |counts: &[Counts]| counts.iter().map(|c| c.beyond).sum::<f64>() / samples as f64;
        let nearest = counts
            .into_iter()
            .filter(|counts| (f64::MIN_POSITIVE..1.0).contains(&part(counts)))
            .min_by(|a, b| (part(a) - q).abs().total_cmp(&(part(b) - q).abs()));
        // Where all samples lie in one bucket, whatever they depend on is below 1 %.
        let effect = nearest.map_or(Some(1.0), design_effect)?;
        let independent = (samples as f64 / effect).floor();
        (independent * q.min(1.0 - q) >= LEAST_BEYOND).then_some(independent as u64)
    }
}

/// Adds a batch to another.
fn add(to: &mut Histogram<u32>, other: &Histogram<u32>) {
    to.add(other).expect("same bounds");
}

/// Of one batch: its samples, and those beyond some time.
#[derive(Clone, Copy, Default)]
struct Counts {
    all: f64,
    beyond: f64,
}

impl Counts {
    fn of(batch: &Histogram<u32>, end: u64) -> Counts {
        let all = batch.len();
        Counts { all: all as f64, beyond: (all - batch.count_between(0, end)) as f64 }
    }

    fn and(self, other: Counts) -> Counts {
        Counts { all: self.all + other.all, beyond: self.beyond + other.beyond }
    }
}

/// The variance of the whole number beyond, over that of as many independent samples; never below 1. It is
/// widened for the few batches that it rests on (Student's t over the normal quantile). `None`: too few are
/// hit, or neighbours are alike however long the batches are.
fn design_effect(mut counts: Vec<Counts>) -> Option<f64> {
    let (all, beyond) = counts.iter().fold((0.0, 0.0), |sum, c| (sum.0 + c.all, sum.1 + c.beyond));
    let hit = |of: fn(&Counts) -> f64| counts.iter().filter(|c| of(c) > 0.0).count();
    let hit = hit(|c| c.beyond).min(hit(|c| c.all - c.beyond));
    if hit < LEAST_HIT {
        return None;
    }
    let part = beyond / all;
    let independent = all * part * (1.0 - part);
    loop {
        let (variance, alike) = between(&counts, part);
        let degrees = (hit.min(counts.len()) - 1) as f64;
        if !alike {
            // Batches that differ by less than independent samples would are steady by luck.
            let effect = variance / independent;
            return Some(if effect > 1.0 { effect * student_over_normal(degrees).powi(2) } else { 1.0 });
        }
        if counts.len() < 2 * LEAST {
            return None;
        }
        counts =
            counts.chunks(2).map(|pair| pair.iter().copied().fold(Counts::default(), Counts::and)).collect();
    }
}

/// The variance of the whole number beyond as these batches show it, and whether neighbours are alike.
fn between(counts: &[Counts], part: f64) -> (f64, bool) {
    let n = counts.len() as f64;
    // By how much each batch's number beyond differs from its share.
    let off: Vec<f64> = counts.iter().map(|c| c.beyond - part * c.all).collect();
    let squares: f64 = off.iter().map(|o| o * o).sum();
    let neighbours: f64 = off.windows(2).map(|o| o[0] * o[1]).sum();
    // Of independent batches the correlation of neighbours has a standard deviation of 1/sqrt(n).
    (n / (n - 1.0) * squares, neighbours > squares / n.sqrt())
}

/// Student's 97.5 % quantile at some degrees of freedom over the normal distribution's (Abramowitz and
/// Stegun, 26.7.5; within a thousandth from 7 degrees on).
fn student_over_normal(degrees: f64) -> f64 {
    let z: f64 = 1.959_964;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    let added: f64 = terms.iter().zip(1..).map(|(term, power)| term / degrees.powi(power)).sum();
    1.0 + added / z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_known_length_is_cut_once() {
        for runtime_ns in [1, 131_072, 131_073, 10_000_000_000, u64::MAX] {
            let mut batches = Batches::over(runtime_ns);
            let power = batches.power;
            batches.record(0, 5);
            batches.record(runtime_ns - 1, 7);
            assert!(batches.power == power && batches.batches.len() <= MOST, "{runtime_ns}");
        }
        // One that began with short batches comes to the same.
        let (mut cut, mut grown) = (Batches::over(1_000_000), Batches::default());
        for n in 0..1_000u64 {
            cut.record(n * 1_000, n);
            grown.record(n * 1_000, n);
        }
        assert_eq!((cut.power, &cut.batches), (grown.power, &grown.batches));
        cut.merge(&grown);
        assert_eq!(cut.batches.iter().map(Histogram::len).sum::<u64>(), 2_000);
    }
}
