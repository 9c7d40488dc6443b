//! A model of the host's CPUs as discrete events, for what the host's software costs and
//! what completion models do to it (FAST'12).
//!
//! [`Host`] is data: CPUs, their [`Costs`], threads.
//! [`Host::run`] lets simulated threads do think time and I/O on a [`Medium`]:
//!
//! - **Synchronous** ([`Policy::Polled`]): the thread submits, spins until the device is done, returns.
//! - **Asynchronous** ([`Policy::Interrupt`], FAST'12 section 2): the thread puts a request into a queue, a
//!   submission context on its CPU sends it, the thread blocks; the CPU switches to another thread or goes
//!   idle; the device interrupts the CPU that submitted; the handler takes all completions that it finds and
//!   wakes their threads; the CPU switches back.
//! - **Hybrid** ([`Policy::Hybrid`]): the driver's own decision ([`nearside_driver::policy::History`]),
//!   thread by thread.
//!
//! A CPU runs the thread of the highest priority that is runnable; of equals, in turn, for a time
//! slice. A woken thread preempts one of lower priority and no other. Threads stay on their CPU.
//! Switches and handlers take no interrupts; one that comes meanwhile waits. Completions that come
//! before the handler has begun share one interrupt.
//!
//! With [`Host::interrupted`] all interrupts go to one CPU, as of a device with one vector: its handler takes
//! the completions of all and wakes their threads on their own CPUs, at no cost but the handler's.
//!
//! What is not modelled: caches and TLBs (their cost is in the measured switch), the timer tick's own time,
//! frequency, hyperthreads, threads that move, locks between CPUs.
//!
//! [`Medium`]: nearside_media::Medium

mod costs;
mod machine;
mod outcome;

pub use costs::{Costs, IdleState};
pub use outcome::{CpuTime, HostOutcome, HostSummary, ThreadOutcome, ThreadSummary};

use nearside_driver::Policy;
use nearside_loadgen::Arrivals;
use nearside_media::Medium;

/// What a thread does.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Think time and I/O, one operation after another.
    Io(IoProgram),
    /// It only ever computes, in user mode: FAST'12's second process, which shows what time others get.
    Busy,
}

/// Think time and I/O.
#[derive(Clone, Debug, PartialEq)]
pub struct IoProgram {
    /// How completions are awaited.
    pub policy: Policy,
    /// User time before each operation, in nanoseconds.
    pub think_ns: u64,
    /// Closed (at depth 1): the next operation is meant to start `think_ns` after the last one
    /// ended. Open: at its own times; the thread sleeps until then, and an operation that
    /// finds the one before still out starts late.
    pub arrivals: Arrivals,
    /// Bytes of an operation: random reads, aligned to their size.
    pub bytes: u32,
    /// Bytes that they are spread over.
    pub span: u64,
}

impl IoProgram {
    /// Reads of `bytes` over 1 GiB, as fast as the thread can.
    #[must_use]
    pub fn reads(policy: Policy, bytes: u32) -> Self {
        Self { policy, think_ns: 0, arrivals: Arrivals::Closed { depth: 1 }, bytes, span: 1 << 30 }
    }
}

/// One thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Where it runs.
    pub cpu: usize,
    /// Higher ones go first.
    pub priority: u8,
    /// What it does.
    pub program: Program,
}

impl Thread {
    /// A thread of priority 1 that does I/O.
    #[must_use]
    pub fn io(cpu: usize, program: IoProgram) -> Self {
        Self { cpu, priority: 1, program: Program::Io(program) }
    }

