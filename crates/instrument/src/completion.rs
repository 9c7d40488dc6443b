//! FAST'12's two completion paths and the hybrid over a device time: response times, and CPU time per command
//! split into software and spinning.
//!
//! One drive on one core, the caller (and the asynchronous path's context) on the other.
//! The policies take turns in short rounds on the same queue pair, so that what the
//! machine does meanwhile falls on all of them.

use nearside_clock::TscClock;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::cpu::{allowed_cores, cpu_clock_resolution_ns, pin_to_core, thread_cpu_ns};
use nearside_driver::{
    Command, DmaBuffer, Driver, DriverConfig, Initiator, InitiatorConfig, Policy, Service, Threaded,
};
use nearside_embedded::Loopback;
use nearside_media::Medium;
use nearside_random::Rng;
use nearside_store::{Dram, Modelled};

use crate::Failure;

/// The three, in the order of every answer here.
pub const POLICIES: [Policy; 3] = [Policy::Polled, Policy::Interrupt, Policy::Hybrid];
const CAPACITY: u64 = 64 << 20;
const PIECE: usize = 1 << 20;

/// What commands of one policy cost.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Response times in nanoseconds, sorted.
    pub latencies_ns: Vec<u64>,
    /// CPU nanoseconds per command of the caller and of the asynchronous context, by the scheduler's clock.
    /// The drive's own are not counted, as a device's are not.
    pub cpu_ns: f64,
    /// Of these, spinning.
    pub spin_ns: f64,
    /// What that clock tells apart, per command.
    pub resolution_ns: f64,
}

impl Cost {
    /// The response time below which a part `p` (0 to 1) of the commands stayed.
    pub fn percentile_ns(&self, p: f64) -> u64 {
        let last = self.latencies_ns.len().saturating_sub(1);
        self.latencies_ns.get((last as f64 * p) as usize).copied().unwrap_or(0)
    }

    /// CPU time per command that is no spinning, the kernel's part included.
    pub fn software_ns(&self) -> f64 {
        self.cpu_ns - self.spin_ns
    }
}

/// This thread, and threads that it starts from now on, on one core where there are several; until [`unpin`].
pub fn pin(core: usize) {
    let cores = cores();
    if cores.len() > 1
        && let Some(&core) = cores.get(core)
    {
        let _ = pin_to_core(core);
    }
}

/// This thread on any core again.
pub fn unpin() {
    let _ = nearside_dma::cpu::pin_to_cores(cores());
}

/// The cores that this process may use; asked before the first pin, which narrows what is allowed.
pub fn cores() -> &'static [usize] {
    use std::sync::OnceLock;
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(|| allowed_cores().unwrap_or_default())
}

/// A drive whose store takes a medium's time, its driver, and the asynchronous path.
pub struct Bench {
    io: Initiator<Threaded, TscClock>,
    service: Service,
    buffer: Option<DmaBuffer>,
    random: Rng,
    _drive: Loopback<Modelled<Dram, Box<dyn Medium>>, (), Threaded>,
}

impl Bench {
    /// Starts the drive on the first core; the caller is pinned to the second.
    /// It has queue pairs for others beside.
    ///
    /// # Errors
    /// That the drive or its queue pairs cannot be.
    pub fn new(medium: impl Medium) -> Result<Bench, Failure> {
        Bench::over(Box::new(medium))
    }

    fn over(medium: Box<dyn Medium>) -> Result<Bench, Failure> {
        let clock = TscClock::new();
        pin(0);
        let store = Modelled::new(Dram::new(CAPACITY, 512)?, medium);
        // The drive never sleeps here: its own wake-up is not what is measured.
        let rest = Rest { idle_ns: 1_000_000_000, early_ns: 1_000_000_000 };
        let config = Config { lba_size: 512, io_queues: 63, vectors: 64, ..Config::default() };
        let mut drive = Loopback::threaded(store, (), config, rest)?;
        pin(1);
        let driver = drive.driver(DriverConfig { queues: 63, ..DriverConfig::default() }, &clock)?;
        let service = Service::start(&driver, 32, clock, || ())?;
        let io =
            Initiator::new(&driver, InitiatorConfig::default(), clock, Threaded, Some(service.handle()))?;
        let buffer = Some(io.buffer(PIECE)?);
        let mut bench = Bench { io, service, buffer, random: Rng(3), _drive: drive };
        bench.fill()?;
        Ok(bench)
    }

