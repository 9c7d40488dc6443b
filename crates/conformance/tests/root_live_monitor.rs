//! The metadata monitor under a live host (DAC'23 III-C): a drive attached, this machine's ext4
//! mounted on it, and after every `sync` the drive's answers, given from a warm cache, equal to the
//! mount's. Needs root, FUSE and loop devices.
//!
//! `NEARSIDE_LIVE_ROUNDS` says how many rounds `every_answer_is_the_mounts` has and a test of what `fsync`
//! makes durable (of writers at once, each of them); with `NEARSIDE_RECORD` they are recorded
//! (`conformance::record`).

#[path = "live/flushes.rs"]
mod flushes;
#[path = "live/rig.rs"]
mod rig;
#[path = "live/workload.rs"]
mod workload;
#[path = "live/writers.rs"]
mod writers;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nearside_conformance::record::add;
use nearside_dma::IoBuffer;
use nearside_embedded::AnyStore;
use nearside_random::Rng;
use nearside_store::Dram;
use nearside_store::write_log::LogReader;
use rig::Rig;
use workload::{Size, Workload};
use writers::Plan;
use xxhash_rust::xxh3::xxh3_64;

const SIZE: Size = Size { write: 40_000, file: 300_000, files: 300, names: 1_500, fallocate: true };
/// Everything is compared in every so-manieth round, in the others what was touched and a sample of the rest.
const EVERYTHING: u64 = 100;

/// How a round's work becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// By `syncfs`: all of it at home.
    Home,
    /// By `fsync` of each file and directory that was touched: in the journal.
    Journal,
}

/// Rounds of work, `sync` and comparison; how many kinds of work there were.
/// An error names the seed and the round.
fn rounds(rig: &mut Rig, seed: u64, rounds: u64, size: Size, settled: Settled) -> Result<usize, String> {
    let mut work = Workload::new(&rig.mount(), seed, size);
    let mut rng = Rng(!seed);
    let mut kinds = BTreeSet::new();
    for round in 0..rounds {
        let mut done = Vec::new();
        // Mostly few things, sometimes many.
        for _ in 0..1 + rng.below(if round % 10 == 0 { 40 } else { 6 }) {
            done.extend(work.step());
        }
        let mut paths = std::mem::take(&mut work.touched);
        match settled {
            Settled::Home => rig.sync(),
            Settled::Journal => rig.fsync(&paths),
        }
        paths.extend((0..6).map(|_| work.any()));
        paths
            .iter()
            .try_for_each(|path| rig.compare(path).or_else(|wrong| rig.compare_recovered(path, wrong)))
            .and_then(|()| {
                if round % EVERYTHING != EVERYTHING - 1 {
                    return Ok(());
                }
                rig.compare_all()?;
                let (bytes, live) = rig.snapshot();
                let image = rig::image(&bytes);
                let differs = live.iter().zip(&image).find(|(live, image)| live != image);
                match differs {
                    None if live.len() == image.len() => Ok(()),
                    _ => Err(format!("live {} records, snapshot {}: {differs:?}", live.len(), image.len())),
                }
            })
            .map_err(|wrong| format!("seed {seed}, round {round}, after {done:?}: {wrong}"))?;
        kinds.extend(done);
    }
    rig.compare_all().map_err(|wrong| format!("seed {seed}, at the end: {wrong}"))?;
    Ok(kinds.len())
}

fn right(seed: u64, count: u64, size: Size, options: &[&str]) {
    held(seed, count, size, options, "loop,noatime", Settled::Home);
}

