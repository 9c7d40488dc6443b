//! Section 4: the hybrid of both paths over sizes and stalls, beside two other rules; what non-blocking calls
//! add to a blocking one over synchronous completion; an application that asks which completion model holds
//! (`crates/driver/examples/adapt.rs`).
//!
//! The model books what the rules cost with the parameters of [`Costs::fast12`], a sleep's overshoot being a
//! wake-up's; this machine sleeps and spins. The device takes 2 µs and 0.1 ns a byte; with stalls, one read
//! in 200 takes 5 ms more (in a small run, one in 50).

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_dma::cpu::{cpu_clock_resolution_ns, thread_cpu_ns};
use nearside_driver::policy::Slept;
use nearside_driver::{Command, Controller, Host, Policy, QueueConfig, QueuePair, Transport};
use nearside_instrument::completion::Bench;
use nearside_media::{Delay, Medium, Request};
use nearside_sim::cpu::Costs;

use super::machine::{Caller, median, read};
use super::parameters::{DEVICE, HOST};
use super::rules::Rule;
use crate::Relation::Simulated;
use crate::claim::WITHIN;
use crate::{Bound, Chart, Claim, Failure, Finding, Run, Scale, Study};

/// Section 4.
pub const STUDY: Study = Study {
    number: "Section 4",
    title: "the hybrid over sizes and stalls; non-blocking calls over synchronous completion",
    section: "4",
    run,
};

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let sizes: Vec<usize> = (9..=20).step_by(run.sized(5, 1)).map(|shift| 1 << shift).collect();
    over_sizes(run, &sizes, STEADY, "steady")?;
    // A short round has to meet some.
    let stall_every = run.sized(50, 200);
    over_sizes(run, &sizes, Delay { stall_every, stall_ns: STALL_NS, ..STEADY }, "with stalls")?;
    super::changing::run(run)?;
    non_blocking(run)
}

/// The device without its stalls: 2 µs and 0.1 ns a byte.
pub(super) const STEADY: Delay =
    Delay { fixed_ns: 2_000, per_kib_ns: 100, units: 0, stripe: 4096, stall_every: 0, stall_ns: 0, seed: 1 };

/// What a stall adds.
pub(super) const STALL_NS: u64 = 5_000_000;

/// What a rule costs: a read's mean time and CPU time, and what of the time was the device's own,
/// in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub time_ns: f64,
    pub cpu_ns: f64,
    pub device_ns: f64,
}

/// All rules over the sizes.
fn over_sizes(run: &mut Run<'_>, sizes: &[usize], delay: Delay, device: &str) -> Result<(), Failure> {
    for (who, words) in [("model", "the model"), ("machine", "this machine")] {
        for (what, name) in
            [("time", "mean time of a read beyond the device's"), ("cpu", "CPU time of a read")]
        {
            run.chart(Chart::lines(
                &format!("{what}, {device}, {who}"),
                &format!("Device {device}, {words}: {name}"),
                Scale::log("bytes"),
                Scale::log("µs"),
            ));
        }
    }
    let bench = Bench::new(delay.medium())?;
    let (rounds, count) = run.sized((2, 200), (5, 600));
    let mut judged = [Judged::new(), Judged::new()];
    for &bytes in sizes {
        run.say(&format!("{bytes} B, device {device}"));
        let model: Vec<Cost> = Rule::all(Costs::fast12().wake_up_ns())
            .into_iter()
            .map(|(_, rule)| simulated(rule, bytes, delay.medium(), |nth, _| nth >= READS))
            .collect();
        let mut machine = vec![Vec::new(); model.len()];
        for _ in 0..rounds {
            // In turn, so that what the machine does meanwhile falls on all of them.
            for (costs, (_, rule)) in machine.iter_mut().zip(Rule::all(30_000)) {
                costs.push(measured(&bench, rule, bytes, count, delay)?);
            }
        }
        let mut medians = Vec::new();
        for ((name, _), (model, machine)) in Rule::all(1).into_iter().zip(model.iter().zip(&machine)) {
            let mut values = [0.0; 2];
            for (what, of_model, of_machine) in [
                (
                    "time",
                    model.time_ns - model.device_ns,
                    machine.iter().map(|c| c.time_ns - c.device_ns).collect::<Vec<_>>(),
                ),
                ("cpu", model.cpu_ns, machine.iter().map(|c| c.cpu_ns).collect()),
            ] {
                let runs: Vec<f64> = of_machine.iter().map(|ns| ns / 1e3).collect();
                let text = if what == "time" { "time beyond the device's" } else { "CPU time" };
                let name_of = |who: &str| format!("{text}, {name}, {bytes} B, {device}, {who}");
                let x = bytes as f64;
                let finding = Finding::new(name_of("model"), "us").model(of_model / 1e3);
                let finding = finding.from(Simulated, &[HOST, DEVICE]);
                run.finding(finding.point(&format!("{what}, {device}, model"), name, x));
                let finding = Finding::new(name_of("this machine"), "us").machine(&runs);
                // A reading before and after each read.
                let finding = match what {
                    "cpu" => finding.resolved_to(cpu_clock_resolution_ns() as f64 / 1e3),
                    _ => finding,
                };
                let finding = run.finding(finding.point(&format!("{what}, {device}, machine"), name, x));
                values[usize::from(what == "cpu")] = finding.figure.value * 1e3;
            }
            let device_ns = mean_device_ns(delay, bytes);
            medians.push(Cost { time_ns: values[0] + device_ns, cpu_ns: values[1], device_ns });
        }
        judged[0].take(bytes, &model);
        judged[1].take(bytes, &medians);
    }
    claims(run, device, &judged);
    Ok(())
}

