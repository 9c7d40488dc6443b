//! The machine's kernel is the oracle: it writes a tree on a loop mount, and the view of the image afterwards
//! equals its next mount of the same image, in content and metadata.

#[path = "fsview/ext_images/mod.rs"]
mod ext_images;

use std::path::Path;

use crate::ext_images::recovered::line;
use crate::ext_images::{ACLS, Mount, VARIANTS, Variant, crowd, make, plant, plant_as_root, run};
use nearside_conformance::view::{Image, Tree, block_on, differences, read, read_host, resolve};
use nearside_conformance::{drive, needs, today};
use nearside_fsview::{Attribute, State, Volume};

const TOOLS: &[&str] = &[
    "mke2fs",
    "tune2fs",
    "debugfs",
    "e2fsck",
    "mount",
    "umount",
    "setfacl",
    "getfacl",
    "setfattr",
    "getfattr",
    "fallocate",
];

fn ready(test: &str) -> bool {
    if !needs::root(test) || !needs::tools(test, TOOLS) {
        return false;
    }
    let loops = Path::new("/dev/loop-control").exists();
    if !loops {
        needs::left_out(test, "no loop devices");
    }
    loops
}

fn open(image: &Path) -> (Volume, Image) {
    let source = Image::open(image).unwrap();
    let volume = block_on(Volume::open(&source)).unwrap_or_else(|e| panic!("{}: {e}", image.display()));
    (volume, source)
}

/// Compares the view with a read-only mount; returns the tree.
fn compare(name: &str, image: &Path, mount: &Path) -> Tree {
    let (volume, source) = open(image);
    let view = read(&volume, &source).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mounted = Mount::new(image, mount, "ro").unwrap();
    let host = read_host(mounted.path()).unwrap();
    let found = differences(&view, &host, &|_| {});
    assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
    compare_acls(name, &volume, &source, mounted.path());
    compare_attributes(name, &volume, &source, mounted.path());
    mounted.end().unwrap();
    view
}

fn compare_acls(name: &str, volume: &Volume, source: &Image, root: &Path) {
    if !root.join("lists").exists() {
        return;
    }
    let files = ACLS.iter().map(|(file, _)| *file).chain(["directory", "directory/inherits"]);
    for file in files.map(|file| format!("lists/{file}")) {
        let said = run("getfacl", &["-ncpE", root.join(&file).to_str().unwrap()]).unwrap();
        let said = String::from_utf8(said).unwrap();
        let mut host: Vec<_> = said
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with("default:"))
            .map(str::to_string)
            .collect();
        let inode = resolve(volume, source, file.as_bytes()).unwrap().unwrap();
        let acl = block_on(volume.acl(source, &inode)).unwrap();
        let acl = acl.unwrap_or_else(|| panic!("{name}: no ACL on {file}"));
        let mut view: Vec<_> = acl.entries.iter().map(line).collect();
        host.sort();
        view.sort();
        assert_eq!(view, host, "{name}: {file}");
    }
    let plain = resolve(volume, source, b"sizes/1024").unwrap().unwrap();
    assert_eq!(block_on(volume.acl(source, &plain)), Ok(None));
}

/// All extended attributes, ACLs among them, by getfattr's word.
fn compare_attributes(name: &str, volume: &Volume, source: &Image, root: &Path) {
    if !root.join("lists").exists() {
        return;
    }
    let said =
        run("getfattr", &["-RPhd", "-m", "-", "-e", "hex", root.to_str().unwrap(), "--absolute-names"]);
    let said = String::from_utf8(said.unwrap()).unwrap();
    let mut seen = 0;
    for file in said.split("\n\n").filter(|file| !file.is_empty()) {
        let (path, host) = file.split_once('\n').unwrap();
        let path = path.strip_prefix("# file: ").unwrap().strip_prefix(root.to_str().unwrap()).unwrap();
        let path = path.trim_start_matches('/');
        let inode = resolve(volume, source, path.as_bytes()).unwrap().unwrap();
        let line = |one: &Attribute| {
            let value = block_on(volume.attribute_value(source, &inode, one)).unwrap();
            assert_eq!(value.len(), one.len as usize, "{name}: {path}");
            let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            let key = String::from_utf8(one.name.clone()).unwrap();
            if value.is_empty() { key } else { format!("{key}=0x{value}") }
        };
        let all = block_on(volume.attributes(source, &inode)).unwrap();
        let mut view: Vec<String> = all.iter().map(line).collect();
        let mut host: Vec<&str> = host.lines().map(|line| line.trim_end_matches("=0x")).collect();
        host.sort();
        view.sort();
        assert_eq!(view, host, "{name}: {path}");
        seen += view.len();
    }
    assert!(seen >= 12, "{name}: {seen} attributes");
    if name == "ext4-ea_inode" {
        assert!(said.contains("user.40000="), "{name}: no value in an inode of its own");
    }
}

