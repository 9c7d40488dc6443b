//! The runners: they let time pass between a generator's steps, real or simulated.

use nearside_clock::{Clock, Nanos, SimClock};
use nearside_dma::cpu::{cpu_clock_resolution_ns, thread_cpu_ns};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, EngineCost};
use crate::generator::{Generator, Wake};
use crate::outcome::Outcome;
use crate::plan::{Plan, PlanError};
use crate::stall::{StallLog, Taken};

/// How to run in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Lets an engine that can sleep do so (the thread's timers then stay sharp);
    /// else the thread spins, which dates completions best.
    pub may_sleep: bool,
    /// It sleeps only where the next operation is due later than this, and wakes this much before, in
    /// nanoseconds: a thread that sleeps until the very moment starts late.
    pub early_ns: u64,
    /// Gaps above this are stalls, in nanoseconds.
    pub stall_ns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { may_sleep: false, early_ns: 20_000, stall_ns: 5_000 }
    }
}

/// CPU time that a run took, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Software, the kernel's part included: all that is none of the others. (The scheduler's clock does not
    /// tell user from system time.)
    pub software_ns: u64,
    /// Spinning for completions while operations were in flight.
    pub spin_ns: u64,
    /// Spinning until the next operation was due, with none in flight: the generator's own waiting.
    pub idle_ns: u64,
    /// Running a device on the generator's thread.
    pub device_ns: u64,
    /// What the scheduler's clock tells apart.
    pub resolution_ns: u64,
}

/// A run in real time.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was measured.
    pub outcome: Outcome,
    /// The CPU time of the generator's thread and of the engine's own, warm-up and draining included.
    pub cpu: Cpu,
    /// When the core was taken away.
    pub stalls: StallLog,
    /// Operations that ended, warm-up included: what the CPU time was spent on.
    pub operations: u64,
    /// From its begin to its end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Of that, what the generator's thread did not spend waiting (for an answer, or for the next operation
    /// to be due) nor running a device. A look at the engine that finds nothing ended counts as waiting,
    /// whatever it moved.
    pub busy_ns: u64,
    /// The thread's wait for a core while it could run, where the kernel counts it.
    pub scheduler_wait_ns: Option<u64>,
    /// Time that the hypervisor gave to others on any core, to a tick.
    pub stolen_ns: Option<u64>,
}

/// Runs a plan on this thread in real time.
///
/// # Errors
/// What is wrong with the plan.
pub fn real<E: Engine + ?Sized>(
    plan: &Plan,
    engine: &mut E,
    clock: &impl Clock,
    pace: Pace,
) -> Result<Ran, PlanError> {
    watched(plan, engine, clock, pace, |_| true)
}

/// Runs a plan in real time; `watch` sees the generator about ten times a second,
/// and ends the run by `false`.
///
/// # Errors
/// What is wrong with the plan.
pub fn watched<E: Engine + ?Sized>(
    plan: &Plan,
    engine: &mut E,
    clock: &impl Clock,
    pace: Pace,
    mut watch: impl FnMut(&Generator) -> bool,
) -> Result<Ran, PlanError> {
    let mut stalls = StallLog::new(pace.stall_ns);
    let taken = Taken::now();
    let (cpu_ns, cost) = (thread_cpu_ns().unwrap_or(0), engine.cost());
    let began = clock.now();
    let mut generator = Generator::new(plan, engine.depth(), began)?;
    let (mut operations, mut spin_ns, mut idle_ns, mut slept_ns) = (0, 0, 0, 0);
    let mut now = began;
    let device_began = engine.device_ns();
    let mut device_ns = device_began;
    let mut look_at = began + LOOK_NS;
    let blocks = engine.blocks();
    if pace.may_sleep {
        nearside_dma::system::sharp_sleeps();
    }
    loop {
        let waiting_for_answers = generator.in_flight() > 0;
        let mut step = generator.step(now, engine);
        operations += step.ended as u64;
        if step.worked {
            let stalls = (!blocks).then_some(&mut stalls);
            (step.wake, now) = start_due(&mut generator, engine, clock, stalls, (began, now), step.wake);
        }
        let until = match step.wake {
            Wake::Over => break,
            Wake::Now => None,
            Wake::At(at) => Some(at),
            Wake::Poll(until) => Some(until.unwrap_or(now + LOOK_NS)),
        };
        let may_sleep = pace.may_sleep && now >= generator.spins_until();
        let until = until.filter(|until| may_sleep && until.since(now) > pace.early_ns);
        if let Some(until) = until {
            let from = clock.now();
            engine.wait(Some(Nanos(until.0.saturating_sub(pace.early_ns))));
            slept_ns += clock.now().since(from);
        } else if step.wake != Wake::Now {
            std::hint::spin_loop();
        }
        let last = std::mem::replace(&mut now, clock.now());
        let device = engine.device_ns();
        if !step.worked && until.is_none() {
            let ns = now.since(last).saturating_sub(device - device_ns);
            *(if waiting_for_answers { &mut spin_ns } else { &mut idle_ns }) += ns;
        }
        device_ns = device;
        if until.is_none() && !(blocks && step.worked) {
            stalls.look(began, last, now, step.worked);
        }
        if now >= look_at {
            look_at = now + LOOK_NS;
            if !watch(&generator) {
                generator.stop(now);
            }
        }
    }
    let elapsed_ns = now.since(began);
    let run_ns = engine.device_ns().saturating_sub(device_began);
    let busy_ns = elapsed_ns.saturating_sub(spin_ns + idle_ns + slept_ns + run_ns);
    let own_ns = thread_cpu_ns().unwrap_or(0).saturating_sub(cpu_ns);
    let cpu = split(own_ns, cost, engine.cost(), spin_ns, idle_ns);
    let Taken { scheduler_wait_ns, stolen_ns } = Taken::now().since(taken);
    let outcome = generator.outcome();
    Ok(Ran { outcome, cpu, stalls, operations, elapsed_ns, busy_ns, scheduler_wait_ns, stolen_ns })
}

