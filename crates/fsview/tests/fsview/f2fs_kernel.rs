//! F2FS volumes that a stock kernel wrote (fixtures/f2fs, made by scripts/guest/remake.py), compared with
//! what that kernel said was on them.

use crate::f2fs_support::*;
use nearside_conformance::drive;
use nearside_fsview::acl::Acl;
use nearside_fsview::{Error, FileKind, Recovery, RunPlace, State, Volume};

/// Opens a fixture and compares its tree with a manifest, and whole drives with the tree; `but` are paths
/// that the manifest leaves out.
fn same(name: &str, but: &[&str]) -> (Volume, Memory) {
    let image = Memory::new(decompressed(&format!("f2fs/{name}.img.zst")));
    let volume = now(Volume::open_as(&image, State::Home)).unwrap();
    let mut found = walk(&volume, &image, but).unwrap();
    for path in but {
        assert!(found.remove(path.as_bytes()).is_some(), "{path}");
    }
    let text = String::from_utf8(decompressed(&format!("f2fs/{name}.txt.zst"))).unwrap();
    assert_same(&found, &manifest(&text), name);
    assert_eq!(volume.info().recovery, Recovery::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &image.0[..]).unwrap();
    drive::suite_by_view(name, file.path());
    (volume, image)
}

const COMPACT: u32 = 4;
const UMOUNT: u32 = 1;

#[test]
fn one_of_each_thing() {
    let (volume, image) = same("plain", &["/.far"]);
    assert!(!volume.info().needs_recovery);
    assert!(volume.info().warnings.is_empty(), "{:?}", volume.info().warnings);
    assert_eq!(volume.info().inodes_used, 614, "as dump.f2fs -d 1 says");
    assert_eq!(checkpoint_flags(&image.0) & UMOUNT, UMOUNT);
    far(&volume, &image);
}

#[test]
fn one_of_each_thing_with_every_inode_feature() {
    let (volume, image) = same("extra", &["/.far"]);
    let features = &volume.info().features;
    for feature in ["extra_attr", "inode_checksum", "flexible_inline_xattr", "inode_crtime", "sb_checksum"] {
        assert!(features.iter().any(|f| f == feature), "{feature}: {features:?}");
    }
    far(&volume, &image);
    let inode = resolve(&volume, &image, "/hard").unwrap().unwrap();
    let born = inode.crtime.expect("a time of birth");
    assert!(born.seconds > 1_600_000_000 && born <= inode.ctime, "{born:?}");
}

/// The file of a double indirect node: what is mapped are the six pieces that were written, and nothing else.
fn far(volume: &Volume, image: &Memory) {
    let n = 1018_u64;
    let written = [0, 2958 + n * n, 2959 + n * n, 2958 + 2 * n * n, 2959 + 2 * n * n, 2959 + 3 * n * n + 7];
    let inode = resolve(volume, image, "/.far").unwrap().unwrap();
    let mut blocks = Vec::new();
    let (mut at, mut steps) = (0, 0);
    while let Some(run) = now(volume.map(image, &inode, at)).unwrap() {
        if let RunPlace::Volume(byte) = run.place {
            for further in 0..run.len.div_ceil(4096) {
                let block = at / 4096 + further;
                let text = format!("block {block}\n");
                assert_eq!(&image.0[(byte + further * 4096) as usize..][..text.len()], text.as_bytes());
                blocks.push(block);
            }
        }
        at += run.len;
        steps += 1;
    }
    assert_eq!(blocks, written);
    // Holes are passed over by whole nodes, not block by block.
    assert!(steps < 10_000, "{steps}");
    assert_eq!(at, inode.size);
}

#[test]
fn power_lost_after_a_sync() {
    let (volume, image) = same("synced", &[]);
    assert!(!volume.info().needs_recovery);
    assert_eq!(volume.info().warnings.len(), 1, "{:?}", volume.info().warnings);
    let files = walk(&volume, &image, &[]).unwrap().len() as u64;
    assert_eq!(volume.info().inodes_used, files, "of which each has one name");
    assert_eq!(checkpoint_flags(&image.0) & (UMOUNT | COMPACT), 0, "summaries of the normal form");
}

#[test]
fn power_lost_after_fsyncs() {
    let (volume, image) = same("fsynced", &[]);
    assert!(volume.info().needs_recovery);
    assert_eq!(checkpoint_flags(&image.0) & (UMOUNT | COMPACT), COMPACT, "summaries of the compact form");
    assert!(volume.info().stale.is_some_and(|why| why.contains("log")), "{:?}", volume.info().stale);
    assert!(volume.info().unstable().is_some_and(|text| text.contains("the last checkpoint")));
    let expected = String::from_utf8(decompressed("f2fs/fsynced-recovered.txt.zst")).unwrap();
    let expected = undated(manifest(&expected));
    let found = undated(walk(&volume, &image, &[]).unwrap());
    assert_ne!(found, expected, "the log holds nothing: the fixture says nothing");

    let volume = now(Volume::open(&image)).unwrap();
    assert_same(&undated(walk(&volume, &image, &[]).unwrap()), &expected, "recovered");
    let info = volume.info();
    assert!(!info.needs_recovery && info.recovery.nodes >= 3 && info.recovery.up_to > 1, "{info:?}");
    assert_eq!(info.stale, None, "a mount gives what it shows");
    assert!(info.warnings[0].contains("what fsync wrote"), "{:?}", info.warnings);
}

