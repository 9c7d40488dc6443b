//! The log against the store that it was written beside, against damage, and against itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, Memory, Region};
use nearside_media::Delay;
use nearside_random::Rng;

use super::*;
use crate::{
    Channel, Completion, Data, Dram, Fault, Faulty, Kinds, Modelled, Operation, Rule, Store, Submitted, Token,
};

const BYTES: u64 = 256 << 10;

fn logged<S: Store>(store: S, path: &Path) -> Logged<S> {
    let log = WriteLog::create(path, store.block_size(), store.capacity()).unwrap();
    Logged::new(store, log).unwrap()
}

fn write(offset: u64, len: u64, fua: bool) -> Operation {
    Operation::Write { offset, len, fua }
}

/// Submits with a buffer of `fill`.
fn submit(channel: &mut impl Channel, operation: Operation, fill: u8, now: u64) -> Option<Completion> {
    let data = match operation {
        Operation::Write { len, .. } | Operation::Read { len, .. } => {
            let mut buffer = IoBuffer::new(len as usize).unwrap();
            buffer.fill(fill);
            Data::Owned(buffer)
        }
        _ => Data::None,
    };
    match channel.submit(operation, data, Token(u64::from(fill)), Nanos(now)) {
        Submitted::Done(completion) => Some(completion),
        Submitted::Pending => None,
    }
}

/// What a store holds.
fn contents(channel: &mut impl Channel) -> Vec<u8> {
    let done = submit(channel, Operation::Read { offset: 0, len: BYTES }, 0, u64::MAX / 2).unwrap();
    done.result.unwrap();
    done.buffer.unwrap().to_vec()
}

fn entries(path: &Path) -> Vec<Entry> {
    LogReader::open(path).unwrap().entries().map(Result::unwrap).collect()
}

/// What the entries are, without the mark that begins every log: flags, first sector, sectors.
fn shapes(path: &Path) -> Vec<(String, u64, u64)> {
    let all = entries(path).into_iter().skip(1);
    all.map(|entry| (entry.flags.to_string(), entry.sector, entry.sectors)).collect()
}

fn shape(flags: &str, sector: u64, sectors: u64) -> (String, u64, u64) {
    (flags.to_owned(), sector, sectors)
}

#[test]
fn every_instant_can_be_made_again() {
    for (block, seed) in [(512, 1), (4096, 2), (512, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let store = logged(Dram::new(BYTES, block).unwrap(), &path);
        let memory = Arc::new(Memory::new());
        memory.map(0x1000, Arc::new(Region::anonymous(1 << 20).unwrap())).unwrap();
        let mut channel = store.channel(memory.clone()).unwrap();
        let (mut random, mut instants) = (Rng(seed), vec![vec![0; BYTES as usize]]);
        let block = u64::from(block);
        for nr in 0..300u32 {
            let blocks = BYTES / block;
            let len = (1 + random.below(8)) * block;
            let offset = random.below(blocks - 8) * block;
            let fua = random.below(8) == 0;
            let operation = match random.below(8) {
                0 => Operation::Flush,
                1 => Operation::Deallocate { offset, len },
                2 => Operation::WriteZeroes { offset, len, fua },
                3 => Operation::Read { offset, len },
                _ => write(offset, len, fua),
            };
            let read = matches!(operation, Operation::Read { .. });
            if random.below(2) == 0 && matches!(operation, Operation::Write { .. }) {
                let span = memory.resolve(0x1000, len as usize).unwrap();
                memory.write(span, &random.bytes(len as usize));
                let data = Data::Spans(&[span]);
                let Submitted::Done(done) = channel.submit(operation, data, Token(1), Nanos(0)) else {
                    panic!()
                };
                assert!(done.result.is_ok() && done.buffer.is_none());
            } else {
                submit(&mut channel, operation, nr as u8, 0).unwrap().result.unwrap();
            }
            if !read {
                instants.push(contents(&mut channel));
            }
        }
        // The mark that begins the log is an instant of its own.
        let reader = LogReader::open(&path).unwrap();
        assert_eq!((reader.count(), reader.capacity().unwrap()), (instants.len() as u64, BYTES));
        assert_eq!(reader.count(), store.log().entries());
        let mut image = vec![0; BYTES as usize];
        for (nr, instant) in (0..).zip(&instants) {
            reader.replay(nr, nr + 1, &mut image).unwrap();
            assert!(image == *instant, "after {nr} operations");
        }
        let beyond = reader.replay(0, reader.count() + 1, &mut image).unwrap_err();
        assert!(matches!(beyond, LogError::Beyond { .. }), "{beyond}");
    }
}

#[test]
fn an_image_in_a_file_is_the_same_and_sparse() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut channel = logged(Dram::new(BYTES, 512).unwrap(), &path).channel(Arc::default()).unwrap();
    for (offset, len, fill) in [(0, 65536, 7), (4096, 20480, 0), (100 << 10, 512, 8), (200 << 10, 3584, 0)] {
        submit(&mut channel, write(offset, len, false), fill, 0).unwrap().result.unwrap();
    }
    submit(&mut channel, Operation::Deallocate { offset: 32768, len: 8192 }, 0, 0).unwrap().result.unwrap();
    let file = dir.path().join("image");
    let image = File::options().read(true).write(true).create_new(true).open(&file).unwrap();
    image.set_len(BYTES).unwrap();
    let reader = LogReader::open(&path).unwrap();
    reader.replay(0, reader.count(), &mut ImageFile::new(image.try_clone().unwrap()).unwrap()).unwrap();
    assert!(std::fs::read(&file).unwrap() == contents(&mut channel));
    // Less than a block of zeros is written.
    assert_eq!(image.metadata().unwrap().blocks() * 512, 65536 - 20480 - 8192 + 4096 + 4096);
    image.set_len(BYTES / 4).unwrap();
    let small =
        reader.replay(0, reader.count(), &mut ImageFile::new(image).unwrap()).unwrap_err().to_string();
    assert!(small.contains("entry 3, at byte 102400 of the image"), "{small}");
}

