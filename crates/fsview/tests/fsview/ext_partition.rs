//! Partition tables that sfdisk writes, and what hostile ones get.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nearside_conformance::needs;
use nearside_conformance::view::{Image, block_on};
use nearside_fsview::Error;
use nearside_fsview::partition::{Partition, PartitionKind, partitions};

const LEN: usize = 64 << 20;

fn table(script: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(LEN as u64).unwrap();
    let mut child = Command::new(needs::tool("sfdisk").unwrap())
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
    std::fs::read(file.path()).unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Partition>, Error> {
    block_on(partitions(&Image::Memory(Arc::from(bytes))))
}

fn places(all: &[Partition]) -> Vec<(u32, u64, u64)> {
    all.iter().map(|p| (p.number, p.offset >> 20, p.len >> 20)).collect()
}

#[test]
fn an_mbr_with_logical_partitions() {
    if !needs::tools("an_mbr_with_logical_partitions", &["sfdisk"]) {
        return;
    }
    let bytes = table(
        "label: dos\nlabel-id: 0x0badcafe\nstart=1MiB,size=4MiB,type=83\nstart=6MiB,size=2MiB,type=82\nstart=10MiB,size=40MiB,type=5\n\
         start=52MiB,size=5MiB,type=83,bootable\nstart=12MiB,size=3MiB\nstart=20MiB,size=7MiB\nstart=30MiB,size=1MiB\n",
    );
    let all = read(&bytes).unwrap();
    let expected = [(1, 1, 4), (2, 6, 2), (4, 52, 5), (5, 12, 3), (6, 20, 7), (7, 30, 1)];
    assert_eq!(places(&all), expected);
    assert_eq!((all[0].uuid.as_str(), all[5].uuid.as_str()), ("0badcafe-01", "0badcafe-07"));
    assert_eq!(all[1].kind, PartitionKind::Mbr(0x82));
    assert_eq!(all[1].kind.to_string(), "0x82");

    // The first logical table leads back to itself.
    let mut looping = bytes.clone();
    let first = 10 << 20;
    looping[first + 446 + 16 + 8..first + 446 + 16 + 12].fill(0);
    assert!(read(&looping).unwrap_err().to_string().contains("loop"));
    let mut unmarked = bytes.clone();
    unmarked[first + 510] = 0;
    assert!(read(&unmarked).unwrap_err().to_string().contains("mark"));
    let mut beyond = bytes;
    beyond[446 + 12..446 + 16].fill(0xFF);
    assert!(read(&beyond).unwrap_err().to_string().contains("partition 1"));
}

#[test]
fn a_gpt_and_its_backup() {
    if !needs::tools("a_gpt_and_its_backup", &["sfdisk"]) {
        return;
    }
    const UUID: &str = "6e9f3f0a-9b1c-4f6e-8d1b-0123456789ab";
    let first = format!("start=1MiB,size=4MiB,name=\"größe\",uuid={UUID}");
    let bytes = table(&format!("label: gpt\n{first}\nstart=8MiB,size=16MiB,type=swap\n"));
    let all = read(&bytes).unwrap();
    assert_eq!(places(&all), [(1, 1, 4), (2, 8, 16)]);
    assert_eq!((all[0].name.as_str(), all[0].uuid.as_str()), ("größe", UUID));
    assert_eq!(all[0].kind.to_string(), "0FC63DAF-8483-4772-8E79-3D69D8477DE4");
    let mut header = bytes.clone();
    header[512 + 60] ^= 1;
    assert_eq!(read(&header).unwrap(), all, "by the backup");
    let mut entries = bytes.clone();
    entries[1024 + 70] ^= 1;
    assert_eq!(read(&entries).unwrap(), all, "by the backup");
    header[LEN - 512 + 60] ^= 1;
    assert!(read(&header).unwrap_err().to_string().contains("checksum"));
    header[512..1024].fill(0);
    header[LEN - 512..].fill(0);
    assert!(read(&header).unwrap_err().to_string().contains("no GPT header"));
}

/// Types by sfdisk, as a table has them and by name.
fn types(label: &str) -> Vec<(String, String)> {
    let mut sfdisk = Command::new(needs::tool("sfdisk").unwrap());
    let listed = sfdisk.env("LC_ALL", "C").args(["--list-types", "--label", label]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let lines = listed.lines().filter_map(|line| line.trim_start().split_once("  "));
    lines.map(|(kind, name)| (kind.to_owned(), name.trim_end().to_owned())).collect()
}

#[test]
fn types_have_the_names_of_fdisk() {
    if !needs::tools("types_have_the_names_of_fdisk", &["sfdisk"]) {
        return;
    }
    let hex = |text: &str| u8::from_str_radix(text, 16).ok();
    // The first three numbers of a GUID have their lowest byte first.
    let guid = |text: &str| {
        let digits = text.replace('-', "");
        let byte = |at: usize| digits.get(2 * at..2 * at + 2).and_then(hex);
        let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        let bytes: Vec<u8> = order.into_iter().filter_map(byte).collect();
        Some(PartitionKind::Gpt(bytes.try_into().ok()?))
    };
    let named = |label: &str, kind: &dyn Fn(&str) -> Option<PartitionKind>| {
        let all = types(label);
        let known = all.iter().filter_map(|(text, name)| Some((kind(text)?.name()?, name)));
        known.inspect(|(ours, theirs)| assert_eq!(ours, theirs)).count()
    };
    assert_eq!(named("dos", &|text| hex(text).map(PartitionKind::Mbr)), 9);
    assert_eq!(named("gpt", &guid), 15);
    assert_eq!([PartitionKind::Mbr(0), PartitionKind::Gpt([0; 16])].map(PartitionKind::name), [None; 2]);
}

#[test]
fn no_table_is_no_partition() {
    for len in [0, 1, 511, 512, 4096, 5000] {
        assert_eq!(read(&vec![0; len]), Ok(Vec::new()));
    }
    // A boot sector's code where a table would be.
    let mut sector = vec![0x90; 4096];
    sector[510..512].copy_from_slice(&[0x55, 0xAA]);
    assert_eq!(read(&sector), Ok(Vec::new()));
    sector[..510].fill(0);
    assert_eq!(read(&sector), Ok(Vec::new()));
}

/// The information block that Linux 6.1 writes for a namespace of so many pages of data from `at` on; then
/// `change` is done to it, and its sum is right again.
fn information(signature: &[u8; 16], at: u64, pages: u64, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0u8; 4096];
    block[..16].copy_from_slice(signature);
    block[52..56].copy_from_slice(&[1, 0, 4, 0]);
    block[56..64].copy_from_slice(&at.to_le_bytes());
    block[64..72].copy_from_slice(&pages.to_le_bytes());
    block[72] = 1;
    block[84..88].copy_from_slice(&(2u32 << 20).to_le_bytes());
    block[88..94].copy_from_slice(&[0, 16, 0, 0, 64, 0]);
    change(&mut block);
    let (mut low, mut high) = (0u32, 0u64);
    for word in block.chunks(4) {
        low = low.wrapping_add(u32::from_le_bytes(word.try_into().unwrap()));
        high = high.wrapping_add(low.into());
    }
    block[4088..].copy_from_slice(&(high << 32 | u64::from(low)).to_le_bytes());
    block
}

const FSDAX: &[u8; 16] = b"NVDIMM_PFN_INFO\0";

#[test]
fn the_data_of_a_namespace_of_persistent_memory() {
    for (signature, kind, name) in
        [(FSDAX, PartitionKind::Fsdax, "fsdax"), (b"NVDIMM_DAX_INFO\0", PartitionKind::Devdax, "devdax")]
    {
        let with = |change: &dyn Fn(&mut [u8])| {
            let mut drive = vec![0u8; 8 << 20];
            drive[4096..8192].copy_from_slice(&information(signature, 2 << 20, 1024, change));
            read(&drive)
        };
        let all = with(&|_| ()).unwrap();
        assert_eq!(places(&all), [(1, 2, 4)]);
        assert_eq!((all[0].kind, all[0].kind.to_string().as_str()), (kind, name));
        // Data are counted from behind padding, which the first blocks had no room for.
        let padded = |block: &mut [u8]| block[76..80].copy_from_slice(&(1u32 << 20).to_le_bytes());
        assert_eq!(places(&with(&padded).unwrap()), [(1, 3, 4)]);
        let old = |block: &mut [u8]| {
            padded(block);
            block[54] = 0;
        };
        assert_eq!(places(&with(&old).unwrap()), [(1, 2, 4)]);
        let large_pages = |block: &mut [u8]| block[88..92].copy_from_slice(&(16u32 << 10).to_le_bytes());
        assert!(with(&large_pages).unwrap_err().to_string().contains("partition 1: 16777216 bytes"));
        // A mode that there is not.
        assert_eq!(with(&|block| block[72] = 3), Ok(Vec::new()));
        let mut drive = vec![0u8; 8 << 20];
        drive[4096..8192].copy_from_slice(&information(signature, 2 << 20, 1024, |_| ()));
        drive[4096 + 64] ^= 1;
        assert_eq!(read(&drive), Ok(Vec::new()), "its sum does not match");
    }
}

/// A table that is in use is not masked by a block that was there before it, nor a namespace by the table
/// that its block was written over.
#[test]
fn of_a_table_and_an_information_block_the_newer_counts() {
    if !needs::tools("of_a_table_and_an_information_block_the_newer_counts", &["sfdisk"]) {
        return;
    }
    let block = information(FSDAX, 2 << 20, 1024, |_| ());
    let with_block = |mut drive: Vec<u8>| {
        drive[4096..8192].copy_from_slice(&block);
        drive
    };
    let all = read(&with_block(table("label: dos\nstart=1MiB,size=4MiB,type=83\n"))).unwrap();
    assert_eq!((places(&all), all[0].kind), (vec![(1, 1, 4)], PartitionKind::Mbr(0x83)));
    let none = read(&with_block(table("label: dos\n"))).unwrap();
    assert_eq!((places(&none), none[0].kind), (vec![(1, 2, 4)], PartitionKind::Fsdax));
    // Entries of a GPT lie where a block does, unless they are few.
    let newer = read(&with_block(table("label: gpt\nstart=1MiB,size=4MiB\n"))).unwrap();
    assert_eq!((places(&newer), newer[0].kind), (vec![(1, 2, 4)], PartitionKind::Fsdax));
    let few = table("label: gpt\ntable-length: 16\nstart=1MiB,size=4MiB\n");
    assert!(matches!(read(&with_block(few)).unwrap()[0].kind, PartitionKind::Gpt(_)));
}
