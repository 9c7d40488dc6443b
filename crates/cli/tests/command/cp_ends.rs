//! `cp` that does not come to its end: the drive fails, the image becomes shorter, the user ends it. And what
//! is in a copy's place: the image itself, a pipe.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::{self, must, tool};

use crate::fixture::{Ran, Volume, ext4, nearside, on, small};

/// Files that come before the large one, and bytes of each.
const BEFORE: usize = 300;
const EACH: usize = 4000;

/// A volume of a directory: its files' names are long, and the last is large.
fn long_names() -> Volume {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for nth in 0..BEFORE {
        let name = format!("{nth:03}-{}", "n".repeat(200));
        fs::write(tree.join("d").join(name), vec![nth as u8 | 1; EACH]).unwrap();
    }
    fs::write(tree.join("d/z-large"), numbers(3_000_000)).unwrap();
    ext4(folder, tree, 32)
}

fn numbers(n: u32) -> Vec<u8> {
    (0..n).flat_map(u32::to_le_bytes).collect()
}

/// A copy that has begun with files of a directory, and waits until its output is read: the names of files,
/// or an archive, are more than a pipe holds.
struct Waiting {
    process: Child,
    out: Vec<u8>,
}

impl Waiting {
    fn start(volume: &Volume, words: &[&str]) -> Waiting {
        let mut copy = nearside();
        copy.arg("cp").arg("-d").arg(&volume.image).args(words);
        let mut process = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = vec![0; 1000];
        process.stdout.as_mut().unwrap().read_exact(&mut out).unwrap();
        Waiting { process, out }
    }

    /// With all that it has written.
    fn end(mut self) -> Ran {
        let mut ran = Ran::from(self.process.wait_with_output().unwrap());
        self.out.append(&mut ran.out);
        Ran { out: self.out, ..ran }
    }
}

fn cut(image: &Path, len: usize) {
    fs::File::options().write(true).open(image).unwrap().set_len(len as u64).unwrap();
}

/// All that is in a copy of the directory is whole; how many files that are.
fn whole_files(copy: &Path, volume: &Volume) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(copy).unwrap() {
        let name = entry.unwrap().file_name();
        let there = fs::read(volume.tree.join("d").join(&name)).unwrap();
        assert!(fs::read(copy.join(&name)).unwrap() == there, "{name:?}");
        files += 1;
    }
    files
}

/// It fails in the midst of the large file.
#[test]
fn half_a_file_is_not_left_where_the_drive_fails() {
    if !needs::tools("half_a_file_is_not_left_where_the_drive_fails", &["mke2fs"]) {
        return;
    }
    let volume = long_names();
    let image = fs::read(&volume.image).unwrap();
    let large = numbers(3_000_000);
    let half = &large[8 << 20..][..512];
    let middle = (0..image.len()).step_by(512).find(|at| image[*at..].starts_with(half)).unwrap();
    let host = ["--locate", "host", "--compute", "host"];
    for was_there in [false, true] {
        let out = volume.folder.path().join(format!("out-{was_there}"));
        fs::create_dir_all(out.join("d")).unwrap();
        let place = out.join("d/z-large");
        if was_there {
            fs::write(&place, half).unwrap();
        }
        let words = [&host[..], &["-v", "-r", "/d", out.to_str().unwrap()]].concat();
        let copy = Waiting::start(&volume, &words);
        cut(&volume.image, middle);
        let ran = copy.end();
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{}", ran.err);
        let left = fs::metadata(&place).map(|file| file.len());
        assert!(if was_there { left.is_ok_and(|len| len == 0) } else { left.is_err() });
        let _ = fs::remove_file(&place);
        assert_eq!(whole_files(&out.join("d"), &volume), BEFORE);
        fs::write(&volume.image, &image).unwrap();
    }
    // Nor has an archive an end, by which it would be whole.
    let copy = Waiting::start(&volume, &[&host[..], &["--tar", "-", "/d"]].concat());
    cut(&volume.image, middle);
    let ran = copy.end();
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.out.len() > BEFORE * EACH && !ran.out.ends_with(&[0; 512]), "{}", ran.out.len());
}

/// It is ended while it says to who does not read what it has begun.
#[test]
fn half_a_file_is_not_left_where_the_user_ends_it() {
    let Some(volume) = small("half_a_file_is_not_left_where_the_user_ends_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("copy");
    let (mut full, _unread) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    let mut put = |bytes: &[u8]| full.write(bytes).is_ok_and(|n| n > 0);
    while put(&[0; 4096]) || put(&[0]) {}
    full.set_nonblocking(false).unwrap();
    let mut copy = nearside();
    copy.args(["cp", "-v", "-d"]).arg(&volume.image).arg("/hello.txt").arg(&place);
    let mut copy = copy.stdout(OwnedFd::from(full)).spawn().unwrap();
    while !place.exists() {
        assert!(copy.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    must(tool("kill").args(["-TERM", &copy.id().to_string()]));
    assert_eq!(copy.wait().unwrap().signal(), Some(15));
    assert!(!place.exists());
}

/// What was to be written from where the page cache had it is the source's to answer for.
#[test]
fn an_image_that_becomes_shorter_is_named() {
    let test = "an_image_that_becomes_shorter_is_named";
    let Some(volume) = needs::tools(test, &["mke2fs"]).then(long_names) else { return };
    let out = volume.folder.path().join("out");
    let copy = Waiting::start(&volume, &["-v", "-r", "/d", out.to_str().unwrap()]);
    cut(&volume.image, 4096);
    let ran = copy.end();
    assert_eq!(ran.code, 1);
    for line in ran.err.lines() {
        assert!(line.starts_with("nearside: /d/") && line.contains("the file has become shorter"), "{line}");
    }
    let whole = whole_files(&out, &volume);
    assert!(whole > 0 && whole + ran.err.lines().count() == BEFORE + 1, "{whole}: {}", ran.err);
}

/// In an archive zeros take the place of what is gone, and all else is where it belongs.
#[test]
fn an_archive_of_an_image_that_becomes_shorter_holds_together() {
    let test = "an_archive_of_an_image_that_becomes_shorter_holds_together";
    let Some(folder) = needs::folder(test, &["mke2fs", "tar"]) else { return };
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    let bytes = numbers(75_000);
    for nth in 0..40 {
        fs::write(tree.join(format!("d/{nth}")), &bytes[nth..]).unwrap();
    }
    let volume = ext4(folder, tree, 32);
    let copy = Waiting::start(&volume, &["--tar", "-", "/d"]);
    cut(&volume.image, 4096);
    let ran = copy.end();
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("/d/9: Medium error: the file has become shorter ("), "{}", ran.err);
    let all = volume.folder.path().join("all.tar");
    fs::write(&all, ran.out).unwrap();
    let listed = must(tool("tar").arg("-tf").arg(all)).stdout;
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), 41);
}

