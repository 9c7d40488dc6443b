//! The recovered view at every instant: a kernel works on a drive that logs its writes, and of images as of
//! any entry of the log, and of power cuts there, the view equals the kernel's mount, which recovers them.
//!
//! `NEARSIDE_POINTS` sets how many points of each log are looked at (three times as many as it has entries:
//! all of them), `NEARSIDE_SEED` and `NEARSIDE_RUNS` with which seeds, `NEARSIDE_STEPS` how long the kernel
//! works, `EXT_VARIANT` chooses a case. Images that differ are kept in the folder `NEARSIDE_KEEP`. With
//! `NEARSIDE_RECORD` the run is recorded (`conformance::record`).

#[path = "fsview/ext_images/mod.rs"]
mod ext_images;
mod instants;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::ext_images::churn::Churn;
use crate::ext_images::recovered::{Shown, host, log_of, unlike, view};
use crate::ext_images::{Mount, Variant, make, run, setting};
use crate::instants::Instants;
use nearside_conformance::{needs, record::add, volume};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_embedded::{AnyStore, Loopback};
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_fsview::{State, Volume};
use nearside_random::Rng;
use nearside_store::FileOptions;
use nearside_store::write_log::{Cut, Entry, Flags, LogReader, survivors};

const MIB: u64 = 48;

/// A way to make a volume, and to mount it.
struct Case {
    name: &'static str,
    args: &'static str,
    options: &'static str,
}

const fn c(name: &'static str, args: &'static str, options: &'static str) -> Case {
    Case { name, args, options }
}

const CASES: &[Case] = &[
    c("default", "-t ext4 -b 4096", "commit=1"),
    c("data-journal", "-t ext4 -b 4096 -J size=8", "commit=1,data=journal"),
    c("1k", "-t ext4 -b 1024", "commit=1"),
    c("wraps", "-t ext4 -b 1024 -J size=1", "commit=1"),
    c("async", "-t ext4 -b 4096", "commit=1,data=writeback,journal_async_commit"),
    c("nocsum", "-t ext4 -b 4096 -O ^metadata_csum", "commit=1"),
    c("discard", "-t ext4 -b 4096 -J size=4", "commit=1,discard"),
    c("ext3", "-t ext3 -b 1024 -J size=1", "commit=1"),
];

/// A kernel's work on an attached drive, written down. The volume lies in `image` before it.
fn record(case: &Case, seed: u64, image: &Path, log: &Path, folder: &Path) -> Result<(), String> {
    let (drive, volume) = (folder.join("drive"), folder.join("volume"));
    fs::create_dir_all(&drive).map_err(|e| e.to_string())?;
    let store = AnyStore::open(&format!("dram:{}", image.display()), FileOptions::serve());
    let store = store.and_then(|store| store.logged(log)).map_err(|e| e.to_string())?;
    let written = store.write_log().cloned().ok_or("no log")?;
    let served =
        Loopback::threaded(store, (), Config::default(), Rest::default()).map_err(|e| e.to_string())?;
    let attached = attach(served.function.clone(), &AttachOptions::new(&drive)).map_err(|e| e.to_string())?;
    let mounted = Mount::new(&attached.file(), &volume, case.options)?;
    // The block layer would make one write of many: here each block is one, as far as that can be had.
    let table = fs::read_to_string("/proc/mounts").map_err(|e| e.to_string())?;
    let at = volume.to_str().ok_or("an odd name")?;
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(at)).ok_or("not mounted")?;
    let device = line.split(' ').next().and_then(|name| name.strip_prefix("/dev/")).ok_or("no device")?;
    for (limit, value) in [("max_sectors_kb", "4"), ("nomerges", "2")] {
        fs::write(format!("/sys/block/{device}/queue/{limit}"), value)
            .map_err(|e| format!("{limit}: {e}"))?;
    }
    let mut churn = Churn::new(mounted.path(), seed, 32 << 10);
    for _ in 0..setting("NEARSIDE_STEPS", 4) {
        churn.steps(25).map_err(|e| e.to_string())?;
        File::open(mounted.path()).and_then(|root| root.sync_all()).map_err(|e| e.to_string())?;
    }
    mounted.end()?;
    volume::detach(attached, Attached::detach).map_err(|e| e.to_string())?;
    written.trouble().map_or(Ok(()), Err)
}

/// What came of a comparison.
enum Came {
    Equal { recovered: bool },
    RefusedByBoth,
    RefusedByTheKernel,
    Differ(String),
}

/// What mount(8) says of EBADMSG, which is the kernel's word for a checksum that does not match.
const BAD_CHECKSUM: &str = "probably corrupted filesystem";

