//! Cache and TLB pollution (section 3.4), by a neighbour in the slots that asynchronous reads leave: what a
//! step of its walk through memory takes and misses, alone and there.
//!
//! A walk that fits the nearest cache shows what the switches cost it; a larger one what it loses of its
//! cache besides. Time is the neighbour's own CPU time, taken without counters; then each counter is read in
//! runs of its own, since every switch saves and restores those that are open.

use nearside_clock::{Clock, TscClock};
use nearside_dma::cpu::cpu_clock_resolution_ns;
use nearside_driver::{Driver, Policy};

use super::counters::Event;
use super::machine::{Caller, path_core, read};
use super::second::{Second, Walk};
use crate::{Bound, Chart, Claim, Failure, Finding, Run, Scale};

const SETS: [(u64, &str); 3] = [(16 << 10, "16 KiB"), (256 << 10, "256 KiB"), (4 << 20, "4 MiB")];
const ALONE: &str = "alone";
const SLOTS: &str = "in the slots of asynchronous reads";

/// What the neighbour's walks show, in time and by counters.
pub fn neighbour(run: &mut Run<'_>, driver: &Driver) -> Result<(), Failure> {
    let Some(core) = path_core() else {
        run.note("This machine has no core beside the drive's, and so no neighbour's slots.");
        return Ok(());
    };
    let rig = Rig { driver, core };
    slow_down(run, &rig)?;
    let mut claim = Claim::new("by its counters: thread data held in cache and TLBs are replaced", "3.4");
    for event in Event::ALL {
        let Some(beside) = counted(run, &rig, event)? else { continue };
        if PAPERS.contains(&event) {
            // The last working set fits no cache and has nothing to lose.
            let fitting = beside.iter().take(SETS.len() - 1);
            claim = fitting.fold(claim, |claim, beside| claim.machine(beside.ratio(), Bound::Above(1.0)));
        }
    }
    if !claim.checks.is_empty() {
        run.claim(claim);
    }
    run.note(
        "Slow-down is by the neighbour's own CPU time, as the kernel accounts it. Its counters count its own events in user mode, one \
         counter at a time, in runs apart: a counter that is open makes each switch longer. What the kernel calls a cache's references and \
         misses is the processor's affair; with AMD's Zen they are the second level's.",
    );
    Ok(())
}

/// The caches that the paper names.
const PAPERS: [Event; 2] = [Event::CacheMisses, Event::TlbMisses];

fn slow_down(run: &mut Run<'_>, rig: &Rig<'_>) -> Result<(), Failure> {
    let (rounds, millis) = run.sized((2, 100), (7, 400));
    let mut slots_over_alone = Vec::new();
    for (bytes, size) in SETS {
        run.say(&format!("a neighbour that walks through {size}"));
        let (mut alone, mut beside, mut slots) = (Each::default(), Each::default(), Each::default());
        for _ in 0..rounds {
            let walk = rig.alone(run, bytes, millis, None)?;
            alone.take(walk.cpu_ns as f64, walk.steps);
            let (walk, reads) = rig.in_slots(run, bytes, millis, None)?;
            beside.take(walk.cpu_ns as f64, walk.steps);
            slots.take(walk.cpu_ns as f64 / 1e3, reads);
        }
        let clock_ns = cpu_clock_resolution_ns() as f64;
        let name = |how: &str| format!("a neighbour's step through {size}, {how}");
        let alone = run.finding(alone.of(Finding::new(name(ALONE), "ns"), clock_ns));
        let beside = beside.of(Finding::new(name(SLOTS), "ns"), clock_ns);
        let beside = run.finding(beside.beside(&alone));
        let each = Finding::new(format!("a neighbour's CPU time for each read, {size}"), "us");
        run.finding(slots.of(each, clock_ns / 1e3));
        slots_over_alone.push(beside.ratio());
    }
    // The smallest shows what the switches cost; a working set that fills the second level loses more.
    if let [smallest, larger, ..] = &slots_over_alone[..] {
        run.claim(
            Claim::new("the slots pollute caches: whoever runs in them loses what it held", "3.4")
                .machine(larger.clone().over(smallest.clone()), Bound::Above(1.05)),
        );
    }
    Ok(())
}

