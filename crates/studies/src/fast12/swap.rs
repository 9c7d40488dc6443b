//! Section 4's advice on prefetching, of the kernel's swap: what touching pages costs with eight pages read
//! around a miss (vm.page-cluster 3, the kernel's default) and with one (0), on the paper's prototype and on
//! a slow drive; at random, where what comes beside a page is of no use, and in order, where all of it is.
//!
//! The model is of a miss alone: the synchronous path's read of one page or of eight on the prototype.

use nearside_driver::Policy;
use nearside_media::dram::Prototype;
use nearside_sim::cpu::Costs;

use super::alone;
use super::parameters::{MEDIA, SYNC};
use crate::Relation::Arithmetic;
use crate::applications::ITS_WAY;
use crate::paging::{Case, Paged, measure};
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// Section 4: swap-in clustering.
pub const STUDY: Study = Study {
    number: "Swap",
    title: "swap-in clustering on a fast drive and on a slow one",
    section: "4",
    run,
};

/// A fast one and a slow one.
const DRIVES: [(&str, &str); 2] = [("the prototype", "dram-gen2"), ("a NAND drive", "nand-p3700")];

const CASES: [Case; 4] = [
    Case { cluster: 0, dirty: false, in_order: false },
    Case { cluster: 3, dirty: false, in_order: false },
    Case { cluster: 0, dirty: false, in_order: true },
    Case { cluster: 3, dirty: false, in_order: true },
];

fn order(case: Case) -> &'static str {
    if case.in_order { "in order" } else { "at random" }
}

fn name_of(drive: &str, case: Case, what: &str) -> String {
    format!("{drive}, page-cluster {}, {}: {what}", case.cluster, order(case))
}

const TOUCH: &str = "a touch";
const MISS: &str = "a page miss";

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("touch", "What touching a page takes at the mean", Scale::log("us")));
    let paged = measure(run, &DRIVES.map(|(_, model)| model), &CASES)?;
    for ((name, model), paged) in DRIVES.into_iter().zip(&paged) {
        drive(run, name, model == "dram-gen2", paged)?;
    }
    claims(run);
    run.note(ITS_WAY);
    run.note(
        "A touch is one of a process that uses four times the memory that it may have (twice in a small run). In order, pages that come \
         with a miss are touched next, so that misses are fewer; at random they are in the way.",
    );
    Ok(())
}

fn drive(run: &mut Run<'_>, name: &str, prototype: bool, paged: &Paged) -> Result<(), Failure> {
    for (nth, case) in CASES.into_iter().enumerate() {
        let touch = Finding::new(name_of(name, case, TOUCH), "us").machine(&paged.of(nth, |m| m.touch_us));
        let place = format!("{}, page-cluster {}", order(case), case.cluster);
        run.finding(touch.point("touch", name, &*place));
        let mut miss = Finding::new(name_of(name, case, MISS), "us").machine(&paged.of(nth, |m| m.mean_us));
        if prototype && !case.in_order {
            let bytes = 4096 << case.cluster;
            let outcome = alone(&Costs::fast12(), Policy::Polled, bytes, Prototype::GEN2.medium())?;
            let us = outcome.threads[0].call.mean_ns() / 1e3;
            miss = miss.model(us).from(Arithmetic, &[SYNC[0], SYNC[1], MEDIA[0]]);
        }
        run.finding(miss);
        let misses = paged.of(nth, |m| m.count / m.touches.max(1.0));
        run.finding(Finding::new(name_of(name, case, "misses for each touch"), "").machine(&misses));
        let read = paged.of(nth, |m| m.pages_read / m.waits.max(1.0));
        run.finding(Finding::new(name_of(name, case, "pages read for each miss"), "").machine(&read));
    }
    Ok(())
}

/// What clustering gains: a touch without it over a touch with it.
fn gain(drive: usize, in_order: bool) -> Quantity {
    let of = |cluster: u32| {
        let case = Case { cluster, dirty: false, in_order };
        Quantity::named(name_of(DRIVES[drive].0, case, TOUCH))
    };
    of(0).over(of(3))
}

fn claims(run: &mut Run<'_>) {
    let miss = |case: usize| Quantity::named(name_of(DRIVES[0].0, CASES[case], MISS));
    run.claim(
        Claim::new("the performance of the disk-swapper increases when swap-in clustering is disabled", "4")
            .model(miss(1).over(miss(0)), Bound::Above(1.0))
            .machine(gain(0, false), Bound::Below(1.0))
            .in_models_time(),
    );
    run.claim(
        Claim::new(
            "I/O prefetching becomes far less effective: what it gains in order, fast beside slow",
            "4",
        )
        .machine(gain(0, true).over(gain(1, true)), Bound::Below(0.5))
        .in_models_time(),
    );
    run.claim(
        Claim::new("prefetching schemes are for traditional slow storage: there they gain, in order", "4")
            .machine(gain(1, true), Bound::Above(1.0))
            .in_models_time(),
    );
}