/// W0 ends before the flush is submitted, W1 while it is in flight: the flush covers W0 alone.
#[test]
fn a_flush_stands_where_it_was_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let slow = Modelled::new(Dram::new(BYTES, 512).unwrap(), Delay::fixed(100).medium());
    let store = logged(slow, &path);
    let (mut a, mut b) = (store.channel(Arc::default()).unwrap(), store.channel(Arc::default()).unwrap());
    assert!(submit(&mut a, write(0, 512, false), 1, 0).is_none());
    assert!(submit(&mut b, write(512, 512, false), 2, 50).is_none());
    assert_eq!(shapes(&path), []);
    a.poll(Nanos(100), &mut |_, done| done.result.unwrap());
    assert!(submit(&mut a, Operation::Flush, 3, 100).is_none());
    b.poll(Nanos(150), &mut |_, done| done.result.unwrap());
    let writes = |flush| vec![shape("", 0, 1), shape(flush, 0, 0), shape("", 1, 1)];
    assert_eq!(shapes(&path), writes(""));
    a.poll(Nanos(200), &mut |_, done| done.result.unwrap());
    assert_eq!(shapes(&path), writes("flush"));
}

#[test]
fn what_fails_is_said_and_what_is_busy_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let rule = |kinds, fault, times| Rule { times: Some(times), ..Rule::new(kinds, fault) };
    let rules = [
        rule(Kinds::Flushes, Fault::Busy, 3),
        rule(Kinds::Flushes, Fault::Error, 1),
        rule(Kinds::Mutations, Fault::Busy, 2),
        rule(Kinds::Mutations, Fault::Error, 1),
    ];
    let store = logged(Faulty::new(Dram::new(BYTES, 512).unwrap(), 1, rules), &path);
    let mut channel = store.channel(Arc::default()).unwrap();
    for _ in 0..5 {
        let _ = submit(&mut channel, Operation::Flush, 0, 0);
        let _ = submit(&mut channel, write(1024, 512, false), 1, 0);
    }
    assert!(submit(&mut channel, write(BYTES, 512, false), 1, 0).unwrap().result.is_err());
    assert_eq!(shapes(&path), [shape("mark", 0, 0), shape("", 2, 1), shape("flush", 0, 0), shape("", 2, 1)]);
    let reader = LogReader::open(&path).unwrap();
    let mark = reader.mark(&entries(&path)[1]).unwrap();
    let mark = String::from_utf8(mark).unwrap();
    assert!(mark.contains("write of 512 bytes at 1024 failed: injected"), "{mark}");
}

