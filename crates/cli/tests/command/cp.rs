//! `cp` against GNU cp, tar and the tree that a volume was made of.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use nearside_conformance::needs;
use nearside_conformance::volume::{self, Mounted, must, tool};
use nearside_random::Rng;

use crate::fixture::{Ran, Volume, ext4, nearside, on, small};

/// What is known of each file of a tree, but the time of directories that a test does not keep.
fn listing(tree: &Path) -> Vec<String> {
    let form = "%P|%y|%m|%U|%G|%s|%T@|%l|%n";
    let found = must(
        tool("find")
            .arg(tree)
            .args(["-mindepth", "1", "!", "-name", "lost+found"])
            .args(["-printf", &format!("{form}\\0")]),
    );
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let mut lines: Vec<String> =
        text.split_terminator('\0').map(|line| size_of_files(line).to_owned()).collect();
    lines.sort();
    lines
}

/// What is the same in both says nothing.
#[track_caller]
fn alike(ours: Vec<String>, theirs: Vec<String>) {
    let unlike: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).take(5).collect();
    assert!(unlike.is_empty() && ours.len() == theirs.len(), "{unlike:#?}");
}

/// A directory's own size is its file system's.
fn size_of_files(line: &str) -> String {
    let mut fields: Vec<&str> = line.split('|').collect();
    if fields.get(1) == Some(&"d") {
        fields[5] = "";
        fields.pop();
    }
    fields.join("|")
}

fn same(a: &Path, b: &Path) {
    let ran = Command::new("diff")
        .args(["-r", "--no-dereference", "-x", "lost+found"])
        .args([a, b])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    // Pipes and devices are told apart by the listing.
    let unlike: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains(" is a fifo while file ") && !line.contains(" special file "))
        .collect();
    assert!(unlike.is_empty(), "{unlike:?}");
}

/// A tree of all kinds of files: names, sizes, modes, times before 1970 and with nanoseconds, links, holes.
fn random_tree(tree: &Path, seed: u64) {
    let mut random = Rng(seed);
    fs::create_dir(tree).unwrap();
    let mut folders = vec![tree.to_owned()];
    for nr in 0..120 {
        let folder = folders[random.below(folders.len() as u64) as usize].clone();
        let name = match random.below(8) {
            0 => format!("{nr}-{}", "n".repeat(120)).into_bytes(),
            1 => [&b"\xff\n'"[..], nr.to_string().as_bytes()].concat(),
            _ => format!("file {nr}").into_bytes(),
        };
        let path = folder.join(OsStr::from_bytes(&name));
        match random.below(8) {
            0 | 1 => {
                fs::create_dir(&path).unwrap();
                folders.push(path);
                continue;
            }
            2 => symlink(format!("../{}", "t".repeat(random.below(200) as usize + 1)), &path).unwrap(),
            3 => {
                let file = fs::File::create(&path).unwrap();
                for _ in 0..random.below(3) {
                    file.write_all_at(b"an island", random.below(16) << 16).unwrap();
                }
                file.set_len((16 << 16) + random.below(9000)).unwrap();
            }
            _ => {
                let len = random.pick(&[0usize, 1, 511, 512, 513, 4096, 70_000, 1_300_000]);
                fs::write(&path, (0..len).map(|_| random.below(256) as u8).collect::<Vec<u8>>()).unwrap();
            }
        }
        if !path.is_symlink() {
            fs::set_permissions(
                &path,
                fs::Permissions::from_mode(random.pick(&[0o644, 0o600, 0o755, 0o4711, 0o444])),
            )
            .unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(random.below(2_000_000_000));
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
        }
    }
    let first = tree.join("one of several names");
    fs::write(&first, b"shared").unwrap();
    for folder in folders.iter().take(3) {
        fs::hard_link(&first, folder.join("another of them")).unwrap();
    }
    must(tool("mkfifo").arg(tree.join("pipe")));
    if rustix::process::geteuid().is_root() {
        let owned = walk(tree).into_iter().filter(|path| !path.is_symlink() && random.below(3) == 0);
        for path in owned {
            let bits = fs::metadata(&path).unwrap().permissions();
            chown(&path, Some(1234), Some(56)).unwrap();
            // Which takes away what makes a program another's.
            fs::set_permissions(&path, bits).unwrap();
        }
        must(tool("mknod").arg(tree.join("null")).args(["c", "1", "3"]));
        must(tool("touch").args(["-d", "1999-01-01 00:00:00 UTC"]).arg(tree.join("null")));
    }
    for path in walk(tree).iter().filter(|path| path.is_symlink()).chain([&first, &tree.join("pipe")]) {
        must(tool("touch").args(["-h", "-d", "1999-01-01 00:00:00 UTC"]).arg(path));
    }
    // mke2fs gives a file whole seconds only.
    for (nr, folder) in folders.iter().enumerate().skip(1) {
        let bits = random.pick(&[0o755, 0o700, 0o2775, 0o1777, 0o555]);
        fs::set_permissions(folder, fs::Permissions::from_mode(bits)).unwrap();
        must(tool("touch").args(["-d", &format!("2001-02-03 04:05:{:02}", nr % 60)]).arg(folder));
    }
}

