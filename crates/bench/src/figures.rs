//! The figures of near-data work and of the drive as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside_clock::{Clock, TscClock};
use nearside_device::Observer;
use nearside_dma::cpu::CpuClock;
use nearside_driver::Policy;
use nearside_embedded::{Embedded, Options, firmware};
use nearside_fsrlib::{Ask, Operation, Record, Route, Session};
use nearside_instrument::Failure;
use nearside_instrument::completion::{cores, pin, unpin};
use nearside_instrument::dataset::{self, NEEDLE, Shape};
use nearside_instrument::kernel::{LoopMount, ripgrep, start_of_a_process, warm_stat_ns};
use nearside_instrument::near_data::{Drive, by_route, count_of, search, session};
use nearside_instrument::volume::{self, Kind};
use nearside_loadgen::floor::{self, Effort};
use nearside_loadgen::record::Figure;
use nearside_random::Rng;
use nearside_store::Dram;

/// Takes a figure as it is measured.
pub type Sink<'a> = &'a mut dyn FnMut(Figure);

pub fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0) as f64
}

/// What the machine itself costs.
pub fn floors(fast: bool) -> Result<Vec<Figure>, Failure> {
    let effort = if fast { Effort::FAST } else { Effort::FULL };
    let all = cores();
    Ok(floor::all(effort, all.first().copied().unwrap_or(0), all.get(1).copied())?)
}

/// Locating and searching.
pub fn near_data(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let rounds = if fast { 3 } else { 7 };
    let folder = tempfile::tempdir_in("target")?;
    eprintln!("near-data: making a volume of 20,000 files of 16 KiB below 20 directories ...");
    let tree = folder.path().join("tree");
    let written = dataset::write_deep(&tree, Shape::PAPER, 2023, |_| {})?;
    for kind in [Kind::Ext4, Kind::F2fs].into_iter().filter(|k| k.tools_are_here()) {
        let image = folder.path().join(format!("{}.img", kind.name()));
        volume::make(kind, &image, &tree, written.bytes * 5 / 4 + (160 << 20))?;
        pin(0);
        on_small_files(kind, &image, &written, rounds, sink)?;
        unpin();
        std::fs::remove_file(&image)?;
    }
    std::fs::remove_dir_all(&tree)?;
    eprintln!("near-data: one file of 1 GiB ...");
    on_a_large_file(folder.path(), rounds, sink)
}

fn figure(name: String, unit: &str, runs: &[f64]) -> Figure {
    Figure::of(&name, unit, runs)
}

fn on_small_files(
    kind: Kind,
    image: &Path,
    written: &dataset::Written,
    rounds: usize,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let name = kind.name();
    eprintln!("near-data: {name} ...");
    // The kernel here has no F2FS: its peer on ext4 is measured beside ext4 only.
    let mount = match kind {
        Kind::Ext4 => LoopMount::new(image).map_err(|e| eprintln!("no loop mount to stand beside: {e}")).ok(),
        Kind::F2fs => None,
    };
    let mut session = session(&format!("dram:{}", image.display()), &Options::default())?;
    let sample: Vec<String> = written.files.iter().step_by(20).cloned().collect();
    for figure in locating(name, &mut session, &sample, mount.as_ref(), rounds)? {
        sink(figure);
    }
    sink(searching(name, &mut session, written, mount.as_ref(), rounds)?);
    drop(mount);
    let few: Vec<String> = written.files.iter().step_by(97).cloned().collect();
    by_routes(name, session, &few, rounds, sink)
}

