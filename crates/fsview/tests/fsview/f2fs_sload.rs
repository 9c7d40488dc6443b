//! F2FS volumes as mkfs.f2fs and sload.f2fs make them, compared with the tree that was loaded.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use crate::f2fs_support::*;
use nearside_conformance::volume::{self, tool};
use nearside_conformance::{drive, needs};
use nearside_fsview::Volume;
use nearside_random::Rng;
use sha2::{Digest as _, Sha256};

/// Makes a volume of so many MiB with `options` and loads `tree` into it.
fn made(dir: &Path, tree: &Path, mib: u64, options: &[&str]) -> Disk {
    let image = dir.join("f2fs.img");
    volume::f2fs(&image, mib, Some(tree), &[&["-l", "tested"], options].concat());
    Disk(File::open(image).unwrap())
}

/// Compares what the volume shows with the tree that was loaded, and whole drives with what it shows.
fn check(test: &str, dir: &Path, volume: &Volume, image: &Disk, tree: &Path) {
    let found = comparable(walk(volume, image, &[]).unwrap());
    assert_same(&found, &comparable(expected(tree)), test);
    drive::suite_by_view(test, &dir.join("f2fs.img"));
}

/// A file as dump.f2fs reads it: it asks before it writes to a folder of its own.
fn dumped(dir: &Path, ino: u32, path: &str) -> Vec<u8> {
    let answer = dir.join("answer");
    fs::write(&answer, "y\n").unwrap();
    let output = tool("dump.f2fs")
        .args(["-i", &ino.to_string(), "f2fs.img"])
        .current_dir(dir)
        .stdin(File::open(answer).unwrap())
        .output()
        .unwrap();
    fs::read(dir.join("lost_found").join(&path[1..]))
        .unwrap_or_else(|e| panic!("{path}: {e}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// The tree's manifest as `describe` writes them; of times the seconds, of directories no link counts.
fn expected(root: &Path) -> Manifest {
    let mut manifest = Manifest::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let below = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
        let key = [b"/", below].concat();
        let (mut sha, mut target, mut size) = ("-".to_owned(), "-".to_owned(), meta.size().to_string());
        if meta.is_dir() {
            size = "-".into();
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_symlink() {
            target = escape(fs::read_link(&path).unwrap().as_os_str().as_bytes());
        } else {
            let mut hasher = Sha256::new();
            hasher.update(fs::read(&path).unwrap());
            sha = hex(&hasher.finalize());
        }
        let line = format!(
            "{:o}\t{}\t{}\t{}\t{size}\t{}\t-\t{sha}\t{target}\t-",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink(),
            meta.mtime()
        );
        manifest.insert(key, line);
    }
    manifest
}

/// Drops what the tool does not keep: nanoseconds, and the root's own attributes.
fn comparable(manifest: Manifest) -> Manifest {
    manifest
        .into_iter()
        .filter(|(path, _)| path != b"/" && path != b"/lost+found")
        .map(|(path, line)| {
            let mut fields: Vec<&str> = line.split('\t').collect();
            fields[5] = fields[5].split('.').next().unwrap();
            (path, fields.join("\t"))
        })
        .collect()
}

/// A tree of the things that the tool keeps: sizes around every boundary, links, long and odd names.
fn seeded_tree(root: &Path) {
    let mut random = Rng(20_26);
    let bytes = |random: &mut Rng, len: usize| -> Vec<u8> {
        (0..len).map(|_| random.draw().to_le_bytes()[0]).collect()
    };
    fs::create_dir(root).unwrap();
    let sizes = [
        0, 1, 100, 3400, 3488, 3489, 3690, 3691, 3692, 4095, 4096, 4097, 65_536, 3_780_607, 3_780_608,
        3_780_609,
    ];
    for size in sizes {
        fs::write(root.join(format!("size-{size}")), bytes(&mut random, size)).unwrap();
    }
    for depth in 0..24 {
        let mut path = root.to_owned();
        for level in 0..=depth {
            path.push(format!("level-{level}"));
        }
        fs::create_dir(&path).unwrap();
        let len = random.below(20_000) as usize;
        fs::write(path.join("file"), bytes(&mut random, len)).unwrap();
        let mode = [0o600, 0o640, 0o755, 0o4755, 0o1777][depth % 5];
        fs::set_permissions(path.join("file"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let names = root.join("names");
    fs::create_dir(&names).unwrap();
    for len in [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 254, 255] {
        fs::write(names.join("n".repeat(len)), format!("{len}")).unwrap();
    }
    for name in [&b"caf\xC3\xA9"[..], b"\xFF\xFE not text", b"tab\tand\nnewline", b"..."] {
        fs::write(names.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    fs::hard_link(root.join("size-4097"), names.join("hard")).unwrap();
    fs::hard_link(root.join("size-100"), names.join("hard, inline")).unwrap();
    symlink("a short target", names.join("link")).unwrap();
    symlink("t".repeat(4000), names.join("long link")).unwrap();
    symlink("/names/link", names.join("absolute link")).unwrap();
}

fn compare(options: &[&str]) {
    let test = format!("f2fs_sload {options:?}");
    let Some(dir) = needs::folder(&test, &["mkfs.f2fs", "sload.f2fs", "dump.f2fs"]) else { return };
    let tree = dir.path().join("tree");
    seeded_tree(&tree);
    let image = made(dir.path(), &tree, 128, options);
    let volume = now(Volume::open(&image)).unwrap();
    assert_eq!((volume.info().file_system, volume.info().label.as_str()), ("f2fs", "tested"));
    assert!(!volume.info().needs_recovery);
    if let Some(wanted) = options.iter().skip_while(|o| **o != "-O").nth(1) {
        for feature in wanted.split(',') {
            assert!(
                volume.info().features.iter().any(|f| f == feature),
                "{feature}: {:?}",
                volume.info().features
            );
        }
    }
    let mut found = comparable(walk(&volume, &image, &[]).unwrap());
    let mut expected = comparable(expected(&tree));
    if options.iter().any(|o| o.contains("flexible_inline_xattr")) {
        // sload.f2fs 1.15 spoils files larger than an inode's addresses here: from there on the volume does
        // not hold what was loaded. What it holds instead, dump.f2fs says.
        let spoilt = |path: &Vec<u8>| path.starts_with(b"/size-378060");
        for path in expected.keys().filter(|path| spoilt(path)) {
            assert!(found.remove(path).is_some());
            let path = std::str::from_utf8(path).unwrap();
            let inode = resolve(&volume, &image, path).unwrap().unwrap();
            let mut bytes = Vec::new();
            content(&volume, &image, &inode, |piece| bytes.extend_from_slice(piece)).unwrap();
            assert!(bytes == dumped(dir.path(), inode.ino.0, path), "{path} is not what dump.f2fs reads");
            assert_ne!(
                bytes,
                fs::read(tree.join(&path[1..])).unwrap(),
                "{path} can be compared as the others"
            );
        }
        expected.retain(|path, _| !spoilt(path));
    }
    assert_same(&found, &expected, &test);
    drive::suite_by_view(&test, &dir.path().join("f2fs.img"));
}

#[test]
fn default() {
    compare(&[]);
}

#[test]
fn extra_attributes_and_checksums() {
    compare(&["-O", "extra_attr,inode_checksum,sb_checksum"]);
}

#[test]
fn creation_times_and_flexible_xattrs() {
    compare(&["-O", "extra_attr,flexible_inline_xattr,inode_crtime"]);
}

#[test]
fn all_that_change_the_inode() {
    compare(&[
        "-O",
        "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,compression,verity,encrypt",
    ]);
}

#[test]
fn quotas_and_lost_found() {
    compare(&["-O", "extra_attr,quota,project_quota,lost_found"]);
}

#[test]
fn casefold_volume_with_plain_directories() {
    compare(&["-O", "extra_attr,casefold", "-C", "utf8"]);
}

#[test]
fn a_large_volume_whose_nat_bitmap_is_elsewhere() {
    let test = "f2fs_sload: large NAT bitmap";
    let Some(dir) = needs::folder(test, volume::tools("f2fs")) else { return };
    let tree = dir.path().join("tree");
    seeded_tree(&tree);
    // Sparse. The extended bitmap lies behind the checksum, which is then at the front.
    let image = made(dir.path(), &tree, 16 << 10, &["-i"]);
    let volume = now(Volume::open(&image)).unwrap();
    check(test, dir.path(), &volume, &image, &tree);
}

#[test]
fn twenty_thousand_files_and_a_large_directory() {
    let test = "f2fs_sload: 20,000 files";
    let Some(dir) = needs::folder(test, volume::tools("f2fs")) else { return };
    let tree = dir.path().join("tree");
    let deep = (0..20).fold(tree.join("deep"), |p, level| p.join(format!("d{level}")));
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(tree.join("large")).unwrap();
    for i in 0..8_000 {
        fs::write(deep.join(format!("file-{i:05}.txt")), format!("deep {i}")).unwrap();
    }
    for i in 0..12_000 {
        File::create(tree.join(format!("large/a rather long name, so that slots are shared: {i}"))).unwrap();
    }
    let image = made(dir.path(), &tree, 512, &[]);
    let volume = now(Volume::open(&image)).unwrap();
    check(test, dir.path(), &volume, &image, &tree);
}

#[test]
fn a_file_of_many_nodes() {
    let test = "f2fs_sload: a large file";
    let Some(dir) = needs::folder(test, volume::tools("f2fs")) else { return };
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // Past the two direct nodes, with a piece of data at each boundary of the tree.
    let mut file = File::create(tree.join("large")).unwrap();
    let block = 4096;
    for at in [
        0,
        922,
        923,
        924,
        923 + 1017,
        923 + 1018,
        923 + 2 * 1018 - 1,
        923 + 2 * 1018,
        923 + 3 * 1018 + 5,
        12_000,
    ] {
        file.seek(SeekFrom::Start(at * block)).unwrap();
        file.write_all(format!("block {at}").as_bytes()).unwrap();
    }
    file.set_len(12_001 * block + 17).unwrap();
    let image = made(dir.path(), &tree, 256, &[]);
    let volume = now(Volume::open(&image)).unwrap();
    check(test, dir.path(), &volume, &image, &tree);
}

#[test]
fn the_second_superblock_serves_when_the_first_is_damaged() {
    let test = "f2fs_sload: second superblock";
    let Some(dir) = needs::folder(test, volume::tools("f2fs")) else { return };
    let tree = dir.path().join("tree");
    seeded_tree(&tree);
    drop(made(dir.path(), &tree, 128, &[]));
    let file = File::options().read(true).write(true).open(dir.path().join("f2fs.img")).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let image = Disk(file);
    let volume = now(Volume::open(&image)).unwrap();
    assert!(volume.info().warnings.iter().any(|w| w.contains("second")), "{:?}", volume.info().warnings);
    check(test, dir.path(), &volume, &image, &tree);
}
