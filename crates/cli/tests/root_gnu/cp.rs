//! `cp`: what it leaves of a folder, against what GNU cp leaves of another that was the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nearside_conformance::record;
use nearside_conformance::volume::{Mounted, ext};
use nearside_random::Rng;
use rustix::fs::{
    AtFlags, CWD, FileType, SeekFrom, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lsetxattr,
    seek, utimensat,
};

use super::{Both, cases, walk, without};

const FLAGS: [[&str; 2]; 6] = [
    ["-r", "--recursive"],
    ["-R", "--recursive"],
    ["-p", "--preserve"],
    ["-P", "--no-dereference"],
    ["-n", "--no-clobber"],
    ["-v", "--verbose"],
];

/// The first has pipes and devices, which are for `-a`: without it we refuse them.
const FOLDERS: [&str; 11] = [
    "/.",
    "/one",
    "/one/.",
    "/one/sub folder",
    "/open/",
    "/open/both",
    "/empty",
    "/sticky",
    "/dressed",
    "/dressed/.",
    "/dressed/folder/",
];

const LINKS: [&str; 8] =
    ["/to-file", "/to-folder", "/dangling", "/loop", "/up", "/open/up", "/dressed/link", "/missing"];

const DRESSED: [&str; 6] = [
    "/dressed/named",
    "/dressed/listed",
    "/dressed/capable",
    "/dressed/bare",
    "/dressed/islands",
    "/dressed/large",
];

const SPECIAL: [&str; 4] = ["/pipe", "/socket", "/null", "/large-minor"];

const PLACES: [&str; 13] = [
    "new",
    "new/",
    "none/new",
    "folder",
    "folder/",
    "file",
    "to-folder",
    "to-file",
    "to-several",
    "full",
    "full/one",
    "full/plain",
    ".",
];

/// Names of the tree's that may be there before.
const CLASHING: [&str; 12] = [
    "plain",
    "UPPER",
    "it's",
    "one",
    "empty",
    "dressed",
    "named",
    "link",
    "to-file",
    "to-folder",
    "pipe",
    "null",
];

/// An ACL as the system calls have it (include/uapi/linux/posix_acl_xattr.h): its entries' tags, bits and
/// ids.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, bits, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    2u32.to_le_bytes().into_iter().chain(entries.iter().flat_map(entry)).collect()
}

/// Files with extended attributes and ACLs, one with holes, and a large one.
fn dress(root: &Path) {
    const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let folder = root.join("dressed");
    let at = |name: &str| folder.join(name);
    fs::create_dir_all(at("folder")).unwrap();
    for name in ["named", "listed", "capable", "bare", "folder/below"] {
        fs::write(at(name), name.repeat(100)).unwrap();
    }
    symlink("named", at("link")).unwrap();
    let none = u32::MAX;
    let list = acl(&[(1, 6, none), (2, 6, 1234), (4, 4, none), (8, 1, 56), (16, 7, none), (32, 0, none)]);
    for (name, attribute, value) in [
        ("named", "user.one", &b"1"[..]),
        ("named", "user.bytes", b"\0\xff\n"),
        ("named", "user.empty", b""),
        ("folder", "user.folder", b"f"),
        ("folder/below", "trusted.mine", b"m"),
        ("link", "trusted.link", b"l"),
        ("capable", "security.capability", &CAPABILITY),
        ("listed", "system.posix_acl_access", &list),
        ("folder", "system.posix_acl_default", &list),
    ] {
        lsetxattr(at(name), attribute, value, XattrFlags::empty()).unwrap();
    }
    fs::set_permissions(at("bare"), Permissions::from_mode(0o444)).unwrap();
    let islands = File::create(at("islands")).unwrap();
    islands.write_all_at(&[b'i'; 5000], 1 << 20).unwrap();
    islands.write_all_at(&[b'j'; 70_000], 3 << 20).unwrap();
    islands.set_len(9 << 20).unwrap();
    fs::write(at("large"), Rng(9).bytes(3 << 20)).unwrap();
    let time = Timespec { tv_sec: 1_100_000_000, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    for path in walk(&folder).into_iter().chain([PathBuf::new()]) {
        utimensat(CWD, folder.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// What both are asked.
#[derive(Debug)]
struct Case<'a> {
    flags: Vec<&'a str>,
    sources: Vec<&'a OsStr>,
    /// Behind them.
    to: Vec<&'a str>,
    umask: &'a str,
}

/// Whether GNU cp does as we do where this source comes behind those. What is in `/one/.` may take the place
/// of another's: that we refuse, which GNU cp does only of what the command line names. And a folder that it
/// has copied, and finds once more below another, it takes for a hard link.
fn goes_with(source: &OsStr, before: &[&OsStr]) -> bool {
    let below = |folder: &&OsStr| **folder != *source && Path::new(folder).starts_with(source);
    let is_folder = |path: &&OsStr| FOLDERS.iter().any(|folder| **path == **folder);
    !source.as_bytes().ends_with(b"/.") && !before.iter().any(|path| is_folder(path) && below(path))
}

fn case<'a>(random: &mut Rng, files: &'a [OsString]) -> Case<'a> {
    let archive = random.in_of(1, 3);
    let mut flags = Vec::new();
    if archive {
        flags.push(random.pick(&["-a", "--archive"]));
    }
    for names in FLAGS {
        if random.in_of(1, 4) {
            flags.push(random.pick(&names));
        }
    }
    let count = random.pick(&[1, 1, 1, 2, 3]);
    let mut sources: Vec<&OsStr> = Vec::new();
    while sources.len() < count {
        let source: &OsStr = match random.below(if archive { 9 } else { 8 }) {
            // Once more.
            _ if !sources.is_empty() && random.in_of(1, 8) => sources[random.index(sources.len())],
            0..3 => &files[random.index(files.len())],
            3..6 => OsStr::new(random.pick(&FOLDERS[usize::from(!archive)..])),
            6 => OsStr::new(random.pick(&LINKS)),
            7 => OsStr::new(random.pick(&DRESSED)),
            _ => OsStr::new(random.pick(&SPECIAL)),
        };
        if count == 1 || goes_with(source, &sources) {
            sources.push(source);
        }
    }
    let place = random.pick(&PLACES);
    let mut to = vec![place];
    match random.below(5) {
        0 => flags.push(random.pick(&["-T", "--no-target-directory"])),
        1 => to.insert(0, random.pick(&["-t", "--target-directory"])),
        _ => {}
    }
    Case { flags, sources, to, umask: random.pick(&["022", "022", "077", "002", "027"]) }
}

impl Case<'_> {
    fn has(&self, names: &[&str]) -> bool {
        self.flags.iter().any(|flag| names.contains(flag))
    }

    fn run(&self, both: &Both, folder: &Path, own: bool) -> Output {
        let cp = if own { both.nearside("cp") } else { Command::new("cp") };
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask \"$0\"; exec \"$@\"", self.umask]);
        shell.arg(cp.get_program()).args(cp.get_args()).args(&self.flags);
        for source in &self.sources {
            shell.arg(if own { source.to_os_string() } else { both.at(source) });
        }
        shell.args(&self.to).current_dir(folder).env("LC_ALL", "C").output().unwrap()
    }
}