/// Locating a sample of paths, in the drive alone and as its caller has it, and a stat of all of them
/// together, beside the kernel's stat of each.
fn locating(
    name: &str,
    session: &mut Session<Drive>,
    sample: &[String],
    mount: Option<&LoopMount>,
    rounds: usize,
) -> Result<[Figure; 3], Failure> {
    let (mut located, mut whole, mut together) = (Vec::new(), Vec::new(), Vec::new());
    let mut stat = Vec::new();
    let relative: Vec<PathBuf> = sample.iter().map(|p| PathBuf::from(p.trim_start_matches('/'))).collect();
    let home = std::env::current_dir()?;
    for round in 0..=rounds {
        let (inside_ns, whole_ns) = locate_ns(session, sample)?;
        let each_ns = stat_together_ns(session, sample)?;
        // The first round warms the crawler's cache, as the kernel's.
        if round > 0 {
            located.push(inside_ns);
            whole.push(whole_ns / 1e3);
            together.push(each_ns / 1e3);
        }
        if let Some(mount) = mount {
            std::env::set_current_dir(mount.path("/"))?;
            let ns = warm_stat_ns(&relative);
            std::env::set_current_dir(&home)?;
            stat.push(ns?);
        }
    }
    let located = figure(format!("{name}: locate at depth 20, warm"), "ns", &located);
    let whole = figure(format!("{name}: locate at depth 20, warm, whole command"), "us", &whole);
    let name = format!("{name}: stat of {} paths together, warm, each", sample.len());
    let together = figure(name, "us", &together);
    if mount.is_none() {
        return Ok([located, whole, together]);
    }
    let beside = |unit: &str, of_ns: f64| {
        let runs: Vec<f64> = stat.iter().map(|ns| ns / of_ns).collect();
        figure("kernel's warm stat of the same paths".into(), unit, &runs)
    };
    Ok([
        located.beside(&beside("ns", 1.0)),
        whole.beside(&beside("us", 1e3)),
        together.beside(&beside("us", 1e3)),
    ])
}

/// Searching all files, beside ripgrep on a mount.
fn searching(
    name: &str,
    session: &mut Session<Drive>,
    written: &dataset::Written,
    mount: Option<&LoopMount>,
    rounds: usize,
) -> Result<Figure, Failure> {
    let ask = Ask::tree("/deep", count_of(NEEDLE));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let startup = start_of_a_process()?;
    for _ in 0..=rounds {
        let (found, _, ns) = search(session, &ask)?;
        same(found, written.needles, name)?;
        ours.push(ns as f64 / 1e3 / written.files.len() as f64);
        if let Some(mount) = mount
            && let Some((took, lines)) = ripgrep(NEEDLE, &mount.path("/deep"))?
        {
            same(lines, written.needles, "ripgrep")?;
            theirs.push(took.saturating_sub(startup).as_nanos() as f64 / 1e3 / written.files.len() as f64);
        }
    }
    let searched = figure(format!("{name}: search in 20,000 files, per file"), "us", &ours[1..]);
    Ok(match theirs.get(1..) {
        Some(theirs) if !theirs.is_empty() => {
            searched.beside(&figure("ripgrep -j1 on a warm kernel mount".into(), "us", theirs))
        }
        _ => searched,
    })
}

/// A search in one file by the drive, and by the host with block lists.
fn by_routes(
    name: &str,
    mut session: Session<Drive>,
    few: &[String],
    rounds: usize,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let mut costs: Vec<[Vec<f64>; 2]> = vec![Default::default(); 3];
    let routes = [(Route::Drive, false), (Route::Blocks, false), (Route::Blocks, true)];
    for round in 0..=rounds {
        for (i, (route, cached)) in routes.into_iter().enumerate() {
            // A route begins with whatever cache it keeps filled by one pass.
            let (_, warm) = by_route(session, route, cached, few, NEEDLE)?;
            let (cost, next) = by_route(warm, route, cached, few, NEEDLE)?;
            session = next;
            if round > 0 {
                costs[i][0].push(cost.locate_ns / 1e3);
                costs[i][1].push(cost.total_ns / 1e3);
            }
        }
    }
    for (what, i) in [("locating", 0), ("whole search", 1)] {
        for (host, of) in [("uncached", 1), ("cached", 2)] {
            let fsr = figure(
                format!("{name}: {what} in one 16 KiB file at depth 20, FSR / {host} host"),
                "us",
                &costs[0][i],
            );
            sink(fsr.beside(&figure(format!("existing near-data path, {host} host"), "us", &costs[of][i])));
        }
    }
    Ok(())
}