/// Of the model and of this machine, by one rule.
fn claims(run: &mut Run<'_>, device: &str, [model, machine]: &[Judged; 2]) {
    let text = format!("the hybrid is about as fast as the better path at every size, device {device}");
    let (mut fast, mut cheap) = (
        Claim::new(&text, "4"),
        Claim::new(&format!("and takes no more CPU than spinning, device {device}"), "4"),
    );
    for (of, time) in [(Judged::worst as fn(&Judged) -> f64, true), (Judged::cpu, false)] {
        let what = if time { "time over the better path's" } else { "CPU time over spinning's" };
        let name = format!("the hybrid's {what}, worst size, {device}");
        let finding = Finding::new(name, "").model(of(model)).from(Simulated, &[HOST, DEVICE]);
        let finding = run.finding(finding.machine(&[of(machine)]));
        match time {
            true => fast = fast.both(&finding, Bound::AtMost(1.0 + WITHIN)),
            false => cheap = cheap.both(&finding, Bound::AtMost(1.05)),
        }
    }
    run.claim(
        fast.because(format!("The worst size is {} B, and {} B here", model.worst_at, machine.worst_at)),
    );
    run.claim(
        cheap.because(format!("At the largest size {:.2}, and {:.2} here", model.last_cpu, machine.last_cpu)),
    );
}

/// The hybrid beside the paths, over the sizes.
struct Judged {
    /// Its time over the better path's, at worst; at which size.
    worst: f64,
    worst_at: usize,
    /// Its CPU time over the synchronous path's: at most, and at the last size.
    cpu: f64,
    last_cpu: f64,
}

impl Judged {
    fn new() -> Judged {
        Judged { worst: 0.0, worst_at: 0, cpu: 0.0, last_cpu: 0.0 }
    }

    fn worst(&self) -> f64 {
        self.worst
    }

    fn cpu(&self) -> f64 {
        self.cpu
    }

    fn take(&mut self, bytes: usize, costs: &[Cost]) {
        let [sync, asynchronous, hybrid, ..] = costs else { return };
        let ratio = hybrid.time_ns / sync.time_ns.min(asynchronous.time_ns);
        if ratio > self.worst {
            (self.worst, self.worst_at) = (ratio, bytes);
        }
        self.last_cpu = hybrid.cpu_ns / sync.cpu_ns;
        self.cpu = self.cpu.max(self.last_cpu);
    }
}

/// The device's own mean time.
fn mean_device_ns(delay: Delay, bytes: usize) -> f64 {
    let steady = Delay { stall_every: 0, ..delay };
    let stalls = if delay.stall_every > 0 { delay.stall_ns as f64 / delay.stall_every as f64 } else { 0.0 };
    steady.medium().finish(Request::read(0, bytes as u64), 0) as f64 + stalls
}

/// Reads of a rule in simulated time.
const READS: u64 = 20_000;

/// The rule in simulated time, one read after another until their number or the time is `enough`.
pub(super) fn simulated(
    rule: Rule,
    bytes: usize,
    medium: impl Medium,
    enough: impl Fn(u64, Nanos) -> bool,
) -> Cost {
    let costs = Costs::fast12();
    simulated_on(&costs, || costs.wake_up_ns(), rule, bytes, medium, enough)
}

