//! Files that are mostly holes: what an operation costs is counted by the bytes that it looked at.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;

use common::{Got, ask, ext_image, path, request};
use nearside_conformance::needs;
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_ndp::unordered::{Gather, SumCrc32c};
use nearside_near_data::{Answer, Digest, Failure, Operation, SearchOptions};

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