/// Nanoseconds per located path: in the drive, and from asking to having the answer.
pub(crate) fn locate_ns(session: &mut Session<Drive>, paths: &[String]) -> Result<(f64, f64), Failure> {
    let (mut ns, clock) = (0, session.clock().clone());
    let begun = clock.now();
    for path in paths {
        let ask = Ask::path(path.as_str(), Operation::Nop);
        let summary = session.stream(&ask, |_| std::ops::ControlFlow::Continue(()))?;
        ns += summary.counters.locate_ns;
    }
    let whole_ns = clock.now().since(begun) as f64;
    Ok((ns as f64 / paths.len() as f64, whole_ns / paths.len() as f64))
}

/// Nanoseconds per path of a stat of all, whose commands are under way together.
fn stat_together_ns(session: &mut Session<Drive>, paths: &[String]) -> Result<f64, Failure> {
    let clock = session.clock().clone();
    let begun = clock.now();
    let stat = |path: &String| Ask { follow: false, ..Ask::path(path.as_str(), Operation::Stat) };
    let asks: Vec<Ask> = paths.iter().map(stat).collect();
    let mut found = 0;
    session.stream_each(&asks, |_, answer| {
        found += u64::from(matches!(answer, Ok(Record::Entry(_))));
        std::ops::ControlFlow::Continue(())
    })?;
    let ns = clock.now().since(begun) as f64 / paths.len() as f64;
    if found == paths.len() as u64 { Ok(ns) } else { Err(format!("{found} of {} found", paths.len()).into()) }
}

pub(crate) fn same(found: u64, expected: u64, who: &str) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{who} found {found} lines of {expected}").into()) }
}

fn on_a_large_file(folder: &Path, rounds: usize, sink: Sink<'_>) -> Result<(), Failure> {
    const BYTES: usize = 1 << 30;
    let tree = folder.join("large");
    std::fs::create_dir_all(&tree)?;
    let shape = Shape { files: 1, file_bytes: 16 << 20, depth: 3, fan: 2 };
    let piece = dataset::write_deep(&folder.join("piece"), shape, 9, |_| {})?;
    let piece = std::fs::read(folder.join("piece").join(piece.files[0].trim_start_matches('/')))?;
    {
        use std::io::Write;
        let mut file = std::fs::File::create(tree.join("large.log"))?;
        for _ in 0..BYTES / piece.len() {
            file.write_all(&piece)?;
        }
        writeln!(file, "the only {NEEDLE}-here")?;
    }
    let image = folder.join("large.img");
    volume::make(Kind::Ext4, &image, &tree, (BYTES as u64) + (192 << 20))?;
    std::fs::remove_dir_all(&tree)?;
    pin(0);
    let mount = LoopMount::new(&image).map_err(|e| eprintln!("no loop mount to stand beside: {e}")).ok();
    let mut session = session(&format!("dram:{}", image.display()), &Options::default())?;
    let pattern = format!("{NEEDLE}-here");
    let ask = Ask::path("/large.log", count_of(&pattern));
    let (mut ours, mut theirs, mut scan) = (Vec::new(), Vec::new(), Vec::new());
    let startup = start_of_a_process()?;
    for round in 0..=rounds {
        let (found, _, ns) = search(&mut session, &ask)?;
        same(found, 1, "the drive")?;
        if round == 0 {
            if let Some(mount) = &mount {
                ripgrep(&pattern, &mount.path("/large.log"))?;
            }
            continue;
        }
        ours.push(BYTES as f64 / ns as f64);
        let bandwidth = floor::bandwidths(Effort { runs: 1, ..Effort::FAST });
        scan.extend(bandwidth.iter().find(|f| f.name.starts_with("read bandwidth")).map(|f| f.value));
        if let Some(mount) = &mount
            && let Some((took, lines)) = ripgrep(&pattern, &mount.path("/large.log"))?
        {
            same(lines, 1, "ripgrep")?;
            theirs.push(BYTES as f64 / took.saturating_sub(startup).as_nanos().max(1) as f64);
        }
    }
    let name = "literal search in one 1 GiB file";
    if !theirs.is_empty() {
        let peer = figure("ripgrep -j1 on a warm kernel mount".into(), "GB/s", &theirs);
        sink(figure(format!("{name} / ripgrep"), "GB/s", &ours).beside(&peer));
    }
    let floor = figure("the core's read bandwidth".into(), "GB/s", &scan);
    sink(figure(format!("{name} / read bandwidth"), "GB/s", &ours).beside(&floor));
    unpin();
    Ok(())
}

