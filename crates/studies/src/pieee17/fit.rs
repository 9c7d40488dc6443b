//! The NAND drive fitted to one half of what the paper states of it, so that the other half is predicted:
//! once by section IV's figures, once by section V-B's.
//!
//! The preset's own programming, erasing and patience were chosen by both halves at once. Here the four
//! numbers that no data sheet states ([`Free`]) begin at what is assumed of flash of that age ([`START`])
//! and go, one after another, to where the cells of a half are met best; the data sheet's random writes stand
//! beside them in both. What a half does not decide stays where it began. [`FITTED`] is what came out; the
//! test `fit` does it again.

use nearside_instrument::act::{Rule, largest};
use nearside_loadgen::{Arrivals, Rw};
use nearside_media::nand::{NandDrive, p3700};

use super::fig11::Prepared;
use super::parameters::{P4800X, SOFTWARE};
use super::rig::{Bed, Drive, mean_us, percentile_us};
use super::stated::{MEANS, NAND, NAND_128, NAND_FAR, NAND_P99, OPTANE, OVER_NAND};
use crate::Relation::Simulated;
use crate::finding::Says;
use crate::{Bound, Claim, Failure, Finding, Run, Stated};

/// The numbers of the flash that no data sheet states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Programming an upper page, in microseconds; a lower one takes a seventh, as in the preset.
    pub program_us: u64,
    /// Erasing a block, in microseconds.
    pub erase_us: u64,
    /// How long a program or an erase lets reads go before it, in microseconds.
    pub patience_us: u64,
    /// How far sensing, programming and erasing vary, in thousandths.
    pub spread_permille: u64,
}

/// Where both fits begin: what is assumed of 20 nm MLC where no paper's figure hangs on it
/// (`nand-cosmos-plus`).
pub const START: Free = Free { program_us: 2_400, erase_us: 5_000, patience_us: 3_000, spread_permille: 50 };

/// What each of the numbers may be.
const GRID: [&[u64]; 4] = [
    &[1_800, 2_000, 2_200, 2_400, 2_600],
    &[3_000, 4_000, 5_000, 6_000, 8_000],
    &[1_000, 2_000, 3_000, 4_000],
    &[30, 50, 70, 90, 110],
];

impl Free {
    fn of(values: [u64; 4]) -> Free {
        let [program_us, erase_us, patience_us, spread_permille] = values;
        Free { program_us, erase_us, patience_us, spread_permille }
    }

    fn values(self) -> [u64; 4] {
        [self.program_us, self.erase_us, self.patience_us, self.spread_permille]
    }

    /// The P3700 with these; all else is the preset's, which is its data sheet's or assumed.
    pub fn drive(self) -> NandDrive {
        let mut drive = p3700();
        drive.timings.program_ns = [self.program_us * 1_000 / 7, self.program_us * 1_000];
        drive.timings.erase_ns = self.erase_us * 1_000;
        drive.timings.patience_ns = self.patience_us * 1_000;
        drive.timings.spread_permille = self.spread_permille;
        drive
    }
}

/// A half of the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Section IV's: Figs. 5, 7 and 8.
    Iv,
    /// Section V-B's: Fig. 11.
    VB,
}

impl Half {
    /// Both.
    pub const BOTH: [Half; 2] = [Half::Iv, Half::VB];

