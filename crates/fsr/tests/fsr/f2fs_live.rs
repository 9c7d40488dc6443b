//! A host that goes on with F2FS's log: what its next fsync costs a command, and what a change of anything
//! else that the log hangs on does.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::common::*;
use nearside_fsr::{Config, Media, MemoryMedia, Retriever};
use nearside_near_data::Operation;

/// Where in a node's block its footer names the inode, its marks and the next; in an inode's, its size.
const INO: usize = 4076;
const FLAG: usize = 4080;
const VERSION: usize = 4084;
const NEXT: usize = 4092;
const SIZE: usize = 16;
const FSYNC: u32 = 2;
/// In an inode's block its flags of what is inline, and where it says how many further fields stand before
/// its addresses.
const INLINE: usize = 3;
const EXTRA_LEN: usize = 360;
const INLINE_DATA: u8 = 2;
const EXTRA: u8 = 0x20;

/// A host's volume: a small one whose log holds `/inline/2` (fixtures/f2fs).
struct Hosted {
    media: MemoryMedia,
    retriever: Retriever,
    /// The log's last block, and where its next one comes.
    last: Vec<u8>,
    blocks: Vec<usize>,
    end: usize,
    /// Each write waits for a flush.
    volatile: bool,
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

impl Hosted {
    fn new() -> Hosted {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/f2fs/fuzzed.img.zst");
        let mut image = Vec::new();
        let file = BufReader::new(File::open(path).unwrap());
        ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_end(&mut image).unwrap();
        let long = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        let packs = [0, 512].map(|further| (word(&image, 1024 + 76) + further) * 4096);
        let pack = packs[usize::from(long(packs[1]) > long(packs[0]))];
        // Where the checkpoint left the log of warm nodes.
        let offset = usize::from(u16::from_le_bytes(image[pack + 70..][..2].try_into().unwrap()));
        let mut end = word(&image, 1024 + 92) + word(&image, pack + 40) * 512 + offset;
        let (version, mut blocks) = (long(end * 4096 + VERSION), Vec::new());
        while long(end * 4096 + VERSION) == version {
            blocks.push(end);
            end = word(&image, end * 4096 + NEXT);
        }
        let last = image[blocks[blocks.len() - 1] * 4096..][..4096].to_vec();
        // No block is kept: what a command reads, it counts.
        let retriever = Retriever::new(Config { block_bytes: 0, ..Config::default() });
        Hosted { media: MemoryMedia::new(image), retriever, last, blocks, end, volatile: false }
    }

    fn write(&self, block: usize, bytes: &[u8]) {
        let at = block as u64 * 4096;
        self.retriever.monitor().begin(at, 4096);
        self.media.write(at, bytes);
        self.retriever.monitor().end(at, 4096, !self.volatile);
    }

    /// The file's inode of that size, as a block of the log.
    fn node(&self, size: u32, next: usize) -> Vec<u8> {
        let mut block = self.last.clone();
        block[SIZE..SIZE + 4].copy_from_slice(&size.to_le_bytes());
        block[FLAG..FLAG + 4].copy_from_slice(&FSYNC.to_le_bytes());
        block[NEXT..NEXT + 4].copy_from_slice(&(next as u32).to_le_bytes());
        block
    }

    /// The host makes the file so long, by fsync.
    fn fsync(&mut self, size: u32) {
        self.append(&self.node(size, self.end + 1));
    }

    fn append(&mut self, node: &[u8]) {
        self.write(self.end, node);
        self.blocks.push(self.end);
        self.end += 1;
    }

    /// The host gives the file so many blocks, which lie behind its size: what of them is new makes it
    /// longer, and that is seen by the node before.
    fn fsync_blocks(&mut self, count: usize) {
        let mut node = self.node(0, self.end + 1);
        assert_eq!(node[INLINE] & EXTRA, EXTRA);
        node[INLINE] &= !INLINE_DATA;
        let addresses = EXTRA_LEN + usize::from(u16::from_le_bytes([node[EXTRA_LEN], node[EXTRA_LEN + 1]]));
        for at in 0..200 {
            let address = if at < count { 5000 + at as u32 } else { 0 };
            node[addresses + 4 * at..][..4].copy_from_slice(&address.to_le_bytes());
        }
        self.append(&node);
    }

    /// What had to be looked up to say what a path leads to.
    fn looked_up(&self, at: &str) -> u64 {
        let (got, outcome) = ask(&self.retriever, &self.media, &request(path(at), Operation::Stat));
        assert!(matches!(got[..], [.., Got::Entry { .. }]), "{at}: {got:?} {outcome:?}");
        outcome.counters.cache_misses
    }

