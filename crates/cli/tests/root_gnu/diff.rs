//! `diff`: a volume and changed copies of its tree, in another volume or where the kernel shows that. That
//! bytes differ, and what is in one of the two alone, is diffutils' word; the rest is the kernel's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nearside_conformance::record;
use nearside_conformance::volume::{Mounted, ext, must, tool};
use nearside_random::Rng;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};
use serde_json::{Value, json};

use super::{Both, cases, some, sorted, walk};

const PATHS: [&str; 8] = ["", "", "/one", "/open", "/one/sub folder", "/open/both", "/empty", "/sticky"];

const KINDS: [&str; 8] = ["type", "mode", "owner", "size", "time", "target", "device", "content"];

/// Changed copies, in folders by their numbers.
fn copies() -> u64 {
    cases() / 10 + 1
}

/// The tree's volume, and one of changed copies.
fn volumes(test: &str) -> Option<(Both, Mounted)> {
    let both = Both::with(test, &["diff", "cp"], shorten)?;
    let (image, place) = (both.folder.path().join("copies.img"), both.folder.path().join("copies"));
    ext(&image, 64 + 4 * copies(), None, &["-t", "ext4", "-I", "256"]);
    let mount = Mounted::new(&["-o", "loop"], &image, &place);
    for nth in 0..copies() {
        let copy = mount.path().join(nth.to_string());
        must(tool("cp").arg("-a").arg(both.mount.path()).arg(&copy));
        let mut random = Rng(nth);
        for _ in 0..random.below(12) {
            change(&mut random, &copy);
        }
    }
    mount.end();
    Some((both, Mounted::new(&["-o", "loop,ro"], &image, &place)))
}

/// What is read in each case is not GiB long.
fn shorten(root: &Path) {
    for path in walk(root) {
        let path = root.join(path);
        let known = fs::symlink_metadata(&path).unwrap();
        if known.is_file() && known.len() > 100_000 {
            File::options().write(true).open(&path).unwrap().set_len(70_000).unwrap();
        }
    }
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path).unwrap().is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
}

fn touch(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// One change, after which times are in half of the cases what they were.
fn change(random: &mut Rng, top: &Path) {
    let paths = walk(top);
    let path = top.join(&paths[random.index(paths.len())]);
    let folder = path.parent().unwrap().to_owned();
    let before = [&path, &folder].map(|path| fs::symlink_metadata(path).unwrap());
    let known = &before[0];
    match random.below(11) {
        0 => remove(&path),
        1 if known.is_dir() => drop(File::create_new(path.join(OsStr::from_bytes(b"new\n\xff")))),
        2 if known.is_file() && known.len() > 0 => {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"y", random.below(known.len())).unwrap();
        }
        3 if known.is_file() => fs::write(&path, vec![b'z'; random.index(200)]).unwrap(),
        4 if !known.is_symlink() => {
            let bits = random.pick(&[0o700, 0o750, 0o4755, 0o1777]);
            fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
        }
        5 => {
            lchown(&path, Some(random.pick(&[0, 7, 54_321])), Some(random.pick(&[0, 4, 70_000]))).unwrap();
        }
        6 if !known.is_dir() => {
            remove(&path);
            symlink(random.pick(&["one/plain", "else\nwhere"]), &path).unwrap();
        }
        7 => {
            remove(&path);
            fs::create_dir(&path).unwrap();
        }
        8 => touch(&path, known.mtime(), known.mtime_nsec() ^ 1),
        9 => {
            remove(&path);
            let kind = random.pick(&[
                FileType::RegularFile,
                FileType::Fifo,
                FileType::Socket,
                FileType::CharacterDevice,
                FileType::BlockDevice,
            ]);
            let device = makedev(random.pick(&[1, 7]), random.pick(&[3, 70_000]));
            mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device).unwrap();
        }
        // In its place a change may have put what is no folder.
        _ => drop(fs::create_dir_all(folder.join(format!("folder {}/below", random.below(9))))),
    }
    if random.in_of(1, 2) {
        for (path, known) in [&path, &folder].into_iter().zip(&before) {
            if fs::symlink_metadata(path).is_ok() {
                touch(path, known.mtime(), known.mtime_nsec());
            }
        }
    }
}

