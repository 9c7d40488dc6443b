//! How fast simulated time passes: I/Os of a simulation per second of CPU time, through the whole drive and over the medium alone.

use nearside_clock::SimClock;
use nearside_dma::cpu::thread_cpu_ns;
use nearside_loadgen::run::simulated;
use nearside_loadgen::{Arrivals, Outcome, Plan, Rw, Workload};
use nearside_media::Delay;
use nearside_sim::{Bare, Drive, DriveConfig};
use nearside_store::{Modelled, Null};

const SIZE: u64 = 16 << 30;

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2_000_000);
    let only = std::env::args().nth(2);
    let workload = Workload { rwmixread: 70, ..Workload::new(Rw::RandRw, 4096, SIZE) };
    let medium = || Delay::units(7, 12_000).medium();
    for (name, arrivals) in [
        ("closed, depth 1", Arrivals::Closed { depth: 1 }),
        ("closed, depth 32", Arrivals::Closed { depth: 32 }),
        ("open, 80 % of peak", Arrivals::Poisson { rate: 470_000.0 }),
    ] {
        let mut plan = Plan::new(workload.clone(), arrivals, 0);
        (plan.runtime_ns, plan.count, plan.seed) = (None, Some(count), 7);
        let timed = |what: &str, run: &mut dyn FnMut() -> Outcome| {
            if only.as_deref().is_some_and(|only| only != what) {
                return;
            }
            // CPU time: other programs may share the core.
            let begin = thread_cpu_ns().unwrap_or(0);
            let outcome = run();
            let took = (thread_cpu_ns().unwrap_or(0) - begin) as f64 / 1e9;
            let done = outcome.both().response.count() as f64;
            println!("{name}: {what}: {:.2} M/s ({:.0} ns each)", done / took / 1e6, took / done * 1e9);
        };
        timed("drive", &mut || {
            let store = Modelled::new(Null::new(SIZE, 512).unwrap(), medium());
            let config = DriveConfig { largest: 4096, ..DriveConfig::default() };
            Drive::new(store, &config, SimClock::new()).unwrap().run(&plan).unwrap()
        });
        timed("bare", &mut || simulated(&plan, &mut Bare::new(medium(), 1024), &SimClock::new()).unwrap());
    }
}