    /// The file's size, and blocks that were read to say it.
    fn asked(&self, retriever: &Retriever) -> (u64, u64) {
        let (got, outcome) = ask(retriever, &self.media, &request(path("/inline/2"), Operation::Stat));
        match &got[..] {
            [.., Got::Entry { size, .. }] => (*size, outcome.counters.blocks_read),
            other => panic!("{other:?} {outcome:?}"),
        }
    }
}

#[test]
fn the_next_fsync_costs_the_nodes_added_since() {
    let mut host = Hosted::new();
    assert_eq!(word(&host.last, INO), word(&host.last, INO - 4), "an inode");
    host.asked(&host.retriever);
    let mut costs = Vec::new();
    for nr in 0..200 {
        host.fsync(nr);
        let (size, cost) = host.asked(&host.retriever);
        assert_eq!(size, u64::from(nr));
        costs.push(cost);
    }
    // The first goes behind some nodes, the last behind two hundred.
    assert!(costs[199] <= costs[0] + 1 && costs[199] < 30, "{costs:?}");
    let anew = host.asked(&Retriever::new(Config { block_bytes: 0, ..Config::default() }));
    assert!(anew.0 == 199 && anew.1 > 200, "{anew:?}");
}

/// A node is shown when a flush has covered it; without one after a second of the drive's clock.
#[test]
fn an_fsync_is_shown_from_its_flush_on() {
    let mut host = Hosted::new();
    let monitor = |host: &Hosted| host.retriever.monitor().flush_begins();
    host.fsync(5);
    assert_eq!(host.asked(&host.retriever).0, 5);
    host.volatile = true;
    host.fsync(6);
    assert_eq!(host.asked(&host.retriever).0, 5);
    let first = monitor(&host);
    // It comes while the flush is under way, which need not cover it.
    host.fsync(7);
    assert_eq!(host.asked(&host.retriever).0, 5);
    host.retriever.monitor().flushed(first);
    assert_eq!(host.asked(&host.retriever).0, 6);
    let second = monitor(&host);
    host.retriever.monitor().flushed(second);
    assert_eq!(host.asked(&host.retriever).0, 7);
    host.fsync(8);
    assert_eq!(host.asked(&host.retriever).0, 7);
    let until = host.media.now_ns() + 1_000_000_000;
    while host.media.now_ns() < until {
        assert_eq!(host.asked(&host.retriever).0, 7);
        now(host.media.read(0, 32 << 20)).unwrap();
    }
    assert_eq!(host.asked(&host.retriever).0, 8);
}

/// A raw write over a node in the middle of the log: no host's doing, and noticed all the same.
#[test]
fn a_changed_log_is_read_anew() {
    let mut host = Hosted::new();
    for size in [5, 6, 7] {
        host.fsync(size);
        assert_eq!(host.asked(&host.retriever).0, u64::from(size));
    }
    let [.., middle, last] = host.blocks[..] else { panic!("a short log") };
    // It no longer follows the checkpoint: the log ends before it.
    let mut foreign = host.node(6, last);
    foreign[VERSION] ^= 1;
    host.write(middle, &foreign);
    assert_eq!(host.asked(&host.retriever).0, 5);
    // And again, together with an fsync behind where the log ends no more.
    host.fsync(8);
    assert_eq!(host.asked(&host.retriever).0, 5);
    host.write(middle, &host.node(6, last));
    assert_eq!(host.asked(&host.retriever).0, 8);
    // The other way round: the log goes on and is changed at once.
    host.fsync(9);
    host.write(middle, &foreign);
    assert_eq!(host.asked(&host.retriever).0, 5);
}

/// A node that was changed and is read again for what follows it: what had been made of it does not count.
#[test]
fn a_node_that_is_read_again_and_changed_is_noticed() {
    let mut host = Hosted::new();
    host.fsync(5);
    host.fsync_blocks(3);
    assert_eq!(host.asked(&host.retriever).0, 3 * 4096);
    let before = host.blocks[host.blocks.len() - 1];
    host.fsync_blocks(4);
    assert_eq!(host.asked(&host.retriever).0, 4 * 4096);
    host.fsync_blocks(6);
    let mut foreign = host.node(6, before + 1);
    foreign[VERSION] ^= 1;
    host.write(before + 1, &foreign);
    assert_eq!(host.asked(&host.retriever).0, 3 * 4096);
}

/// What an fsync does not touch stays known: another file's names and inode, and the directory of the file
/// whose content alone it changed.
#[test]
fn an_fsync_leaves_what_it_does_not_touch_known() {
    let mut host = Hosted::new();
    let others = ["/inline/1", "/inline/4", "/blocks/n1", "/link"];
    let first: Vec<u64> = others.iter().map(|at| host.looked_up(at)).collect();
    assert!(first.iter().all(|misses| *misses > 0), "{first:?}");
    host.looked_up("/inline/2");
    for size in 0..5 {
        host.fsync(size);
        assert_eq!(host.looked_up("/inline/2"), 1, "its inode");
        assert_eq!(others.map(|at| host.looked_up(at)), [0; 4], "fsync {size}");
    }
}
