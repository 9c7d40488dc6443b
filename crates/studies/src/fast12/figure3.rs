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
use nearside_sim::cpu::{Costs, Host, IoProgram};

use super::machine::{initiator, read};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

/// Fig. 3.
pub const STUDY: Study = Study {
    number: "Fig. 3",
    title: "reads per second with CPUs, to the device's limit",
    section: "3.4",
    run,
};

/// The device's limit: "up to 2 million IOPS - the hardware limitation of our prototype device".
const LIMIT: f64 = 2e6;
/// Threads for each CPU at most.
const MOST: usize = 8;
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
        "Threads on each CPU until it is full, asynchronous (of at most 8)",
        Scale::linear("CPUs"),
        Scale::linear("threads for each CPU"),
    ));
    let model = model(run)?;
    let machine = machine(run)?;
    let (least, most) = model.shares.iter().fold((f64::MAX, 0.0f64), |(l, m), s| (l.min(*s), m.max(*s)));
    let limit =
        Finding::new("the most reads of the synchronous path", "1/s").paper(LIMIT, "3.4").model(model.limit);
    run.finding(limit);
    let share = Finding::new("asynchronous over synchronous, full CPUs", "").paper_range([0.6, 0.7], "3.4");
    let share = run.finding(share.model(least).machine(&machine.shares));
    let threads = Finding::new("threads on each CPU for that", "").paper(8.0, "3.4");
    run.finding(threads.model(model.threads as f64).machine(&machine.threads));
    run.claim(
        Claim::new("the synchronous path scales linearly up to 2 million reads per second", "3.4")
            .model(model.off <= 0.05 && (model.limit / LIMIT - 1.0).abs() <= 0.05)
            .because(format!("at most {:.1} % off a line to the limit", model.off * 100.0)),
    );
    let claim = Claim::new("the asynchronous path achieves 60 to 70 % of it", "3.4")
        .model(criteria::asynchronous_share(least) && criteria::asynchronous_share(most))
        .because(format!("{least:.2} to {most:.2} below the device's limit"));
    run.claim(match share.measured() {
        Some(share) => claim.machine(criteria::asynchronous_share(share)),
        None => claim,
    });
    let claim = Claim::new("a CPU full of asynchronous reads does fewer than one synchronous thread", "3.4")
        .model(most < 1.0);
    run.claim(match share.measured() {
        Some(share) => claim.machine(share < 1.0),
        None => claim,
    });
    run.claim(
        Claim::new("the asynchronous path needs more threads with more CPUs, up to 8 for each", "3.4")
            .model(model.threads > model.first && (model.threads as f64 / MOST as f64 - 1.0).abs() <= 0.15)
            .because(format!(
                "{} on one CPU, up to {} where one CPU takes the interrupts of all: the more CPUs, the longer their completions wait for its handler. Where \
                 each CPU has its own, {} fill it everywhere",
                model.first, model.threads, model.own
            )),
    );
    Ok(())
}

/// What the model shows beside its lines.
struct Model {
    /// The most reads.
    limit: f64,
    /// How far the synchronous path is from a line to the limit, at most.
    off: f64,
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
    let time = outcome.time();
    let busy = 1.0 - time.idle_ns as f64 / time.total_ns().max(1) as f64;
    let interrupts = outcome.interrupts as f64 * 1e9 / outcome.window_ns.max(1) as f64;
    Ok(Rate { iops: outcome.iops(), busy, threads, interrupts })
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
    let (mut off, mut limit, mut shares, mut threads) = (0.0f64, 0.0f64, Vec::new(), Vec::new());
    for cpus in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16] {
        run.say(&format!("the model, {cpus} CPUs"));
        let sync = simulated(Policy::Polled, cpus, 1)?;
        let full = filled(|threads| simulated(Policy::Interrupt, cpus, threads))?;
        let x = cpus as f64;
        let finding = Finding::new(format!("synchronous, {cpus} CPUs, model"), "1/s").model(sync.iops);
        let sync_finding = run.finding(finding.point("iops", "synchronous", x));
        let finding = Finding::new(format!("asynchronous, {cpus} CPUs, model"), "1/s").model(full.iops);
        run.finding(finding.beside(&sync_finding).point("iops", "asynchronous", x));
        let finding =
            Finding::new(format!("threads for each of {cpus} CPUs, model"), "").model(full.threads as f64);
        run.finding(finding.point("threads", "asynchronous", x));
        // The same where the device has one interrupt, which one CPU takes.
        let one_cpu = filled(|threads| interrupting(Some(0), Policy::Interrupt, cpus, threads))?;
        let finding = Finding::new(format!("asynchronous, one interrupt, {cpus} CPUs, model"), "1/s");
        let finding = finding.model(one_cpu.iops).beside(&sync_finding);
        run.finding(finding.point("iops", "asynchronous, one interrupt", x));
        let finding = Finding::new(format!("threads for each of {cpus} CPUs, one interrupt, model"), "");
        let finding = finding.model(one_cpu.threads as f64);
        run.finding(finding.point("threads", "asynchronous, one interrupt", x));
        off = off.max((sync.iops / (one.iops * x).min(LIMIT) - 1.0).abs());
        limit = limit.max(sync.iops);
        if one.iops * x < LIMIT {
            shares.extend([full.iops / sync.iops, one_cpu.iops / sync.iops]);
        }
        // Up to the first CPUs whose synchronous threads reach the limit.
        if one.iops * (x - 1.0) < LIMIT {
            threads.push((full.threads, one_cpu.threads));
        }
    }
    let most = |of: fn(&(usize, usize)) -> usize| threads.iter().map(of).max().unwrap_or(0);
    let first = threads.first().map_or(0, |t| t.1);
    Ok(Model { limit, off, shares, own: most(|t| t.0), threads: most(|t| t.1), first })
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
    // Every thread has a queue pair, every asynchronous context one more: 63 are enough for six full CPUs.
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
