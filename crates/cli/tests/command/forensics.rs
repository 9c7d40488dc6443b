//! `timeline` against The Sleuth Kit: fls, whose form it has, and mactime, which reads it; `find --deleted`
//! against debugfs's lsdel and ils.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use nearside_conformance::needs;
use nearside_conformance::volume::{self, must, tool};

use crate::fixture::{Ran, nearside, on, small};

/// Modes, kinds and names of all sorts.
fn odd_tree(tree: &Path) {
    fs::create_dir_all(tree.join("a b/sub")).unwrap();
    let modes = [0o7777, 0o7000, 0o4644, 0o2650, 0o1776, 0o1775, 0];
    for (nr, mode) in modes.into_iter().enumerate() {
        let path = tree.join(format!("a b/mode {nr}"));
        fs::write(&path, vec![1; nr * 3000]).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + nr as u64);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
        if nr == 1 {
            let _only_root_may = lchown(&path, Some(70_000), Some(80_000));
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    for name in
        [&b"pi|pe"[..], b"100%41", b"5%", b"new\nline\x1b[1m", b"del\x7f", b"quote\"\\", b"\xff\xc3\xa9"]
    {
        fs::write(tree.join(OsStr::from_bytes(name)), name).unwrap();
    }
    symlink("pi|pe\nnot here", tree.join("link")).unwrap();
    must(tool("mkfifo").arg(tree.join("a b/pipe")));
    drop(std::os::unix::net::UnixListener::bind(tree.join("a b/sub/socket")).unwrap());
    if rustix::process::geteuid().is_root() {
        must(tool("mknod").arg(tree.join("device")).args(["c", "1", "3"]));
    }
}

/// Lines, sorted; a file system's way to show files without names is fls's own.
fn lines(text: &[u8]) -> Vec<String> {
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let mut lines: Vec<String> = lines.map(|line| line.escape_ascii().to_string()).collect();
    lines.retain(|line| !line.contains("|/$OrphanFiles|"));
    lines.sort();
    lines
}

#[test]
fn a_timeline_is_what_fls_and_mactime_take_it_for() {
    let test = "a_timeline_is_what_fls_and_mactime_take_it_for";
    if !needs::tools(test, &["mke2fs", "fls", "mactime", "mkfifo", "mknod"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    odd_tree(&tree);
    let image = folder.path().join("disk.img");
    // Inodes of 128 bytes keep no time of birth.
    for options in [&["-t", "ext4"][..], &["-t", "ext2", "-I", "128"]] {
        volume::ext(&image, 16, Some(&tree), options);
        let fls = |before: &str| must(tool("fls").args(["-r", "-m", before]).arg(&image)).stdout;
        let ours = |words: &[&str]| on(&image, "timeline", &[&["--as", "0:0"], words].concat());
        let body = ours(&[]);
        assert_eq!((body.code, &*body.err), (0, ""));
        // fls leaves out the root, and does not keep what stands in names apart from what ends them.
        let read = |ran: &Ran| {
            let mut lines = lines(&ran.out);
            lines.retain(|line| !line.starts_with("0|/|2|d/drwx"));
            lines.iter().map(|line| line.replace("%7C", "|").replace("%25", "%")).collect::<Vec<_>>()
        };
        assert_eq!(lines(&body.out).len(), read(&body).len() + 1);
        assert!(read(&body).len() > 20);
        assert_eq!(read(&body), lines(&fls("/")), "{options:?}");
        assert_eq!(read(&ours(&["-m", "/mnt/x/", "/a b"])), {
            let mut lines = lines(&fls("/mnt/x"));
            lines.retain(|line| line.starts_with("0|/mnt/x/a b"));
            lines
        });
        let file = folder.path().join("body");
        fs::write(&file, &body.out).unwrap();
        let table = must(tool("mactime").arg("-d").args(["-z", "UTC"]).arg("-b").arg(&file)).stdout;
        let table = String::from_utf8_lossy(&table);
        let size = |name: &str| {
            let line = table.lines().find(|line| line.ends_with(&format!(",\"{name}\"")));
            line.and_then(|line| line.split(',').nth(1)).map(str::to_owned)
        };
        for (name, len) in
            [("/pi|pe", "5"), ("/100%41", "6"), ("/5%", "2"), ("/link -> pi|pe^not here", "14")]
        {
            assert_eq!(size(name).as_deref(), Some(len), "{table}");
        }
        let modified = "Sun Sep 09 2001 01:46:43,9000,m...,";
        assert!(table.lines().any(|line| line.starts_with(modified) && line.ends_with("/a b/mode 3\"")));
    }
    // What may not be read is said, and the rest is there.
    fs::set_permissions(tree.join("a b"), Permissions::from_mode(0o700)).unwrap();
    volume::ext(&image, 16, Some(&tree), &["-t", "ext4"]);
    let ran = on(&image, "timeline", &["--as", "4242:4242"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("nearside: /a b: Permission denied\n") && ran.text().contains("0|/link -> "));
}

/// A user who is not the files' own, with an image that is.
#[test]
fn who_can_read_the_image_is_told_how_to_ask_as_root() {
    use std::os::unix::process::CommandExt;
    let test = "who_can_read_the_image_is_told_how_to_ask_as_root";
    if !needs::tools(test, &["mke2fs", "debugfs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("disk.img"));
    fs::create_dir(&tree).unwrap();
    for name in ["one", "two"] {
        fs::write(tree.join(name), "ERROR\n").unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o600)).unwrap();
    }
    volume::ext(&image, 8, Some(&tree), &["-t", "ext4"]);
    for name in ["one", "two"] {
        must(tool("debugfs").args(["-w", "-R", &format!("sif /{name} uid 0")]).arg(&image));
    }
    let ask = |words: &[&str]| {
        let mut command = nearside();
        if rustix::process::geteuid().is_root() {
            command.uid(4242).gid(4242);
        }
        command.args([words[0], "-d"]).arg(&image).args(&words[1..]);
        Ran::from(command.output().unwrap())
    };
    let hint = "--as 0:0 asks as root";
    for words in [
        &["cat", "/one", "/two"][..],
        &["grep", "-r", "ERROR", "/", "--exclude-dir", "lost+found"],
        &["cksum", "/one", "/two"],
        &["cp", "--tar", "/dev/null", "/one", "/two"],
    ] {
        let ran = ask(words);
        assert_eq!(ran.err.matches("Permission denied").count(), 2, "{words:?}: {}", ran.err);
        let first = ran.err.lines().next().unwrap();
        assert!(first.contains(hint) && ran.err.matches(hint).count() == 1, "{words:?}: {}", ran.err);
        assert!(ask(&[words, &["--as", "0:0"]].concat()).code == 0, "{words:?}");
    }
    // Whoever asks in a name of their choice knows how, and what is refused of this host is no matter of it.
    assert!(!ask(&["cat", "/one", "--as", "7:7"]).err.contains(hint));
    let ran = ask(&["cp", "--as", "0:0", "/one", "/proc/1/x"]);
    assert!(ran.code == 1 && !ran.err.contains(hint), "{}", ran.err);
    assert_eq!(ask(&["grep", "-rs", "ERROR", "/"]).err, "");
}

/// By debugfs, which frees inodes and blocks and leaves the rest, and takes away the names of two that stay
/// in use.
fn delete(image: &Path, names: &[String], orphans: &[&str]) {
    let mut commands = String::new();
    for name in names {
        let rm = if name.starts_with("/folder") { "rmdir" } else { "rm" };
        commands.push_str(&format!("{rm} \"{name}\"\n"));
    }
    for name in orphans {
        commands.push_str(&format!("sif {name} links_count 0\nsif {name} dtime @7\nunlink {name}\n"));
    }
    let script = image.with_extension("debugfs");
    fs::write(&script, commands).unwrap();
    must(tool("debugfs").arg("-w").arg("-f").arg(script).arg(image));
}

/// Number, mode and size of what debugfs lists, sorted: its own order is that of times.
fn lsdel(image: &Path) -> Vec<[String; 3]> {
    let said = must(tool("debugfs").args(["-R", "lsdel"]).arg(image)).stdout;
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&said).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() > 6 && fields[0].parse::<u32>().is_ok() {
            found.push([fields[0], fields[2], fields[3]].map(str::to_owned));
        }
    }
    found.sort();
    found
}

/// The same of what `find` lists that has blocks.
fn with_blocks(image: &Path) -> Vec<[String; 3]> {
    let form = "%i %m %y %s %b\n";
    let said = on(image, "find", &["--deleted", "--as", "0:0", "!", "-name", "<0>", "-printf", form]).good();
    let mut found = Vec::new();
    for line in said.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let kind = match fields[2] {
            "f" => 0o100_000,
            "d" => 0o040_000,
            _ => 0o120_000,
        };
        let mode = format!("{:o}", kind | u32::from_str_radix(fields[1], 8).unwrap());
        if fields[4] != "0" {
            found.push([fields[0].to_owned(), mode, fields[3].to_owned()]);
        }
    }
    found.sort();
    found
}

#[test]
fn deleted_files_are_those_that_lsdel_and_ils_list() {
    let test = "deleted_files_are_those_that_lsdel_and_ils_list";
    if !needs::tools(test, &["mke2fs", "debugfs", "ils"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("disk.img"));
    fs::create_dir(&tree).unwrap();
    // In several groups, and of all kinds; those of the even numbers go.
    for nr in 0..60 {
        fs::write(tree.join(format!("file {nr}")), vec![nr as u8; nr * 700]).unwrap();
        fs::create_dir(tree.join(format!("folder {nr}"))).unwrap();
        symlink(format!("to{}", "x".repeat(nr * 3)), tree.join(format!("link {nr}"))).unwrap();
    }
    fs::write(tree.join("orphan-1"), "open").unwrap();
    fs::write(tree.join("orphan-2"), "open").unwrap();
    let kinds = ["file", "folder", "link"];
    let gone: Vec<String> =
        (0..60).step_by(2).flat_map(|nr| kinds.map(|kind| format!("/{kind} {nr}"))).collect();
    for options in [
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-N", "640"][..],
        &["-t", "ext4", "-O", "^metadata_csum,^64bit,inline_data"],
        &["-t", "ext2", "-I", "128", "-b", "1024", "-g", "1024", "-N", "640"],
    ] {
        volume::ext(&image, 8, Some(&tree), options);
        delete(&image, &gone, &["/orphan-1", "/orphan-2"]);
        let find = |words: &[&str]| on(&image, "find", &[&["--deleted", "--as", "0:0"], words].concat());
        let mut with_blocks = with_blocks(&image);
        let ours = find(&["--json"]).json();
        let orphans: Vec<_> = ours.iter().filter(|one| one["orphan"] == true).collect();
        assert!(orphans.iter().all(|one| one["deleted"].is_null() && one["size"] == 4));
        assert_eq!((orphans.len(), ours.len()), (2, gone.len() + 2), "{options:?}");
        let numbers: Vec<String> = orphans.iter().map(|one| one["inode"].to_string()).collect();
        with_blocks.retain(|one| !numbers.contains(&one[0]));
        let inline = options.iter().any(|option| option.contains("inline_data"));
        // Of those with inline data it lists what has no block, too.
        let mut lsdel = lsdel(&image);
        lsdel.retain(|one| !inline || with_blocks.contains(one));
        assert!(lsdel.len() > 30);
        assert_eq!(with_blocks, lsdel, "{options:?}");
        // The names are each one's own.
        let rest = |text: &[u8]| {
            let rest = |line: String| line.splitn(3, '|').nth(2).unwrap_or_default().to_owned();
            let lines =
                lines(text).into_iter().filter(|line| line.contains("dead-") || line.contains("Orphan"));
            let mut lines: Vec<String> = lines.map(rest).collect();
            lines.retain(|line| !numbers.iter().any(|nr| line.starts_with(&format!("{nr}|"))));
            lines.sort();
            lines
        };
        let timeline = on(&image, "timeline", &["--deleted", "--as", "0:0", "/lost+found"]);
        let ils = must(tool("ils").arg("-m").arg(&image)).stdout;
        assert_eq!(rest(&timeline.out).len(), gone.len());
        assert_eq!(rest(&timeline.out), rest(&ils), "{options:?}");
    }
    of_one(&image);
}

/// What is printed of one deleted file, and to whom.
fn of_one(image: &Path) {
    let first = on(image, "find", &["--deleted", "--as", "0:0", "-type", "f", "-size", "+60", "-quit"]);
    assert_eq!(first.good(), "");
    let nr = on(image, "find", &["--deleted", "--as", "0:0", "-size", "+60", "-printf", "%i\n"]).good();
    let nr = nr.lines().next().unwrap();
    must(tool("debugfs").args(["-w", "-R", &format!("sif <{nr}> dtime 20200102030405")]).arg(image));
    let line = on(image, "find", &["--deleted", "--as", "0:0", "-name", &format!("<{nr}>")]).good();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[5], words[6]), (nr, "-rw-r--r--", "2020-01-02", "03:04:05"));
    for (words, code, said) in [
        (&["find", "--deleted", "--as", "7:7"][..], 2, "Permission denied: of deleted files"),
        (&["timeline", "--deleted", "--as", "7:7"], 2, "(--as 0:0)"),
        (&["find", "--deleted", "--as", "0:0", "-exec", "cat", "{}", ";"], 2, "no path to give"),
        (&["find", "--deleted", "/etc"], 2, "cannot be used with"),
    ] {
        let ran = on(image, words[0], &words[1..]);
        assert!(ran.code == code && ran.err.contains(said), "{words:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{words:?}: {}", ran.text());
    }
}