/// Operations that are started between two looks at what has ended, at most, but for the first.
const TOGETHER: usize = 32;

/// What else is due, also by what has just ended, is started before the next look, each dated by a time of
/// its own. Times: the run's begin, and when the step began whose `wake` it was. When to step again, and the
/// time by now.
#[inline]
fn start_due<E: Engine + ?Sized>(
    generator: &mut Generator,
    engine: &mut E,
    clock: &impl Clock,
    mut stalls: Option<&mut StallLog>,
    (began, mut now): (Nanos, Nanos),
    mut wake: Wake,
) -> (Wake, Nanos) {
    for _ in 0..TOGETHER {
        let last = std::mem::replace(&mut now, clock.now());
        if let Some(stalls) = &mut stalls {
            stalls.look(began, last, now, true);
        }
        let started = if wake.is_due(now) { generator.start_next(now, engine) } else { None };
        match started {
            Some(next) => wake = next,
            None => break,
        }
    }
    (wake, now)
}

/// How often a run is looked at.
const LOOK_NS: u64 = 100_000_000;

/// CPU time by what it was for. What the loop and the engine spun, and the device's time,
/// were time of the thread.
fn split(own_ns: u64, before: EngineCost, after: EngineCost, spin_ns: u64, idle_ns: u64) -> Cpu {
    let threads_ns = after.threads_ns.saturating_sub(before.threads_ns);
    let spin_ns = spin_ns + (after.spin_ns - before.spin_ns);
    let device_ns = after.device_ns - before.device_ns;
    let other = spin_ns + idle_ns + device_ns;
    let software_ns = (own_ns + threads_ns).saturating_sub(other);
    Cpu { software_ns, spin_ns, idle_ns, device_ns, resolution_ns: cpu_clock_resolution_ns() }
}

/// Why a simulated run cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The engine has operations in flight and no time at which one of them ends.
    #[error("an engine without due times cannot run in simulated time")]
    NoDueTime,
}

/// Runs a plan in simulated time: it passes from event to event.
///
/// # Errors
/// What is wrong with the plan, or an engine that does not know when its operations end.
pub fn simulated<E: Engine + ?Sized>(
    plan: &Plan,
    engine: &mut E,
    clock: &SimClock,
) -> Result<Outcome, SimError> {
    let mut now = clock.now();
    let mut generator = Generator::new(plan, engine.depth(), now)?;
    // Looks in a row at one moment without anything happening:
    // an engine may need one more to see what has ended.
    let mut idle = 0;
    loop {
        let step = generator.step(now, engine);
        idle = if step.worked { 0 } else { idle + 1 };
        match step.wake {
            Wake::Over => return Ok(generator.outcome()),
            Wake::Now => continue,
            Wake::At(at) if at > now => idle = 0,
            Wake::At(_) | Wake::Poll(_) if idle > 1_000 => return Err(SimError::NoDueTime),
            Wake::At(_) | Wake::Poll(_) => {}
        }
        if let Wake::At(at) = step.wake {
            clock.advance_to(at);
            now = clock.now();
        }
    }
}