/// The same on a host of these costs, where a sleep takes `over_ns` more than asked.
pub(super) fn simulated_on(
    costs: &Costs,
    mut over_ns: impl FnMut() -> u64,
    mut rule: Rule,
    bytes: usize,
    mut medium: impl Medium,
    enough: impl Fn(u64, Nanos) -> bool,
) -> Cost {
    let asynchronous_ns =
        costs.queue_ns + costs.context_ns + costs.handler_ns + costs.wake_ns + costs.back_ns;
    let (mut now, mut time_ns, mut cpu_ns, mut devices_ns) = (0u64, 0u64, 0u64, 0u64);
    let mut nth = 0;
    while !enough(nth, Nanos(now)) {
        let way = rule.decide(bytes, Nanos(now));
        let device_ns = medium.finish(Request::read(nth * bytes as u64, bytes as u64), now) - now;
        let (mut slept, mut exact) = (None, true);
        let (took_ns, used_ns) = if way.asynchronous {
            (device_ns + costs.delivery_ns + asynchronous_ns, asynchronous_ns + 2 * costs.switch_ns)
        } else {
            let sleeps = way.sleep_ns > 0;
            let asleep_ns = if sleeps { way.sleep_ns + over_ns() } else { 0 };
            let late = asleep_ns > device_ns;
            let cpu_ns = Some(2 * costs.switch_ns);
            slept = sleeps.then_some(Slept { asked_ns: way.sleep_ns, took_ns: asleep_ns, cpu_ns, late });
            exact = !late;
            let spin_ns = device_ns.saturating_sub(asleep_ns);
            let (spun_ns, more_ns, switches) = match spin_ns <= way.spin_ns {
                true => (spin_ns, 0, u64::from(sleeps)),
                // Stalled: it arms the interrupt and sleeps.
                false => (way.spin_ns, costs.wake_up_ns(), u64::from(sleeps) + 1),
            };
            let software_ns = costs.submit_ns + costs.complete_ns;
            (
                device_ns.max(asleep_ns) + more_ns + software_ns,
                software_ns + spun_ns + switches * 2 * costs.switch_ns,
            )
        };
        now += took_ns;
        rule.learn(bytes, took_ns, slept, exact, Nanos(now));
        time_ns += took_ns;
        cpu_ns += used_ns;
        devices_ns += device_ns;
        nth += 1;
    }
    let [time_ns, cpu_ns, device_ns] = [time_ns, cpu_ns, devices_ns].map(|ns| ns as f64 / nth.max(1) as f64);
    Cost { time_ns, cpu_ns, device_ns }
}

/// The rule in real time. The means are put at the rate of stalls that the device has:
/// those that a short round meets are few.
fn measured(bench: &Bench, rule: Rule, bytes: usize, count: usize, delay: Delay) -> Result<Cost, Failure> {
    let reads = reads(bench, rule, bytes, |nth, _| nth >= count as u64)?;
    let stalled = |r: &&(u64, u64)| r.0 >= STALL_NS * 9 / 10;
    let mean = |stalls: bool, of: fn(&(u64, u64)) -> u64| {
        let values: Vec<u64> = reads.times.iter().filter(|r| stalled(r) == stalls).map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<u64>() as f64 / values.len() as f64)
    };
    let share = if delay.stall_every > 0 { 1.0 / delay.stall_every as f64 } else { 0.0 };
    // A round that met no stall says nothing of its CPU time; its time is known.
    let mix = |of: fn(&(u64, u64)) -> u64, stall_ns: f64| {
        let steady = mean(false, of).unwrap_or(0.0);
        steady * (1.0 - share) + mean(true, of).unwrap_or(steady + stall_ns) * share
    };
    let time_ns = mix(|r| r.0, STALL_NS as f64);
    let cpu_ns = mix(|r| r.1, 0.0) + reads.others_ns;
    Ok(Cost { time_ns, cpu_ns, device_ns: mean_device_ns(delay, bytes) })
}

/// What reads took: each one's time and the CPU time of its thread; and of other threads for each.
pub(super) struct Reads {
    pub times: Vec<(u64, u64)>,
    pub others_ns: f64,
}

/// Reads by a rule until their number, or the time that they have taken, is `enough`.
pub(super) fn reads(
    bench: &Bench,
    rule: Rule,
    bytes: usize,
    enough: impl Fn(u64, Nanos) -> bool,
) -> Result<Reads, Failure> {
    match rule.policy() {
        Some(policy) => by_policy(bench, policy, bytes, enough),
        None => by_sleeping(bench, rule, bytes, enough),
    }
}

