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
        "label: dos\nstart=1MiB,size=4MiB,type=83\nstart=6MiB,size=2MiB,type=82\nstart=10MiB,size=40MiB,type=5\n\
         start=52MiB,size=5MiB,type=83,bootable\nstart=12MiB,size=3MiB\nstart=20MiB,size=7MiB\nstart=30MiB,size=1MiB\n",
    );
    let all = read(&bytes).unwrap();
    let expected = [(1, 1, 4), (2, 6, 2), (4, 52, 5), (5, 12, 3), (6, 20, 7), (7, 30, 1)];
    assert_eq!(places(&all), expected);
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
    let bytes = table("label: gpt\nstart=1MiB,size=4MiB,name=\"größe\"\nstart=8MiB,size=16MiB,type=swap\n");
    let all = read(&bytes).unwrap();
    assert_eq!(places(&all), [(1, 1, 4), (2, 8, 16)]);
    assert_eq!(all[0].name, "größe");
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
