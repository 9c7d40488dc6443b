//! Blocks in any order give the answer of blocks in order, and both that of the naive twin.

use nearside_conformance::naive;
use nearside_ndp::unordered::{CountLines, CountWords, Gather, SumCrc32c, Unordered};
use nearside_ndp::{Answer, Checksum, Counter, Digest, Error, Flow, Search, SearchOptions, Searcher};
use proptest::prelude::*;
use std::sync::Arc;

/// Cuts a file into blocks and hands them on in the order of `keys`.
fn gather<O: Unordered>(operation: O, file: &[u8], block: usize, keys: &[u32]) -> O::Answer {
    let mut blocks: Vec<(usize, u64, &[u8])> = file
        .chunks(block)
        .enumerate()
        .map(|(i, bytes)| (keys[i % keys.len()] as usize, (i * block) as u64, bytes))
        .collect();
    blocks.sort_by_key(|(key, _, _)| *key);
    let mut gather = Gather::new(operation);
    for (_, offset, bytes) in blocks {
        if gather.feed(offset, bytes).unwrap() == Flow::Done {
            break;
        }
    }
    gather.finish(file.len() as u64).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_counts_alike(
        file in prop::collection::vec(prop::sample::select(b"aab b\n\n\t\x01\x80x".to_vec()), 0..600),
        block in 1usize..80,
        keys in prop::collection::vec(any::<u32>(), 1..600),
        pattern in prop::sample::select(vec!["a", "ab", "a+b", "^$", "b$", "x|bb", "\\bab"]),
        fixed in any::<bool>(),
        invert in any::<bool>(),
        first in any::<bool>(),
        max_count in prop::option::of(0u64..4),
    ) {
        let (lines, words, bytes) = naive::count(&file);
        let counted = gather(CountWords, &file, block, &keys);
        prop_assert_eq!((counted.lines, counted.words, counted.bytes), (lines, words, bytes));
        let mut counter = Counter::default();
        file.chunks(block).for_each(|piece| counter.feed(piece));
        prop_assert_eq!(counter.counted(), counted);

        let mut sum = Checksum::new(Digest::Crc32c);
        sum.feed(&file);
        prop_assert_eq!(gather(SumCrc32c, &file, block, &keys).to_be_bytes().to_vec(), sum.value());

        let answer = if first { Answer::Files } else { Answer::Count };
        let options =
            SearchOptions { patterns: vec![pattern.into()], fixed, invert, answer, max_count, ..SearchOptions::default() };
        let found = naive::search(&naive::Matcher::new(&options).unwrap(), &file).1;
        let search = Arc::new(Search::compile(options).unwrap());
        prop_assert_eq!(gather(CountLines::new(&search).unwrap(), &file, block, &keys), found);
        let mut searcher = Searcher::new(&search);
        for piece in file.chunks(block) {
            if searcher.feed(piece, &mut ()).unwrap() == Flow::Done {
                break;
            }
        }
        let _ = searcher.finish(&mut ()).unwrap();
        prop_assert_eq!(searcher.found(), found);
    }
}

#[test]
fn long_stretches_count_words_alike() {
    // Longer than the blocks that the fast counter looks at, with every kind of byte.
    let mut seed = 1u64;
    let mut file = Vec::new();
    for size in [0, 1, 127, 128, 129, 1000, 100_000] {
        file.clear();
        for _ in 0..size {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let byte = (seed >> 56) as u8;
            // Long stretches of text, then some of anything.
            let text = !(seed >> 20).is_multiple_of(1000) || file.len() % 5000 > 1000;
            file.push(if text { b"etaoin \n shrdlu"[usize::from(byte) % 15] } else { byte });
        }
        let mut counter = Counter::default();
        counter.feed(&file);
        let counted = counter.counted();
        assert_eq!((counted.lines, counted.words, counted.bytes), naive::count(&file));
    }
}

#[test]
fn a_missing_or_doubled_block_is_an_error() {
    let mut gather = Gather::new(SumCrc32c);
    assert_eq!(gather.feed(0, b"abc"), Ok(Flow::More));
    assert_eq!(gather.feed(5, b"fg"), Ok(Flow::More));
    assert_eq!(gather.feed(2, b"x"), Err(Error::Gap { offset: 2 }));
    assert_eq!(gather.feed(4, b"ef"), Err(Error::Gap { offset: 4 }));
    assert_eq!(gather.finish(7), Err(Error::Gap { offset: 3 }));
    gather.begin();
    assert_eq!(gather.finish(0), Ok(0));
    assert_eq!(gather.feed(u64::MAX, b"ab"), Err(Error::Gap { offset: u64::MAX }));
}

#[test]
fn digests_of_known_bytes() {
    let hex = |digest: Digest| {
        let mut sum = Checksum::new(digest);
        sum.feed(b"left over");
        sum.begin();
        sum.feed(b"1234");
        sum.feed(b"56789");
        sum.value().iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    assert_eq!(hex(Digest::Crc32c), "e3069283");
    assert_eq!(hex(Digest::Sha256), "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
    assert_eq!(hex(Digest::Xxh3), format!("{:016x}", xxhash_rust::xxh3::xxh3_64(b"123456789")));
}
