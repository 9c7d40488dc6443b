//! Section 4's other advice on prefetching, of the page cache: what reading a file costs with the kernel's
//! read-ahead and without, by read(2) and by a mapping, on the paper's prototype and on a slow drive; at
//! random, where what comes beside a page is of no use, and in order, where all of it is.

use nearside_apps::page_cache::{Cached, Came, Reads};
use nearside_apps::{Drive, Kind, Volume};

use crate::applications::{self, ITS_WAY};
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// Section 4: the page cache's read-ahead.
pub const STUDY: Study = Study {
    number: "Read-ahead",
    title: "the page cache's read-ahead on a fast drive and on a slow one",
    section: "4",
    run,
};

/// A fast one and a slow one.
const DRIVES: [(&str, &str); 2] = [("the prototype", "dram-gen2"), ("a NAND drive", "nand-p3700")];
/// KiB: off, and as Linux has it where nobody says otherwise.
const AHEAD: [u32; 2] = [0, 128];

/// A way through the page cache: mapped, and in order.
type Way = (bool, bool);
const WAYS: [Way; 4] = [(false, false), (true, false), (false, true), (true, true)];

fn name_of(drive: &str, (mapped, in_order): Way, ahead: u32, what: &str) -> String {
    let by = if mapped { "mapped" } else { "read" };
    let order = if in_order { "in order" } else { "at random" };
    format!("{drive}, {by} {order}, read-ahead {ahead} KiB: {what}")
}

const PAGE_READ: &str = "a page";

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("page", "What reading a page takes at the mean", Scale::log("us")));
    for (drive, came) in DRIVES.into_iter().zip(measure(run)?) {
        for (way, ahead, rounds) in &came {
            let of = |value: fn(&Came) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
            let named = |what: &str| name_of(drive.0, *way, *ahead, what);
            let read = Finding::new(named(PAGE_READ), "us").machine(&of(|came| came.mean_us));
            let place = named("").trim_start_matches(drive.0).trim_matches([',', ' ', ':']).to_owned();
            run.finding(read.point("page", drive.0, &*place));
            run.finding(Finding::new(named("99th percentile"), "us").machine(&of(|came| came.p99_us)));
            let given = of(|came| came.pages_given);
            run.finding(Finding::new(named("pages from the drive for each"), "").machine(&given));
        }
    }
    claims(run);
    run.note(ITS_WAY);
    run.note(
        "A file on ext4, read a page at a time from a page cache that has forgotten it. read(2) at random asks for nothing more than its page, \
         with read-ahead or without; a mapping's miss reads around it. The paper switched it off in its own driver's page cache and has no numbers.",
    );
    Ok(())
}

/// What the rounds of one way with one setting came to.
type Rounds = (Way, u32, Vec<Came>);

/// All ways on both drives; of a machine that cannot: nothing measured.
fn measure(run: &mut Run<'_>) -> Result<Vec<Vec<Rounds>>, Failure> {
    let cases = || WAYS.iter().flat_map(|way| AHEAD.map(|ahead| (*way, ahead, Vec::new()))).collect();
    let mut found: Vec<Vec<Rounds>> = DRIVES.iter().map(|_| cases()).collect();
    let Some(program) = applications::program(run, &["mkfs.ext4"]) else { return Ok(found) };
    let (pages, count) = run.sized((4_096, 1_000), (65_536, 10_000));
    for ((_, model), of_drive) in DRIVES.into_iter().zip(&mut found) {
        let drive = Drive::attach(program, &format!("model:{model}:1GiB"), &["--lock-memory"])?;
        let volume = Volume::make(&drive, Kind::Ext4)?;
        let cached = Cached::write(&drive, &volume, pages)?;
        for round in 0..run.sized(2, 5) {
            run.say(&format!("reading by the page cache from {model}, round {}", round + 1));
            for ((mapped, in_order), ahead_kib, rounds) in of_drive.iter_mut() {
                let (mapped, in_order, ahead_kib) = (*mapped, *in_order, *ahead_kib);
                rounds.push(cached.read(Reads { count, mapped, in_order, ahead_kib, seed: round + 1 })?);
            }
        }
    }
    Ok(found)
}

/// What read-ahead gains: a page without it over a page with it.
fn gain(drive: usize, way: Way) -> Quantity {
    let [off, on] = AHEAD.map(|ahead| Quantity::named(name_of(DRIVES[drive].0, way, ahead, PAGE_READ)));
    off.over(on)
}

fn claims(run: &mut Run<'_>) {
    run.claim(
        Claim::new(
            "the performance of the page cache increases when its read-ahead is disabled: at random",
            "4",
        )
        .machine(gain(0, (true, false)), Bound::Below(1.0))
        .in_models_time(),
    );
    for (mapped, by) in [(false, "read"), (true, "mapped")] {
        let way = (mapped, true);
        run.claim(
            Claim::new(
                &format!("I/O prefetching becomes far less effective: what it gains in order, {by}, fast beside slow"),
                "4",
            )
            .machine(gain(0, way).over(gain(1, way)), Bound::Below(0.5))
            .in_models_time(),
        );
    }
    run.claim(
        Claim::new("prefetching schemes are for traditional slow storage: there they gain, in order", "4")
            .machine(gain(1, (false, true)), Bound::Above(1.0))
            .in_models_time(),
    );
}