fn held(seed: u64, count: u64, size: Size, options: &[&str], mount: &str, settled: Settled) {
    let mut rig = Rig::start(256 << 20, options, mount);
    match rounds(&mut rig, seed, count, size, settled) {
        Err(wrong) => panic!("{wrong}\nafter a new mount: {:?}", rig.compare_remounted()),
        Ok(kinds) => assert!(kinds >= 16, "only {kinds} kinds of work"),
    }
    let seen = rig.retriever().monitor().counters();
    assert!(seen.invalidated > count, "{seen:?}");
    // Most misses are the large directories':
    // a block of inodes that changed is read again for all inodes in it.
    assert!(rig.hits > 20 * count, "no warm cache: {} hits, {} misses", rig.hits, rig.misses);
    let Rig { hits, misses, recovered, .. } = rig;
    let fields = [
        ("configuration", format!("{} {mount}", options.join(" ")).into()),
        ("seed", seed.into()),
        ("rounds", count.into()),
        ("settled", format!("{settled:?}").into()),
        ("as_after_recovery_only", recovered.into()),
        ("unlike", 0.into()),
    ];
    add("view", "root_live_monitor", &fields);
    eprintln!("seed {seed}: {count} rounds; {hits} hits, {misses} misses, {recovered} recovered; {seen:?}");
    rig.end();
}

#[test]
fn every_answer_is_the_mounts() {
    if rig::ready("root_live_monitor::every_answer_is_the_mounts") {
        right(1, live_rounds(1_000), SIZE, &["-b", "4096", "-I", "256", "-i", "8192"]);
    }
}

#[test]
fn with_small_blocks() {
    if rig::ready("root_live_monitor::with_small_blocks") {
        right(2, 250, SIZE, &["-b", "1024", "-I", "256", "-i", "8192"]);
    }
}

#[test]
fn with_data_in_inodes() {
    if rig::ready("root_live_monitor::with_data_in_inodes") {
        let size = Size { fallocate: false, ..SIZE };
        right(3, 250, size, &["-b", "4096", "-I", "256", "-i", "8192", "-O", "inline_data"]);
    }
}

#[test]
fn without_a_journal() {
    if rig::ready("root_live_monitor::without_a_journal") {
        right(4, 250, SIZE, &["-b", "4096", "-I", "256", "-i", "8192", "-O", "^has_journal"]);
    }
}

fn live_rounds(usual: u64) -> u64 {
    std::env::var("NEARSIDE_LIVE_ROUNDS").map_or(usual, |n| n.parse().unwrap())
}

/// Rounds in which nothing is written home by the test: what `fsync` has made durable is found at once. More
/// by the environment, for a long run.
fn journaled(name: &str, seed: u64, options: &[&str], mount: &str) {
    if rig::ready(&format!("root_live_monitor::{name}")) {
        let rounds = live_rounds(200);
        let options = [&["-b", "4096", "-I", "256", "-i", "8192"][..], options].concat();
        held(seed, rounds, SIZE, &options, mount, Settled::Journal);
    }
}

#[test]
fn what_fsync_has_made_durable_is_found_at_once() {
    let name = "what_fsync_has_made_durable_is_found_at_once";
    journaled(name, 11, &[], "loop,noatime");
}

#[test]
fn in_a_journal_that_wraps() {
    journaled("in_a_journal_that_wraps", 12, &["-J", "size=4"], "loop,noatime");
}

#[test]
fn with_data_in_the_journal() {
    journaled("with_data_in_the_journal", 13, &["-J", "size=16"], "loop,noatime,data=journal");
}

#[test]
fn with_commits_that_are_not_ordered() {
    let mount = "loop,noatime,data=writeback,journal_async_commit";
    journaled("with_commits_that_are_not_ordered", 14, &[], mount);
}

