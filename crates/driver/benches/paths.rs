//! FAST'12's two completion paths and the hybrid, side by side: response times, and CPU time per command split into user, system and
//! spinning, over device times from 0 to 100 µs; then the hybrid under injected stalls at each size from 512 B to 1 MiB.
//!
//! One drive on one core, the caller (and the asynchronous path's context) on the other. The policies take turns in
//! short rounds on the same queue pair, so that what the machine does meanwhile falls on all of them.
//! Run as `io_path`.

mod common;

use common::{Figure, Random, Size, median, median_of, percentile, pin};
use nearside_clock::TscClock;
use nearside_device::{Config, runner::Rest};
use nearside_dma::cpu::{CpuTimes, thread_times};
use nearside_driver::*;
use nearside_front_loop as front;
use nearside_store::{Delay, Delayed, Dram};

const POLICIES: [Policy; 3] = [Policy::Polled, Policy::Interrupt, Policy::Hybrid];
const CAPACITY: u64 = 64 << 20;

struct Bench {
    io: Initiator<Threaded, TscClock>,
    service: Service,
    buffer: Option<DmaBuffer>,
    random: Random,
    _drive: front::Threaded<Delayed<Dram>>,
}

/// What a round cost, in nanoseconds per command.
#[derive(Clone, Copy, Default)]
struct Cost {
    user: f64,
    system: f64,
    spin: f64,
}

impl Cost {
    fn total(self) -> f64 {
        self.user + self.system + self.spin
    }
}

impl Bench {
    fn new(delay: Delay) -> Bench {
        let clock = TscClock::new();
        pin(0);
        let store = Delayed::new(Dram::new(CAPACITY, 512).unwrap(), delay);
        // The drive never sleeps here: its own wake-up is not what is measured.
        let rest = Rest { idle_ns: 1_000_000_000, early_ns: 1_000_000_000 };
        let config = Config { lba_size: 512, ..Config::default() };
        let drive = front::threaded(store, (), config, clock, rest).unwrap();
        pin(1);
        let driver =
            Driver::start(drive.function.clone(), DriverConfig::default(), &clock, &mut Threaded).unwrap();
        let service = Service::start(&driver, 32, clock, || ()).unwrap();
        let config = InitiatorConfig::default();
        let io = Initiator::new(&driver, config, clock, Threaded, Some(service.handle())).unwrap();
        let buffer = Some(io.buffer(1 << 20).unwrap());
        Bench { io, service, buffer, random: Random::new(3), _drive: drive }
    }

    fn round(&mut self, policy: Policy, bytes: usize, count: usize, latencies: &mut Vec<u64>) -> Cost {
        self.io.set_policy(policy);
        let blocks = (bytes / 512) as u32;
        let service = self.service.cpu_times();
        let (own, spun) = (thread_times().unwrap_or_default(), self.io.account().spin_ns);
        for _ in 0..count {
            let mut buffer = self.buffer.take().unwrap();
            buffer.set_len(bytes);
            let slba = self.random.below(CAPACITY / bytes as u64) * u64::from(blocks);
            let done = self.io.execute(&Command::read(1, slba, blocks), Some(buffer)).unwrap();
            assert!(done.outcome.is_ok());
            latencies.push(done.latency_ns);
            self.buffer = done.buffer;
        }
        let spin = (self.io.account().spin_ns - spun) as f64;
        let own = thread_times().unwrap_or_default().since(own);
        let service: CpuTimes = self.service.cpu_times().since(service);
        let n = count as f64;
        Cost {
            user: ((own.user_ns + service.user_ns) as f64 - spin).max(0.0) / n,
            system: (own.system_ns + service.system_ns) as f64 / n,
            spin: spin / n,
        }
    }
}

fn main() {
    let size = Size::from_environment();
    if common::is_alone() {
        eprintln!("LEFT OUT: two threads that spin for each other need two cores");
        return;
    }
    let rounds = size.pick(1, 3, 9);
    let mut figures = Vec::new();
    over_device_times(size, rounds, &mut figures);
    under_stalls(size, rounds, &mut figures);
    common::record(&figures);
}

