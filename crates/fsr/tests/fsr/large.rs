//! Directories of many entries: every entry once, in time that grows with them and in memory that does not.
//! What is read is counted.

use std::collections::BTreeSet;
use std::fs;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::tool;
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::Operation;

const BLOCK: usize = 4096;
const PER_GROUP: usize = 32768;
const INODE: usize = 128;

fn put(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put16(image: &mut [u8], at: usize, value: u16) {
    image[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The root's blocks: each entry's record reaches to the next, the last of a block to its end.
fn root_blocks(names: usize, directories: bool) -> Vec<Vec<u8>> {
    let entry = |n: usize| {
        let name = format!("entry-{n:07}");
        let mut bytes = vec![0; (8 + name.len()).next_multiple_of(4)];
        put(&mut bytes, 0, if directories { 12 + n as u32 } else { 12 });
        bytes[6] = name.len() as u8;
        bytes[7] = if directories { 2 } else { 1 };
        bytes[8..8 + name.len()].copy_from_slice(name.as_bytes());
        bytes
    };
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    // The root itself, and its parent, which it is.
    let mut block =
        [[2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0], [2, 0, 0, 0, 12, 0, 2, 2, b'.', b'.', 0, 0]].concat();
    let mut last = 12;
    let close = |block: &mut Vec<u8>, last: usize| {
        let len = BLOCK - last;
        block.resize(BLOCK, 0);
        put16(block, last + 4, len as u16);
        std::mem::take(block)
    };
    for n in 0..names {
        let bytes = entry(n);
        if block.len() + bytes.len() > BLOCK {
            blocks.push(close(&mut block, last));
        }
        last = block.len();
        block.extend_from_slice(&bytes);
        put16(&mut block, last + 4, bytes.len() as u16);
    }
    blocks.push(close(&mut block, last));
    blocks
}

/// An ext4 volume without checksums, whose root has `names` entries: each its own empty directory, or all one
/// empty file.
fn volume(names: usize, directories: bool) -> Vec<u8> {
    let blocks = root_blocks(names, directories);
    let inodes = 12 + if directories { names } else { 1 };
    let groups = inodes.div_ceil(PER_GROUP).max(blocks.len().div_ceil(PER_GROUP / 2));
    let per_group = inodes.div_ceil(groups).next_multiple_of(BLOCK / INODE);
    let table = per_group * INODE / BLOCK;
    let total = (groups - 1) * PER_GROUP + 2048 + table + blocks.len();
    assert!(total <= groups * PER_GROUP);
    let mut image = vec![0; total * BLOCK];
    let table_of = |group: usize| group * PER_GROUP + 16;
    {
        let sb = &mut image[1024..2048];
        put(sb, 0, (per_group * groups) as u32);
        put(sb, 4, total as u32);
        put(sb, 0x18, 2);
        put(sb, 0x1C, 2);
        put(sb, 0x20, PER_GROUP as u32);
        put(sb, 0x24, PER_GROUP as u32);
        put(sb, 0x28, per_group as u32);
        put16(sb, 0x38, 0xEF53);
        put16(sb, 0x3A, 1);
        put16(sb, 0x3C, 1);
        put(sb, 0x4C, 1);
        put(sb, 0x54, 11);
        put16(sb, 0x58, INODE as u16);
        // FILETYPE and EXTENTS.
        put(sb, 0x60, 0x42);
    }
    for group in 0..groups {
        let descriptor = BLOCK + group * 32;
        put(&mut image, descriptor, (group * PER_GROUP + 10) as u32);
        put(&mut image, descriptor + 4, (group * PER_GROUP + 11) as u32);
        put(&mut image, descriptor + 8, table_of(group) as u32);
    }
    let inode_at = |ino: usize| table_of((ino - 1) / per_group) * BLOCK + (ino - 1) % per_group * INODE;
    let mut inode = |ino: usize, mode: u16, links: usize, size: usize, extent: Option<(usize, usize)>| {
        let raw = &mut image[inode_at(ino)..][..INODE];
        put16(raw, 0, mode);
        put(raw, 4, size as u32);
        put16(raw, 0x1A, links.min(65000) as u16);
        put(raw, 0x1C, (size / 512) as u32);
        put(raw, 0x20, 0x8_0000);
        put16(raw, 0x28, 0xF30A);
        put16(raw, 0x2C, 4);
        if let Some((start, len)) = extent {
            put16(raw, 0x2A, 1);
            put16(raw, 0x38, len as u16);
            put(raw, 0x3C, start as u32);
        }
    };
    let first = (groups - 1) * PER_GROUP + 2048 + table;
    inode(2, 0o040_755, 2, blocks.len() * BLOCK, Some((first, blocks.len())));
    if directories {
        (0..names).for_each(|n| inode(12 + n, 0o040_755, 2, 0, None));
    } else {
        inode(12, 0o100_644, names, 0, None);
    }
    for (n, block) in blocks.iter().enumerate() {
        image[(first + n) * BLOCK..][..BLOCK].copy_from_slice(block);
    }
    image
}

/// Caches that hold next to nothing of such a volume.
fn small() -> Config {
    Config { block_bytes: 256 << 10, names: 64, inodes: 64, ..Config::default() }
}

fn paths(got: &[Got]) -> impl Iterator<Item = &str> {
    got.iter().map(|g| match g {
        Got::Entry { path, .. } => path.as_str(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_tree_of_70_000_subdirectories_is_read_once() {
    const MANY: usize = 70_000;
    let media = MemoryMedia::new(volume(MANY, true));
    let retriever = Retriever::new(small());
    let list = request(tree("/"), Operation::List);
    let (first, answer) = {
        let mut records = Records::new(64 << 10);
        let answer = now(retriever.run(&media, &list, &mut records));
        (records.got, answer)
    };
    assert!(first.len() > 100);
    let read = answer.counters.blocks_read;
    assert!(read < 100, "the first answer waits for {read} blocks");
    let (got, answer, commands) = ask_in_parts(&retriever, &media, &list, 64 << 10);
    assert_eq!(answer.failure, None);
    assert_eq!(paths(&got).count(), MANY + 1);
    assert_eq!(paths(&got).collect::<BTreeSet<_>>().len(), MANY + 1);
    // Each block of the directory and of the inode table, and where an answer goes on those of the way there.
    let once = MANY * 24 / BLOCK + MANY * INODE / BLOCK;
    let read = answer.counters.blocks_read as usize;
    assert!(commands > 50);
    assert!(read < once * 3 / 2 + 8 * commands, "{read} blocks in {commands} commands; there are {once}");
}

#[test]
fn a_directory_of_a_million_entries_is_read_once() {
    const MANY: usize = 1_000_000;
    let media = MemoryMedia::new(volume(MANY, false));
    let retriever = Retriever::new(small());
    for target in [tree("/"), path("/")] {
        let list = request(target, Operation::List);
        let mut records = Records::new(256 << 10);
        let answer = now(retriever.run(&media, &list, &mut records));
        let read = answer.counters.blocks_read;
        assert!(read < 100, "the first answer waits for {read} blocks");
        let (got, answer, commands) = ask_in_parts(&retriever, &media, &list, 256 << 10);
        assert_eq!(answer.failure, None);
        let all: BTreeSet<&str> = paths(&got).filter(|path| *path != "/").collect();
        assert_eq!(all.len(), MANY);
        assert!(got.len() <= MANY + 1, "{} records", got.len());
        let once = MANY * 24 / BLOCK;
        let read = answer.counters.blocks_read as usize;
        assert!(read < once * 3 / 2 + 8 * commands, "{read} blocks in {commands} commands; there are {once}");
    }
}

/// Without its places (`Walker::places`) a cursor leads to the directory's begin.
#[test]
fn an_answer_goes_on_where_the_last_one_ended() {
    let media = MemoryMedia::new(volume(70_000, false));
    let retriever = Retriever::new(small());
    let list = request(tree("/"), Operation::List);
    let mut next = list.clone();
    for turn in 0..10 {
        let answer = now(retriever.run(&media, &next, &mut Records::new(64 << 10)));
        let read = answer.counters.blocks_read;
        assert!(read < 100, "answer {turn} waits for {read} blocks");
        next = cursor(&list, answer.more.unwrap());
    }
}

/// An indexed directory is visited in the order of its hashes, and goes on after a name.
#[test]
fn an_indexed_directory_is_read_once_in_any_pieces() {
    const MANY: usize = 12_000;
    let test = "an_indexed_directory_is_read_once_in_any_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs", "e2fsck"]) else { return };
    let inner = dir.path().join("source/many");
    fs::create_dir_all(inner.join("zz-last/below")).unwrap();
    fs::write(inner.join("name-0"), "").unwrap();
    let name = |n: usize| format!("a name that is long enough for several leaves {n}");
    (1..MANY).for_each(|n| {
        fs::hard_link(inner.join(format!("name-{}", n / 60_000)), inner.join(name(n))).unwrap()
    });
    let image = dir.path().join("image");
    fs::write(&image, ext_image(&dir.path().join("source"), 64, &["-t", "ext4", "-b", "1024"])).unwrap();
    // It says by 1 that it changed something: the index.
    let checked = tool("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
    let media = MemoryMedia::new(fs::read(&image).unwrap());
    let retriever = Retriever::new(small());
    let list = request(tree("/many"), Operation::List);
    let mut expected: BTreeSet<String> = (1..MANY).map(|n| format!("/many/{}", name(n))).collect();
    let more = ["/many", "/many/name-0", "/many/zz-last", "/many/zz-last/below"];
    expected.extend(more.map(str::to_owned));
    for limit in [2 << 10, 40 << 10, 8 << 20] {
        let (got, answer, commands) = ask_in_parts(&retriever, &media, &list, limit);
        assert_eq!(answer.failure, None);
        assert_eq!(got.len(), expected.len(), "twice or not at all, in pieces of {limit}");
        assert_eq!(paths(&got).map(str::to_owned).collect::<BTreeSet<_>>(), expected);
        let once = MANY * 80 / 1024;
        let read = answer.counters.blocks_read as usize;
        assert!(read < 2 * once + 12 * commands, "{read} blocks in {commands} commands; there are {once}");
    }
}