    /// Writes all of it once, so that no page is touched for the first time while times are taken.
    fn fill(&mut self) -> Result<(), Failure> {
        self.io.set_policy(Policy::Polled);
        for at in (0..CAPACITY).step_by(PIECE) {
            let mut buffer = self.buffer.take().ok_or("the buffer was lost")?;
            buffer.set_len(PIECE);
            let command = Command::write(1, at / 512, (PIECE / 512) as u32);
            let done =
                self.io.execute(&command, Some(buffer)).map_err(|e| format!("a write was refused: {e}"))?;
            done.outcome.map_err(|e| format!("a write failed: {e}"))?;
            self.buffer = done.buffer;
        }
        Ok(())
    }

    /// The driver, for queue pairs of one's own.
    pub fn driver(&self) -> &Driver {
        self.io.controller()
    }

    /// `count` random reads of `bytes` by a policy, one at a time; what they cost is added to `cost` (whose
    /// CPU figures are then of the last round).
    ///
    /// # Errors
    /// The driver's, of a read.
    pub fn round(
        &mut self,
        policy: Policy,
        bytes: usize,
        count: usize,
        cost: &mut Cost,
    ) -> Result<(), Failure> {
        self.io.set_policy(policy);
        let blocks = (bytes / 512) as u32;
        let spun = self.io.account().spin_ns;
        let (own, service) = (thread_cpu_ns()?, self.service.cpu_ns());
        for _ in 0..count {
            let mut buffer = self.buffer.take().ok_or("the buffer was lost")?;
            buffer.set_len(bytes);
            let slba = self.random.below(CAPACITY / bytes as u64) * u64::from(blocks);
            let done = self
                .io
                .execute(&Command::read(1, slba, blocks), Some(buffer))
                .map_err(|e| format!("a read was refused: {e}"))?;
            done.outcome.map_err(|e| format!("a read failed: {e}"))?;
            cost.latencies_ns.push(done.latency_ns);
            self.buffer = done.buffer;
        }
        let used = thread_cpu_ns()? - own;
        // Spinning is booked by the clock: a thread that was preempted meanwhile did not spin for all of it.
        let spin = (self.io.account().spin_ns - spun).min(used) as f64;
        let n = count as f64;
        cost.cpu_ns = (used + self.service.cpu_ns().saturating_sub(service)) as f64 / n;
        cost.spin_ns = spin / n;
        // Two clocks, the caller's and the context's.
        cost.resolution_ns = 2.0 * cpu_clock_resolution_ns() as f64 / n;
        Ok(())
    }
}

/// The three policies in turn, `rounds` times `count` reads of each: each policy's rounds.
///
/// # Errors
/// The driver's, of a read.
pub fn rounds(
    bench: &mut Bench,
    bytes: usize,
    rounds: usize,
    count: usize,
) -> Result<[Vec<Cost>; 3], Failure> {
    let mut costs: [Vec<Cost>; 3] = Default::default();
    for policy in POLICIES {
        bench.round(policy, bytes, count / 4 + 1, &mut Cost::default())?;
    }
    for _ in 0..rounds {
        for (costs, policy) in costs.iter_mut().zip(POLICIES) {
            let mut cost = Cost::default();
            bench.round(policy, bytes, count, &mut cost)?;
            cost.latencies_ns.sort_unstable();
            costs.push(cost);
        }
    }
    Ok(costs)
}

/// Measures the policies one after another, all rounds of a policy in one;
/// the CPU figures are means over the rounds.
///
/// # Errors
/// The driver's, of a read.
pub fn compare(bench: &mut Bench, bytes: usize, rounds: usize, count: usize) -> Result<[Cost; 3], Failure> {
    Ok(self::rounds(bench, bytes, rounds, count)?.map(|costs| {
        let n = costs.len().max(1) as f64;
        let mut all = Cost::default();
        for cost in costs {
            all.latencies_ns.extend(cost.latencies_ns);
            all.cpu_ns += cost.cpu_ns / n;
            all.spin_ns += cost.spin_ns / n;
            all.resolution_ns = all.resolution_ns.max(cost.resolution_ns);
        }
        all.latencies_ns.sort_unstable();
        all
    }))
}