#[test]
fn marks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = WriteLog::create(&path, 512, 4096).unwrap();
    log.mark(b"here");
    log.mark(&[b'x'; 600]);
    let reader = LogReader::open(&path).unwrap();
    let marks: Vec<_> = entries(&path).iter().map(|entry| reader.mark(entry).unwrap()).collect();
    assert_eq!(capacity_of(&marks[0]), Some(4096));
    assert_eq!((marks[1].as_slice(), marks[2].len()), (&b"here"[..], 480));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "it holds what the disk does");
    let forged = Entry { mark_bytes: u64::MAX, sector: 1 << 54, sectors: u64::MAX, ..entries(&path)[0] };
    assert!(reader.mark(&forged).is_err());
    for forged in [forged, Entry { sector: 0, sectors: 1, offset: u64::MAX, ..forged }] {
        assert!(reader.apply(&Part::whole(forged), &mut Vec::new()).is_err());
    }
    let again = WriteLog::create(&path, 512, 4096).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert!(again.to_string().contains(path.to_str().unwrap()), "{again}");
    let odd = Logged::new(Dram::new(BYTES, 4096).unwrap(), log).unwrap_err();
    assert!(odd.to_string().contains("512"), "{odd}");
}

/// Of random logs, each cut is one that a power cut may leave: whatever was flushed or had FUA is there, and
/// each block is what some write since has left. All that may be lost is lost by some cut.
#[test]
fn cuts_keep_what_is_durable_and_lose_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut channel = logged(Dram::new(BYTES, 512).unwrap(), &path).channel(Arc::default()).unwrap();
    let mut random = Rng(9);
    for nr in 1..=200u8 {
        let (offset, len) = (random.below(24) * 512, (1 + random.below(4)) * 512);
        let operation = match random.below(10) {
            0 => Operation::Flush,
            1 => Operation::Deallocate { offset, len },
            n => write(offset, len, n == 2),
        };
        submit(&mut channel, operation, nr, 0).unwrap().result.unwrap();
    }
    let (reader, entries) = (LogReader::open(&path).unwrap(), entries(&path));
    for (at, torn) in (0..=entries.len()).flat_map(|at| [(at, false), (at, true)]) {
        // Of each sector, the versions that it may have: the last is that of all writes.
        let mut may: Vec<Vec<u8>> = vec![vec![0]; 32];
        for (entry, fill) in entries[..at].iter().zip(0u8..) {
            if entry.flags.has(Flags::FLUSH) {
                may.iter_mut().for_each(|versions| *versions = versions.split_off(versions.len() - 1));
            }
            for versions in &mut may[entry.sector as usize..(entry.sector + entry.sectors) as usize] {
                if entry.flags.has(Flags::FUA) {
                    versions.clear();
                }
                versions.push(if entry.flags.has(Flags::DISCARD) { 0 } else { fill });
            }
        }
        let mut seen: Vec<Vec<u8>> = vec![Vec::new(); 32];
        for seed in 0..40 {
            let all = entries.iter().map(|entry| Ok(*entry));
            let cut = survivors(all, at as u64, Some(Cut { seed, torn })).unwrap();
            let mut image = vec![0; BYTES as usize];
            reader.replay(0, cut.first, &mut image).unwrap();
            cut.then.iter().for_each(|part| reader.apply(part, &mut image).unwrap());
            for (sector, versions) in may.iter().enumerate() {
                let is = image[sector * 512];
                assert!(
                    versions.contains(&is),
                    "at {at}, seed {seed}: sector {sector} is of {is}: {versions:?}"
                );
                seen[sector].push(is);
            }
        }
        let lost = |(sector, versions): (usize, &Vec<u8>)| seen[sector].iter().any(|is| *is == versions[0]);
        assert!(may.iter().enumerate().all(lost), "at {at}: what may be lost never was");
    }
    let beyond = survivors(entries.iter().map(|entry| Ok(*entry)), 999, Some(Cut { seed: 1, torn: false }));
    assert!(beyond.unwrap_err().to_string().contains("not 999"));
}