/// What the kernel shows without the commit that a view left out.
type WithoutCommit<'a> = &'a dyn Fn(&Volume) -> Result<Shown, String>;

/// With `async_commit` a commit does not wait for the blocks that it commits. Where one of them was lost the
/// kernel refuses the volume; the view shows what was before that transaction, and says so. Then it must be
/// what the kernel makes of the volume without that commit.
fn judge(
    ours: Result<(Shown, Volume), String>,
    kernel: Result<Shown, String>,
    without_commit: Option<WithoutCommit<'_>>,
) -> Came {
    match (ours, kernel) {
        (Ok((ours, volume)), Ok(kernel)) => {
            let found = unlike(&ours, &kernel, &volume);
            match found.is_empty() {
                true => Came::Equal { recovered: volume.info().recovery.transactions > 0 },
                false => Came::Differ(format!("{:?}\n{}", volume.info().recovery, found.join("\n"))),
            }
        }
        (Err(_), Err(_)) => Came::RefusedByBoth,
        (Ok((ours, volume)), Err(why)) => {
            let is_said =
                volume.info().warnings.iter().any(|text| text.contains("a mount refuses the volume"));
            let Some(without_commit) = without_commit.filter(|_| is_said && why.contains(BAD_CHECKSUM))
            else {
                return Came::Differ(format!("the kernel refuses it: {why}"));
            };
            match without_commit(&volume) {
                Ok(before) => match unlike(&ours, &before, &volume) {
                    found if found.is_empty() => Came::RefusedByTheKernel,
                    found => Came::Differ(format!("without the commit: {}", found.join("\n"))),
                },
                Err(why) => Came::Differ(format!("without the commit: {why}")),
            }
        }
        (Err(why), Ok(_)) => Came::Differ(format!("the view refuses it: {why}")),
    }
}

/// Wipes the commit block of the transaction that the view left out.
fn wipe_commit(image: &Path, volume: &Volume) {
    let block = volume.info().block_size as usize;
    let (headers, _, first) = log_of(image, block);
    let recovery = volume.info().recovery;
    let tid = if recovery.transactions == 0 { first } else { recovery.up_to as u32 + 1 };
    let (nr, ..) = headers.iter().find(|(_, kind, of)| (*kind, *of) == (2, tid)).unwrap();
    let said = run("debugfs", &["-R", "blocks <8>", image.to_str().unwrap()]).unwrap();
    let said = String::from_utf8(said).unwrap();
    let place: u64 = said.split_whitespace().nth(*nr).unwrap().parse().unwrap();
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&vec![0; block], place * block as u64).unwrap();
}

#[derive(Default)]
struct Counts {
    points: u64,
    cuts: u64,
    equal: u64,
    recovered: u64,
    refused: u64,
    by_the_kernel: u64,
    differ: Vec<String>,
    /// Of those where home locations were looked at as well: how many there are, and differ.
    home: u64,
    not_at_home: u64,
}

impl Counts {
    fn add_to_record(&self, case: &Case, seed: u64, entries: u64) {
        let fields = [
            ("configuration", case.name.into()),
            ("mkfs", case.args.into()),
            ("mount", case.options.into()),
            ("seed", seed.into()),
            ("entries", entries.into()),
            ("points", self.points.into()),
            ("cuts", self.cuts.into()),
            ("equal", self.equal.into()),
            ("recovered", self.recovered.into()),
            ("refused_by_both", self.refused.into()),
            ("refused_by_the_kernel", self.by_the_kernel.into()),
            ("unlike", self.differ.len().into()),
        ];
        add("view", "root_ext_writes", &fields);
    }
}

