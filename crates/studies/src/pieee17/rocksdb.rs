//! Figs. 9 and 10: RocksDB's Gets by the number of threads, throughput and 99th percentile, on the Optane
//! prototype, 75 % full, and on the P3600, 50 % full; reading alone, and beside one writer.
//!
//! The program is RocksDB's own db_bench on XFS with TRIM; data and drives are scaled. Both figures are of
//! the same runs, as the paper's are. The model is of reading alone, in simulated time: each thread computes,
//! reads 4 KiB and begins again; the computing is the one number that was fitted, to the paper's throughput.

use std::sync::{Mutex, PoisonError};

use nearside_apps::rocksdb::{Beside, Database, Gets, PROGRAM, VALUE};
use nearside_apps::{Drive, Kind, Volume};
use nearside_loadgen::{Arrivals, Rw};

use super::parameters::{P3600, PROTOTYPE, ROCKSDB_HOST, SOFTWARE};
use super::rig::{Bed, SOFTWARE_NS, percentile_us};
use super::stated::{ROCKSDB, ROCKSDB_P99};
use crate::Relation::Simulated;
use crate::applications::{ITS_WAY, program};
use crate::{Bound, Chart, Claim, Column, Failure, Finding, Quantity, Run, Scale, Stated, Study};

/// PIEEE'17, Fig. 9: throughput.
pub const FIG_9: Study =
    Study { number: "Fig. 9", title: "RocksDB's Gets: throughput by threads", section: "V-A", run: fig_9 };

/// PIEEE'17, Fig. 10: the 99th percentile.
pub const FIG_10: Study = Study {
    number: "Fig. 10",
    title: "RocksDB's Gets: 99th percentile response time by threads",
    section: "V-A",
    run: fig_10,
};

/// What a Get computes beside its read, in the model.
pub const COMPUTE_NS: u64 = 43_000;
/// Bytes of values that the writer writes in a second: 10,000 keys, an eighth of the paper's.
const WRITER: u64 = 10_000 * VALUE;

struct Contender {
    name: &'static str,
    word: &'static str,
    /// The part of it that is full.
    full: f64,
}

const DRIVES: [Contender; 2] = [
    Contender { name: "Optane", word: PROTOTYPE, full: 0.75 },
    Contender { name: "NAND", word: P3600, full: 0.5 },
];

const MODES: [(&str, Beside); 2] = [("Read", Beside::Nothing), ("Read/Write", Beside::Writer(WRITER))];

