//! Small files of Parquet by pyarrow and DuckDB (`fuzz/images/make-parquet`): of every encoding, codec and
//! version of pages, each with the same rows; types that are not read; what statistics save; and every byte
//! of them changed.

use std::sync::Arc;

use nearside_conformance::parquet::{How, Said, select};
use nearside_ndp::select::{Fault, Selection};
use nearside_ndp::{SLICE, STEP};
use nearside_near_data::{RowFormat, SelectOptions};

const SAME: [&str; 7] = [
    "dictionary-1-snappy",
    "dictionary-2-gzip",
    "plain-1-none",
    "plain-2-zstd",
    "delta-1-none",
    "delta-2-lz4",
    "duckdb",
];

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fuzz/images/parquet/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Columns, condition, groups, aggregates.
fn options(columns: &str, condition: &str, groups: &str, aggregates: &str) -> SelectOptions {
    let names = |text: &str| if text.is_empty() { Vec::new() } else { SelectOptions::names(text).unwrap() };
    let (columns, group_by) = (names(columns), names(groups));
    let filter = Some(condition).filter(|text| !text.is_empty());
    let aggregates = Some(aggregates).filter(|text| !text.is_empty());
    SelectOptions {
        format: RowFormat::Parquet,
        columns,
        group_by,
        filter: filter.map(|text| SelectOptions::condition(text).unwrap()).unwrap_or_default(),
        aggregates: aggregates.map(|text| SelectOptions::aggregates(text).unwrap()).unwrap_or_default(),
        ..SelectOptions::default()
    }
}

fn answer(options: &SelectOptions, file: &[u8], how: How) -> Said {
    select(&Arc::new(Selection::compile(options.clone()).unwrap()), file, how)
}

fn rows(columns: &str, condition: &str, file: &[u8]) -> Said {
    answer(&options(columns, condition, "", ""), file, How::default())
}

/// A row as `make-parquet` makes it.
fn row(n: usize) -> String {
    let city = ["Bern", "Basel", "", "Zürich", "aaa", "aab"][n % 6];
    let x = if n % 7 == 3 { String::new() } else { format!("{:?}", n as f64 / 4.0 - 3.0) };
    let ok = if n % 11 == 5 { String::new() } else { n.is_multiple_of(3).to_string() };
    let (month, day) = if n < 31 { (1, n + 1) } else { (2, n - 30) };
    let when = if n % 5 == 4 { String::new() } else { format!("2020-01-01 00:00:{n:02}") };
    format!("{n} {city} {x} {ok} 2020-{month:02}-{day:02} {when}")
}

#[test]
fn every_encoding_and_codec_has_the_same_rows() {
    let all: Vec<String> = (0..40).map(row).collect();
    let cut = How { piece: 7, room: 700, again: true, ..How::default() };
    for name in SAME {
        for how in [How::default(), cut] {
            let said = answer(&options("", "", "", ""), &file(name), how);
            assert_eq!((&said.rows, said.fault), (&all, None), "{name}");
            assert!(said.most <= SLICE + 2 * STEP, "{name}: {} units in a slice", said.most);
        }
        let condition =
            "city like 'B%' and (x > 0 or ok) and \"when\" >= '2020-01-01 00:00:20' and day < '2020-02-05'";
        for how in [How::default(), cut] {
            let said = answer(&options("id", condition, "", ""), &file(name), how);
            assert_eq!(said.rows, ["25", "30"], "{name}: {said:?}");
            let groups = options("", "id between 3 and 38", "city", "count(*), sum(id), min(x), max(when)");
            let mut said = answer(&groups, &file(name), how);
            said.rows.sort();
            assert_eq!(said.rows[1], "Basel 6 132 -1.25 2020-01-01 00:00:37", "{name}");
            assert_eq!(said.rows.len(), 6);
        }
    }
    let said = rows("", "", &file("empty"));
    assert_eq!((said.rows.len(), &said.fault), (0, &None));
    let said = rows("", "id in (3, 4)", &file("int96"));
    assert_eq!(said.rows, ["3 2020-01-01 00:00:03", "4 "]);
}

