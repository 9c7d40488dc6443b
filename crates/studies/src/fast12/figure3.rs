//! Fig. 3: reads of 512 B per second with CPUs. Synchronous: one thread on each; asynchronous:
//! threads are added until each CPU is full.
//!
//! The model has the prototype's limit of 2 million a second, and goes to 16 CPUs. It has two forms of the
//! asynchronous path: each CPU takes the interrupts of its own reads, or one CPU takes those of all, as Linux
//! 2.6 delivers the one interrupt of a device. The paper does not say which its prototype had; it names "the
//! larger per-I/O latency" with more processors. On this machine the drive has one core, and the CPUs are the
//! others; there is nothing beyond them to scale to.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside_clock::{Clock, TscClock};
use nearside_dma::cpu::{pin_to_core, thread_cpu_ns};
use nearside_driver::{Driver, Policy, Service};
use nearside_instrument::completion::{Bench, cores};
use nearside_media::dram::Prototype;
use nearside_sim::cpu::{Costs, Host, HostOutcome, IoProgram};

use super::machine::{initiator, read};
use super::parameters::{ASYNC, HOST, MEDIA, SWITCH, SYNC};
use super::stated::{LIMIT, SHARE, THREADS};
use crate::Relation::{Arithmetic, Simulated};
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// Fig. 3.
pub const STUDY: Study = Study {
    number: "Fig. 3",
    title: "reads per second with CPUs, to the device's limit",
    section: "3.4",
    run,
};

/// Threads for each CPU at most: twice the paper's number, so that it can be exceeded.
const MOST: usize = 16;
/// A CPU is full.
const FULL: f64 = 0.99;

/// Of one arrangement.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    /// Reads per second.
    pub iops: f64,
    /// The part of the CPUs' time that was used.
    pub busy: f64,
    /// Threads on each CPU.
    pub threads: usize,
    /// Interrupts per second.
    pub interrupts: f64,
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::lines(
        "iops",
        "Random reads of 512 B per second",
        Scale::linear("CPUs"),
        Scale::linear("reads per second"),
    ));
    run.chart(Chart::lines(
        "threads",
        "Threads on each CPU until it is full, asynchronous (of at most 16)",
        Scale::linear("CPUs"),
        Scale::linear("threads for each CPU"),
    ));
    let model = model(run)?;
    let machine = machine(run)?;
    let (least, most) = model.shares.iter().fold((f64::MAX, 0.0f64), |(l, m), s| (l.min(*s), m.max(*s)));
    let limit = Finding::new("the most reads of the synchronous path", "1/s").paper(&LIMIT);
    let limit = run.finding(limit.model(model.limit).from(Simulated, &SYNCHRONOUS));
    // The least is where nobody waits: a synchronous read's time over the CPU time of an asynchronous one.
    let share = Finding::new("asynchronous over synchronous, full CPUs", "").paper(&SHARE);
    let share = share.model(least).from(Arithmetic, &FULL_CPU).machine(&machine.shares);
    let share = run.finding(share);
    let most = Finding::new("the same: the most", "").paper(&SHARE).model(most).from(Simulated, &ALL);
    let most = run.finding(most);
    let first = Finding::new("threads that fill one CPU, one interrupt", "").model(model.first as f64);
    let first = run.finding(first.from(Simulated, &ALL));
    let threads = Finding::new("threads on each CPU for that", "").paper(&THREADS);
    let threads = threads.model(model.threads as f64).from(Simulated, &ALL).machine(&machine.threads);
    let threads = run.finding(threads);
    let claim = Claim::new("the synchronous path scales linearly up to 2 million reads per second", "3.4");
    let one = || Quantity::named(name(1));
    let linear = model.linear.iter().skip(1).fold(claim, |claim, cpus| {
        let line = *cpus as f64;
        claim.model(Quantity::named(name(*cpus)).over(one()), Bound::Between([0.95 * line, 1.05 * line]))
    });
    run.claim(linear.model(&limit, Bound::stated(&LIMIT)));
    run.claim(
        Claim::new("the asynchronous path achieves 60 to 70 % of it", "3.4")
            .both(&share, Bound::stated(&SHARE))
            .model(&most, Bound::stated(&SHARE)),
    );
    run.claim(
        Claim::new("a CPU full of asynchronous reads does fewer than one synchronous thread", "3.4")
            .both(&share, Bound::Below(1.0))
            .model(&most, Bound::Below(1.0)),
    );
    run.claim(
        Claim::new("the asynchronous path needs more threads with more CPUs, up to 8 for each", "3.4")
            .model(Quantity::from(&threads).over(&first), Bound::Above(1.0))
            .model(&threads, Bound::Between([THREADS.value - 1.0, THREADS.value + 1.0]))
            .because(format!(
                "One thread more or less still holds; up to {MOST} were tried. Where one CPU takes the interrupts of all, completions wait the longer \
                 for its handler the more CPUs there are; where each CPU has its own, {} fill it everywhere",
                model.own
            )),
    );
    super::crossing::run(run)
}

