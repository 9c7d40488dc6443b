//! Ways to wait for a completion: the two paths, the hybrid, and two rules that others have used.

use nearside_clock::Nanos;
use nearside_driver::policy::{History, Path, Slept};
use nearside_driver::{CommandKind, Policy};

/// How one waits.
#[derive(Clone, Debug)]
pub enum Rule {
    /// The driver's own policies: both paths, and the hybrid.
    Own(Policy, Box<History>),
    /// Linux's hybrid polling, 4.10 to 6.3 (block/blk-mq.c):
    /// sleep half the mean time of such requests, then spin.
    HalfMean {
        /// Their mean, in nanoseconds.
        mean_ns: f64,
    },
    /// Adaptive sleep, as the sleeping part of DPAS (FAST'26) has it: woke after the completion, and the next
    /// sleep is shorter by a fifth; woke before, and it is longer by a fiftieth; then spin.
    Adaptive {
        /// The next sleep, in nanoseconds.
        sleep_ns: f64,
    },
}

/// What to do with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Ask the asynchronous path.
    pub asynchronous: bool,
    /// Else sleep so long before spinning.
    pub sleep_ns: u64,
    /// Spin at most so long, then sleep until the interrupt.
    pub spin_ns: u64,
}

impl Rule {
    /// All of them, with their names. A wake-up is first guessed to cost `wake_ns`.
    pub fn all(wake_ns: u64) -> [(&'static str, Rule); 5] {
        let own = |policy| Rule::Own(policy, Box::new(History::new(wake_ns)));
        [
            ("synchronous", own(Policy::Polled)),
            ("asynchronous", own(Policy::Interrupt)),
            ("hybrid", own(Policy::Hybrid)),
            ("half the mean", Rule::HalfMean { mean_ns: 0.0 }),
            ("adaptive sleep", Rule::Adaptive { sleep_ns: 0.0 }),
        ]
    }

    /// The driver's policy, where it is one.
    pub fn policy(&self) -> Option<Policy> {
        if let Rule::Own(policy, _) = self { Some(*policy) } else { None }
    }

    /// What to do with a read of so many bytes.
    pub fn decide(&self, bytes: usize, now: Nanos) -> Decision {
        match self {
            Rule::Own(policy, history) => {
                let plan = history.decide(*policy, CommandKind::Read, bytes, now);
                let asynchronous = plan.path == Path::Asynchronous;
                Decision { asynchronous, sleep_ns: plan.sleep_ns, spin_ns: plan.spin_budget_ns }
            }
            Rule::HalfMean { mean_ns } => spin_after(mean_ns / 2.0),
            Rule::Adaptive { sleep_ns } => spin_after(*sleep_ns),
        }
    }

    /// How it went: the whole time, and the sleep before the spin.
    pub fn learn(&mut self, bytes: usize, took_ns: u64, slept: Option<Slept>, exact: bool, now: Nanos) {
        match self {
            Rule::Own(_, history) => {
                history.record(CommandKind::Read, bytes, took_ns, exact, now);
                if let Some(slept) = slept {
                    history.slept(CommandKind::Read, bytes, slept);
                }
            }
            // As the kernel's statistics of a window do.
            Rule::HalfMean { mean_ns } if *mean_ns == 0.0 => *mean_ns = took_ns as f64,
            Rule::HalfMean { mean_ns } => *mean_ns += (took_ns as f64 - *mean_ns) / 64.0,
            Rule::Adaptive { sleep_ns } if *sleep_ns == 0.0 => *sleep_ns = took_ns as f64 / 2.0,
            Rule::Adaptive { sleep_ns } => {
                *sleep_ns *= if slept.is_some_and(|s| s.late) { 0.8 } else { 1.02 };
            }
        }
    }
}

fn spin_after(sleep_ns: f64) -> Decision {
    Decision { asynchronous: false, sleep_ns: sleep_ns as u64, spin_ns: u64::MAX }
}