/// A CPU time by rounds, for each of what was done in it.
#[derive(Default)]
struct Each {
    runs: Vec<f64>,
    /// The fewest in a round.
    least: Option<u64>,
}

impl Each {
    fn take(&mut self, time: f64, count: u64) {
        let count = count.max(1);
        self.runs.push(time / count as f64);
        self.least = Some(self.least.map_or(count, |least| least.min(count)));
    }

    /// `clock` is what the clock tells apart in a round, in the finding's unit: it is read before and after.
    fn of(&self, finding: Finding, clock: f64) -> Finding {
        finding.machine(&self.runs).resolved_to(clock / self.least.unwrap_or(1) as f64)
    }
}

/// An event's counts for 1,000 steps, alone and in the slots; the latter by working set. None, and a remark
/// why, where this machine does not count it.
fn counted(run: &mut Run<'_>, rig: &Rig<'_>, event: Event) -> Result<Option<Vec<Finding>>, Failure> {
    let (rounds, millis) = run.sized((1, 60), (5, 150));
    let word = event.name();
    run.say(&format!("{word} of a neighbour"));
    let mut found = Vec::new();
    for (bytes, size) in SETS {
        let (mut alone, mut beside, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let one = rig.alone(run, bytes, millis, Some(event))?;
            let (other, reads) = rig.in_slots(run, bytes, millis, Some(event))?;
            match (for_1000(&one), for_1000(&other)) {
                (Ok(one), Ok(in_slots)) => {
                    alone.push(one);
                    beside.push(in_slots);
                    lost.push((in_slots - one) / 1e3 * other.steps as f64 / reads.max(1) as f64);
                }
                (Err(why), _) | (_, Err(why)) => {
                    run.note(format!("{word} of the neighbour: the counter {why}."));
                    return Ok(None);
                }
            }
        }
        let finding = |how: &str, runs: &[f64]| {
            let name = format!("{word} of a neighbour's 1,000 steps through {size}, {how}");
            let finding = Finding::new(name, "").machine(runs);
            if PAPERS.contains(&event) { finding.point(word, how, size) } else { finding }
        };
        let alone = run.finding(finding(ALONE, &alone));
        let beside = run.finding(finding(SLOTS, &beside).beside(&alone));
        if event != Event::Instructions {
            let name = format!("{word} that a read adds to a neighbour's through {size}");
            run.finding(Finding::new(name, "").machine(&lost));
        }
        found.push(beside);
    }
    if PAPERS.contains(&event) {
        let caption = format!("{word} of a neighbour's 1,000 steps, by its working set");
        run.chart(Chart::sides(word, &caption, Scale::log(word)));
    }
    Ok(Some(found))
}

/// What the counter counted for 1,000 steps.
fn for_1000(walk: &Walk) -> Result<f64, String> {
    let counted = walk.counted.clone().unwrap_or(Err("was not asked for".to_owned()))?;
    Ok(counted * 1e3 / walk.steps.max(1) as f64)
}

/// The drive whose reads leave the slots, and their core.
struct Rig<'a> {
    driver: &'a Driver,
    core: usize,
}

impl Rig<'_> {
    fn alone(&self, run: &Run<'_>, bytes: u64, millis: u64, event: Option<Event>) -> Result<Walk, Failure> {
        let second = Second::walk(run.helper(), self.core, bytes, event)?;
        std::thread::sleep(std::time::Duration::from_millis(millis));
        second.walked()
    }

    /// The reads meanwhile.
    fn in_slots(
        &self,
        run: &Run<'_>,
        bytes: u64,
        millis: u64,
        event: Option<Event>,
    ) -> Result<(Walk, u64), Failure> {
        let mut caller = Caller::new(self.driver, 4096)?;
        caller.io.set_policy(Policy::Interrupt);
        let second = Second::walk(run.helper(), self.core, bytes, event)?;
        let clock = TscClock::new();
        let end = clock.now() + millis * 1_000_000;
        let mut reads = 0;
        while clock.now() < end {
            caller.execute(&read(reads, 4096))?;
            reads += 1;
        }
        caller.close()?;
        Ok((second.walked()?, reads))
    }
}