fn threads(run: &Run<'_>) -> &'static [u32] {
    run.sized(&[1, 4], &[1, 2, 4, 8, 16])
}

/// Of a drive in a mode: by threads, each round's.
type Series = Vec<Vec<Gets>>;
/// By drive, by mode.
type Measured = Vec<Vec<Series>>;

/// This machine's runs; a second figure has those of the first. Empty where it cannot run them.
fn measured(run: &mut Run<'_>) -> Result<Measured, Failure> {
    static FOUND: Mutex<Option<(bool, Measured)>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    match &*found {
        Some((small, measured)) if *small == run.small() => return Ok(measured.clone()),
        _ => {}
    }
    let Some(program) = program(run, &[PROGRAM, "mkfs.xfs"]) else { return Ok(nothing(run)) };
    let (capacity, keys) = run.sized((512u64 << 20, 20_000), (4 << 30, 1_000_000));
    let mut measured = nothing(run);
    // A volume goes before its drive.
    let mut drives = Vec::new();
    for Contender { word, .. } in &DRIVES {
        drives.push(Drive::attach(program, &format!("model:{word}:{capacity}"), &[])?);
    }
    let mut volumes = Vec::new();
    for (drive, Contender { name, full, .. }) in drives.iter().zip(&DRIVES) {
        run.say(&format!("{name}: filling {keys} keys and other data ..."));
        let volume = Volume::make(drive, Kind::Xfs)?;
        Database::fill(&volume, keys)?;
        // Half of a value's bytes go in compression.
        let database = keys * (20 + VALUE / 2);
        volume.fill(drive, (full - database as f64 / capacity as f64).max(0.0))?;
        volumes.push(volume);
    }
    let seconds = run.sized(1, 3);
    for round in 0..run.sized(2, 5u64) {
        for (at, count) in threads(run).iter().enumerate() {
            run.say(&format!("round {}, {count} threads ...", round + 1));
            for (mode, (_, beside)) in MODES.iter().enumerate() {
                for (drive, volume) in volumes.iter().enumerate() {
                    let gets = Database::there(volume, keys).gets(*count, seconds, *beside, round + 1)?;
                    measured[drive][mode][at].push(gets);
                }
            }
        }
    }
    drop(volumes);
    *found = Some((run.small(), measured.clone()));
    Ok(measured)
}

fn nothing(run: &Run<'_>) -> Measured {
    vec![vec![vec![Vec::new(); threads(run).len()]; MODES.len()]; DRIVES.len()]
}

/// What a figure is of.
struct Figure {
    /// Its unit.
    unit: &'static str,
    /// In a run.
    of: fn(&Gets) -> f64,
    /// In the model: Gets in a second, their 99th percentile in microseconds.
    of_model: fn((f64, f64)) -> f64,
    /// Whether Optane's stands over NAND's, or NAND's over Optane's.
    optane_over: bool,
    /// What the one over the other is called.
    ratio: &'static str,
    paper: Stated,
}

const THROUGHPUT: Figure = Figure {
    unit: "Gets/s",
    of: |gets| gets.per_second,
    of_model: |(per_second, _)| per_second,
    optane_over: true,
    ratio: "Optane's throughput over NAND's",
    paper: ROCKSDB,
};

const P99: Figure = Figure {
    unit: "us",
    of: |gets| gets.p99_us,
    of_model: |(_, p99)| p99,
    optane_over: false,
    ratio: "NAND's p99 over Optane's",
    paper: ROCKSDB_P99,
};

fn fig_9(run: &mut Run<'_>) -> Result<(), Failure> {
    let ratios = THROUGHPUT.study(run)?;
    for ((mode, _), of_mode) in MODES.iter().zip(&ratios) {
        let whole = format!("{}, {mode}, all numbers of threads", THROUGHPUT.ratio);
        let model: Option<Vec<f64>> = of_mode.iter().map(|finding| finding.model).collect();
        let rounds =
            of_mode.iter().map(Finding::measured).collect::<Option<Vec<f64>>>().map(|all| mean(&all));
        let mut finding = Finding::new(whole.as_str(), "x").paper(&ROCKSDB).machine(rounds.as_slice());
        if let Some(model) = model {
            finding = finding.model(mean(&model)).from(Simulated, &BASIS);
        }
        let finding = run.finding(finding);
        let text = format!("the latency of the SSDs results in a 3x advantage in throughput, {mode}");
        run.claim(judged(Claim::new(&text, "V-A"), &finding, Bound::stated(&ROCKSDB)));
        let text = format!(
            "a substantial advantage for the Optane SSD prototype at every number of threads, {mode}"
        );
        let claim = Claim::new(&text, "V-A");
        run.claim(of_mode.iter().fold(claim, |claim, of| judged(claim, of, Bound::Above(1.0))));
    }
    notes(run);
    Ok(())
}

fn fig_10(run: &mut Run<'_>) -> Result<(), Failure> {
    let ratios = P99.study(run)?;
    for ((mode, _), of_mode) in MODES.iter().zip(&ratios) {
        let text = format!("for all thread counts it delivers requests in 1/10th the time, {mode}");
        let claim = Claim::new(&text, "V-A");
        run.claim(of_mode.iter().fold(claim, |claim, of| judged(claim, of, Bound::stated(&ROCKSDB_P99))));
        let text = format!("a significant responsiveness advantage at every number of threads, {mode}");
        let claim = Claim::new(&text, "V-A");
        run.claim(of_mode.iter().fold(claim, |claim, of| judged(claim, of, Bound::Above(1.0))));
    }
    notes(run);
    Ok(())
}

/// What the model's values are computed from.
const BASIS: [&str; 4] = [PROTOTYPE, P3600, SOFTWARE, ROCKSDB_HOST];

/// Of this machine, and of the model where there is a value of it.
fn judged(claim: Claim, of: &Finding, must: Bound) -> Claim {
    let claim = claim.machine(of, must).in_models_time();
    match Column::Model.of(of) {
        Some(_) => claim.model(Quantity::from(of), must),
        None => claim,
    }
}

/// The geometric mean.
fn mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}

