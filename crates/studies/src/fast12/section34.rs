//! Section 3.4: what interrupts cost beside the path:
//! their rate, coalescing, a neighbour's cache, idle states.

use nearside_clock::{Clock, TscClock};
use nearside_dma::cpu::{cpu_clock_resolution_ns, thread_cpu_ns};
use nearside_driver::{Controller, Driver, Host, Policy, QueueConfig, Transport};
use nearside_instrument::completion::{Bench, cores};
use nearside_media::Delay;
use nearside_media::dram::Prototype;
use nearside_sim::cpu::{Costs, IdleState};
use nearside_spec::feature;

use super::machine::{Caller, LOOK, median, path_core, read};
use super::parameters::{HOST, IDLE_TEXT, MEDIA};
use super::second::Second;
use super::stated::IDLE;
use super::{alone, figure3, pollution};
use crate::Relation::{Arithmetic, Simulated};
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// Section 3.4.
pub const STUDY: Study = Study {
    number: "Section 3.4",
    title: "interrupts: rate, coalescing, a neighbour's cache, idle states",
    section: "3.4",
    run,
};

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let bench = Bench::new(Prototype::GEN2.medium())?;
    rate(run, bench.driver())?;
    coalescing(run, Bench::new(Delay::units(1, EACH_NS).medium())?.driver())?;
    pollution::neighbour(run, bench.driver())?;
    idle(run, bench.driver())
}

/// Interrupts per second of full CPUs.
fn rate(run: &mut Run<'_>, driver: &Driver) -> Result<(), Failure> {
    run.say("interrupts of full CPUs");
    let mut claim = Claim::new("the device delivers hundreds of thousands of interrupts per second", "3.4");
    for cpus in [1, 8] {
        let full = figure3::filled(|threads| figure3::simulated(Policy::Interrupt, cpus, threads))?;
        let finding = Finding::new(format!("interrupts, {cpus} full CPUs, model"), "1/s");
        let finding = run.finding(finding.model(full.interrupts).from(Simulated, &[HOST, MEDIA[0]]));
        claim = claim.model(&finding, HUNDREDS_OF_THOUSANDS);
    }
    let paths: Vec<usize> = cores().iter().skip(1).take(1).copied().collect();
    if !paths.is_empty() {
        let mut machine = Vec::new();
        for _ in 0..run.sized(2, 7) {
            let millis = run.sized(60, 400);
            let one = |threads| figure3::measure(driver, &paths, Policy::Interrupt, threads, millis);
            machine.push(figure3::filled(one)?.interrupts);
        }
        let finding = Finding::new("wake-ups of the asynchronous context, one full CPU", "1/s");
        claim = claim.machine(&run.finding(finding.machine(&machine)), HUNDREDS_OF_THOUSANDS);
    }
    run.claim(claim);
    Ok(())
}

/// "Hundreds of thousands" are two hundred thousand at the least.
const HUNDREDS_OF_THOUSANDS: Bound = Bound::AtLeast(2e5);

/// Reads that are out at a time while interrupts are coalesced.
const OUT: u16 = 16;

/// What one arrangement costs: for each read, in nanoseconds.
struct Coalesced {
    latency_ns: u64,
    cpu_ns: f64,
    reads: f64,
}

/// A medium that ends one read each so many nanoseconds, so that completions come one by one.
const EACH_NS: u64 = 20_000;

/// Latency and CPU time by how many completions share an interrupt. The controller's own feature (Interrupt
/// Coalescing, Base 2.0, 5.27.1.6): a threshold, and 1 ms after which it interrupts however few there are.
fn coalescing(run: &mut Run<'_>, driver: &Driver) -> Result<(), Failure> {
    run.chart(Chart::lines(
        "coalescing",
        "Coalescing: time of a read and its CPU time by the completions that an interrupt waits for (16 reads out, one done each 20 µs)",
        Scale::linear("completions"),
        Scale::linear("µs"),
    ));
    let (rounds, count) = run.sized((2, 1_000), (7, 5_000));
    let mut ends = Vec::new();
    for threshold in [1u32, 2, 4, 8, 12, 16] {
        run.say(&format!("an interrupt for {threshold} completions"));
        let value = if threshold == 1 { 0 } else { (threshold - 1) | 10 << 8 };
        let clock = TscClock::new();
        driver.set_feature(feature::fid::INTERRUPT_COALESCING, value, 0, &mut Host::threaded(&clock))?;
        let (mut latency, mut cpu, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let one = coalesced(driver, count)?;
            latency.push(one.latency_ns as f64 / 1e3);
            cpu.push(one.cpu_ns / 1e3);
            shared.push(one.reads);
        }
        let name = |what: &str| format!("{what}, an interrupt for {threshold} completions");
        let x = f64::from(threshold);
        let latency =
            Finding::new(name("time of a read"), "us").machine(&latency).point("coalescing", "time", x);
        // The clock is read before and after all reads of a round.
        let resolution = cpu_clock_resolution_ns() as f64 / 1e3 / count as f64;
        let cpu = Finding::new(name("CPU time of a read"), "us").machine(&cpu).resolved_to(resolution);
        let cpu = cpu.point("coalescing", "CPU time", x);
        let found = (run.finding(latency), run.finding(cpu));
        run.finding(Finding::new(name("reads for each sleep"), "").machine(&shared));
        ends.push(found);
    }
    let clock = TscClock::new();
    driver.set_feature(feature::fid::INTERRUPT_COALESCING, 0, 0, &mut Host::threaded(&clock))?;
    if let (Some(none), Some(most)) = (ends.first(), ends.last()) {
        run.claim(
            Claim::new("coalescing reduces CPU utilization and increases latency", "3.4")
                .machine(Quantity::from(&most.1).over(&none.1), Bound::Below(1.0))
                .machine(Quantity::from(&most.0).over(&none.0), Bound::Above(1.0)),
        );
    }
    Ok(())
}

