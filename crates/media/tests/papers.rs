//! The models against the papers: each test names the paper's value, the model's (run with `--nocapture`) and
//! the tolerance.

mod driver;

use driver::{Run, act, closed, open};
use nearside_media::dram::{C_STATE_TABLE_NS, INTERRUPT_NS, Prototype};
use nearside_media::platform::Interface;
use nearside_media::xpoint::Device;
use nearside_media::{Delay, Medium, Platform, Request};
use nearside_random::Random;

/// Prints what is compared, and holds it to `tolerance`, a part of the paper's value.
fn near(what: &str, paper: f64, model: f64, tolerance: f64) {
    let off = model / paper - 1.0;
    println!(
        "{what}: paper {paper}, model {model:.4}, {:+.1} % (within {:.0} %)",
        off * 100.0,
        tolerance * 100.0
    );
    assert!(off.abs() <= tolerance, "{what}: {model} is {:+.1} % from the paper's {paper}", off * 100.0);
}

/// Reads of 4 KiB or 512 B at random places.
fn reads(len: u64) -> impl FnMut() -> Request {
    let mut rng = Random::new(3);
    move || Request::read(rng.below((1 << 38) / len) * len, len)
}

/// Section IV's workload: 4 KiB at random, 70 % reads.
fn mixed() -> impl FnMut() -> Request {
    let mut rng = Random::new(5);
    move || {
        let offset = rng.below(1 << 26) * 4096;
        if rng.below(10) < 7 { Request::read(offset, 4096) } else { Request::write(offset, 4096) }
    }
}

#[test]
fn fast12_table_1() {
    let rows = [("Gen2", Prototype::GEN2, [1.5, 2.9]), ("8Gbps", Prototype::PROJECTION, [0.9, 1.5])];
    let polled =
        |prototype: Prototype, len| closed(&mut prototype.medium(), 1, 0, 1000, reads(len)).mean_us();
    for (bus, prototype, paper) in rows {
        for (len, paper) in [512, 4096].into_iter().zip(paper) {
            near(&format!("polling, {bus}, {len} B, us"), paper, polled(prototype, len), 0.05);
        }
    }
    let added = |prototype, i: usize, c_state: u64| {
        polled(prototype, [512, 4096][i]) + (INTERRUPT_NS[i] + c_state * C_STATE_TABLE_NS[i]) as f64 / 1e3
    };
    for (i, [plain, c_state, projected]) in [[2.6, 3.3, 2.0], [4.1, 4.6, 2.6]].into_iter().enumerate() {
        near("interrupt, Gen2, us", plain, added(Prototype::GEN2, i, 0), 0.05);
        near("interrupt with C-state, Gen2, us", c_state, added(Prototype::GEN2, i, 1), 0.05);
        near("interrupt, 8Gbps, us", projected, added(Prototype::PROJECTION, i, 0), 0.05);
    }
}

#[test]
fn fast12_figure_3s_hardware_limit() {
    let limit = closed(&mut Prototype::GEN2.medium(), 64, 0, 100_000, reads(512)).iops;
    near("512 B reads per second", 2e6, limit, 0.05);
    // The paper has no number for 4 KiB; by Table 1's bytes the bus ends it at 625,000.
    let limit = closed(&mut Prototype::GEN2.medium(), 64, 0, 100_000, reads(4096)).iops;
    assert!((limit - 625e3).abs() < 5e3, "{limit}");
}

/// The paper's software time is "less than 4 us".
const SOFTWARE_NS: u64 = 3_900;

/// Section III-B, Fig. 4.
#[test]
fn p4800x_alone() {
    for request in [Request::read(8192, 4096), Request::write(8192, 4096)] {
        let run = closed(&mut Device::p4800x().medium(), 1, 0, 100_000, || request);
        let application = run.mean_us() + SOFTWARE_NS as f64 / 1e3;
        println!(
            "{:?}: device {:.2} us (paper: under 8), application {application:.2} us (paper: about 11)",
            request.kind,
            run.mean_us()
        );
        assert!(run.percentile_us(0.9999) < 8.0, "but for retries, all of them");
        assert!((10.0..=12.0).contains(&application));
        // The data sheet's 60 us for reads.
        assert!(run.percentile_us(0.99999) < 60.0);
    }
}

/// Section IV, Fig. 5.
#[test]
fn p4800x_peaks_at_queue_depth_8() {
    let at = |depth| closed(&mut Device::p4800x().medium(), depth, SOFTWARE_NS, 300_000, mixed()).iops;
    let peak = [32, 64, 128].map(at).into_iter().fold(0.0, f64::max);
    let reached = (1..).find(|&depth| at(depth) >= 0.98 * peak).unwrap();
    near("queue depth of the peak (98 % of it)", 8.0, reached as f64, 0.25);
    println!("the peak: {peak:.0} per second (data sheet: up to 500,000)");
    // "About 300,000", from a measured figure. Here the host's software waits for nobody, as if it had a core
    // for every request: a device under 8 us and software under 4 us then give no less than 4 / 12 us,
    // 333,000.
    near("IOPS at queue depth 4", 300e3, at(4), 0.20);
}

