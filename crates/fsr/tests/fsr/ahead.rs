//! Inodes that have a block each are read several at a time by a walk, and are the same as one by one; a
//! file's bytes are read in pieces as long as the medium says.

use std::cell::{Cell, RefCell};

use crate::common::*;
use nearside_conformance::needs;
use nearside_fsr::{Config, Media, MediaError, MemoryBatch, MemoryMedia, Retriever};
use nearside_near_data::{Digest, Operation};

const FILES: usize = 100;
const BLOCK: usize = 4096;

/// What is to be done once a long read has its bytes.
type AfterRead = Box<dyn FnOnce()>;

/// Counts reads by their lengths.
struct Counting {
    memory: MemoryMedia,
    reads: Cell<u64>,
    long_reads: Cell<u64>,
    longest_read: Cell<u64>,
    after: RefCell<Option<AfterRead>>,
}

impl Counting {
    fn new(image: &[u8]) -> Counting {
        let memory = MemoryMedia::new(image.to_vec());
        let longest_read = Cell::new(u64::MAX);
        Counting {
            memory,
            reads: Cell::new(0),
            long_reads: Cell::new(0),
            longest_read,
            after: RefCell::new(None),
        }
    }
}

impl Media for Counting {
    type Buffer = Vec<u8>;
    type Batch = MemoryBatch;

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn block_size(&self) -> u32 {
        self.memory.block_size()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, MediaError> {
        let bytes = self.memory.read(offset, len).await;
        self.reads.set(self.reads.get() + 1);
        if len > BLOCK {
            self.long_reads.set(self.long_reads.get() + 1);
            let after = self.after.borrow_mut().take();
            after.into_iter().for_each(|after| after());
        }
        bytes
    }

    fn batch(&self) -> MemoryBatch {
        self.memory.batch()
    }

    fn longest_read(&self) -> u64 {
        self.longest_read.get()
    }

    fn now_ns(&self) -> u64 {
        self.memory.now_ns()
    }

    async fn yield_now(&self) {
        self.memory.yield_now().await;
    }
}

fn image(test: &str) -> Option<Vec<u8>> {
    let dir = needs::folder(test, &["mkfs.f2fs", "sload.f2fs"])?;
    std::fs::create_dir(dir.path().join("many")).unwrap();
    for n in 0..FILES {
        std::fs::write(dir.path().join(format!("many/{n:03}")), vec![b'x'; 4096 * (n % 3) + n]).unwrap();
    }
    std::fs::write(dir.path().join("long"), (0..1_000_000).map(|n| (n % 251) as u8).collect::<Vec<_>>())
        .unwrap();
    Some(f2fs_image(dir.path(), 128))
}

/// One that has room for too few inodes to read any ahead.
fn one_by_one() -> Retriever {
    Retriever::new(Config { inodes: 32, ..Config::default() })
}

/// The byte at which an inode's block begins.
fn block_of(image: &[u8], ino: u64) -> u64 {
    let footer = [(ino as u32).to_le_bytes(); 2].concat();
    // An inode's own place in its tree is 0; the flags below say whether it was synced.
    let is = |block: &&[u8]| block[4072..4080] == footer && block[4080..4084] < [8, 0, 0, 0][..];
    image.chunks(BLOCK).position(|block| is(&block)).unwrap() as u64 * BLOCK as u64
}

fn last_ino(got: &[Got]) -> u64 {
    match got.last() {
        Some(Got::Entry { ino, .. }) => *ino,
        other => panic!("{other:?}"),
    }
}

fn mode_of(got: &[Got], of: u64) -> u16 {
    let mut modes = got.iter().filter_map(|got| match got {
        Got::Entry { ino, mode, .. } if *ino == of => Some(*mode),
        _ => None,
    });
    modes.next_back().unwrap()
}

#[test]
fn inodes_side_by_side_are_read_together() {
    let Some(image) = image("inodes_side_by_side_are_read_together") else { return };
    for operation in [Operation::Stat, Operation::Count, Operation::Names] {
        let names = operation == Operation::Names;
        let request = request(tree("/many"), operation);
        let (single, together) = (Counting::new(&image), Counting::new(&image));
        let (expected, outcome) = ask(&one_by_one(), &single, &request);
        assert_eq!((outcome.failure, single.long_reads.get()), (None, 0));
        let retriever = Retriever::new(Config::default());
        let (got, outcome) = ask(&retriever, &together, &request);
        assert_eq!((got == expected, outcome.failure), (true, None));
        if names {
            // No inode of a file is needed.
            assert_eq!((together.long_reads.get(), together.reads.get()), (0, single.reads.get()));
            continue;
        }
        let (one, all) = (single.reads.get(), together.reads.get());
        assert!(together.long_reads.get() >= FILES as u64 / 16, "{}", together.long_reads.get());
        assert!(one > FILES as u64 && all < one / 2, "{all} reads, one by one {one}");
        // What is known is not read again.
        let (again, _) = ask(&retriever, &together, &request);
        assert_eq!((again == expected, together.reads.get()), (true, all));
    }
}

#[test]
fn an_inode_that_was_read_ahead_is_out_of_date_when_its_block_changes() {
    let test = "an_inode_that_was_read_ahead_is_out_of_date_when_its_block_changes";
    let Some(image) = image(test) else { return };
    let request = request(tree("/many"), Operation::Stat);
    let media = Counting::new(&image);
    let retriever = Retriever::new(Config::default());
    let (before, _) = ask(&retriever, &media, &request);
    let ino = last_ino(&before);
    let at = block_of(&image, ino);
    retriever.monitor().begin(at, 2);
    media.memory.write(at, &0o100_421_u16.to_le_bytes());
    retriever.monitor().end(at, 2, true);
    let (after, _) = ask(&retriever, &media, &request);
    assert_eq!((mode_of(&before, ino) == 0o100_421, mode_of(&after, ino)), (false, 0o100_421));
}

#[test]
fn what_changes_between_the_read_and_its_use_is_read_again() {
    let Some(image) = image("what_changes_between_the_read_and_its_use_is_read_again") else { return };
    let request = request(tree("/many"), Operation::Stat);
    let (before, _) = ask(&one_by_one(), &Counting::new(&image), &request);
    // The last of those that the first long read has: after the root of the tree.
    let ino = match &before[12] {
        Got::Entry { ino, .. } => *ino,
        other => panic!("{other:?}"),
    };
    let at = block_of(&image, ino);
    let retriever = std::rc::Rc::new(Retriever::new(Config::default()));
    let media = Counting::new(&image);
    let (told, memory) = (retriever.clone(), media.memory.clone());
    *media.after.borrow_mut() = Some(Box::new(move || {
        told.monitor().begin(at, 2);
        memory.write(at, &0o100_421_u16.to_le_bytes());
        told.monitor().end(at, 2, true);
    }));
    let (got, outcome) = ask(&retriever, &media, &request);
    assert_eq!((outcome.failure, media.after.borrow().is_none()), (None, true));
    assert_eq!(mode_of(&got, ino), 0o100_421);
}

#[test]
fn a_files_bytes_are_read_in_pieces_as_long_as_the_medium_says() {
    const NAME: &str = "a_files_bytes_are_read_in_pieces_as_long_as_the_medium_says";
    let Some(image) = image(NAME) else { return };
    for operation in [Operation::Checksum(Digest::Sha256), Operation::Checksum(Digest::Crc32c)] {
        let request = request(path("/long"), operation);
        let mut gave = Vec::new();
        for (longest_read, most) in [(u64::MAX, 128 << 10), (16 << 10, 16 << 10), (1, 4096)] {
            let medium = Counting::new(&image);
            let retriever = Retriever::new(Config::default());
            // What the volume itself needs is there.
            ask(&retriever, &medium, &self::request(path("/long"), Operation::Stat));
            let before = medium.memory.yields().1;
            medium.longest_read.set(longest_read);
            let (got, outcome) = ask(&retriever, &medium, &request);
            assert_eq!(outcome.failure, None);
            assert_eq!(medium.memory.yields().1.max(before), most.max(before), "{longest_read}");
            gave.push(got);
        }
        assert!(gave.iter().all(|got| *got == gave[0]), "{gave:?}");
    }
}
