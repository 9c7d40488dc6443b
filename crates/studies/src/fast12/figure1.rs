//! Fig. 1: what the application sees of a read by the two paths, the device's time apart from the software's.

use nearside_driver::Policy;
use nearside_instrument::completion::{Bench, Cost, rounds};
use nearside_media::dram::Prototype;
use nearside_sim::cpu::Costs;

use super::machine::device_time;
use super::parameters::{ASYNC, DELIVERY, HOST, MEDIA, SYNC};
use super::stated::{ASYNCHRONOUS, INTERRUPT, POLLING, PROJECTED, SYNCHRONOUS, WORK};
use super::{BUSES, SIZES, alone, with_second};
use crate::Relation::Arithmetic;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Study};

/// Fig. 1.
pub const STUDY: Study = Study {
    number: "Fig. 1",
    title: "latency of the synchronous and the asynchronous path, device time apart",
    section: "3.3",
    run,
};

/// What the text states of the whole, in microseconds: synchronous and asynchronous with 4 KiB on Gen2;
/// synchronous as projected.
fn published(finding: Finding, policy: Policy, bus: usize, bytes: u32) -> Finding {
    match (policy, bus, bytes) {
        (Policy::Polled, 0, 4096) => finding.paper(&SYNCHRONOUS),
        (Policy::Interrupt, 0, 4096) => finding.paper(&ASYNCHRONOUS),
        (Policy::Polled, 1, 4096) => finding.paper(&PROJECTED),
        _ => finding,
    }
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    for (_, bus) in BUSES {
        run.chart(Chart::stacked(bus, &format!("Time of a read to the application, {bus}"), "µs"));
    }
    let costs = Costs::fast12();
    let mut whole = Vec::new();
    for (b, (bus, bus_name)) in BUSES.into_iter().enumerate() {
        let mut bench = Bench::new(bus.medium())?;
        for (bytes, size) in SIZES {
            run.say(&format!("{bus_name}, {size}"));
            let (n, count) = run.sized((3, 400), (9, 2_000));
            let [polled, interrupt, _] = rounds(&mut bench, bytes as usize, n, count)?;
            let mut machine = [Way::new(Policy::Polled, polled), Way::new(Policy::Interrupt, interrupt)];
            for way in &mut machine {
                for _ in 0..n {
                    let interrupt = way.policy == Policy::Interrupt;
                    let ns = device_time(bench.driver(), bytes, interrupt, count / 2)?;
                    way.device_us.push(ns as f64 / 1e3);
                }
            }
            whole.push(paths(run, &costs, b, bus, bytes, &machine)?);
            if b == 0 {
                cpu(run, bus, bytes, &machine)?;
            }
        }
    }
    claims(run, &costs, &whole)
}

/// The asynchronous path's whole times beside the synchronous one's: on Gen2 with 512 B and 4 KiB, then as
/// projected.
fn claims(run: &mut Run<'_>, costs: &Costs, whole: &[Finding]) -> Result<(), Failure> {
    let claim = Claim::new("the synchronous path completes a read sooner", "3.3");
    run.claim(whole.iter().fold(claim, |claim, whole| claim.both(whole.ratio(), Bound::Above(1.0))));
    if let [small, large, ..] = whole {
        let claim = Claim::new("and by an even greater margin with smaller transfers", "3.3");
        run.claim(claim.both(small.ratio().over(large.ratio()), Bound::Above(1.0)));
    }
    let software = with_second(costs, 4096, Prototype::PROJECTION.medium())?.software_us();
    let work = Finding::new("T_a + T_b, 8 Gb/s projection, 4 KiB", "us").paper(&WORK).model(software);
    let work = run.finding(work.from(Arithmetic, &[HOST]));
    run.claim(
        Claim::new("a faster device shortens the synchronous path only: 3.0 against 6.3 µs", "3.3")
            .model(Quantity::named("synchronous, 8 Gb/s projection, 4 KiB"), Bound::stated(&PROJECTED))
            .model(&work, Bound::stated(&WORK)),
    );
    Ok(())
}

/// What this machine measured of a path.
struct Way {
    policy: Policy,
    rounds: Vec<Cost>,
    /// From the doorbell until a thread sees the completion, software excluded: medians in microseconds.
    device_us: Vec<f64>,
}

impl Way {
    fn new(policy: Policy, rounds: Vec<Cost>) -> Way {
        Way { policy, rounds, device_us: Vec::new() }
    }
}