#[test]
fn statistics_save_row_groups() {
    let bytes = file("plain-1-none");
    let all = rows("id", "", &bytes);
    for (condition, groups) in [
        ("id = 20", 1),
        ("id < 16", 1),
        ("id >= 16 and id <> 99", 2),
        ("not (id < 32)", 1),
        ("id in (1, 39)", 2),
        ("id between 15 and 16", 2),
        ("id > 39 or id < 0", 0),
        ("id is null", 0),
        ("null", 0),
        ("\"when\" > '2020-01-01 00:00:32'", 1),
        ("day = '2020-01-01'", 1),
        ("city < 'A'", 0),
        ("city > 'b' and city is not null", 0),
        ("city > 'aa' and city is not null", 3),
        ("x < -2.9", 1),
        // No statistics know of what is no number, which is greater than all that are.
        ("x > 1000", 3),
        ("ok is null and id < 3", 1),
        ("id > 14.5 and id < 15.5", 1),
        ("id = x", 3),
        ("city like 'B%'", 3),
    ] {
        let said = rows("id", condition, &bytes);
        assert_eq!((said.groups, &said.fault), (Some((groups, 3)), &None), "{condition}");
        let whole = answer(&options("id", condition, "", ""), &file("delta-1-none"), How::default());
        assert_eq!(said.rows, whole.rows, "{condition}");
    }
    // Of two columns one is read, and of three row groups one.
    let some = rows("id", "id = 20", &bytes);
    let footer = rows("id", "id > 39", &bytes).bytes;
    assert!(2 * (some.bytes - footer) <= all.bytes - footer, "{} and {}", some.bytes, all.bytes);
    assert!(all.bytes - footer < bytes.len() as u64 / 4, "{} of {}", all.bytes - footer, bytes.len());
    // Where the condition holds for no row, its columns alone are read.
    let none = rows("", "id = 20 and city = 'nowhere'", &bytes);
    let both = rows("id,city", "id between 16 and 31", &bytes);
    assert!(none.rows.is_empty() && none.bytes <= both.bytes, "{} and {}", none.bytes, both.bytes);
}

#[test]
fn types_are_read_or_refused_by_name() {
    let bytes = file("types");
    let refused = |columns: &str| match rows(columns, "", &bytes).fault {
        Some(Fault::Table(what)) => what,
        other => panic!("{columns}: {other:?}"),
    };
    for (columns, what) in [
        ("price", "column price is decimal(9,2), which is read where a schema says that it is float64"),
        ("raw", "column raw is binary, which is read where a schema says that it is utf8"),
        ("t", "column t is a time of day, which is not read"),
        ("tags", "column tags is nested, which is not read"),
        ("point", "column point is nested, which is not read"),
        ("", "column price is decimal(9,2), which is read where a schema says that it is float64"),
    ] {
        assert_eq!(refused(columns), what);
    }
    // What lies behind a nested column is found.
    assert_eq!(rows("last,id", "", &bytes).rows, ["a 0", "b 1", "c 2", "d 3", "e 4"]);
    assert_eq!(rows("f", "f is not null", &bytes).rows, ["0.5", "NaN", "-0.0", "2.5"]);
    assert_eq!(rows("id", "f > 1e30", &bytes).rows, ["1"]);
    let says = |columns: &str, schema: &str| {
        let schema = SelectOptions::schema(schema).unwrap();
        answer(&SelectOptions { schema, ..options(columns, "", "", "") }, &bytes, How::default())
    };
    assert_eq!(says("price", "price float64").rows, ["1.25", "", "-9.99", "0.0", "7.0"]);
    assert_eq!(
        says("raw", "raw utf8").fault,
        Some(Fault::Row("row 2, column raw: \"\u{fffd}\" is no utf8".into()))
    );
    let other = Some(Fault::Table("column id is int64, and not utf8".into()));
    assert_eq!(says("id", "id utf8").fault, other);
    // A value without room is a row that is bad.
    let said = rows("u", "", &bytes);
    assert_eq!(said.fault, Some(Fault::Row("row 3, column u: \"18446744073709551615\" is no int64".into())));
    assert_eq!(said.rows, ["1", ""]);
    // So it is where a comparison asks about it.
    assert_eq!(rows("id", "u > 2", &bytes).fault, said.fault);
    let skip = SelectOptions { skip_bad: true, ..options("u,id", "", "", "") };
    let said = answer(&skip, &bytes, How::default());
    assert_eq!(
        (&said.rows[..], said.bad, said.fault),
        (&["1 0", " 1", "3 3", "4 4"].map(str::to_owned)[..], 1, None)
    );
    let said = answer(&SelectOptions { skip_bad: true, ..options("ns", "", "", "") }, &bytes, How::default());
    assert_eq!((said.rows.len(), said.bad), (4, 1));
    assert_eq!(
        rows("ns", "id = 3", &bytes).fault,
        Some(Fault::Row("row 4, column ns: \"3001 ns\" is no timestamp".into()))
    );
}

