//! Selections from files of Parquet. Whatever the bytes, nothing panics; the answer in pieces, in small
//! batches and gone on with after each is the answer at once; a batch fits in its room; slices and steps end.
//!
//! An input: how (a byte), the length of pieces, the room; then, by bytes of 0xff, condition, groups,
//! aggregates, and the file.

use std::sync::Arc;

use nearside_conformance::parquet::{How, select};
use nearside_ndp::select::Selection;
use nearside_ndp::{SLICE, STEP};
use nearside_near_data::{RowFormat, SelectOptions};

/// Slices of an input: a file may say that it has millions of rows.
const SLICES: u64 = 5_000;

const FILES: [&[u8]; 10] = [
    include_bytes!("../../../fuzz/images/parquet/dictionary-1-snappy.parquet"),
    include_bytes!("../../../fuzz/images/parquet/dictionary-2-gzip.parquet"),
    include_bytes!("../../../fuzz/images/parquet/plain-1-none.parquet"),
    include_bytes!("../../../fuzz/images/parquet/plain-2-zstd.parquet"),
    include_bytes!("../../../fuzz/images/parquet/delta-1-none.parquet"),
    include_bytes!("../../../fuzz/images/parquet/delta-2-lz4.parquet"),
    include_bytes!("../../../fuzz/images/parquet/duckdb.parquet"),
    include_bytes!("../../../fuzz/images/parquet/types.parquet"),
    include_bytes!("../../../fuzz/images/parquet/int96.parquet"),
    include_bytes!("../../../fuzz/images/parquet/empty.parquet"),
];

/// Runs an input.
pub fn run(input: &[u8]) {
    let Some((&[how, piece, room], rest)) = input.split_first_chunk::<3>() else { return };
    let mut parts = rest.splitn(4, |byte| *byte == 0xff);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (condition, groups, aggregates) = (text(), text(), text());
    let file = parts.next().unwrap_or_default();
    let options = SelectOptions {
        format: RowFormat::Parquet,
        schema: SelectOptions::schema("price float64, raw utf8").unwrap_or_default(),
        columns: if how & 1 != 0 { vec!["id".to_owned(), "city".to_owned()] } else { Vec::new() },
        filter: SelectOptions::condition(&condition).unwrap_or_default(),
        group_by: SelectOptions::names(&groups).unwrap_or_default(),
        aggregates: SelectOptions::aggregates(&aggregates).unwrap_or_default(),
        limit: (how & 0x10 != 0).then_some(3),
        skip_bad: how & 0x20 != 0,
    };
    let Ok(selection) = Selection::compile(options) else { return };
    let selection = Arc::new(selection);
    let whole = select(&selection, file, How { slices: SLICES, ..How::default() });
    let cut = How {
        piece: 1 + usize::from(piece),
        room: usize::from(room) * 32,
        again: how & 0x40 != 0,
        slices: 20 * SLICES,
    };
    let in_pieces = select(&selection, file, cut);
    for said in [&whole, &in_pieces] {
        assert!(said.most <= SLICE + 2 * STEP, "{} units in a slice", said.most);
    }
    if !whole.given_up && !in_pieces.given_up {
        assert_eq!((in_pieces.rows, in_pieces.bad), (whole.rows, whole.bad));
        assert_eq!(in_pieces.fault, whole.fault);
    }
}

/// Files of every encoding, codec and version of pages, and conditions of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let asked: [(&[u8], &[u8], &[u8]); 6] = [
        (b"", b"", b""),
        (b"id > 15 and not city like 'B%'", b"", b""),
        (b"x < 0 or ok or \"when\" is null", b"", b""),
        (b"day >= '2020-01-20'", b"city", b"count(*), max(x)"),
        (b"", b"", b"count(*), sum(id), avg(id), min(city)"),
        (b"id in (1, 17, 33) or price > 1", b"", b""),
    ];
    let mut seeds = Vec::new();
    for (nth, file) in (0u8..).zip(FILES) {
        for (at, (condition, groups, aggregates)) in (0u8..).zip(asked) {
            let how = (nth ^ at) & 1 | (at & 1) << 5 | (nth & 1) << 6;
            let parts = [condition, groups, aggregates, file].join(&[0xff][..]);
            seeds.push([&[how, 9 * nth, 30][..], &parts].concat());
        }
    }
    seeds
}
