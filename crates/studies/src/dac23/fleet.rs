//! A scan of many drives, on paper: the paper's drive, ten thousand times. What one drive's part costs comes
//! from the model, and beside it from this machine; what many together take is simulated here.
//!
//! The paper's claims are of one drive. Here a question is put to all drives of a fleet by one host, which
//! either has each drive search (FSR), or finds and reads the file itself and searches it, as it would on
//! a snapshot that it has mounted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nearside_clock::Clock;
use nearside_dma::cpu::thread_cpu_ns;
use nearside_driver::Policy;
use nearside_embedded::Options;
use nearside_fsrlib::{Ask, Route};
use nearside_instrument::dataset::Chain;
use nearside_instrument::near_data::{search, session};
use nearside_instrument::volume::Kind;
use nearside_random::Random;

use super::parameters::{ALL, FLEET, Fleet, HOST_CORE, cosmos, host_computes};
use super::rig::{ABOUT, Bed, Buffer, Dataset, Model, dataset, needle};
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// One question to a fleet of drives.
pub const STUDY: Study = Study {
    number: "Fleet",
    title: "One question to ten thousand drives: in the drives, and on the host",
    section: "I",
    run,
};

/// Directories above the file.
const DEPTH: usize = 5;
/// Wholly on the host; in the drive.
const WAYS: [(&str, Route); 2] = [("host", Route::Host), ("FSR", Route::Drive)];

/// What one drive's part of a scan costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The drive's own time.
    pub drive_ns: u64,
    /// Over the host's link.
    pub bytes: u64,
    /// On one of the host's processors, once the bytes are there.
    pub host_ns: u64,
}

/// What a scan of a fleet came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Scan {
    /// Until the last drive's part is done.
    pub ns: u64,
    /// Of all the host's processors together.
    pub host_ns: u64,
}

/// Where a drive's part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Asked,
    Sent,
}

/// A scan of so many drives: each is asked as soon as one of the host's places is free; what it answers goes
/// over the link after what others have answered before, and to whichever processor is free first.
pub(super) fn scan(drives: u64, part: Part, fleet: &Fleet) -> Scan {
    let mut random = Random::new(drives);
    // What happens next: when, and of which drive.
    let mut events = BinaryHeap::new();
    let mut cores: BinaryHeap<Reverse<u64>> = (0..fleet.cores).map(|_| Reverse(0)).collect();
    let (mut link, mut asked, mut done) = (0u64, 0u64, Scan::default());
    let mut ask = |at: u64, asked: &mut u64, events: &mut BinaryHeap<_>| {
        if *asked < drives {
            let slow = random.unit() <= fleet.slow_part;
            let took = if slow { part.drive_ns * fleet.slow_times } else { part.drive_ns };
            events.push(Reverse((at + took, Stage::Asked, *asked)));
            *asked += 1;
        }
    };
    for _ in 0..fleet.cores * fleet.each {
        ask(0, &mut asked, &mut events);
    }
    while let Some(Reverse((at, stage, drive))) = events.pop() {
        match stage {
            Stage::Asked => {
                link = link.max(at) + (part.bytes as f64 / fleet.link_bytes_per_ns) as u64;
                events.push(Reverse((link, Stage::Sent, drive)));
            }
            Stage::Sent => {
                let Reverse(free) = cores.pop().unwrap_or(Reverse(0));
                let end = free.max(at) + part.host_ns;
                cores.push(Reverse(end));
                done = Scan { ns: done.ns.max(end), host_ns: done.host_ns + part.host_ns };
                ask(end, &mut asked, &mut events);
            }
        }
    }
    done
}

/// A drive's part by each way: of the model, whose flash has to be read.
fn parts(model: &mut Model, path: &str) -> Result<[(Part, u64); 2], Failure> {
    let host_ns = cosmos().host_ns;
    let mut parts = [(Part { drive_ns: 0, bytes: 0, host_ns: 0 }, 0); 2];
    for ((_, route), (part, commands)) in WAYS.iter().zip(&mut parts) {
        model.session().set_route(*route);
        let took = model.once(path, &needle(), Buffer::Miss)?;
        let computes = if *route == Route::Host { host_computes(took.bytes) } else { 0 };
        // What the model has waited for the host is the host's.
        let of_host = took.commands * host_ns;
        let drive_ns = took.total.saturating_sub(of_host);
        (*part, *commands) =
            (Part { drive_ns, bytes: took.bytes, host_ns: of_host + computes }, took.commands);
    }
    Ok(parts)
}

