//! Throughput with cores: on each core a host with its drive's reactor on the same thread, all on one
//! namespace in DRAM. Beside each: one core alone, and as many cores whose namespaces are their own. What the
//! second shows and the first does not is the machine's (memory, siblings, the hypervisor); what is left is
//! what the cores share in the drive: the blocks' striped locks and the namespace's counters.

use std::sync::{Arc, Barrier};

use nearside_clock::TscClock;
use nearside_device::{Config, Namespace, Subsystem};
use nearside_driver::{Controller, DriverConfig};
use nearside_embedded::{Loopback, Runner};
use nearside_instrument::Failure;
use nearside_instrument::completion::{cores, unpin};
use nearside_loadgen::engine::queue::Queue;
use nearside_loadgen::record::Figure;
use nearside_loadgen::run::{Pace, real};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};
use nearside_store::Dram;

use crate::figures::Sink;

/// Bytes of a namespace: beyond the caches of a few cores.
const CAPACITY: u64 = 128 << 20;
/// Bytes of an operation that fills it.
const FILL: u32 = 128 << 10;
const DEPTH: u16 = 32;
/// More cores than that are not asked for.
const MOST: usize = 8;

/// What all cores do.
#[derive(Clone, Copy)]
struct Load {
    rw: Rw,
    bytes: u32,
    millis: u64,
}

/// A subsystem with its namespace.
type Place = (Arc<Subsystem<Dram>>, Arc<Namespace<Dram>>);

/// For one core, or for several.
fn place(several: bool) -> Result<Place, Failure> {
    let namespace = Arc::new(Namespace::new(Dram::new(CAPACITY, 512)?, (), 512, [0; 16], several)?);
    let subsystem = Subsystem::new();
    subsystem.add(1, namespace.clone())?;
    Ok((subsystem, namespace))
}

/// Operations a second of one core.
fn alone(place: Place, load: Load, seed: u64, start: &Barrier) -> Result<f64, String> {
    let prepared = prepare(place, load);
    // Whoever could not come up is not waited for.
    start.wait();
    let mut engine = prepared.map_err(|e| e.to_string())?;
    let workload = Workload::new(load.rw, load.bytes, CAPACITY);
    let mut plan = Plan::new(workload, Arrivals::Closed { depth: DEPTH.into() }, load.millis * 1_000_000);
    plan.seed = seed;
    let ran = real(&plan, &mut engine, &TscClock::new(), Pace::default()).map_err(|e| e.to_string())?;
    match ran.outcome.errors() {
        0 => Ok(ran.operations as f64 * 1e9 / ran.elapsed_ns.max(1) as f64),
        errors => Err(format!("{errors} operations failed")),
    }
}

fn prepare((subsystem, namespace): Place, load: Load) -> Result<Queue<Runner<Dram>, TscClock>, Failure> {
    let clock = TscClock::new();
    let mut drive = Loopback::of(&subsystem, namespace, Config::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let info = driver.namespace(Some(1), &mut drive.host(&clock))?;
    let mut engine = Queue::new(&driver, info, DEPTH, load.bytes.max(FILL), None, drive.peer, clock)?;
    // Memory that nobody has written yet is not there.
    let fill = Workload::new(Rw::Write, FILL, CAPACITY);
    let mut plan = Plan::new(fill, Arrivals::Closed { depth: DEPTH.into() }, 0);
    (plan.runtime_ns, plan.count) = (None, Some(CAPACITY / u64::from(FILL)));
    let ran = real(&plan, &mut engine, &clock, Pace::default())?;
    match ran.outcome.errors() {
        0 => Ok(engine),
        errors => Err(format!("{errors} operations of the filling failed").into()),
    }
}

/// Operations a second of each of so many cores, on one namespace or each on its own.
fn each(cores: &[usize], together: bool, load: Load) -> Result<f64, Failure> {
    let one = together.then(|| place(true)).transpose()?;
    let start = Barrier::new(cores.len());
    let places: Result<Vec<_>, Failure> =
        cores.iter().map(|_| one.clone().map_or_else(|| place(false), Ok)).collect();
    let rates: Vec<Result<f64, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = cores
            .iter()
            .zip(places?)
            .map(|(&core, place)| {
                let start = &start;
                scope.spawn(move || {
                    let _ = nearside_dma::cpu::pin_to_core(core);
                    alone(place, load, core as u64, start)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a core's thread panicked".to_owned()))
        };
        Ok::<_, Failure>(threads.into_iter().map(join).collect())
    })?;
    let count = rates.len() as f64;
    let sum: Result<f64, String> = rates.into_iter().sum();
    Ok(sum? / count)
}

/// For 512 B and 4 KiB, reads and writes, with all numbers of cores from two on.
pub fn scaling(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (rounds, millis) = if fast { (3, 50) } else { (9, 200) };
    let cores = cores();
    for (rw, word) in [(Rw::RandRead, "reads"), (Rw::RandWrite, "writes")] {
        for bytes in [512, 4096] {
            let load = Load { rw, bytes, millis };
            for count in [2, 4, MOST].into_iter().filter(|count| *count <= cores.len()) {
                let used = cores.get(..count).unwrap_or(cores);
                // One core alone, all on one namespace, each on its own.
                let mut rates: [Vec<f64>; 3] = Default::default();
                for round in 0..rounds {
                    // Of a pair of siblings none is always the one that is alone.
                    let single = &used[round % count..=round % count];
                    rates[0].push(each(single, true, load)?);
                    rates[1].push(each(used, true, load)?);
                    rates[2].push(each(used, false, load)?);
                }
                let [one, together, apart] = rates;
                let name = format!("DRAM, {bytes} B random {word}, {count} cores on one namespace: each");
                let figure = Figure::of(&name, "1/s", &together);
                sink(figure.beside(&Figure::of("one core alone", "1/s", &one)));
                let figure = Figure::of(&format!("{name}, / of its own"), "1/s", &together);
                sink(figure.beside(&Figure::of("each on a namespace of its own", "1/s", &apart)));
            }
        }
    }
    unpin();
    if cores.len() < 2 {
        eprintln!("left out: throughput with cores; this machine has one");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_work_on_one_namespace_and_on_their_own() {
        let load = Load { rw: Rw::RandRw, bytes: 4096, millis: 5 };
        for together in [true, false] {
            // The same core twice where there is no other.
            assert!(each(&[0, 0], together, load).unwrap() > 0.0);
        }
    }
}
