//! The recovered view of a volume that was not unmounted: of copies of a mounted image, taken while a
//! workload goes on, the view equals the kernel's mount, which recovers the copy first.
//!
//! `NEARSIDE_COPIES` sets how many copies each variant gives, `NEARSIDE_SEED` where the workload begins;
//! `EXT_VARIANT` chooses one of them.

mod ext_images;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ext_images::churn::Churn;
use ext_images::{Mount, Variant, make, run};
use nearside_conformance::needs;
use nearside_conformance::view::{Image, Tree, block_on, differences, read, read_host, resolve};
use nearside_fsview::acl::AclEntry;
use nearside_fsview::{FileKind, RunPlace, State, Volume};

const TOOLS: &[&str] =
    &["mke2fs", "tune2fs", "debugfs", "mount", "umount", "setfacl", "getfacl", "setfattr", "fallocate"];

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
];

fn ready(test: &str) -> bool {
    let loops = Path::new("/dev/loop-control").exists();
    if !loops {
        needs::left_out(test, "no loop devices");
    }
    loops && needs::root(test) && needs::tools(test, TOOLS)
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |said| said.parse().unwrap_or_else(|e| panic!("{name}={said}: {e}")))
}

fn make_case(case: &Case, image: &Path) -> bool {
    let variant = Variant { name: case.name, args: case.args, after: "" };
    let made = make(&variant, image, 96, None).unwrap();
    if !made {
        needs::left_out(case.name, "this mke2fs does not know it");
    }
    made
}

fn open(image: &Path, state: State) -> Result<(Volume, Image), String> {
    let source = Image::open(image).unwrap();
    let volume = block_on(Volume::open_as(&source, state)).map_err(|e| e.to_string())?;
    Ok((volume, source))
}

/// ACLs by path, as `getfacl` says them.
type Acls = BTreeMap<String, Vec<String>>;

/// What a copy shows.
struct Shown {
    tree: Tree,
    acls: Acls,
}

fn view(image: &Path, state: State) -> Result<(Shown, Volume), String> {
    let (volume, source) = open(image, state)?;
    let tree = read(&volume, &source).map_err(|e| e.to_string())?;
    let mut acls = Acls::new();
    for (path, node) in tree.iter().filter(|(_, node)| node.kind != FileKind::Symlink) {
        let inode = resolve(&volume, &source, path).map_err(|e| e.to_string())?.unwrap();
        if let Some(acl) = block_on(volume.acl(&source, &inode)).map_err(|e| e.to_string())? {
            let mut lines: Vec<_> = acl.entries.iter().map(line).collect();
            lines.sort();
            acls.insert(String::from_utf8_lossy(path).trim_start_matches('/').into(), lines);
        }
        assert_eq!(inode.size, node.size);
    }
    Ok((Shown { tree, acls }, volume))
}

fn line(entry: &AclEntry) -> String {
    let bits = |perm: u8| -> String {
        [(4, 'r'), (2, 'w'), (1, 'x')].map(|(bit, c)| if perm & bit != 0 { c } else { '-' }).iter().collect()
    };
    match entry {
        AclEntry::UserObj(p) => format!("user::{}", bits(*p)),
        AclEntry::User(id, p) => format!("user:{id}:{}", bits(*p)),
        AclEntry::GroupObj(p) => format!("group::{}", bits(*p)),
        AclEntry::Group(id, p) => format!("group:{id}:{}", bits(*p)),
        AclEntry::Mask(p) => format!("mask::{}", bits(*p)),
        AclEntry::Other(p) => format!("other::{}", bits(*p)),
    }
}

/// What the kernel shows of a copy, which it recovers; an error where it mounts none of it.
fn host(image: &Path, mount: &Path) -> Result<Shown, String> {
    // A loop device of a mount for reading only could not be written: there would be no recovery.
    let mounted = Mount::new(image, mount, "rw")?;
    let tree = read_host(mounted.path()).map_err(|e| e.to_string())?;
    let script = format!("cd '{}' && getfacl -RnpE --skip-base .", mount.display());
    let said = String::from_utf8(run("sh", &["-c", &script])?).unwrap();
    let mut acls = Acls::new();
    for file in said.split("\n\n") {
        let Some(path) = file.lines().find_map(|l| l.strip_prefix("# file: ")) else { continue };
        let mut lines: Vec<_> = file.lines().filter(|l| !l.starts_with('#')).map(String::from).collect();
        lines.sort();
        acls.insert(path.trim_start_matches("./").into(), lines);
    }
    mounted.end()?;
    Ok(Shown { tree, acls })
}

/// Where the view and the mount differ. What awaits clean-up has its blocks freed by the mount, and then a
/// new time.
fn unlike(view: &Shown, host: &Shown, orphans: bool) -> Vec<String> {
    let mut found = differences(&view.tree, &host.tree, &|node| {
        if orphans {
            (node.sectors, node.mtime_ns) = (0, 0);
        }
    });
    if view.acls != host.acls {
        found.push(format!("ACLs: view {:?}\n    host {:?}", view.acls, host.acls));
    }
    found
}

