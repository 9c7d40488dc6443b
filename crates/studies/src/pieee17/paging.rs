//! Section III-B: what a page miss takes by the kernel's paging to a NAND SSD and to an Optane SSD, with one
//! page read for each miss (vm.page-cluster 0) and with eight (3, the kernel's default).
//!
//! The paper's 16 us are its 11 us of a read from the application and its 5 us of paging code; the model is
//! that sum, of each drive. On this machine the kernel is the real one: a miss is what a touch takes that the
//! kernel counts as a major fault, and beside it stand a direct read of the same device and the drive in one
//! process with its driver, so that a miss can be read layer by layer.

use nearside_apps::swap::Misses;
use nearside_instrument::medium;
use nearside_loadgen::{Arrivals, Rw};

use super::parameters::{P3700, PAGING_CODE, PROTOTYPE, SOFTWARE};
use super::real::{Length, Real};
use super::rig::{Bed, SOFTWARE_NS, mean_us};
use super::stated::{MISS, PAGING};
use crate::Relation::{Arithmetic, Simulated};
use crate::applications::ITS_WAY;
use crate::paging::{Case, Paged, measure};
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Stated, Study};

/// PIEEE'17, section III-B: page misses.
pub const STUDY: Study = Study {
    number: "Section III-B",
    title: "A page miss by the kernel's paging, NAND beside Optane",
    section: "III-B",
    run,
};

/// What the paging's own code takes.
pub const CODE_NS: u64 = (PAGING.value * 1e3) as u64;
/// Pages that are read at once with page-cluster 3.
pub const AROUND: u32 = 8;

struct Contender {
    name: &'static str,
    word: &'static str,
    paper: Stated,
}

const DRIVES: [Contender; 2] = [
    Contender { name: "NAND", word: P3700, paper: MISS[0] },
    Contender { name: "Optane", word: PROTOTYPE, paper: MISS[1] },
];

const CASES: [Case; 4] = [
    Case { cluster: 0, dirty: false, in_order: false },
    Case { cluster: 3, dirty: false, in_order: false },
    Case { cluster: 0, dirty: true, in_order: false },
    Case { cluster: 3, dirty: true, in_order: false },
];

/// A value of a round.
type Value = fn(&Misses) -> f64;

const RATIO: &str = "NAND's page miss over Optane's";
/// What the paper measured: one page for each miss, none of which had to be written out.
const TUNED: usize = 0;

fn name_of(drive: &str, case: Case) -> String {
    let dirty = if case.dirty { "dirty" } else { "clean" };
    format!("{drive}: a page miss, page-cluster {}, {dirty}", case.cluster)
}

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("miss", "What a page miss takes at the mean", Scale::log("us")));
    let mut own = Vec::new();
    for drive in &DRIVES {
        own.push(by_itself(run, drive.word)?);
    }
    let paged = measure(run, &DRIVES.map(|drive| drive.word), &CASES)?;
    let mut modelled = Vec::new();
    for ((drive, paged), own) in DRIVES.iter().zip(&paged).zip(&own) {
        modelled.push(misses(run, drive, paged)?);
        layers(run, drive.name, paged, own);
    }
    let [nand, optane] = [0, 1].map(|drive: usize| paged[drive].of(TUNED, |m| m.mean_us));
    let ratios: Vec<f64> = nand.iter().zip(&optane).map(|(nand, optane)| nand / optane).collect();
    let over = Finding::new(RATIO, "x").model(modelled[0] / modelled[1]).machine(&ratios);
    let over = over.from(Simulated, &[P3700, PROTOTYPE, SOFTWARE, PAGING_CODE]);
    run.finding(over.reckoned(MISS[0].value / MISS[1].value, &MISS));
    claims(run);
    run.note(ITS_WAY);
    run.note(
        "A miss is at the mean, as the paper has it, and its median stands beside it. It has in it what the kernel does to find a free page: \
         with dirty pages it waits for writes of what it lets go. A touch that finds a page which came with another's miss is no miss.",
    );
    Ok(())
}

/// The drive in one process with its driver, polled: a read of 4 KiB at the mean, in microseconds.
fn by_itself(run: &mut Run<'_>, word: &str) -> Result<Vec<f64>, Failure> {
    const CAPACITY: u64 = 1 << 30;
    run.say(&format!("{word} by itself ..."));
    let mut real = Real::new(medium(word, CAPACITY, false, 1)?, CAPACITY, CAPACITY / 8)?.reads();
    let length = Length::Count(run.sized(500, 5_000));
    Ok(real.runs(run.sized(2, 5), Arrivals::Closed { depth: 1 }, length)?.mean_us())
}

