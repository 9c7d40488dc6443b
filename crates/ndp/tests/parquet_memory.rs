//! Files of Parquet that are made to take memory or time, or to be passed over: pages that grow, texts that
//! grow, lengths of 2^31, nulls in runs.
//! All of them in one process, whose memory has a bound. Each step of them has one.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use nearside_conformance::parquet::{How, Said, select};
use nearside_ndp::select::Selection;
use nearside_ndp::{SLICE, STEP as STEPS};
use nearside_near_data::{RowFormat, SelectOptions};

/// Pages and dictionaries have 128 MiB, a window of zstd 32, and a file stands in memory here.
const MOST_KIB: u64 = 256 << 10;
/// A page of 32 MiB, decompressed or looked through at once, where others use the machine as well.
const STEP: Duration = Duration::from_secs(2);

/// Thrift's compact protocol, written: fields, each with its number.
#[derive(Clone, Default)]
struct Fields {
    bytes: Vec<u8>,
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Fields {
    fn head(mut self, number: i16, wire: u8) -> Fields {
        self.bytes.push(wire);
        varint((i64::from(number) << 1) as u64, &mut self.bytes);
        self
    }

    fn int(mut self, number: i16, value: i64) -> Fields {
        self = self.head(number, 6);
        varint((value << 1 ^ value >> 63) as u64, &mut self.bytes);
        self
    }

    fn text(mut self, number: i16, value: &str) -> Fields {
        self = self.head(number, 8);
        varint(value.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(value.as_bytes());
        self
    }

    fn within(mut self, number: i16, fields: Fields) -> Fields {
        self = self.head(number, 12);
        self.bytes.extend(fields.end());
        self
    }

    fn list(self, number: i16, all: Vec<Fields>) -> Fields {
        let bytes: Vec<u8> = all.iter().flat_map(|fields| fields.clone().end()).collect();
        self.many(number, all.len(), &bytes, 1)
    }

    /// A list of so many structs, which are these bytes so many times.
    fn many(mut self, number: i16, count: usize, bytes: &[u8], times: usize) -> Fields {
        self = self.head(number, 9);
        self.bytes.push(0xfc);
        varint(count as u64, &mut self.bytes);
        (0..times).for_each(|_| self.bytes.extend_from_slice(bytes));
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// A page: its type, encoding, values, bytes as they are stored, and how many they are said to be.
fn page(kind: i64, encoding: i64, values: i64, stored: &[u8], size: i64) -> Vec<u8> {
    let of = Fields::default().int(1, values).int(2, encoding).int(3, 3).int(4, 3);
    let number = if kind == 2 { 7 } else { 5 };
    let header = Fields::default().int(1, kind).int(2, size).int(3, stored.len() as i64).within(number, of);
    [header.end(), stored.to_vec()].concat()
}

/// A file with columns of texts that are never null, all of the same pages.
fn file(columns: usize, codec: i64, rows: i64, pages: &[u8]) -> Vec<u8> {
    file_of(columns, codec, rows, (pages, false))
}

fn file_of(columns: usize, codec: i64, rows: i64, (pages, nulls): (&[u8], bool)) -> Vec<u8> {
    let mut bytes = b"PAR1".to_vec();
    let mut chunks = Vec::new();
    let at = bytes.len() as i64;
    bytes.extend_from_slice(pages);
    for _ in 0..columns {
        let of = Fields::default().int(1, 6).int(4, codec).int(5, rows).int(7, pages.len() as i64).int(9, at);
        chunks.push(Fields::default().int(2, at).within(3, of));
    }
    let mut schema = vec![Fields::default().text(4, "root").int(5, columns as i64)];
    for n in 0..columns {
        schema.push(Fields::default().int(1, 6).int(3, nulls.into()).text(4, &format!("c{n}")).int(6, 0));
    }
    let group = Fields::default().list(1, chunks).int(2, 1).int(3, rows);
    let footer = Fields::default().int(1, 2).list(2, schema).int(3, rows).list(4, vec![group]).end();
    bytes.extend_from_slice(&footer);
    bytes.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    bytes.extend_from_slice(b"PAR1");
    bytes
}

fn gzip(content: usize) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    (0..content >> 20).for_each(|_| out.write_all(&zeros).unwrap());
    out.finish().unwrap()
}

/// A frame of blocks of one byte each, with a window of so many bytes (a power of two).
fn zstd(content: usize, window: u32) -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, ((window.ilog2() - 10) << 3) as u8];
    let blocks = content >> 17;
    for nth in 0..blocks {
        // Its bytes, that it is of one, and whether it is the last.
        let head = (1u32 << 17) << 3 | 1 << 1 | u32::from(nth + 1 == blocks);
        out.extend_from_slice(&head.to_le_bytes()[..3]);
        out.push(0);
    }
    out
}

/// A run of one value.
fn run(count: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(count << 1, &mut out);
    out.extend_from_slice(value);
    out
}

/// A number, and so many that are as great.
fn deltas(count: u64, first: i64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(1 << 31, &mut out);
    varint(1, &mut out);
    varint(count, &mut out);
    varint((first << 1) as u64, &mut out);
    // The difference, and the width.
    out.extend_from_slice(&[0, 0]);
    out
}

fn asked(file: &[u8], aggregates: &str, how: How) -> Said {
    asked_where(file, aggregates, "", how)
}

fn asked_where(file: &[u8], aggregates: &str, condition: &str, how: How) -> Said {
    let filter = Some(condition).filter(|condition| !condition.is_empty());
    let options = SelectOptions {
        aggregates: SelectOptions::aggregates(aggregates).unwrap(),
        filter: filter.map(|condition| SelectOptions::condition(condition).unwrap()).unwrap_or_default(),
        ..SelectOptions::default()
    };
    selected(options, file, how)
}

fn selected(options: SelectOptions, file: &[u8], how: How) -> Said {
    let options = SelectOptions { format: RowFormat::Parquet, ..options };
    let said = select(&Arc::new(Selection::compile(options).unwrap()), file, how);
    assert!(said.longest < STEP, "a step of {:?}", said.longest);
    said
}

fn fault(file: &[u8]) -> String {
    let columns: Vec<String> = (0..16).map(|n| format!("count(c{n})")).collect();
    let most = columns.len();
    // As many columns as there are.
    let said = (1..=most).rev().map(|n| asked(file, &columns[..n].join(", "), How::default()));
    let says = |said: Said| said.fault.map(|fault| fault.to_string()).unwrap_or_default();
    said.map(says).find(|what| !what.contains("there is no column")).unwrap()
}

const PAGE: i64 = 32 << 20;
const OTHER: &str = "row group 1, column c0: compressed data of another size than the header's";

fn pages_that_grow() {
    let gib = gzip(1 << 30);
    assert_eq!(fault(&file(1, 2, 1, &page(0, 0, 1, &gib, 1000))), OTHER);
    assert_eq!(fault(&file(1, 2, 1, &page(0, 0, 1, &gib, PAGE))), OTHER);
    let says = fault(&file(1, 2, 1, &page(0, 0, 1, &gib, PAGE + 1)));
    assert_eq!(says, "row group 1, column c0: more than 32 MiB, which are not read at once");
    for window in [1 << 17, 32 << 20] {
        assert_eq!(fault(&file(1, 6, 1, &page(0, 0, 1, &zstd(1 << 30, window), 1000))), OTHER);
        assert_eq!(fault(&file(1, 6, 1, &page(0, 0, 1, &zstd(1 << 30, window), PAGE))), OTHER);
    }
    let says = fault(&file(1, 6, 1, &page(0, 0, 1, &zstd(1 << 20, 1 << 30), PAGE)));
    assert!(says.ends_with("a frame of zstd that is corrupt, or looks back too far"), "{says}");
    let mut snappy = Vec::new();
    varint(u32::MAX.into(), &mut snappy);
    assert_eq!(fault(&file(1, 1, 1, &page(0, 0, 1, &snappy, PAGE))), OTHER);
    // A literal, and a match that goes on.
    let lz4 = [&[0x1f, 0, 1, 0][..], &vec![0xff; 1 << 20], &[0, 0]].concat();
    let says = fault(&file(1, 7, 1, &page(0, 0, 1, &lz4, PAGE)));
    assert!(says.ends_with("compressed data that are corrupt"), "{says}");
    // Each column's page is as large as one may be.
    let says = fault(&file(16, 6, 1, &page(0, 0, 1, &zstd(PAGE as usize, 1 << 17), PAGE)));
    assert!(
        says.ends_with("its pages and those of the other columns have more than 128 MiB together"),
        "{says}"
    );
    // So is a dictionary of nothing but empty texts.
    let dictionary = page(2, 0, PAGE / 4, &zstd(PAGE as usize, 1 << 17), PAGE);
    let numbers = page(0, 8, 1, &zstd(1 << 17, 1 << 17), 1 << 17);
    let says = fault(&file(1, 6, 1, &[dictionary, numbers].concat()));
    assert_eq!(says, "row group 1, column c0: a run of no values");
}

fn texts_that_grow() {
    let (text, rows) = ("x".repeat(100 << 10), 20_000);
    let long = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let dictionary = page(2, 0, 1, &long, long.len() as i64);
    let numbers = [&[1][..], &run(rows, &[0])].concat();
    let pages = [dictionary, page(0, 8, rows as i64, &numbers, numbers.len() as i64)].concat();
    let said = asked(&file(1, 0, rows as i64, &pages), "count(c0), max(c0)", How::default());
    assert_eq!((said.rows.len(), &said.fault), (1, &None));
    assert!(said.rows[0].starts_with("20000 x"));
    // Each text begins with all of the one before.
    let kept = deltas(rows, text.len() as i64);
    let mut lengths = Vec::new();
    varint(128, &mut lengths);
    varint(1, &mut lengths);
    varint(rows, &mut lengths);
    varint(0, &mut lengths);
    (0..rows.div_ceil(128)).for_each(|_| lengths.extend_from_slice(&[0, 0]));
    let first = {
        // The first one has nothing before it to begin with.
        let values = [&kept[..], &lengths].concat();
        page(0, 7, rows as i64, &values, values.len() as i64)
    };
    let says = fault(&file(1, 0, rows as i64, &first));
    assert!(says.ends_with("a text that begins with more than the one before it has"), "{says}");
    // 0, and then a difference of as many bytes, and none after it.
    let mut kept = Vec::new();
    varint(128, &mut kept);
    varint(1, &mut kept);
    varint(rows, &mut kept);
    varint(0, &mut kept);
    // Of the first block the first difference is all of the text, in 17 bits.
    let mut block = vec![0, 17];
    let mut packed = [0u8; 17 * 128 / 8];
    packed[..3].copy_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
    block.extend_from_slice(&packed);
    kept.extend_from_slice(&block);
    (1..(rows - 1).div_ceil(128)).for_each(|_| kept.extend_from_slice(&[0, 0]));
    let mut added = Vec::new();
    varint(128, &mut added);
    varint(1, &mut added);
    varint(rows, &mut added);
    varint((text.len() as u64) << 1, &mut added);
    // The first difference is less by all of the text.
    varint(((text.len() as u64) << 1) - 1, &mut added);
    added.push(17);
    let mut packed = [0u8; 17 * 128 / 8];
    for nth in 1..128usize {
        for bit in 0..17 {
            let at = nth * 17 + bit;
            packed[at / 8] |= ((text.len() >> bit & 1) as u8) << (at % 8);
        }
    }
    added.extend_from_slice(&packed);
    (1..(rows - 1).div_ceil(128)).for_each(|_| added.extend_from_slice(&[0, 0]));
    let values = [&kept[..], &added, text.as_bytes()].concat();
    let pages = page(0, 7, rows as i64, &values, values.len() as i64);
    let said = asked(&file(1, 0, rows as i64, &pages), "count(c0), min(c0)", How::default());
    assert_eq!((said.rows.len(), &said.fault), (1, &None));
    assert!(said.rows[0].starts_with("20000 x") && said.rows[0].len() == 6 + text.len());
}

fn counts_that_are_none() {
    // A run of 2^31 values, of a row group with as many rows.
    let rows = i64::from(i32::MAX);
    let dictionary = page(2, 0, 1, &[1, 0, 0, 0, b'x'], 5);
    let numbers = [&[1][..], &run(rows as u64, &[0])].concat();
    let pages = [dictionary, page(0, 8, rows, &numbers, numbers.len() as i64)].concat();
    let says = fault(&file(1, 0, rows, &pages));
    assert!(
        says.contains("more than 67,108,864 rows, and 4,096 more for each of the file's bytes"),
        "{says}"
    );
    let says = fault(&file(1, 0, 10, &pages));
    assert!(says.ends_with("more values than its row group has rows"), "{says}");
    // As many as may be: it goes on for as long as somebody waits.
    let rows = 1 << 26;
    let numbers = [&[1][..], &run(rows as u64, &[0])].concat();
    let pages = [page(2, 0, 1, &[1, 0, 0, 0, b'x'], 5), page(0, 8, rows, &numbers, numbers.len() as i64)];
    let how = How { slices: 3000, ..How::default() };
    assert!(asked(&file(1, 0, rows, &pages.concat()), "count(c0)", how).given_up);
    // Values that are not there, of each encoding.
    for encoding in 0..10 {
        for bytes in [&[][..], &[0; 3], &[0xff; 40], &[2; 300], &[0x80, 1, 4, 0xff, 0xff, 0xff, 0xff, 0xf, 0]]
        {
            let says = fault(&file(1, 0, 1000, &page(0, encoding, 1000, bytes, bytes.len() as i64)));
            assert!(says.starts_with("row group 1, column c0: "), "{encoding} {bytes:?}: {says}");
        }
    }
}

/// Of at most so many bytes at once a slice is what its units say.
const PIECES: usize = 16 << 10;

fn texts_that_are_compared() {
    let how = How { piece: PIECES, ..How::default() };
    for last in ["é", "e"] {
        // One that is valid, and one whose last character is cut.
        let mut text = "é".repeat((16 << 20) - 8);
        text.push_str(last);
        let mut long = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        if last == "e" {
            *long.last_mut().unwrap() = 0xc3;
        }
        let plain = page(0, 0, 1, &long, long.len() as i64);
        let numbers = [&[1][..], &run(1, &[0])].concat();
        let numbers = page(0, 8, 1, &numbers, numbers.len() as i64);
        let dictionary = [page(2, 0, 1, &long, long.len() as i64), numbers].concat();
        let many = vec!["c0 = 'x'"; 200].join(" and ");
        for pages in [&plain, &dictionary] {
            for condition in ["c0 = 'x'", "c0 <> 'x'", &many] {
                let said = asked_where(&file(1, 0, 1, pages), "count(*)", condition, how);
                assert_eq!(said.fault.unwrap().to_string(), "row 1: longer than 128 KiB", "{condition}");
                assert!(said.most <= SLICE + 2 * STEPS, "{} units in a slice", said.most);
            }
        }
    }
}

fn rows_that_are_passed_over() {
    // What is no text is met, whatever it is compared with.
    let bad = [&[1, 0, 0, 0, b'y'][..], &[1, 0, 0, 0, 0xff]].concat();
    let numbers = [&[1][..], &run(1, &[0]), &run(1, &[1])].concat();
    let dictionary = [page(2, 0, 2, &bad, 10), page(0, 8, 2, &numbers, numbers.len() as i64)].concat();
    for pages in [page(0, 0, 2, &bad, 10), dictionary] {
        let said = asked_where(&file(1, 0, 2, &pages), "count(*)", "c0 = 'x'", How::default());
        assert_eq!(said.fault.unwrap().to_string(), "row 2, column c0: \"\u{fffd}\" is no utf8");
    }
    // Nulls between numbers of a dictionary have none.
    let texts: Vec<u8> = b"abc".iter().flat_map(|byte| [1, 0, 0, 0, *byte]).collect();
    let levels = [run(300, &[1]), run(400, &[0]), run(300, &[1])].concat();
    let numbers = [&[2][..], &run(299, &[0]), &run(2, &[1]), &run(299, &[0])].concat();
    let values = [&(levels.len() as u32).to_le_bytes()[..], &levels, &numbers].concat();
    let pages = [page(2, 0, 3, &texts, 15), page(0, 8, 1000, &values, values.len() as i64)].concat();
    let file = file_of(1, 0, 1000, (&pages, true));
    for (condition, count) in [
        ("c0 = 'a'", "598"),
        ("c0 = 'b'", "2"),
        ("c0 <> 'a'", "2"),
        ("c0 > 'b'", "0"),
        ("'a' < c0", "2"),
        ("'b' <= c0", "2"),
        ("'b' > c0 and 'a' = c0", "598"),
        ("c0 is null", "400"),
        ("c0 = 'b' or c0 is null", "402"),
    ] {
        let said = asked_where(&file, "count(*)", condition, How::default());
        assert_eq!((said.rows, said.fault), (vec![count.to_owned()], None), "{condition}");
    }
}

/// Two numbers.
fn two(first: i64, second: i64) -> Vec<u8> {
    let mut out = Vec::new();
    [128, 1, 2].into_iter().for_each(|value| varint(value, &mut out));
    [first, second - first].into_iter().for_each(|n| varint((n << 1 ^ n >> 63) as u64, &mut out));
    out.push(0);
    out
}

fn texts_of_many_columns() {
    let text = "x".repeat(128 << 10);
    let len = text.len() as i64;
    let values = [&two(0, len - 1)[..], &two(len - 1, 1), text.as_bytes()].concat();
    let pages = page(0, 7, 2, &values, values.len() as i64);
    let how = How { piece: PIECES, ..How::default() };
    for (columns, what) in [
        (400, "row 1: longer than 128 KiB"),
        // Each takes as much as its page once more.
        (600, "its pages and those of the other columns have more than 128 MiB together"),
    ] {
        let said = selected(SelectOptions::default(), &file(columns, 0, 2, &pages), how);
        let says = said.fault.unwrap().to_string();
        assert!(says.ends_with(what), "{says}");
        assert!(said.most <= SLICE + 2 * STEPS, "{} units in a slice", said.most);
        // Each text is copied, and counts.
        let texts = if columns == 400 { 400 * (len as u64 / 20) } else { 0 };
        assert!(said.units >= texts, "{} units", said.units);
    }
    let said = asked(&file(1, 0, 2, &pages), "count(c0), max(c0)", how);
    assert_eq!((said.rows[0].len(), said.fault), (2 + text.len(), None));
}

fn footers_that_grow() {
    let with = |footer: &[u8]| {
        let len = (footer.len() as u32).to_le_bytes();
        [b"PAR1", footer, &len, b"PAR1"].concat()
    };
    let element = Fields::default().text(4, "c0").int(1, 6);
    let root = |children: i64| Fields::default().text(4, "root").int(5, children);
    for (schema, what) in [
        (vec![root(1 << 40), element.clone()], "a schema that is no tree"),
        (vec![root(0), element.clone()], "a schema that is no tree"),
        (vec![root(2000); 2000], "a schema that is no tree"),
        ([vec![root(9000)], vec![element.clone(); 9000]].concat(), "more than 1,024 columns"),
        (vec![element.clone(); 20_000], "a schema of more than 16,384 elements"),
    ] {
        let says = fault_of_rows(&with(&Fields::default().int(1, 2).list(2, schema).list(4, vec![]).end()));
        assert!(says.contains(what), "{says}");
    }
    // Millions of row groups without a column, in one list and in many.
    let group = Fields::default().int(3, 1).end();
    let schema = || Fields::default().list(2, vec![root(0)]);
    let most = "more than 65,536 row groups, or than 262,144 chunks";
    assert!(fault_of_rows(&with(&schema().many(4, 3_000_000, &group, 3_000_000).end())).contains(most));
    let many = (0..50).fold(schema(), |fields, _| fields.many(4, 60_000, &group, 60_000));
    assert!(fault_of_rows(&with(&many.end())).contains(most));
    // Lists of nothing, and of what is deep.
    let lists = Fields::default().many(99, 15 << 20, &[0], 15 << 20);
    assert!(fault_of_rows(&with(&lists.end())).contains("it has no schema"));
    let deep = (0..100_000).fold(Fields::default(), |fields, _| Fields::default().within(99, fields));
    assert!(fault_of_rows(&with(&deep.end())).contains("fields too deep in each other"));
}

fn fault_of_rows(file: &[u8]) -> String {
    asked(file, "count(*)", How::default()).fault.map(|fault| fault.to_string()).unwrap_or_default()
}

fn most_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn memory_and_steps_are_bounded() {
    for (what, part) in [
        ("pages", pages_that_grow as fn()),
        ("texts", texts_that_grow),
        ("counts", counts_that_are_none),
        ("compared", texts_that_are_compared),
        ("columns", texts_of_many_columns),
        ("rows", rows_that_are_passed_over),
        ("footers", footers_that_grow),
    ] {
        part();
        let kib = most_kib();
        assert!(kib < MOST_KIB, "{what}: {kib} KiB");
    }
}
