//! Fig. 3, beyond the paper: from which device time on a CPU full of asynchronous reads does more of them
//! than one synchronous thread, and what the time that a cache line takes between cores has to do with it.
//!
//! A synchronous read keeps its CPU for its own work and the device's time; an asynchronous one for its work
//! alone, which switches and wake-ups are most of. So they cross where the device takes as long as the one
//! has more work than the other. Lines that pass between the cores of host and drive lengthen the
//! synchronous read as a slower device would, and the asynchronous one by the completion that it fetches.

use nearside_driver::Policy;
use nearside_instrument::completion::{Bench, cores};
use nearside_loadgen::floor::{self, Effort};
use nearside_media::Delay;
use nearside_sim::cpu::{Costs, Host, IoProgram};

use super::figure3::{Rate, busy, filled, measure};
use super::machine::path_core;
use super::parameters::{HOST, LINES};
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale};

/// Device times in nanoseconds.
const DEVICES_NS: [u64; 7] = [500, 1_500, 3_000, 6_000, 12_000, 24_000, 48_000];
/// A line's round trip between two cores, in nanoseconds: none, as in the paper's figures, and those of two
/// machines with virtual cores.
pub(super) const LINES_NS: [u64; 3] = [0, 108, 300];
/// Round trips of lines that a read waits for: the command and its doorbell with the drive, the completion,
/// and the data.
pub(super) const TRANSFERS: u64 = 3;
/// Bytes of a read.
const BYTES: u32 = 512;

/// The paper's device with reads of 512 B (Table 1, polling), in nanoseconds.
const GEN2_NS: f64 = 1_500.0;

/// What both paths do with a device.
struct Both {
    device_ns: u64,
    /// Reads a second of one thread.
    synchronous: f64,
    /// Of a CPU full of them.
    asynchronous: f64,
}

impl Both {
    fn share(&self) -> f64 {
        self.asynchronous / self.synchronous
    }
}

/// Where the asynchronous path catches up, in nanoseconds of device time: between two of those tried.
fn crossing(tried: &[Both]) -> Option<f64> {
    tried.windows(2).find_map(|pair| {
        let (low, high) = (pair[0].share(), pair[1].share());
        let step = (pair[1].device_ns - pair[0].device_ns) as f64;
        (low < 1.0 && high >= 1.0).then(|| pair[0].device_ns as f64 + step * (1.0 - low) / (high - low))
    })
}

/// What the crossing should be by the first device alone: the CPU time of an asynchronous read less what a
/// synchronous one takes beside the device's time.
fn expected(tried: &[Both]) -> Option<f64> {
    let first = tried.first()?;
    let own = 1e9 / first.synchronous - first.device_ns as f64;
    Some(1e9 / first.asynchronous - own)
}

fn simulated(line_ns: u64, device_ns: u64, policy: Policy, threads: usize) -> Result<Rate, Failure> {
    let costs = Costs::fast12();
    let costs = Costs { handler_ns: costs.handler_ns + line_ns, ..costs };
    let host = Host::alike(costs, 1, threads, &IoProgram::reads(policy, BYTES));
    let outcome = host.run(Delay::fixed(device_ns + TRANSFERS * line_ns).medium())?;
    Ok(Rate { iops: outcome.iops(), busy: busy(&outcome), threads, interrupts: 0.0 })
}

fn modelled(line_ns: u64) -> Result<Vec<Both>, Failure> {
    let one = |&device_ns: &u64| {
        let synchronous = simulated(line_ns, device_ns, Policy::Polled, 1)?.iops;
        let full = filled(|threads| simulated(line_ns, device_ns, Policy::Interrupt, threads))?;
        Ok(Both { device_ns, synchronous, asynchronous: full.iops })
    };
    DEVICES_NS.iter().map(one).collect()
}

/// Rounds over all devices.
fn measured(run: &Run<'_>, core: usize) -> Result<Vec<Vec<Both>>, Failure> {
    let (rounds, millis) = run.sized((1, 30), (3, 100));
    let one = |&device_ns: &u64| {
        let bench = Bench::new(Delay::fixed(device_ns).medium())?;
        let of = |policy, threads| measure(bench.driver(), &[core], policy, threads, millis);
        let synchronous = of(Policy::Polled, 1)?.iops;
        let asynchronous = filled(|threads| of(Policy::Interrupt, threads))?.iops;
        Ok(Both { device_ns, synchronous, asynchronous })
    };
    let round = |at| {
        run.say(&format!("round {} of {rounds}", at + 1));
        DEVICES_NS.iter().map(one).collect()
    };
    (0..rounds).map(round).collect()
}

