//! Fig. 2: where the time of an asynchronous read goes, found by a second process on the same CPU; and the
//! device time below which the interrupt gives nobody anything.
//!
//! T_d is the time from the doorbell until the handler begins, T_u what the second process gets of
//! it, T_b = T_d - T_u what the switches to it and back take, T_a the rest of the path. On this
//! machine T_d is Table 1's: until a thread that the interrupt wakes runs, measured beside the
//! second process on a queue pair of its own.

use nearside_driver::Policy;
use nearside_instrument::completion::Bench;
use nearside_media::Delay;
use nearside_media::dram::Prototype;
use nearside_sim::cpu::Costs;

use super::machine::{beside_second, path_core};
use super::parameters::{DELIVERY, HOST, MEDIA, SWITCH, SYNC};
use super::stated::{SYNCHRONOUS, T_A, T_B, T_D, T_U, WORK};
use super::with_second;
use crate::Relation::Arithmetic;
use crate::{Bound, Chart, Claim, Failure, Finding, Run, Scale, Study};

/// Fig. 2.
pub const STUDY: Study = Study {
    number: "Fig. 2",
    title: "T_a, T_b, T_d, T_u by a second process; the device time below which interrupts recover nothing",
    section: "3.3",
    run,
};

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let costs = Costs::fast12();
    parts(run, &costs)?;
    useful(run, &costs)
}

/// The four, with 4 KiB on the prototype.
fn parts(run: &mut Run<'_>, costs: &Costs) -> Result<(), Failure> {
    run.say("the four parts with 4 KiB");
    run.chart(Chart::sides(
        "parts",
        "Where the time of an asynchronous read of 4 KiB goes",
        Scale::linear("µs"),
    ));
    let model = with_second(costs, 4096, Prototype::GEN2.medium())?;
    let (t_u, t_d) = (model.useful_us(), model.device_us());
    let t_b = t_d - t_u;
    let t_a = model.software_us() - t_b;
    let mut bench = Bench::new(Prototype::GEN2.medium())?;
    let (rounds, count) = run.sized((3, 500), (9, 5_000));
    let mut machine: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        if let Some(parts) = beside_second(run, &bench, 4096, count)? {
            let us = |ns: u64| ns as f64 / 1e3;
            let (total, t_d, t_u) = (us(parts.total_ns), us(parts.device_ns), us(parts.useful_ns));
            for (runs, value) in machine.iter_mut().zip([total - t_d, t_d - t_u, t_d, t_u, total - t_u]) {
                runs.push(value);
            }
        }
    }
    let parts: [(&str, _, _, &[&str]); 4] = [
        ("T_a", T_A, t_a, &[HOST]),
        ("T_b", T_B, t_b, &[SWITCH]),
        ("T_d", T_D, t_d, &[MEDIA[0], DELIVERY]),
        ("T_u", T_U, t_u, &[MEDIA[0], DELIVERY, SWITCH]),
    ];
    for ((name, stated, model, from), runs) in parts.into_iter().zip(&machine) {
        let finding = Finding::new(name, "us").paper(&stated).model(model).from(Arithmetic, from);
        run.finding(finding.machine(runs).point("parts", "time", name));
    }
    // The other path on the same core: all of its time, spinning included.
    let mut spun = Vec::new();
    for _ in 0..rounds {
        let mut cost = nearside_instrument::completion::Cost::default();
        bench.round(Policy::Polled, 4096, count, &mut cost)?;
        cost.latencies_ns.sort_unstable();
        spun.push(cost.percentile_ns(0.5) as f64 / 1e3);
    }
    let sync =
        super::alone(costs, Policy::Polled, 4096, Prototype::GEN2.medium())?.threads[0].call.mean_ns() / 1e3;
    let sync = Finding::new("the synchronous path, spinning included", "us")
        .paper(&SYNCHRONOUS)
        .model(sync)
        .from(Arithmetic, &[SYNC[0], SYNC[1], MEDIA[0]])
        .machine(&spun);
    let sync = run.finding(sync);
    let work = Finding::new("T_a + T_b", "us").paper(&WORK).model(model.software_us()).machine(&machine[4]);
    let work = run.finding(work.from(Arithmetic, &[HOST]).beside(&sync));
    let claim = Claim::new("T_a + T_b is more than the synchronous path takes, spinning included", "3.3");
    run.claim(claim.both(work.ratio(), Bound::Above(1.0)));
    if path_core().is_none() {
        run.note("This machine has one core: the second process cannot stand beside a drive of its own.");
    }
    Ok(())
}

