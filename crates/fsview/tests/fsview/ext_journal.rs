//! Journals that debugfs wrote, and hostile ones: every field of their blocks changed. No view panics, walks
//! the log more than a few times, or shows what is neither at home nor committed.

use std::path::Path;

use crate::ext_images::noting::Noting;
use crate::ext_images::{Variant, make, run};
use nearside_conformance::needs;
use nearside_conformance::view::{Image, Tree, block_on, read, resolve};
use nearside_fsview::{Error, RunPlace, State, Volume};

const TOOLS: &[&str] = &["mke2fs", "debugfs"];
const BLOCK: usize = 1024;
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// A volume with a log of three transactions: two over /a's block, of which a revoke voids the first, and
/// /b's block, escaped, in the last.
struct Crashed {
    bytes: Vec<u8>,
    /// Byte of the volume at which each block of the journal lies.
    blocks: Vec<usize>,
    /// Byte of the volume at which each block of the journal lies that has the magic; its superblock first.
    headers: Vec<usize>,
}

fn crashed(dir: &Path, args: &'static str, open: &str) -> Crashed {
    let from = dir.join("from");
    std::fs::create_dir(&from).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(from.join(name), name.repeat(BLOCK)).unwrap();
    }
    let image = dir.join("image");
    let variant = Variant { name: "crashed", args, after: "" };
    assert!(make(&variant, &image, 4, Some(&from)).unwrap());
    let text = |command: &str| {
        let said = run("debugfs", &["-R", command, image.to_str().unwrap()]).unwrap();
        String::from_utf8(said).unwrap().trim().to_owned()
    };
    let file = |name: &str, fill: u8, head: &[u8]| {
        let mut bytes = vec![fill; BLOCK];
        bytes[..head.len()].copy_from_slice(head);
        std::fs::write(dir.join(name), bytes).unwrap();
        dir.join(name).display().to_string()
    };
    let (a, b, c) = (text("blocks /a"), text("blocks /b"), text("blocks /c"));
    let (first, second) = (file("1", b'1', b""), file("2", b'2', b""));
    let escaped = file("3", b'3', &MAGIC);
    let lines = [
        format!("jo {open}"),
        format!("jw -b {a} {first}"),
        format!("jw -b {c} {first}"),
        format!("jw -r {a}"),
        format!("jw -b {c} {second}"),
        format!("jw -b {b} {escaped}"),
        "jc".into(),
    ];
    std::fs::write(dir.join("commands"), lines.join("\n") + "\n").unwrap();
    run("debugfs", &["-w", "-f", dir.join("commands").to_str().unwrap(), image.to_str().unwrap()]).unwrap();
    let said = text("blocks <8>");
    let blocks: Vec<_> = said.split_whitespace().map(|nr| nr.parse::<usize>().unwrap() * BLOCK).collect();
    let bytes = std::fs::read(&image).unwrap();
    let headers: Vec<_> = blocks.iter().copied().filter(|at| bytes[*at..*at + 4] == MAGIC).collect();
    assert!(headers.len() > 8, "{headers:?}");
    // And with them those of a block map.
    assert!(blocks.len() >= 1024);
    Crashed { bytes, blocks, headers }
}

fn open(image: &Image, state: State) -> Result<Volume, Error> {
    block_on(Volume::open_as(image, state))
}

/// The first byte of a file and the fifth, by its mapping.
fn shows(bytes: &[u8], volume: &Volume, image: &Image, name: &str) -> ([u8; 4], u8) {
    let inode = resolve(volume, image, name.as_bytes()).unwrap().unwrap();
    let at = |from| match block_on(volume.map(image, &inode, from)).unwrap().unwrap().place {
        RunPlace::Volume(at) => at as usize,
        other => panic!("{other:?}"),
    };
    (bytes[at(0)..at(0) + 4].try_into().unwrap(), bytes[at(4)])
}

#[test]
fn copies_revokes_and_escapes() {
    for (args, open_with) in [
        ("-t ext4 -b 1024 -J size=1", "-c"),
        ("-t ext4 -b 1024 -J size=1", "-c -v 2"),
        ("-t ext4 -b 1024 -J size=1", ""),
        ("-t ext4 -b 1024 -J size=1 -O ^64bit,^metadata_csum", ""),
        ("-t ext3 -b 1024 -J size=1", ""),
    ] {
        let Some(dir) = needs::folder("copies_revokes_and_escapes", TOOLS) else { return };
        let Crashed { bytes, .. } = crashed(dir.path(), args, open_with);
        let image = Image::Memory(bytes.clone().into());
        let volume = open(&image, State::Recovered).unwrap();
        assert!(volume.info().recovery.transactions >= 4, "{:?}", volume.info().recovery);
        assert_eq!(shows(&bytes, &volume, &image, "a"), (*b"aaaa", b'a'), "revoked");
        assert_eq!(shows(&bytes, &volume, &image, "b"), (MAGIC, b'3'), "escaped");
        assert_eq!(shows(&bytes, &volume, &image, "c"), (*b"2222", b'2'), "the later one");
        let home = open(&image, State::Home).unwrap();
        assert!(home.info().needs_recovery && home.info().stale.is_some());
        assert_eq!(shows(&bytes, &home, &image, "b"), (*b"bbbb", b'b'));
    }
}