/// A path below the roots, and what is told of it.
struct Told {
    below: PathBuf,
    what: &'static str,
    changes: Vec<&'static str>,
    is_folder: bool,
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn kind(known: &Metadata) -> FileType {
    FileType::from_raw_mode(known.mode())
}

/// A kind of files in diff's words.
fn in_words(known: &Metadata) -> &'static str {
    match kind(known) {
        FileType::RegularFile if known.len() == 0 => "regular empty file",
        FileType::RegularFile => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character special file",
        FileType::BlockDevice => "block special file",
        FileType::Unknown => "weird file",
    }
}

fn has(text: &[u8], line: &[u8]) -> bool {
    text.windows(line.len()).any(|window| window == line)
}

/// What of a path differs, in the command's order, where diff said this; and what diff has to say of that.
fn compare(paths: [&Path; 2], [a, b]: [&Metadata; 2], said: &[u8]) -> (Vec<&'static str>, Vec<u8>) {
    let names = paths.map(bytes);
    let differ = |what: &[u8]| [what, names[0], b" and ", names[1], b" differ\n"].concat();
    let (files, links) = (differ(b"Files "), differ(b"Symbolic links "));
    let [first, second] = [a, b].map(|known| in_words(known).as_bytes());
    let kinds =
        [b"File ", names[0], b" is a ", first, b" while file ", names[1], b" is a ", second, b"\n"].concat();
    let both = (kind(a) == kind(b)).then(|| kind(a));
    let are = |what: FileType| both == Some(what);
    let device = are(FileType::CharacterDevice) || are(FileType::BlockDevice);
    let changes: Vec<&'static str> = [
        ("type", both.is_none()),
        ("mode", both.is_some() && !are(FileType::Symlink) && a.mode() != b.mode()),
        ("owner", (a.uid(), a.gid()) != (b.uid(), b.gid())),
        ("size", are(FileType::RegularFile) && a.len() != b.len()),
        ("time", (a.mtime(), a.mtime_nsec()) != (b.mtime(), b.mtime_nsec())),
        ("target", are(FileType::Symlink) && fs::read_link(paths[0]).ok() != fs::read_link(paths[1]).ok()),
        ("device", device && a.rdev() != b.rdev()),
        ("content", are(FileType::RegularFile) && a.len() == b.len() && has(said, &files)),
    ]
    .into_iter()
    .filter_map(|(what, differs)| differs.then_some(what))
    .collect();
    let lines = match both {
        None => kinds,
        Some(FileType::RegularFile) if changes.iter().any(|what| ["size", "content"].contains(what)) => files,
        Some(FileType::Symlink) if changes.contains(&"target") => links,
        Some(FileType::RegularFile | FileType::Symlink | FileType::Directory) => Vec::new(),
        // Pipes, sockets and devices diff calls unlike also where they are not.
        Some(_) if has(said, &kinds) => kinds,
        Some(_) => Vec::new(),
    };
    (changes, lines)
}

/// All that differs between two directories, where diff said this; and what it has to have said of that.
fn truth(sides: [&Path; 2], said: &[u8]) -> (Vec<Told>, Vec<u8>) {
    let known = |side: &Path, below: &Path| fs::symlink_metadata(side.join(below));
    let in_both = |folder: &Path| sides.iter().all(|side| known(side, folder).is_ok_and(|is| is.is_dir()));
    let mut paths: BTreeSet<PathBuf> = sides.iter().flat_map(|side| walk(side)).collect();
    paths.insert(PathBuf::new());
    let (mut all, mut lines) = (Vec::new(), Vec::<u8>::new());
    for below in paths {
        if below.parent().is_some_and(|folder| !in_both(folder)) {
            continue;
        }
        let places = sides.map(|side| side.join(&below));
        let (what, changes, is_folder) = match sides.map(|side| known(side, &below).ok()) {
            [Some(a), Some(b)] => {
                let (changes, of_diff) = compare([&places[0], &places[1]], [&a, &b], said);
                lines.extend(of_diff);
                ("changed", changes, false)
            }
            [a, b] => {
                let nth = usize::from(a.is_none());
                let (folder, name) = (places[nth].parent().unwrap(), places[nth].file_name().unwrap());
                lines.extend([b"Only in ", bytes(folder), b": ", name.as_bytes(), b"\n"].concat());
                let what = ["removed", "added"][nth];
                (what, Vec::new(), a.or(b).is_some_and(|is| is.is_dir()))
            }
        };
        all.push(Told { below, what, changes, is_folder });
    }
    (all, lines)
}

/// A path as JSON has it.
fn in_json(path: &Path) -> Value {
    match path.to_str() {
        Some(text) => json!({ "text": text }),
        None => json!({ "bytes": STANDARD.encode(bytes(path)) }),
    }
}