/// T_u over T_d, and where it begins.
fn useful(run: &mut Run<'_>, costs: &Costs) -> Result<(), Failure> {
    run.chart(Chart::lines(
        "useful",
        "What a second process gets of an asynchronous read (T_u) by the time that the device takes (T_d)",
        Scale::linear("T_d, µs"),
        Scale::linear("T_u, µs"),
    ));
    // The model's T_d holds the delivery of the interrupt.
    let of_model = |t_d: u64| with_second(costs, 4096, Delay::fixed(t_d - costs.delivery_ns).medium());
    for t_d in [1_250, 1_350, 1_450, 1_600, 2_000, 3_000, 4_100, 6_000, 10_000, 15_000, 20_000, 30_000] {
        let us = t_d as f64 / 1e3;
        let finding = Finding::new(format!("T_u at a T_d of {us:.2} us, model"), "us")
            .model(of_model(t_d)?.useful_us())
            .from(Arithmetic, &[SWITCH]);
        run.finding(finding.point("useful", "T_u", us));
    }
    let model = least(costs.delivery_ns + 1, 10_000, |t_d| Ok(of_model(t_d)?.useful_us() >= 0.001))?;
    let times: &[u64] = run.sized(&[1, 30], &[0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 25, 30]);
    let (rounds, count) = run.sized((2, 300), (5, 1_500));
    // Each medium's T_d and T_u.
    let mut found = Vec::new();
    for &time in times {
        run.say(&format!("the second process beside a device of {time} µs"));
        let bench = Bench::new(Delay::fixed(time * 1000).medium())?;
        let (mut useful, mut device) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            if let Some(parts) = beside_second(run, &bench, 4096, count)? {
                useful.push(parts.useful_ns as f64 / 1e3);
                device.push(parts.device_ns as f64 / 1e3);
            }
        }
        let name = |what: &str| format!("{what} of a medium of {time} us, this machine");
        let t_d = run.finding(Finding::new(name("T_d"), "us").machine(&device));
        let Some(at) = t_d.measured() else { break };
        let t_u = Finding::new(name("T_u"), "us").machine(&useful).point("useful", "T_u", at);
        found.push((at, run.finding(t_u).figure.value));
    }
    crossing(run, model, &found);
    Ok(())
}

/// What counts as nothing, in microseconds: the second process tells times apart by less.
const NOTHING_US: f64 = 0.1;

/// The least T_d that leaves anyone anything. This machine's T_b is what T_d is longer than T_u at the
/// slowest medium; it is held against the media whose T_d is below that, where there are some.
fn crossing(run: &mut Run<'_>, model_ns: u64, found: &[(f64, f64)]) {
    let t_b = found.last().filter(|(_, t_u)| *t_u >= NOTHING_US).map(|(t_d, t_u)| t_d - t_u);
    let crossing = Finding::new("T_d below which nothing is recovered", "us").paper(&T_B);
    let crossing = crossing.model(model_ns as f64 / 1e3).from(Arithmetic, &[SWITCH]);
    let crossing = run.finding(crossing.machine(t_b.as_slice()));
    let below = found.iter().filter(|(t_d, _)| t_b.is_some_and(|t_b| *t_d < t_b));
    let got = below.map(|(_, t_u)| *t_u).reduce(f64::max);
    let most = Finding::new("the most that the second process got at a T_d below T_b", "us");
    let most = run.finding(most.machine(got.as_slice()));
    run.claim(
        Claim::new("below a device time of T_b the asynchronous path recovers no useful time", "3.3")
            .model(&crossing, Bound::stated(&T_B))
            .machine(&most, Bound::Below(NOTHING_US)),
    );
    if most.measured().is_none() && t_b.is_some() {
        run.note(
            "No medium here was below T_b: even with none the interrupt's waiter takes longer to wake than the switches do. So this machine \
             says nothing of a device time below T_b.",
        );
    }
    if t_b.is_none() {
        run.note(
            "The second process was given nothing: something else wanted the core as well, and it runs at idle priority. Measure on a \
             quiet machine.",
        );
    }
}

/// The least value for which something holds that holds for all beyond.
fn least(mut low: u64, mut high: u64, holds: impl Fn(u64) -> Result<bool, Failure>) -> Result<u64, Failure> {
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
