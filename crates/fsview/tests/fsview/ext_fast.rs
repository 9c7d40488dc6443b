//! Fast commits written by hand, a tag at a time, behind a log that debugfs wrote: what the view shows of
//! each, where it ends, and what it makes of hostile ones.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::ext_images::noting::Noting;
use crate::ext_images::{Variant, make, run};
use nearside_conformance::explore::{Bounds, explore_within};
use nearside_conformance::needs;
use nearside_conformance::view::{Image, block_on, read, resolve};
use nearside_fsview::{DirCursor, Error, FileKind, Inode, RunPlace, State, Volume};

const TOOLS: &[&str] = &["mke2fs", "debugfs"];
const BLOCK: usize = 1024;
/// Blocks of the area.
const AREA: usize = 64;
const ARGS: &str = "-t ext4 -b 1024 -I 256 -N 128 -J size=2";

const BOUNDS: Bounds = Bounds { files: 32, runs: 16, names: 4 };

const ADD: u16 = 1;
const DEL: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Of all files that are there, and of inodes that tags are about.
const GENERATION: u32 = 0;

/// A volume with a live log and an empty area behind it.
struct Base {
    bytes: Vec<u8>,
    /// Bytes of the volume at which the area's blocks lie.
    area: Vec<usize>,
    /// And those of the log.
    log: Vec<usize>,
    /// The transaction that fast commits must be of.
    tid: u32,
    /// Inode numbers of /a, /b and /d.
    a: u32,
    b: u32,
    d: u32,
}