/// A finding's.
fn name(cpus: usize) -> String {
    format!("synchronous, {cpus} CPUs, model")
}

/// The synchronous path's numbers.
const SYNCHRONOUS: [&str; 3] = [SYNC[0], SYNC[1], MEDIA[0]];
/// All of the model's.
const ALL: [&str; 2] = [HOST, MEDIA[0]];
/// Those of a full CPU on which nobody waits: both paths' own work, and the switches.
const FULL_CPU: [&str; 10] =
    [SYNC[0], SYNC[1], MEDIA[0], ASYNC[0], ASYNC[1], ASYNC[2], ASYNC[3], ASYNC[4], ASYNC[5], SWITCH];

/// What the model shows beside its lines.
struct Model {
    /// The most reads.
    limit: f64,
    /// The numbers of CPUs below the limit, on which the synchronous path has to be on a line.
    linear: Vec<usize>,
    /// Asynchronous over synchronous, below the limit.
    shares: Vec<f64>,
    /// Threads on each CPU for a full one, at most, up to the limit:
    /// each CPU with its own interrupts, and one with those of all.
    own: usize,
    threads: usize,
    /// The latter on one CPU alone.
    first: usize,
}

/// What this machine shows, each round.
#[derive(Default)]
struct Machine {
    shares: Vec<f64>,
    threads: Vec<f64>,
}

pub(super) fn simulated(policy: Policy, cpus: usize, threads: usize) -> Result<Rate, Failure> {
    interrupting(None, policy, cpus, threads)
}

fn interrupting(
    interrupted: Option<usize>,
    policy: Policy,
    cpus: usize,
    threads: usize,
) -> Result<Rate, Failure> {
    let host = Host::alike(Costs::fast12(), cpus, threads, &IoProgram::reads(policy, 512));
    let host = Host { interrupted, ..host };
    let outcome = host.run(Prototype::GEN2.medium())?;
    let interrupts = outcome.interrupts as f64 * 1e9 / outcome.window_ns.max(1) as f64;
    Ok(Rate { iops: outcome.iops(), busy: busy(&outcome), threads, interrupts })
}

/// The part of the CPUs' time that was used.
pub(super) fn busy(outcome: &HostOutcome) -> f64 {
    let time = outcome.time();
    1.0 - time.idle_ns as f64 / time.total_ns().max(1) as f64
}

/// Threads are added until the CPUs are full; where they never are, those that read the most.
pub(super) fn filled(mut rate: impl FnMut(usize) -> Result<Rate, Failure>) -> Result<Rate, Failure> {
    let mut most: Option<Rate> = None;
    for threads in 1..=MOST {
        let rate = rate(threads)?;
        if most.is_none_or(|m| rate.iops > m.iops * 1.01) {
            most = Some(rate);
        }
        if rate.busy >= FULL {
            return Ok(rate);
        }
    }
    most.ok_or_else(|| "no threads were run".into())
}

