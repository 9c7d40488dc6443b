//! Damaged volumes: a flipped bit is found or does not matter, hostile structures are refused by name,
//! nothing loops.

use std::collections::BTreeSet;
use std::path::Path;

use crate::ext_images::noting::Noting;
use crate::ext_images::{VARIANTS, Variant, make, plant_small, run};
use nearside_conformance::explore::explore;
use nearside_conformance::needs;
use nearside_conformance::view::{Image, Tree, block_on, differences, read, resolve};
use nearside_fsview::{Error, RunPlace, Volume};
use nearside_random::Rng;

const TOOLS: &[&str] = &["mke2fs", "tune2fs", "debugfs", "e2fsck"];

fn variant(name: &str) -> Variant {
    *VARIANTS.iter().find(|v| v.name == name).unwrap()
}

/// A small volume with an indexed directory, an extent tree with nodes, inline or block ACLs as the variant
/// has them.
fn small(dir: &Path, name: &str) -> Vec<u8> {
    let from = dir.join(format!("from-{name}"));
    std::fs::create_dir(&from).unwrap();
    plant_small(&from).unwrap();
    let image = dir.join(name);
    assert!(make(&variant(name), &image, 8, Some(&from)).unwrap());
    let _ = run("e2fsck", &["-fyD", image.to_str().unwrap()]); // exits 1 where it changed something
    std::fs::read(&image).unwrap()
}

fn memory(bytes: &[u8]) -> Image {
    Image::Memory(bytes.into())
}

fn tree(image: &Image) -> Result<Tree, String> {
    let volume = block_on(Volume::open(image)).map_err(|e| e.to_string())?;
    read(&volume, image).map_err(|e| e.to_string())
}

fn asked(bytes: &[u8]) -> Vec<(u64, u32)> {
    let image = memory(bytes);
    let source = Noting::new(&image);
    let met = block_on(explore(&source));
    assert!(met.files > 100, "{met:?}");
    BTreeSet::from_iter(source.asked.into_inner()).into_iter().collect()
}

#[test]
fn with_checksums_a_flipped_bit_is_found_or_does_not_matter() {
    let Some(dir) = needs::folder("with_checksums_a_flipped_bit_is_found_or_does_not_matter", TOOLS) else {
        return;
    };
    for name in ["ext4-1k", "ext4-inline-1k-512", "ext4-seed"] {
        let mut bytes = small(dir.path(), name);
        let whole = tree(&memory(&bytes)).unwrap();
        let asked = asked(&bytes);
        let mut random = Rng(7);
        let mut found = 0;
        for nr in 0..160 {
            let (block, len) = asked[nr % asked.len()];
            let at = (block + random.below(u64::from(len))) as usize;
            let bit = 1u8 << random.below(8);
            bytes[at] ^= bit;
            match tree(&memory(&bytes)) {
                Err(_) => found += 1,
                // A link's target in a block of its own is data, and has no checksum.
                Ok(now) => {
                    let changed = differences(&now, &whole, &|node| node.target = None);
                    assert!(changed.is_empty(), "{name}: bit {bit} of byte {at}: {}", changed.join("\n"));
                }
            }
            bytes[at] ^= bit;
        }
        assert!(found > 20, "{name}: {found} found");
    }
}

#[test]
fn damage_never_panics_and_always_ends() {
    let Some(dir) = needs::folder("damage_never_panics_and_always_ends", TOOLS) else { return };
    for (seed, name) in
        ["ext4-nocsum", "ext2-1k", "ext4-inline-nocsum", "ext4-noextent", "ext4-4k"].iter().enumerate()
    {
        let clean = small(dir.path(), name);
        let asked = asked(&clean);
        let mut random = Rng(seed as u64 + 1000);
        let mut errors = 0;
        for _ in 0..150 {
            let mut bytes = clean.clone();
            for _ in 0..random.below(40) + 1 {
                let (block, len) = asked[random.below(asked.len() as u64) as usize];
                let at = (block + random.below(u64::from(len))) as usize;
                bytes[at] = match random.below(4) {
                    0 => 0,
                    1 => 0xFF,
                    2 => bytes[at] ^ (1 << random.below(8)),
                    _ => random.below(256) as u8,
                };
            }
            errors += block_on(explore(&memory(&bytes))).errors;
        }
        assert!(errors > 0, "{name}");
    }
}