fn words(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn base(dir: &Path, args: &'static str) -> Base {
    base_with(dir, args, "jo", 0)
}

/// `open`: with what debugfs opens the journal; `features`: further ones of it.
fn base_with(dir: &Path, args: &'static str, open: &str, features: u32) -> Base {
    let from = dir.join("from");
    std::fs::create_dir_all(from.join("d")).unwrap();
    std::fs::write(from.join("a"), vec![b'a'; 3 * BLOCK]).unwrap();
    std::fs::write(from.join("b"), vec![b'b'; 900]).unwrap();
    let image = dir.join("image");
    assert!(make(&Variant { name: "fast", args, after: "" }, &image, 8, Some(&from)).unwrap());
    let text = |command: &str| {
        let said = run("debugfs", &["-R", command, image.to_str().unwrap()]).unwrap();
        String::from_utf8(said).unwrap().trim().to_owned()
    };
    let home = text("blocks /b");
    std::fs::write(dir.join("1"), vec![b'B'; BLOCK]).unwrap();
    let lines = format!("{open}\njw -b {home} {}\njc\n", dir.join("1").display());
    std::fs::write(dir.join("commands"), lines).unwrap();
    run("debugfs", &["-w", "-f", dir.join("commands").to_str().unwrap(), image.to_str().unwrap()]).unwrap();
    let said = text("blocks <8>");
    let mut blocks: Vec<_> = said.split_whitespace().map(|nr| nr.parse::<usize>().unwrap() * BLOCK).collect();
    let mut bytes = std::fs::read(&image).unwrap();
    // Without those of the extent tree or the block map.
    blocks.retain(|at| !bytes[*at..].starts_with(&[0x0A, 0xF3]));
    let own = blocks[0];
    let len = words(&bytes, own + 0x10) as usize;
    assert!(len == 2048 && blocks.len() >= len, "{len} {}", blocks.len());
    let commits = blocks[1..len].iter().filter(|at| words(&bytes, **at) == 0xC03B_3998);
    let tid = commits.map(|at| words(&bytes, at + 8)).max().unwrap() + 1;
    let features = words(&bytes, own + 0x28) | 0x20 | features;
    bytes[own + 0x28..own + 0x2C].copy_from_slice(&features.to_be_bytes());
    bytes[own + 0x54..own + 0x58].copy_from_slice(&(AREA as u32).to_be_bytes());
    bytes[own + 0xFC..own + 0x100].fill(0);
    if open.contains("-c") {
        let sum = crc(&bytes[own..own + 1024], !0);
        bytes[own + 0xFC..own + 0x100].copy_from_slice(&sum.to_be_bytes());
    }
    let image = Image::Memory(bytes.clone().into());
    let volume = block_on(Volume::open(&image)).unwrap();
    assert!(volume.info().recovery.transactions > 0 && volume.info().recovery.fast_commits == 0);
    let ino = |name: &str| {
        let inode = resolve(&volume, &image, name.as_bytes()).unwrap().unwrap();
        assert_eq!(inode.generation, GENERATION);
        inode.ino.0
    };
    let (a, b, d) = (ino("a"), ino("b"), ino("d"));
    Base {
        area: blocks[len - AREA + 1..len].to_vec(),
        log: blocks[1..len - AREA].to_vec(),
        bytes,
        tid,
        a,
        b,
        d,
    }
}

/// CRC32c without inversion.
fn crc(bytes: &[u8], begins: u32) -> u32 {
    !crc32c::crc32c_append(!begins, bytes)
}

fn tag(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
}

fn numbers(kind: u16, of: &[u32]) -> Vec<u8> {
    tag(kind, &of.iter().flat_map(|nr| nr.to_le_bytes()).collect::<Vec<_>>())
}

fn add(ino: u32, first: u32, len: u16, start: u32) -> Vec<u8> {
    let value = [&ino.to_le_bytes()[..], &first.to_le_bytes(), &len.to_le_bytes(), &[0, 0]].concat();
    tag(ADD, &[&value[..], &start.to_le_bytes()].concat())
}

fn name(kind: u16, dir: u32, ino: u32, name: &str) -> Vec<u8> {
    tag(kind, &[&dir.to_le_bytes()[..], &ino.to_le_bytes(), name.as_bytes()].concat())
}

/// An inode without attributes: its mode, size, links, and with extents.
fn inode(ino: u32, mode: u16, size: u32, links: u16) -> Vec<u8> {
    let mut raw = vec![0; 160];
    raw[0..2].copy_from_slice(&mode.to_le_bytes());
    raw[4..8].copy_from_slice(&size.to_le_bytes());
    raw[0x1A..0x1C].copy_from_slice(&links.to_le_bytes());
    raw[0x20..0x24].copy_from_slice(&0x8_0000u32.to_le_bytes());
    raw[0x64..0x68].copy_from_slice(&GENERATION.to_le_bytes());
    raw[0x80] = 32;
    tag(INODE, &[&ino.to_le_bytes()[..], &raw].concat())
}

/// The same of another file.
fn another(mut inode: Vec<u8>) -> Vec<u8> {
    inode[8 + 0x64] = 99;
    inode
}

/// Fast commits as they are written: tags do not cross blocks, and a tail fills what is left of one.
struct Writer {
    tid: u32,
    blocks: Vec<Vec<u8>>,
    /// What the checksum of the commit that is being written covers.
    covered: Vec<u8>,
    /// Byte of the area at which each tag begins.
    tags: Vec<usize>,
}

impl Writer {
    fn new(tid: u32) -> Writer {
        let mut made = Writer { tid, blocks: vec![Vec::new()], covered: Vec::new(), tags: Vec::new() };
        made.tag(&numbers(HEAD, &[0, tid]));
        made
    }

    fn put(&mut self, bytes: &[u8]) {
        self.tags.push((self.blocks.len() - 1) * BLOCK + self.blocks.last().unwrap().len());
        self.blocks.last_mut().unwrap().extend(bytes);
        self.covered.extend(bytes);
    }

    fn room(&mut self, len: usize) {
        let left = BLOCK - self.blocks.last().unwrap().len();
        if left >= len + 4 {
            return;
        }
        if left >= 4 {
            let pad = tag(PAD, &vec![0; left - 4]);
            self.put(&pad);
        }
        let block = self.blocks.last_mut().unwrap();
        block.resize(BLOCK, 0);
        self.blocks.push(Vec::new());
    }

    fn tag(&mut self, bytes: &[u8]) -> &mut Writer {
        self.room(bytes.len());
        self.put(bytes);
        self
    }

    fn tail(&mut self) -> &mut Writer {
        self.room(12);
        let left = BLOCK - self.blocks.last().unwrap().len();
        let mut bytes = numbers(TAIL, &[self.tid]);
        bytes[2..4].copy_from_slice(&((left - 4) as u16).to_le_bytes());
        let sum = crc(&[&self.covered[..], &bytes].concat(), 0);
        bytes.extend(sum.to_le_bytes());
        bytes.resize(left, 0);
        self.put(&bytes);
        self.covered.clear();
        self.blocks.push(Vec::new());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let padded = self.blocks.iter().map(|block| {
            let mut block = block.clone();
            block.resize(BLOCK, 0);
            block
        });
        padded.collect::<Vec<_>>().concat()
    }
}

impl Base {
    /// The volume with these bytes in its area.
    fn with(&self, area: &[u8]) -> Image {
        let mut bytes = self.bytes.clone();
        for (block, at) in area.chunks(BLOCK).zip(&self.area) {
            bytes[*at..*at + block.len()].copy_from_slice(block);
        }
        Image::Memory(bytes.into())
    }

    /// The volume after one fast commit of these tags.
    fn after(&self, tags: &[Vec<u8>]) -> Seen {
        let mut writer = Writer::new(self.tid);
        for tag in tags {
            writer.tag(tag);
        }
        Seen::new(self.with(&writer.tail().bytes()), 1)
    }

    fn refused(&self, tags: &[Vec<u8>]) -> String {
        let mut writer = Writer::new(self.tid);
        for tag in tags {
            writer.tag(tag);
        }
        let image = self.with(&writer.tail().bytes());
        block_on(Volume::open(&image)).unwrap_err().to_string()
    }
}

struct Seen {
    image: Image,
    volume: Volume,
}

impl Seen {
    fn new(image: Image, commits: u64) -> Seen {
        let volume = block_on(Volume::open(&image)).unwrap();
        assert_eq!(volume.info().recovery.fast_commits, commits);
        // Everything that is there can be read.
        read(&volume, &image).unwrap();
        Seen { image, volume }
    }

    fn find(&self, path: &str) -> Option<Inode> {
        resolve(&self.volume, &self.image, path.as_bytes()).unwrap()
    }

    fn get(&self, path: &str) -> Inode {
        self.find(path).unwrap_or_else(|| panic!("{path} is missing"))
    }

    /// Where block `nr` of a file lies, in the volume's blocks.
    fn block(&self, path: &str, nr: u64) -> Option<u64> {
        let run = block_on(self.volume.map(&self.image, &self.get(path), nr * BLOCK as u64)).unwrap();
        match run.unwrap().place {
            RunPlace::Volume(at) => Some(at / BLOCK as u64),
            _ => None,
        }
    }
}

#[test]
fn ranges_are_added_and_taken_away() {
    let Some(dir) = needs::folder("ranges_are_added_and_taken_away", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let a = base.a;
    let seen = base.after(&[]);
    let first = seen.block("a", 0).unwrap();
    assert_eq!((seen.block("a", 2), seen.get("a").size), (Some(first + 2), 3 * BLOCK as u64));
    // At another place, two more behind, and one that is unwritten.
    let size = inode(a, 0o100_644, 7 * BLOCK as u32, 1);
    let seen = base.after(&[add(a, 1, 1, 7000), add(a, 3, 2, 7010), add(a, 6, 0x8001, 7020), size.clone()]);
    let blocks: Vec<_> = (0..7).map(|nr| seen.block("a", nr)).collect();
    let (two, unmapped) = (Some(first + 2), None);
    assert_eq!(blocks, [Some(first), Some(7000), two, Some(7010), Some(7011), unmapped, None]);
    // A hole through old and new, then a block of it again, and one of the new from the middle.
    let seen = base.after(&[
        add(a, 3, 3, 7010),
        numbers(DEL, &[a, 1, 3]),
        add(a, 2, 1, 7030),
        add(a, 5, 1, 7040),
        size,
    ]);
    let blocks: Vec<_> = (0..6).map(|nr| seen.block("a", nr)).collect();
    assert_eq!(blocks, [Some(first), None, Some(7030), None, Some(7011), Some(7040)]);
    assert!(base.refused(&[add(a, 0, 2, 8191)]).contains("2 blocks at block 8191, the volume has 8192"));
    assert!(base.refused(&[add(a, 0, 1, 1)]).contains("1 blocks at block 1"));
}

/// With each inode a file's blocks are counted anew, and those of its extent tree as the kernel builds it.
#[test]
fn blocks_are_counted_as_the_kernel_does() {
    let Some(dir) = needs::folder("blocks_are_counted_as_the_kernel_does", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let size = inode(base.a, 0o100_644, 40 * BLOCK as u32, 1);
    let apart = |count: u32| (0..count).map(|nr| add(base.a, 4 * nr, 3, 7000 + 9 * nr)).collect::<Vec<_>>();
    let sectors = |tags: &[Vec<u8>]| {
        let size = std::slice::from_ref(&size);
        let seen = base.after(&[size, tags, size].concat());
        seen.get("a").sectors
    };
    // Four extents are in the inode, five in a node.
    assert_eq!(sectors(&[]), 2 * 3);
    assert_eq!(sectors(&apart(4)), 2 * 12);
    assert_eq!(sectors(&apart(5)), 2 * (15 + 1));
    // One goes: four again.
    let gone = numbers(DEL, &[base.a, 8, 3]);
    assert_eq!(sectors(&[&apart(5)[..], &[gone]].concat()), 2 * 12);
    // From within one: a fifth.
    let within = numbers(DEL, &[base.a, 9, 1]);
    assert_eq!(sectors(&[&apart(4)[..], &[within]].concat()), 2 * (11 + 1));
    // A full leaf of 84 is left behind.
    let many =
        |count: u32| (0..count).map(|nr| add(base.a, 100 + 2 * nr, 1, 7000 + 2 * nr)).collect::<Vec<_>>();
    assert_eq!(sectors(&many(83)), 2 * (3 + 83 + 1));
    assert_eq!(sectors(&many(84)), 2 * (3 + 84 + 2));
}

#[test]
fn an_inode_keeps_where_its_blocks_lie() {
    let Some(dir) = needs::folder("an_inode_keeps_where_its_blocks_lie", TOOLS) else { return };
    for args in [ARGS, "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^metadata_csum"] {
        let folder = dir.path().join(args.len().to_string());
        std::fs::create_dir(&folder).unwrap();
        let base = base(&folder, args);
        let before = base.after(&[]).block("a", 1);
        let seen = base.after(&[inode(base.a, 0o100_600, 1500, 1)]);
        let a = seen.get("a");
        assert_eq!((a.mode & 0o7777, a.size, a.generation), (0o600, 1500, GENERATION));
        assert_eq!(seen.block("a", 1), before);
        assert!(base.refused(&[inode(8, 0o100_600, 1500, 1)]).contains("it changes inode 8"));
        assert!(base.refused(&[inode(base.a, 0, 1500, 1)]).contains("one that cannot be"));
    }
}

/// One tag over a file of many extents: others' work is let go first in between.
#[test]
fn one_range_over_many_extents_is_many_slices() {
    let Some(dir) = needs::folder("one_range_over_many_extents_is_many_slices", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let spread = (0..1200).map(|nr| add(base.a, 4 + 2 * nr, 1, 2000 + 3 * nr));
    // Only then is the file so long, and the whole of it looked at.
    let tags: Vec<_> = spread.chain([inode(base.a, 0o100_644, 3000 * BLOCK as u32, 1)]).collect();
    let pauses = |more: &[Vec<u8>]| {
        let mut writer = Writer::new(base.tid);
        tags.iter().chain(more).for_each(|tag| {
            writer.tag(tag);
        });
        let image = base.with(&writer.tail().bytes());
        let source = Noting::new(&image);
        let volume = block_on(Volume::open(&source)).unwrap();
        assert_eq!(volume.info().recovery.fast_commits, 1);
        source.pauses.get()
    };
    let more = pauses(&[add(base.a, 2900, 1, 7000)]) - pauses(&[]);
    assert!(more > 30, "{more} looks at whether other work waits");
}

/// An inode that is used again within one log: where no tag says what lies there, nobody reads what its
/// blocks held before, as a directory or as a file.
#[test]
fn an_inode_that_is_used_again_has_none_of_its_old_blocks() {
    let Some(dir) = needs::folder("an_inode_that_is_used_again_has_none_of_its_old_blocks", TOOLS) else {
        return;
    };
    for args in [ARGS, "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^metadata_csum"] {
        let folder = dir.path().join(args.len().to_string());
        std::fs::create_dir(&folder).unwrap();
        let base = base(&folder, args);
        let made = another(inode(base.d, 0o100_644, 2 * BLOCK as u32, 1));
        let tags = [name(UNLINK, 2, base.d, "d"), made.clone(), name(CREATE, 2, base.d, "new")];
        let seen = base.after(&tags);
        assert_eq!((seen.block("new", 0), seen.get("new").sectors), (None, 2));
        // What a tag names is there, before the inode in its commit too; and it stays.
        let after = |more: &[Vec<u8>]| base.after(&[&tags[..], more].concat());
        let seen = after(&[add(base.d, 1, 1, 7000), made.clone()]);
        assert_eq!((seen.block("new", 0), seen.block("new", 1)), (None, Some(7000)));
        let own = [&tags[..1], &[add(base.d, 0, 1, 7010)], &tags[1..]].concat();
        assert_eq!(base.after(&own).block("new", 0), Some(7010));
        // One without a name at first.
        let nameless = another(inode(base.d, 0o100_644, BLOCK as u32, 0));
        let late = [tags[0].clone(), nameless, made, name(LINK, 2, base.d, "new")];
        assert_eq!(base.after(&late).block("new", 0), None);
        // A file in place of a file. Without metadata checksums another generation alone says nothing.
        let seen = base.after(&[another(inode(base.a, 0o100_644, BLOCK as u32, 1))]);
        assert_eq!(seen.block("a", 0).is_some(), args.contains("^metadata_csum"));
    }
}

/// Where the inode had nodes of extents, the kernel's replay goes on with them, though their checksums are of
/// the file before: it has just read them. They are counted, with the blocks that they name, which nobody
/// reads.
#[test]
fn an_inode_that_is_used_again_keeps_its_nodes() {
    let Some(dir) = needs::folder("an_inode_that_is_used_again_keeps_its_nodes", TOOLS) else { return };
    std::fs::create_dir(dir.path().join("from")).unwrap();
    let spread = std::fs::File::create(dir.path().join("from/s")).unwrap();
    for nr in [0, 2, 4, 6, 8, 10] {
        spread.write_all_at(&[b's'; BLOCK], nr * BLOCK as u64).unwrap();
    }
    let base = base(dir.path(), ARGS);
    let before = base.after(&[inode(base.a, 0o100_644, 0, 1)]).get("s");
    assert_eq!(before.sectors, 2 * (6 + 1));
    let other = |size: u32| another(inode(before.ino.0, 0o100_644, size * BLOCK as u32, 1));
    let seen = base.after(&[other(0), add(before.ino.0, 0, 4, 7000), other(11)]);
    let places: Vec<_> = (0..11).map(|at| seen.block("s", at)).collect();
    assert_eq!(places[..4], [7000, 7001, 7002, 7003].map(Some));
    assert_eq!(places[4..], [None; 7]);
    assert_eq!(seen.get("s").sectors, 2 * (4 + 4 + 1));
}

#[test]
fn names_come_and_go() {
    let Some(dir) = needs::folder("names_come_and_go", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let (a, b, d) = (base.a, base.b, base.d);
    // A file that is new; a hard link; a rename; a name that is taken away and given again.
    let seen = base.after(&[
        inode(50, 0o100_644, 2048, 1),
        add(50, 0, 2, 7000),
        name(CREATE, 2, 50, "new"),
        name(LINK, d, a, "second"),
        name(LINK, d, b, "moved"),
        name(UNLINK, 2, b, "b"),
        name(UNLINK, 2, a, "a"),
        name(LINK, 2, a, "a"),
    ]);
    let new = seen.get("new");
    assert_eq!((new.ino.0, new.links, new.size, seen.block("new", 1)), (50, 1, 2048, Some(7001)));
    assert_eq!((seen.get("d/second").ino.0, seen.get("a").links), (a, 2));
    assert_eq!((seen.get("d/moved").ino.0, seen.get("d/moved").links), (b, 1));
    assert!(seen.find("b").is_none());
    // The last name goes; the inode is free, and another file's in the same log.
    let seen = base.after(&[
        name(UNLINK, 2, a, "a"),
        inode(a, 0o100_644, 3000, 1),
        name(CREATE, 2, a, "other"),
        name(UNLINK, 2, 99, "nobody's"),
        name(LINK, 2, 99, "nobody's"),
    ]);
    assert!(seen.find("a").is_none() && seen.find("nobody's").is_none());
    assert_eq!((seen.get("other").ino.0, seen.block("other", 0)), (a, None));
    assert!(base.refused(&[name(CREATE, 2, 60, "free")]).contains("inode 60, which is free"));
}

#[test]
fn a_directory_is_made_and_filled_in_one_log() {
    let Some(dir) = needs::folder("a_directory_is_made_and_filled_in_one_log", TOOLS) else { return };
    for args in [ARGS, "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^metadata_csum"] {
        let folder = dir.path().join(args.len().to_string());
        std::fs::create_dir(&folder).unwrap();
        let base = base(&folder, args);
        let seen = base.after(&[
            inode(60, 0o040_755, 1024, 2),
            name(CREATE, 2, 60, "made"),
            inode(61, 0o040_700, 1024, 2),
            name(CREATE, 60, 61, "below"),
            name(LINK, 61, base.a, "file"),
        ]);
        assert_eq!(seen.get("made").kind, FileKind::Directory);
        let file = seen.get("made/below/file");
        assert_eq!((file.ino.0, file.links), (base.a, 2));
        let up = block_on(seen.volume.lookup(&seen.image, &seen.get("made/below"), b"..")).unwrap();
        assert_eq!(up.map(|ino| ino.0), Some(60));
    }
}

/// Past one block, then past one index node of leaves; and each name is found again, and taken away.
#[test]
fn a_directory_grows_an_index() {
    let Some(dir) = needs::folder("a_directory_grows_an_index", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let (mut writer, names) = (Writer::new(base.tid), 900);
    let text = |nr: u32| format!("{nr}-{}", "n".repeat(8 + (nr as usize * 7) % 30));
    for nr in 0..names {
        writer.tag(&name(LINK, base.d, base.a, &text(nr)));
    }
    writer.tail();
    let seen = Seen::new(base.with(&writer.bytes()), 1);
    assert!(seen.get("d").size > 40 * BLOCK as u64, "{}", seen.get("d").size);
    assert_eq!(seen.get("a").links, 1 + names);
    for nr in 0..names {
        assert_eq!(seen.get(&format!("d/{}", text(nr))).ino.0, base.a, "{nr}");
    }
    for nr in (0..names).filter(|nr| nr % 3 > 0) {
        writer.tag(&name(UNLINK, base.d, base.a, &text(nr)));
    }
    let seen = Seen::new(base.with(&writer.tail().bytes()), 2);
    assert_eq!(seen.get("a").links, 1 + names / 3);
    for nr in 0..names {
        assert_eq!(seen.find(&format!("d/{}", text(nr))).is_some(), nr % 3 == 0, "{nr}");
    }
}

/// Without an index the kernel looks through a directory's blocks for each name. Here each tag costs the
/// same, however many names there are, and what is freed is used again from the first block on.
#[test]
fn names_without_an_index_cost_the_same_however_many() {
    let Some(dir) = needs::folder("names_without_an_index_cost_the_same_however_many", TOOLS) else { return };
    let base = base(dir.path(), "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^dir_index");
    let text = |nr: u32| format!("{nr:04}-{}", "n".repeat(50));
    let looks = |names: u32| {
        let mut writer = Writer::new(base.tid);
        (0..names).for_each(|nr| _ = writer.tag(&name(LINK, base.d, base.a, &text(nr))));
        (0..names / 2).for_each(|nr| _ = writer.tag(&name(UNLINK, base.d, base.a, &text(nr * 2))));
        (0..names / 2).for_each(|nr| _ = writer.tag(&name(LINK, base.d, base.a, &text(nr + 5000))));
        let image = base.with(&writer.tail().bytes());
        let source = Noting::new(&image);
        let volume = block_on(Volume::open(&source)).unwrap();
        let looks = source.pauses.get() + source.asked.borrow().len();
        let seen = Seen { image, volume };
        assert_eq!(
            (seen.get("a").links, seen.get("d").size),
            (1 + names, u64::from(names.div_ceil(15)) * 1024)
        );
        for nr in 0..names / 2 {
            let is =
                [nr * 2, nr * 2 + 1, nr + 5000].map(|nr| seen.find(&format!("d/{}", text(nr))).is_some());
            assert_eq!(is, [false, true, true], "{nr}");
        }
        let mut entries = Vec::new();
        let from = DirCursor::default();
        block_on(seen.volume.read_dir(&seen.image, &seen.get("d"), from, &mut entries)).unwrap();
        assert!(
            entries.iter().any(|entry| entry.name[..] == *text(5000).as_bytes()),
            "not in its first block"
        );
        looks
    };
    let (few, many) = (looks(98), looks(392));
    assert!(many < 5 * few, "{few} looks for 98 names, {many} for four times as many");
}

/// What was seen of a directory without an index holds no longer where its blocks are others: one that is
/// taken out is a hole then, and the kernel puts no name behind it.
#[test]
fn what_was_seen_without_an_index_is_forgotten() {
    let Some(dir) = needs::folder("what_was_seen_without_an_index_is_forgotten", TOOLS) else { return };
    let base = base(dir.path(), "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^dir_index");
    let text = |nr: u32| format!("{nr:04}-{}", "n".repeat(50));
    let mut tags: Vec<_> = (0..45).map(|nr| name(LINK, base.d, base.a, &text(nr))).collect();
    // Of three full blocks the second goes; the third has room again.
    tags.extend([numbers(DEL, &[base.d, 1, 1]), name(UNLINK, base.d, base.a, &text(44))]);
    tags.push(name(LINK, base.d, base.b, &text(99)));
    let seen = base.after(&tags);
    let is = [0, 20, 43, 44, 99].map(|nr| seen.find(&format!("d/{}", text(nr))).is_some());
    assert_eq!((seen.get("d").size, is), (3 * 1024, [true, false, true, false, false]));
}

#[test]
fn the_last_whole_commit_is_the_end() {
    let Some(dir) = needs::folder("the_last_whole_commit_is_the_end", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let mut writer = Writer::new(base.tid);
    writer.tag(&name(LINK, 2, base.a, "one")).tail();
    writer.tag(&name(LINK, 2, base.a, "two")).tail();
    writer.tag(&name(LINK, 2, base.a, "three")).tail();
    let whole = writer.bytes();
    let seen = Seen::new(base.with(&whole), 3);
    assert!(seen.find("three").is_some());
    // Of the third block: its tag, its tail's transaction, its tail's checksum.
    for at in [2 * BLOCK, 2 * BLOCK + 12, 2 * BLOCK + 17 + 4, 2 * BLOCK + 17 + 8] {
        let mut torn = whole.clone();
        torn[at] ^= 1;
        let seen = Seen::new(base.with(&torn), 2);
        assert!(seen.find("two").is_some() && seen.find("three").is_none(), "{at}");
    }
    // Of another transaction, none; nor behind something else than a head.
    for at in [8, 0] {
        let mut other = whole.clone();
        other[at] ^= 1;
        let seen = Seen::new(base.with(&other), 0);
        assert!(seen.find("one").is_none());
    }
    let mut newer = whole.clone();
    newer[4] = 1;
    let said = block_on(Volume::open(&base.with(&newer))).unwrap_err();
    assert!(matches!(&said, Error::Unsupported(what) if what.contains("features 0x1")), "{said}");
    let home = block_on(Volume::open_as(&base.with(&whole), State::Home)).unwrap();
    assert!(home.info().needs_recovery && home.info().recovery.fast_commits == 0);
}

/// What is said of each path, and what that depends on.
fn answers(volume: &Volume, image: &Image, paths: &[&str]) -> Vec<(String, BTreeSet<u64>)> {
    let answer = |path: &&str| {
        let source = Noting::new(image);
        let inode = resolve(volume, &source, path.as_bytes()).unwrap();
        let mut said = format!("{inode:?}");
        if let Some(file) = inode.filter(|inode| inode.kind == FileKind::Regular) {
            let mut from = 0;
            while let Some(run) = block_on(volume.map(&source, &file, from)).unwrap() {
                from += run.len;
                said += &format!(" {run:?}");
            }
        }
        (said, source.shown.into_inner())
    };
    paths.iter().map(answer).collect()
}

/// A volume that fast commits go on with stays the one that is known: every answer that is another depends on
/// something that is said to have changed, and what does not depend on that is kept.
#[test]
fn what_a_fast_commit_changes_is_said() {
    let Some(dir) = needs::folder("what_a_fast_commit_changes_is_said", TOOLS) else { return };
    let base = base(dir.path(), ARGS);
    let (a, b, d) = (base.a, base.b, base.d);
    let paths = ["a", "b", "d", "d/second", "d/new", "new", "d/moved"];
    let commits = [
        // Where blocks lie, and no inode; then a size.
        vec![add(a, 1, 1, 7000)],
        vec![inode(a, 0o100_644, 9 * BLOCK as u32, 1)],
        vec![add(a, 4, 2, 7010), numbers(DEL, &[a, 0, 1])],
        vec![name(LINK, d, a, "second")],
        vec![inode(50, 0o100_644, 2048, 1), add(50, 0, 2, 7100), name(CREATE, d, 50, "new")],
        vec![name(LINK, d, b, "moved"), name(UNLINK, 2, b, "b")],
        vec![add(50, 1, 1, 7200)],
        vec![name(UNLINK, d, 50, "new"), inode(50, 0o100_600, 100, 1), name(CREATE, 2, 50, "new")],
    ];
    let mut writer = Writer::new(base.tid);
    let mut image = base.with(&writer.bytes());
    let mut volume = block_on(Volume::open(&image)).unwrap();
    let (mut said, mut kept) = (answers(&volume, &image, &paths), 0);
    for (nr, tags) in commits.iter().enumerate() {
        for tag in tags {
            writer.tag(tag);
        }
        image = base.with(&writer.tail().bytes());
        let after = block_on(Volume::open_after(&image, State::Recovered, Some(&volume))).unwrap();
        assert_eq!(after.info().recovery.fast_commits, nr as u64 + 1);
        let changed: BTreeSet<u64> =
            block_on(after.changed_since(&volume, &image)).unwrap().into_iter().collect();
        let now = answers(&after, &image, &paths);
        assert_ne!(now, said, "commit {nr} changes something");
        for ((path, (before, shown)), (now, _)) in paths.iter().zip(&said).zip(&now) {
            assert!(
                before == now || !shown.is_disjoint(&changed),
                "commit {nr}, {path}: {before}, then {now}"
            );
        }
        kept += said.iter().filter(|(_, shown)| shown.is_disjoint(&changed)).count();
        (volume, said) = (after, now);
    }
    assert!(kept > 10, "{kept} of {} answers outlive a commit", paths.len() * commits.len());
    // All of it is taken back: by a log that is another.
    let again = block_on(Volume::open_after(&base.with(&[]), State::Recovered, Some(&volume))).unwrap();
    let changed: BTreeSet<u64> =
        block_on(again.changed_since(&volume, &image)).unwrap().into_iter().collect();
    for ((before, shown), (now, _)) in said.iter().zip(&answers(&again, &base.with(&[]), &paths)) {
        assert!(before == now || !shown.is_disjoint(&changed), "{before}, then {now}");
    }
}

/// A commit that did not wait for its blocks and lacks one: what fsync had said before it, by fast commits of
/// the transaction that it was to end, counts as before. (The kernel refuses such a volume; without that
/// commit, it does these.)
#[test]
fn fast_commits_before_a_commit_that_lacks_a_block() {
    let Some(dir) = needs::folder("fast_commits_before_a_commit_that_lacks_a_block", TOOLS) else { return };
    let mut base = base_with(dir.path(), ARGS, "jo -c", 4);
    let home = block_on(Volume::open(&base.with(&[]))).unwrap().info().recovery;
    let last = base
        .log
        .iter()
        .rposition(|at| words(&base.bytes, *at) == 0xC03B_3998 && words(&base.bytes, at + 4) == 1);
    let copy = base.log[last.unwrap() + 1];
    assert_eq!(words(&base.bytes, base.log[last.unwrap()] + 8), base.tid - 1, "not of the last transaction");
    base.bytes[copy + 77] ^= 1;
    for (tid, commits) in [(base.tid - 1, 1), (base.tid, 0)] {
        let mut writer = Writer::new(tid);
        writer.tag(&name(LINK, 2, base.a, "one")).tail();
        let seen = Seen::new(base.with(&writer.bytes()), commits);
        assert_eq!(seen.find("one").is_some(), commits == 1);
        let info = seen.volume.info();
        assert_eq!(info.recovery.transactions, home.transactions - 1);
        assert!(info.warnings.iter().any(|said| said.contains("lacks a block")), "{:?}", info.warnings);
        let b = seen.block("b", 0).unwrap() as usize * BLOCK;
        assert_eq!(base.bytes[b], b'b', "what the commit had");
    }
}

/// A node of a file's extents is damaged, and a fast commit is about a range of it. The kernel leaves that
/// range out and mounts the volume; here, too, it is an error of that file alone.
#[test]
fn a_damaged_extent_node_is_an_error_of_its_file() {
    let Some(dir) = needs::folder("a_damaged_extent_node_is_an_error_of_its_file", TOOLS) else { return };
    let mut base = base(dir.path(), "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^metadata_csum");
    // The inode's root leads to a node in block 7900, which is none.
    let table = u32::from_le_bytes(base.bytes[2 * BLOCK + 8..][..4].try_into().unwrap()) as usize * BLOCK;
    let root = table + (base.a as usize - 1) * 256 + 0x28;
    assert_eq!(base.bytes[root..root + 2], [0x0A, 0xF3]);
    let damaged = [0x0A, 0xF3, 1, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xDC, 0x1E, 0, 0, 0, 0, 0, 0];
    base.bytes[root..root + damaged.len()].copy_from_slice(&damaged);
    for range in [add(base.a, 1, 1, 7000), numbers(DEL, &[base.a, 1, 1])] {
        let mut writer = Writer::new(base.tid);
        writer.tag(&range).tag(&range).tag(&name(LINK, base.d, base.b, "second")).tail();
        let image = base.with(&writer.bytes());
        if let Some(kept) = std::env::var_os("NEARSIDE_KEEP")
            && let Image::Memory(bytes) = &image
        {
            std::fs::write(Path::new(&kept).join(format!("damaged-{}", range[0])), bytes).unwrap();
        }
        let volume = block_on(Volume::open(&image)).unwrap();
        assert_eq!(volume.info().recovery.fast_commits, 1);
        let find = |path: &str| resolve(&volume, &image, path.as_bytes()).unwrap().unwrap();
        assert_eq!((find("d/second").ino.0, find("d/second").links), (base.b, 2));
        assert_eq!(find("a").size, 3 * BLOCK as u64);
        for at in [0, 1, 2] {
            let said = block_on(volume.map(&image, &find("a"), at * BLOCK as u64)).unwrap_err();
            assert!(matches!(&said, Error::Corrupt { at, .. } if *at == 7900 * BLOCK as u64), "{said}");
        }
        assert!(block_on(volume.map(&image, &find("b"), 0)).is_ok());
        // Its inode is another file's in the same log: what the other has is read again.
        let other = another(inode(base.a, 0o100_644, 2 * BLOCK as u32, 1));
        writer.tag(&other).tag(&add(base.a, 0, 1, 7000)).tail();
        let seen = Seen::new(base.with(&writer.bytes()), 2);
        assert_eq!((seen.block("a", 0), seen.block("a", 1)), (Some(7000), None));
    }
}

/// Each byte of each tag's header and value to several values, with the checksum made right again.
#[test]
fn hostile_tags_end_in_an_error_or_a_view() {
    let Some(dir) = needs::folder("hostile_tags_end_in_an_error_or_a_view", TOOLS) else { return };
    for args in [ARGS, "-t ext4 -b 1024 -I 256 -N 128 -J size=2 -O ^metadata_csum,inline_data"] {
        let folder = dir.path().join(args.len().to_string());
        std::fs::create_dir(&folder).unwrap();
        let base = base(&folder, args);
        let mut writer = Writer::new(base.tid);
        for tag in [
            inode(60, 0o040_755, 1024, 2),
            name(CREATE, 2, 60, "made"),
            inode(61, 0o100_644, 4096, 1),
            add(61, 0, 4, 7000),
            name(CREATE, 60, 61, "file"),
            numbers(DEL, &[61, 1, 2]),
            name(LINK, base.d, base.a, "second"),
            name(UNLINK, 2, base.a, "a"),
            inode(61, 0o100_600, 4096, 1),
        ] {
            writer.tag(&tag);
        }
        writer.tail();
        let (area, tags) = (writer.bytes(), writer.tags.clone());
        let end = *tags.last().unwrap();
        assert!(end < BLOCK);
        let (mut errors, mut none, mut views) = (0, 0, 0);
        for at in 0..end {
            for value in [0, 0x7F, 0xFF, area[at] ^ 1, area[at] ^ 0x80] {
                let mut hostile = area.clone();
                hostile[at] = value;
                let sum = crc(&hostile[..end + 8], 0);
                hostile[end + 8..end + 12].copy_from_slice(&sum.to_le_bytes());
                let image = base.with(&hostile);
                match block_on(Volume::open(&image)) {
                    Err(Error::Corrupt { .. } | Error::Unsupported(_)) => errors += 1,
                    Err(other) => panic!("byte {at} to {value}: {other}"),
                    Ok(volume) => {
                        match volume.info().recovery.fast_commits {
                            0 => none += 1,
                            _ => views += 1,
                        }
                        block_on(explore_within(&image, BOUNDS));
                    }
                }
            }
        }
        eprintln!("{args}: {errors} errors, {none} without, {views} views");
        assert!(errors > 50 && none > 50 && views > 500, "{errors} errors, {none} without, {views} views");
    }
}
