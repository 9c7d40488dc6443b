//! Disk images beside QEMU: what qemu-img and qemu-io made reads as qemu-img says, and what is refused says
//! what is wrong and where.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nearside_conformance::needs;
use nearside_conformance::store::Host;
use nearside_conformance::volume::{must, tool};
use nearside_dma::Span;
use nearside_random::Rng;
use nearside_store::{Data, FileOptions, Operation, Qcow2, Store, StoreError};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// A folder of images.
struct Folder(TempDir);

impl Folder {
    fn new(test: &str) -> Option<Folder> {
        // In memory: QEMU's tools wait for the disk.
        let has = needs::tools(test, &["qemu-img", "qemu-io"]);
        has.then(|| Folder(tempfile::tempdir_in("/dev/shm").unwrap()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A raw disk: what cannot be compressed, text, zeros and holes, by turns; `bytes` of it.
    fn raw(&self, name: &str, bytes: usize) -> Vec<u8> {
        let mut random = Rng(7);
        let mut disk = Vec::new();
        while disk.len() < bytes {
            let len = 512 * (1 + random.index(300));
            match random.index(4) {
                0 => disk.extend(random.bytes(len)),
                1 => disk.extend(vec![0; len]),
                _ => disk.extend(b"text that is much the same, ".iter().cycle().take(len)),
            }
        }
        disk.truncate(bytes);
        std::fs::write(self.path(name), &disk).unwrap();
        disk
    }

    /// `qemu-img` in the folder, with words that spaces divide.
    #[track_caller]
    fn qemu_img(&self, words: &str) {
        must(tool("qemu-img").args(words.split_whitespace()).current_dir(self.0.path()));
    }

    #[track_caller]
    fn qemu_io(&self, image: &str, commands: &[&str]) {
        let mut qemu = tool("qemu-io");
        for command in commands {
            qemu.args(["-c", command]);
        }
        let output = must(qemu.args(["-f", "qcow2", image]).current_dir(self.0.path()));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.contains("rror") && !said.contains("failed"), "{said}");
    }

    /// The disk as qemu-img reads it.
    #[track_caller]
    fn converted(&self, image: &str, words: &str) -> Vec<u8> {
        self.qemu_img(&format!("convert {words} -f qcow2 -O raw {image} converted"));
        std::fs::read(self.path("converted")).unwrap()
    }

    fn open(&self, image: &str) -> std::io::Result<Qcow2> {
        Qcow2::open(self.path(image), None, FileOptions::read())
    }

    /// What opening says.
    #[track_caller]
    fn refusal(&self, image: &str) -> String {
        self.open(image).unwrap_err().to_string()
    }

    /// Changes bytes of a file.
    fn patch(&self, name: &str, at: usize, bytes: &[u8]) {
        let mut all = std::fs::read(self.path(name)).unwrap();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(self.path(name), all).unwrap();
    }
}

/// Every byte of the disk, in reads of many sizes, into buffers of one piece and of several. What QEMU says
/// comes first: an image that is open here it does not open.
#[track_caller]
fn same(expected: &[u8], store: Qcow2) {
    let store = &store;
    assert_eq!(store.capacity() as usize, expected.len());
    let mut host = Host::new(store);
    let mut random = Rng(3);
    let mut at = 0;
    while at < expected.len() {
        let len = (512 << random.index(11)).min(expected.len() - at);
        let (offset, here) = (at as u64, &expected[at..at + len]);
        let differs = |read: &[u8]| read.iter().zip(here).position(|(a, b)| a != b).map(|n| at + n);
        assert_eq!(differs(&host.read(offset, len as u64).unwrap()), None);
        if random.index(4) == 0 {
            let first = 1 + random.index(len - 1);
            let spans: [Span; 2] = [host.span(5, first), host.span(first + 9, len - first)];
            let read = Operation::Read { offset, len: len as u64 };
            host.run(read, Data::Spans(&spans)).result.unwrap();
            let mut bytes = vec![0; len];
            let (a, b) = bytes.split_at_mut(first);
            host.memory.read(spans[0], a);
            host.memory.read(spans[1], b);
            assert_eq!(differs(&bytes), None);
        }
        at += len;
    }
    // Here and there, as a file system asks.
    for _ in 0..64 {
        let at = 512 * random.index(expected.len() / 512 - 8);
        assert_eq!(host.read(at as u64, 4096).unwrap()[..], expected[at..at + 4096], "{at}");
    }
}

#[test]
fn images_of_every_kind_read_as_the_raw_disk() {
    let Some(folder) = Folder::new("images_of_every_kind_read_as_the_raw_disk") else { return };
    let disk = folder.raw("raw", 3 * MIB + 512 * 7);
    for words in [
        "-o compat=0.10",
        "-o compat=1.1",
        "-o cluster_size=512",
        "-o cluster_size=4k",
        "-o cluster_size=2M",
        "-o preallocation=metadata",
        "-o extended_l2=on",
        "-o extended_l2=on,cluster_size=16k",
        "-c -o compat=0.10",
        "-c -o compression_type=zlib",
        "-c -o compression_type=zlib,cluster_size=512",
        "-c -o compression_type=zstd",
        "-c -o compression_type=zstd,cluster_size=4k",
        "-c -o compression_type=zstd,cluster_size=2M",
        "-c -o compression_type=zlib,cluster_size=2M",
        "-c -o compression_type=zstd,extended_l2=on",
    ] {
        folder.qemu_img(&format!("convert -f raw -O qcow2 {words} raw image"));
        same(&disk, folder.open("image").unwrap());
    }
    // By a magic that a raw disk has not.
    let file = |name| nearside_store::File::open(folder.path(name), FileOptions::read()).unwrap();
    let found = |name| Qcow2::found_in(&file(name), FileOptions::read()).unwrap();
    assert!(found("image").is_some() && found("raw").is_none());
}

#[test]
fn what_is_below_shows_where_nothing_was_written() {
    let Some(folder) = Folder::new("what_is_below_shows_where_nothing_was_written") else { return };
    std::fs::create_dir(folder.path("below")).unwrap();
    folder.raw("below/base.raw", 2 * MIB);
    for (middle, top) in [("2M", "2M"), ("3M", "1M"), ("1M", "4M"), ("2097664", "2M")] {
        for options in ["", "-o extended_l2=on", "-o cluster_size=4k"] {
            // Names count from the folder of the file that has them.
            folder.qemu_img(&format!(
                "create -q -f qcow2 -b base.raw -F raw -o compat=0.10,cluster_size=4k below/middle {middle}"
            ));
            folder.qemu_io(
                "below/middle",
                &["write -P 0x11 5k 9k", "write -P 0x12 768k 64k", "write -z 64k 8k"],
            );
            folder.qemu_img(&format!("create -q -f qcow2 -b below/middle -F qcow2 {options} top {top}"));
            folder.qemu_io(
                "top",
                &["write -P 0x21 7k 1k", "write -P 0x22 800k 4k", "write -z 256k 128k", "write -z 66k 2k"],
            );
            same(&folder.converted("top", ""), folder.open("top").unwrap());
        }
    }
    // Without its format it is found by its beginning, as QEMU finds it; but a guest could have begun it so,
    // and have named a file of its host's.
    let without_format = || {
        let image = std::fs::read(folder.path("top")).unwrap();
        let format = image.windows(4).position(|word| word == 0xe279_2acau32.to_be_bytes()).unwrap();
        folder.patch("top", format, &[0; 4]);
    };
    without_format();
    let refused = folder.open("top").unwrap_err().to_string();
    assert!(refused.contains("below/middle: it begins as a qcow2 image with a backing file, "), "{refused}");
    // Compressed clusters below and above others.
    folder.qemu_img("convert -q -c -O qcow2 -o compression_type=zstd below/base.raw below/packed");
    folder.qemu_img("create -q -f qcow2 -b below/packed -F qcow2 top 3M");
    folder.qemu_io("top", &["write -P 0x31 0 100k", "write -c -P 0x32 128k 64k"]);
    same(&folder.converted("top", ""), folder.open("top").unwrap());
    without_format();
    same(&folder.converted("top", ""), folder.open("top").unwrap());
}

#[test]
fn snapshots_are_opened_by_name() {
    let Some(folder) = Folder::new("snapshots_are_opened_by_name") else { return };
    folder.raw("raw", MIB);
    for compat in ["0.10", "1.1"] {
        folder.qemu_img(&format!("convert -f raw -O qcow2 -o compat={compat} raw image"));
        folder.qemu_img("snapshot -c first image");
        folder.qemu_io("image", &["write -P 0x41 0 300k"]);
        folder.qemu_img("snapshot -c a_second-name image");
        folder.qemu_io("image", &["write -P 0x42 100k 500k"]);
        let open =
            |name: &str| Qcow2::open(folder.path("image"), Some(OsStr::new(name)), FileOptions::read());
        for name in ["first", "a_second-name"] {
            same(&folder.converted("image", &format!("-l snapshot.name={name}")), open(name).unwrap());
        }
        // By its number, where no name is that.
        same(&folder.converted("image", "-l snapshot.id=2"), open("2").unwrap());
        same(&folder.converted("image", ""), folder.open("image").unwrap());
        let error = open("third").unwrap_err().to_string();
        assert!(
            error.contains("no snapshot \"third\"; of 2 there are \"first\", \"a_second-name\""),
            "{error}"
        );
        folder.qemu_img("snapshot -c 1 image");
        same(&folder.converted("image", "-l snapshot.name=1"), open("1").unwrap());
    }
}

#[test]
fn it_is_never_written() {
    let Some(folder) = Folder::new("it_is_never_written") else { return };
    folder.qemu_img("create -q -f qcow2 image 1M");
    let before = std::fs::read(folder.path("image")).unwrap();
    let store = Qcow2::open(folder.path("image"), None, FileOptions::serve()).unwrap();
    assert!(store.read_only());
    let mut host = Host::new(&store);
    assert_eq!(host.write(0, 512, 1, true), Err(StoreError::ReadOnly));
    for operation in [
        Operation::WriteZeroes { offset: 0, len: 512, fua: true },
        Operation::Deallocate { offset: 0, len: 512 },
    ] {
        assert_eq!(host.run(operation, Data::None).result, Err(StoreError::ReadOnly));
    }
    assert_eq!(host.run(Operation::Flush, Data::None).result, Ok(()));
    assert!(matches!(host.read(1 << 20, 512), Err(StoreError::OutOfRange { .. })));
    assert_eq!(std::fs::read(folder.path("image")).unwrap(), before);
}

#[test]
fn what_is_refused_says_what_and_where() {
    let Some(folder) = Folder::new("what_is_refused_says_what_and_where") else { return };
    folder.raw("raw", MIB);
    folder.qemu_img("convert -f raw -O qcow2 raw good");
    for (at, bytes, says) in [
        (0, &b"QFI"[..], ""),
        (0, b"QFJ", "it is no qcow2 image"),
        (4, &[0, 0, 0, 4], "version 4"),
        (20, &[0, 0, 0, 8], "clusters of 2^8 bytes"),
        (20, &[0, 0, 0, 22], "clusters of 2^22 bytes"),
        (24, &[0, 0, 0, 0x7f], "1 entries, too few for 545461895168"),
        (24, &[0xff; 8], "header, byte 24: a disk of"),
        (24, &[0; 8], "not one block"),
        (32, &[0, 0, 0, 1], "encrypted (AES)"),
        (32, &[0, 0, 0, 2], "encrypted (LUKS)"),
        (40, &[0, 0, 0, 0, 0, 0xff, 0, 0], "L1 table: 8 bytes at 16711680 are not within the file's"),
        (40, &[0xff; 8], "where no cluster begins"),
        (36, &[0xff; 4], "L1 table: 34359738360 bytes at"),
        (79, &[1], "was not closed (dirty bit)"),
        (79, &[2], "marked as corrupt"),
        (79, &[4], "external data file"),
        (79, &[8], "compression 0"),
        (79, &[32], "it needs feature 5, which is not known here"),
        (72, &[0x80], "it needs feature 63"),
        (100, &[0, 0, 0, 90], "a header of 90 bytes"),
        (104, &[1], "compression 1"),
        (8, &[0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 4, 0], "a backing file's name of 1024 bytes at 65280"),
    ] {
        std::fs::copy(folder.path("good"), folder.path("image")).unwrap();
        folder.patch("image", at, bytes);
        match folder.open("image") {
            Ok(_) => assert_eq!(says, "", "byte {at}"),
            Err(error) => {
                let (error, path) = (error.to_string(), folder.path("image"));
                assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
                assert!(!says.is_empty() && error.contains(says), "byte {at}: {error}");
            }
        }
    }
    // By the name that the image gives it.
    let mut image = std::fs::read(folder.path("good")).unwrap();
    let names = image.windows(4).position(|word| word == 0x6803_f857u32.to_be_bytes()).unwrap();
    image[names + 8..names + 16].copy_from_slice(b"\0\x28novelt");
    (image[74], image[names + 16]) = (1, b'y');
    image[names + 17..names + 56].fill(0);
    std::fs::write(folder.path("image"), image).unwrap();
    let error = folder.refusal("image");
    assert!(error.contains("it needs \"novelty\", which is not known here"), "{error}");
}

#[test]
fn chains_that_lead_nowhere_are_refused() {
    let Some(folder) = Folder::new("chains_that_lead_nowhere_are_refused") else { return };
    folder.raw("raw", MIB);
    folder.qemu_img("convert -f raw -O qcow2 raw a");
    folder.qemu_img("create -q -f qcow2 -b a -F qcow2 b");
    for (words, says) in [
        ("-b missing -F qcow2", "b: its backing file: "),
        ("-b missing -F qcow2", "missing: No such file"),
        ("-b raw -F vmdk", "raw: of format \"vmdk\"; raw and qcow2 are read"),
        ("-b raw -F qcow2", "raw: it is no qcow2 image"),
        ("-b b -F qcow2", "b: it stands above itself"),
        ("-b nbd://host/disk -F raw", "\"nbd://host/disk\" is no file's name, but a protocol's"),
        ("-b /dev/null -F raw", "/dev/null: neither a regular file nor a block device"),
    ] {
        folder.qemu_img(&format!("rebase -u -f qcow2 {words} b"));
        let error = folder.refusal("b");
        assert!(error.contains(says), "{error}");
    }
    // In a circle of several, and in a row that is too long.
    folder.qemu_img("rebase -u -f qcow2 -b a -F qcow2 b");
    folder.qemu_img("rebase -u -f qcow2 -b b -F qcow2 a");
    assert!(folder.refusal("a").contains("it stands above itself"));
    for n in 0..32 {
        std::fs::copy(folder.path("b"), folder.path(&format!("{n}"))).unwrap();
        folder.qemu_img(&format!("rebase -u -f qcow2 -b {} -F qcow2 {n}", n + 1));
    }
    std::fs::copy(folder.path("raw"), folder.path("32")).unwrap();
    assert!(folder.refusal("0").contains("more than 32 in a row"));
    folder.qemu_img("rebase -u -f qcow2 -b 32 -F raw 31");
    folder.open("1").unwrap();
}

/// What cannot be right where it is used fails that read, and no other.
#[test]
fn a_damaged_table_fails_the_reads_that_need_it() {
    let Some(folder) = Folder::new("a_damaged_table_fails_the_reads_that_need_it") else { return };
    // A table has 2 MiB.
    folder.raw("raw", 3 * MIB);
    folder.qemu_img("convert -f raw -O qcow2 -o cluster_size=4k raw good");
    let image = std::fs::read(folder.path("good")).unwrap();
    let word = |at: usize| u64::from_be_bytes(*image[at..].first_chunk().unwrap());
    let l1 = word(40) as usize;
    let l2 = (word(l1) & !(1 << 63)) as usize;
    for (at, entry, says) in [
        (l1, 0x7fff_ffff_f000, "L2 table: 8 bytes at 140737488351232 are not within the file's"),
        (l1, 0x1200, "L2 table of byte 0 of the disk at 4608, where no cluster begins"),
        (l2, 0x7fff_ffff_f000, "data: 512 bytes at 140737488351232 are not within the file's"),
        (l2, 0x1200, "data of byte 0 of the disk at 4608, where no cluster begins"),
        (l2, 1 << 62 | 0x7fff_ffff_f000, "compressed cluster: "),
        (l2, 1 << 62, "compressed cluster at 0: "),
    ] {
        std::fs::write(folder.path("image"), &image).unwrap();
        folder.patch("image", at, &u64::to_be_bytes(entry));
        let mut host = Host::new(&folder.open("image").unwrap());
        let error = host.read(0, 512).unwrap_err().to_string();
        assert!(error.starts_with("read of 512 bytes at 0 failed: ") && error.contains(says), "{error}");
        host.read(5 << 19, 512).unwrap();
    }
}

/// Hundreds of images with some bytes of their tables or headers changed: opened and read, or refused.
#[test]
fn no_image_is_believed() {
    let Some(folder) = Folder::new("no_image_is_believed") else { return };
    folder.raw("raw", MIB / 2);
    let mut random = Rng(5);
    let (mut refused, mut failed, mut read) = (0, 0, 0);
    for words in ["-c -o compression_type=zstd", "-c", "-o extended_l2=on,cluster_size=16k", "-o compat=0.10"]
    {
        folder.qemu_img(&format!("convert -f raw -O qcow2 {words} raw seed"));
        folder.qemu_img("snapshot -c s seed");
        let seed = std::fs::read(folder.path("seed")).unwrap();
        // The places where something stands, in clusters whose every word counts and in the others.
        let used: Vec<usize> = (0..seed.len()).filter(|at| seed[*at] != 0).collect();
        for _ in 0..120 {
            let mut image = seed.clone();
            for _ in 0..1 + random.index(4) {
                let at = match random.index(4) {
                    0 => random.index(112),
                    1 => used[random.index(used.len().min(200))],
                    2 => used[random.index(used.len())],
                    _ => random.index(image.len()),
                };
                image[at] = match random.index(3) {
                    0 => image[at] ^ (1 << random.index(8)),
                    1 => random.pick(&[0, 1, 0x40, 0x7f, 0x80, 0xff]),
                    _ => random.draw() as u8,
                };
            }
            if random.index(10) == 0 {
                image.truncate(random.index(image.len()));
            }
            std::fs::write(folder.path("image"), image).unwrap();
            let snapshot = random.in_of(1, 3).then_some(OsStr::new("s"));
            let opened = Qcow2::open(folder.path("image"), snapshot, FileOptions::read());
            let Ok(store) = opened else {
                refused += 1;
                continue;
            };
            let mut host = Host::new(&store);
            let blocks = store.capacity() / 512;
            for n in 0..20 {
                let offset = 512 * if n < 16 { (n * 64).min(blocks - 1) } else { random.below(blocks) };
                let len = (32 << 10).min(store.capacity() - offset);
                match host.read(offset, len) {
                    Ok(_) => read += 1,
                    Err(_) => failed += 1,
                }
            }
        }
    }
    assert!(refused > 30 && failed > 30 && read > 1000, "{refused} refused, {failed} failed, {read} read");
}

/// Of a file that somebody writes, tables may be others by the time that they are used.
#[test]
fn it_is_not_read_while_it_is_written() {
    let Some(folder) = Folder::new("it_is_not_read_while_it_is_written") else { return };
    folder.qemu_img("create -q -f qcow2 base 1M");
    folder.qemu_img("create -q -f qcow2 -b base -F qcow2 top");
    let path: &Path = &folder.path("base");
    let writer = nearside_store::File::open(path, FileOptions::serve()).unwrap();
    let beside = FileOptions { beside: nearside_store::Beside::Anybody, ..FileOptions::read() };
    for (image, options) in [("base", beside), ("top", beside), ("top", FileOptions::read())] {
        let error = Qcow2::open(folder.path(image), None, options).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
        assert!(error.to_string().contains("base: this process has it locked"), "{error}");
    }
    drop(writer);
    Qcow2::open(folder.path("top"), None, beside).unwrap();
    // QEMU's locks are of single bytes; while it only reads, it may.
    for (options, is_refused) in [(&[][..], true), (&["-r"][..], false)] {
        let mut qemu = tool("qemu-io");
        qemu.args(options).args(["-f", "qcow2"]).arg(path);
        let mut qemu = qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut commands = qemu.stdin.take().unwrap();
        commands.write_all(b"read 0 512\n").unwrap();
        let mut said = BufReader::new(qemu.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("read 512/512 bytes")));
        for (image, options) in [("base", beside), ("top", FileOptions::read())] {
            match Qcow2::open(folder.path(image), None, options) {
                Ok(_) => assert!(!is_refused, "{image}"),
                Err(error) => assert!(is_refused && error.to_string().contains("has it locked"), "{error}"),
            }
        }
        drop(commands);
        assert!(qemu.wait().unwrap().success());
    }
}
