//! By what the claims are judged: pure functions of figures,
//! one rule for the model's column and the machine's.
//!
//! A study measures and asks here; whether a rule judges rightly is tested here, with figures that are fed to
//! it. So no test's outcome hangs on what a machine measures.

/// Each of the ratios that there are is above 1; nothing is claimed where there is none.
pub fn all_above_one(ratios: impl IntoIterator<Item = Option<f64>>) -> Option<bool> {
    let mut ratios = ratios.into_iter().flatten().peekable();
    ratios.peek()?;
    Some(ratios.all(|ratio| ratio > 1.0))
}

/// The values rise, each above the one before.
pub fn rise(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] < pair[1])
}

/// The last is below each of the others.
pub fn last_is_least(values: &[f64]) -> bool {
    values.split_last().is_some_and(|(last, others)| others.iter().all(|other| last < other))
}

/// Within a part of what is expected.
pub fn near(value: f64, expected: f64, within: f64) -> bool {
    (value / expected - 1.0).abs() < within
}

/// FAST'12 3.4: one interrupt for many completions costs less CPU and takes longer;
/// both as ratios over an interrupt for each.
pub fn coalescing(cpu: f64, latency: f64) -> bool {
    cpu < 1.0 && latency > 1.0
}

/// FAST'12 3.4: what a neighbour held is replaced: its events per step in the slots over alone, by growing
/// working set, of which the last fits no cache and has nothing to lose.
pub fn replaced(ratios: &[f64]) -> bool {
    ratios.split_last().is_some_and(|(_, fitting)| !fitting.is_empty() && fitting.iter().all(|r| *r > 1.0))
}

/// FAST'12 3.4: whoever runs in the slots slows down by more than the switches' own cost,
/// which the smallest working set shows.
pub fn pollutes(slow_downs: &[f64]) -> bool {
    slow_downs.first().is_some_and(|first| *first > 0.0 && slow_downs.iter().any(|r| *r > first * 1.05))
}

/// FAST'12 3.4: the asynchronous path's share of the synchronous one's reads.
pub fn asynchronous_share(share: f64) -> bool {
    (0.6..=0.7).contains(&share)
}

/// FAST'12 4: times of non-blocking calls and of a queue of completions, over a blocking call's.
pub fn no_benefit(calls: f64, queue: f64) -> bool {
    calls > 0.98 && queue > 1.0
}

/// PIEEE'17 III-B: reads per second of interfaces, of which the last is PCIe.
pub fn pcie_reaches(most: &[f64]) -> bool {
    most.split_last()
        .is_some_and(|(pcie, others)| near(*pcie, 800e3, 0.05) && others.iter().all(|o| pcie > o))
}

/// PIEEE'17 IV: NAND's mean response time over Optane's.
pub fn about_ten(ratio: f64) -> bool {
    (5.0..=15.0).contains(&ratio)
}

/// Reads per second by queue depth.
pub type Line = Vec<(u32, f64)>;

fn at(line: &Line, depth: u32) -> f64 {
    line.iter().find(|(d, _)| *d == depth).map_or(0.0, |(_, iops)| *iops)
}

/// PIEEE'17 IV: Optane reaches at a queue depth of 4 what NAND reaches at 128.
pub fn four_is_as_good(optane: &Line, nand: &Line) -> bool {
    at(optane, 4) > 0.9 * at(nand, 128)
}

/// PIEEE'17 IV: it is at its most at a queue depth of 8.
pub fn most_at_eight(line: &Line) -> bool {
    at(line, 8) > 0.95 * line.iter().map(|(_, iops)| *iops).fold(0.0, f64::max)
}

/// PIEEE'17 IV: it needs high queue depths.
pub fn needs_depth(line: &Line) -> bool {
    at(line, 8) < 0.5 * at(line, 128)
}

/// PIEEE'17 Fig. 6's three cases: queue depth at the SSD, queue depth of the system, response time.
pub type Case = (f64, f64, f64);

