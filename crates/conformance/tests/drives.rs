//! Whole drives over volumes of several kinds at once.

use std::fs;

use nearside_conformance::{drive, needs, volume};

/// Two volumes in partitions of one drive, with the same name for files of their own.
#[test]
fn an_unreadable_volume_is_not_taken_for_none() {
    const NAME: &str = "drives::an_unreadable_volume_is_not_taken_for_none";
    let Some(dir) = needs::folder(NAME, &["mke2fs", "mkfs.f2fs", "sload.f2fs"]) else { return };
    let made = |kind: &str, mib: u64, content: &str| {
        let (tree, image) = (dir.path().join(content), dir.path().join(format!("{content}.img")));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), content).unwrap();
        volume::make(kind, &image, mib, &tree);
        fs::read(image).unwrap()
    };
    let volumes = [made("ext4", 8, "one"), made("f2fs", 64, "two"), made("ext2", 8, "three")];
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