/// What says where the inodes of a group are is damaged: those of the others are listed.
#[test]
fn deleted_files_are_listed_beside_a_damaged_group() {
    let test = "deleted_files_are_listed_beside_a_damaged_group";
    if !needs::tools(test, &["mke2fs", "debugfs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("disk.img"));
    fs::create_dir(&tree).unwrap();
    (0..200).for_each(|nr| fs::write(tree.join(format!("{nr}")), "gone").unwrap());
    // Without a journal, and not unmounted: what lies in blocks may be another's.
    volume::ext(
        &image,
        8,
        Some(&tree),
        &["-t", "ext4", "-O", "^has_journal", "-b", "1024", "-g", "1024", "-N", "640"],
    );
    delete(&image, &(0..200).map(|nr| format!("/{nr}")).collect::<Vec<_>>(), &[]);
    must(tool("debugfs").args(["-w", "-R", "ssv state 0"]).arg(&image));
    let list = |words: &[&str]| on(&image, words[0], &[&words[1..], &["--deleted", "--as", "0:0"]].concat());
    let find = ["find", "-printf", "%i\n"];
    let numbers = |ran: &Ran| ran.text().lines().map(|line| line.parse().unwrap()).collect::<Vec<u32>>();
    let whole = list(&find);
    let mut expected = numbers(&whole);
    assert_eq!((whole.code, expected.len()), (0, 200), "{}", whole.err);
    assert!(whole.err.starts_with("nearside: warning: unstable: ") && whole.err.lines().count() == 1);
    // The descriptors begin at block 2; each group has 80 inodes.
    let mut bytes = fs::read(&image).unwrap();
    bytes[2048 + 64 + 12] ^= 1;
    fs::write(&image, bytes).unwrap();
    expected.retain(|nr| !(81..161).contains(nr));
    let ran = list(&find);
    let said = "disk.img: Corrupt volume: deleted files of group 1 are not known: checksum ";
    assert!(ran.code == 1 && ran.err.matches(said).count() == 1, "{}", ran.err);
    assert!(expected.len() > 50 && numbers(&ran) == expected, "{}", ran.text());
    let ran = list(&["timeline", "/lost+found"]);
    assert!(ran.code == 1 && ran.err.contains(said), "{}", ran.err);
    assert_eq!(ran.text().lines().filter(|line| line.contains("/$OrphanFiles/")).count(), expected.len());
}

#[test]
fn stat_says_where_a_volume_begins_and_not_where_it_is_mounted() {
    let Some(volume) = small("stat_says_where_a_volume_begins_and_not_where_it_is_mounted") else { return };
    assert_eq!(volume.run("stat", &["-c", "%m|%3m|%-3m|", "/logs/a.log"]).good(), "/|  /|/  |\n");
    for directive in ["%d", "%D", "%Hd", "a %Ld"] {
        let ran = volume.run("stat", &["-c", directive, "/logs"]);
        assert!(
            ran.code == 2 && ran.err.contains("a drive knows no such number"),
            "{directive}: {}",
            ran.err
        );
    }
    // As GNU stat where there is no context.
    let ran = volume.run("stat", &["-c", "%C|%3C|", "/logs"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "?|  ?|\n"));
    assert!(ran.err.contains("/logs: It has no security context"), "{}", ran.err);
}

/// A context, which debugfs writes; the file system and the share of a file that lies on it, as GNU
/// find has them.
#[test]
fn contexts_file_systems_and_sparseness() {
    let test = "contexts_file_systems_and_sparseness";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs", "find"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree/full"), vec![7; 5000]).unwrap();
    fs::write(at("tree/empty"), b"").unwrap();
    fs::File::create(at("tree/hole")).unwrap().set_len(1 << 30).unwrap();
    let image = at("disk.img");
    volume::ext(&image, 16, Some(&at("tree")), &["-t", "ext4", "-b", "4096"]);
    let context = "system_u:object_r:etc_t:s0";
    let request = format!("ea_set /full security.selinux {context}");
    must(tool("debugfs").args(["-w", "-R", &request]).arg(&image));
    assert_eq!(on(&image, "stat", &["-c", "%C %n", "/full"]).good(), format!("{context} /full\n"));
    let shown = on(&image, "find", &["/", "-type", "f", "-printf", "%f %F %S|%7S\n"]).good();
    let mut shown: Vec<&str> = shown.lines().collect();
    shown.sort();
    assert_eq!(shown, ["empty ext4 1|      1", "full ext4 1.6384| 1.6384", "hole ext4 0|      0"]);
}
