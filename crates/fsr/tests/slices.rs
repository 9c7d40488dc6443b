//! No piece of work between two yields grows with the volume: counted in blocks and bytes, without a clock.

mod common;

use common::*;
use nearside_conformance::needs;

use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{
    Digest, Element, Failure, GatherOptions, NearestOptions, Operation, Pooling, Table, Target,
};

/// The longest read: the provider's chunk, and a block more on both sides.
const MOST: u64 = (128 << 10) + 8192;

fn names(dir: &std::path::Path) {
    std::fs::create_dir(dir.join("many")).unwrap();
    for n in 0..3000 {
        std::fs::write(dir.join(format!("many/{n:05}-{}", "x".repeat(60))), "").unwrap();
    }
    // Every second block lies somewhere else.
    std::fs::write(dir.join("long"), (0..2_000_000).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
}

/// Yields that a command took.
fn yields(
    media: &MemoryMedia,
    retriever: &Retriever,
    request: &nearside_near_data::Request,
) -> (u64, Option<Failure>) {
    let before = media.yields().0;
    let (_, answer) = ask(retriever, media, request);
    (media.yields().0 - before, answer.failure)
}

#[test]
fn directories_are_looked_through_block_by_block_cold_and_warm() {
    let test = "directories_are_looked_through_block_by_block_cold_and_warm";
    let Some(dir) = needs::folder(test, &["mke2fs", "mkfs.f2fs", "sload.f2fs"]) else { return };
    names(dir.path());
    // A directory without an index, whose every block is looked at for a name that is not there; and F2FS's
    // by its hash.
    let linear = ext_image(dir.path(), 64, &["-t", "ext2", "-b", "1024", "-O", "^dir_index"]);
    for (image, blocks) in [(linear, 200), (f2fs_image(dir.path(), 128), 2)] {
        let media = MemoryMedia::new(image);
        let retriever = Retriever::new(Config::default());
        for name in ["one", "other", "third"] {
            // The second and the third find the blocks in the cache.
            let missing = request(path(&format!("/many/{name}")), Operation::Stat);
            let (yields, failure) = yields(&media, &retriever, &missing);
            assert_eq!(failure, Some(Failure::NotFound));
            assert!(yields >= blocks, "{yields} yields over {blocks} blocks");
        }
        assert!(media.yields().1 <= 4096, "{} bytes of metadata between two yields", media.yields().1);
    }
}

#[test]
fn files_are_read_and_worked_on_in_pieces() {
    let test = "files_are_read_and_worked_on_in_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    names(dir.path());
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "4096"]));
    let retriever = Retriever::new(Config::default());
    let bytes = std::fs::metadata(dir.path().join("long")).unwrap().len();
    let table = Table { raw: Some((Element::I8, 1)), ..Table::default() };
    let rows = GatherOptions { table, indices: (0..5000).rev().collect(), ..GatherOptions::default() };
    let empty = GatherOptions { pooling: Pooling::Sum, indices: vec![], bags: vec![0; 5000], ..rows.clone() };
    for rows in [rows, empty] {
        let (yields, failure) = yields(&media, &retriever, &request(path("/long"), Operation::Gather(rows)));
        assert!(failure.is_none() && yields >= 5000, "{yields} {failure:?}");
    }
    let nearest = NearestOptions { table, count: 1000, query: vec![1.0], ..NearestOptions::default() };
    for (operation, piece) in [
        (Operation::Nearest(nearest), 128),
        (Operation::Count, 8 << 10),
        (Operation::Checksum(Digest::Crc32c), 64 << 10),
        (Operation::Checksum(Digest::Sha256), 64 << 10),
        (Operation::Read { offset: 0, len: u64::MAX }, 64 << 10),
    ] {
        let (yields, failure) = yields(&media, &retriever, &request(path("/long"), operation));
        assert_eq!(failure, None);
        assert!(yields >= bytes / piece + bytes / MOST, "{yields}");
    }
    assert!(media.yields().1 <= MOST, "{} bytes between two yields", media.yields().1);
}

/// Of a list many are answered at once that are short, and one where a path is long, or goes by a link.
#[test]
fn a_list_is_answered_in_pieces_by_how_far_its_paths_go() {
    let test = "a_list_is_answered_in_pieces_by_how_far_its_paths_go";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    names(dir.path());
    std::os::unix::fs::symlink("many", dir.path().join("link")).unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let list = |path: &dyn Fn(usize) -> String| {
        let target = Target::Paths((0..64).map(path).collect());
        let request = request(target, Operation::Stat);
        // The first time they are read.
        let cold = yields(&media, &retriever, &request);
        let warm = yields(&media, &retriever, &request);
        assert_eq!((cold.1, warm.1), (None, None));
        warm.0
    };
    assert!(list(&|_| "/long".into()) < 8);
    assert!(list(&|n| format!("/{}many", "./".repeat(1900 + n))) >= 31);
    assert!(list(&|n| format!("/{}link/.", "./".repeat(n))) >= 63);
}

/// More metadata than the monitor may watch: all is forgotten, in pieces too, and the answers stay right.
#[test]
fn forgetting_everything_is_work_in_pieces() {
    let test = "forgetting_everything_is_work_in_pieces";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    names(dir.path());
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "1024"]));
    let all = request(tree("/many"), Operation::Stat);
    let roomy = Retriever::new(Config::default());
    let (expected, answer) = ask(&roomy, &media, &all);
    assert_eq!((expected.len(), answer.failure), (3001, None));
    let before = media.yields().0;
    let tight = Retriever::new(Config { watched: 160, ..Config::default() });
    let (got, answer) = ask(&tight, &media, &all);
    assert_eq!((got, answer.failure), (expected, None));
    assert!(media.yields().0 > before + 3000);
    assert!(media.yields().1 <= 4096);
}
