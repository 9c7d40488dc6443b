//! What the view of a volume that a host has mounted costs: the host's writes, and a command's.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nearside_clock::{Clock, TscClock};
use nearside_device::{Firmware, Observer};
use nearside_dma::file::next_data;
use nearside_driver::{Command, Policy};
use nearside_embedded::{AnyStore, Options, firmware};
use nearside_fsrlib::{Ask, Operation, Record, Session, Target, TcpTransport};
use nearside_instrument::Failure;
use nearside_instrument::completion::{pin, unpin};
use nearside_instrument::dataset::{self, NEEDLE, Shape};
use nearside_instrument::kernel::LoopMount;
use nearside_instrument::near_data::{Drive, count_of, search, session};
use nearside_instrument::volume::{self, Kind};
use nearside_loadgen::record::Figure;
use nearside_random::Rng;

use crate::figures::{Sink, locate_ns, monitor, same};
use crate::tcp::{BLOCK, Serving};

const BYTES: usize = 4096;

/// All of it. The kernel makes the journals: without root, and without mke2fs, there are no figures of them.
pub fn view(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    if !Kind::Ext4.tools_are_here() {
        eprintln!("the live view: no mke2fs");
        return Ok(());
    }
    monitor(fast, sink)?;
    let folder = tempfile::tempdir_in("target")?;
    eprintln!("the live view: writes to a served ext4 ...");
    served(folder.path(), fast, sink)?;
    eprintln!("the live view: a volume of 100 GiB and a full journal of 128 MiB ...");
    match dirty(folder.path(), fast) {
        Ok(volumes) => recovered(&volumes, fast, sink),
        Err(why) => {
            eprintln!("the live view: no journal to recover: {why}");
            Ok(())
        }
    }
}

/// A volume's tree of small files.
fn tree(folder: &Path) -> Result<(PathBuf, dataset::Written), Failure> {
    let tree = folder.join("tree");
    let shape = Shape { files: 500, file_bytes: 16 << 10, depth: 5, fan: 50 };
    let written = dataset::write_deep(&tree, shape, 17, |_| {})?;
    Ok((tree, written))
}

/// Nanoseconds of the median write to blocks that nobody watches, over TCP.
fn write_ns<F: Firmware<AnyStore>>(serving: &Serving<F>, count: usize) -> Result<f64, Failure> {
    let mut initiator = serving.connect()?.initiator(4, Policy::Polled, TscClock::new())?;
    let (mut random, mut took) = (Rng(7), Vec::with_capacity(count));
    let mut buffer = vec![0x5a; BYTES];
    for nr in 0..count + count / 10 {
        let at = (100 << 20) + random.below((60 << 20) / BYTES as u64) * BYTES as u64;
        let command = Command::write(1, at / BLOCK as u64, (BYTES / BLOCK) as u32);
        let done = initiator.execute(&command, Some(buffer)).map_err(|e| e.to_string())?;
        // The first ones warm caches up.
        if nr >= count / 10 {
            took.push(done.latency_ns);
        }
        done.outcome?;
        buffer = done.buffer.ok_or("the buffer did not come back")?;
    }
    took.sort_unstable();
    Ok(took.get(count / 2).copied().unwrap_or(0) as f64)
}

/// A write to a served ext4 volume, with the monitor and by a drive that has none, in turns.
fn served(folder: &Path, fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (tree, written) = tree(folder)?;
    let image = folder.join("served.img");
    volume::make(Kind::Ext4, &image, &tree, 192 << 20)?;
    std::fs::remove_dir_all(&tree)?;
    let word = format!("dram:{}", image.display());
    let (rounds, count) = if fast { (5, 4_000) } else { (15, 20_000) };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let monitored = || -> Result<f64, Failure> {
            let serving = Serving::with(&word, firmware())?;
            let transport = TcpTransport::over(&serving.connect()?, Policy::Polled, TscClock::new())?;
            let mut session = Session::new(transport, std::sync::Arc::new(TscClock::new()));
            // What a warm drive watches.
            let (found, ..) = search(&mut session, &Ask::tree("/deep", count_of(NEEDLE)))?;
            same(found, written.needles, "the drive")?;
            drop(session);
            Ok(write_ns(&serving, count)? / 1e3)
        };
        let bare = || -> Result<f64, Failure> { Ok(write_ns(&Serving::with(&word, ())?, count)? / 1e3) };
        // Neither is always the second.
        if round % 2 == 0 {
            with.push(monitored()?);
            without.push(bare()?);
        } else {
            without.push(bare()?);
            with.push(monitored()?);
        }
    }
    unpin();
    let without = Figure::of("a drive that has no monitor", "us", &without);
    let name = "TCP: 4 KiB write to ext4, QD1 polled, with the monitor: median";
    sink(Figure::of(name, "us", &with).beside(&without));
    Ok(())
}

