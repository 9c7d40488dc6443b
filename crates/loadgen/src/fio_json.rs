//! A run as fio's JSON (`--output-format=json` and `json+` of fio 3.33), for programs that read fio's.
//!
//! A stream is a job; runs one after another (the loads of a curve) are groups, as with fio's `stonewall`.
//!
//! | fio's | here |
//! | --- | --- |
//! | `clat_ns`, `latency_ns`, `_us`, `_ms` | service times: from when an operation was submitted |
//! | `lat_ns` | response times: from when it was due, which no stall and no full queue moves |
//! | `slat_ns` | not measured: `N` is 0, as of fio's engines that submit and wait in one call |
//! | `total_ios`, `io_bytes` | operations that were due in the window and ended well, their bytes |
//! | `runtime`, `job_runtime` | from the window's begin to its end, or to the last of these operations |
//! | `iops_*`, `bw_*` | over the run's slices, where all of them are of one direction, and of one size |
//! | `iodepth_level` | operations of the job in flight when one was submitted, itself included |
//!
//! What is not known is left out (`ctx`, `majf`, `minf`, `iodepth_submit`, `iodepth_complete`, `disk_util`;
//! `usr_cpu`, `sys_cpu`: CPU time is counted by a clock that does not tell the two apart), but for `trim`
//! and `sync`, which are not done here and are 0.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::Latency;
use crate::arrivals::Arrivals;
use crate::outcome::{DEPTH_LEVELS, Outcome, StreamOutcome, Tally};
use crate::plan::{Plan, Stream};
use crate::summary::Summary;
use crate::workload::Distribution;

/// The version of fio whose JSON this is.
const VERSION: &str = "fio-3.33";
/// fio's own list, and one nine more.
const PERCENTS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99,
    99.999,
];
/// Upper ends of the ranges of `latency_ns` and `latency_us`; those of `latency_ms` go on.
const RANGES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// Lower ends of the ranges of `iodepth_level`.
const DEPTHS: [&str; DEPTH_LEVELS] = ["1", "2", "4", "8", "16", "32", ">=64"];

/// An object whose names are data, in their order.
#[derive(Clone, Debug)]
struct Ordered<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The whole output of one command.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    #[serde(rename = "fio version")]
    version: &'static str,
    timestamp: u64,
    timestamp_ms: u64,
    #[serde(rename = "global options")]
    global: Ordered<String>,
    jobs: Vec<Job>,
}

/// One stream of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Job {
    jobname: String,
    groupid: u32,
    error: i32,
    eta: u64,
    /// Seconds.
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Ordered<String>,
    read: Way,
    write: Way,
    trim: Way,
    sync: Sync,
    job_runtime: u64,
    iodepth_level: Ordered<f64>,
    latency_ns: Ordered<f64>,
    latency_us: Ordered<f64>,
    latency_ms: Ordered<f64>,
    latency_depth: u64,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
}

/// Reads or writes.
#[derive(Clone, Debug, Default, Serialize)]
struct Way {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    /// Milliseconds.
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Times,
    clat_ns: Times,
    lat_ns: Times,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Ordered<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Ordered<u64>>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Sync {
    total_ios: u64,
    lat_ns: Times,
}

/// How much of the histograms is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// fio's `json`.
    Percentiles,
    /// fio's `json+`: the bins too.
    Bins,
}

impl Document {
    /// `began_ms` is when the command began, in milliseconds since 1970: this crate asks no clock
    /// for the date.
    #[must_use]
    pub fn new(began_ms: u64, jobs: Vec<Job>) -> Self {
        let (timestamp, timestamp_ms) = (began_ms / 1000, began_ms);
        Self { version: VERSION, timestamp, timestamp_ms, global: Ordered(Vec::new()), jobs }
    }
}

