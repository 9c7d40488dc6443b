//! Fig. 6: string search: FSR against the existing near-data path, by depth of the path and size of the file,
//! buffer hit and missed.
//!
//! Sizes double from 4 KiB until FSR's saving has fallen below 10 %. On a hit the file's metadata are in the
//! drive's buffer; of a file larger than the buffer only the end can be.

use nearside_instrument::dataset::Chain;
use nearside_instrument::volume::Kind;

use super::rig::{ABOUT, Bed, Buffer, Machine, Model, dataset, saved};
use crate::{Chart, Claim, Failure, Finding, Run, Scale, Study};

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
    let depths: &[usize] = run.sized(&[20], &[5, 10, 20]);
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
    // Saving by depth and size, on hits and misses.
    let mut savings: [Vec<Vec<f64>>; 2] = Default::default();
    for (i, buffer) in Buffer::BOTH.into_iter().enumerate() {
        for &depth in depths {
            let mut row = Vec::new();
            for &bytes in &sizes {
                let path = Chain::path(depth, bytes);
                let [fsr, host] = model.search(&path, buffer)?.map(|took| took.total as f64 / 1e3);
                let saving = saved(fsr, host);
                let line = format!("depth {depth}");
                let name = format!("saved, depth {depth}, {} KiB, {}", bytes >> 10, buffer.name());
                let mut finding = Finding::new(name, "%").model(saving);
                if buffer == Buffer::Hit {
                    let mut runs = Vec::new();
                    for _ in 0..run.sized(3, if bytes > 1 << 20 { 10 } else { 40 }) {
                        let [fsr, host] = machine.search(&path, buffer)?.map(|took| took.total as f64);
                        runs.push(saved(fsr, host));
                    }
                    finding = finding.machine(&runs);
                    if depth == 20 && bytes == 16 << 10 {
                        finding = finding.paper(51.96, "I, IV-D");
                    }
                }
                run.finding(finding.point(buffer.name(), &line, bytes as f64));
                row.push(saving);
                if saving < ENOUGH {
                    break;
                }
            }
            let crossover = sizes.get(row.iter().position(|s| *s < ENOUGH).unwrap_or(sizes.len())).copied();
            if let Some(bytes) = crossover {
                let name = format!("the saving falls below 10 %, depth {depth}, {}", buffer.name());
                let mut finding = Finding::new(name, "KiB").model((bytes >> 10) as f64);
                if depth == 20 && buffer == Buffer::Hit {
                    finding = finding.paper(4096.0, "IV-D: more than 4 MB");
                }
                run.finding(finding);
            }
            savings[i].push(row);
        }
    }
    claims(run, &savings);
    run.note(ABOUT);
    run.note("On this machine the host is as fast as the drive, both are one thread, and locating costs microseconds: the shape is the paper's, the sizes are not.");
    Ok(())
}

fn claims(run: &mut Run<'_>, [hit, miss]: &[Vec<Vec<f64>>; 2]) {
    let all = || hit.iter().chain(miss).flatten();
    let [least, most] = [f64::min, f64::max].map(|pick| all().copied().fold(50.0, pick));
    run.claim(
        Claim::new("FSR-based search is faster on all workloads", "IV-D")
            .model(all().all(|saving| *saving > 0.0))
            .because(format!("it saves {least:.1} to {most:.1} %")),
    );
    let falls = hit.iter().chain(miss).all(|row| row.windows(2).all(|pair| pair[1] <= pair[0] + 1.0));
    run.claim(
        Claim::new("The saving falls as the file grows, to below 10 % for large files", "IV-D")
            .model(falls && hit.iter().chain(miss).all(|row| row.last().is_some_and(|last| *last < ENOUGH)))
            .because("sizes double until it has".to_owned()),
    );
    let better = hit.iter().zip(miss).all(|(hit, miss)| hit[0] > miss[0]);
    run.claim(
        Claim::new("FSR saves more where the buffer is hit", "IV-D")
            .model(better)
            .because("at the smallest size of each depth".to_owned()),
    );
    let depths = hit.windows(2).all(|pair| pair[1][0] > pair[0][0]);
    if hit.len() > 1 {
        run.claim(Claim::new("On hits the saving grows with the depth", "IV-D").model(depths));
    }
}
