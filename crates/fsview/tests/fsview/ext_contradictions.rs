//! Structures that contradict themselves or each other, their checksums right or absent: refused, and said
//! where. The kernel refuses them too (EIO, EUCLEAN).

use crate::ext_images::{VARIANTS, Variant, make, plant_small, run};
use nearside_conformance::needs;
use nearside_conformance::view::{Image, block_on, resolve};
use nearside_fsview::{Error, Inode, RunPlace, Volume};

const TOOLS: &[&str] = &["mke2fs", "debugfs", "e2fsck"];

/// A volume in memory, and where its structures are.
struct Small {
    bytes: Vec<u8>,
    block: usize,
    dir: tempfile::TempDir,
}

impl Small {
    fn new(variant: Variant) -> Small {
        let dir = tempfile::tempdir().unwrap();
        let (from, image) = (dir.path().join("from"), dir.path().join("image"));
        std::fs::create_dir(&from).unwrap();
        plant_small(&from).unwrap();
        assert!(make(&variant, &image, 8, Some(&from)).unwrap());
        let _ = run("e2fsck", &["-fyD", image.to_str().unwrap()]); // exits 1 where it changed something
        let bytes = std::fs::read(&image).unwrap();
        let block = block_on(Volume::open(&memory(&bytes))).unwrap().info().block_size as usize;
        Small { bytes, block, dir }
    }

    fn named(name: &str) -> Small {
        Small::new(*VARIANTS.iter().find(|v| v.name == name).unwrap())
    }

    /// The byte at which debugfs says that an inode lies.
    fn inode(&self, path: &str) -> usize {
        let image = self.dir.path().join("image");
        let said = run("debugfs", &["-R", &format!("imap {path}"), image.to_str().unwrap()]).unwrap();
        let said = String::from_utf8(said).unwrap();
        let numbers: Vec<_> = said.split("at block ").nth(1).unwrap().split(", offset 0x").collect();
        let offset = usize::from_str_radix(numbers[1].trim(), 16).unwrap();
        numbers[0].trim().parse::<usize>().unwrap() * self.block + offset
    }

    fn word(&self, at: usize) -> usize {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap()) as usize
    }

    fn half(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes(self.bytes[at..at + 2].try_into().unwrap()))
    }

    fn with(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        bytes
    }
}

