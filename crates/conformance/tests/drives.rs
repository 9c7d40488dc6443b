//! Whole drives over volumes of several kinds at once.

use std::fs;
use std::process::Command;

use nearside_conformance::{drive, needs};

/// Two volumes in partitions of one drive, with the same name for files of their own.
#[test]
fn an_unreadable_volume_is_not_taken_for_none() {
    const NAME: &str = "drives::an_unreadable_volume_is_not_taken_for_none";
    if !needs::tools(NAME, &["mke2fs", "mkfs.f2fs", "sload.f2fs"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let out = command.output().unwrap();
        // sload.f2fs ends with 0 or, having written, 1.
        assert!(out.status.code().is_some_and(|c| c <= 1), "{command:?}: {out:?}");
    };
    let tool = |name: &str| Command::new(needs::tool(name).unwrap());
    let volume = |kind: &str, mib: u64, content: &str| {
        let (tree, image) = (dir.path().join(content), dir.path().join(format!("{content}.img")));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), content).unwrap();
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        if kind == "f2fs" {
            run(tool("mkfs.f2fs").args(["-q", "-f"]).arg(&image));
            run(tool("sload.f2fs").arg("-f").arg(&tree).arg(&image));
        } else {
            run(tool("mke2fs").args(["-q", "-F", "-t", kind, "-d"]).arg(&tree).arg(&image));
        }
        fs::read(image).unwrap()
    };
    let volumes = [volume("ext4", 8, "one"), volume("f2fs", 64, "two"), volume("ext2", 8, "three")];
    for pair in [[0, 2], [2, 1], [1, 0]] {
        let mut drive = vec![0; 1 << 20];
        for (entry, volume) in pair.into_iter().enumerate() {
            let (at, len) = (drive.len() as u32 / 512, volumes[volume].len() as u32 / 512);
            drive.extend(&volumes[volume]);
            let entry = 446 + 16 * entry;
            drive[entry + 4] = 0x83;
            drive[entry + 8..entry + 12].copy_from_slice(&at.to_le_bytes());
            drive[entry + 12..entry + 16].copy_from_slice(&len.to_le_bytes());
        }
        drive[510..512].copy_from_slice(&[0x55, 0xaa]);
        let image = dir.path().join("drive.img");
        fs::write(&image, drive).unwrap();
        drive::several_volumes(&format!("{pair:?}"), &image);
    }
}
