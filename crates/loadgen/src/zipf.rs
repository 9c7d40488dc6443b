//! Zipf's distribution: rank `k` of `n` is drawn in proportion to `1 / k^theta`.

use nearside_random::Random;

/// Draws ranks by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996): no table, constant time for any `n`.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: f64,
    theta: f64,
    first: f64,
    last: f64,
    shift: f64,
}

impl Zipf {
    /// Ranks from 0 to `n` - 1; `theta` above 0.
    #[must_use]
    pub fn new(n: u64, theta: f64) -> Self {
        let mut zipf = Self { n: n.max(1) as f64, theta, first: 0.0, last: 0.0, shift: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.n + 0.5);
        zipf.shift = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    /// The integral of the density; `(x^(1-theta) - 1) / (1 - theta)`,
    /// which is the logarithm where theta is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.theta) * log;
        log * if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 }
    }

    fn inverse(&self, y: f64) -> f64 {
        let part = (y * (1.0 - self.theta)).max(-1.0);
        (y * if part.abs() > 1e-8 { part.ln_1p() / part } else { 1.0 - part / 2.0 }).exp()
    }

    fn height(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// A rank, 0 the most frequent.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.n);
            if rank - x <= self.shift || area >= self.integral(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for theta in [0.5, 1.0, 1.2] {
            let (n, draws) = (50u64, 200_000);
            let zipf = Zipf::new(n, theta);
            let mut random = Random::new(11);
            let mut seen = vec![0u32; n as usize];
            (0..draws).for_each(|_| seen[zipf.draw(&mut random) as usize] += 1);
            let sum: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            for (rank, &count) in seen.iter().enumerate() {
                let p = ((rank + 1) as f64).powf(-theta) / sum;
                let (mean, sigma) = (p * f64::from(draws), (f64::from(draws) * p * (1.0 - p)).sqrt());
                assert!((f64::from(count) - mean).abs() < 5.0 * sigma, "{theta} {rank}: {count} {mean}");
            }
        }
        assert_eq!(Zipf::new(1, 1.0).draw(&mut Random::new(1)), 0);
    }
}