/// The same volume with a journal to recover, and after the kernel's recovery.
struct Volumes {
    dirty: PathBuf,
    clean: PathBuf,
    written: dataset::Written,
}

/// Lets the kernel fill the journal of a sparse volume of 100 GiB: data go through it, and nothing home.
fn dirty(folder: &Path, fast: bool) -> Result<Volumes, Failure> {
    let (tree, written) = tree(folder)?;
    let (live, dirty, clean) = (folder.join("live.img"), folder.join("dirty.img"), folder.join("clean.img"));
    File::create(&live)?.set_len(100 << 30)?;
    let mke2fs = volume::tool("mke2fs").ok_or("no mke2fs")?;
    let made = std::process::Command::new(mke2fs)
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=128", "-d"])
        .args([&tree, &live])
        .status()?;
    if !made.success() {
        return Err("mke2fs failed".into());
    }
    std::fs::remove_dir_all(&tree)?;
    let mount = LoopMount::with(&live, "loop,noatime,data=journal,commit=900")?;
    let mut full = 0;
    // Blocks of data, and those of what says where they are: until the log would begin to go home.
    let (mut random, mut block) = (Rng(23), vec![0; BYTES]);
    // A quarter is kept free for the next transaction (jbd2_space_needed).
    let most = if fast { 12_000 } else { 23_200 };
    for nr in 0.. {
        let mut file = File::create(mount.path(&format!("/journaled-{nr}")))?;
        for _ in 0..400 {
            block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.draw().to_le_bytes()));
            file.write_all(&block)?;
            full += 1;
        }
        file.sync_all()?;
        if full >= most {
            break;
        }
    }
    copy(&live, &dirty)?;
    drop(mount);
    copy(&live, &clean)?;
    std::fs::remove_file(&live)?;
    Ok(Volumes { dirty, clean, written })
}

/// A copy whose holes stay holes.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    let mut next = 0;
    while let Some((start, end)) = next_data(&from, next)? {
        let mut bytes = vec![0; (end - start) as usize];
        from.read_exact_at(&mut bytes, start)?;
        to.write_all_at(&bytes, start)?;
        next = end;
    }
    Ok(())
}

fn opened(image: &Path) -> Result<(Session<Drive>, u64), Failure> {
    let mut session = session(&format!("file:{}", image.display()), &Options::default())?;
    let mut transactions = 0;
    let info = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
    session.stream(&info, |record| {
        if let Record::Volume(volume) = record {
            transactions = volume.recovered.map_or(0, |recovered| recovered.transactions);
        }
        ControlFlow::Continue(())
    })?;
    Ok((session, transactions))
}

