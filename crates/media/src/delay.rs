//! A device of one's own, by a few numbers.
//!
//! - Without units every read and write takes `fixed_ns` and `per_kib_ns`, however many are in flight.
//! - With `units` the device is that many side by side: its bytes are dealt out to them in stripes of
//!   `stripe` bytes, and each unit serves one request's part at a time, in the order of arrival: `fixed_ns`
//!   per stripe touched and `per_kib_ns` by its bytes.
//! - Every `stall_every`-th request (by a seeded draw, on average) takes `stall_ns` more.
//!
//! A flush and a deallocation move no bytes: `fixed_ns`, and no unit is busy with them.

use nearside_random::draw;
use serde::Deserialize;

use crate::file::bounds;
use crate::words::{WordError, count, size, time_ns};
use crate::{Medium, Request, RequestKind};

/// How long requests take. All zero: no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// Per request, or per stripe touched where there are units, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub fixed_ns: u64,
    /// Per 1024 bytes, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub per_kib_ns: u64,
    /// Devices side by side; 0: no request waits for another.
    #[serde(deserialize_with = "bounds::between::<_, u32, 0, 4096>")]
    pub units: u32,
    /// Bytes that lie together on one unit; under 512 counts as 512.
    #[serde(rename = "stripe_bytes", deserialize_with = "bounds::between::<_, u64, 512, { 1 << 40 }>")]
    pub stripe: u64,
    /// One request in so many stalls; 0: none.
    pub stall_every: u64,
    /// How long a stall is, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub stall_ns: u64,
    /// Of the draw that picks the requests that stall.
    pub seed: u64,
}

impl Delay {
    /// `fixed_ns` per request.
    pub fn fixed(fixed_ns: u64) -> Delay {
        Delay { fixed_ns, per_kib_ns: 0, units: 0, stripe: 4096, stall_every: 0, stall_ns: 0, seed: 1 }
    }

    /// So many units, each busy for `fixed_ns` per stripe of 4 KiB.
    pub fn units(units: u32, fixed_ns: u64) -> Delay {
        Delay { units, ..Delay::fixed(fixed_ns) }
    }

    /// The medium that takes this long.
    pub fn medium(self) -> Parametric {
        let stripe = self.stripe.max(512);
        Parametric {
            delay: Delay { stripe, ..self },
            free_at: vec![0; self.units as usize],
            random: self.seed,
        }
    }