/// Rounds on a volume with fast commits: one thing is done to a file, an `fsync` makes it durable, and the
/// drive has it. Many of them stand behind one full commit; a `syncfs` now and then begins anew, and so does
/// an area that is full.
fn fast_rounds(rig: &mut Rig, seed: u64, count: u64) -> Result<(), String> {
    let (mut rng, mount) = (Rng(seed), rig.mount());
    let at = |path: &str| mount.join(path.trim_start_matches('/'));
    std::fs::create_dir(at("/below")).unwrap();
    rig.sync();
    let (mut files, mut most, mut full, mut up_to) = (Vec::<String>::new(), 0, 0, 0);
    for round in 0..count {
        let nr = rng.index(files.len().max(1));
        let new = format!("{}/{round}", ["", "/below"][rng.index(2)]);
        let mut touched = vec!["/".to_owned(), "/below".into(), new.clone()];
        touched.extend(files.get(nr).cloned());
        let open = |path: &str| OpenOptions::new().read(true).write(true).open(at(path)).unwrap();
        let len = rng.below(20_000) as usize;
        let bytes = rng.bytes(len);
        // At first only what stays behind one full commit.
        let first = round < count / 4;
        let kind = match files.len() {
            0..4 => 0,
            _ if first => rng.index(4),
            _ => rng.index(8),
        };
        let done = match kind {
            0 | 1 => {
                std::fs::write(at(&new), &bytes).unwrap();
                files.push(new);
                files.last().unwrap().clone()
            }
            2 | 3 => {
                open(&files[nr]).write_all_at(&bytes, rng.below(80_000)).unwrap();
                files[nr].clone()
            }
            4 => {
                open(&files[nr]).set_len(rng.below(60_000)).unwrap();
                files[nr].clone()
            }
            5 => {
                std::fs::rename(at(&files[nr]), at(&new)).unwrap();
                files[nr] = new;
                files[nr].clone()
            }
            6 => {
                std::fs::hard_link(at(&files[nr]), at(&new)).unwrap();
                files.push(new);
                files[nr].clone()
            }
            _ => {
                let gone = files.swap_remove(nr);
                std::fs::remove_file(at(&gone)).unwrap();
                if gone.starts_with("/below") { "/below".into() } else { "/".into() }
            }
        };
        std::fs::File::open(at(&done)).unwrap().sync_all().unwrap();
        // In the same transaction as before, or in a new one.
        let seen = rig.journal_view();
        (most, full) = (most.max(seen.fast_commits), full + u64::from(seen.up_to != up_to));
        up_to = seen.up_to;
        if round % 10 == 9 {
            touched.extend(files.iter().cloned());
        }
        touched.iter().try_for_each(|path| rig.compare_fast(path)).map_err(|wrong| {
            format!("seed {seed}, round {round}, kind {kind} to {done}, {seen:?}: {wrong}")
        })?;
        if !first && rng.below(60) == 0 {
            rig.sync();
            if rig.journal_view().fast_commits != 0 {
                return Err(format!("seed {seed}, round {round}: fast commits behind a full one"));
            }
        }
    }
    eprintln!("seed {seed}: {count} rounds, at most {most} fast commits, {full} full ones");
    assert!(most >= 10 && full >= 3, "at most {most} fast commits, {full} full ones");
    Ok(())
}

#[test]
fn what_fast_commits_have_made_durable_is_found_at_once() {
    if !rig::ready("root_live_monitor::what_fast_commits_have_made_durable_is_found_at_once") {
        return;
    }
    let rounds = live_rounds(400);
    for (seed, size) in [(21, "4096"), (22, "1024")] {
        let options = ["-b", size, "-I", "256", "-i", "8192", "-O", "fast_commit"];
        let mut rig = Rig::start(64 << 20, &options, "loop,noatime,commit=300");
        if let Err(wrong) = fast_rounds(&mut rig, seed, rounds) {
            panic!("{wrong}\nafter a new mount: {:?}", rig.compare_remounted());
        }
        let fields = [
            ("configuration", options.join(" ").into()),
            ("seed", seed.into()),
            ("rounds", rounds.into()),
            ("unlike", 0.into()),
        ];
        add("view", "root_live_monitor, fast commits", &fields);
        rig.end();
    }
}

