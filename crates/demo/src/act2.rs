//! Act 2, DAC'23: a string search by path on an F2FS and an ext4 volume, done by FSR, by the existing
//! near-data path and wholly on the host.

use std::time::Instant;

use nearside_driver::Policy;
use nearside_embedded::Options;
use nearside_fsrlib::{Ask, Route};
use nearside_instrument::dataset::{self, NEEDLE, Shape};
use nearside_instrument::near_data::{self, RouteCost, by_route, count_of};
use nearside_instrument::report::{Bar, Page, Part};
use nearside_instrument::volume::{self, Kind};
use nearside_instrument::words::show_time;

use crate::stage::{Failure, Headline, Stage, bytes, present, table};

/// A volume of the demo and what it holds.
pub struct Volume {
    /// Which file system.
    pub kind: Kind,
    /// Its image.
    pub image: std::path::PathBuf,
}

/// What the volumes hold.
pub struct Contents {
    /// Paths of the deep files.
    pub files: Vec<String>,
    /// Lines with the needle below `/deep`.
    pub needles: u64,
    /// Bytes of the real tree; 0: none.
    pub real_bytes: u64,
}

/// The seed of the dataset.
pub const SEED: u64 = 2023;
/// What the volumes hold that ship with the program (made by `examples/ship.rs`).
pub const SHIPPED: Shape = Shape { files: 150, ..Shape::PAPER };

/// Makes the volumes with the file systems' own tools; where there are none, takes the small ones that ship.
///
/// # Errors
/// The file system's, or the tools'.
pub fn volumes(stage: &Stage) -> Result<(Vec<Volume>, Contents), Failure> {
    std::fs::create_dir_all(stage.out.join("volumes"))?;
    if [Kind::F2fs, Kind::Ext4].iter().all(|k| k.tools_are_here()) { made(stage) } else { shipped(stage) }
}

/// The small volumes that ship compressed with the program.
///
/// # Errors
/// The file system's.
pub fn shipped(stage: &Stage) -> Result<(Vec<Volume>, Contents), Failure> {
    println!(
        "\n  act 2 on the small volumes that ship: this machine lacks mke2fs or mkfs.f2fs with sload.f2fs"
    );
    let packed: [(Kind, &[u8]); 2] = [
        (Kind::F2fs, include_bytes!("../../../fixtures/demo/f2fs.img.zst")),
        (Kind::Ext4, include_bytes!("../../../fixtures/demo/ext4.img.zst")),
    ];
    let mut volumes = Vec::new();
    for (kind, bytes) in packed {
        let image = stage.file(&format!("{}-shipped.img", kind.name().to_lowercase()));
        std::fs::write(&image, crate::replay::unpack(bytes)?)?;
        volumes.push(Volume { kind, image });
    }
    // The same seed writes the same files: here for their names and what is in them.
    let tree = tempfile::tempdir_in(&stage.out)?;
    let deep = dataset::write_deep(tree.path(), SHIPPED, SEED, |_| {})?;
    Ok((volumes, Contents { files: deep.files, needles: deep.needles, real_bytes: 0 }))
}

fn made(stage: &Stage) -> Result<(Vec<Volume>, Contents), Failure> {
    let shape = if stage.small { Shape { files: 300, ..Shape::PAPER } } else { Shape::PAPER };
    let real_limit = if stage.small { 1 << 20 } else { 48 << 20 };
    let tree = tempfile::tempdir_in(&stage.out)?;
    let progress = stage.progress("act 2: writing the trees", shape.files as u64);
    let deep = dataset::write_deep(tree.path(), shape, SEED, |n| progress.set_position(n))?;
    let real = dataset::write_real(tree.path(), real_limit)?;
    progress.finish_and_clear();
    let kinds = [Kind::F2fs, Kind::Ext4];
    let size = (deep.bytes + real.bytes) * 5 / 4 + (192 << 20);
    let progress = stage.progress("act 2: making the volumes", kinds.len() as u64);
    let made: Vec<Result<Volume, String>> = std::thread::scope(|scope| {
        let makers: Vec<_> = kinds
            .iter()
            .map(|&kind| {
                let (progress, tree) = (progress.clone(), tree.path());
                scope.spawn(move || {
                    let image = stage.file(&format!("{}.img", kind.name().to_lowercase()));
                    volume::make(kind, &image, tree, size)
                        .map_err(|e| format!("making the {} volume: {e}", kind.name()))?;
                    progress.inc(1);
                    Ok(Volume { kind, image })
                })
            })
            .collect();
        makers.into_iter().map(|m| m.join().unwrap_or_else(|_| Err("a maker panicked".into()))).collect()
    });
    progress.finish_and_clear();
    let volumes = made.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok((volumes, Contents { files: deep.files, needles: deep.needles, real_bytes: real.bytes }))
}