/// What is to be told, in lines; with `brief` they are those of the command.
fn expected(root: &str, all: Vec<Told>, ignored: &[&str], brief: bool) -> Vec<u8> {
    let mut lines = Vec::<u8>::new();
    for Told { below, what, mut changes, is_folder } in all {
        changes.retain(|what| !ignored.contains(what));
        if what == "changed" && changes.is_empty() {
            continue;
        }
        let path = match bytes(&below) {
            [] => PathBuf::from(root),
            _ => Path::new(root).join(&below),
        };
        if brief {
            let end: &[u8] = if is_folder { b"/\n" } else { b"\n" };
            lines.extend([format!("{what:<8} ").as_bytes(), bytes(&path), end].concat());
        } else {
            lines.extend(format!("{} {what} {}\n", in_json(&path), json!(changes)).as_bytes());
        }
    }
    lines
}

/// The command's own lines of JSON, as [`expected`] has them.
fn told(out: &[u8]) -> Vec<u8> {
    let lines = serde_json::Deserializer::from_slice(out).into_iter::<Value>().map(Result::unwrap);
    let lines = lines.map(|line| {
        format!("{} {} {}\n", line["path"], line["what"].as_str().unwrap_or_default(), line["changes"])
    });
    lines.collect::<String>().into_bytes()
}

#[test]
fn random_changes_are_told_as_diff_and_the_kernel_have_them() {
    let test = "root_gnu::random_changes_are_told_as_diff_and_the_kernel_have_them";
    let Some((both, other)) = volumes(test) else { return };
    let (mut unlike, mut lines) = (Vec::new(), 0);
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let nth = random.below(copies());
        let there = |path: &str| other.path().join(format!("{nth}{path}"));
        // A directory and a file diff takes for the file of that name in the directory.
        let is_other = |path: &str| fs::symlink_metadata(there(path)).is_ok_and(|known| !known.is_dir());
        let path = Some(random.pick(&PATHS)).filter(|path| !is_other(path)).unwrap_or_default();
        let root = if path.is_empty() { "/" } else { path };
        let sides = [PathBuf::from(both.at(path)), there(path)];

        let mut ignored = some(&mut random, &KINDS, 7);
        let ignore = format!("--ignore={}", ignored.join(","));
        let mut nearside = both.nearside("diff");
        if !ignored.is_empty() {
            nearside.arg(ignore);
        }
        if random.in_of(1, 5) {
            nearside.arg("--no-content");
            ignored.push("content");
        }
        let brief = random.in_of(1, 3);
        nearside.arg(if brief { "-q" } else { "--json" });
        match random.in_of(1, 2) {
            true => nearside.arg(root).arg(&sides[1]),
            false => {
                let image = both.folder.path().join("copies.img");
                nearside.arg("--other").arg(image).arg(root).arg(format!("/{nth}{path}"))
            }
        };
        let ours = nearside.output().unwrap();
        let theirs = tool("diff").args(["-rq", "--no-dereference"]).args(&sides).output().unwrap();
        let why = format!("seed {seed}: {nearside:?}\n{}", String::from_utf8_lossy(&ours.stderr));

        if fs::symlink_metadata(&sides[1]).is_err() {
            if [&ours, &theirs].iter().any(|ran| ran.status.code() != Some(2) || !ran.stdout.is_empty()) {
                unlike.push(why);
            }
            continue;
        }
        let (all, of_diff) = truth([&sides[0], &sides[1]], &theirs.stdout);
        let wanted = expected(root, all, &ignored, brief);
        let given = if brief { ours.stdout } else { told(&ours.stdout) };
        let code = Some(i32::from(!wanted.is_empty()));
        if ours.status.code() != code {
            unlike.push(format!("{why}: {}, and not {code:?}", ours.status));
        }
        lines += sorted(&wanted).len() - 1;
        for (ours, theirs) in [(&given, &wanted), (&of_diff, &theirs.stdout)] {
            if sorted(ours) != sorted(theirs) {
                let [ours, theirs] = [ours, theirs].map(|text| text.escape_ascii().to_string());
                unlike.push(format!("{why}\n{ours}\n{theirs}").replace("\\n", "\n"));
            }
        }
    }
    record::alike("random_changes_are_told_as_diff_and_the_kernel_have_them", cases(), 0, &unlike);
    assert!(lines as u64 >= cases() / 2, "{lines} lines");
}