#[test]
fn a_volume_cut_short_is_refused() {
    let Some(dir) = needs::folder("a_volume_cut_short_is_refused", TOOLS) else { return };
    let bytes = small(dir.path(), "ext4-1k");
    for len in [0, 1, 1023, 1024, 1080, 2047] {
        assert_eq!(block_on(Volume::open(&memory(&bytes[..len]))).err(), Some(Error::NoFileSystem), "{len}");
    }
    for len in [2048, 4096, bytes.len() - 1] {
        let error = block_on(Volume::open(&memory(&bytes[..len]))).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { what, at: 1024 } if what.contains("the volume has")),
            "{error}"
        );
    }
}

/// The byte at which debugfs says that an inode lies.
fn inode_at(image: &Path, path: &str, block: u64) -> usize {
    let said = run("debugfs", &["-R", &format!("imap {path}"), image.to_str().unwrap()]).unwrap();
    let said = String::from_utf8(said).unwrap();
    let numbers: Vec<_> = said.split("at block ").nth(1).unwrap().split(", offset 0x").collect();
    (numbers[0].trim().parse::<u64>().unwrap() * block + u64::from_str_radix(numbers[1].trim(), 16).unwrap())
        as usize
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn first_run(bytes: &[u8], path: &str) -> Result<Option<RunPlace>, Error> {
    let image = memory(bytes);
    let volume = block_on(Volume::open(&image))?;
    let inode = resolve(&volume, &image, path.as_bytes())?.unwrap();
    Ok(block_on(volume.map(&image, &inode, 0))?.map(|run| run.place))
}

#[test]
fn hostile_extents_are_refused_by_name() {
    let Some(dir) = needs::folder("hostile_extents_are_refused_by_name", TOOLS) else { return };
    let clean = small(dir.path(), "ext4-nocsum");
    let block = u64::from(block_on(Volume::open(&memory(&clean))).unwrap().info().block_size);
    let at = inode_at(&dir.path().join("ext4-nocsum"), "/plain", block);
    assert!(matches!(first_run(&clean, "plain"), Ok(Some(RunPlace::Volume(_)))));
    let refused = |bytes: &[u8], with: &str| {
        let error = first_run(bytes, "plain").unwrap_err();
        assert!(error.to_string().contains(with) && error.to_string().contains("inode"), "{error}");
    };

    let mut beyond = clean.clone();
    put(&mut beyond, at + 0x28 + 12 + 8, &0x7FFF_FFFFu32.to_le_bytes());
    refused(&beyond, "of the volume");
    let mut metadata = clean.clone();
    put(&mut metadata, at + 0x28 + 12 + 8, &0u32.to_le_bytes());
    refused(&metadata, "at block 0");

    // A node that leads to itself, at the block of the file's own data.
    let mut loops = clean.clone();
    let data = u32::from_le_bytes(clean[at + 0x28 + 20..at + 0x28 + 24].try_into().unwrap());
    let node = |depth: u16, max: u16| {
        let mut node = Vec::new();
        for field in [0xF30A, 1, max, depth, 0, 0, 0, 0] {
            node.extend(field.to_le_bytes());
        }
        node.extend(data.to_le_bytes());
        node.extend([0; 4]);
        node
    };
    put(&mut loops, at + 0x28, &node(3, 4));
    put(&mut loops, (u64::from(data) * block) as usize, &node(2, 80));
    refused(&loops, "node of depth 2");
    put(&mut loops, at + 0x28, &node(9, 4));
    refused(&loops, "node of depth 9");
}

#[test]
fn a_directory_within_itself_is_seen() {
    if !needs::tools("a_directory_within_itself_is_seen", TOOLS) {
        return;
    }
    // In itself, and in a directory that is in it.
    for (outer, says) in [("/indexed", "an entry names the directory itself"), ("/", "already seen")] {
        let dir = tempfile::tempdir().unwrap();
        small(dir.path(), "ext4-1k");
        let image = dir.path().join("ext4-1k");
        let link = format!("ln {outer} /indexed/again");
        run("debugfs", &["-w", "-R", &link, image.to_str().unwrap()]).unwrap();
        let found = tree(&Image::open(&image).unwrap()).unwrap_err();
        assert!(found.contains(says), "{found}");
        // The exploration ends all the same; of a directory that names itself nothing is believed.
        let files = block_on(explore(&Image::open(&image).unwrap())).files;
        assert!(files > if outer == "/" { 100 } else { 10 }, "{files}");
    }
}

#[test]
fn features_that_are_not_understood_are_refused_by_name() {
    let Some(dir) = needs::folder("features_that_are_not_understood_are_refused_by_name", TOOLS) else {
        return;
    };
    let clean = small(dir.path(), "ext4-nocsum");
    let with = |at: usize, bit: u32| {
        let mut bytes = clean.clone();
        let word = u32::from_le_bytes(clean[at..at + 4].try_into().unwrap()) | bit;
        put(&mut bytes, at, &word.to_le_bytes());
        block_on(Volume::open(&memory(&bytes))).map(|volume| volume.info().features.clone())
    };
    for (bit, name) in [
        (0x1, "compression"),
        (0x8, "journal_dev"),
        (0x1000, "dirdata"),
        (0x20, "FEATURE_I5"),
        (0x8000_0000, "FEATURE_I31"),
    ] {
        assert_eq!(with(1024 + 0x60, bit), Err(Error::Unsupported(name.into())));
    }
    assert!(with(1024 + 0x64, 0x4000_0000).unwrap().contains(&"FEATURE_R30".to_string()));
    assert!(with(1024 + 0x5C, 0x2000_0000).unwrap().contains(&"FEATURE_C29".to_string()));
    assert!(with(1024 + 0x60, 0x1_0000).unwrap().contains(&"encrypt".to_string()));
}

#[test]
fn an_encrypted_inode_is_refused_and_its_neighbours_are_not() {
    let Some(dir) = needs::folder("an_encrypted_inode_is_refused_and_its_neighbours_are_not", TOOLS) else {
        return;
    };
    let mut bytes = small(dir.path(), "ext4-nocsum");
    let image = dir.path().join("ext4-nocsum");
    let block = u64::from(block_on(Volume::open(&memory(&bytes))).unwrap().info().block_size);
    for path in ["/plain", "/indexed"] {
        let flags = inode_at(&image, path, block) + 0x20;
        bytes[flags + 1] |= 0x08;
    }
    assert!(
        matches!(first_run(&bytes, "plain"), Err(Error::Unsupported(what)) if what.starts_with("encrypt"))
    );
    assert!(matches!(first_run(&bytes, "neighbour"), Ok(Some(_))));
    let source = memory(&bytes);
    let volume = block_on(Volume::open(&source)).unwrap();
    let dir = resolve(&volume, &source, b"indexed").unwrap().unwrap();
    assert!(matches!(block_on(volume.lookup(&source, &dir, b"x")), Err(Error::Unsupported(_))));
}

#[test]
fn casefolded_directories_answer_exact_names_only() {
    let Some(dir) = needs::folder("casefolded_directories_answer_exact_names_only", TOOLS) else { return };
    small(dir.path(), "ext4-casefold");
    let image = dir.path().join("ext4-casefold");
    for (path, flags) in [("/indexed", "0x40081000"), ("/a", "0x40080000")] {
        run("debugfs", &["-w", "-R", &format!("sif {path} flags {flags}"), image.to_str().unwrap()]).unwrap();
    }
    let source = Image::open(&image).unwrap();
    let volume = block_on(Volume::open(&source)).unwrap();
    for (path, name) in [("indexed", "a name that is not so short 77"), ("a", "b")] {
        let dir = resolve(&volume, &source, path.as_bytes()).unwrap().unwrap();
        assert!(block_on(volume.lookup(&source, &dir, name.as_bytes())).unwrap().is_some());
        let miss = block_on(volume.lookup(&source, &dir, name.to_uppercase().as_bytes()));
        assert_eq!(miss, Err(Error::Unsupported("casefold".into())));
    }
}

/// An ACL that another inode holds is not understood, and so must not be taken for none.
#[test]
fn an_acl_in_another_inode_denies() {
    let Some(dir) = needs::folder("an_acl_in_another_inode_denies", TOOLS) else { return };
    let mut bytes = small(dir.path(), "ext4-nocsum");
    let image = dir.path().join("ext4-nocsum");
    let block = u64::from(block_on(Volume::open(&memory(&bytes))).unwrap().info().block_size);
    let at = inode_at(&image, "/plain", block);
    let extra = usize::from(u16::from_le_bytes([bytes[at + 0x80], bytes[at + 0x81]]));
    let area = at + 128 + extra;
    let mut entry = Vec::from(0xEA02_0000u32.to_le_bytes());
    entry.extend([0, 2, 0, 0]); // no name, index 2
    for field in [77u32, 28, 0, 0] {
        entry.extend(field.to_le_bytes());
    }
    put(&mut bytes, area, &entry);
    bytes[1024 + 0x61] |= 4; // ea_inode
    let source = memory(&bytes);
    let volume = block_on(Volume::open(&source)).unwrap();
    let inode = resolve(&volume, &source, b"plain").unwrap().unwrap();
    assert!(inode.may_have_acl);
    let said = block_on(volume.acl(&source, &inode)).unwrap_err().to_string();
    assert!(said.contains("ea_inode") && said.contains("77"), "{said}");
}

/// What would become far more bytes than the volume has is refused.
#[test]
fn attributes_do_not_grow_out_of_little() {
    let Some(dir) = needs::folder("attributes_do_not_grow_out_of_little", TOOLS) else { return };
    let mut bytes = small(dir.path(), "ext4-nocsum");
    let image = dir.path().join("ext4-nocsum");
    let block = u64::from(block_on(Volume::open(&memory(&bytes))).unwrap().info().block_size);
    let at = inode_at(&image, "/plain", block);
    let extra = usize::from(u16::from_le_bytes([bytes[at + 0x80], bytes[at + 0x81]]));
    bytes[1024 + 0x61] |= 4; // ea_inode
    // Names, where in the area a value is, in which inode, and how long.
    type Entries<'a> = &'a [(&'a str, u16, u32, u32)];
    let said = |entries: Entries| {
        let mut bytes = bytes.clone();
        let mut area = Vec::from(0xEA02_0000u32.to_le_bytes());
        for (name, offset, inode, size) in entries {
            area.extend([1, 1]); // one letter, index 1
            area.extend(offset.to_le_bytes());
            for field in [*inode, *size, 0] {
                area.extend(field.to_le_bytes());
            }
            area.extend([name.as_bytes()[0], 0, 0, 0]);
        }
        area.extend([0; 4]);
        put(&mut bytes, at + 128 + extra, &area);
        let source = memory(&bytes);
        let volume = block_on(Volume::open(&source)).unwrap();
        let inode = resolve(&volume, &source, b"plain").unwrap().unwrap();
        let said = block_on(volume.attributes(&source, &inode));
        said.map(|all| all.len()).map_err(|error| error.to_string())
    };
    assert_eq!(said(&[("a", 44, 0, 20), ("b", 64, 0, 28)]), Ok(2));
    for (entries, why) in [
        (&[("a", 44, 0, 40), ("b", 44, 0, 40)][..], "values overlap"),
        (&[("a", 44, 0, 20), ("a", 64, 0, 20)], "two attributes of one name"),
        (&[("a", 0, 77, 3 << 20), ("b", 0, 78, 2 << 20)], "more than 4 MiB"),
    ] {
        let said = said(entries).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}