fn recovered(volumes: &Volumes, fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    pin(0);
    let rounds = if fast { 3 } else { 9 };
    let clock = TscClock::new();
    let (mut opening, mut reading) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let start = clock.now();
        let (session, transactions) = opened(&volumes.dirty)?;
        let ms = clock.now().since(start) as f64 / 1e6;
        if round == 0 {
            let bytes = session.transport().namespace().observer().retriever().overlay_bytes();
            eprintln!("  {transactions} transactions, an overlay of {bytes} bytes");
        }
        if transactions == 0 {
            return Err("nothing to recover".into());
        }
        drop(session);
        let start = clock.now();
        let file = File::open(&volumes.dirty)?;
        let (mut at, mut left, mut piece) = (0, 128u64 << 20, vec![0; 128 << 10]);
        while left > 0
            && let Some((from, to)) = next_data(&file, at)?
        {
            at = from;
            while at < to && left > 0 {
                let len = (to - at).min(left).min(piece.len() as u64) as usize;
                file.read_exact_at(&mut piece[..len], at)?;
                (at, left) = (at + len as u64, left - len as u64);
            }
        }
        // The first round fills the page cache.
        if round > 0 {
            opening.push(ms);
            reading.push(clock.now().since(start) as f64 / 1e6);
        }
    }
    let floor = Figure::of("reading 128 MiB of it from the page cache", "ms", &reading);
    sink(Figure::of("opening 100 GiB with 128 MiB of journal to recover", "ms", &opening).beside(&floor));
    let (mut with, _) = opened(&volumes.dirty)?;
    journal(&with, fast, sink);
    let (mut clean, transactions) = opened(&volumes.clean)?;
    same(transactions, 0, "the kernel's recovery")?;
    commands(&mut with, &mut clean, &volumes.written, rounds, sink)?;
    unpin();
    Ok(())
}

/// Nanoseconds of the monitor at a write of a block of the journal: of those that opening the volume watches,
/// and that are hardly any others.
fn journal(session: &Session<Drive>, fast: bool, sink: Sink<'_>) {
    let namespace = session.transport().namespace().clone();
    let observer = namespace.observer();
    let monitor = observer.retriever().monitor();
    // The filter lets more through than is watched.
    let changes = || monitor.counters().invalidated;
    let is_watched = |at: &u64| {
        let before = changes();
        monitor.begin(*at, BYTES as u64) && changes() > before
    };
    let may_be = (0..namespace.bytes()).step_by(BYTES).filter(|at| monitor.begin(*at, BYTES as u64));
    let places: Vec<u64> = may_be.filter(is_watched).collect();
    let clock = TscClock::new();
    let writes = if fast { 50_000 } else { 200_000 };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..if fast { 5 } else { 15 } {
        let start = clock.now();
        for at in places.iter().cycle().take(writes) {
            observer.begin(std::hint::black_box(*at), BYTES as u64);
            observer.end(*at, BYTES as u64, false);
        }
        with.push(clock.now().since(start) as f64 / writes as f64);
        let start = clock.now();
        for at in places.iter().cycle().take(writes) {
            std::hint::black_box(*at);
        }
        without.push(clock.now().since(start) as f64 / writes as f64);
    }
    eprintln!("  {} places, {:?}", places.len(), observer.view_cost());
    let floor = Figure::of("the loop without it", "ns", &without);
    sink(Figure::of("monitor, per write of a journal's block", "ns", &with).beside(&floor));
}

/// Warm commands on both volumes, in turns.
fn commands(
    with: &mut Session<Drive>,
    clean: &mut Session<Drive>,
    written: &dataset::Written,
    rounds: usize,
    sink: Sink<'_>,
) -> Result<(), Failure> {
    let mut took: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..=4 * rounds {
        for turn in 0..2 {
            // Neither is always the second.
            let which = (turn + round) % 2;
            let session = if which == 0 { &mut *with } else { &mut *clean };
            let (_, located) = locate_ns(session, &written.files)?;
            let (mut found, mut searched) = (0, 0);
            for path in &written.files {
                let (lines, _, ns) = search(session, &Ask::path(path.as_str(), count_of(NEEDLE)))?;
                (found, searched) = (found + lines, searched + ns);
            }
            same(found, written.needles, "the drive")?;
            if round > 0 {
                took[0][which].push(located / 1e3);
                took[1][which].push(searched as f64 / 1e3 / written.files.len() as f64);
            }
        }
    }
    for (what, [with, clean]) in ["locate", "search of 16 KiB"].into_iter().zip(&took) {
        let name = format!("ext4 with an overlay: {what}, warm, whole command");
        sink(Figure::of(&name, "us", with).beside(&Figure::of("after the kernel's recovery", "us", clean)));
    }
    Ok(())
}
