//! Volumes with `cp_payload`: blocks of a checkpoint pack between its head and the rest, for version bitmaps
//! that outgrow the head. mkfs.f2fs makes them from about 3.4 TB on; the NAT's bitmap then lies where the
//! SIT's was, and the SIT's in the payload.

use std::fs::File;

use crate::f2fs_support::damage::crc32;
use crate::f2fs_support::*;
use nearside_conformance::volume::{must, tool};
use nearside_conformance::{drive, needs};
use nearside_fsview::Volume;

const BLOCK: usize = 4096;
const PAYLOAD: usize = 2;
/// Where a pack's bitmaps begin, in its head.
const BITMAPS: usize = 192;

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn put(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}

/// Gives both packs a payload, as if the bitmaps had needed it.
fn with_payload(image: &mut [u8]) {
    for superblock in [1024, BLOCK + 1024] {
        assert_eq!(word(image, superblock + 1664), 0, "it has one");
        put(image, superblock + 1664, PAYLOAD);
    }
    let first = word(image, 1024 + 76);
    let mut told = false;
    for pack in [first, first + 512] {
        let at = pack * BLOCK;
        let blocks = word(image, at + 136);
        let (sit, nat) = (word(image, at + 156), word(image, at + 160));
        let mut head = image[at..at + BLOCK].to_vec();
        let bitmaps = head[BITMAPS..BITMAPS + sit + nat].to_vec();
        let (sit, nat) = bitmaps.split_at(sit);
        told |= nat != &bitmaps[..nat.len()];
        head[BITMAPS..BITMAPS + bitmaps.len()].fill(0);
        head[BITMAPS..BITMAPS + nat.len()].copy_from_slice(nat);
        put(&mut head, 136, blocks + PAYLOAD);
        let start_sum = word(&head, 140);
        put(&mut head, 140, start_sum + PAYLOAD);
        let offset = word(&head, 164);
        assert_eq!(offset, BLOCK - 4);
        let crc = crc32(0xF2F5_2010, &head[..offset]);
        put(&mut head, offset, crc as usize);
        // What lies between the head and its copy at the end moves on.
        image.copy_within(at + BLOCK..at + (blocks - 1) * BLOCK, at + (1 + PAYLOAD) * BLOCK);
        let payload = &mut image[at + BLOCK..][..PAYLOAD * BLOCK];
        payload.fill(0);
        payload[..sit.len()].copy_from_slice(sit);
        image[at..at + BLOCK].copy_from_slice(&head);
        image[at + (blocks + PAYLOAD - 1) * BLOCK..][..BLOCK].copy_from_slice(&head);
    }
    assert!(told, "the bitmaps are equal: where they lie makes no difference");
}

fn fsck(image: &std::path::Path) {
    must(tool("fsck.f2fs").arg("--dry-run").arg(image));
}

#[test]
fn a_kernels_volumes_with_a_payload() {
    for (name, but) in [("plain", Some("/.far")), ("synced", None)] {
        let mut bytes = decompressed(&format!("f2fs/{name}.img.zst"));
        with_payload(&mut bytes);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        // That it is such a volume is not only our opinion.
        if needs::tools("f2fs_payload", &["fsck.f2fs"]) {
            fsck(file.path());
        }
        let image = Memory::new(bytes);
        let volume = now(Volume::open(&image)).unwrap();
        let mut found = walk(&volume, &image, but.as_slice()).unwrap();
        but.map(|path| found.remove(path.as_bytes()));
        let text = String::from_utf8(decompressed(&format!("f2fs/{name}.txt.zst"))).unwrap();
        assert_same(&found, &manifest(&text), name);
        drive::suite_by_view(&format!("{name} with a payload"), file.path());
    }
}

#[test]
fn a_volume_so_large_that_mkfs_makes_a_payload() {
    const TEST: &str = "f2fs_payload: a volume of 4 TiB";
    if !needs::tools(TEST, &["mkfs.f2fs", "fsck.f2fs"]) {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    if let Err(error) = file.as_file().set_len(4 << 40) {
        return needs::left_out(TEST, &format!("a file of 4 TiB: {error}"));
    }
    must(tool("mkfs.f2fs").args(["-f", "-q", "-O", "extra_attr,lost_found,quota"]).arg(file.path()));
    let image = Disk(File::open(file.path()).unwrap());
    let mut superblock = vec![0; BLOCK];
    image.data(0, &mut superblock);
    assert_ne!(word(&superblock, 1024 + 1664), 0, "no payload");
    let volume = now(Volume::open(&image)).unwrap();
    assert_eq!(volume.info().warnings, Vec::<String>::new());
    let found = walk(&volume, &image, &[]).unwrap();
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [b"/".to_vec(), b"/lost+found".to_vec()]);
    drive::suite_by_view(TEST, file.path());
}