/// Section IV, Fig. 8: "even under heavy load, the 99.999th percentile response time remains under 100 us".
#[test]
fn p4800x_keeps_its_tail_under_load() {
    let medium = || Device::p4800x().medium();
    let at = |depth| closed(&mut medium(), depth, SOFTWARE_NS, 3_000_000, mixed());
    let peak = at(8).iops;
    // The paper's own load is Fig. 5's closed loop; 6 is 90 % of the peak, 8 the peak.
    for (depth, run) in [(6, at(6)), (8, at(8))] {
        let tail = run.percentile_us(0.99999);
        println!("queue depth {depth}: {:.0} per second, p99.999 {tail:.1} us (under 100)", run.iops);
        assert!(tail < 100.0);
    }
    // Arrivals that wait for nobody are harder: at 90 % any device that serves one after the other, 1.81 us
    // each, has a p99.999 of some 55 services, 100 us, before its own time. A miss of the target, by a few
    // per cent (2 to 13, by the seed of the arrivals).
    let poisson =
        |part: f64| open(&mut medium(), part * peak, 20_000_000, 11, mixed()).percentile_us(0.99999);
    let (at_85, at_90) = (poisson(0.85), poisson(0.9));
    println!(
        "Poisson at 85 % of the peak: p99.999 {at_85:.1} us (under 100); at 90 %: {at_90:.1} us (target 100)"
    );
    assert!(at_85 < 100.0);
    near("p99.999 at 90 % of the peak, Poisson, us", 100.0, at_90, 0.15);
}

/// The standard rule with another limit for 95 %.
fn passes(run: &Run, p95_us: f64) -> bool {
    run.within(p95_us) >= 0.95 && run.within(8e3) >= 0.99 && run.within(64e3) >= 0.999
}

/// The largest multiple of 5 that passes at `p95_us`; it and all below it.
fn largest(device: Device, scale: f64, p95_us: f64) -> f64 {
    let passing =
        |multiple: f64| passes(&act(&mut device.medium(), multiple, scale, 3.0, 375_000_000_000), p95_us);
    (10..).map(|n| f64::from(n) * 5.0).take_while(|&multiple| passing(multiple)).last().unwrap_or(0.0)
}

/// Section V-B, Fig. 11: the text says 128 us, the caption 0.1 ms.
#[test]
fn optane_act() {
    near("ACT, 95 % within 1 ms", 150.0, largest(Device::prototype(), 1.0, 1e3), 0.15);
    near("ACT, 95 % within 128 us", 125.0, largest(Device::prototype(), 1.0, 128.0), 0.15);
    near("ACT, 95 % within 0.1 ms", 125.0, largest(Device::prototype(), 1.0, 100.0), 0.15);
    // By the data sheet's rates alone the paper's multiple is missed by far; by ACT's own, twice the paper's,
    // it is met.
    let [paper, tool] = [1.0, 2.0].map(|scale| largest(Device::p4800x(), scale, 1e3));
    println!("the P4800X's numbers, 95 % within 1 ms: {paper}x by the paper's 1x (150x: a miss)");
    assert!(paper > 250.0, "no longer a miss: say so above");
    near("the P4800X's numbers by ACT's own 1x, 95 % within 1 ms", 150.0, tool, 0.15);
    near("the same, 95 % within 128 us", 125.0, largest(Device::p4800x(), 2.0, 128.0), 0.15);
}

/// Sections III-A and III-B, Fig. 3. What is not in the text is not compared.
#[test]
fn platform_interfaces() {
    let nothing = || Delay::fixed(0).medium();
    let alone = |interface| closed(&mut Platform::new(interface, vec![nothing()]), 1, 0, 1000, reads(4096));
    let full = |interface, drives| {
        let mut platform = Platform::new(interface, vec![nothing(); drives]);
        closed(&mut platform, 256, 0, 200_000, reads(4096)).iops
    };
    near("PCIe, 4 KiB reads per second", 800e3, full(Interface::PCIE, 1), 0.05);
    // "About 25 us" beside the drive's own port.
    let port_us = alone(Interface { added_ns: 0, command_ns: 0, ..Interface::SAS }).mean_us();
    near("SAS adapter adds, us", 25.0, alone(Interface::SAS).mean_us() - port_us, 0.05);
    near("one SATA port, bytes per second", 600e6, full(Interface::AHCI, 1) * 4096.0, 0.05);
    // With enough drives the adapter is the limit, below PCIe's.
    let (ahci, sas) = (full(Interface::AHCI, 8), full(Interface::SAS, 8));
    println!("AHCI {ahci:.0}, SAS {sas:.0} 4 KiB reads per second behind eight ports");
    assert!(ahci < sas && sas < 800e3);
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let times = |seed| closed(&mut Device { seed, ..Device::p4800x() }.medium(), 8, 0, 10_000, mixed()).times;
    assert_eq!(times(7), times(7));
    assert_ne!(times(7), times(8));
}

/// What every medium owes: no end before the beginning, at any place and length, and with the clock at its
/// end.
#[test]
fn no_request_ends_before_it_begins() {
    let mut rng = Random::new(1);
    for fresh in nearside_media::PRESETS.iter().filter_map(|preset| preset.file.parameters.medium()) {
        let mut medium = Platform::new(Interface::SAS, vec![fresh.clone(), fresh.clone()]);
        let mut now = 0;
        for _ in 0..20_000 {
            let (offset, len) = (rng.below(1 << 40), rng.below(1 << 20));
            let request = match rng.below(5) {
                0 => Request::FLUSH,
                1 => Request { kind: nearside_media::RequestKind::Deallocate, offset, len: u64::MAX },
                2 => Request::write(offset, len),
                _ => Request::read(offset, len),
            };
            now += rng.below(100_000);
            assert!(medium.finish(request, now) >= now);
        }
        for request in [Request::FLUSH, Request::read(u64::MAX - 1, 1), Request::write(u64::MAX - 4096, 4096)]
        {
            assert_eq!(fresh.clone().finish(request, u64::MAX), u64::MAX);
        }
    }
}
