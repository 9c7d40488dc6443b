//! The recovered view of a volume that was not unmounted: of copies of a mounted image, taken while a
//! workload goes on, the view equals the kernel's mount, which recovers the copy first.
//!
//! `NEARSIDE_COPIES` sets how many copies each variant gives, `NEARSIDE_SEED` where the workload begins;
//! `EXT_VARIANT` chooses one of them. With `NEARSIDE_RECORD` the run is recorded (`conformance::record`).

#[path = "fsview/ext_images/mod.rs"]
mod ext_images;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ext_images::churn::Churn;
use crate::ext_images::recovered::{Shown, host, log_of, open, unlike, view};
use crate::ext_images::{Mount, Variant, make, run, setting};
use nearside_conformance::view::{Content, Image, block_on, resolve};
use nearside_conformance::{needs, record::add};
use nearside_fsview::{Recovery, RunPlace, State, Volume};

const TOOLS: &[&str] = &[
    "mke2fs",
    "e2fsck",
    "tune2fs",
    "debugfs",
    "mount",
    "umount",
    "setfacl",
    "getfacl",
    "setfattr",
    "fallocate",
];

/// A way to make a volume, and to mount it.
struct Case {
    name: &'static str,
    args: &'static str,
    options: &'static str,
    /// The workload keeps to what fast commits can say.
    fast: bool,
}

const fn c(name: &'static str, args: &'static str, options: &'static str) -> Case {
    Case { name, args, options, fast: false }
}

const fn fast(name: &'static str, args: &'static str) -> Case {
    Case { name, args, options: "commit=300", fast: true }
}

const CASES: &[Case] = &[
    c("default", "-t ext4 -b 4096", "commit=300"),
    c("1k", "-t ext4 -b 1024", "commit=300"),
    c("no64bit", "-t ext4 -b 4096 -O ^64bit", "commit=300"),
    c("nocsum", "-t ext4 -b 4096 -O ^metadata_csum", "commit=300"),
    c("nocsum-no64bit", "-t ext4 -b 4096 -O ^metadata_csum,^64bit", "commit=300"),
    c("csum-v1", "-t ext4 -b 4096 -O ^metadata_csum", "commit=300,journal_checksum"),
    c("async", "-t ext4 -b 4096", "commit=300,data=writeback,journal_async_commit"),
    c("async-v1", "-t ext4 -b 4096 -O ^metadata_csum", "commit=300,data=writeback,journal_async_commit"),
    c("data-journal", "-t ext4 -b 4096 -J size=16", "commit=300,data=journal"),
    c("data-journal-1k", "-t ext4 -b 1024 -J size=16", "commit=300,data=journal"),
    c("writeback", "-t ext4 -b 4096", "commit=300,data=writeback"),
    c("bigalloc", "-t ext4 -b 4096 -O bigalloc -C 16384", "commit=300"),
    c("inline", "-t ext4 -b 4096 -O inline_data", "commit=300"),
    c("orphan_file", "-t ext4 -b 4096 -O orphan_file", "commit=300"),
    c("wraps", "-t ext4 -b 4096 -J size=4", "commit=300"),
    c("wraps-1k", "-t ext4 -b 1024 -J size=1", "commit=300"),
    c("meta_bg", "-t ext4 -b 1024 -O meta_bg,^resize_inode", "commit=300"),
    c("ext3", "-t ext3 -b 4096", "commit=300"),
    fast("fast", "-t ext4 -b 4096 -O fast_commit -J size=16,fast_commit_size=4096"),
    fast("fast-1k", "-t ext4 -b 1024 -O fast_commit -J size=16,fast_commit_size=4096"),
    fast("fast-nocsum", "-t ext4 -b 1024 -O fast_commit,^metadata_csum -J size=16,fast_commit_size=4096"),
    fast("fast-inline", "-t ext4 -b 4096 -O fast_commit,inline_data -J size=16,fast_commit_size=4096"),
    fast("fast-inline-1k", "-t ext4 -b 1024 -O fast_commit,inline_data -J size=16,fast_commit_size=4096"),
    c("fast-mixed", "-t ext4 -b 4096 -O fast_commit", "commit=300"),
    c("fast-mixed-1k", "-t ext4 -b 1024 -O fast_commit", "commit=300"),
    fast("fast-linear", "-t ext4 -b 1024 -O fast_commit,^dir_index -J size=16,fast_commit_size=4096"),
];