/// PIEEE'17 IV: each case has the queue depth that the paper says, at the SSD.
pub fn depths_are(found: &[Case], paper: &[f64], within: f64) -> bool {
    found.len() == paper.len()
        && found.iter().zip(paper).all(|((depth, ..), paper)| near(*depth, *paper, within))
}

/// PIEEE'17 IV: (a) and (c) have about the same queue depth in the system,
/// and response times that lie far apart.
pub fn unfair(found: &[Case]) -> bool {
    let [a, _, c] = found else { return false };
    a.2 > 4.0 * c.2 && (a.1 - c.1).abs() < 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_judged_where_there_are_some() {
        assert_eq!(all_above_one([]), None);
        assert_eq!(all_above_one([None, None]), None, "nothing was measured: nothing is claimed");
        assert_eq!(all_above_one([Some(1.2), None, Some(1.01)]), Some(true));
        assert_eq!(all_above_one([Some(1.2), Some(1.0)]), Some(false));
        assert_eq!(all_above_one([Some(f64::NAN)]), Some(false));
    }

    #[test]
    fn orders() {
        assert!(rise(&[1.0, 2.0, 3.0]) && !rise(&[1.0, 1.0]) && !rise(&[1.0, 3.0, 2.0]));
        assert!(last_is_least(&[3.0, 2.0, 1.0]) && !last_is_least(&[1.0, 2.0, 1.5]) && !last_is_least(&[]));
        assert!(near(1.04, 1.0, 0.05) && near(0.96, 1.0, 0.05) && !near(1.06, 1.0, 0.05));
    }

    #[test]
    fn fast12() {
        assert!(coalescing(0.2, 3.0) && !coalescing(1.1, 3.0) && !coalescing(0.2, 0.9));
        // The largest set does not count.
        assert!(
            replaced(&[1.5, 1.1, 0.8]) && !replaced(&[1.5, 0.9, 2.0]) && !replaced(&[]) && !replaced(&[2.0])
        );
        assert!(
            pollutes(&[1.2, 1.8, 1.1])
                && !pollutes(&[1.2, 1.2, 1.25])
                && !pollutes(&[0.0, 2.0])
                && !pollutes(&[])
        );
        assert!(
            asynchronous_share(0.6)
                && asynchronous_share(0.7)
                && !asynchronous_share(0.29)
                && !asynchronous_share(1.44)
        );
        assert!(no_benefit(0.99, 1.01) && !no_benefit(0.9, 1.2) && !no_benefit(1.2, 1.0));
    }

    #[test]
    fn pieee17() {
        assert!(pcie_reaches(&[100e3, 400e3, 801e3]));
        assert!(
            !pcie_reaches(&[100e3, 400e3, 700e3])
                && !pcie_reaches(&[100e3, 900e3, 800e3])
                && !pcie_reaches(&[])
        );
        assert!(about_ten(10.4) && !about_ten(4.9) && !about_ten(15.1));
        let optane = vec![(1, 130.0), (4, 350.0), (8, 540.0), (128, 550.0)];
        let nand = vec![(1, 9.0), (4, 36.0), (8, 70.0), (128, 260.0)];
        assert!(four_is_as_good(&optane, &nand) && !four_is_as_good(&nand, &optane));
        assert!(most_at_eight(&optane) && !most_at_eight(&nand));
        assert!(needs_depth(&nand) && !needs_depth(&optane));
        let cases = [(5.0, 5.5, 110.0), (0.5, 1.0, 20.0), (2.5, 5.0, 20.0)];
        assert!(depths_are(&cases, &[5.0, 0.5, 2.5], 0.05) && unfair(&cases));
        assert!(!depths_are(&cases, &[5.0, 0.6, 2.5], 0.05) && !depths_are(&cases, &[5.0], 0.05));
        assert!(!unfair(&[(5.0, 5.5, 70.0), (0.5, 1.0, 20.0), (2.5, 5.0, 20.0)]) && !unfair(&[]));
        assert!(!unfair(&[(5.0, 7.5, 110.0), (0.5, 1.0, 20.0), (2.5, 5.0, 20.0)]));
    }
}
