//! The recovered view of a volume that was not unmounted: of copies of a mounted image, taken while a
//! workload goes on, the view equals the kernel's mount, which recovers the copy first.
//!
//! `NEARSIDE_COPIES` sets how many copies each variant gives, `NEARSIDE_SEED` where the workload begins;
//! `EXT_VARIANT` chooses one of them.

mod ext_images;

use std::collections::BTreeMap;
use std::fs::{self, File};
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
    c("no64bit", "-t ext4 -O ^64bit", "commit=300"),
    c("nocsum", "-t ext4 -O ^metadata_csum", "commit=300"),
    c("nocsum-no64bit", "-t ext4 -O ^metadata_csum,^64bit", "commit=300"),
    c("csum-v1", "-t ext4 -O ^metadata_csum", "commit=300,journal_checksum"),
    c("async", "-t ext4 -b 4096", "commit=300,data=writeback,journal_async_commit"),
    c("async-v1", "-t ext4 -O ^metadata_csum", "commit=300,data=writeback,journal_async_commit"),
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