fn ready(test: &str) -> bool {
    let loops = Path::new("/dev/loop-control").exists();
    if !loops {
        needs::left_out(test, "no loop devices");
    }
    loops && needs::root(test) && needs::tools(test, TOOLS)
}

fn make_case(case: &Case, image: &Path) -> bool {
    let variant = Variant { name: case.name, args: case.args, after: "" };
    let made = make(&variant, image, 96, None).unwrap();
    if !made {
        needs::left_out(case.name, "this mke2fs does not know it");
    }
    made
}

/// A volume to be mounted, a copy of it, and the folders for both.
struct Bench {
    _dir: tempfile::TempDir,
    image: PathBuf,
    copy: PathBuf,
    mount: PathBuf,
    other: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        let (image, copy, mount, other) = (at("image"), at("copy"), at("mount"), at("other"));
        Bench { _dir: dir, image, copy, mount, other }
    }

    /// Makes a volume that must be possible here, and mounts it.
    fn mounted(&self, case: &Case) -> Mount {
        assert!(make_case(case, &self.image), "{}", case.name);
        Mount::new(&self.image, &self.mount, case.options).unwrap()
    }

    /// Copies the volume as it lies.
    fn copied(&self) -> &Path {
        fs::copy(&self.image, &self.copy).unwrap();
        &self.copy
    }
}

/// Why there is nothing to say of a copy.
enum Unlike {
    /// The kernel does not mount it.
    Refused(String),
    Differs(String),
    /// Where the view has zeros, the kernel's recovery has put another file's bytes.
    Exposed(String),
}

/// Compares the view of a copy with the kernel's mount of it; what was taken in, and whether home locations
/// alone would have shown the same. `before`: a copy of it, where it has fast commits.
fn try_compare(
    name: &str,
    copy: &Path,
    mount: &Path,
    before: Option<&Path>,
) -> Result<(Recovery, bool), Unlike> {
    let (shown, home) = (view(copy, State::Recovered), view(copy, State::Home));
    let kernel = host(copy, mount).map_err(|why| {
        let shown = shown.as_ref().map(|(_, volume)| volume.info().recovery);
        Unlike::Refused(format!("{name}: {}; the view: {shown:?}", why.trim_end()))
    })?;
    let (shown, volume) = shown.map_err(|e| Unlike::Differs(format!("{name}: {e}")))?;
    let info = volume.info();
    assert!(!info.needs_recovery && info.stale.is_none(), "{name}: {info:?}");
    let found = unlike(&shown, &kernel, &volume);
    if !found.is_empty() {
        let why = format!("{name}: {:?}\n{}", info.recovery, found.join("\n"));
        return Err(
            match before.is_some_and(|before| is_exposed_by_the_kernel(before, copy, &shown, &kernel)) {
                true => Unlike::Exposed(why),
                false => Unlike::Differs(why),
            },
        );
    }
    let as_home = home.is_ok_and(|(home, _)| unlike(&home, &kernel, &volume).is_empty());
    Ok((info.recovery, as_home))
}

/// Whether the kernel's recovery left an extent tree with a node that fails its own checksum: where an inode
/// is used again within one log, fast commits' replay keeps nodes of the file before, since its buffer cache
/// has them as verified. The next mount cannot read them: of such a volume it is no oracle.
fn is_damaged_by_the_kernel(copy: &Path) -> bool {
    let out = Command::new("e2fsck").arg("-fn").arg(copy).output().unwrap();
    String::from_utf8_lossy(&out.stdout).contains("checksum does not match extent")
}

/// A piece of a file: where its run lies in the volume, and its bytes.
type Piece = (RunPlace, Vec<u8>);

/// A file's content, a block of 1 KiB at a time.
fn pieces(volume: &Volume, image: &Image, path: &[u8]) -> Option<Vec<Piece>> {
    let inode = resolve(volume, image, path).ok()??;
    let mut pieces = Vec::new();
    while let Some(run) = block_on(volume.map(image, &inode, pieces.len() as u64 * PIECE)).ok()? {
        for inside in (0..run.len).step_by(PIECE as usize) {
            let mut bytes = vec![0; PIECE.min(run.len - inside) as usize];
            if let RunPlace::Volume(at) = run.place {
                block_on(image.content(at + inside, &mut bytes)).ok()?;
            }
            pieces.push((run.place, bytes));
        }
    }
    Some(pieces)
}

/// A block of the smallest volumes.
const PIECE: u64 = 1024;