/// A cut tears no write unless it is to, and then at sectors.
#[test]
fn torn_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut channel = logged(Dram::new(BYTES, 512).unwrap(), &path).channel(Arc::default()).unwrap();
    submit(&mut channel, write(0, 4096, false), 1, 0).unwrap().result.unwrap();
    let mut counts = [0, 0];
    for (seed, torn) in (0..200).flat_map(|seed| [(seed, false), (seed, true)]) {
        let cut = survivors(LogReader::open(&path).unwrap().entries(), 2, Some(Cut { seed, torn })).unwrap();
        let sectors: u64 = cut.then.iter().map(|part| part.sectors).sum();
        counts[usize::from(torn)] += u64::from(!matches!(sectors, 0 | 8));
        assert_eq!(cut.lost, u64::from(sectors < 8));
    }
    assert!(counts[0] == 0 && counts[1] > 5, "{counts:?}");
}

/// A log with one entry of each kind, and what its bytes may become.
#[test]
fn no_damage_does_more_than_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut channel = logged(Dram::new(BYTES, 512).unwrap(), &path).channel(Arc::default()).unwrap();
    submit(&mut channel, write(0, 1024, true), 1, 0).unwrap().result.unwrap();
    submit(&mut channel, Operation::Deallocate { offset: 512, len: 512 }, 0, 0).unwrap().result.unwrap();
    submit(&mut channel, Operation::Flush, 0, 0).unwrap().result.unwrap();
    submit(&mut channel, write(0, 512, false), 1, 0).unwrap().result.unwrap();
    let good = std::fs::read(&path).unwrap();
    let fails = |bytes: &[u8]| -> String {
        std::fs::write(&path, bytes).unwrap();
        let all = LogReader::open(&path).and_then(|log| log.entries().collect::<Result<Vec<_>, _>>());
        all.err().map_or(String::new(), |e| e.to_string())
    };
    assert_eq!(fails(&good), "");
    // At: superblock 0, mark 512, write 1024 with data to 2560, discard 2560, flush 3072, write 3584.
    let max = u64::MAX.to_le_bytes();
    for (at, value, says) in [
        (0, 1u64.to_le_bytes(), "begins with 0x1"),
        (8, 2u64.to_le_bytes(), "version 2"),
        (16, 6u64.to_le_bytes(), "entry 5, at byte 4608"),
        (24, 513u64.to_le_bytes(), "513 bytes"),
        (24, 0u64.to_le_bytes(), "0 bytes"),
        (24, (1u64 << 31).to_le_bytes(), "2147483648 bytes"),
        (512 + 24, 481u64.to_le_bytes(), "entry 0, at byte 512 of the log: a mark of 481 bytes"),
        (512 + 24, max, "a mark of"),
        (512 + 8, 1u64.to_le_bytes(), "a mark with 1 sectors"),
        (1024, max, "entry 1, at byte 1024"),
        (1024, (1u64 << 62).to_le_bytes(), "beyond all stores"),
        (1024 + 8, max, "beyond all stores"),
        (1024 + 8, 100u64.to_le_bytes(), "entry 1, at byte 1024 of the log: its 51200 bytes of data end at"),
        (1024 + 16, 32u64.to_le_bytes(), "flags 0x20"),
        // A discard that has become a write: the entry behind it is taken for its data.
        (2560 + 16, 0u64.to_le_bytes(), "entry 4, at byte 4608"),
    ] {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value);
        let said = fails(&bytes);
        assert!(said.contains(says), "{at}: {said:?}, not {says:?}");
    }
    for len in 0..good.len() {
        assert_ne!(fails(&good[..len]), "", "cut at {len}");
    }
    let mut random = Rng(4);
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(3) {
            let at = [0, 512, 1024, 2560, 3072, 3584][random.index(6)] + random.index(32);
            bytes[at] = random.below(256) as u8;
        }
        std::fs::write(&path, &bytes).unwrap();
        let Ok(log) = LogReader::open(&path) else { continue };
        let all: Vec<_> = log.entries().collect();
        assert!(all.len() <= 10 && all.iter().rev().skip(1).all(Result::is_ok));
        let _ = log.capacity();
        for entry in all.into_iter().flatten().filter(|entry| entry.flags.has(Flags::MARK)) {
            assert!(log.mark(&entry).unwrap().len() <= 480);
        }
    }
}