    /// The numbers that a list of words names: a time (the fixed one), `units=N`, `stripe=SIZE`,
    /// `perkib=TIME`, `stall=TIME`, `every=N`, `seed=N`, with commas between.
    ///
    /// # Errors
    /// [`WordError`] names the part of the list that is wrong.
    pub fn parse(list: &str) -> Result<Delay, WordError> {
        let mut delay = Delay::fixed(0);
        for option in list.split(',') {
            match option.split_once('=') {
                Some((name, value)) => delay.set(name, value)?,
                None => {
                    let bad = || WordError::option("a delay", option);
                    delay.fixed_ns = time_ns(option).ok_or_else(bad)?;
                }
            }
        }
        Ok(delay)
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), WordError> {
        let bad = || WordError::option("a delay", &format!("{name}={value}"));
        match name {
            "fixed" => self.fixed_ns = time_ns(value).ok_or_else(bad)?,
            "units" => self.units = count(value, 1).ok_or_else(bad)?,
            "stripe" => self.stripe = size(value).ok_or_else(bad)?,
            "perkib" => self.per_kib_ns = time_ns(value).ok_or_else(bad)?,
            "stall" => self.stall_ns = time_ns(value).ok_or_else(bad)?,
            "every" => self.stall_every = value.parse().map_err(|_| bad())?,
            "seed" => self.seed = value.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn cost(&self, stripes: u64, bytes: u64) -> u64 {
        let moving = u128::from(bytes) * u128::from(self.per_kib_ns) / 1024;
        stripes.saturating_mul(self.fixed_ns).saturating_add(u64::try_from(moving).unwrap_or(u64::MAX))
    }
}

/// The medium of a [`Delay`].
#[derive(Clone, Debug)]
pub struct Parametric {
    delay: Delay,
    free_at: Vec<u64>,
    random: u64,
}

impl Parametric {
    /// The numbers that it follows.
    pub fn delay(&self) -> &Delay {
        &self.delay
    }

    /// The parts of one request on its units, one sum per unit however long the request is.
    fn on_units(&mut self, offset: u64, len: u64, now_ns: u64) -> u64 {
        let Delay { stripe, .. } = self.delay;
        let units = self.free_at.len() as u64;
        let end = offset.saturating_add(len);
        let (first, last) = (offset / stripe, (end - 1) / stripe);
        let mut finish = now_ns;
        for nth in 0..units.min(last - first + 1) {
            let begin = first + nth;
            let stripes = (last - begin) / units + 1;
            let mut bytes = stripes.saturating_mul(stripe);
            if nth == 0 {
                bytes -= offset - first * stripe;
            }
            if (last - begin).is_multiple_of(units) {
                bytes -= stripe - (end - last * stripe);
            }
            let unit = &mut self.free_at[(begin % units) as usize];
            *unit = (*unit).max(now_ns).saturating_add(self.delay.cost(stripes, bytes));
            finish = finish.max(*unit);
        }
        finish
    }
}

impl Medium for Parametric {
    #[inline]
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let moves = request.len > 0 && matches!(request.kind, RequestKind::Read | RequestKind::Write);
        let mut finish = match (moves, self.free_at.is_empty()) {
            (false, _) => now_ns.saturating_add(self.delay.fixed_ns),
            (true, true) => now_ns.saturating_add(self.delay.cost(1, request.len)),
            (true, false) => self.on_units(request.offset, request.len, now_ns),
        };
        if self.delay.stall_every > 0 && draw(&mut self.random).is_multiple_of(self.delay.stall_every) {
            finish = finish.saturating_add(self.delay.stall_ns);
        }
        finish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by walking from stripe to stripe.
    fn by_stripes(delay: Delay, free_at: &mut [u64], request: Request, now_ns: u64) -> u64 {
        let (mut at, end, mut finish) = (request.offset, request.offset + request.len, now_ns);
        while at < end {
            let next = ((at / delay.stripe + 1) * delay.stripe).min(end);
            let unit = &mut free_at[(at / delay.stripe % u64::from(delay.units)) as usize];
            *unit = (*unit).max(now_ns) + delay.cost(1, next - at);
            finish = finish.max(*unit);
            at = next;
        }
        finish
    }

    #[test]
    fn one_sum_per_unit_is_the_walk_over_stripes() {
        let delay = Delay { per_kib_ns: 1024, stripe: 4096, ..Delay::units(5, 70) };
        let (mut medium, mut free_at, mut random) = (delay.medium(), vec![0; 5], 9);
        let mut now = 0;
        for _ in 0..10_000 {
            let number = draw(&mut random);
            let request = Request::write(number % 1000 * 512, (number >> 20) % 200 * 512 + 512);
            now += (number >> 40) % 5000;
            let expected = by_stripes(delay, &mut free_at, request, now);
            assert_eq!(medium.finish(request, now), expected, "{request:?}");
        }
        assert_eq!(medium.free_at, free_at);
    }

    #[test]
    fn ends_of_the_number_line_stay_within_it() {
        let delay = Delay { per_kib_ns: u64::MAX, ..Delay::units(3, u64::MAX / 2) };
        for request in [Request::read(u64::MAX - 511, 511), Request::write(0, u64::MAX), Request::FLUSH] {
            for delay in [delay, Delay { units: 0, stripe: 0, ..delay }] {
                assert!(delay.medium().finish(request, u64::MAX - 5) >= u64::MAX - 5);
            }
        }
    }
}