/// Whether the kernel's recovery has put bytes into files that no log gives them, and that is all that is
/// unlike: where an inode is used again within one log, its replay keeps blocks of what the inode was before
/// (a directory most often), and a block of the new file that no tag names then shows them. So: the trees are
/// the same but for content of regular files, and each block of which differs is a hole in the view, and a
/// block of the volume in the kernel's result.
fn is_exposed_by_the_kernel(before: &Path, after: &Path, shown: &Shown, kernel: &Shown) -> bool {
    let ((volume, image), (then, recovered)) =
        (open(before, State::Recovered).unwrap(), open(after, State::Home).unwrap());
    let mut found = 0;
    let mut alike = shown.clone();
    for (path, node) in &mut alike.tree {
        let Some(other) = kernel.tree.get(path) else { return false };
        if node.content == other.content {
            continue;
        }
        let (Some(ours), Some(theirs)) = (pieces(&volume, &image, path), pieces(&then, &recovered, path))
        else {
            return false;
        };
        let unlike: Vec<_> = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours.1 != theirs.1).collect();
        let told = |(ours, theirs): &(&Piece, &Piece)| {
            ours.0 == RunPlace::Zeros && matches!(theirs.0, RunPlace::Volume(_))
        };
        if ours.len() != theirs.len() || unlike.is_empty() || !unlike.iter().all(told) {
            return false;
        }
        found += unlike.len();
        node.content = other.content;
    }
    found > 0 && unlike(&alike, kernel, &volume).is_empty()
}

/// What came of a configuration's copies.
#[derive(Default)]
struct Count {
    transactions: u64,
    fast_commits: u64,
    /// Home locations alone would have shown something else.
    told: u64,
    refused: u64,
    damaged: u64,
    exposed: u64,
    unlike: Vec<String>,
}

impl Count {
    /// Takes a copy of the mounted volume, and compares it.
    fn copy(&mut self, name: &str, case: &Case, bench: &Bench) {
        let is_fast = case.args.contains("fast_commit");
        let copy = bench.copied();
        let before = is_fast.then(|| bench.image.with_extension("before"));
        if let Some(before) = &before {
            fs::copy(copy, before).unwrap();
        }
        match try_compare(name, copy, &bench.other, before.as_deref()) {
            Ok((found, as_home)) => {
                self.transactions += found.transactions;
                self.fast_commits += found.fast_commits;
                self.told += u64::from(!as_home);
            }
            // Of what fast commits say the kernel cannot recover all.
            Err(Unlike::Refused(why)) if is_fast => {
                eprintln!("{why}");
                self.refused += 1;
            }
            Err(Unlike::Exposed(why)) => {
                eprintln!("exposed by the kernel: {why}");
                self.exposed += 1;
            }
            Err(Unlike::Differs(why)) if is_fast && is_damaged_by_the_kernel(copy) => {
                eprintln!("damaged by the kernel: {why}");
                self.damaged += 1;
            }
            Err(Unlike::Refused(why) | Unlike::Differs(why)) => {
                eprintln!("DIFFERS: {why}");
                self.unlike.push(why);
            }
        }
    }

    /// Says and records it, and that it was no empty run.
    fn say(&self, case: &Case, copies: u64, seed: u64) {
        let Count { transactions, fast_commits, told, refused, damaged, exposed, ref unlike } = *self;
        let name = case.name;
        eprintln!(
            "{name}: {copies} copies, {refused} refused by the kernel, {damaged} damaged and {exposed} exposed by \
             it, {transactions} transactions, {fast_commits} fast commits, {told} not at home"
        );
        let fields = [
            ("configuration", name.into()),
            ("mkfs", case.args.into()),
            ("mount", case.options.into()),
            ("seed", seed.into()),
            ("copies", copies.into()),
            ("transactions", transactions.into()),
            ("fast_commits", fast_commits.into()),
            ("refused_by_the_kernel", refused.into()),
            ("damaged_by_the_kernel", damaged.into()),
            ("exposed_by_the_kernel", exposed.into()),
            ("unlike", unlike.len().into()),
        ];
        add("view", "root_ext_journal", &fields);
        let left_out = damaged + exposed;
        assert!(left_out <= 1 + copies / 20, "{name}: {left_out} of {copies} copies are left out as damaged");
        assert!(fast_commits > 0 || !case.fast, "{name}: no copy had a fast commit");
        assert!(transactions > 0, "{name}: no copy had anything to recover");
        assert!(told > 0, "{name}: home locations alone would have done");
    }
}

