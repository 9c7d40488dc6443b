//! What the generator itself costs: the same machine over the engine that does nothing.

use nearside_clock::Clock;
use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::engine::null::Null;
use crate::plan::Plan;
use crate::run::{Pace, real};
use crate::workload::{Rw, Workload};

/// The generator's own cost on this machine, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// Nanoseconds for one operation from its start to its histogram, clock readings included,
    /// as fast as it goes.
    pub ns_per_io: f64,
}

/// Operations of one round.
const OPERATIONS: u64 = 20_000;

/// Measures it in a few milliseconds: the least of five rounds, since all that disturbs adds.
#[must_use]
pub fn measure(clock: &impl Clock) -> GeneratorCost {
    let workload = Workload::new(Rw::RandRead, 4096, 1 << 30);
    let mut plan = Plan::new(workload, Arrivals::Closed { depth: 1 }, 0);
    (plan.runtime_ns, plan.count) = (None, Some(OPERATIONS));
    let round = || {
        let ran = real(&plan, &mut Null::new(1), clock, Pace::default()).ok()?;
        Some(ran.outcome.window_ns() as f64 / OPERATIONS as f64)
    };
    let best = (0..5).filter_map(|_| round()).fold(f64::INFINITY, f64::min);
    GeneratorCost { ns_per_io: if best.is_finite() { best } else { 0.0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured() {
        let cost = measure(&nearside_clock::TscClock::new());
        // Checks on and optimised a little: the benchmark holds the promise.
        assert!(cost.ns_per_io > 5.0 && cost.ns_per_io < 5_000.0, "{cost:?}");
    }
}