#[test]
fn a_file_that_is_none_is_refused_by_what_it_lacks() {
    let bytes = file("plain-1-none");
    let says = |bytes: &[u8]| rows("", "", bytes).fault.map(|fault| fault.to_string()).unwrap_or_default();
    assert_eq!(says(b""), "no Parquet: it has less than 12 bytes");
    assert_eq!(says(b"id,city\n1,Bern\n"), "no Parquet: it does not end in PAR1");
    assert_eq!(
        says(&[&bytes[..bytes.len() - 4], b"PARE"].concat()),
        "Parquet whose footer is encrypted, which is not read"
    );
    let len = bytes.len();
    let with = |len_of_footer: u32| [&bytes[..len - 8], &len_of_footer.to_le_bytes(), b"PAR1"].concat();
    assert_eq!(says(&with(u32::MAX)), "a footer of 4294967295 bytes: at most 16 MiB are read");
    assert!(says(&with(len as u32)).starts_with("a footer of"), "{}", says(&with(len as u32)));
    assert!(says(&with(7)).starts_with("the footer: "), "{}", says(&with(7)));
}

/// Every byte of every file, changed; and every end.
#[test]
fn no_byte_of_a_file_is_trusted() {
    let asked = [
        options("", "", "", ""),
        options("", "x > 0 or city like 'B%'", "ok", "count(*), max(city), sum(id)"),
    ];
    let asked = asked.map(|options| Arc::new(Selection::compile(options).unwrap()));
    let how = How { slices: 20_000, ..How::default() };
    let (mut refused, mut answered) = (0, 0);
    for name in SAME.iter().chain(&["types", "int96", "empty"]) {
        let bytes = file(name);
        let mut look = |bytes: &[u8]| {
            for selection in &asked {
                let said = select(selection, bytes, how);
                assert!(said.most <= SLICE + 2 * STEP, "{name}: {} units in a slice", said.most);
                let counted = if said.fault.is_some() { &mut refused } else { &mut answered };
                *counted += 1;
            }
        };
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= [0x01, 0x80, 0xff, 0x7f][at % 4];
            look(&changed);
            // A length, as great as it may be.
            if at % 3 == 0 {
                changed.splice(at..at + 1, [0xff, 0xff, 0xff, 0xff, 0x07]);
                look(&changed);
            }
            if at % 7 == 0 {
                look(&bytes[..at]);
                look(&[&bytes[..at], &bytes[bytes.len() - 8..]].concat());
            }
        }
    }
    assert!(refused > 10_000 && answered > 10_000, "{refused} refused, {answered} answered");
}
