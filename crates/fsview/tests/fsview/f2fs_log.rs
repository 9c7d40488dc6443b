//! Logs of fsync made by hand, behind the one that a kernel left on a small volume: what of them is shown,
//! what is not, and what is said of those that contradict themselves.

use std::collections::BTreeSet;

use crate::f2fs_support::damage::{Damaged, exercise};
use crate::f2fs_support::noting::Noting;
use crate::f2fs_support::*;
use nearside_fsview::{DirCursor, Error, FileKind, Ino, RunPlace, State, Volume};
use nearside_random::Rng;

const FSYNC: u32 = 2;
const ENTRY: u32 = 4;
/// Where in a node's block its footer's fields are, and in an inode's block the fields that recovery reads.
const NID: usize = 4072;
const INO: usize = 4076;
const FLAG: usize = 4080;
const VERSION: usize = 4084;
const NEXT: usize = 4092;
const SIZE: usize = 16;
const PARENT: usize = 84;
const NAME_LEN: usize = 88;
const NAME: usize = 92;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A volume whose log is written on.
struct Log {
    image: Vec<u8>,
    /// The blocks of the log so far.
    blocks: Vec<usize>,
    /// Where its next block will be.
    end: usize,
    version: [u8; 8],
}

impl Log {
    /// The small volume, whose log holds `/inline/2` and nothing else; it has no checksums of inodes.
    fn new() -> Log {
        let image = decompressed("f2fs/fuzzed.img.zst");
        let pack = newest_pack(&image);
        let main = word(&image, 1024 + 92) as usize;
        let offset = u16::from_le_bytes(image[pack + 70..][..2].try_into().unwrap());
        let mut end = main + word(&image, pack + 40) as usize * 512 + usize::from(offset);
        let version = image[end * 4096 + VERSION..][..8].try_into().unwrap();
        let mut blocks = Vec::new();
        while image[end * 4096 + VERSION..][..8] == version {
            blocks.push(end);
            end = word(&image, end * 4096 + NEXT) as usize;
        }
        assert!(!blocks.is_empty(), "an empty log");
        Log { image, blocks, end, version }
    }

    fn block(&self, at: usize) -> Vec<u8> {
        self.image[at * 4096..][..4096].to_vec()
    }

    /// The last block of the log: the inode of `/inline/2`, whose content is in it.
    fn last(&self) -> Vec<u8> {
        self.block(*self.blocks.last().unwrap())
    }

    /// The block of an inode as the checkpoint has it.
    fn inode(&self, path: &str) -> Vec<u8> {
        let image = Memory::new(self.image.clone());
        let volume = now(Volume::open_as(&image, State::Home)).unwrap();
        let ino = resolve(&volume, &image, path).unwrap().unwrap().ino.0;
        let seen = Damaged::new(&image, 1000);
        now(volume.inode(&seen, Ino(ino))).unwrap();
        let at = seen.seen.borrow().iter().copied().find(|at| {
            let block = &image.0[*at as usize..][..4096];
            word(block, NID) == ino && word(block, INO) == ino
        });
        image.0[at.unwrap() as usize..][..4096].to_vec()
    }

    /// Appends a node.
    fn push(&mut self, mut block: Vec<u8>, nid: u32, ino: u32, flag: u32) {
        put(&mut block, NID, nid);
        put(&mut block, INO, ino);
        put(&mut block, FLAG, flag);
        block[VERSION..VERSION + 8].copy_from_slice(&self.version);
        put(&mut block, NEXT, self.end as u32 + 1);
        self.image[self.end * 4096..][..4096].copy_from_slice(&block);
        self.blocks.push(self.end);
        self.end += 1;
    }

    fn open(&self) -> (Volume, Memory) {
        let image = Memory::new(self.image.clone());
        (now(Volume::open(&image)).unwrap(), image)
    }

