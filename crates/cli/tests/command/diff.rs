//! `nearside diff` against diffutils and the trees themselves, on changes that chance makes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use nearside_conformance::{needs, volume};
use nearside_random::Rng;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::fixture::{Ran, nearside, on};

const FOLDERS: [&str; 5] = ["", "one", "one/deep", "two", "two/empty"];

/// A tree of whole seconds, which every volume can keep.
fn make(top: &Path) {
    let mut random = Rng(5);
    for folder in FOLDERS {
        fs::create_dir_all(top.join(folder)).unwrap();
        for nth in 0..6 {
            if folder == "two/empty" {
                break;
            }
            let path = top.join(folder).join(format!("file {nth}\u{e9}"));
            let len = random.pick(&[0, 1, 100, 5000, 70_000]);
            fs::write(&path, random.bytes(len)).unwrap();
        }
        if folder != "two/empty" {
            symlink("somewhere", top.join(folder).join("link")).unwrap();
        }
    }
    settle(top);
}

fn settle(path: &Path) {
    let mut paths = Vec::new();
    walk(path, path, &mut paths);
    paths.push(PathBuf::new());
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    for below in paths {
        utimensat(CWD, path.join(below), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// All paths below, without the top.
fn walk(top: &Path, at: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        found.push(entry.strip_prefix(top).unwrap().to_owned());
        if entry.is_dir() && !entry.is_symlink() {
            walk(top, &entry, found);
        }
    }
}

fn remove(path: &Path) {
    match path.is_dir() && !path.is_symlink() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
}

/// One change; times stay what they were but where they are what changes.
fn change(random: &mut Rng, top: &Path) {
    let mut paths = Vec::new();
    walk(top, top, &mut paths);
    let path = top.join(&paths[random.index(paths.len())]);
    let file = path.is_file() && !path.is_symlink();
    match random.below(8) {
        0 => remove(&path),
        1 if path.is_dir() && !path.is_symlink() => {
            fs::write(path.join(format!("new {}", random.below(9))), "new").unwrap()
        }
        2 if file => {
            let mut bytes = fs::read(&path).unwrap();
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
            fs::write(&path, bytes).unwrap();
        }
        3 if file => {
            let len = random.index(200);
            fs::write(&path, random.bytes(len)).unwrap();
        }
        4 if !path.is_symlink() => {
            fs::set_permissions(&path, fs::Permissions::from_mode(random.pick(&[0o700, 0o750, 0o4755])))
                .unwrap();
        }
        5 if path.is_symlink() => {
            remove(&path);
            symlink(format!("elsewhere {}", random.below(9)), &path).unwrap();
        }
        6 if file => {
            remove(&path);
            fs::create_dir(&path).unwrap();
        }
        _ => fs::create_dir_all(top.join(format!("folder {}/below", random.below(9)))).unwrap(),
    }
}

/// What `diff -r` without content says of two trees of this host, and the rest as the trees have it.
fn expected(before: &Path, after: &Path, content: bool) -> BTreeSet<(String, String)> {
    let mut told = BTreeSet::new();
    let diff = Command::new("diff")
        .env("LC_ALL", "C")
        .args(["-rq", "--no-dereference"])
        .arg(before)
        .arg(after)
        .output();
    let diff = String::from_utf8(diff.unwrap().stdout).unwrap();
    for line in diff.lines().filter_map(|line| line.strip_prefix("Only in ")) {
        let (folder, name) = line.split_once(": ").unwrap();
        let path = Path::new(folder).join(name);
        for (top, what) in [(before, "removed"), (after, "added")] {
            if let Ok(path) = path.strip_prefix(top) {
                told.insert((format!("/{}", path.display()), what.to_owned()));
            }
        }
    }
    let mut paths = Vec::new();
    walk(before, before, &mut paths);
    for path in paths {
        let both = [before, after].map(|top| top.join(&path));
        let [Ok(a), Ok(b)] = [&both[0], &both[1]].map(fs::symlink_metadata) else { continue };
        let kind = |m: &fs::Metadata| m.mode() & 0o170_000;
        let mut changes = Vec::new();
        let mut see = |what, differs: bool| changes.extend(differs.then_some(what));
        see("type", kind(&a) != kind(&b));
        see("mode", kind(&a) == kind(&b) && !a.is_symlink() && a.mode() != b.mode());
        see("size", a.is_file() && b.is_file() && a.len() != b.len());
        see("time", a.mtime() != b.mtime());
        see(
            "target",
            a.is_symlink()
                && b.is_symlink()
                && fs::read_link(&both[0]).unwrap() != fs::read_link(&both[1]).unwrap(),
        );
        let same_size = a.is_file() && b.is_file() && a.len() == b.len();
        see("content", content && same_size && fs::read(&both[0]).unwrap() != fs::read(&both[1]).unwrap());
        // What differs in content, diff says as well.
        let said = diff.contains(&format!("Files {} and {} differ", both[0].display(), both[1].display()));
        let bytes = changes.iter().any(|what| ["size", "content"].contains(what));
        assert!(
            !content || a.is_symlink() || kind(&a) != kind(&b) || said == bytes,
            "{}\n{diff}",
            both[0].display()
        );
        if !changes.is_empty() {
            told.insert((format!("/{}", path.display()), changes.join(",")));
        }
    }
    told
}

/// What the command tells: paths, and what of each.
fn told(ran: &Ran) -> BTreeSet<(String, String)> {
    let mut told = BTreeSet::new();
    for line in ran.json() {
        let path = line["path"]["text"].as_str().unwrap().to_owned();
        let changes: Vec<_> =
            line["changes"].as_array().unwrap().iter().map(|what| what.as_str().unwrap()).collect();
        let what =
            if changes.is_empty() { line["what"].as_str().unwrap().to_owned() } else { changes.join(",") };
        if path != "/lost+found" && path != "/" {
            told.insert((path, what));
        }
    }
    told
}

#[test]
fn changes_are_those_that_were_made() {
    let Some(folder) = needs::folder("command::changes_are_those_that_were_made", &["mke2fs", "diff", "cp"])
    else {
        return;
    };
    let at = |name: &str| folder.path().join(name);
    make(&at("before"));
    volume::ext(&at("before.img"), 16, Some(&at("before")), &["-t", "ext4"]);
    for seed in 0..12 {
        let mut random = Rng(seed);
        let after = at(&format!("after-{seed}"));
        volume::must(Command::new("cp").arg("-a").arg(at("before")).arg(&after));
        for _ in 0..random.below(12) {
            change(&mut random, &after);
        }
        // So that content shows where times do not.
        if random.in_of(1, 2) {
            settle(&after);
        }
        let image = at("after.img");
        volume::ext(&image, 16, Some(&after), &["-t", "ext4"]);
        for content in [true, false] {
            let expected = expected(&at("before"), &after, content);
            let mut flags = vec!["--json", "--other", image.to_str().unwrap()];
            if !content {
                flags.push("--no-content");
            }
            let images = on(&at("before.img"), "diff", &flags);
            assert_eq!(told(&images), expected, "seed {seed}: {}", images.err);
            let flags = [&["--json", "/", after.to_str().unwrap()], &flags[3..]].concat();
            let host = on(&at("before.img"), "diff", &flags);
            assert_eq!(told(&host), expected, "seed {seed}: {}", host.err);
        }
        fs::remove_dir_all(&after).unwrap();
    }
}

#[test]
fn what_has_changed_is_said() {
    let Some(folder) = needs::folder("command::what_has_changed_is_said", &["mke2fs"]) else { return };
    let at = |name: &str| folder.path().join(name);
    make(&at("tree"));
    let image = at("disk.img");
    volume::ext(&image, 16, Some(&at("tree")), &["-t", "ext4"]);
    let same = |args: &[&str]| on(&image, "diff", args).good();
    let itself = image.to_str().unwrap();
    assert_eq!(same(&["--other", itself]), "");
    assert_eq!(same(&["--other", itself, "/one", "/one"]), "");
    assert_eq!(same(&["/two/empty", at("tree/two/empty").to_str().unwrap()]), "");
    let file = "/one/file 3\u{e9}";
    let other = at("other");
    fs::write(&other, "1234567").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    fs::File::open(&other).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let len = fs::metadata(at("tree").join(&file[1..])).unwrap().len();
    let ran = |args: &[&str]| {
        let ran = on(&image, "diff", &[args, &[file, other.to_str().unwrap()]].concat());
        (ran.code, ran.text())
    };
    let mode = fs::metadata(at("tree").join(&file[1..])).unwrap().mode() & 0o7777;
    let times = "time 2001-09-09 01:46:40.000000000 +0000 -> 1970-01-01 00:00:00.000000000 +0000";
    let line = format!("changed  {file}: mode {mode:04o} -> 0600, size {len} -> 7, {times}\n");
    assert_eq!(ran(&[]), (1, line));
    assert_eq!(ran(&["-q"]), (1, format!("changed  {file}\n")));
    assert_eq!(ran(&["--ignore", "time,mode,size"]), (0, String::new()));
    // Of other types no more is compared; what is not there is no difference.
    let typed = on(&image, "diff", &["--ignore", "time,owner", "/one", other.to_str().unwrap()]);
    assert_eq!((typed.code, typed.text()), (1, "changed  /one: type directory -> regular file\n".into()));
    for args in [
        &["/missing", other.to_str().unwrap()][..],
        &["/one", "/missing"],
        &["--other", itself, "/one", "/missing"],
    ] {
        let ran = on(&image, "diff", args);
        assert!(
            ran.code == 2 && ran.out.is_empty() && ran.err.contains("/missing: No such file"),
            "{}",
            ran.err
        );
    }
    let link = at("tree/two/link");
    fs::remove_file(&link).unwrap();
    symlink(std::ffi::OsStr::from_bytes(b"x y"), &link).unwrap();
    fs::remove_dir(at("tree/two/empty")).unwrap();
    fs::create_dir(at("tree/two/unlike")).unwrap();
    let ran = on(&image, "diff", &["--ignore=time", "/two", at("tree/two").to_str().unwrap()]);
    let lines = "removed  /two/empty/\nchanged  /two/link: target somewhere -> x y\nadded    /two/unlike/\n";
    assert_eq!((ran.code, &*ran.text()), (1, lines), "{}", ran.err);
    // A stranger who may not read it cannot say.
    let mut stranger = nearside();
    stranger.args(["diff", "--as", "5:5", "--other", itself, "-d"]).arg(&image);
    assert_eq!(Ran::from(stranger.output().unwrap()).code, 2);
}