    /// The model that is fitted to it.
    pub fn model(self) -> &'static str {
        match self {
            Half::Iv => "nand-p3700-by-iv",
            Half::VB => "nand-p3700-by-v-b",
        }
    }

    /// For names of findings.
    pub fn name(self) -> &'static str {
        match self {
            Half::Iv => "NAND, fitted to IV",
            Half::VB => "NAND, fitted to V-B",
        }
    }

    fn section(self) -> &'static str {
        match self {
            Half::Iv => "IV",
            Half::VB => "V-B",
        }
    }

    /// What the paper states of the drive there, with name and unit, in the order of [`Half::measure`].
    fn cells(self) -> Vec<(&'static str, &'static str, Stated)> {
        match self {
            Half::Iv => vec![
                ("queue depth 128", "kIOPS", NAND_128),
                ("mean over Optane's", "x", MEANS),
                ("p99 at queue depth 128", "us", NAND_P99),
                ("p99.999 at queue depth 128", "us", NAND_FAR),
            ],
            Half::VB => {
                let [optane, over] = [OPTANE[0], OVER_NAND[0]];
                let standard = Stated { value: optane.value / over.value, ..over };
                vec![("standard", "x", standard), ("tightened", "x", NAND)]
            }
        }
    }

    /// The cells that a value is reckoned from: the paper has NAND's standard multiple as a part of Optane's.
    fn reckoned(self, stated: &Stated) -> Option<[Stated; 2]> {
        (self == Half::VB && stated.cell == OVER_NAND[0].cell).then_some([OPTANE[0], OVER_NAND[0]])
    }

    /// What a drive that was fitted to `of` is made of, and what it is measured beside.
    fn numbers(self, of: Half) -> Vec<&'static str> {
        let beside = (self == Half::Iv).then_some(P4800X);
        [of.model(), SOFTWARE].into_iter().chain(beside).collect()
    }

    /// The cells that a fit to it rests on.
    pub fn rests_on(self) -> &'static [Stated] {
        match self {
            Half::Iv => &[NAND_128, MEANS, NAND_P99, NAND_FAR],
            // The last is the one before it once more: 125x over 8x.
            Half::VB => &[OPTANE[0], OVER_NAND[0], NAND, OVER_NAND[1]],
        }
    }

    /// What came out of the fit.
    pub fn fitted(self) -> Free {
        match self {
            Half::Iv => FITTED[0],
            Half::VB => FITTED[1],
        }
    }

    /// What a drive shows of the half's cells.
    ///
    /// # Errors
    /// A drive's that cannot be.
    pub fn measure(self, drive: NandDrive, effort: &Effort) -> Result<Vec<f64>, Failure> {
        match self {
            Half::Iv => under_load(drive, effort),
            Half::VB => multiples(drive, effort),
        }
    }
}

/// What the fit to each half came to.
pub const FITTED: [Free; 2] = [
    Free { program_us: 2_000, erase_us: 5_000, patience_us: 3_000, spread_permille: 70 },
    Free { program_us: 2_200, erase_us: 4_000, patience_us: 1_000, spread_permille: 30 },
];

/// How much is simulated for each value.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Of the drive, in bytes.
    pub capacity: u64,
    /// Operations of the closed loop at a queue depth of 128.
    pub operations: u64,
    /// Simulated time of ACT's load for each multiple, in nanoseconds.
    pub act_ns: u64,
}

/// What a study's small form measures with: too little for the farthest percentile.
const SMALL: Effort = Effort { capacity: 1 << 30, operations: 60_000, act_ns: 500_000_000 };

/// What the fit was done with.
pub const LONG: Effort = Effort { capacity: 2 << 30, operations: 600_000, act_ns: 2_000_000_000 };

fn under_load(drive: NandDrive, effort: &Effort) -> Result<Vec<f64>, Failure> {
    let mut bed = Bed::of(drive, effort.capacity)?;
    let single = |bed: &mut Bed| {
        let outcome = bed.mixed(Arrivals::Closed { depth: 1 }, effort.operations / 60)?;
        Ok::<_, Failure>(mean_us(&outcome.both().response))
    };
    let means = [single(&mut bed)?, single(&mut Bed::named(Drive::Optane.word(), effort.capacity)?)?];
    let loaded = bed.mixed(Arrivals::Closed { depth: 128 }, effort.operations)?;
    let response = loaded.both().response;
    Ok(vec![
        loaded.throughput() / 1e3,
        means[0] / means[1],
        percentile_us(&response, 99.0),
        percentile_us(&response, 99.999),
    ])
}

fn multiples(drive: NandDrive, effort: &Effort) -> Result<Vec<f64>, Failure> {
    let mut prepared = Prepared::of(drive, effort.capacity, effort.act_ns)?;
    let mut found = Vec::new();
    for rule in [Rule::standard(), Rule::tightened()] {
        let largest = largest(8, 400, |multiple| Ok::<_, Failure>(rule.judge(&prepared.report(multiple)?)))?;
        found.push(f64::from(largest.multiple));
    }
    Ok(found)
}

/// A half's cells beside both fits: the one that was fitted to them, and the other, by which they are
/// predicted.
///
/// # Errors
/// A drive's that cannot be.
pub fn beside(run: &mut Run<'_>, half: Half) -> Result<(), Failure> {
    for of in Half::BOTH {
        run.say(&format!("{} ...", of.name()));
        let seen = half.measure(of.fitted().drive(), &run.sized(SMALL, LONG))?;
        let (what, other) = match half {
            Half::Iv => ("IV's figures of NAND", "V-B's"),
            Half::VB => ("V-B's figures of NAND", "IV's"),
        };
        let mut claim = Claim::new(&format!("{what} come out of a fit to {other} alone"), half.section());
        for ((name, unit, stated), value) in half.cells().into_iter().zip(seen) {
            let finding = Finding::new(format!("{}: {name}", of.name()), unit);
            // Of so few operations there is no such percentile.
            let value = (!run.small() || stated.cell != NAND_FAR.cell).then_some(value);
            let finding = Finding { model: value, ..finding }.from(Simulated, &half.numbers(of));
            let finding = run.finding(match half.reckoned(&stated) {
                Some(cells) => finding.reckoned(stated.value, &cells),
                None => finding.paper(&stated),
            });
            claim = claim.model(&finding, Bound::stated(&stated));
        }
        if of != half {
            run.claim(claim);
        }
    }
    Ok(())
}

