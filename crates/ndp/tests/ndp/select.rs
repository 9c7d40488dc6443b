//! What a selection makes of files that are not as the others: rows too long to hold, quotes that do not end,
//! columns without a value; and how the groups of files become one answer.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nearside_ndp::select::{Fault, MAX_ROW, Merge, Place, SAMPLE, Selection, Selector, Step, Table};
use nearside_ndp::{SLICE, STEP};
use nearside_near_data::{RowFormat, SelectOptions};
use nearside_random::Rng;

fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// The streams of an answer, and how many rows were passed over.
fn streams(options: &SelectOptions, file: &[u8]) -> Result<(Vec<Vec<u8>>, u64), Fault> {
    let selection = Arc::new(Selection::compile(options.clone()).unwrap());
    let head = &file[..file.len().min(SAMPLE)];
    let plan = Arc::new(selection.plan(head, head.len() == file.len())?);
    let mut selector = Selector::new(&selection);
    selector.begin(plan, Place::default());
    let (mut all, mut passed) = (Vec::new(), 0);
    let mut take = |selector: &mut Selector| {
        let (_, bad, stream) = selector.batch();
        passed += bad;
        all.push(stream.to_vec());
        selector.taken();
    };
    let from = selector.offset() as usize;
    // Pieces end anywhere.
    let mut pieces = file[from..].chunks(4099);
    let mut piece = pieces.next();
    loop {
        let step = match &mut piece {
            Some(piece) => at_once(selector.feed(piece, 1 << 20))?,
            None => at_once(selector.end(1 << 20))?,
        };
        match step {
            Step::More if piece.is_some() => piece = pieces.next(),
            Step::More | Step::Done => break,
            Step::Batch => take(&mut selector),
            Step::Long => {
                let long = selector.long().unwrap().read();
                selector.take_long(long)?;
            }
        }
    }
    take(&mut selector);
    let (most, _) = selector.spent();
    assert!(most <= SLICE + STEP, "{most} units in one poll");
    Ok((all, passed))
}

fn rows(streams: &[Vec<u8>]) -> Vec<String> {
    let mut rows = Vec::new();
    for stream in streams {
        let table = Table::read(stream).unwrap();
        for row in 0..table.rows() {
            let values = (0..table.columns().len()).map(|column| table.value(row, column).to_string());
            rows.push(values.collect::<Vec<_>>().join(" "));
        }
    }
    rows
}

fn answer(options: &SelectOptions, file: &[u8]) -> Result<(Vec<String>, u64), Fault> {
    streams(options, file).map(|(streams, passed)| (rows(&streams), passed))
}

fn csv(header: bool) -> SelectOptions {
    let format = RowFormat::Csv { delimiter: b',', quote: Some(b'"'), header };
    SelectOptions { format, skip_bad: true, ..SelectOptions::default() }
}

fn json() -> SelectOptions {
    SelectOptions { format: RowFormat::JsonLines, skip_bad: true, ..SelectOptions::default() }
}

#[test]
fn rows_that_are_too_long_are_passed_over() {
    let long = "x".repeat(MAX_ROW + 1);
    let fields = ",".repeat(2000);
    let file = format!("a,b\n1,x\n2,{long}\n3,y\n{fields}\n4,z\r\n\"{long}\"\r\n5,w\n6,{long}");
    let all = ["1 x", "3 y", "4 z", "5 w"].map(str::to_owned).to_vec();
    assert_eq!(answer(&csv(true), file.as_bytes()), Ok((all, 4)));
    let strict = SelectOptions { skip_bad: false, ..csv(true) };
    let fault = answer(&strict, file.as_bytes()).unwrap_err();
    assert_eq!(fault, Fault::Row("row 2 (byte 8): longer than 128 KiB".into()));

    let file = format!("{{\"a\":1}}\n{{\"a\":\"{long}\"}}\n{{\"a\":2}}\n{long}");
    assert_eq!(answer(&json(), file.as_bytes()), Ok((vec!["1".into(), "2".into()], 2)));
}