impl Figure {
    /// Both drives' values, and the one over the other by mode and threads.
    fn study(&self, run: &mut Run<'_>) -> Result<Vec<Vec<Finding>>, Failure> {
        for (mode, _) in MODES {
            let caption = format!("{mode}: by the number of threads");
            run.chart(Chart::lines(mode, &caption, Scale::log("threads"), Scale::log(self.unit)));
        }
        let measured = measured(run)?;
        let mut ratios: Vec<Vec<Finding>> = vec![Vec::new(); MODES.len()];
        for (at, count) in threads(run).iter().copied().enumerate() {
            let modelled: Vec<f64> = DRIVES
                .iter()
                .map(|drive| Ok((self.of_model)(model(run, drive.word, count)?)))
                .collect::<Result<_, Failure>>()?;
            for (mode, (name, beside)) in MODES.into_iter().enumerate() {
                let rounds =
                    |drive: usize| -> Vec<f64> { measured[drive][mode][at].iter().map(self.of).collect() };
                for (drive, Contender { name: who, word, .. }) in DRIVES.iter().enumerate() {
                    let mut finding = Finding::new(format!("{who}, {name}, {count} threads"), self.unit);
                    if beside == Beside::Nothing {
                        finding =
                            finding.model(modelled[drive]).from(Simulated, &[word, SOFTWARE, ROCKSDB_HOST]);
                    }
                    run.finding(finding.machine(&rounds(drive)).point(name, who, f64::from(count)));
                }
                let over =
                    |[optane, nand]: [f64; 2]| if self.optane_over { optane / nand } else { nand / optane };
                let own: Vec<f64> =
                    rounds(0).into_iter().zip(rounds(1)).map(|(optane, nand)| over([optane, nand])).collect();
                let mut ratio =
                    Finding::new(format!("{}, {name}, {count} threads", self.ratio), "x").paper(&self.paper);
                if beside == Beside::Nothing {
                    ratio = ratio.model(over([modelled[0], modelled[1]])).from(Simulated, &BASIS);
                }
                ratios[mode].push(run.finding(ratio.machine(&own)));
            }
        }
        Ok(ratios)
    }
}

/// Threads that compute and read, in simulated time: Gets in a second, and their 99th percentile.
fn model(run: &Run<'_>, word: &str, threads: u32) -> Result<(f64, f64), Failure> {
    let mut bed = Bed::behind(word, run.sized(1 << 30, 16 << 30), 4096, SOFTWARE_NS + COMPUTE_NS)?;
    let arrivals = Arrivals::Closed { depth: threads };
    let outcome = bed.load(Rw::RandRead, 100, arrivals, run.sized(10_000, 200_000))?;
    Ok((outcome.throughput(), percentile_us(&outcome.both().response, 99.0)))
}

fn notes(run: &mut Run<'_>) {
    run.note(ITS_WAY);
    run.note(
        "Data and drives are scaled: a million keys on drives of a few GiB, each as full as the paper's. The block cache is far smaller than the \
         data, so that a Get is a read of the drive; reads are direct. The writer is held to an eighth of the paper's rate, since it and the \
         compaction share the cores with all readers and the drives' own threads. Where there are fewer cores than threads, a Get waits for a core \
         as well, which brings the two drives nearer to each other.",
    );
}
