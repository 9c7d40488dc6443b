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
use super::with_second;
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

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
    let names = ["T_a", "T_b", "T_d", "T_u"];
    for (i, (name, model)) in names.into_iter().zip([t_a, t_b, t_d, t_u]).enumerate() {
        let paper = [4.9, 1.4, 4.1, 2.7][i];
        let finding = Finding::new(name, "us").paper(paper, "Fig. 2").model(model).machine(&machine[i]);
        run.finding(finding.point("parts", "time", name));
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
        .paper(4.38, "3.3")
        .model(sync)
        .machine(&spun);
    let sync = run.finding(sync);
    let work =
        Finding::new("T_a + T_b", "us").paper(6.3, "3.3").model(model.software_us()).machine(&machine[4]);
    let work = run.finding(work.beside(&sync));
    let claim = Claim::new("T_a + T_b is more than the synchronous path takes, spinning included", "3.3");
    let [model, machine] =
        [work.model_ratio, work.figure.ratio].map(|ratio| criteria::all_above_one([ratio]));
    run.claim(Claim { model, machine, ..claim });
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
            .model(of_model(t_d)?.useful_us());
        run.finding(finding.point("useful", "T_u", us));
    }
    let model = least(costs.delivery_ns + 1, 10_000, |t_d| Ok(of_model(t_d)?.useful_us() >= 0.001))?;
    let times: &[u64] = run.sized(&[1, 30], &[0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 25, 30]);
    let (rounds, count) = run.sized((2, 300), (5, 1_500));
    // What the second process does not get where it gets something.
    let mut lost = Vec::new();
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
        let t_u = run.finding(t_u).figure.value;
        if t_u >= 0.1 {
            lost.push(at - t_u);
        }
    }
    let crossing = Finding::new("T_d below which nothing is recovered", "us").paper(1.4, "3.3");
    let crossing = run.finding(crossing.model(model as f64 / 1e3).machine(&lost));
    let claim = Claim::new("below a device time of T_b the asynchronous path recovers no useful time", "3.3")
        .model((crossing.model.unwrap_or(0.0) / 1.4 - 1.0).abs() <= 0.1);
    if crossing.measured().is_none() {
        run.note(
            "The second process was given nothing: something else wanted the core as well, and it runs at idle priority. Measure on a \
             quiet machine.",
        );
    }
    run.claim(match crossing.measured() {
        Some(t_b) => claim.machine(t_b > 0.0).because(format!(
            "here T_b is {t_b:.1} µs: what T_d is longer than T_u at the media at which the second process got anything"
        )),
        None => claim,
    });
    Ok(())
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
