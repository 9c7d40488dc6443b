//! What page misses take on this machine, by the kernel's paging to drives that are attached
//! (PIEEE'17 III-B, FAST'12 section 4).

use std::process::Command;

use nearside_apps::swap::{Load, Misses, Swap};
use nearside_apps::{Drive, Group};
use nearside_loadgen::{Arrivals, Rw, Workload};

use crate::pieee17::real::{Length, Real};
use crate::{Failure, Run, applications};

/// How the kernel pages, and what touches pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The kernel reads 2 to the power of it pages around a miss (vm.page-cluster).
    pub cluster: u32,
    /// Touches write.
    pub dirty: bool,
    /// One page after the other, not at random.
    pub in_order: bool,
}

/// What a drive's rounds came to.
#[derive(Default)]
pub struct Paged {
    /// Of each case, each round's.
    pub cases: Vec<Vec<Misses>>,
    /// What a direct read of 4 KiB from the same device took in each round, at the mean: in microseconds.
    pub direct_us: Vec<f64>,
}

impl Paged {
    /// A value of each round of a case.
    pub fn of(&self, case: usize, value: impl Fn(&Misses) -> f64) -> Vec<f64> {
        self.cases.get(case).into_iter().flatten().map(value).collect()
    }
}

/// All cases on models of those names, in turn. Of a machine that cannot page to a drive: nothing measured.
pub fn measure(run: &mut Run<'_>, models: &[&str], cases: &[Case]) -> Result<Vec<Paged>, Failure> {
    let mut found: Vec<Paged> = models.iter().map(|_| Paged::default()).collect();
    let Some(program) = applications::program(run, &["mkswap", "swapon", "swapoff"]) else {
        return Ok(found);
    };
    if let Err(lacks) = Group::new(64 << 20) {
        run.note(format!("This machine's column was left out: {lacks}."));
        return Ok(found);
    }
    let (memory, bytes, touches) = run.sized((32 << 20, 64 << 20, 1_500), (64 << 20, 256 << 20, 20_000));
    let attach = |model: &&str| Drive::attach(program, &format!("model:{model}:1GiB"), &["--lock-memory"]);
    let drives = models.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
    let second = || {
        let mut command = Command::new(program);
        command.args(["app", "second"]);
        command
    };
    for paged in &mut found {
        paged.cases = vec![Vec::new(); cases.len()];
    }
    for round in 0..run.sized(2, 5) {
        for ((drive, model), paged) in drives.iter().zip(models).zip(&mut found) {
            run.say(&format!("paging to {model}, round {}", round + 1));
            let swap = Swap::on(drive, 0, bytes)?;
            for (Case { cluster, dirty, in_order }, rounds) in cases.iter().copied().zip(&mut paged.cases) {
                swap.cluster(cluster)?;
                let load = Load { memory, bytes, touches, dirty, in_order, seed: round + 1 };
                rounds.push(swap.misses(&load, &second)?);
            }
            drop(swap);
            // What was paged out lies there: reads of what was never written take no flash's time.
            let workload = Workload::new(Rw::RandRead, 4096, bytes / 4);
            let mut direct = Real::open(&format!("pread:{}", drive.device().display()), workload)?;
            let length = Length::Count(run.sized(500, 5_000));
            paged.direct_us.extend(direct.runs(1, Arrivals::Closed { depth: 1 }, length)?.mean_us());
        }
    }
    Ok(found)
}