/// The same on this machine: a drive in memory on threads of its own, and what the host's thread works for
/// it.
fn measured(run: &mut Run<'_>, data: &Dataset, path: &str) -> Result<(), Failure> {
    let options = Options { policy: Policy::Interrupt, ..Options::default() };
    let mut session = session(&format!("dram:{}", data.image.display()), &options)?;
    let ask = Ask::path(path, needle());
    let mut runs: [Vec<[f64; 4]>; 2] = Default::default();
    for round in 0..run.sized(3, 20) {
        for ((_, route), runs) in WAYS.iter().zip(&mut runs) {
            session.set_route(*route);
            session.mount()?;
            let (before, begin) = (thread_cpu_ns()?, session.clock().now());
            let (_, summary, _) = search(&mut session, &ask)?;
            let (took, cpu) = (session.clock().now().since(begin), thread_cpu_ns()? - before);
            let moved = summary.moved;
            let bytes = (moved.bytes_in + moved.bytes_out) as f64;
            // The first is of a drive that knows nothing yet.
            if round > 0 {
                runs.push([took as f64 / 1e3, cpu as f64 / 1e3, bytes, moved.commands() as f64]);
            }
        }
    }
    for (column, (what, unit)) in
        [("time", "us"), ("the host's processor", "us"), ("bytes moved", "B"), ("commands", "commands")]
            .into_iter()
            .enumerate()
    {
        for ((name, _), runs) in WAYS.iter().zip(&runs) {
            let values: Vec<f64> = runs.iter().map(|run| run[column]).collect();
            let mut finding = Finding::new(format!("one drive, {name}: {what}"), unit).machine(&values);
            if what == "the host's processor" {
                finding = finding.resolved_to(0.001);
            }
            run.finding(finding);
        }
    }
    Ok(())
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let bytes = run.sized(1 << 20, 16 << 20);
    let chain = Chain { depth: DEPTH, files: vec![(DEPTH, bytes)] };
    let data = dataset(run, Kind::F2fs, chain)?;
    let path = Chain::path(DEPTH, bytes);
    let x = || Scale::log("drives");
    run.chart(Chart::lines("time", "Until all drives have answered", x(), Scale::log("seconds")));
    run.chart(Chart::lines("host", "What the host's processors work", x(), Scale::log("processor seconds")));
    let parts = parts(&mut Model::new(&data)?, &path)?;
    let basis = [&ALL[..], &[HOST_CORE, FLEET]].concat();
    let fleet = Fleet::default();
    let mut last = Vec::new();
    for drives in [1u64, 10, 100, 1_000, 10_000] {
        for ((name, _), (part, commands)) in WAYS.iter().zip(&parts) {
            let scan = scan(drives, *part, &fleet);
            let of = |what: &str, unit: &str, value: f64| {
                let called = format!("{drives} drives, {name}: {what}");
                Finding::new(called, unit).model(value).from(Simulated, &basis)
            };
            let at = drives as f64;
            run.finding(of("time", "s", scan.ns as f64 / 1e9).point("time", name, at));
            run.finding(of("the host's processors", "s", scan.host_ns as f64 / 1e9).point("host", name, at));
            let moved = run.finding(of("bytes moved", "MB", (drives * part.bytes) as f64 / 1e6));
            run.finding(of("commands", "commands", (drives * commands) as f64));
            if drives == 10_000 {
                last.push(moved);
            }
        }
    }
    measured(run, &data, &path)?;
    if let [host, fsr] = &last[..] {
        let claim = Claim::new("NDP reduces data movement between the host and the device", "Abstract");
        let here = Quantity::named("one drive, FSR: bytes moved");
        let there = Quantity::named("one drive, host: bytes moved");
        let claim = claim.model(Quantity::from(fsr).over(host), Bound::Below(1.0));
        run.claim(claim.machine(here.over(there), Bound::Below(1.0)));
    }
    run.note(ABOUT);
    run.note(format!(
        "Measured here: what one drive's part costs. Computed: all of more than one drive. A host of {} processors with a link of {} Gbit/s has {} drives under way for \
         each processor; one drive of a hundred takes {} times as long. Each drive has one file of {} MiB, as deep as the paper's least, and nothing of it is in a buffer. To connect to a drive, \
         and to make and mount a snapshot of it, costs the host's way more and is not counted.",
        fleet.cores,
        (fleet.link_bytes_per_ns * 8.0).round(),
        fleet.each,
        fleet.slow_times,
        bytes >> 20,
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: Fleet = Fleet { cores: 4, link_bytes_per_ns: 2.0, each: 2, slow_part: 0.0, slow_times: 1 };

    #[test]
    fn whatever_there_is_least_of_says_how_long_a_scan_takes() {
        // One drive: its own time, its bytes, the host's work.
        let part = Part { drive_ns: 1000, bytes: 200, host_ns: 50 };
        assert_eq!(scan(1, part, &FLEET), Scan { ns: 1150, host_ns: 50 });
        // As many as the host has under way: bytes go one after the other.
        assert_eq!(scan(8, part, &FLEET).ns, 1000 + 8 * 100 + 50);
        // The link's time, the processors', and the drives', each where it is the longest.
        let near = |scan: Scan, ns: f64| (scan.ns as f64 / ns - 1.0).abs() < 0.02;
        assert!(near(scan(10_000, Part { drive_ns: 10, bytes: 200, host_ns: 1 }, &FLEET), 1e6));
        assert!(near(scan(10_000, Part { drive_ns: 10, bytes: 2, host_ns: 400 }, &FLEET), 1e6));
        assert!(near(scan(10_000, Part { drive_ns: 800, bytes: 2, host_ns: 1 }, &FLEET), 1e6));
    }

    #[test]
    fn who_is_slow_is_waited_for() {
        let part = Part { drive_ns: 1000, bytes: 0, host_ns: 0 };
        let slow = Fleet { slow_part: 1.0, slow_times: 3, ..FLEET };
        assert_eq!(scan(8, part, &slow).ns, 3000);
        let some = Fleet { slow_part: 0.01, slow_times: 3, ..FLEET };
        let all = scan(8000, part, &some).ns;
        assert!((1_015_000..1_030_000).contains(&all), "{all}");
    }
}
