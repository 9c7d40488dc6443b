//! Section III-D: what the metadata monitor costs a write:
//! in the common case, and where the write changes what the crawler has cached.
//!
//! Measured on this machine, by calls of the monitor as the drive makes them, beside a crawl of the same
//! run. The paper's core is another: what is compared is the monitor's part of a crawl of depth 20, which by
//! the paper's own numbers is less than 1 or 60 of 419 us.

use std::hint::black_box;

use nearside_clock::{Clock, TscClock};
use nearside_firmware::TracePart;
use nearside_fsrlib::{Ask, Operation, Route};
use nearside_instrument::completion::{pin, unpin};
use nearside_instrument::dataset::Chain;
use nearside_instrument::volume::Kind;

use super::rig::{Bed, Buffer, Machine, dataset};
use super::stated::{MONITOR, TABLES, TOTAL};
use crate::{Bound, Claim, Failure, Finding, Run, Stated, Study};

/// DAC'23, Section III-D: what the metadata monitor costs a write.
pub const STUDY: Study =
    Study { number: "Section III-D", title: "The metadata monitor's cost per write", section: "III-D", run };

const DEPTH: usize = 20;
const BYTES: usize = 4096;
/// Table I, depth 20.
const CRAWL: Stated = TABLES[0][2][TOTAL];

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let data = dataset(run, Kind::F2fs, Chain { depth: DEPTH, files: vec![(DEPTH, BYTES)] })?;
    let path = Chain::path(DEPTH, BYTES);
    pin(0);
    let mut machine = Machine::new(&data)?;
    machine.session().set_route(Route::Drive);
    let clock = TscClock::new();
    let (mut common, mut hit, mut floor, mut crawls, mut again) = (vec![], vec![], vec![], vec![], vec![]);
    let writes: u64 = run.sized(20_000, 500_000);
    for _ in 0..run.sized(5, 15) {
        let crawl = machine.once(&path, &Operation::Nop, Buffer::Hit)?;
        crawls.push(crawl.parts.ns(&TracePart::ALL) as f64 / 1e3);
        let observer = machine.monitor();
        // Unrelated data behind the volume: nobody watches them.
        let at = |i: u64| data.volume_bytes + i % 4096 * 4096;
        let time = |body: &dyn Fn(u64)| {
            let start = clock.now();
            (0..writes).for_each(body);
            clock.now().since(start) as f64 / writes as f64
        };
        common.push(time(&|i| {
            observer.begin(at(i), 4096);
            observer.end(at(i), 4096, false);
        }));
        floor.push(time(&|i| {
            black_box(at(i));
        }));
        // The first block of the volume holds the superblock, which is watched as long as the volume is open.
        hit.push(time(&|_| {
            observer.begin(0, 4096);
            observer.end(0, 4096, false);
        }));
        // What the next command on the path pays for it: it looks at everything again.
        let ask = Ask::path(path.as_str(), Operation::Nop);
        again.push(nearside_instrument::near_data::search(machine.session(), &ask)?.2 as f64 / 1e3);
    }
    unpin();
    let floor = Finding::new("the loop without it", "ns").machine(&floor);
    let common = Finding::new("monitor, a block that nobody watches", "ns").machine(&common).beside(&floor);
    let hit = Finding::new("monitor, a block that is cached", "ns").machine(&hit).beside(&floor);
    let crawl = Finding::new("the crawler, depth 20, buffer hit", "us").machine(&crawls).paper(&CRAWL);
    run.finding(floor);
    let claim =
        "The monitor takes less than 1 us in the common case and less than 60 us where the cache is updated";
    let mut claim = Claim::new(claim, "III-D");
    for (found, which, stated) in
        [(common, "a block that nobody watches", MONITOR[0]), (hit, "a block that is cached", MONITOR[1])]
    {
        let part = found.figure.value / 1e3 / crawl.figure.value;
        let part = Finding::new(format!("{which}, in crawls of depth 20"), "").machine(&[part]);
        let own = stated.value / CRAWL.value;
        let part = run.finding(part.reckoned(own, &[stated, CRAWL]));
        run.finding(found);
        claim = claim.machine(&part, Bound::Below(own));
    }
    run.finding(Finding::new("the next command after such a write", "us").machine(&again));
    run.finding(crawl);
    run.claim(
        claim.because("The paper's bounds are 1 and 60 of the 419 us that its crawl of depth 20 takes"),
    );
    run.note(
        "The paper's monitor copies the new block into its cache; this one raises the block's version, and the crawler reads the block again \
         when it next needs it. So a write costs it less and the next command more.",
    );
    Ok(())
}
