//! The other commands against the tools whose names they have, and against the tree itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use nearside_conformance::needs;
use nearside_conformance::volume::install;

use crate::fixture::{Ran, TEXTS, Volume, ext4, nearside, on, small};

/// Everything below a folder, as absolute paths of the volume.
fn walk(tree: &Path) -> BTreeSet<Vec<u8>> {
    fn below(at: &Path, tree: &Path, found: &mut BTreeSet<Vec<u8>>) {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            found.insert([b"/", path.strip_prefix(tree).unwrap().as_os_str().as_bytes()].concat());
            if entry.file_type().unwrap().is_dir() {
                below(&path, tree, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    below(tree, tree, &mut found);
    found
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() { vec![] } else { bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect() }
}

#[test]
fn find_shows_the_tree() {
    let Some(volume) = small("find_shows_the_tree") else { return };
    let mut expected = walk(&volume.tree);
    expected.insert(b"/".to_vec());
    expected.insert(b"/lost+found".to_vec());
    let ran = volume.run("find", &["/"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let found = lines(&ran.out);
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn find_tests_as_find_does() {
    let Some(volume) = small("find_tests_as_find_does") else { return };
    for args in [
        &["/logs", "-name", "*.log"][..],
        &["/logs", "-type", "d"],
        &["/deep", "-maxdepth", "3"],
        &["/deep", "-mindepth", "4", "-type", "f"],
        &["/logs", "-size", "+100k"],
        &["/", "-type", "l", "-name", "*loop*"],
        &["/", "-iname", "HELLO*", "-type", "f"],
        &["/logs", "-path", "*/old/*"],
        &["/secret", "-perm", "700"],
        &["/hello.txt"],
        &["/hollow", "-empty"],
        &["/hollow", "-maxdepth", "1", "-empty"],
        &["/logs", "/empty", "/hollow", "/link", "-empty"],
        &["/", "-maxdepth", "1", "!", "-type", "d"],
        &["/logs", "-not", "-name", "*.log"],
        &["/logs", "!", "-name", "a*", "!", "!", "-type", "f"],
        &["/logs", "(", "-name", "a*", "-o", "-name", "b*", ")", "-size", "+1k"],
        &["/logs", "-name", "a*", "-o", "-name", "b*", "-size", "+9000k"],
        &["/logs", "-name", "a.log", "-print", "-o", "-name", "b.log"],
        &["/logs", "-name", "a.log", "-print", "-a", "-false", "-o", "-name", "b.log", "-print"],
        &["/logs", "-type", "f,d", "-links", "1"],
        &["/logs", "-ipath", "*/OLD/*"],
    ] {
        let ours: BTreeSet<_> = lines(&volume.run("find", args).out).into_iter().collect();
        let find: BTreeSet<_> = lines(&volume.tool("find", args).out).into_iter().collect();
        assert!(!ours.is_empty(), "{args:?}");
        assert_eq!(ours, find, "{args:?}");
    }
}

#[test]
fn find_refuses_what_it_does_not_have() {
    let Some(volume) = small("find_refuses_what_it_does_not_have") else { return };
    for (args, says) in [
        (&["/", "-delete"][..], "\"-delete\": it changes the volume"),
        (&["/", "-name", "*.log", "-execdir", "cat", "{}", ";"], "\"-execdir\": it runs programs"),
        (&["/", "-exec", "cat", "{}"], "neither ; nor {} + ends it"),
        (&["/", "-used", "+3"], "\"-used\": find has it"),
        (&["/", "-user", "nobody-has-this-name", "--names=host"], "no user that is known"),
        (&["/", "-newer", "/missing"], "/missing"),
        (&["/", "-printf", "%p", "--json"], "--json"),
        (&["/", "-elete"], "\"-elete\": find has no such test"),
        (&["/", "-nmae", "x"], "find has no such test"),
        (&["/", "-name", "a.log", "b.log"], "before the tests"),
        (&["/", "(", "-empty"], "not closed"),
        (&["/", "-type"], "needs a value"),
    ] {
        let ran = volume.run("find", args);
        assert_eq!((ran.code, ran.out.len()), (2, 0), "{args:?}");
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    }
    // In no command is a word that begins with -d the name of a drive.
    for (command, args) in
        [("ls", &["-ld", "/"][..]), ("cat", &["-delete", "/"]), ("grep", &["-directories", "x", "/"])]
    {
        let ran = Ran::from(nearside().arg(command).args(args).output().unwrap());
        assert_eq!(ran.code, 2, "{command}");
        assert!(ran.err.contains("-d names the drive and stands alone"), "{command}: {}", ran.err);
    }
    // Flags that are said twice are said once, as elsewhere.
    assert_eq!(volume.run("ls", &["-all", "/logs"]).code, 0);
}

#[test]
fn ls_shows_links_themselves_where_ls_does() {
    let Some(volume) = small("ls_shows_links_themselves_where_ls_does") else { return };
    for (ours, theirs) in [
        (&["/link"][..], &["/link"][..]),
        (&["/to-logs"], &["/to-logs"]),
        (&["-D", "/to-logs"], &["-d", "/to-logs"]),
        (&["-D", "/link", "/logs"], &["-d", "/link", "/logs"]),
        (&["-D", "/dangling"], &["-d", "/dangling"]),
        (&["/dangling", "/to-logs"], &["/dangling", "/to-logs"]),
    ] {
        let (ours, theirs) = (volume.run("ls", ours), volume.tool("ls", theirs));
        assert_eq!((ours.code, ours.text(), &*ours.err), (0, theirs.text(), ""));
    }
    let (ours, theirs) = (volume.run("ls", &["/loop-a", "/link"]), volume.tool("ls", &["/loop-a", "/link"]));
    assert_eq!((ours.code, ours.text()), (theirs.code, theirs.text()));
    assert!(ours.err.contains("/loop-a: Too many levels of symbolic links"), "{}", ours.err);
    let long = volume.run("ls", &["-lD", "/to-logs"]).good();
    assert!(long.starts_with('l') && long.ends_with("/to-logs -> logs\n"), "{long}");
}

#[test]
fn users_are_numbers_unless_names_are_asked_for() {
    let Some(volume) = small("users_are_numbers_unless_names_are_asked_for") else { return };
    let uid = fs::metadata(volume.tree.join("hello.txt")).unwrap().uid();
    let owner = |args: &[&str]| {
        let ran = volume.run("ls", args);
        let line = ran.text();
        (line.split_whitespace().nth(2).unwrap_or("").to_owned(), ran.code, ran.err)
    };
    let number = uid.to_string();
    assert_eq!(owner(&["-l", "/hello.txt"]), (number.clone(), 0, String::new()));
    assert_eq!(owner(&["-l", "--names", "/hello.txt"]), ("volume-owner".into(), 0, String::new()));
    assert_eq!(owner(&["-l", "--names=volume", "/hello.txt"]).0, "volume-owner");
    let here = fs::read_to_string("/etc/passwd").unwrap();
    let mine = here.lines().find(|l| l.split(':').nth(2) == Some(&number)).and_then(|l| l.split(':').next());
    assert_eq!(owner(&["-l", "--names=host", "/hello.txt"]).0, mine.unwrap_or(&number));
    // A stranger may read neither table: numbers, and a word.
    let (shown, code, err) = owner(&["-l", "--names", "--as", "12345:12345", "/hello.txt"]);
    assert_eq!((shown, code), (number, 0));
    assert!(err.contains("/etc/passwd: Permission denied"), "{err}");
    let stat = |args: &[&str]| volume.run("stat", args).good().lines().nth(3).unwrap().to_owned();
    assert!(stat(&["/hello.txt"]).contains(&format!("Uid: ({uid:5})   Gid: (")), "{}", stat(&["/hello.txt"]));
    assert!(stat(&["--names", "/hello.txt"]).contains(&format!("Uid: ({uid:5}/volume-owner)")));
}

#[test]
fn ls_lists_as_ls_does() {
    let Some(volume) = small("ls_lists_as_ls_does") else { return };
    for args in [
        &["/logs"][..],
        &["-a", "/logs"],
        &["-A", "/logs"],
        &["/logs", "/deep"],
        &["-R", "/deep"],
        &["/hello.txt"],
    ] {
        assert_eq!(volume.run("ls", args).good(), volume.tool("ls", args).text(), "{args:?}");
    }
    // The long form: mode, links, owner, group, size and name of each.
    // (The volume has allocated other blocks than the tree.)
    for args in [&["-ln", "/logs"][..], &["-lnA", "/logs"], &["-ln", "/hello.txt"], &["-ln", "/link"]] {
        let ours = volume.run("ls", args).good();
        let ls = volume.tool("ls", args).text();
        let columns = |text: &str| {
            let rows = text.lines().filter(|l| !l.starts_with("total"));
            rows.map(|l| {
                let mut columns: Vec<_> = l.split_whitespace().map(str::to_owned).collect();
                if l.starts_with('d') {
                    columns[4].clear();
                }
                columns
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(columns(&ours), columns(&ls), "{args:?}");
    }
    let sizes = volume.run("ls", &["-lhn", "/logs/a.log"]).good();
    let size = fs::metadata(volume.tree.join("logs/a.log")).unwrap().len();
    assert!(sizes.contains(&format!("{:.1}M", (size as f64 / 104_857.6).ceil() / 10.0)), "{sizes}");
}

#[test]
fn stat_says_what_the_tree_says() {
    let Some(volume) = small("stat_says_what_the_tree_says") else { return };
    for path in ["/hello.txt", "/logs", "/link", "/dangling", "/secret", "/empty", "/logs/a.log"] {
        let theirs = fs::symlink_metadata(volume.tree.join(&path[1..])).unwrap();
        let ours = volume.run("stat", &["--json", path]).json().remove(0);
        let same = [
            ("mode", u64::from(theirs.mode())),
            ("uid", theirs.uid().into()),
            ("gid", theirs.gid().into()),
            ("links", theirs.nlink()),
        ];
        for (name, value) in same {
            assert_eq!(ours[name], value, "{name} of {path}");
        }
        assert_eq!(ours["mtime"]["seconds"], theirs.mtime(), "{path}");
        if !theirs.is_dir() {
            assert_eq!(ours["size"], theirs.size(), "{path}");
        }
    }
    let ours = volume.run("stat", &["/logs/b.log"]).good();
    let stat = volume.tool("stat", &["/logs/b.log"]).text();
    let known = |text: &str, at: usize| text.lines().nth(at).unwrap().to_owned();
    assert_eq!(known(&ours, 0), known(&stat, 0));
    let named = volume.run("stat", &["--names=host", "/logs/b.log"]).good();
    assert_eq!(known(&named, 3), known(&stat, 3));
    let seconds = |line: String| line.split('.').next().unwrap().to_owned();
    assert_eq!(seconds(known(&ours, 5)), seconds(known(&stat, 5)));
    let followed = volume.run("stat", &["-L", "--json", "/link"]).json().remove(0);
    assert_eq!(followed["kind"], "regular file");
}

#[test]
fn cat_gives_every_byte() {
    let Some(volume) = small("cat_gives_every_byte") else { return };
    for path in walk(&volume.tree) {
        let path = std::ffi::OsStr::from_bytes(&path);
        let there = volume.tree.join(Path::new(path).strip_prefix("/").unwrap());
        if fs::symlink_metadata(&there).unwrap().is_file() {
            let ran = volume.run("cat", &[path]);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""));
            assert!(ran.out == fs::read(&there).unwrap(), "{}", there.display());
        }
    }
    let whole = fs::read(volume.tree.join("large")).unwrap();
    for (offset, len) in
        [(0, 1), (4095, 2), (1_048_570, 3_000_000), (11_999_999, 10), (12_000_000, 5), (u64::MAX, 1)]
    {
        let args = ["--offset".into(), offset.to_string(), "--len".into(), len.to_string(), "/large".into()];
        let from = (offset as usize).min(whole.len());
        let to = from.saturating_add(len).min(whole.len());
        assert!(volume.run("cat", &args).out == whole[from..to], "{offset} {len}");
    }
    let args = ["--offset", "1MiB", "--len", "4k", "/large"];
    assert!(volume.run("cat", &args).out == whole[1 << 20..(1 << 20) + 4096]);
    assert_eq!(volume.run("cat", &["/absolute"]).out, fs::read(volume.tree.join("logs/b.log")).unwrap());
    let json = volume.run("cat", &["--json", "/hello.txt"]).json().remove(0);
    assert!(json["bytes"].as_str().unwrap().starts_with("aGVsbG8gd29ybGQK"));
}

#[test]
fn cat_writes_to_files_and_survives_an_image_that_becomes_shorter() {
    let test = "cat_writes_to_files_and_survives_an_image_that_becomes_shorter";
    let Some(volume) = small(test) else { return };
    let once = ["large", "hello.txt"].map(|name| fs::read(volume.tree.join(name)).unwrap()).concat();
    let folder = tempfile::tempdir().unwrap();
    let (to, image) = (folder.path().join("to"), folder.path().join("image"));
    let cat = |image: &Path, to: Stdio| {
        let mut cat = nearside();
        cat.args(["cat", "-d"]).arg(image).args(["/large", "/hello.txt"]);
        cat.stdout(to).stderr(Stdio::piped()).spawn().unwrap()
    };
    for append in [false, true] {
        let file = fs::OpenOptions::new().create(true).write(true).append(append).open(&to).unwrap();
        let ran = cat(&volume.image, file.into()).wait_with_output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    }
    assert!(fs::read(&to).unwrap() == [&once[..], &once].concat());

    fs::copy(&volume.image, &image).unwrap();
    let mut child = cat(&image, Stdio::piped());
    let mut first = [0];
    // It has begun, and waits: a pipe does not hold the file.
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(4096).unwrap();
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && said.contains("/large: "), "{:?}: {said}", ran.status);
    assert!(ran.stdout.len() < once.len());
}

/// What stands in a pipe when the command has ended is the file's, whatever becomes of the image.
#[test]
fn what_cat_has_written_stays_what_it_was() {
    let Some(volume) = small("what_cat_has_written_stays_what_it_was") else { return };
    let once = fs::read(volume.tree.join("large")).unwrap();
    let bytes = fs::read(&volume.image).unwrap();
    let page = (0..bytes.len()).step_by(512).find(|at| bytes[*at..].starts_with(&once[..512])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::write(&image, bytes).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    let cat = |len: &str| {
        let mut cat = nearside();
        cat.args(["cat", "-d"]).arg(&image).args(["--len", len, "/large"]);
        cat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut child = cat("40000");
    let mut out = child.stdout.take().unwrap();
    assert!(child.wait().unwrap().success());
    file.write_all_at(&[0xAA; 40_000], page as u64).unwrap();
    let mut read = Vec::new();
    out.read_to_end(&mut read).unwrap();
    assert!(read == once[..40_000]);

    // Cut within a page that a pipe has, and before its reader has come to that.
    file.write_all_at(&once[..40_000], page as u64).unwrap();
    let mut child = cat("12000000");
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 1]).unwrap();
    file.set_len(page as u64 + 8192 + 100).unwrap();
    out.read_to_end(&mut read).unwrap();
    assert!(!child.wait().unwrap().success());
}

/// Even where all bytes were right: nobody knows that of a pipe's.
#[test]
fn cat_says_that_its_image_has_become_shorter() {
    let Some(volume) = small("cat_says_that_its_image_has_become_shorter") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let len = fs::copy(&volume.image, &image).unwrap();
    let mut cat = nearside();
    cat.args(["cat", "-d"]).arg(&image).arg("/large").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cat.spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // What is cut is no file's.
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(len - 4096).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.stdout == fs::read(volume.tree.join("large")).unwrap()[1..]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(2) && said.contains("image: the file has become shorter"), "{said}");
}

#[test]
fn every_command_takes_sizes_and_times_alike() {
    for (size, time) in
        [("64m", "2m"), ("64M", "2min"), ("64MiB", "120s"), ("64mib", "0.5h"), ("67108864", "9ms")]
    {
        for line in [
            format!("nearside cat -d disk.img /file --offset {size} --len {size}"),
            format!(
                "nearside bench run -d dram:{size} --size {size} --offset {size} --runtime {time} --iodepth 1"
            ),
            format!("nearside bench curve -d delayed:{time},stripe={size}:dram:{size} --steady-state={time}"),
            format!("nearside sim curve --media optane-p4800x --capacity {size} --software {time}"),
            format!("nearside act -d model:optane-p4800x:{size} --simulated --software {time}"),
        ] {
            nearside_cli::understands(line.split(' ')).unwrap_or_else(|why| panic!("{line}\n{why}"));
        }
    }
}

#[test]
fn wc_counts_as_wc_does() {
    let Some(volume) = small("wc_counts_as_wc_does") else { return };
    for flags in [&[][..], &["-l"], &["-w"], &["-c"], &["-lc"]] {
        for files in [&TEXTS[..], &TEXTS[..1], &TEXTS[5..]] {
            let args = [flags, files].concat();
            assert_eq!(volume.run("wc", &args).good(), volume.tool("wc", &args).text(), "{args:?}");
        }
    }
    // The size alone takes no byte of the file.
    let size = std::fs::metadata(volume.tree.join("large")).unwrap().len();
    for (flags, scanned) in [(&["-c"][..], 0), (&[], size), (&["-lc"], size)] {
        let json = volume.run("wc", &[flags, &["--timing", "--json", "/large"]].concat()).json();
        assert_eq!(
            (&json[0]["bytes"], &json[1]["bytes_scanned"]),
            (&size.into(), &scanned.into()),
            "{flags:?}"
        );
    }
}

/// Inodes and bytes. What is taken in blocks is compared on one volume, as root (`root_gnu`).
#[test]
fn du_counts_as_du_does() {
    let Some(folder) = needs::folder("command::du_counts_as_du_does", &["mke2fs", "du"]) else { return };
    let tree = folder.path().join("tree");
    for (path, len) in [("one/a", 700), ("one/sub/b", 5000), ("one/sub/deep/c", 0), ("two/d", 9000)] {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), vec![b'x'; len]).unwrap();
    }
    for again in ["one/again", "one/sub/again", "two/again"] {
        fs::hard_link(tree.join("one/a"), tree.join(again)).unwrap();
    }
    let volume = ext4(folder, tree, 8);
    // GNU du goes through directories in their own order.
    let same = |args: &[&str]| {
        let [ours, theirs] = [volume.run("du", args).good(), volume.tool("du", args).good()].map(|text| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        });
        assert_eq!(ours, theirs, "{args:?}");
    };
    for flags in
        [&[][..], &["-s"], &["-d0"], &["-d1"], &["--max-depth=2"], &["-S"], &["-c"], &["-l"], &["-al"]]
    {
        for paths in [&["/one"][..], &["/one", "/two"], &["/two", "/one/sub", "/one", "/one/a"]] {
            same(&[&["--inodes"], flags, paths].concat());
        }
    }
    same(&["-b", "/one/a", "/two/d", "/two/again", "/one/sub/deep/c"]);
    same(&["-bl", "/one/a", "/two/again"]);
}

#[test]
fn checksums_are_those_of_sha256sum() {
    let Some(volume) = small("checksums_are_those_of_sha256sum") else { return };
    let files = ["/hello.txt", "/large", "/empty", "/logs/a.log", "/binary"];
    assert_eq!(volume.run("cksum", &files).good(), volume.tool("sha256sum", &files).text());
    let tagged = [&["--tag"], &files[..]].concat();
    assert_eq!(volume.run("cksum", &tagged).good(), volume.tool("sha256sum", &tagged).text());
    // RFC 3720, B.4: thirty-two bytes of zeros and the check value of the nine digits are in ndp's tests;
    // here, that hosts agree.
    for algorithm in ["crc32c", "xxh3", "sha256"] {
        let drive = volume.run("cksum", &["-a", algorithm, "-r", "/"]).good();
        let host = volume
            .run("cksum", &["-a", algorithm, "-r", "/", "--locate", "host", "--compute", "host"])
            .good();
        assert_eq!(drive, host, "{algorithm}");
        assert!(drive.lines().count() > 10);
    }
}

#[test]
fn info_says_what_the_volume_is() {
    let Some(volume) = small("info_says_what_the_volume_is") else { return };
    let json = volume.run("info", &["--json"]).json().remove(0);
    assert_eq!(json["capacity"], 64 << 20);
    let first = &json["volumes"][0];
    assert_eq!((first["file_system"].as_str(), first["label"].as_str()), (Some("ext4"), Some("fixture")));
    assert_eq!((&first["needs_recovery"], &first["partition"]), (&false.into(), &0.into()));
    assert!(first["features"].as_array().unwrap().contains(&"extent".into()));
    let (inodes, used) = (&first["inodes"], &first["inodes_used"]);
    assert!(used.as_u64() > Some(11) && inodes.as_u64() > used.as_u64(), "{first}");
    for model in ["polled", "interrupt", "hybrid"] {
        let json = volume.run("info", &["--json", "--completion", model]).json().remove(0);
        assert_eq!(json["completion"]["model"], model);
    }
    let text = volume.run("info", &[] as &[&str]).good();
    for word in ["ext4", "fixture", "clean", "polled", "extent"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.contains(&format!("\ninodes           {used} in use of {inodes}\n")), "{text}");
}

/// By its mark, with what can be done: alone, and in a partition.
#[test]
fn info_says_what_no_volume_is() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let says = |bytes: &[u8], words: &[&str]| {
        std::fs::write(&image, bytes).unwrap();
        let output = nearside().args(["info", "-d"]).arg(&image).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let mut bytes = vec![0; 4 << 20];
    let none = "no file system that is known (ext2, ext3, ext4, F2FS) and no partitions";
    let zeros = format!("{none}, but zeros, where file systems and partition tables begin\n");
    assert!(says(&bytes, &[]).ends_with(&zeros));
    bytes[..4].copy_from_slice(b"KDMV");
    let vmdk = "a VMDK disk image: qemu-img convert -O raw IMAGE RAW makes an image that can be read\n";
    assert!(says(&bytes, &[]).ends_with(&format!("{none}, but {vmdk}")));
    bytes[..4].copy_from_slice(b"what");
    assert!(says(&bytes, &[]).ends_with(&format!("{none}\n")));
    // Linux in the table, XFS in the partition; one that only the table knows.
    for (entry, kind, at) in [(446, 0x83, 1u32 << 11), (462, 0x42, 2 << 11)] {
        bytes[entry + 4] = kind;
        bytes[entry + 8..entry + 12].copy_from_slice(&at.to_le_bytes());
        bytes[entry + 12..entry + 16].copy_from_slice(&(1u32 << 11).to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes[1 << 20..(1 << 20) + 4].copy_from_slice(b"XFSB");
    bytes[2 << 20] = 1;
    let both = says(&bytes, &[]);
    assert!(both.ends_with("no partition with a known file system: 1: XFS, 2: not known (0x42)\n"), "{both}");
    let one = says(&bytes, &["--partition", "1"]);
    assert!(one.ends_with("1: XFS, which is not read here: mount -o ro shows its files\n"), "{one}");
}

#[test]
fn doctor_says_what_is_lacking() {
    let output = nearside().arg("doctor").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for word in
        ["cores", "time-stamp counter", "io_uring", "FUSE", "loop", "KVM", "huge pages", "root", "mkfs.f2fs"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(text.matches("lacking").count(), text.matches("costs: ").count());
}

#[test]
fn every_command_has_help_with_examples() {
    for command in nearside_cli::definitions().get_subcommands().filter(|c| !c.has_subcommands()) {
        let command = command.get_name();
        let output = nearside().args([command, "--help"]).output().unwrap();
        assert!(output.status.success(), "{command}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("Examples:") && text.contains(&format!("nearside {command}")),
            "{command}: {text}"
        );
    }
}

#[test]
fn the_environment_names_the_drive() {
    let Some(volume) = small("the_environment_names_the_drive") else { return };
    let output =
        nearside().args(["cat", "/hello.txt"]).env("NEARSIDE_DRIVE", &volume.image).output().unwrap();
    assert_eq!(output.stdout, fs::read(volume.tree.join("hello.txt")).unwrap());
    let output = nearside().args(["cat", "/hello.txt"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--drive"));
}

/// An MBR with the volume in the partitions given, each of `len` bytes from a megabyte on.
fn partitioned(volume: &Volume, kinds: &[Option<&[u8]>]) -> std::path::PathBuf {
    let len = kinds.iter().flatten().map(|k| k.len()).max().unwrap_or(1 << 20).next_multiple_of(1 << 20);
    let mut disk = vec![0u8; (1 << 20) + len * kinds.len()];
    for (i, content) in kinds.iter().enumerate() {
        let start = (1 << 20) + i * len;
        let entry = 446 + 16 * i;
        disk[entry + 4] = 0x83;
        disk[entry + 8..entry + 12].copy_from_slice(&((start / 512) as u32).to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&((len / 512) as u32).to_le_bytes());
        if let Some(content) = content {
            disk[start..start + content.len()].copy_from_slice(content);
        }
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let path = volume.folder.path().join(format!("mbr-{}.img", kinds.len()));
    fs::write(&path, disk).unwrap();
    path
}

#[test]
fn partitions_are_chosen_or_listed() {
    let Some(volume) = small("partitions_are_chosen_or_listed") else { return };
    let image = fs::read(&volume.image).unwrap();
    let hello = fs::read(volume.tree.join("hello.txt")).unwrap();
    // The only one with a known file system needs no number.
    let one = partitioned(volume, &[None, Some(&image), None]);
    assert_eq!(on(&one, "cat", &["/hello.txt"]).out, hello);
    let two = partitioned(volume, &[Some(&image), Some(&image)]);
    let ran = on(&two, "cat", &["/hello.txt"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("ext4") && ran.err.contains('1') && ran.err.contains('2'), "{}", ran.err);
    assert_eq!(on(&two, "cat", &["--partition", "2", "/hello.txt"]).out, hello);
    let host = on(&two, "grep", &["--partition", "2", "--locate", "host", "-c", "hello", "/hello.txt"]);
    assert_eq!(host.good(), "2\n");
    assert_eq!(on(&two, "cat", &["--partition", "7", "/hello.txt"]).code, 2);
}

/// `nearside sql` is another program: the one beside the command, or else where the shell finds programs. All
/// that is behind the word goes to it, help among it.
#[test]
fn sql_is_a_program_beside_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let command = folder.path().join("nearside");
    install(env!("CARGO_BIN_EXE_nearside").as_ref(), &command);
    let run = |words: &[&str], path: &Path| {
        let mut run = Command::new(&command);
        Ran::from(run.arg("sql").args(words).env("PATH", path).stdin(Stdio::null()).output().unwrap())
    };
    let nowhere = folder.path().join("nowhere");
    let missing = run(&["select 1"], &nowhere);
    assert_eq!((missing.code, missing.text().as_str()), (2, ""));
    for part in ["nearside-sql is not installed", "the package of that name", "make sql"] {
        assert!(missing.err.contains(part), "{part}: {}", missing.err);
    }
    let says = |place: &Path, what: &str| {
        let script = folder.path().join("script");
        fs::create_dir_all(place).unwrap();
        fs::write(&script, format!("#!/bin/sh\nprintf '{what}:'; printf ' <%s>' \"$@\"; exit 7\n")).unwrap();
        install(&script, &place.join("nearside-sql"));
    };
    says(&nowhere, "found");
    let words = ["-d", "a b", "-h", "--help", "select 'x'"];
    let given = " <-d> <a b> <-h> <--help> <select 'x'>";
    let found = run(&words, &nowhere);
    assert_eq!((found.code, found.text()), (7, format!("found:{given}")), "{}", found.err);
    says(folder.path(), "beside");
    let beside = run(&words, &nowhere);
    assert_eq!((beside.code, beside.text()), (7, format!("beside:{given}")), "{}", beside.err);
}