/// Who has made something of a block by its copy must hear of the revoke that a later commit brings.
#[test]
fn a_later_revoke_is_a_change() {
    let Some(dir) = needs::folder("a_later_revoke_is_a_change", TOOLS) else { return };
    let (from, image) = (dir.path().join("from"), dir.path().join("image"));
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("a"), "a".repeat(BLOCK)).unwrap();
    let variant = Variant { name: "revoked", args: "-t ext4 -b 1024 -J size=1", after: "" };
    assert!(make(&variant, &image, 4, Some(&from)).unwrap());
    let image_at = image.to_str().unwrap();
    let said = String::from_utf8(run("debugfs", &["-R", "blocks /a", image_at]).unwrap()).unwrap();
    let home: u64 = said.trim().parse().unwrap();
    let copy = dir.path().join("copy");
    std::fs::write(&copy, [b'1'; BLOCK]).unwrap();
    let log = |what: String| {
        let commands = dir.path().join("commands");
        std::fs::write(&commands, format!("jo\njw {what}\njc\n")).unwrap();
        run("debugfs", &["-w", "-f", commands.to_str().unwrap(), image_at]).unwrap();
        let bytes = std::fs::read(&image).unwrap();
        (Image::Memory(bytes.clone().into()), bytes)
    };
    let (before, bytes) = log(format!("-b {home} {}", copy.display()));
    let first = open(&before, State::Recovered).unwrap();
    assert_eq!(shows(&bytes, &first, &before, "a").1, b'1');
    let (after, bytes) = log(format!("-r {home}"));
    let second = block_on(Volume::open_after(&after, State::Recovered, Some(&first))).unwrap();
    assert_eq!(shows(&bytes, &second, &after, "a").1, b'a');
    let changed = block_on(second.changed_since(&first, &after)).unwrap();
    assert!(changed.contains(&(home * BLOCK as u64)), "{changed:?}");
}

/// Lets the journal's commits not wait for what they commit.
fn make_async(bytes: &mut [u8], superblock: usize) {
    bytes[superblock + 0x2B] |= 4;
    bytes[superblock + 0xFC..superblock + 0x100].fill(0);
    let sum = !crc32c::crc32c(&bytes[superblock..superblock + 1024]);
    bytes[superblock + 0xFC..superblock + 0x100].copy_from_slice(&sum.to_be_bytes());
}

/// A commit that came to the medium before a block that it commits (journal_async_commit): what was before it
/// is shown, and it is said that a mount refuses the volume.
#[test]
fn a_commit_that_lacks_a_block_is_said() {
    let Some(dir) = needs::folder("a_commit_that_lacks_a_block_is_said", TOOLS) else { return };
    let Crashed { mut bytes, blocks, headers } = crashed(dir.path(), "-t ext4 -b 1024 -J size=1", "-c");
    make_async(&mut bytes, headers[0]);
    let descriptors: Vec<usize> = (0..blocks.len() - 1)
        .filter(|nr| headers.contains(&blocks[*nr]) && bytes[blocks[*nr] + 7] == 1)
        .map(|nr| blocks[nr + 1])
        .collect();
    let [.., earlier, last] = descriptors[..] else { panic!("{descriptors:?}") };
    let is_said = |volume: &Volume| {
        let said: Vec<&String> =
            volume.info().warnings.iter().filter(|w| w.contains("lacks a block")).collect();
        let up_to = volume.info().recovery.up_to;
        assert!(said.iter().all(|said| said.contains(&format!("transaction {} is committed", up_to + 1))));
        said.len() == 1
    };
    let whole = Image::Memory(bytes.clone().into());
    let all = open(&whole, State::Recovered).unwrap();
    assert!(!is_said(&all));
    let mut torn = bytes.clone();
    torn[last + 77] ^= 1;
    let image = Image::Memory(torn.clone().into());
    let volume = open(&image, State::Recovered).unwrap();
    assert!(is_said(&volume), "{:?}", volume.info().warnings);
    assert_eq!(volume.info().recovery.transactions + 1, all.info().recovery.transactions);
    assert_eq!(shows(&torn, &volume, &image, "b"), (*b"bbbb", b'b'));
    assert_eq!(shows(&torn, &volume, &image, "c"), (*b"2222", b'2'));
    // Looked at again it is said again, until the block has come.
    let again = block_on(Volume::open_after(&image, State::Recovered, Some(&volume))).unwrap();
    assert!(is_said(&again));
    let come = block_on(Volume::open_after(&whole, State::Recovered, Some(&again))).unwrap();
    assert!(!is_said(&come));
    assert_eq!(shows(&bytes, &come, &whole, "b"), (MAGIC, b'3'));
    // One that others follow was not being written.
    torn[earlier + 77] ^= 1;
    torn[last + 77] ^= 1;
    let refused = open(&Image::Memory(torn.into()), State::Recovered).unwrap_err().to_string();
    assert!(refused.contains("is damaged, and not the last"), "{refused}");
}