    /// A thread of priority 0 that computes.
    #[must_use]
    pub fn busy(cpu: usize) -> Self {
        Self { cpu, priority: 0, program: Program::Busy }
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// CPUs.
    pub cpus: usize,
    /// What they take.
    pub costs: Costs,
    /// What runs on them.
    pub threads: Vec<Thread>,
    /// The CPU that takes all of the device's interrupts; none: each goes to the CPU that submitted.
    pub interrupted: Option<usize>,
    /// Nanoseconds that are not measured.
    pub warm_up_ns: u64,
    /// Nanoseconds that are.
    pub runtime_ns: u64,
    /// Of places and arrivals.
    pub seed: u64,
}

/// What is wrong with a host.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HostError {
    /// A thread on a CPU that there is not.
    #[error("thread {thread} runs on CPU {cpu} of {cpus}")]
    Cpu {
        /// Which.
        thread: usize,
        /// Where.
        cpu: usize,
        /// How many there are.
        cpus: usize,
    },
    /// Interrupts for a CPU that there is not.
    #[error("interrupts go to CPU {cpu} of {cpus}")]
    Interrupted {
        /// Where.
        cpu: usize,
        /// How many there are.
        cpus: usize,
    },
    /// A rate that is none, or a closed loop of more than one operation.
    #[error("thread {thread} cannot do its operations so: {arrivals:?}")]
    Arrivals {
        /// Which.
        thread: usize,
        /// How.
        arrivals: Arrivals,
    },
    /// Operations of no bytes, or larger than what they are spread over.
    #[error("thread {thread}: operations of {bytes} bytes over {span}")]
    Bytes {
        /// Which.
        thread: usize,
        /// Bytes of one.
        bytes: u32,
        /// Bytes of all.
        span: u64,
    },
    /// An operation that takes no time at all: the run would not end.
    #[error("thread {thread}: its operations take no time")]
    NoTime {
        /// Which.
        thread: usize,
    },
}

impl Host {
    /// `cpus` CPUs with `per_cpu` threads of the same program on each, measured for 20 ms after 1 ms.
    #[must_use]
    pub fn alike(costs: Costs, cpus: usize, per_cpu: usize, program: &IoProgram) -> Self {
        let threads = (0..cpus * per_cpu).map(|n| Thread::io(n % cpus, program.clone())).collect();
        Self {
            cpus,
            costs,
            threads,
            interrupted: None,
            warm_up_ns: 1_000_000,
            runtime_ns: 20_000_000,
            seed: 1,
        }
    }

    /// Runs it over `medium`, whose time is that until a completion lies in the host's memory.
    ///
    /// # Errors
    /// What is wrong with the host.
    pub fn run(&self, medium: impl Medium) -> Result<HostOutcome, HostError> {
        if let Some(cpu) = self.interrupted.filter(|cpu| *cpu >= self.cpus) {
            return Err(HostError::Interrupted { cpu, cpus: self.cpus });
        }
        for (thread, plan) in self.threads.iter().enumerate() {
            if plan.cpu >= self.cpus {
                return Err(HostError::Cpu { thread, cpu: plan.cpu, cpus: self.cpus });
            }
            let Program::Io(io) = &plan.program else { continue };
            if io.bytes == 0 || u64::from(io.bytes) > io.span {
                return Err(HostError::Bytes { thread, bytes: io.bytes, span: io.span });
            }
            let sound = match io.arrivals {
                Arrivals::Closed { depth } => depth == 1,
                // A thread has no trace to follow.
                Arrivals::Recorded { .. } => false,
                Arrivals::Poisson { rate } | Arrivals::Constant { rate } => (1e-9..=1e9).contains(&rate),
            };
            if !sound {
                return Err(HostError::Arrivals { thread, arrivals: io.arrivals });
            }
            let Costs { submit_ns, complete_ns, queue_ns, context_ns, back_ns, .. } = self.costs;
            let least = (submit_ns + complete_ns).min(queue_ns + context_ns + back_ns);
            if matches!(io.arrivals, Arrivals::Closed { .. }) && io.think_ns + least == 0 {
                return Err(HostError::NoTime { thread });
            }
        }
        Ok(machine::Machine::new(self, medium).run())
    }
}
