//! What the threads and CPUs of a simulated host did.

use std::ops::AddAssign;

use nearside_loadgen::Latency;
use nearside_loadgen::summary::Times;
use serde::{Deserialize, Serialize};

/// Where a CPU's or a thread's time went, in nanoseconds.
/// Spinning is apart from the system's time, as FAST'12 section 4 asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// User mode.
    pub user_ns: u64,
    /// The kernel: for a thread its own calls;
    /// for a CPU submission contexts, handlers, wake-ups and switches as well.
    pub system_ns: u64,
    /// Waiting for a completion, busily.
    pub spin_ns: u64,
    /// Nothing to run, leaving an idle state included; 0 for a thread.
    pub idle_ns: u64,
}

impl CpuTime {
    /// All of it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.spin_ns + self.idle_ns
    }
}

impl AddAssign for CpuTime {
    fn add_assign(&mut self, other: CpuTime) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.spin_ns += other.spin_ns;
        self.idle_ns += other.idle_ns;
    }
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadOutcome {
    /// Its CPU time.
    pub time: CpuTime,
    /// Operations that ended in the measured time.
    pub ended: u64,
    /// From when each was meant to start until the application had it.
    pub response: Latency,
    /// From when the application asked.
    pub call: Latency,
    /// From the doorbell until the completion was seen: by the spinning thread, or by the handler's first
    /// instruction. What FAST'12's Table 1 shows.
    pub device: Latency,
    /// Operations that went the synchronous way to their end.
    pub synchronous: u64,
    /// Spins that were given up.
    pub stalls: u64,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct HostOutcome {
    /// The measured time in nanoseconds.
    pub window_ns: u64,
    /// By thread.
    pub threads: Vec<ThreadOutcome>,
    /// By CPU.
    pub cpus: Vec<CpuTime>,
    /// Switches from one thread to another.
    pub switches: u64,
    /// Interrupts handled.
    pub interrupts: u64,
}

/// A thread as plain data. The fields are those of [`ThreadOutcome`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadSummary {
    /// CPU time.
    pub time: CpuTime,
    /// Operations.
    pub ended: u64,
    /// Response times.
    pub response: Times,
    /// From the application's call.
    pub call: Times,
    /// The device's.
    pub device: Times,
    /// Operations of the synchronous path.
    pub synchronous: u64,
    /// Spins given up.
    pub stalls: u64,
}

/// A run as plain data: the same for the same host and seed, byte for byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSummary {
    /// The measured time in nanoseconds.
    pub window_ns: u64,
    /// Operations per second.
    pub iops: f64,
    /// Response times of all threads.
    pub response: Times,
    /// By thread.
    pub threads: Vec<ThreadSummary>,
    /// By CPU.
    pub cpus: Vec<CpuTime>,
    /// Switches from one thread to another.
    pub switches: u64,
    /// Interrupts handled.
    pub interrupts: u64,
}

impl HostOutcome {
    /// The outcome as plain data.
    #[must_use]
    pub fn summary(&self) -> HostSummary {
        let thread = |thread: &ThreadOutcome| ThreadSummary {
            time: thread.time,
            ended: thread.ended,
            response: Times::of(&thread.response),
            call: Times::of(&thread.call),
            device: Times::of(&thread.device),
            synchronous: thread.synchronous,
            stalls: thread.stalls,
        };
        HostSummary {
            window_ns: self.window_ns,
            iops: self.iops(),
            response: Times::of(&self.response()),
            threads: self.threads.iter().map(thread).collect(),
            cpus: self.cpus.clone(),
            switches: self.switches,
            interrupts: self.interrupts,
        }
    }

    /// Operations that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.threads.iter().map(|thread| thread.ended).sum()
    }

    /// Operations per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ended() as f64 * 1e9 / self.window_ns.max(1) as f64
    }

    /// All CPUs' time.
    #[must_use]
    pub fn time(&self) -> CpuTime {
        let mut all = CpuTime::default();
        self.cpus.iter().for_each(|cpu| all += *cpu);
        all
    }

    /// Response times of all threads.
    #[must_use]
    pub fn response(&self) -> Latency {
        let mut all = Latency::new();
        self.threads.iter().for_each(|thread| all.merge(&thread.response));
        all
    }
}