#[test]
fn access_lists_are_hinted_at_before_they_are_read() {
    let image = Memory::new(decompressed("f2fs/plain.img.zst"));
    let volume = now(Volume::open(&image)).unwrap();
    for (path, has) in [("/acl/small", true), ("/acl/long", true), ("/size-57", false), ("/inline", false)] {
        assert_eq!(resolve(&volume, &image, path).unwrap().unwrap().may_have_acl, has, "{path}");
    }
}

/// Those that the guest's program has set (scripts/guest/scenarios.py): in the inode, in a node, over both.
#[test]
fn attributes_are_what_the_kernel_was_given() {
    for fixture in ["plain", "extra"] {
        let image = Memory::new(decompressed(&format!("f2fs/{fixture}.img.zst")));
        let volume = now(Volume::open(&image)).unwrap();
        let of = |path: &str| {
            let inode = resolve(&volume, &image, path).unwrap().unwrap();
            let mut all: Vec<(String, Vec<u8>)> = now(volume.attributes(&image, &inode))
                .unwrap()
                .iter()
                .map(|one| {
                    let value = now(volume.attribute_value(&image, &inode, one)).unwrap();
                    assert_eq!(value.len(), one.len as usize);
                    (String::from_utf8(one.name.clone()).unwrap(), value)
                })
                .collect();
            all.sort();
            let list = all.iter().position(|(name, _)| name == "system.posix_acl_access");
            (list.map(|at| Acl::of_attribute(&all.remove(at).1).unwrap().text()), all)
        };
        let list = "user::rw-,user:1001:r--,user:70000:rwx,group::r--,group:2000:r-x,mask::rwx,other::---";
        let user = |name: &str, byte: u8, len: usize| (format!("user.{name}"), vec![byte; len]);
        assert_eq!(of("/acl/small"), (Some(list.into()), vec![]), "{fixture}");
        let four = (0..4).map(|n| user(&format!("attribute-{n}"), b'A' + n, 60)).collect();
        assert_eq!(of("/acl/behind-attributes"), (Some(list.into()), four), "{fixture}");
        assert_eq!(of("/acl/attributes-only"), (None, vec![user("one", b'x', 1000)]), "{fixture}");
        assert_eq!(of("/acl/directory"), (Some(list.into()), vec![user("filler", b'y', 600)]), "{fixture}");
        assert_eq!(of("/acl/directory/below"), (None, vec![]), "{fixture}");
        let (long, rest) = of("/acl/long");
        assert!(long.is_some_and(|text| text.contains("user:3059:-wx,")) && rest.is_empty(), "{fixture}");
    }
}

#[test]
fn what_is_asked_of_the_wrong_kind() {
    let image = Memory::new(decompressed("f2fs/plain.img.zst"));
    let volume = now(Volume::open(&image)).unwrap();
    let inode = |path: &str| resolve(&volume, &image, path).unwrap().unwrap();
    let (file, dir, link) = (inode("/size-4097"), inode("/inline"), inode("/short-link"));
    assert_eq!((file.kind, dir.kind, link.kind), (FileKind::Regular, FileKind::Directory, FileKind::Symlink));
    assert_eq!(now(volume.lookup(&image, &file, b"x")), Err(Error::NotADirectory));
    assert_eq!(now(volume.map(&image, &dir, 0)), Err(Error::WrongKind));
    assert_eq!(now(volume.inline_data(&image, &file)), Err(Error::WrongKind));
    assert_eq!(now(volume.read_link(&image, &file)), Err(Error::WrongKind));
    assert_eq!(now(volume.lookup(&image, &dir, &[b'x'; 300])), Ok(None));
    assert_eq!(now(volume.map(&image, &file, 4097)), Ok(None));
    assert_eq!(now(volume.map(&image, &file, u64::MAX)), Ok(None));
    let mut free = 4;
    while now(volume.inode(&image, nearside_fsview::Ino(free))).is_ok() {
        free += 1;
    }
    for ino in [0, 1, 2, free, u32::MAX] {
        let answer = now(volume.inode(&image, nearside_fsview::Ino(ino)));
        assert!(matches!(answer, Err(Error::Corrupt { .. })), "{ino}: {answer:?}");
    }
}

/// Sets a bit of an inode's block, found by its path, and returns the image.
fn with_inode_byte(path: &str, offset: usize, set: u8) -> (Volume, Memory) {
    let mut bytes = decompressed("f2fs/plain.img.zst");
    let image = Memory::new(bytes.clone());
    let volume = now(Volume::open(&image)).unwrap();
    let ino = resolve(&volume, &image, path).unwrap().unwrap().ino.0.to_le_bytes();
    let mut changed = 0;
    for block in bytes.chunks_exact_mut(4096) {
        // Stale copies of the node carry the same footer: all of them are changed.
        if block[4072..4076] == ino && block[4076..4080] == ino && block[4080] >> 3 == 0 {
            block[offset] |= set;
            changed += 1;
        }
    }
    assert!(changed > 0);
    (volume, Memory::new(bytes))
}

