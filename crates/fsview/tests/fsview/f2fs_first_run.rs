//! A file's first run is known with its inode: the inode's block is read once. What is wrong with it is
//! said where it is asked for, and not of the inode.

use crate::f2fs_support::noting::Noting;
use crate::f2fs_support::*;
use nearside_conformance::{needs, volume};
use nearside_fsview::{Error, Ino, RunPlace, Volume};

fn put(image: &mut [u8], at: u64, word: u32) {
    image[at as usize..][..4].copy_from_slice(&word.to_le_bytes());
}

/// The file of a volume, of which nothing is noted yet.
fn opened(image: &[u8]) -> (Noting<'_>, Volume, Ino) {
    let source = Noting::new(image);
    let volume = now(Volume::open(&source)).unwrap();
    let root = now(volume.inode(&source, volume.root())).unwrap();
    let ino = now(volume.lookup(&source, &root, b"file")).unwrap().unwrap();
    source.read.borrow_mut().clear();
    (source, volume, ino)
}

#[test]
fn the_first_run_comes_with_the_inode() {
    let Some(dir) = needs::folder("the_first_run_comes_with_the_inode", &["mkfs.f2fs", "sload.f2fs"]) else {
        return;
    };
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![b'x'; 5 * 4096 + 100]).unwrap();
    let path = dir.path().join("image");
    volume::f2fs(&path, 64, Some(&tree), &[]);
    let mut image = std::fs::read(path).unwrap();
    let (source, volume, ino) = opened(&image);
    let (at, len) = now(volume.inode_block(&source, ino)).unwrap().unwrap();
    assert_eq!(len, 4096);
    source.read.borrow_mut().clear();
    let inode = now(volume.inode(&source, ino)).unwrap();
    // An entry of the node address table, and the block that was said.
    assert_eq!((source.read.borrow().len(), source.read.borrow().last()), (2, Some(&at)));
    let first = now(volume.map(&source, &inode, 0)).unwrap().unwrap();
    let RunPlace::Volume(begin) = first.place else { panic!("{first:?}") };
    assert_eq!((first.from, first.len), (0, inode.size));
    for from in [1, 4095, 4096, 8191, 5 * 4096, inode.size - 1] {
        let run = now(volume.map(&source, &inode, from)).unwrap().unwrap();
        assert_eq!((run.place, run.len), (RunPlace::Volume(begin + from), inode.size - from), "{from}");
    }
    assert_eq!(source.read.borrow().len(), 2, "{:x?}", source.read.borrow());

    // Two runs, with a hole between: the address of the third block goes, that of the fourth is another.
    // Behind the attributes, among which the largest extent has it, too.
    let addresses = (360 / 4..=(4096 - 24) / 4)
        .map(|word| at + word * 4)
        .find(|&byte| {
            let word = u32::from_le_bytes(image[byte as usize..][..4].try_into().unwrap());
            u64::from(word) << 12 == begin
        })
        .unwrap();
    put(&mut image, addresses + 8, 0);
    put(&mut image, addresses + 12, (begin >> 12) as u32);
    let (source, volume, ino) = opened(&image);
    let inode = now(volume.inode(&source, ino)).unwrap();
    let run = |from| now(volume.map(&source, &inode, from)).unwrap().unwrap();
    assert_eq!((run(0).place, run(0).len), (RunPlace::Volume(begin), 8192));
    assert_eq!((run(4096).place, run(4096).len), (RunPlace::Volume(begin + 4096), 4096));
    assert_eq!((run(8192).place, run(8192).len), (RunPlace::Zeros, 4096));
    assert_eq!((run(12_288).place, run(12_288).len), (RunPlace::Volume(begin), 4096));

    // An address outside of the main area.
    put(&mut image, addresses, 3);
    let (source, volume, ino) = opened(&image);
    let inode = now(volume.inode(&source, ino)).unwrap();
    assert_eq!(inode.size, 5 * 4096 + 100);
    let refused = now(volume.map(&source, &inode, 0)).unwrap_err();
    assert!(matches!(refused, Error::Corrupt { at: found, .. } if found == at), "{refused:?}");
    // Of an inode that is not there there is no block.
    assert_eq!(now(volume.inode_block(&source, Ino(ino.0 + 1))).unwrap(), None);
}
