//! Response times in nanoseconds, with percentiles that say how many samples they rest on.

use hdrhistogram::Histogram;

/// Longest time kept apart, in nanoseconds: longer ones count as this.
pub(crate) const LONGEST_NS: u64 = 100_000_000_000;

/// The percentiles that reports show (Proc. IEEE 2017 shows response times to the fifth nine).
pub const PERCENTILES: [f64; 7] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];

/// A histogram of times, exact to three digits, up to 100 s.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

/// One percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// Of the samples, that many per cent took `ns` or less.
    pub percent: f64,
    /// Nanoseconds.
    pub ns: u64,
    /// Samples that took longer: what the figure rests on. With fewer than ten it is an anecdote.
    pub beyond: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// Without samples.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram takes.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds are valid");
        Self { histogram }
    }

    /// Adds a time. In an open loop it runs from when the operation was due, not from when it was sent: else
    /// a stall hides what waited behind it (coordinated omission).
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Adds another's samples.
    ///
    /// # Panics
    /// Never: all have the same bounds.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("same bounds");
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// What it is made of.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Mean in nanoseconds; 0 without samples.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// Shortest in nanoseconds; 0 without samples.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.histogram.min() }
    }

    /// Longest in nanoseconds.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }

    /// Samples that took longer than `ns`, to the histogram's three digits.
    #[must_use]
    pub fn above(&self, ns: u64) -> u64 {
        self.count() - self.histogram.count_between(0, ns)
    }

    /// A percentile.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Percentile {
        let ns = self.histogram.value_at_percentile(percent);
        let within = self.histogram.count_between(0, ns);
        Percentile { percent, ns, beyond: self.count().saturating_sub(within) }
    }

    /// The time of the sample of that rank, 1 the least; 0 for rank 0, the longest for one beyond the last.
    #[must_use]
    pub fn rank(&self, rank: u64) -> u64 {
        let count = self.count();
        if rank == 0 || count == 0 {
            return 0;
        }
        // The histogram rounds a quantile up to the next rank: half a rank below keeps clear of rounding.
        self.histogram.value_at_quantile((rank.min(count) as f64 - 0.5) / count as f64)
    }

    /// [`PERCENTILES`], less those that too few samples were taken for: a percentile whose rank is that of
    /// the last sample is only the longest time under another name.
    #[must_use]
    pub fn percentiles(&self) -> Vec<Percentile> {
        let rests_on = |percent: f64| self.count() as f64 * (100.0 - percent) / 100.0;
        let shown = |percent: &f64| *percent == 100.0 || rests_on(*percent) >= 0.999;
        PERCENTILES.into_iter().filter(shown).map(|percent| self.percentile(percent)).collect()
    }

    /// (nanoseconds, samples) of each bucket that has any, for plots.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_say_what_they_rest_on() {
        let mut latency = Latency::new();
        assert_eq!((latency.count(), latency.min_ns(), latency.max_ns()), (0, 0, 0));
        for ns in 1..=1000 {
            latency.record(ns);
        }
        let median = latency.percentile(50.0);
        assert_eq!((median.ns, median.beyond), (500, 500));
        // A thousand samples say nothing of the fourth nine.
        let shown: Vec<f64> = latency.percentiles().iter().map(|p| p.percent).collect();
        assert_eq!(shown, [50.0, 90.0, 99.0, 99.9, 100.0]);
        assert_eq!(latency.percentile(100.0).beyond, 0);
        assert_eq!([0, 1, 17, 1000, 1001].map(|rank| latency.rank(rank)), [0, 1, 17, 1000, 1000]);
        assert_eq!(latency.buckets().map(|(_, n)| n).sum::<u64>(), 1000);
    }

    #[test]
    fn histograms_add_up_and_clamp() {
        let (mut a, mut b) = (Latency::new(), Latency::new());
        a.record(0);
        b.record(u64::MAX);
        b.record(7);
        a.merge(&b);
        assert_eq!(a.count(), 3);
        assert!(a.max_ns() >= LONGEST_NS);
        a.clear();
        assert_eq!(a.count(), 0);
    }
}