fn random_volume(seed: u64) -> Volume {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    random_tree(&tree, seed);
    ext4(folder, tree, 128)
}

#[track_caller]
fn good(ran: Ran) {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.text());
}

#[test]
fn a_tree_is_copied_as_cp_copies_it() {
    if !needs::tools("a_tree_is_copied_as_cp_copies_it", &["mke2fs", "cp", "find", "diff"]) {
        return;
    }
    for seed in 1..4 {
        let volume = random_volume(seed);
        let at = |name: &str| volume.folder.path().join(name);
        let special: Vec<&str> =
            ["null", "pipe"].into_iter().filter(|name| volume.tree.join(name).exists()).collect();
        for (options, name) in [("-a", "a"), ("-r", "r"), ("-rp", "rp")] {
            let (ours, theirs) = (at(&format!("ours-{name}")), at(&format!("theirs-{name}")));
            let from = if options == "-a" { volume.tree.clone() } else { volume.tree.join(".") };
            fs::create_dir(&ours).unwrap();
            fs::create_dir(&theirs).unwrap();
            // Pipes and devices are for -a.
            let source = if options == "-a" { "/" } else { "/." };
            let ran = volume.run("cp", &[OsStr::new(options), OsStr::new(source), ours.as_os_str()]);
            if options == "-a" {
                good(ran);
            } else {
                let refused =
                    |name: &&str| format!("nearside: /./{name}: Not a regular file (-a copies it)\n");
                assert_eq!(ran.err, special.iter().map(refused).collect::<String>());
                assert_eq!(ran.code, 1);
            }
            must(tool("cp").arg(options).arg("-T").arg(&from).arg(&theirs));
            if options != "-a" {
                special.iter().for_each(|name| drop(fs::remove_file(volume.tree.join(name))));
            }
            same(&ours, &volume.tree);
            let without = |tree: &Path| -> Vec<String> {
                // What a copy without times has is when it was made.
                let timeless = |line: String| {
                    let fields: Vec<&str> = line.split('|').collect();
                    if options == "-r" { [&fields[..6], &fields[7..]].concat().join("|") } else { line }
                };
                listing(tree)
                    .into_iter()
                    .filter(|l| {
                        options == "-a" || !special.iter().any(|name| l.starts_with(&format!("{name}|")))
                    })
                    .map(timeless)
                    .collect()
            };
            alike(without(&ours), without(&theirs));
            for name in special.iter().filter(|_| options == "-a") {
                let number = |tree: &Path| fs::symlink_metadata(tree.join(name)).unwrap().rdev();
                assert_eq!(number(&ours), number(&volume.tree), "{name}");
            }
            holes_are_holes(&volume.tree, &ours);
        }
    }
}