#[test]
fn every_variant_equals_the_kernels_mount() {
    if !ready("every_variant_equals_the_kernels_mount") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    // One of them only, where a developer says so.
    let only = std::env::var("EXT_VARIANT").ok();
    for (nr, variant) in VARIANTS.iter().enumerate() {
        let is_other = only.as_ref().is_some_and(|only| only != variant.name);
        // The others are ext_tree's today. Few kernels have casefold, which that test always has.
        if is_other || variant.name == "ext4-casefold" || only.is_none() && !today::takes(nr / 2, 2) {
            continue;
        }
        let mib = if variant.args.contains("65536") { 1024 } else { 256 };
        if !make(variant, &image, mib, None).unwrap() {
            needs::left_out(variant.name, "this mke2fs does not know it");
            continue;
        }
        let seed = nr as u64;
        let block = u64::from(open(&image).0.info().block_size);
        if let Ok(mounted) = Mount::new(&image, &mount, "rw") {
            plant(mounted.path(), seed).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
            plant_as_root(mounted.path(), block, seed).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
            mounted.end().unwrap();
        } else {
            // Kernels without quotas mount such a volume for reading only: then mke2fs fills it.
            let from = dir.path().join(variant.name);
            std::fs::create_dir(&from).unwrap();
            plant(&from, seed).unwrap();
            assert!(make(variant, &image, mib, Some(&from)).unwrap());
        }
        assert!(!open(&image).0.info().needs_recovery, "{}", variant.name);
        let view = compare(variant.name, &image, &mount);
        // ext_tree has the others.
        if nr % 2 == 0 {
            drive::suite(variant.name, &image, &view);
        } else {
            drive::shows(variant.name, &image, &view);
        }
    }
}

/// A crowd of names, then the same after `e2fsck -fyD` has packed and indexed the directories again.
fn crowded(variant: Variant, mib: u64, files: usize, name_len: usize) {
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    assert!(make(&variant, &image, mib, None).unwrap());
    let mounted = Mount::new(&image, &mount, "rw").unwrap();
    crowd(&mounted.path().join("crowd"), files, name_len).unwrap();
    mounted.end().unwrap();
    let before = compare(variant.name, &image, &mount);
    assert!(before.len() > files);
    let fsck = run("e2fsck", &["-fyD", image.to_str().unwrap()]);
    assert!(fsck.as_ref().is_ok() || fsck.as_ref().is_err_and(|e| e.contains("exit status: 1")), "{fsck:?}");
    let view = compare(variant.name, &image, &mount);
    // A block as large as the page, and three levels of small ones: the others differ from these in the view
    // only.
    if matches!(variant.name, "ext4-4k" | "ext4-large_dir") {
        drive::suite(variant.name, &image, &view);
    }
}

fn variant(name: &str) -> Variant {
    *VARIANTS.iter().find(|v| v.name == name).unwrap()
}

#[test]
fn directories_of_100000_entries() {
    if !ready("directories_of_100000_entries") {
        return;
    }
    // The last has three levels of index nodes.
    let crowds = [
        ("ext4-4k", 100_000, 20),
        ("ext4-1k", 100_000, 12),
        ("ext3-4k", 100_000, 9),
        ("ext4-large_dir", 60_000, 200),
    ];
    for (name, files, name_len) in today::of(crowds, 2) {
        crowded(variant(name), 256, files, name_len);
    }
}

#[test]
fn directories_without_an_index_until_e2fsck_makes_one() {
    if !ready("directories_without_an_index_until_e2fsck_makes_one") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (from, image, mount) = (dir.path().join("from"), dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&from).unwrap();
    crowd(&from.join("crowd"), 20_000, 30).unwrap();
    for name in ["ext4-1k", "ext4-tea", "ext4-legacy-unsigned", "ext2-4k"] {
        assert!(make(&variant(name), &image, 128, Some(&from)).unwrap());
        compare(name, &image, &mount);
        let _ = run("e2fsck", &["-fyD", image.to_str().unwrap()]);
        let view = compare(name, &image, &mount);
        // The others differ from these in the view only.
        if matches!(name, "ext4-1k" | "ext2-4k") {
            drive::suite(name, &image, &view);
        }
    }
}

#[test]
fn extent_trees_of_depth_three() {
    if !ready("extent_trees_of_depth_three") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    assert!(make(&variant("ext4-1k"), &image, 512, None).unwrap());
    let mounted = Mount::new(&image, &mount, "rw").unwrap();
    let file = std::fs::File::create(mounted.path().join("comb")).unwrap();
    for n in 0..60_000u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, &n.to_le_bytes(), n * 2048).unwrap();
    }
    drop(file);
    mounted.end().unwrap();
    let tree = run("debugfs", &["-R", "ex -n /comb", image.to_str().unwrap()]).unwrap();
    assert!(String::from_utf8_lossy(&tree).contains("/ 3"), "{}", String::from_utf8_lossy(&tree[..500]));
    let view = compare("depth 3", &image, &mount);
    drive::suite("depth 3", &image, &view);
}

#[test]
fn a_mounted_volume_says_at_home_that_it_needs_recovery() {
    if !ready("a_mounted_volume_says_at_home_that_it_needs_recovery") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    for name in ["ext4-4k", "ext4-fast_commit"] {
        assert!(make(&variant(name), &image, 64, None).unwrap());
        let mounted = Mount::new(&image, &mount, "rw").unwrap();
        std::fs::write(mounted.path().join("fresh"), "fresh").unwrap();
        run("sync", &["-f", mount.to_str().unwrap()]).unwrap();
        let dirty = dir.path().join("dirty");
        std::fs::copy(&image, &dirty).unwrap();
        mounted.end().unwrap();
        let source = Image::open(&dirty).unwrap();
        let volume = block_on(Volume::open_as(&source, State::Home)).unwrap();
        assert!(volume.info().needs_recovery);
        assert!(volume.info().features.iter().any(|f| f == "needs_recovery"));
        assert!(volume.info().unstable().is_some_and(|text| text.contains("home locations")));
        block_on(volume.inode(&source, volume.root())).unwrap();
        let (volume, source) = open(&image);
        assert!(!volume.info().needs_recovery);
        assert!(resolve(&volume, &source, b"fresh").unwrap().is_some());
    }
}