/// The same of a copy that must be mounted, and shown as it is.
fn compare(name: &str, copy: &Path, mount: &Path) -> (Recovery, bool) {
    try_compare(name, copy, mount, None).unwrap_or_else(
        |(Unlike::Refused(why) | Unlike::Differs(why) | Unlike::Exposed(why))| panic!("{why}"),
    )
}

#[test]
fn copies_of_a_mounted_volume_equal_the_kernels_recovery() {
    if !ready("copies_of_a_mounted_volume_equal_the_kernels_recovery") {
        return;
    }
    let bench = Bench::new();
    let (copies, seed) = (setting("NEARSIDE_COPIES", 3), setting("NEARSIDE_SEED", 1));
    let only = std::env::var("EXT_VARIANT").ok();
    let mut differ = Vec::new();
    for (nr, case) in CASES.iter().enumerate() {
        if only.as_ref().is_some_and(|only| only != case.name) || !make_case(case, &bench.image) {
            continue;
        }
        let mounted = match Mount::new(&bench.image, &bench.mount, case.options) {
            Ok(mounted) => mounted,
            Err(why) => {
                needs::left_out(case.name, &why);
                continue;
            }
        };
        let seed = seed.wrapping_mul(1000).wrapping_add(nr as u64);
        let begin = if case.fast { Churn::fast } else { Churn::new };
        let mut churn = begin(mounted.path(), seed, 64 << 10);
        let mut count = Count::default();
        for nr in 0..copies {
            churn.steps(if case.fast { 30 } else { 60 }).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            count.copy(&format!("{}, seed {seed}, copy {nr}", case.name), case, &bench);
        }
        mounted.end().unwrap();
        assert!(!open(&bench.image, State::Recovered).unwrap().0.info().needs_recovery);
        count.say(case, copies, seed);
        differ.extend(count.unlike);
    }
    assert!(differ.is_empty(), "{} copies differ:\n{}", differ.len(), differ.join("\n"));
}

#[test]
fn a_wrapped_log() {
    if !ready("a_wrapped_log") {
        return;
    }
    let bench = Bench::new();
    let mounted = bench.mounted(&c("wrapped", "-t ext4 -b 4096 -J size=4", "commit=300"));
    let mut churn = Churn::new(mounted.path(), 5, 16 << 10);
    let mut wrapped = 0;
    for nr in 0..200 {
        churn.steps(40).unwrap();
        File::open(&bench.mount).unwrap().sync_all().unwrap();
        let (headers, start, first) = log_of(bench.copied(), 4096);
        // A commit of the live part of the log lies before its start.
        if start == 0 || !headers.iter().any(|(nr, kind, tid)| *kind == 2 && *nr < start && *tid >= first) {
            continue;
        }
        let (recovery, _) = compare(&format!("copy {nr}"), &bench.copy, &bench.other);
        assert!(recovery.transactions > 1);
        wrapped += 1;
        if wrapped == 3 {
            break;
        }
    }
    assert!(wrapped > 0, "the log never wrapped");
    mounted.end().unwrap();
}

/// A directory's blocks are journaled, and freed in a later transaction; what is then written there as a
/// file's data must not be covered by what was journaled.
#[test]
fn a_revoke_across_transactions() {
    if !ready("a_revoke_across_transactions") {
        return;
    }
    let bench = Bench::new();
    let mounted = bench.mounted(&c("revoke", "-t ext4 -b 4096", "commit=300"));
    let mount = &bench.mount;
    let sync = || File::open(mount).unwrap().sync_all().unwrap();
    let crowd = mount.join("crowd");
    fs::create_dir(&crowd).unwrap();
    for nr in 0..2000 {
        File::create(crowd.join(format!("{nr}{}", "c".repeat(60)))).unwrap();
    }
    sync();
    let (volume, source) = open(bench.copied(), State::Recovered).unwrap();
    let inode = resolve(&volume, &source, b"crowd").unwrap().unwrap();
    assert!(inode.size > 100_000);
    fs::remove_dir_all(&crowd).unwrap();
    sync();
    // All that is left of the volume, and so the directory's blocks, too.
    let file = File::create(mount.join("data")).unwrap();
    let mut at = 0;
    while file.write_all_at(&[0xDA; 65536], at).is_ok() {
        at += 65536;
    }
    file.sync_all().unwrap();
    drop(file);
    let copy = bench.copied();
    let (headers, start, first) = log_of(copy, 4096);
    assert!(start != 0 && headers.iter().any(|(_, kind, tid)| *kind == 5 && *tid >= first), "no revoke");

    // Of the file's blocks, some are in the log as a directory's.
    let (volume, source) = open(copy, State::Recovered).unwrap();
    let inode = resolve(&volume, &source, b"data").unwrap().unwrap();
    let (mut from, mut logged) = (0, 0);
    let said = run("debugfs", &["-R", "logdump -a", copy.to_str().unwrap()]).unwrap();
    let said = String::from_utf8_lossy(&said);
    let homes: Vec<u64> = said
        .lines()
        .filter_map(|l| l.trim().strip_prefix("FS block ")?.split(' ').next()?.parse().ok())
        .collect();
    while let Some(run) = block_on(volume.map(&source, &inode, from)).unwrap() {
        if let RunPlace::Volume(at) = run.place {
            let blocks = at / 4096..(at + run.len) / 4096;
            logged += homes.iter().filter(|home| blocks.contains(home)).count();
        }
        from += run.len;
    }
    assert!(logged > 10, "{logged} blocks of the file are in the log, of {}", homes.len());
    compare("revoke", copy, &bench.other);
    mounted.end().unwrap();
}