fn orphans(volume: &Volume) -> bool {
    volume.info().warnings.iter().any(|warning| warning.contains("await clean-up"))
}

/// Compares the view of a copy with the kernel's mount of it; how many transactions were taken in, and
/// whether home locations alone would have shown the same.
fn compare(name: &str, copy: &Path, mount: &Path) -> (u64, bool) {
    let (shown, volume) = view(copy, State::Recovered).unwrap_or_else(|e| panic!("{name}: {e}"));
    let home = view(copy, State::Home);
    let info = volume.info();
    assert!(!info.needs_recovery && info.stale.is_none(), "{name}: {info:?}");
    let kernel = host(copy, mount).unwrap_or_else(|e| panic!("{name}: {e}"));
    let found = unlike(&shown, &kernel, orphans(&volume));
    assert!(found.is_empty(), "{name}: {:?}\n{}", info.recovery, found.join("\n"));
    let as_home = home.is_ok_and(|(home, _)| unlike(&home, &kernel, true).is_empty());
    (info.recovery.transactions, as_home)
}

#[test]
fn copies_of_a_mounted_volume_equal_the_kernels_recovery() {
    if !ready("copies_of_a_mounted_volume_equal_the_kernels_recovery") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let (mount, other) = (dir.path().join("mount"), dir.path().join("other"));
    let (copies, seed) = (setting("NEARSIDE_COPIES", 3), setting("NEARSIDE_SEED", 1));
    let only = std::env::var("EXT_VARIANT").ok();
    for (nr, case) in CASES.iter().enumerate() {
        if only.as_ref().is_some_and(|only| only != case.name) || !make_case(case, &image) {
            continue;
        }
        let mounted = match Mount::new(&image, &mount, case.options) {
            Ok(mounted) => mounted,
            Err(why) => {
                needs::left_out(case.name, &why);
                continue;
            }
        };
        let seed = seed.wrapping_mul(1000).wrapping_add(nr as u64);
        let mut churn = Churn::new(mounted.path(), seed, 64 << 10);
        let (mut transactions, mut told) = (0, 0);
        for nr in 0..copies {
            churn.steps(60).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            fs::copy(&image, &copy).unwrap();
            let (count, as_home) = compare(&format!("{}, seed {seed}, copy {nr}", case.name), &copy, &other);
            transactions += count;
            told += u64::from(!as_home);
        }
        mounted.end().unwrap();
        assert!(!open(&image, State::Recovered).unwrap().0.info().needs_recovery);
        eprintln!("{}: {copies} copies, {transactions} transactions, {told} not at home", case.name);
        assert!(transactions > 0, "{}: no copy had anything to recover", case.name);
        assert!(told > 0, "{}: home locations alone would have done", case.name);
    }
}

/// A journal as it lies at home: (block in it, kind, transaction) of all that has the magic, and the block
/// and transaction at which the log begins.
fn log_of(image: &Path, block: usize) -> (Vec<(usize, u32, u32)>, usize, u32) {
    let file = image.with_extension("journal");
    run("debugfs", &["-R", &format!("dump <8> {}", file.display()), image.to_str().unwrap()]).unwrap();
    let bytes = fs::read(file).unwrap();
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let blocks = (1..bytes.len() / block).map(|nr| (nr, nr * block));
    let headers = blocks.filter(|(_, at)| word(*at) == 0xC03B_3998);
    let headers = headers.map(|(nr, at)| (nr, word(at + 4), word(at + 8))).collect();
    (headers, word(0x1C) as usize, word(0x18))
}