/// Plays it on one volume; the number that it comes to.
///
/// # Errors
/// The drive's, or a command's.
pub fn play(
    stage: &Stage,
    page: &mut Page,
    volume: &Volume,
    contents: &Contents,
) -> Result<Headline, Failure> {
    let name = volume.kind.name();
    if !present(&volume.image) {
        return Err(format!("{} is empty", volume.image.display()).into());
    }
    page.heading(&format!("Act 2: searching by path inside the drive, {name}"));
    let word = format!("dram:{}", volume.image.display());
    let options = Options { threaded: true, policy: Policy::Polled, ..Options::default() };
    let mut session = near_data::session(&word, &options)?;

    // Some files of every set: as many directories as there are, no locality between neighbours.
    let sample: Vec<String> =
        contents.files.iter().step_by(if contents.files.len() > 5000 { 50 } else { 5 }).cloned().collect();
    let routes = [
        ("FSR: one command", Route::Drive, false),
        ("existing NDP, host uncached", Route::Blocks, false),
        ("existing NDP, host cached", Route::Blocks, true),
        ("wholly on the host, uncached", Route::Host, false),
    ];
    let progress = stage.progress(&format!("act 2: {name}, searching"), routes.len() as u64 + 2);
    let mut costs: Vec<(&str, RouteCost)> = Vec::new();
    for (label, route, cached) in routes {
        // Once for the caches of whoever has one, then measured.
        let (_, warm) = by_route(session, route, cached, &sample, NEEDLE)?;
        let (cost, next) = by_route(warm, route, cached, &sample, NEEDLE)?;
        costs.push((label, cost));
        session = next;
        progress.inc(1);
    }
    let fsr = costs[0].1;
    for (label, cost) in &costs {
        if cost.found != fsr.found {
            return Err(format!("{label} found {} lines, FSR {}", cost.found, fsr.found).into());
        }
    }
    show_routes(page, name, sample.len(), &costs);

    let mut rows = Vec::new();
    session = session.with_route(Route::Drive);
    for root in ["/deep", "/real"] {
        if root == "/real" && contents.real_bytes == 0 {
            continue;
        }
        let ask = Ask::tree(root, count_of(if root == "/deep" { NEEDLE } else { "license" }));
        near_data::search(&mut session, &ask)?;
        let start = Instant::now();
        let (found, summary, _) = near_data::search(&mut session, &ask)?;
        let took = start.elapsed().as_secs_f64();
        if root == "/deep" && found != contents.needles {
            return Err(
                format!("{name}: {found} lines hold the needle; {} were written", contents.needles).into()
            );
        }
        let c = summary.counters;
        rows.push(vec![
            root.into(),
            c.files.to_string(),
            bytes(c.bytes_scanned as f64),
            format!("{:.1}", took * 1e3),
            format!("{:.2}", took * 1e6 / c.files.max(1) as f64),
            summary.moved.commands().to_string(),
            bytes((summary.moved.bytes_in + summary.moved.bytes_out) as f64),
            found.to_string(),
        ]);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let head = ["tree", "files", "scanned", "ms", "µs per file", "commands", "moved", "lines found"];
    let caption = format!("{name}: whole trees, one command each");
    table(&caption, &head, &rows);
    page.table(&caption, &head, &rows);
    let host = costs.last().map_or(f64::NAN, |(_, cost)| cost.total_ns);
    Ok(ratio(name, fsr.total_ns, host))
}

/// What the host's part costs a search.
fn ratio(name: &str, drive_ns: f64, host_ns: f64) -> Headline {
    let number = format!("{:.1} ×", host_ns / drive_ns);
    let (drive, host) = (show_time(drive_ns), show_time(host_ns));
    let sentence = format!(
        "A word in one file of 16 KiB below 20 directories ({name}): the drive that finds the file itself takes {drive}, an uncached host that reads every block {host}."
    );
    (number, sentence)
}

/// What a search in one file costs by each route, per file over so many; the first is FSR's.
fn show_routes(page: &mut Page, name: &str, files: usize, costs: &[(&str, RouteCost)]) {
    let fsr = costs[0].1;
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let rows: Vec<Vec<String>> = costs
        .iter()
        .map(|(label, c)| {
            vec![
                (*label).into(),
                us(c.locate_ns),
                us(c.total_ns - c.locate_ns),
                us(c.total_ns),
                format!("{:.1}", c.commands),
                bytes(c.bytes),
                format!("{:.1} %", 100.0 * (1.0 - fsr.total_ns / c.total_ns)),
            ]
        })
        .collect();
    let head =
        ["who locates and computes", "locating µs", "the rest", "whole", "commands", "moved", "FSR saves"];
    let caption =
        format!("{name}: a word in one file of 16 KiB below 20 directories, per file over {} files", files);
    table(&caption, &head, &rows);
    page.table(&caption, &head, &rows);
    let bars: Vec<Bar> = costs
        .iter()
        .map(|(label, c)| Bar::new(*label, vec![c.locate_ns / 1e3, (c.total_ns - c.locate_ns) / 1e3]))
        .collect();
    page.stacked(
        &format!("{name}: search in one file at depth 20"),
        "time per file, µs",
        &["locating", "the rest"].map(Part::from),
        &bars,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volumes_that_ship_answer_as_they_should() {
        let out = tempfile::tempdir().unwrap();
        std::fs::create_dir(out.path().join("volumes")).unwrap();
        let stage = Stage { out: out.path().to_owned(), small: true };
        let (volumes, contents) = shipped(&stage).unwrap();
        assert_eq!(volumes.len(), 2);
        assert!(contents.needles > 0);
        let mut page = Page::new("t", "t");
        for volume in &volumes {
            // It compares every route's answers, and those with what was written.
            play(&stage, &mut page, volume, &contents).unwrap();
        }
    }
}