    fn corrupt(&self) -> String {
        let image = Memory::new(self.image.clone());
        assert!(now(Volume::open_as(&image, State::Home)).is_ok(), "at home it opens");
        match now(Volume::open(&image)) {
            Err(Error::Corrupt { what, at }) => {
                assert!(at > 0);
                what
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An inode's block with a name and a directory.
fn named(mut block: Vec<u8>, parent: u32, name: &[u8]) -> Vec<u8> {
    put(&mut block, PARENT, parent);
    put(&mut block, NAME_LEN, name.len() as u32);
    block[NAME..NAME + name.len()].copy_from_slice(name);
    block
}

/// An inode number that the checkpoint does not have.
const FREE: u32 = 3000;

#[test]
fn a_new_file_has_its_entry_its_content_and_one_link() {
    let mut log = Log::new();
    let (volume, image) = log.open();
    let before = volume.info().recovery;
    let dir = resolve(&volume, &image, "/inline").unwrap().unwrap().ino.0;
    let like = resolve(&volume, &image, "/inline/2").unwrap().unwrap();
    let content = now(volume.inline_data(&image, &like)).unwrap();
    assert!(content.ends_with(b"fsynced"));
    let mut block = named(log.last(), dir, b"new");
    put(&mut block, 12, 7);
    log.push(block, FREE, FREE, FSYNC | ENTRY);
    let (volume, image) = log.open();
    assert_eq!(volume.info().recovery.nodes, before.nodes + 1);
    let new = resolve(&volume, &image, "/inline/new").unwrap().unwrap();
    assert_eq!((new.ino, new.links, new.size), (Ino(FREE), 1, like.size));
    assert_eq!(now(volume.inline_data(&image, &new)).unwrap(), content);
    walk(&volume, &image, &["/.far"]).unwrap();
}

/// Without the mark of fsync, or with it and without the mark of an entry, a new inode is not there.
#[test]
fn what_the_kernel_leaves_is_left() {
    for flag in [0, ENTRY, FSYNC] {
        let mut log = Log::new();
        let before = log.open().0.info().recovery;
        log.push(named(log.last(), 3, b"new"), FREE, FREE, flag);
        let (volume, image) = log.open();
        assert_eq!(volume.info().recovery, before, "{flag}");
        assert!(resolve(&volume, &image, "/new").unwrap().is_none(), "{flag}");
        assert!(now(volume.inode(&image, Ino(FREE))).is_err(), "{flag}");
    }
    // A known inode's nodes behind its last mark, and those before it, which have none.
    let mut log = Log::new();
    let (block, ino) = (log.last(), word(&log.last(), INO));
    let sized = |size: u32| {
        let mut block = block.clone();
        put(&mut block, SIZE, size);
        block
    };
    log.push(sized(5), ino, ino, 0);
    assert_ne!(resolve(&log.open().0, &log.open().1, "/inline/2").unwrap().unwrap().size, 5);
    log.push(sized(6), ino, ino, FSYNC);
    log.push(sized(7), ino, ino, 0);
    log.push(named(block, 3, b"new"), FREE, FREE, FSYNC | ENTRY);
    let (volume, image) = log.open();
    assert!(resolve(&volume, &image, "/new").unwrap().is_some());
    assert_eq!(resolve(&volume, &image, "/inline/2").unwrap().unwrap().size, 6);
}

/// An entry takes the place of one of the same name, whose inode loses a link; the listing has it once.
#[test]
fn an_entry_replaces_another() {
    for (dir, name) in [("/inline", "1"), ("/blocks", "n1"), ("/", "inline")] {
        let mut log = Log::new();
        let (volume, image) = log.open();
        let parent = resolve(&volume, &image, dir).unwrap().unwrap();
        let path = format!("{dir}/{name}");
        let other = resolve(&volume, &image, &path).unwrap().unwrap();
        let count = list(&volume, &image, &parent).unwrap().len();
        log.push(named(log.last(), parent.ino.0, name.as_bytes()), FREE, FREE, FSYNC | ENTRY);
        let (volume, image) = log.open();
        assert_eq!(resolve(&volume, &image, &path).unwrap().unwrap().ino, Ino(FREE), "{path}");
        let links = now(volume.inode(&image, other.ino)).unwrap().links;
        let parent_links = now(volume.inode(&image, parent.ino)).unwrap().links;
        match other.kind {
            // Its own "." and the parent's "..".
            FileKind::Directory => assert_eq!((links, parent_links), (0, parent.links - 1), "{path}"),
            _ => assert_eq!((links, parent_links), (other.links - 1, parent.links), "{path}"),
        }
        let listed = list(&volume, &image, &parent).unwrap();
        assert_eq!(listed.len(), count, "{path}");
        let found: Vec<_> = listed.iter().filter(|(n, ..)| n == name.as_bytes()).collect();
        assert_eq!(found, [&(name.as_bytes().to_vec(), Ino(FREE), Some(FileKind::Regular))]);
    }
}

/// Whoever keeps an entry's place goes on at it, in the recovered part as well.
#[test]
fn places_of_entries_last() {
    let mut log = Log::new();
    let (volume, image) = log.open();
    for path in ["/inline", "/blocks"] {
        let dir = resolve(&volume, &image, path).unwrap().unwrap().ino.0;
        for nr in 0..3 {
            let ino = FREE + dir * 10 + nr;
            log.push(named(log.last(), dir, format!("new-{nr}").as_bytes()), ino, ino, FSYNC | ENTRY);
        }
    }
    let (volume, image) = log.open();
    for path in ["/inline", "/blocks"] {
        let dir = resolve(&volume, &image, path).unwrap().unwrap();
        let from = |place: u64| {
            let (mut entries, mut cursor) = (Vec::new(), Some(DirCursor { place }));
            while let Some(at) = cursor {
                cursor = now(volume.read_dir(&image, &dir, at, &mut entries)).unwrap();
            }
            entries
        };
        let all = from(0);
        assert!(all.is_sorted_by(|a, b| (a.place, &a.name) < (b.place, &b.name)), "{path}");
        let names: Vec<_> = all[all.len() - 3..].iter().map(|e| e.name.to_vec()).collect();
        assert_eq!(names, [b"new-0", b"new-1", b"new-2"]);
        for entry in &all {
            let later: Vec<_> = all.iter().filter(|e| e.place >= entry.place).cloned().collect();
            assert_eq!(from(entry.place), later, "{path} from {}", entry.place);
        }
        assert_eq!(from(all.last().unwrap().place + 1), []);
    }
}

/// A direct node of which the checkpoint knows nothing: its blocks are mapped, what is between is a hole, and
/// the file ends no earlier, unless its size is to be kept.
#[test]
fn direct_nodes_are_found_by_their_place() {
    for keeps in [false, true] {
        let mut log = Log::new();
        let (volume, image) = log.open();
        let mut file = log.inode("/inline/4");
        let old = resolve(&volume, &image, "/inline/4").unwrap().unwrap();
        let ino = old.ino.0;
        // Any two blocks of the main area.
        let data = word(&image.0, 1024 + 92) + 7;
        let mut node = vec![0; 4096];
        put(&mut node, 4 * 5, data);
        put(&mut node, 4 * 6, data + 1);
        file[2] = if keeps { 0x10 } else { 0 };
        put(&mut file, SIZE, if keeps { 100 << 20 } else { old.size as u32 });
        log.push(file, ino, ino, 0);
        // The third direct node of the first indirect one.
        log.push(node, FREE + 1, ino, FSYNC | 6 << 3);
        let (volume, image) = log.open();
        let new = resolve(&volume, &image, "/inline/4").unwrap().unwrap();
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(run) = now(volume.map(&image, &new, at)).unwrap() {
            if run.place != RunPlace::Zeros && at > old.size {
                runs.push((run.from / 4096, run.len, run.place));
            }
            at += run.len;
        }
        let at = runs[0].0;
        assert_eq!(runs, [(at, 8192, RunPlace::Volume(u64::from(data) * 4096))]);
        // In the inode are fewer than 923; then come two direct nodes, two below the indirect one, and
        // five blocks.
        let in_inode = at - 4 * 1018 - 5;
        assert!((800..923).contains(&in_inode), "{in_inode}");
        assert_eq!(new.size, if keeps { 100 << 20 } else { (at + 2) * 4096 });
        // The first block is where it was.
        assert_eq!(
            now(volume.map(&image, &new, 0)).unwrap().unwrap().place,
            now(volume.map(&image, &old, 0)).unwrap().unwrap().place
        );
    }
}

/// Content in the inode gives way to the blocks of a direct node.
#[test]
fn content_in_the_inode_gives_way() {
    let mut log = Log::new();
    let (volume, image) = log.open();
    let ino = resolve(&volume, &image, "/inline/2").unwrap().unwrap().ino.0;
    let mut node = vec![0; 4096];
    put(&mut node, 0, word(&image.0, 1024 + 92) + 7);
    log.push(node, FREE, ino, FSYNC | 1 << 3);
    let (volume, image) = log.open();
    let file = resolve(&volume, &image, "/inline/2").unwrap().unwrap();
    assert_eq!(now(volume.inline_data(&image, &file)), Err(Error::WrongKind));
    let first = now(volume.map(&image, &file, 0)).unwrap().unwrap();
    assert_eq!((first.place, first.len), (RunPlace::Zeros, file.size - 4096));
    // And back: the blocks are given back.
    log.push(log.block(log.blocks[0]), ino, ino, FSYNC);
    let (volume, image) = log.open();
    let file = resolve(&volume, &image, "/inline/2").unwrap().unwrap();
    assert!(now(volume.inline_data(&image, &file)).unwrap().ends_with(b"fsynced"));
    // So that none of them is there when the content leaves the inode again.
    let mut block = log.last();
    let addresses = 360 + usize::from(u16::from_le_bytes([block[360], block[361]]));
    block[addresses..4052].fill(0);
    block[3] &= !0x02;
    put(&mut block, SIZE, 4 << 20);
    log.push(block, ino, ino, FSYNC);
    let (volume, image) = log.open();
    let file = resolve(&volume, &image, "/inline/2").unwrap().unwrap();
    let mut at = 0;
    while let Some(run) = now(volume.map(&image, &file, at)).unwrap() {
        assert_eq!(run.place, RunPlace::Zeros, "{at}");
        at += run.len;
    }
    assert_eq!(at, 4 << 20);
}

/// A node that may be written behind a log, and its numbers and marks: mostly of few inodes.
fn any_node(log: &Log, known: &[u32], random: &mut Rng) -> (Vec<u8>, u32, u32, u32) {
    let new = random.below(3) == 0;
    let ino = if new { FREE + random.below(3) as u32 } else { known[random.below(3) as usize] };
    let fsync = if random.below(2) == 0 { FSYNC } else { 0 };
    match random.below(8) {
        0 => (vec![0; 4096], FREE + 100, ino, fsync | (1 + random.below(3) as u32) << 3),
        1 => (vec![0; 4096], FREE + 101, ino, fsync | 0x1FFF_FFFF << 3),
        _ => {
            let entry = if new && random.below(3) > 0 { ENTRY } else { 0 };
            let parent = if random.below(2) == 0 { 3 } else { known[3] };
            let mut block = named(log.last(), parent, &[b'a' + random.below(3) as u8]);
            put(&mut block, SIZE, random.below(50) as u32);
            (block, ino, ino, fsync | entry)
        }
    }
}

/// What a volume says to a question about an inode, and what that depends on as it is shown.
fn answer(volume: &Volume, image: &Noting<'_>, ino: u32, question: usize) -> (String, BTreeSet<u64>) {
    let source = Noting::new(image.bytes);
    let inode = now(volume.inode(&source, Ino(ino)));
    let answer = match (question, &inode) {
        (0, inode) => format!("{inode:?}"),
        (1, Ok(inode)) if inode.kind == FileKind::Directory => {
            let mut entries = Vec::new();
            let next = now(volume.read_dir(&source, inode, DirCursor::default(), &mut entries));
            format!("{next:?} {entries:?}")
        }
        (2, Ok(inode)) if inode.kind == FileKind::Directory => {
            format!("{:?}", now(volume.lookup(&source, inode, b"a")))
        }
        (1, Ok(inode)) => {
            // Below the first direct nodes.
            let at = [0, 1000, 2000, 3000].map(|block| now(volume.map(&source, inode, block * 4096)));
            format!("{at:?}")
        }
        (2, Ok(inode)) => format!("{:?}", now(volume.acl(&source, inode))),
        _ => String::new(),
    };
    (answer, source.shown.into_inner())
}

/// Asks two states of a volume, of which the log has gone on. How many answers are not said to be otherwise,
/// and are as they were; and how many are otherwise.
fn compared(
    before: &Volume,
    on: &Volume,
    image: &Noting<'_>,
    known: &[u32],
    changed: &BTreeSet<u64>,
) -> (usize, usize) {
    let (mut alike, mut unlike) = (0, 0);
    for ino in known.iter().copied().chain([3, FREE, FREE + 1, FREE + 2]) {
        for question in 0..3 {
            let (was, shown) = answer(before, image, ino, question);
            let (is, _) = answer(on, image, ino, question);
            unlike += usize::from(was != is);
            if shown.is_disjoint(changed) {
                assert_eq!(was, is, "inode {ino}, question {question}");
                alike += 1;
            }
        }
    }
    (alike, unlike)
}

/// Whoever goes on behind the end of a log comes to what a reading from its start comes to, and what is not
/// said to be shown otherwise is not.
#[test]
fn a_log_that_goes_on_is_as_one_read_anew() {
    let mut log = Log::new();
    let (volume, image) = log.open();
    let paths = ["/inline/1", "/inline/2", "/inline/4", "/inline"];
    let known = paths.map(|path| resolve(&volume, &image, path).unwrap().unwrap().ino.0);
    let (at_first, end) = (log.blocks.clone(), log.end);
    let (mut went_on, mut refused) = (0, 0);
    let (mut alike, mut unlike) = (0, 0);
    for seed in 0..400 {
        let mut random = Rng(seed);
        // The log ends where it did.
        log.image[end * 4096..log.end * 4096].fill(0);
        (log.blocks, log.end) = (at_first.clone(), end);
        let mut before = now(Volume::open(&Noting::new(&log.image))).unwrap();
        for turn in 0..8 {
            for _ in 0..1 + random.below(4) {
                // The last block is an inode's, like which the others are made.
                let last = log.last();
                let (block, nid, ino, flag) = any_node(&log, &known, &mut random);
                log.push(block, nid, ino, flag);
                log.push(last, FREE + 50, FREE + 50, 0);
            }
            let image = Noting::new(&log.image);
            let anew = now(Volume::open(&image));
            let on = now(Volume::open_after(&image, State::Recovered, Some(&before)));
            match (on, anew) {
                (Ok(on), Ok(anew)) => {
                    assert_eq!(format!("{on:?}"), format!("{anew:?}"), "seed {seed}, turn {turn}");
                    assert!(on.goes_on_from(&before).is_some());
                    // Read from its start it follows nothing, nor does it follow itself.
                    assert_eq!(
                        (now(anew.changed_since(&before, &image)), now(before.changed_since(&on, &image))),
                        (None, None)
                    );
                    let changed = now(on.changed_since(&before, &image)).unwrap().into_iter().collect();
                    let (as_it_was, otherwise) = compared(&before, &on, &image, &known, &changed);
                    (alike, unlike) = (alike + as_it_was, unlike + otherwise);
                    went_on += 1;
                    before = on;
                }
                (Err(Error::Corrupt { .. }), Err(Error::Corrupt { .. })) => {
                    refused += 1;
                    break;
                }
                (on, anew) => panic!("seed {seed}, turn {turn}: {on:?}, anew {anew:?}"),
            }
        }
    }
    assert!(went_on > 1500 && refused > 30, "{went_on} went on, {refused} refused");
    assert!(alike > 15_000 && unlike > 2000, "{alike} answers not said to change, {unlike} that did");
}

/// The next fsync costs its own nodes, however many there are; another checkpoint, all.
#[test]
fn what_has_been_read_of_a_log_is_not_read_again() {
    let mut log = Log::new();
    let (block, ino) = (log.last(), word(&log.last(), INO));
    for _ in 0..50 {
        log.push(block.clone(), ino, ino, FSYNC);
    }
    let (before, _) = log.open();
    let (read, end) = (log.blocks.clone(), log.end);
    log.push(block, ino, ino, FSYNC);
    let image = Memory::new(log.image.clone());
    let seen = |known: Option<&Volume>, damaged: &Damaged| {
        let volume = now(Volume::open_after(damaged, State::Recovered, known)).unwrap();
        let blocks: Vec<usize> = damaged.seen.take().into_iter().map(|at| (at / 4096) as usize).collect();
        let again = read.iter().filter(|at| blocks.contains(at)).count();
        // The new node, and where the next comes.
        let new = (blocks.contains(&end), blocks.contains(&(end + 1)));
        (again, new, volume.info().recovery.nodes)
    };
    let nodes = before.info().recovery.nodes + 1;
    assert_eq!(seen(Some(&before), &Damaged::new(&image, 1000)), (0, (true, true), nodes));
    assert_eq!(seen(None, &Damaged::new(&image, 1000)), (read.len(), (true, true), nodes));
    // Any other field of the checkpoint makes it another, here the mark of fsck: its nodes would repeat its
    // checksum, and these do not.
    let mut other = Damaged::new(&image, 1000);
    let flags = newest_pack(&image.0) + 132;
    other.changes.push((flags as u64, image.0[flags] | 0x10));
    other.mend_checkpoints();
    assert_eq!(seen(Some(&before), &other), (1, (false, false), 0));
}

#[test]
fn loops_are_said() {
    for back in 0..6 {
        let mut log = Log::new();
        for _ in 0..5 {
            log.push(named(log.last(), 3, b"new"), FREE, FREE, 0);
        }
        let n = log.blocks.len();
        let (last, to) = (log.blocks[n - 1], log.blocks[n.saturating_sub(1 + back)]);
        put(&mut log.image, last * 4096 + NEXT, to as u32);
        let what = log.corrupt();
        assert!(what.contains("leads back"), "{back}: {what}");
        let bounded = Damaged::new(&Memory::new(log.image.clone()), 100);
        assert!(now(Volume::open(&bounded)).is_err() && bounded.left.get() > 0, "{back}");
    }
}

#[test]
fn logs_that_contradict_the_volume_are_said() {
    let log = Log::new();
    let (volume, image) = log.open();
    let ino = |path: &str| resolve(&volume, &image, path).unwrap().unwrap().ino.0;
    let (dir, file, link) = (ino("/inline"), ino("/inline/3"), ino("/link"));
    let new = FSYNC | ENTRY;
    let last = log.last();
    let name = |len: u32, name: &[u8]| {
        let mut block = named(last.clone(), dir, name);
        put(&mut block, NAME_LEN, len);
        block
    };
    let small = {
        let mut block = last.clone();
        put(&mut block, 360, 4);
        block
    };
    for (block, nid, ino, flag, said) in [
        (named(last.clone(), FREE + 9, b"x"), FREE, FREE, new, "is not there"),
        (named(last.clone(), file, b"x"), FREE, FREE, new, "is none"),
        (named(last.clone(), u32::MAX, b"x"), FREE, FREE, new, "node 4294967295"),
        (name(256, b"x"), FREE, FREE, new, "256 bytes"),
        (name(u32::MAX, b"x"), FREE, FREE, new, "4294967295 bytes"),
        (name(0, b"x"), FREE, FREE, new, "no bytes"),
        (name(3, b"a/b"), FREE, FREE, new, "slash"),
        (name(2, b".."), FREE, FREE, new, "out of its place"),
        (last.clone(), file, file, new, "anew"),
        (log.inode("/inline"), dir, dir, FSYNC, "no regular file"),
        (log.inode("/link"), link, link, FSYNC, "no regular file"),
        (last.clone(), u32::MAX, u32::MAX, FSYNC, "node 4294967295"),
        (last.clone(), 0, 0, FSYNC, "node 0"),
        (last.clone(), FREE, file, FSYNC, "at place 0"),
        (last.clone(), file, file, FSYNC | 1 << 3, "at place 1"),
        (vec![0; 4096], FREE, file, FSYNC | 3 << 3, "no direct node"),
        (vec![0; 4096], FREE, file, FSYNC | (u32::MAX << 4), "no direct node"),
        (small, file, file, FSYNC, "addresses from byte"),
    ] {
        let mut log = Log::new();
        log.push(block, nid, ino, flag);
        let what = log.corrupt();
        assert!(what.contains(said), "{said}: {what}");
    }
}

/// Every field of the log, set to whatever: opening and walking end, within a budget of blocks.
#[test]
fn damaged_logs() {
    let mut log = Log::new();
    let (volume, image) = log.open();
    let ino = |path: &str| resolve(&volume, &image, path).unwrap().unwrap().ino.0;
    let numbers = [ino("/inline"), ino("/inline/1"), ino("/inline/4"), ino("/link"), 3, 1, FREE];
    log.push(named(log.last(), numbers[0], b"new"), FREE, FREE, FSYNC | ENTRY);
    log.push(named(log.last(), 3, b"acl"), FREE + 1, FREE + 1, FSYNC | ENTRY);
    log.push(log.inode("/inline/4"), numbers[2], numbers[2], 0);
    let mut node = vec![0; 4096];
    put(&mut node, 0, word(&image.0, 1024 + 92) + 7);
    log.push(node, FREE + 2, numbers[2], FSYNC | 1 << 3);
    log.push(vec![0; 4096], FREE + 3, numbers[2], FSYNC | 0x1FFF_FFFF << 3);
    let image = Memory::new(log.image.clone());
    assert_eq!(now(Volume::open(&image)).unwrap().info().recovery.nodes, log.blocks.len() as u64);
    let fields =
        [NID, INO, FLAG, VERSION, VERSION + 4, NEXT, NAME_LEN, PARENT, SIZE, SIZE + 4, 0, 76, 80, 360];
    let mut random = Rng(4);
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..1500 {
        let mut damaged = Damaged::new(&image, 3000);
        for _ in 0..1 + random.below(3) {
            let block = log.blocks[random.below(log.blocks.len() as u64) as usize];
            let field = fields[random.below(fields.len() as u64) as usize];
            let at = block * 4096 + field;
            let value = match random.below(6) {
                0 => u32::MAX,
                1 => 0,
                2 => log.blocks[random.below(log.blocks.len() as u64) as usize] as u32,
                3 => numbers[random.below(numbers.len() as u64) as usize],
                4 => word(&log.image, at) ^ 1 << random.below(32),
                _ => random.below(1 << 32) as u32,
            };
            let bytes = value.to_le_bytes().into_iter().enumerate();
            damaged.changes.extend(bytes.map(|(i, byte)| ((at + i) as u64, byte)));
        }
        match now(Volume::open(&damaged)) {
            Ok(_) => opened += 1,
            Err(Error::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("{other:?} for {:?}", damaged.changes),
        }
        assert!(damaged.left.get() > 2800, "{} blocks to open {:?}", damaged.left.get(), damaged.changes);
        exercise(&damaged);
    }
    assert!(opened > 200 && refused > 200, "{opened} opened, {refused} refused");
}
