//! The write log beside QEMU's (block/blklogwrites.c): what QEMU wrote is read, and what was written here
//! QEMU reads when it appends to it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_conformance::needs;
use nearside_dma::IoBuffer;
use nearside_store::write_log::{ImageFile, LogReader, Logged, WriteLog};
use nearside_store::{Channel, Data, Dram, Operation, Store, Submitted, Token};

const BYTES: u64 = 1 << 20;

/// Does something to a file through QEMU's log; what it said.
fn qemu(disk: &Path, log: &Path, options: &str, commands: &[&str]) -> String {
    let image = format!(
        "driver=blklogwrites,file.driver=file,file.filename={},log.driver=file,log.filename={},{options}",
        disk.display(),
        log.display()
    );
    let mut qemu = Command::new("qemu-io");
    for command in commands {
        qemu.args(["-c", command]);
    }
    let output = qemu.args(["--image-opts", &image]).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !said.contains("rror"), "{said}");
    said
}

/// The entries' flags, first sectors and sectors.
fn shapes(log: &LogReader) -> Vec<(String, u64, u64)> {
    let all = log.entries().map(|entry| entry.unwrap());
    all.map(|entry| (entry.flags.to_string(), entry.sector, entry.sectors)).collect()
}

fn shape(flags: &str, sector: u64, sectors: u64) -> (String, u64, u64) {
    (flags.to_owned(), sector, sectors)
}

/// What a log makes of zeros.
fn made(log: &LogReader, path: &Path) -> Vec<u8> {
    let image =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    image.set_len(BYTES).unwrap();
    log.replay(0, log.count(), &mut ImageFile::new(image).unwrap()).unwrap();
    std::fs::read(path).unwrap()
}

const COMMANDS: &[&str] = &[
    "write -P 0x11 0 8k",
    "flush",
    "write -f -P 0x22 4k 8k",
    "write -z 64k 16k",
    "write -P 0x33 60k 32k",
    "discard 8k 4k",
    "flush",
    "write -P 0x44 1020k 4k",
];

#[test]
fn what_qemu_wrote_is_read() {
    if !needs::tools("what_qemu_wrote_is_read", &["qemu-io"]) {
        return;
    }
    for sector in [512, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let [disk, path, image] = ["disk", "log", "image"].map(|name| dir.path().join(name));
        std::fs::write(&disk, vec![0; BYTES as usize]).unwrap();
        std::fs::write(&path, "").unwrap();
        qemu(&disk, &path, &format!("log-sector-size={sector},discard=unmap"), COMMANDS);
        let log = LogReader::open(&path).unwrap();
        let unit = |bytes: u64| bytes / sector;
        let k = |flags, offset: u64, len: u64| shape(flags, unit(offset << 10), unit(len << 10));
        let shapes = shapes(&log);
        let mutations: Vec<_> = shapes.iter().filter(|(_, _, sectors)| *sectors > 0).cloned().collect();
        let all =
            [k("", 0, 8), k("", 4, 8), k("", 64, 16), k("", 60, 32), k("discard", 8, 4), k("", 1020, 4)];
        assert_eq!(mutations, all, "{sector}");
        // A file has no FUA: QEMU makes it a flush.
        let flushes = shapes.iter().filter(|shape| **shape == ("flush".into(), 0, 0)).count();
        assert!(flushes >= 3, "{shapes:?}");
        assert!(made(&log, &image) == std::fs::read(&disk).unwrap(), "{sector}");
    }
}

#[test]
fn qemu_appends_to_what_was_written_here() {
    if !needs::tools("qemu_appends_to_what_was_written_here", &["qemu-io"]) {
        return;
    }
    for block in [512u32, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let [disk, path, image] = ["disk", "log", "image"].map(|name| dir.path().join(name));
        let log = WriteLog::create(&path, block, BYTES).unwrap();
        let store = Logged::new(Dram::new(BYTES, block).unwrap(), log.clone()).unwrap();
        let mut channel = store.channel(Arc::default()).unwrap();
        let mut submit = |operation: Operation| {
            let len = operation.range().map_or(0, |(_, len)| len as usize);
            let mut buffer = IoBuffer::new(len).unwrap();
            buffer.fill(0x77);
            let data = match operation {
                Operation::Write { .. } | Operation::Read { .. } => Data::Owned(buffer),
                _ => Data::None,
            };
            let Submitted::Done(done) = channel.submit(operation, data, Token(1), Nanos(0)) else { panic!() };
            done.result.unwrap();
            done.buffer
        };
        submit(Operation::Write { offset: 0, len: 16384, fua: false });
        submit(Operation::Flush);
        submit(Operation::Deallocate { offset: 4096, len: 8192 });
        submit(Operation::WriteZeroes { offset: 12288, len: 4096, fua: true });
        log.mark(b"a mark");
        submit(Operation::Write { offset: 1 << 19, len: 8192, fua: true });
        let held = submit(Operation::Read { offset: 0, len: BYTES }).unwrap();
        let ours = shapes(&LogReader::open(&path).unwrap());
        std::fs::write(&disk, &*held).unwrap();
        qemu(&disk, &path, "log-append=on", &["write -P 0x55 32k 8k", "flush"]);
        let both = LogReader::open(&path).unwrap();
        let (after, unit) = (shapes(&both), u64::from(block));
        assert_eq!(after[..ours.len()], ours);
        assert_eq!(after[ours.len()], shape("", 32768 / unit, 8192 / unit), "{after:?}");
        assert!(made(&both, &image) == std::fs::read(&disk).unwrap());
    }
}