/// The jobs of one run, which is the `group`th of the command.
#[must_use]
pub fn jobs(summary: &Summary, outcome: &Outcome, group: u32, detail: Detail) -> Vec<Job> {
    let plan = &summary.plan;
    let streams = plan.streams.iter().zip(&outcome.streams);
    streams
        .map(|(stream, measured)| {
            let ran_ns = outcome.ended.max(outcome.until).since(outcome.from).max(1);
            let of = Of { outcome, measured, stream, ran_ns, detail };
            let options = options(summary, plan, stream);
            job(&of, group, options)
        })
        .collect()
}

/// What a job is made of.
struct Of<'a> {
    outcome: &'a Outcome,
    measured: &'a StreamOutcome,
    stream: &'a Stream,
    ran_ns: u64,
    detail: Detail,
}

fn job(of: &Of<'_>, groupid: u32, options: Ordered<String>) -> Job {
    let service = of.measured.both().service;
    let runtime = of.ran_ns.div_ceil(1_000_000);
    let [latency_ns, latency_us, latency_ms] = ranges(&service);
    Job {
        jobname: of.measured.name.clone(),
        groupid,
        // fio has one errno for a job; here what went wrong is in the run's own JSON.
        error: if of.measured.errors > 0 { 5 } else { 0 },
        eta: 0,
        elapsed: of.ran_ns.div_ceil(1_000_000_000),
        options,
        read: way(of, &of.measured.reads, of.measured.writes.service.count() == 0),
        write: way(of, &of.measured.writes, of.measured.reads.service.count() == 0),
        trim: Way::default(),
        sync: Sync::default(),
        job_runtime: runtime,
        iodepth_level: levels(&of.measured.depths),
        latency_ns,
        latency_us,
        latency_ms,
        latency_depth: match of.stream.arrivals {
            Arrivals::Closed { depth } => depth.into(),
            _ => 1,
        },
        latency_target: 0,
        latency_percentile: 100.0,
        latency_window: 0,
    }
}

fn way(of: &Of<'_>, tally: &Tally, alone: bool) -> Way {
    let total_ios = tally.service.count();
    if total_ios == 0 && tally.response.count() == 0 {
        return Way::default();
    }
    let seconds = of.ran_ns as f64 / 1e9;
    let bw_bytes = (tally.bytes as f64 / seconds) as u64;
    let mut way = Way {
        io_bytes: tally.bytes,
        io_kbytes: tally.bytes / 1024,
        bw_bytes,
        bw: bw_bytes / 1024,
        iops: total_ios as f64 / seconds,
        runtime: of.ran_ns.div_ceil(1_000_000),
        total_ios,
        slat_ns: Times::default(),
        clat_ns: Times::of(&tally.service, of.detail),
        lat_ns: Times::of(&tally.response, of.detail),
        ..Way::default()
    };
    if alone {
        slices(of, &mut way);
    }
    way
}

/// What changed from slice to slice of the window; the last one, which may be cut short, aside.
fn slices(of: &Of<'_>, way: &mut Way) {
    let whole = (of.outcome.window_ns() / of.outcome.slice_ns).min(1 << 16) as usize;
    // In a slice that is not there nothing ended.
    let count = |slice: usize| of.measured.slices.get(slice).map_or(0, Latency::count);
    let rates: Vec<f64> =
        (0..whole).map(|slice| count(slice) as f64 * 1e9 / of.outcome.slice_ns as f64).collect();
    let Some((mean, deviation)) = spread(&rates) else { return };
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    way.iops_samples = rates.len() as u64;
    (way.iops_min, way.iops_max) = (least as u64, most as u64);
    (way.iops_mean, way.iops_stddev) = (mean, deviation);
    if let Some(size) = one_size(of.stream) {
        let kib = f64::from(size) / 1024.0;
        way.bw_samples = way.iops_samples;
        (way.bw_min, way.bw_max) = ((least * kib) as u64, (most * kib) as u64);
        (way.bw_mean, way.bw_dev) = (mean * kib, deviation * kib);
        // The job is alone in its group, or the group's others are not known here.
        way.bw_agg = 100.0;
    }
}