/// Compares at `points` points of a log: the instant itself, a power cut there, and one that tears writes, in
/// turns.
fn compare(case: &Case, seed: u64, log: &LogReader, base: &Path, folder: &Path, points: u64) -> Counts {
    let Case { name, options, .. } = *case;
    let async_commit = options.contains("journal_async_commit");
    let entries: Vec<Entry> = log.entries().map(Result::unwrap).collect();
    let instants = |name: &str| Instants::new(log, &entries, base, &folder.join(name));
    let (mut plain, mut flushed) = (instants("plain"), instants("flushed"));
    let (point, mount) = (folder.join("point"), folder.join("mount"));
    let (mut counts, mut random) = (Counts::default(), Rng(seed));
    let count = entries.len() as u64;
    let points = points.min(3 * count);
    let flush = |entry: &Entry| entry.flags.has(Flags::FLUSH);
    for nr in 0..points {
        let at = match points == 3 * count {
            true => 1 + nr / 3,
            false => 1 + (nr * count + random.below(count)) / points,
        };
        let cut = (nr % 3 > 0).then(|| Cut { seed: random.draw(), torn: nr % 3 == 2 });
        // What stands before the last flush is the same for each of its period.
        let from = entries[..at as usize].iter().rposition(flush);
        let all = entries[from.unwrap_or(0)..].iter().map(|entry| Ok(*entry));
        let left = survivors(all, at, cut).unwrap();
        let whole = if cut.is_some() { &mut flushed } else { &mut plain };
        whole.go_on(left.first);
        whole.copy(&left.then, &point);
        let ours = view(&point, State::Recovered);
        let home = (nr % 8 == 0).then(|| view(&point, State::Home));
        let kernel = host(&point, &mount);
        if let Some(home) = home {
            counts.home += 1;
            let as_home =
                home.is_ok_and(|(home, at)| kernel.as_ref().is_ok_and(|k| unlike(&home, k, &at).is_empty()));
            counts.not_at_home += u64::from(!as_home);
        }
        counts.points += 1;
        counts.cuts += u64::from(left.lost > 0);
        let without_commit = |volume: &Volume| {
            // The kernel has begun to recover the other copy.
            whole.copy(&left.then, &point);
            wipe_commit(&point, volume);
            host(&point, &mount)
        };
        match judge(ours, kernel, async_commit.then_some(&without_commit)) {
            Came::Equal { recovered } => {
                counts.equal += 1;
                counts.recovered += u64::from(recovered);
            }
            Came::RefusedByBoth => counts.refused += 1,
            Came::RefusedByTheKernel => counts.by_the_kernel += 1,
            Came::Differ(what) => {
                let what = format!(
                    "{name}, seed {seed}, point {nr}: entry {at} of {count}, {cut:?} ({} lost): {what}",
                    left.lost
                );
                eprintln!("DIFFERS: {what}");
                counts.differ.push(what);
                if let Some(keep) = std::env::var_os("NEARSIDE_KEEP") {
                    whole.copy(&left.then, &Path::new(&keep).join(format!("{name}-{seed}-{nr}")));
                }
            }
        }
    }
    counts
}

#[test]
fn every_instant_of_a_hosts_life_is_shown_as_the_kernel_recovers_it() {
    let test = "every_instant_of_a_hosts_life_is_shown_as_the_kernel_recovers_it";
    if !needs::mounts(
        test,
        &["mke2fs", "debugfs", "mount", "umount", "getfacl", "setfacl", "setfattr", "fallocate"],
    ) {
        return;
    }
    let (points, seed, runs) =
        (setting("NEARSIDE_POINTS", 18), setting("NEARSIDE_SEED", 1), setting("NEARSIDE_RUNS", 1));
    let only = std::env::var("EXT_VARIANT").ok();
    let (mut differ, mut recovered, mut not_at_home) = (Vec::new(), 0, 0);
    for (seed, case) in (seed..seed + runs).flat_map(|seed| CASES.iter().map(move |case| (seed, case))) {
        if only.as_ref().is_some_and(|only| only != case.name) {
            continue;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (image, path) = (dir.path().join("base"), dir.path().join("log"));
        let variant = Variant { name: case.name, args: case.args, after: "" };
        if !make(&variant, &image, MIB, None).unwrap() {
            needs::left_out(case.name, "this mke2fs does not know it");
            continue;
        }
        if let Err(why) = record(case, seed, &image, &path, dir.path()) {
            panic!("{}, seed {seed}: {why}", case.name);
        }
        let log = LogReader::open(&path).unwrap();
        let counts = compare(case, seed, &log, &image, dir.path(), points);
        eprintln!(
            "{}, seed {seed}: {} entries, {} points, {} of them power cuts that lost something; {} equal, {} with a journal to \
             recover, {} refused by both, {} by the kernel, {} differ; {} of {} not as at home",
            case.name,
            log.count(),
            counts.points,
            counts.cuts,
            counts.equal,
            counts.recovered,
            counts.refused,
            counts.by_the_kernel,
            counts.differ.len(),
            counts.not_at_home,
            counts.home
        );
        counts.add_to_record(case, seed, log.count());
        differ.extend(counts.differ);
        (recovered, not_at_home) = (recovered + counts.recovered, not_at_home + counts.not_at_home);
    }
    assert!(differ.is_empty(), "{} points differ:\n{}", differ.len(), differ.join("\n"));
    assert!(recovered > 0, "no point had anything to recover");
    assert!(not_at_home > 0, "home locations alone would have done");
}