/// The model by lines, and this machine with what it has.
pub(super) fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::lines(
        "crossing",
        "Reads of a CPU full of asynchronous ones over those of one synchronous thread, 512 B",
        Scale::log("device time, us"),
        Scale::log("asynchronous over synchronous"),
    ));
    let machine = match path_core() {
        Some(core) => measured(run, core)?,
        None => Vec::new(),
    };
    let mut without = Vec::new();
    for line_ns in LINES_NS {
        let model = modelled(line_ns)?;
        for (at, both) in model.iter().enumerate() {
            let us = both.device_ns as f64 / 1e3;
            let name = format!("asynchronous over synchronous, device {us} us, line {line_ns} ns");
            let finding = Finding::new(name, "").model(both.share()).from(Simulated, &[HOST, LINES]);
            let finding = finding.point("crossing", &format!("line {line_ns} ns"), us);
            // The machine's own line is measured below.
            let shares = machine.iter().filter(|_| line_ns == LINES_NS[0]).map(|round| round[at].share());
            run.finding(with(finding, shares));
        }
        let at = crossing(&model).ok_or("the model's paths do not cross")?;
        let name = format!("device time from which asynchronous reads are more, line {line_ns} ns");
        run.finding(Finding::new(name, "us").model(at / 1e3).from(Simulated, &[HOST, LINES]));
        if line_ns == LINES_NS[0] {
            without = model;
        }
    }
    let mut both = |name: &str, of: fn(&[Both]) -> Option<f64>| {
        let model = of(&without).ok_or("the model's paths do not cross")? / 1e3;
        let finding = Finding::new(name, "us").model(model).from(Simulated, &[HOST, LINES]);
        let machine = machine.iter().filter_map(|round| of(round)).map(|ns| ns / 1e3);
        Ok::<_, Failure>(run.finding(with(finding, machine)))
    };
    let found = both("device time of equal reads", crossing)?;
    let reckoned = both("an asynchronous read's CPU time less a synchronous read's own work", expected)?;
    run.claim(
        Claim::new("the asynchronous path gains from the device time on by which it has more work", "3.3")
            .both(Quantity::from(&found).over(&reckoned), Bound::Between([0.75, 1.25]))
            .because(
                "The work is taken from the shortest device time, the crossing from all. Lines between cores lengthen the \
                 synchronous read, so that the crossing comes sooner where they are slow",
            ),
    );
    floors(run, &machine)
}

/// With a round's figures each, where there are any.
fn with(finding: Finding, rounds: impl Iterator<Item = f64>) -> Finding {
    let rounds: Vec<f64> = rounds.collect();
    if rounds.is_empty() { finding } else { finding.machine(&rounds) }
}

/// What this machine's lines and switches take, beside which its shares stand.
fn floors(run: &mut Run<'_>, machine: &[Vec<Both>]) -> Result<(), Failure> {
    let (Some(core), Some(&drive)) = (path_core(), cores().first()) else { return Ok(()) };
    let shortest: Vec<&Both> = machine.iter().filter_map(|round| round.first()).collect();
    if shortest.is_empty() {
        return Ok(());
    }
    let effort = if run.small() { Effort::TEST } else { Effort::FAST };
    let Some(line) = floor::ping_pong(effort, core, drive)? else { return Ok(()) };
    let line =
        run.finding(Finding::new("a line's round trip between the cores", "ns").machine(&[line.value]));
    let [.., switch] = floor::switch(effort, core)?;
    let switch = Finding::new("a wake-up with its switch on one core", "ns").machine(&[switch.value]);
    let switch = run.finding(switch);
    let own_ns = |both: &Both| 1e9 / both.synchronous - both.device_ns as f64;
    let work_ns = |both: &Both| 1e9 / both.asynchronous;
    let own = Finding::new("a synchronous read without the device's time", "ns");
    let own = own.machine(&shortest.iter().map(|both| own_ns(both)).collect::<Vec<_>>());
    run.finding(own.beside(&line));
    let work = Finding::new("CPU time of an asynchronous read on a full CPU", "ns");
    let work = work.machine(&shortest.iter().map(|both| work_ns(both)).collect::<Vec<_>>());
    run.finding(work.beside(&switch));
    let Some(line_ns) = line.measured() else { return Ok(()) };
    // How many lines a read waits for lies between what it cannot do without and all of its own time.
    let slow = LINES_NS[LINES_NS.len() - 1] as f64;
    let slower =
        |both: &Both, lines: f64| (own_ns(both) + lines * (slow - line_ns) + GEN2_NS) / work_ns(both);
    let needed = |both: &Both| slower(both, TRANSFERS as f64);
    let whole = |both: &Both| slower(both, own_ns(both) / line_ns);
    let bounds = [("at least", f64::min as fn(f64, f64) -> f64), ("at most", f64::max)];
    for (words, bound) in bounds {
        let name = format!("asynchronous over synchronous, full CPU, were a line {slow} ns, {words}");
        let shares: Vec<f64> = shortest.iter().map(|both| bound(needed(both), whole(both))).collect();
        run.finding(Finding::new(name, "").machine(&shares));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_lines_bring_the_crossing_nearer_by_what_the_reads_wait_for_them() {
        let at = |line_ns| crossing(&modelled(line_ns).unwrap()).unwrap();
        let (none, slow) = (at(0), at(300));
        // Three round trips less the one that the asynchronous path's handler waits for as well.
        let nearer = none - slow;
        assert!((nearer - 600.0).abs() < 100.0, "{none} {slow}");
    }

    #[test]
    fn where_they_cross_is_between_what_was_tried() {
        let both = |device_ns, synchronous, asynchronous| Both { device_ns, synchronous, asynchronous };
        let tried = [both(1_000, 2.0, 1.0), both(3_000, 1.0, 1.5)];
        assert_eq!(crossing(&tried), Some(2_000.0));
        assert_eq!(crossing(&tried[..1]), None);
        // 500 ns and 1000 ns of device; 2000 ns of work.
        assert_eq!(expected(&[both(1_000, 1e9 / 1_500.0, 1e9 / 2_000.0)]), Some(1_500.0));
    }
}
