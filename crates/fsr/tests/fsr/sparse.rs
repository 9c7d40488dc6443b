//! Files that are mostly holes: what an operation costs is counted by the bytes that it looked at.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::common::{Got, ask, ask_in_parts, ext_image, path, request};
use nearside_conformance::needs;
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_ndp::unordered::{Gather, SumCrc32c};
use nearside_near_data::{
    Answer, BlockRange, Digest, Element, Failure, GatherOptions, Operation, Pooling, SearchOptions, Table,
    Target,
};

const SIZE: u64 = 1 << 40;
const AT: u64 = 5 << 36;

/// "open", a hole of 320 GiB, " closed", a hole to the last line's end: at most some blocks are looked at.
#[test]
fn a_file_of_one_tib_costs_what_its_extents_do() {
    let Some(dir) = needs::folder("a_file_of_one_tib_costs_what_its_extents_do", &["mke2fs"]) else { return };
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.write_all_at(b"first line\nopen", 0).unwrap();
    file.write_all_at(b" closed\nthird\n", AT).unwrap();
    file.write_all_at(b"end\n", SIZE - 4).unwrap();
    drop(file);
    for options in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext4", "-b", "4096", "-O", "^extent,^64bit"]]
    {
        let media = MemoryMedia::new(ext_image(dir.path(), 64, options));
        let retriever = Retriever::new(Config::default());
        let asked = |operation| {
            // A line that may be shown is looked at up to the longest that is taken.
            let text = matches!(&operation, Operation::Search(options) if options.text);
            let most = if text { (64 << 20) + (1 << 20) } else { 1 << 20 };
            let (got, answer) = ask(&retriever, &media, &request(path("/sparse"), operation));
            let scanned = answer.counters.bytes_scanned;
            assert!(scanned < most, "{scanned} bytes");
            (got, answer.failure)
        };
        let file = Got::File("/sparse".into(), SIZE);
        // The lines' words: a NUL neither ends nor makes one.
        let counted = vec![file.clone(), Got::Count(4, 6, SIZE)];
        assert_eq!(asked(Operation::Count), (counted, None));

        let mut crc = Gather::new(SumCrc32c);
        let mut at = 0;
        for (place, bytes) in [(0, &b"first line\nopen"[..]), (AT, b" closed\nthird\n"), (SIZE - 4, b"end\n")]
        {
            let _ = crc.zeros(at, place - at).unwrap();
            let _ = crc.feed(place, bytes).unwrap();
            at = place + bytes.len() as u64;
        }
        let sum = crc.finish(SIZE).unwrap().to_be_bytes().to_vec();
        assert_eq!(asked(Operation::Checksum(Digest::Crc32c)), (vec![file.clone(), Got::Digest(sum)], None));

        let search = |pattern: &str, answer, text| {
            asked(Operation::Search(SearchOptions {
                patterns: vec![pattern.as_bytes().to_vec()],
                answer,
                text,
                numbers: true,
                only_matching_files: true,
                ..SearchOptions::default()
            }))
        };
        let found = |got: Vec<Got>| match &got[..] {
            [Got::File(..), Got::Matches(found), Got::Total(_)] => *found,
            other => panic!("{other:?}"),
        };
        for (pattern, lines) in [("open.* closed", 1), ("^third$", 1), ("e", 3), ("d$", 3)] {
            assert_eq!(found(search(pattern, Answer::Count, false).0), lines, "{pattern}");
        }
        let binary = search("third", Answer::Lines, false);
        assert!(binary.1.is_none() && binary.0.contains(&Got::Binary), "{binary:?}");
        let (lines, failure) = search("third", Answer::Lines, true);
        let offset = AT + 8;
        let third =
            Got::Line { number: 3, offset, bytes: b"third".to_vec(), context: false, continues: false };
        assert!(failure.is_none() && lines.contains(&third), "{lines:?}");
    }
}

/// Only the line that would have to be shown is too long.
#[test]
fn a_line_is_too_long_where_it_must_be_shown() {
    let Some(dir) = needs::folder("a_line_is_too_long_where_it_must_be_shown", &["mke2fs"]) else { return };
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.write_all_at(b"open", 0).unwrap();
    file.write_all_at(b" closed\nthird\n", AT).unwrap();
    drop(file);
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "4096"]));
    let retriever = Retriever::new(Config::default());
    let search = |pattern: &str| {
        let operation = Operation::Search(SearchOptions {
            patterns: vec![pattern.into()],
            text: true,
            only_matching_files: true,
            ..SearchOptions::default()
        });
        ask(&retriever, &media, &request(path("/sparse"), operation)).1.failure
    };
    assert_eq!(search("third"), None);
    assert!(matches!(search("open"), Some(Failure::LineTooLong(_))));
}