/// The size of all operations; none where they differ, as a trace's may.
fn one_size(stream: &Stream) -> Option<u32> {
    match stream.workload.bs[..] {
        [(size, _)] if stream.workload.trace.is_none() => Some(size),
        _ => None,
    }
}

/// Mean and standard deviation of a sample; none without one.
fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
    Some((mean, (squares / (n - 1.0).max(1.0)).sqrt()))
}

impl Times {
    fn of(latency: &Latency, detail: Detail) -> Self {
        let samples = latency.count();
        let percentile = |percent: f64| (format!("{percent:.6}"), latency.percentile(percent).ns);
        let n = samples as f64;
        let bins = || latency.buckets().map(|(ns, count)| (ns.to_string(), count)).collect();
        Self {
            min: latency.min_ns(),
            max: latency.max_ns(),
            mean: latency.mean_ns(),
            // The histogram's is the population's.
            stddev: if samples > 1 { latency.histogram().stdev() * (n / (n - 1.0)).sqrt() } else { 0.0 },
            samples,
            percentile: (samples > 0).then(|| Ordered(PERCENTS.map(percentile).into())),
            bins: (samples > 0 && detail == Detail::Bins).then(|| Ordered(bins())),
        }
    }
}

/// Parts of all samples in per cent, by ranges of nanoseconds, microseconds, milliseconds.
fn ranges(latency: &Latency) -> [Ordered<f64>; 3] {
    let mut counts = [[0u64; 12]; 3];
    for (ns, count) in latency.buckets() {
        // The bucket's upper end: fio's ranges are open there.
        let ns = ns.min(latency.max_ns());
        let (unit, value) = match ns {
            0..1_000 => (0, ns),
            1_000..1_000_000 => (1, ns / 1_000),
            _ => (2, ns / 1_000_000),
        };
        let range = RANGES.iter().position(|end| value < *end).unwrap_or(if value < 2_000 { 10 } else { 11 });
        counts[unit][range] += count;
    }
    let all = latency.count().max(1) as f64;
    let names = RANGES.map(|end| end.to_string()).into_iter().chain(["2000".into(), ">=2000".into()]);
    let names: Vec<String> = names.collect();
    let mut units = counts.iter().zip([10, 10, 12]).map(|(counts, ranges)| {
        let part = |(name, count): (&String, &u64)| (name.clone(), 100.0 * *count as f64 / all);
        Ordered(names.iter().zip(counts).take(ranges).map(part).collect())
    });
    std::array::from_fn(|_| units.next().unwrap_or(Ordered(Vec::new())))
}

fn levels(depths: &[u64; DEPTH_LEVELS]) -> Ordered<f64> {
    let all = depths.iter().sum::<u64>().max(1) as f64;
    let part = |(name, count): (&&str, &u64)| ((*name).to_owned(), 100.0 * *count as f64 / all);
    Ordered(DEPTHS.iter().zip(depths).map(part).collect())
}

