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
use super::parameters::FIG_6;
use super::real::{Length, Real};
use super::rig::{mean_us, percentile_us};
use super::stated::{DELAYS, DEPTH_OF_ALL, DEPTHS, EVERY};
use crate::Relation::Arithmetic;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Stated, Study};

/// PIEEE'17, Fig. 6: why queue depth misleads.
pub const STUDY: Study =
    Study { number: "Fig. 6", title: "Queue depth is a poor measure: three cases", section: "IV", run };

const SYSTEM_NS: u64 = ns(DELAYS[0]);
const CAPACITY: u64 = 1 << 30;

struct Case {
    name: &'static str,
    /// An I/O every so often.
    every_ns: u64,
    ssd_ns: u64,
    /// The paper's queue depth at the SSD.
    paper: Stated,
}

const fn ns(us: Stated) -> u64 {
    (us.value * 1e3) as u64
}

const CASES: [Case; 3] = [
    Case {
        name: "(a) an I/O every 20 us, an SSD of 100 us",
        every_ns: ns(EVERY[0]),
        ssd_ns: ns(DELAYS[1]),
        paper: DEPTHS[0],
    },
    Case {
        name: "(b) an I/O every 20 us, an SSD of 10 us",
        every_ns: ns(EVERY[0]),
        ssd_ns: ns(DELAYS[2]),
        paper: DEPTHS[1],
    },
    Case {
        name: "(c) an I/O every 4 us, an SSD of 10 us",
        every_ns: ns(EVERY[1]),
        ssd_ns: ns(DELAYS[2]),
        paper: DEPTHS[2],
    },
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
        let finding = Finding::new(format!("{name}: queue depth at the SSD"), "").model(at_ssd).paper(&paper);
        let finding = finding.from(Arithmetic, &[FIG_6]);
        let by_times = run.finding(finding.machine(&own.at_ssd).point("depth", "at the SSD", short));
        let finding = Finding::new(format!("{name}: queue depth at the SSD, by looking"), "");
        run.finding(finding.machine(&own.seen_at_ssd).beside(&by_times));
        let finding = Finding::new(format!("{name}: queue depth of the system"), "").model(all);
        let finding = finding.from(Arithmetic, &[FIG_6]);
        let finding = if short == "(c)" { finding.paper(&DEPTH_OF_ALL) } else { finding };
        let by_times = run.finding(finding.machine(&own.in_system).point("depth", "of the system", short));
        let finding = Finding::new(format!("{name}: queue depth of the system, by looking"), "");
        run.finding(finding.machine(&own.seen_in_system).beside(&by_times));
        let finding = Finding::new(format!("{name}: response time"), "us").model(response);
        run.finding(finding.from(Arithmetic, &[FIG_6]).machine(&own.response_us));
    }
    claims(run);
    run.note(
        "This machine: the real drive and its driver over memory that takes the SSD's time, and 10 us after each completion until the application \
         has it. A queue depth is the mean time of an I/O at the place times the rate (Little's law); by looking, the mean of what another thread \
         saw there at moments drawn at random, where there is a core for it. Its response times are medians: means have in them what the core was away.",
    );
    Ok(())
}

fn claims(run: &mut Run<'_>) {
    let of = |case: usize, what: &str| Quantity::named(format!("{}: {what}", CASES[case].name));
    let claim = "The same load is a queue depth of 5 at a slow SSD and of 0.5 at a fast one; 5 in the system is 2.5 at the fast one";
    let mut claim = Claim::new(claim, "IV").in_models_time();
    for (case, stated) in DEPTHS.iter().enumerate() {
        claim = claim.both(of(case, "queue depth at the SSD"), Bound::stated(stated));
    }
    run.claim(claim.both(of(2, "queue depth of the system"), Bound::stated(&DEPTH_OF_ALL)));
    let (depth, time) = ("queue depth of the system", "response time");
    run.claim(
        Claim::new("Equal queue depths do not make the comparison fair: they hide the wait", "IV")
            .both(of(0, depth).over(of(2, depth)), Bound::Between([0.8, 1.25]))
            .both(of(0, time).over(of(2, time)), Bound::Above(4.0))
            .in_models_time(),
    );
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