/// Writers beside each other, each of which finds what it has made durable, whatever the others do; and at
/// random instants the live view is the one that the drive's bytes of that instant give.
#[test]
fn writers_beside_each_other_find_what_each_has_made_durable() {
    const WRITERS: u64 = 3;
    if !rig::ready("root_live_monitor::writers_beside_each_other_find_what_each_has_made_durable") {
        return;
    }
    let rounds = live_rounds(40);
    for (nr, (options, mount)) in [
        (&[][..], "loop,noatime"),
        (&["-J", "size=4"][..], "loop,noatime,commit=1"),
        (&["-J", "size=16"][..], "loop,noatime,data=journal"),
        (&[][..], "loop,noatime,data=writeback,journal_async_commit"),
        (&["-O", "fast_commit"][..], "loop,noatime,commit=300"),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = 31 + nr as u64;
        let mut rig = Rig::start(64 << 20, &[&["-b", "4096", "-I", "256"][..], options].concat(), mount);
        let loses = options.contains(&"fast_commit");
        let plan = Plan { seed, writers: WRITERS, rounds, snapshots: 4 + rounds / 100, loses };
        let came = writers::run(&mut rig, plan);
        let name = format!("{} {mount}", options.join(" "));
        let (unlike, done) = (came.is_err(), came.as_ref().copied().unwrap_or_default());
        let fields = [
            ("configuration", name.as_str().into()),
            ("seed", seed.into()),
            ("writers", WRITERS.into()),
            ("rounds", done.rounds.into()),
            ("answers", done.answers.into()),
            ("changed_during_scan", done.changed.into()),
            ("snapshots_of_live_views", done.snapshots.into()),
            ("lost_by_the_kernel", done.lost.into()),
            ("unlike", u64::from(unlike).into()),
        ];
        add("view", "writers_beside_each_other", &fields);
        eprintln!("{name}: {done:?}");
        let done = came.unwrap_or_else(|wrong| panic!("{name}, seed {seed}: {wrong}"));
        assert!(done.rounds == WRITERS * rounds && done.snapshots > 0, "{done:?}");
        rig.end();
    }
}

/// What a host has written to its journal and not flushed is not shown yet, and the flush shows it.
#[test]
fn a_commit_is_shown_from_its_flush_on() {
    if !rig::ready("root_live_monitor::a_commit_is_shown_from_its_flush_on") {
        return;
    }
    const BYTES: u64 = 16 << 20;
    let points = std::env::var("NEARSIDE_POINTS").map_or(100, |n| n.parse().unwrap());
    for (seed, options) in [(1, &["-b", "1024"][..]), (2, &["-b", "4096"]), (3, &["-O", "fast_commit"])] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let store = AnyStore::Dram(Dram::new(BYTES, 512).unwrap()).logged(&log).unwrap();
        let mut rig = Rig::of(store, options, "loop,noatime");
        let size = Size { write: 20_000, file: 60_000, files: 60, names: 200, fallocate: true };
        let worked = rounds(&mut rig, seed, 20, size, Settled::Journal);
        rig.end();
        worked.unwrap();
        let log = LogReader::open(&log).unwrap();
        let came = flushes::follow(&log, vec![0; BYTES as usize], points, seed);
        let (unlike, done) = (came.is_err(), came.as_ref().copied().unwrap_or_default());
        let fields = [
            ("configuration", options.join(" ").as_str().into()),
            ("seed", seed.into()),
            ("points", done.points.into()),
            ("alike", done.alike.into()),
            ("flushed", done.flushed.into()),
            ("written", done.written.into()),
            ("unlike", u64::from(unlike).into()),
        ];
        add("view", "a_commit_is_shown_from_its_flush_on", &fields);
        eprintln!("{options:?}: {done:?}");
        let done = came.unwrap_or_else(|wrong| panic!("{options:?}: {wrong}"));
        assert!(done.flushed > done.written, "{done:?}");
    }
}