/// Every byte of every block's header, tags and fields, to several values.
#[test]
fn damaged_journals_end_in_an_error_or_a_view() {
    for (args, open_with) in
        [("-t ext4 -b 1024 -J size=1", "-c"), ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum", "")]
    {
        let Some(dir) = needs::folder("damaged_journals_end_in_an_error_or_a_view", TOOLS) else { return };
        let Crashed { bytes, headers, .. } = crashed(dir.path(), args, open_with);
        let whole = tree(&Image::Memory(bytes.clone().into())).unwrap();
        let (mut errors, mut less, mut same) = (0, 0, 0);
        for at in &headers {
            // Of a superblock up to its checksum and behind it, of others what their tags and revokes take.
            let last = if at == &headers[0] { 0x104 } else { 72 };
            for byte in *at..at + last {
                for value in [0, 0xFF, bytes[byte] ^ 1, bytes[byte] ^ 0x80] {
                    if value == bytes[byte] {
                        continue;
                    }
                    let mut damaged = bytes.clone();
                    damaged[byte] = value;
                    let image = Image::Memory(damaged.into());
                    let noting = Noting::new(&image);
                    let opened = block_on(Volume::open(&noting));
                    // Each block of the log for its walk, for a revoke, for its mapping.
                    assert!(
                        noting.asked.borrow().len() < 4 * 1024 + 64,
                        "byte {byte}: {}",
                        noting.asked.borrow().len()
                    );
                    match opened.map(|_| tree(&image)) {
                        Err(Error::Corrupt { what, at }) => {
                            assert!(what.starts_with("journal: ") && at < bytes.len() as u64, "{what}");
                            errors += 1;
                        }
                        Err(Error::Unsupported(_)) | Ok(Err(_)) => errors += 1,
                        Err(other) => panic!("byte {byte}: {other}"),
                        Ok(Ok(tree)) if tree == whole => same += 1,
                        Ok(Ok(_)) => less += 1,
                    }
                }
            }
        }
        eprintln!("{args}: {errors} errors, {less} less, {same} the same");
        assert!(errors > 100 && less > 100, "{errors} errors, {less} less, {same} the same");
        if open_with == "-c" {
            assert!(errors > same, "{errors} errors, {less} less, {same} the same");
        }
    }
}

fn tree(image: &Image) -> Result<Tree, String> {
    let volume = open(image, State::Recovered).map_err(|e| e.to_string())?;
    read(&volume, image).map_err(|e| e.to_string())
}

/// A log of nothing but descriptors that carry the number that is due goes round and is refused.
#[test]
fn a_log_without_an_end() {
    let Some(dir) = needs::folder("a_log_without_an_end", TOOLS) else { return };
    let args = "-t ext4 -b 1024 -J size=1 -O ^metadata_csum";
    let Crashed { mut bytes, blocks, .. } = crashed(dir.path(), args, "");
    let first = blocks[1];
    let sequence: [u8; 4] = bytes[first + 8..first + 12].try_into().unwrap();
    for kind in [1u8, 5] {
        for at in blocks[1..].iter().copied() {
            bytes[at..at + BLOCK].fill(0xFF);
            bytes[at..at + 4].copy_from_slice(&MAGIC);
            bytes[at + 4..at + 8].copy_from_slice(&[0, 0, 0, kind]);
            bytes[at + 8..at + 12].copy_from_slice(&sequence);
            bytes[at + 12..at + 16].copy_from_slice(&[0, 0, 0, 16]);
        }
        let image = Image::Memory(bytes.clone().into());
        let said = open(&image, State::Recovered).unwrap_err().to_string();
        assert!(said.contains("journal: transaction") && said.contains("has no end"), "{said}");
    }
}

/// A journal on another device cannot be had; what lies at home can.
#[test]
fn an_external_journal_is_refused_by_its_uuid() {
    let Some(dir) = needs::folder("an_external_journal_is_refused_by_its_uuid", TOOLS) else { return };
    let args = "-t ext4 -b 1024 -J size=1 -O ^metadata_csum";
    let Crashed { mut bytes, .. } = crashed(dir.path(), args, "");
    bytes[1024 + 0xD0..1024 + 0xE0].fill(0xAB);
    bytes[1024 + 0xE0..1024 + 0xE8].copy_from_slice(&[0, 0, 0, 0, 5, 8, 0, 0]);
    let image = Image::Memory(bytes.into());
    let said = open(&image, State::Recovered).unwrap_err();
    assert!(matches!(&said, Error::Unsupported(what) if what.contains(&"ab".repeat(16))), "{said}");
    assert!(open(&image, State::Home).unwrap().info().needs_recovery);
}
