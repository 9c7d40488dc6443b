//! Fig. 6: why queue depth misleads. Three cases of the same host:
//! a slow SSD, a fast one, a fast one under more load.
//!
//! The system adds 10 us to every I/O. The queue depth is counted by adding up how long the SSD has each
//! request; in real time, on the real drive, also by looking from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nearside_instrument::{Runner, Simulated};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};
use nearside_media::platform::Interface;
use nearside_media::{Delay, Medium, Platform, Request};
use nearside_sim::Software;
use nearside_store::{Dram, Modelled};

use super::gauge::{Gauge, GaugedEngine, GaugedStore, sampled};
use super::real::{Length, Real, median};
use super::rig::{mean_us, percentile_us};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study, criteria};

/// PIEEE'17, Fig. 6: why queue depth misleads.
pub const STUDY: Study =
    Study { number: "Fig. 6", title: "Queue depth is a poor measure: three cases", section: "IV", run };

const SYSTEM_NS: u64 = 10_000;
const CAPACITY: u64 = 1 << 30;

struct Case {
    name: &'static str,
    /// An I/O every so often.
    every_ns: u64,
    ssd_ns: u64,
    /// The paper's queue depth at the SSD.
    paper: f64,
}

const CASES: [Case; 3] = [
    Case { name: "(a) an I/O every 20 us, an SSD of 100 us", every_ns: 20_000, ssd_ns: 100_000, paper: 5.0 },
    Case { name: "(b) an I/O every 20 us, an SSD of 10 us", every_ns: 20_000, ssd_ns: 10_000, paper: 0.5 },
    Case { name: "(c) an I/O every 4 us, an SSD of 10 us", every_ns: 4_000, ssd_ns: 10_000, paper: 2.5 },
];

/// Adds up how long requests are in it.
#[derive(Clone)]
struct Counted<M> {
    inner: M,
    ns: Arc<AtomicU64>,
}

