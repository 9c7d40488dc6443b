//! Names and targets that no path may hold, on volumes that a kernel wrote: refused, and said where, before
//! anyone joins them to a path.

use crate::f2fs_support::*;
use nearside_fsview::{Error, Volume};

fn position(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    bytes.windows(what.len()).enumerate().filter(|(_, w)| *w == what).map(|(at, _)| at).collect()
}

/// Every place of `from` holds `to` instead.
fn renamed(image: &[u8], from: &[u8], to: &[u8]) -> Memory {
    let mut bytes = image.to_vec();
    let places = position(&bytes, from);
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    Memory::new(bytes)
}

fn said(answer: Result<impl std::fmt::Debug, Error>) -> String {
    match answer {
        Err(Error::Corrupt { what, at }) => {
            assert!(at > 0);
            what
        }
        other => panic!("{other:?}"),
    }
}

/// In blocks and in inodes, of volumes with inode checksums and without: the entries of blocks have none, and
/// an inode's is not asked for again once the inode is known.
#[test]
fn names_that_are_none() {
    for (volume_name, dir, name) in [
        ("plain", "/levels", &b"levels-entry-0017"[..]),
        ("fsynced", "/directory", b"29"),
        ("plain", "/names", b"tab\tnewline\n"),
    ] {
        let clean = decompressed(&format!("f2fs/{volume_name}.img.zst"));
        let image = Memory::new(clean.clone());
        let volume = now(Volume::open(&image)).unwrap();
        let inode = resolve(&volume, &image, dir).unwrap().unwrap();
        let listed = list(&volume, &image, &inode).unwrap();
        let name = match listed.iter().find(|(listed, ..)| listed == name) {
            Some((name, ..)) => name.clone(),
            None => listed[listed.len() / 2].0.clone(),
        };
        let len = name.len();
        for (to, what) in
            [([b"/".as_slice(), &name[1..]].concat(), "slash"), ([&name[..len - 1], b"\0"].concat(), "NUL")]
        {
            // Only as an entry of that directory: the name stands in its inode, too, where nobody reads it.
            let broken = renamed(&clean, &name, &to);
            let what_said = said(list(&volume, &broken, &inode));
            assert!(what_said.contains(what) && what_said.contains("slot"), "{dir}: {what_said}");
            assert!(what_said.contains(&format!("directory {}", inode.ino.0)), "{what_said}");
        }
    }
}

#[test]
fn dots_out_of_their_place() {
    let clean = decompressed("f2fs/plain.img.zst");
    let image = Memory::new(clean.clone());
    let volume = now(Volume::open(&image)).unwrap();
    let inode = resolve(&volume, &image, "/levels").unwrap().unwrap();
    let (name, ino, _) = list(&volume, &image, &inode).unwrap().swap_remove(0);
    for dots in [&b"."[..], b".."] {
        let mut bytes = clean.clone();
        let mut changed = 0;
        for block in bytes.as_chunks_mut::<4096>().0 {
            for slot in 0..214 {
                let (head, at) = (30 + slot * 11, 30 + 214 * 11 + slot * 8);
                let len = name.len().min(8);
                let is = block[head + 4..head + 8] == ino.0.to_le_bytes()
                    && usize::from(block[head + 8]) == name.len();
                if is && block[at..at + len] == name[..len] {
                    block[at..at + dots.len()].copy_from_slice(dots);
                    block[head + 8] = dots.len() as u8;
                    changed += 1;
                }
            }
        }
        assert!(changed > 0, "{name:?}");
        let what = said(list(&volume, &Memory::new(bytes), &inode));
        assert!(what.contains("out of its place"), "{what}");
    }
}

#[test]
fn targets_that_are_none() {
    let clean = decompressed("f2fs/plain.img.zst");
    let image = Memory::new(clean.clone());
    let volume = now(Volume::open(&image)).unwrap();
    // In the inode, and in a block of its own.
    for (path, target) in [("/short-link", &b"inline/file-1"[..]), ("/long-link", &[b'x'; 3800])] {
        let link = resolve(&volume, &image, path).unwrap().unwrap();
        assert_eq!(now(volume.read_link(&image, &link)).unwrap(), target);
        let cut = [&target[..5], b"\0", &target[6..]].concat();
        let what = said(now(volume.read_link(&renamed(&clean, target, &cut), &link)));
        assert!(what.contains("NUL") && what.contains(&format!("inode {}", link.ino.0)), "{what}");
        for size in [0, 4096, 5000] {
            let mut other = link.clone();
            other.size = size;
            let what = said(now(volume.read_link(&image, &other)));
            assert!(what.contains(&format!("{size} bytes")), "{what}");
        }
    }
}