/// [`OUT`] reads at a time on one queue pair whose owner sleeps until the interrupt.
fn coalesced(driver: &Driver, count: usize) -> Result<Coalesced, Failure> {
    let clock = TscClock::new();
    let mut queue = driver.queue(QueueConfig { depth: OUT, interrupt: true }, &mut Host::threaded(&clock))?;
    let mut free = Vec::new();
    for _ in 0..OUT {
        free.push(driver.pool().take(512)?);
    }
    let (mut sent, mut sleeps) = (0u64, 0u64);
    let mut latencies = Vec::with_capacity(count);
    let before = thread_cpu_ns()?;
    while latencies.len() < count {
        while let Some(buffer) = free.pop() {
            let taken = queue.submit(&read(sent, 512), Some(buffer), 0, clock.now());
            taken.map_err(|e| format!("a read was refused: {:?}", e.reason))?;
            sent += 1;
        }
        queue.ring();
        queue.settle();
        if let Some(vector) = queue.vector() {
            sleeps += u64::from(vector.sleep(Some(LOOK), || !queue.is_ready()));
            // As a handler does: whoever comes later is another interrupt's.
            vector.event().take();
        }
        let now = clock.now();
        while let Some(done) = queue.reap() {
            done.outcome.map_err(|e| format!("a read failed: {e}"))?;
            latencies.push(now.since(done.submitted));
            free.extend(done.buffer);
        }
    }
    let cpu_ns = (thread_cpu_ns()? - before) as f64 / latencies.len() as f64;
    let reads = latencies.len() as f64 / sleeps.max(1) as f64;
    driver.delete(queue, &mut Host::threaded(&clock), drop)?;
    Ok(Coalesced { latency_ns: median(latencies.into_iter()), cpu_ns, reads })
}

/// An asynchronous read where its thread is the only one on the CPU,
/// and where a second process keeps the CPU awake.
fn idle(run: &mut Run<'_>, driver: &Driver) -> Result<(), Failure> {
    run.say("an idle CPU beside one that is kept awake");
    let mean = |costs: &Costs| -> Result<f64, Failure> {
        let outcome = alone(costs, Policy::Interrupt, 4096, Prototype::GEN2.medium())?;
        Ok(outcome.threads[0].call.mean_ns() / 1e3)
    };
    let costs = Costs::fast12();
    let adds = mean(&costs.clone().idling(IdleState::fast12_text()))? - mean(&costs)?;
    let (rounds, count) = run.sized((3, 300), (15, 5_000));
    let mut difference = Vec::new();
    if let Some(core) = path_core() {
        for _ in 0..rounds {
            let idle = latency(driver, count)?;
            let second = Second::slots(run.helper(), core)?;
            let awake = latency(driver, count)?;
            drop(second);
            difference.push((idle as f64 - awake as f64) / 1e3);
        }
    }
    let finding = Finding::new("what an idle CPU adds to an asynchronous read, 4 KiB", "us").paper(&IDLE);
    let finding = finding.model(adds).from(Arithmetic, &[IDLE_TEXT]);
    let finding = run.finding(finding.machine(&difference));
    run.claim(
        Claim::new("a thread that reads is slower where it is the only one active on its CPU", "3.4")
            .both(&finding, Bound::Above(0.0)),
    );
    run.note(
        "The text's 2 µs for the C-state are not Table 1's 0.5 µs (4 KiB); the model takes either as a parameter, here the text's. A driver \
         that chooses its idle states itself by MONITOR and MWAIT is not shown: user mode has no such instruction but on processors that \
         offer one, and this drive's driver is in user mode.",
    );
    Ok(())
}

/// The median time of asynchronous reads.
fn latency(driver: &Driver, count: usize) -> Result<u64, Failure> {
    let mut caller = Caller::new(driver, 4096)?;
    caller.io.set_policy(Policy::Interrupt);
    let mut times = Vec::with_capacity(count);
    for nth in 0..count as u64 {
        times.push(caller.execute(&read(nth, 4096))?.latency_ns);
    }
    caller.close()?;
    Ok(median(times.into_iter()))
}