/// The same of what a stock kernel wrote to its F2FS, checkpoints among it (fixtures/f2fs/life.*, of the
/// first volume of `fsview/tests/f2fs_recovery.rs`).
#[test]
fn a_node_is_shown_from_its_flush_on() {
    let fixture = |name: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/f2fs/life.");
        let file = BufReader::new(File::open(format!("{path}{name}.zst")).unwrap());
        let mut bytes = Vec::new();
        ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let mut log = tempfile::tempfile().unwrap();
    log.write_all(&fixture("log")).unwrap();
    let done = flushes::follow(&LogReader::of(log).unwrap(), fixture("img"), 25, 1).unwrap();
    eprintln!("{done:?}");
    assert!(done.flushed > done.written, "{done:?}");
}

#[test]
fn without_the_monitor_answers_are_wrong() {
    if !rig::ready("root_live_monitor::without_the_monitor_answers_are_wrong") {
        return;
    }
    let mut rig = Rig::start(256 << 20, &["-b", "4096", "-I", "256", "-i", "8192"], "loop,noatime");
    rig.retriever().monitor().set_enabled(false);
    let wrong = rounds(&mut rig, 1, 20, SIZE, Settled::Home)
        .expect_err("the comparison finds nothing wrong: it is worth nothing");
    eprintln!("as it must be: {wrong}");
    rig.end();
}

#[test]
fn data_written_in_place_invalidates_nothing() {
    const BLOCKS: u64 = 1024;
    const BLOCK: usize = 4096;
    if !rig::ready("root_live_monitor::data_written_in_place_invalidates_nothing") {
        return;
    }
    // No commit by itself: what the writes do to the inode's times stays on the host until it syncs.
    let mut rig = Rig::start(64 << 20, &["-b", "4096"], "loop,noatime,commit=900");
    let mut bytes = vec![1; BLOCKS as usize * BLOCK];
    let path = rig.mount().join("file");
    std::fs::write(&path, &bytes).unwrap();
    rig.sync();
    rig.compare_all().unwrap();
    assert_eq!(rig.hash("/file"), xxh3_64(&bytes).to_be_bytes());

    let direct = 0o40000; // O_DIRECT
    let file = OpenOptions::new().write(true).custom_flags(direct).open(&path).unwrap();
    let mut block = IoBuffer::new(BLOCK).unwrap();
    let mut rng = Rng(5);
    let (before, misses) = (rig.retriever().monitor().counters(), rig.misses);
    for round in 0..2_000u64 {
        let at = rng.below(BLOCKS) as usize * BLOCK;
        block.fill(round as u8);
        file.write_all_at(&block, at as u64).unwrap();
        bytes[at..at + BLOCK].fill(round as u8);
        // The write has come to the drive: its next answer has it.
        if round % 100 == 99 {
            assert_eq!(rig.hash("/file"), xxh3_64(&bytes).to_be_bytes(), "round {round}");
        }
    }
    let after = rig.retriever().monitor().counters();
    assert_eq!(after.invalidated, before.invalidated, "{before:?} {after:?}");
    assert_eq!(rig.misses, misses, "the cache stayed warm");

    drop(file);

    // Through the page cache and with a sync: the inode's own block, however much data there was.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut cost = |blocks: usize| {
        rig.sync();
        rig.compare("/file").unwrap();
        let before = rig.retriever().monitor().counters().invalidated;
        bytes[..blocks * BLOCK].fill(blocks as u8);
        file.write_all_at(&bytes[..blocks * BLOCK], 0).unwrap();
        rig.sync();
        rig.compare("/file").unwrap();
        rig.retriever().monitor().counters().invalidated - before
    };
    cost(1);
    let (one, many) = (cost(1), cost(BLOCKS as usize));
    assert!(one > 0, "a changed time is a change");
    drop(file);
    assert!(many <= one + 4, "{one} blocks invalidated by one of data, {many} by {BLOCKS}");
    rig.end();
}