/// The data sheet's random writes at a queue depth of 128, in thousands a second.
const WRITES: Stated = Stated::equal("Intel 330566: random writes", 150.0);

fn writes(drive: NandDrive, effort: &Effort) -> Result<f64, Failure> {
    let mut bed = Bed::of(drive, effort.capacity)?;
    let outcome = bed.load(Rw::RandWrite, 100, Arrivals::Closed { depth: 128 }, effort.operations / 6)?;
    Ok(outcome.throughput() / 1e3)
}

/// How far values are from what is stated: the sum of the squares of the logarithms of their ratios. On the
/// right side of a bound a value is not off.
fn off(values: &[f64], stated: &[Stated]) -> f64 {
    let each = values.iter().zip(stated).map(|(value, stated)| {
        let ratio = (value.max(0.5) / stated.value).ln();
        match stated.says {
            Says::Above => ratio.min(0.0),
            Says::Below => ratio.max(0.0),
            Says::Equal | Says::About => ratio,
        }
    });
    each.map(|ratio| ratio * ratio).sum()
}

/// The numbers by which a half's cells are met best: each in turn over its grid, twice around. `say` is told
/// what was tried.
///
/// # Errors
/// A drive's that cannot be.
pub fn fit(half: Half, effort: &Effort, say: &dyn Fn(&str)) -> Result<Free, Failure> {
    descend(START, |free| {
        let seen = half.measure(free.drive(), effort)?;
        let writes = writes(free.drive(), effort)?;
        let stated: Vec<Stated> = half.cells().into_iter().map(|(.., stated)| stated).collect();
        let off = off(&seen, &stated) + off(&[writes], &[WRITES]);
        say(&format!("{}: {free:?}: {seen:.1?}, writes {writes:.0}: off by {off:.4}", half.model()));
        Ok(off)
    })
}

/// Twice around the grid, one number at a time, from where it begins; a number moves only where that is
/// better.
fn descend(start: Free, mut off: impl FnMut(Free) -> Result<f64, Failure>) -> Result<Free, Failure> {
    let mut seen = vec![(start, off(start)?)];
    let mut best = seen[0];
    for _ in 0..2 {
        for (which, grid) in GRID.iter().enumerate() {
            for &value in *grid {
                let mut values = best.0.values();
                values[which] = value;
                let there = Free::of(values);
                if seen.iter().any(|(before, _)| *before == there) {
                    continue;
                }
                seen.push((there, off(there)?));
                if seen[seen.len() - 1].1 < best.1 {
                    best = seen[seen.len() - 1];
                }
            }
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descent_ends_at_the_least_and_leaves_alone_what_decides_nothing() {
        let wanted = Free { program_us: 1_800, erase_us: 6_000, patience_us: 1_000, spread_permille: 90 };
        let mut tried = std::collections::BTreeSet::new();
        let found = descend(START, |free| {
            let [a, b, c, _] = free.values();
            let [x, y, z, _] = wanted.values();
            assert!(tried.insert(free.values()), "tried once each");
            Ok((a.abs_diff(x) + b.abs_diff(y) + c.abs_diff(z)) as f64)
        });
        assert_eq!(found.unwrap(), Free { spread_permille: START.spread_permille, ..wanted });
    }

    #[test]
    fn a_value_beyond_a_bound_is_not_off() {
        let bound = [Stated::above("b", 10.0)];
        assert_eq!(off(&[20.0], &bound), 0.0);
        assert!(off(&[5.0], &bound) > 0.1 && off(&[0.0], &bound).is_finite());
        assert!(off(&[20.0], &[Stated::equal("e", 10.0)]) > 0.1);
    }

    #[test]
    fn each_half_is_fitted_to_nothing_of_the_other() {
        let [iv, vb] = Half::BOTH.map(|half| half.rests_on());
        assert!(iv.iter().all(|a| vb.iter().all(|b| a.cell != b.cell)));
        for half in Half::BOTH {
            assert!(half.fitted().values().iter().zip(GRID).all(|(value, grid)| grid.contains(value)));
        }
    }
}