#[test]
fn a_quote_that_does_not_end_takes_no_more_than_a_row() {
    let mut file = String::from("a,b\n1,x\n2,\"y\n");
    (0..40_000).for_each(|n| file.push_str(&format!("{n},z\n")));
    let (found, passed) = answer(&csv(true), file.as_bytes()).unwrap();
    let lost = 40_001 - found.len();
    let shortest = "0,z\n".len();
    assert_eq!((&*found[0], &**found.last().unwrap(), passed), ("1 x", "39999 z", 1));
    assert!(lost * shortest < MAX_ROW + 4096, "{lost} rows are lost");
}

#[test]
fn the_first_row_says_how_many_fields_there_are() {
    let found = answer(&csv(false), b"1,2\n3,4\n5,6,7\n8,9\n");
    assert_eq!(found, Ok((vec!["1 2".into(), "3 4".into(), "8 9".into()], 1)));
    // With names it is these.
    let found = answer(&csv(true), b"a,b\n1\n2,3\n");
    assert_eq!(found, Ok((vec!["2 3".into()], 1)));
}

#[test]
fn where_no_row_is_seen_that_is_said() {
    let long = "x".repeat(SAMPLE + 1);
    for (options, file) in [
        (json(), format!("{{\"a\":\"{long}\"}}\n{{\"a\":1}}\n")),
        (csv(false), format!("{long}\n1,2\n")),
        (csv(true), format!("{long}\n1,2\n")),
    ] {
        let Err(Fault::Table(what)) = answer(&options, file.as_bytes()) else { panic!("{options:?}") };
        assert!(what.contains(" KiB"), "{what}");
    }
    let file = "\n".repeat(2000) + "{\"a\":1}\n";
    assert_eq!(answer(&json(), file.as_bytes()), Ok((vec!["1".into()], 0)));
}

#[test]
fn a_column_without_a_value_is_of_any_type() {
    let file = b"n,m\n,1\n,2\n";
    let with = |condition: &str, aggregates: &str| SelectOptions {
        filter: SelectOptions::condition(condition).unwrap(),
        aggregates: SelectOptions::aggregates(aggregates).unwrap(),
        ..csv(true)
    };
    assert_eq!(answer(&with("n > 5 or n < '2020-01-01'", "count(*)"), file), Ok((vec!["0".into()], 0)));
    let found = answer(&with("n is null and m > 0", "sum(n), max(n), count(n), sum(m)"), file);
    assert_eq!(found, Ok((vec!["  0 3".into()], 0)));
}

/// The groups of files, one after the other.
fn merged(options: &SelectOptions, files: &[&str]) -> Result<Vec<String>, String> {
    let mut merge = Merge::new(options);
    for file in files {
        let (streams, _) = streams(options, file.as_bytes()).map_err(|fault| fault.to_string())?;
        for stream in streams {
            merge.add(&Table::read(&stream).unwrap()).map_err(|error| error.to_string())?;
        }
    }
    merge.streams(u64::MAX).map(|streams| rows(&streams)).map_err(|error| error.to_string())
}

#[test]
fn files_whose_columns_are_empty_do_not_say_their_types() {
    let by = |groups: &str, aggregates: &str| SelectOptions {
        group_by: SelectOptions::names(groups).unwrap(),
        aggregates: SelectOptions::aggregates(aggregates).unwrap(),
        ..csv(true)
    };
    let of_n = by("city", "max(n), sum(n), avg(n)");
    let (empty, full, header) = ("city,n\na,\nb,\n", "city,n\na,1\na,4\n", "city,n\n");
    for files in [[empty, full, header], [header, empty, full], [full, header, empty]] {
        let mut found = merged(&of_n, &files).unwrap();
        found.sort();
        assert_eq!(found, ["a 4 5 2.5", "b   "], "{files:?}");
    }
    let words = "city,n\na,x\n";
    assert!(merged(&by("city", "max(n)"), &[full, words]).unwrap_err().contains("utf8"));
    assert_eq!(merged(&by("n", "count(*)"), &[header, words]), Ok(vec!["x 1".into()]));
}