/// Of an image the kernel hands a large file on, with its holes; where it is said how the drive works, the
/// drive reads it.
#[test]
fn what_is_large_is_handed_on() {
    if !needs::tools("what_is_large_is_handed_on", &["mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut random = Rng(1);
    let bytes: Vec<u8> = (0..5_000_001).map(|_| random.below(256) as u8).collect();
    fs::write(tree.join("whole"), &bytes).unwrap();
    let file = fs::File::create(tree.join("holes")).unwrap();
    file.write_all_at(&bytes[..3_000_000], 123 << 12).unwrap();
    file.write_all_at(&bytes[..1_000_007], 20 << 20).unwrap();
    file.set_len(30 << 20).unwrap();
    let volume = ext4(folder, tree, 64);
    let at = |name: &str| volume.folder.path().join(name);
    for (ways, handed) in [(&[][..], true), (&["--threads", "threaded"], false)] {
        for (name, written) in [("whole", 5_000_001..=5_000_001), ("holes", 4_000_007..=4_100_000)] {
            let copy = at(name);
            // What was there before is gone, all of it.
            fs::write(&copy, vec![7; 40 << 20]).unwrap();
            let path = format!("/{name}");
            let words = [ways, &["--json", &path, copy.to_str().unwrap()]].concat();
            let ran = volume.run("cp", &words);
            let lines = ran.json();
            let size = fs::metadata(&copy).unwrap().len();
            let said = lines.iter().find(|line| line["type"] == "copied").unwrap();
            assert_eq!((ran.code, said["bytes"].as_u64()), (0, Some(size)), "{}", ran.err);
            assert!(fs::read(&copy).unwrap() == fs::read(volume.tree.join(name)).unwrap(), "{name}");
            let by_kernel = said["handed_on"].as_u64().unwrap();
            assert!(
                if handed { written.contains(&by_kernel) } else { by_kernel == 0 },
                "{name}: {by_kernel}"
            );
            let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
            assert!(blocks(&copy) <= blocks(&volume.tree.join(name)) + 16, "{name} has no holes");
        }
    }
}

/// Of small files the page cache has them, all but one with holes: whoever reads them, copies and archives
/// are the same, and who may not read a file does not have it.
#[test]
fn what_is_small_is_written_from_where_it_lies() {
    if !needs::tools("what_is_small_is_written_from_where_it_lies", &["mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    let mut random = Rng(2);
    let bytes: Vec<u8> = (0..600_000).map(|_| random.below(256) as u8).collect();
    let mut whole = 0;
    for nth in 0..60 {
        // What is longer is large.
        let len = ([0, 1, 4096, 40_000, 524_288][nth % 5] + nth / 5).min(512 << 10);
        let name = if nth % 3 == 0 { format!("below/{nth}") } else { format!("{nth}") };
        fs::write(tree.join(name), &bytes[nth..nth + len]).unwrap();
        whole += len as u64;
    }
    let holes = fs::File::create(tree.join("holes")).unwrap();
    holes.write_all_at(&bytes[..5000], 100_000).unwrap();
    holes.set_len(200_000).unwrap();
    fs::hard_link(tree.join("1"), tree.join("of-two-names")).unwrap();
    fs::write(tree.join("below/secret"), "secret").unwrap();
    fs::set_permissions(tree.join("below/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let volume = ext4(folder, tree, 64);
    let mut archives = Vec::new();
    for ways in [&[][..], &["--threads", "threaded"]] {
        let copy = volume.folder.path().join(format!("copy{}", ways.len()));
        let words = [ways, &["--json", "-a", "/", copy.to_str().unwrap()]].concat();
        let ran = volume.run("cp", &words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        same(&volume.tree, &copy);
        let blocks = |tree: &Path| fs::metadata(tree.join("holes")).unwrap().blocks();
        assert!(blocks(&copy) <= blocks(&volume.tree) + 16, "{} of {}", blocks(&copy), blocks(&volume.tree));
        let said = ran.json();
        let said = said.iter().find(|line| line["type"] == "copied").unwrap();
        assert_eq!(said["handed_on"], if ways.is_empty() { whole + 6 } else { 0 }, "{said}");
        archives.push(volume.run("cp", &[ways, &["--tar", "-", "/"]].concat()).out);
        // Another than the owner.
        let theirs = volume.folder.path().join(format!("theirs{}", ways.len()));
        let words = [ways, &["--as", "4321:4321", "-r", "/below", theirs.to_str().unwrap()]].concat();
        let ran = volume.run("cp", &words);
        assert_eq!((ran.code, ran.err.matches("ermission denied").count()), (1, 1), "{}", ran.err);
        assert!(ran.err.contains("/below/secret") && !theirs.join("secret").exists(), "{}", ran.err);
        assert_eq!(fs::read(theirs.join("9")).unwrap(), fs::read(volume.tree.join("below/9")).unwrap());
    }
    assert!(archives[0] == archives[1] && archives[0].len() > 1_000_000);
}

/// A copy does not go where its image lies, nor where a pipe or a device is.
#[test]
fn an_image_is_not_copied_onto_itself() {
    let test = "an_image_is_not_copied_onto_itself";
    if !needs::tools(test, &["mke2fs", "mkfifo"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("ext4.img"), vec![1; 2_000_000]).unwrap();
    let volume = ext4(folder, tree, 16);
    let at = |name: &str| volume.folder.path().join(name).to_str().unwrap().to_owned();
    let whole = fs::read(&volume.image).unwrap();
    fs::hard_link(&volume.image, at("another")).unwrap();
    let (image, folder) = (volume.image.to_str().unwrap().to_owned(), volume.folder.path().to_str().unwrap());
    for (words, place) in [
        (vec!["/ext4.img", &image], image.clone()),
        (vec!["/ext4.img", &at("another")], at("another")),
        (vec!["-t", folder, "/ext4.img"], image.clone()),
        (vec!["--tar", &image, "/"], image.clone()),
    ] {
        let refused = volume.run("cp", &words);
        assert_eq!(refused.code, 1, "{words:?}: {}", refused.err);
        assert!(refused.err.contains(&place) && refused.err.contains("has it locked"), "{}", refused.err);
        assert!(fs::read(&volume.image).unwrap() == whole, "{words:?}");
    }
    must(tool("mkfifo").arg(at("pipe")));
    for place in [at("pipe"), "/dev/null".into()] {
        let refused = volume.run("cp", &["/ext4.img", &place]);
        assert!(refused.code == 1 && refused.err.contains("no regular file"), "{}", refused.err);
    }
    good(volume.run("cp", &["--tar", "/dev/null", "/"]));
}

/// A file that takes less than it is long is no larger in the copy.
fn holes_are_holes(tree: &Path, copy: &Path) {
    let mut seen = 0;
    for entry in walk(tree) {
        let meta = fs::symlink_metadata(&entry).unwrap();
        if meta.is_file() && meta.blocks() * 512 + 65536 < meta.len() {
            let copied = fs::symlink_metadata(copy.join(entry.strip_prefix(tree).unwrap())).unwrap();
            assert!(
                copied.blocks() <= meta.blocks() + 16,
                "{entry:?}: {} {}",
                copied.blocks(),
                meta.blocks()
            );
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen}");
}

fn walk(at: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

#[test]
fn an_archive_is_what_tar_takes_it_for() {
    if !needs::tools("an_archive_is_what_tar_takes_it_for", &["mke2fs", "tar", "find", "diff", "python3"]) {
        return;
    }
    let volume = random_volume(9);
    let at = |name: &str| volume.folder.path().join(name);
    good(volume.run("cp", &[OsStr::new("--tar"), at("all.tar").as_os_str(), OsStr::new("/")]));
    let streamed = volume.run("cp", &["--tar", "-", "/"]);
    assert_eq!(streamed.out, fs::read(at("all.tar")).unwrap());
    fs::create_dir(at("out")).unwrap();
    must(tool("tar").args(["-xpf"]).arg(at("all.tar")).arg("-C").arg(at("out")));
    same(&volume.tree, &at("out"));
    alike(listing(&at("out")), listing(&volume.tree));
    holes_are_holes(&volume.tree, &at("out"));
    // Another reader, which takes the length of a file with holes from its record.
    let lengths =
        "import sys, tarfile; print(sum(one.size for one in tarfile.open(sys.argv[1]) if one.isreg()))";
    let said = must(tool("python3").args(["-c", lengths]).arg(at("all.tar"))).stdout;
    let files: HashMap<u64, u64> = walk(&volume.tree)
        .iter()
        .map(|path| fs::symlink_metadata(path).unwrap())
        .filter(fs::Metadata::is_file)
        .map(|file| (file.ino(), file.len()))
        .collect();
    assert_eq!(String::from_utf8_lossy(&said).trim(), files.values().sum::<u64>().to_string());
}

/// A tree with extended attributes and ACLs of all kinds that its user may set; `None`: its file system takes
/// none.
fn dressed_tree(tree: &Path) -> Option<()> {
    fs::create_dir_all(tree.join("d/below")).unwrap();
    for name in ["f", "read-only", "listed", "plain", "d/below/g"] {
        fs::write(tree.join(name), name).unwrap();
    }
    symlink("f", tree.join("link")).unwrap();
    let at = |name: &str| tree.join(name);
    let set = |flags: &[&str], name: &str, value: &str, file: &str| {
        let set = tool("setfattr").args(flags).args(["-n", name, "-v", value]).arg(at(file)).output();
        set.unwrap().status.success()
    };
    if !set(&[], "user.one", "first", "f") {
        return None;
    }
    assert!(set(&[], "user.=odd%", "a=b%c", "f") && set(&[], "user.empty", "", "f"));
    assert!(set(&[], "user.bytes", "0x00ff0a3d0a00", "read-only") && set(&[], "user.d", "dir", "d"));
    // Where the file system takes a value that large.
    set(&[], "user.large", &"l".repeat(9000), "d/below/g");
    if rustix::process::geteuid().is_root() {
        assert!(set(&[], "security.capability", "0x0100000202200000000000000000000000000000", "plain"));
        assert!(set(&[], "trusted.mine", "yes", "d/below") && set(&["-h"], "trusted.link", "l", "link"));
    }
    must(tool("setfacl").args(["-m", "u:1234:rw,g:56:x,m::rwx"]).arg(at("listed")));
    must(tool("setfacl").args(["-m", "u:7:x,d:u:8:rwx,d:g:9:r"]).arg(at("d")));
    fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    Some(())
}

/// Attributes and ACLs of a tree, as getfattr and getfacl have them.
fn dress_of(tree: &Path) -> (String, String) {
    let text = |command: &mut Command| String::from_utf8(must(command.current_dir(tree)).stdout).unwrap();
    let mut files: Vec<String> = text(tool("getfattr").args(["-RPhd", "-m", "-", "-e", "hex", "."]))
        .split("\n\n")
        .map(|file| {
            let mut lines: Vec<&str> = file.lines().collect();
            lines.sort();
            lines.join("\n")
        })
        .collect();
    files.sort();
    let lists = text(tool("getfacl").args(["-RPnp", "."]));
    let mut lists: Vec<&str> = lists.split("\n\n").collect();
    lists.sort();
    (files.join("\n\n"), lists.join("\n\n"))
}

/// As GNU cp and tar copy them, and bsdtar reads them.
#[test]
fn attributes_and_acls_come_along() {
    let test = "attributes_and_acls_come_along";
    let tools = ["mke2fs", "cp", "tar", "bsdtar", "setfattr", "getfattr", "setfacl", "getfacl"];
    let Some(folder) = needs::folder(test, &tools) else { return };
    let at = |name: &str| folder.path().join(name);
    if dressed_tree(&at("tree")).is_none() {
        return needs::left_out(test, "the folder for temporary files takes no attributes");
    }
    let image = at("disk.img");
    volume::ext(&image, 16, Some(&at("tree")), &["-t", "ext4", "-O", "ea_inode"]);
    let words = |words: &[&str], to: &Path| -> Vec<std::ffi::OsString> {
        words.iter().map(|word| word.into()).chain([to.into()]).collect()
    };
    // Made in a folder whose own default ACL is not the copies'.
    for name in ["ours", "theirs"] {
        fs::create_dir(at(name)).unwrap();
        must(tool("setfacl").args(["-m", "d:u:99:rwx"]).arg(at(name)));
    }
    for (options, name) in [("-a", "a"), ("-rp", "p"), ("-r", "r")] {
        let (ours, theirs) = (at("ours").join(name), at("theirs").join(name));
        good(on(&image, "cp", &words(&[options, "/.", "-T"], &ours)));
        must(tool("cp").arg(options).arg("-T").arg(at("tree")).arg(&theirs));
        let _ = fs::remove_dir(ours.join("lost+found"));
        if options == "-r" {
            // Of these GNU cp asks the folder's default ACL for more than a mode; nothing is kept in either.
            let (ours, theirs) = (dress_of(&ours), dress_of(&theirs));
            let own = |text: &str| text.matches("user.").count();
            assert_eq!((own(&ours.0), own(&theirs.0)), (0, 0));
            continue;
        }
        let (ours, theirs) = (dress_of(&ours), dress_of(&theirs));
        assert_eq!(ours.0, theirs.0, "{options}");
        assert_eq!(ours.1, theirs.1, "{options}");
        assert_eq!(ours.0.contains("user.one="), options == "-a", "{options}: {}", ours.0);
        assert!(ours.1.contains("user:1234:rw-") && !ours.1.contains(":99:"), "{options}: {}", ours.1);
    }

    good(on(&image, "cp", &words(&["/.", "--tar"], &at("all.tar"))));
    let there = dress_of(&at("tree"));
    for (name, mut tar) in [("gnu", tool("tar")), ("libarchive", tool("bsdtar"))] {
        fs::create_dir(at(name)).unwrap();
        let own = ["-xpf", "all.tar", "-C", name];
        match name {
            "gnu" => tar.args(["--xattrs", "--xattrs-include=*", "--acls"]).args(own),
            _ => tar.args(["--xattrs", "--acls"]).args(own),
        };
        must(tar.current_dir(folder.path()));
        let _ = fs::remove_dir(at(name).join("lost+found"));
        let mut unpacked = dress_of(&at(name));
        // What a keyword may not hold libarchive leaves as it is written.
        unpacked.0 = unpacked.0.replace("user.%3Dodd%25=", "user.\\075odd%=");
        assert_eq!(unpacked.1, there.1, "{name}");
        assert_eq!(unpacked.0, there.0, "{name}");
    }
}

/// A file system that takes no attributes: of those nothing is said, and of an ACL that it is lost.
#[test]
fn what_cannot_be_kept_is_said_as_cp_says_it() {
    let test = "what_cannot_be_kept_is_said_as_cp_says_it";
    if !needs::root(test) {
        return;
    }
    let Some(folder) = needs::folder(test, &["mke2fs", "setfattr", "setfacl", "mount"]) else { return };
    let at = |name: &str| folder.path().join(name);
    if dressed_tree(&at("tree")).is_none() {
        return needs::left_out(test, "the folder for temporary files takes no attributes");
    }
    let image = at("disk.img");
    volume::ext(&image, 16, Some(&at("tree")), &["-t", "ext4", "-O", "ea_inode"]);
    let mount = Mounted::new(&["-t", "ramfs"], Path::new("ramfs"), &at("plain"));
    let copy = |path: &str| on(&image, "cp", &["-a", path, at("plain").to_str().unwrap()]);
    let (named, listed) = (copy("/f"), copy("/listed"));
    let theirs = tool("cp").arg("-a").arg(at("tree/listed")).arg(at("plain/theirs")).output().unwrap();
    let content = fs::read(at("plain/listed"));
    let bits = fs::metadata(at("plain/listed")).unwrap().permissions().mode();
    mount.end();
    good(named);
    assert_eq!((listed.code, theirs.status.code()), (1, Some(1)));
    assert!(listed.err.contains("Its ACL is not copied: Operation not supported"), "{}", listed.err);
    assert_eq!(content.unwrap(), b"listed");
    // They were of the ACL, which may deny what they would give.
    assert_eq!(bits & 0o077, 0, "{bits:o}");
}

/// What may have an ACL that cannot be read lets nobody of its group in.
#[test]
fn a_mode_without_its_acl_is_not_the_groups() {
    let test = "a_mode_without_its_acl_is_not_the_groups";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs", "tar"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree/f"), "f").unwrap();
    fs::set_permissions(at("tree/f"), fs::Permissions::from_mode(0o664)).unwrap();
    volume::ext(&at("disk.img"), 16, Some(&at("tree")), &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]);
    let value: Vec<u8> = (0..4096u32).map(|n| (n % 251) as u8).collect();
    fs::write(at("value"), &value).unwrap();
    let request = format!("ea_set -f {} /f user.large", at("value").display());
    must(tool("debugfs").args(["-w", "-R", &request]).arg(at("disk.img")));
    let mut bytes = fs::read(at("disk.img")).unwrap();
    let place = bytes.windows(64).position(|window| window == &value[..64]).unwrap();
    bytes[place + 5] ^= 1;
    fs::write(at("disk.img"), bytes).unwrap();

    let copied = on(&at("disk.img"), "cp", &["-a", "/f", at("copy").to_str().unwrap()]);
    assert_eq!(copied.code, 1);
    assert!(copied.err.contains("Extended attributes are not copied"), "{}", copied.err);
    assert_eq!(fs::metadata(at("copy")).unwrap().permissions().mode() & 0o7777, 0o600);
    let archived = on(&at("disk.img"), "cp", &["/f", "--tar", at("all.tar").to_str().unwrap()]);
    assert_eq!(archived.code, 1);
    let listed = must(tool("tar").arg("-tvf").arg(at("all.tar"))).stdout;
    assert!(listed.starts_with(b"-rw------- "), "{}", String::from_utf8_lossy(&listed));
}

/// Owners' names, of which a header has no room for the first two.
#[test]
fn an_archive_has_the_names_of_owners_that_are_asked_for() {
    if !needs::tools("an_archive_has_the_names_of_owners_that_are_asked_for", &["mke2fs", "python3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    let (uid, gid) = fs::metadata(&tree).map(|made| (made.uid(), made.gid())).unwrap();
    let code = "import sys, tarfile; print({(one.uname, one.gname, one.uid, one.gid) \
                for one in tarfile.open(fileobj=sys.stdin.buffer, mode='r|')})";
    let long = "a-user-whose-name-is-longer-than-31";
    for (user, group) in [(long, "grün"), ("a-name-of-31-bytes-that-just-fit", "g"), ("", "")] {
        fs::write(tree.join("etc/passwd"), format!("{user}:x:{uid}:0::/:/bin/sh\n")).unwrap();
        fs::write(tree.join("etc/group"), format!("{group}:x:{gid}:\n")).unwrap();
        let image = folder.path().join("disk.img");
        volume::ext(&image, 8, Some(&tree), &["-t", "ext4"]);
        let named = |words: &[&str]| {
            let tar = folder.path().join("a.tar");
            let words = [&["--tar", tar.to_str().unwrap(), "/etc", "--as", "0:0"], words].concat();
            good(on(&image, "cp", &words));
            let tar = fs::File::open(tar).unwrap();
            String::from_utf8(must(tool("python3").args(["-c", code]).stdin(tar)).stdout).unwrap()
        };
        assert_eq!(named(&["--names"]), format!("{{('{user}', '{group}', {uid}, {gid})}}\n"));
        assert_eq!(named(&[]), format!("{{('', '', {uid}, {gid})}}\n"));
    }
    let refused = on(&folder.path().join("disk.img"), "cp", &["--names", "/etc/passwd", "/dev/null"]);
    assert!(refused.code == 2 && refused.err.contains("--names is of archives"), "{}", refused.err);
}

/// Times with nanoseconds and before 1970, which mke2fs does not give: by debugfs.
#[test]
fn nanoseconds_are_kept() {
    if !needs::tools("nanoseconds_are_kept", &["mke2fs", "debugfs", "tar"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    for name in ["late", "early"] {
        fs::write(at("tree").join(name), b"x").unwrap();
    }
    let image = at("times.img");
    volume::ext(&image, 16, Some(&at("tree")), &["-t", "ext4", "-I", "256"]);
    let extra = 123_456_789u32 << 2;
    for request in [
        format!("set_inode_field /late mtime_extra {extra}"),
        "set_inode_field /early mtime 0xffffffff".into(),
        format!("set_inode_field /early mtime_extra {extra}"),
    ] {
        must(tool("debugfs").args(["-w", "-R", &request]).arg(&image));
    }
    let late = fs::metadata(at("tree/late")).unwrap().mtime();
    fs::create_dir(at("out")).unwrap();
    good(on(&image, "cp", &[OsStr::new("-a"), OsStr::new("/"), OsStr::new("-T"), at("copy").as_os_str()]));
    good(on(&image, "cp", &[OsStr::new("--tar"), at("all.tar").as_os_str(), OsStr::new("/")]));
    must(tool("tar").arg("-xf").arg(at("all.tar")).arg("-C").arg(at("out")));
    for place in ["copy", "out"] {
        let times = ["late", "early"].map(|name| {
            let meta = fs::metadata(at(place).join(name)).unwrap();
            (meta.mtime(), meta.mtime_nsec())
        });
        assert_eq!(times, [(late, 123_456_789), (-1, 123_456_789)], "{place}");
    }
}

#[test]
fn f2fs_too() {
    if !needs::tools("f2fs_too", &["mkfs.f2fs", "sload.f2fs", "find", "diff"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    random_tree(&tree, 5);
    // Its loader knows neither pipes and devices nor hard links.
    for name in ["pipe", "null"] {
        let _ = fs::remove_file(tree.join(name));
    }
    let image = folder.path().join("f2fs.img");
    volume::make("f2fs", &image, 256, &tree);
    let copy = folder.path().join("copy");
    let ran = on(&image, "cp", &[OsStr::new("-a"), OsStr::new("/"), OsStr::new("-T"), copy.as_os_str()]);
    good(ran);
    same(&tree, &copy);
}

/// Where copies go, by cases, and what is said of it: the same in GNU cp, whose sources are the tree's.
#[test]
fn destinations_are_chosen_as_cp_does() {
    let Some(volume) = small("destinations_are_chosen_as_cp_does") else { return };
    let cases: [&[&str]; 33] = [
        &["/hello.txt", "new"],
        &["/hello.txt", "folder"],
        &["/hello.txt", "file"],
        &["/hello.txt", "to-folder"],
        &["/hello.txt", "to-file"],
        &["/hello.txt", "new/"],
        &["/hello.txt", "none/new"],
        &["/hello.txt", "/empty", "folder"],
        &["/hello.txt", "/empty", "file"],
        &["/hello.txt", "/empty", "new"],
        &["/logs", "folder"],
        &["-r", "/logs", "new"],
        &["-r", "/logs", "folder"],
        &["-r", "/logs/.", "folder"],
        &["-r", "/logs", "file"],
        &["-rT", "/logs", "folder"],
        &["-T", "/hello.txt", "folder"],
        &["-n", "/hello.txt", "file"],
        &["/link", "new"],
        &["-P", "/link", "new"],
        &["-nT", "/hello.txt", "."],
        &["/hello.txt", "/hello.txt", "folder"],
        &["-r", "/logs", "/logs/", "folder"],
        &["-a", "/hello.txt", "to-several"],
        &["-p", "/hello.txt", "to-several"],
        &["-v", "/hello.txt", "new"],
        &["-v", "/hello.txt", "./new"],
        &["-v", "/hello.txt", "to-file"],
        &["-v", "/hello.txt", "-t", "folder/"],
        &["-rv", "/logs", "folder"],
        &["-rv", "/logs", "new/"],
        &["-rv", "/logs/.", "folder"],
        &["-rvT", "/logs", "folder"],
    ];
    for case in cases {
        let [ours, theirs] = [true, false].map(|own| {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::create_dir(at("folder")).unwrap();
            fs::write(at("file"), b"was there").unwrap();
            symlink("folder", at("to-folder")).unwrap();
            symlink("file", at("to-file")).unwrap();
            fs::write(at("several"), b"was there").unwrap();
            fs::hard_link(at("several"), at("another")).unwrap();
            symlink("several", at("to-several")).unwrap();
            let mut command = if own { nearside() } else { tool("cp") };
            if own {
                command.arg("cp").arg("-d").arg(&volume.image);
            }
            for word in case {
                match word.strip_prefix('/') {
                    Some(_) if own => command.arg(word),
                    Some(rest) => command.arg(volume.tree.join(rest)),
                    None => command.arg(word),
                };
            }
            let ran = Ran::from(command.current_dir(folder.path()).output().unwrap());
            let mut found: Vec<_> = walk(folder.path())
                .into_iter()
                .map(|path| {
                    let meta = fs::symlink_metadata(&path).unwrap();
                    let content = if meta.is_file() { fs::read(&path).unwrap() } else { vec![] };
                    let bits = meta.mode();
                    (path.strip_prefix(folder.path()).unwrap().to_owned(), bits, content)
                })
                .collect();
            found.sort();
            let mut said: Vec<String> =
                ran.text().lines().map(|line| line.replace(volume.tree.to_str().unwrap(), "")).collect();
            said.sort();
            (ran.code, ran.err.is_empty(), said, found)
        });
        assert_eq!(ours, theirs, "{case:?}");
    }
}

#[test]
fn nothing_is_written_outside() {
    let Some(volume) = small("nothing_is_written_outside") else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Links in the places of the volume's files and folders.
    fs::create_dir(at("outside")).unwrap();
    fs::write(at("outside/file"), b"mine").unwrap();
    fs::create_dir(at("copy")).unwrap();
    symlink(at("outside/file"), at("copy/hello.txt")).unwrap();
    symlink(at("outside/new"), at("copy/no-newline")).unwrap();
    symlink(at("outside"), at("copy/logs")).unwrap();
    let ran = volume.run("cp", &[OsStr::new("-r"), OsStr::new("/."), at("copy").as_os_str()]);
    assert_eq!(ran.code, 1);
    for words in [
        "copy/./hello.txt: A symbolic link is in its place",
        "copy/./no-newline: A symbolic link is in its place",
        "copy/./logs: What is no directory is in its place",
    ] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    assert_eq!(fs::read(at("outside/file")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 1);
    assert_eq!(fs::read(at("copy/private")).unwrap(), b"ERROR for the owner only\n");
}

/// A volume whose directory names another's file, a link and then the same name again.
#[test]
fn names_that_a_volume_must_not_have() {
    if !needs::tools("names_that_a_volume_must_not_have", &["mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    symlink("../../outside", tree.join("abcdef")).unwrap();
    fs::create_dir(tree.join("abcdeg")).unwrap();
    fs::write(tree.join("abcdeg/file"), b"through the link").unwrap();
    fs::write(tree.join("_.-escaped"), b"through dots").unwrap();
    let image = folder.path().join("hostile.img");
    volume::ext(&image, 16, Some(&tree), &["-t", "ext4", "-O", "^metadata_csum"]);
    let mut bytes = fs::read(&image).unwrap();
    for (was, is) in [(&b"abcdeg"[..], &b"abcdef"[..]), (b"_.-escaped", b"../escaped")] {
        while let Some(at) = bytes.windows(was.len()).position(|window| window == was) {
            bytes[at..at + was.len()].copy_from_slice(is);
        }
    }
    fs::write(&image, bytes).unwrap();
    let copy = folder.path().join("copies/copy");
    fs::create_dir_all(&copy).unwrap();
    let ran = on(&image, "cp", &[OsStr::new("-a"), OsStr::new("/."), copy.as_os_str()]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(!folder.path().join("outside").exists() && !folder.path().join("copies/escaped").exists());
    let found = walk(&folder.path().join("copies"));
    assert!(found.iter().all(|path| path.starts_with(&copy) || *path == copy), "{found:?}");
}

#[test]
fn who_may_not_read_may_not_copy() {
    let Some(volume) = small("who_may_not_read_may_not_copy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let ran =
        volume.run("cp", &["-r", "/", folder.path().to_str().unwrap(), "--as", "12345:12345", "--json"]);
    assert_eq!(ran.code, 1);
    for path in ["/private", "/secret"] {
        assert!(ran.err.contains(&format!("nearside: {path}: Permission denied\n")), "{}", ran.err);
    }
    assert!(!folder.path().join("private").exists());
    assert_eq!(fs::read(folder.path().join("large")).unwrap(), fs::read(volume.tree.join("large")).unwrap());
    let summary = &ran.json()[0];
    assert_eq!(
        (&summary["type"], summary["failed"].as_u64()),
        (&"copied".into(), Some(ran.err.lines().count() as u64))
    );
    let said = volume.run("cp", &["-v", "/hello.txt", folder.path().join("it's").to_str().unwrap()]);
    let theirs = volume.tool("cp", &["-v", "/hello.txt", folder.path().join("it's").to_str().unwrap()]);
    let name = |text: String| text.split(" -> ").next().unwrap().to_owned();
    assert_eq!(name(said.text()), name(theirs.text()));
}