/// A stream in the words of a job file.
fn options(summary: &Summary, plan: &Plan, stream: &Stream) -> Ordered<String> {
    let workload = &stream.workload;
    let mut words = vec![("name", stream.name.clone()), ("filename", summary.target.clone())];
    words.push(("rw", workload.rw.to_string()));
    if let Some(size) = one_size(stream) {
        words.push(("bs", size.to_string()));
    } else if workload.trace.is_none() {
        let parts: Vec<String> = workload.bs.iter().map(|(size, share)| format!("{size}/{share}")).collect();
        words.push(("bssplit", parts.join(":")));
    }
    words.push(("rwmixread", workload.rwmixread.to_string()));
    words.push(("offset", workload.offset.to_string()));
    words.push(("size", workload.size.to_string()));
    if let Distribution::Zipf(theta) = workload.distribution {
        words.push(("random_distribution", format!("zipf:{theta}")));
    }
    match stream.arrivals {
        Arrivals::Closed { depth } => words.push(("iodepth", depth.to_string())),
        Arrivals::Constant { rate } => {
            words.extend([("rate_iops", format!("{rate}")), ("rate_process", "linear".into())]);
        }
        Arrivals::Poisson { rate } => {
            words.extend([("rate_iops", format!("{rate}")), ("rate_process", "poisson".into())]);
        }
        // fio's is a percentage of the recorded rate.
        Arrivals::Recorded { scale } => words.push(("replay_time_scale", format!("{:.0}", 100.0 * scale))),
    }
    if let Some(trace) = &workload.trace {
        words.push(("read_iolog", trace.source.path.display().to_string()));
    }
    if let Some(think) = &workload.think {
        words.push(("thinktime", format!("{}ns", think.time_ns)));
        words.push(("thinktime_spin", format!("{}ns", think.spin_ns)));
        words.push(("thinktime_blocks", think.blocks.to_string()));
    }
    if let Some(ns) = plan.runtime_ns {
        words.push(("runtime", format!("{}us", ns / 1_000)));
    }
    words.push(("randseed", plan.seed.to_string()));
    Ordered(words.into_iter().map(|(word, value)| (word.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::null::Null;
    use crate::run::simulated;
    use crate::workload::{Rw, Workload};
    use nearside_clock::SimClock;

    #[test]
    fn what_waited_and_what_the_device_took_stay_apart() {
        // One at a time, each 150 us, offered every 100 us for 10 ms: ended within it are 66 of 100.
        let workload = Workload::new(Rw::RandRead, 4096, 1 << 20);
        let mut plan = Plan::new(workload, Arrivals::Constant { rate: 10_000.0 }, 10_000_000);
        plan.slice_ns = 1_000_000;
        let mut engine = Null::with_service(1, |_, now| now + 150_000);
        let outcome = simulated(&plan, &mut engine, &SimClock::new()).unwrap();
        let summary = Summary::simulated("x", "null", &plan, &outcome);
        let job = &jobs(&summary, &outcome, 3, Detail::Percentiles)[0];
        assert_eq!((job.groupid, job.error), (3, 0));
        let read = &job.read;
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.01;
        assert_eq!((read.total_ios, read.io_bytes), (99, 99 * 4096));
        assert!(near(read.clat_ns.mean, 150_000.0) && read.clat_ns.stddev < 1.0, "{:?}", read.clat_ns);
        // The n-th waits 50 us for each one before it.
        assert!(near(read.lat_ns.mean, 150_000.0 + 49.0 * 50_000.0), "{:?}", read.lat_ns);
        // Until the last has ended: 99 of them, and 100 us before the first. In the first slice five ended.
        assert_eq!((read.runtime, read.iops as u64), (15, 6_622));
        assert_eq!((read.iops_samples, read.iops_min, read.iops_max), (10, 5_000, 7_000));
        assert_eq!((read.bw_min, read.bw_max, read.clat_ns.bins.is_none()), (20_000, 28_000, true));
        assert_eq!((job.write.total_ios, job.write.clat_ns.percentile.is_none()), (0, true));
        let level = |name: &str| job.iodepth_level.0.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!((level("1"), level("2")), (100.0, 0.0));
    }

    #[test]
    fn a_time_is_in_the_range_that_fio_puts_it_in() {
        for (ns, unit, name) in [
            (1, 0, "2"),
            (2, 0, "4"),
            (999, 0, "1000"),
            (1_000, 1, "2"),
            (3_999, 1, "4"),
            (4_000, 1, "10"),
            (999_000, 1, "1000"),
            (1_000_000, 2, "2"),
            (1_500_000_000, 2, "2000"),
            (3_000_000_000, 2, ">=2000"),
        ] {
            let mut latency = Latency::new();
            latency.record(ns);
            let found = ranges(&latency);
            let part = found[unit].0.iter().find(|(n, _)| n == name).unwrap().1;
            assert_eq!(part, 100.0, "{ns}: {found:?}");
        }
    }
}