/// By the driver's paths.
fn by_policy(
    bench: &Bench,
    policy: Policy,
    bytes: usize,
    enough: impl Fn(u64, Nanos) -> bool,
) -> Result<Reads, Failure> {
    let mut caller = Caller::new(bench.driver(), bytes)?;
    caller.io.set_policy(policy);
    let mut times = Vec::new();
    for nth in 0..WARM as u64 {
        caller.execute(&place(nth, bytes))?;
    }
    let before = caller.served_ns();
    let clock = TscClock::new();
    let from = clock.now();
    while !enough(times.len() as u64, Nanos(clock.now().since(from))) {
        let cpu = thread_cpu_ns()?;
        let done = caller.execute(&place(times.len() as u64, bytes))?;
        times.push((done.latency_ns, thread_cpu_ns()? - cpu));
    }
    let others_ns = (caller.served_ns() - before) as f64 / times.len().max(1) as f64;
    caller.close()?;
    Ok(Reads { times, others_ns })
}

/// Reads before those that count: a rule learns from them.
const WARM: usize = 100;

/// A place of the drive's 64 MiB.
fn place(nth: u64, bytes: usize) -> Command {
    let blocks = (bytes / 512) as u64;
    Command::read(1, nth % (131_072 / blocks) * blocks, blocks as u32)
}

/// By a rule that sleeps and then spins.
fn by_sleeping(
    bench: &Bench,
    mut rule: Rule,
    bytes: usize,
    enough: impl Fn(u64, Nanos) -> bool,
) -> Result<Reads, Failure> {
    let (driver, clock) = (bench.driver(), TscClock::new());
    let mut queue = driver.queue(QueueConfig { depth: 4, interrupt: false }, &mut Host::threaded(&clock))?;
    let mut buffer = Some(driver.pool().take(bytes)?);
    let mut times = Vec::new();
    let mut began = clock.now();
    for nth in 0u64.. {
        if nth == WARM as u64 {
            began = clock.now();
        }
        if nth >= WARM as u64 && enough(nth - WARM as u64, Nanos(clock.now().since(began))) {
            break;
        }
        let cpu = thread_cpu_ns()?;
        let from = clock.now();
        let way = rule.decide(bytes, from);
        let sent = queue.submit(&place(nth, bytes), buffer.take(), 0, from);
        sent.map_err(|e| format!("a read was refused: {:?}", e.reason))?;
        queue.ring();
        let slept = (way.sleep_ns > 0).then(|| sleep(&clock, &queue, way.sleep_ns));
        while !queue.is_ready() {
            std::hint::spin_loop();
        }
        let now = clock.now();
        let done = queue.reap().ok_or("a completion was lost")?;
        done.outcome.map_err(|e| format!("a read failed: {e}"))?;
        buffer = done.buffer;
        let took_ns = now.since(from);
        rule.learn(bytes, took_ns, slept, slept.is_none_or(|s| !s.late), now);
        times.push((took_ns, thread_cpu_ns()? - cpu));
    }
    driver.delete(queue, &mut Host::threaded(&clock), drop)?;
    Ok(Reads { times: times.split_off(WARM), others_ns: 0.0 })
}

fn sleep(clock: &TscClock, queue: &QueuePair, ns: u64) -> Slept {
    let from = clock.now();
    std::thread::sleep(std::time::Duration::from_nanos(ns));
    Slept { asked_ns: ns, took_ns: clock.now().since(from), cpu_ns: None, late: queue.is_ready() }
}

/// What a non-blocking call adds where the operating system has the result when it returns:
/// submit, ask, take, beside one call.
fn non_blocking(run: &mut Run<'_>) -> Result<(), Failure> {
    run.say("non-blocking calls over synchronous completion");
    let (rounds, count) = run.sized((3, 3_000), (15, 30_000));
    let bench = Bench::new(Delay::fixed(0).medium())?;
    let mut caller = Caller::new(bench.driver(), 512)?;
    caller.io.set_policy(Policy::Polled);
    let clock = TscClock::new();
    let mut results: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds {
        let mut blocking = Vec::with_capacity(count);
        for nth in 0..count as u64 {
            let from = clock.now();
            caller.execute(&read(nth, 512))?;
            blocking.push(clock.now().since(from));
        }
        let mut non_blocking = Vec::with_capacity(count);
        for nth in 0..count as u64 {
            let from = clock.now();
            caller.call(&read(nth, 512))?;
            non_blocking.push(clock.now().since(from));
        }
        results[0].push(median(blocking.into_iter()) as f64);
        results[1].push(median(non_blocking.into_iter()) as f64);
    }
    caller.close()?;
    let blocking = run.finding(Finding::new("a blocking read of 512 B", "ns").machine(&results[0]));
    let calls =
        Finding::new("the same by non-blocking calls: submit, poll until done", "ns").machine(&results[1]);
    let calls = run.finding(calls.beside(&blocking));
    run.claim(
        Claim::new("the non-blocking interface adds overhead", "4").machine(calls.ratio(), Bound::Above(1.0)),
    );
    Ok(())
}