/// What is there before. Nothing is a link but what the command line may name: below DEST we follow none.
fn prepare(folder: &Path, seed: u64) {
    let mut random = Rng(!seed);
    let at = |name: &str| folder.join(name);
    let put = |path: &Path| fs::write(path, "was there").unwrap();
    fs::create_dir_all(at("folder")).unwrap();
    fs::create_dir(at("full")).unwrap();
    put(&at("file"));
    put(&at("several"));
    fs::set_permissions(at("file"), Permissions::from_mode(0o640)).unwrap();
    symlink("folder", at("to-folder")).unwrap();
    symlink("file", at("to-file")).unwrap();
    symlink("several", at("to-several")).unwrap();
    fs::hard_link(at("several"), at("another")).unwrap();
    for name in CLASHING {
        let path = at("full").join(name);
        match random.below(6) {
            0 => put(&path),
            1 => {
                fs::create_dir(&path).unwrap();
                put(&path.join("plain"));
            }
            2 => fs::hard_link(at("several"), &path).unwrap(),
            3 => fs::create_dir(&path).unwrap(),
            _ => {}
        }
    }
}

/// What is known of a file.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    mode: u32,
    owner: (u32, u32),
    /// A directory's own is its file system's.
    len: Option<u64>,
    /// Of the last access and modification; none where that was in this run.
    times: [Option<(i64, i64)>; 2],
    device: u64,
    target: Option<PathBuf>,
    /// The first of its names, where it may have several.
    first: Option<PathBuf>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0u8; 4096];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let mut all = BTreeMap::new();
    for name in names[..len].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 4096];
        let len = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        all.insert(name.to_vec(), value);
    }
    all
}

fn known(folder: &Path) -> BTreeMap<PathBuf, Known> {
    let now = fs::metadata(folder).unwrap().ctime();
    let time =
        |seconds: i64, nanoseconds: i64| (seconds.abs_diff(now) > 3600).then_some((seconds, nanoseconds));
    let mut firsts: HashMap<u64, PathBuf> = HashMap::new();
    let mut all = BTreeMap::new();
    for path in walk(folder) {
        let place = folder.join(&path);
        let is = fs::symlink_metadata(&place).unwrap();
        let file = !is.is_dir();
        let known = Known {
            mode: is.mode(),
            owner: (is.uid(), is.gid()),
            len: file.then_some(is.len()),
            times: [time(is.atime(), is.atime_nsec()), time(is.mtime(), is.mtime_nsec())],
            device: is.rdev(),
            target: fs::read_link(&place).ok(),
            first: file.then(|| firsts.entry(is.ino()).or_insert_with(|| path.clone()).clone()),
            attributes: attributes(&place),
        };
        all.insert(path, known);
    }
    all
}