/// Nanoseconds that the monitor adds to a write of a block that it does not watch,
/// while it watches a warm cache's.
pub fn monitor(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    eprintln!("the monitor ...");
    let folder = tempfile::tempdir_in("target")?;
    let tree = folder.path().join("tree");
    let shape = Shape { files: 2000, file_bytes: 4096, depth: 20, fan: 50 };
    let written = dataset::write_deep(&tree, shape, 5, |_| {})?;
    let image = folder.path().join("volume.img");
    volume::make(Kind::Ext4, &image, &tree, 192 << 20)?;
    let mut session = session(&format!("dram:{}", image.display()), &Options::default())?;
    search(&mut session, &Ask::tree("/deep", count_of(NEEDLE)))?;
    locate_ns(&mut session, &written.files)?;
    let namespace = session.transport().namespace().clone();
    let observer = namespace.observer();
    // Blocks far beyond what the tree fills: nobody watches them.
    let (from, blocks) = (150u64 << 20, (40u64 << 20) / 4096);
    let clock = TscClock::new();
    let mut rng = Rng(3);
    let (runs, writes) = if fast { (5, 200_000) } else { (15, 1_000_000) };
    let places: Vec<u64> = (0..4096).map(|_| from + rng.below(blocks) * 4096).collect();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let start = clock.now();
        for i in 0..writes {
            let at = std::hint::black_box(places[i % places.len()]);
            observer.begin(at, 4096);
            observer.end(at, 4096, false);
        }
        with.push(clock.now().since(start) as f64 / writes as f64);
        let start = clock.now();
        for i in 0..writes {
            std::hint::black_box(places[i % places.len()]);
        }
        without.push(clock.now().since(start) as f64 / writes as f64);
    }
    let watched = observer.retriever().monitor().counters();
    eprintln!("  monitor: {watched:?}");
    let floor = figure("the loop without it".into(), "ns", &without);
    sink(figure("monitor, per write of an unwatched block".into(), "ns", &with).beside(&floor));
    Ok(())
}

/// What part of a core a drive uses that has nothing to do.
pub fn idle(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    eprintln!("an idle drive ...");
    let options = Options { policy: Policy::Hybrid, ..Options::default() };
    let drive = Embedded::start(Dram::new(64 << 20, 512)?, firmware(), &options)?;
    let mut session = Session::new(drive, Arc::new(TscClock::new()));
    session.nop()?;
    let period = Duration::from_secs(if fast { 2 } else { 10 });
    let mut runs = Vec::new();
    for _ in 0..if fast { 2 } else { 3 } {
        let before = CpuClock::process().now_ns()?;
        let start = Instant::now();
        std::thread::sleep(period);
        let used = (CpuClock::process().now_ns()? - before) as f64;
        runs.push(100.0 * used / start.elapsed().as_nanos() as f64);
    }
    session.nop()?;
    sink(figure("CPU of an idle drive, part of one core".into(), "%", &runs));
    Ok(())
}
