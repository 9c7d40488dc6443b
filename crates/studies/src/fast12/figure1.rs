//! Fig. 1: what the application sees of a read by the two paths, the device's time apart from the software's.

use nearside_driver::Policy;
use nearside_instrument::completion::{Bench, Cost, rounds};
use nearside_media::dram::Prototype;
use nearside_media::{Medium, Request};
use nearside_sim::cpu::Costs;

use super::{BUSES, SIZES, alone, with_second};
use crate::{Chart, Claim, Failure, Finding, Run, Study, criteria};

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
        (Policy::Polled, 0, 4096) => finding.paper(4.38, "3.3"),
        (Policy::Interrupt, 0, 4096) => finding.paper(7.6, "3.3"),
        (Policy::Polled, 1, 4096) => finding.paper(3.0, "3.3"),
        _ => finding,
    }
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    for (_, bus) in BUSES {
        run.chart(Chart::stacked(bus, &format!("Time of a read to the application, {bus}"), "µs"));
    }
    let costs = Costs::fast12();
    // Asynchronous over synchronous by bus and size: model, machine.
    let mut shown = Vec::new();
    for (b, (bus, bus_name)) in BUSES.into_iter().enumerate() {
        let mut bench = Bench::new(bus.medium())?;
        for (bytes, size) in SIZES {
            run.say(&format!("{bus_name}, {size}"));
            let (n, count) = run.sized((3, 400), (9, 2_000));
            let [polled, interrupt, _] = rounds(&mut bench, bytes as usize, n, count)?;
            let machine = [(Policy::Polled, polled), (Policy::Interrupt, interrupt)];
            let whole = paths(run, &costs, b, bus, bytes, &machine)?;
            shown.push((b, bytes, whole.model_ratio, whole.figure.ratio));
            if b == 0 {
                cpu(run, bus, bytes, &machine)?;
            }
        }
    }
    let sooner = |of: fn(&Shown) -> Option<f64>| criteria::all_above_one(shown.iter().map(of));
    let list = |of: fn(&Shown) -> Option<f64>| {
        shown.iter().filter_map(of).map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(", ")
    };
    let claim = Claim::new("the synchronous path completes a read sooner", "3.3");
    run.claim(Claim { model: sooner(|s| s.2), machine: sooner(|s| s.3), ..claim }.because(format!(
        "asynchronous over synchronous: model {}; machine {}",
        list(|s| s.2),
        list(|s| s.3)
    )));
    let wider = |of: fn(&Shown) -> Option<f64>| match &shown[..2] {
        [small, large] => of(small) > of(large),
        _ => false,
    };
    run.claim(
        Claim::new("and by an even greater margin with smaller transfers", "3.3")
            .model(wider(|s| s.2))
            .machine(wider(|s| s.3)),
    );
    let (sync, overhead) = (
        alone(&costs, Policy::Polled, 4096, Prototype::PROJECTION.medium())?.threads[0].call.mean_ns() / 1e3,
        with_second(&costs, 4096, Prototype::PROJECTION.medium())?.software_us(),
    );
    run.claim(
        Claim::new("a faster device shortens the synchronous path only: 3.0 against 6.3 µs", "3.3")
            .model((sync / 3.0 - 1.0).abs() <= 0.1 && (overhead / 6.3 - 1.0).abs() <= 0.1)
            .because(format!(
                "predicted from the 4 KiB measurements on Gen2: {sync:.2} against {overhead:.2} µs"
            )),
    );
    Ok(())
}

type Shown = (usize, u32, Option<f64>, Option<f64>);

/// Both paths' whole times, with device and software apart; gives the asynchronous one's.
fn paths(
    run: &mut Run<'_>,
    costs: &Costs,
    b: usize,
    bus: Prototype,
    bytes: u32,
    machine: &[(Policy, Vec<Cost>); 2],
) -> Result<Finding, Failure> {
    let own_us = bus.medium().finish(Request::read(0, bytes.into()), 0) as f64 / 1e3;
    let mut beside: Option<Finding> = None;
    for (policy, rounds) in machine {
        let path = if *policy == Policy::Polled { "synchronous" } else { "asynchronous" };
        let label = format!("{path}, {}, {}", BUSES[b].1, if bytes == 512 { "512 B" } else { "4 KiB" });
        let outcome = alone(costs, *policy, bytes, bus.medium())?;
        let call_us = outcome.threads[0].call.mean_ns() / 1e3;
        let device_us = outcome.threads[0].device.mean_ns() / 1e3;
        let runs: Vec<f64> = rounds.iter().map(|r| r.percentile_ns(0.5) as f64 / 1e3).collect();
        let whole = Finding::new(label.clone(), "us").model(call_us).machine(&runs);
        let whole = published(whole, *policy, b, bytes);
        let whole = run.finding(match &beside {
            Some(sync) => whole.beside(sync),
            None => whole,
        });
        let short = if *policy == Policy::Polled { "sync" } else { "async" };
        let bar = format!("{short}, {}", if bytes == 512 { "512 B" } else { "4 KiB" });
        let software: Vec<f64> = runs.iter().map(|us| us - own_us).collect();
        // On this machine the device's time is its medium's; the delivery of an interrupt counts as software.
        let device = Finding::new(format!("{label}: device"), "us").model(device_us).machine(&[own_us]);
        let device = match (policy, b, bytes) {
            (Policy::Polled, 0, 4096) => device.paper(2.9, "Table 1"),
            (Policy::Interrupt, 0, 4096) => device.paper(4.1, "Table 1"),
            _ => device,
        };
        run.finding(device.point(BUSES[b].1, "device", &*bar));
        let software =
            Finding::new(format!("{label}: software"), "us").model(call_us - device_us).machine(&software);
        run.finding(software.point(BUSES[b].1, "software", &*bar));
        beside = Some(whole);
    }
    beside.ok_or_else(|| "no path was measured".into())
}

/// CPU time of a read by both paths: the synchronous one's is all of its time, spinning included.
fn cpu(
    run: &mut Run<'_>,
    bus: Prototype,
    bytes: u32,
    machine: &[(Policy, Vec<Cost>); 2],
) -> Result<(), Failure> {
    let size = if bytes == 512 { "512 B" } else { "4 KiB" };
    let cost = |at: usize| machine[at].1.iter().map(|c| c.cpu_ns / 1e3).collect::<Vec<_>>();
    let resolution = machine[0].1.first().map_or(0.0, |c| c.resolution_ns / 1e3);
    let costs = Costs::fast12();
    let sync = alone(&costs, Policy::Polled, bytes, bus.medium())?;
    let spent = Finding::new(format!("CPU time of a synchronous read, {size}"), "us")
        .model(sync.time().total_ns() as f64 / 1e3 / sync.ended() as f64)
        .machine(&cost(0))
        .resolved_to(resolution);
    let spent = run.finding(if bytes == 4096 { spent.paper(4.38, "3.3") } else { spent });
    let software = with_second(&costs, bytes, bus.medium())?.software_us();
    let other = Finding::new(format!("CPU time of an asynchronous read, {size}"), "us")
        .model(software)
        .machine(&cost(1))
        .resolved_to(resolution);
    let other = if bytes == 4096 { other.paper(6.3, "3.3") } else { other };
    let other = run.finding(other.beside(&spent));
    let claim =
        Claim::new(&format!("spinning costs less CPU than the asynchronous path's work, {size}"), "3.3");
    let [model, machine] =
        [other.model_ratio, other.figure.ratio].map(|ratio| criteria::all_above_one([ratio]));
    run.claim(Claim { model, machine, ..claim });
    Ok(())
}
