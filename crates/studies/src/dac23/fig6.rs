//! Fig. 6: string search: FSR against the existing near-data path, by depth of the path and size of the file,
//! buffer hit and missed.
//!
//! Sizes double from 4 KiB until FSR's saving has fallen below 10 %. On a hit the file's metadata are in the
//! drive's buffer; of a file larger than the buffer only the end can be.

use nearside_instrument::dataset::Chain;
use nearside_instrument::volume::Kind;

use super::parameters::ALL;
use super::rig::{ABOUT, Bed, Buffer, Machine, Model, dataset, saved};
use super::stated::{LARGE, SEARCH};
use crate::Relation::Simulated;
use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// DAC'23, Fig. 6: string search.
pub const STUDY: Study = Study {
    number: "Fig. 6",
    title: "String search, FSR against the existing near-data path",
    section: "IV-D",
    run,
};

/// Below this saving the sweep ends, in percent.
const ENOUGH: f64 = 10.0;

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let depths: &[usize] = run.sized(&[5, 20], &[5, 10, 20]);
    // Beyond the size at which the model's saving falls below a tenth.
    let sizes: Vec<usize> =
        (12..=23).step_by(run.sized(2, 1)).map(|bits| 1 << bits).chain([1 << 23]).collect();
    let mut sizes = sizes;
    sizes.dedup();
    let files = depths.iter().flat_map(|depth| sizes.iter().map(|bytes| (*depth, *bytes))).collect();
    let data = dataset(run, Kind::F2fs, Chain { depth: depths[depths.len() - 1], files })?;
    for buffer in Buffer::BOTH {
        let caption = format!("What FSR saves of a string search, {}: model and this machine", buffer.name());
        let (x, y) = (Scale::log("bytes of the file"), Scale::linear("saved, %"));
        run.chart(Chart::lines(buffer.name(), &caption, x, y));
    }
    let mut model = Model::new(&data)?;
    let mut machine = Machine::new(&data)?;
    // Savings by depth and size, on hits and misses.
    let mut savings: [Vec<Vec<Finding>>; 2] = Default::default();
    for (i, buffer) in Buffer::BOTH.into_iter().enumerate() {
        for &depth in depths {
            let mut row = Vec::new();
            for &bytes in &sizes {
                // The paper's bound is of the last.
                let enough = row.last().and_then(|f: &Finding| f.model).is_some_and(|saving| saving < ENOUGH);
                if enough && Some(&bytes) != sizes.last() {
                    continue;
                }
                let path = Chain::path(depth, bytes);
                let [fsr, host] = model.search(&path, buffer)?.map(|took| took.total as f64 / 1e3);
                let saving = saved(fsr, host);
                let line = format!("depth {depth}");
                let name = format!("saved, depth {depth}, {} KiB, {}", bytes >> 10, buffer.name());
                let mut finding = Finding::new(name, "%").model(saving).from(Simulated, &ALL);
                if buffer == Buffer::Hit {
                    let mut runs = Vec::new();
                    for _ in 0..run.sized(3, if bytes > 1 << 20 { 10 } else { 40 }) {
                        let [fsr, host] = machine.search(&path, buffer)?.map(|took| took.total as f64);
                        runs.push(saved(fsr, host));
                    }
                    finding = finding.machine(&runs);
                    if depth == 20 && bytes == 16 << 10 {
                        finding = finding.paper(&SEARCH[0][1]);
                    }
                }
                if Some(&bytes) == sizes.last() {
                    finding = finding.paper(&LARGE);
                }
                row.push(run.finding(finding.point(buffer.name(), &line, bytes as f64)));
            }
            savings[i].push(row);
        }
    }
    claims(run, &savings);
    run.note(ABOUT);
    run.note("On this machine the host is as fast as the drive, both are one thread, and locating costs microseconds: the shape is the paper's, the sizes are not.");
    Ok(())
}

fn claims(run: &mut Run<'_>, [hit, miss]: &[Vec<Vec<Finding>>; 2]) {
    let all = || hit.iter().chain(miss);
    let claim = Claim::new("FSR-based search is faster on all workloads", "IV-D");
    run.claim(all().flatten().fold(claim, |claim, saving| claim.model(saving, Bound::Above(0.0))));
    // A percentage point of the draw's.
    let claim = Claim::new("The saving falls as the file grows", "IV-D");
    run.claim(
        all().flat_map(|row| row.windows(2)).fold(claim, |claim, pair| {
            claim.model(Quantity::from(&pair[1]).less(&pair[0]), Bound::AtMost(1.0))
        }),
    );
    let claim = Claim::new("Of a file of more than 4 MB it is less than 10 %", "IV-D");
    run.claim(
        all()
            .filter_map(|row| row.last())
            .fold(claim, |claim, last| claim.model(last, Bound::stated(&LARGE))),
    );
    let claim = Claim::new("FSR saves more where the buffer is hit", "IV-D");
    run.claim(hit.iter().zip(miss).fold(claim, |claim, (hit, miss)| {
        claim.model(Quantity::from(&hit[0]).over(&miss[0]), Bound::Above(1.0))
    }));
    let claim = Claim::new("On hits the saving grows with the depth", "IV-D");
    run.claim(hit.windows(2).fold(claim, |claim, pair| {
        claim.model(Quantity::from(&pair[1][0]).over(&pair[0][0]), Bound::Above(1.0))
    }));
    ranges(run, hit, miss);
}

/// What the text says of the least and the most: on hits at depth 20, on misses at any depth. The least is of
/// its largest file, whose size it does not say; here it is the sweep's.
fn ranges(run: &mut Run<'_>, hit: &[Vec<Finding>], miss: &[Vec<Finding>]) {
    let values = |rows: &[Vec<Finding>]| rows.iter().flatten().filter_map(|f| f.model).collect::<Vec<_>>();
    let of = [("buffer hit, depth 20", values(&hit[hit.len() - 1..])), ("buffer miss", values(miss))];
    for (i, ((which, values), [least, most])) in of.into_iter().zip(SEARCH).enumerate() {
        let ends = [f64::min, f64::max].map(|pick| values.iter().copied().reduce(pick).unwrap_or(f64::NAN));
        let text = format!("FSR saves {} to {} % of the search, {which}", least.value, most.value);
        let finding = Finding::new(format!("saved, {which}: the least"), "%").model(ends[0]).paper(&least);
        let finding = run.finding(finding.from(Simulated, &ALL));
        let claim = Claim::new(&text, "IV-D").model(&finding, Bound::stated(&least));
        let finding = Finding::new(format!("saved, {which}: the most"), "%").model(ends[1]);
        // On hits the most is that of 16 KiB, which has its own row.
        let finding = if i == 0 { finding } else { finding.paper(&most) };
        let finding = run.finding(finding.from(Simulated, &ALL));
        let most_of = if i == 0 {
            Quantity::named("saved, depth 20, 16 KiB, buffer hit")
        } else {
            Quantity::from(&finding)
        };
        run.claim(claim.model(most_of, Bound::stated(&most)));
    }
}