impl<M: Medium> Medium for Counted<M> {
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let at = self.inner.finish(request, now_ns);
        self.ns.fetch_add(at - now_ns, Ordering::Relaxed);
        at
    }
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides(
        "depth",
        "Mean queue depth of the whole system and of the SSD",
        Scale::linear("queue depth"),
    ));
    let (mut found, mut machine) = (Vec::new(), Vec::new());
    for case in CASES {
        let Case { name, every_ns, ssd_ns, paper } = case;
        let ns = Arc::new(AtomicU64::new(0));
        let ssd = Counted { inner: Delay::fixed(ssd_ns).medium(), ns: ns.clone() };
        let system = Interface {
            command_ns: 0,
            added_ns: SYSTEM_NS,
            port_byte_ps: 0,
            host_byte_ps: 0,
            ..Interface::PCIE
        };
        let stop = Arc::new(AtomicBool::new(false));
        let mut bed = Simulated::bare(name, Platform::new(system, vec![ssd]), stop);
        let arrivals = Arrivals::Constant { rate: 1e9 / every_ns as f64 };
        let plan = Plan::new(
            Workload::new(Rw::RandRead, 4096, CAPACITY),
            arrivals,
            run.sized(20_000_000, 1_000_000_000),
        );
        let (_, outcome) = bed.run(&plan, &mut |_| ())?;
        let response = mean_us(&outcome.both().response);
        let all = outcome.offered() * response / 1e6;
        let sent = outcome.streams.iter().map(|s| s.offered).sum::<u64>();
        let at_ssd = ns.load(Ordering::Relaxed) as f64 / sent as f64 * outcome.offered() / 1e9;
        let short = &name[..3];
        run.say(&format!("{name}, in real time ..."));
        let own = measure(run, &case)?;
        let finding =
            Finding::new(format!("{name}: queue depth at the SSD"), "").model(at_ssd).paper(paper, "IV");
        let by_times = run.finding(finding.machine(&own.at_ssd).point("depth", "at the SSD", short));
        let finding = Finding::new(format!("{name}: queue depth at the SSD, by looking"), "");
        run.finding(finding.machine(&own.seen_at_ssd).beside(&by_times));
        let finding = Finding::new(format!("{name}: queue depth of the system"), "").model(all);
        let finding = if short == "(c)" { finding.paper(5.0, "IV") } else { finding };
        let by_times = run.finding(finding.machine(&own.in_system).point("depth", "of the system", short));
        let finding = Finding::new(format!("{name}: queue depth of the system, by looking"), "");
        run.finding(finding.machine(&own.seen_in_system).beside(&by_times));
        let finding = Finding::new(format!("{name}: response time"), "us").model(response);
        run.finding(finding.machine(&own.response_us));
        found.push((at_ssd, all, response));
        machine.push((median(&own.at_ssd), median(&own.in_system), median(&own.response_us)));
    }
    let paper = CASES.map(|case| case.paper);
    run.claim(
        Claim::new("The same load is a queue depth of 5 at a slow SSD and of 0.5 at a fast one; 5 in the system is 2.5 at the fast one", "IV")
            .model(criteria::depths_are(&found, &paper, 0.05))
            .machine(criteria::depths_are(&machine, &paper, 0.25))
            .because(format!(
                "at the SSD: {:.2}, {:.2}, {:.2}; this machine, where 25 % off still holds: {:.2}, {:.2}, {:.2}",
                found[0].0, found[1].0, found[2].0, machine[0].0, machine[1].0, machine[2].0
            )),
    );
    run.claim(
        Claim::new("Equal queue depths do not make the comparison fair: they hide the wait", "IV")
            .model(criteria::unfair(&found))
            .machine(criteria::unfair(&machine))
            .because(format!(
                "(a) and (c) have {:.1} and {:.1} in the system, and {:.0} and {:.0} us of response time; this machine: {:.1} and {:.1}, {:.0} and {:.0} us",
                found[0].1, found[2].1, found[0].2, found[2].2, machine[0].1, machine[2].1, machine[0].2, machine[2].2
            )),
    );
    run.note(
        "This machine: the real drive and its driver over memory that takes the SSD's time, and 10 us after each completion until the application \
         has it. A queue depth is the mean time of an I/O at the place times the rate (Little's law); by looking, the mean of what another thread \
         saw there at moments drawn at random, where there is a core for it. Its response times are medians: means have in them what the core was away.",
    );
    Ok(())
}

/// What the cases' runs in real time measured.
#[derive(Default)]
struct Own {
    at_ssd: Vec<f64>,
    in_system: Vec<f64>,
    seen_at_ssd: Vec<f64>,
    seen_in_system: Vec<f64>,
    response_us: Vec<f64>,
}

/// A case on the real drive.
fn measure(run: &Run<'_>, case: &Case) -> Result<Own, Failure> {
    const CAPACITY: u64 = 64 << 20;
    let (rounds, ms) = run.sized((3, 50), (5, 400));
    let arrivals = Arrivals::Constant { rate: 1e9 / case.every_ns as f64 };
    let mut own = Own::default();
    for _ in 0..rounds {
        let (ssd, system) = (Gauge::default(), Gauge::default());
        let store = Modelled::new(Dram::new(CAPACITY, 512)?, Delay::fixed(case.ssd_ns).medium());
        let store = GaugedStore { store, gauge: ssd.clone() };
        let workload = Workload::new(Rw::RandRead, 4096, CAPACITY);
        let gauge = system.clone();
        let mut real = Real::over(store, workload, |drive| {
            Box::new(GaugedEngine { engine: Software::new(drive, SYSTEM_NS), gauge })
        })?;
        let (outcome, seen) = sampled([&ssd, &system], || real.run(arrivals, Length::Time(ms * 1_000_000)));
        let outcome = outcome?;
        own.at_ssd.push(ssd.mean_ns() * outcome.offered() / 1e9);
        own.in_system.push(system.mean_ns() * outcome.offered() / 1e9);
        own.response_us.push(percentile_us(&outcome.both().response, 50.0));
        if let Some([at_ssd, in_system]) = seen {
            own.seen_at_ssd.push(at_ssd);
            own.seen_in_system.push(in_system);
        }
    }
    Ok(own)
}