/// Both paths' whole times, with device and software apart; gives the asynchronous one's.
fn paths(
    run: &mut Run<'_>,
    costs: &Costs,
    b: usize,
    bus: Prototype,
    bytes: u32,
    machine: &[Way; 2],
) -> Result<Finding, Failure> {
    let mut beside: Option<Finding> = None;
    for Way { policy, rounds, device_us: own } in machine {
        let (mut all, mut device) = (vec![MEDIA[b]], vec![MEDIA[b]]);
        match policy {
            Policy::Polled => all.extend(SYNC),
            _ => {
                all.extend(ASYNC);
                device.push(DELIVERY);
            }
        }
        let path = if *policy == Policy::Polled { "synchronous" } else { "asynchronous" };
        let label = format!("{path}, {}, {}", BUSES[b].1, if bytes == 512 { "512 B" } else { "4 KiB" });
        let outcome = alone(costs, *policy, bytes, bus.medium())?;
        let call_us = outcome.threads[0].call.mean_ns() / 1e3;
        let device_us = outcome.threads[0].device.mean_ns() / 1e3;
        let runs: Vec<f64> = rounds.iter().map(|r| r.percentile_ns(0.5) as f64 / 1e3).collect();
        let whole = Finding::new(label.clone(), "us").model(call_us).from(Arithmetic, &all).machine(&runs);
        let whole = published(whole, *policy, b, bytes);
        let whole = run.finding(match &beside {
            Some(sync) => whole.beside(sync),
            None => whole,
        });
        let short = if *policy == Policy::Polled { "sync" } else { "async" };
        let bar = format!("{short}, {}", if bytes == 512 { "512 B" } else { "4 KiB" });
        // Both are medians of rounds; what is between them is the path's.
        let software: Vec<f64> = runs.iter().zip(own).map(|(us, device)| us - device).collect();
        let found = Finding::new(format!("{label}: device"), "us").model(device_us).machine(own);
        let found = found.from(Arithmetic, &device);
        let found = match (policy, b, bytes) {
            (Policy::Polled, 0, 4096) => found.paper(&POLLING[0][1]),
            (Policy::Interrupt, 0, 4096) => found.paper(&INTERRUPT[0][1]),
            _ => found,
        };
        run.finding(found.point(BUSES[b].1, "device", &*bar));
        let found =
            Finding::new(format!("{label}: software"), "us").model(call_us - device_us).machine(&software);
        run.finding(found.from(Arithmetic, &all).point(BUSES[b].1, "software", &*bar));
        beside = Some(whole);
    }
    beside.ok_or_else(|| "no path was measured".into())
}

/// CPU time of a read by both paths: the synchronous one's is all of its time, spinning included.
fn cpu(run: &mut Run<'_>, bus: Prototype, bytes: u32, machine: &[Way; 2]) -> Result<(), Failure> {
    let size = if bytes == 512 { "512 B" } else { "4 KiB" };
    let cost = |at: usize| machine[at].rounds.iter().map(|c| c.cpu_ns / 1e3).collect::<Vec<_>>();
    let resolution = machine[0].rounds.first().map_or(0.0, |c| c.resolution_ns / 1e3);
    let costs = Costs::fast12();
    let sync = alone(&costs, Policy::Polled, bytes, bus.medium())?;
    let spent = Finding::new(format!("CPU time of a synchronous read, {size}"), "us")
        .model(sync.time().total_ns() as f64 / 1e3 / sync.ended() as f64)
        .from(Arithmetic, &[SYNC[0], SYNC[1], MEDIA[0]])
        .machine(&cost(0))
        .resolved_to(resolution);
    let spent = run.finding(if bytes == 4096 { spent.paper(&SYNCHRONOUS) } else { spent });
    let software = with_second(&costs, bytes, bus.medium())?.software_us();
    let other = Finding::new(format!("CPU time of an asynchronous read, {size}"), "us")
        .model(software)
        .from(Arithmetic, &[HOST])
        .machine(&cost(1))
        .resolved_to(resolution);
    let other = if bytes == 4096 { other.paper(&WORK) } else { other };
    let other = run.finding(other.beside(&spent));
    let claim =
        Claim::new(&format!("spinning costs less CPU than the asynchronous path's work, {size}"), "3.3");
    run.claim(claim.both(other.ratio(), Bound::Above(1.0)));
    Ok(())
}
