//! What mke2fs was given is what the view shows, for every variant; without root.

use crate::ext_images::{LARGE_BLOCKS, VARIANTS, make, plant};
use nearside_conformance::view::{Image, block_on, differences, read, read_host};
use nearside_conformance::{drive, needs, today, volume::ext_inodes};
use nearside_fsview::{FileKind, Volume};

#[test]
fn equals_the_source_directory() {
    let tools = ["mke2fs", "tune2fs", "debugfs", "dumpe2fs"];
    let Some(dir) = needs::folder("equals_the_source_directory", &tools) else { return };
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    plant(&from, 1).unwrap();
    let host = read_host(&from).unwrap();
    let image = dir.path().join("image");
    for (nr, variant) in VARIANTS.iter().chain(LARGE_BLOCKS).enumerate() {
        // What root_ext_kernel mounts today is for the other days here.
        let is_here_alone = nr >= VARIANTS.len() || variant.name == "ext4-casefold";
        if !is_here_alone && !today::takes(nr / 2 + 1, 2) {
            continue;
        }
        let mib = if variant.args.contains("65536") { 600 } else { 64 };
        if !make(variant, &image, mib, Some(&from)).unwrap() {
            needs::left_out(variant.name, "this mke2fs does not know it");
            continue;
        }
        let source = Image::open(&image).unwrap();
        let volume = block_on(Volume::open(&source)).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
        let kind = variant.name.split('-').next().unwrap();
        assert_eq!(volume.info().file_system, kind, "{}: {:?}", variant.name, volume.info());
        assert_eq!(volume.info().label, "near side");
        assert!(!volume.info().needs_recovery);
        let counted = (volume.info().inodes, volume.info().inodes_used);
        assert_eq!(counted, ext_inodes(&image), "{}", variant.name);
        let mut view = read(&volume, &source).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
        // root_ext_kernel has the others of those that it can mount.
        if is_here_alone || nr % 2 == 1 {
            drive::suite(variant.name, &image, &view);
        } else {
            drive::shows(variant.name, &image, &view);
        }
        view.retain(|path, _| !path.starts_with(b"/lost+found"));
        // mke2fs keeps whole seconds, and gives directories their own sizes, links and a new root.
        let found = differences(&view, &host, &|node| {
            node.sectors = 0;
            node.mtime_ns -= node.mtime_ns.rem_euclid(1_000_000_000);
            if node.kind == FileKind::Directory {
                (node.size, node.links, node.mtime_ns) = (0, 0, 0);
            }
        });
        assert!(found.is_empty(), "{}:\n{}", variant.name, found.join("\n"));
    }
}