/// Damage to the log: the view ends where the kernel's recovery does, and refuses what it refuses.
#[test]
fn a_damaged_log_ends_as_the_kernels_does() {
    if !ready("a_damaged_log_ends_as_the_kernels_does") {
        return;
    }
    let bench = Bench::new();
    let damaged = bench.image.with_extension("damaged");
    let (copies, seed) = (setting("NEARSIDE_COPIES", 8), setting("NEARSIDE_SEED", 1));
    for name in ["default", "nocsum", "csum-v1", "async", "no64bit"] {
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        let mounted = bench.mounted(case);
        let mut churn = Churn::new(mounted.path(), seed, 16 << 10);
        churn.steps(80).unwrap();
        let copy = bench.copied();
        mounted.end().unwrap();

        let (headers, start, first) = log_of(copy, 4096);
        let live: Vec<_> = headers.iter().filter(|(_, _, tid)| *tid >= first).collect();
        assert!(start != 0 && live.len() > 10, "{name}: {} blocks", live.len());
        let said = run("debugfs", &["-R", "blocks <8>", copy.to_str().unwrap()]).unwrap();
        let places: Vec<u64> =
            String::from_utf8(said).unwrap().split_whitespace().map(|nr| nr.parse().unwrap()).collect();
        let mut random = nearside_random::Rng(seed);
        let (mut equal, mut refused, mut wary) = (0, 0, 0);
        for nr in 0..copies {
            fs::copy(copy, &damaged).unwrap();
            // First the last commit, which was not written then: the log ends before it, whatever its form.
            // What random damage does hangs on how much lies behind it, in `async` most of all.
            let last = live.iter().filter(|(_, kind, _)| *kind == 2).max_by_key(|(_, _, tid)| *tid);
            let drawn = live[random.index(live.len())];
            let (block, kind, tid) = if nr == 0 { last.copied().unwrap() } else { drawn };
            // One that was not written, what it had before, or one field of it.
            let file = OpenOptions::new().write(true).open(&damaged).unwrap();
            let at = places[*block] * 4096;
            let what = if nr == 0 { 0 } else { random.below(3) };
            match what {
                0 => file.write_all_at(&[0; 4096], at).unwrap(),
                1 => file.write_all_at(&tid.wrapping_sub(1).to_be_bytes(), at + 8).unwrap(),
                _ => file.write_all_at(&[random.below(256) as u8], at + 12 + random.below(60)).unwrap(),
            }
            drop(file);
            let name = format!("{name}, seed {seed}, {nr}: damage {what} to block {block}, {kind} of {tid}");
            let ours = view(&damaged, State::Recovered);
            let kernel = host(&damaged, &bench.other);
            match (ours, kernel) {
                (Ok((ours, volume)), Ok(kernel)) => {
                    let found = unlike(&ours, &kernel, &volume);
                    assert!(found.is_empty(), "{name}: {}", found.join("\n"));
                    equal += 1;
                }
                (Err(_), Err(_)) => refused += 1,
                // The kernel refuses the volume for any block of the log that is damaged; the view, whoever
                // asks for that block, and a transaction that was being committed is not there.
                (Ok(_), Err(_)) => wary += 1,
                (Err(why), Ok(_)) => panic!("{name}: the kernel mounts it: {why}"),
            }
        }
        eprintln!("{name}: {equal} equal, {refused} refused by both, {wary} by the kernel alone");
        assert!(equal > 0, "{name}");
    }
}