fn model(run: &mut Run<'_>) -> Result<Model, Failure> {
    let one = simulated(Policy::Polled, 1, 1)?;
    let (mut linear, mut limit, mut shares, mut threads) = (Vec::new(), 0.0f64, Vec::new(), Vec::new());
    for cpus in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16] {
        run.say(&format!("the model, {cpus} CPUs"));
        let sync = simulated(Policy::Polled, cpus, 1)?;
        let full = filled(|threads| simulated(Policy::Interrupt, cpus, threads))?;
        let x = cpus as f64;
        let finding = Finding::new(name(cpus), "1/s").model(sync.iops).from(Simulated, &SYNCHRONOUS);
        let sync_finding = run.finding(finding.point("iops", "synchronous", x));
        let finding = Finding::new(format!("asynchronous, {cpus} CPUs, model"), "1/s").model(full.iops);
        let finding = finding.from(Simulated, &ALL);
        run.finding(finding.beside(&sync_finding).point("iops", "asynchronous", x));
        let finding =
            Finding::new(format!("threads for each of {cpus} CPUs, model"), "").model(full.threads as f64);
        run.finding(finding.from(Simulated, &ALL).point("threads", "asynchronous", x));
        // The same where the device has one interrupt, which one CPU takes.
        let one_cpu = filled(|threads| interrupting(Some(0), Policy::Interrupt, cpus, threads))?;
        let finding = Finding::new(format!("asynchronous, one interrupt, {cpus} CPUs, model"), "1/s");
        let finding = finding.model(one_cpu.iops).from(Simulated, &ALL).beside(&sync_finding);
        run.finding(finding.point("iops", "asynchronous, one interrupt", x));
        let finding = Finding::new(format!("threads for each of {cpus} CPUs, one interrupt, model"), "");
        let finding = finding.model(one_cpu.threads as f64).from(Simulated, &ALL);
        run.finding(finding.point("threads", "asynchronous, one interrupt", x));
        limit = limit.max(sync.iops);
        if one.iops * x < LIMIT.value {
            linear.push(cpus);
            shares.extend([full.iops / sync.iops, one_cpu.iops / sync.iops]);
        }
        // Up to the first CPUs whose synchronous threads reach the limit.
        if one.iops * (x - 1.0) < LIMIT.value {
            threads.push((full.threads, one_cpu.threads));
        }
    }
    let most = |of: fn(&(usize, usize)) -> usize| threads.iter().map(of).max().unwrap_or(0);
    let first = threads.first().map_or(0, |t| t.1);
    Ok(Model { limit, linear, shares, own: most(|t| t.0), threads: most(|t| t.1), first })
}

fn machine(run: &mut Run<'_>) -> Result<Machine, Failure> {
    let paths: Vec<usize> = cores().iter().skip(1).copied().collect();
    if paths.is_empty() {
        run.note("This machine has one core, which the drive needs.");
        return Ok(Machine::default());
    }
    let (rounds, millis) = run.sized((2, 60), (5, 300));
    let bench = Bench::new(Prototype::GEN2.medium())?;
    let driver = bench.driver();
    // Every thread has a queue pair, every asynchronous context one more: 31 for each of two CPUs, 10 for
    // each of six.
    let mut found = Machine::default();
    for cpus in 1..=paths.len().min(6) {
        run.say(&format!("this machine, {cpus} CPUs beside the drive's"));
        let of = |policy, threads| measure(driver, &paths[..cpus], policy, threads, millis);
        let mut sync = Vec::new();
        let (mut full, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            sync.push(of(Policy::Polled, 1)?.iops);
            let rate = filled(|threads| of(Policy::Interrupt, threads))?;
            full.push(rate.iops);
            threads.push(rate.threads as f64);
        }
        found.shares.extend(full.iter().zip(&sync).map(|(full, sync)| full / sync));
        found.threads.extend(&threads);
        let x = cpus as f64;
        let finding = Finding::new(format!("synchronous, {cpus} CPUs, this machine"), "1/s").machine(&sync);
        let sync = run.finding(finding.point("iops", "synchronous", x));
        let finding = Finding::new(format!("asynchronous, {cpus} CPUs, this machine"), "1/s").machine(&full);
        run.finding(finding.beside(&sync).point("iops", "asynchronous", x));
        let finding =
            Finding::new(format!("threads for each of {cpus} CPUs, this machine"), "").machine(&threads);
        run.finding(finding.point("threads", "asynchronous", x));
    }
    Ok(found)
}

