//! The completion paths: over device times from 0 to 100 µs,
//! and the hybrid under injected stalls at each size from 512 B to 1 MiB.

use nearside_instrument::Failure;
use nearside_instrument::completion::{self, Bench, Cost, POLICIES, unpin};
use nearside_loadgen::record::Figure;
use nearside_store::Delay;

use crate::figures::Sink;

/// Both.
pub fn paths(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    over_device_times(fast, sink)?;
    under_stalls(fast, sink)?;
    unpin();
    Ok(())
}

fn over_device_times(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let times: &[u64] = if fast { &[0, 5, 20, 50] } else { &[0, 1, 2, 5, 10, 20, 35, 50, 75, 100] };
    let (rounds, count) = if fast { (3, 500) } else { (9, 2000) };
    for bytes in [512, 4096] {
        let mut crossing = None;
        for &time in times {
            let mut bench = Bench::new(Delay::fixed(time * 1000).medium())?;
            let costs = completion::rounds(&mut bench, bytes, rounds, count)?;
            // A round is a run: its median, its CPU time per read.
            let figure = |name: &str, policy: usize, of: fn(&Cost) -> f64| {
                let runs: Vec<f64> = costs[policy].iter().map(|cost| of(cost) / 1e3).collect();
                Figure::of(name, "us", &runs)
            };
            let median: fn(&Cost) -> f64 = |cost| cost.percentile_ns(0.5) as f64;
            let cpu: fn(&Cost) -> f64 = |cost| cost.cpu_ns;
            let resolution = costs[0].first().map_or(0.0, |cost| cost.resolution_ns / 1e3);
            let at = format!("read {bytes} B, device time {time} us");
            let names = ["synchronous", "asynchronous", "hybrid"];
            for (ours, theirs) in [(0, 1), (2, 0)] {
                for (what, of) in [("median", median), ("CPU", cpu)] {
                    let name = format!("{at}: {what}, {}", names[ours]);
                    let figure = figure(&name, ours, of).beside(&figure(names[theirs], theirs, of));
                    sink(if what == "CPU" { figure.resolved_to(resolution) } else { figure });
                }
            }
            let cpu = |policy| figure("", policy, cpu).value;
            if crossing.is_none() && cpu(1) < cpu(0) {
                crossing = Some(time);
            }
        }
        match crossing {
            Some(time) => eprintln!(
                "  {bytes} B: from a device time of {time} µs on the asynchronous path costs less CPU"
            ),
            None => {
                eprintln!("  {bytes} B: the synchronous path costs less CPU at all of these device times")
            }
        }
    }
    Ok(())
}

/// One read in 200 stalls for 5 ms more; device time 2 µs and 0.1 ns a byte. Stalls are few and random: each
/// policy's are put at the same number, so that what is compared is how it deals with them.
fn under_stalls(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let delay = Delay { per_kib_ns: 100, stall_every: 200, stall_ns: 5_000_000, ..Delay::fixed(2_000) };
    let (rounds, count, step) = if fast { (3, 300, 4) } else { (9, 600, 1) };
    let mut bench = Bench::new(delay.medium())?;
    for bytes in (9..=20).map(|s| 1usize << s).step_by(step) {
        let mut means: [Vec<f64>; 3] = Default::default();
        for policy in POLICIES {
            bench.round(policy, bytes, 20, &mut Cost::default())?;
        }
        for _ in 0..rounds {
            for (i, policy) in POLICIES.into_iter().enumerate() {
                let mut cost = Cost::default();
                bench.round(policy, bytes, count, &mut cost)?;
                let (stalled, rest): (Vec<u64>, Vec<u64>) =
                    cost.latencies_ns.iter().partition(|&&l| l > 4_000_000);
                let mean = |v: &[u64]| v.iter().sum::<u64>() as f64 / v.len().max(1) as f64;
                let stalls = if stalled.is_empty() { 5_000_000.0 } else { mean(&stalled) };
                means[i].push((mean(&rest) * 199.0 + stalls) / 200.0 / 1e3);
            }
        }
        let [polled, interrupt, hybrid] = [("polled", 0), ("interrupt", 1), ("hybrid", 2)]
            .map(|(name, i)| Figure::of(name, "us", &means[i]));
        let better = if polled.value < interrupt.value { polled } else { interrupt };
        let name = format!("read {bytes} B, 1 in 200 stalls: mean, hybrid");
        sink(Figure {
            name,
            ..hybrid.beside(&Figure { name: format!("the better path ({})", better.name), ..better })
        });
    }
    Ok(())
}