/// Whether two files of one length have the same bytes. Of holes nothing is read.
fn same_bytes(paths: [&Path; 2]) -> bool {
    let files = paths.map(|path| File::open(path).unwrap());
    for file in &files {
        let mut at = 0;
        while let Ok(data) = seek(file, SeekFrom::Data(at)) {
            at = seek(file, SeekFrom::Hole(data)).unwrap();
            let [a, b] = files.each_ref().map(|file| {
                let mut bytes = vec![0u8; (at - data) as usize];
                file.read_exact_at(&mut bytes, data).unwrap();
                bytes
            });
            if a != b {
                return false;
            }
        }
    }
    true
}

/// In what two folders are unlike.
fn differences(ours: &Path, theirs: &Path) -> Vec<String> {
    /// Sectors of a block: one more or less is for where the rest are.
    const BLOCK: u64 = 8;
    let [a, b] = [ours, theirs].map(known);
    let paths: BTreeSet<&PathBuf> = a.keys().chain(b.keys()).collect();
    let mut unlike = Vec::new();
    for path in paths {
        let (one, other) = (a.get(path), b.get(path));
        if one != other {
            unlike.push(format!("{}:\n  {one:?}\n  {other:?}", path.display()));
            continue;
        }
        if one.is_none_or(|known| FileType::from_raw_mode(known.mode) != FileType::RegularFile) {
            continue;
        }
        let places = [ours.join(path), theirs.join(path)];
        let [blocks, their_blocks] = places.each_ref().map(|path| fs::metadata(path).unwrap().blocks());
        if blocks.abs_diff(their_blocks) > BLOCK {
            unlike.push(format!("{}: {blocks} sectors, and not {their_blocks}", path.display()));
        }
        if !same_bytes([&places[0], &places[1]]) {
            unlike.push(format!("{}: other bytes", path.display()));
        }
    }
    unlike
}

/// What `-v` says was copied, in any order. GNU cp says also what it takes away.
fn copied(out: &[u8]) -> Vec<String> {
    let said = String::from_utf8_lossy(out);
    let mut copied: Vec<String> =
        said.lines().filter(|line| line.contains(" -> ")).map(str::to_owned).collect();
    copied.sort();
    copied
}

/// Whether GNU cp does well to leave what is there, as `-n` has it: in coreutils 9.2 to 9.4 it does not.
fn may_leave(folder: &Path) -> bool {
    let [one, other] = ["one", "other"].map(|name| folder.join(name));
    fs::write(&one, "").unwrap();
    fs::write(&other, "").unwrap();
    Command::new("cp").arg("-n").args([&one, &other]).output().unwrap().status.success()
}

#[test]
fn random_flags_copy_what_cp_copies() {
    let test = "root_gnu::random_flags_copy_what_cp_copies";
    let Some(both) = Both::with(test, &["cp", "sh"], dress) else { return };
    let image = both.folder.path().join("copies.img");
    ext(&image, 512, None, &["-t", "ext4", "-I", "256"]);
    // There, reading changes no time.
    let copies = Mounted::new(&["-o", "loop,noatime"], &image, &both.folder.path().join("copies"));
    let folders = ["ours", "theirs"].map(|name| copies.path().join(name));
    let files = both.files(u64::MAX);
    let may_leave = may_leave(both.folder.path());
    let (mut unlike, mut good) = (Vec::new(), 0);
    for seed in 0..cases() {
        let case = case(&mut Rng(seed), &files);
        let [ours, theirs] = [true, false].map(|own| {
            let folder = &folders[usize::from(!own)];
            prepare(folder, seed);
            case.run(&both, folder, own)
        });
        let mut what = differences(&folders[0], &folders[1]);
        if may_leave || !case.has(&["-n", "--no-clobber"]) {
            if ours.status != theirs.status {
                what.push(format!("{}, and not {}", ours.status, theirs.status));
            }
            if ours.stderr.is_empty() != theirs.stderr.is_empty() {
                what.push("one of them has nothing to say".into());
            }
        }
        if ours.status.success() && theirs.status.success() {
            good += 1;
            let said = [&ours, &theirs].map(|ran| copied(&without(&ran.stdout, both.mount.path())));
            if said[0] != said[1] {
                what.push(format!("{said:#?}"));
            }
        }
        if !what.is_empty() {
            let said = [&ours, &theirs].map(|ran| String::from_utf8_lossy(&ran.stderr));
            unlike.push(format!("seed {seed}: {case:?}\n{}\n{}\n{}", said[0], said[1], what.join("\n")));
        }
        folders.iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
    record::alike("random_flags_copy_what_cp_copies", cases(), 0, &unlike);
    assert!(good >= cases() / 4, "{good}");
}
