//! The tree.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;

use nearside_random::Rng;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};

const NAMES: [&[u8]; 16] = [
    b"plain",
    b"two words",
    b".hidden",
    b"!before-dots",
    b"-dash",
    b"UPPER",
    b"a.tar.gz",
    b"b.TAR.GZ",
    b"it's",
    b"back\\slash",
    b"new\nline",
    b"bytes-\xff\xfe",
    "h\u{e9}llo".as_bytes(),
    b"esc-\x1b[31m",
    b"~tilde",
    b"colon: x",
];

const FOLDERS: [&str; 6] = ["", "one", "one/sub folder", "sticky", "open", "open/both"];

/// Makes it in an empty volume.
pub fn make(root: &Path) {
    let mut random = Rng(7);
    let now = fs::metadata(root).unwrap().ctime();
    for folder in FOLDERS {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        for name in NAMES {
            if random.in_of(1, 3) {
                continue;
            }
            file(&mut random, &folder.join(std::ffi::OsStr::from_bytes(name)));
        }
    }
    fs::create_dir(root.join("empty")).unwrap();
    for (name, to) in [
        ("to-file", "one/plain"),
        ("to-folder", "one"),
        ("dangling", "/no\nwhere"),
        ("loop", "loop"),
        ("up", "open/up"),
        ("to-pipe", "pipe"),
    ] {
        symlink(to, root.join(name)).unwrap();
    }
    symlink("../to-folder", root.join("open/up")).unwrap();
    for (name, kind, device) in [
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("large-minor", FileType::BlockDevice, makedev(7, 70_000)),
        ("large-major", FileType::CharacterDevice, makedev(4_000, 1)),
    ] {
        mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    }
    for (folder, mode) in [("sticky", 0o1755), ("open", 0o777), ("open/both", 0o1777), ("empty", 0o2700)] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode)).unwrap();
    }
    times(&mut random, root, now);
}

fn file(random: &mut Rng, path: &Path) {
    let file = File::create(path).unwrap();
    if random.in_of(1, 3) {
        file.set_len(random.pick(&[1, 70_000, 3 << 30])).unwrap();
    }
    drop(file);
    if random.in_of(2, 3) {
        fs::write(path, vec![b'x'; random.pick(&[1, 511, 1024, 1025, 10_240, 10_241, 70_000, 1 << 20])])
            .unwrap();
    }
    let mode = random.pick(&[0o644, 0o600, 0o755, 0o4755, 0o2711, 0o4644, 0o2644, 0o1644, 0o000, 0o001]);
    // Who owns it first: that takes bits away.
    lchown(path, Some(random.pick(&[0, 1, 65_534, 54_321])), Some(random.pick(&[0, 4, 1_234_567]))).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if random.in_of(1, 6) {
        fs::hard_link(path, path.with_extension("other-name")).unwrap();
    }
}

/// Times of long ago, half a year, now and to come; several have the same. None is near what is told apart.
fn times(random: &mut Rng, path: &Path, now: i64) {
    let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() && !entry.is_symlink() {
            times(random, &entry, now);
        }
        let mut time = || Timespec {
            tv_sec: random.pick(&[
                0,
                -1,
                -86_401,
                1_000_000_000,
                now - 86_400,
                now - 100 * 86_400,
                now - 300 * 86_400,
                now + 864_000,
            ]),
            tv_nsec: random.pick(&[0, 0, 1, 500_000_000, 999_999_999]),
        };
        let times = Timestamps { last_access: time(), last_modification: time() };
        utimensat(CWD, &entry, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}
