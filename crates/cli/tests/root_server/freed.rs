//! A live ext4 whose freed blocks are another file's by now, while home locations still name them for the
//! file that is gone: the kernel's own doing, seen through the image beside the mount.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nearside_conformance::volume::{Mounted, ext};

use crate::can_mount;
use crate::in_use::nearside;

/// Over half of what there is room for: one of the two takes blocks of the other.
const BYTES: usize = 8 << 20;

#[test]
fn a_freed_block_is_nobodys_to_read() {
    let test = "root_server::freed::a_freed_block_is_nobodys_to_read";
    if !can_mount(test) {
        return;
    }
    // A home location may be written at any time: one round in which it was late is enough.
    let shown = (0..10).any(|_| one_round() > 0);
    assert!(shown, "in none of the rounds a freed block was another file's");
}

/// How many lines of the other file the deleted one's name gives where the image's owner wants them;
/// nobody else gets one.
fn one_round() -> u64 {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let (image, place) = (at("disk.img"), at("mnt"));
    ext(&image, 16, None, &["-t", "ext4"]);
    let _mount = Mounted::new(&["-o", "loop"], &image, &place);
    fs::write(place.join("public"), "public\n".repeat(BYTES / 7)).unwrap();
    assert!(Command::new("sync").status().unwrap().success());
    fs::remove_file(place.join("public")).unwrap();
    let mut secret = fs::File::create(place.join("secret")).unwrap();
    secret.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    secret.write_all("SECRET\n".repeat(BYTES / 7).as_bytes()).unwrap();
    secret.sync_all().unwrap();

    let image = image.to_str().unwrap();
    let grep = |more: &[&str], path: &str| {
        let (_, out, err) =
            nearside(&[&["grep", "-a", "-c", "SECRET", "-d", image][..], more, &[path]].concat());
        (out.trim().parse().unwrap_or(0), err)
    };
    let nobody = ["--as", "65534:65534"];
    for path in ["/public", "/secret"] {
        let (lines, err) = grep(&nobody, path);
        assert_eq!(lines, 0, "nobody's {path}: {err}");
        assert!(!err.is_empty());
    }
    let (lines, _) = grep(&[&nobody[..], &["--allow-unrecovered"]].concat(), "/public");
    let (root, _) = grep(&[], "/public");
    assert!(root >= lines, "root has {root} of {lines}");
    lines
}
