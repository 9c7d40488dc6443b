//! Fig. 12: memcached's gets in DRAM, paged to a fast drive by the kernel, and with the values in a file on
//! it.
//!
//! The paper's drive is no Optane but a DRAM-based one of about its latency: here the model of FAST'12's
//! prototype on its bus. Its answer to what paging does to memcached is fatcache, which no package brings:
//! what memcached itself has become since then, extstore, stands in its place, and is not it.

use nearside_apps::memcached::{Cache, Gets, Kept, PROGRAM, VALUE};
use nearside_apps::swap::{PAGE, Swap};
use nearside_apps::{Drive, Group, Kind, Volume, in_group};

use super::rig::{mean_us, percentile_us};
use super::stated::{FATCACHE_ADDS, FATCACHE_RATE, PAGED, PAGED_RATE};
use crate::applications::{ITS_WAY, program};
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Stated, Study};

/// PIEEE'17, Fig. 12: memcached.
pub const STUDY: Study = Study {
    number: "Fig. 12",
    title: "memcached in DRAM, by paging, and with its values on the drive",
    section: "V-C",
    run,
};

const DRIVE: &str = "dram-gen2";

/// Where values are.
const KEPT: [&str; 3] = ["DRAM", "paging", "extstore"];

/// Connections that are measured: an unloaded system, and a loaded one.
const CONNECTIONS: [u32; 2] = [1, 4];

/// A run of gets, and what the device did for each.
struct Ran {
    gets: Gets,
    pages_read: f64,
    pages_written: f64,
}

/// A value of a run.
type Value = fn(&Ran) -> f64;

/// By place and number of connections, each round's.
type Measured = [[Vec<Ran>; CONNECTIONS.len()]; KEPT.len()];

fn measured(run: &mut Run<'_>) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let needs = [PROGRAM, "mkswap", "swapon", "swapoff", "mkfs.ext4"];
    let Some(program) = program(run, &needs) else { return Ok(measured) };
    if let Err(lacks) = Group::new(64 << 20) {
        run.note(format!("This machine's column was left out: {lacks}."));
        return Ok(measured);
    }
    let (keys, each) = run.sized((16_384, 1_000), (32_768, 20_000));
    // With what memcached needs beside the values; of that a half is there.
    let all = keys * VALUE as u64 / 2 * 3;
    for round in 0..run.sized(2, 5u64) {
        for (place, by_connections) in measured.iter_mut().enumerate() {
            run.say(&format!("round {}, {} ...", round + 1, KEPT[place]));
            // A drive of its own each time: what the other left on it is gone.
            let drive = Drive::attach(program, &format!("model:{DRIVE}:1GiB"), &["--lock-memory"])?;
            let measure = |kept: &Kept<'_>| {
                let mut cache = Cache::filled(kept, keys)?;
                CONNECTIONS
                    .into_iter()
                    .map(|connections| ran(&drive, &mut cache, connections, each, round))
                    .collect()
            };
            let all_ran: Result<Vec<Ran>, Failure> = match place {
                0 => measure(&Kept::Memory),
                1 => {
                    let _swap = Swap::on(&drive, 0, all)?;
                    in_group(all / 3, |group| measure(&Kept::Paged(group)))
                }
                _ => {
                    let volume = Volume::make(&drive, Kind::Ext4)?;
                    in_group(all / 3, |group| measure(&Kept::File(&volume, group)))
                }
            };
            by_connections.iter_mut().zip(all_ran?).for_each(|(rounds, ran)| rounds.push(ran));
        }
    }
    Ok(measured)
}