#[test]
fn encryption_is_refused_by_inode() {
    let (volume, image) = with_inode_byte("/inline", 2, 0x04);
    let refused = Error::Unsupported("encryption".into());
    let dir = resolve(&volume, &image, "/inline").unwrap().unwrap();
    assert_eq!(now(volume.lookup(&image, &dir, b"file-0")), Err(refused.clone()));
    assert_eq!(list(&volume, &image, &dir), Err(refused.clone()));
    let (volume, image) = with_inode_byte("/size-4097", 2, 0x04);
    let file = resolve(&volume, &image, "/size-4097").unwrap().unwrap();
    assert_eq!((file.size, now(volume.map(&image, &file, 0))), (4097, Err(refused)));
}

#[test]
fn casefolded_directories_answer_exact_names_only() {
    for (path, name) in [("/inline", "file-0"), ("/levels", "0")] {
        let (volume, image) = with_inode_byte(path, 83, 0x40);
        let dir = resolve(&volume, &image, path).unwrap().unwrap();
        assert!(now(volume.lookup(&image, &dir, name.as_bytes())).unwrap().is_some());
        let missed = now(volume.lookup(&image, &dir, b"FILE-0"));
        assert_eq!(missed, Err(Error::Unsupported("casefold".into())));
    }
}

#[test]
fn compressed_files_are_refused_by_inode() {
    let mut image = decompressed("f2fs/plain.img.zst");
    for superblock in [1024, 4096 + 1024] {
        image[superblock + 2181] |= 0x20;
    }
    let (_, changed) = with_inode_byte("/size-4097", 80, 0x04);
    let mut bytes = changed.0.to_vec();
    bytes[..8192].copy_from_slice(&image[..8192]);
    let image = Memory::new(bytes);
    let volume = now(Volume::open(&image)).unwrap();
    let file = resolve(&volume, &image, "/size-4097").unwrap().unwrap();
    assert_eq!(now(volume.map(&image, &file, 0)), Err(Error::Unsupported("compression".into())));
    let other = resolve(&volume, &image, "/size-4096").unwrap().unwrap();
    assert!(now(volume.map(&image, &other, 0)).is_ok());
}

#[test]
fn unknown_features_and_further_devices_are_named() {
    let image = decompressed("f2fs/plain.img.zst");
    for (offset, byte, named) in [
        (2182, 0x04, "F2FS feature bit 18"),
        (2181, 0x80, "device_alias"),
        (2201, b'/', "multiple devices"),
        (16, 14, "block size 16384"),
    ] {
        let mut image = image.clone();
        image[1024 + offset] = byte;
        match now(Volume::open(&Memory::new(image))) {
            Err(Error::Unsupported(what)) => assert!(what.starts_with(named), "{what}"),
            other => panic!("{named}: {other:?}"),
        }
    }
}

#[test]
fn a_damaged_pack_leaves_the_other() {
    let mut image = decompressed("f2fs/synced.img.zst");
    let cp = u32::from_le_bytes(image[1024 + 76..][..4].try_into().unwrap()) as usize * 4096;
    let version = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let packs = [cp, cp + 512 * 4096];
    let newest = if version(&image, packs[1]) > version(&image, packs[0]) { 1 } else { 0 };
    image[packs[newest] + 200] ^= 1;
    let memory = Memory::new(image.clone());
    let volume = now(Volume::open(&memory)).unwrap();
    assert!(now(volume.inode(&memory, volume.root())).is_ok());
    image[packs[1 - newest] + 200] ^= 1;
    match now(Volume::open(&Memory::new(image))) {
        Err(Error::Corrupt { what, at }) => {
            assert!(what.contains("checksum") && at == cp as u64, "{what} {at}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_inode_checksum_is_said() {
    let image = Memory::new(decompressed("f2fs/extra.img.zst"));
    let volume = now(Volume::open(&image)).unwrap();
    let ino = resolve(&volume, &image, "/size-57").unwrap().unwrap().ino;
    let mut bytes = image.0.to_vec();
    for block in bytes.chunks_exact_mut(4096) {
        if block[4072..4076] == ino.0.to_le_bytes() && block[4076..4080] == ino.0.to_le_bytes() {
            block[1000] ^= 1;
        }
    }
    match now(volume.inode(&Memory::new(bytes), ino)) {
        Err(Error::Corrupt { what, .. }) => assert!(what.contains("checksum"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn truncated_volumes() {
    let image = decompressed("f2fs/plain.img.zst");
    for len in [0, 1, 1023, 1024, 4095, 4096, 5000, 8191, 8192, 1 << 20, image.len() - 4096 * 600] {
        let answer = now(Volume::open(&Memory::new(image[..len].to_vec())));
        assert!(answer.is_err(), "{len}");
    }
}