#[test]
fn a_wrapped_log() {
    if !ready("a_wrapped_log") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let (mount, other) = (dir.path().join("mount"), dir.path().join("other"));
    assert!(make_case(&c("wrapped", "-t ext4 -b 4096 -J size=4", ""), &image));
    let mounted = Mount::new(&image, &mount, "commit=300").unwrap();
    let mut churn = Churn::new(mounted.path(), 5, 16 << 10);
    let mut wrapped = 0;
    for nr in 0..200 {
        churn.steps(40).unwrap();
        File::open(&mount).unwrap().sync_all().unwrap();
        fs::copy(&image, &copy).unwrap();
        let (headers, start, first) = log_of(&copy, 4096);
        // A commit of the live part of the log lies before its start.
        if start == 0 || !headers.iter().any(|(nr, kind, tid)| *kind == 2 && *nr < start && *tid >= first) {
            continue;
        }
        let (transactions, _) = compare(&format!("copy {nr}"), &copy, &other);
        assert!(transactions > 1);
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
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let (mount, other) = (dir.path().join("mount"), dir.path().join("other"));
    assert!(make_case(&c("revoke", "-t ext4 -b 4096", ""), &image));
    let mounted = Mount::new(&image, &mount, "commit=300").unwrap();
    let sync = || File::open(&mount).unwrap().sync_all().unwrap();
    let crowd = mount.join("crowd");
    fs::create_dir(&crowd).unwrap();
    for nr in 0..2000 {
        File::create(crowd.join(format!("{nr}{}", "c".repeat(60)))).unwrap();
    }
    sync();
    let inode = run("debugfs", &["-R", "stat <2>", image.to_str().unwrap()]).unwrap();
    assert!(!inode.is_empty());
    let (volume, source) = {
        fs::copy(&image, &copy).unwrap();
        open(&copy, State::Recovered).unwrap()
    };
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
    fs::copy(&image, &copy).unwrap();
    let (headers, start, first) = log_of(&copy, 4096);
    assert!(start != 0 && headers.iter().any(|(_, kind, tid)| *kind == 5 && *tid >= first), "no revoke");

    // Of the file's blocks, some are in the log as a directory's.
    let (volume, source) = open(&copy, State::Recovered).unwrap();
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
    compare("revoke", &copy, &other);
    mounted.end().unwrap();
}

/// Damage to the log: the view ends where the kernel's recovery does, and refuses what it refuses.
#[test]
fn a_damaged_log_ends_as_the_kernels_does() {
    if !ready("a_damaged_log_ends_as_the_kernels_does") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let (damaged, mount) = (dir.path().join("damaged"), dir.path().join("mount"));
    let other = dir.path().join("other");
    let (copies, seed) = (setting("NEARSIDE_COPIES", 8), setting("NEARSIDE_SEED", 1));
    for name in ["default", "nocsum", "csum-v1", "async", "no64bit"] {
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        assert!(make_case(case, &image));
        let mounted = Mount::new(&image, &mount, case.options).unwrap();
        let mut churn = Churn::new(mounted.path(), seed, 16 << 10);
        churn.steps(80).unwrap();
        fs::copy(&image, &copy).unwrap();
        mounted.end().unwrap();

        let (headers, start, first) = log_of(&copy, 4096);
        let live: Vec<_> = headers.iter().filter(|(_, _, tid)| *tid >= first).collect();
        assert!(start != 0 && live.len() > 10, "{name}: {} blocks", live.len());
        let said = run("debugfs", &["-R", "blocks <8>", copy.to_str().unwrap()]).unwrap();
        let places: Vec<u64> =
            String::from_utf8(said).unwrap().split_whitespace().map(|nr| nr.parse().unwrap()).collect();
        let mut random = nearside_random::Rng(seed);
        let (mut equal, mut refused, mut wary) = (0, 0, 0);
        for nr in 0..copies {
            fs::copy(&copy, &damaged).unwrap();
            let (block, kind, tid) = live[random.index(live.len())];
            // One that was not written, what it had before, or one field of it.
            let file = OpenOptions::new().write(true).open(&damaged).unwrap();
            let at = places[*block] * 4096;
            let what = random.below(3);
            match what {
                0 => file.write_all_at(&[0; 4096], at).unwrap(),
                1 => file.write_all_at(&tid.wrapping_sub(1).to_be_bytes(), at + 8).unwrap(),
                _ => file.write_all_at(&[random.below(256) as u8], at + 12 + random.below(60)).unwrap(),
            }
            drop(file);
            let name = format!("{name}, seed {seed}, {nr}: damage {what} to block {block}, {kind} of {tid}");
            let ours = view(&damaged, State::Recovered);
            let kernel = host(&damaged, &other);
            match (ours, kernel) {
                (Ok((ours, volume)), Ok(kernel)) => {
                    let found = unlike(&ours, &kernel, orphans(&volume));
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

/// Fast commits that a mount would do are not done, and not left out silently.
#[test]
fn fast_commits_are_refused_by_name() {
    if !ready("fast_commits_are_refused_by_name") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let (mount, other) = (dir.path().join("mount"), dir.path().join("other"));
    assert!(make_case(&c("fast", "-t ext4 -b 4096 -O fast_commit", ""), &image));
    let mounted = Mount::new(&image, &mount, "commit=300").unwrap();
    fs::write(mount.join("old"), "old").unwrap();
    run("sync", &["-f", mount.to_str().unwrap()]).unwrap();
    fs::copy(&image, &copy).unwrap();
    // Full commits alone are shown.
    let (shown, volume) = view(&copy, State::Recovered).unwrap();
    assert!(shown.tree.contains_key(&b"/old"[..]) && volume.info().recovery.transactions > 0);
    compare("full commits", &copy, &other);
    for nr in 0..3 {
        let file = File::create(mount.join(format!("new{nr}"))).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        file.sync_all().unwrap();
    }
    fs::copy(&image, &copy).unwrap();
    let said = view(&copy, State::Recovered).err().expect("fast commits are live");
    assert!(said.contains("unsupported") && said.contains("fast commits"), "{said}");
    assert!(open(&copy, State::Home).unwrap().0.info().needs_recovery);
    // The kernel has them.
    assert!(host(&copy, &other).unwrap().tree.contains_key(&b"/new2"[..]));
    mounted.end().unwrap();
}