/// Threads on each of some cores for some time.
pub(super) fn measure(
    driver: &Driver,
    cores: &[usize],
    policy: Policy,
    per_cpu: usize,
    millis: u64,
) -> Result<Rate, Failure> {
    let (stop, clock) = (AtomicBool::new(false), TscClock::new());
    let (start, end) = (Barrier::new(cores.len() * per_cpu + 1), Barrier::new(cores.len() * per_cpu + 1));
    std::thread::scope(|scope| -> Result<Rate, Failure> {
        let mut services = Vec::new();
        let mut readers = Vec::new();
        // Whoever may fail comes before whoever waits for all.
        for &core in cores {
            let pin = move || drop(pin_to_core(core));
            let service = Service::start(driver, 32, clock, pin)?;
            for _ in 0..per_cpu {
                readers.push((core, initiator(driver, &service)?));
            }
            services.push(service);
        }
        let reader = |(core, io)| {
            let (stop, start, end) = (&stop, &start, &end);
            scope.spawn(move || {
                let _ = pin_to_core(core);
                start.wait();
                let done = reads(io, policy, stop);
                end.wait();
                done
            })
        };
        let threads: Vec<_> = readers.into_iter().map(reader).collect();
        let served = || services.iter().map(|s| s.cpu_ns()).sum::<u64>();
        start.wait();
        let woken = || services.iter().map(|s| s.counts().wakes).sum::<u64>();
        let (from, before, wakes) = (clock.now(), served(), woken());
        std::thread::sleep(std::time::Duration::from_millis(millis));
        let (after, wakes, ns) = (served(), woken() - wakes, clock.now().since(from));
        stop.store(true, Ordering::Relaxed);
        end.wait();
        let (mut count, mut cpu_ns) = (0, after - before);
        for thread in threads {
            let (n, used) = thread.join().map_err(|_| "a reader panicked")?.map_err(|e: String| e)?;
            count += n;
            cpu_ns += used;
        }
        let whole = ns as f64 * cores.len() as f64;
        let each_second = |count: u64| count as f64 * 1e9 / ns as f64;
        let busy = cpu_ns as f64 / whole;
        Ok(Rate { iops: each_second(count), busy, threads: per_cpu, interrupts: each_second(wakes) })
    })
}

/// Reads until told; how many, and the thread's CPU time.
fn reads(
    mut io: nearside_driver::Initiator<nearside_driver::Threaded, TscClock>,
    policy: Policy,
    stop: &AtomicBool,
) -> Result<(u64, u64), String> {
    io.set_policy(policy);
    let mut buffer = Some(io.buffer(512).map_err(|e| e.to_string())?);
    let before = thread_cpu_ns().map_err(|e| e.to_string())?;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let done =
            io.execute(&read(count, 512), buffer.take()).map_err(|e| format!("refused: {:?}", e.reason))?;
        done.outcome.map_err(|e| e.to_string())?;
        buffer = done.buffer;
        count += 1;
    }
    let used = thread_cpu_ns().map_err(|e| e.to_string())? - before;
    drop(buffer);
    io.close().map_err(|e| e.to_string())?;
    Ok((count, used))
}