fn ran(drive: &Drive, cache: &mut Cache, connections: u32, each: u64, round: u64) -> Result<Ran, Failure> {
    let before = drive.counters()?;
    let gets = cache.gets(connections, each, round + 1)?;
    let counted = drive.counters()?.since(before);
    let pages = |bytes: u64| (bytes / PAGE) as f64 / gets.response.count().max(1) as f64;
    let (pages_read, pages_written) = (pages(counted.read_bytes), pages(counted.written_bytes));
    Ok(Ran { gets, pages_read, pages_written })
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("response", "A get's response time at the mean", Scale::log("us")));
    run.chart(Chart::sides("throughput", "Gets in a second", Scale::log("1/s")));
    let measured = measured(run)?;
    for (kept, by_connections) in KEPT.into_iter().zip(&measured) {
        for (connections, rounds) in CONNECTIONS.into_iter().zip(by_connections) {
            let of = |value: fn(&Ran) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
            let at = format!("{connections} connections");
            let name = |what: &str| name_of(kept, connections, what);
            let response = Finding::new(name(MEAN), "us").machine(&of(|ran| mean_us(&ran.gets.response)));
            run.finding(response.point("response", &at, kept));
            let p99 = of(|ran| percentile_us(&ran.gets.response, 99.0));
            run.finding(Finding::new(name(P99), "us").machine(&p99));
            let rate = Finding::new(name(RATE), "1/s").machine(&of(|ran| ran.gets.per_second));
            run.finding(rate.point("throughput", &at, kept));
            let others: [(&str, Value); 3] = [
                (READ, |ran| ran.pages_read),
                (WRITTEN, |ran| ran.pages_written),
                (MISSED, |ran| ran.gets.missed as f64 / ran.gets.response.count().max(1) as f64),
            ];
            for (what, value) in others {
                run.finding(Finding::new(name(what), "").machine(&of(value)));
            }
        }
    }
    claims(run, &measured);
    run.note(ITS_WAY);
    run.note(
        "fatcache was not run: no package brings it. extstore is memcached's own: metadata in memory, values in a file that it reads itself, \
         of which the kernel may keep no more than paging may. The drive is the model of FAST'12's DRAM prototype, faster than the paper's \
         drive by itself; memcached has one thread and the client's threads share the machine's cores with it and the drive.",
    );
    Ok(())
}

const MEAN: &str = "a get, mean";
const P99: &str = "a get, p99";
const RATE: &str = "gets";
const READ: &str = "pages read for each get";
const WRITTEN: &str = "pages written for each get";
const MISSED: &str = "gets that found nothing, of all";

fn name_of(kept: &str, connections: u32, what: &str) -> String {
    format!("{kept}, {connections} connections: {what}")
}

/// What a get by a place is beside one in DRAM, with the paper's value.
fn beside(
    run: &mut Run<'_>,
    measured: &Measured,
    what: (&str, &str, usize),
    stated: &Stated,
    of: impl Fn(&Ran, &Ran) -> f64,
) -> Finding {
    let (name, unit, place) = what;
    let [dram, other] = [0, place].map(|place| &measured[place][0]);
    let rounds: Vec<f64> = dram.iter().zip(other).map(|(dram, other)| of(other, dram)).collect();
    run.finding(Finding::new(name, unit).paper(stated).machine(&rounds))
}

fn claims(run: &mut Run<'_>, measured: &Measured) {
    let mean = |ran: &Ran| mean_us(&ran.gets.response);
    let p99 = |ran: &Ran| percentile_us(&ran.gets.response, 99.0);
    let rate = |over: &Ran, under: &Ran| over.gets.per_second / under.gets.per_second;
    let times = ("paging: response time over DRAM's", "x", 1);
    let times = beside(run, measured, times, &PAGED, |paged, dram| mean(paged) / mean(dram));
    let part = beside(run, measured, ("paging: throughput over DRAM's", "", 1), &PAGED_RATE, rate);
    run.claim(
        Claim::new(
            "the response time of paging to fast storage is 45x longer than memcached using DRAM",
            "V-C",
        )
        .machine(&times, Bound::stated(&PAGED)),
    );
    run.claim(Claim::new("at less than 20% of throughput", "V-C").machine(&part, Bound::stated(&PAGED_RATE)));
    let written = |kept| Quantity::named(name_of(kept, 1, WRITTEN));
    run.claim(
        Claim::new("pages are dirtied and must be written back to disks even on memcached reads", "V-C")
            .machine(written(KEPT[1]), Bound::AtLeast(0.1))
            .machine(written(KEPT[0]), Bound::AtMost(0.0)),
    );
    let part = beside(run, measured, ("extstore: throughput over DRAM's", "", 2), &FATCACHE_RATE, rate);
    let adds = ("extstore: adds to a get", "us", 2);
    let adds = beside(run, measured, adds, &FATCACHE_ADDS[0], |file, dram| mean(file) - mean(dram));
    let tail = ("extstore: adds to a get's p99", "us", 2);
    let tail = beside(run, measured, tail, &FATCACHE_ADDS[1], |file, dram| p99(file) - p99(dram));
    let not = "Of extstore, not of the paper's fatcache";
    run.claim(
        Claim::new(
            "metadata apart from data: at least 60% of the throughput of memcached with DRAM alone",
            "V-C",
        )
        .machine(&part, Bound::stated(&FATCACHE_RATE))
        .because(not),
    );
    run.claim(
        Claim::new(
            "an additional 10 us of latency on an unloaded system, and an extra 110 us at 99th percentile",
            "V-C",
        )
        .machine(&adds, Bound::stated(&FATCACHE_ADDS[0]))
        .machine(&tail, Bound::stated(&FATCACHE_ADDS[1]))
        .because(not),
    );
}
