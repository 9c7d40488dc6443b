//! Fig. 2: where the time of an existing near-data search goes. The host locates the file and sends the block list; the drive computes.
//!
//! The paper does not say how deep the path was nor how large the file. Depth 5 and 16 KiB are taken here.

use nearside_bench::dataset::Chains;
use nearside_bench::volume::Kind;

use super::rig::{ABOUT, Bed, Buffer, Machine, Model, dataset, mean_us, saved, us};
use crate::{Chart, Claim, Failure, Finding, Run, Study};

/// See the module.
pub const STUDY: Study =
    Study { number: "Fig. 2", title: "Where an existing near-data search's time goes", section: "II-B", run };

const DEPTH: usize = 5;
const BYTES: usize = 16 << 10;

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    let chains = run.sized(1, 4);
    // The tree is as deep as the paper's: how far apart a path's blocks lie depends on what else there is.
    let depth = run.sized(20, 40);
    let data = dataset(run, Kind::F2fs, Chains { chains, depth, files: vec![(DEPTH, BYTES)] })?;
    let paths: Vec<String> = (0..chains).map(|chain| Chains::path(chain, DEPTH, BYTES)).collect();
    run.chart(Chart::stacked("parts", "An existing near-data search: F2FS, depth 5, 16 KiB", "us"));
    let mut machine = Machine::new(&data)?;
    let mut model = Model::new(&data)?;
    let mut share = [0.0; 2];
    for (i, buffer) in Buffer::BOTH.into_iter().enumerate() {
        let all: Vec<_> = paths.iter().map(|path| model.search(path, buffer)).collect::<Result<_, _>>()?;
        let locating = mean_us(&all, |[_, host]| host.locating);
        let computing = mean_us(&all, |[_, host]| host.total - host.locating);
        let mut parts = [
            Finding::new(format!("locating, {}", buffer.name()), "us")
                .model(locating)
                .paper([739.0, 3900.0][i], "II-B"),
            Finding::new(format!("computing, {}", buffer.name()), "us").model(computing).paper(700.0, "II-B"),
        ];
        if buffer == Buffer::Hit {
            let mut runs = Vec::new();
            for _ in 0..run.sized(5, 40) {
                for path in &paths {
                    runs.push(machine.search(path, buffer)?);
                }
            }
            let [locating, computing] = parts;
            parts = [
                locating.machine(&us(&runs, |[_, host]| host.locating)),
                computing.machine(&us(&runs, |[_, host]| host.total - host.locating)),
            ];
        }
        for (part, line) in parts.into_iter().zip(["locating", "computing"]) {
            run.finding(part.point("parts", line, buffer.name()));
        }
        share[i] = 100.0 * locating / (locating + computing);
        let fsr = mean_us(&all, |[fsr, _]| fsr.total);
        let saving = Finding::new(format!("FSR saves of the whole search, {}", buffer.name()), "%");
        run.finding(saving.model(saved(fsr, locating + computing)));
        if buffer == Buffer::Hit {
            run.claim(
                Claim::new("Locating in the drive may improve the search by more than 48 %", "II-B")
                    .model(saved(fsr, locating + computing) > 48.0)
                    .because(format!("model: {:.0} %", saved(fsr, locating + computing))),
            );
        }
    }
    run.claim(
        Claim::new("Locating takes up to 84.6 % of an existing near-data operation", "I")
            .model((share[1] - 84.6).abs() < 5.0)
            .because(format!("model: {:.1} % on a hit, {:.1} % on a miss", share[0], share[1])),
    );
    run.note(ABOUT);
    run.note("The paper does not say how deep its path was nor how large its file. At depth 5 the model's host takes about what the paper's took.");
    Ok(())
}