fn over_device_times(size: Size, rounds: usize, figures: &mut Vec<Figure>) {
    let times: &[u64] = size.pick(&[0, 100][..], &[0, 5, 20, 100], &[0, 1, 2, 5, 10, 20, 35, 50, 75, 100]);
    println!("random reads, QD1, over device times; CPU per command without the drive's");
    println!(
        "{:>6} {:>8} {:<10} {:>9} {:>9} {:>9} | {:>8} {:>8} {:>8} {:>8}",
        "bytes", "device", "policy", "p50 µs", "p99", "p99.9", "user µs", "system", "spin", "CPU"
    );
    for bytes in [512, 4096] {
        let mut crossing: Option<u64> = None;
        for &time in times {
            let mut bench = Bench::new(Delay::fixed(time * 1000));
            let count = size.pick(50, 800, 2000);
            let mut latencies: [Vec<u64>; 3] = Default::default();
            let mut costs: [Vec<Cost>; 3] = Default::default();
            bench.round(Policy::Polled, bytes, count / 4 + 1, &mut Vec::new());
            for _ in 0..rounds {
                for (i, policy) in POLICIES.into_iter().enumerate() {
                    // The CPU's accounting is coarse; a round must not be too short.
                    costs[i].push(bench.round(policy, bytes, count, &mut latencies[i]));
                }
            }
            let mut medians = [0.0; 3];
            let mut cpu = [0.0; 3];
            for (i, policy) in POLICIES.into_iter().enumerate() {
                let mean = |f: fn(&Cost) -> f64| costs[i].iter().map(f).sum::<f64>() / rounds as f64;
                let cost =
                    Cost { user: mean(|c| c.user), system: mean(|c| c.system), spin: mean(|c| c.spin) };
                let l = &mut latencies[i];
                medians[i] = median_of(l);
                cpu[i] = cost.total();
                println!(
                    "{bytes:>6} {time:>5} µs {:<10} {:>9.2} {:>9.2} {:>9.2} | {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
                    policy.name(),
                    medians[i] / 1e3,
                    percentile(l, 0.99) / 1e3,
                    percentile(l, 0.999) / 1e3,
                    cost.user / 1e3,
                    cost.system / 1e3,
                    cost.spin / 1e3,
                    cost.total() / 1e3
                );
            }
            if crossing.is_none() && cpu[1] < cpu[0] {
                crossing = Some(time);
            }
            for (what, ours, theirs) in [("p50", medians[0], medians[1]), ("CPU", cpu[0], cpu[1])] {
                figures.push(Figure {
                    name: format!("{what} polled, read {bytes}, device {time} us"),
                    value: ours / 1e3,
                    unit: "us",
                    beside: "interrupt",
                    beside_value: theirs / 1e3,
                    ratio: ours / theirs.max(1.0),
                    runs: rounds,
                    spread: (0.0, 0.0),
                });
            }
        }
        match crossing {
            Some(time) => {
                println!("{bytes} B: from a device time of {time} µs on the asynchronous path costs less CPU")
            }
            None => println!("{bytes} B: the synchronous path costs less CPU at all of these device times"),
        }
    }
}

fn under_stalls(size: Size, rounds: usize, figures: &mut Vec<Figure>) {
    println!(
        "one read in 200 stalls for 5 ms more; mean response time in µs, stalls included; device time 2 µs and 0.1 ns a byte"
    );
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>16} {:>12}",
        "bytes", "polled", "interrupt", "hybrid", "hybrid / better", "without stalls"
    );
    let sizes: Vec<usize> = (9..=20).map(|s| 1usize << s).collect();
    let delay = Delay { per_kib_ns: 100, stall_every: 200, stall_ns: 5_000_000, ..Delay::fixed(2_000) };
    let mut bench = Bench::new(delay);
    for bytes in sizes.into_iter().step_by(size.pick(11, 3, 1)) {
        let count = size.pick(20, 300, 600);
        let mut means: [Vec<f64>; 3] = Default::default();
        let mut usual: [Vec<f64>; 3] = Default::default();
        for policy in POLICIES {
            bench.round(policy, bytes, 20, &mut Vec::new());
        }
        for _ in 0..rounds {
            for (i, policy) in POLICIES.into_iter().enumerate() {
                let mut l = Vec::new();
                bench.round(policy, bytes, count, &mut l);
                // Stalls are rare and few: each policy's own share of them is put at the same number.
                let (stalled, rest): (Vec<u64>, Vec<u64>) = l.iter().partition(|&&l| l > 4_000_000);
                let mean = |v: &[u64]| v.iter().sum::<u64>() as f64 / v.len().max(1) as f64;
                let stalls = if stalled.is_empty() { 5_000_000.0 } else { mean(&stalled) };
                means[i].push((mean(&rest) * 199.0 + stalls) / 200.0);
                usual[i].push(median_of(&mut rest.clone()));
            }
        }
        let [p, a, h] = [0, 1, 2].map(|i| median(&mut means[i]) / 1e3);
        let [up, ua, uh] = [0, 1, 2].map(|i| median(&mut usual[i]) / 1e3);
        let (better, usual_better) = (p.min(a), up.min(ua));
        println!("{bytes:>8} {p:>10.2} {a:>10.2} {h:>10.2} {:>16.3} {:>12.3}", h / better, uh / usual_better);
        figures.push(Figure {
            name: format!("hybrid under stalls, read {bytes}"),
            value: h,
            unit: "us",
            beside: "the better path",
            beside_value: better,
            ratio: h / better,
            runs: rounds,
            spread: (0.0, 0.0),
        });
    }
}
