//! Steady state, as the SNIA Solid State Storage Performance Test Specification (PTS) has it,
//! and the writing that leads there.
//!
//! The PTS runs rounds of the workload until, over a window of five, one tracked figure satisfies both: its
//! greatest and least value differ by no more than 20 % of its average, and the ends of its least-squares
//! line by no more than 10 %. After 25 rounds without it reports what it has.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::plan::Plan;
use crate::workload::{Rw, Workload};

/// Rounds of the window.
pub const WINDOW: usize = 5;
/// Rounds after which the PTS gives up.
pub const MOST_ROUNDS: usize = 25;
const RANGE: f64 = 0.20;
const SLOPE: f64 = 0.10;

/// What a window says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Both conditions hold.
    pub steady: bool,
    /// Of the tracked figure.
    pub average: f64,
    /// Greatest less least, as a part of the average.
    pub range: f64,
    /// The rise of the least-squares line over the window, as a part of the average; negative where it falls.
    pub slope: f64,
}

/// Of the last five rounds; `None` with fewer.
#[must_use]
pub fn judge(rounds: &[f64]) -> Option<Verdict> {
    let window = rounds.get(rounds.len().checked_sub(WINDOW)?..)?;
    let n = WINDOW as f64;
    let average = window.iter().sum::<f64>() / n;
    let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
    for &y in window {
        (least, greatest) = (least.min(y), greatest.max(y));
    }
    let middle = (n - 1.0) / 2.0;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (x, y) in window.iter().enumerate() {
        let x = x as f64 - middle;
        xy += x * (y - average);
        xx += x * x;
    }
    let range = (greatest - least) / average;
    let slope = xy / xx * (n - 1.0) / average;
    // Not a number (all zeros, say) is not steady.
    Some(Verdict { steady: range <= RANGE && slope.abs() <= SLOPE, average, range, slope })
}

/// Runs rounds until the figure that they give is steady, or [`MOST_ROUNDS`];
/// all figures, and the last window's verdict.
///
/// # Errors
/// The first of `round`'s.
pub fn until_steady<E>(
    mut round: impl FnMut(usize) -> Result<f64, E>,
) -> Result<(Vec<f64>, Option<Verdict>), E> {
    let mut rounds = Vec::new();
    loop {
        rounds.push(round(rounds.len())?);
        let verdict = judge(&rounds);
        if rounds.len() >= MOST_ROUNDS || verdict.is_some_and(|verdict| verdict.steady) {
            return Ok((rounds, verdict));
        }
    }
}

/// Bytes of a write of [`precondition`].
pub const PRECONDITION_BYTES: u32 = 128 << 10;

/// Workload-independent preconditioning: sequential writes of 128 KiB,
/// twice over `size` bytes from `offset` (PTS, 3.3).
#[must_use]
pub fn precondition(offset: u64, size: u64, depth: u32) -> Plan {
    let bs = u64::from(PRECONDITION_BYTES).min(size) as u32;
    let workload = Workload { offset, ..Workload::new(Rw::Write, bs, size) };
    let count = 2 * size.div_ceil(u64::from(bs.max(1)));
    let mut plan = Plan::new(workload, Arrivals::Closed { depth }, 0);
    (plan.runtime_ns, plan.count) = (None, Some(count));
    // One long slice: nobody looks at it.
    plan.slice_ns = u64::MAX;
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_must_be_narrow_and_level() {
        assert_eq!(judge(&[1.0; 4]), None);
        assert!(judge(&[100.0, 91.0, 109.0, 91.0, 109.0]).unwrap().steady);
        // A range of 22 %.
        assert!(!judge(&[100.0, 89.0, 111.0, 89.0, 111.0]).unwrap().steady);
        // Within the range, yet rising by 12 % over the window.
        let rising = judge(&[94.0, 97.0, 100.0, 103.0, 106.0]).unwrap();
        assert!(!rising.steady && (rising.slope - 0.12).abs() < 1e-9 && rising.range < 0.2, "{rising:?}");
        assert!(!judge(&[0.0; 5]).unwrap().steady);
        // Only the last five count.
        assert!(judge(&[500.0, 300.0, 100.0, 100.0, 100.0, 100.0, 100.0]).unwrap().steady);
    }

    #[test]
    fn rounds_go_on_until_steady_and_not_for_ever() {
        let settling = |n: usize| Ok::<f64, ()>(100.0 + 400.0 * 0.5f64.powi(n as i32));
        let (rounds, verdict) = until_steady(settling).unwrap();
        assert!(verdict.unwrap().steady && (8..14).contains(&rounds.len()), "{}", rounds.len());
        let (rounds, verdict) = until_steady(|n| Ok::<f64, ()>((n % 2) as f64 + 1.0)).unwrap();
        assert!(rounds.len() == MOST_ROUNDS && !verdict.unwrap().steady);
        assert_eq!(until_steady(|_| Err::<f64, _>("gone")), Err("gone"));
    }

    #[test]
    fn preconditioning_writes_everything_twice() {
        let capacity = (1 << 20) + 4096;
        let plan = precondition(0, capacity, 4);
        let places = plan.streams[0].workload.places(0);
        let mut places = places.unwrap();
        let mut written = vec![0; (capacity / 4096) as usize];
        for _ in 0..plan.count.unwrap() {
            let (_, at, len) = places.draw();
            for block in at / 4096..(at + u64::from(len)) / 4096 {
                written[block as usize] += 1;
            }
        }
        assert!(written[..256].iter().all(|n| *n >= 2), "{written:?}");
    }
}