/// A read of so many pages and the paging's code, in simulated time.
fn model_us(run: &Run<'_>, word: &str, pages: u32) -> Result<f64, Failure> {
    let mut bed = Bed::behind(word, run.sized(1 << 30, 16 << 30), 4096 * pages, SOFTWARE_NS)?;
    let read = bed
        .load(Rw::RandRead, 100, Arrivals::Closed { depth: 1 }, run.sized(5_000, 100_000))?
        .both()
        .response;
    Ok(mean_us(&read) + CODE_NS as f64 / 1e3)
}

/// The model's own miss of one page.
fn misses(run: &mut Run<'_>, drive: &Contender, paged: &Paged) -> Result<f64, Failure> {
    let mut tuned = 0.0;
    for (nth, case) in CASES.into_iter().enumerate() {
        let name = name_of(drive.name, case);
        let pages = if case.cluster == 0 { 1 } else { AROUND };
        let relation = if drive.word == PROTOTYPE { Arithmetic } else { Simulated };
        let mut finding = Finding::new(name.as_str(), "us");
        if !case.dirty {
            finding = finding.model(model_us(run, drive.word, pages)?);
            finding = finding.from(relation, &[drive.word, SOFTWARE, PAGING_CODE]);
        }
        if nth == TUNED {
            tuned = finding.model.unwrap_or(0.0);
            finding = finding.paper(&drive.paper);
        }
        let place = name.split_once(", ").map_or(&*name, |(_, place)| place);
        run.finding(finding.machine(&paged.of(nth, |m| m.mean_us)).point("miss", drive.name, place));
        let values: [(&str, &str, Value); 4] = [
            ("median", "us", |m| m.p50_us),
            ("p99", "us", |m| m.p99_us),
            ("pages read for each", "", |m| m.pages_read / m.waits.max(1.0)),
            ("touches that are one", "%", |m| 100.0 * m.count / m.touches.max(1.0)),
        ];
        for (what, unit, value) in values {
            run.finding(Finding::new(format!("{name}: {what}"), unit).machine(&paged.of(nth, value)));
        }
    }
    Ok(tuned)
}

/// Of what a clean miss of one page is made: the drive, the way to it, the rest.
fn layers(run: &mut Run<'_>, drive: &str, paged: &Paged, own: &[f64]) {
    let own = run.finding(Finding::new(format!("{drive}: a read of the drive by itself"), "us").machine(own));
    let direct = Finding::new(format!("{drive}: a direct read of the attached device"), "us");
    run.finding(direct.machine(&paged.direct_us).beside(&own));
    let by_itself = own.measured().unwrap_or(0.0);
    let way: Vec<f64> = paged.direct_us.iter().map(|us| us - by_itself).collect();
    run.finding(Finding::new(format!("{drive}: of it the way to the drive"), "us").machine(&way));
    let missed = paged.of(TUNED, |m| m.mean_us);
    let rest: Vec<f64> = missed.iter().zip(&paged.direct_us).map(|(miss, direct)| miss - direct).collect();
    let rest =
        Finding::new(format!("{drive}: what a page miss takes beyond a direct read"), "us").machine(&rest);
    run.finding(if drive == "Optane" { rest.paper(&PAGING) } else { rest });
}

fn claims(run: &mut Run<'_>) {
    let miss = |drive: &str, case: usize| Quantity::named(name_of(drive, CASES[case]));
    for (text, drive) in [
        ("a page miss requires on average 92 us for a NAND SSD", &DRIVES[0]),
        ("but only 16 us for an Intel Optane SSD", &DRIVES[1]),
    ] {
        let bound = Bound::stated(&drive.paper);
        run.claim(Claim::new(text, "III-B").both(miss(drive.name, TUNED), bound).in_models_time());
    }
    let text = "a page miss of NAND is 5.75 times Optane's (92 us over 16 us)";
    let apart = Bound::about(MISS[0].value / MISS[1].value);
    run.claim(Claim::new(text, "III-B").both(Quantity::named(RATIO), apart).in_models_time());
    let rest = Quantity::named("Optane: what a page miss takes beyond a direct read");
    run.claim(
        Claim::new("the code to implement paging incurred overheads of only 5 us", "III-B")
            .machine(rest, Bound::stated(&PAGING)),
    );
    let text = "the default policy to always prefetch multiple blocks is not optimal for Optane SSDs";
    let worse = miss("Optane", 1).over(miss("Optane", TUNED));
    run.claim(Claim::new(text, "III-B").both(worse, Bound::Above(1.1)).in_models_time());
}
