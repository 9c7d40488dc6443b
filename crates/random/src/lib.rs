#![doc = include_str!("../README.md")]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), seeded by
/// splitmix64.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// From a seed; any will do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| draw(&mut state)))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let out = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        out
    }

    /// A number below `bound`; 0 where that is 0. Its bias is below `bound` in 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        part(self.bits(), bound)
    }

    /// A number in (0, 1].
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A gap between arrivals of a Poisson process whose gaps have the mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

/// The seed of the `nth` of several runs on one drive. With one seed for all, each run would write the
/// places of the run before: a flash drive would find its garbage all in the same blocks, and look better
/// from run to run.
#[must_use]
pub fn of_run(seed: u64, nth: u64) -> u64 {
    scatter(seed ^ scatter(nth.wrapping_add(GOLDEN)))
}

/// A generator of one word, by [`draw`].
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// 64 random bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        draw(&mut self.0)
    }

    /// A number below `bound`; 0 where that is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        part(self.draw(), bound)
    }

    /// A place in what has `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of these, which are some.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// True `n` times in `of`.
    pub fn in_of(&mut self, n: usize, of: usize) -> bool {
        self.index(of) < n
    }

    /// So many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.draw().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    }
}

/// What the state of splitmix64 grows by.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64: 64 random bits, of which `state` is all that is kept.
#[inline]
pub fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    scatter(*state)
}

#[inline]
fn part(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// splitmix64's finalizer: a one-to-one scattering of 64-bit numbers.
#[inline]
#[must_use]
pub fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the algorithms' authors' own programs.
    #[test]
    fn numbers_never_change() {
        let mut rng = Rng(0);
        assert_eq!(
            [rng.draw(), rng.draw(), rng.draw()],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]
        );
        let mut random = Random([1, 2, 3, 4]);
        assert_eq!(
            [random.bits(), random.bits(), random.bits()],
            [41_943_041, 58_720_359, 3_588_806_011_781_223]
        );
        assert_eq!(Rng(0).bytes(11)[..9], [0xaf, 0xcd, 0x1d, 0x7b, 0x39, 0xa8, 0x20, 0xe2, 0xf4]);
        assert_eq!(Rng(7).bytes(11).len(), 11);
    }

    #[test]
    fn draws_are_repeatable_and_fill_their_ranges() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| a.bits() == b.bits()));
        assert_ne!(Random::new(8).bits(), Random::new(7).bits());
        let mut seen = [0u32; 10];
        (0..100_000).for_each(|_| seen[a.below(10) as usize] += 1);
        // Six standard deviations of a binomial with 100,000 draws at a tenth.
        assert!(seen.iter().all(|n| n.abs_diff(10_000) < 570), "{seen:?}");
        assert_eq!(a.below(0), 0);
        let mean = (0..100_000).map(|_| a.exponential()).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((0..1000).map(|_| a.unit()).all(|u| u > 0.0 && u <= 1.0));
    }
}