/// Its bytes, packed or not, and the name that is all it has.
#[test]
fn an_image_is_not_taken_away_by_its_copy() {
    let test = "an_image_is_not_taken_away_by_its_copy";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("x")).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    fs::hard_link(tree.join("a"), tree.join("x/h")).unwrap();
    symlink("a", tree.join("link")).unwrap();
    let volume = ext4(folder, tree, 8);
    let at = |name: &str| volume.folder.path().join(name).to_str().unwrap().to_owned();
    must(tool("gzip").arg("-k").arg(&volume.image));
    fs::create_dir_all(at("o/x")).unwrap();
    for name in ["o/x/h", "one", "read-only"] {
        fs::copy(&volume.image, at(name)).unwrap();
    }
    fs::hard_link(at("one"), at("two")).unwrap();
    fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    for (image, words) in [
        (at("ext4.img.gz"), vec!["/a"]),
        (at("ext4.img"), vec!["-P", "/link"]),
        (at("ext4.img"), vec!["-r", "-T", "/link"]),
        (at("read-only"), vec!["-P", "/link"]),
        (at("two"), vec!["-a", "/a"]),
        (at("o/x/h"), vec!["-a", "/a", "/x"]),
    ] {
        let whole = fs::read(&image).unwrap();
        let place = if image.ends_with("/o/x/h") { at("o") } else { image.clone() };
        let ran = on(image.as_ref(), "cp", &[&words[..], &[place.as_str()]].concat());
        let said = format!("nearside: {image}: this process has it locked\n");
        assert_eq!((ran.code, ran.err), (1, said), "{words:?}");
        assert!(fs::symlink_metadata(&image).unwrap().is_file() && fs::read(&image).unwrap() == whole);
    }
}

/// As `/dev/stdout` leads to a pipe, which GNU cp writes to.
#[test]
fn a_file_is_copied_to_a_pipe_that_a_link_leads_to() {
    let test = "a_file_is_copied_to_a_pipe_that_a_link_leads_to";
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), numbers(500_000)).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    let holes = fs::File::create(tree.join("holes")).unwrap();
    holes.write_all_at(b"an island", 1 << 20).unwrap();
    holes.set_len(3_000_001).unwrap();
    let volume = ext4(folder, tree, 16);
    for name in ["large", "empty", "holes"] {
        for place in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let ran = volume.run("cp", &["-p", &format!("/{name}"), place]);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name} to {place}");
            assert!(ran.out == fs::read(volume.tree.join(name)).unwrap(), "{name} to {place}");
        }
    }
    let kept = volume.run("cp", &["-n", "/large", "/dev/stdout"]);
    assert_eq!((kept.code, kept.out.len()), (0, 0), "{}", kept.err);
}

/// Who may not give files away keeps the bit of a directory that keeps others out, as GNU cp does.
#[test]
fn a_directory_stays_sticky() {
    let test = "a_directory_stays_sticky";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs", "setfacl"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["plain", "listed"] {
        fs::create_dir_all(at("tree").join(name)).unwrap();
    }
    fs::write(at("tree/file"), "").unwrap();
    // Where the file system takes one.
    let _ = tool("setfacl").args(["-m", "u:1234:rwx"]).arg(at("tree/listed")).output();
    for (name, bits) in [("plain", 0o1777), ("listed", 0o1777), ("file", 0o4755)] {
        fs::set_permissions(at("tree").join(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    let image = at("disk.img");
    volume::ext(&image, 8, Some(&at("tree")), &["-t", "ext4"]);
    for name in ["plain", "listed", "file"] {
        must(tool("debugfs").args(["-w", "-R", &format!("sif /{name} uid 0")]).arg(&image));
    }
    fs::create_dir(at("out")).unwrap();
    let mut copy = nearside();
    if rustix::process::geteuid().is_root() {
        chown(at("out"), Some(4242), Some(4242)).unwrap();
        copy.uid(4242).gid(4242);
    }
    copy.args(["cp", "--as", "0:0", "-d"]).arg(&image).args(["-a", "/plain", "/listed", "/file"]);
    let ran = Ran::from(copy.arg(at("out")).output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for (name, bits) in [("plain", 0o1777), ("listed", 0o1777), ("file", 0o755)] {
        let is = fs::metadata(at("out").join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(is, bits, "{name}: {is:o}");
    }
}