/// A table of a TiB of bytes: rows from here and there, in the order of the list, some twice, some in holes.
/// Only these are read, and an answer that has no room in a buffer goes on in the next.
#[test]
fn rows_of_a_table_of_one_tib() {
    let Some(dir) = needs::folder("rows_of_a_table_of_one_tib", &["mke2fs"]) else { return };
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.write_all_at(b"first line\nopen", 0).unwrap();
    file.write_all_at(b" closed\nthird\n", AT).unwrap();
    file.write_all_at(b"end\n", SIZE - 4).unwrap();
    drop(file);
    let media = MemoryMedia::new(ext_image(dir.path(), 64, &["-t", "ext4", "-b", "4096"]));
    let retriever = Retriever::new(Config::default());
    let table = Table { raw: Some((Element::I8, 1)), ..Table::default() };
    let rows = [(SIZE - 4, b'e'), (3, b's'), (AT + 1, b'c'), (AT + 1, b'c'), (AT + 2, b'l'), (1 << 39, 0)];
    let indices: Vec<u64> = rows.iter().map(|(row, _)| *row).collect();
    let options = GatherOptions { table, indices, ..GatherOptions::default() };
    let file = Got::File("/sparse".into(), SIZE);
    let values = rows.iter().zip(0..).map(|((_, byte), n)| Got::Row(n, vec![f32::from(*byte)]));
    let expected: Vec<Got> = [file.clone()].into_iter().chain(values.clone()).collect();
    let all = request(path("/sparse"), Operation::Gather(options.clone()));
    let (got, answer) = ask(&retriever, &media, &all);
    assert_eq!((&got, answer.failure, answer.counters.bytes_scanned), (&expected, None, 6));
    // With room for two rows.
    let (mut got, answer, commands) = ask_in_parts(&retriever, &media, &all, 380);
    got.retain(|record| *record != file);
    assert_eq!((got, answer.failure, commands), (values.collect(), None, 3));
    // With room for none.
    let (_, answer, _) = ask_in_parts(&retriever, &media, &all, 300);
    assert!(matches!(answer.failure, Some(Failure::InvalidRequest(_))), "{:?}", answer.failure);

    // In bags, of which some are empty; and where the host has found the blocks.
    let bags = GatherOptions { pooling: Pooling::Mean, bags: vec![0, 4, 1, 0, 1], ..options.clone() };
    let [e, s, c, l] = [b'e', b's', b'c', b'l'].map(f32::from);
    let means = [0.0, (e + s + c + c) / 4.0, l, 0.0, 0.0];
    let means: Vec<Got> = means.iter().zip(0..).map(|(mean, n)| Got::Row(n, vec![*mean])).collect();
    let request_of = |options| request(path("/sparse"), Operation::Gather(options));
    let (mut got, answer, commands) = ask_in_parts(&retriever, &media, &request_of(bags.clone()), 380);
    got.retain(|record| *record != file);
    assert_eq!((&got, answer.failure, commands), (&means, None, 3));
    let (map, _) = ask(&retriever, &media, &request(path("/sparse"), Operation::Map));
    let ranges = map.iter().filter_map(|record| match record {
        Got::Extent(_, len, offset) => Some(BlockRange { offset: *offset, len: len.next_multiple_of(512) }),
        _ => None,
    });
    let blocks = Target::Blocks { size: SIZE, ranges: ranges.collect() };
    let (got, answer) = ask(&retriever, &media, &request(blocks, Operation::Gather(bags.clone())));
    assert_eq!((&got[1..], answer.failure), (&means[..], None));

    // What does not add up.
    for wrong in [
        GatherOptions { bags: vec![1, 4], ..bags.clone() },
        GatherOptions { bags: vec![u32::MAX; 3], ..bags },
        GatherOptions { bags: vec![6], ..options.clone() },
        GatherOptions { pooling: Pooling::Weighted, weights: vec![1.0; 5], ..options },
    ] {
        let (_, answer) = ask(&retriever, &media, &request_of(wrong.clone()));
        assert!(matches!(answer.failure, Some(Failure::InvalidRequest(_))), "{wrong:?}");
    }
}