#[test]
fn a_sum_is_the_same_in_any_order_of_files() {
    let options = SelectOptions { aggregates: SelectOptions::aggregates("sum(n)").unwrap(), ..csv(true) };
    let files = ["n\n9223372036854775807\n", "n\n1\n", "n\n-5\n", "n\n-9223372036854775807\n"];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
        let files = order.map(|nth| files[nth]);
        assert_eq!(merged(&options, &files), Ok(vec!["-4".into()]), "{order:?}");
    }
    assert_eq!(merged(&options, &files[..2]), Err("sum(n) overflows int64".into()));
    let with_floats = merged(&options, &[files[0], files[1], "n\n0.5\n"]).unwrap();
    assert_eq!(with_floats[0].split(' ').next(), Some("9.223372036854776e18"));
}

/// Rows that are done with in one step and rows that go in several, by their lengths and by what is wrong
/// with them, are in one sum.
#[test]
fn short_rows_and_others_are_in_the_same_groups() {
    let mut rng = Rng(7);
    let mut file = String::from("city,price,distance,note\n");
    let (mut groups, mut bad) = (std::collections::BTreeMap::<String, (i64, i64)>::new(), 0);
    for _ in 0..20_000 {
        let city = ["", "Bern", "Oslo"][rng.index(3)];
        let price = [Some(rng.below(200) as i64), None, Some(99)][rng.index(3)];
        let distance = [Some(rng.below(1000) as i64 - 500), None][rng.index(2)];
        let text = |number: Option<i64>| number.map_or(String::new(), |number| number.to_string());
        let wrong = rng.below(50) == 0;
        let note = "x".repeat([rng.index(300), rng.index(2000)][rng.index(2)]);
        let distance_text = if wrong { "far".to_owned() } else { text(distance) };
        file += &format!("{city},{},{distance_text},\"{note},\"\n", text(price));
        match price {
            // It is looked at only in rows that are wanted.
            Some(99..) if wrong => bad += 1,
            Some(99..) => {
                let group = groups.entry(city.to_owned()).or_default();
                *group = (group.0 + 1, group.1 + distance.unwrap_or(0));
            }
            _ => {}
        }
    }
    let mut expected: Vec<_> =
        groups.iter().map(|(city, (rows, sum))| format!("{city} {rows} {sum}")).collect();
    let options = SelectOptions {
        schema: SelectOptions::schema("distance int64").unwrap(),
        filter: SelectOptions::condition("price >= 99").unwrap(),
        group_by: SelectOptions::names("city").unwrap(),
        aggregates: SelectOptions::aggregates("count(*), sum(distance)").unwrap(),
        ..csv(true)
    };
    let (mut found, passed) = answer(&options, file.as_bytes()).unwrap();
    found.sort();
    expected.sort();
    assert_eq!((found, passed), (expected, bad));
    // With more of a condition than the comparisons that rows are looked for by.
    let both = "price >= 99 and (city = 'Bern' or city is null)";
    let options = SelectOptions { filter: SelectOptions::condition(both).unwrap(), ..options };
    let (found, _) = answer(&options, file.as_bytes()).unwrap();
    let is_there = |city: &str| found.iter().any(|row| row.starts_with(city));
    assert!(found.len() == 2 && is_there("Bern") && !is_there("Oslo"), "{found:?}");
}

/// What all columns of a wide table are asked for takes no longer in a step than what a few are.
#[test]
fn wide_rows_are_cut_within_slices() {
    let all = |columns: usize, make: &dyn Fn(usize) -> String, by: &str| {
        (0..columns).map(make).collect::<Vec<_>>().join(by)
    };
    let row = all(250, &|_| "7".to_owned(), ",");
    let file = format!("{}\n{}", all(250, &|n| format!("c{n}"), ","), format!("{row}\n").repeat(500));
    let options = SelectOptions {
        filter: SelectOptions::condition(&all(250, &|n| format!("c{n} >= 0"), " and ")).unwrap(),
        aggregates: SelectOptions::aggregates(&all(64, &|n| format!("sum(c{n})"), ", ")).unwrap(),
        ..csv(true)
    };
    let found = answer(&options, file.as_bytes()).unwrap();
    assert_eq!(found, (vec![all(64, &|_| "3500".to_owned(), " ")], 0));
}