fn memory(bytes: &[u8]) -> Image {
    Image::Memory(bytes.into())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Asks a file for all of its runs, or a link for its target.
fn ask(bytes: &[u8], path: &str) -> Result<(Inode, Vec<RunPlace>), Error> {
    let image = memory(bytes);
    let volume = block_on(Volume::open(&image))?;
    let inode = resolve(&volume, &image, path.as_bytes())?.unwrap();
    let (mut from, mut places) = (0, Vec::new());
    if inode.kind == nearside_fsview::FileKind::Symlink {
        block_on(volume.read_link(&image, &inode))?;
        return Ok((inode, places));
    }
    while let Some(run) = block_on(volume.map(&image, &inode, from))? {
        places.push(run.place);
        from += run.len;
    }
    Ok((inode, places))
}

/// The names in a directory.
fn listed(bytes: &[u8], path: &str) -> Result<Vec<Vec<u8>>, Error> {
    let image = memory(bytes);
    let volume = block_on(Volume::open(&image))?;
    let dir = resolve(&volume, &image, path.as_bytes())?.unwrap();
    let (mut entries, mut cursor) = (Vec::new(), Some(Default::default()));
    while let Some(at) = cursor {
        cursor = block_on(volume.read_dir(&image, &dir, at, &mut entries))?;
    }
    Ok(entries.into_iter().map(|entry| entry.name.to_vec()).collect())
}

/// That a directory is refused for this reason, when it is listed.
fn not_listed(bytes: &[u8], path: &str, what: &str) {
    match listed(bytes, path) {
        Err(Error::Corrupt { what: said, .. }) => assert!(said.contains(what), "{path}: {said}, not {what}"),
        other => panic!("{path}: {what}: {other:?}"),
    }
}

/// That a question is refused for this reason, and where.
fn refused(bytes: &[u8], path: &str, what: &str, where_: usize) {
    match ask(bytes, path) {
        Err(Error::Corrupt { what: said, at }) => {
            assert!(said.contains(what) && said.contains("inode"), "{path}: {said}, not {what}");
            assert_eq!(at, where_ as u64, "{path}: {said}");
        }
        other => panic!("{path}: {what}: {other:?}"),
    }
}

fn ready(test: &str) -> bool {
    needs::tools(test, TOOLS)
}

#[test]
fn leaves_exchanged_are_found_though_their_checksums_hold() {
    if !ready("leaves_exchanged_are_found_though_their_checksums_hold") {
        return;
    }
    for name in ["ext4-1k", "ext4-nocsum"] {
        let small = Small::named(name);
        let inode = small.inode("/comb");
        assert!(ask(&small.bytes, "comb").is_ok());
        let root = inode + 0x28;
        assert!(small.half(root + 6) == 1 && small.half(root + 2) >= 2, "{name}: a tree with leaves");
        let leaf = |nr: usize| small.word(root + 12 + nr * 12 + 4) * small.block;
        let (first, second) = (leaf(0), leaf(1));
        let exchanged = small.with(|bytes| {
            let kept = bytes[first..first + small.block].to_vec();
            bytes.copy_within(second..second + small.block, first);
            put(bytes, second, &kept);
        });
        refused(&exchanged, "comb", "by its parent at", first);
        // The second alone, twice.
        let twice = small.with(|bytes| bytes.copy_within(first..first + small.block, second));
        refused(&twice, "comb", "by its parent at", second);
    }
}

#[test]
fn entries_out_of_order_overlapping_or_past_their_node() {
    if !ready("entries_out_of_order_overlapping_or_past_their_node") {
        return;
    }
    let small = Small::named("ext4-nocsum");
    let inode = small.inode("/comb");
    let root = inode + 0x28;
    let leaf = small.word(root + 12 + 4) * small.block;
    let entry = |nr: usize| leaf + 12 + nr * 12;
    let exchanged = small.with(|bytes| {
        let kept = bytes[entry(3)..entry(4)].to_vec();
        bytes.copy_within(entry(7)..entry(8), entry(3));
        put(bytes, entry(7), &kept);
    });
    refused(&exchanged, "comb", "out of order", leaf);
    let longer = small.with(|bytes| put(bytes, entry(3) + 4, &100u16.to_le_bytes()));
    refused(&longer, "comb", "overlaps", leaf);
    let last = small.half(leaf + 2) - 1;
    let past = small.with(|bytes| put(bytes, entry(last) + 4, &100u16.to_le_bytes()));
    refused(&past, "comb", "past its node", leaf);
    let none = small.with(|bytes| put(bytes, entry(3) + 4, &0u16.to_le_bytes()));
    refused(&none, "comb", "no blocks", leaf);
    let far = small.with(|bytes| put(bytes, entry(3) + 8, &u32::MAX.to_le_bytes()));
    refused(&far, "comb", "of the volume", leaf);
    let empty = small.with(|bytes| put(bytes, leaf + 2, &0u16.to_le_bytes()));
    refused(&empty, "comb", "without entries", leaf);
    let indexes = small.with(|bytes| {
        let kept = bytes[root + 12..root + 24].to_vec();
        bytes.copy_within(root + 24..root + 36, root + 12);
        put(bytes, root + 24, &kept);
    });
    refused(&indexes, "comb", "out of order", inode);
    // The descriptors of the groups, as a file's content.
    let table = small.with(|bytes| put(bytes, small.inode("/plain") + 0x28 + 12 + 8, &2u32.to_le_bytes()));
    refused(&table, "plain", "at block 2", small.inode("/plain"));
}

#[test]
fn pointers_out_of_the_volume() {
    if !ready("pointers_out_of_the_volume") {
        return;
    }
    let small = Small::named("ext2-1k");
    let inode = small.inode("/comb");
    let blocks = small.bytes.len() / small.block;
    assert!(ask(&small.bytes, "comb").is_ok());
    let indirect = small.word(inode + 0x28 + 48) * small.block;
    assert!(indirect > 0);
    // The last of the block's pointers; the file's own first one is as it was.
    let beyond = small.with(|bytes| put(bytes, indirect + small.block - 4, &(blocks as u32).to_le_bytes()));
    refused(&beyond, "comb", "a pointer to block", indirect);
    let direct = small.with(|bytes| put(bytes, inode + 0x28 + 40, &u32::MAX.to_le_bytes()));
    refused(&direct, "comb", "a pointer to block", inode);
    let zone = small.with(|bytes| put(bytes, inode + 0x28 + 48, &2u32.to_le_bytes()));
    refused(&zone, "comb", "it is block 2", inode);
}

#[test]
fn inline_data_that_contradicts_itself() {
    if !ready("inline_data_that_contradicts_itself") {
        return;
    }
    let small = Small::named("ext4-inline-nocsum");
    let path = "rather small";
    let inode = small.inode("\"/rather small\"");
    let flags = small.word(inode + 0x20);
    assert!(flags & 0x1000_0000 != 0 && ask(&small.bytes, path).unwrap().1[0] == RunPlace::Inline);
    let area = inode + 128 + small.half(inode + 0x80) + 4;
    let entry = area;
    assert_eq!(&small.bytes[entry + 16..entry + 20], b"data");
    let both = small.with(|bytes| put(bytes, inode + 0x22, &[(flags >> 16) as u8 | 8]));
    refused(&both, path, "both inline data and extents", inode);
    // With both flags and without the attribute, the first 60 bytes would be an extent header.
    let renamed = small.with(|bytes| put(bytes, entry + 16, b"date"));
    refused(&renamed, path, "without the attribute system.data", inode);
    let none = small.with(|bytes| put(bytes, area - 4, &[0; 4]));
    refused(&none, path, "without the attribute system.data", inode);
    for offset in [0u16, 8, 20] {
        let overlap = small.with(|bytes| put(bytes, entry + 2, &offset.to_le_bytes()));
        refused(&overlap, path, "lies in the attribute entries", inode);
    }
    let outside = small.with(|bytes| put(bytes, entry + 2, &200u16.to_le_bytes()));
    refused(&outside, path, "lies outside its area", inode);
}

#[test]
fn a_short_link_beside_a_large_attribute() {
    if !ready("a_short_link_beside_a_large_attribute") {
        return;
    }
    let variant = |args| Variant { name: "links", args, after: "" };
    // What the kernel leaves where it gives a short link an attribute of 20 KB: its blocks are counted as the
    // link's.
    for (args, good) in
        [("-t ext4 -b 1024 -O ea_inode,^metadata_csum", true), ("-t ext4 -b 1024 -O ^metadata_csum", false)]
    {
        let small = Small::new(variant(args));
        let inode = small.inode("\"/short link\"");
        let counted = small.with(|bytes| put(bytes, inode + 0x1C, &40u32.to_le_bytes()));
        let image = memory(&counted);
        let volume = block_on(Volume::open(&image)).unwrap();
        let link = resolve(&volume, &image, b"short link");
        let target = link.and_then(|link| block_on(volume.read_link(&image, &link.unwrap())));
        match good {
            true => assert_eq!(target, Ok(b"tiny".to_vec())),
            false => assert!(matches!(target, Err(Error::Corrupt { .. })), "{target:?}"),
        }
        // More bytes than the size says.
        let longer = small.with(|bytes| put(bytes, inode + 4, &3u32.to_le_bytes()));
        refused(&longer, "short link", "a target of more than its 3 bytes", inode);
    }
}

#[test]
fn sizes_that_cannot_be_mapped() {
    if !ready("sizes_that_cannot_be_mapped") {
        return;
    }
    let sized = |small: &Small, size: u64| {
        let inode = small.inode("/plain");
        small.with(|bytes| {
            put(bytes, inode + 4, &(size as u32).to_le_bytes());
            put(bytes, inode + 0x6C, &((size >> 32) as u32).to_le_bytes());
        })
    };
    for (variant, largest) in [
        ("-t ext4 -b 4096 -O ^metadata_csum", ((1u64 << 32) - 1) << 12),
        ("-t ext4 -b 1024 -O ^metadata_csum", ((1u64 << 32) - 1) << 10),
        ("-t ext4 -b 4096 -O ^extent,^64bit,^metadata_csum", (12 + 1024 + (1 << 20) + (1 << 30)) << 12),
        ("-t ext2 -b 1024", (12 + 256 + (1 << 16) + (1 << 24)) << 10),
        ("-t ext4 -b 4096 -O ^huge_file,^metadata_csum", ((1u64 << 29) - 1) << 12),
    ] {
        let small = Small::new(Variant { name: "sized", args: variant, after: "" });
        let (inode, places) =
            ask(&sized(&small, largest), "plain").unwrap_or_else(|e| panic!("{variant}: {e}"));
        assert_eq!(inode.size, largest);
        assert!(
            places.len() < 100 && places.last() == Some(&RunPlace::Zeros),
            "{variant}: {} runs",
            places.len()
        );
        for size in [largest + 1, 1 << 62] {
            refused(&sized(&small, size), "plain", "can be mapped", small.inode("/plain"));
        }
    }
}

#[test]
fn names_that_are_none() {
    if !ready("names_that_are_none") {
        return;
    }
    let small = Small::named("ext4-nocsum");
    let listed = |bytes: &[u8]| listed(bytes, "");
    assert!(listed(&small.bytes).is_ok());
    let at = small.bytes.windows(9).position(|w| w == b"neighbour").unwrap();
    for (name, what) in [(&b"neigh/our"[..], "slash"), (b"neighb\0ur", "NUL")] {
        not_listed(&small.with(|bytes| put(bytes, at, name)), "", what);
    }
    // Shortened to one or two dots: the directory's own names, at another place.
    for dots in [&b"."[..], b".."] {
        let bytes = small.with(|bytes| {
            bytes[at - 2] = dots.len() as u8;
            put(bytes, at, dots);
        });
        not_listed(&bytes, "", "out of its place");
    }
}

#[test]
fn flags_that_no_inode_has() {
    if !ready("flags_that_no_inode_has") {
        return;
    }
    const CASEFOLD: u32 = 0x4000_0000;
    for name in ["ext4-nocsum", "ext2-1k"] {
        let small = Small::named(name);
        let flagged = |path: &str, flags: u32| {
            let at = small.inode(path) + 0x20;
            let old = small.word(at) as u32;
            small.with(|bytes| put(bytes, at, &(old | flags).to_le_bytes()))
        };
        for path in ["plain", "short link", "a"] {
            let inode = small.inode(&format!("\"/{path}\""));
            refused(&flagged(&format!("\"/{path}\""), CASEFOLD), path, "casefolding", inode);
        }
        for (path, flag) in [("short link", 0x10), ("long link", 0x20)] {
            let quoted = format!("\"/{path}\"");
            refused(&flagged(&quoted, flag), path, "immutable", small.inode(&quoted));
        }
        // As chattr sets them.
        assert!(ask(&flagged("/plain", 0x30), "plain").is_ok());
    }
}

#[test]
fn an_index_that_the_volume_does_not_know() {
    if !ready("an_index_that_the_volume_does_not_know") {
        return;
    }
    // Without checksums it is passed over, as empty entries.
    for (args, refuses) in [("-t ext4 -O ^dir_index", true), ("-t ext4 -O ^dir_index,^metadata_csum", false)]
    {
        let small = Small::new(Variant { name: "no-index", args, after: "" });
        let image = small.dir.path().join("image");
        assert_eq!(listed(&small.bytes, "a"), Ok(vec![b"b".to_vec()]), "{args}");
        // debugfs makes the inode's checksum right.
        run("debugfs", &["-w", "-R", "sif /a flags 0x81000", image.to_str().unwrap()]).unwrap();
        let bytes = std::fs::read(&image).unwrap();
        match refuses {
            true => refused(&bytes, "a", "an index on a volume without that feature", small.inode("/a")),
            false => assert_eq!(listed(&bytes, "a"), Ok(vec![b"b".to_vec()])),
        }
    }
}

#[test]
fn blocks_that_are_the_file_system_s_own() {
    if !ready("blocks_that_are_the_file_system_s_own") {
        return;
    }
    // Room for descriptors of a larger volume, behind the present ones.
    for name in ["ext2-1k", "ext4-nocsum"] {
        let small = Small::named(name);
        let kept = small.half(1024 + 0xCE);
        let last = 1024 / small.block + 1 + kept;
        assert!(kept > 0, "{name}: the volume can grow");
        let (inode, comb) = (small.inode("/plain"), small.inode("/comb"));
        let map = inode + 0x28;
        let extents = small.word(inode + 0x20) & 0x8_0000 != 0;
        for block in [last, last + 1] {
            let word = (block as u32).to_le_bytes();
            let bytes = small.with(|bytes| put(bytes, map + if extents { 12 + 8 } else { 4 }, &word));
            // The block behind them is the first bitmap, which its descriptor tells.
            match block == last {
                true => refused(&bytes, "plain", &format!("block {block}"), inode),
                false => assert!(ask(&bytes, "plain").is_ok(), "{name}: block {block}"),
            }
        }
        if extents {
            continue;
        }
        // Of a block of pointers, one that nobody asks for.
        let indirect = small.word(comb + 0x28 + 48) * small.block;
        let bytes = small.with(|bytes| put(bytes, indirect + small.block - 4, &(last as u32).to_le_bytes()));
        refused(&bytes, "comb", "belongs to the file system", indirect);
        // More of them than one block of pointers names, with which the kernel does not mount it.
        let many = small.with(|bytes| put(bytes, 1024 + 0xCE, &(small.block as u16 / 4 + 1).to_le_bytes()));
        let opened = block_on(Volume::open(&memory(&many))).map(drop);
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
    }
    // Groups 1 and 31 of 32 hold a copy of their descriptors, which no superblock precedes in 31.
    let args = "-t ext4 -b 1024 -O meta_bg,^resize_inode,^metadata_csum,^flex_bg -g 256";
    let small = Small::new(Variant { name: "meta-bg", args, after: "" });
    let at = small.inode("/plain") + 0x28 + 12 + 8;
    let own = |group: usize| (1 + group * 256) as u32;
    for (group, reserved) in [(31, true), (30, false), (2, false), (1, true)] {
        let bytes = small.with(|bytes| put(bytes, at, &own(group).to_le_bytes()));
        match reserved {
            true => refused(&bytes, "plain", &format!("block {}", own(group)), small.inode("/plain")),
            false => assert!(ask(&bytes, "plain").is_ok(), "group {group}"),
        }
    }
}

#[test]
fn directories_whose_own_entries_are_damaged() {
    if !ready("directories_whose_own_entries_are_damaged") {
        return;
    }
    let small = Small::named("ext4-nocsum");
    let inode = small.inode("/a/b");
    let block = small.word(inode + 0x28 + 12 + 8) * small.block;
    assert_eq!(listed(&small.bytes, "a/b"), Ok(vec![b"c".to_vec()]));
    assert_eq!(&small.bytes[block + 20..block + 22], b"..");
    // A parent that is no inode: the kernel passes the rest of the block over.
    let parent = small.with(|bytes| put(bytes, block + 12, &u32::MAX.to_le_bytes()));
    not_listed(&parent, "a/b", "an entry names inode");
    // A free entry whose name is longer than its record.
    let free = small.with(|bytes| {
        put(bytes, block + 24, &[0, 0, 0, 0, 12, 0, 9]);
    });
    not_listed(&free, "a/b", "name reaches past");
    for (at, what) in [(8, b"/"), (20, b"L")] {
        let renamed = small.with(|bytes| put(bytes, block + at, what));
        not_listed(&renamed, "a/b", "itself and its parent");
        refused(&renamed, "a/b/c", "itself and its parent", block);
    }
    // Its block, as if it were its second.
    let hole = small.with(|bytes| put(bytes, inode + 0x28 + 12, &1u32.to_le_bytes()));
    let longer = |bytes: &mut [u8]| put(bytes, inode + 4, &(2 * small.block as u32).to_le_bytes());
    for bytes in [hole.clone(), {
        let mut hole = hole;
        longer(&mut hole);
        hole
    }] {
        not_listed(&bytes, "a/b", "its first block is missing");
        refused(&bytes, "a/b/c", "its first block is missing", inode);
    }
}

#[test]
fn what_lies_before_the_first_index_and_past_the_last_leaf() {
    if !ready("what_lies_before_the_first_index_and_past_the_last_leaf") {
        return;
    }
    let small = Small::named("ext4-nocsum");
    let root = small.inode("/comb") + 0x28;
    let indexes = small.half(root + 2);
    let leaf = |nr: usize| small.word(root + 12 + nr * 12 + 4) * small.block;
    assert!(indexes >= 2);
    // One index is left, which begins later than its leaf: of what is before it, too, the leaf is asked.
    let later = small.with(|bytes| {
        put(bytes, root + 2, &1u16.to_le_bytes());
        put(bytes, root + 12, &0x2F_0000u32.to_le_bytes());
    });
    refused(&later, "comb", "by its parent at", leaf(0));
    // A leaf's last extent where no other follows it, and beyond what the next index maps.
    let last = leaf(0) + 12 * small.half(leaf(0) + 2);
    let far = small.with(|bytes| bytes[last + 2] = 4);
    refused(&far, "comb", "past its node", leaf(0));
}

#[test]
fn attributes_that_are_none() {
    if !ready("attributes_that_are_none") {
        return;
    }
    let small = Small::named("ext4-inline-nocsum");
    let path = "rather small";
    let inode = small.inode("\"/rather small\"");
    let entry = inode + 128 + small.half(inode + 0x80) + 4;
    assert_eq!(&small.bytes[entry + 16..entry + 20], b"data");
    assert!(ask(&small.bytes, path).is_ok());
    for (at, bytes, what) in [
        (0, &[0xAF][..], "cut short"),
        (4, &[1, 0, 0, 0], "in an inode, on a volume without"),
        (11, &[1], "longer than any"),
        (17, &[0], "has a NUL"),
        (2, &[0xE8, 0], "lies outside"),
    ] {
        let damaged = small.with(|volume| put(volume, entry + at, bytes));
        refused(&damaged, path, what, inode);
        // Also where nobody asks for an attribute.
        let plain = small.with(|volume| {
            volume[inode + 0x23] &= !0x10;
            volume[inode + 0x22] &= !8;
            put(volume, inode + 0x28, &[0; 60]);
            put(volume, entry + at, bytes);
        });
        refused(&plain, path, what, inode);
    }
}
